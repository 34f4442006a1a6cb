#include "comm/ordered.h"

#include <inttypes.h>
#include <string.h>

#include "comm/comm_internal.h"
#include "core/cut.h"
#include "core/memory.h"

enum { MOST_LEVELS = 63 };

/* A vector of the tree, or one that is kept for its next use. */
typedef struct vector {
  struct vector *next;
  _Alignas(BPPSA_ALIGNMENT) char data[];
} vector;

struct bppsa_ordered_sum {
  bppsa_comm *comm; /* NULL: one rank */
  int32_t rank, tag;
  int64_t blocks, count, bytes;
  bppsa_dtype dtype;
  int32_t levels;                    /* the level of the root */
  int64_t first_of[MOST_LEVELS + 1]; /* index in `nodes` of each level's first node, size levels + 1 */
  int64_t width[MOST_LEVELS + 1];    /* number of nodes of each level, size levels + 1 */
  int32_t *owners;                   /* size blocks */
  bool *added;                       /* size blocks */
  vector **nodes; /* sums that this rank holds and has not yet added into a parent node; NULL for all other nodes */
  vector *spare;
  int64_t held, most_held;
};

/* ---- vectors ---- */

static bppsa_status take_vector(bppsa_ordered_sum *s, vector **taken) {
  vector *v = s->spare;
  if (v != NULL) {
    s->spare = v->next;
  } else if ((v = bppsa_alloc(sizeof *v + (size_t)s->bytes)) == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  s->held++;
  s->most_held = s->held > s->most_held ? s->held : s->most_held;
  *taken = v;
  return BPPSA_OK;
}

static void give_vector(bppsa_ordered_sum *s, vector **given) {
  (*given)->next = s->spare;
  s->spare = *given;
  *given = NULL;
  s->held--;
}

static bppsa_view view_of(const bppsa_ordered_sum *s, vector *v) {
  return bppsa_view_make(v->data, s->dtype, 1, &s->count);
}

/* ---- the tree ---- */

static vector **node(const bppsa_ordered_sum *s, int32_t level, int64_t k) {
  return &s->nodes[s->first_of[level] + k];
}

static int32_t owner(const bppsa_ordered_sum *s, int32_t level, int64_t k) {
  return s->owners[k << level];
}

/* Adds right to left and gives right's memory back. */
static void join(bppsa_ordered_sum *s, vector *left, vector **right) {
  bppsa_comm_reduce(BPPSA_COMM_SUM, s->dtype, s->count, (*right)->data, left->data);
  give_vector(s, right);
}

/* Adds the node into its parents, as long as this rank holds both halves. */
static void climb(bppsa_ordered_sum *s, int32_t level, int64_t k) {
  for (; level < s->levels; ++level, k /= 2) {
    const int64_t left = k & ~INT64_C(1), right = left + 1;
    vector **l = node(s, level, left);
    if (right < s->width[level]) {
      vector **r = node(s, level, right);
      if (*l == NULL || *r == NULL) {
        return;
      }
      join(s, *l, r);
    }
    *node(s, level + 1, k / 2) = *l;
    *l = NULL;
  }
}

/* Sends the right half of a node to the rank that holds the left half. */
static bppsa_status bring_together(bppsa_ordered_sum *s, int32_t level, int64_t left) {
  vector **r = node(s, level, left + 1);
  const int32_t to = owner(s, level, left), from = owner(s, level, left + 1);
  if (s->rank == from) {
    const bppsa_view view = view_of(s, *r);
    BPPSA_TRY(bppsa_comm_send(s->comm, to, s->tag, &view));
    give_vector(s, r);
  } else if (s->rank == to) {
    BPPSA_TRY(take_vector(s, r));
    const bppsa_view view = view_of(s, *r);
    BPPSA_TRY(bppsa_comm_recv(s->comm, from, s->tag, &view));
    climb(s, level, left);
  }
  return BPPSA_OK;
}

/* ---- the interface ---- */

static void lay_out(bppsa_ordered_sum *s) {
  int64_t first = 0, width = s->blocks;
  for (;; width = (width + 1) / 2) {
    s->first_of[s->levels] = first;
    s->width[s->levels] = width;
    first += width;
    if (width == 1) {
      return;
    }
    s->levels++;
  }
}

static bppsa_status check_request(const bppsa_comm *comm, int64_t blocks, const int32_t *owners, bppsa_dtype dtype, int64_t count,
                                  int32_t tag) {
  const int32_t size = comm != NULL ? bppsa_comm_size(comm) : 1;
  if (blocks < 1 || blocks > INT32_MAX || count < 0 || tag < 0 || tag > BPPSA_COMM_MAX_TAG) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "ordered sum of %" PRId64 " blocks of %" PRId64 " elements, tag %d: expected 1 .. 2^31 - 1, "
                      "at least 0, and a tag of 0 .. %d",
                      blocks, count, tag, BPPSA_COMM_MAX_TAG);
  }
  if (dtype != BPPSA_F32 && dtype != BPPSA_F64) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "ordered sum: dtype %s, expected f32 or f64", bppsa_dtype_name(dtype));
  }
  for (int64_t i = 0; owners != NULL && i < blocks; ++i) {
    if (owners[i] < 0 || owners[i] >= size) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "ordered sum: block %" PRId64 " on rank %d, expected 0 .. %d", i, owners[i],
                        size - 1);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_ordered_sum_create(bppsa_comm *comm, int64_t blocks, const int32_t *owners, bppsa_dtype dtype, int64_t count,
                                      int32_t tag, bppsa_ordered_sum **sum) {
  BPPSA_REQUIRE(sum != NULL);
  BPPSA_TRY(check_request(comm, blocks, owners, dtype, count, tag));
  int64_t bytes = 0;
  if (!bppsa_mul(count, (int64_t)bppsa_dtype_size(dtype), &bytes)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "ordered sum: %" PRId64 " elements do not fit in 64 bits", count);
  }
  bppsa_ordered_sum *s = bppsa_calloc(1, sizeof *s);
  if (s == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *s = (bppsa_ordered_sum){.comm = comm, .tag = tag, .blocks = blocks, .count = count, .bytes = bytes, .dtype = dtype};
  s->rank = comm != NULL ? bppsa_comm_rank(comm) : 0;
  lay_out(s);
  s->owners = bppsa_calloc(blocks, sizeof *s->owners);
  s->added = bppsa_calloc(blocks, sizeof *s->added);
  s->nodes = bppsa_calloc(s->first_of[s->levels] + 1, sizeof(vector *));
  if (s->owners == NULL || s->added == NULL || s->nodes == NULL) {
    bppsa_ordered_sum_destroy(s);
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < blocks; ++i) {
    s->owners[i] = owners != NULL ? owners[i] : comm != NULL ? (int32_t)bppsa_cut_part(blocks, bppsa_comm_size(comm), i) : 0;
  }
  *sum = s;
  return BPPSA_OK;
}

