/* Chunks are cut in one way: those that a plan prints are those that CPU and GPU execute and a schedule of the scan has. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "scan/scan.h"
#include "schedule/schedule.h"
#include "tests/simt/watch.h"
#include "tests/support/cut_bits.h"
#include "tests/support/length.h"
#include "tests/support/support.h"

enum { MOST = 300 };

/* The last kind is planned alone: its elements are no numbers. */
static const bppsa_element elements[] = {BPPSA_ELEMENT_DENSE, BPPSA_ELEMENT_DIAGONAL, BPPSA_ELEMENT_RECURRENT,
                                         BPPSA_ELEMENT_PAIR};
enum { EXECUTED = 3, PLANNED };

static bppsa_scan_plan *make(bppsa_element element, int64_t n, int64_t chunks) {
  bppsa_scan_config c = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  c.method.algorithm = BPPSA_SCAN_CHUNKED;
  c.method.chunks = chunks;
  c.element = element;
  c.dim = element == BPPSA_ELEMENT_PAIR ? 2 : 1;
  c.diagonal = element == BPPSA_ELEMENT_PAIR;
  c.jacobians = n;
  c.input = true;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  return plan;
}

/* The chunks of a plan must be those of `begin`: every product lies within one of them and covers it from its first element, and
 * all phases together make each of y[2] .. y[n + 1] once. */
static void check_plan(const bppsa_scan_plan *plan, int64_t n, int64_t p, const int64_t *begin) {
  int64_t chunk[MOST + 1], made[MOST + 2] = {0}, carried = 1;
  bppsa_scan_iterator it = {0};
  bppsa_scan_step s;
  for (int64_t k = 0; k < p; ++k) {
    for (int64_t i = begin[k]; i < begin[k + 1]; ++i) {
      chunk[i] = k;
    }
  }
  while (bppsa_scan_plan_next(plan, &it, &s)) {
    const int64_t k = chunk[s.first - 1];
    assert_int_equal(chunk[s.last - 1], k);
    if (s.level->op == BPPSA_OP_MM) {
      assert_true(k > 0 && k + 1 < p && s.first == begin[k] + 1);
      assert_true(s.last == s.split && s.last <= begin[k + 1]);
    } else {
      ++made[s.split];
    }
    if (s.level->phase == BPPSA_PHASE_MIDDLE) {
      assert_int_equal(k, carried++);
      assert_true(s.first == begin[k] + 1 && s.last == begin[k + 1]);
    } else if (s.level->op == BPPSA_OP_MV) {
      assert_int_equal(s.first, s.last);
      assert_int_equal(s.level->phase, s.first == n ? BPPSA_PHASE_INPUT : k == 0 ? BPPSA_PHASE_UP : BPPSA_PHASE_DOWN);
    }
  }
  assert_int_equal(carried, p > 2 ? p - 1 : 1);
  for (int64_t i = 2; i <= n + 1; ++i) {
    assert_int_equal(made[i], 1);
  }
}

/* The share of every worker, in any schedule of the scan. */
static void check_schedule(const char *scheme, int64_t n, int64_t p, const int64_t *begin) {
  bppsa_schedule_config c = bppsa_schedule_config_default();
  bppsa_schedule *list = NULL;
  int64_t shares = 0;
  c.stages = p;
  c.elements = n + 1;
  assert_int_equal(bppsa_schedule_create(scheme, &c, &list), BPPSA_OK);
  for (int64_t id = 0; id < list->count; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    if (op->kind == BPPSA_KIND_APPLY) {
      assert_int_equal(op->layer, begin[op->worker]);
      assert_int_equal(op->layer + op->layers, begin[op->worker + 1]);
      ++shares;
    }
  }
  assert_int_equal(shares, p);
  bppsa_schedule_destroy(list);
}

