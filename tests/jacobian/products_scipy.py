#!/usr/bin/env python3
"""Holds products against SciPy's: products_scipy.py FILE.

FILE has for every pair six int64 (m, k, n, nnz of A, B and C), then per matrix int64 offsets, int32 columns and float64 values. The
script prints the number of pairs, or names the first pair that differs and exits 1.
"""
import sys

import numpy as np
import scipy.sparse as sparse

data = open(sys.argv[1], "rb").read()
at = 0


def take(dtype, count):
    global at
    array = np.frombuffer(data, dtype, count, at)
    at += array.nbytes
    return array


def take_matrix(rows, cols, nnz):
    ptr = take(np.int64, rows + 1)
    col = take(np.int32, nnz)
    values = take(np.float64, nnz)
    return sparse.csr_matrix((values, col, ptr), shape=(rows, cols))


def like(matrix, values):
    return sparse.csr_matrix((values, matrix.indices, matrix.indptr), shape=matrix.shape)


def keys(matrix):
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    return rows * matrix.shape[1] + matrix.indices


pairs = 0
np.seterr(all="ignore")
while at < len(data):
    m, k, n, na, nb, nc = take(np.int64, 6)
    a, b, c = take_matrix(m, k, na), take_matrix(k, n, nb), take_matrix(m, n, nc)
    expected, pattern = a @ b, like(a, np.ones(na)) @ like(b, np.ones(nb))
    expected.sort_indices()
    pattern.sort_indices()
    bound = like(a, np.abs(a.data)) @ like(b, np.abs(b.data))
    bound.sort_indices()
    values, most = np.zeros(nc), np.zeros(nc)
    good = pattern.nnz == nc and np.array_equal(keys(pattern), keys(c))  # explicit zeros stay
    if good:  # SciPy may leave zeros out
        values[np.searchsorted(keys(c), keys(expected))] = expected.data
        most[np.searchsorted(keys(c), keys(bound))] = bound.data
        same = (values == c.data) | (np.isnan(values) & np.isnan(c.data))
        good = np.all(same | (np.abs(values - c.data) <= 1e-13 * most + 1e-300))
    if not good:
        print(f"pair {pairs}: {m} x {k} x {n}, nnz {na} {nb} {nc}, SciPy {pattern.nnz}")
        sys.exit(1)
    pairs += 1
print(pairs)
