/* `grad`, `train`, `eval` and `jacobian` with --device: the same files and curves as on the processor. The device is
 * BPPSA_TEST_DEVICE. */
#include "tests/cli/batch_files.h"

#include <float.h>
#include <math.h>

#include "tests/cli/cnn_files.h"

#define SMALL "--seq-len 20 --samples 40 --hidden 6 --dtype f64"

static const char *device; /* "--device cuda" */

static const char *const kinds[] = {"rnn", "gru", "lstm"};

/* Every tensor of two files differs by less than `bound` times the larger norm. */
static void assert_same_files(const char *a, const char *b, double bound) {
  bppsa_safetensors *left = NULL, *right = NULL;
  assert_int_equal(bppsa_safetensors_load(a, &left), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_load(b, &right), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_count(left), bppsa_safetensors_count(right));
  for (int64_t i = 0; i < bppsa_safetensors_count(left); ++i) {
    const bppsa_named_view *tensor = bppsa_safetensors_get(left, i);
    const bppsa_view *other = bppsa_safetensors_find(right, tensor->name);
    double sum = 0, norm = 0;
    assert_non_null(other);
    assert_true(bppsa_view_same_shape(&tensor->view, other));
    for (int64_t k = 0; k < bppsa_view_count(other); ++k) {
      sum += pow(bppsa_view_get(&tensor->view, k) - bppsa_view_get(other, k), 2);
      norm += pow(bppsa_view_get(other, k), 2);
    }
    if (!(norm > 0 && sqrt(sum / norm) < bound)) {
      fail_msg("%s: %g of %g", tensor->name, sqrt(sum), sqrt(norm));
    }
  }
  bppsa_safetensors_destroy(left);
  bppsa_safetensors_destroy(right);
}

static void assert_same_rows(const json_t *a, const json_t *b, const char *key, double bound) {
  const json_t *left = json_object_get(a, "rows"), *right = json_object_get(b, "rows");
  assert_true(json_array_size(left) > 0 && json_array_size(left) == json_array_size(right));
  for (size_t i = 0; i < json_array_size(left); ++i) {
    assert_true(fabs(get_real(json_array_get(left, i), key) - get_real(json_array_get(right, i), key)) < bound);
  }
}

static void test_grad(void **state) {
  (void)state;
  static const char *const batches[] = {"--input X.npy --labels Y.npy", "--input X.npy --labels YT.npy --loss all --h0 H0.npy"};
  for (int k = 0; k < 6; ++k) {
    const char *kind = kinds[k / 2], *batch = batches[k % 2];
    assert_runs("train %s --seq-len 5 --samples 32 --iterations 1 --hidden 4 --dtype f64 --save-weights K.safetensors", kind);
    assert_runs("grad %s --weights K.safetensors %s --backward bp --out C.safetensors", kind, batch);
    assert_runs("grad %s --weights K.safetensors %s --backward bp --out D.safetensors %s", kind, batch, device);
    assert_same_files("C.safetensors", "D.safetensors", 1e-12);
    assert_runs("grad %s --weights K.safetensors %s --chunks 3 --out D.safetensors %s", kind, batch, device);
    assert_same_files("C.safetensors", "D.safetensors", 1e-12);
  }
}

/* An explosion is reported as on the processor. */
static void test_nonfinite(void **state) {
  (void)state;
  run_result on_cpu =
      run("train rnn --seq-len 20 --samples 40 --hidden 6 --nonlinearity relu --optimizer sgd --lr 1e30 --iterations 9");
  run_result on_device = run(
      "train rnn --seq-len 20 --samples 40 --hidden 6 --nonlinearity relu --optimizer sgd --lr 1e30 --iterations 9 %s", device);
  assert_int_equal(on_cpu.code, 1);
  assert_int_equal(on_device.code, 1);
  assert_one_error(&on_cpu, "non-finite");
  assert_string_equal(on_cpu.err, on_device.err);
  release(&on_cpu);
  release(&on_device);
}

/* --certify on the device: the bits of a run without it, in steps that are recorded and in such that are not; errors as small as
 * rounding, and where much is dropped those of the processor. */
