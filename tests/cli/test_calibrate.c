/* `bppsa calibrate`: a system file that `bppsa oracle` reads, and one line for what cannot be. */
#include "tests/cli/run_cli.h"

#include "core/files/json.h"

static void expect_error(const char *line, const char *part) {
  run_result result = run("%s", line);
  assert_int_equal(result.code, 2);
  assert_string_equal(result.out, "");
  if (strncmp(result.err, "bppsa: error: ", 14) != 0 || strstr(result.err, part) == NULL ||
      strchr(result.err, '\n') != result.err + strlen(result.err) - 1) {
    fail_msg("%s: %s lacks '%s'", line, result.err, part);
  }
  release(&result);
}

static void test_errors(void **state) {
  (void)state;
  expect_error("calibrate", "--out: option missing");
  expect_error("calibrate lenet6 --out calibrate_no.json", "did you mean lenet5?");
  expect_error("calibrate resnet152 --out calibrate_no.json", "unknown 'resnet152'");
  expect_error("calibrate resnet50 --out calibrate_no.json", "resnet50: a graph of layers");
  expect_error("calibrate nothing --out calibrate_no.json", "unknown 'nothing', expected rnn, gru, lstm, lenet5, vgg11");
  expect_error("calibrate vgg19 --out calibrate_no.json", "unknown 'vgg19', expected rnn, gru, lstm, lenet5, vgg11");
  expect_error("calibrate --out no/such/file.json", "no/such");
  expect_error("calibrate --out calibrate_no.json --ranks 1", "one rank has nobody to send to, expected 2 or more");
  expect_error("calibrate --out calibrate_no.json --batch 0", "--batch: '0'");
  expect_error("calibrate --out calibrate_no.json --transport nccl", "expected --device cuda, not cpu");
  expect_error("calibrate --out calibrate_no.json --device gpu", "--device: ");
  assert_int_equal(access("calibrate_no.json", F_OK), -1);
}

/* The spread of a number has it between its ends. */
static void check_spread(const json_t *object, const char *name, double middle) {
  const json_t *pair = json_object_get(json_object_get(object, "spread"), name);
  assert_int_equal(json_array_size(pair), 2);
  assert_true(json_number_value(json_array_get(pair, 0)) >= 0 && json_number_value(json_array_get(pair, 0)) <= middle);
  assert_true(json_number_value(json_array_get(pair, 1)) >= middle);
}

static void check_layers(const json_t *times, size_t count) {
  const json_t *layers = json_object_get(times, "layers");
  assert_int_equal(json_array_size(layers), count);
  for (size_t l = 0; l < count; ++l) {
    const json_t *layer = json_array_get(layers, l);
    assert_true(get_real(layer, "forward_s") > 0 && get_real(layer, "backward_s") >= 0 && get_real(layer, "update_s") >= 0);
    assert_true(get_real(layer, "input_grad_s") >= 0 && get_real(layer, "weight_grad_s") >= 0);
    assert_true((get_real(layer, "input_grad_s") > 0) == (l > 0)); /* the gradient of the input is not computed */
    static const char *const keys[] = {"forward_s", "backward_s", "update_s", "weight_grad_s"};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; ++k) {
      check_spread(layer, keys[k], get_real(layer, keys[k]));
    }
  }
}

/* The whole model on one, two and three ranks; in two parts and in three, each by three strategies. */
static void check_shares(const json_t *times) {
  const json_t *shares = json_object_get(times, "shares"), *share;
  size_t i;
  assert_int_equal(json_array_size(shares), 3 + 2 * 3);
  json_array_foreach(shares, i, share) {
    assert_true(get_real(share, "forward_s") > 0 && get_real(share, "backward_s") > 0 && get_real(share, "update_s") > 0);
    const bool all = strcmp(get_text(share, "strategy"), "data") == 0;
    assert_true((get_real(share, "ways") == 1) == all && (get_real(share, "exchange_s") > 0) == all);
    check_spread(share, "forward_s", get_real(share, "forward_s"));
    check_spread(share, "backward_s", get_real(share, "backward_s"));
    check_spread(share, all ? "exchange_s" : "update_s", get_real(share, all ? "exchange_s" : "update_s"));
    assert_true((get_real(share, "allgathers") > 0) == !all && get_real(share, "weight_gradient_bytes") > 0);
  }
}

