/* The closed forms and examples of the papers on pipelines and scans, exactly. Unit costs: F = 1, B = I + W = 2 unless stated. */
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "tests/schedule/simulated.h"

/* ---- synchronous pipelines ---- */

static void test_gpipe(void **state) {
  (void)state;
  for (int64_t d = 1; d <= most_d(); ++d) {
    for (int64_t n = 1; n <= most_n(); ++n) {
      const bppsa_schedule_config config = sized(d, n);
      simulated s = simulate("gpipe", &config);
      check("gpipe", d, n, s.times.makespan, (double)(3 * (n + d - 1)));
      check("gpipe bubble", d, n, s.times.bubble_ratio, (double)(d - 1) / (double)(n + d - 1));
      for (int64_t w = 0; w < d; ++w) {
        check("gpipe busy", d, n, s.times.worker[w].busy, (double)(3 * n));
        check("gpipe activations", d, n, s.times.worker[w].peak_activations, (double)n);
        check("gpipe weights", d, n, s.times.worker[w].weight_versions, 1);
      }
      release(&s);
    }
  }
}

static void test_1f1b(void **state) {
  (void)state;
  for (int64_t d = 1; d <= most_d(); ++d) {
    for (int64_t n = 1; n <= most_n(); ++n) {
      const bppsa_schedule_config config = sized(d, n);
      simulated s = simulate("1f1b", &config);
      check("1f1b", d, n, s.times.makespan, (double)(3 * (n + d - 1)));
      check("1f1b bubble", d, n, s.times.bubble_ratio, (double)(d - 1) / (double)(n + d - 1));
      for (int64_t w = 0; w < d; ++w) {
        check("1f1b activations", d, n, s.times.worker[w].peak_activations, (double)smaller(n, d - w));
        check("1f1b weights", d, n, s.times.worker[w].weight_versions, 1);
      }
      release(&s);
    }
  }
}

static void test_gems(void **state) {
  (void)state;
  for (int64_t d = 1; d <= most_d(); ++d) {
    for (int64_t n = 1; n <= most_n(); ++n) {
      const bppsa_schedule_config config = sized(d, n);
      simulated s = simulate("gems", &config);
      check("gems", d, n, s.times.makespan, (double)(d + 2 * d * n + n - 1));
      for (int64_t w = 0; w < d; ++w) {
        check("gems activations", d, n, s.times.worker[w].peak_activations, 1);
        check("gems weights", d, n, s.times.worker[w].weight_versions, 2);
      }
      release(&s);
    }
  }
  const bppsa_schedule_config many = sized(8, 4000); /* the paper's ratio is the limit */
  simulated s = simulate("gems", &many);
  assert_true(fabs(s.times.bubble_ratio - 7 / 8.5) < 1e-3);
  release(&s);
}

static void test_model_parallel(void **state) {
  (void)state;
  for (int64_t d = 1; d <= most_d(); ++d) {
    const bppsa_schedule_config config = sized(d, 3);
    check("model-parallel", d, 3, makespan("model-parallel", &config), (double)(3 * d * 3));
  }
}

/* (D - 1)(F + B) / v bubbles a worker. (Narayanan 2021) */
static void test_interleaved(void **state) {
  (void)state;
  for (int64_t d = 2; d <= 16; ++d) {
    for (int64_t v = 1; v <= 4; ++v) {
      for (int64_t k = 1; k <= 4; ++k) {
        bppsa_schedule_config config = sized(d, k * d);
        config.chunks = v;
        for (int cost = BPPSA_COST_FORWARD; cost <= BPPSA_COST_WEIGHT_GRAD; ++cost) {
          config.uniform[cost] = 1.0 / (double)v;
        }
        check("interleaved", d, k * d, makespan("interleaved", &config), (double)(3 * k * d) + 3 * (double)(d - 1) / (double)v);
      }
    }
  }
}

/* (D - 1)(F + B - 2W) bubbles a worker when F = I = W and N >= 2D; no more memory than 1F1B's first worker. (Qi 2023) */
static void test_zb_h1(void **state) {
  (void)state;
  for (int64_t d = 1; d <= most_d(); ++d) {
    for (int64_t n = 2 * d; n <= most_n(); ++n) {
      const bppsa_schedule_config config = sized(d, n);
      simulated s = simulate("zb-h1", &config);
      check("zb-h1", d, n, s.times.makespan, (double)(3 * n + d - 1));
      for (int64_t w = 0; w < d; ++w) {
        assert_true(s.times.worker[w].peak_activations <= (double)d);
      }
      release(&s);
    }
  }
}

