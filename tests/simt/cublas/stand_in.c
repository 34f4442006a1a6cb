/* A stand-in for cuBLAS on the SIMT machine: C = α A B + β C for matrices stored by columns, one number at a time in float64.
 * It shows that the program describes its matrices correctly and prepares the handle in the order that the documentation
 * requires; it does not show what the real library does.
 *
 * A product is refused without a stream, a mode of mathematics, and a workspace that was set after the stream (setting a stream
 * removes an earlier workspace); the stand-in writes to the whole workspace. STAND_IN_CUBLAS in the environment: "missing": there
 * is no library; "refuses": no product is supported; "tf32": the default mode rounds factors to TF32, which the real one does not.
 *
 * It asserts nothing itself: the tests that link it assert what it refuses and the numbers that it computes.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rivals/library_cublas.h"
#include "core/base/alloc.h"

struct stand_in {
  cudaStream_t stream;
  void *workspace;
  size_t workspace_bytes;
  cublasMath_t math;
  bool math_set;
};

static bool asked_for(const char *what) {
  const char *found = getenv("STAND_IN_CUBLAS");
  return found != NULL && strcmp(found, what) == 0;
}

static cublasStatus_t check(bool fine) {
  return fine ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

const char *cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "invalid value";
}

/* ---- the handle ---- */

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
  *handle = bppsa_calloc(1, sizeof **handle);
  return *handle != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  bppsa_free(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  handle->workspace = NULL;
  return check(stream != NULL);
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t size) {
  handle->workspace = workspace;
  handle->workspace_bytes = size;
  return check((uintptr_t)workspace % 256 == 0);
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t math) {
  handle->math = math;
  handle->math_set = true;
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ---- */

/* Work that waits for its turn on the stream. */
typedef struct {
  int m, n, k, lda, ldb, ldc;
  float alpha, beta;
  const float *a, *b;
  float *c;
  void *workspace;
  size_t workspace_bytes;
  bool tf32;
} job;

/* Rounds to ten bits behind the leading one. */
static float round_off(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x1000) & ~(uint32_t)0x1fff;
  memcpy(&x, &bits, sizeof bits);
  return x;
}

static void run_job(const void *context) {
  const job *j = context;
  memset(j->workspace, 0x55, j->workspace_bytes);
  for (int64_t column = 0; column < j->n; ++column) {
    for (int64_t row = 0; row < j->m; ++row) {
      float *to = &j->c[row + column * j->ldc];
      double sum = 0;
      for (int64_t i = 0; i < j->k; ++i) {
        const float a = j->a[row + i * j->lda], b = j->b[i + column * j->ldb];
        sum += j->tf32 ? (double)round_off(a) * (double)round_off(b) : (double)a * (double)b;
      }
      *to = (float)((double)j->alpha * sum + (j->beta == 0 ? 0 : (double)j->beta * (double)*to));
    }
  }
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                              const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta, float *c,
                              int ldc) {
  if (asked_for("refuses")) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (handle->stream == NULL || handle->workspace == NULL || !handle->math_set || op_a != CUBLAS_OP_N || op_b != CUBLAS_OP_N ||
      m < 1 || n < 1 || k < 1 || lda < m || ldb < k || ldc < m) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const job made = {.m = m,
                    .n = n,
                    .k = k,
                    .lda = lda,
                    .ldb = ldb,
                    .ldc = ldc,
                    .alpha = *alpha,
                    .beta = *beta,
                    .a = a,
                    .b = b,
                    .c = c,
                    .workspace = handle->workspace,
                    .workspace_bytes = handle->workspace_bytes,
                    .tf32 = handle->math == CUBLAS_DEFAULT_MATH && asked_for("tf32")};
  simt_host_function(handle->stream, run_job, &made, sizeof made);
  return CUBLAS_STATUS_SUCCESS;
}

/* In the place of bench/rivals/library_cublas.c. */
bppsa_status bppsa_cublas_load(const cublas_library **library) {
#define STAND_IN_ENTRY(function) .function = function,
  static const cublas_library table = {CUBLAS_FUNCTIONS(STAND_IN_ENTRY)};
  if (asked_for("missing")) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuBLAS: libcublas.so.13: cannot open");
  }
  *library = &table;
  return BPPSA_OK;
}
