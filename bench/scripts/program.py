"""What scripts that train with the program share: their options, and a run of the program."""
import argparse
import os
import subprocess
import sys


def parser(description, folder):
    """--program, --folder (folder: what it is for), --threads and --out"""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", required=True, help="the bppsa program")
    p.add_argument("--folder", required=True, help=folder)
    p.add_argument("--threads", type=int, default=2, help="[2]")
    p.add_argument("--out", help="where the JSON document goes")
    return p


def run(o, *arguments):
    """what the program prints; ends the script with the program's exit status where it fails"""
    done = subprocess.run([os.path.abspath(o.program), *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout
