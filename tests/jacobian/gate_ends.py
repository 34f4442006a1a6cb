#!/usr/bin/env python3
"""One-step Jacobians and slopes far from 0 against decimal numbers of 80 digits: gate_ends.py BPPSA DIRECTORY.

Runs `bppsa jacobian` of tanh, sigmoid, rnn, gru and lstm in both types, with pre-activations from -80 to 80. W_hh has one weight of
each gate in every row, each in a column of its own, so that every entry of the matrix is one product. Prints how many entries were
compared, or names the first that differs and exits 1.
"""
import decimal
import json
import os
import random
import struct
import subprocess
import sys
from decimal import Decimal

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "bench", "scripts"))
from program import save_npy  # noqa: E402

program, directory = sys.argv[1:3]
os.makedirs(directory, exist_ok=True)
decimal.getcontext().prec = 80
TYPES = { # as NumPy, struct and safetensors name them; the least normal number; the largest relative error
    "f32": ("<f4", "f", "F32", Decimal(2) ** -126, Decimal("4e-7")),
    "f64": ("<f8", "d", "F64", Decimal(2) ** -1022, Decimal("1e-15"))}
compared = 0


def logistic(x):
    return 1 / (1 + (-x).exp())


def logistic_slope(x):
    return logistic(x) * logistic(-x)


def tanh(x):
    return 2 * logistic(2 * x) - 1


def tanh_slope(x):
    return 4 * logistic_slope(2 * x)


def write_npy(name, dtype, values):
    path = os.path.join(directory, name)
    save_npy(path, TYPES[dtype][0], (len(values),), values)
    return path


def write_weights(name, dtype, tensors):
    head, body = {}, b""
    for key, (shape, values) in tensors.items():
        data = struct.pack("<%d%s" % (len(values), TYPES[dtype][1]), *values)
        head[key] = {"dtype": TYPES[dtype][2], "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    path = os.path.join(directory, name)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)
    return path


def matrix(dtype, *arguments):
    """The entries {(row, column): value} that the program writes."""
    path = os.path.join(directory, "J.mtx")
    subprocess.run([program, "jacobian", *arguments, "--dtype", dtype, "--out", path], check=True, stdout=subprocess.DEVNULL)
    with open(path) as file:
        lines = [line.split() for line in file if not line.startswith("%")][1:]
    return {(int(row) - 1, int(column) - 1): Decimal(value) for row, column, value in lines}


def compare(what, dtype, got, expected, rounded=Decimal(0)):
    """rounded: the relative error, in roundings of f64, that a sum brings in which may cancel."""
    global compared
    least, allowed = TYPES[dtype][3:]
    if abs(expected) < least * (1 + allowed):
        good = abs(got) <= 2 * least
    else:
        good = abs(got - expected) <= (allowed + rounded * Decimal(2) ** -52) * abs(expected)
    if not good:
        sys.exit("%s, %s: %s, expected %.20g" % (what, dtype, got, expected))
    compared += 1


def slopes(dtype):
    values = [x / 4 for x in range(-320, 321)] + [2.0 ** -k for k in range(4, 40)]
    path = write_npy("x.npy", dtype, values)
    for name, slope in (("tanh", tanh_slope), ("sigmoid", logistic_slope)):
        entries = matrix(dtype, name, "--in-shape", str(len(values)), "--input", path)
        for i, x in enumerate(values):
            compare("%s of %g" % (name, x), dtype, entries[i, i], slope(Decimal(x)))


# What a step's entries are made of: the factor of each gate, that of the state before, and how much sums magnify roundings.


def rnn(x, h, before):
    return [tanh_slope(x[0] + h[0])], None, Decimal(0)


def gru(x, h, before):
    r, z, m = x[0] + h[0], x[1] + h[1], h[2]
    n = x[2] + logistic(r) * m
    inner = logistic(-z) * tanh_slope(n)
    factors = [inner * m * logistic_slope(r), (before - tanh(n)) * logistic_slope(z), inner * logistic(r)]
    moves = min(abs(tanh(n)), 1 - abs(tanh(n))) # what a rounding of n's pre-activation does to n, relative to it
    return factors, logistic(z), abs(n) + (1 + abs(n)) * moves / abs(before - tanh(n))


def lstm(x, h, before):
    i, f, g, o = (x[k] + h[k] for k in range(4))
    c = logistic(f) * before + logistic(i) * tanh(g)
    through = logistic(o) * tanh_slope(c)
    inner = [tanh(g) * logistic_slope(i), before * logistic_slope(f), logistic(i) * tanh_slope(g)]
    magnified = (abs(before) * logistic(f) + logistic(i) * abs(tanh(g))) / abs(c)
    return [d * through for d in inner] + [tanh(c) * logistic_slope(o)], logistic(f) * through, magnified


def step(dtype, name, gates, factors, drawn):
    """All numbers are multiples of 1/16, so that pre-activations are not rounded in f64, but for r m beside the bias of n."""
    units, pair = 96, name == "lstm"

    def sixteenths(count, most):
        return [drawn.choice([-1, 1]) * drawn.randrange(1, most * 16) / 16 for _ in range(count)]

    w = [sixteenths(units, 1) for _ in range(gates)]
    b_ih = [[5.0 * (c % 33 - 16) if (c // 33 + k) % 3 != 1 else sixteenths(1, 2)[0] for c in range(units)] for k in range(gates)]
    w_ih, x, h, before = [sixteenths(units, 1) for _ in range(gates)], sixteenths(1, 1), sixteenths(units, 1), sixteenths(units, 1)
    if pair: # c stays small, as tanh'(c) is not what is tested
        b_ih[2] = sixteenths(units, 2)
    w_hh = [0.0] * (gates * units * units)
    for k in range(gates):
        for c in range(units):
            w_hh[(k * units + c) * units + (c + k + 1) % units] = w[k][c]
    flat = [value for row in b_ih for value in row]
    tensors = {"%s.weight_ih_l0" % name: ([gates * units, 1], [value for row in w_ih for value in row]),
               "%s.weight_hh_l0" % name: ([gates * units, units], w_hh),
               "%s.bias_ih_l0" % name: ([gates * units], flat), "%s.bias_hh_l0" % name: ([gates * units], [0.25] * len(flat)),
               "linear.weight": ([1, units], [0.0] * units), "linear.bias": ([1], [0.0])}
    arguments = [name, "--weights", write_weights("w.safetensors", dtype, tensors), "--input", write_npy("x.npy", dtype, x), "--h0",
                 write_npy("h.npy", dtype, h)]
    entries = matrix(dtype, *arguments, *(["--c0", write_npy("c.npy", dtype, before)] if pair else []))
    for c in range(units):
        of_x = [Decimal(b_ih[k][c]) + Decimal(w_ih[k][c]) * Decimal(x[0]) for k in range(gates)]
        of_h = [Decimal("0.25") + Decimal(w[k][c]) * Decimal(h[(c + k + 1) % units]) for k in range(gates)]
        d, e, magnified = factors(of_x, of_h, Decimal((before if pair else h)[c]))
        rounded = 4 * magnified + (16 if pair else 0)
        for k in range(gates):
            compare("%s, unit %d, gate %d, biases %s" % (name, c, k, [row[c] for row in b_ih]), dtype,
                    entries[(c + k + 1) % units, c], d[k] * Decimal(w[k][c]), rounded)
        if e is not None:
            compare("%s, unit %d, diagonal" % (name, c), dtype, entries[(units + c if pair else c), c], e, rounded)


for kind in TYPES:
    slopes(kind)
    numbers = random.Random(7)
    step(kind, "rnn", 1, rnn, numbers)
    step(kind, "gru", 3, gru, numbers)
    step(kind, "lstm", 4, lstm, numbers)
print("%d entries have their digits" % compared)
