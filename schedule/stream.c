/* One device with two streams: the main stream computes input gradients, the sub-stream weight gradients. Each weight gradient is
 * put beside that region of the main stream where it gains most. (ooo-backprop, section 4.1, algorithm 1)
 */
#include <math.h>

#include "core/base/alloc.h"
#include "core/base/cut.h"
#include "schedule/schedule_internal.h"

typedef struct {
  const bppsa_schedule *list;
  int64_t layers, regions;
  double *begin;   /* when each region of the main stream begins, and when the last one ends; size regions + 1 */
  double *ready;   /* when the gradient behind each layer is ready, size layers */
  double *now;     /* time of the sub-stream in each region, size regions */
  double *end;     /* planned end of each weight gradient, size layers */
  int32_t *region; /* of each layer's weight gradient; -1: none yet */
  int32_t *order;  /* layers in the order in which they were put into regions */
  int64_t placed;
} plan;

static double cost_of(const plan *p, bppsa_schedule_kind kind, int64_t layer) {
  bppsa_schedule_op op = bppsa_schedule_op_make(kind, 0, 0, layer, layer, 1, 0, 1);
  bppsa_schedule_price(p->list, &op);
  return op.cost;
}

/* ---- the profile ---- */

/* These return T_sub of a layer's weight gradient in a region, and the speed-up of running it beside the region. Without a profile
 * they are the gradient's cost, and the same speed-up everywhere. */
static double sub_of(const plan *p, int64_t region, int64_t layer) {
  const bppsa_schedule_profile *profile = &p->list->config.profile;
  return profile->regions > 0 ? profile->sub[region * p->layers + layer] : cost_of(p, BPPSA_KIND_W, layer);
}

static double speedup_of(const plan *p, int64_t region, int64_t layer) {
  const bppsa_schedule_profile *profile = &p->list->config.profile;
  return profile->regions > 0 ? profile->speedup[region * p->layers + layer] : 1;
}

/* Lays out the regions of the main stream: the profile's, or one for the input gradient of each layer. Layers are divided over
 * regions evenly, beginning with the last layer. */
static void lay_out(plan *p) {
  const bppsa_schedule_config *c = &p->list->config;
  double now = 0;
  for (int64_t region = 0; region < p->regions; ++region) {
    const int64_t from = bppsa_cut(p->layers, p->regions, region), to = bppsa_cut(p->layers, p->regions, region + 1);
    double all = 0;
    p->begin[region] = now;
    for (int64_t i = from; i < to; ++i) {
      const int64_t layer = p->layers - 1 - i;
      p->ready[layer] = now + all;
      all += layer > 0 || !c->skip_first_input_grad ? cost_of(p, BPPSA_KIND_I, layer) : 0;
    }
    now += c->profile.regions > 0 ? c->profile.main[region] : all;
  }
  p->begin[p->regions] = now;
}

/* ---- algorithm 1 ---- */

static void place(plan *p, int64_t region, int64_t layer) {
  const double start = fmax(p->begin[region] + p->now[region], p->ready[layer]);
  p->region[layer] = (int32_t)region;
  p->order[p->placed++] = (int32_t)layer;
  p->now[region] = start - p->begin[region] + sub_of(p, region, layer);
}

static bool open_region(const plan *p, int64_t region) {
  return p->now[region] < p->begin[region + 1] - p->begin[region];
}

/* Chooses a weight gradient for one region (lines 4 - 6): the ready one with the highest speed-up, among equals that of the later
 * layer. Returns its layer, or -1. Never chooses layer 0. */
static int64_t best_in(const plan *p, int64_t region, double *speedup) {
  int64_t best = -1;
  for (int64_t layer = p->layers - 1; layer >= 1; --layer) {
    const bool runnable = p->region[layer] < 0 && p->ready[layer] <= p->begin[region] + p->now[region];
    if (runnable && (best < 0 || speedup_of(p, region, layer) > *speedup)) {
      best = layer;
      *speedup = speedup_of(p, region, layer);
    }
  }
  return best;
}

/* Puts weight gradients into regions. The first `early` regions take what is ready, in order; the others take by speed-up. What
 * fits into no region keeps region -1. */
static void assign(plan *p, int64_t early) {
  p->placed = 0;
  for (int64_t i = 0; i < p->regions; ++i) {
    p->now[i] = 0;
  }
  for (int64_t layer = 0; layer < p->layers; ++layer) {
    p->region[layer] = -1;
  }
  for (int64_t region = 0, layer = p->layers - 1; region < early; ++region) {
    while (layer >= 1 && open_region(p, region) && p->ready[layer] < p->begin[region + 1]) {
      place(p, region, layer--);
    }
  }
  for (;;) {
    int64_t chosen = -1, where = -1;
    double best = -INFINITY;
    for (int64_t region = early; region < p->regions; ++region) {
      double speedup = 0;
      const int64_t layer = open_region(p, region) ? best_in(p, region, &speedup) : -1;
      if (layer >= 0 && speedup > best) {
        chosen = layer;
        where = region;
        best = speedup;
      }
    }
    if (chosen < 0) {
      return;
    }
    place(p, where, chosen);
  }
}

/* ---- memory ---- */

/* Runs the sub-stream: region after region, then the gradients without a region. `ends` gets the end of each weight gradient.
 * Returns when the last one ends. */
