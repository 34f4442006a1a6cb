"""Arrays of other libraries, as numpy's; and the safetensors files in which sets of named arrays travel."""
from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Mapping

import numpy as np


def is_array(value: Any) -> bool:
    """Whether the value is an array of numbers: numpy's, or one that speaks DLPack or numpy's protocols."""
    return isinstance(value, np.ndarray) or hasattr(value, "__dlpack__") or hasattr(value, "__array__")


def as_array(value: Any) -> np.ndarray:
    """A numpy array of the value without a copy where its memory allows: from DLPack, from numpy's protocols, from lists."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):  # a tensor that records gradients shares its memory only without them
        value = value.detach()
    if hasattr(value, "__dlpack__") and hasattr(np, "from_dlpack"):
        return np.from_dlpack(value)
    return np.asarray(value)


def as_real(name: str, value: Any, shape: tuple[int, ...] | None = None, words: str = "", dtype: Any = None) -> np.ndarray:
    """The same as a contiguous array of float32 or float64, which must have the shape if one is given; `words` are its letters."""
    array = as_array(value)
    if array.dtype not in (np.float32, np.float64) or (dtype is not None and array.dtype != dtype):
        raise ValueError(f"{name}: dtype {array.dtype}, expected {dtype or 'float32 or float64'}")
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name}: shape {list(array.shape)}, expected {words} = {list(shape)}")
    return np.ascontiguousarray(array)


_DTYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1", "BOOL": "|b1",
           "F16": "<f2", "U16": "<u2", "U32": "<u4", "U64": "<u8"}
_NAMES = {np.dtype(code): name for name, code in _DTYPES.items()}


def save_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Any]) -> None:
    """Writes named arrays as a safetensors file."""
    header: dict[str, Any] = {}
    arrays = []
    at = 0
    for name, value in tensors.items():
        array = np.ascontiguousarray(as_array(value))
        if array.dtype not in _NAMES:
            raise ValueError(f"{name}: dtype {array.dtype}, expected one of {', '.join(str(dtype) for dtype in _NAMES)}")
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(as_array(value).shape),
                        "data_offsets": [at, at + array.nbytes]}
        arrays.append(array)
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays:
            file.write(array.tobytes())


def load_tensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads a safetensors file that the library wrote, in the file's order."""
    data = pathlib.Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + size + begin:8 + size + end], np.dtype(_DTYPES[entry["dtype"]]))
        tensors[name] = values.reshape(entry["shape"]).copy()
    return tensors
