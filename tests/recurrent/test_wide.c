/* Wide layers on a device: the sequential passes in one launch each (recurrent/gpu/wide_kernels.cuh), and what runs in their place
 * where the device has no room for them. BPPSA_TEST_DEVICE names the device. */
#include <stdlib.h>

#include "core/compute/graph.h"
#include "tests/recurrent/device_problem.h"

enum { LARGE = 100 }; /* layers above are tested without their weight gradients */

static const way by_bp = {BPPSA_BACKWARD_BP, BPPSA_SCAN_AUTO, 0}, by_linear = {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_LINEAR, 0};

/* Every size that a kernel is made for, and sizes that are padded to one. */
static const device_shape shapes[] = {{7, 3, 2, 1, 33, 2, LOSS_ALL | INPUTS | H0 | RELU},
                                      {5, 1, 1, 3, 64, 1, INPUTS},
                                      {4, 2, 2, 1, 100, 1, LOSS_ALL | H0},
                                      {4, 2, 2, 1, 128, 1, H0},
                                      {3, 1, 1, 2, 200, 1, H0 | RELU},
                                      {3, 2, 1, 1, 256, 1, 0},
                                      {3, 1, 1, 1, 257, 1, H0 | RELU},
                                      {2, 1, 1, 1, 511, 1, H0},
                                      {3, 1, 1, 1, 512, 1, H0}};

static problem problem_of(const device_shape *s, const bppsa_cell *cell, bppsa_dtype dtype) {
  problem p = shaped_problem(cell, s, dtype);
  p.init = s->hidden > LARGE ? BPPSA_INIT_DEFAULT : BPPSA_INIT_ORTHOGONAL; /* which takes H^3 operations */
  return p;
}

/* States, and gradients of states: of large layers alone, because an emulation takes long for those of weights. */
static void check_states(problem *p, const bppsa_recurrent_config *config) {
  bppsa_recurrent_config exact = *config;
  bppsa_model *model = NULL;
  const int64_t b = p->batch, x[] = {config->seq_len, b, config->input}, h0[] = {1, b, state_size(p)};
  const int64_t seeds[] = {b, config->hidden};
  const way w = by_bp;
  exact.dtype = BPPSA_F64;
  assert_int_equal(create(p, config, device, &model), BPPSA_OK);
  assert_int_equal(create(p, &exact, host, &p->reference), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(model, p->init, 1), BPPSA_OK);
  share_weights(p, model);
  double *seed = uniform(9, b * config->hidden, 1);
  bppsa_free(rounded(config->dtype, seed, b * config->hidden));
  bppsa_view got, expected;
  for (int k = 0; k < 2; ++k) { /* the device, then the reference */
    const bppsa_device *on = k == 0 ? device : host;
    bppsa_model *m = k == 0 ? model : p->reference;
    bppsa_view in = put(on, m->dtype, p->x, 3, x), first = put(on, m->dtype, p->h0, 3, h0),
               last = put(on, m->dtype, seed, 2, seeds);
    assert_int_equal(bppsa_recurrent_forward_layers(m, &in, p->state ? &first : NULL), BPPSA_OK);
    assert_int_equal(bppsa_recurrent_hidden_gradients(m, &last, k == 0 ? &got : &expected), BPPSA_OK);
    bppsa_memory_free(on, in.data);
    bppsa_memory_free(on, first.data);
    bppsa_memory_free(on, last.data);
  }
  check(p, &w, "gradients of states", &got, expected.data);
  assert_int_equal(bppsa_recurrent_states(model, 0, &got), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_states(p->reference, 0, &expected), BPPSA_OK);
  check(p, &w, "states", &got, expected.data);
  bppsa_free(seed);
  bppsa_model_destroy(model);
  bppsa_model_destroy(p->reference);
}

static void check_shape(const device_shape *s, const bppsa_cell *cell, bppsa_dtype dtype, const way *w) {
  problem p = problem_of(s, cell, dtype);
  make_numbers(&p, (uint64_t)s->hidden);
  if (s->hidden <= LARGE) {
    check_way(&p, w);
  } else {
    p.config.method.backward = w->backward;
    p.config.method.scan.algorithm = w->algorithm;
    check_states(&p, &p.config);
  }
  free_numbers(&p);
}

static void check_shapes(const bppsa_cell *cell, bppsa_dtype dtype) {
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; ++s) {
    check_shape(&shapes[s], cell, dtype, &by_bp);
  }
  check_shape(&shapes[0], cell, dtype, &by_linear);
}

static void test_rnn_f32(void **state) {
  (void)state;
  check_shapes(&bppsa_rnn_cell, BPPSA_F32);
}

