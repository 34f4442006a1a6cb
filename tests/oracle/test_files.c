/* The oracle's files and questions: what is read, written and refused. */
#include <stdio.h>

#include "tests/oracle/ask.h"

#define TIMES_FILE BPPSA_TEST_TMP_DIR "/oracle_times.json"

/* The times of layers in a system file. */
static void write_times_with(const char *model, const char *layers, const char *more) {
  FILE *file = fopen(TIMES_FILE, "w");
  assert_non_null(file);
  fprintf(file,
          "{\"name\": \"here\", \"peak_flops\": 1e6, \"memory_bytes\": 1e9, \"levels\": [{\"name\": \"n\", \"processors\": 2,"
          " \"alpha_s\": 0, \"bandwidth\": 1}], \"measured\": {\"date\": \"2026-01-31\", \"hardware\": \"a machine\"},"
          " \"layer_times\": {\"model\": \"%s\", \"batch\": 16, \"layers\": [%s]%s}}",
          model, layers, more);
  assert_int_equal(fclose(file), 0);
}

static void write_times(const char *model, const char *layers) {
  write_times_with(model, layers, "");
}

static void refuse_times_with(const char *layers, const char *more, const char *part) {
  asked a = parse(two_layers, plain, 20);
  write_times_with("two", layers, more);
  assert_int_equal(bppsa_oracle_system_times(TIMES_FILE, &a.model), BPPSA_ERR_FORMAT);
  if (strstr(bppsa_last_error(), part) == NULL) {
    fail_msg("%s lacks '%s'", bppsa_last_error(), part);
  }
  bppsa_oracle_model_free(&a.model);
}

static void refuse_times(const char *layers, const char *part) {
  refuse_times_with(layers, "", part);
}

#define TIMES(name) "{\"name\": \"" name "\", \"forward_s\": 1, \"backward_s\": 2, \"update_s\": 3}"

static void test_measured_layers(void **state) {
  (void)state;
  asked a = parse(two_layers, plain, 20);
  write_times("two", TIMES("a") "," TIMES("b"));
  assert_int_equal(bppsa_oracle_system_open(TIMES_FILE, &a.system), BPPSA_OK);
  assert_int_equal(bppsa_oracle_system_times(TIMES_FILE, &a.model), BPPSA_OK);
  assert_string_equal(a.model.measured, "2026-01-31, a machine, 16 samples at once");
  near(row_of(&a, "serial", 1).compute_s, 100 * 6 + 5 * 6);
  bppsa_oracle_model_free(&a.model);
  a = parse(two_layers, plain, 20);
  write_times("three", "{}"); /* of another model: nothing happens */
  assert_int_equal(bppsa_oracle_system_times(TIMES_FILE, &a.model), BPPSA_OK);
  assert_int_equal(bppsa_oracle_system_times("h200x4", &a.model), BPPSA_OK);
  assert_string_equal(a.model.measured, "");
  assert_true(a.model.layers[0].forward_spread.high == 0); /* nor in files without one */
  assert_int_equal(bppsa_oracle_system_times("no_such.json", &a.model), BPPSA_ERR_ARGUMENT);
  bppsa_oracle_model_free(&a.model);
  refuse_times(TIMES("a"), "1 layers, expected the 2 of two");
  refuse_times(TIMES("a") "," TIMES("c"), "layer 1: \"name\": c, expected b");
  refuse_times(TIMES("a") ", {\"name\": \"b\", \"forward_s\": 1, \"update_s\": 1}", "\"backward_s\" missing");
  refuse_times(TIMES("a") ", {\"name\": \"b\", \"forward_s\": -1}", "\"forward_s\"");
  refuse_times(TIMES("a") ", {\"nam\": \"b\"}", "did you mean name?");
  a = parse(two_layers, plain, 20);
  write_times_with("two", TIMES("a") "," TIMES("b"), ", \"shares\": [" SHARE("data", "1", "1") "]");
  assert_int_equal(bppsa_oracle_system_times(TIMES_FILE, &a.model), BPPSA_OK);
  near(row_of(&a, "serial", 1).compute_s, 100 * 3e-3 + 5 * 3e-3);
  bppsa_oracle_model_free(&a.model);
  refuse_times_with(TIMES("a") "," TIMES("b"), ", \"shares\": {}", "\"shares\": expected a list of at most 256");
  refuse_times_with(TIMES("a") "," TIMES("b"), ", \"shares\": [{\"strategy\": \"data\"}]", "share 0: \"ways\" missing, expected");
  refuse_times_with(TIMES("a") "," TIMES("b"), ", \"shares\": [{\"way\": 1}]",
                    "share 0: unknown member \"way\", expected strategy, ways, ranks, ");
  refuse_times_with(TIMES("a") "," TIMES("b"), ", \"shares\": [{\"strategy\": \"data\", \"ways\": 0}]",
                    "share 0: \"ways\": 0, expected a whole number from 1 to 1000000000");
}

