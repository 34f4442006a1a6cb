/* Problems of a scan with explicit Jacobians, their float64 reference, and a run of one on a device: what the tests of the
 * executor share. */
#ifndef BPPSA_TESTS_SCAN_SCAN_PROBLEM_H
#define BPPSA_TESTS_SCAN_SCAN_PROBLEM_H

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "scan/scan.h"
#include "tests/support/support.h"

enum { MOST_MATRICES = 4, MOST_COLUMNS = MOST_MATRICES + 1 };

/* One problem: explicit Jᵀ for the reference, and the operands an executor takes. */
typedef struct {
  bppsa_scan_config config;
  int64_t dims[1024];
  double *jt;    /* J_tᵀ of sample b at jt_at(t) + b d_{t-1} d_t */
  double *g, *u; /* reference gradients and injections, laid out as the executor's */
  void *typed_jt, *typed_u, *typed_e;
  void *weights[MOST_MATRICES], *columns[MOST_COLUMNS];
  int64_t weight_row; /* elements between rows of weights on the device; 0: H */
  void *seed;         /* typed copy of g before the scan: the seed, zeros elsewhere */
} problem;

static inline int64_t g_at(const problem *p, int64_t t) {
  int64_t at = 0;
  for (int64_t s = 0; s < t; ++s) {
    at += (p->config.dims != NULL ? p->dims[s] : p->config.dim) * p->config.batch;
  }
  return at;
}

static inline int64_t jt_at(const problem *p, int64_t t) {
  int64_t at = 0;
  for (int64_t s = 1; s < t; ++s) {
    at += p->dims[s - 1] * p->dims[s] * p->config.batch;
  }
  return at;
}

/* Dense: corners of orthogonal matrices, so that nothing vanishes or explodes. */
static inline void make_dense(problem *p, uint64_t seed) {
  const int64_t n = p->config.jacobians, size = jt_at(p, n + 1);
  p->jt = bppsa_calloc(size, sizeof(double));
  for (int64_t t = 1; t <= n; ++t) {
    const int64_t rows = p->dims[t - 1], columns = p->dims[t], most = rows > columns ? rows : columns;
    for (int64_t b = 0; b < p->config.batch; ++b) {
      double *q = orthogonal(seed + 1000 * (uint64_t)t + (uint64_t)b, most, 1);
      for (int64_t i = 0; i < rows * columns; ++i) {
        p->jt[jt_at(p, t) + b * rows * columns + i] = q[i / columns * most + i % columns];
      }
      bppsa_free(q);
    }
  }
  p->typed_jt = rounded(p->config.dtype, p->jt, size);
}

static inline void make_diagonal(problem *p, uint64_t seed) {
  const int64_t n = p->config.jacobians, h = p->config.dim, b = p->config.batch;
  double *d = uniform(seed, n * b * h, 0.1);
  for (int64_t i = 0; i < n * b * h; ++i) {
    d[i] = d[i] < 0 ? d[i] - 0.95 : d[i] + 0.95;
  }
  p->typed_jt = rounded(p->config.dtype, d, n * b * h);
  p->jt = bppsa_calloc(n * b * h * h, sizeof(double));
  for (int64_t i = 0; i < n * b * h; ++i) {
    p->jt[i / h * h * h + i % h * (h + 1)] = d[i];
  }
  bppsa_free(d);
}

/* Recurrent: orthogonal W_k, column factors near 1 in the root of the sum of squares. */
static inline void make_recurrent(problem *p, uint64_t seed) {
  const int64_t n = p->config.jacobians, h = p->config.dim, b = p->config.batch, matrices = p->config.matrices;
  p->jt = bppsa_calloc(n * b * h * h, sizeof(double));
  for (int64_t k = 0; k < matrices; ++k) {
    double *w = orthogonal(seed + 7 * (uint64_t)k, h, 1), *d = uniform(seed + 100 + (uint64_t)k, n * b * h, 0.1);
    for (int64_t i = 0; i < n * b * h; ++i) {
      d[i] += 0.9 / sqrt((double)matrices);
    }
    p->weights[k] = rounded(p->config.dtype, w, h * h);
    p->columns[k] = rounded(p->config.dtype, d, n * b * h);
    for (int64_t i = 0; i < n * b; ++i) {
      for (int64_t r = 0; r < h; ++r) {
        for (int64_t c = 0; c < h; ++c) {
          p->jt[(i * h + r) * h + c] += w[c * h + r] * d[i * h + c]; /* (Wᵀ diag d)[r][c] */
        }
      }
    }
    bppsa_free(w);
    bppsa_free(d);
  }
  if (p->config.diagonal) {
    double *e = uniform(seed + 200, n * b * h, 0.2);
    p->typed_e = rounded(p->config.dtype, e, n * b * h);
    for (int64_t i = 0; i < n * b * h; ++i) {
      p->jt[i / h * h * h + i % h * (h + 1)] += e[i];
    }
    bppsa_free(e);
  }
}

