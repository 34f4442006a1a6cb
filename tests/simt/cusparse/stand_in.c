/* A stand-in for cuSPARSE on the SIMT machine: products as its documentation describes them, one row after the other, columns
 * from the last to the first. It shows that the program makes the calls in the right order, with enough room in every buffer, and
 * reads the results; it does not show what the real library does.
 *
 * A call without a buffer returns the size that the buffer must have; the same call with the buffer does the work, and fills all
 * of the buffer. Steps in the wrong order are refused. Matrices with more than 1000 rows need more memory than exists.
 *
 * It asserts nothing itself: the tests that link it assert what it refuses and the numbers that it computes.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/rivals/library_cusparse.h"
#include "core/base/alloc.h"

enum { MOST_ROWS = 1000 };

struct stand_in {
  cudaStream_t stream;
};
struct stand_in_matrix {
  int64_t rows, cols, nnz;
  int32_t *offsets, *columns; /* in GPU memory, which the host reads here */
  float *values;
};
/* The steps of a product that are done. */
enum stage { MADE, ESTIMATED, COUNTED, COPIED };
struct stand_in_product {
  enum stage stage;
};

static cusparseStatus_t check(int fine) {
  return fine ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_INVALID_VALUE;
}

const char *cusparseGetErrorString(cusparseStatus_t status) {
  return status == CUSPARSE_STATUS_INSUFFICIENT_RESOURCES ? "insufficient resources" : "invalid value";
}

/* ---- objects ---- */

cusparseStatus_t cusparseCreate(cusparseHandle_t *handle) {
  *handle = bppsa_calloc(1, sizeof **handle);
  return *handle != NULL ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_ALLOC_FAILED;
}

