"""The passes of a recurrent layer as primitives of JAX: handlers of XLA's FFI (python/xla.h), their shapes, their derivatives and
what vmap does to them.

    forward    (x, weights, ..) -> h, c, saved                      what a layer computes, and the tape of its backward passes
    tangent    the derivative of h and c in the direction of tangents, linear in these; its transpose is
    backward   (x, weights, .., tape, of_h, of_c) -> of_x, of_w_ih, .., the gradients
    second     the derivative of backward's results in the direction of tangents, linear in these; its own transpose but for names
    third      the derivative of tangent's results in the direction of other tangents, linear in these; its transpose is second

A primitive's arrays have names, those of BPPSA_PYTHON_ARRAYS in python/passes.h. Its parameters `arguments` and `results` say which
of them a call has. Nothing but arrays goes from one pass to another.
"""
from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any, Dict, NamedTuple, NoReturn, Sequence, Tuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from . import _native


class Options(NamedTuple):
    """What a call says beside its arrays."""

    cell: str
    relu: bool
    method: str
    forward: str
    threads: int


SHAPES: dict[str, str] = {}  # of each array a letter an axis (python/xla.h)
TYPES: dict[str, str] = {}
for _name, _shape, _type in _native.arrays():
    SHAPES[_name], TYPES[_name] = _shape, _type
_NUMBER = {name: number for number, name in enumerate(SHAPES)}

PARAMETERS = ("x", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh", "reset_state")  # with respect to which a layer has derivatives
TAPE = ("h", "c", "saved")
TARGET_SCAN = "bppsa_scan"  # the name of the handler of _xla_scan.py
Names = Tuple[str, ...]
_SYMBOLIC = 2  # stands for a size that is not known while a program is traced


def _bits(names: Names) -> np.int64:
    return np.int64(sum(1 << _NUMBER[name] for name in names))


def ordered(arrays: Dict[str, Any]) -> dict[str, Any]:
    """Those that are not None, in the order of the handlers' lists."""
    return {name: arrays[name] for name in SHAPES if arrays.get(name) is not None}


class _Extents:
    """The sizes of a call, found in the shapes of its arguments."""

    def __init__(self, options: Options, named: dict[str, Any]) -> None:
        steps, batch, width = named["x"].shape[-3:]
        rows, hidden = named["w_hh"].shape[-2:]
        dtype = np.dtype(named["x"].dtype)
        self.dtype = dtype
        self.known = all(isinstance(size, int) for size in (steps, batch))
        self.members = next((array.shape[:1] for name, array in named.items() if len(array.shape) > len(SHAPES[name])), ())
        first = [size if isinstance(size, int) and size > 0 else _SYMBOLIC for size in (steps, batch)]
        asked = _bits(tuple(name for name in named if name in ("b_ih", "b_hh", "lengths", "resets", "reset_state")))
        saved, *self.scratch, self.parts = _facts(options, (*first, width, hidden), bool(dtype == np.float64), int(asked))
        if jax.default_backend() == "gpu":  # a program may run on either, and its arrays have one size
            own = _facts(options._replace(threads=1), (*first, width, hidden), bool(dtype == np.float64), int(asked), gpu=0)
            self.scratch = [max(sizes) for sizes in zip(self.scratch, own[1:])]
        kept = saved // (first[0] * first[1] * dtype.itemsize)
        self.letters = {"T": steps, "N": steps + 1, "B": batch, "I": width, "H": hidden, "G": rows,
                        "S": self.parts * hidden, "K": kept}
        self.empty = self.known and steps * batch == 0

    def shape(self, name: str, number: int) -> tuple[Any, ...]:
        """Of a result of the handler of that number."""
        if name == "scratch":
            return (self.scratch[number] if self.known and not self.empty else 0,)
        return (*self.members, *(self.letters[letter] for letter in SHAPES[name]))


@functools.lru_cache(maxsize=1024)
def _facts(options: Options, sizes: tuple[int, ...], f64: bool, asked: int, gpu: int = -1) -> tuple[int, ...]:
    return _native.xla_facts(options.cell, options.method, options.forward, options.relu, f64, options.threads, gpu, sizes, asked)


def tape_of(options: Options, named: dict[str, Any]) -> Names:
    """The results of a forward pass, without its scratch."""
    extents = _Extents(options, named)
    return ("h", *(("c",) if extents.parts == 2 else ()), *(("saved",) if extents.letters["K"] else ()))


# ---- primitives ----

def _primitive(name: str, number: int) -> Primitive:
    """A primitive with its shapes and its lowering. number: of its scratch."""
    made = Primitive(f"bppsa_{name}")
    made.multiple_results = True
    target = f"bppsa_{name}"

    def shapes(*avals: Any, options: Options, arguments: Names, results: Names) -> list[Any]:
        extents = _Extents(options, dict(zip(arguments, avals)))
        return [shaped(extents.shape(result, number), np.uint8 if result == "scratch" else extents.dtype, avals)
                for result in results]

    def lower(context: Any, *operands: Any, options: Options, arguments: Names, results: Names) -> Any:
        return jax.ffi.ffi_lowering(target)(
            context, *operands, cell=options.cell, method=options.method, forward=options.forward, relu=np.int64(options.relu),
            threads=np.int64(options.threads), arguments=_bits(arguments), results=_bits(results))

    made.def_abstract_eval(shapes)
    made.def_impl(lambda *arrays, **params: _compiled(made, tuple(params.items()))(*arrays))
    def lower_gpu(context: Any, *operands: Any, **params: Any) -> Any:
        """On a GPU of NVIDIA's, if the library can compute on one."""
        try:
            _native.xla_find_gpu()
        except _native.RequestError as reason:
            refuse(f" ({reason})")
        if name == "third":
            refuse(" where a tangent is differentiated once more (jvp of jvp, grad of jvp)")
        return lower(context, *operands, **params)

    mlir.register_lowering(made, lower, platform="cpu")
    mlir.register_lowering(made, lower_gpu, platform="cuda")
    mlir.register_lowering(made, refuse_device)
    batching.primitive_batchers[made] = functools.partial(_batch, made)
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(_native.xla_handler(name)), platform="cpu")
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(_native.xla_handler("gpu_" + name)), platform="CUDA")
    return made


