/* Convolutional networks on the command line: grad, train, eval, prune, data cifar10. */
#include <math.h>

#include "tests/cli/cnn_files.h"

static const char *const methods[] = {"--algorithm linear", "--algorithm blelloch", "--algorithm auto", "--up-levels 1",
                                      "--up-levels 2"};
enum { METHODS = sizeof methods / sizeof methods[0] };

/* Every method gives the gradients of BP, in the dtype of the weights. */
static void check_grad(const char *network, bppsa_dtype dtype, const int64_t shape[4], int64_t classes) {
  put_weights("w.safetensors", network, dtype, 2);
  put_images("x.npy", "y.npy", shape, classes);
  assert_runs("grad %s --weights w.safetensors --input x.npy --labels y.npy --backward bp --out bp.safetensors", network);
  for (size_t i = 0; i < METHODS; ++i) {
    json_t *document = run_json("grad %s --weights w.safetensors --input x.npy --labels y.npy %s --out g.safetensors --json",
                                network, methods[i]);
    assert_string_equal(get_text(document, "dtype"), dtype == BPPSA_F32 ? "f32" : "f64");
    assert_string_equal(get_text(document, "backward"), "scan");
    assert_int_equal(get_integer(document, "batch"), shape[0]);
    json_decref(document);
    assert_true(file_difference("g.safetensors", "bp.safetensors") < (dtype == BPPSA_F32 ? 1e-5 : 1e-13));
  }
}

static void test_grad(void **state) {
  (void)state;
  put_text("net.json", SMALL_NETWORK);
  check_grad("net.json", BPPSA_F32, (int64_t[]){3, 2, 6, 5}, 3);
  check_grad("net.json", BPPSA_F64, (int64_t[]){1, 2, 6, 5}, 3);
  check_grad("lenet5", BPPSA_F32, (int64_t[]){2, 3, 32, 32}, 10);
  run_result table = run("grad lenet5 --weights w.safetensors --input x.npy --labels y.npy --out g.safetensors");
  assert_int_equal(table.code, 0);
  assert_non_null(strstr(table.out, "lenet5: B 2, 11 layers, [3, 32, 32] to 10 classes"));
  assert_non_null(strstr(table.out, "conv2.weight"));
  release(&table);
  put_weights("w.safetensors", "net.json", BPPSA_F32, 2);
  put_images("x.npy", "y.npy", (int64_t[]){2, 2, 6, 5}, 3);
  table = run("grad net.json --weights w.safetensors --input x.npy --labels y.npy --out g.safetensors");
  assert_int_equal(table.code, 0);
  assert_non_null(strstr(table.out, "net.json: B 2, 7 layers, [2, 6, 5] to 3 classes")); /* the file's name */
  release(&table);
  char path[160];
  memset(path, '/', sizeof path - 1);
  memcpy(path, "./", 2);
  snprintf(path + sizeof path - 9, 9, "net.json");
  table = run("grad %s --weights w.safetensors --input x.npy --labels y.npy --out g.safetensors", path);
  assert_int_equal(table.code, 0);
  assert_non_null(strstr(table.out, "////net.json: B 2, 7 layers, [2, 6, 5] to 3 classes")); /* a long path's end */
  assert_null(strstr(table.out, path));
  release(&table);
}

#define GRAD "--weights w.safetensors --input x.npy --labels y.npy --out g.safetensors"

