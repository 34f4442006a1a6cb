#!/usr/bin/env python3
"""PyTorch's and JAX's recurrent layers in the rounds of `bppsa bench rnn`, `gru`, `lstm`, `forward` and `step`.

    build/cpu/bppsa bench rnn --rivals bench/rivals/recurrent.py [--seq-len 1000 --batch 16 --hidden 20]

The program starts this script and talks to it as bench/rivals/guest.h says: it hands over weights, inputs and a seed gradient,
compares the gradients that come back with its own float64 ones, and then asks for one pass a round. The methods:

  pytorch               nn.RNN, nn.GRU or nn.LSTM, and autograd
  pytorch_graph         on a GPU: the same two passes replayed as CUDA graphs. A forward pass runs before each replay and keeps the
                        GPU busy while the host queues the graph, because in the program's rows no graph waits for its launch.
  jax_scan_U            lax.scan over time with U steps unrolled, compiled. The input's products stand outside the scan. The
                        forward pass is compiled alone, and keeps nothing; the forward and the backward pass are compiled as one
                        program; the backward pass is what that program takes beyond the forward pass.
  jax_associative_scan  the same forward pass; backward lax.associative_scan over the steps' Jacobians, then the gradients of the
                        weights of all steps at once

In `bench step`, pytorch makes a training step: the layers, a linear layer, the cross-entropy, autograd and torch.optim.Adam, and
pytorch_graph is one CUDA graph of it. In front of each, weights and averages are set back, which is not timed. jax_scan_U compiles
the same step, with Adam written out, as one program.

Backward computes the gradients of all weights, not the input's. On a GPU events in the stream time PyTorch's passes, cuDNN's TF32
is off; JAX's products are exact there too, and the host times its passes from the call to the results, launches included. Where
bench/rivals/setup has made its environment, the script runs in it; otherwise it uses what the interpreter has, and a library that
is missing is refused with the command that installs it. The libraries are imported while the program goes on with its own: the
first method that needs one waits for it.
"""
import functools
import os
import time

from cells import cell_of, jax_functions
from guest import MISSING, Refused, import_libraries, jax, jnp, limit_threads, need, np, serve, torch  # noqa: F401, for others

UNROLLED = [1, 2, 4, 8]
MOST_NODES = 16384  # of a graph, as in bench/cases/rnn_run.c


# ---- PyTorch ----


class Autograd:
    """Layers that autograd differentiates: layer() computes one of them, on arrays whose axis of time is the class's."""

    time = 0

    def __init__(self, point, device):
        self.device, self.point, self.both = device, point, not point["forward_only"]
        x, seed = (torch.from_numpy(point[key].copy()).to(device) for key in ("x", "seed"))
        self.x = x.transpose(0, self.time).contiguous()
        self.seed = seed.transpose(0, self.time).contiguous() if seed.dim() == 3 else seed
        self.every = seed.dim() == 3 or not self.both
        self.parameters = self.take(list(point["weights"].values()))

    def take(self, weights):
        """The weights on the device, W_ih, W_hh, b_ih, b_hh of each layer."""
        return [torch.from_numpy(w.copy()).to(self.device).requires_grad_() for w in weights]

    def forward(self):
        states = self.x
        for i in range(0, len(self.parameters), 4):
            states = self.layer(states, *self.parameters[i : i + 4])
        self.h = states if self.every else states.select(self.time, -1)

    def backward(self):
        self.gradients = torch.autograd.grad(self.h, self.parameters, self.seed)

    def seconds(self):
        if self.device == "cuda":
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
            marks[0].record()
            self.forward()
            marks[1].record()
            if self.both:
                self.backward()
            marks[2].record()
            torch.cuda.synchronize()
            return [1e-3 * marks[i].elapsed_time(marks[i + 1]) for i in range(1 + self.both)]
        start = time.perf_counter()
        self.forward()
        middle = time.perf_counter()
        if not self.both:
            return [middle - start]
        self.backward()
        return [middle - start, time.perf_counter() - middle]

    def results(self):
        """The top layer's last states [B,H] and the gradients of the weights; without a backward pass its states alone [T,B,H]."""
        self.seconds()
        if not self.both:
            return [self.h.detach().transpose(0, self.time).cpu().numpy()]
        last = self.h.select(self.time, -1) if self.seed.dim() == 3 else self.h
        return [tensor.detach().cpu().numpy() for tensor in (last, *self.gradients)]


