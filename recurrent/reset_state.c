/* A learned state from which samples begin anew (bppsa_recurrent_config.reset_state), on a CPU. Internal.
 *
 * Where a sample begins anew in front of step t, the state there is the parameter s [S] of the layer and direction. So
 *
 *     ds = Σ_{t,b} r_{t,b} Jᵀ_{t,b} g_{t,b}        r: 1 where the sample begins anew, 0 elsewhere
 *
 * with g_t the gradient of the state behind step t, as everywhere. A pass that goes step by step has the terms of the sum when it
 * replaces the gradients in front of such a step (resets.c), and so have lanes of a speculative pass, which add those of
 * differences as well. A scan takes Jᵀ as 0 there; behind it the terms are computed from g_t, some steps of a sample at once.
 *
 * Terms are added in double, those of a sample (in a chunk) one after the other from the last step to the first, then the samples
 * in their order. So the bits do not depend on threads. A part of a sequence whose backward pass is speculative keeps the terms,
 * and adds them up in blocks of steps as the weight gradients (back_sums.c), so that the bits do not depend on the parts. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/flush.h"
#include "core/compute/pool.h"
#include "recurrent/layers_cpu.h"

enum { GROUP = 16 /* steps that are computed at once */ };

static int64_t chunks_of(const recurrent_network *n) {
  return n->back.plan.speculative ? n->back.plan.chunks : 1;
}

void bppsa_reset_state_write(const recurrent_network *n, int64_t l, bool cells, void *row) {
  const size_t bytes = (size_t)(n->config.hidden * layers_size_of(n));
  const void *state = bppsa_reset_state_of(n, l);
  if (state == NULL) {
    memset(row, 0, bytes);
  } else {
    memcpy(row, bppsa_recurrent_offset(n, state, cells ? n->config.hidden : 0), bytes);
  }
}

/* ---- the sums ---- */

/* Has the network terms instead of sums? */
static bool keeps_terms(const recurrent_network *n) {
  return n->config.reset_state && bppsa_back_is_part(n);
}

static void *term_of(const recurrent_network *n, int64_t step, int64_t place) {
  const int64_t row = (step - n->config.part.first) * n->batch + place;
  return bppsa_recurrent_offset(n, n->resets.terms, row * bppsa_recurrent_state_size(n));
}

void bppsa_reset_state_begin(const recurrent_network *n) {
  const int64_t size = bppsa_recurrent_state_size(n);
  if (keeps_terms(n)) {
    memset(n->resets.terms, 0, (size_t)(n->config.seq_len * n->batch * size * layers_size_of(n)));
  } else if (n->config.reset_state) {
    memset(n->resets.sums, 0, (size_t)(n->batch * chunks_of(n) * size) * sizeof(double));
  }
}

void bppsa_reset_state_add(const recurrent_network *n, int64_t step, int64_t place, int64_t chunk, const void *gradient) {
  const int64_t size = bppsa_recurrent_state_size(n);
  if (!n->config.reset_state) {
    return;
  }
  if (keeps_terms(n)) {
    bppsa_back_add(n, size, gradient, term_of(n, step, place));
    return;
  }
  double *sum = n->resets.sums + (place * chunks_of(n) + chunk) * size;
  for (int64_t i = 0; i < size; ++i) {
    sum[i] += n->config.dtype == BPPSA_F32 ? (double)((const float *)gradient)[i] : ((const double *)gradient)[i];
  }
}

void bppsa_reset_state_finish(const recurrent_network *n, int64_t l) {
  const int64_t size = bppsa_recurrent_state_size(n), rows = n->batch * chunks_of(n);
  if (!n->config.reset_state) {
    return;
  }
  for (int64_t b = 0; n->layers[l].scan == NULL && n->config.part.first == 0 && b < n->batch; ++b) {
    if (bppsa_resets_at(n, l, 0, b)) {
      bppsa_reset_state_add(n, 0, b, 0, bppsa_recurrent_offset(n, n->g, b * size));
    }
  }
  double *sums = n->resets.sums;
  for (int64_t i = size; !keeps_terms(n) && i < rows * size; ++i) {
    sums[i % size] += sums[i];
  }
  for (int64_t i = 0; !keeps_terms(n) && i < size; ++i) {
    bppsa_view_set(&n->base.parameters[0].gradient, l * size + i, sums[i]);
  }
}

