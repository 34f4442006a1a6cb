#!/usr/bin/env python3
"""Compares what `bppsa flops` counts of every layer of the built-in networks on images with PyTorch's and fvcore's counts.

    bench/rivals/flops_layers_pytorch.py build/cpu/bppsa [--json FILE]

image_models.py defines the networks as torchvision has them. Counted without padding or pruning, every convolution and linear
operator must have

  - forward, the FLOPs of torch.utils.flop_counter, and where fvcore is installed twice its count: it counts multiply-adds;
  - backward, over all layers, those of torch.utils.flop_counter. One rule differs: for the gradient of the weights of a convolution
    with G groups PyTorch counts the products between all channels, G times those that there are: these are compared by that rule.

The numbers of parameters must be the modules' own. Batch norms, pools and activations, which PyTorch does not count, and of which
fvcore counts batch norms alone, are the rows that are left out here. Biases are in no count.

Exit code 0: all counts are equal; 1: not; 77: PyTorch has no flop_counter.
"""
import argparse
import json
import subprocess
import sys

try:
    import torch
    from torch.utils.flop_counter import FlopCounterMode
except ImportError as missing:
    print(missing)
    sys.exit(77)
try:
    from fvcore.nn import FlopCountAnalysis
except ImportError:
    FlopCountAnalysis = None

from image_models import MODELS


def by_pytorch(model, x):
    """FLOPs of each module forward, and those of the whole backward pass."""
    with FlopCounterMode(display=False) as forward:
        model(x)
    with FlopCounterMode(display=False) as both:
        model(x).sum().backward()
    prefix = type(model).__name__ + "."
    modules = {name[len(prefix):]: sum(counts.values()) for name, counts in forward.get_flop_counts().items()
               if name.startswith(prefix)}
    return modules, both.get_total_flops() - forward.get_total_flops()


def compare(name, program):
    """A row of results: what was counted, and how many layers agree."""
    make, extent = MODELS[name]
    with torch.device("meta"):
        model, x = make().eval(), torch.empty(1, 3, extent, extent)
    modules, backward = by_pytorch(model, x)
    found = json.loads(subprocess.run([program, "flops", name, "--json"], check=True, capture_output=True, text=True).stdout)
    weighted = [row for row in found["per_layer"] if row["class"] == "matmul"]
    groups = {path: module.groups for path, module in model.named_modules() if isinstance(module, torch.nn.Conv2d)}
    ours = sum(row["to_input_dense"] + row["to_weights_dense"] * groups.get(row["name"], 1) for row in weighted)
    row = {"network": name, "layers": len(weighted), "macs": found["total"]["macs_dense"],
           "forward_equal": sum(modules.get(each["name"]) == each["forward_dense"] for each in weighted),
           "forward_flops": sum(each["forward_dense"] for each in weighted), "backward_flops_by_pytorch": backward,
           "backward_equal": ours == backward,
           "parameters_equal": found["total"]["parameters"] == sum(each.numel() for each in model.parameters())}
    if FlopCountAnalysis is not None:
        counts = FlopCountAnalysis(make().eval(), torch.zeros(1, 3, extent, extent)).unsupported_ops_warnings(False).by_module()
        row["fvcore_equal"] = sum(2 * counts.get(each["name"], -1) == each["forward_dense"] for each in weighted)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--json", help="writes the results there")
    options = parser.parse_args()
    rows, failed = [], False
    for name in MODELS:
        row = compare(name, options.program)
        rows.append(row)
        good = row["backward_equal"] and row["parameters_equal"] and row["forward_equal"] == row["layers"] == row.get(
            "fvcore_equal", row["layers"])
        failed = failed or not good
        print(f"{name}: {row['forward_equal']} of {row['layers']} layers equal, {row['macs']:,} multiply-adds, backward and "
              f"parameters {'equal' if row['backward_equal'] and row['parameters_equal'] else 'DIFFERENT'}"
              + (f", fvcore {row['fvcore_equal']} equal" if "fvcore_equal" in row else ""))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "fvcore": FlopCountAnalysis is not None, "networks": rows}, file, indent=1)
            file.write("\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
