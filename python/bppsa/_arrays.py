"""Arrays of other libraries, as numpy's; and the safetensors files in which sets of named arrays travel."""
from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Mapping, Sequence

import numpy as np

from ._native import RequestError


def is_array(value: Any) -> bool:
    """Whether the value is an array of numbers: numpy's, or one that speaks DLPack or numpy's protocols."""
    return isinstance(value, np.ndarray) or hasattr(value, "__dlpack__") or hasattr(value, "__array__")


def is_list(value: Any) -> bool:
    """Whether it is a list, a tuple, a range .., but no text."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def plain(value: Any) -> Any:
    """A scalar of numpy or of another library, or an array without axes, as Python's own number, truth value or text."""
    if isinstance(value, np.generic) or (is_array(value) and getattr(value, "ndim", None) == 0):
        try:
            number = value.item()
        except (RuntimeError, NotImplementedError) as reason:  # a tensor without memory
            raise RequestError(f"{type(value).__name__}: {reason}, expected a number") from reason
        if isinstance(number, np.longdouble):  # which numpy leaves as it is
            if float(number) != number and number == number:
                raise RequestError(f"{number}: a number that float64 does not hold, expected one in float64")
            return float(number)
        return number
    return value


def _shares(value: Any) -> np.ndarray:
    """A numpy array of another library's, without a copy where its memory allows."""
    if hasattr(value, "detach"):  # a tensor that records gradients shares its memory only without them
        value = value.detach().cpu()
        value = value.resolve_neg() if hasattr(value, "resolve_neg") else value  # DLPack does not know what autograd has noted
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    if hasattr(value, "__dlpack__") and hasattr(np, "from_dlpack"):
        try:
            return np.from_dlpack(value)
        except (RuntimeError, BufferError, TypeError, ValueError):  # a type that DLPack or numpy does not know there
            pass
    return np.asarray(value)


def as_array(name: str, value: Any) -> np.ndarray:
    """A numpy array of the value, in the machine's order of bytes: from DLPack, from numpy's protocols, from lists. Types of 8 and
    16 bits that numpy does not compute with become float32, which holds all their numbers."""
    if is_list(value):
        value = [_shares(each) if hasattr(each, "detach") else each for each in value]
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise RequestError(f"{name}: a masked array, expected an array without masked numbers")
        value = value.data
    try:
        array = value if isinstance(value, np.ndarray) else _shares(value)
    except (RuntimeError, TypeError, ValueError) as reason:
        raise RequestError(f"{name}: {reason}, expected an array of numbers") from reason
    if array.dtype.kind == "V" and array.dtype.name.startswith(("bfloat16", "float8")):
        array = array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        raise RequestError(f"{name}: dtype {array.dtype}, expected an array of numbers")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _exact(name: str, array: np.ndarray, dtype: Any) -> np.ndarray:
    """The array in another type that holds its numbers."""
    with np.errstate(all="ignore"):
        converted = array.astype(dtype)
        same = np.array_equal(converted.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
    whole_numbers = array.dtype.kind in "iu"  # which may have wrapped around
    if not same or (whole_numbers and not (np.array_equal(converted < 0, array < 0) and np.all(np.abs(converted) < 2.0 ** 63))):
        raise RequestError(f"{name}: dtype {array.dtype} with numbers that {np.dtype(dtype)} does not hold, expected them in "
                           f"{np.dtype(dtype)}")
    return converted


def real(name: str, value: Any, weak: Any = np.float64) -> np.ndarray:
    """An array of float32 or float64 with the same numbers. Halves become float32; lists, whole numbers and longer floats have the
    type `weak`."""
    array = as_array(name, value)
    if is_list(value):  # its numbers have no type yet
        return array.astype(weak)
    if array.dtype == np.float16:
        return array.astype(np.float32)
    return array if array.dtype in (np.float32, np.float64) else _exact(name, array, weak)


def whole(name: str, value: Any) -> np.ndarray:
    """An array of int64 with the same numbers."""
    array = as_array(name, value)
    if array.dtype.kind == "f" and array.size > 0:
        raise RequestError(f"{name}: dtype {array.dtype}, expected int64")
    return _exact(name, array, np.int64)


def flags(name: str, value: Any) -> np.ndarray:
    """An array of bool or uint8; whole numbers that are 0 and 1 become bool."""
    array = as_array(name, value)
    if array.dtype in (np.bool_, np.uint8):
        return array
    if array.dtype.kind == "f" or not np.isin(array, (0, 1)).all():
        raise RequestError(f"{name}: dtype {array.dtype}, expected bool, or whole numbers 0 and 1")
    return array.astype(np.bool_)


def together(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Real arrays that belong together. Lists and whole numbers get the type of those that have float32 or float64."""
    types = [real(name, value).dtype for name, value in values.items()
             if not is_list(value) and as_array(name, value).dtype.kind == "f"]
    weak = np.result_type(*types) if types else np.dtype(np.float64)
    return {name: real(name, value, weak) for name, value in values.items()}


_DTYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1", "BOOL": "|b1",
           "F16": "<f2", "U16": "<u2", "U32": "<u4", "U64": "<u8"}
_NAMES = {np.dtype(code): name for name, code in _DTYPES.items()}


def save_tensors(path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray]) -> None:
    """Writes named arrays as a safetensors file."""
    header: dict[str, Any] = {}
    at = 0
    for name, array in tensors.items():
        if array.dtype not in _NAMES:
            raise RequestError(f"{name}: dtype {array.dtype}, expected one of {', '.join(str(dtype) for dtype in _NAMES)}")
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
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