void bppsa_reset_state_sum(const recurrent_network *n, int64_t l, int64_t first, int64_t end, void *sum) {
  for (int64_t step = n->config.part.first + first; step < n->config.part.first + end; ++step) {
    for (int64_t b = 0; b < n->batch; ++b) {
      if (bppsa_resets_at(n, l, step, b)) {
        bppsa_back_add(n, bppsa_recurrent_state_size(n), term_of(n, step, b), sum);
      }
    }
  }
}

/* ---- behind a scan ---- */

/* A worker's arrays of a group: rows [GROUP] of each step, or of the state in front of it and behind it. */
typedef struct {
  void *g, *h, *c, *saved, *delta_x, *delta_h;
  int64_t steps[GROUP], count; /* steps: of the layer's walk */
} group;

typedef struct {
  const recurrent_network *n;
  int64_t layer;
} carry_pass;

/* Reals of a group, in the order of the struct. */
static int64_t group_reals(const recurrent_network *n) {
  const bppsa_cell *cell = n->cell;
  return GROUP * (4 * bppsa_recurrent_state_size(n) + (cell->saved + (cell->split ? 2 : 1) * cell->gates) * n->config.hidden);
}

static group group_of(const recurrent_network *n, int32_t worker) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n);
  group g = {.g = bppsa_recurrent_offset(n, n->resets.scratch, worker * group_reals(n))};
  g.h = bppsa_recurrent_offset(n, g.g, 2 * GROUP * size);
  g.c = n->cell->pair ? bppsa_recurrent_offset(n, g.h, 2 * GROUP * hidden) : NULL;
  g.saved = bppsa_recurrent_offset(n, g.h, 2 * GROUP * size);
  g.delta_x = bppsa_recurrent_offset(n, g.saved, GROUP * n->cell->saved * hidden);
  g.delta_h = n->cell->split ? bppsa_recurrent_offset(n, g.delta_x, GROUP * n->cell->gates * hidden) : g.delta_x;
  return g;
}

static void copy_row(const recurrent_network *n, const void *from, int64_t row, int64_t width, void *to, int64_t to_row) {
  memcpy(bppsa_recurrent_offset(n, to, to_row * width), bppsa_recurrent_offset(n, from, row * width),
         (size_t)(width * layers_size_of(n)));
}

/* Takes what the cell reads of a step of the sample at a place. row: the number of the step's row among the rows of all steps. */
static void gather(const carry_pass *p, group *g, int64_t step, int64_t row, int64_t samples, int64_t place) {
  const recurrent_network *n = p->n;
  const recurrent_layer *layer = &n->layers[p->layer];
  const int64_t hidden = n->config.hidden, i = g->count++, first = n->batch - samples;
  g->steps[i] = n->config.part.first + step;
  const int64_t behind = n->batch + row - first + place; /* of the state behind the step */
  bppsa_reset_state_write(n, p->layer, false, bppsa_recurrent_offset(n, g->h, i * hidden));
  copy_row(n, layer->h, behind, hidden, g->h, GROUP + i);
  if (g->c != NULL) {
    bppsa_reset_state_write(n, p->layer, true, bppsa_recurrent_offset(n, g->c, i * hidden));
    copy_row(n, layer->c, behind, hidden, g->c, GROUP + i);
  }
  if (n->cell->saved > 0) {
    copy_row(n, layer->saved, behind - n->batch, n->cell->saved * hidden, g->saved, i);
  }
  copy_row(n, n->g, (step + 1) * n->batch + place, bppsa_recurrent_state_size(n), g->g, GROUP + i);
}

