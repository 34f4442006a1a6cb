/* Samples of their own lengths, and dropout, on a device against the processor's sequential BP in float64, for every way a device
 * computes them, in one direction and in both. What stands behind a sample's end is not read. BPPSA_TEST_DEVICE names it. */
#include "core/compute/graph.h"
#include "tests/recurrent/device_problem.h"
#include "tests/support/length.h"

static const way ways[] = {{BPPSA_BACKWARD_BP, BPPSA_SCAN_AUTO, 0},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, 3},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_BLELLOCH, 0},
                           {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_LINEAR, 0}};

/* As in test_directions_device.c: one step and one unit, inputs of size 1, sums within the walks, and layers wider than a warp. */
static const device_shape shapes[] = {{1, 1, 1, 1, 1, 1, INPUTS | H0},
                                      {2, 3, 2, 1, 20, 1, H0},
                                      {21, 5, 5, 1, 20, 2, LOSS_ALL | INPUTS | H0},
                                      {17, 4, 4, 5, 8, 1, INPUTS | NO_BIAS},
                                      {13, 3, 3, 1, 7, 3, H0 | BOTH_WAYS},
                                      {12, 4, 3, 2, 32, 2, LOSS_ALL | BOTH_WAYS},
                                      {9, 3, 3, 3, 40, 2, INPUTS | H0 | NO_BIAS},
                                      {11, 4, 4, 3, 9, 2, INPUTS | H0 | BOTH_WAYS},
                                      {10, 3, 3, 1, 37, 2, LOSS_ALL | INPUTS | H0 | BOTH_WAYS},
                                      {14, 4, 4, 3, 9, 2, LOSS_ALL | INPUTS | H0 | BOTH_WAYS}};
enum { SHAPES = sizeof shapes / sizeof *shapes, WAYS = sizeof ways / sizeof *ways, MOST = 5 };

static const int64_t samples[MOST] = {70, 3, 41, 12, 5};

/* The first sample has one step, the second one all, the others some, two of them equally many. */
static void make_lengths(int64_t steps, int64_t lengths[MOST]) {
  const int64_t some = steps > 2 ? steps / 2 : 1;
  const int64_t made[MOST] = {1, steps, some, some, steps > 3 ? steps - 1 : 1};
  memcpy(lengths, made, sizeof made);
}

static void spoil(const problem *p, double *values, int64_t width) {
  for (int64_t i = 0; i < p->config.seq_len * p->batch * width; ++i) {
    values[i] = i / width / p->batch < p->lengths[i / width % p->batch] ? values[i] : (double)NAN;
  }
}

static void check_numbers(problem *p, const way *w, uint64_t seed) {
  make_numbers(p, seed);
  if (p->lengths != NULL) {
    spoil(p, p->x, p->config.input);
    if (p->config.loss_all) {
      spoil(p, p->seed, p->config.classes);
    }
  }
  check_way(p, w);
  free_numbers(p);
}

static void check_shapes(bppsa_dtype dtype, bool lengths, double dropout) {
  for (int i = 0; i < 3 * SHAPES; ++i) {
    int64_t made[MOST];
    problem p = shaped_problem(cells[i % 3], &shapes[i / 3], dtype);
    make_lengths(p.config.seq_len, made);
    p.config.lengths = lengths;
    p.lengths = lengths ? made : NULL;
    p.config.dropout = dropout;
    p.config.dropout_seed = 99;
    p.samples = dropout > 0 ? samples : NULL;
    if (!lengths && p.config.layers == 1) {
      continue; /* nothing is dropped */
    }
    for (int w = 0; w < WAYS; ++w) {
      if ((i % 3 == RNN && dtype == BPPSA_F64 && (!lengths || dropout == 0)) ||
          w == (i / 3 + i) % WAYS) { /* otherwise one way a shape */
        if (is_drawn(3)) {
          check_numbers(&p, &ways[w], 10 * (uint64_t)i);
        }
      }
    }
  }
}

static void test_lengths_f32(void **state) {
  (void)state;
  check_shapes(BPPSA_F32, true, 0);
}

static void test_lengths_f64(void **state) {
  (void)state;
  check_shapes(BPPSA_F64, true, 0);
}

