/* What speculative BP costs by the model (recurrent/backward_cost.c), where auto takes it, when passes fail, and plans as texts. */
#include "core/files/json.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/pause.h"
#include "rnn/rnn.h"
#include "tests/recurrent/passes.h"

static bppsa_recurrent_config config_of(int64_t seq_len, int64_t batch, int64_t hidden) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = seq_len;
  c.batch = batch;
  c.hidden = hidden;
  c.loss_all = true;
  return c;
}

static bppsa_backward chosen_of(const bppsa_cell *cell, const bppsa_recurrent_config *c) {
  bppsa_recurrent_config chosen;
  assert_int_equal(bppsa_recurrent_choose(c, cell, BPPSA_CPU, &chosen), BPPSA_OK);
  assert_int_equal(chosen.speculation.exact_inputs, chosen.method.backward == BPPSA_BACKWARD_SPECULATIVE);
  return chosen.method.backward;
}

/* The time of a pass that mends nothing, over BP's. */
static double time_of(const bppsa_cell *cell, const bppsa_recurrent_config *c, bppsa_device_kind device, int64_t chunks) {
  const bppsa_forward_shape shape = bppsa_recurrent_forward_shape(c, cell, device, 0);
  const bppsa_backward_plan plan = {.speculative = true, .chunks = chunks, .warm_up = c->dtype == BPPSA_F64 ? 96 : 40};
  const bppsa_backward_cost model = bppsa_backward_model(&shape, &plan);
  const bppsa_backward_expected expected = bppsa_backward_expect(&shape, &plan);
  return bppsa_backward_time(&model, expected.path, expected.work);
}

/* On a CPU: one or two samples of long sequences and wide layers. With the constants that the program has, so that no machine
 * changes what is found. */
static void test_choice(void **state) {
  (void)state;
  const struct {
    const bppsa_cell *cell;
    int64_t seq_len, batch, hidden;
    bppsa_backward chosen;
  } cases[] = {{&bppsa_gru_cell, 10000, 1, 128, BPPSA_BACKWARD_SPECULATIVE},
               {&bppsa_rnn_cell, 10000, 1, 128, BPPSA_BACKWARD_SPECULATIVE},
               {&bppsa_lstm_cell, 10000, 1, 128, BPPSA_BACKWARD_SPECULATIVE},
               {&bppsa_lstm_cell, 3000, 1, 256, BPPSA_BACKWARD_SPECULATIVE},
               {&bppsa_gru_cell, 10000, 16, 128, BPPSA_BACKWARD_BP},
               {&bppsa_rnn_cell, 10000, 4, 128, BPPSA_BACKWARD_BP},
               {&bppsa_rnn_cell, 10000, 1, 20, BPPSA_BACKWARD_BP},
               {&bppsa_rnn_cell, 30000, 1, 8, BPPSA_BACKWARD_BP},
               {&bppsa_gru_cell, 100, 1, 128, BPPSA_BACKWARD_BP}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    bppsa_recurrent_config c = config_of(cases[i].seq_len, cases[i].batch, cases[i].hidden);
    assert_int_equal(chosen_of(cases[i].cell, &c), cases[i].chosen);
    c.method.backward = BPPSA_BACKWARD_BP;
    bppsa_recurrent_config same;
    assert_int_equal(bppsa_recurrent_choose(&c, cases[i].cell, BPPSA_CPU, &same), BPPSA_OK);
    assert_int_equal(same.method.backward, BPPSA_BACKWARD_BP);
  }
}

/* Where auto may not speculate: gradients of x from the last step's loss, a part of a sequence, one chunk, a scan asked for. */
static void test_not_chosen(void **state) {
  (void)state;
  bppsa_recurrent_config c = config_of(10000, 1, 128);
  c.input_gradients = true;
  assert_int_equal(chosen_of(&bppsa_gru_cell, &c), BPPSA_BACKWARD_SPECULATIVE);
  c.loss_all = false;
  assert_int_equal(chosen_of(&bppsa_gru_cell, &c), BPPSA_BACKWARD_BP);
  c.input_gradients = false;
  assert_int_equal(chosen_of(&bppsa_gru_cell, &c), BPPSA_BACKWARD_SPECULATIVE);
  c.part.seq_len = 20000;
  assert_int_equal(chosen_of(&bppsa_gru_cell, &c), BPPSA_BACKWARD_BP);
  c.part.seq_len = 0;
  c.speculation.chunks = 1;
  assert_int_equal(chosen_of(&bppsa_gru_cell, &c), BPPSA_BACKWARD_BP);
  c.speculation.chunks = 0;
  c.method.backward = BPPSA_BACKWARD_SCAN;
  assert_int_equal(chosen_of(&bppsa_gru_cell, &c), BPPSA_BACKWARD_SCAN);
  c.method.backward = BPPSA_BACKWARD_AUTO;
  c.speculation.warm_up = -2; /* an error, not a choice */
  bppsa_recurrent_config chosen;
  assert_error(bppsa_recurrent_choose(&c, &bppsa_gru_cell, BPPSA_CPU, &chosen), BPPSA_ERR_ARGUMENT, "a warm-up of -2 steps");
}

