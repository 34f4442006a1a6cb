/* Mat-vecs: arguments, memory, dispatch. */
#include "jacobian/apply.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory_internal.h"
#include "jacobian/apply_internal.h"
#include "jacobian/gpu_cost.h"

static int64_t pointer_bytes(const bppsa_csr *csr) {
  return (csr->rows + 1) * (int64_t)sizeof *csr->row_ptr;
}

int64_t bppsa_apply_bytes(const bppsa_csr *csr, const bppsa_device *device) {
  return bppsa_device_get_kind(device) == BPPSA_CPU || csr->identity ? 0
                                                                     : pointer_bytes(csr) + csr->nnz * (int64_t)sizeof *csr->col;
}

double bppsa_apply_gpu_seconds(const bppsa_csr *csr, bppsa_dtype dtype, int64_t batch, int64_t together) {
  /* work: entries; four samples are computed together, each with values of its own */
  static const bppsa_gpu_cost one = {APPLY_TOGETHER, 44, 4 * 32}, four = {APPLY_TOGETHER, 53, 2 * 32};
  const double size = (double)bppsa_dtype_size(dtype), samples = (double)batch,
               passes = batch > 1 ? (double)((batch + 3) / 4) : 1;
  const double entries = csr->identity ? 0 : (double)csr->nnz, column = sizeof *csr->col;
  const double bytes = entries * (column * passes + size * samples) + size * samples * (double)(csr->rows + csr->cols);
  return bppsa_gpu_cost_seconds(batch > 1 ? &four : &one, together, passes, entries, bytes / passes);
}

/* Copies the pattern to the GPU. A row gets so many threads that each has about four entries of it. */
static bppsa_status move_pattern(bppsa_apply *a, const bppsa_device *device) {
  const bppsa_csr *csr = a->csr;
  void *memory = NULL;
  if (csr->rows > (int64_t)INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "mat-vec on a GPU: %lld rows, expected fewer than 2^31", (long long)csr->rows);
  }
  for (a->lanes = 1; a->lanes < 32 && 4 * a->lanes * csr->rows < csr->nnz;) {
    a->lanes *= 2;
  }
  if (csr->identity) {
    return BPPSA_OK;
  }
  const bppsa_status had = bppsa_cuda_alloc(a->index, bppsa_apply_bytes(csr, device), &memory);
  if (had != BPPSA_OK) {
    return bppsa_fail_prefix(had, "mat-vec %lld x %lld", (long long)csr->rows, (long long)csr->cols);
  }
  a->row_ptr = memory;
  a->col = (int32_t *)(void *)((char *)memory + pointer_bytes(csr));
  BPPSA_TRY(bppsa_cuda_put(a->index, a->stream, a->row_ptr, csr->row_ptr, pointer_bytes(csr)));
  return csr->nnz == 0 ? BPPSA_OK : bppsa_cuda_put(a->index, a->stream, a->col, csr->col, csr->nnz * (int64_t)sizeof *csr->col);
}

bppsa_status bppsa_apply_create(const bppsa_csr *csr, bppsa_dtype dtype, const bppsa_device *device, bppsa_apply **apply) {
  BPPSA_REQUIRE(csr != NULL && apply != NULL);
  if (dtype != BPPSA_F32 && dtype != BPPSA_F64) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "mat-vec: dtype %s, expected f32 or f64", bppsa_dtype_name(dtype));
  }
  if (csr->ones != NULL && bppsa_device_get_kind(device) == BPPSA_CUDA) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "mat-vec: ones beside entries on a GPU, expected a processor");
  }
  bppsa_apply *a = bppsa_calloc(1, sizeof *a);
  if (a == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *a = (bppsa_apply){.csr = csr,
                     .dtype = dtype,
                     .threads = bppsa_device_get_threads(device),
                     .on_gpu = bppsa_device_get_kind(device) == BPPSA_CUDA,
                     .index = bppsa_device_get_index(device),
                     .stream = bppsa_device_get_stream(device)};
  const bppsa_status status = a->on_gpu ? move_pattern(a, device) : BPPSA_OK;
  if (status != BPPSA_OK) {
    bppsa_apply_destroy(a);
    return status;
  }
  *apply = a;
  return BPPSA_OK;
}

void bppsa_apply_destroy(bppsa_apply *a) {
  if (a != NULL && a->row_ptr != NULL) {
    bppsa_cuda_free(a->index, a->row_ptr);
  }
  bppsa_free(a);
}

static void apply_on_cpu(const bppsa_apply_pass *w, int64_t batch) {
  const bppsa_apply *a = w->apply;
  if (a->csr->identity) {
    memcpy(w->y, w->x, (size_t)(a->csr->rows * batch) * bppsa_dtype_size(a->dtype));
  } else {
    bppsa_csr_apply(a->csr, a->dtype, a->threads, batch, w->values, w->x, w->y);
  }
}

bppsa_status bppsa_apply_queue(const bppsa_apply_pass *passes, int64_t count, int64_t batch, void *stream) {
  BPPSA_REQUIRE(passes != NULL);
  if (batch < 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "mat-vec: a negative batch, expected 0 or more samples");
  }
  for (int64_t i = 0; i < count; ++i) {
    const bppsa_apply *a = passes[i].apply, *first = passes[0].apply;
    if (a->dtype != first->dtype || a->on_gpu != first->on_gpu || a->index != first->index) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "mat-vec: plans of differing dtypes or devices, expected one dtype and one device");
    }
  }
  if (count > 0 && passes[0].apply->on_gpu) {
    return bppsa_apply_cuda_run(passes, count, batch, stream);
  }
  for (int64_t i = 0; i < count; ++i) {
    apply_on_cpu(&passes[i], batch);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_apply_execute(const bppsa_apply *a, int64_t batch, bppsa_csr_values values, const void *x, void *y) {
  BPPSA_REQUIRE(a != NULL);
  return bppsa_apply_queue(&(bppsa_apply_pass){a, values, x, y}, 1, batch, a->stream);
}