/* ---- asynchronous pipelines ---- */

static void test_asynchronous(void **state) {
  (void)state;
  const char *const schemes[] = {"pipedream", "2bw", "vanilla", "spectrain"};
  for (int64_t d = 1; d <= most_d(); ++d) {
    for (int64_t n = d; n <= most_n(); ++n) {
      for (int i = 0; i < 4; ++i) {
        bppsa_schedule_config config = sized(d, n);
        config.iterations = 2;
        simulated s = simulate(schemes[i], &config);
        check(schemes[i], d, n, s.times.makespan, (double)(3 * (2 * n + d - 1))); /* no flush between them */
        for (int64_t w = 0; w < d; ++w) {
          check("activations", d, n, s.times.worker[w].peak_activations, (double)(d - w));
          check("versions", d, n, s.times.worker[w].weight_versions, (double)(i == 0 ? d - w : i == 1 ? 2 : 1));
        }
        release(&s);
      }
    }
  }
}

/* ---- Chimera ---- */

static void check_chimera(int64_t d, int64_t f) {
  bppsa_schedule_config config = equal_passes(d, d);
  config.replicas = 2 * f;
  simulated s = simulate("chimera", &config);
  double least = INFINITY, most = 0;
  check("chimera, F = B", d, d, s.times.makespan, (double)(2 * d + d / f - 2));
  check("chimera bubble, F = B", d, d, s.times.bubble_ratio, (double)(d - 2 * f) / (double)(2 * f * d + d - 2 * f));
  for (int64_t w = 0; w < d; ++w) {
    least = fmin(least, s.times.worker[w].peak_activations);
    most = fmax(most, s.times.worker[w].peak_activations);
    check("chimera weights", d, d, s.times.worker[w].weight_versions, (double)(2 * f));
  }
  check("chimera least activations", d, f, least, (double)d - (double)d / (double)(2 * f) + 1);
  check("chimera most activations", d, f, most, (double)d);
  release(&s);
  config.uniform[BPPSA_COST_INPUT_GRAD] = config.uniform[BPPSA_COST_WEIGHT_GRAD] = 1;
  s = simulate("chimera", &config);
  check("chimera bubble, B = 2F", d, d, s.times.bubble_ratio,
        (double)(d - 2 * f) / (1.5 * (double)(f * d) + (double)(d - 2 * f)));
  if (f == 1) {
    check("chimera, B = 2F", d, d, s.times.makespan, (double)(5 * d - 4));
  }
  release(&s);
}

static void test_chimera(void **state) {
  (void)state;
  for (int64_t d = 2; d <= most_d(); d += 2) {
    for (int64_t f = 1; f <= d / 2; ++f) {
      if (d / 2 % f == 0) {
        check_chimera(d, f);
      }
    }
  }
}

/* N = KD: seamless when F = B, (K + 1)(D - 2) bubbles when B = 2F. */
static void test_concatenation(void **state) {
  (void)state;
  for (int64_t d = 2; d <= most_d(); d += 2) {
    for (int64_t k = 1; k * d <= most_n(); ++k) {
      bppsa_schedule_config config = equal_passes(d, k * d);
      check("concatenation, F = B", d, k * d, makespan("chimera", &config), (double)(2 * k * d + d - 2));
      config = sized(d, k * d);
      simulated s = simulate("chimera", &config);
      check("concatenation, B = 2F", d, k * d, s.times.makespan, (double)(3 * k * d + (k + 1) * (d - 2)));
      const double other = makespan("1f1b", &config);
      assert_int_equal(s.list->advice_text[0] != '\0', s.times.makespan > other); /* says so where 1F1B does better */
      release(&s);
    }
  }
}

/* The second half of a backward pass reads what second halves made, and waits for no first half. */
static void test_second_halves(void **state) {
  (void)state;
  int64_t seconds = 0;
  for (int recompute = 0; recompute <= 1; ++recompute) {
    bppsa_schedule_config config = sized(4, 4);
    config.scale = BPPSA_SCALE_HALVING;
    config.recompute = recompute;
    simulated s = simulate("chimera", &config);
    for (int64_t i = 0; i < s.list->count; ++i) {
      const bppsa_schedule_op op = s.list->ops[i];
      for (int32_t k = 0; op.part == 1 && k < op.dep_count; ++k) {
        const bppsa_schedule_op dep = s.list->ops[s.list->deps[op.deps + k]];
        assert_true(dep.part != 0 || dep.micro != op.micro);
      }
      seconds += op.part == 1;
    }
    release(&s);
  }
  assert_true(seconds > 0);
}

