#!/usr/bin/env python3
"""What pruning saves in the scan of a convolutional network: its critical path beside BP's, as a table and as a picture.

    python3 examples/python/pruned.py [--network vgg11] [--levels 2] [--out flops.svg]

The picture is drawn by gnuplot, which the project needs anyway; without it there is the table alone.
"""
import argparse
import shutil
import subprocess

import bppsa


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="lenet5")
    parser.add_argument("--levels", type=int, default=2)
    parser.add_argument("--out", default="flops.svg")
    options = parser.parse_args()
    rows = []
    print("pruned  critical path  times BP's")
    for percent in (0, 50, 80, 90, 95, 97, 99):
        totals = bppsa.flops(options.network, prune=percent / 100, up_levels=options.levels)["totals"]
        rows.append((percent, totals["critical_flops"], totals["critical_flops"] / totals["bp_critical_flops"]))
        print(f"{percent:5d} %  {rows[-1][1]:13d}  {rows[-1][2]:10.3f}")
    if shutil.which("gnuplot") is None:
        return
    data = "\n".join(f"{percent} {ratio}" for percent, _, ratio in rows)
    script = f"""set terminal svg size 600,400
set output '{options.out}'
set xlabel 'weights pruned, %'
set ylabel 'critical path of the scan / of BP'
set logscale y
unset key
plot '-' with linespoints pointtype 7
{data}
e
"""
    subprocess.run(["gnuplot"], input=script, text=True, check=True)
    print(f"{options.out} written")


if __name__ == "__main__":
    main()
