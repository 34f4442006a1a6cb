/* `grad rnn`: the file holds the right tensors, and they are the gradient of the loss. Agreement with an independent reference is
 * tested where the gradients are made (tests/rnn); this test covers the way from the input files to the output file. */
#include "tests/cli/batch_files.h"

#include <math.h>

#define BATCH "--input X.npy --labels Y.npy"
#define BATCH_ALL "--input X.npy --labels YT.npy --loss all"

static bppsa_safetensors *load(const char *path) {
  bppsa_safetensors *file = NULL;
  assert_int_equal(bppsa_safetensors_load(path, &file), BPPSA_OK);
  return file;
}

static const bppsa_view *find(const bppsa_safetensors *file, const char *name) {
  const bppsa_view *view = bppsa_safetensors_find(file, name);
  if (view == NULL) {
    fail_msg("no tensor '%s'", name);
  }
  return view;
}

static void check_tensor(const bppsa_safetensors *file, const char *name, bppsa_dtype dtype, int32_t ndim, const int64_t *shape) {
  const bppsa_view *view = find(file, name);
  assert_int_equal(view->dtype, dtype);
  assert_int_equal(view->ndim, ndim);
  for (int32_t d = 0; d < ndim; ++d) {
    assert_int_equal(view->shape[d], shape[d]);
  }
}

static void test_file(void **state) {
  (void)state;
  assert_runs("grad rnn --weights W2.safetensors " BATCH " --out G.safetensors");
  bppsa_safetensors *file = load("G.safetensors");
  assert_int_equal(bppsa_safetensors_count(file), 4 * 2 + 2 + 2); /* no h0 */
  check_tensor(file, "rnn.weight_ih_l0", BPPSA_F32, 2, (int64_t[]){H, 1});
  check_tensor(file, "rnn.weight_hh_l0", BPPSA_F32, 2, (int64_t[]){H, H});
  check_tensor(file, "rnn.bias_ih_l0", BPPSA_F32, 1, (int64_t[]){H});
  check_tensor(file, "rnn.weight_ih_l1", BPPSA_F32, 2, (int64_t[]){H, H});
  check_tensor(file, "rnn.bias_hh_l1", BPPSA_F32, 1, (int64_t[]){H});
  check_tensor(file, "linear.weight", BPPSA_F32, 2, (int64_t[]){CLASSES, H});
  check_tensor(file, "linear.bias", BPPSA_F32, 1, (int64_t[]){CLASSES});
  check_tensor(file, "input", BPPSA_F32, 3, (int64_t[]){T, B, 1});
  check_tensor(file, "loss", BPPSA_F32, 0, NULL);
  bppsa_safetensors_destroy(file);
  assert_runs("grad rnn --weights W64.safetensors " BATCH " --h0 H0.npy --out G.safetensors");
  file = load("G.safetensors");
  assert_int_equal(bppsa_safetensors_count(file), 4 + 2 + 3);
  check_tensor(file, "h0", BPPSA_F64, 3, (int64_t[]){1, B, H});
  check_tensor(file, "loss", BPPSA_F64, 0, NULL);
  bppsa_safetensors_destroy(file);
}

/* Largest difference between two results, over the larger norm. */
static double difference(const bppsa_safetensors *a, const bppsa_safetensors *b) {
  double worst = 0;
  assert_int_equal(bppsa_safetensors_count(a), bppsa_safetensors_count(b));
  for (int64_t i = 0; i < bppsa_safetensors_count(a); ++i) {
    const bppsa_named_view *tensor = bppsa_safetensors_get(a, i);
    const bppsa_view *other = find(b, tensor->name);
    double sum = 0, norm = 0;
    assert_true(bppsa_view_same_shape(&tensor->view, other));
    for (int64_t k = 0; k < bppsa_view_count(other); ++k) {
      sum += pow(bppsa_view_get(&tensor->view, k) - bppsa_view_get(other, k), 2);
      norm += pow(bppsa_view_get(other, k), 2);
    }
    worst = fmax(worst, norm > 0 ? sqrt(sum / norm) : sqrt(sum));
  }
  return worst;
}

