/* Damaged schedules, and the rule that each of them breaks. */
#ifndef BPPSA_TESTS_SCHEDULE_MUTATIONS_H
#define BPPSA_TESTS_SCHEDULE_MUTATIONS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "schedule/schedule.h"

static bppsa_schedule_op *find(bppsa_schedule *list, int kind, int64_t which) {
  for (int64_t i = 0; i < list->count; ++i) {
    if (list->ops[i].kind == kind && which-- == 0) {
      return &list->ops[i];
    }
  }
  fail_msg("no operation of kind %s", bppsa_schedule_kind_name(kind));
  return NULL;
}

/* Removes an operation from the list; its dependants depend on what it waited for instead, or on nothing. */
static void drop(bppsa_schedule *list, bppsa_schedule_op *op) {
  const int64_t gone = op - list->ops;
  const int32_t instead = op->dep_count > 0 ? list->deps[op->deps] : -1;
  for (int64_t i = 0; i < list->count; ++i) {
    bppsa_schedule_op *reader = &list->ops[i];
    for (int32_t k = 0; k < reader->dep_count; ++k) {
      int32_t *dep = &list->deps[reader->deps + k];
      if (*dep != gone) {
        continue;
      }
      if (instead >= 0) {
        *dep = instead;
      } else {
        *dep = list->deps[reader->deps + --reader->dep_count];
        --k;
      }
    }
  }
  memmove(op, op + 1, (size_t)(list->count - gone - 1) * sizeof *op);
  list->count -= 1;
  for (int64_t i = 0; i < list->dep_count; ++i) {
    list->deps[i] -= list->deps[i] > gone;
  }
}

/* Removes a dependency: that of the first operation of one kind on an operation of another. */
static void unbind(bppsa_schedule *list, int reader, int kind) {
  for (int64_t i = 0; i < list->count; ++i) {
    bppsa_schedule_op *op = &list->ops[i];
    for (int32_t k = 0; op->kind == reader && k < op->dep_count; ++k) {
      if (list->ops[list->deps[op->deps + k]].kind == kind) {
        list->deps[op->deps + k] = list->deps[op->deps + --op->dep_count];
        return;
      }
    }
  }
  fail_msg("no dependency of that kind");
}

static void exchange(bppsa_schedule_op *a, bppsa_schedule_op *b) {
  const bppsa_schedule_op c = *a;
  *a = *b;
  *b = c;
}

/* Dependencies and transfers follow from the operations again, as when a worker's row of a CSV file has been edited. */
static void connect_again(bppsa_schedule *list) {
  int64_t kept = 0;
  for (int64_t i = 0; i < list->count; ++i) {
    bppsa_schedule_op op = list->ops[i];
    op.group = -1;
    op.deps = op.dep_count = 0;
    if (op.kind != BPPSA_KIND_SEND && op.kind != BPPSA_KIND_RECV) {
      list->ops[kept++] = op;
    }
  }
  list->count = kept;
  list->dep_count = list->groups = 0;
  assert_int_equal(bppsa_schedule_connect(list), BPPSA_OK);
}

