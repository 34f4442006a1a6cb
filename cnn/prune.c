#include "cnn/prune.h"

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"

enum { DIGIT_BITS = 16, DIGITS = 1 << DIGIT_BITS };

const char *bppsa_prune_method_name(bppsa_prune_method method) {
  static const char *const names[BPPSA_PRUNE_METHODS] = {"class-blind", "class-uniform", "class-distribution"};
  return names[method];
}

/* Tensors that share a threshold. */
typedef struct {
  int64_t count;
  const bppsa_named_view *weights; /* size count */
  const double *scales;            /* divisors of magnitudes, size count */
} group;

/* Returns the bits of a weight's scaled magnitude, which increase with the magnitude, since it is not negative. */
static uint64_t key_of(const group *g, int64_t tensor, int64_t i) {
  const double magnitude = fabs(bppsa_view_get(&g->weights[tensor].view, i));
  /* a scale of 0 gives infinity: the weight is pruned last */
  const double key = magnitude == 0 ? 0 : magnitude / g->scales[tensor];
  uint64_t bits;
  memcpy(&bits, &key, sizeof bits);
  return bits;
}

/* Finds the k-th smallest key, k >= 1, digit by digit from the highest; *below: the number of smaller keys. */
static uint64_t find_key(const group *g, int64_t k, int64_t *histogram, int64_t *below) {
  uint64_t prefix = 0, known = 0;
  *below = 0;
  for (int shift = 64 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
    memset(histogram, 0, DIGITS * sizeof *histogram);
    for (int64_t t = 0; t < g->count; ++t) {
      for (int64_t i = 0; i < bppsa_view_count(&g->weights[t].view); ++i) {
        const uint64_t key = key_of(g, t, i);
        histogram[key >> shift & (DIGITS - 1)] += (key & known) == prefix;
      }
    }
    uint64_t digit = 0;
    while (*below + histogram[digit] < k) {
      *below += histogram[digit++];
    }
    prefix |= digit << shift;
    known |= (uint64_t)(DIGITS - 1) << shift;
  }
  return prefix;
}

/* Prunes the round(fraction · weights) weights of the group that have the smallest keys. */
static void prune_group(const group *g, double fraction, int64_t *histogram, uint8_t *const *masks) {
  int64_t all = 0, below = 0;
  for (int64_t t = 0; t < g->count; ++t) {
    all += bppsa_view_count(&g->weights[t].view);
  }
  const int64_t gone = (int64_t)llround(fraction * (double)all);
  const uint64_t last = gone > 0 ? find_key(g, gone, histogram, &below) : 0;
  int64_t equals = gone - below; /* how many weights with the last key are pruned: the first ones */
  for (int64_t t = 0; t < g->count; ++t) {
    for (int64_t i = 0; i < bppsa_view_count(&g->weights[t].view); ++i) {
      const uint64_t key = key_of(g, t, i);
      masks[t][i] = gone == 0 || key > last || (key == last && equals-- <= 0);
    }
  }
}

static double deviation(const bppsa_view *weights) {
  const int64_t count = bppsa_view_count(weights);
  double mean = 0, sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    mean += bppsa_view_get(weights, i) / (double)count;
  }
  for (int64_t i = 0; i < count; ++i) {
    const double d = bppsa_view_get(weights, i) - mean;
    sum += d * d / (double)count;
  }
  return sqrt(sum);
}

static void describe(const bppsa_view *weights, const uint8_t *mask, bppsa_prune_layer *layer) {
  const int64_t count = bppsa_view_count(weights), rows = weights->ndim > 0 ? weights->shape[0] : 1;
  const int64_t width = rows > 0 ? count / rows : 0;
  *layer = (bppsa_prune_layer){.weights = count, .rows = rows};
  for (int64_t r = 0; r < rows; ++r) {
    int64_t kept = 0;
    for (int64_t i = r * width; i < (r + 1) * width; ++i) {
      const double magnitude = fabs(bppsa_view_get(weights, i));
      kept += mask[i] != 0;
      layer->threshold = mask[i] == 0 && magnitude > layer->threshold ? magnitude : layer->threshold;
    }
    layer->kept += kept;
    layer->empty += kept == 0;
  }
}

static bppsa_status check_weights(const bppsa_named_view *weights) {
  const bppsa_view *v = &weights->view;
  if ((v->dtype != BPPSA_F32 && v->dtype != BPPSA_F64) || v->device != BPPSA_CPU || !bppsa_view_contiguous(v)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "prune: %s is %s, expected a contiguous array of f32 or f64 in host memory",
                      weights->name, bppsa_view_dtype_name(v));
  }
  for (int64_t i = 0; i < bppsa_view_count(v); ++i) {
    if (!isfinite(bppsa_view_get(v, i))) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "prune: element %lld of %s is not finite, expected finite weights", (long long)i,
                        weights->name);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_prune(bppsa_prune_method method, double fraction, int64_t count, const bppsa_named_view *weights,
                         uint8_t *const *masks, bppsa_prune_layer *layers) {
  BPPSA_REQUIRE(weights != NULL && masks != NULL);
  if ((unsigned)method >= BPPSA_PRUNE_METHODS || !(fraction >= 0 && fraction <= 1)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "prune: method %d, fraction %g, expected a known one and 0 .. 1", (int)method,
                      fraction);
  }
  for (int64_t i = 0; i < count; ++i) {
    BPPSA_TRY(check_weights(&weights[i]));
  }
  double *scales = bppsa_calloc(count, sizeof *scales);
  int64_t *histogram = bppsa_calloc(DIGITS, sizeof *histogram);
  const bool ready = scales != NULL && histogram != NULL, uniform = method == BPPSA_PRUNE_CLASS_UNIFORM;
  for (int64_t i = 0; ready && i < count; ++i) {
    scales[i] = method == BPPSA_PRUNE_CLASS_DISTRIBUTION ? deviation(&weights[i].view) : 1;
  }
  for (int64_t i = 0; ready && i < (uniform ? count : 1); ++i) {
    const group g = {uniform ? 1 : count, weights + i, scales + i};
    prune_group(&g, fraction, histogram, masks + i);
  }
  for (int64_t i = 0; ready && layers != NULL && i < count; ++i) {
    describe(&weights[i].view, masks[i], &layers[i]);
  }
  bppsa_free(scales);
  bppsa_free(histogram);
  return ready ? BPPSA_OK : BPPSA_ERR_MEMORY;
}
