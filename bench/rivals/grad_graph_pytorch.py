#!/usr/bin/env python3
"""Compares `bppsa grad` on random graphs with PyTorch, tensor by tensor.

    bench/rivals/grad_graph_pytorch.py build/cpu/bppsa [--graphs N] [--json FILE]

The graphs (300, or N) have residual blocks, branches, concatenations, products, slices, depthwise and grouped convolutions,
convolutions in a line, pools, functions, squeeze and excitation, softmax, layer norms, group norms and axes in other orders; half
of them stand in a file in random order. They alternate between f32 and f64, and a third has masks. PyTorch's
gradients (float64 autograd on the values as rounded to the dtype) are the reference. The gradients of every backward method of the
program, with all up-levels and with 1, 2 and 3, must have a normalised residual ||g - ref|| / (||ref|| eps sqrt(n)) below 30, where
n is the number of layers. A gradient of a few values may cancel almost completely, and then no arithmetic of that precision
meets the bound: a residual beyond it is counted apart if it is within 30 times the residual that float64 itself gets when every
weight and every input changes by one eps of the dtype, the largest of eight random changes. A gradient that is 0 but for rounding,
as that of a bias in front of a norm of its channel, must be as small beside the largest gradient of the graph.

Exit code 0: all within bounds; 1: not; 77: PyTorch is not installed.
"""
import argparse
import json
import math
import os
import random
import sys
import tempfile
from collections import Counter

from grad_cnn_pytorch import METHODS, check, reference_of
from grad_pytorch import np, residual, torch
from graphs import of_seed

EXCUSED = []  # (graph, tensor, residual, sensitivity)
VANISHING = []  # (graph, tensor, residual beside the largest gradient)


def masks_of(net, r):
    """Keeps a random 40 % of the weights."""
    return {name: (torch.rand_like(p) < 0.4).double() for name, p in net.weights() if r.random() < 0.8}


def sensitivity(name, net, x, y, dtype, masks):
    """The largest residual of the reference itself under eight random changes of one eps."""
    info, largest = np.finfo(str(dtype).split(".")[1]), 0.0
    reference = reference_of(net, x, y, masks)[name]
    values = [(p, p.detach().clone()) for _, p in net.named()]
    generator = torch.Generator().manual_seed(1)
    sign = lambda v: 2 * torch.randint(2, v.shape, generator=generator).double() - 1
    nudged = lambda v: v.detach().double() * (1 + float(info.eps) * sign(v))
    for _ in range(8):
        with torch.no_grad():
            for p, value in values:
                p.copy_(nudged(value))
        changed = reference_of(net, nudged(x), y, masks)[name]
        largest = max(largest, residual(changed, reference, float(info.eps), float(info.tiny), len(net.modules_)))
    with torch.no_grad():
        for p, value in values:
            p.copy_(value)
    return largest


def run_case(program, folder, seed):
    network, net = of_seed(seed)
    r = random.Random(seed + 1_000_000)
    path = os.path.join(folder, "net.json")
    with open(path, "w") as file:
        json.dump(network, file)
    batch = r.randint(1, 4)
    masks = masks_of(net, r) if seed % 3 == 0 else None

    def excuse(name, found, *case):
        norms = {key: float(np.linalg.norm(value)) for key, value in reference_of(*case[:3], case[4]).items() if key != "loss"}
        beside = norms[name] / max(norms.values())
        if beside < 1e-13:
            VANISHING.append((seed, name, found * beside))
            return found * beside < 30
        sensitive = sensitivity(name, *case)
        EXCUSED.append((seed, name, found, sensitive))
        return found < 30 * sensitive

    worst = check(program, folder, path, net, torch.randn(batch, *network["input"]), torch.randint(4, (batch,)),
                  (torch.float32, torch.float64)[seed % 2], masks, excuse=excuse)
    return worst, [layer["op"] for layer in network["layers"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("--graphs", type=int, default=300)
    parser.add_argument("--json", help="writes a document of the results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    operators, results = Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.graphs):
            worst, ops = run_case(os.path.abspath(arguments.program), folder, seed)
            results.append(worst)
            operators.update(ops)
    good = [r for r in results if r < math.inf]
    document = {"torch": torch.__version__, "graphs": len(results), "within_bounds": len(good), "methods": len(METHODS),
                "largest_residual": max(good, default=0.0),
                "beyond": [{"graph": g, "tensor": t, "residual": r, "sensitivity": s} for g, t, r, s in EXCUSED],
                "vanishing": len(VANISHING), "largest_vanishing": max((r for _, _, r in VANISHING), default=0.0),
                "layers": sum(operators.values()), "operators": dict(sorted(operators.items()))}
    if arguments.json:
        with open(arguments.json, "w") as file:
            file.write(json.dumps(document, indent=1) + "\n")
    print(f"PyTorch {torch.__version__}: {len(good)} of {len(results)} graphs by {len(METHODS)} methods within bounds, "
          f"largest residual {max(good, default=0):.2f}, {len(EXCUSED)} tensors beyond it for their sensitivity, "
          f"{len(VANISHING)} that vanish")
    return 0 if len(good) == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
