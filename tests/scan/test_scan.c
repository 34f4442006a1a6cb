/* On the device that CTest names: the scan executor against the recurrence g_{t-1} = J_tᵀ g_t + u_{t-1}, written out in float64
 * over explicit matrices. */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/memory.h"
#include "scan/scan.h"
#include "tests/support/support.h"

/* One problem: explicit Jᵀ for the reference, and the operands an executor takes. */
typedef struct {
  bppsa_scan_config config;
  int64_t dims[128];
  double *jt;    /* J_tᵀ of sample b at jt_at(t) + b d_{t-1} d_t */
  double *g, *u; /* reference gradients and injections, laid out as the executor's */
  void *typed_jt, *typed_u, *typed_e;
  void *weights[3], *columns[3];
  int64_t weight_row; /* elements between rows of weights on the device; 0: H */
  void *seed;         /* typed copy of g before the scan: the seed, zeros elsewhere */
} problem;

static int64_t g_at(const problem *p, int64_t t) {
  int64_t at = 0;
  for (int64_t s = 0; s < t; ++s) {
    at += (p->config.dims != NULL ? p->dims[s] : p->config.dim) * p->config.batch;
  }
  return at;
}

static int64_t jt_at(const problem *p, int64_t t) {
  int64_t at = 0;
  for (int64_t s = 1; s < t; ++s) {
    at += p->dims[s - 1] * p->dims[s] * p->config.batch;
  }
  return at;
}

