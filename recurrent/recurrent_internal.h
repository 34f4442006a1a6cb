/* The inside of a recurrent network.
 *
 * (The file is long because every file of the folder works on this one struct, and declares here what the others call.) */
#ifndef BPPSA_RECURRENT_RECURRENT_INTERNAL_H
#define BPPSA_RECURRENT_RECURRENT_INTERNAL_H

#include "core/compute/linear.h"
#include "recurrent/parallel_backward.h"
#include "recurrent/recurrent.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which passes a network's arrays serve. Those of a model serve all; those of a stateless pass (layer.c) serve this pass alone. */
enum { RECURRENT_FORWARD = 1, RECURRENT_BACKWARD = 2, RECURRENT_HEAD = 4, RECURRENT_MODEL = 7 };

/* Room for a backend's part of a stateless pass (recurrent_backend.copy), in bytes. */
enum { RECURRENT_PASS_BYTES = 1024 };

enum { MOST_PARAMETERS = 4 /* of a layer */, W_IH = 0, W_HH, B_IH, B_HH, HEAD_PARAMETERS = 2, NAME_SIZE = 48 };

/* A direction of a layer is computed like a layer: a network with two directions has layers 2l (forward in time) and 2l + 1
 * (reverse) on level l, and `layer` means one of these below. */
static inline int64_t bppsa_recurrent_directions(const bppsa_recurrent_config *config) {
  return config->bidirectional ? 2 : 1;
}
static inline int64_t bppsa_recurrent_layers(const bppsa_recurrent_config *config) {
  return config->layers * bppsa_recurrent_directions(config);
}
/* Numbers in a level's output: h of each direction. */
static inline int64_t bppsa_recurrent_outputs(const bppsa_recurrent_config *config) {
  return config->hidden * bppsa_recurrent_directions(config);
}

/* The parameters of a layer: without biases the weights alone. */
static inline int64_t bppsa_recurrent_layer_parameters(const bppsa_recurrent_config *config) {
  return config->no_bias ? B_IH : MOST_PARAMETERS;
}
/* The number of parameters in front of the layers': a reset state. */
static inline int64_t bppsa_recurrent_first_parameter(const bppsa_recurrent_config *config) {
  return config->reset_state ? 1 : 0;
}
/* The number of parameters without the head's, or of all of them (`head`). */
static inline int64_t bppsa_recurrent_parameters(const bppsa_recurrent_config *config, bool head) {
  return bppsa_recurrent_first_parameter(config) + bppsa_recurrent_layers(config) * bppsa_recurrent_layer_parameters(config) +
         (head && !config->no_head ? HEAD_PARAMETERS : 0);
}

typedef struct {
  int64_t input; /* numbers in a step's input: I, or above the first level D·H */
  void *h;       /* [T+1][B][H] */
  void *c;       /* likewise, of a cell whose state is a pair; otherwise NULL */
  void *saved;   /* [T][B][saved·H] or NULL */
  void *below;   /* [T·B][input], the layer's input if no other array has it: with dropout, or two directions; otherwise NULL */
  bppsa_scan_plan *plan;
  bppsa_scan_executor *scan; /* NULL: sequential BP */
} recurrent_layer;

/* The network's memory, all allocated at creation (B is the planned batch; a smaller batch packs its rows more tightly; D is the
 * number of directions):
 *
 *   per layer   h, c, saved, below   in the order in which the layer walks through time; with config.tape the first three are the
 *                                    caller's
 *   shared      pre      [T][B][G·H]   forward: pre-activations; backward: delta_x
 *               delta_h  [T][B][G·H]   only for cells that split the deltas
 *               g        [T+1][B][S]   gradients of one layer, then (as u) of the one below; S = H, of a pair 2H
 *               columns  K x [T][B][H], of a pair one more, diagonal [T][B][H]   only with a scan
 *               logits   [B][C] or [T][B][C]
 *               bias [4][G·H], w_t (W_ih or W_lin transposed, or W_ih in panels), w_hh and w_hh_t (padded rows), panels (W_hh,
 *                                    core/compute/matmul.h)   of the present layer
 *               before   [T·B][H]   with lengths or resets: from what states the steps of one layer began
 *               sums, hidden_sums   parts of the weight gradients: of W_ih or W_lin, and of W_hh
 *               dx [T][B][I], dh0 [L·D][B][S]   only with input gradients
 */
typedef struct recurrent_gpu recurrent_gpu;
typedef struct recurrent_backend recurrent_backend;

/* What a GPU is told of a lane in a window of steps (recurrent/walk.h). Steps are counted from 0 in the part of the sequence. */
typedef struct {
  const void *h, *c;   /* the state in front of its next step, of a pair both halves; NULL: 0 */
  void *out;           /* where its state goes if it comes to `stop`; NULL: nowhere */
  int64_t sample, at;  /* at: its next step */
  int64_t begin, stop; /* the first step of its chunk, which may be in front of the part; the step in front of which it stops */
  int64_t end;         /* the step behind its chunk, which may be behind the part */
  int64_t since;       /* as of bppsa_walk_settles; it may be in front of the part as well */
} bppsa_walk_item;

/* What a lane that compares states found in the window. */
typedef struct {
  int64_t steps;   /* walked, up to the one that agrees */
  int64_t agreed;  /* 1: the last of them agrees with the stored state */
  int64_t since;   /* of the lane, behind these steps */
  double distance; /* the largest difference between that state, or the chunk's last one, and the stored one */
} bppsa_walk_found;

/* The parallel forward pass (recurrent/parallel_forward.h). Arrays are NULL where the plan is sequential. On a GPU they belong to a
 * network that holds a part of a sequence; otherwise the GPU goes through the phases by itself
 * (recurrent/gpu/speculate_arrays.cuh). */
