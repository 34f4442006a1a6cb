"""bppsa: back-propagation as a parallel scan.

On numpy arrays, and on whatever speaks DLPack:

  grad, plan, flops, schedule, train   the commands of the program `bppsa`; run calls any of them
  doctor                               what this build and this machine offer
  scan                                 g_{t-1} = J_tᵀ g_t + u_{t-1}
  bppsa.jacobian                       sparse transposed Jacobians of operators (needs SciPy)

With PyTorch:

  bppsa.torch                          RNN, GRU and LSTM, to be used like torch.nn's, and a scan with gradients

With JAX:

  bppsa.jax                            rnn, gru and lstm as functions, modules for Flax and Equinox

Everything is computed by the C library. Errors are RequestError (a ValueError) and RunError (a RuntimeError).
"""
import importlib as _importlib
import types as _types

from ._commands import doctor, flops, grad, plan, run, schedule, train
from ._native import Error, RequestError, RunError, version as _version
from ._scan import scan

__version__: str = _version().decode().split()[0]
__all__ = ["Error", "RequestError", "RunError", "doctor", "flops", "grad", "plan", "run", "scan", "schedule", "train"]


def __getattr__(name: str) -> _types.ModuleType:
    """Imports the modules that need SciPy, JAX and PyTorch when they are first used."""
    if name in ("jacobian", "jax", "torch"):
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
