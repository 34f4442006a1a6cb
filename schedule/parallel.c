/* Data parallelism: wait-free back-propagation, prioritised communication, reverse first-k. (ooo-backprop, section 5.1, figure 4,
 * algorithm 2)
 *
 * All workers do the same on their own micro-batches, so one worker's time line decides the order of transfers. Gradients are
 * synchronised in the order in which they are ready, or the first layer's first; then a SYNC may be interrupted and go in slices.
 */
#include <math.h>

#include "core/base/alloc.h"
#include "schedule/schedule_internal.h"

/* A slice of a layer's SYNC. */
typedef struct {
  int32_t layer, part; /* part -1: whole */
  double cost;
} slice;

typedef struct {
  const bppsa_schedule *list;
  int64_t layers;
  int64_t k;        /* weight gradients of the first k layers come last, in reverse */
  bool prioritised; /* the first layer's SYNC goes first */
  double *made;     /* when each layer's weight gradient is ready */
  double *left;     /* time left of each layer's SYNC */
  double *synced;   /* when each layer's SYNC ends */
  int32_t *parts;   /* slices of each layer so far */
  int32_t *arrived; /* layers in the order in which their gradients are ready */
  slice *slices;    /* size count; each arrival interrupts at most one SYNC */
  int64_t arrivals, count;
  bppsa_events waiting;
  double now;     /* time in the backward pass */
  int32_t moving; /* the layer whose SYNC is going on, or -1 */
  double since;   /* when that SYNC began, or when the link became free */
} timeline;

static double cost_of(const timeline *t, bppsa_schedule_kind kind, int64_t layer) {
  bppsa_schedule_op op = bppsa_schedule_op_make(kind, 0, 0, layer, layer, 1, 0, 1);
  bppsa_schedule_price(t->list, &op);
  return op.cost;
}

/* ---- the order of the backward pass ---- */

typedef void (*step_of)(void *context, bppsa_schedule_kind kind, int64_t layer);

/* Algorithm 2: for i = L .. 1: W_i where i > k, and I_i; then W_1 .. W_k. I or W first as configured. */
static void backward_order(const bppsa_schedule_config *c, int64_t k, void *context, step_of step) {
  const bool weights_first = c->split == BPPSA_SPLIT_WI;
  for (int64_t layer = c->layers - 1; layer >= 0; --layer) {
    if (weights_first && layer >= k) {
      step(context, BPPSA_KIND_W, layer);
    }
    if (layer > 0 || !c->skip_first_input_grad) {
      step(context, BPPSA_KIND_I, layer);
    }
    if (!weights_first && layer >= k) {
      step(context, BPPSA_KIND_W, layer);
    }
  }
  for (int64_t layer = 0; layer < k; ++layer) {
    step(context, BPPSA_KIND_W, layer);
  }
}

static void pass_time(void *context, bppsa_schedule_kind kind, int64_t layer) {
  timeline *t = context;
  t->now += cost_of(t, kind, layer);
  if (kind == BPPSA_KIND_W) {
    t->made[layer] = t->now;
    t->arrived[t->arrivals++] = (int32_t)layer;
  }
}

/* ---- the link ---- */

static void end_slice(timeline *t, double now) {
  const int32_t layer = t->moving;
  t->slices[t->count++] = (slice){layer, t->parts[layer]++, now - t->since};
  t->left[layer] -= now - t->since;
  t->synced[layer] = now;
  t->moving = -1;
  t->since = now;
}

/* Queues a layer: first come, first served, or the first layer first. The queue has room for all layers. */
static void wait_for_link(timeline *t, int32_t layer, int64_t turn) {
  bppsa_events_push(&t->waiting, (bppsa_event){.priority = t->prioritised ? layer : turn, .id = layer});
}

static void transfer_until(timeline *t, double now) {
  while (t->moving >= 0 || t->waiting.count > 0) {
    t->moving = t->moving >= 0 ? t->moving : bppsa_events_pop(&t->waiting).id;
    if (t->since + t->left[t->moving] > now) {
      return;
    }
    const double over = t->since + t->left[t->moving];
    end_slice(t, over);
    t->left[t->slices[t->count - 1].layer] = 0;
  }
  t->since = fmax(t->since, now);
}

