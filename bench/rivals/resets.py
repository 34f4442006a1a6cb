#!/usr/bin/env python3
"""Rows of several episodes: bppsa.torch and bppsa.jax with resets beside PyTorch and JAX, at the sizes that reinforcement learning
trains with.

    PYTHONPATH=build/cpu/python build/rivals/bin/python bench/rivals/resets.py --out FOLDER [--points gru_1_128_128_3 ..]

A pass is what an update of one recurrent layer needs, from an input x [T,B,I] and a mask of resets [T,B]: states of all steps, and
the gradients of x and of all weights from a gradient of all states. T is 128, in float32, on one thread. The methods:

  bppsa                 a layer of bppsa.torch with resets=mask; bppsa_no_resets: the same pass without a mask
  bppsa_packed          the mask as sequences of their own: split, packed, one pass, and put back into the row
  cleanrl_loop          a loop of torch.nn's layer over single steps, with (1 - done) times the state in front of each, as CleanRL's
                        ppo_atari_lstm does
  sb3_loop              pieces that begin where an episode does, padded to the longest, and the same loop over their steps, with
                        (1 - episode_start) times the state; one pass of torch.nn's layer where no episode begins: as sb3-contrib's
                        recurrent policies train
  torch_cells           CleanRL's loop with torch.nn.GRUCell or LSTMCell
  torch_packed          split, packed, torch.nn's layer, put back
  torch_pad             split, padded to the longest piece, torch.nn's layer, put back
  torchrl_pad           torchrl's GRUModule or LSTMModule, which splits and pads by its backend "pad"
  torchrl_scan          the same with its backend "scan", without a compiler
  bppsa_jax             bppsa.jax with resets=mask, under jax.jit
  jax_as_written        lax.scan over steps, products with the input inside, as PureJaxRL writes it (a GRU's gates are six products)
  jax_hoisted_U         the input's products in front of lax.scan, by hand, and U steps unrolled

CleanRL and sb3-contrib are not called: their loops stand in training scripts and policies, and are written out here. Each method's
states, gradient of x and gradients of W_ih and W_hh are compared with a loop in float64 first (residuals of docs/conventions.md,
below 30); then all methods take turns, in another order in each round, and a row has the median of its turns. A method whose second
pass takes more than --slowest seconds has that one turn. FOLDER gets a JSON document for each point; --table FOLDER prints them as
docs/resets.md has them. Exits 77 where PyTorch is missing, 1 where a result is wrong.
"""
import argparse
import importlib
import importlib.metadata
import json
import os
import statistics
import sys
import time

import noise
import side_by_side  # in front of what it sets up
from cells import cell_of, jax_functions, torch_functions

import program
import results_file

torch, np = side_by_side.need("torch", "PyTorch"), side_by_side.need("numpy", "PyTorch")
side_by_side.need_bppsa("bppsa.torch")
bppsa = importlib.import_module("bppsa")
try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = jnp = None

STEPS = 128
CLOCK = time.perf_counter  # --cpu-time takes another one
# cell, B, I, H, resets in a hundred steps; who trains with such sizes
POINTS = [("gru", 1, 128, 128, 3, "PureJaxRL"), ("gru", 4, 128, 128, 0, ""), ("gru", 4, 128, 128, 1, ""),
          ("gru", 4, 128, 128, 3, ""), ("gru", 4, 128, 128, 10, ""), ("gru", 24, 128, 128, 3, "JaxMARL, MPE"),
          ("gru", 160, 128, 128, 3, "JaxMARL, SMAX"), ("lstm", 2, 512, 128, 3, "CleanRL"), ("lstm", 8, 512, 128, 3, ""),
          ("lstm", 8, 64, 256, 3, "sb3-contrib")]


def name_of(point):
    return "_".join(str(part) for part in point[:5])


class Refused(Exception):
    """Why a method has no row."""


