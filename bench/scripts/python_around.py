#!/usr/bin/env python3
"""What bppsa.torch adds around the library's passes with a PyTorch that has stateless ones (2.5 or newer).

    PYTHONPATH=build/cpu/python python3 bench/scripts/python_around.py --out around.json [--rounds 300]

The library's passes return at once. A forward and a backward pass of a layer at T = 1000, B = 16, H = 20 then take what Python,
autograd and the allocation of results take. Beside it an empty operator of the same signature takes turns: it takes the same
arrays, allocates the same results, has the same autograd function with the same saved tensors, and does nothing else. Times are
processor time of the thread, medians of the rounds. First the layer's results are compared with torch.nn's; it exits 1 where they
differ.
"""
import argparse
import statistics
import sys
import time
from unittest import mock

import program
import results_file

try:
    import torch

    import bppsa
    import bppsa.torch
    from bppsa import _native
    from bppsa._tensors import MODERN
except ImportError as missing:
    sys.stderr.write("python_around.py: error: %s, expected PyTorch and PYTHONPATH=build/cpu/python\n" % missing)
    sys.exit(2)
if MODERN:
    from bppsa import _passes

STEPS, BATCH, INPUTS, HIDDEN = 1000, 16, 1, 20
SIGNATURE = "(Tensor[] arrays, str arguments, str results, str layer) -> Tensor[]"


def define_empty():
    """Operators with the signature of bppsa::forward that allocate their results."""
    library = torch.library.Library("bppsa_empty", "DEF")

    def empty(arrays, arguments, results, layer):
        call = _passes.call_of("forward", arguments, results, layer)
        sizes = _passes.Sizes(call, dict(zip(call.arguments, arrays)))
        return [arrays[0].new_empty(sizes.of(name)) for name in call.results]

    library.define("empty" + SIGNATURE)
    library.impl("empty", empty, "CPU")
    return library


class Empty(torch.autograd.Function):
    """The operator, and one for its gradients."""

    @staticmethod
    def forward(call, *arrays):
        return tuple(torch.ops.bppsa_empty.empty(list(arrays), *call))

    @staticmethod
    def setup_context(ctx, inputs, output):
        call, *arrays = inputs
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[-2:])
        ctx.save_for_backward(*arrays, *output)

    @staticmethod
    def backward(ctx, *seeds):
        arguments, _, layer = ctx.call
        wanted = " ".join("of_" + name for name in arguments.split())
        return (None, *torch.ops.bppsa_empty.empty(list(ctx.saved_tensors[:len(arguments.split())]), arguments, wanted, layer))


def verify(cell):
    """Results and gradients beside torch.nn's."""
    torch.manual_seed(0)
    ours, theirs = (getattr(library, cell)(3, 5).double() for library in (bppsa.torch, torch.nn))
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(7, 2, 3, dtype=torch.float64)
    found = []
    for layer in (ours, theirs):
        output = layer(x)[0]
        found.append([output, *torch.autograd.grad(output.square().sum(), list(layer.parameters()))])
    worst = max((one - other).abs().max().item() for one, other in zip(*found))
    if worst > 1e-12:
        sys.exit("python_around.py: error: %s: results differ from torch.nn's by %g, expected 1e-12" % (cell, worst))


def measure(cell, rounds):
    """Microseconds of the layer, and of the empty operator."""
    layer = getattr(bppsa.torch, cell)(INPUTS, HIDDEN)
    x, seed = torch.randn(STEPS, BATCH, INPUTS), torch.randn(STEPS, BATCH, HIDDEN)
    weights = list(layer.parameters())
    results = _passes.results_of(cell.lower(), True, False, False)
    call = ("x w_ih w_hh b_ih b_hh", results, layer_text(cell))

    def of_layer():
        layer.zero_grad(set_to_none=True)
        layer(x)[0].backward(seed)

    def of_empty():
        layer.zero_grad(set_to_none=True)
        Empty.apply(call, x, *weights)[0].backward(seed)

    times = {of_layer: [], of_empty: []}
    with mock.patch.object(_native, "_plan_run", lambda *arguments: 0):
        for number in range(rounds + 20):
            for function, found in times.items():
                begin = time.thread_time_ns()
                function()
                if number >= 20:
                    found.append((time.thread_time_ns() - begin) / 1000)
    return [statistics.median(found) for found in times.values()]


def layer_text(cell):
    return _passes.Layer(cell.lower(), False, "auto", "sequential", *_native.OPEN, "", -1).text()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    if not MODERN:
        sys.exit("python_around.py: error: PyTorch %s, expected 2.5 or newer" % torch.__version__)
    torch.set_num_threads(1)
    library, rows = define_empty(), []  # noqa: F841: operators live as long as their library
    for cell in ("RNN", "GRU", "LSTM"):
        verify(cell)
        whole, empty = measure(cell, options.rounds)
        rows.append({"cell": cell, "seq_len": STEPS, "batch": BATCH, "hidden": HIDDEN, "microseconds": round(whole, 2),
                     "empty": round(empty, 2), "beyond": round(whole - empty, 2)})
        print("%-5s %7.1f us, an empty operator %7.1f, beyond it %6.1f" % (cell, whole, empty, whole - empty), flush=True)
    results_file.write(options.out, {"bench": "python_around", "torch": torch.__version__, "python": sys.version.split()[0],
                                     "bppsa": bppsa.__version__, "commit": program.commit(), "date": program.now(),
                                     "rounds": options.rounds, "threads": 1, "clock": "processor time of the thread",
                                     "around": rows})


if __name__ == "__main__":
    main()
