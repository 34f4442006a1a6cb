/* NaN and infinity on both sides of a step in front of which samples begin anew, on a device: what one episode has does not reach
 * another one. Zeros, or the learned state, are written and not multiplied. BPPSA_TEST_DEVICE names the device. */
#include "tests/recurrent/resets_device.h"

enum { CUT = 13, WIDER_THAN_A_BLOCK = 130 }; /* up to 128 units of an RNN one block has room for its kernels of wide layers */

/* Cuts all samples in front of step `cut`, and some elsewhere. NaN (or inf) in x, or in the seed, of a step on one side leaves the
 * other side as it is. */
static void check_cut(problem *p, int64_t cut, int64_t step, double bad) {
  const bool later = step >= cut;
  const int64_t of_x = p->batch * p->config.input, of_seed = p->batch * p->config.classes;
  uint8_t *mask = draw_mask(p, .05, (uint64_t)step);
  memset(mask + cut * p->batch, 1, (size_t)p->batch);
  p->resets = mask;
  bppsa_model *model = open_model(p);
  outcome clean = compute(p, model);
  double *spoiled = later ? p->seed + step * of_seed : p->x + step * of_x;
  const double good = *spoiled;
  *spoiled = bad;
  outcome found = compute(p, model);
  *spoiled = good;
  for (int v = 0; v < 2; ++v) {
    const int64_t width = v == 0 ? of_seed : of_x, first = later ? 0 : cut, end = later ? cut : p->config.seq_len;
    assert_memory_equal(found.numbers + found.where[v] + first * width, clean.numbers + clean.where[v] + first * width,
                        (size_t)((end - first) * width) * sizeof(double));
  }
  assert_true(!isfinite(found.numbers[found.where[1] + (later ? step : 0) * of_x]) || !later);
  bppsa_free(clean.numbers);
  bppsa_free(found.numbers);
  bppsa_model_destroy(model);
  bppsa_free(mask);
}

static void check_side(problem *p, int64_t step, double bad) {
  check_cut(p, CUT, step, bad);
}

static void test_nan(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * WAYS * 4; ++k) {
    const int shape = k / CELLS / WAYS % 2 == 0 ? 5 : 10;
    problem p = problem_of(k % CELLS, shape, k % 2 == 0 ? BPPSA_F32 : BPPSA_F64);
    use_way(&p, &ways[k / CELLS % WAYS]);
    p.config.bidirectional = false;
    p.config.layers = 1;
    p.config.input_gradients = true;
    const bool pairs =
        k % CELLS == LSTM && ways[k / CELLS % WAYS].chunks == 6; /* whose products of chunks have kernels of their own */
    if (!is_drawn(5) && !pairs) {
      continue;
    }
    p.config.hidden = pairs ? 9 : p.config.hidden;
    p.config.reset_state = k / CELLS % 2 == 1;
    make_numbers(&p, (uint64_t)k);
    const double bad = k / CELLS / WAYS / 2 == 0 ? (double)NAN : (double)INFINITY;
    check_side(&p, CUT, bad);
    check_side(&p, p.config.seq_len - 1 - k % 7, bad);
    check_side(&p, CUT - 1 - k % CUT, bad);
    free_numbers(&p);
  }
}

/* Every form of a round, in every kernel of a sequential pass: a cut in the middle of many steps, in the first and in the last
 * rounds, for layers of a warp, of a cluster and of neither; and what a scan multiplies. */
static void test_rounds(void **state) {
  (void)state;
  static const int64_t hidden[] = {9, 33}, cuts[] = {2, 17, 38};
  enum { WIDTHS = sizeof hidden / sizeof *hidden, CUTS = sizeof cuts / sizeof *cuts, SCANS = 3 };
  for (int k = 0; k < CELLS * (WIDTHS + SCANS) * CUTS; ++k) {
    const int at = k / CELLS / CUTS;
    const int64_t cut = cuts[k / CELLS % CUTS];
    problem p = problem_of(k % CELLS, 10, k % 2 == 0 ? BPPSA_F32 : BPPSA_F64);
    use_way(&p, &ways[at < WIDTHS ? 0 : at - WIDTHS + WAYS - SCANS]);
    p.config.seq_len = 40;
    p.config.hidden = at < WIDTHS ? hidden[at] : 9;
    p.config.loss_all = true;
    make_numbers(&p, (uint64_t)k);
    check_cut(&p, cut, cut, (double)NAN);
    check_cut(&p, cut, cut - 1, (double)NAN);
    if (at >= WIDTHS) { /* NaN comes to the cut from a chunk behind its own */
      check_cut(&p, cut, p.config.seq_len - 1, (double)NAN);
    }
    free_numbers(&p);
  }
}

