/* What computes a parallel backward pass on a GPU that is paused or given up, where that is a chunked scan behind it
 * (recurrent/parallel_backward.h): gradients of every cell and type, some of a batch's samples alone, sequences of passes,
 * recordings. BPPSA_TEST_DEVICE names the device; on a CPU it is BP. */
#include "core/compute/graph.h"
#include "tests/recurrent/backward_problem.h"
#include "tests/recurrent/own_error.h"
#include "tests/support/dice.h"

/* A network of short chunks that falls back to a scan. */
static problem falling(int cell, int64_t seq_len, int64_t batch, int64_t hidden, int64_t scan_chunks) {
  problem p = problem_of(cell, seq_len, batch, hidden, seq_len / 10, 3);
  p.network.config.speculation.scan_chunks = scan_chunks;
  return p;
}

/* The state of a pass that is paused. */
static const bppsa_backward_state paused = {.pause = {3, 1}};

/* Weights that forget nothing give the pass up, in every cell, type and width, in one direction or two, with samples of their own
 * lengths, the loss on the last step or on all. A paused pass of the same network is the scan's alone. */
static void test_widths(void **state) {
  (void)state;
  static const int64_t hidden[] = {3, 8, 16, 20, 32};
  int64_t scanned = 0;
  for (uint64_t i = 0; i < 30; ++i) {
    dice d = {.seed = i};
    int64_t lengths[3];
    problem p = falling((int)(i / 5 % 3), roll(&d, 24, 40), roll(&d, 1, 3), hidden[i % 5], roll(&d, 2, 9));
    bppsa_recurrent_config *c = &p.network.config;
    p.network.seed = i + 1;
    p.network.orthogonal = true;
    p.network.scale = 1.2;
    c->dtype = i < 15 || (i / 5 % 3 == LSTM && c->hidden == 32) ? BPPSA_F32 : BPPSA_F64; /* pairs have no chunks of 32 in f64 */
    c->speculation.chunks = roll(&d, 4, 8);
    c->input = roll(&d, 1, 2);
    c->layers = roll(&d, 1, 2);
    c->bidirectional = i % 7 == 3;
    c->loss_all = i % 3 != 1;
    c->lengths = i % 4 == 2;
    c->input_gradients = i % 3 == 0;
    for (int64_t b = 0; b < c->batch; ++b) {
      lengths[b] = roll(&d, 1, c->seq_len);
    }
    p.lengths = c->lengths ? lengths : NULL;
    const bppsa_backward_stats s = check(&p);
    assert_true(s.speculated && s.scanned == (s.given_up && is_gpu()));
    scanned += s.scanned;

    net n = open_net(&p, device, c->dtype, BPPSA_BACKWARD_SPECULATIVE, NULL);
    assert_int_equal(bppsa_backward_state_set(n.model, &paused), BPPSA_OK);
    gradients found = pass(&n), bp = gradients_on(&p, host, c->dtype, BPPSA_BACKWARD_BP, n.model),
              exact = gradients_on(&p, host, BPPSA_F64, BPPSA_BACKWARD_BP, n.model);
    assert_false(found.stats.speculated);
    assert_true(error_of(&found, &exact) <= 2 * error_of(&bp, &exact) + (c->dtype == BPPSA_F64 ? 5e-14 : 1e-6));
    free_gradients(&found);
    free_gradients(&bp);
    free_gradients(&exact);
    close_net(&n);
  }
  assert_true(scanned > (is_gpu() ? 12 : -1));
}

/* A network without weight gradients in its kernels: a paused pass has the bits of the scan. */
static void test_bits_of_scan(void **state) {
  (void)state;
  for (int all = 0; all < 2; ++all) {
    problem p = falling(GRU, 40, 2, 32, 5);
    p.network.config.loss_all = all == 1;
    p.network.config.input_gradients = true;
    problem scan = p;
    scan.network.config.method.scan = (bppsa_scan_method){.algorithm = BPPSA_SCAN_CHUNKED, .chunks = 5};
    net n = open_net(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL);
    assert_int_equal(bppsa_backward_state_set(n.model, &paused), BPPSA_OK);
    gradients expected = gradients_on(&scan, device, BPPSA_F32, is_gpu() ? BPPSA_BACKWARD_SCAN : BPPSA_BACKWARD_BP, n.model),
              found = pass(&n);
    assert_true(!found.stats.speculated && same_numbers(&found, &expected));
    free_gradients(&expected);
    free_gradients(&found);
    close_net(&n);
  }
}

