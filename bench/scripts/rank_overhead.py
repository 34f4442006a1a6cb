"""Measures what ranks cost and gain in data parallelism on one machine: a GRU of set S at B = 256, one thread a rank.

    python3 bench/scripts/rank_overhead.py --program build/cpu/bppsa --out bench/results/rank_overhead.json

One run of bench ranks, whose rows take turns, gives both ratios, of medians:
  overhead   one rank over communicators, over the same batch without them: at most 1.02
  speed-up   one rank over two ranks that are threads: at least 1.6, on two free processors
Exits 1 where a ratio misses its bound, or where a row is noisy, from which nothing can be concluded. --quick has a short sequence,
and its ratios are not judged.
"""
import json
import sys

import results_file
from program import add_program, plain_parser, run

BOUNDS = {"overhead": (0, 1.02), "speedup": (1.6, float("inf"))}


def row_of(document, share, ranks, method):
    return next(row for row in document["rows"]
                if (row["network"], row["share"], row["ranks"], row["method"]) == ("gru", share, ranks, method))


def main():
    parser = plain_parser(__doc__)
    add_program(parser)
    parser.add_argument("--out", required=True, help="where the JSON document goes")
    parser.add_argument("--quick", action="store_true", help="a short sequence; ratios are not judged")
    o = parser.parse_args()
    shape = ["--seq-len", "10", "--batch", "32", "--repeats", "3"] if o.quick else ["--seq-len", "259", "--batch", "256"]
    document = json.loads(run(o, "bench", "ranks", "--ranks", "2", "--split", "batch", "--threads", "1", "--json", *shape))
    alone, one, two = (row_of(document, *key) for key in (("alone", 1, "bp"), ("batch", 1, "wait-free"), ("batch", 2, "wait-free")))
    ratios = {"overhead": one["median_s"] / alone["median_s"], "speedup": one["median_s"] / two["median_s"]}
    noisy = [name for name, row in (("alone", alone), ("1 rank", one), ("2 ranks", two)) if row["noisy"]]
    document.update({"bench": "rank_overhead", **ratios, "noisy_rows": noisy})
    results_file.write(o.out, document)
    missed = []
    for name, (least, most) in BOUNDS.items():
        print("%-9s %.3f, expected %s" % (name, ratios[name], "at most %g" % most if least == 0 else "at least %g" % least))
        if not least <= ratios[name] <= most:
            missed.append(name)
    if noisy:
        print("noisy, nothing is concluded: " + ", ".join(noisy))
    return 1 if (missed or noisy) and not o.quick else 0


sys.exit(main())