/* Dense: corners of orthogonal matrices, so that nothing vanishes or explodes. */
static void make_dense(problem *p, uint64_t seed) {
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

static void make_diagonal(problem *p, uint64_t seed) {
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
static void make_recurrent(problem *p, uint64_t seed) {
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

static problem make_problem(const bppsa_scan_config *config, uint64_t seed) {
  problem p = {.config = *config};
  const int64_t n = config->jacobians, b = config->batch;
  for (int64_t t = 0; t <= n; ++t) {
    p.dims[t] = config->dims != NULL ? config->dims[t] : config->dim;
  }
  static void (*const makers[])(problem *, uint64_t) = {make_dense, make_diagonal, make_recurrent};
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

static void free_problem(problem *p) {
  void *const blocks[] = {p->jt,         p->g,          p->u,          p->typed_jt,   p->typed_u,    p->typed_e, p->weights[0],
                          p->weights[1], p->weights[2], p->columns[0], p->columns[1], p->columns[2], p->seed};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

/* The operands in the device's memory; injected is set by who runs. */
typedef struct {
  const bppsa_device *device;
  void *jt, *u, *e, *weights[3], *columns[3], *gradients;
} operand_copies;

/* W_k [H][H] with its rows `row` elements apart, on the device; NaN between them. row 0: packed. */
static void *copy_weight(const problem *p, const bppsa_device *device, int64_t k) {
  const int64_t h = p->config.dim, width = (int64_t)bppsa_dtype_size(p->config.dtype), row = p->weight_row;
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

static operand_copies copy_operands(const problem *p, const bppsa_device *device) {
  const bppsa_scan_config *c = &p->config;
  const int64_t n = c->jacobians, width = (int64_t)bppsa_dtype_size(c->dtype), size = g_at(p, n + 1) * width;
  const int64_t factors = n * c->batch * c->dim * width;
  const int64_t jt = c->element == BPPSA_ELEMENT_DENSE ? jt_at(p, n + 1) * width : factors;
  operand_copies d = {.device = device,
                      .jt = on_device(device, p->typed_jt, jt),
                      .u = on_device(device, p->typed_u, size),
                      .e = on_device(device, p->typed_e, factors),
                      .gradients = on_device(device, p->seed, size)};
  for (int64_t k = 0; c->element == BPPSA_ELEMENT_RECURRENT && k < c->matrices; ++k) {
    d.weights[k] = copy_weight(p, device, k);
    d.columns[k] = on_device(device, p->columns[k], factors);
  }
  return d;
}

static bppsa_scan_operands operands_of(const problem *p, const operand_copies *d, bool alias) {
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

static void free_operands(operand_copies *d) {
  void *const blocks[] = {d->jt,         d->u,          d->e,          d->weights[0], d->weights[1],
                          d->weights[2], d->columns[0], d->columns[1], d->columns[2], d->gradients};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_memory_free(d->device, blocks[i]);
  }
}

/* Runs the plan and returns the gradients (typed). alias: the injections lie in the gradients' own memory. */
static void *run(const problem *p, const bppsa_scan_plan *plan, const bppsa_device *device, bool alias, int repeats) {
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

/* All gradients as one tensor: where injections meet, a single g_t may cancel to nothing. */
static void check(const problem *p, const bppsa_scan_plan *plan, const bppsa_device *device, bool alias) {
  const int64_t n = p->config.jacobians, width = (int64_t)bppsa_dtype_size(p->config.dtype);
  const int64_t first = g_at(p, p->config.input || n == 0 ? 0 : 1), count = g_at(p, n + 1) - first;
  char *g = run(p, plan, device, alias, 1);
  const double r = residual(p->config.dtype, g + first * width, p->g + first, count, sqrt((double)(n > 0 ? n : 1)));
  if (!(r < 30)) {
    fail_msg("%s n=%lld alias=%d: residual %g", bppsa_scan_algorithm_name(bppsa_scan_plan_config(plan)->method.algorithm),
             (long long)n, alias, r);
  }
  bppsa_free(g);
}

static const struct {
  bppsa_scan_algorithm algorithm;
  int64_t up_levels, chunks;
} variants[] = {{BPPSA_SCAN_AUTO, 0, 0},     {BPPSA_SCAN_LINEAR, 0, 0},   {BPPSA_SCAN_BLELLOCH, -1, 0},
                {BPPSA_SCAN_BLELLOCH, 1, 0}, {BPPSA_SCAN_BLELLOCH, 2, 0}, {BPPSA_SCAN_BLELLOCH, 3, 0},
                {BPPSA_SCAN_CHUNKED, 0, 0},  {BPPSA_SCAN_CHUNKED, 0, 1},  {BPPSA_SCAN_CHUNKED, 0, 2},
                {BPPSA_SCAN_CHUNKED, 0, 3},  {BPPSA_SCAN_CHUNKED, 0, 7},  {BPPSA_SCAN_CHUNKED, 0, 1000}};

static void check_variants(const bppsa_scan_config *base, const bppsa_device *device, uint64_t seed) {
  problem p = make_problem(base, seed);
  for (size_t v = is_emulated(device) ? seed % 2 : 0; v < sizeof variants / sizeof *variants; v += is_emulated(device) ? 2 : 1) {
    bppsa_scan_config c = *base;
    c.method.algorithm = variants[v].algorithm;
    c.method.up_levels = variants[v].up_levels;
    c.method.chunks = variants[v].chunks;
    bppsa_scan_plan *plan = NULL;
    assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
    check(&p, plan, device, false);
    if (c.affine) {
      check(&p, plan, device, true);
    }
    bppsa_scan_plan_destroy(plan);
  }
  free_problem(&p);
}

static const int64_t lengths[] = {0, 1, 2, 3, 5, 10, 16, 31, 50, 67};

static void check_element(bppsa_element element, int64_t matrices, bool diagonal) {
  static const int64_t sizes[] = {1, 2, 5, 20}, batches[] = {1, 3, 17};
  bppsa_device *device = test_device(2);
  uint64_t seed = 1;
  for (size_t l = 0; l < sizeof lengths / sizeof *lengths; ++l) {
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
      for (int bits = 0; bits < 8; ++bits, ++seed) {
        if (is_emulated(device) && ((size_t)bits % 4 != (5 * l + 3 * s) % 4 || (l > 2 && lengths[l] % 26 != 5))) {
          continue; /* lengths 0, 1, 2, 5 and 31 */
        }
        bppsa_scan_config c = bppsa_scan_config_default();
        c.element = element;
        c.matrices = matrices;
        c.diagonal = diagonal;
        c.dtype = (bits & 1) != 0 ? BPPSA_F64 : BPPSA_F32;
        c.affine = (bits & 2) != 0;
        c.input = (bits & 4) != 0;
        c.jacobians = lengths[l];
        c.dim = sizes[s];
        c.batch = batches[is_emulated(device) ? seed % 2 : seed % 3];
        check_variants(&c, device, seed);
      }
    }
  }
  bppsa_device_destroy(device);
}

static void test_dense(void **state) {
  (void)state;
  check_element(BPPSA_ELEMENT_DENSE, 1, false);
}

static void test_diagonal(void **state) {
  (void)state;
  check_element(BPPSA_ELEMENT_DIAGONAL, 1, false);
}

static void test_recurrent_rnn(void **state) {
  (void)state;
  check_element(BPPSA_ELEMENT_RECURRENT, 1, false);
}

static void test_recurrent_gru(void **state) {
  (void)state;
  check_element(BPPSA_ELEMENT_RECURRENT, 3, true);
}

static void test_differing_sizes(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  static const int64_t some[] = {3, 8, 1, 5, 2, 9, 4};
  int64_t dims[128];
  for (uint64_t seed = 0; seed < 60; ++seed) {
    bppsa_scan_config c = bppsa_scan_config_default();
    c.dtype = seed % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    c.affine = seed % 3 == 0;
    c.input = seed % 5 < 3;
    c.batch = 1 + (int64_t)(seed % 11);
    c.jacobians = (int64_t)(seed % 23);
    for (int64_t t = 0; t <= c.jacobians; ++t) {
      dims[t] = some[(seed * 5 + (uint64_t)(t * t)) % 7];
    }
    c.dims = dims;
    check_variants(&c, device, seed + 5000);
  }
  bppsa_device_destroy(device);
}

static void test_large_size(void **state) { /* blocks of one sample */
  (void)state;
  bppsa_device *device = test_device(2);
  bppsa_scan_config c = bppsa_scan_config_default();
  c.element = BPPSA_ELEMENT_RECURRENT;
  c.jacobians = 21;
  c.dim = 131;
  c.batch = 3;
  c.affine = c.input = true;
  check_variants(&c, device, 77);
  bppsa_device_destroy(device);
}

/* Recurrent problems whose plain products leave the range of f32: explicit W and column factors, K = 1, last gradient as the
 * seed. */
static problem make_recurrence(int64_t n, int64_t h, int64_t batch, const double *w, const double *d, const double *seed) {
  bppsa_scan_config c = bppsa_scan_config_default();
  c.element = BPPSA_ELEMENT_RECURRENT;
  c.jacobians = n;
  c.dim = h;
  c.batch = batch;
  c.input = true;
  problem p = {.config = c};
  double *wr = bppsa_calloc(h * h, sizeof *wr), *dr = bppsa_calloc(n * batch * h, sizeof *dr);
  p.g = bppsa_calloc((n + 1) * batch * h, sizeof *p.g);
  memcpy(wr, w, (size_t)(h * h) * sizeof *wr);
  memcpy(dr, d, (size_t)(n * batch * h) * sizeof *dr);
  memcpy(p.g + n * batch * h, seed, (size_t)(batch * h) * sizeof *seed);
  p.weights[0] = rounded(BPPSA_F32, wr, h * h);
  p.columns[0] = rounded(BPPSA_F32, dr, n * batch * h);
  p.seed = rounded(BPPSA_F32, p.g, (n + 1) * batch * h);
  p.u = bppsa_calloc(1, sizeof *p.u);
  p.typed_u = bppsa_calloc((n + 1) * batch * h, sizeof(float));
  for (int64_t t = n; t >= 1; --t) {
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = 0; i < h; ++i) {
        const double delta = p.g[(t * batch + b) * h + i] * dr[((t - 1) * batch + b) * h + i];
        for (int64_t j = 0; j < h; ++j) {
          p.g[((t - 1) * batch + b) * h + j] += delta * wr[i * h + j];
        }
      }
    }
  }
  bppsa_free(wr);
  bppsa_free(dr);
  return p;
}

/* Every algorithm within residual 30 of float64 at every step; returns the products redone by all of them together. */
static int64_t check_recurrence(const problem *p, double most_allowed) {
  const int64_t n = p->config.jacobians, state = p->config.batch * p->config.dim;
  bppsa_device *device = test_device(2);
  int64_t redone = 0;
  const bool few = is_emulated(device); /* blelloch, chunked, chunked with 7 */
  for (size_t v = few ? 2 : 0; v < sizeof variants / sizeof *variants; v += few ? 4 : 1) {
    bppsa_scan_config c = p->config;
    c.method.algorithm = variants[v].algorithm;
    c.method.up_levels = variants[v].up_levels;
    c.method.chunks = variants[v].chunks;
    bppsa_scan_plan *plan = NULL;
    bppsa_scan_executor *executor = NULL;
    assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
    assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
    float *g = bppsa_calloc((n + 1) * state, sizeof *g);
    assert_non_null(g);
    operand_copies copies = copy_operands(p, device);
    const bppsa_scan_operands operands = operands_of(p, &copies, false);
    assert_int_equal(executor->execute(executor, &operands), BPPSA_OK);
    assert_int_equal(bppsa_memory_get(device, g, copies.gradients, (n + 1) * state * (int64_t)sizeof *g), BPPSA_OK);
    free_operands(&copies);
    for (int64_t t = 0; t <= n; ++t) {
      double largest = 0;
      for (int64_t i = 0; i < state; ++i) {
        largest = fmax(largest, fabs(p->g[t * state + i]));
      }
      const double r = residual(BPPSA_F32, g + t * state, p->g + t * state, state, sqrt((double)n));
      if (largest < most_allowed && !(r < 30)) {
        fail_msg("algorithm %d, up-levels %lld, chunks %lld, step %lld: residual %g", (int)c.method.algorithm,
                 (long long)c.method.up_levels, (long long)c.method.chunks, (long long)t, r);
      }
    }
    assert_int_equal(bppsa_scan_executor_count(executor), BPPSA_OK);
    redone += executor->redone;
    bppsa_free(g);
    bppsa_scan_executor_destroy(executor);
    bppsa_scan_plan_destroy(plan);
  }
  bppsa_device_destroy(device);
  return redone;
}

/* 10 units with 1.5 · orthogonal weights that no gradient reaches, 10 with orthogonal ones: over 5000 steps plain products grow to
 * 1.5^2500, and sequential BP stays finite. */
static void test_growing_block(void **state) {
  (void)state;
  enum { MOST = 5000, H = 20, B = 3 };
  bppsa_device *device = test_device(1);
  const int64_t n = is_emulated(device) ? 250 : MOST; /* 1.5^240 is beyond f32 as well */
  bppsa_device_destroy(device);
  double *grow = orthogonal(1, 10, 1.5), *keep = orthogonal(2, 10, 1), *w = bppsa_calloc(H * H, sizeof *w);
  double *d = bppsa_calloc(n * B * H, sizeof *d), *seed = uniform(3, B * H, 1);
  for (int64_t i = 0; i < 10; ++i) {
    memcpy(w + i * H, grow + i * 10, 10 * sizeof *w);
    memcpy(w + (10 + i) * H + 10, keep + i * 10, 10 * sizeof *w);
  }
  for (int64_t i = 0; i < n * B * H; ++i) {
    d[i] = 1;
  }
  for (int64_t i = 0; i < B * H; ++i) {
    seed[i] = i % H < 10 ? 0 : seed[i];
  }
  problem p = make_recurrence(n, H, B, w, d, seed);
  assert_int_equal(check_recurrence(&p, INFINITY), 0); /* rows have exponents of their own: nothing needs redoing */
  free_problem(&p);
  void *const blocks[] = {grow, keep, w, d, seed};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

/* Dense 1.5 · orthogonal weights over activations of a tanh network: wherever float32 BP is finite. */
static void check_dense_growth(double input) {
  enum { MOST = 3000, H = 20, B = 4 };
  bppsa_device *device = test_device(1);
  const int64_t n = is_emulated(device) ? 150 : MOST;
  bppsa_device_destroy(device);
  double *w = orthogonal(4, H, 1.5), *d = bppsa_calloc(n * B * H, sizeof *d), *seed = uniform(5, B * H, 1e-3);
  double *h = uniform(6, B * H, 1), *next = bppsa_calloc(B * H, sizeof *next), *x = uniform(7, n * B, input);
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t i = 0; i < B * H; ++i) {
      double sum = x[t * B + i / H];
      for (int64_t k = 0; k < H; ++k) {
        sum += w[i % H * H + k] * h[i / H * H + k];
      }
      next[i] = tanh(sum);
      d[t * B * H + i] = 1 - next[i] * next[i];
    }
    memcpy(h, next, (size_t)(B * H) * sizeof *h);
  }
  problem p = make_recurrence(n, H, B, w, d, seed);
  (void)check_recurrence(&p, 1e37);
  free_problem(&p);
  void *const blocks[] = {w, d, seed, h, next, x};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

static void test_dense_growth(void **state) {
  (void)state;
  check_dense_growth(0.1);
  check_dense_growth(2);
}

/* A gradient that the growing directions cancel out of: the product is useless, its steps are redone, and counted. */
static void test_cancellation_is_redone(void **state) {
  (void)state;
  enum { N = 200, H = 2, B = 1 };
  /* eigenvectors (1, 1) and (1, -1) of W with eigenvalues 1.5 and 1; the seed is the second, and BP stays on it without rounding */
  const double w[] = {1.25, 0.25, 0.25, 1.25}, seed[] = {1, -1};
  double *d = bppsa_calloc((int64_t)N * B * H, sizeof *d);
  for (int64_t i = 0; i < N * B * H; ++i) {
    d[i] = 1;
  }
  problem p = make_recurrence(N, H, B, w, d, seed);
  assert_true(check_recurrence(&p, INFINITY) > 0);
  free_problem(&p);
  bppsa_free(d);
}

/* The same bits with 1, 2 and 7 threads, and when executed again; a smaller batch gives the same bits as a plan made for it. */
static void test_bits(void **state) {
  (void)state;
  bppsa_device *devices[] = {test_device(1), test_device(2), test_device(7)};
  const bool few = is_emulated(devices[0]);
  for (size_t v = 0; v < sizeof variants / sizeof *variants; ++v) {
    bppsa_scan_config c = bppsa_scan_config_default();
    c.method.algorithm = variants[v].algorithm;
    c.method.up_levels = variants[v].up_levels;
    c.method.chunks = variants[v].chunks;
    c.element = BPPSA_ELEMENT_RECURRENT;
    c.matrices = 2;
    c.diagonal = c.affine = c.input = true;
    c.jacobians = few ? 30 : 100;
    c.dim = few ? 5 : 13;
    c.batch = few ? 2 : 19;
    problem p = make_problem(&c, 9);
    bppsa_scan_plan *plan = NULL, *larger = NULL;
    assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
    c.batch = few ? 3 : 30;
    assert_int_equal(bppsa_scan_plan_create(&c, &larger), BPPSA_OK);
    void *first = run(&p, plan, devices[0], false, 1);
    const size_t bytes = (size_t)g_at(&p, c.jacobians + 1) * sizeof(float);
    for (size_t d = 0; d < 3; ++d) {
      void *again = run(&p, d == 1 ? larger : plan, devices[d], false, 2);
      assert_memory_equal(first, again, bytes);
      bppsa_free(again);
    }
    bppsa_free(first);
    bppsa_scan_plan_destroy(plan);
    bppsa_scan_plan_destroy(larger);
    free_problem(&p);
  }
  for (size_t d = 0; d < 3; ++d) {
    bppsa_device_destroy(devices[d]);
  }
}

/* Rows of weights may be any distance apart, at least H: the bits are the same, and nothing between the rows is used. */
static void test_rows_of_weights(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  for (size_t v = 0; v < sizeof variants / sizeof *variants; ++v) {
    bppsa_scan_config c = bppsa_scan_config_default();
    c.method.algorithm = variants[v].algorithm;
    c.method.up_levels = variants[v].up_levels;
    c.method.chunks = variants[v].chunks;
    c.element = BPPSA_ELEMENT_RECURRENT;
    c.dtype = v % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    c.matrices = 2;
    c.diagonal = c.input = true;
    c.jacobians = 20;
    c.dim = 5;
    c.batch = 2;
    problem p = make_problem(&c, 9);
    bppsa_scan_plan *plan = NULL;
    assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
    void *packed = run(&p, plan, device, false, 1);
    const int64_t rows[] = {c.dim, bppsa_dtype_padded(c.dtype, c.dim), c.dim + 2};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; ++r) {
      p.weight_row = rows[r];
      void *apart = run(&p, plan, device, false, 1);
      assert_memory_equal(packed, apart, (size_t)g_at(&p, c.jacobians + 1) * bppsa_dtype_size(c.dtype));
      bppsa_free(apart);
    }
    bppsa_free(packed);
    bppsa_scan_plan_destroy(plan);
    free_problem(&p);
  }
  bppsa_device_destroy(device);
}

static void test_rows_too_near(void **state) {
  (void)state;
  bppsa_scan_config c = bppsa_scan_config_default();
  c.element = BPPSA_ELEMENT_RECURRENT;
  c.jacobians = 4;
  c.dim = 5;
  problem p = make_problem(&c, 9);
  bppsa_device *device = test_device(1);
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  operand_copies copies = copy_operands(&p, device);
  bppsa_scan_operands operands = operands_of(&p, &copies, false);
  operands.weight_row = 4;
  assert_int_equal(executor->execute(executor, &operands), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "scan: rows of weights 4 elements apart, expected 0 or at least 5");
  free_operands(&copies);
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  bppsa_device_destroy(device);
  free_problem(&p);
}

static void test_execute_allocates_nothing(void **state) {
  (void)state;
  bppsa_scan_config c = bppsa_scan_config_default();
  c.jacobians = 40;
  c.dim = 6;
  problem p = make_problem(&c, 3);
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  bppsa_device *device = test_device(2);
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  operand_copies copies = copy_operands(&p, device);
  bppsa_scan_operands operands = operands_of(&p, &copies, false);
  bppsa_alloc_fail_at(1);
  const bppsa_status status = executor->execute(executor, &operands);
  const int64_t calls = bppsa_alloc_calls();
  bppsa_alloc_fail_at(0);
  assert_int_equal(status, BPPSA_OK);
  assert_int_equal(calls, 0);
  operands.batch = 2;
  assert_int_equal(executor->execute(executor, &operands), BPPSA_ERR_ARGUMENT);
  operands.batch = 1;
  operands.jt = NULL;
  assert_int_equal(executor->execute(executor, &operands), BPPSA_ERR_ARGUMENT);
  free_operands(&copies);
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  bppsa_device_destroy(device);
  free_problem(&p);
}

static void test_allocation_failure(void **state) {
  (void)state;
  const int64_t dims[] = {2, 3, 5, 7, 4, 3, 2, 6};
  bppsa_scan_config c = bppsa_scan_config_default();
  c.jacobians = 7;
  c.dims = dims;
  bppsa_scan_plan *plan = NULL;
  bppsa_device *device = test_device(2);
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
  const int64_t live = bppsa_alloc_live();
  const int64_t calls = bppsa_device_get_kind(device) == BPPSA_CPU ? 11 : 2;
  for (int64_t call = 1; call <= calls + 1; ++call) {
    bppsa_scan_executor *executor = NULL;
    bppsa_alloc_fail_at(call);
    const bppsa_status status = bppsa_scan_executor_create(plan, device, &executor);
    bppsa_alloc_fail_at(0);
    assert_int_equal(status, call <= calls ? BPPSA_ERR_MEMORY : BPPSA_OK);
    bppsa_scan_executor_destroy(executor);
    assert_int_equal(bppsa_alloc_live(), live);
  }
  bppsa_scan_plan_destroy(plan);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_dense),
      cmocka_unit_test(test_diagonal),
      cmocka_unit_test(test_recurrent_rnn),
      cmocka_unit_test(test_recurrent_gru),
      cmocka_unit_test(test_differing_sizes),
      cmocka_unit_test(test_large_size),
      cmocka_unit_test(test_growing_block),
      cmocka_unit_test(test_dense_growth),
      cmocka_unit_test(test_cancellation_is_redone),
      cmocka_unit_test(test_bits),
      cmocka_unit_test(test_rows_of_weights),
      cmocka_unit_test(test_rows_too_near),
      cmocka_unit_test(test_execute_allocates_nothing),
      cmocka_unit_test(test_allocation_failure),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
