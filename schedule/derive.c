/* Derives dependencies from the data flow: what an operation reads follows from its kind, replica, layers and micro-batch, and
 * from its place in its worker's order:
 *
 *     F of layer l       F of layer l - 1; the last STEP of its layers
 *     I, B of layer l    its own F, and the gradient behind layer l: from I or B of layer l + 1, or behind the last layer from its
 *                        F, which gives the loss
 *     W of layer l       the same as I
 *     RECOMPUTE          the same as I: it begins when the gradient has arrived, so that its activations are held briefly (Chimera:
 *                        B_t = 3 F_t)
 *     SYNC, STEP         what made the gradients of its layers since the last STEP; a STEP also waits for their SYNC if there is
 *                        one
 *     PRODUCT            the products it joins
 *     CARRY, APPLY       the gradient in front of their elements; CARRY also a product over its elements
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "schedule/schedule_internal.h"

#define TABLE_LIMIT ((int64_t)1 << 27)

/* An operation of a scan over the elements first .. first + count - 1. */
typedef struct {
  int32_t first, count, id;
} segment;

typedef struct {
  segment *all; /* sorted by first, then by count; among equals the latest operation comes first */
  int64_t size;
} segments;

typedef struct {
  bppsa_schedule *list;
  int64_t layers;
  int32_t *forward;     /* F of [micro][layer] */
  int32_t *gradient[2]; /* I or B of [micro][layer]; [1]: I or B of its second half */
  int32_t *again[2];    /* RECOMPUTE of [micro][layer]; [1]: RECOMPUTE of its second half */
  int32_t *made;        /* the latest gradient of [replica][layer] that is not yet synchronised; `before` chains the others */
  int32_t *synced;      /* the latest SYNC of [replica][layer] since the last STEP; `before` chains the others */
  int32_t *step;        /* the last STEP of [replica][layer] */
  int32_t *prepared;    /* the last PREDICT or STASH of [replica][layer] */
  int32_t *before;      /* the operation before each in its chain, or -1; size count */
  int32_t *reaches;     /* in scans: the operation that made the gradient at [element] */
  segments carries, products;
} tables;

static bool halves(const bppsa_schedule *list) {
  return list->config.scale == BPPSA_SCALE_HALVING;
}

