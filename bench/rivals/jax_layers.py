#!/usr/bin/env python3
"""bppsa.jax beside jax.lax.scan on the CPU: gradients, ensembles of seeds by vmap, Hessian-vector products, and linear recurrences.

    PYTHONPATH=build/cpu/python build/rivals/bin/python bench/rivals/jax_layers.py --out jax_layers.json [--points hvp_gru_20 ..]

In float32, on one thread of the library and of XLA. The points:

  gradient_CELL_H       value and gradients in x and all weights of a loss of all outputs, T 1000, B 16, I 16, H 20 and 128
  seeds_N               the gradient in the weights of N GRUs of 16 units by vmap, T 200, B 32, I 4, one x for all
  hvp_CELL_H            jax.jvp of jax.grad, a Hessian-vector product in the weights, T 1000, B 16, I 16
  scan_KIND_H           bppsa.jax.scan with its gradients in A, b and h0 beside jax.lax.scan and jax.lax.associative_scan

The methods: bppsa; scan_U, lax.scan with the products with x in front of it, by hand, and U steps unrolled (1, 4, 8);
associative. Every result is compared with lax.scan in float64 first (residuals of docs/conventions.md, below 30); then all methods
of a point take turns, in another order in each round, and a row has the median of its turns. Exits 77 where JAX is missing, 1
where a result is wrong.
"""
import importlib
import sys
import time

import noise
import side_by_side  # in front of what it sets up
from cells import cell_of, jax_functions

import program
import results_file

jax, np = side_by_side.need("jax", "JAX"), side_by_side.need("numpy", "JAX")
jnp = jax.numpy
side_by_side.need_bppsa("bppsa.jax")
bppsa = importlib.import_module("bppsa")

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
SEEDS = (1, 4, 16, 64)


def layer_by_scan(kind, unroll):
    """All outputs, from the weights and x."""
    cell = cell_of(jax_functions(jax), kind, "tanh")

    def states(weights, x):
        hidden = weights[1].shape[1]

        def advance(state, a):
            new = cell.step(weights, a, state)
            return new, new[:, :hidden]
        return jax.lax.scan(advance, jnp.zeros((x.shape[1], cell.width * hidden), x.dtype), cell.take_input(weights, x),
                            unroll=unroll)[1]
    return states


def layer_by_bppsa(kind):
    return lambda weights, x: getattr(bppsa.jax, kind)(x, weights)[0]


class Layer:
    """The problem of a layer: arrays of float64, rounded to float32, and what is computed from a function of weights and x."""

    def __init__(self, what, kind, hidden, steps=1000, batch=16, inputs=16, seeds=0):
        draw, rows = np.random.default_rng(1), GATES[kind] * hidden
        self.what, self.kind, self.steps = what, kind, steps
        self.sizes = {"cell": kind, "seq_len": steps, "batch": batch, "input": inputs, "hidden": hidden, "seeds": max(seeds, 1)}
        lead = (seeds,) if seeds else ()
        bound = hidden ** -0.5
        shapes = ((rows, inputs), (rows, hidden), (rows,), (rows,))
        weights, along = ([draw.uniform(-bound, bound, (*lead, *shape)) for shape in shapes] for _ in range(2))
        self.arrays = [tuple(weights), draw.standard_normal((steps, batch, inputs)), tuple(along),
                       draw.standard_normal((steps, batch, hidden))]

    def functions(self):
        return {"bppsa": layer_by_bppsa(self.kind), **{f"scan_{u}": layer_by_scan(self.kind, u) for u in (1, 4, 8)}}

    def reference(self):
        return layer_by_scan(self.kind, 1)

    def program(self, states):
        def loss(weights, x, seed):
            rows = states(weights, x)
            return jnp.vdot(seed, rows + 0.5 * rows * rows) / rows.size

        def compute(weights, x, along, seed):
            if self.what == "gradient":
                return jax.value_and_grad(loss, (0, 1))(weights, x, seed)
            gradient = jax.grad(loss)
            if self.what == "seeds":
                return jax.vmap(lambda w: gradient(w, x, seed))(weights)
            return jax.jvp(lambda w: gradient(w, x, seed), (weights,), (along,))[1]
        return compute