typedef struct {
  bppsa_forward_plan plan;
  bppsa_forward_stats stats; /* of the latest pass */
  bppsa_forward_pause pause;
  int multiprocessors; /* of the GPU; 0 on a CPU */
  int64_t most_hidden; /* as of bppsa_forward_shape */
  int64_t seq_len;     /* T of the whole sequence, of which the network may hold a part */
  int64_t workers;     /* on a CPU: threads that walk at the same time, each with its own part of `scratch` */
  int64_t window;      /* steps that lanes take between two looks at them */
  int64_t most_lanes;  /* chunks with lanes in this part · B */
  void *lanes;         /* [most_lanes], bppsa_walk_lane */
  void *members;       /* for a GPU's window: int64, numbers of lanes; */
  void *items, *found; /* bppsa_walk_item and bppsa_walk_found, in host memory */
  void *starts;        /* the same, [S]: the states from which lanes start; on a GPU NULL */
  void *scratch;       /* [workers], the arrays of a group of lanes; on a GPU their states, [window + 1][most_lanes][S] */
  void *doubtful;      /* [B][C] bytes: the chunk begins in this part and must be verified */
  void *paths;         /* int64: [B], dependent steps of each sample in all layers so far; then [B], for reseeding */
  void *totals;        /* double: what the lanes of a phase did, see speculate_cpu.c */
  void *reseeded;      /* [B] bytes: the layer's later chunks began anew */
  void *seeds;         /* [B][S]: the states from which they began */
  /* What crosses the ends of this part, bppsa_walk_crossing and states: [chunks that cross · B], then [B] last states */
  void *in, *out, *states_in, *states_out;
} recurrent_forward;

/* What a part of a sequence has besides (back_part.c, back_sums.c). */
typedef struct {
  double *numbers;                    /* of all chunks and samples, on their way to all parts */
  int64_t *chunks;                    /* [C·B]: those in which lanes begin to walk */
  void *in, *out;                     /* lanes that cross the ends of this part, */
  void *gradients_in, *gradients_out; /* their gradients, and those at the end of a chunk: [C + 1][B][S] */
  void *carried;                      /* [L][2][B][S]: single gradients that go to other parts */
  void *sums;                         /* of weight gradients, for each block of steps that has some here */
} recurrent_back_part;

/* The parallel backward pass (recurrent/parallel_backward.h). Arrays are NULL where the plan is BP, and on a GPU, which has its own
 * (recurrent/gpu/layers.cuh). */
typedef struct {
  bppsa_backward_plan plan;
  bppsa_backward_stats stats; /* of the latest pass */
  bppsa_backward_state state;
  bool scans;      /* the backend can scan what a pass leaves to it, if there are kernels for the shape */
  int64_t warm_up; /* W of the present pass */
  bppsa_backward_need need;
  int64_t workers;          /* threads that walk at the same time */
  int64_t window;           /* steps that lanes take between two looks at them */
  void *lanes, *chunks;     /* [C][B], see walk_back.h */
  int64_t *paths, *longest; /* [B], dependent steps of each sample in all layers so far, and in a phase */
  int64_t *rows;            /* [T + 1]: the row of a step's state, less its sample's place */
  void *starts, *ends;      /* [B][C][S]: the gradient that a chunk started from, and the one in front of it */
  void *lane_gradients;     /* [C·B][S]: the gradients that lanes start from */
  void *sums, *hidden_sums; /* as the network's, of differences */
  void *scratch;            /* [workers], the arrays of a group of lanes */
  recurrent_back_part part; /* NULL in a network with all steps */
} recurrent_backward;

/* Samples of their own lengths (ragged.c): a stretch of time in which the same samples run, the last ones of those sorted
 * by length; and a sample's place among these. */
typedef struct {
  int64_t first, steps; /* steps first + 1 .. first + steps */
  int64_t samples;
  int64_t row; /* of its first step, among the packed rows */
} recurrent_stretch;

typedef struct {
  int64_t length, sample;
} recurrent_place;

/* Arrays are NULL where the network takes no lengths. On a GPU (sequences_cuda.cu) arrays are not packed: they have all
 * steps of all samples, in the caller's order, with zeros behind the ends; x, packed and ends exist, and in host memory, but not in
 * stateless passes, place. */
typedef struct {
  bool active;                /* the present batch has lengths: on a CPU, lengths that are not all T */
  const int64_t *lengths;     /* on a GPU: of the present batch, borrowed */
  bool far, small;            /* they are in the GPU's memory; as int32_t */
  int64_t rows, stretches;    /* of the present batch; rows: Σ lengths */
  recurrent_stretch *stretch; /* [B] */
  recurrent_place *place;     /* [B] */
  void *x;                    /* [T·B][I], packed inputs */
  void *packed;               /* [T·B][the widest of I, D·H and C], packed logits, seeds, or gradients of inputs */
  void *states;               /* [T][B][D·H], of one level, in the caller's order */
  void *ends;                 /* [B][H], the last states of the top layer, in the caller's order */
} recurrent_ragged;

/* Samples that begin anew (resets.c, reset_state.c). Arrays are NULL where the network takes no resets, and on a GPU, which has its
 * own (recurrent/gpu/resets.cuh); the last three where it learns no reset state. A part of a sequence has the masks of all steps,
 * T, on a GPU too, whose forward pass may go through its phases on the host. */
