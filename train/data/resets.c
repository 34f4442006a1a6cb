#include "train/data/resets.h"

#include <string.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "core/files/npy.h"

static bppsa_status check(const char *path, const char *words, const bppsa_view *view, const int64_t shape[2]) {
  if (view->dtype != BPPSA_BOOL && view->dtype != BPPSA_U8) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s, expected bool or u8 resets", path, bppsa_dtype_name(view->dtype));
  }
  BPPSA_TRY(bppsa_view_check_shape(path, view, words, 2, shape));
  const uint8_t *values = view->data;
  for (int64_t i = 0; i < shape[0] * shape[1]; ++i) {
    if (values[i] > 1) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %d at [%lld, %lld], expected 0 or 1", path, (int)values[i],
                        (long long)(i / shape[1]), (long long)(i % shape[1]));
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_resets_load(const char *path, const char *words, int64_t rows, int64_t columns, uint8_t **resets) {
  BPPSA_REQUIRE(path != NULL && words != NULL && resets != NULL);
  bppsa_buffer array = {0};
  const int64_t shape[] = {rows, columns};
  BPPSA_TRY(bppsa_npy_load(path, &array));
  const bppsa_status status = check(path, words, &array.view, shape);
  uint8_t *made = status == BPPSA_OK ? bppsa_calloc(rows, (size_t)columns) : NULL;
  if (made != NULL) {
    memcpy(made, array.view.data, (size_t)rows * (size_t)columns);
    *resets = made;
  }
  bppsa_buffer_free(&array);
  return status == BPPSA_OK && made == NULL ? BPPSA_ERR_MEMORY : status;
}

bppsa_status bppsa_dataset_load_resets(bppsa_dataset *dataset, const char *path) {
  BPPSA_REQUIRE(dataset != NULL && path != NULL);
  uint8_t *resets = NULL;
  if (dataset->image[0] > 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: resets of images, expected sequences", path);
  }
  BPPSA_TRY(bppsa_resets_load(path, "[N, T]", dataset->samples, dataset->seq_len, &resets));
  const uLong sum = crc32_z(crc32_z(0, NULL, 0), resets, (size_t)dataset->samples * (size_t)dataset->seq_len);
  dataset->identity ^= (uint64_t)sum << 24 | 2;
  bppsa_free(dataset->resets);
  dataset->resets = resets;
  return BPPSA_OK;
}
