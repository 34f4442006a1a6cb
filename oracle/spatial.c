/* Spatial, and data + spatial: every axis of the images is cut, and processors exchange borders. ParaDL, equations 8 to 10. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "oracle/strategies.h"

typedef struct {
  int64_t parts[BPPSA_ORACLE_AXES]; /* pw, ph, pd; their product is p */
  double halo;                      /* border elements of x and dL/dy in all split layers, one sample; negative: no grid */
  int64_t exchanges;                /* layers with a border to exchange */
} grid;

/* Returns how many positions beyond one side of a part's border a window reads: half of what windows overlap. */
static int64_t border(const bppsa_oracle_layer *layer, int axis) {
  const int64_t overlap = layer->kernel[axis] - layer->stride[axis];
  return overlap > 0 ? (overlap + 1) / 2 : 0;
}

/* Counts the elements of `shape` that the parts of a grid read beyond their borders, on one side of each axis. */
static double halo_of(const bppsa_oracle_layer *layer, const int64_t shape[1 + BPPSA_ORACLE_AXES],
                      const int64_t parts[BPPSA_ORACLE_AXES]) {
  double sum = 0;
  for (int axis = 0; axis < BPPSA_ORACLE_AXES; ++axis) {
    double face = (double)shape[0] * (double)border(layer, axis);
    for (int other = 0; other < BPPSA_ORACLE_AXES; ++other) {
      face *= other == axis ? 1 : (double)shape[1 + other] / (double)parts[other];
    }
    sum += parts[axis] > 1 ? face : 0;
  }
  return sum;
}

static bool fits(const bppsa_oracle_model *model, const int64_t parts[BPPSA_ORACLE_AXES]) {
  for (int64_t l = 0; l < model->gather; ++l) {
    for (int axis = 0; axis < BPPSA_ORACLE_AXES; ++axis) {
      if (model->layers[l].in[1 + axis] < parts[axis]) {
        return false;
      }
    }
  }
  return true;
}

static void try_grid(const bppsa_oracle_model *model, const int64_t parts[BPPSA_ORACLE_AXES], grid *best) {
  grid g = {.halo = 0};
  if (!fits(model, parts)) {
    return;
  }
  memcpy(g.parts, parts, sizeof g.parts);
  for (int64_t l = 0; l < model->gather; ++l) {
    const double halo =
        halo_of(&model->layers[l], model->layers[l].in, parts) + halo_of(&model->layers[l], model->layers[l].out, parts);
    g.halo += halo;
    g.exchanges += halo > 0;
  }
  if (best->halo < 0 || g.halo < best->halo) {
    *best = g;
  }
}

int64_t bppsa_oracle_next_divisor(int64_t n, int64_t d) {
  int64_t k = d + 1;
  for (; k <= n / k; ++k) {
    if (n % k == 0) {
      return k;
    }
  }
  /* Above sqrt(n), every divisor is n / c for a divisor c below sqrt(n). */
  for (int64_t c = n / (d + 1) < k ? n / (d + 1) : k - 1; c >= 1; --c) {
    if (n % c == 0) {
      return n / c;
    }
  }
  return n + 1;
}

/* Finds the grid of p parts with the smallest borders. */
static grid best_grid(const bppsa_oracle_model *model, int64_t p) {
  grid best = {.halo = -1};
  for (int64_t a = 1; a <= p; a = bppsa_oracle_next_divisor(p, a)) {
    for (int64_t b = 1; b <= p / a; b = bppsa_oracle_next_divisor(p / a, b)) {
      try_grid(model, (const int64_t[]){a, b, p / a / b}, &best);
    }
  }
  return best;
}

/* Returns the fewest positions of a split layer: min_l W_l H_l (D_l). */
static int64_t positions(const bppsa_oracle_model *model) {
  int64_t least = INT64_MAX;
  for (int64_t l = 0; l < model->gather; ++l) {
    const int64_t *in = model->layers[l].in;
    const int64_t here = in[1] * in[2] * in[3];
    least = here < least ? here : least;
  }
  return least;
}

int64_t bppsa_oracle_spatial_limit(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  const int64_t least = positions(q->model);
  if (q->model->gather == 0) {
    snprintf(row->reason, sizeof row->reason, "the model has no images to split");
    return 0;
  }
  snprintf(row->reason, sizeof row->reason, "the smallest image that is split has %" PRId64 " position%s", least,
           least == 1 ? "" : "s");
  return least;
}

