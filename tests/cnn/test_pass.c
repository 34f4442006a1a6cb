/* The passes of an operator write all of their outputs, nothing beside them, and none of their inputs. */
#include "cnn/pass.h"

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "tests/support/support.h"

/* An array between two margins. */
enum { MARGIN = 64 };
#define MARK 0x5a

typedef struct {
  unsigned char *all;
  int64_t bytes;
} guarded;

/* Numbers, or an output: NaN, of integers -1. */
static guarded make_guarded(int64_t bytes, const void *numbers) {
  const guarded g = {bppsa_alloc((size_t)(bytes + 2 * MARGIN)), bytes};
  assert_non_null(g.all);
  memset(g.all, MARK, (size_t)(bytes + 2 * MARGIN));
  if (numbers != NULL) {
    memcpy(g.all + MARGIN, numbers, (size_t)bytes);
  } else {
    memset(g.all + MARGIN, 0xff, (size_t)bytes);
  }
  return g;
}

static void *inside(const guarded *g) {
  return g->all + MARGIN;
}

static void check_margins(const guarded *g, const char *name, const char *array) {
  for (int i = 0; i < MARGIN; ++i) {
    if (g->all[i] != MARK || g->all[MARGIN + g->bytes + i] != MARK) {
      fail_msg("%s: written beside %s", name, array);
    }
  }
}

static void check_written(const guarded *g, bppsa_dtype dtype, const char *name, const char *array) {
  const int64_t count = g->bytes / (int64_t)bppsa_dtype_size(dtype);
  const bppsa_view view = bppsa_view_make(inside(g), dtype, 1, &count);
  for (int64_t i = 0; i < count; ++i) {
    if (!isfinite(bppsa_view_get(&view, i))) {
      fail_msg("%s: %s is not written at %d", name, array, (int)i);
    }
  }
  check_margins(g, name, array);
}

/* Numbers that a pass has read are what they were: `before` is a copy of all, which is freed. */
static void check_kept(const guarded *g, unsigned char *before, const char *name, const char *array) {
  if (memcmp(g->all, before, (size_t)(g->bytes + 2 * MARGIN)) != 0) {
    fail_msg("%s: writes to its input %s", name, array);
  }
  bppsa_free(before);
}

static unsigned char *copy_of(const guarded *g) {
  unsigned char *copy = bppsa_alloc((size_t)(g->bytes + 2 * MARGIN));
  assert_non_null(copy);
  return memcpy(copy, g->all, (size_t)(g->bytes + 2 * MARGIN));
}

static guarded random_guarded(bppsa_dtype dtype, uint64_t seed, int64_t count) {
  double *wide = uniform(seed, count, 1);
  void *typed = rounded(dtype, wide, count);
  const guarded g = make_guarded(count * (int64_t)bppsa_dtype_size(dtype), typed);
  bppsa_free(wide);
  bppsa_free(typed);
  return g;
}

static void check_operator(const char *name, const bppsa_op *op, bppsa_dtype dtype, int64_t batch, int32_t threads) {
  const int64_t size = (int64_t)bppsa_dtype_size(dtype), weights = bppsa_op_weights(op);
  const bool has_weights = op->kind == BPPSA_OPERATOR_CONV2D || op->kind == BPPSA_OPERATOR_LINEAR;
  bppsa_cnn_layer layer = {.op = *op, .bias = has_weights};
  bppsa_conv conv;
  assert_int_equal(bppsa_op_shape(op, layer.out), BPPSA_OK);
  if (op->kind == BPPSA_OPERATOR_CONV2D) {
    assert_int_equal(bppsa_conv_plan(op, dtype, threads, batch, &conv), BPPSA_OK);
  }
  bppsa_cnn_pass pass = {.about = &layer,
                         .conv = &conv,
                         .dtype = dtype,
                         .threads = threads,
                         .batch = batch,
                         .in = op->in[0] * op->in[1] * op->in[2],
                         .out = layer.out[0] * layer.out[1] * layer.out[2]};
  int64_t room[3] = {0};
  assert_int_equal(bppsa_cnn_pass_room(&pass, &room[0], &room[1], &room[2]), BPPSA_OK);
  const guarded work[3] = {make_guarded(room[0], NULL), make_guarded(room[1], NULL), make_guarded(room[2], NULL)};
  pass.scratch = inside(&work[0]);
  pass.sums = inside(&work[1]);
  pass.transposed = inside(&work[2]);
  const guarded x = random_guarded(dtype, 1, batch * pass.in), dy = random_guarded(dtype, 2, batch * pass.out),
                w = random_guarded(dtype, 3, has_weights ? weights : 1),
                bias = random_guarded(dtype, 4, has_weights ? layer.out[0] : 1);
  const guarded y = make_guarded(batch * pass.out * size, NULL), dx = make_guarded(batch * pass.in * size, NULL),
                places = make_guarded(batch * pass.out * (int64_t)sizeof(int32_t), NULL);
  unsigned char *const x_before = copy_of(&x), *const dy_before = copy_of(&dy), *const w_before = copy_of(&w),
                       *const bias_before = copy_of(&bias);
  bppsa_cnn_pass_forward(&pass, inside(&x), inside(&w), inside(&bias), inside(&places), inside(&y));
  check_written(&y, dtype, name, "y");
  check_margins(&places, name, "places");
  for (int64_t i = 0; op->kind == BPPSA_OPERATOR_MAXPOOL2D && i < batch * pass.out; ++i) {
    assert_in_range(((const int32_t *)inside(&places))[i], 0, op->in[1] * op->in[2] - 1);
  }
  unsigned char *const y_before = copy_of(&y);
  bppsa_cnn_pass_input_gradient(&pass, inside(&dy), inside(&w), inside(&x), inside(&y), inside(&places), inside(&dx));
  check_written(&dx, dtype, name, "dx");
  if (has_weights) {
    const guarded dw = make_guarded(weights * size, NULL), db = make_guarded(layer.out[0] * size, NULL);
    bppsa_cnn_pass_weight_gradient(&pass, inside(&dy), inside(&x), inside(&dw), inside(&db));
    check_written(&dw, dtype, name, "dw");
    check_written(&db, dtype, name, "db");
    bppsa_free(dw.all);
    bppsa_free(db.all);
  }
  check_kept(&x, x_before, name, "x");
  check_kept(&dy, dy_before, name, "dy");
  check_kept(&w, w_before, name, "w");
  check_kept(&bias, bias_before, name, "b");
  check_kept(&y, y_before, name, "y");
  const guarded others[] = {x, dy, w, bias, y, work[0], work[1], work[2]};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; ++i) {
    check_margins(&others[i], name, "an array of a pass");
    bppsa_free(others[i].all);
  }
  bppsa_free(dx.all);
  bppsa_free(places.all);
}

