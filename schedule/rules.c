/* The validator's rules of completeness, order, transfers and scans. */
#include <string.h>

#include "core/base/alloc.h"
#include "schedule/check.h"

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

bppsa_status bppsa_checker_prepare(bppsa_checker *c) {
  const bppsa_schedule *list = c->list;
  const bool scan = list->scheme->scan;
  const int64_t passes = scan ? 0 : list->micros * list->config.layers, held = list->replicas * list->config.layers;
  c->cells = larger(larger(passes, held), larger(list->workers, larger(list->groups, scan ? list->config.elements + 1 : 1)));
  c->first = bppsa_alloc((size_t)c->cells * sizeof *c->first);
  c->second = bppsa_alloc((size_t)c->cells * sizeof *c->second);
  return c->first != NULL && c->second != NULL ? bppsa_schedule_pair(list, c->sane, &c->send, &c->recv) : BPPSA_ERR_MEMORY;
}

void bppsa_checker_free(bppsa_checker *c) {
  bppsa_free(c->send);
  bppsa_free(c->recv);
  bppsa_free(c->first);
  bppsa_free(c->second);
}

void bppsa_checker_fill(int32_t *cells, int64_t count, int32_t value) {
  for (int64_t i = 0; i < count; ++i) {
    cells[i] = value;
  }
}

int64_t bppsa_checker_source(const bppsa_checker *c, int64_t dep) {
  const bppsa_schedule_op *op = &c->list->ops[dep];
  if (!c->sane[dep] || op->kind != BPPSA_KIND_RECV) {
    return c->sane[dep] ? dep : -1;
  }
  const int32_t send = c->send[op->group];
  return send >= 0 && c->list->ops[send].dep_count > 0 ? c->list->deps[c->list->ops[send].deps] : -1;
}

static bool is_backward(const bppsa_schedule_op *op) {
  return op->kind >= BPPSA_KIND_I && op->kind <= BPPSA_KIND_RECOMPUTE;
}

static bool covers(const bppsa_schedule_op *op, int64_t micro, int64_t layer) {
  return micro >= op->micro && micro < op->micro + op->micros && layer >= op->layer && layer < op->layer + op->layers;
}

/* ---- every operation once, and none missing ---- */

static bppsa_status placement(bppsa_checker *c, bool *kept) {
  const int64_t stages = c->list->stages;
  bppsa_checker_fill(c->first, c->cells, -1);
  for (int64_t id = 0; id < c->list->count && *kept && !c->list->scheme->scan; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    int32_t *worker = &c->first[op->replica * stages + op->stage];
    if (!c->sane[id] || op->kind == BPPSA_KIND_RECV) { /* a RECV belongs to the worker of its reader */
      continue;
    }
    *worker = *worker < 0 ? op->worker : *worker;
    *kept = *worker == op->worker ||
            bppsa_checker_broken(c, id, "expected worker %d, which has the stage's other operations", (int)*worker);
  }
  return BPPSA_OK;
}

/* Returns the bits that stand for what the operation makes in a cell of [micro][layer]. A gradient has one bit for each half. */
static int32_t bits_of(const bppsa_schedule_op *op) {
  const int32_t halves = op->part < 0 ? 3 : op->part == 0 ? 1 : 2;
  switch ((bppsa_schedule_kind)op->kind) {
  case BPPSA_KIND_F:
    return 1 << 8;
  case BPPSA_KIND_RECOMPUTE:
    return halves;
  case BPPSA_KIND_I:
    return halves << 2;
  case BPPSA_KIND_W:
    return halves << 4;
  case BPPSA_KIND_B:
    return halves << 2 | halves << 4;
  default:
    return 0;
  }
}

/* Marks in c->first what each pass has made. `once`: reports an operation that makes something again. */
static bool mark_passes(bppsa_checker *c, bool once) {
  const int64_t layers = c->list->config.layers;
  bppsa_checker_fill(c->first, c->list->scheme->scan ? 0 : c->list->micros * layers, 0);
  for (int64_t id = 0; id < c->list->count; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    const int32_t bits = c->sane[id] && !c->list->scheme->scan ? bits_of(op) : 0;
    for (int64_t micro = op->micro; bits != 0 && micro < op->micro + op->micros; ++micro) {
      for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
        int32_t *cell = &c->first[micro * layers + layer];
        if (once && (*cell & bits) != 0) {
          return bppsa_checker_broken(c, id, "expected once, found a second of micro-batch %d, layer %d", (int)micro, (int)layer);
        }
        *cell |= bits;
      }
    }
  }
  return true;
}

