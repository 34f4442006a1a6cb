/* Arrays that tell the kernel of a convolution or linear operator on a GPU what to do, made on the host. jacobian_kernels.cuh
 * explains their use. */
#include "core/base/alloc.h"
#include "jacobian/jacobian_internal.h"

/* Sorts positions by class (counting sort). */
static bppsa_status sort_positions(const bppsa_jacobian *j, bppsa_jacobian_lists *a) {
  const bppsa_axis *h = &j->axes[0], *w = &j->axes[1];
  a->plane = h->in * w->in;
  a->classes = h->classes * w->classes;
  a->channels = j->groups * j->height;
  a->class_of = bppsa_calloc(a->plane, sizeof *a->class_of);
  a->class_end = bppsa_calloc(a->classes, sizeof *a->class_end);
  a->order = bppsa_calloc(a->plane, sizeof *a->order);
  if (a->class_of == NULL || a->class_end == NULL || a->order == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t x = 0; x < a->plane; ++x) {
    a->class_end[h->class_of[x / w->in] * w->classes + w->class_of[x % w->in]] += 1;
  }
  int32_t before = 0; /* class_end first holds where each class begins, then moves to its end */
  for (int64_t k = 0; k < a->classes; ++k) {
    const int32_t count = a->class_end[k];
    a->class_end[k] = before;
    before += count;
  }
  for (int64_t x = 0; x < a->plane; ++x) {
    const int64_t k = h->class_of[x / w->in] * w->classes + w->class_of[x % w->in];
    a->class_of[a->class_end[k]] = (int32_t)k;
    a->order[a->class_end[k]++] = x;
  }
  return BPPSA_OK;
}

/* Lists the taps of every class. */
static bppsa_status list_taps(const bppsa_jacobian *j, bppsa_jacobian_lists *a) {
  const bppsa_axis *h = &j->axes[0], *w = &j->axes[1];
  a->taps = bppsa_calloc(j->class_ptr[a->classes], sizeof *a->taps);
  if (a->taps == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  int32_t *to = a->taps;
  for (int64_t k = 0; k < a->classes; ++k) {
    const int64_t m0 = h->member[k / w->classes], m1 = w->member[k % w->classes];
    for (int64_t p = h->ptr[m0]; p < h->ptr[m0 + 1]; ++p) {
      for (int64_t q = w->ptr[m1]; q < w->ptr[m1 + 1]; ++q) {
        *to++ = (int32_t)(h->tap[p] * w->kernel + w->tap[q]);
      }
    }
  }
  return BPPSA_OK;
}

static bppsa_status plain_lists(const bppsa_jacobian *j, bppsa_jacobian_lists *a) {
  a->start_count = a->plane;
  a->list_count = a->classes;
  a->start = bppsa_calloc(a->plane, sizeof *a->start);
  a->list = bppsa_calloc(a->classes + 1, sizeof *a->list);
  if (a->start == NULL || a->list == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t p = 0; p < a->plane; ++p) {
    a->start[p] = j->positions.row_ptr[a->order[p]];
  }
  for (int64_t k = 0; k <= a->classes; ++k) {
    a->list[k] = j->class_ptr[k];
  }
  a->items = a->taps;
  a->taps = NULL;
  return BPPSA_OK;
}

/* Counts the kept weights of class k that belong to channel ci; with `fill` writes them at the list's cursor. */
static void list_kept(const bppsa_jacobian *j, bppsa_jacobian_lists *a, int64_t k, bool fill) {
  for (int64_t e = j->class_ptr[k]; e < j->class_ptr[k + 1]; ++e) {
    a->in_class[a->taps[e]] = 1;
  }
  for (int64_t ci = 0; ci < a->channels; ++ci) {
    int64_t *at = &a->cursor[ci * a->classes + k];
    for (int64_t p = j->kept_ptr[ci]; p < j->kept_ptr[ci + 1]; ++p) {
      const int64_t c = j->kept[p] / j->taps, t = j->kept[p] % j->taps;
      if (a->in_class[t] != 0 && fill) {
        a->items[*at] = (int32_t)(c * j->height * j->taps + t);
      }
      *at += a->in_class[t];
    }
  }
  for (int64_t e = j->class_ptr[k]; e < j->class_ptr[k + 1]; ++e) {
    a->in_class[a->taps[e]] = 0;
  }
}

static bppsa_status masked_lists(const bppsa_jacobian *j, bppsa_jacobian_lists *a) {
  const int64_t lists = a->channels * a->classes;
  if (j->width * j->height * j->taps > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "Jacobian on a GPU: a mask of %lld weights in a group, expected at most 2147483647",
                      (long long)(j->width * j->height * j->taps));
  }
  a->start_count = a->channels * a->plane;
  a->list_count = lists;
  a->start = bppsa_calloc(a->start_count, sizeof *a->start);
  a->list = bppsa_calloc(lists + 1, sizeof *a->list);
  a->cursor = bppsa_calloc(lists, sizeof *a->cursor);
  a->in_class = bppsa_calloc(j->taps, 1);
  if (a->start == NULL || a->list == NULL || a->cursor == NULL || a->in_class == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < a->start_count; ++i) {
    a->start[i] = j->pattern.row_ptr[i / a->plane * a->plane + a->order[i % a->plane]];
  }
  for (int64_t k = 0; k < a->classes; ++k) {
    list_kept(j, a, k, false);
  }
  for (int64_t i = 0; i < lists; ++i) {
    a->list[i + 1] = a->list[i] + a->cursor[i];
    a->cursor[i] = a->list[i];
  }
  a->items = bppsa_calloc(a->list[lists], sizeof *a->items);
  if (a->items == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t k = 0; k < a->classes; ++k) {
    list_kept(j, a, k, true);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_jacobian_lists_create(const bppsa_jacobian *j, bppsa_jacobian_lists *lists) {
  bppsa_jacobian_lists made = {0};
  bppsa_status status = sort_positions(j, &made);
  status = status == BPPSA_OK ? list_taps(j, &made) : status;
  status = status != BPPSA_OK ? status : j->kept != NULL ? masked_lists(j, &made) : plain_lists(j, &made);
  if (status != BPPSA_OK) {
    bppsa_jacobian_lists_free(&made);
    return status;
  }
  *lists = made;
  return BPPSA_OK;
}

void bppsa_jacobian_lists_free(bppsa_jacobian_lists *lists) {
  void *const blocks[] = {lists->class_of, lists->class_end, lists->items,  lists->taps,    lists->order,
                          lists->start,    lists->list,      lists->cursor, lists->in_class};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; ++i) {
    bppsa_free(blocks[i]);
  }
  *lists = (bppsa_jacobian_lists){0};
}
