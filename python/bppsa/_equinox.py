"""bppsa.jax.equinox: a scan over a cell of Equinox, computed by the library."""
from __future__ import annotations

from typing import Any

import equinox as eqx

from . import jax as layers
from ._native import RequestError

_KINDS = {eqx.nn.GRUCell: "gru", eqx.nn.LSTMCell: "lstm"}


class RNN(eqx.Module):
    """What jax.lax.scan over an equinox.nn.GRUCell or LSTMCell computes: the cell is a leaf of the module's tree, with its own
    parameters. method, forward, threads: as in bppsa.jax.gru."""

    cell: Any
    method: str = eqx.field(static=True, default="auto")
    forward: str = eqx.field(static=True, default="sequential")
    threads: int = eqx.field(static=True, default=1)

    def __check_init__(self) -> None:
        if type(self.cell) not in _KINDS:
            raise RequestError(f"bppsa.jax.equinox.RNN: a {type(self.cell).__name__}, expected equinox.nn.GRUCell or LSTMCell")

    def __call__(self, xs: Any, state: Any = None, *, resets: Any = None, key: Any = None) -> tuple[Any, Any]:
        """xs [T, I], or [T, B, I] of a batch; state: the cell's, [H] or [B, H], of an LSTM (h, c), or None for zeros. resets: bool,
        where a sequence begins anew in front of a step. Returns the last state and the outputs h_1 .. h_T, as a scan whose
        step returns (state, h)."""
        run = getattr(layers, _KINDS[type(self.cell)])
        outputs, last = run(xs, layers.from_equinox(self.cell), state, resets=resets, method=self.method, forward=self.forward,
                            threads=self.threads)
        return last, outputs
