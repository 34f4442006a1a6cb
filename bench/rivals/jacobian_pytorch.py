#!/usr/bin/env python3
"""PyTorch's autograd, one column at a time, beside `bppsa bench jacobian`: the first convolution, ReLU and pool of VGG-11.

    bench/rivals/jacobian_pytorch.py --program build/cpu/bppsa [--out F.json] [--quick] [--threads N] [--columns N]

A column of the dense transposed Jacobian is one backward pass from a unit vector. All columns take about as long, so --columns of
them are timed, spread evenly over the matrix, half before the program runs and half after it. The row's time is the median column
times the number of columns ("measured_columns" says how many were timed). As a check, the sum of the columns is compared with one
backward pass from the vector that is 1 at these outputs; a relative difference of 1e-5 fails. Prints a table with the speedup of
the program's values on a planned pattern and of its full CSR; --out writes the program's document with rows of method
"pytorch-columns" added. Needs PyTorch and exits 77 without it.
"""
import json
import sys
import time

import beside
from noise import mark, timing

try:
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"jacobian_pytorch: skipped, {missing} (package python3-torch)")
    sys.exit(77)


def parse():
    p = beside.parser(__doc__)
    p.add_argument("--threads", type=int, default=0, help="of both [all]")
    p.add_argument("--columns", type=int, default=400, help="columns to time [400]")
    return p.parse_args()


def cases():
    torch.manual_seed(0)
    weight = torch.randn(64, 3, 3, 3)
    return {"conv1": (torch.randn(1, 3, 32, 32), lambda x: F.conv2d(x, weight, padding=1)),
            "relu1": (torch.randn(1, 64, 32, 32), F.relu),
            "pool1": (torch.randn(1, 64, 32, 32), lambda x: F.max_pool2d(x, 2))}


def measure(x, f, columns):
    """Returns the seconds of single columns, and whether they add up to the backward pass from ones at these outputs."""
    x = x.requires_grad_()
    y = f(x)
    count = y.numel()
    chosen = [i * count // columns for i in range(columns)]
    seed, total, mask, times = torch.zeros_like(y), torch.zeros_like(x), torch.zeros_like(y), []
    for i in chosen:
        start = time.perf_counter()
        seed.view(-1)[i] = 1
        (column,) = torch.autograd.grad(y, x, seed, retain_graph=True)
        seed.view(-1)[i] = 0
        times.append(time.perf_counter() - start)
        total += column
        mask.view(-1)[i] = 1
    (expected,) = torch.autograd.grad(y, x, mask)
    return times, count, ((total - expected).norm() / expected.norm()).item()


def main():
    o = parse()
    if o.threads:
        torch.set_num_threads(o.threads)
    half = max(1, o.columns // 2)
    before = {name: measure(x, f, half) for name, (x, f) in cases().items()}
    document = json.loads(beside.run(o, "bench", "jacobian", "--json", *(["--quick"] if o.quick else []),
                                     *(["--threads", o.threads] if o.threads else [])))
    own = {(row["operator"], row["phase"]): row for row in document["rows"]}
    failed = False
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, autograd one column at a time\n")
    print("  operator   columns   seconds     us a column   over values   over csr   difference")
    for name, (x, f) in cases().items():
        times, count, difference = measure(x, f, half)
        times += before[name][0]
        difference = max(difference, before[name][2])
        row = {"operator": name, "method": "pytorch-columns", "phase": "dense", "threads": torch.get_num_threads(), "dtype": "f32",
               "rows": x.numel(), "cols": count, **timing(times, count), "repeats": 1, "measured_columns": len(times),
               "residual": difference, "flops": 0, "bytes": 4 * x.numel() * count}
        document["rows"].append(row)
        median = row["median_s"]
        wrong = not difference < 1e-5
        failed = failed or wrong
        over = {phase: mark(row) or mark(own[name, phase]) or format(median / own[name, phase]["median_s"], ".3g")
                for phase in ("values", "csr")}  # nothing follows from a noisy row
        print(f"  {name:10}{count:8}{mark(row) + format(median, '.2f'):>10}{1e6 * median / count:16.1f}{over['values']:>14}"
              f"{over['csr']:>11}{difference:13.1e}{'  WRONG' if wrong else ''}")
    if o.out:
        beside.write(o.out, document)
    sys.exit(1 if failed else 0)


main()
