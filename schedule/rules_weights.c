/* The validator's rules on synchronisation, versions of weights and memory. They walk over the list in its order, which is also
 * the order of every lane. */
#include <math.h>

#include "core/base/alloc.h"
#include "schedule/check.h"

static bool is_pass(const bppsa_schedule_op *op) {
  return op->kind <= BPPSA_KIND_RECOMPUTE;
}

static bool makes_weights(const bppsa_schedule_op *op) {
  return op->kind == BPPSA_KIND_W || op->kind == BPPSA_KIND_B;
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

/* Counts the dependencies of an operation whose kind is one of `kinds` (bits) and which worked on its replica and layers. */
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

/* Checks each STEP if `steps`, otherwise each SYNC. c->first counts the weight gradients of [replica][layer] on which nothing
 * depends yet, c->second the SYNCs. */
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

bool bppsa_schedule_updates_each(const bppsa_schedule *list) {
  return list->scheme->weights != BPPSA_WEIGHTS_SYNCHRONOUS && list->scheme->weights != BPPSA_WEIGHTS_BUFFERED;
}

bppsa_status bppsa_rule_step_count(bppsa_checker *c, bool *kept) {
  const bppsa_schedule *list = c->list;
  const int64_t layers = list->scheme->scan ? 0 : list->config.layers,
                expected = list->config.iterations * (bppsa_schedule_updates_each(list) ? list->config.micro_batches : 1);
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

/* Returns how many updates come before the update of a micro-batch. */
static int32_t update_of(const bppsa_schedule *list, int64_t micro) {
  const int64_t n = list->config.micro_batches, within = micro % (n * list->rounds);
  return (int32_t)(bppsa_schedule_updates_each(list) ? within : within / n);
}

/* Checks that an operation makes its gradients after as many updates as its micro-batches expect. c->first counts the updates of
 * [replica][layer]. */
static bool made_in_time(bppsa_checker *c, int64_t id) {
  const bppsa_schedule *list = c->list;
  const bppsa_schedule_op *op = &list->ops[id];
  for (int64_t micro = op->micro; micro < op->micro + op->micros; ++micro) {
    const int32_t update = update_of(list, micro);
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

/* Checks that an update comes before the next pass of its layer if every micro-batch has an update of its own. Passes see the
 * present weights, keep them or predict from them, so an update that is put off changes what they see, even if the versions are
 * renamed. c->first: the micro-batch whose gradient of [replica][layer] was made since the last STEP, or -1. */
bppsa_status bppsa_rule_step_at_once(bppsa_checker *c, bool *kept) {
  const int64_t layers = c->list->config.layers;
  if (!bppsa_schedule_updates_each(c->list)) {
    return BPPSA_OK;
  }
  bppsa_checker_fill(c->first, c->list->replicas * layers, -1);
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    const bool checked = c->sane[id] && (is_pass(op) || op->kind == BPPSA_KIND_STEP);
    for (int64_t layer = op->layer; checked && *kept && layer < op->layer + op->layers; ++layer) {
      int32_t *made = &c->first[op->replica * layers + layer];
      *kept = !is_pass(op) || *made < 0 || *made == op->micro ||
              bppsa_checker_broken(c, id, "comes in front of the STEP of layer %d for micro-batch %d, expected behind it",
                                   (int)layer, (int)*made);
      *made = makes_weights(op) ? op->micro : op->kind == BPPSA_KIND_STEP ? -1 : *made;
    }
  }
  return BPPSA_OK;
}

/* ---- versions, layer by layer because an update may be split ---- */

bppsa_status bppsa_rule_version_step(bppsa_checker *c, bool *kept) {
  const int64_t layers = c->list->config.layers;
  bppsa_checker_fill(c->first, c->list->scheme->scan ? 0 : c->list->replicas * layers, 0);
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    for (int64_t layer = op->layer; c->sane[id] && op->kind == BPPSA_KIND_STEP && *kept && layer < op->layer + op->layers;
         ++layer) {
      const int32_t version = ++c->first[op->replica * layers + layer];
      *kept = op->weight_version == version || bppsa_checker_broken(c, id, "makes version %d of layer %d, expected %d",
                                                                    (int)op->weight_version, (int)layer, (int)version);
    }
  }
  return BPPSA_OK;
}

/* The version that the scheme promises a pass of a layer, and how many updates the layer may have had by then. */
typedef struct {
  int32_t version, least, most;
} promise;

/* now: updates of the layer in front of the pass; seen: the version that its forward pass saw, or -1 for a forward pass; aim: what
 * SpecTrain predicts. */
static promise promised(const bppsa_checker *c, const bppsa_schedule_op *op, int32_t now, int32_t seen, int32_t aim) {
  const int32_t round = (int32_t)(op->micro / c->list->config.micro_batches % c->list->rounds), late = round > 0 ? round - 1 : 0;
  const int32_t own = update_of(c->list, op->micro);
  switch (c->list->scheme->weights) {
  case BPPSA_WEIGHTS_STASHED: /* the version of the forward pass */
    return (promise){seen < 0 ? now : seen, 0, now};
  case BPPSA_WEIGHTS_BUFFERED: /* one update late, and one of the two versions that exist */
    return (promise){late, late, late + 1};
  case BPPSA_WEIGHTS_PREDICTED: /* the version at the end of the trip; the backward pass precedes the micro-batch's own update */
    return (promise){aim, op->kind == BPPSA_KIND_F ? 0 : own, op->kind == BPPSA_KIND_F ? aim : own};
  case BPPSA_WEIGHTS_SYNCHRONOUS: /* one version in the whole iteration */
    return (promise){round, round, round};
  case BPPSA_WEIGHTS_LATEST:
    break;
  }
  return (promise){now, 0, now};
}

/* now: updates of [replica][layer]; seen: the version that the forward pass of [micro][layer] saw; aim: the version that SpecTrain
 * predicts for [micro][layer], NULL for other schemes. */
typedef struct {
  int32_t *now, *seen, *aim;
} versions;

static bool sees_promised(bppsa_checker *c, int64_t id, const versions *v) {
  const bppsa_schedule_op *op = &c->list->ops[id];
  const int64_t layers = c->list->config.layers;
  for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
    const int64_t cell = op->micro * layers + layer;
    const int32_t now = v->now[op->replica * layers + layer];
    const promise p = promised(c, op, now, op->kind == BPPSA_KIND_F ? -1 : v->seen[cell], v->aim != NULL ? v->aim[cell] : -1);
    if (op->weight_version != p.version) {
      return bppsa_checker_broken(c, id, "sees version %d of layer %d behind %d updates, expected version %d",
                                  (int)op->weight_version, (int)layer, (int)now, (int)p.version);
    }
    if (now < p.least || now > p.most) {
      return bppsa_checker_broken(c, id, "sees version %d of layer %d behind %d updates, expected %d .. %d updates",
                                  (int)op->weight_version, (int)layer, (int)now, (int)p.least, (int)p.most);
    }
  }
  return true;
}

/* Notes the version that a forward pass saw, and counts updates. */
static void pass_by(const bppsa_checker *c, const bppsa_schedule_op *op, const versions *v) {
  const int64_t layers = c->list->config.layers;
  if (op->kind != BPPSA_KIND_F && op->kind != BPPSA_KIND_STEP) { /* lists have many transfers, each over many layers */
    return;
  }
  for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
    v->now[op->replica * layers + layer] += op->kind == BPPSA_KIND_STEP;
    for (int64_t micro = op->micro; op->kind == BPPSA_KIND_F && micro < op->micro + op->micros; ++micro) {
      v->seen[micro * layers + layer] = op->weight_version;
    }
  }
}

