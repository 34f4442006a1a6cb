/* `jacobian` and `flops`: files, numbers, wrong requests. */
#include <math.h>

#include "core/files/npy.h"
#include "core/files/safetensors.h"
#include "jacobian/file.h"
#include "jacobian/op.h"
#include "tests/cli/run_cli.h"

static void put_reals(const char *path, int32_t ndim, const int64_t *shape, const double *values) {
  const bppsa_view view = bppsa_view_make((void *)(uintptr_t)values, BPPSA_F64, ndim, shape);
  assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
}

static void test_conv2d(void **state) {
  (void)state;
  json_t *d = run_json("jacobian conv2d --in-shape 3,32,32 --out-channels 64 --kernel 3 --padding 1 --json --spy J.png");
  assert_string_equal(get_text(d, "operator"), "conv2d");
  assert_int_equal(get_integer(d, "rows"), 3072);
  assert_int_equal(get_integer(d, "cols"), 65536);
  assert_int_equal(get_integer(d, "nnz"), 1696512);
  assert_int_equal(get_integer(d, "csr_bytes"), 8 * 1696512 + 4 * 3073);
  assert_true(fabs(get_real(d, "sparsity") - 0.991573) < 1e-6);
  assert_true(json_is_false(json_object_get(d, "values")));
  assert_true(get_real(d, "plan_s") > 0);
  json_decref(d);
  size_t size;
  char *png = read_bytes("J.png", &size);
  assert_memory_equal(png, "\x89PNG\r\n\x1a\n", 8);
  assert_memory_equal(png + size - 8, "IEND\xae\x42\x60\x82", 8);
  free(png);
  /* 1 x 2 kernel over a row of three: values, a mask, both formats */
  const double w[] = {2, 5}, mask[] = {1, 0};
  put_reals("w.npy", 4, (int64_t[]){1, 1, 1, 2}, w);
  put_reals("m.npy", 2, (int64_t[]){1, 2}, mask);
  assert_runs("jacobian conv2d --in-shape 1,1,3 --weights w.npy --dtype f64 --out J.npz");
  bppsa_csr_matrix j = {0};
  assert_int_equal(bppsa_csr_load("J.npz", &j), BPPSA_OK);
  assert_int_equal(j.csr.nnz, 4); /* w0; w1 w0; w1 */
  assert_memory_equal(j.values, ((double[]){2, 5, 2, 5}), 4 * sizeof(double));
  bppsa_csr_matrix_free(&j);
  assert_runs("jacobian conv2d --in-shape 1,1,3 --weights w.npy --mask m.npy --out J.mtx");
  assert_int_equal(bppsa_csr_load("J.mtx", &j), BPPSA_OK);
  assert_int_equal(j.csr.nnz, 2);
  assert_memory_equal(j.values, ((double[]){2, 2}), 2 * sizeof(double));
  bppsa_csr_matrix_free(&j);
  d = run_json("jacobian conv2d --in-shape 4,5,6 --out-channels 8 --kernel 2,3 --stride 2,1 --padding 0,1,0,1 --dilation 1,2 "
               "--groups 2 --json");
  assert_int_equal(json_integer_value(json_array_get(json_object_get(d, "out_shape"), 1)), 3);
  assert_int_equal(json_integer_value(json_array_get(json_object_get(d, "out_shape"), 2)), 3);
  json_decref(d);
}

static void test_operators(void **state) {
  (void)state;
  const double x[] = {1, 4, 3, 2, -1, 0, 7, 5};
  put_reals("x.npy", 3, (int64_t[]){2, 2, 2}, x);
  bppsa_csr_matrix j = {0};
  assert_runs("jacobian relu --input x.npy --out J.mtx");
  assert_int_equal(bppsa_csr_load("J.mtx", &j), BPPSA_OK);
  assert_memory_equal(j.values, ((double[]){1, 1, 1, 1, 0, 0, 1, 1}), sizeof x);
  bppsa_csr_matrix_free(&j);
  static const struct {
    const char *line;
    int64_t nnz;
  } cases[] = {{"maxpool2d --input x.npy", 8},
               {"maxpool2d --input x.npy --pattern argmax", 2},
               {"avgpool2d --input x.npy --stride 1 --padding 1", 32},
               {"tanh --input x.npy", 8},
               {"sigmoid --in-shape 3", 3},
               {"leaky_relu --in-shape 2,3 --slope 0.2", 6},
               {"flatten --in-shape 2,3,4", 24},
               {"linear --in-shape 2,3,4 --out-channels 5", 120}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    json_t *d = run_json("jacobian %s --json --threads 1 --out J.npz", cases[i].line);
    assert_int_equal(get_integer(d, "nnz"), cases[i].nnz);
    json_decref(d);
    assert_int_equal(bppsa_csr_load("J.npz", &j), BPPSA_OK);
    assert_int_equal(j.csr.nnz, cases[i].nnz);
    bppsa_csr_matrix_free(&j);
  }
}

