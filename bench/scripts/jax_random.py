#!/usr/bin/env python3
"""Random layers of bppsa.jax beside jax.lax.scan in float64, with resets, lengths and learned reset states, by every method, on one
to three threads.

    PYTHONPATH=build/cpu/python build/rivals/bin/python bench/scripts/jax_random.py 300 jax_random.json

The cases are those of tests/python/jax_reference.py, from the seed FIRST [0] on. Of each, values, gradients, JVPs, Hessian-vector
products in four ways and second derivatives of all outputs are compared; the document has the largest difference of each, relative
where an array has numbers above 1. Exit code 1: a difference of 1e-12 or more; 77: JAX is missing.
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path += [os.path.join(ROOT, "bench", "scripts"), os.path.join(ROOT, "tests", "python")]
# Programs run once, so that they are compiled quickly rather than well.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

import results_file  # noqa: E402
from program import campaign_options, where_and_when  # noqa: E402

NEAR = 1e-12


def compare(seed):
    """A case, and its differences by name."""
    import jax
    from jax_reference import Case, derivatives, distance
    case = Case(seed)
    sides = []
    for function in (case.ours, case.reference):
        def compute(at, function=function):
            return {"value": function(at), "gradient": jax.grad(case.loss(function))(at), **derivatives(case, function, seed)(at)}
        sides.append(jax.jit(compute)(case.arguments))
    return case, {name: distance(found, sides[1][name]) for name, found in sides[0].items()}


def main():
    options = campaign_options(__doc__)
    try:
        import jax
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_enable_x64", True)
        import bppsa
    except ImportError as missing:
        print(f"jax_random.py: {missing}, expected JAX and PYTHONPATH=build/cpu/python")
        return 77
    worst, failed = {}, []
    for seed in range(options.first, options.first + options.count):
        case, differences = compare(seed)
        for name, difference in differences.items():
            worst[name] = max(worst.get(name, 0.0), difference)
        if not all(difference < NEAR for difference in differences.values()):
            failed.append({"seed": seed, "case": str(case), **differences})
            print("seed %d: %s: %s" % (seed, case, differences), flush=True)
        jax.clear_caches()
    results_file.write(options.out, {"bench": "jax_random", **where_and_when(), "jax": jax.__version__, "bppsa": bppsa.__version__,
                                     "count": options.count, "first": options.first, "limit": NEAR, "failed": failed,
                                     "rows": [{"derivative": name, "largest": each} for name, each in sorted(worst.items())]})
    for name, each in sorted(worst.items()):
        print("%-14s %.1e" % (name, each))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
