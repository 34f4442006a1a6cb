/* Products of patterns with channel structure.
 *
 * As patterns (K_A ⊗ S_A)(K_B ⊗ S_B) = K_A K_B ⊗ S_A S_B. K_A K_B is block diagonal with the smaller number of groups if one
 * number of groups divides the other. Numerically, for a position x of S_A, one of its columns y and a run of columns z in row y of
 * S_B,
 *
 *     C[r, x][c, z] += Σ_m A[r, x][m, y] · B[m, y][c, z]
 *
 * is a GEMM over the channels r, m and c. Offsets describe its operands, so no index is stored for a multiply-add.
 */
#include <string.h>

#include "core/base/alloc.h"
#include "jacobian/product_internal.h"

/* ---- patterns ---- */

static int64_t least_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static bool fit(const bppsa_csr_blocks *x, const bppsa_csr_blocks *y) {
  return x->col_channels == y->row_channels && x->positions.cols == y->positions.rows &&
         (x->groups % y->groups == 0 || y->groups % x->groups == 0);
}

bppsa_status bppsa_product_blocks(const bppsa_csr *a, const bppsa_csr *b, bppsa_csr *c, int64_t *pairs, bool *known) {
  const bppsa_csr_blocks *x = a->blocks, *y = b->blocks;
  *known = x != NULL && y != NULL && fit(x, y);
  if (!*known) {
    return BPPSA_OK;
  }
  bppsa_csr s;
  int64_t *row_ptr = bppsa_calloc(x->positions.rows + 1, sizeof *row_ptr), channels;
  bppsa_status status = row_ptr == NULL ? BPPSA_ERR_MEMORY : bppsa_product_count_rows(&x->positions, &y->positions, 1, row_ptr);
  if (status == BPPSA_OK) {
    status = bppsa_csr_create(x->positions.rows, y->positions.cols, row_ptr[x->positions.rows], &s);
  }
  if (status != BPPSA_OK) {
    bppsa_free(row_ptr);
    return status;
  }
  memcpy(s.row_ptr, row_ptr, (size_t)(s.rows + 1) * sizeof *row_ptr);
  bppsa_free(row_ptr);
  bppsa_product inner = {.a = &x->positions, .b = &y->positions, .pattern = s, .threads = 1, .task_count = 1};
  product_task all = {0, s.rows, 0};
  inner.tasks = &all;
  status = bppsa_product_fill_rows(&inner, false);
  if (status == BPPSA_OK) {
    status = bppsa_product_count_pairs(&x->positions, &y->positions, pairs);
  }
  /* every mid channel joins the rows of its group of A with the columns of its group of B */
  const int64_t rows = x->row_channels / x->groups, cols = y->col_channels / y->groups;
  if (status == BPPSA_OK && (!bppsa_mul(x->col_channels, rows, &channels) || !bppsa_mul(channels, cols, &channels) ||
                             !bppsa_mul(channels, *pairs, pairs) || *pairs > INT64_MAX / 16)) {
    status = bppsa_fail(BPPSA_ERR_MEMORY, "product: more than 2^59 matching pairs");
  }
  if (status != BPPSA_OK) {
    bppsa_csr_free(&s);
    return status;
  }
  return bppsa_csr_from_blocks(least_of(x->groups, y->groups), x->row_channels, y->col_channels, &s, c);
}

/* ---- dense bands ---- */

/* Have rows r and s the same columns? */
static bool equal_rows(const bppsa_csr *m, int64_t r, int64_t s) {
  const int64_t n = m->row_ptr[r + 1] - m->row_ptr[r];
  return n == m->row_ptr[s + 1] - m->row_ptr[s] &&
         memcmp(m->col + m->row_ptr[r], m->col + m->row_ptr[s], (size_t)n * sizeof *m->col) == 0;
}

