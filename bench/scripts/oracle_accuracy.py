"""Holds the oracle's projections against training steps on this machine, as ParaDL does (section 5.2).

    python3 bench/scripts/oracle_accuracy.py --program build/cpu/bppsa --out bench/results/oracle_accuracy.json

Runs bppsa bench oracle for LeNet-5 and VGG-11 on 1, 2 and 4 ranks, as threads and as processes of mpirun, one thread each, and
prints each run with its rows. It takes turns: what the formulas need is measured, then come some training steps. Accuracy is
1 - |predicted - measured| / measured, over the means of at least 100 steps; beside it stand the accuracy of the turns' medians and
the accuracy with the best turn's exchanges, which ParaDL reports. A row below 90 % says which part is off.

By the times of its steps all of it takes a quarter of an hour on two quiet processors, most of it VGG-11 on 2 and 4 ranks; where
turns are noisy twice as many are made. On two processors with a load average of 6, LeNet-5 on 1, 2 and 4 threads took 12, 34 and
35 s, VGG-11 on 1 and 2 threads 51 and 378 s. --model, --transport and --ranks measure a part. The document keeps the other rows
that it has. --add joins the turns of this run with those that its rows have from the same commit, so that several runs at several
times make one record. --quick has LeNet-5 on two threads alone and three turns. Nothing is judged: the numbers are for people.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import results_file
from program import add_program, plain_parser

GOAL, PUBLISHED = 0.9, 0.8674  # of rows with at most two ranks; the mean of ParaDL's table of accuracies
CASES = [("lenet5", 64, 10), ("vgg11", 4, 10)]  # model, mini-batch, turns of ten iterations
RANKS = (1, 2, 4)
NOISY = 1.25  # median over minimum, as core/measure/rounds.h has it
COMPUTING = ("forward", "backward", "update", "wait")  # phases of a projection; the others are messages and collectives


def run(o, case, transport, ranks, path):
    """the document of bench oracle; None: the program ended with an error"""
    model, batch, turns = case
    command = [o.program, "bench", "oracle", "--model", model, "--batch", str(batch), "--threads", "1", "--json",
               "--timeout", "600", "--out", path] + (["--quick"] if o.quick else ["--repeats", str(turns)])
    if transport == "mpi":
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *command]
    else:
        command += ["--ranks", str(ranks)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit("oracle_accuracy: %s: exit %d: %s" % (" ".join(command), done.returncode, done.stderr))
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def reason(row, ranks):
    """why a projection is off, as far as the numbers tell"""
    parts, phases, reasons = row["measured_parts_s"], row["predicted_phases_s"], []
    if ranks > os.cpu_count():
        reasons.append("%d ranks share %d processors" % (ranks, os.cpu_count()))
    if row["computed_s"] is not None:
        others = sum(value for name, value in phases.items() if name not in COMPUTING)
        reasons.append("computing %.2f ms, predicted %.2f; messages with waiting %.2f ms, predicted %.2f" % (
            1e3 * row["computed_s"], 1e3 * row["predicted_computed_s"], 1e3 * (row["measured_s"] - row["computed_s"]),
            1e3 * others))
    else:
        rest = row["predicted_s"] - phases["forward"] - phases["update"]
        reasons.append("forward %.2f ms, predicted %.2f; update %.2f ms, predicted %.2f; the rest %.2f ms, predicted %.2f" % (
            1e3 * parts["forward"], 1e3 * phases["forward"], 1e3 * parts["update"], 1e3 * phases["update"],
            1e3 * parts["backward"], 1e3 * rest))
    if row["noisy"]:
        reasons.append("turns between %.2f and %.2f ms" % (1e3 * row["min_s"], 1e3 * row["max_s"]))
    return "; ".join(reasons)


def accuracy(predicted, measured):
    return 1 - abs(predicted - measured) / measured


def key_of(row):
    return row["model"], row["transport"], row["ranks"], row["method"]


def take_rows(document):
    """the rows of a document, each with what they have in common"""
    common = {name: document[name] for name in ("model", "batch", "transport", "ranks", "calibrated_by", "commit", "date")}
    return [{**common, **row, "runs": 1} for row in document["rows"]]


def weighted(a, b, name):
    """the mean over the turns of both rows, of a number or of an object's numbers; None where one has none"""
    x, y = a[name], b[name]
    if isinstance(x, dict):
        return {part: weighted({**a, name: x[part]}, {**b, name: y[part]}, name) for part in x}
    if x is None or y is None:
        return None
    return (x * a["iterations"] + y * b["iterations"]) / (a["iterations"] + b["iterations"])


def join(a, b):
    """one row of the turns of two runs"""
    made = {**a, **b, "runs": a["runs"] + b["runs"], "iterations": a["iterations"] + b["iterations"],
            "residual": max(a["residual"], b["residual"])}
    for name in ("measured_s", "predicted_s", "computed_s", "predicted_computed_s", "measured_parts_s", "predicted_phases_s"):
        made[name] = weighted(a, b, name)
    for name in ("measured_of_turns_s", "predicted_of_turns_s"):
        made[name] = a[name] + b[name]
    if a["measured_best_s"] is not None:
        made["measured_best_s"] = made["computed_s"] + min(row["measured_best_s"] - row["computed_s"] for row in (a, b))
        made["accuracy_of_best"] = accuracy(made["predicted_s"], made["measured_best_s"])
    turns = made["measured_of_turns_s"]
    made.update({"accuracy": accuracy(made["predicted_s"], made["measured_s"]), "median_s": statistics.median(turns),
                 "min_s": min(turns), "max_s": max(turns), "repeats": len(turns),
                 "noisy": statistics.median(turns) > NOISY * min(turns)})
    return made