static void test_rnn_f64(void **state) {
  (void)state;
  check_shapes(&bppsa_rnn_cell, BPPSA_F64);
}

static void test_gru_f32(void **state) {
  (void)state;
  check_shapes(&bppsa_gru_cell, BPPSA_F32);
}

static void test_gru_f64(void **state) {
  (void)state;
  check_shapes(&bppsa_gru_cell, BPPSA_F64);
}

static void test_lstm_f32(void **state) {
  (void)state;
  check_shapes(&bppsa_lstm_cell, BPPSA_F32);
}

static void test_lstm_f64(void **state) {
  (void)state;
  check_shapes(&bppsa_lstm_cell, BPPSA_F64);
}

/* Gradients neither vanish nor explode over many steps of an orthogonal W_hh, so that a number which arrives a step too early or
 * too late shows in all that follow. */
static void test_long(void **state) {
  (void)state;
  const device_shape s = {.hidden = 40, .steps = 60, .planned = 1, .batch = 1, .input = 1, .layers = 1, .has = LOSS_ALL};
  for (size_t k = 0; k < sizeof cells / sizeof *cells; ++k) {
    check_shape(&s, cells[k], BPPSA_F32, &by_bp);
  }
}

/* Every step moves the gradient's only numbers to units of other blocks, doubles them, and cancels what they leave behind: all of
 * it exactly. */
static void test_moving(void **state) {
  (void)state;
  enum { STEPS = 9, BY = 197 };
  static const struct {
    int64_t hidden;
    bppsa_dtype dtype;
  } sizes[] = {{257, BPPSA_F32}, {300, BPPSA_F64}, {512, BPPSA_F32}};
  for (int i = 0; i < 2 * 3; ++i) {
    const int64_t hidden = sizes[i / 2].hidden;
    double *jacobian = bppsa_calloc(hidden * hidden, sizeof *jacobian), *seed = bppsa_calloc(hidden, sizeof *seed);
    int64_t redone;
    assert_true(jacobian != NULL && seed != NULL);
    for (int64_t j = 0; j < hidden; ++j) {
      jacobian[j * hidden + (j + BY) % hidden] = 2;
    }
    seed[3] = 1;
    seed[hidden - 1] = -3;
    double *got = hidden_gradients(i % 2, device, sizes[i / 2].dtype, &by_bp, STEPS, hidden, jacobian, seed, &redone);
    for (int64_t s = 0; s < STEPS; ++s) {
      for (int64_t j = 0; j < hidden; ++j) {
        const double expected = ldexp(seed[j], (int)s), found = got[(STEPS - 1 - s) * hidden + (j + s * BY) % hidden];
        if (found != expected) {
          fail_msg("%s, H %d, %d steps back, unit %d: %g, expected %g", i % 2 != 0 ? "gru" : "rnn", (int)hidden, (int)s, (int)j,
                   found, expected);
        }
      }
    }
    void *const blocks[] = {jacobian, seed, got};
    for (size_t k = 0; k < sizeof blocks / sizeof *blocks; ++k) {
      bppsa_free(blocks[k]);
    }
  }
}

typedef struct {
  bppsa_model *model;
  const bppsa_view *x, *seed;
} queued;

static bppsa_status queue_forward(void *context) {
  const queued *q = context;
  return bppsa_recurrent_forward_layers(q->model, q->x, NULL);
}

static bppsa_status queue_backward(void *context) {
  const queued *q = context;
  return bppsa_recurrent_backward_layers(q->model, q->seed);
}

/* The launches of a pass. */
static int64_t nodes_of(bppsa_status (*queue)(void *context), queued *q) {
  bppsa_graph *graph = NULL;
  assert_int_equal(bppsa_graph_capture(device, queue, q, &graph), BPPSA_OK);
  const int64_t nodes = bppsa_graph_nodes(graph);
  bppsa_graph_destroy(device, graph);
  return nodes;
}

static void count_nodes(int64_t hidden, const bppsa_cell *cell, bppsa_dtype dtype, int64_t nodes[2]) {
  const device_shape s = {.hidden = hidden, .steps = 9, .planned = 1, .batch = 1, .input = 1, .layers = 1};
  problem p = problem_of(&s, cell, dtype);
  bppsa_model *model = NULL;
  p.config.method.backward = BPPSA_BACKWARD_BP;
  make_numbers(&p, 3);
  assert_int_equal(create(&p, &p.config, device, &model), BPPSA_OK);
  double *seed = uniform(4, hidden, 1);
  bppsa_view x = put(device, dtype, p.x, 3, (int64_t[]){s.steps, 1, 1}),
             from = put(device, dtype, seed, 2, (int64_t[]){1, hidden});
  queued q = {model, &x, &from};
  nodes[0] = nodes_of(queue_forward, &q);
  nodes[1] = nodes_of(queue_backward, &q);
  bppsa_memory_free(device, x.data);
  bppsa_memory_free(device, from.data);
  bppsa_model_destroy(model);
  bppsa_free(seed);
  free_numbers(&p);
}

