"""Where PyTorch would record or transform bppsa.torch instead of calling it with numbers: sentences that say what to do."""
from __future__ import annotations

import functools
from typing import Any, Callable

import torch

from . import _native

_INSTEAD = "expected a layer of torch.nn with its state_dict (docs/python.md, \"Export\")"
# Words of PyTorch's own errors about tensors without memory, in the order in which they are looked for.
_TRANSFORMS = {"functorch": "vmap, and other transforms of torch.func,", "Fake": "torch.export",
               "data pointer": "vmap or torch.export", "vmap": "vmap"}


def cannot(what: str, transform: str) -> NotImplementedError:
    instead = "expected a loop over the steps" if what == "scan" else _INSTEAD
    return NotImplementedError(f"bppsa.torch.{what}: {transform} cannot look into it, {instead}")


# Modes under which operators are recorded or have no numbers, by the names of their classes.
_RECORDERS = {"ProxyTorchDispatchMode": "make_fx", "PythonKeyTracer": "make_fx", "FakeTensorMode": "torch.export (FakeTensorMode)"}


def _modes() -> list[Any]:
    """PyTorch's dispatch modes that are in force."""
    count = getattr(torch._C, "_len_torch_dispatch_stack", None)
    if count is None:  # an older PyTorch, which names only the innermost mode
        mode = getattr(torch._C, "_get_torch_dispatch_mode", lambda: None)()
        found = []
        while mode is not None:
            found.append(mode)
            mode = getattr(mode, "inner", None)
        return found
    return [torch._C._get_dispatch_stack_at(number) for number in range(count())]


def _plain(function: Callable[..., Any], what: Callable[[tuple[Any, ...]], str]) -> Callable[..., Any]:
    """The function, which says in a sentence when PyTorch records or transforms it instead of calling it with numbers. what: names
    the layer or function for that sentence, from the arguments."""
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch._C._get_tracing_state() is not None:
            raise cannot(what(args), "torch.jit.trace")
        for mode in _modes():
            if type(mode).__name__ in _RECORDERS:
                raise cannot(what(args), _RECORDERS[type(mode).__name__])
        try:
            return function(*args, **kwargs)
        except (ValueError, TypeError, NotImplementedError, _native.Error):
            raise
        except RuntimeError as reason:
            for word, transform in _TRANSFORMS.items():
                if word in str(reason):
                    raise cannot(what(args), transform) from reason
            raise

    return call


def opaque(what: Callable[[tuple[Any, ...]], str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function that torch.compile calls as it is, without looking inside; other calls go straight to the function."""
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        plain = _plain(function, what)
        owners = [owner for name in ("compiler", "_dynamo") if hasattr(owner := getattr(torch, name, None), "disable")]
        if not owners:
            return plain
        try:  # torch.export tells the reason
            alone = owners[0].disable(plain, reason="bppsa.torch computes in C; where it has to be recorded, " + _INSTEAD)
        except TypeError:  # an older PyTorch
            alone = owners[0].disable(plain)
        compiling = getattr(owners[0], "is_compiling", lambda: True)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return alone(*args, **kwargs) if compiling() else plain(*args, **kwargs)

        return call

    return decorate


def onnx_translations() -> Any:
    """Of an older PyTorch: there are none."""
    raise NotImplementedError(f"bppsa.torch.onnx_translations: PyTorch {torch.__version__}, expected 2.6 or newer, or a layer of "
                              "torch.nn with its state_dict (docs/python.md, \"Export\")")
