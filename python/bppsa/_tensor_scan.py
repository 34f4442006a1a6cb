"""The affine scan on tensors, with gradients (bppsa.torch.scan)."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _native
from ._edges import cannot, opaque
from ._tensors import address, call, checked, growth, place


class _Scan(torch.autograd.Function):
    """y_{t-1} = A_t y_t + u_{t-1} with y_T = g. Let λ_{t-1} be the gradient of y_{t-1} in all. λ_t = A_tᵀ λ_{t-1} + dy_t is
    the same scan over transposed matrices, in the other order of time. It gives du_t = λ_t, dg = λ_T, and dA_t = λ_{t-1} y_tᵀ.
    """

    @staticmethod
    def forward(ctx: Any, jt: Tensor, u: Tensor | None, g: Tensor, method: str) -> Tensor:
        steps, batch, size = jt.shape[:3]
        diagonal = jt.dim() == 3
        y = jt.new_empty((steps + 1, batch, size))
        y[steps] = g
        threads, where = torch.get_num_threads(), place(jt)
        matrices, injected = jt.detach(), None if u is None else u.detach()  # as of a layer's pass

        def run() -> None:
            plan = _native.Scan(method, diagonal, jt.dtype == torch.float64, (steps, batch, size), u is not None, threads, *where)
            plan.run(matrices.data_ptr(), address(injected), y.data_ptr())

        call(2.0 * jt.numel() * (1 if diagonal else growth(method, size)), jt, run)
        ctx.method = method
        result = y[:steps].data  # no view for autograd, which would not let its user change it
        ctx.save_for_backward(jt, g, result if ctx.needs_input_grad[0] else None)
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

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise cannot("scan", "forward-mode differentiation")


@opaque(lambda _: "scan")
def scan(jt: Tensor, u: Tensor | None, g: Tensor, *, method: str = "auto") -> Tensor:
    """g_0 .. g_{T-1} [T,B,H] of the recurrence g_{t-1} = J_tᵀ g_t + u_{t-1}, for any T; differentiable in all three arguments,
    any number of times.

    jt: J_1ᵀ .. J_Tᵀ [T,B,H,H], or their diagonals [T,B,H]. u: u_0 .. u_{T-1} [T,B,H], or None for zeros. g: g_T [B,H]. All
    float32 or all float64, on the CPU or on one GPU. method: "auto", "linear" (one step after the other), "blelloch", "blelloch 3"
    (up-levels), "chunked", "chunked 8". Raises ValueError, TypeError, bppsa.RequestError, bppsa.RunError.

    A recurrence that runs forward in time, h_t = a_t h_{t-1} + b_t, is scan(a.flip(0), b.flip(0), h_0).flip(0).
    """
    for name, tensor in (("jt", jt), ("u", u), ("g", g)):
        if not isinstance(tensor, Tensor) and (tensor is not None or name != "u"):
            raise TypeError(f"bppsa.torch.scan: {name} is a {type(tensor).__name__}, expected a tensor")
    if jt.dim() not in (3, 4) or (jt.dim() == 4 and jt.shape[2] != jt.shape[3]):
        raise ValueError(f"bppsa.torch.scan: jt: shape {list(jt.shape)}, expected [T, B, H, H], or [T, B, H] for diagonals")
    shape = list(jt.shape[:3])
    if u is not None and list(u.shape) != shape:
        raise ValueError(f"bppsa.torch.scan: u: shape {list(u.shape)}, expected [T, B, H] = {shape}")
    if list(g.shape) != shape[1:]:
        raise ValueError(f"bppsa.torch.scan: g: shape {list(g.shape)}, expected [B, H] = {shape[1:]}")
    jt = checked("bppsa.torch.scan: jt", jt)
    u = None if u is None else checked("bppsa.torch.scan: u", u, jt)
    g = checked("bppsa.torch.scan: g", g, jt)
    if 0 in shape:  # the sums are 0
        return g.expand(shape) + jt.sum() if u is None else g.expand(shape) + (jt.sum() + u.sum())
    return _Scan.apply(jt, u, g, method)
