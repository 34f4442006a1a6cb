/* `train --certify`: the errors are those that `grad` shows from the weights of each step; training and its checkpoints are the
 * same with it and without; and requests that it refuses. */
#include "tests/cli/batch_files.h"

#include <math.h>

enum { STEPS = 60, SAMPLES = 5, ITERATIONS = 3 };

#define SMALL "--seq-len 40 --samples 40 --hidden 6 --batch 8"
/* so much is dropped that the errors stand far above rounding */
#define COARSE "--backward-chunks 3 --backward-warm-up 0 --backward-tolerance 0.5"

static const char *const kinds[] = {"rnn", "gru", "lstm"};

/* One batch, as `train` reads it, [N,T,1], and as `grad` does, [T,N,1], with labels of the last and of every step. */
static void write_data(void) {
  bppsa_buffer by_sample, by_step, labels, labels_by_step;
  assert_int_equal(bppsa_buffer_create(NULL, BPPSA_F64, 3, (int64_t[]){SAMPLES, STEPS, 1}, &by_sample), BPPSA_OK);
  assert_int_equal(bppsa_buffer_create(NULL, BPPSA_F64, 3, (int64_t[]){STEPS, SAMPLES, 1}, &by_step), BPPSA_OK);
  assert_int_equal(bppsa_buffer_create(NULL, BPPSA_I64, 2, (int64_t[]){SAMPLES, STEPS}, &labels), BPPSA_OK);
  assert_int_equal(bppsa_buffer_create(NULL, BPPSA_I64, 2, (int64_t[]){STEPS, SAMPLES}, &labels_by_step), BPPSA_OK);
  for (int64_t i = 0; i < SAMPLES * STEPS; ++i) {
    const int64_t sample = i / STEPS, step = i % STEPS;
    const double value = bppsa_random_double(7, BPPSA_STREAM_TEST, (uint64_t)i) - 0.5;
    bppsa_view_set(&by_sample.view, i, value);
    bppsa_view_set(&by_step.view, step * SAMPLES + sample, value);
    ((int64_t *)labels.view.data)[i] = i * i % CLASSES;
    ((int64_t *)labels_by_step.view.data)[step * SAMPLES + sample] = i * i % CLASSES;
  }
  assert_int_equal(bppsa_npy_save("DX.npy", &by_sample.view), BPPSA_OK);
  assert_int_equal(bppsa_npy_save("DXT.npy", &by_step.view), BPPSA_OK);
  assert_int_equal(bppsa_npy_save("DY.npy", &labels.view), BPPSA_OK);
  assert_int_equal(bppsa_npy_save("DYT.npy", &labels_by_step.view), BPPSA_OK);
  bppsa_buffer_free(&by_sample);
  bppsa_buffer_free(&by_step);
  bppsa_buffer_free(&labels);
  bppsa_buffer_free(&labels_by_step);
}

/* The largest max |a - b| / max |b| of the weights' gradients in two files of `grad`. */
static double distance(const char *a, const char *b) {
  bppsa_safetensors *left = NULL, *right = NULL;
  double worst = 0;
  assert_int_equal(bppsa_safetensors_load(a, &left), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_load(b, &right), BPPSA_OK);
  for (int64_t i = 0; i < bppsa_safetensors_count(left); ++i) {
    const bppsa_named_view *tensor = bppsa_safetensors_get(left, i);
    const bppsa_view *other = bppsa_safetensors_find(right, tensor->name);
    double error = 0, largest = 0;
    for (int64_t k = 0; strchr(tensor->name, '.') != NULL && k < bppsa_view_count(other); ++k) { /* "rnn.weight_ih_l0", .. */
      error = fmax(error, fabs(bppsa_view_get(&tensor->view, k) - bppsa_view_get(other, k)));
      largest = fmax(largest, fabs(bppsa_view_get(other, k)));
    }
    worst = fmax(worst, error > 0 ? error / largest : 0);
  }
  bppsa_safetensors_destroy(left);
  bppsa_safetensors_destroy(right);
  return worst;
}

