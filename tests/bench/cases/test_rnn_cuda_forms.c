/* Forms of `bench rnn` on a GPU: cuDNN in bf16, the gradient of the input, cold caches. */
#include "tests/bench/rows.h"
#include "tests/cli/batch_files.h"

#include "bench/harness/recording.h"
#include "tests/support/support.h"

#define SHAPE "--json --device cuda --seq-len 12 --batch 2 --hidden 4 --init default --repeats 1 --threads 1"

static bppsa_device *device;

static bool is_right(const json_t *row) {
  return json_is_true(json_object_get(row, "ok"));
}

/* Rows in bf16 are right within bf16, say their error, which is not f32's, and come beside the option alone. */
static void bf16(void **state) {
  (void)state;
  static const char *const models[] = {"rnn", "gru --loss all", "lstm --layers 2"};
  static const char *const methods[] = {"cudnn_standard_bf16", "cudnn_standard_bf16_graph", "cudnn_standard_bf16_packed",
                                        "cudnn_persist_static_small_h_bf16"};
  for (size_t k = 0; k < 3; ++k) {
    json_t *document = run_json("bench %s --cudnn-dtype bf16 " SHAPE, models[k]);
    for (size_t m = 0; m < (is_emulated(device) ? 4 : 0); ++m) {
      const json_t *row = find_phase(document, "backward", methods[m]);
      const double error = get_real(row, "error");
      assert_true(is_right(row) && json_is_true(json_object_get(row, "rival")) && error > 1e-4 && error < 0.1);
      assert_true(get_real(find_phase(document, "forward", methods[m]), "error") > 1e-5);
      assert_null(json_object_get(find_phase(document, "backward", "cudnn_standard"), "error"));
    }
    if (is_emulated(device)) {
      assert_true(get_real(find_phase(document, "backward", "cudnn_persist_static_small_h_tf32"), "error") <
                  1e-5); /* of the stand-in */
      assert_non_null(
          strstr(get_text(find_phase(document, "backward", "cudnn_persist_dynamic_bf16"), "skipped"), "bf16 is not dynamic"));
    }
    json_decref(document);
  }
  json_t *document = run_json("bench rnn " SHAPE);
  const json_t *rows = json_object_get(document, "rows");
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    assert_null(strstr(get_text(json_array_get(rows, i), "method"), "bf16"));
  }
  json_decref(document);
  assert_fails(2, "--cudnn-dtype: given beside --device cuda:0 and --dtype f64, expected a GPU and f32",
               "bench rnn --device cuda --cudnn-dtype bf16 --dtype f64 --seq-len 20");
}

/* Nobody is held against a row in bf16: neither the line that compares nor what qualifies names one; the table has the error. */
static void bf16_in_the_table(void **state) {
  (void)state;
  run_result result =
      run("bench rnn --device cuda --cudnn-dtype bf16 --seq-len 12 --batch 2 --hidden 4 --init default --repeats 1 "
          "--threads 1");
  assert_int_equal(result.code, 0);
  const char *best = strstr(result.out, "the rivals' best, ");
  for (; best != NULL; best = strstr(best + 1, "the rivals' best, ")) {
    char name[80];
    assert_int_equal(sscanf(best, "the rivals' best, %79[^,]", name), 1);
    assert_null(strstr(name, "bf16"));
  }
  assert_true(!is_emulated(device) || strstr(result.out, "  error 0.00") != NULL);
  release(&result);
}

/* Graphs that do nothing are found out in bf16 too, whose inputs are the network's own. */
static void idle_graphs(void **state) {
  (void)state;
  if (!is_emulated(device)) {
    skip();
  }
  bppsa_bench_record_nothing(true);
  json_t *document = run_json_wrong("bench gru --cudnn-dtype bf16 --input-gradient " SHAPE);
  bppsa_bench_record_nothing(false);
  static const char *const phases[] = {"forward", "backward"};
  for (size_t p = 0; p < 2; ++p) {
    assert_true(is_right(find_phase(document, phases[p], "cudnn_standard_bf16")));
    assert_false(is_right(find_phase(document, phases[p], "cudnn_standard_bf16_graph")));
    assert_false(is_right(find_phase(document, phases[p], "cudnn_standard_tf32_graph")));
  }
  json_decref(document);
}