static void test_dropout(void **state) {
  (void)state;
  check_shapes(BPPSA_F32, false, 0.4);
  check_shapes(BPPSA_F64, false, 0.4);
}

static void test_both(void **state) {
  (void)state;
  check_shapes(BPPSA_F64, true, 0.25);
}

/* Without a head: the outputs are the states, or each sample's last ones, and the seed is their gradient. A network that takes
 * lengths, and is given none. */
static void test_outputs(void **state) {
  (void)state;
  for (int i = 0; i < 6 * WAYS; ++i) {
    int64_t made[MOST];
    problem p = shaped_problem(cells[i % 3], &shapes[i / 3 % SHAPES], BPPSA_F64);
    make_lengths(p.config.seq_len, made);
    p.config.lengths = true;
    p.lengths = i % 4 == 3 ? NULL : made;
    p.config.no_head = i % 2 == 0;
    p.config.classes = p.config.no_head ? (p.config.bidirectional ? 2 : 1) * p.config.hidden : 3;
    if (is_drawn(2)) {
      check_numbers(&p, &ways[i % WAYS], 7 + (uint64_t)i);
    }
  }
}

/* ---- recorded passes ---- */

typedef struct {
  problem p;
  bppsa_model *model;
  bppsa_view x, seed;
  int64_t *lengths, *samples; /* page-locked */
} recorded;

static bppsa_status queue(void *context) {
  recorded *r = context;
  bppsa_view logits;
  BPPSA_TRY(bppsa_model_forward(r->model, &r->x, NULL, &(bppsa_spans){.lengths = r->lengths}, &logits));
  return r->model->ops->backward(r->model, &r->seed);
}

/* A recorded pass goes by the lengths, samples and step that stand in the caller's memory when it is replayed. */
static void test_replay(void **state) {
  (void)state;
  const way bp = ways[0];
  const bool records = bppsa_device_get_kind(device) == BPPSA_CUDA; /* a processor runs the passes */
  int64_t made[MOST];
  recorded r = {.p = shaped_problem(cells[GRU], &shapes[9], BPPSA_F64)};
  problem *p = &r.p;
  bppsa_graph *graph = NULL;
  p->config.lengths = true;
  p->config.dropout = 0.5;
  p->config.method.backward = BPPSA_BACKWARD_BP;
  p->state = false;
  make_numbers(p, 3);
  assert_int_equal(create(p, &p->config, device, &r.model), BPPSA_OK);
  assert_int_equal(create(p, &p->config, host, &p->reference), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(r.model, BPPSA_INIT_DEFAULT, 5), BPPSA_OK);
  share_weights(p, r.model);
  assert_int_equal(bppsa_memory_alloc_staging(device, MOST * (int64_t)sizeof *made, (void **)&r.lengths), BPPSA_OK);
  assert_int_equal(bppsa_memory_alloc_staging(device, MOST * (int64_t)sizeof *made, (void **)&r.samples), BPPSA_OK);
  r.x = put(device, BPPSA_F64, p->x, 3, (int64_t[]){p->config.seq_len, p->batch, p->config.input});
  r.seed = put(device, BPPSA_F64, p->seed, 3, (int64_t[]){p->config.seq_len, p->batch, p->config.classes});
  bppsa_view x = bppsa_view_make(p->x, BPPSA_F64, 3, r.x.shape), seed = bppsa_view_make(p->seed, BPPSA_F64, 3, r.seed.shape),
             logits;
  make_lengths(p->config.seq_len, made);
  for (int64_t step = 0; step < 4; ++step) {
    for (int64_t b = 0; b < p->batch; ++b) { /* other lengths and samples at each step */
      r.lengths[b] = made[(b + step) % p->batch];
      r.samples[b] = 10 * step + b;
    }
    bppsa_model_drop(r.model, step, r.samples);
    bppsa_model_drop(p->reference, step, r.samples);
    assert_int_equal(bppsa_model_forward(p->reference, &x, NULL, &(bppsa_spans){.lengths = r.lengths}, &logits), BPPSA_OK);
    assert_int_equal(p->reference->ops->backward(p->reference, &seed), BPPSA_OK);
    if (step == 1 && records) {
      assert_int_equal(bppsa_graph_capture(device, queue, &r, &graph), BPPSA_OK);
    }
    assert_int_equal(graph == NULL ? queue(&r) : bppsa_graph_launch(device, graph), BPPSA_OK);
    assert_int_equal(bppsa_device_wait(device), BPPSA_OK);
    assert_int_equal(bppsa_model_pull(r.model, true), BPPSA_OK);
    for (int64_t i = 0; i < r.model->parameter_count; ++i) {
      check(p, &bp, r.model->parameters[i].name, &r.model->parameters[i].gradient, p->reference->parameters[i].gradient.data);
    }
  }
  bppsa_graph_destroy(device, graph);
  bppsa_memory_free(device, r.x.data);
  bppsa_memory_free(device, r.seed.data);
  bppsa_memory_free_staging(device, r.lengths);
  bppsa_memory_free_staging(device, r.samples);
  bppsa_model_destroy(r.model);
  bppsa_model_destroy(p->reference);
  free_numbers(p);
}

