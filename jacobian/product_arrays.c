/* Arrays of a plan that outlive it: given out to be kept, and taken back after a look at every entry. */
#include <string.h>

#include "core/alloc.h"
#include "jacobian/product_internal.h"

void bppsa_product_get_arrays(const bppsa_product *p, bppsa_product_arrays *arrays) {
  *arrays = (bppsa_product_arrays){0};
  if (p->slots16 == NULL && p->slots32 == NULL) {
    return;
  }
  arrays->row_ptr = bppsa_view_make(p->pattern.row_ptr, BPPSA_I64, 1, (int64_t[]){p->pattern.rows + 1});
  arrays->col = bppsa_view_make(p->pattern.col, BPPSA_I32, 1, &p->pattern.nnz);
  arrays->slots = p->slots16 != NULL ? bppsa_view_make(p->slots16, BPPSA_U16, 1, &p->pairs)
                                     : bppsa_view_make(p->slots32, BPPSA_I32, 1, &p->pairs);
}

static bppsa_status fail(const bppsa_product *p) {
  return bppsa_fail(BPPSA_ERR_FORMAT, "product: the arrays kept of another plan do not fit %lld x %lld times %lld x %lld",
                    (long long)p->a->rows, (long long)p->a->cols, (long long)p->b->rows, (long long)p->b->cols);
}

static bool fits(const bppsa_view *view, bppsa_dtype dtype, int64_t count) {
  return view->dtype == dtype && view->ndim == 1 && view->shape[0] == count && bppsa_view_contiguous(view);
}

bppsa_status bppsa_product_take_rows(bppsa_product *p) {
  const bppsa_view *known = &p->config.known->row_ptr;
  const int64_t *row_ptr = known->data, rows = p->pattern.rows;
  bool good = fits(known, BPPSA_I64, rows + 1) && row_ptr[0] == 0;
  for (int64_t r = 0; good && r < rows; ++r) {
    good = row_ptr[r + 1] >= row_ptr[r] && row_ptr[r + 1] - row_ptr[r] <= p->pattern.cols;
  }
  if (!good) {
    return fail(p);
  }
  memcpy(p->pattern.row_ptr, row_ptr, (size_t)(rows + 1) * sizeof *row_ptr);
  return BPPSA_OK;
}

/* Row r: columns in order and in range, and every pair's slot is where its column stands. */
static bool right_row(const bppsa_product *p, int64_t r, int64_t pair) {
  const bppsa_csr *a = p->a, *b = p->b;
  const int64_t from = p->pattern.row_ptr[r], count = p->pattern.row_ptr[r + 1] - from;
  const int32_t *col = p->pattern.col + from;
  bool right = true;
  for (int64_t i = 0; i < count; ++i) {
    right = right && col[i] >= 0 && col[i] < p->pattern.cols && (i == 0 || col[i] > col[i - 1]);
  }
  for (int64_t i = a->row_ptr[r]; right && i < a->row_ptr[r + 1]; ++i) {
    for (int64_t q = b->row_ptr[a->col[i]]; right && q < b->row_ptr[a->col[i] + 1]; ++q, ++pair) {
      const int64_t slot = p->slots16 != NULL ? p->slots16[pair] : p->slots32[pair];
      right = slot >= 0 && slot < count && col[slot] == b->col[q];
    }
  }
  return right;
}

static int64_t pairs_of(const bppsa_product *p, int64_t r) {
  int64_t pairs = 0;
  for (int64_t i = p->a->row_ptr[r]; i < p->a->row_ptr[r + 1]; ++i) {
    pairs += p->b->row_ptr[p->a->col[i] + 1] - p->b->row_ptr[p->a->col[i]];
  }
  return pairs;
}

bppsa_status bppsa_product_take_slots(bppsa_product *p, bool columns) {
  const bppsa_product_arrays *known = p->config.known;
  if (!fits(&known->slots, p->slots16 != NULL ? BPPSA_U16 : BPPSA_I32, p->pairs) ||
      (columns && !fits(&known->col, BPPSA_I32, p->pattern.nnz))) {
    return fail(p);
  }
  if (columns && p->pattern.nnz > 0) {
    memcpy(p->pattern.col, known->col.data, (size_t)p->pattern.nnz * sizeof *p->pattern.col);
  }
  if (p->pairs > 0) {
    memcpy(p->slots16 != NULL ? (void *)p->slots16 : p->slots32, known->slots.data,
           (size_t)p->pairs * bppsa_dtype_size(known->slots.dtype));
  }
  int wrong = 0;
#pragma omp parallel for num_threads(p->threads) schedule(dynamic) reduction(| : wrong)
  for (int64_t t = 0; t < p->task_count; ++t) {
    int64_t pair = p->tasks[t].pair;
    for (int64_t r = p->tasks[t].row; r < p->tasks[t].row + p->tasks[t].rows; ++r) {
      wrong |= !right_row(p, r, pair);
      pair += pairs_of(p, r);
    }
  }
  return wrong ? fail(p) : BPPSA_OK;
}
