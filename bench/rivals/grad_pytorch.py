#!/usr/bin/env python3
"""Compares `bppsa grad rnn` or `bppsa grad gru` with PyTorch, tensor by tensor.

    bench/rivals/grad_pytorch.py build/cpu/bppsa [rnn|gru] [--quick]

PyTorch makes the weights, input, labels and h0 of every case. PyTorch's gradients (nn.RNN or nn.GRU, nn.Linear, cross_entropy,
float64 autograd on the values as rounded to the dtype) are the reference. The gradients of every backward method of the program
must have a normalised residual ||g - ref|| / (||ref|| eps sqrt(T)) below 30. With one or two hidden units a weight gradient is a
handful of sums that may cancel to almost nothing, and then no arithmetic of that precision can meet the bound. So for H <= 2 the
bound is at least twice the largest change of PyTorch's own gradient when every hidden state changes by one eps at random, over
eight trials; the factor 2 is there because both sides are rounded. The last line counts the comparisons that needed this.

Exit code 0: all within bounds; 1: not; 77: PyTorch is not installed.
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

METHODS = [
    ["--backward", "bp"],
    ["--algorithm", "auto"],
    ["--algorithm", "linear"],
    ["--algorithm", "blelloch"],
    ["--up-levels", "1"],
    ["--up-levels", "3"],
    ["--algorithm", "chunked"],
    ["--chunks", "2"],
    ["--chunks", "7"],
]
NAMES = {np.dtype("float32"): "F32", np.dtype("float64"): "F64"}


def save_safetensors(path, tensors):
    header, offset = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def load_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    dtypes = {"F32": np.float32, "F64": np.float64}
    return {
        name: np.frombuffer(data[slice(*(8 + size + at for at in t["data_offsets"]))], dtypes[t["dtype"]]).reshape(t["shape"])
        for name, t in header.items()
    }


class Network(torch.nn.Module):
    def __init__(self, case):
        super().__init__()
        self.model = case["model"]
        if self.model == "rnn":
            self.rnn = torch.nn.RNN(case["I"], case["H"], case["L"], nonlinearity=case["f"])
        else:
            self.gru = torch.nn.GRU(case["I"], case["H"], case["L"])
        self.linear = torch.nn.Linear(case["H"], case["C"])

    @property
    def layers(self):
        return self.rnn if self.model == "rnn" else self.gru

    def cell(self, px, ph, h):
        if self.model == "rnn":
            return (torch.tanh if self.rnn.nonlinearity == "tanh" else torch.relu)(px + ph)
        (xr, xz, xn), (hr, hz, hn) = px.chunk(3, -1), ph.chunk(3, -1)
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        n = torch.tanh(xn + r * hn)
        return n + z * (h - n)

    def states(self, x, h0, eps):
        """Computes the layers step by step and changes every hidden state by one eps at random."""
        for layer, (w_ih, w_hh, b_ih, b_hh) in enumerate(self.layers.all_weights):
            h, out = h0[layer], []
            for step in x:
                h = self.cell(step @ w_ih.T + b_ih, h @ w_hh.T + b_hh, h)
                h = h * (1 + eps * (2 * torch.randint(2, h.shape) - 1).to(h.dtype))
                out.append(h)
            x = torch.stack(out)
        return x

    def loss(self, x, h0, labels, every, eps):
        h = self.layers(x, h0)[0] if eps is None else self.states(x, h0, eps)
        logits = self.linear(h if every else h[-1])
        return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def gradients(net, x, h0, labels, every, eps=None):
    x, h0 = x.clone().requires_grad_(), h0.clone().requires_grad_()
    net.zero_grad()
    loss = net.loss(x, h0, labels, every, eps)
    loss.backward()
    out = {name: p.grad.numpy().copy() for name, p in net.named_parameters()}
    out.update(input=x.grad.numpy().copy(), h0=h0.grad.numpy().copy(), loss=np.asarray(loss.item()))
    return out


def residual(got, reference, eps, tiny, steps):
    difference = float(np.linalg.norm(got.astype(np.float64) - reference))
    norm = float(np.linalg.norm(reference))
    if norm < tiny / eps:
        return difference / (tiny * math.sqrt(steps))
    return difference / (norm * eps * math.sqrt(steps))


def run_case(program, case, folder):
    torch.manual_seed(case["seed"])
    every, dtype = case["loss"] == "all", getattr(torch, case["dtype"])
    net = Network(case).to(dtype)
    if case["init"] == "orthogonal":
        for name, p in net.layers.named_parameters():
            if "weight_hh" in name:
                for block in p.detach().split(case["H"]):
                    torch.nn.init.orthogonal_(block)
    T, B = case["T"], case["B"]
    x = torch.randn(T, B, case["I"], dtype=dtype)
    h0 = 0.5 * torch.randn(case["L"], B, case["H"], dtype=dtype)
    labels = torch.randint(case["C"], (T, B) if every else (B,))
    saved = {k: v.detach().numpy().copy() for k, v in net.named_parameters()}
    reference = gradients(net.double(), x.double(), h0.double(), labels, every)
    info = np.finfo(case["dtype"])
    widened = {name: 30.0 for name in reference}
    for _ in range(8 if case["H"] <= 2 else 0):
        nudged = gradients(net, x.double(), h0.double(), labels, every, float(info.eps))
        for name in reference:
            widened[name] = max(widened[name], 2 * residual(nudged[name], reference[name], float(info.eps), float(info.tiny), T))
    path = lambda name: os.path.join(folder, name)
    save_safetensors(path("w.safetensors"), saved)
    np.save(path("x.npy"), x.numpy())
    np.save(path("y.npy"), labels.numpy())
    np.save(path("h.npy"), h0.numpy())
    worst, beyond = 0.0, 0
    for method in METHODS:
        command = [program, "grad", case["model"], "--weights", path("w.safetensors"), "--input", path("x.npy"),
                   "--labels", path("y.npy"), "--h0", path("h.npy"), "--loss", case["loss"], "--layers", str(case["L"]),
                   "--out", path("g.safetensors")] + method
        command += ["--nonlinearity", case["f"]] if case["model"] == "rnn" else []
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        got = load_safetensors(path("g.safetensors"))
        assert set(got) == set(reference), (set(got), set(reference))
        for name in reference:
            r = residual(got[name], reference[name], float(info.eps), float(info.tiny), T)
            bound = widened[name]
            beyond += r >= 30 and r < bound
            if not r < bound and r != 0:
                print(f"FAILED {case} {' '.join(method)}: {name}: residual {r:.1f}, expected below {bound:.1f}")
                return math.inf, beyond
            worst = max(worst, min(r, 30.0))
    return worst, beyond


def cases(model, quick):
    shapes = [(1, 3, 5), (2, 1, 1), (3, 4, 2), (10, 16, 20), (50, 2, 7), (64, 5, 20), (100, 3, 64), (257, 2, 33), (1000, 2, 20),
              (2000, 1, 10), (1999, 2, 5), (31, 2, 200), (300, 1, 200), (17, 33, 12)]
    seed = 0
    for T, B, H in shapes[:6] if quick else shapes:
        for layers in (1, 2, 3):
            for loss in ("last", "all"):
                for init in ("default", "orthogonal"):
                    for dtype in ("float32", "float64"):
                        seed += 1
                        yield dict(model=model, T=T, B=B, H=H, L=layers, I=1 + seed % 3, C=10 if seed % 2 else 4, loss=loss,
                                   init=init, dtype=dtype, f="relu" if seed % 5 == 0 and T <= 100 else "tanh", seed=seed)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    worst, failed, count, widened = 0.0, 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for case in cases("gru" if "gru" in sys.argv else "rnn", "--quick" in sys.argv):
            r, wide = run_case(os.path.abspath(sys.argv[1]), case, folder)
            widened += wide
            failed += r == math.inf
            worst = worst if r == math.inf else max(worst, r)
            count += 1
    print(f"PyTorch {torch.__version__}: {count - failed} of {count} cases x {len(METHODS)} methods within bounds, "
          f"largest residual {worst:.2f}, {widened} comparisons at H <= 2 within the widened bound only")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