static bppsa_status once(bppsa_checker *c, bool *kept) {
  *kept = mark_passes(c, true);
  return BPPSA_OK;
}

/* Does the micro-batch have a backward pass? In the round behind the last iteration none has. */
static bool comes_back(const bppsa_schedule *list, int64_t micro) {
  return micro / list->config.micro_batches % list->rounds < list->config.iterations;
}

static bool complete(bppsa_checker *c, int32_t bits, const char *what) {
  const int64_t layers = c->list->scheme->scan ? 0 : c->list->config.layers;
  (void)mark_passes(c, false);
  for (int64_t micro = 0; micro < c->list->micros; ++micro) {
    for (int64_t layer = 0; layer < layers; ++layer) {
      const bool wanted = bits == 1 << 8 ||
                          (comes_back(c->list, micro) && (bits != 3 << 2 || layer > 0 || !c->list->config.skip_first_input_grad));
      if (wanted && (c->first[micro * layers + layer] & bits) != bits) {
        return bppsa_checker_broken(c, -1, "micro-batch %d, layer %d: no %s, expected one", (int)micro, (int)layer, what);
      }
    }
  }
  return true;
}

static bppsa_status complete_forward(bppsa_checker *c, bool *kept) {
  *kept = complete(c, 1 << 8, "forward pass");
  return BPPSA_OK;
}

static bppsa_status complete_gradient(bppsa_checker *c, bool *kept) {
  *kept = complete(c, 3 << 2, "input gradient");
  return BPPSA_OK;
}

static bppsa_status complete_weights(bppsa_checker *c, bool *kept) {
  *kept = complete(c, 3 << 4, "weight gradient");
  return BPPSA_OK;
}

/* ---- order ---- */

/* Does the operation depend on one of `kinds` (bits) that covers the micro-batch, the layer and its half? */
static bool waits_for(const bppsa_checker *c, const bppsa_schedule_op *op, uint32_t kinds, int64_t micro, int64_t layer) {
  int32_t halves = 0;
  for (int32_t k = 0; k < op->dep_count; ++k) {
    const int64_t source = bppsa_checker_source(c, c->list->deps[op->deps + k]);
    const bppsa_schedule_op *made = source >= 0 && c->sane[source] ? &c->list->ops[source] : NULL;
    if (made != NULL && (kinds >> made->kind & 1) != 0 && covers(made, micro, layer)) {
      halves |= made->part < 0 || op->part == made->part ? 3 : 1 << made->part;
    }
  }
  return halves == 3;
}

#define KIND(name) (1U << BPPSA_KIND_##name)

static bppsa_status order_forward(bppsa_checker *c, bool *kept) {
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    for (int64_t m = op->micro; c->sane[id] && op->kind == BPPSA_KIND_F && op->layer > 0 && m < op->micro + op->micros && *kept;
         ++m) {
      *kept = waits_for(c, op, KIND(F), m, op->layer - 1) ||
              bppsa_checker_broken(c, id, "waits for no F of micro-batch %d, layer %d, expected it", (int)m, (int)op->layer - 1);
    }
  }
  return BPPSA_OK;
}

/* Checks that the operation waits for the gradient behind its last layer. Behind the model's last layer it must wait for that
 * layer's F, which gives the loss. */
static bool order_gradient(bppsa_checker *c, int64_t id, uint32_t kinds) {
  const bppsa_schedule_op *op = &c->list->ops[id];
  const int64_t layer = op->layer + op->layers, layers = c->list->config.layers;
  if (!c->sane[id] || (kinds >> op->kind & 1) == 0) {
    return true;
  }
  const bool there =
      layer < layers ? waits_for(c, op, KIND(I) | KIND(B), op->micro, layer) : waits_for(c, op, KIND(F), op->micro, layers - 1);
  return there || bppsa_checker_broken(c, id, "waits for no gradient behind layer %d, expected it", (int)layer - 1);
}

static bppsa_status order_input(bppsa_checker *c, bool *kept) {
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    *kept = order_gradient(c, id, KIND(I) | KIND(B));
  }
  return BPPSA_OK;
}

