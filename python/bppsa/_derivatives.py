"""The passes of a recurrent layer (_passes.py) as functions and operators of PyTorch, with their derivatives, what vmap does to
them, and their shapes.

Functions of torch.autograd are what a layer calls with numbers, and under torch.func: these know forward and backward derivatives.
Operators, bppsa::forward and so on, are what torch.compile and torch.export record; each is differentiated by its function.

The tape of a pass is a function of the pass's arguments. What reads it has a derivative in these arguments, through the tape
too, and gives the tape's arrays none.
"""
from __future__ import annotations

import inspect
from typing import Any, Sequence

import torch
from torch import Tensor

from . import _native
from ._passes import KEPT, KINDS, PARAMETERS, SHAPES, TAPE, Call, Named, Read, Ready, Sizes, again, call_of, compute, find_ready
from ._passes import last_rows, owner, plain

_Tensors = Sequence[Tensor]


# ---- calls ----

def transforms() -> bool:
    """Is torch.func at work, or forward-mode differentiation?"""
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0


def dispatch(call: Call, arrays: _Tensors) -> list[Tensor]:
    """The results of a pass, without derivatives: computed, or recorded by whoever records."""
    if plain(arrays):
        return again(call, arrays) or compute(call, arrays)
    with torch._C._AutoDispatchBelowAutograd():
        return getattr(torch.ops.bppsa, call.kind)(list(arrays), " ".join(call.arguments), " ".join(call.results), call.text)


def run(kind: str, named: Named, results: Sequence[str], text: str) -> Named:
    """Results of a pass by their names, with derivatives where somebody may want them."""
    call = call_of(kind, " ".join(named), " ".join(results), text)
    arrays = list(named.values())
    level = _seeds_level()
    if level > 0 and any(map(_has_seeds, arrays)):
        found = _over_seeds(level, call, arrays)
    elif torch.is_grad_enabled() or transforms():
        found = _FUNCTIONS[kind].apply(call, *arrays)
    else:
        found = dispatch(call, arrays)
    return dict(zip(results, found))


# ---- functions ----

def _keep(ctx: Any, call: Call, arrays: _Tensors, output: _Tensors) -> None:
    """Keeps what derivatives of a pass read."""
    ctx.call, ctx.ready, ctx.at = call, None, None
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*[result for name, result in zip(call.results, output) if name in TAPE])
    kept = [result for name, result in zip(call.results, output) if name in KEPT]
    if transforms() or not plain(arrays):
        ctx.shapes = None
        ctx.save_for_backward(*arrays, *kept)
        ctx.save_for_forward(*arrays, *kept)
        return
    if call.number == 0:
        ctx.ready = find_ready(owner(call), call, arrays[call.x], arrays[call.w_hh])
    shapes = [(array.shape, array.dtype, array.device) for array in (*arrays, *kept)]
    _save(ctx, shapes, [array.data_ptr() for array in arrays], arrays, kept)


def _save(ctx: Any, shapes: Any, places: Sequence[int], arrays: _Tensors, kept: _Tensors) -> None:
    """Saves the values of a forward pass: aliases, which `x.data = ..` does not change, and what it kept. Behind them what
    derivatives of the gradients go to. places: the addresses of the arrays."""
    ctx.shapes, ctx.places = shapes, places
    ctx.save_for_backward(*[array.detach() for array in arrays], *kept, *[array for array in arrays if array.requires_grad])


class _Pass(torch.autograd.Function):
    """A pass of one kind: a call and its arrays, in order, to its results."""

    @staticmethod
    def forward(call: Call, *arrays: Tensor) -> Any:
        return tuple(dispatch(call, arrays))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        call, *arrays = inputs
        _keep(ctx, call, arrays, output)

    @staticmethod
    def backward(ctx: Any, *seeds: Tensor | None) -> Any:
        call = ctx.call
        given = {name: seed for name, seed in zip(call.results, seeds) if seed is not None and name not in TAPE}
        if not given:
            return (None,) * (1 + len(call.arguments))
        saved = ctx.saved_tensors  # once, because hooks may recompute what they are asked for
        if ctx.ready is not None and not torch.is_grad_enabled() and not transforms() and _seeds_level() == 0:
            gradients = _gradients_again(ctx, saved, seeds)
            if gradients is not None:
                return gradients
        wanted = [name for name, want in zip(call.arguments, ctx.needs_input_grad[1:]) if want and name not in TAPE]
        found = _GRADIENTS[call.kind](call, _saved_of(ctx, saved), given, wanted)
        return (None, *[found.get(name) for name in call.arguments])

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Tensor | None) -> Any:
        call = ctx.call
        named = dict(zip((*call.arguments, *[name for name in call.results if name in KEPT]), ctx.saved_tensors))
        along = {name: tangent for name, tangent in zip(call.arguments, tangents) if tangent is not None and name not in TAPE}
        found = _TANGENTS[call.kind](call, named, along) if along else {}
        return tuple([found.get(name) for name in call.results])

    @staticmethod
    def vmap(info: Any, in_dims: Any, call: Call, *arrays: Tensor) -> Any:
        return _map(info.batch_size, in_dims[1:], call, arrays)


