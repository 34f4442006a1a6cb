/* How the ranks of a scan work together: linear, chunked, blelloch.
 *
 * y[r] is the gradient in front of rank r: its g_n, and the g_0 of rank r - 1. P[i:j] is the product of the steps of ranks
 * i .. j - 1; it takes y[i] to y[j].
 */
#include "core/compute/memory.h"
#include "distributed/time/scan_ranks_internal.h"

static bppsa_status copy(const ranks_scan *s, void *to, const void *from, int64_t bytes) {
  return bppsa_memory_queue_copy(s->device, to, bytes, from, bytes, bytes, 1);
}

/* ---- a rank's own work ---- */

/* g_{n-1} .. g_1, then g_0 as well. */
static bppsa_status walk(ranks_scan *s, const bppsa_scan_operands *o) {
  return s->walk.executor->execute(s->walk.executor, o);
}

static bppsa_status walk_through(ranks_scan *s, const bppsa_scan_operands *o) {
  BPPSA_TRY(walk(s, o));
  return s->edge.executor->execute(s->edge.executor, o);
}

static bool is_last(const ranks_scan *s) {
  return s->rank + 1 == s->ranks;
}

/* The last rank's part: its steps, and g_0 if it is wanted. */
static bppsa_status walk_last(ranks_scan *s, const bppsa_scan_operands *o) {
  return s->config->input ? walk_through(s, o) : walk(s, o);
}

/* Replaces the samples of y[rank] for which a product was useless by those in `done`, which were computed step by step. Other
 * samples keep their bits. */
static bppsa_status patch(const ranks_scan *s, const bppsa_scan_operands *o, int32_t rank, const bool *useless, const void *done,
                          char *y) {
  const int64_t bytes = ranks_scan_bytes(s, o, rank) / o->batch;
  for (int64_t b = 0; b < o->batch; ++b) {
    BPPSA_TRY(useless[b] ? copy(s, y + b * bytes, (const char *)done + b * bytes, bytes) : BPPSA_OK);
  }
  return BPPSA_OK;
}

/* ---- messages ---- */

static bppsa_view gradient_view(const ranks_scan *s, const bppsa_scan_operands *o, int32_t rank, void *data, bool with_number) {
  const int64_t count = ranks_scan_reals(s, o, rank) + with_number;
  bppsa_view view = bppsa_view_make(data, s->config->dtype, 1, &count);
  view.device = bppsa_device_get_kind(s->device);
  return view;
}

/* The number at the end of such a message: whether the product that its receiver has sent was useless. */
static bppsa_status put_number(const ranks_scan *s, const bppsa_view *view, bool number) {
  const int64_t one = 1, size = (int64_t)bppsa_dtype_size(s->config->dtype);
  char host[sizeof(double)];
  const bppsa_view value = bppsa_view_make(host, s->config->dtype, 1, &one);
  bppsa_view_set(&value, 0, number ? 1 : 0);
  return bppsa_memory_put(s->device, (char *)view->data + (view->shape[0] - 1) * size, host, size);
}

static bppsa_status get_number(const ranks_scan *s, const bppsa_view *view, bool *number) {
  const int64_t one = 1, size = (int64_t)bppsa_dtype_size(s->config->dtype);
  char host[sizeof(double)];
  const bppsa_view value = bppsa_view_make(host, s->config->dtype, 1, &one);
  BPPSA_TRY(bppsa_memory_get(s->device, host, (const char *)view->data + (view->shape[0] - 1) * size, size));
  *number = bppsa_view_get(&value, 0) != 0;
  return BPPSA_OK;
}

/* y[rank], to or from another rank. */
static bppsa_status send_gradient(ranks_scan *s, const bppsa_scan_operands *o, int32_t to, int32_t rank, void *data) {
  const bppsa_view view = gradient_view(s, o, rank, data, false);
  return bppsa_comm_send(s->comm, to, s->tag, &view);
}

static bppsa_status receive_gradient(ranks_scan *s, const bppsa_scan_operands *o, int32_t from, int32_t rank, void *data) {
  const bppsa_view view = gradient_view(s, o, rank, data, false);
  return bppsa_comm_recv(s->comm, from, s->tag, &view);
}

/* ---- linear ---- */

static bool multiplies_nothing(const ranks_scan *s) {
  (void)s;
  return false;
}

