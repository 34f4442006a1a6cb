"""Where the samples of a batch begin and end: the lengths of packed sequences, and masks of resets, as bppsa.torch's passes take
them (bppsa_spans of core/compute/model.h)."""
from __future__ import annotations

import itertools
from typing import Any, List, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ._tensors import recording


class Spans:
    """The samples of a batch of T steps. lengths: int64 [B] on the CPU, or None where all samples have T steps. resets: bytes [T,B]
    on the layer's device, 1 where a sample begins anew in front of the step, or None. cuts: likewise for the direction that walks
    backwards: 1 where it begins anew in front of its step, in the order of time."""

    __slots__ = ("lengths", "resets", "_cuts")

    def __init__(self, lengths: Tensor | None = None, resets: Tensor | None = None, cuts: Tensor | None = None) -> None:
        self.lengths, self.resets, self._cuts = lengths, resets, cuts

    @property
    def cuts(self) -> Tensor | None:
        if self.resets is not None and self._cuts is None:  # a reset in front of step t cuts between the steps t - 1 and t
            self._cuts = torch.cat([self.resets[1:], torch.zeros_like(self.resets[:1])])
            if self.lengths is not None:
                self._cuts[self.lengths - 1, torch.arange(len(self.lengths))] = 0
        return self._cuts

    def turn(self, rows: Tensor) -> Tensor:
        """The steps of every sample in the other order; rows [T,B,..]. Those behind its end stay."""
        if self.lengths is None:
            return rows.flip(0)
        steps, batch = rows.shape[:2]
        step = torch.arange(steps).unsqueeze(1)
        source = torch.where(step < self.lengths, self.lengths - 1 - step, step) * batch + torch.arange(batch)
        source = source.to(rows.device, non_blocking=True)
        return rows.reshape(steps * batch, *rows.shape[2:]).index_select(0, source.view(-1)).view(rows.shape)

    def turned(self) -> Spans:
        """The samples as the direction sees them that walks backwards."""
        return self if self.cuts is None else Spans(self.lengths, self.turn(self.cuts), self.cuts)

    def add_last(self, rows: Tensor, last: Tensor) -> None:
        """Adds last [B,H] to each sample's last row of rows [T,B,H]."""
        if self.lengths is None:
            rows[-1] += last
        else:
            rows[self.lengths - 1, torch.arange(len(self.lengths))] += last

    def rows(self, steps: int) -> Tensor | None:
        """The indices, on the CPU, of the rows among T·B that belong to a sample; None: all rows do."""
        return None if self.lengths is None else (torch.arange(steps).unsqueeze(1) < self.lengths).view(-1).nonzero().view(-1)


WHOLE = Spans()
Parts = Tuple[List[Tensor], List[Spans]]  # the stretches of time into which a batch is cut, and their spans


def check_resets(name: str, resets: Any, shape: Sequence[int], turned: bool, device: torch.device) -> Tensor | None:
    """The mask of a layer's caller as bytes [T,B]. shape: T, B, or of a single sequence T. turned: the caller's is [B,T]."""
    if resets is None:
        return None
    if not isinstance(resets, Tensor):
        raise TypeError(f"{name}: resets is a {type(resets).__name__}, expected a tensor of torch.bool")
    if resets.layout is not torch.strided or resets.is_nested:
        raise NotImplementedError(f"{name}: resets: its layout is {'nested' if resets.is_nested else resets.layout}, expected a "
                                  "dense tensor")
    if resets.dtype not in (torch.bool, torch.uint8):
        raise TypeError(f"{name}: resets: {resets.dtype}, expected torch.bool, as .bool() makes of it")
    expected = list(reversed(shape)) if turned else list(shape)
    if list(resets.shape) != expected:
        letters = "[T]" if len(shape) == 1 else "[B, T]" if turned else "[T, B]"
        raise ValueError(f"{name}: resets is {list(resets.shape)}, expected {letters} = {expected}")
    if resets.device != device:
        raise ValueError(f"{name}: resets: on {resets.device}, expected {device} as the input")
    if resets.dtype is torch.uint8 and bool((resets > 1).any()):
        where = (resets > 1).nonzero()[0].tolist()
        raise ValueError(f"{name}: resets{where} is {int(resets[tuple(where)])}, expected 0 or 1")
    mask = resets.t() if turned else resets.unsqueeze(1) if len(shape) == 1 else resets
    return mask.to(torch.uint8) if recording() else mask.contiguous().view(torch.uint8)


def packed_spans(packed: PackedSequence, mask: Tensor | None) -> tuple[int, Spans]:
    """The number of steps of packed sequences, and their samples, longest first. mask [T,B], the caller's samples."""
    sizes, order = packed.batch_sizes, packed.sorted_indices
    sizes = sizes[sizes > 0]
    lengths = (sizes.unsqueeze(1) > torch.arange(int(sizes[0]))).sum(0)
    if mask is not None:
        mask = (mask if order is None else mask.index_select(1, order))[:len(sizes)].contiguous()
    return len(sizes), Spans(None if bool((lengths == len(sizes)).all()) else lengths, mask)


def stretches(data: Tensor, sizes: list[int], spans: Spans) -> Parts:
    """The stretches of time [T,B,I] of packed rows with one number of samples each; the longest sequences come first in B."""
    found: list[Tensor] = []
    within: list[Spans] = []
    offset = first = 0
    for batch, same in itertools.groupby(sizes):
        steps = len(list(same))
        if batch > 0 or not found:  # behind the last sample nothing is left to compute
            found.append(data[offset:offset + steps * batch].view(steps, batch, data.shape[1]))
            within.append(WHOLE if spans.resets is None else Spans(None, *(mask[first:first + steps, :batch].contiguous()
                                                                          for mask in (spans.resets, spans.cuts))))
        offset += steps * batch
        first += steps
    return found, within
