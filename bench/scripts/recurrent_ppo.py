#!/usr/bin/env python3
"""What examples/python/recurrent_ppo.py reaches, and how long an update takes, by bppsa.torch.GRU and by its loop of cells.

    PYTHONPATH=build/cpu/python bench/scripts/recurrent_ppo.py RESULT.json [--seeds 5] [--updates 80] [--cpu-time]

The two train in turns, seed by seed. RESULT.json has a row for each training: its return, the mean of the last ten rollouts, and
the median seconds of an update. Exits 1 where the first updates differ by more than 1e-5, or where the median return of one of the
two is outside the returns that the other one has reached with all seeds; the file is written all the same.
"""
import argparse
import importlib.util
import os
import statistics
import sys
import time
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program  # noqa: E402
import results_file  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def load():
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("recurrent_ppo", os.path.join(ROOT, "examples", "python", "recurrent_ppo.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", metavar="RESULT.json")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=80)
    parser.add_argument("--cpu-time", action="store_true", help="of this process, beside other programs")
    options = parser.parse_args()
    if options.seeds < 1 or options.updates < 1:
        parser.error(f"--seeds is {options.seeds} and --updates {options.updates}, expected 1 or more")
    example = load()
    example.torch.set_num_threads(1)
    if options.cpu_time:
        example.time = types.SimpleNamespace(perf_counter=time.process_time)
    difference, rows = example.compare(), []
    for seed in range(options.seeds):
        for method, by_torch in (("bppsa", False), ("torch_cells", True)):
            reached, seconds = example.train(seed, options.updates, by_torch)
            rows.append({"method": method, "seed": seed, "return": reached, "update_s": seconds})
    returns = {name: [row["return"] for row in rows if row["method"] == name] for name in ("bppsa", "torch_cells")}
    one, other = returns.values()
    ok = difference <= 1e-5 and all(min(a) <= statistics.median(b) <= max(a) for a, b in ((one, other), (other, one)))
    results_file.write(options.result, {
        "bench": "recurrent_ppo", **program.where_and_when(), "torch": example.torch.__version__, "threads": 1,
        "clock": "cpu" if options.cpu_time else "wall",
        "environments": example.ENVIRONMENTS, "steps": example.STEPS, "hidden": example.HIDDEN, "updates": options.updates,
        "first_update_difference": difference, "ok": ok, "rows": rows})
    for name, each in returns.items():
        times = [row["update_s"] for row in rows if row["method"] == name]
        print(f"{name}: returns {min(each):.3f} .. {max(each):.3f}, median {statistics.median(each):.3f}; an update in "
              f"{1e3 * statistics.median(times):.1f} ms")
    print("ok" if ok else "the returns or the first updates of both are apart")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
