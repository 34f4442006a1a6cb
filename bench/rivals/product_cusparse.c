/* cuSPARSE in `bench product`: C = A B in f32 with the generic interface, the calls in the order that its documentation gives.
 *
 *   full      cusparseSpGEMM: work estimation, computation, copy, with a new descriptor in every call. Memory is allocated in
 *             the first call, which is not timed, and is kept.
 *   numeric   cusparseSpGEMMreuse: work estimation, structure and copy belong to the plan; the computation alone is timed.
 */
#include <string.h>

#include "bench/cases/product_case.h"
#include "bench/rivals/library_cusparse.h"
#include "core/base/alloc.h"
#include "core/compute/memory.h"

enum { ROOMS = 9 }; /* pieces of GPU memory: */
enum { FIRST_BUFFER = 0, BUFFERS = 5, C_COLUMNS = BUFFERS, C_VALUES };

typedef struct {
  int64_t bytes;
  void *data;
} room;

typedef struct {
  const cusparse_library *l;
  const bppsa_device *device;
  cusparseHandle_t handle;
  cusparseSpMatDescr_t a, b, c;
  cusparseSpGEMMDescr_t work;
  void *arrays[7]; /* offsets, columns, values of A and of B; offsets of C */
  int array_count;
  room rooms[ROOMS];
  int64_t rows, nnz; /* of C, once it is known */
} rival;

static const float one = 1, zero = 0;

#define OPERATION CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE
#define ALGORITHM CUSPARSE_SPGEMM_DEFAULT

static bppsa_status check(const rival *r, cusparseStatus_t status, const char *what) {
  if (status == CUSPARSE_STATUS_SUCCESS) {
    return BPPSA_OK;
  }
  const bool refused = status == CUSPARSE_STATUS_NOT_SUPPORTED || status == CUSPARSE_STATUS_INSUFFICIENT_RESOURCES ||
                       status == CUSPARSE_STATUS_ALLOC_FAILED;
  return bppsa_fail(refused ? BPPSA_ERR_UNSUPPORTED : BPPSA_ERR_CUDA, "cuSPARSE: %s: %s", what,
                    r->l->cusparseGetErrorString(status));
}

/* ---- memory ---- */

/* Makes sure that a room has at least so many bytes. A room that grows loses its contents. */
static bppsa_status make_room(rival *r, int which, int64_t bytes) {
  room *it = &r->rooms[which];
  if (it->data != NULL && it->bytes >= bytes) {
    return BPPSA_OK;
  }
  bppsa_memory_free(r->device, it->data);
  *it = (room){0};
  const bppsa_status had = bppsa_memory_alloc(r->device, bytes, &it->data);
  it->bytes = bytes;
  return had == BPPSA_ERR_MEMORY ? BPPSA_ERR_UNSUPPORTED : had; /* then its row is left out, and the message says why */
}

static void leave_room(rival *r, int which) {
  bppsa_memory_free(r->device, r->rooms[which].data);
  r->rooms[which] = (room){0};
}

static bppsa_status upload(rival *r, const void *from, int64_t bytes, void **to) {
  BPPSA_TRY(bppsa_memory_alloc(r->device, bytes, to));
  r->arrays[r->array_count++] = *to;
  return from == NULL || bytes == 0 ? BPPSA_OK : bppsa_memory_put(r->device, *to, from, bytes);
}

/* Converts row offsets to 32 bits. */
static bppsa_status upload_offsets(rival *r, const bppsa_csr *csr, void **to) {
  int32_t *offsets = bppsa_calloc(csr->rows + 1, sizeof *offsets);
  if (offsets == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i <= csr->rows; ++i) {
    offsets[i] = (int32_t)csr->row_ptr[i];
  }
  const bppsa_status status = upload(r, offsets, (csr->rows + 1) * (int64_t)sizeof *offsets, to);
  bppsa_free(offsets);
  return status;
}

static bppsa_status describe(rival *r, int64_t rows, int64_t cols, int64_t nnz, void *offsets, void *columns, void *values,
                             cusparseSpMatDescr_t *matrix) {
  return check(r,
               r->l->cusparseCreateCsr(matrix, rows, cols, nnz, offsets, columns, values, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                                       CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F),
               "matrix");
}

static bppsa_status take_over(rival *r, const bppsa_csr *csr, const float *values, cusparseSpMatDescr_t *matrix) {
  void *offsets, *columns, *copied;
  BPPSA_TRY(upload_offsets(r, csr, &offsets));
  BPPSA_TRY(upload(r, csr->col, csr->nnz * (int64_t)sizeof *csr->col, &columns));
  BPPSA_TRY(upload(r, values, csr->nnz * (int64_t)sizeof *values, &copied));
  return describe(r, csr->rows, csr->cols, csr->nnz, offsets, columns, copied, matrix);
}

/* ---- what both functions need ---- */

