#!/usr/bin/env python3
"""torchrl's Triton kernels in the rounds of `bench gru` and `bench lstm`, as bench/rivals/recurrent.py takes part in them.

    build/cuda/bppsa bench gru --device cuda --rivals bench/rivals/torchrl_triton.py [--seq-len 500 --batch 64 --hidden 128]

They are what torchrl's GRUModule and LSTMModule with recurrent_backend="triton" call: one kernel runs all steps of a pass up to
some 256 units, and Triton tunes it at its first call. They are on a GPU alone, in float32, and read the batch first: the input is
turned before the passes are timed. The package is pip's torchrl (0.14 has been looked at). The methods:

  torchrl_triton         products in float32 (input_precision="ieee")
  torchrl_triton_tf32x3  products of three parts in TF32 ("tf32x3"), which have nearly float32's accuracy
"""
import functools

import recurrent


class Triton(recurrent.Autograd):
    time, devices = 1, ["cuda"]

    def __init__(self, precision, point, device):
        kernels = recurrent.need("torchrl.modules.tensordict_module._rnn_triton", "torchrl")
        if point["model"] == "rnn" or point["dtype"] != "f32":
            raise recurrent.Refused("left out: torchrl's kernels are of GRU and LSTM in float32")
        if device not in self.devices:
            raise recurrent.Refused("left out: torchrl's kernels run on a GPU alone")
        self.kernel = functools.partial(getattr(kernels, point["model"] + "_triton"), input_precision=precision)
        T, B, H = (point[key] for key in ("seq_len", "batch", "hidden"))
        # What a sequence begins with and where it begins anew, of every step: zeros, and nowhere.
        self.begins = [recurrent.torch.zeros((B, T, H), device=device)] * (2 if point["model"] == "lstm" else 1)
        self.resets = recurrent.torch.zeros((B, T), dtype=recurrent.torch.bool, device=device)
        super().__init__(point, device)

    def layer(self, x, *w):
        return self.kernel(x, *self.begins, *w, self.resets)[0]


METHODS = {"torchrl_triton": ("PyTorch", functools.partial(Triton, "ieee")),
           "torchrl_triton_tf32x3": ("PyTorch", functools.partial(Triton, "tf32x3"))}
if __name__ == "__main__":
    recurrent.serve(__doc__, METHODS, "torch", "torchrl")
