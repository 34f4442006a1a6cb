/* The bitstream task, also on test_device(), the split, the order of the samples. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "tests/support/support.h"
#include "train/data/dataset.h"

static bppsa_dataset *bitstream(int64_t samples, int64_t seq_len, uint64_t seed, bool per_step) {
  const bppsa_dataset_options options = {.samples = samples, .seq_len = seq_len, .seed = seed, .labels_per_step = per_step};
  bppsa_dataset *dataset = NULL;
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &dataset), BPPSA_OK);
  return dataset;
}

static void fill_f32(const bppsa_dataset *dataset, const bppsa_device *device, int64_t count, const int64_t *indices, float *x,
                     int64_t *labels) {
  const int64_t shape[3] = {dataset->seq_len, count, 1};
  const bppsa_view view = bppsa_view_make(x, BPPSA_F32, 3, shape);
  assert_int_equal(bppsa_dataset_fill(dataset, device, count, indices, &view, labels), BPPSA_OK);
}

static void defaults(void **state) {
  (void)state;
  bppsa_dataset *dataset = bitstream(0, 0, 0, false);
  assert_int_equal(dataset->samples, 32000);
  assert_int_equal(dataset->seq_len, 1000);
  assert_int_equal(dataset->input, 1);
  assert_int_equal(dataset->classes, 10);
  bppsa_dataset_destroy(dataset);
  bppsa_dataset_destroy(NULL);
}

/* Classes are uniform: χ² with 9 degrees of freedom is below 27.9 with probability 0.999. The bits of class c have mean
 * 0.05 + 0.1 c within 4.5 standard deviations, and neighbouring bits are uncorrelated. */
static void bits_have_the_classes_rate(void **state) {
  (void)state;
  enum { N = 4000, T = 250 };
  bppsa_dataset *dataset = bitstream(N, T, 1, false);
  double ones[10] = {0}, pairs[10] = {0}, count[10] = {0};
  float *x = malloc(sizeof(float) * T);
  for (int64_t s = 0; s < N; ++s) {
    int64_t label;
    fill_f32(dataset, NULL, 1, &s, x, &label);
    assert_in_range((uintmax_t)label, 0, 9);
    count[label] += 1;
    for (int t = 0; t < T; ++t) {
      assert_true(x[t] == 0.0f || x[t] == 1.0f);
      ones[label] += (double)x[t];
      pairs[label] += t > 0 ? (double)(x[t] * x[t - 1]) : 0.0;
    }
  }
  double chi2 = 0.0;
  for (int c = 0; c < 10; ++c) {
    const double p = 0.05 + 0.1 * c, n = count[c] * T, n2 = count[c] * (T - 1);
    chi2 += (count[c] - N / 10.0) * (count[c] - N / 10.0) / (N / 10.0);
    assert_true(fabs(ones[c] - n * p) < 4.5 * sqrt(n * p * (1 - p)));
    /* Var of the sum of neighbouring products: n p²(1-p²) + 2 n (p³ - p⁴) */
    assert_true(fabs(pairs[c] - n2 * p * p) < 4.5 * sqrt(n2 * (p * p * (1 - p * p) + 2 * p * p * p * (1 - p))));
  }
  assert_true(chi2 < 27.9);
  free(x);
  bppsa_dataset_destroy(dataset);
}

