/* Links, contention, issue overhead, hybrid data parallelism, Chimera's model, SpecTrain's differences, scale, memory running out.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "core/base/alloc.h"
#include "schedule/schedule.h"

static bppsa_schedule_config sized(int64_t d, int64_t n) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  config.stages = d;
  config.micro_batches = n;
  return config;
}

static double makespan(const char *scheme, const bppsa_schedule_config *config) {
  bppsa_schedule *list = NULL;
  bppsa_schedule_times times;
  assert_int_equal(bppsa_schedule_create(scheme, config, &list), BPPSA_OK);
  assert_int_equal(bppsa_schedule_validate(list), BPPSA_OK);
  assert_int_equal(bppsa_schedule_simulate(list, &times), BPPSA_OK);
  const double found = times.makespan;
  bppsa_schedule_times_free(&times);
  bppsa_schedule_destroy(list);
  return found;
}

static void check(double found, double expected) {
  if (fabs(found - expected) > 1e-9 * fmax(1, fabs(expected))) {
    fail_msg("%.17g, expected %.17g", found, expected);
  }
}

/* One micro-batch through D stages and back: 2 (D - 1) messages of alpha + beta L. */
static void test_links(void **state) {
  (void)state;
  for (int64_t d = 1; d <= 8; ++d) {
    bppsa_schedule_config config = sized(d, 1);
    config.alpha = 0.5;
    config.beta = 0.25;
    config.uniform[BPPSA_COST_MESSAGE] = 3;
    check(makespan("gpipe", &config), (double)(3 * d) + 2 * (double)(d - 1) * (0.5 + 0.25 * 3));
  }
}

/* Two micro-batches that take no time go over one link. With ports or one network they wait for each other; without contention
 * they do not. On the way back they come one by one too. */
static void test_contention(void **state) {
  (void)state;
  bppsa_schedule_config config = sized(2, 4);
  memset(config.uniform, 0, sizeof config.uniform);
  config.alpha = 1;
  config.contention = BPPSA_CONTENTION_NONE;
  check(makespan("gpipe", &config), 2);
  config.contention = BPPSA_CONTENTION_PORT; /* the last arrives at 4; the first backward pass waits for it on the last stage */
  check(makespan("gpipe", &config), 8);
  config.contention = BPPSA_CONTENTION_NETWORK;
  check(makespan("gpipe", &config), 8);
  config.stages = 3;
  config.contention = BPPSA_CONTENTION_PORT;
  const double ports = makespan("gpipe", &config);
  config.contention = BPPSA_CONTENTION_NETWORK; /* 16 messages through one */
  check(makespan("gpipe", &config), 16);
  assert_true(ports < 16);
}

/* A device waits for its kernels to be issued; a graph is issued once. (ooo-backprop, section 4.2) */
static void test_issue(void **state) {
  (void)state;
  bppsa_schedule_config config = sized(1, 1);
  config.layers = 10;
  config.split = BPPSA_SPLIT_IW;
  check(makespan("model-parallel", &config), 30);
  config.issue_overhead = 2; /* F, I and W of 10 layers and the update: 31 kernels, of which the last takes no time */
  check(makespan("model-parallel", &config), 62);
  config.precompiled = true;
  check(makespan("model-parallel", &config), 32);
}

/* Rabenseifner: 2 log2(r) alpha + 2 (r - 1) beta L / r, behind the last backward pass of each stage. */
static void test_hybrid(void **state) {
  (void)state;
  for (int64_t width = 2; width <= 8; width *= 2) {
    bppsa_schedule_config config = sized(1, 3);
    config.width = width;
    config.alpha = 0.5;
    config.beta = 0.25;
    config.uniform[BPPSA_COST_GRADIENT] = 6;
    const double r = (double)width;
    for (int sync = BPPSA_SYNC_POST; sync <= BPPSA_SYNC_EAGER_OPT; ++sync) {
      config.sync = (bppsa_schedule_sync)sync;
      check(makespan("1f1b", &config), 9 + 2 * log2(r) * 0.5 + 2 * (r - 1) * 0.25 * 6 / r);
    }
  }
}

/* eager hides synchronisation in bubbles; post does it after all computation. */
static void test_synchronisation(void **state) {
  (void)state;
  bppsa_schedule_config config = sized(8, 8);
  config.uniform[BPPSA_COST_SYNC] = 2;
  config.sync = BPPSA_SYNC_POST;
  const double post = makespan("chimera", &config);
  config.sync = BPPSA_SYNC_EAGER;
  const double eager = makespan("chimera", &config);
  config.sync = BPPSA_SYNC_EAGER_OPT;
  const double opt = makespan("chimera", &config);
  assert_true(eager < post && opt < post && eager <= opt);
}

