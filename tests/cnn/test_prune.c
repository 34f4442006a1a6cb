/* Pruning by magnitude, against sorting; masks in a model. */
#include <math.h>
#include <stdlib.h>

#include "cnn/prune.h"
#include "tests/cnn/chains.h"

enum { TENSORS = 4 };

typedef struct {
  double key;
  int64_t place; /* among all weights */
} sorted;

static int compare(const void *a, const void *b) {
  const sorted *x = a, *y = b;
  return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : (x->place > y->place) - (x->place < y->place);
}

typedef struct {
  int64_t size[TENSORS], all;
  double *values[TENSORS];
  void *typed[TENSORS];
  bppsa_named_view views[TENSORS];
  uint8_t *masks[TENSORS];
} weights;

static void make_weights(weights *w) {
  *w = (weights){.size = {60, 7, 1, 200}};
  for (int t = 0; t < TENSORS; ++t) {
    const bppsa_dtype dtype = t % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    w->values[t] = uniform((uint64_t)t, w->size[t], 0.1 * (t + 1));
    for (int64_t i = 0; i < w->size[t]; i += 5) {
      w->values[t][i] = i % 10 == 0 ? 0.0 : -0.05; /* ties, zeros */
    }
    w->typed[t] = rounded(dtype, w->values[t], w->size[t]);
    w->views[t] = (bppsa_named_view){"w", bppsa_view_make(w->typed[t], dtype, 1, &w->size[t])};
    w->masks[t] = bppsa_alloc((size_t)w->size[t]);
    w->all += w->size[t];
  }
}

static void free_weights(weights *w) {
  for (int t = 0; t < TENSORS; ++t) {
    bppsa_free(w->values[t]);
    bppsa_free(w->typed[t]);
    bppsa_free(w->masks[t]);
  }
}

static double spread(const double *v, int64_t n) {
  double mean = 0, sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    mean += v[i] / (double)n;
  }
  for (int64_t i = 0; i < n; ++i) {
    sum += (v[i] - mean) * (v[i] - mean) / (double)n;
  }
  return sqrt(sum);
}

/* Tensors from .. to-1 share a threshold: the weights at the front of the sorted list must be pruned, and no others. */
static void check_group(const weights *w, int from, int to, bool scaled, double fraction) {
  int64_t all = 0;
  for (int t = from; t < to; ++t) {
    all += w->size[t];
  }
  sorted *list = malloc((size_t)all * sizeof *list);
  const uint8_t **mask = malloc((size_t)all * sizeof *mask);
  int64_t at = 0;
  for (int t = from; t < to; ++t) {
    const double scale = scaled ? spread(w->values[t], w->size[t]) : 1;
    for (int64_t i = 0; i < w->size[t]; ++i, ++at) {
      const double magnitude = fabs(w->values[t][i]);
      list[at] = (sorted){magnitude == 0 ? 0 : magnitude / scale, at};
      mask[at] = &w->masks[t][i];
    }
  }
  qsort(list, (size_t)all, sizeof *list, compare);
  const int64_t gone = llround(fraction * (double)all);
  for (int64_t i = 0; i < all; ++i) {
    assert_int_equal(*mask[list[i].place], i >= gone);
  }
  free(list);
  free(mask);
}

