"""Recurrent layers for JAX: rnn, gru, lstm, computed by the library in one pass over all steps, forward and backward.

    y, h = bppsa.jax.gru(x, weights, h0, resets=resets)        # x [T, B, I], y [T, B, H]

Letters: T steps, B samples, I inputs, H units, G gates (1 of an RNN, 3 of a GRU, 4 of an LSTM). Weights have PyTorch's layouts:
w_ih [G·H, I], w_hh [G·H, H], b_ih and b_hh [G·H], gates in the order r, z, n of a GRU, whose reset gate acts behind the product
with h (Cho et al. 2014 as cuDNN and PyTorch compute it), and i, f, g, o of an LSTM.

`scan` is the linear recurrence h_t = A_t h_{t-1} + b_t by itself.

`init` makes weights, `from_flax`, `from_equinox` and `from_haiku` take those of other libraries' cells, `bppsa.jax.linen`,
`bppsa.jax.nnx` and `bppsa.jax.equinox` have modules. `cell` is one step, for programs that act between two steps. Float32 and
float64; on the CPU, and layers on a GPU too, where the library was built with CUDA.
"""
from __future__ import annotations

import functools as _functools
import importlib as _importlib
import types as _types
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import jax
import jax.numpy as jnp
import numpy as np

from . import _native, _xla, _xla_scan
from ._native import RequestError, RunError

__all__ = ["FFI_TARGETS", "RequestError", "RunError", "Weights", "cell", "from_equinox", "from_flax", "from_haiku", "gru", "init",
           "lstm", "rnn", "scan"]


class Weights(NamedTuple):
    """The weights of a layer, a pytree. reset_state [S]: a learned state, [H] or of an LSTM [2H], h in front of c, that takes the
    place of 0 where a sample begins anew."""

    w_ih: Any
    w_hh: Any
    b_ih: Any = None
    b_hh: Any = None
    reset_state: Any = None


# The names that jax.export is to let pass, in disabled_checks.
FFI_TARGETS = ("bppsa_forward", "bppsa_backward", "bppsa_tangent", "bppsa_second", "bppsa_third", _xla.TARGET_SCAN)
Given = Union[Weights, Mapping[str, Any], Sequence[Any]]
State = Any  # h [B, H], of an LSTM a pair (h, c)
_GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def _weights(name: str, given: Given) -> Weights:
    try:
        weights = Weights(**given) if isinstance(given, Mapping) else Weights(*given)
    except TypeError as reason:
        raise RequestError(f"{name}: weights: expected bppsa.jax.Weights, or its arrays by name or in order: w_ih, w_hh, b_ih, "
                           f"b_hh, reset_state ({reason})") from None
    if weights.w_ih is None or weights.w_hh is None:
        raise RequestError(f"{name}: weights: expected w_ih and w_hh")
    return weights


def _array(name: str, what: str, value: Any, shape: Sequence[Any], words: str, dtype: Any, like: str = "x") -> Any:
    """The array, if it has the shape, whose letters are `words`, and the type, which is that of `like`."""
    array = jnp.asarray(value)
    if array.dtype != dtype:
        raise RequestError(f"{name}: {what}: {array.dtype}, expected {dtype}, as {like}")
    if tuple(array.shape) != tuple(shape):
        raise RequestError(f"{name}: {what}: shape {list(array.shape)}, expected {words} = {list(shape)}")
    return array


def _spans(name: str, resets: Any, lengths: Any, shape: Sequence[Any]) -> tuple[Any, Any]:
    """Resets as truth values [T, B], and lengths as int32 [B]."""
    steps, batch = shape
    if resets is not None:
        resets = jnp.asarray(resets)
        if resets.dtype != np.bool_:
            raise RequestError(f"{name}: resets: {resets.dtype}, expected bool")
        if tuple(resets.shape) != (steps, batch):
            raise RequestError(f"{name}: resets: shape {list(resets.shape)}, expected [T, B] = {[steps, batch]}")
    if lengths is not None:
        lengths = jnp.asarray(lengths)
        if not jnp.issubdtype(lengths.dtype, jnp.integer):
            raise RequestError(f"{name}: lengths: {lengths.dtype}, expected whole numbers")
        if tuple(lengths.shape) != (batch,):
            raise RequestError(f"{name}: lengths: shape {list(lengths.shape)}, expected [B] = {[batch]}")
        lengths = lengths.astype(jnp.int32)
    return resets, lengths


