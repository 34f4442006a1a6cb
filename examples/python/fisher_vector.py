#!/usr/bin/env python3
"""Natural gradients of a GRU by Fisher-vector products: F v without F, and F⁻¹ g by conjugate gradients.

    F v = Jᵀ D J v      J: of the logits in the weights, D = diag(p) - p pᵀ, p = softmax(logits)

J v is a derivative along a direction (forward mode), Jᵀ one backward: two passes each, whatever the number of weights.

    python3 examples/python/fisher_vector.py [--steps 10] [--length 100]

Needs PyTorch 2.5 or newer.
"""
import argparse
import sys

import torch

import bppsa


def fisher_product(function, weights, vector, damping):
    """(F + damping) v. function: weights to logits [B,K]; weights, vector: dicts of tensors."""
    logits, along = torch.func.jvp(function, (weights,), (vector,))
    p = logits.softmax(1)
    curved = p * (along - (p * along).sum(1, keepdim=True)) / len(logits)
    product, = torch.func.vjp(function, weights)[1](curved)
    return {name: product[name] + damping * vector[name] for name in vector}


def dot(one, other):
    return sum((one[name] * other[name]).sum() for name in one)


def solve(product, right, iterations):
    """Conjugate gradients from zero."""
    found = {name: torch.zeros_like(part) for name, part in right.items()}
    rest, direction = dict(right), dict(right)
    size = dot(rest, rest)
    for _ in range(iterations):
        curved = product(direction)
        step = size / dot(direction, curved)
        found = {name: found[name] + step * direction[name] for name in found}
        rest = {name: rest[name] - step * curved[name] for name in rest}
        size, before = dot(rest, rest), size
        direction = {name: rest[name] + size / before * direction[name] for name in rest}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--length", type=int, default=100)
    options = parser.parse_args()
    if not hasattr(torch.library, "register_vmap"):
        sys.exit("fisher_vector: PyTorch is older than 2.5, expected 2.5 or newer for derivatives along a direction")
    torch.manual_seed(0)
    layer, head = bppsa.torch.GRU(2, 8), torch.nn.Linear(8, 2)
    model = torch.nn.ModuleDict({"layer": layer, "head": head})
    x = torch.randn(options.length, 32, 2)
    kinds = (x[:, :, 0].mean(0) > x[:, :, 1].mean(0)).long()
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    def logits(weights):
        of = {part: {name.split(".", 1)[1]: weight for name, weight in weights.items() if name.startswith(part)}
              for part in ("layer", "head")}
        output, _ = torch.func.functional_call(layer, of["layer"], (x,))
        return torch.func.functional_call(head, of["head"], (output.mean(0),))

    def loss(weights):
        return torch.nn.functional.cross_entropy(logits(weights), kinds)

    for step in range(options.steps):
        gradient, value = torch.func.grad_and_value(loss)(weights)
        natural = solve(lambda vector: fisher_product(logits, weights, vector, 1e-2), gradient, 8)
        print(f"step {step}: loss {value:.4f}")
        weights = {name: weights[name] - 0.5 * natural[name] for name in weights}
    print(f"in the end: loss {loss(weights):.4f}")


if __name__ == "__main__":
    main()