static void bad_kind(bppsa_schedule *l) {
  find(l, BPPSA_KIND_F, 3)->kind = 99;
}
static void scan_kind(bppsa_schedule *l) {
  find(l, BPPSA_KIND_F, 3)->kind = BPPSA_KIND_CARRY;
}
static void no_worker(bppsa_schedule *l) {
  find(l, BPPSA_KIND_F, 3)->worker = 77;
}
static void negative_worker(bppsa_schedule *l) {
  find(l, BPPSA_KIND_B, 3)->worker = -1;
}
static void wrong_lane(bppsa_schedule *l) {
  find(l, BPPSA_KIND_F, 3)->lane = BPPSA_LANE_SEND;
}
static void send_in_compute(bppsa_schedule *l) {
  find(l, BPPSA_KIND_SEND, 0)->lane = BPPSA_LANE_COMPUTE;
}
static void no_replica(bppsa_schedule *l) {
  find(l, BPPSA_KIND_F, 3)->replica = 9;
}
static void no_layer(bppsa_schedule *l) {
  find(l, BPPSA_KIND_F, 3)->layer = 400;
}
static void no_layers(bppsa_schedule *l) {
  find(l, BPPSA_KIND_F, 3)->layers = 0;
}
static void wrong_stage(bppsa_schedule *l) {
  find(l, BPPSA_KIND_F, 0)->stage = 1;
}
static void no_micro(bppsa_schedule *l) {
  find(l, BPPSA_KIND_B, 0)->micro = 400;
}
static void micro_of_step(bppsa_schedule *l) {
  find(l, BPPSA_KIND_STEP, 0)->micro = 0;
}
static void half_forward(bppsa_schedule *l) {
  find(l, BPPSA_KIND_F, 0)->part = 0;
}
static void half_backward(bppsa_schedule *l) {
  find(l, BPPSA_KIND_B, 0)->part = 1;
}
static void negative_cost(bppsa_schedule *l) {
  find(l, BPPSA_KIND_B, 0)->cost = -1;
}
static void no_cost(bppsa_schedule *l) {
  find(l, BPPSA_KIND_B, 0)->cost = NAN;
}
static void no_memory(bppsa_schedule *l) {
  find(l, BPPSA_KIND_B, 0)->memory_delta = INFINITY;
}
static void group_of_one(bppsa_schedule *l) {
  find(l, BPPSA_KIND_B, 0)->group = 0;
}
static void lone_send(bppsa_schedule *l) {
  find(l, BPPSA_KIND_SEND, 0)->group = -1;
}
static void no_dependency(bppsa_schedule *l) {
  l->deps[find(l, BPPSA_KIND_B, 0)->deps] = 1000000;
}
static void itself(bppsa_schedule *l) {
  l->deps[find(l, BPPSA_KIND_B, 0)->deps] = (int32_t)(find(l, BPPSA_KIND_B, 0) - l->ops);
}
static void moved(bppsa_schedule *l) {
  find(l, BPPSA_KIND_B, 5)->worker ^= 1;
}
static void twice(bppsa_schedule *l) {
  find(l, BPPSA_KIND_F, 4)->micro = find(l, BPPSA_KIND_F, 4)->micro > 0 ? 0 : 1;
}
static void no_forward(bppsa_schedule *l) {
  drop(l, find(l, BPPSA_KIND_F, 5));
}
static void no_backward(bppsa_schedule *l) {
  drop(l, find(l, BPPSA_KIND_B, 5));
}
static void no_input(bppsa_schedule *l) {
  drop(l, find(l, BPPSA_KIND_I, 5));
}
static void no_weights(bppsa_schedule *l) {
  drop(l, find(l, BPPSA_KIND_W, 5));
}
static void forward_early(bppsa_schedule *l) {
  unbind(l, BPPSA_KIND_F, BPPSA_KIND_RECV);
}
static void backward_early(bppsa_schedule *l) {
  unbind(l, BPPSA_KIND_B, BPPSA_KIND_RECV);
}
static void weights_early(bppsa_schedule *l) {
  unbind(l, BPPSA_KIND_W, BPPSA_KIND_RECV);
}
/* On a stage that is not the last: its own F is the first dependency. */
static void activations_unread(bppsa_schedule *l) {
  bppsa_schedule_op *op = find(l, BPPSA_KIND_B, 0);
  while (op->kind != BPPSA_KIND_B || op->dep_count < 2) {
    ++op;
  }
  op->deps += 1;
  op->dep_count -= 1;
}
static void not_again(bppsa_schedule *l) {
  unbind(l, BPPSA_KIND_B, BPPSA_KIND_RECOMPUTE);
}
static void to_itself(bppsa_schedule *l) {
  find(l, BPPSA_KIND_RECV, 2)->micro += 1;
}
static void other_half(bppsa_schedule *l) {
  find(l, BPPSA_KIND_SEND, 2)->group = find(l, BPPSA_KIND_SEND, 3)->group;
}
static void from_nothing(bppsa_schedule *l) {
  find(l, BPPSA_KIND_SEND, 2)->dep_count = 0;
}
static void wrong_tensor(bppsa_schedule *l) {
  l->deps[find(l, BPPSA_KIND_SEND, 4)->deps] = l->deps[find(l, BPPSA_KIND_SEND, 0)->deps];
}

