/* Scan plans against Algorithm 1 interpreted literally, closed forms, and the published figures. */
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "scan/plan.h"
#include "tests/support/support.h"

static bppsa_scan_plan *make(bppsa_scan_algorithm algorithm, int64_t n, int64_t up_levels, int64_t chunks, bool input) {
  bppsa_scan_config c = bppsa_scan_config_default();
  c.method.algorithm = algorithm;
  c.jacobians = n;
  c.method.up_levels = up_levels;
  c.method.chunks = chunks;
  c.input = input;
  c.dim = 3;
  bppsa_scan_plan *plan = NULL;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  return plan;
}

static int64_t log2_ceil(int64_t x) {
  int64_t k = 0;
  while (((int64_t)1 << k) < x) {
    ++k;
  }
  return k;
}

/* The plan's levels hold so many products in all. */
static void check_levels(const bppsa_scan_plan *plan, int64_t products) {
  int64_t levels, sum = 0;
  const int64_t *counts = bppsa_scan_plan_levels(plan, &levels);
  for (int64_t l = 0; l < levels; ++l) {
    sum += counts[l];
  }
  assert_int_equal(sum, products);
}

/* Follows every step of a plan with symbolic operands. An operand must have been made in an earlier level (or earlier in the same
 * chain), no product may be made twice, and y[2] .. y[n] (and y[n+1] with input) must all be made. */
static void follow(const bppsa_scan_plan *plan) {
  const bppsa_scan_config *c = bppsa_scan_plan_config(plan);
  const int64_t n = c->jacobians, width = n + 2;
  int64_t *made_y = bppsa_calloc(width, sizeof *made_y);                 /* level + 1 in which y[i] is made */
  int64_t *made_p = bppsa_calloc(width * width, sizeof *made_p);         /* the same for a[i:j] */
  const bppsa_scan_level **by = bppsa_calloc(width * width, sizeof *by); /* and its record */
  assert_non_null(made_y);
  assert_non_null(made_p);
  assert_non_null(by);
  made_y[1] = -1;
  for (int64_t i = 1; i <= n; ++i) {
    made_p[i * width + i] = -1;
  }
  const bppsa_scan_level *y_by[1024] = {0};
  bppsa_scan_iterator it = {0};
  bppsa_scan_step s;
  int64_t mm = 0, mv = 0, dead = 0, critical = 0, critical_flops = 0, mm_flops = 0, mv_flops = 0, id = 0;
  while (bppsa_scan_plan_next(plan, &it, &s)) {
    assert_int_equal(s.id, id++);
    const int64_t level = s.level->level + 1;
    const bool is_mm = s.level->op == BPPSA_OP_MM;
    const int64_t applied = is_mm ? s.split : s.first;
    assert_in_range(s.first, 1, n);
    assert_in_range(s.last, s.first, n);
    const int64_t right = made_p[applied * width + s.last];
    const bppsa_scan_level *maker = by[applied * width + s.last];
    assert_true(right == -1 || (right > 0 && right < level));
    assert_false(maker != NULL && maker->dead && !s.level->dead); /* nothing that runs may use a dead product */
    if (is_mm) {
      const int64_t at = s.first * width + s.split - 1, left = made_p[at];
      assert_true(left == -1 || (left > 0 && left < level) || (by[at] == s.level && s.level->chain));
      assert_int_equal(made_p[s.first * width + s.last], 0);
      made_p[s.first * width + s.last] = level;
      by[s.first * width + s.last] = s.level;
      assert_int_equal(s.level->dead, s.last == n);
      ++mm;
      dead += s.level->dead;
      mm_flops += s.level->dead ? 0 : s.flops;
    } else {
      const int64_t from = made_y[s.first];
      assert_true(from == -1 || (from > 0 && from < level) || y_by[s.first] == s.level);
      assert_int_equal(s.split, s.last + 1);
      assert_int_equal(made_y[s.split], 0);
      made_y[s.split] = level;
      y_by[s.split] = s.level;
      ++mv;
      mv_flops += s.flops;
    }
    assert_false(s.critical && (s.level->dead || s.level->phase == BPPSA_PHASE_INPUT));
    critical += s.critical;
    critical_flops += s.critical ? s.flops : 0;
  }
  for (int64_t y = 2; y <= n; ++y) {
    assert_true(made_y[y] > 0);
  }
  assert_int_equal(n > 0 && made_y[n + 1] != 0, n > 0 && (c->input || n == 0));
  const bppsa_scan_totals *t = bppsa_scan_plan_totals(plan);
  assert_int_equal(t->mm, mm);
  assert_int_equal(t->mv, mv);
  assert_int_equal(t->dead, dead);
  assert_int_equal(t->mm_flops, mm_flops);
  assert_int_equal(t->mv_flops, mv_flops);
  assert_int_equal(t->critical_steps, critical);
  assert_int_equal(t->critical_flops, critical_flops);
  check_levels(plan, mm + mv - (n > 0 && c->input));
  bppsa_free(made_y);
  bppsa_free(made_p);
  bppsa_free(by);
}

