/* Chains whose products are useless, or leave the range of numbers, while the recurrence over them is exact. */
#ifndef BPPSA_TESTS_DISTRIBUTED_HARD_CHAINS_H
#define BPPSA_TESTS_DISTRIBUTED_HARD_CHAINS_H

#include "tests/distributed/scan_ranks.h"

/* J = H, diag(1, s), H / 2 in turn, with H = [1 1; 1 -1]. A gradient (c, c) comes out of three steps as it went in, with no
 * rounding. For sample 1 s is 2^60: the product of the three is 2^59 in size, so that nothing of (c, c) is left in it but rounding
 * error. For sample 0 s is 1, and the product is the identity. */
static inline problem cancelling(bool affine, int64_t n) {
  enum { B = 2, D = 2 };
  static const double steps[3][D * D] = {{1, 1, 1, -1}, {1, 0, 0, 0x1p60}, {0.5, 0.5, 0.5, -0.5}};
  problem p = {.config = base_config(BPPSA_ELEMENT_DENSE, D, B)};
  p.config.jacobians = n;
  p.config.affine = affine;
  p.config.input = true;
  double *jt = bppsa_calloc(n * B * D * D, sizeof *jt), *seed = bppsa_calloc((n + 1) * B * D, sizeof *seed);
  p.typed_jt = jt;
  p.seed = seed;
  p.typed_u = bppsa_calloc((n + 1) * B * D, sizeof *seed);
  p.g = bppsa_calloc((n + 1) * B * D, sizeof *p.g);
  for (int64_t t = 0; t <= n; ++t) {
    p.dims[t] = D;
    for (int64_t i = 0; t < n && i < B * D * D; ++i) {
      const double entry = steps[(n - 1 - t) % 3][i % (D * D)];
      jt[t * B * D * D + i] = entry == 0x1p60 && i < D * D ? 1 : entry;
    }
    for (int64_t i = 0; affine && (n - t) % 3 == 0 && i < B * D; ++i) {
      ((double *)p.typed_u)[t * B * D + i] = 1; /* (1, 1), where the gradient is (c, c) */
    }
  }
  for (int64_t i = 0; i < B * D; ++i) {
    p.g[n * B * D + i] = seed[n * B * D + i] = 1;
  }
  for (int64_t t = n - 1; t >= 0; --t) {
    for (int64_t i = 0; i < B * D; ++i) {
      const int64_t b = i / D, at = (t * B + b) * D * D + i % D * D;
      const double *g = p.g + (t + 1) * B * D + b * D;
      p.g[t * B * D + i] = ((double *)p.typed_u)[t * B * D + i] + (jt[at] * g[0] + jt[at + 1] * g[1]);
    }
  }
  return p;
}

/* Diagonals of 2^12 and 2^30 with a seed of 2^-1000 and 0: products leave the range of numbers, gradients do not. Everything is
 * exact. As diagonal elements, and as recurrent ones with W = I. */
static inline problem growing(bppsa_element element, int64_t n) {
  enum { B = 2, D = 2 };
  problem p = {.config = base_config(element, D, B)};
  p.config.jacobians = n;
  p.config.input = true;
  double *d = bppsa_calloc(n * B * D, sizeof *d), *w = bppsa_calloc(D * D, sizeof *w), *seed;
  p.seed = seed = bppsa_calloc((n + 1) * B * D, sizeof *seed);
  p.typed_u = bppsa_calloc((n + 1) * B * D, sizeof *seed);
  p.g = bppsa_calloc((n + 1) * B * D, sizeof *p.g);
  for (int64_t i = 0; i < n * B * D; ++i) {
    d[i] = i % D == 0 ? 0x1p12 : 0x1p30;
  }
  for (int64_t i = 0; i < D; ++i) {
    w[i * (D + 1)] = 1;
  }
  for (int64_t i = 0; i <= n * B + B - 1; ++i) {
    p.g[i * D] = ldexp(1 + (double)(i % B), -1000 + 12 * (int)(n - i / B));
  }
  memcpy(seed + n * B * D, p.g + n * B * D, B * D * sizeof *seed);
  for (int64_t t = 0; t <= n; ++t) {
    p.dims[t] = D;
  }
  p.typed_jt = d;
  p.columns[0] = rounded(BPPSA_F64, d, n * B * D);
  p.weights[0] = w;
  return p;
}

#endif