static void test_doubling(void **state) {
  (void)state;
  for (int64_t d = 2; d <= most_d(); d += 2) {
    bppsa_schedule_config config = sized(d, 2 * d);
    config.scale = BPPSA_SCALE_DOUBLING; /* a forward pass over two is as long as a backward pass over one: slots of 2 */
    check("doubling", d, 2 * d, makespan("chimera", &config), (double)(2 * (3 * d + d - 2)));
    config = sized(d, d);
    config.scale = BPPSA_SCALE_HALVING; /* slots of 1 */
    check("halving", d, d, makespan("chimera", &config), (double)(3 * d + d - 2));
  }
}

/* Without the gradient of the input, the first layer has no part in its stage's I, and none but W in its B. */
static void test_skipped(void **state) {
  (void)state;
  static const double input[] = {100, 1, 2, 4}, weight[] = {8, 16, 32, 64}, both[] = {1000, 24, 34, 68};
  for (int split = BPPSA_SPLIT_NONE; split <= BPPSA_SPLIT_WI; ++split) {
    for (int together = 0; together < 2; ++together) { /* B has costs of its own */
      bppsa_schedule_config config = sized(2, 1);
      config.layers = 4;
      config.split = (bppsa_schedule_split)split;
      config.skip_first_input_grad = true;
      config.cost[BPPSA_COST_INPUT_GRAD] = input;
      config.cost[BPPSA_COST_WEIGHT_GRAD] = weight;
      config.cost[BPPSA_COST_BACKWARD] = together ? both : NULL;
      config.rows[BPPSA_COST_INPUT_GRAD] = config.rows[BPPSA_COST_WEIGHT_GRAD] = 4;
      config.rows[BPPSA_COST_BACKWARD] = together ? 4 : 0;
      simulated s = simulate("gpipe", &config);
      double cost[2][BPPSA_KIND_COUNT] = {{0}};
      bppsa_schedule_op whole = s.list->ops[0]; /* I of a whole stage, as a file may have it */
      for (int64_t id = 0; id < s.list->count; ++id) {
        cost[s.list->ops[id].stage][s.list->ops[id].kind] += s.list->ops[id].cost;
      }
      whole.kind = BPPSA_KIND_I;
      whole.layer = 0;
      whole.layers = 2;
      whole.cost = NAN;
      bppsa_schedule_price(s.list, &whole);
      assert_true(whole.cost == 1);
      if (split == BPPSA_SPLIT_NONE) {
        assert_true(cost[0][BPPSA_KIND_B] == (together ? 8 + 24 : 1 + 8 + 16));
        assert_true(cost[1][BPPSA_KIND_B] == (together ? 34 + 68 : 2 + 4 + 32 + 64));
      } else {
        assert_true(cost[0][BPPSA_KIND_I] == 1 && cost[0][BPPSA_KIND_W] == 8 + 16);
        assert_true(cost[1][BPPSA_KIND_I] == 2 + 4 && cost[1][BPPSA_KIND_W] == 32 + 64);
      }
      release(&s);
    }
  }
}

/* A worker's curve begins at time 0, goes up to the worker's peak and ends at nothing. */
static void test_memory_curves(void **state) {
  (void)state;
  static const char *const schemes[] = {"gpipe", "1f1b", "interleaved", "chimera", "zb-h1"};
  for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; ++i) {
    bppsa_schedule_config config = sized(4, 4);
    simulated s = simulate(schemes[i], &config);
    bppsa_schedule_memory *curves = NULL;
    int64_t *first = NULL;
    assert_int_equal(bppsa_schedule_memory_curves(s.list, &s.times, &curves, &first), BPPSA_OK);
    assert_int_equal(first[0], 0);
    for (int64_t w = 0; w < s.list->workers; ++w) {
      const bppsa_schedule_memory *curve = curves + first[w];
      const int64_t points = first[w + 1] - first[w];
      double most = 0;
      assert_true(points > 2 && curve[0].time == 0);
      for (int64_t k = 0; k < points; ++k) {
        assert_true(k == 0 || curve[k].time > curve[k - 1].time);
        most = fmax(most, curve[k].level);
      }
      check(schemes[i], 4, 4, most, s.times.worker[w].peak_activations);
      check(schemes[i], 4, 4, curve[points - 1].level, 0);
    }
    bppsa_free(curves);
    bppsa_free(first);
    release(&s);
  }
}