static void transfer_all(timeline *t) {
  for (int64_t i = 0; i < t->arrivals; ++i) {
    const int32_t layer = t->arrived[i];
    const double now = t->made[layer];
    transfer_until(t, now);
    if (t->prioritised && t->moving > layer) {
      const int32_t preempted = t->moving;
      if (now > t->since) {
        end_slice(t, now);
      }
      t->moving = -1;
      wait_for_link(t, preempted, i);
    }
    wait_for_link(t, layer, i);
  }
  transfer_until(t, INFINITY);
  for (int64_t i = 0; i < t->count; ++i) {
    t->slices[i].part = t->parts[t->slices[i].layer] == 1 ? -1 : t->slices[i].part;
  }
}

/* ---- one worker's time line ---- */

static void free_timeline(timeline *t) {
  void *const arrays[] = {t->made, t->left, t->synced, t->parts, t->arrived, t->slices, t->waiting.events};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; ++i) {
    bppsa_free(arrays[i]);
  }
}

static bppsa_status make_timeline(const bppsa_schedule *list, bool prioritised, timeline *t) {
  const int64_t n = list->config.layers;
  *t = (timeline){.list = list, .layers = n, .prioritised = prioritised};
  t->made = bppsa_calloc(n, sizeof *t->made);
  t->left = bppsa_calloc(n, sizeof *t->left);
  t->synced = bppsa_calloc(n, sizeof *t->synced);
  t->parts = bppsa_calloc(n, sizeof *t->parts);
  t->arrived = bppsa_calloc(n, sizeof *t->arrived);
  t->slices = bppsa_calloc(2 * n, sizeof *t->slices);
  bppsa_status status = bppsa_events_reserve(&t->waiting, n + 1);
  if (t->made == NULL || t->left == NULL || t->synced == NULL || t->parts == NULL || t->arrived == NULL || t->slices == NULL) {
    status = BPPSA_ERR_MEMORY;
  }
  if (status != BPPSA_OK) {
    free_timeline(t);
  }
  return status;
}

/* Returns the time from the start of the backward pass to the end of the window, with the next forward pass or the last SYNC. */
static double run_timeline(timeline *t, int64_t k) {
  const bppsa_schedule_config *c = &t->list->config;
  double end = 0;
  t->k = k;
  t->now = t->since = 0;
  t->moving = -1;
  t->arrivals = t->count = t->waiting.count = 0;
  for (int64_t layer = 0; layer < t->layers; ++layer) {
    t->left[layer] = cost_of(t, BPPSA_KIND_SYNC, layer);
    t->parts[layer] = 0;
  }
  backward_order(c, k, t, pass_time);
  transfer_all(t);
  end = t->now;
  for (int64_t layer = 0; layer < t->layers; ++layer) {
    end = fmax(end, t->synced[layer]) + cost_of(t, BPPSA_KIND_STEP, layer);
    end += c->window == BPPSA_WINDOW_BACKWARD_FORWARD ? cost_of(t, BPPSA_KIND_F, layer) : 0;
  }
  return end;
}

/* ---- the list ---- */

typedef struct {
  bppsa_writer *w;
  const timeline *t;
  int64_t worker;
} writing;

/* Writes a gradient. A weight gradient that is left for the end of the pass keeps its activations until then. */
static void write_gradient(void *context, bppsa_schedule_kind kind, int64_t layer) {
  const writing *of = context;
  bppsa_schedule_op op = bppsa_schedule_op_make(kind, of->worker, of->worker, layer, layer, 1,
                                                bppsa_schedule_micro(of->w->list, of->worker, 0, 0), 1);
  op.weight_version = 0;
  if (layer < of->t->k) {
    bppsa_schedule_op freeing = op;
    freeing.kind = BPPSA_KIND_F;
    freeing.cost = 0;
    bppsa_schedule_price(of->w->list, &freeing);
    op.memory_delta = kind == BPPSA_KIND_W ? -freeing.memory_delta : 0;
  }
  bppsa_writer_add(of->w, op);
}

