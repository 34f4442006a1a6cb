#!/usr/bin/env python3
"""How far from BP's a run ends whose forward and backward passes both speculate, beside what another order of sums does to BP.

    bench/scripts/step_training.py --program build/cpu/bppsa --folder DIR --threads 1 --out bench/results/step_training.json

Trains RNN, GRU and LSTM on the bitstream from equal weights and with equal batches: sequentially by BP; with both passes
speculative; and sequentially by BP with the hidden units in other orders, which adds the same products up in another sequence. A
row has `distance`, the largest difference of a final weight of the speculative run from BP's, `backward_distance`, the same of a
run whose backward passes alone speculate, `own`, the largest such difference that one of four orders of the units makes, and
`ratio`, distance over own. Two runs drift apart from the first rounding on, after some hundred iterations as far as chaos takes
them (`losses_own`: the smallest and the largest last loss of the other orders), so that the ratio, not the distance, says whether
the speculative passes are as exact as the others. `path`, `work`, `mended`, `given_up`, `gap` and `perturbation` are what the
backward passes did. Exits 1 where a ratio is above 3.
"""
import array
import json
import os
import struct
import sys

import program
import results_file

LIMIT = 3
CELLS = ("rnn", "gru", "lstm")
HIDDEN, BATCH, ORDERS = 20, 16, 4
SEQUENTIAL = ["--forward", "sequential", "--backward", "bp"]
SPECULATIVE = {"forward": ["--forward-chunks", 13, "--warm-up", 40], "backward": ["--backward-chunks", 13]}


def load(path):
    """the header of a safetensors file, and its f32 tensors by name"""
    with open(path, "rb") as file:
        head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    metadata = head.pop("__metadata__", {})
    found = {}
    for name, about in head.items():
        begin, end = about["data_offsets"]
        found[name] = (about["shape"], array.array("f", data[begin:end]))
    return metadata, found


def save(path, metadata, tensors):
    head, at = {"__metadata__": metadata}, 0
    for name, (shape, values) in tensors.items():
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(values)]}
        at += 4 * len(values)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            values.tofile(file)


def permuted(tensors, hidden, order):
    """the same network with hidden unit order[i] in place i"""
    made = {}
    for name, (shape, values) in tensors.items():
        columns = shape[1] if len(shape) > 1 else 1
        rows = list(range(shape[0]))
        if "_l0" in name:  # of a layer, in blocks of gates
            rows = [row - row % hidden + order[row % hidden] for row in rows]
        within = order if "weight_hh" in name or (len(shape) > 1 and "_l0" not in name) else range(columns)
        made[name] = (shape, array.array("f", [values[row * columns + column] for row in rows for column in within]))
    return made


def inverse(order):
    return sorted(range(len(order)), key=order.__getitem__)


def order_of(hidden, number):
    """one of several orders of the units: backwards, and with strides"""
    if number == 0:
        return list(range(hidden))[::-1]
    stride = [s for s in range(2, hidden) if all(s % d or hidden % d for d in range(2, hidden + 1))][number - 1]
    return [i * stride % hidden for i in range(hidden)]


def distance(a, b):
    return max(abs(x - y) for name in a for x, y in zip(a[name][1], b[name][1]))


def train(o, cell, weights, iterations, *more):
    """the final weights and the document of a run that begins with `weights`"""
    path = os.path.join(o.folder, "final.safetensors")
    document = json.loads(program.run(
        o, "train", cell, "--weights", weights, "--seq-len", o.seq_len, "--batch", BATCH, "--iterations", iterations, "--lr", 1e-3,
        "--threads", o.threads, "--save-weights", path, "--json", *more))
    return load(path)[1], document


def row_of(o, cell, iterations):
    first, other = (os.path.join(o.folder, name) for name in ("first.safetensors", "other.safetensors"))
    program.run(o, "train", cell, "--iterations", 0, "--hidden", HIDDEN, "--save-weights", first)
    metadata, begun = load(first)
    bp, expected = train(o, cell, first, iterations, *SEQUENTIAL)
    both, document = train(o, cell, first, iterations, *SPECULATIVE["forward"], *SPECULATIVE["backward"])
    back, _ = train(o, cell, first, iterations, *SPECULATIVE["backward"])
    own, losses = [], []
    for number in range(ORDERS):
        order = order_of(HIDDEN, number)
        save(other, metadata, permuted(begun, HIDDEN, order))
        ended, same = train(o, cell, other, iterations, *SEQUENTIAL)
        own.append(distance(bp, permuted(ended, HIDDEN, inverse(order))))
        losses.append(same["final"]["loss"])
    done = document["backward"]
    return {"cell": cell, "seq_len": o.seq_len, "batch": BATCH, "hidden": HIDDEN, "iterations": iterations,
            "distance": distance(bp, both), "backward_distance": distance(bp, back), "own": max(own),
            "ratio": distance(bp, both) / max(own), "loss_bp": expected["final"]["loss"], "loss": document["final"]["loss"],
            "losses_own": [min(losses), max(losses)], "speculated": sum(row["backward"]["speculated"] for row in document["rows"]),
            "path": done["path"] / done["possible"], "work": done["work"], "mended": done["mended"], "given_up": done["given_up"],
            "gap": done["gap"], "perturbation": done["perturbation"]}


def main():
    parser = program.parser(__doc__, "where weights go")
    parser.add_argument("--quick", action="store_true", help="a few seconds: T 400, 40 iterations")
    o = parser.parse_args()
    o.seq_len, lengths = (400, [40]) if o.quick else (1000, [30, 100, 300])
    os.makedirs(o.folder, exist_ok=True)
    rows = []
    for cell, iterations in ((cell, iterations) for cell in CELLS for iterations in lengths):
        rows.append(row_of(o, cell, iterations))
        print("%(cell)-5s %(iterations)4d iterations: distance %(distance).2e (backward alone %(backward_distance).2e), other "
              "orders %(own).2e, ratio %(ratio).2f; path %(path).3f, work %(work).2f" % rows[-1], flush=True)
    if o.out:
        results_file.write(o.out, {"bench": "step_training", **program.where_and_when(), "threads": o.threads, "rows": rows})
    return 1 if any(row["ratio"] > LIMIT for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
