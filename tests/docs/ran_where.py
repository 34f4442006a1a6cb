#!/usr/bin/env python3
"""ran_where.py ROOT: does the table "What ran where" of docs/gpu.md say what the results say, and README what the table says?

A row of the table has a feature, the test that every build runs on an emulated GPU, what ran on a real GPU, and the evidence: a
file of bench/results and the words by which its entry is found. The file must have the row's hardware and date, the entry the row's
commit. "tested" needs an entry that passed, "timed" an entry with times. README has one row on GPUs, made of the table, and speaks
of emulation nowhere else. At the end each check is tried on pages with one error.
"""
import functools
import json
import os
import re
import sys

EMULATED = "emulated only"
TABLE = re.compile("(?<=<!-- ran_where -->\n).*?(?=<!-- end -->)", re.DOTALL)


def read(root, name):
    with open(os.path.join(root, name), encoding="utf-8") as file:
        return file.read()


@functools.lru_cache
def read_results(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def rows_of(table):
    """the table's rows: feature, test, what ran, hardware, date, commit, evidence"""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def readme_row(rows):
    """the row of README: the features by what ran"""
    groups = {}
    for feature, _, ran, hardware, *_ in rows:
        groups.setdefault("%s on an %s" % (ran, hardware) if hardware else ran, []).append(feature)
    text = "; ".join("%s: %s" % (ran, ", ".join(features)) for ran, features in groups.items())
    return "| GPUs ([what ran where](docs/gpu.md#what-ran-where)) | %s | |\n" % text


def wrong_evidence(root, ran, hardware, date, commit, evidence):
    """what the evidence says otherwise, or None"""
    if ran == EMULATED:
        return "nothing" if hardware or date or commit or evidence else None
    link = re.match(r"\[`\S+`\]\(\.\./(bench/results/\S+)\)", evidence)
    if link is None or not os.path.isfile(os.path.join(root, link[1])):
        return "no such file of results"
    document = read_results(os.path.join(root, link[1]))
    if document["date"][:10] != date or not re.search(r"\b%s\b" % hardware, str(document["device"])):
        return "%s on %s" % (document["date"], document["device"])
    words = set(re.findall("`([^`]+)`", evidence[link.end():]))
    entries = document.get("rows") or document.get("runs") or document["tests"]
    found = [entry for entry in entries if words <= {document["bench"], *map(str, entry.values())}
             and entry.get("commit", document.get("commit", "")) == commit]
    results = {entry.get("result") for entry in found}
    fits = {"timed": results == {None}, "tested": results == {"passed"}}
    if not words or not found or not fits.get(ran, not results & {None, "passed"}):
        return "%d such entries of this commit, results %s" % (len(found), results)
    return None


def wrong_rows(root, rows):
    names = "".join(read(root, "tests/" + name) for name in ("simt/kernels.txt", "simt/CMakeLists.txt", "CMakeLists.txt"))
    for feature, test, *claim in rows:
        if not re.search(r"\b%s\b" % test.strip("`"), names):
            yield "docs/gpu.md: %s: no test %s" % (feature, test)
        wrong = wrong_evidence(root, *claim)
        if wrong:
            yield "docs/gpu.md: %s: expected what the results say: %s" % (feature, wrong)


def wrong_readme(rows, readme):
    row = readme_row(rows)
    if row not in readme:
        yield "README.md: expected the row\n" + row
    if "emulat" in readme.replace(row, ""):
        yield "README.md: expected emulation in the row on GPUs alone"


def main():
    root = sys.argv[1]
    table, readme = TABLE.search(read(root, "docs/gpu.md"))[0], read(root, "README.md")
    rows = rows_of(table)
    found = [*wrong_rows(root, rows), *wrong_readme(rows, readme)]
    print("\n".join(found), end="\n" if found else "")
    missed, tried = [], 0
    for old, new in (("2026-11-26", "2026-11-27"), ("de873f372ae6", "de873f372ae7"), ("h200/kernels", "h200/none"),
                     ("`lstm`", "`mgu`"), ("`rnn`", "`gru`"), ("H200", "H20"), ("timed", "tested"), ("| tested |", "| timed |"),
                     ("`simt_", "`simt_no_"), (EMULATED, "tested"), ("failing 1 test of 8", "tested")):
        for place in re.finditer(re.escape(old), table):
            tried += 1
            changed = rows_of(table[:place.start()] + new + table[place.end():])
            missed += [] if any(wrong_rows(root, changed)) else [(old, new)]
    for changed in (readme.replace("timed on an", "timed on several"), readme.replace("`bppsa.torch.scan`", "emulated")):
        tried += 1
        missed += [] if any(wrong_readme(rows, changed)) else ["README"]
    print("ran_where: %d rows, %d errors, of which %s are not found" % (len(rows), tried, missed))
    return 1 if found or missed or tried < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
