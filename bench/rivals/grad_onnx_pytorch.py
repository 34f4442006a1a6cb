#!/usr/bin/env python3
"""Compares the gradients of ONNX models with PyTorch's own of the modules that they were exported from.

    bench/rivals/grad_onnx_pytorch.py build/cpu/bppsa [--json FILE]

Models: those of image_models.py on small images but VGG-16, which has no pool of a smaller image in ONNX, and small ones with the
other operators that are read. Each is exported by
torch.onnx.export, by both of its exporters where PyTorch has them (the one by torch.export needs the packages onnx and onnxscript),
with random weights and running statistics. `bppsa grad MODEL.onnx --dtype f64` and torch.autograd in float64 then compute the loss
of one batch and the gradients of the input and of every parameter of the module that the model still has: exporters fold batch
norms into convolutions, whose own gradients are others. The residual of each is |g - ref| / (|ref| eps sqrt(n)) with the eps of
float32, in which the model's weights are stored; it must be below 30. A gradient that is 0 but for rounding is so beside the
largest one. And `flops` must count as many multiply-adds as of the
module's hooks.

Exit code 0: all agree; 1: not; 77: PyTorch cannot export.
"""
import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

try:
    import torch
    from torch import nn
    import torch.onnx
except ImportError as missing:
    print(missing)
    sys.exit(77)

from image_models import MODELS

LIMIT = 30


class Gates(nn.Module):
    """Squeeze and excitation, gelu, silu, hard functions, channels that part and meet, depthwise convolutions."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.squeeze, self.excite = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.silu, self.swish, self.gelu = nn.SiLU(), nn.Hardswish(), nn.GELU()
        self.gate = nn.Hardsigmoid()
        self.last = nn.Conv2d(8, 6, (1, 3), padding=(0, 1))
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        x = self.silu(self.stem(x))
        y = self.swish(self.depthwise(x)) + x
        s = self.gate(self.excite(torch.relu(self.squeeze(nn.functional.adaptive_avg_pool2d(y, 1)))))
        left, right = torch.chunk(y * s, 2, 1)
        y = self.gelu(self.last(torch.cat([right, torch.tanh(left)], 1)))
        return self.head(y.mean((2, 3)))


class Lines(nn.Module):
    """Convolutions in a line, layer norms, softmax, axes that move, a view."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 6, 3, padding=1)
        self.norm = nn.LayerNorm(10)
        self.mix = nn.Conv1d(10, 5, 1, bias=False)
        self.head = nn.Linear(30, 4)

    def forward(self, x):
        x = self.norm(nn.functional.leaky_relu(self.conv(x), 0.2))
        x = torch.softmax(self.mix(x.transpose(1, 2)), 2)
        return self.head(x.reshape(x.size(0), -1))


class Pools(nn.Module):
    """Pools with padding, ceilings and strides, and a head without a flatten in front."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 5, stride=1, padding=2, dilation=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.one, self.two = nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 2, ceil_mode=True, count_include_pad=False)
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6 * 16, 7)

    def forward(self, x):
        x = self.two(self.one(nn.functional.relu6(self.norm(self.conv(x)))))
        return self.head(self.drop(torch.flatten(x, 1)))


def models():
    shapes = {"resnet18": 64, "resnet50": 64, "mobilenetv2": 64, "resnet20": 16}
    for name, extent in shapes.items():
        yield name, MODELS[name][0], (3, extent, extent)
    yield "gates", Gates, (3, 12, 12)
    yield "lines", Lines, (4, 10)
    yield "pools", Pools, (3, 15, 15)


def randomise(model):
    """Batch norms with statistics of their own, and weights whose outputs neither vanish nor explode."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
            nn.init.uniform_(module.running_mean, -0.3, 0.3)
            nn.init.uniform_(module.running_var, 0.5, 1.5)


def exporters():
    newer = "dynamo" in inspect.signature(torch.onnx.export).parameters
    yield "script", {"opset_version": 17, **({"dynamo": False} if newer else {})}
    if newer:
        yield "export", {"dynamo": True}


