"""Holds the oracle's projections against training steps on this machine, as ParaDL does (section 5.2).

    python3 bench/scripts/oracle_accuracy.py --program build/cpu/bppsa --out bench/results/oracle_accuracy.json

Runs bppsa bench oracle for LeNet-5 and VGG-11 on 1, 2 and 4 ranks, as threads and as processes of mpirun, one thread each. It
takes turns: what the formulas need is measured, then come some training steps. Accuracy is 1 - |predicted - measured| / measured,
over the means of at least 100 steps; that of the turns' medians stands beside it. A row below 90 % says which part is off. --quick
has LeNet-5 on two threads alone and three turns. --model and --transport measure a part, and keep the other rows of the document.
Nothing is judged: the numbers are for people.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

GOAL, PUBLISHED = 0.9, 0.8674  # of rows with at most two ranks; the mean of ParaDL's table of accuracies
CASES = [("lenet5", 64, 20), ("vgg11", 4, 10)]  # model, mini-batch, turns of ten iterations
RANKS = (1, 2, 4)
COMPUTING = ("forward", "backward", "update", "wait")  # phases of a projection; the others are messages and collectives


def run(o, case, transport, ranks, path):
    """the document of bench oracle; None: the program ended with an error"""
    model, batch, turns = case
    command = [os.path.abspath(o.program), "bench", "oracle", "--model", model, "--batch", str(batch), "--threads", "1", "--json",
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


def take_rows(document):
    """the rows of a document, each with what they have in common"""
    common = {name: document[name] for name in ("model", "batch", "transport", "ranks")}
    for row in document["rows"]:
        middle = [statistics.median(row[name + "_of_turns_s"]) for name in ("measured", "predicted")]
        row["accuracy_of_medians"] = 1 - abs(middle[1] - middle[0]) / middle[0]
        yield {**common, **row, "reason": reason(row, document["ranks"]) if row["accuracy"] < GOAL else ""}


def show(row):
    return "%-7s %-13s %-7s %d  measured %9.3f ms, predicted %9.3f ms: %5.1f %%%s" % (
        row["model"], row["method"], row["transport"], row["ranks"], 1e3 * row["measured_s"], 1e3 * row["predicted_s"],
        100 * row["accuracy"], row["reason"] and "  " + row["reason"])


def summary(rows):
    """the mean accuracy and how many reach the goal; of no rows None"""
    values = [row["accuracy"] for row in rows]
    return {"rows": len(values), "mean": statistics.mean(values), "reach_90": sum(v >= GOAL for v in values)} if values else None


def summaries(rows):
    """of all rows, and of each transport those on at most two ranks and those on four"""
    made = {"all": summary(rows), "up_to_2_ranks": summary([row for row in rows if row["ranks"] <= 2])}
    for transport in ("threads", "mpi"):
        of = [row for row in rows if row["transport"] == transport]
        made[transport] = {"up_to_2_ranks": summary([row for row in of if row["ranks"] <= 2]),
                           "4_ranks": summary([row for row in of if row["ranks"] == 4])}
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the bppsa program")
    parser.add_argument("--out", required=True, help="where the JSON document goes")
    parser.add_argument("--model", choices=[case[0] for case in CASES], help="this model alone [all]")
    parser.add_argument("--transport", choices=["threads", "mpi"], help="this transport alone [all that there are]")
    parser.add_argument("--quick", action="store_true", help="LeNet-5 on two threads, three turns")
    o = parser.parse_args()
    transports = ["threads"] + (["mpi"] if shutil.which("mpirun") and not o.quick else [])
    transports = [o.transport] if o.transport else transports
    cases = [case for case in (CASES[:1] if o.quick else CASES) if o.model in (None, case[0])]
    rows, document = [], {"bench": "oracle_accuracy", "processors": os.cpu_count(), "published_mean": PUBLISHED}
    if (o.model or o.transport) and os.path.exists(o.out):
        with open(o.out, encoding="utf-8") as file:
            rows = [row for row in json.load(file)["rows"]
                    if row["transport"] not in transports or row["model"] not in [case[0] for case in cases]]
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            for transport in transports:
                for ranks in (2,) if o.quick else RANKS:
                    part = run(o, case, transport, ranks, os.path.join(folder, "part.json"))
                    made = list(take_rows(part))
                    rows += made
                    document.update({name: part[name] for name in ("device", "version", "commit", "date")})
                    document.update({"summary": summaries(rows), "rows": rows})
                    print("\n".join(map(show, made)), flush=True)
                    with open(o.out, "w", encoding="utf-8") as file:
                        json.dump(document, file, indent=1)
                        file.write("\n")
    print("mean %.1f %% of %d rows" % (100 * document["summary"]["all"]["mean"], len(rows)))
    for transport in ("threads", "mpi"):
        for which, of in document["summary"][transport].items():
            if of is not None:
                print("%s, %s: mean %.1f %%, %d of %d at 90 %% or more; published %.1f %%" % (
                    transport, which.replace("_", " "), 100 * of["mean"], of["reach_90"], of["rows"], 100 * PUBLISHED))
    return 0


sys.exit(main())