cusparseStatus_t cusparseDestroy(cusparseHandle_t handle) {
  bppsa_free(handle);
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSetStream(cusparseHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return check(stream != NULL);
}

cusparseStatus_t cusparseCreateCsr(cusparseSpMatDescr_t *matrix, int64_t rows, int64_t cols, int64_t nnz, void *offsets,
                                   void *columns, void *values, cusparseIndexType_t offset_type, cusparseIndexType_t column_type,
                                   cusparseIndexBase_t base, cudaDataType type) {
  *matrix = bppsa_calloc(1, sizeof **matrix);
  if (*matrix == NULL) {
    return CUSPARSE_STATUS_ALLOC_FAILED;
  }
  **matrix = (struct stand_in_matrix){rows, cols, nnz, offsets, columns, values};
  return check(offset_type == CUSPARSE_INDEX_32I && column_type == CUSPARSE_INDEX_32I && base == CUSPARSE_INDEX_BASE_ZERO &&
               type == CUDA_R_32F);
}

cusparseStatus_t cusparseDestroySpMat(cusparseConstSpMatDescr_t matrix) {
  bppsa_free((void *)matrix);
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSpMatGetSize(cusparseConstSpMatDescr_t matrix, int64_t *rows, int64_t *cols, int64_t *nnz) {
  *rows = matrix->rows;
  *cols = matrix->cols;
  *nnz = matrix->nnz;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseCsrSetPointers(cusparseSpMatDescr_t matrix, void *offsets, void *columns, void *values) {
  matrix->offsets = offsets;
  matrix->columns = columns;
  matrix->values = values;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSpGEMM_createDescr(cusparseSpGEMMDescr_t *product) {
  *product = bppsa_calloc(1, sizeof **product);
  return *product != NULL ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_ALLOC_FAILED;
}

cusparseStatus_t cusparseSpGEMM_destroyDescr(cusparseSpGEMMDescr_t product) {
  bppsa_free(product);
  return CUSPARSE_STATUS_SUCCESS;
}

/* ---- products ---- */

/* Computes one row of C: its sums, and which of them are entries. */
static int64_t sum_row(const struct stand_in_matrix *a, const struct stand_in_matrix *b, int64_t row, double *sums,
                       char *present) {
  int64_t count = 0;
  memset(sums, 0, (size_t)b->cols * sizeof *sums);
  memset(present, 0, (size_t)b->cols);
  for (int32_t p = a->offsets[row]; p < a->offsets[row + 1]; ++p) {
    for (int32_t q = b->offsets[a->columns[p]]; q < b->offsets[a->columns[p] + 1]; ++q) {
      sums[b->columns[q]] += (double)a->values[p] * (double)b->values[q];
      count += !present[b->columns[q]];
      present[b->columns[q]] = 1;
    }
  }
  return count;
}

/* Computes all rows: offsets; columns too unless `columns` is 0; values too unless `values` is 0. */
static void multiply(const struct stand_in_matrix *a, const struct stand_in_matrix *b, struct stand_in_matrix *c, int columns,
                     int values) {
  double *sums = bppsa_calloc(b->cols + 1, sizeof *sums);
  char *present = bppsa_calloc(b->cols + 1, 1);
  int32_t at = 0;
  for (int64_t row = 0; sums != NULL && present != NULL && row < a->rows; ++row) {
    const int64_t count = sum_row(a, b, row, sums, present);
    c->offsets[row] = at;
    for (int64_t j = b->cols - 1; (columns || values) && j >= 0; --j) {
      if (present[j]) {
        if (columns) {
          c->columns[at] = (int32_t)j;
        }
        if (values) {
          c->values[at] = (float)sums[j];
        }
        ++at;
      }
    }
    at += columns || values ? 0 : (int32_t)count;
  }
  c->offsets[a->rows] = at;
  c->nnz = at;
  bppsa_free(sums);
  bppsa_free(present);
}

/* Work that waits for its turn on the stream. */
typedef struct {
  struct stand_in_matrix a, b, c;
  int columns, values;
} job;

static void run_job(const void *context) {
  job j = *(const job *)context;
  multiply(&j.a, &j.b, &j.c, j.columns, j.values);
}

static void queue(cusparseHandle_t handle, cusparseConstSpMatDescr_t a, cusparseConstSpMatDescr_t b, cusparseSpMatDescr_t c,
                  int columns, int values) {
  const job made = {*a, *b, *c, columns, values};
  simt_host_function(handle->stream, run_job, &made, sizeof made);
}

/* Returns the size, or fills a buffer, which must have that size. */
static int use(size_t *size, void *buffer, size_t bytes) {
  if (buffer == NULL) {
    *size = bytes;
    return 0;
  }
  memset(buffer, 0x55, *size);
  return *size == bytes;
}

#define UNUSED (void)op_a, (void)op_b, (void)algorithm

static int plain(const void *alpha, const void *beta, cudaDataType type) {
  return *(const float *)alpha == 1 && *(const float *)beta == 0 && type == CUDA_R_32F;
}

cusparseStatus_t cusparseSpGEMM_workEstimation(STAND_IN_PRODUCT, size_t *size, void *buffer) {
  UNUSED, (void)handle, (void)c;
  if (a->rows > MOST_ROWS) {
    return CUSPARSE_STATUS_INSUFFICIENT_RESOURCES;
  }
  if (use(size, buffer, 100 + (size_t)b->nnz)) {
    product->stage = ESTIMATED;
  }
  return check(plain(alpha, beta, type) && (buffer == NULL || product->stage == ESTIMATED));
}

cusparseStatus_t cusparseSpGEMM_compute(STAND_IN_PRODUCT, size_t *size, void *buffer) {
  UNUSED, (void)handle;
  if (product->stage != ESTIMATED || !plain(alpha, beta, type)) {
    return CUSPARSE_STATUS_INVALID_VALUE;
  }
  if (use(size, buffer, 300 + (size_t)a->nnz)) {
    multiply(a, b, c, 0, 0); /* counts */
    product->stage = COUNTED;
  }
  return check(buffer == NULL || product->stage == COUNTED);
}

cusparseStatus_t cusparseSpGEMM_copy(STAND_IN_PRODUCT) {
  UNUSED;
  if (product->stage != COUNTED || !plain(alpha, beta, type)) {
    return CUSPARSE_STATUS_INVALID_VALUE;
  }
  queue(handle, a, b, c, 1, 1);
  product->stage = COPIED;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSpGEMMreuse_workEstimation(STAND_IN_STRUCTURE, size_t *size, void *buffer) {
  UNUSED, (void)handle, (void)c;
  if (a->rows > MOST_ROWS) {
    return CUSPARSE_STATUS_INSUFFICIENT_RESOURCES;
  }
  if (use(size, buffer, 50 + (size_t)b->nnz)) {
    product->stage = ESTIMATED;
  }
  return check(buffer == NULL || product->stage == ESTIMATED);
}

cusparseStatus_t cusparseSpGEMMreuse_nnz(STAND_IN_STRUCTURE, size_t *size2, void *buffer2, size_t *size3, void *buffer3,
                                         size_t *size4, void *buffer4) {
  UNUSED, (void)handle;
  if (product->stage != ESTIMATED) {
    return CUSPARSE_STATUS_INVALID_VALUE;
  }
  const int all = use(size2, buffer2, 20) + use(size3, buffer3, 30) + use(size4, buffer4, 40);
  if (all == 3) {
    multiply(a, b, c, 0, 0);
    product->stage = COUNTED;
  }
  return check(buffer2 == NULL || all == 3);
}

cusparseStatus_t cusparseSpGEMMreuse_copy(STAND_IN_STRUCTURE, size_t *size, void *buffer) {
  UNUSED;
  if (product->stage != COUNTED) {
    return CUSPARSE_STATUS_INVALID_VALUE;
  }
  if (use(size, buffer, 60)) {
    queue(handle, a, b, c, 1, 0);
    product->stage = COPIED;
  }
  return check(buffer == NULL || product->stage == COPIED);
}

cusparseStatus_t cusparseSpGEMMreuse_compute(STAND_IN_PRODUCT) {
  UNUSED;
  if (product->stage != COPIED || !plain(alpha, beta, type)) {
    return CUSPARSE_STATUS_INVALID_VALUE;
  }
  queue(handle, a, b, c, 0, 1);
  return CUSPARSE_STATUS_SUCCESS;
}

/* In the place of bench/rivals/library_cusparse.c. */
bppsa_status bppsa_cusparse_load(const cusparse_library **library) {
#define STAND_IN_ENTRY(function) .function = function,
  static const cusparse_library table = {CUSPARSE_FUNCTIONS(STAND_IN_ENTRY) CUSPARSE_REUSE_FUNCTIONS(STAND_IN_ENTRY)};
  *library = &table;
  return BPPSA_OK;
}
