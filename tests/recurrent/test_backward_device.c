/* The parallel backward pass on a device (recurrent/parallel_backward.h): gradients of every cell, type and width of the kernels
 * against float64 and BP's own rounding, every phase, samples that are given up, pauses, recordings. BPPSA_TEST_DEVICE names the
 * device. */
#include "core/compute/graph.h"
#include "tests/recurrent/backward_problem.h"
#include "tests/support/dice.h"

/* Nothing to mend: a chunk and its warm-up are the path. */
static void test_nothing_to_mend(void **state) {
  (void)state;
  for (int kind = 0; kind < CELLS; ++kind) {
    problem p = problem_of(kind, 80, 1, 7, 2, 36 + kind);
    p.network.config.loss_all = true;
    p.network.scale = .2;
    p.network.config.speculation.tolerance = 1e-3;
    const bppsa_backward_stats s = check(&p);
    assert_true(s.speculated && !s.given_up && s.gap <= 1e-3);
    assert_int_equal(s.path, 40 + 36 + kind);
    assert_true(fabs(s.work - (80 + 36. + kind) / 80) < 1e-12);
    assert_int_equal(s.mended + s.rounds, 0);
  }
}

/* Every cell in every type at every width of the kernels, in one direction or two, with samples of their own lengths, the loss on
 * the last step or on all, weights that forget and weights that do not. */
static void test_widths(void **state) {
  (void)state;
  static const int64_t hidden[] = {1, 8, 13, 20, 32};
  int64_t mended = 0, rounds = 0, given_up = 0;
  for (uint64_t i = 0; i < 30; ++i) {
    dice d = {.seed = i};
    int64_t lengths[2];
    problem p = problem_of((int)(i / 5 % 3), roll(&d, 10, 24), roll(&d, 1, 2), hidden[i % 5], roll(&d, 2, 5), roll(&d, 0, 5));
    bppsa_recurrent_config *c = &p.network.config;
    p.network.seed = i + 1;
    p.network.scale = pow(10, (double)roll(&d, -8, 2) / 10);
    c->dtype = i < 15 ? BPPSA_F32 : BPPSA_F64;
    c->input = roll(&d, 1, 2);
    c->layers = roll(&d, 1, 2);
    c->bidirectional = i % 7 == 3;
    c->loss_all = roll(&d, 0, 1) == 1;
    c->lengths = i % 4 == 2;
    c->input_gradients = i % 3 == 0;
    c->nonlinearity = i % 15 < 5 && roll(&d, 0, 2) == 0 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
    for (int64_t b = 0; b < c->batch; ++b) {
      lengths[b] = roll(&d, 1, c->seq_len);
    }
    p.lengths = c->lengths ? lengths : NULL;
    const bppsa_backward_stats s = check(&p);
    assert_true(s.speculated);
    mended += s.mended;
    rounds += s.rounds > 1;
    given_up += s.given_up;
  }
  assert_true(mended > 40 && rounds > (is_gpu() ? 3 : 0) && given_up > 2);
}

/* Units at both ends of each padded width, in every cell and type: a walker's lanes without a unit, and rows with and without
 * padding. */
static void test_edges(void **state) {
  (void)state;
  static const int64_t hidden[] = {2, 16, 17, 31};
  for (uint64_t i = 0; i < 4 * CELLS * 2; ++i) {
    problem p = problem_of((int)(i / 4 % CELLS), 19, 2, hidden[i % 4], 3, (int64_t)(i % 3));
    p.network.seed = 200 + i;
    p.network.scale = .7;
    p.network.config.dtype = i < 4 * CELLS ? BPPSA_F32 : BPPSA_F64;
    p.network.config.loss_all = i % 2 == 0;
    p.network.config.input_gradients = i % 3 == 1;
    assert_true(check(&p).speculated);
  }
}

/* Wide layers, H > 32, likewise: a chunk is walked by one block or by a cluster of two, four, eight or sixteen. One cluster takes a
 * sample through all phases, or rounds are launches of their own. */