/* The number of rows from r on that have the columns of r. */
static int64_t band_rows(const bppsa_csr *m, int64_t r, int64_t limit) {
  int64_t rows = 1;
  while (r + rows < limit && equal_rows(m, r, r + rows)) {
    ++rows;
  }
  return rows;
}

/* Finds the band that begins at row r of A; false if its columns are not consecutive or the rows of B at these columns differ. */
static bool band_at(const bppsa_product *p, int64_t r, int64_t *b_checked, product_band *band) {
  const bppsa_csr *a = p->a, *b = p->b;
  const int64_t from = a->row_ptr[r], k = a->row_ptr[r + 1] - from, rows = band_rows(a, r, a->rows);
  *band = (product_band){.rows = rows, .k = k, .a = from, .c = p->pattern.row_ptr[r]};
  if (k == 0) {
    return true;
  }
  const int64_t first = a->col[from];
  if (a->col[from + k - 1] - first != k - 1) {
    return false;
  }
  if (b_checked[0] != first || b_checked[1] != k) { /* the band before may have checked the same rows */
    if (band_rows(b, first, first + k) != k) {
      return false;
    }
    b_checked[0] = first;
    b_checked[1] = k;
  }
  band->b = b->row_ptr[first];
  band->n = b->row_ptr[first + 1] - band->b;
  return true;
}

