"""The operations of a module of PyTorch, in order: recorded by torch.export where PyTorch has it, otherwise by torch.fx.

Both give calls: an operation with its arguments by name, and the path of the module that makes it.
"""
from __future__ import annotations

import contextlib
import dis
import inspect
import operator
import warnings
from typing import Any, Callable, Iterator, NamedTuple

import torch
from torch import Tensor, nn

from ._native import RequestError

class Parameter(NamedTuple):
    """A parameter or a buffer, by its name in the state_dict."""
    name: str
    shape: tuple[int, ...]


class Call(NamedTuple):
    """An operation: its name as in torch.ops.aten, its arguments by name, the module that makes it, and what it gives: a shape with
    the batch, or None if it is no tensor. module: whether that module does nothing else, as nn.ReLU does."""
    operation: str
    arguments: dict[str, Any]
    path: str
    module: bool
    shape: tuple[int, ...] | None


def refuse(where: str, found: str, expected: str) -> RequestError:
    """The error of a model that is no network of the program."""
    return RequestError(f"{where}: {found}, expected {expected}")


# The arguments of operations, in order, as torch.ops.aten has them.
_WINDOW = "input kernel_size stride padding dilation ceil_mode"
_CONV = "input weight bias stride padding dilation groups"
_ARGUMENTS = {name: words.split() for name, words in {
    "conv1d": _CONV, "conv2d": _CONV,
    "linear": "input weight bias",
    "batch_norm": "input weight bias running_mean running_var training momentum eps",
    "layer_norm": "input normalized_shape weight bias eps", "group_norm": "input num_groups weight bias eps",
    "softmax": "input dim",
    "relu": "input", "relu6": "input", "tanh": "input", "sigmoid": "input", "silu": "input", "hardswish": "input",
    "hardsigmoid": "input", "gelu": "input approximate", "leaky_relu": "input negative_slope", "hardtanh": "input min_val max_val",
    "max_pool2d": _WINDOW,
    "avg_pool2d": "input kernel_size stride padding ceil_mode count_include_pad divisor_override",
    "adaptive_avg_pool2d": "input output_size",
    "mean": "input dim keepdim",
    "flatten": "input start_dim end_dim", "view": "input size", "reshape": "input size", "squeeze": "input dim",
    "unsqueeze": "input dim", "permute": "input dims", "transpose": "input dim0 dim1",
    "dropout": "input p train",
    "add": "input other alpha", "mul": "input other",
    "cat": "tensors dim", "chunk": "input chunks dim", "split": "input split_size dim", "split_with_sizes": "input split_size dim",
    "narrow": "input dim start length", "slice": "input dim start end step", "getitem": "input index",
    "contiguous": "input", "clone": "input", "detach": "input", "alias": "input", "identity": "input", "to": "input",
}.items()}
# The same operations under other names, and arguments that other functions call otherwise.
_SAME = {"max_pool2d_with_indices": "max_pool2d", "concat": "cat", "concatenate": "cat", "_unsafe_view": "view", "iadd": "add",
         "imul": "mul", "multiply": "mul", "swapaxes": "transpose", "swapdims": "transpose",
         "unsafe_chunk": "chunk", "unsafe_split": "split", "float": "to", "type_as": "to"}
_WORDS = {"self": "input", "x": "input", "training": "train", "split_size_or_sections": "split_size", "split_sizes": "split_size",
          "shape": "size", "max": "max_val", "min": "min_val", "axis": "dim", "p0": "size"}


def _called(name: str) -> str:
    """The name of an operation without what says that it works in place."""
    name = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    return _SAME.get(name, name)