/* More gates and units, fewer samples and longer sequences: the more does it pay. More lanes than a group has cost time, and so do
 * warm-ups. */
static void test_order(void **state) {
  (void)state;
  const bppsa_recurrent_config base = config_of(10000, 1, 64), wide = config_of(10000, 1, 128), two = config_of(10000, 2, 64),
                               brief = config_of(1000, 1, 64), many = config_of(10000, 16, 64);
  const double time = time_of(&bppsa_gru_cell, &base, BPPSA_CPU, 16);
  assert_true(time_of(&bppsa_gru_cell, &wide, BPPSA_CPU, 16) < time);
  assert_true(time_of(&bppsa_rnn_cell, &base, BPPSA_CPU, 16) > time);
  assert_true(time_of(&bppsa_gru_cell, &two, BPPSA_CPU, 8) > time);
  assert_true(time_of(&bppsa_gru_cell, &many, BPPSA_CPU, 16) > 1);
  assert_true(time_of(&bppsa_gru_cell, &brief, BPPSA_CPU, 12) > time);
  assert_true(time_of(&bppsa_gru_cell, &base, BPPSA_CPU, 100) > time);
  assert_true(time > .3 && time < 1);
}

/* Is a time over BP's what docs/gpu.md's numbers say, but for a hundredth? In microseconds. */
static void assert_time(double over_bp, double bp, double expected) {
  assert_true(fabs(over_bp * bp / expected - 1) < .01);
}

/* On a GPU the time follows the path: of 1000 steps BP of the RNN takes 75 µs; 13 chunks 14 µs and 117 steps of 103 cycles. A
 * step of a mend takes no less, and its share of a round of 2600 besides. */
static void test_gpu(void **state) {
  (void)state;
  const bppsa_recurrent_config c = config_of(1000, 16, 20), longer = config_of(10000, 16, 20);
  const double bp = 74.9, time = time_of(&bppsa_rnn_cell, &c, BPPSA_CUDA, 13);
  assert_time(time, bp, 14 + 117 * 103 / 1980.);
  assert_true(time_of(&bppsa_rnn_cell, &longer, BPPSA_CUDA, 64) < time);
  const bppsa_forward_shape shape = bppsa_recurrent_forward_shape(&c, &bppsa_rnn_cell, BPPSA_CUDA, 0);
  const bppsa_backward_plan mending = {.speculative = true, .chunks = 13, .warm_up = 40};
  const bppsa_backward_cost model = bppsa_backward_model(&shape, &mending);
  const double more =
      bppsa_backward_time(&model, .217, 9) - bppsa_backward_time(&model, .117, 1); /* of 100 steps; work is free */
  assert_time(more, bp, 100 * (103 + 2600 * .013) / 1980);
  bppsa_backward_plan plan;
  assert_int_equal(bppsa_recurrent_plan_speculation(&c, &bppsa_rnn_cell, BPPSA_CUDA, &plan), BPPSA_OK);
  assert_true(plan.speculative && plan.chunks == 15);
  /* 14 µs, 5.5 for the scan's launches, 107 steps of 103 cycles, and of mends 363 or 313 steps of 142, are 51 or 48 µs, beside 50
   * of the scan */
  const bppsa_backward_stats mends = {.speculated = true, .passes = 1, .path = 470, .possible = 1000, .work = 4},
                             few = {.speculated = true, .passes = 1, .path = 420, .possible = 1000, .work = 4};
  assert_true(bppsa_backward_fails(&plan, &mends)); /* by its time: less than 0.9 of the path */
  assert_false(bppsa_backward_fails(&plan, &few));
}