/* Both products, and their measurements: three sizes, of one sample and of the batch. */
static void check_products(const json_t *file) {
  static const char *const names[] = {"product", "apply"};
  const json_t *fits = json_object_get(file, "product_fits");
  assert_int_equal(json_array_size(fits), 2);
  for (size_t i = 0; i < 2; ++i) {
    const json_t *cost = json_object_get(json_object_get(file, "products"), names[i]), *fit = json_array_get(fits, i);
    assert_string_equal(get_text(fit, "product"), names[i]);
    assert_true(get_real(cost, "sample_s") == get_real(fit, "sample_s") && get_real(cost, "term_s") == get_real(fit, "term_s"));
    assert_true(get_real(cost, "sample_s") + get_real(cost, "entry_s") + get_real(cost, "term_s") > 0);
    assert_true(get_real(fit, "residual") >= 0);
    assert_int_equal(json_array_size(json_object_get(fit, "points")), 6);
  }
}

/* Three ranks have a level of two and one of three, with six operations each; the file is what is shown. */
static void test_file(void **state) {
  (void)state;
  json_t *shown = run_json("calibrate lenet5 --out calibrate.json --ranks 3 --threads 1 --batch 2 --quick --json"), *file = NULL;
  assert_int_equal(bppsa_json_load("calibrate.json", &file), BPPSA_OK);
  assert_true(json_equal(shown, file));
  const json_t *levels = json_object_get(file, "levels"), *measured = json_object_get(file, "measured");
  assert_int_equal(json_array_size(levels), 2);
  assert_int_equal(get_integer(json_array_get(levels, 0), "processors"), 2);
  assert_int_equal(get_integer(json_array_get(levels, 1), "processors"), 3);
  for (size_t i = 0; i < 2; ++i) {
    const json_t *level = json_array_get(levels, i);
    assert_true(get_real(level, "slowdown") >= 1);
    check_spread(level, "slowdown", get_real(level, "slowdown"));
    check_spread(level, "messages", 1);
    check_spread(level, "ordered_sum", 1);
    check_spread(level, "stage_message", 1);
    assert_true(get_real(json_object_get(level, "ordered_sum"), "bandwidth") > 0);
    assert_true(get_real(json_object_get(level, "reduce_scatter"), "bandwidth") > 0);
    assert_true(get_real(level, "alpha_s") == get_real(json_object_get(level, "point_to_point"), "alpha_s"));
  }
  assert_int_equal(json_array_size(json_object_get(file, "fits")), 12);
  assert_true(get_real(file, "efficiency") > 0 && get_real(file, "efficiency") <= 1 && get_real(file, "peak_flops") > 1e6);
  assert_string_equal(get_text(measured, "transport"), "threads");
  check_spread(file, "layers", 1);
  check_spread(file, "product", 1);
  check_spread(file, "apply", 1);
  const json_t *slowdowns = json_object_get(measured, "slowdowns");
  assert_int_equal(json_array_size(slowdowns), 2);
  assert_int_equal(get_integer(json_array_get(slowdowns, 1), "rounds"), 6);
  assert_true(get_real(json_array_get(slowdowns, 1), "confidence") > 0.95);
  assert_true(strlen(get_text(measured, "date")) > 0 && strlen(get_text(measured, "hardware")) > 0);
  check_layers(json_object_get(file, "layer_times"), 11);
  check_shares(json_object_get(file, "layer_times"));
  check_products(file);
  json_decref(shown);
  json_decref(file);
}

