#include "cnn/prune.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"

enum { DIGIT_BITS = 16, DIGITS = 1 << DIGIT_BITS };

const char *bppsa_prune_method_name(bppsa_prune_method method) {
  static const char *const names[BPPSA_PRUNE_METHODS] = {"class-blind", "class-uniform", "class-distribution"};
  return names[method];
}

/* The weights that are kept or pruned together: in a tensor of rows by width, blocks of `high` rows by `wide` columns. */
typedef struct {
  const bppsa_view *view;
  int64_t rows, width, high, wide, across, count; /* across: units side by side */
} units;

static units units_of(const bppsa_view *view, bppsa_prune_structure structure) {
  units u = {.view = view, .rows = view->ndim > 0 ? view->shape[0] : 1, .high = 1, .wide = 1};
  u.width = u.rows > 0 ? bppsa_view_count(view) / u.rows : 0;
  if (structure.kind == BPPSA_STRUCTURE_CHANNEL) {
    u.wide = u.width > 0 ? u.width : 1;
  } else if (structure.kind == BPPSA_STRUCTURE_BLOCK) {
    u.high = structure.size[0];
    u.wide = structure.size[1];
  }
  u.across = u.width / u.wide + (u.width % u.wide != 0);
  u.count = (u.rows / u.high + (u.rows % u.high != 0)) * u.across;
  return u;
}

static int64_t end_of(int64_t first, int64_t size, int64_t all) {
  return size < all - first ? first + size : all;
}

/* The first row and column of a unit, and where they end. */
typedef struct {
  int64_t top, bottom, left, right;
} place;

static place place_of(const units *u, int64_t unit) {
  place p = {.top = unit / u->across * u->high, .left = unit % u->across * u->wide};
  p.bottom = end_of(p.top, u->high, u->rows);
  p.right = end_of(p.left, u->wide, u->width);
  return p;
}

static bool is_weight(const units *u) {
  return u->high == 1 && u->wide == 1;
}

/* The root mean square of a unit's weights. */
static double magnitude_of(const units *u, int64_t unit) {
  if (is_weight(u)) {
    return fabs(bppsa_view_get(u->view, unit));
  }
  const place p = place_of(u, unit);
  double sum = 0;
  for (int64_t r = p.top; r < p.bottom; ++r) {
    for (int64_t c = p.left; c < p.right; ++c) {
      const double weight = bppsa_view_get(u->view, r * u->width + c);
      sum += weight * weight;
    }
  }
  return sqrt(sum / (double)((p.bottom - p.top) * (p.right - p.left)));
}

static void set_unit(const units *u, int64_t unit, uint8_t kept, uint8_t *mask) {
  if (is_weight(u)) {
    mask[unit] = kept;
    return;
  }
  const place p = place_of(u, unit);
  for (int64_t r = p.top; r < p.bottom; ++r) {
    memset(mask + r * u->width + p.left, kept, (size_t)(p.right - p.left));
  }
}

/* Tensors that share a threshold. */
typedef struct {
  int64_t count;
  const units *weights;      /* size count */
  const double *scales;      /* divisors of magnitudes, size count */
  double *const *magnitudes; /* of their units, size count; NULL: a unit is a weight, whose magnitude is read */
} group;