/* Every operator but the steps, which are named by their cells, is a command. */
static void test_every_operator(void **state) {
  (void)state;
  for (int kind = 0; kind < BPPSA_OPERATOR_STEP; ++kind) {
    assert_runs("jacobian %s --help", bppsa_operator_name((bppsa_operator)kind));
  }
}

/* h = tanh(w_ih x + w_hh h0): Jᵀ = W_hhᵀ diag(1 - h²). */
static void test_step(void **state) {
  (void)state;
  const double x[] = {0.5}, h0[] = {0.1, -0.2}, ih[] = {1, 2}, hh[] = {0.3, 0.4, 0.5, 0.6}, zeros[6] = {0}, hh3[12] = {0},
               ih3[6] = {0};
  put_reals("x.npy", 1, (int64_t[]){1}, x);
  put_reals("h.npy", 1, (int64_t[]){2}, h0);
  const struct {
    const char *name;
    int32_t ndim;
    int64_t shape[2];
    const double *values;
  } tensors[] = {{"rnn.weight_ih_l0", 2, {2, 1}, ih},  {"rnn.weight_hh_l0", 2, {2, 2}, hh},  {"rnn.bias_ih_l0", 1, {2, 0}, zeros},
                 {"rnn.bias_hh_l0", 1, {2, 0}, zeros}, {"gru.weight_ih_l0", 2, {6, 1}, ih3}, {"gru.weight_hh_l0", 2, {6, 2}, hh3},
                 {"gru.bias_ih_l0", 1, {6, 0}, zeros}, {"gru.bias_hh_l0", 1, {6, 0}, zeros}};
  bppsa_named_view views[8];
  for (int i = 0; i < 8; ++i) {
    views[i] = (bppsa_named_view){
        tensors[i].name, bppsa_view_make((void *)(uintptr_t)tensors[i].values, BPPSA_F64, tensors[i].ndim, tensors[i].shape)};
  }
  assert_int_equal(bppsa_safetensors_save("w.safetensors", 8, views, 0, NULL), BPPSA_OK);
  assert_runs("jacobian rnn --weights w.safetensors --input x.npy --h0 h.npy --dtype f64 --out J.mtx");
  bppsa_csr_matrix j = {0};
  assert_int_equal(bppsa_csr_load("J.mtx", &j), BPPSA_OK);
  assert_int_equal(j.csr.nnz, 4);
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 2; ++k) {
      const double h = tanh(ih[k] * x[0] + hh[2 * k] * h0[0] + hh[2 * k + 1] * h0[1]);
      assert_true(fabs(((const double *)j.values)[2 * i + k] - hh[2 * k + i] * (1 - h * h)) < 1e-15);
    }
  }
  bppsa_csr_matrix_free(&j);
  assert_runs("jacobian gru --weights w.safetensors --input x.npy --out J.mtx"); /* all weights 0: diag(σ(0)) */
  assert_int_equal(bppsa_csr_load("J.mtx", &j), BPPSA_OK);
  assert_memory_equal(j.values, ((double[]){0.5, 0, 0, 0.5}), 4 * sizeof(double));
  bppsa_csr_matrix_free(&j);
  assert_fails(2, "x2.npy: cannot open", "jacobian rnn --weights w.safetensors --input x2.npy");
  assert_fails(2, "--c0: h.npy: an initial cell state for rnn, which has none, expected a cell such as lstm",
               "jacobian rnn --weights w.safetensors --input x.npy --c0 h.npy");
}