/* Algorithm 1 as printed, with operand ranges as values: checks its result and counts its products level by level. */
typedef struct {
  bool identity, vector;
  int64_t first, last;
} operand;

static operand join(operand a, operand b, int64_t *products) { /* A ⋄ B */
  if (a.identity || b.identity) {
    return a.identity ? b : a;
  }
  ++*products;
  assert_int_equal(b.first, a.last + 1);
  return (operand){.vector = a.vector, .first = a.first, .last = b.last};
}

static void literal(int64_t n, int64_t counts[], int64_t *levels) {
  operand *a = calloc((size_t)n + 1, sizeof *a);
  assert_non_null(a);
  for (int64_t i = 0; i <= n; ++i) {
    a[i] = (operand){.vector = i == 0, .first = i, .last = i};
  }
  const int64_t k = log2_ceil(n + 1);
  *levels = 0;
  for (int64_t d = 0; d <= k - 2; ++d) {
    counts[*levels] = 0;
    for (int64_t i = 0; i <= n - ((int64_t)1 << d); i += (int64_t)2 << d) {
      const int64_t l = i + ((int64_t)1 << d) - 1, r = i + ((int64_t)2 << d) - 1 < n ? i + ((int64_t)2 << d) - 1 : n;
      a[r] = join(a[l], a[r], &counts[*levels]);
    }
    ++*levels;
  }
  a[n] = (operand){.identity = true};
  for (int64_t d = k - 1; d >= 0; --d) {
    counts[*levels] = 0;
    for (int64_t i = 0; i <= n - ((int64_t)1 << d); i += (int64_t)2 << d) {
      const int64_t l = i + ((int64_t)1 << d) - 1, r = i + ((int64_t)2 << d) - 1 < n ? i + ((int64_t)2 << d) - 1 : n;
      const operand t = a[l];
      a[l] = a[r];
      a[r] = join(a[r], t, &counts[*levels]);
    }
    ++*levels;
  }
  assert_true(n < 0 || a[0].identity);
  for (int64_t i = 1; i <= n; ++i) {
    assert_true(a[i].vector && a[i].first == 0 && a[i].last == i - 1);
  }
  free(a);
}

static void test_blelloch_is_algorithm_1(void **state) {
  (void)state;
  for (int64_t n = 1; n <= 300; ++n) {
    int64_t counts[32], literal_levels, levels;
    literal(n, counts, &literal_levels);
    bppsa_scan_plan *plan = make(BPPSA_SCAN_BLELLOCH, n, -1, 0, false);
    const int64_t *planned = bppsa_scan_plan_levels(plan, &levels);
    assert_int_equal(levels, literal_levels); /* the middle entry stands for the down-level that only copies */
    assert_memory_equal(planned, counts, (size_t)levels * sizeof *counts);
    bppsa_scan_plan_destroy(plan);
  }
}

static void test_dataflow(void **state) {
  (void)state;
  static const int64_t sizes[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,  13,
                                  14, 15, 16, 17, 21, 31, 32, 33, 50, 63, 64, 65, 100, 127};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const int64_t n = sizes[i];
    for (int64_t option = 0; option <= 12; ++option) {
      const bool input = option % 2 == 1;
      bppsa_scan_plan *plans[] = {make(BPPSA_SCAN_LINEAR, n, 0, 0, input), make(BPPSA_SCAN_BLELLOCH, n, option, 0, input),
                                  make(BPPSA_SCAN_CHUNKED, n, 0, option, input),
                                  make(BPPSA_SCAN_CHUNKED, n, 0, 10 * option, input)};
      for (size_t p = 0; p < sizeof plans / sizeof *plans; ++p) {
        follow(plans[p]);
        bppsa_scan_plan_destroy(plans[p]);
      }
    }
  }
}

