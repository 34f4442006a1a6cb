/* train with --backward speculative: what it says, keeps, goes on from and refuses, and how far its weights are from BP's. */
#include <math.h>

#include "core/base/alloc.h"
#include "core/files/npy.h"
#include "tests/cli/run_cli.h"
#include "tests/train/forge.h"

#define SMALL "--seq-len 24 --samples 48 --hidden 4"
/* Chunks of two steps without a warm-up, and a tolerance that no difference meets: a mend walks to the first step. */
#define HOPELESS SMALL " --loss all --backward-chunks 12 --backward-warm-up 0 --backward-tolerance 1e-30"
/* Forward passes that fail likewise. */
#define BOTH HOPELESS " --forward-chunks 12 --warm-up 0 --tolerance 1e-30"

static json_t *at(const json_t *object, const char *key) {
  json_t *found = json_object_get(object, key);
  assert_non_null(found);
  return found;
}

static void assert_prints(const run_result *result, const char *words) {
  if (strstr(result->out, words) == NULL) {
    fail_msg("expected '%s' in:\n%s", words, result->out);
  }
}

/* The lines of a log, one after the other, with the members that times do not change. */
static json_t *logged(const char *path) {
  static const char *const keys[] = {"step",      "epoch",   "loss",     "accuracy",        "lr",
                                     "grad_norm", "forward", "backward", "validation_loss", "gradients"};
  json_t *list = json_array();
  char text[8192];
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  while (fgets(text, sizeof text, file) != NULL) {
    json_t *line = json_loads(text, 0, NULL), *kept = json_object();
    assert_non_null(line);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; ++i) {
      json_t *value = json_object_get(line, keys[i]);
      assert_int_equal(value != NULL ? json_object_set(kept, keys[i], value) : 0, 0);
    }
    assert_int_equal(json_object_get(line, "step") != NULL ? json_array_append(list, kept) : 0, 0);
    json_decref(kept);
    json_decref(line);
  }
  fclose(file);
  return list;
}

/* A whole number may be an integer in one text and a real number in the other. */
static void assert_same_numbers(json_t *a, const json_t *b) {
  const char *key;
  json_t *value;
  assert_int_equal(json_object_size(a), json_object_size(b));
  json_object_foreach(a, key, value) {
    const json_t *other = at(b, key);
    assert_true(json_is_boolean(value) ? json_equal(value, other) : json_number_value(value) == json_number_value(other));
  }
}

static void test_says(void **state) {
  (void)state;
  const char *train = "train gru --seq-len 300 --samples 8 --batch 2 --hidden 8 --iterations 3 --loss all --backward-chunks 4";
  run_result result = run("%s", train);
  assert_int_equal(result.code, 0);
  assert_prints(&result, "backward   speculative, 4 chunks, warm-up 40 at first, 2 rounds, tolerance 2.4e-07, 0.000 + ");
  assert_prints(&result, "backward passes in parallel: 1");
  assert_prints(&result, "; equals BP for dL/dh_t changed by ");
  release(&result);
  json_t *document = run_json("%s --log F.jsonl --json", train);
  const json_t *plan = at(at(document, "config"), "speculation"), *all = at(document, "backward"), *rows = at(document, "rows");
  assert_string_equal(get_text(at(document, "config"), "backward"), "speculative");
  assert_int_equal(get_integer(plan, "chunks"), 4);
  assert_true(get_integer(all, "passes") == 3 && get_integer(all, "possible") == 900 && get_real(all, "gap") <= 2.4e-7);
  assert_null(json_object_get(document, "forward"));
  json_t *lines = logged("F.jsonl");
  assert_int_equal(json_array_size(lines), 3);
  for (size_t i = 0; i < 3; ++i) { /* the log's lines are the document's rows */
    json_t *row = at(json_array_get(rows, i), "backward");
    assert_same_numbers(row, at(json_array_get(lines, i), "backward"));
    assert_true(json_is_true(at(row, "speculated")) && json_is_false(at(row, "given_up")));
    assert_true(get_integer(row, "passes") == 1 && get_integer(row, "possible") == 300 && get_integer(row, "path") < 200);
    assert_true(get_real(row, "work") > 1 && get_real(row, "perturbation") < 1e-7);
    assert_true(get_integer(row, "rounds") >= (get_integer(row, "mended") > 0));
  }
  json_decref(lines);
  json_decref(document);
  result = run("train rnn " SMALL " --iterations 1 --backward-chunks 99");
  assert_non_null(strstr(result.err, "note: --backward-chunks: 99 asked for, 24 used"));
  release(&result);
}

