#!/usr/bin/env python3
"""What bench/gpu.sh would run, point by point, and how long it is predicted to take. `bench/gpu.sh --plan` is

    bench/scripts/gpu_plan.py bench/gpu_points.txt

The predictions come from what an H200 took (bench/results/h200): the times of cuDNN's algorithms and of the project's passes, the
seconds of every test, and the fixed costs of a run, which CONSTANTS lists. Programs that do not exist yet have predictions too.
Exits 1 where a point is predicted to take longer than it has, or the blocks N, A, E, B longer than 315 s, or all to R longer than
495 s.
"""
import argparse
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
H200 = os.path.join(ROOT, "bench", "results", "h200")
# The blocks up to the last one of each, and the seconds that they may take together.
LIMITS = [("NAEB", 315), ("NAEBCDR", 495)]
CELLS = {"rnn": 1, "gru": 3, "lstm": 4}  # gates
CONSTANTS = {
    "start_s": 1.5,  # a process: the context, cuDNN's library, the kernels' code
    # An algorithm of cuDNN that is entered: handle, descriptors, two graphs. Eight points of rnn.json, ten algorithms each, began
    # at most 35 s before gru.json, with 13 s of rounds, most of them twice, and the start of one process. Since then two more are
    # entered, and beside --cudnn-dtype eight.
    "algorithm_s": 0.2,
    "algorithms": 12,  # entered at the shortest T of a shape; at a longer T two are left, which both qualified
    "winners": 2,
    # A round at one point, seconds a step (T = 1000, B = 16, H = 20, RNN): the project's rows, the rivals that qualify, queued and
    # recorded, and all others (rnn_1000.json). All make five passes while they are verified and qualify.
    "own_s": 1.9e-6,
    "winners_s": 3.6e-6,
    "others_s": 2.75e-4,
    "other_passes": 5,
    # The references that the bundle lacks, in float64 and float32 on the processor, a sample and step of an RNN with H = 20:
    # three passes forward and two backward, of which one of each takes 36 ms at T = 30000, B = 16 on one core (rnn_cpu.json;
    # float64 twice as long).
    "reference_s": 2.7e-7,
    "sweep_s": 3e-5,  # two sweeps of --cold: 2 x 50 MB each, at half of the bandwidth of a copy; some 40 rows
    "rounds_twice": 1.5,  # rounds that are noisy run again
    # Guessed: to enter all methods of bench/rivals/libraries.py, which imports PyTorch and JAX beside what comes before. On two
    # busy cores (a GRU, T = 500, B = 64, H = 128) JAX's four scans took 33 s, torch_scan's methods 8, 18 and 41 s.
    "rivals_s": 44,
    # A round of the ten rows of `bench step`, seconds a step, and the passes in front of the rounds: from the passes of
    # rnn_1000.json 165, 149, 95 and 83 us, queued and recorded, with as much for speculative BP as for the fastest of them.
    # PyTorch's two rows take cuDNN's standard algorithm.
    "step_own_s": 1.1e-6,
    "step_passes": 2,
    "step_pytorch_s": 1.7e-5,
    "step_rivals_s": 8,  # guessed: the rivals are imported, and JAX compiles nothing
}


def load(name):
    with open(os.path.join(H200, name), encoding="utf-8") as file:
        return json.load(file)


def options_of(words):
    """{"--seq-len": "1000", ..}; an option without a value has none."""
    found = {}
    for i, word in enumerate(words):
        if word.startswith("--"):
            found[word] = words[i + 1] if i + 1 < len(words) and not words[i + 1].startswith("--") else None
    return found


def shape_of(model, options):
    """B, H, networks to measure, repeats; a pass's steps, those of other cells as many of the RNN's as take as long; its width; and
    what the references take."""
    T, B, H = (int(options.get(key) or fallback) for key, fallback in (("--seq-len", 1000), ("--batch", 16), ("--hidden", 20)))
    inits = 1 if "--init" in options or "--weights" in options else 2
    # Guessed: a pass takes the same time at each B up to some 256 and each H up to some 32; cuDNN's launches hide more.
    width = max(1, B / 256) * max(1, H / 32)
    steps = T * (2 if model == "lstm" else 1.3 if model == "gru" else 1)
    reference = CONSTANTS["reference_s"] * T * B * CELLS[model] * max(1, (H / 20) ** 2 / 8)
    return B, H, inits, int(options.get("--repeats") or 11), steps, width, reference


def predict_step(options):
    """`bench step` at one point."""
    c = CONSTANTS
    _, _, inits, repeats, steps, width, reference = shape_of(options.get("--model") or "rnn", options)
    row = c["step_own_s"] + (c["step_pytorch_s"] if "--rivals" in options else 0)
    point = reference + row * steps * width * (c["step_passes"] + repeats * c["rounds_twice"])
    return c["start_s"] + inits * point + (c["step_rivals_s"] if "--rivals" in options else 0)