/* Pairs: orthogonal W_k; a row of c keeps about 0.9 of itself. */
static inline void make_pair(problem *p, uint64_t seed) {
  const int64_t n = p->config.jacobians, h = p->config.dim / 2, b = p->config.batch, last = p->config.matrices - 1;
  const int64_t count = n * b * h, width = 2 * h;
  double *w[MOST_MATRICES], *d[MOST_COLUMNS], *e = uniform(seed + 200, count, 0.1);
  for (int64_t k = 0; k <= last + 1; ++k) {
    d[k] = uniform(seed + 100 + (uint64_t)k, count, 0.3);
    for (int64_t i = 0; k == last && i < count; ++i) {
      d[k][i] += 0.5;
    }
    p->columns[k] = rounded(p->config.dtype, d[k], count);
    w[k > last ? 0 : k] = k > last ? w[0] : orthogonal(seed + 7 * (uint64_t)k, h, 1);
  }
  for (int64_t k = 0; k <= last; ++k) {
    p->weights[k] = rounded(p->config.dtype, w[k], h * h);
  }
  for (int64_t i = 0; i < count; ++i) {
    e[i] += 0.8;
  }
  p->typed_e = rounded(p->config.dtype, e, count);
  p->jt = bppsa_calloc(n * b * width * width, sizeof(double));
  for (int64_t i = 0; i < n * b; ++i) {
    double *jt = p->jt + i * width * width;
    for (int64_t c = 0; c < h; ++c) {
      const double bridge = d[last + 1][i * h + c];
      for (int64_t r = 0; r < h; ++r) {
        for (int64_t k = 0; k < last; ++k) {
          jt[r * width + h + c] += w[k][c * h + r] * d[k][i * h + c];
        }
        jt[r * width + c] = jt[r * width + h + c] * bridge + w[last][c * h + r] * d[last][i * h + c];
      }
      jt[(h + c) * width + h + c] = e[i * h + c];
      jt[(h + c) * width + c] = e[i * h + c] * bridge;
    }
  }
  for (int64_t k = 0; k <= last + 1; ++k) {
    bppsa_free(d[k]);
    bppsa_free(k > last ? e : w[k]);
  }
}

static inline problem make_problem(const bppsa_scan_config *config, uint64_t seed) {
  problem p = {.config = *config};
  const int64_t n = config->jacobians, b = config->batch;
  for (int64_t t = 0; t <= n; ++t) {
    p.dims[t] = config->dims != NULL ? config->dims[t] : config->dim;
  }
  static void (*const makers[])(problem *, uint64_t) = {make_dense, make_diagonal, make_recurrent, NULL, make_pair};
  makers[config->element](&p, seed);
  const int64_t size = g_at(&p, n + 1), last = g_at(&p, n);
  p.g = uniform(seed + 300, size, 1);
  memset(p.g, 0, (size_t)last * sizeof *p.g);
  p.seed = rounded(config->dtype, p.g, size);
  p.u = uniform(seed + 400, size, config->affine ? 1 : 0);
  p.typed_u = rounded(config->dtype, p.u, size);
  for (int64_t t = n; t >= 1; --t) {
    const int64_t rows = p.dims[t - 1], columns = p.dims[t];
    for (int64_t s = 0; s < b; ++s) {
      for (int64_t r = 0; r < rows; ++r) {
        double sum = p.u[g_at(&p, t - 1) + s * rows + r];
        for (int64_t c = 0; c < columns; ++c) {
          sum += p.jt[jt_at(&p, t) + (s * rows + r) * columns + c] * p.g[g_at(&p, t) + s * columns + c];
        }
        p.g[g_at(&p, t - 1) + s * rows + r] = sum;
      }
    }
  }
  return p;
}