static void test_algorithms(void **state) {
  (void)state;
  const char *const methods[] = {"--algorithm linear", "--algorithm blelloch", "--up-levels 1",   "--algorithm chunked",
                                 "--chunks 3",         "--algorithm auto",     "--backward scan", ""};
  const char *const batches[] = {"--weights W64.safetensors " BATCH, "--weights W64.safetensors " BATCH_ALL " --h0 H0.npy"};
  for (size_t b = 0; b < 2; ++b) {
    assert_runs("grad rnn %s --backward bp --out BP.safetensors", batches[b]);
    bppsa_safetensors *bp = load("BP.safetensors");
    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; ++m) {
      assert_runs("grad rnn %s %s --out G.safetensors", batches[b], methods[m]);
      bppsa_safetensors *scan = load("G.safetensors");
      assert_true(difference(scan, bp) < 1e-12);
      bppsa_safetensors_destroy(scan);
    }
    bppsa_safetensors_destroy(bp);
  }
}

static double loss_with(const char *weights_path, const bppsa_safetensors *weights, const char *name, int64_t index,
                        double step) {
  bppsa_named_view tensors[16];
  bppsa_view *moved = NULL;
  const int64_t count = bppsa_safetensors_count(weights);
  for (int64_t i = 0; i < count; ++i) {
    tensors[i] = *bppsa_safetensors_get(weights, i);
    moved = strcmp(tensors[i].name, name) == 0 ? &tensors[i].view : moved;
  }
  assert_non_null(moved);
  const double value = bppsa_view_get(moved, index);
  bppsa_view_set(moved, index, value + step);
  assert_int_equal(bppsa_safetensors_save(weights_path, count, tensors, 0, NULL), BPPSA_OK);
  bppsa_view_set(moved, index, value);
  json_t *result = run_json("grad rnn --weights %s " BATCH_ALL " --h0 H0.npy --out F.safetensors --json", weights_path);
  const double loss = get_real(result, "loss");
  json_decref(result);
  return loss;
}

/* The stored gradient against (loss(w + s) - loss(w - s)) / 2s, for one element of every weight. */
static void test_finite_differences(void **state) {
  (void)state;
  const double step = 1e-5;
  assert_runs("grad rnn --weights W64.safetensors " BATCH_ALL " --h0 H0.npy --out G.safetensors");
  bppsa_safetensors *weights = load("W64.safetensors"), *gradients = load("G.safetensors");
  for (int64_t i = 0; i < bppsa_safetensors_count(weights); ++i) {
    const bppsa_named_view *tensor = bppsa_safetensors_get(weights, i);
    const int64_t index = bppsa_view_count(&tensor->view) / 2;
    const double up = loss_with("M.safetensors", weights, tensor->name, index, step);
    const double down = loss_with("M.safetensors", weights, tensor->name, index, -step);
    const double gradient = bppsa_view_get(find(gradients, tensor->name), index);
    assert_true(fabs((up - down) / (2 * step) - gradient) < 1e-8);
    assert_true(gradient != 0);
  }
  bppsa_safetensors_destroy(weights);
  bppsa_safetensors_destroy(gradients);
}

static void test_json(void **state) {
  (void)state;
  json_t *result = run_json("grad rnn --weights W64.safetensors " BATCH " --chunks 3 --out G.safetensors --json");
  bppsa_safetensors *file = load("G.safetensors");
  assert_true(get_real(result, "loss") == bppsa_view_get(find(file, "loss"), 0));
  assert_string_equal(get_text(result, "algorithm"), "chunked");
  assert_int_equal(get_integer(result, "chunks"), 3);
  const json_t *tensors = json_object_get(result, "tensors");
  assert_int_equal(json_array_size(tensors), bppsa_safetensors_count(file));
  for (size_t i = 0; i < json_array_size(tensors); ++i) {
    const json_t *tensor = json_array_get(tensors, i), *shape = json_object_get(tensor, "shape");
    const bppsa_view *view = find(file, get_text(tensor, "name"));
    double sum = 0;
    for (int64_t k = 0; k < bppsa_view_count(view); ++k) {
      sum += pow(bppsa_view_get(view, k), 2);
    }
    assert_true(fabs(get_real(tensor, "norm") - sqrt(sum)) <= 1e-14 * sqrt(sum));
    assert_int_equal(json_array_size(shape), view->ndim);
  }
  bppsa_safetensors_destroy(file);
  json_decref(result);
}