/* Returns the bits of a unit's scaled magnitude, which increase with the magnitude, since it is not negative. */
static uint64_t key_of(const group *g, int64_t tensor, int64_t i) {
  const double magnitude = g->magnitudes != NULL ? g->magnitudes[tensor][i] : magnitude_of(&g->weights[tensor], i);
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
      for (int64_t i = 0; i < g->weights[t].count; ++i) {
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

/* Prunes the round(fraction · units) units of the group that have the smallest keys. */
static void prune_group(const group *g, double fraction, int64_t *histogram, uint8_t *const *masks) {
  int64_t all = 0, below = 0;
  for (int64_t t = 0; t < g->count; ++t) {
    all += g->weights[t].count;
  }
  const int64_t gone = (int64_t)llround(fraction * (double)all);
  const uint64_t last = gone > 0 ? find_key(g, gone, histogram, &below) : 0;
  int64_t equals = gone - below; /* how many units with the last key are pruned: the first ones */
  for (int64_t t = 0; t < g->count; ++t) {
    for (int64_t i = 0; i < g->weights[t].count; ++i) {
      const uint64_t key = key_of(g, t, i);
      set_unit(&g->weights[t], i, gone == 0 || key > last || (key == last && equals-- <= 0), masks[t]);
    }
  }
}

/* Keeps the n largest weights of every m input channels at each tap; of equal ones the last, as thresholds do. */
static void prune_n_of_m(const bppsa_view *view, bppsa_prune_structure structure, uint8_t *mask) {
  const units u = units_of(view, structure);
  const int64_t channels = view->ndim > 1 ? view->shape[1] : 1, taps = channels > 0 ? u.width / channels : 0;
  const int64_t n = structure.size[0], m = structure.size[1];
  for (int64_t line = 0; line < u.rows * taps; ++line) {
    const int64_t at = line / taps * u.width + line % taps;
    for (int64_t first = 0; first < channels; first += m < channels ? m : channels) {
      const int64_t end = end_of(first, m, channels);
      for (int64_t c = first; c < end; ++c) {
        const double weight = fabs(bppsa_view_get(view, at + c * taps));
        int64_t larger = 0;
        for (int64_t other = first; other < end; ++other) {
          const double rival = fabs(bppsa_view_get(view, at + other * taps));
          larger += rival > weight || (rival == weight && other > c);
        }
        mask[at + c * taps] = larger < n;
      }
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

static bppsa_status check_request(bppsa_prune_method method, bppsa_prune_structure structure, double fraction) {
  if ((unsigned)method >= BPPSA_PRUNE_METHODS || !(fraction >= 0 && fraction <= 1)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "prune: method %d, fraction %g, expected a known one and 0 .. 1", (int)method,
                      fraction);
  }
  const bool sized = structure.kind == BPPSA_STRUCTURE_BLOCK || structure.kind == BPPSA_STRUCTURE_N_OF_M;
  const bool ordered = structure.kind != BPPSA_STRUCTURE_N_OF_M || structure.size[0] <= structure.size[1];
  return (unsigned)structure.kind < BPPSA_STRUCTURES && (!sized || (structure.size[0] >= 1 && structure.size[1] >= 1 && ordered))
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "prune: structure %d of %lld and %lld, expected sizes of 1 or more, N at most M",
                          (int)structure.kind, (long long)structure.size[0], (long long)structure.size[1]);
}

/* The arrays of a call. */
typedef struct {
  units *weights;
  double *scales, **magnitudes;
  int64_t *histogram;
} arrays;

static void free_arrays(arrays *a, int64_t count) {
  for (int64_t i = 0; a->magnitudes != NULL && i < count; ++i) {
    bppsa_free(a->magnitudes[i]);
  }
  bppsa_free(a->weights);
  bppsa_free(a->scales);
  bppsa_free(a->magnitudes);
  bppsa_free(a->histogram);
}

/* Lists the units of all tensors. Magnitudes of units of several weights are computed once. */
static bppsa_status make_arrays(bppsa_prune_method method, bppsa_prune_structure structure, int64_t count,
                                const bppsa_named_view *weights, arrays *a) {
  const bool several = structure.kind != BPPSA_STRUCTURE_ELEMENT;
  a->weights = bppsa_calloc(count, sizeof *a->weights);
  a->scales = bppsa_calloc(count, sizeof *a->scales);
  a->histogram = bppsa_calloc(DIGITS, sizeof *a->histogram);
  a->magnitudes = several ? bppsa_calloc(count, sizeof *a->magnitudes) : NULL;
  if (a->weights == NULL || a->scales == NULL || a->histogram == NULL || (several && a->magnitudes == NULL)) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    a->weights[i] = units_of(&weights[i].view, structure);
    a->scales[i] = method == BPPSA_PRUNE_CLASS_DISTRIBUTION ? deviation(&weights[i].view) : 1;
    if (several) {
      a->magnitudes[i] = bppsa_calloc(a->weights[i].count, sizeof *a->magnitudes[i]);
      if (a->magnitudes[i] == NULL) {
        return BPPSA_ERR_MEMORY;
      }
      for (int64_t k = 0; k < a->weights[i].count; ++k) {
        a->magnitudes[i][k] = magnitude_of(&a->weights[i], k);
      }
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_prune_structured(bppsa_prune_method method, bppsa_prune_structure structure, double fraction, int64_t count,
                                    const bppsa_named_view *weights, uint8_t *const *masks, bppsa_prune_layer *layers) {
  BPPSA_REQUIRE(weights != NULL && masks != NULL);
  BPPSA_TRY(check_request(method, structure, fraction));
  for (int64_t i = 0; i < count; ++i) {
    BPPSA_TRY(check_weights(&weights[i]));
  }
  arrays a = {.weights = NULL};
  const bool thresholds = structure.kind != BPPSA_STRUCTURE_N_OF_M, uniform = method == BPPSA_PRUNE_CLASS_UNIFORM;
  const bppsa_status status = thresholds ? make_arrays(method, structure, count, weights, &a) : BPPSA_OK;
  for (int64_t i = 0; status == BPPSA_OK && thresholds && i < (uniform ? count : 1); ++i) {
    const group g = {uniform ? 1 : count, a.weights + i, a.scales + i, a.magnitudes != NULL ? a.magnitudes + i : NULL};
    prune_group(&g, fraction, a.histogram, masks + i);
  }
  for (int64_t i = 0; !thresholds && i < count; ++i) {
    prune_n_of_m(&weights[i].view, structure, masks[i]);
  }
  for (int64_t i = 0; status == BPPSA_OK && layers != NULL && i < count; ++i) {
    describe(&weights[i].view, masks[i], &layers[i]);
  }
  free_arrays(&a, count);
  return status;
}

bppsa_status bppsa_prune(bppsa_prune_method method, double fraction, int64_t count, const bppsa_named_view *weights,
                         uint8_t *const *masks, bppsa_prune_layer *layers) {
  return bppsa_prune_structured(method, (bppsa_prune_structure){BPPSA_STRUCTURE_ELEMENT, {1, 1}}, fraction, count, weights, masks,
                                layers);
}

/* Reads a whole number of 1 to 2^31 - 1 at *text, and moves behind it. */
static bool read_size(const char **text, int64_t *size) {
  int64_t value = 0;
  const char *at = *text;
  for (; *at >= '0' && *at <= '9' && value <= INT32_MAX; ++at) {
    value = 10 * value + (*at - '0');
  }
  const bool good = at > *text && value >= 1 && value <= INT32_MAX;
  *text = at;
  *size = value;
  return good;
}

bppsa_status bppsa_prune_structure_parse(const char *text, bppsa_prune_structure *structure) {
  BPPSA_REQUIRE(text != NULL && structure != NULL);
  static const char block[] = "block:";
  const bool blocks = strncmp(text, block, sizeof block - 1) == 0, whole = strcmp(text, "channel") == 0;
  bppsa_prune_structure made = {whole ? BPPSA_STRUCTURE_CHANNEL : BPPSA_STRUCTURE_ELEMENT, {1, 1}};
  if (!whole && strcmp(text, "element") != 0) {
    const char *at = text + (blocks ? sizeof block - 1 : 0);
    made.kind = blocks ? BPPSA_STRUCTURE_BLOCK : BPPSA_STRUCTURE_N_OF_M;
    bool good = read_size(&at, &made.size[0]) && *at++ == (blocks ? 'x' : ':');
    good = good && read_size(&at, &made.size[1]) && *at == '\0';
    if (!good || (!blocks && made.size[0] > made.size[1])) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "structure '%.40s', expected element, channel, block:RxC or N:M, N at most M", text);
    }
  }
  *structure = made;
  return BPPSA_OK;
}

const char *bppsa_prune_structure_text(bppsa_prune_structure structure, char text[BPPSA_STRUCTURE_TEXT]) {
  const bool blocks = structure.kind == BPPSA_STRUCTURE_BLOCK;
  if (structure.kind == BPPSA_STRUCTURE_ELEMENT || structure.kind == BPPSA_STRUCTURE_CHANNEL) {
    return structure.kind == BPPSA_STRUCTURE_ELEMENT ? "element" : "channel";
  }
  snprintf(text, BPPSA_STRUCTURE_TEXT, "%s%lld%c%lld", blocks ? "block:" : "", (long long)structure.size[0], blocks ? 'x' : ':',
           (long long)structure.size[1]);
  return text;
}