static bppsa_status order_weights(bppsa_checker *c, bool *kept) {
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    *kept = order_gradient(c, id, KIND(W) | KIND(RECOMPUTE));
  }
  return BPPSA_OK;
}

static bppsa_status order_activations(bppsa_checker *c, bool *kept) {
  const bool again = c->list->config.recompute;
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    const int64_t last = op->layer + op->layers - 1;
    if (c->sane[id] && is_backward(op)) {
      *kept = waits_for(c, op, KIND(F), op->micro, last) || bppsa_checker_broken(c, id, "waits for no F of its own, expected it");
    }
    if (c->sane[id] && is_backward(op) && again && op->kind != BPPSA_KIND_RECOMPUTE && *kept) {
      *kept = waits_for(c, op, KIND(RECOMPUTE), op->micro, op->layer) ||
              bppsa_checker_broken(c, id, "waits for no RECOMPUTE, expected it");
    }
  }
  return BPPSA_OK;
}

/* ---- transfers ---- */

/* In scans `part` does not select a part of the tensor. */
static bool same_tensor(const bppsa_checker *c, const bppsa_schedule_op *a, const bppsa_schedule_op *b) {
  return a->replica == b->replica && a->layer == b->layer && a->layers == b->layers && a->micro == b->micro &&
         a->micros == b->micros && (a->part == b->part || c->list->scheme->scan);
}

static bppsa_status send_receive(bppsa_checker *c, bool *kept) {
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    const bool sends = op->kind == BPPSA_KIND_SEND, receives = op->kind == BPPSA_KIND_RECV;
    if (!c->sane[id] || (!sends && !receives)) {
      continue;
    }
    const int32_t own = sends ? c->send[op->group] : c->recv[op->group], other = sends ? c->recv[op->group] : c->send[op->group];
    const bppsa_schedule_op *pair = other >= 0 ? &c->list->ops[other] : NULL;
    const bool matched =
        own == id && pair != NULL && pair->kind == (sends ? BPPSA_KIND_RECV : BPPSA_KIND_SEND) && pair->worker != op->worker;
    *kept = (matched && same_tensor(c, op, pair)) ||
            bppsa_checker_broken(c, id, "expected one partner on another worker with the same tensor");
  }
  return BPPSA_OK;
}

static bppsa_status send_source(bppsa_checker *c, bool *kept) {
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    if (c->sane[id] && op->kind == BPPSA_KIND_SEND) {
      const int32_t dep = op->dep_count == 1 ? c->list->deps[op->deps] : -1;
      *kept = (dep >= 0 && c->list->ops[dep].worker == op->worker && same_tensor(c, op, &c->list->ops[dep])) ||
              bppsa_checker_broken(c, id, "expected to wait for what made its tensor, alone");
    }
  }
  return BPPSA_OK;
}

/* Chains the RECVs of each worker, the first one first: head[worker], then next[RECV]. */
static void chain_recvs(const bppsa_checker *c, int32_t *head, int32_t *next) {
  bppsa_checker_fill(head, c->list->workers, -1);
  for (int64_t id = c->list->count - 1; id >= 0; --id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    if (c->sane[id] && op->kind == BPPSA_KIND_RECV && c->send[op->group] >= 0) {
      next[id] = head[op->worker];
      head[op->worker] = (int32_t)id;
    }
  }
}

/* Returns the worker that sends what a RECV receives. */
static int32_t sender_of(const bppsa_checker *c, int32_t recv) {
  return c->list->ops[c->send[c->list->ops[recv].group]].worker;
}

/* Returns the first RECV of a chain that stands behind the RECV of a later SEND by the same worker, or -1. latest[worker]: its
 * latest SEND so far. */
static int32_t overtaken(const bppsa_checker *c, int32_t chain, const int32_t *next, int32_t *latest) {
  for (int32_t id = chain; id >= 0; id = next[id]) {
    latest[sender_of(c, id)] = -1;
  }
  for (int32_t id = chain; id >= 0; id = next[id]) {
    const int32_t send = c->send[c->list->ops[id].group];
    if (latest[sender_of(c, id)] >= send) {
      return id;
    }
    latest[sender_of(c, id)] = send;
  }
  return -1;
}

