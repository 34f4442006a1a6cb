/* cuBLAS in `bench product`: C = A B in f32, where the patterns of both factors are full. Their values are then row-major matrices.
 *
 *   cublas           CUBLAS_PEDANTIC_MATH: f32 multiply-adds in every step, as in the other rows. The documentation says that
 *                    this may be slower.
 *   cublas-default   CUBLAS_DEFAULT_MATH: any arithmetic that is at least as precise as f32. This excludes TF32, whose residual
 *                    of some hundreds would mark the row. It allows an emulation of f32 by bfloat16, where the environment asks
 *                    for one.
 *
 * cuBLAS stores matrices column by column. A row-major matrix is the transpose of a column-major one, so cuBLAS is asked for
 * Cᵀ = Bᵀ Aᵀ, and no values are moved.
 */
#include "bench/cases/product_case.h"
#include "bench/rivals/library_cublas.h"
#include "core/base/alloc.h"
#include "core/compute/memory.h"

/* Parts of GPU memory: reals A [rows][depth], B [depth][cols], C [rows][cols]; the library's workspace. */
enum { A, B, C, WORKSPACE, PARTS };
/* The size of the workspace that cuBLAS's documentation recommends on compute capability 9.0 and later. Without a workspace a
 * recording would contain nodes that allocate memory. */
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
    (void)r->l->cublasDestroy_v2(r->handle); /* waits for the GPU */
  }
  for (int i = 0; i < PARTS; ++i) {
    bppsa_memory_free(r->device, r->parts[i]);
  }
  bppsa_free(r);
}

static int64_t bytes_of(int rows, int cols) {
  return (int64_t)sizeof(float) * rows * cols;
}

/* Allocates all parts and copies the factors into theirs. */
static bppsa_status take_memory(rival *r, const bppsa_product_case *c) {
  const int64_t bytes[PARTS] = {bytes_of(r->rows, r->depth), bytes_of(r->depth, r->cols), bytes_of(r->rows, r->cols),
                                WORKSPACE_BYTES};
  for (int i = 0; i < PARTS; ++i) {
    const bppsa_status had = bppsa_memory_alloc(r->device, bytes[i], &r->parts[i]);
    if (had != BPPSA_OK) {
      return had == BPPSA_ERR_MEMORY ? BPPSA_ERR_UNSUPPORTED : had; /* then its row is left out, and the message says why */
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
  if (c->a->rows > INT32_MAX) { /* columns are 32-bit numbers anyway, and B has as many rows as A has columns */
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuBLAS: more than 2^31 - 1 rows");
  }
  r->rows = (int)c->a->rows;
  r->depth = (int)c->a->cols;
  r->cols = (int)c->b->cols;
  BPPSA_TRY(take_memory(r, c));
  BPPSA_TRY(check(r, r->l->cublasCreate_v2(&r->handle), "handle")); /* for the GPU that holds the copies */
  BPPSA_TRY(check(r, r->l->cublasSetStream_v2(r->handle, bppsa_device_get_stream(r->device)), "stream"));
  BPPSA_TRY(check(r, r->l->cublasSetWorkspace_v2(r->handle, r->parts[WORKSPACE], (size_t)WORKSPACE_BYTES),
                  "workspace")); /* after the stream: setting a stream resets the workspace */
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
  (void)pattern; /* C is full, too */
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

const bppsa_product_rival *const bppsa_product_cublas_rivals[BPPSA_PRODUCT_LIBRARY_RIVALS] = {&pedantic.rival, &by_default.rival,
                                                                                              NULL};