class Problem:
    """The arrays of a point, in numpy."""

    def __init__(self, point, steps):
        self.cell, self.batch, self.inputs, self.hidden, percent, _ = point
        self.steps, self.gates = steps, 3 if self.cell == "gru" else 4
        draw = np.random.default_rng(1)
        self.x = draw.standard_normal((steps, self.batch, self.inputs), np.float32)
        self.seed = draw.standard_normal((steps, self.batch, self.hidden), np.float32)
        self.mask = draw.random((steps, self.batch)) < percent / 100
        bound = self.hidden ** -0.5
        shapes = ((self.gates * self.hidden, self.inputs), (self.gates * self.hidden, self.hidden), (self.gates * self.hidden,),
                  (self.gates * self.hidden,))
        self.weights = [draw.uniform(-bound, bound, shape).astype(np.float32) for shape in shapes]
        starts = self.mask.copy()
        starts[0] = True
        self.segments = int(starts.sum())

    def expected(self, masked):
        """States, and the gradients of x, W_ih and W_hh, by a loop in float64."""
        wide = [torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in (self.x, *self.weights)]
        x, weights = wide[0], wide[1:]
        cell = cell_of(torch_functions(torch), self.cell, None)
        state, rows, a = x.new_zeros(self.batch, cell.width * self.hidden), [], cell.take_input(weights, x)
        for t in range(self.steps):
            if masked:
                state = torch.where(torch.from_numpy(self.mask[t]).unsqueeze(1), torch.zeros_like(state), state)
            state = cell.step(weights, a[t], state)
            rows.append(state[:, :self.hidden])
        states = torch.stack(rows)
        gradients = torch.autograd.grad(states, wide[:3], torch.tensor(self.seed, dtype=torch.float64))
        return [each.detach().numpy() for each in (states, *gradients)]


# ---- PyTorch and bppsa.torch ----


class Torch:
    """A layer of torch.nn or bppsa.torch and a pass by autograd. run: gives the states, from the layer, x and the mask."""

    def __init__(self, problem, library, run):
        self.problem, self.run = problem, run
        self.x, self.seed = torch.from_numpy(problem.x).requires_grad_(), torch.from_numpy(problem.seed)
        self.mask = torch.from_numpy(problem.mask)
        self.layer = getattr(library, problem.cell.upper())(problem.inputs, problem.hidden)
        with torch.no_grad():
            for parameter, value in zip(self.layer.parameters(), problem.weights):
                parameter.copy_(torch.from_numpy(value))
        self.weights = list(self.layer.parameters())

    def zeros(self, count):
        """The first state of so many sequences: h, and of an LSTM c."""
        return [self.x.new_zeros(1, count, self.problem.hidden) for _ in range(2 if self.problem.cell == "lstm" else 1)]

    def pass_(self):
        states = self.run(self)
        self.results = (states, *torch.autograd.grad(states, [self.x, *self.weights], self.seed))

    def arrays(self):
        return [each.detach().numpy() for each in self.results[:4]]


class Pieces:
    """x in pieces that begin where an episode or a sample does, padded with zeros to the longest: whole [N,L,I]. All steps move by
    one index, because PyTorch's own pad_sequence and unpack_sequence go backward in a time that grows with the pieces' square."""

    def __init__(self, one):
        starts = one.mask.clone()
        starts[0] = True
        self.first = starts.t().reshape(-1).nonzero().squeeze(1)  # samples follow each other
        self.one, self.lengths = one, torch.diff(self.first, append=self.first.new_tensor([starts.numel()]))
        shape = len(self.first), int(self.lengths.max())
        self.numbers = torch.arange(shape[0] * shape[1]).view(shape)
        self.rows = self.numbers[torch.arange(shape[1]) < self.lengths.unsqueeze(1)]
        steps = one.x.transpose(0, 1).reshape(-1, one.problem.inputs)
        self.whole = steps.new_zeros((self.numbers.numel(), one.problem.inputs)).index_copy(0, self.rows, steps).view(*shape, -1)

    def pack(self, whole):
        return torch.nn.utils.rnn.pack_padded_sequence(whole, self.lengths, batch_first=True, enforce_sorted=False)

    def put_back(self, rows, order):
        """Rows of all pieces as states [T,B,H]. order: their numbers, sample by sample and step by step."""
        problem = self.one.problem
        return rows.index_select(0, order).view(problem.batch, problem.steps, problem.hidden).transpose(0, 1)


def packed(one):
    pieces = Pieces(one)
    return pieces.put_back(one.layer(pieces.pack(pieces.whole))[0].data, pieces.pack(pieces.numbers).data.argsort())


def padded(one):
    pieces = Pieces(one)
    states = one.layer(pieces.whole.transpose(0, 1))[0].transpose(0, 1)
    return pieces.put_back(states.reshape(-1, one.problem.hidden), pieces.rows)


def loop(one, steps, done):
    """States of all steps [T,N,I] by calls of the layer for one step each."""
    state, rows = one.zeros(steps.shape[1]), []
    for x, d in zip(steps, done.float()):
        state = [(1.0 - d).view(1, -1, 1) * part for part in state]
        row, state = one.layer(x.unsqueeze(0), tuple(state) if len(state) == 2 else state[0])
        state = state if isinstance(state, tuple) else [state]
        rows.append(row)
    return torch.cat(rows)


