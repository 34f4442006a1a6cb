#!/usr/bin/env python3
"""backward_random.py BUILD COUNT OUT.json [SEED]: gradients of random configurations by speculative BP, any weights and inputs.

Runs BUILD/tests/campaign_backward with COUNT configurations from SEED on (1): cells, layers, directions, lengths, losses, both real
types, scales of W_hh from 0.1 to 10, NaN, infinity and 1e30 among inputs and seeds. Gradients are BP's bits, or have at most twice
BP's own rounding error, which tests/recurrent/backward_campaign.c defines; those above are listed in the document. A sample that is
not finite must harm no other.
BUILD: a build of the preset cpu. Exit code 1: a configuration is above, a sample was harmed, or the program ended too early.
"""
import collections
import json
import subprocess
import sys

import results_file
from program import built, plain_parser, where_and_when

LIMIT = 2
WORST = 20


def summary(rows, seed):
    judged = sorted((row for row in rows if "ratio" in row), key=lambda row: -row["ratio"])
    wrong = [row for row in rows if "ratio" not in row and not row["same_bits"]]
    met = {key: dict(collections.Counter(str(row[key]) for row in rows))
           for key in ("cell", "nonlinearity", "dtype", "loss", "layers", "directions", "lengths")}
    above = [row for row in judged if row["ratio"] > LIMIT] + wrong
    return {"bench": "backward_random", **where_and_when(), "configurations": len(rows), "first_seed": seed, "limit": LIMIT,
            "with_nan_or_1e30": sum(row["wild"] for row in rows), "same_bits_as_bp": sum(row["same_bits"] for row in rows),
            "speculated_to_the_end": sum(row["speculated"] and not row["given_up"] for row in rows),
            "mended": sum(row["rounds"] > 0 for row in rows), "given_up": sum(row["given_up"] for row in rows),
            "longest": max(row["seq_len"] for row in rows), "widest": max(row["hidden"] for row in rows), "met": met,
            "median_ratio": judged[len(judged) // 2]["ratio"] if judged else None,
            "largest_ratio": judged[0]["ratio"] if judged else None, "above": above, "not_finite_elsewhere": len(wrong),
            "others_harmed": [row["seed"] for row in rows if not row["others_unharmed"]], "worst": judged[:WORST]}


def main():
    parser = plain_parser(__doc__)
    parser.add_argument("build", help="build/cpu")
    parser.add_argument("count", type=int, help="2000 take seven minutes")
    parser.add_argument("out", help="where the JSON document goes")
    parser.add_argument("seed", type=int, nargs="?", default=1, help="[1]")
    o = parser.parse_args()
    command = [built(parser, o.build, "campaign_backward"), str(o.seed), str(o.count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    rows = [json.loads(line) for line in done.stdout.decode().splitlines()]
    document = summary(rows, o.seed) if rows else {}
    if rows:
        results_file.write(o.out, document)
    if len(rows) < o.count:
        print("backward_random.py: campaign_backward ended with %d behind %d configurations" % (done.returncode, len(rows)),
              file=sys.stderr)
        return 1
    print("%d configurations, %d with the bits of BP, the largest error %.2f times BP's own, %d above %d"
          % (len(rows), document["same_bits_as_bp"], document["largest_ratio"] or 0, len(document["above"]), LIMIT))
    return 1 if document["above"] or document["others_harmed"] else 0


if __name__ == "__main__":
    sys.exit(main())