/* B_t = 3 F_t with recomputation; activations then live for one backward pass. */
static void test_recompute(void **state) {
  (void)state;
  for (int64_t d = 1; d <= 8; ++d) {
    bppsa_schedule_config config = sized(d, 6);
    config.recompute = true;
    bppsa_schedule *list = NULL;
    bppsa_schedule_times times;
    assert_int_equal(bppsa_schedule_create("gpipe", &config, &list), BPPSA_OK);
    assert_int_equal(bppsa_schedule_simulate(list, &times), BPPSA_OK);
    check(times.makespan, (double)(4 * (6 + d - 1)));
    for (int64_t w = 0; w < d; ++w) {
      check(times.worker[w].peak_activations, 1);
    }
    bppsa_schedule_times_free(&times);
    bppsa_schedule_destroy(list);
  }
}

/* D = 6: C_f = 6 and C_b = 10, 26 units. With links the model is within 10 % of the simulation, as the paper claims for its
 * machines. */
static void test_model(void **state) {
  (void)state;
  for (int64_t d = 2; d <= 16; d += 2) {
    bppsa_schedule_config config = sized(d, d);
    for (int links = 0; links <= 1; ++links) {
      bppsa_schedule *list = NULL;
      double time = 0;
      int64_t forward = 0, backward = 0;
      config.alpha = links * 0.05;
      assert_int_equal(bppsa_schedule_create("chimera", &config, &list), BPPSA_OK);
      assert_int_equal(bppsa_schedule_model(list, &time, &forward, &backward), BPPSA_OK);
      assert_int_equal(forward, d);
      assert_int_equal(backward, 2 * d - 2);
      const double simulated = makespan("chimera", &config);
      assert_true(fabs(time - simulated) <= (links != 0 ? 0.1 : 1e-12) * simulated);
      bppsa_schedule_destroy(list);
    }
  }
}

/* Equation 1, (F_t + p2p) C_f + (B_t + p2p) C_b + unoverlapped, by hand: D = N = 4, F_t = 1, B_t = 2, alpha = 0.5, beta = 0.25.
 *
 * C_f = 4 and C_b = 6 (without links 4 + 2 * 6 = 16 units). A message of 2 words: p2p = 0.5 + 0.25 * 2 = 1.
 * A stage's 4 words of gradients are added over the r = 2 pipelines: 2 log2(r) alpha + 2 (r - 1) beta 4 / r = 1 + 1 = 2.
 * Workers 0 and 3 hold stages 0 and 3 of both pipelines and end their last pass at 16, a backward pass of stage 0. Synchronised
 * after all passes, the two stages end at 16 + 2 + 2: 4 are not overlapped. Synchronised eagerly, stage 3 ends while passes go on,
 * and the 2 of stage 0 are left.
 * post: (1 + 1) 4 + (2 + 1) 6 + 4 = 30; eager: 28. */
static void test_model_by_hand(void **state) {
  (void)state;
  static const bppsa_schedule_sync ways[] = {BPPSA_SYNC_POST, BPPSA_SYNC_EAGER, BPPSA_SYNC_EAGER_OPT};
  static const double expected[] = {30, 28, 28};
  for (int way = 0; way < 3; ++way) {
    bppsa_schedule_config config = sized(4, 4);
    bppsa_schedule *list = NULL;
    int64_t forward = 0, backward = 0;
    double time = 0;
    config.alpha = 0.5;
    config.beta = 0.25;
    config.uniform[BPPSA_COST_MESSAGE] = 2;
    config.uniform[BPPSA_COST_GRADIENT] = 4;
    config.sync = ways[way];
    assert_int_equal(bppsa_schedule_create("chimera", &config, &list), BPPSA_OK);
    assert_int_equal(bppsa_schedule_model(list, &time, &forward, &backward), BPPSA_OK);
    assert_int_equal(forward, 4);
    assert_int_equal(backward, 6);
    assert_true(fabs(time - expected[way]) < 1e-12);
    bppsa_schedule_destroy(list);
  }
}

/* A backward pass that has a cost of its own, however little, is not the sum of its two gradients: 6 · 1 + 4 · 0.5. */
static void test_model_of_backward(void **state) {
  (void)state;
  bppsa_schedule_config config = sized(4, 4);
  bppsa_schedule *list = NULL;
  int64_t forward = 0, backward = 0;
  double time = 0;
  config.uniform[BPPSA_COST_BACKWARD] = 0.5;
  assert_int_equal(bppsa_schedule_create("chimera", &config, &list), BPPSA_OK);
  assert_int_equal(bppsa_schedule_model(list, &time, &forward, &backward), BPPSA_OK);
  assert_int_equal(forward, 6);
  assert_int_equal(backward, 4);
  check(time, 8);
  bppsa_schedule_destroy(list);
}

