/* Fills against fills: the values of every operator have the same bits on the tested device as on one CPU thread with any
 * instruction set. If one value is NaN, the other is too. test_generators.c checks that the values are right. */
#include <stdlib.h>
#include <string.h>

#include "core/compute/graph.h"
#include "core/compute/memory.h"
#include "core/compute/simd.h"
#include "tests/core/helpers.h"
#include "tests/jacobian/problems.h"
#include "tests/support/support.h"

static double get(bppsa_dtype dtype, const void *values, int64_t i) {
  return dtype == BPPSA_F32 ? (double)((const float *)values)[i] : ((const double *)values)[i];
}

static void put(bppsa_dtype dtype, void *values, int64_t i, double value) {
  if (dtype == BPPSA_F32) {
    ((float *)values)[i] = (float)value;
  } else {
    ((double *)values)[i] = value;
  }
}

/* ---- one fill ---- */

/* The operands of a problem in the device's memory. */
typedef struct {
  void *arrays[8];
  bppsa_jacobian_operands o;
} moved;

static moved move(const problem *p, const bppsa_device *device, const bppsa_jacobian_operands *o) {
  const int64_t size = (int64_t)bppsa_dtype_size(p->dtype), gates = is_cell(&p->f.op) ? p->f.op.step->gates : 1,
                h = bppsa_op_units(&p->f.op);
  const int64_t inputs = p->batch * (is_cell(&p->f.op) ? p->f.inputs : p->ins);
  moved m = {.o = *o};
  m.o.weights = m.arrays[0] = on_device(device, o->weights, p->weights * size);
  m.o.input = m.arrays[1] = on_device(device, o->input, inputs * size);
  m.o.output = m.arrays[2] = on_device(device, o->output, p->batch * p->ins * size);
  m.o.state = m.arrays[3] = on_device(device, o->state, p->batch * p->ins * size);
  m.o.weights_ih = m.arrays[4] = on_device(device, o->weights_ih, gates * h * p->f.inputs * size);
  m.o.bias_ih = m.arrays[5] = on_device(device, o->bias_ih, gates * h * size);
  m.o.bias_hh = m.arrays[6] = on_device(device, o->bias_hh, gates * h * size);
  m.o.scale = m.arrays[7] = on_device(device, o->scale, o->scale == NULL ? 0 : p->f.op.in[0] * size);
  return m;
}

static void free_moved(moved *m, const bppsa_device *device) {
  for (int i = 0; i < 8; ++i) {
    bppsa_memory_free(device, m->arrays[i]);
  }
}

static void assert_same_values(const problem *p, int64_t count, const void *found, const void *expected) {
  const size_t size = bppsa_dtype_size(p->dtype);
  for (int64_t i = 0; i < count; ++i) {
    const double a = get(p->dtype, found, i), b = get(p->dtype, expected, i);
    if (memcmp((const char *)found + (size_t)i * size, (const char *)expected + (size_t)i * size, size) != 0 &&
        !(isnan(a) && isnan(b))) {
      fail_msg("%s %s: value %lld of %lld is %a, expected %a", bppsa_op_name(&p->f.op), bppsa_dtype_name(p->dtype), (long long)i,
               (long long)count, a, b);
    }
  }
}

/* Fills on the device, `shift` reals behind the beginning of its memory, and compares; memory beside the values must not change. */
static void check_fill(const problem *p, const bppsa_device *device, bool from_output, int64_t shift, const void *expected,
                       int64_t count) {
  const int64_t size = (int64_t)bppsa_dtype_size(p->dtype), room = count + shift + 1;
  bppsa_jacobian *j = NULL;
  assert_int_equal(bppsa_jacobian_create(&p->f.op, p->weights > 0 ? p->mask : NULL, false, device, &j), BPPSA_OK);
  const bppsa_jacobian_operands operands = operands_of(p, from_output);
  moved m = move(p, device, &operands);
  char *host = bppsa_calloc(room, (size_t)size), *values = NULL;
  memset(host, 0x5a, (size_t)(room * size));
  values = on_device(device, host, room * size);
  const int64_t calls = bppsa_alloc_live();
  assert_int_equal(bppsa_jacobian_fill(j, p->dtype, &m.o, values + shift * size), BPPSA_OK);
  assert_int_equal(bppsa_alloc_live(), calls);
  assert_int_equal(bppsa_memory_get(device, host, values, room * size), BPPSA_OK);
  assert_same_values(p, count, host + shift * size, expected);
  for (int64_t i = 0; i < room * size; ++i) {
    assert_true((i >= shift * size && i < (shift + count) * size) || host[i] == 0x5a);
  }
  bppsa_free(host);
  bppsa_memory_free(device, values);
  free_moved(&m, device);
  bppsa_jacobian_destroy(j);
}