/* A pair's Jacobian is 2H x 2H, with c's row of two entries. All weights are 0 but the output gate's: i = f = σ(0), g = 0. */
static void test_step_of_a_pair(void **state) {
  (void)state;
  const double x[] = {0.5}, h0[] = {0.3}, c0[] = {0.8}, w[] = {0, 0, 0, 2}, zeros[4] = {0};
  const bppsa_named_view views[] = {
      {"lstm.weight_ih_l0", bppsa_view_make((void *)(uintptr_t)zeros, BPPSA_F64, 2, (int64_t[]){4, 1})},
      {"lstm.weight_hh_l0", bppsa_view_make((void *)(uintptr_t)w, BPPSA_F64, 2, (int64_t[]){4, 1})},
      {"lstm.bias_ih_l0", bppsa_view_make((void *)(uintptr_t)zeros, BPPSA_F64, 1, (int64_t[]){4})},
      {"lstm.bias_hh_l0", bppsa_view_make((void *)(uintptr_t)zeros, BPPSA_F64, 1, (int64_t[]){4})}};
  put_reals("x.npy", 1, (int64_t[]){1}, x);
  put_reals("h.npy", 1, (int64_t[]){1}, h0);
  put_reals("c.npy", 1, (int64_t[]){1}, c0);
  put_reals("h2.npy", 1, (int64_t[]){2}, zeros);
  assert_int_equal(bppsa_safetensors_save("l.safetensors", 4, views, 0, NULL), BPPSA_OK);
  assert_runs("jacobian lstm --weights l.safetensors --input x.npy --h0 h.npy --c0 c.npy --dtype f64 --out J.mtx --spy J.png");
  const double o = 1 / (1 + exp(-2 * h0[0])), out = tanh(c0[0] / 2), bridge = o * (1 - out * out);
  const double expected[] = {2 * out * o * (1 - o), 0, bridge / 2, 0.5}; /* h to h, h to c, c to h, c to c */
  bppsa_csr_matrix j = {0};
  assert_int_equal(bppsa_csr_load("J.mtx", &j), BPPSA_OK);
  assert_true(j.csr.rows == 2 && j.csr.cols == 2 && j.csr.nnz == 4);
  for (int i = 0; i < 4; ++i) {
    assert_true(fabs(((const double *)j.values)[i] - expected[i]) < 1e-15);
  }
  bppsa_csr_matrix_free(&j);
  assert_runs("train lstm --seq-len 4 --samples 16 --hidden 5 --iterations 1 --save-weights W.safetensors");
  json_t *document = run_json("jacobian lstm --weights W.safetensors --input x.npy --json");
  assert_int_equal(get_integer(document, "rows"), 10);
  assert_int_equal(get_integer(document, "nnz"), 5 * 10 + 5 * 2);
  json_decref(document);
  assert_fails(2, "--c0: h2.npy: shape [2], expected 1 values",
               "jacobian lstm --weights l.safetensors --input x.npy --c0 h2.npy");
}

static void test_requests(void **state) {
  (void)state;
  assert_fails(2, "conv2d: stride 0, expected 1", "jacobian conv2d --in-shape 1,3,3 --out-channels 1 --kernel 1 --stride 0");
  assert_fails(2, "--kernel: missing", "jacobian conv2d --in-shape 1,3,3 --out-channels 1");
  assert_fails(2, "--in-shape: missing", "jacobian relu");
  assert_fails(2, "--in-shape: '3,x'", "jacobian relu --in-shape 3,x");
  assert_fails(2, "--in-shape: '3,'", "jacobian relu --in-shape 3,");
  assert_fails(2, "expected at most 2147483647 values", "jacobian relu --in-shape 1000000,10000,1");
  assert_fails(2, "--padding: three numbers", "jacobian maxpool2d --in-shape 1,4,4 --padding 1,1,1");
  assert_fails(2, "relu: the matrix needs", "jacobian relu --in-shape 2147483647");
  assert_fails(2, "the ending of the name gives the format, expected .npz or .mtx", "jacobian relu --in-shape 3 --out J.csv");
  assert_fails(2, "--out: missing/J.npz: cannot write", "jacobian relu --in-shape 3 --out missing/J.npz");
  assert_fails(2, "no input, expected --input", "jacobian maxpool2d --in-shape 1,4,4 --pattern argmax");
  assert_fails(2, "did you mean conv2d?", "jacobian conv2 --in-shape 3");
  put_reals("w.npy", 4, (int64_t[]){1, 1, 1, 2}, (double[]){2, 5});
  assert_fails(2, "--weights: w.npy: shape [1, 1, 1, 2], expected 6 values",
               "jacobian conv2d --in-shape 1,3,3 --out-channels 3 --weights w.npy");
  assert_fails(2, "--mask: w.npy: 2 values, expected 1", "jacobian linear --in-shape 1 --out-channels 1 --mask w.npy");
  assert_fails(2, "operator missing", "jacobian");
}

