/* `train rnn`, `eval rnn` and `data bitstream` together. */
#include "tests/cli/batch_files.h"

#include <math.h>

#define SMALL "--seq-len 20 --samples 64 --hidden 6"

static json_t *final_of(json_t *document) {
  json_t *final = json_object_get(document, "final");
  assert_true(json_is_object(final));
  return final;
}

static int64_t count_lines(const char *path) {
  size_t size = 0;
  int64_t lines = 0;
  char *bytes = read_bytes(path, &size);
  for (size_t i = 0; i < size; ++i) {
    lines += bytes[i] == '\n';
  }
  free(bytes);
  return lines;
}

/* An option of the scan implies the scan; another --backward beside it is a contradiction. */
static void test_gradients(void **state) {
  (void)state;
  const struct {
    const char *options, *backward, *algorithm, *chosen;
  } good[] = {{"", "bp", NULL, "estimate"},
              {"--backward auto", "bp", NULL, "estimate"},
              {"--backward bp", "bp", NULL, "option"},
              {"--backward scan", "scan", "linear", "estimate"},
              {"--algorithm auto", "scan", "linear", "estimate"},
              {"--algorithm blelloch", "scan", "blelloch", "option"},
              {"--up-levels 2", "scan", "blelloch", "option"},
              {"--chunks 3 --backward scan", "scan", "chunked", "option"}};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; ++i) {
    json_t *document = run_json("train rnn " SMALL " --iterations 1 --json %s", good[i].options);
    const json_t *config = json_object_get(document, "config");
    assert_string_equal(get_text(config, "backward"), good[i].backward);
    assert_string_equal(get_text(config, "chosen"), good[i].chosen);
    if (good[i].algorithm != NULL) {
      assert_string_equal(get_text(config, "algorithm"), good[i].algorithm);
    } else {
      assert_null(json_object_get(config, "algorithm"));
    }
    json_decref(document);
  }
  static const char *const options[] = {"--algorithm auto", "--up-levels 2", "--chunks 3"};
  static const char *const backward[] = {"auto", "bp"};
  for (int i = 0; i < 6; ++i) {
    char message[120];
    snprintf(message, sizeof message, "%.*s: an option of the scan beside --backward %s, expected --backward scan",
             (int)strcspn(options[i / 2], " "), options[i / 2], backward[i % 2]);
    assert_fails(2, message, "train rnn " SMALL " --iterations 1 --backward %s %s", backward[i % 2], options[i / 2]);
  }
}

static void test_epochs(void **state) {
  (void)state;
  json_t *document =
      run_json("train rnn " SMALL " --epochs 3 --validation 0.25 --log e.jsonl --save-weights F.safetensors --json");
  const json_t *rows = json_object_get(document, "rows"), *config = json_object_get(document, "config");
  assert_int_equal(json_array_size(rows), 3);
  assert_int_equal(get_integer(document, "steps_done"), 9); /* 48 samples, 16 a batch */
  assert_int_equal(get_integer(document, "parameters"), 6 + 36 + 6 + 6 + 60 + 10);
  assert_string_equal(get_text(config, "backward"), "bp");
  assert_string_equal(get_text(config, "chosen"), "estimate");
  assert_true(json_is_true(json_object_get(config, "auto")));
  assert_int_equal(count_lines("e.jsonl"), 4); /* what the run is, and its epochs */
  const json_t *final = final_of(document);
  json_t *eval = run_json("eval rnn --weights F.safetensors --seq-len 20 --samples 64 --validation 0.25 --json");
  assert_int_equal(json_object_size(eval), 3);
  assert_int_equal(get_integer(eval, "samples"), 16);
  assert_true(fabs(get_real(eval, "loss") - get_real(final, "validation_loss")) < 1e-6);
  assert_true(fabs(get_real(eval, "accuracy") - get_real(final, "validation_accuracy")) < 1e-12);
  const json_t *last = json_array_get(rows, 2);
  assert_true(get_real(last, "loss") == get_real(final, "loss"));
  json_decref(eval);
  json_decref(document);
}

static void test_iterations(void **state) {
  (void)state;
  json_t *document =
      run_json("train rnn " SMALL " --iterations 5 --batch 24 --log i.jsonl --optimizer sgd --momentum 0.9 --clip-norm 1 --json");
  assert_int_equal(json_array_size(json_object_get(document, "rows")), 5);
  assert_int_equal(get_integer(document, "steps_done"), 5);
  assert_int_equal(get_integer(document, "epochs"), 2); /* 3 batches an epoch */
  assert_int_equal(count_lines("i.jsonl"), 6);
  json_decref(document);
}

