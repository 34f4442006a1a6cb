#!/usr/bin/env python3
"""A diagonal state-space layer on bppsa.torch.scan: it learns to add up what it has seen, discounted.

    h_t = a ∘ h_{t-1} + B x_t          y_t = C h_t          a = sigmoid(decay), learned

    python3 examples/python/state_space.py [--steps 200] [--length 999]

The length need not be a power of two. The recurrence runs forward in time, which the scan, made for gradients, does backward: hence
the two flips.
"""
import argparse

import torch

import bppsa


class StateSpace(torch.nn.Module):
    """x [T,B,I] to y [T,B,O]."""

    def __init__(self, inputs, states, outputs):
        super().__init__()
        self.decay = torch.nn.Parameter(torch.linspace(0.0, 4.0, states))
        self.enter, self.leave = torch.nn.Linear(inputs, states), torch.nn.Linear(states, outputs)

    def forward(self, x):
        u = self.enter(x)
        a = torch.sigmoid(self.decay).expand_as(u)
        h = bppsa.torch.scan(a.flip(0), u.flip(0), u.new_zeros(u.shape[1:])).flip(0)
        return self.leave(h)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--length", type=int, default=999)
    options = parser.parse_args()
    torch.manual_seed(0)
    layer = StateSpace(1, 8, 1)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for step in range(options.steps):
        x = torch.randn(options.length, 4, 1)
        wanted, state = [], torch.zeros(4, 1)
        for now in x:
            state = 0.9 * state + 0.1 * now
            wanted.append(state)
        loss = torch.nn.functional.mse_loss(layer(x), torch.stack(wanted))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in (0, options.steps - 1):
            print(f"step {step + 1}  loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