static bppsa_status linear(ranks_scan *s, const bppsa_scan_operands *o) {
  bppsa_comm_at(s->comm, "the scan's linear pass", -1);
  if (s->rank > 0) {
    BPPSA_TRY(receive_gradient(s, o, s->rank - 1, s->rank, ranks_scan_seed(s, o)));
  }
  if (is_last(s)) {
    return walk_last(s, o);
  }
  BPPSA_TRY(walk_through(s, o));
  return send_gradient(s, o, s->rank + 1, s->rank + 1, o->gradients);
}

/* ---- chunked ---- */

/* The first rank needs no product because it has the seed, and the last one because no rank waits for a y behind it. */
static bool multiplies_between(const ranks_scan *s) {
  return s->rank > 0 && !is_last(s);
}

static bppsa_status chunked(ranks_scan *s, const bppsa_scan_operands *o) {
  if (!multiplies_between(s)) {
    return linear(s, o);
  }
  BPPSA_TRY(bppsa_transition_make(s->maker, o, s->own));
  bppsa_comm_at(s->comm, "the scan's carry", -1);
  BPPSA_TRY(receive_gradient(s, o, s->rank - 1, s->rank, ranks_scan_seed(s, o)));
  int64_t redone;
  BPPSA_TRY(bppsa_transition_apply(s->own, ranks_scan_seed(s, o), s->result, s->useless, &redone));
  if (redone > 0) {
    s->base.redone += redone;
    BPPSA_TRY(walk_through(s, o));
    BPPSA_TRY(patch(s, o, s->rank + 1, s->useless, o->gradients, s->result));
    return send_gradient(s, o, s->rank + 1, s->rank + 1, s->result);
  }
  BPPSA_TRY(send_gradient(s, o, s->rank + 1, s->rank + 1, s->result));
  return walk(s, o);
}

/* ---- blelloch ----
 *
 * A node of level l covers up to 2^l ranks, i .. end - 1, and is the last one's, rank end - 1. It joins two nodes, i .. mid - 1
 * and mid .. end - 1.
 *   Up    The rank of the first half sends P[i:mid], or y[mid] where i = 0, because that product contains the seed. The node's own
 *         P[i:end] is made unless it is dead: nothing reads a product that reaches the last rank.
 *   Down  The node's rank has y[i], finds y[mid] and sends y[i] to the rank of the first half. A number at the end of that message
 *         says whether P[i:mid] was useless: then the first half answers with y[mid], when its steps are done. */

bool ranks_node_of(int32_t rank, int32_t ranks, int32_t level, ranks_node *n) {
  const int64_t size = (int64_t)1 << level, begin = rank / (2 * size) * 2 * size, end = begin + 2 * size;
  if (begin + size >= ranks) {
    return false;
  }
  *n = (ranks_node){
      .level = level, .begin = (int32_t)begin, .mid = (int32_t)(begin + size), .end = end < ranks ? (int32_t)end : ranks};
  return true;
}

static bool node_of(const ranks_scan *s, int32_t level, ranks_node *n) {
  return ranks_node_of(s->rank, s->ranks, level, n);
}

/* Finds the level at which this rank's way up ends: there it is the last rank of a first half. The last of all ranks never is; its
 * way ends above all nodes. */
static int32_t top_of(const ranks_scan *s) {
  int32_t level = 0;
  ranks_node n;
  while ((int64_t)1 << level < s->ranks && !(node_of(s, level, &n) && s->rank == n.mid - 1)) {
    ++level;
  }
  return level;
}

/* ---- patterns, which are sent when the executor is made ---- */

static bppsa_view array_view(void *data, bppsa_dtype dtype, int64_t count) {
  return bppsa_view_make(data, dtype, 1, &count);
}

enum { ROWS, COLUMNS, ENTRIES, IDENTITY, NUMBERS };

static bppsa_status send_pattern(ranks_scan *s, int32_t to, const bppsa_csr *from) {
  bppsa_csr csr = {0};
  bppsa_status status = bppsa_csr_copy(from, &csr);
  status = status == BPPSA_OK && csr.row_ptr == NULL ? bppsa_csr_expand(&csr, 1) : status;
  if (status == BPPSA_OK) {
    int64_t numbers[NUMBERS] = {[ROWS] = csr.rows, [COLUMNS] = csr.cols, [ENTRIES] = csr.nnz, [IDENTITY] = csr.identity};
    const bppsa_view parts[] = {array_view(numbers, BPPSA_I64, NUMBERS), array_view(csr.row_ptr, BPPSA_I64, csr.rows + 1),
                                array_view(csr.col, BPPSA_I32, csr.nnz)};
    for (int part = 0; status == BPPSA_OK && part < 3; ++part) {
      status = bppsa_comm_send(s->comm, to, s->tag, &parts[part]);
    }
  }
  bppsa_csr_free(&csr);
  return status;
}

