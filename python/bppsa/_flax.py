"""What bppsa.jax.linen and bppsa.jax.nnx share: a call of an RNN module with a cell of Flax."""
from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import jax as layers
from ._native import RequestError


class Choice(NamedTuple):
    """What one call of a module decides."""

    time_major: bool
    return_carry: bool
    reverse: bool
    keep_order: bool


def check_functions(name: str, cell: Any, gates: tuple[Any, ...], activations: dict[Any, bool]) -> bool:
    """Are a cell's functions the sigmoid and, by `activations`, tanh (False) or relu (True)? Gives the latter's answer."""
    gate, activation = getattr(cell, "gate_fn", gates[0]), cell.activation_fn
    if not any(gate is each for each in gates):
        raise RequestError(f"{name}: gate_fn {getattr(gate, '__name__', gate)}, expected sigmoid")
    for function, relu in activations.items():
        if activation is function:
            return relu
    words = " or ".join(sorted({"relu" if relu else "tanh" for relu in activations.values()}))
    raise RequestError(f"{name}: activation_fn {getattr(activation, '__name__', activation)}, expected {words}")


def refuse(name: str, cell: Any) -> RequestError:
    """The error of a cell whose equation is another one."""
    if getattr(cell, "residual", False):
        return RequestError(f"{name}: SimpleCell with residual computes f(W_i x + b + W_h h + h), expected f(W_i x + b + W_h h)")
    return RequestError(f"{name}: a {type(cell).__name__}, expected SimpleCell, GRUCell, LSTMCell or OptimizedLSTMCell")


def call(kind: str, weights: layers.Weights, relu: bool, inputs: Any, carry: Any, dtype: Any, choice: Choice,
         flip: Callable[..., Any], seq_lengths: Any, resets: Any, options: dict[str, Any]) -> Any:
    """The outputs of a module, and its carry if that is wanted, in Flax's shapes and order; carry: an LSTM's is (c, h). inputs
    [*batch, T, I], or with time_major [T, *batch, I]; resets likewise without I."""
    order = (lambda rows, front: rows) if choice.time_major else (lambda rows, front: jnp.moveaxis(rows, *front))
    batch_axes = inputs.ndim - 2
    dtype = jnp.result_type(inputs, weights.w_ih) if dtype is None else dtype
    if choice.reverse and resets is not None:
        raise RequestError("resets: with reverse=True: not supported; turn the sequence and its resets beforehand")
    if choice.reverse:
        inputs = flip(inputs, seq_lengths, num_batch_dims=batch_axes, time_major=choice.time_major)
    x = order(inputs, (batch_axes, 0))
    steps, batch = x.shape[0], x.shape[1:-1]
    flat = math.prod(batch)
    mask = None if resets is None else order(jnp.asarray(resets), (batch_axes, 0)).reshape(steps, flat).astype(bool)
    parts = [part.reshape(flat, -1).astype(dtype) for part in (reversed(carry) if kind == "lstm" else [carry])]
    weights = jax.tree.map(lambda array: array.astype(dtype), weights)
    extra = {"nonlinearity": "relu" if relu else "tanh"} if kind == "rnn" else {"cells": True} if kind == "lstm" else {}
    found = getattr(layers, kind)(x.reshape(steps, flat, -1).astype(dtype), weights, tuple(parts) if kind == "lstm" else parts[0],
                                  resets=mask, **extra, **options)
    rows = (found[2], found[0]) if kind == "lstm" else (found[0],)
    outputs = order(rows[-1].reshape(steps, *batch, -1), (0, batch_axes))
    if choice.reverse and choice.keep_order:
        outputs = flip(outputs, seq_lengths, num_batch_dims=batch_axes, time_major=choice.time_major)
    if not choice.return_carry:
        return outputs
    last = steps - 1 if seq_lengths is None else jnp.asarray(seq_lengths).reshape(flat) - 1
    ends = tuple(each[last, np.arange(flat)].reshape(*batch, -1) for each in rows)
    return (ends if kind == "lstm" else ends[0]), outputs
