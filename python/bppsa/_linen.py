"""bppsa.jax.linen: flax.linen.RNN computed by the library. The parameters, and their tree, are those of flax.linen.RNN with the
same cell, so checkpoints go both ways."""
from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.recurrent import flip_sequences

from . import _flax
from .jax import from_flax

_KINDS = {nn.SimpleCell: "rnn", nn.GRUCell: "gru", nn.LSTMCell: "lstm", nn.OptimizedLSTMCell: "lstm"}
_NAME = "bppsa.jax.linen.RNN"


class RNN(nn.RNN):
    """flax.linen.RNN with a SimpleCell (tanh or relu), GRUCell, LSTMCell or OptimizedLSTMCell: the same arguments, parameters,
    outputs and carries. Besides: method, forward and threads as in bppsa.jax.gru, and of a call `resets` [*batch, T] (time_major:
    [T, *batch]), where sequences begin anew, from zeros, in front of a step. `unroll` and the arguments of flax.linen.scan mean
    nothing here."""

    method: str = "auto"
    forward: str = "sequential"
    threads: int = 1

    def __call__(self, inputs: Any, *, initial_carry: Any = None, init_key: Any = None, seq_lengths: Any = None,
                 return_carry: bool | None = None, time_major: bool | None = None, reverse: bool | None = None,
                 keep_order: bool | None = None, resets: Any = None) -> Any:
        cell = self.cell
        kind = _KINDS.get(type(cell))
        if kind is None or getattr(cell, "residual", False):
            raise _flax.refuse(_NAME, cell)
        tanh, relu = {nn.tanh: False, jnp.tanh: False}, {nn.relu: True, jax.nn.relu: True}
        is_relu = _flax.check_functions(_NAME, cell, (nn.sigmoid, jax.nn.sigmoid), {**tanh, **relu} if kind == "rnn" else tanh)
        choice = _flax.Choice(*(own if given is None else given for own, given in (
            (self.time_major, time_major), (self.return_carry, return_carry), (self.reverse, reverse),
            (self.keep_order, keep_order))))
        axis = 0 if choice.time_major else inputs.ndim - 2
        step = inputs.shape[:axis] + inputs.shape[axis + 1:]
        if initial_carry is None:
            initial_carry = cell.initialize_carry(jax.random.key(0) if init_key is None else init_key, step)
        if self.is_initializing():
            cell(initial_carry, jnp.zeros(step, inputs.dtype))  # makes the parameters, as Flax does
        return _flax.call(kind, from_flax(cell.variables["params"]), is_relu, inputs, initial_carry, cell.dtype, choice,
                          flip_sequences, seq_lengths, resets,
                          {"method": self.method, "forward": self.forward, "threads": self.threads})
