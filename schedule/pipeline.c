/* Generates pipelines in one direction (naive model parallel, GPipe, DAPPLE, interleaved 1F1B, the asynchronous ones, ZB-H1) and
 * GEMS. Each generator writes a worker's operations in order; copies (width) do the same with their own micro-batches. */

#include "core/base/alloc.h"
#include "schedule/schedule_internal.h"

/* Ends an iteration on a stage: synchronises with the other copies, updates. */
static void finish_stage(bppsa_writer *w, int64_t replica, int64_t stage) {
  bppsa_writer_sync(w, replica, stage, w->config->sync == BPPSA_SYNC_POST ? BPPSA_LANE_COMPUTE : BPPSA_LANE_SYNC);
  bppsa_writer_step(w, replica, stage);
}

/* Is the round a full iteration? The round behind the last iteration has forward passes only. */
static bool is_full(const bppsa_writer *w, int64_t round) {
  return round < w->config->iterations;
}

/* ---- one stage on each worker ---- */

/* Writes the micro-batches of a round on one stage; the first of them is `first`. */
typedef void (*stage_order)(bppsa_writer *w, int64_t replica, int64_t stage, int64_t first);

static void forwards(bppsa_writer *w, int64_t replica, int64_t stage, int64_t first) {
  for (int64_t m = 0; m < w->config->micro_batches; ++m) {
    bppsa_writer_forward(w, replica, stage, first + m, 1);
  }
}

static bppsa_status write_stages(bppsa_schedule *list, stage_order order) {
  bppsa_writer w;
  BPPSA_TRY(bppsa_writer_start(list, &w));
  for (int64_t replica = 0; replica < list->replicas; ++replica) {
    for (int64_t stage = 0; stage < list->stages; ++stage) {
      for (int64_t round = 0; round < list->rounds; ++round) {
        const int64_t first = bppsa_schedule_micro(list, replica, round, 0);
        if (is_full(&w, round)) {
          order(&w, replica, stage, first);
          finish_stage(&w, replica, stage);
        } else {
          forwards(&w, replica, stage, first);
        }
      }
    }
  }
  return bppsa_writer_finish(&w);
}

/* F0 B0 F1 B1 ...: a micro-batch starts when the one before it has come back. */
static void one_by_one(bppsa_writer *w, int64_t replica, int64_t stage, int64_t first) {
  for (int64_t m = 0; m < w->config->micro_batches; ++m) {
    bppsa_writer_forward(w, replica, stage, first + m, 1);
    bppsa_writer_backward(w, replica, stage, first + m, -1);
  }
}

bppsa_status bppsa_schedule_model_parallel(bppsa_schedule *list) {
  return write_stages(list, one_by_one);
}

/* F0 F1 ..., then B0 B1 ... */
static void all_forward(bppsa_writer *w, int64_t replica, int64_t stage, int64_t first) {
  forwards(w, replica, stage, first);
  for (int64_t m = 0; m < w->config->micro_batches; ++m) {
    bppsa_writer_backward(w, replica, stage, first + m, -1);
  }
}

bppsa_status bppsa_schedule_gpipe(bppsa_schedule *list) {
  return write_stages(list, all_forward);
}

/* First min(D - 1 - s, N) forward passes, then one forward and one backward in turn, then the rest. */
static void one_forward_one_backward(bppsa_writer *w, int64_t replica, int64_t stage, int64_t first) {
  const int64_t n = w->config->micro_batches, ahead = w->list->stages - 1 - stage, warm = ahead < n ? ahead : n;
  for (int64_t m = 0; m < n + warm; ++m) {
    if (m < n) {
      bppsa_writer_forward(w, replica, stage, first + m, 1);
    }
    if (m >= warm) {
      bppsa_writer_backward(w, replica, stage, first + m - warm, -1);
    }
  }
}

bppsa_status bppsa_schedule_1f1b(bppsa_schedule *list) {
  return write_stages(list, one_forward_one_backward);
}