static void test_methods(void **state) {
  (void)state;
  static const double fractions[] = {0, 0.01, 0.25, 0.5, 0.97, 1};
  weights w;
  make_weights(&w);
  for (size_t f = 0; f < sizeof fractions / sizeof fractions[0]; ++f) {
    bppsa_prune_layer layers[TENSORS];
    assert_int_equal(bppsa_prune(BPPSA_PRUNE_CLASS_BLIND, fractions[f], TENSORS, w.views, w.masks, layers), BPPSA_OK);
    check_group(&w, 0, TENSORS, false, fractions[f]);
    int64_t kept = 0;
    for (int t = 0; t < TENSORS; ++t) {
      kept += layers[t].kept;
      assert_int_equal(layers[t].weights, w.size[t]);
      assert_int_equal(layers[t].empty, w.size[t] - layers[t].kept); /* rows of one weight */
    }
    assert_int_equal(kept, w.all - llround(fractions[f] * (double)w.all));
    assert_int_equal(bppsa_prune(BPPSA_PRUNE_CLASS_UNIFORM, fractions[f], TENSORS, w.views, w.masks, NULL), BPPSA_OK);
    for (int t = 0; t < TENSORS; ++t) {
      check_group(&w, t, t + 1, false, fractions[f]);
    }
    assert_int_equal(bppsa_prune(BPPSA_PRUNE_CLASS_DISTRIBUTION, fractions[f], TENSORS, w.views, w.masks, NULL), BPPSA_OK);
    check_group(&w, 0, TENSORS, true, fractions[f]);
  }
  free_weights(&w);
}

/* ---- structures ---- */

/* The unit of weight i of [rows][width]: a channel, or a block of `high` rows by `wide` columns. */
static int64_t unit_of(int64_t i, int64_t width, int64_t high, int64_t wide) {
  return i / width / high * ((width + wide - 1) / wide) + i % width / wide;
}

/* Whole units stay or go; those that go have the least root mean square, and their number is the fraction of all. */
static void check_units(const bppsa_named_view *weight, const uint8_t *mask, int64_t high, int64_t wide, double fraction) {
  enum { UNITS = 64 };
  double squares[UNITS] = {0}, least = INFINITY, most = 0;
  int64_t counts[UNITS] = {0}, kept[UNITS] = {0}, units = 0, gone = 0;
  const int64_t count = bppsa_view_count(&weight->view), width = count / weight->view.shape[0];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t unit = unit_of(i, width, high, wide);
    assert_in_range(unit, 0, UNITS - 1);
    squares[unit] += pow(bppsa_view_get(&weight->view, i), 2);
    ++counts[unit];
    kept[unit] += mask[i];
    units = unit >= units ? unit + 1 : units;
  }
  for (int64_t u = 0; u < units; ++u) {
    const double magnitude = sqrt(squares[u] / (double)counts[u]);
    assert_true(kept[u] == 0 || kept[u] == counts[u]);
    gone += kept[u] == 0;
    least = kept[u] > 0 && magnitude < least ? magnitude : least;
    most = kept[u] == 0 && magnitude > most ? magnitude : most;
  }
  assert_true(most <= least);
  assert_int_equal(gone, llround(fraction * (double)units));
}

static void test_structures(void **state) {
  (void)state;
  static const double fractions[] = {0, 0.3, 0.5, 1};
  double *values = uniform(77, 210, 1);
  uint8_t bytes[210], *masks[1] = {bytes};
  const bppsa_named_view weight = {"w", bppsa_view_make(values, BPPSA_F64, 3, (const int64_t[]){7, 5, 6})};
  bppsa_prune_structure structure;
  for (size_t f = 0; f < sizeof fractions / sizeof fractions[0]; ++f) {
    assert_int_equal(bppsa_prune_structure_parse("channel", &structure), BPPSA_OK);
    assert_int_equal(bppsa_prune_structured(BPPSA_PRUNE_CLASS_UNIFORM, structure, fractions[f], 1, &weight, masks, NULL),
                     BPPSA_OK);
    check_units(&weight, bytes, 1, 30, fractions[f]);
    assert_int_equal(bppsa_prune_structure_parse("block:2x4", &structure), BPPSA_OK);
    assert_int_equal(bppsa_prune_structured(BPPSA_PRUNE_CLASS_BLIND, structure, fractions[f], 1, &weight, masks, NULL), BPPSA_OK);
    check_units(&weight, bytes, 2, 4, fractions[f]);
  }
  assert_int_equal(bppsa_prune_structure_parse("2:4", &structure), BPPSA_OK);
  values[6] = -values[0]; /* of equal weights the last stays */
  values[12] = values[18] = 0;
  assert_int_equal(bppsa_prune_structured(BPPSA_PRUNE_CLASS_UNIFORM, structure, 0, 1, &weight, masks, NULL), BPPSA_OK);
  for (int64_t line = 0; line < 7 * 6; ++line) { /* five channels at one tap: four and a remainder */
    const int64_t at = line / 6 * 30 + line % 6;
    int64_t kept = 0;
    for (int64_t c = 0; c < 4; ++c) {
      kept += bytes[at + 6 * c];
      for (int64_t other = 0; other < 4; ++other) {
        assert_true(!(bytes[at + 6 * c] == 0 && bytes[at + 6 * other] != 0) ||
                    fabs(values[at + 6 * c]) <= fabs(values[at + 6 * other]));
      }
    }
    assert_true(kept == 2 && bytes[at + 24] == 1);
  }
  structure.size[0] = 1;
  assert_int_equal(bppsa_prune_structured(BPPSA_PRUNE_CLASS_UNIFORM, structure, 0, 1, &weight, masks, NULL), BPPSA_OK);
  assert_true(bytes[0] == 0 && bytes[6] == 1);
  bppsa_free(values);
}