/* The last state of an episode is infinite. It is none of the states that the gradient of W_hh multiplies. */
static void test_infinite_state(void **state) {
  (void)state;
  for (int k = 0; k < WAYS * 2; ++k) {
    problem p = problem_of(RNN, 2, BPPSA_F32);
    use_way(&p, &ways[k / 2]);
    p.config.nonlinearity = BPPSA_NONLINEARITY_RELU;
    p.config.hidden = k % 2 == 0 ? 9 : 33;
    p.config.layers = 1;
    make_numbers(&p, (uint64_t)k);
    uint8_t *mask = bppsa_calloc(p.config.seq_len * p.batch, 1);
    assert_non_null(mask);
    memset(mask + CUT * p.batch, 1, (size_t)p.batch);
    p.resets = mask;
    p.x[(CUT - 1) * p.batch * p.config.input] = (double)INFINITY;
    bppsa_model *model = open_model(&p);
    outcome found = compute(&p, model);
    int64_t at = found.where[3];
    bool infinite = false;
    for (int64_t i = 0; i < model->parameter_count; ++i) {
      const int64_t end = at + bppsa_view_count(&model->parameters[i].gradient);
      for (; at < end; ++at) {
        assert_true(isfinite(found.numbers[at]) || strstr(model->parameters[i].name, "weight_hh") == NULL);
        infinite |= !isfinite(found.numbers[at]);
      }
    }
    assert_true(infinite); /* elsewhere */
    bppsa_free(found.numbers);
    bppsa_model_destroy(model);
    bppsa_free(mask);
    free_numbers(&p);
  }
}

/* What the loss injects into the last state of an episode is none of the gradient of the state from which the next one begins. */
static void test_injected_nan(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * WAYS * 2; ++k) {
    problem p = problem_of(k % CELLS, k / CELLS / WAYS == 0 ? 2 : 10, k % 2 == 0 ? BPPSA_F32 : BPPSA_F64);
    use_way(&p, &ways[k / CELLS % WAYS]);
    p.config.layers = 1;
    p.config.reset_state = true;
    make_numbers(&p, (uint64_t)k);
    uint8_t *mask = bppsa_calloc(p.config.seq_len * p.batch, 1);
    assert_non_null(mask);
    memset(mask + CUT * p.batch, 1, (size_t)p.batch);
    p.resets = mask;
    bppsa_model *model = open_model(&p);
    const int64_t count = bppsa_view_count(&model->parameters[0].value);
    outcome clean = compute(&p, model);
    p.seed[(CUT - 1) * p.batch * p.config.classes] = k % 3 == 0 ? (double)INFINITY : (double)NAN;
    outcome found = compute(&p, model);
    assert_memory_equal(found.numbers + found.where[3], clean.numbers + clean.where[3], (size_t)count * sizeof(double));
    assert_true(!isfinite(found.numbers[found.where[4] - p.config.classes])); /* the head's bias */
    bppsa_free(clean.numbers);
    bppsa_free(found.numbers);
    bppsa_model_destroy(model);
    bppsa_free(mask);
    free_numbers(&p);
  }
}

/* The same for every step behind the cut, so that some product of products has NaN on its left side and a cut on its right one. */
static void test_joins(void **state) {
  (void)state;
  problem p = problem_of(RNN, 9, BPPSA_F64);
  use_way(&p, &ways[3]);
  p.state = true;
  make_numbers(&p, 6);
  for (int64_t step = CUT; step < 50; ++step) {
    check_side(&p, step, (double)NAN);
  }
  free_numbers(&p);
}

/* What runs where a device has no room for the kernels of wide layers. */
static void test_fallback(void **state) {
  (void)state;
  set_most("SIMT_MOST_CLUSTER", "1");
  for (int k = 0; k < CELLS; ++k) {
    problem p = problem_of(k, WIDEST, k == LSTM ? BPPSA_F64 : BPPSA_F32);
    use_way(&p, &ways[0]);
    p.config.hidden = k == RNN ? WIDER_THAN_A_BLOCK : p.config.hidden;
    make_numbers(&p, (uint64_t)k);
    check_side(&p, CUT - 1, (double)NAN);
    free_numbers(&p);
    check_shape(k, WIDEST, k == LSTM ? BPPSA_F64 : BPPSA_F32, &ways[0], .2, (uint64_t)k);
    check_learned(k, WIDEST, k == LSTM ? BPPSA_F32 : BPPSA_F64, &ways[0], .2, (uint64_t)k);
  }
  set_most("SIMT_MOST_CLUSTER", NULL);
}

/* A sample that begins anew in front of the first step: its h0 is not read, and has the gradient 0. */
static void test_start(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * WAYS; ++k) {
    problem p = problem_of(k % CELLS, k % 2 == 0 ? 6 : 2, BPPSA_F64);
    use_way(&p, &ways[k / CELLS]);
    bppsa_nonfinite where;
    make_numbers(&p, (uint64_t)k);
    uint8_t mask[32 * MOST] = {0, 1};
    for (int64_t i = 0; i < p.config.layers * p.batch * state_size(&p); ++i) {
      p.h0[i] = i / state_size(&p) % p.batch == 1 ? (double)NAN : p.h0[i];
    }
    p.resets = mask;
    bppsa_model *model = open_model(&p);
    bppsa_view logits, held[3];
    pass(&p, model, device, &logits, held);
    assert_false(model->ops->find_nonfinite(model, &where));
    drop(device, held);
    outcome o = compute(&p, model);
    for (int64_t i = o.where[2]; i < o.where[3]; ++i) {
      assert_int_equal(o.numbers[i] == 0, (i - o.where[2]) / state_size(&p) % p.batch == 1);
    }
    bppsa_free(o.numbers);
    bppsa_model_destroy(model);
    free_numbers(&p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nan),          cmocka_unit_test(test_rounds), cmocka_unit_test(test_infinite_state),
      cmocka_unit_test(test_injected_nan), cmocka_unit_test(test_joins),  cmocka_unit_test(test_fallback),
      cmocka_unit_test(test_start)};
  return cmocka_run_group_tests(tests, open_devices, close_devices);
}
