#!/usr/bin/env python3
"""A gradient penalty: a GRU learns to tell two kinds of sequences apart, and that its answer changes little with the input.

    loss = cross entropy + weight · mean |∂ answer / ∂x|²

    python3 examples/python/gradient_penalty.py [--steps 60] [--length 200] [--weight 1.0]

The penalty is differentiated too, so each step has the gradient of a gradient. Needs PyTorch 2.5 or newer.
"""
import argparse
import sys

import torch

import bppsa


class Classifier(torch.nn.Module):
    """x [T,B,1] to an answer [B]: above 0 for the second kind."""

    def __init__(self, hidden):
        super().__init__()
        self.layer, self.head = bppsa.torch.GRU(1, hidden), torch.nn.Linear(hidden, 1)

    def forward(self, x):
        return self.head(self.layer(x)[0].mean(0)).squeeze(1)


def draw(length, batch):
    """Noise around a slow wave, or a fast one."""
    kinds = torch.arange(batch) % 2
    waves = torch.sin(torch.arange(length).unsqueeze(1) * torch.where(kinds == 1, 0.5, 0.25))
    return (waves + 0.3 * torch.randn(length, batch)).unsqueeze(2), kinds.float()


def train(steps, length, weight):
    """The last loss, and the size of the answer's slope."""
    torch.manual_seed(0)
    model = Classifier(12)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        x, kinds = draw(length, 16)
        answer = model(x.requires_grad_())
        slope, = torch.autograd.grad(answer.sum(), x, create_graph=True)
        penalty = slope.square().sum((0, 2)).mean()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(answer, kinds)
        optimizer.zero_grad()
        (loss + weight * penalty).backward()
        optimizer.step()
    return loss.item(), penalty.sqrt().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--length", type=int, default=200)
    parser.add_argument("--weight", type=float, default=1.0)
    options = parser.parse_args()
    if not hasattr(torch.library, "register_vmap"):
        sys.exit("gradient_penalty: PyTorch is older than 2.5, expected 2.5 or newer for second derivatives")
    for weight in (0.0, options.weight):
        loss, slope = train(options.steps, options.length, weight)
        print(f"penalty times {weight:g}: loss {loss:.4f}, slope {slope:.4f}")


if __name__ == "__main__":
    main()
