/* Decides how much a test runs. At full length (BPPSA_TEST_LENGTH=full, which `make check-long` sets) it runs everything. On
 * every push it cuts long runs short, and samples grids by a seed that tools/run_tests draws from the commit. */
#ifndef BPPSA_TESTS_SUPPORT_LENGTH_H
#define BPPSA_TESTS_SUPPORT_LENGTH_H

#include <stdbool.h>
#include <stdint.h>

bool at_full_length(void);
/* Skips the case that calls it, unless it is at full length. */
void only_at_full_length(void);

/* Is the next point of a grid taken? At full length every point is, otherwise one of `of`; which one depends on BPPSA_TEST_SEED
 * (1 if it is not set) and on how many calls came before. The first call prints the seed, which CTest shows when the test fails. */
bool is_drawn(int64_t of);

#endif
