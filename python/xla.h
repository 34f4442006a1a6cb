/* The passes of one recurrent layer as handlers of XLA's FFI, which bppsa/_xla.py registers with JAX. All arrays are XLA's
 * buffers; a layer (recurrent/layer.h) is kept for each configuration and shape that was used lately.
 *
 * Attributes of every handler: `cell`, `method` and `forward` (texts, as bppsa_python_plan_create has them), `relu` and `threads`
 * (int64), and `arguments` and `results`: int64, in which bit k stands for the array that BPPSA_PYTHON_ARRAYS
 * (python/passes.h) names at k. The arguments are
 * the arrays whose bits are set, in the order of the list, and so are the results. Reals are all float32 or all float64.
 *
 * Every array but `scratch` may have one axis more in front, E: then the call is E passes, the k-th of which takes the k-th part of
 * those arrays, and all of the others; all results have that axis. Otherwise it is one pass.
 *
 * Row 0 of h and c is the state in front of the first step, and so is row 0 of their gradients, which is added to that of h0 and
 * c0. Arrays without a step or without a sample are no error. A scratch that is smaller than the pass needs is not used: the
 * handler then allocates memory for the length of the call. (A program for any batch cannot say how large it is.) */
#ifndef BPPSA_PYTHON_XLA_H
#define BPPSA_PYTHON_XLA_H

#include "core/base/status.h"
#include "python/xla_ffi.h"

/* The kinds of passes of python/passes.h. */
bppsa_xla_error *bppsa_python_xla_forward(bppsa_xla_frame *frame);
bppsa_xla_error *bppsa_python_xla_backward(bppsa_xla_frame *frame);
bppsa_xla_error *bppsa_python_xla_tangent(bppsa_xla_frame *frame);
bppsa_xla_error *bppsa_python_xla_second(bppsa_xla_frame *frame);
bppsa_xla_error *bppsa_python_xla_third(bppsa_xla_frame *frame);
/* The same on a GPU, with all arrays in its memory and all work on XLA's stream. `third`, and calls without a step or a sample,
 * are refused. Nothing is waited for, so lengths are not checked: one below 1 counts as 1, and one beyond T as T. Row 0 of the
 * gradients of h and c is not read. */
bppsa_xla_error *bppsa_python_xla_gpu_forward(bppsa_xla_frame *frame);
bppsa_xla_error *bppsa_python_xla_gpu_backward(bppsa_xla_frame *frame);
bppsa_xla_error *bppsa_python_xla_gpu_tangent(bppsa_xla_frame *frame);
bppsa_xla_error *bppsa_python_xla_gpu_second(bppsa_xla_frame *frame);
bppsa_xla_error *bppsa_python_xla_gpu_third(bppsa_xla_frame *frame);

/* What a layer needs on the GPU of that number; -1: on the CPU. sizes: T, B, I, H. arguments: the bits as above. facts: bytes of
 * `saved`, of the scratch of each handler in the order above, and the parts of a state: 1, or 2 of a pair. Errors of
 * bppsa_layer_create. */
enum { BPPSA_PYTHON_XLA_FACTS = 7 };
bppsa_status bppsa_python_xla_facts(const char *cell, const char *method, const char *forward, int relu, int f64, int64_t threads,
                                    int gpu, const int64_t sizes[4], int64_t arguments, int64_t facts[BPPSA_PYTHON_XLA_FACTS]);
/* Can layers be computed on a GPU? ERR_UNSUPPORTED: the build has no CUDA, or the machine has no GPU. */
bppsa_status bppsa_python_xla_find_gpu(void);

#endif