enum { MOST_ELEMENTS = 70 * 5 + 1 };

static void test_scans(void **state) {
  (void)state;
  for (int64_t p = 1; p <= 70; ++p) {
    for (int64_t share = 1; share <= 5; share += 2) {
      bppsa_schedule_config config = sized(p, 1);
      config.elements = p * share + 1;
      check("scan-linear", p, share, makespan("scan-linear", &config), (double)(p * share));
      const double first = (double)share, apply = (double)share, product = (double)(share - 1);
      const double chain = p > 2 ? fmax(first, product) + (double)(p - 2) + apply : (double)(p * share);
      check("scan-chunked", p, share, makespan("scan-chunked", &config), chain);
      const double levels = ceil(log2((double)p));
      simulated s = simulate("scan-blelloch", &config);
      assert_true(s.times.makespan <= product + 2 * levels + apply);
      for (int64_t w = 0; w < p; ++w) {
        assert_true(s.times.worker[w].peak_activations <= (double)share + 1); /* n / p and one product, whatever p is */
      }
      release(&s);
      config.alpha = 1; /* exchanges: Theta(log p) */
      for (int cost = 0; cost < BPPSA_COST_COUNT; ++cost) {
        config.uniform[cost] = 0;
      }
      const double exchanges = makespan("scan-blelloch", &config);
      if (p > 1 && (exchanges > 2 * levels || exchanges < levels)) {
        fail_msg("p %d: %g exchanges, expected %g to %g", (int)p, exchanges, levels, 2 * levels);
      }
      check("exchanges", p, share, makespan("scan-linear", &config), (double)(p - 1));
      /* A product has as many words as the first layer's message, wherever it is. */
      static const double words[MOST_ELEMENTS] = {2};
      config.alpha = 0;
      config.beta = 1;
      config.cost[BPPSA_COST_MESSAGE] = words;
      config.rows[BPPSA_COST_MESSAGE] = p;
      check("words", p, share, makespan("scan-linear", &config), 2 * (double)(p - 1));
    }
  }
}

/* A group has a SEND and, behind it, the RECV of the same tensor; operations that do not count have no partner. */
static void test_pairs(void **state) {
  (void)state;
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_schedule *list = NULL;
  int32_t *send = NULL, *recv = NULL;
  config.layers = 7;
  config.cut = (const int64_t[]){1, 2, 6};
  config.cuts = 3;
  assert_int_equal(bppsa_schedule_create("1f1b", &config, &list), BPPSA_OK);
  for (int64_t stage = 0; stage <= 4; ++stage) {
    assert_int_equal(bppsa_schedule_layer_of(list, stage), ((const int64_t[]){0, 1, 2, 6, 7})[stage]);
  }
  assert_int_equal(bppsa_schedule_pair(list, NULL, &send, &recv), BPPSA_OK);
  for (int64_t group = 0; group < list->groups; ++group) {
    assert_int_equal(list->ops[send[group]].kind, BPPSA_KIND_SEND);
    assert_int_equal(list->ops[recv[group]].kind, BPPSA_KIND_RECV);
    assert_int_equal(recv[group], send[group] + 1);
    assert_int_equal(list->ops[recv[group]].group, group);
  }
  bool *counts = bppsa_calloc(list->count, sizeof *counts);
  assert_non_null(counts);
  counts[send[0]] = true;
  const int32_t first = send[0];
  bppsa_free(send);
  bppsa_free(recv);
  assert_int_equal(bppsa_schedule_pair(list, counts, &send, &recv), BPPSA_OK);
  assert_int_equal(send[0], first);
  assert_int_equal(recv[0], -1);
  assert_int_equal(send[1], -1);
  bppsa_free(send);
  bppsa_free(recv);
  bppsa_free(counts);
  bppsa_schedule_destroy(list);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gpipe),          cmocka_unit_test(test_1f1b),          cmocka_unit_test(test_gems),
      cmocka_unit_test(test_model_parallel), cmocka_unit_test(test_interleaved),   cmocka_unit_test(test_zb_h1),
      cmocka_unit_test(test_asynchronous),   cmocka_unit_test(test_chimera),       cmocka_unit_test(test_concatenation),
      cmocka_unit_test(test_doubling),       cmocka_unit_test(test_second_halves), cmocka_unit_test(test_memory_curves),
      cmocka_unit_test(test_skipped),        cmocka_unit_test(test_scans),         cmocka_unit_test(test_pairs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
