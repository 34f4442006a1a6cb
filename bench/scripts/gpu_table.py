#!/usr/bin/env python3
"""The table of what recurrent layers take on a GPU, in Markdown, from the runs of bench/gpu.sh.

    bench/scripts/gpu_table.py RESULT ... [--update PAGE ...] [--check PAGE ...]

RESULT is a results.tar or points.jsonl of bench/gpu.sh, or a document of `bppsa bench rnn`, `gru` or `lstm`. A row is a shape with
its weights, of the latest run that measured it: the forward pass, the backward pass that `auto` takes beside what the cost model
predicts for it, both together, the fastest rival's step, and how many times as long that is; medians, behind them minima. ~: noisy,
so that there is no ratio; nor is there one where the time limit kept a rival away. A dagger marks rows whose program does not have
the last change of a kernel, by git. --update writes the table into pages, between the lines `<!-- gpu_table -->` and
`<!-- end -->`, of chosen lengths, with fewer columns, after `<!-- gpu_table T 1000 10000 -->`; --check exits 1 where a page's table
is another one, daggers aside.
"""
import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
KINDS = ["rnn", "gru", "lstm"]
OLD = "†"
HEADINGS = ["network", "T", "B", "H", "I", "weights", "forward", "backward", "predicted", "step", "fastest rival", "its step",
            "times", "error", "path", "memory", "commit", "driver", "date"]
SHORT = ["network", "T", "B", "H", "weights", "step", "fastest rival", "its step", "times", "commit", "date"]  # of chosen lengths
BLOCK = re.compile(r"(<!-- gpu_table((?: T(?: \d+)+)?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


# ---- what was measured ----


def read_lines(text, name):
    """The documents of a text: one, or one a line."""
    try:
        return [json.loads(text)]
    except ValueError:
        pass
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"{name}: line {number}: {error}, expected a JSON document") from None
    return found


def read_documents(path):
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            member = archive.extractfile("points.jsonl")
            return read_lines(io.TextIOWrapper(member, encoding="utf-8").read(), path)
    with open(path, encoding="utf-8") as file:
        return read_lines(file.read(), path)


def is_rival(row):
    return row.get("rival", False) or re.match("cudnn_|pytorch|jax_", row["method"]) is not None


def is_usable(row):
    return bool(row.get("median_s")) and row.get("ok", False) and not re.search("tf32|bf16", row["method"])


def is_of_another_form(document):
    """Whether caches were cold, or passes computed the gradient of the input too."""
    return any("cold_bytes" in row or "input_gradient" in row for row in document["rows"])


class Time:
    """A median and a minimum; noisy where one of the passes is."""

    def __init__(self, median, least, noisy):
        self.median, self.least, self.noisy = median, least, noisy

    def __str__(self):
        return f"{'~' if self.noisy else ''}{seconds(self.median)}" + (f" ({seconds(self.least)})" if self.least else "")


def seconds(s):
    scale, unit = (1e6, "µs") if s < 1e-3 else (1e3, "ms") if s < 1 else (1, "s")
    value = s * scale
    return f"{value:.{0 if value >= 99.5 else 1 if value >= 9.95 else 2}f} {unit}"


def time_of(row):
    return Time(row["median_s"], row.get("min_s"), row.get("noisy", False))


def step_of(row, rows):
    """The time of a backward pass and of the forward pass in front of it, added up."""
    forward = row.get("forward_s") or 0
    least = row.get("forward_min_s")
    own = [other for other in rows if other["phase"] == "forward" and other["method"] == row["method"] and is_usable(other)]
    if least is None and own:
        least = own[0].get("min_s")
    noisy = row.get("noisy", False) or any(other.get("noisy", False) for other in own)
    return Time(row["median_s"] + forward, row["min_s"] + least if row.get("min_s") and least else None, noisy)


def fastest(rows, key):
    return min(rows, key=key, default=None)