static void test_certify(void **state) {
  (void)state;
  static const char *const lines[] = {"gru --clip-norm 0.05 --layers 2 --dropout 0.3", "rnn --backward-chunks 3 --loss all",
                                      "lstm --chunks 3 --bidirectional"};
  for (int i = 0; i < 6; ++i) {
    const char *dtype = i % 2 == 0 ? "f32" : "f64", *every = i % 2 == 0 ? "1" : "3";
    const char *train = "train %s --seq-len 20 --samples 40 --hidden 6 --iterations 8 --dtype %s %s --json";
    char line[256];
    snprintf(line, sizeof line, train, lines[i / 2], dtype, device);
    json_t *plain = run_json("%s --save-weights P.safetensors", line);
    json_t *certified = run_json("%s --save-weights C.safetensors --certify-every %s", line, every);
    assert_equal_files("P.safetensors", "C.safetensors");
    assert_same_rows(plain, certified, "loss", DBL_MIN);
    assert_same_rows(plain, certified, "grad_norm", DBL_MIN);
    const json_t *found = json_object_get(certified, "certificate");
    const double error = get_real(found, "error");
    assert_int_equal(get_integer(found, "passes"), i % 2 == 0 ? 8 : 3);
    assert_true(i % 2 == 0 ? error > 1e-9 && error < 1e-5 : error < 1e-12);
    json_decref(plain);
    json_decref(certified);
  }
  const char *coarse = "train rnn --seq-len 60 --samples 16 --hidden 6 --iterations 2 --dtype f64 --loss all --init orthogonal "
                       "--backward-chunks 3 "
                       "--backward-warm-up 0 --backward-tolerance 0.5 --certify-every 1 --json";
  json_t *on_cpu = run_json("%s", coarse), *on_device = run_json("%s %s", coarse, device);
  const double expected = get_real(json_object_get(on_cpu, "certificate"), "error");
  assert_true(expected > 1e-4);
  assert_true(fabs(get_real(json_object_get(on_device, "certificate"), "error") - expected) < .5 * expected);
  json_decref(on_cpu);
  json_decref(on_device);
  bppsa_buffer lengths;
  assert_int_equal(bppsa_buffer_create(NULL, BPPSA_I64, 1, (int64_t[]){40}, &lengths), BPPSA_OK);
  for (int64_t i = 0; i < 40; ++i) {
    ((int64_t *)lengths.view.data)[i] = 20;
  }
  assert_int_equal(bppsa_npy_save("L.npy", &lengths.view), BPPSA_OK);
  bppsa_buffer_free(&lengths);
  const char *line = "train rnn --seq-len 20 --samples 40 --iterations 1 --lengths L.npy --certify --log none.jsonl %s";
  if (strstr(device, "cuda") != NULL) {
    assert_fails(2, "certificate of samples that have lengths on a GPU, expected a CPU", line, device);
    assert_false(file_exists("none.jsonl"));
  }
}

static void test_train_and_eval(void **state) {
  (void)state;
  static const char *const lines[] = {"train rnn " SMALL " --epochs 2 --validation 0.25 --clip-norm 0.5 --json",
                                      "train gru " SMALL
                                      " --iterations 5 --loss all --layers 2 --chunks 3 --optimizer sgd --json",
                                      "train lstm " SMALL " --iterations 5 --loss all --layers 2 --backward bp --json"};
  for (int k = 0; k < 3; ++k) {
    const char *line = lines[k];
    json_t *on_cpu = run_json("%s --save-weights C.safetensors", line);
    json_t *on_device = run_json("%s --save-weights D.safetensors %s", line, device);
    assert_same_rows(on_cpu, on_device, "loss", 1e-10);
    assert_same_rows(on_cpu, on_device, "accuracy", 1e-10);
    assert_same_rows(on_cpu, on_device, "grad_norm", 1e-9);
    assert_same_files("C.safetensors", "D.safetensors", 1e-9);
    const char *loss = k == 0 ? "--validation 0.25" : "--loss all";
    json_t *mine = run_json("eval %s --weights D.safetensors --seq-len 20 --samples 40 %s --json", kinds[k], loss);
    json_t *its = run_json("eval %s --weights D.safetensors --seq-len 20 --samples 40 %s --json %s", kinds[k], loss, device);
    assert_true(fabs(get_real(mine, "loss") - get_real(its, "loss")) < 1e-12);
    assert_true(get_real(mine, "accuracy") == get_real(its, "accuracy"));
    json_decref(mine);
    json_decref(its);
    json_decref(on_cpu);
    json_decref(on_device);
  }
}

