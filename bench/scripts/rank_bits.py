#!/usr/bin/env python3
"""Trains networks on 1, 2, 4 and 8 ranks that share batches, and compares losses and weights with those of one rank, bit for bit.

    bench/scripts/rank_bits.py --program build/cpu/bppsa --folder DIR --out bench/results/rank_bits.json
    bench/scripts/rank_bits.py ... --models vgg11 --steps 10 --out bench/results/rank_bits_vgg11.json

GRU and LeNet-5, batches of 128 and 256 samples, 50 steps, with the project's reduction. The images are random: 549 of them, so that
the last batch of an epoch has 37. Exits 1 where a bit differs.
"""
import hashlib
import json
import os
import sys
import time

import program
import results_file

SAMPLES = 2 * 256 + 37


def data_of(model, folder):
    """the options that say what the model trains on"""
    if model == "gru":
        return ["--seq-len", 50, "--samples", SAMPLES]
    return ["--data", program.images(folder, SAMPLES)]


def train(o, model, batch, ranks):
    """a row: digests of the losses and of the weights"""
    weights = os.path.join(o.folder, "weights.safetensors")
    begin = time.monotonic()
    text = program.run(o, "train", model, *data_of(model, o.folder), "--batch", batch, "--iterations", o.steps, "--ranks", ranks,
                       "--split", "batch", "--threads", o.threads, "--timeout", 600, "--save-weights", weights, "--json")
    document = json.loads(text)
    with open(weights, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    losses = [row["loss"] for row in document["rows"]]
    row = {"model": model, "batch": batch, "ranks": ranks, "steps": len(losses), "first_loss": losses[0], "last_loss": losses[-1],
           "losses_sha256": hashlib.sha256(json.dumps(losses).encode()).hexdigest(), "weights_sha256": digest,
           "seconds": round(time.monotonic() - begin, 1)}
    return document, row


def main():
    p = program.parser(__doc__, "for the data and the weights")
    p.add_argument("--models", default="gru,lenet5", help="[%(default)s]")
    p.add_argument("--batches", default="128,256", help="[%(default)s]")
    p.add_argument("--ranks", default="1,2,4,8", help="the first one is what the others are compared with [%(default)s]")
    p.add_argument("--steps", type=int, default=50, help="[%(default)s]")
    p.set_defaults(threads=1)
    o = p.parse_args()
    os.makedirs(o.folder, exist_ok=True)
    rows, different, about = [], 0, {}
    for model in o.models.split(","):
        for batch in map(int, o.batches.split(",")):
            first = None
            for ranks in map(int, o.ranks.split(",")):
                about, row = train(o, model, batch, ranks)
                first = first or row
                same = all(row[key] == first[key] for key in ("losses_sha256", "weights_sha256"))
                different += not same
                rows.append({**row, "same_bits": same})
                print("%-7s batch %3d, %d ranks, %d steps: loss %.9g, weights %.12s, %s, %.1f s" % (
                    model, batch, ranks, row["steps"], row["last_loss"], row["weights_sha256"],
                    "the same bits" if same else "OTHER BITS", row["seconds"]), flush=True)
    if o.out:
        document = {"bench": "rank_bits", "hardware": about["config"]["hardware"], "commit": about["commit"],
                    "date": time.strftime("%Y-%m-%d"), "reduction": about["ranks"]["reduction"], "rows": rows}
        results_file.write(o.out, document)
    return 1 if different else 0


sys.exit(main())
