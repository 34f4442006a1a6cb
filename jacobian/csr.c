#include "jacobian/csr.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/pool.h"
#include "jacobian/counted.h"

static bppsa_status check_shape(int64_t rows, int64_t cols, int64_t nnz) {
  if (rows < 0 || cols < 0 || nnz < 0 || rows > INT64_MAX / 16 || nnz > INT64_MAX / 16) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "sparse matrix: %lld x %lld with %lld entries, expected counts of 0 .. 2^59",
                      (long long)rows, (long long)cols, (long long)nnz);
  }
  if (cols > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "sparse matrix: %lld columns, expected at most 2147483647", (long long)cols);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_csr_create(int64_t rows, int64_t cols, int64_t nnz, bppsa_csr *csr) {
  BPPSA_REQUIRE(csr != NULL);
  BPPSA_TRY(check_shape(rows, cols, nnz));
  bppsa_csr made = {.rows = rows, .cols = cols, .nnz = nnz};
  made.row_ptr = bppsa_calloc(rows + 1, sizeof *made.row_ptr);
  made.col = bppsa_alloc((size_t)nnz * sizeof *made.col);
  if (made.row_ptr == NULL || made.col == NULL) {
    bppsa_csr_free(&made);
    return BPPSA_ERR_MEMORY;
  }
  *csr = made;
  return BPPSA_OK;
}

void bppsa_csr_free(bppsa_csr *csr) {
  if (csr == NULL) {
    return;
  }
  bppsa_free(csr->row_ptr);
  bppsa_free(csr->col);
  if (csr->ones != NULL) {
    bppsa_free(csr->ones->row_ptr);
    bppsa_free(csr->ones->col);
    bppsa_free(csr->ones);
  }
  if (csr->blocks != NULL) {
    bppsa_free(csr->blocks->positions.row_ptr);
    bppsa_free(csr->blocks->positions.col);
    bppsa_free(csr->blocks);
  }
  *csr = (bppsa_csr){0};
}

/* Gives *to the shape of *from and copies of row_ptr and columns where *from has them. */
static bppsa_status copy_arrays(const bppsa_csr *from, bppsa_csr *to) {
  *to = (bppsa_csr){.rows = from->rows, .cols = from->cols, .nnz = from->nnz, .identity = from->identity};
  if (from->row_ptr == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_csr_create(from->rows, from->cols, from->nnz, to));
  to->identity = from->identity;
  memcpy(to->row_ptr, from->row_ptr, (size_t)(from->rows + 1) * sizeof *to->row_ptr);
  memcpy(to->col, from->col, (size_t)from->nnz * sizeof *to->col);
  return BPPSA_OK;
}

bppsa_status bppsa_csr_copy(const bppsa_csr *from, bppsa_csr *to) {
  BPPSA_REQUIRE(from != NULL && to != NULL);
  bppsa_csr made;
  BPPSA_TRY(copy_arrays(from, &made));
  bppsa_status status = BPPSA_OK;
  if (from->blocks != NULL) {
    made.blocks = bppsa_calloc(1, sizeof *made.blocks);
    status = made.blocks == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
    if (status == BPPSA_OK) {
      *made.blocks = *from->blocks;
      made.blocks->positions = (bppsa_csr){0};
      status = copy_arrays(&from->blocks->positions, &made.blocks->positions);
    }
  }
  if (status == BPPSA_OK && from->ones != NULL) {
    made.ones = bppsa_calloc(1, sizeof *made.ones);
    status = made.ones == NULL ? BPPSA_ERR_MEMORY : copy_arrays(from->ones, made.ones);
  }
  if (status != BPPSA_OK) {
    bppsa_csr_free(&made);
    return status;
  }
  *to = made;
  return BPPSA_OK;
}

