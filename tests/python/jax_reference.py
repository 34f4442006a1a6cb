"""Recurrent layers as jax.lax.scan over a cell, which is what bppsa.jax's functions are held against, and random cases of them."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import bppsa.jax as bj

KINDS = ("rnn", "gru", "lstm")
METHODS = ("auto", "bp", "linear", "blelloch", "blelloch 2", "chunked", "chunked 3")


def parts_of(state):
    return state if isinstance(state, tuple) else (state,)


def layer(kind, x, weights, state=None, resets=None, lengths=None, reverse=False, nonlinearity="tanh"):
    """y, the last state, and of an LSTM all c."""
    steps, batch = x.shape[:2]
    hidden = weights.w_hh.shape[1]
    pair = kind == "lstm"
    zeros = jnp.zeros((batch, hidden), x.dtype)
    start = tuple(zeros for _ in range(1 + pair)) if state is None else parts_of(state)
    fresh = jnp.zeros((1 + pair) * hidden, x.dtype) if weights.reset_state is None else weights.reset_state
    fresh = jnp.split(fresh, 1 + pair)
    resets = jnp.zeros((steps, batch), bool) if resets is None else resets
    lengths = jnp.full(batch, steps) if lengths is None else lengths
    if reverse:  # a reset cuts time in front of its step
        resets = jnp.concatenate([resets[1:], jnp.zeros((1, batch), bool)]) & (jnp.arange(steps)[:, None] + 1 < lengths)

    def step(carry, now):
        x_t, resets_t, t = now
        begun = tuple(jnp.where(resets_t[:, None], new, part) for new, part in zip(fresh, carry))
        runs = (t < lengths)[:, None]
        found = parts_of(bj.cell(kind, x_t, weights, begun if pair else begun[0], nonlinearity))
        return (tuple(jnp.where(runs, part, old) for part, old in zip(found, carry)),
                tuple(jnp.where(runs, part, 0) for part in found))

    last, rows = lax.scan(step, start, (x, resets, jnp.arange(steps)), reverse=reverse)
    return (rows[0], last, rows[1]) if pair else (rows[0], last[0])


def run(kind, x, weights, state=None, **options):
    """The same by bppsa.jax."""
    return getattr(bj, kind)(x, weights, state, **({"cells": True} if kind == "lstm" else {}), **options)


class Case:
    """A random layer with everything that a call may have."""

    def __init__(self, seed, dtype=np.float64):
        random = np.random.default_rng(seed)
        self.kind = KINDS[seed % 3]
        self.steps, self.batch, self.width, self.hidden = (int(random.integers(1, most)) for most in (20, 5, 5, 8))
        gates, parts = {"rnn": 1, "gru": 3, "lstm": 4}[self.kind], 2 if self.kind == "lstm" else 1
        draw = lambda *shape: jnp.asarray(random.standard_normal(shape), dtype)  # noqa: E731
        rows = gates * self.hidden
        biases = [draw(rows) if random.random() < 0.7 else None for _ in range(2)]
        self.options = {"method": METHODS[int(random.integers(len(METHODS)))], "threads": int(random.integers(1, 4)),
                        "reverse": bool(random.random() < 0.3)}
        self.masks = {}
        if random.random() < 0.6:
            self.masks["resets"] = jnp.asarray(random.random((self.steps, self.batch)) < random.choice([0.0, 0.1, 0.5, 1.0]))
        if random.random() < 0.3:
            self.masks["lengths"] = jnp.asarray(random.integers(1, self.steps + 1, self.batch))
        learned = "resets" in self.masks and random.random() < 0.4
        self.weights = bj.Weights(draw(rows, self.width), draw(rows, self.hidden) * self.hidden ** -0.5, *biases,
                                  draw(parts * self.hidden) if learned else None)
        self.x = draw(self.steps, self.batch, self.width)
        states = tuple(draw(self.batch, self.hidden) for _ in range(parts))
        self.state = None if random.random() < 0.3 else states if parts == 2 else states[0]
        if self.kind == "rnn" and random.random() < 0.3:
            self.options["nonlinearity"] = "relu"
        self.reference_options = {name: self.options[name] for name in ("reverse", "nonlinearity") if name in self.options}
        shapes = jax.eval_shape(self.reference, self.arguments)
        self.seeds = jax.tree.map(lambda each: draw(*each.shape) if random.random() < 0.8 else jnp.zeros(each.shape, dtype), shapes)

    @property
    def arguments(self):
        return self.x, self.weights, self.state

    def reference(self, arguments):
        return layer(self.kind, *arguments, **self.masks, **self.reference_options)

    def ours(self, arguments):
        return run(self.kind, *arguments, **self.masks, **self.options)

    def loss(self, function):
        """A loss that is not linear in the outputs, so that its second derivatives have every term."""
        return lambda arguments: sum(jnp.vdot(seed, rows) + 0.3 * jnp.vdot(seed * rows, rows) for seed, rows in
                                     zip(jax.tree.leaves(self.seeds), jax.tree.leaves(function(arguments))))

    def __str__(self):
        return (f"{self.kind} T {self.steps} B {self.batch} I {self.width} H {self.hidden} {self.options} {sorted(self.masks)} "
                f"{[name for name, each in self.weights._asdict().items() if each is not None]} state {self.state is not None}")


def derivatives(case, function, seed):
    """A function of the case's arguments: by name the jvp, the four ways to a Hessian-vector product, and a second derivative of
    all outputs. function: case.ours or case.reference."""
    random = np.random.default_rng(seed + 1000)
    along, weights = (jax.tree.map(lambda each: jnp.asarray(random.standard_normal(each.shape)), case.arguments) for _ in range(2))
    loss = case.loss(function)

    def dot(one, other):
        return sum(map(jnp.vdot, jax.tree.leaves(one), jax.tree.leaves(other)))

    def compute(at):
        return {"jvp": jax.jvp(function, (at,), (along,)),
                "jvp of grad": jax.jvp(jax.grad(loss), (at,), (along,)),
                "grad of grad": jax.grad(lambda x: dot(jax.grad(loss)(x), weights))(at),
                "grad of jvp": jax.grad(lambda x: jax.jvp(loss, (x,), (along,))[1])(at),
                "jvp of jvp": jax.jvp(lambda x: jax.jvp(function, (x,), (along,)), (at,), (weights,))}
    return compute


def distance(found, reference):
    """The largest difference of two trees, relative to the largest number of each array where that is above 1."""
    found, reference = jax.tree.leaves(found), jax.tree.leaves(reference)
    assert len(found) == len(reference), (len(found), len(reference))
    worst = 0.0
    for each, wanted in zip(found, reference):
        each, wanted = np.asarray(each, np.float64), np.asarray(wanted, np.float64)
        assert each.shape == wanted.shape, (each.shape, wanted.shape)
        if each.size:
            worst = max(worst, float(np.abs(each - wanted).max() / max(1.0, np.abs(wanted).max())))
    return worst


def same_bits(one, other):
    one, other = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(one) == len(other) and all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(one, other))