static bppsa_status receive_pattern(ranks_scan *s, int32_t from, bppsa_csr *csr) {
  int64_t numbers[NUMBERS];
  const bppsa_view head = array_view(numbers, BPPSA_I64, NUMBERS);
  BPPSA_TRY(bppsa_comm_recv(s->comm, from, s->tag, &head));
  BPPSA_TRY(bppsa_csr_create(numbers[ROWS], numbers[COLUMNS], numbers[ENTRIES], csr));
  csr->identity = numbers[IDENTITY] != 0;
  const bppsa_view rows = array_view(csr->row_ptr, BPPSA_I64, csr->rows + 1), col = array_view(csr->col, BPPSA_I32, csr->nnz);
  BPPSA_TRY(bppsa_comm_recv(s->comm, from, s->tag, &rows));
  return bppsa_comm_recv(s->comm, from, s->tag, &col);
}

/* The product that will arrive on a level, of ranks begin .. mid - 1. */
static bppsa_status create_left(ranks_scan *s, const ranks_node *n) {
  const bppsa_scan_config *c = s->config;
  bppsa_transition_shape shape = {.element = c->element,
                                  .dtype = c->dtype,
                                  .affine = c->affine,
                                  .batch = c->batch,
                                  .rows = s->dims[n->begin],
                                  .columns = s->dims[n->mid]};
  if (c->element == BPPSA_ELEMENT_CSR) {
    BPPSA_TRY(receive_pattern(s, n->mid - 1, &s->patterns[n->level]));
    shape.pattern = &s->patterns[n->level];
  }
  return bppsa_transition_create(&shape, s->device, &s->left[n->level]);
}

static bppsa_status prepare_blelloch(ranks_scan *s) {
  const int32_t top = top_of(s);
  const bppsa_transition *product = s->own;
  ranks_node n;
  for (int32_t level = 0; level < top; ++level) {
    if (node_of(s, level, &n) && n.begin > 0) {
      BPPSA_TRY(create_left(s, &n));
      if (n.end < s->ranks) {
        BPPSA_TRY(bppsa_transition_create_joined(s->left[level], product, s->device, &s->joined[level]));
        product = s->joined[level];
      }
    }
  }
  const bool sends = node_of(s, top, &n) && n.begin > 0; /* a product, and not what contains the seed */
  return sends && s->config->element == BPPSA_ELEMENT_CSR
             ? send_pattern(s, n.end - 1, bppsa_transition_get_shape(product)->pattern)
             : BPPSA_OK;
}

/* The results of the way up. */
typedef struct {
  bppsa_transition *product; /* of all ranks of the node that this rank ended at */
  bool carried;              /* s->there is y[mid] of the node that begins at rank 0 */
  bool late;                 /* s->result, the y behind that node, must be redone for the samples in s->late before it is sent */
} climb;

/* One level up, as the last rank of the second half. */
static bppsa_status climb_level(ranks_scan *s, const bppsa_scan_operands *o, const ranks_node *n, climb *c) {
  bppsa_comm_at(s->comm, "the scan's up-sweep", n->level);
  if (n->begin == 0) {
    BPPSA_TRY(receive_gradient(s, o, n->mid - 1, n->mid, s->there));
    c->carried = true;
    if (n->end < s->ranks) {
      int64_t redone;
      BPPSA_TRY(bppsa_transition_apply(c->product, s->there, s->result, s->late, &redone));
      s->base.redone += redone;
      c->late = redone > 0;
    }
    return BPPSA_OK;
  }
  bppsa_transition *left = s->left[n->level], *joined = s->joined[n->level];
  const bppsa_view view = bppsa_transition_view(left, o->batch);
  BPPSA_TRY(bppsa_comm_recv(s->comm, n->mid - 1, s->tag, &view));
  BPPSA_TRY(bppsa_transition_received(left));
  if (joined != NULL) {
    BPPSA_TRY(bppsa_transition_join(left, c->product, joined));
    c->product = joined;
  }
  return BPPSA_OK;
}

static void swap(ranks_scan *s) {
  char *here = s->here;
  s->here = s->there;
  s->there = here;
}