/* Where no pass falls back the scan's launches change no bit. */
static void test_not_needed(void **state) {
  (void)state;
  for (int kind = 0; kind < CELLS; ++kind) {
    problem p = falling(kind, 60, 2, 7, 6);
    p.network.config.loss_all = p.network.config.input_gradients = true;
    p.network.scale = .2;
    problem without = p;
    without.network.config.speculation.scan_chunks = 1;
    net n = open_net(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL);
    gradients found = pass(&n), expected = gradients_on(&without, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, n.model);
    assert_true(found.stats.speculated && !found.stats.given_up && same_numbers(&found, &expected));
    assert_int_equal(found.plan.scan_chunks, is_gpu() ? 6 : 1);
    assert_int_equal(expected.plan.scan_chunks, 1);
    free_gradients(&found);
    free_gradients(&expected);
    close_net(&n);
  }
}

/* Some samples of a batch fall back, and the others do not: a sample of one chunk beside longer ones, and one with a NaN. Weight
 * gradients are the sums of both. */
static void test_some_samples(void **state) {
  (void)state;
  static const int64_t lengths[] = {9, 60, 13};
  for (int kind = 0; kind < 2 * CELLS; ++kind) {
    problem p = falling(kind % CELLS, 60, 3, kind < CELLS ? 6 : 32, 6);
    p.network.config.loss_all = p.network.config.input_gradients = true;
    p.network.orthogonal = true;
    p.network.scale = 1.2;
    p.network.seed = 40 + (uint64_t)kind;
    p.network.config.lengths = true;
    p.lengths = lengths;
    const bppsa_backward_stats s = check(&p);
    assert_true(s.speculated && s.given_up && s.scanned == is_gpu());
    p.network.config.lengths = false;
    p.lengths = NULL;
    p.network.orthogonal = false;
    p.network.scale = .2;
    p.spoiled = 20 * 3 + 1; /* step 20 of sample 1 */
    const bppsa_backward_stats t = check(&p);
    assert_true(t.speculated && t.given_up && t.scanned == is_gpu() && isfinite(t.gap));
  }
}

/* More chunks than a cluster has teams speculate in a launch of their own, whose sums of weight gradients are forgotten too. */
static void test_many_chunks(void **state) {
  (void)state;
  for (int kind = 0; kind < CELLS; ++kind) {
    problem p = falling(kind, 120, 2, 5, 8);
    p.network.config.speculation.chunks = 40;
    p.network.config.loss_all = true;
    p.spoiled = kind; /* a NaN in sample 0 */
    assert_true(check(&p).given_up);
    p.spoiled = -1;
    p.network.orthogonal = true;
    const bppsa_backward_stats s = check(&p);
    assert_true(s.speculated && s.scanned == (s.given_up && is_gpu()));
  }
}

/* What passes report, and three that are given up make the next ones the scan's. */
static void test_pauses(void **state) {
  (void)state;
  enum { STEPS = 60, HIDDEN = PAUSED_HIDDEN, SCAN = 10 };
  check_pauses(SCAN, is_gpu() ? 6 + 6 + SCAN - 2 : STEPS, is_gpu() ? (STEPS + 54. * (HIDDEN + 1)) / STEPS : 1);
}

/* A network of two layers that lives long: passes that speculate, that are paused, and that are given up because a number is not
 * finite, in any order. Each has the bits of a network that has done nothing before. */
static void test_sequences(void **state) {
  (void)state;
  enum { PASSES = 12 };
  dice d = {.seed = 9};
  for (int kind = 0; kind < CELLS; ++kind) {
    problem p = falling(kind, 50, 2, 6, 5), spoiled;
    p.network.config.loss_all = p.network.config.input_gradients = true;
    p.network.config.layers = 2;
    p.network.scale = .5;
    spoiled = p;
    spoiled.spoiled = 30 * 2;
    net n = open_net(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL),
        bad = open_net(&spoiled, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, n.model);
    for (int i = 0; i < PASSES; ++i) {
      const bool pauses = roll(&d, 0, 1) == 1, spoils = roll(&d, 0, 2) == 0;
      const bppsa_backward_state before = pauses ? paused : (bppsa_backward_state){.warm_up = 0};
      const bppsa_view seed = n.seed;
      net fresh = open_net(spoils ? &spoiled : &p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, n.model);
      assert_int_equal(bppsa_backward_state_set(n.model, &before), BPPSA_OK);
      assert_int_equal(bppsa_backward_state_set(fresh.model, &before), BPPSA_OK);
      n.seed = spoils ? bad.seed : seed;
      gradients found = pass(&n), expected = pass(&fresh);
      assert_true(same_numbers(&found, &expected));
      assert_int_equal(found.stats.speculated, !pauses);
      assert_int_equal(found.stats.given_up, !pauses && spoils);
      assert_true(found.stats.path == expected.stats.path && found.stats.work == expected.stats.work);
      n.seed = seed;
      free_gradients(&found);
      free_gradients(&expected);
      close_net(&fresh);
    }
    close_net(&bad);
    close_net(&n);
  }
}

