"""Passes of bppsa.torch with a PyTorch that is too old for stateless ones (_stateless.py): before 2.5, where a function of autograd
has no `setup_context`, or vmap no rules for operators. A module leases memory for its tapes and scratch from a pool.
"""
from __future__ import annotations

import operator
import weakref
from typing import Any, Mapping, NamedTuple, Sequence

import torch
from torch import Tensor

from . import _native, _tensors
from ._edges import cannot, opaque
from ._pool import Key, Pool, Tape
from ._precision import widened
from ._spans import WHOLE, Spans
from ._tensors import GATES, Marks, Refuse as _Refuse, call as _call, checked as _checked, dense as _dense
from ._tensors import growth as _growth, place as _place

__all__ = ["opaque", "run"]


_FORWARD, _BACKWARD = 0, 1  # kinds of passes (python/passes.h)
_NUMBER = {name: number for number, (name, _, _) in enumerate(_native.arrays())}
_WEIGHTS = ("w_ih", "w_hh", "b_ih", "b_hh", "reset_state")
_INPUTS = ("x", *_WEIGHTS, "h0", "c0")  # in the order of the arguments of _Layer behind its mark
_GRADIENTS = tuple("of_" + name for name in _INPUTS)
_LINE = 64  # bytes of a cache line, and behind states on a GPU, because kernels read so far
_SAVED = {cell: _native.cell_saved(cell) for cell in GATES}


class _Layout(NamedTuple):
    """How a tape is cut: numbers of h, and of c, [T+1,B,H], and of what the cell saves, each in whole cache lines."""

    states: int
    cells: int
    saved: int
    line: int  # numbers of a cache line

    @property
    def size(self) -> int:
        return self.states + self.cells + self.saved + self.line

    def addresses(self, tape: int, itemsize: int) -> dict[str, int]:
        c, saved = tape + self.states * itemsize, tape + (self.states + self.cells) * itemsize
        return {"h": tape, **({"c": c} if self.cells else {}), **({"saved": saved} if self.saved else {})}


