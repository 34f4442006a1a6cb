/* Backward passes out of order: the worked numbers of ooo-backprop, exactly. Unit costs: F = 1, B = I + W = 2 unless stated. */
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "tests/schedule/simulated.h"

static bppsa_schedule_config layered(int64_t d, int64_t n, int64_t layers, bppsa_schedule_split split) {
  bppsa_schedule_config config = sized(d, n);
  config.layers = layers;
  config.split = split;
  config.skip_first_input_grad = true;
  return config;
}

/* Figure 5: 8 layers on 2 devices. */
static void test_figure5(void **state) {
  (void)state;
  bppsa_schedule_config config = layered(2, 1, 8, BPPSA_SPLIT_WI);
  check("figure 5(a)", 2, 1, makespan("model-parallel", &config), 23);
  config.split = BPPSA_SPLIT_IW;
  check("figure 5(a), I first", 2, 1, makespan("model-parallel", &config), 22);
  check("figure 5(b)", 2, 1, makespan("fast-forward", &config), 19);
  simulated s = simulate("modulo", &config);
  check("figure 5(c)", 2, 1, s.times.makespan, 16);
  release(&s);
  config.window = BPPSA_WINDOW_BACKWARD_FORWARD; /* the text's "both above 90 %": of the backward pass 100 % and 87.5 % */
  s = simulate("modulo", &config);
  release(&s);
}

/* Figure 13 with 16 layers: 4 devices, 4 micro-batches. */
static void test_figure13(void **state) {
  (void)state;
  bppsa_schedule_config config = layered(4, 4, 16, BPPSA_SPLIT_WI);
  check("figure 13(a)", 4, 4, makespan("gpipe", &config), 83);
  config.split = BPPSA_SPLIT_IW;
  check("figure 13(a), I first", 4, 4, makespan("gpipe", &config), 80);
  check("figure 13(b)", 4, 4, makespan("fast-forward", &config), 68);
  check("figure 13(c)", 4, 4, makespan("modulo", &config), 51);
}

/* Figure 4: 18, 17 and 15 fit the ratios it gives (16 % and 12 %) and its boxes. 5 layers; SYNC costs that are ours. An
 * illustration. */
static void test_figure4(void **state) {
  (void)state;
  const double sync[] = {3, 1, 1, 2, 4};
  bppsa_schedule_config config = layered(2, 1, 5, BPPSA_SPLIT_IW);
  config.cost[BPPSA_COST_SYNC] = sync;
  config.rows[BPPSA_COST_SYNC] = sizeof sync / sizeof sync[0];
  config.window = BPPSA_WINDOW_BACKWARD_FORWARD;
  check("figure 4(a)", 2, 1, makespan("wait-free", &config), 18);
  check("figure 4(b)", 2, 1, makespan("priority", &config), 17);
  for (int64_t k = 0; k <= 5; ++k) {
    config.reverse = k;
    const double found = makespan("reverse-first-k", &config);
    assert_true(k == 3 || k == 4 ? found == 15 : found > 15);
  }
  config.reverse = -1;
  simulated s = simulate("reverse-first-k", &config);
  check("figure 4(c)", 2, 1, s.times.makespan, 15);
  assert_int_equal(s.list->config.reverse, 3);
  release(&s);
}

/* A sum that another one preempts is in slices, which are numbered from 0; a sum at one go has no number. */
static void test_slices(void **state) {
  (void)state;
  const double sync[] = {3, 1, 1, 2, 4};
  bppsa_schedule_config config = layered(2, 1, 5, BPPSA_SPLIT_IW);
  config.cost[BPPSA_COST_SYNC] = sync;
  config.rows[BPPSA_COST_SYNC] = sizeof sync / sizeof sync[0];
  simulated s = simulate("priority", &config);
  int sliced = 0;
  for (int32_t layer = 0; layer < 5; ++layer) {
    int slices = 0;
    double cost = 0;
    for (int64_t id = 0; id < s.list->count; ++id) {
      const bppsa_schedule_op *op = &s.list->ops[id];
      slices += op->kind == BPPSA_KIND_SYNC && op->worker == 0 && op->layer == layer;
    }
    assert_true(slices > 0);
    sliced += slices > 1;
    for (int64_t id = 0, next = 0; id < s.list->count; ++id) {
      const bppsa_schedule_op *op = &s.list->ops[id];
      if (op->kind == BPPSA_KIND_SYNC && op->worker == 0 && op->layer == layer) {
        assert_int_equal(op->part, slices == 1 ? -1 : next);
        cost += op->cost;
        ++next;
      }
    }
    assert_true(fabs(cost - sync[layer]) < 1e-12);
  }
  assert_true(sliced > 0);
  release(&s);
}