/* The nonlinearity comes from our own files, from the option for others, and a file of ours may be loaded by name alone. */
static void test_nonlinearity(void **state) {
  (void)state;
  assert_runs("grad rnn --weights W2.safetensors " BATCH " --out A.safetensors");
  assert_runs("grad rnn --weights W2.safetensors " BATCH " --nonlinearity relu --out B.safetensors");
  bppsa_safetensors *a = load("A.safetensors"), *b = load("B.safetensors"), *weights = load("W2.safetensors");
  assert_true(difference(a, b) == 0);
  bppsa_safetensors_destroy(b);
  bppsa_named_view tensors[16], extra = {"something.else", bppsa_safetensors_get(weights, 0)->view};
  const int64_t count = bppsa_safetensors_count(weights);
  for (int64_t i = 0; i < count; ++i) {
    tensors[i] = *bppsa_safetensors_get(weights, i);
  }
  tensors[count] = extra; /* ignored */
  assert_int_equal(bppsa_safetensors_save("P.safetensors", count + 1, tensors, 0, NULL), BPPSA_OK);
  assert_runs("grad rnn --weights P.safetensors " BATCH " --nonlinearity relu --out B.safetensors");
  b = load("B.safetensors");
  assert_true(difference(a, b) == 0);
  bppsa_safetensors_destroy(b);
  assert_runs("grad rnn --weights P.safetensors " BATCH " --out B.safetensors"); /* tanh by default */
  b = load("B.safetensors");
  assert_true(difference(a, b) > 1e-3);
  bppsa_safetensors_destroy(b);
  bppsa_safetensors_destroy(a);
  bppsa_safetensors_destroy(weights);
}

/* relu with large weights overflows f32: the message names the place, and nothing is written. */
static void test_overflow(void **state) {
  (void)state;
  bppsa_safetensors *weights = load("W2.safetensors");
  bppsa_named_view tensors[16];
  const int64_t count = bppsa_safetensors_count(weights);
  for (int64_t i = 0; i < count; ++i) {
    tensors[i] = *bppsa_safetensors_get(weights, i);
    for (int64_t k = 0; k < bppsa_view_count(&tensors[i].view); ++k) {
      bppsa_view_set(&tensors[i].view, k, 1e15);
    }
  }
  assert_int_equal(bppsa_safetensors_save("L.safetensors", count, tensors, 0, NULL), BPPSA_OK);
  bppsa_safetensors_destroy(weights);
  assert_fails(1, "hidden state at layer 0, step ",
               "grad rnn --weights L.safetensors --nonlinearity relu " BATCH " --out none.safetensors");
  assert_fails(1, "sample 0: not finite",
               "grad rnn --weights L.safetensors --nonlinearity relu " BATCH " --out none.safetensors --json");
  assert_false(file_exists("none.safetensors"));
}

static void assert_same_bytes(const bppsa_safetensors *a, const bppsa_safetensors *b, const char *name) {
  const bppsa_view *x = find(a, name), *y = find(b, name);
  assert_true(bppsa_view_same_shape(x, y));
  assert_true(bppsa_view_bytes(x) > 0);
  assert_memory_equal(x->data, y->data, bppsa_view_bytes(x));
}

/* A batch large enough that every thread has work: small ones are left to one. */
static void test_threads(void **state) {
  (void)state;
  enum { STEPS = 200, SAMPLES = 17, HIDDEN = 20 };
  const char *const methods[] = {"--chunks 3", "--algorithm linear", "--up-levels 2", "--backward bp"};
  assert_runs("train rnn --seq-len 5 --samples 32 --iterations 1 --hidden 20 --layers 2 --save-weights L2.safetensors");
  write_reals("LX.npy", BPPSA_F32, 3, (int64_t[]){STEPS, SAMPLES, 1});
  write_labels("LY.npy", 2, (int64_t[]){STEPS, SAMPLES}, -1, 0);
  write_reals("LH.npy", BPPSA_F32, 3, (int64_t[]){2, SAMPLES, HIDDEN});
  for (size_t m = 0; m < sizeof methods / sizeof methods[0]; ++m) {
    size_t size = 0;
    assert_runs("grad rnn --weights L2.safetensors --input LX.npy --labels LY.npy --h0 LH.npy --loss all %s --threads 1 --out "
                "ONE.safetensors",
                methods[m]);
    char *bytes = read_bytes("ONE.safetensors", &size);
    bppsa_safetensors *one = load("ONE.safetensors");
    for (int threads = 2; threads <= 7; threads += 5) {
      size_t several_size = 0;
      assert_runs("grad rnn --weights L2.safetensors --input LX.npy --labels LY.npy --h0 LH.npy --loss all %s --threads %d --out "
                  "G.safetensors",
                  methods[m], threads);
      bppsa_safetensors *several = load("G.safetensors");
      assert_same_bytes(several, one, "input");
      assert_same_bytes(several, one, "h0");
      char *several_bytes = read_bytes("G.safetensors", &several_size);
      assert_int_equal(several_size, size);
      assert_memory_equal(several_bytes, bytes, size);
      free(several_bytes);
      bppsa_safetensors_destroy(several);
    }
    free(bytes);
    bppsa_safetensors_destroy(one);
  }
}

