#!/usr/bin/env python3
"""Whole training steps with both passes speculated: how long they take, and what becomes of their paths while networks train.

    python3 bench/scripts/steps.py --program build/cpu/bppsa --folder DIR --threads 1 --out bench/results/steps_cpu.json

Part `times`: bench step of RNN, GRU and LSTM, B 1, T 10 000, H 20, 64, 128 and 256, default weights, loss on every step. Sequential
step, both passes speculated, and auto take part, at H 20 the scan too, and of --rivals PyTorch and JAX, if they are installed
(bench/rivals/setup; "none": no rivals). `gains` of the document says for every point how many times as fast as the sequential step
and as the fastest rival the speculated one is; `median_gain` is the median over the points. Noisy points are named, and are in no
median.

Part `paths`: trains networks with Adam 1e-3, T 1000, B 16, H 20, on bitstreams (loss on the last step) and on a task of delay
(every step's label is the bit of eight steps before), and runs bench step on the weights of every 50th iteration, in as many chunks
as a GPU would take. The row `both` has the path of both passes. DIR keeps weights, checkpoints and data.

`bppsa figures --results FILE` draws both. --part runs one of them alone; --quick: small shapes. Without it a quiet core takes some
twenty minutes, most of them for rivals.
"""
import json
import os
import random
import shutil
import statistics
import subprocess
import sys

import program
import results_file

MODELS = ["rnn", "gru", "lstm"]
RIVALS = ["pytorch", "jax_scan_1", "jax_scan_8"]
CHUNKS = {150: 3, 300: 5, 1000: 13, 10000: 125}  # by T: of 77 steps or more
DELAY = 8