typedef struct {
  bool active;          /* a sample of the present batch begins anew; on a GPU: the batch has resets */
  bool on_gpu;          /* those that are given are in the GPU's memory */
  const uint8_t *given; /* on a GPU: [T][b], of the present batch, borrowed */
  uint8_t *mask;        /* [D][T][b], of places: the sample begins anew in front of the step of the direction's walk */
  uint8_t *any;         /* [D][T]: some sample does */
  void *h, *c; /* [2][B][H], the own rows of samples that begin anew, or copies of the states around such a step; c of a pair */
  void *injected; /* [B][S], copies of u in front of such a step */
  double *sums;   /* [B][C][S], parts of the gradient of a layer's reset state; C: chunks of the speculative pass, or 1 */
  void *terms;    /* instead of them in a part of a sequence whose backward pass is speculative: [T][B][S] of its own steps */
  void *scratch;  /* of a scan: [threads], the arrays of a group of steps */
} recurrent_resets;

/* For a network with two directions (directions.c), rows in the order of time; otherwise NULL. */
typedef struct {
  void *top;    /* [T·B][2H], outputs of the top level; with a loss on the last step [B][2H], each direction's last states */
  void *above;  /* [T·B][2H], the gradient of the present level's outputs; of `top` before it */
  void *passed; /* likewise of the outputs of the level below */
  void *part;   /* [T·B][the wider of I and 2H], what one direction adds to `passed` */
} recurrent_sides;

/* What a network with config.recompute has besides (recompute_cpu.c); otherwise it is zero. The layers' arrays hold a segment of
 * steps. The network of such a segment, which passes over it get, is no network with recompute. */
typedef struct {
  int64_t segments, present; /* of the present batch; the segment that the layers' arrays hold */
  bool later;      /* in the network of a segment: earlier segments follow, which compute the gradient of its first state */
  int64_t *begins; /* [segments + 1]: their first steps, then T */
  void *kept;      /* [segments + 1][L][B][S]: the states in front of them, then the last ones */
  void *carried;   /* [L][B][S]: the gradients of the states behind the first step of the segment that was computed last */
  void *tops;      /* h of the top layer: with a loss on every step [T][B][H], otherwise the last ones [B][H] */
  void *sums, *hidden_sums; /* [L], as the network's */
  double *reset_sums;       /* [L][B][S], as those of resets */
  uint8_t *cuts;            /* with scans and resets: [the longest segment][b], which samples begin anew in a segment */
} recurrent_recompute;

typedef struct {
  bppsa_model base;
  bppsa_model_ops ops; /* the shared functions, under the cell's name */
  bppsa_recurrent_config config;
  const bppsa_cell *cell;
  const recurrent_backend *backend; /* of the network's device */
  unsigned serves;                  /* RECURRENT_FORWARD and so on */
  int32_t threads;
  recurrent_forward forward;
  recurrent_backward back;
  recurrent_ragged ragged;
  recurrent_resets resets;
  recurrent_sides sides;
  recurrent_recompute recompute;
  /* From bppsa_model_drop: the step of training and the samples (borrowed; NULL: nothing is left out) of the next forward passes,
   * and those of the latest forward pass, which its backward passes use. */
  int64_t next_step, drop_step;
  const int64_t *next_samples, *drop_samples;
  recurrent_gpu *gpu; /* NULL: the host. Otherwise arrays are in GPU memory, and those that a GPU does not use are NULL */
  int64_t batch;      /* b of the latest forward pass */
  const void *x;      /* of the latest forward pass, borrowed */
  void *output;       /* with a tape: where the next forward pass writes h_1 .. h_T as well, borrowed; NULL: nowhere */
  const void *seed;   /* of the latest backward pass, borrowed; NULL before it */
  bool seeds_states;  /* `seed` is the gradient of the top layer's states, not of the outputs */
  /* BP of a single layer on a CPU takes dL/dh_t from `seed` (NULL: 0) window by window, so that g has one window. */
  bool seeds_windows;
  const void *of_cells;    /* the gradient of c in the next backward pass, borrowed; NULL: 0 */
  bool of_all_cells;       /* of c_1 .. c_T, not of the last ones */
  bool seeds_cells;        /* the latest backward pass had one */
  bool backward_done;      /* since the latest forward pass */
  bool has_logits;         /* the latest forward pass computed them */
  int64_t bytes;           /* that the network holds, with the state of an optimiser */
  recurrent_layer *layers; /* size L·D */
  char (*names)[NAME_SIZE];
  bppsa_parameter *zeros;   /* [L·D][2]: the biases of layers that have none, behind all parameters; otherwise NULL */
  void *values, *gradients; /* all parameters, one behind the other */
  void *pre, *delta_h, *g, *diagonal, *logits, *before, *sums, *hidden_sums, *dx, *dh0, *bias, *w_t, *w_hh, *w_hh_t, *panels;
  bool has_far, has_far_h; /* biases of the present layer have far parts; far_h (recurrent/cell.h) has some */
  void **columns;          /* size K, of a pair K + 1 */
} recurrent_network;

/* Rows of `width` reals that are copied, or added, from an array to another one; a row of an array has so many reals. With `turned`
 * a row comes from its mirror (bppsa_ragged_mirror). last, on a GPU alone: `to` are rows of all steps, and row b goes to that of
 * the last step of sample b. */
typedef struct {
  const void *from;
  void *to;
  int64_t rows, from_row, to_row, width;
  bool turned, added, last;
} recurrent_rows;

/* Parameter `which` of a layer, or of the head, which is layer L·D. A bias that the network does not have is 0, and its gradient
 * belongs to no parameter. */
static inline const bppsa_parameter *bppsa_recurrent_parameter(const recurrent_network *n, int64_t layer, int64_t which) {
  return which >= B_IH && n->zeros != NULL ? &n->zeros[2 * layer + which - B_IH]
                                           : &n->base.parameters[bppsa_recurrent_first_parameter(&n->config) +
                                                                 layer * bppsa_recurrent_layer_parameters(&n->config) + which];
}