def macs_of(model, x):
    """Multiply-adds of convolutions and linear operators, by hooks."""
    total = []

    def count(module, _, out):
        fan = module.weight[0].numel()
        total.append(fan * out.numel())
    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, (nn.Conv1d, nn.Conv2d, nn.Linear))]
    model(x)
    for hook in hooks:
        hook.remove()
    return sum(total)


def residual(found, wanted, largest, depth):
    scale = max(np.linalg.norm(wanted), 1e-9 * largest) * np.finfo(np.float32).eps * np.sqrt(depth)
    return float(np.linalg.norm(found - wanted) / scale)


def compare(name, make, shape, exporter, options, program, folder):
    torch.manual_seed(1)
    model = make().eval()
    randomise(model)
    path, batch = os.path.join(folder, "model.onnx"), 3
    x = torch.randn(batch, *shape)
    torch.onnx.export(model, (x,), path, input_names=["x"], **options)
    model = model.double()
    x = x.double().requires_grad_(True)
    logits = model(x)
    labels = torch.arange(batch) % logits.shape[1]
    loss = nn.functional.cross_entropy(logits, labels)
    loss.backward()
    image = x.detach().numpy().reshape(batch, shape[0], *((1,) if len(shape) == 2 else ()), *shape[1:])
    np.save(os.path.join(folder, "x.npy"), image)
    np.save(os.path.join(folder, "y.npy"), labels.numpy())
    files = {key: os.path.join(folder, key) for key in ("x.npy", "y.npy", "g.safetensors")}
    subprocess.run([program, "grad", path, "--input", files["x.npy"], "--labels", files["y.npy"], "--dtype", "f64", "--backward",
                    "bp", "--out", files["g.safetensors"], "--json"], check=True, capture_output=True)
    with open(files["g.safetensors"], "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__", None)
    found = {key: np.frombuffer(data[t["data_offsets"][0]:t["data_offsets"][1]], "f8").reshape(t["shape"])
             for key, t in header.items()}
    norms = {key for key, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)}
    folded = any(key + ".weight" not in found for key in norms)
    wanted = {"input": x.grad.numpy(), "loss": loss.detach().numpy()}
    for key, parameter in model.named_parameters():
        stem = key.rsplit(".", 1)[0]
        if not folded or (stem not in norms and isinstance(model.get_submodule(stem), nn.Linear)) or not norms:
            wanted[key] = parameter.grad.numpy()
    depth = len(list(model.modules()))
    largest = max(np.linalg.norm(value) for value in wanted.values())
    residuals = {key: residual(found[key].reshape(value.shape), value, largest, depth) for key, value in wanted.items()}
    counted = json.loads(subprocess.run([program, "flops", path, "--up-levels", "none", "--json"], check=True, capture_output=True,
                                        text=True).stdout)
    macs = macs_of(model, x.detach()[:1])
    worst = max(residuals, key=residuals.get)
    return {"model": name, "exporter": exporter, "layers": len(counted["per_layer"]), "batch_norms_folded": folded,
            "compared": len(wanted), "residual": residuals[worst], "worst": worst, "macs": macs,
            "macs_equal": counted["total"]["macs_dense"] == macs}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--json", help="writes the results there")
    options = parser.parse_args()
    rows, failed = [], False
    for exporter, arguments in exporters():
        for name, make, shape in models():
            with tempfile.TemporaryDirectory() as folder:
                row = compare(name, make, shape, exporter, arguments, options.program, folder)
            rows.append(row)
            good = row["residual"] < LIMIT and row["macs_equal"]
            failed = failed or not good
            print(f"{name} ({exporter}): {row['layers']} layers, {row['compared']} tensors, largest residual {row['residual']:.3g} "
                  f"({row['worst']}), multiply-adds {'equal' if row['macs_equal'] else 'DIFFERENT'}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "networks": rows}, file, indent=1)
            file.write("\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
