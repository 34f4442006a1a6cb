/* A target whose reader refuses everything: its replay must fail. */
#include "tests/fuzz/fuzz.h"

bppsa_status fuzz_run(const fuzz_input *input) {
  return bppsa_fail(BPPSA_ERR_FORMAT, "%d parts, expected something else", input->count);
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  fuzz_add_number(seed, (uint64_t)index, 1);
  return index < 2;
}