/* A recorded pass has a launch for all its steps, beside h0's, the products with inputs, and two a weight gradient; of a pair also
 * c0's, 0 for the last gradient of c, and the seed's beside it. A device whose clusters or shared memory are too small, or which
 * has no clusters, and a layer that no kernel takes, run as many as their scans have. */
static void test_launches(void **state) {
  (void)state;
  if (!is_emulated(device)) { /* another device may have no clusters */
    skip();
  }
  static const struct {
    int64_t hidden;
    const char *cluster; /* NULL: as large as may be */
    int cell;
    bool one;
    bppsa_dtype dtype;
  } cases[] = {{33, "1", RNN, true, BPPSA_F32},    {64, "1", GRU, true, BPPSA_F64},    {128, "1", RNN, true, BPPSA_F64},
               {128, "1", GRU, false, BPPSA_F32},  {128, "2", GRU, true, BPPSA_F32},   {256, "1", RNN, false, BPPSA_F32},
               {256, "8", RNN, true, BPPSA_F32},   {256, "8", GRU, true, BPPSA_F32},   {256, "8", GRU, false, BPPSA_F64},
               {257, "8", RNN, true, BPPSA_F32},   {257, "8", GRU, false, BPPSA_F32},  {300, NULL, GRU, true, BPPSA_F32},
               {384, NULL, GRU, true, BPPSA_F64},  {385, NULL, GRU, false, BPPSA_F64}, {512, NULL, GRU, true, BPPSA_F32},
               {512, NULL, RNN, true, BPPSA_F64},  {512, "8", RNN, false, BPPSA_F64},  {513, NULL, RNN, false, BPPSA_F32},
               {64, "1", LSTM, true, BPPSA_F32},   {64, "1", LSTM, true, BPPSA_F64},   {128, "2", LSTM, true, BPPSA_F32},
               {128, "2", LSTM, false, BPPSA_F64}, {128, "4", LSTM, true, BPPSA_F64},  {256, "8", LSTM, true, BPPSA_F32},
               {512, NULL, LSTM, true, BPPSA_F32}, {257, NULL, LSTM, false, BPPSA_F64}};
  int64_t nodes[2];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    set_most("SIMT_MOST_CLUSTER", cases[i].cluster);
    count_nodes(cases[i].hidden, cells[cases[i].cell], cases[i].dtype, nodes);
    set_most("SIMT_MOST_CLUSTER", NULL);
    const int pair = cells[cases[i].cell]->pair;
    if (nodes[0] != (cases[i].one ? 3 : 4) + pair || (nodes[1] == 5 + 2 * pair) != cases[i].one) {
      fail_msg("case %d: H %d: %d and %d launches", (int)i, (int)cases[i].hidden, (int)nodes[0], (int)nodes[1]);
    }
  }
  set_most("SIMT_MOST_SHARED", NULL);
  count_nodes(384, cells[GRU], BPPSA_F64, nodes);
  set_most("SIMT_MOST_SHARED", LARGE_SHARED);
  assert_true(nodes[0] == 4 && nodes[1] != 5);
}

/* What runs where no kernel of wide layers does. */
static void test_fallback(void **state) {
  (void)state;
  static const device_shape s[] = {
      {3, 2, 2, 2, 70, 1, LOSS_ALL | INPUTS | H0}, {3, 1, 1, 1, 130, 1, H0}, {2, 1, 1, 1, 513, 1, H0}};
  set_most("SIMT_MOST_CLUSTER", "1");
  for (size_t i = 0; i < 3 * (sizeof s / sizeof *s); ++i) {
    check_shape(&s[i / 3], cells[i % 3], i % 2 != 0 ? BPPSA_F32 : BPPSA_F64, &by_bp);
  }
  set_most("SIMT_MOST_CLUSTER", NULL);
}

int main(void) {
  set_most("SIMT_MOST_SHARED", LARGE_SHARED);
  device = test_device(2);
  host = cpu_device(2);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rnn_f32),  cmocka_unit_test(test_rnn_f64),
                                     cmocka_unit_test(test_gru_f32),  cmocka_unit_test(test_gru_f64),
                                     cmocka_unit_test(test_lstm_f32), cmocka_unit_test(test_lstm_f64),
                                     cmocka_unit_test(test_long),     cmocka_unit_test(test_moving),
                                     cmocka_unit_test(test_launches), cmocka_unit_test(test_fallback)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  bppsa_device_destroy(host);
  return failed;
}
