/* Executors of one plan that run at the same time, as its products' scratch allows. */
#include <pthread.h>

#include "tests/scan/csr_chain.h"

enum { TIMES = 1000 };

typedef struct {
  bppsa_scan_executor *executor;
  const chain *chain;
  const void *expected;
  void *gradients;
  bool wrong;
} worker;

static size_t gradient_bytes(const chain *c) {
  return (size_t)(c->offsets[c->n + 1] * c->batch) * bppsa_dtype_size(c->dtype);
}

static bppsa_status execute(worker *w) {
  const bppsa_scan_operands operands = {.batch = w->chain->batch, .values = w->chain->values, .gradients = w->gradients};
  memcpy(w->gradients, w->chain->seed, gradient_bytes(w->chain));
  return w->executor->execute(w->executor, &operands);
}

static void *execute_often(void *argument) {
  worker *w = argument;
  for (int i = 0; i < TIMES && !w->wrong; ++i) {
    w->wrong = execute(w) != BPPSA_OK || memcmp(w->gradients, w->expected, gradient_bytes(w->chain)) != 0;
  }
  return NULL;
}

static void test_sparse(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  for (int k = 0; k < 6; ++k) {
    static chain c;
    bppsa_scan_plan *plan = NULL;
    counter = 1000 * (uint64_t)k;
    make_chain(&c, 10, k % 2 == 0 ? BPPSA_F64 : BPPSA_F32, device);
    const bppsa_scan_config config = config_of(&c, BPPSA_SCAN_BLELLOCH, -1, device);
    worker workers[2] = {{.chain = &c}, {.chain = &c}};
    assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
    for (int i = 0; i < 2; ++i) {
      workers[i].gradients = bppsa_alloc(gradient_bytes(&c));
      assert_int_equal(bppsa_scan_executor_create(plan, device, &workers[i].executor), BPPSA_OK);
    }
    assert_int_equal(execute(&workers[0]), BPPSA_OK);
    void *expected = bppsa_alloc(gradient_bytes(&c));
    memcpy(expected, workers[0].gradients, gradient_bytes(&c));
    workers[0].expected = workers[1].expected = expected;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, execute_often, &workers[1]), 0);
    execute_often(&workers[0]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(workers[0].wrong || workers[1].wrong);
    for (int i = 0; i < 2; ++i) {
      bppsa_scan_executor_destroy(workers[i].executor);
      bppsa_free(workers[i].gradients);
    }
    bppsa_free(expected);
    bppsa_scan_plan_destroy(plan);
    free_chain(&c);
  }
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sparse)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