/* Computes values by one thread with the portable kernels, and then on the device. */
static void check_problem(const problem *p, const bppsa_device *one, const bppsa_device *device, bool from_output,
                          int64_t shift) {
  bppsa_jacobian *j = NULL;
  assert_int_equal(bppsa_jacobian_create(&p->f.op, p->weights > 0 ? p->mask : NULL, false, one, &j), BPPSA_OK);
  const int64_t count = bppsa_jacobian_pattern(j)->nnz * (bppsa_jacobian_shared(j) ? 1 : p->batch);
  void *expected = bppsa_calloc(count, sizeof(double));
  const bppsa_jacobian_operands operands = operands_of(p, from_output);
  assert_int_equal(bppsa_simd_select("portable"), BPPSA_OK);
  assert_int_equal(bppsa_jacobian_fill(j, p->dtype, &operands, expected), BPPSA_OK);
  static const char *const names[] = {"auto", "avx2"};
  for (int i = 0; i < (bppsa_device_get_kind(device) == BPPSA_CPU ? 2 : 1); ++i) {
    if (bppsa_simd_select(names[i]) == BPPSA_OK) {
      check_fill(p, device, from_output, shift, expected, count);
    }
  }
  assert_int_equal(bppsa_simd_select("auto"), BPPSA_OK);
  bppsa_free(expected);
  bppsa_jacobian_destroy(j);
}

/* ---- random operators ---- */

/* Makes about one in `rare` of an array's values special: NaN, infinity, zero, a copy of its neighbour, tiny or huge. */
static void make_special(stream *s, problem *p, void *array, int64_t count, int64_t rare) {
  const double special[] = {NAN, INFINITY, -INFINITY, 0, -0.0, 0, 1e-310, 1e-41, 1e30, -30};
  for (int64_t i = 0; i < count; ++i) {
    if (below(s, rare) == 0) {
      const int64_t k = below(s, 10);
      put(p->dtype, array, i, k == 5 && i > 0 ? get(p->dtype, array, i - 1) : special[k]);
    }
  }
}

static void test_random(void **state) {
  (void)state;
  bppsa_device *one = cpu_device(1), *device = test_device(2);
  const uint64_t configurations = is_emulated(device) ? 1000 : 2000;
  int64_t kinds[OPERATORS] = {0}, no_batch = 0, masked = 0;
  for (uint64_t i = 0; i < configurations; ++i) {
    stream s = {.seed = 5000 + i};
    problem p = make_problem(&s);
    const bool smooth = p.f.op.kind == BPPSA_OPERATOR_TANH || p.f.op.kind == BPPSA_OPERATOR_SIGMOID;
    if (i % 3 == 0) {
      make_special(&s, &p, p.typed[5], p.batch * p.ins, 4);
      make_special(&s, &p, p.typed[0], p.weights, 8);
      make_special(&s, &p, p.typed[4], p.batch * p.f.inputs, 8);
    }
    if (number_of(&p.f.op) == LSTM && bppsa_device_get_kind(device) == BPPSA_CUDA) {
      bppsa_jacobian *j = NULL;
      assert_int_equal(bppsa_jacobian_create(&p.f.op, p.mask, false, device, &j), BPPSA_ERR_UNSUPPORTED);
      assert_string_equal(bppsa_last_error(), "lstm: the cell's step has no kernels for a GPU, expected device cpu");
    } else {
      check_problem(&p, one, device, smooth && i % 2 == 0, below(&s, 3));
    }
    kinds[number_of(&p.f.op)] += 1;
    no_batch += p.batch == 0;
    masked += p.weights > 0 && p.mask != NULL;
    free_problem(&p);
  }
  for (int k = 0; k < OPERATORS; ++k) {
    assert_true(kinds[k] > (int64_t)configurations / (3 * OPERATORS));
  }
  assert_true(no_batch > (int64_t)configurations / 6 && masked > (int64_t)configurations / 6);
  bppsa_device_destroy(one);
  bppsa_device_destroy(device);
}

