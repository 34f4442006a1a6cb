#include "comm/ordered.h"

#include <inttypes.h>
#include <string.h>

#include "comm/comm_internal.h"
#include "core/base/cut.h"
#include "core/compute/accumulate.h"
#include "core/compute/memory.h"

enum { MOST_LEVELS = 63 };

/* A vector of the tree, or one that is kept for its next use. */
typedef struct vector {
  struct vector *next;
  void *data; /* `memory`, or GPU memory */
  _Alignas(BPPSA_ALIGNMENT) char memory[];
} vector;

struct bppsa_ordered_sum {
  bppsa_comm *comm;           /* NULL: one rank */
  const bppsa_device *device; /* where the vectors are; NULL: on the host */
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
  /* How far the reduction is: the left node of the next pair, and the message of the present pair. */
  bool reducing;
  int32_t level;
  int64_t left;
  bppsa_comm_request *request;
};

/* ---- vectors ---- */

static bppsa_status make_vector(const bppsa_ordered_sum *s, vector **made) {
  vector *v = bppsa_alloc(sizeof *v + (s->device == NULL ? (size_t)s->bytes : 0));
  if (v == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  v->data = v->memory;
  const bppsa_status status = s->device != NULL ? bppsa_memory_alloc(s->device, s->bytes, &v->data) : BPPSA_OK;
  if (status != BPPSA_OK) {
    bppsa_free(v);
    return status;
  }
  *made = v;
  return BPPSA_OK;
}

static void free_vector(const bppsa_ordered_sum *s, vector *v) {
  if (v != NULL && s->device != NULL) {
    bppsa_memory_free(s->device, v->data);
  }
  bppsa_free(v);
}

static bppsa_status take_vector(bppsa_ordered_sum *s, vector **taken) {
  vector *v = s->spare;
  if (v != NULL) {
    s->spare = v->next;
  } else {
    BPPSA_TRY(make_vector(s, &v));
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
  bppsa_view view = bppsa_view_make(v->data, s->dtype, 1, &s->count);
  view.device = s->device != NULL ? BPPSA_CUDA : BPPSA_CPU;
  return view;
}

/* Copies a vector between memories; a device of NULL is the host. Within a GPU's memory the copy is queued. */
static bppsa_status copy_vector(const bppsa_ordered_sum *s, const bppsa_device *to_device, void *to,
                                const bppsa_device *from_device, const void *from) {
  return from_device == NULL ? bppsa_memory_put(to_device, to, from, s->bytes)
         : to_device == NULL ? bppsa_memory_get(from_device, to, from, s->bytes)
                             : bppsa_memory_queue_copy(to_device, to, s->bytes, from, s->bytes, s->bytes, 1);
}

/* ---- the tree ---- */

static vector **node(const bppsa_ordered_sum *s, int32_t level, int64_t k) {
  return &s->nodes[s->first_of[level] + k];
}

static int32_t owner(const bppsa_ordered_sum *s, int32_t level, int64_t k) {
  return s->owners[k << level];
}

/* Adds right to left and gives right's memory back. */
static bppsa_status join(bppsa_ordered_sum *s, vector *left, vector **right) {
  if (s->device != NULL) {
    BPPSA_TRY(bppsa_accumulate(s->device, s->dtype, s->count, (*right)->data, left->data));
  } else {
    bppsa_comm_reduce(BPPSA_COMM_SUM, s->dtype, s->count, (*right)->data, left->data);
  }
  give_vector(s, right);
  return BPPSA_OK;
}

/* Adds the node into its parents, as long as this rank holds both halves. */
static bppsa_status climb(bppsa_ordered_sum *s, int32_t level, int64_t k) {
  for (; level < s->levels; ++level, k /= 2) {
    const int64_t left = k & ~INT64_C(1), right = left + 1;
    vector **l = node(s, level, left);
    if (right < s->width[level]) {
      vector **r = node(s, level, right);
      if (*l == NULL || *r == NULL) {
        return BPPSA_OK;
      }
      BPPSA_TRY(join(s, *l, r));
    }
    *node(s, level + 1, k / 2) = *l;
    *l = NULL;
  }
  return BPPSA_OK;
}

/* ---- messages ---- */

/* Moves on to the next pair of nodes of which this rank holds exactly one; false: there is none. All ranks go through the pairs in
 * the same order, so no two of them wait for each other. */
static bool find_pair(bppsa_ordered_sum *s) {
  for (; s->level < s->levels; ++s->level, s->left = 0) {
    for (; s->left + 1 < s->width[s->level]; s->left += 2) {
      const int32_t to = owner(s, s->level, s->left), from = owner(s, s->level, s->left + 1);
      if (to != from && (s->rank == to || s->rank == from)) {
        return true;
      }
    }
  }
  return false;
}

/* Begins the message that carries the right half of the present pair to the rank of the left half. */
static bppsa_status begin_pair(bppsa_ordered_sum *s) {
  vector **r = node(s, s->level, s->left + 1);
  const int32_t to = owner(s, s->level, s->left), from = owner(s, s->level, s->left + 1);
  if (s->rank == to) {
    BPPSA_TRY(take_vector(s, r));
  }
  const bppsa_view view = view_of(s, *r);
  return s->rank == to ? bppsa_comm_irecv(s->comm, from, s->tag, &view, &s->request)
                       : bppsa_comm_isend(s->comm, to, s->tag, &view, &s->request);
}

/* Takes what the finished message of the present pair brought, or frees what it carried away. */
static bppsa_status end_pair(bppsa_ordered_sum *s) {
  if (s->rank == owner(s, s->level, s->left)) {
    BPPSA_TRY(climb(s, s->level, s->left));
  } else {
    give_vector(s, node(s, s->level, s->left + 1));
  }
  s->left += 2;
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
  bppsa_comm_cancel(1, &s->request);
  for (int64_t i = 0; s->nodes != NULL && i <= s->first_of[s->levels]; ++i) {
    free_vector(s, s->nodes[i]);
  }
  while (s->spare != NULL) {
    vector *v = s->spare;
    s->spare = v->next;
    free_vector(s, v);
  }
  bppsa_free(s->nodes);
  bppsa_free(s->added);
  bppsa_free(s->owners);
  bppsa_free(s);
}

void bppsa_ordered_sum_set_device(bppsa_ordered_sum *sum, const bppsa_device *device) {
  sum->device = device;
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
  return view->device == BPPSA_CPU ? NULL : s->device != NULL ? s->device : s->comm != NULL ? s->comm->endpoint->device : NULL;
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
  const bppsa_status status = copy_vector(s, s->device, v->data, device_of(s, view), view->data);
  if (status != BPPSA_OK) {
    give_vector(s, &v);
    return status;
  }
  s->added[block] = true;
  *node(s, 0, block) = v;
  return climb(s, 0, block);
}

static bppsa_status check_added(const bppsa_ordered_sum *s) {
  for (int64_t i = 0; i < s->blocks; ++i) {
    if (s->owners[i] == s->rank && !s->added[i]) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "ordered sum: block %" PRId64 " of rank %d was not added", i, s->rank);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_ordered_sum_reduce(bppsa_ordered_sum *s, bool wait, bool *done) {
  BPPSA_REQUIRE(s != NULL && done != NULL);
  if (!s->reducing) {
    BPPSA_TRY(check_added(s));
    s->reducing = true;
    s->level = 0;
    s->left = 0;
  }
  bool here = true; /* is the present message done? */
  while (s->request != NULL || find_pair(s)) {
    if (s->request == NULL) {
      BPPSA_TRY(begin_pair(s));
    }
    BPPSA_TRY(wait ? bppsa_comm_wait(&s->request) : bppsa_comm_test(&s->request, &here));
    if (!here) {
      break;
    }
    BPPSA_TRY(end_pair(s));
  }
  *done = here;
  return BPPSA_OK;
}

const bppsa_comm_request *bppsa_ordered_sum_pending(const bppsa_ordered_sum *s) {
  return s->request;
}

bppsa_status bppsa_ordered_sum_ibroadcast(bppsa_ordered_sum *s, const bppsa_view *result, bppsa_comm_request **request) {
  BPPSA_REQUIRE(s != NULL && result != NULL && request != NULL);
  BPPSA_TRY(check_vector(s, result));
  if (!s->reducing || s->request != NULL || find_pair(s)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "ordered sum: a broadcast before its reduction is done, expected it afterwards");
  }
  vector **root = node(s, s->levels, 0);
  if (*root != NULL) {
    BPPSA_TRY(copy_vector(s, device_of(s, result), result->data, s->device, (*root)->data));
    give_vector(s, root);
  }
  *request = NULL;
  if (s->comm != NULL) {
    BPPSA_TRY(bppsa_comm_ibroadcast(s->comm, s->owners[0], result, request));
  }
  memset(s->added, 0, (size_t)s->blocks * sizeof *s->added);
  s->reducing = false;
  return BPPSA_OK;
}

bppsa_status bppsa_ordered_sum_finish(bppsa_ordered_sum *s, const bppsa_view *result) {
  BPPSA_REQUIRE(s != NULL && result != NULL);
  bool done = false;
  bppsa_comm_request *request = NULL;
  BPPSA_TRY(check_vector(s, result));
  BPPSA_TRY(bppsa_ordered_sum_reduce(s, true, &done));
  BPPSA_TRY(bppsa_ordered_sum_ibroadcast(s, result, &request));
  return bppsa_comm_wait(&request);
}

int64_t bppsa_ordered_sum_vectors(const bppsa_ordered_sum *s) {
  return s->held;
}

int64_t bppsa_ordered_sum_most_vectors(const bppsa_ordered_sum *s) {
  return s->most_held;
}