/* --save-costs: forward pass, gradients apart and together, update, sum of each layer, and the link, for schedule and train. */
static void test_costs(void **state) {
  (void)state;
  static const char *const keys[] = {"forward", "input_grad", "weight_grad", "backward", "step",
                                     "sync",    "activation", "message",     "gradient"};
  json_t *costs = NULL;
  for (int ranks = 2; ranks <= 3; ++ranks) {
    json_t *shown = run_json("calibrate rnn --out calibrate.json --ranks %d --threads 1 --batch 2 --quick --save-costs "
                             "calibrate_costs.json --json",
                             ranks);
    json_decref(shown);
    assert_int_equal(bppsa_json_load("calibrate_costs.json", &costs), BPPSA_OK);
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; ++k) {
      const bool left_out = ranks == 3 && strcmp(keys[k], "sync") == 0; /* over how many ranks is not known */
      assert_int_equal(json_array_size(json_object_get(costs, keys[k])), left_out ? 0 : 2);
    }
    assert_int_equal(get_integer(costs, "samples"), 2);
    assert_true(get_real(costs, "alpha") > 0 && json_real_value(json_array_get(json_object_get(costs, "forward"), 0)) > 0);
    json_decref(costs);
  }
  run_result result = run("schedule chimera --stages 2 --micro-batches 2 --layers 2 --costs calibrate_costs.json");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "\n  costs         of micro-batches of 2 samples\n"));
  release(&result);
  expect_error("calibrate --out calibrate.json --save-costs calibrate.json", "--save-costs: calibrate.json, the file of --out");
  expect_error("calibrate --out calibrate_no.json --save-costs c.json --device cuda --transport nccl",
               "--save-costs: given beside --transport nccl, which measures no layers");
}

/* Takes every "spread" out of a document. */
static void forget_spreads(json_t *value) {
  const char *key;
  json_t *member;
  size_t i;
  if (json_is_object(value)) {
    (void)json_object_del(value, "spread");
    json_object_foreach(value, key, member) {
      forget_spreads(member);
    }
  }
  json_array_foreach(value, i, member) {
    forget_spreads(member);
  }
}

/* The oracle takes the layers' times for the model that was measured, and says so; another model has none. */
static void test_oracle(void **state) {
  (void)state;
  json_t *document =
      run_json("oracle lenet5 calibrate.json --processors 3 --batch 2 --strategy data --collective ordered --json");
  assert_non_null(strstr(get_text(document, "measured"), ", 2 samples at once"));
  assert_int_equal(json_array_size(json_object_get(document, "rows")), 1);
  json_decref(document);
  run_result result = run("oracle lenet5 calibrate.json --strategy data");
  assert_non_null(strstr(result.out, "layers measured: "));
  assert_non_null(strstr(result.out, "spread of epoch"));
  release(&result);
  json_t *old = NULL;
  assert_int_equal(bppsa_json_load("calibrate.json", &old), BPPSA_OK);
  forget_spreads(old);
  assert_int_equal(json_dump_file(old, "calibrate_old.json", 0), 0);
  json_decref(old);
  result = run("oracle lenet5 calibrate_old.json --strategy data"); /* of a program that measured no spread of times */
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "layers measured: "));
  assert_null(strstr(result.out, "spread of epoch"));
  release(&result);
  result = run("oracle vgg11 calibrate.json --strategy data");
  assert_int_equal(result.code, 0);
  assert_null(strstr(result.out, "layers measured: "));
  release(&result);
}