# Every call asks for the signature of `forward`, which inspect would make anew each time.
_Pass.forward.__signature__ = inspect.signature(_Pass.forward)  # type: ignore[attr-defined]


def _saved_of(ctx: Any, tensors: _Tensors) -> Named:
    """The arrays of a pass and what it kept, by their names: those that derivatives go to, where the graph of gradients is
    recorded."""
    call, saved = ctx.call, list(tensors)
    names = [*call.arguments, *[name for name in call.results if name in KEPT]]
    if ctx.shapes is None:
        return dict(zip(names, saved))
    for array, (shape, dtype, device) in zip(saved, ctx.shapes):
        if array.shape != shape or array.dtype is not dtype or array.device != device:
            raise _native.RequestError(
                f"bppsa.torch: a tensor saved for the backward pass came back as {array.dtype} {list(array.shape)} on "
                f"{array.device}, expected {dtype} {list(shape)} on {device} as it was saved")
    if torch.is_grad_enabled():
        behind = iter(saved[len(names):])
        wanted = [name for name, want in zip(call.arguments, ctx.needs_input_grad[1:]) if want]
        for name, array in zip(wanted, behind):
            number = names.index(name)
            if saved[number].data_ptr() == ctx.places[number] != array.data_ptr():
                raise _native.RequestError(f"bppsa.torch: {name} has had other memory since its pass (x.data = ..), expected the "
                                           "same tensor where a gradient is differentiated again")
            saved[number] = array
    return dict(zip(names, saved))


# ---- derivatives ----

class _Gradients:
    """The pass that computes gradients of a forward pass, without a graph of their own. saved: which of the saved tensors it
    reads. seeds: the numbers of the results whose gradients come in. places: where each gradient belongs among what
    _Pass.backward gives. ready: the pass, if its like has been computed."""

    __slots__ = ("call", "saved", "seeds", "places", "none", "ready")

    def __init__(self, call: Call, seeds: Sequence[bool], wanted: Sequence[bool]) -> None:
        self.ready: Ready | None = None
        inputs = [name for name in (*call.arguments, *call.results)
                  if name in PARAMETERS or name in TAPE or name in ("lengths", "resets")]
        kept = [*call.arguments, *[name for name in call.results if name in KEPT]]
        self.saved = [kept.index(name) for name in inputs]
        self.seeds = [number for number, (name, seed) in enumerate(zip(call.results, seeds)) if seed and name not in TAPE]
        names = [name for name, want in zip(call.arguments, wanted[1:]) if want]
        self.places = [1 + call.arguments.index(name) for name in names]
        self.none = [None] * (1 + len(call.arguments))
        self.call = call_of("backward", " ".join([*inputs, *[f"of_{call.results[number]}" for number in self.seeds]]),
                            " ".join([f"of_{name}" for name in names]), call.text)


def _gradients_again(ctx: Any, saved: _Tensors, seeds: Sequence[Tensor | None]) -> Any:
    """What _Pass.backward gives of a forward pass, with few steps of Python; None: see again."""
    ready, wanted = ctx.ready, ctx.needs_input_grad
    key = (wanted, torch.get_num_threads(), *[seed is not None for seed in seeds])
    found = ready.gradients.get(key)
    if found is None:
        found = ready.gradients[key] = _Gradients(ready.call, key[2:], wanted)
    call = found.call
    arrays = [*[saved[number] for number in found.saved], *[seeds[number] for number in found.seeds]]
    if found.ready is None:
        found.ready = find_ready(owner(call), call, arrays[call.x], arrays[call.w_hh])
    if found.ready is None:
        return None
    if ctx.at is not None and [array.data_ptr() for array in saved[:len(ctx.places)]] == ctx.places:  # where the forward pass read
        read = found.ready.read(arrays, ctx.at, len(found.saved))
    else:
        read = found.ready.read(arrays)
    if read is None:
        return None
    gradients = found.none.copy()
    for place, gradient in zip(found.places, found.ready.compute(arrays, read)):
        gradients[place] = gradient
    return tuple(gradients)


