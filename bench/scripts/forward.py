#!/usr/bin/env python3
"""Holds forward passes in parallel to the numbers that they promise, and looks at networks on their way through training.

    python3 bench/scripts/forward.py --program build/cpu/bppsa --folder DIR --threads 1 --out bench/results/forward_cpu.json

Runs bench forward over T, H, B and initialisations for RNN and GRU; then trains both on the bitstream (T 1000, B 16, H 20,
Adam 1e-3) and runs bench forward on the weights of every 50th iteration, B = 16, in as many chunks as a GPU would take; then on the
last weights at B = 1. Backward passes of bench rnn and gru complete the rows that bppsa figures --results draws. DIR keeps weights
and checkpoints. The document has all rows and what was judged:

  forget    default weights: no mends, gap <= 3e-7, residual <= 5e-7 (f32), error <= 2 times the sequential pass's
  exact     all weights: residual <= 2e-6; in f32 error <= 2e-6 + 4 times the sequential pass's own, which is the largest of four
            orders of the network's units (`own`); where this, and what the float64 states move when weights move by one rounding,
            is below 1e-4 (elsewhere the network is chaotic). Rows whose error is above 2e-6 + 4 times that of the given order
            alone stand in `by_order`, with `excess`, the ratio
  chaos     all weights: path <= 1.15 T + 2 (W + T / C); where passes end in the tail, the mean of 200 <= 1.25 times sequential
  trained   median path over the weights: <= T / 2 (T = 1000), <= T / 10 (T = 10000), of RNN and GRU each; the document has
            the medians of both together as well
  gain      default weights, H 20, T 30000, B 1: at least 1.45 times as fast as the sequential pass (RNN), 2.75 times (GRU)

Exits 1 where one is missed, or where a row that `gain` needs is noisy. --quick: small shapes; times, paths of trained weights and
gains are not judged. Without it the script takes about ten minutes of a quiet core.
"""
import json
import os
import shutil
import statistics
import sys

import program
import results_file

INITS = ["default", "orthogonal", "orthogonal x 1.2", "orthogonal x 1.5"]
GAINS = {"rnn": 1.45, "gru": 2.75}
SHARES = {1000: 1 / 2, 10000: 1 / 10}


def bench(o, model, *more):
    """the rows of one run of bench forward"""
    text = program.run(o, "bench", "forward", "--model", model, "--threads", o.threads, "--json", *more)
    return json.loads(text)


def chunks_on_gpu(o, model, length, batch):
    text = program.run(o, "plan", model, "--device", "cuda", "--forward", "speculative", "--seq-len", length, "--batch", batch,
                       "--json")
    return json.loads(text)["forward"]["chunks"]


def train(o, model, seed, iterations):
    """weights after so many iterations; goes on from the checkpoint"""
    folder = os.path.join(o.folder, f"{model}_{seed}")
    weights = os.path.join(folder, f"{iterations}.safetensors")
    os.makedirs(folder, exist_ok=True)
    shape = ["--seq-len", 150, "--batch", 4, "--hidden", 8] if o.quick else ["--seq-len", 1000, "--batch", 16, "--hidden", 20]
    resume = ["--resume"] if os.path.exists(os.path.join(folder, "checkpoint.safetensors")) else []
    program.run(o, "train", model, *shape, "--samples", 16 if o.quick else 3200, "--lr", "0.001", "--iterations", iterations,
                "--seed", seed, "--threads", o.threads, "--checkpoint", folder, *resume, "--save-weights", weights, "--json")
    return weights


def measure_trained(o):
    """rows of both passes on the weights of a training run, each with the iterations and the seed"""
    rows = []
    lengths = [300] if o.quick else sorted(SHARES)
    batch = 2 if o.quick else 16
    steps = range(10, 31, 10) if o.quick else range(50, 2001, 50)
    for model, seed in [("rnn", 1)] if o.quick else [("rnn", 1), ("rnn", 2), ("gru", 1)]:
        shutil.rmtree(os.path.join(o.folder, f"{model}_{seed}"), ignore_errors=True)
        chunks = {length: chunks_on_gpu(o, model, length, batch) for length in lengths}
        for iterations in steps:
            weights = train(o, model, seed, iterations)
            for length in lengths:
                found = bench(o, model, "--weights", weights, "--seq-len", length, "--batch", batch, "--forward-chunks",
                              chunks[length], "--repeats", 1)["rows"]
                rows += [dict(row, init="trained", iterations=iterations, train_seed=seed) for row in found]
        for length in lengths if o.quick else [*lengths, 30000]:
            found = bench(o, model, "--weights", weights, "--seq-len", length)["rows"]
            rows += [dict(row, init="trained", iterations=steps[-1], train_seed=seed) for row in found]
    return rows


def measure_backward(o):
    """rows of the backward passes of bench rnn and gru where the figure of steps takes them"""
    rows = []
    for model in ("rnn", "gru"):
        for length in [1000] if o.quick else [1000, 10000, 30000]:
            text = program.run(o, "bench", model, "--seq-len", length, "--batch", 1, "--hidden", 20, "--init", "default",
                               "--threads", o.threads, "--json", *(["--repeats", 1] if o.quick else []))
            found = json.loads(text)["rows"]
            rows += [dict(row, model=model) for row in found if row["phase"] == "backward" and row["median_s"] is not None]
    return rows