#define SPREAD_TIMES(spread)                                                                                                     \
  "{\"name\": \"a\", \"forward_s\": 1, \"backward_s\": 2, \"update_s\": 3, \"weight_grad_s\": 1, \"spread\": " spread            \
  "}," TIMES("b")

/* Measured times say between which seconds they lie, in the system's file and in the model's. */
static void test_spreads_of_times(void **state) {
  (void)state;
  asked a = parse(two_layers, plain, 20);
  write_times("two", SPREAD_TIMES("{\"forward_s\": [0, 2], \"update_s\": [3, 3], \"weight_grad_s\": [0.5, 1]}"));
  assert_int_equal(bppsa_oracle_system_times(TIMES_FILE, &a.model), BPPSA_OK);
  near(a.model.layers[0].forward_spread.high, 2);
  near(a.model.layers[0].update_spread.low, 3);
  assert_true(a.model.layers[0].backward_spread.high == 0 && a.model.layers[1].forward_spread.high == 0);
  json_t *document = bppsa_oracle_model_json(&a.model);
  bppsa_oracle_model copy;
  assert_int_equal(bppsa_oracle_model_parse("copy", document, &copy), BPPSA_OK);
  assert_memory_equal(&copy.layers[0], &a.model.layers[0], sizeof copy.layers[0]);
  bppsa_oracle_model_free(&copy);
  json_decref(document);
  write_times("two", TIMES("a") "," TIMES("b")); /* times of another file take their spreads with them */
  assert_int_equal(bppsa_oracle_system_times(TIMES_FILE, &a.model), BPPSA_OK);
  assert_true(a.model.layers[0].forward_spread.high == 0);
  bppsa_oracle_model_free(&a.model);
  refuse_times(SPREAD_TIMES("{\"forward_s\": [-1, 2]}"),
               "layer 0: \"spread\": \"forward_s\": expected two numbers from 0 and up to 1e6, with 1 between them");
  refuse_times(SPREAD_TIMES("{\"forward_s\": [2, 3]}"), "with 1 between them");
  refuse_times(SPREAD_TIMES("{\"product_s\": [2, 3]}"),
               "layer 0: \"spread\": \"product_s\": the spread of a time that is missing, expected the time too");
  refuse_times(SPREAD_TIMES("{\"forwards\": [2, 3]}"), "layer 0: \"spread\": unknown member \"forwards\"");
  refuse_times(SPREAD_TIMES("[1]"), "layer 0: \"spread\": a list of 1, expected a JSON object");
}

static void test_times_of_no_batch(void **state) {
  (void)state;
  asked a = parse(two_layers, plain, 20);
  FILE *file = fopen(TIMES_FILE, "w");
  assert_non_null(file);
  fputs("{\"measured\": {\"date\": \"2026-01-31\", \"hardware\": \"a machine\"}, \"layer_times\": {\"model\": \"two\", "
        "\"layers\": [" TIMES("a") "," TIMES("b") "]}}",
        file);
  assert_int_equal(fclose(file), 0);
  assert_int_equal(bppsa_oracle_system_times(TIMES_FILE, &a.model), BPPSA_ERR_FORMAT);
  assert_non_null(strstr(bppsa_last_error(), "layer_times: \"batch\" missing, expected the samples of a pass"));
  bppsa_oracle_model_free(&a.model);
}

/* The file of a built-in model or system gives the same rows. */
static void test_round_trip(void **state) {
  (void)state;
  for (int64_t i = 0; bppsa_oracle_model_name(i) != NULL; ++i) {
    asked a = named(bppsa_oracle_model_name(i), "dgx-h100", 8), b = a;
    json_t *document = bppsa_oracle_model_json(&a.model), *place = bppsa_oracle_system_json(&a.system);
    assert_int_equal(bppsa_oracle_model_parse("copy", document, &b.model), BPPSA_OK);
    assert_int_equal(bppsa_oracle_system_parse("copy", place, &b.system), BPPSA_OK);
    json_decref(document);
    json_decref(place);
    for (int64_t s = 0; bppsa_oracle_strategy_at(s) != NULL; ++s) {
      const bppsa_oracle_row first = row_of(&a, bppsa_oracle_strategy_at(s)->name, 4),
                             second = row_of(&b, bppsa_oracle_strategy_at(s)->name, 4);
      assert_int_equal(first.feasible, second.feasible);
      assert_int_equal(first.limit, second.limit);
      if (!isnan(first.time_s)) {
        assert_true(fabs(first.time_s - second.time_s) <= 1e-12 * first.time_s);
        near(first.memory_bytes, second.memory_bytes);
      }
    }
    bppsa_oracle_model_free(&a.model);
    bppsa_oracle_model_free(&b.model);
  }
}