/* The first steps of a run by iterations, interrupted and resumed, with the bits of the whole. */
static void test_resume(void **state) {
  (void)state;
  const char *line = "train gru " SMALL " --batch 16 --checkpoint-every 2 --clip-norm 1";
  assert_runs("%s --iterations 7 --checkpoint whole --save-weights C.safetensors %s", line, device);
  assert_runs("%s --iterations 4 --checkpoint parts %s", line, device);
  assert_runs("%s --iterations 7 --checkpoint parts --resume --save-weights D.safetensors %s", line, device);
  assert_same_files("C.safetensors", "D.safetensors", 1e-300);
}

/* Samples of their own lengths, dropout, both directions: the processor's losses and weights, in epochs whose steps are recorded
 * and replayed; a resumed run has the bits of a whole one. */
static void test_sequences(void **state) {
  (void)state;
  enum { COUNT = 40, STEPS = 20 };
  int64_t lengths[COUNT];
  static const int64_t count = COUNT, targets[] = {COUNT, STEPS, 3}, inputs[] = {COUNT, STEPS, 2};
  for (int64_t i = 0; i < COUNT; ++i) {
    lengths[i] = 1 + i * 7 % STEPS;
  }
  const bppsa_view view = bppsa_view_make(lengths, BPPSA_I64, 1, &count);
  assert_int_equal(bppsa_npy_save("N.npy", &view), BPPSA_OK);
  double *values = uniform(1, COUNT * STEPS * 3, 0.5);
  for (int64_t i = 0; i < COUNT * STEPS * 3; ++i) {
    values[i] += 0.5;
  }
  bppsa_view array = bppsa_view_make(values, BPPSA_F64, 3, targets);
  assert_int_equal(bppsa_npy_save("T.npy", &array), BPPSA_OK);
  array = bppsa_view_make(values, BPPSA_F64, 3, inputs);
  assert_int_equal(bppsa_npy_save("I.npy", &array), BPPSA_OK);
  bppsa_free(values);
  static const char *const lines[] = {
      "train gru " SMALL " --batch 8 --epochs 3 --validation 0.25 --loss all --layers 2 --bidirectional --dropout 0.25 "
      "--lengths N.npy --backward bp",
      "train lstm " SMALL " --batch 8 --epochs 3 --layers 2 --chunks 3 --lengths N.npy --clip-norm 0.5",
      "train rnn " SMALL " --batch 16 --epochs 3 --layers 3 --algorithm blelloch --dropout 0.5",
      "train gru " SMALL " --batch 8 --epochs 3 --loss all --layers 2 --dropout 0.25 --lengths N.npy --ranks 2",
      "train gru --data npy:I.npy,T.npy --hidden 5 --dtype f64 --batch 8 --epochs 3 --loss bce-all --lengths N.npy --layers 2"};
  for (size_t k = 0; k < sizeof lines / sizeof lines[0]; ++k) {
    json_t *on_cpu = run_json("%s --save-weights C.safetensors --json", lines[k]);
    json_t *on_device = run_json("%s --save-weights D.safetensors --json %s", lines[k], device);
    assert_same_rows(on_cpu, on_device, "loss", 1e-10);
    assert_same_rows(on_cpu, on_device, "grad_norm", 1e-9);
    if (k == 0) {
      assert_same_rows(on_cpu, on_device, "validation_loss", 1e-10);
      assert_same_rows(on_cpu, on_device, "accuracy", 1e-10);
    }
    assert_same_files("C.safetensors", "D.safetensors", 1e-9);
    assert_runs("%s --checkpoint part%zu --checkpoint-every 2 --epochs 1 %s", lines[k], k, device);
    assert_runs("%s --checkpoint part%zu --resume --save-weights R.safetensors %s", lines[k], k, device);
    assert_equal_files("R.safetensors", "D.safetensors");
    json_decref(on_cpu);
    json_decref(on_device);
  }
  static const int64_t samples = B, own[B] = {T, 2, 4};
  array = bppsa_view_make((void *)own, BPPSA_I64, 1, &samples);
  assert_int_equal(bppsa_npy_save("L.npy", &array), BPPSA_OK);
  static const char *const batches[] = {"--labels Y.npy --backward bp", "--labels YT.npy --loss all --h0 H0.npy --chunks 3"};
  assert_runs("train gru --seq-len 5 --samples 32 --iterations 1 --hidden 4 --dtype f64 --save-weights K.safetensors");
  for (int k = 0; k < 2; ++k) {
    const char *grad = "grad gru --weights K.safetensors --input X.npy --lengths L.npy --out";
    assert_runs("%s C.safetensors %s", grad, batches[k]);
    assert_runs("%s D.safetensors %s %s", grad, batches[k], device);
    assert_same_files("C.safetensors", "D.safetensors", 1e-12);
  }
}