/* ---- chosen operators ---- */

typedef struct {
  int number; /* of the operator */
  int64_t in[3], out, kernel, stride, dilation, padding, groups, batch;
  int mask; /* one of so many weights is kept; 0: no mask */
} shape;

static problem problem_of(stream *s, const shape *c, bppsa_dtype dtype) {
  problem p = {.batch = c->batch, .dtype = dtype};
  bppsa_op *op = &p.f.op;
  *op = op_numbered(c->number);
  memcpy(op->in, c->in, sizeof op->in);
  op->out_channels = c->out;
  op->groups = c->groups;
  for (int i = 0; i < 2; ++i) {
    op->kernel[i] = c->kernel;
    op->stride[i] = c->stride;
    op->dilation[i] = c->dilation;
    op->padding[2 * i] = op->padding[2 * i + 1] = c->padding;
  }
  assert_int_equal(bppsa_op_shape(op, p.f.out), BPPSA_OK);
  p.ins = op->in[0] * op->in[1] * op->in[2];
  p.outs = p.f.out[0] * p.f.out[1] * p.f.out[2];
  p.x = make_input(s, op, p.batch, p.ins);
  p.scale = NULL;
  p.typed[5] = rounded(dtype, p.x, p.batch * p.ins);
  make_weights(s, &p);
  bppsa_free(p.mask);
  p.mask = c->mask > 0 ? bppsa_calloc(p.weights, 1) : NULL;
  for (int64_t i = 0; p.mask != NULL && i < p.weights; ++i) {
    p.mask[i] = below(s, c->mask) == 0;
  }
  return p;
}

/* Cases for which random operators are too small: every way to choose a convolution's blocks, several tiles of a step, planes and
 * packs that do not fill the last block. */
static const shape shapes[] = {
    /* rows of 36 values and several segments of 17 x 16 positions; with a mask */
    {BPPSA_OPERATOR_CONV2D, {12, 17, 16}, 12, 3, 1, 1, 1, 1, 1, 0},
    {BPPSA_OPERATOR_CONV2D, {12, 17, 16}, 12, 3, 1, 1, 1, 1, 1, 3},
    /* 7 x 7 with stride: four classes in the middle; 301 columns: more than one chunk, no packs */
    {BPPSA_OPERATOR_CONV2D, {2, 15, 14}, 301, 7, 2, 1, 3, 1, 1, 0},
    /* chunks of packs; groups; dilation */
    {BPPSA_OPERATOR_CONV2D, {6, 5, 6}, 600, 3, 1, 2, 2, 2, 1, 0},
    {BPPSA_OPERATOR_CONV2D, {6, 5, 6}, 600, 3, 1, 2, 2, 2, 1, 30},
    {BPPSA_OPERATOR_CONV2D, {16, 9, 9}, 32, 5, 1, 1, 2, 16, 1, 0}, /* depthwise */
    {BPPSA_OPERATOR_CONV2D, {2, 3, 3}, 8, 56, 1, 1, 40, 1, 1, 0},  /* too many taps to stage */
    {BPPSA_OPERATOR_CONV2D, {130, 2, 2}, 140, 3, 1, 1, 1, 1, 1, 0},
    {BPPSA_OPERATOR_CONV2D, {130, 2, 2}, 140, 3, 1, 1, 1, 1, 1, 2},
    {BPPSA_OPERATOR_LINEAR, {700, 1, 1}, 132, 1, 1, 1, 0, 1, 1, 0},
    {BPPSA_OPERATOR_LINEAR, {70, 3, 1}, 301, 1, 1, 1, 0, 1, 1, 0},
    {BPPSA_OPERATOR_LINEAR, {70, 3, 1}, 301, 1, 1, 1, 0, 1, 1, 5},
    {BPPSA_OPERATOR_MAXPOOL2D, {5, 20, 34}, 1, 2, 2, 1, 0, 1, 3, 0},
    {BPPSA_OPERATOR_MAXPOOL2D, {5, 21, 33}, 1, 3, 2, 1, 1, 1, 3, 0},
    {BPPSA_OPERATOR_AVGPOOL2D, {7, 21, 33}, 1, 3, 2, 1, 1, 1, 3, 0},
    {BPPSA_OPERATOR_GLOBAL_AVGPOOL, {7, 21, 33}, 1, 1, 1, 1, 0, 1, 3, 0},
    {BPPSA_OPERATOR_TANH, {31, 7, 11}, 1, 1, 1, 1, 0, 1, 3, 0},
    {RNN, {70, 1, 1}, 1, 1, 1, 1, 0, 1, 11, 0},
    {GRU, {70, 1, 1}, 1, 1, 1, 1, 0, 1, 11, 0},
    {GRU, {70, 1, 1}, 1, 1, 1, 1, 0, 1, 3, 6},
    {GRU, {40, 1, 1}, 1, 1, 1, 1, 0, 1, 3300, 9}, /* more samples than `factors` has room for */
};

