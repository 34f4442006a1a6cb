#!/usr/bin/env python3
"""reset_gradients.py --program BPPSA COUNT OUT.json [SEED]: random ways to train with resets beside a loop in float64.

Draws COUNT configurations: cell, layers, directions, method of both passes, numbers' type, the rate of resets (0, 2 %, 10 %, 50 %
or 1), the loss (of the last step or of all, weighted or not), samples of their own lengths, packed into rows or not, a learned
reset state, threads, and ranks that share the batch or the steps. Each trains one step by SGD on all samples at once, so that the
change of the weights is the gradient, and is compared with a loop over single steps of every sample in PyTorch, float64: the loss,
and the residual |g - ref| / (|ref| eps sqrt(T)) of every parameter's gradient. The learning rate is a power of two, so large that
the weights before the step do not count in the rounding of those behind it.

Writes the worst of them, the share below each power of two, and how often each property was met. Configuration k depends on
SEED + k alone. Exit code 1: a residual of 30 or more, or another loss.
"""
import collections
import concurrent.futures
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

import program
import results_file

LIMIT, WORST, RATE = 30, 20, 2.0 ** 24
RATES = (0, 0.02, 0.1, 0.5, 1)
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
SCANS = ("--backward bp", "--algorithm linear", "--algorithm blelloch", "--algorithm blelloch --up-levels 1",
         "--algorithm chunked --chunks 3")


# ---- files ----

def load_safetensors(path):
    """{name: array}"""
    with open(path, "rb") as file:
        head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    kinds = {"F32": "<f4", "F64": "<f8"}
    return {name: numpy.frombuffer(data[slice(*at["data_offsets"])], kinds[at["dtype"]]).reshape(at["shape"])
            for name, at in head.items() if name != "__metadata__" and at["dtype"] in kinds}


def replace_tensor(path, name, values):
    """writes other numbers to a tensor of a file of weights"""
    with open(path, "rb") as file:
        text = file.read(struct.unpack("<Q", file.read(8))[0])
        data = bytearray(file.read())
    first, end = json.loads(text)[name]["data_offsets"]
    data[first:end] = values.astype("<f4" if end - first == 4 * values.size else "<f8").tobytes()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


# ---- configurations ----

def draw_ranks(rng, c):
    """how ranks share the work, and their number; those that share time refuse lengths and two directions, and take packed rows"""
    whole = not c["bidirectional"] and (c["lengths"] is None or c["pack"])
    return rng.choice(("batch", "time")) if whole else "batch", rng.randint(2, min(3, c["samples"]))


