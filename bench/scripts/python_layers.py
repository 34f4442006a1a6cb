#!/usr/bin/env python3
"""bppsa.torch beside torch.nn: gradients, memory and times, with the PyTorch of the Python that runs it.

    PYTHONPATH=build/cpu/python python3 bench/scripts/python_layers.py --out layers.json [--threads 1] [--device cuda]

It runs tests/python/test_torch.py with many random configurations (gradients against torch.nn's float64 autograd) and many calls
(memory). Then it times a forward and a backward pass of both, at T = 1000, B = 16 and H = 20 and 128, the library's own passes
within bppsa.torch, and what PyTorch's autograd alone adds to them. The passes take turns; bench/rivals/noise.py says
which rows are noisy. On a GPU, where torch.nn is cuDNN without TF32, a pass ends when the GPU has nothing left to do. Exits 1
where a test fails.
"""
import argparse
import os
import re
import subprocess
import sys
import time

import program
import results_file

try:
    import torch

    import bppsa
    import bppsa.torch
    from bppsa import _native
except ImportError as missing:
    sys.stderr.write("python_layers.py: error: %s, expected PyTorch and PYTHONPATH=build/cpu/python\n" % missing)
    sys.exit(2)

ROOT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..")
sys.path.append(os.path.join(ROOT, "bench", "rivals"))
import noise  # noqa: E402


def run_tests(configurations, calls):
    """The tests' verdict, and the worst residual."""
    counts = {"BPPSA_PYTHON_CONFIGURATIONS": str(configurations), "BPPSA_PYTHON_CALLS": str(calls)}
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tests", "python", "test_torch.py")], env={**os.environ, **counts},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    worst = re.search(r"worst residual ([0-9.]+), ([0-9]+) with sums", done.stdout)
    if done.returncode != 0 or worst is None:
        sys.exit(done.stdout)
    return {"configurations": configurations, "worst_residual": float(worst[1]), "sums_that_cancel": int(worst[2]), "calls": calls,
            "memory": "below 1 MiB"}


def module_pass(layer, x, seed):
    def run():
        layer.zero_grad(set_to_none=True)
        layer(x)[0].backward(seed)

    return run


