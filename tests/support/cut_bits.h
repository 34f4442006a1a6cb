/* Computes the gradients of a chunked scan with one number in each step, to the bit, for any cut: a test compares an execution
 * with them to see where it was cut. */
#ifndef BPPSA_TESTS_CUT_BITS_H
#define BPPSA_TESTS_CUT_BITS_H

#include <stdbool.h>
#include <stdint.h>

/* Cuts into balanced chunks by their definition: P sizes that add up to n, differ by at most one, and do not increase. begin: P +
 * 1 numbers. */
static inline void balanced_cut(int64_t n, int64_t p, int64_t *begin) {
  begin[0] = 0;
  for (int64_t k = 0; k < p; ++k) {
    begin[k + 1] = begin[k] + (n - begin[k] + p - k - 1) / (p - k);
  }
}

/* Makes another cut, with equal chunks except the last. Returns how many chunks there are. */
static inline int64_t ceiling_cut(int64_t n, int64_t p, int64_t *begin) {
  const int64_t size = (n + p - 1) / p, count = (n + size - 1) / size;
  for (int64_t k = 0; k <= count; ++k) {
    begin[k] = k * size < n ? k * size : n;
  }
  return count;
}

/* Is (n, P) the pair that stands for all chains of up to `most` steps with P chunks of n / P steps or one more? These shapes
 * differ in n % P, the number of larger chunks. */
static inline bool is_example(int64_t most, int64_t n, int64_t p) {
  const int64_t size = n / p, rest = most - size * p, larger = rest < p ? rest + 1 : p;
  return n % p == (7 * p + 5 * size) % larger;
}

/* y[0] is the seed; a[i] takes y[i] to y[i + 1] by two factors, each product rounded. There are P chunks, given by `begin`: a
 * gradient is carried through their products, and each chunk is walked from its carried gradient. fused: chunk 0 has a product
 * too, and a walk continues to where the next chunk begins; otherwise chunk 0 is walked first, and carried gradients are kept. */
static inline void chunked_bits(const float *first, const float *second, int64_t p, const int64_t *begin, bool fused, float *y) {
  float carried = y[0];
  for (int64_t k = 0; k < p; ++k) {
    const bool joins = (k > 0 || fused) && (fused || begin[k + 1] - begin[k] > 1), stays = !fused && k + 1 < p;
    float product = joins ? 1 : carried, walked = carried;
    for (int64_t i = begin[k]; i < begin[k + 1]; ++i) {
      product = product * first[i] * second[i];
      walked = walked * first[i] * second[i];
      y[i + 1] = walked;
    }
    carried = joins ? carried * product : product;
    if (stays) {
      y[begin[k + 1]] = carried;
    }
  }
}

#endif