static int64_t critical(bppsa_scan_algorithm algorithm, int64_t n, int64_t up_levels, int64_t chunks) {
  bppsa_scan_plan *plan = make(algorithm, n, up_levels, chunks, true);
  const int64_t steps = bppsa_scan_plan_totals(plan)->critical_steps;
  bppsa_scan_plan_destroy(plan);
  return steps;
}

static void test_critical_steps(void **state) {
  (void)state;
  for (int64_t n = 1; n <= 599; ++n) {
    const int64_t bound = 2 * log2_ceil(n + 1) - 2, steps = critical(BPPSA_SCAN_BLELLOCH, n, -1, 0);
    assert_true(steps <= bound);
    if ((n & (n + 1)) == 0) {
      assert_int_equal(steps, bound);
    }
    for (int64_t l = 0; l <= 11; ++l) {
      const int64_t left = (n + 1 + ((int64_t)1 << l) - 1) >> l;
      assert_true(critical(BPPSA_SCAN_BLELLOCH, n, l, 0) <= 2 * l + (left > 2 ? left - 2 : 0));
    }
    assert_int_equal(critical(BPPSA_SCAN_LINEAR, n, 0, 0), n - 1);
    for (int64_t p = 1; p <= n; p = 2 * p + 1) {
      assert_true((double)critical(BPPSA_SCAN_CHUNKED, n, 0, p) <= 2.0 * (double)n / (double)p + (double)p);
    }
  }
  assert_int_equal(critical(BPPSA_SCAN_BLELLOCH, 21, -1, 0), 7);
  assert_int_equal(critical(BPPSA_SCAN_BLELLOCH, ((int64_t)1 << 40) - 1, -1, 0), 78);
}

/* VGG-11's 22 elements with two up-levels (facts about §4.3 and figure 10). */
static void test_vgg11_counts(void **state) {
  (void)state;
  bppsa_scan_plan *plan = make(BPPSA_SCAN_BLELLOCH, 21, 2, 0, false);
  const bppsa_scan_totals *t = bppsa_scan_plan_totals(plan);
  assert_int_equal(t->mm, 14);
  assert_int_equal(t->dead, 1);
  assert_int_equal(t->mv, 20);
  int64_t levels;
  const int64_t *counts = bppsa_scan_plan_levels(plan, &levels);
  const int64_t expected[] = {11, 5, 4, 4, 10};
  assert_int_equal(levels, 5);
  assert_memory_equal(counts, expected, sizeof expected);
  bppsa_scan_plan_destroy(plan);
}

