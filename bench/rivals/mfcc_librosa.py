#!/usr/bin/env python3
"""librosa's MFCC beside `bppsa bench mfcc`: the same channel of three seconds, one thread, in one run.

    bench/rivals/mfcc_librosa.py --program build/cpu/bppsa [--out F.json] [--quick] [--padding constant|reflect]
                                 [--repeats N] [--seed S]

For every set librosa runs half of its repeats, then the program runs, then librosa runs the other half, so that both see the same
machine. librosa is given the samples as float64, as the features are defined, and as float32, which is what its own loader
returns and a little faster; the scaling over the frames is timed with it, as it is in the program. The channel is the left one of
the file that `bppsa data instruments` writes first. The program's features of that file are compared with librosa's: a difference
of 1e-4 or more fails. Prints a table of milliseconds; --out writes the program's JSON document with rows of method "librosa"
(dtype f64) and "librosa f32" added. Needs librosa and exits 77 without it; exits 1 when a row failed its check.
"""
import json
import os
import sys
import tempfile
import time
import wave

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"
import beside
from noise import mark, timing

try:
    import librosa
    import numpy as np
except ImportError as missing:
    print(f"mfcc_librosa: skipped, {missing} (pip install librosa)")
    sys.exit(77)

SETS = {"S": (20, 4096, 512), "M": (13, 2048, 256), "L": (7, 1024, 128)}
TOLERANCE = 1e-4


def parse():
    p = beside.parser(__doc__, "a tenth of the time")
    p.add_argument("--padding", choices=["constant", "reflect"], default="constant", help="[constant]")
    p.add_argument("--repeats", type=int, help="timed repeats of every row [as a time budget allows, at least 4]")
    p.add_argument("--seed", type=int, default=0, help="of the sound [0]")
    return p.parse_args()


def run(o, *words):
    return beside.run(o, *words, accepted=(0, 1))


def features(y, which, padding):
    n_mfcc, n_fft, hop = SETS[which]
    c = librosa.feature.mfcc(y=y, sr=44100, n_mfcc=n_mfcc, n_fft=n_fft, hop_length=hop, pad_mode=padding)[1:]
    return ((c - c.mean(axis=1, keepdims=True)) / c.std(axis=1, keepdims=True)).T


def measure_half(y, which, padding, repeats, budget):
    times, start = [], time.perf_counter()
    while len(times) < (repeats or 2) or (not repeats and time.perf_counter() - start < budget):
        begin = time.perf_counter()
        features(y, which, padding)
        times.append(time.perf_counter() - begin)
    return times


def load(o, directory):
    """The samples of file 0, and the program's features of its left channel, by set."""
    place = os.path.join(directory, "one")
    run(o, "data", "instruments", "--files", 1, "--seed", o.seed, "--out", place)
    with wave.open(os.path.join(place, "cel", "cel_000000.wav")) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")[::2].astype(np.float64)
    mine = {}
    for which, (n_mfcc, _, _) in SETS.items():
        x = os.path.join(directory, which + ".npy")
        run(o, "data", "irmas", place, "--set", which, "--padding", o.padding, "--out-x", x,
            "--out-y", os.path.join(directory, "y.npy"))
        mine[which] = np.load(x)[0, :, : n_mfcc - 1]
    return samples, mine


def rival_row(row, method, times, difference):
    row = dict(row)
    for key in ("fft_s", "fft_share"):
        row.pop(key, None)
    row.update(timing(times), method=method, difference=difference, ok=difference < TOLERANCE)
    return row


def over(row, own):
    """How many times the program's time a row is; "~" where one of them is noisy, since nothing follows from it."""
    return mark(row) or mark(own) or f"{row['median_s'] / own['median_s']:.1f}x"


def main():
    o = parse()
    whole, failed = None, 0
    with tempfile.TemporaryDirectory() as directory:
        samples, mine = load(o, directory)
    half, budget = (o.repeats + 1) // 2 if o.repeats else None, 0.1 if o.quick else 1.0
    print(f"librosa {librosa.__version__}, numpy {np.__version__}, 1 thread; milliseconds a channel of 3 s, medians")
    print(f"{'set':>5s}{'bppsa':>9s}{'FFT':>8s}{'share':>7s}{'librosa f64':>13s}{'':8s}{'librosa f32':>13s}{'':8s}"
          f"{'difference':>12s}")
    for which in SETS:
        inputs = {"librosa": samples, "librosa f32": samples.astype(np.float32)}
        times = {}
        for method, y in inputs.items():
            features(y, which, o.padding)
            times[method] = measure_half(y, which, o.padding, half, budget)
        document = json.loads(run(o, "bench", "mfcc", "--set", which, "--padding", o.padding, "--seed", o.seed, "--json",
                                  *(["--repeats", o.repeats] if o.repeats else []), *(["--quick"] if o.quick else [])))
        for method, y in inputs.items():
            times[method] += measure_half(y, which, o.padding, half, budget)
        own = document["rows"][0]
        if own["median_s"] is None:
            sys.exit(f"mfcc_librosa: {which}: the program's features are wrong and were not timed, nothing to compare with")
        difference = float(np.abs(mine[which] - features(samples, which, o.padding)).max())
        rows = [own] + [rival_row(own, method, times[method], difference) for method in inputs]
        failed += sum(not row["ok"] for row in rows)
        own_ms = mark(own) + format(1e3 * own["median_s"], ".2f")
        print(f"{which:>5s}{own_ms:>9s}{1e3 * own['fft_s']:8.2f}{100 * own['fft_share']:6.0f}%" +
              "".join(f"{mark(row) + format(1e3 * row['median_s'], '.2f'):>13s}{over(row, own):>8s}" for row in rows[1:]) +
              f"{difference:12.1e}", flush=True)
        if whole is None:
            whole = document
            whole["device"]["librosa"] = librosa.__version__
            whole["rows"] = []
        whole["rows"] += rows
    if o.out:
        beside.write(o.out + ".part", whole)
        os.replace(o.out + ".part", o.out)
    if failed:
        print(f"{failed} rows failed their check")
    return 1 if failed else 0


sys.exit(main())
