/* Inside of a recurrent network. */
#ifndef BPPSA_RECURRENT_NETWORK_INTERNAL_H
#define BPPSA_RECURRENT_NETWORK_INTERNAL_H

#include "recurrent/cell.h"
#include "recurrent/linear.h"

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
typedef struct {
  bppsa_model base;
  bppsa_model_ops ops; /* the shared functions under the cell's name */
  bppsa_recurrent_config config;
  const bppsa_cell *cell;
  int32_t threads;
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
/* Row length that fills whole cache lines. */
int64_t bppsa_recurrent_padded(const recurrent_network *n, int64_t width);
/* The gradient of the logits -> g of the top layer. */
void bppsa_recurrent_seed(recurrent_network *n);
/* delta_x of layer l >= 1 -> u of the layer below, in n->g. */
void bppsa_recurrent_pass_down(recurrent_network *n, int64_t l);

extern const bppsa_model_ops bppsa_recurrent_ops;
bool bppsa_recurrent_find_nonfinite(bppsa_model *model, bppsa_nonfinite *where);
void bppsa_recurrent_destroy(bppsa_model *model);

#endif
