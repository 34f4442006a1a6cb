#include "train/data/lengths.h"

#include <string.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "core/files/npy.h"

static bppsa_status check(const char *path, const bppsa_view *view, int64_t samples, int64_t steps) {
  BPPSA_TRY(bppsa_view_check_shape(path, view, "one length a sample", 1, &samples));
  const int64_t *values = view->data;
  for (int64_t i = 0; i < samples; ++i) {
    if (values[i] < 1 || values[i] > steps) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: length %lld at [%lld], expected 1 .. %lld, the steps of the inputs", path,
                        (long long)values[i], (long long)i, (long long)steps);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_lengths_load(const char *path, int64_t samples, int64_t steps, int64_t **lengths) {
  BPPSA_REQUIRE(path != NULL && lengths != NULL);
  bppsa_buffer array = {0};
  BPPSA_TRY(bppsa_npy_load(path, &array));
  bppsa_status status = bppsa_npy_to_whole(path, &array);
  status = status == BPPSA_OK           ? check(path, &array.view, samples, steps)
           : status == BPPSA_ERR_FORMAT ? bppsa_fail(status, "%s lengths", bppsa_last_error())
                                        : status;
  int64_t *made = status == BPPSA_OK ? bppsa_calloc(samples, sizeof *made) : NULL;
  if (made != NULL) {
    memcpy(made, array.view.data, (size_t)samples * sizeof *made);
    *lengths = made;
  }
  bppsa_buffer_free(&array);
  return status == BPPSA_OK && made == NULL ? BPPSA_ERR_MEMORY : status;
}

bppsa_status bppsa_dataset_load_lengths(bppsa_dataset *dataset, const char *path) {
  BPPSA_REQUIRE(dataset != NULL && path != NULL);
  int64_t *lengths = NULL;
  if (dataset->image[0] > 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: lengths of images, expected sequences", path);
  }
  BPPSA_TRY(bppsa_lengths_load(path, dataset->samples, dataset->seq_len, &lengths));
  const uLong sum = crc32_z(crc32_z(0, NULL, 0), (const Bytef *)lengths, (size_t)dataset->samples * sizeof *lengths);
  dataset->identity ^= (uint64_t)sum << 16 | 1;
  bppsa_free(dataset->lengths);
  dataset->lengths = lengths;
  return BPPSA_OK;
}