def draw_speculation(rng, c):
    """options of speculative passes that accept no more than roundings"""
    rounding, steps, words = 2.0 ** (-24 if c["dtype"] == "f32" else -53), c["steps"], []
    if c["split"] == "batch":  # the ranks' samples would decide about pauses
        return []
    if rng.random() < 0.3:
        words += ["--backward-chunks %d --backward-warm-up %d --backward-tolerance %g" % (
            rng.randint(2, steps // 2), rng.randint(0, 12), rounding)]
    if rng.random() < 0.3 and (c["lengths"] is None or c["pack"]):
        words += ["--forward-chunks %d --warm-up %d --tolerance 0" % (rng.randint(2, steps // 2), rng.randint(0, 12))]
    return words


def draw(seed):
    rng = random.Random(seed)
    c = {"seed": seed, "cell": rng.choice(sorted(GATES)), "dtype": rng.choice(("f32", "f64")), "steps": rng.randint(4, 50),
         "samples": rng.randint(1, 9), "input": rng.randint(1, 5), "hidden": rng.randint(1, 18), "layers": rng.randint(1, 3),
         "bidirectional": rng.random() < 0.3, "all": rng.random() < 0.6, "weights": rng.random() < 0.5,
         "rate": rng.choice(RATES), "learned": rng.random() < 0.4, "split": "none", "ranks": 1}
    c["lengths"] = [rng.randint(1, c["steps"]) for _ in range(c["samples"])] if rng.random() < 0.5 else None
    c["pack"] = c["lengths"] is not None and rng.random() < 0.6 and (c["all"] or not c["bidirectional"])
    # the reverse direction of packed samples begins with the learned state, but for one that ends with its row
    c["learned"] = c["learned"] and not (c["pack"] and c["bidirectional"])
    words = []
    if c["samples"] > 1 and rng.random() < 0.4:
        c["split"], c["ranks"] = draw_ranks(rng, c)
    speculation = draw_speculation(rng, c)
    words += speculation
    if not any("--backward-chunks" in word for word in speculation):
        words.append(rng.choice(SCANS))
    words += ["--threads 3"] if rng.random() < 0.3 else []
    c["words"] = " ".join(words)
    return c


def make_data(c):
    """the numbers of a configuration's samples, as the program's files hold them"""
    rng = numpy.random.default_rng(c["seed"])
    n, t = c["samples"], c["steps"]
    lengths = numpy.array(c["lengths"] or [t] * n, "<i8")
    weights = rng.choice([0, 0.25, 1, 3.5], (n, t), p=(0.2, 0.3, 0.3, 0.2))
    weights[0, lengths[0] - 1] = 1  # the program refuses weights that are all 0
    return {"x": rng.uniform(-2, 2, (n, t, c["input"])).astype("<f4"),
            "y": rng.integers(0, 3, (n, t) if c["all"] else (n,)).astype("<i8"),
            "r": rng.random((n, t)) < c["rate"],
            "w": weights, "l": lengths}


# ---- the program ----

def command(o, c, word, *more):
    words = [o.program, word, c["cell"], "--data", "npy:x.npy,y.npy", "--loss", "all" if c["all"] else "last", "--resets", "r.npy"]
    words += ["--lengths", "l.npy"] if c["lengths"] else []
    words += ["--loss-weights", "w.npy"] if c["weights"] else []
    words += ["--pack", str(2 * c["steps"])] if c["pack"] else []
    if word == "train":
        words += ["--hidden", str(c["hidden"]), "--layers", str(c["layers"]), "--dtype", c["dtype"]]
        words += ["--bidirectional"] if c["bidirectional"] else []
    return [*words, *more]


def call(words, folder):
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit("reset_gradients.py: %s: %s" % (" ".join(words), done.stderr))
    return done.stdout


def run_program(o, c, data, folder):
    """(loss, weights before the step, gradients), arrays by their names"""
    for name, values in data.items():
        numpy.save(os.path.join(folder, name + ".npy"), values)
    first, second = os.path.join(folder, "a.safetensors"), os.path.join(folder, "b.safetensors")
    learned = ["--reset-state", "learned"] if c["learned"] else []
    call(command(o, c, "train", *learned, "--iterations", "0", "--batch", "1", "--seed", str(c["seed"]), "--save-weights", first),
         folder)
    if c["learned"]:
        name = c["cell"] + ".reset_state"
        state = numpy.random.default_rng(c["seed"] + 1).uniform(-1, 1, load_safetensors(first)[name].shape)
        replace_tensor(first, name, state)
    batch = c["samples"]
    if c["pack"]:
        batch = json.loads(call(command(o, c, "eval", "--weights", first, "--batch", "1", "--json"), folder))["packing"]["rows"]
    ranks = min(c["ranks"], batch) if c["split"] == "batch" else c["ranks"]  # a rank has at least one row
    shared = ["--ranks", str(ranks), "--split", c["split"]] if c["split"] != "none" else []
    document = json.loads(call(command(o, c, "train", "--weights", first, "--batch", str(batch), "--iterations", "1",
                                       "--optimizer", "sgd", "--lr", repr(RATE), "--momentum", "0", "--no-shuffle",
                                       "--save-weights", second, "--json", *shared, *c["words"].split()), folder))
    before, behind = load_safetensors(first), load_safetensors(second)
    gradients = {name: (before[name].astype("f8") - behind[name].astype("f8")) / RATE for name in before}
    return document["rows"][0]["loss"], before, gradients


# ---- the loop ----

def cell_step(cell, x, state, w_ih, w_hh, b_ih, b_hh):
    """the next state [S] of a sample"""
    hidden = w_hh.shape[1]
    a, b = w_ih @ x + b_ih, w_hh @ state[:hidden] + b_hh
    if cell == "rnn":
        return torch.tanh(a + b)
    if cell == "gru":
        r, z = (torch.sigmoid(a[k * hidden:(k + 1) * hidden] + b[k * hidden:(k + 1) * hidden]) for k in range(2))
        n = torch.tanh(a[2 * hidden:] + r * b[2 * hidden:])
        return (1 - z) * n + z * state
    i, f, g, o = ((a + b)[k * hidden:(k + 1) * hidden] for k in range(4))
    c = torch.sigmoid(f) * state[hidden:] + torch.sigmoid(i) * torch.tanh(g)
    return torch.cat([torch.sigmoid(o) * torch.tanh(c), c])


def walk(c, weights, layer, side, rows, anew):
    """the states h of every step of a sample, in the order of time; anew: whether it begins anew in front of each step"""
    end = "_l%d%s" % (layer, "_reverse" if side else "")
    own = [weights["%s.%s%s" % (c["cell"], name, end)] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    size = (2 if c["cell"] == "lstm" else 1) * c["hidden"]
    zeros = torch.zeros(size, dtype=torch.float64)
    begin = weights[c["cell"] + ".reset_state"][layer * (1 + c["bidirectional"]) + side] if c["learned"] else zeros
    state, found, steps = zeros, [None] * len(rows), len(rows)
    for t in (range(steps - 1, -1, -1) if side else range(steps)):
        cut = t + 1 < steps and anew[t + 1] if side else anew[t]
        state = cell_step(c["cell"], rows[t], begin if cut else state, *own)
        found[t] = state[:c["hidden"]]
    return found


def loop(c, data, before):
    """(loss, gradients) in float64"""
    weights = {name: torch.tensor(values.astype("f8"), requires_grad=True) for name, values in before.items()}
    total, weight = torch.zeros((), dtype=torch.float64), 0.0
    for n in range(c["samples"]):
        steps = int(data["l"][n])
        anew = [bool(flag) for flag in data["r"][n][:steps]]
        anew[0] = anew[0] or c["pack"]  # a row begins anew in front of each of its samples
        rows = list(torch.tensor(data["x"][n][:steps].astype("f8")))
        for layer in range(c["layers"]):
            sides = [walk(c, weights, layer, side, rows, anew) for side in range(1 + c["bidirectional"])]
            rows = [torch.cat(parts) for parts in zip(*sides)]
        seen = rows if c["all"] else [torch.cat([side[-1 if k == 0 else 0] for k, side in enumerate(sides)])]
        for t, row in enumerate(seen):
            own = data["w"][n][t if c["all"] else steps - 1] if c["weights"] else 1.0
            label = int(data["y"][n][t] if c["all"] else data["y"][n])
            if own > 0:
                logits = weights["linear.weight"] @ row + weights["linear.bias"]
                total = total + own * (torch.logsumexp(logits, 0) - logits[label])
                weight += own
    loss = total / weight if weight > 0 else total
    if loss.requires_grad:
        loss.backward()
    return float(loss), {name: (torch.zeros_like(each) if each.grad is None else each.grad).numpy()
                         for name, each in weights.items()}


# ---- comparison ----

def residual(c, found, expected, steps):
    eps = 2.0 ** (-23 if c["dtype"] == "f32" else -52)
    size = float(numpy.linalg.norm(expected))
    # where nothing is left of a gradient the weights before the step count in its rounding
    return float(numpy.linalg.norm(found - expected)) / (max(size, 1 / RATE) * eps * math.sqrt(steps))


def check(o, c):
    with tempfile.TemporaryDirectory(prefix="bppsa-reset-gradients-") as folder:
        data = make_data(c)
        loss, before, gradients = run_program(o, c, data, folder)
    expected_loss, expected = loop(c, data, before)
    eps = 2.0 ** (-23 if c["dtype"] == "f32" else -52)
    of = {name: residual(c, gradients[name], expected[name], c["steps"]) for name in expected}
    worst = max(of, key=of.get)
    row = {key: c[key] for key in ("seed", "cell", "dtype", "steps", "samples", "input", "hidden", "layers", "rate", "ranks")}
    row.update({"words": c["words"], "bidirectional": c["bidirectional"], "loss": "all" if c["all"] else "last",
                "weighted": c["weights"], "lengths": c["lengths"] is not None, "packed": c["pack"], "learned": c["learned"],
                "split": c["split"], "tensor": worst, "residual": of[worst],
                "loss_residual": abs(loss - expected_loss) / (max(expected_loss, 0.1) * eps * math.sqrt(c["steps"]))})
    return row


def summary(rows):
    rows = sorted(rows, key=lambda row: -row["residual"])
    keys = ("cell", "dtype", "loss", "weighted", "lengths", "packed", "learned", "bidirectional", "rate", "layers", "split")
    met = {key: dict(collections.Counter(str(row[key]) for row in rows)) for key in keys}
    met["two directions, lengths and learned"] = sum(r["bidirectional"] and r["lengths"] and r["learned"] for r in rows)
    met["speculative"] = {name: sum(words in r["words"] for r in rows)
                          for name, words in (("forward", "--forward-chunks"), ("backward", "--backward-chunks"))}
    shares = {"below_%g" % limit: sum(row["residual"] < limit for row in rows) for limit in (1, 2, 4, 8, 16, LIMIT)}
    return {"bench": "reset_gradients", **program.where_and_when(), "configurations": len(rows), "limit": LIMIT, **shares,
            "largest_of_losses": max(row["loss_residual"] for row in rows), "met": met, "worst": rows[:WORST]}


def main():
    parser = program.plain_parser(__doc__)
    program.add_program(parser)
    parser.add_argument("count", type=int, help="configurations")
    parser.add_argument("out", help="where the JSON document goes")
    parser.add_argument("seed", type=int, nargs="?", default=1, help="[1]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="configurations at once [%(default)s]")
    o = parser.parse_args()
    global numpy, torch
    try:
        import numpy
        import torch
    except ImportError as missing:
        parser.error("%s, expected NumPy and PyTorch" % missing)
    torch.set_num_threads(1)
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        rows = list(pool.map(lambda seed: check(o, draw(seed)), range(o.seed, o.seed + o.count)))
    for row in rows:
        if not (row["residual"] < LIMIT and row["loss_residual"] < LIMIT):
            print("reset_gradients.py: %s" % row, file=sys.stderr)
    document = summary(rows)
    results_file.write(o.out, document)
    print("%d configurations, the largest residual is %g, that of a loss %g" % (
        len(rows), document["worst"][0]["residual"], document["largest_of_losses"]))
    return 0 if all(row["residual"] < LIMIT and row["loss_residual"] < LIMIT for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