/* Cuts the layer's biases for its forward pass on a CPU, and gives them to a block of it. n->bias begins with the one that is added
 * to x W_ihᵀ. */
void bppsa_recurrent_cut_biases(recurrent_network *n, int64_t l);
void bppsa_recurrent_give_biases(const recurrent_network *n, int64_t l, bppsa_cell_block *block);

/* Numbers in a state: H, or 2H of a pair. */
static inline int64_t bppsa_recurrent_state_size(const recurrent_network *n) {
  return (n->cell->pair ? 2 : 1) * n->config.hidden;
}

static inline int64_t bppsa_recurrent_level(const recurrent_network *n, int64_t l) {
  return l / bppsa_recurrent_directions(&n->config);
}

/* Is something injected into layer l? With a loss on the last step only g_T of the top layer is set, and nothing is injected into
 * it. */
bool bppsa_recurrent_injected(const recurrent_network *n, int64_t l);
/* The number of rows that the head sees, and where they begin in the top layer's h: all of h_1 .. h_T, or h_T. */
int64_t bppsa_recurrent_head_rows(const recurrent_network *n, int64_t *first);

/* What to do with every array of the network: count it, or give it memory. *bytes: the sum so far, or the next address. */
typedef bppsa_status (*bppsa_recurrent_visit)(void **array, int64_t size, int64_t *bytes);
/* An array of steps x rows x width reals. */
bppsa_status bppsa_recurrent_visit_array(const recurrent_network *n, bppsa_recurrent_visit visit, int64_t steps, int64_t rows,
                                         int64_t width, void **array, int64_t *bytes);
/* The arrays that a layer's forward pass writes and its backward pass reads: h, c of a pair, and what the cell saves. Those of the
 * caller's tapes are not the network's, which neither counts nor frees them. */
bppsa_status bppsa_recurrent_visit_tape(recurrent_network *n, int64_t l, bppsa_recurrent_visit visit, int64_t *bytes);

/* ERR_ARGUMENT: the cell's table contradicts itself, or lacks the configuration's nonlinearity. */
bppsa_status bppsa_recurrent_check_cell(const bppsa_recurrent_config *config, const bppsa_cell *cell);
/* ERR_UNSUPPORTED: the table lacks a function that the passes on a CPU call. The plans must have been made. */
bppsa_status bppsa_recurrent_check_entries(const recurrent_network *n);

/* Do the network's arrays serve one of these passes? */
static inline bool bppsa_recurrent_serves(const recurrent_network *n, unsigned passes) {
  return (n->serves & passes) != 0;
}

/* Adds an array's size. ERR_MEMORY: the sum does not fit in 64 bits. */
bppsa_status bppsa_recurrent_count_array(void **array, int64_t size, int64_t *bytes);
/* The same for arrays in the caller's memory, which lie one behind the other, each at a multiple of 64 bytes from the first one. */
bppsa_status bppsa_recurrent_measure_array(void **array, int64_t size, int64_t *bytes);
/* Gives such an array its place at *address, and moves *address behind it. */
bppsa_status bppsa_recurrent_place_array(void **array, int64_t size, int64_t *address);

/* Checks a configuration, makes the plans and counts; `allocates`: allocates all arrays as well, as a model needs them. Destroy it
 * with bppsa_recurrent_destroy. Errors of bppsa_recurrent_create. */
bppsa_status bppsa_recurrent_make(const bppsa_recurrent_config *config, const bppsa_cell *cell, const bppsa_device *device,
                                  bool allocates, recurrent_network **made);
/* Does a layer get its gradients from a scan executor? The plans have been made. */
bool bppsa_recurrent_scans(const recurrent_network *n);
/* Computes the backward passes of all layers from the gradients of the top layer's states in n->g. */
bppsa_status bppsa_recurrent_go_back(recurrent_network *n);
/* Writes n->of_cells, the gradients of c, which are 0 in the seed of h, to the second halves of the rows of n->g. */
bppsa_status bppsa_recurrent_put_cells(const recurrent_network *n);
/* The address `reals` reals behind `base`; NULL for NULL. */
static inline void *bppsa_recurrent_offset(const recurrent_network *n, const void *base, int64_t reals) {
  return base == NULL ? NULL : (char *)(uintptr_t)base + reals * (n->config.dtype == BPPSA_F64 ? 8 : 4);
}