class PyTorch(Autograd):
    """nn.RNN, nn.GRU or nn.LSTM."""

    def take(self, weights):
        point = self.point
        options = {"nonlinearity": point["nonlinearity"]} if point["model"] == "rnn" else {}
        kind = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[point["model"]]
        self.layers = kind(point["input"], point["hidden"], point["layers"], **options)
        self.layers.to(self.x.dtype)
        names = [name.split(".", 1)[1] for name in point["weights"]]
        self.layers.load_state_dict({name: torch.from_numpy(w.copy()) for name, w in zip(names, weights)})
        self.layers.to(self.device)
        return [dict(self.layers.named_parameters())[name] for name in names]

    def forward(self):
        states, last = self.layers(self.x)
        last = last[0] if isinstance(last, tuple) else last  # of an LSTM (h, c)
        self.h = states if self.every else last[-1]


def check_replay(point, device):
    if device != "cuda":
        raise Refused("PyTorch replays graphs on a GPU alone")
    launches = 2 * point["seq_len"] * point["layers"]  # of cuDNN's standard algorithm, which PyTorch takes
    if launches > MOST_NODES:
        raise Refused(f"a graph of {launches} launches or more, expected at most {MOST_NODES}")


def warm_up(passes):
    """Makes passes on a side stream: what libraries do on first use is no part of a graph. Nothing that autograd knows of them may
    be left when a graph is captured: its gradients would go through their stream, and the capture would fail."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            passes()
    torch.cuda.current_stream().wait_stream(side)


class Replay(PyTorch):
    """PyTorch's passes as CUDA graphs."""

    def __init__(self, point, device):
        check_replay(point, device)
        super().__init__(point, device)
        warm_up(lambda: [PyTorch.forward(self), self.both and PyTorch.backward(self)])
        self.h = self.gradients = None
        self.graphs = [torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()]
        with torch.cuda.graph(self.graphs[0]):
            super().forward()
        if self.both:
            with torch.cuda.graph(self.graphs[1], pool=self.graphs[0].pool()):
                super().backward()

    def forward(self):
        self.graphs[0].replay()

    def backward(self):
        self.graphs[1].replay()

    def seconds(self):
        self.forward()
        return super().seconds()


class Step(PyTorch):
    """A training step: layers, a linear layer, the cross-entropy, Adam."""

    def __init__(self, point, device):
        names = list(point["weights"])
        super().__init__(dict(point, weights={name: point["weights"][name] for name in names[:-2]}), device)
        self.head = torch.nn.Linear(point["hidden"], point["classes"]).to(self.x)
        with torch.no_grad():
            for parameter, name in zip(self.head.parameters(), names[-2:]):
                parameter.copy_(torch.from_numpy(point["weights"][name].copy()))
        self.parameters += list(self.head.parameters())
        self.labels, self.every = self.seed.long().flatten(), self.seed.dim() == 2
        self.before = [parameter.detach().clone() for parameter in self.parameters]
        self.optimizer = torch.optim.Adam(self.parameters, point["lr"], **({"capturable": True} if device == "cuda" else {}))

    def step(self):
        states, _ = self.layers(self.x)
        logits = self.head(states if self.every else states[-1]).flatten(0, -2)
        self.optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(logits, self.labels).backward()
        self.optimizer.step()

    def set_back(self):
        with torch.no_grad():
            for parameter, value in zip(self.parameters, self.before):
                parameter.copy_(value)
            for averages in self.optimizer.state.values():
                for value in averages.values():
                    value.zero_()

    def seconds(self):
        self.set_back()
        if self.device == "cuda":
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            marks[0].record()
            self.step()
            marks[1].record()
            torch.cuda.synchronize()
            return [1e-3 * marks[0].elapsed_time(marks[1])]
        start = time.perf_counter()
        self.step()
        return [time.perf_counter() - start]

    def results(self):
        """The gradients of all parameters, and the parameters behind the step."""
        self.seconds()
        tensors = [parameter.grad for parameter in self.parameters] + self.parameters
        return [tensor.detach().cpu().numpy() for tensor in tensors]


