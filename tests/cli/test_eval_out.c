/* `eval --out`: the arrays of the archive agree with the loss, the accuracy and the weights, in the data's order. */
#include "tests/cli/batch_files.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/cli/cnn_files.h"

typedef struct {
  char *bytes; /* owned */
  size_t size;
} archive;

static archive load_archive(const char *path) {
  archive a = {0};
  a.bytes = read_bytes(path, &a.size);
  return a;
}

/* Member NAME.npy: stored, so that its bytes stand behind its local header. */
static bppsa_view get_array(const archive *a, const char *name) {
  char file[100];
  const int length = snprintf(file, sizeof file, "%s.npy", name);
  for (size_t at = 0; at + 30 + (size_t)length < a->size; ++at) {
    if (memcmp(a->bytes + at, "PK\3\4", 4) == 0 && a->bytes[at + 26] == length &&
        memcmp(a->bytes + at + 30, file, (size_t)length) == 0) {
      uint32_t bytes = 0;
      bppsa_view view;
      memcpy(&bytes, a->bytes + at + 22, 4);
      assert_int_equal(bppsa_npy_parse(name, a->bytes + at + 30 + length, bytes, &view), BPPSA_OK);
      return view;
    }
  }
  fail_msg("no array '%s'", name);
  return (bppsa_view){0};
}

static void assert_shape(const bppsa_view *view, bppsa_dtype dtype, int32_t ndim, const int64_t *shape) {
  assert_int_equal(view->dtype, dtype);
  assert_int_equal(view->ndim, ndim);
  assert_memory_equal(view->shape, shape, (size_t)ndim * sizeof *shape);
}

/* Elements lie wherever the header ends. */
static double real_at(const bppsa_view *view, int64_t i) {
  double wide = 0;
  float narrow = 0;
  if (view->dtype == BPPSA_F64) {
    memcpy(&wide, (const char *)view->data + 8 * i, 8);
    return wide;
  }
  memcpy(&narrow, (const char *)view->data + 4 * i, 4);
  return (double)narrow;
}

static int64_t integer_at(const bppsa_view *view, int64_t i) {
  int64_t value = 0;
  memcpy(&value, (const char *)view->data + 8 * i, 8);
  return value;
}

/* Mean cross-entropy of the logits and the share of right predictions, which must be the largest logits. */
static void assert_agree(const archive *a, const int64_t *labels, const json_t *document) {
  const bppsa_view logits = get_array(a, "logits"), predictions = get_array(a, "predictions");
  const int64_t rows = bppsa_view_count(&predictions), classes = logits.shape[logits.ndim - 1];
  double loss = 0, right = 0;
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0, largest = -INFINITY;
    for (int64_t c = 0; c < classes; ++c) {
      sum += exp(real_at(&logits, r * classes + c));
      largest = fmax(largest, real_at(&logits, r * classes + c));
    }
    loss += log(sum) - real_at(&logits, r * classes + labels[r]);
    right += integer_at(&predictions, r) == labels[r];
    assert_true(real_at(&logits, r * classes + integer_at(&predictions, r)) == largest);
  }
  assert_true(fabs(loss / (double)rows - get_real(document, "loss")) < 1e-6);
  assert_true(fabs(right / (double)rows - get_real(document, "accuracy")) < 1e-12);
}

#define SEQUENCES "--data npy:SX.npy,SY.npy --weights SW"

static void make_sequences(const char *model, const char *loss) {
  assert_runs("data bitstream --seq-len 6 --samples 50 %s --out-x SX.npy --out-y SY.npy", loss);
  assert_runs("train %s --data npy:SX.npy,SY.npy --hidden 5 --layers 2 %s --iterations 3 --dtype f64 --save-weights SW", model,
              loss);
}

