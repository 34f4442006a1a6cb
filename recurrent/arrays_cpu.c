/* The memory of recurrent networks on the CPU. */
#include "core/base/alloc.h"
#include "core/compute/matmul.h"
#include "recurrent/layers_cpu.h"

int64_t bppsa_layers_sums_bytes(const recurrent_network *n, bool hidden) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t rows = c->seq_len * c->batch, out = n->cell->gates * c->hidden;
  const int64_t unit = c->lengths ? 1 : c->batch; /* single rows make the most parts, where batches have fewer rows */
  const int64_t outputs = bppsa_recurrent_outputs(c);
  const bppsa_linear from_h = {c->dtype, 1, rows, c->hidden, out, unit, 0, 0, NULL, NULL};
  const bppsa_linear uses[] = {{c->dtype, 1, rows, c->input, out, unit, 0, 0, NULL, NULL},
                               {c->dtype, 1, rows, outputs, out, unit, 0, 0, NULL, NULL},
                               {c->dtype, 1, c->loss_all ? rows : c->batch, outputs, c->classes, unit, 0, 0, NULL, NULL}};
  int64_t most = 0;
  for (size_t i = 0; !hidden && i < sizeof uses / sizeof *uses; ++i) {
    const int64_t bytes = bppsa_linear_workspace(&uses[i]);
    most = bytes < 0 || most < 0 ? -1 : bytes > most ? bytes : most;
  }
  return hidden ? bppsa_linear_workspace(&from_h) : most;
}

/* Bytes of a parameter [G·H][in] in panels, in the order in which the forward or the backward pass reads it. */
static int64_t panels_bytes(const recurrent_network *n, int64_t in) {
  const int64_t gates = n->cell->gates * n->config.hidden, size = layers_size_of(n),
                forward = bppsa_panels_bytes(in, gates, size), backward = bppsa_panels_bytes(gates, in, size);
  return forward > backward ? forward : backward;
}

/* Bytes of the rows that a run's weight gradients multiply, in panels. */
static int64_t run_bytes(const recurrent_network *n, int64_t widest) {
  const int64_t rows = bppsa_layers_most_run_rows(n), all = n->config.seq_len * n->config.batch;
  return bppsa_panels_bytes(rows < all ? rows : all, widest, layers_size_of(n));
}

void *bppsa_layers_run_panels(const recurrent_network *n) {
  return layers_in_panels(n) && n->panels != NULL ? (char *)n->panels + panels_bytes(n, n->config.hidden) : NULL;
}

/* How many numbers a row or column of n->w_t takes, which is W_ih or W_lin transposed, or W_ih in panels. */
static int64_t padded(const recurrent_network *n, int64_t count) {
  return layers_in_panels(n) ? bppsa_panels_bytes(1, count, layers_size_of(n)) / layers_size_of(n) : count;
}

