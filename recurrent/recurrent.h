/* Recurrent networks: L layers of one kind of cell and a linear head, as a bppsa_model.
 *
 * Layer l, with x the layer's input and G the cell's number of gates (1 for the RNN):
 *
 *     pre [T,B,G·H] = x W_ihᵀ + b_ih                     one GEMM for all steps
 *     h_t = cell(pre_t, h_{t-1} W_hhᵀ + b_hh)            the sweep over time; of a pair (h_t, c_t)
 *     logits = h_T W_linᵀ + b_lin                        or for every h_t
 *
 * Backward, from the top layer down: g_T and the injected u_t come from the head (or the layer above); g_t by sequential BP or by
 * a scan over Jᵀ_t = Σ_k W_kᵀ diag(d_{k,t}) + diag(e_t), or over those of a pair; then one GEMM for each weight gradient.
 *
 * S is the size of a state: H, or 2H of a cell whose state is a pair, h in front of c. An initial state and its gradient are
 * [L,b,S]; everything else sees h alone.
 *
 * Parameters have PyTorch's names, layouts and order: PREFIX.weight_ih_lK [G·H, I or H], PREFIX.weight_hh_lK [G·H, H],
 * PREFIX.bias_ih_lK, PREFIX.bias_hh_lK [G·H], then linear.weight [C, H], linear.bias [C].
 *
 * Without biases (no_bias) the parameters bias_ih_lK and bias_hh_lK do not exist, and count as zeros. Without a head (no_head)
 * there are no linear.weight and linear.bias: the model's outputs are the states of the top layer, [T,b,H] or the last ones [b,H],
 * and its seed is their gradient, whatever the caller's loss.
 *
 * With two directions (bidirectional) every layer has a second set of parameters, named PREFIX.weight_ih_lK_reverse and so on,
 * each set behind the forward one; it walks from the last step to the first. A layer's output is [forward, reverse] of every step,
 * 2H numbers, which are the next layer's input: D·H stands for H in the shapes of what follows a layer, weight_ih of the layers
 * above the first, linear.weight and the outputs. A loss on the last step starts from both directions' last states, [forward's
 * after step T, reverse's after step 1] (h_n in PyTorch, not output[-1]). Initial states are [L·D,b,S], of each layer forward and
 * reverse. A sample that has a length begins its reverse direction at its own last step.
 *
 * A sample may begin anew in front of any step (bppsa_spans): the state there is 0 in every layer, and no gradient goes through.
 * What earlier steps have made, NaN too, has no part in what follows. Logits and states are those that the steps make: none is
 * replaced by zeros. A sample that begins anew in front of the first step does not read its initial state, whose gradient is 0.
 * With two directions a reset in front of a step cuts time there, and each direction begins anew on its side of the cut. A reset
 * behind a sample's end counts for nothing. A part of a sequence (bppsa_forward_part) is given the resets of all steps, in host
 * memory.
 *
 * With a learned reset state (reset_state) there is one more parameter in front of all others, PREFIX.reset_state [L·D, S], at
 * first 0. Its row of a layer and direction is the state in the place of 0. Its gradient is the sum, over all samples and steps in
 * front of which they begin anew, of the gradient of the state there. On a CPU.
 *
 * Only as many steps of a sample are computed as its length says, if it has one (bppsa_model_forward). Its last state is the one
 * at its length, from which a loss on the last step starts; logits, states and gradients behind it are 0, and what x has there is
 * not read. (A GPU goes on through all steps, from zeros, and replaces the results by zeros.) Batches whose samples all have T
 * steps have the bits of passes without lengths. */
#ifndef BPPSA_RECURRENT_RECURRENT_H
#define BPPSA_RECURRENT_RECURRENT_H

#include "core/compute/device.h"
#include "core/compute/model.h"
#include "recurrent/cell.h"
#include "recurrent/parallel_backward.h"
#include "scan/scan.h"