/* What is not finite is named by its step and sample; what stands behind an end is not looked for. */
static void test_nonfinite(void **state) {
  (void)state;
  for (int k = 0; k < 2; ++k) {
    int64_t made[MOST];
    problem p = shaped_problem(cells[RNN], &shapes[k == 0 ? 3 : 7], BPPSA_F64);
    bppsa_model *model = NULL;
    bppsa_nonfinite where;
    bppsa_view logits, held;
    make_lengths(p.config.seq_len, made);
    p.config.lengths = true;
    p.config.nonlinearity = BPPSA_NONLINEARITY_RELU;
    p.lengths = made;
    make_numbers(&p, 1);
    spoil(&p, p.x, p.config.input);
    const int64_t x[] = {p.config.seq_len, p.batch, p.config.input};
    assert_int_equal(create(&p, &p.config, device, &model), BPPSA_OK);
    assert_int_equal(bppsa_recurrent_init(model, BPPSA_INIT_DEFAULT, 5), BPPSA_OK);
    for (int bad = 0; bad < 2; ++bad) {
      if (bad == 1) { /* step 3 of sample 2 */
        p.x[(2 * p.batch + 2) * p.config.input] = (double)NAN;
      }
      held = put(device, BPPSA_F64, p.x, 3, x);
      assert_int_equal(bppsa_model_forward(model, &held, NULL, &(bppsa_spans){.lengths = made}, &logits), BPPSA_OK);
      assert_int_equal(model->ops->find_nonfinite(model, &where), bad == 1);
      bppsa_memory_free(device, held.data);
    }
    assert_int_equal(where.layer, 0);
    assert_int_equal(where.step, 3);
    assert_int_equal(where.sample, 2);
    bppsa_model_destroy(model);
    free_numbers(&p);
  }
}

static void test_wrong_lengths(void **state) {
  (void)state;
  problem p = shaped_problem(cells[RNN], &shapes[3], BPPSA_F32);
  bppsa_model *model = NULL;
  bppsa_view logits;
  const int64_t lengths[] = {1, 2, 18, 3}, x[] = {p.config.seq_len, p.batch, p.config.input};
  make_numbers(&p, 1);
  bppsa_view held = put(device, BPPSA_F32, p.x, 3, x);
  p.config.lengths = true;
  assert_int_equal(create(&p, &p.config, device, &model), BPPSA_OK);
  assert_int_equal(bppsa_model_forward(model, &held, NULL, &(bppsa_spans){.lengths = lengths}, &logits), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "length 18 of sample 2 of the batch, expected 1 .. 17");
  bppsa_model_destroy(model);
  bppsa_memory_free(device, held.data);
  free_numbers(&p);
}

int main(void) {
  set_most("SIMT_MOST_SHARED", LARGE_SHARED);
  device = test_device(2);
  host = cpu_device(2);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lengths_f32), cmocka_unit_test(test_lengths_f64),
                                     cmocka_unit_test(test_dropout),     cmocka_unit_test(test_both),
                                     cmocka_unit_test(test_outputs),     cmocka_unit_test(test_replay),
                                     cmocka_unit_test(test_nonfinite),   cmocka_unit_test(test_wrong_lengths)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  bppsa_device_destroy(host);
  return failed;
}