static void test_bad_requests(void **state) {
  (void)state;
  put_text("net.json", SMALL_NETWORK);
  put_weights("w.safetensors", "net.json", BPPSA_F32, 2);
  put_images("x.npy", "y.npy", (int64_t[]){2, 2, 6, 5}, 3);
  assert_fails(2, "absent.json", "grad absent.json " GRAD);
  put_text("bad.json", "{\"input\": [2, 6, 5], \"layers\": [{\"name\": \"q\", \"op\": \"conv3d\"}]}");
  assert_fails(2, "bad.json: layer 'q': unknown operator 'conv3d'", "grad bad.json " GRAD);
  put_text("bad.json",
           "{\"input\": [2, 6, 5], \"layers\": [{\"name\": \"q\", \"op\": \"relu\"}, {\"name\": \"q\", \"op\": \"relu\"}]}");
  assert_fails(2, "bad.json: layer 'q': the name of layer 0 too", "train bad.json --data npy:x.npy,y.npy");
  put_text("bad.json",
           "{\"input\": [2, 6, 5], \"layers\": [{\"name\": \"q\", \"op\": \"conv2d\", \"out\": 3, \"kernel\": [7, 7]}]}");
  assert_fails(2, "bad.json: layer 'q': conv2d: kernel 7", "eval bad.json --weights w.safetensors --data npy:x.npy,y.npy");
  assert_fails(2, "w.safetensors: tensor 'conv1.weight' is missing", "grad lenet5 " GRAD);
  assert_fails(2, "expected linear, blelloch or auto", "grad net.json " GRAD " --algorithm chunked");
  assert_runs("grad net.json " GRAD " --dtype f64"); /* converted */
  assert_fails(2, "grad FILE.json --help lists", "grad net.json " GRAD " --chunks 3");
  assert_fails(2, "memory limit", "grad net.json " GRAD " --algorithm blelloch --threads 1 --memory-limit 60K");
  assert_fails(2, "needs at least ", "grad net.json " GRAD " --algorithm blelloch --memory-limit 1K");
  put_images("x.npy", "y.npy", (int64_t[]){2, 2, 5, 6}, 3);
  assert_fails(2, "x.npy: shape [2, 2, 5, 6], expected [B, C, H, W] = [2, 2, 6, 5]; it looks like [B, C, W, H]",
               "grad net.json " GRAD);
  assert_fails(2, "npy: images of [2, 5, 6], expected [2, 6, 5]", "train net.json --data npy:x.npy,y.npy --batch 2");
  assert_fails(2, "npy: images, expected sequences for rnn", "train rnn --data npy:x.npy,y.npy --batch 2");
  assert_fails(2, "--data: option missing", "train lenet5");
  assert_fails(2, "bitstream: sequences, expected images for lenet5", "train lenet5 --data bitstream");
  assert_fails(2, "--synthetic: missing", "data cifar10 --out d");
}

/* Trained by BP and by the scan from the same weights: the same losses; evaluated; resumed with the same bits. */
static void test_train(void **state) {
  (void)state;
  assert_runs("data cifar10 --synthetic --samples 60 --seed 3 --out cifar");
  assert_fails(2, "cifar/data_batch_1.bin: is there already", "data cifar10 --synthetic --samples 60 --out cifar");
  json_t *made = run_json("data cifar10 --synthetic --samples 20 --out other --json");
  assert_int_equal(get_integer(made, "held_out"), 4);
  json_decref(made);
  json_t *documents[2];
  for (int i = 0; i < 2; ++i) {
    documents[i] = run_json("train lenet5 --data cifar10:cifar --batch 16 --epochs 2 --lr 0.05 --dtype f64 --json --save-weights "
                            "w%d.safetensors --backward %s",
                            i, i == 0 ? "bp" : "scan --up-levels 2");
    assert_string_equal(get_text(documents[i], "model"), "lenet5");
    assert_int_equal(get_integer(documents[i], "parameters"), 62006);
    assert_int_equal(get_integer(documents[i], "steps_done"), 8);
  }
  const json_t *a = json_object_get(documents[0], "final"), *b = json_object_get(documents[1], "final");
  assert_true(fabs(get_real(a, "validation_loss") - get_real(b, "validation_loss")) < 1e-9);
  assert_true(file_difference("w0.safetensors", "w1.safetensors") < 1e-9);
  json_t *evaluated = run_json("eval lenet5 --weights w0.safetensors --data cifar10:cifar --json");
  assert_int_equal(get_integer(evaluated, "samples"), 12);
  assert_true(fabs(get_real(evaluated, "loss") - get_real(a, "validation_loss")) < 1e-12);
  json_decref(evaluated);
  json_decref(documents[0]);
  json_decref(documents[1]);
  assert_runs("train lenet5 --data cifar10:cifar --batch 16 --epochs 1 --lr 0.05 --dtype f64 --backward bp --checkpoint run");
  assert_runs(
      "train lenet5 --data cifar10:cifar --batch 16 --epochs 2 --lr 0.05 --dtype f64 --backward bp --checkpoint run --resume "
      "--save-weights again.safetensors");
  assert_true(file_difference("again.safetensors", "w0.safetensors") == 0);
  assert_fails(2, "lr",
               "train lenet5 --data cifar10:cifar --batch 16 --epochs 3 --dtype f64 --backward bp --checkpoint run --resume");
}