/* nnz = row_channels · col_channels / groups · nnz(S) */
static bppsa_status blocks_shape(const bppsa_csr_blocks *blocks, bppsa_csr *csr) {
  const int64_t r = blocks->row_channels, c = blocks->col_channels, g = blocks->groups;
  if (g < 1 || r < 0 || c < 0 || r % g != 0 || c % g != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "sparse matrix: %lld groups of %lld and %lld channels, expected a divisor of both",
                      (long long)g, (long long)r, (long long)c);
  }
  int64_t pairs;
  if (!bppsa_mul(r, blocks->positions.rows, &csr->rows) || !bppsa_mul(c, blocks->positions.cols, &csr->cols) ||
      !bppsa_mul(r, c / g, &pairs) || !bppsa_mul(pairs, blocks->positions.nnz, &csr->nnz)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "sparse matrix: %lld x %lld channels of %lld x %lld positions do not fit in 64 bits",
                      (long long)r, (long long)c, (long long)blocks->positions.rows, (long long)blocks->positions.cols);
  }
  return check_shape(csr->rows, csr->cols, csr->nnz);
}

bppsa_status bppsa_csr_from_blocks(int64_t groups, int64_t row_channels, int64_t col_channels, bppsa_csr *positions,
                                   bppsa_csr *csr) {
  BPPSA_REQUIRE(positions != NULL && csr != NULL);
  bppsa_csr made = {0};
  made.blocks = bppsa_calloc(1, sizeof *made.blocks);
  if (made.blocks == NULL) {
    bppsa_csr_free(positions);
    return BPPSA_ERR_MEMORY;
  }
  *made.blocks = (bppsa_csr_blocks){groups, row_channels, col_channels, *positions, 0, 0};
  *positions = (bppsa_csr){0};
  const bppsa_status status = blocks_shape(made.blocks, &made);
  if (status != BPPSA_OK) {
    bppsa_csr_free(&made);
    return status;
  }
  *csr = made;
  return BPPSA_OK;
}

typedef struct {
  const bppsa_csr_blocks *blocks;
  int64_t *row_ptr;
  int32_t *col;
} expansion;

/* Expands the rows of row channels first .. end - 1. */
static void expand_channels(const void *context, int32_t worker, int64_t first, int64_t end) {
  const expansion *e = context;
  const bppsa_csr_blocks *k = e->blocks;
  const bppsa_csr *s = &k->positions;
  const int64_t width = k->col_channels / k->groups, height = k->row_channels / k->groups;
  (void)worker;
  for (int64_t r = first; r < end; ++r) {
    const int64_t left = r / height * width;
    for (int64_t x = 0; x < s->rows; ++x) {
      const int64_t from = s->row_ptr[x], count = s->row_ptr[x + 1] - from;
      int32_t *to = e->col + width * (r * s->nnz + from);
      for (int64_t c = left; c < left + width; ++c) {
        for (int64_t i = 0; i < count; ++i) {
          *to++ = (int32_t)(k->first_col + c * s->cols) + s->col[from + i];
        }
      }
      e->row_ptr[k->first_row + r * s->rows + x + 1] = width * (r * s->nnz + from + count);
    }
  }
}

bppsa_status bppsa_csr_expand(bppsa_csr *csr, int32_t threads) {
  BPPSA_REQUIRE(csr != NULL);
  if (csr->row_ptr != NULL) {
    return BPPSA_OK;
  }
  bppsa_csr made;
  BPPSA_TRY(bppsa_csr_create(csr->rows, csr->cols, csr->nnz, &made));
  bppsa_parallel_for(threads, csr->blocks->row_channels, bppsa_loop_work(0, sizeof(int32_t) * (double)made.nnz), expand_channels,
                     &(expansion){csr->blocks, made.row_ptr, made.col});
  for (int64_t r = csr->blocks->first_row + csr->blocks->row_channels * csr->blocks->positions.rows; r < made.rows; ++r) {
    made.row_ptr[r + 1] = made.nnz;
  }
  csr->row_ptr = made.row_ptr;
  csr->col = made.col;
  return BPPSA_OK;
}

