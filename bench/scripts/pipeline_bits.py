#!/usr/bin/env python3
"""Trains networks as pipelines on 1, 2, 4 and 8 ranks, threads and processes under mpirun, and compares losses, norms of the
gradients and weights with those of one device that takes the same micro-batches, bit for bit.

    bench/scripts/pipeline_bits.py --program build/cpu/bppsa --folder DIR --out bench/results/pipeline_bits.json

50 steps of LeNet-5 in up to 4 stages, of a GRU of 16 layers and of 32 linear layers in up to 8, with every synchronous scheme that
so many ranks can run, over both transports; with --device cuda on GPUs. Halves of micro-batches, and micro-batches of two copies,
are as many as the others' micro-batches; data-parallel schemes have one of each rank. Exits 1 where a bit differs.
"""
import hashlib
import json
import os
import shutil
import sys
import time

import program
import results_file

SCHEMES = ["model-parallel", "gpipe", "1f1b", "interleaved", "gems", "chimera", "chimera --doubling", "chimera --halving",
           "chimera --replicas 4", "zb-h1", "fast-forward", "modulo", "1f1b --width 2 --sync eager", "gpipe --recompute"]
DATA_PARALLEL = ["wait-free", "priority", "reverse-first-k"]
STAGES = {"lenet5": 4, "gru16": 8, "mlp32": 8}


def words_of(o, model):
    """the words that say what is trained"""
    if model == "gru16":
        return ["gru", "--layers", 16, "--seq-len", o.seq_len, "--samples", 512]
    network = program.linear_layers(o, "mlp", 32, o.width, "relu") if model == "mlp32" else model
    return [network, "--data", program.images(o.folder, 512), "--lr", 0.01]


def blocks_of(o, ranks, split):
    """(micro-batches of an update on one device, what --micro-batches says)"""
    if split.split()[1] in DATA_PARALLEL:
        return ranks, 1
    return o.micro_batches, o.micro_batches // (2 if "--halving" in split or "--width 2" in split else 1)


def train(o, model, ranks, split, transport, blocks=None):
    """a row: digests of losses and norms, and of the weights"""
    weights = os.path.join(o.folder, "weights.safetensors")
    micros = blocks or blocks_of(o, ranks, split)[1]
    words = ["train", *words_of(o, model), "--batch", o.batch, "--iterations", o.steps, *split.split(), "--micro-batches",
             micros, "--threads", 1, "--timeout", 600, "--device", o.device, "--save-weights", weights, "--json"]
    before = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(ranks)] if transport == "mpi" else []
    begin = time.monotonic()
    document = json.loads(program.run(o, *words, *([] if before else ["--ranks", ranks]), before=before))
    with open(weights, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    steps = [[row["loss"], row["grad_norm"]] for row in document["rows"]]
    row = {"model": model, "ranks": ranks, "split": split.replace("--split ", ""), "transport": transport, "steps": len(steps),
           "micro_batches": micros, "cut": document["ranks"]["cut"], "first_loss": steps[0][0], "last_loss": steps[-1][0],
           "steps_sha256": hashlib.sha256(json.dumps(steps).encode()).hexdigest(), "weights_sha256": digest,
           "seconds": round(time.monotonic() - begin, 1)}
    return document, row


def runs_of(o, model):
    """(ranks, split, transport)"""
    for ranks in map(int, o.ranks.split(",")):
        for scheme in SCHEMES + DATA_PARALLEL:
            pairs = scheme.split()[0] in ("chimera", "gems") or "--width 2" in scheme
            even = ranks % (4 if "--replicas 4" in scheme else 2) == 0 or not pairs
            room = "--doubling" not in scheme or o.micro_batches >= 2 * ranks
            equal = o.batch % blocks_of(o, ranks, "--split " + scheme)[0] == 0
            equal = equal and (scheme != "interleaved" or o.micro_batches % ranks == 0)
            stages = ranks * (2 if scheme == "interleaved" else 1)
            if ranks <= STAGES[model] and even and room and equal and (model != "lenet5" or stages <= 11):
                for transport in o.transports.split(","):
                    yield ranks, "--split " + scheme, transport


def main():
    p = program.parser(__doc__, "for the data, the network and the weights")
    p.add_argument("--models", default="lenet5,gru16,mlp32", help="[%(default)s]")
    p.add_argument("--ranks", default="1,2,4,8", help="[%(default)s]")
    p.add_argument("--transports", default="threads,mpi" if shutil.which("mpirun") else "threads", help="[%(default)s]")
    p.add_argument("--steps", type=int, default=50, help="[%(default)s]")
    p.add_argument("--batch", type=int, default=32, help="[%(default)s]")
    p.add_argument("--micro-batches", type=int, default=8, help="[%(default)s]")
    p.add_argument("--seq-len", type=int, default=20, help="of the GRU [%(default)s]")
    p.add_argument("--device", default="cpu", help="[%(default)s]")
    p.add_argument("--width", type=int, default=64, help="of the 32 linear layers; SpecTrain has 2048 [%(default)s]")
    o = p.parse_args()
    os.makedirs(o.folder, exist_ok=True)
    rows, different, about = [], 0, {}
    for model in o.models.split(","):
        alone = {}  # the one device, by its micro-batches
        for ranks, split, transport in runs_of(o, model):
            blocks = blocks_of(o, ranks, split)[0]
            if blocks not in alone:
                about, alone[blocks] = train(o, model, 1, "--split gpipe", "threads", blocks)
                rows.append({**alone[blocks], "same_bits": True})
            about, row = train(o, model, ranks, split, transport)
            same = all(row[key] == alone[blocks][key] for key in ("steps_sha256", "weights_sha256"))
            different += not same
            rows.append({**row, "same_bits": same})
            print("%-6s %d ranks, %-7s, %-27s %d steps: loss %.9g, weights %.12s, %s, %.1f s" % (
                model, ranks, transport, row["split"] + ",", row["steps"], row["last_loss"], row["weights_sha256"],
                "the same bits" if same else "OTHER BITS", row["seconds"]), flush=True)
    if o.out:
        document = {"bench": "pipeline_bits", "hardware": about["config"]["hardware"], "commit": about["commit"],
                    "date": time.strftime("%Y-%m-%d"), "device": o.device, "batch": o.batch, "micro_batches": o.micro_batches,
                    "width": o.width, "seq_len": o.seq_len, "rows": rows}
        results_file.write(o.out, document)
    return 1 if different else 0


sys.exit(main())