static void refuse_model(const char *text, const char *part) {
  json_t *document = NULL;
  bppsa_oracle_model model;
  assert_int_equal(bppsa_json_parse("m", text, (int64_t)strlen(text), &document), BPPSA_OK);
  assert_int_equal(bppsa_oracle_model_parse("m", document, &model), BPPSA_ERR_FORMAT);
  json_decref(document);
  if (strstr(bppsa_last_error(), part) == NULL) {
    fail_msg("%s lacks '%s'", bppsa_last_error(), part);
  }
}

static void refuse_system(const char *text, const char *part) {
  json_t *document = NULL;
  bppsa_oracle_system system;
  assert_int_equal(bppsa_json_parse("s", text, (int64_t)strlen(text), &document), BPPSA_OK);
  assert_int_equal(bppsa_oracle_system_parse("s", document, &system), BPPSA_ERR_FORMAT);
  json_decref(document);
  if (strstr(bppsa_last_error(), part) == NULL) {
    fail_msg("%s lacks '%s'", bppsa_last_error(), part);
  }
}

#define LAYER(members) "{\"name\": \"m\", \"layers\": [{\"name\": \"a\", \"kind\": \"conv\", " members "}]}"
#define KIND(kind, members) "{\"name\": \"m\", \"layers\": [{\"name\": \"a\", \"kind\": \"" kind "\", " members "}]}"
#define SYSTEM(levels) "{\"name\": \"s\", \"peak_flops\": 1, \"memory_bytes\": 1, \"levels\": [" levels "]}"

#define PRODUCTS(members)                                                                                                        \
  "{\"name\": \"s\", \"peak_flops\": 1, \"memory_bytes\": 1, \"levels\": [{\"name\": \"n\", \"processors\": 2, \"alpha_s\": 1, " \
  "\"bandwidth\": 1}], \"products\": " members "}"
#define COST(sample, entry, term) "{\"sample_s\": " sample ", \"entry_s\": " entry ", \"term_s\": " term "}"

/* Products are read, written and read again; what is wrong with them is named. */
static void test_products(void **state) {
  (void)state;
  static const char text[] = PRODUCTS("{\"product\": " COST("1e-7", "2e-9", "3e-11") ", \"apply\": " COST("0", "4e-9", "0") "}");
  json_t *document = NULL;
  bppsa_oracle_system system, copy;
  assert_int_equal(bppsa_json_parse("s", text, (int64_t)strlen(text), &document), BPPSA_OK);
  assert_int_equal(bppsa_oracle_system_parse("s", document, &system), BPPSA_OK);
  json_decref(document);
  document = bppsa_oracle_system_json(&system);
  assert_int_equal(bppsa_oracle_system_parse("copy", document, &copy), BPPSA_OK);
  json_decref(document);
  near(copy.products[BPPSA_PRODUCT_MATRICES].sample_s * 1e7, 1);
  near(copy.products[BPPSA_PRODUCT_MATRICES].entry_s * 1e9, 2);
  near(copy.products[BPPSA_PRODUCT_MATRICES].term_s * 1e11, 3);
  near(copy.products[BPPSA_PRODUCT_VECTOR].entry_s * 1e9, 4);
  assert_true(copy.products[BPPSA_PRODUCT_VECTOR].sample_s == 0 && copy.products[BPPSA_PRODUCT_VECTOR].term_s == 0);
  refuse_system(PRODUCTS("[]"), "s: \"products\": a list of 0, expected a JSON object");
  refuse_system(PRODUCTS("{\"produkt\": {}}"), "s: \"products\": unknown member \"produkt\", expected product, apply");
  refuse_system(PRODUCTS("{\"product\": " COST("1", "1", "1") "}"),
                "s: products: \"apply\" missing, expected sample_s, entry_s and term_s");
  refuse_system(PRODUCTS("{\"product\": 1}"), "s: products: \"product\": 1, expected a JSON object");
  refuse_system(PRODUCTS("{\"product\": {\"sample_s\": 1, \"entry_s\": 1}}"), "\"term_s\" missing, expected seconds");
  refuse_system(PRODUCTS("{\"product\": " COST("-1", "1", "1") "}"), "\"sample_s\": -1, expected a number from 0 to 1000000");
  refuse_system(PRODUCTS("{\"product\": " COST("1", "\"1\"", "1") "}"), "\"entry_s\": a text, expected a number");
  refuse_system(PRODUCTS("{\"product\": " COST("1", "1", "1e7") "}"),
                "\"term_s\": 10000000, expected a number from 0 to 1000000");
  refuse_system(PRODUCTS("{\"product\": " COST("0", "0", "0") "}"),
                "s: products: \"product\": sample_s, entry_s and term_s are 0, expected one of them above");
  refuse_system(PRODUCTS("{\"product\": {\"samples_s\": 1}}"),
                "unknown member \"samples_s\", expected sample_s, entry_s, term_s");
}

