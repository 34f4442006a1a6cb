"""Measures the worst inputs that each reader accepts: peak memory and processor seconds of a process of the program.

    python3 bench/scripts/limits.py build/cpu/bppsa bench/results/limits.json

Inputs are made in a temporary directory. Readers of texts and of compressed data must stay below 1 GiB and 5 s; readers of plain
arrays below 2.5 bytes for each byte of the file. Exits 1 if one does not.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

import results_file
from program import executable, npy_header, plain_parser, processor

MIB = 1 << 20
JSON, CSV, MTX, MTX_ROWS, INFLATED, NPY_HEADER, LAYERS = 8 * MIB, 8 * MIB, 64 * MIB, 16 * MIB, 96 * MIB, MIB, 4096
ORACLE_LAYERS = 32768
ROWS, POINTS = 1024, 2048  # of results
MEMORY, SECONDS, RATIO = 1 << 30, 5.0, 2.5


def fill(head, unit, tail, size):
    """head, as many units as fit into size bytes, tail; without the comma behind the last unit"""
    return (head + unit * ((size - len(head) - len(tail)) // len(unit))).rstrip(b",") + tail


def write(path, data, size=None):
    """writes the data, then zeros that take no room on the disk until the file has `size` bytes"""
    with open(path, "wb") as file:
        file.write(data)
        if size is not None:
            file.truncate(size)


def write_npz(path, rows, entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("format.npy", npy_header("|S3", ()) + b"csr")
        archive.writestr("shape.npy", npy_header("<i8", (2,)) + struct.pack("<qq", rows, 1))
        for name, descr, count in (("indptr", "<i4", rows + 1), ("indices", "<i4", entries), ("data", "<f4", entries)):
            header = npy_header(descr, (count,))
            archive.writestr(name + ".npy", header + bytes(4 * count))


def numbered(unit, size):
    """unit % 0, unit % 1, .. with commas between, at most size bytes"""
    parts, used = [], 0
    while used < size - 100:
        parts.append(unit % len(parts))
        used += len(parts[-1]) + 1
    return b",".join(parts)


def sized(head, unit, count, tail=b"\n"):
    """head, then unit % 0, unit % 1, ..: so many, or as many as fit into a schedule"""
    parts, used = [head], len(head) + len(tail)
    for i in range(count):
        part = unit % ((i,) * unit.count(b"%"))
        used += len(part)
        if used > CSV:
            break
        parts.append(part)
    return b"".join(parts) + tail


def schedules():
    """names and texts of schedules as CSV, each as large as is accepted in one way"""
    many = 10 * CSV
    one = b"scheme=gpipe,stages=1,micro-batches=1,layers=2\n0,F0@0v0,B0@0v0,STEP@0v1"
    yield "backward passes", fill(b"scheme=gpipe,stages=1,micro-batches=1000000\n0", b",B0@0", b"\n", CSV)
    yield "bookkeeping", fill(one, b",STASH0@0", b"\n", CSV)
    yield "SYNCs", sized(b"scheme=gpipe,stages=1,micro-batches=1,layers=1000000\n0", b",SYNC@0:%dx1", many)
    yield "layers of operations", b"scheme=gpipe,stages=1,micro-batches=4,layers=1000000\n0" + 33 * b",F0@0" + b"\n"
    yield "cells of tables", b"scheme=chimera,stages=64,micro-batches=1,replicas=64,layers=65536,scale=2,recompute=1\n0\n"
    yield "workers", b"scheme=scan-chunked,stages=131072,elements=131073\n0,APPLY0@0:0x131072\n"
    yield "readers of a result", sized(b"scheme=gpipe,stages=1,micro-batches=1,width=131072\n0,F0@0", b"\n%d,B0@0", 131072).replace(
        b"\n0,B0@0", b"", 1)
    stages = range(100000)
    yield "senders of a receiver", (
        b"scheme=gpipe,stages=100000,micro-batches=1\n99999" + b"".join(b",F0@%dv0" % s for s in stages[1::2]) +
        b"".join(b",B0@%dv0,STEP@%dv1" % (s, s) for s in stages[::-2]) +
        b"".join(b"\n%d,F0@%dv0,B0@%dv0,STEP@%dv1" % (s, s, s, s) for s in stages[::2]) + b"\n")
    steps = b"".join(b",STEP@0:%dx1" % (1999 * i % 4000) for i in range(4000))
    yield "dependencies", (b"scheme=gpipe,stages=1,micro-batches=1000,layers=4000\n0" + steps +
                           b"".join(b",F%d@0" % (i % 1000) for i in range(2090)) + b"\n")
    yield "transfers", (b"scheme=gpipe,stages=1,width=1000,micro-batches=1,layers=4000\n0" + steps +
                        b"".join(b"\n%d,F0@0" % w for w in range(1, 391)) + b"\n")
    row = b"".join(b",F%d@1" % i for i in range(1000))
    yield "pairs of workers", (b"scheme=gpipe,stages=2,width=500,micro-batches=2\n0" + row.replace(b"@1", b"@0") +
                               b"".join(b"\n%d%s" % (w, row) for w in range(1, 1000)))[:CSV - 20].rsplit(b",", 1)[0] + b"\n"
    scan = b"scheme=scan-blelloch,stages=1,elements=1000000\n0"
    yield "carries of a scan", sized(scan, b",CARRY0@0:0x%d", many).replace(b"x0,", b"x1,", 1)
    yield "products of a scan", sized(scan, b",PRODUCT0@0:0x%d.1", many).replace(b"x0.", b"x2.", 1)
    yield "a scan's layers", scan + b",APPLY0@0:0x999999" + 99000 * b",PRODUCT0@0:0x999999" + b"\n"
    trip = b",PREDICT%d@0v%d,F%d@0v%d,PREDICT%d@0v%d,B%d@0v%d,STEP@0v%d"
    yield "predictions", (b"scheme=spectrain,stages=1,micro-batches=80000,layers=1\n0" +
                          b"".join(trip % ((i,) * 8 + (i + 1,)) for i in range(80000)) + b"\n")
    trips = (trip % ((i,) * 8 + (i + 1,)) for i in range(1024))
    yield "layers of transfers", b"scheme=gpipe,stages=1,micro-batches=1,width=636,layers=6360\n" + b"\n".join(
        b"%d,F%d@0/%dv0" % (r, r, r) + b"".join(b",B%d@0/%d:%dx10v0" % (m, r, 10 * r) for m in range(636)) +
        b",SYNC@0/%d,STEP@0/%dv1" % (r, r) for r in range(636)) + b"\n"
    yield "layers of predictions", b"scheme=spectrain,stages=1,micro-batches=1024,layers=4096\n0" + b"".join(trips) + b"\n"


def results():
    """the benchmark and the rows of documents whose figures take gnuplot the longest"""
    time = {"median_s": 1, "min_s": 1, "max_s": 1, "same_bits": True, "noisy": False}
    best = {"min_train_loss": 1, "min_validation_loss": 1, "max_validation_accuracy": 1}
    yield "staleness", [{"study": "accuracy", "task": "t%d" % (i % 4), "scheme": "s%d" % (i // 4), **best,
                         "epochs": [[1, k % 9, k % 5] for k in range(POINTS // 32)]} for i in range(32)]
    yield "staleness", [{"study": "rmse", "task": "t%d" % (i % 4), "optimizer": "o%d" % (i // 4), "ahead": 1 + i % 3, "stale": 1,
                         "predicted": 1, "nearer": 1, "curve": [[k, 1 + k % 7, 1] for k in range(POINTS // 16)]} for i in range(16)]
    yield "ranks", [{"network": "n%d" % (i % 4), "method": "m%d" % (i // 4 % 64), "ranks": 1 + i // 16, "held_bytes": 1, "batch": 1,
                     "share": ("time", "batch")[2 * i // ROWS], **time} for i in range(ROWS)]
    yield "out_of_order", [{"group": "g%d" % (i % 8), "way": "w%d" % (i // 8 % 64), **time} for i in range(ROWS)]
    forward = {"model": "rnn", "init": "default", "phase": "forward", "hidden": 20, **time}
    yield "forward", [{**forward, "seq_len": i // 2 + 1, "batch": 1, "method": ("sequential", "speculative")[i % 2]}
                      for i in range(ROWS)]
    yield "forward", [{**forward, "seq_len": 1, "batch": 2, "iterations": i, "train_seed": i % 64, "path": 1, "possible": 2,
                       "work": 1, "tails": 0, "method": "speculative"} for i in range(ROWS)]


def cases(program):
    """name, arguments, the array file whose size bounds the memory (or None); each after its files are written"""
    costs = "schedule 1f1b --stages 2 --micro-batches 2 --costs f.json"
    for name, unit in (("objects", b"{},"), ("lists", b"[1],"), ("numbers", b"1,"), ("texts", b'"",')):
        write("f.json", fill(b'{"forward":[', unit, b"]}", JSON))
        yield "JSON: " + name, costs, None
    write("f.json", b"{" + numbered(b'"%x":1', JSON) + b"}")
    yield "JSON: keys", costs, None
    write("f.json", fill(b'{"configuration":{},"rows":[', b"{},", b"]}", JSON))
    yield "JSON: results", "figures --results f.json --out figures", None
    for bench, rows in results():
        write("f.json", json.dumps({"bench": bench, "rows": rows}).encode())
        yield "results of " + bench, "figures --results f.json --out figures", None
    layer = b'{"name":"a%d","op":"conv2d","out":1,"kernel":[1,1]},'
    write("f.json", b'{"input":[1,8,8],"layers":[' + b"".join(layer % i for i in range(LAYERS - 1)) +
          b'{"name":"z","op":"linear","out":2}]}')
    yield "network file: layers", "plan f.json", None
    layers = (b'{"name":"%x","kind":"linear","in":[1],"out":[1],"w":1}' % i for i in range(ORACLE_LAYERS))
    write("f.json", b'{"name":"m","samples":50000,"layers":[' + b",".join(layers) + b"]}")
    yield "oracle model: layers", "oracle f.json h200x4", None
    for name, text in (("objects", fill(b'{"a":[', b"{},", b"]}", JSON)),
                       ("tensors", b"{" + numbered(b'"%x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}', JSON) + b"}"),
                       ("metadata", b'{"__metadata__":{' + numbered(b'"%x":""', JSON) + b"}}")):
        write("f.safetensors", struct.pack("<Q", len(text)) + text)
        yield "safetensors header: " + name, "prune --weights f.safetensors --fraction 0.5 --out m.safetensors", None
    write("f.csv", fill(b"scheme=1f1b,stages=1,micro-batches=1000000\n0", b",F0@0", b"\n", CSV))
    yield "schedule CSV: operations", "schedule --load f.csv", None
    for name, text in schedules():
        write("f.csv", text)
        yield "schedule CSV: " + name, "schedule --load f.csv --json --csv g.csv --trace f.trace", None
    subprocess.run([program] + "schedule gpipe --stages 600 --micro-batches 630 --csv f.csv".split(), check=True,
                   stdout=subprocess.DEVNULL)
    yield "schedule CSV: a valid one of %d bytes" % os.path.getsize("f.csv"), "schedule --load f.csv", None
    yield ("schedule CSV: the same for train", "train rnn --seq-len 2 --hidden 1 --samples 32 --batch 16 --ranks 1 --split f.csv "
           "--iterations 1", None)
    subprocess.run([program] + "schedule gpipe --stages 400 --micro-batches 436 --csv f.csv".split(), check=True,
                   stdout=subprocess.DEVNULL)
    yield "schedule CSV: the longest trace", "schedule --load f.csv --json --csv g.csv --trace f.trace", None
    head = b"%%MatrixMarket matrix coordinate pattern general\n"
    product = "bench product --left f.%s --right none.%s"
    count = (MTX - len(head) - 20) // 4
    write("f.mtx", head + b"1 1 %d\n" % count + b"1 1\n" * count)
    yield "Matrix Market: entries", product % ("mtx", "mtx"), None
    rows = b"".join(b"%d %d\n" % (r, c) for r in range(2600, 0, -1) for c in range(2600, 0, -1))[:MTX - 200]
    rows = rows[:rows.rindex(b"\n") + 1]
    write("f.mtx", head + b"%d 2600 %d\n" % (MTX_ROWS, rows.count(b"\n")) + rows)
    yield "Matrix Market: rows, entries in reverse", product % ("mtx", "mtx"), None
    most = (INFLATED - 200) // 4
    write_npz("f.npz", most - 1, most)
    yield "NPZ: compressed members", product % ("npz", "npz"), None
    write("f.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", NPY_HEADER) +
          fill(b"{'descr': '<i8', 'fortran_order': False, 'shape': (", b"1,", b")}", NPY_HEADER))
    yield "NPY header", "train rnn --seq-len 5 --order f.npy --iterations 1", None
    for folder in ("cel", "cla"):
        os.makedirs("wav/" + folder)
        size = (4 << 30) - 100
        write("wav/%s/1.wav" % folder, b"RIFF" + struct.pack("<I", size + 36) + b"WAVEfmt " +
              struct.pack("<IHHIIHH", 16, 1, 2, 384000, 384000 * 4, 4, 16) + b"data" + struct.pack("<I", size), size + 44)
    yield "WAV: 4 GiB", "data irmas wav --out-x x.npy --out-y y.npy", None

    header = npy_header("<f4", (1024, 512, 512))
    write("x.npy", header, len(header) + (1 << 30))
    header = npy_header("<i8", (1024,))
    write("y.npy", header, len(header) + 8192)
    yield "NPY: 1 GiB of samples", "train rnn --data npy:x.npy,y.npy --iterations 1 --batch 1 --hidden 1", "x.npy"
    header = b'{"a":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}' % (1 << 28, 1 << 30)
    write("f.safetensors", struct.pack("<Q", len(header)) + header, len(header) + 8 + (1 << 30))
    yield "safetensors: 1 GiB", "prune --weights f.safetensors --fraction 0.5 --out m.safetensors", "f.safetensors"
    os.makedirs("cifar")
    write("cifar/data_batch_1.bin", b"", 3073 * 340000)
    yield "CIFAR-10: 1 GiB", "train lenet5 --data cifar10:cifar --iterations 1 --batch 4", "cifar/data_batch_1.bin"


def measure(program, arguments):
    start = time.time()
    child = os.fork()
    if child == 0:
        with open("said.txt", "wb") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        os.execv(program, [program] + arguments.split())
    _, status, usage = os.wait4(child, 0)
    with open("said.txt", errors="replace") as said:
        lines = said.read().strip().split("\n")
    return {"exit": os.waitstatus_to_exitcode(status), "peak_bytes": usage.ru_maxrss * 1024,
            "processor_s": round(usage.ru_utime + usage.ru_stime, 2), "elapsed_s": round(time.time() - start, 2),
            "said": lines[-1][:120]}


def main():
    parser = plain_parser(__doc__)
    parser.add_argument("program", type=executable, help="the bppsa program")
    parser.add_argument("out", type=os.path.abspath, help="where the JSON document goes")
    o = parser.parse_args()
    program, out = o.program, o.out
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()
    rows, good = [], True
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        for name, arguments, array in cases(program):
            row = {"case": name, "command": arguments} | measure(program, arguments)
            if array is not None:
                row["bytes_per_byte"] = round(row["peak_bytes"] / os.path.getsize(array), 2)
            held = row["bytes_per_byte"] <= RATIO if array else row["peak_bytes"] <= MEMORY and row["processor_s"] <= SECONDS
            row["within"] = held and row["exit"] in (0, 1, 2)
            good = good and row["within"]
            rows.append(row)
            print("%-45s %7.1f MiB %6.2f s  exit %d%s" % (name, row["peak_bytes"] / MIB, row["processor_s"], row["exit"],
                                                       "" if row["within"] else "  TOO MUCH"), flush=True)
        os.chdir("/")
    document = {"bench": "limits", "commit": version[-1], "device": processor(), "memory_bytes": MEMORY, "processor_s": SECONDS,
                "rows": rows}
    results_file.write(out, document)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