/* ---- several stages on each worker ---- */

/* Writes the k-th pass of a worker: D micro-batches go through its first stage, then the same D through its next stage, and so on;
 * backward passes begin with its last stage. */
static void interleaved_pass(bppsa_writer *w, int64_t replica, int64_t worker, int64_t first, int64_t k, bool forward) {
  const int64_t d = w->config->stages, v = w->config->chunks, turn = k % (d * v) / d;
  const int64_t stage = (forward ? turn : v - 1 - turn) * d + worker, micro = first + k / (d * v) * d + k % d;
  if (forward) {
    bppsa_writer_forward(w, replica, stage, micro, 1);
  } else {
    bppsa_writer_backward(w, replica, stage, micro, -1);
  }
}

static void interleaved_worker(bppsa_writer *w, int64_t replica, int64_t worker, int64_t first) {
  const int64_t d = w->config->stages, v = w->config->chunks, all = w->config->micro_batches * v;
  const int64_t ahead = v == 1 ? d - 1 - worker : 2 * (d - 1 - worker) + (v - 1) * d, warm = ahead < all ? ahead : all;
  for (int64_t k = 0; k < all + warm; ++k) {
    if (k < all) {
      interleaved_pass(w, replica, worker, first, k, true);
    }
    if (k >= warm) {
      interleaved_pass(w, replica, worker, first, k - warm, false);
    }
  }
}

bppsa_status bppsa_schedule_interleaved(bppsa_schedule *list) {
  const int64_t d = list->config.stages, all = list->config.micro_batches * list->config.chunks;
  bppsa_writer w;
  BPPSA_TRY(bppsa_writer_start(list, &w));
  for (int64_t replica = 0; replica < list->replicas; ++replica) {
    for (int64_t worker = 0; worker < d; ++worker) {
      for (int64_t round = 0; round < list->rounds; ++round) {
        const int64_t first = bppsa_schedule_micro(list, replica, round, 0);
        if (is_full(&w, round)) {
          interleaved_worker(&w, replica, worker, first);
        }
        for (int64_t k = 0; k < all && !is_full(&w, round); ++k) {
          interleaved_pass(&w, replica, worker, first, k, true);
        }
        for (int64_t stage = worker; stage < list->stages && is_full(&w, round); stage += d) {
          finish_stage(&w, replica, stage);
        }
      }
    }
  }
  return bppsa_writer_finish(&w);
}

/* ---- without flush ---- */

/* 1F1B over all micro-batches of all iterations, with an update after every backward pass, or after every N of them (2BW). */
static void asynchronous_stage(bppsa_writer *w, int64_t replica, int64_t stage) {
  const int64_t n = w->config->micro_batches, all = n * w->list->rounds, ahead = w->list->stages - 1 - stage,
                warm = ahead < all ? ahead : all;
  const int64_t first = bppsa_schedule_micro(w->list, replica, 0, 0),
                every = w->list->scheme->weights == BPPSA_WEIGHTS_BUFFERED ? n : 1;
  for (int64_t m = 0; m < all + warm; ++m) {
    if (m < all) {
      bppsa_writer_forward(w, replica, stage, first + m, 1);
    }
    if (m >= warm) {
      bppsa_writer_backward(w, replica, stage, first + m - warm, -1);
    }
    if (m >= warm && (m - warm + 1) % every == 0) {
      finish_stage(w, replica, stage);
    }
  }
}

/* Sets the versions that SpecTrain predicts, the same for F and B. (section 3.2, figure 7(d)) */
static bppsa_status predict(bppsa_schedule *list) {
  const int64_t layers = list->config.layers;
  int32_t *aim = bppsa_calloc(list->micros * layers, sizeof *aim);
  bppsa_status status = aim != NULL ? bppsa_schedule_derive(list) : BPPSA_ERR_MEMORY;
  status = status == BPPSA_OK ? bppsa_schedule_aims(list, aim) : status;
  for (int64_t i = 0; i < list->count && status == BPPSA_OK; ++i) {
    bppsa_schedule_op *op = &list->ops[i];
    op->weight_version = op->micro >= 0 ? aim[op->micro * layers + op->layer] : op->weight_version;
  }
  bppsa_free(aim);
  return status;
}

