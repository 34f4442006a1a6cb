#!/usr/bin/env python3
"""Recurrent layers at the shapes that people train, on a processor: bppsa.torch, torch.nn and JAX in one run.

    PYTHONPATH=build/cpu/python build/rivals/bin/python bench/scripts/trained_shapes.py --program build/cpu/bppsa \\
        --out bench/results/trained_shapes_cpu.json

A pass is forward and backward, the loss on every step, gradients of all weights. Rows `practice` are shapes of published work,
T cut where a pass would take seconds; rows `wide` have H 256, 512 and 1024 and B 1, 8, 32 and 128. At each point the gradients
of all three are held against torch.nn's in float64 over six steps, and a wrong one ends the program. JAX's lax.scan is compiled
with 1, 2, 4 and 8 steps unrolled, the input's products outside the scan; the fastest of them in two passes takes part. Then
passes take turns for --seconds, at least three rounds. A row has the medians, wall clock, and what bounds ours: GFLOP/s over
the core's peak, or where B is at most 8 the bytes of W_hh that a step reads twice (forward, and backward) over what a dot product
reads of an array as large. The peak is measured by `bppsa calibrate`, the best of several runs in front of everything (of_peak);
a product of numpy's BLAS, 512 x 512 x 512, in every round shows what the core gave at the same time (of_blas: ours over the
median of these). On a machine whose core, clock or caches others share, that is less. Ratios are the others' medians over ours.
With --threads 2 both threads are everyone's.

A quiet core takes about twelve seconds a point: `practice` has 24, `wide` 36, in each type.
"""
import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import program
import results_file

sys.path.insert(0, os.path.join(program.ROOT, "bench", "rivals"))
import recurrent  # noqa: E402

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
# cell, T, B, H, I, layers, who
PRACTICE = [("gru", 128, 4, 128, 128, 1, "reinforcement learning"), ("gru", 128, 64, 128, 128, 1, "reinforcement learning"),
            ("gru", 32, 1024, 128, 128, 1, "reinforcement learning"), ("gru", 128, 1, 128, 128, 1, "reinforcement learning"),
            ("lstm", 128, 8, 128, 512, 1, "reinforcement learning"), ("lstm", 128, 1, 256, 64, 1, "reinforcement learning"),
            ("lstm", 128, 64, 256, 64, 1, "reinforcement learning"), ("lstm", 365, 256, 20, 32, 1, "hydrology"),
            ("lstm", 90, 256, 128, 32, 1, "hydrology"), ("lstm", 30, 256, 256, 32, 1, "hydrology"),
            ("lstm", 365, 32, 40, 8, 2, "forecasting"), ("lstm", 1000, 50, 32, 1, 1, "guitar amplifiers"),
            ("lstm", 2000, 16, 18, 1, 3, "guitar amplifiers"), ("gru", 40, 128, 384, 64, 3, "noise suppression"),
            ("gru", 200, 500, 16, 3, 1, "neuroscience"), ("gru", 100, 35, 64, 8, 1, "neuroscience"),
            ("gru", 100, 340, 200, 8, 1, "neuroscience"), ("lstm", 100, 16, 64, 8, 1, "neuroscience"),
            ("lstm", 100, 16, 256, 8, 1, "neuroscience"), ("lstm", 40, 32, 512, 80, 2, "speech"),
            ("gru", 40, 64, 512, 80, 2, "speech"), ("lstm", 12, 32, 1024, 512, 2, "text"), ("gru", 12, 32, 1024, 80, 2, "speech"),
            ("rnn", 1000, 16, 20, 1, 1, "this project")]
WIDE = [(cell, None, batch, hidden, 32, 1, "wide") for cell in ("rnn", "gru", "lstm") for hidden in (256, 512, 1024)
        for batch in (1, 8, 32, 128)]


def numbers(text):
    return [int(each) for each in text.split(",")]


def flop_of(shape, steps):
    """Of a forward and a backward pass: products with the input once more for its weights, not for its gradient."""
    cell, _, batch, hidden, inputs, layers, _ = shape
    rows, gates = 2 * steps * batch, GATES[cell] * hidden
    first, above = rows * gates * (2 * inputs + 3 * hidden), rows * gates * (3 * hidden + 3 * hidden)
    return first + (layers - 1) * above


def steps_of(shape, gflop):
    return shape[1] or max(8, min(1000, int(3e9 * gflop / flop_of(shape, 1))))