def loop_of_pieces(one):
    pieces = Pieces(one)
    steps = pieces.whole.transpose(0, 1)
    starts = torch.zeros(steps.shape[:2], dtype=torch.bool)
    starts[0] = one.mask.t().reshape(-1)[pieces.first]  # a sample's first piece may go on with an episode
    states = loop(one, steps, starts) if one.mask.any() else one.layer(steps)[0]
    return pieces.put_back(states.transpose(0, 1).reshape(-1, one.problem.hidden), pieces.rows)


def cells(one):
    cell = torch._VF.lstm_cell if one.problem.cell == "lstm" else torch._VF.gru_cell  # what nn.LSTMCell and nn.GRUCell call
    state, rows, done = [part[0] for part in one.zeros(one.problem.batch)], [], one.mask.float()
    for x, d in zip(one.x, done):
        state = [(1.0 - d).unsqueeze(1) * part for part in state]
        state = cell(x, state if len(state) == 2 else state[0], *one.weights)
        state = state if isinstance(state, tuple) else [state]
        rows.append(state[0])
    return torch.stack(rows)


class TorchRL(Torch):
    """torchrl's module around a layer of torch.nn, which takes batches [B,T]. Its state at an episode's first step is what the
    caller has stored there, here zeros."""

    def __init__(self, problem, backend):
        super().__init__(problem, torch.nn, None)
        try:
            import tensordict
            import torchrl.modules
        except ImportError as missing_package:
            raise Refused(f"needs torchrl ({missing_package})") from missing_package
        states = ["h", "c"] if problem.cell == "lstm" else ["h"]
        try:
            self.module = getattr(torchrl.modules, problem.cell.upper() + "Module")(
                problem.inputs, problem.hidden, in_keys=["x", *states], out_keys=["y", *(("next", name) for name in states)],
                recurrent_backend=backend, default_recurrent_mode=True)
        except (NotImplementedError, TypeError) as refusal:
            raise Refused(f"torchrl refuses its backend {backend} ({refusal})") from refusal
        with torch.no_grad():
            for parameter, value in zip(self.module.parameters(), problem.weights):
                parameter.copy_(torch.from_numpy(value))
        self.weights = list(self.module.parameters())
        size = problem.batch, problem.steps
        self.given = {"is_init": self.mask.t().unsqueeze(-1), **{s: self.x.new_zeros(*size, 1, problem.hidden) for s in states}}
        self.pack = lambda x: tensordict.TensorDict({"x": x, **self.given}, size)
        self.run = lambda one: one.module(one.pack(one.x.transpose(0, 1)))["y"].transpose(0, 1)


# ---- JAX ----


def gru_as_written(w, x, h):
    """A step of a GRU with a product for each gate of the input and of the state."""
    (ir, iz, i_n), (hr, hz, hn) = jnp.split(w[0], 3), jnp.split(w[1], 3)
    (br, bz, bn), (cr, cz, cn) = jnp.split(w[2], 3), jnp.split(w[3], 3)
    r = jax.nn.sigmoid(x @ ir.T + (br + cr) + h @ hr.T)
    z = jax.nn.sigmoid(x @ iz.T + (bz + cz) + h @ hz.T)
    n = jnp.tanh(x @ i_n.T + bn + r * (h @ hn.T + cn))
    return (1.0 - z) * n + z * h


class Jax:
    """A pass by jax.vjp. states: of all steps, from the weights, x and the mask."""

    def __init__(self, problem, states):
        def both(w, x, mask, seed):
            found, back = jax.vjp(lambda w, x: states(w, x, mask), w, x)
            of_w, of_x = back(seed)
            return found, of_x, of_w

        self.both = jax.jit(both)
        self.given = tuple(map(jnp.asarray, problem.weights)), *map(jnp.asarray, (problem.x, problem.mask, problem.seed))

    def pass_(self):
        self.results = jax.block_until_ready(self.both(*self.given))

    def arrays(self):
        states, of_x, of_w = self.results
        return [np.asarray(each) for each in (states, of_x, *of_w[:2])]


def need_jax():
    if jax is None:
        raise Refused("JAX is not installed: bench/rivals/setup installs it")


class Ours(Jax):
    """bppsa.jax."""

    def __init__(self, problem):
        need_jax()
        layer = getattr(importlib.import_module("bppsa.jax"), problem.cell)
        super().__init__(problem, lambda w, x, mask: layer(x, w, resets=mask)[0])