/* A sample is the same in any batch, with any number of threads, any T and any N; another seed gives another sample. */
static void samples_depend_on_seed_and_index_alone(void **state) {
  (void)state;
  enum { T = 1111, B = 5 };
  const int64_t indices[B] = {7, 0, 999, 7, 31};
  bppsa_dataset *dataset = bitstream(1000, T, 3, true), *shorter = bitstream(32, 10, 3, false),
                *other = bitstream(1000, T, 4, true);
  float *one = malloc(sizeof(float) * T * B), *many = malloc(sizeof(float) * T * B);
  int64_t *labels_one = malloc(sizeof(int64_t) * T * B), *labels_many = malloc(sizeof(int64_t) * T * B);
  bppsa_device *device = NULL;
  assert_int_equal(bppsa_device_create("cpu", 3, &device), BPPSA_OK);
  fill_f32(dataset, NULL, B, indices, one, labels_one);
  fill_f32(dataset, device, B, indices, many, labels_many);
  assert_memory_equal(one, many, sizeof(float) * T * B);
  assert_memory_equal(labels_one, labels_many, sizeof(int64_t) * T * B);
  for (int b = 0; b < B; ++b) {
    float alone[T], first[10];
    int64_t labels[T], label;
    fill_f32(dataset, NULL, 1, &indices[b], alone, labels);
    for (int t = 0; t < T; ++t) {
      assert_true(alone[t] == one[t * B + b]);
      assert_int_equal(labels[t], labels_one[t * B + b]);
      assert_int_equal(labels[t], labels[0]);
    }
    if (indices[b] < 32) {
      fill_f32(shorter, NULL, 1, &indices[b], first, &label);
      assert_memory_equal(first, alone, sizeof first);
      assert_int_equal(label, labels[0]);
    }
  }
  fill_f32(other, NULL, B, indices, many, labels_many);
  assert_memory_not_equal(one, many, sizeof(float) * T * B);
  const int64_t shape[3] = {T, B, 1};
  double *wide = malloc(sizeof(double) * T * B);
  const bppsa_view view = bppsa_view_make(wide, BPPSA_F64, 3, shape);
  assert_int_equal(bppsa_dataset_fill(dataset, device, B, indices, &view, NULL), BPPSA_OK);
  for (int i = 0; i < T * B; ++i) {
    assert_true(wide[i] == (double)one[i]);
  }
  free(wide);
  free(one);
  free(many);
  free(labels_one);
  free(labels_many);
  bppsa_device_destroy(device);
  bppsa_dataset_destroy(dataset);
  bppsa_dataset_destroy(shorter);
  bppsa_dataset_destroy(other);
}

/* Batches made on a GPU have the bits of the CPU's, and nothing outside them is written. */
static void gpu_batches_are_the_hosts(void **state) {
  (void)state;
  static const int64_t steps[] = {1, 3, 4, 6, 257, 1000}, counts[] = {1, 2, 7, 16};
  bppsa_device *device = test_device(1);
  for (int k = 0; k < 6 * 4 * 4; ++k) {
    const int64_t T = steps[k / 16], B = counts[k / 4 % 4], shape[3] = {T, B, 1}, rows = k % 2 == 1 ? T : 1;
    const bppsa_dtype dtype = k % 4 < 2 ? BPPSA_F32 : BPPSA_F64;
    const int64_t x_bytes = T * B * (int64_t)bppsa_dtype_size(dtype), label_bytes = rows * B * 8, beyond = 24;
    const bppsa_dataset_options options = {
        .samples = 5000, .seq_len = T, .seed = (uint64_t)k, .classes = k % 11, .labels_per_step = k % 2 == 1};
    bppsa_dataset *dataset = NULL;
    assert_int_equal(bppsa_dataset_create("bitstream", &options, &dataset), BPPSA_OK);
    char *host = malloc((size_t)(x_bytes + label_bytes)), *moved = malloc((size_t)(x_bytes + label_bytes + beyond));
    int64_t indices[16], *labels = calloc((size_t)(rows * B), sizeof *labels);
    for (int64_t i = 0; i < B; ++i) {
      indices[i] = (i * 1234 + k * 77) % 5000;
    }
    memset(moved, 0xff, (size_t)(x_bytes + label_bytes + beyond)); /* poison */
    void *gpu = on_device(device, moved, x_bytes + label_bytes + beyond), *order = on_device(device, indices, B * 8);
    const bppsa_view x = bppsa_view_make(host, dtype, 3, shape);
    bppsa_view out = bppsa_view_make((char *)gpu + label_bytes, dtype, 3, shape);
    out.device = BPPSA_CUDA;
    assert_int_equal(bppsa_dataset_fill(dataset, NULL, B, indices, &x, labels), BPPSA_OK);
    if (bppsa_device_get_kind(device) == BPPSA_CPU) {
      assert_int_equal(bppsa_dataset_queue(dataset, device, B, order, &out, gpu), BPPSA_ERR_UNSUPPORTED);
      assert_non_null(strstr(bppsa_last_error(), "bitstream on device cpu is made on the host"));
    } else {
      assert_int_equal(bppsa_dataset_queue(dataset, device, B, order, &out, gpu), BPPSA_OK);
      assert_int_equal(bppsa_memory_get(device, moved, gpu, x_bytes + label_bytes + beyond), BPPSA_OK);
      assert_memory_equal(moved, labels, (size_t)label_bytes);
      assert_memory_equal(moved + label_bytes, host, (size_t)x_bytes);
      for (int64_t i = 0; i < beyond; ++i) {
        assert_int_equal((unsigned char)moved[x_bytes + label_bytes + i], 0xff);
      }
      assert_int_equal(bppsa_dataset_queue(dataset, device, B, order, NULL, gpu), BPPSA_OK); /* labels alone, x alone */
      assert_int_equal(bppsa_dataset_queue(dataset, device, B, order, &out, NULL), BPPSA_OK);
      assert_int_equal(bppsa_dataset_queue(dataset, device, B + 1, order, &out, NULL), BPPSA_ERR_SHAPE);
      assert_int_equal(bppsa_device_wait(device), BPPSA_OK);
    }
    assert_int_equal(bppsa_dataset_queue(dataset, device, B, order, &x, gpu), BPPSA_ERR_ARGUMENT); /* host memory */
    bppsa_memory_free(device, gpu);
    bppsa_memory_free(device, order);
    free(host);
    free(moved);
    free(labels);
    bppsa_dataset_destroy(dataset);
  }
  bppsa_device_destroy(device);
}

