#!/usr/bin/env python3
"""PyTorch's scan over time in the rounds of `bench rnn`, `gru` and `lstm`, as bench/rivals/recurrent.py takes part in them.

    build/cpu/bppsa bench gru --rivals bench/rivals/torch_scan.py [--seq-len 1000 --batch 16 --hidden 20]

torch._higher_order_ops.scan runs one step of a cell after the other, and autograd differentiates it. The input's products stand
outside the scan. The methods:

  torch_scan            as it is called without a compiler: each pass traces the step anew
  torch_scan_aot_eager  torch.compile with the backend "aot_eager": both passes are traced once, operators run one by one
  torch_scan_inductor   torch.compile's own compiler, which makes a loop of it; where it refuses, the row has its words
"""
import functools

import recurrent
from cells import cell_of, torch_functions


class Scan(recurrent.Autograd):
    def __init__(self, backend, point, device):
        torch = recurrent.torch
        try:
            from torch._higher_order_ops.scan import scan
        except ImportError as missing:
            raise recurrent.Refused(f"left out: needs PyTorch >= 2.15, whose scan has gradients, this is {torch.__version__}"
                                    ) from missing
        self.scan, self.cell = scan, cell_of(torch_functions(torch), point["model"], point.get("nonlinearity"))
        if backend:
            torch._dynamo.config.capture_scalar_outputs = True  # the inductor's loop counts its steps in one
            torch._dynamo.reset()  # graphs of other points, whose number is limited
            self.layer = torch.compile(self.layer, backend=backend)
        super().__init__(point, device)

    def layer(self, x, *w):
        hidden = w[1].shape[1]

        def advance(h, a):
            new = self.cell.step(w, a, h)
            return new, new.clone()  # the scan's results may not share memory

        zero = x.new_zeros((x.shape[1], self.cell.width * hidden))
        return self.scan(advance, zero, self.cell.take_input(w, x))[1][..., :hidden]


METHODS = {"torch_scan": ("PyTorch", functools.partial(Scan, None)),
           "torch_scan_aot_eager": ("PyTorch", functools.partial(Scan, "aot_eager")),
           "torch_scan_inductor": ("PyTorch", functools.partial(Scan, "inductor"))}
if __name__ == "__main__":
    recurrent.serve(__doc__, METHODS, "torch")
