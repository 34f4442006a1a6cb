#!/usr/bin/env python3
"""What old weights do to training, and what their prediction saves: figure 8 and table 1 of SpecTrain, appendix C of BPPSA.

    bench/scripts/spectrain.py --program build/cpu/bppsa --folder DIR --studies rmse --out bench/results/spectrain_rmse.json
    bench/scripts/spectrain.py --program build/cpu/bppsa --folder DIR --studies accuracy --out bench/results/spectrain_cpu.json
    bench/scripts/spectrain.py --program build/cpu/bppsa --folder DIR --studies adam --out bench/results/pipedream_adam.json

  rmse      one device trains each task by SGD with momentum and by Adam. After every update the weights are compared with those
            of s updates ago, and with what was then predicted (train --predict-ahead): s = 1, 2, 3
  accuracy  SGD with momentum 0.9, five seeds: data parallelism, and pipelines of four stages that update after every micro-batch,
            with the latest weights (vanilla), stashed ones (PipeDream), predicted ones (SpecTrain)
  adam      Adam with a rate that falls by ten after each third of the epochs, three seeds: one device, and PipeDream

Every scheme takes the same samples in the same order and makes as many updates of as many samples: a micro-batch of a pipeline is
what the copies of data parallelism share, or the one device's batch. The learning rates were chosen by hand for data parallelism
(accuracy) and one device (adam), two values at most; nothing is tuned for the other schemes. Tasks:

  lenet5    LeNet-5 on synthetic images of ten classes (data cifar10 --synthetic), held out: its test batch
  gru       three GRU layers of 20 on the features of synthetic instruments (data instruments, data irmas --set S), eleven classes
  mlp       eight linear layers of 128 with tanh on the same images
  deep      32 linear layers of 2048 with tanh, SpecTrain's size, on half of the images; not in adam

In deep all weights but the head's begin uniform with variance 1 / inputs and biases at 0, so that 32 layers pass on what they are
given; PyTorch's weights, with a third of the variance, do not. Its data parallelism is one device with the whole batch, the same
sum with other rounding, because four copies would need four times the memory.

DIR keeps the data; with data in it they are not made again. Ranks: the result does not depend on their number, so one rank does the
work of all workers unless --ranks says otherwise. --quick: a minute of small shapes; the GRU's data are then the bitstream.
"""
import argparse
import array
import json
import math
import os
import statistics
import struct
import sys
import time

import program
import results_file

STAGES = 4  # workers, and micro-batches of a step
AHEAD = 3
WINDOWS = 50  # points of a curve of errors
SCHEMES = {"data-parallel": "wait-free", "vanilla": "vanilla", "PipeDream": "pipedream", "SpecTrain": "spectrain"}
# samples of an update; epochs; learning rates; updates of rmse, if they are not those of --steps
TASKS = {"lenet5": {"samples": 32, "epochs": 10, "sgd": 0.01, "adam": 0.001},
         "gru": {"samples": 16, "epochs": 16, "sgd": 0.05, "adam": 0.003},
         "mlp": {"samples": 32, "epochs": 12, "sgd": 0.01, "adam": 0.0005},
         "deep": {"samples": 32, "epochs": 2, "sgd": 0.001, "adam": 0.0001, "steps": 64}}
BEST = ("min_train_loss", "min_validation_loss", "max_validation_accuracy")
STUDIES = {"rmse": ("sgd", "adam"), "accuracy": ("sgd",), "adam": ("adam",)}
LEFT_OUT = {"adam": ["deep"]}  # tasks


# ---- data ----

def sounds(o):
    """words for the features of synthetic instruments, 1088 samples to train on and 232 held out"""
    wav, x, y = (os.path.join(o.folder, name) for name in ("wav", "X.npy", "Y.npy"))
    if not os.path.exists(y):
        if not os.path.isdir(wav):
            program.run(o, "data", "instruments", "--files", 1320, "--seed", 1, "--out", wav)
        program.run(o, "data", "irmas", wav, "--set", "S", "--out-x", x, "--out-y", y)
    return ["--data", "npy:%s,%s" % (x, y), "--validation", 232 / 1320]


def words_of(o, task):
    """the words that say what is trained"""
    if task == "gru":
        small = ["--seq-len", 20, "--samples", 160, "--validation", 0.2]
        return ["gru", "--layers", 3, "--hidden", 4 if o.quick else 20, *(small if o.quick else sounds(o))]
    half = ["--samples", 128 if o.quick else 1024] if task == "deep" else []
    network = program.linear_layers(o, task, *o.layers[task], "tanh") if task in o.layers else task
    return [network, "--data", program.synthetic_images(o, 256 if o.quick else 2048), *half]