def pairs(rows):
    """(sequential, speculative) rows of one point, which follow each other"""
    return [(rows[i], rows[i + 1]) for i in range(0, len(rows), 2)]


def is_calm(one, other):
    """is the network so far from chaotic that its errors can be judged, in f32?"""
    return other["dtype"] == "f32" and max(one["own"], one["moves"]) < 1e-4


def allowed(error):
    """the largest error of a speculative pass beside one of sequential passes"""
    return 2e-6 + 4 * error


def by_order(rows):
    """rows whose error is too large beside that of the sequential pass with its units in the given order"""
    found = []
    for one, other in pairs(rows):
        excess = other["error"] / allowed(one["error"])
        if is_calm(one, other) and excess > 1:
            row = {key: other[key] for key in ("model", "init", "seq_len", "hidden", "batch", "error", "own", "moves")}
            found.append(dict(row, iterations=other.get("iterations"), sequential_error=one["error"], excess=excess))
    return found


def missed(o, rows):
    """what is wrong, one line each"""
    for one, other in pairs(rows):
        what = " ".join(str(other[key]) for key in ("model", "init", "seq_len", "hidden", "batch"))
        length = other["seq_len"] * other["layers"]
        if other["init"] == "default" and other["dtype"] == "f32":
            if other["mended"] or other["gap"] > 3e-7 or other["residual"] > 5e-7 or other["error"] > 2 * one["error"]:
                yield f"forget: {what}: {other['mended']} mends, gap {other['gap']:g}, residual {other['residual']:g}, error " \
                      f"{other['error']:g} beside {one['error']:g}"
        if not other["residual"] <= 2e-6:
            yield f"exact: {what}: residual {other['residual']:g}"
        if is_calm(one, other) and not other["error"] <= allowed(one["own"]):
            yield f"exact: {what}: error {other['error']:g} beside {one['own']:g}"
        most = 1.15 * length + 2 * (other["warm_up"] + other["seq_len"] / other["chunks"])
        if other["path"] > most:
            yield f"chaos: {what}: path {other['path']}, expected at most {most:g}"
        if not o.quick and other["mean_s"] is not None and other["mean_s"] > 1.25 * one["mean_s"]:
            yield f"chaos: {what}: mean {other['mean_s']:g} s beside {one['mean_s']:g} s"


def medians(rows):
    """of the paths on trained weights, by network and length; "all": of RNN and GRU together"""
    found = {}
    for _, row in pairs(rows):
        if row["init"] == "trained" and row["batch"] > 1:
            for model in (row["model"], "all"):
                found.setdefault((model, row["seq_len"]), []).append(row["path"])
    return [{"model": model, "seq_len": length, "networks": len(paths), "median_path": statistics.median(paths),
             "longest_path": max(paths)} for (model, length), paths in found.items()]


def gains(rows):
    found = []
    for one, other in pairs(rows):
        if other["init"] == "default" and other["seq_len"] == 30000 and other["hidden"] == 20 and \
           other["batch"] == 1:
            found.append({"model": other["model"], "gain": one["median_s"] / other["median_s"],
                          "noisy": one["noisy"] or other["noisy"]})
    return found


def main():
    parser = program.parser(__doc__, "keeps weights and checkpoints")
    parser.add_argument("--quick", action="store_true", help="small shapes, times are not judged")
    o = parser.parse_args()
    small = ["--quick", "--hidden", 20, "--seq-len", 1000, "--repeats", 1] if o.quick else []
    document = {}
    for model in ("rnn", "gru"):
        found = bench(o, model, *small)
        document = document or dict(found, rows=[])
        document["rows"] += found["rows"]
    document["rows"] += measure_trained(o)
    rows = document["rows"]
    wrong = list(missed(o, rows))
    document["trained"], document["gains"], document["by_order"] = medians(rows), gains(rows), by_order(rows)
    document["rows"] = rows + measure_backward(o)
    for m in document["trained"]:
        print("%s trained, T %d: median path %g of %d networks" % (m["model"], m["seq_len"], m["median_path"], m["networks"]))
        if not o.quick and m["model"] != "all" and m["median_path"] > SHARES[m["seq_len"]] * m["seq_len"]:
            wrong.append(f"trained: {m['model']}, T {m['seq_len']}: median path {m['median_path']:g}")
    print("%d of %d errors are above what the sequential pass in the given order allows, at most %.2f times" %
          (len(document["by_order"]), len(rows) // 2, max((m["excess"] for m in document["by_order"]), default=0)))
    for g in document["gains"]:
        print("%s: %.2f times as fast as sequential%s" % (g["model"], g["gain"], ", noisy" if g["noisy"] else ""))
        if g["noisy"] or g["gain"] < GAINS[g["model"]]:
            wrong.append(f"gain: {g['model']}: {g['gain']:.2f}{', noisy' if g['noisy'] else ''}")
    document["missed"] = wrong
    if o.out:
        results_file.write(o.out, document)
    print("\n".join(wrong) or "all numbers are kept")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
