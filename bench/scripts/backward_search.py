#!/usr/bin/env python3
"""backward_search.py BUILD CHAINS TRIES OUT.json [SEED]: networks that try to fool the acceptance of speculative BP.

Runs BUILD/tests/search_backward: CHAINS chains of TRIES changes each to RNNs whose states are written by hand, as
tests/recurrent/backward_search.c says, each of which climbs to a larger error over BP's own. Writes the 20 worst. "ratio" is the
error over BP's own, "perturbation" what the pass has dropped by its own account, "ratio_without_the_rule" what the same network
gives where silent chunks are judged beside the later gradients. A network is "caught" if the rule makes the difference. Ratios
above 2 with nothing dropped are roundings: a search for the worst of thousands of networks finds unlucky ones.
BUILD: a build of the preset cpu. Exit code 1: a ratio above 2 of a pass that has dropped 1e-12 or more, or above 10.
"""
import json
import subprocess
import sys

import results_file
from program import built, plain_parser, where_and_when

WORST = 20


def fooled(row):
    return row["ratio"] > 10 or (row["ratio"] > 2 and row["perturbation"] >= 1e-12)


def main():
    parser = plain_parser(__doc__)
    parser.add_argument("build", help="build/cpu")
    parser.add_argument("chains", type=int, help="100 of 200 tries take four minutes")
    parser.add_argument("tries", type=int)
    parser.add_argument("out", help="where the JSON document goes")
    parser.add_argument("seed", type=int, nargs="?", default=1, help="[1]")
    o = parser.parse_args()
    command = [built(parser, o.build, "search_backward"), str(o.seed), str(o.chains), str(o.tries)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    rows = [json.loads(line) for line in done.stdout.decode().splitlines()]
    if done.returncode or len(rows) < o.chains:
        print("backward_search.py: search_backward ended with %d behind %d chains" % (done.returncode, len(rows)), file=sys.stderr)
        return 1
    for row in rows:
        row["caught"] = row["ratio"] <= 2 and not 0 <= row["ratio_without_the_rule"] <= 2
    rows.sort(key=lambda row: -row["ratio"])
    found = [row for row in rows if fooled(row)]
    results_file.write(o.out, {"bench": "backward_search", **where_and_when(), "first_seed": o.seed, "chains": len(rows),
                               "networks": len(rows) * (o.tries + 1), "fooled": len(found),
                               "above_2": sum(row["ratio"] > 2 for row in rows), "caught": sum(row["caught"] for row in rows),
                               "worst": rows[:WORST], "all_caught": [row for row in rows if row["caught"]][:WORST]})
    print("%d networks in %d chains, %d fooled it, the largest error %.2f times BP's own, of a pass that dropped %.1g"
          % (len(rows) * (o.tries + 1), len(rows), len(found), rows[0]["ratio"], rows[0]["perturbation"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