/* What is resumed has the bits of a run that was not interrupted: in a pause, in the sums of an epoch, and with all that changes
 * how a pass is computed. */
static void test_resume(void **state) {
  (void)state;
  static const struct {
    const char *options, *whole, *part;
    bool both;
  } cases[] = {
      {"rnn " BOTH, "--iterations 8", "--iterations 4", true},
      {"gru " HOPELESS " --clip-norm 0.5 --validation 0.25", "--epochs 4", "--epochs 2", false},
      {"lstm " BOTH " --layers 2 --bidirectional --dropout 0.3", "--iterations 7", "--iterations 4", true},
      {"lstm " HOPELESS " --lengths L.npy --dtype f64", "--iterations 8", "--iterations 4", false},
  };
  int64_t shape[1] = {48}, lengths[48];
  for (int64_t i = 0; i < 48; ++i) {
    lengths[i] = 1 + i % 24;
  }
  const bppsa_view view = bppsa_view_make(lengths, BPPSA_I64, 1, shape);
  assert_int_equal(bppsa_npy_save("L.npy", &view), BPPSA_OK);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    const char *options = cases[i].options;
    assert_int_equal(system("rm -rf d"), 0);
    assert_runs("train %s %s --log F.jsonl --save-weights A.safetensors", options, cases[i].whole);
    json_t *whole = logged("F.jsonl");
    assert_runs("train %s %s --log F.jsonl --checkpoint d", options, cases[i].part);
    assert_runs("train %s %s --log F.jsonl --checkpoint d --resume --threads 1 --save-weights R.safetensors", options,
                cases[i].whole);
    json_t *resumed = logged("F.jsonl");
    assert_true(json_equal(whole, resumed));
    assert_equal_files("A.safetensors", "R.safetensors");
    const json_t *first = json_array_get(whole, 0), *last = json_array_get(whole, json_array_size(whole) - 1);
    for (int kind = 0; kind < (cases[i].both ? 2 : 1); ++kind) {
      const char *key = kind == 0 ? "backward" : "forward";
      assert_true(json_is_true(at(at(first, key), "speculated")) && get_integer(at(first, key), "mended") > 0);
      assert_true(json_is_false(at(at(last, key), "speculated"))); /* the pause */
    }
    json_decref(whole);
    json_decref(resumed);
  }
}

/* A run that leaves the method open goes on as its checkpoint does, with all the numbers that were once given. */
static void test_resume_open(void **state) {
  (void)state;
  const char *given = "--backward-chunks 5 --backward-warm-up 3 --backward-tolerance 0.00123456789";
  const char *text =
      "speculative, 5 chunks, warm-up 3, 2 rounds, tolerance 0.00123456789, 0.100 + 0.200 path + 0.500 work up to 1";
  assert_int_equal(system("rm -rf d"), 0);
  assert_runs("train rnn " SMALL " --iterations 2 --checkpoint d %s", given);
  json_t *document = run_json("train rnn " SMALL " --iterations 3 --checkpoint d --resume --json");
  const json_t *config = at(document, "config"), *plan = at(config, "speculation");
  assert_string_equal(get_text(config, "chosen"), "checkpoint");
  assert_true(get_integer(plan, "chunks") == 5 && get_integer(plan, "warm_up") == 3 && get_real(plan, "accept") == 0.00123456789);
  json_decref(document);
  assert_fails(2, "backward speculative, 5 chunks, warm-up 3, 2 rounds, tolerance 0.00123456789",
               "train rnn " SMALL " --iterations 4 --checkpoint d --resume --backward-chunks 6");
  static const char *const forged[] = {"speculative, 0 chunks, warm-up 3, 2 rounds, tolerance 1", "speculative",
                                       "speculative, 5 chunks, warm-up 3, 2 rounds, tolerance 1x"};
  for (size_t i = 0; i < sizeof forged / sizeof *forged; ++i) {
    forge_text("d", "backward", forged[i]);
    assert_fails(2, "expected bp, or as in 'speculative, 16 chunks",
                 "train rnn " SMALL " --iterations 4 --checkpoint d --resume");
  }
  forge_text("d", "backward", text);
  assert_runs("train rnn " SMALL " --iterations 4 --checkpoint d --resume");
}

