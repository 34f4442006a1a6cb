/* Generators against Jacobians computed row by row of Jᵀ from the forward operator alone: f(e_i) if f is linear, exact
 * differences for ReLU and pools on integers, central differences for the others. */
#include <stdio.h>
#include <string.h>

#include "jacobian/jacobian.h"
#include "jacobian/network_ops.h"
#include "tests/core/helpers.h"
#include "tests/jacobian/problems.h"
#include "tests/support/support.h"

enum { CONFIGURATIONS = 4000 };

/* Row i of Jᵀ of sample b. */
static void reference_row(problem *p, int64_t b, int64_t i, double *x, double *plus, double *row) {
  const bppsa_operator kind = p->f.op.kind;
  const bool linear = kind == BPPSA_OPERATOR_CONV2D || kind == BPPSA_OPERATOR_LINEAR || bppsa_op_is_mean(&p->f.op) ||
                      kind == BPPSA_OPERATOR_BATCHNORM2D || bppsa_op_is_identity(&p->f.op);
  const bool kinks = kind == BPPSA_OPERATOR_RELU || kind == BPPSA_OPERATOR_LEAKY_RELU || kind == BPPSA_OPERATOR_MAXPOOL2D;
  p->f.x = p->arrays[4] + b * p->f.inputs;
  if (linear) {
    memset(x, 0, (size_t)p->ins * sizeof *x);
    x[i] = 1;
    forward_run(&p->f, x, row);
    return;
  }
  const double step = kinks ? 0.25 : 1e-5, back = kinks ? 0 : step;
  memcpy(x, p->x + b * p->ins, (size_t)p->ins * sizeof *x);
  x[i] += step;
  forward_run(&p->f, x, plus);
  x[i] = p->x[b * p->ins + i] - back;
  forward_run(&p->f, x, row);
  for (int64_t k = 0; k < p->outs; ++k) {
    row[k] = isfinite(row[k]) ? (plus[k] - row[k]) / (step + back) : 0; /* the window contains no value */
  }
}

/* Does output k depend on input i at all? An input larger than all others changes the largest value of every window it is in. */
static void seen_row(problem *p, int64_t i, double *x, double *row) {
  for (int64_t k = 0; k < p->ins; ++k) {
    x[k] = k == i ? 1 : 0;
  }
  forward_run(&p->f, x, row);
  for (int64_t k = 0; k < p->outs; ++k) {
    row[k] = row[k] == 1; /* neither 0 nor the value of an empty window */
  }
}

static double get(bppsa_dtype dtype, const void *values, int64_t i) {
  return dtype == BPPSA_F32 ? (double)((const float *)values)[i] : ((const double *)values)[i];
}

/* Checks that the row of the pattern has exactly the entries of `exact` that are not 0, with the values of `row`. */
static void check_row(const problem *p, const bppsa_csr *csr, const void *values, int64_t i, const double *exact,
                      const double *row, bool strict, double tolerance) {
  int64_t at = csr->row_ptr[i];
  for (int64_t k = 0; k < p->outs; ++k) {
    const bool there = at < csr->row_ptr[i + 1] && csr->col[at] == k;
    if (strict ? there != (exact[k] != 0) : !there && fabs(row[k]) > tolerance) {
      fail_msg("%s: entry (%lld, %lld) is %s the pattern", bppsa_op_name(&p->f.op), (long long)i, (long long)k,
               there ? "in" : "not in");
    }
    if (there && !(fabs(get(p->dtype, values, at) - row[k]) <= tolerance)) {
      fail_msg("%s: entry (%lld, %lld) is %.9g, expected %.9g", bppsa_op_name(&p->f.op), (long long)i, (long long)k,
               get(p->dtype, values, at), row[k]);
    }
    at += there;
  }
  assert_int_equal(at, csr->row_ptr[i + 1]);
}