static void test_wide(void **state) {
  (void)state;
  static const struct {
    int cell;
    int64_t hidden, steps, chunks, warm_up;
    bool f64, all;
    double scale;
  } cases[] = {
      {RNN, 33, 40, 5, 4, false, true, 1},   {RNN, 64, 30, 10, 3, false, true, 1.2}, {RNN, 40, 36, 6, 3, true, false, 1.3},
      {GRU, 40, 30, 5, 4, false, true, 1},   {GRU, 64, 22, 11, 2, true, false, 1},   {LSTM, 48, 24, 4, 5, false, true, 1},
      {LSTM, 33, 20, 10, 2, true, true, 1},  {RNN, 100, 15, 5, 2, false, true, 1},   {GRU, 128, 14, 7, 1, false, true, 1},
      {LSTM, 65, 12, 4, 2, false, false, 1}, {RNN, 200, 8, 4, 1, false, true, 1},    {GRU, 65, 8, 4, 1, true, true, 1.5},
      {RNN, 300, 6, 3, 1, false, true, 1},   {GRU, 260, 4, 2, 0, false, true, 1}};
  int64_t mended = 0, rounds = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    problem p = problem_of(cases[i].cell, cases[i].steps, 1 + i % 2, cases[i].hidden, cases[i].chunks, cases[i].warm_up);
    bppsa_recurrent_config *c = &p.network.config;
    const int64_t lengths[] = {cases[i].steps / 2 + 1, cases[i].steps};
    p.network.seed = i + 1;
    p.network.scale = cases[i].scale;
    c->dtype = cases[i].f64 ? BPPSA_F64 : BPPSA_F32;
    c->loss_all = cases[i].all;
    c->layers = i < 6 ? 1 + (int64_t)i % 2 : 1;
    c->bidirectional = i == 0 || i == 3;
    c->input_gradients = i % 3 == 0;
    c->lengths = i % 4 == 1 && c->batch == 2;
    p.lengths = c->lengths ? lengths : NULL;
    const bppsa_backward_stats s = check(&p);
    assert_true(s.speculated);
    mended += s.mended;
    rounds = s.rounds > rounds ? s.rounds : rounds;
  }
  assert_true(mended > 20 && rounds > (is_gpu() ? 2 : 0));
}

/* A wide layer's pass does what the CPU's does: the same path where nothing is mended, for warm-ups and chunks of odd and even
 * lengths; where chunks are mended the same rounds, and paths that differ by the two steps at which a difference may stop. */
static void test_wide_paths(void **state) {
  (void)state;
  int64_t mended = 0;
  for (int i = 0; i < 8; ++i) {
    problem p = problem_of(i < 4 ? RNN : i % CELLS, 40 + i, 1, 33, 4, 9 + i / 2);
    p.network.seed = 2 + (uint64_t)i;
    p.network.scale = i < 4 ? .2 : .5;
    p.network.config.loss_all = true;
    p.network.config.speculation.tolerance = i < 4 ? 1e-3 : -1;
    const bppsa_backward_stats s = check(&p);
    gradients g = gradients_on(&p, host, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL);
    assert_true(s.speculated && !s.given_up);
    assert_int_equal(s.rounds, g.stats.rounds);
    assert_int_equal(s.mended, g.stats.mended);
    assert_true(i >= 4 ||
                (s.path == g.stats.path && s.work == g.stats.work && s.mended == 0 && s.path == 9 + i / 2 + (43 + i) / 4));
    assert_true(imaxabs(s.path - g.stats.path) <= 2 * s.rounds);
    mended += s.mended;
    free_gradients(&g);
  }
  assert_true(mended > 4);
}