static void put_array(const char *path, int32_t ndim, const int64_t *shape, uint64_t seed) {
  int64_t count = 1;
  for (int i = 0; i < ndim; ++i) {
    count *= shape[i];
  }
  double *values = uniform(seed, count, 1);
  const bppsa_view view = bppsa_view_make(values, BPPSA_F64, ndim, shape);
  assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
  bppsa_free(values);
}

/* Succeeds, and says at most that float64 weights were rounded. */
static void assert_jacobian(const char *line, const char *where) {
  run_result result = run("jacobian %s %s", line, where);
  assert_int_equal(result.code, 0);
  assert_true(result.err[0] == '\0' || strstr(result.err, "f64 weights, converted to f32") != NULL);
  release(&result);
}

/* The same bytes in the files. */
static void test_jacobian(void **state) {
  (void)state;
  put_array("jx.npy", 3, (int64_t[]){4, 6, 6}, 1);
  put_array("jw.npy", 4, (int64_t[]){8, 2, 3, 3}, 2);
  put_array("js.npy", 1, (int64_t[]){1}, 3);
  assert_runs("train gru --seq-len 5 --samples 32 --iterations 1 --hidden 4 --save-weights J.safetensors");
  static const char *const lines[] = {"conv2d --in-shape 4,6,6 --groups 2 --weights jw.npy --padding 1",
                                      "conv2d --in-shape 4,6,6 --groups 2 --weights jw.npy --mask jw.npy --stride 2 --dtype f64",
                                      "maxpool2d --input jx.npy --kernel 3 --stride 2 --pattern argmax",
                                      "avgpool2d --input jx.npy",
                                      "tanh --input jx.npy --dtype f64",
                                      "linear --in-shape 2 --out-channels 3",
                                      "gru --weights J.safetensors --input js.npy"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; ++i) {
    static char on_cpu[1 << 20], on_device[1 << 20];
    char where[64];
    snprintf(where, sizeof where, "--out T.mtx %s", device);
    assert_jacobian(lines[i], "--out H.mtx");
    assert_jacobian(lines[i], where);
    const long bytes = get_file("H.mtx", on_cpu, sizeof on_cpu);
    assert_true(bytes > 0 && bytes < (long)sizeof on_cpu);
    assert_int_equal(get_file("T.mtx", on_device, sizeof on_device), bytes);
    assert_memory_equal(on_cpu, on_device, (size_t)bytes);
  }
}

static void test_measured_plan(void **state) {
  (void)state;
  char directory[4096]; /* of measured plans; an absolute path */
  assert_non_null(getcwd(directory, sizeof directory - 8));
  strcat(directory, "/cache");
  assert_int_equal(setenv("XDG_CACHE_HOME", directory, 1), 0);
  run_result result = run("train rnn " SMALL " --iterations 2 --plan measure --json %s", device);
  assert_int_equal(result.code, 0);
  json_t *document = json_loads(result.out, 0, NULL);
  assert_non_null(document);
  assert_string_equal(get_text(json_object_get(document, "config"), "chosen"), "measurement");
  json_decref(document);
  release(&result);
}

/* ---- convolutional networks ---- */

#define IMAGE_DATA "--data npy:images.npy,classes.npy --batch 10"
#define IMAGES IMAGE_DATA " --lr 0.05"

static void put_cnn_files(void) {
  put_text("net.json", SMALL_NETWORK);
  put_images("images.npy", "classes.npy", (int64_t[]){26, 2, 6, 5}, 3);
}

