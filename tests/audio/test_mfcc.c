/* MFCC features against librosa's (mfcc_golden.txt, written by make_mfcc_golden.py), and properties that hold for any signal. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audio/mfcc.h"
#include "core/base/alloc.h"
#include "tests/support/support.h"

enum { SAMPLES = 132300, MOST_FEATURES = 19 };
#define TOLERANCE 1e-4
#define PI 3.14159265358979323846

static const char *const paddings[] = {"constant", "reflect"};

/* ---- the script's signals ---- */

static double sine(double hz, int64_t t) {
  return sin(2 * PI * hz * ((double)t / BPPSA_AUDIO_RATE));
}

static double chirp(int64_t t) {
  const double s = (double)t / BPPSA_AUDIO_RATE;
  return rint(20000 * sin(2 * PI * (20 * s + (20000.0 - 20.0) / 6 * s * s)));
}

static double sample(const char *name, int64_t t, double noise) {
  const double fading = 1 - (double)t / SAMPLES;
  if (strcmp(name, "noise") == 0) {
    return rint(noise / 16);
  }
  if (strcmp(name, "tones") == 0) {
    return rint(9000 * fading * sine(440, t) + 5000 * sine(1234.5, t) * (t >= 40000) + 300 * fading * fading * sine(9876, t));
  }
  if (strcmp(name, "chirp") == 0) {
    return chirp(t);
  }
  if (strcmp(name, "onset") == 0) {
    return t < 60000 ? 0 : rint(noise / 512);
  }
  assert_string_equal(name, "clipped");
  return fmax(-32768, fmin(32767, rint(50000 * sine(313, t) + noise / 8)));
}

static float *make_signal(const char *name) {
  float *samples = bppsa_calloc(SAMPLES, sizeof *samples);
  assert_non_null(samples);
  uint64_t x = 1;
  for (int64_t t = 0; t < SAMPLES; ++t) {
    x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    samples[t] = (float)sample(name, t, (double)(int16_t)(x >> 48));
  }
  return samples;
}

/* ---- features ---- */

/* [frames][features], owned. */
static float *features_of(int set, bppsa_mfcc_padding padding, const float *samples, int64_t stride) {
  bppsa_mfcc_plan *plan = NULL;
  bppsa_mfcc_workspace *workspace = NULL;
  assert_int_equal(bppsa_mfcc_plan_create(&bppsa_mfcc_sets[set], SAMPLES, padding, &plan), BPPSA_OK);
  assert_int_equal(bppsa_mfcc_workspace_create(plan, &workspace), BPPSA_OK);
  const int64_t n = bppsa_mfcc_features(plan);
  float *made = bppsa_calloc(bppsa_mfcc_frames(plan) * n, sizeof *made);
  assert_non_null(made);
  const int64_t calls = bppsa_alloc_calls();
  bppsa_mfcc_execute(plan, workspace, samples, stride, made, n);
  assert_int_equal(bppsa_alloc_calls(), calls); /* execute allocates nothing */
  bppsa_mfcc_workspace_destroy(workspace);
  bppsa_mfcc_plan_destroy(plan);
  return made;
}

static int set_named(const char *name) {
  for (int i = 0; i < BPPSA_MFCC_SETS; ++i) {
    if (strcmp(bppsa_mfcc_sets[i].name, name) == 0) {
      return i;
    }
  }
  fail_msg("no set '%s'", name);
  return -1;
}

/* Checks a line of the golden file against features computed for it, or for the line before it. */
typedef struct {
  char signal[16], padding[16], set[4];
  float *samples, *features;
  double worst;
  int64_t values;
} comparison;

static void check_line(comparison *c, const char *line) {
  char signal[16], padding[16], set[4];
  int frame = 0, used = 0;
  assert_int_equal(sscanf(line, "%15s %15s %3s %d%n", signal, padding, set, &frame, &used), 4);
  const int which = set_named(set);
  if (strcmp(signal, c->signal) != 0) {
    bppsa_free(c->samples);
    c->samples = make_signal(signal);
    c->padding[0] = '\0';
  }
  if (strcmp(signal, c->signal) != 0 || strcmp(padding, c->padding) != 0 || strcmp(set, c->set) != 0) {
    bppsa_free(c->features);
    c->features =
        features_of(which, strcmp(padding, paddings[1]) == 0 ? BPPSA_PADDING_REFLECT : BPPSA_PADDING_CONSTANT, c->samples, 1);
  }
  snprintf(c->signal, sizeof c->signal, "%s", signal);
  snprintf(c->padding, sizeof c->padding, "%s", padding);
  snprintf(c->set, sizeof c->set, "%s", set);
  const int64_t n = bppsa_mfcc_sets[which].n_mfcc - 1;
  const char *rest = line + used;
  for (int64_t k = 0; k < n; ++k, ++c->values) {
    char *end = NULL;
    const double expected = strtod(rest, &end), found = (double)c->features[frame * n + k];
    assert_ptr_not_equal(rest, end);
    rest = end;
    c->worst = fmax(c->worst, fabs(found - expected));
    if (!(fabs(found - expected) < TOLERANCE)) {
      fail_msg("%s %s %s frame %d coefficient %d: %.7f, librosa has %.7f", signal, padding, set, frame, (int)k + 1, found,
               expected);
    }
  }
}