/* Several features in a step: streams of one class, drawn independently; the first is that of the data set with one feature. */
static void features_are_streams_of_one_class(void **state) {
  (void)state;
  enum { T = 4000, B = 2, I = 3 };
  bppsa_device *device = NULL;
  assert_int_equal(bppsa_device_create("cpu", 2, &device), BPPSA_OK);
  bppsa_dataset *narrow = NULL, *wide = NULL;
  const bppsa_dataset_options one = {.samples = 9, .seq_len = T, .seed = 7},
                              three = {.samples = 9, .seq_len = T, .seed = 7, .input = I};
  assert_int_equal(bppsa_dataset_create("bitstream", &one, &narrow), BPPSA_OK);
  assert_int_equal(bppsa_dataset_create("bitstream", &three, &wide), BPPSA_OK);
  assert_true(narrow->input == 1 && wide->input == I);
  const int64_t indices[B] = {8, 3};
  int64_t labels[2][B];
  float *x = calloc(T * B, sizeof *x), *y = calloc(T * B * I, sizeof *y);
  assert_true(x != NULL && y != NULL);
  const bppsa_view small = bppsa_view_make(x, BPPSA_F32, 3, (int64_t[]){T, B, 1}),
                   large = bppsa_view_make(y, BPPSA_F32, 3, (int64_t[]){T, B, I});
  assert_int_equal(bppsa_dataset_fill(narrow, device, B, indices, &small, labels[0]), BPPSA_OK);
  assert_int_equal(bppsa_dataset_fill(wide, device, B, indices, &large, labels[1]), BPPSA_OK);
  assert_memory_equal(labels[0], labels[1], sizeof labels[0]);
  for (int s = 0; s < B; ++s) {
    double ones[I] = {0}, both = 0;
    const double rate = 0.05 + 0.1 * (double)labels[0][s];
    for (int t = 0; t < T; ++t) {
      assert_true(x[t * B + s] == y[(t * B + s) * I]);
      for (int i = 0; i < I; ++i) {
        ones[i] += y[(t * B + s) * I + i];
      }
      both += y[(t * B + s) * I + 1] * y[(t * B + s) * I + 2];
    }
    for (int i = 0; i < I; ++i) {
      assert_true(fabs(ones[i] / T - rate) < 0.04); /* five standard deviations */
    }
    assert_true(fabs(both / T - rate * rate) < 0.04); /* independent */
  }
  free(x);
  free(y);
  bppsa_dataset_destroy(narrow);
  bppsa_dataset_destroy(wide);
  bppsa_device_destroy(device);
}