/* Batches of 10, 10 and 6: curves, weights and gradients as on the processor, in float32 within 1e-3. */
static void test_cnn(void **state) {
  (void)state;
  put_cnn_files();
  const bool gpu = strstr(device, "cuda") != NULL;
  const char *const methods[] = {"--backward bp", gpu ? "--backward bp --weight-gradients second-stream" : "--backward bp",
                                 "--algorithm linear", "--up-levels 1"};
  json_t *on_cpu = run_json("train net.json " IMAGES " --dtype f64 --epochs 3 --backward bp --json --save-weights C.safetensors");
  json_t *narrow = run_json("train net.json " IMAGES " --iterations 12 --backward bp --json");
  assert_runs("grad net.json --weights C.safetensors --input images.npy --labels classes.npy --backward bp --out E.safetensors");
  for (size_t m = 0; m < sizeof methods / sizeof methods[0]; ++m) {
    json_t *on_device = run_json("train net.json " IMAGES " --dtype f64 --epochs 3 --json --save-weights D%d.safetensors %s %s",
                                 (int)m, methods[m], device);
    assert_same_rows(on_cpu, on_device, "loss", 1e-10);
    assert_same_rows(on_cpu, on_device, "grad_norm", 1e-9);
    char file[32];
    snprintf(file, sizeof file, "D%d.safetensors", (int)m);
    assert_same_files("C.safetensors", file, 1e-9);
    json_decref(on_device);
    on_device = run_json("train net.json " IMAGES " --iterations 12 --json %s %s", methods[m], device);
    assert_same_rows(narrow, on_device, "loss", 1e-3);
    json_decref(on_device);
    assert_runs("grad net.json --weights C.safetensors --input images.npy --labels classes.npy --out F.safetensors %s %s",
                methods[m], device);
    assert_same_files("E.safetensors", "F.safetensors", 1e-12);
  }
  assert_true(file_difference("D0.safetensors", "D1.safetensors") == 0); /* streams change no bit */
  json_t *mine = run_json("eval net.json --weights C.safetensors " IMAGE_DATA " --json");
  json_t *its = run_json("eval net.json --weights C.safetensors " IMAGE_DATA " --json %s", device);
  assert_true(fabs(get_real(mine, "loss") - get_real(its, "loss")) < 1e-12);
  assert_true(get_real(mine, "accuracy") == get_real(its, "accuracy"));
  json_decref(mine);
  json_decref(its);
  json_decref(on_cpu);
  json_decref(narrow);
}

/* Interrupted and resumed, with the bits of the whole; a mask stays. */
static void test_cnn_resume(void **state) {
  (void)state;
  put_cnn_files();
  put_weights("w.safetensors", "net.json", BPPSA_F32, 4);
  assert_runs("prune --weights w.safetensors --fraction 0.5 --out m.safetensors");
  const char *line = "train net.json " IMAGES " --backward bp --weights w.safetensors --mask m.safetensors --checkpoint-every 2";
  assert_runs("%s --iterations 7 --checkpoint cnn_whole --save-weights C.safetensors %s", line, device);
  assert_runs("%s --iterations 4 --checkpoint cnn_parts %s", line, device);
  assert_runs("%s --iterations 7 --checkpoint cnn_parts --resume --save-weights D.safetensors %s", line, device);
  assert_true(file_difference("C.safetensors", "D.safetensors") == 0);
  bppsa_safetensors *file = NULL, *mask = NULL;
  assert_int_equal(bppsa_safetensors_load("C.safetensors", &file), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_load("m.safetensors", &mask), BPPSA_OK);
  const bppsa_view *w = bppsa_safetensors_find(file, "c.weight"), *kept = bppsa_safetensors_find(mask, "c.weight");
  for (int64_t i = 0; i < bppsa_view_count(w); ++i) {
    assert_true((((const uint8_t *)kept->data)[i] == 0) == (bppsa_view_get(w, i) == 0));
  }
  bppsa_safetensors_destroy(file);
  bppsa_safetensors_destroy(mask);
}

/* A graph with a residual, normalisations and dropout: losses and weights as on the processor, by the batch's statistics and by
 * given ones; interrupted and resumed, with the bits of the whole. */