static void test_structure_texts(void **state) {
  (void)state;
  static const char *const good[] = {"element", "channel", "block:1x16", "block:32x4", "2:4", "4:4", "1:2147483647"};
  static const char *const bad[] = {"",
                                    "Channel",
                                    "channels",
                                    "block",
                                    "block:",
                                    "block:4",
                                    "block:4x",
                                    "block:x4",
                                    "block:0x4",
                                    "block:4x4x",
                                    "4:2",
                                    "0:4",
                                    "2:",
                                    ":4",
                                    "2:4 ",
                                    "-1:4",
                                    "block:4:4",
                                    "2x4",
                                    "2147483648:2147483649",
                                    "1:99999999999999999999"};
  bppsa_prune_structure structure = {BPPSA_STRUCTURES, {9, 9}};
  char text[BPPSA_STRUCTURE_TEXT];
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    if (bppsa_prune_structure_parse(bad[i], &structure) != BPPSA_ERR_ARGUMENT) {
      fail_msg("'%s' is taken", bad[i]);
    }
    assert_message("expected element, channel, block:RxC or N:M, N at most M");
    assert_int_equal(structure.kind, BPPSA_STRUCTURES);
  }
  for (size_t i = 0; i < sizeof good / sizeof good[0]; ++i) {
    assert_int_equal(bppsa_prune_structure_parse(good[i], &structure), BPPSA_OK);
    assert_string_equal(bppsa_prune_structure_text(structure, text), good[i]);
  }
}

static bppsa_status prune_channels(void *argument) {
  weights *w = argument;
  return bppsa_prune_structured(BPPSA_PRUNE_CLASS_BLIND, (bppsa_prune_structure){.kind = BPPSA_STRUCTURE_CHANNEL}, 0.5, TENSORS,
                                w->views, w->masks, NULL);
}

static bppsa_status prune_once(void *argument) {
  weights *w = argument;
  return bppsa_prune(BPPSA_PRUNE_CLASS_BLIND, 0.5, TENSORS, w->views, w->masks, NULL);
}