def _named(operation: str, names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names of the table above."""
    words = {**_WORDS, **({"training": "training"} if operation == "batch_norm" else {})}
    found = dict(zip(names, args))
    found.update({words.get(name, name): value for name, value in kwargs.items()})
    return {words.get(name, name): value for name, value in found.items()}


# ---- recording ----

@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation, in which dropout and batch norms do what a count means; each of its modules is put back."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in before:
            module.training = training


def _is_leaf(model: nn.Module, path: str) -> bool:
    """Is the module at the path one of PyTorch's own, which does one operation?"""
    try:
        module = model.get_submodule(path)
    except AttributeError:
        return False
    return path != "" and type(module).__module__.startswith("torch.nn.") and not any(True for _ in module.children())


def _first_line(reason: BaseException) -> str:
    lines = [line.strip() for line in str(reason).splitlines() if line.strip()]
    return lines[0] if lines else type(reason).__name__


def _unrecorded(recorder: str, reason: BaseException) -> RequestError:
    return refuse("network", f"{recorder}: {_first_line(reason)}", "a model whose operations do not depend on values")


def _tensor_shape(value: Any) -> tuple[int, ...] | None:
    return tuple(int(extent) for extent in value.shape) if isinstance(value, Tensor) else None


def _exported(model: nn.Module, example: tuple[Any, ...]) -> tuple[list[tuple[Any, Any]], list[Any], list[Any]]:
    """The calls that torch.export records with the nodes that they give, the nodes of inputs, and those of outputs."""
    try:
        with warnings.catch_warnings():  # a pruned module sets its weight in every call
            warnings.filterwarnings("ignore", message=".*was assigned during export.*")
            program = torch.export.export(model, example)
    except Exception as reason:  # whatever the model's own code raises, and what torch.export cannot record
        raise _unrecorded("torch.export", reason) from reason
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers,
             **getattr(signature, "inputs_to_lifted_tensor_constants", {})}
    calls: list[tuple[Any, Any]] = []
    inputs, outputs = [], []
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and node.name in names:
            calls.append((node, Parameter(names[node.name], _tensor_shape(value) or ())))
        elif node.op == "placeholder":
            inputs.append(node)
        elif node.op == "output":
            outputs = list(node.args[0])
        else:
            stack = list(node.meta.get("nn_module_stack", {}).values())
            path = stack[-1][0] if stack else ""
            schema = getattr(node.target, "_schema", None)
            name = _called(schema.name.split("::")[-1] if schema is not None else node.target.__name__)
            own = [argument.name for argument in schema.arguments] if schema is not None else _ARGUMENTS.get(name, [])
            arguments = _named(name, _ARGUMENTS.get(name, own), node.args, node.kwargs)
            calls.append((node, Call(name, arguments, path, _is_leaf(model, path), _tensor_shape(value))))
    return calls, inputs, outputs


class _Proxy(torch.fx.Proxy):
    """What stands for a value while torch.fx records. `a, b = value` takes as many parts as the instruction says, in versions of
    Python too whose instructions an older torch.fx misreads."""

    def __iter__(self) -> Iterator[Any]:
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        for step in dis.get_instructions(caller.f_code) if caller is not None else ():
            if step.offset == caller.f_lasti and step.opname == "UNPACK_SEQUENCE":
                return iter([self[i] for i in range(step.argval)])
        return self.tracer.iter(self)


    def __getattr__(self, name: str) -> torch.fx.proxy.Attribute:
        return _Attribute(self, name)


class _Attribute(torch.fx.proxy.Attribute):
    """An attribute of such a value: `b, c, h, w = x.shape`."""
    __iter__ = _Proxy.__iter__


class _Tracer(torch.fx.Tracer):
    """torch.fx's, which notes with every node the module that makes it."""
    _at = ""

    def proxy(self, node: torch.fx.Node) -> torch.fx.Proxy:
        return _Proxy(node, self)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        before, self._at = self._at, self.path_of_module(m)
        try:
            return super().call_module(m, forward, args, kwargs)
        finally:
            self._at = before

    def create_node(self, *args: Any, **kwargs: Any) -> torch.fx.Node:
        node = super().create_node(*args, **kwargs)
        node.meta["path"] = self._at
        return node


class _Shapes(torch.fx.Interpreter):
    """Runs the graph, and keeps what each node gave: the shape of a tensor, or a value that is none."""

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        n.meta["tensor"] = isinstance(result, Tensor)
        n.meta["value"] = tuple(result.shape) if isinstance(result, Tensor) else result
        return result


# Modules by the operation that they are, and the attributes that are its arguments.
_MODULES: dict[type, tuple[str, dict[str, str]]] = {
    nn.ReLU: ("relu", {}), nn.ReLU6: ("relu6", {}), nn.Tanh: ("tanh", {}), nn.Sigmoid: ("sigmoid", {}), nn.SiLU: ("silu", {}),
    nn.Hardswish: ("hardswish", {}), nn.Hardsigmoid: ("hardsigmoid", {}), nn.Identity: ("identity", {}),
    nn.GELU: ("gelu", {"approximate": "approximate"}), nn.LeakyReLU: ("leaky_relu", {"negative_slope": "negative_slope"}),
    nn.Hardtanh: ("hardtanh", {"min_val": "min_val", "max_val": "max_val"}), nn.Dropout: ("dropout", {"p": "p"}),
    nn.Flatten: ("flatten", {"start_dim": "start_dim", "end_dim": "end_dim"}),
    nn.AdaptiveAvgPool2d: ("adaptive_avg_pool2d", {"output_size": "output_size"}),
    nn.MaxPool2d: ("max_pool2d", {name: name for name in _WINDOW.split()[1:]}),
    nn.AvgPool2d: ("avg_pool2d", {name: name for name in _ARGUMENTS["avg_pool2d"][1:]}),
    **{kind: (name, {name: name for name in ("stride", "padding", "dilation", "groups")})
       for kind, name in ((nn.Conv1d, "conv1d"), (nn.Conv2d, "conv2d"))},
    nn.Linear: ("linear", {}),
    **{kind: ("batch_norm", {"momentum": "momentum", "eps": "eps"}) for kind in (nn.BatchNorm1d, nn.BatchNorm2d)},
    nn.LayerNorm: ("layer_norm", {"normalized_shape": "normalized_shape", "eps": "eps"}),
    nn.GroupNorm: ("group_norm", {"num_groups": "num_groups", "eps": "eps"}),
    nn.Softmax: ("softmax", {"dim": "dim"}),
}


