/* The scan of bppsa.jax as a handler of XLA's FFI, which bppsa/_xla_scan.py registers with JAX: h_t = A_t h_{t-1} + b_t by the
 * methods of scan/. All arrays are XLA's buffers.
 *
 * Attributes: `method` (the text form of a scan, scan/method.h); `diagonal`, `affine`, `reverse`, `transposed` (int64, 0 or 1) and
 * `threads` (int64). Arguments: A [T,B,H,H], or its diagonals [T,B,H]; b [T,B,H] if `affine`; the state at the beginning [B,H].
 * Result: all states [T+1,B,H]. Reals are all float32 or all float64.
 *
 * Forward the state at the beginning is row 0 of the result, and b_t and A_t lead to row t. `reverse`: it is row T, and
 * h_{t-1} = A_t h_t + b_t leads to row t - 1. `transposed`: A_tᵀ stands for A_t.
 *
 * Every argument may have one axis more in front, E: then the call is E scans, the k-th of which takes the k-th part of those
 * arguments and all of the others, and the result has that axis too. Arrays without a step or a number are no error. */
#ifndef BPPSA_PYTHON_XLA_SCAN_H
#define BPPSA_PYTHON_XLA_SCAN_H

#include "python/xla_ffi.h"

bppsa_xla_error *bppsa_python_xla_scan(bppsa_xla_frame *frame);

#endif
