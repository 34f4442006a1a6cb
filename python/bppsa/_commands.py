"""The commands of the program, as functions: options are keyword arguments, arrays take the place of files."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import tempfile
import warnings
from typing import Any, Iterator, Mapping

import numpy as np

from . import _native
from ._arrays import as_array, is_array, load_tensors, save_tensors


class _Folder:
    """A folder in memory for the arrays of one call."""

    def __init__(self, path: str) -> None:
        self.path = pathlib.Path(path)

    def array(self, name: str, value: Any) -> str:
        np.save(self.path / f"{name}.npy", np.ascontiguousarray(as_array(value)).reshape(as_array(value).shape))
        return str(self.path / f"{name}.npy")

    def word(self, name: str, value: Any) -> str:
        """The value of an option, as it would be typed."""
        if is_array(value):
            return self.array(name, value)
        if isinstance(value, Mapping) and value and all(is_array(each) for each in value.values()):
            save_tensors(self.path / f"{name}.safetensors", value)
            return str(self.path / f"{name}.safetensors")
        if isinstance(value, Mapping):
            (self.path / f"{name}.json").write_text(json.dumps(value))
            return str(self.path / f"{name}.json")
        if isinstance(value, (list, tuple)) and value and all(is_array(each) for each in value):
            return "npy:" + ",".join(self.array(f"{name}{i}", each) for i, each in enumerate(value))
        if isinstance(value, (list, tuple)):
            return ",".join(self.word(name, each) for each in value)
        return str(os.fspath(value)) if isinstance(value, os.PathLike) else str(value)

    def options(self, options: Mapping[str, Any]) -> list[str]:
        words = []
        for name, value in options.items():
            option = "--" + name.rstrip("_").replace("_", "-")
            if value is True:
                words.append(option)
            elif value is not None and value is not False:
                words += [option, self.word(name, value)]
        return words


@contextlib.contextmanager
def _folder() -> Iterator[_Folder]:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bppsa-", dir=memory, ignore_cleanup_errors=True) as path:
        yield _Folder(path)


def _run(folder: _Folder, words: list[str], options: Mapping[str, Any]) -> str:
    code, out, err = _native.command([*words, *folder.options(options)])
    message = ""
    for line in err.replace(f"{folder.path}/", "").splitlines():
        if line.startswith("bppsa: note: "):
            warnings.warn(line[len("bppsa: note: "):])
        elif line.startswith("bppsa: error: "):
            message = line[len("bppsa: error: "):]
    if code != 0 and message.startswith("stopped by SIGINT"):
        raise KeyboardInterrupt(message)
    if code != 0:
        raise (_native.RequestError if code == 2 else _native.RunError)(message)
    return out


def run(*words: str | Mapping[str, Any], **options: Any) -> Any:
    """Runs any command of the program and returns its JSON document as a dict: run("bench", "rnn", quick=True).

    Words and options are the program's (`bppsa VERB --help` lists them), with _ for -: seq_len=1000 is --seq-len 1000. A value
    may be

      - True for an option without a value; False and None leave it out;
      - a number, a text or a path; a list or tuple of numbers for values with commas;
      - an array (numpy's, or one that speaks DLPack) where the option takes an NPY file, and a pair of arrays (X, Y) for --data;
      - a dict of arrays where it takes a safetensors file; a dict that is a network where a model takes FILE.json.

    Raises RequestError and RunError with the program's sentence; its notes become warnings. Other Python threads go on
    meanwhile. Ctrl-C ends the call: training stops after its step; of everything else the caller is free at once.
    """
    def call() -> str:
        with _folder() as folder:
            line = [folder.word("network", word) for word in words]
            return _run(folder, line, options if line[0].startswith("-") else {**options, "json": True})

    out = _native.interruptible(call)
    return json.loads(out) if out.startswith(("{", "[")) else out


def grad(model: str | Mapping[str, Any], weights: Any, input: Any, labels: Any = None, h0: Any = None, c0: Any = None,
         **options: Any) -> dict[str, np.ndarray]:
    """The gradients of one batch, as `bppsa grad` computes them: a dict with the gradient of every weight under its PyTorch name,
    of "input" [T,B,I] or [B,C,H,W], of "h0" and of an LSTM's "c0" [L,B,H] (of layers in both directions [2L,B,H]) where they are
    given, and the scalar "loss" [].

    model: "rnn", "gru", "lstm", "lenet5", "vgg11", a network's file or dict. weights: a dict of arrays, or a safetensors file.
    labels: int64 [B], or [T,B] with loss="all"; reals with loss="mse" or "bce"; None beside grad_output, the gradient of the top
    layer's states, [T,B,H] or [B,H] (in both directions 2H wide), which leaves head and loss out. options: backward="scan",
    algorithm="chunked", dtype="f64", threads=2, ..
    """
    def call() -> dict[str, np.ndarray]:
        with _folder() as folder:
            out = folder.path / "gradients.safetensors"
            arrays = {"weights": weights, "input": input, "labels": labels, "h0": h0, "c0": c0, "out": out}
            _run(folder, ["grad", folder.word("network", model)], {**options, **arrays, "json": True})
            return load_tensors(out)

    return _native.interruptible(call)


def plan(model: str | Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """The scan plan of a network, as `bppsa plan --json` gives it: "elements", "levels", "steps" and "totals".

    plan("rnn", seq_len=1000, algorithm="blelloch")["totals"]["critical_steps"]
    """
    return run("plan", model, **options)


def flops(model: str | Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """What the scan of a convolutional network costs, as `bppsa flops --json` counts it: "operators", "levels", "steps", "totals",
    "baseline_flops" (of BP), "dominant".

    flops("vgg11", prune=0.97, method="class-uniform", up_levels=3)["totals"]["critical_flops"]
    """
    return run("flops", model, **options)


def schedule(scheme: str, **options: Any) -> dict[str, Any]:
    """A validated and simulated schedule, as `bppsa schedule --json` gives it: "makespan", "bubble_ratio", "workers", "ops".

    schedule("chimera", stages=4, micro_batches=8)["bubble_ratio"]
    """
    return run("schedule", scheme, **options)


def train(model: str | Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Trains a network, as `bppsa train --json` does: its report. data: a name, a path, or arrays (X [N,T,I] or [N,C,H,W], Y).

    train("gru", data=(x, y), epochs=3, save_weights="gru.safetensors")
    """
    return run("train", model, **options)
