"""Measures the memory of every rank of a recurrent layer cut along time, beside the formula of docs/time-ranks.md.

    python3 bench/scripts/rank_memory.py build/cpu/tests/rank_memory bench/results/rank_memory.json [T]

T = 1 000 000 steps, one sample, H = 20, f32, by BP and by the chunked scan, on 1, 2, 4 and 8 ranks: threads (the allocator's count
of each) and processes of MPI (resident bytes of each as well; left out where mpirun is missing). Exits 1 where a rank holds more
than the formula, a fiftieth of it and 1 MiB, or where the largest rank does not hold less than on half as many ranks.
"""
import json
import os
import shutil
import subprocess
import sys

import results_file
from program import executable, plain_parser

SLACK = 1 << 20  # weights, partial sums of their gradients, and what MPI and the threads hold
SHARE = 50  # and a fiftieth of the formula: with one rank, the carries of the chunks
RESIDENT = 64 << 20  # the same for a process: MPI's buffers, libraries, pages that were freed


def run(program, transport, ranks, steps, method):
    command = [program, transport, str(ranks), str(steps), "1", "20", method]
    if transport == "mpi":
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        command = ["mpirun", *root, "--oversubscribe", "-n", str(ranks), *command]
    environment = {**os.environ, "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    if done.returncode != 0:
        sys.exit("rank_memory: %s: exit %d: %s" % (" ".join(command), done.returncode, done.stdout + done.stderr))
    return json.loads(done.stdout)


def check(rows):
    """the findings, as lines"""
    least = {}
    for row in rows:
        name = "%s, %s, %d ranks" % (row["transport"], row["method"], row["ranks"])
        for rank in row["by_rank"]:
            if rank["peak"] > rank["formula"] + rank["formula"] // SHARE + SLACK:
                yield "%s: rank %d held %d bytes, the formula says %d" % (name, rank["rank"], rank["peak"], rank["formula"])
            if row["transport"] == "mpi" and rank["resident"] > rank["formula"] + RESIDENT:
                yield "%s: rank %d grew by %d bytes, the formula says %d" % (name, rank["rank"], rank["resident"], rank["formula"])
        most = max(rank["peak"] for rank in row["by_rank"])
        before = least.get((row["transport"], row["method"]))
        if before is not None and most >= before:
            yield "%s: %d bytes, not less than %d on fewer ranks" % (name, most, before)
        least[row["transport"], row["method"]] = most


def main():
    parser = plain_parser(__doc__)
    parser.add_argument("program", type=executable, help="build/cpu/tests/rank_memory")
    parser.add_argument("out", help="where the JSON document goes")
    parser.add_argument("steps", type=int, nargs="?", default=1000000, help="T [1000000]")
    o = parser.parse_args()
    transports = ["threads"] + (["mpi"] if shutil.which("mpirun") else [])
    rows = []
    for transport in transports:
        for method in ("bp", "chunked"):
            for ranks in (1, 2, 4, 8):
                by_rank = run(o.program, transport, ranks, o.steps, method)
                rows.append({"transport": transport, "method": method, "ranks": ranks, "by_rank": by_rank})
                print("%-8s %-8s %d ranks: formula %11d, allocator %11d, resident %11d bytes" % (
                    transport, method, ranks, *(max(rank[key] for rank in by_rank) for key in ("formula", "peak", "resident"))))
    found = list(check(rows))
    described = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True)
    document = {"bench": "rank_memory", "commit": described.stdout.strip(), "seq_len": o.steps, "batch": 1, "hidden": 20}
    results_file.write(o.out, {**document, "dtype": "f32", "rows": rows})
    for line in found:
        print("rank_memory: " + line, file=sys.stderr)
    return 1 if found else 0


sys.exit(main())
