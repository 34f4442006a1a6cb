"""What the passes of bppsa.torch do with any tensor: checks, places and addresses, and calls of the library that Ctrl-C may end."""
from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

from . import _native

# Does PyTorch have what stateless passes need (_stateless.py)? Otherwise a module leases layers (_lease.py).
MODERN = hasattr(torch.library, "register_vmap")
GATES = {"rnn": 1, "gru": 3, "lstm": 4}  # blocks of rows of W_ih and W_hh
LONG = 2e9  # FLOPs from which Ctrl-C is worth a thread of its own


def autocast(tensor: Tensor) -> bool:
    """Does autocast compute in lower precision on the tensor's device?"""
    if tensor.is_cuda:
        return torch.is_autocast_enabled()
    try:
        return torch.is_autocast_enabled(tensor.device.type)
    except TypeError:  # an older PyTorch
        return torch.is_autocast_cpu_enabled()


def dense(tensor: Tensor) -> Tensor:
    """The tensor as its memory has it: contiguous, and negated where autograd has only noted that."""
    return tensor.resolve_neg().contiguous()


def is_dense(tensor: Tensor) -> bool:
    """Is it so already? What torch.compile records makes sure of it when it runs."""
    return recording() or (tensor.is_contiguous() and not tensor.is_neg())


def recording() -> bool:
    """Does torch.compile or torch.export record?"""
    return MODERN and torch.compiler.is_compiling()


def checked(what: str, tensor: Any, like: Tensor | None = None) -> Tensor:
    """The tensor, contiguous, if the library can compute with it."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{what}: a {type(tensor).__name__}, expected a tensor")
    if tensor.layout is not torch.strided or tensor.is_nested:
        layout = "nested" if tensor.is_nested else tensor.layout
        raise NotImplementedError(f"{what}: its layout is {layout}, expected a dense tensor, as .to_dense() makes of most")
    if like is not None and tensor.device != like.device:
        raise ValueError(f"{what}: on {tensor.device}, expected {like.device} as the others")
    if tensor.device.type not in ("cpu", "cuda"):
        raise NotImplementedError(f"{what}: on {tensor.device}, expected the CPU or a GPU of CUDA")
    if tensor.dtype in (torch.float16, torch.bfloat16) and autocast(tensor):
        tensor = tensor.float()  # the layers compute in float32
    if tensor.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{what}: {tensor.dtype}, expected torch.float32 or torch.float64, as .float() makes of it")
    if like is not None and tensor.dtype != like.dtype:
        raise TypeError(f"{what}: {tensor.dtype}, expected {like.dtype} as the others")
    return tensor if is_dense(tensor) else dense(tensor)


def place(tensor: Tensor) -> tuple[int, int | None]:
    """The number of the tensor's GPU and the address of the caller's stream there; (-1, None) on the CPU."""
    return (tensor.get_device(), torch.cuda.current_stream(tensor.device).cuda_stream) if tensor.is_cuda else (-1, None)


def call(flops: float, tensor: Tensor, function: Callable[[], Any]) -> Any:
    """Calls a function of the library that works with the tensor."""
    if tensor.is_cuda:  # the work is only queued
        with torch.cuda.device(tensor.device):  # the library sets the thread's GPU, and the caller has its own again afterwards
            return function()
    return _native.interruptible(function) if flops > LONG else function()


def growth(scan: str, size: int) -> int:
    """How many times the FLOPs of sequential back-propagation a scan of this kind may take: its products are of matrices, not of a
    matrix and a vector. "auto" takes no scan that a cost model finds slower; "speculative" has no such products, and ends soon
    where it does not help."""
    return 1 if scan in ("auto", "bp", "linear", "speculative") else size


class Refuse(torch.autograd.Function):
    """The first `count` tensors as they are; they depend on the others in a way that cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, what: str, count: int, *tensors: Tensor | None) -> Any:
        ctx.what = what
        return tuple(None if tensor is None else tensor.clone() for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise NotImplementedError(f"{ctx.what}: second derivatives are refused, expected a layer of torch.nn "
                                  "where a gradient is differentiated again")


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


class Marks:
    """The marks (outputs without a value, whose gradients say whether the loss misses a step) of the passes of the present layer,
    and one for all those of the layer below."""

    __slots__ = ("here", "below")

    def __init__(self) -> None:
        self.here: list[Tensor] = []
        self.below: Tensor | None = None

    def go_up(self) -> None:
        """To the next layer."""
        self.here, self.below = [], torch.stack(self.here).sum() if self.here else None
