/* Commands on an ONNX model: its weights are --weights, and everything is as of the same network in a file. */
#include "tests/cli/cnn_files.h"
#include "tests/cnn/onnx_model.h"
#include "tests/support/folder.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
#define TEXT                                                                                                                     \
  "{\"input\": [2, 6, 5], \"layers\": ["                                                                                         \
  "{\"name\": \"conv\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": 3, \"padding\": 1, \"bias\": false},"                        \
  "{\"name\": \"bn\", \"op\": \"batchnorm2d\"}, {\"name\": \"relu\", \"op\": \"relu\"},"                                         \
  "{\"name\": \"flatten\", \"op\": \"flatten\"}, {\"name\": \"fc\", \"op\": \"linear\", \"out\": 3, \"bias\": false}]}"

/* The same network twice, with the same weights. */
static void put_models(void) {
  onnx_model m = {.random = 5};
  onnx_value_info(&m, 11, "x", 4, DIMS(0, 2, 6, 5));
  onnx_weight(&m, "conv.weight", 4, DIMS(4, 2, 3, 3));
  onnx_weight(&m, "bn.weight", 1, DIMS(4));
  onnx_weight(&m, "bn.bias", 1, DIMS(4));
  onnx_weight(&m, "bn.running_mean", 1, DIMS(4));
  onnx_initializer(&m, "bn.running_var", ONNX_F32, 1, DIMS(4), (const float[]){0.5f, 1, 2, 3});
  onnx_weight(&m, "fc.weight", 2, DIMS(3, 120));
  onnx_open(&m, "/conv/Conv", "Conv", "x conv.weight", "y1");
  onnx_attribute_ints(&m, "pads", 4, DIMS(1, 1, 1, 1));
  onnx_close(&m);
  onnx_node_of(&m, "/bn/BatchNormalization", "BatchNormalization", "y1 bn.weight bn.bias bn.running_mean bn.running_var", "y2");
  onnx_node_of(&m, "/relu/Relu", "Relu", "y2", "y3");
  onnx_node_of(&m, "/flatten/Flatten", "Flatten", "y3", "y4");
  onnx_open(&m, "/fc/Gemm", "Gemm", "y4 fc.weight", "y5");
  onnx_attribute_int(&m, "transB", 1);
  onnx_close(&m);
  onnx_value_info(&m, 12, "y5", 2, DIMS(0, 3));
  wire file = onnx_finish(&m, 17);
  put_file("net.onnx", file.data, file.size);
  free(file.data);
  put_text("net.json", TEXT);
  put_images("x.npy", "y.npy", DIMS(4, 2, 6, 5), 3);
  assert_runs("train net.onnx --data npy:x.npy,y.npy --batch 4 --iterations 0 --save-weights w.safetensors");
}

static void test_grad(void **state) {
  (void)state;
  put_models();
  for (int scan = 0; scan < 2; ++scan) {
    const char *how = scan ? "--up-levels 1" : "--backward bp";
    assert_runs("grad net.onnx --input x.npy --labels y.npy %s --out a.safetensors", how);
    assert_runs("grad net.json --weights w.safetensors --input x.npy --labels y.npy %s --out b.safetensors", how);
    assert_true(file_difference("a.safetensors", "b.safetensors") == 0);
  }
  put_weights("other.safetensors", "net.json", BPPSA_F32, 9);
  assert_runs("grad net.onnx --weights other.safetensors --input x.npy --labels y.npy --out a.safetensors");
  assert_true(file_difference("a.safetensors", "b.safetensors") > 1e-3); /* other weights are taken instead of the model's */
}

/* Pruned and counted, trained on and evaluated, resumed. */
static void test_others(void **state) {
  (void)state;
  put_models();
  assert_runs("prune --weights net.onnx --fraction 0.5 --out m.safetensors");
  json_t *a = run_json("flops net.onnx --mask m.safetensors --up-levels 1 --json");
  json_t *b = run_json("flops net.json --weights w.safetensors --mask m.safetensors --up-levels 1 --json");
  assert_true(json_equal(json_object_get(a, "totals"), json_object_get(b, "totals")));
  assert_string_equal(get_text(a, "weights"), "net.onnx");
  json_decref(a);
  json_decref(b);
  assert_runs("plan net.onnx --mask m.safetensors");
  remove_folder("onnx_run");
  assert_runs("train net.onnx --mask m.safetensors --data npy:x.npy,y.npy --batch 2 --epochs 1 --checkpoint onnx_run");
  assert_runs("train net.onnx --mask m.safetensors --data npy:x.npy,y.npy --batch 2 --epochs 2 --checkpoint onnx_run --resume "
              "--save-weights a.safetensors");
  assert_runs("train net.json --weights w.safetensors --mask m.safetensors --data npy:x.npy,y.npy --batch 2 --epochs 2 "
              "--save-weights b.safetensors");
  assert_true(file_difference("a.safetensors", "b.safetensors") == 0);
  assert_runs("eval net.onnx --weights a.safetensors --data npy:x.npy,y.npy");
  assert_runs("eval net.onnx --data npy:x.npy,y.npy");
}

/* The gradients of a batch norm in training are exact in BP, and a scan refuses them. */
static void test_batch_norm(void **state) {
  (void)state;
  put_models();
  assert_runs("grad net.onnx --input x.npy --labels y.npy --out a.safetensors");
  assert_runs("grad net.onnx --input x.npy --labels y.npy --batch-norm batch --dtype f64 --out b.safetensors");
  assert_true(file_difference("a.safetensors", "b.safetensors") > 1e-3);
  json_t *document = run_json("grad net.onnx --input x.npy --labels y.npy --batch-norm batch --out b.safetensors --json");
  assert_string_equal(get_text(document, "backward"), "bp");
  assert_runs("train net.onnx --data npy:x.npy,y.npy --batch 4 --iterations 1 --log log.jsonl"); /* a step of the same loss */
  char line[4096] = "";
  assert_true(get_file("log.jsonl", line, sizeof line - 1) > 0);
  const char *loss = strstr(line, "\"loss\":");
  assert_non_null(loss);
  assert_true(fabs(strtod(loss + 7, NULL) - get_real(document, "loss")) < 1e-6);
  json_decref(document);
  assert_fails(2, "expected --batch-norm given or --backward bp",
               "grad net.onnx --input x.npy --labels y.npy --batch-norm batch --up-levels 1 --out b.safetensors");
}

static void test_refusals(void **state) {
  (void)state;
  put_models();
  put_text("bad.onnx", "no model");
  assert_fails(2, "bad.onnx: 8 bytes that are no ONNX model, expected one", "flops bad.onnx");
  assert_fails(2, "there.onnx", "plan there.onnx");
  assert_fails(2, "--weights: option missing in 'grad FILE.json'",
               "grad net.json --input x.npy --labels y.npy --out g.safetensors");
  assert_fails(2, "net.onnx", "train net.onnx --data npy:x.npy,y.npy --batch 2 --iterations 1 --save-weights net.onnx");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_grad), cmocka_unit_test(test_others),
                                     cmocka_unit_test(test_batch_norm), cmocka_unit_test(test_refusals)};
  run_result probe = run("flops there_is_none.onnx");
  const bool built = strstr(probe.err, "built without ONNX") == NULL;
  release(&probe);
  return built ? cmocka_run_group_tests(tests, enter_directory, leave_directory) : 77;
}