/* The warps of up to two teams have a scheduler each, so that a step takes as long as the slower warp: 213 cycles of a GRU, 103 of
 * an RNN. Those of four teams share schedulers, and the instructions of both count if they are more: 249 of a GRU, 95 of an RNN.
 * More teams than schedulers take turns. */
static void test_teams_on_gpu(void **state) {
  (void)state;
  const bppsa_recurrent_config brief = config_of(1000, 16, 20), c = config_of(10000, 16, 20), two = config_of(1000, 256, 20),
                               wide = config_of(1000, 256, 32), many = config_of(1000, 1024, 20);
  assert_time(time_of(&bppsa_gru_cell, &brief, BPPSA_CUDA, 15), 170.7, 16 + 107 * 213 / 1980.);
  assert_time(time_of(&bppsa_gru_cell, &brief, BPPSA_CUDA, 16), 170.7, 16 + 103 * 213 / 1980.);
  assert_time(time_of(&bppsa_gru_cell, &brief, BPPSA_CUDA, 17), 170.7, 16 + 99 * 249 / 1980.);
  assert_time(time_of(&bppsa_gru_cell, &c, BPPSA_CUDA, 32), 1607.1, 16 + 353 * 249 / 1980.);
  assert_time(time_of(&bppsa_lstm_cell, &c, BPPSA_CUDA, 32), 2082.2, 16 + 353 * 249 / 1980.);
  assert_time(time_of(&bppsa_rnn_cell, &c, BPPSA_CUDA, 32), 656.7, 14 + 353 * 103 / 1980.);
  assert_time(time_of(&bppsa_rnn_cell, &two, BPPSA_CUDA, 2), 74.9, 14 + 540 * 103 / 1980.); /* 512 teams, 528 schedulers */
  assert_time(time_of(&bppsa_gru_cell, &two, BPPSA_CUDA, 2), 170.7, 16 + 540 * 249 / 1980.);
  assert_time(time_of(&bppsa_rnn_cell, &two, BPPSA_CUDA, 4), 74.9, 14 + 2 * 290 * 103 / 1980.); /* 1024 teams: 2 turns */
  assert_true(time_of(&bppsa_rnn_cell, &wide, BPPSA_CUDA, 4) > time_of(&bppsa_rnn_cell, &two, BPPSA_CUDA, 4));
  assert_true(time_of(&bppsa_rnn_cell, &many, BPPSA_CUDA, 13) > 2 * time_of(&bppsa_rnn_cell, &brief, BPPSA_CUDA, 13));
}

/* On a GPU `auto` takes speculation by its predicted time, because what computes the passes of a pause is the fastest of BP and the
 * scans, or nearly so: the mean of passes is then never far above the best of these. */
static void test_choice_on_gpu(void **state) {
  (void)state;
  static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
  static const int64_t lengths[] = {100, 300, 1000, 10000}, batches[] = {1, 16, 256, 4096};
  int taken = 0, left = 0, scans = 0;
  for (int i = 0; i < 3 * 4 * 4; ++i) {
    bppsa_recurrent_config c = config_of(lengths[i / 3 % 4], batches[i / 12], 20), chosen;
    bppsa_recurrent_candidate one;
    double bp = 0, other = INFINITY, speculative = INFINITY, fallback = INFINITY;
    bool more = true;
    for (int64_t k = 0; more; ++k) {
      assert_int_equal(bppsa_recurrent_find_candidate(&c, cells[i % 3], BPPSA_CUDA, k, &one, &more), BPPSA_OK);
      bp = k == 0 ? one.seconds : bp;
      if (more && one.method.backward == BPPSA_BACKWARD_SPECULATIVE) {
        speculative = one.seconds;
        fallback = one.fallback;
      } else if (more) {
        other = fmin(other, one.seconds);
      }
    }
    assert_int_equal(bppsa_recurrent_choose(&c, cells[i % 3], BPPSA_CUDA, &chosen), BPPSA_OK);
    const bool takes = chosen.method.backward == BPPSA_BACKWARD_SPECULATIVE;
    assert_int_equal(takes, BPPSA_BACKWARD_WORTH * speculative < other && fallback < 1.02 * other);
    /* otherwise the best is a scan by an executor, which cannot wait for a flag */
    assert_true(fallback < 1.02 * other || other < bp || isinf(speculative));
    taken += takes;
    left += !takes;
    scans += takes && fallback < bp;
  }
  assert_true(taken > 0 && left > 0 && scans > 10);
}