def refuse(why: str) -> NoReturn:
    raise NotImplementedError(f"bppsa.jax: computes on the CPU{why}; put the arrays there, or call it under "
                              "jax.default_device(jax.devices('cpu')[0])")


def refuse_device(context: Any, *operands: Any, **params: Any) -> Any:
    """The lowering on devices on which nothing is computed."""
    refuse("")


def shaped(shape: tuple[Any, ...], dtype: Any, arguments: Sequence[Any]) -> Any:
    """The type of a result. Under shard_map it differs between devices where x does, as `alike` has made the other arguments do."""
    x = arguments[0]
    if not _varying(x):
        return jax.core.ShapedArray(shape, dtype)
    return x.update(shape=shape, dtype=dtype, weak_type=False,
                    sharding=x.sharding.update(spec=jax.sharding.PartitionSpec(*(None,) * len(shape))))


def _varying(aval: Any) -> frozenset[Any]:
    """The axes of a mesh along which an array in shard_map differs, where JAX keeps track of them (check_vma)."""
    return getattr(getattr(aval, "manual_axis_type", None), "varying", frozenset())


def alike(arrays: Sequence[Any]) -> list[Any]:
    """Arrays that all differ along the axes along which one of them does."""
    axes = [_varying(jax.typeof(array)) for array in arrays]
    every = frozenset().union(*axes)
    return [array if every == own else jax.lax.pcast(array, tuple(every - own), to="varying") for array, own in zip(arrays, axes)]


