#include "train/order.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "core/files/npy.h"
#include "train/data/dataset.h"

bppsa_status bppsa_order_load(const char *path, bppsa_buffer *indices, bppsa_order *order) {
  bppsa_buffer loaded = {0};
  const bppsa_view *view = &loaded.view;
  BPPSA_TRY(bppsa_input_status(bppsa_npy_load(path, &loaded)));
  const bool real = view->dtype == BPPSA_F32 || view->dtype == BPPSA_F64 || view->dtype == BPPSA_F16;
  if (real || view->ndim < 1 || view->ndim > 2 || bppsa_view_count(view) == 0) {
    char shape[BPPSA_SHAPE_TEXT];
    const bppsa_status status =
        bppsa_fail(BPPSA_ERR_SHAPE, "%s: %s %s, expected int64 indices of samples, [M] or [E, M], at least one", path,
                   bppsa_dtype_name(view->dtype), bppsa_shape_text(view->ndim, view->shape, shape, sizeof shape));
    bppsa_buffer_free(&loaded);
    return status;
  }
  const bppsa_status whole = bppsa_npy_to_whole(path, &loaded);
  if (whole != BPPSA_OK) {
    bppsa_buffer_free(&loaded);
    return whole;
  }
  *order = (bppsa_order){.kind = BPPSA_ORDER_GIVEN,
                         .indices = view->data,
                         .epochs = view->ndim == 2 ? view->shape[0] : 0,
                         .samples = view->shape[view->ndim - 1],
                         .where = path};
  *indices = loaded;
  return BPPSA_OK;
}

int64_t bppsa_order_samples(const bppsa_order *order, int64_t count) {
  return order->kind == BPPSA_ORDER_GIVEN ? order->samples : count;
}

bppsa_status bppsa_order_check(const bppsa_order *order, int64_t count, int64_t epochs) {
  BPPSA_REQUIRE(order != NULL);
  const char *where = order->where != NULL ? order->where : "order";
  if (order->kind != BPPSA_ORDER_GIVEN) {
    return BPPSA_OK;
  }
  if (order->samples < 1 || order->epochs < 0 || order->indices == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: no indices, expected at least one sample an epoch", where);
  }
  if (order->epochs > 0 && order->epochs < epochs) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: the order of %lld epochs, expected %lld as the run has", where,
                      (long long)order->epochs, (long long)epochs);
  }
  const int64_t rows = order->epochs > 0 ? order->epochs : 1;
  for (int64_t i = 0; i < rows * order->samples; ++i) {
    if (order->indices[i] < 0 || order->indices[i] >= count) {
      char position[BPPSA_SHAPE_TEXT];
      const int64_t index[2] = {i / order->samples, i % order->samples};
      const bool one = order->epochs == 0;
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: index %lld at %s, expected 0 .. %lld, the samples to train on", where,
                        (long long)order->indices[i],
                        bppsa_shape_text(one ? 1 : 2, one ? index + 1 : index, position, sizeof position), (long long)count - 1);
    }
  }
  return BPPSA_OK;
}

void bppsa_order_fill(const bppsa_order *order, uint64_t seed, int64_t epoch, int64_t count, int64_t *indices) {
  switch (order->kind) {
  case BPPSA_ORDER_SHUFFLED:
    bppsa_shuffle(seed, epoch, count, indices);
    break;
  case BPPSA_ORDER_DATA:
    for (int64_t i = 0; i < count; ++i) {
      indices[i] = i;
    }
    break;
  case BPPSA_ORDER_GIVEN: {
    const int64_t row = order->epochs > 0 ? epoch - 1 : 0;
    memcpy(indices, order->indices + row * order->samples, (size_t)order->samples * sizeof *indices);
    break;
  }
  }
}

const char *bppsa_order_text(const bppsa_order *order, char *text, size_t size) {
  if (order->kind != BPPSA_ORDER_GIVEN) {
    (void)snprintf(text, size, "%s", order->kind == BPPSA_ORDER_DATA ? "data" : "shuffled");
    return text;
  }
  const size_t count = (size_t)((order->epochs > 0 ? order->epochs : 1) * order->samples);
  const uLong sum = crc32_z(0, (const Bytef *)order->indices, count * sizeof *order->indices);
  (void)snprintf(text, size, "given %lld %lld %08lx", (long long)order->epochs, (long long)order->samples, sum);
  return text;
}
