#!/usr/bin/env python3
"""All rivals by script in one process, which imports PyTorch and JAX once: the methods of recurrent.py, jax_rnn.py,
flashrnn_cuda.py, torch_scan.py and torchrl_triton.py, which say what they are.

    build/cuda/bppsa bench lstm --device cuda --rivals bench/rivals/libraries.py [--seq-len 500 --batch 64 --hidden 128]

What is not installed, or cannot run here, has a row that says so. --time-limit cuts the list off at its end, so that the first
methods are one of each kind, those that begin soon in front, and the last ones those that compile for longest.
"""
import flashrnn_cuda
import jax_rnn
import recurrent
import torch_scan
import torchrl_triton

LATER = ["torchrl_triton_tf32x3", "jax_scan_2", "jax_scan_4", "jax_scan_8", "jax_associative_scan", "torch_scan_aot_eager",
         "torch_scan_inductor"]
FOUND = {name: method for module in (recurrent, jax_rnn, torch_scan, torchrl_triton, flashrnn_cuda)
         for name, method in module.METHODS.items()}
METHODS = {name: FOUND[name] for name in [name for name in FOUND if name not in LATER] + LATER}
if __name__ == "__main__":
    recurrent.serve(__doc__, METHODS, "torch", "jax", "torchrl", "flashrnn", steps=recurrent.STEPS)