/* How many teams of a sample form a cluster changes nothing but launches; a GPU without clusters refuses what needs one. */
static void test_wide_clusters(void **state) {
  (void)state;
  static const char *const clusters[] = {"8", "2", "1"};
  bppsa_backward_stats s[3];
  for (int k = 0; k < 3; ++k) {
    problem p = problem_of(RNN, 33, 1, 33, 11, 1);
    p.network.seed = 90;
    assert_int_equal(setenv("SIMT_MOST_CLUSTER", clusters[k], 1), 0);
    s[k] = check(&p);
    assert_true(s[k].path == s[0].path && s[k].work == s[0].work && s[k].rounds == s[0].rounds && s[k].gap == s[0].gap);
    assert_true(s[k].mended == s[0].mended && s[k].given_up == s[0].given_up && s[k].perturbation == s[0].perturbation);
  }
  assert_true(s[0].mended > 5 && s[0].rounds > (is_gpu() ? 4 : 0));
  problem p = problem_of(GRU, 20, 1, 128, 4, 2);
  forward_problem network = p.network;
  bppsa_model *model = NULL;
  const bppsa_status status = bppsa_recurrent_create(&network.config, network.cell, device, &model);
  assert_int_equal(status, is_gpu() ? BPPSA_ERR_UNSUPPORTED : BPPSA_OK);
  assert_true(!is_gpu() || strstr(bppsa_last_error(), "128 units") != NULL);
  bppsa_model_destroy(model);
  assert_int_equal(unsetenv("SIMT_MOST_CLUSTER"), 0);
}

/* Differences of every size at boundaries, from those of no warm-up to those that are just too large, in chunks so short that they
 * go on into the next ones: none may be dropped that shows beside BP's own rounding. */
static void test_boundaries(void **state) {
  (void)state;
  enum { WARM_UPS = 9 };
  for (int kind = 0; kind < CELLS; ++kind) {
    int64_t rounds = 0, mended = 0;
    for (int i = 0; i < WARM_UPS; ++i) {
      problem p = problem_of(kind, 96, 1, 8, 8, 2 * i);
      p.network.config.loss_all = true;
      p.network.seed = 300 + (uint64_t)i;
      const bppsa_backward_stats s = check(&p);
      rounds = s.rounds > rounds ? s.rounds : rounds;
      mended += s.mended;
    }
    assert_true(mended >= 7 * WARM_UPS / 2 && rounds >= (is_gpu() ? 2 : 1));
  }
}

/* More chunks than a sample has warps, in clusters of several sizes and on GPUs with few multiprocessors: warps take them in turn,
 * and what a pass did is the same. Rounds, the tail, and samples that are given up. */
static void test_many_chunks(void **state) {
  (void)state;
  static const struct {
    int64_t chunks, length, warm_up, hidden;
    int cell;
    double scale;
    bool all, f64;
  } cases[] = {{9, 6, 3, 7, RNN, 1.2, true, false},   {20, 2, 0, 7, GRU, 1, true, false}, {18, 2, 1, 5, LSTM, 1, false, true},
               {66, 1, 0, 5, RNN, 1.1, false, false}, {12, 3, 2, 9, GRU, 3, false, true}, {10, 4, 1, 6, RNN, 6, true, false}};
  static const char *const clusters[] = {"1", "8"};
  int64_t rounds = 0, given_up = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    bppsa_backward_stats s[2];
    for (size_t k = 0; k < 2; ++k) {
      problem p =
          problem_of(cases[i].cell, cases[i].chunks * cases[i].length, 1, cases[i].hidden, cases[i].chunks, cases[i].warm_up);
      p.network.seed = 80 + i;
      p.network.scale = cases[i].scale;
      p.network.config.dtype = cases[i].f64 ? BPPSA_F64 : BPPSA_F32;
      p.network.config.loss_all = cases[i].all;
      assert_int_equal(setenv("SIMT_MOST_CLUSTER", clusters[k], 1), 0);
      assert_int_equal(setenv("SIMT_MULTIPROCESSORS", k == 1 ? "132" : "4", 1), 0);
      s[k] = check(&p);
      assert_int_equal(unsetenv("SIMT_MOST_CLUSTER"), 0);
      assert_int_equal(unsetenv("SIMT_MULTIPROCESSORS"), 0);
      assert_true(s[k].path == s[0].path && s[k].work == s[0].work && s[k].rounds == s[0].rounds);
      assert_true(s[k].mended == s[0].mended && s[k].gap == s[0].gap && s[k].given_up == s[0].given_up);
    }
    rounds = s[0].rounds > rounds ? s[0].rounds : rounds;
    given_up += s[0].given_up;
  }
  assert_true(rounds >= (is_gpu() ? 9 : 2) && given_up > 0);
}