#define LEVEL(members)                                                                                                           \
  SYSTEM("{\"name\": \"n\", \"processors\": 2, \"alpha_s\": 1, \"bandwidth\": 1, \"slowdown\": 1.5, \"spread\": " members "}")
#define LAYERS(spread)                                                                                                           \
  "{\"name\": \"s\", \"peak_flops\": 1, \"memory_bytes\": 1, \"spread\": " spread ", \"levels\": [{\"name\": \"n\", "            \
  "\"processors\": 2, \"alpha_s\": 1, \"bandwidth\": 1}]}"

static bppsa_oracle_system read_system(const char *text) {
  json_t *document = NULL;
  bppsa_oracle_system system;
  assert_int_equal(bppsa_json_parse("s", text, (int64_t)strlen(text), &document), BPPSA_OK);
  assert_int_equal(bppsa_oracle_system_parse("s", document, &system), BPPSA_OK);
  json_decref(document);
  return system;
}

/* Spreads are read, written and read again; what is wrong with them is named. */
static void test_spreads(void **state) {
  (void)state;
  static const char *const texts[] = {LEVEL("{\"slowdown\": [1.25, 1.75]}"),
                                      LEVEL("{\"messages\": [0.5, 4], \"slowdown\": [1, 2]}"),
                                      LAYERS("{\"layers\": [0.75, 1.5]}"), LAYERS("{}"), LEVEL("{\"slowdown\": [1.5, 1.5]}")};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
    const bppsa_oracle_system system = read_system(texts[i]);
    json_t *document = bppsa_oracle_system_json(&system);
    bppsa_oracle_system copy;
    assert_int_equal(bppsa_oracle_system_parse("copy", document, &copy), BPPSA_OK);
    assert_true((json_object_get(document, "spread") != NULL) == (i == 2));
    json_decref(document);
    assert_int_equal(bppsa_oracle_has_spread(&system), i != 3);
    const bppsa_oracle_spread found[] = {system.layer_spread, system.levels[0].slowdown_spread, system.levels[0].message_spread};
    const bppsa_oracle_spread again[] = {copy.layer_spread, copy.levels[0].slowdown_spread, copy.levels[0].message_spread};
    assert_memory_equal(found, again, sizeof found);
  }
  const bppsa_oracle_system more = read_system(LEVEL("{\"allreduce\": [0.5, 2]}")),
                            products = read_system(LAYERS("{\"product\": [0.5, 3], \"apply\": [1, 1]}"));
  near(more.levels[0].own_spread[BPPSA_OPERATION_ALLREDUCE].high, 2);
  near(products.product_spread[BPPSA_PRODUCT_MATRICES].high, 3);
  assert_true(bppsa_oracle_has_spread(&more) && bppsa_oracle_has_spread(&products));
  json_t *document = bppsa_oracle_system_json(&products);
  bppsa_oracle_system copy;
  assert_int_equal(bppsa_oracle_system_parse("copy", document, &copy), BPPSA_OK);
  json_decref(document);
  assert_memory_equal(copy.product_spread, products.product_spread, sizeof copy.product_spread);
  near(read_system(texts[0]).levels[0].slowdown_spread.low, 1.25);
  near(read_system(texts[1]).levels[0].message_spread.high, 4);
  refuse_system(LAYERS("3"), "s: \"spread\": 3, expected a JSON object");
  refuse_system(LAYERS("{\"slowdown\": [1, 2]}"), "s: \"spread\": unknown member \"slowdown\", expected layers");
  refuse_system(LEVEL("{\"layers\": [1, 2]}"), "s: level 0: \"spread\": unknown member \"layers\", expected slowdown, messages");
  refuse_system(LEVEL("{\"slowdown\": [2, 1]}"),
                "s: level 0: \"spread\": \"slowdown\": expected two numbers above 0 and up to 1e6, with 1.5 between them");
  refuse_system(LEVEL("{\"slowdown\": [1, 1.25]}"), "with 1.5 between them");
  refuse_system(LEVEL("{\"slowdown\": [1]}"), "\"slowdown\": expected two numbers");
  refuse_system(LEVEL("{\"slowdown\": [1, 2, 3]}"), "\"slowdown\": expected two numbers");
  refuse_system(LEVEL("{\"slowdown\": 1.5}"), "\"slowdown\": expected two numbers");
  refuse_system(LEVEL("{\"slowdown\": [\"1\", 2]}"), "\"slowdown\": expected two numbers");
  refuse_system(LEVEL("{\"messages\": [0, 2]}"), "\"messages\": expected two numbers above 0 and up to 1e6, with 1 between them");
  refuse_system(LEVEL("{\"messages\": [-1, 2]}"), "\"messages\": expected two numbers above 0");
  refuse_system(LEVEL("{\"messages\": [1, 1e7]}"), "\"messages\": expected two numbers above 0 and up to 1e6");
}

