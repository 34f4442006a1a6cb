/* Forms of `bench rnn` on a processor: with the gradient of the input, with cold caches; wrong requests. */
#include "tests/bench/rows.h"
#include "tests/cli/batch_files.h"

#include "bench/cases/case.h"
#include "core/base/alloc.h"
#include "core/measure/residual.h"
#include "tests/support/support.h"

#define SHAPE "--seq-len 10 --batch 3 --hidden 4 --init default --repeats 1 --threads 1"

/* Backward rows say that they have the gradient of the input, and count its FLOP and bytes. */
static void input_gradient(void **state) {
  (void)state;
  static const char *const models[] = {"rnn", "gru", "lstm"}, *const methods[] = {"bp", "linear", "blelloch", "chunked", "auto"};
  static const int64_t gates[] = {1, 3, 4};
  for (size_t k = 0; k < 3; ++k) {
    json_t *plain = run_json("bench %s --json --input 2 " SHAPE, models[k]);
    json_t *document = run_json("bench %s --json --input 2 --input-gradient " SHAPE, models[k]);
    for (size_t m = 0; m < 5; ++m) {
      const json_t *row = find_row(document, methods[m]), *without = find_row(plain, methods[m]);
      assert_true(json_is_true(json_object_get(row, "input_gradient")) && json_is_true(json_object_get(row, "ok")));
      assert_null(json_object_get(without, "input_gradient"));
      const int64_t flops = get_integer(row, "flops") - get_integer(without, "flops") - 2 * 10 * 3 * gates[k] * 4 * 2;
      assert_true(flops >= (k == 0 ? 3 * 2 * 4 * 4 : 1)); /* of the gradient of h0, which comes with it */
      assert_true(m > 1 || k > 0 || flops == 3 * 2 * 4 * 4);
      assert_true(get_integer(row, "bytes") - get_integer(without, "bytes") > 4 * 10 * 3 * 2);
    }
    assert_null(json_object_get(find_row(document, "forward"), "input_gradient"));
    assert_int_equal(get_integer(find_row(document, "forward"), "flops"), get_integer(find_row(plain, "forward"), "flops"));
    json_decref(plain);
    json_decref(document);
  }
  run_result result = run("bench rnn --input-gradient " SHAPE);
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "backward with the weights' gradients, and the input's"));
  release(&result);
}

/* Beside --reset-rate a point comes without resets and with, and every method is right at both. */
static void resets(void **state) {
  (void)state;
  static const char *const models[] = {"rnn", "gru", "lstm"};
  for (size_t k = 0; k < 3; ++k) {
    json_t *document = run_json("bench %s --json --input 2 --loss all --input-gradient --reset-rate 0.2 " SHAPE, models[k]);
    const json_t *rows = json_object_get(document, "rows");
    size_t with = 0, without = 0;
    for (size_t i = 0; i < json_array_size(rows); ++i) {
      const json_t *row = json_array_get(rows, i);
      const double rate = get_real(row, "reset_rate");
      assert_true(rate == 0 || rate == 0.2);
      assert_true(json_is_true(json_object_get(row, "ok")) || json_object_get(row, "skipped") != NULL);
      with += rate > 0 ? 1 : 0;
      without += rate == 0 ? 1 : 0;
    }
    assert_true(with == without && with >= 6);
    json_decref(document);
  }
  json_t *plain = run_json("bench gru --json " SHAPE);
  assert_null(json_object_get(find_row(plain, "bp"), "reset_rate"));
  json_decref(plain);
  run_result result = run("bench gru --reset-rate 0.25 " SHAPE);
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "init default  without resets\n"));
  assert_non_null(strstr(result.out, "init default  resets in front of 25 % of the steps\n"));
  release(&result);
}

/* ---- a point by its settings ---- */

static const bppsa_model_ops *real_ops;
static bppsa_model_ops wrong_ops;
static int64_t sweeps;

/* In f32; the reference is in f64. */
static bppsa_status wrong_input_gradients(bppsa_model *model, bppsa_view *x, bppsa_view *h0) {
  BPPSA_TRY(real_ops->input_gradients(model, x, h0));
  bppsa_view_set(x, 0, 2 * bppsa_view_get(x, 0) + (x->dtype == BPPSA_F32 ? 1 : 0));
  return BPPSA_OK;
}

static bppsa_status create_wrong(const bppsa_recurrent_config *config, const bppsa_cell *cell, const bppsa_device *device,
                                 bppsa_model **model) {
  BPPSA_TRY(bppsa_recurrent_create(config, cell, device, model));
  real_ops = (*model)->ops;
  wrong_ops = *real_ops;
  wrong_ops.input_gradients = wrong_input_gradients;
  (*model)->ops = &wrong_ops;
  return BPPSA_OK;
}