bppsa_status bppsa_csr_check(const bppsa_csr *csr) {
  BPPSA_REQUIRE(csr != NULL);
  BPPSA_TRY(check_shape(csr->rows, csr->cols, csr->nnz));
  if (csr->row_ptr[0] != 0 || csr->row_ptr[csr->rows] != csr->nnz) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "sparse matrix: offsets run from %lld to %lld, expected 0 to the %lld entries",
                      (long long)csr->row_ptr[0], (long long)csr->row_ptr[csr->rows], (long long)csr->nnz);
  }
  for (int64_t r = 0; r < csr->rows; ++r) {
    const int64_t from = csr->row_ptr[r], to = csr->row_ptr[r + 1];
    if (to < from || to > csr->nnz) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "sparse matrix: row %lld: offsets %lld to %lld, expected them to rise to %lld at most",
                        (long long)r, (long long)from, (long long)to, (long long)csr->nnz);
    }
    for (int64_t p = from; p < to; ++p) {
      if (csr->col[p] < 0 || csr->col[p] >= csr->cols || (p > from && csr->col[p] <= csr->col[p - 1])) {
        return bppsa_fail(BPPSA_ERR_FORMAT, "sparse matrix: row %lld: column %d, expected increasing ones from 0 to %lld",
                          (long long)r, (int)csr->col[p], (long long)csr->cols - 1);
      }
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_csr_add_ones(bppsa_csr *csr, int64_t count) {
  BPPSA_REQUIRE(csr != NULL && csr->ones == NULL);
  bppsa_csr *ones = bppsa_calloc(1, sizeof *ones);
  const bppsa_status status = ones == NULL ? BPPSA_ERR_MEMORY : bppsa_csr_create(csr->rows, csr->cols, count, ones);
  if (status != BPPSA_OK) {
    bppsa_free(ones);
    return status;
  }
  csr->ones = ones;
  return BPPSA_OK;
}

bool bppsa_csr_only_ones(const bppsa_csr *csr) {
  return csr->identity || (csr->ones != NULL && csr->nnz == 0);
}

static bool same_arrays(const bppsa_csr *a, const bppsa_csr *b) {
  return a->rows == b->rows && a->cols == b->cols && a->nnz == b->nnz &&
         memcmp(a->row_ptr, b->row_ptr, (size_t)(a->rows + 1) * sizeof *a->row_ptr) == 0 &&
         memcmp(a->col, b->col, (size_t)a->nnz * sizeof *a->col) == 0;
}

bool bppsa_csr_same(const bppsa_csr *a, const bppsa_csr *b) {
  const bool ones = (a->ones == NULL) == (b->ones == NULL) && (a->ones == NULL || same_arrays(a->ones, b->ones));
  return ones && same_arrays(a, b);
}

int64_t bppsa_csr_bytes(const bppsa_csr *csr, bppsa_dtype dtype) {
  return csr->nnz * (int64_t)(sizeof(int32_t) + bppsa_dtype_size(dtype)) + 4 * (csr->rows + 1);
}

bool bppsa_csr_is_full(const bppsa_csr *csr) {
  int64_t all;
  return csr->nnz > 0 && bppsa_mul(csr->rows, csr->cols, &all) && csr->nnz == all;
}

double bppsa_csr_sparsity(const bppsa_csr *csr) {
  const double all = (double)csr->rows * (double)csr->cols;
  return all > 0 ? 1 - (double)csr->nnz / all : 0;
}

bppsa_status bppsa_csr_compact(const bppsa_csr *csr, bppsa_dtype dtype, const void *values, bppsa_csr *compact,
                               void **compact_values) {
  BPPSA_REQUIRE(csr != NULL && compact != NULL && compact_values != NULL);
  BPPSA_REQUIRE((values != NULL || csr->nnz == 0) && csr->ones == NULL);
  const float *single = dtype == BPPSA_F32 ? values : NULL;
  const double *wide = values;
  const size_t size = bppsa_dtype_size(dtype);
  int64_t kept = 0;
  for (int64_t p = 0; p < csr->nnz; ++p) {
    kept += single != NULL ? single[p] != 0 : wide[p] != 0;
  }
  bppsa_csr made;
  BPPSA_TRY(bppsa_csr_create(csr->rows, csr->cols, kept, &made));
  char *to = bppsa_alloc((size_t)kept * size);
  if (to == NULL) {
    bppsa_csr_free(&made);
    return BPPSA_ERR_MEMORY;
  }
  int64_t at = 0;
  for (int64_t r = 0; r < csr->rows; ++r) {
    for (int64_t p = csr->row_ptr[r]; p < csr->row_ptr[r + 1]; ++p) {
      if (single != NULL ? single[p] != 0 : wide[p] != 0) {
        made.col[at] = csr->col[p];
        memcpy(to + (size_t)at++ * size, (const char *)values + (size_t)p * size, size);
      }
    }
    made.row_ptr[r + 1] = at;
  }
  *compact = made;
  *compact_values = to;
  return BPPSA_OK;
}

/* ---- y = A x ---- */

enum { ROWS = 256 }; /* rows of a task */

#define BPPSA_APPLY(real, suffix)                                                                                                \
  static void apply_rows_##suffix(const bppsa_csr *csr, int64_t from, int64_t to, const real *a, const real *x, real *y) {       \
    const bppsa_csr *ones = csr->ones;                                                                                           \
    for (int64_t r = from; r < to; ++r) {                                                                                        \
      real sum = 0;                                                                                                              \
      for (int64_t p = csr->row_ptr[r]; p < csr->row_ptr[r + 1]; ++p) {                                                          \
        sum += a[p] * x[csr->col[p]];                                                                                            \
        COUNT_MULTIPLY_ADD();                                                                                                    \
      }                                                                                                                          \
      for (int64_t p = ones != NULL ? ones->row_ptr[r] : 0, end = ones != NULL ? ones->row_ptr[r + 1] : 0; p < end; ++p) {       \
        sum += x[ones->col[p]];                                                                                                  \
      }                                                                                                                          \
      y[r] = sum;                                                                                                                \
    }                                                                                                                            \
  }
