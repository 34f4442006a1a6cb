"""Sparse transposed Jacobians of operators, as SciPy's CSR arrays.

Rows are inputs and columns are outputs, both in the order [C,H,W]: row i, column j holds ∂y_j/∂x_i. Without `input` (and
`weights`, where an operator has them) all values are 1: the pattern alone. Common keyword arguments:

  in_shape   (C, H, W), (C, H) or (C,); or from input
  input      [C,H,W]: the values at which the derivative is taken
  dtype      "f32" (by default) or "f64"
  threads    that compute the values

Pairs (kernel, stride, dilation) are one number for both axes or (height, width); padding is one number, (height, width), or (top,
bottom, left, right). A wrong request raises bppsa.RequestError.
"""
from __future__ import annotations

from typing import Any, Mapping, Sequence, Union

import scipy.sparse

from . import _commands

_Pair = Union[int, Sequence[int], None]
_Shape = Union[Sequence[int], None]


def _matrix(operator: str, options: Mapping[str, Any]) -> scipy.sparse.csr_array:
    def work(folder: _commands._Folder) -> scipy.sparse.csr_array:
        out = folder.path / "J.npz"
        _commands._run(folder, ["jacobian", operator], {**options, "out": out, "json": True})
        return scipy.sparse.csr_array(scipy.sparse.load_npz(out))

    return _commands.in_folder(work)


def conv2d(*, in_shape: _Shape = None, input: Any = None, out_channels: int | None = None, kernel: _Pair = None,
           stride: _Pair = None, padding: _Pair = None, dilation: _Pair = None, groups: int | None = None, weights: Any = None,
           mask: Any = None, **common: Any) -> scipy.sparse.csr_array:
    """Of a convolution [C·H·W, Co·Ho·Wo]. weights, mask: [Co,C/groups,kh,kw]; False in the mask leaves a weight out.

    conv2d(in_shape=(3, 32, 32), out_channels=64, kernel=3, padding=1)
    """
    return _matrix("conv2d", dict(in_shape=in_shape, input=input, out_channels=out_channels, kernel=kernel, stride=stride,
                                  padding=padding, dilation=dilation, groups=groups, weights=weights, mask=mask, **common))


def linear(*, in_shape: _Shape = None, input: Any = None, out_channels: int | None = None, weights: Any = None, mask: Any = None,
           **common: Any) -> scipy.sparse.csr_array:
    """Of a linear operator [C·H·W, Co]. weights, mask: [Co,C·H·W]."""
    return _matrix("linear", dict(in_shape=in_shape, input=input, out_channels=out_channels, weights=weights, mask=mask, **common))


def relu(*, in_shape: _Shape = None, input: Any = None, **common: Any) -> scipy.sparse.csr_array:
    """Of a ReLU, diagonal [C·H·W, C·H·W]."""
    return _matrix("relu", dict(in_shape=in_shape, input=input, **common))


def leaky_relu(*, in_shape: _Shape = None, input: Any = None, slope: float | None = None, **common: Any) -> scipy.sparse.csr_array:
    """Of a leaky ReLU, diagonal; slope: of inputs below 0."""
    return _matrix("leaky_relu", dict(in_shape=in_shape, input=input, slope=slope, **common))


def tanh(*, in_shape: _Shape = None, input: Any = None, **common: Any) -> scipy.sparse.csr_array:
    """Of tanh, diagonal [C·H·W, C·H·W]."""
    return _matrix("tanh", dict(in_shape=in_shape, input=input, **common))


def sigmoid(*, in_shape: _Shape = None, input: Any = None, **common: Any) -> scipy.sparse.csr_array:
    """Of a sigmoid, diagonal [C·H·W, C·H·W]."""
    return _matrix("sigmoid", dict(in_shape=in_shape, input=input, **common))


def relu6(*, in_shape: _Shape = None, input: Any = None, **common: Any) -> scipy.sparse.csr_array:
    """Of ReLU6, min(max(x, 0), 6), diagonal [C·H·W, C·H·W]."""
    return _matrix("relu6", dict(in_shape=in_shape, input=input, **common))


def hardsigmoid(*, in_shape: _Shape = None, input: Any = None, **common: Any) -> scipy.sparse.csr_array:
    """Of the hard sigmoid, relu6(x + 3) / 6, diagonal [C·H·W, C·H·W]."""
    return _matrix("hardsigmoid", dict(in_shape=in_shape, input=input, **common))


def hardswish(*, in_shape: _Shape = None, input: Any = None, **common: Any) -> scipy.sparse.csr_array:
    """Of the hard swish, x relu6(x + 3) / 6, diagonal [C·H·W, C·H·W]."""
    return _matrix("hardswish", dict(in_shape=in_shape, input=input, **common))


