#include "cnn/merge.h"

#include "core/base/alloc.h"

/* Goes through row r of both patterns in the order of columns, and returns the number of entries of the merged row; with `to` they
 * are written from entry `at` on. */
static int64_t merge_row(const bppsa_csr *csr, int64_t r, int64_t at, bppsa_csr_merged *to) {
  const bppsa_csr *ones = csr->ones;
  int64_t own = csr->row_ptr[r], one = ones->row_ptr[r], count = 0;
  while (own < csr->row_ptr[r + 1] || one < ones->row_ptr[r + 1]) {
    const bool has_own = own < csr->row_ptr[r + 1], has_one = one < ones->row_ptr[r + 1];
    const int32_t col = !has_one || (has_own && csr->col[own] < ones->col[one]) ? csr->col[own] : ones->col[one];
    if (to != NULL) {
      to->pattern.col[at + count] = col;
    }
    if (has_own && csr->col[own] == col) {
      if (to != NULL) {
        to->places[own] = at + count;
      }
      ++own;
    }
    for (; one < ones->row_ptr[r + 1] && ones->col[one] == col; ++one) { /* a tensor may be added to itself */
      if (to != NULL) {
        ++to->constant[at + count];
      }
    }
    ++count;
  }
  return count;
}

bppsa_status bppsa_csr_merge_ones(const bppsa_csr *csr, bppsa_csr_merged *merged) {
  BPPSA_REQUIRE(csr != NULL && csr->row_ptr != NULL && csr->ones != NULL && merged != NULL);
  bppsa_csr_merged made = {.places = bppsa_calloc(csr->nnz, sizeof *made.places)};
  int64_t count = 0;
  for (int64_t r = 0; r < csr->rows; ++r) {
    count += merge_row(csr, r, 0, NULL);
  }
  made.constant = bppsa_calloc(count, 1);
  bppsa_status status = made.places == NULL || made.constant == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  status = status == BPPSA_OK ? bppsa_csr_create(csr->rows, csr->cols, count, &made.pattern) : status;
  if (status != BPPSA_OK) {
    bppsa_csr_merged_free(&made);
    return status;
  }
  for (int64_t r = 0; r < csr->rows; ++r) {
    made.pattern.row_ptr[r + 1] = made.pattern.row_ptr[r] + merge_row(csr, r, made.pattern.row_ptr[r], &made);
  }
  *merged = made;
  return BPPSA_OK;
}

void bppsa_csr_merged_free(bppsa_csr_merged *merged) {
  bppsa_csr_free(&merged->pattern);
  bppsa_free(merged->places);
  bppsa_free(merged->constant);
  *merged = (bppsa_csr_merged){0};
}