static void destroy(void *state) {
  rival *r = state;
  if (r->work != NULL) {
    (void)r->l->cusparseSpGEMM_destroyDescr(r->work);
  }
  const cusparseSpMatDescr_t matrices[] = {r->a, r->b, r->c};
  for (int i = 0; i < 3; ++i) {
    (void)(matrices[i] != NULL ? r->l->cusparseDestroySpMat(matrices[i]) : CUSPARSE_STATUS_SUCCESS);
  }
  (void)(r->handle != NULL ? r->l->cusparseDestroy(r->handle) : CUSPARSE_STATUS_SUCCESS);
  for (int i = 0; i < r->array_count; ++i) {
    bppsa_memory_free(r->device, r->arrays[i]);
  }
  for (int i = 0; i < ROOMS; ++i) {
    leave_room(r, i);
  }
  bppsa_free(r);
}

static bppsa_status open_rival(const bppsa_product_case *c, rival *r) {
  void *offsets;
  BPPSA_TRY(bppsa_cusparse_load(&r->l));
  if (c->a->nnz > INT32_MAX || c->b->nnz > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuSPARSE: more than 2^31 - 1 entries");
  }
  BPPSA_TRY(check(r, r->l->cusparseCreate(&r->handle), "handle"));
  BPPSA_TRY(check(r, r->l->cusparseSetStream(r->handle, bppsa_device_get_stream(r->device)), "stream"));
  BPPSA_TRY(take_over(r, c->a, c->a_values, &r->a));
  BPPSA_TRY(take_over(r, c->b, c->b_values, &r->b));
  BPPSA_TRY(upload(r, NULL, (c->a->rows + 1) * (int64_t)sizeof(int32_t), &offsets));
  return describe(r, c->a->rows, c->b->cols, 0, offsets, NULL, NULL, &r->c);
}

/* Allocates C's arrays, once its entries are counted. */
static bppsa_status take_entries(rival *r) {
  int64_t cols;
  BPPSA_TRY(check(r, r->l->cusparseSpMatGetSize(r->c, &r->rows, &cols, &r->nnz), "size"));
  BPPSA_TRY(make_room(r, C_COLUMNS, r->nnz * (int64_t)sizeof(int32_t)));
  BPPSA_TRY(make_room(r, C_VALUES, r->nnz * (int64_t)sizeof(float)));
  return check(
      r, r->l->cusparseCsrSetPointers(r->c, r->arrays[r->array_count - 1], r->rooms[C_COLUMNS].data, r->rooms[C_VALUES].data),
      "pointers");
}