class Scan(Jax):
    """lax.scan. unroll 0: as PureJaxRL writes it; otherwise the input's products stand in front of the scan."""

    def __init__(self, problem, unroll):
        need_jax()
        cell = cell_of(jax_functions(jax), problem.cell, None)
        zero = jnp.zeros((problem.batch, cell.width * problem.hidden), jnp.float32)

        def states(w, x, mask):
            def advance(state, step):
                a, begins = step
                state = jnp.where(begins[:, None], zero, state)
                if unroll:
                    new = cell.step(w, a, state)
                else:
                    new = gru_as_written(w, a, state) if problem.cell == "gru" else cell.step(w, cell.take_input(w, a), state)
                return new, new[:, :problem.hidden]

            return jax.lax.scan(advance, zero, (cell.take_input(w, x) if unroll else x, mask), unroll=unroll or 1)[1]

        super().__init__(problem, states)


METHODS = {
    "bppsa": lambda problem: Torch(problem, bppsa.torch, lambda one: one.layer(one.x, None, one.mask)[0]),
    "bppsa_no_resets": lambda problem: Torch(problem, bppsa.torch, lambda one: one.layer(one.x)[0]),
    "bppsa_packed": lambda problem: Torch(problem, bppsa.torch, packed),
    "cleanrl_loop": lambda problem: Torch(problem, torch.nn, lambda one: loop(one, one.x, one.mask)),
    "sb3_loop": lambda problem: Torch(problem, torch.nn, loop_of_pieces),
    "torch_cells": lambda problem: Torch(problem, torch.nn, cells),
    "torch_packed": lambda problem: Torch(problem, torch.nn, packed),
    "torch_pad": lambda problem: Torch(problem, torch.nn, padded),
    "torchrl_pad": lambda problem: TorchRL(problem, "pad"),
    "torchrl_scan": lambda problem: TorchRL(problem, "scan"),
    "bppsa_jax": Ours,
    "jax_as_written": lambda problem: Scan(problem, 0),
    "jax_hoisted_1": lambda problem: Scan(problem, 1),
    "jax_hoisted_4": lambda problem: Scan(problem, 4),
}


def enter(name, problem, expected):
    """The method with a verified pass, and its row."""
    one = METHODS[name](problem)
    seconds = []
    for _ in range(2):  # the first one compiles
        begin = CLOCK()
        one.pass_()
        seconds.append(CLOCK() - begin)
    worst = side_by_side.residual(one.arrays(), expected[name != "bppsa_no_resets"], problem.steps)
    return one, {"method": name, "first_s": seconds[0], "residual": worst, "ok": worst < side_by_side.LIMIT}, seconds[-1]


