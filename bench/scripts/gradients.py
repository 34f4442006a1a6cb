#!/usr/bin/env python3
"""gradients.py BUILD COUNT OUT.json [SEED]: gradients of random configurations of every cell against the float64 reference.

Runs COUNT configurations each of campaign_rnn, campaign_gru and campaign_lstm, networks on one device; of campaign_sequences with
each cell, samples of their own lengths, two directions, no biases; and of campaign_ranks with each cell, cut along time on ranks
that are threads (BUILD/tests, tests/support/cell_campaign.h). Writes the worst of them, the share below each power of two, and how
often each method, dtype and loss was met. A residual of 30 or more is explained where the reference's own gradients move that far,
up to a factor of 30, when weights and inputs move by one rounding.
BUILD: a build of the preset cpu. Exit code 1: a residual that is not explained, or a program that ended before its last
configuration.
"""
import collections
import json
import subprocess
import sys

import results_file
from program import built, plain_parser, where_and_when

CAMPAIGNS = [("campaign_" + cell,) for cell in ("rnn", "gru", "lstm")] + [
    (program, cell) for program in ("campaign_sequences", "campaign_ranks") for cell in ("rnn", "gru", "lstm")]
LIMIT = 30
WORST = 20
MOVES = 200


def start(campaign, *numbers):
    return subprocess.Popen([*campaign, *map(str, numbers)], stdout=subprocess.PIPE)


def rows_of(process):
    return [json.loads(line) for line in process.communicate()[0].decode().splitlines()]


def explained(row):
    return row["residual"] < LIMIT * max(1, row["sensitivity"])


def run(campaigns, count, seed):
    """The rows of all campaigns, which are commands. What one move does not explain runs again with MOVES, which find more."""
    started = [(campaign, start(campaign, seed, count)) for campaign in campaigns]
    return [row if explained(row) else rows_of(start(campaign, row["seed"], 1, MOVES))[0]
            for campaign, process in started for row in rows_of(process)]


def summary(rows, count):
    rows = sorted(rows, key=lambda row: -row["residual"])
    shares = {"below_%g" % limit: sum(row["residual"] < limit for row in rows) for limit in (1, 2, 4, 8, 16, LIMIT)}
    met = {key: dict(collections.Counter(str(row[key]).split()[0] for row in rows if key in row))
           for key in ("cell", "method", "dtype", "loss", "nonlinearity", "orthogonal", "threads", "ranks", "layers", "lengths",
                       "directions", "bias")}
    above = [row for row in rows if row["residual"] >= LIMIT]
    return {"bench": "gradients", **where_and_when(), "asked": count * len(CAMPAIGNS), "configurations": len(rows), "limit": LIMIT,
            **shares,
            "above_and_explained": sum(map(explained, above)),
            "above_and_not_explained": sum(not explained(row) for row in above),
            "longest": max(row["seq_len"] for row in rows), "widest": max(row["hidden"] for row in rows), "met": met,
            "worst": rows[:WORST]}


def main():
    parser = plain_parser(__doc__)
    parser.add_argument("build", help="build/cpu")
    parser.add_argument("count", type=int, help="configurations of each campaign and cell")
    parser.add_argument("out", help="where the JSON document goes")
    parser.add_argument("seed", type=int, nargs="?", default=1, help="[1]")
    o = parser.parse_args()
    rows = run([[built(parser, o.build, name), *words] for name, *words in CAMPAIGNS], o.count, o.seed)
    if not rows:
        print("gradients.py: no configuration came back", file=sys.stderr)
        return 1
    document = summary(rows, o.count)
    results_file.write(o.out, document)
    print("%d configurations, the largest residual is %g" % (len(rows), document["worst"][0]["residual"]))
    return 0 if len(rows) == document["asked"] and document["above_and_not_explained"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