static void test_plans_and_schedules(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  const int64_t most = bppsa_device_get_kind(device) == BPPSA_CPU ? MOST : 20; /* plans are the same for all */
  int64_t begin[MOST + 1];
  for (int64_t n = 1; n <= most; ++n) {
    for (int64_t wanted = 0; wanted <= n; ++wanted) {
      if (n > 9 && !is_drawn(10)) {
        continue;
      }
      for (int e = 0; e < (n <= 60 ? PLANNED : EXECUTED); ++e) {
        bppsa_scan_plan *plan = make(elements[e], n, wanted);
        const int64_t p = bppsa_scan_plan_config(plan)->method.chunks;
        const int64_t fastest = (int64_t)(sqrt(2.0 * (double)n) + 0.5);
        assert_int_equal(p, wanted > 0 ? wanted : fastest < n ? fastest : n);
        balanced_cut(n, p, begin);
        check_plan(plan, n, p, begin);
        bppsa_scan_plan_destroy(plan);
      }
      if (wanted > 0) {
        check_schedule("scan-chunked", n, wanted, begin);
        if (n % 10 == 0) {
          check_schedule(wanted % 2 == 0 ? "scan-blelloch" : "scan-linear", n, wanted, begin);
        }
      }
    }
  }
  bppsa_device_destroy(device);
}

/* ---- executed ---- */

/* Factors for which every rounding matters, while products stay near 1. */
typedef struct {
  float first[MOST], second[MOST]; /* of a[i + 1]; second: W of recurrent elements, otherwise 1 */
  float jt[MOST];                  /* first, by step */
} chain;

static void make_chain(chain *c, bppsa_element element, int64_t n) {
  double *random = uniform((uint64_t)n, n, 0.4);
  for (int64_t i = 0; i < n; ++i) {
    c->second[i] = element == BPPSA_ELEMENT_RECURRENT ? 1.0371f : 1;
    c->first[i] = (float)(1 + random[i]);
    c->jt[n - 1 - i] = c->first[i]; /* a[i + 1] is J_t, t = n - i, at t - 1 */
  }
  bppsa_free(random);
}

static void execute(const bppsa_device *device, bppsa_element element, int64_t n, int64_t wanted, const chain *c, float *y) {
  bppsa_scan_plan *plan = make(element, n, wanted);
  bppsa_scan_executor *executor = NULL;
  float g[MOST + 1] = {0};
  g[n] = 1;
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  void *jt = on_device(device, c->jt, n * (int64_t)sizeof(float)), *w = on_device(device, c->second, (int64_t)sizeof(float));
  void *gradients = on_device(device, g, (n + 1) * (int64_t)sizeof(float));
  const void *weights[] = {w}, *columns[] = {jt};
  const bppsa_scan_operands operands = {.batch = 1, .jt = jt, .weights = weights, .columns = columns, .gradients = gradients};
  assert_int_equal(executor->execute(executor, &operands), BPPSA_OK);
  assert_int_equal(bppsa_memory_get(device, g, gradients, (n + 1) * (int64_t)sizeof(float)), BPPSA_OK);
  assert_int_equal(executor->redone, 0);
  for (int64_t i = 0; i <= n; ++i) {
    y[i] = g[n - i];
  }
  bppsa_memory_free(device, jt);
  bppsa_memory_free(device, w);
  bppsa_memory_free(device, gradients);
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
}

/* Which cuts are executed. On a GPU, real or emulated: all cuts of short chains, and of longer ones one for each number and size of
 * chunks, with some number of larger chunks, because bench/gpu.sh gives its tests three minutes; the launches of the others are
 * compared below. A GPU computes diagonal chains of 64 links or more in another order, with other bits. */
static bool is_taken(const bppsa_device *device, bppsa_element element, int64_t n, int64_t p) {
  const bool gpu = bppsa_device_get_kind(device) != BPPSA_CPU;
  if (gpu && element == BPPSA_ELEMENT_DIAGONAL && (n / p > 60 || p > 60)) {
    return false;
  }
  return !gpu || n <= 9 || is_example(MOST, n, p);
}