/* Chunks that a round leaves as they are, while others are mended: their ends are still needed, by chunks in front that later
 * rounds mend, and as the gradient of h0. The first chunk's gradients are much larger than others, or any part's are. */
static void test_kept(void **state) {
  (void)state;
  enum { CHUNKS = 5, LENGTH = 24, STEPS = CHUNKS * LENGTH, PROBLEMS = 3 };
  int64_t rounds = 0, kept = 0;
  for (int i = 0; i < 2 * CELLS * PROBLEMS; ++i) {
    const bool first = i % PROBLEMS == 0;
    dice d = {.seed = 400 + (uint64_t)i};
    double louder[STEPS];
    problem p = problem_of(i / PROBLEMS % CELLS, STEPS, 1 + i % 2, i < CELLS * PROBLEMS ? 33 : 6, CHUNKS, 3);
    for (int64_t t = 0, power = 0; t < STEPS; ++t) {
      power = t % (LENGTH / 2) == 0 ? roll(&d, 0, 5) : power;
      louder[t] = pow(10, (double)(!first ? power : t < LENGTH ? 8 : 0));
    }
    p.louder = louder;
    p.network.seed = 400 + (uint64_t)i;
    p.network.scale = .6;
    p.network.config.loss_all = true;
    p.network.config.input_gradients = true;
    const bppsa_backward_stats s = check(&p);
    assert_true(s.speculated);
    kept += first && s.mended > 0 && !s.given_up;
    rounds = s.rounds > rounds ? s.rounds : rounds;
  }
  assert_true(kept == 2 * CELLS && rounds > (is_gpu() ? 1 : 0));
}

/* What a pass measures is what the CPU's measures: the scale of a chunk is the mean of its gradients or of its latest ones, of all
 * its units and of both numbers of a pair, without its warm-up; a difference stops where it is small beside the least mean. */
static void test_measures(void **state) {
  (void)state;
  enum { CHUNKS = 4, LENGTH = 24, STEPS = CHUNKS * LENGTH, PROBLEMS = 6, GROUP = CELLS * PROBLEMS };
  static const int64_t hidden[PROBLEMS] = {33, 48, 64, 7, 20, 32};
  int64_t mended = 0, stopped = 0;
  for (int k = 0; k < 3 * GROUP; k += k < 2 * GROUP ? 1 : PROBLEMS / 2) { /* some of the first group in f64 too */
    const int i = k % (2 * GROUP);
    const bool stops = i >= GROUP, wide = i % PROBLEMS < 3;
    const bppsa_dtype dtype = k < 2 * GROUP ? BPPSA_F32 : BPPSA_F64;
    dice d = {.seed = 500 + (uint64_t)i};
    double louder[STEPS];
    problem p = problem_of(i / PROBLEMS % CELLS, STEPS, 1, hidden[i % PROBLEMS], CHUNKS, stops ? 2 : 5);
    for (int64_t t = 0, power = 0; t < STEPS; ++t) {
      power = t % 4 == 0 ? roll(&d, -8, 8) : power;
      louder[t] = stops ? (t % LENGTH < LENGTH / 2 ? 1e-4 : 1) : pow(10, (double)power / 10);
    }
    p.louder = louder;
    p.network.seed = 500 + (uint64_t)i;
    p.network.scale = !stops ? .6 : i / PROBLEMS % CELLS == RNN ? .5 : .3;
    p.network.config.loss_all = true;
    p.network.config.speculation.tolerance = stops ? -1 : dtype == BPPSA_F32 ? .03 : .1;
    gradients found = gradients_on(&p, device, dtype, BPPSA_BACKWARD_SPECULATIVE, NULL),
              cpu = gradients_on(&p, host, dtype, BPPSA_BACKWARD_SPECULATIVE, NULL);
    const bppsa_backward_stats s = found.stats, t = cpu.stats;
    assert_true(s.speculated && s.given_up == t.given_up && s.rounds == t.rounds && s.mended == t.mended);
    assert_true(s.path >= t.path && s.path - t.path <= (wide ? 4 : 8) * s.rounds); /* it looks at fewer steps */
    if (!stops) {
      const bool same = wide || dtype == BPPSA_F32; /* otherwise a scale's mean is of four steps, on a CPU of eight */
      assert_true(!same || fabs(s.gap - t.gap) <= 1e-3 * t.gap);
      assert_true(fabs(s.perturbation - t.perturbation) <= 1e-3 * t.perturbation);
      assert_true(error_of(&found, &cpu) <= 1e-5);
    }
    mended += s.mended;
    stopped += s.gap == 0 && s.perturbation > 0; /* nothing was dropped but where walks stopped */
    free_gradients(&found);
    free_gradients(&cpu);
  }
  assert_true(mended > 20 && stopped > 2);
}