def _layout(cell: str, shape: Sequence[int], itemsize: int) -> _Layout:
    steps, batch, _, hidden = shape
    line = _LINE // itemsize

    def whole(count: int) -> int:
        return -(-count // line) * line

    states = whole((steps + 1) * batch * hidden)
    return _Layout(states, states if cell == "lstm" else 0, whole(steps * batch * hidden * _SAVED[cell]), line)


def _fill(arrays: Mapping[str, Tensor | int | None]) -> Any:
    """Addresses of tensors for a pass; those that are None are left out."""
    at = _native.addresses()
    for name, array in arrays.items():
        if array is not None:
            at[_NUMBER[name]] = array if isinstance(array, int) else array.data_ptr()
    return at


def _compute(pool: Pool, plan: _native.Plan, kind: int, at: Any, x: Tensor, record: _native.Record | None) -> None:
    """Computes a pass with scratch of the pool's, on a GPU of PyTorch's."""
    size = plan.scratch[kind] // x.element_size() + 1
    scratch = x.new_empty(size) if x.is_cuda else Tape(pool.scratch, size, x.dtype)
    plan.run(kind, at, scratch.data_ptr() if x.is_cuda else scratch.address, record)


def _last(states: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sample's last row [1,B,H] of states [T+1,B,H]."""
    if lengths is None:
        return states[-1:].clone()
    return states.gather(0, lengths.to(states.device).view(1, -1, 1).expand(1, -1, states.shape[2]))


class _Weights:
    """W_ih, W_hh, b_ih, b_hh of one direction of one layer of H units, which has a number; biases may be None. aliases: what the
    passes read, which `w.data = ..` does not change. names: of those that are the module's parameters themselves; empty if one is
    not. No address is kept."""

    __slots__ = ("dtype", "device", "sizes", "number", "tensors", "aliases", "shapes", "names", "__weakref__")

    def __init__(self, tensors: Sequence[Tensor | None], like: Tensor, hidden: int, number: int, names: Sequence[str]) -> None:
        self.dtype, self.device, self.number, self.tensors, self.names = like.dtype, like.device, number, tensors, names
        self.sizes = like.shape[2], hidden
        self.aliases = [None if tensor is None else tensor.detach() for tensor in tensors]
        self.shapes = [None if tensor is None else tensor.shape for tensor in tensors]

    def serve(self, x: Tensor, hidden: int, parameters: Mapping[str, Tensor | None]) -> bool:
        """Are these still the weights of a module with these parameters and so many units, and do they fit the input?"""
        if self.dtype is not x.dtype or self.device != x.device or self.sizes != (x.shape[2], hidden):
            return False
        for name, weight, alias, shape in zip(self.names, self.tensors, self.aliases, self.shapes):
            if parameters.get(name) is not weight or weight.data_ptr() != alias.data_ptr() or weight.shape != shape or \
                    not weight.is_contiguous():
                return False
        return bool(self.names)


def _readable(tensor: Tensor, shape: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor that _Layer saved, and hooks may have moved, as the library can read it."""
    if tensor.shape != shape or tensor.dtype is not dtype or tensor.device != device:
        raise _native.RequestError(
            f"bppsa.torch: a tensor saved for the backward pass came back as {tensor.dtype} {list(tensor.shape)} on "
            f"{tensor.device}, expected {dtype} {list(shape)} on {device} as it was saved")
    return _dense(tensor)


class _Layer(torch.autograd.Function):
    """One layer in one direction: x [T,B,I], W_ih, W_hh, b_ih, b_hh, the state [S] with which samples begin anew, and perhaps an
    initial state, to h_1 .. h_T [T,B,H], with `cells` an LSTM's c_1 .. c_T, and the last state. Biases and the state of resets may
    be None. A state is h [1,B,H], or of an LSTM h and c. key: of the plan that computes it. With `recorded` a backward pass may
    follow. All that it reads is saved with autograd: hooks may move it, and it is gone when autograd drops it.

    Gradients of x and of the initial state are to be as exact as BP's at every step. In chunks of time they are where the loss
    reaches every step; otherwise the pass is BP, and so are such passes of the layers below. These learn it from their marks:
    outputs without a value, which are inputs of the layer above, and whose gradients count its passes that the loss misses."""

    @staticmethod
    def forward(ctx: Any, pool: Pool, key: Key, flops: float, recorded: bool, held: _Weights, spans: Spans, cells: bool,
                mark: Tensor | None, x: Tensor, *inputs: Tensor | None) -> Any:
        (cell, *_), (steps, batch, _, hidden), to_inputs, pair = *key[:2], key[4], key[0][0] == "lstm"
        read, begins, first = x, inputs[4], inputs[5:]
        if recorded or flops > _tensors.LONG:  # a later or an interrupted pass reads aliases
            read, begins, first = x.detach(), None if begins is None else begins.detach(), [part.detach() for part in first]
        output = x.new_empty((steps, batch, hidden))
        layout = _layout(cell, key[1], x.element_size())

        def run() -> Any:
            plan = pool.account.plan(key)  # a new one may take seconds too
            tape = x.new_empty(layout.size) if x.is_cuda else Tape(pool.tapes, layout.size, x.dtype)
            at = _fill({"x": read, **dict(zip(_WEIGHTS, (*held.aliases, begins))), **dict(zip(("h0", "c0"), first)),
                        "lengths": spans.lengths, "resets": spans.resets, "y": output,
                        **layout.addresses(tape.data_ptr() if x.is_cuda else tape.address, x.element_size())})
            record = pool.account.begin(False, held.number) if plan.speculates[_FORWARD] and not x.is_cuda else None
            _compute(pool, plan, _FORWARD, at, x, record)
            if record is not None:
                pool.account.end(plan, False, held.number, record)
            return tape, to_inputs and plan.speculates[_BACKWARD], (held, spans, begins)  # what the call reads is its own

        tape, exact, _ = _call(flops, x, run)
        tape = tape if x.is_cuda else tape.tensor()
        count, shape = (steps + 1) * batch * hidden, (steps + 1, batch, hidden)
        states = [tape[begin:begin + count].view(shape) for begin in ((0, layout.states) if pair else (0,))]
        outputs = [output, states[1][1:].clone()] if cells else [output]
        last = [_last(part, spans.lengths) for part in states]
        if recorded:
            # A kept loss keeps this node, which must keep no memory of a module that is gone.
            ctx.pool, ctx.key, ctx.flops, ctx.kept = weakref.ref(pool), key, flops, (tape.shape, held.dtype, held.device)
            ctx.account, ctx.number, ctx.exact = pool.account, held.number, exact
            ctx.shapes, ctx.held = held.shapes, weakref.ref(held)
            ctx.lengths, ctx.cells = spans.lengths, cells
            # Behind them those inputs on which the gradients depend (_Refuse).
            ctx.save_for_backward(read, tape, spans.resets, begins, *held.aliases, *[each for each in (x, *inputs)
                                                                             if each is not None and each.requires_grad])
            ctx.set_materialize_grads(False)
            if exact:
                last.append(x.new_zeros(()))
        return (*outputs, *last)

    @staticmethod
    def backward(ctx: Any, of_output: Tensor | None, *others: Tensor | None) -> Any:
        of_cells, of_h, *others = others if ctx.cells else (None, *others)
        of_c, of_mark = (*(others if ctx.key[0][0] == "lstm" else (None, *others)), None)[:2]
        try:
            return _backward(ctx, of_output, of_cells, of_h, of_c, of_mark)
        except RuntimeError as reason:
            if isinstance(reason, (NotImplementedError, _native.Error)) or "data pointer" not in str(reason):
                raise
            raise NotImplementedError("bppsa.torch: gradients of several seeds at once (vectorize=True, is_grads_batched=True) are "
                                      "refused, expected one seed after the other, as vectorize=False has them") from reason

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise cannot(ctx.key[0][0].upper(), "forward-mode differentiation")


def _reaches(seed: Tensor | None, last: Tensor | None, spans: Spans) -> bool:
    """Does the loss reach every step of every sample: has each row of the gradients of h_1 .. h_T [T,B,H] and of the last ones
    [1,B,H], added up, a number that is not 0?"""
    if seed is None:
        return False
    if last is not None:
        seed = seed.clone()
        spans.add_last(seed, last[0])
    rows = spans.rows(seed.shape[0])
    seed = seed if rows is None else seed.view(-1, 1, seed.shape[2]).index_select(0, rows)
    if seed.is_cuda:
        return bool((seed != 0).any(2).all())
    return _native.reaches(seed.data_ptr(), seed.dtype is torch.float64, seed.shape[0] * seed.shape[1], seed.shape[2])


def _backward(ctx: Any, of_output: Tensor | None, of_cells: Tensor | None, of_h: Tensor | None, of_c: Tensor | None,
              of_mark: Tensor | None) -> Any:
    """The backward pass of _Layer."""
    saved, held, (tape_shape, dtype, device) = ctx.saved_tensors, ctx.held(), ctx.kept
    (cell, *_), (steps, batch, inputs, hidden) = ctx.key[:2]
    x, tape = _readable(saved[0], (steps, batch, inputs), dtype, device), _readable(saved[1], tape_shape, dtype, device)
    spans = WHOLE if ctx.lengths is None and saved[2] is None else Spans(
        ctx.lengths, None if saved[2] is None else _readable(saved[2], (steps, batch), torch.uint8, device))
    weights = saved[4:8]
    if held is None or any(map(operator.is_not, weights, held.aliases)):
        weights = [None if weight is None else _readable(weight, shape, dtype, device)
                   for weight, shape in zip(weights, ctx.shapes)]
    begins = None if saved[3] is None else _readable(saved[3], ((2 if cell == "lstm" else 1) * hidden,), dtype, device)
    weights = [*weights, begins]
    seeds = [None if seed is None else _dense(seed) for seed in (of_output, of_h, of_cells, of_c)]
    marks, wanted = ctx.needs_input_grad[7], ctx.needs_input_grad[8:]
    sequential = (ctx.exact or marks) and (of_mark is not None and of_mark.item() > 0 or not _reaches(*seeds[:2], spans))
    gradients = [torch.empty_like(tensor) if want else None for tensor, want in zip((x, *weights), wanted)]
    gradients += [x.new_empty((1, batch, hidden)) if want else None for want in wanted[6:]]

    pool, account, number = ctx.pool() or Pool(1), ctx.account, ctx.number

    def run() -> Any:
        plan = account.plan(ctx.key)
        at = _fill({"x": x, **dict(zip(_WEIGHTS, weights)), "lengths": spans.lengths, "resets": spans.resets,
                    **dict(zip(("of_y", "of_h_last", "of_cells", "of_c_last"), seeds)), **dict(zip(_GRADIENTS, gradients)),
                    **_layout(cell, ctx.key[1], x.element_size()).addresses(tape.data_ptr(), x.element_size())})
        record = account.begin(True, number, sequential) if plan.speculates[_BACKWARD] and not x.is_cuda else None
        _compute(pool, plan, _BACKWARD, at, x, record)
        if record is not None:
            account.end(plan, True, number, record, sequential)
        return weights, spans, seeds, gradients, tape

    _call(2 * ctx.flops, x, run)
    if torch.is_grad_enabled():  # the graph of this pass is recorded
        gradients = _Refuse.apply("bppsa.torch", len(gradients), *gradients, *saved[8:], of_output, of_cells, of_h, of_c)
    return (None, None, None, None, None, None, None, x.new_full((), float(sequential)) if marks else None, *gradients)


class _Nothing(torch.autograd.Function):
    """The states of no sample: so many results of so many steps each [T,0,H]. All gradients are 0."""

    @staticmethod
    def forward(ctx: Any, steps: Sequence[int], hidden: int, *tensors: Tensor | None) -> Any:
        ctx.save_for_backward(*tensors)
        return tuple(tensors[0].new_empty((count, 0, hidden)) for count in steps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return (None, None, *[None if tensor is None else _zeros(tensor) for tensor in ctx.saved_tensors])


def _zeros(tensor: Tensor) -> Tensor:
    """Zeros like the tensor, whose gradient is 0 where gradients are differentiated again."""
    return torch.where(torch.zeros_like(tensor, dtype=torch.bool), tensor, torch.zeros_like(tensor))


def _find_weights(module: Any, x: Tensor, number: int) -> _Weights:
    """The weights of one direction of one layer, kept for its next passes if they are the module's own parameters."""
    names = module._names[number]
    tensors = [_checked(f"bppsa.torch.{type(module).__name__}: {name}", widened(getattr(module, name)), x) for name in names]
    rows = GATES[module._cell] * module.hidden_size
    for name, tensor, shape in zip(names, tensors, ((rows, x.shape[2]), (rows, module.hidden_size), (rows,), (rows,))):
        if tensor.shape != shape:
            raise ValueError(f"bppsa.torch.{type(module).__name__}: {name} is {list(tensor.shape)}, expected {list(shape)}")
    own = all(module._parameters.get(name) is tensor for name, tensor in zip(names, tensors))
    held = _Weights(tensors if module.bias else [*tensors, None, None], x, module.hidden_size, number, names if own else ())
    module._pool.weights.pop(number, None)
    if own:
        module._pool.weights[number] = held
    return held


def run(module: Any, x: Tensor, spans: Spans, first: Any, number: int, marks: Marks, cells: bool) -> Any:
    """h_1 .. h_T [T,B,H], with cells c_1 .. c_T too, and the last state of one direction of one layer, in the order in which it
    walks."""
    held = module._pool.weights.get(number)
    if held is None or not held.serve(x, module.hidden_size, module._parameters):
        held = _find_weights(module, x, number)
    begins = None if spans.resets is None else module._begins(x, number)
    to_inputs = recorded = False
    if torch.is_grad_enabled():
        to_inputs = x.requires_grad or (first is not None and (first[0].requires_grad or first[-1].requires_grad))
        recorded = to_inputs or any([weight is not None and weight.requires_grad for weight in (*held.tensors, begins)])
    steps, batch, inputs = x.shape
    key = ((module._cell, module._relu, module.scan, module.forward_method), (steps, batch, inputs, module.hidden_size),
           held.dtype is torch.float64, (module.bias, spans.lengths is not None, spans.resets is not None, begins is not None),
           to_inputs, torch.get_num_threads(), *_place(x),
           module._numbers() if module.scan == "speculative" else _native.OPEN)
    flops = 2.0 * steps * batch * held.shapes[0][0] * (inputs + module.hidden_size) * _growth(module.scan, module.hidden_size)
    if batch == 0:
        results = _Nothing.apply([steps] * (1 + cells) + [1] * (1 + module._pair), module.hidden_size, x, *held.tensors,
                                 begins, *(first or ()))
    else:
        results = _Layer.apply(module._pool, key, flops, recorded, held, spans, cells, marks.below, x, *held.tensors,
                               begins, *(first or ()))
    states, last, mark = results[:1 + cells], results[1 + cells:2 + cells + module._pair], results[2 + cells + module._pair:]
    marks.here.extend(mark)
    return states, last

