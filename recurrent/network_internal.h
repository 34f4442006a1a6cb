/* Inside of a recurrent network. */
#ifndef BPPSA_RECURRENT_NETWORK_INTERNAL_H
#define BPPSA_RECURRENT_NETWORK_INTERNAL_H

#include "core/linear.h"
#include "recurrent/cell.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PARAMETERS_PER_LAYER = 4, W_IH = 0, W_HH, B_IH, B_HH, NAME_SIZE = 40 };

typedef struct {
  int64_t input; /* size of a step's input: I, or H above the first layer */
  void *h;       /* [T+1][B][H] */
  void *saved;   /* [T][B][saved·H] or NULL */
  bppsa_scan_plan *plan;
  bppsa_scan_executor *scan; /* NULL: sequential BP */
} recurrent_layer;

/* Memory, all of it allocated at creation (B the planned batch; a smaller batch packs its rows more tightly):
 *
 *   per layer   h, saved
 *   shared      pre      [T][B][G·H]   forward: pre-activations; backward: delta_x
 *               delta_h  [T][B][G·H]   only for cells that split the deltas
 *               g        [T+1][B][H]   gradients of one layer, then (as u) of the one below
 *               columns  K x [T][B][H], diagonal [T][B][H]   only with a scan
 *               logits   [B][C] or [T][B][C]
 *               bias [G·H], w_t (a transposed W_ih or W_lin), w_hh and w_hh_t (padded rows)   of the layer at hand
 *               sums, hidden_sums   parts of the weight gradients: of W_ih or W_lin, and of W_hh
 *               dx [T][B][I], dh0 [L][B][H]   only with input gradients
 */
typedef struct recurrent_gpu recurrent_gpu;

typedef struct {
  bppsa_model base;
  bppsa_model_ops ops; /* the shared functions under the cell's name */
  bppsa_recurrent_config config;
  const bppsa_cell *cell;
  int32_t threads;
  recurrent_gpu *gpu;      /* NULL: the host. Otherwise arrays are in GPU memory, and those it has no use for are NULL */
  int64_t batch;           /* b of the latest forward */
  const void *x;           /* of the latest forward, borrowed */
  const void *seed;        /* of the latest backward through the head, borrowed; NULL before it */
  bool backward_done;      /* since the latest forward */
  recurrent_layer *layers; /* size config.layers */
  char (*names)[NAME_SIZE];
  void *values, *gradients; /* all parameters, one behind the other */
  void *pre, *delta_h, *g, *diagonal, *logits, *sums, *hidden_sums, *dx, *dh0, *bias, *w_t, *w_hh, *w_hh_t;
  void **columns; /* size K */
} recurrent_network;

/* Backward through layer l alone: g_T and u in n->g on entry, g_t there on return, deltas in n->pre (and n->delta_h). */
bppsa_status bppsa_recurrent_layer_backward(recurrent_network *n, int64_t l);
/* The gradient of the logits -> g of the top layer. */
bppsa_status bppsa_recurrent_seed(recurrent_network *n);
/* delta_x of layer l >= 1 -> u of the layer below, in n->g. */
bppsa_status bppsa_recurrent_pass_down(recurrent_network *n, int64_t l);
/* With a loss on the last step only g_T is set, and nothing is injected into the top layer. */
bool bppsa_recurrent_injected(const recurrent_network *n, int64_t l);
/* Rows the head sees and where they begin in the top layer's h: all of h_1 .. h_T, or h_T. */
int64_t bppsa_recurrent_head_rows(const recurrent_network *n, int64_t *first);

/* What is done with every array of the network: counted, or given memory. *bytes: Σ so far, or where memory goes on. */
typedef bppsa_status (*bppsa_recurrent_visit)(void **array, int64_t size, int64_t *bytes);
/* An array of steps x rows x width reals. */
bppsa_status bppsa_recurrent_visit_array(const recurrent_network *n, bppsa_recurrent_visit visit, int64_t steps, int64_t rows,
                                         int64_t width, void **array, int64_t *bytes);

/* ERR_ARGUMENT: the cell's table contradicts itself, or it lacks the configuration's nonlinearity. */
bppsa_status bppsa_recurrent_check_cell(const bppsa_recurrent_config *config, const bppsa_cell *cell);
/* ERR_UNSUPPORTED: the table lacks what the network's passes on a CPU call; its scans have been made. */
bppsa_status bppsa_recurrent_check_entries(const recurrent_network *n);

/* ---- on a GPU (recurrent_cuda.cu, or recurrent_nocuda.c in its place); all work is queued on the device's stream ---- */

/* Whether kernels of its own make the layers' products of steps, without a scan executor. Of the configuration and the plans alone. */
bool bppsa_recurrent_cuda_fused(const recurrent_network *n);
bppsa_status bppsa_recurrent_cuda_create(recurrent_network *n, const bppsa_device *device);
/* What the plans decide: chunks, what a walk sums, the parameters' size. Before the first visit. */
void bppsa_recurrent_cuda_choose(recurrent_network *n);
/* Every array: of GPU memory. */
bppsa_status bppsa_recurrent_cuda_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes);
/* Takes `bytes` in one piece. *address: where it begins. */
bppsa_status bppsa_recurrent_cuda_reserve(recurrent_network *n, int64_t bytes, int64_t *address);
/* What must begin as 0: parameters, gradients and the gaps between them, counts. The rest is written before it is read. */
bppsa_status bppsa_recurrent_cuda_clear(recurrent_network *n);
void bppsa_recurrent_cuda_destroy(recurrent_network *n);
/* h of all layers; h0 NULL: 0. */
bppsa_status bppsa_recurrent_cuda_forward(recurrent_network *n, const void *h0);
bppsa_status bppsa_recurrent_cuda_logits(recurrent_network *n);
/* Gradients of the head's parameters, from n->seed; of the layers', from g_T and u in n->g. */
bppsa_status bppsa_recurrent_cuda_head_gradients(recurrent_network *n);
bppsa_status bppsa_recurrent_cuda_backward(recurrent_network *n);
/* As the functions above without _cuda. seed_layers: the gradients of the top layer's states, or of the last ones -> g. */
bppsa_status bppsa_recurrent_cuda_seed(recurrent_network *n);
bppsa_status bppsa_recurrent_cuda_seed_layers(recurrent_network *n, const void *seed);
bppsa_status bppsa_recurrent_cuda_layer_backward(recurrent_network *n, int64_t l);
bppsa_status bppsa_recurrent_cuda_pass_down(recurrent_network *n, int64_t l);
/* Of the fused kernels. Waits. */
bppsa_status bppsa_recurrent_cuda_count(recurrent_network *n, int64_t *redone);

extern const bppsa_model_ops bppsa_recurrent_ops;
bool bppsa_recurrent_find_nonfinite(bppsa_model *model, bppsa_nonfinite *where);
void bppsa_recurrent_destroy(bppsa_model *model);

#ifdef __cplusplus
}
#endif

#endif