/* Of fewer classes than ten these are the first, each with its own rate, and drawn about as often as the others. */
static void fewer_classes_are_the_first(void **state) {
  (void)state;
  enum { T = 512, N = 900, C = 3 };
  const bppsa_dataset_options options = {.samples = N, .seq_len = T, .seed = 5, .classes = C};
  bppsa_dataset *dataset = NULL;
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &dataset), BPPSA_OK);
  assert_int_equal(dataset->classes, C);
  int64_t indices[N], labels[N], drawn[C] = {0};
  double ones[C] = {0};
  float *x = calloc(T * N, sizeof *x);
  assert_non_null(x);
  for (int64_t s = 0; s < N; ++s) {
    indices[s] = s;
  }
  const bppsa_view view = bppsa_view_make(x, BPPSA_F32, 3, (int64_t[]){T, N, 1});
  assert_int_equal(bppsa_dataset_fill(dataset, NULL, N, indices, &view, labels), BPPSA_OK);
  for (int64_t s = 0; s < N; ++s) {
    assert_in_range(labels[s], 0, C - 1);
    ++drawn[labels[s]];
    for (int64_t t = 0; t < T; ++t) {
      ones[labels[s]] += x[t * N + s];
    }
  }
  for (int c = 0; c < C; ++c) {
    assert_in_range(drawn[c], N / C - 80, N / C + 80); /* more than five standard deviations */
    assert_true(fabs(ones[c] / (double)(drawn[c] * T) - (0.05 + 0.1 * c)) < 0.01);
  }
  free(x);
  bppsa_dataset_destroy(dataset);
}

static void bad_requests_are_named(void **state) {
  (void)state;
  static const struct {
    const char *spec;
    bppsa_dataset_options options;
    const char *says;
  } cases[] = {{"bitsream", {0}, "expected bitstream, npy:X,Y, irmas:DIR, instruments:DIR or cifar10:DIR"},
               {"", {0}, "expected bitstream, npy:X,Y, irmas:DIR, instruments:DIR or cifar10:DIR"},
               {"bitstream:5", {0}, "bitstream takes nothing after a colon"},
               {"bitstream", {.samples = -1}, "the number of samples is -1"},
               {"bitstream", {.input = -2}, "the size of a step is -2"},
               {"bitstream", {.classes = 11}, "11 classes, expected 1 .. 10"},
               {"bitstream", {.classes = -1}, "-1 classes, expected 1 .. 10"},
               {"npy:x,y", {.classes = 2}, "2 classes, expected the files' own number"},
               {"npy:x.npy,y.npy", {.input = 2}, "steps of 2 features, expected the files' own size"},
               {"bitstream", {.seq_len = INT64_MAX}, "the sequence length is 9223372036854775807"},
               {"npy", {0}, "expected two files separated by one comma"},
               {"npy:x.npy", {0}, "expected two files separated by one comma"},
               {"npy:x.npy,", {0}, "expected two files separated by one comma"},
               {"npy:a,b,c", {0}, "expected two files separated by one comma"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    bppsa_dataset *dataset = NULL;
    assert_int_equal(bppsa_dataset_create(cases[i].spec, &cases[i].options, &dataset), BPPSA_ERR_ARGUMENT);
    assert_null(dataset);
    assert_non_null(strstr(bppsa_last_error(), cases[i].says));
  }
  assert_int_equal(bppsa_dataset_create(NULL, &cases[0].options, NULL), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "data set: spec, options and dataset must not be NULL");
}

static void bad_batches_are_refused(void **state) {
  (void)state;
  bppsa_dataset *dataset = bitstream(10, 4, 0, false);
  const int64_t good[2] = {0, 9}, low[2] = {0, -1}, high[2] = {10, 0}, shape[3] = {4, 2, 1}, wrong[3] = {2, 4, 1};
  float x[8] = {5};
  int64_t labels[2];
  const bppsa_view view = bppsa_view_make(x, BPPSA_F32, 3, shape), flipped = bppsa_view_make(x, BPPSA_F32, 3, wrong);
  assert_int_equal(bppsa_dataset_fill(dataset, NULL, 0, good, &view, labels), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_dataset_fill(dataset, NULL, 2, low, &view, labels), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_dataset_fill(dataset, NULL, 2, high, &view, labels), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "data set index 10 at position 0, expected 0 .. 9"));
  assert_int_equal(bppsa_dataset_fill(dataset, NULL, 2, good, &flipped, labels), BPPSA_ERR_SHAPE);
  assert_non_null(strstr(bppsa_last_error(), "[2, 4, 1], expected [4, 2, 1]"));
  assert_true(x[0] == 5.0f);
  assert_int_equal(bppsa_dataset_fill(dataset, NULL, 2, good, &view, labels), BPPSA_OK);
  bppsa_dataset_destroy(dataset);
}