/* Swaps the sends of two tensors between one pair of workers, so that they are received in another order. */
static void overtaken(bppsa_schedule *l) {
  bppsa_schedule_op *first = find(l, BPPSA_KIND_SEND, 0), *other = first + 1;
  while (other->kind != BPPSA_KIND_SEND || other->worker != first->worker || other->layer != first->layer) {
    ++other;
  }
  exchange(first, other);
}

static void past_transfer(bppsa_schedule *l) {
  for (bppsa_schedule_op *op = l->ops;; ++op) {
    for (int32_t k = 0; op->kind == BPPSA_KIND_F && k < op->dep_count; ++k) {
      int32_t *dep = &l->deps[op->deps + k];
      if (l->ops[*dep].kind == BPPSA_KIND_RECV) {
        *dep = l->deps[l->ops[*dep - 1].deps]; /* SEND stands in front of RECV */
        return;
      }
    }
  }
}

/* The first pass depends on the last update. */
static void in_circles(bppsa_schedule *l) {
  bppsa_schedule_op *first = find(l, BPPSA_KIND_F, 0), *last = find(l, BPPSA_KIND_STEP, 0);
  int32_t *deps = bppsa_realloc(l->deps, (size_t)(l->dep_count + 1) * sizeof *deps);
  assert_non_null(deps);
  while (last->kind != BPPSA_KIND_STEP || last->worker != first->worker) {
    ++last;
  }
  l->deps = deps;
  l->deps[l->dep_count] = (int32_t)(last - l->ops);
  first->deps = l->dep_count++;
  first->dep_count = 1;
}

/* A worker begins the SYNCs of its two stages in another order than the worker that has their other replicas: two collectives of
 * two communicators, which NCCL would leave waiting for each other. */
static void crossed_syncs(bppsa_schedule *l) {
  bppsa_schedule_op *first = find(l, BPPSA_KIND_SYNC, 0), *other = first + 1;
  while (other->kind != BPPSA_KIND_SYNC || other->worker != first->worker || other->group == first->group) {
    ++other;
  }
  const int32_t a = (int32_t)(first - l->ops), b = (int32_t)(other - l->ops);
  exchange(first, other);
  for (int64_t i = 0; i < l->dep_count; ++i) {
    l->deps[i] = l->deps[i] == a ? b : l->deps[i] == b ? a : l->deps[i];
  }
}