/* Processors that compute as long side by side as one after the other, or may, gain nothing. */
static void test_warnings(void **state) {
  (void)state;
  static const struct {
    double slowdown, low, high;
    bool warns;
  } cases[] = {{1.2, 0, 0, false},   {2, 0, 0, true},       {1.91, 0, 0, true},     {1.2, 1.1, 1.3, false},
               {1.5, 1, 1.99, true}, {2.4, 2.2, 2.6, true}, {1.5, 1.4, 1.85, false}};
  char text[BPPSA_ORACLE_WARNING];
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    const bppsa_oracle_level level = {
        .processors = 2, .slowdown = cases[i].slowdown, .slowdown_spread = {cases[i].low, cases[i].high}};
    assert_true((bppsa_oracle_level_warning(&level, text)[0] != '\0') == cases[i].warns);
  }
  const bppsa_oracle_level four = {.processors = 4, .slowdown = 2, .slowdown_spread = {1.5, 2.5}},
                           one = {.processors = 1, .slowdown = 1};
  assert_string_equal(bppsa_oracle_level_warning(&four, text), "");
  assert_string_equal(bppsa_oracle_level_warning(&one, text), "");
  const bppsa_oracle_level both = {.processors = 2, .slowdown = 1.5, .slowdown_spread = {1, 1.99}};
  assert_non_null(strstr(bppsa_oracle_level_warning(&both, text),
                         "2 processors at once compute 1.50 times as long as one, up to 1.99: they may take as long as"));
  const bppsa_oracle_level alone = {.processors = 2, .slowdown = 2};
  assert_non_null(strstr(bppsa_oracle_level_warning(&alone, text),
                         "2 processors at once compute 2.00 times as long as one: as long as one after the other, so they gain"));
}

