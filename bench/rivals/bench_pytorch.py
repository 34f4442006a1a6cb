#!/usr/bin/python3
"""PyTorch's nn.RNN or nn.GRU on the CPU beside `bppsa bench rnn` or `bench gru`: same shapes, same threads, in one run.

    bench/rivals/bench_pytorch.py --program build/cpu/bppsa [--model rnn|gru] [--out F.json] [--quick] [--threads N]
                                [--seq-len T] [--batch B] [--hidden H] [--init default|orthogonal] [--repeats N]

At every point PyTorch runs half of its repeats, then the program runs, then PyTorch runs the other half, so that both see the
same machine. Forward is the layers without head and loss; backward is autograd from a gradient of the last hidden state to the
gradients of all weights, without the input's. PyTorch's gradients are checked against its own float64 ones (the residual of the
program's rows). Prints a table of milliseconds and ratios; --out writes the program's JSON document with rows of method "pytorch"
added. Needs PyTorch (Debian: python3-torch) and exits 77 without it; exits 1 when a row failed its check.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"bench_pytorch: skipped, {missing} (Debian package python3-torch)")
    sys.exit(77)

SEQ_LENS = [10, 30, 100, 300, 1000, 3000, 10000, 30000]  # at B = 16: table 4
BATCHES = [2, 4, 8, 16, 32, 64, 128, 256]  # at T = 1000: table 5
QUICK_SEQ_LENS, QUICK_BATCHES = [10, 100, 1000, 3000], [2, 16, 64]
SETS, SET_BATCHES = [(259, 38), (517, 24), (1034, 12)], [16, 32, 64]  # T and I: table 6
RESIDUAL = 30.0


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", required=True, help="the bppsa program")
    p.add_argument("--model", choices=["rnn", "gru"], default="rnn", help="[rnn]")
    p.add_argument("--out", help="where the JSON document goes")
    p.add_argument("--quick", action="store_true", help="a small sweep, for a laptop")
    p.add_argument("--threads", type=int, default=1, help="of both [1]")
    p.add_argument("--seq-len", type=int, help="one point instead of the sweep")
    p.add_argument("--batch", type=int, help="one point instead of the sweep")
    p.add_argument("--hidden", type=int, help="one point instead of the sweep")
    p.add_argument("--init", choices=["default", "orthogonal"], help="[the sweep: both; one point: default]")
    p.add_argument("--repeats", type=int, help="timed repeats of every row [as a time budget allows, at least 4]")
    return p.parse_args()


def points(o):
    """T, B, H, I, init."""
    hidden = o.hidden or 20
    if o.seq_len or o.batch or o.hidden:
        shapes, inits = [(o.seq_len or 1000, o.batch or 16, 1)], ["default"]
    elif o.model == "gru":
        shapes, inits = [(T, B, I) for T, I in SETS for B in (SET_BATCHES[:1] if o.quick else SET_BATCHES)], ["default", "orthogonal"]
    else:
        seq_lens, batches = (QUICK_SEQ_LENS, QUICK_BATCHES) if o.quick else (SEQ_LENS, BATCHES)
        shapes = [(T, 16, 1) for T in seq_lens] + [(1000, B, 1) for B in batches if B != 16]
        inits = ["default", "orthogonal"]
    for T, B, I in shapes:
        for init in [o.init] if o.init else inits:
            yield T, B, hidden, I, init


class Rival:
    """One nn.RNN or nn.GRU with its input; pass_() gives the seconds of a forward and of a backward pass."""

    def __init__(self, model, T, B, H, I, init):
        torch.manual_seed(0)
        self.kind = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU}[model]
        self.rnn = self.kind(I, H)
        if init == "orthogonal":
            for block in self.rnn.weight_hh_l0.split(H):
                torch.nn.init.orthogonal_(block)
        share = 0.05 + 0.1 * torch.randint(10, (1, B, 1))
        self.x = torch.bernoulli(share.expand(T, B, 1)) if I == 1 else torch.randn(T, B, I)
        self.seed = (2 * torch.rand(1, B, H) - 1) / B

    def pass_(self):
        self.rnn.zero_grad()
        start = time.perf_counter()
        _, h = self.rnn(self.x)
        middle = time.perf_counter()
        h.backward(self.seed)
        return middle - start, time.perf_counter() - middle

    def residual(self):
        """Largest over the parameters of |g - ref| / (|ref| eps sqrt(T)), ref in float64."""
        wide = self.kind(self.rnn.input_size, self.rnn.hidden_size).double()
        wide.load_state_dict({k: v.double() for k, v in self.rnn.state_dict().items()})
        wide(self.x.double())[1].backward(self.seed.double())
        self.pass_()
        info, worst = np.finfo(np.float32), 0.0
        for mine, reference in zip(self.rnn.parameters(), wide.parameters()):
            got, ref = mine.grad.double().numpy(), reference.grad.numpy()
            norm = float(np.linalg.norm(ref))
            unit = float(info.tiny) if norm < float(info.tiny) / float(info.eps) else norm * float(info.eps)
            r = float(np.linalg.norm(got - ref)) / (unit * math.sqrt(len(self.x)))
            worst = max(worst, r if math.isfinite(r) else math.inf)
        return worst


def measure_half(rival, repeats, budget):
    """Pairs of seconds: `repeats` of them, or as many as fit, at least 2."""
    times, start = [], time.perf_counter()
    while len(times) < (repeats or 2) or (not repeats and len(times) < 500 and time.perf_counter() - start < budget):
        times.append(rival.pass_())
    return times


def run_program(o, arguments):
    command = [os.path.abspath(o.program), "bench", o.model, "--json", "--threads", o.threads, *arguments]
    command += (["--repeats", o.repeats] if o.repeats else []) + (["--quick"] if o.quick else [])
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        sys.exit(done.returncode or 1)
    return json.loads(done.stdout)


def program_rows(o, sweep, T, B, H, I, init):
    """The program's document of one point. Inputs wider than 1 are part of its sweep alone, which runs once."""
    if I == 1:
        return run_program(o, ["--seq-len", T, "--batch", B, "--hidden", H, "--init", init])
    if not sweep:
        sweep.update(run_program(o, ["--init", o.init] if o.init else []))
    same = [r for r in sweep["rows"] if (r["seq_len"], r["batch"], r["input"], r["init"]) == (T, B, I, init)]
    return dict(sweep, rows=same)


