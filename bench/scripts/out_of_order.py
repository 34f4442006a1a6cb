#!/usr/bin/env python3
"""Steps whose weight gradients are computed out of order, beside steps in order: what ooo-backprop measures on GPUs, on processors.

    bench/scripts/out_of_order.py --program build/cpu/bppsa --folder DIR --out bench/results/out_of_order_cpu.json

Trains LeNet-5 on synthetic images, each rank on one thread, and compares the time of a step:

  one device       in order (1F1B with one stage), and Algorithm 1 (multi-stream)
  data parallel    on --ranks ranks by the executor: wait-free, with priorities, reverse first-k (Algorithm 2)
  batch            on as many ranks by the training loop: --reverse-first 0, every other k, auto

The ways of a group take turns in --rounds rounds of --steps steps; a round's number is the median of its steps without the first.
Before anything is compared, all ways of a group must have trained alike: their losses and the norms of their gradients are equal to
the bit. A rank does one thing at a time: multi-stream can win nothing on one rank, and on ranks that are threads sums over
replicas wait for memory and for no network. So the ratios say what the order costs here, not what it wins on GPUs.

Exits 1 where bits differ. --quick: two rounds of few steps.
"""
import json
import os
import statistics
import sys
import time

import program
import results_file

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "rivals"))
import noise  # noqa: E402


def ways_of(o):
    """{group: {name: words}}, the way in order first"""
    ranks = ["--ranks", o.ranks]
    split = lambda scheme: [*ranks, "--split", scheme]
    first = {"k = %s" % k: [*split("batch"), "--reverse-first", k] for k in (*range(5), "auto")}
    alone = lambda scheme: ["--ranks", 1, "--split", scheme]
    return {"one device": {"in order": alone("1f1b"), "multi-stream": alone("multi-stream")},
            "data parallel": {"wait-free": split("wait-free"), "priority": split("priority"),
                              "reverse-first-k": split("reverse-first-k")},
            "batch": first}


def train(o, words):
    """(document, seconds of a step, digest of what was computed)"""
    document = json.loads(program.run(o, "train", "lenet5", "--data", program.synthetic_images(o, 2 * o.batch), "--batch", o.batch,
                                      "--iterations", o.steps, "--lr", 0.01, "--backward", "bp", "--threads", 1, *words, "--json"))
    rows = document["rows"]
    seconds = [row["forward_s"] + row["backward_s"] + row["update_s"] for row in rows[1:]]
    return document, statistics.median(seconds), [(row["loss"], row["grad_norm"]) for row in rows]


def measure(o, group, ways):
    """(a document, the rows of a group)"""
    seconds, computed, about = {name: [] for name in ways}, {}, {}
    for _ in range(o.rounds):
        for name, words in ways.items():
            about, step, digest = train(o, words)
            seconds[name].append(step)
            computed.setdefault(name, digest)
    first = next(iter(ways))
    rows = []
    for name, words in ways.items():
        row = {"group": group, "way": name, "words": " ".join(map(str, words)), "same_bits": computed[name] == computed[first],
               **noise.timing(seconds[name])}
        row["over_in_order"] = row["median_s"] / statistics.median(seconds[first])
        rows.append(row)
        print("%-13s %-16s %s%.3f ms a step (%.3f .. %.3f), %.3f of %s, %s" % (
            group, name, noise.mark(row), 1e3 * row["median_s"], 1e3 * row["min_s"], 1e3 * row["max_s"], row["over_in_order"],
            first, "the same bits" if row["same_bits"] else "OTHER BITS"), flush=True)
    return about, rows


def main():
    p = program.parser(__doc__, "for the images")
    p.add_argument("--ranks", type=int, default=2, help="[%(default)s]")
    p.add_argument("--batch", type=int, default=256, help="[%(default)s]")
    p.add_argument("--steps", type=int, default=20, help="of a round [%(default)s]")
    p.add_argument("--rounds", type=int, default=7, help="[%(default)s]")
    p.add_argument("--quick", action="store_true", help="two rounds of few steps")
    o = p.parse_args()
    if o.quick:
        o.batch, o.steps, o.rounds = 16, 3, 2
    os.makedirs(o.folder, exist_ok=True)
    rows, about = [], {}
    for group, ways in ways_of(o).items():
        about, found = measure(o, group, ways)
        rows += found
    if o.out:
        document = {"bench": "out_of_order", "hardware": about["config"]["hardware"], "commit": about["commit"],
                    "date": time.strftime("%Y-%m-%d"), "quick": o.quick, "batch": o.batch, "steps": o.steps, "rounds": o.rounds,
                    "ranks": o.ranks, "rows": rows}
        results_file.write(o.out, document)
    return 0 if all(row["same_bits"] for row in rows) else 1


sys.exit(main())