/* The head's weights times the top layer's last state give the logits: states and logits are of the same samples. */
static void test_last(void **state) {
  (void)state;
  bppsa_buffer labels;
  bppsa_safetensors *weights = NULL;
  make_sequences("rnn", "");
  json_t *document = run_json("eval rnn " SEQUENCES " --batch 7 --out P.npz --states --json");
  archive a = load_archive("P.npz");
  const bppsa_view logits = get_array(&a, "logits"), predictions = get_array(&a, "predictions"), low = get_array(&a, "states_l0"),
                   top = get_array(&a, "states_l1");
  assert_shape(&logits, BPPSA_F64, 2, (int64_t[]){50, 10});
  assert_shape(&predictions, BPPSA_I64, 1, (int64_t[]){50});
  assert_shape(&low, BPPSA_F64, 3, (int64_t[]){50, 6, 5});
  assert_shape(&top, BPPSA_F64, 3, (int64_t[]){50, 6, 5});
  assert_int_equal(bppsa_npy_load("SY.npy", &labels), BPPSA_OK);
  assert_agree(&a, labels.view.data, document);
  assert_int_equal(bppsa_safetensors_load("SW", &weights), BPPSA_OK);
  const double *w = bppsa_safetensors_find(weights, "linear.weight")->data,
               *bias = bppsa_safetensors_find(weights, "linear.bias")->data;
  for (int64_t i = 0; i < 50 * 10; ++i) {
    double sum = bias[i % 10];
    for (int64_t h = 0; h < 5; ++h) {
      sum += w[i % 10 * 5 + h] * real_at(&top, (i / 10 * 6 + 5) * 5 + h);
    }
    assert_true(fabs(sum - real_at(&logits, i)) < 1e-12);
  }
  bppsa_safetensors_destroy(weights);
  bppsa_buffer_free(&labels);
  free(a.bytes);
  json_decref(document);
}

static void test_every_step(void **state) {
  (void)state;
  bppsa_buffer labels;
  make_sequences("gru", "--loss all");
  json_t *document = run_json("eval gru " SEQUENCES " --loss all --batch 16 --out P.npz --json");
  archive a = load_archive("P.npz");
  const bppsa_view logits = get_array(&a, "logits"), predictions = get_array(&a, "predictions");
  assert_shape(&logits, BPPSA_F64, 3, (int64_t[]){50, 6, 10});
  assert_shape(&predictions, BPPSA_I64, 2, (int64_t[]){50, 6});
  assert_int_equal(bppsa_npy_load("SY.npy", &labels), BPPSA_OK);
  assert_agree(&a, labels.view.data, document);
  bppsa_buffer_free(&labels);
  free(a.bytes);
  json_decref(document);
}

/* With held-out samples, the archive has these and no others. */
static void test_held_out(void **state) {
  (void)state;
  bppsa_buffer labels;
  make_sequences("rnn", "");
  json_t *document = run_json("eval rnn " SEQUENCES " --validation 0.3 --out P.npz --json");
  archive a = load_archive("P.npz");
  const bppsa_view predictions = get_array(&a, "predictions");
  assert_shape(&predictions, BPPSA_I64, 1, (int64_t[]){15});
  assert_int_equal(bppsa_npy_load("SY.npy", &labels), BPPSA_OK);
  assert_agree(&a, (const int64_t *)labels.view.data + 35, document);
  bppsa_buffer_free(&labels);
  free(a.bytes);
  json_decref(document);
  run_result result = run("eval rnn " SEQUENCES " --out P.npz");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "outputs   written to P.npz\n"));
  release(&result);
}

static void test_images(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int64_t shape[4];
  } layers[] = {{"states_c", {5, 4, 6, 5}},  {"states_r", {5, 4, 6, 5}}, {"states_p", {5, 4, 5, 4}},
                {"states_f", {5, 80, 1, 1}}, {"states_l", {5, 7, 1, 1}}, {"states_t", {5, 7, 1, 1}}};
  bppsa_buffer labels;
  put_text("net.json", SMALL_NETWORK);
  put_weights("w.safetensors", "net.json", BPPSA_F32, 2);
  put_images("x.npy", "y.npy", (int64_t[]){5, 2, 6, 5}, 3);
  json_t *document =
      run_json("eval net.json --weights w.safetensors --data npy:x.npy,y.npy --batch 2 --out P.npz --states --json");
  archive a = load_archive("P.npz");
  const bppsa_view logits = get_array(&a, "logits");
  assert_shape(&logits, BPPSA_F32, 2, (int64_t[]){5, 3});
  assert_int_equal(bppsa_npy_load("y.npy", &labels), BPPSA_OK);
  assert_agree(&a, labels.view.data, document);
  for (size_t i = 0; i < sizeof layers / sizeof layers[0]; ++i) {
    const bppsa_view states = get_array(&a, layers[i].name);
    assert_shape(&states, BPPSA_F32, 4, layers[i].shape);
  }
  const bppsa_view before = get_array(&a, "states_c"), after = get_array(&a, "states_r");
  for (int64_t i = 0; i < bppsa_view_count(&before); ++i) {
    assert_true(real_at(&after, i) == fmax(real_at(&before, i), 0));
  }
  bppsa_buffer_free(&labels);
  free(a.bytes);
  json_decref(document);
}

