"""Recurrent layers of bppsa.torch in bfloat16 and float16: passes compute in float32, and what they give has the caller's type."""
from __future__ import annotations

import threading
from typing import Any, Callable

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ._tensors import autocast

LOWER = (torch.bfloat16, torch.float16)
_HERE = threading.local()  # .widens: the thread is in a call of in_float32


def is_lower(input: Tensor | PackedSequence) -> bool:
    """Is a layer's input, which has values, in lower precision?"""
    data = input.data if isinstance(input, PackedSequence) else input
    return data.dtype in LOWER and data.device.type in ("cpu", "cuda")


def widened(tensor: Any) -> Any:
    """A weight as a pass reads it: in float32 within in_float32 and under autocast, otherwise as it is. Its gradient comes back in
    its own type."""
    lower = isinstance(tensor, Tensor) and tensor.dtype in LOWER
    return tensor.float() if lower and (getattr(_HERE, "widens", False) or autocast(tensor)) else tensor


def _each(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """A state, which is a tensor, a pair of them or None, or a PackedSequence, with its tensors changed."""
    if isinstance(value, PackedSequence):
        return PackedSequence(change(value.data), *value[1:])
    if isinstance(value, (tuple, list)):
        return type(value)(_each(change, each) for each in value)
    return change(value) if isinstance(value, Tensor) else value


def in_float32(name: str, parameters: Any, call: Callable[..., Any], input: Tensor | PackedSequence, hx: Any, *others: Any) -> Any:
    """call(input, hx, *others), the forward pass of a layer with these parameters (name, tensor) whose input is in lower precision.
    Input, state and weights are computed in float32; the results have the input's type, and every gradient that of its tensor.
    Without autocast all of them must have one type, as torch.nn demands. TypeError: they have not."""
    data = input.data if isinstance(input, PackedSequence) else input
    if not autocast(data):
        for what, tensor in parameters:
            if tensor is not None and tensor.dtype is not data.dtype:
                raise TypeError(f"{name}: input: {data.dtype}, expected {tensor.dtype} as {what} has it, or torch.autocast")
        for part in hx if isinstance(hx, (tuple, list)) else (hx,):
            if isinstance(part, Tensor) and part.dtype is not data.dtype:
                raise TypeError(f"{name}: hx: {part.dtype}, expected {data.dtype} as the input, or torch.autocast")
    before, _HERE.widens = getattr(_HERE, "widens", False), True
    try:
        results = call(_each(lambda tensor: tensor.float(), input),
                       _each(lambda tensor: tensor.float() if tensor.dtype in LOWER else tensor, hx), *others)
    finally:
        _HERE.widens = before
    return _each(lambda tensor: tensor.to(data.dtype), results)