static void test_errors(void **state) {
  (void)state;
  weights w;
  make_weights(&w);
  assert_int_equal(walk_allocations(prune_once, &w), 3);
  assert_int_equal(walk_allocations(prune_channels, &w), 4 + TENSORS);
  const bppsa_prune_structure none = {BPPSA_STRUCTURES, {1, 1}}, blocks = {BPPSA_STRUCTURE_BLOCK, {0, 1}},
                              many = {BPPSA_STRUCTURE_N_OF_M, {3, 2}};
  for (int i = 0; i < 3; ++i) {
    const bppsa_prune_structure wrong = i == 0 ? none : i == 1 ? blocks : many;
    assert_int_equal(bppsa_prune_structured(BPPSA_PRUNE_CLASS_BLIND, wrong, 0.5, TENSORS, w.views, w.masks, NULL),
                     BPPSA_ERR_ARGUMENT);
    assert_message("expected sizes of 1 or more, N at most M");
  }
  assert_int_equal(bppsa_prune(BPPSA_PRUNE_CLASS_BLIND, 1.5, TENSORS, w.views, w.masks, NULL), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_prune(BPPSA_PRUNE_CLASS_BLIND, NAN, TENSORS, w.views, w.masks, NULL), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_prune(BPPSA_PRUNE_METHODS, 0.5, TENSORS, w.views, w.masks, NULL), BPPSA_ERR_ARGUMENT);
  bppsa_view_set(&w.views[1].view, 3, INFINITY);
  assert_int_equal(bppsa_prune(BPPSA_PRUNE_CLASS_BLIND, 0.5, TENSORS, w.views, w.masks, NULL), BPPSA_ERR_ARGUMENT);
  assert_message("element 3 of w is not finite");
  w.views[1].view.dtype = BPPSA_I64;
  assert_int_equal(bppsa_prune(BPPSA_PRUNE_CLASS_BLIND, 0.5, TENSORS, w.views, w.masks, NULL), BPPSA_ERR_UNSUPPORTED);
  free_weights(&w);
}

/* ---- masks in a network ---- */

/* The masked model's gradients are the dense one's where a weight is kept, and 0 elsewhere. bytes: the weights' masks. */
static void check_gradients(const bppsa_model *dense, const bppsa_model *masked, uint8_t *const *bytes) {
  for (int64_t p = 0; p < dense->parameter_count; ++p) {
    const bppsa_view *got = &masked->parameters[p].gradient, *expected = &dense->parameters[p].gradient;
    double difference = 0, norm = 0;
    for (int64_t k = 0; k < bppsa_view_count(got); ++k) {
      const bool kept = p % 2 == 1 || bytes[p / 2][k] != 0;
      const double reference = kept ? bppsa_view_get(expected, k) : 0, value = bppsa_view_get(got, k);
      assert_true(kept || (value == 0 && bppsa_view_get(&masked->parameters[p].value, k) == 0));
      difference = hypot(difference, value - reference);
      norm = hypot(norm, reference);
    }
    assert_true(norm > 0 && difference < 1e-13 * norm);
  }
}

/* Creates the network with a wrong mask of conv2. */
static void check_bad_masks(const bppsa_cnn_network *network, const bppsa_cnn_config *config, bppsa_device *device,
                            bppsa_named_view *mask) {
  bppsa_model *model = NULL;
  mask->view.shape[0] = 15;
  assert_int_equal(bppsa_cnn_create(network, config, device, &model), BPPSA_ERR_SHAPE);
  assert_message("mask 'conv2.weight': shape [15, 6, 5, 5], expected [16, 6, 5, 5]");
  mask->view.shape[0] = 16;
  mask->view.dtype = BPPSA_DTYPE_COUNT;
  assert_int_equal(bppsa_cnn_create(network, config, device, &model), BPPSA_ERR_UNSUPPORTED);
  mask->name = "conv7.weight";
  assert_int_equal(bppsa_cnn_create(network, config, device, &model), BPPSA_ERR_ARGUMENT);
  assert_message("mask 'conv7.weight': no weight of the network");
}

/* A masked model is the dense model with those weights at 0, and its gradient there is 0; by BP and by every scan. One filter
 * keeps nothing. */