void bppsa_ordered_sum_destroy(bppsa_ordered_sum *s) {
  if (s == NULL) {
    return;
  }
  for (int64_t i = 0; s->nodes != NULL && i <= s->first_of[s->levels]; ++i) {
    bppsa_free(s->nodes[i]);
  }
  while (s->spare != NULL) {
    vector *v = s->spare;
    s->spare = v->next;
    bppsa_free(v);
  }
  bppsa_free(s->nodes);
  bppsa_free(s->added);
  bppsa_free(s->owners);
  bppsa_free(s);
}

static bppsa_status check_vector(const bppsa_ordered_sum *s, const bppsa_view *view) {
  if (view->dtype != s->dtype || bppsa_view_count(view) != s->count || !bppsa_view_contiguous(view)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "ordered sum: %" PRId64 " elements of %s, expected %" PRId64 " of %s, contiguous",
                      bppsa_view_count(view), bppsa_dtype_name(view->dtype), s->count, bppsa_dtype_name(s->dtype));
  }
  return BPPSA_OK;
}

/* The device that holds a view's memory; NULL: the host. */
static const bppsa_device *device_of(const bppsa_ordered_sum *s, const bppsa_view *view) {
  return view->device == BPPSA_CUDA && s->comm != NULL ? s->comm->endpoint->device : NULL;
}

bppsa_status bppsa_ordered_sum_add(bppsa_ordered_sum *s, int64_t block, const bppsa_view *view) {
  BPPSA_REQUIRE(s != NULL && view != NULL);
  if (block < 0 || block >= s->blocks || s->owners[block] != s->rank || s->added[block]) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "ordered sum: block %" PRId64 " of %" PRId64 " on rank %d: %s", block, s->blocks,
                      s->rank,
                      block < 0 || block >= s->blocks ? "no such block"
                      : s->owners[block] != s->rank   ? "it belongs to another rank"
                                                      : "it was added before");
  }
  BPPSA_TRY(check_vector(s, view));
  vector *v = NULL;
  BPPSA_TRY(take_vector(s, &v));
  const bppsa_status status = bppsa_memory_get(device_of(s, view), v->data, view->data, s->bytes);
  if (status != BPPSA_OK) {
    give_vector(s, &v);
    return status;
  }
  s->added[block] = true;
  *node(s, 0, block) = v;
  climb(s, 0, block);
  return BPPSA_OK;
}

bppsa_status bppsa_ordered_sum_finish(bppsa_ordered_sum *s, const bppsa_view *result) {
  BPPSA_REQUIRE(s != NULL && result != NULL);
  BPPSA_TRY(check_vector(s, result));
  for (int64_t i = 0; i < s->blocks; ++i) {
    if (s->owners[i] == s->rank && !s->added[i]) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "ordered sum: block %" PRId64 " of rank %d was not added", i, s->rank);
    }
  }
  /* All ranks handle the messages in the same order, so no two ranks wait for each other. */
  for (int32_t level = 0; level < s->levels; ++level) {
    for (int64_t left = 0; left + 1 < s->width[level]; left += 2) {
      if (owner(s, level, left) != owner(s, level, left + 1)) {
        BPPSA_TRY(bring_together(s, level, left));
      }
    }
  }
  vector **root = node(s, s->levels, 0);
  if (*root != NULL) {
    BPPSA_TRY(bppsa_memory_put(device_of(s, result), result->data, (*root)->data, s->bytes));
    give_vector(s, root);
  }
  if (s->comm != NULL) {
    BPPSA_TRY(bppsa_comm_broadcast(s->comm, s->owners[0], result));
  }
  memset(s->added, 0, (size_t)s->blocks * sizeof *s->added);
  return BPPSA_OK;
}

int64_t bppsa_ordered_sum_vectors(const bppsa_ordered_sum *s) {
  return s->held;
}

int64_t bppsa_ordered_sum_most_vectors(const bppsa_ordered_sum *s) {
  return s->most_held;
}