static bppsa_status count_sweeps(bppsa_bench *bench) {
  sweeps = ((bppsa_bench_session *)bench->session)->cold.sweeps;
  return bppsa_bench_case_rnn.settle(bench);
}

static bppsa_status nothing_after(void *context, int64_t done, int64_t all) {
  (void)context;
  assert_true(done == 1 && all == 1);
  return BPPSA_OK;
}

/* Measures T = 10, B = 3, H = 4 in two repeats, and returns the rows, which the caller frees. */
static json_t *measure(bppsa_bench_settings *asked, const bppsa_network_kind *network, bppsa_bench_count_rows *count) {
  bppsa_device *device = cpu_device(2);
  bppsa_bench_case kind = bppsa_bench_case_rnn;
  const bppsa_bench_keeper keeper = {.rows = json_array(), .after = nothing_after};
  kind.settle = count_sweeps;
  asked->request = (bppsa_bench_request){.to = {.err = stderr}, .device = device, .repeats = 2, .memory_limit = INT64_C(1) << 28};
  asked->point.kind = network;
  asked->point.data = "bitstream";
  asked->point.config.seq_len = 10;
  asked->point.config.batch = 3;
  asked->point.config.hidden = 4;
  asked->one_point = true;
  if (bppsa_bench_drive_rows(&kind, &asked->request, asked, &keeper, count) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  bppsa_device_destroy(device);
  return keeper.rows;
}

/* A gradient of the input that is wrong in one number is found, though all others are right. */
static void wrong_input_gradient(void **state) {
  (void)state;
  for (int with = 0; with < 2; ++with) {
    bppsa_network_kind kind = *bppsa_network_kind_find("rnn");
    bppsa_bench_settings asked = {.point = {.config = bppsa_recurrent_config_default()}};
    bppsa_bench_count_rows count = {0};
    kind.create = create_wrong;
    asked.point.config.input_gradients = with == 1;
    json_t *rows = measure(&asked, &kind, &count);
    assert_int_equal(count.failed, with == 1 ? 5 : 0); /* all backward rows */
    json_decref(rows);
  }
}

/* Every row says how many bytes are written before its pass, and they are: before a forward pass and before a backward pass, at
 * least once for the verification, once that does not count, and twice that are timed. */
static void cold(void **state) {
  (void)state;
  bppsa_bench_settings asked = {.point = {.config = bppsa_recurrent_config_default()}, .cold = 1 << 16};
  bppsa_bench_count_rows count = {0};
  json_t *rows = measure(&asked, bppsa_network_kind_find("rnn"), &count);
  const int64_t inputs = 4 * (10 * 3 + 3 * 4), copies = ((2 << 16) + inputs - 1) / inputs;
  assert_int_equal(json_array_size(rows), 7);
  for (size_t i = 0; i < 7; ++i) {
    assert_int_equal(get_integer(json_array_get(rows, i), "cold_copies"), copies);
    assert_int_equal(get_integer(json_array_get(rows, i), "cold_bytes"), copies * inputs);
  }
  assert_int_equal(count.failed, 0);
  assert_true(sweeps >= 2 * 5 * 4 && sweeps % 2 == 0);
  json_decref(rows);
  asked.cold = 0;
  rows = measure(&asked, bppsa_network_kind_find("rnn"), &count);
  assert_null(json_object_get(json_array_get(rows, 0), "cold_bytes"));
  assert_int_equal(sweeps, 0);
  json_decref(rows);
}

static void wrong_requests(void **state) {
  (void)state;
  assert_fails(2, "--cold: given beside --rivals, whose program makes its passes itself, expected one of them",
               "bench rnn --cold --rivals none " SHAPE);
  assert_fails(2, "--cold: ", "bench rnn --cold --memory-limit 1K " SHAPE); /* or the system does not say how large a cache is */
  assert_fails(2, "--cudnn-dtype: given beside --device cpu and --dtype f32, expected a GPU and f32",
               "bench gru --cudnn-dtype bf16 " SHAPE);
  assert_fails(2, "--cudnn-dtype: 'f16', expected bf16", "bench lstm --cudnn-dtype f16 " SHAPE);
  assert_fails(2, "--reset-rate: '0', expected a probability above 0, at most 1", "bench rnn --reset-rate 0 " SHAPE);
  assert_fails(2, "--reset-rate: given beside --references, whose file has no masks, expected one of them",
               "bench rnn --reset-rate 0.1 --references none.safetensors " SHAPE);
  assert_fails(2, "--input-gradient", "bench crossover --input-gradient --quick");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(input_gradient), cmocka_unit_test(resets),
                                     cmocka_unit_test(wrong_input_gradient), cmocka_unit_test(cold),
                                     cmocka_unit_test(wrong_requests)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