static void check_values(problem *p, const bppsa_csr *csr, const void *values, bool shared) {
  const bppsa_operator kind = p->f.op.kind;
  const bool smooth = is_cell(&p->f.op) || kind == BPPSA_OPERATOR_TANH || kind == BPPSA_OPERATOR_SIGMOID || is_activation(kind);
  const bool strict = !smooth && kind != BPPSA_OPERATOR_RELU; /* a finite difference is rarely 0 by chance */
  double *x = uniform(1, p->ins, 1), *plus = uniform(1, p->outs, 1), *row = uniform(1, p->outs, 1),
         *exact = uniform(1, p->outs, 1);
  for (int64_t b = 0; b < (shared ? 1 : p->batch); ++b) {
    const void *sample = (const char *)values + (size_t)(b * csr->nnz) * bppsa_dtype_size(p->dtype);
    for (int64_t i = 0; i < p->ins; ++i) {
      reference_row(p, b, i, x, plus, row);
      memcpy(exact, row, (size_t)p->outs * sizeof *row);
      if (kind == BPPSA_OPERATOR_MAXPOOL2D) {
        seen_row(p, i, x, exact);
      }
      const double rounding = bppsa_op_is_mean(&p->f.op) ? 1e-7 : 0;
      check_row(p, csr, sample, i, exact, row, strict, smooth ? 1e-6 : rounding);
    }
  }
  bppsa_free(x);
  bppsa_free(plus);
  bppsa_free(row);
  bppsa_free(exact);
}

typedef struct {
  int64_t nnz, empty_rows;
} outline;

static outline check_problem(problem *p, const bppsa_device *device) {
  bppsa_jacobian *j = NULL;
  assert_int_equal(bppsa_jacobian_create(&p->f.op, p->weights > 0 ? p->mask : NULL, false, device, &j), BPPSA_OK);
  const bppsa_csr *csr = bppsa_jacobian_pattern(j);
  assert_int_equal(csr->rows, p->ins);
  assert_int_equal(csr->cols, p->outs);
  assert_int_equal(bppsa_csr_check(csr), BPPSA_OK);
  const bool shared = bppsa_jacobian_shared(j);
  void *values = bppsa_alloc((size_t)(csr->nnz * (shared ? 1 : p->batch)) * sizeof(double) + 1);
  const bppsa_jacobian_operands operands = operands_of(p, false);
  assert_int_equal(bppsa_jacobian_fill(j, p->dtype, &operands, values), BPPSA_OK);
  check_values(p, csr, values, shared);
  if (p->mask == NULL || p->weights == 0) { /* the structure alone counts the same */
    bppsa_jacobian *symbolic = NULL;
    bppsa_op_size size;
    assert_int_equal(bppsa_op_count(&p->f.op, &size), BPPSA_OK);
    assert_int_equal(size.entries, csr->nnz);
    assert_int_equal(bppsa_jacobian_create(&p->f.op, NULL, true, device, &symbolic), BPPSA_OK);
    const bool listed = is_cell(&p->f.op) && p->f.op.step->pair; /* a pattern that has no blocks of one kind */
    assert_true((bppsa_jacobian_pattern(symbolic)->row_ptr != NULL) == listed);
    assert_int_equal(bppsa_jacobian_pattern(symbolic)->nnz, csr->nnz);
    assert_int_equal(bppsa_jacobian_pattern(symbolic)->cols, csr->cols);
    bppsa_jacobian_destroy(symbolic);
  }
  outline o = {.nnz = csr->nnz};
  for (int64_t r = 0; r < csr->rows; ++r) {
    o.empty_rows += csr->row_ptr[r] == csr->row_ptr[r + 1];
  }
  bppsa_free(values);
  bppsa_jacobian_destroy(j);
  return o;
}