def ours(bppsa):
    class Ours(recurrent.PyTorch):
        """torch.nn's layer with another forward and backward pass."""

        def take(self, weights):
            super().take(weights)
            point = self.point
            options = {"nonlinearity": point["nonlinearity"]} if point["model"] == "rnn" else {}
            layers = getattr(bppsa.torch, point["model"].upper())(point["input"], point["hidden"], point["layers"], **options)
            layers.to(self.x.dtype).load_state_dict(self.layers.state_dict())
            self.layers = layers
            names = [name.split(".", 1)[1] for name in point["weights"]]
            return [dict(layers.named_parameters())[name] for name in names]

    return Ours


class Both(recurrent.Scan):
    """JAX's program of both passes, which is timed as one."""

    def seconds(self):
        start = time.perf_counter()
        recurrent.jax.block_until_ready(self.both(self.weights, self.x, self.seed))
        return [0, time.perf_counter() - start]


def point_of(shape, steps, dtype):
    """As recurrent.py gets it from the program; its weights are torch.nn's."""
    np, torch = recurrent.np, recurrent.torch
    cell, _, batch, hidden, inputs, layers, _ = shape
    torch.manual_seed(hidden + batch)
    options = {"nonlinearity": "tanh"} if cell == "rnn" else {}
    layer = getattr(torch.nn, cell.upper())(inputs, hidden, layers, **options).to(getattr(torch, dtype))
    order = [f"{kind}_l{i}" for i in range(layers) for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    state, draw = layer.state_dict(), np.random.default_rng(1)
    return {"model": cell, "nonlinearity": "tanh", "input": inputs, "hidden": hidden, "layers": layers, "seq_len": steps,
            "batch": batch, "forward_only": False, "weights": {f"{cell}.{name}": state[name].numpy() for name in order},
            "x": draw.standard_normal((steps, batch, inputs)).astype(dtype),
            "seed": draw.standard_normal((steps, batch, hidden)).astype(dtype)}


def verify(methods, shape, dtype):
    """The largest error of a gradient over its largest entry."""
    short = point_of(shape, 6, dtype)
    exact = {key: value.astype("float64") for key, value in short["weights"].items()}
    reference = recurrent.PyTorch(dict(short, weights=exact, x=short["x"].astype("float64"), seed=short["seed"].astype("float64")),
                                  "cpu").results()
    errors = {}
    for name, make in methods.items():
        found = make(short, "cpu").results()
        errors[name] = max(float(abs(got - want).max() / abs(want).max()) for got, want in zip(found, reference))
        if not errors[name] < (1e-4 if dtype == "float32" else 1e-11):
            sys.exit("trained_shapes.py: %s, %s: gradients differ by %g" % (name, shape, errors[name]))
    return errors


def fastest(makes, point):
    """Of several ways of one library: its name, and itself."""
    best = None
    for name, make in makes.items():
        made = make(point, "cpu")
        seconds = min(sum(made.seconds()) for _ in range(3))  # the first one compiles
        if best is None or seconds < best[0]:
            best = seconds, name, made
    return best[1], best[2]


def read_rate(size):
    """Bytes that a dot product reads in a second of an array of so many bytes, the best of many."""
    array, best = recurrent.np.ones(max(1024, size // 4), "float32"), 0
    for _ in range(200 if size < 1 << 21 else 20):
        start = time.perf_counter()
        recurrent.np.dot(array, array)
        best = max(best, array.nbytes / (time.perf_counter() - start))
    return best


def blas_rate(factors):
    """FLOP/s of a product of two square matrices."""
    start = time.perf_counter()
    recurrent.np.matmul(factors[0], factors[1])
    return 2 * factors.shape[1] ** 3 / (time.perf_counter() - start)


def measure(shape, dtype, options, classes, peak):
    cell, _, batch, hidden, inputs, layers, who = shape
    steps = steps_of(shape, options.gflop)
    scans = {f"jax_scan_{unroll}": functools.partial(Both, unroll) for unroll in recurrent.UNROLLED}
    errors = verify({**classes, "jax": scans["jax_scan_1"]}, shape, dtype)
    point = point_of(shape, steps, dtype)
    runs = {name: make(point, "cpu") for name, make in classes.items()}
    best, runs["jax"] = fastest(scans, point)
    times = {name: [] for name in runs}
    for run in runs.values():
        run.seconds()
    factors, rates = recurrent.np.ones((2, 512, 512), dtype), []
    end = time.perf_counter() + options.seconds
    while time.perf_counter() < end or len(times["bppsa"]) < 3:
        for name, run in runs.items():
            times[name].append(run.seconds())
        rates.append(blas_rate(factors))
    total = {name: statistics.median(map(sum, each)) for name, each in times.items()}
    size, flop = (4 if dtype == "float32" else 8), flop_of(shape, steps)
    weights, top = size * GATES[cell] * hidden * hidden, peak * options.threads * 4 / size
    now = statistics.median(rates)
    row = {"who": who, "cell": cell, "seq_len": steps, "batch": batch, "hidden": hidden, "input": inputs, "layers": layers,
           "dtype": "f32" if size == 4 else "f64", "threads": options.threads, "repeats": len(times["bppsa"]), "errors": errors,
           **{name + "_s": seconds for name, seconds in total.items()}, "jax": best,
           **{name + "_least_s": min(map(sum, each)) for name, each in times.items()},
           "forward_s": statistics.median(each[0] for each in times["bppsa"]),
           "backward_s": statistics.median(each[1] for each in times["bppsa"]),
           "over_torch": total["torch.nn"] / total["bppsa"], "over_jax": total["jax"] / total["bppsa"],
           "gflops": 1e-9 * flop / total["bppsa"], "of_peak": flop / total["bppsa"] / top,
           "blas_gflops": 1e-9 * now, "of_blas": flop / total["bppsa"] / (now * options.threads)}
    if batch <= 8:
        rate = read_rate(weights)
        row.update(read_gb_s=1e-9 * rate, of_bandwidth=2 * steps * layers * weights / total["bppsa"] / rate)
    print("%-4s T %4d B %4d H %4d I %3d L %d %s: %8.2f ms, torch %5.2f, jax %5.2f (%s), %5.1f GFLOP/s, "
          "%2.0f %% of the peak, %2.0f %% of BLAS%s"
          % (cell, steps, batch, hidden, inputs, layers, row["dtype"], 1e3 * total["bppsa"], row["over_torch"], row["over_jax"],
             best, row["gflops"], 100 * row["of_peak"], 100 * row["of_blas"],
             ", %2.0f %% of what is read" % (100 * row["of_bandwidth"]) if batch <= 8 else ""), flush=True)
    return row


def peak_of(o):
    """FLOP/s of one core in f32."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "system.json")
        subprocess.run([o.program, "calibrate", "--quick", "--threads", "1", "--out", path], check=True, stdout=subprocess.PIPE)
        with open(path, encoding="utf-8") as file:
            return json.load(file)["peak_flops"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    program.add_program(parser)
    parser.add_argument("--out", required=True, help="where the JSON document goes")
    parser.add_argument("--points", default="practice,wide", help="[practice,wide]")
    parser.add_argument("--cells", default="rnn,gru,lstm")
    parser.add_argument("--hidden", type=numbers, help="of wide alone [256,512,1024]")
    parser.add_argument("--batch", type=numbers, help="of wide alone [1,8,32,128]")
    parser.add_argument("--dtypes", default="f32,f64")
    parser.add_argument("--threads", type=int, default=1, help="[1]")
    parser.add_argument("--gflop", type=float, default=0.5, help="a third of a pass of wide, where T allows it [0.5]")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each point, at least 3 rounds [1.5]")
    parser.add_argument("--peak", type=float, help="GFLOP/s of one core in f32 [measured]")
    o = parser.parse_args()
    recurrent.limit_threads(o.threads)
    libraries = argparse.Namespace(device="cpu", threads=o.threads)
    recurrent.import_libraries(libraries, {"PyTorch", "JAX"})
    if recurrent.MISSING:
        sys.exit("trained_shapes.py: %s" % "; ".join("%s is not installed (%s)" % item for item in recurrent.MISSING.items()))
    import bppsa
    import bppsa.torch
    recurrent.torch.set_num_threads(o.threads)
    shapes = [shape for kind, all_shapes in (("practice", PRACTICE), ("wide", WIDE)) if kind in o.points.split(",")
              for shape in all_shapes if shape[0] in o.cells.split(",") and
              (kind == "practice" or ((o.hidden is None or shape[3] in o.hidden) and (o.batch is None or shape[2] in o.batch)))]
    peak = 1e9 * o.peak if o.peak else peak_of(o)
    print("peak of a core in f32: %.1f GFLOP/s" % (1e-9 * peak), flush=True)
    classes = {"bppsa": ours(bppsa), "torch.nn": recurrent.PyTorch}
    rows = []
    for dtype in o.dtypes.split(","):
        for shape in shapes:
            rows.append(measure(shape, {"f32": "float32", "f64": "float64"}[dtype], o, classes, peak))
            sys.modules["jax"].clear_caches()  # a hundred points of compiled scans use up the mappings that a process may have
    gains = [min(row["over_torch"], row["over_jax"]) for row in rows]
    results_file.write(o.out, {"bench": "trained_shapes", "torch": recurrent.torch.__version__,
                               "jax": sys.modules["jax"].__version__, "bppsa": bppsa.__version__, "threads": o.threads,
                               "clock": "wall", "peak_gflops": 1e-9 * peak, "median_gain": statistics.median(gains),
                               "least_gain": min(gains), **program.where_and_when(), "rows": rows})


main()