static void test_refused(void **state) {
  (void)state;
  make_sequences("rnn", "");
  const int files = count_files();
  size_t size = 0;
  assert_fails(2, "--states: given without --out", "eval rnn " SEQUENCES " --states");
  assert_fails(2, "--out: SW, the file of --weights", "eval rnn " SEQUENCES " --out SW");
  assert_fails(2, "--out: ./SX.npy, the file of --data", "eval rnn " SEQUENCES " --out ./SX.npy");
  assert_fails(2, "--out: missing/P: cannot write into directory", "eval rnn " SEQUENCES " --out missing/P");
  assert_fails(2, "--out: 'P.txt', expected a name that ends in .npz", "eval rnn --weights none --out P.txt");
  assert_fails(2, "--out: 'npz', expected a name that ends in .npz", "eval rnn " SEQUENCES " --out npz");
  assert_fails(2, "--out: 'P.npz.gz', expected", "eval rnn " SEQUENCES " --out P.npz.gz");
  write_bytes("P.npz", "kept", 4);
  assert_fails(2, "none.npy", "eval rnn --data npy:none.npy,SY.npy --weights SW --out P.npz");
  char *bytes = read_bytes("P.npz", &size);
  assert_int_equal(size, 4);
  free(bytes);
  assert_int_equal(count_files(), files);
}

/* A disk that is full after 64 kB: exit code 1, one line, and no part of a file. */
static void test_full_disk(void **state) {
  (void)state;
  int status = 0;
  size_t size = 0;
  make_sequences("rnn", "");
  write_bytes("err.txt", "", 0);
  (void)remove("P.npz");
  const int files = count_files();
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    const struct rlimit limit = {65536, 65536};
    if (freopen("err.txt", "w", stderr) == NULL || setrlimit(RLIMIT_FSIZE, &limit) != 0) {
      _exit(9);
    }
    execl(BPPSA_TEST_PROGRAM, "bppsa", "eval", "rnn", "--weights", "SW", "--samples", "20000", "--seq-len", "6", "--threads", "1",
          "--out", "P.npz", "--states", (char *)NULL);
    _exit(9);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 1);
  char *text = read_bytes("err.txt", &size);
  text[size] = '\0';
  assert_non_null(strstr(text, "P.npz: cannot write after "));
  assert_non_null(strstr(text, "File too large"));
  free(text);
  assert_int_equal(count_files(), files);
}

/* For real targets the predictions are the outputs. */
static void test_real_targets(void **state) {
  (void)state;
  write_reals("RX.npy", BPPSA_F64, 3, (int64_t[]){5, 6, 2});
  write_reals("RY.npy", BPPSA_F64, 3, (int64_t[]){5, 6, 3});
  assert_runs("train rnn --data npy:RX.npy,RY.npy --loss mse-all --batch 5 --iterations 1 --save-weights R.safetensors");
  assert_runs("eval rnn --weights R.safetensors --data npy:RX.npy,RY.npy --out P.npz");
  archive a = load_archive("P.npz");
  const bppsa_view logits = get_array(&a, "logits"), predictions = get_array(&a, "predictions");
  assert_shape(&predictions, BPPSA_F32, 3, (int64_t[]){5, 6, 3});
  for (int64_t i = 0; i < 5 * 6 * 3; ++i) {
    assert_true(real_at(&predictions, i) == real_at(&logits, i));
  }
  free(a.bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_last),     cmocka_unit_test(test_every_step),
                                     cmocka_unit_test(test_held_out), cmocka_unit_test(test_images),
                                     cmocka_unit_test(test_refused),  cmocka_unit_test(test_real_targets),
                                     cmocka_unit_test(test_full_disk)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
