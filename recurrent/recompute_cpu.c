/* States that are computed again (bppsa_recurrent_config.recompute), on a CPU. Internal.
 *
 * Time is cut into segments of about K steps, at ends of the runs in which the weight gradients are summed, so that these sums have
 * the order that they have without recompute. A forward pass goes through all layers of a segment before it enters the next one,
 * and keeps the states in front of each segment alone. A backward pass goes from the last segment to the first: it computes the
 * segment's states again, then the gradients of all layers, from the top one down.
 *
 * A layer below another one gets u_t from the deltas of step t above it. The gradient of a segment's first state therefore needs
 * deltas that only the segment in front of it has. So a segment ends with the first step of the next one: it begins from the
 * gradient behind that step, which is whole, and computes the deltas of that step a second time, to the same bits. Their part of
 * the weight gradients has been summed before.
 *
 * A scan goes through one segment after the other, too. It is planned once, for the longest segment; a shorter one stands at the
 * end of its arrays, behind steps whose Jacobians and gradients are 0. So its levels wait for each other in every segment anew, and
 * its critical path is as many times that of a segment as there are segments.
 *
 * A segment is a network of its own, on the stack: a copy whose sequence is the segment, a part of the whole one as far as resets
 * and dropout count steps, with the arrays of the network. So every pass over it is the ordinary one. */
#include <string.h>

#include "core/base/alloc.h"
#include "recurrent/layers_cpu.h"

int64_t bppsa_recompute_steps(const recurrent_network *n) {
  const int64_t steps = n->config.seq_len, every = n->config.recompute, batch = n->config.batch;
  recurrent_network one = *n;
  one.batch = 1;
  if (every == 0 || every >= steps) {
    return steps;
  }
  /* A segment ends less than a run behind its K steps, and has one step more; a batch that is smaller has runs of more steps, but
   * of no more rows. The steps of a scan are the same for all batches. */
  const bool scans = n->config.method.backward == BPPSA_BACKWARD_SCAN;
  const int64_t rows = bppsa_layers_run_rows(&one), run = scans ? rows : (rows + batch - 1) / batch;
  return run < steps - every ? every + run : steps;
}

int64_t bppsa_recurrent_segments(const bppsa_recurrent_config *config) {
  const int64_t steps = config->seq_len, every = config->recompute;
  return every > 0 && every < steps ? (steps - 1) / every + 1 : 1;
}

static int64_t state_row(const recurrent_network *n) {
  return n->batch * bppsa_recurrent_state_size(n);
}

/* The states of all layers in front of a segment [L][b][S], of a pair h in front of c. */
static void *kept_of(const recurrent_network *n, int64_t segment, int64_t l) {
  return bppsa_recurrent_offset(n, n->recompute.kept, (segment * n->config.layers + l) * state_row(n));
}

static void *carried_of(const recurrent_network *n, int64_t l) {
  return bppsa_recurrent_offset(n, n->recompute.carried, l * state_row(n));
}

const void *bppsa_recompute_last(const recurrent_network *n, int64_t l, bool cells) {
  return bppsa_recurrent_offset(n, kept_of(n, n->recompute.segments, l), cells ? n->config.hidden : 0);
}

/* Numbers in a row of the seed. */
static int64_t seed_width(const recurrent_network *n) {
  return n->config.no_head || n->seeds_states ? bppsa_recurrent_outputs(&n->config) : n->config.classes;
}

/* The network of a segment; `further`: with the first step of the next one. */
static recurrent_network segment_of(const recurrent_network *n, int64_t segment, bool further) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t first = n->recompute.begins[segment], end = n->recompute.begins[segment + 1] + further;
  recurrent_network v = *n;
  v.config.part = (bppsa_forward_part){.seq_len = c->seq_len, .first = first};
  v.config.seq_len = end - first;
  v.config.recompute = 0;
  v.recompute = (recurrent_recompute){.later = first > 0};
  v.x = bppsa_recurrent_offset(n, n->x, first * n->batch * c->input);
  if (n->layers[0].scan != NULL) { /* which has the steps of the longest segment: gradients stand at its end */
    v.g = bppsa_recurrent_offset(n, n->g, (bppsa_recompute_steps(n) - v.config.seq_len) * state_row(n));
  }
  v.dx = bppsa_recurrent_offset(n, n->dx, first * n->batch * c->input);
  v.dh0 = first > 0 ? NULL : n->dh0;
  v.seed = c->loss_all ? bppsa_recurrent_offset(n, n->seed, first * n->batch * seed_width(n)) : n->seed;
  return v;
}

