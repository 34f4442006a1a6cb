"""Recurrent layers and the affine scan for PyTorch, computed by the C library on the CPU or on a GPU.

RNN, GRU and LSTM are torch.nn's layers with another forward and backward pass: constructors, parameters, state_dict, shapes and
defaults are torch.nn's, packed sequences too, so that changing the import is enough. Any loss may follow; gradients go to inputs,
initial states and weights.

network and flops take any model of images: its graph as a network of the program, and its FLOPs, dense and pruned, a row a layer.
"""
from __future__ import annotations

from typing import Any, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from . import _native, _tensors
from ._arrays import plain
from ._edges import cannot
from ._graph import network
from ._pool import Pool
from ._precision import in_float32, is_lower, widened
from ._spans import WHOLE, Parts, Spans, check_resets, packed_spans, stretches
from ._table import Flops, flops
from ._tensor_scan import scan
from ._tensors import Marks, checked as _checked

if _tensors.MODERN:  # the one place where the age of PyTorch decides
    from . import _stateless as _door
    from ._onnx import onnx_translations
else:
    from . import _lease as _door
    from ._edges import onnx_translations

__all__ = ["Flops", "GRU", "LSTM", "RNN", "flops", "network", "onnx_translations", "scan"]

_Pool = Pool  # its name in modules that were saved whole


_State = Tuple[Tensor, ...]  # (h,), or (h, c) of an LSTM, each [1,B,H], of all layers and directions [L·D,B,H]


def _first(state: _State | None, count: int) -> _State | None:
    """The first samples of a state."""
    return state if state is None or state[0].shape[1] == count else tuple(part[:, :count] for part in state)


def _behind(*states: _State) -> _State:
    """The samples of several states, one state behind the other."""
    return tuple(torch.cat(parts, 1) for parts in zip(*states)) if len(states) > 1 else states[0]


# The numbers of scan="speculative": types, what they are called, the smallest one, and what stands for None.
_SPECULATION = {"scan_chunks": ((int,), "a whole number", 1, 0), "scan_warm_up": ((int,), "a whole number", 0, -1),
                "scan_tolerance": ((int, float), "a number", 0, -1.0)}


_ALONE = Marks()  # of a layer that has none above or below it: nothing is noted


