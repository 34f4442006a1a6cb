/* The validator's rules on synchronisation, versions of weights and memory. They walk over the list in its order, which is also
 * the order of every lane. */
#include <math.h>

#include "core/alloc.h"
#include "schedule/check.h"

static bool is_pass(const bppsa_schedule_op *op) {
  return op->kind <= BPPSA_KIND_RECOMPUTE;
}

static bool makes_weights(const bppsa_schedule_op *op) {
  return op->kind == BPPSA_KIND_W || op->kind == BPPSA_KIND_B;
}

static int64_t stage_key(const bppsa_checker *c, const bppsa_schedule_op *op) {
  return op->replica * c->list->stages + op->stage;
}

/* ---- synchronisation ---- */

/* A group of SYNCs has all replicas of its layers, each once, with one cost. */
bppsa_status bppsa_rule_sync_replicas(bppsa_checker *c, bool *kept) {
  const bppsa_schedule *list = c->list;
  bppsa_checker_fill(c->first, list->groups, 0);
  for (int64_t id = 0; id < list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    if (!c->sane[id] || op->kind != BPPSA_KIND_SYNC) {
      continue;
    }
    const bppsa_schedule_op *head = &list->ops[c->send[op->group]];
    const bool same =
        head->kind == BPPSA_KIND_SYNC && head->layer == op->layer && head->layers == op->layers && head->cost == op->cost;
    *kept = same || bppsa_checker_broken(c, id, "expected the layers and the cost of the other replicas' SYNC");
    c->first[op->group] += 1;
  }
  for (int64_t id = 0; id < list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    if (c->sane[id] && op->kind == BPPSA_KIND_SYNC) {
      *kept = c->first[op->group] == list->replicas ||
              bppsa_checker_broken(c, id, "with %d replicas, expected all %d", (int)c->first[op->group], (int)list->replicas);
    }
  }
  return BPPSA_OK;
}

/* Counts dependencies of an operation on `kinds` (bits) that worked on its replica and layers since its last STEP. */
static int32_t count_deps(const bppsa_checker *c, const bppsa_schedule_op *op, uint32_t kinds) {
  int32_t count = 0;
  for (int32_t k = 0; k < op->dep_count; ++k) {
    const int32_t dep = c->list->deps[op->deps + k];
    const bppsa_schedule_op *made = &c->list->ops[dep];
    count += c->sane[dep] && (kinds >> made->kind & 1) != 0 && made->replica == op->replica && made->layer >= op->layer &&
             made->layer < op->layer + op->layers;
  }
  return count;
}

/* c->first counts weight gradients of [replica][layer] on which nothing depends yet, c->second SYNCs. `steps`: checks STEP,
 * otherwise SYNC. */
static void walk_updates(bppsa_checker *c, bool steps, bool *kept) {
  const int64_t layers = c->list->config.layers;
  const uint32_t gradients = 1U << BPPSA_KIND_W | 1U << BPPSA_KIND_B, syncs = 1U << BPPSA_KIND_SYNC;
  bppsa_checker_fill(c->first, c->list->replicas * layers, 0);
  bppsa_checker_fill(c->second, c->list->replicas * layers, 0);
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    if (!c->sane[id] || (!makes_weights(op) && op->kind != BPPSA_KIND_SYNC && op->kind != BPPSA_KIND_STEP)) {
      continue;
    }
    int32_t *made = &c->first[op->replica * layers + op->layer], *synced = &c->second[op->replica * layers + op->layer];
    if (makes_weights(op)) {
      *made += 1;
      continue;
    }
    int32_t gradient_count = 0, sync_count = 0;
    for (int32_t i = 0; i < op->layers; ++i) {
      gradient_count += made[i];
      sync_count += synced[i];
      made[i] = 0;
      synced[i] = op->kind == BPPSA_KIND_STEP ? 0 : synced[i];
    }
    if (op->kind == BPPSA_KIND_SYNC) {
      const bool all = op->part > 0 ? count_deps(c, op, syncs) > 0 : count_deps(c, op, gradients) >= gradient_count;
      *synced += 1;
      *kept =
          steps || all ||
          bppsa_checker_broken(c, id, "does not wait for all %d gradients since the last STEP, expected to", (int)gradient_count);
    } else {
      const bool needs_sync = c->list->replicas > 1, enough = sync_count > 0 || (!needs_sync && gradient_count > 0);
      const bool all = count_deps(c, op, syncs) >= sync_count && count_deps(c, op, gradients) >= gradient_count;
      *kept = !steps || (enough && all && !(needs_sync && gradient_count > 0)) ||
              bppsa_checker_broken(c, id, "does not wait for the %s of its layers, expected all of them, and some",
                                   needs_sync ? "SYNC" : "gradients");
    }
  }
}

