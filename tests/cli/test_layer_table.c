/* The layers of a network one by one, as `flops` counts them: beside the scan's own counts, alone, as CSV and as a picture. */
#include "tests/cli/cnn_files.h"
#include "tests/support/count.h"

#define JOINS                                                                                                                    \
  "{\"input\": [4, 9, 8], \"layers\": [{\"name\": \"c1\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": 3, \"padding\": 1},"       \
  "{\"name\": \"a\", \"op\": \"slice\", \"first\": 0, \"out\": 3}, {\"name\": \"b\", \"op\": \"slice\", \"inputs\": [\"c1\"],"   \
  "\"first\": 3, \"out\": 3}, {\"name\": \"g\", \"op\": \"sigmoid\"}, {\"name\": \"m\", \"op\": \"mul\", \"inputs\": [\"a\","    \
  "\"g\"]}, {\"name\": \"k\", \"op\": \"concat\", \"inputs\": [\"m\", \"input\"]}, {\"name\": \"c2\", \"op\": \"conv2d\","       \
  "\"out\": 6, \"kernel\": [2, 3], \"stride\": [2, 1], \"padding\": [1, 0, 1, 1]}, {\"name\": \"n\", \"op\": \"batchnorm2d\"},"  \
  "{\"name\": \"p\", \"op\": \"avgpool2d\", \"kernel\": 3, \"stride\": 1, \"padding\": 1, \"inputs\": [\"n\"]}, {\"name\": "     \
  "\"s\","                                                                                                                       \
  "\"op\": \"add\", \"inputs\": [\"n\", \"p\"]}, {\"name\": \"fc\", \"op\": \"linear\", \"out\": 4}]}"

#define GATES                                                                                                                    \
  "{\"input\": [4, 5, 6], \"layers\": [{\"name\": \"c1\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": 3, \"padding\": 1},"       \
  "{\"name\": \"n\", \"op\": \"groupnorm\", \"groups\": 3}, {\"name\": \"q\", \"op\": \"global_avgpool\"}, {\"name\": \"g\","    \
  "\"op\": \"conv2d\", \"out\": 6, \"kernel\": 1}, {\"name\": \"m\", \"op\": \"mul\", \"inputs\": [\"g\", \"n\"]}, {\"name\":"   \
  "\"p\", \"op\": \"permute\", \"order\": [1, 2, 0]}, {\"name\": \"l\", \"op\": \"layernorm\", \"shape\": [6]}, {\"name\": "     \
  "\"s\","                                                                                                                       \
  "\"op\": \"softmax\", \"axis\": 1}, {\"name\": \"r\", \"op\": \"reshape\", \"shape\": [6, 1, 30]}, {\"name\": \"c2\","         \
  "\"op\": \"conv1d\", \"out\": 6, \"kernel\": 3, \"stride\": 2, \"padding\": [2, 1], \"groups\": 2}, {\"name\": \"l2\","        \
  "\"op\": \"layernorm\", \"shape\": [6, 1, 16], \"affine\": false}, {\"name\": \"fc\", \"op\": \"linear\", \"out\": 4}]}"

static const json_t *part(const json_t *document, const char *key) {
  const json_t *found = json_object_get(document, key);
  assert_non_null(found);
  return found;
}

/* The scan counts BP from patterns, the table in closed form. */
static void check_line(const char *line) {
  json_t *document = run_json("flops %s --json", line);
  const json_t *layers = part(document, "per_layer"), *operators = part(document, "operators");
  int64_t weights = 0, unpruned = 0;
  assert_int_equal(json_array_size(layers), json_array_size(operators) + 1);
  for (size_t i = 0; i < json_array_size(operators); ++i) {
    const json_t *layer = json_array_get(layers, i), *operator= json_array_get(operators, i);
    assert_string_equal(get_text(layer, "name"), get_text(operator, "name"));
    if (get_integer(layer, "to_input_pruned") != get_integer(operator, "baseline_flops")) {
      fail_msg("%s: %s: %lld, %lld", line, get_text(layer, "name"), (long long)get_integer(layer, "to_input_pruned"),
               (long long)get_integer(operator, "baseline_flops"));
    }
    weights += get_integer(layer, "to_weights_pruned");
    unpruned += get_integer(layer, "to_input_unpruned");
    assert_true(get_integer(layer, "forward_dense") >= get_integer(layer, "forward_unpruned"));
    assert_true(get_integer(layer, "forward_unpruned") >= get_integer(layer, "forward_pruned"));
  }
  assert_int_equal(weights, get_integer(document, "weight_flops"));
  assert_int_equal(unpruned, get_integer(document, "unpruned_baseline_flops"));
  json_decref(document);
}

