/* SuiteSparse:GraphBLAS: C = A B on the plus-times semiring in f32, pattern and values in every call. The library may leave the
 * entries of a result's rows unsorted. */
#include <GraphBLAS.h>
#include <string.h>

#include "bench/rivals/rivals.h"
#include "core/base/alloc.h"

typedef struct {
  GrB_Matrix a, b, c;
  GrB_Descriptor method;
} graphblas;

static bppsa_status check(GrB_Info info, const char *what) {
  return info == GrB_SUCCESS ? BPPSA_OK : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "GraphBLAS: %s failed with %d", what, (int)info);
}

static bppsa_status import(const bppsa_csr *csr, const float *values, GrB_Matrix *matrix) {
  GrB_Index *ptr = bppsa_calloc(csr->rows + 1, sizeof *ptr), *col = bppsa_calloc(csr->nnz, sizeof *col);
  bppsa_status status = ptr == NULL || col == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int64_t r = 0; status == BPPSA_OK && r <= csr->rows; ++r) {
    ptr[r] = (GrB_Index)csr->row_ptr[r];
  }
  for (int64_t p = 0; status == BPPSA_OK && p < csr->nnz; ++p) {
    col[p] = (GrB_Index)csr->col[p];
  }
  if (status == BPPSA_OK) {
    status = check(GrB_Matrix_import_FP32(matrix, GrB_FP32, (GrB_Index)csr->rows, (GrB_Index)csr->cols, ptr, col, values,
                                          (GrB_Index)csr->rows + 1, (GrB_Index)csr->nnz, (GrB_Index)csr->nnz, GrB_CSR_FORMAT),
                   "import");
  }
  bppsa_free(ptr);
  bppsa_free(col);
  return status;
}

static void destroy(void *state) {
  graphblas *g = state;
  GrB_Matrix_free(&g->a);
  GrB_Matrix_free(&g->b);
  GrB_Matrix_free(&g->c);
  GrB_Descriptor_free(&g->method);
  bppsa_free(g);
}

static bppsa_status fill(const bppsa_product_case *c, int32_t threads, int method, graphblas *g) {
  static bool started;
  if (!started) {
    BPPSA_TRY(check(GrB_init(GrB_NONBLOCKING), "init"));
    started = true;
  }
  BPPSA_TRY(check(GxB_Global_Option_set(GxB_GLOBAL_NTHREADS, (int)threads), "threads"));
  BPPSA_TRY(check(GrB_Descriptor_new(&g->method), "descriptor"));
  BPPSA_TRY(check(GxB_Desc_set(g->method, GxB_AxB_METHOD, method), "method"));
  BPPSA_TRY(import(c->a, c->a_values, &g->a));
  return import(c->b, c->b_values, &g->b);
}

static bppsa_status create(const bppsa_product_case *c, int32_t threads, int method, void **state) {
  graphblas *g = bppsa_calloc(1, sizeof *g);
  if (g == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_status status = fill(c, threads, method, g);
  if (status != BPPSA_OK) {
    destroy(g);
    return status;
  }
  *state = g;
  return BPPSA_OK;
}

static bppsa_status create_default(const bppsa_product_case *c, int32_t threads, void **state) {
  return create(c, threads, GxB_DEFAULT, state);
}

static bppsa_status create_gustavson(const bppsa_product_case *c, int32_t threads, void **state) {
  return create(c, threads, GxB_AxB_GUSTAVSON, state);
}

static bppsa_status create_hash(const bppsa_product_case *c, int32_t threads, void **state) {
  return create(c, threads, GxB_AxB_HASH, state);
}

static bppsa_status run(void *state) {
  graphblas *g = state;
  GrB_Index rows, cols;
  GrB_Matrix_free(&g->c);
  BPPSA_TRY(check(GrB_Matrix_nrows(&rows, g->a), "rows"));
  BPPSA_TRY(check(GrB_Matrix_ncols(&cols, g->b), "cols"));
  BPPSA_TRY(check(GrB_Matrix_new(&g->c, GrB_FP32, rows, cols), "new"));
  return check(GrB_mxm(g->c, NULL, NULL, GrB_PLUS_TIMES_SEMIRING_FP32, g->a, g->b, g->method), "mxm");
}

static bppsa_status read_result(void *state, const bppsa_csr *pattern, float *values) {
  const graphblas *g = state;
  GrB_Index count = (GrB_Index)pattern->nnz;
  GrB_Index *row = bppsa_calloc(pattern->nnz, sizeof *row), *col = bppsa_calloc(pattern->nnz, sizeof *col);
  float *found = bppsa_calloc(pattern->nnz, sizeof *found);
  bppsa_status status = row == NULL || col == NULL || found == NULL
                            ? BPPSA_ERR_MEMORY
                            : check(GrB_Matrix_extractTuples_FP32(row, col, found, &count, g->c), "extractTuples");
  memset(values, 0, (size_t)pattern->nnz * sizeof *values);
  for (GrB_Index i = 0; status == BPPSA_OK && i < count; ++i) {
    int64_t low = pattern->row_ptr[row[i]], high = pattern->row_ptr[row[i] + 1];
    while (low + 1 < high) {
      const int64_t middle = (low + high) / 2;
      *(pattern->col[middle] <= (int32_t)col[i] ? &low : &high) = middle;
    }
    values[low] = found[i];
  }
  bppsa_free(row);
  bppsa_free(col);
  bppsa_free(found);
  return status;
}

const bppsa_product_rival rival_graphblas = {"graphblas", "full", create_default, NULL, run, read_result, destroy};
const bppsa_product_rival rival_graphblas_gustavson = {"graphblas-gustavson", "full", create_gustavson, NULL, run,
                                                       read_result,           destroy};
const bppsa_product_rival rival_graphblas_hash = {"graphblas-hash", "full", create_hash, NULL, run, read_result, destroy};