def bench(o, *more):
    """The document of one run of bench step. One with a row that is wrong counts too: its row says so."""
    command = [o.program, "bench", "step", "--threads", str(o.threads), "--json", *map(str, more)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit("steps.py: %s: %s" % (" ".join(command), done.stderr.strip() or "exit code %d" % done.returncode))
    return json.loads(done.stdout)


# ---- times ----


def measure_times(o):
    """the documents of all points"""
    length = 1000 if o.quick else 10000
    for model in MODELS:
        for hidden in [20] if o.quick else [20, 64, 128, 256]:
            methods = ["sequential", "both", "auto"] + (["scan"] if hidden == 20 else [])
            rivals = ["--rivals", o.rivals] if o.rivals != "none" else []
            document = bench(o, "--model", model, "--hidden", hidden, "--seq-len", length, "--batch", 1, "--init", "default",
                             "--loss", "all", "--repeats", o.repeats, *rivals, "--compare",
                             ",".join(methods + (RIVALS if rivals else [])))
            print("%s, H %d: %s" % (model, hidden, ", ".join(
                "%s %s%.4g ms" % (row["method"], "~" if row["noisy"] else "", 1e3 * row["median_s"])
                for row in document["rows"] if row["median_s"] is not None)), flush=True)
            yield document


def gain_of(rows):
    """of one point"""
    timed = {row["method"]: row for row in rows if row["ok"] and row["median_s"] is not None}
    both, own = timed.get("both"), timed.get("sequential")
    if both is None or own is None:
        return None
    point = {key: both[key] for key in ("model", "hidden", "seq_len", "batch")}
    gain = dict(point, noisy=both["noisy"] or own["noisy"], over_sequential=own["median_s"] / both["median_s"])
    rivals = [row for row in timed.values() if row.get("rival")]
    if rivals:
        best = min(rivals, key=lambda row: row["median_s"])
        gain.update(rival=best["method"], over_rival=best["median_s"] / both["median_s"], rival_noisy=best["noisy"])
    return gain


# ---- paths ----


def make_delay(o, length):
    """--data of the task of delay"""
    samples, draw = 64 if o.quick else 512, random.Random(1)
    bits = [[draw.randrange(2) for _ in range(length)] for _ in range(samples)]
    names = [os.path.join(o.folder, "delay_%s_%d.npy" % (what, length)) for what in "xy"]
    program.save_npy(names[0], "<f4", [samples, length, 1], [bit for sample in bits for bit in sample])
    program.save_npy(names[1], "<i8", [samples, length],
                     [label for sample in bits for label in [0] * DELAY + sample[: length - DELAY]])
    return "npy:%s,%s" % tuple(names)


def train(o, name, model, iterations, options):
    """weights after so many iterations; goes on from the checkpoint"""
    folder = os.path.join(o.folder, name)
    weights = os.path.join(folder, "%d.safetensors" % iterations)
    os.makedirs(folder, exist_ok=True)
    resume = ["--resume"] if os.path.exists(os.path.join(folder, "checkpoint.safetensors")) else []
    program.run(o, "train", model, *options, "--iterations", iterations, "--lr", "0.001", "--seed", 1, "--threads", o.threads,
                "--checkpoint", folder, *resume, "--save-weights", weights, "--json")
    return weights


def measure_paths(o):
    """rows `both` of bench step on the weights of training runs, each with the iterations, the task and the seed"""
    shape = ["--batch", 4, "--hidden", 8] if o.quick else ["--batch", 16, "--hidden", 20]
    length, most, every = (150, 30, 10) if o.quick else (1000, o.iterations, 50)
    delay = make_delay(o, length)
    tasks = [("bitstream", ["--loss", "last", "--samples", 64 if o.quick else 3200, "--seq-len", length],
              ["--loss", "last"], [150, 300] if o.quick else [1000, 10000]),
             ("delay", ["--loss", "all", "--data", delay], ["--loss", "all", "--data", delay], [length])]
    for task, training, measuring, lengths in tasks:
        for model in MODELS:
            name, longest = "%s_%s" % (model, task), {}
            shutil.rmtree(os.path.join(o.folder, name), ignore_errors=True)
            for iterations in range(every, most + 1, every):
                weights = train(o, name, model, iterations, shape + training)
                for T in lengths:
                    document = bench(o, "--model", model, "--weights", weights, *shape[:2], *measuring,
                                     *(["--seq-len", T] if task == "bitstream" else []), "--forward-chunks", CHUNKS[T],
                                     "--backward-chunks", CHUNKS[T], "--repeats", 1, "--compare", "both")
                    for row in document["rows"]:
                        if "backward_path" not in row:
                            raise SystemExit("steps.py: %s after %d iterations: no row of speculated passes" % (name, iterations))
                        longest.setdefault(T, []).append((row["path"], row["backward_path"]))
                        yield document, dict(row, init="trained", task=task, iterations=iterations, train_seed=1)
            print("%s: %s" % (name, "; ".join(
                "T %d: median path %g forward, %g backward" % (T, *map(statistics.median, zip(*paths)))
                for T, paths in longest.items())), flush=True)


def main():
    parser = program.parser(__doc__, "keeps weights, checkpoints and data")
    parser.add_argument("--part", choices=["times", "paths"], help="this one alone")
    parser.add_argument("--rivals", default=os.path.join(program.ROOT, "bench", "rivals", "recurrent.py"),
                        help="the program of rivals, or none [bench/rivals/recurrent.py]")
    parser.add_argument("--repeats", type=int, help="steps of every method [15; quick 1]")
    parser.add_argument("--iterations", type=int, default=1000, help="of training [1000]")
    parser.add_argument("--quick", action="store_true", help="small shapes")
    o = parser.parse_args()
    o.repeats = o.repeats or (1 if o.quick else 15)
    os.makedirs(o.folder, exist_ok=True)
    made, rows, gains = None, [], []
    if o.part != "paths":
        for document in measure_times(o):
            made = made or dict(document)
            rows += document["rows"]
            gains += [gain for gain in [gain_of(document["rows"])] if gain]
    if o.part != "times":
        for document, row in measure_paths(o):
            made = made or dict(document)
            rows.append(row)
    calm = [gain["over_sequential"] for gain in gains if not gain["noisy"]]
    made.update(rows=rows, gains=gains, median_gain=statistics.median(calm) if calm else None)
    for gain in gains:
        print("%(model)s, H %(hidden)d: both passes speculated are %(over_sequential).2f times as fast as sequential" % gain +
              (", %.2f times as fast as %s" % (gain["over_rival"], gain["rival"]) if "rival" in gain else "") +
              (" (noisy)" if gain["noisy"] or gain.get("rival_noisy") else ""))
    if calm:
        print("median of %d points: %.2f times as fast as sequential" % (len(calm), made["median_gain"]))
    if o.out:
        results_file.write(o.out, made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