static bppsa_status queue_pass(void *context) {
  const net *n = context;
  return n->model->ops->backward(n->model, &n->seed);
}

/* One recording does what the GPU's state says: it speculates, is paused, and speculates again. */
static void test_recording(void **state) {
  (void)state;
  if (!is_gpu()) {
    return;
  }
  problem p = falling(LSTM, 60, 2, 5, 6);
  p.network.config.loss_all = true;
  net n = open_net(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL);
  bppsa_graph *graph = NULL;
  gradients of[2];
  for (int k = 0; k < 2; ++k) {
    const bppsa_backward_state before = k == 1 ? paused : (bppsa_backward_state){.warm_up = 0};
    assert_int_equal(bppsa_backward_state_set(n.model, &before), BPPSA_OK);
    of[k] = pass(&n);
    assert_int_equal(of[k].stats.speculated, k == 0);
  }
  assert_false(same_numbers(&of[0], &of[1]));
  assert_int_equal(bppsa_graph_capture(device, queue_pass, &n, &graph), BPPSA_OK);
  for (int k = 0; k < 4; ++k) {
    const bppsa_backward_state before = k % 2 == 1 ? paused : (bppsa_backward_state){.warm_up = 0};
    assert_int_equal(bppsa_backward_state_set(n.model, &before), BPPSA_OK);
    assert_int_equal(bppsa_graph_launch(device, graph), BPPSA_OK);
    assert_int_equal(bppsa_model_pull(n.model, true), BPPSA_OK);
    for (int64_t i = 0; i < of[0].count; ++i) {
      for (int64_t j = 0; j < of[0].sizes[i]; ++j) {
        assert_true(bppsa_view_get(&n.model->parameters[i].gradient, j) == of[k % 2].of[i][j]);
      }
    }
  }
  bppsa_graph_destroy(device, graph);
  free_gradients(&of[0]);
  free_gradients(&of[1]);
  close_net(&n);
}

/* Where a scan of so many chunks has no kernels, or a GPU no room for a block of them, and on a CPU, the plan says BP. */
static void test_no_kernels(void **state) {
  (void)state;
  problem wide = falling(RNN, 40, 1, 33, 5), pairs = falling(LSTM, 40, 1, 32, 5), whole = falling(GRU, 40, 1, 8, 5);
  const struct {
    const problem *p;
    bppsa_dtype dtype;
    int64_t chunks;
  } cases[] = {{&wide, BPPSA_F32, 1}, {&pairs, BPPSA_F64, 1}, {&pairs, BPPSA_F32, 5}, {&whole, BPPSA_F64, 5}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    net n = open_net(cases[i].p, device, cases[i].dtype, BPPSA_BACKWARD_SPECULATIVE, NULL);
    assert_int_equal(bppsa_backward_plan_of(n.model)->scan_chunks, is_gpu() ? cases[i].chunks : 1);
    close_net(&n);
  }
  problem large = falling(GRU, 40, 1, 32, 5);
  assert_int_equal(setenv("SIMT_MOST_SHARED", "49152", 1), 0);
  net n = open_net(&large, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL);
  assert_int_equal(bppsa_backward_plan_of(n.model)->scan_chunks, is_gpu() && !is_emulated(device) ? 5 : 1);
  gradients g = pass(&n);
  assert_true(g.stats.speculated && (!g.stats.scanned || !is_emulated(device)));
  free_gradients(&g);
  close_net(&n);
  assert_int_equal(setenv("SIMT_MOST_SHARED", H200_SHARED, 1), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_widths),       cmocka_unit_test(test_bits_of_scan), cmocka_unit_test(test_not_needed),
      cmocka_unit_test(test_some_samples), cmocka_unit_test(test_many_chunks),  cmocka_unit_test(test_pauses),
      cmocka_unit_test(test_sequences),    cmocka_unit_test(test_recording),    cmocka_unit_test(test_no_kernels)};
  return setenv("SIMT_MOST_SHARED", H200_SHARED, 1) == 0 ? cmocka_run_group_tests(tests, open_devices, close_devices) : 1;
}
