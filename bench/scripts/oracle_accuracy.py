"""Holds the oracle's projections against training runs on this machine, as ParaDL does (section 5.2).

    python3 bench/scripts/oracle_accuracy.py --program build/cpu/bppsa --folder accuracy --out bench/results/oracle_accuracy.json

Every strategy that train can execute runs on 1, 2 and 4 ranks, as threads and as processes of mpirun, one thread each, on LeNet-5
and VGG-11, with a fixed mini-batch for all ranks. The speed of a machine drifts, so there are rounds: each calibrates (bppsa
calibrate with the samples that a rank computes at once) and right behind it makes some steps of every row. Measured is, of each
round, the mean of the steps behind the first one (forward pass, backward pass with everything that travels, update), and of these
means the median; predicted is the median of the rounds' projections. Accuracy is 1 - |predicted - measured| / measured. A strategy
that train refuses has a row with its reason. A row below 90 % says which part is off. --quick has LeNet-5 on threads alone and one
short round. Nothing is judged: the numbers are for people.
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
# model, mini-batch, micro-batches of a pipeline, counted steps of a round
CASES = [("lenet5", 64, 4, 20), ("vgg11", 16, 4, 4)]
QUICK = [("lenet5", 64, 4, 3)]
POINTS = ("layer_times", "fits")  # of a system file: left out of the document; the files stay in the folder
COMPUTING = ("forward", "backward", "update", "wait")  # phases of a projection; the others are messages and collectives


class Refused(Exception):
    """a request that the program does not carry out: exit status 2"""


def run(o, transport, ranks, *arguments):
    """what the program prints on so many ranks; 0: without ranks"""
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


class Row:
    """a strategy on so many ranks, with what the rounds found"""

    def __init__(self, case, transport, strategy, split, ranks):
        self.model, self.batch, self.micro_batches, self.steps = case
        self.transport, self.strategy, self.split, self.ranks = transport, strategy, split, ranks
        self.group = ranks // 2  # of a hybrid strategy: two groups
        self.seconds, self.parts, self.predicted, self.phases, self.refused = [], [], [], [], None

    def at_once(self):
        """the samples of a pass of one rank"""
        if self.strategy == "gpipe":
            return self.batch // self.micro_batches
        if self.strategy == "data" and (self.ranks > 1 or self.transport == "mpi"):
            return min(BLOCK, self.batch // self.ranks)
        return self.batch // 2 if self.strategy.startswith("data+") else self.batch

    def predict(self, o, system):
        """the oracle's row of one iteration"""
        asked = self.strategy if self.ranks > 1 or self.transport == "mpi" else "serial"  # one rank of MPI has buckets too
        document = json.loads(subprocess.run(
            [os.path.abspath(o.program), "oracle", self.model, system, "--strategy", asked, "--processors", str(self.ranks),
             "--scaling", "strong", "--batch", str(self.batch), "--samples", str(self.batch), "--micro-batches",
             str(self.micro_batches), "--group", str(max(1, self.group)), "--collective", "ordered", "--json"],
            capture_output=True, text=True, check=True).stdout)
        return document["rows"][0]

    def measure(self, o, data, predicted):
        """the seconds of each step but the first, and the means of its parts"""
        log = os.path.join(o.folder, "log.jsonl")
        options = ["--split", self.split] if self.ranks > 1 or self.transport == "mpi" else []
        if self.strategy == "gpipe":  # the stages that the oracle chose
            options += ["--micro-batches", self.micro_batches, "--cut", ",".join(map(str, predicted["cut"]))]
        if self.strategy.startswith("data+"):
            options += ["--group", self.group]
        printed = run(o, self.transport, self.ranks if options else 0, "train", self.model, "--data", data, "--batch", self.batch,
                      "--iterations", self.steps + 1, "--backward", "bp", "--log", log, "--json", *options)
        with open(log, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file][2:]  # behind the heading and the first step
        if len(lines) != self.steps:
            sys.exit("oracle_accuracy: %s has %d steps behind the first, expected %d" % (log, len(lines), self.steps))
        parts = {part: statistics.mean(line[part + "_s"] for line in lines) for part in ("forward", "backward", "update")}
        within = find(json.loads(printed), "phases")  # of ranks that share layers: where the time of both passes goes
        parts.update({name: value for name, value in (within or {}).items() if name.endswith("_s")})
        return [line["forward_s"] + line["backward_s"] + line["update_s"] for line in lines], parts

    def round(self, o, data, system):
        predicted = self.predict(o, system)
        if predicted["time_s"] is None:
            self.refused = predicted["reason"]
            return
        try:
            seconds, parts = self.measure(o, data, predicted)
        except Refused as refused:
            self.refused = str(refused)
            return
        self.seconds.append(seconds)
        self.parts.append(parts)
        self.predicted.append(predicted["time_s"])
        self.phases.append(predicted["phases_s"])

    def document(self):
        row = {"model": self.model, "strategy": self.strategy, "transport": self.transport, "ranks": self.ranks,
               "batch": self.batch, "at_once": self.at_once()}
        if self.refused:
            return {**row, "refused": self.refused}
        every = [second for seconds in self.seconds for second in seconds]
        measured = statistics.median(statistics.mean(seconds) for seconds in self.seconds)
        predicted = statistics.median(self.predicted)
        row.update({"steps": len(every), "measured_s": measured, "predicted_s": predicted,
                    "accuracy": 1 - abs(predicted - measured) / measured,
                    "mean_s": statistics.mean(every), "median_s": statistics.median(every), "min_s": min(every),
                    "measured_of_rounds_s": [statistics.mean(seconds) for seconds in self.seconds],
                    "predicted_of_rounds_s": self.predicted,
                    "measured_parts_s": medians(self.parts), "predicted_parts_s": medians(self.phases)})
        row["reason"] = reason(row) if row["accuracy"] < GOAL else ""
        return row


