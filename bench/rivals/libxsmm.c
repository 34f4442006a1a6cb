/* LIBXSMM in `bench product`. It has no product of two sparse matrices, but multiplies many small dense ones at once. Where both
 * factors have channel structure, every pair of positions (x, z) of C is one call of its batch-reduce kernel,
 *
 *     C_xz [r][c] = Σ_y A_xy [r][m] · B_yz [m][c]
 *
 * over blocks in the layout that the kernel expects. Moving values from CSR into blocks and back is not timed: a pass is the
 * arithmetic alone.
 */
#include <libxsmm.h>
#include <math.h>
#include <string.h>

#include "bench/rivals/rivals.h"
#include "core/base/alloc.h"
#include "core/compute/pool.h"

typedef struct {
  const bppsa_csr *a, *b;
  int64_t rows, mid, cols; /* channels */
  int32_t threads;
  float *a_blocks, *b_blocks, *c_blocks; /* [entry of S][row channel][column channel] */
  int64_t blocks, pairs, widest;         /* blocks of C; pairs of positions; the most pairs of one block */
  int64_t *first;                        /* first pair of every block of C, size blocks + 1 */
  int64_t *row_first;                    /* first block of every position x, size S_A.rows + 1 */
  const float **left, **right;           /* the operands of every pair, size pairs */
  libxsmm_smmfunction_reducebatch_addr kernel;
} rival;

static void destroy(void *state) {
  rival *s = state;
  bppsa_free(s->a_blocks);
  bppsa_free(s->b_blocks);
  bppsa_free(s->c_blocks);
  bppsa_free(s->first);
  bppsa_free(s->row_first);
  bppsa_free(s->left);
  bppsa_free(s->right);
  bppsa_free(s);
}

/* Copies a matrix's values into blocks [entry of S][row channel][column channel]. */
static float *make_blocks(const bppsa_csr *csr, const float *values) {
  const bppsa_csr *s = &csr->blocks->positions;
  const int64_t rows = csr->blocks->row_channels, cols = csr->blocks->col_channels;
  float *made = bppsa_alloc((size_t)csr->nnz * sizeof *made);
  for (int64_t r = 0; made != NULL && r < rows; ++r) {
    for (int64_t x = 0; x < s->rows; ++x) {
      const int64_t taps = s->row_ptr[x + 1] - s->row_ptr[x];
      const float *row = values + csr->row_ptr[r * s->rows + x];
      for (int64_t e = 0; e < taps; ++e) {
        for (int64_t c = 0; c < cols; ++c) {
          made[((s->row_ptr[x] + e) * rows + r) * cols + c] = row[c * taps + e];
        }
      }
    }
  }
  return made;
}

enum { MOST_TERMS = 256 };

/* Lists the pairs of row x of S_A: for z = 0, 1, .. every entry f of S_B in column z whose row y is a column of S_A's row x. The
 * pairs of one z add up to one block of C. */
static void list_pairs(rival *s, int64_t x) {
  const bppsa_csr *sa = &s->a->blocks->positions, *sb = &s->b->blocks->positions;
  for (int64_t z = 0; z < sb->cols; ++z) {
    const int64_t before = s->pairs;
    for (int64_t e = sa->row_ptr[x]; e < sa->row_ptr[x + 1]; ++e) {
      for (int64_t f = sb->row_ptr[sa->col[e]]; f < sb->row_ptr[sa->col[e] + 1]; ++f) {
        if (sb->col[f] == z) {
          s->left[s->pairs] = s->a_blocks + e * s->rows * s->mid;
          s->right[s->pairs++] = s->b_blocks + f * s->mid * s->cols;
        }
      }
    }
    s->widest = s->pairs - before > s->widest ? s->pairs - before : s->widest;
    if (s->pairs > before) {
      s->first[++s->blocks] = s->pairs;
    }
  }
  s->row_first[x + 1] = s->blocks;
}

