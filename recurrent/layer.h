/* Stateless passes of one recurrent layer, for the doors of frameworks that own all memory (JAX, PyTorch, a recorded CUDA graph).
 *
 * A bppsa_layer is a description with its plans and sizes: it never changes after it has been made, holds no arrays, and any
 * number of threads may compute passes with it at the same time. Everything that a pass reads or writes lies in the caller's
 * memory: x, the weights, the states, what the backward pass reads again (the tape: h, c, saved), gradients, and scratch, whose
 * sizes are asked for beforehand. Nothing but these arrays goes from a forward pass to its backward passes, so a backward pass may
 * run never, twice, in another order, in another thread, or in another layer of the same configuration.
 *
 * The passes are those of bppsa_recurrent_create (recurrent/recurrent.h) with one layer in one direction and no head, and have the
 * same bits. What a model keeps from pass to pass, pauses of speculative passes and a warm-up that adapts, begins anew in each, or
 * goes from record to record.
 *
 * A device may be that of several passes at the same time: the library's threads serve all callers, and a caller that finds none of
 * them idle computes alone. Passes on a CPU allocate nothing, but for a backward pass by a scan that is not linear, which allocates
 * its executor's memory (core/base/alloc.h) and frees it. Those on a GPU are queued on the device's stream. They take no memory of
 * the GPU, and wait for nothing, so that a CUDA graph can record them; a recording reads lengths and resets where they lie, in
 * page-locked memory. The layer must outlive the recording.
 *
 * T steps, B samples, I inputs, H units, G gates; S = H, of a cell whose state is a pair 2H. */
#ifndef BPPSA_RECURRENT_LAYER_H
#define BPPSA_RECURRENT_LAYER_H

#include "core/compute/device.h"
#include "recurrent/recurrent.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_layer bppsa_layer; /* the description of a layer */

/* Makes the description. Of `config` it takes seq_len, batch, input, hidden, no_bias, lengths, resets, reset_state, dtype,
 * nonlinearity, method, forward, speculation and input_gradients; layers, classes, no_head, loss_all and tape are set by it, and
 * the others must be zero. The device says only for what kind of device and how many threads the layer is planned. The cell must
 * outlive the layer. ERR_ARGUMENT: another field is set; errors of bppsa_recurrent_create. */
bppsa_status bppsa_layer_create(const bppsa_recurrent_config *config, const bppsa_cell *cell, const bppsa_device *device,
                                bppsa_layer **layer);
void bppsa_layer_destroy(bppsa_layer *layer);

/* Sizes in bytes. Scratch begins at a multiple of 64 bytes, every other array at a multiple of its numbers' size. No pass reads or
 * writes beyond the end of an array or in front of it, on a GPU neither: an array may end where the memory ends. */
typedef struct {
  int64_t states;   /* of h, and of c: [T+1][B][H] */
  int64_t saved;    /* [T][B][k·H], what forward keeps beside the states; 0: nothing, and `saved` may be NULL */
  int64_t forward;  /* scratch of a forward pass */
  int64_t backward; /* scratch of a backward pass */
} bppsa_layer_sizes;
void bppsa_layer_bytes(const bppsa_layer *layer, bppsa_layer_sizes *sizes);

/* The plans of passes in chunks of time; NULL: of a layer whose passes go step by step. */
const bppsa_forward_plan *bppsa_layer_forward_plan(const bppsa_layer *layer);
const bppsa_backward_plan *bppsa_layer_backward_plan(const bppsa_layer *layer);

/* What a forward pass and its backward passes read. All arrays are row-major, in the device's memory unless said otherwise. */
typedef struct {
  const void *x;           /* [T][B][I] */
  const void *h0, *c0;     /* [B][H]; NULL: zeros. c0: of a pair alone */
  const void *w_ih;        /* [G·H][I] */
  const void *w_hh;        /* [G·H][H] */
  const void *b_ih, *b_hh; /* [G·H]; NULL: zeros */
  const void *reset_state; /* [S], where config.reset_state is set */
  const int64_t *lengths;  /* [B], in host memory, where config.lengths is set; NULL: all samples have T steps */
  const uint8_t *resets;   /* [T][B] of 0 and 1, in host memory, where config.resets is set; NULL: no sample begins anew */
  bool far_resets; /* on a GPU: the resets are in its memory. Then they are not checked, and every byte but 0 counts as 1 */
  /* on a GPU: the lengths are in its memory, and if `short_lengths` they are int32_t. Then they are not checked, and one below 1
   * counts as 1, one beyond T as T */
  bool far_lengths, short_lengths;
} bppsa_layer_inputs;

/* What passes in chunks of time on a CPU have to know of the passes before them, in `pause` and `state`, which a pass reads and
 * changes, and what they did. In host memory. Without a record a pass begins anew, from zeros. */
typedef struct {
  bppsa_forward_pause pause;
  bppsa_forward_stats stats;
} bppsa_layer_forward_record;
typedef struct {
  bppsa_backward_state state;
  bppsa_backward_stats stats;
} bppsa_layer_backward_record;

/* What a forward pass writes and backward passes read: row 0 of h and c is the state in front of the first step, and rows 1 .. T
 * are the outputs, 0 behind a sample's end. Samples are in the caller's order. */
typedef struct {
  void *h, *c, *saved; /* c: of a pair alone, otherwise NULL */
  /* Of a forward pass alone: where h_1 .. h_T [T][B][H] are written a second time, for callers who change what they are given;
   * NULL: nowhere. The record of a pass on a CPU; NULL: none. */
  void *output;
  bppsa_layer_forward_record *record;
} bppsa_layer_tape;