static inline void free_problem(problem *p) {
  void *const blocks[] = {p->jt, p->g, p->u, p->typed_jt, p->typed_u, p->typed_e, p->seed};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
  for (int k = 0; k < MOST_COLUMNS; ++k) {
    bppsa_free(k < MOST_MATRICES ? p->weights[k] : NULL);
    bppsa_free(p->columns[k]);
  }
}

/* The operands in the device's memory; injected is set by who runs. */
typedef struct {
  const bppsa_device *device;
  void *jt, *u, *e, *weights[MOST_MATRICES], *columns[MOST_COLUMNS], *gradients;
} operand_copies;

/* H: the size of W_k, d_k and e. */
static inline int64_t factor_size(const bppsa_scan_config *c) {
  return c->element == BPPSA_ELEMENT_PAIR ? c->dim / 2 : c->dim;
}

/* Cuts a share of all steps and samples: 0 in the reference, NaN in the factors. Returns the cuts [n][b]. */
static inline uint8_t *cut_steps(problem *p, double rate, uint64_t seed) {
  const bppsa_scan_config *c = &p->config;
  const int64_t n = c->jacobians, b = c->batch, dim = c->dim, h = factor_size(c);
  uint8_t *cuts = bppsa_calloc(n * b + 1, 1);
  double *numbers = uniform(seed + 900, n * b + 1, .5), nothing[1] = {(double)NAN};
  assert_non_null(cuts);
  void *nan = rounded(c->dtype, nothing, 1);
  const size_t width = bppsa_dtype_size(c->dtype);
  for (int64_t i = 0; i < n * b; ++i) {
    cuts[i] = numbers[i] + .5 < rate;
    for (int64_t j = 0; cuts[i] && j < dim * dim; ++j) {
      p->jt[i * dim * dim + j] = 0;
    }
    for (int64_t j = 0; cuts[i] && j < h; ++j) {
      for (int k = 0; k < MOST_COLUMNS; ++k) {
        if (p->columns[k] != NULL) {
          memcpy((char *)p->columns[k] + (size_t)(i * h + j) * width, nan, width);
        }
      }
      if (p->typed_e != NULL) {
        memcpy((char *)p->typed_e + (size_t)(i * h + j) * width, nan, width);
      }
    }
  }
  bppsa_free(nan);
  bppsa_free(numbers);
  for (int64_t i = n * b - 1; i >= 0; --i) { /* step i / b + 1 of sample i % b */
    for (int64_t r = 0; r < dim; ++r) {
      double sum = p->u[i * dim + r];
      for (int64_t k = 0; k < dim; ++k) {
        sum += p->jt[(i * dim + r) * dim + k] * p->g[(i + b) * dim + k];
      }
      p->g[i * dim + r] = sum;
    }
  }
  return cuts;
}

/* W_k [H][H] with its rows `row` elements apart, on the device; NaN between them. row 0: packed. */
static inline void *copy_weight(const problem *p, const bppsa_device *device, int64_t k) {
  const int64_t h = factor_size(&p->config), width = (int64_t)bppsa_dtype_size(p->config.dtype), row = p->weight_row;
  if (row == 0) {
    return on_device(device, p->weights[k], h * h * width);
  }
  char *apart = bppsa_alloc((size_t)(h * row * width));
  assert_non_null(apart);
  memset(apart, 0xff, (size_t)(h * row * width));
  for (int64_t r = 0; r < h; ++r) {
    memcpy(apart + r * row * width, (const char *)p->weights[k] + r * h * width, (size_t)(h * width));
  }
  void *copy = on_device(device, apart, h * row * width);
  bppsa_free(apart);
  return copy;
}