static const json_t *certificate_of_row(const json_t *document, int64_t row) {
  return json_object_get(json_array_get(json_object_get(document, "rows"), (size_t)row), "certificate");
}

/* The gradients of every step are computed again by `grad`, from the weights that a shorter run has saved, by this method and by
 * BP. In f64 the certificate is the distance of the two. In f32 it is as near as rounding lets it be. */
static void test_values(void **state) {
  (void)state;
  write_data();
  for (int k = 0; k < 12; ++k) {
    const char *kind = kinds[k % 3], *dtype = k % 2 == 0 ? "f64" : "f32";
    const bool all = k / 3 % 2 == 1, both = k >= 6;
    const double bound = k % 2 == 0 ? 1e-13 : 1e-6; /* a few roundings of either type */
    char train[256], grad[256];
    snprintf(train, sizeof train, "train %s --data npy:DX.npy,DY.npy --batch %d --no-shuffle --lr 0.05 --loss all --dtype %s %s",
             kind, SAMPLES, dtype, all ? "" : "--ignore-label 0");
    snprintf(grad, sizeof grad, "grad %s --input DXT.npy --labels DYT.npy --loss all %s", kind, all ? "" : "--ignore-label 0");
    assert_runs("%s --hidden 6 --init orthogonal --iterations 0 %s --save-weights W0.safetensors", train,
                both ? "--bidirectional --layers 2" : "");
    json_t *document =
        run_json("%s --weights W0.safetensors --iterations %d --certify-every 1 " COARSE " --json", train, ITERATIONS);
    double largest = 0;
    int64_t of_step = 0;
    for (int64_t step = 1; step <= ITERATIONS; ++step) {
      if (step > 1) {
        assert_runs("%s --weights W0.safetensors --iterations %d " COARSE " --save-weights W.safetensors", train, (int)step - 1);
      }
      const char *weights = step > 1 ? "W.safetensors" : "W0.safetensors";
      assert_runs("%s --weights %s " COARSE " --out G.safetensors", grad, weights);
      assert_runs("%s --weights %s --backward bp --out B.safetensors", grad, weights);
      const json_t *certificate = certificate_of_row(document, step - 1);
      const double error = get_real(certificate, "error"), expected = distance("G.safetensors", "B.safetensors");
      if (!(expected > 1e-4 && fabs(error - expected) < bound)) {
        fail_msg("%s, case %d, step %d: certificate %.12g, expected %.12g", kind, k, (int)step, error, expected);
      }
      assert_int_equal(get_integer(certificate, "step"), step);
      assert_int_equal(get_integer(certificate, "passes"), 1);
      of_step = error > largest ? step : of_step;
      largest = fmax(largest, error);
    }
    const json_t *worst = json_object_get(document, "certificate");
    assert_true(get_real(worst, "error") == largest);
    assert_int_equal(get_integer(worst, "step"), of_step);
    assert_int_equal(get_integer(worst, "passes"), ITERATIONS);
    assert_string_equal(get_text(worst, "method"), "bp");
    assert_true(json_is_true(json_object_get(worst, "rounding")) == (k % 2 == 1));
    json_decref(document);
  }
}