def cells_of(kind, document, rows):
    """The cells of a row of the table, by their headings; None where the project has no time."""
    usable = [row for row in rows if is_usable(row)]
    backward = [row for row in usable if row["phase"] == "backward"]
    step = lambda row: step_of(row, rows).median
    own = fastest([row for row in backward if row["method"] in ("auto", "auto_graph")], step)
    forward = fastest([row for row in usable if row["phase"] == "forward" and not is_rival(row)], lambda row: row["median_s"])
    rival = fastest([row for row in backward if is_rival(row)], step)
    if own is None or forward is None:
        return None
    mine, first = step_of(own, rows), rows[0]
    theirs = step_of(rival, rows) if rival else None
    away = any("--time-limit was over" in row.get("skipped", "") for row in rows)
    quiet = theirs is not None and not (mine.noisy or theirs.noisy or away)
    predicted = own.get("predicted_s")
    cells = {"network": kind.upper(), "weights": first["init"], "forward": time_of(forward), "backward": time_of(own), "step": mine,
             "predicted": seconds(predicted) if predicted else "",
             "fastest rival": (rival["method"] if rival else "") + (" (not all ran)" if away else ""),
             "its step": theirs or "", "times": f"{theirs.median / mine.median:.1f}" if quiet else "",
             "error": f"{own['residual']:.2g}", "path": forward.get("path", ""), "memory": f"{own['memory_bytes'] / 2**20:.1f} MiB",
             "commit": document.get("commit", "")[:12].replace("-dirty", ""), "driver": document.get("driver", ""),
             "date": document.get("date", "")[:10]}
    cells.update({key: first[name] for key, name in (("T", "seq_len"), ("B", "batch"), ("H", "hidden"), ("I", "input"))})
    return cells


def collect(paths):
    """The cells of the latest measurement of every shape, in order."""
    latest = {}
    for path in paths:
        for document in read_documents(path):
            if document.get("bench") not in KINDS or is_of_another_form(document):
                continue
            shapes = {}
            for row in document["rows"]:
                key = tuple(row.get(name) for name in ("seq_len", "batch", "hidden", "input", "layers", "dtype", "loss_on", "init"))
                shapes.setdefault(key, []).append(row)
            for key, rows in shapes.items():
                cells = cells_of(document["bench"], document, rows)
                key = (KINDS.index(document["bench"]),) + key
                if cells and document.get("date", "") >= latest.get(key, ("",))[0]:
                    latest[key] = (document.get("date", ""), cells)
    return [latest[key][1] for key in sorted(latest, key=lambda key: (key[0], key[3], key[4], key[2], key[1], str(key[5:])))]


# ---- how old it is ----


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)


def find_old(commits):
    """The commits that lack the last change of a kernel, or that this repository does not know."""
    last = git("log", "-1", "--format=%H", "--", ":(glob)**/*.cu", ":(glob)**/*.cuh", ":!tests").stdout.strip()
    return {commit for commit in commits if last and git("merge-base", "--is-ancestor", last, commit).returncode != 0}


# ---- the table ----


def write_table(cells, old, lengths):
    chosen = [row for row in cells if not lengths or row["T"] in lengths]
    headings = SHORT if lengths else HEADINGS
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for row in chosen:
        mark = OLD if row["commit"] in old else ""
        lines.append("| " + " | ".join(str(row[key]) + (mark if key == "commit" else "") for key in headings) + " |")
    if any(row["commit"] in old for row in chosen):
        lines += ["", f"{OLD} before the last change of a kernel."]
    return "\n".join(lines) + "\n"


def fill(page, cells, old):
    """The text of a page with its tables."""
    with open(page, encoding="utf-8") as file:
        text = file.read()
    if not BLOCK.search(text):
        raise ValueError(f"{page}: no table, expected the lines <!-- gpu_table --> and <!-- end -->")
    table = lambda found: found[1] + write_table(cells, old, [int(T) for T in found[2].split()[1:]]) + found[4]
    return text, BLOCK.sub(table, text)


def without_marks(text):
    return [line.replace(OLD, "") for line in text.splitlines() if line and not line.startswith(OLD)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", metavar="RESULT", nargs="+", help="results.tar, points.jsonl or a document")
    parser.add_argument("--update", metavar="PAGE", nargs="+", default=[])
    parser.add_argument("--check", metavar="PAGE", nargs="+", default=[])
    options = parser.parse_args()
    try:
        cells = collect(options.results)
        if not cells:
            raise ValueError(f"{options.results[0]}: no rows, expected documents of bppsa bench rnn, gru or lstm")
        old = find_old({row["commit"] for row in cells})
        pages = {page: fill(page, cells, old) for page in options.update + options.check}
        for page in options.update:
            with open(page, "w", encoding="utf-8") as file:
                file.write(pages[page][1])
    except (OSError, ValueError, KeyError, AttributeError) as error:
        parser.error(str(error))
    wrong = [page for page in options.check if without_marks(pages[page][0]) != without_marks(pages[page][1])]
    for page in wrong:
        print(f"gpu_table.py: the table of {page} is not that of the results: --update writes it")
    if not pages:
        print(write_table(cells, old, []), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
