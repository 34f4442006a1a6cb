#!/usr/bin/env python3
"""forward_random.py BUILD COUNT OUT.json: random configurations of parallel forward passes, any weights and inputs.

Runs BUILD/tests/test_recurrent_forward with COUNT random configurations (T 1 .. 5000, H 1 .. 200, B 1 .. 40, weights times
0.1 .. 10, NaN and 1e30 among the inputs): every state must follow from the one in front of it, up to the tolerance, what is not
finite must stand where the sequential pass puts it, and with tolerance 0 all bits must be the sequential pass's. Writes what the
configurations went through.
BUILD: a build of the preset cpu. Exits with the status of the tests.
"""
import json
import os
import subprocess
import sys

import results_file
from program import built, plain_parser, where_and_when


def main():
    parser = plain_parser(__doc__)
    parser.add_argument("build", help="build/cpu")
    parser.add_argument("count", type=int, help="2000 take a minute")
    parser.add_argument("out", type=os.path.abspath, help="where the JSON document goes")
    o = parser.parse_args()
    out = o.out
    settings = dict(os.environ, BPPSA_TEST_CONFIGURATIONS=str(o.count), BPPSA_TEST_RECORD=out)
    done = subprocess.run([built(parser, o.build, "test_recurrent_forward")], env=settings, check=False)
    if done.returncode:
        return done.returncode
    with open(out, encoding="utf-8") as file:
        found = json.load(file)
    document = {"bench": "forward_random", **where_and_when(), **found}
    results_file.write(out, document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
