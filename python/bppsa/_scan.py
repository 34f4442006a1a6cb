"""The affine scan on numpy arrays."""
from __future__ import annotations

from typing import Any

import numpy as np

from . import _native
from ._arrays import plain, together
from ._native import RequestError


def _fitting(name: str, array: np.ndarray, shape: tuple[int, ...], words: str, dtype: np.dtype) -> np.ndarray:
    """The array, contiguous, if it has the shape, whose letters are `words`, and the type."""
    if array.dtype != dtype:
        raise RequestError(f"{name}: dtype {array.dtype}, expected {dtype}")
    if array.shape != shape:
        raise RequestError(f"{name}: shape {list(array.shape)}, expected {words} = {list(shape)}")
    return np.ascontiguousarray(array)


def scan(jt: Any, u: Any, g: Any, *, method: str = "auto", threads: int = 0) -> np.ndarray:
    """The gradients g_0 .. g_{T-1} [T,B,H] of the recurrence g_{t-1} = J_tᵀ g_t + u_{t-1}, for any T.

    jt: J_1ᵀ .. J_Tᵀ [T,B,H,H], or their diagonals [T,B,H]. u: u_0 .. u_{T-1} [T,B,H], or None for zeros. g: g_T [B,H]. All
    float32 or all float64; lists and whole numbers take the others' type, halves become float32. method: "auto", "linear" (one
    step after the other), "blelloch", "blelloch 3" (up-levels), "chunked", "chunked 8". threads: 0 for all cores; they do not
    change a bit. Raises RequestError (a ValueError), RunError.
    """
    threads = plain(threads)
    if not isinstance(threads, int):
        raise RequestError(f"threads: {threads!r}, expected a whole number")
    if not -2 ** 63 <= threads < 2 ** 63:
        raise RequestError(f"threads: {threads}, expected a number of cores")
    for name, value in (("jt", jt), ("g", g)):
        if value is None:
            raise RequestError(f"{name}: None, expected an array")
    arrays = together({name: value for name, value in (("jt", jt), ("u", u), ("g", g)) if value is not None})
    jacobians = np.ascontiguousarray(arrays["jt"])
    if jacobians.ndim not in (3, 4) or (jacobians.ndim == 4 and jacobians.shape[2] != jacobians.shape[3]):
        raise RequestError(f"jt: shape {list(jacobians.shape)}, expected [T, B, H, H], or [T, B, H] for diagonals")
    steps, batch, size = (int(extent) for extent in jacobians.shape[:3])
    injected = None if u is None else _fitting("u", arrays["u"], (steps, batch, size), "[T, B, H]", jacobians.dtype)
    seed = _fitting("g", arrays["g"], (batch, size), "[B, H]", jacobians.dtype)
    gradients = np.empty((steps + 1, batch, size), jacobians.dtype)
    gradients[steps] = seed
    if gradients[:steps].size == 0:
        return gradients[:steps]

    def call() -> np.ndarray:
        plan = _native.Scan(method, jacobians.ndim == 3, jacobians.dtype == np.float64, (steps, batch, size), injected is not None,
                            threads)
        plan.run(jacobians.ctypes.data, None if injected is None else injected.ctypes.data, gradients.ctypes.data)
        return gradients[:steps]

    return _native.interruptible(call)


