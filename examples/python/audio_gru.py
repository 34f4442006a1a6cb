#!/usr/bin/env python3
"""A GRU of PyTorch's interface on audio: eleven synthetic instruments, MFCC features, Adam.

    python3 examples/python/audio_gru.py [--files 44] [--epochs 5] [--torch]

--torch takes torch.nn.GRU instead: the losses are the same, the time is not.
"""
import argparse
import os
import tempfile
import time

import numpy as np
import torch

import bppsa


def features(files):
    """Features [N,T,I] and labels [N] of generated WAV files."""
    with tempfile.TemporaryDirectory() as folder:
        x, y, wav = (os.path.join(folder, name) for name in ("X.npy", "Y.npy", "wav"))
        bppsa.run("data", "instruments", files=files, seed=1, out=wav)
        bppsa.run("data", "irmas", wav, set="S", out_x=x, out_y=y)
        return torch.from_numpy(np.load(x)).float(), torch.from_numpy(np.load(y))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=44)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--torch", action="store_true")
    options = parser.parse_args()
    x, y = features(options.files)
    torch.manual_seed(0)
    layer = (torch.nn if options.torch else bppsa.torch).GRU(x.shape[2], 32, batch_first=True)
    head = torch.nn.Linear(32, 11)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=3e-3)
    begin = time.perf_counter()
    for epoch in range(options.epochs):
        total = 0.0
        for batch in torch.randperm(len(x)).split(16):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(head(layer(x[batch])[0][:, -1]), y[batch])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        print(f"epoch {epoch + 1}  loss {total / len(x):.4f}  {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