/* Without channels that pruning empties LeNet-5 is a smaller network, whose dense FLOPs these are. */
static void test_shrunk(void **state) {
  (void)state;
  json_t *document = run_json("flops lenet5 --prune 0.5 --structure channel --up-levels none --json");
  const json_t *layers = part(document, "per_layer");
  static const int64_t left[][2] = {{3, 3},  {3, 3},   {3, 3},   {3, 8},   {8, 8},  {8, 8},
                                    {8, 60}, {60, 60}, {60, 42}, {42, 42}, {42, 10}};
  static const struct {
    int layer;
    double macs;
  } counts[] = {{0, 3.0 * 3 * 25 * 784}, {3, 3.0 * 8 * 25 * 100}, {6, 8.0 * 25 * 60}, {8, 60.0 * 42}, {10, 42.0 * 10}};
  assert_int_equal(json_array_size(layers), 11);
  for (size_t i = 0; i < 11; ++i) {
    assert_int_equal(get_integer(json_array_get(layers, i), "channels_in_left"), left[i][0]);
    assert_int_equal(get_integer(json_array_get(layers, i), "channels_out_left"), left[i][1]);
  }
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
    assert_true((double)get_integer(json_array_get(layers, (size_t)counts[i].layer), "macs_shrunk") == counts[i].macs);
  }
  assert_string_equal(get_text(document, "structure"), "channel");
  json_decref(document);
  assert_fails(2, "--prune: 0.9 beside --structure 2:4, which prunes 0.5, expected none",
               "flops lenet5 --prune 0.9 --structure 2:4");
  assert_fails(2, "--structure: given without --prune, expected a fraction that is pruned", "flops lenet5 --structure channel");
  run_result table = run("flops lenet5 --structure 2:4 --up-levels none");
  assert_int_equal(table.code, 0);
  assert_non_null(strstr(table.out, "structure 2:4"));
  assert_non_null(strstr(table.out, "dense without useless channels"));
  release(&table);
}

static void test_beside_scan(void **state) {
  (void)state;
  static const char *const lines[] = {"lenet5",
                                      "lenet5 --prune 0.6 --up-levels 1",
                                      "all.json",
                                      "all.json --prune 0.5 --input-grad",
                                      "later.json --prune 0.3",
                                      "later.json --input-grad",
                                      "joins.json --prune 0.5",
                                      "joins.json --input-grad",
                                      "joins.json --up-levels 2",
                                      "gates.json --prune 0.5 --up-levels 1",
                                      "gates.json --input-grad --up-levels 0",
                                      "resnet20 --in-shape 3,8,8 --prune 0.9 --up-levels 0",
                                      "mobilenetv2 --in-shape 3,32,32 --up-levels 0"};
  put_text("all.json", ALL_OPERATORS);
  put_text("later.json", LATER_OPERATORS);
  put_text("joins.json", JOINS);
  put_text("gates.json", GATES);
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; ++i) {
    check_line(lines[i]);
  }
}

/* Sums over layers are the sums of classes; the table alone has the same layers as beside a scan. */
static void test_sums(void **state) {
  (void)state;
  static const char *const keys[] = {"parameters",      "weight_count",       "kept",
                                     "macs_dense",      "macs_pruned",        "forward_dense",
                                     "to_input_pruned", "to_weights_unpruned"};
  put_text("joins.json", JOINS);
  json_t *alone = run_json("flops joins.json --prune 0.5 --up-levels none --json");
  json_t *beside = run_json("flops joins.json --prune 0.5 --up-levels 1 --json");
  assert_true(json_equal(part(alone, "per_layer"), part(beside, "per_layer")));
  assert_true(json_equal(part(alone, "total"), part(beside, "total")));
  assert_null(json_object_get(alone, "steps"));
  assert_true(get_real(alone, "pruned_fraction") > 0.49);
  for (size_t k = 0; k < sizeof keys / sizeof keys[0]; ++k) {
    int64_t layers = 0, classes = 0;
    const char *name;
    json_t *of;
    for (size_t i = 0; i < json_array_size(part(alone, "per_layer")); ++i) {
      layers += get_integer(json_array_get(part(alone, "per_layer"), i), keys[k]);
    }
    json_object_foreach((json_t *)part(alone, "per_class"), name, of) {
      classes += get_integer(of, keys[k]);
    }
    assert_int_equal(layers, classes);
    assert_int_equal(layers, get_integer(part(alone, "total"), keys[k]));
  }
  const json_t *concat = json_array_get(part(alone, "per_layer"), 5);
  assert_string_equal(get_text(concat, "class"), "move");
  assert_string_equal(json_string_value(json_array_get(part(concat, "inputs"), 1)), "input");
  assert_int_equal(json_integer_value(json_array_get(part(concat, "output_shape"), 0)), 7);
  json_decref(alone);
  json_decref(beside);
}