/* What is in the place of a pass. On a processor BP, which no scan beats on one thread; on a GPU the fastest chunked scan of the
 * layer's own kernels, where that is faster and fits into memory. A number that is given stays. */
static void test_fallback(void **state) {
  (void)state;
  static const int64_t hidden[] = {1, 4, 20, 64, 256}, lengths[] = {10, 1000, 100000};
  for (int i = 0; i < 5 * 3 * 2; ++i) {
    bppsa_recurrent_config c = config_of(lengths[i / 5 % 3], i < 15 ? 1 : 16, hidden[i % 5]);
    bppsa_recurrent_candidate one;
    bppsa_backward_method method = bppsa_backward_method_default();
    double bp = 0;
    bool more = true;
    for (int64_t k = 0; more; ++k) {
      assert_int_equal(bppsa_recurrent_find_candidate(&c, &bppsa_gru_cell, BPPSA_CPU, k, &one, &more), BPPSA_OK);
      bp = k == 0 ? one.seconds : bp;
      assert_true(!more || one.method.backward != BPPSA_BACKWARD_SCAN || one.seconds >= bp);
    }
    assert_int_equal(bppsa_recurrent_find_fallback(&c, &bppsa_gru_cell, BPPSA_CPU, &method), BPPSA_OK);
    assert_true(method.scan_chunks == 1 && method.scan_time == 1);
  }
  bppsa_recurrent_config c = config_of(10000, 16, 20);
  bppsa_backward_method method = bppsa_backward_method_default();
  assert_int_equal(bppsa_recurrent_find_fallback(&c, &bppsa_rnn_cell, BPPSA_CUDA, &method), BPPSA_OK);
  assert_true(method.scan_chunks == 256 && fabs(method.scan_time - 148. / 657) < .01);
  c.memory_limit = 1;
  method = bppsa_backward_method_default();
  assert_int_equal(bppsa_recurrent_find_fallback(&c, &bppsa_rnn_cell, BPPSA_CUDA, &method), BPPSA_OK);
  assert_true(method.scan_chunks == 1 && method.scan_time == 1);
  c = config_of(100, 16, 20); /* BP is faster than any scan, but one is asked for */
  method = bppsa_backward_method_default();
  assert_int_equal(bppsa_recurrent_find_fallback(&c, &bppsa_rnn_cell, BPPSA_CUDA, &method), BPPSA_OK);
  assert_int_equal(method.scan_chunks, 1);
  method.scan_chunks = 500;
  assert_int_equal(bppsa_recurrent_find_fallback(&c, &bppsa_rnn_cell, BPPSA_CUDA, &method), BPPSA_OK);
  assert_true(method.scan_chunks == 100 && method.scan_time > 1);
  c = config_of(10000, 16, 33); /* wide layers have kernels for BP alone */
  method = bppsa_backward_method_default();
  assert_int_equal(bppsa_recurrent_find_fallback(&c, &bppsa_rnn_cell, BPPSA_CUDA, &method), BPPSA_OK);
  assert_int_equal(method.scan_chunks, 1);
  assert_error(bppsa_recurrent_find_fallback(NULL, &bppsa_rnn_cell, BPPSA_CUDA, &method), BPPSA_ERR_ARGUMENT, "expected");
  method.scan_chunks = -1;
  const bppsa_forward_shape shape = bppsa_recurrent_forward_shape(&c, &bppsa_rnn_cell, BPPSA_CUDA, 0);
  bppsa_backward_plan plan;
  assert_error(bppsa_backward_plan_make(&method, &shape, &plan), BPPSA_ERR_ARGUMENT, "a scan of -1 chunks");
}

/* A pass that would take longer than the scan in its place fails, though BP would take longer still; the scan's launches cost
 * something where they do nothing. */
