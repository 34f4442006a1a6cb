/* The pattern of C = A B by Gustavson's algorithm: row i of C is the union of those rows k of B for which A has an entry a_ik.
 *
 * The columns of a row are marked as bits and read in order. A row with few pairs among many columns is sorted instead, so that
 * the work never grows with rows times columns.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/pool.h"
#include "jacobian/product_internal.h"

#define MOST_MARKED ((int64_t)1 << 24) /* columns that can be marked; with more columns all rows are sorted */

/* Memory that a thread needs for a row. */
typedef struct {
  uint64_t *bits;    /* a bit for each column, all 0 between rows; NULL: every row is sorted */
  int32_t *position; /* of each marked column in the row of C */
  int32_t *columns;  /* of one row: sorted pairs, then the distinct ones */
} workspace;

static int64_t row_pairs(const bppsa_csr *a, const bppsa_csr *b, int64_t row) {
  int64_t pairs = 0;
  for (int64_t p = a->row_ptr[row]; p < a->row_ptr[row + 1]; ++p) {
    pairs += b->row_ptr[a->col[p] + 1] - b->row_ptr[a->col[p]];
  }
  return pairs;
}

bppsa_status bppsa_product_count_pairs(const bppsa_csr *a, const bppsa_csr *b, int64_t *pairs) {
  int64_t sum = 0;
  for (int64_t p = 0; p < a->nnz; ++p) {
    const int64_t count = b->row_ptr[a->col[p] + 1] - b->row_ptr[a->col[p]];
    if (sum > INT64_MAX / 16 - count) {
      return bppsa_fail(BPPSA_ERR_MEMORY, "product: more than 2^59 matching pairs");
    }
    sum += count;
  }
  *pairs = sum;
  return BPPSA_OK;
}

static void free_workspaces(workspace *spaces, int32_t threads) {
  for (int32_t t = 0; spaces != NULL && t < threads; ++t) {
    bppsa_free(spaces[t].bits);
    bppsa_free(spaces[t].position);
    bppsa_free(spaces[t].columns);
  }
  bppsa_free(spaces);
}

/* *work: that of a loop over all rows, for bppsa_parallel_for. */
static workspace *make_workspaces(const bppsa_csr *a, const bppsa_csr *b, int32_t threads, double *work) {
  int64_t most = 0;
  double all = 0;
  for (int64_t r = 0; r < a->rows; ++r) {
    const int64_t pairs = row_pairs(a, b, r);
    most = pairs > most ? pairs : most;
    all += (double)pairs;
  }
  *work = bppsa_loop_work(0, 4 * sizeof(int32_t) * all);
  const bool marked = b->cols <= MOST_MARKED;
  const int64_t listed =
      !marked || most < b->cols ? most : b->cols; /* a marked row holds distinct columns, a sorted one few pairs */
  workspace *spaces = bppsa_calloc(threads, sizeof *spaces);
  for (int32_t t = 0; spaces != NULL && t < threads; ++t) {
    spaces[t].columns = bppsa_calloc(listed + 1, sizeof(int32_t));
    spaces[t].bits = marked ? bppsa_calloc(b->cols / 64 + 1, sizeof(uint64_t)) : NULL;
    spaces[t].position = marked ? bppsa_calloc(b->cols, sizeof(int32_t)) : NULL;
    if (spaces[t].columns == NULL || (marked && (spaces[t].bits == NULL || spaces[t].position == NULL))) {
      free_workspaces(spaces, threads);
      return NULL;
    }
  }
  return spaces;
}

static int compare_columns(const void *x, const void *y) {
  const int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
  return (a > b) - (a < b);
}

static int64_t collect_sorted(const bppsa_csr *a, const bppsa_csr *b, int64_t row, int32_t *columns) {
  int64_t count = 0, distinct = 0;
  for (int64_t p = a->row_ptr[row]; p < a->row_ptr[row + 1]; ++p) {
    const int64_t from = b->row_ptr[a->col[p]], to = b->row_ptr[a->col[p] + 1];
    memcpy(columns + count, b->col + from, (size_t)(to - from) * sizeof *columns);
    count += to - from;
  }
  qsort(columns, (size_t)count, sizeof *columns, compare_columns);
  for (int64_t i = 0; i < count; ++i) {
    if (i == 0 || columns[i] != columns[i - 1]) {
      columns[distinct++] = columns[i];
    }
  }
  return distinct;
}