/* Who goes on in another way is refused in one sentence; without a speculative pass nothing is kept of one. */
static void test_refused(void **state) {
  (void)state;
  static const struct {
    const char *first, *second, *says;
  } cases[] = {
      {"--backward-chunks 12", "--backward bp",
       "work up to 1, in this run bp, expected the same (--backward auto goes on as the checkpoint does)"},
      {"--backward-chunks 12", "--chunks 3", "work up to 1, in this run chunked 3, expected the same"},
      {"--backward-chunks 12", "--backward-chunks 12 --backward-warm-up 2",
       "work up to 1 contradicts this run, which has speculative, 12 chunks, warm-up 2, 6 rounds, tolerance 2.4e-07, "},
      {"--backward bp", "--backward-chunks 12", "gradients bp contradicts this run, which has speculative, expected the same"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    assert_int_equal(system("rm -rf d"), 0);
    assert_runs("train rnn " SMALL " --iterations 2 --checkpoint d %s", cases[i].first);
    bppsa_safetensors *file = NULL;
    assert_int_equal(bppsa_safetensors_load("d/checkpoint.safetensors", &file), BPPSA_OK);
    assert_int_equal(bppsa_safetensors_find(file, "train.backward") != NULL, i < 3);
    assert_int_equal(bppsa_safetensors_metadata(file, "backward") != NULL, i < 3);
    bppsa_safetensors_destroy(file);
    assert_fails(2, cases[i].says, "train rnn " SMALL " --iterations 3 --checkpoint d --resume %s", cases[i].second);
  }
  assert_int_equal(system("rm -rf d"), 0);
  run_result result = run("train rnn " SMALL " --iterations 2 --checkpoint d --backward speculative --backward-tolerance 0");
  assert_non_null(strstr(result.err, "note: --backward: speculative asked for, the pass is BP"));
  assert_prints(&result, "gradients  sequential BP");
  release(&result);
  assert_runs("train rnn " SMALL " --iterations 3 --checkpoint d --resume --backward bp"); /* the same bits */
  assert_fails(2, "--backward: 'speculative', expected auto, bp or scan", "train lenet5 --data cifar10:x --backward speculative");
  assert_fails(2, "--backward-tolerance: an option of speculative BP beside --backward scan",
               "train rnn --chunks 3 "
               "--backward-tolerance 1");
  assert_fails(2, "--backward speculative: given beside --split gpipe, whose layers compute step by step, expected --backward bp",
               "train rnn --layers 2 --ranks 2 --split gpipe --backward speculative");
}

/* Numbers that no run has made, with checksums that are right. */
static void test_forged_counts(void **state) {
  (void)state;
  static const struct {
    int64_t index;
    double number;
    const char *says;
  } forged[] = {{2, 1.5, "train.backward: number 2 is 1.5, expected a whole number of 0 or more"},
                {12, (double)INFINITY, "train.backward: number 12 is inf, expected a finite number of 0 or more"},
                {10, -1, "train.backward: number 10 is -1, expected a whole number of 0 or more"}};
  for (size_t i = 0; i < sizeof forged / sizeof *forged; ++i) {
    assert_int_equal(system("rm -rf d"), 0);
    assert_runs("train rnn " HOPELESS " --iterations 2 --checkpoint d");
    forge("d", "train.backward", forged[i].index, &forged[i].number);
    assert_fails(2, forged[i].says, "train rnn " HOPELESS " --iterations 3 --checkpoint d --resume");
  }
}

/* ---- the weights ---- */

enum { UNITS = 8 };

/* Copies weights of one layer of UNITS units, with unit i ^ mask in place i. Twice the same mask is no change. */
static void permute(const char *from, const char *to, int64_t mask) {
  enum { MOST = 16 };
  bppsa_safetensors *file = NULL;
  bppsa_named_view tensors[MOST];
  bppsa_metadata metadata[MOST], entry = {NULL, NULL};
  int64_t count = 0, entries = 0;
  assert_int_equal(bppsa_safetensors_load(from, &file), BPPSA_OK);
  for (; count < bppsa_safetensors_count(file); ++count) {
    const bppsa_named_view *t = bppsa_safetensors_get(file, count);
    const bool head = strstr(t->name, "_l0") == NULL, square = strstr(t->name, "weight_hh") != NULL;
    const int64_t rows = t->view.shape[0], columns = t->view.ndim > 1 ? t->view.shape[1] : 1;
    const float *read = t->view.data;
    float *made = bppsa_alloc((size_t)(rows * columns) * sizeof *made);
    assert_non_null(made);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const bool moves = square || (head && columns == UNITS);
        made[r * columns + c] = read[(head ? r : r ^ mask) * columns + (moves ? c ^ mask : c)];
      }
    }
    tensors[count] = (bppsa_named_view){t->name, bppsa_view_make(made, BPPSA_F32, t->view.ndim, t->view.shape)};
  }
  while (bppsa_safetensors_metadata_next(file, &entry)) {
    metadata[entries++] = entry;
  }
  assert_int_equal(bppsa_safetensors_save(to, count, tensors, entries, metadata), BPPSA_OK);
  for (int64_t i = 0; i < count; ++i) {
    bppsa_free(tensors[i].view.data);
  }
  bppsa_safetensors_destroy(file);
}