bppsa_status bppsa_rule_sync_gradients(bppsa_checker *c, bool *kept) {
  walk_updates(c, false, kept);
  return BPPSA_OK;
}

bppsa_status bppsa_rule_step_synchronised(bppsa_checker *c, bool *kept) {
  walk_updates(c, true, kept);
  return BPPSA_OK;
}

/* There is one update for each iteration; asynchronous schemes except 2BW have one for each micro-batch. */
static bool updates_each(const bppsa_schedule *list) {
  return list->scheme->weights != BPPSA_WEIGHTS_SYNCHRONOUS && list->scheme->weights != BPPSA_WEIGHTS_BUFFERED;
}

bppsa_status bppsa_rule_step_count(bppsa_checker *c, bool *kept) {
  const bppsa_schedule *list = c->list;
  const int64_t layers = list->scheme->scan ? 0 : list->config.layers,
                expected = list->config.iterations * (updates_each(list) ? list->config.micro_batches : 1);
  bppsa_checker_fill(c->first, list->replicas * layers, 0);
  for (int64_t id = 0; id < list->count; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    for (int64_t i = 0; c->sane[id] && op->kind == BPPSA_KIND_STEP && i < op->layers; ++i) {
      c->first[op->replica * layers + op->layer + i] += 1;
    }
  }
  for (int64_t i = 0; i < list->replicas * layers && *kept; ++i) {
    *kept =
        c->first[i] == expected || bppsa_checker_broken(c, -1, "replica %d, layer %d: %d updates, expected %d", (int)(i / layers),
                                                        (int)(i % layers), (int)c->first[i], (int)expected);
  }
  return BPPSA_OK;
}

/* c->first: updates of [replica][layer] in front of an operation that makes gradients. */
static bool made_in_time(bppsa_checker *c, int64_t id) {
  const bppsa_schedule *list = c->list;
  const bppsa_schedule_op *op = &list->ops[id];
  for (int64_t micro = op->micro; micro < op->micro + op->micros; ++micro) {
    const int64_t n = list->config.micro_batches, within = micro % (n * list->rounds),
                  update = updates_each(list) ? within : within / n;
    for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
      const int32_t updates = c->first[op->replica * list->config.layers + layer];
      if (updates != update) {
        return bppsa_checker_broken(c, id, "makes the gradient of layer %d behind %d updates, expected %d", (int)layer,
                                    (int)updates, (int)update);
      }
    }
  }
  return true;
}

bppsa_status bppsa_rule_step_micro_batches(bppsa_checker *c, bool *kept) {
  const int64_t layers = c->list->config.layers;
  bppsa_checker_fill(c->first, c->list->scheme->scan ? 0 : c->list->replicas * layers, 0);
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    for (int64_t i = 0; c->sane[id] && op->kind == BPPSA_KIND_STEP && i < op->layers; ++i) {
      c->first[op->replica * layers + op->layer + i] += 1;
    }
    *kept = !c->sane[id] || !makes_weights(op) || made_in_time(c, id);
  }
  return BPPSA_OK;
}

/* ---- versions ---- */

bppsa_status bppsa_rule_version_step(bppsa_checker *c, bool *kept) {
  bppsa_checker_fill(c->first, c->list->scheme->scan ? 0 : c->list->replicas * c->list->stages, 0);
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    if (c->sane[id] && op->kind == BPPSA_KIND_STEP) {
      int32_t *version = &c->first[stage_key(c, op)];
      *version += 1;
      *kept = op->weight_version == *version ||
              bppsa_checker_broken(c, id, "makes version %d, expected %d", (int)op->weight_version, (int)*version);
    }
  }
  return BPPSA_OK;
}

/* Does a pass see the version that the scheme promises when its stage has had `now` updates? `seen`: the version its forward pass
 * saw, or -1 for a forward pass. */
static bool promised(const bppsa_checker *c, const bppsa_schedule_op *op, int32_t now, int32_t seen) {
  const int64_t round = op->micro / c->list->config.micro_batches % c->list->rounds;
  const int32_t version = op->weight_version;
  switch (c->list->scheme->weights) {
  case BPPSA_WEIGHTS_STASHED: /* the version of the forward pass */
    return version == (seen < 0 ? now : seen);
  case BPPSA_WEIGHTS_BUFFERED: /* one update late, and one of the two versions that exist */
    return version == (round > 0 ? round - 1 : 0) && version <= now && version >= now - 1;
  case BPPSA_WEIGHTS_PREDICTED: /* not older than the present version, and the same in both passes */
    return version >= now && (seen < 0 || version == seen);
  case BPPSA_WEIGHTS_SYNCHRONOUS: /* the same in the whole iteration */
    return version == now && version == round;
  case BPPSA_WEIGHTS_LATEST:
    break;
  }
  return version == now;
}