def finish(row):
    """completes a row by what follows from its turns"""
    row["accuracy_of_medians"] = accuracy(statistics.median(row["predicted_of_turns_s"]),
                                          statistics.median(row["measured_of_turns_s"]))
    row["reason"] = reason(row, row["ranks"]) if row["accuracy"] < GOAL else ""
    return row


def merge(rows, made, add):
    """the rows with those that were made: in place of rows of the same name, or (add) joined with them; and the latter"""
    old = {key_of(row): row for row in rows}
    new = []
    for row in made:
        before = old.get(key_of(row))
        joins = add and before is not None and before["commit"] == row["commit"]
        new.append(finish(join(before, row) if joins else row))
    names = {key_of(row) for row in new}
    return [row for row in rows if key_of(row) not in names] + new, new


def show(row):
    best = row["accuracy_of_best"]
    return "  %-13s %4d steps  measured %9.3f ms, predicted %9.3f ms: %5.1f %%%s%s" % (
        row["method"], row["iterations"], 1e3 * row["measured_s"], 1e3 * row["predicted_s"], 100 * row["accuracy"],
        "" if best is None else ", of best %.1f %%" % (100 * best), row["reason"] and "  " + row["reason"])


def summary(rows):
    """the mean accuracy and how many reach the goal, and the mean with the best exchanges where they are known; of no rows None"""
    values = [row["accuracy"] for row in rows]
    best = [row["accuracy"] if row["accuracy_of_best"] is None else row["accuracy_of_best"] for row in rows]
    return {"rows": len(values), "mean": statistics.mean(values), "reach_90": sum(v >= GOAL for v in values),
            "mean_of_best": statistics.mean(best)} if values else None


def summaries(rows):
    """of all rows, and of each transport those on at most two ranks and those on four"""
    made = {"all": summary(rows), "up_to_2_ranks": summary([row for row in rows if row["ranks"] <= 2])}
    for transport in ("threads", "mpi"):
        of = [row for row in rows if row["transport"] == transport]
        made[transport] = {"up_to_2_ranks": summary([row for row in of if row["ranks"] <= 2]),
                           "4_ranks": summary([row for row in of if row["ranks"] == 4])}
    return made


def main():
    parser = plain_parser(__doc__)
    add_program(parser)
    parser.add_argument("--out", required=True, help="where the JSON document goes")
    parser.add_argument("--model", choices=[case[0] for case in CASES], help="this model alone [all]")
    parser.add_argument("--transport", choices=["threads", "mpi"], help="this transport alone [all that there are]")
    parser.add_argument("--ranks", type=int, choices=RANKS, help="this number of ranks alone [all]")
    parser.add_argument("--add", action="store_true", help="joins the turns with those that the rows of --out have")
    parser.add_argument("--quick", action="store_true", help="LeNet-5 on two threads, three turns")
    o = parser.parse_args()
    transports = ["threads"] + (["mpi"] if shutil.which("mpirun") and not o.quick else [])
    transports = [o.transport] if o.transport else transports
    cases = [case for case in (CASES[:1] if o.quick else CASES) if o.model in (None, case[0])]
    sizes = (2,) if o.quick else (o.ranks,) if o.ranks else RANKS
    rows, document = [], {"bench": "oracle_accuracy", "processors": os.cpu_count(), "published_mean": PUBLISHED}
    if os.path.exists(o.out):
        with open(o.out, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
    jobs = [(case, transport, ranks) for ranks in sizes for case in cases for transport in transports]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for i, (case, transport, ranks) in enumerate(jobs):
            print("%d of %d, %.0f s so far: %s, batches of %d, ranks over %s: %d" % (
                i + 1, len(jobs), time.monotonic() - begin, case[0], case[1], transport, ranks), flush=True)
            part = run(o, case, transport, ranks, os.path.join(folder, "part.json"))
            rows, made = merge(rows, take_rows(part), o.add)
            document.update({name: part[name] for name in ("device", "version", "commit", "date")})
            document.update({"summary": summaries(rows), "rows": rows})
            print("\n".join(map(show, made)), flush=True)
            results_file.write(o.out, document)
    print("%.0f s; mean %.1f %% of %d rows" % (time.monotonic() - begin, 100 * document["summary"]["all"]["mean"], len(rows)))
    for transport in ("threads", "mpi"):
        for which, of in document["summary"][transport].items():
            if of is not None:
                print("%s, %s: mean %.1f %%, %d of %d at 90 %% or more; with the best exchanges %.1f %%; published %.1f %%" % (
                    transport, which.replace("_", " "), 100 * of["mean"], of["reach_90"], of["rows"], 100 * of["mean_of_best"],
                    100 * PUBLISHED))
    return 0


if __name__ == "__main__":
    sys.exit(main())