static void test_costs(void **state) {
  (void)state;
  const int64_t dims[] = {2, 3, 5, 7}; /* J_1ᵀ [2,3], J_2ᵀ [3,5], J_3ᵀ [5,7]: a[1] = J_3ᵀ, a[2] = J_2ᵀ, a[3] = J_1ᵀ */
  bppsa_scan_config c = bppsa_scan_config_default();
  c.jacobians = 3;
  c.dims = dims;
  c.affine = true;
  c.input = true;
  bppsa_scan_plan *plan = NULL;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  const struct {
    bppsa_scan_phase phase;
    bppsa_scan_op op;
    bool dead;
    int64_t m, k, n, flops;
    const char *left, *right, *out;
  } expected[] = {{BPPSA_PHASE_UP, BPPSA_OP_MV, false, 5, 7, 1, 70, "g[3]", "a[1]", "g[2]"},
                  {BPPSA_PHASE_UP, BPPSA_OP_MM, true, 2, 3, 5, 2 * 2 * 3 * 6, "a[2]", "a[3]", "a[2:3]"},
                  {BPPSA_PHASE_DOWN, BPPSA_OP_MV, false, 3, 5, 1, 30, "g[2]", "a[2]", "g[1]"},
                  {BPPSA_PHASE_INPUT, BPPSA_OP_MV, false, 2, 3, 1, 12, "g[1]", "a[3]", "g[0]"}};
  bppsa_scan_iterator it = {0};
  bppsa_scan_step s;
  for (size_t i = 0; i < sizeof expected / sizeof *expected; ++i) {
    char left[BPPSA_OPERAND_TEXT], right[BPPSA_OPERAND_TEXT], out[BPPSA_OPERAND_TEXT];
    assert_true(bppsa_scan_plan_next(plan, &it, &s));
    assert_int_equal(s.level->phase, expected[i].phase);
    assert_int_equal(s.level->op, expected[i].op);
    assert_int_equal(s.level->dead, expected[i].dead);
    assert_int_equal(s.m, expected[i].m);
    assert_int_equal(s.k, expected[i].k);
    assert_int_equal(s.n, expected[i].n);
    assert_int_equal(s.flops, expected[i].flops);
    bppsa_scan_step_text(plan, &s, left, right, out);
    assert_string_equal(left, expected[i].left);
    assert_string_equal(right, expected[i].right);
    assert_string_equal(out, expected[i].out);
  }
  assert_false(bppsa_scan_plan_next(plan, &it, &s));
  assert_int_equal(bppsa_scan_plan_totals(plan)->critical_steps, 2);
  assert_int_equal(bppsa_scan_plan_totals(plan)->critical_flops, 100);
  bppsa_scan_plan_destroy(plan);
}

static void test_totals_of_large_plans(void **state) {
  (void)state;
  bppsa_scan_config c = bppsa_scan_config_default();
  c.element = BPPSA_ELEMENT_RECURRENT;
  c.method.algorithm = BPPSA_SCAN_CHUNKED;
  c.jacobians = 1000000;
  c.dim = 20;
  bppsa_scan_plan *plan = NULL;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  int64_t records;
  (void)bppsa_scan_plan_records(plan, &records);
  assert_in_range(records, 1, 8); /* a million steps are still a few records */
  bppsa_scan_plan_destroy(plan);
  c.method.algorithm = BPPSA_SCAN_BLELLOCH;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_plan_totals(plan)->workspace_bytes, 500000LL * 20 * 20 * 4);
  bppsa_scan_plan_destroy(plan);
}

static void test_auto_takes_the_least_predicted_time(void **state) {
  (void)state;
  bppsa_scan_plan *plan = make(BPPSA_SCAN_AUTO, 1000, 0, 0, false);
  assert_int_equal(bppsa_scan_plan_config(plan)->method.algorithm, BPPSA_SCAN_LINEAR);
  bppsa_scan_plan_destroy(plan);
  double best = 0;
  int64_t tried = 0;
  bppsa_scan_config asked = bppsa_scan_config_default(), candidate;
  asked.element = BPPSA_ELEMENT_RECURRENT;
  asked.jacobians = 777;
  asked.dim = 12;
  for (; bppsa_scan_candidate(&asked, tried, &candidate); ++tried) { /* linear, 9 numbers of up-levels, chunked */
    assert_int_equal(bppsa_scan_plan_create(&candidate, &plan), BPPSA_OK);
    const double seconds = bppsa_scan_plan_seconds(plan);
    assert_true(seconds > 0);
    best = tried == 0 || seconds < best ? seconds : best;
    bppsa_scan_plan_destroy(plan);
  }
  assert_int_equal(tried, 11);
  asked.method.algorithm = BPPSA_SCAN_AUTO;
  assert_int_equal(bppsa_scan_plan_create(&asked, &plan), BPPSA_OK);
  assert_true(bppsa_scan_plan_seconds(plan) == best);
  bppsa_scan_plan_destroy(plan);
  bppsa_scan_config c =
      bppsa_scan_config_default(); /* size 1: a product costs as much as a mat-vec; more of them still cost more */
  c.method.algorithm = BPPSA_SCAN_AUTO;
  c.jacobians = 3;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  const bppsa_scan_totals *t = bppsa_scan_plan_totals(plan);
  assert_int_equal(t->mm_flops + t->mv_flops, 4);
  assert_int_equal(t->critical_steps, 2);
  bppsa_scan_plan_destroy(plan);
}