static bool has_grid(const bppsa_oracle_model *model, int64_t parts) {
  return best_grid(model, parts).halo >= 0;
}

/* Projects `groups` groups of p2 processors: memory and, unless they were measured, computing, halo and gathering. Layers from
 * `gather` on run whole on every processor of a group. (Table 3 divides them by p too; section 4.5.1 says that they are
 * aggregated.) */
static void project(const bppsa_oracle_query *q, int64_t p2, bool measured, bppsa_oracle_row *row) {
  const bppsa_oracle_model *model = q->model;
  const double ways = (double)p2, groups = (double)row->groups, batch = (double)row->mini_batch / groups;
  const double samples = (double)q->samples / groups, iterations = (double)q->samples / (double)row->mini_batch;
  double elements = 0;
  for (int64_t l = 0; l < model->count; ++l) {
    const bppsa_oracle_layer *layer = &model->layers[l];
    const double share = l < model->gather ? 1 / ways : 1;
    elements += bppsa_layer_elements(layer, batch, share, 1);
    if (!measured) {
      row->phase_s[BPPSA_PHASE_FORWARD] += samples * share * bppsa_layer_forward_s(q, layer);
      row->phase_s[BPPSA_PHASE_BACKWARD] += samples * share * bppsa_layer_backward_s(q, layer);
      row->phase_s[BPPSA_PHASE_UPDATE] += iterations * bppsa_layer_update_s(q, layer);
    }
  }
  row->memory_bytes = q->memory_reuse * (double)q->item_bytes * elements;
  if (p2 == 1 || measured) {
    return;
  }
  /* Equation 10: 2 I sum(2 alpha + B delta beta (halo x + halo dL/dy)), the sum over layers that have a border to exchange. */
  const grid g = best_grid(model, p2);
  const bppsa_link link = bppsa_oracle_link(q, BPPSA_OPERATION_POINT_TO_POINT, p2, false);
  const double bytes = batch * (double)q->item_bytes;
  row->phase_s[BPPSA_PHASE_HALO] = 2 * iterations * (2 * link.alpha_s * (double)g.exchanges + bytes * g.halo * link.beta_s);
  if (model->gather < model->count) { /* only the forward pass: backward, every processor has its part already */
    row->phase_s[BPPSA_PHASE_COLLECTIVES] =
        iterations * bppsa_oracle_allgather_s(q, p2, bytes * model->layers[model->gather - 1].y / ways);
  }
}

bppsa_status bppsa_oracle_spatial(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  const int64_t p = row->processors;
  if (!has_grid(q->model, p)) {
    row->feasible = false;
    snprintf(row->reason, sizeof row->reason, BPPSA_ORACLE_NO_GRID, p);
    return BPPSA_OK;
  }
  const bool measured = bppsa_oracle_by_share(q, "spatial", p, 1, row);
  project(q, p, measured, row);
  if (!measured) {
    row->phase_s[BPPSA_PHASE_GRADIENT_EXCHANGE] =
        (double)q->samples / (double)row->mini_batch * bppsa_oracle_allreduce_s(q, p, false, p, bppsa_oracle_weight_bytes(q));
  }
  return BPPSA_OK;
}

int64_t bppsa_oracle_data_spatial_limit(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  return bppsa_oracle_hybrid_limit(q, bppsa_oracle_spatial_limit(q, row), row->reason);
}

/* Projects spatial in groups of p2 and data between groups, for which table 3 has no row. Weight gradients are reduced within a
 * group, then between the groups' leaders, then handed out (section 4.5.1): an allreduce inside and one between. */
bppsa_status bppsa_oracle_data_spatial(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  const int64_t p = row->processors, p2 = bppsa_oracle_cut_groups(q, positions(q->model), has_grid, row);
  const double weights = bppsa_oracle_weight_bytes(q);
  if (p2 == 0) {
    return BPPSA_OK;
  }
  const bool measured = bppsa_oracle_by_share(q, "spatial", p2, row->groups, row);
  project(q, p2, measured, row);
  if (!measured) {
    row->phase_s[BPPSA_PHASE_GRADIENT_EXCHANGE] =
        (double)q->samples / (double)row->mini_batch *
        (bppsa_oracle_allreduce_s(q, p2, false, p2, weights) + bppsa_oracle_allreduce_s(q, p, false, row->groups, weights));
  }
  return BPPSA_OK;
}