/* Of a tensor of the document. */
static double norm_of(const json_t *document, size_t index) {
  return json_real_value(json_object_get(json_array_get(json_object_get(document, "tensors"), index), "norm"));
}

static void test_speculative(void **state) {
  (void)state;
  static const char *const cells[] = {"rnn", "gru", "lstm"};
  static const char grad[] = "grad %s --weights %s.safetensors --input X.npy --labels Y.npy --out G.safetensors ";
  for (int i = 0; i < 3; ++i) {
    assert_runs("train %s --hidden 4 --seq-len 5 --samples 16 --iterations 0 --save-weights %s.safetensors", cells[i], cells[i]);
    char line[512];
    snprintf(line, sizeof line, grad, cells[i], cells[i]);
    json_t *bp = run_json("%s --backward bp --json", line), *found = run_json("%s --backward-chunks 3 --json", line);
    const json_t *pass = json_object_get(found, "speculation");
    assert_null(json_object_get(bp, "speculation"));
    assert_string_equal(json_string_value(json_object_get(found, "backward")), "speculative");
    assert_int_equal(json_integer_value(json_object_get(pass, "possible")), T);
    assert_true(json_is_true(json_object_get(pass, "speculated")));
    assert_int_equal(json_array_size(json_object_get(bp, "tensors")), json_array_size(json_object_get(found, "tensors")));
    for (size_t k = 0; k < json_array_size(json_object_get(bp, "tensors")); ++k) {
      assert_true(fabs(norm_of(found, k) - norm_of(bp, k)) <= 1e-6 * norm_of(bp, k));
    }
    json_decref(bp);
    json_decref(found);
    run_result result = run("%s --backward speculative --backward-chunks 3", line);
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "speculative BP"));
    assert_non_null(strstr(result.out, "backward pass in parallel: "));
    release(&result);
    result = run("%s --backward speculative --backward-tolerance 0", line);
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "sequential BP"));
    assert_non_null(strstr(result.err, "note: --backward: speculative asked for, the pass is BP"));
    release(&result);
    assert_fails(2, "--backward-chunks: an option of speculative BP beside --backward bp, expected --backward speculative",
                 "%s --backward bp --backward-chunks 3", line);
    assert_fails(2, "--backward-warm-up: an option of speculative BP beside --backward scan",
                 "%s --chunks 2 --backward-warm-up 3", line);
  }
  assert_fails(2, "--backward: 'speculative', expected auto, bp or scan",
               "grad lenet5 --weights W.safetensors --input X.npy --labels Y.npy --out G.safetensors --backward speculative");
}

static json_t *certificate_of(const json_t *document, double *error) {
  json_t *found = json_object_get(document, "certificate");
  assert_non_null(found);
  *error = get_real(found, "error");
  return found;
}

