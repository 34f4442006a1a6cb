#!/usr/bin/env python3
"""Draws docs/workers.svg: how many times faster than BP the better scan is, against the number of workers.

    bench/scripts/workers.py CROSSOVER.json MEASURED.json ... --out docs/workers.svg

Lines are the model of `bppsa bench crossover`, time(p) = c max(critical, total / p), from the rows of CROSSOVER.json, of one
thread. Points are measured: one thread in CROSSOVER.json, more threads in documents of `bppsa bench rnn`. What rests on a noisy row
(its median is more than 1.25 times its minimum) is left out and named. gnuplot draws.
"""
import argparse
import json
import subprocess
import sys

SHAPES = [(1000, 16), (10000, 16), (10000, 1)]  # (T, B), H = 20
WORKERS = [10 ** (k / 10) for k in range(51)]
SPREAD = 1.25  # as in core/measure/rounds.h


def rows_of(document, seq_len, batch):
    """The timed backward rows of one network, by method. Of a network that was measured twice, the last rows count."""
    return {
        row["method"]: row
        for row in document["rows"]
        if row["phase"] == "backward" and row["init"] == "default" and row["median_s"] is not None
        and (row["seq_len"], row["batch"], row["hidden"]) == (seq_len, batch, 20)
    }


def scans_of(rows):
    """The parallel scans among the rows: each runs the algorithm that it is named after, in fewer steps than the recurrence has."""
    return [name for name, row in rows.items() if row.get("algorithm") == name and row["critical_steps"] < row["seq_len"] - 1]


def is_noisy(path, rows):
    """Whether one of the compared rows is noisy. Names the noisy ones on stderr."""
    compared = [row for name, row in rows.items() if name in ("bp", *scans_of(rows))]
    noisy = [row for row in compared if row.get("noisy", row["median_s"] > SPREAD * row["min_s"])]
    for row in noisy:
        print(f"workers.py: {path}: T {row['seq_len']}, B {row['batch']} is left out: {row['method']} is noisy", file=sys.stderr)
    return bool(noisy)


def critical_flops(row):
    """FLOP of the longest chain of dependent products of a sample; for BP these are all mat-vecs."""
    return row.get("critical_flops", 2 * row["seq_len"] * row["hidden"] ** 2)


def modelled(row, workers):
    return row["median_s"] / row["flops"] * max(critical_flops(row), row["flops"] / workers)


def ratio(rows, seconds):
    """BP's seconds divided by those of the faster scan."""
    return seconds(rows["bp"]) / min(seconds(rows[name]) for name in scans_of(rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("crossover")
    parser.add_argument("measured", nargs="*", help="documents of bench rnn")
    parser.add_argument("--out", required=True, help="an .svg or .png file")
    arguments = parser.parse_args()
    if not arguments.out.endswith((".svg", ".png")):
        sys.exit(f"workers.py: --out: {arguments.out}, expected a name that ends in .svg or .png")
    crossover = json.load(open(arguments.crossover))
    lines, points, titles = [], [], []
    for seq_len, batch in SHAPES:
        rows = rows_of(crossover, seq_len, batch)
        if "bp" not in rows or not scans_of(rows):
            sys.exit(f"workers.py: {arguments.crossover}: no rows of T {seq_len}, B {batch}, H 20, expected bp and the scans")
        if is_noisy(arguments.crossover, rows):
            continue
        titles.append(f"T = {seq_len}, B = {batch}")
        lines.append([(p, ratio(rows, lambda row: modelled(row, p))) for p in WORKERS])
        points.append((crossover["device"]["threads"], ratio(rows, lambda row: row["median_s"])))
    for path in arguments.measured:
        document = json.load(open(path))
        for seq_len, batch in SHAPES:
            rows = rows_of(document, seq_len, batch)
            if "bp" in rows and scans_of(rows) and not is_noisy(path, rows):
                points.append((document["device"]["threads"], ratio(rows, lambda row: row["median_s"])))
    if not lines:
        sys.exit(f"workers.py: {arguments.crossover}: every row is noisy, expected a calm one")
    terminal = "pngcairo" if arguments.out.endswith(".png") else "svg"
    script = [
        f"set terminal {terminal} size 760,380 font 'DejaVu Sans,12' background '#ffffff'",
        f"set output '{arguments.out}'",
        "set logscale xy; set grid; set key bottom right; set xrange [0.8:1e5]",
        "set format x '10^{%L}'; set format y '%g'",
        "set xlabel 'workers'; set ylabel 'times as fast as BP, backward pass'",
        "set arrow from 0.8,1 to 1e5,1 nohead dashtype 2 lc rgb '#555555'",
        "set label 'the scan wins' at 1,1.35 tc rgb '#555555'; set label 'BP wins' at 1,0.72 tc rgb '#555555'",
        f"set label 'you are here: measured' at 1,{min(value for _, value in points) / 1.8} tc rgb '#c0392b'",
    ]
    plots = [f"'-' with lines lw 2 title 'modelled, {title}'" for title in titles]
    threads = " and ".join(str(count) for count in sorted({workers for workers, _ in points}))
    plots.append(f"'-' with points pt 7 ps 1.1 lc rgb '#c0392b' title 'measured, threads: {threads}'")
    script.append("plot " + ", ".join(plots))
    for data in lines + [points]:
        script += [f"{x:g} {y:g}" for x, y in data] + ["e"]
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True)


if __name__ == "__main__":
    main()