static bppsa_status make_tables(tables *t) {
  const bppsa_schedule *list = t->list;
  const int64_t cells = list->scheme->scan ? 0 : list->micros * t->layers, held = list->replicas * t->layers;
  const int64_t elements = list->scheme->scan ? list->config.elements + 1 : 0;
  const struct {
    int32_t **table;
    int64_t count;
  } made[] = {{&t->forward, cells},
              {&t->gradient[0], cells},
              {&t->gradient[1], halves(list) ? cells : 0},
              {&t->again[0], list->config.recompute ? cells : 0},
              {&t->again[1], list->config.recompute && halves(list) ? cells : 0},
              {&t->made, held},
              {&t->synced, held},
              {&t->step, held},
              {&t->prepared, held},
              {&t->before, list->count},
              {&t->reaches, elements}};
  for (size_t i = 0; i < sizeof made / sizeof made[0]; ++i) {
    *made[i].table = bppsa_alloc((size_t)made[i].count * sizeof(int32_t));
    if (*made[i].table == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    memset(*made[i].table, 0xff, (size_t)made[i].count * sizeof(int32_t)); /* -1 */
  }
  return BPPSA_OK;
}

/* ---- segments of a scan ---- */

static int by_place(const void *a, const void *b) {
  const segment *x = a, *y = b;
  if (x->first != y->first) {
    return x->first < y->first ? -1 : 1;
  }
  return x->count != y->count ? (x->count < y->count ? -1 : 1) : (x->id < y->id) - (x->id > y->id);
}

/* Lists the operations of a kind. */
static bppsa_status list_segments(const bppsa_schedule *list, int kind, segments *s) {
  int64_t size = 0;
  for (int64_t id = 0; id < list->count; ++id) {
    size += list->ops[id].kind == kind;
  }
  s->all = bppsa_calloc(size, sizeof *s->all);
  if (s->all == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t id = 0; id < list->count; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    if (op->kind == kind) {
      s->all[s->size++] = (segment){op->layer, op->layers, (int32_t)id};
    }
  }
  qsort(s->all, (size_t)size, sizeof *s->all, by_place);
  return BPPSA_OK;
}

/* Returns the shortest segment that begins at `first` and has `least` elements or more, or NULL. */
static const segment *find_segment(const segments *s, int64_t first, int64_t least) {
  int64_t low = 0, high = s->size;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const segment *at = &s->all[middle];
    if (at->first < first || (at->first == first && at->count < least)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < s->size && s->all[low].first == first ? &s->all[low] : NULL;
}

/* ---- who makes what ---- */

static void note(const tables *t, int32_t *table, const bppsa_schedule_op *op, int64_t id) {
  for (int64_t micro = op->micro; micro < op->micro + op->micros; ++micro) {
    for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
      table[micro * t->layers + layer] = (int32_t)id;
    }
  }
}

static void note_producers(const tables *t) {
  for (int64_t id = 0; id < t->list->count; ++id) {
    const bppsa_schedule_op *op = &t->list->ops[id];
    switch ((bppsa_schedule_kind)op->kind) {
    case BPPSA_KIND_F:
      note(t, t->forward, op, id);
      break;
    case BPPSA_KIND_I:
    case BPPSA_KIND_B:
      note(t, t->gradient[op->part == 1 && halves(t->list)], op, id);
      break;
    case BPPSA_KIND_RECOMPUTE:
      if (t->list->config.recompute) {
        note(t, t->again[op->part == 1 && halves(t->list)], op, id);
      }
      break;
    case BPPSA_KIND_CARRY:
      t->reaches[op->layer + op->layers] = (int32_t)id;
      break;
    case BPPSA_KIND_APPLY: /* it also gives this gradient, but later than a CARRY */
      if (t->reaches[op->layer + op->layers] < 0) {
        t->reaches[op->layer + op->layers] = (int32_t)id;
      }
      break;
    default:
      break;
    }
  }
}

/* ---- who reads what ---- */

/* Adds a dependency, but not twice, not on the operation itself, and not where `dep` is missing: the validator reports that. */
static bppsa_status need(const tables *t, int64_t id, int32_t dep) {
  const bppsa_schedule_op *op = &t->list->ops[id];
  const int32_t recent = op->dep_count < 4 ? op->dep_count : 4;
  bool known = dep < 0 || dep == id;
  for (int32_t i = 1; i <= recent && !known; ++i) {
    known = t->list->deps[t->list->dep_count - i] == dep;
  }
  return known ? BPPSA_OK : bppsa_schedule_add_dep(t->list, id, dep);
}

static bppsa_status need_table(const tables *t, int64_t id, const int32_t *table, int64_t layer) {
  const bppsa_schedule_op op = t->list->ops[id];
  for (int64_t micro = op.micro; micro < op.micro + op.micros; ++micro) {
    BPPSA_TRY(need(t, id, table[micro * t->layers + layer]));
  }
  return BPPSA_OK;
}

/* Adds dependencies on what made the half that the operation works on, or on what made both halves. made[0] holds first halves and
 * whole micro-batches, made[1] second halves. */
static bppsa_status need_half(const tables *t, int64_t id, int32_t *const made[2], int64_t layer) {
  const bppsa_schedule_op op = t->list->ops[id];
  const int32_t second = halves(t->list) ? made[1][op.micro * t->layers + layer] : -1;
  if (op.part != 1 || second < 0) {
    BPPSA_TRY(need_table(t, id, made[0], layer));
  }
  return op.part == 0 ? BPPSA_OK : need(t, id, second);
}

/* Adds dependencies on the operation's own F, and on the gradient behind its last layer. */
static bppsa_status need_gradient(const tables *t, int64_t id) {
  const bppsa_schedule_op op = t->list->ops[id];
  const int64_t last = op.layer + op.layers - 1;
  BPPSA_TRY(need_table(t, id, t->forward, last));
  return last + 1 == t->layers ? BPPSA_OK : need_half(t, id, t->gradient, last + 1);
}

static bppsa_status need_chain(const tables *t, int64_t id, int32_t *head) {
  int32_t at = *head;
  while (at >= 0) {
    const int32_t next = t->before[at];
    BPPSA_TRY(need(t, id, at));
    at = next;
  }
  *head = -1;
  return BPPSA_OK;
}

static bppsa_status need_gradients(const tables *t, int64_t id) {
  const bppsa_schedule_op op = t->list->ops[id];
  const int64_t key = op.replica * t->layers + op.layer;
  if (op.kind == BPPSA_KIND_SYNC && op.part > 0) { /* a later slice of the same SYNC */
    BPPSA_TRY(need(t, id, t->synced[key]));
  }
  for (int64_t i = 0; i < op.layers; ++i) {
    if (op.kind == BPPSA_KIND_STEP) {
      BPPSA_TRY(need_chain(t, id, &t->synced[key + i]));
      t->step[key + i] = (int32_t)id;
    }
    BPPSA_TRY(need_chain(t, id, &t->made[key + i]));
  }
  if (op.kind == BPPSA_KIND_SYNC) {
    t->before[id] = t->synced[key];
    t->synced[key] = (int32_t)id;
  }
  return BPPSA_OK;
}

static bppsa_status need_preparation(const tables *t, int64_t id) {
  const bppsa_schedule_op op = t->list->ops[id];
  const int32_t prepared = t->prepared[op.replica * t->layers + op.layer];
  return prepared >= 0 && t->list->ops[prepared].micro == op.micro ? need(t, id, prepared) : BPPSA_OK;
}

static bppsa_status need_forward(const tables *t, int64_t id) {
  const bppsa_schedule_op op = t->list->ops[id];
  if (op.layer > 0) {
    BPPSA_TRY(need_table(t, id, t->forward, op.layer - 1));
  }
  for (int64_t i = 0; i < op.layers; ++i) {
    BPPSA_TRY(need(t, id, t->step[op.replica * t->layers + op.layer + i]));
  }
  return need_preparation(t, id);
}

static bppsa_status need_backward(const tables *t, int64_t id) {
  const bppsa_schedule_op op = t->list->ops[id];
  const int64_t key = op.replica * t->layers + op.layer;
  BPPSA_TRY(need_gradient(t, id));
  BPPSA_TRY(need_preparation(t, id));
  if (op.kind != BPPSA_KIND_RECOMPUTE && t->list->config.recompute) {
    BPPSA_TRY(need_half(t, id, t->again, op.layer));
  }
  if (op.kind == BPPSA_KIND_W || op.kind == BPPSA_KIND_B) {
    t->before[id] = t->made[key];
    t->made[key] = (int32_t)id;
  }
  return BPPSA_OK;
}

/* Returns the product over exactly the elements from .. to - 1, or -1. */
static int32_t find_product(const tables *t, int64_t from, int64_t to) {
  const segment *found = find_segment(&t->products, from, to - from);
  return found != NULL && found->count == to - from ? found->id : -1;
}

/* Returns the operation from which to fetch the gradient at `from`, or -1. Each worker whose CARRY begins at `from` holds it.
 * Chooses the CARRY over the fewest elements, but over more than `layers`, so that no worker sends the gradient to many. */
static int32_t find_holder(const tables *t, int64_t from, int32_t layers) {
  const segment *found = find_segment(&t->carries, from, (int64_t)layers + 1);
  return found != NULL ? found->id : -1;
}

/* Adds the dependencies of a scan's operation. In a PRODUCT of two others, `part` is the element at which the second begins. A
 * CARRY uses one product; an APPLY multiplies by its elements one after the other. */
static bppsa_status need_segment(const tables *t, int64_t id) {
  const bppsa_schedule_op op = t->list->ops[id];
  const int64_t from = op.layer, to = from + op.layers;
  if (op.kind == BPPSA_KIND_PRODUCT) {
    if (op.part < 0) {
      return BPPSA_OK;
    }
    BPPSA_TRY(need(t, id, find_product(t, from, op.part)));
    return need(t, id, find_product(t, op.part, to));
  }
  const int32_t holder = find_holder(t, from, op.kind == BPPSA_KIND_CARRY ? op.layers : 0);
  BPPSA_TRY(need(t, id, holder >= 0 ? holder : t->reaches[from]));
  if (op.kind == BPPSA_KIND_APPLY) {
    return BPPSA_OK;
  }
  return need(t, id, find_product(t, from, to));
}

static bppsa_status needs(const tables *t, int64_t id) {
  const bppsa_schedule_op op = t->list->ops[id];
  const int64_t key = op.replica * t->layers + op.layer;
  switch ((bppsa_schedule_kind)op.kind) {
  case BPPSA_KIND_F:
    return need_forward(t, id);
  case BPPSA_KIND_I:
  case BPPSA_KIND_W:
  case BPPSA_KIND_B:
  case BPPSA_KIND_RECOMPUTE:
    return need_backward(t, id);
  case BPPSA_KIND_SYNC:
  case BPPSA_KIND_STEP:
    return need_gradients(t, id);
  case BPPSA_KIND_PREDICT:
  case BPPSA_KIND_STASH:
    t->prepared[key] = (int32_t)id;
    return need(t, id, t->step[key]);
  case BPPSA_KIND_PRODUCT:
  case BPPSA_KIND_CARRY:
  case BPPSA_KIND_APPLY:
    return need_segment(t, id);
  default:
    return BPPSA_OK;
  }
}

bppsa_status bppsa_schedule_derive(bppsa_schedule *list) {
  tables t = {.list = list, .layers = list->config.layers};
  if (!list->scheme->scan && list->micros > TABLE_LIMIT / t.layers) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "schedule: %lld micro-batches through %lld layers, expected a product of at most %lld",
                      (long long)list->micros, (long long)t.layers, (long long)TABLE_LIMIT);
  }
  list->dep_count = 0;
  bppsa_status status = make_tables(&t);
  status = status == BPPSA_OK ? list_segments(list, BPPSA_KIND_CARRY, &t.carries) : status;
  status = status == BPPSA_OK ? list_segments(list, BPPSA_KIND_PRODUCT, &t.products) : status;
  if (status == BPPSA_OK) {
    note_producers(&t);
  }
  for (int64_t id = 0; id < list->count && status == BPPSA_OK; ++id) {
    list->ops[id].deps = list->dep_count;
    list->ops[id].dep_count = 0;
    status = needs(&t, id);
  }
  void *const made[] = {t.forward, t.gradient[0], t.gradient[1], t.again[0], t.again[1],    t.made,        t.synced,
                        t.step,    t.prepared,    t.before,      t.reaches,  t.carries.all, t.products.all};
  for (size_t i = 0; i < sizeof made / sizeof made[0]; ++i) {
    bppsa_free(made[i]);
  }
  return status;
}