/* Lists the pairs, allocates C and asks LIBXSMM for the kernel. */
static bppsa_status plan(void *state) {
  rival *s = state;
  const bppsa_csr *sa = &s->a->blocks->positions, *sb = &s->b->blocks->positions;
  int64_t most = 0;
  for (int64_t e = 0; e < sa->nnz; ++e) {
    most += sb->row_ptr[sa->col[e] + 1] - sb->row_ptr[sa->col[e]];
  }
  s->first = bppsa_calloc(most + 1, sizeof *s->first);
  s->row_first = bppsa_calloc(sa->rows + 1, sizeof *s->row_first);
  s->left = bppsa_calloc(most, sizeof *s->left);
  s->right = bppsa_calloc(most, sizeof *s->right);
  if (s->first == NULL || s->row_first == NULL || s->left == NULL || s->right == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t x = 0; x < sa->rows; ++x) {
    list_pairs(s, x);
  }
  if (s->widest > MOST_TERMS) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "LIBXSMM: %lld terms of a block, expected at most %d", (long long)s->widest,
                      MOST_TERMS);
  }
  s->c_blocks = bppsa_calloc(s->blocks * s->rows * s->cols, sizeof *s->c_blocks);
  if (s->c_blocks == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const float one = 1, zero = 0; /* column-major: C_xzᵀ = Σ B_yzᵀ A_xyᵀ */
  const libxsmm_blasint m = (libxsmm_blasint)s->cols, n = (libxsmm_blasint)s->rows, k = (libxsmm_blasint)s->mid;
  s->kernel = libxsmm_smmdispatch_reducebatch_addr(m, n, k, NULL, NULL, NULL, &one, &zero, NULL, NULL);
  return s->kernel != NULL ? BPPSA_OK : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "LIBXSMM: no kernel for this shape or processor");
}

static bppsa_status create(const bppsa_product_case *c, int32_t threads, void **state) {
  const bppsa_csr_blocks *x = c->a->blocks, *y = c->b->blocks;
  if (x == NULL || y == NULL || x->groups != 1 || y->groups != 1 || x->positions.cols != y->positions.rows) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "LIBXSMM: factors without channel structure, expected blocks");
  }
  rival *s = bppsa_calloc(1, sizeof *s);
  if (s == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *s =
      (rival){.a = c->a, .b = c->b, .rows = x->row_channels, .mid = x->col_channels, .cols = y->col_channels, .threads = threads};
  libxsmm_init();
  s->a_blocks = make_blocks(c->a, c->a_values);
  s->b_blocks = make_blocks(c->b, c->b_values);
  if (s->a_blocks == NULL || s->b_blocks == NULL) {
    destroy(s);
    return BPPSA_ERR_MEMORY;
  }
  *state = s;
  return BPPSA_OK;
}

/* The kernel changes the pointers that it is given, so it gets copies. */
static void run_blocks(const void *context, int32_t worker, int64_t first, int64_t end) {
  const rival *s = context;
  (void)worker;
  for (int64_t i = first; i < end; ++i) {
    const float *left[MOST_TERMS], *right[MOST_TERMS];
    const unsigned long long count = (unsigned long long)(s->first[i + 1] - s->first[i]);
    memcpy(left, s->left + s->first[i], count * sizeof *left);
    memcpy(right, s->right + s->first[i], count * sizeof *right);
    s->kernel(right, left, s->c_blocks + i * s->rows * s->cols, &count);
  }
}

static bppsa_status run(void *state) {
  const rival *s = state;
  bppsa_parallel_for(s->threads, s->blocks, (double)INFINITY, run_blocks, s);
  return BPPSA_OK;
}

static bppsa_status read_result(void *state, const bppsa_csr *pattern, float *values) {
  const rival *s = state;
  const int64_t positions = s->a->blocks->positions.rows;
  for (int64_t r = 0; r < s->rows; ++r) {
    for (int64_t x = 0; x < positions; ++x) {
      const int64_t from = s->row_first[x], count = s->row_first[x + 1] - from;
      float *row = values + pattern->row_ptr[r * positions + x];
      for (int64_t i = 0; i < count * s->cols; ++i) { /* [c][z] */
        row[i] = s->c_blocks[((from + i % count) * s->rows + r) * s->cols + i / count];
      }
    }
  }
  return BPPSA_OK;
}

const bppsa_product_rival rival_libxsmm = {"libxsmm-blocks", "numeric", create, plan, run, read_result, destroy};