@functools.lru_cache(maxsize=256)
def _compiled(primitive: Primitive, params: tuple[Any, ...]) -> Any:
    return jax.jit(functools.partial(primitive.bind, **dict(params)))


# ---- vmap ----

def _axis_of(name: str, array: Any, letter: str) -> int:
    """The number of an axis of an array that may have one more in front."""
    return SHAPES[name].index(letter) + (len(array.shape) - len(SHAPES[name]))


def _fold(name: str, array: Any, axis: int | None, count: Any) -> Any:
    """Joins the axis of a vmap, `count` long, to the samples."""
    if "B" not in SHAPES[name]:
        return array
    nominal = len(SHAPES[name])
    members = len(array.shape) - (axis is not None) - nominal
    place = SHAPES[name].index("B") + members
    if axis is None:
        array = jnp.broadcast_to(jnp.expand_dims(array, place), (*array.shape[:place], count, *array.shape[place:]))
    else:
        array = jnp.moveaxis(array, axis, place)
    shape = array.shape
    return array.reshape(*shape[:place], shape[place] * shape[place + 1], *shape[place + 2:])


def _join(name: str, array: Any, axis: int | None, count: Any, members: tuple[Any, ...]) -> Any:
    """Makes the axis of a vmap one of passes, in front of those that the call has already."""
    has = len(array.shape) - (axis is not None) - len(SHAPES[name]) == 1
    if axis is None and not has:
        return array
    if axis is None:
        array = jnp.broadcast_to(array[None], (count, *array.shape))
    else:
        array = jnp.moveaxis(array, axis, 0)
    if members and not has:
        array = jnp.broadcast_to(array[:, None], (count, *members, *array.shape[1:]))
    return array.reshape(count * members[0], *array.shape[2:]) if members else array