/* A run by epochs has the largest certificate of each in its line; the log has what the document has. */
static void test_epochs(void **state) {
  (void)state;
  json_t *steps = run_json("train rnn " SMALL " --iterations 10 --certify-every 2 --log s.jsonl --json");
  json_t *epochs = run_json("train rnn " SMALL " --epochs 2 --certify-every 2 --log e.jsonl --json"); /* of 5 steps */
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    const json_t *found = certificate_of_row(epochs, epoch), *largest = NULL;
    int64_t passes = 0;
    for (int64_t step = 5 * epoch; step < 5 * epoch + 5; ++step) {
      const json_t *one = certificate_of_row(steps, step);
      assert_true((one != NULL) == (step == 0 || step % 2 == 1));
      passes += one != NULL;
      largest = one != NULL && (largest == NULL || get_real(one, "error") > get_real(largest, "error")) ? one : largest;
    }
    assert_true(get_real(found, "error") == get_real(largest, "error") && get_real(found, "error") > 0);
    assert_int_equal(get_integer(found, "step"), get_integer(largest, "step"));
    assert_string_equal(get_text(found, "parameter"), get_text(largest, "parameter"));
    assert_int_equal(get_integer(found, "passes"), passes);
  }
  assert_int_equal(get_integer(json_object_get(epochs, "certificate"), "passes"), 6);
  assert_int_equal(get_integer(json_object_get(epochs, "config"), "certify_every"), 2);
  const struct {
    const char *path;
    const json_t *document;
  } logs[] = {{"s.jsonl", steps}, {"e.jsonl", epochs}};
  for (int i = 0; i < 2; ++i) {
    FILE *file = fopen(logs[i].path, "r");
    assert_non_null(file);
    json_decref(json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL)); /* the run's line */
    for (size_t row = 0; row < json_array_size(json_object_get(logs[i].document, "rows")); ++row) {
      json_t *line = json_loadf(file, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, NULL);
      const json_t *logged = json_object_get(line, "certificate"), *shown = certificate_of_row(logs[i].document, (int64_t)row);
      assert_true((logged == NULL) == (shown == NULL) && (shown == NULL || json_equal(logged, shown)));
      json_decref(line);
    }
    fclose(file);
  }
  json_decref(steps);
  json_decref(epochs);
}

/* What people see. */
static void test_text(void **state) {
  (void)state;
  run_result result = run("train gru " SMALL " --iterations 4 --certify");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "  gradient error\n"));
  assert_non_null(strstr(result.out, "               -\n"));
  assert_non_null(strstr(result.out, "\ncertificates of 1 passes, made in "));
  assert_non_null(strstr(result.out, "; the largest, of step 1: weight gradient error "));
  assert_non_null(strstr(result.out, ", rounding included, against float64 BP over the same states\n"));
  release(&result);
  result = run("train gru " SMALL " --iterations 4 --dtype f64 --certify-every 2");
  assert_non_null(strstr(result.out, "  gradient - BP's\n"));
  assert_non_null(strstr(result.out, "\ncertificates of 3 passes, made in "));
  assert_non_null(
      strstr(result.out, "; the largest, of step 1: weight gradients differ from BP's by 0 of their largest entry ("));
  release(&result);
}

/* ---- nothing else changes ---- */

/* The tensors of a checkpoint's directory, but for times: the same, and under the same header. */
static void assert_same_checkpoint(const char *a, const char *b) {
  char paths[2][64];
  bppsa_safetensors *files[2] = {NULL};
  for (int i = 0; i < 2; ++i) {
    snprintf(paths[i], sizeof paths[i], "%s/checkpoint.safetensors", i == 0 ? a : b);
    assert_int_equal(bppsa_safetensors_load(paths[i], &files[i]), BPPSA_OK);
  }
  assert_int_equal(bppsa_safetensors_count(files[0]), bppsa_safetensors_count(files[1]));
  for (int64_t i = 0; i < bppsa_safetensors_count(files[0]); ++i) {
    const bppsa_named_view *tensor = bppsa_safetensors_get(files[0], i);
    const bppsa_view *other = bppsa_safetensors_find(files[1], tensor->name);
    assert_non_null(other);
    assert_true(bppsa_view_same_shape(&tensor->view, other));
    const bool times = strstr(tensor->name, "epoch_sums") != NULL || strstr(tensor->name, "train.last_") != NULL;
    assert_true(times || memcmp(tensor->view.data, other->data, bppsa_view_bytes(other)) == 0);
  }
  bppsa_safetensors_destroy(files[0]);
  bppsa_safetensors_destroy(files[1]);
  size_t sizes[2];
  char *bytes[2] = {read_bytes(paths[0], &sizes[0]), read_bytes(paths[1], &sizes[1])};
  assert_int_equal(sizes[0], sizes[1]); /* no field is new; checksums of times differ */
  free(bytes[0]);
  free(bytes[1]);
}

