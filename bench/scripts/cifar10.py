#!/usr/bin/env python3
"""Trains LeNet-5 on images by BP and by the scan, then prunes it to 3 % of its weights (BPPSA §3.5, 4.3).

    bench/scripts/cifar10.py --program build/cpu/bppsa --folder DIR [--epochs 10] [--retrain 12] [--data cifar10:DIR] [--out F.json]

Writes a synthetic set into DIR/cifar unless it is there, or takes --data. Then, at batches of 256 and SGD 0.01/0.9,

  curves    300 iterations by BP and by the scan with one up-level. In float64 the losses differ by less than 1e-3 at every step,
            while they fall by at least a third. For float32, whose rounding errors grow while the loss falls, the script reports
            how far the two curves are apart, and beside it how far BP in float32 ends from BP in float64.
  accuracy  epochs by BP and by the scan that auto chooses: above 50 % of the held-out part (chance is 10 %)
  pruning   80, 90, 95 and 97 % of every layer's weights are pruned; after each pruning the rest is trained on with the mask, at a
            learning rate of 0.02. The accuracy ends within five points of the one before.

Exits 1 where one of these fails. Needs Python 3 alone.
"""
import json
import os
import sys

import results_file
from program import now, parser, run

FRACTIONS = (0.8, 0.9, 0.95, 0.97)
METHODS = {"bp": ["--backward", "bp"], "scan": ["--up-levels", "1"]}


def parse():
    p = parser(__doc__, "where images, weights and masks go")
    p.add_argument("--data", help="images instead of synthetic ones")
    p.add_argument("--epochs", type=int, default=10, help="of training [10]")
    p.add_argument("--retrain", type=int, default=12, help="epochs after each step of pruning [12]")
    p.add_argument("--iterations", type=int, default=300, help="of the curves [300]")
    return p.parse_args()


def train(o, *arguments):
    return json.loads(run(o, "train", "lenet5", "--data", o.data, "--lr", 0.01, "--threads", o.threads, "--json", *arguments))


def curves(o, dtype):
    losses = [[row["loss"] for row in train(o, "--iterations", o.iterations, "--dtype", dtype, *METHODS[m])["rows"]]
              for m in METHODS]
    return losses, max(abs(a - b) for a, b in zip(*losses))


def mean(values):
    return sum(values) / len(values)


def main():
    o = parse()
    path = lambda name: os.path.join(o.folder, name)
    os.makedirs(o.folder, exist_ok=True)
    if not o.data:
        if not os.path.isdir(path("cifar")):
            run(o, "data", "cifar10", "--synthetic", "--seed", 1, "--out", path("cifar"))
        o.data = "cifar10:" + path("cifar")
    (losses, _), difference = curves(o, "f64")
    (narrow_losses, _), narrow = curves(o, "f32")
    control = max(abs(a - b) for a, b in zip(losses, narrow_losses))
    before, after = mean(losses[:20]), mean(losses[-20:])
    print(f"{o.iterations} iterations: the curves differ by at most {difference:.2e} in f64, {narrow:.2e} in f32 "
          f"(BP's in f32 from BP's in f64: {control:.2e}); the loss falls from {before:.3f} to {after:.3f}")
    failed = difference >= 1e-3 or after > before * 2 / 3
    accuracy = {}
    for name, method in dict(bp=METHODS["bp"], scan=["--algorithm", "auto"]).items():
        result = train(o, "--epochs", o.epochs, "--save-weights", path(name + ".safetensors"), *method)
        accuracy[name] = result["final"]["validation_accuracy"]
        print(f"{name:5s} {o.epochs} epochs in {result['timing']['seconds']:.0f} s: "
              f"{100 * accuracy[name]:.1f} % of the held-out images")
        failed |= accuracy[name] <= 0.5
    weights, steps = path("bp.safetensors"), {}
    for fraction in FRACTIONS:
        pruned = json.loads(run(o, "prune", "--weights", weights, "--fraction", fraction, "--method", "class-uniform", "--out",
                                path("mask.safetensors"), "--json"))
        trained = path(f"pruned_{fraction}.safetensors")
        result = train(o, "--lr", 0.02, "--epochs", o.retrain, "--weights", weights, "--mask", path("mask.safetensors"),
                       "--save-weights", trained,
                       "--algorithm", "auto")
        weights, steps[str(fraction)] = trained, result["final"]["validation_accuracy"]
        print(f"{pruned['kept']} of {pruned['weights']} weights, {o.retrain} epochs: {100 * steps[str(fraction)]:.1f} %")
    accuracy["pruned"] = steps[str(FRACTIONS[-1])]
    failed |= accuracy["pruned"] < accuracy["bp"] - 0.05
    document = {"bench": "cifar10", "data": "synthetic" if "cifar10:" + path("cifar") == o.data else "given", "epochs": o.epochs,
                "retrained": o.retrain, "iterations": o.iterations, "threads": o.threads, "program": run(o, "--version").strip(),
                "date": now(), "hardware": result["config"]["hardware"],
                "largest_difference_f64": difference, "largest_difference_f32": narrow,
                "bp_f32_from_bp_f64": control, "loss_of_the_first_20": before,
                "loss_of_the_last_20": after, "held_out_accuracy": accuracy, "pruning": steps,
                "kept": pruned["kept"], "weights": pruned["weights"]}
    if o.out:
        results_file.write(o.out, document)
    return 1 if failed else 0


sys.exit(main())