/* Costs that are given layer by layer: sums over stages, and the longest message between two of them. */
static void test_model_of_layers(void **state) {
  (void)state;
  static const double halves[] = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, uneven[] = {0.25, 0.75, 0.75, 0.25, 0.5, 0.5, 0, 1},
                      words[] = {7, 1, 7, 3, 7, 2, 7, 7}; /* the stages end with layers 1, 3, 5 and 7 */
  double times[3];
  for (int way = 0; way < 3; ++way) {
    bppsa_schedule_config config = sized(4, 4);
    bppsa_schedule *list = NULL;
    int64_t forward = 0, backward = 0;
    config.layers = 8;
    config.alpha = 0.125;
    config.beta = 0.0625;
    for (int cost = BPPSA_COST_FORWARD; cost <= BPPSA_COST_WEIGHT_GRAD; ++cost) {
      config.uniform[cost] = way == 0 ? 0.5 : 1;
      config.cost[cost] = way == 0 ? NULL : way == 1 ? halves : uneven;
      config.rows[cost] = way == 0 ? 0 : 8;
    }
    config.uniform[BPPSA_COST_MESSAGE] = 3;
    config.cost[BPPSA_COST_MESSAGE] = way == 2 ? words : NULL;
    config.rows[BPPSA_COST_MESSAGE] = way == 2 ? 8 : 0;
    assert_int_equal(bppsa_schedule_create("chimera", &config, &list), BPPSA_OK);
    assert_int_equal(bppsa_schedule_model(list, &times[way], &forward, &backward), BPPSA_OK);
    bppsa_schedule_destroy(list);
  }
  assert_true(fabs(times[1] - times[0]) <= 1e-12 * times[0]);
  assert_true(fabs(times[2] - times[0]) <= 1e-12 * times[0]);
}

/* s_F = floor(k/2) + N - k - 1 and s_B = floor(k/2) of GPU k of N, once the pipeline is full and before it drains, when every pass
 * takes one unit; the versions on the operations are those, whatever passes take. */
static void test_spectrain(void **state) {
  (void)state;
  for (int64_t gpus = 1; gpus <= 12; ++gpus) {
    bppsa_schedule_config config = sized(gpus, 4 * gpus + 4);
    config.uniform[BPPSA_COST_INPUT_GRAD] = config.uniform[BPPSA_COST_WEIGHT_GRAD] = 0.5;
    bppsa_schedule *list = NULL;
    bppsa_schedule_times times;
    assert_int_equal(bppsa_schedule_create("spectrain", &config, &list), BPPSA_OK);
    assert_int_equal(bppsa_schedule_simulate(list, &times), BPPSA_OK);
    for (int64_t k = 0; k < gpus; ++k) {
      const int64_t micro = 2 * gpus, forward = bppsa_schedule_ahead(list, &times, micro, k, true),
                    backward = bppsa_schedule_ahead(list, &times, micro, k, false);
      assert_int_equal(forward, k / 2 + gpus - k - 1);
      assert_int_equal(backward, k / 2);
      assert_int_equal(forward - backward, gpus - 1 - k);
    }
    for (int64_t i = 0; i < list->count; ++i) { /* of the full pipeline: micro updates done at B, k / 2 more aimed at */
      const bppsa_schedule_op *op = &list->ops[i];
      if ((op->kind == BPPSA_KIND_F || op->kind == BPPSA_KIND_B) && op->micro == 2 * gpus) {
        assert_int_equal(op->weight_version, op->micro + op->stage / 2);
      }
    }
    assert_int_equal(bppsa_schedule_ahead(list, &times, 1000, 0, true), -1);
    bppsa_schedule_times_free(&times);
    bppsa_schedule_destroy(list);
  }
}

/* 2048 workers and a million operations: 10 s of processor time and 2 GB; validation grows with operations. */
static void test_scale(void **state) {
  (void)state;
  double seconds[2];
  for (int i = 0; i < 2; ++i) {
    bppsa_schedule_config config = sized(2048, i == 0 ? 21 : 84);
    bppsa_schedule *list = NULL;
    bppsa_schedule_times times;
    struct timespec from, between, to;
    assert_int_equal(bppsa_schedule_create("1f1b", &config, &list), BPPSA_OK);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    assert_int_equal(bppsa_schedule_validate(list), BPPSA_OK);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &between);
    assert_int_equal(bppsa_schedule_simulate(list, &times), BPPSA_OK);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    seconds[i] = (double)(between.tv_sec - from.tv_sec) + 1e-9 * (double)(between.tv_nsec - from.tv_nsec);
    assert_true(i == 0 || list->count >= 1000000);
    assert_true(to.tv_sec - between.tv_sec < 10);
    check(times.makespan, (double)(3 * (config.micro_batches + 2047)));
    bppsa_schedule_times_free(&times);
    bppsa_schedule_destroy(list);
  }
  assert_true(seconds[1] < 12 * seconds[0] + 0.2); /* four times the operations */
  struct rusage used;
  assert_int_equal(getrusage(RUSAGE_SELF, &used), 0);
  assert_true(used.ru_maxrss < 2 * 1024 * 1024);
}

