/* Every scheme with one micro-batch, odd ones, fewer than stages, numbers that do not divide the batch, more stages than layers,
 * and uneven stages: `schedule` and `train` make the list, with the bits of one device or, of asynchronous schemes, of other ranks,
 * or refuse it in one line. */
#include "schedule/schedule.h"
#include "tests/cli/batch_files.h"
#include "tests/cli/cnn_files.h"

/* Five layers: four of the GRU and the head. */
#define TRAIN                                                                                                                    \
  "train gru --layers 4 --seq-len 4 --hidden 3 --samples 48 --batch 12 --validation 0.25 --threads 1 --epochs 2 --momentum 0.5 " \
  "--optimizer sgd "

typedef enum { ONE = 0, ODD, FEW, UNDIVIDED, DEEP, UNEVEN, SHAPES } shape;

static const struct {
  int stages, micro_batches; /* 0: not given */
} shapes[SHAPES] = {[ONE] = {2, 1}, [ODD] = {2, 3}, [FEW] = {4, 3}, [UNDIVIDED] = {2, 5}, [DEEP] = {6, 0}, [UNEVEN] = {2, 0}};

/* What is refused, and in which words; "" stands for any scheme, and a row is as good as those in front of it are not. */
static const struct {
  const char *scheme;
  shape shape;
  bool trains; /* in `train` alone: `schedule` makes the list */
  const char *words;
} refused[] = {{"interleaved", ONE, false, "micro-batches: 1 for interleaved, expected a multiple of the 2 stages"},
               {"interleaved", ODD, false, "micro-batches: 3 for interleaved, expected a multiple of the 2 stages"},
               {"interleaved", FEW, false, "micro-batches: 3 for interleaved, expected a multiple of the 4 stages"},
               {"interleaved", UNDIVIDED, false, "micro-batches: 5 for interleaved, expected a multiple of the 2 stages"},
               {"interleaved", DEEP, false, "micro-batches: 4 for interleaved, expected a multiple of the 6 stages"},
               {"2bw", ONE, false, "micro-batches: 1 for 2bw, expected at least the 2 stages"},
               {"2bw", FEW, false, "micro-batches: 3 for 2bw, expected at least the 4 stages"},
               {"2bw", DEEP, false, "micro-batches: 4 for 2bw, expected at least the 6 stages"},
               {"modulo", UNEVEN, false, "--cut: given for modulo, expected a scheme that takes it: all but modulo"}};

static bool is_copies(const bppsa_schedule_scheme *scheme) {
  return scheme->data_parallel || scheme->scan;
}

/* The words of a refusal; NULL: there is none. */
static const char *words_of(const bppsa_schedule_scheme *scheme, shape s, bool trains, char text[120]) {
  const bool deep = s == DEEP && !is_copies(scheme) && strcmp(scheme->id, "modulo") != 0;
  if (scheme->scan && trains) {
    return "--split: split \"scan-";
  }
  if (strcmp(scheme->id, "multi-stream") == 0 && !trains) {
    return "--stages: given for multi-stream, expected a scheme that takes it: all but multi-stream";
  }
  if (is_copies(scheme) && (s == ODD || s == FEW || s == UNDIVIDED || s == UNEVEN)) {
    snprintf(text, 120, "--%s: given for %s, expected a scheme that takes it: ", s == UNEVEN ? "cut" : "micro-batches",
             scheme->id);
    return text;
  }
  for (size_t i = 0; i < sizeof refused / sizeof refused[0] && !(deep && trains); ++i) {
    if (strcmp(refused[i].scheme, scheme->id) == 0 && refused[i].shape == s) {
      return refused[i].words;
    }
  }
  if (deep) {
    snprintf(text, 120, "layers: 5 for %s over %d stages, expected at least as many layers as stages", scheme->id,
             strcmp(scheme->id, "interleaved") == 0 ? 12 : 6);
    return text;
  }
  return s == UNDIVIDED && trains ? "--batch: 12 samples for the 5 micro-batches of --split " : NULL;
}

/* "--micro-batches 3 --cut 4" */
static const char *options_of(const bppsa_schedule_scheme *scheme, shape s, char text[64]) {
  char micros[32] = "";
  if (shapes[s].micro_batches > 0) {
    snprintf(micros, sizeof micros, "--micro-batches %d", shapes[s].micro_batches);
  }
  const char *cut = strcmp(scheme->id, "interleaved") == 0 ? "--cut 1,2,4" : "--cut 4";
  snprintf(text, 64, "%s%s", micros, s == UNEVEN ? cut : "");
  return text;
}

static void check_schedule(const bppsa_schedule_scheme *scheme, shape s) {
  char options[64], text[120];
  const char *words = words_of(scheme, s, false, text);
  options_of(scheme, s, options);
  if (words != NULL) {
    assert_fails(2, words, "schedule %s --stages %d --layers 5 %s", scheme->id, shapes[s].stages, options);
    return;
  }
  json_t *document = run_json("schedule %s --layers 5 --stages %d %s --json", scheme->id, shapes[s].stages, options);
  assert_true(get_real(document, "makespan") > 0 && get_real(document, "bubble_ratio") < 1);
  assert_int_equal(json_array_size(json_object_get(document, "workers")), shapes[s].stages);
  json_decref(document);
}

/* Returns whether it trained. */
static bool check_training(const bppsa_schedule_scheme *scheme, shape s) {
  char options[64], text[120];
  const char *words = words_of(scheme, s, true, text);
  options_of(scheme, s, options);
  if (words != NULL) {
    assert_fails(2, words, TRAIN "--ranks %d --split %s %s", shapes[s].stages, scheme->id, options);
    return false;
  }
  json_t *document =
      run_json(TRAIN "--ranks %d --split %s %s --save-weights many.safetensors --json", shapes[s].stages, scheme->id, options);
  const json_t *ranks = json_object_get(document, "ranks");
  const int micros = (int)get_integer(ranks, "micro_batches");
  assert_int_equal(get_integer(document, "steps_done"), 6);
  if (scheme->weights == BPPSA_WEIGHTS_SYNCHRONOUS) {
    assert_runs(TRAIN "--ranks 1 --micro-batches %d --save-weights one.safetensors", micros);
  } else {
    assert_runs(TRAIN "--ranks 1 --stages %d --split %s %s --save-weights one.safetensors", shapes[s].stages, scheme->id,
                options);
  }
  assert_equal_files("one.safetensors", "many.safetensors");
  json_decref(document);
  return true;
}

static void test_shapes(void **state) {
  (void)state;
  int64_t count = 0, trained = 0, made = 0;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
  for (int64_t i = 0; i < count; ++i) {
    for (int s = 0; s < SHAPES; ++s) {
      char text[120];
      check_schedule(&schemes[i], (shape)s);
      made += words_of(&schemes[i], (shape)s, false, text) == NULL;
      trained += check_training(&schemes[i], (shape)s);
    }
  }
  assert_int_equal(made, 71);
  assert_int_equal(trained, 55);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_shapes, enter_directory, leave_directory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