def _turn(rows: Any, lengths: Any) -> Any:
    """The steps of every sample in the other order; rows [T, B, ..]. Those behind its end stay."""
    if lengths is None:
        return jnp.flip(rows, 0)
    step = jnp.arange(rows.shape[0])[:, None]
    order = jnp.where(step < lengths, lengths - 1 - step, step)
    return jnp.take_along_axis(rows, order.reshape(*order.shape, *(1,) * (rows.ndim - 2)), 0)


def _turned_resets(resets: Any, lengths: Any) -> Any:
    """A reset in front of step t cuts time between t - 1 and t: where the walk backwards begins anew, in the order of its steps."""
    cuts = jnp.concatenate([resets[1:], jnp.zeros_like(resets[:1])])
    if lengths is not None:
        cuts = cuts & (jnp.arange(cuts.shape[0])[:, None] + 1 < lengths)
    return _turn(cuts, lengths)


def _layer(kind: str, x: Any, weights: Given, start: tuple[Any, ...], resets: Any, lengths: Any, reverse: bool, relu: bool,
           method: str, forward: str, threads: int) -> tuple[list[Any], list[Any]]:
    """c of an LSTM beside h: all states [T, B, H], and the last ones [B, H]."""
    name = f"bppsa.jax.{kind}"
    made = _weights(name, weights)
    x = jnp.asarray(x)
    if x.dtype not in (np.float32, np.float64):
        raise RequestError(f"{name}: x: {x.dtype}, expected float32 or float64")
    single = x.ndim == 2
    if x.ndim not in (2, 3):
        raise RequestError(f"{name}: x: shape {list(x.shape)}, expected [T, B, I], or [T, I] of a single sequence")
    if single:
        x, start = x[:, None], tuple(None if part is None else jnp.asarray(part)[None] for part in start)
        resets, lengths = (None if part is None else jnp.asarray(part)[..., None] for part in (resets, lengths))
    steps, batch, width = x.shape
    hidden = jnp.shape(made.w_hh)[-1] if jnp.ndim(made.w_hh) else 0
    rows = _GATES[kind] * hidden
    shapes = {"w_ih": ((rows, width), "[G H, I]"), "w_hh": ((rows, hidden), "[G H, H]"), "b_ih": ((rows,), "[G H]"),
              "b_hh": ((rows,), "[G H]"), "reset_state": (((2 if kind == "lstm" else 1) * hidden,), "[S]"),
              "h0": ((batch, hidden), "[B, H]"), "c0": ((batch, hidden), "[B, H]")}
    given = {**made._asdict(), **dict(zip(("h0", "c0"), start))}
    if made.reset_state is not None and resets is None:
        raise RequestError(f"{name}: weights.reset_state: needs resets")
    arrays = {what: _array(name, what, value, *shapes[what], x.dtype) for what, value in given.items() if value is not None}
    resets, lengths = _spans(name, resets, lengths, (steps, batch))
    if reverse:
        x = _turn(x, lengths)
        resets = None if resets is None else _turned_resets(resets, lengths)
    options = _xla.Options(kind, bool(relu), str(method), str(forward), int(threads))
    if isinstance(steps, int) and isinstance(batch, int) and steps * batch == 0:  # nothing to compute, on any device
        begin = [arrays.get(part, jnp.zeros((batch, hidden), x.dtype)) for part in ("h0", "c0")[:2 if kind == "lstm" else 1]]
        states = [jnp.concatenate([row[None], jnp.zeros((steps, batch, hidden), x.dtype)]) for row in begin]
    else:
        states = _xla.forward(options, {**arrays, "x": x, "resets": resets, "lengths": lengths})
    lasts = [rows[-1] if lengths is None else jnp.take_along_axis(rows, lengths[None, :, None], 0)[0] for rows in states]
    alls = [_turn(rows[1:], lengths) if reverse else rows[1:] for rows in states]
    return ([rows[:, 0] for rows in alls], [last[0] for last in lasts]) if single else (alls, lasts)


def _pair(name: str, state: Any) -> tuple[Any, Any]:
    if state is None:
        return None, None
    if not isinstance(state, (tuple, list)) or len(state) != 2:
        raise RequestError(f"{name}: state: a {type(state).__name__}, expected a pair (h0, c0)")
    return tuple(state)