/* A list with new prices takes as long as one that is made with them, where the order does not follow from the costs. */
static void test_reprice(void **state) {
  (void)state;
  enum { LAYERS = 8, TIMES = 5 };
  static const bppsa_schedule_cost times[TIMES] = {BPPSA_COST_FORWARD, BPPSA_COST_INPUT_GRAD, BPPSA_COST_WEIGHT_GRAD,
                                                   BPPSA_COST_BACKWARD, BPPSA_COST_STEP};
  static const char *const schemes[] = {"1f1b", "zb-h1", "interleaved", "chimera", "wait-free"};
  double old[TIMES][LAYERS], new[TIMES][LAYERS];
  bppsa_schedule_config before = sized(4, 4), after = sized(4, 4);
  before.layers = after.layers = LAYERS;
  before.skip_first_input_grad = after.skip_first_input_grad = true;
  before.alpha = after.alpha = 0.125;
  for (int t = 0; t < TIMES; ++t) {
    for (int l = 0; l < LAYERS; ++l) {
      old[t][l] = 1 + t;
      new[t][l] = 1 + (t * LAYERS + l) % 7;
    }
    before.cost[times[t]] = old[t];
    after.cost[times[t]] = new[t];
    before.rows[times[t]] = after.rows[times[t]] = LAYERS;
  }
  for (size_t s = 0; s < sizeof schemes / sizeof schemes[0]; ++s) {
    bppsa_schedule *list = NULL;
    bppsa_schedule_times found;
    assert_int_equal(bppsa_schedule_create(schemes[s], &before, &list), BPPSA_OK);
    bppsa_schedule_reprice(list, &after);
    assert_int_equal(bppsa_schedule_validate(list), BPPSA_OK);
    assert_int_equal(bppsa_schedule_simulate(list, &found), BPPSA_OK);
    check(found.makespan, makespan(schemes[s], &after));
    assert_true(fabs(found.makespan - makespan(schemes[s], &before)) > 1);
    bppsa_schedule_times_free(&found);
    bppsa_schedule_destroy(list);
  }
}

/* Makes, checks, runs and looks at a list while an allocation fails: alone, or with all behind it. True: none has failed. */
static bool without_memory(const char *scheme, bool alone, int64_t call) {
  bppsa_schedule_config config = sized(2, 2);
  bppsa_schedule *list = NULL;
  bppsa_schedule_times times = {0};
  bppsa_schedule_memory *curves = NULL;
  int64_t *first = NULL;
  config.layers = 4;
  (alone ? bppsa_alloc_fail_once : bppsa_alloc_fail_at)(call);
  bppsa_status status = bppsa_schedule_create(scheme, &config, &list);
  assert_true(status == BPPSA_OK || list == NULL);
  status = status == BPPSA_OK ? bppsa_schedule_validate(list) : status;
  status = status == BPPSA_OK ? bppsa_schedule_simulate(list, &times) : status;
  status = status == BPPSA_OK ? bppsa_schedule_memory_curves(list, &times, &curves, &first) : status;
  const bool done = bppsa_alloc_calls() < call;
  bppsa_alloc_fail_at(0);
  assert_int_equal(status, done ? BPPSA_OK : BPPSA_ERR_MEMORY);
  bppsa_free(curves);
  bppsa_free(first);
  bppsa_schedule_times_free(&times);
  bppsa_schedule_destroy(list);
  return done;
}

static void test_memory(void **state) {
  (void)state;
  int64_t count = 0;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
  const int64_t live = bppsa_alloc_live();
  for (int64_t i = 0; i < count; ++i) {
    for (int alone = 0; alone < 2; ++alone) {
      int64_t call = 1;
      while (!without_memory(schemes[i].id, alone == 1, call++)) {
        assert_int_equal(bppsa_alloc_live(), live);
      }
      assert_int_equal(bppsa_alloc_live(), live);
      assert_true(call > 10);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_links),           cmocka_unit_test(test_contention),      cmocka_unit_test(test_issue),
      cmocka_unit_test(test_hybrid),          cmocka_unit_test(test_synchronisation), cmocka_unit_test(test_recompute),
      cmocka_unit_test(test_model),           cmocka_unit_test(test_model_by_hand),   cmocka_unit_test(test_model_of_backward),
      cmocka_unit_test(test_model_of_layers), cmocka_unit_test(test_spectrain),       cmocka_unit_test(test_scale),
      cmocka_unit_test(test_reprice),         cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