static void test_limit_of_scan(void **state) {
  (void)state;
  const bppsa_recurrent_config c = config_of(10000, 16, 20);
  const bppsa_forward_shape shape = bppsa_recurrent_forward_shape(&c, &bppsa_rnn_cell, BPPSA_CUDA, BPPSA_FORWARD_MULTIPROCESSORS);
  bppsa_backward_method method = bppsa_backward_method_default();
  bppsa_backward_plan of_bp, of_scan;
  const bppsa_backward_stats slow = {.speculated = true, .passes = 1, .path = 2500, .possible = 10000, .work = 2};
  method.scan_chunks = 1;
  assert_int_equal(bppsa_backward_plan_make(&method, &shape, &of_bp), BPPSA_OK);
  method = bppsa_backward_method_default();
  assert_int_equal(bppsa_recurrent_find_fallback(&c, &bppsa_rnn_cell, BPPSA_CUDA, &method), BPPSA_OK);
  assert_int_equal(bppsa_backward_plan_make(&method, &shape, &of_scan), BPPSA_OK);
  assert_true(!bppsa_backward_fails(&of_bp, &slow) && bppsa_backward_fails(&of_scan, &slow));
  const bppsa_backward_cost bp = bppsa_backward_model(&shape, &of_bp), scan = bppsa_backward_model(&shape, &of_scan);
  assert_time(bppsa_backward_time(&scan, .1, 1) - bppsa_backward_time(&bp, .1, 1), 656.7, 5 * 1.1);
}

/* W on a GPU: as long as the longest mend asks for, never more than a chunk, and back step by step. */
static void test_warm_up_on_gpu(void **state) {
  (void)state;
  assert_int_equal(bppsa_backward_gpu_warm_up(40, 66, (bppsa_backward_need){0, 0, 0}), 40);
  assert_int_equal(bppsa_backward_gpu_warm_up(40, 66, (bppsa_backward_need){14, 1, 16}), 64);
  assert_int_equal(bppsa_backward_gpu_warm_up(64, 66, (bppsa_backward_need){14, 14, 66}), 66);
  assert_int_equal(bppsa_backward_gpu_warm_up(80, 66, (bppsa_backward_need){14, 14, 66}), 80); /* given larger: it stays */
  assert_int_equal(bppsa_backward_gpu_warm_up(64, 66, (bppsa_backward_need){14, 0, 0}), 63);
  assert_int_equal(bppsa_backward_gpu_warm_up(8, 66, (bppsa_backward_need){14, 0, 0}), 8);
}

/* A pass fails by its path, its time, or being given up. One that was asked for may take a quarter more than a pass without
 * mends. */
static void test_fails(void **state) {
  (void)state;
  const bppsa_backward_plan plan = {.speculative = true, .chunks = 16, .cost = {.fixed = .1, .path = .5, .work = .5}};
  bppsa_backward_stats pass = {.speculated = true, .passes = 1, .path = 100, .possible = 1000, .work = 1.6};
  assert_false(bppsa_backward_fails(&plan, &pass)); /* .1 + .05 + .8 */
  pass.path = 300;
  assert_true(bppsa_backward_fails(&plan, &pass)); /* .1 + .15 + .8 */
  pass.path = 100;
  pass.work = 1.8;
  assert_true(bppsa_backward_fails(&plan, &pass));
  pass.speculated = false;
  assert_false(bppsa_backward_fails(&plan, &pass));
  pass = (bppsa_backward_stats){.speculated = true, .given_up = true, .passes = 1, .path = 100, .possible = 1000, .work = 1};
  assert_true(bppsa_backward_fails(&plan, &pass));
  pass.given_up = false;
  pass.path = 900;
  assert_true(bppsa_backward_fails(&(bppsa_backward_plan){.speculative = true}, &pass)); /* also where the cost is not known */
  pass.path = 899;
  pass.work = 20;
  assert_false(bppsa_backward_fails(&(bppsa_backward_plan){.speculative = true}, &pass));

  const bppsa_backward_expected expected = {.1, 1.5};
  const bppsa_backward_cost slow = bppsa_backward_limit(&(bppsa_backward_cost){.work = 2}, &expected, 1),
                            fast = bppsa_backward_limit(&(bppsa_backward_cost){.path = .25, .work = .5}, &expected, 1);
  assert_true(fabs(bppsa_backward_time(&slow, .1, 1.5) - .8) < 2e-3);  /* 1.25 times as long is 1 */
  assert_true(fast.fixed == 0 && fast.path == .25 && fast.work == .5); /* up to BP's time */
}