def _batch(primitive: Primitive, arrays: Sequence[Any], axes: Sequence[Any], *, options: Options, arguments: Names,
           results: Names) -> Any:
    """Where neither an argument with the axis nor a result is one of the weights, the axis is more samples. Otherwise the call
    becomes several passes, one after the other, in one call of the handler."""
    count = next(array.shape[axis] for array, axis in zip(arrays, axes) if axis is not None)
    named = list(zip(arguments, arrays, axes))
    real = [name for name in results if name != "scratch"]
    folds = all("B" in SHAPES[name] for name, _, axis in named if axis is not None) and all("B" in SHAPES[name] for name in real)
    without = [(name, [size for place, size in enumerate(array.shape) if place != axis]) for name, array, axis in named]
    members = next(((sizes[0],) for name, sizes in without if len(sizes) > len(SHAPES[name])), ())
    changed = [_fold(*each, count) if folds else _join(*each, count, members) for each in named]
    found = primitive.bind(*changed, options=options, arguments=arguments, results=results)
    outputs, places = [], []
    for name, array in zip(results, found):
        if name == "scratch":
            place: int | None = None
        else:
            place = _axis_of(name, array, "B") if folds else 0
            array = array.reshape(*array.shape[:place], count, *((array.shape[place] // count,) if folds else members),
                                  *array.shape[place + 1:])
        outputs.append(array)
        places.append(place)
    return outputs, places


# ---- derivatives ----

FORWARD = _primitive("forward", 0)
BACKWARD = _primitive("backward", 1)
TANGENT = _primitive("tangent", 2)
SECOND = _primitive("second", 3)
THIRD = _primitive("third", 4)


def _is_zero(value: Any) -> bool:
    return isinstance(value, ad.Zero)


def zero_of(primal: Any) -> Any:
    return ad.Zero(jax.typeof(primal).to_tangent_aval())


def _along(prefix: str, arguments: Names, tangents: Sequence[Any], names: Names = PARAMETERS) -> dict[str, Any]:
    """The tangents of arguments that are not 0, by their names as such."""
    return {prefix + name: tangent for name, tangent in zip(arguments, tangents) if name in names and not _is_zero(tangent)}


def _call(primitive: Primitive, options: Options, arrays: dict[str, Any], results: Names) -> dict[str, Any]:
    """Calls a primitive with arrays by name, of which it takes those that it knows, and gives its results by name."""
    given = ordered(arrays)
    return dict(zip(results, primitive.bind(*given.values(), options=options, arguments=tuple(given),
                                            results=(*results, "scratch"))))


def _states(names: Sequence[str]) -> Names:
    """Of the tape's arrays those that have tangents, as names of these."""
    return tuple(f"d_{name}" for name in ("h", "c") if name in names)


def _without(named: dict[str, Any], *prefixes: str) -> dict[str, Any]:
    return {name: array for name, array in named.items() if not name.startswith(prefixes)}


def _fit(unknown: dict[str, Any], arguments: Names, found: dict[str, Any]) -> list[Any]:
    """The results of a transpose. An array that several passes share gets the sum of their gradients."""
    fitted = {name: array.sum(0) if len(array.shape) > len(unknown[name].shape) else array for name, array in found.items()
              if name in unknown}
    return [None if name not in unknown else fitted.get(name, ad.Zero(unknown[name])) for name in arguments]


def _unknown(named: dict[str, Any]) -> dict[str, Any]:
    return {name: array.aval for name, array in named.items() if ad.is_undefined_primal(array)}


def _seeds(prefix: str, results: Names, seeds: Sequence[Any]) -> dict[str, Any]:
    """The gradients of results that are not 0, by the names that they have as arguments."""
    return {prefix + name.split("_", 1)[1]: seed for name, seed in zip(results, seeds) if name != "scratch" and not _is_zero(seed)}


def _forward_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, options: Options, arguments: Names, results: Names) -> Any:
    found = FORWARD.bind(*primals, options=options, arguments=arguments, results=results)
    tape = {name: array for name, array in zip(results, found) if name in TAPE}
    derivatives = _call(TANGENT, options, {**dict(zip(arguments, primals)), **tape, **_along("d_", arguments, tangents)},
                        _states(results))
    return found, [derivatives.get(f"d_{name}", zero_of(array)) for name, array in zip(results, found)]


def _tangent_transpose(seeds: Sequence[Any], *arrays: Any, options: Options, arguments: Names, results: Names) -> Any:
    """From the gradients of d_h and d_c to those of the tangents d_x, d_w_ih, .."""
    named = dict(zip(arguments, arrays))
    unknown, seed = _unknown(named), _seeds("of_", results, seeds)
    found = {}
    if seed:
        wanted = tuple(name for name in SHAPES if name.startswith("of_") and name.replace("of_", "d_", 1) in unknown)
        found = _call(BACKWARD, options, {**_without(named, "d_"), **seed}, wanted)
    return _fit(unknown, arguments, {name.replace("of_", "d_", 1): array for name, array in found.items()})


# The tape of a pass is a function of the pass's arguments. A rule for what reads it gives the derivative in these arguments,
# through the tape too, and leaves out the tangents of the tape's arrays; a transpose gives them the gradient 0.

def _backward_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, options: Options, arguments: Names, results: Names) -> Any:
    found = BACKWARD.bind(*primals, options=options, arguments=arguments, results=results)
    named = dict(zip(arguments, primals))
    along = _along("d_", arguments, tangents)
    states = _along("d_", arguments, tangents, ("h", "c"))
    if along and set(states) != set(_states(arguments)):
        states = _call(TANGENT, options, {**_without(named, "of_"), **along}, _states(arguments))
    along = {**along, **_along("d_", arguments, tangents, ("of_h", "of_c"))}
    zeros = {name: jnp.zeros_like(named[name[2:]]) for name in _states(arguments)}
    wanted = tuple(name for name in results if name != "scratch")
    derivatives = _call(SECOND, options, {**named, **zeros, **states, **along}, wanted)
    return found, [derivatives.get(name, zero_of(array)) for name, array in zip(results, found)]


