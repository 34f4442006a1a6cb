#!/usr/bin/python3
"""PyTorch's nn.RNN or nn.GRU on the CPU or a GPU beside `bppsa bench rnn` or `bench gru`: same shapes, same threads, in one run.

    bench/rivals/bench_pytorch.py --program build/cpu/bppsa [--model rnn|gru] [--out F.json] [--quick] [--threads N]
                                [--device cpu|cuda] [--seq-len T] [--batch B] [--hidden H] [--init default|orthogonal]
                                [--repeats N] [--time-limit S]

At every point PyTorch runs half of its repeats, then the program runs, then PyTorch runs the other half, so that both see the
same machine. Forward is the layers without head and loss; backward is autograd from a gradient of the last hidden state to the
gradients of all weights, without the input's. PyTorch's gradients are checked against its own float64 ones (the residual of the
program's rows). Prints a table of milliseconds and ratios; --out writes the program's JSON document with rows of method "pytorch"
added; a time whose median is more than 1.25 times its minimum is noisy, has a ~ and no ratio. On a GPU, PyTorch runs cuDNN without
TF32, and events in the stream time the passes. Rows of method "pytorch_graph" are the same passes replayed as CUDA graphs, where
PyTorch can capture them. A forward pass runs before each replay and keeps the GPU busy while the host queues the graph, because in
the program's rows no graph waits for its launch either. Needs PyTorch (Debian: python3-torch), with CUDA for a GPU, and exits 77
without it; exits 1 when a row failed its check.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import time

from noise import row_is_noisy, timing

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
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of both [cpu]")
    p.add_argument("--time-limit", type=float, help="begin no further point after that many seconds [none]")
    p.add_argument("--repeats", type=int, help="timed repeats of every row [as a time budget allows, at least 4]")
    return p.parse_args()


def points(o):
    """T, B, H, I, init."""
    hidden = o.hidden or 20
    if o.seq_len or o.batch or o.hidden:
        shapes, inits = [(o.seq_len or 1000, o.batch or 16, 1)], ["default"]
    elif o.model == "gru":
        batches = SET_BATCHES[:1] if o.quick else SET_BATCHES
        shapes, inits = [(T, B, I) for T, I in SETS for B in batches], ["default", "orthogonal"]
    else:
        seq_lens, batches = (QUICK_SEQ_LENS, QUICK_BATCHES) if o.quick else (SEQ_LENS, BATCHES)
        shapes = [(T, 16, 1) for T in seq_lens] + [(1000, B, 1) for B in batches if B != 16]
        inits = ["default", "orthogonal"]
    for T, B, I in shapes:
        for init in [o.init] if o.init else inits:
            yield T, B, hidden, I, init


class Rival:
    """One nn.RNN or nn.GRU with its input; pass_() gives the seconds of a forward and of a backward pass."""

    method = "pytorch"

    def __init__(self, model, T, B, H, I, init, device):
        torch.manual_seed(0)
        self.device = device
        self.kind = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU}[model]
        rnn = self.kind(I, H)
        if init == "orthogonal":
            for block in rnn.weight_hh_l0.split(H):
                torch.nn.init.orthogonal_(block)
        share = 0.05 + 0.1 * torch.randint(10, (1, B, 1))
        self.x = (torch.bernoulli(share.expand(T, B, 1)) if I == 1 else torch.randn(T, B, I)).to(device)
        self.seed = ((2 * torch.rand(1, B, H) - 1) / B).to(device)
        self.rnn = rnn.to(device)

    def forward(self):
        self.h = self.rnn(self.x)[1]

    def backward(self):
        self.gradients = torch.autograd.grad(self.h, list(self.rnn.parameters()), self.seed)

    def pass_(self):
        if self.device == "cuda":
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
            marks[0].record()
            self.forward()
            marks[1].record()
            self.backward()
            marks[2].record()
            torch.cuda.synchronize()
            return 1e-3 * marks[0].elapsed_time(marks[1]), 1e-3 * marks[1].elapsed_time(marks[2])
        start = time.perf_counter()
        self.forward()
        middle = time.perf_counter()
        self.backward()
        return middle - start, time.perf_counter() - middle

    def residual(self):
        """The largest |g - ref| / (|ref| eps sqrt(T)) over the parameters, with ref in float64 on the CPU."""
        wide = self.kind(self.rnn.input_size, self.rnn.hidden_size).double()
        wide.load_state_dict({k: v.double().cpu() for k, v in self.rnn.state_dict().items()})
        wide(self.x.double().cpu())[1].backward(self.seed.double().cpu())
        self.pass_()
        info, worst = np.finfo(np.float32), 0.0
        for mine, reference in zip(self.gradients, wide.parameters()):
            got, ref = mine.double().cpu().numpy(), reference.grad.numpy()
            norm = float(np.linalg.norm(ref))
            unit = float(info.tiny) if norm < float(info.tiny) / float(info.eps) else norm * float(info.eps)
            r = float(np.linalg.norm(got - ref)) / (unit * math.sqrt(len(self.x)))
            worst = max(worst, r if math.isfinite(r) else math.inf)
        return worst


class Replay(Rival):
    """The passes of a rival as CUDA graphs."""

    method = "pytorch_graph"

    def __init__(self, plain):
        self.__dict__.update(plain.__dict__)
        plain.pass_()
        self.forward_graph, self.backward_graph = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.forward_graph):
            super().forward()
        with torch.cuda.graph(self.backward_graph, pool=self.forward_graph.pool()):
            super().backward()

    def pass_(self):
        self.forward()
        return super().pass_()

    def forward(self):
        self.forward_graph.replay()

    def backward(self):
        self.backward_graph.replay()


def rivals_of(o, T, B, H, I, init):
    """The network, and on a GPU its graphs, unless PyTorch cannot capture them."""
    rivals = [Rival(o.model, T, B, H, I, init, o.device)]
    if o.device == "cuda":
        try:
            rivals.append(Replay(rivals[0]))
        except RuntimeError as refused:
            torch.cuda.synchronize()
            print(f"pytorch_graph: skipped at T {T}, B {B}: {str(refused).splitlines()[0]}")
    return rivals


def measure_half(rival, repeats, budget):
    """Times `repeats` pairs of passes, or as many as fit into the time, at least 2. Returns pairs of seconds."""
    times, start = [], time.perf_counter()
    while len(times) < (repeats or 2) or (not repeats and len(times) < 500 and time.perf_counter() - start < budget):
        times.append(rival.pass_())
    return times


def run_program(o, arguments):
    command = [os.path.abspath(o.program), "bench", o.model, "--json", "--threads", o.threads, "--device", o.device, *arguments]
    command += (["--repeats", o.repeats] if o.repeats else []) + (["--quick"] if o.quick else [])
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        sys.exit(done.returncode or 1)
    return json.loads(done.stdout)


def program_rows(o, sweep, T, B, H, I, init):
    """The program's document of one point. Points with inputs wider than 1 come from the program's sweep, which runs once."""
    if I == 1:
        return run_program(o, ["--seq-len", T, "--batch", B, "--hidden", H, "--init", init])
    if not sweep:
        sweep.update(run_program(o, ["--init", o.init] if o.init else []))
    same = [r for r in sweep["rows"] if (r["seq_len"], r["batch"], r["input"], r["init"]) == (T, B, I, init)]
    return dict(sweep, rows=same)


KEPT = ("seq_len", "batch", "hidden", "input", "layers", "threads", "dtype", "init", "nonlinearity", "loss_on", "flops", "bytes")


def rows_of(rival, times, document):
    """Rows like the program's forward and bp rows, with PyTorch's times."""
    residual, rows = rival.residual(), []
    for phase, method, column in (("forward", "forward", 0), ("backward", "bp", 1)):
        program = next(r for r in document["rows"] if r["method"] == method)
        row = {key: program[key] for key in KEPT if key in program}
        row.update(timing([t[column] for t in times]), method=rival.method, phase=phase, residual=residual, ok=residual < RESIDUAL)
        row["step_s"] = row["median_s"] / row["seq_len"]
        rows.append(row)
    return rows


def time_of(rows, phase, method):
    """The median in seconds, and whether it is noisy."""
    found = [r for r in rows if r["phase"] == phase and r["method"] == method and r["median_s"] is not None]
    return (found[0]["median_s"], row_is_noisy(found[0])) if found else (math.nan, False)


def cell(time, width):
    """Milliseconds, marked where they are noisy."""
    return f"{('~' if time[1] else '') + format(1e3 * time[0], '.3f'):>{width}s}"


def ratio(above, below, width):
    """How many times the sum of `below` the sum of `above` is; "~" where one of them is noisy, since nothing follows from it."""
    times = above + below
    number = sum(t[0] for t in above) / sum(t[0] for t in below)
    return f"{'~' if any(t[1] for t in times) else format(number, '.1f') + 'x':>{width}s}"


def show(T, B, H, init, rows):
    forward, rival_forward = time_of(rows, "forward", "forward"), time_of(rows, "forward", "pytorch")
    rival_backward, auto = time_of(rows, "backward", "pytorch"), time_of(rows, "backward", "auto")
    line = f"{T:7d}{B:5d}{H:4d} {init:11s}" + cell(rival_forward, 10) + cell(forward, 9) + ratio([rival_forward], [forward], 8)
    line += cell(rival_backward, 12)
    for method in ("bp", "linear", "blelloch", "chunked", "auto"):
        backward = time_of(rows, "backward", method)
        line += cell(backward, 10) + ratio([rival_backward], [backward], 8)
    print(line + ratio([rival_forward, rival_backward], [forward, auto], 11), flush=True)


def run_point(o, sweep, T, B, H, I, init):
    """The program's document of a point, with PyTorch's rows added."""
    rivals = rivals_of(o, T, B, H, I, init)
    half, budget = (o.repeats + 1) // 2 if o.repeats else None, 0.2 if o.quick else 1.0
    for rival in rivals:
        rival.pass_()
    times = [measure_half(rival, half, budget) for rival in rivals]
    document = program_rows(o, sweep, T, B, H, I, init)
    rows = list(document["rows"])
    for rival, first in zip(rivals, times):
        rows += rows_of(rival, first + measure_half(rival, half, budget), document)
    return dict(document, rows=rows)


def print_head(o):
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name() if o.device == 'cuda' else 'CPU'}, {o.threads} "
          f"thread{'s' if o.threads != 1 else ''}; milliseconds, and PyTorch's over the program's")
    print(f"{'':27s} -------- forward --------  {'-' * 42} backward {'-' * 42}  both, auto")
    print(f"{'T':>7s}{'B':>5s}{'H':>4s} {'init':11s}{'PyTorch':>10s}{'bppsa':>9s}{'':8s}{'PyTorch':>12s}" +
          "".join(f"{m:>10s}{'':8s}" for m in ("bp", "linear", "blelloch", "chunked", "auto")))


def main():
    o = parse()
    if o.device == "cuda" and not torch.cuda.is_available():
        print(f"bench_pytorch: skipped, PyTorch {torch.__version__} has no CUDA here")
        return 77
    torch.set_num_threads(o.threads)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    print_head(o)
    whole, failed, sweep, start = None, 0, {}, time.perf_counter()
    for T, B, H, I, init in points(o):
        if o.time_limit and whole and time.perf_counter() - start > o.time_limit:
            print(f"T {T}, B {B}, {init}: left out, --time-limit was over")
            continue
        document = run_point(o, sweep, T, B, H, I, init)
        rows = document["rows"]
        failed += sum(not r["ok"] and "skipped" not in r for r in rows)
        show(T, B, H, init, rows)
        if whole is None:
            whole = dict(document)
            whole["device"]["pytorch"] = torch.__version__
            whole["rows"] = []
            whole.pop("growth", None)  # the growth over one point says nothing; bppsa figures fits the whole sweep
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
