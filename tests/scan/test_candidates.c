/* What `auto` chooses among follows from the table of algorithms, and from what a device and an element can take. */
#include <string.h>

#include "scan/plan.h"
#include "tests/support/support.h"

static bppsa_scan_config config_of(bppsa_element element, bppsa_device_kind device, int64_t n) {
  bppsa_scan_config c = bppsa_scan_config_default();
  c.element = element;
  c.device = device;
  c.jacobians = n;
  c.method.algorithm = BPPSA_SCAN_AUTO;
  return c;
}

/* The candidates' texts, with a comma behind each. threads < 0: those of the cost model. */
static void list(const bppsa_scan_config *c, int32_t threads, char *text, size_t size) {
  bppsa_scan_config candidate;
  char one[BPPSA_METHOD_TEXT];
  text[0] = '\0';
  for (int64_t i = 0;
       threads < 0 ? bppsa_scan_candidate(c, i, &candidate) : bppsa_scan_candidate_to_measure(c, threads, i, &candidate); ++i) {
    strncat(text, bppsa_scan_method_text(&candidate.method, one, sizeof one), size - strlen(text) - 1);
    strncat(text, ",", size - strlen(text) - 1);
    candidate.method = c->method; /* all else is the configuration's */
    assert_memory_equal(&candidate, c, sizeof candidate);
  }
}

static void check(bppsa_element element, bppsa_device_kind device, int64_t n, int32_t threads, const char *expected) {
  const bppsa_scan_config c = config_of(element, device, n);
  char text[512];
  list(&c, threads, text, sizeof text);
  assert_string_equal(text, expected);
}

#define TREES "linear,blelloch 1,blelloch 2,blelloch 3,blelloch 4,"

static void test_by_element_and_device(void **state) {
  (void)state;
  for (int e = BPPSA_ELEMENT_DENSE; e <= BPPSA_ELEMENT_RECURRENT; ++e) {
    check((bppsa_element)e, BPPSA_CPU, 20, -1, TREES "chunked,");
    check((bppsa_element)e, BPPSA_CUDA, 20, -1, TREES "chunked,chunked 2,chunked 4,chunked 8,chunked 16,");
  }
  check(BPPSA_ELEMENT_PAIR, BPPSA_CPU, 20, -1, TREES "chunked,");
  check(BPPSA_ELEMENT_PAIR, BPPSA_CUDA, 20, -1, TREES "chunked,chunked 2,chunked 4,chunked 8,chunked 16,");
  check(BPPSA_ELEMENT_CSR, BPPSA_CPU, 20, -1, TREES); /* sparse elements have no chunks */
  check(BPPSA_ELEMENT_CSR, BPPSA_CUDA, 20, -1, TREES);
  check(BPPSA_ELEMENT_DENSE, BPPSA_CPU, 0, -1, "linear,chunked,");
  check(BPPSA_ELEMENT_DENSE, BPPSA_CUDA, 2, -1, "linear,blelloch 1,chunked,");
  check(BPPSA_ELEMENT_DENSE, BPPSA_CUDA, 3, -1, "linear,blelloch 1,chunked,chunked 2,");
}

/* A GPU's chunks end at 4096, however long the chain is. */
static void test_long_chain(void **state) {
  (void)state;
  const bppsa_scan_config c = config_of(BPPSA_ELEMENT_RECURRENT, BPPSA_CUDA, 1000000);
  bppsa_scan_config candidate;
  int64_t count = 0, most = 0;
  for (; bppsa_scan_candidate(&c, count, &candidate); ++count) {
    most = candidate.method.chunks > most ? candidate.method.chunks : most;
  }
  assert_int_equal(most, 4096);
  assert_int_equal(count, 1 + 19 + 1 + 12);
}

/* Measuring tries besides what keeps a processor's threads busy. */
static void test_to_measure(void **state) {
  (void)state;
  check(BPPSA_ELEMENT_RECURRENT, BPPSA_CPU, 20, 3, TREES "chunked,chunked 3,chunked 6,chunked 12,");
  check(BPPSA_ELEMENT_RECURRENT, BPPSA_CUDA, 20, 3, TREES "chunked,chunked 2,chunked 4,chunked 8,chunked 16,");
  check(BPPSA_ELEMENT_CSR, BPPSA_CPU, 20, 3, TREES);
  check(BPPSA_ELEMENT_RECURRENT, BPPSA_CPU, 20, 0, TREES "chunked,");
}

static void test_out_of_range(void **state) {
  (void)state;
  const bppsa_scan_config c = config_of(BPPSA_ELEMENT_DENSE, BPPSA_CPU, 20);
  bppsa_scan_config candidate = {.jacobians = 77};
  assert_false(bppsa_scan_candidate(&c, -1, &candidate));
  assert_false(bppsa_scan_candidate(&c, 6, &candidate));
  assert_false(bppsa_scan_candidate(&c, INT64_MAX, &candidate));
  assert_int_equal(candidate.jacobians, 77);
}

/* Which candidate is BP under another name. */
static void test_recurrence(void **state) {
  (void)state;
  for (int a = -1; a <= BPPSA_SCAN_ALGORITHMS; ++a) {
    assert_int_equal(bppsa_scan_algorithm_is_bp((bppsa_scan_algorithm)a), a == BPPSA_SCAN_LINEAR);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_by_element_and_device), cmocka_unit_test(test_long_chain),
                                     cmocka_unit_test(test_to_measure), cmocka_unit_test(test_out_of_range),
                                     cmocka_unit_test(test_recurrence)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
