#!/usr/bin/env python3
"""Random layers of bppsa.torch beside the plain autograd of torch.nn in float64: three cells, one to three layers, directions,
biases, states, six scans.

    PYTHONPATH=build/cpu/python build/rivals/bin/python bench/scripts/torch_random.py 300 torch_random.json

The cases are those of tests/python/torch_reference.py, from the seed FIRST [0] on. Of each, values, gradients, gradients of a
penalty on gradients, derivatives along a direction and Hessian-vector products in two ways are compared; the document has the
largest difference of each, relative where an array has numbers above 1. At last twice 5000 calls of all kinds of one layer are
made: the document has the blocks of the library and the bytes of the process that the second half keeps. Exit code 1: a difference
of 1e-12 or more, or a block that is kept; 77: PyTorch 2.5 is missing.
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path += [os.path.join(ROOT, "bench", "scripts"), os.path.join(ROOT, "tests", "python")]

import results_file  # noqa: E402
from program import campaign_options, where_and_when  # noqa: E402

NEAR = 1e-12
CALLS = 5000


def main():
    options = campaign_options(__doc__)
    try:
        import torch

        import bppsa.torch
        from bppsa._tensors import MODERN
        from torch_reference import Calls, Random, compare
    except ImportError as missing:
        print(f"torch_random.py: {missing}, expected PyTorch and PYTHONPATH=build/cpu/python")
        return 77
    if not MODERN:
        print(f"torch_random.py: PyTorch {torch.__version__}, expected 2.5 or newer")
        return 77
    torch.set_num_threads(1)
    worst, failed = {}, []
    for seed in range(options.first, options.first + options.count):
        case = Random(seed)
        found = compare(case)
        worst = {name: max(worst.get(name, 0.0), difference) for name, difference in found.items()}
        if not max(found.values()) < NEAR:
            failed.append(seed)
            print(f"seed {seed}: {case}: {found}", flush=True)
    blocks, grown = Calls().kept(CALLS)
    results_file.write(options.out, {"bench": "torch_random", **where_and_when(), "torch": torch.__version__,
                                     "bppsa": bppsa.__version__, "cases": options.count, "first": options.first,
                                     "failed": failed, "worst": worst, "calls": 2 * CALLS, "kept_blocks": blocks,
                                     "kept_bytes": grown})
    print(f"{options.count} layers, {len(failed)} wrong; the largest differences: "
          f"{', '.join(f'{name} {difference:.1e}' for name, difference in worst.items())}")
    print(f"{CALLS} calls behind {CALLS} others keep {blocks} blocks of the library; the process grows by {grown} bytes")
    return 1 if failed or blocks else 0


if __name__ == "__main__":
    sys.exit(main())