static void test_librosa(void **state) {
  (void)state;
  comparison c = {.worst = 0};
  FILE *file = fopen(BPPSA_TEST_DATA_DIR "/audio/mfcc_golden.txt", "r");
  assert_non_null(file);
  char line[1024];
  while (fgets(line, sizeof line, file) != NULL) {
    if (line[0] != '#') {
      check_line(&c, line);
    }
  }
  fclose(file);
  assert_int_equal(c.values, 5 * 2 * 8 * (19 + 12 + 6)); /* signals, paddings, frames, features */
  print_message("%lld values, largest difference %.2e\n", (long long)c.values, c.worst);
  bppsa_free(c.samples);
  bppsa_free(c.features);
}

static void test_shapes(void **state) {
  (void)state;
  static const int64_t expected[BPPSA_MFCC_SETS][2] = {{259, 19}, {517, 12}, {1034, 6}};
  for (int set = 0; set < BPPSA_MFCC_SETS; ++set) {
    bppsa_mfcc_plan *plan = NULL;
    assert_int_equal(bppsa_mfcc_plan_create(&bppsa_mfcc_sets[set], SAMPLES, BPPSA_PADDING_CONSTANT, &plan), BPPSA_OK);
    assert_int_equal(bppsa_mfcc_frames(plan), expected[set][0]);
    assert_int_equal(bppsa_mfcc_features(plan), expected[set][1]);
    bppsa_mfcc_plan_destroy(plan);
  }
}

/* Silence has no variance and gives zeros, however the mean is rounded. Any other signal has mean 0 and variance 1. */
static void test_scaling(void **state) {
  (void)state;
  float *silence = bppsa_calloc(SAMPLES, sizeof *silence), *noise = make_signal("noise");
  for (int set = 0; set < BPPSA_MFCC_SETS; ++set) {
    const int64_t n = bppsa_mfcc_sets[set].n_mfcc - 1, frames = 1 + SAMPLES / bppsa_mfcc_sets[set].hop;
    for (int p = 0; p < 2; ++p) {
      float *zeros = features_of(set, (bppsa_mfcc_padding)p, silence, 1),
            *scaled = features_of(set, (bppsa_mfcc_padding)p, noise, 1);
      for (int64_t k = 0; k < n; ++k) {
        double mean = 0, square = 0;
        for (int64_t f = 0; f < frames; ++f) {
          assert_true(zeros[f * n + k] == 0);
          mean += (double)scaled[f * n + k] / (double)frames;
          square += (double)scaled[f * n + k] * (double)scaled[f * n + k] / (double)frames;
        }
        assert_true(fabs(mean) < 1e-6 && fabs(square - 1) < 1e-6);
      }
      bppsa_free(zeros);
      bppsa_free(scaled);
    }
  }
  bppsa_free(silence);
  bppsa_free(noise);
}