/* A network whose mends take longer than BP pauses, though its path is short. */
static void test_pauses(void **state) {
  (void)state;
  bppsa_recurrent_config c = config_of(600, 1, 8);
  c.method.backward = BPPSA_BACKWARD_SPECULATIVE;
  c.speculation.chunks = 6;
  c.speculation.cost = (bppsa_backward_cost){.work = .5}; /* up to twice BP's steps */
  for (int costly = 0; costly < 2; ++costly) {
    c.speculation.cost.work = costly ? .9 : .5;
    run r = open_run(&bppsa_gru_cell, &c, 1, 1);
    bppsa_backward_stats stats;
    for (int pass = 0; pass < 5; ++pass) {
      assert_int_equal(bppsa_model_forward(r.model, &r.x, NULL, NULL, &r.logits), BPPSA_OK);
      assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK);
      assert_int_equal(bppsa_backward_stats_of(r.model, &stats), BPPSA_OK);
      assert_int_equal(stats.speculated, !costly || pass < 3);
      assert_true(!stats.speculated || (stats.work > 1.2 && stats.work < 2 && 10 * stats.path < 9 * stats.possible));
    }
    close_run(&r);
  }
}

/* What a text says makes the same plan, whatever the plan's defaults are. */
static void test_texts(void **state) {
  (void)state;
  char text[BPPSA_BACKWARD_TEXT], again[BPPSA_BACKWARD_TEXT];
  bppsa_backward_method method = bppsa_backward_method_default();
  const bppsa_recurrent_config c = config_of(3000, 2, 100);
  const bppsa_forward_shape shape = bppsa_recurrent_forward_shape(&c, &bppsa_lstm_cell, BPPSA_CPU, 0);
  bppsa_backward_plan plan, read;
  method.warm_up = 31;
  assert_int_equal(bppsa_backward_plan_make(&method, &shape, &plan), BPPSA_OK);
  plan.cost = (bppsa_backward_cost){.fixed = .021, .path = 1.113, .work = .552}; /* of another machine */
  plan.chunks = 9;
  plan.rounds = 4;
  assert_string_equal(bppsa_backward_plan_text(&plan, text, sizeof text),
                      "speculative, 9 chunks, warm-up 31, 4 rounds, tolerance 2.4e-07, 0.021 + 1.113 path + 0.552 work up to 1");
  method = bppsa_backward_method_default();
  method.exact_inputs = true;
  assert_int_equal(bppsa_backward_plan_read(text, &method), BPPSA_OK);
  assert_true(method.exact_inputs && method.chunks == 9 && method.warm_up == 31);
  assert_int_equal(bppsa_backward_plan_make(&method, &shape, &read), BPPSA_OK);
  assert_string_equal(bppsa_backward_plan_text(&read, again, sizeof again), text);
  assert_memory_equal(&read.cost, &plan.cost, sizeof plan.cost);

  method.chunks = 5; /* what is given stays */
  assert_int_equal(bppsa_backward_plan_read("speculative, 9 chunks, warm-up 40, 4 rounds, tolerance 1e-06", &method), BPPSA_OK);
  assert_true(method.chunks == 5 && method.cost.work == .552);
  plan.scan_chunks = 45;
  method = bppsa_backward_method_default();
  assert_string_equal(bppsa_backward_plan_text(&plan, text, sizeof text),
                      "speculative, 9 chunks, warm-up 31, 4 rounds, tolerance 2.4e-07, or scan, 45 chunks, 0.021 + 1.113 path + "
                      "0.552 work up to 1");
  assert_int_equal(bppsa_backward_plan_read(text, &method), BPPSA_OK);
  assert_true(method.scan_chunks == 45 && method.cost.path == 1.113);
  for (int empty = 0; empty < 2; ++empty) {
    method = bppsa_backward_method_default();
    assert_int_equal(bppsa_backward_plan_read(empty ? "" : "bp", &method), BPPSA_OK);
    assert_true(method.chunks == 0 && method.warm_up == -1 && method.cost.work == 0); /* they say nothing */
  }
  static const char *const wrong[] = {
      "scan",
      "speculative",
      "speculative, 9 chunks, warm-up 31, 4 rounds, tolerance",
      "speculative, 9 chunks, warm-up 31, 4 rounds, tolerance x",
      "speculative, 9 chunks, warm-up 31, 4 rounds, tolerance 1e-06, 0.1",
      "speculative, 9 chunks, warm-up 31, 4 rounds, tolerance 1e-06, 0.1 + 1 path + x work up to 1",
      "speculative, 9 chunks, warm-up 31, 4 rounds, tolerance 1e-06, 0 + nan path + 1 work up to 1",
      "speculative, 9 chunks, warm-up 31, 4 rounds, tolerance 1e-06, 0 + 1 path + 1 work up to 12",
      "speculative, 1 chunks, warm-up 31, 4 rounds, tolerance 1e-06",
      "speculative, 9 chunks, warm-up -1, 4 rounds, tolerance 1e-06",
      "speculative, 9 chunks, warm-up 31, 4 rounds, tolerance 1e-06 and more",
      "speculative, 9 chunks, warm-up 31, 4 rounds, tolerance 1e-06, or scan, 1 chunks",
      "speculative, 9 chunks, warm-up 31, 4 rounds, tolerance 1e-06, or scan, 45",
      "speculative, 9 chunks, warm-up 31, 4 rounds, tolerance 1e-06, or scan, 45 chunks and more"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    bppsa_backward_method before = bppsa_backward_method_default();
    before.cost.work = .25;
    method = before;
    assert_error(bppsa_backward_plan_read(wrong[i], &method), BPPSA_ERR_FORMAT, "expected bp, or as in");
    assert_memory_equal(&method, &before, sizeof method);
  }
  json_t *document = bppsa_backward_plan_json(&plan);
  assert_true(json_number_value(json_object_get(json_object_get(document, "cost"), "path")) == 1.113);
  json_decref(document);
}

