"""Layers of bppsa.torch as nodes of ONNX: what torch.onnx.export makes of their operators."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import torch

from ._passes import KINDS, Layer, call_of

# ONNX's order of the gates, as places in PyTorch's (r, z, n; i, f, g, o), and the type of the node.
_GATES = {"rnn": ("RNN", (0,)), "gru": ("GRU", (1, 0, 2)), "lstm": ("LSTM", (0, 3, 1, 2))}


def _instead(layer: Layer, what: str) -> NotImplementedError:
    return NotImplementedError(f"bppsa.torch: {what} cannot become a node {_GATES[layer.cell][0]} of ONNX, expected a layer of "
                               "torch.nn with its state_dict (docs/python.md, \"Export\")")


def _forward(arrays: Sequence[Any], arguments: str, results: str, layer: str) -> Any:
    """The node of one direction of one layer: Y [T,1,B,H], Y_h [1,B,H] and of an LSTM Y_c."""
    import onnxscript
    from onnxscript import ir

    op, call = onnxscript.opset18, call_of("forward", arguments, results, layer)
    given, kind = dict(zip(call.arguments, arrays)), _GATES[call.layer.cell]
    if "resets" in given:
        raise _instead(call.layer, "a mask of resets")
    if "cells" in call.results:
        raise _instead(call.layer, "a layer that returns c_1 .. c_T")
    hidden = int(given["w_hh"].shape[1])

    def ordered(name: str) -> Any:
        """A weight with its blocks of rows in ONNX's order, and an axis of directions in front."""
        if kind[1] == (0,):
            return given[name]
        rows = [gate * hidden + row for gate in kind[1] for row in range(hidden)]
        return op.Gather(given[name], op.Constant(value_ints=rows), axis=0)

    front = op.Constant(value_ints=[0])
    weights = [op.Unsqueeze(ordered(name), front) for name in ("w_ih", "w_hh")]
    biases = op.Unsqueeze(op.Concat(ordered("b_ih"), ordered("b_hh"), axis=0), front) if "b_ih" in given else None
    lengths = op.Cast(given["lengths"], to=ir.DataType.INT32) if "lengths" in given else None
    states = [op.Unsqueeze(given[name], front) if name in given else None for name in ("h0", "c0")[:1 + call.pair]]
    options = {"gru": {"linear_before_reset": 1}, "rnn": {"activations": ["Relu" if call.layer.relu else "Tanh"]}}
    found = getattr(op, kind[0])(given["x"], *weights, biases, lengths, *states, hidden_size=hidden,
                                 **options.get(call.layer.cell, {}))
    named = {"y": op.Squeeze(found[0], op.Constant(value_ints=[1])), "h_last": op.Squeeze(found[1], front)}
    if call.pair:
        named["c_last"] = op.Squeeze(found[2], front)
    # What backward passes read has no value here, and no node may read it.
    return [named[name] if name in named else ir.Value(name=name) for name in call.results]


def _refused(kind: str) -> Callable[..., Any]:
    def refuse(arrays: Sequence[Any], arguments: str, results: str, layer: str) -> Any:
        raise _instead(call_of(kind, arguments, results, layer).layer, f"the operator bppsa::{kind}")

    return refuse


def onnx_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """What torch.onnx.export(.., dynamo=True, custom_translation_table=bppsa.torch.onnx_translations()) needs, so that each
    direction of each layer becomes one node RNN, GRU or LSTM of ONNX, with the weights in ONNX's order of gates. The file then
    runs where ONNX runs, without this package. PyTorch 2.6 or newer, and the packages onnx and onnxscript. Masks of resets,
    return_cells=True and derivatives have no such node, and are refused in a sentence."""
    found = {kind: _refused(kind) for kind in KINDS}
    found["forward"] = _forward
    return {getattr(torch.ops.bppsa, kind).default: translate for kind, translate in found.items()}