/* Every way to the gradient gives the same curve, here in f64. */
static void test_methods(void **state) {
  (void)state;
  const char *const methods[] = {"--algorithm linear", "--algorithm blelloch", "--up-levels 2", "--chunks 4", "--algorithm auto"};
  const char *line = "train rnn " SMALL " --iterations 6 --dtype f64 --layers 2 --loss all --init orthogonal --json";
  json_t *bp = run_json("%s --backward bp", line);
  assert_string_equal(get_text(json_object_get(bp, "config"), "backward"), "bp");
  for (size_t m = 0; m < sizeof methods / sizeof methods[0]; ++m) {
    json_t *scan = run_json("%s %s", line, methods[m]);
    for (size_t i = 0; i < 6; ++i) {
      const double a = get_real(json_array_get(json_object_get(bp, "rows"), i), "loss");
      const double b = get_real(json_array_get(json_object_get(scan, "rows"), i), "loss");
      assert_true(fabs(a - b) < 1e-12);
    }
    json_decref(scan);
  }
  json_decref(bp);
}

/* The written data set trains exactly as the one made on the fly. */
static void test_data(void **state) {
  (void)state;
  const char *const losses[] = {"last", "all"};
  for (int i = 0; i < 2; ++i) {
    json_t *data = run_json("data bitstream --seq-len 20 --samples 64 --loss %s --out-x DX.npy --out-y DY.npy --json", losses[i]);
    assert_int_equal(get_integer(data, "samples"), 64);
    json_decref(data);
    bppsa_buffer x, y;
    assert_int_equal(bppsa_npy_load("DX.npy", &x), BPPSA_OK);
    assert_int_equal(bppsa_npy_load("DY.npy", &y), BPPSA_OK);
    assert_true(x.view.ndim == 3 && x.view.shape[0] == 64 && x.view.shape[1] == 20 && x.view.shape[2] == 1);
    assert_int_equal(y.view.dtype, BPPSA_I64);
    assert_int_equal(y.view.ndim, 1 + i);
    bppsa_buffer_free(&x);
    bppsa_buffer_free(&y);
    json_t *made = run_json("train rnn " SMALL " --iterations 4 --loss %s --json", losses[i]);
    json_t *read = run_json("train rnn --hidden 6 --data npy:DX.npy,DY.npy --iterations 4 --loss %s --json", losses[i]);
    assert_true(get_real(final_of(made), "loss") == get_real(final_of(read), "loss"));
    json_decref(made);
    json_decref(read);
  }
}

/* Weights saved by one run start the next, and bring their architecture. */
static void test_continue(void **state) {
  (void)state;
  assert_runs("train rnn " SMALL " --iterations 2 --layers 2 --dtype f64 --nonlinearity relu --save-weights F.safetensors");
  json_t *document =
      run_json("train rnn --seq-len 20 --samples 64 --iterations 1 --weights F.safetensors --save-weights F.safetensors --json");
  const json_t *config = json_object_get(document, "config");
  assert_int_equal(get_integer(config, "hidden"), 6);
  assert_int_equal(get_integer(config, "layers"), 2);
  assert_string_equal(get_text(config, "dtype"), "f64");
  assert_string_equal(get_text(config, "nonlinearity"), "relu");
  json_decref(document);
  bppsa_safetensors *file = NULL;
  assert_int_equal(bppsa_safetensors_load("F.safetensors", &file), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_count(file), 10);
  assert_string_equal(bppsa_safetensors_metadata(file, "nonlinearity"), "relu");
  assert_string_equal(bppsa_safetensors_metadata(file, "model"), "rnn");
  bppsa_safetensors_destroy(file);
}

static void test_tables(void **state) {
  (void)state;
  run_result result = run("train rnn " SMALL " --epochs 2 --validation 0.25 --backward bp");
  assert_int_equal(result.code, 0);
  assert_string_equal(result.err, ""); /* progress is for terminals */
  const char *const words[] = {"sequential BP", "tanh",   "validation loss", "forward",
                               "backward",      "update", "samples/s",       "final loss"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i) {
    assert_non_null(strstr(result.out, words[i]));
  }
  assert_null(strchr(result.out, '\r'));
  release(&result);
  result = run("train rnn " SMALL " --iterations 40 --chunks 3");
  assert_non_null(strstr(result.out, "scan, chunked (3 chunks)"));
  assert_non_null(strstr(result.out, "\n       40  ")); /* the last iteration has its line */
  release(&result);
  result = run("train rnn " SMALL " --iterations 1");
  assert_non_null(strstr(result.out, "sequential BP, chosen by estimate"));
  release(&result);
}