/* The functions of a network for one kind of device. On a GPU all work is queued on the device's stream. */
struct recurrent_backend {
  /* Creation, in this order; runs_scan, check_cell and visit change nothing. */
  bppsa_status (*create)(recurrent_network *n, const bppsa_device *device);
  /* Does a layer with this plan (NULL: not made yet) get its gradients from a scan executor? */
  bool (*runs_scan)(const recurrent_network *n, const bppsa_scan_plan *plan);
  /* Decides what follows from the plans: chunks, sums within the kernels, the parameters' size. */
  void (*choose)(recurrent_network *n);
  /* Visits every array except the parameters in host memory. scans: some layer runs a scan. */
  bppsa_status (*visit)(recurrent_network *n, bool scans, bppsa_recurrent_visit visit, int64_t *bytes);
  bppsa_status (*allocate)(recurrent_network *n, bool scans);
  /* ERR_UNSUPPORTED: the cell's table lacks a function that the passes call. The plans must have been made. */
  bppsa_status (*check_cell)(const recurrent_network *n);
  void (*destroy)(recurrent_network *n);
  /* Passes. h0 NULL: zeros. */
  bppsa_status (*forward)(recurrent_network *n, const void *h0); /* n->x -> h of all layers */
  bppsa_status (*logits)(recurrent_network *n);
  bppsa_status (*seed)(recurrent_network *n); /* n->seed, the gradient of the logits -> g of the top layer */
  bppsa_status (*seed_layers)(recurrent_network *n,
                              const void *seed);        /* the gradient of the top layer's states, or of the last -> g */
  bppsa_status (*head_gradients)(recurrent_network *n); /* gradients of the head's parameters, from n->seed */
  /* Goes through layer l alone: g_T and u in n->g on entry, g_t on return. */
  bppsa_status (*layer_backward)(recurrent_network *n, int64_t l);
  /* Computes the gradients of layer l's parameters from g_T and u in n->g; delta_x remains in n->pre if a layer below needs it. */
  bppsa_status (*backward)(recurrent_network *n, int64_t l);
  bppsa_status (*pass_down)(recurrent_network *n, int64_t l); /* delta_x of layer l >= 1 -> u of the layer below, in n->g */
  /* Of two directions: the gradient of layer l's input, from delta_x, to rows without gaps; what layer l has of the gradient in
   * n->sides.above -> g; moves rows. */
  bppsa_status (*input_gradient)(recurrent_network *n, int64_t l, void *rows);
  bppsa_status (*enter_side)(recurrent_network *n, int64_t l);
  bppsa_status (*move)(const recurrent_network *n, const recurrent_rows *rows);
  /* bppsa_ragged_gather_ends and bppsa_recurrent_drop of the device. */
  bppsa_status (*gather_ends)(const recurrent_network *n, const void *packed, int64_t stride, int64_t width, void *ends,
                              int64_t end_stride);
  bppsa_status (*drop)(const recurrent_network *n, int64_t l, const void *rows, void *left);
  void (*tell_step)(recurrent_network *n, int64_t step); /* the step of training for dropout; NULL: n->drop_step says it */
  bppsa_status (*count)(recurrent_network *n,
                        int64_t *redone);     /* products that the backend's own kernels have redone; waits for the kernels */
  bppsa_status (*look)(recurrent_network *n); /* brings n->forward up to date; waits for the kernels */
  bppsa_status (*tell)(recurrent_network *n); /* takes the pauses from n->forward */
  bppsa_status (*look_back)(recurrent_network *n); /* the same of n->back; NULL: a CPU, which always is */
  bppsa_status (*tell_back)(recurrent_network *n); /* takes the state from n->back; NULL: a CPU */
  /* Takes `count` lanes, n->forward.items, so many steps further. guesses: stores the steps of their chunks; otherwise those up to
   * one that agrees with the stored state, and waits for n->forward.found. NULL: a CPU. */
  bppsa_status (*window)(recurrent_network *n, int64_t layer, bool guesses, int64_t count, int64_t steps);
  /* With config.ends, before `backward`: prepare does what needs no g_T. Then carry writes g_0 to row 0 of n->g before all other
   * gradients, where that is possible (*done). NULL: there is nothing to do. */
  bppsa_status (*prepare)(recurrent_network *n, int64_t l);
  bppsa_status (*carry)(recurrent_network *n, int64_t l, bool *done);
  /* Of stateless passes (layer.c); NULL: there is nothing to do. keep: makes what the passes of a network without arrays read and
   * never change. copy: gives the copy of such a network a part of its own, in `room`, for a pass on the device, if any. begin:
   * queues what the arrays of the pass must begin with. ERR_MEMORY, ERR_CUDA. */
  bppsa_status (*keep)(recurrent_network *n);
  void (*copy)(recurrent_network *n, const bppsa_device *device, void *room);
  bppsa_status (*begin)(recurrent_network *n);
  const struct recurrent_tangents *tangents; /* derivatives along a direction (recurrent/tangent_internal.h) */
};
extern const recurrent_backend bppsa_recurrent_cpu, bppsa_recurrent_cuda; /* the latter also without CUDA, where creation fails */
extern const struct recurrent_tangents bppsa_tangents_cpu, bppsa_tangents_cuda; /* the latter in builds with CUDA alone */

/* ---- samples of their own lengths (ragged.c) ---- */

/* Are the rows of the present batch packed? */
static inline bool bppsa_ragged_packed(const recurrent_network *n) {
  return n->ragged.active && n->gpu == NULL;
}
/* The stretches of the present batch, and its rows. */
static inline int64_t bppsa_ragged_stretches(const recurrent_network *n) {
  return bppsa_ragged_packed(n) ? n->ragged.stretches : 1;
}
recurrent_stretch bppsa_ragged_stretch(const recurrent_network *n, int64_t index);
static inline int64_t bppsa_ragged_rows(const recurrent_network *n) {
  return bppsa_ragged_packed(n) ? n->ragged.rows : n->config.seq_len * n->batch;
}
/* The caller's sample at a place of the sorted ones. */
static inline int64_t bppsa_ragged_sample(const recurrent_network *n, int64_t place) {
  return bppsa_ragged_packed(n) ? n->ragged.place[place].sample : place;
}

/* The length of a sample of the caller's. */
int64_t bppsa_ragged_length(const recurrent_network *n, int64_t sample);

/* Takes the lengths of the next batch, size `batch`; NULL: all are T. Changes nothing on failure. ERR_ARGUMENT: a length out of
 * range, or lengths where the network was made without them. */
bppsa_status bppsa_ragged_take(recurrent_network *n, int64_t batch, const int64_t *lengths);
/* The same of lengths in a GPU's memory, of a batch as large as the network's, which are not checked; `small`: they are int32_t. */
bppsa_status bppsa_ragged_take_far(recurrent_network *n, const void *lengths, bool small);
bppsa_status bppsa_ragged_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes);
void bppsa_ragged_free(recurrent_network *n);