/* The 2-norm of the difference between the weights of two files: single weights differ by one or two roundings. */
static double distance(const char *a, const char *b) {
  bppsa_safetensors *x = NULL, *y = NULL;
  double sum = 0;
  assert_int_equal(bppsa_safetensors_load(a, &x), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_load(b, &y), BPPSA_OK);
  for (int64_t i = 0; i < bppsa_safetensors_count(x); ++i) {
    const bppsa_named_view *t = bppsa_safetensors_get(x, i);
    const bppsa_view *other = bppsa_safetensors_find(y, t->name);
    assert_non_null(other);
    for (int64_t k = 0; k < bppsa_view_count(other); ++k) {
      sum += pow(bppsa_view_get(&t->view, k) - bppsa_view_get(other, k), 2);
    }
  }
  bppsa_safetensors_destroy(x);
  bppsa_safetensors_destroy(y);
  return sqrt(sum);
}

/* Training with both passes speculative ends as far from BP as BP does whose sums have another order. */
static void test_weights(void **state) {
  (void)state;
  static const char *const cells[] = {"rnn", "gru", "lstm"};
  static const int64_t masks[] = {7, 3, 5, 6};
  for (int i = 0; i < 3; ++i) {
    char train[300];
    double own = 0;
    snprintf(train, sizeof train,
             "train %s --seq-len 200 --samples 32 --batch 4 --iterations 40 --loss all --lr 0.002 --threads 1 --backward",
             cells[i]);
    assert_runs("train %s --hidden 8 --iterations 0 --save-weights I.safetensors", cells[i]);
    assert_runs("%s bp --weights I.safetensors --save-weights A.safetensors", train);
    json_t *document = run_json("%s speculative --backward-chunks 4 --forward-chunks 4 --warm-up 45 --weights I.safetensors "
                                "--save-weights B.safetensors --json",
                                train);
    for (size_t k = 0; k < 40; ++k) {
      const json_t *row = json_array_get(at(document, "rows"), k);
      assert_true(json_is_true(at(at(row, "backward"), "speculated")) && json_is_true(at(at(row, "forward"), "speculated")));
    }
    json_decref(document);
    for (size_t k = 0; k < sizeof masks / sizeof *masks; ++k) {
      permute("I.safetensors", "P.safetensors", masks[k]);
      assert_runs("%s bp --weights P.safetensors --save-weights Q.safetensors", train);
      permute("Q.safetensors", "P.safetensors", masks[k]);
      own = fmax(own, distance("P.safetensors", "A.safetensors"));
    }
    const double found = distance("A.safetensors", "B.safetensors");
    if (!(found <= 3 * own && found > 0 && own < 1e-3)) {
      fail_msg("%s: %.3g from BP's weights, BP with permuted units %.3g", cells[i], found, own);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_says),          cmocka_unit_test(test_resume),
                                     cmocka_unit_test(test_resume_open),   cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_forged_counts), cmocka_unit_test(test_weights)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
