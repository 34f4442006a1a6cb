"""Random sequences of calls on layers of bppsa.torch, every result against torch.nn in float64.

    PYTHONPATH=build/cpu/python python3 tests/python/sequences.py SEED COUNT [--steps N] [--verbose]

Sequences SEED .. SEED + COUNT - 1. Several modules are alive, each is called many times, with and without resets and all c of an
LSTM, which a loop over steps has (loops.py) in the place of torch.nn; forward passes precede other passes'
backward passes, some graphs are retained, run in threads, under checkpoints and hooks, or outlive their module; calls fail, are
interrupted, or happen in a child of fork() in between. A sequence whose result is wrong prints its seed and its calls, and
`sequences.py THAT_SEED 1` repeats it. Exits 1 where a result is wrong.
"""
import argparse
import collections
import copy
import gc
import io
import os
import pickle
import random
import signal
import sys
import threading
import time
import traceback

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

import bppsa.torch
import loops

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "bench", "scripts"))
import results_file  # noqa: E402

CELLS = ("RNN", "GRU", "LSTM")
SCANS = ("auto", "bp", "linear", "blelloch", "blelloch 2", "chunked", "chunked 3")
SPECULATIVE = {"scan": "speculative", "scan_chunks": 3, "scan_warm_up": 2}
AROUND = ("nothing", "nothing", "hooks", "save_on_cpu", "checkpoint", "reentrant checkpoint")


CALLS = collections.Counter()  # of all sequences, by their actions


class Wrong(Exception):
    """A result that is not torch.nn's."""


def check(what, found, expected, dtype):
    """Norms of float64 differences: far above rounding, far below what a wrong array gives."""
    if (found is None) != (expected is None):
        raise Wrong(f"{what}: {found} beside {expected}")
    if found is None:
        return
    found, expected = found.detach().double(), expected.detach().double()
    if found.shape != expected.shape:
        raise Wrong(f"{what}: shape {list(found.shape)}, expected {list(expected.shape)}")
    limit = (1e-9 if dtype is torch.float64 else 5e-4) * max(1.0, expected.norm().item())
    error = (found - expected).norm().item()
    if not error <= limit:
        raise Wrong(f"{what}: differs by {error:.3g}, expected at most {limit:.3g}")


class Module:
    """A layer of ours and torch.nn's with the same weights in float64."""

    def __init__(self, rng, number):
        self.name, self.cell = f"m{number}", rng.choice(CELLS)
        self.inputs, self.hidden = rng.randint(1, 5), rng.randint(1, 8)
        self.options = dict(num_layers=rng.choice((1, 1, 2, 3)), bidirectional=rng.random() < 0.3, bias=rng.random() < 0.8,
                            batch_first=rng.random() < 0.3)
        if self.cell == "RNN":
            self.options["nonlinearity"] = rng.choice(("tanh", "relu"))
        self.dtype = rng.choice((torch.float64, torch.float64, torch.float32))
        self.scan = SPECULATIVE if rng.random() < 0.2 else {"scan": rng.choice(SCANS)}
        self.forward = rng.choice(("sequential", "sequential", "auto"))
        self.ours = getattr(bppsa.torch, self.cell)(self.inputs, self.hidden, forward=self.forward, **self.scan,
                                                    **self.options).to(self.dtype)
        self.theirs = getattr(torch.nn, self.cell)(self.inputs, self.hidden, **self.options).double()
        self.copy_weights()

    def copy_weights(self):
        self.theirs.load_state_dict({name: value.double() for name, value in self.ours.state_dict().items()})
        for mine, other in zip(self.ours.parameters(), self.theirs.parameters()):
            other.requires_grad_(mine.requires_grad)

    @property
    def states(self):
        return self.options["num_layers"] * (2 if self.options["bidirectional"] else 1)

    def __str__(self):
        return f"{self.name} = {self.cell}({self.inputs}, {self.hidden}, {self.options}, {self.scan}, " \
               f"forward={self.forward!r}, {self.dtype})"


