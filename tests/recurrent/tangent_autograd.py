#!/usr/bin/env python3
"""tangent_autograd.py DUMP_TANGENTS FILE [COUNT]: derivatives of stateless passes along directions, of so many random layers,
beside PyTorch's autograd over the cells written out, all within 1e-12. Prints the worst of each; 77 where PyTorch is missing."""
import os
import struct
import subprocess
import sys

try:
    import numpy as np
    import torch
except ImportError as reason:
    if sys.executable != "/usr/bin/python3" and os.access("/usr/bin/python3", os.X_OK):  # another python3 stands before Debian's
        os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
    print("tangent_autograd.py: skipped, %s (package python3-torch)" % reason)
    sys.exit(77)

NEAR = 1e-12
INPUTS = ("x", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh", "reset_state")


class Case:
    """A layer of dump_tangents.c."""

    def __init__(self, file, head):
        self.cell, self.steps, self.batch, width, self.hidden, self.relu, resets, _, lengths = struct.unpack("<9q", head)
        steps, batch, hidden = self.steps, self.batch, self.hidden
        self.pair = self.cell == 2
        gates = (1, 3, 4)[self.cell] * hidden
        mask = self.numbers(file, steps * batch) if resets else torch.zeros(steps * batch)
        ends = self.numbers(file, batch) if lengths else torch.full((batch,), float(steps))
        self.runs = (torch.arange(steps)[:, None] < ends).unsqueeze(-1)
        self.mask = mask.view(steps, batch, 1).bool() & self.runs
        shapes = [(steps, batch, width), (batch, hidden), (batch, hidden), (gates, width), (gates, hidden), (gates,), (gates,),
                  ((1 + self.pair) * hidden,)]
        seeds = [(steps, batch, hidden), (steps, batch, hidden), (batch, hidden), (batch, hidden)]
        self.point, self.v, self.w, self.gradients, self.derivatives = (self.arrays(file, shapes) for _ in range(5))
        self.seed, self.dots = (self.arrays(file, seeds) for _ in range(2))
        self.states, self.of_v, self.twice = (self.arrays(file, [(steps + 1, batch, hidden)] * 2) for _ in range(3))

    @staticmethod
    def numbers(file, count):
        return torch.from_numpy(np.frombuffer(file.read(8 * count), dtype=np.float64).copy())

    def arrays(self, file, shapes):
        found = []
        for shape in shapes:
            count, = struct.unpack("<q", file.read(8))
            found.append(self.numbers(file, count).view(shape) if count else None)
        return found

    def step(self, x, h, c, weights):
        """One step of the cell."""
        w_ih, w_hh, b_ih, b_hh = weights
        ahead, back = x @ w_ih.T + b_ih, h @ w_hh.T + b_hh
        if self.cell == 0:
            return (torch.relu if self.relu else torch.tanh)(ahead + back), c
        if self.cell == 1:
            (r_x, z_x, n_x), (r_h, z_h, n_h) = ahead.chunk(3, 1), back.chunk(3, 1)
            z = torch.sigmoid(z_x + z_h)
            return (1 - z) * torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h) + z * h, c
        i, f, g, o = (ahead + back).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def run(self, point):
        """All h and c, 0 behind a sample's end, with the states in front of the first step, and the last ones."""
        x, h, c, *weights, fresh = point
        fresh = torch.zeros((1 + self.pair) * self.hidden) if fresh is None else fresh
        c = torch.zeros_like(h) if c is None else c
        rows = []
        for t in range(self.steps):
            h = torch.where(self.mask[t], fresh[:self.hidden].expand_as(h), h)
            c = torch.where(self.mask[t], fresh[-self.hidden:].expand_as(c), c) if self.pair else c
            rows += [(h, c)] * (t == 0)
            new = self.step(x[t], h, c, weights)
            h, c = (torch.where(self.runs[t], one, other) for one, other in zip(new, (h, c)))
            rows.append(tuple(torch.where(self.runs[t], one, torch.zeros_like(one)) for one in new))
        return torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows]), h, c

    def loss(self, outputs, seed):
        h, c, h_last, c_last = outputs
        seen = self.runs.to(h)  # seeds behind a sample's end are read by nobody
        value = (h[1:] * seed[0] * seen).sum() + (h_last * seed[2]).sum()
        return value + (c[1:] * seed[1] * seen).sum() + (c_last * seed[3]).sum() if self.pair else value


def note(worst, name, found, wanted):
    wanted = torch.zeros_like(found) if wanted is None else wanted
    error = ((found - wanted).abs().max() / max(1.0, wanted.abs().max().item())).item() if found.numel() else 0.0
    worst[name] = max(worst.get(name, 0.0), error if error == error else float("inf"))


def compare(case, worst):
    point = [each.clone().requires_grad_() if each is not None else None for each in case.point]
    live = [k for k in range(len(INPUTS)) if point[k] is not None]
    leaves = [point[k] for k in live]
    seed = [each.clone().requires_grad_() if each is not None else None for each in case.seed]
    seeds = [each for each in seed if each is not None]
    outputs = case.run(point)
    note(worst, "states", case.states[0], outputs[0].detach())
    gradients = torch.autograd.grad(case.loss(outputs, seed), leaves, create_graph=True, allow_unused=True)
    phi = sum((each * case.v[k]).sum() for k, each in zip(live, gradients) if each is not None)  # <seed, tangents along v>
    second = torch.autograd.grad(phi, leaves + seeds, create_graph=True, allow_unused=True)
    linear = torch.autograd.grad(case.loss(case.run(point), case.dots), leaves, allow_unused=True)
    for number, k in enumerate(live):
        parts = [each for each in (second[number], linear[number]) if each is not None]
        note(worst, "gradient of " + INPUTS[k], case.gradients[k], gradients[number])
        note(worst, "its derivative", case.derivatives[k], sum(parts) if parts else None)
    both = sum((each * case.w[k]).sum() for k, each in zip(live, second) if each is not None)
    twice = torch.autograd.grad(both, seeds, allow_unused=True) if both.requires_grad else [None] * len(seeds)
    for half in range(1 + case.pair):
        place = half if case.pair else 0
        note(worst, "tangent", case.of_v[half][1:], second[len(live) + place])
        note(worst, "second tangent", case.twice[half][1:], twice[place])


def main():
    if len(sys.argv) not in (3, 4):
        print("tangent_autograd.py: expected DUMP_TANGENTS FILE [COUNT]", file=sys.stderr)
        return 2
    count = int(sys.argv[3]) if len(sys.argv) == 4 else 300 if os.environ.get("BPPSA_TEST_LENGTH") == "full" else 30
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    subprocess.run([sys.argv[1], sys.argv[2], str(count)], check=True)
    worst, cases = {}, 0
    with open(sys.argv[2], "rb") as file:
        while head := file.read(72):
            compare(Case(file, head), worst)
            cases += 1
    print("%d layers; the largest difference, relative where an array has numbers above 1:" % cases)
    for name, error in sorted(worst.items()):
        print("  %-24s %.1e" % (name, error))
    return 0 if cases == count and all(error < NEAR for error in worst.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