def rnn(x: Any, weights: Given, h0: Any = None, *, resets: Any = None, lengths: Any = None, reverse: bool = False,
        nonlinearity: str = "tanh", method: str = "auto", forward: str = "sequential", threads: int = 1) -> tuple[Any, Any]:
    """A recurrent layer, h_t = f(x_t W_ihᵀ + b_ih + h_{t-1} W_hhᵀ + b_hh) with f = tanh or relu (Elman 1990).

    x [T, B, I], h0 [B, H] or None for zeros; of a single sequence [T, I] and [H]. Returns (y [T, B, H], h_T [B, H]). All arrays
    are float32 or all are float64.

    resets [T, B], bool: where a sample begins anew in front of a step, with weights.reset_state or 0 in the place of its state.
    lengths [B], 1 .. T: steps of each sample; y is 0 behind them, and h_T the state at the end. reverse: walks from the last step
    to the first; y is in the order of time. method: how gradients are computed, "auto", "bp", "speculative", "linear", "blelloch",
    "blelloch 3", "chunked", "chunked 8". forward: "sequential", "speculative", "auto". threads: 0: all cores; they change no bit.

    Raises RequestError (a ValueError) for a wrong argument while it is traced; a length out of range is found when the program
    runs, as INVALID_ARGUMENT, or on a GPU is brought into 1 .. T.
    """
    if nonlinearity not in ("tanh", "relu"):
        raise RequestError(f"bppsa.jax.rnn: nonlinearity: {nonlinearity!r}, expected 'tanh' or 'relu'")
    alls, lasts = _layer("rnn", x, weights, (h0,), resets, lengths, reverse, nonlinearity == "relu", method, forward, threads)
    return alls[0], lasts[0]


def gru(x: Any, weights: Given, h0: Any = None, *, resets: Any = None, lengths: Any = None, reverse: bool = False,
        method: str = "auto", forward: str = "sequential", threads: int = 1) -> tuple[Any, Any]:
    """A gated recurrent unit (Cho et al. 2014, with the reset gate behind the product, as in cuDNN, PyTorch, Flax and Equinox):

        r, z = σ(x W_ihᵀ + b_ih + h W_hhᵀ + b_hh)
        n = tanh(x W_inᵀ + b_in + r (h W_hnᵀ + b_hn))
        h' = (1 - z) n + z h

    Arguments and results as those of `rnn`."""
    alls, lasts = _layer("gru", x, weights, (h0,), resets, lengths, reverse, False, method, forward, threads)
    return alls[0], lasts[0]


def lstm(x: Any, weights: Given, state: Optional[Tuple[Any, Any]] = None, *, resets: Any = None, lengths: Any = None,
         reverse: bool = False, cells: bool = False, method: str = "auto", forward: str = "sequential", threads: int = 1) -> Any:
    """A long short-term memory (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000):

        i, f, o = σ(x W_ihᵀ + b_ih + h W_hhᵀ + b_hh)       g = tanh(..)       c' = f c + i g       h' = o tanh(c')

    state: (h0, c0) [B, H], or None for zeros. Returns (y, (h_T, c_T)), and with `cells` c_1 .. c_T [T, B, H] as a third result.
    The rest as for `rnn`."""
    start = _pair("bppsa.jax.lstm", state)
    alls, lasts = _layer("lstm", x, weights, start, resets, lengths, reverse, False, method, forward, threads)
    return (alls[0], tuple(lasts), alls[1]) if cells else (alls[0], tuple(lasts))


