#!/usr/bin/env python3
"""Writes mfcc_golden.txt beside this script: librosa's MFCC of signals that tests/audio/test_mfcc.c makes again.

    python3 -m venv V && V/bin/pip install librosa && V/bin/python tests/audio/make_mfcc_golden.py

Every signal is 132300 whole numbers in the range of int16, given to librosa as float64. The first coefficient is dropped, and each
of the others is scaled to zero mean and unit variance over the frames. The file has the frames that FRAMES lists; negative numbers
count from the end. A line holds `signal padding set frame` and the frame's values; lines that begin with # name the versions that
computed them.
"""
import datetime
import os
import platform

import librosa
import numpy as np
import scipy

RATE, SAMPLES = 44100, 132300
SETS = {"S": (20, 4096, 512), "M": (13, 2048, 256), "L": (7, 1024, 128)}
FRAMES = [0, 1, 2, 50, 129, -4, -2, -1]
T = np.arange(SAMPLES)


def generator():
    """The upper 16 bits of x -> 6364136223846793005 x + 1442695040888963407 mod 2^64 from x = 1, as int16."""
    x, out = 1, np.empty(SAMPLES)
    for i in range(SAMPLES):
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        high = x >> 48
        out[i] = high - 65536 if high >= 32768 else high
    return out


def sine(hz):
    """sin(2 pi hz t / RATE)"""
    return np.sin(2 * np.pi * hz * (T / RATE))


def chirp():
    """20 Hz to 20 kHz, linearly in 3 s."""
    s = T / RATE
    return np.rint(20000 * np.sin(2 * np.pi * (20 * s + (20000 - 20) / 6 * s * s)))


def signals():
    noise = generator()
    fading = 1 - T / SAMPLES
    yield "noise", np.rint(noise / 16)
    yield "tones", np.rint(9000 * fading * sine(440) + 5000 * sine(1234.5) * (T >= 40000) + 300 * fading * fading * sine(9876))
    yield "chirp", chirp()
    yield "clipped", np.clip(np.rint(50000 * sine(313) + noise / 8), -32768, 32767)
    yield "onset", np.where(T < 60000, 0, np.rint(noise / 512))  # digital silence, then noise


def features(y, padding, n_mfcc, n_fft, hop):
    c = librosa.feature.mfcc(y=y, sr=RATE, n_mfcc=n_mfcc, n_fft=n_fft, hop_length=hop, pad_mode=padding)[1:]
    return ((c - c.mean(axis=1, keepdims=True)) / c.std(axis=1, keepdims=True)).T


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mfcc_golden.txt")
    with open(path, "w") as file:
        file.write(f"# Written by make_mfcc_golden.py: librosa {librosa.__version__}, numpy {np.__version__}, "
                   f"scipy {scipy.__version__}, Python {platform.python_version()}, {datetime.date.today()}\n")
        for name, y in signals():
            for padding in ("constant", "reflect"):
                for which, (n_mfcc, n_fft, hop) in SETS.items():
                    x = features(y.astype(np.float64), padding, n_mfcc, n_fft, hop)
                    assert x.shape == (1 + SAMPLES // hop, n_mfcc - 1) and np.isfinite(x).all()
                    for f in FRAMES:
                        f %= len(x)
                        file.write(f"{name} {padding} {which} {f} " + " ".join(f"{v:.7f}" for v in x[f]) + "\n")


main()