static int64_t collect_marked(const bppsa_csr *a, const bppsa_csr *b, int64_t row, const workspace *w) {
  int64_t least = b->cols / 64, most = -1, distinct = 0;
  for (int64_t p = a->row_ptr[row]; p < a->row_ptr[row + 1]; ++p) {
    const int64_t from = b->row_ptr[a->col[p]], to = b->row_ptr[a->col[p] + 1];
    for (int64_t q = from; q < to; ++q) {
      w->bits[b->col[q] >> 6] |= (uint64_t)1 << (b->col[q] & 63);
    }
    if (to > from) {
      least = b->col[from] >> 6 < least ? b->col[from] >> 6 : least;
      most = b->col[to - 1] >> 6 > most ? b->col[to - 1] >> 6 : most;
    }
  }
  for (int64_t word = least; word <= most; ++word) {
    for (uint64_t bits = w->bits[word]; bits != 0; bits &= bits - 1) {
      const int32_t column = (int32_t)(64 * word + __builtin_ctzll(bits));
      w->position[column] = (int32_t)distinct;
      w->columns[distinct++] = column;
    }
    w->bits[word] = 0;
  }
  return distinct;
}

/* Collects the columns of one row of C, in order. *sorted: the row was sorted and has no positions. */
static int64_t collect(const bppsa_csr *a, const bppsa_csr *b, int64_t row, const workspace *w, bool *sorted) {
  *sorted = w->bits == NULL || row_pairs(a, b, row) * 16 < b->cols / 64;
  return *sorted ? collect_sorted(a, b, row, w->columns) : collect_marked(a, b, row, w);
}

typedef struct {
  const bppsa_csr *a, *b;
  const workspace *spaces;
  int64_t *row_ptr;
} counting;

static void count_rows(const void *context, int32_t worker, int64_t first, int64_t end) {
  const counting *c = context;
  for (int64_t r = first; r < end; ++r) {
    bool sorted;
    c->row_ptr[r + 1] = collect(c->a, c->b, r, &c->spaces[worker], &sorted);
  }
}

bppsa_status bppsa_product_count_rows(const bppsa_csr *a, const bppsa_csr *b, int32_t threads, int64_t *row_ptr) {
  double work;
  workspace *spaces = make_workspaces(a, b, threads, &work);
  if (spaces == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_parallel_for(threads, a->rows, work, count_rows, &(counting){a, b, spaces, row_ptr});
  free_workspaces(spaces, threads);
  row_ptr[0] = 0;
  for (int64_t r = 0; r < a->rows; ++r) {
    row_ptr[r + 1] += row_ptr[r];
  }
  return BPPSA_OK;
}

/* The place of a column among `count` sorted ones that contain it. */
static int32_t find(const int32_t *columns, int64_t count, int32_t column) {
  int64_t low = 0, high = count - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (columns[middle] < column) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return (int32_t)low;
}

static int64_t fill_row(bppsa_product *p, int64_t row, const workspace *w, int64_t pair, bool slots) {
  bool sorted;
  const int64_t count = collect(p->a, p->b, row, w, &sorted);
  memcpy(p->pattern.col + p->pattern.row_ptr[row], w->columns, (size_t)count * sizeof(int32_t));
  for (int64_t i = p->a->row_ptr[row]; slots && i < p->a->row_ptr[row + 1]; ++i) {
    const int64_t k = p->a->col[i];
    for (int64_t q = p->b->row_ptr[k]; q < p->b->row_ptr[k + 1]; ++q, ++pair) {
      const int32_t column = p->b->col[q], slot = sorted ? find(w->columns, count, column) : w->position[column];
      if (p->slots16 != NULL) {
        p->slots16[pair] = (uint16_t)slot;
      } else {
        p->slots32[pair] = slot;
      }
    }
  }
  return pair;
}

typedef struct {
  bppsa_product *p;
  const workspace *spaces;
  bool slots;
} filling;

static void fill_tasks(const void *context, int32_t worker, int64_t first, int64_t end) {
  const filling *f = context;
  for (const product_task *t = &f->p->tasks[first]; t < &f->p->tasks[end]; ++t) {
    int64_t pair = t->pair;
    for (int64_t r = t->row; r < t->row + t->rows; ++r) {
      pair = fill_row(f->p, r, &f->spaces[worker], pair, f->slots);
    }
  }
}

bppsa_status bppsa_product_fill_rows(bppsa_product *p, bool slots) {
  double work;
  workspace *spaces = make_workspaces(p->a, p->b, p->threads, &work);
  if (spaces == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_parallel_for(p->threads, p->task_count, work, fill_tasks, &(filling){p, spaces, slots});
  free_workspaces(spaces, p->threads);
  return BPPSA_OK;
}

bppsa_status bppsa_product_cut(bppsa_product *p) {
  enum { TASKS = 256 };
  const int64_t rows = p->a->rows, goal = (p->pairs + rows) / TASKS + 1;
  p->tasks = bppsa_calloc(TASKS + 1, sizeof *p->tasks);
  if (p->tasks == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  int64_t pairs = 0, before = 0, from = 0;
  for (int64_t r = 0; r < rows; ++r) {
    pairs += row_pairs(p->a, p->b, r);
    if (pairs - before + (r + 1 - from) >= goal || r + 1 == rows) {
      p->tasks[p->task_count++] = (product_task){from, r + 1 - from, before};
      from = r + 1;
      before = pairs;
    }
  }
  return BPPSA_OK;
}