/* --certify: as small as rounding in f32, nothing in f64 where the method is BP. */
static void test_certify(void **state) {
  (void)state;
  static const char *const methods[] = {"--backward bp", "--chunks 3", "--backward-chunks 3"};
  for (size_t m = 0; m < 3; ++m) {
    double error;
    json_t *document =
        run_json("grad rnn --weights W2.safetensors " BATCH " %s --certify --out G.safetensors --json", methods[m]);
    const json_t *certificate = certificate_of(document, &error);
    assert_true(error > 0 && error < 2e-6);
    assert_string_equal(get_text(certificate, "method"), "bp");
    assert_true(json_is_true(json_object_get(certificate, "rounding")));
    assert_int_equal(strncmp(get_text(certificate, "parameter"), "rnn.", 4) == 0 ||
                         strncmp(get_text(certificate, "parameter"), "linear.", 7) == 0,
                     1);
    json_decref(document);
    document = run_json("grad rnn --weights W64.safetensors " BATCH " %s --certify --out G.safetensors --json", methods[m]);
    assert_true(json_is_false(json_object_get(certificate_of(document, &error), "rounding")));
    assert_true(m == 0 ? error == 0 : error < 1e-13);
    json_decref(document);
  }
  run_result result = run("grad rnn --weights W2.safetensors " BATCH " --certify --out G.safetensors");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "weight gradient error "));
  assert_non_null(strstr(result.out, ", rounding included, against float64 BP over the same states\n"));
  release(&result);
  json_t *document = run_json("grad rnn --weights W2.safetensors " BATCH " --out G.safetensors --json");
  assert_null(json_object_get(document, "certificate"));
  json_decref(document);
  assert_fails(2, "--certify: given beside ranks, which compute parts of the batch, expected no ranks",
               "grad rnn --weights W2.safetensors " BATCH " --certify --ranks 2 --out none.safetensors");
  result = run("grad rnn --weights W2.safetensors " BATCH " --backward bp --memory-limit 1 --out none.safetensors");
  long long bytes; /* room for the network alone */
  assert_int_equal(sscanf(strstr(result.err, "needs at least"), "needs at least %lld", &bytes), 1);
  release(&result);
  assert_fails(2, "certificate: rnn: BP needs at least ",
               "grad rnn --weights W2.safetensors " BATCH " --backward bp --certify --memory-limit %lld --out none.safetensors",
               bytes);
  assert_fails(2, "--certify: unknown option", "grad lenet5 --certify");
  assert_false(file_exists("none.safetensors"));
}

/* --input-gradients: of a loss on the last step a speculative pass has absolute ones, and BP computes exact ones. */
static void test_input_gradients(void **state) {
  (void)state;
  static const struct {
    const char *options, *label, *words;
    bool speculated;
  } cases[] = {
      {BATCH " --backward-chunks 3", "absolute", "input gradients: right to 2.4e-07 s absolutely, s being the mean", true},
      {BATCH " --backward-chunks 3 --input-gradients absolute --backward-tolerance 0.5", "absolute", "right to 0.5 s absol",
       true},
      {BATCH " --backward speculative --backward-chunks 3 --input-gradients exact", "exact",
       "input gradients: exact, as BP's, which has computed them\n", false},
      {BATCH_ALL " --backward-chunks 3 --input-gradients exact", "exact",
       "input gradients: exact, as BP's: the loss reaches every step\n", true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    json_t *document = run_json("grad rnn --weights W2.safetensors %s --out G.safetensors --json", cases[i].options);
    const json_t *pass = json_object_get(document, "speculation");
    assert_string_equal(get_text(document, "input_gradients"), cases[i].label);
    assert_int_equal(json_is_true(json_object_get(pass, "speculated")), cases[i].speculated);
    json_decref(document);
    run_result result = run("grad rnn --weights W2.safetensors %s --out G.safetensors", cases[i].options);
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, cases[i].words));
    release(&result);
  }
  assert_runs("grad rnn --weights W2.safetensors " BATCH " --backward bp --out BP.safetensors");
  assert_runs("grad rnn --weights W2.safetensors " BATCH " --backward-chunks 3 --input-gradients exact --out G.safetensors");
  assert_equal_files("BP.safetensors", "G.safetensors");
  json_t *document = run_json("grad rnn --weights W2.safetensors " BATCH " --input-gradients exact --out G.safetensors --json");
  assert_string_equal(get_text(document, "backward"), "bp"); /* it asks for no method */
  assert_null(json_object_get(document, "input_gradients"));
  json_decref(document);
  assert_fails(2, "--input-gradients: given beside BP, whose gradients are exact, expected --backward speculative or auto",
               "grad rnn --weights W2.safetensors " BATCH " --backward bp --input-gradients exact --out none.safetensors");
  assert_fails(2, "--input-gradients: given beside a scan, whose gradients are exact",
               "grad rnn --weights W2.safetensors " BATCH " --chunks 3 --input-gradients absolute --out none.safetensors");
  assert_fails(2, "--input-gradients: 'right', expected absolute or exact", "grad rnn --input-gradients right");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_file),           cmocka_unit_test(test_algorithms),   cmocka_unit_test(test_finite_differences),
      cmocka_unit_test(test_json),           cmocka_unit_test(test_nonlinearity), cmocka_unit_test(test_overflow),
      cmocka_unit_test(test_threads),        cmocka_unit_test(test_speculative),  cmocka_unit_test(test_certify),
      cmocka_unit_test(test_input_gradients)};
  return cmocka_run_group_tests(tests, enter_with_batch, leave_directory);
}