static void split_holds_out_the_last(void **state) {
  (void)state;
  bppsa_split split;
  assert_int_equal(bppsa_split_make(1000, 0.1, &split), BPPSA_OK);
  assert_int_equal(split.train, 900);
  assert_int_equal(split.validation, 100);
  assert_int_equal(bppsa_split_make(7, 0.5, &split), BPPSA_OK); /* 3.5 rounds away from zero */
  assert_int_equal(split.validation, 4);
  assert_int_equal(bppsa_split_make(1, 0.0, &split), BPPSA_OK);
  assert_int_equal(split.train, 1);
  assert_int_equal(split.validation, 0);
  static const struct {
    int64_t samples;
    double fraction;
  } bad[] = {{10, -0.1}, {10, 1.0}, {10, (double)NAN}, {10, 0.01}, {10, 0.99}, {1, 0.5}, {0, 0.0}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    assert_int_equal(bppsa_split_make(bad[i].samples, bad[i].fraction, &split), BPPSA_ERR_ARGUMENT);
    assert_int_equal(split.train, 1);
  }
}

/* Every order is a permutation. The same seed and epoch give the same order, others give others. Each sample comes first about
 * equally often. */
static void shuffle_is_a_permutation(void **state) {
  (void)state;
  enum { N = 1000, SMALL = 5, EPOCHS = 5000 };
  int64_t a[N], b[N];
  bool seen[N] = {false};
  bppsa_shuffle(0, 1, N, a);
  for (int i = 0; i < N; ++i) {
    assert_in_range((uintmax_t)a[i], 0, N - 1);
    assert_false(seen[a[i]]);
    seen[a[i]] = true;
  }
  bppsa_shuffle(0, 1, N, b);
  assert_memory_equal(a, b, sizeof a);
  bppsa_shuffle(0, 2, N, b);
  assert_memory_not_equal(a, b, sizeof a);
  bppsa_shuffle(1, 1, N, b);
  assert_memory_not_equal(a, b, sizeof a);
  int64_t first[SMALL] = {0};
  for (int64_t epoch = 1; epoch <= EPOCHS; ++epoch) {
    bppsa_shuffle(9, epoch, SMALL, a);
    first[a[0]] += 1;
  }
  for (int i = 0; i < SMALL; ++i) {
    assert_true(fabs((double)first[i] - EPOCHS / 5.0) < 4.5 * sqrt(EPOCHS * 0.2 * 0.8));
  }
}

static void out_of_memory_is_reported(void **state) {
  (void)state;
  const int64_t live = bppsa_alloc_live();
  const bppsa_dataset_options options = bppsa_dataset_options_default();
  bppsa_dataset *dataset = NULL;
  bppsa_alloc_fail_at(1);
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &dataset), BPPSA_ERR_MEMORY);
  bppsa_alloc_fail_at(0);
  assert_null(dataset);
  assert_int_equal(bppsa_alloc_live(), live);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults),
      cmocka_unit_test(bits_have_the_classes_rate),
      cmocka_unit_test(samples_depend_on_seed_and_index_alone),
      cmocka_unit_test(gpu_batches_are_the_hosts),
      cmocka_unit_test(features_are_streams_of_one_class),
      cmocka_unit_test(fewer_classes_are_the_first),
      cmocka_unit_test(bad_requests_are_named),
      cmocka_unit_test(bad_batches_are_refused),
      cmocka_unit_test(split_holds_out_the_last),
      cmocka_unit_test(shuffle_is_a_permutation),
      cmocka_unit_test(out_of_memory_is_reported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