/* ---- forward ---- */

static void cut_segments(recurrent_network *n) {
  recurrent_recompute *r = &n->recompute;
  r->segments = 0;
  for (int64_t first = 0; first < n->config.seq_len; first = r->begins[r->segments]) {
    r->begins[r->segments] = first;
    r->begins[++r->segments] = bppsa_layers_run_end(n, first, n->config.recompute);
  }
}

/* Keeps the last states of a segment, and the outputs of its top layer. */
static void keep_states(recurrent_network *n, const recurrent_network *v, int64_t segment) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n), row = n->batch * hidden;
  const size_t half = (size_t)(hidden * layers_size_of(n));
  const int64_t last = v->config.seq_len * row;
  for (int64_t l = 0; l < n->config.layers; ++l) {
    for (int64_t b = 0; b < n->batch; ++b) {
      void *to = bppsa_recurrent_offset(n, kept_of(n, segment + 1, l), b * size);
      memcpy(to, bppsa_recurrent_offset(n, n->layers[l].h, last + b * hidden), half);
      if (n->cell->pair) {
        memcpy(bppsa_recurrent_offset(n, to, hidden), bppsa_recurrent_offset(n, n->layers[l].c, last + b * hidden), half);
      }
    }
  }
  const bool all = n->config.loss_all;
  memcpy(bppsa_recurrent_offset(n, n->recompute.tops, all ? v->config.part.first * row : 0),
         bppsa_recurrent_offset(n, n->layers[n->config.layers - 1].h, all ? row : last),
         (size_t)((all ? v->config.seq_len : 1) * n->batch) * half);
}

bppsa_status bppsa_recompute_forward(recurrent_network *n, const void *h0) {
  const size_t bytes = (size_t)(n->config.layers * state_row(n) * layers_size_of(n));
  (void)bppsa_forward_begin(n);
  cut_segments(n);
  if (h0 != NULL) {
    memcpy(kept_of(n, 0, 0), h0, bytes);
  } else {
    memset(kept_of(n, 0, 0), 0, bytes);
  }
  for (int64_t s = 0; s < n->recompute.segments; ++s) {
    recurrent_network v = segment_of(n, s, false);
    BPPSA_TRY(bppsa_layers_forward(&v, kept_of(n, s, 0)));
    keep_states(n, &v, s);
    n->recompute.present = s;
  }
  bppsa_forward_end(n);
  return BPPSA_OK;
}

/* ---- backward ---- */

/* The network with the sums of layer l. */
static recurrent_network with_sums(const recurrent_network *n, int64_t l) {
  recurrent_network of = *n;
  of.sums = (char *)n->recompute.sums + l * bppsa_layers_sums_bytes(n, false);
  of.hidden_sums = (char *)n->recompute.hidden_sums + l * bppsa_layers_sums_bytes(n, true);
  return of;
}