/* A recurrent network and a network's file; tables for people. */
static void test_models(void **state) {
  (void)state;
  run_result result = run("calibrate gru --out calibrate_gru.json --threads 1 --batch 1 --quick");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "layers of gru, 1 samples at once"));
  assert_non_null(strstr(result.out, "allgather            2 "));
  assert_non_null(strstr(result.out, "reduce_scatter       2 "));
  assert_non_null(
      strstr(result.out, " longer than BP, a product of two steps' Jacobians takes ")); /* with a spread, unless it takes none */
  assert_non_null(strstr(result.out, "2 ranks at once compute "));
  assert_non_null(strstr(result.out, " (6 rounds, 96.9 % sure)\n"));
  assert_non_null(strstr(result.out, "\nmessages among 2 ranks take "));
  assert_non_null(strstr(result.out, "\nscan over ranks  a sample us  a number ns    a term ns  residual  spread\nproduct  "));
  assert_non_null(strstr(result.out, "\npasses through all layers take "));
  release(&result);
  FILE *file = fopen("calibrate_n.json", "w");
  assert_non_null(file);
  fputs("{\"input\": [1, 8, 8], \"layers\": [{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 2, \"kernel\": 3},"
        "{\"name\": \"fc\", \"op\": \"linear\", \"out\": 3}]}",
        file);
  assert_int_equal(fclose(file), 0);
  result = run("calibrate calibrate_n.json --out calibrate_ns.json --threads 1 --batch 1 --quick");
  assert_int_equal(result.code, 0);
  release(&result);
  json_t *document = run_json("oracle calibrate_n.json calibrate_ns.json --samples 4 --batch 1 --strategy data --json");
  assert_non_null(strstr(get_text(document, "measured"), "1 samples at once"));
  json_decref(document);
}

/* Recurrent networks of other sizes than the oracle's: costs for train, in a file that oracle does not take for its own model. */
static void test_sizes(void **state) {
  (void)state;
  run_result result =
      run("calibrate lstm --layers 2 --hidden 3 --seq-len 5 --input 2 --out calibrate_s.json --threads 1 --batch 4 "
          "--quick --save-costs calibrate_costs.json");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "layers of lstm, T 5, H 3, L 2, I 2, 4 samples at once"));
  release(&result);
  json_t *costs = NULL, *document = NULL;
  assert_int_equal(bppsa_json_load("calibrate_costs.json", &costs), BPPSA_OK);
  assert_int_equal(json_array_size(json_object_get(costs, "message")), 3); /* two layers and the head */
  /* 4 gates, two biases each, f32: of 2 features, of 3 states */
  assert_true(json_number_value(json_array_get(json_object_get(costs, "gradient"), 0)) == 4 * 4 * (3 * (2 + 3) + 6));
  assert_true(json_number_value(json_array_get(json_object_get(costs, "gradient"), 1)) == 4 * 4 * (3 * (3 + 3) + 6));
  json_decref(costs);
  const char *const train = "train lstm --layers 2 --hidden 3 --samples 16 --batch 8 --iterations 1 --threads 1 --ranks 2 "
                            "--split gpipe --micro-batches 2 --costs calibrate_costs.json";
  result = run("%s --seq-len 5 --input 2", train);
  assert_int_equal(result.code, 0);
  release(&result);
  expect_error(
      "train lstm --layers 2 --hidden 3 --seq-len 6 --input 2 --samples 16 --batch 8 --iterations 1 --threads 1 --ranks 2 "
      "--split gpipe --micro-batches 2 --costs calibrate_costs.json",
      "--costs: calibrate_costs.json: message: ");
  result = run("calibrate gru --hidden 4 --seq-len 5 --out calibrate_s.json --threads 1 --batch 1 --quick");
  assert_int_equal(result.code, 0);
  release(&result);
  document = run_json("oracle gru calibrate_s.json --strategy data --json");
  assert_null(json_string_value(json_object_get(document, "measured")));
  json_decref(document);
  expect_error("calibrate lenet5 --hidden 3 --out calibrate_no.json",
               "--hidden: given beside lenet5, expected a recurrent network");
  expect_error("calibrate gru --layers 3 --out calibrate_no.json --device cuda --transport nccl",
               "--layers: given beside --transport nccl, which measures no layers");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_errors), cmocka_unit_test(test_file),   cmocka_unit_test(test_oracle),
                                     cmocka_unit_test(test_costs),  cmocka_unit_test(test_models), cmocka_unit_test(test_sizes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