static void test_files(void **state) {
  (void)state;
  json_t *document = run_json("flops resnet18 --csv layers.csv --svg layers.svg --json");
  char *csv = read_file("layers.csv"), *svg = read_file("layers.svg");
  const char *line = csv;
  assert_int_equal(count_of(csv, "\n"), 70);
  assert_non_null(strstr(csv, "\nconv1,conv2d,matmul,input,3x224x224,64x112x112,9408,9408,9408,1,118013952,"));
  assert_non_null(strstr(csv, "\nlayer1.0.add,add,join,layer1.0.bn2 maxpool,64x56x56,64x56x56,0,"));
  assert_non_null(strstr(csv, "\nbn1,batchnorm2d,batch_norm,conv1,64x112x112,64x112x112,128,0,0,,0,0,0,"));
  while (*line != '\0') { /* every row has the cells of the first */
    const char *end = strchr(line, '\n');
    int commas = 0;
    for (; line < end; ++line) {
      commas += *line == ',';
    }
    assert_int_equal(commas, 27);
    line = end + 1;
  }
  assert_int_equal(count_of(svg, "class=\"layer\""), 21);
  assert_non_null(strstr(svg, "layer4.0.downsample.0"));
  assert_int_equal(get_integer(part(document, "total"), "macs_dense"), 1814073344);
  free(csv);
  free(svg);
  json_decref(document);
  run_result table = run("flops resnet20 --prune 0.5 --in-shape 3,16,16");
  assert_int_equal(table.code, 0);
  assert_non_null(strstr(table.out, "resnet20, input 3x16x16, weights: random, 50 % pruned, class-uniform"));
  assert_non_null(strstr(table.out, "layer3.2.relu_1"));
  assert_non_null(strstr(table.out, "multiply-adds forward (MACs)"));
  release(&table);
}

/* A mask of a file and weights that are 0 are left out alike. */
static void test_masks(void **state) {
  (void)state;
  put_text("net.json", SMALL_NETWORK);
  uint8_t bytes[4 * 9] = {1, 1, 1};
  const bppsa_view view = bppsa_view_make(bytes, BPPSA_BOOL, 4, (const int64_t[]){4, 1, 3, 3});
  const bppsa_named_view mask = {"c.weight", view};
  assert_int_equal(bppsa_safetensors_save("m.safetensors", 1, &mask, 0, NULL), BPPSA_OK);
  json_t *document = run_json("flops net.json --up-levels none --mask m.safetensors --json");
  const json_t *conv = json_array_get(part(document, "per_layer"), 0);
  assert_int_equal(get_integer(conv, "kept"), 3);
  assert_int_equal(get_integer(conv, "forward_pruned"),
                   2 * 5 * (4 + 5 + 4)); /* the first row of taps, padding 1, 6 x 5 positions */
  assert_int_equal(get_integer(conv, "forward_dense"), 2 * 36 * 30);
  json_decref(document);
}

static void test_refusals(void **state) {
  (void)state;
  put_text("net.json", SMALL_NETWORK);
  assert_fails(2, "--up-levels: 'many', expected a whole number, 0 or more, auto or none", "flops net.json --up-levels many");
  assert_fails(2, "--up-levels: 'none', expected a whole number, 0 or more, or auto", "plan net.json --up-levels none");
  assert_fails(2, "--pattern: value beside --up-levels none", "flops net.json --up-levels none --pattern value");
  assert_fails(2, "expected --pattern value", "flops net.json --up-levels none --input x.npy");
  assert_fails(2, "--in-shape: '3,x', expected one to three whole numbers such as 3,32,32", "flops resnet18 --in-shape 3,x");
  assert_fails(2, "--in-shape: [1, 1, 1]: lenet5: layer 'conv1': ", "flops lenet5 --in-shape 1,1,1");
  assert_fails(2, "--in-shape: '0,32,32', expected one to three whole numbers such as 3,32,32",
               "plan resnet20 --in-shape 0,32,32");
  assert_fails(2, "--in-shape: [3, 0, 32]: resnet20: layer 'conv1': ",
               "grad resnet20 --in-shape 3,0,32 --weights w --input x "
               "--labels y --out g");
  assert_fails(2, "expected two different files", "flops resnet20 --csv t --svg t");
  assert_fails(2, "absent", "flops resnet20 --csv absent/t.csv");
  assert_fails(2, "the memory limit is 1048576", "flops resnet18 --up-levels 2 --memory-limit 1M");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_beside_scan), cmocka_unit_test(test_shrunk),
                                     cmocka_unit_test(test_sums),        cmocka_unit_test(test_files),
                                     cmocka_unit_test(test_masks),       cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