/* What two rows say of a pass is the same, or none says anything. */
static void assert_same_pass(const json_t *row, const json_t *other, const char *pass) {
  const json_t *left = json_object_get(row, pass), *right = json_object_get(other, pass);
  assert_true((left == NULL) == (right == NULL) && (left == NULL || json_equal(left, right)));
}

/* The losses and norms of all rows are the same, to the bit. */
static void assert_same_curve(const json_t *a, const json_t *b) {
  const json_t *left = json_object_get(a, "rows"), *right = json_object_get(b, "rows");
  assert_true(json_array_size(left) > 0 && json_array_size(left) == json_array_size(right));
  for (size_t i = 0; i < json_array_size(left); ++i) {
    const json_t *one = json_array_get(left, i), *other = json_array_get(right, i);
    assert_true(get_real(one, "loss") == get_real(other, "loss") && get_real(one, "grad_norm") == get_real(other, "grad_norm"));
    assert_same_pass(one, other, "forward");
    assert_same_pass(one, other, "backward");
  }
}

/* Lengths of the samples, and where they begin anew. */
static void write_spans(void) {
  bppsa_buffer lengths, resets;
  assert_int_equal(bppsa_buffer_create(NULL, BPPSA_I64, 1, (int64_t[]){40}, &lengths), BPPSA_OK);
  assert_int_equal(bppsa_buffer_create(NULL, BPPSA_U8, 2, (int64_t[]){40, 40}, &resets), BPPSA_OK);
  for (int64_t i = 0; i < 40; ++i) {
    ((int64_t *)lengths.view.data)[i] = 1 + i * 7 % 40;
  }
  for (int64_t i = 0; i < 40 * 40; ++i) {
    ((uint8_t *)resets.view.data)[i] = i * 7 % 31 == 0;
  }
  assert_int_equal(bppsa_npy_save("N.npy", &lengths.view), BPPSA_OK);
  assert_int_equal(bppsa_npy_save("R.npy", &resets.view), BPPSA_OK);
  bppsa_buffer_free(&lengths);
  bppsa_buffer_free(&resets);
}

/* Runs of every kind, with certificates of every step and without: the same bits, and the same checkpoint. A run goes on from
 * either checkpoint, with certificates or without, to the same weights. */