static void test_shapes(void **state) {
  (void)state;
  bppsa_device *one = cpu_device(1), *device = test_device(2);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
    for (int64_t shift = 0; shift < 2; ++shift) {
      stream s = {.seed = 90 + i};
      problem p = problem_of(&s, &shapes[i], (i + (size_t)shift) % 2 == 0 ? BPPSA_F32 : BPPSA_F64);
      check_problem(&p, one, device, false, shift);
      free_problem(&p);
    }
  }
  bppsa_device_destroy(one);
  bppsa_device_destroy(device);
}

/* ---- a step of a cell that the library does not know ---- */

/* d = 1/2, e = h_{-1}: Jᵀ = Wᵀ / 2 + diag(h_{-1}) */
static void half_factors(bool relu, const double *x, const double *h, double before, double *d) {
  (void)relu, (void)x, (void)h;
  d[0] = 0.5;
  d[1] = before;
}

static const bppsa_step half = {.name = "half", .gates = 1, .diagonal = true, .factors_f64 = half_factors};

static void test_invented_step(void **state) {
  (void)state;
  bppsa_device *host = cpu_device(1), *device = test_device(1);
  bppsa_jacobian *j = NULL;
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_STEP);
  const double w[] = {1, 2, 3, 4}, before[] = {5, 6}, zero[2] = {0}, expected[] = {0.5 + 5, 1.5, 1, 2 + 6};
  const bppsa_jacobian_operands operands = {.batch = 1, .weights = w, .state = before, .bias_ih = zero, .bias_hh = zero};
  double values[4];
  op.in[0] = 2;
  assert_int_equal(bppsa_jacobian_create(&op, NULL, false, host, &j), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "step: no cell, expected a cell's step of 1 .. 8 gates");
  bppsa_step pair = half;
  pair.pair = true;
  op.step = &pair;
  op.in[0] = 3;
  assert_int_equal(bppsa_jacobian_create(&op, NULL, false, host, &j), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "half: a state of 3 numbers, expected pairs (h, c) and a diagonal");
  pair.diagonal = false;
  op.in[0] = 2;
  assert_int_equal(bppsa_jacobian_create(&op, NULL, false, host, &j), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "half: a state of 2 numbers, without a diagonal, expected pairs (h, c) and a diagonal");
  op.step = &half;
  op.in[1] = 3;
  assert_int_equal(bppsa_jacobian_create(&op, NULL, false, host, &j), BPPSA_ERR_SHAPE);
  assert_string_equal(bppsa_last_error(), "half: state 2 x 3 x 1, expected a vector H, 1, 1");
  op.in[1] = 1;
  assert_int_equal(bppsa_jacobian_create(&op, NULL, false, host, &j), BPPSA_OK);
  assert_int_equal(bppsa_jacobian_fill(j, BPPSA_F64, &operands, values), BPPSA_OK);
  assert_memory_equal(values, expected, sizeof expected);
  assert_int_equal(bppsa_jacobian_fill(j, BPPSA_F32, &operands, values), BPPSA_ERR_UNSUPPORTED);
  assert_string_equal(bppsa_last_error(), "half: the cell's step has no factors in f32");
  bppsa_jacobian_destroy(j);
  if (bppsa_device_get_kind(device) == BPPSA_CUDA) {
    assert_int_equal(bppsa_jacobian_create(&op, NULL, false, device, &j), BPPSA_ERR_UNSUPPORTED);
    assert_string_equal(bppsa_last_error(), "half: the cell's step has no kernels for a GPU, expected device cpu");
  }
  bppsa_device_destroy(device);
  bppsa_device_destroy(host);
}