/* A network with batch norms and dropout: a resumed run has the same bits, running statistics among them, however often the run is
 * evaluated; by given statistics the scan trains it as BP does; and what such networks cannot do. */
static void test_norms(void **state) {
  (void)state;
  put_text("norms.json", "{\"input\": [3, 32, 32], \"layers\": ["
                         "{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": 3, \"stride\": 4, \"bias\": false},"
                         "{\"name\": \"bn\", \"op\": \"batchnorm2d\"}, {\"name\": \"a\", \"op\": \"hardswish\"},"
                         "{\"name\": \"d\", \"op\": \"dropout\"}, {\"name\": \"p\", \"op\": \"adaptive_avgpool2d\", \"size\": 3},"
                         "{\"name\": \"h\", \"op\": \"linear\", \"out\": 10}]}");
  assert_runs("data cifar10 --synthetic --samples 40 --out norms");
#define NORMS "train norms.json --data cifar10:norms --batch 8 --lr 0.05 --weight-decay 0.1 --dtype f64 "
  json_t *whole = run_json(NORMS "--epochs 3 --save-weights n0.safetensors --json");
  assert_int_equal(get_integer(whole, "parameters"), 4 * 27 + 8 + 370); /* no statistics among them */
  json_t *evaluated = run_json("eval norms.json --weights n0.safetensors --data cifar10:norms --json");
  assert_true(fabs(get_real(evaluated, "loss") - get_real(json_object_get(whole, "final"), "validation_loss")) < 1e-12);
  json_decref(evaluated);
  json_decref(whole);
  assert_runs(NORMS "--epochs 1 --checkpoint norms_run");
  assert_runs(NORMS "--epochs 2 --checkpoint norms_run --resume --threads 2");
  assert_runs(NORMS "--epochs 3 --checkpoint norms_run --resume --save-weights n1.safetensors");
  assert_true(file_difference("n0.safetensors", "n1.safetensors") == 0);
  assert_fails(2, "batch_norm batch contradicts this run, which has given",
               NORMS "--epochs 4 --checkpoint norms_run --resume --batch-norm given");
  bppsa_safetensors *trained = NULL;
  assert_int_equal(bppsa_safetensors_load("n0.safetensors", &trained), BPPSA_OK);
  assert_true(bppsa_view_get(bppsa_safetensors_find(trained, "bn.running_mean"), 0) != 0);
  assert_true(bppsa_view_get(bppsa_safetensors_find(trained, "bn.running_var"), 0) != 1);
  bppsa_safetensors_destroy(trained);
  static const char *const ways[] = {"--backward bp", "--algorithm linear", "--algorithm blelloch", "--ranks 2"};
  for (int i = 0; i < 4; ++i) {
    assert_runs(NORMS "--batch-norm given --iterations 3 --weights n0.safetensors %s --save-weights g%d.safetensors", ways[i], i);
    assert_true(file_difference("g0.safetensors", "n0.safetensors") > 0);
    char path[32];
    snprintf(path, sizeof path, "g%d.safetensors", i);
    assert_true(file_difference("g0.safetensors", path) < 1e-12);
  }
  assert_fails(2, "layer 'bn': a batch norm by the batch's statistics couples the samples", NORMS "--algorithm blelloch");
  assert_fails(2, "--batch-norm: batch beside ranks, of which none has the whole batch of layer 'bn', expected given",
               NORMS "--ranks 2");
  assert_fails(2, "--split: layer 'bn': batchnorm2d is not cut among ranks",
               NORMS "--batch-norm given --ranks 2 --split spatial");
  assert_fails(2, "layer 'd': dropout in a chain whose layers are called one by one, expected p 0",
               NORMS "--batch-norm given --ranks 2 --split gpipe");
}