static void test_bad_files(void **state) {
  (void)state;
  refuse_model("[1]", "a list of 1, expected a JSON object");
  refuse_model("{\"name\": \"m\", \"layers\": []}", "\"layers\": a list of 0, expected a list of 1 to");
  refuse_model("{\"name\": \"m\", \"layers\": \"a\"}", "\"layers\": a text, expected a list of 1 to");
  refuse_model("{\"name\": 3, \"layers\": [{}]}", "\"name\": 3, expected a text of 1 to");
  refuse_model("{\"name\": \"\", \"layers\": [{}]}", "\"name\": a text of 0, expected a text of 1 to");
  refuse_model("{\"name\": \"m\", \"layers\": [{\"name\": \"a\", \"kind\": 3}]}", "\"kind\": 3, expected conv");
  refuse_model("{\"layers\": [{}]}", "\"name\"");
  refuse_model("{\"name\": \"m\", \"layer\": [{}]}",
               "unknown member \"layer\", expected name, samples, layers; did you mean layers?");
  refuse_model("{\"name\": \"m\", \"layers\": [{\"name\": \"a\", \"kind\": \"konv\"}]}", "layer 0: \"kind\": konv");
  refuse_model(LAYER("\"in\": [1], \"out\": [-1]"), "layer 0: \"out\": -1, expected a list of 1 to 4 whole numbers from 1");
  refuse_model(LAYER("\"in\": [1], \"out\": [1.5]"), "layer 0: \"out\": 1.5, expected a list");
  refuse_model(LAYER("\"in\": [1], \"out\": [1, 2, 3, 4, 5]"), "\"out\": a list of 5, expected a list of 1 to 4");
  refuse_model(LAYER("\"in\": [1], \"out\": [\"1\"]"), "\"out\": a text, expected");
  refuse_model(LAYER("\"in\": [1], \"out\": [1], \"kernel\": []"), "\"kernel\": a list of 0, expected a list of 1 to 3");
  refuse_model(LAYER("\"out\": [1]"), "\"in\": missing, expected a list");
  refuse_model(LAYER("\"in\": [1], \"out\": [1], \"w\": -1"), "layer 0: \"w\": -1, expected a whole number from 0 to");
  refuse_model(LAYER("\"in\": [1], \"out\": [1], \"w\": \"1\""), "\"w\"");
  refuse_model(LAYER("\"in\": [2, 3], \"out\": [1], \"x\": 5"), "\"x\" and \"y\": expected 6 and 1");
  refuse_model(LAYER("\"in\": [1], \"out\": [1], \"gather\": 1"), "\"gather\"");
  /* Eight positions and a window of three: ten of them see some of the input, one by one, and five of nine by two. */
  refuse_model(
      LAYER("\"in\": [3, 8], \"out\": [4, 11], \"kernel\": [3]"),
      "layer 0 (a): \"out\": 11 positions of windows of 3 over 12 positions with padding, 1 at a time, expected 1 to 10");
  refuse_model(LAYER("\"in\": [3, 9, 8], \"out\": [4, 6, 6], \"kernel\": [3, 3], \"stride\": [2, 2]"),
               "2 at a time, expected 1 to 5");
  /* With two of padding eight of them, four by two; a pool may have a fifth that ends behind the last position. */
#define PADDED(more) LAYER("\"in\": [3, 8], \"padding\": [2], " more)
  refuse_model(PADDED("\"out\": [4, 1], \"kernel\": [11]"), "\"kernel\": 11, expected at most 10: 8 positions and 2 of padding");
  refuse_model(PADDED("\"out\": [4, 9], \"kernel\": [3]"),
               "\"out\": 9 positions of windows of 3 over 10 positions, 1 at a time, expected 8 to 8");
  refuse_model(PADDED("\"out\": [4, 6], \"kernel\": [3], \"stride\": [2]"), "2 at a time, expected 4 to 5");
  refuse_model(LAYER("\"in\": [3, 8], \"out\": [4, 8], \"padding\": [-1]"),
               "\"padding\": -1, expected a list of 1 to 3 whole numbers from 0");
  refuse_model(KIND("add", "\"in\": [3, 8], \"out\": [4, 9]"),
               "layer 0 (a): \"out\": 4 x 9, expected 3 x 8, the \"in\" of a layer of kind add");
  refuse_model(KIND("norm", "\"in\": [3, 8], \"out\": [8, 3]"), "\"out\": 8 x 3, expected 3 x 8");
  refuse_model(KIND("elementwise", "\"in\": [3, 8], \"out\": [25]"), "\"out\": 25, expected 3 x 8");
  refuse_model(LAYER("\"in\": [1], \"out\": [1, 2147483647, 2147483647]"),
               "\"out\": 4.61169e+18 elements, expected at most 1e+18");
  refuse_model(LAYER("\"in\": [1, 2147483647, 2147483647, 4], \"out\": [1]"), "layer 0: \"in\": 1.84467e+19 elements");
  refuse_system("{\"name\": \"s\", \"memory_bytes\": 1, \"levels\": [{}]}", "\"peak_flops\" missing");
  refuse_system("{\"name\": \"s\", \"peak_flops\": -1, \"memory_bytes\": 1, \"levels\": [{}]}", "\"peak_flops\"");
  refuse_system(SYSTEM(""), "\"levels\": a list of 0, expected");
  refuse_system("{\"name\": \"s\", \"peak_flops\": 1, \"memory_bytes\": 1, \"memory_bandwidth\": 1e-300, \"levels\": [{}]}",
                "s: \"memory_bandwidth\": 1e-300, expected 0 (no limit) or 1 to 1e+18 bytes a second");
  refuse_system(SYSTEM("{\"name\": \"n\", \"processors\": 4, \"alpha_s\": 1}"), "\"bandwidth\" missing");
  refuse_system(SYSTEM("{\"name\": \"n\", \"processors\": 4, \"bandwidth\": 1}"), "\"alpha_s\" missing");
  refuse_system(SYSTEM("{\"name\": \"n\", \"processors\": 4, \"alpha_s\": 1, \"bandwidth\": 0}"), "\"bandwidth\"");
  refuse_system(SYSTEM("{\"name\": \"n\", \"processors\": 4, \"alpha_s\": 1, \"bandwidth\": 1},"
                       "{\"name\": \"m\", \"processors\": 4, \"alpha_s\": 1, \"bandwidth\": 1}"),
                "level 1: \"processors\": 4, expected more than the 4 inside it");
  refuse_system(SYSTEM("{\"name\": \"n\", \"processors\": 4, \"alpha_s\": 1, \"bandwidth\": 1, \"slowdown\": 0.5}"),
                "\"slowdown\": 0.5, expected a number from 1");
  refuse_system(SYSTEM("{\"name\": \"n\", \"processors\": 4, \"alpha_s\": 1, \"bandwidth\": 1, \"allgather\": {\"alpha_s\": 1}}"),
                "level 0: \"allgather\": \"bandwidth\" missing");
  refuse_system(SYSTEM("{\"name\": \"n\", \"processors\": 4, \"alpha_s\": 1, \"bandwidth\": 1, \"allgather\": {\"beta\": 1}}"),
                "unknown member \"beta\", expected alpha_s, bandwidth");
  refuse_system(SYSTEM("{\"name\": \"n\", \"processors\": 16777217, \"alpha_s\": 1, \"bandwidth\": 1}"),
                "\"processors\": 16777217, expected a whole number from 1 to 16777216");
}

