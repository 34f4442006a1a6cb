"""The commands of the program, as functions: options are keyword arguments, arrays take the place of files."""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import json
import os
import pathlib
import re
import shutil
import tempfile
import warnings
from typing import Any, Callable, Iterator, Mapping, TypeVar

import numpy as np

from . import _native
from ._arrays import as_array, flags, is_array, is_list, load_tensors, plain, real, save_tensors, together, whole

_Result = TypeVar("_Result")

def _labels(name: str, value: Any) -> np.ndarray:
    """Classes are int64, and reals float32 or float64."""
    return (real if as_array(name, value).dtype.kind == "f" else whole)(name, value)


# The options that take the path of an array, and what its numbers are.
_ARRAYS: dict[str, Callable[[str, Any], np.ndarray]] = {"input": real, "h0": real, "c0": real, "grad_output": real, "weights": real,
                                                        "lengths": whole, "order": whole, "labels": _labels, "mask": as_array,
                                                        "resets": flags}


def _json(value: Any) -> Any:
    """What a dict for JSON may hold beside Python's own values."""
    if isinstance(value, np.generic) or is_array(value):
        return plain(value) if getattr(value, "ndim", 0) == 0 else as_array("array", value).tolist()
    raise _native.RequestError(f"{value!r}: a {type(value).__name__}, expected numbers, texts, lists and dicts")


class _Folder:
    """A folder, in memory if there is room, for the arrays of one call. told: becomes a signal's number when the call shall end."""

    def __init__(self, path: str, told: ctypes.c_int | None = None) -> None:
        self.path = pathlib.Path(path)
        self.told = ctypes.c_int(0) if told is None else told

    def check(self) -> None:
        if self.told.value:
            raise KeyboardInterrupt("stopped by SIGINT before the command began, nothing was written")

    def array(self, name: str, array: np.ndarray) -> str:
        self.check()
        with open(self.path / f"{name}.npy", "wb") as file:
            np.lib.format.write_array(file, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
        return str(self.path / f"{name}.npy")

    def mapping(self, name: str, value: Mapping[str, Any]) -> str:
        """A dict of arrays as a safetensors file, any other one as JSON."""
        arrays = [key for key, each in value.items() if is_array(each) and plain(each) is each]
        if name == "weights" or len(arrays) == len(value) > 0:
            save_tensors(self.path / f"{name}.safetensors",
                         together(value) if name == "weights" else {key: as_array(key, each) for key, each in value.items()})
            return str(self.path / f"{name}.safetensors")
        try:
            text = json.dumps(value, default=_json)
        except (TypeError, ValueError, RecursionError) as reason:
            if isinstance(reason, _native.Error):
                raise
            raise _native.RequestError(f"{name}: {reason}, expected a dict that JSON can hold") from reason
        (self.path / f"{name}.json").write_text(text)
        return str(self.path / f"{name}.json")

    def word(self, name: str, value: Any) -> str:
        """The value of an option, as it would be typed."""
        value = plain(value)
        if isinstance(value, Mapping):
            return self.mapping(name, value)
        if name in _ARRAYS and isinstance(value, (int, float)):
            raise _native.RequestError(f"{name}: the number {value}, expected an array or the path of a file")
        if name in _ARRAYS and (is_array(value) or is_list(value)):
            return self.array(name, _ARRAYS[name](name, value))
        if name == "data" and is_list(value):
            if len(value) != 2:
                raise _native.RequestError(f"data: {len(value)} arrays, expected a pair (X, Y)")
            return f"npy:{self.array('data0', real('data, X', value[0]))},{self.array('data1', _labels('data, Y', value[1]))}"
        if is_array(value) and value.ndim > 1:
            return self.array(name, as_array(name, value))
        if is_array(value) or is_list(value):
            return ",".join(self.word(name, each) for each in (value.tolist() if hasattr(value, "tolist") else value))
        return os.fsdecode(value) if isinstance(value, (bytes, os.PathLike)) else str(value)

    def options(self, options: Mapping[str, Any]) -> list[str]:
        words = []
        for name, value in options.items():
            option = "--" + name.rstrip("_").replace("_", "-")
            value = plain(value)
            if value is True:
                words.append(option)
            elif value is not None and value is not False:
                words += [option, self.word(name, value)]
        return words


def _places() -> list[str]:
    """Where a folder may be made: in memory, and where temporary files go."""
    places = ["/dev/shm"] if os.access("/dev/shm", os.W_OK) else []
    try:
        return [*places, tempfile.gettempdir()]
    except OSError as reason:  # no temporary directory can be used
        if places:
            return places
        raise _native.RunError(f"{reason}, expected a folder for arrays: /dev/shm, or the one that TMPDIR names") from reason


_folders: set[tuple[int, str]] = set()  # each with the process that made it


@atexit.register
def _remove_folders() -> None:
    """Removes the folders of calls that were interrupted and still run when the interpreter ends."""
    for process, path in list(_folders):
        if process == os.getpid():
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _temporary(place: str) -> Iterator[str]:
    """A folder of its own below the place, which is removed at the end."""
    path = tempfile.mkdtemp(prefix="bppsa-", dir=place)
    _folders.add((os.getpid(), path))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        _folders.discard((os.getpid(), path))


def in_folder(work: Callable[[_Folder], _Result], ends: bool = False) -> _Result:
    """Does the work with a folder of its own, and again in the next place if one has no room. Ctrl-C ends the call. ends: then the
    call waits until the work, which is told, has ended by itself."""
    told = ctypes.c_int(0)
    return _native.interruptible(lambda: _in_folder(work, told), told, ends)


def _in_folder(work: Callable[[_Folder], _Result], told: ctypes.c_int) -> _Result:
    places = _places()
    for place in places:
        try:
            with _temporary(place) as path:
                return work(_Folder(path, told))
        except OSError as reason:
            if place == places[-1]:
                raise _native.RunError(f"{' and '.join(places)}: {reason.strerror or reason}, where arrays are written, expected "
                                       "room for them in /dev/shm or in the folder that TMPDIR names") from reason
    raise AssertionError("unreachable")


_ENDING = ("train", "figures")  # commands that end by themselves when they are told to
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _run(folder: _Folder, words: list[str], options: Mapping[str, Any]) -> str:
    line = [*words, *folder.options(options)]
    processes = int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))  # started by mpirun
    if options.get("ranks") and processes > 1 and any(str(folder.path) in word for word in line):
        raise _native.RequestError("an array on the ranks of mpirun, whose processes share files alone, expected the paths of "
                                   "files (run, with out= where arrays come back)")
    folder.check()
    code, out, err = _native.command(line, folder.told)
    for reason in _NO_ROOM:
        if code != 0 and str(folder.path) in err and os.strerror(reason) in err:  # it could not write a file of ours
            raise OSError(reason, os.strerror(reason), str(folder.path))
    message = ""
    for line in err.replace(f"{folder.path}/", "").splitlines():
        if line.startswith("bppsa: note: "):
            warnings.warn(line[len("bppsa: note: "):])
        elif line.startswith("bppsa: error: "):
            message = line[len("bppsa: error: "):]
    if code != 0 and re.match(r"(rank \d+: )*stopped by SIGINT", message):
        raise KeyboardInterrupt(message)
    if code != 0:
        raise (_native.RequestError if code == 2 else _native.RunError)(message)
    return out