/* ---- recorded ---- */

typedef struct {
  bppsa_jacobian *j;
  bppsa_jacobian_operands o;
  void *values;
} recorded;

static bppsa_status fill_recorded(void *context) {
  const recorded *r = context;
  return bppsa_jacobian_fill(r->j, BPPSA_F32, &r->o, r->values);
}

/* Recorded fills read their operands when they are replayed, and every replay gives the same values. */
static void test_graph(void **state) {
  (void)state;
  bppsa_device *device = test_device(1), *one = cpu_device(1);
  if (bppsa_device_get_kind(device) == BPPSA_CPU) {
    bppsa_device_destroy(one);
    bppsa_device_destroy(device);
    skip();
  }
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += 3) {
    stream s = {.seed = 200 + i};
    problem p = problem_of(&s, &shapes[i], BPPSA_F32);
    const bppsa_jacobian_operands operands = operands_of(&p, false);
    moved m = move(&p, device, &operands);
    recorded r = {.o = m.o}, host = {.o = operands};
    bppsa_graph *graph = NULL;
    assert_int_equal(bppsa_jacobian_create(&p.f.op, p.weights > 0 ? p.mask : NULL, false, device, &r.j), BPPSA_OK);
    assert_int_equal(bppsa_jacobian_create(&p.f.op, p.weights > 0 ? p.mask : NULL, false, one, &host.j), BPPSA_OK);
    const int64_t count = bppsa_jacobian_pattern(r.j)->nnz * (bppsa_jacobian_shared(r.j) ? 1 : p.batch);
    assert_int_equal(bppsa_memory_alloc(device, 4 * count, &r.values), BPPSA_OK);
    assert_int_equal(bppsa_graph_capture(device, fill_recorded, &r, &graph), BPPSA_OK);
    assert_true(bppsa_graph_nodes(graph) >= 1 && bppsa_graph_nodes(graph) <= 4);
    host.values = bppsa_calloc(count, 4);
    float *found = bppsa_calloc(count, 4);
    for (int replay = 0; replay < 2; ++replay) { /* with other inputs and weights the second time */
      make_special(&s, &p, p.typed[5], p.batch * p.ins, replay == 0 ? 1000 : 2);
      make_special(&s, &p, p.typed[0], p.weights, replay == 0 ? 1000 : 2);
      assert_int_equal(bppsa_memory_put(device, is_cell(&p.f.op) ? m.arrays[3] : m.arrays[1], p.typed[5], 4 * p.batch * p.ins),
                       BPPSA_OK);
      assert_int_equal(bppsa_memory_put(device, m.arrays[0], p.typed[0], 4 * p.weights), BPPSA_OK);
      assert_int_equal(fill_recorded(&host), BPPSA_OK);
      assert_int_equal(bppsa_graph_launch(device, graph), BPPSA_OK);
      assert_int_equal(bppsa_memory_get(device, found, r.values, 4 * count), BPPSA_OK);
      assert_same_values(&p, count, found, host.values);
    }
    bppsa_graph_destroy(device, graph);
    bppsa_free(found);
    bppsa_free(host.values);
    bppsa_memory_free(device, r.values);
    free_moved(&m, device);
    bppsa_jacobian_destroy(r.j);
    bppsa_jacobian_destroy(host.j);
    free_problem(&p);
  }
  bppsa_device_destroy(one);
  bppsa_device_destroy(device);
}

