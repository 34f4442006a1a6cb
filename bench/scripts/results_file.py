#!/usr/bin/env python3
"""Lays out files of results for people and for version control: a row of a table is a line, and a number has the digits it needs.

    bench/scripts/results_file.py bench/results/rnn_cpu.json ...            lays them out
    bench/scripts/results_file.py --check bench/results/rnn_cpu.json ...    names the files that are laid out otherwise

The program writes a whole document as one line. A file laid out anew holds the same rows; its real numbers are rounded to six
significant digits, where measured times have two or three that repeat. Whole numbers and texts stay as they are.
The scripts beside this one write their results with write().
"""
import json
import sys

from program import plain_parser

DIGITS = 6


def rounded(value):
    """the value with every real number in it rounded"""
    if isinstance(value, float):
        return float("%.*g" % (DIGITS, value))
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value


def has_rows(value):
    """Does a table stand somewhere in the value: a list of objects?"""
    if isinstance(value, list):
        return any(isinstance(item, dict) or has_rows(item) for item in value)
    return isinstance(value, dict) and any(has_rows(item) for item in value.values())


def layout(value, indent=0):
    """the value as JSON: what holds no table is one line; a table has a line for each of its rows"""
    if not value or not has_rows(value):
        return json.dumps(value, ensure_ascii=False)
    inner = "\n" + " " * (indent + 1)
    if isinstance(value, list):
        return "[" + inner + ("," + inner).join(layout(item, indent + 1) for item in value) + "\n" + " " * indent + "]"
    plain = [(key, item) for key, item in value.items() if not has_rows(item)]
    parts = [json.dumps(dict(plain), ensure_ascii=False)[1:-1]] if plain else []
    parts += ["%s: %s" % (json.dumps(key), layout(item, indent + 1)) for key, item in value.items() if has_rows(item)]
    return "{" + ("," + inner).join(parts) + "}"


def text_of(document):
    """a document of results as its file's text"""
    return layout(rounded(document)) + "\n"


def write(path, document):
    """writes a document of results to the file"""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text_of(document))


def main():
    options = plain_parser(__doc__)
    options.add_argument("files", nargs="+", metavar="FILE.json")
    options.add_argument("--check", action="store_true", help="write nothing, name the files that are laid out otherwise")
    o = options.parse_args()
    other = 0
    for name in o.files:
        with open(name, encoding="utf-8") as file:
            found = file.read()
        document = json.loads(found)
        if found == text_of(document):
            continue
        other += 1
        if o.check:
            print("%s: laid out otherwise, expected what bench/scripts/results_file.py writes" % name)
        else:
            write(name, document)
    return 1 if o.check and other else 0


if __name__ == "__main__":
    sys.exit(main())
