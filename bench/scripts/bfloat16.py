#!/usr/bin/env python3
"""Training in bfloat16 on a processor: layers of bppsa.torch beside torch.nn's, from the same weights on the same data.

    PYTHONPATH=build/cpu/python python3 bench/scripts/bfloat16.py --out bench/results/bfloat16_cpu.json

A layer and a linear head learn to add up two streams of numbers (T 60, B 32, H 64, loss on every step, Adam 1e-3). Four runs a
cell: torch.nn in float32, torch.nn and bppsa.torch under torch.autocast with inputs in bfloat16, and bppsa.torch after
.bfloat16() with weights of the optimiser in float32. A row has the loss of every 50th step, the mean of the
last 50 and that over the mean in float32, and the error of the first step's gradients against float64, over each gradient's
largest entry.
"""
import argparse
import statistics
import sys

import program
import results_file

try:
    import torch

    import bppsa
    import bppsa.torch
except ImportError as missing:
    sys.stderr.write("bfloat16.py: error: %s, expected PyTorch and PYTHONPATH=build/cpu/python\n" % missing)
    sys.exit(2)

STEPS, BATCH, HIDDEN, LAST = 60, 32, 64, 50


def data(seed):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(STEPS, BATCH, 2, generator=draw)
    return x, torch.tanh(0.3 * x.sum(2, keepdim=True).cumsum(0))


def layer_of(library, cell, start, dtype=torch.float32):
    layer = getattr(library, cell)(2, HIDDEN).to(dtype)
    layer.load_state_dict(start)
    return layer


def loss_of(layer, head, x, y, autocast):
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = layer(x)[0]
    return ((output.to(head.dtype) @ head - y) ** 2).mean()


def train(layer, head, iterations, autocast, dtype):
    """The losses. In bfloat16 throughout, the optimiser has float32 copies of the weights."""
    whole = dtype is torch.bfloat16 and not autocast
    masters = [p.detach().float().requires_grad_() for p in layer.parameters()] if whole else list(layer.parameters())
    head = head.clone().requires_grad_()
    optimizer, losses = torch.optim.Adam([*masters, head], lr=1e-3), []
    for step in range(iterations):
        x, y = data(step)
        loss = loss_of(layer, head, x.to(dtype), y, autocast)
        layer.zero_grad()
        optimizer.zero_grad()
        loss.backward()
        if whole:
            for master, parameter in zip(masters, layer.parameters()):
                master.grad = parameter.grad.float()
        optimizer.step()
        if whole:
            with torch.no_grad():
                for master, parameter in zip(masters, layer.parameters()):
                    parameter.copy_(master)
        losses.append(loss.item())
    return losses


def gradient_errors(layer, exact, head, autocast, dtype):
    x, y = data(0)
    loss_of(exact, head.double(), x.double(), y.double(), False).backward()
    loss_of(layer, head, x.to(dtype), y, autocast).backward()
    errors = [((got.grad.double() - want.grad).abs().max() / want.grad.abs().max()).item()
              for got, want in zip(layer.parameters(), exact.parameters())]
    layer.zero_grad()
    exact.zero_grad()
    return max(errors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="where the JSON document goes")
    parser.add_argument("--iterations", type=int, default=300, help="[300]")
    o = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for cell in ("RNN", "GRU", "LSTM"):
        torch.manual_seed(0)
        start, head = getattr(torch.nn, cell)(2, HIDDEN).state_dict(), torch.randn(HIDDEN, 1) / HIDDEN ** 0.5
        single = None
        for name, library, autocast, dtype in (("torch.nn, float32", torch.nn, False, torch.float32),
                                               ("torch.nn, autocast", torch.nn, True, torch.bfloat16),
                                               ("bppsa.torch, autocast", bppsa.torch, True, torch.bfloat16),
                                               ("bppsa.torch, bfloat16", bppsa.torch, False, torch.bfloat16)):
            layer = layer_of(library, cell, start, torch.float32 if autocast else dtype)
            exact = layer_of(torch.nn, cell, layer.float().state_dict(), torch.float64)
            layer.to(torch.float32 if autocast else dtype)
            error = gradient_errors(layer, exact, head, autocast, dtype)
            losses = train(layer, head, o.iterations, autocast, dtype)
            last = statistics.mean(losses[-LAST:])
            single = last if single is None else single
            rows.append({"cell": cell, "run": name, "gradient_error": error, "last_mean": last, "over_float32": last / single,
                         "losses": losses[::50] + losses[-1:]})
            print("%-4s %-22s gradients %.1e, losses %.3g .. %.4g, %.3f of float32's" %
                  (cell, name, error, losses[0], last, last / single), flush=True)
    results_file.write(o.out, {"bench": "bfloat16", "torch": torch.__version__, "bppsa": bppsa.__version__, "threads": 1,
                               "iterations": o.iterations, **program.where_and_when(), "rows": rows})


main()