/* ---- memory, wrong requests ---- */

static bppsa_status create_once(void *argument) {
  const creation *c = argument;
  bppsa_jacobian *j = NULL;
  BPPSA_TRY(bppsa_jacobian_create(&c->op, c->mask, false, c->device, &j));
  bppsa_jacobian_destroy(j);
  return BPPSA_OK;
}

static void test_memory(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  const bool gpu = bppsa_device_get_kind(device) == BPPSA_CUDA;
  int64_t before = 0, after = 0;
  assert_true(!gpu || bppsa_memory_available(device, &before) == BPPSA_OK);
  walk_creations(device, create_once);
  if (gpu && is_emulated(device)) { /* other programs may use a real GPU */
    assert_int_equal(bppsa_memory_available(device, &after), BPPSA_OK);
    assert_int_equal(after, before);
  }
  bppsa_device_destroy(device);
}

static int64_t available(const bppsa_device *device) {
  int64_t bytes = 0;
  assert_true(!is_emulated(device) || bppsa_memory_available(device, &bytes) == BPPSA_OK);
  return bytes;
}

/* The bytes of GPU memory that a generator reports are those that creating it takes and destroying it frees. This is exact on an
 * emulated GPU; on a real one other programs may take memory, which also comes in larger pieces. A symbolic generator, and one on
 * a CPU, report 0. */
static void test_device_bytes(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  const bool gpu = bppsa_device_get_kind(device) == BPPSA_CUDA, emulated = is_emulated(device);
  int64_t holding = 0;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
    stream s = {.seed = 300 + i};
    problem p = problem_of(&s, &shapes[i], BPPSA_F32);
    for (int way = 0; way < 3; ++way) { /* masked, whole, symbolic */
      bppsa_jacobian *j = NULL;
      const int64_t before = available(device);
      assert_int_equal(bppsa_jacobian_create(&p.f.op, way == 0 && p.weights > 0 ? p.mask : NULL, way == 2, device, &j), BPPSA_OK);
      const int64_t bytes = bppsa_jacobian_device_bytes(j);
      assert_true(bytes == 0 || (bytes > 0 && gpu && way < 2));
      assert_int_equal(before - available(device), emulated ? bytes : 0);
      holding += bytes > 0;
      bppsa_jacobian_destroy(j);
      assert_int_equal(available(device), before);
    }
    free_problem(&p);
  }
  assert_true(gpu ? holding > 8 : holding == 0);
  bppsa_device_destroy(device);
}

static void test_requests(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_TANH);
  bppsa_jacobian *j = NULL;
  float value;
  assert_int_equal(bppsa_jacobian_create(&op, NULL, false, device, &j), BPPSA_OK);
  assert_int_equal(bppsa_jacobian_fill(j, BPPSA_F32, &(bppsa_jacobian_operands){.batch = 1}, &value), BPPSA_ERR_ARGUMENT);
  assert_message("tanh: operand 'input' is missing");
  assert_int_equal(bppsa_jacobian_fill(j, BPPSA_I64, &(bppsa_jacobian_operands){.batch = 1}, &value), BPPSA_ERR_UNSUPPORTED);
  assert_int_equal(bppsa_jacobian_fill(j, BPPSA_F32, &(bppsa_jacobian_operands){.batch = 0}, NULL), BPPSA_OK);
  bppsa_jacobian_destroy(j);
  j = NULL;
  assert_int_equal(bppsa_jacobian_create(&op, NULL, true, device, &j), BPPSA_OK);
  assert_int_equal(bppsa_jacobian_fill(j, BPPSA_F32, &(bppsa_jacobian_operands){.batch = 0}, NULL), BPPSA_ERR_ARGUMENT);
  assert_message("a symbolic generator");
  bppsa_jacobian_destroy(j);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),  cmocka_unit_test(test_invented_step),
                                     cmocka_unit_test(test_shapes),  cmocka_unit_test(test_graph),
                                     cmocka_unit_test(test_memory),  cmocka_unit_test(test_device_bytes),
                                     cmocka_unit_test(test_requests)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