/* A GPU has room for many chunks: more than a CPU, fewer for larger batches, none for a short chain or a batch that keeps the GPU
 * busy by itself. */
static void test_auto_on_a_gpu(void **state) {
  (void)state;
  static const struct {
    int64_t steps, batch;
    bool chunked;
  } cases[] = {{10, 16, false}, {1000, 16, true}, {10000, 16, true}, {10000, 64, true}, {1000, 2048, false}};
  int64_t chunks[5];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    bppsa_scan_config c = bppsa_scan_config_default();
    bppsa_scan_plan *plan = NULL;
    c.method.algorithm = BPPSA_SCAN_AUTO;
    c.element = BPPSA_ELEMENT_RECURRENT;
    c.jacobians = cases[i].steps;
    c.batch = cases[i].batch;
    c.dim = 20;
    c.device = BPPSA_CUDA;
    assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
    assert_int_equal(bppsa_scan_plan_config(plan)->method.algorithm, cases[i].chunked ? BPPSA_SCAN_CHUNKED : BPPSA_SCAN_LINEAR);
    chunks[i] = bppsa_scan_plan_config(plan)->method.chunks;
    bppsa_scan_plan_destroy(plan);
  }
  assert_true(chunks[1] > 45); /* √2000 */
  assert_true(chunks[3] < chunks[2]);
}

static double gpu_seconds(bppsa_scan_algorithm algorithm, int64_t chunks, int64_t matrices, int64_t dim, int64_t steps,
                          bppsa_dtype dtype) {
  bppsa_scan_config c = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  c.method.algorithm = algorithm;
  c.method.chunks = chunks;
  c.element = BPPSA_ELEMENT_RECURRENT;
  c.jacobians = steps;
  c.batch = 16;
  c.matrices = matrices;
  c.diagonal = matrices > 1;
  c.dim = dim;
  c.dtype = dtype;
  c.device = BPPSA_CUDA;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  const double seconds = bppsa_scan_plan_seconds(plan);
  bppsa_scan_plan_destroy(plan);
  return seconds;
}

/* Predictions for a GPU grow with the work; a long chain takes longer than its chunks, and what the carry between chunks takes
 * grows with their number. */
static void test_predicted_on_a_gpu(void **state) {
  (void)state;
  for (int scan = 0; scan < 2; ++scan) {
    const bppsa_scan_algorithm a = scan ? BPPSA_SCAN_CHUNKED : BPPSA_SCAN_LINEAR;
    const double seconds = gpu_seconds(a, scan * 256, 1, 20, 10000, BPPSA_F32);
    assert_true(gpu_seconds(a, scan * 256, 1, 20, 20000, BPPSA_F32) > 1.4 * seconds);
    assert_true(gpu_seconds(a, scan * 256, 1, 32, 10000, BPPSA_F32) > 1.1 * seconds);
    /* the products of a scan's chunks are as large for any number of matrices */
    assert_true(gpu_seconds(a, scan * 256, 2, 20, 10000, BPPSA_F32) > (scan ? 1.02 : 1.2) * seconds);
    assert_true(gpu_seconds(a, scan * 256, 3, 20, 10000, BPPSA_F32) > gpu_seconds(a, scan * 256, 2, 20, 10000, BPPSA_F32));
    assert_true(gpu_seconds(a, scan * 256, 1, 20, 10000, BPPSA_F64) > 1.5 * seconds);
  }
  double before = gpu_seconds(BPPSA_SCAN_LINEAR, 0, 1, 32, 10000, BPPSA_F32);
  for (int64_t dim = 64; dim <= 512;
       dim *= 2) { /* a wide layer's walk; behind it an executor, whose matrices come out of caches */
    const double wide = gpu_seconds(BPPSA_SCAN_LINEAR, 0, 1, dim, 10000, BPPSA_F32);
    assert_true(wide > (dim == 512 ? 2.5 : 1.1) * before &&
                wide < 3.5 * before); /* H = 512 takes two turns of clusters, 256 one */
    assert_true(gpu_seconds(BPPSA_SCAN_LINEAR, 0, 2, dim, 10000, BPPSA_F32) > wide);
    assert_true(gpu_seconds(BPPSA_SCAN_LINEAR, 0, 1, dim - 20, 10000, BPPSA_F32) == wide);
    before = wide;
  }
  assert_true(gpu_seconds(BPPSA_SCAN_LINEAR, 0, 1, 513, 10000, BPPSA_F32) > 10 * before);
  const double gru = gpu_seconds(BPPSA_SCAN_LINEAR, 0, 3, 384, 10000, BPPSA_F32);
  assert_true(gpu_seconds(BPPSA_SCAN_LINEAR, 0, 3, 257, 10000, BPPSA_F32) == gru);
  assert_true(gpu_seconds(BPPSA_SCAN_LINEAR, 0, 3, 256, 10000, BPPSA_F32) < gru);
  assert_true(gpu_seconds(BPPSA_SCAN_LINEAR, 0, 3, 512, 10000, BPPSA_F32) > gru);
  assert_true(gpu_seconds(BPPSA_SCAN_LINEAR, 0, 3, 384, 10000, BPPSA_F64) < 3 * gru); /* at 385 its matrices find no room */
  assert_true(gpu_seconds(BPPSA_SCAN_LINEAR, 0, 3, 385, 10000, BPPSA_F64) > 10 * gru);
  const double many = gpu_seconds(BPPSA_SCAN_CHUNKED, 256, 1, 20, 30000, BPPSA_F32);
  assert_true(5 * many < gpu_seconds(BPPSA_SCAN_LINEAR, 0, 1, 20, 30000, BPPSA_F32));
  assert_true(many < gpu_seconds(BPPSA_SCAN_CHUNKED, 16, 1, 20, 30000, BPPSA_F32));
  assert_true(many < gpu_seconds(BPPSA_SCAN_CHUNKED, 8192, 1, 20, 30000, BPPSA_F32));
}