class _Recurrent:
    """The forward pass that takes the place of torch.nn's, for every cell."""

    _cell = ""
    _pair = False  # a state is (h, c)

    # of modules that were saved whole before there were such numbers
    scan_chunks: int | None = None
    scan_warm_up: int | None = None
    scan_tolerance: float | None = None

    def _construct(self, mode: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """torch.nn's constructor: of RNNBase, because torch.compile refuses what is derived from torch.nn.RNN, GRU or LSTM."""
        if not self._pair and "proj_size" in kwargs:
            raise ValueError(f"bppsa.torch.{type(self).__name__}: proj_size is given, expected none: only torch.nn.LSTM has it")
        super().__init__(mode, *map(plain, args), **{name: plain(value) for name, value in kwargs.items()})

    def _prepare(self, scan: str, forward: str, reset_state: str, *speculation: Any) -> None:
        self.scan, self.forward_method = scan, forward
        for name, value in zip(_SPECULATION, map(plain, speculation)):
            setattr(self, name, value)
            if value is not None and scan != "speculative":
                raise ValueError(f"bppsa.torch.{type(self).__name__}: {name} is {value!r} beside scan={scan!r}, expected "
                                 "scan='speculative'")
        self._numbers()
        self._directions = 2 if self.bidirectional else 1
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[:4 if self.bias else 2]
        self._names = [[f"{kind}_l{layer}{direction}" for kind in kinds] for layer in range(self.num_layers)
                       for direction in ("", "_reverse")[:self._directions]]
        self._relu = getattr(self, "nonlinearity", "") == "relu"
        self._pool = Pool(4 * len(self._names))
        if reset_state not in ("zero", "learned"):
            raise ValueError(f"bppsa.torch.{type(self).__name__}: reset_state is {reset_state!r}, expected 'zero' or 'learned'")
        if reset_state == "learned":
            zeros = self.weight_hh_l0.detach().new_zeros(len(self._names), (1 + self._pair) * self.hidden_size)
            self.reset_state = torch.nn.Parameter(zeros)

    def reset_parameters(self) -> None:
        """torch.nn's; a learned reset state becomes 0."""
        super().reset_parameters()
        if self._parameters.get("reset_state") is not None:
            torch.nn.init.zeros_(self.reset_state)

    def _numbers(self) -> tuple[Any, ...]:
        """The numbers of scan="speculative" as _native.Plan takes them."""
        found = []
        for name, (types, words, least, unset) in _SPECULATION.items():
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, types)):
                raise TypeError(f"bppsa.torch.{type(self).__name__}: {name} is a {type(value).__name__}, expected {words} or None")
            if value is not None and not least <= value < 2 ** 63:
                raise ValueError(f"bppsa.torch.{type(self).__name__}: {name} is {value}, expected {least} or more")
            found.append(unset if value is None else value)
        return tuple(found)

    def report(self, *, clear: bool = False) -> dict[str, dict[str, Any] | None]:
        """What this module's passes in chunks of time did on the CPU, {"forward": .., "backward": ..}, since it was made or last
        cleared; None where there was no such pass. A pass is that of one direction of one layer, and of one stretch of a
        PackedSequence. Sums over all of them:

        plan          of the latest pass, in words: chunks, warm-up, rounds, tolerance
        speculated    whether any pass was computed in chunks; one that a pause, a loss that misses a step, or a number that is not
                      finite left to the sequential pass was not
        given_up      (backward) whether one was computed by BP in the end
        passes        how many there were
        path          dependent steps, of the slowest sample of each pass; possible: those of sequential passes
        work          steps computed over those of sequential passes, a mean over passes
        rounds        in which chunks were mended, the most of a pass; mended: walks through a chunk
        gap           the largest difference at a boundary that was accepted; of a backward pass relative to its gradients
        perturbation  (backward) the result equals that of sequential BP, but for rounding, for a loss whose dL/dh_t is changed by
                      so much of its size: the largest of any pass and sample
        reseeded      (forward) samples whose later chunks began anew; tails: those that ended sequentially

        recurrent/parallel_forward.h and recurrent/parallel_backward.h have the definitions."""
        return self._pool.account.read(bool(plain(clear)))

    @property
    def scan_state(self) -> list[list[int]]:
        """Of each direction of each layer, in the order of the parameters, what the bits of its next backward pass by
        scan="speculative" depend on besides the weights: failing passes in a row, passes of BP still to come in a pause, and the
        next warm-up in steps or 0 for the plan's. Copies and pickles of a module have it; a state_dict, which is torch.nn's, has
        not. May be set, to go on where an earlier run was."""
        states = self._pool.account.states
        return [list(states.get(number, (0, 0, 0))) for number in range(len(self._names))]

    @scan_state.setter
    def scan_state(self, states: Any) -> None:
        found = [tuple(map(plain, state)) for state in states]
        numbers = [number for state in found for number in state]
        if [len(state) for state in found] != [3] * len(self._names) or \
                any(type(number) is not int or not 0 <= number < 2 ** 63 for number in numbers):
            raise ValueError(f"bppsa.torch.{type(self).__name__}: scan_state is {states!r}, expected {len(self._names)} lists of "
                             "three whole numbers of 0 or more")
        self._pool.account.states = dict(enumerate(found))

    def __prepare_scriptable__(self) -> Any:
        raise cannot(type(self).__name__, "torch.jit.script")

    def extra_repr(self) -> str:
        numbers = "".join(f", {name}={getattr(self, name)!r}" for name in _SPECULATION if getattr(self, name) is not None)
        learned = "" if self._parameters.get("reset_state") is None else ", reset_state='learned'"
        return super().extra_repr() + f", scan={self.scan!r}{numbers}, forward={self.forward_method!r}{learned}"

    def _begins(self, x: Tensor, number: int) -> Tensor | None:
        """The state [S] with which samples begin anew in one direction of one layer; None: zeros."""
        states = self._parameters.get("reset_state")
        if states is None:
            return None
        name, shape = f"bppsa.torch.{type(self).__name__}: reset_state", (len(self._names), (1 + self._pair) * self.hidden_size)
        if states.shape != shape:
            raise ValueError(f"{name} is {list(states.shape)}, expected {list(shape)}")
        return _checked(name, widened(states), x)[number]

    def _run(self, x: Tensor, spans: Spans, first: _State | None, number: int, marks: Marks, cells: bool) -> tuple[_State, _State]:
        """h_1 .. h_T [T,B,H], with cells c_1 .. c_T too, and the last state of one direction of one layer, in the order in which it
        walks."""
        return _door.run(self, x, spans, first, number, marks, cells)

    def _forwards(self, parts: Parts, first: _State | None, number: int, marks: Marks, cells: bool) -> tuple[list[_State], _State]:
        """One direction of one layer over stretches of time whose samples become fewer: a sample ends where the next stretch does
        not have it. The states of each stretch, with cells c too, and every sample's last one."""
        outputs, ended, state = [], [], first
        for stretch, spans in zip(*parts):
            batch = stretch.shape[1]
            if outputs and state[0].shape[1] > batch:
                ended.append(tuple(part[:, batch:] for part in state))
            states, state = self._run(stretch, spans, _first(state, batch), number, marks, cells)
            outputs.append(states)
        return outputs, _behind(state, *reversed(ended))

    def _backwards(self, parts: Parts, first: _State | None, number: int, marks: Marks,
                   cells: bool) -> tuple[list[_State], _State]:
        """The same from the end: a sample begins with the last stretch that has it."""
        outputs, state = [], None
        for stretch, spans in zip(*map(reversed, parts)):
            batch = stretch.shape[1]
            begun = 0 if state is None else state[0].shape[1]
            if state is None:
                state = _first(first, batch)
            elif begun < batch:
                state = _behind(state, tuple(part.new_zeros(1, batch - begun, part.shape[2]) for part in state) if first is None
                                else tuple(part[:, begun:batch] for part in first))
            states, state = self._run(spans.turn(stretch), spans.turned(), state, number, marks, cells)
            outputs.append(tuple(map(spans.turn, states)))
        return outputs[::-1], state

    def _layers(self, parts: Parts, first: _State | None, cells: bool) -> tuple[list[_State], _State]:
        """All layers: the states h of the last one in each stretch [T,B,D·H], with cells c too, and every layer's last state."""
        if len(parts[0]) == len(self._names) == 1:
            states, last = _door.run(self, parts[0][0], parts[1][0], first, 0, _ALONE, cells)
            return [states], last
        marks = Marks()
        self._pool.keep(4 * len(self._names) * len(parts[0]))
        lasts = []
        for layer in range(self.num_layers):
            number, top = layer * self._directions, layer + 1 == self.num_layers
            walked = [walk(parts, None if first is None else tuple(part[k:k + 1] for part in first), k, marks, cells and top)
                      for k, walk in enumerate((self._forwards, self._backwards)[:self._directions], number)]
            marks.go_up()
            lasts += [last for _, last in walked]
            outputs = [tuple(torch.cat(both, 2) for both in zip(*sides)) if len(sides) > 1 else sides[0]
                       for sides in zip(*[states for states, _ in walked])]
            below = [states[0] for states in outputs]
            if self.dropout > 0 and self.training and not top:
                below = [torch.nn.functional.dropout(x, self.dropout, True) for x in below]
            parts = below, parts[1]
        return outputs, tuple(torch.cat(parts) for parts in zip(*lasts))

    def _checked_states(self, hx: Any, batch: int, like: Tensor, dimensions: int = 3) -> _State | None:
        """What the caller gives for hx, of so many dimensions, as a state of tensors [L·D,B,H]."""
        name = f"bppsa.torch.{type(self).__name__}"
        if hx is None:
            return None
        if self._pair and (not isinstance(hx, (tuple, list)) or len(hx) != 2):
            raise TypeError(f"bppsa.torch.LSTM: hx is a {type(hx).__name__}, expected a tuple of two tensors, h_0 and c_0")
        parts = tuple(hx) if self._pair else (hx,)
        for part in parts:
            if not isinstance(part, Tensor):
                raise TypeError(f"{name}: hx {'has' if self._pair else 'is'} a {type(part).__name__}, expected a tensor")
        if parts[0].shape != parts[-1].shape:
            raise ValueError(f"{name}: h_0 is {list(parts[0].shape)} and c_0 {list(parts[1].shape)}, expected the same shape")
        if parts[0].dim() != dimensions:
            raise ValueError(f"{name}: hx has {parts[0].dim()} dimensions, expected {dimensions} as the input")
        parts = tuple(_checked(f"{name}: hx", part if dimensions == 3 else part.unsqueeze(1), like) for part in parts)
        expected = (len(self._names), batch, self.hidden_size)
        if parts[0].shape != expected:
            raise ValueError(f"{name}: hx is {list(parts[0].shape)}, expected {list(expected)}")
        return parts

    def _parted(self, state: _State) -> Any:
        """A state as torch.nn returns it: of an LSTM (h, c)."""
        return state if self._pair else state[0]

    def _check_input(self, x: Tensor, shape: Any, steps: int) -> Tensor:
        """The input, whose last axis has the features, contiguous."""
        if x.dtype not in (torch.float32, torch.float64) or not (x.is_cpu or x.is_cuda) or x.layout is not torch.strided or \
                not _tensors.is_dense(x):
            x = _checked(f"bppsa.torch.{type(self).__name__}: input", x)
        if x.shape[-1] != self.input_size or steps == 0 or x.shape[-1] == 0:
            raise ValueError(f"bppsa.torch.{type(self).__name__}: input is {list(shape)}, expected {self.input_size} numbers in "
                             "each step, at least one step and one number")
        return x

    def _takes_lengths(self, data: Tensor) -> bool:
        """Does a pass take samples of several lengths? A speculative forward pass does not; nor does one that a CUDA graph records,
        which would read them where they lay."""
        return self.forward_method != "speculative" and not (data.is_cuda and torch.cuda.is_current_stream_capturing())

    def _packed(self, packed: PackedSequence, hx: Any, resets: Any, cells: bool) -> Any:
        """The forward pass of sequences of several lengths: one pass, in which the library goes from the longest to the shortest.
        Where it takes no lengths, each stretch of time with one number of samples is a pass."""
        name, (data, sizes, order, back) = f"bppsa.torch.{type(self).__name__}", packed
        counts = sizes.tolist()
        if data.dim() != 2 or not counts or counts[-1] < 0 or sorted(counts, reverse=True) != counts or sum(counts) != len(data):
            raise ValueError(f"{name}: a PackedSequence of {list(data.shape)} with batch_sizes {counts[:8]}"
                             f"{' ..' if len(counts) > 8 else ''}, expected counts that do not grow and whose sum is the number of "
                             "rows")
        data = self._check_input(data, data.shape, len(counts))
        first = self._checked_states(hx, counts[0], data)
        if first is not None and order is not None:
            first = tuple(part.index_select(1, order) for part in first)
        mask = check_resets(name, resets, (len(counts), counts[0]), self.batch_first, data.device)
        steps, spans = packed_spans(packed, mask) if counts[0] > 0 else (0, WHOLE)
        rows = spans.rows(steps)
        if rows is None or not self._takes_lengths(data):
            rows, parts = None, stretches(data, counts, spans)
        else:
            rows = rows.to(data.device, non_blocking=True)
            whole = data.new_zeros((steps * counts[0], data.shape[1])).index_copy(0, rows, data)
            parts = [whole.view(steps, counts[0], data.shape[1])], [spans]
        outputs, last = self._layers(parts, first, cells)
        joined = [torch.cat([states.reshape(-1, states.shape[2]) for states in each]) for each in zip(*outputs)]
        joined = [PackedSequence(each if rows is None else each.index_select(0, rows), sizes, order, back) for each in joined]
        last = last if back is None else tuple(part.index_select(1, back) for part in last)
        return (joined[0], self._parted(last), *joined[1:])

    @_door.opaque(lambda args: type(args[0]).__name__)
    def forward(self, input: Any, hx: Any = None, resets: Any = None, return_cells: bool = False) -> Any:
        """input [T,B,I], [B,T,I] with batch_first, [T,I], or a PackedSequence, whose shorter sequences end where they end; hx
        [L·D,B,H], or [L·D,H] with [T,I], zeros by default; D is the number of directions. Returns the states of the last layer,
        [T,B,D·H] (in the input's order of axes, or packed), and h_T of all layers and directions, shaped as hx. An LSTM takes
        (h_0, c_0) for hx, and returns (h_T, c_T) in the place of h_T.

        resets: torch.bool [T,B], [B,T] with batch_first, or [T]; of packed sequences in the order in which they were before they
        were packed. Where it is true, the sample begins anew in front of the step: its state there is 0, or the learned reset
        state, in every layer, at step 0 too, and no gradient goes through; in two directions each of them begins anew on its side
        of the cut (docs/resets.md). bytes of 0 and 1 (torch.uint8) mean the same.

        return_cells: an LSTM's c_1 .. c_T of the last layer are a third result, shaped as the first, with gradients."""
        name = f"bppsa.torch.{type(self).__name__}"
        if not isinstance(input, (Tensor, PackedSequence)):
            raise TypeError(f"{name}: input is a {type(input).__name__}, expected a tensor or a PackedSequence")
        cells = return_cells is not False and bool(plain(return_cells))
        if cells and not self._pair:
            raise ValueError(f"{name}: return_cells is True, expected False: only the state of an LSTM has c")
        if is_lower(input):
            return in_float32(name, self._parameters.items(), self.forward, input, hx, resets, cells)
        if isinstance(input, PackedSequence):
            return self._packed(input, hx, resets, cells)
        if input.layout is not torch.strided or input.is_nested:
            _checked(f"{name}: input", input)
        dimensions = input.dim()
        if dimensions not in (2, 3):
            raise ValueError(f"{name}: input has {dimensions} dimensions, expected 3, or 2 for a single sequence")
        turned = dimensions == 3 and self.batch_first
        x = input.unsqueeze(1) if dimensions == 2 else input.transpose(0, 1) if turned else input
        x = self._check_input(x, input.shape, x.shape[0])
        first = None if hx is None else self._checked_states(hx, x.shape[1], x, dimensions)
        mask = None if resets is None else check_resets(name, resets, x.shape[:dimensions - 1], turned, x.device)
        (states,), last = self._layers(([x], [WHOLE if mask is None else Spans(None, mask)]), first, cells)
        if dimensions == 2:
            states, last = (tuple(part.squeeze(1) for part in each) for each in (states, last))
        elif turned:
            states = tuple(part.transpose(0, 1) for part in states)
        return (states[0], self._parted(last), *states[1:])