/* A learning rate that explodes: stopped where it happens, exit 1, the earlier weights file kept. */
static void test_explosion(void **state) {
  (void)state;
  write_bytes("kept.safetensors", "kept", 4);
  assert_fails(1, "training step ",
               "train rnn " SMALL
               " --nonlinearity relu --optimizer sgd --lr 1e30 --iterations 20 --save-weights kept.safetensors --json");
  size_t size = 0;
  char *bytes = read_bytes("kept.safetensors", &size);
  assert_int_equal(size, 4);
  free(bytes);
}

static void test_threads(void **state) {
  (void)state;
  const int threads[] = {1, 2, 7};
  size_t sizes[3];
  char *bytes[3];
  for (int i = 0; i < 3; ++i) {
    assert_runs("train rnn " SMALL " --iterations 5 --chunks 4 --threads %d --save-weights F.safetensors", threads[i]);
    bytes[i] = read_bytes("F.safetensors", &sizes[i]);
    assert_int_equal(sizes[i], sizes[0]);
    assert_memory_equal(bytes[i], bytes[0], sizes[0]);
  }
  for (int i = 0; i < 3; ++i) {
    free(bytes[i]);
  }
}

/* --iterations 0 writes what a run begins with. */
static void test_initial_weights(void **state) {
  (void)state;
  const char *run_line = "train gru --seq-len 5 --samples 64 --hidden 3 --layers 2 --init orthogonal --validation 0.25";
  run_result result = run("%s --seed 3 --iterations 0 --save-weights W0", run_line);
  assert_int_equal(result.code, 0);
  assert_string_equal(result.err, "");
  assert_non_null(strstr(result.out, "no step taken"));
  assert_non_null(strstr(result.out, "weights written to W0\n"));
  assert_null(strstr(result.out, "nan"));
  release(&result);
  json_t *document = run_json("train gru --seq-len 5 --samples 64 --weights W0 --seed 3 --validation 0.25 --iterations 0 --json");
  assert_int_equal(get_integer(document, "steps_done"), 0);
  assert_true(json_is_null(json_object_get(json_object_get(document, "final"), "loss")));
  assert_true(json_is_false(json_object_get(document, "interrupted")));
  json_decref(document);
  assert_runs("train gru --seq-len 5 --samples 64 --seed 3 --validation 0.25 --weights W0 --iterations 4 --save-weights W1");
  assert_runs("%s --seed 3 --iterations 4 --save-weights W2", run_line);
  size_t size[2] = {0};
  char *bytes[2] = {read_bytes("W1", &size[0]), read_bytes("W2", &size[1])};
  assert_int_equal(size[0], size[1]);
  assert_memory_equal(bytes[0], bytes[1], size[0]);
  free(bytes[0]);
  free(bytes[1]);
  assert_fails(2, "--iterations: 0, no step, beside --log, expected 1 or more", "%s --iterations 0 --log L", run_line);
  assert_fails(2, "--iterations: 0, no step, beside --checkpoint", "%s --iterations 0 --checkpoint d", run_line);
  assert_false(file_exists("L") || file_exists("d"));
}

/* --input: a bitstream of several features. */
static void test_input(void **state) {
  (void)state;
  json_decref(run_json("train gru --input 3 --seq-len 8 --hidden 4 --batch 4 --samples 40 --iterations 3 --threads 1 --json "
                       "--save-weights wide.safetensors"));
  json_t *document =
      run_json("eval gru --weights wide.safetensors --input 3 --seq-len 8 --batch 4 --samples 40 --threads 1 --json");
  assert_int_equal(get_integer(document, "samples"), 40);
  json_t *same = run_json("eval gru --weights wide.safetensors --seq-len 8 --batch 4 --samples 40 --threads 1 --json");
  assert_true(json_equal(document, same)); /* the bitstream has as many features as the weights */
  json_decref(same);
  json_decref(document);
  run_result narrow = run("eval gru --weights wide.safetensors --input 1 --seq-len 8 --batch 4 --samples 40 --threads 1");
  assert_int_equal(narrow.code, 2); /* weights of 3, a bitstream of 1 */
  release(&narrow);
  assert_fails(2, "--input: given beside --data npy:a,b", "train rnn --input 2 --data npy:a,b --iterations 1");
  assert_fails(2, "--input: unknown option", "train lenet5 --input 2 --data npy:a,b");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_initial_weights), cmocka_unit_test(test_epochs),   cmocka_unit_test(test_input),
      cmocka_unit_test(test_iterations),      cmocka_unit_test(test_methods),  cmocka_unit_test(test_data),
      cmocka_unit_test(test_continue),        cmocka_unit_test(test_tables),   cmocka_unit_test(test_explosion),
      cmocka_unit_test(test_threads),         cmocka_unit_test(test_gradients)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