def _second_transpose(seeds: Sequence[Any], *arrays: Any, options: Options, arguments: Names, results: Names) -> Any:
    """The derivative of the gradients is symmetric: with the seeds as the direction it is that of its arguments' gradients."""
    named = dict(zip(arguments, arrays))
    unknown, direction = _unknown(named), _seeds("d_", results, seeds)
    found = {}
    if direction:
        base = _without(named, "d_")
        states = _call(TANGENT, options, {**_without(base, "of_"), **direction}, _states(arguments))
        wanted = tuple(name for name in SHAPES if name.startswith("of_") and name not in ("of_h", "of_c")
                       and name.replace("of_", "d_", 1) in unknown)
        if wanted:
            found = _call(SECOND, options, {**base, **direction, **states}, wanted)
        found = {**{name.replace("of_", "d_", 1): array for name, array in found.items()},
                 **{name.replace("d_", "d_of_", 1): array for name, array in states.items()}}
    return _fit(unknown, arguments, found)


def _tangent_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, options: Options, arguments: Names, results: Names) -> Any:
    found = TANGENT.bind(*primals, options=options, arguments=arguments, results=results)
    named = dict(zip(arguments, primals))
    states = {name: array for name, array in zip(results, found) if name != "scratch"}
    linear = _along("", arguments, tangents, tuple(f"d_{name}" for name in PARAMETERS))
    other = _along("e_", arguments, tangents)
    parts = []
    if linear:
        parts.append(_call(TANGENT, options, {**_without(named, "d_"), **linear}, tuple(states)))
    if other:
        found_other = _call(THIRD, options, {**named, **states, **other}, tuple(name.replace("d_", "e_", 1) for name in states))
        parts.append({name.replace("e_", "d_", 1): array for name, array in found_other.items()})
    sums = {name: parts[0][name] + parts[1][name] if len(parts) == 2 else parts[0][name] for name in states} if parts else {}
    return found, [sums.get(name, zero_of(array)) for name, array in zip(results, found)]


def _third_transpose(seeds: Sequence[Any], *arrays: Any, options: Options, arguments: Names, results: Names) -> Any:
    """The gradient of <seed, derivative in the direction d> is the derivative in that direction of the gradient of <seed, h>."""
    named = dict(zip(arguments, arrays))
    unknown, seed = _unknown(named), _seeds("of_", results, seeds)
    found = {}
    if seed:
        wanted = tuple(name for name in SHAPES if name.startswith("of_") and name.replace("of_", "e_", 1) in unknown)
        found = _call(SECOND, options, {**_without(named, "e_"), **seed}, wanted)
    return _fit(unknown, arguments, {name.replace("of_", "e_", 1): array for name, array in found.items()})


def _refuse_third(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("bppsa.jax: third derivatives: not supported")


ad.primitive_jvps[FORWARD] = _forward_jvp
ad.primitive_jvps[BACKWARD] = _backward_jvp
ad.primitive_jvps[TANGENT] = _tangent_jvp
ad.primitive_jvps[SECOND] = ad.primitive_jvps[THIRD] = _refuse_third
ad.primitive_transposes[TANGENT] = _tangent_transpose
ad.primitive_transposes[SECOND] = _second_transpose
ad.primitive_transposes[THIRD] = _third_transpose


def forward(options: Options, arrays: dict[str, Any]) -> list[Any]:
    """h, and c of a pair, [T+1, B, H] of a layer: row 0 is the state in front of the first step. An array that is None is not
    given."""
    given = ordered(arrays)
    results = (*tape_of(options, given), "scratch")
    found = FORWARD.bind(*alike(list(given.values())), options=options, arguments=tuple(given), results=results)
    return [array for name, array in zip(results, found) if name in ("h", "c")]
