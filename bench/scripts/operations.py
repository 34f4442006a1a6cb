#!/usr/bin/env python3
"""Operations as predicted and as measured, from the timelines that `bppsa bench schedule --trace F.json` writes.

    bench/scripts/operations.py F.json ..

Says for each scheme how long the operations of each kind take in all, on each worker, and how long a message is on its way: from
the beginning of its SEND to the end of its RECV, which is when the receiver has seen it. A receiver that computes meanwhile sees
it behind the pass; one that is idle sleeps between two looks. Microseconds; measured: of the fastest pass of each scheme. Several
files of the same benchmark: medians over the files.
"""
import json
import os
import statistics
import sys

from program import plain_parser

KINDS = ("F", "RECOMPUTE", "I", "W", "B", "STEP")


def fail(text):
    sys.stderr.write("operations.py: %s\n" % text)
    sys.exit(2)


def read(path):
    """{scheme: {side: [(kind, id, worker, start, end)]}}, side: predicted or measured"""
    try:
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
        found = {}
        for e in events:
            if e["ph"] == "X":
                scheme, side, worker = names[e["pid"]].replace(":", ",").split(",")
                sides = found.setdefault(scheme, {"predicted": [], "measured": []})
                sides[side.strip()].append((e["name"].split()[0], e["args"]["id"], worker.split()[-1], e["ts"], e["ts"] + e["dur"]))
        return found
    except OSError as error:
        return fail("%s: %s" % (path, error.strerror))
    except (ValueError, KeyError, TypeError) as error:
        return fail("%s: %s: %s, expected what bench schedule --trace writes" % (path, type(error).__name__, error))


def kinds(operations):
    """{(worker, kind): [count, time]}"""
    sums = {}
    for kind, _, worker, start, end in operations:
        if kind in KINDS:
            sums.setdefault((worker, kind), [0, 0])
            sums[worker, kind][0] += 1
            sums[worker, kind][1] += end - start
    return sums


def messages(operations):
    """how long messages were on their way to a receiver that was idle, and to one that computed in between"""
    sent = {op[1]: op for op in operations if op[0] == "SEND"}
    idle, busy = [], []
    for kind, number, worker, _, end in operations:
        if kind == "RECV" and number - 1 in sent:
            start = sent[number - 1][3]
            passes = [op for op in operations if op[0] in KINDS and op[2] == worker and op[3] < end and op[4] > start]
            # passes that are shorter than a look at a clock do not keep a receiver busy
            (busy if any(op[4] - op[3] > 2 for op in passes) else idle).append(end - start)
    return idle, busy


def span(operations):
    return max(op[4] for op in operations)


def show(scheme, sides):
    """sides: of each file"""
    predicted, measured = ([span(s[side]) for s in sides] for side in ("predicted", "measured"))
    ratio = statistics.median(m / p for m, p in zip(measured, predicted))
    print("%s: makespan %.0f predicted, %.0f measured, ratio %.3f" % (
        scheme, statistics.median(predicted), statistics.median(measured), ratio))
    before, after = ([kinds(s[side]) for s in sides] for side in ("predicted", "measured"))
    for key in sorted(before[0]):
        print("  worker %s: %4d %-9s %8.0f predicted %8.0f measured" % (
            key[0], before[0][key][0], key[1], *(statistics.median(k[key][1] for k in all_) for all_ in (before, after))))
    priced = [end - start for s in sides for kind, _, _, start, end in s["predicted"] if kind == "RECV"]
    found = [messages(s["measured"]) for s in sides]
    for which, text in enumerate(("was idle", "computed")):
        delays = [delay for pair in found for delay in pair[which]]
        if delays:
            print("  %5d messages whose receiver %s: mean %.1f, median %.1f; predicted %.1f" % (
                len(delays), text, statistics.fmean(delays), statistics.median(delays), statistics.fmean(priced)))


def main():
    parser = plain_parser(__doc__)
    parser.add_argument("files", nargs="+", metavar="F.json", help="what bench schedule --trace wrote")
    files = [read(path) for path in parser.parse_args().files]
    for scheme in files[0]:
        sides = [file[scheme] for file in files if scheme in file]
        if all(s["predicted"] and s["measured"] for s in sides):
            show(scheme, sides)


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # piped to head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