/* Copies rows of so many reals from the caller's array [T][b] to packed ones, or back, with 0 behind the ends. */
void bppsa_ragged_pack(const recurrent_network *n, const void *whole, int64_t width, void *packed);
/* The same to packed rows that are `stride` reals apart. */
void bppsa_ragged_pack_rows(const recurrent_network *n, const void *whole, int64_t width, void *packed, int64_t stride);
void bppsa_ragged_unpack(const recurrent_network *n, const void *packed, int64_t width, void *whole);
/* Copies rows of `width` reals from the last packed rows of all samples, which are `stride` reals wide, to the caller's array [b],
 * whose rows are end_stride reals wide, or back. */
bppsa_status bppsa_ragged_gather_ends(const recurrent_network *n, const void *packed, int64_t stride, int64_t width, void *ends,
                                      int64_t end_stride);
void bppsa_ragged_scatter_ends(const recurrent_network *n, const void *ends, int64_t end_stride, int64_t stride, int64_t width,
                               void *packed);
/* Adds the rows of the caller's array to the last packed rows. */
void bppsa_ragged_add_ends(const recurrent_network *n, const void *ends, int64_t end_stride, int64_t stride, int64_t width,
                           void *packed);
/* Copies states [T + 1][b] in the caller's order to packed ones, or back, with 0 behind the ends. */
void bppsa_ragged_move_states(const recurrent_network *n, const void *whole, int64_t width, const void *packed, bool back);
/* Copies the states in front of every step to rows like the step's. */
void bppsa_ragged_shift(const recurrent_network *n, const void *states, int64_t width, void *before);
/* Moves packed states apart, to [T + 1][b], sorted, with 0 behind the ends. */
void bppsa_ragged_spread(const recurrent_network *n, int64_t width, void *states);
/* Moves them together again. */
void bppsa_ragged_gather(const recurrent_network *n, int64_t width, void *states);
/* Writes 0 behind the ends of an array [T][b], sorted. */
void bppsa_ragged_clear(const recurrent_network *n, int64_t width, void *array);
/* The step, from 1, and the caller's sample of a packed row. */
void bppsa_ragged_find(const recurrent_network *n, int64_t row, int64_t *step, int64_t *sample);

/* Returns the packed row of the step of the same sample that is as far from the sample's end as this row's step is from its
 * beginning. */
int64_t bppsa_ragged_mirror(const recurrent_network *n, int64_t row);

/* ---- samples that begin anew (resets.c) ---- */

/* Steps of a walk are counted from 0, in a part of a sequence from the first step of the whole one.
 *
 * Checks the resets of the next batch; NULL: there are none. ERR_SHAPE: not bool or u8 [T, b]; ERR_ARGUMENT: a value other than 0
 * and 1, memory of another device, or resets where the network was made without them. */
bppsa_status bppsa_resets_check(const recurrent_network *n, int64_t batch, const bppsa_view *resets);
/* Takes them, behind the lengths of the same batch (bppsa_ragged_take). */
void bppsa_resets_take(recurrent_network *n, int64_t batch, const bppsa_view *resets);
bppsa_status bppsa_resets_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes);
void bppsa_resets_free(recurrent_network *n);

/* Steps in the masks: T, or of a part of a sequence all steps of that sequence. */
static inline int64_t bppsa_resets_steps(const recurrent_network *n) {
  return n->config.part.seq_len > 0 ? n->config.part.seq_len : n->config.seq_len;
}
/* The mask of layer l's direction from a step of its walk on, [..][b]; NULL: no sample of the batch begins anew. */
static inline const uint8_t *bppsa_resets_mask(const recurrent_network *n, int64_t l, int64_t step) {
  const int64_t side = l % bppsa_recurrent_directions(&n->config);
  return n->resets.active ? n->resets.mask + (side * bppsa_resets_steps(n) + step) * n->batch : NULL;
}
/* Does the sample at a place begin anew in front of a step of layer l's walk? */
static inline bool bppsa_resets_at(const recurrent_network *n, int64_t l, int64_t step, int64_t place) {
  return n->resets.active && bppsa_resets_mask(n, l, step)[place] != 0;
}
/* Returns the first (or the last) of the steps first .. end - 1, but not step 0, in front of which one of `count` samples from a
 * place on begins anew; -1: none. The batch has resets. */
int64_t bppsa_resets_find(const recurrent_network *n, int64_t l, int64_t first, int64_t end, int64_t place, int64_t count,
                          bool last);

/* A step in front of which samples of a block begin anew: samples first .. first + count - 1 of those that run in it. */
typedef struct {
  int64_t layer, step;  /* step: of the layer's walk */
  int64_t row, samples; /* of the step, among those of all steps; samples that run */
  int64_t first, count;
  bool in_place; /* the pass may write to the states: all but a backward pass of the caller's tape may */
  bool injected;
  void *g; /* backward: of the state in front of the step, [samples][S]; NULL: it is not wanted */
} recurrent_reset_step;
/* In place: writes 0 or the reset state to the rows in front of the step of samples that begin anew, and keeps their own rows in
 * n->resets.h and c. Otherwise it copies the block's states in front of the step and behind it to these, [2][samples][H], with 0 or
 * the reset state for samples that begin anew. Backward it keeps u in front of the step, too. */
void bppsa_resets_begin(const recurrent_network *n, const recurrent_reset_step *s);
/* In place: gives the samples their own rows back. Backward: what is behind the step has no part in the gradients of samples that
 * begin anew, but in that of the reset state. */
void bppsa_resets_end(const recurrent_network *n, const recurrent_reset_step *s);
/* Rows [H] are the states h in front of the steps of a stretch, one for each sample that runs in each step: writes 0 or the reset
 * state where the sample begins anew there. */