/* Checks that the RECVs of a lane keep the order in which each sender sends. */
static bppsa_status receive_order(bppsa_checker *c, bool *kept) {
  int32_t *head = c->first, *latest = c->second, found = -1;
  int32_t *next = bppsa_alloc((size_t)c->list->count * sizeof *next);
  if (next == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  chain_recvs(c, head, next);
  for (int64_t w = 0; w < c->list->workers; ++w) {
    const int32_t id = overtaken(c, head[w], next, latest);
    found = id >= 0 && (found < 0 || id < found) ? id : found;
  }
  bppsa_free(next);
  *kept =
      found < 0 || bppsa_checker_broken(c, found, "received behind a later SEND of worker %d, expected the order of the sends",
                                        (int)sender_of(c, found));
  return BPPSA_OK;
}

static bppsa_status transfer(bppsa_checker *c, bool *kept) {
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    for (int32_t k = 0; c->sane[id] && k < op->dep_count && *kept; ++k) {
      const int32_t dep = c->list->deps[op->deps + k];
      *kept = !c->sane[dep] || c->list->ops[dep].worker == op->worker ||
              bppsa_checker_broken(c, id, "waits for operation %d of worker %d, expected a RECV", (int)dep,
                                   (int)c->list->ops[dep].worker);
    }
  }
  return BPPSA_OK;
}

static bppsa_status acyclic(bppsa_checker *c, bool *kept) {
  bppsa_schedule_run run;
  if (!c->all_sane) { /* another rule is broken: the list cannot run */
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_schedule_run_settle(c->list, &run));
  *kept = run.done == run.count ||
          bppsa_checker_broken(c, -1, "%lld operations wait for each other, expected none", (long long)(run.count - run.done));
  bppsa_schedule_run_free(&run);
  return BPPSA_OK;
}

/* ---- scans ---- */

static bool waits_for_product(const bppsa_checker *c, const bppsa_schedule_op *op, int64_t from, int64_t to) {
  for (int32_t k = 0; k < op->dep_count; ++k) {
    const int64_t source = bppsa_checker_source(c, c->list->deps[op->deps + k]);
    const bppsa_schedule_op *made = source >= 0 && c->sane[source] ? &c->list->ops[source] : NULL;
    if (made != NULL && made->kind == BPPSA_KIND_PRODUCT && made->layer == from && made->layer + made->layers == to) {
      return true;
    }
  }
  return false;
}

static bppsa_status scan_product(bppsa_checker *c, bool *kept) {
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    const int64_t from = op->layer, to = from + op->layers;
    if (c->sane[id] && op->kind == BPPSA_KIND_PRODUCT && op->part >= 0) {
      *kept = (waits_for_product(c, op, from, op->part) && waits_for_product(c, op, op->part, to)) ||
              bppsa_checker_broken(c, id, "expected to wait for the products of Jacobians %d .. %d and %d .. %d", (int)from,
                                   (int)op->part - 1, (int)op->part, (int)to - 1);
    } else if (c->sane[id] && op->kind == BPPSA_KIND_CARRY) {
      *kept = waits_for_product(c, op, from, to) ||
              bppsa_checker_broken(c, id, "expected to wait for the product of Jacobians %d .. %d", (int)from, (int)to - 1);
    }
  }
  return BPPSA_OK;
}

/* A CARRY or APPLY depends on an operation that ends in front of its first Jacobian, or on a CARRY that begins at the same
 * Jacobian and passes the gradient on. */
static bppsa_status scan_gradient(bppsa_checker *c, bool *kept) {
  for (int64_t id = 0; id < c->list->count && *kept; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    if (!c->sane[id] || op->layer == 0 || (op->kind != BPPSA_KIND_CARRY && op->kind != BPPSA_KIND_APPLY)) {
      continue;
    }
    bool there = false;
    for (int32_t k = 0; k < op->dep_count; ++k) {
      const int64_t source = bppsa_checker_source(c, c->list->deps[op->deps + k]);
      const bppsa_schedule_op *made = source >= 0 && c->sane[source] ? &c->list->ops[source] : NULL;
      there =
          there || (made != NULL && made->kind >= BPPSA_KIND_CARRY &&
                    (made->layer + made->layers == op->layer || (made->kind == BPPSA_KIND_CARRY && made->layer == op->layer)));
    }
    *kept = there || bppsa_checker_broken(c, id, "expected to wait for the gradient in front of Jacobian %d", (int)op->layer);
  }
  return BPPSA_OK;
}