class RNN(_Recurrent, torch.nn.RNNBase):
    """torch.nn.RNN (tanh or ReLU) with more options, by name:

    scan      how gradients are computed: "auto" (the fastest of all by a cost model), "bp" (sequential back-propagation),
              "speculative" (back-propagation in chunks of time at once, verified; on a CPU), "scan", "linear", "blelloch",
              "blelloch 3" (up-levels), "chunked", "chunked 8"
    forward   how states are computed: "sequential", "speculative" (chunks of time at once, verified), "auto"

    reset_state     with what a sample begins anew: "zero", or "learned", the parameter reset_state [L·D,H], of an LSTM [L·D,2H]
                    with h in front of c, a row for each layer and direction, at first 0 (docs/resets.md)

    Of scan="speculative" alone; None leaves a number to the plan (recurrent/parallel_backward.h):

    scan_chunks     chunks of time, 1 or more
    scan_warm_up    how many steps behind its last one a chunk starts, from the gradients of the outputs there alone, 0 or more
    scan_tolerance  the largest difference at a chunk's boundary that is accepted, over the size of its gradients: 2.4e-7, in
                    float64 8.9e-16; 0: sequential back-propagation

    Its weight gradients are as accurate as those of "bp". Where the input of a layer or its initial state requires a gradient, and
    the gradient of its outputs is 0 at some step of some sample (a loss on the last step), the pass is "bp", bit for bit, and so
    are those of the layers below, because gradients of early inputs that are far smaller than the others would be right absolutely
    only. report() says what passes did.

    Float32 or float64: on the CPU with torch.get_num_threads() threads, which do not change a bit; on a GPU, where the wheel has
    CUDA, on the caller's stream. Layers after .bfloat16() or .half(), and inputs in these types under autocast, are computed in
    float32; results have the input's type, and every gradient that of its tensor. From PyTorch 2.5 on second derivatives, forward
    mode, torch.func, torch.compile(fullgraph=True) and torch.export hold; with an older one they are refused in a sentence, as
    torch.jit is with any (docs/python.md, "Derivatives of any kind").
    """

    _cell = "rnn"

    def __init__(self, *args: Any, scan: str = "auto", forward: str = "sequential", scan_chunks: int | None = None,
                 scan_warm_up: int | None = None, scan_tolerance: float | None = None, reset_state: str = "zero",
                 **kwargs: Any) -> None:
        kinds = {"tanh": "RNN_TANH", "relu": "RNN_RELU"}
        named = len(args) > 3 and isinstance(args[3], str)  # torch.nn.RNN takes it as the fourth argument since PyTorch 2.1
        nonlinearity = args[3] if named else kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in kinds:
            raise ValueError(f"bppsa.torch.RNN: nonlinearity is {nonlinearity!r}, expected 'tanh' or 'relu'")
        self._construct(kinds[nonlinearity], args[:3] + args[4:] if named else args, kwargs)
        self.nonlinearity = nonlinearity
        self._prepare(scan, forward, reset_state, scan_chunks, scan_warm_up, scan_tolerance)