class Recurrence:
    """The problem of a linear recurrence: matrices of norm about 1, or diagonals."""

    def __init__(self, kind, hidden, steps=1000, batch=16):
        draw = np.random.default_rng(1)
        self.steps, self.sizes = steps, {"cell": kind, "seq_len": steps, "batch": batch, "hidden": hidden}
        if kind == "dense":
            a = 0.9 * draw.standard_normal((steps, batch, hidden, hidden)) * hidden ** -0.5
        else:
            a = draw.uniform(0.8, 1, (steps, batch, hidden))
        self.arrays = [a, *(draw.standard_normal(shape) for shape in ((steps, batch, hidden), (batch, hidden),
                                                                     (steps, batch, hidden)))]

    @staticmethod
    def by_scan(a, b, h0, unroll=1):
        def step(h, now):
            a_t, b_t = now
            h = (jnp.einsum("bij,bj->bi", a_t, h) if a_t.ndim == 3 else a_t * h) + b_t
            return h, h
        return jax.lax.scan(step, h0, (a, b), unroll=unroll)[1]

    @staticmethod
    def associative(a, b, h0):
        times = jnp.matmul if a.ndim == 4 else jnp.multiply
        apply = (lambda m, x: jnp.einsum("...ij,...j->...i", m, x)) if a.ndim == 4 else jnp.multiply
        products, sums = jax.lax.associative_scan(lambda x, y: (times(y[0], x[0]), apply(y[0], x[1]) + y[1]), (a, b))
        return apply(products, jnp.broadcast_to(h0, b.shape)) + sums

    def functions(self):
        return {"bppsa": bppsa.jax.scan, "associative": self.associative,
                **{f"scan_{u}": lambda a, b, h0, u=u: self.by_scan(a, b, h0, u) for u in (1, 4, 8)}}

    def reference(self):
        return self.by_scan

    def program(self, states):
        return lambda a, b, h0, seed: jax.value_and_grad(lambda *at: jnp.vdot(seed, states(*at)) / seed.size, (0, 1, 2))(a, b, h0)


def points():
    """{name: makes the problem}."""
    found = {}
    for what in ("gradient", "hvp"):
        for kind in ("rnn", "gru", "lstm"):
            for hidden in (20, 128):
                found[f"{what}_{kind}_{hidden}"] = lambda what=what, kind=kind, hidden=hidden: Layer(what, kind, hidden)
    for seeds in SEEDS:
        found[f"seeds_{seeds}"] = lambda seeds=seeds: Layer("seeds", "gru", 16, 200, 32, 4, seeds)
    for kind, hidden in (("dense", 4), ("dense", 20), ("diagonal", 20), ("diagonal", 128)):
        found[f"scan_{kind}_{hidden}"] = lambda kind=kind, hidden=hidden: Recurrence(kind, hidden)
    return found


def rounded(tree, dtype):
    return jax.tree.map(lambda each: jnp.asarray(np.asarray(each, np.float32), dtype), tree)


def measure(name, make, options):
    """The rows of a point."""
    problem = make()
    with jax.enable_x64(True):
        expected = jax.jit(problem.program(problem.reference()))(*rounded(problem.arrays, jnp.float64))
    arrays = jax.block_until_ready(rounded(problem.arrays, jnp.float32))
    rows, passes, times = {}, {}, {}
    for method, function in problem.functions().items():
        compiled = jax.jit(problem.program(function))
        jax.block_until_ready(compiled(*arrays))
        begin = time.perf_counter()
        found = jax.block_until_ready(compiled(*arrays))
        times[method] = [time.perf_counter() - begin]
        worst = side_by_side.residual(jax.tree.leaves(found), jax.tree.leaves(expected), problem.steps)
        rows[method] = {"point": name, **problem.sizes, "method": method, "residual": worst, "ok": worst < side_by_side.LIMIT}
        if rows[method]["ok"] and times[method][0] < options.slowest:
            passes[method] = lambda compiled=compiled: jax.block_until_ready(compiled(*arrays))
    times.update(side_by_side.take_turns(passes, options.seconds, options.rounds, time.perf_counter))
    for method, each in times.items():
        rows[method].update(noise.timing(each))
    return list(rows.values())


def show(rows):
    best = min(row["median_s"] for row in rows if row["method"] != "bppsa")
    print(f"{rows[0]['point']}: JAX's best takes {best / rows[0]['median_s']:.2f} times bppsa's")
    for row in rows:
        print(f"  {row['method']:12s} {1e3 * row['median_s']:9.2f} ms{noise.mark(row):1s}  residual {row['residual']:.2f}"
              f"{'' if row['ok'] else ', WRONG'}", flush=True)


def parse():
    parser = program.turns_parser(__doc__)
    parser.add_argument("--slowest", type=float, default=5, help="seconds of a pass beyond which a method has one turn [5]")
    return program.turns_options(parser, points())


def main():
    options, rows = parse(), []
    for name, make in points().items():
        if not options.points or name in options.points:
            found = measure(name, make, options)
            show(found)
            rows += found
        if options.out:  # behind each point, so that a run may be ended
            results_file.write(options.out, {"bench": "jax_layers", **program.where_and_when(), "jax": jax.__version__,
                                             "bppsa": bppsa.__version__, "threads": 1, "rows": rows})
    sys.exit(0 if all(row["ok"] for row in rows) else 1)


if __name__ == "__main__":
    main()