def scale(path, to):
    """copies a safetensors file of f32 with weights of sqrt(3) times the size and biases of 0, the head's as they are"""
    with open(path, "rb") as file, open(to, "wb") as out:
        head = file.read(8)
        head += file.read(struct.unpack("<Q", head)[0])
        out.write(head)
        about = json.loads(head[8:])
        about.pop("__metadata__", None)
        for name, tensor in sorted(about.items(), key=lambda item: item[1]["data_offsets"]):
            values = array.array("f", file.read(tensor["data_offsets"][1] - tensor["data_offsets"][0]))
            if not name.startswith("head."):
                factor = 0 if name.endswith(".bias") else math.sqrt(3)
                values = array.array("f", [factor * value for value in values])
            values.tofile(out)


def initial(o, task, seed):
    """words for the initial weights; each seed's are made once, in the place of those of the seed before"""
    if task != "deep":
        return []
    drawn, path = (os.path.join(o.folder, name) for name in ("drawn.safetensors", "initial.safetensors"))
    if o.drawn != seed:
        program.run(o, "train", *words_of(o, task), "--batch", 1, "--iterations", 0, "--seed", seed, "--save-weights", drawn)
        scale(drawn, path)
        os.remove(drawn)
        o.drawn = seed
    return ["--weights", path]


def rate_of(task, optimizer):
    return ["--optimizer", optimizer, "--lr", TASKS[task][optimizer], *(["--momentum", 0.9] if optimizer == "sgd" else [])]


def train(o, task, seed, *words):
    threads = o.threads if task == "deep" and "--ranks" not in words else 1
    words = [*words_of(o, task), *initial(o, task, seed), "--seed", seed, "--threads", threads, *words]
    return json.loads(program.run(o, "train", *words, "--json"))


# ---- the errors of weights ----

def mean(values):
    return statistics.fmean(values)