BPPSA_APPLY(float, f32)
BPPSA_APPLY(double, f64)

typedef struct {
  const bppsa_csr *csr;
  bppsa_dtype dtype;
  int64_t blocks; /* blocks of rows in a sample */
  bppsa_csr_values values;
  const void *x;
  void *y;
} application;

static void apply_blocks(const void *context, int32_t worker, int64_t first, int64_t end) {
  const application *t = context;
  const bppsa_csr *csr = t->csr;
  (void)worker;
  for (int64_t task = first; task < end; ++task) {
    const int64_t b = task / t->blocks, from = task % t->blocks * ROWS, to = from + ROWS < csr->rows ? from + ROWS : csr->rows;
    const char *values = t->values.data; /* NULL: there are ones alone */
    if (values != NULL) {
      values += b * t->values.stride * (int64_t)bppsa_dtype_size(t->dtype);
    }
    if (t->dtype == BPPSA_F32) {
      apply_rows_f32(csr, from, to, (const void *)values, (const float *)t->x + b * csr->cols, (float *)t->y + b * csr->rows);
    } else {
      apply_rows_f64(csr, from, to, (const void *)values, (const double *)t->x + b * csr->cols, (double *)t->y + b * csr->rows);
    }
  }
}

void bppsa_csr_apply(const bppsa_csr *csr, bppsa_dtype dtype, int32_t threads, int64_t batch, bppsa_csr_values values,
                     const void *x, void *y) {
  const application t = {csr, dtype, (csr->rows + ROWS - 1) / ROWS, values, x, y};
  const double entry = (double)(bppsa_dtype_size(dtype) + sizeof(int32_t)); /* bytes */
  bppsa_parallel_for(threads, t.blocks * batch, bppsa_loop_work(0, entry * (double)csr->nnz * (double)batch), apply_blocks, &t);
}