static double run_sub(plan *p, double *ends) {
  double now = 0;
  for (int64_t region = 0; region < p->regions; ++region) {
    now = fmax(now, p->begin[region]);
    for (int64_t i = 0; i < p->placed; ++i) {
      const int32_t layer = p->order[i];
      if (p->region[layer] == region) {
        now = fmax(now, p->ready[layer]) + sub_of(p, region, layer);
        ends[layer] = now;
      }
    }
  }
  for (int64_t layer = p->layers - 1; layer >= 0; --layer) {
    if (p->region[layer] < 0) {
      now = fmax(now, layer == 0 ? p->begin[p->regions] : p->ready[layer]) + cost_of(p, BPPSA_KIND_W, layer);
      ends[layer] = now;
    }
  }
  return now;
}

static double size_of(const plan *p, int64_t layer) {
  return p->list->activations > 0 ? bppsa_schedule_cost_of(&p->list->config, BPPSA_COST_ACTIVATION, layer) / p->list->activations
                                  : 0;
}

/* Returns the memory held when the gradient behind `layer` has been made, in M_a: all activations and the gradients so far, without
 * the layers whose weight gradient is done, which frees both. The peak is at one of these times. O(L). */
static double held_at(const plan *p, const double *ends, int64_t layer) {
  double held = 0;
  for (int64_t l = 0; l < p->layers; ++l) {
    const bool done = ends[l] <= p->ready[layer];
    held += done ? 0 : size_of(p, l);
    held += done || l < layer || l == p->layers - 1 ? 0 : size_of(p, l);
  }
  return held;
}

static double peak_of(plan *p) {
  double most = 0;
  (void)run_sub(p, p->end);
  for (int64_t layer = 0; layer < p->layers; ++layer) {
    most = fmax(most, held_at(p, p->end, layer));
  }
  return most;
}

/* Returns the peak if each weight gradient follows its input gradient at once, as is usual: all activations and one gradient, when
 * the first gradient has been made. */
static double conventional_peak(const plan *p) {
  return 1 + (p->layers > 1 ? size_of(p, p->layers - 2) : 0);
}

/* Finds the smallest number of regions that take what is ready such that the peak stays below the cap: 1.1 times the conventional
 * peak unless configured. */
static void fit(plan *p) {
  const double asked = p->list->config.memory_cap, cap = (asked > 0 ? asked : 1.1) * conventional_peak(p);
  int64_t early = 0;
  assign(p, early);
  while (peak_of(p) > cap && early < p->regions) {
    assign(p, ++early);
  }
}

/* ---- the list ---- */

static void write_weight(bppsa_writer *w, const plan *p, int64_t layer, double cost) {
  bppsa_schedule_op op = bppsa_schedule_op_make(BPPSA_KIND_W, 0, 0, layer, layer, 1, 0, 1);
  op.lane = BPPSA_LANE_GRADIENT;
  op.cost = cost;
  op.weight_version = 0;
  op.memory_delta = -size_of(p, layer);
  bppsa_writer_add(w, op);
}

static void write_streams(bppsa_writer *w, const plan *p) {
  for (int64_t layer = 0; layer < p->layers; ++layer) {
    bppsa_writer_forward(w, 0, layer, 0, 1);
  }
  for (int64_t layer = p->layers - 1; layer >= 0; --layer) {
    if (layer > 0 || !w->config->skip_first_input_grad) {
      bppsa_schedule_op op = bppsa_schedule_op_make(BPPSA_KIND_I, 0, 0, layer, layer, 1, 0, 1);
      op.weight_version = 0;
      op.memory_delta = 0;
      bppsa_writer_add(w, op);
    }
  }
  for (int64_t region = 0; region < p->regions; ++region) {
    for (int64_t i = 0; i < p->placed; ++i) {
      if (p->region[p->order[i]] == region) {
        write_weight(w, p, p->order[i], sub_of(p, region, p->order[i]));
      }
    }
  }
  for (int64_t layer = p->layers - 1; layer >= 0; --layer) {
    if (p->region[layer] < 0) {
      write_weight(w, p, layer, NAN);
    }
  }
  for (int64_t layer = 0; layer < p->layers; ++layer) {
    bppsa_writer_step(w, 0, layer);
    if (w->list->rounds > 1) {
      bppsa_writer_forward(w, 0, layer, 1, 1);
    }
  }
}

static bppsa_status write_plan(bppsa_schedule *list, const plan *p) {
  bppsa_writer w;
  BPPSA_TRY(bppsa_writer_start(list, &w));
  write_streams(&w, p);
  return bppsa_writer_finish(&w);
}

enum { PLAN_LIMIT = 512 }; /* layers: algorithm 1 costs regions x layers^2 */

bppsa_status bppsa_schedule_multi_stream(bppsa_schedule *list) {
  const int64_t n = list->config.layers, regions = list->config.profile.regions > 0 ? list->config.profile.regions : n;
  plan p = {.list = list, .layers = n, .regions = regions};
  if (n > PLAN_LIMIT || regions > n) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "multi-stream: %lld layers in %lld regions, expected at most %d, and no more regions than layers",
                      (long long)n, (long long)regions, PLAN_LIMIT);
  }
  p.begin = bppsa_calloc(regions + 1, sizeof *p.begin);
  p.ready = bppsa_calloc(n, sizeof *p.ready);
  p.now = bppsa_calloc(regions, sizeof *p.now);
  p.end = bppsa_calloc(n, sizeof *p.end);
  p.region = bppsa_calloc(n, sizeof *p.region);
  p.order = bppsa_calloc(n, sizeof *p.order);
  bppsa_status status = BPPSA_ERR_MEMORY;
  if (p.begin != NULL && p.ready != NULL && p.now != NULL && p.end != NULL && p.region != NULL && p.order != NULL) {
    lay_out(&p);
    fit(&p);
    status = write_plan(list, &p);
  }
  void *const arrays[] = {p.begin, p.ready, p.now, p.end, p.region, p.order};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; ++i) {
    bppsa_free(arrays[i]);
  }
  return status;
}
