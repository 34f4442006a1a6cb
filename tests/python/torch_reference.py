"""Random layers of bppsa.torch beside torch.nn's plain autograd in float64, and the memory that calls keep, for tests and for
bench/scripts/torch_random.py."""
import gc
import os
import random

import torch

import bppsa.torch
from bppsa import _native

CELLS = ("RNN", "GRU", "LSTM")


def leaves(tree):
    return torch.utils._pytree.tree_leaves(tree)


def worst(found, expected):
    """The largest difference over the largest number of each array."""
    found, expected = leaves(found), leaves(expected)
    assert len(found) == len(expected) > 0
    return max(((one - other).abs().max() / max(1, other.abs().max())).item() for one, other in zip(found, expected))


def twins(cell, *sizes, **options):
    """A layer of torch.nn and one of ours with its weights, in float64."""
    ours = getattr(bppsa.torch, cell)(*sizes, **options).double()
    theirs = getattr(torch.nn, cell)(*sizes, **{name: value for name, value in options.items() if name != "scan"}).double()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def real(*shape, **options):
    return torch.randn(*shape, dtype=torch.float64, **options)


def flat(results):
    """An output, and the last states behind it."""
    output, last = results[:2]
    return [output, *(last if isinstance(last, tuple) else [last])]


class Random:
    """A random layer, its input and initial state, and the weights of a loss on all results."""

    def __init__(self, seed):
        choose = random.Random(seed)
        torch.manual_seed(seed)
        self.cell = choose.choice(CELLS)
        steps, batch, width, hidden = choose.randint(1, 12), choose.randint(1, 4), choose.randint(1, 5), choose.randint(1, 7)
        options = {"num_layers": choose.choice((1, 1, 2, 3)), "bias": choose.random() < 0.8,
                   "bidirectional": choose.random() < 0.3, "batch_first": choose.random() < 0.3}
        if self.cell == "RNN" and choose.random() < 0.3:
            options["nonlinearity"] = "relu"
        self.options = {**options, "scan": choose.choice(("auto", "bp", "scan", "linear", "blelloch", "chunked 3"))}
        self.layers = twins(self.cell, width, hidden, **self.options)
        self.x = real(*((batch, steps, width) if options["batch_first"] else (steps, batch, width)), requires_grad=True)
        count = options["num_layers"] * (1 + options["bidirectional"])
        self.states = [real(count, batch, hidden, requires_grad=True) for _ in range(1 + (self.cell == "LSTM"))
                       ] if choose.random() < 0.6 else []
        self.weights = None

    def state(self, parts):
        return None if not parts else tuple(parts) if self.cell == "LSTM" else parts[0]

    def loss(self, layer, x, *states):
        results = flat(layer(x, self.state(states)))
        if self.weights is None:
            self.weights = [real(*result.shape) for result in results]
        return sum((weight * result + result.square()).sum() for weight, result in zip(self.weights, results))

    def __str__(self):
        return f"{self.cell} {self.options} {list(self.x.shape)} states {len(self.states)}"


def compare(case):
    """The largest differences between the two layers: values, gradients, gradients of a penalty on them, derivatives along a
    direction, and products with the Hessian, both ways, which are compared with each other too (symmetry)."""
    inputs, sides = [case.x, *case.states], []
    along = [real(*tensor.shape) for tensor in inputs]
    for layer in case.layers:
        tensors = [*inputs, *layer.parameters()]
        first = torch.autograd.grad(case.loss(layer, *inputs), tensors, create_graph=True)
        penalty = sum(gradient.square().sum() for gradient in first)
        second = torch.autograd.grad(penalty, tensors)
        plain = {name: weight.detach() for name, weight in layer.named_parameters()}

        def results(weights, *inputs, layer=layer):
            return flat(torch.func.functional_call(layer, weights, (inputs[0], case.state(inputs[1:]))))

        def total(*point, results=results):
            return sum((weight * result + result.square()).sum() for weight, result in zip(case.weights, results(*point)))

        point = (plain, *[tensor.detach() for tensor in inputs])
        direction = ({name: torch.ones_like(weight) for name, weight in plain.items()}, *along)
        places = tuple(range(len(point)))
        values, along_them = torch.func.jvp(results, point, direction)
        product = torch.func.jvp(torch.func.grad(total, places), point, direction)[1]
        other = torch.func.grad(lambda *at: torch.func.jvp(total, at, direction)[1], places)(*point)
        sides.append({"value": values, "gradient": first, "penalty": second, "jvp": along_them, "forward over reverse": product,
                      "reverse over forward": other})
    theirs, ours = sides
    found = {name: worst(ours[name], theirs[name]) for name in ours}
    found["symmetry"] = worst(ours["forward over reverse"], ours["reverse over forward"])
    return found


class Calls:
    """Calls of all kinds of one layer, in any order."""

    def __init__(self):
        self.layer, self.x, self.choose = bppsa.torch.LSTM(2, 3, 2, bidirectional=True), torch.randn(6, 2, 2), random.Random(1)
        packed = torch.nn.utils.rnn.pack_padded_sequence(self.x, [6, 4])
        mask, total, x = torch.rand(6, 2) < 0.3, self.total, self.x
        self.kinds = [lambda: self.layer(x), lambda: total(x).backward(), self.penalty, lambda: torch.func.grad(total)(x),
                      lambda: torch.func.jvp(total, (x,), (x,)), lambda: torch.func.vmap(total)(x.expand(3, 6, 2, 2)),
                      lambda: torch.func.vmap(torch.func.grad(total))(x.expand(2, 6, 2, 2)),
                      lambda: self.layer(packed)[0].data.sum().backward(), lambda: self.layer(x, None, mask)[0].sum().backward()]

    def total(self, x):
        return self.layer(x)[0].square().sum()

    def penalty(self):
        given = self.x.clone().requires_grad_()
        torch.autograd.grad(self.total(given), given, create_graph=True)[0].square().sum().backward()

    def run(self, count):
        for _ in range(count):
            self.choose.choice(self.kinds)()
            self.layer.zero_grad()
        gc.collect()

    def kept(self, count):
        """The blocks of the library and the bytes of the process that so many calls keep, behind as many others."""
        self.run(count)
        blocks, begin = _native.allocated(), resident()
        self.run(count)
        return _native.allocated() - blocks, resident() - begin


def resident():
    """Bytes of memory that the process has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