bppsa_status bppsa_schedule_asynchronous(bppsa_schedule *list) {
  bppsa_writer w;
  BPPSA_TRY(bppsa_writer_start(list, &w));
  for (int64_t replica = 0; replica < list->replicas; ++replica) {
    for (int64_t stage = 0; stage < list->stages; ++stage) {
      asynchronous_stage(&w, replica, stage);
    }
  }
  BPPSA_TRY(bppsa_writer_finish(&w));
  return list->scheme->weights == BPPSA_WEIGHTS_PREDICTED ? predict(list) : BPPSA_OK;
}

/* ---- GEMS ---- */

/* Micro-batches go down one replica or up the other in turn; a worker holds stage s of the first replica and stage D - 1 - s of the
 * second. */
static void gems_worker(bppsa_writer *w, int64_t copy, int64_t worker, int64_t round) {
  const int64_t n = w->config->micro_batches, d = w->config->stages;
  for (int64_t m = 0; m < n; ++m) {
    const int64_t stage = m % 2 == 0 ? worker : d - 1 - worker, micro = bppsa_schedule_micro(w->list, copy, round, m);
    bppsa_writer_forward(w, 2 * copy + m % 2, stage, micro, 1);
    if (is_full(w, round)) {
      bppsa_writer_backward(w, 2 * copy + m % 2, stage, micro, -1);
    }
  }
  for (int64_t stage = 0; stage < d && is_full(w, round);
       ++stage) { /* in the order of stages, so that the two workers of a stage synchronise in the same order */
    for (int64_t up = 0; up < 2; ++up) {
      if (bppsa_schedule_place(w->list, 2 * copy + up, stage) == copy * d + worker) {
        finish_stage(w, 2 * copy + up, stage);
      }
    }
  }
}

bppsa_status bppsa_schedule_gems(bppsa_schedule *list) {
  bppsa_writer w;
  BPPSA_TRY(bppsa_writer_start(list, &w));
  for (int64_t copy = 0; copy < list->config.width; ++copy) {
    for (int64_t worker = 0; worker < list->config.stages; ++worker) {
      for (int64_t round = 0; round < list->rounds; ++round) {
        gems_worker(&w, copy, worker, round);
      }
    }
  }
  return bppsa_writer_finish(&w);
}

/* ---- ZB-H1 ---- */

/* 1F1B of F and I. W follows s passes later, so that a worker holds no more than D micro-batches and sends its gradients first;
 * the remaining W fill the end. (Qi et al. 2023, section 2.1) */
static void zero_bubble(bppsa_writer *w, int64_t replica, int64_t stage, int64_t first) {
  const int64_t n = w->config->micro_batches, ahead = w->list->stages - 1 - stage, warm = ahead < n ? ahead : n;
  int64_t gradients = 0;
  for (int64_t m = 0; m < n + warm; ++m) {
    if (m < n) {
      bppsa_writer_forward(w, replica, stage, first + m, 1);
    }
    if (m >= warm) {
      bppsa_writer_gradient(w, BPPSA_KIND_I, replica, stage, first + m - warm);
      if (m - warm >= stage) {
        bppsa_writer_gradient(w, BPPSA_KIND_W, replica, stage, first + gradients++);
      }
    }
  }
  while (gradients < n) {
    bppsa_writer_gradient(w, BPPSA_KIND_W, replica, stage, first + gradients++);
  }
}

bppsa_status bppsa_schedule_zb_h1(bppsa_schedule *list) {
  return write_stages(list, zero_bubble);
}
