/* Patterns that several tests of products take. */
#ifndef BPPSA_TESTS_JACOBIAN_PATTERNS_H
#define BPPSA_TESTS_JACOBIAN_PATTERNS_H

#include "jacobian/csr.h"
#include "tests/core/helpers.h"

static inline bppsa_csr diagonal_pattern(int64_t n) {
  bppsa_csr csr;
  assert_int_equal(bppsa_csr_create(n, n, n, &csr), BPPSA_OK);
  for (int64_t i = 0; i < n; ++i) {
    csr.col[i] = (int32_t)i;
    csr.row_ptr[i + 1] = i + 1;
  }
  return csr;
}

#endif