def medians(rounds):
    return {name: statistics.median(values[name] for values in rounds) for name in rounds[0]}


def find(document, name):
    """the first member of that name, however deep"""
    if isinstance(document, dict):
        if name in document:
            return document[name]
        document = list(document.values())
    found = (find(value, name) for value in document) if isinstance(document, list) else ()
    return next((value for value in found if value is not None), None)


def reason(row):
    """why a projection is off, as far as the numbers tell"""
    measured, predicted, reasons = row["measured_parts_s"], row["predicted_parts_s"], []
    if row["ranks"] > os.cpu_count():
        reasons.append("%d ranks share %d processors" % (row["ranks"], os.cpu_count()))
    if "compute_s" in measured:
        computed = measured["compute_s"] + measured["update"]
        travelled = row["measured_s"] - computed
        expected = sum(predicted[name] for name in COMPUTING)
        others = sum(value for name, value in predicted.items() if name not in COMPUTING)
        reasons.append("computing %.2f ms, predicted %.2f; messages with waiting %.2f ms, predicted %.2f" % (
            1e3 * computed, 1e3 * expected, 1e3 * travelled, 1e3 * others))
    else:
        others = sum(value for name, value in predicted.items() if name not in COMPUTING[:3])
        reasons.append("forward %.2f ms, predicted %.2f; update %.2f ms, predicted %.2f; the rest %.2f ms, predicted %.2f" % (
            1e3 * measured["forward"], 1e3 * predicted["forward"], 1e3 * measured["update"], 1e3 * predicted["update"],
            1e3 * measured["backward"], 1e3 * (predicted["backward"] + others)))
    for name, values in (("measured", row["measured_of_rounds_s"]), ("predicted", row["predicted_of_rounds_s"])):
        if max(values) > 1.2 * min(values):
            reasons.append("%s between %.2f and %.2f ms in the rounds" % (name, 1e3 * min(values), 1e3 * max(values)))
    return "; ".join(reasons)