/* A limit that BP's arrays keep, and those of chunks do not: auto takes BP. */
static void test_memory_limit(void **state) {
  (void)state;
  bppsa_recurrent_config c = config_of(3000, 1, 128);
  bppsa_device *device = cpu_device(1);
  int64_t bp, all;
  c.method.backward = BPPSA_BACKWARD_SPECULATIVE;
  assert_int_equal(bppsa_recurrent_count(&c, &bppsa_lstm_cell, device, &all), BPPSA_OK);
  c.method.backward = BPPSA_BACKWARD_BP;
  assert_int_equal(bppsa_recurrent_count(&c, &bppsa_lstm_cell, device, &bp), BPPSA_OK);
  assert_true(bp < all);
  for (int fits = 0; fits < 2; ++fits) {
    bppsa_model *model = NULL;
    c.method.backward = BPPSA_BACKWARD_AUTO;
    c.memory_limit = fits ? all : all - 1;
    assert_int_equal(bppsa_recurrent_create(&c, &bppsa_lstm_cell, device, &model), BPPSA_OK);
    assert_int_equal(bppsa_backward_plan_of(model) != NULL, fits);
    bppsa_model_destroy(model);
  }
  bppsa_device_destroy(device);
}

/* All of BP, the scans and speculative BP, each once. */
static void test_candidates(void **state) {
  (void)state;
  bppsa_recurrent_config c = config_of(2000, 1, 128);
  bppsa_recurrent_candidate found = {.seconds = -1};
  bool more = true;
  int64_t count = 0, scans = 0;
  double bp = 0;
  for (; more; ++count) {
    assert_int_equal(bppsa_recurrent_find_candidate(&c, &bppsa_gru_cell, BPPSA_CPU, count, &found, &more), BPPSA_OK);
    bp = count == 0 ? found.seconds : bp;
    scans += more && found.method.backward == BPPSA_BACKWARD_SCAN;
    assert_true(count > 0 || found.method.backward == BPPSA_BACKWARD_BP);
  }
  assert_int_equal(found.method.backward, BPPSA_BACKWARD_SPECULATIVE); /* the last one stays */
  assert_int_equal(count - 1, scans + 2);
  assert_true(scans > 5 && found.seconds > 0 && found.seconds < bp && found.held == 0);
  assert_int_equal(bppsa_recurrent_find_candidate(&c, &bppsa_gru_cell, BPPSA_CPU, 1000, &found, &more), BPPSA_OK);
  assert_false(more);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_choice),        cmocka_unit_test(test_not_chosen),     cmocka_unit_test(test_order),
      cmocka_unit_test(test_gpu),           cmocka_unit_test(test_teams_on_gpu),   cmocka_unit_test(test_fails),
      cmocka_unit_test(test_pauses),        cmocka_unit_test(test_choice_on_gpu),  cmocka_unit_test(test_fallback),
      cmocka_unit_test(test_limit_of_scan), cmocka_unit_test(test_warm_up_on_gpu), cmocka_unit_test(test_texts),
      cmocka_unit_test(test_memory_limit),  cmocka_unit_test(test_candidates)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
