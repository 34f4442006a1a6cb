/* Stateless passes of one recurrent layer (recurrent/layer.h) for the doors to frameworks, which name arrays: bppsa/_passes.py
 * (PyTorch) calls them through ctypes, and the handlers of python/xla.h (JAX) with XLA's buffers. */
#ifndef BPPSA_PYTHON_PASSES_H
#define BPPSA_PYTHON_PASSES_H

#include <stdint.h>

#include "core/base/status.h"
#include "python/account.h"
#include "recurrent/layer.h"

/* with(name, shape, type): T steps, N = T + 1, B samples, I inputs, H units, G gates times H, S numbers of a state, K that the
 * cell saves, Z bytes; r: the call's reals, u: bytes or truth values, i: int32 or int64. */
#define BPPSA_PYTHON_ARRAYS(with)                                                                                                \
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
                                          with(e_h, "NBH", 'r') with(e_c, "NBH", 'r') with(scratch, "Z", 'u')                    \
                                              with(of_y, "TBH", 'r') with(of_cells, "TBH", 'r') with(of_h_last, "BH", 'r')       \
                                                  with(of_c_last, "BH", 'r') with(d_of_y, "TBH", 'r')                            \
                                                      with(d_of_cells, "TBH", 'r') with(d_of_h_last, "BH", 'r')                  \
                                                          with(d_of_c_last, "BH", 'r') with(y, "TBH", 'r')

#define BPPSA_PYTHON_NUMBER(name, shape, type) ARRAY_##name,
enum { BPPSA_PYTHON_ARRAYS(BPPSA_PYTHON_NUMBER) ARRAYS };

/* The list as "NAME:SHAPE:TYPE NAME:SHAPE:TYPE ..". */
const char *bppsa_python_arrays(void);

/* forward: from x, weights, .. to h, c, saved. backward: from these and the gradients of_h and of_c to the other of_*.
 * tangent: from the arguments of backward without gradients, and tangents d_x, d_w_ih, .., to d_h and d_c (bppsa_layer_tangent).
 * second: from all these, d_h, d_c and the tangents d_of_h and d_of_c to the derivatives of what backward computes, as of_*
 * (bppsa_layer_tangent_backward). third: from the arguments of tangent, d_h, d_c and tangents e_x, e_w_ih, .. of a second direction
 * to e_h and e_c, the derivative of d_h and d_c in that direction (bppsa_layer_second_tangent).
 *
 * of_h is the gradient of all rows of h, that of row 0 is not read. of_y, in its place, is that of rows 1 .. T alone, and
 * of_h_last that of each sample's last state, which is added; likewise of_cells and of_c_last, and their tangents d_of_*. y: where
 * forward writes rows 1 .. T of h a second time. */
enum {
  BPPSA_PYTHON_FORWARD,
  BPPSA_PYTHON_BACKWARD,
  BPPSA_PYTHON_TANGENT,
  BPPSA_PYTHON_SECOND,
  BPPSA_PYTHON_THIRD,
  BPPSA_PYTHON_KINDS
};

/* What a pass is given besides arrays. row: the size of row 0 of h, in bytes. far_resets, far_lengths,
 * short_lengths: as of bppsa_layer_inputs. The records belong to the tape and to the gradients (recurrent/layer.h); NULL: none. */
typedef struct {
  int64_t row;
  bool far_resets, far_lengths, short_lengths;
  bppsa_layer_forward_record *forward;
  bppsa_layer_backward_record *backward;
} bppsa_python_extras;

/* Bytes of scratch of the kind `third`, whose tangents in the second direction come first in it: of a layer with such sizes whose
 * tangents take so many, and whose second tangents take `third`. */
int64_t bppsa_python_third_bytes(const bppsa_layer_sizes *sizes, int64_t tangent, int64_t third);
/* Computes a pass of that kind with arrays at their numbers; NULL: the call has no such array. Errors of recurrent/layer.h. */
bppsa_status bppsa_python_compute(int kind, const bppsa_layer *layer, const bppsa_device *device, void *const arrays[ARRAYS],
                                  const bppsa_python_extras *extras, void *scratch);