def show(row):
    name = "%-7s %-13s %-7s %d" % (row["model"], row["strategy"], row["transport"], row["ranks"])
    if "accuracy" not in row:
        return "%s  not run: %s" % (name, row["refused"])
    return "%s  measured %9.3f ms, predicted %9.3f ms: %5.1f %%%s" % (
        name, 1e3 * row["measured_s"], 1e3 * row["predicted_s"], 100 * row["accuracy"], row["reason"] and "  " + row["reason"])


def mean_of(rows):
    values = [row["accuracy"] for row in rows if "accuracy" in row]
    return statistics.mean(values) if values else None


def rows_of(case, transport, most):
    """one rank shares nothing, so it has one row"""
    return [Row(case, transport, strategy, split, ranks) for strategy, split in STRATEGIES for ranks in (1, 2, 4)
            if ranks <= most and (ranks > 1 or strategy == "data")]


def make_round(o, rows, data, number, systems):
    """calibrates for each number of samples at once, and makes the steps of the rows that compute so many"""
    for key in sorted({(row.model, row.transport, row.at_once()) for row in rows}):
        model, transport, samples = key
        path = os.path.join(o.folder, "%s_%s_%d_%d.json" % (*key, number))
        run(o, transport, 2 if o.quick else 4, "calibrate", model, "--out", path, "--batch", samples, "--timeout", 600,
            "--quick")
        with open(path, encoding="utf-8") as file:
            system = json.load(file)
        systems[os.path.basename(path)] = {name: system[name] for name in system if name not in POINTS}
        for row in rows:
            if (row.model, row.transport, row.at_once()) == key:
                row.round(o, data, path)
        print("round %d: %s over %s, %d samples at once" % (number + 1, model, transport, samples), flush=True)


def write(o, rows, rounds, systems):
    """what is known after so many rounds"""
    made = [row.document() for row in rows]
    doctor = json.loads(subprocess.run([os.path.abspath(o.program), "doctor", "--json"], capture_output=True, text=True,
                                       check=True).stdout)
    document = {"bench": "oracle_accuracy", "machine": doctor, "processors": os.cpu_count(), "rounds": rounds, "rows": made,
                "systems": systems, "mean": mean_of(made), "published_mean": PUBLISHED,
                "mean_up_to_2_ranks": mean_of([row for row in made if row["ranks"] <= 2])}
    with open(o.out, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    return document


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the bppsa program")
    parser.add_argument("--folder", required=True, help="a directory for images, logs and system files, made when missing")
    parser.add_argument("--out", required=True, help="where the JSON document goes")
    parser.add_argument("--rounds", type=int, default=5, help="calibrations and some steps of every row [5]")
    parser.add_argument("--quick", action="store_true", help="LeNet-5 on at most two threads, one round of three steps")
    o = parser.parse_args()
    os.makedirs(o.folder, exist_ok=True)
    transports = ["threads"] + (["mpi"] if shutil.which("mpirun") and not o.quick else [])
    rows = [row for case in (QUICK if o.quick else CASES) for transport in transports
            for row in rows_of(case, transport, 2 if o.quick else 4)]
    data, systems = images(o.folder, 64), {}
    for number in range(1 if o.quick else o.rounds):
        make_round(o, rows, data, number, systems)
        document = write(o, rows, number + 1, systems)
    made = document["rows"]
    few = [row for row in made if row["ranks"] <= 2]
    print("\n".join(map(show, made)))
    print("mean %.1f %% of %d runs, %.1f %% of those on at most two ranks, %d of %d at 90 %% or more; published %.1f %%" % (
        100 * document["mean"], sum("accuracy" in row for row in made), 100 * document["mean_up_to_2_ranks"],
        sum(row.get("accuracy", 0) >= GOAL for row in few), sum("accuracy" in row for row in few), 100 * PUBLISHED))
    for path, system in sorted(systems.items()):
        print("%s: %s" % (path, ", ".join("%d ranks on %d processors compute %.2f times as long" % (
            level["processors"], os.cpu_count(), level["slowdown"]) for level in system["levels"])))
    return 0


sys.exit(main())