static void test_graphs(void **state) {
  (void)state;
  static const char *const graph =
      "{\"input\": [2, 6, 5], \"layers\": [{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": 3, \"padding\": 1, "
      "\"bias\": false}, {\"name\": \"n\", \"op\": \"batchnorm2d\"}, {\"name\": \"r\", \"op\": \"gelu\"}, {\"name\": \"d\", "
      "\"op\": \"dropout\", \"p\": 0.2}, {\"name\": \"k\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": 3, \"padding\": 1, "
      "\"groups\": 4}, {\"name\": \"g\", \"op\": \"groupnorm\", \"groups\": 2}, {\"name\": \"s\", \"op\": \"add\", "
      "\"inputs\": [\"g\", \"r\"]}, {\"name\": \"p\", \"op\": \"global_avgpool\"}, {\"name\": \"f\", \"op\": \"flatten\"}, "
      "{\"name\": \"h\", \"op\": \"linear\", \"out\": 3}]}";
  static const char *const methods[] = {"--backward bp --weight-decay 0.3", /* which statistics do not feel */
                                        "--backward bp --batch-norm given --optimizer adamw --weight-decay 0.3",
                                        "--algorithm linear --batch-norm given", "--up-levels 1 --batch-norm given"};
  put_cnn_files();
  put_text("graph.json", graph);
  for (int m = 0; m < 4; ++m) {
    json_t *mine =
        run_json("train graph.json " IMAGES " --dtype f64 --iterations 5 --json --save-weights A.safetensors %s", methods[m]);
    json_t *its = run_json("train graph.json " IMAGES " --dtype f64 --iterations 5 --json --save-weights B.safetensors %s %s",
                           methods[m], device);
    assert_same_rows(mine, its, "loss", 1e-10);
    if (m == 0) { /* given means stay 0 */
      assert_same_files("A.safetensors", "B.safetensors", 1e-9);
    }
    json_decref(mine);
    json_decref(its);
  }
  const char *line = "train graph.json " IMAGES " --dtype f64 --backward bp";
  assert_runs("%s --iterations 6 --checkpoint graph_whole --save-weights C.safetensors %s", line, device);
  assert_runs("%s --iterations 3 --checkpoint graph_parts %s", line, device);
  assert_runs("%s --iterations 6 --checkpoint graph_parts --resume --save-weights D.safetensors %s", line, device);
  assert_true(file_difference("C.safetensors", "D.safetensors") == 0);
  assert_runs("%s --iterations 6 --save-weights E.safetensors", line);
  assert_same_files("E.safetensors", "C.safetensors", 1e-9);
}

static void test_cnn_requests(void **state) {
  (void)state;
  put_cnn_files();
  assert_fails(2, "--weight-gradients: second-stream beside --backward auto, expected --backward bp",
               "train net.json " IMAGES " --weight-gradients second-stream --device cuda");
  assert_fails(2, "--weight-gradients: second-stream beside --device cpu, expected --device cuda",
               "train net.json " IMAGES " --backward bp --weight-gradients second-stream");
  assert_fails(2, "--weight-gradients: 'third'", "train net.json " IMAGES " --weight-gradients third");
  run_result on_cpu = run("train net.json " IMAGES " --backward bp --lr 3e38 --iterations 9");
  run_result on_device = run("train net.json " IMAGES " --backward bp --lr 3e38 --iterations 9 %s", device);
  assert_int_equal(on_cpu.code, 1);
  assert_int_equal(on_device.code, 1);
  assert_string_equal(on_cpu.err, on_device.err);
  release(&on_cpu);
  release(&on_device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_grad),         cmocka_unit_test(test_nonfinite),  cmocka_unit_test(test_train_and_eval),
      cmocka_unit_test(test_certify),      cmocka_unit_test(test_resume),     cmocka_unit_test(test_measured_plan),
      cmocka_unit_test(test_cnn),          cmocka_unit_test(test_cnn_resume), cmocka_unit_test(test_graphs),
      cmocka_unit_test(test_cnn_requests), cmocka_unit_test(test_jacobian),   cmocka_unit_test(test_sequences)};
  const char *name = getenv("BPPSA_TEST_DEVICE");
  static char text[64];
  bppsa_device_destroy(test_device(1)); /* skips the test where the device is missing */
  snprintf(text, sizeof text, "--device %s", name != NULL ? name : "cpu");
  device = text;
  return cmocka_run_group_tests(tests, enter_with_batch, leave_directory);
}
