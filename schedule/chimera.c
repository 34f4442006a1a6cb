/* Chimera: f pipelines that go down and f that go up over the same D workers.
 *
 * In each pipeline the local micro-batch m has its forward pass at stage s in time slot 2m + s and its backward pass in slot
 * 2m + 2D - 1 - s. The overlaid pipelines do not conflict if f divides D / 2. Unit k of D micro-batches is shifted by 2Dk slots.
 * Slots only give each worker its order of operations; each operation then starts as soon as it can. (Chimera, sections 3.1, 3.5,
 * 3.6)
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/alloc.h"
#include "core/base/cut.h"
#include "schedule/schedule_internal.h"

/* A forward or backward pass on a worker. */
typedef struct {
  int64_t slot;
  int32_t pipeline, stage;
  int32_t micro; /* the first of its `each` micro-batches, numbered within the round */
  int8_t each;   /* 2: a forward pass over two micro-batches (forward doubling) */
  bool forward;
} pass;

/* Orders by slot. A pipeline has at most one pass in a slot and pipelines do not conflict, so the other keys only make the order
 * total. */
static int by_slot(const void *a, const void *b) {
  const pass *x = a, *y = b;
  if (x->slot != y->slot) {
    return x->slot < y->slot ? -1 : 1;
  }
  return (x->pipeline > y->pipeline) - (x->pipeline < y->pipeline);
}

/* Lists the passes of one unit: D forward passes or fewer, spread over all 2f pipelines as evenly as possible. */
static int64_t list_unit(const bppsa_schedule *list, int64_t worker, int64_t first, int64_t forwards, int64_t each, int64_t shift,
                         pass *passes) {
  const int64_t d = list->config.stages, pipelines = list->config.replicas;
  int64_t count = 0;
  for (int64_t p = 0; p < pipelines; ++p) {
    const int64_t from = bppsa_cut(forwards, pipelines, p), to = bppsa_cut(forwards, pipelines, p + 1);
    const int64_t down = p % 2 == 0 ? worker : d - 1 - worker, begin = p / 2 * (2 * d / pipelines), s = (down - begin + d) % d;
    for (int64_t m = from; m < to; ++m) {
      const pass one = {.pipeline = (int32_t)p, .stage = (int32_t)s, .micro = (int32_t)(first + m * each), .each = (int8_t)each};
      passes[count] = passes[count + 1] = one;
      passes[count].slot = shift + 2 * (m - from) + s;
      passes[count++].forward = true;
      passes[count++].slot = shift + 2 * (m - from) + 2 * d - 1 - s;
    }
  }
  return count;
}

/* Direct concatenation and halving have units of D micro-batches. Doubling has units of D pairs as long as 2D micro-batches are
 * left, and units of D for the rest. */
static int64_t list_passes(const bppsa_schedule *list, int64_t worker, pass *passes) {
  const int64_t d = list->config.stages, n = list->config.micro_batches;
  int64_t count = 0, shift = 0;
  for (int64_t first = 0; first < n; shift += 2 * d) {
    const int64_t each = list->config.scale == BPPSA_SCALE_DOUBLING && n - first >= 2 * d ? 2 : 1;
    const int64_t forwards = (n - first) / each < d ? (n - first) / each : d;
    count += list_unit(list, worker, first, forwards, each, shift, passes + count);
    first += forwards * each;
  }
  qsort(passes, (size_t)count, sizeof *passes, by_slot);
  return count;
}

static void write_backward(bppsa_writer *w, int64_t replica, int64_t micro, const pass *p) {
  const bool halved = w->config->scale == BPPSA_SCALE_HALVING;
  const int64_t times = halved ? 2 : p->each; /* the two halves follow each other */
  for (int64_t i = 0; i < times; ++i) {
    bppsa_writer_backward(w, replica, p->stage, halved ? micro : micro + i, halved ? i : -1);
  }
}

/* Ends an iteration, from the last stage to the first: gradients of the last stage are complete first, and all workers of a stage
 * synchronise in the same order. eager-opt synchronises the middle stages at the end, because no worker is idle when their
 * gradients are complete. (section 3.2) */
static void finish_worker(bppsa_writer *w, int64_t copy, int64_t worker) {
  const int64_t d = w->config->stages, pipelines = w->config->replicas;
  for (int64_t stage = d - 1; stage >= 0; --stage) {
    const bool middle = stage == d / 2 - 1 || stage == d / 2;
    const bool eager = w->config->sync == BPPSA_SYNC_EAGER || (w->config->sync == BPPSA_SYNC_EAGER_OPT && !middle);
    for (int64_t p = 0; p < pipelines; ++p) {
      const int64_t replica = copy * pipelines + p;
      if (bppsa_schedule_place(w->list, replica, stage) == copy * d + worker) {
        bppsa_writer_sync(w, replica, stage, eager ? BPPSA_LANE_SYNC : BPPSA_LANE_COMPUTE);
        bppsa_writer_step(w, replica, stage);
      }
    }
  }
}

static void write_worker(bppsa_writer *w, int64_t copy, int64_t worker, int64_t round, const pass *passes, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t replica = copy * w->config->replicas + passes[i].pipeline;
    const int64_t micro = bppsa_schedule_micro(w->list, copy, round, passes[i].micro);
    if (passes[i].forward) {
      bppsa_writer_forward(w, replica, passes[i].stage, micro, passes[i].each);
    } else if (round < w->config->iterations) {
      write_backward(w, replica, micro, &passes[i]);
    }
  }
  if (round < w->config->iterations) {
    finish_worker(w, copy, worker);
  }
}

/* With B = 2F direct concatenation leaves (K + 1)(D - 2) bubbles, each as long as a backward pass, and 1F1B leaves 3 (D - 1). */
static void advise(bppsa_schedule *list) {
  const int64_t d = list->config.stages, k = list->config.micro_batches / d;
  if (list->config.scale == BPPSA_SCALE_DIRECT && list->config.replicas == 2 && k >= 2 && (k + 1) * (d - 2) > 3 * (d - 1)) {
    snprintf(list->advice_text, sizeof list->advice_text,
             "direct concatenation of %lld units leaves (K + 1)(D - 2) = %lld bubbles where B = 2F, 1f1b 3(D - 1) = %lld: 1f1b, "
             "--doubling or --halving does better",
             (long long)k, (long long)((k + 1) * (d - 2)), (long long)(3 * (d - 1)));
  }
}

bppsa_status bppsa_schedule_chimera(bppsa_schedule *list) {
  bppsa_writer w;
  BPPSA_TRY(bppsa_writer_start(list, &w));
  pass *passes = bppsa_calloc(2 * list->config.micro_batches, sizeof *passes);
  w.status = passes == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int64_t worker = 0; worker < list->config.stages && w.status == BPPSA_OK; ++worker) {
    const int64_t count = list_passes(list, worker, passes);
    for (int64_t copy = 0; copy < list->config.width; ++copy) {
      for (int64_t round = 0; round < list->rounds; ++round) {
        write_worker(&w, copy, worker, round, passes, count);
      }
    }
  }
  bppsa_free(passes);
  advise(list);
  return bppsa_writer_finish(&w);
}
