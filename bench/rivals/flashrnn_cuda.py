#!/usr/bin/env python3
"""FlashRNN's CUDA kernels in the rounds of `bench rnn`, `gru` and `lstm`, as bench/rivals/recurrent.py takes part in them.

    TORCH_EXTENSIONS_DIR=DIRECTORY build/cuda/bppsa bench lstm --device cuda --rivals bench/rivals/flashrnn_cuda.py

The package is pip's flashrnn (1.0.8 has been looked at). It compiles its kernels for a shape when they are first called, for
minutes, and needs a GPU for that: so the script takes part where TORCH_EXTENSIONS_DIR has kernels that were made beforehand (call
the package once with the shape), and is left out where it has none. The input's products are PyTorch's, the batch comes first:
the input is turned before the passes are timed. The methods:

  flashrnn_fused  backend="cuda_fused": all steps in one kernel; RNN with tanh, and LSTM: of a GRU the package has none
  flashrnn        backend="cuda": products and gates by turns
"""
import functools
import glob
import os

import recurrent

FUNCTIONS = {"rnn": "elman", "gru": "gru", "lstm": "lstm"}


class Flash(recurrent.Autograd):
    time, devices = 1, ["cuda"]

    def __init__(self, backend, point, device):
        package = recurrent.need("flashrnn", "flashrnn")
        if device not in self.devices:
            raise recurrent.Refused("left out: FlashRNN's kernels run on a GPU alone")
        if point.get("nonlinearity") == "relu" or point["dtype"] != "f32":
            raise recurrent.Refused("left out: FlashRNN's kernels are of tanh, and not in float64")
        if backend == "cuda_fused" and point["model"] == "gru":
            raise recurrent.Refused("left out: FlashRNN has no fused kernel of a GRU")
        folder = os.environ.get("TORCH_EXTENSIONS_DIR")
        if not folder or not glob.glob(os.path.join(folder, "**", "*.so"), recursive=True):
            raise recurrent.Refused("left out: needs FlashRNN's kernels, compiled beforehand, below TORCH_EXTENSIONS_DIR")
        self.run = functools.partial(package.flashrnn, function=FUNCTIONS[point["model"]], backend=backend, dtype="float32")
        super().__init__(point, device)

    def layer(self, x, w_ih, w_hh, b_ih, b_hh):
        hidden = w_hh.shape[1]
        matrix, biases = w_hh.view(-1, 1, hidden, hidden), (b_ih + b_hh).view(-1, 1, hidden)
        if self.point["model"] == "gru":  # gates of the matrix: n, r, z; biases: n's inner one, r, z, n's outer one
            matrix = matrix.roll(1, 0)
            biases = recurrent.torch.cat([b_hh[2 * hidden :].view(1, 1, hidden), biases[:2], b_ih[2 * hidden :].view(1, 1, hidden)])
        inputs = (x @ w_ih.T).unflatten(2, (-1, 1, hidden))
        return self.run(inputs, matrix, biases)[0][0, :, :, 0]


METHODS = {"flashrnn_fused": ("PyTorch", functools.partial(Flash, "cuda_fused")),
           "flashrnn": ("PyTorch", functools.partial(Flash, "cuda"))}
if __name__ == "__main__":
    recurrent.serve(__doc__, METHODS, "torch", "flashrnn")
