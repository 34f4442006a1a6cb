#!/usr/bin/env python3
"""Counts what pruning does to BP and to its scans in the networks that people prune, and draws it.

    bench/scripts/pruned_scans.py count build/cpu/bppsa bench/results/pruned_scans.json
    bench/scripts/pruned_scans.py draw bench/results/pruned_scans.json docs/pruned-scans.svg

Networks at 224 x 224 with 0, 80, 90, 95 and 98 % of their weights pruned, each layer by the same share, by magnitude, with the
initialisation of PyTorch. A row has the FLOPs of BP over the patterns that are left, of BP with all weights, of the scan with 1
and with 2 up-levels and of its critical path, for the gradients between layers of one sample; the standard errors of what was
estimated, and what the count itself took. Exits 1 if a count of ResNet-50 took more than 60
processor seconds or 2 GiB. gnuplot draws.
"""
import json
import os
import subprocess
import sys
import tempfile

import results_file
from program import executable, plain_parser, where_and_when

NETWORKS, PRUNED, LEVELS = ("resnet50", "mobilenetv2", "vgg16"), (0, 0.8, 0.9, 0.95, 0.98), (1, 2)
SECONDS, BYTES = 60, 2 << 30


def counted(program, network, pruned, levels):
    """the document of `bppsa flops`, the processor seconds and the peak memory of its process"""
    words = [program, "flops", network, "--up-levels", str(levels), "--json", *(["--prune", str(pruned)] if pruned else [])]
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(words, stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            sys.exit("pruned_scans.py: %s: exit code %d" % (" ".join(words), child.returncode))
        out.seek(0)
        return json.load(out), usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def row_of(program, network, pruned, levels):
    """what is recorded of one count"""
    found, seconds, peak = counted(program, network, pruned, levels)
    totals = found["totals"]
    return {"network": network, "pruned": pruned, "up_levels": levels, "bp_flops": totals["bp_flops"],
            "unpruned_bp_flops": found["unpruned_baseline_flops"], "weight_flops": found["weight_flops"],
            "scan_flops": totals["mm_flops"] + totals["mv_flops"], "critical_flops": totals["critical_flops"],
            "critical_flops_of_bp": found["critical_flops_of_bp"],
            "critical_flops_of_unpruned_bp": found["critical_flops_of_unpruned_bp"], "estimated": found["estimated"],
            "flops_standard_error": found["flops_standard_error"],
            "critical_flops_standard_error": found["critical_flops_standard_error"],
            "held_bytes": totals["workspace_bytes"], "processor_s": round(seconds, 2), "peak_bytes": peak}


def count(o):
    rows = []
    for network in NETWORKS:
        for pruned in PRUNED:
            for levels in LEVELS:
                rows.append(row_of(o.program, network, pruned, levels))
                print(json.dumps(rows[-1]), flush=True)
    results_file.write(o.out, {**where_and_when(), "rows": rows})
    asked = [row for row in rows if row["network"] == "resnet50"]
    return 0 if all(row["processor_s"] <= SECONDS and row["peak_bytes"] <= BYTES for row in asked) else 1


def draw(o):
    with open(o.results, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    lines = [("BP, all weights", 1, "unpruned_bp_flops", "#888888"), ("BP, the weights that are left", 1, "bp_flops", "#4d9221"),
             ("scan, 1 up-level", 1, "scan_flops", "#92c5de"), ("its critical path", 1, "critical_flops", "#2166ac"),
             ("scan, 2 up-levels", 2, "scan_flops", "#fdb863"), ("its critical path", 2, "critical_flops", "#b35806")]
    script = ["set terminal svg size 980,430 font 'DejaVu Sans,11' background '#ffffff'", "set output '%s'" % o.out,
              "set multiplot layout 1,%d margins 0.08,0.98,0.45,0.92 spacing 0.05" % len({row["network"] for row in rows}),
              "set logscale y", "set format y '10^{%L}'",
              "set grid ytics lc rgb '#e6e6e6'", "set xlabel '% of the weights pruned'", "unset key",
              "set xtics (%s)" % ", ".join("'%g' %d" % (100 * p, at) for at, p in enumerate(PRUNED)), "set xrange [-0.3:4.3]"]
    most = max(row["scan_flops"] for row in rows)
    least = min(row["bp_flops"] for row in rows)
    script.append("set yrange [%g:%g]" % (least / 2, most * 2))
    drawn = [network for network in NETWORKS if any(row["network"] == network for row in rows)]
    for at, network in enumerate(drawn):
        script.append("set title '%s'" % network)
        script.append("set ylabel '%s'" % ("FLOPs a sample" if at == 0 else ""))
        if at == len(drawn) // 2:
            script.append("set key at screen 0.5,0.33 center top vertical samplen 2")
        plots, data = [], []
        for title, levels, member, colour in lines:
            plots.append("'-' with linespoints lw 2 pt 7 ps 0.5 lc rgb '%s' title '%s'" % (colour, title))
            for row in rows:
                if (row["network"], row["up_levels"]) == (network, levels):
                    data.append("%d %g" % (PRUNED.index(row["pruned"]), row[member]))
            data.append("e")
        script.append("plot " + ", ".join(plots))
        script += data + ["unset key"]
    subprocess.run(["gnuplot"], input="\n".join(script) + "\nunset multiplot\n", text=True, check=True)
    return 0


def main():
    parser = plain_parser(__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    counts = verbs.add_parser("count", help="counts, and writes the results")
    counts.add_argument("program", type=executable, help="the bppsa program")
    counts.add_argument("out", help="where the JSON document goes")
    draws = verbs.add_parser("draw", help="draws the results")
    draws.add_argument("results", help="what count wrote")
    draws.add_argument("out", help="an .svg file")
    o = parser.parse_args()
    return count(o) if o.verb == "count" else draw(o)


if __name__ == "__main__":
    sys.exit(main())