class StepReplay(Step):
    """The same step as one CUDA graph."""

    def __init__(self, point, device):
        check_replay(point, device)
        super().__init__(point, device)
        warm_up(super().step)
        self.graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph):
            super().step()

    def step(self):
        self.graph.replay()


# ---- JAX ----


def run_layers(cell, unroll, every, weights, x, whole=False):
    """h of the top layer: [T,B,H], or of the last step alone [B,H]. whole: of one layer the states, c behind h."""
    for i, w in enumerate(weights):
        keep = every or i + 1 < len(weights)
        advance = lambda h, a, w=w, keep=keep: (lambda new: (new, new if keep else None))(cell.step(w, a, h))
        hidden = w[1].shape[1]
        zero = jnp.zeros((x.shape[1], cell.width * hidden), x.dtype)
        last, x = jax.lax.scan(advance, zero, cell.take_input(w, x), unroll=unroll)
        x = x[..., :hidden] if keep and not whole else x
    return x if every else last[..., :hidden]


def join(first, second):
    """g -> g M + v, one map after the other."""
    return first[0] @ second[0], (first[1][..., None, :] @ second[0])[..., 0, :] + second[1]


def scan_back(cell, w, x, states, seeds):
    """The gradients of one layer's weights and of its input, from those that enter at each step: g_{t-1} = J_t' g_t + s_{t-1}."""
    before = jnp.concatenate([jnp.zeros_like(states[:1]), states[:-1]])
    matrices = cell.jacobian(w, cell.take_input(w, x), before)
    matrices = jnp.concatenate([matrices[1:], jnp.zeros_like(matrices[:1])])
    seeds = jnp.concatenate([seeds, jnp.zeros((*seeds.shape[:-1], states.shape[-1] - seeds.shape[-1]), seeds.dtype)], -1)
    g = jax.lax.associative_scan(join, (matrices, seeds), reverse=True)[1]
    return jax.vjp(lambda w, x: cell.step(w, cell.take_input(w, x), before), w, x)[1](g)


def run_associative(cell, every, weights, x, seed):
    inputs, states = [x], []
    for w in weights:
        states.append(run_layers(cell, 1, True, [w], inputs[-1], whole=True))
        inputs.append(states[-1][..., : w[1].shape[1]])
    seeds = seed if every else jnp.zeros_like(inputs[-1]).at[-1].set(seed)
    gradients = []
    for w, below, h in zip(reversed(weights), reversed(inputs[:-1]), reversed(states)):
        found, seeds = scan_back(cell, w, below, h, seeds)
        gradients.insert(0, found)
    return gradients


@functools.lru_cache(maxsize=None)  # compiled programs are kept with the function
def programs(model, nonlinearity, every, unroll):
    """The forward pass, and both passes, which give the gradients of the weights."""
    cell = cell_of(jax_functions(jax), model, nonlinearity)
    forward = functools.partial(run_layers, cell, unroll or 1, every)
    if unroll:
        both = lambda weights, x, seed: jax.vjp(lambda w: forward(w, x), weights)[1](seed)[0]
    else:
        both = functools.partial(run_associative, cell, every)
    return jax.jit(forward), jax.jit(both)


class Jax:
    """Compiled programs, which make() gives."""

    def __init__(self, point, device):
        self.forward_only = point["forward_only"]
        self.x, self.seed = jnp.asarray(point["x"]), jnp.asarray(point["seed"])
        self.every = self.seed.ndim == 3 or self.forward_only
        weights = [jnp.asarray(w) for w in point["weights"].values()]
        self.weights = [tuple(weights[i : i + 4]) for i in range(0, len(weights), 4)]
        self.forward, self.both = self.make(point, device)

    def seconds(self):
        for _ in range(100):
            start = time.perf_counter()
            jax.block_until_ready(self.forward(self.weights, self.x))
            middle = time.perf_counter()
            if self.forward_only:
                return [middle - start]
            jax.block_until_ready(self.both(self.weights, self.x, self.seed))
            forward, both = middle - start, time.perf_counter() - middle
            if both > forward:  # not so where something else held up the forward pass
                return [forward, both - forward]
        raise Refused("a hundred times both passes took no longer than the forward pass alone")

    def results(self):
        states = self.forward(self.weights, self.x)
        if self.forward_only:
            return [np.asarray(self.unpack(states)[0])]
        states, gradients = self.unpack(states, self.both(self.weights, self.x, self.seed))
        last = states[-1] if states.ndim == 3 else states
        return [np.asarray(array) for array in (last, *(g for layer in gradients for g in layer))]

    def unpack(self, states, gradients=None):
        """States by time, and the gradients of each layer's weights."""
        return states, gradients