Call = collections.namedtuple("Call", "steps batch lengths single resets cells x start leaf around inplace seeds")
Graph = collections.namedtuple("Graph", "name owner dtype call tensors names total reentrant")


def draw_call(rng, module):
    """Everything that one call is given, as float64 values rounded to the module's type."""
    steps, batch = rng.randint(1, 12), rng.randint(1, 5)
    single = rng.random() < 0.1
    lengths = [rng.randint(1, steps) for _ in range(batch)] if not single and rng.random() < 0.3 else None
    shape = (batch, steps) if module.options["batch_first"] else (steps, batch)
    draw = lambda *sizes: torch.randn(*sizes, dtype=module.dtype)
    x = draw(steps, module.inputs) if single else draw(*shape, module.inputs)
    states = (module.states, module.hidden) if single else (module.states, batch, module.hidden)
    start = None if rng.random() < 0.5 else [draw(*states).requires_grad_(rng.random() < 0.6)
                                             for _ in range(2 if module.cell == "LSTM" else 1)]
    leaf = rng.choice(("leaf", "leaf", "temporary", "no gradient", "apart"))
    width = module.hidden * (2 if module.options["bidirectional"] else 1)
    of_output = draw(*x.shape[:-1], width) * (torch.rand(*x.shape[:-1], width) < rng.choice((0.1, 1))).to(module.dtype)
    of_last = [draw(*states) for _ in range(2 if module.cell == "LSTM" else 1)]
    seeds = rng.choice(([of_output], [of_output, *of_last], [None, *of_last]))
    resets = torch.rand(steps, batch) < rng.choice((0, 0.1, 0.5, 1)) if rng.random() < 0.3 else None
    cells = module.cell == "LSTM" and rng.random() < 0.3
    if cells and rng.random() < 0.7:
        seeds = [*seeds, *[None] * (3 - len(seeds)), draw(*of_output.shape)]
    around = rng.choice(AROUND)
    inplace = rng.random() < 0.2 and around != "reentrant checkpoint"  # whose outputs may be views
    return Call(steps, batch, lengths, single, resets, cells, x, start, leaf, around, inplace, seeds)


def by_steps(layer, call, x, start):
    """The results of torch.nn's layer by a loop over steps."""
    x = x.unsqueeze(1) if call.single else x.transpose(0, 1) if layer.batch_first else x
    start = [part.unsqueeze(1) for part in start] if call.single and start is not None else start
    output, last, cells = loops.outputs(layer, x, start, None if call.resets is None else call.resets[:, :x.shape[1]], call.lengths)
    rows = [output, *([cells] if call.cells else [])]
    if call.single:
        rows, last = ([part.squeeze(1) for part in parts] for parts in (rows, last))
    elif layer.batch_first:
        rows = [part.transpose(0, 1) for part in rows]
    return (rows[0], *last, *rows[1:])


def outputs_of(layer, call, x, start):
    """What the layer gives as plain tensors: the outputs, padded with zeros, the last states, and all c if the call wants them."""
    if not isinstance(layer, bppsa.torch._Recurrent) and (call.resets is not None or call.cells):
        return by_steps(layer, call, x, start)
    state, more = None if start is None else tuple(start) if len(start) == 2 else start[0], {}
    if call.resets is not None:
        resets = call.resets[:call.steps if call.lengths is None else max(call.lengths)]
        more["resets"] = resets[:, 0] if call.single else resets.t() if layer.batch_first else resets
    if call.cells:
        more["return_cells"] = True
    if call.lengths is None:
        output, last, *cells = layer(x, state, **more)
    else:
        packed, last, *cells = layer(pack_padded_sequence(x, call.lengths, layer.batch_first, enforce_sorted=False), state, **more)
        output, *cells = (pad_packed_sequence(each, layer.batch_first, total_length=call.steps)[0] for each in (packed, *cells))
    return (output, *(last if isinstance(last, tuple) else (last,)), *cells)


def total_of(call, results):
    """The loss, behind an in-place module if the call has one."""
    if call.inplace:
        results = [torch.nn.functional.relu(result, inplace=True) for result in results]
    return sum((seed.to(result.dtype) * result).sum() for seed, result in zip(call.seeds, results) if seed is not None)