class GRU(_Recurrent, torch.nn.RNNBase):
    """torch.nn.GRU with the options of RNN. Gates are stacked r, z, n; the reset gate comes after the matrix product."""

    _cell = "gru"

    def __init__(self, *args: Any, scan: str = "auto", forward: str = "sequential", scan_chunks: int | None = None,
                 scan_warm_up: int | None = None, scan_tolerance: float | None = None, reset_state: str = "zero",
                 **kwargs: Any) -> None:
        self._construct("GRU", args, kwargs)
        self._prepare(scan, forward, reset_state, scan_chunks, scan_warm_up, scan_tolerance)


class LSTM(_Recurrent, torch.nn.RNNBase):
    """torch.nn.LSTM with the options of RNN. Gates are stacked i, f, g, o. The initial and the last state are pairs (h, c).
    proj_size is refused."""

    _cell = "lstm"
    _pair = True

    def __init__(self, *args: Any, scan: str = "auto", forward: str = "sequential", scan_chunks: int | None = None,
                 scan_warm_up: int | None = None, scan_tolerance: float | None = None, reset_state: str = "zero",
                 **kwargs: Any) -> None:
        self._construct("LSTM", args, kwargs)
        if self.proj_size != 0:
            raise NotImplementedError(f"bppsa.torch.LSTM: proj_size is {self.proj_size}, expected 0: there are no projections")
        self._prepare(scan, forward, reset_state, scan_chunks, scan_warm_up, scan_tolerance)