static void walk_versions(bppsa_checker *c, bool forward, const versions *v, bool *kept) {
  bppsa_checker_fill(v->now, c->list->replicas * c->list->config.layers, 0);
  bppsa_checker_fill(v->seen, c->list->micros * c->list->config.layers, -1);
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    const bool checked = is_pass(op) && (op->kind == BPPSA_KIND_F) == forward;
    if (c->sane[id]) {
      *kept = !checked || sees_promised(c, id, v);
      pass_by(c, op, v);
    }
  }
}

static bppsa_status check_versions(bppsa_checker *c, bool forward, bool *kept) {
  const bppsa_schedule *list = c->list;
  versions v = {c->first, c->second, NULL};
  bppsa_status status = BPPSA_OK;
  if (list->scheme->scan || (list->scheme->weights == BPPSA_WEIGHTS_PREDICTED && !c->all_sane)) {
    return BPPSA_OK; /* a scan has no weights; where another rule is broken, the list cannot be simulated */
  }
  if (list->scheme->weights == BPPSA_WEIGHTS_PREDICTED) {
    v.aim = bppsa_calloc(list->micros * list->config.layers, sizeof *v.aim);
    status = v.aim != NULL ? bppsa_schedule_aims(list, v.aim) : BPPSA_ERR_MEMORY;
  }
  if (status == BPPSA_OK) {
    walk_versions(c, forward, &v, kept);
  }
  bppsa_free(v.aim);
  return status;
}

bppsa_status bppsa_rule_version_forward(bppsa_checker *c, bool *kept) {
  return check_versions(c, true, kept);
}

bppsa_status bppsa_rule_version_backward(bppsa_checker *c, bool *kept) {
  return check_versions(c, false, kept);
}

/* A stashing scheme keeps the weights before every F, and a predicting scheme predicts them before every pass. The pass must wait
 * for that and see the same version. */
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

/* A message carries the version of its SEND, and the receiver expects the version of its RECV. */
bppsa_status bppsa_rule_version_sent(bppsa_checker *c, bool *kept) {
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    const int32_t send = c->sane[id] && op->kind == BPPSA_KIND_RECV ? c->send[op->group] : (int32_t)id;
    const bool sent = c->sane[id] && (op->kind == BPPSA_KIND_SEND || op->kind == BPPSA_KIND_RECV) && send >= 0;
    const bppsa_schedule_op *from = sent ? &c->list->ops[send] : NULL;
    const int64_t source = sent && from->dep_count > 0 ? c->list->deps[from->deps] : -1;
    *kept = source < 0 || op->weight_version == c->list->ops[source].weight_version ||
            bppsa_checker_broken(c, id, "carries version %d, expected %d", (int)op->weight_version,
                                 (int)c->list->ops[source].weight_version);
  }
  return BPPSA_OK;
}

/* ---- memory ---- */

/* Follows the activations of each worker along the list, in `held`, size workers. *most becomes the largest value, *where the
 * operation at which it occurs. */
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

/* Checks pipelines only. The cap of multi-stream also covers gradients; its generator keeps to it. */
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