/* Weights that a mask keeps at 0 stay 0 through training; a resumed run knows its mask. */
static void test_masks(void **state) {
  (void)state;
  put_weights("w.safetensors", "lenet5", BPPSA_F32, 2);
  assert_runs("data cifar10 --synthetic --samples 40 --out set");
  json_t *pruned = run_json("prune --weights w.safetensors --fraction 0.9 --method class-uniform --out m.safetensors --json");
  assert_int_equal(get_integer(pruned, "weights"), 61770);
  assert_int_equal(get_integer(pruned, "kept"), 6177);
  json_decref(pruned);
  static const char *const backward[] = {"--backward bp", "--up-levels 2", "--algorithm auto"};
  for (size_t i = 0; i < sizeof backward / sizeof backward[0]; ++i) {
    assert_runs(
        "train lenet5 --data cifar10:set --batch 8 --iterations 6 --lr 0.05 --weights w.safetensors --mask m.safetensors %s "
        "--save-weights t%d.safetensors",
        backward[i], (int)i);
    bppsa_safetensors *trained = NULL, *mask = NULL;
    char path[32];
    snprintf(path, sizeof path, "t%d.safetensors", (int)i);
    assert_int_equal(bppsa_safetensors_load(path, &trained), BPPSA_OK);
    assert_int_equal(bppsa_safetensors_load("m.safetensors", &mask), BPPSA_OK);
    int64_t zeros = 0;
    for (int64_t k = 0; k < bppsa_safetensors_count(mask); ++k) {
      const bppsa_named_view *m = bppsa_safetensors_get(mask, k);
      const bppsa_view *w = bppsa_safetensors_find(trained, m->name);
      for (int64_t e = 0; e < bppsa_view_count(w); ++e) {
        const bool kept = ((const uint8_t *)m->view.data)[e] != 0;
        assert_true(kept || bppsa_view_get(w, e) == 0);
        zeros += !kept;
      }
    }
    assert_int_equal(zeros, 61770 - 6177);
    bppsa_safetensors_destroy(trained);
    bppsa_safetensors_destroy(mask);
    assert_true(file_difference(path, "t0.safetensors") < 1e-3);
  }
  assert_runs("train lenet5 --data cifar10:set --batch 8 --iterations 2 --mask m.safetensors --checkpoint masked");
  assert_fails(2, "network", "train lenet5 --data cifar10:set --batch 8 --iterations 4 --checkpoint masked --resume");
  put_images("x.npy", "y.npy", (int64_t[]){2, 2, 6, 5}, 3);
  assert_fails(2, "mask 'w.x': no weight of the network",
               "train net.json --data npy:x.npy,y.npy --batch 1 --mask wrong.safetensors");
}

/* A file with masks for test_masks, of a network that has none of them. */
static int with_files(void **state) {
  const int entered = enter_directory(state);
  uint8_t one = 1;
  const bppsa_named_view mask = {"w.x", bppsa_view_make(&one, BPPSA_BOOL, 1, (int64_t[]){1})};
  put_text("net.json", SMALL_NETWORK);
  return entered != 0 || bppsa_safetensors_save("wrong.safetensors", 1, &mask, 0, NULL) != BPPSA_OK ? -1 : 0;
}

static void test_prune(void **state) {
  (void)state;
  put_weights("w.safetensors", "lenet5", BPPSA_F32, 2);
  run_result table = run("prune --weights w.safetensors --fraction 0.97 --method class-blind --out m.safetensors");
  assert_int_equal(table.code, 0);
  assert_non_null(strstr(table.out, "fc1.weight"));
  assert_non_null(strstr(table.out, "all "));
  release(&table);
  json_t *document =
      run_json("prune --weights w.safetensors --fraction 0.97 --method class-distribution --out m.safetensors --json");
  assert_int_equal(get_integer(document, "kept"), 61770 - 59917); /* 0.97 · 61770 = 59916.9 */
  assert_int_equal(json_array_size(json_object_get(document, "tensors")), 5);
  json_decref(document);
  assert_fails(2, "--fraction: '1.5'", "prune --weights w.safetensors --fraction 1.5 --out m.safetensors");
  assert_fails(2, "--method: 'random'", "prune --weights w.safetensors --fraction 0.5 --method random --out m.safetensors");
  assert_fails(2, "absent.safetensors", "prune --weights absent.safetensors --fraction 0.5 --out m.safetensors");
  assert_fails(2, "two different files", "prune --weights w.safetensors --fraction 0.5 --out w.safetensors");
  document = run_json("prune --weights w.safetensors --structure channel --fraction 0.5 --out m.safetensors --json");
  assert_int_equal(get_integer(document, "empty_channels"), 3 + 8 + 60 + 42 + 5);
  assert_string_equal(get_text(document, "structure"), "channel");
  json_decref(document);
  document = run_json("prune --weights w.safetensors --structure 2:4 --out m.safetensors --json");
  assert_true(get_real(document, "fraction") == 0.5);
  json_decref(document);
  assert_runs("prune --weights w.safetensors --structure block:4x5 --method class-blind --fraction 0.8 --out m.safetensors");
  assert_fails(2, "--structure: 'row', expected element, channel, block:RxC or N:M",
               "prune --weights w.safetensors --fraction 0.5 --structure row --out m.safetensors");
  assert_fails(2, "--fraction: 0.9 beside --structure 2:4, which prunes 0.5, expected none",
               "prune --weights w.safetensors --fraction 0.9 --structure 2:4 --out m.safetensors");
  assert_fails(2, "--fraction: option missing in 'prune', expected a fraction from 0 to 1",
               "prune --weights w.safetensors --out m.safetensors");
  float numbers[4] = {1, 2, NAN, 4};
  bppsa_named_view tensor = {"a.weight", bppsa_view_make(numbers, BPPSA_F32, 2, (int64_t[]){2, 2})};
  assert_int_equal(bppsa_safetensors_save("n.safetensors", 1, &tensor, 0, NULL), BPPSA_OK);
  assert_fails(2, "n.safetensors: prune: element 2 of a.weight is not finite",
               "prune --weights n.safetensors --fraction 0.5 --out m.safetensors");
  tensor.name = "a.bias";
  assert_int_equal(bppsa_safetensors_save("n.safetensors", 1, &tensor, 0, NULL), BPPSA_OK);
  assert_fails(2, "n.safetensors: no tensor NAME.weight", "prune --weights n.safetensors --fraction 0.5 --out m.safetensors");
}

