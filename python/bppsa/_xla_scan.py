"""The scan h_t = A_t h_{t-1} + b_t as a primitive of JAX: a handler of XLA's FFI (python/xla_scan.h), and its derivatives, which
are scans again, of any order.

Arrays: A [T, B, H, H], or its diagonals [T, B, H]; b [T, B, H]; the state at the beginning [B, H]; the result, all states
[T+1, B, H]. Each may have one axis more in front, of several scans in one call.
"""
from __future__ import annotations

import functools
from typing import Any, NamedTuple, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from . import _native
from ._xla import TARGET_SCAN, alike, refuse_device, shaped, zero_of


class Options(NamedTuple):
    """What a call says beside its arrays."""

    method: str
    threads: int
    diagonal: bool
    reverse: bool
    transposed: bool


SCAN = Primitive("bppsa_scan")


def states(options: Options, a: Any, b: Any, begin: Any) -> Any:
    """All states [T+1, B, H]: row 0 is the one at the beginning, of a reverse scan row T. b None: zeros."""
    return SCAN.bind(*alike([each for each in (a, b, begin) if each is not None]), options=options)


def _members(options: Options, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The axis that some of the arrays have in front, as a shape."""
    ranks = (3 if options.diagonal else 4, *(3,) * (len(arrays) - 2), 2)
    return next((array.shape[:1] for array, rank in zip(arrays, ranks) if len(array.shape) > rank), ())


def _shape(*arrays: Any, options: Options) -> Any:
    a, begin = arrays[0], arrays[-1]
    steps = a.shape[-3 if options.diagonal else -4]
    return shaped((*_members(options, arrays), steps + 1, *begin.shape[-2:]), a.dtype, arrays)


def _lower(context: Any, *operands: Any, options: Options) -> Any:
    flags = {name: np.int64(getattr(options, name)) for name in ("diagonal", "reverse", "transposed", "threads")}
    return jax.ffi.ffi_lowering(TARGET_SCAN)(context, *operands, method=options.method, affine=np.int64(len(operands) == 3),
                                            **flags)


@functools.lru_cache(maxsize=256)
def _compiled(options: Options) -> Any:
    return jax.jit(functools.partial(SCAN.bind, options=options))


def _batch(arrays: Sequence[Any], axes: Sequence[Any], *, options: Options) -> Any:
    """The axis becomes one of several scans in a call, in front of those that the call has already."""
    count = next(array.shape[axis] for array, axis in zip(arrays, axes) if axis is not None)
    ranks = (3 if options.diagonal else 4, *(3,) * (len(arrays) - 2), 2)
    own = [len(array.shape) - (axis is not None) > rank for array, axis, rank in zip(arrays, axes, ranks)]
    members = next((tuple(size for place, size in enumerate(array.shape) if place != axis)[:1]
                    for array, axis, has in zip(arrays, axes, own) if has), ())

    def join(array: Any, axis: int | None, has: bool) -> Any:
        if axis is None and not has:
            return array
        array = jnp.broadcast_to(array[None], (count, *array.shape)) if axis is None else jnp.moveaxis(array, axis, 0)
        if members and not has:
            array = jnp.broadcast_to(array[:, None], (count, *members, *array.shape[1:]))
        return array.reshape(count * members[0], *array.shape[2:]) if members else array

    found = SCAN.bind(*(join(*each) for each in zip(arrays, axes, own)), options=options)
    return found.reshape(count, *members, *found.shape[1:]), 0


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, options: Options) -> Any:
    """The derivative follows the same recurrence, to which dA_t h_{t-1} + db_t is added."""
    found = SCAN.bind(*primals, options=options)
    of_a, *of_b, of_begin = tangents
    added = None if not of_b or isinstance(of_b[0], ad.Zero) else of_b[0]
    if not isinstance(of_a, ad.Zero):
        before = found[..., 1:, :, :] if options.reverse else found[..., :-1, :, :]
        part = of_a * before if options.diagonal else jnp.einsum(
            "...ji,...j->...i" if options.transposed else "...ij,...j->...i", of_a, before)
        added = part if added is None else part + added
    if added is None and isinstance(of_begin, ad.Zero):
        return found, zero_of(found)
    begin = jnp.zeros_like(primals[-1]) if isinstance(of_begin, ad.Zero) else of_begin
    return found, states(options, primals[0], added, begin)


def _transpose(seed: Any, a: Any, *linear: Any, options: Options) -> Any:
    """λ_{t-1} = A_tᵀ λ_t + dh_{t-1}, the other way in time, is the gradient of each state, so of b_t and of the beginning."""
    if ad.is_undefined_primal(a):
        raise NotImplementedError("bppsa.jax.scan: the transpose of a scan in A, in which it is not linear")
    unknown = [each.aval if ad.is_undefined_primal(each) else None for each in linear]
    if isinstance(seed, ad.Zero):
        return [None, *(None if aval is None else ad.Zero(aval) for aval in unknown)]
    back = options._replace(reverse=not options.reverse, transposed=not options.transposed and not options.diagonal)
    last, others = (seed[..., 0, :, :], seed[..., 1:, :, :]) if options.reverse else (seed[..., -1, :, :], seed[..., :-1, :, :])
    found = states(back, a, others, last)
    of_b, of_begin = ((found[..., :-1, :, :], found[..., -1, :, :]) if options.reverse
                      else (found[..., 1:, :, :], found[..., 0, :, :]))
    fitted = [of_b, of_begin] if len(linear) == 2 else [of_begin]
    return [None, *(None if aval is None else each.sum(0) if len(each.shape) > len(aval.shape) else each
                    for each, aval in zip(fitted, unknown))]


SCAN.def_abstract_eval(_shape)
SCAN.def_impl(lambda *arrays, options: _compiled(options)(*arrays))
mlir.register_lowering(SCAN, _lower, platform="cpu")
mlir.register_lowering(SCAN, refuse_device)
batching.primitive_batchers[SCAN] = _batch
ad.primitive_jvps[SCAN] = _jvp
ad.primitive_transposes[SCAN] = _transpose
jax.ffi.register_ffi_target(TARGET_SCAN, jax.ffi.pycapsule(_native.xla_handler("scan")), platform="cpu")