def _inputs(named: Named) -> Named:
    """What every pass over a tape reads: a forward pass's arguments and its tape."""
    return {name: array for name, array in named.items() if name in PARAMETERS or name in TAPE or name in ("lengths", "resets")}


def _seeds(named: Named, prefix: str = "of_") -> Named:
    """The gradients of a pass's results."""
    return {name: array for name, array in named.items() if name in _SEEDS[prefix]}


_SEEDS = {prefix: tuple(prefix + name for name in ("y", "cells", "h_last", "c_last")) for prefix in ("of_", "d_of_")}


def _states(call: Call) -> list[str]:
    """The tangents of a call's states."""
    return ["d_h", "d_c"] if call.pair else ["d_h"]


def _of_results(states: Named, names: Sequence[str], lengths: Tensor | None) -> Named:
    """The tangents of a forward pass's results, from those of its states."""
    found = {"y": lambda: states["d_h"][1:], "cells": lambda: states["d_c"][1:],
             "h_last": lambda: last_rows(states["d_h"], lengths), "c_last": lambda: last_rows(states["d_c"], lengths)}
    return {name: found[name]() for name in names if name in found}


def _along(named: Named) -> Named:
    return {f"d_{name}": tangent for name, tangent in named.items()}


def _forward_gradients(call: Call, named: Named, given: Named, wanted: Sequence[str]) -> Named:
    seeds = {f"of_{name}": seed for name, seed in given.items()}
    if torch.is_grad_enabled() or transforms():  # marks are for passes with numbers
        seeds.pop("of_mark", None)
    found = run("backward", {**_inputs(named), **seeds}, [f"of_{name}" for name in wanted], call.text)
    return {name: found[f"of_{name}"] for name in wanted}


def _forward_tangents(call: Call, named: Named, along: Named) -> Named:
    along.pop("below", None)
    states = run("tangent", {**_inputs(named), **_along(along)}, _states(call), call.text) if along else {}
    return _of_results(states, call.results, named.get("lengths")) if states else {}


def _backward_gradients(call: Call, named: Named, given: Named, wanted: Sequence[str]) -> Named:
    """Of gradients: with their gradients as the direction, the tangents of the results are the gradients of the seeds, and the
    second derivative, which is symmetric, is the gradient of the arguments."""
    direction = {name.replace("of_", "d_", 1): gradient for name, gradient in given.items() if name != "of_below"}
    if not direction:
        return {}
    inputs = _inputs(named)
    states = run("tangent", {**inputs, **direction}, _states(call), call.text)
    found = {f"of_{name}": tangent for name, tangent in
             _of_results(states, [name[3:] for name in wanted if name in _SEEDS["of_"]], named.get("lengths")).items()}
    arguments = [name for name in wanted if name in PARAMETERS]
    if arguments:
        second = run("second", {**inputs, **_seeds(named), **direction, **states}, [f"of_{name}" for name in arguments], call.text)
        found.update({name: second[f"of_{name}"] for name in arguments})
    return found


def _backward_tangents(call: Call, named: Named, along: Named) -> Named:
    direction, seeds = ({name: tangent for name, tangent in along.items() if name in group}
                        for group in (PARAMETERS, _SEEDS["of_"]))
    inputs = _inputs(named)
    results = [name for name in call.results if name != "of_below"]
    if not direction:  # gradients are linear in the seeds
        return run("backward", {**inputs, **seeds}, results, call.text) if seeds and results else {}
    states = run("tangent", {**inputs, **_along(direction)}, _states(call), call.text)
    return run("second", {**inputs, **_seeds(named), **_along(direction), **states, **_along(seeds)}, results, call.text)


