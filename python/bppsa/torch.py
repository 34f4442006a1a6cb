"""Recurrent layers and the affine scan for PyTorch, computed by the C library on the CPU.

RNN, GRU and LSTM are torch.nn's classes with another forward and backward pass: constructors, parameters, state_dict, shapes and
defaults are torch.nn's, packed sequences too, so that changing the import is enough. Any loss may follow; gradients go to inputs,
initial states and weights.
"""
from __future__ import annotations

import collections
import ctypes
import functools
import itertools
import threading
from typing import Any, Callable

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from . import _native

__all__ = ["GRU", "LSTM", "RNN", "scan"]

_LONG = 2e9  # FLOPs from which Ctrl-C is worth a thread of its own


def _opaque(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile calls the function as it is and does not look inside. A call from anywhere else goes straight to it."""
    owners = [owner for name in ("compiler", "_dynamo") if hasattr(owner := getattr(torch, name, None), "disable")]
    if not owners:
        return function
    alone = owners[0].disable(function)
    compiling = getattr(owners[0], "is_compiling", lambda: True)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return alone(*args, **kwargs) if compiling() else function(*args, **kwargs)

    return call


def _checked(what: str, tensor: Tensor, like: Tensor | None = None) -> Tensor:
    """The tensor, contiguous, if the library can compute with it."""
    if tensor.device.type != "cpu":
        raise NotImplementedError(f"{what}: on {tensor.device}, expected the CPU: these functions have no GPU form yet")
    if tensor.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{what}: {tensor.dtype}, expected torch.float32 or torch.float64")
    if like is not None and tensor.dtype != like.dtype:
        raise TypeError(f"{what}: {tensor.dtype}, expected {like.dtype} as the others")
    return tensor.contiguous()


def _call(flops: float, function: Callable[[], Any]) -> Any:
    return _native.interruptible(function) if flops > _LONG else function()


def _growth(scan: str, size: int) -> int:
    """How many times the FLOPs of sequential back-propagation a scan of this kind may take: its products are of matrices, not of a
    matrix and a vector. "auto" takes no scan that a cost model finds slower."""
    return 1 if scan in ("auto", "bp", "linear") else size


class _Refuse(torch.autograd.Function):
    """The first `count` tensors as they are; they depend on the others in a way that cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, what: str, count: int, *tensors: Tensor | None) -> Any:
        ctx.what = what
        return tuple(None if tensor is None else tensor.clone() for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise NotImplementedError(f"{ctx.what}: second derivatives are refused, expected a layer of torch.nn "
                                  "where a gradient is differentiated again")


# ---- the scan ----


class _Scan(torch.autograd.Function):
    """y_{t-1} = A_t y_t + u_{t-1} with y_T = g. Let λ_{t-1} be the gradient of y_{t-1} in all. λ_t = A_tᵀ λ_{t-1} + dy_t is
    the same scan over transposed matrices, in the other order of time. It gives du_t = λ_t, dg = λ_T, and dA_t = λ_{t-1} y_tᵀ.
    """

    @staticmethod
    def forward(ctx: Any, jt: Tensor, u: Tensor | None, g: Tensor, method: str) -> Tensor:
        steps, batch, size = jt.shape[:3]
        diagonal = jt.dim() == 3
        y = torch.empty((steps + 1, batch, size), dtype=jt.dtype)
        y[steps] = g
        threads = torch.get_num_threads()

        def call() -> None:
            plan = _native.Scan(method, diagonal, jt.dtype == torch.float64, (steps, batch, size), u is not None, threads)
            plan.run(jt.data_ptr(), _address(u), y.data_ptr())

        _call(2.0 * jt.numel() * (1 if diagonal else _growth(method, size)), call)
        ctx.method = method
        result = y[:steps]
        ctx.save_for_backward(jt, g, result)
        return result

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        jt, g, y = ctx.saved_tensors
        dense = jt.dim() == 4
        # Steps in the other order: g'_T = dy_0, u' = dy_{T-1} .. dy_1 behind a 0, J'_s = A_{T-s+1}ᵀ.
        back = jt.flip(0).transpose(-1, -2) if dense else jt.flip(0)
        injected = torch.cat([torch.zeros_like(dy[:1]), dy[1:].flip(0)])
        sums = scan(back, injected, dy[0], method=ctx.method).flip(0)  # λ_1 .. λ_T
        du = torch.cat([dy[:1], sums[:-1]])
        dg = sums[-1]
        djt = None
        if ctx.needs_input_grad[0]:
            after = torch.cat([y[1:], g.unsqueeze(0)])
            djt = du.unsqueeze(-1) * after.unsqueeze(-2) if dense else du * after
        return djt, du if ctx.needs_input_grad[1] else None, dg, None


@_opaque
def scan(jt: Tensor, u: Tensor | None, g: Tensor, *, method: str = "auto") -> Tensor:
    """g_0 .. g_{T-1} [T,B,H] of the recurrence g_{t-1} = J_tᵀ g_t + u_{t-1}, for any T; differentiable in all three arguments,
    any number of times.

    jt: J_1ᵀ .. J_Tᵀ [T,B,H,H], or their diagonals [T,B,H]. u: u_0 .. u_{T-1} [T,B,H], or None for zeros. g: g_T [B,H]. All
    float32 or all float64, on the CPU. method: "auto", "linear" (one step after the other), "blelloch", "blelloch 3" (up-levels),
    "chunked", "chunked 8". Raises ValueError, TypeError, bppsa.RequestError, bppsa.RunError.

    A recurrence that runs forward in time, h_t = a_t h_{t-1} + b_t, is scan(a.flip(0), b.flip(0), h_0).flip(0).
    """
    if jt.dim() not in (3, 4) or (jt.dim() == 4 and jt.shape[2] != jt.shape[3]):
        raise ValueError(f"jt: shape {list(jt.shape)}, expected [T, B, H, H], or [T, B, H] for diagonals")
    shape = list(jt.shape[:3])
    if u is not None and list(u.shape) != shape:
        raise ValueError(f"u: shape {list(u.shape)}, expected [T, B, H] = {shape}")
    if list(g.shape) != shape[1:]:
        raise ValueError(f"g: shape {list(g.shape)}, expected [B, H] = {shape[1:]}")
    jt = _checked("jt", jt)
    u = None if u is None else _checked("u", u, jt)
    g = _checked("g", g, jt)
    if shape[0] == 0:
        return g.new_empty(shape)
    return _Scan.apply(jt, u, g, method)


# ---- recurrent layers ----


class _Pool:
    """Layers of the library that no pass uses at present, by what they were made for. Beyond the limit those are dropped that were
    used longest ago. A copy of a module begins with none."""

    def __init__(self, limit: int) -> None:
        self._limit = self._least = limit
        self._idle: collections.deque[tuple[Any, _native.Layer]] = collections.deque()  # the latest ones last
        self._returned: collections.deque[tuple[Any, _native.Layer]] = collections.deque()
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return _Pool, (self._least,)

    def keep(self, limit: int) -> None:
        """So many layers at most, and at least as many as at first."""
        self._limit = max(limit, self._least)

    def take(self, key: tuple[Any, ...]) -> _native.Layer:
        dropped = []  # destroyed outside the lock
        with self._lock:
            while self._returned:
                self._idle.append(self._returned.popleft())
            found = next((entry for entry in reversed(self._idle) if entry[0] == key), None)
            if found is not None:
                self._idle.remove(found)
            while len(self._idle) > self._limit:
                dropped.append(self._idle.popleft())
        return _native.Layer(*key) if found is None else found[1]

    def give_back(self, key: tuple[Any, ...], layer: _native.Layer) -> None:
        """Takes no lock: a destructor calls it, and these run anywhere, in the middle of take too."""
        self._returned.append((key, layer))


class _Lease:
    """A layer for one forward pass and its backward passes. It goes back to the pool when neither graph nor output is left."""

    def __init__(self, pool: _Pool, key: tuple[Any, ...]) -> None:
        self._pool, self._key = pool, key
        self.layer: _native.Layer | None = None
        self.layer = pool.take(key)

    def __del__(self) -> None:
        if self.layer is not None:
            self._pool.give_back(self._key, self.layer)


@functools.lru_cache(maxsize=64)
def _bytes_type(count: int) -> Any:
    return type("_Bytes", (ctypes.c_char * count,), {})


def _shared(address: int, shape: tuple[int, ...], dtype: torch.dtype, lease: _Lease) -> Tensor:
    """The layer's memory as a tensor, which keeps the lease."""
    count = 1
    for extent in shape:
        count *= extent
    memory = _bytes_type(count * (8 if dtype == torch.float64 else 4)).from_address(address)
    memory.lease = lease
    return torch.frombuffer(memory, dtype=dtype).resize_(shape)  # no view, which autograd would not let its user change


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


class _Layer(torch.autograd.Function):
    """One layer in one direction: x [T,B,I], an initial state [B,S] or None, and four weights, of which biases may be None, to
    h_1 .. h_T [T,B,H] and the last state [B,S]. A state is h, S = H, or of an LSTM h in front of c, S = 2H. With `recorded` a
    backward pass may follow."""

    @staticmethod
    def forward(ctx: Any, pool: _Pool, key: tuple[Any, ...], recorded: bool, flops: float, x: Tensor, h0: Tensor | None,
                *weights: Tensor | None) -> tuple[Tensor, Tensor]:
        def call() -> tuple[_Lease, int, int | None]:  # a new layer may take seconds too, for what its backward pass needs
            lease = _Lease(pool, key)
            return (lease, *lease.layer.forward(x.data_ptr(), _address(h0), [_address(weight) for weight in weights]))

        # What the call works with belongs to the closure, which outlives an interrupted call.
        lease, states, cells = _call(flops, call)
        shape = (x.shape[0], x.shape[1], weights[1].shape[1])
        output = _shared(states, shape, x.dtype, lease)
        last = output[-1].clone() if cells is None else torch.cat([output[-1], _shared(cells, shape, x.dtype, lease)[-1]], 1)
        if not recorded:
            return output.clone(), last  # a kept output would keep all memory of the layer
        ctx.lease, ctx.flops = lease, flops
        # The backward pass reads the states where they are: PyTorch refuses it if they have been changed.
        ctx.save_for_backward(x, h0, *weights, output)
        ctx.set_materialize_grads(False)
        return output, last

    @staticmethod
    def backward(ctx: Any, of_output: Tensor | None, of_last: Tensor | None) -> Any:
        lease, (*inputs, output) = ctx.lease, ctx.saved_tensors
        seed = torch.zeros_like(output) if of_output is None else of_output.contiguous()
        if of_last is not None:
            seed = seed.clone() if seed is of_output else seed
            seed[-1] += of_last[:, :output.shape[2]]
        of_cell = None if of_last is None or of_last.shape[1] == output.shape[2] else of_last[:, output.shape[2]:].contiguous()
        gradients = [None if tensor is None or not wanted else torch.empty_like(tensor, memory_format=torch.contiguous_format)
                     for tensor, wanted in zip(inputs, ctx.needs_input_grad[4:])]

        def call() -> None:
            dx, dh0, *of_weights = [_address(gradient) for gradient in gradients]
            lease.layer.backward(seed.data_ptr(), _address(of_cell), of_weights, dx, dh0)

        _call(2 * ctx.flops, call)
        if torch.is_grad_enabled():  # the graph of this pass is recorded
            gradients = _Refuse.apply("bppsa.torch", len(gradients), *gradients, *inputs, of_output, of_last)
        return (None, None, None, None, *gradients)


def _first(h: Tensor | None, count: int) -> Tensor | None:
    """The first samples of a state [B,H]."""
    return h if h is None or h.shape[0] == count else h[:count]


def _stretches(packed: PackedSequence) -> list[Tensor]:
    """The stretches of time [T,B,I] with one number of samples each; the longest sequences come first in B."""
    found, offset, sizes = [], 0, packed.batch_sizes.tolist()
    for batch, same in itertools.groupby(sizes):
        steps = len(list(same))
        found.append(packed.data[offset:offset + steps * batch].view(steps, batch, -1))
        offset += steps * batch
    return found


class _Recurrent:
    """The forward pass that takes the place of torch.nn's, for every cell. S: the size of a state, as of _Layer."""

    _cell = ""
    _pair = False  # a state is (h, c)

    def _prepare(self, scan: str, forward: str) -> None:
        self.scan, self.forward_method = scan, forward
        endings = [f"_l{layer}{direction}" for layer in range(self.num_layers)
                   for direction in (("", "_reverse") if self.bidirectional else ("",))]
        self._names = [["weight_ih" + ending, "weight_hh" + ending, "bias_ih" + ending, "bias_hh" + ending] for ending in endings]
        self._pool = _Pool(4 * self.num_layers * (2 if self.bidirectional else 1))

    def extra_repr(self) -> str:
        return super().extra_repr() + f", scan={self.scan!r}, forward={self.forward_method!r}"

    def _run(self, x: Tensor, h0: Tensor | None, number: int) -> tuple[Tensor, Tensor]:
        """h_1 .. h_T [T,B,H] and the last state [B,S] of one direction of one layer, in the order in which it walks."""
        names = self._names[number]
        weights = [_checked(name, getattr(self, name), x) for name in (names if self.bias else names[:2])]
        weights += [] if self.bias else [None, None]
        to_inputs = x.requires_grad or (h0 is not None and h0.requires_grad)
        recorded = torch.is_grad_enabled() and (to_inputs or any(weight is not None and weight.requires_grad for weight in weights))
        to_inputs = recorded and to_inputs
        shape = (*x.shape, self.hidden_size)
        key = (self._cell, self.scan, self.forward_method, getattr(self, "nonlinearity", "") == "relu", x.dtype == torch.float64,
               shape, to_inputs, torch.get_num_threads())
        flops = 2.0 * x.shape[0] * x.shape[1] * weights[0].shape[0] * (x.shape[2] + self.hidden_size)
        return _Layer.apply(self._pool, key, recorded, flops * _growth(self.scan, self.hidden_size), x, h0, *weights)

    def _forwards(self, stretches: list[Tensor], h0: Tensor | None, number: int) -> tuple[list[Tensor], Tensor]:
        """One direction of one layer over stretches of time whose samples become fewer: a sample ends where the next stretch does
        not have it. The states of each stretch, and every sample's last one [B,S]."""
        outputs, ended, h = [], [], h0
        for stretch in stretches:
            if h is not None and h.shape[0] > stretch.shape[1] and outputs:
                ended.append(h[stretch.shape[1]:])
            states, h = self._run(stretch, _first(h, stretch.shape[1]), number)
            outputs.append(states)
        return outputs, torch.cat([h, *reversed(ended)]) if ended else h

    def _backwards(self, stretches: list[Tensor], h0: Tensor | None, number: int) -> tuple[list[Tensor], Tensor]:
        """The same from the end: a sample begins with the last stretch that has it."""
        outputs, h = [], None
        for stretch in reversed(stretches):
            begun, batch = 0 if h is None else h.shape[0], stretch.shape[1]
            if h is None:
                h = _first(h0, batch)
            elif begun < batch:
                h = torch.cat([h, h.new_zeros(batch - begun, h.shape[1]) if h0 is None else h0[begun:batch]])
            states, h = self._run(stretch.flip(0), h, number)
            outputs.append(states.flip(0))
        return outputs[::-1], h

    def _layers(self, stretches: list[Tensor], h0: Tensor | None) -> tuple[list[Tensor], Tensor]:
        """All layers: the states of the last one in each stretch [T,B,D·H], and the last state [L·D,B,S]."""
        directions = 2 if self.bidirectional else 1
        self._pool.keep(4 * self.num_layers * directions * len(stretches))
        last = []
        for layer in range(self.num_layers):
            first = layer * directions
            walked = [walk(stretches, None if h0 is None else h0[first + direction], first + direction)
                      for direction, walk in enumerate((self._forwards, self._backwards)[:directions])]
            last += [h for _, h in walked]
            stretches = walked[0][0] if directions == 1 else [torch.cat(pair, 2) for pair in zip(*(states for states, _ in walked))]
            if self.dropout > 0 and self.training and layer + 1 < self.num_layers:
                stretches = [torch.nn.functional.dropout(x, self.dropout, True) for x in stretches]
        return stretches, last[0].unsqueeze(0) if len(last) == 1 else torch.stack(last)

    def _checked_states(self, hx: Tensor | None, batch: int, like: Tensor) -> Tensor | None:
        """hx [L·D,B,S], contiguous."""
        name = f"bppsa.torch.{type(self).__name__}"
        expected = (self.num_layers * (2 if self.bidirectional else 1), batch, self.hidden_size)
        h0 = None if hx is None else _checked(f"{name}: hx", hx, like)
        found = None if h0 is None else (*h0.shape[:-1], h0.shape[-1] // (2 if self._pair else 1))
        if found is not None and found != expected:
            raise ValueError(f"{name}: hx is {list(found)}, expected {list(expected)}")
        return h0

    def _joined(self, hx: Any) -> Tensor | None:
        """What the caller gives for hx as one tensor: of an LSTM h_0 in front of c_0."""
        if hx is None or not self._pair:
            return hx
        if not isinstance(hx, (tuple, list)) or len(hx) != 2:
            raise TypeError(f"bppsa.torch.LSTM: hx is a {type(hx).__name__}, expected a tuple of two tensors, h_0 and c_0")
        if hx[0].shape != hx[1].shape:
            raise ValueError(f"bppsa.torch.LSTM: h_0 is {list(hx[0].shape)} and c_0 {list(hx[1].shape)}, expected the same shape")
        return torch.cat(tuple(hx), -1)

    def _parted(self, state: Tensor) -> Any:
        """A state as torch.nn returns it: of an LSTM (h, c)."""
        return tuple(half.contiguous() for half in state.split(self.hidden_size, -1)) if self._pair else state

    def _check_input(self, x: Tensor, shape: Any) -> Tensor:
        """The input, whose last axis has the features, contiguous."""
        name = f"bppsa.torch.{type(self).__name__}"
        x = _checked(f"{name}: input", x)
        if x.shape[-1] != self.input_size or 0 in x.shape[:-1]:
            raise ValueError(f"{name}: input is {list(shape)}, expected {self.input_size} numbers in each step, at least "
                             "one step and one sequence")
        return x

    def _packed(self, packed: PackedSequence, hx: Tensor | None) -> tuple[PackedSequence, Any]:
        """The forward pass of sequences of several lengths."""
        data = self._check_input(packed.data, packed.data.shape)
        _, sizes, order, back = packed
        hx = hx if hx is None or order is None or hx.dim() != 3 else hx.index_select(1, order)
        h0 = self._checked_states(hx, int(sizes[0]), data)
        outputs, hidden = self._layers(_stretches(PackedSequence(data, sizes)), h0)
        joined = torch.cat([states.reshape(-1, states.shape[2]) for states in outputs])
        hidden = hidden if back is None else hidden.index_select(1, back)
        return PackedSequence(joined, sizes, order, back), self._parted(hidden)

    @_opaque
    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """input [T,B,I], [B,T,I] with batch_first, [T,I], or a PackedSequence, whose shorter sequences end where they end; hx
        [L·D,B,H], or [L·D,H] with [T,I], zeros by default; D is the number of directions. Returns the states of the last layer,
        [T,B,D·H] (in the input's order of axes, or packed), and h_T of all layers and directions, shaped as hx. An LSTM takes
        (h_0, c_0) for hx, and returns (h_T, c_T) in the place of h_T."""
        hx = self._joined(hx)
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        name = f"bppsa.torch.{type(self).__name__}"
        if input.dim() not in (2, 3):
            raise ValueError(f"{name}: input has {input.dim()} dimensions, expected 3, or 2 for a single sequence")
        batched = input.dim() == 3
        if hx is not None and hx.dim() != input.dim():
            raise ValueError(f"{name}: hx has {hx.dim()} dimensions, expected {input.dim()} as the input")
        x = input if batched else input.unsqueeze(1)
        x = x.transpose(0, 1) if batched and self.batch_first else x
        x = self._check_input(x, input.shape)
        h0 = self._checked_states(hx if batched or hx is None else hx.unsqueeze(1), x.shape[1], x)
        (states,), hidden = self._layers([x], h0)
        output = states.transpose(0, 1) if batched and self.batch_first else states
        return (output, self._parted(hidden)) if batched else (output.squeeze(1), self._parted(hidden.squeeze(1)))


class RNN(_Recurrent, torch.nn.RNN):
    """torch.nn.RNN (tanh or ReLU) with two more options, by name:

    scan      how gradients are computed: "auto" (the fastest of all by a cost model), "bp" (sequential back-propagation), "scan",
              "linear", "blelloch", "blelloch 3" (up-levels), "chunked", "chunked 8"
    forward   how states are computed: "sequential", "speculative" (chunks of time at once, verified), "auto"

    Float32 or float64 on the CPU, with torch.get_num_threads() threads, which do not change a bit. Refused, in a sentence: tensors
    on a GPU, the gradient of a gradient.
    """

    _cell = "rnn"

    def __init__(self, *args: Any, scan: str = "auto", forward: str = "sequential", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._prepare(scan, forward)


class GRU(_Recurrent, torch.nn.GRU):
    """torch.nn.GRU with the options of RNN. Gates are stacked r, z, n; the reset gate comes after the matrix product."""

    _cell = "gru"

    def __init__(self, *args: Any, scan: str = "auto", forward: str = "sequential", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._prepare(scan, forward)


class LSTM(_Recurrent, torch.nn.LSTM):
    """torch.nn.LSTM with the options of RNN. Gates are stacked i, f, g, o. The initial and the last state are pairs (h, c).
    proj_size is refused."""

    _cell = "lstm"
    _pair = True

    def __init__(self, *args: Any, scan: str = "auto", forward: str = "sequential", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.proj_size != 0:
            raise NotImplementedError(f"bppsa.torch.LSTM: proj_size is {self.proj_size}, expected 0: there are no projections")
        self._prepare(scan, forward)