static void test_masked_models(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_builtin("lenet5", &network), BPPSA_OK);
  enum { BATCH = 4, WEIGHTS = 5 };
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = BATCH;
  config.dtype = BPPSA_F64;
  config.method.backward = BPPSA_BACKWARD_BP;
  bppsa_model *dense = NULL;
  assert_int_equal(bppsa_cnn_create(&network, &config, device, &dense), BPPSA_OK);
  bppsa_cnn_init(dense, 4);
  bppsa_named_view weights_[WEIGHTS], masks[WEIGHTS];
  uint8_t *bytes[WEIGHTS];
  for (int i = 0; i < WEIGHTS; ++i) {
    const bppsa_parameter *p = &dense->parameters[2 * i];
    bytes[i] = bppsa_alloc((size_t)bppsa_view_count(&p->value));
    weights_[i] = (bppsa_named_view){p->name, p->value};
    masks[i] = (bppsa_named_view){p->name, bppsa_view_make(bytes[i], BPPSA_BOOL, p->value.ndim, p->value.shape)};
  }
  assert_int_equal(bppsa_prune(BPPSA_PRUNE_CLASS_UNIFORM, 0.8, WEIGHTS, weights_, bytes, NULL), BPPSA_OK);
  memset(bytes[1] + 2 * 150, 0, 150); /* conv2's filter 2 */
  double *x = uniform(9, BATCH * 3072, 1), *seed = uniform(8, BATCH * 10, 1);
  const bppsa_view x_view = bppsa_view_make(x, BPPSA_F64, 4, (int64_t[]){BATCH, 3, 32, 32});
  const bppsa_view seed_view = bppsa_view_make(seed, BPPSA_F64, 2, (int64_t[]){BATCH, 10});
  for (int i = 0; i < WEIGHTS; ++i) {
    for (int64_t k = 0; k < bppsa_view_count(&weights_[i].view); ++k) {
      if (bytes[i][k] == 0) {
        bppsa_view_set(&weights_[i].view, k, 0);
      }
    }
  }
  bppsa_view logits, masked_logits;
  assert_int_equal(dense->ops->forward(dense, &x_view, NULL, &logits), BPPSA_OK);
  assert_int_equal(dense->ops->backward(dense, &seed_view), BPPSA_OK);
  config.masks = masks;
  config.mask_count = WEIGHTS;
  double kept_real[2400]; /* conv2's mask in real numbers, 0 of either sign among them */
  for (int k = 0; k < 2400; ++k) {
    kept_real[k] = bytes[1][k] != 0 ? 0.5 + k : k % 2 == 0 ? 0.0 : -0.0;
  }
  for (int64_t levels = -3; levels <= 3; ++levels) { /* BP, auto, all, linear, .. */
    bppsa_model *masked = NULL;
    masks[1].view.dtype = levels % 2 == 0 ? BPPSA_F64 : BPPSA_BOOL;
    masks[1].view.data = levels % 2 == 0 ? (void *)kept_real : (void *)bytes[1];
    config.method.backward = levels == -3 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN;
    config.method.scan.algorithm = levels == -2 ? BPPSA_SCAN_AUTO : levels == 0 ? BPPSA_SCAN_LINEAR : BPPSA_SCAN_BLELLOCH;
    config.method.scan.up_levels = levels < -1 ? -1 : levels;
    assert_int_equal(bppsa_cnn_create(&network, &config, device, &masked), BPPSA_OK);
    bppsa_cnn_init(masked, 4); /* not yet masked: the pass does that */
    assert_int_equal(masked->ops->forward(masked, &x_view, NULL, &masked_logits), BPPSA_OK);
    assert_memory_equal(masked_logits.data, logits.data, BATCH * 10 * sizeof(double));
    assert_int_equal(masked->ops->backward(masked, &seed_view), BPPSA_OK);
    check_gradients(dense, masked, bytes);
    bppsa_model_destroy(masked);
  }
  check_bad_masks(&network, &config, device, &masks[1]);
  for (int i = 0; i < WEIGHTS; ++i) {
    bppsa_free(bytes[i]);
  }
  bppsa_free(x);
  bppsa_free(seed);
  bppsa_model_destroy(dense);
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_methods), cmocka_unit_test(test_errors),
                                     cmocka_unit_test(test_structures), cmocka_unit_test(test_structure_texts),
                                     cmocka_unit_test(test_masked_models)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
