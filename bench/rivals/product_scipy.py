#!/usr/bin/env python3
"""SciPy's and PyTorch's sparse products beside `bppsa bench product`: the same shapes, patterns and densities, in one run.

    bench/rivals/product_scipy.py --program build/cpu/bppsa [--out F.json] [--quick] [--repeats N]

`bppsa jacobian conv2d` writes the factors of the cases A, B and B64 from random weights, so that patterns and sizes are the
program's. A mask leaves 3 % of A's weights, and half of the columns of B's left factor are zeroed, as a ReLU does. SciPy multiplies
on one thread, PyTorch (torch.sparse.mm) on all of its threads; both find the pattern in every call. Results are compared with a
float64 product of SciPy's: a relative difference of 1e-5 or more fails. Prints a table of milliseconds and of the program's
speedup; --out writes the program's document with rows of method "scipy" and "pytorch" (phase "full") added. Needs SciPy and exits
77 without it; PyTorch is left out where it is not installed.
"""
import json
import sys
import tempfile
import time

from beside import parser, run, write
from noise import mark, timing

try:
    import numpy as np
    import scipy.sparse as sparse
    import scipy.sparse.linalg
except ImportError as missing:
    print(f"product_scipy: skipped, {missing} (package python3-scipy)")
    sys.exit(77)
try:
    import torch
except ImportError:
    torch = None

CASES = {"A": ((128, 256, 256), 8, 0.03), "B": ((16, 16, 16), 16, 1), "B64": ((64, 64, 64), 8, 1)}


def parse():
    p = parser(__doc__)
    p.add_argument("--repeats", type=int, default=5, help="of every row [5]")
    return p.parse_args()


def factor(o, folder, rng, channels, size, kept):
    weights = rng.uniform(-1, 1, (channels[1], channels[0], 3, 3)).astype(np.float32)
    np.save(f"{folder}/w.npy", weights)
    np.save(f"{folder}/m.npy", (rng.uniform(size=weights.shape) < kept).astype(np.uint8))
    run(o, "jacobian", "conv2d", "--in-shape", f"{channels[0]},{size},{size}", "--padding", 1, "--weights", f"{folder}/w.npy",
        *(("--mask", f"{folder}/m.npy") if kept < 1 else ()), "--out", f"{folder}/J.npz")
    return sparse.load_npz(f"{folder}/J.npz")


def clock(action, repeats):
    result, times = action(), []
    for _ in range(repeats):
        start = time.perf_counter()
        result = action()
        times.append(time.perf_counter() - start)
    return result, times


def main():
    o = parse()
    document = json.loads(run(o, "bench", "product", "--json", *(["--quick"] if o.quick else [])))
    own = {row["case"]: row for row in document["rows"] if row["method"] == "auto"}
    rng, failed = np.random.default_rng(0), False
    print("  case  method        median       min       max   program      times   difference")
    with tempfile.TemporaryDirectory() as folder:
        for name, (channels, size, kept) in CASES.items():
            a = factor(o, folder, rng, channels[:2], size, kept)
            b = factor(o, folder, rng, channels[1:], size, kept)
            if kept == 1:
                a.data *= (rng.uniform(size=a.shape[1]) < 0.5)[a.indices]
            exact = a.astype(np.float64) @ b.astype(np.float64)
            actions = {"scipy": lambda: a @ b}
            if torch is not None:
                ta, tb = (torch.sparse_coo_tensor(np.stack([m.tocoo().row, m.tocoo().col]), m.data, m.shape).coalesce()
                          for m in (a, b))
                actions["pytorch"] = lambda: torch.sparse.mm(ta, tb)
            for method, action in actions.items():
                result, times = clock(action, o.repeats)
                if method == "pytorch":
                    result = result.coalesce()
                    result = sparse.csr_matrix((result.values().numpy(), result.indices().numpy()), shape=a.shape[:1] + b.shape[1:])
                difference = sparse.linalg.norm(result - exact) / sparse.linalg.norm(exact)
                failed = failed or not difference < 1e-5
                row = {"case": name, "method": method, "phase": "full", "dtype": "f32", "nnz": int(exact.nnz),
                       "threads": 1 if method == "scipy" else torch.get_num_threads(), **timing(times),
                       "residual": float(difference), "flops": own[name]["flops"], "bytes": own[name]["bytes"]}
                document["rows"].append(row)
                median, program = row["median_s"], own[name]["median_s"]
                noisy = mark(row) or mark(own[name])  # nothing follows from a noisy row
                print(f"  {name:5} {method:9}{mark(row) + format(1e3 * median, '.2f'):>11}"
                      f"{1e3 * min(times):10.2f}{1e3 * max(times):10.2f}{mark(own[name]) + format(1e3 * program, '.2f'):>10}"
                      f"{noisy or format(median / program, '.1f'):>11}{difference:13.1e}")
    if o.out:
        write(o.out, document)
    sys.exit(1 if failed else 0)


main()
