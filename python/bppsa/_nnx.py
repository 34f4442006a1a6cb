"""bppsa.jax.nnx: flax.nnx.RNN computed by the library, around a cell of flax.nnx."""
from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from flax.nnx.nn.recurrent import flip_sequences

from . import _flax
from .jax import Weights, from_flax

_KINDS = {nnx.SimpleCell: "rnn", nnx.GRUCell: "gru", nnx.LSTMCell: "lstm", nnx.OptimizedLSTMCell: "lstm"}
_NAME = "bppsa.jax.nnx.RNN"


def from_cell(cell: Any) -> Weights:
    """The weights of a SimpleCell, GRUCell, LSTMCell or OptimizedLSTMCell of flax.nnx. Differentiable."""
    if isinstance(cell, nnx.LSTMCell):
        return from_flax({f"{side}{gate}": _dense(getattr(cell, f"{side}{gate}" + ("_" if side + gate == "if" else "")))
                          for side in "ih" for gate in "ifgo"})
    sides = [_dense(cell.dense_i), _dense(cell.dense_h)]
    return Weights(*(side["kernel"].T for side in sides), *(side.get("bias") for side in sides))


def _dense(layer: Any) -> dict[str, Any]:
    found = {name: getattr(layer, name) for name in ("kernel", "bias")}
    return {name: each[...] for name, each in found.items() if each is not None}


class RNN(nnx.RNN):
    """flax.nnx.RNN with a SimpleCell (tanh or relu), GRUCell, LSTMCell or OptimizedLSTMCell: the same arguments, state, outputs and
    carries. Besides: method, forward and threads as in bppsa.jax.gru, and of a call `resets` [*batch, T] (time_major: [T, *batch]),
    where sequences begin anew, from zeros, in front of a step. `unroll` and the arguments of flax.nnx.scan mean nothing here."""

    def __init__(self, cell: Any, *, method: str = "auto", forward: str = "sequential", threads: int = 1, **options: Any) -> None:
        super().__init__(cell, **options)
        self.method, self.forward, self.threads = method, forward, threads

    def __call__(self, inputs: Any, *, initial_carry: Any = None, seq_lengths: Any = None, return_carry: bool | None = None,
                 time_major: bool | None = None, reverse: bool | None = None, keep_order: bool | None = None, rngs: Any = None,
                 resets: Any = None) -> Any:
        cell = self.cell
        kind = _KINDS.get(type(cell))
        if kind is None or getattr(cell, "residual", False):
            raise _flax.refuse(_NAME, cell)
        tanh, relu = {nnx.tanh: False, jnp.tanh: False}, {nnx.relu: True, jax.nn.relu: True}
        is_relu = _flax.check_functions(_NAME, cell, (nnx.sigmoid, jax.nn.sigmoid), {**tanh, **relu} if kind == "rnn" else tanh)
        choice = _flax.Choice(*(own if given is None else given for own, given in (
            (self.time_major, time_major), (self.return_carry, return_carry), (self.reverse, reverse),
            (self.keep_order, keep_order))))
        axis = 0 if choice.time_major else inputs.ndim - 2
        if initial_carry is None:
            streams = self.rngs if rngs is None else rngs
            streams = streams.carry.fork() if isinstance(streams, nnx.Rngs) else streams
            initial_carry = cell.initialize_carry(inputs.shape[:axis] + inputs.shape[axis + 1:], streams)
        return _flax.call(kind, from_cell(cell), is_relu, inputs, initial_carry, cell.dtype, choice, flip_sequences, seq_lengths,
                          resets, {"method": self.method, "forward": self.forward, "threads": self.threads})