#ifdef __cplusplus
extern "C" {
#endif

const char *bppsa_nonlinearity_name(bppsa_nonlinearity nonlinearity); /* "tanh" or "relu" */

typedef enum { BPPSA_INIT_DEFAULT = 0, BPPSA_INIT_ORTHOGONAL } bppsa_init; /* of weights: bppsa_recurrent_init */

/* What a caller does at the two ends of a layer's time in a backward pass, so that gradients can come from later steps and go to
 * earlier ones (distributed/time/split_time.h). g [T+1][b][S], in the device's memory: row t is the gradient of state t. On a GPU
 * the work of both is queued on its stream, or waits for it. An error ends the pass. */
typedef struct {
  void *context;
  /* Called before the layer's pass, with u_t in row t and g_T in row T; it may change the rows. NULL: nothing. */
  bppsa_status (*before)(void *context, int64_t layer, void *g);
  /* Called as soon as g_0 is known, in row 0; other rows may not be known yet. NULL: nothing. */
  bppsa_status (*after)(void *context, int64_t layer, const void *g);
} bppsa_recurrent_ends;

typedef struct {
  int64_t seq_len;    /* T >= 1 */
  int64_t batch;      /* B >= 1, the largest batch */
  int64_t input;      /* I >= 1 */
  int64_t hidden;     /* H >= 1 */
  int64_t layers;     /* L >= 1 */
  int64_t classes;    /* C >= 1 */
  bool no_bias;       /* the layers have no biases; the head keeps its own */
  bool bidirectional; /* every layer walks through time in both directions, D = 2 */
  /* Dropout between the layers, in [0, 1), as PyTorch's: while samples are named (bppsa_model_drop), a number of a layer's output
   * is 0 in the input of the layer above with this probability, otherwise it is divided by 1 - dropout. 0: none */
  double dropout;
  uint64_t dropout_seed; /* of its random numbers */
  bool lengths;          /* batches may be given the lengths of their samples */
  bool resets;           /* batches may be given the steps in front of which their samples begin anew */
  bool reset_state;      /* likewise, and a learned state is there in the place of 0 */
  bool no_head;          /* the outputs are the top layer's states; `classes` means nothing */
  bool tape;             /* every pass gets its tape from the caller; in the library alone */
  bool loss_all;         /* logits at every step [T,B,C], otherwise at the last [B,C] */
  bppsa_dtype dtype;     /* f32, f64 */
  bppsa_nonlinearity nonlinearity;
  bppsa_gradient_method method;
  bppsa_forward_method forward;
  bppsa_backward_method speculation; /* of the method SPECULATIVE */
  bppsa_forward_part part;           /* zero: the network holds the whole sequence */
  /* K > 0: a network keeps the states of every K-th step alone (of a few steps more, where the weight gradients are summed in
   * larger runs), and the backward pass computes the others again, a segment of steps at a time. It then holds about T / K + K
   * states of each layer in the place of T, and no array but outputs, inputs and their gradients has all steps; a pass takes as
   * long as one forward pass more. Bits of BP are those without it. A scan goes through one segment after the other, so that its
   * critical path is that of a segment times their number. For BP and scans of whole samples on a CPU, in one direction, with a
   * sequential forward pass. */
  int64_t recompute;
  bool input_gradients;       /* computes the gradients of x and h0 too */
  int64_t memory_limit;       /* bytes the network may hold; 0: no limit */
  int64_t optimizer_slots;    /* arrays as large as the parameters that an optimiser will hold; counted as the network's */
  bppsa_scan_factory factory; /* zero: the local executor */
  bppsa_recurrent_ends ends;  /* zero: none */
} bppsa_recurrent_config;

/* T 1000, B 16, I 1, H 20, 1 layer, 10 classes, loss on the last step, f32, tanh, forward sequential, backward by auto. */
bppsa_recurrent_config bppsa_recurrent_config_default(void);

/* Makes a network of layers of the cell and a linear head. Checks the configuration and the table, and allocates everything, so
 * that later passes allocate nothing. Parameters are 0 until set (bppsa_model_set) or initialised (bppsa_recurrent_init). The
 * cell and the device must outlive the model; destroy it with bppsa_model_destroy. ERR_ARGUMENT: a size out of range, a
 * nonlinearity that the cell does not have, a table that contradicts itself, a part that does not fit into its sequence;
 * ERR_UNSUPPORTED: an entry that the configuration needs is empty; ERR_SHAPE, ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_recurrent_create(const bppsa_recurrent_config *config, const bppsa_cell *cell, const bppsa_device *device,
                                    bppsa_model **model);

/* Counts the bytes of the network that bppsa_recurrent_create would make, as memory_limit does, and allocates nothing large. Errors
 * as bppsa_recurrent_create has them. */
bppsa_status bppsa_recurrent_count(const bppsa_recurrent_config *config, const bppsa_cell *cell, const bppsa_device *device,
                                   int64_t *bytes);

/* The plan of the network's speculative backward pass on a kind of device, where AUTO may choose it; otherwise, and where one chunk
 * is all there is, `speculative` is false. AUTO may not where the network holds a part of a sequence, has a factory or ends, or
 * computes gradients of x and h0 from a loss on the last step. Errors of bppsa_backward_plan_make but for ERR_UNSUPPORTED. */
bppsa_status bppsa_recurrent_plan_speculation(const bppsa_recurrent_config *config, const bppsa_cell *cell,
                                              bppsa_device_kind device, bppsa_backward_plan *plan);

/* Sets what *method leaves open of scan_chunks, for the network on a kind of device: on a GPU the chunked scan by the layer's own
 * kernels that is expected to be the fastest and fits memory_limit, if it is 1.02 times as fast as BP; otherwise 1, BP. Sets
 * scan_time, too. Errors of the plans. */
bppsa_status bppsa_recurrent_find_fallback(const bppsa_recurrent_config *config, const bppsa_cell *cell, bppsa_device_kind device,
                                           bppsa_backward_method *method);

/* What AUTO chooses among. */
typedef struct {
  bppsa_gradient_method method;
  double seconds;  /* predicted, over all layers; of SPECULATIVE: those of BP, times what bppsa_backward_model says */
  double fallback; /* of SPECULATIVE: the same of what computes passes in their place; otherwise seconds */
  int64_t held;    /* bytes of the products that a scan holds */
} bppsa_recurrent_candidate;
/* Candidate `index`, from 0: BP (or linear, where a scan is asked for), the other scans in the order of bppsa_scan_candidate, and
 * at last SPECULATIVE. *found false: there are no more. Errors of the plans. */
bppsa_status bppsa_recurrent_find_candidate(const bppsa_recurrent_config *config, const bppsa_cell *cell,
                                            bppsa_device_kind device, int64_t index, bppsa_recurrent_candidate *candidate,
                                            bool *found);

/* Resolves AUTO in the backward pass (BP, speculative BP or a scan; with a factory a scan) or in the scan. *chosen has the
 * candidate with the least predicted time over all layers that fits memory_limit, the same for all layers; if none fits, BP or
 * linear. SPECULATIVE must be 1.15 times as fast as any other, and what computes passes in its place nearly as fast as the fastest
 * of these, so that a network whose passes pause loses nothing; it then has exact_inputs, so that gradients of x and h0 are as
 * exact as BP's at every step. A configuration without AUTO is returned unchanged. Errors of the plans. */
bppsa_status bppsa_recurrent_choose(const bppsa_recurrent_config *config, const bppsa_cell *cell, bppsa_device_kind device,
                                    bppsa_recurrent_config *chosen);

/* The plan of layer l's scan, the same in both directions (borrowed), or NULL if the model runs sequential BP. A linear plan on the
 * local device is executed by the cell's own sweep, which is sequential BP. */
const bppsa_scan_plan *bppsa_recurrent_plan(const bppsa_model *model, int64_t layer);
/* The most segments that a pass with recompute goes through, one scan each; without, 1. */
int64_t bppsa_recurrent_segments(const bppsa_recurrent_config *config);
/* The scan configuration that a layer of the cell would get, with recompute that of the longest segment; `plan rnn` prints it. */
bppsa_scan_config bppsa_recurrent_scan_config(const bppsa_recurrent_config *config, const bppsa_cell *cell, int64_t layer);

/* The sizes from which the network's forward pass is planned; multiprocessors: of the GPU, 0 on a CPU. */
bppsa_forward_shape bppsa_recurrent_forward_shape(const bppsa_recurrent_config *config, const bppsa_cell *cell,
                                                  bppsa_device_kind device, int multiprocessors);
/* The plan of the network's forward pass on a device; a GPU is asked for its sizes. Errors of bppsa_forward_plan_make;
 * ERR_UNSUPPORTED: a cell without kernels; ERR_CUDA. */
bppsa_status bppsa_recurrent_plan_forward(const bppsa_recurrent_config *config, const bppsa_cell *cell,
                                          const bppsa_device *device, bppsa_forward_plan *plan);

/* Passes without the head, for benchmarks. Forward: x [T,b,I], h0 [L·D,b,S] or NULL. Backward: seed is the gradient of the
 * top layer's last hidden states [b,D·H], or with loss_all of all of them [T,b,D·H]; it sets the gradients of all parameters but
 * the head's. ERR_SHAPE; ERR_ARGUMENT: backward without forward. */
bppsa_status bppsa_recurrent_forward_layers(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0);
/* The same for samples with lengths or resets. spans NULL: they have none. */
bppsa_status bppsa_recurrent_forward_spans(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0,
                                           const bppsa_spans *spans);
/* Checks resets as a forward pass of `batch` samples does, so that parts of a sequence can find the same before one of them waits
 * for another. NULL: none. ERR_SHAPE; ERR_ARGUMENT: a value other than 0 and 1, other memory than they are expected in, or a
 * network that takes none. */
bppsa_status bppsa_recurrent_check_resets(const bppsa_model *model, int64_t batch, const bppsa_view *resets);
bppsa_status bppsa_recurrent_backward_layers(bppsa_model *model, const bppsa_view *seed);
/* Adds the gradient of the top layer's c, of a cell whose state is a pair, to the seed of the next
 * bppsa_recurrent_backward_layers: of c_1 .. c_T [T,b,H] with loss_all, or of each sample's last one [b,H]. Borrowed until that
 * pass is over, in the device's memory. NULL: 0. ERR_UNSUPPORTED: the state is no pair, or layers have two directions; ERR_SHAPE;
 * ERR_ARGUMENT: no forward pass yet. */
bppsa_status bppsa_recurrent_seed_cells(bppsa_model *model, const bppsa_view *cells);
/* The gradients of the top layer's states 1 .. T, *gradients [T,b,S] (borrowed, until the next pass), for a seed as above.
 * Sets no gradient of a parameter. ERR_SHAPE; ERR_ARGUMENT: no forward pass yet; ERR_UNSUPPORTED: samples have lengths,
 * or layers two directions. */
bppsa_status bppsa_recurrent_hidden_gradients(bppsa_model *model, const bppsa_view *seed, bppsa_view *gradients);

/* Tapes are for a network of one layer in one direction that was made with config.tape, and on a GPU without config.lengths. A tape
 * holds what a backward pass reads of its forward pass besides x and the parameters' values: the states, and what the cell saves.
 * It is the caller's array, so one network can compute any number of forward passes before their backward passes, in any order,
 * and keeps nothing between two passes.
 *
 * Counts the numbers in a tape. */
bppsa_status bppsa_recurrent_tape_size(const bppsa_model *model, int64_t *size);
/* The next passes read x [T,b,I], and write or read the tape [size]; all arrays are borrowed until the next call, in the device's
 * memory. A forward pass with the same x follows, which writes the tape, and h_1 .. h_T [T,b,H] to `output` as well unless that is
 * NULL; or backward passes, if a forward pass with the same x and the same parameters' values has written the tape, by any network
 * of the same configuration; it may have moved meanwhile. ERR_SHAPE; ERR_ARGUMENT: the network has no tapes, or an array is on
 * another device; of a forward pass: it has other than x's number of samples. */
bppsa_status bppsa_recurrent_use_tape(bppsa_model *model, const bppsa_view *x, const bppsa_view *tape, const bppsa_view *output);
/* The next passes with this tape, until the next bppsa_recurrent_use_tape, are of samples with these lengths or resets: those of
 * the forward pass that has written it or is to write it. bppsa_recurrent_forward_layers takes them from here. Without this call
 * all samples are whole. ERR_ARGUMENT: the network was made without tapes, without lengths or without resets, or a number is out of
 * range; ERR_SHAPE. */
bppsa_status bppsa_recurrent_use_spans(bppsa_model *model, const bppsa_spans *spans);

/* The states h_1 .. h_T of a layer in the latest forward pass, [T,b,D·H], on the model's device (borrowed, until the next pass, or
 * with lengths or two directions until the next call).
 * ERR_ARGUMENT: no such layer, or no pass yet. */
bppsa_status bppsa_recurrent_states(const bppsa_model *model, int64_t layer, bppsa_view *states);
/* Likewise c_1 .. c_T of a cell whose state is a pair. ERR_UNSUPPORTED: it is not. */
bppsa_status bppsa_recurrent_cell_states(const bppsa_model *model, int64_t layer, bppsa_view *states);

/* Searches the latest forward pass alone, and computes nothing. Returns true if one of its states, h0 included (step 0), or its
 * logits is not finite; *where is the first such value, layer by layer and step by step, then the logits. */
bool bppsa_recurrent_forward_nonfinite(const bppsa_model *model, bppsa_nonfinite *where);

/* Initialises the parameters. DEFAULT: PyTorch's module defaults, U(-1/√H, 1/√H) everywhere. ORTHOGONAL: each H x H block of
 * W_hh is a random orthogonal matrix instead. A reset state is 0. Deterministic in seed; the same numbers in f32 (rounded) and
 * f64. ERR_MEMORY. */
bppsa_status bppsa_recurrent_init(bppsa_model *model, bppsa_init init, uint64_t seed);

/* Finds the architecture that a set of named tensors describes (PREFIX: "rnn" with gates 1, "gru" with gates 3): sets input,
 * hidden, layers, classes, no_bias, bidirectional, reset_state and dtype of *config and leaves the rest. With no_head it does not
 * look for the tensors of a head, and classes stays as it is. `where` names the source. ERR_FORMAT: a tensor is missing;
 * ERR_SHAPE: shapes disagree with each other; ERR_UNSUPPORTED: dtypes other than f32 and f64, projections.
 */
bppsa_status bppsa_recurrent_infer(const char *where, const char *prefix, int64_t gates, int64_t count,
                                   const bppsa_named_view *tensors, bppsa_recurrent_config *config);

#ifdef __cplusplus
}
#endif
#endif
