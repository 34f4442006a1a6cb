"""What passes of bppsa.torch use again: plans of layers, what passes in chunks of time remember, and memory."""
from __future__ import annotations

import collections
import os
import secrets
import threading
import weakref
from typing import Any, Callable, Mapping, Tuple

import numpy as np
import torch
from torch import Tensor

from . import _native

Key = Tuple[Any, ...]  # the arguments of _native.Plan
_LINE = 64  # bytes of a cache line


class Idle:
    """Things that no pass uses at present, by what they were made for: a key says all that they depend on. Beyond the limit those
    are dropped that were used longest ago."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._idle: collections.deque[tuple[Any, Any]] = collections.deque()  # the latest ones last
        self._returned: collections.deque[tuple[Any, Any]] = collections.deque()
        self._lock = threading.Lock()
        _ALL.add(self)

    def take(self, key: Any, make: Callable[[], Any]) -> Any:
        """What fits the key, and nobody else has until it comes back."""
        dropped = []  # destroyed outside the lock
        with self._lock:
            while self._returned:
                self._idle.append(self._returned.popleft())
            found = None
            for number in range(len(self._idle) - 1, -1, -1):
                if self._idle[number][0] == key:
                    found = self._idle[number]
                    del self._idle[number]
                    break
            while len(self._idle) > self.limit:
                dropped.append(self._idle.popleft())
        return make() if found is None else found[1]

    def give_back(self, key: Any, thing: Any) -> None:
        """Takes no lock: a destructor calls it, and these run anywhere, in the middle of take too."""
        self._returned.append((key, thing))

    def forked(self) -> None:
        """In a child of fork(): a thread that held the lock is not there."""
        self._lock = threading.Lock()


class Account:
    """What the passes of one module in chunks of time did, and what the next ones have to know: the state of each direction of
    each layer, by its number, of backward passes (states) and of forward passes (pauses). It also keeps the plans of
    latest passes. ready: passes that are prepared for arrays of certain shapes, with these plans (_passes.py). calls: the
    module's calls, by what they depend on (_stateless.py). handle: a text by which calls find it, in this process alone."""

    def __init__(self, states: Mapping[int, _native.State] | None = None) -> None:
        self.states: dict[int, _native.State] = dict(states or {})
        self.pauses: dict[int, _native.State] = {}
        self._plans: collections.OrderedDict[Any, _native.Plan] = collections.OrderedDict()
        self._recorded: set[_native.Plan] = set()
        self.ready: dict[Any, Any] = {}
        self.calls: dict[Any, Any] = {}
        self._sums = _native.Sums()
        self._lock = threading.Lock()
        self.handle = secrets.token_hex(8)
        _HANDLES[self.handle] = self
        _ALL.add(self)

    def plan(self, key: Any) -> _native.Plan:
        """The plan with these arguments; it is made if the latest ones are others."""
        found = self._plans.get(key)
        if found is None:
            found = _native.Plan(*key)
            dropped = []  # destroyed outside the lock
            with self._lock:
                self._plans[key] = found
                while len(self._plans) > _PLANS:
                    dropped.append(self._plans.popitem(last=False))
                if dropped:
                    self.ready = {}
        return found

    def record(self, plan: _native.Plan) -> None:
        """A CUDA graph has a pass of this plan, which the account keeps from now on."""
        self._recorded.add(plan)

    def note(self, plan: _native.Plan, backward: bool, record: _native.Record) -> None:
        """Counts a pass."""
        with self._lock:
            self._sums.note(plan, backward, record)

    def begin(self, backward: bool, number: int, sequential: bool = False) -> _native.Record:
        """The record for a pass of that direction in chunks of time, which is sequential if it is to be: what it has to know."""
        record = _native.Record()
        failures, left, warm_up = (self.states if backward else self.pauses).get(number, (0, 0, 0))
        record.state = failures, 1 if sequential else left, warm_up
        return record

    def end(self, plan: _native.Plan, backward: bool, number: int, record: _native.Record, sequential: bool = False) -> None:
        """Counts the pass, and keeps what the next one has to know."""
        self.note(plan, backward, record)
        if not sequential:
            (self.states if backward else self.pauses)[number] = record.state

    def read(self, clear: bool) -> dict[str, Any]:
        with self._lock:
            sums = self._sums
            found = {"forward": sums.read(False), "backward": sums.read(True)}
            self._sums = _native.Sums() if clear else sums
        return found

    def forked(self) -> None:
        """In a child of fork()."""
        self._lock = threading.Lock()


_PLANS = 64  # an account keeps at most so many
_HANDLES: weakref.WeakValueDictionary[str, Account] = weakref.WeakValueDictionary()


def find_account(handle: str) -> Account | None:
    """The account with that handle, if it is in this process and a module or a pass has it yet."""
    return _HANDLES.get(handle)


_ALL: weakref.WeakSet[Idle | Account] = weakref.WeakSet()
os.register_at_fork(after_in_child=lambda: [each.forked() for each in _ALL])


class _Kept(np.ndarray):
    """An array of a tape's memory. A tensor of it keeps the array, and the array the tape."""

    tape: Tape


class Tape:
    """Memory on the CPU for one tape, or for a pass's scratch, which goes back when nobody has it any longer."""

    def __init__(self, idle: Idle, size: int, dtype: torch.dtype) -> None:
        self._idle, self._key = idle, (size, dtype)
        self._memory: tuple[np.ndarray, int] = idle.take(self._key, self._make)
        self.address = self._memory[1]

    def _make(self) -> tuple[np.ndarray, int]:
        size, dtype = self._key[0], np.dtype(np.float64 if self._key[1] is torch.float64 else np.float32)
        memory = np.empty(size + _LINE // dtype.itemsize, dtype)
        first = -memory.ctypes.data % _LINE // dtype.itemsize  # at the beginning of a cache line, as the library places arrays
        memory = memory[first:first + size]
        return memory.view(_Kept), memory.ctypes.data

    def tensor(self) -> Tensor:
        """The memory as a tensor that keeps it."""
        kept = self._memory[0].view()
        kept.tape = self  # type: ignore[attr-defined]
        return torch.from_numpy(kept)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._idle.give_back(self._key, self._memory)


class Pool:
    """What the passes of one module use again: its account, and memory on the CPU for tapes and scratch. A copy of a module begins
    with none, and with the states of its account, so that its passes have the same bits."""

    def __init__(self, limit: int, states: Mapping[int, _native.State] | None = None) -> None:
        self._least = limit
        self.account = Account(states)
        self.tapes, self.scratch = Idle(limit), Idle(limit)
        self.weights: dict[int, Any] = {}  # of each direction of each layer, as its latest pass read them

    def __reduce__(self) -> Any:
        return Pool, (self._least, dict(self.account.states))

    def keep(self, limit: int) -> None:
        """So many things at most, and at least as many as at first."""
        self.tapes.limit = self.scratch.limit = max(limit, self._least)
