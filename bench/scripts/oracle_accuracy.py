"""Holds the oracle's projections against training runs on this machine, as ParaDL does (section 5.2).

    python3 bench/scripts/oracle_accuracy.py --program build/cpu/bppsa --folder accuracy --out bench/results/oracle_accuracy.json

Calibrates first, in the same run: bppsa calibrate with the samples that a rank computes at once. Then every strategy that train can
execute runs on 1, 2 and 4 ranks, as threads and as processes of mpirun, one thread each, on LeNet-5 and VGG-11, with a fixed
mini-batch for all ranks. Measured is the mean of the steps behind the first one: forward pass, backward pass with everything that
travels, update. Accuracy is 1 - |predicted - measured| / measured. A strategy that train refuses has a row with its reason.
--quick has LeNet-5 on threads alone and few steps. Nothing is judged: the numbers are for people.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

from program import images

GOAL, PUBLISHED = 0.9, 0.8674  # of rows with at most two ranks; the mean of ParaDL's table of accuracies
# strategy of the oracle, --split of train, --ranks from
STRATEGIES = [("data", "batch"), ("gpipe", "gpipe"), ("spatial", "spatial"), ("filter", "filter"), ("channel", "channel"),
              ("data+filter", "data+filter"), ("data+spatial", "data+spatial")]
BLOCK = 16  # samples of a block of data parallelism (distributed/data_parallel.h)
# model, mini-batch, micro-batches of a pipeline, steps; of VGG-11 as many as fit into a run of five minutes
CASES = [("lenet5", 64, 4, 101), ("vgg11", 16, 4, 16)]
QUICK = [("lenet5", 64, 4, 4)]


class Refused(Exception):
    """a request that the program does not carry out: exit status 2"""


def run(o, transport, ranks, *arguments):
    """what the program prints on so many ranks"""
    command = [os.path.abspath(o.program), *map(str, arguments), "--threads", "1"]
    if transport == "mpi":
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *command]
    elif ranks:
        command += ["--ranks", str(ranks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode == 2:
        raise Refused(done.stderr.strip().splitlines()[0])
    if done.returncode:
        sys.exit("oracle_accuracy: %s: exit %d: %s" % (" ".join(command), done.returncode, done.stderr))
    return done.stdout


def at_once(strategy, batch, micro_batches, ranks):
    """the samples of a pass of one rank"""
    if strategy == "data":
        return BLOCK if batch >= BLOCK * ranks else batch // ranks
    if strategy == "gpipe":
        return batch // micro_batches
    return batch // 2 if strategy.startswith("data+") and ranks > 1 else batch


class Systems:
    """the system files of this run, each measured when it is first asked for"""

    def __init__(self, o):
        self.o, self.made = o, {}

    def path(self, model, transport, samples):
        key = (model, transport, samples)
        if key not in self.made:
            path = os.path.join(self.o.folder, "%s_%s_%d.json" % key)
            run(self.o, transport, 2 if self.o.quick else 4, "calibrate", model, "--out", path, "--batch", samples,
                *(["--quick"] if self.o.quick or model == "vgg11" else []))
            self.made[key] = path
        return self.made[key]


def predict(o, system, model, strategy, ranks, batch, micro_batches):
    """the row of one iteration"""
    asked = strategy if ranks > 1 else "serial"
    document = json.loads(subprocess.run(
        [os.path.abspath(o.program), "oracle", model, system, "--strategy", asked, "--processors", str(ranks),
         "--scaling", "strong", "--batch", str(batch), "--samples", str(batch), "--micro-batches", str(micro_batches),
         "--group", "2", "--collective", "ordered", "--json"], capture_output=True, text=True, check=True).stdout)
    return document["rows"][0]


def measure(o, transport, model, split, ranks, batch, micro_batches, steps, data):
    """the seconds of each step but the first, and of its parts"""
    log = os.path.join(o.folder, "log.jsonl")
    run(o, transport, ranks, "train", model, "--data", data, "--batch", batch, "--iterations", steps, "--backward", "bp",
        "--split", split, "--log", log,
        *(["--micro-batches", micro_batches] if split == "gpipe" else []))
    with open(log, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file][1:]
    return {part: [line[part] for line in lines] for part in ("forward_s", "backward_s", "update_s")}


def row_of(o, systems, transport, case, strategy, split, ranks, data):
    model, batch, micro_batches, steps = case
    row = {"model": model, "strategy": strategy, "transport": transport, "ranks": ranks, "batch": batch, "steps": steps - 1}
    try:
        parts = measure(o, transport, model, split, ranks, batch, micro_batches, steps, data)
    except Refused as refused:
        return {**row, "refused": str(refused)}
    seconds = [sum(step) for step in zip(*parts.values())]
    samples = at_once(strategy, batch, micro_batches, ranks)
    predicted = predict(o, systems.path(model, transport, samples), model, strategy, ranks, batch, micro_batches)
    measured = statistics.mean(seconds)
    row.update({"at_once": samples, "measured_s": measured, "median_s": statistics.median(seconds), "min_s": min(seconds),
                "measured_parts_s": {part: statistics.mean(values) for part, values in parts.items()},
                "predicted_s": predicted["time_s"], "predicted_parts_s": predicted["phases_s"]})
    if predicted["time_s"] is None:
        return {**row, "refused": predicted["reason"]}
    row["accuracy"] = 1 - abs(predicted["time_s"] - measured) / measured
    return row


def show(row):
    name = "%-7s %-13s %-7s %d" % (row["model"], row["strategy"], row["transport"], row["ranks"])
    if "accuracy" not in row:
        return "%s  not run: %s" % (name, row["refused"])
    return "%s  measured %9.3f ms, predicted %9.3f ms: %5.1f %%" % (name, 1e3 * row["measured_s"], 1e3 * row["predicted_s"],
                                                                     100 * row["accuracy"])


def mean_of(rows):
    values = [row["accuracy"] for row in rows if "accuracy" in row]
    return statistics.mean(values) if values else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the bppsa program")
    parser.add_argument("--folder", required=True, help="a directory for images, logs and system files, made when missing")
    parser.add_argument("--out", required=True, help="where the JSON document goes")
    parser.add_argument("--quick", action="store_true", help="LeNet-5 on at most two threads, four steps")
    o = parser.parse_args()
    os.makedirs(o.folder, exist_ok=True)
    transports = ["threads"] + (["mpi"] if shutil.which("mpirun") and not o.quick else [])
    systems, rows = Systems(o), []
    for case in QUICK if o.quick else CASES:
        data = images(o.folder, 64)
        for transport in transports:
            for strategy, split in STRATEGIES:
                for ranks in (1, 2) if o.quick else (1, 2, 4):
                    if ranks == 1 and strategy != "data":
                        continue  # one rank shares nothing
                    rows.append(row_of(o, systems, transport, case, strategy, split, ranks, data))
                    print(show(rows[-1]), flush=True)
    doctor = json.loads(subprocess.run([os.path.abspath(o.program), "doctor", "--json"], capture_output=True, text=True,
                                       check=True).stdout)
    few = [row for row in rows if row["ranks"] <= 2]
    document = {"bench": "oracle_accuracy", "machine": doctor, "processors": os.cpu_count(), "rows": rows,
                "systems": {path: json.load(open(path, encoding="utf-8")) for path in systems.made.values()},
                "mean": mean_of(rows), "mean_up_to_2_ranks": mean_of(few), "published_mean": PUBLISHED}
    with open(o.out, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    print("mean %.1f %% of %d runs, %.1f %% of those on at most two ranks; published %.1f %%" % (
        100 * document["mean"], sum("accuracy" in row for row in rows), 100 * document["mean_up_to_2_ranks"], 100 * PUBLISHED))
    for path, system in document["systems"].items():
        print("%s: %s" % (os.path.basename(path), ", ".join("%d ranks on %d processors compute %.2f times as long" % (
            level["processors"], os.cpu_count(), level["slowdown"]) for level in system["levels"])))
    for row in few:
        if row.get("accuracy", 1) < GOAL:
            computed = sum(row["predicted_parts_s"][part] for part in ("forward", "backward", "update"))
            print("below %.0f %%: %s; predicted %.3f ms of computing" % (100 * GOAL, show(row), 1e3 * computed))
    return 0


sys.exit(main())