/* The update is half an update. */
static void half_step(bppsa_schedule *l) {
  l->config.scale = BPPSA_SCALE_HALVING;
  find(l, BPPSA_KIND_STEP, 0)->part = 1;
}
static void lone_sync(bppsa_schedule *l) {
  drop(l, find(l, BPPSA_KIND_SYNC, 0));
}
static void unequal_sync(bppsa_schedule *l) {
  find(l, BPPSA_KIND_SYNC, 1)->cost += 1;
}
static void early_sync(bppsa_schedule *l) {
  find(l, BPPSA_KIND_SYNC, 0)->dep_count -= 1;
}
static void careless_step(bppsa_schedule *l) {
  find(l, BPPSA_KIND_STEP, 0)->dep_count -= 1;
}
static void unsynchronised(bppsa_schedule *l) {
  unbind(l, BPPSA_KIND_STEP, BPPSA_KIND_SYNC);
}
static void no_step(bppsa_schedule *l) {
  drop(l, find(l, BPPSA_KIND_STEP, 0));
}
/* The last gradient of an update is made behind it. */
static void late_gradient(bppsa_schedule *l) {
  bppsa_schedule_op *step = find(l, BPPSA_KIND_STEP, 0), *last = step;
  while (last->kind != BPPSA_KIND_B || last->worker != step->worker) {
    --last;
  }
  const int32_t at = (int32_t)(last - l->ops), behind = (int32_t)(step - l->ops);
  exchange(last, step);
  for (int64_t i = 0; i < l->dep_count; ++i) {
    l->deps[i] = l->deps[i] == at ? behind : l->deps[i] == behind ? at : l->deps[i];
  }
  for (int32_t k = 0; k < last->dep_count; ++k) { /* `last` is the STEP now */
    if (l->deps[last->deps + k] == behind) {
      l->deps[last->deps + k] = l->deps[last->deps + --last->dep_count];
    }
  }
}
static void same_version(bppsa_schedule *l) {
  find(l, BPPSA_KIND_STEP, 0)->weight_version = 7;
}
static void stale(bppsa_schedule *l) {
  find(l, BPPSA_KIND_F, 3)->weight_version += 1;
}
static void stale_backward(bppsa_schedule *l) {
  find(l, BPPSA_KIND_B, 3)->weight_version += 1;
}
static void from_far(bppsa_schedule *l) {
  find(l, BPPSA_KIND_F, 3)->weight_version = 999999;
}
/* All that micro-batch 3 does on stage 1 sees another version. */
static void shift_all(bppsa_schedule *l, int32_t by) {
  for (int64_t i = 0; i < l->count; ++i) {
    l->ops[i].weight_version += l->ops[i].micro == 3 && l->ops[i].stage == 1 ? by : 0;
  }
}
static void one_later(bppsa_schedule *l) {
  shift_all(l, 1);
}
static void one_earlier(bppsa_schedule *l) {
  shift_all(l, -1);
}
static void much_later(bppsa_schedule *l) {
  shift_all(l, 1000);
}
static void other_version_sent(bppsa_schedule *l) {
  find(l, BPPSA_KIND_SEND, 4)->weight_version += 1;
}
static void other_version_received(bppsa_schedule *l) {
  find(l, BPPSA_KIND_RECV, 4)->weight_version = -1;
}

/* The place of the next operation of a kind on the same worker. */
static int64_t next_of(const bppsa_schedule *l, int64_t id, int kind) {
  int64_t next = id + 1;
  while (l->ops[next].worker != l->ops[id].worker || l->ops[next].kind != kind) {
    assert_true(++next < l->count);
  }
  return next;
}

/* An operation goes to another place. */
static void move_to(bppsa_schedule *l, int64_t id, int64_t to) {
  const bppsa_schedule_op op = l->ops[id];
  for (; id < to; ++id) {
    l->ops[id] = l->ops[id + 1];
  }
  for (; id > to; --id) {
    l->ops[id] = l->ops[id - 1];
  }
  l->ops[to] = op;
  connect_again(l);
}

/* An update comes behind the next forward pass of its stage. */
static void late_step(bppsa_schedule *l) {
  const int64_t id = find(l, BPPSA_KIND_STEP, 0) - l->ops;
  move_to(l, id, next_of(l, id, BPPSA_KIND_F));
}

/* Two damages: an update comes behind the next forward pass of its stage, and this pass sees the version of the weights that it
 * then finds; with PipeDream so do its STASH and its backward pass. */
static void late_step_renamed(bppsa_schedule *l) {
  const int64_t id = find(l, BPPSA_KIND_STEP, 0) - l->ops, next = next_of(l, id, BPPSA_KIND_F);
  const bppsa_schedule_op pass = l->ops[next];
  const bool stashed = l->scheme->weights == BPPSA_WEIGHTS_STASHED;
  for (int64_t i = 0; i < l->count; ++i) {
    bppsa_schedule_op *op = &l->ops[i];
    const bool follows = op->kind == BPPSA_KIND_F || (stashed && op->kind != BPPSA_KIND_SEND && op->kind != BPPSA_KIND_RECV);
    op->weight_version -= follows && op->micro == pass.micro && op->layer == pass.layer;
  }
  move_to(l, id, next);
}