void bppsa_resets_begin_rows(const recurrent_network *n, int64_t l, const recurrent_stretch *s, void *rows);
/* The same, and keeps the rows that it overwrites at their places in `kept`; or gives these rows back. */
void bppsa_resets_exchange_rows(const recurrent_network *n, int64_t l, const recurrent_stretch *s, void *rows, void *kept,
                                bool back);

/* ---- the state from which samples begin anew (reset_state.c) ---- */

/* The row [S] of layer l, of a pair h in front of c; NULL: 0. */
static inline const void *bppsa_reset_state_of(const recurrent_network *n, int64_t l) {
  return n->config.reset_state ? bppsa_recurrent_offset(n, n->base.parameters[0].value.data, l * bppsa_recurrent_state_size(n))
                               : NULL;
}
/* Writes h (or c) of it to a row [H]. */
void bppsa_reset_state_write(const recurrent_network *n, int64_t l, bool cells, void *row);
/* The functions below have nothing to do where no reset state is learned. Begin a layer's backward pass, or begin it again. */
void bppsa_reset_state_begin(const recurrent_network *n);
/* Adds the gradient [S] of the state in front of a step at which the sample at a place begins anew; chunk: that of the speculative
 * pass, otherwise 0. Samples and chunks may be added at the same time. */
void bppsa_reset_state_add(const recurrent_network *n, int64_t step, int64_t place, int64_t chunk, const void *gradient);
/* Behind a scan, which leaves these gradients out: computes them from the gradients behind the steps, and adds them. */
void bppsa_reset_state_carry(const recurrent_network *n, int64_t l);
/* Adds g_0 of the samples that begin anew in front of the first step, unless a scan has computed the layer, and writes the
 * gradient of layer l's reset state; where there are terms, bppsa_back_sum_layer does. */
void bppsa_reset_state_finish(const recurrent_network *n, int64_t l);
/* Adds the terms of the network's own steps first .. end - 1 to a sum [S], in the order of time. */
void bppsa_reset_state_sum(const recurrent_network *n, int64_t l, int64_t first, int64_t end, void *sum);
bppsa_status bppsa_reset_state_visit(recurrent_network *n, bool scans, bppsa_recurrent_visit visit, int64_t *bytes);

/* ---- states that are computed again (recompute_cpu.c) ---- */

/* Steps in the arrays of states, gradients and deltas of a network on a CPU: T, or those of the longest segment and the step behind
 * it. */
int64_t bppsa_recompute_steps(const recurrent_network *n);
bppsa_status bppsa_recompute_visit(recurrent_network *n, bool scans, bppsa_recurrent_visit visit, int64_t *bytes);
void bppsa_recompute_free(recurrent_network *n);
/* `forward` and, from n->seed, the backward passes of all layers. */
bppsa_status bppsa_recompute_forward(recurrent_network *n, const void *h0);
bppsa_status bppsa_recompute_backward(recurrent_network *n);
/* The last states of layer l, h (or c) of the samples, in rows [S]. */
const void *bppsa_recompute_last(const recurrent_network *n, int64_t l, bool cells);
/* Finds the first state that is not finite, of the lowest layer that has one. */
bool bppsa_recompute_find_nonfinite(recurrent_network *n, bppsa_nonfinite *where);

/* ---- two directions (directions.c) ---- */

bppsa_status bppsa_sides_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes);
void bppsa_sides_free(recurrent_network *n);
/* `move` of a CPU and of a GPU */
bppsa_status bppsa_sides_move(const recurrent_network *n, const recurrent_rows *rows);
bppsa_status bppsa_sides_move_cuda(const recurrent_network *n, const recurrent_rows *rows);
/* Writes the states h (or c) of both layers of a level to rows [2H] in the order of time. */
bppsa_status bppsa_sides_join(const recurrent_network *n, int64_t level, bool cells, void *rows);
/* Makes the input of layer l, when the layers in front of it have been computed. */
bppsa_status bppsa_sides_enter(const recurrent_network *n, int64_t l);
/* Makes what the head reads, when all layers have been computed. */
bppsa_status bppsa_sides_leave(const recurrent_network *n);
/* Is the gradient in n->sides.above that of the last states [b][2H], with which layer l begins? */
bool bppsa_sides_ends(const recurrent_network *n, int64_t l);
/* Copies layer l's share of the gradient in n->sides.above to rows [H] of so many reals, in the order in which the layer walks. */
bppsa_status bppsa_sides_split(const recurrent_network *n, int64_t l, void *rows, int64_t row);
/* Adds layer l's share of the gradient of its level's input to rows in the order of time; the reverse layer, which comes first,
 * writes them. */
bppsa_status bppsa_sides_add(recurrent_network *n, int64_t l, void *rows);
/* `pass_down` of two directions */
bppsa_status bppsa_sides_pass_down(recurrent_network *n, int64_t l);

/* ---- dropout (dropout.c) ---- */

/* Does layer l read the states below it with dropout? */
static inline bool bppsa_recurrent_drops(const recurrent_network *n, int64_t l) {
  const int64_t level = bppsa_recurrent_level(n, l);
  return level > 0 && level < n->config.layers && n->config.dropout > 0 && n->drop_samples != NULL;
}
/* Applies dropout to rows [Σ steps][D·H], the states below layer l or their gradients, and writes them to another array or the
 * same. */
bppsa_status bppsa_recurrent_drop(const recurrent_network *n, int64_t l, const void *rows, void *left);
/* The stream of its random numbers in step 0 of training. */
uint64_t bppsa_recurrent_drop_stream(const recurrent_network *n, int64_t l);

/* ---- the parallel forward pass on a CPU, and of a part of a sequence on a GPU ---- */