class Scan(Jax):
    """unroll 0: the associative scan."""

    def __init__(self, unroll, point, device):
        self.unroll = unroll
        super().__init__(point, device)

    def make(self, point, device):
        if not self.unroll:
            self.check_memory(point, device)
            if self.forward_only:
                raise Refused("its forward pass is that of jax_scan_1")
        return programs(point["model"], point.get("nonlinearity"), self.every, self.unroll)

    @staticmethod
    def check_memory(point, device):
        """The Jacobians, the levels of their scan and its results."""
        size = (2 if point["model"] == "lstm" else 1) * point["hidden"]
        need = 6 * point["x"].itemsize * point["seq_len"] * point["batch"] * size ** 2
        held = jax.devices()[0].memory_stats() if device == "cuda" else None
        limit = (held["bytes_limit"] if held else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) // 2
        if need > limit:
            raise Refused(f"needs about {need} bytes, half of the memory is {limit}")


@functools.lru_cache(maxsize=None)
def step_program(model, nonlinearity, every, unroll):
    """A training step: the new weights, Adam's new averages, and the gradients."""
    cell = cell_of(jax_functions(jax), model, nonlinearity)

    def loss(parameters, x, labels):
        layers, (w, b) = parameters
        logits = (run_layers(cell, unroll, every, layers, x) @ w.T + b).reshape(-1, len(b))
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()

    def step(parameters, averages, count, lr, x, labels):
        gradients, count = jax.grad(loss)(parameters, x, labels), count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, averages[0], gradients)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, averages[1], gradients)
        adam = lambda p, m, v: p - lr * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)
        return jax.tree.map(adam, parameters, first, second), (first, second), gradients

    return jax.jit(step)


class JaxStep:
    """The layers by lax.scan, a linear layer, the cross-entropy, and Adam, which torch.optim.Adam's defaults describe."""

    def __init__(self, unroll, point, device):
        weights = [jnp.asarray(w) for w in point["weights"].values()]
        layers = [tuple(weights[i : i + 4]) for i in range(0, len(weights) - 2, 4)]
        self.x, dtype = jnp.asarray(point["x"]), point["x"].dtype
        self.parameters = layers, tuple(weights[-2:])
        self.averages = (jax.tree.map(jnp.zeros_like, self.parameters),) * 2
        self.labels = jnp.asarray(point["seed"].astype("int32").reshape(-1))
        self.count, self.lr = jnp.zeros((), dtype), jnp.asarray(point["lr"], dtype)
        self.step = step_program(point["model"], point.get("nonlinearity"), point["seed"].ndim == 2, unroll)

    def seconds(self):
        start = time.perf_counter()
        done = self.step(self.parameters, self.averages, self.count, self.lr, self.x, self.labels)
        self.after, _, self.gradients = jax.block_until_ready(done)
        return [time.perf_counter() - start]

    def results(self):
        self.seconds()
        return [np.asarray(array) for array in jax.tree.leaves((self.gradients, self.after))]


STEPS = {"pytorch": Step, "pytorch_graph": StepReplay,
         **{f"jax_scan_{unroll}": functools.partial(JaxStep, unroll) for unroll in UNROLLED}}


METHODS = {"pytorch": ("PyTorch", PyTorch), "pytorch_graph": ("PyTorch", Replay),
           **{f"jax_scan_{unroll}": ("JAX", functools.partial(Scan, unroll)) for unroll in UNROLLED},
           "jax_associative_scan": ("JAX", functools.partial(Scan, 0))}
if __name__ == "__main__":
    serve(__doc__, METHODS, "torch", "jax", steps=STEPS)