/* Where I comes behind W: an update comes between the two. */
static void early_step(bppsa_schedule *l) {
  bppsa_schedule_op *step = find(l, BPPSA_KIND_STEP, 0), *last = step;
  while (last->kind != BPPSA_KIND_I || last->worker != step->worker) {
    --last;
  }
  move_to(l, step - l->ops, last - l->ops);
}

/* Every update is an operation for each of the two layers of its stage; `count`: counted as updates of the stage. */
static void split_steps(bppsa_schedule *l, bool count) {
  for (int64_t i = 0; i < l->count; ++i) {
    bppsa_schedule_op op = l->ops[i];
    if (op.kind != BPPSA_KIND_STEP || op.layers != 2) {
      continue;
    }
    const int32_t version = op.weight_version;
    op.layers = 1;
    op.cost = op.memory_delta = NAN;
    op.weight_version = count ? 2 * version - 1 : version;
    l->ops[i] = op;
    op.layer += 1;
    op.weight_version = count ? 2 * version : version;
    assert_int_equal(bppsa_schedule_append(l, &op), BPPSA_OK);
    memmove(&l->ops[i + 2], &l->ops[i + 1], (size_t)(l->count - i - 2) * sizeof *l->ops);
    l->ops[i + 1] = op;
  }
  connect_again(l);
}
static void counted_by_stage(bppsa_schedule *l) {
  split_steps(l, true);
}
/* The second half of an update comes behind the next forward pass. */
static void half_late(bppsa_schedule *l) {
  split_steps(l, false);
  const int64_t id = find(l, BPPSA_KIND_STEP, 1) - l->ops;
  move_to(l, id, next_of(l, next_of(l, id, BPPSA_KIND_F), BPPSA_KIND_F));
}
static void unstashed(bppsa_schedule *l) {
  unbind(l, BPPSA_KIND_F, BPPSA_KIND_STASH);
}
static void other_stash(bppsa_schedule *l) {
  find(l, BPPSA_KIND_STASH, 4)->weight_version += 1;
}
static void unpredicted(bppsa_schedule *l) {
  unbind(l, BPPSA_KIND_B, BPPSA_KIND_PREDICT);
}
static void leak(bppsa_schedule *l) {
  find(l, BPPSA_KIND_B, 3)->memory_delta = 0;
}
static void over_cap(bppsa_schedule *l) {
  l->config.memory_cap = 2;
}
static void wrong_factors(bppsa_schedule *l) {
  bppsa_schedule_op *op = find(l, BPPSA_KIND_PRODUCT, 0);
  while (op->part < 0) {
    ++op;
  }
  op->part += 1;
}
static void no_product(bppsa_schedule *l) {
  unbind(l, BPPSA_KIND_CARRY, BPPSA_KIND_PRODUCT);
}
static void no_gradient(bppsa_schedule *l) {
  bppsa_schedule_op *op = find(l, BPPSA_KIND_APPLY, 0);
  while (op->kind != BPPSA_KIND_APPLY || op->layer == 0) {
    ++op;
  }
  op->dep_count = 0;
}
static void unapplied(bppsa_schedule *l) {
  drop(l, find(l, BPPSA_KIND_APPLY, 0));
}

