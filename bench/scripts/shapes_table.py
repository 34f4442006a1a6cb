#!/usr/bin/env python3
"""Tables of docs pages from a record of trained_shapes.py, in Markdown.

    bench/scripts/shapes_table.py RECORD [--update PAGE ...] [--check PAGE ...]

A row is a shape, with our time of a forward and a backward pass, the other libraries' medians over it, and what bounds it: the
share of the core's peak, that of what a BLAS library's product had at the same moments, and where B is at most 8 that of the rate
at which W_hh can be read. --update writes the tables into pages, between the lines `<!-- shapes_table KIND -->` and `<!-- end -->`.
KIND is all, f32 or f64, or slower: the rows in which another library is faster. --check exits 1 where a page's table is another
one. Without both, all rows are printed.
"""
import argparse
import json
import re
import sys

BLOCK = re.compile(r"(<!-- shapes_table (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
HEADINGS = ["layers", "T", "B", "H", "I", "type", "time, ms", "PyTorch", "JAX", "of the peak", "of BLAS", "of the reading rate"]


KINDS = {"all": lambda row: True,
         "f32": lambda row: row["dtype"] == "f32",
         "f64": lambda row: row["dtype"] == "f64",
         "slower": lambda row: min(row["over_torch"], row["over_jax"]) < 1}


def cells_of(row):
    name = row["cell"].upper() if row["layers"] == 1 else f"{row['layers']} × {row['cell'].upper()}"
    read = f"{100 * row['of_bandwidth']:.0f} %" if "of_bandwidth" in row else ""
    return [name, row["seq_len"], row["batch"], row["hidden"], row["input"], row["dtype"], f"{1e3 * row['bppsa_s']:.3g}",
            f"{row['over_torch']:.2f}", f"{row['over_jax']:.2f}", f"{100 * row['of_peak']:.0f} %", f"{100 * row['of_blas']:.0f} %",
            read]


def table_of(rows, kind):
    if kind not in KINDS:
        raise ValueError(f"a table {kind}, expected one of {', '.join(KINDS)}")
    chosen = [row for row in rows if KINDS[kind](row)]
    if not chosen:
        return "No shape of the record.\n"
    lines = [HEADINGS, ["---"] * len(HEADINGS)] + [cells_of(row) for row in chosen]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def fill(page, rows):
    """The text of a page, and the text with its tables."""
    with open(page, encoding="utf-8") as file:
        text = file.read()
    if not BLOCK.search(text):
        raise ValueError(f"{page}: no table, expected the lines <!-- shapes_table all --> and <!-- end -->")
    return text, BLOCK.sub(lambda found: found[1] + table_of(rows, found[2]) + found[4], text)


def rows_of(path):
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    if not isinstance(document, dict) or document.get("bench") != "trained_shapes" or not document.get("rows"):
        raise ValueError(f"{path}: no rows, expected a document of trained_shapes.py")
    return document["rows"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", metavar="RECORD", help="a document of trained_shapes.py")
    parser.add_argument("--update", metavar="PAGE", nargs="+", default=[])
    parser.add_argument("--check", metavar="PAGE", nargs="+", default=[])
    options = parser.parse_args()
    try:
        rows = rows_of(options.record)
        pages = {page: fill(page, rows) for page in options.update + options.check}
        for page in options.update:
            with open(page, "w", encoding="utf-8") as file:
                file.write(pages[page][1])
        plain = table_of(rows, "all")
    except KeyError as error:
        parser.error(f"{options.record}: a row without {error}, expected a document of trained_shapes.py")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    wrong = [page for page in options.check if pages[page][0] != pages[page][1]]
    for page in wrong:
        print(f"shapes_table.py: a table of {page} is not that of {options.record}: --update writes it")
    if not pages:
        print(plain, end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