static bppsa_status create(const bppsa_product_case *c, int32_t threads, void **state) {
  (void)threads;
  rival *r = bppsa_calloc(1, sizeof *r);
  if (r == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  r->device = c->device;
  const bppsa_status status = open_rival(c, r);
  if (status != BPPSA_OK) {
    destroy(r);
    return status;
  }
  *state = r;
  return BPPSA_OK;
}

/* The columns within a row of C may come in any order. */
static bool scatter(const bppsa_csr *pattern, const int32_t *offsets, const int32_t *columns, const float *found, float *values) {
  for (int64_t row = 0; row < pattern->rows; ++row) {
    for (int32_t i = offsets[row]; i < offsets[row + 1]; ++i) {
      int64_t low = pattern->row_ptr[row], high = pattern->row_ptr[row + 1];
      while (low + 1 < high) {
        const int64_t middle = (low + high) / 2;
        *(pattern->col[middle] <= columns[i] ? &low : &high) = middle;
      }
      if (low >= high || pattern->col[low] != columns[i]) {
        return false;
      }
      values[low] = found[i];
    }
  }
  return true;
}

static bppsa_status clear_result(void *state) {
  const rival *r = state;
  const room *values = &r->rooms[C_VALUES];
  return values->data == NULL ? BPPSA_OK : bppsa_memory_clear(r->device, values->data, values->bytes);
}

static bppsa_status read_result(void *state, const bppsa_csr *pattern, float *values) {
  const rival *r = state;
  int32_t *offsets = bppsa_calloc(r->rows + 1, sizeof *offsets), *columns = bppsa_calloc(r->nnz, sizeof *columns);
  float *found = bppsa_calloc(r->nnz, sizeof *found);
  bppsa_status status = offsets == NULL || columns == NULL || found == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  if (status == BPPSA_OK) {
    status = bppsa_memory_get(r->device, offsets, r->arrays[r->array_count - 1], (r->rows + 1) * (int64_t)sizeof *offsets);
  }
  if (status == BPPSA_OK) {
    status = bppsa_memory_get(r->device, columns, r->rooms[C_COLUMNS].data, r->nnz * (int64_t)sizeof *columns);
  }
  if (status == BPPSA_OK) {
    status = bppsa_memory_get(r->device, found, r->rooms[C_VALUES].data, r->nnz * (int64_t)sizeof *found);
  }
  memset(values, 0, (size_t)pattern->nnz * sizeof *values);
  if (status == BPPSA_OK && !scatter(pattern, offsets, columns, found, values)) {
    status = bppsa_fail(BPPSA_ERR_CUDA, "cuSPARSE: an entry that is not in the pattern of the product");
  }
  bppsa_free(offsets);
  bppsa_free(columns);
  bppsa_free(found);
  return status;
}

/* ---- cusparseSpGEMM ---- */

static bppsa_status run_full(void *state) {
  rival *r = state;
  const cusparse_library *l = r->l;
  size_t first = 0, second = 0;
  if (r->work != NULL) {
    BPPSA_TRY(check(r, l->cusparseSpGEMM_destroyDescr(r->work), "SpGEMM"));
    r->work = NULL;
  }
  BPPSA_TRY(check(r, l->cusparseSpGEMM_createDescr(&r->work), "SpGEMM"));
#define PRODUCT r->handle, OPERATION, &one, r->a, r->b, &zero, r->c, CUDA_R_32F, ALGORITHM, r->work
  BPPSA_TRY(check(r, l->cusparseSpGEMM_workEstimation(PRODUCT, &first, NULL), "SpGEMM: work estimation"));
  BPPSA_TRY(make_room(r, FIRST_BUFFER, (int64_t)first));
  BPPSA_TRY(check(r, l->cusparseSpGEMM_workEstimation(PRODUCT, &first, r->rooms[0].data), "SpGEMM: work estimation"));
  BPPSA_TRY(check(r, l->cusparseSpGEMM_compute(PRODUCT, &second, NULL), "SpGEMM: computation"));
  BPPSA_TRY(make_room(r, FIRST_BUFFER + 1, (int64_t)second));
  BPPSA_TRY(check(r, l->cusparseSpGEMM_compute(PRODUCT, &second, r->rooms[1].data), "SpGEMM: computation"));
  BPPSA_TRY(take_entries(r));
  return check(r, l->cusparseSpGEMM_copy(PRODUCT), "SpGEMM: copy");
#undef PRODUCT
}

static const bppsa_product_gpu_rival full = {{"cusparse", "full", create, NULL, run_full, read_result, destroy}, clear_result};

/* ---- cusparseSpGEMMreuse ---- */

#if BPPSA_CUSPARSE_REUSE
/* Estimates the work, counts C's entries and writes its columns. Buffers 1 to 3 are not needed after that. */
static bppsa_status plan_reuse(void *state) {
  rival *r = state;
  const cusparse_library *l = r->l;
  size_t sizes[BUFFERS] = {0};
#define PRODUCT r->handle, OPERATION, r->a, r->b, r->c, ALGORITHM, r->work
#define BUFFER(i) &sizes[i], r->rooms[i].data
  BPPSA_TRY(check(r, l->cusparseSpGEMM_createDescr(&r->work), "SpGEMMreuse"));
  BPPSA_TRY(check(r, l->cusparseSpGEMMreuse_workEstimation(PRODUCT, BUFFER(0)), "SpGEMMreuse: work estimation"));
  BPPSA_TRY(make_room(r, 0, (int64_t)sizes[0]));
  BPPSA_TRY(check(r, l->cusparseSpGEMMreuse_workEstimation(PRODUCT, BUFFER(0)), "SpGEMMreuse: work estimation"));
  BPPSA_TRY(check(r, l->cusparseSpGEMMreuse_nnz(PRODUCT, BUFFER(1), BUFFER(2), BUFFER(3)), "SpGEMMreuse: entries"));
  for (int i = 1; i < 4; ++i) {
    BPPSA_TRY(make_room(r, i, (int64_t)sizes[i]));
  }
  BPPSA_TRY(check(r, l->cusparseSpGEMMreuse_nnz(PRODUCT, BUFFER(1), BUFFER(2), BUFFER(3)), "SpGEMMreuse: entries"));
  leave_room(r, 0);
  leave_room(r, 1);
  BPPSA_TRY(take_entries(r));
  BPPSA_TRY(check(r, l->cusparseSpGEMMreuse_copy(PRODUCT, BUFFER(4)), "SpGEMMreuse: copy"));
  BPPSA_TRY(make_room(r, 4, (int64_t)sizes[4]));
  BPPSA_TRY(check(r, l->cusparseSpGEMMreuse_copy(PRODUCT, BUFFER(4)), "SpGEMMreuse: copy"));
  leave_room(r, 2);
  return bppsa_device_wait(r->device);
#undef BUFFER
#undef PRODUCT
}

static bppsa_status run_reuse(void *state) {
  rival *r = state;
  return check(
      r, r->l->cusparseSpGEMMreuse_compute(r->handle, OPERATION, &one, r->a, r->b, &zero, r->c, CUDA_R_32F, ALGORITHM, r->work),
      "SpGEMMreuse: computation");
}

static const bppsa_product_gpu_rival reuse = {{"cusparse-reuse", "numeric", create, plan_reuse, run_reuse, read_result, destroy},
                                              clear_result};

const bppsa_product_rival *const bppsa_product_cusparse_rivals[BPPSA_PRODUCT_LIBRARY_RIVALS] = {&reuse.rival, &full.rival, NULL};
#else
const bppsa_product_rival *const bppsa_product_cusparse_rivals[BPPSA_PRODUCT_LIBRARY_RIVALS] = {&full.rival, NULL};
#endif