def silu(*, in_shape: _Shape = None, input: Any = None, **common: Any) -> scipy.sparse.csr_array:
    """Of SiLU, x times the logistic function, diagonal [C·H·W, C·H·W]."""
    return _matrix("silu", dict(in_shape=in_shape, input=input, **common))


def gelu(*, in_shape: _Shape = None, input: Any = None, approximate: str | None = None,
         **common: Any) -> scipy.sparse.csr_array:
    """Of GELU, diagonal [C·H·W, C·H·W]. approximate: "none", by the normal distribution, or "tanh"."""
    return _matrix("gelu", dict(in_shape=in_shape, input=input, approximate=approximate, **common))


def adaptive_avgpool2d(*, in_shape: _Shape = None, input: Any = None, size: _Pair = None,
                       **common: Any) -> scipy.sparse.csr_array:
    """Of an average pool with an output of size (height, width) [C·H·W, C·Ho·Wo]."""
    return _matrix("adaptive_avgpool2d", dict(in_shape=in_shape, input=input, size=size, **common))


def global_avgpool(*, in_shape: _Shape = None, input: Any = None, **common: Any) -> scipy.sparse.csr_array:
    """Of the mean over all positions [C·H·W, C]."""
    return _matrix("global_avgpool", dict(in_shape=in_shape, input=input, **common))


def batchnorm2d(*, in_shape: _Shape = None, input: Any = None, weights: Any = None, **common: Any) -> scipy.sparse.csr_array:
    """Of a batch norm with given statistics, diagonal. weights: weight / sqrt(running_var + eps) of each channel [C]."""
    return _matrix("batchnorm2d", dict(in_shape=in_shape, input=input, weights=weights, **common))


def dropout(*, in_shape: _Shape = None, input: Any = None, **common: Any) -> scipy.sparse.csr_array:
    """Of dropout that leaves nothing out, the identity [C·H·W, C·H·W]."""
    return _matrix("dropout", dict(in_shape=in_shape, input=input, **common))


def maxpool2d(*, in_shape: _Shape = None, input: Any = None, kernel: _Pair = None, stride: _Pair = None, padding: _Pair = None,
              dilation: _Pair = None, ceil_mode: bool = False, pattern: str | None = None, **common: Any) -> scipy.sparse.csr_array:
    """Of a max-pool [C·H·W, C·Ho·Wo]. pattern: "window", an entry for every input of a window, or "argmax"."""
    return _matrix("maxpool2d", dict(in_shape=in_shape, input=input, kernel=kernel, stride=stride, padding=padding,
                                     dilation=dilation, ceil_mode=ceil_mode, pattern=pattern, **common))


def avgpool2d(*, in_shape: _Shape = None, input: Any = None, kernel: _Pair = None, stride: _Pair = None, padding: _Pair = None,
              ceil_mode: bool = False, exclude_pad: bool = False, **common: Any) -> scipy.sparse.csr_array:
    """Of an average pool [C·H·W, C·Ho·Wo]. exclude_pad: padding does not count in the divisor."""
    return _matrix("avgpool2d", dict(in_shape=in_shape, input=input, kernel=kernel, stride=stride, padding=padding,
                                     ceil_mode=ceil_mode, exclude_pad=exclude_pad, **common))


def flatten(*, in_shape: _Shape = None, input: Any = None, **common: Any) -> scipy.sparse.csr_array:
    """Of flatten, the identity [C·H·W, C·H·W]."""
    return _matrix("flatten", dict(in_shape=in_shape, input=input, **common))


def rnn(*, weights: Any, input: Any, h0: Any = None, nonlinearity: str | None = None, **common: Any) -> scipy.sparse.csr_array:
    """Of one step of an RNN's first layer, h0 to h1 [H,H]. weights: as of bppsa.grad. input: [I]. h0: [H], zeros by default."""
    return _matrix("rnn", dict(weights=weights, input=input, h0=h0, nonlinearity=nonlinearity, **common))


def gru(*, weights: Any, input: Any, h0: Any = None, **common: Any) -> scipy.sparse.csr_array:
    """Of one step of a GRU's first layer, h0 to h1 [H,H]. weights: as of bppsa.grad. input: [I]. h0: [H], zeros by default."""
    return _matrix("gru", dict(weights=weights, input=input, h0=h0, **common))


def lstm(*, weights: Any, input: Any, h0: Any = None, c0: Any = None, **common: Any) -> scipy.sparse.csr_array:
    """Of one step of an LSTM's first layer, (h0, c0) to (h1, c1) [2H,2H]; h is in front of c. weights: as of bppsa.grad. input:
    [I]. h0, c0: [H], zeros by default."""
    return _matrix("lstm", dict(weights=weights, input=input, h0=h0, c0=c0, **common))