/* Every method is verified and has a row; ratios stand beside BP's. */
static void test_bench(void **state) {
  (void)state;
  json_t *document = run_json("bench lenet5 --batch 2 --repeats 1 --threads 1 --out b.json --json");
  const json_t *rows = json_object_get(document, "rows");
  static const char *const names[] = {"forward", "bp", "linear", "blelloch 1", "blelloch 2", "blelloch", "auto"};
  static const char *const takes[] = {"", "bp", "linear", "blelloch 1", "blelloch 2", "blelloch 3", "bp"};
  assert_int_equal(json_array_size(rows), sizeof names / sizeof names[0]);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    const json_t *row = json_array_get(rows, i);
    assert_string_equal(get_text(row, "method"), names[i]);
    assert_true(get_real(row, "median_s") > 0 && get_real(row, "residual") < 30 && get_real(row, "flops") > 0);
    assert_true(i == 0 || get_real(row, "time_of_bp") > 0);
    assert_true(i == 0 || strcmp(get_text(row, "takes"), takes[i]) == 0);
  }
  assert_true(get_real(json_array_get(rows, 1), "flops_of_bp") == 1);
  assert_true(get_real(json_array_get(rows, 5), "flops_of_bp") > 50); /* conv2·relu2 times pool2·fc1 */
  json_decref(document);
  document = run_json("bench lenet5 --batch 2 --repeats 1 --threads 1 --memory-limit 8M --json");
  assert_true(json_array_size(json_object_get(document, "rows")) <
              sizeof names / sizeof names[0]); /* rows that do not fit are named as left out */
  assert_non_null(strstr(get_text(json_array_get(json_object_get(document, "left_out"), 0), "reason"), "lenet5: "));
  json_decref(document);
  document = run_json("bench lenet5 --batch 1 --repeats 1 --threads 1 --prune 0.9 --json");
  const json_t *linear = json_array_get(json_object_get(document, "rows"), 2);
  assert_true(get_real(linear, "flops_of_bp") == 1 && get_real(linear, "critical_flops_of_bp") == 1);
  assert_true(get_real(linear, "flops_of_unpruned_bp") < 0.5 &&
              get_real(linear, "critical_flops_of_unpruned_bp") == get_real(linear, "flops_of_unpruned_bp"));
  assert_true(get_real(json_array_get(json_object_get(document, "rows"), 1), "flops_of_unpruned_bp") == 1);
  assert_int_equal(get_integer(linear, "critical_steps"), 9);
  json_decref(document);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_grad),  cmocka_unit_test(test_bad_requests),
                                     cmocka_unit_test(test_train), cmocka_unit_test(test_masks),
                                     cmocka_unit_test(test_norms), cmocka_unit_test(test_prune),
                                     cmocka_unit_test(test_bench)};
  return cmocka_run_group_tests(tests, with_files, leave_directory);
}