static void test_executed(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  int64_t begin[MOST + 1], differs = 0, cuts = 0;
  float expected[MOST + 1], other[MOST + 1], got[MOST + 1];
  static chain c;
  for (int64_t n = 1; n <= MOST; ++n) {
    for (int e = 0; e < EXECUTED; ++e) {
      make_chain(&c, elements[e], n);
      for (int64_t wanted = 1; wanted <= n; ++wanted) {
        if (!is_taken(device, elements[e], n, wanted) || (n > 9 && !is_drawn(10))) {
          continue;
        }
        expected[0] = other[0] = 1;
        const int64_t old = ceiling_cut(n, wanted, begin);
        chunked_bits(c.first, c.second, old, begin, false, other);
        balanced_cut(n, wanted, begin);
        chunked_bits(c.first, c.second, wanted, begin, false, expected);
        execute(device, elements[e], n, wanted, &c, got);
        for (int64_t i = 0; i <= n; ++i) {
          if (got[i] != expected[i]) {
            fail_msg("element %d, n %d, P %d: y[%d] is %.9g, expected %.9g", (int)elements[e], (int)n, (int)wanted, (int)i + 1,
                     (double)got[i], (double)expected[i]);
          }
        }
        cuts += n % wanted != 0 && old > 2;
        differs += memcmp(expected, other, (size_t)(n + 1) * sizeof(float)) != 0;
      }
    }
  }
  assert_true(differs > cuts / 2); /* the bits tell one cut from another */
  bppsa_device_destroy(device);
}

/* ---- launched ---- */

/* Records of a plan that are compared with launches: the next one. */
typedef struct {
  const bppsa_scan_plan *plan;
  int64_t next;
} records;

static void check_launch(void *context, const simt_call *call) {
  records *r = context;
  int64_t count, found[6];
  const bppsa_scan_level *levels = bppsa_scan_plan_records(r->plan, &count);
  assert_true(r->next < count);
  const bppsa_scan_level *level = &levels[r->next++];
  const int64_t expected[] = {level->first, level->stride, level->span, level->length, level->longer, level->wider};
  int matches = 0;
  for (int i = 0; i < call->arguments; ++i) { /* one of the arguments is the record */
    if (call->size[i] == sizeof found) {
      memcpy(found, call->argument[i], sizeof found);
      assert_memory_equal(found, expected, sizeof found);
      ++matches;
    }
  }
  assert_int_equal(matches, 1);
}

/* Every launch of every cut has a record in the printed plan, and every record has a launch. */
static void test_launched(void **state) {
  (void)state;
  bppsa_device *device = emulated_device(1);
  static float room[MOST + 1];
  const void *const factors[] = {room};
  const bppsa_scan_operands operands = {.batch = 1, .jt = room, .weights = factors, .columns = factors, .gradients = room};
  for (int64_t n = 1; n <= MOST; ++n) {
    for (int64_t wanted = 0; wanted <= n; ++wanted) {
      if (n > 9 && !is_drawn(20)) {
        continue;
      }
      for (int e = 0; e < EXECUTED; ++e) {
        bppsa_scan_executor *executor = NULL;
        records r = {.plan = make(elements[e], n, wanted)};
        int64_t count;
        (void)bppsa_scan_plan_records(r.plan, &count);
        assert_int_equal(bppsa_scan_executor_create(r.plan, device, &executor), BPPSA_OK);
        simt_watch(check_launch, &r);
        assert_int_equal(executor->execute(executor, &operands), BPPSA_OK);
        simt_watch(NULL, NULL);
        assert_int_equal(r.next, count);
        bppsa_scan_executor_destroy(executor);
        bppsa_scan_plan_destroy((bppsa_scan_plan *)r.plan);
      }
    }
  }
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans_and_schedules), cmocka_unit_test(test_executed),
                                     cmocka_unit_test(test_launched)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