static void test_random(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  int64_t kinds[OPERATORS] = {0}, no_batch = 0, one_value = 0, empty_rows = 0, no_entries = 0;
  for (uint64_t i = 0; i < CONFIGURATIONS; ++i) {
    stream s = {.seed = 1000 + i};
    problem p = make_problem(&s);
    kinds[number_of(&p.f.op)] += 1;
    const outline o = check_problem(&p, device);
    no_batch += p.batch == 0;
    one_value += p.ins == 1 || p.outs == 1;
    empty_rows += o.empty_rows > 0;
    no_entries += o.nnz == 0;
    free_problem(&p);
  }
  for (int k = 0; k < OPERATORS; ++k) {
    assert_true(kinds[k] > CONFIGURATIONS / (3 * OPERATORS));
  }
  assert_true(no_batch > 400 && one_value > 100 && empty_rows > 300 && no_entries > 50); /* the degenerate cases have occurred */
  bppsa_device_destroy(device);
}

/* Large enough for several tasks, threads and streaming stores: 3x3 and 1x1 convolutions, a linear operator, a 2x2 pool, a 7x7
 * convolution. */
static void test_large(void **state) {
  (void)state;
  bppsa_device *one = cpu_device(1), *two = cpu_device(2);
  static const bppsa_operator what[5] = {BPPSA_OPERATOR_CONV2D, BPPSA_OPERATOR_CONV2D, BPPSA_OPERATOR_LINEAR,
                                         BPPSA_OPERATOR_MAXPOOL2D, BPPSA_OPERATOR_CONV2D};
  static const int64_t kernels[5] = {3, 1, 1, 2, 7};
  for (int i = 0; i < 5; ++i) {
    bppsa_op one_op = bppsa_op_default(what[i]), *op = &one_op;
    memcpy(op->in, (int64_t[]){i == 2 ? 700 : 70, i == 2 ? 1 : 16, i == 2 ? 1 : 14}, sizeof op->in);
    op->out_channels = i == 2 ? 130 : 30;
    op->kernel[0] = op->kernel[1] = kernels[i];
    op->stride[0] = op->stride[1] = i == 3 ? 2 : 1;
    op->padding[0] = op->padding[1] = op->padding[2] = op->padding[3] = i == 0 || i == 4;
    const int64_t ins = op->in[0] * op->in[1] * op->in[2];
    double *x = uniform(3, ins, 1), *w = uniform(4, bppsa_op_weights(op), 1);
    const bppsa_jacobian_operands operands = {.batch = 1, .weights = w, .input = x};
    bppsa_jacobian *j = NULL, *k = NULL;
    assert_int_equal(bppsa_jacobian_create(op, NULL, false, one, &j), BPPSA_OK);
    assert_int_equal(bppsa_jacobian_create(op, NULL, false, two, &k), BPPSA_OK);
    const bppsa_csr *csr = bppsa_jacobian_pattern(j);
    assert_true(bppsa_csr_same(csr, bppsa_jacobian_pattern(k)));
    double *a = uniform(1, csr->nnz, 1), *b = uniform(2, csr->nnz, 1);
    assert_int_equal(bppsa_jacobian_fill(j, BPPSA_F64, &operands, a), BPPSA_OK);
    assert_int_equal(bppsa_jacobian_fill(k, BPPSA_F64, &operands, b), BPPSA_OK);
    assert_memory_equal(a, b, (size_t)csr->nnz * sizeof *a);
    forward_op f = {.op = *op, .weights = w};
    assert_int_equal(bppsa_op_shape(op, f.out), BPPSA_OK);
    double *out = uniform(5, csr->cols, 1),
           *sum = bppsa_calloc(csr->cols, sizeof *sum); /* f(x) = J x where f is linear, and for max */
    forward_run(&f, x, out);
    for (int64_t r = 0; r < csr->rows; ++r) {
      for (int64_t p = csr->row_ptr[r]; p < csr->row_ptr[r + 1]; ++p) {
        sum[csr->col[p]] += a[p] * x[r];
      }
    }
    for (int64_t c = 0; c < csr->cols; ++c) {
      assert_true(fabs(sum[c] - out[c]) < 1e-11);
    }
    bppsa_free(x);
    bppsa_free(w);
    bppsa_free(a);
    bppsa_free(b);
    bppsa_free(out);
    bppsa_free(sum);
    bppsa_jacobian_destroy(j);
    bppsa_jacobian_destroy(k);
  }
  bppsa_device_destroy(one);
  bppsa_device_destroy(two);
}