def errors(o, task, optimizer):
    """rows: for each s the errors of stale and of predicted weights over a run"""
    steps = 60 if o.quick else TASKS[task].get("steps", o.steps)
    document = train(o, task, 1, *rate_of(task, optimizer), "--batch", o.samples[task], "--iterations", steps, "--backward", "bp",
                     "--predict-ahead", AHEAD)
    for s in range(1, AHEAD + 1):
        found = [(row["step"], row["stale_rmse"][s - 1], row["predicted_rmse"][s - 1]) for row in document["rows"]]
        found = [row for row in found if row[1] is not None]
        window = max(1, len(found) // WINDOWS)
        parts = [found[i:i + window] for i in range(0, len(found) - window + 1, window)]
        stale, predicted = mean([row[1] for row in found]), mean([row[2] for row in found])
        row = {"study": "rmse", "task": task, "optimizer": optimizer, "lr": TASKS[task][optimizer], "ahead": s,
               "samples": o.samples[task], "updates": steps, "stale": stale, "predicted": predicted,
               "nearer": mean([float(row[2] < row[1]) for row in found]),
               "curve": [[part[len(part) // 2][0], mean([p[1] for p in part]), mean([p[2] for p in part])] for part in parts]}
        print("%-6s %-4s s = %d: RMSE predicted %.3g, stale %.3g, ratio %.2f; predicted is nearer in %.1f %% of %d updates%s" % (
            task, optimizer, s, predicted, stale, predicted / stale, 100 * row["nearer"], len(found),
            "" if predicted < stale else ": NOT BELOW"), flush=True)
        yield document, row


# ---- accuracy ----

def split_of(o, task, scheme):
    """words for batch and ranks: as many samples in every update, in the same order"""
    samples = o.samples[task]
    if scheme == "one-device":
        return ["--batch", samples]
    if scheme == "data-parallel" and task == "deep":
        return ["--batch", samples, "--backward", "bp"]
    each = ["--ranks", o.ranks, "--stages", STAGES, "--split", SCHEMES[scheme]]
    if scheme == "data-parallel":
        return [*each, "--batch", samples]
    return [*each, "--batch", STAGES * samples, "--micro-batches", STAGES]


def accuracy(o, study, task, scheme, seed):
    """a row: losses and accuracies of every epoch"""
    epochs = 3 if o.quick else o.epochs[task]
    optimizer = STUDIES[study][0]
    decay = ["--lr-schedule", "step", "--lr-step-size", max(1, epochs // 3), "--lr-gamma", 0.1] if study == "adam" else []
    begin = time.monotonic()
    document = train(o, task, seed, *rate_of(task, optimizer), *decay, *split_of(o, task, scheme), "--epochs", epochs)
    rows = document["rows"]
    curve = [[row["loss"], row["validation_loss"], row["validation_accuracy"]] for row in rows]
    steps = rows[-1]["step"] * (STAGES if document.get("ranks", {}).get("stages", 1) > 1 else 1)
    row = {"study": study, "task": task, "optimizer": optimizer, "lr": TASKS[task][optimizer], "scheme": scheme, "seed": seed,
           "samples": o.samples[task], "updates": steps, "parameters": document["parameters"],
           "flush_every": document.get("ranks", {}).get("flush_every"), "min_train_loss": min(c[0] for c in curve),
           "min_validation_loss": min(c[1] for c in curve), "max_validation_accuracy": max(c[2] for c in curve),
           "seconds": round(time.monotonic() - begin, 1), "epochs": curve}
    print("%-8s %-6s %-13s seed %d: train loss %.4f, validation loss %.4f, accuracy %.2f %%, %.1f s" % (
        study, task, scheme, seed, row["min_train_loss"], row["min_validation_loss"], 100 * row["max_validation_accuracy"],
        row["seconds"]), flush=True)
    return document, row


def spread(values):
    return "%.4f ± %.4f" % (mean(values), statistics.stdev(values) if len(values) > 1 else 0)


def summary(rows):
    """a line for each study, task and scheme: mean and standard deviation over the seeds"""
    groups = {}
    for row in rows:
        if row["study"] != "rmse":
            groups.setdefault((row["study"], row["task"], row["scheme"]), []).append(row)
    for names, found in groups.items():
        numbers = [spread([row[key] for row in found]) for key in BEST]
        print("%-8s %-6s %-13s %d runs: train loss %s, validation loss %s, accuracy %s" % (*names, len(found), *numbers))


# ---- all ----

def runs(o):
    """(document, row) of every run, study by study"""
    for study in o.studies:
        for task in o.tasks:
            if study == "rmse":
                for optimizer in STUDIES[study]:
                    yield from errors(o, task, optimizer)
                continue
            if task in LEFT_OUT.get(study, []):
                continue
            for seed in range(1, o.seeds[study] + 1):
                for scheme in ["one-device", "PipeDream"] if study == "adam" else SCHEMES:
                    yield accuracy(o, study, task, scheme, seed)


def save(o, about, rows):
    document = {"bench": "staleness", "hardware": about["config"]["hardware"], "commit": about["commit"],
                "date": time.strftime("%Y-%m-%d"), "quick": o.quick, "stages": STAGES, "rows": rows}
    results_file.write(o.out + ".part", document)
    os.replace(o.out + ".part", o.out)


def choices(known):
    """a reader of names, separated by commas"""
    def read(text):
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError("%r, expected some of %s" % (name, ", ".join(known)))
        return names
    return read


def parse():
    p = program.parser(__doc__, "where the data are, or go")
    p.add_argument("--studies", type=choices(STUDIES), default=list(STUDIES), help="some of rmse, accuracy, adam [all]")
    p.add_argument("--tasks", type=choices(TASKS), default=list(TASKS), help="some of lenet5, gru, mlp, deep [all]")
    p.add_argument("--ranks", type=int, default=1, help="of data parallelism and pipelines [1]")
    p.add_argument("--steps", type=int, default=1500, help="updates of rmse [1500]")
    p.add_argument("--quick", action="store_true", help="small shapes")
    o = p.parse_args()
    o.layers = {"mlp": (3, 8) if o.quick else (8, 128), "deep": (6, 8) if o.quick else (32, 2048)}
    o.drawn = None  # the seed of the weights that `initial` made last
    o.samples = {task: 8 if o.quick else TASKS[task]["samples"] for task in TASKS}
    o.epochs = {task: TASKS[task]["epochs"] for task in TASKS}
    o.seeds = {"accuracy": 2, "adam": 2} if o.quick else {"accuracy": 5, "adam": 3}
    return o


def main():
    o = parse()
    os.makedirs(o.folder, exist_ok=True)
    rows = []
    for about, row in runs(o):
        rows.append(row)
        if o.out:
            save(o, about, rows)
    summary(rows)
    return 0


sys.exit(main())
