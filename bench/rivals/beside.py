"""What scripts share that measure a library beside the program: options, a run of the program, and the document."""
import argparse
import json
import os
import subprocess
import sys


def parser(description, quick="a tenth of the program's time"):
    """--program, --out and --quick, whose help is `quick`"""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", required=True, help="the bppsa program")
    p.add_argument("--out", help="where the JSON document goes")
    p.add_argument("--quick", action="store_true", help=quick)
    return p


def run(o, *words, accepted=(0,)):
    """what the program prints; ends the script with the program's exit status where it is not an accepted one"""
    done = subprocess.run([os.path.abspath(o.program), *map(str, words)], stdout=subprocess.PIPE, text=True)
    if done.returncode not in accepted or not done.stdout:
        sys.exit(done.returncode or 1)
    return done.stdout


def write(path, document):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file)
        file.write("\n")