/* ---- for ctypes ---- */

/* Makes the device of the processor with so many threads (gpu -1; 0 threads: all cores), or of a GPU with a stream of the caller's.
 * Errors of bppsa_device_create and bppsa_device_on_stream. */
bppsa_status bppsa_python_open_device(int64_t threads, int32_t gpu, void *stream, bppsa_device **device);
/* Finds the cell "rnn", "gru" or "lstm". ERR_ARGUMENT: there is no such cell. */
bppsa_status bppsa_python_find_cell(const char *name, const bppsa_cell **cell);
/* How many numbers a cell saves for each unit, step and sample beside its states; -1: there is no such cell. */
int64_t bppsa_python_cell_saved(const char *name);

/* A layer for one configuration and shape on one device, which never changes: any number of threads may compute with it. */
typedef struct bppsa_python_plan bppsa_python_plan;

/* cell: "rnn", "gru" or "lstm". method: the text form of a gradient method (scan/method.h). forward: how states are computed
 * (recurrent/parallel_forward.h). gpu, stream: as of scans (python/native.h). numbers: in the order of the enum.
 * tolerance: of the method "speculative"; it, chunks and warm_up: 0, -1 and -1 leave them open. ERR_ARGUMENT: no such cell;
 * errors of bppsa_layer_create. */
enum {
  BPPSA_PYTHON_STEPS,
  BPPSA_PYTHON_BATCH,
  BPPSA_PYTHON_INPUT,
  BPPSA_PYTHON_HIDDEN,
  BPPSA_PYTHON_RELU,
  BPPSA_PYTHON_F64,
  BPPSA_PYTHON_BIASES,
  BPPSA_PYTHON_LENGTHS,
  BPPSA_PYTHON_RESETS,
  BPPSA_PYTHON_RESET_STATE,
  BPPSA_PYTHON_INPUT_GRADIENTS,
  BPPSA_PYTHON_THREADS,
  BPPSA_PYTHON_CHUNKS,
  BPPSA_PYTHON_WARM_UP,
  BPPSA_PYTHON_PLAN_NUMBERS
};
bppsa_status bppsa_python_plan_create(const char *cell, const char *method, const char *forward,
                                      const int64_t numbers[BPPSA_PYTHON_PLAN_NUMBERS], double tolerance, int32_t gpu,
                                      void *stream, bppsa_python_plan **plan);
void bppsa_python_plan_destroy(bppsa_python_plan *plan);
/* Bytes of h, of `saved`, of the scratch of each kind of pass in the order above; the parts of a state, 1 or 2 of a pair; whether
 * forward and backward passes are planned in chunks of time. */
enum { BPPSA_PYTHON_PLAN_FACTS = 5 + BPPSA_PYTHON_KINDS };
void bppsa_python_plan_facts(const bppsa_python_plan *plan, int64_t facts[BPPSA_PYTHON_PLAN_FACTS]);

/* What a pass in chunks of time did, and in `state` what the next one of the same weights has to know: failing passes in a row,
 * sequential passes still to come, and of a backward pass the next warm-up, or 0 for the plan's. It begins with zeros. On a CPU
 * alone. */
typedef struct {
  int64_t state[3];
  bppsa_forward_stats forward;
  bppsa_backward_stats backward;
} bppsa_python_record;
int64_t bppsa_python_record_bytes(void);
/* Computes a pass. arrays: at their numbers. scratch: as many bytes as facts say, at a multiple of 64. record: NULL where nothing
 * is kept from pass to pass. Errors of recurrent/layer.h. */
bppsa_status bppsa_python_plan_run(const bppsa_python_plan *plan, int kind, void *const arrays[ARRAYS], void *scratch,
                                   bppsa_python_record *record);
/* Adds a recorded pass to sums. */
void bppsa_python_account_note(bppsa_python_account *account, const bppsa_python_plan *plan, int backward,
                               const bppsa_python_record *record);

#endif
