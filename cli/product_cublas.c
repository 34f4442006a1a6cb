/* cuBLAS in `bench product`: C = A B in f32 of two factors without a gap, whose values in the pattern's order are matrices, row
 * after row.
 *
 *   cublas           CUBLAS_PEDANTIC_MATH: "standard arithmetic", f32 multiply-adds in every step, as other rows have them;
 *   documented as perhaps slower
 *   cublas-default   CUBLAS_DEFAULT_MATH: at least f32's precision, however the library gets there. That excludes TF32, whose
 *   residual, hundreds, would mark
 *                    the row; not an emulation of f32 by bfloat16, where the environment asks for one
 *
 * cuBLAS counts from column to column, and a matrix of rows is the transpose of one of columns: what it is asked for is Cᵀ =
 * Bᵀ Aᵀ, and nothing is moved.
 */
#include "cli/bench_sparse.h"
#include "cli/library_cublas.h"
#include "core/alloc.h"
#include "core/memory.h"

enum { A, B, C, WORKSPACE, PARTS }; /* of GPU memory: [rows][depth], [depth][cols], [rows][cols] reals; the library's */
/* What its documentation recommends on compute capability 9.0 and later. Without it a recording would take memory of its own, by
 * nodes. */
#define WORKSPACE_BYTES ((int64_t)32 << 20)

typedef struct {
  const cublas_library *l;
  const bppsa_device *device;
  cublasHandle_t handle;
  int rows, depth, cols;
  void *parts[PARTS];
} rival;

static bppsa_status check(const rival *r, cublasStatus_t status, const char *what) {
  if (status == CUBLAS_STATUS_SUCCESS) {
    return BPPSA_OK;
  }
  const bool refused =
      status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH || status == CUBLAS_STATUS_ALLOC_FAILED;
  return bppsa_fail(refused ? BPPSA_ERR_UNSUPPORTED : BPPSA_ERR_CUDA, "cuBLAS: %s: %s", what,
                    r->l->cublasGetStatusString(status));
}

static void destroy(void *state) {
  rival *r = state;
  if (r->handle != NULL) {
    (void)r->l->cublasDestroy_v2(r->handle); /* waits */
  }
  for (int i = 0; i < PARTS; ++i) {
    bppsa_memory_free(r->device, r->parts[i]);
  }
  bppsa_free(r);
}

static int64_t bytes_of(int rows, int cols) {
  return (int64_t)sizeof(float) * rows * cols;
}

/* Memory for all parts, with the factors in their places. */
static bppsa_status take_memory(rival *r, const bppsa_product_case *c) {
  const int64_t bytes[PARTS] = {bytes_of(r->rows, r->depth), bytes_of(r->depth, r->cols), bytes_of(r->rows, r->cols),
                                WORKSPACE_BYTES};
  for (int i = 0; i < PARTS; ++i) {
    const bppsa_status had = bppsa_memory_alloc(r->device, bytes[i], &r->parts[i]);
    if (had != BPPSA_OK) {
      return had == BPPSA_ERR_MEMORY ? BPPSA_ERR_UNSUPPORTED : had; /* its row is left out, with these words */
    }
  }
  BPPSA_TRY(bppsa_memory_put(r->device, r->parts[A], c->a_values, bytes[A]));
  return bppsa_memory_put(r->device, r->parts[B], c->b_values, bytes[B]);
}

static bppsa_status open_rival(const bppsa_product_case *c, cublasMath_t math, rival *r) {
  BPPSA_TRY(bppsa_cublas_load(&r->l));
  if (!bppsa_csr_is_full(c->a) || !bppsa_csr_is_full(c->b)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuBLAS: a factor with gaps, expected an entry everywhere in both");
  }
  if (c->a->rows > INT32_MAX) { /* columns are no more anyway, and A's are B's rows */
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuBLAS: more than 2^31 - 1 rows");
  }
  r->rows = (int)c->a->rows;
  r->depth = (int)c->a->cols;
  r->cols = (int)c->b->cols;
  BPPSA_TRY(take_memory(r, c));
  BPPSA_TRY(check(r, r->l->cublasCreate_v2(&r->handle), "handle")); /* of the GPU that the copies were made to */
  BPPSA_TRY(check(r, r->l->cublasSetStream_v2(r->handle, bppsa_device_get_stream(r->device)), "stream"));
  BPPSA_TRY(check(r, r->l->cublasSetWorkspace_v2(r->handle, r->parts[WORKSPACE], (size_t)WORKSPACE_BYTES),
                  "workspace")); /* which a new stream would take away */
  return check(r, r->l->cublasSetMathMode(r->handle, math), "math mode");
}

static bppsa_status create(const bppsa_product_case *c, cublasMath_t math, void **state) {
  rival *r = bppsa_calloc(1, sizeof *r);
  if (r == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  r->device = c->device;
  const bppsa_status status = open_rival(c, math, r);
  if (status != BPPSA_OK) {
    destroy(r);
    return status;
  }
  *state = r;
  return BPPSA_OK;
}

static bppsa_status create_pedantic(const bppsa_product_case *c, int32_t threads, void **state) {
  (void)threads;
  return create(c, CUBLAS_PEDANTIC_MATH, state);
}

static bppsa_status create_default(const bppsa_product_case *c, int32_t threads, void **state) {
  (void)threads;
  return create(c, CUBLAS_DEFAULT_MATH, state);
}

static bppsa_status run(void *state) {
  static const float one = 1, zero = 0;
  const rival *r = state;
  return check(r,
               r->l->cublasSgemm_v2(r->handle, CUBLAS_OP_N, CUBLAS_OP_N, r->cols, r->rows, r->depth, &one, r->parts[B], r->cols,
                                    r->parts[A], r->depth, &zero, r->parts[C], r->cols),
               "Sgemm");
}

static bppsa_status read_result(void *state, const bppsa_csr *pattern, float *values) {
  (void)pattern; /* full too */
  const rival *r = state;
  return bppsa_memory_get(r->device, values, r->parts[C], bytes_of(r->rows, r->cols));
}

static bppsa_status clear_result(void *state) {
  const rival *r = state;
  return bppsa_memory_clear(r->device, r->parts[C], bytes_of(r->rows, r->cols));
}

static const bppsa_product_gpu_rival pedantic = {{"cublas", "numeric", create_pedantic, NULL, run, read_result, destroy},
                                                 clear_result};
static const bppsa_product_gpu_rival by_default = {{"cublas-default", "numeric", create_default, NULL, run, read_result, destroy},
                                                   clear_result};

const bppsa_product_rival *const bppsa_product_cublas_rivals[] = {&pedantic.rival, &by_default.rival, NULL};