def given(call, dtype):
    """The call's input and states of a type, and those that may want gradients."""
    x = call.x.detach().to(dtype).clone().requires_grad_(call.leaf in ("leaf", "temporary", "apart"))
    start = None if call.start is None else [part.detach().to(dtype).clone().requires_grad_(part.requires_grad)
                                             for part in call.start]
    passed = x * 2 if call.leaf == "temporary" else x.flip(-1) if call.leaf == "apart" else x
    return x, passed, start


def wrapped(call, layer, passed, start):
    """Ours under the call's checkpoint or hooks."""
    if call.around == "hooks":
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.detach().clone(), lambda tensor: tensor):
            return outputs_of(layer, call, passed, start)
    if call.around == "save_on_cpu":
        with torch.autograd.graph.save_on_cpu():
            return outputs_of(layer, call, passed, start)
    parts = [] if start is None else start
    if call.around == "checkpoint" or (call.around == "reentrant checkpoint" and
                                       any(part.requires_grad for part in (passed, *parts))):
        return checkpoint(lambda x, *parts: outputs_of(layer, call, x, list(parts) or None), passed, *parts,
                          use_reentrant=call.around != "checkpoint")
    return outputs_of(layer, call, passed, start)


class Sequence:
    def __init__(self, seed):
        self.rng, self.log = random.Random(seed), []
        torch.manual_seed(seed)
        self.modules, self.graphs, self.made = [], [], 0
        self.kept = []  # results that somebody holds on to
        self.fresh()

    def note(self, text):
        self.log.append(text)

    def fresh(self):
        self.modules.append(Module(self.rng, self.made))
        self.made += 1
        self.note(str(self.modules[-1]))

    # ---- passes ----

    def forward(self):
        module, rng = self.rng.choice(self.modules), self.rng
        call = draw_call(rng, module)
        name = f"g{len(self.log)}"
        self.note(f"{name} = {module.name}: T {call.steps}, B {call.batch}, lengths {call.lengths}, single {call.single}, resets "
                  f"{None if call.resets is None else call.resets.nonzero().tolist()}, all c {call.cells}, "
                  f"start {None if call.start is None else [part.requires_grad for part in call.start]}, x {call.leaf}, "
                  f"{call.around}, in place {call.inplace}, seeds {[seed is not None for seed in call.seeds]}")
        x, passed, start = given(call, module.dtype)
        their_x, their_passed, their_start = given(call, torch.float64)
        expected = outputs_of(module.theirs, call, their_passed, their_start)
        results, interrupted = self.interrupted(call, lambda: wrapped(call, module.ours, passed, start))
        if interrupted:
            return
        for number, (one, other) in enumerate(zip(results, expected)):
            check(f"{name}, result {number}", one, other, module.dtype)
        del passed, their_passed
        total, their_total = total_of(call, results), total_of(call, expected)
        if rng.random() < 0.2:
            self.kept.append((name, results[0].detach(), results[0].detach().clone()))
        if not (isinstance(total, torch.Tensor) and total.requires_grad):
            return
        if rng.random() < 0.1 and "checkpoint" not in call.around:  # which computes again from what it is given
            self.note("  x.data and the states' are others afterwards")
            for tensor in (x, *(start or ())):
                tensor.data = torch.full_like(tensor, float("nan"))
        named = [("x", x, their_x)] + [(f"start {n}", *pair) for n, pair in enumerate(zip(start or (), their_start or ()))]
        named += [(key, value, dict(module.theirs.named_parameters())[key]) for key, value in module.ours.named_parameters()]
        named = [each for each in named if each[1].requires_grad]
        expected = torch.autograd.grad(their_total, [other for _, _, other in named], allow_unused=True)
        self.graphs.append(Graph(name, module.name, module.dtype, call, [mine for _, mine, _ in named],
                                 list(zip([key for key, _, _ in named], expected)), total,
                                 call.around == "reentrant checkpoint"))

    def gradients(self, graph, retain):
        """Of one graph. A reentrant checkpoint knows .backward() alone. What has been frozen since has none."""
        if not graph.reentrant:
            wanted = [tensor for tensor in graph.tensors if tensor.requires_grad]
            found = iter(torch.autograd.grad(graph.total, wanted, retain_graph=retain, allow_unused=True) if wanted else ())
            return [next(found) if tensor.requires_grad else None for tensor in graph.tensors]
        for tensor in graph.tensors:
            tensor.grad = None
        graph.total.backward(retain_graph=retain)
        found = [tensor.grad for tensor in graph.tensors]
        for tensor in graph.tensors:
            tensor.grad = None
        return found

    def compare(self, graph, found):
        for (name, expected), one, tensor in zip(graph.names, found, graph.tensors):
            if not tensor.requires_grad:  # frozen since
                continue
            if expected is None and one is not None:
                expected = torch.zeros_like(one)
            if one is None and expected is not None and not expected.any():
                one = expected
            check(f"{graph.name}, gradient of {name}", one, expected, graph.dtype)

    def backward(self):
        if not self.graphs:
            return
        graph = self.graphs.pop(self.rng.randrange(len(self.graphs)))
        retain = self.rng.random() < 0.3 and "checkpoint" not in graph.call.around
        self.note(f"backward of {graph.name}{', retained' if retain else ''}")
        found, interrupted = self.interrupted(graph.call, lambda: self.gradients(graph, retain))
        if not interrupted:
            self.compare(graph, found)
        if retain:
            self.graphs.append(graph)

    def backward_in_threads(self):
        graphs = [graph for graph in self.graphs if not graph.reentrant]
        if not graphs:
            return
        chosen = [graph for graph in self.rng.sample(graphs, min(len(graphs), 3)) if graph.call.around != "checkpoint"]
        work = chosen + chosen  # each graph in two threads
        self.note(f"backward of {[graph.name for graph in work]} in threads")
        found, barrier = [None] * len(work), threading.Barrier(max(1, len(work)))

        def run(number):
            barrier.wait()
            found[number] = self.gradients(work[number], True)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(len(work))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for graph, each in zip(work, found):
            if each is None:
                raise Wrong(f"{graph.name}: a thread had an error")
            self.compare(graph, each)

    def quiet(self):
        """Without gradients."""
        module, mode = self.rng.choice(self.modules), self.rng.choice((torch.no_grad, torch.inference_mode))
        call = draw_call(self.rng, module)
        self.note(f"{module.name} under {mode.__name__}: T {call.steps}, B {call.batch}, lengths {call.lengths}, "
                  f"single {call.single}")
        with mode():
            _, passed, start = given(call, module.dtype)
            _, their_passed, their_start = given(call, torch.float64)
            results = outputs_of(module.ours, call, passed, start)
            expected = outputs_of(module.theirs, call, their_passed, their_start)
            for number, (one, other) in enumerate(zip(results, expected)):
                check(f"{module.name} without gradients, result {number}", one, other, module.dtype)

    def same_bits(self):
        """A fresh copy of a module gives the same bits as the module, whatever it has done before."""
        module = self.rng.choice([module for module in self.modules if module.forward == "sequential"] or [None])
        if module is None:
            return
        call = draw_call(self.rng, module)._replace(around="nothing", inplace=False)
        self.note(f"{module.name} and a copy: T {call.steps}, B {call.batch}, lengths {call.lengths}, single {call.single}")
        found = []
        for layer in (module.ours, copy.deepcopy(module.ours) if self.rng.random() < 0.5
                      else pickle.loads(pickle.dumps(module.ours))):
            x, passed, start = given(call, module.dtype)
            results = outputs_of(layer, call, passed, start)
            wanted = [each for each in (x, *(start or ()), *layer.parameters()) if each.requires_grad]
            total = total_of(call, results)
            found.append([*results, *(torch.autograd.grad(total, wanted, allow_unused=True) if total.requires_grad else ())])
        for number, (one, other) in enumerate(zip(*found)):
            if not (one is other is None or torch.equal(one, other)):
                raise Wrong(f"{module.name}: array {number} of a copy has other bits")

    def scan(self):
        steps, batch, size, dense = (self.rng.randint(1, n) for n in (9, 3, 4, 2))
        self.note(f"scan: T {steps}, B {batch}, H {size}, {'dense' if dense == 2 else 'diagonal'}")
        jt = torch.randn(steps, batch, size, *[size] * (dense - 1), dtype=torch.float64, requires_grad=True)
        u = torch.randn(steps, batch, size, dtype=torch.float64, requires_grad=True)
        g = torch.randn(batch, size, dtype=torch.float64, requires_grad=True)
        rows, state = [], g
        for t in range(steps - 1, -1, -1):
            state = (jt[t] * state if dense == 1 else (jt[t] @ state.unsqueeze(-1)).squeeze(-1)) + u[t]
            rows.append(state)
        expected, found = torch.stack(rows[::-1]), bppsa.torch.scan(jt, u, g, method=self.rng.choice(SCANS[2:]))
        seed = torch.randn_like(expected)
        check("scan", found, expected, torch.float64)
        for one, other in zip(torch.autograd.grad(found, (jt, u, g), seed), torch.autograd.grad(expected, (jt, u, g), seed)):
            check("gradients of a scan", one, other, torch.float64)

    # ---- what happens in between ----

    armed = False

    def interrupted(self, call, function):
        """The function's result, and whether Ctrl-C came: now and then it does, during a call that then has a thread of its own.
        Not where PyTorch enters and leaves contexts in Python, which may stay entered."""
        if self.rng.random() >= 0.15 or call.around != "nothing":
            return function(), False
        self.note("  (interrupted, perhaps)")
        limit, bppsa._tensors.LONG = bppsa._tensors.LONG, -1

        def interrupt(*_):
            if self.armed:
                self.armed = False
                raise KeyboardInterrupt

        before, hook = signal.signal(signal.SIGALRM, interrupt), sys.unraisablehook
        sys.unraisablehook = lambda event: None if event.exc_type is KeyboardInterrupt else hook(event)  # in a destructor
        try:
            try:
                self.armed = True
                signal.setitimer(signal.ITIMER_REAL, self.rng.random() * 1e-3 + 1e-6)
                return function(), False
            finally:
                self.armed = False
        except KeyboardInterrupt:
            return None, True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            sys.unraisablehook = hook
            bppsa._tensors.LONG = limit

    def delete(self):
        """A module; its graphs outlive it."""
        if len(self.modules) > 1:
            module = self.modules.pop(self.rng.randrange(len(self.modules)))
            self.note(f"del {module.name}")
            if self.rng.random() < 0.5:
                gc.collect()

    def step(self):
        """An optimiser's step on one module, whose graphs are then no longer valid."""
        module = self.rng.choice(self.modules)
        self.note(f"weights of {module.name} change")
        self.graphs = [graph for graph in self.graphs if graph.owner != module.name]
        with torch.no_grad():
            for weight in module.ours.parameters():
                weight.add_(torch.randn_like(weight), alpha=0.05)
        module.copy_weights()

    def freeze(self):
        module = self.rng.choice(self.modules)
        name, weight = self.rng.choice(list(module.ours.named_parameters()))
        weight.requires_grad_(not weight.requires_grad)
        self.note(f"{module.name}.{name}: requires_grad {weight.requires_grad}")
        # A checkpoint that computes again then saves other tensors than it did, which PyTorch refuses.
        self.graphs = [graph for graph in self.graphs if graph.owner != module.name or graph.call.around != "checkpoint"]
        module.copy_weights()

    def fail(self):
        """A wrong call, which changes nothing."""
        module = self.rng.choice(self.modules)
        self.note(f"{module.name}: a wrong call")
        x = torch.randn(3, 2, module.inputs, dtype=module.dtype)
        wrong = [[torch.randn(3, 2, module.inputs + 1, dtype=module.dtype)], [torch.randn(3, dtype=module.dtype)],
                 [x.half()], [x, None, torch.zeros(6, dtype=torch.bool)], [x, None, torch.full((3, 2), 2, dtype=torch.uint8)],
                 [x, None, torch.zeros(3, 2)]]
        try:
            module.ours(*self.rng.choice(wrong))
        except (ValueError, TypeError):
            return
        raise Wrong(f"{module.name}: a wrong call was accepted")

    def threads(self):
        count = self.rng.randint(1, 3)
        self.note(f"torch.set_num_threads({count})")
        torch.set_num_threads(count)

    def drop(self):
        self.note("graphs and results are dropped")
        self.graphs = self.graphs[:self.rng.randint(0, len(self.graphs))]
        self.check_kept()
        self.kept = []

    def check_kept(self):
        for name, result, value in self.kept:
            if not torch.equal(result, value):
                raise Wrong(f"{name}: an output that is kept has changed")

    def fork(self):
        """A child goes backward through a graph of its parent's, and through one of its own."""
        pairs = [(graph, module) for graph in self.graphs for module in self.modules
                 if graph.owner == module.name and graph.call.around in ("nothing", "hooks")]
        if not pairs:
            return
        graph, module = self.rng.choice(pairs)
        self.note(f"fork: backward of {graph.name} in a child")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(120)
                torch.set_num_threads(1)
                self.compare(graph, self.gradients(graph, True))
                x, passed, start = given(graph.call, graph.dtype)
                total = total_of(graph.call, outputs_of(module.ours, graph.call, passed, start))
                wanted = [tensor for tensor in (x, *graph.tensors) if tensor.requires_grad]
                if total.requires_grad and wanted:
                    torch.autograd.grad(total, wanted, allow_unused=True)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        status = os.waitpid(child, 0)[1]
        if status != 0:
            raise Wrong(f"{graph.name}: a child of fork() ended with status {status}")

    ACTIONS = {"forward": 12, "backward": 8, "quiet": 2, "backward_in_threads": 1, "same_bits": 1, "scan": 1, "fresh": 1,
               "delete": 1, "step": 1, "freeze": 1, "fail": 0.5, "threads": 0.3, "drop": 0.3, "fork": 0.4}

    def run(self, steps):
        names, weights = list(self.ACTIONS), list(self.ACTIONS.values())
        for _ in range(steps):
            action = self.rng.choices(names, weights)[0]
            CALLS[action] += 1
            getattr(self, action)()
        while self.graphs:
            graph = self.graphs.pop()
            self.note(f"backward of {graph.name} at the end")
            self.compare(graph, self.gradients(graph, False))
        self.check_kept()