/* One level down: from y[begin] in s->here to y[mid] in its place. */
static bppsa_status descend_level(ranks_scan *s, const bppsa_scan_operands *o, const ranks_node *n) {
  bppsa_comm_at(s->comm, "the scan's down-sweep", n->level);
  const bppsa_view view = gradient_view(s, o, n->begin, s->here, true);
  int64_t redone;
  BPPSA_TRY(bppsa_transition_apply(s->left[n->level], s->here, s->there, s->useless, &redone));
  s->base.redone += redone;
  BPPSA_TRY(put_number(s, &view, redone > 0));
  BPPSA_TRY(bppsa_comm_send(s->comm, n->mid - 1, s->tag, &view));
  if (redone > 0) { /* receives y[mid] of all samples into s->here, which is free, and takes the useless ones */
    BPPSA_TRY(receive_gradient(s, o, n->mid - 1, n->mid, s->here));
    BPPSA_TRY(patch(s, o, n->mid, s->useless, s->here, s->there));
  }
  swap(s);
  return BPPSA_OK;
}

static bppsa_status send_product(ranks_scan *s, const bppsa_scan_operands *o, int32_t to, bppsa_transition *product) {
  const bppsa_view view = bppsa_transition_view(product, o->batch);
  return bppsa_comm_send(s->comm, to, s->tag, &view);
}

/* Down from level `top` to this rank's y, in s->here. */
static bppsa_status descend(ranks_scan *s, const bppsa_scan_operands *o, int32_t top) {
  ranks_node n;
  for (int32_t level = top - 1; level >= 0; --level) {
    if (!node_of(s, level, &n)) {
      continue;
    }
    if (n.begin == 0) {
      swap(s);
    } else {
      BPPSA_TRY(descend_level(s, o, &n));
    }
  }
  return copy(s, ranks_scan_seed(s, o), s->here, ranks_scan_bytes(s, o, s->rank));
}

static bppsa_status blelloch(ranks_scan *s, const bppsa_scan_operands *o) {
  const int32_t top = top_of(s);
  climb c = {.product = s->own};
  ranks_node n, above = {0};
  bool answer = false;
  if (s->rank == 0) { /* the product of its steps contains the seed */
    return linear(s, o);
  }
  if (s->maker != NULL) {
    BPPSA_TRY(bppsa_transition_make(s->maker, o, s->own));
  }
  for (int32_t level = 0; level < top; ++level) {
    if (node_of(s, level, &n)) {
      BPPSA_TRY(climb_level(s, o, &n, &c));
    }
  }
  const bool has_above = node_of(s, top, &above);
  if (has_above && !c.late) {
    bppsa_comm_at(s->comm, "the scan's up-sweep", top);
    BPPSA_TRY(c.carried ? send_gradient(s, o, above.end - 1, above.mid, s->result)
                        : send_product(s, o, above.end - 1, c.product));
  }
  if (has_above && !c.carried) {
    bppsa_comm_at(s->comm, "the scan's down-sweep", top);
    const bppsa_view view = gradient_view(s, o, above.begin, s->here, true);
    BPPSA_TRY(bppsa_comm_recv(s->comm, above.end - 1, s->tag, &view));
    BPPSA_TRY(get_number(s, &view, &answer));
  }
  BPPSA_TRY(descend(s, o, top));
  if (is_last(s)) {
    return walk_last(s, o);
  }
  if (!answer && !c.late) {
    return walk(s, o);
  }
  BPPSA_TRY(walk_through(s, o));
  bppsa_comm_at(s->comm, "the scan's redone products", top);
  if (c.late) {
    BPPSA_TRY(patch(s, o, above.mid, s->late, o->gradients, s->result));
  }
  return send_gradient(s, o, above.end - 1, above.mid, c.late ? s->result : o->gradients);
}

/* ---- the table ---- */

const ranks_method *ranks_method_find(bppsa_scan_algorithm algorithm) {
  static const ranks_method methods[BPPSA_SCAN_ALGORITHMS] = {
      [BPPSA_SCAN_LINEAR] = {.multiplies = multiplies_nothing, .execute = linear},
      [BPPSA_SCAN_CHUNKED] = {.multiplies = multiplies_between, .execute = chunked},
      [BPPSA_SCAN_BLELLOCH] = {.multiplies = multiplies_between, .prepare = prepare_blelloch, .execute = blelloch}};
  return (unsigned)algorithm < BPPSA_SCAN_ALGORITHMS && methods[algorithm].execute != NULL ? &methods[algorithm] : NULL;
}