static const struct {
  const char *scheme, *rule;
  void (*damage)(bppsa_schedule *list);
} mutations[] = {{"1f1b", "kind", bad_kind},
                 {"1f1b", "kind", scan_kind},
                 {"1f1b", "worker", no_worker},
                 {"chimera", "worker", negative_worker},
                 {"gpipe", "lane", wrong_lane},
                 {"1f1b", "lane", send_in_compute},
                 {"1f1b", "replica", no_replica},
                 {"1f1b", "layers", no_layer},
                 {"1f1b", "layers", no_layers},
                 {"1f1b", "stage", wrong_stage},
                 {"1f1b", "micro-batch", no_micro},
                 {"1f1b", "micro-batch", micro_of_step},
                 {"chimera", "half", half_forward},
                 {"chimera", "half", half_backward},
                 {"chimera", "half", half_step},
                 {"1f1b", "cost", negative_cost},
                 {"1f1b", "cost", no_cost},
                 {"1f1b", "delta", no_memory},
                 {"1f1b", "group", group_of_one},
                 {"1f1b", "group", lone_send},
                 {"1f1b", "dependency", no_dependency},
                 {"1f1b", "dependency", itself},
                 {"1f1b", "placement", moved},
                 {"1f1b", "once", twice},
                 {"gpipe", "complete-forward", no_forward},
                 {"gpipe", "complete-gradient", no_backward},
                 {"zb-h1", "complete-gradient", no_input},
                 {"zb-h1", "complete-weights", no_weights},
                 {"1f1b", "order-forward", forward_early},
                 {"1f1b", "order-input", backward_early},
                 {"zb-h1", "order-weights", weights_early},
                 {"1f1b", "order-activations", activations_unread},
                 {"recompute", "order-activations", not_again},
                 {"1f1b", "send-receive", to_itself},
                 {"1f1b", "send-receive", other_half},
                 {"1f1b", "send-source", from_nothing},
                 {"1f1b", "send-source", wrong_tensor},
                 {"gpipe", "receive-order", overtaken},
                 {"1f1b", "transfer", past_transfer},
                 {"gpipe", "acyclic", in_circles},
                 {"chimera", "acyclic", crossed_syncs},
                 {"chimera", "sync-replicas", lone_sync},
                 {"chimera", "sync-replicas", unequal_sync},
                 {"chimera", "sync-gradients", early_sync},
                 {"1f1b", "step-synchronised", careless_step},
                 {"chimera", "step-synchronised", unsynchronised},
                 {"1f1b", "step-count", no_step},
                 {"2bw", "step-micro-batches", late_gradient},
                 {"1f1b", "version-step", same_version},
                 {"1f1b", "version-forward", stale},
                 {"2bw", "version-forward", stale},
                 {"pipedream", "version-backward", stale_backward},
                 {"2bw", "version-backward", stale_backward},
                 {"vanilla", "version-backward", stale_backward},
                 {"spectrain", "version-backward", stale_backward},
                 {"vanilla", "version-forward", stale},
                 {"pipedream", "version-forward", stale},
                 {"vanilla", "step-at-once", late_step},
                 {"pipedream", "step-at-once", late_step},
                 {"spectrain", "step-at-once", late_step},
                 {"vanilla", "step-at-once", late_step_renamed},
                 {"pipedream", "step-at-once", late_step_renamed},
                 {"layered vanilla", "version-backward", early_step},
                 {"layered spectrain", "version-backward", early_step},
                 {"spectrain", "version-forward", from_far},
                 {"spectrain", "version-forward", one_later},
                 {"spectrain", "version-forward", one_earlier},
                 {"spectrain", "version-forward", much_later},
                 {"pipedream", "version-forward", one_later},
                 {"2bw", "version-forward", one_later},
                 {"spectrain", "version-sent", other_version_sent},
                 {"1f1b", "version-sent", other_version_received},
                 {"layered vanilla", "version-step", counted_by_stage},
                 {"layered pipedream", "version-step", counted_by_stage},
                 {"layered spectrain", "version-step", counted_by_stage},
                 {"layered vanilla", "step-at-once", half_late},
                 {"layered pipedream", "step-at-once", half_late},
                 {"layered spectrain", "step-at-once", half_late},
                 {"pipedream", "version-prepared", unstashed},
                 {"pipedream", "version-prepared", other_stash},
                 {"spectrain", "version-prepared", unpredicted},
                 {"1f1b", "memory-balance", leak},
                 {"gpipe", "memory-cap", over_cap},
                 {"scan-blelloch", "scan-product", wrong_factors},
                 {"scan-chunked", "scan-product", no_product},
                 {"scan-linear", "scan-gradient", no_gradient},
                 {"scan-blelloch", "scan-complete", unapplied}};
enum { MUTATIONS = sizeof mutations / sizeof mutations[0] };

#endif