/* No fraction is cut off, whatever counts. */
/* Names are printed, so they must not control a terminal nor end a line. */
static void test_control_characters(void **state) {
  (void)state;
  refuse_model("{\"name\": \"m\\u001b[2J\", \"layers\": [{}]}",
               "m: \"name\": 'm?[2J', expected a text without control characters");
  refuse_model("{\"name\": \"m\", \"layers\": [{\"name\": \"a\\n\", \"kind\": \"conv\", \"in\": [1], \"out\": [1]}]}",
               "layer 0: \"name\": 'a?', expected a text without control characters");
  refuse_system("{\"name\": \"s\\u009b\", \"peak_flops\": 1, \"memory_bytes\": 1, \"levels\": [{}]}",
                "s: \"name\": 's?\?', expected");
  refuse_system(SYSTEM("{\"name\": \"n\\u007f\", \"processors\": 4, \"alpha_s\": 1, \"bandwidth\": 1}"),
                "\"name\": 'n?', expected");
}

static void test_fractions(void **state) {
  (void)state;
  refuse_model("{\"name\": \"m\", \"samples\": 10.5, \"layers\": [{}]}",
               "m: \"samples\": 10.5, expected a whole number from 1 to");
  refuse_model(LAYER("\"in\": [1], \"out\": [1], \"w\": 2.5"), "layer 0: \"w\": 2.5, expected a whole number");
  refuse_model(LAYER("\"in\": [1], \"out\": [1], \"bias\": 0.5"), "layer 0: \"bias\": 0.5, expected a whole number");
  refuse_model(LAYER("\"in\": [1], \"out\": [1], \"stride\": [1.25]"), "layer 0: \"stride\": 1.25, expected");
  refuse_system(SYSTEM("{\"name\": \"n\", \"processors\": 4.5, \"alpha_s\": 1, \"bandwidth\": 1}"),
                "level 0: \"processors\": 4.5, expected a whole number");
  refuse_times_with(TIMES("a") "," TIMES("b"), ", \"shares\": [" SHARE("filter", "2.5", "4") "]",
                    "share 0: \"ways\": 2.5, expected a whole number");
  /* A whole number may be written with a point. */
  asked a = parse(
      "{\"name\": \"m\", \"samples\": 1e2, \"layers\": [{\"name\": \"a\", \"kind\": \"pool\", \"in\": [4.0], \"out\": [2]}]}",
      plain, 1);
  assert_int_equal(a.model.samples, 100);
  assert_int_equal(a.model.layers[0].in[0], 4);
  bppsa_oracle_model_free(&a.model);
}

#define L(name, kind, in, out) "{\"name\": \"" name "\", \"kind\": \"" kind "\", \"in\": " in ", \"out\": " out "}"
#define CHAIN(layers) "{\"name\": \"m\", \"layers\": [" layers "]}"

static void take_model(const char *text) {
  asked a = parse(text, plain, 1);
  bppsa_oracle_model_free(&a.model);
}