/* The facts' table: rows, columns and entries of VGG-11's 21 operators on 3 x 32 x 32. */
static void test_vgg11(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int64_t rows, cols, nnz;
    double megabytes;
  } table[21] = {{"conv1", 3072, 65536, 1696512, 13.584},    {"relu1", 65536, 65536, 65536, 0.786},
                 {"pool1", 65536, 16384, 65536, 0.786},      {"conv2", 16384, 32768, 17334272, 138.740},
                 {"relu2", 32768, 32768, 32768, 0.393},      {"pool2", 32768, 8192, 32768, 0.393},
                 {"conv3", 8192, 16384, 15859712, 126.910},  {"relu3", 16384, 16384, 16384, 0.197},
                 {"conv4", 16384, 16384, 31719424, 253.821}, {"relu4", 16384, 16384, 16384, 0.197},
                 {"pool3", 16384, 4096, 16384, 0.197},       {"conv5", 4096, 8192, 13107200, 104.874},
                 {"relu5", 8192, 8192, 8192, 0.098},         {"conv6", 8192, 8192, 26214400, 209.748},
                 {"relu6", 8192, 8192, 8192, 0.098},         {"pool4", 8192, 2048, 8192, 0.098},
                 {"conv7", 2048, 2048, 4194304, 33.563},     {"relu7", 2048, 2048, 2048, 0.025},
                 {"conv8", 2048, 2048, 4194304, 33.563},     {"relu8", 2048, 2048, 2048, 0.025},
                 {"pool5", 2048, 512, 2048, 0.025}};
  bppsa_device *device = cpu_device(2);
  bppsa_named_op ops[BPPSA_NETWORK_OPS];
  int64_t count = 0, total = 0;
  assert_int_equal(bppsa_network_table("vgg11", ops, &count), BPPSA_OK);
  assert_int_equal(count, 21);
  for (int64_t i = 0; i < count; ++i) {
    for (int symbolic = 0; symbolic < 2; ++symbolic) {
      bppsa_jacobian *j = NULL;
      assert_int_equal(bppsa_jacobian_create(&ops[i].op, NULL, symbolic == 1, device, &j), BPPSA_OK);
      const bppsa_csr *csr = bppsa_jacobian_pattern(j);
      assert_string_equal(ops[i].name, table[i].name);
      assert_int_equal(csr->rows, table[i].rows);
      assert_int_equal(csr->cols, table[i].cols);
      assert_int_equal(csr->nnz, table[i].nnz);
      assert_true(fabs((double)bppsa_csr_bytes(csr, BPPSA_F32) / 1e6 - table[i].megabytes) < 0.0006);
      if (symbolic == 0) {
        assert_int_equal(bppsa_csr_check(csr), BPPSA_OK);
        total += csr->nnz;
      }
      bppsa_jacobian_destroy(j);
    }
  }
  assert_int_equal(total, 114596608);
  assert_int_equal(bppsa_network_table("vgg12", ops, &count), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_network_table("lenet5", ops, &count), BPPSA_OK);
  assert_int_equal(count, 10);
  assert_string_equal(ops[6].name, "fc1");
  assert_int_equal(ops[6].op.in[0] * ops[6].op.in[1] * ops[6].op.in[2], 400);
  bppsa_device_destroy(device);
}