def _function_names() -> dict[Any, str]:
    """Functions of PyTorch and Python by the operation that they are."""
    found = {}
    for name in [*_ARGUMENTS, *_SAME]:
        for space in (operator, torch, nn.functional):
            for spelled in (name, name + "_"):
                if callable(getattr(space, spelled, None)):
                    found[getattr(space, spelled)] = _called(name)
    return found


def _of_module(node: torch.fx.Node, module: nn.Module, where: str) -> tuple[str, dict[str, Any]]:
    kind = next((each for each in _MODULES if type(module) is each), None)
    if kind is None:
        known = ", ".join(sorted(each.__name__ for each in _MODULES))
        raise refuse(where, f"a module {type(module).__name__}", f"one of {known}")
    operation, attributes = _MODULES[kind]
    arguments = {name: getattr(module, attribute) for name, attribute in attributes.items()}
    if getattr(module, "padding_mode", "zeros") != "zeros":
        raise refuse(where, f"padding_mode '{module.padding_mode}'", "'zeros'")
    for name in ("weight", "bias", "running_mean", "running_var"):
        tensor = getattr(module, name, None)
        if isinstance(tensor, Tensor):
            arguments[name] = Parameter(f"{node.target}.{name}", tuple(tensor.shape))
    if operation == "batch_norm":
        arguments["training"] = module.running_mean is None
    return operation, {"input": node.args[0] if node.args else node.kwargs["input"], **arguments}


def _of_function(node: torch.fx.Node, names: dict[Any, str], where: str) -> tuple[str, dict[str, Any]]:
    method = node.op == "call_method"
    called = _called(node.target) if method else names.get(node.target, getattr(node.target, "__name__", str(node.target)))
    order, args = _ARGUMENTS.get(called, []), node.args
    if called in ("view", "reshape", "permute") and len(args) > 2:  # x.view(a, b)
        args = (args[0], args[1:])
    if node.target is nn.functional.batch_norm:
        order = ["input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"]
    if called == "split" and isinstance(args[1] if len(args) > 1 else node.kwargs.get("split_size_or_sections"), (list, tuple)):
        called = "split_with_sizes"
    if node.target is nn.functional.max_pool2d and node.kwargs.get("return_indices"):
        raise refuse(where, "return_indices", "a pool that gives its values alone")
    return called, _named(called, order, args, node.kwargs)


def _traced(model: nn.Module, example: tuple[Any, ...]) -> tuple[list[tuple[Any, Any]], list[Any], list[Any]]:
    """The same by torch.fx."""
    tracer = _Tracer()
    try:
        graph = tracer.trace(model)
        _Shapes(torch.fx.GraphModule(model, graph)).run(*example)
    except RequestError:
        raise
    except Exception as reason:  # whatever the model's own code raises, and what torch.fx cannot record
        raise _unrecorded("torch.fx", reason) from reason
    names = _function_names()
    calls: list[tuple[Any, Any]] = []
    inputs, outputs = [], []
    for node in graph.nodes:
        path = node.meta.get("path", "")
        where = f"network: {path or node.name}"
        if node.op == "placeholder":
            inputs.append(node)
        elif node.op == "output":
            outputs = list(node.args[0]) if isinstance(node.args[0], (list, tuple)) else [node.args[0]]
        elif node.op == "get_attr":
            calls.append((node, Parameter(node.target, node.meta["value"])))
        elif node.meta["tensor"] or type(node.meta["value"]) in (list, tuple):  # a torch.Size is neither
            leaf = node.op == "call_module"
            made = _of_module(node, model.get_submodule(node.target), where) if leaf else _of_function(node, names, where)
            path = node.target if leaf else path
            calls.append((node, Call(*made, path, leaf, node.meta["value"] if node.meta["tensor"] else None)))
    return calls, inputs[:len(example)], outputs


def record(model: nn.Module, example: tuple[Any, ...]) -> tuple[list[tuple[Any, Any]], list[Any], list[Any]]:
    """The model's calls and parameters with the nodes that stand for what they give, the nodes of its inputs, and those of its
    outputs. RequestError: the model cannot be recorded, or has a module that the table above does not know."""
    with _evaluating(model):
        return (_exported if hasattr(torch, "export") else _traced)(model, example)
