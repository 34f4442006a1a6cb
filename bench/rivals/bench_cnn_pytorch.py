#!/usr/bin/env python3
"""PyTorch's LeNet-5 beside `bppsa bench lenet5`, forward and backward, on the same number of threads, in turn, in one run.

    bench/rivals/bench_cnn_pytorch.py --program build/cpu/bppsa [--batch 256] [--threads 2] [--rounds 5] [--out F.json]

In every round the program measures, and then PyTorch (nn.Conv2d, nn.Linear, float32, gradients of all weights, a seed for the
logits and no loss), so that the load of other programs slows both. The medians over all rounds are compared. The document is the
program's last one with PyTorch's rows added. Exits 77 where PyTorch is not installed.
"""
import argparse
import json
import statistics
import sys
import time

import beside
from noise import mark, timing

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

F = torch.nn.functional


class LeNet5(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(3, 6, 5), torch.nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = torch.nn.Linear(400, 120), torch.nn.Linear(120, 84), torch.nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def measure(net, x, seed, repeats):
    times = {"forward": [], "backward": []}
    for i in range(repeats + 2):
        net.zero_grad()
        start = time.perf_counter()
        logits = net(x)
        middle = time.perf_counter()
        logits.backward(seed)
        end = time.perf_counter()
        if i > 1:
            times["forward"].append(middle - start)
            times["backward"].append(end - middle)
    return times


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", required=True)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--out")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    net, x, seed = LeNet5(), torch.randn(o.batch, 3, 32, 32), torch.randn(o.batch, 10) / o.batch
    theirs, ours, document = {"forward": [], "backward": []}, {"forward": [], "bp": []}, None
    for _ in range(o.rounds):
        document = json.loads(beside.run(o, "bench", "lenet5", "--batch", o.batch, "--threads", o.threads, "--json"))
        for row in document["rows"]:
            if row["method"] in ours:
                ours[row["method"]].append(row["median_s"])
        for phase, times in measure(net, x, seed, 20).items():
            theirs[phase].append(statistics.median(times))
    for phase, times in theirs.items():
        row = {"network": "lenet5", "method": "pytorch", "phase": phase, "batch": o.batch, "threads": o.threads, "dtype": "f32"}
        document["rows"].append({**row, **timing(times), "repeats": 20 * o.rounds, "version": torch.__version__})
    mine = [statistics.median(ours[k]) for k in ("forward", "bp")]
    other = [statistics.median(theirs[k]) for k in ("forward", "backward")]
    document["rounds"] = {"forward_s": ours["forward"], "bp_s": ours["bp"],
                          "pytorch_forward_s": theirs["forward"], "pytorch_backward_s": theirs["backward"]}
    noisy = any(timing(times)["noisy"] for times in [*ours.values(), *theirs.values()])
    quotient = "no ratio, the times are noisy" if noisy else f"PyTorch's sum over ours {sum(other) / sum(mine):.2f}"
    print(f"B {o.batch}, {o.threads} threads, medians of {o.rounds} rounds: forward {1e3 * mine[0]:.2f} ms, "
          f"BP {1e3 * mine[1]:.2f} ms; PyTorch {torch.__version__} {1e3 * other[0]:.2f} and {1e3 * other[1]:.2f} ms; {quotient}")
    for row in document["rows"]:
        if "time_of_bp" in row:
            print(f"  {mark(row):1s}{row['method']:12s} {row['time_of_bp']:7.2f} times BP's time, "
                  f"{row['flops_of_unpruned_bp']:7.2f} times its FLOPs for the gradients between layers, "
                  f"planned in {1e3 * row['plan_s']:.0f} ms")
    if o.out:
        beside.write(o.out, document)
    return 0


sys.exit(main())