/* Where no derivative exists the value is PyTorch's: 0 and NaN in ReLUs, ties and NaN in pools. */
static void test_kinks(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  const double nan = NAN, inf = INFINITY;
  const struct {
    bppsa_operator kind;
    double x[4], y[4];
  } cases[] = {{BPPSA_OPERATOR_RELU, {0, -0.0, nan, -inf}, {0, 0, 1, 0}},
               {BPPSA_OPERATOR_LEAKY_RELU, {0, nan, inf, -1}, {0.01, 0.01, 1, 0.01}},
               {BPPSA_OPERATOR_RELU6, {0, 6, nan, inf}, {0, 0, 0, 0}},
               {BPPSA_OPERATOR_RELU6, {-0.0, 1e-300, -inf, 5.5}, {0, 1, 0, 1}},
               {BPPSA_OPERATOR_HARDSIGMOID, {-3, 3, nan, 0}, {0, 0, 0, 1.0 / 6}},
               {BPPSA_OPERATOR_HARDSIGMOID, {-inf, inf, 2, -2.5}, {0, 0, 1.0 / 6, 1.0 / 6}},
               {BPPSA_OPERATOR_HARDSWISH, {-3, 3, -4, inf}, {-0.5, 1, 0, 1}},
               {BPPSA_OPERATOR_SILU, {0, -1e4, 1e4, -800}, {0.5, 0, 1, 0}},
               {BPPSA_OPERATOR_GELU, {0, -1e4, 1e200, -50}, {0.5, 0, 1, 0}},
               {BPPSA_OPERATOR_MAXPOOL2D, {1, 2, 2, 2}, {0, 1, 0, 0}},
               {BPPSA_OPERATOR_MAXPOOL2D, {-inf, -inf, -inf, -inf}, {1, 0, 0, 0}},
               {BPPSA_OPERATOR_MAXPOOL2D, {nan, 3, nan, 9}, {0, 0, 1, 0}},
               {BPPSA_OPERATOR_MAXPOOL2D, {nan, 3, inf, 9}, {1, 0, 0, 0}},
               {BPPSA_OPERATOR_MAXPOOL2D, {5, 3, inf, nan}, {0, 0, 0, 1}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    for (int padded = 0; padded < 2; ++padded) { /* the general pool, and the one of 2 x 2 windows */
      bppsa_op op = bppsa_op_default(cases[i].kind);
      op.in[1] = op.in[2] = op.kernel[0] = op.kernel[1] = op.stride[0] = op.stride[1] = 2;
      op.stride[0] += padded;
      bppsa_jacobian *j = NULL;
      assert_int_equal(bppsa_jacobian_create(&op, NULL, false, device, &j), BPPSA_OK);
      double values[4];
      const bppsa_jacobian_operands operands = {.batch = 1, .input = cases[i].x};
      assert_int_equal(bppsa_jacobian_fill(j, BPPSA_F64, &operands, values), BPPSA_OK);
      assert_memory_equal(values, cases[i].y, sizeof values);
      bppsa_jacobian_destroy(j);
    }
  }
  bppsa_device_destroy(device);
}

/* The argmax pattern is the window pattern without its zeros. */
static void test_compact(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_MAXPOOL2D);
  memcpy(op.in, (int64_t[]){2, 5, 5}, sizeof op.in);
  op.kernel[0] = op.kernel[1] = 3;
  bppsa_jacobian *j = NULL;
  assert_int_equal(bppsa_jacobian_create(&op, NULL, false, device, &j), BPPSA_OK);
  const bppsa_csr *csr = bppsa_jacobian_pattern(j);
  double *x = uniform(1, csr->rows, 1), *values = uniform(2, csr->nnz, 1);
  const bppsa_jacobian_operands operands = {.batch = 1, .input = x};
  assert_int_equal(bppsa_jacobian_fill(j, BPPSA_F64, &operands, values), BPPSA_OK);
  bppsa_csr compact = {0};
  void *ones = NULL;
  assert_int_equal(bppsa_csr_compact(csr, BPPSA_F64, values, &compact, &ones), BPPSA_OK);
  assert_int_equal(compact.nnz, compact.cols); /* every window has one largest value */
  assert_int_equal(bppsa_csr_check(&compact), BPPSA_OK);
  for (int64_t p = 0; p < compact.nnz; ++p) {
    assert_true(((const double *)ones)[p] == 1);
  }
  bppsa_free(x);
  bppsa_free(values);
  bppsa_free(ones);
  bppsa_csr_free(&compact);
  bppsa_jacobian_destroy(j);
  bppsa_device_destroy(device);
}