/* Computes h_1 .. h_T. scratch: sizes.forward bytes, whose values mean nothing before and after. ERR_ARGUMENT: an array that the
 * configuration needs is NULL, a length or a reset out of range, another kind of device than the layer was made for; ERR_CUDA. */
bppsa_status bppsa_layer_forward(const bppsa_layer *layer, const bppsa_device *device, const bppsa_layer_inputs *inputs,
                                 const bppsa_layer_tape *tape, void *scratch);

/* Gradients of the loss that come from outside. NULL: zeros. */
typedef struct {
  const void *h;      /* of all outputs, [T][B][H] */
  const void *c;      /* of all c_1 .. c_T of a pair, [T][B][H] */
  const void *h_last; /* of each sample's last h, [B][H], which is added to its gradient in h */
  const void *c_last; /* likewise of c */
} bppsa_layer_seed;

/* Gradients that a backward pass computes. NULL: not wanted; x, h0 and c0 need config.input_gradients. */
typedef struct {
  void *x;       /* [T][B][I] */
  void *h0, *c0; /* [B][H] */
  void *w_ih, *w_hh, *b_ih, *b_hh;
  void *reset_state;
  bppsa_layer_backward_record *record; /* of bppsa_layer_backward on a CPU; NULL: none */
} bppsa_layer_gradients;

/* Computes gradients. scratch: sizes.backward bytes. The tape and the inputs are only read. Errors as above. */
bppsa_status bppsa_layer_backward(const bppsa_layer *layer, const bppsa_device *device, const bppsa_layer_inputs *inputs,
                                  const bppsa_layer_tape *tape, const bppsa_layer_seed *seed,
                                  const bppsa_layer_gradients *gradients, void *scratch);

/* The derivative of all outputs in the direction of tangents (a Jacobian-vector product): the linearised recurrence
 *
 *     ḣ_t = J_t ḣ_{t-1} + ∂f_t/∂x ẋ_t + Σ_w ∂f_t/∂w ẇ
 *
 * over the states of the tape. A tangent that is NULL is 0. */
typedef struct {
  const void *x, *h0, *c0, *w_ih, *w_hh, *b_ih, *b_hh, *reset_state;
} bppsa_layer_tangents;
/* Bytes of scratch of the two functions below. ERR_MEMORY: they do not fit in 64 bits. */
bppsa_status bppsa_layer_tangent_bytes(const bppsa_layer *layer, int64_t *tangent, int64_t *backward);
/* h, c [T+1][B][H]: the tangents of the states, of row 0 too; c of a pair alone. On a CPU it goes with time by the layer's scan, or
 * step by step where the layer's method is BP or linear, and a scan's executor allocates; on a GPU step by step. A layer whose
 * method is speculative takes the chunks of its plan at once on a CPU, and verifies their boundaries with the plan's tolerance,
 * sample by sample: what it drops there is a difference of the tangents.
 * ERR_UNSUPPORTED: a cell without `tangent`; ERR_ARGUMENT as above, or a tangent of what it lacks; ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_layer_tangent(const bppsa_layer *layer, const bppsa_device *device, const bppsa_layer_inputs *inputs,
                                 const bppsa_layer_tape *tape, const bppsa_layer_tangents *tangents, void *h, void *c,
                                 void *scratch);
/* The derivative, in the direction of the tangents and of seed_tangents, of the gradients that bppsa_layer_backward computes from
 * `seed` (a Hessian-vector product where the loss is linear in the outputs; double backward). h, c: what bppsa_layer_tangent has
 * computed from the same arguments. With phi = <a, gradients>, whose derivatives double backward wants, `derivatives` with the
 * tangents a and seed_tangents 0 are the gradients of phi in x, h0 and the weights, and bppsa_layer_tangent's h and c those in the
 * seed. It goes back twice by the layer's method; speculatively as above, on a GPU by BP. On a CPU a scan's executor allocates.
 * Errors as above, and ERR_MEMORY. */
bppsa_status bppsa_layer_tangent_backward(const bppsa_layer *layer, const bppsa_device *device, const bppsa_layer_inputs *inputs,
                                          const bppsa_layer_tape *tape, const bppsa_layer_tangents *tangents, const void *h,
                                          const void *c, const bppsa_layer_seed *seed, const bppsa_layer_seed *seed_tangents,
                                          const bppsa_layer_gradients *derivatives, void *scratch);

/* A direction, and h and c, what bppsa_layer_tangent has computed from it. */
typedef struct {
  bppsa_layer_tangents tangents;
  const void *h, *c;
} bppsa_layer_direction;
/* Bytes of scratch of the function below. ERR_MEMORY: they do not fit in 64 bits. */
bppsa_status bppsa_layer_second_tangent_bytes(const bppsa_layer *layer, int64_t *bytes);
/* h, c [T+1][B][H]: the derivative, in the direction `other`, of the tangents in the direction `one` (a second derivative of all
 * outputs, forward over forward); the same with the directions exchanged. It goes with time as bppsa_layer_tangent. Errors as
 * above; ERR_UNSUPPORTED: a GPU. */
bppsa_status bppsa_layer_second_tangent(const bppsa_layer *layer, const bppsa_device *device, const bppsa_layer_inputs *inputs,
                                        const bppsa_layer_tape *tape, const bppsa_layer_direction *one,
                                        const bppsa_layer_direction *other, void *h, void *c, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
