"""A module of PyTorch as a network of the program: what `bppsa.torch.network` returns.

One table of operations turns the calls that _record.py records into layers.
"""
from __future__ import annotations

import math
import re
from typing import Any, Callable, Iterable, NamedTuple

import torch
from torch import Tensor, nn

from ._record import Call, Parameter, record, refuse

_NAME = 47  # the most letters of a layer's name


class Value(NamedTuple):
    """A tensor of the graph: the layer that gives it, its shape without the batch, and the network's own [C, H, W] of the same
    values in the same order."""
    layer: str
    shape: tuple[int, ...]
    held: tuple[int, ...]


def held_as(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The network's shape of a tensor: [N] is [N, 1, 1] and [C, L] is [C, 1, L]."""
    return (shape[0], 1, shape[1]) if len(shape) == 2 else (*shape, *[1] * (3 - len(shape)))


class Parts(NamedTuple):
    """What chunk and split give: the tensor, and for each part its first channel and how many there are."""
    whole: Value
    ranges: tuple[tuple[int, int], ...]


# ---- layers ----

def _pair(value: Any) -> list[int]:
    return [int(each) for each in value] * (2 if len(value) == 1 else 1) if isinstance(value, (list, tuple)) else [int(value)] * 2


class _Layers:
    """The layers of a network while its calls are read."""

    def __init__(self) -> None:
        self.layers: list[dict[str, Any]] = []
        self.values: dict[Any, Any] = {}
        self.names = {"input"}
        self.reshaped: dict[tuple[str, tuple[int, ...]], Value] = {}

    def resolve(self, value: Any) -> Any:
        """An argument, with what the nodes in it stand for."""
        if isinstance(value, torch.fx.Node):
            if value in self.values:
                return self.values[value]
            return value.meta.get("value")  # a number, such as x.size(0)
        if isinstance(value, (Value, Parameter, Parts)):
            return value
        if isinstance(value, (list, tuple)):
            return [self.resolve(each) for each in value]
        return slice(*(self.resolve(each) for each in (value.start, value.stop, value.step))) if isinstance(value, slice) else value

    def add(self, name: str, operation: str, inputs: list[Value], shape: tuple[int, ...], /, **members: Any) -> Value:
        inputs = [self.held(each, held_as(each.shape)) for each in inputs]
        return self.append(name, operation, inputs, Value(name, shape, held_as(shape)), **members)

    def append(self, name: str, operation: str, inputs: list[Value], made: Value, /, **members: Any) -> Value:
        self.names.add(name)
        self.layers.append({"name": name, "op": operation, "inputs": [each.layer for each in inputs], **members})
        return made

    def held(self, value: Value, shape: tuple[int, ...]) -> Value:
        """The value with this shape in the network. Views of PyTorch change the shape alone, so that a layer is needed only where
        an operation reads another shape than the network has."""
        if value.held == shape:
            return value
        if (value.layer, shape) in self.reshaped:
            return self.reshaped[value.layer, shape]._replace(shape=value.shape)
        base = "reshape" if value.layer == "input" else f"{value.layer}.reshape"
        name = self.unused(base if len(base) <= _NAME - 4 else "reshape")
        made = self.append(name, "reshape", [value], Value(name, value.shape, shape), shape=list(shape))
        self.reshaped[value.layer, shape] = made
        return made

    def unused(self, base: str) -> str:
        """The name, with a number behind it if it is used already."""
        name, number = base, 0
        while name in self.names:
            number += 1
            name = f"{base}_{number}"
        return name

    def free_name(self, call: Call, word: str) -> str:
        """A name for a layer without parameters: its module's, or the word of the operation behind it."""
        base = call.path if call.module else f"{call.path}.{word}" if call.path else word
        base = re.sub(r"[^A-Za-z0-9._-]", "_", base)
        return self.unused(base if len(base) <= _NAME - 4 else word)

    def weighted_name(self, parameter: Any, where: str) -> str:
        """The name of a layer whose parameters are NAME.weight and others."""
        if not isinstance(parameter, Parameter):
            raise refuse(where, "a weight that is computed", "a parameter of the model")
        name, _, last = parameter.name.rpartition(".")
        if last not in ("weight", "running_mean") or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
            raise refuse(where, f"a weight called '{parameter.name}'", "a parameter called NAME.weight, as those of modules are")
        if len(name) > _NAME:
            raise refuse(where, f"a name of {len(name)} letters", f"{_NAME} at most")
        if name in self.names:
            raise refuse(where, f"the weights of '{name}' a second time", "weights that one layer uses")
        return name


def _images(value: Any, where: str, ranks: tuple[int, ...] = (3,)) -> Value:
    """The argument as a tensor of the graph that is an image [C, H, W], or a line [C, L] or a vector [N] where it may be one."""
    if not isinstance(value, Value):
        found = "a parameter" if isinstance(value, Parameter) else f"a {type(value).__name__}"
        raise refuse(where, f"{found} as an operand", "tensors that are computed from the input")
    if len(value.shape) not in ranks:
        expected = " or ".join({3: "[B, C, H, W]", 2: "[B, C, L]", 1: "[B, N]"}[rank] for rank in ranks)
        raise refuse(where, f"a tensor of {len(value.shape) + 1} axes", expected)
    return value


_ANY = (3, 2, 1)


def _conv1d(net: _Layers, call: Call, where: str) -> Value:
    a = call.arguments
    x, weight = _images(a["input"], where, (2,)), a["weight"]
    name = net.weighted_name(weight, where)
    out, _, kernel = weight.shape
    stride, dilation = _pair(a.get("stride", 1))[1], _pair(a.get("dilation", 1))[1]
    padding = a.get("padding", 0)
    if padding == "same":
        total = dilation * (kernel - 1)
        sides = [total // 2, total - total // 2]
    else:
        sides = _pair(0 if padding == "valid" else padding)
    return net.add(name, "conv1d", [x], call.shape[1:], out=out, kernel=kernel, stride=stride, padding=sides, dilation=dilation,
                   groups=int(a.get("groups", 1)), bias=a.get("bias") is not None)


def _conv2d(net: _Layers, call: Call, where: str) -> Value:
    a = call.arguments
    x, weight = _images(a["input"], where), a["weight"]
    name = net.weighted_name(weight, where)
    out, _, *kernel = weight.shape
    stride, dilation, padding = _pair(a.get("stride", 1)), _pair(a.get("dilation", 1)), a.get("padding", 0)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel)]
        sides = [total[0] // 2, total[0] - total[0] // 2, total[1] // 2, total[1] - total[1] // 2]
    else:
        vertical, horizontal = _pair(0 if padding == "valid" else padding)
        sides = [vertical, vertical, horizontal, horizontal]
    return net.add(name, "conv2d", [x], call.shape[1:], out=out, kernel=kernel, stride=stride, padding=sides, dilation=dilation,
                   groups=int(a.get("groups", 1)), bias=a.get("bias") is not None)


def _linear(net: _Layers, call: Call, where: str) -> Value:
    a = call.arguments
    x = _images(a["input"], where, (1,))
    return net.add(net.weighted_name(a["weight"], where), "linear", [x], call.shape[1:], out=a["weight"].shape[0],
                   bias=a.get("bias") is not None)


def _batch_norm(net: _Layers, call: Call, where: str) -> Value:
    a = call.arguments
    if a.get("training") or a.get("running_mean") is None:
        raise refuse(where, "a batch norm without running statistics", "track_running_stats=True")
    members = {"eps": float(a["eps"])} if "eps" in a else {}
    if a.get("momentum"):
        members["momentum"] = float(a["momentum"])
    return net.add(net.weighted_name(a["running_mean"], where), "batchnorm2d", [_images(a["input"], where, _ANY)], call.shape[1:],
                   affine=a.get("weight") is not None, **members)


def _norm(net: _Layers, call: Call, where: str) -> Value:
    a, layer = call.arguments, call.operation == "layer_norm"
    x, weight = _images(a["input"], where, _ANY), a.get("weight")
    if (weight is None) != (a.get("bias") is None):
        raise refuse(where, "a weight without a bias" if weight is not None else "a bias without a weight", "both or neither")
    name = net.weighted_name(weight, where) if weight is not None else net.free_name(call, call.operation)
    own = {"shape": [int(each) for each in a["normalized_shape"]]} if layer else {"groups": int(a["num_groups"])}
    return net.add(name, "layernorm" if layer else "groupnorm", [x], x.shape, **own, eps=float(a.get("eps", 1e-5)),
                   affine=weight is not None)


def _softmax(net: _Layers, call: Call, where: str) -> Value:
    x, dim = _images(call.arguments["input"], where, _ANY), call.arguments.get("dim")
    axis = -1 if dim is None else _axis(dim, len(x.shape)) - 1
    if axis < 0:
        raise refuse(where, f"softmax along axis {dim}", "one of the axes behind the batch")
    return net.add(net.free_name(call, "softmax"), "softmax", [x], x.shape, axis=2 * axis if len(x.shape) == 2 else axis)


def _function(net: _Layers, call: Call, where: str, word: str | None = None, **members: Any) -> Value:
    x = _images(call.arguments["input"], where, _ANY)
    word = word or call.operation
    return net.add(net.free_name(call, call.operation), word, [x], x.shape, **members)


def _hardtanh(net: _Layers, call: Call, where: str) -> Value:
    low, high = call.arguments.get("min_val", -1), call.arguments.get("max_val", 1)
    if (low, high) != (0, 6):
        raise refuse(where, f"hardtanh from {low} to {high}", "one from 0 to 6, which is relu6")
    return _function(net, call, where, "relu6")


def _leaky_relu(net: _Layers, call: Call, where: str) -> Value:
    return _function(net, call, where, slope=float(call.arguments.get("negative_slope", 0.01)))


def _gelu(net: _Layers, call: Call, where: str) -> Value:
    return _function(net, call, where, approximate=call.arguments.get("approximate", "none"))


def _dropout(net: _Layers, call: Call, where: str) -> Value:
    return _function(net, call, where, p=float(call.arguments.get("p", 0.5)))


def _pool(net: _Layers, call: Call, where: str) -> Value:
    a = call.arguments
    kernel = _pair(a["kernel_size"])
    stride = a.get("stride")
    vertical, horizontal = _pair(a.get("padding", 0))
    members = dict(kernel=kernel, stride=_pair(stride) if stride not in (None, []) else kernel,
                   padding=[vertical, vertical, horizontal, horizontal], ceil_mode=bool(a.get("ceil_mode", False)))
    if call.operation == "max_pool2d":
        return net.add(net.free_name(call, call.operation), "maxpool2d", [_images(a["input"], where)], call.shape[1:],
                       dilation=_pair(a.get("dilation", 1)), **members)
    if a.get("divisor_override") is not None:
        raise refuse(where, f"divisor_override {a['divisor_override']}", "None")
    return net.add(net.free_name(call, call.operation), "avgpool2d", [_images(a["input"], where)], call.shape[1:],
                   exclude_pad=not a.get("count_include_pad", True), **members)


def _adaptive(net: _Layers, call: Call, where: str) -> Value:
    x = _images(call.arguments["input"], where)
    return net.add(net.free_name(call, call.operation), "adaptive_avgpool2d", [x], call.shape[1:], size=list(call.shape[2:]))


def _mean(net: _Layers, call: Call, where: str) -> Value:
    x, dims = _images(call.arguments["input"], where, (3, 2)), call.arguments.get("dim")
    dims = [dims] if isinstance(dims, int) else dims or []
    rank = len(x.shape)
    if sorted(_axis(dim, rank) for dim in dims) != [2, 3][:rank - 1]:
        raise refuse(where, f"mean over {dims or None}", "the mean over height and width, [2, 3], or over the length, 2")
    x = net.held(x, held_as(x.shape))
    name = net.free_name(call, "mean")
    return net.append(name, "global_avgpool", [x], Value(name, call.shape[1:], (x.shape[0], 1, 1)))


def _count(shape: Iterable[int]) -> int:
    return math.prod(shape)


def _words(shape: Iterable[int]) -> str:
    return ", ".join(map(str, shape))


def _reshape(net: _Layers, call: Call, where: str) -> Value:
    x, shape = call.arguments["input"], call.shape[1:]
    if not isinstance(x, Value):
        return _images(x, where)
    if shape == x.shape:
        return x
    if _count(shape) != _count(x.shape):
        raise refuse(where, f"{call.operation} of [B, {_words(x.shape)}] to [B, {_words(shape)}]",
                      f"a shape of {_count(x.shape)} values behind the batch")
    if len(shape) == 1 and len(x.shape) == 3:
        return net.add(net.free_name(call, "flatten"), "flatten", [x], shape)
    return x._replace(shape=shape)  # the next operation has a layer made for it, if it needs one


def _merged(shape: tuple[int, ...], order: list[int]) -> tuple[list[int], list[int]]:
    """A permutation as extents and order, with fewer axes: those of extent 1 are left out, those that stay side by side are one."""
    order = [axis for axis in order if shape[axis] != 1]
    runs: list[list[int]] = []
    kept = [axis for axis in range(len(shape)) if shape[axis] != 1]
    for axis in order:
        if runs and kept.index(axis) == kept.index(runs[-1][-1]) + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    in_front = sorted(runs)
    return [_count(shape[axis] for axis in run) for run in in_front], [in_front.index(run) for run in runs]


def _permute(net: _Layers, call: Call, where: str) -> Value:
    a, x = call.arguments, call.arguments["input"]
    if not isinstance(x, Value):
        return _images(x, where)
    rank = len(x.shape)
    if call.operation == "transpose":
        dims = list(range(rank + 1))
        one, other = _axis(a["dim0"], rank), _axis(a["dim1"], rank)
        dims[one], dims[other] = other, one
    else:
        dims = [_axis(dim, rank) for dim in a["dims"]]
    if dims[0] != 0:
        raise refuse(where, f"axes in the order {dims}", "the batch as the first one")
    order, made = [dim - 1 for dim in dims[1:]], tuple(x.shape[dim - 1] for dim in dims[1:])
    extents, order_of = list(held_as(x.shape)), [0, 1, 2]
    if rank == 3:
        order_of = order
    elif rank == 2:
        order_of = [2 * order[0], 1, 2 * order[1]]
    elif rank > 3:
        extents, order_of = _merged(x.shape, order)
        if len(extents) > 3:
            raise refuse(where, f"an order of {len(extents)} axes that part", "at most three")
        extents += [1] * (3 - len(extents))
        order_of += list(range(len(order_of), 3))
    if order_of == [0, 1, 2]:
        return x._replace(shape=made)
    x = net.held(x, tuple(extents))
    name = net.free_name(call, "permute")
    return net.append(name, "permute", [x], Value(name, made, tuple(extents[axis] for axis in order_of)), order=order_of)


def _pruned(one: Any, other: Any) -> Parameter | None:
    """The weight that torch.nn.utils.prune computes as NAME_orig times NAME_mask."""
    if isinstance(one, Parameter) and isinstance(other, Parameter):
        for original, mask in ((one, other), (other, one)):
            name = original.name[:-len("_orig")]
            if original.name.endswith("_orig") and mask.name == name + "_mask":
                return Parameter(name, original.shape)
    return None


def _join(net: _Layers, call: Call, where: str) -> Any:
    one, other = call.arguments["input"], call.arguments["other"]
    if call.operation == "mul" and _pruned(one, other):
        return _pruned(one, other)
    if call.arguments.get("alpha", 1) != 1:
        raise refuse(where, f"alpha {call.arguments['alpha']}", "1")
    values = [_images(each, where, _ANY) for each in (one, other)]
    shapes = [value.shape for value in values]
    repeats = call.operation == "mul" and len(shapes[0]) == len(shapes[1]) and all(
        a == b or 1 in (a, b) for a, b in zip(*shapes))
    if shapes[0] != shapes[1] and not repeats:
        raise refuse(where, f"tensors [B, {_words(shapes[0])}] and [B, {_words(shapes[1])}]",
                      "equal extents, or 1" if call.operation == "mul" else "equal shapes, none that is repeated")
    return net.add(net.free_name(call, call.operation), call.operation, values, tuple(map(max, *shapes)))


def _axis(value: Any, rank: int) -> int:
    return int(value or 0) % (rank + 1)


def _cat(net: _Layers, call: Call, where: str) -> Value:
    values = [_images(each, where, _ANY) for each in call.arguments["tensors"]]
    if _axis(call.arguments.get("dim", 0), len(values[0].shape)) != 1:
        raise refuse(where, f"cat along axis {call.arguments.get('dim', 0)}", "axis 1, the channels")
    return net.add(net.free_name(call, "cat"), "concat", values, call.shape[1:]) if len(values) > 1 else values[0]


def _split(net: _Layers, call: Call, where: str) -> Parts:
    a = call.arguments
    x = _images(a["input"], where, _ANY)
    if _axis(a.get("dim", 0), len(x.shape)) != 1:
        raise refuse(where, f"{call.operation} along axis {a.get('dim', 0)}", "axis 1, the channels")
    channels = x.shape[0]
    if call.operation == "split_with_sizes":
        sizes = [int(each) for each in a["split_size"]]
    else:
        size = -(-channels // int(a["chunks"])) if call.operation == "chunk" else int(a["split_size"])
        sizes = [min(size, channels - first) for first in range(0, channels, size)]
    return Parts(x, tuple((sum(sizes[:i]), size) for i, size in enumerate(sizes)))


def _take(net: _Layers, call: Call, x: Value, first: int, channels: int) -> Value:
    shape = (channels, *x.shape[1:])
    return x if shape == x.shape else net.add(net.free_name(call, "slice"), "slice", [x], shape, first=first, out=channels)


def _range(start: Any, stop: Any, step: Any, size: int, where: str) -> tuple[int, int]:
    first, last, step = slice(start, stop, step).indices(size)
    if step != 1 or last <= first:
        raise refuse(where, f"a slice {start}:{stop}:{step}", "channels that stand side by side")
    return first, last - first


def _slice(net: _Layers, call: Call, where: str) -> Value:
    a = call.arguments
    x = _images(a["input"], where, _ANY)
    axis = _axis(a.get("dim", 0), len(x.shape))
    if call.operation == "narrow":
        start, stop, step = int(a["start"]), int(a["start"]) + int(a["length"]), 1
    else:
        start, stop, step = a.get("start"), a.get("end"), a.get("step", 1)
    if axis != 1 and call.shape[1:] == x.shape:
        return x
    if axis != 1:
        raise refuse(where, f"a slice of axis {axis}", "of axis 1, the channels")
    return _take(net, call, x, *_range(start, stop, step, x.shape[0], where))


def _getitem(net: _Layers, call: Call, where: str) -> Value:
    x, index = call.arguments["input"], call.arguments["index"]
    if isinstance(x, Parts) and isinstance(index, int):
        return _take(net, call, x.whole, *x.ranges[index])
    x = _images(x, where, _ANY)
    index = index if isinstance(index, (list, tuple)) else [index]
    if not all(isinstance(each, slice) for each in index) or any(each != slice(None) for each in [*index[:1], *index[2:]]):
        raise refuse(where, "an index", "a slice of the channels, x[:, first:last]")
    span = index[1] if len(index) > 1 else slice(None)
    return _take(net, call, x, *_range(span.start, span.stop, span.step, x.shape[0], where))


def _same(net: _Layers, call: Call, where: str) -> Any:
    return call.arguments["input"]


_LAYERS: dict[str, Callable[[_Layers, Call, str], Any]] = {
    "conv2d": _conv2d, "linear": _linear, "batch_norm": _batch_norm, "hardtanh": _hardtanh, "leaky_relu": _leaky_relu,
    "gelu": _gelu, "dropout": _dropout, "max_pool2d": _pool, "avg_pool2d": _pool, "adaptive_avg_pool2d": _adaptive, "mean": _mean,
    "conv1d": _conv1d, "layer_norm": _norm, "group_norm": _norm, "softmax": _softmax, "permute": _permute, "transpose": _permute,
    "unsqueeze": _reshape,
    "flatten": _reshape, "view": _reshape, "reshape": _reshape, "squeeze": _reshape, "add": _join, "mul": _join, "cat": _cat,
    "chunk": _split, "split": _split, "split_with_sizes": _split, "narrow": _slice, "slice": _slice, "getitem": _getitem,
    **{name: _function for name in ("relu", "relu6", "tanh", "sigmoid", "silu", "hardswish", "hardsigmoid")},
    **{name: _same for name in ("contiguous", "clone", "detach", "alias", "identity", "to")},
}
_NOTHING = ("_assert_tensor_metadata", "sym_size", "sym_constrain_range_for_size", "_assert_scalar", "_assert_async")


def network(model: nn.Module, example_input: Any) -> dict[str, Any]:
    """The model's graph as a network of the program: a dict, which json.dump writes as a network's file, and which bppsa.flops,
    plan, grad and train take as their model. Layers have the state_dict's names, so that its weights fit.

    model          any module that computes one tensor [B, N] from one, by a linear operator at its end; in evaluation, as which it
                   is recorded. Nothing of it changes. Weights under torch.nn.utils.prune are those that it prunes
    example_input  a batch of images [B, C, H, W], of lines [B, C, L], which are [C, 1, L] in the network, or of vectors [B, N],
                   [N, 1, 1]; B is no part of the network

    It is recorded by torch.export, where PyTorch has it, otherwise by torch.fx. Modules and functions: conv1d, conv2d, linear,
    batch_norm, layer_norm, group_norm, softmax, relu, relu6, leaky_relu, hardtanh from 0 to 6, tanh, sigmoid, hardsigmoid,
    hardswish, silu, gelu, dropout, max_pool2d, avg_pool2d, adaptive_avg_pool2d, the mean over height and width, flatten, view,
    reshape, squeeze, unsqueeze, permute and transpose behind the batch, add of tensors of one shape, mul also where extents of 1
    are repeated, cat, chunk, split and slices of channels. bppsa.RequestError names, in one line, the module and the operation
    that a network does not have, and what torch.export or torch.fx could not record, such as control flow that depends on values.

    network(torchvision.models.resnet18(), torch.empty(1, 3, 224, 224))["layers"][0]
    """
    if not isinstance(model, nn.Module):
        raise refuse("model", f"a {type(model).__name__}", "a torch.nn.Module")
    example = tuple(example_input) if isinstance(example_input, (list, tuple)) else (example_input,)
    if len(example) != 1 or not isinstance(example[0], Tensor) or example[0].dim() not in (2, 3, 4) or example[0].shape[0] < 1:
        raise refuse("example_input", "not one tensor of 4, 3 or 2 axes",
                     "a batch of images [B, C, H, W], of lines [B, C, L], or of vectors [B, N]")
    calls, inputs, outputs = record(model, example)
    shape = tuple(example[0].shape[1:])
    net = _Layers()
    net.values[inputs[0]] = Value("input", shape, held_as(shape))
    for node, call in calls:
        if isinstance(call, Parameter):
            net.values[node] = call
            continue
        where = f"network: {call.path + ': ' if call.path else ''}{call.operation}"
        if call.operation in _NOTHING:
            continue
        if call.operation not in _LAYERS:
            raise refuse(where, "an operation that networks do not have", "one of " + ", ".join(sorted(_LAYERS)))
        resolved = call._replace(arguments={name: net.resolve(value) for name, value in call.arguments.items()})
        net.values[node] = _LAYERS[call.operation](net, resolved, where)
    result = net.resolve(outputs[0]) if len(outputs) == 1 else None
    if not isinstance(result, Value):
        raise refuse("network", f"{len(outputs)} outputs" if len(outputs) != 1 else "an output that is no tensor", "one tensor")
    if not net.layers or net.layers[-1]["name"] != result.layer or net.layers[-1]["op"] != "linear":
        last = next((each["op"] for each in net.layers if each["name"] == result.layer), "nothing")
        raise refuse("network", f"an output of {last}", "a model that ends with a linear operator, the head")
    return {"input": list(held_as(shape)), "layers": net.layers}