/* c->first: updates of [replica][stage]; c->second: the version that the forward pass of [micro][stage] saw. */
static void walk_versions(bppsa_checker *c, bool forward, bool *kept) {
  const int64_t stages = c->list->stages;
  bppsa_checker_fill(c->first, c->list->replicas * stages, 0);
  bppsa_checker_fill(c->second, c->list->micros * stages, -1);
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    const bool is_forward = op->kind == BPPSA_KIND_F;
    if (!c->sane[id] || (!is_pass(op) && op->kind != BPPSA_KIND_STEP)) {
      continue;
    }
    int32_t *now = &c->first[stage_key(c, op)];
    if (op->kind == BPPSA_KIND_STEP) {
      *now += 1;
      continue;
    }
    int32_t *seen = &c->second[op->micro * stages + op->stage];
    const bool good = is_forward != forward || promised(c, op, *now, is_forward ? -1 : *seen);
    *seen = is_forward ? op->weight_version : *seen;
    *kept =
        good || bppsa_checker_broken(c, id, "sees version %d of its weights behind %d updates, expected what the scheme promises",
                                     (int)op->weight_version, (int)*now);
  }
}

bppsa_status bppsa_rule_version_forward(bppsa_checker *c, bool *kept) {
  if (!c->list->scheme->scan) {
    walk_versions(c, true, kept);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_rule_version_backward(bppsa_checker *c, bool *kept) {
  if (!c->list->scheme->scan) {
    walk_versions(c, false, kept);
  }
  return BPPSA_OK;
}

/* Stashed schemes keep the weights before every F, predicting ones predict before every pass; the pass depends on that, and has
 * the same version. */
bppsa_status bppsa_rule_version_prepared(bppsa_checker *c, bool *kept) {
  const bppsa_schedule_weights weights = c->list->scheme->weights;
  const bool stashed = weights == BPPSA_WEIGHTS_STASHED, predicted = weights == BPPSA_WEIGHTS_PREDICTED;
  for (int64_t id = 0; id < c->list->count && *kept && (stashed || predicted); ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    bool there = !c->sane[id] || !is_pass(op) || (stashed && op->kind != BPPSA_KIND_F) ||
                 (op->layer != bppsa_schedule_layer_of(c->list, op->stage));
    for (int32_t k = 0; k < op->dep_count && !there; ++k) {
      const bppsa_schedule_op *made = &c->list->ops[c->list->deps[op->deps + k]];
      there = made->kind == (stashed ? BPPSA_KIND_STASH : BPPSA_KIND_PREDICT) && made->micro == op->micro &&
              made->weight_version == op->weight_version;
    }
    *kept = there || bppsa_checker_broken(c, id, "waits for no %s of its version, expected one", stashed ? "STASH" : "PREDICT");
  }
  return BPPSA_OK;
}

/* ---- memory ---- */

/* The activations of each worker while the list runs, in `held`, size workers; the largest value, and where it occurs. */
static void walk_memory(const bppsa_checker *c, double *held, double *most, int64_t *where) {
  for (int64_t id = 0; id < c->list->count; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    if (c->sane[id]) {
      held[op->worker] += op->memory_delta;
      *where = held[op->worker] > *most ? id : *where;
      *most = fmax(*most, held[op->worker]);
    }
  }
}

bppsa_status bppsa_rule_memory_balance(bppsa_checker *c, bool *kept) {
  const bppsa_schedule *list = c->list;
  const bool returns = !list->scheme->scan && list->rounds == list->config.iterations;
  double *held = bppsa_calloc(list->workers, sizeof *held), most = 0;
  int64_t where = -1;
  if (held == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  walk_memory(c, held, &most, &where);
  for (int64_t w = 0; w < list->workers && *kept && returns; ++w) {
    *kept = fabs(held[w]) <= 1e-6 * fmax(1, most) ||
            bppsa_checker_broken(c, -1, "worker %d: %g M_a left, expected none", (int)w, held[w]);
  }
  bppsa_free(held);
  return BPPSA_OK;
}

/* The cap of multi-stream also covers gradients; its generator keeps it. */
bppsa_status bppsa_rule_memory_cap(bppsa_checker *c, bool *kept) {
  const bppsa_schedule *list = c->list;
  const bool asked = list->config.memory_cap > 0 && !list->scheme->scan && !list->scheme->data_parallel;
  double *held = bppsa_calloc(list->workers, sizeof *held), most = 0;
  int64_t where = -1;
  if (held == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  walk_memory(c, held, &most, &where);
  *kept = !asked || most <= list->config.memory_cap * (1 + 1e-9) ||
          bppsa_checker_broken(c, where, "makes %g M_a, expected at most the cap of %g", most, list->config.memory_cap);
  bppsa_free(held);
  return BPPSA_OK;
}
