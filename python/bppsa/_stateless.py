"""Passes of bppsa.torch with today's PyTorch: no memory of a module's, no locks; derivatives of any kind, torch.compile,
torch.export.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

import torch
from torch import Tensor

from . import _native
from ._derivatives import AGAIN, EAGER, FORWARD, dispatch, transforms, within
from ._edges import cannot
from ._passes import Call, call_of, find_ready, results_of
from ._precision import widened
from ._spans import Spans
from ._tensors import GATES, Marks, checked

__all__ = ["opaque", "run"]


def opaque(what: Callable[[tuple[Any, ...]], str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function of a layer's that says in a sentence that torch.jit.trace cannot look into it. All others may. what: names
    the layer, from the arguments."""
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if torch.jit.is_tracing():
                raise cannot(what(args), "torch.jit.trace")
            return function(*args, **kwargs)

        return call

    return decorate


_KINDS = ("w_ih", "w_hh", "b_ih", "b_hh")


def _add_weights(module: Any, number: int, named: dict[str, Any]) -> None:
    """Adds W_ih, W_hh and, if the module has them, b_ih and b_hh of one direction of one layer to the arrays."""
    parameters = module._parameters
    for kind, name in zip(_KINDS, module._names[number]):
        tensor = parameters.get(name)
        if tensor is None:  # something else than a parameter has taken its place
            tensor = getattr(module, name)
            if not isinstance(tensor, Tensor):
                raise TypeError(f"bppsa.torch.{type(module).__name__}: {name}: a {type(tensor).__name__}, expected a tensor")
        named[kind] = tensor


def _check_weights(module: Any, number: int, named: dict[str, Any]) -> None:
    """Makes the weights among the arrays what a pass can read. ValueError, TypeError, NotImplementedError: it cannot."""
    x, rows = named["x"], GATES[module._cell] * module.hidden_size
    shapes = ((rows, x.shape[2]), (rows, module.hidden_size), (rows,), (rows,))
    for kind, name, shape in zip(_KINDS, module._names[number], shapes):
        what, tensor = f"bppsa.torch.{type(module).__name__}: {name}", named[kind]
        if type(tensor) is not torch.nn.Parameter or tensor.dtype is not x.dtype or tensor.device != x.device:
            tensor = named[kind] = checked(what, widened(tensor), x)
        if tensor.shape != shape:
            raise ValueError(f"{what} is {list(tensor.shape)}, expected {list(shape)}")


_OPEN = "|".join(map(str, _native.OPEN))


@torch.compiler.assume_constant_result
def _within_transform() -> bool:
    """Does torch.compile record a part of what torch.func transforms?"""
    return torch._C._are_functorch_transforms_active()


def _text(module: Any, account: str, number: int) -> str:
    """Layer.text of a module's layer. torch.compile takes texts for constants, and numbers not always."""
    speculation = "|".join(map(str, module._numbers())) if module.scan == "speculative" else _OPEN
    return f"{module._cell}|{module._relu}|{module.scan}|{module.forward_method}|{speculation}|{account}|{number}"


def _call_of(module: Any, number: int, named: dict[str, Any], recorded: bool, cells: bool, mark: bool) -> Call:
    """The call of a layer's pass with numbers."""
    account = module._pool.account
    speculation = module._numbers() if module.scan == "speculative" else ()
    key = (*named, number, recorded, cells, mark, module.scan, module.forward_method, module._relu, *speculation)
    found = account.calls.get(key)
    if found is None:
        found = account.calls[key] = call_of("forward", " ".join(named), results_of(module._cell, recorded, cells, mark),
                                             _text(module, account.handle, number))
    return found


def _compute(module: Any, number: int, named: dict[str, Any], recorded: bool, cells: bool, mark: bool) -> Sequence[Tensor]:
    """A pass with numbers, outside of transforms. One whose like has been computed goes a shorter way."""
    x, call, arrays = named["x"], _call_of(module, number, named, recorded, cells, mark), list(named.values())
    w_hh = named["w_hh"]
    fits = w_hh.dim() == 2 and w_hh.shape[1] == module.hidden_size  # which the caller may have changed
    ready = find_ready(module._pool.account, call, x, w_hh) if fits else None
    read = None if ready is None else ready.read(arrays)
    if read is not None:
        return AGAIN.apply((ready, read), *arrays) if recorded else ready.compute(arrays, read)
    _check_weights(module, number, named)
    return EAGER.apply(call, *named.values()) if recorded else dispatch(call, list(named.values()))


def run(module: Any, x: Tensor, spans: Spans, first: Any, number: int, marks: Marks, cells: bool) -> Any:
    """h_1 .. h_T [T,B,H], with cells c_1 .. c_T too, and the last state of one direction of one layer, in the order in which it
    walks."""
    named = {"x": x}
    if first is not None:
        named["h0"] = first[0][0]
        if module._pair:
            named["c0"] = first[1][0]
    _add_weights(module, number, named)
    if spans.resets is not None:
        begins = module._begins(x, number)
        if begins is not None:
            named["reset_state"] = begins
        named["resets"] = spans.resets
    if spans.lengths is not None:
        named["lengths"] = spans.lengths
    compiling, mapped = torch.compiler.is_compiling(), False
    recorded = compiling and torch.is_grad_enabled()
    if compiling and _within_transform():
        raise within()
    if not compiling:
        mapped = transforms()
        recorded = mapped or (torch.is_grad_enabled() and any([tensor.requires_grad for tensor in named.values()]))
    # Layers below the last one learn whether the loss misses a step of those above them.
    below_another = number // module._directions + 1 < module.num_layers
    mark = recorded and not mapped and below_another and module.scan in ("auto", "speculative")
    if marks.below is not None and recorded:
        named["below"] = marks.below
    if compiling or mapped:
        _check_weights(module, number, named)
        text = _text(module, *(("", -1) if mapped else (module._pool.account.handle, number)))
        names, results = " ".join(named), results_of(module._cell, recorded, cells, mark)
        if mapped:
            found = FORWARD.apply(call_of("forward", names, results, text), *named.values())
        else:
            found = torch.ops.bppsa.forward(list(named.values()), names, results, text)
    else:
        found = _compute(module, number, named, recorded, cells, mark)
    # y, h_last, and perhaps c_last, cells and a mark
    last = tuple([part.unsqueeze(0) for part in found[1:2 + module._pair]])
    states = (found[0], found[3]) if cells else (found[0],)
    if mark:
        marks.here.append(found[2 + module._pair + cells])
    return states, last