/* Computes the gradients of a segment, from the seed and from those that the next segment has left in n->recompute.carried. */
static bppsa_status segment_backward(recurrent_network *n, int64_t segment) {
  const bool last = segment + 1 == n->recompute.segments;
  const size_t bytes = (size_t)(state_row(n) * layers_size_of(n));
  recurrent_network v = segment_of(n, segment, !last);
  const void *end;
  if (n->recompute.present != segment) {
    BPPSA_TRY(bppsa_layers_forward(&v, kept_of(n, segment, 0)));
    n->recompute.present = segment;
  }
  BPPSA_TRY(last || n->config.loss_all ? bppsa_recurrent_seed(&v) : BPPSA_OK);
  for (int64_t l = n->config.layers - 1; l >= 0; --l) {
    const recurrent_network of = with_sums(n, l);
    v.resets.sums = n->recompute.reset_sums != NULL ? n->recompute.reset_sums + l * state_row(n) : NULL;
    if (last) {
      bppsa_reset_state_begin(&v);
    }
    BPPSA_TRY(bppsa_layers_segment(&of, &v, l, last ? NULL : carried_of(n, l), &end));
    memcpy(carried_of(n, l), end, bytes);
    if (segment == 0) {
      bppsa_reset_state_finish(&v, l);
    }
    BPPSA_TRY(bppsa_layers_give_inputs(&v, l));
    BPPSA_TRY(l > 0 ? n->backend->pass_down(&v, l) : BPPSA_OK);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_recompute_backward(recurrent_network *n) {
  for (int64_t s = n->recompute.segments - 1; s >= 0; --s) {
    BPPSA_TRY(segment_backward(n, s));
  }
  for (int64_t l = 0; l < n->config.layers; ++l) {
    const recurrent_network of = with_sums(n, l);
    bppsa_layers_finish(&of, l);
  }
  return BPPSA_OK;
}

/* ---- when a number is not finite ---- */

bool bppsa_recompute_find_nonfinite(recurrent_network *n, bppsa_nonfinite *where) {
  int64_t lowest = n->config.layers;
  for (int64_t s = 0; lowest > 0 && s < n->recompute.segments; ++s) {
    recurrent_network v = segment_of(n, s, false);
    if (bppsa_layers_forward(&v, kept_of(n, s, 0)) != BPPSA_OK) {
      break;
    }
    n->recompute.present = s + 1 == n->recompute.segments ? s : -1; /* without the step behind it */
    for (int64_t l = 0; l < lowest; ++l) {
      bppsa_nonfinite found = *where;
      if (bppsa_recurrent_find_state(&v, l, &found)) {
        found.step += v.config.part.first;
        *where = found;
        lowest = l;
      }
    }
  }
  return lowest < n->config.layers;
}

/* ---- memory ---- */

bppsa_status bppsa_recompute_visit(recurrent_network *n, bool scans, bppsa_recurrent_visit visit, int64_t *bytes) {
  const bppsa_recurrent_config *c = &n->config;
  recurrent_recompute *r = &n->recompute;
  const int64_t size = bppsa_recurrent_state_size(n);
  int64_t segments, sums, hidden_sums, reset_sums, all, cuts;
  if (c->recompute == 0) {
    return BPPSA_OK;
  }
  segments = bppsa_recurrent_segments(c) + 1;
  if (!bppsa_mul(segments, c->layers, &all) || !bppsa_mul(c->layers, bppsa_layers_sums_bytes(n, false), &sums) ||
      !bppsa_mul(c->layers, bppsa_layers_sums_bytes(n, true), &hidden_sums) || !bppsa_mul(c->layers, c->batch, &reset_sums) ||
      !bppsa_mul(bppsa_recompute_steps(n), c->batch, &cuts) ||
      !bppsa_mul(reset_sums, size * (int64_t)sizeof(double), &reset_sums)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "%s: the states that recompute keeps do not fit in 64 bits", n->cell->name);
  }
  BPPSA_TRY(visit((void **)&r->begins, segments * (int64_t)sizeof *r->begins, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, all, c->batch, size, &r->kept, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, c->layers, c->batch, size, &r->carried, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, c->loss_all ? c->seq_len : 1, c->batch, c->hidden, &r->tops, bytes));
  BPPSA_TRY(visit(&r->sums, sums, bytes));
  BPPSA_TRY(visit(&r->hidden_sums, hidden_sums, bytes));
  BPPSA_TRY(scans && c->resets ? visit((void **)&r->cuts, cuts, bytes) : BPPSA_OK);
  return c->reset_state ? visit((void **)&r->reset_sums, reset_sums, bytes) : BPPSA_OK;
}

void bppsa_recompute_free(recurrent_network *n) {
  const recurrent_recompute *r = &n->recompute;
  void *const own[] = {r->begins, r->kept, r->carried, r->tops, r->sums, r->hidden_sums, r->reset_sums, r->cuts};
  for (size_t i = 0; i < sizeof own / sizeof *own; ++i) {
    bppsa_free(own[i]);
  }
}