/* The search finds the smallest k of the shortest window, whichever it is. */
static void test_reverse_search(void **state) {
  (void)state;
  int met[6] = {0};
  unsigned drawn = 1;
  for (int number = 0; number < 200; ++number) {
    double sync[5], least = INFINITY;
    int64_t best = 0;
    bppsa_schedule_config config = layered(2, 1, 5, BPPSA_SPLIT_IW);
    for (int i = 0; i < 5; ++i) {
      drawn = drawn * 1664525u + 1013904223u;
      sync[i] = drawn >> 30 == 0 ? (double)(drawn >> 16 & 7) : 0; /* whole numbers: times are exact */
    }
    config.cost[BPPSA_COST_SYNC] = sync;
    config.rows[BPPSA_COST_SYNC] = 5;
    config.window = BPPSA_WINDOW_BACKWARD_FORWARD;
    for (int64_t k = 0; k <= 5; ++k) {
      config.reverse = k;
      const double found = makespan("reverse-first-k", &config);
      best = found < least ? k : best;
      least = fmin(least, found);
    }
    config.reverse = -1;
    simulated s = simulate("reverse-first-k", &config);
    assert_true(s.times.makespan == least);
    assert_int_equal(s.list->config.reverse, best);
    ++met[best];
    release(&s);
  }
  assert_true(met[0] > 0 && met[1] == 0 && met[2] > 0 && met[3] > 0 && met[4] > 0 && met[5] > 0); /* k = 1 changes no order */
}

/* A cap of memory bounds k: with equal layers j gradients of weights that wait hold 2j / L of the network's activations. */
static void test_reverse_cap(void **state) {
  (void)state;
  bppsa_schedule_config config = layered(2, 1, 5, BPPSA_SPLIT_IW);
  config.window = BPPSA_WINDOW_BACKWARD_FORWARD;
  config.memory_cap = 0.9;
  config.reverse = 5;
  simulated s = simulate("reverse-first-k", &config);
  assert_int_equal(s.list->config.reverse, 2);
  release(&s);
  config.reverse = 1;
  s = simulate("reverse-first-k", &config);
  assert_int_equal(s.list->config.reverse, 1);
  release(&s);
  config.memory_cap = 2.1; /* 2 would just be reached */
  config.reverse = 5;
  s = simulate("reverse-first-k", &config);
  assert_int_equal(s.list->config.reverse, 5);
  release(&s);
}

static void test_multi_stream(void **state) {
  (void)state;
  for (int64_t layers = 1; layers <= 40; ++layers) {
    bppsa_schedule_config config = layered(1, 1, layers, BPPSA_SPLIT_IW);
    config.memory_cap = 10;
    check("multi-stream", layers, 1, makespan("multi-stream", &config), (double)(2 * layers));
  }
}

/* The weight gradients of multi-stream must come in this order of four layers. */
static void check_weights(const bppsa_schedule_config *config, const int64_t expected[4]) {
  simulated s = simulate("multi-stream", config);
  int found = 0;
  for (int64_t id = 0; id < s.list->count; ++id) {
    if (s.list->ops[id].kind == BPPSA_KIND_W) {
      assert_true(found < 4);
      assert_int_equal(s.list->ops[id].layer, expected[found]);
      ++found;
    }
  }
  assert_int_equal(found, 4);
  release(&s);
}

/* A profile of one region. Algorithm 1 takes the weight gradient with the highest speed-up among the ready ones. At first only that
 * of layer 3 is ready. When it is done, layers 2 and 1 are ready, and layer 1 has the higher speed-up. Algorithm 1 never takes
 * layer 0, which therefore comes last. */
static void test_one_region(void **state) {
  (void)state;
  double main_stream[] = {8}, sub[] = {2, 2, 2, 2}, speedup[] = {9, 3, 1, 1};
  static const int64_t expected[] = {3, 1, 2, 0};
  bppsa_schedule_config config = layered(1, 1, 4, BPPSA_SPLIT_IW);
  config.memory_cap = 10;
  config.profile = (bppsa_schedule_profile){1, 4, main_stream, sub, speedup};
  check_weights(&config, expected);
}

/* Four equal layers, four regions of one unit, gradients of one unit. By speed-up the gradient of layer 2 runs in region 2 and that
 * of layer 3 in region 3, and layer 1 finds no room. When the gradient behind layer 1 has been made, at 2, nothing is done: four
 * activations and two gradients are held, 1.5 M_a, more than 1.1 times the conventional 1.25. So region 0 takes what is ready,
 * layer 3. Then at most 1.25 is held, and region 1 does not take layer 2, which it would compute in half the time. */
static void test_streams_within_memory(void **state) {
  (void)state;
  double main_stream[] = {1, 1, 1, 1}, sub[16], speedup[16];
  static const int64_t expected[2][4] = {{2, 3, 1, 0}, {3, 2, 1, 0}};
  for (int i = 0; i < 16; ++i) {
    sub[i] = speedup[i] = 1;
  }
  speedup[2 * 4 + 2] = 9;
  speedup[3 * 4 + 3] = 10;
  sub[1 * 4 + 2] = 0.5;
  for (int capped = 0; capped < 2; ++capped) {
    bppsa_schedule_config config = layered(1, 1, 4, BPPSA_SPLIT_IW);
    config.memory_cap = capped ? 0 : 1.3;
    config.profile = (bppsa_schedule_profile){4, 4, main_stream, sub, speedup};
    check_weights(&config, expected[capped]);
    simulated s = simulate("multi-stream", &config);
    for (int64_t id = 0; id < s.list->count; ++id) {
      assert_true(s.list->ops[id].kind != BPPSA_KIND_W || s.list->ops[id].cost == 1);
    }
    release(&s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_figure5),      cmocka_unit_test(test_figure13),       cmocka_unit_test(test_figure4),
      cmocka_unit_test(test_slices),       cmocka_unit_test(test_reverse_search), cmocka_unit_test(test_reverse_cap),
      cmocka_unit_test(test_multi_stream), cmocka_unit_test(test_one_region),     cmocka_unit_test(test_streams_within_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
