"""Stateless passes of a recurrent layer between tensors: which arrays a pass has, how large they are, and the call of the library.

A pass is one of five kinds (python/passes.h):

    forward    (x, weights, ..) -> y, h_last, .. and the tape h, c, saved   what a layer computes, and what its backward pass reads
    backward   (x, weights, .., tape, of_y, ..) -> of_x, of_w_ih, ..        the gradients
    tangent    (x, weights, .., tape, d_x, ..) -> d_h, d_c                  the derivative of the states along a direction
    second     all of these -> of_x, ..                                     the derivative of the gradients along a direction
    third      (x, .., tape, d_x, .., d_h, d_c, e_x, ..) -> e_h, e_c        the derivative of d_h, d_c along another direction

Its arrays have names. Nothing but tensors goes from one pass to another: a backward pass may run never, twice, or in another
thread. What passes in chunks of time remember is the account of a module (_pool.py), which a call names by a number.
"""
from __future__ import annotations

import ctypes
import functools
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import torch
from torch import Tensor

from . import _native, _tensors
from ._pool import Account, find_account
from ._spans import Spans

KINDS = ("forward", "backward", "tangent", "second", "third")
PARAMETERS = ("x", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh", "reset_state")  # with respect to which a layer has derivatives
TAPE = ("h", "c", "saved")
KEPT = (*TAPE, "d_h", "d_c")  # results that are read again
Named = Dict[str, Tensor]

# Of each array a letter an axis (python/passes.h). Those behind the library's own are tensors of PyTorch alone: an LSTM's c_1 ..
# c_T, the last states, and the marks by which layers learn whether the loss misses a step (_derivatives.py).
SHAPES: dict[str, str] = {name: shape for name, shape, _ in _native.arrays()}
_OWN = {"cells": "TBH", "h_last": "BH", "c_last": "BH", "mark": "", "below": "", "of_mark": "", "of_below": ""}
_NUMBER = {name: number for number, name in enumerate(SHAPES)}
SHAPES.update(_OWN)
_BYTES = {"lengths": torch.int64, "resets": torch.uint8}


class Layer(NamedTuple):
    """What a call says beside its arrays. account and number: of the module, and of the layer's direction in it; account "": of no
    module. A number below 0: backward passes in chunks of time are sequential."""

    cell: str
    relu: bool
    scan: str
    forward: str
    chunks: int
    warm_up: int
    tolerance: float
    account: str
    number: int

    def text(self) -> str:
        """As an operator's argument. Whoever writes one in another way writes the same (_stateless.py)."""
        return "|".join(map(str, self))

    def without_state(self) -> Layer:
        return self._replace(account="", number=-1)


@functools.lru_cache(maxsize=1024)
def layer_of(text: str) -> Layer:
    """The layer that a text stands for. RequestError: the text is none."""
    parts = text.split("|")
    try:
        cell, relu, scan, forward, chunks, warm_up, tolerance, account, number = parts
        if cell not in _tensors.GATES:
            raise _native.RequestError(f"bppsa.torch: layer {text!r}: no cell {cell!r}, expected {', '.join(_tensors.GATES)}")
        return Layer(cell, relu == "True", scan, forward, int(chunks), int(warm_up), float(tolerance), account, int(number))
    except _native.RequestError:
        raise
    except ValueError as reason:
        raise _native.RequestError(f"bppsa.torch: layer {text!r}, expected {len(Layer._fields)} parts with '|' between them: "
                                   f"{', '.join(Layer._fields)}") from reason


class Call:
    """A pass without its arrays: the names of those that it has, and of those that it gives."""

    __slots__ = ("kind", "number", "arguments", "results", "text", "layer", "x", "w_hh", "tape")

    def __init__(self, kind: str, arguments: str, results: str, text: str) -> None:
        self.kind, self.number, self.text, self.layer = kind, KINDS.index(kind), text, layer_of(text)
        self.arguments, self.results = tuple(arguments.split()), tuple(results.split())
        self.tape = len(self.results) - sum(name in TAPE for name in self.results)  # the tape is behind a layer's other results
        self.x, self.w_hh = (self.arguments.index(name) if name in self.arguments else -1 for name in ("x", "w_hh"))
        for name in (*self.arguments, *self.results):
            if name not in SHAPES:
                raise _native.RequestError(f"bppsa.torch: {kind}: {name!r} is no array of a pass, expected one of "
                                           f"{', '.join(SHAPES)}")

    @property
    def pair(self) -> bool:
        return self.layer.cell == "lstm"


call_of = functools.lru_cache(maxsize=4096)(Call)


# ---- sizes ----

class Sizes:
    """The extents of a call's axes, from its arrays' shapes, which may be symbols."""

    __slots__ = ("steps", "batch", "width", "hidden", "rows", "letters")

    def __init__(self, call: Call, named: Named) -> None:
        x, w_hh = named.get("x"), named.get("w_hh")
        if x is None or w_hh is None or "w_ih" not in named or x.dim() != 3 or w_hh.dim() != 2:
            raise _native.RequestError(f"bppsa.torch: {call.kind}: expected x [T, B, I], w_ih [G H, I] and w_hh [G H, H]")
        self.steps, self.batch, self.width = x.shape
        self.hidden = w_hh.shape[1]
        self.rows = _tensors.GATES[call.layer.cell] * self.hidden
        self.letters = {"T": self.steps, "N": self.steps + 1, "B": self.batch, "I": self.width, "H": self.hidden, "G": self.rows,
                        "S": (2 if call.pair else 1) * self.hidden, "K": _SAVED[call.layer.cell] * self.hidden}

    def of(self, name: str) -> tuple[Any, ...]:
        letters = self.letters
        return tuple([letters[letter] for letter in SHAPES[name]])


# How many numbers each cell saves for a unit, a step and a sample beside its states.
_SAVED = {cell: _native.cell_saved(cell) for cell in _tensors.GATES}


def results_of(cell: str, tape: bool, cells: bool, mark: bool) -> str:
    """The results of a forward pass, in order. tape: also what a backward pass reads."""
    pair = cell == "lstm"
    names = ["y", "h_last", *(["c_last"] if pair else []), *(["cells"] if cells else []), *(["mark"] if mark else [])]
    if tape:
        names += ["h", *(["c"] if pair else []), *(["saved"] if _SAVED[cell] else [])]
    return " ".join(names)


# ---- a pass with numbers ----

def _readable(call: Call, name: str, array: Tensor, shape: tuple[int, ...], x: Tensor) -> Tensor:
    """The array, contiguous, if the library can read it. Lengths are on the CPU."""
    dtype = _BYTES.get(name, x.dtype)
    right = array.dtype is dtype or (name == "resets" and array.dtype is torch.bool)
    where = torch.device("cpu") if name == "lengths" else x.device
    if array.shape != shape or not right or array.device != where or array.layout is not torch.strided:
        raise _native.RequestError(f"bppsa.torch: {call.kind}: {name} is {array.dtype} {list(array.shape)} on {array.device}, "
                                   f"expected {dtype} {list(shape)} on {where}")
    array = array if _tensors.is_dense(array) else _tensors.dense(array)
    if name == "lengths" and x.is_cuda and array.is_pinned():
        array = array.clone()  # CUDA reads other memory before a call returns
    return array


def _key(call: Call, named: Named, sizes: Sizes) -> tuple[Any, ...]:
    """All that the layer of a pass depends on (_native.Plan)."""
    layer, x = call.layer, named["x"]
    to_inputs = call.kind != "backward" or "of_x" in call.results or "of_h0" in call.results or "of_c0" in call.results
    return (layer[:4], (sizes.steps, sizes.batch, sizes.width, sizes.hidden), x.dtype is torch.float64,
            ("b_ih" in named or "b_hh" in named, "lengths" in named, "resets" in named, "reset_state" in named),
            to_inputs, torch.get_num_threads(), x.get_device() if x.is_cuda else -1, None, layer[4:7])


def last_rows(states: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sample's last row [B,H] of states [T+1,B,H]."""
    if lengths is None:
        return states[-1]
    return states.gather(0, lengths.to(states.device).view(1, -1, 1).expand(1, -1, states.shape[2]))[0]


def _misses(named: Named) -> bool:
    """Does the gradient of h_1 .. h_T [T,B,H] miss a step of a sample? Then gradients of inputs are to be those of BP."""
    seed, last = named.get("of_y"), named.get("of_h_last")
    if seed is None or ("of_mark" in named and named["of_mark"].item() > 0):
        return True
    spans = Spans(named.get("lengths"))
    if last is not None:
        seed = seed.clone()
        spans.add_last(seed, last)
    rows = spans.rows(seed.shape[0])
    seed = seed if rows is None else seed.view(-1, 1, seed.shape[2]).index_select(0, rows)
    if seed.is_cuda:
        return not bool((seed != 0).any(2).all())
    return not _native.reaches(seed.data_ptr(), seed.dtype is torch.float64, seed.shape[0] * seed.shape[1], seed.shape[2])


class _Memory:
    """What a pass in chunks of time is given of its module's state, and leaves there."""

    __slots__ = ("call", "account", "sequential", "record")

    def __init__(self, call: Call, account: Account | None, sequential: bool) -> None:
        self.call, self.account, self.sequential = call, account, sequential
        self.record = _native.Record()
        failures, left, warm_up = self._states().get(call.layer.number, (0, 0, 0))
        self.record.state = failures, 1 if sequential else left, warm_up

    def _states(self) -> dict[int, _native.State]:
        if self.account is None:
            return {}
        return self.account.pauses if self.call.kind == "forward" else self.account.states

    def end(self, plan: _native.Plan) -> None:
        if self.account is not None and self.call.layer.number >= 0:
            self.account.note(plan, self.call.kind == "backward", self.record)
            if not self.sequential:
                self._states()[self.call.layer.number] = self.record.state


def _flops(call: Call, sizes: Sizes) -> float:
    passes = 1 if call.kind == "forward" else 2
    return 2.0 * passes * sizes.steps * sizes.batch * sizes.rows * (sizes.width + sizes.hidden) * _tensors.growth(
        call.layer.scan, sizes.hidden)


@torch.compiler.disable  # the library writes to addresses, of which a graph of torch.compile knows nothing
def compute(call: Call, arrays: Sequence[Tensor]) -> list[Tensor]:
    """Computes a pass with numbers: its results, which are new tensors. RequestError: an array is not what it is to be."""
    if len(arrays) != len(call.arguments):
        raise _native.RequestError(f"bppsa.torch: {call.kind}: {len(arrays)} arrays, expected {len(call.arguments)}: "
                                   f"{' '.join(call.arguments)}")
    named = dict(zip(call.arguments, arrays))
    sizes = Sizes(call, named)
    x = named["x"]
    if x.dtype not in (torch.float32, torch.float64) or x.device.type not in ("cpu", "cuda"):
        raise _native.RequestError(f"bppsa.torch: {call.kind}: x is {x.dtype} on {x.device}, expected torch.float32 or "
                                   "torch.float64 on the CPU or a GPU of CUDA")
    for name, array in named.items():
        named[name] = _readable(call, name, array, sizes.of(name), x)
    if sizes.batch == 0:
        return [x.new_zeros(sizes.of(name)) for name in call.results]
    return _compute(call, named, sizes)


def _made(call: Call) -> list[str]:
    """The arrays that the library writes, which are results, or of which results are made."""
    if call.kind != "forward":
        return [name for name in call.results if name in _NUMBER]
    tape = results_of(call.layer.cell, True, False, False).split()
    # Where the states are kept, the outputs are an array of their own, because the caller may change these.
    return [name for name in ("y", *tape) if name in TAPE or (name == "y" and "h" in call.results)]


def _results(call: Call, made: Named, x: Tensor, lengths: Tensor | None, sequential: bool) -> list[Tensor]:
    """The results of a pass, of what the library has written."""
    return [made[name] if name in made else
            made["h"][1:] if name == "y" else
            made["c"][1:].clone() if name == "cells" else
            last_rows(made["h" if name == "h_last" else "c"], lengths).clone() if name in ("h_last", "c_last") else
            x.new_full((), float(sequential))  # marks, and what goes to that of the layer below
            for name in call.results]


def _compute(call: Call, named: Named, sizes: Sizes) -> list[Tensor]:
    x = named["x"]
    made = {name: x.new_empty(sizes.of(name)) for name in _made(call)}
    flops = _flops(call, sizes)
    if flops > _tensors.LONG:  # such a pass goes on behind Ctrl-C: aliases keep the memory, whatever `x.data = ..` does meanwhile
        named = {name: array.detach() for name, array in named.items()}
    account = owner(call)
    key = _key(call, named, sizes)
    plan, sequential = _tensors.call(flops, x, lambda: _run(call, named, made, account, key))
    if flops <= _tensors.LONG and not x.is_cuda and not (call.number < 2 and plan.speculates[call.number]):
        _keep_ready(account, call, named, made, plan)
    return _results(call, made, x, named.get("lengths"), sequential)


def _run(call: Call, named: Named, made: Named, account: Account, key: Any) -> tuple[_native.Plan, bool]:
    """Computes a pass from arrays to arrays, which are its own, behind an interrupt too. Its plan, and whether it was sequential
    instead of in chunks."""
    x, plan = named["x"], account.plan(key)  # a new one may take seconds
    memory, stream, sequential = None, _tensors.place(x)[1], False
    if x.is_cuda:
        if torch.cuda.is_current_stream_capturing():
            account.record(plan)
    elif call.number < 2 and plan.speculates[call.number]:
        to_inputs = any(name in call.results for name in ("of_below", "of_x", "of_h0", "of_c0"))
        sequential = call.kind == "backward" and (call.layer.number < 0 or (to_inputs and _misses(named)))
        memory = _Memory(call, None if account is _NOBODY else account, sequential)
    scratch = x.new_empty(plan.scratch[call.number], dtype=torch.uint8)
    at = _native.addresses()
    for group in (named, made):
        for name, array in group.items():
            number = _NUMBER.get(name)
            if number is not None:
                at[number] = array.data_ptr()
    plan.run(call.number, at, scratch.data_ptr(), None if memory is None else memory.record, stream)
    if memory is not None:
        memory.end(plan)
    return plan, sequential


# ---- the same pass again ----

class Ready:
    """A pass on the CPU whose like has been computed: all that depends on shapes. arguments: of each its shape, its type and its
    number. results: of each array that the library writes its name, its shape and its number. last: of each last state its name,
    its shape, the number of its states, and where it lies in these, in bytes. shapes: of all that derivatives read. gradients:
    passes of its gradients, by which seeds there are and what wants one (_derivatives.py)."""

    __slots__ = ("call", "plan", "arguments", "results", "last", "scratch", "lengths", "shapes", "gradients")

    def __init__(self, call: Call, named: Named, made: Named, plan: _native.Plan) -> None:
        self.call, self.plan, self.scratch = call, plan, (plan.scratch[call.number],)
        self.arguments = [(array.shape, array.dtype, _NUMBER.get(name, -1)) for name, array in named.items()]
        self.results = [(name, tuple(array.shape), _NUMBER[name]) for name, array in made.items()]
        self.lengths = call.arguments.index("lengths") if "lengths" in call.arguments else -1
        self.shapes = [(array.shape, array.dtype, array.device) for array in
                       (*named.values(), *[made[name] for name in call.results if name in KEPT])]
        self.gradients: dict[Any, Any] = {}
        self.last = []
        for name, states in (("h_last", "h"), ("c_last", "c")):
            if self.lengths < 0 and name in call.results:
                steps, *shape = made[states].shape
                size = shape[0] * shape[1] * made[states].element_size()
                self.last.append((name, tuple(shape), _NUMBER[states], (steps - 1) * size, size))

    def read(self, arrays: Sequence[Tensor], like: Any = None, first: int = 0) -> Read | None:
        """The arrays, as the pass reads them; those in front of the first one have their addresses in `like`. None: one is not as
        it was, and the longer way says whether it may be so."""
        if torch._C._len_torch_dispatch_stack() > 0 or _watched():
            return None
        at, places, kept = _native.addresses(like), [], []
        for array, (shape, dtype, number) in zip(arrays[first:], self.arguments[first:]):
            kind = type(array)
            if (kind is not _PARAMETER and kind is not Tensor) or array.dtype is not dtype or array.shape != shape or \
                    not array.is_cpu or array.layout is not _STRIDED:
                return None
            place = array.data_ptr()
            places.append(place)
            if not array.is_contiguous() or array.is_neg():
                array = _tensors.dense(array)
                kept.append(array)
                place = array.data_ptr()
            if number >= 0:
                at[number] = place
        return at, places, kept

    def compute(self, arrays: Sequence[Tensor], read: Read) -> list[Tensor]:
        """The results."""
        call, made, at = self.call, {}, read[0]
        x = arrays[call.x]
        for name, shape, number in self.results:
            made[name] = array = x.new_empty(shape)
            at[number] = array.data_ptr()
        scratch = x.new_empty(self.scratch, dtype=_BYTE)
        self.plan.run(call.number, at, scratch.data_ptr())
        for name, shape, states, offset, size in self.last:
            made[name] = array = x.new_empty(shape)
            ctypes.memmove(array.data_ptr(), at[states] + offset, size)
        if call.number > 0 and len(made) == len(call.results):
            return list(made.values())
        return _results(call, made, x, None if self.lengths < 0 else arrays[self.lengths], False)


Read = Tuple[Any, List[int], List[Tensor]]  # addresses by number, the given arrays' own addresses, and dense copies
_READY = 1024  # an account prepares at most so many


def find_ready(account: Account, call: Call, x: Tensor, w_hh: Tensor) -> Ready | None:
    """The pass of a call of the account's with arrays of such shapes, if its like has been computed."""
    return account.ready.get((call, x.shape, w_hh.shape, x.dtype, torch.get_num_threads()))


def _keep_ready(account: Account, call: Call, named: Named, made: Named, plan: _native.Plan) -> None:
    x, w_hh = named["x"], named["w_hh"]
    if len(account.ready) >= _READY:
        account.ready = {}
    account.ready[call, x.shape, w_hh.shape, x.dtype, torch.get_num_threads()] = Ready(call, named, made, plan)


def again(call: Call, arrays: Sequence[Tensor]) -> list[Tensor] | None:
    """The results of a pass on the CPU, with few steps of Python. None: none of its kind and shapes has been computed yet, or an
    array is not what it is to be; compute says what."""
    ready = find_ready(owner(call), call, arrays[call.x], arrays[call.w_hh])
    read = None if ready is None else ready.read(arrays)
    return None if read is None else ready.compute(arrays, read)


_STRIDED, _BYTE, _PARAMETER = torch.strided, torch.uint8, torch.nn.Parameter
# Does torch.compile look at each function that is called? Then only what it is told not to look at may be called.
_watched = getattr(getattr(torch._C._dynamo, "eval_frame", None), "get_eval_frame_callback", lambda: True)


_NOBODY = Account()  # keeps plans of calls whose module is gone, or in another process


def owner(call: Call) -> Account:
    """The account of the call's module."""
    return find_account(call.layer.account) or _NOBODY


def plain(arrays: Sequence[Tensor]) -> bool:
    """Have all arrays numbers that nobody records?"""
    if torch._C._len_torch_dispatch_stack() > 0:
        return False
    for array in arrays:
        if type(array) is not Tensor and type(array) is not torch.nn.Parameter:
            return False
    return True
