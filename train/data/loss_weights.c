#include "train/data/loss_weights.h"

#include <math.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "core/files/npy.h"

/* Checks the weights, and finds the largest. */
static bppsa_status check(const char *path, const bppsa_view *view, double *largest) {
  const int64_t count = bppsa_view_count(view);
  const double *values = view->data;
  double most = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!(values[i] >= 0)) {
      char text[BPPSA_SHAPE_TEXT];
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: weight %g at %s, expected 0 or more", path, values[i],
                        bppsa_index_text(view, i, text, sizeof text));
    }
    most = values[i] > most ? values[i] : most;
  }
  *largest = most;
  return BPPSA_OK;
}

/* Copies the weights of the rows that the loss has, each times 2^-exponent. They may be on every step of the file. */
static void take(const bppsa_loss_weights_shape *s, const bppsa_view *view, int exponent, double *weights) {
  const double *values = view->data;
  const int64_t count = s->per_step ? s->samples * s->steps : s->samples;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t last = s->lengths != NULL && !s->per_step ? s->lengths[i] - 1 : s->steps - 1;
    const int64_t at = s->per_step || view->ndim == 1 ? i : s->time_first ? last * s->samples + i : i * s->steps + last;
    weights[i] = ldexp(values[at], -exponent);
  }
}

static bppsa_status load(const char *path, const bppsa_loss_weights_shape *s, const bppsa_view *view, double **weights) {
  const int64_t first = s->time_first ? s->steps : s->samples, second = s->time_first ? s->samples : s->steps;
  const int64_t both[2] = {first, second};
  const bool one = !s->per_step && view->ndim == 1;
  const char *words = s->time_first ? "[T, B]" : "[N, T]", *of_samples = s->time_first ? "[B]" : "[N]";
  double largest = 0;
  int exponent = 0;
  BPPSA_TRY(bppsa_view_check_shape(path, view, one ? of_samples : words, one ? 1 : 2, one ? &s->samples : both));
  BPPSA_TRY(check(path, view, &largest));
  double *made = bppsa_calloc(s->per_step ? s->samples * s->steps : s->samples, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  (void)frexp(largest, &exponent);
  take(s, view, exponent - 1, made);
  bool any = false;
  for (int64_t i = 0; i < (s->per_step ? s->samples * s->steps : s->samples); ++i) {
    any = any || made[i] > 0;
  }
  if (!any) {
    bppsa_free(made);
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: all weights%s are 0, expected at least one above 0", path,
                      s->per_step || one ? "" : " of last steps");
  }
  *weights = made;
  return BPPSA_OK;
}

bppsa_status bppsa_loss_weights_load(const char *path, const bppsa_loss_weights_shape *shape, double **weights) {
  BPPSA_REQUIRE(path != NULL && shape != NULL && weights != NULL);
  bppsa_buffer array = {0};
  BPPSA_TRY(bppsa_npy_load_reals(path, BPPSA_F64, &array));
  const bppsa_status status = load(path, shape, &array.view, weights);
  bppsa_buffer_free(&array);
  return status;
}

bppsa_status bppsa_dataset_load_loss_weights(bppsa_dataset *dataset, const char *path) {
  BPPSA_REQUIRE(dataset != NULL && path != NULL);
  double *weights = NULL;
  if (dataset->image[0] > 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: loss weights of images, expected sequences", path);
  }
  const bppsa_loss_weights_shape shape = {
      .samples = dataset->samples, .steps = dataset->seq_len, .per_step = dataset->labels_per_step, .lengths = dataset->lengths};
  BPPSA_TRY(bppsa_loss_weights_load(path, &shape, &weights));
  const size_t count = (size_t)dataset->samples * (size_t)(dataset->labels_per_step ? dataset->seq_len : 1);
  const uLong sum = crc32_z(crc32_z(0, NULL, 0), (const Bytef *)weights, count * sizeof *weights);
  dataset->identity ^= (uint64_t)sum << 8 | 4;
  bppsa_free(dataset->loss_weights);
  dataset->loss_weights = weights;
  return BPPSA_OK;
}