static bppsa_status scan_complete(bppsa_checker *c, bool *kept) {
  const int64_t n = c->list->scheme->scan ? c->list->config.elements - 1 : 0;
  bppsa_checker_fill(c->first, n, 0);
  for (int64_t id = 0; id < c->list->count; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    for (int64_t i = op->layer; c->sane[id] && op->kind == BPPSA_KIND_APPLY && i < op->layer + op->layers; ++i) {
      c->first[i] += 1;
    }
  }
  for (int64_t i = 0; i < n && *kept; ++i) {
    *kept =
        c->first[i] == 1 || bppsa_checker_broken(c, -1, "Jacobian %d: applied %d times, expected once", (int)i, (int)c->first[i]);
  }
  return BPPSA_OK;
}

/* ---- the table ---- */

const bppsa_checker_rule bppsa_checker_rules[] = {
    {{"placement", "all layers of a replica's stage are on one worker"}, placement},
    {{"once", "every pass of a micro-batch through a layer occurs once"}, once},
    {{"complete-forward", "every micro-batch passes every layer forward"}, complete_forward},
    {{"complete-gradient", "every micro-batch's gradient reaches every layer that wants it"}, complete_gradient},
    {{"complete-weights", "every micro-batch has a weight gradient on every layer"}, complete_weights},
    {{"send-receive", "each group has a SEND and a RECV of the same tensor, on two workers"}, send_receive},
    {{"send-source", "a SEND waits for what made its tensor"}, send_source},
    {{"receive-order", "a pair of workers receives in the order in which it sends"}, receive_order},
    {{"order-forward", "F waits for F of the layer in front"}, order_forward},
    {{"order-input", "I and B wait for the gradient behind their last layer"}, order_input},
    {{"order-weights", "W waits for the gradient behind its layers"}, order_weights},
    {{"order-activations", "a backward pass waits for its own F, and for its RECOMPUTE where there is one"}, order_activations},
    {{"transfer", "a tensor that another worker made arrives by a RECV"}, transfer},
    {{"acyclic", "no operations wait for each other"}, acyclic},
    {{"sync-replicas", "every replica has the SYNC of a group, of the same layers"}, bppsa_rule_sync_replicas},
    {{"sync-gradients", "SYNC waits for every gradient since the last STEP"}, bppsa_rule_sync_gradients},
    {{"step-synchronised", "STEP waits for every SYNC and every gradient of its layers since the last STEP"},
     bppsa_rule_step_synchronised},
    {{"step-count", "as many updates of every layer as the scheme makes"}, bppsa_rule_step_count},
    {{"step-micro-batches", "an update adds up the gradients of its own micro-batches"}, bppsa_rule_step_micro_batches},
    {{"step-at-once", "where every micro-batch has an update, no pass of a layer comes between its gradient and its update"},
     bppsa_rule_step_at_once},
    {{"version-step", "the updates of a layer count up by one"}, bppsa_rule_version_step},
    {{"version-forward", "F sees the weights its scheme promises"}, bppsa_rule_version_forward},
    {{"version-backward", "a backward pass sees the weights its scheme promises"}, bppsa_rule_version_backward},
    {{"version-prepared", "STASH and PREDICT have the version of the pass behind them"}, bppsa_rule_version_prepared},
    {{"version-sent", "a tensor goes with the version of the weights that made it"}, bppsa_rule_version_sent},
    {{"memory-balance", "all memory that is taken is given back, and no more"}, bppsa_rule_memory_balance},
    {{"memory-cap", "no worker holds more activations than the cap"}, bppsa_rule_memory_cap},
    {{"scan-product", "a PRODUCT joins two neighbours and waits for their products"}, scan_product},
    {{"scan-gradient", "CARRY and APPLY wait for the gradient in front of their Jacobians"}, scan_gradient},
    {{"scan-complete", "every Jacobian is applied once"}, scan_complete},
};
const int bppsa_checker_rule_count = sizeof bppsa_checker_rules / sizeof bppsa_checker_rules[0];
_Static_assert(sizeof bppsa_checker_rules / sizeof bppsa_checker_rules[0] <= BPPSA_CHECKER_MOST_RULES,
               "a bit of a mask each, beside the rules of shape");