/* On a GPU: c of a pair in the states of a window, behind h; otherwise NULL. */
static inline void *bppsa_walk_window_cells(const recurrent_network *n) {
  return n->cell->pair
             ? bppsa_recurrent_offset(n, n->forward.scratch, (n->forward.window + 1) * n->forward.most_lanes * n->config.hidden)
             : NULL;
}

/* Do its phases run on the host? */
static inline bool bppsa_forward_hosted(const recurrent_network *n) {
  return n->forward.plan.speculative && (n->gpu == NULL || n->config.part.seq_len > 0);
}

/* Says how many threads walk, and how many steps at once. */
void bppsa_forward_choose(recurrent_network *n);
const bppsa_model_account *bppsa_forward_account(const bppsa_model *model); /* of a recurrent network's forward passes */
/* Visits the arrays in host memory on every device, and those of states, which are in the device's memory. */
bppsa_status bppsa_forward_visit_host(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes);
bppsa_status bppsa_forward_visit_states(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes);
/* Gives memory to an array in host memory. */
bppsa_status bppsa_recurrent_allocate_array(void **array, int64_t size, int64_t *bytes);
void bppsa_forward_free(recurrent_network *n);  /* those in host memory */
bool bppsa_forward_begin(recurrent_network *n); /* a pass over all layers: does it speculate? */
/* Computes layer l's states from x, its input, which a GPU finds by itself, and from the state in front of the first step. The
 * layer's weights have been prepared. Errors of config.part. */
bppsa_status bppsa_forward_layer(recurrent_network *n, int64_t l, const void *x);
void bppsa_forward_end(recurrent_network *n);

/* ---- the parallel backward pass on a CPU (speculate_back.c) ---- */

const bppsa_model_account *bppsa_back_account(const bppsa_model *model); /* of a recurrent network's backward passes */
bppsa_status bppsa_back_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes);
void bppsa_back_free(recurrent_network *n);
bppsa_status bppsa_back_begin(recurrent_network *n); /* a pass over all layers; a GPU decides later whether it speculates */
/* The vector that walks through a silent chunk instead of zeros. */
void bppsa_back_draw(const recurrent_network *n, int64_t chunk, void *to);
/* From u_t and g_T in n->g: g_0 there, delta_x where a layer below or the input's gradient needs it, and sums in `parts` parts of
 * layer l's weight gradients, which begin with zeros; with parts = 0 the deltas of all steps instead. x: the layer's input; W_hh
 * has padded rows. False: this pass is better left to BP, and u_t and g_T are as they were. */
bool bppsa_back_layer(recurrent_network *n, int64_t l, const void *x, int64_t parts);
/* Sums of layer l's weight gradients, and apart from them those of the differences, which are smaller and whose many windows would
 * round the large sums once more each: clears them; adds rows to a part, deltas and what they are multiplied with, x and h in front
 * of the steps; adds the differences' sums to the others. apart: NULL, or G·H (1 + max(H, inputs)) reals, in which the rows are
 * summed by themselves before they are added: a window of earlier steps, whose gradients may be small, then rounds the large sums
 * of later ones once and not with each of its rows. */
void bppsa_recurrent_clear_sums(recurrent_network *n, int64_t l, bool differences);
void bppsa_recurrent_sum_rows(const recurrent_network *n, int64_t l, bool differences, int64_t part, int64_t rows,
                              const void *delta_x, const void *x, const void *delta_h, const void *h, void *apart);
void bppsa_recurrent_join_sums(recurrent_network *n, int64_t l);
void bppsa_back_add(const recurrent_network *n, int64_t count, const void *from, void *to); /* to += from */
void bppsa_back_given_up(recurrent_network *n);                                             /* BP computes the layer */
void bppsa_back_end(recurrent_network *n);

/* Has the network a part of a sequence whose backward passes are speculative? Then back_part.c computes the layers, and
 * back_sums.c the weight gradients. */
static inline bool bppsa_back_is_part(const recurrent_network *n) {
  return n->back.plan.speculative && n->config.part.seq_len > 0;
}
bppsa_status bppsa_back_part_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes);
bppsa_status bppsa_back_sums_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes);
bppsa_status bppsa_back_part_agree(const recurrent_network *n, bool *all); /* is it so in all parts? */
/* From u_t and g_T in n->g: the deltas of all steps, and g_0 in the part with the first step. Weights have been prepared. */
bppsa_status bppsa_back_part_layer(recurrent_network *n, int64_t l, const void *x);

/* The products behind a layer's weight gradients: with its input, and with its states before each step. For outputs before
 * `shared` the bias gradient of b_hh equals that of b_ih. */
typedef struct {
  bppsa_linear from_x, from_h;
  const void *x, *h, *delta_x, *delta_h;
  int64_t shared;
} recurrent_products;
/* Computes the weight gradients of a part's layer and gives them on (bppsa_forward_part.take). Those of the head, layer L, have no
 * from_h. */
bppsa_status bppsa_back_sum_layer(recurrent_network *n, int64_t l, const recurrent_products *p);

/* Writes the gradients of the top layer's states to n->g, from n->seed. */
bppsa_status bppsa_recurrent_seed(recurrent_network *n);

/* The network behind a model; NULL if the model is of another kind. */
recurrent_network *bppsa_recurrent_network_of(const bppsa_model *model);

extern const bppsa_model_ops bppsa_recurrent_ops;
bool bppsa_recurrent_find_nonfinite(bppsa_model *model, bppsa_nonfinite *where);
/* Finds the first state of layer l that is not finite, among the states that the layers' arrays hold. */
bool bppsa_recurrent_find_state(const recurrent_network *n, int64_t l, bppsa_nonfinite *where);
void bppsa_recurrent_destroy(bppsa_model *model);

#ifdef __cplusplus
}
#endif

#endif