static void refused(bppsa_op op, bppsa_status status, const char *message) {
  int64_t out[3];
  assert_int_equal(bppsa_op_shape(&op, out), status);
  assert_message(message);
}

static void test_requests(void **state) {
  (void)state;
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_CONV2D), bad = op;
  bad.stride[1] = 0;
  refused(bad, BPPSA_ERR_ARGUMENT, "conv2d: stride 0, expected 1");
  bad = op;
  bad.kernel[0] = 3;
  refused(bad, BPPSA_ERR_SHAPE, "conv2d: kernel 3 with dilation 1 covers more than the 1 positions and 0 of padding");
  bad = op; /* more taps than the generator names */
  bad.kernel[0] = bad.kernel[1] = 10000;
  bad.padding[0] = bad.padding[2] = 10000;
  bppsa_jacobian *none = NULL;
  bppsa_device *single = cpu_device(1);
  assert_int_equal(bppsa_jacobian_create(&bad, NULL, false, single, &none), BPPSA_ERR_SHAPE);
  assert_message("conv2d: 100000000 taps, expected at most 67108864");
  bppsa_device_destroy(single);
  bad = op;
  bad.in[0] = 0;
  refused(bad, BPPSA_ERR_SHAPE, "conv2d: input [0, 1, 1], expected extents of 1 or more");
  bad = op;
  memcpy(bad.in, (int64_t[]){1, 65536, 32768}, sizeof bad.in);
  refused(bad, BPPSA_ERR_SHAPE, "expected at most 2147483647 values");
  bad = op;
  memcpy(bad.in, (int64_t[]){1, 50000, 1}, sizeof bad.in);
  bad.out_channels = 50000;
  refused(bad, BPPSA_ERR_SHAPE, "conv2d: output [50000, 50000, 1], expected at most 2147483647 values");
  bad = op;
  bad.groups = 2;
  refused(bad, BPPSA_ERR_ARGUMENT, "conv2d: 2 groups of 1 input and 1 output channels");
  bad = bppsa_op_default(BPPSA_OPERATOR_MAXPOOL2D);
  bad.padding[0] = 1;
  refused(bad, BPPSA_ERR_ARGUMENT, "maxpool2d: padding 1, expected at most half the kernel of 1");
  bppsa_operator kind;
  assert_int_equal(bppsa_operator_parse("conv3d", &kind), BPPSA_ERR_ARGUMENT);
  bppsa_device *device = cpu_device(1);
  bppsa_jacobian *j = NULL;
  const uint8_t mask[1] = {1};
  bppsa_op relu = bppsa_op_default(BPPSA_OPERATOR_RELU);
  assert_int_equal(bppsa_jacobian_create(&relu, mask, false, device, &j), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_jacobian_create(&op, NULL, false, device, &j), BPPSA_OK);
  float value;
  assert_int_equal(bppsa_jacobian_fill(j, BPPSA_F32, &(bppsa_jacobian_operands){.batch = 1}, &value), BPPSA_ERR_ARGUMENT);
  assert_message("conv2d: operand 'weights' is missing");
  assert_int_equal(bppsa_jacobian_fill(j, BPPSA_I64, &(bppsa_jacobian_operands){.batch = 1}, &value), BPPSA_ERR_UNSUPPORTED);
  bppsa_jacobian_destroy(j);
  bppsa_device_destroy(device);
}

static bppsa_status create_once(void *argument) {
  const creation *c = argument;
  bppsa_jacobian *j = NULL;
  BPPSA_TRY(bppsa_jacobian_create(&c->op, c->mask, false, c->device, &j));
  bppsa_csr copy = {0};
  const bppsa_status status = bppsa_csr_copy(bppsa_jacobian_pattern(j), &copy);
  bppsa_csr_free(&copy);
  bppsa_jacobian_destroy(j);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  walk_creations(device, create_once);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random),  cmocka_unit_test(test_large),    cmocka_unit_test(test_vgg11), cmocka_unit_test(test_kinks),
      cmocka_unit_test(test_compact), cmocka_unit_test(test_requests), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