/* Passes are given up after a round, and three of them in a row make the next ones BP. */
static void test_pauses(void **state) {
  (void)state;
  check_pauses(0, 60, 1);
}

/* During a pause a wide layer's pass is BP too, with its bits. */
static void test_wide_pause(void **state) {
  (void)state;
  for (int kind = 0; kind < CELLS; kind += 2) {
    const bppsa_backward_state paused = {.pause = {3, 1}};
    problem p = problem_of(kind, 24, 2, 33, 4, 3), bp = p;
    bppsa_backward_state after;
    net n = open_net(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL);
    gradients expected = gradients_on(&bp, device, BPPSA_F32, BPPSA_BACKWARD_BP, n.model);
    assert_int_equal(bppsa_backward_state_set(n.model, &paused), BPPSA_OK);
    gradients found = pass(&n);
    assert_true(!found.stats.speculated && found.stats.path == 24 && found.stats.work == 1 && same_numbers(&found, &expected));
    assert_int_equal(bppsa_backward_state_get(n.model, &after), BPPSA_OK);
    assert_true(after.pause.failures == 3 && after.pause.left == 0);
    free_gradients(&found);
    found = pass(&n);
    assert_true(found.stats.speculated);
    free_gradients(&found);
    free_gradients(&expected);
    close_net(&n);
  }
}

/* Passes of a network that forgets slowly lengthen W, those of one that forgets quickly shorten it, without the host. What a pass
 * computes depends on the state alone. Two layers: all of a pass counts. */
static void test_warm_ups(void **state) {
  (void)state;
  enum { PASSES = 4 };
  static const struct { double scale, tolerance; } cases[] = {{.8, 2.4e-7}, {.1, 1e-4}};
  for (int k = 0; k < 2; ++k) {
    problem p = problem_of(RNN, 180, 2, 6, 3, -1);
    p.network.config.loss_all = true;
    p.network.config.layers = 2;
    p.network.config.speculation.adapts = true;
    p.network.config.speculation.tolerance = cases[k].tolerance;
    p.network.orthogonal = true;
    p.network.scale = cases[k].scale;
    net n = open_net(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL);
    net again = open_net(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, n.model);
    bppsa_backward_state first = {.warm_up = 0}, last = first;
    int64_t longest = 0;
    assert_true(bppsa_backward_plan_of(n.model)->adapts);
    for (int i = 0; i < PASSES; ++i) {
      first = last;
      gradients g = pass(&n);
      assert_int_equal(bppsa_backward_state_get(n.model, &last), BPPSA_OK);
      const int64_t before = first.warm_up > 0 ? first.warm_up : bppsa_backward_plan_of(n.model)->warm_up;
      assert_true(!g.stats.given_up && (g.stats.mended > 0 ? last.warm_up >= before : last.warm_up < before));
      longest = last.warm_up > longest ? last.warm_up : longest;
      if (i + 1 == PASSES) {
        assert_int_equal(bppsa_backward_state_set(again.model, &first), BPPSA_OK);
        gradients same = pass(&again);
        assert_true(same_numbers(&g, &same) && g.stats.path == same.stats.path);
        free_gradients(&same);
      }
      free_gradients(&g);
    }
    assert_true(k == 0 ? longest > 40 && longest <= 60 : !is_gpu() || last.warm_up == 40 - PASSES); /* up to a chunk */
    close_net(&n);
    close_net(&again);
  }
}

