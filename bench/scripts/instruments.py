#!/usr/bin/env python3
"""Trains a GRU on synthetic instruments by BP and by the scan: section 4.2 of the paper, from WAV files to a trained network.

    bench/scripts/instruments.py --program build/cpu/bppsa --folder DIR [--files 3300] [--held-out 500] [--epochs 60] [--out F.json]

Writes the WAV files and their features (set S) into DIR unless DIR has them, then runs `train gru` (H 20, B 16, Adam 3e-4) once by
sequential BP and once by the chunked scan: first 300 iterations, whose losses are compared, then the epochs, whose accuracy on
the held-out samples is reported (chance is 1 in 11). Exits 1 where the curves differ by 1e-3 or more, or an accuracy is not above
60 %. Needs Python 3 alone. 3300 files take 1.8 GB.
"""
import json
import os
import sys

import results_file
from program import now, parser, run

METHODS = {"bp": ["--backward", "bp"], "chunked": ["--algorithm", "chunked"]}


def parse():
    p = parser(__doc__, "where files and features are, or go")
    p.add_argument("--files", type=int, default=3300, help="WAV files [3300]")
    p.add_argument("--held-out", type=int, default=500, help="samples of them that are not trained on [500]")
    p.add_argument("--epochs", type=int, default=60, help="of training [60]")
    return p.parse_args()


def features(o):
    wav, x, y = (os.path.join(o.folder, name) for name in ("wav", "X.npy", "Y.npy"))
    os.makedirs(o.folder, exist_ok=True)
    if not os.path.exists(x):
        if not os.path.isdir(wav):
            run(o, "data", "instruments", "--files", o.files, "--seed", 1, "--out", wav)
        run(o, "data", "irmas", wav, "--set", "S", "--out-x", x, "--out-y", y)
    return f"npy:{x},{y}"


def train(o, data, method, *length):
    return json.loads(run(o, "train", "gru", "--data", data, "--validation", o.held_out / o.files, "--threads", o.threads, "--json",
                          *METHODS[method], *length))


def main():
    o = parse()
    data = features(o)
    curves = {m: [row["loss"] for row in train(o, data, m, "--iterations", 300)["rows"]] for m in METHODS}
    difference = max(abs(a - b) for a, b in zip(*curves.values()))
    print(f"300 iterations: the two curves differ by at most {difference:.2e}")
    document, failed = {"bench": "instruments", "files": o.files, "held_out": o.held_out, "epochs": o.epochs, "set": "S",
                        "program": run(o, "--version").strip(), "date": now(),
                        "largest_difference_of_300_losses": difference, "runs": {}}, difference >= 1e-3
    for m in METHODS:
        result = train(o, data, m, "--epochs", o.epochs)
        document["config"] = result["config"]
        final, timing = result["final"], result["timing"]
        document["runs"][m] = dict(final, total_s=timing["total_s"], iteration_s=timing["iteration_s"])
        failed |= final["validation_accuracy"] <= 0.6
        print(f"{m:8s} {o.epochs} epochs in {timing['total_s']:.0f} s: {100 * final['validation_accuracy']:.1f} % of {o.held_out} "
              f"held out, loss {final['validation_loss']:.3f}")
    for key in ("backward", "algorithm", "chunks", "auto", "chosen", "data"):
        document["config"].pop(key, None)
    if o.out:
        results_file.write(o.out, document)
    return 1 if failed else 0


sys.exit(main())