static void write_worker(bppsa_writer *w, const timeline *t, int64_t worker) {
  writing of = {w, t, worker};
  const int64_t first = bppsa_schedule_micro(w->list, worker, 0, 0);
  for (int64_t layer = 0; layer < t->layers; ++layer) {
    bppsa_writer_forward(w, worker, layer, first, 1);
  }
  backward_order(w->config, t->k, &of, write_gradient);
  for (int64_t i = 0; i < t->count; ++i) {
    const slice *s = &t->slices[i];
    bppsa_schedule_op op = bppsa_schedule_op_make(BPPSA_KIND_SYNC, worker, worker, s->layer, s->layer, 1, -1, 0);
    op.lane = BPPSA_LANE_SYNC;
    op.part = s->part;
    op.cost = s->cost;
    bppsa_writer_add(w, op);
  }
  for (int64_t layer = 0; layer < t->layers; ++layer) {
    bppsa_writer_step(w, worker, layer);
    if (w->list->rounds > 1) {
      bppsa_writer_forward(w, worker, layer, first + 1, 1);
    }
  }
}

static bppsa_status write_all(bppsa_schedule *list, const timeline *t) {
  bppsa_writer w;
  BPPSA_TRY(bppsa_writer_start(list, &w));
  for (int64_t worker = 0; worker < list->workers; ++worker) {
    write_worker(&w, t, worker);
  }
  return bppsa_writer_finish(&w);
}

static bppsa_status generate(bppsa_schedule *list, bool prioritised, int64_t k) {
  timeline t;
  BPPSA_TRY(make_timeline(list, prioritised, &t));
  (void)run_timeline(&t, k);
  const bppsa_status status = write_all(list, &t);
  free_timeline(&t);
  return status;
}

bppsa_status bppsa_schedule_wait_free(bppsa_schedule *list) {
  return generate(list, false, 0);
}

bppsa_status bppsa_schedule_prioritised(bppsa_schedule *list) {
  return generate(list, true, 0);
}

/* ---- reverse first-k ---- */

/* Returns the largest j with M_fwd - sum_{i > j} M(I_i) + sum_{i <= j} M(W_i) below the cap (Algorithm 2, lines 1 - 2). Computing a
 * gradient is assumed to hold as much as its layer's activations. Here M_a is the whole network's, so M_fwd = 1. */
static int64_t clamp(const bppsa_schedule *list) {
  const bppsa_schedule_config *c = &list->config;
  double head = 0;
  int64_t most = 0;
  if (c->memory_cap == 0 || list->activations == 0) {
    return c->layers;
  }
  for (int64_t j = 0; j <= c->layers; ++j) {
    const double held = 1 - (1 - head) + head;
    most = held < c->memory_cap ? j : most;
    head += j < c->layers ? bppsa_schedule_cost_of(c, BPPSA_COST_ACTIVATION, j) / list->activations : 0;
  }
  return most;
}

enum { SEARCH_LIMIT = 4096 }; /* layers; the search takes L^2 log L steps */

bppsa_status bppsa_schedule_reverse_first_k(bppsa_schedule *list) {
  const bppsa_schedule_config *c = &list->config;
  const int64_t most = clamp(list);
  timeline t;
  if (c->reverse > c->layers) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "reverse-k: %lld, expected at most the %lld layers, or -1: searched",
                      (long long)c->reverse, (long long)c->layers);
  }
  if (c->reverse >= 0) {
    list->config.reverse = c->reverse < most ? c->reverse : most;
    return generate(list, true, list->config.reverse);
  }
  if (c->layers > SEARCH_LIMIT) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "reverse-k: a search over %lld layers, expected at most %d, or k itself",
                      (long long)c->layers, SEARCH_LIMIT);
  }
  BPPSA_TRY(make_timeline(list, true, &t));
  int64_t best = 0;
  double least = run_timeline(&t, 0);
  for (int64_t k = 1; k <= most; ++k) {
    const double found = run_timeline(&t, k);
    best = found < least ? k : best;
    least = fmin(least, found);
  }
  free_timeline(&t);
  list->config.reverse = best;
  return generate(list, true, best);
}