bppsa_status bppsa_layers_visit(recurrent_network *n, bool scans, bppsa_recurrent_visit visit, int64_t *bytes) {
  const bppsa_recurrent_config *c = &n->config;
  const bppsa_cell *cell = n->cell;
  const int64_t steps = bppsa_recompute_steps(n), batch = c->batch, hidden = c->hidden, gates = cell->gates * hidden;
  const int64_t outputs = bppsa_recurrent_outputs(c), widest = c->input > outputs ? c->input : outputs,
                most = gates > c->classes ? gates : c->classes;
  const int64_t state = bppsa_recurrent_state_size(n), sums = bppsa_layers_sums_bytes(n, false),
                hidden_sums = bppsa_layers_sums_bytes(n, true);
  if (sums < 0 || hidden_sums < 0) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "%s: the weight gradients' partial sums do not fit in 64 bits", cell->name);
  }
  for (int64_t l = 0; l < bppsa_recurrent_layers(c); ++l) {
    BPPSA_TRY(c->tape ? BPPSA_OK : bppsa_recurrent_visit_tape(n, l, visit, bytes));
    if (l > 0 && (c->dropout > 0 || c->bidirectional)) {
      BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, steps, batch, n->layers[l].input, &n->layers[l].below, bytes));
    }
  }
  const bool forward = bppsa_recurrent_serves(n, RECURRENT_FORWARD), backward = bppsa_recurrent_serves(n, RECURRENT_BACKWARD),
             head = bppsa_recurrent_serves(n, RECURRENT_HEAD);
  for (int64_t k = 0; scans && backward && k < cell->matrices + cell->pair; ++k) {
    BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, steps, batch, hidden, &n->columns[k], bytes));
  }
  const struct {
    bool wanted;
    int64_t steps, rows, width;
    void **array;
  } arrays[] = {{true, steps, batch, gates, &n->pre},
                {backward, steps + 1, batch, state, &n->g},
                {head && (!c->no_head || c->lengths), c->loss_all ? c->seq_len : 1, batch, n->base.classes, &n->logits},
                {true, 1, 4, gates, &n->bias},
                {true, 1, padded(n, widest), padded(n, most), &n->w_t},
                {backward, 1, gates, bppsa_dtype_padded(c->dtype, hidden), &n->w_hh},
                {forward, 1, hidden, bppsa_dtype_padded(c->dtype, gates), &n->w_hh_t},
                {backward && cell->split, steps, batch, gates, &n->delta_h},
                {backward && (c->lengths || c->resets), steps, batch, hidden, &n->before},
                {backward && scans && cell->diagonal, steps, batch, hidden, &n->diagonal},
                {head && c->input_gradients, c->seq_len, batch, c->input, &n->dx},
                {backward && c->input_gradients, bppsa_recurrent_layers(c), batch, state, &n->dh0}};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
    if (arrays[i].wanted) {
      BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, arrays[i].steps, arrays[i].rows, arrays[i].width, arrays[i].array, bytes));
    }
  }
  if (layers_in_panels(n)) {
    BPPSA_TRY(visit(&n->panels, panels_bytes(n, hidden) + (backward ? run_bytes(n, widest) : 0), bytes));
  }
  BPPSA_TRY(bppsa_ragged_visit(n, visit, bytes));
  BPPSA_TRY(bppsa_resets_visit(n, visit, bytes));
  BPPSA_TRY(bppsa_sides_visit(n, visit, bytes));
  BPPSA_TRY(bppsa_recompute_visit(n, scans, visit, bytes));
  if (forward) {
    BPPSA_TRY(bppsa_forward_visit_host(n, visit, bytes));
    BPPSA_TRY(bppsa_forward_visit_states(n, visit, bytes));
  }
  if (!backward) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_back_visit(n, visit, bytes));
  BPPSA_TRY(bppsa_reset_state_visit(n, scans, visit, bytes));
  if (n->back.plan.speculative && !bppsa_back_is_part(n)) {
    BPPSA_TRY(visit(&n->back.sums, sums, bytes));
    BPPSA_TRY(visit(&n->back.hidden_sums, hidden_sums, bytes));
  }
  BPPSA_TRY(visit(&n->sums, sums, bytes));
  return visit(&n->hidden_sums, hidden_sums, bytes);
}

bppsa_status bppsa_recurrent_allocate_array(void **array, int64_t size, int64_t *bytes) {
  *bytes += size;
  *array = bppsa_calloc(size, 1);
  return *array == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

bppsa_status bppsa_layers_allocate(recurrent_network *n, bool scans) {
  int64_t bytes = 0;
  return bppsa_layers_visit(n, scans, bppsa_recurrent_allocate_array, &bytes);
}

void bppsa_layers_destroy(recurrent_network *n) {
  for (int64_t l = 0; n->layers != NULL && l < bppsa_recurrent_layers(&n->config); ++l) {
    void *const tape[] = {n->layers[l].h, n->layers[l].c, n->layers[l].saved};
    for (size_t i = 0; !n->config.tape && i < sizeof tape / sizeof *tape; ++i) {
      bppsa_free(tape[i]);
    }
    bppsa_free(n->layers[l].below);
  }
  for (int64_t k = 0; n->columns != NULL && k < n->cell->matrices + n->cell->pair; ++k) {
    bppsa_free(n->columns[k]);
  }
  bppsa_forward_free(n);
  bppsa_back_free(n);
  bppsa_ragged_free(n);
  bppsa_resets_free(n);
  bppsa_sides_free(n);
  bppsa_recompute_free(n);
  void *const own[] = {n->pre, n->delta_h, n->g,    n->diagonal, n->logits, n->before, n->sums,  n->hidden_sums,
                       n->dx,  n->dh0,     n->bias, n->w_t,      n->w_hh_t, n->w_hh,   n->panels};
  for (size_t i = 0; i < sizeof own / sizeof *own; ++i) {
    bppsa_free(own[i]);
  }
}