def rows_of(rival, times, document):
    """Rows like the program's forward and bp rows, with PyTorch's times."""
    residual, rows = rival.residual(), []
    for phase, method, column in (("forward", "forward", 0), ("backward", "bp", 1)):
        row = dict(next(r for r in document["rows"] if r["method"] == method))
        for key in ("memory_bytes", "zeros", "subnormals", "hidden_zeros", "hidden_subnormals", "skipped", "redone", "peak_fraction"):
            row.pop(key, None)
        seconds = [t[column] for t in times]
        row.update(method="pytorch", phase=phase, median_s=statistics.median(seconds), min_s=min(seconds), max_s=max(seconds),
                   repeats=len(seconds), residual=residual, ok=residual < RESIDUAL)
        rows.append(row)
    return rows


def median(rows, phase, method):
    found = [r["median_s"] for r in rows if r["phase"] == phase and r["method"] == method and r["median_s"] is not None]
    return found[0] if found else math.nan


def show(T, B, H, init, rows):
    forward, rival_forward = median(rows, "forward", "forward"), median(rows, "forward", "pytorch")
    rival_backward = median(rows, "backward", "pytorch")
    cells = [f"{T:7d}{B:5d}{H:4d} {init:11s}{1e3 * rival_forward:10.3f}{1e3 * forward:9.3f}{rival_forward / forward:7.1f}x{1e3 * rival_backward:12.3f}"]
    for method in ("bp", "linear", "blelloch", "chunked", "auto"):
        backward = median(rows, "backward", method)
        cells.append(f"{1e3 * backward:10.3f}{rival_backward / backward:7.1f}x")
    auto = forward + median(rows, "backward", "auto")
    print("".join(cells) + f"{(rival_forward + rival_backward) / auto:10.1f}x", flush=True)


def main():
    o = parse()
    torch.set_num_threads(o.threads)
    print(f"PyTorch {torch.__version__}, {o.threads} thread{'s' if o.threads != 1 else ''}; milliseconds, and PyTorch's over the program's")
    print(f"{'':27s} -------- forward --------  {'-' * 42} backward {'-' * 42}  both, auto")
    print(f"{'T':>7s}{'B':>5s}{'H':>4s} {'init':11s}{'PyTorch':>10s}{'bppsa':>9s}{'':8s}{'PyTorch':>12s}" +
          "".join(f"{m:>10s}{'':8s}" for m in ("bp", "linear", "blelloch", "chunked", "auto")))
    whole, failed, sweep = None, 0, {}
    for T, B, H, I, init in points(o):
        rival = Rival(o.model, T, B, H, I, init)
        rival.pass_()
        half, budget = (o.repeats + 1) // 2 if o.repeats else None, 0.2 if o.quick else 1.0
        times = measure_half(rival, half, budget)
        document = program_rows(o, sweep, T, B, H, I, init)
        times += measure_half(rival, half, budget)
        rows = document["rows"] + rows_of(rival, times, document)
        failed += sum(not r["ok"] and "skipped" not in r for r in rows)
        show(T, B, H, init, rows)
        if whole is None:
            whole = dict(document)
            whole["device"]["pytorch"] = torch.__version__
            whole["rows"] = []
            whole.pop("growth", None)  # of one point; bppsa figures fits the whole sweep
        whole["rows"] += rows
    if o.out:
        with open(o.out + ".part", "w") as file:
            json.dump(whole, file)
            file.write("\n")
        os.replace(o.out + ".part", o.out)
    if failed:
        print(f"{failed} rows failed their check")
    return 1 if failed else 0


sys.exit(main())