/* What the model expects of an RNN's backward pass beside what an H200 took (bench/results/h200/rnn.json and rnn_1000.json, rows of
 * graphs): T, chunks or 0 for sequential BP, microseconds. */
static void test_measured_on_a_gpu(void **state) {
  (void)state;
  static const struct {
    int64_t steps, chunks;
    double us;
  } rows[] = {{10, 0, 10.1}, {30, 0, 12.5},   {100, 0, 16.8},  {300, 0, 31.2},  {1000, 0, 75.6},  {10, 4, 20.9},
              {30, 8, 23.4}, {100, 14, 29.2}, {300, 24, 39.3}, {300, 64, 32.3}, {1000, 45, 60.0}, {1000, 128, 47.4}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    const double us = 1e6 * gpu_seconds(rows[i].chunks == 0 ? BPPSA_SCAN_LINEAR : BPPSA_SCAN_CHUNKED, rows[i].chunks, 1, 20,
                                        rows[i].steps, BPPSA_F32);
    if (!(us > 0.8 * rows[i].us && us < 1.25 * rows[i].us)) {
      fail_msg("T %d, %d chunks: %.1f us expected, %.1f measured", (int)rows[i].steps, (int)rows[i].chunks, us, rows[i].us);
    }
  }
}

/* The model's predictions must change in the same direction as the measurements they stand for. */
static void test_predicted_seconds(void **state) {
  (void)state;
  static const bppsa_scan_algorithm slower[] = {BPPSA_SCAN_LINEAR, BPPSA_SCAN_CHUNKED, BPPSA_SCAN_BLELLOCH};
  bppsa_scan_config c = bppsa_scan_config_default();
  c.element = BPPSA_ELEMENT_RECURRENT;
  c.jacobians = 1000;
  c.batch = 16;
  c.dim = 20;
  double before = 0;
  for (size_t i = 0; i < sizeof slower / sizeof slower[0]; ++i) {
    double seconds[4];
    for (int variant = 0; variant < 4; ++variant) { /* as it is, f64, twice the batch, twice the length */
      bppsa_scan_config v = c;
      bppsa_scan_plan *plan = NULL;
      v.method.algorithm = slower[i];
      v.dtype = variant == 1 ? BPPSA_F64 : BPPSA_F32;
      v.batch *= variant == 2 ? 2 : 1;
      v.jacobians *= variant == 3 ? 2 : 1;
      assert_int_equal(bppsa_scan_plan_create(&v, &plan), BPPSA_OK);
      seconds[variant] = bppsa_scan_plan_seconds(plan);
      bppsa_scan_plan_destroy(plan);
      assert_true(variant == 0 || (seconds[variant] > 1.2 * seconds[0] && seconds[variant] < 2.2 * seconds[0]));
    }
    assert_true(seconds[0] > before && seconds[0] < 0.1);
    before = seconds[0];
  }
}