/* The product of full matrices is one band; their patterns need not be looked at. */
static bppsa_status take_band(bppsa_product *p) {
  p->bands = bppsa_calloc(1, sizeof *p->bands);
  if (p->bands == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  p->bands[0] = (product_band){.rows = p->a->rows, .k = p->a->cols, .n = p->b->cols};
  p->band_count = 1;
  return BPPSA_OK;
}

bppsa_status bppsa_product_find_bands(bppsa_product *p, bool *found) {
  int64_t b_checked[2] = {-1, -1};
  *found = bppsa_csr_is_full(p->a) && bppsa_csr_is_full(p->b);
  if (*found) {
    return take_band(p);
  }
  *found = p->a->row_ptr != NULL && p->b->row_ptr != NULL && p->pattern.row_ptr != NULL;
  for (int pass = 0; pass < 2 && *found; ++pass) { /* first count, then keep */
    p->band_count = 0;
    product_band band = {0};
    for (int64_t r = 0; *found && r < p->a->rows; r += band.rows) {
      *found = band_at(p, r, b_checked, &band);
      if (pass == 1) {
        p->bands[p->band_count] = band;
      }
      p->band_count += band.k > 0 && band.n > 0;
    }
    if (pass == 0 && *found && (p->bands = bppsa_calloc(p->band_count + 1, sizeof *p->bands)) == NULL) {
      return BPPSA_ERR_MEMORY;
    }
  }
  return BPPSA_OK;
}

/* ---- plans with channel structure ---- */

/* The place of column z in row x of S. */
static int32_t slot_of(const bppsa_csr *s, int64_t x, int32_t z) {
  int64_t p = s->row_ptr[x];
  while (s->col[p] != z) {
    ++p;
  }
  return (int32_t)(p - s->row_ptr[x]);
}

/* Finds the runs of position x, stores them unless `to` is NULL, and returns their number. */
static int64_t runs_of(const bppsa_product *p, int64_t x, product_run *to) {
  const bppsa_csr *sa = &p->a->blocks->positions, *sb = &p->b->blocks->positions, *sc = &p->pattern.blocks->positions;
  int64_t count = 0;
  for (int64_t e = 0; e < sa->row_ptr[x + 1] - sa->row_ptr[x]; ++e) {
    const int64_t y = sa->col[sa->row_ptr[x] + e], width = sb->row_ptr[y + 1] - sb->row_ptr[y];
    product_run run = {.e = (int32_t)e};
    for (int64_t f = 0; f < width; ++f) {
      const int32_t slot = slot_of(sc, x, sb->col[sb->row_ptr[y] + f]);
      if (run.length > 0 && slot == run.slot + run.length) {
        ++run.length;
        if (to != NULL) {
          to[count - 1] = run;
        }
        continue;
      }
      run = (product_run){(int32_t)e, (int32_t)f, 1, slot};
      if (to != NULL) {
        to[count] = run;
      }
      ++count;
    }
  }
  return count;
}

/* Matching pairs of positions, an upper bound on the number of runs. */
static int64_t position_pairs(const bppsa_product *p) {
  const bppsa_csr *x = &p->a->blocks->positions, *y = &p->b->blocks->positions;
  int64_t pairs = 0;
  for (int64_t e = 0; e < x->nnz; ++e) {
    pairs += y->row_ptr[x->col[e] + 1] - y->row_ptr[x->col[e]];
  }
  return pairs;
}

double bppsa_product_conv_calls(const bppsa_product *p) {
  const bppsa_csr_blocks *x = p->a->blocks, *y = p->b->blocks;
  const double groups = (double)(x->groups > y->groups ? x->groups : y->groups);
  return (double)position_pairs(p) * groups *
         (y->groups > x->groups ? 1 : 0.4); /* a run has two or three positions unless B's groups are finer */
}

static int64_t widest_positions(const bppsa_csr *s) {
  int64_t widest = 0;
  for (int64_t x = 0; x < s->rows; ++x) {
    const int64_t count = s->row_ptr[x + 1] - s->row_ptr[x];
    widest = count > widest ? count : widest;
  }
  return widest;
}

int64_t bppsa_product_widest(const bppsa_csr *csr) {
  return csr->blocks->col_channels / csr->blocks->groups * widest_positions(&csr->blocks->positions);
}

/* Chooses *row_reals, the most that a row of C needs, its channels times its positions; and *row_block, a multiple of 8: row
 * channels whose results fit into the second-level cache. */
static void choose_block(const bppsa_product *p, int64_t *row_reals, int64_t *row_block) {
  const bppsa_csr_blocks *c = p->pattern.blocks;
  const int64_t rows = c->row_channels / c->groups, room = 65536;
  *row_reals = bppsa_product_widest(&p->pattern);
  int64_t block = *row_reals > 0 ? room / *row_reals / 8 * 8 : rows;
  block = block < 8 ? 8 : block;
  *row_block = block < rows ? block : rows;
}

int64_t bppsa_product_conv_index_bytes(const bppsa_product *p) {
  return 8 * (p->a->blocks->positions.rows + 1) + (int64_t)sizeof(product_run) * position_pairs(p);
}

int64_t bppsa_product_conv_scratch_bytes(const bppsa_product *p) {
  int64_t row_reals, row_block;
  choose_block(p, &row_reals, &row_block);
  return (int64_t)bppsa_dtype_size(p->config.dtype) * (p->b->nnz + (row_reals * row_block + 15) / 16 * 16 * p->threads);
}

bppsa_status bppsa_product_plan_conv(bppsa_product *p) {
  const bppsa_csr *sa = &p->a->blocks->positions;
  int64_t row_reals;
  choose_block(p, &row_reals, &p->row_block);
  p->run_ptr = bppsa_calloc(sa->rows + 1, sizeof *p->run_ptr);
  if (p->run_ptr == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t x = 0; x < sa->rows; ++x) {
    p->run_ptr[x + 1] = p->run_ptr[x] + runs_of(p, x, NULL);
  }
  p->scratch_reals = (row_reals * p->row_block + 15) / 16 * 16;
  const size_t size = bppsa_dtype_size(p->config.dtype);
  p->runs = bppsa_calloc(p->run_ptr[sa->rows], sizeof *p->runs);
  p->packed = bppsa_alloc((size_t)p->b->nnz * size);
  p->scratch = bppsa_alloc((size_t)(p->scratch_reals * p->threads) * size);
  if (p->runs == NULL || p->packed == NULL || p->scratch == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t x = 0; x < sa->rows; ++x) {
    runs_of(p, x, p->runs + p->run_ptr[x]);
  }
  return BPPSA_OK;
}
