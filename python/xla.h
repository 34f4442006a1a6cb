/* The passes of one recurrent layer as handlers of XLA's FFI, which bppsa/_xla.py registers with JAX. All arrays are XLA's
 * buffers; a layer (recurrent/layer.h) is kept for each configuration and shape that was used lately.
 *
 * Attributes of every handler: `cell`, `method` and `forward` (texts, as bppsa_python_layer_create has them), `relu` and `threads`
 * (int64), and `arguments` and `results`: int64, in which bit k stands for the array BPPSA_XLA_ARRAYS names at k. The arguments are
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

/* with(name, shape, type): T steps, N = T + 1, B samples, I inputs, H units, G gates times H, S numbers of a state, K that the
 * cell saves, Z bytes; r: the call's reals, u: bytes or truth values, i: int32 or int64. */
#define BPPSA_XLA_ARRAYS(with)                                                                                                   \
  with(x, "TBI", 'r') with(h0, "BH", 'r') with(c0, "BH", 'r') with(w_ih, "GI", 'r') with(w_hh, "GH", 'r') with(b_ih, "G", 'r')   \
      with(b_hh, "G", 'r') with(reset_state, "S", 'r') with(lengths, "B", 'i') with(resets, "TB", 'u') with(h, "NBH", 'r')       \
          with(c, "NBH", 'r') with(saved, "TBK", 'r') with(of_h, "NBH", 'r') with(of_c, "NBH", 'r') with(of_x, "TBI", 'r')       \
              with(of_h0, "BH", 'r') with(of_c0, "BH", 'r') with(of_w_ih, "GI", 'r') with(of_w_hh, "GH", 'r')                    \
                  with(of_b_ih, "G", 'r') with(of_b_hh, "G", 'r') with(of_reset_state, "S", 'r') with(d_x, "TBI", 'r')           \
                      with(d_h0, "BH", 'r') with(d_c0, "BH", 'r') with(d_w_ih, "GI", 'r') with(d_w_hh, "GH", 'r')                \
                          with(d_b_ih, "G", 'r') with(d_b_hh, "G", 'r') with(d_reset_state, "S", 'r') with(d_h, "NBH", 'r')      \
                              with(d_c, "NBH", 'r') with(d_of_h, "NBH", 'r') with(d_of_c, "NBH", 'r') with(e_x, "TBI", 'r')      \
                                  with(e_h0, "BH", 'r') with(e_c0, "BH", 'r') with(e_w_ih, "GI", 'r') with(e_w_hh, "GH", 'r')    \
                                      with(e_b_ih, "G", 'r') with(e_b_hh, "G", 'r') with(e_reset_state, "S", 'r')                \
                                          with(e_h, "NBH", 'r') with(e_c, "NBH", 'r') with(scratch, "Z", 'u')

/* The list as "NAME:SHAPE:TYPE NAME:SHAPE:TYPE ..". */
const char *bppsa_python_xla_arrays(void);

/* forward: from x, weights, .. to h, c, saved. backward: from these and the gradients of_h and of_c to the other of_*.
 * tangent: from the arguments of backward without gradients, and tangents d_x, d_w_ih, .., to d_h and d_c (bppsa_layer_tangent).
 * second: from all these, d_h, d_c and the tangents d_of_h and d_of_c to the derivatives of what backward computes, as of_*
 * (bppsa_layer_tangent_backward). third: from the arguments of tangent, d_h, d_c and tangents e_x, e_w_ih, .. of a second direction
 * to e_h and e_c, the derivative of d_h and d_c in that direction (bppsa_layer_second_tangent). */
bppsa_xla_error *bppsa_python_xla_forward(bppsa_xla_frame *frame);
bppsa_xla_error *bppsa_python_xla_backward(bppsa_xla_frame *frame);
bppsa_xla_error *bppsa_python_xla_tangent(bppsa_xla_frame *frame);
bppsa_xla_error *bppsa_python_xla_second(bppsa_xla_frame *frame);
bppsa_xla_error *bppsa_python_xla_third(bppsa_xla_frame *frame);

/* What a layer needs. sizes: T, B, I, H. arguments: the bits as above. facts: bytes of `saved`, of the scratch of each handler in
 * the order above, and the parts of a state: 1, or 2 of a pair. Errors of bppsa_layer_create. */
enum { BPPSA_PYTHON_XLA_FACTS = 7 };
bppsa_status bppsa_python_xla_facts(const char *cell, const char *method, const char *forward, int relu, int f64, int64_t threads,
                                    const int64_t sizes[4], int64_t arguments, int64_t facts[BPPSA_PYTHON_XLA_FACTS]);
/* Layers that are kept; for tests. */
int64_t bppsa_python_xla_kept(void);

#endif