def _tangent_gradients(call: Call, named: Named, given: Named, wanted: Sequence[str]) -> Named:
    """Of tangents of the states: of the direction, in which they are linear, what backward gives; of the arguments the derivative
    of that along the direction. Row 0 of the states is h_0."""
    inputs, names = _inputs(named), {"d_h": ("of_y", "d_h0"), "d_c": ("of_cells", "d_c0")}
    seeds = {names[name][0]: seed[1:] for name, seed in given.items()}
    direction = {name: array for name, array in named.items() if name.startswith("d_") and name not in ("d_h", "d_c")}
    states = {name: named[name] for name in _states(call)}
    found: Named = {}
    linear = [name for name in wanted if name.startswith("d_")]
    if linear:
        first = run("backward", {**inputs, **seeds}, [name.replace("d_", "of_", 1) for name in linear], call.text)
        found.update({name: first[name.replace("d_", "of_", 1)] for name in linear})
        for name, seed in given.items():
            if names[name][1] in found:
                found[names[name][1]] = found[names[name][1]] + seed[0]
    arguments = [name for name in wanted if name in PARAMETERS]
    if arguments:
        second = run("second", {**inputs, **seeds, **direction, **states}, [f"of_{name}" for name in arguments], call.text)
        found.update({name: second[f"of_{name}"] for name in arguments})
    return found


def _tangent_tangents(call: Call, named: Named, along: Named) -> Named:
    """Of tangents of the states, which are linear in the direction and depend on the arguments."""
    inputs = _inputs(named)
    linear = {name: tangent for name, tangent in along.items() if name.startswith("d_")}
    other = {f"e_{name}": tangent for name, tangent in along.items() if name in PARAMETERS}
    found = run("tangent", {**inputs, **linear}, _states(call), call.text) if linear else {}
    if other:
        direction = {name: array for name, array in named.items() if name.startswith("d_")}
        second = run("third", {**inputs, **direction, **other}, [name.replace("d_", "e_") for name in _states(call)], call.text)
        found = {name: second[name.replace("d_", "e_")] + found.get(name, 0) for name in _states(call)}
    return found


def _third_gradients(call: Call, named: Named, given: Named, wanted: Sequence[str]) -> Named:
    """Of derivatives of tangents along a second direction: of that direction, in which they are linear, the derivative of what
    backward gives along the first one."""
    if not all(name.startswith("e_") for name in wanted):
        _third()
    seeds = {{"e_h": "of_y", "e_c": "of_cells"}[name]: seed[1:] for name, seed in given.items()}
    direction = {name: array for name, array in named.items() if name.startswith("d_")}
    found = run("second", {**_inputs(named), **seeds, **direction}, [name.replace("e_", "of_", 1) for name in wanted], call.text)
    return {name: found[name.replace("e_", "of_", 1)] for name in wanted}


def _third(*_: Any) -> Any:
    raise NotImplementedError("bppsa.torch: third derivatives are refused, expected a layer of torch.nn where a second derivative "
                              "is differentiated again")


_GRADIENTS = {"forward": _forward_gradients, "backward": _backward_gradients, "tangent": _tangent_gradients, "second": _third,
              "third": _third_gradients}
_TANGENTS = {"forward": _forward_tangents, "backward": _backward_tangents, "tangent": _tangent_tangents, "second": _third,
             "third": _third}
_FUNCTIONS = {kind: type(f"Layer{kind.capitalize()}", (_Pass,), {}) for kind in KINDS}
FORWARD = _FUNCTIONS["forward"]


class EAGER(_Pass):
    """FORWARD outside of torch.func and of forward-mode differentiation: PyTorch calls it in fewer steps."""

    @staticmethod
    def forward(ctx: Any, call: Call, *arrays: Tensor) -> Any:
        results = tuple(dispatch(call, arrays))
        _keep(ctx, call, arrays, results)
        return results

    setup_context = torch.autograd.Function.setup_context


_Y = list(SHAPES).index("y")
# The hooks that are asked for tensors that are saved, which may give back others.
_hooked = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: True)


class AGAIN(EAGER):
    """EAGER for a layer's pass that is ready and has read its arrays."""

    @staticmethod
    def forward(ctx: Any, given: tuple[Ready, Read], *arrays: Tensor) -> Any:  # type: ignore[override]
        ready, (at, places, copies) = given
        results = ready.compute(arrays, given[1])
        kept = results[ready.call.tape:]
        ctx.call, ctx.ready, ctx.at = ready.call, ready, None
        if not copies and not _hooked(True):  # autograd gives back what it is given
            at[_Y] = None
            ctx.at = at
            places += [array.data_ptr() for array in kept]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*kept)
        _save(ctx, ready.shapes, places, arrays, kept)
        return tuple(results)