def version_of(package):
    """The version of an installed package; None where there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def measure(point, options, methods):
    """The document of a point."""
    problem = Problem(point, options.seq_len)
    expected = {masked: problem.expected(masked) for masked in (True, False)}
    taken, times, rows = {}, {}, {}
    for name in methods:
        try:
            one, rows[name], last = enter(name, problem, expected)
        except Refused as reason:
            rows[name] = {"method": name, "skipped": str(reason)}
            continue
        times[name] = [last]
        if rows[name]["ok"] and last <= options.slowest:
            taken[name] = one.pass_
    times.update(side_by_side.take_turns(taken, options.seconds, options.rounds, CLOCK))
    for name, each in times.items():
        rows[name].update(noise.timing(each))
    return {"bench": "resets", **program.where_and_when(), "torch": torch.__version__, "jax": jax and jax.__version__,
            "torchrl": version_of("torchrl"), "bppsa": bppsa.__version__, "threads": 1,
            "clock": "cpu" if options.cpu_time else "wall", "cell": point[0],
            "seq_len": problem.steps, "batch": point[1], "input": point[2], "hidden": point[3], "resets_percent": point[4],
            "segments": problem.segments, "who": point[5], "rows": list(rows.values())}


def show(document):
    rows = {row["method"]: row for row in document["rows"]}
    ours = rows.get("bppsa", {}).get("median_s")
    print("%s, B %d, I %d, H %d, %d %% resets, %d segments%s" % (
        document["cell"].upper(), document["batch"], document["input"], document["hidden"], document["resets_percent"],
        document["segments"], f" ({document['who']})" if document["who"] else ""))
    for name, row in rows.items():
        if "skipped" in row:
            print(f"  {name:16s} left out: {row['skipped']}")
        else:
            beside = f"  {row['median_s'] / ours:6.2f} times bppsa's" if ours else ""
            print(f"  {name:16s} {1e3 * row['median_s']:9.2f} ms{noise.mark(row):1s}{beside}  residual {row['residual']:.2f}"
                  f"{'' if row['ok'] else ', WRONG'}", flush=True)


# What the table of docs/resets.md has of each point: a title, and the methods of whose medians the least counts, over ours.
COLUMNS = [("JAX, best", ("jax_as_written", "jax_hoisted_1", "jax_hoisted_4")), ("JAX as written", ("jax_as_written",)),
           ("CleanRL's loop", ("cleanrl_loop",)), ("sb3-contrib's", ("sb3_loop",)), ("of cells", ("torch_cells",)),
           ("packed", ("torch_packed",)), ("torchrl, pad", ("torchrl_pad",)), ("torchrl, scan", ("torchrl_scan",))]


def ratios(document):
    """Our seconds with a mask, their ratio to those without one, and the ratios of COLUMNS; None where nothing was measured."""
    times = {row["method"]: row["median_s"] for row in document["rows"] if "median_s" in row}
    ours = times["bppsa"]
    least = [min([times[name] for name in names if name in times], default=None) for _, names in COLUMNS]
    return ours, ours / times["bppsa_no_resets"], *[each and each / ours for each in least]


def table(folder):
    """The points of a folder's documents in Markdown, with medians of their ratios below."""
    titles, found = ["bppsa", "with ÷ without", *[title for title, _ in COLUMNS]], []
    print(f"| cell, B, I, H | resets | segments | {' | '.join(titles)} |\n{'|---' * (3 + len(titles))}|")
    for point in POINTS:
        path = os.path.join(folder, name_of(point) + ".json")
        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
            values = ratios(document)
        except (OSError, ValueError, KeyError) as reason:
            sys.exit(f"resets.py: error: {path}: {reason!r}, expected a document of this script with bppsa and bppsa_no_resets")
        found.append(values[1:])
        cells = [f"{1e3 * values[0]:.3g} ms", f"{values[1]:.2f}", *["" if each is None else f"{each:#.3g}" for each in values[2:]]]
        who = f" ({point[5]})" if point[5] else ""
        print(f"| {point[0].upper()} {point[1]}, {point[2]}, {point[3]}{who} | {point[4]} % | {document['segments']} | "
              f"{' | '.join(cells)} |")
    middle = [[each for each in column if each is not None] for column in zip(*found)]
    print(f"| median | | | | {' | '.join(f'{statistics.median(each):#.3g}' if each else '' for each in middle)} |")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="the folder that gets a document for each point")
    parser.add_argument("--points", nargs="+", metavar="POINT", help="of " + ", ".join(map(name_of, POINTS)))
    parser.add_argument("--methods", nargs="+", metavar="METHOD", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seq-len", type=int, default=STEPS)
    parser.add_argument("--rounds", type=int, default=5, help="the least number of turns [5]")
    parser.add_argument("--seconds", type=float, default=10, help="of turns, for each point [10]")
    parser.add_argument("--cpu-time", action="store_true",
                        help="of this process, all of its threads, beside other programs: waiting does not count, cold caches do")
    parser.add_argument("--slowest", type=float, default=2, help="seconds of a pass beyond which a method has one turn [2]")
    parser.add_argument("--time-limit", type=float, help="seconds after which no further point begins")
    parser.add_argument("--table", metavar="FOLDER", help="measures nothing, and prints the documents of a folder as a table")
    options = parser.parse_args()
    known = list(map(name_of, POINTS))
    for name in options.points or ():
        if name not in known:
            parser.error(f"--points {name}: no such point, expected some of {', '.join(known)}")
    if options.seq_len < 1 or options.rounds < 1:
        parser.error(f"--seq-len is {options.seq_len} and --rounds {options.rounds}, expected 1 or more")
    return options


def main():
    global CLOCK
    options, begin, wrong = parse(), time.monotonic(), False
    if options.table:
        table(options.table)
        return
    CLOCK = time.process_time if options.cpu_time else CLOCK
    torch.set_num_threads(1)
    if options.out:
        os.makedirs(options.out, exist_ok=True)
    for point in POINTS:
        if options.points and name_of(point) not in options.points:
            continue
        if options.time_limit and time.monotonic() - begin > options.time_limit:
            print(f"{name_of(point)}: left out, --time-limit is over")
            continue
        document = measure(point, options, options.methods)
        show(document)
        wrong = wrong or not all(row.get("ok", True) for row in document["rows"])
        if options.out:
            results_file.write(os.path.join(options.out, name_of(point) + ".json"), document)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