/* Extents that no vector, strip or tile divides. */
static void test_outputs(void **state) {
  (void)state;
  static const struct {
    const char *name;
    bppsa_operator kind;
    int64_t in[3], out_channels, kernel, stride, padding, groups;
  } cases[] = {{"relu", BPPSA_OPERATOR_RELU, {3, 5, 7}, 0, 1, 1, 0, 1},
               {"leaky_relu", BPPSA_OPERATOR_LEAKY_RELU, {3, 5, 7}, 0, 1, 1, 0, 1},
               {"tanh", BPPSA_OPERATOR_TANH, {3, 5, 7}, 0, 1, 1, 0, 1},
               {"sigmoid", BPPSA_OPERATOR_SIGMOID, {3, 5, 7}, 0, 1, 1, 0, 1},
               {"flatten", BPPSA_OPERATOR_FLATTEN, {3, 5, 7}, 0, 1, 1, 0, 1},
               {"relu6", BPPSA_OPERATOR_RELU6, {3, 5, 7}, 0, 1, 1, 0, 1},
               {"hardsigmoid", BPPSA_OPERATOR_HARDSIGMOID, {3, 5, 7}, 0, 1, 1, 0, 1},
               {"hardswish", BPPSA_OPERATOR_HARDSWISH, {3, 5, 7}, 0, 1, 1, 0, 1},
               {"silu", BPPSA_OPERATOR_SILU, {3, 5, 7}, 0, 1, 1, 0, 1},
               {"gelu", BPPSA_OPERATOR_GELU, {3, 5, 7}, 0, 1, 1, 0, 1},
               {"adaptive_avgpool2d", BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D, {3, 5, 7}, 0, 1, 1, 0, 1},
               {"global_avgpool", BPPSA_OPERATOR_GLOBAL_AVGPOOL, {3, 5, 7}, 0, 1, 1, 0, 1},
               {"dropout", BPPSA_OPERATOR_DROPOUT, {3, 5, 7}, 0, 1, 1, 0, 1},
               {"maxpool2d", BPPSA_OPERATOR_MAXPOOL2D, {3, 7, 9}, 0, 3, 2, 1, 1},
               {"maxpool2d of pairs", BPPSA_OPERATOR_MAXPOOL2D, {2, 8, 6}, 0, 2, 2, 0, 1},
               {"maxpool2d of pairs, odd", BPPSA_OPERATOR_MAXPOOL2D, {2, 5, 9}, 0, 2, 2, 0, 1},
               {"maxpool2d of pairs, wide", BPPSA_OPERATOR_MAXPOOL2D, {1, 3, 301}, 0, 2, 2, 0, 1},
               {"maxpool2d of pairs, high", BPPSA_OPERATOR_MAXPOOL2D, {1, 301, 3}, 0, 2, 2, 0, 1},
               {"avgpool2d", BPPSA_OPERATOR_AVGPOOL2D, {3, 7, 9}, 0, 3, 2, 1, 1},
               {"avgpool2d, apart", BPPSA_OPERATOR_AVGPOOL2D, {2, 9, 7}, 0, 2, 3, 0, 1},
               {"conv2d", BPPSA_OPERATOR_CONV2D, {3, 9, 7}, 5, 3, 1, 1, 1},
               {"conv2d, strides", BPPSA_OPERATOR_CONV2D, {3, 11, 7}, 5, 3, 2, 0, 1},
               {"conv2d, groups", BPPSA_OPERATOR_CONV2D, {6, 5, 7}, 9, 3, 1, 1, 3},
               {"conv2d, pointwise", BPPSA_OPERATOR_CONV2D, {7, 5, 5}, 3, 1, 1, 0, 1},
               {"linear", BPPSA_OPERATOR_LINEAR, {3, 5, 3}, 7, 1, 1, 0, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bppsa_op op = bppsa_op_default(cases[i].kind);
    memcpy(op.in, cases[i].in, sizeof op.in);
    op.out_channels = cases[i].out_channels;
    op.groups = cases[i].groups;
    op.slope = 0.1;
    for (int axis = 0; axis < 2; ++axis) {
      op.kernel[axis] = cases[i].kernel;
      op.stride[axis] = cases[i].stride;
      op.padding[2 * axis] = op.padding[2 * axis + 1] = cases[i].padding;
    }
    for (int variant = 0; variant < 4; ++variant) {
      check_operator(cases[i].name, &op, variant % 2 == 0 ? BPPSA_F32 : BPPSA_F64, 1 + variant, variant / 2 == 0 ? 1 : 3);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_outputs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