static void test_clamping(void **state) {
  (void)state;
  bppsa_scan_plan *plan = make(BPPSA_SCAN_BLELLOCH, 21, 100, 0, false);
  assert_int_equal(bppsa_scan_plan_config(plan)->method.up_levels, 4);
  bppsa_scan_plan_destroy(plan);
  plan = make(BPPSA_SCAN_CHUNKED, 21, 0, 1000, false);
  assert_int_equal(bppsa_scan_plan_config(plan)->method.chunks, 21);
  bppsa_scan_plan_destroy(plan);
  plan = make(BPPSA_SCAN_CHUNKED, 1000, 0, 0, false); /* √2000 = 44.7 */
  assert_int_equal(bppsa_scan_plan_config(plan)->method.chunks, 45);
  bppsa_scan_plan_destroy(plan);
}

static void test_refusals(void **state) {
  (void)state;
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_config c = bppsa_scan_config_default();
  c.jacobians = -1;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_ERR_ARGUMENT);
  c = bppsa_scan_config_default();
  c.dim = 0;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_ERR_SHAPE);
  c.dim = (int64_t)1 << 31;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_ERR_SHAPE);
  c = bppsa_scan_config_default();
  c.dtype = BPPSA_I64;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_ERR_UNSUPPORTED);
  c = bppsa_scan_config_default();
  c.jacobians = (int64_t)1 << 60;
  c.dim = 1000;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_ERR_ARGUMENT);
  c = bppsa_scan_config_default();
  c.jacobians = (int64_t)1 << 30;
  c.dim = 1000;
  c.batch = INT64_MAX / 1000;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_ERR_ARGUMENT);
  const int64_t dims[] = {1, 0, 2};
  c = bppsa_scan_config_default();
  c.jacobians = 2;
  c.dims = dims;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_ERR_SHAPE);
  c.dims = NULL;
  c.element = BPPSA_ELEMENT_RECURRENT;
  c.matrices = 0;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_ERR_ARGUMENT);
  assert_null(plan);
  assert_non_null(strstr(bppsa_last_error(), "shared matrices"));
}

static void test_allocation_failure(void **state) {
  (void)state;
  const int64_t dims[] = {2, 3, 5, 7, 4, 3, 2, 6};
  for (int64_t call = 1;; ++call) {
    bppsa_scan_config c = bppsa_scan_config_default();
    c.method.algorithm = BPPSA_SCAN_AUTO;
    c.jacobians = 7;
    c.dims = dims;
    bppsa_scan_plan *plan = NULL;
    const int64_t live = bppsa_alloc_live();
    bppsa_alloc_fail_at(call);
    const bppsa_status status = bppsa_scan_plan_create(&c, &plan);
    bppsa_alloc_fail_at(0);
    if (status == BPPSA_OK) {
      assert_true(call > 4);
      bppsa_scan_plan_destroy(plan);
      assert_int_equal(bppsa_alloc_live(), live);
      return;
    }
    assert_int_equal(status, BPPSA_ERR_MEMORY);
    assert_null(plan);
    assert_int_equal(bppsa_alloc_live(), live);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_blelloch_is_algorithm_1),
      cmocka_unit_test(test_dataflow),
      cmocka_unit_test(test_critical_steps),
      cmocka_unit_test(test_vgg11_counts),
      cmocka_unit_test(test_costs),
      cmocka_unit_test(test_totals_of_large_plans),
      cmocka_unit_test(test_auto_takes_the_least_predicted_time),
      cmocka_unit_test(test_auto_on_a_gpu),
      cmocka_unit_test(test_predicted_on_a_gpu),
      cmocka_unit_test(test_measured_on_a_gpu),
      cmocka_unit_test(test_predicted_seconds),
      cmocka_unit_test(test_clamping),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_allocation_failure),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