/* A layer takes what the one in front of it gives; a shortcut takes its block's input and ends in a sum. */
static void test_chains(void **state) {
  (void)state;
  refuse_model(CHAIN(L("a", "conv", "[3, 8, 8]", "[6, 8, 8]") "," L("b", "conv", "[4, 8, 8]", "[4, 8, 8]")),
               "m: layer 1 (b): \"in\": 4 x 8 x 8, expected 6 x 8 x 8, the \"out\" of layer 0 (a)");
  /* As many elements in another shape are not the same. */
  refuse_model(CHAIN(L("a", "conv", "[3, 8, 8]", "[6, 8, 8]") "," L("b", "pool", "[8, 6, 8]", "[8, 6, 8]")), "layer 1 (b)");
  refuse_model(CHAIN(L("a", "conv", "[3, 8, 8]", "[6, 8, 8]") "," L("b", "linear", "[383]", "[1]")), "\"in\": 383, expected 6 x");
  take_model(CHAIN(L("a", "conv", "[3, 8, 8]", "[6, 8, 8]") "," L("b", "linear", "[384]", "[1]")));
  /* A recurrent layer hands on all its states or the last one. */
  take_model(CHAIN(
      L("r", "recurrent", "[2, 9]", "[5, 9]") "," L("s", "recurrent", "[5, 9]", "[4, 9]") "," L("h", "linear", "[4]", "[1]")));
  refuse_model(CHAIN(L("r", "recurrent", "[2, 9]", "[5, 9]") "," L("h", "linear", "[9]", "[1]")), "\"in\": 9, expected 5 x 9");
  /* Residual blocks: main path m, shortcut s, sum. */
#define BLOCK(from, to, sum)                                                                                                     \
  L("a", "conv", "[3, 8]", "[4, 8]") "," L("m", "conv", "[4, 8]", "[6, 8]") "," L("s", "conv", from, to) "," sum
  take_model(CHAIN(BLOCK("[4, 8]", "[6, 8]", L("+", "add", "[6, 8]", "[6, 8]"))));
  take_model(CHAIN(BLOCK("[3, 8]", "[6, 8]", L("+", "add", "[6, 8]", "[6, 8]")))); /* from the model's input */
  refuse_model(CHAIN(BLOCK("[4, 8]", "[6, 8]", L("+", "pool", "[6, 8]", "[6, 8]"))),
               "layer 2 (s): \"in\": 4 x 8, expected 6 x 8");
  refuse_model(CHAIN(BLOCK("[5, 8]", "[6, 8]", L("+", "add", "[6, 8]", "[6, 8]"))), "layer 2 (s): \"in\": 5 x 8, expected 6 x 8");
  refuse_model(CHAIN(BLOCK("[4, 8]", "[7, 8]", L("+", "add", "[6, 8]", "[6, 8]"))), "layer 3 (+): \"in\": 6 x 8, expected 7 x 8");
  refuse_model(CHAIN(BLOCK("[4, 8]", "[7, 8]", L("+", "add", "[7, 8]", "[7, 8]"))), "layer 2 (s): \"in\": 4 x 8, expected 6 x 8");
  /* Behind a sum nothing in front of it can be taken. */
  refuse_model(CHAIN(BLOCK("[4, 8]", "[6, 8]", L("+", "add", "[6, 8]", "[6, 8]")) "," L("n", "conv", "[6, 8]", "[9, 8]") "," L(
                   "t", "conv", "[4, 8]", "[9, 8]") "," L("+", "add", "[9, 8]", "[9, 8]")),
               "layer 5 (t): \"in\": 4 x 8, expected 9 x 8");
}

static void test_bad_questions(void **state) {
  (void)state;
  asked a = named("lenet5", "h200x4", 32);
  bppsa_oracle_rows rows = {.count = 7};
  a.query.model = &a.model;
  a.query.system = &a.system;
  assert_int_equal(bppsa_oracle_ask(&a.query, NULL, 1, 5, &rows), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "--processors: 1..5, expected 1 to the 4 of h200x4"));
  assert_int_equal(bppsa_oracle_ask(&a.query, NULL, 0, 4, &rows), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_oracle_ask(&a.query, NULL, 4, 2, &rows), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_oracle_ask(&a.query, "data,dta", 1, 1, &rows), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "did you mean data?"));
  a.query.batch = INT64_MAX;
  assert_int_equal(bppsa_oracle_ask(&a.query, NULL, 1, 1, &rows), BPPSA_ERR_ARGUMENT);
  assert_int_equal(rows.count, 7);
  bppsa_oracle_model_free(&a.model);
  assert_int_equal(bppsa_oracle_model_open("resnet5", &a.model), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "did you mean resnet50?"));
  assert_int_equal(bppsa_oracle_model_open("no_such.json", &a.model), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_oracle_system_open("dgx", &a.system), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_oracle_system_open("this-machine", &a.system), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "a file .json, which bppsa calibrate --out writes of this machine"));
  assert_int_equal(bppsa_oracle_system_open("other-machine", &a.system), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "'other-machine': unknown system"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_measured_layers),    cmocka_unit_test(test_spreads_of_times), cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_times_of_no_batch),  cmocka_unit_test(test_products),         cmocka_unit_test(test_bad_files),
      cmocka_unit_test(test_fractions),          cmocka_unit_test(test_chains),           cmocka_unit_test(test_bad_questions),
      cmocka_unit_test(test_control_characters), cmocka_unit_test(test_spreads),          cmocka_unit_test(test_warnings)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