/* With tolerance 0 every pass is BP, bit for bit. */
static void test_exact(void **state) {
  (void)state;
  for (int kind = 0; kind < CELLS; ++kind) {
    problem p = problem_of(kind, 40, 2, 5, 4, 3);
    p.network.config.speculation.tolerance = 0;
    p.network.config.input_gradients = true;
    gradients found = gradients_on(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL),
              bp = gradients_on(&p, device, BPPSA_F32, BPPSA_BACKWARD_BP, NULL);
    assert_true(same_numbers(&found, &bp) && !found.stats.speculated && !found.plan.speculative);
    free_gradients(&found);
    free_gradients(&bp);
  }
}

/* Where gradients of x must be exact, a pass is BP if the loss misses a step. That is no pause. */
static void test_exact_inputs(void **state) {
  (void)state;
  for (int misses = 0; misses < 4; ++misses) { /* no step; step 7; all but the last ones; what is behind a sample's end */
    static const int64_t lengths[] = {7, 30};
    problem p = problem_of(RNN, 40, 2, 4, 4, 6);
    p.network.config.loss_all = misses != 2;
    p.network.config.input_gradients = true;
    p.network.config.speculation.exact_inputs = true;
    p.network.scale = .2;
    p.missed = misses == 1 || misses == 3 ? 7 : -1;
    p.network.config.lengths = misses == 3;
    p.lengths = misses == 3 ? lengths : NULL;
    const bppsa_backward_stats s = check(&p);
    assert_int_equal(s.speculated, misses == 0 || misses == 3);
    assert_int_equal(s.given_up, false);
    assert_true(s.speculated || (s.path == 40 && s.work == 1));
  }
}

static bppsa_status queue_pass(void *context) {
  const net *n = context;
  return n->model->ops->backward(n->model, &n->seed);
}

/* A recording replays with the same bits, and counts. */
static void test_recording(void **state) {
  (void)state;
  if (!is_gpu()) {
    return;
  }
  problem p = problem_of(LSTM, 60, 2, 5, 6, 4);
  p.network.config.loss_all = true;
  net n = open_net(&p, device, BPPSA_F32, BPPSA_BACKWARD_SPECULATIVE, NULL);
  gradients first = pass(&n);
  bppsa_graph *graph = NULL;
  bppsa_backward_stats s;
  assert_int_equal(bppsa_graph_capture(device, queue_pass, &n, &graph), BPPSA_OK);
  assert_int_equal(bppsa_graph_launch(device, graph), BPPSA_OK);
  assert_int_equal(bppsa_model_pull(n.model, true), BPPSA_OK);
  for (int64_t i = 0; i < first.count; ++i) {
    for (int64_t j = 0; j < first.sizes[i]; ++j) {
      assert_true(bppsa_view_get(&n.model->parameters[i].gradient, j) == first.of[i][j]);
    }
  }
  assert_int_equal(bppsa_backward_stats_of(n.model, &s), BPPSA_OK);
  assert_true(s.speculated && s.path == first.stats.path && s.mended == first.stats.mended && s.mended > 0);
  bppsa_graph_destroy(device, graph);
  free_gradients(&first);
  close_net(&n);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nothing_to_mend), cmocka_unit_test(test_widths),     cmocka_unit_test(test_edges),
      cmocka_unit_test(test_boundaries),      cmocka_unit_test(test_wide),       cmocka_unit_test(test_wide_paths),
      cmocka_unit_test(test_wide_clusters),   cmocka_unit_test(test_wide_pause), cmocka_unit_test(test_warm_ups),
      cmocka_unit_test(test_many_chunks),     cmocka_unit_test(test_kept),       cmocka_unit_test(test_measures),
      cmocka_unit_test(test_pauses),          cmocka_unit_test(test_exact),      cmocka_unit_test(test_exact_inputs),
      cmocka_unit_test(test_recording)};
  return setenv("SIMT_MOST_SHARED", H200_SHARED, 1) == 0 ? cmocka_run_group_tests(tests, open_devices, close_devices) : 1;
}