class Library:
    """A layer of the library with the two passes that bppsa.torch calls, and nothing around them."""

    def __init__(self, cell, layer, x, seed, threads):
        place = (x.get_device(), torch.cuda.current_stream().cuda_stream) if x.is_cuda else (-1, None)
        shape, names = (*x.shape, layer.hidden_size), ("w_ih", "w_hh", "b_ih", "b_hh")
        self.plan = _native.Plan((cell.lower(), False, "auto", "sequential"), shape, False, (True, False, False, False), False,
                                 threads, *place)
        steps, batch, _, hidden = shape
        weights = {name: parameter.data.clone() for name, parameter in zip(names, layer.parameters())}
        count = (steps + 1) * batch * hidden + 16  # kernels on a GPU read a cache line beyond the states
        tape = {"h": x.new_empty(count), "c": x.new_empty(count) if cell == "LSTM" else None,
                "saved": x.new_empty(steps * batch * hidden * _native.cell_saved(cell.lower()) + 16)}
        self.gradients = [torch.empty_like(weight) for weight in weights.values()]
        both = {"x": x, **weights, **{name: array for name, array in tape.items() if array is not None}}
        self.kept = [{**both, "y": torch.empty_like(seed)},
                     {**both, "of_y": seed, **{"of_" + name: array for name, array in zip(names, self.gradients)}}]
        self.scratch = [x.new_empty(bytes_ // 4 + 1) for bytes_ in self.plan.scratch[:2]]
        self.at = []
        for arrays in self.kept:
            self.at.append(_native.addresses())
            for number, (name, _, _) in enumerate(_native.arrays()):
                if name in arrays:
                    self.at[-1][number] = arrays[name].data_ptr()

    def forward(self):
        self.plan.run(0, self.at[0], self.scratch[0].data_ptr())

    def backward(self):
        self.plan.run(1, self.at[1], self.scratch[1].data_ptr())

    def run(self):
        self.forward()
        self.backward()


class Function(torch.autograd.Function):
    """What any function of PyTorch's autograd has around the library's passes: it checks, allocates and keeps nothing."""

    @staticmethod
    def forward(ctx, passes, output, *weights):
        ctx.passes = passes
        passes.forward()
        return output.view_as(output)

    @staticmethod
    def backward(ctx, _):
        ctx.passes.backward()
        return (None, None, *ctx.passes.gradients)


def function_pass(library, layer, x, seed):
    weights, output = list(layer.parameters()), torch.empty_like(seed)

    def run():
        layer.zero_grad(set_to_none=True)
        Function.apply(library, output, *weights).backward(seed)

    return run


def wall_clock():
    """Seconds, when the GPU has done what it was given."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def time_passes(passes, seconds, clock):
    times = {name: [] for name in passes}
    for run in passes.values():
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["library"]) < 5:
        for name, run in passes.items():
            for _ in range(1 if name == "torch.nn" else 5):
                begin = clock()
                run()
                times[name].append(clock() - begin)
    return {name: noise.timing(each) for name, each in times.items()}


def measure(cell, hidden, options):
    torch.manual_seed(0)
    x, seed = (torch.randn(options.seq_len, options.batch, size).to(options.device) for size in (1, hidden))
    theirs, ours = (getattr(library, cell)(1, hidden).to(options.device) for library in (torch.nn, bppsa.torch))
    ours.load_state_dict(theirs.state_dict())
    library = Library(cell, ours, x, seed, options.threads)
    times = time_passes({"torch.nn": module_pass(theirs, x, seed), "bppsa.torch": module_pass(ours, x, seed),
                         "function": function_pass(library, ours, x, seed), "library": library.run}, options.seconds,
                        time.process_time if options.cpu_time else wall_clock)
    row = {"cell": cell, "seq_len": options.seq_len, "batch": options.batch, "hidden": hidden, **times,
           "times_as_fast": times["torch.nn"]["median_s"] / times["bppsa.torch"]["median_s"],
           "wrapper_s": times["bppsa.torch"]["median_s"] - times["library"]["median_s"],
           "function_s": times["function"]["median_s"] - times["library"]["median_s"]}
    print("%s, H = %3d: torch.nn %8.2f ms%s, bppsa.torch %7.2f ms%s, %5.1f times as fast; around the library's passes %4.0f us, "
          "of an empty autograd.Function %4.0f us" %
          (cell, hidden, 1e3 * times["torch.nn"]["median_s"], noise.mark(times["torch.nn"]),
           1e3 * times["bppsa.torch"]["median_s"], noise.mark(times["bppsa.torch"]), row["times_as_fast"], 1e6 * row["wrapper_s"],
           1e6 * row["function_s"]))
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="where the JSON document goes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seq-len", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5, help="for each row [5]")
    parser.add_argument("--configurations", type=int, default=500)
    parser.add_argument("--calls", type=int, default=10000)
    parser.add_argument("--cpu-time", action="store_true",
                        help="of this process, beside other programs, with one thread: waiting does not count, cold caches do")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of the passes that are timed [cpu]")
    parser.add_argument("--no-tests", action="store_true", help="leave the tests out")
    parser.add_argument("--no-times", action="store_true", help="leave the times out")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    document = {"bench": "python_layers", "torch": torch.__version__, "python": sys.version.split()[0],
                "bppsa": bppsa.__version__, "commit": program.commit(),
                "threads": options.threads, "date": program.now(),
                "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu"}
    if not options.no_tests:
        document["tests"] = run_tests(options.configurations, options.calls)
        print("PyTorch %s: %d configurations, worst residual %.2f" % (torch.__version__, options.configurations,
                                                                      document["tests"]["worst_residual"]))
    if not options.no_times:
        document["clock"] = "cpu" if options.cpu_time else "wall"
        document["rows"] = [measure(cell, hidden, options) for cell in ("RNN", "GRU", "LSTM") for hidden in (20, 128)]
    results_file.write(options.out, document)


main()
