"""What the scripts share that measure bppsa's Python layers beside PyTorch's and JAX's, on one thread.

It is imported in front of these libraries, which read once how many threads they may use, and finds the modules of bench/scripts.
"""
import importlib
import os
import random
import sys

import guest

sys.path.append(os.path.join(guest.ROOT, "bench", "scripts"))
guest.limit_threads(1)

LIMIT = 30  # of residuals, as docs/conventions.md has it


def need(name, package):
    """The module of a package that bench/rivals/setup installs; ends the script with 77 where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        print(f"{os.path.basename(sys.argv[0])}: {missing}, expected {package}, as bench/rivals/setup installs it")
        sys.exit(77)


def need_bppsa(name):
    """A module of bppsa, or one that imports it."""
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        sys.exit(f"{os.path.basename(sys.argv[0])}: error: {missing}, expected PYTHONPATH=build/cpu/python")


def residual(found, expected, steps):
    """The largest ‖found − expected‖ / (‖expected‖ ε √T) of some arrays, with ε of float32."""
    import numpy as np

    def of_one(one, other):
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        return float(np.linalg.norm(one - other) / (np.linalg.norm(other) * np.finfo(np.float32).eps * steps ** 0.5))
    return max(of_one(one, other) for one, other in zip(found, expected))


def take_turns(passes, seconds, rounds, clock):
    """{method: the seconds of its turns}, from {method: a function that makes a pass}. At least so many rounds, and seconds. Each
    round has an order of its own, so that no method always finds the caches as the same other one has left them."""
    times, draw, end = {method: [] for method in passes}, random.Random(1), clock() + seconds
    done = 0
    while passes and (done < rounds or clock() < end):
        for method in draw.sample(list(passes), len(passes)):
            begin = clock()
            passes[method]()
            times[method].append(clock() - begin)
        done += 1
    return times