/* A channel of two interleaved ones has the bits of the channel alone; a workspace keeps nothing from one signal to the next. */
static void test_stride(void **state) {
  (void)state;
  float *a = make_signal("tones"), *b = make_signal("clipped"), *both = bppsa_calloc(2 * SAMPLES, sizeof *both);
  for (int64_t t = 0; t < SAMPLES; ++t) {
    both[2 * t] = a[t];
    both[2 * t + 1] = b[t];
  }
  bppsa_mfcc_plan *plan = NULL;
  bppsa_mfcc_workspace *workspace = NULL;
  assert_int_equal(bppsa_mfcc_plan_create(&bppsa_mfcc_sets[0], SAMPLES, BPPSA_PADDING_REFLECT, &plan), BPPSA_OK);
  assert_int_equal(bppsa_mfcc_workspace_create(plan, &workspace), BPPSA_OK);
  const int64_t n = bppsa_mfcc_features(plan), frames = bppsa_mfcc_frames(plan);
  float *side = bppsa_calloc(frames * 2 * n, sizeof *side);
  bppsa_mfcc_execute(plan, workspace, both, 2, side, 2 * n);
  bppsa_mfcc_execute(plan, workspace, both + 1, 2, side + n, 2 * n);
  float *alone[2] = {features_of(0, BPPSA_PADDING_REFLECT, a, 1), features_of(0, BPPSA_PADDING_REFLECT, b, 1)};
  for (int64_t f = 0; f < frames; ++f) {
    assert_memory_equal(side + 2 * f * n, alone[0] + f * n, (size_t)n * sizeof *side);
    assert_memory_equal(side + (2 * f + 1) * n, alone[1] + f * n, (size_t)n * sizeof *side);
  }
  bppsa_mfcc_workspace_destroy(workspace);
  bppsa_mfcc_plan_destroy(plan);
  bppsa_free(alone[0]);
  bppsa_free(alone[1]);
  bppsa_free(side);
  bppsa_free(both);
  bppsa_free(a);
  bppsa_free(b);
}

static void test_arguments(void **state) {
  (void)state;
  static const struct {
    bppsa_mfcc_config config;
    int64_t samples;
    int padding;
  } wrong[] = {{{"", 20, 1000, 100}, SAMPLES, 0},  {{"", 20, 8, 4}, SAMPLES, 0},     {{"", 20, 1024, 0}, SAMPLES, 0},
               {{"", 20, 1024, 1025}, SAMPLES, 0}, {{"", 1, 1024, 128}, SAMPLES, 0}, {{"", 129, 1024, 128}, SAMPLES, 0},
               {{"", 20, 1024, 128}, 512, 0},      {{"", 20, 1024, 128}, -1, 0},     {{"", 20, 1024, 128}, SAMPLES, 2},
               {{"", 20, 131072, 128}, SAMPLES, 0}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    bppsa_mfcc_plan *plan = NULL;
    assert_int_equal(bppsa_mfcc_plan_create(&wrong[i].config, wrong[i].samples, (bppsa_mfcc_padding)wrong[i].padding, &plan),
                     BPPSA_ERR_ARGUMENT);
    assert_null(plan);
  }
  /* The shortest allowed signal: half a window and one sample. */
  const bppsa_mfcc_config least = {"", 2, 16, 16};
  const float samples[9] = {1, -2, 3, -4, 5, -6, 7, -8, 9};
  float feature = NAN;
  bppsa_mfcc_plan *plan = NULL;
  bppsa_mfcc_workspace *workspace = NULL;
  assert_int_equal(bppsa_mfcc_plan_create(&least, 9, BPPSA_PADDING_REFLECT, &plan), BPPSA_OK);
  assert_int_equal(bppsa_mfcc_workspace_create(plan, &workspace), BPPSA_OK);
  assert_int_equal(bppsa_mfcc_frames(plan), 1);
  bppsa_mfcc_execute(plan, workspace, samples, 1, &feature, 1);
  assert_true(feature == 0); /* one frame has no variance */
  bppsa_mfcc_workspace_destroy(workspace);
  bppsa_mfcc_plan_destroy(plan);
}

static void test_memory(void **state) {
  (void)state;
  const int64_t live = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  for (int64_t call = 1; status != BPPSA_OK; ++call) {
    bppsa_mfcc_plan *plan = NULL;
    bppsa_mfcc_workspace *workspace = NULL;
    bppsa_alloc_fail_at(call);
    status = bppsa_mfcc_plan_create(&bppsa_mfcc_sets[2], SAMPLES, BPPSA_PADDING_CONSTANT, &plan);
    if (status == BPPSA_OK) {
      status = bppsa_mfcc_workspace_create(plan, &workspace);
      assert_true((status == BPPSA_OK) == (workspace != NULL));
    }
    bppsa_alloc_fail_at(0);
    assert_true(status == BPPSA_OK || status == BPPSA_ERR_MEMORY);
    bppsa_mfcc_workspace_destroy(workspace);
    bppsa_mfcc_plan_destroy(plan);
    assert_int_equal(bppsa_alloc_live(), live);
    assert_true(call < 100);
  }
}

int main(void) {
  if (bppsa_audio_check() != BPPSA_OK) {
    print_message("skipped: %s\n", bppsa_last_error());
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_librosa),   cmocka_unit_test(test_shapes),
                                     cmocka_unit_test(test_scaling),   cmocka_unit_test(test_stride),
                                     cmocka_unit_test(test_arguments), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