static void test_same_bits(void **state) {
  (void)state;
  write_spans();
  static const char *const lines[] = {
      "rnn --backward bp --clip-norm 0.1",
      "gru --chunks 4 --layers 2 --dropout 0.3 --optimizer sgd --momentum 0.9",
      "lstm --backward-chunks 3 --bidirectional --layers 2 --loss all --lengths N.npy --dtype f64",
      "gru --backward-chunks 4 --forward-chunks 4 --warm-up 3 --loss all --validation 0.2 --threads 2",
      "rnn --backward-chunks 4 --lengths N.npy --no-bias --predict-ahead 2",
      "lstm --backward scan --algorithm blelloch --dtype f64",
      "gru --backward-chunks 4 --loss all --resets R.npy"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; ++i) {
    const bool keeps = strstr(lines[i], "--predict-ahead") == NULL;
    const char *with = keeps ? "--checkpoint with" : "", *without = keeps ? "--checkpoint without" : "";
    json_t *plain = run_json("train %s " SMALL " --iterations 7 %s --save-weights p.safetensors --json", lines[i], without);
    json_t *certified =
        run_json("train %s " SMALL " --iterations 7 --certify-every 1 %s --save-weights c.safetensors --json", lines[i], with);
    assert_equal_files("p.safetensors", "c.safetensors");
    assert_same_curve(plain, certified);
    assert_int_equal(get_integer(json_object_get(certified, "certificate"), "passes"), 7);
    const double error = get_real(json_object_get(certified, "certificate"), "error");
    assert_true(error < (strstr(lines[i], "f64") != NULL ? 1e-12 : 1e-5));
    assert_null(json_object_get(plain, "certificate"));
    json_decref(plain);
    json_decref(certified);
    if (keeps) {
      assert_same_checkpoint("with", "without");
      assert_runs("train %s " SMALL " --iterations 12 --save-weights whole.safetensors", lines[i]);
      assert_runs("train %s " SMALL " --iterations 12 --checkpoint with --resume --save-weights r.safetensors", lines[i]);
      assert_equal_files("r.safetensors", "whole.safetensors");
      json_t *resumed = run_json("train %s " SMALL " --iterations 12 --checkpoint without --resume --certify-every 4 --json "
                                 "--save-weights r.safetensors",
                                 lines[i]);
      assert_equal_files("r.safetensors", "whole.safetensors");
      assert_null(certificate_of_row(resumed, 1)); /* step 9 */
      assert_non_null(certificate_of_row(resumed, 0));
      assert_int_equal(get_integer(json_object_get(resumed, "certificate"), "passes"), 2);
      json_decref(resumed);
      assert_int_equal(system("rm -r with without"), 0);
    }
  }
  assert_runs("train rnn " SMALL " --iterations 5 --checkpoint d");
  run_result result = run("train rnn " SMALL " --iterations 7 --checkpoint d --resume --certify");
  assert_non_null(strstr(result.out, "\nno certificate: none of these steps is a multiple of 100\n"));
  release(&result);
}

/* ---- requests ---- */

static void test_refusals(void **state) {
  (void)state;
  static const char *const ranks[] = {"--ranks 2", "--ranks 2 --split time",
                                      "--ranks 2 --split gpipe --layers 2 --micro-batches 2"};
  for (size_t i = 0; i < sizeof ranks / sizeof *ranks; ++i) {
    assert_fails(2, "--certify: given beside ranks, which compute parts of the batch, expected no ranks",
                 "train rnn " SMALL " --iterations 1 --certify %s --log none.jsonl", ranks[i]);
    assert_fails(2, "--certify-every: given beside ranks, which compute parts of the batch, expected no ranks",
                 "train rnn " SMALL " --iterations 1 --certify-every 3 %s --log none.jsonl", ranks[i]);
  }
  assert_fails(2, "--iterations: 0, no step, beside --certify, expected 1 or more",
               "train rnn " SMALL " --iterations 0 --certify");
  assert_fails(2, "--iterations: 0, no step, beside --certify-every, expected 1 or more",
               "train rnn " SMALL " --iterations 0 --certify-every 2");
  assert_fails(2, "--certify-every: '0', expected a whole number, 1 or more", "train rnn " SMALL " --certify-every 0");
  assert_fails(2, "--certify: unknown option", "train lenet5 --certify");
  run_result result = run("train rnn " SMALL " --backward bp --iterations 1 --memory-limit 1000");
  long long bytes; /* room for the network alone, and the order of the samples */
  assert_int_equal(sscanf(strstr(result.err, "needs at least"), "needs at least %lld", &bytes), 1);
  release(&result);
  assert_fails(2, "certificate: rnn: BP needs at least ",
               "train rnn " SMALL " --backward bp --iterations 1 --certify --memory-limit %lld --log none.jsonl", bytes + 8 * 40);
  assert_false(file_exists("none.jsonl"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_epochs), cmocka_unit_test(test_text),
                                     cmocka_unit_test(test_same_bits), cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests_name("cli_certify", tests, enter_directory, leave_directory);
}
