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
import ctypes
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


def define_empty(shapes):
    """Operators with the signature of bppsa::forward that allocate results of these shapes, by their names."""
    library = torch.library.Library("bppsa_empty", "DEF")

    def empty(arrays, arguments, results, layer):
        x = arrays[0]
        return [x.new_empty(shape) for shape in shapes[layer, results]]

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
        return (None, None, *torch.ops.bppsa_empty.empty(list(ctx.saved_tensors), arguments, "gradients", layer))


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


def returns_at_once():
    """A function of the library for ctypes in the place of the one that computes a pass: it takes the same arguments."""
    function = ctypes.CFUNCTYPE(ctypes.c_int, *_native._plan_run.argtypes)
    return function(("bppsa_python_left_behind", _native._library))


def measure(cell, rounds, shapes):
    """Microseconds of the layer, of the empty operator, and of torch.nn's layer for a single step of two units."""
    layer, theirs = getattr(bppsa.torch, cell)(INPUTS, HIDDEN), getattr(torch.nn, cell)(1, 2)
    x, seed = torch.randn(STEPS, BATCH, INPUTS), torch.randn(STEPS, BATCH, HIDDEN)
    little, its_seed = torch.randn(1, 1, 1), torch.randn(1, 1, 2)
    weights = list(layer.parameters())
    results, text = _passes.results_of(cell.lower(), True, False, False), layer_text(cell)
    names = ("x", "w_ih", "w_hh", "b_ih", "b_hh")
    call = (" ".join(names), results, text)
    sizes = _passes.Sizes(_passes.call_of("forward", *call), dict(zip(names, (x, *weights))))
    shapes[text, results] = [sizes.of(name) for name in results.split()]
    shapes[text, "gradients"] = [weight.shape for weight in weights]

    def of_layer():
        layer.zero_grad(set_to_none=True)
        layer(x)[0].backward(seed)

    def of_empty():
        layer.zero_grad(set_to_none=True)
        Empty.apply(call, x, *weights)[0].backward(seed)

    def of_torch():
        theirs.zero_grad(set_to_none=True)
        theirs(little)[0].backward(its_seed)

    times = {of_layer: [], of_empty: [], of_torch: []}
    with mock.patch.object(_native, "_plan_run", returns_at_once()):
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
    shapes, rows = {}, []
    library = define_empty(shapes)  # noqa: F841: operators live as long as their library
    for cell in ("RNN", "GRU", "LSTM"):
        verify(cell)
        whole, empty, theirs = measure(cell, options.rounds, shapes)
        rows.append({"cell": cell, "seq_len": STEPS, "batch": BATCH, "hidden": HIDDEN, "microseconds": round(whole, 2),
                     "empty": round(empty, 2), "beyond": round(whole - empty, 2), "torch_nn_of_one_step": round(theirs, 2)})
        print("%-5s %7.1f us, an empty operator %7.1f, beyond it %6.1f; torch.nn's with one step %7.1f" %
              (cell, whole, empty, whole - empty, theirs), flush=True)
    results_file.write(options.out, {"bench": "python_around", "torch": torch.__version__, "python": sys.version.split()[0],
                                     "bppsa": bppsa.__version__, "commit": program.commit(), "date": program.now(),
                                     "rounds": options.rounds, "threads": 1, "clock": "processor time of the thread",
                                     "around": rows})


if __name__ == "__main__":
    main()
