#!/usr/bin/env python3
"""Second derivatives of bppsa.torch beside those of torch.nn, on the CPU in float32: products with the Hessian, gradient penalties.

    PYTHONPATH=build/cpu/python build/rivals/bin/python bench/rivals/torch_second.py --out second.json [--points hvp_gru_20 ..]

On one thread, T 1000, B 16, I 16, H 20 and 128. The points:

  hvp_CELL_H            the product of the Hessian of a loss of all outputs, in the weights, with a direction
  penalty_CELL_H        the gradient in the weights of a loss plus the square of its gradient in the input

and the methods, each with a layer of bppsa.torch and of torch.nn:

  jvp       torch.func.jvp of torch.func.grad (hvp)
  reverse   torch.autograd.grad of torch.autograd.grad (hvp, penalty)

torch.nn computes without oneDNN, whose LSTM has no second derivatives. Every result is compared with torch.nn in float64 first
(residuals of docs/conventions.md, below 30); then all methods of a point take turns, and a row has the median of its turns.
Exits 77 where PyTorch 2.5 is missing, 1 where a result is wrong.
"""
import os
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "scripts"))

import noise  # noqa: E402
import program  # noqa: E402
import results_file  # noqa: E402

try:
    import torch
except ImportError as missing:
    print(f"torch_second.py: {missing}, expected PyTorch 2.5 or newer, as bench/rivals/setup installs it")
    sys.exit(77)
try:
    import bppsa.torch
    from bppsa._tensors import MODERN
except ImportError as missing:
    sys.exit(f"torch_second.py: error: {missing}, expected PYTHONPATH=build/cpu/python")

LIMIT = 30
STEPS, BATCH, INPUTS = 1000, 16, 16
LIBRARIES = {"bppsa": bppsa.torch, "torch.nn": torch.nn}
WHATS = {"hvp": ("jvp", "reverse"), "penalty": ("reverse",)}


class Problem:
    """A layer's weights and input in float32, and what is computed of them."""

    def __init__(self, what, cell, hidden):
        torch.manual_seed(1)
        self.what, self.cell, self.hidden = what, cell, hidden
        layer = getattr(torch.nn, cell)(INPUTS, hidden)
        self.weights = {name: weight.detach() for name, weight in layer.named_parameters()}
        self.along = {name: torch.randn_like(weight) * hidden ** -0.5 for name, weight in self.weights.items()}
        self.x, self.seed = torch.randn(STEPS, BATCH, INPUTS), torch.randn(STEPS, BATCH, hidden)

    def passes(self, library, method, dtype=torch.float32):
        """A function without arguments that computes the point's gradients, in the order of the weights."""
        layer = getattr(LIBRARIES[library], self.cell)(INPUTS, self.hidden).to(dtype)
        weights, along = ({name: each.to(dtype) for name, each in named.items()} for named in (self.weights, self.along))
        x, seed = self.x.to(dtype), self.seed.to(dtype)
        layer.load_state_dict(weights)
        leaves = list(layer.parameters())

        def loss_of(rows):
            return (seed * (rows + 0.5 * rows * rows)).sum() / rows.numel()

        def by_jvp():
            gradient = torch.func.grad(lambda named: loss_of(torch.func.functional_call(layer, named, (x,))[0]))
            return list(torch.func.jvp(gradient, (weights,), (along,))[1].values())

        def product():
            first = torch.autograd.grad(loss_of(layer(x)[0]), leaves, create_graph=True)
            return torch.autograd.grad(first, leaves, list(along.values()))

        def penalty():
            given = x.clone().requires_grad_()
            loss = loss_of(layer(given)[0])
            slope, = torch.autograd.grad(loss, given, create_graph=True)
            return torch.autograd.grad(loss + BATCH * slope.square().sum(), leaves)

        return by_jvp if method == "jvp" else product if self.what == "hvp" else penalty


def points():
    """{name: makes the problem}."""
    return {f"{what}_{cell.lower()}_{hidden}": lambda what=what, cell=cell, hidden=hidden: Problem(what, cell, hidden)
            for what in WHATS for cell in ("RNN", "GRU", "LSTM") for hidden in (20, 128)}


def residual(found, expected):
    """The largest ‖found − expected‖ / (‖expected‖ ε √T) of the arrays."""
    return max((torch.linalg.vector_norm(one.double() - other) /
                (torch.linalg.vector_norm(other) * torch.finfo(torch.float32).eps * STEPS ** 0.5)).item()
               for one, other in zip(found, expected))


def clock(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def measure(name, make, options):
    """The rows of a point."""
    problem = make()
    methods = [(library, method) for method in WHATS[problem.what] for library in LIBRARIES]
    expected = problem.passes("torch.nn", "reverse", torch.float64)()
    rows, passes, times = {}, {}, {}
    for library, method in methods:
        function = problem.passes(library, method)
        worst = residual(function(), expected)
        rows[library, method] = {"point": name, "cell": problem.cell.lower(), "seq_len": STEPS, "batch": BATCH, "input": INPUTS,
                                 "hidden": problem.hidden, "library": library, "method": method, "residual": worst,
                                 "ok": worst < LIMIT}
        times[library, method] = [clock(function)]
        if worst < LIMIT:
            passes[library, method], times[library, method] = function, []
    end = time.perf_counter() + options.seconds
    while passes and (time.perf_counter() < end or len(times[next(iter(passes))]) < options.rounds):
        for key, function in passes.items():
            times[key].append(clock(function))
    for key, each in times.items():
        rows[key].update(noise.timing(each))
    return list(rows.values())


def ratio(rows):
    """How many times as long as the best of bppsa's methods the best of PyTorch's takes."""
    best = {library: min(row["median_s"] for row in rows if row["library"] == library) for library in LIBRARIES}
    return best["torch.nn"] / best["bppsa"]


def show(rows):
    print(f"{rows[0]['point']}: torch.nn's best takes {ratio(rows):.2f} times bppsa's")
    for row in rows:
        print(f"  {row['library']:9s} {row['method']:8s} {1e3 * row['median_s']:9.2f} ms{noise.mark(row):1s}  residual "
              f"{row['residual']:.2f}{'' if row['ok'] else ', WRONG'}", flush=True)


def main():
    options, rows = program.turns_options(program.turns_parser(__doc__), points()), []
    if not MODERN:
        print(f"torch_second.py: PyTorch {torch.__version__}, expected 2.5 or newer")
        sys.exit(77)
    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)
    for name, make in points().items():
        if not options.points or name in options.points:
            found = measure(name, make, options)
            show(found)
            rows += found
        if options.out:  # behind each point, so that a run may be ended
            results_file.write(options.out, {"bench": "torch_second", **program.where_and_when(), "torch": torch.__version__,
                                             "bppsa": bppsa.__version__, "threads": 1, "rows": rows})
    sys.exit(0 if all(row["ok"] for row in rows) else 1)


if __name__ == "__main__":
    main()