def run(seed, steps):
    """None, or what went wrong in the sequence."""
    sequence = None
    try:
        sequence = Sequence(seed)
        sequence.run(steps)
    except Exception as error:
        text = io.StringIO()
        for line in sequence.log if sequence is not None else ():
            print("   ", line, file=text)
        if not isinstance(error, Wrong):
            traceback.print_exc(file=text)
        return f"sequence {seed}: {type(error).__name__}: {error}\n{text.getvalue()}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--steps", type=int, default=40, help="calls in a sequence [40]")
    parser.add_argument("--verbose", action="store_true", help="say each seed before its sequence begins")
    parser.add_argument("--out", help="where a JSON document about the run goes")
    options = parser.parse_args()
    torch.set_num_threads(2)
    wrong, begin = 0, time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        if options.verbose:
            print(f"sequence {seed}", flush=True)
        text = run(seed, options.steps)
        if text is not None:
            wrong += 1
            print(text, flush=True)
    if options.out is not None:
        document = {"bench": "python_sequences", "torch": torch.__version__, "python": sys.version.split()[0],
                    "bppsa": bppsa.__version__, "sanitizer": "address" if "asan" in os.environ.get("LD_PRELOAD", "") else "none",
                    "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "first_seed": options.seed,
                    "sequences": options.count, "calls": dict(sorted(CALLS.items())), "wrong": wrong,
                    "seconds": round(time.monotonic() - begin)}
        results_file.write(options.out, document)
    print(f"{options.count} sequences of {options.steps} calls from seed {options.seed}, PyTorch {torch.__version__}: "
          f"{wrong} wrong, {time.monotonic() - begin:.0f} s")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
