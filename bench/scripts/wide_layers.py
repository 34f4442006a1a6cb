#!/usr/bin/env python3
"""Wide layers of bppsa.torch beside torch.nn's on one thread of a processor, forward and backward pass apart.

    PYTHONPATH=build/cpu/python python3 bench/scripts/wide_layers.py --out wide.json [--hidden 512,1024] [--batch 1,32]

At each point (a cell, H, B; 32 inputs) gradients of both are held against torch.nn's in float64 first, and a layer that is wrong
ends the program. Then the four passes take turns for --seconds. T is chosen so that a forward pass is about --gflop. Times are
those of this process on the processor, without waiting, so that other programs disturb them through the caches alone; a row has the
lower quartile of each pass and its GFLOP/s: forward 2 T B G H (I + H), backward twice that for the states and the weights.
"""
import argparse
import sys
import time

import program
import results_file

try:
    import torch

    import bppsa
    import bppsa.torch
except ImportError as missing:
    sys.stderr.write("wide_layers.py: error: %s, expected PyTorch and PYTHONPATH=build/cpu/python\n" % missing)
    sys.exit(2)

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
INPUT = 32


def numbers(text):
    return [int(each) for each in text.split(",")]


def layers_of(cell, hidden):
    torch.manual_seed(hidden)
    theirs, ours = (getattr(library, cell)(INPUT, hidden) for library in (torch.nn, bppsa.torch))
    ours.load_state_dict(theirs.state_dict())
    return {"torch.nn": theirs, "bppsa.torch": ours}


def gradients(layer, x, seed):
    layer.zero_grad(set_to_none=True)
    layer(x)[0].backward(seed)
    return [parameter.grad.double() for parameter in layer.parameters()]


def verify(cell, layers, hidden, batch):
    """The largest error of a gradient over its largest entry; both libraries' must be those of f32."""
    x, seed = (torch.randn(5, batch, size) for size in (INPUT, hidden))
    exact = getattr(torch.nn, cell)(INPUT, hidden).double()
    exact.load_state_dict(layers["torch.nn"].state_dict())
    expected, errors = gradients(exact, x.double(), seed.double()), {}
    for name, layer in layers.items():
        errors[name] = max(((got - want).abs().max() / want.abs().max()).item()
                           for got, want in zip(gradients(layer, x, seed), expected))
        if not errors[name] < 1e-4:
            sys.exit("wide_layers.py: %s, %s, H %d, B %d: gradients differ by %g, expected below 1e-4" %
                     (name, cell, hidden, batch, errors[name]))
    return errors


def one_pass(layer, x, seed, times):
    layer.zero_grad(set_to_none=True)
    begin = time.process_time()
    output = layer(x)[0]
    between = time.process_time()
    output.backward(seed)
    times[0].append(between - begin)
    times[1].append(time.process_time() - between)


def quartile(times):
    return sorted(times)[len(times) // 4]


def measure(cell, hidden, batch, options):
    layers = layers_of(cell, hidden)
    errors = verify(cell, layers, hidden, batch)
    flop = 2 * batch * GATES[cell] * hidden * (INPUT + hidden)
    steps = max(8, min(options.steps, int(options.gflop * 1e9 / flop)))
    x, seed = (torch.randn(steps, batch, size) for size in (INPUT, hidden))
    times = {name: ([], []) for name in layers}
    for layer in layers.values():
        one_pass(layer, x, seed, ([], []))
    end = time.perf_counter() + options.seconds
    while time.perf_counter() < end or len(times["torch.nn"][0]) < 3:
        for name, layer in layers.items():
            one_pass(layer, x, seed, times[name])
    work = (flop * steps, (2 * flop - 2 * batch * GATES[cell] * hidden * INPUT) * steps)
    row = {"cell": cell, "seq_len": steps, "batch": batch, "hidden": hidden, "input": INPUT, "errors": errors,
           "repeats": len(times["torch.nn"][0])}
    for name in layers:
        seconds = [quartile(each) for each in times[name]]
        row[name] = {"forward_s": seconds[0], "backward_s": seconds[1], "forward_gflops": 1e-9 * work[0] / seconds[0],
                     "backward_gflops": 1e-9 * work[1] / seconds[1]}
    row["times_as_fast"] = {part: row["torch.nn"][part + "_s"] / row["bppsa.torch"][part + "_s"]
                            for part in ("forward", "backward")}
    print("%-4s H %4d, B %3d, T %4d: %5.1f and %5.1f GFLOP/s forward and backward, %5.2f and %5.2f times as fast as torch.nn" %
          (cell, hidden, batch, steps, row["bppsa.torch"]["forward_gflops"], row["bppsa.torch"]["backward_gflops"],
           row["times_as_fast"]["forward"], row["times_as_fast"]["backward"]), flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="where the JSON document goes")
    parser.add_argument("--cells", default="RNN,GRU,LSTM")
    parser.add_argument("--hidden", type=numbers, default=[128, 256, 512, 1024])
    parser.add_argument("--batch", type=numbers, default=[1, 8, 32, 128])
    parser.add_argument("--gflop", type=float, default=2, help="of a forward pass, where T allows it [2]")
    parser.add_argument("--steps", type=int, default=1000, help="the largest T [1000]")
    parser.add_argument("--seconds", type=float, default=1, help="for each point, at least 3 rounds [1]")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(cell, hidden, batch, options) for cell in options.cells.split(",") for hidden in options.hidden
            for batch in options.batch]
    results_file.write(options.out, {"bench": "wide_layers", "torch": torch.__version__, "bppsa": bppsa.__version__, "threads": 1,
                                     "clock": "cpu", **program.where_and_when(), "rows": rows})


main()