/* Every allocation of a command fails once: one line each time, exit 1. */
static void walk_command(const char *line) {
  int code = 1;
  for (int64_t call = 1; code != 0; ++call) {
    bppsa_alloc_fail_at(call);
    run_result result = run("%s", line);
    bppsa_alloc_fail_at(0);
    code = result.code;
    assert_true(code == 0 || code == 1);
    if (code != 0) {
      assert_one_error(&result, "");
    }
    release(&result);
    assert_true(call < 5000);
  }
}

static void test_memory(void **state) {
  (void)state;
  put_reals("w.npy", 4, (int64_t[]){1, 1, 1, 2}, (double[]){2, 5});
  walk_command("jacobian conv2d --in-shape 1,1,3 --weights w.npy --mask w.npy --out J.npz --spy J.png --json");
  put_reals("x.npy", 3, (int64_t[]){1, 2, 2}, (double[]){2, 5, 1, 3});
  walk_command("jacobian maxpool2d --input x.npy --pattern argmax --out J.mtx");
}

/* ---- flops ---- */

static void test_vgg11(void **state) {
  (void)state;
  json_t *d = run_json("flops vgg11 --prune 0 --up-levels 2 --pattern guaranteed --json");
  assert_int_equal(get_integer(d, "elements"), 22);
  static const int64_t levels[] = {11, 5, 4, 4, 10};
  for (size_t i = 0; i < 5; ++i) {
    assert_int_equal(json_integer_value(json_array_get(json_object_get(d, "levels"), i)), levels[i]);
  }
  const json_t *totals = json_object_get(d, "totals"), *steps = json_object_get(d, "steps"),
               *operators = json_object_get(d, "operators");
  assert_int_equal(get_integer(totals, "mm"), 14);
  assert_int_equal(get_integer(totals, "mv"), 20);
  assert_int_equal(json_array_size(steps), 34);
  assert_int_equal(json_array_size(operators), 21);
  int64_t dead = 0, mm_flops = 0, baseline = 0, executed = 0, planned = 0;
  for (size_t i = 0; i < json_array_size(steps); ++i) {
    const json_t *step = json_array_get(steps, i);
    const bool is_dead = json_is_true(json_object_get(step, "dead"));
    dead += is_dead;
    const bool is_run = strcmp(get_text(step, "op"), "mm") == 0 && !is_dead;
    mm_flops += is_run ? get_integer(step, "flops") : 0;
    if (is_run) {
      planned += 1;
      executed += get_integer(step, "executed_flops");
      assert_int_equal(get_integer(step, "pair_flops"), get_integer(step, "flops"));
    }
  }
  for (size_t i = 0; i < 21; ++i) {
    baseline += get_integer(json_array_get(operators, i), "baseline_flops");
  }
  assert_int_equal(dead, 1);
  assert_int_equal(planned, 13);
  assert_int_equal(executed, mm_flops);
  assert_int_equal(mm_flops, get_integer(totals, "mm_flops"));
  assert_int_equal(baseline, get_integer(d, "baseline_flops"));
  assert_true(fabs((double)baseline / 2.3e8 - 1) < 0.02); /* the facts' 2.3e8 */
  assert_non_null(strstr(get_text(d, "dominant"), "[pool3·conv5]·[relu5·conv6]"));
  json_decref(d);
}

static void test_flops(void **state) {
  (void)state;
  walk_command("flops lenet5 --json");
  json_t *d = run_json("flops lenet5 --json --up-levels auto");
  assert_int_equal(get_integer(d, "elements"), 11);
  assert_int_equal(get_integer(json_object_get(d, "automatic"), "critical_flops"),
                   get_integer(json_object_get(d, "totals"), "critical_flops"));
  json_decref(d);
  assert_runs("flops vgg11");
  assert_noted("--up-levels: 99 asked for, 3 used, as there are no more\n", "flops lenet5 --up-levels 99 --input-grad");
  assert_fails(2, "--up-levels: 'two', expected a whole number, 0 or more, auto or none", "flops vgg11 --up-levels two");
  assert_fails(2, "bytes, the memory limit is 1048576", "flops vgg11 --up-levels 2 --memory-limit 1M");
  assert_runs("flops vgg11 --memory-limit 1M");
  assert_fails(2, "--prune: '1.5'", "flops vgg11 --prune 1.5");
  assert_fails(2, "unknown network 'vgg12'", "flops vgg12");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_conv2d), cmocka_unit_test(test_operators),      cmocka_unit_test(test_every_operator),
      cmocka_unit_test(test_step),   cmocka_unit_test(test_step_of_a_pair), cmocka_unit_test(test_requests),
      cmocka_unit_test(test_memory), cmocka_unit_test(test_vgg11),          cmocka_unit_test(test_flops)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