static inline operand_copies copy_operands(const problem *p, const bppsa_device *device) {
  const bppsa_scan_config *c = &p->config;
  const int64_t n = c->jacobians, width = (int64_t)bppsa_dtype_size(c->dtype), size = g_at(p, n + 1) * width;
  const int64_t factors = n * c->batch * factor_size(c) * width;
  const bool pairs = c->element == BPPSA_ELEMENT_PAIR;
  const int64_t jt = c->element == BPPSA_ELEMENT_DENSE ? jt_at(p, n + 1) * width : factors;
  operand_copies d = {.device = device,
                      .jt = on_device(device, p->typed_jt, jt),
                      .u = on_device(device, p->typed_u, size),
                      .e = on_device(device, p->typed_e, factors),
                      .gradients = on_device(device, p->seed, size)};
  for (int64_t k = 0; (pairs || c->element == BPPSA_ELEMENT_RECURRENT) && k < c->matrices + pairs; ++k) {
    d.weights[k < c->matrices ? k : 0] = k < c->matrices ? copy_weight(p, device, k) : d.weights[0];
    d.columns[k] = on_device(device, p->columns[k], factors);
  }
  return d;
}

static inline bppsa_scan_operands operands_of(const problem *p, const operand_copies *d, bool alias) {
  return (bppsa_scan_operands){.batch = p->config.batch,
                               .jt = d->jt,
                               .weights = (const void *const *)d->weights,
                               .weight_row = p->weight_row,
                               .columns = (const void *const *)d->columns,
                               .diagonal = d->e,
                               .injected = !p->config.affine ? NULL
                                           : alias           ? d->gradients
                                                             : d->u,
                               .gradients = d->gradients};
}

static inline void free_operands(operand_copies *d) {
  void *const blocks[] = {d->jt, d->u, d->e, d->gradients};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_memory_free(d->device, blocks[i]);
  }
  for (int k = 0; k < MOST_COLUMNS; ++k) {
    bppsa_memory_free(d->device, k < MOST_MATRICES ? d->weights[k] : NULL);
    bppsa_memory_free(d->device, d->columns[k]);
  }
}

/* Runs the plan and returns the gradients (typed). alias: the injections lie in the gradients' own memory. */
static inline void *run(const problem *p, const bppsa_scan_plan *plan, const bppsa_device *device, bool alias, int repeats) {
  const int64_t n = p->config.jacobians, width = (int64_t)bppsa_dtype_size(p->config.dtype), size = g_at(p, n + 1) * width;
  bppsa_scan_executor *executor = NULL;
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  char *g = bppsa_alloc((size_t)size);
  assert_non_null(g);
  operand_copies copies = copy_operands(p, device);
  const bppsa_scan_operands operands = operands_of(p, &copies, alias);
  for (int i = 0; i < repeats; ++i) {
    const int64_t last = g_at(p, n) * width;
    memcpy(g, alias ? p->typed_u : p->seed, (size_t)size);
    memcpy(g + last, (const char *)p->seed + last, (size_t)(size - last));
    assert_int_equal(bppsa_memory_put(device, copies.gradients, g, size), BPPSA_OK);
    assert_int_equal(executor->execute(executor, &operands), BPPSA_OK);
  }
  assert_int_equal(bppsa_memory_get(device, g, copies.gradients, size), BPPSA_OK);
  free_operands(&copies);
  bppsa_scan_executor_destroy(executor);
  return g;
}

enum { VARIANTS = 12 };

static const struct {
  bppsa_scan_algorithm algorithm;
  int64_t up_levels, chunks;
} variants[VARIANTS] = {{BPPSA_SCAN_AUTO, 0, 0},     {BPPSA_SCAN_LINEAR, 0, 0},   {BPPSA_SCAN_BLELLOCH, -1, 0},
                        {BPPSA_SCAN_BLELLOCH, 1, 0}, {BPPSA_SCAN_BLELLOCH, 2, 0}, {BPPSA_SCAN_BLELLOCH, 3, 0},
                        {BPPSA_SCAN_CHUNKED, 0, 0},  {BPPSA_SCAN_CHUNKED, 0, 1},  {BPPSA_SCAN_CHUNKED, 0, 2},
                        {BPPSA_SCAN_CHUNKED, 0, 3},  {BPPSA_SCAN_CHUNKED, 0, 7},  {BPPSA_SCAN_CHUNKED, 0, 1000}};

/* A configuration with the method of a variant. */
static inline bppsa_scan_config with_variant(const bppsa_scan_config *base, size_t v) {
  bppsa_scan_config c = *base;
  c.method.algorithm = variants[v].algorithm;
  c.method.up_levels = variants[v].up_levels;
  c.method.chunks = variants[v].chunks;
  return c;
}

#endif