def has_reference(block, kind, words):
    """Whether bench/scripts/gpu_references.py makes the references of a point for the bundle. With the loss on every step they have
    the logits of every step, 1.3 MB at T = 1000, which take 20 ms to compute."""
    return block == "A" and kind == "bench" and words[0] in CELLS and options_of(words).get("--loss") != "all"


def predict_layers(model, options, seen, budget, shipped):
    """`bench rnn`, `gru` or `lstm` at one point; shipped: the bundle has its references. Rivals that take longer to begin than the
    point has are left out of it."""
    c = CONSTANTS
    B, H, inits, repeats, steps, width, reference = shape_of(model, options)
    first = (model, B, H) not in seen
    seen.add((model, B, H))
    point = (0 if shipped else reference) + c["algorithm_s"] * (c["algorithms"] if first else c["winners"])
    point += c["algorithm_s"] * (8 if "--cudnn-dtype" in options else 0)
    point += c["sweep_s"] * (c["other_passes"] + repeats) * 40 if "--cold" in options else 0
    point += (c["own_s"] + c["winners_s"]) * steps * width * (c["other_passes"] + repeats * c["rounds_twice"])
    point += c["others_s"] * steps * max(1, width / 4) * c["other_passes"] * (1 if first else 0)
    own = c["start_s"] + inits * point
    return max(own, min(own + c["rivals_s"], budget)) if "--rivals" in options else own


def predict_tests(words):
    """Side by side, four at a time, as long as the longest."""
    took = {t["test"]: t.get("seconds") or 0 for t in load("tests.json")["tests"]}
    if "all" in words:
        return sum(s for name, s in took.items() if name.startswith("test_")) / 4
    # The slowest one waits for the GPU as long as the others use it: half of what they take.
    times = sorted((took.get("test_" + word, 5) for word in words if "=" not in word), reverse=True)
    return times[0] + sum(times[1:]) / 2


def predict(block, kind, words, budget, seen):
    """Seconds, or None where nothing was measured."""
    if kind == "tests":
        return predict_tests(words)
    if kind == "sanitize":  # memcheck of two crossovers of twice the length took 30 and 36 s side by side
        return 36 if words == ["rnn", "gru"] else None
    if kind == "bench" and (words[0] in CELLS or words[0] == "step"):
        options = options_of(words)
        if any(word.startswith("%") and not os.path.exists(os.path.join(ROOT, word[1:])) for word in words):
            return budget  # the program does not exist
        if words[0] == "step":
            return predict_step(options)
        return predict_layers(words[0], options, seen, budget, has_reference(block, kind, words))
    return None


def read_points(path):
    """(block, name, seconds, kind, words) of every line."""
    points = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if not words or line.startswith("#"):
                continue
            if len(words) < 4 or not words[2].isdigit() or words[1] in [point[1] for point in points]:
                raise ValueError(f"{path}: line {number}: '{line.strip()}', expected BLOCK NAME SECONDS KIND, and a new name")
            points.append((words[0], words[1], int(words[2]), words[3], words[4:]))
    return points


def show(points):
    """Prints the plan; False where it does not fit."""
    seen, sums, order, late = set(), {}, [], []
    print(f"{'block':6}{'point':22}{'predicted':>10}{'at most':>9}")
    for block, name, budget, kind, words in points:
        seconds = predict(block, kind, words, budget, seen)
        print(f"{block:6}{name:22}{'-' if seconds is None else format(seconds, '.1f'):>10}{budget:>9}")
        if seconds is not None and seconds > budget:
            late.append(f"{name}: {seconds:.1f} s, expected at most {budget}")
        order += [block] if block not in order else []
        before = sums.get(block, (0, 0))
        sums[block] = (before[0] + (budget if seconds is None else seconds), before[1] + budget)
    print()
    for block in order:
        print(f"{block}: {sums[block][0]:.0f} s predicted, {sums[block][1]} s at most")
    for blocks, limit in LIMITS:
        predicted, most = (sum(sums.get(block, (0, 0))[i] for block in blocks) for i in (0, 1))
        print(f"{' '.join(blocks)}: {predicted:.0f} s predicted, {most} s at most, expected at most {limit}")
        if predicted > limit or most > limit:
            late.append(f"blocks {blocks}: {predicted:.0f} s predicted, {most} s at most, expected {limit}")
    for line in late:
        print(f"too long: {line}")
    return not late


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", metavar="POINTS", help="bench/gpu_points.txt")
    options = parser.parse_args()
    try:
        points = read_points(options.points)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return 0 if show(points) else 1


if __name__ == "__main__":
    sys.exit(main())