/* Computes the gradients in front of the group's steps, which are of one sample, and adds them. */
static void compute(const carry_pass *p, group *g, int64_t place) {
  const recurrent_network *n = p->n;
  const bppsa_cell_block block = {.steps = 1,
                                  .batch = GROUP,
                                  .hidden = n->config.hidden,
                                  .samples = g->count,
                                  .nonlinearity = n->config.nonlinearity,
                                  .w_hh = n->w_hh,
                                  .w_row = bppsa_dtype_padded(n->config.dtype, n->config.hidden),
                                  .h = g->h,
                                  .c = g->c,
                                  .saved = g->saved,
                                  .g = g->g,
                                  .input = true,
                                  .delta_x = g->delta_x,
                                  .delta_h = g->delta_h,
                                  .threads = 1};
  const unsigned mode = bppsa_flush_begin();
  n->cell->backward[n->config.dtype == BPPSA_F64](&block);
  bppsa_flush_end(mode);
  for (int64_t i = 0; i < g->count; ++i) {
    bppsa_reset_state_add(n, g->steps[i], place, 0, bppsa_recurrent_offset(n, g->g, i * bppsa_recurrent_state_size(n)));
  }
  g->count = 0;
}

static void carry_samples(const void *context, int32_t worker, int64_t first, int64_t end) {
  const carry_pass *p = context;
  const recurrent_network *n = p->n;
  group g = group_of(n, worker);
  for (int64_t place = first; place < end; ++place) {
    for (int64_t k = bppsa_ragged_stretches(n) - 1; k >= 0; --k) {
      const recurrent_stretch s = bppsa_ragged_stretch(n, k);
      for (int64_t t = s.first + s.steps - 1; place >= n->batch - s.samples && t >= s.first; --t) {
        if (bppsa_resets_at(n, p->layer, n->config.part.first + t, place)) {
          gather(p, &g, t, s.row + (t - s.first) * s.samples, s.samples, place);
        }
        if (g.count == GROUP) {
          compute(p, &g, place);
        }
      }
    }
    if (g.count > 0) {
      compute(p, &g, place);
    }
  }
}

void bppsa_reset_state_carry(const recurrent_network *n, int64_t l) {
  const carry_pass pass = {n, l};
  if (!n->config.reset_state || !n->resets.active) {
    return;
  }
  const double step = 2 * (double)(n->cell->gates * n->config.hidden) * (double)n->config.hidden,
               steps = (double)n->config.seq_len * (double)n->batch;
  bppsa_parallel_for(n->threads, n->batch, bppsa_loop_work(step * steps / GROUP, 0), carry_samples, &pass);
}

/* ---- memory ---- */

bppsa_status bppsa_reset_state_visit(recurrent_network *n, bool scans, bppsa_recurrent_visit visit, int64_t *bytes) {
  const bppsa_recurrent_config *c = &n->config;
  int64_t rows, reals, sums;
  if (!c->reset_state) {
    return BPPSA_OK;
  }
  if (keeps_terms(n)) {
    return bppsa_recurrent_visit_array(n, visit, c->seq_len, c->batch, bppsa_recurrent_state_size(n), &n->resets.terms, bytes);
  }
  if (!bppsa_mul(c->batch, chunks_of(n), &rows) || !bppsa_mul(rows, bppsa_recurrent_state_size(n), &reals) ||
      !bppsa_mul(reals, (int64_t)sizeof(double), &sums)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "reset state: the gradient's sums of %lld samples do not fit in 64 bits",
                      (long long)c->batch);
  }
  BPPSA_TRY(visit((void **)&n->resets.sums, sums, bytes));
  return scans ? bppsa_recurrent_visit_array(n, visit, n->threads, 1, group_reals(n), &n->resets.scratch, bytes) : BPPSA_OK;
}