def cell(kind: str, x: Any, weights: Given, state: State = None, nonlinearity: str = "tanh") -> State:
    """One step of "rnn", "gru" or "lstm" in plain JAX, on any device and with every transform: x [.., I], state h [.., H], of an
    LSTM (h, c), or None for zeros. Returns the next state. A program that acts between two steps has nothing to compute ahead, and
    there XLA's own code is the fastest."""
    if kind not in _GATES:
        raise RequestError(f"bppsa.jax.cell: kind: {kind!r}, expected 'rnn', 'gru' or 'lstm'")
    made = _weights("bppsa.jax.cell", weights)
    zeros = jnp.zeros((*jnp.shape(x)[:-1], jnp.shape(made.w_hh)[-1]), jnp.result_type(x))
    h, c = (state if state is not None else (zeros, zeros)) if kind == "lstm" else (zeros if state is None else state, None)
    ahead = x @ made.w_ih.T + (0 if made.b_ih is None else made.b_ih)
    back = h @ made.w_hh.T + (0 if made.b_hh is None else made.b_hh)
    if kind == "rnn":
        return (jnp.tanh if nonlinearity == "tanh" else jax.nn.relu)(ahead + back)
    if kind == "gru":
        (r_x, z_x, n_x), (r_h, z_h, n_h) = jnp.split(ahead, 3, -1), jnp.split(back, 3, -1)
        z = jax.nn.sigmoid(z_x + z_h)
        return (1 - z) * jnp.tanh(n_x + jax.nn.sigmoid(r_x + r_h) * n_h) + z * h
    i, f, g, o = jnp.split(ahead + back, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def init(key: Any, kind: str, inputs: int, hidden: int, *, bias: bool = True, dtype: Any = jnp.float32) -> Weights:
    """Weights of "rnn", "gru" or "lstm", uniform in ±1/√H, as PyTorch's modules begin."""
    if kind not in _GATES:
        raise RequestError(f"bppsa.jax.init: kind: {kind!r}, expected 'rnn', 'gru' or 'lstm'")
    rows = _GATES[kind] * hidden
    shapes = [(rows, inputs), (rows, hidden)] + [(rows,)] * (2 * bias)
    bound = hidden ** -0.5
    return Weights(*(jax.random.uniform(each, shape, dtype, -bound, bound)
                     for each, shape in zip(jax.random.split(key, len(shapes)), shapes)))


@_functools.lru_cache
def _check_scan(method: str, threads: int) -> None:
    """Raises RequestError for a method or a number of threads that no scan takes, by the smallest scan."""
    _native.Scan(method, True, True, (1, 1, 1), False, threads)


def scan(a: Any, b: Any = None, h0: Any = None, *, reverse: bool = False, method: str = "auto", threads: int = 1) -> Any:
    """The states h_1 .. h_T [T, B, H] of the linear recurrence h_t = A_t h_{t-1} + b_t, for any T: what jax.lax.associative_scan
    computes from the pairs (A_t, b_t), with a matrix times a vector a step where it multiplies matrices.

    a: A_1 .. A_T [T, B, H, H], or their diagonals [T, B, H]. b [T, B, H], or None for zeros. h0 [B, H], or None for zeros. Without
    an axis B in b and h0, a has none either, and neither has the result. All are float32 or all are float64. reverse: the
    recurrence runs from the last step to the first, h_t = A_t h_{t+1} + b_t from h_{T+1} = h0, as in jax.lax.scan; so
    scan(jt, u, g, reverse=True) is bppsa.scan(jt, u, g). method: "linear" (one step after the other), "blelloch", "blelloch 3"
    (up-levels), "chunked", "chunked 8", "auto". threads: 0: all cores; they change no bit. Every transform of JAX holds, and
    derivatives of any order: they are scans again. Raises RequestError (a ValueError)."""
    name = "bppsa.jax.scan"
    if b is None and h0 is None:
        raise RequestError(f"{name}: b and h0: None, expected at least one of them")
    a = jnp.asarray(a)
    if a.dtype not in (np.float32, np.float64):
        raise RequestError(f"{name}: a: {a.dtype}, expected float32 or float64")
    axes = jnp.ndim(h0) if b is None else jnp.ndim(b) - 1
    if axes not in (1, 2):
        raise RequestError(f"{name}: {'h0' if b is None else 'b'}: {axes + (b is not None)} axes, expected "
                           f"{'[B, H], or [H]' if b is None else '[T, B, H], or [T, H]'} of a single recurrence")
    batch, diagonal = a.shape[1:axes], a.ndim == axes + 1
    if a.ndim not in (axes + 1, axes + 2) or (not diagonal and a.shape[-1] != a.shape[-2]):
        one, words = ("", "[T, H, H], or [T, H]") if axes == 1 else ("B, ", "[T, B, H, H], or [T, B, H]")
        raise RequestError(f"{name}: a: shape {list(a.shape)}, expected {words} of diagonals, beside h0 [{one}H]")
    state, words = (*batch, a.shape[-1]), "[B, H]" if axes == 2 else "[H]"
    b = None if b is None else _array(name, "b", b, (a.shape[0], *state), f"[T, {words[1:]}", a.dtype, "a")
    h0 = jnp.zeros(state, a.dtype) if h0 is None else _array(name, "h0", h0, state, words, a.dtype, "a")
    if axes == 1:
        a, b, h0 = a[:, None], None if b is None else b[:, None], h0[None]
    _check_scan(str(method), int(threads))
    found = _xla_scan.states(_xla_scan.Options(str(method), int(threads), diagonal, bool(reverse), False), a, b, h0)
    found = found[:-1] if reverse else found[1:]
    return found[:, 0] if axes == 1 else found


# ---- parameters of other libraries ----

def from_flax(parameters: Mapping[str, Any]) -> Weights:
    """The weights of a cell of Flax (linen) by its parameters: of SimpleCell {i, h}, of GRUCell {ir, iz, in, hr, hz, hn}, of
    LSTMCell and OptimizedLSTMCell {ii, if, ig, io, hi, hf, hg, ho}, each with a kernel [I or H, H] and maybe a bias [H].
    Differentiable."""
    names = set(parameters)
    for gates in ("", "rzn", "ifgo"):
        if names == {f"{side}{gate}" for side in "ih" for gate in (gates or ("",))}:
            break
    else:
        raise RequestError(f"bppsa.jax.from_flax: parameters {sorted(names)}, expected those of SimpleCell (i, h), GRUCell (ir, "
                           "iz, in, hr, hz, hn) or LSTMCell (ii, if, ig, io, hi, hf, hg, ho)")
    sides = []
    for side in "ih":
        parts = [parameters[f"{side}{gate}"] for gate in (gates or ("",))]
        kernel = jnp.concatenate([part["kernel"].T for part in parts])
        biases = [part.get("bias") for part in parts]
        zeros = jnp.zeros(parts[0]["kernel"].shape[1:], kernel.dtype)
        bias = None if all(each is None for each in biases) else jnp.concatenate([zeros if each is None else each
                                                                                 for each in biases])
        sides.append((kernel, bias))
    return Weights(sides[0][0], sides[1][0], sides[0][1], sides[1][1])


def from_equinox(module: Any) -> Weights:
    """The weights of an equinox.nn.GRUCell or LSTMCell. Differentiable."""
    bias, bias_n = module.bias, getattr(module, "bias_n", None)
    b_hh = None if bias_n is None else jnp.concatenate([jnp.zeros(2 * len(bias_n), bias_n.dtype), bias_n])
    return Weights(module.weight_ih, module.weight_hh, bias, b_hh)


def from_haiku(parameters: Mapping[str, Any]) -> Weights:
    """The weights of haiku.LSTM by the parameters {w [I + H, 4H], b [4H]} of its linear layer, whose gates stand in the order i, g,
    f, o, with 1 added to f. Differentiable. haiku.GRU is another cell, and refused."""
    if {"w_i", "w_h"} <= set(parameters):
        raise RequestError("bppsa.jax.from_haiku: haiku.GRU computes n = tanh(W_in x + W_hn (r h) + b_n), with the reset gate in "
                           "front of the product, expected n = tanh(W_in x + b_in + r (W_hn h + b_hn))")
    if set(parameters) != {"w", "b"}:
        raise RequestError(f"bppsa.jax.from_haiku: parameters {sorted(parameters)}, expected those of haiku.LSTM's linear layer: "
                           "w, b")
    hidden = parameters["w"].shape[1] // 4
    i, g, f, o = jnp.split(parameters["w"].T, 4)
    b_i, b_g, b_f, b_o = jnp.split(parameters["b"], 4)
    rows = jnp.concatenate([i, f, g, o])
    return Weights(rows[:, :-hidden], rows[:, -hidden:], jnp.concatenate([b_i, b_f + 1, b_g, b_o]))


_MODULES = {"linen": "_linen", "nnx": "_nnx", "equinox": "_equinox"}


def __getattr__(name: str) -> _types.ModuleType:
    """Imports the modules that need Flax or Equinox when they are first used."""
    if name in _MODULES:
        return _importlib.import_module(f"bppsa.{_MODULES[name]}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