# ---- vmap ----

def _fold(name: str, array: Tensor, axis: int | None, count: int) -> Tensor:
    """Joins the axis of a vmap, `count` long, to the samples."""
    if "B" not in SHAPES[name]:
        return array
    place = SHAPES[name].index("B")
    array = array.unsqueeze(place).expand(*array.shape[:place], count, *array.shape[place:]) if axis is None else \
        array.movedim(axis, place)
    return array.flatten(place, place + 1)


def _map(count: int, axes: Sequence[int | None], call: Call, arrays: _Tensors) -> Any:
    """A pass over arrays of which some have one axis more. Where these all have samples, and the results too, the axis is more
    samples; otherwise the passes follow each other."""
    layer = call.layer.without_state()  # members of a vmap are no passes of the module
    named = list(zip(call.arguments, arrays, axes))
    mapped = [name for name, _, axis in named if axis is not None]
    if all("B" in SHAPES[name] for name in (*mapped, *call.results)):
        folded = {name: _fold(name, array, axis, count) for name, array, axis in named}
        found = run(call.kind, folded, call.results, layer.text())
        places = [SHAPES[name].index("B") for name in call.results]
        return tuple([array.unflatten(place, (count, array.shape[place] // count)) for array, place in
                      zip(found.values(), places)]), tuple(places)
    members = [run(call.kind, {name: array if axis is None else array.select(axis, k) for name, array, axis in named}, call.results,
                   layer.text()) for k in range(count)]
    return tuple([torch.stack([member[name] for member in members]) for name in call.results]), (0,) * len(call.results)


# torch.autograd.grad(is_grads_batched=True) and jacobian(vectorize=True) map by an older vmap, which asks no function for a rule.

def _seeds_level() -> int:
    """How many of these maps are in force."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return level


_has_seeds = torch._C._functorch.is_legacy_batchedtensor


def _over_seeds(level: int, call: Call, arrays: _Tensors) -> list[Tensor]:
    """A pass within such a map."""
    axes = [0 if _has_seeds(array) else None for array in arrays]
    whole = [array if axis is None else torch._remove_batch_dim(array, level, 1, 0) for array, axis in zip(arrays, axes)]
    count = next(array.shape[0] for array, axis in zip(whole, axes) if axis == 0)
    found, places = _map(count, axes, call, whole)
    return [torch._add_batch_dim(array.movedim(place, 0).contiguous(), 0, level) for array, place in zip(found, places)]


# ---- operators ----

_library = torch.library.Library("bppsa", "DEF")
_SCHEMA = "(Tensor[] arrays, str arguments, str results, str layer) -> Tensor[]"


def _shapes(call: Call, arrays: _Tensors) -> list[Tensor]:
    """Results without numbers."""
    sizes = Sizes(call, dict(zip(call.arguments, arrays)))
    return [arrays[call.arguments.index("x")].new_empty(sizes.of(name)) for name in call.results]


def within() -> NotImplementedError:
    """Operators have no rules for transforms: those of a layer are its functions'."""
    return NotImplementedError("bppsa.torch: a transform of torch.func within torch.compile or around an operator is refused, "
                               "expected the transform without torch.compile, of a layer")


def _define(kind: str) -> None:
    name, function = f"bppsa::{kind}", _FUNCTIONS[kind]

    def numbers(arrays: list[Tensor], arguments: str, results: str, layer: str) -> list[Tensor]:
        return compute(call_of(kind, arguments, results, layer), arrays)

    def shapes(arrays: list[Tensor], arguments: str, results: str, layer: str) -> list[Tensor]:
        return _shapes(call_of(kind, arguments, results, layer), arrays)

    def differentiated(arrays: list[Tensor], arguments: str, results: str, layer: str) -> list[Tensor]:
        if torch._C._are_functorch_transforms_active():
            raise within()
        return list(function.apply(call_of(kind, arguments, results, layer), *arrays))

    def mapped(info: Any, in_dims: Any, arrays: list[Tensor], arguments: str, results: str, layer: str) -> Any:
        raise within()

    _library.define(kind + _SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        _library.impl(kind, numbers, key)
    _library.impl(kind, differentiated, "Autograd")
    torch.library.register_fake(name, shapes, lib=_library)
    torch.library.register_vmap(name, mapped, lib=_library)


for _kind in KINDS:
    _define(_kind)