def run(*words: str | Mapping[str, Any], **options: Any) -> Any:
    """Runs any command of the program and returns its JSON document as a dict: run("bench", "rnn", quick=True).

    Words and options are the program's (`bppsa VERB --help` lists them), with _ for -: seq_len=1000 is --seq-len 1000. A value
    may be

      - True for an option without a value; False and None leave it out;
      - a number, a text or a path; a list, a tuple or an array of numbers for values with commas. Scalars of numpy and arrays
        without axes mean what Python's own numbers and truth values mean;
      - an array (numpy's, one that speaks DLPack, nested lists) where the option takes an NPY file, and a pair of arrays (X, Y) for
        --data. Types that the program does not read are converted where that changes no number, and refused elsewhere;
      - a dict of arrays where it takes a safetensors file; a dict that is a network where a model takes FILE.json.

    Arrays travel in a folder in memory, or, where that has no room, in a temporary one.

    Raises RequestError and RunError with the program's sentence; its notes become warnings. Other Python threads go on
    meanwhile. Ctrl-C ends the call: training stops after its step; of everything else the caller is free at once.
    """
    if not words:
        raise _native.RequestError("run: no words, expected a command of the program, such as \"plan\", \"rnn\"")

    def work(folder: _Folder) -> str:
        line = [folder.word("network", word) for word in words]
        return _run(folder, line, options if line[0].startswith("-") else {**options, "json": True})

    out = in_folder(work, ends=words[0] in _ENDING)
    return json.loads(out) if out.startswith(("{", "[")) else out


def grad(model: str | Mapping[str, Any], weights: Any, input: Any, labels: Any = None, h0: Any = None, c0: Any = None,
         **options: Any) -> dict[str, np.ndarray]:
    """The gradients of one batch, as `bppsa grad` computes them: a dict with the gradient of every weight under its PyTorch name,
    of "input" [T,B,I] or [B,C,H,W], of "h0" and of an LSTM's "c0" [L,B,H] (of layers in both directions [2L,B,H]) where they are
    given, and the scalar "loss" [].

    model: "rnn", "gru", "lstm", "lenet5", "resnet18", .., a network's file, or a dict, as bppsa.torch.network makes one.
    weights: a dict of arrays, or a safetensors file. labels: int64 [B], or [T,B] with loss="all"; reals with loss="mse" or
    "bce"; None beside grad_output, the gradient of the top layer's states, [T,B,H] or [B,H] (in both directions 2H wide),
    which leaves head and loss out. options: backward="scan", algorithm="chunked", dtype="f64", threads=2,
    resets=[T,B] of bool (docs/resets.md), ..
    """
    def work(folder: _Folder) -> dict[str, np.ndarray]:
        out = folder.path / "gradients.safetensors"
        arrays = {"weights": weights, "input": input, "labels": labels, "h0": h0, "c0": c0, "out": out}
        _run(folder, ["grad", folder.word("network", model)], {**options, **arrays, "json": True})
        return load_tensors(out)

    return in_folder(work)


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


def doctor() -> dict[str, Any]:
    """What this build and this machine offer, as `bppsa doctor --json` says it: "backends", found or with the package that brings
    them, "cuda", "audio", "transports".

    [backend["name"] for backend in doctor()["backends"]]
    """
    return run("doctor")
