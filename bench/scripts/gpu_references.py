#!/usr/bin/env python3
"""gpu_references.py PROGRAM BUNDLE [POINTS]: makes the references in float64 that points of bench/gpu.sh are held against, so
that a machine with a GPU does not spend its minutes on them.

PROGRAM computes them on this machine's processor (`bench .. --save-references`). BUNDLE/references/NAME.safetensors receives the
references of the point NAME of POINTS [bench/gpu_points.txt], where @FILE is a file of the bundle. gpu_plan.has_reference says
which points have any. Exits 1 where the program fails.
"""
import argparse
import os
import subprocess
import sys
import time

import gpu_plan


OF_TIMING = ("--forward", "--repeats")  # with these the program saves no references


def make(program, bundle, name, words):
    """The seconds that it took, and the bytes of the file."""
    path = os.path.join(bundle, "references", name + ".safetensors")
    words = [os.path.join(bundle, word[1:]) if word.startswith("@") else word for i, word in enumerate(words)
             if word not in OF_TIMING and words[i - 1] not in OF_TIMING]
    began = time.monotonic()
    subprocess.run([program, "bench", *words, "--device", "cpu", "--save-references", path], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began, os.path.getsize(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("bundle", metavar="BUNDLE")
    parser.add_argument("points", metavar="POINTS", nargs="?", default=os.path.join(gpu_plan.ROOT, "bench", "gpu_points.txt"))
    options = parser.parse_args()
    try:
        points = gpu_plan.read_points(options.points)
        os.makedirs(os.path.join(options.bundle, "references"), exist_ok=True)
        made = [make(options.program, options.bundle, name, words) for block, name, _, kind, words in points
                if gpu_plan.has_reference(block, kind, words)]
    except (OSError, ValueError) as error:
        parser.error(str(error))
    except subprocess.CalledProcessError as error:
        print(f"gpu_references.py: {' '.join(error.cmd)}: exit code {error.returncode}, expected 0", file=sys.stderr)
        return 1
    print(f"references of {len(made)} points: {sum(size for _, size in made) / 1024:.0f} KiB, "
          f"{sum(seconds for seconds, _ in made):.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