/* The project's rows and cuDNN's have the gradient of the input, queued and recorded; caches are cold, of the GPU's L2. */
static void input_gradient_cold(void **state) {
  (void)state;
  static const char *const methods[] = {"bp", "bp_graph", "chunked", "auto_graph", "cudnn_standard", "cudnn_standard_graph"};
  json_t *document = run_json("bench gru --input 2 --input-gradient --cold " SHAPE);
  const int64_t cache = get_integer(document, "cache_bytes"), inputs = 4 * (12 * 2 * 2 + 2 * 4);
  assert_true(is_emulated(device) ? cache == 1 << 20 : cache > 1 << 20);
  for (size_t m = 0; m < (is_emulated(device) ? 6 : 4); ++m) {
    const json_t *row = find_phase(document, "backward", methods[m]);
    assert_true(is_right(row) && json_is_true(json_object_get(row, "input_gradient")));
    assert_int_equal(get_integer(row, "cold_copies"), (2 * cache + inputs - 1) / inputs);
    assert_int_equal(get_integer(row, "cold_bytes"), get_integer(row, "cold_copies") * inputs);
  }
  json_decref(document);
}

/* A processor saves the references of points on a GPU: own rows and cuDNN's have the same residuals as with computed ones. */
static void references_of_a_processor(void **state) {
  (void)state;
  static const char *const points[] = {"rnn", "gru --loss all --layers 2", "lstm --input 2 --input-gradient"};
  static const char shape[] = "--json --seq-len 12 --batch 2 --hidden 4 --init orthogonal --threads 1";
  for (size_t p = 0; p < 3; ++p) {
    json_t *saved = run_json("bench %s %s --device cpu --save-references references.safetensors", points[p], shape);
    assert_int_equal(json_array_size(json_object_get(saved, "rows")), 1);
    json_decref(saved);
    json_t *computed = run_json("bench %s %s --repeats 1 --device cuda", points[p], shape);
    json_t *read = run_json("bench %s %s --repeats 1 --device cuda --references references.safetensors", points[p], shape);
    const json_t *a = json_object_get(computed, "rows"), *b = json_object_get(read, "rows");
    assert_int_equal(json_array_size(a), json_array_size(b));
    for (size_t i = 0; i < json_array_size(a); ++i) {
      const json_t *first = json_array_get(a, i), *second = json_array_get(b, i);
      if (json_object_get(second, "skipped") == NULL) {
        assert_string_equal(get_text(first, "reference"), "computed");
        assert_string_equal(get_text(second, "reference"), "file");
        assert_true(!is_emulated(device) || get_real(first, "residual") == get_real(second, "residual"));
      }
      assert_true(json_equal(json_object_get(first, "hidden_zeros"), json_object_get(second, "hidden_zeros")) ||
                  json_object_get(first, "hidden_zeros") == NULL);
    }
    assert_true(is_right(find_phase(read, "backward", "auto_graph")));
    assert_true(!is_emulated(device) || is_right(find_phase(read, "backward", "cudnn_standard")));
    json_decref(computed);
    json_decref(read);
  }
}

int main(void) {
  if (bppsa_device_create("cuda", 1, &device) != BPPSA_OK) {
    puts(bppsa_last_error());
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(bf16), cmocka_unit_test(bf16_in_the_table), cmocka_unit_test(idle_graphs),
                                     cmocka_unit_test(input_gradient_cold), cmocka_unit_test(references_of_a_processor)};
  const int failed = cmocka_run_group_tests(tests, enter_directory, leave_directory);
  bppsa_device_destroy(device);
  return failed;
}
