/* On the device that CTest names: transitions of neighbouring parts of a chain, as they are, as messages and joined, against the
 * recurrence in float64, also where elements of samples are cut; and products that are useless. */
#include "scan/transition.h"
#include "tests/scan/scan_problem.h"

/* The operands of steps first + 1 .. of a problem, all arrays in the device's memory; cuts: of all steps, or NULL. */
static bppsa_scan_operands operands_from(const problem *p, const operand_copies *d, const uint8_t *cuts, int64_t first,
                                         const void *columns[MOST_COLUMNS]) {
  const int64_t width = (int64_t)bppsa_dtype_size(p->config.dtype),
                factors = first * p->config.batch * factor_size(&p->config) * width;
  const bool dense = p->config.element == BPPSA_ELEMENT_DENSE;
  bppsa_scan_operands o = operands_of(p, d, false);
  o.jt = o.jt != NULL ? (const char *)o.jt + (dense ? jt_at(p, first + 1) * width : factors) : NULL;
  o.diagonal = o.diagonal != NULL ? (const char *)o.diagonal + factors : NULL;
  o.injected = o.injected != NULL ? (const char *)o.injected + g_at(p, first) * width : NULL;
  o.gradients = (char *)o.gradients + g_at(p, first) * width;
  for (int k = 0; k < MOST_COLUMNS; ++k) {
    columns[k] = d->columns[k] != NULL ? (const char *)d->columns[k] + factors : NULL;
  }
  o.columns = columns;
  o.cuts = cuts != NULL ? cuts + first * p->config.batch : NULL;
  return o;
}

typedef struct {
  bppsa_transition_maker *maker;
  bppsa_transition *made;
} part;

/* The transition of `count` steps behind the first ones; planned: the samples for which it is planned. */
static part make_part(const problem *p, const bppsa_device *device, const operand_copies *copies, const uint8_t *cuts,
                      int64_t first, int64_t count, int64_t planned) {
  part made = {0};
  bppsa_scan_config c = p->config;
  const void *columns[MOST_COLUMNS];
  const bppsa_scan_operands o = operands_from(p, copies, cuts, first, columns);
  c.jacobians = count;
  c.dims = c.dims != NULL ? p->dims + first : NULL;
  c.batch = planned;
  assert_int_equal(bppsa_transition_maker_create(&c, device, &made.maker), BPPSA_OK);
  const bppsa_transition_shape shape = bppsa_transition_maker_shape(made.maker);
  assert_true(shape.rows == p->dims[first + count] && shape.columns == p->dims[first]);
  assert_int_equal(bppsa_transition_create(&shape, device, &made.made), BPPSA_OK);
  for (int repeat = 0; repeat < 2; ++repeat) {
    assert_int_equal(bppsa_transition_make(made.maker, &o, made.made), BPPSA_OK);
  }
  return made;
}

static void free_part(part *made) {
  bppsa_transition_destroy(made->made);
  bppsa_transition_maker_destroy(made->maker);
}

/* A copy that has travelled as a message. */
static bppsa_transition *send(const bppsa_device *device, bppsa_transition *from, int64_t batch) {
  bppsa_transition *to = NULL;
  assert_int_equal(bppsa_transition_create(bppsa_transition_get_shape(from), device, &to), BPPSA_OK);
  const bppsa_view sent = bppsa_transition_view(from, batch), received = bppsa_transition_view(to, batch);
  const int64_t bytes = (int64_t)bppsa_view_bytes(&sent);
  assert_true(sent.device == bppsa_device_get_kind(device) && bytes == (int64_t)bppsa_view_bytes(&received));
  char *message = bppsa_alloc((size_t)bytes);
  assert_non_null(message);
  assert_int_equal(bppsa_memory_get(device, message, sent.data, bytes), BPPSA_OK);
  assert_int_equal(bppsa_memory_put(device, received.data, message, bytes), BPPSA_OK);
  bppsa_free(message);
  assert_int_equal(bppsa_transition_received(to), BPPSA_OK);
  return to;
}

/* g_n through a transition: must be the gradient of step `step`, and no sample's product useless. */
static void check_applied(const problem *p, const bppsa_device *device, const operand_copies *copies, bppsa_transition *t,
                          int64_t step, const char *what) {
  const int64_t n = p->config.jacobians, width = (int64_t)bppsa_dtype_size(p->config.dtype), b = p->config.batch;
  const int64_t size = b * p->dims[step];
  bool useless[32] = {true};
  int64_t count = -1;
  void *out = NULL, *got = bppsa_alloc((size_t)(size * width));
  assert_non_null(got);
  assert_int_equal(bppsa_memory_alloc(device, size * width, &out), BPPSA_OK);
  assert_int_equal(bppsa_transition_apply(t, (char *)copies->gradients + g_at(p, n) * width, out, useless, &count), BPPSA_OK);
  assert_int_equal(bppsa_memory_get(device, got, out, size * width), BPPSA_OK);
  const double r = residual(p->config.dtype, got, p->g + g_at(p, step), size, sqrt((double)n));
  if (!(r < 30) || count != 0 || useless[0]) {
    fail_msg("%s: element %d, %d steps to %d, size %d: residual %g, %d useless", what, (int)p->config.element, (int)n, (int)step,
             (int)p->dims[step], r, (int)count);
  }
  bppsa_memory_free(device, out);
  bppsa_free(got);
}

/* Makes g_n NaN for samples of which one of the steps from + 1 .. n is cut: it must have no part in what is behind them. */
static void spoil_gradients(const problem *p, const bppsa_device *device, const operand_copies *copies, const uint8_t *cuts,
                            int64_t from) {
  const int64_t n = p->config.jacobians, b = p->config.batch, width = (int64_t)bppsa_dtype_size(p->config.dtype);
  const int64_t row = p->dims[n] * width;
  double *nothing = bppsa_calloc(p->dims[n], sizeof *nothing);
  assert_non_null(nothing);
  for (int64_t j = 0; j < p->dims[n]; ++j) {
    nothing[j] = (double)NAN;
  }
  void *nan = rounded(p->config.dtype, nothing, p->dims[n]);
  for (int64_t i = from * b; i < n * b; ++i) {
    if (cuts[i]) {
      char *to = (char *)copies->gradients + g_at(p, n) * width + i % b * row;
      assert_int_equal(bppsa_memory_put(device, to, nan, row), BPPSA_OK);
    }
  }
  bppsa_free(nan);
  bppsa_free(nothing);
}

/* Steps cut + 1 .. n and 1 .. cut. rate: the share of steps of samples that are cut; negative: nothing is. */
static void check_parts(const bppsa_scan_config *config, int64_t cut, const bppsa_device *device, double rate, uint64_t seed) {
  problem p = make_problem(config, seed);
  const int64_t n = config->jacobians, planned = config->batch + (int64_t)(seed % 2);
  uint8_t *cuts = rate >= 0 ? cut_steps(&p, rate, seed) : NULL;
  void *own_cuts = cuts != NULL ? on_device(device, cuts, n * config->batch) : NULL;
  operand_copies copies = copy_operands(&p, device);
  if (cuts != NULL) {
    spoil_gradients(&p, device, &copies, cuts, cut);
  }
  part late = make_part(&p, device, &copies, own_cuts, cut, n - cut, planned),
       early = make_part(&p, device, &copies, own_cuts, 0, cut, planned);
  bppsa_transition *arrived = send(device, late.made, config->batch), *joined = NULL;
  assert_int_equal(bppsa_transition_create_joined(arrived, early.made, device, &joined), BPPSA_OK);
  assert_int_equal(bppsa_transition_join(arrived, early.made, joined), BPPSA_OK);
  check_applied(&p, device, &copies, late.made, cut, "as made");
  check_applied(&p, device, &copies, arrived, cut, "arrived");
  check_applied(&p, device, &copies, joined, 0, "joined");
  bppsa_transition *again = send(device, joined, config->batch);
  check_applied(&p, device, &copies, again, 0, "joined and arrived");
  bppsa_transition_destroy(again);
  bppsa_transition_destroy(joined);
  bppsa_transition_destroy(arrived);
  free_part(&late);
  free_part(&early);
  free_operands(&copies);
  bppsa_memory_free(device, own_cuts);
  bppsa_free(cuts);
  free_problem(&p);
}

static void every_element(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 5, 20, 37}, lengths[][2] = {{2, 1}, {3, 1}, {9, 5}, {43, 27}};
  static const struct {
    bppsa_element element;
    int64_t matrices;
  } elements[] = {{BPPSA_ELEMENT_DENSE, 1},
                  {BPPSA_ELEMENT_DIAGONAL, 1},
                  {BPPSA_ELEMENT_RECURRENT, 1},
                  {BPPSA_ELEMENT_RECURRENT, 3},
                  {BPPSA_ELEMENT_PAIR, 4}};
  bppsa_device *device = test_device(2);
  uint64_t seed = 1;
  for (size_t e = 0; e < sizeof elements / sizeof elements[0]; ++e) {
    for (size_t s = 0; s < 4; ++s) {
      for (size_t l = 0; l < 4; ++l, ++seed) {
        for (int bits = 0; bits < 4; ++bits) {
          if (is_emulated(device) && ((size_t)bits != (e + s + l) % 4 || sizes[s] * lengths[l][0] > 900)) {
            continue;
          }
          bppsa_scan_config c = bppsa_scan_config_default();
          c.element = elements[e].element;
          c.matrices = elements[e].matrices;
          c.diagonal = c.matrices > 1;
          c.dtype = (bits & 1) != 0 ? BPPSA_F32 : BPPSA_F64;
          c.affine = (bits & 2) != 0;
          c.jacobians = lengths[l][0];
          c.dim = sizes[s] * (c.element == BPPSA_ELEMENT_PAIR ? 2 : 1);
          c.batch = 1 + (int64_t)(seed % 3);
          check_parts(&c, lengths[l][1], device, -1, seed);
        }
      }
    }
  }
  bppsa_device_destroy(device);
}

/* Elements of which some are cut, in the first operand of the join, in the second, in both or in none. */
static void cut_elements(void **state) {
  (void)state;
  static const int64_t lengths[][2] = {{2, 1}, {9, 5}, {43, 27}}, sizes[] = {1, 4, 9};
  static const double rates[] = {0, .04, .3, 1};
  bppsa_device *device = test_device(2);
  for (uint64_t seed = 0; seed < 48; ++seed) {
    bppsa_scan_config c = bppsa_scan_config_default();
    const bool pairs = seed % 2 == 1;
    c.element = pairs ? BPPSA_ELEMENT_PAIR : BPPSA_ELEMENT_RECURRENT;
    c.matrices = pairs ? 4 : 3;
    c.diagonal = true;
    c.dtype = seed / 2 % 2 == 0 ? BPPSA_F64 : BPPSA_F32;
    c.affine = seed / 4 % 4 > 0;
    c.jacobians = lengths[seed % 3][0];
    c.dim = sizes[seed / 3 % 3] * (pairs ? 2 : 1);
    c.batch = 1 + (int64_t)(seed / 5 % 4);
    check_parts(&c, lengths[seed % 3][1], device, rates[seed / 2 % 4], 200 + seed);
  }
  bppsa_device_destroy(device);
}

static void nothing_refused(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_scan_config c = bppsa_scan_config_default();
  bppsa_transition_maker *maker = NULL;
  c.dim = 2;
  c.jacobians = 0;
  assert_int_equal(bppsa_transition_maker_create(&c, device, &maker), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "transition of 0 elements, expected at least 1");
  assert_null(maker);
  bppsa_device_destroy(device);
}

/* Operands that are missing are named. */
static void operands_refused(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_scan_config c = bppsa_scan_config_default();
  bppsa_transition_maker *maker = NULL;
  bppsa_transition *made = NULL;
  double room[8];
  c.dim = 2;
  c.jacobians = 3;
  assert_int_equal(bppsa_transition_maker_create(&c, device, &maker), BPPSA_OK);
  const bppsa_transition_shape shape = bppsa_transition_maker_shape(maker);
  assert_int_equal(bppsa_transition_create(&shape, device, &made), BPPSA_OK);
  assert_int_equal(bppsa_transition_make(maker, &(bppsa_scan_operands){.batch = 1, .gradients = room}, made), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "transposed Jacobians"));
  bppsa_transition_destroy(made);
  bppsa_transition_maker_destroy(maker);
  bppsa_device_destroy(device);
}

static void differing_sizes(void **state) {
  (void)state;
  static const int64_t some[] = {3, 8, 1, 5, 2, 9, 4};
  bppsa_device *device = test_device(1);
  int64_t dims[32];
  for (uint64_t seed = 0; seed < 12; ++seed) {
    bppsa_scan_config c = bppsa_scan_config_default();
    c.dtype = seed % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    c.affine = seed % 3 == 0;
    c.batch = 2;
    c.jacobians = 2 + (int64_t)(seed % 11);
    for (int64_t t = 0; t <= c.jacobians; ++t) {
      dims[t] = some[(seed * 5 + (uint64_t)(t * t)) % 7];
    }
    c.dims = dims;
    check_parts(&c, 1 + (int64_t)seed % (c.jacobians - 1), device, -1, 100 + seed);
  }
  bppsa_device_destroy(device);
}

/* ---- useless products ---- */

/* A problem of two dense steps. J_2ᵀ is [1 1; 1 -1]. J_1ᵀ is the identity in sample 0, and [2^60 -2^60; 1 1] in sample 1. There
 * the first number of the image of (1, 1), which is the first row of the join, cancels. */
static problem two_steps(bppsa_dtype dtype) {
  static const double step1[] = {1, 0, 0, 1, 0x1p60, -0x1p60, 1, 1}, step2[] = {1, 1, 1, -1, 1, 1, 1, -1};
  problem p = {.config = bppsa_scan_config_default()};
  double jt[16], seed[12] = {0};
  memcpy(jt, step1, sizeof step1);
  memcpy(jt + 8, step2, sizeof step2);
  seed[8] = seed[9] = seed[10] = seed[11] = 1;
  p.config.dtype = dtype;
  p.config.jacobians = p.config.batch = p.config.dim = 2;
  p.dims[0] = p.dims[1] = p.dims[2] = 2;
  p.typed_jt = rounded(dtype, jt, 16);
  p.seed = rounded(dtype, seed, 12);
  p.typed_u = rounded(dtype, seed, 12);
  return p;
}

static void cancelled_rows(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  for (int d = 0; d < 2; ++d) {
    problem p = two_steps(d == 0 ? BPPSA_F32 : BPPSA_F64);
    const int64_t width = (int64_t)bppsa_dtype_size(p.config.dtype);
    operand_copies copies = copy_operands(&p, device);
    part late = make_part(&p, device, &copies, NULL, 1, 1, 2), early = make_part(&p, device, &copies, NULL, 0, 1, 2);
    bppsa_transition *joined = NULL;
    bool useless[2] = {true, false};
    int64_t count = 0;
    assert_int_equal(bppsa_transition_create_joined(late.made, early.made, device, &joined), BPPSA_OK);
    assert_int_equal(bppsa_transition_join(late.made, early.made, joined), BPPSA_OK);
    double values[8];
    const bppsa_view view = bppsa_transition_view(joined, 2);
    const int64_t eight = 8;
    assert_int_equal(bppsa_memory_get(device, values, view.data, 8 * width), BPPSA_OK);
    const bppsa_view numbers = bppsa_view_make(values, p.config.dtype, 1, &eight);
    for (int64_t i = 0; i < 8; ++i) { /* sample, row, column */
      assert_true((i / 2 == 2) == (bool)isnan(bppsa_view_get(&numbers, i)));
    }
    void *out = on_device(device, p.seed, 4 * width);
    assert_int_equal(bppsa_transition_apply(joined, (char *)copies.gradients + 8 * width, out, useless, &count), BPPSA_OK);
    assert_true(count == 1 && !useless[0] && useless[1]);
    bppsa_memory_free(device, out);
    bppsa_transition_destroy(joined);
    free_part(&late);
    free_part(&early);
    free_operands(&copies);
    free_problem(&p);
  }
  bppsa_device_destroy(device);
}

/* A problem of n steps of one sample, without injected gradients; jt and seed are copied. */
static problem one_sample(bppsa_element element, bppsa_dtype dtype, int64_t n, int64_t dim, double *jt, const double *seed) {
  problem p = {.config = bppsa_scan_config_default()};
  double *all = bppsa_calloc((n + 1) * dim, sizeof *all);
  assert_non_null(all);
  memcpy(all + n * dim, seed, (size_t)dim * sizeof *all);
  p.config.element = element;
  p.config.dtype = dtype;
  p.config.jacobians = n;
  p.config.batch = 1;
  p.config.dim = dim;
  for (int64_t t = 0; t <= n; ++t) {
    p.dims[t] = dim;
  }
  p.typed_jt = rounded(dtype, jt, n * dim * (element == BPPSA_ELEMENT_DENSE ? dim : 1));
  p.seed = rounded(dtype, all, (n + 1) * dim);
  p.typed_u = rounded(dtype, all, (n + 1) * dim);
  bppsa_free(all);
  return p;
}

/* Is the product of all steps useless for the seed? As it was made and, if `sent`, as it arrives in a message. cuts [n][b], on the
 * device, or NULL. */
static bool is_useless(const problem *p, const bppsa_device *device, const uint8_t *cuts, bool sent) {
  const int64_t width = (int64_t)bppsa_dtype_size(p->config.dtype), size = p->dims[0] * width;
  operand_copies copies = copy_operands(p, device);
  part all = make_part(p, device, &copies, cuts, 0, p->config.jacobians, 1);
  bppsa_transition *arrived = send(device, all.made, 1);
  bool useless = false;
  int64_t count = -1;
  void *out = on_device(device, p->seed, size);
  assert_int_equal(bppsa_transition_apply(sent ? arrived : all.made, (char *)copies.gradients + p->config.jacobians * size, out,
                                          &useless, &count),
                   BPPSA_OK);
  assert_int_equal(count, useless ? 1 : 0);
  bppsa_memory_free(device, out);
  bppsa_transition_destroy(arrived);
  free_part(&all);
  free_operands(&copies);
  return useless;
}

/* A gradient that cancels in a product is found where it is applied, wherever the largest entries of its rows are: the image of
 * (1, 1, 0, ..) is (2, 0, ..), and rows 0 and 1 have 2^60 and -2^60 in some column. */
static void useless_gradients(void **state) {
  (void)state;
  enum { D = 40 };
  static const int64_t columns[] = {1, 9, 20, 31, 36};
  bppsa_device *device = test_device(1);
  double *jt = bppsa_calloc(D * D, sizeof *jt), seed[D] = {1, 1};
  assert_non_null(jt);
  for (size_t i = 0; i < sizeof columns / sizeof *columns; ++i) {
    memset(jt, 0, D * D * sizeof *jt);
    jt[0] = jt[1] = 1;
    jt[columns[i] * D] = 0x1p60;
    jt[columns[i] * D + 1] = -0x1p60;
    for (int d = 0; d < 2; ++d) {
      problem p = one_sample(BPPSA_ELEMENT_DENSE, d == 0 ? BPPSA_F32 : BPPSA_F64, 1, D, jt, seed);
      assert_true(is_useless(&p, device, NULL, false));
      assert_true(is_useless(&p, device, NULL, true));
      free_problem(&p);
    }
  }
  bppsa_free(jt);
  bppsa_device_destroy(device);
}

/* One number of a gradient leaves the range, the first one or a later one; of matrices and of diagonals. */
static void infinite_gradients(void **state) {
  (void)state;
  enum { N = 8, D = 3 };
  static const double seed[] = {1, 1, 1};
  bppsa_device *device = test_device(1);
  for (int large = 0; large < D; ++large) {
    for (int d = 0; d < 2; ++d) {
      double dense[N * D * D] = {0}, diagonal[N * D];
      for (int i = 0; i < N * D; ++i) {
        diagonal[i] = i % D != large ? 1 : d == 0 ? 0x1p30 : 0x1p140;
        dense[i / D * D * D + i % D * (D + 1)] = diagonal[i];
      }
      problem matrices = one_sample(BPPSA_ELEMENT_DENSE, d == 0 ? BPPSA_F32 : BPPSA_F64, N, D, dense, seed);
      problem numbers = one_sample(BPPSA_ELEMENT_DIAGONAL, d == 0 ? BPPSA_F32 : BPPSA_F64, N, D, diagonal, seed);
      assert_true(is_useless(&matrices, device, NULL, false));
      assert_true(is_useless(&numbers, device, NULL, false));
      free_problem(&matrices);
      free_problem(&numbers);
    }
  }
  bppsa_device_destroy(device);
}

/* The same of a product of which the last step is cut, so that its affine row alone is applied. W multiplies one number in each
 * step. */
static void infinite_behind_a_cut(void **state) {
  (void)state;
  enum { N = 3, D = 3 };
  static const uint8_t cuts[N] = {0, 0, 1};
  double ones[N * D] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  bppsa_device *device = test_device(1);
  void *own_cuts = on_device(device, cuts, sizeof cuts);
  for (int k = 0; k < 2 * (D + 1); ++k) {
    const int large = k / 2; /* D: none is */
    bppsa_scan_config c = bppsa_scan_config_default();
    c.element = BPPSA_ELEMENT_RECURRENT;
    c.matrices = 1;
    c.dtype = k % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    c.affine = true;
    c.jacobians = N;
    c.dim = D;
    c.batch = 1;
    problem p = make_problem(&c, 7);
    double w[D * D] = {0}, u[(N + 1) * D];
    for (int i = 0; i < (N + 1) * D; ++i) {
      u[i] = k % 2 == 0 ? 0x1p100 : 0x1p900;
    }
    for (int i = 0; i < D; ++i) {
      w[i * (D + 1)] = i != large ? 1 : k % 2 == 0 ? 0x1p20 : 0x1p80;
    }
    bppsa_free(p.weights[0]);
    bppsa_free(p.columns[0]);
    bppsa_free(p.typed_u);
    p.weights[0] = rounded(c.dtype, w, D * D);
    p.columns[0] = rounded(c.dtype, ones, N * D);
    p.typed_u = rounded(c.dtype, u, (N + 1) * D);
    assert_true(is_useless(&p, device, own_cuts, false) == (large < D));
    assert_true(is_useless(&p, device, own_cuts, true) == (large < D));
    free_problem(&p);
  }
  bppsa_memory_free(device, own_cuts);
  bppsa_device_destroy(device);
}

/* A join of wide rows, each with one entry: no row is taken for a cancelled one, wherever the entries of both operands are. */
static void wide_joins(void **state) {
  (void)state;
  enum { D = 40 };
  bppsa_device *device = test_device(1);
  double *jt = bppsa_calloc(2 * D * D, sizeof *jt), seed[D];
  assert_non_null(jt);
  for (int64_t i = 0; i < D; ++i) {
    jt[i * D + (i + 17) % D] = jt[D * D + i * (D + 1)] = 1; /* J_1ᵀ turns, J_2ᵀ = I */
    seed[i] = (double)(i + 1);
  }
  for (int d = 0; d < 2; ++d) {
    problem p = one_sample(BPPSA_ELEMENT_DENSE, d == 0 ? BPPSA_F32 : BPPSA_F64, 2, D, jt, seed);
    const int64_t width = (int64_t)bppsa_dtype_size(p.config.dtype), count = D * D;
    operand_copies copies = copy_operands(&p, device);
    part late = make_part(&p, device, &copies, NULL, 1, 1, 1), early = make_part(&p, device, &copies, NULL, 0, 1, 1);
    bppsa_transition *joined = NULL;
    assert_int_equal(bppsa_transition_create_joined(late.made, early.made, device, &joined), BPPSA_OK);
    assert_int_equal(bppsa_transition_join(late.made, early.made, joined), BPPSA_OK);
    void *values = bppsa_alloc((size_t)(count * width));
    assert_non_null(values);
    assert_int_equal(bppsa_memory_get(device, values, bppsa_transition_view(joined, 1).data, count * width), BPPSA_OK);
    const bppsa_view view = bppsa_view_make(values, p.config.dtype, 1, &count);
    for (int64_t i = 0; i < count; ++i) { /* row r is the image of basis vector r */
      assert_true(bppsa_view_get(&view, i) == ((i % D + 17) % D == i / D ? 1 : 0));
    }
    bppsa_free(values);
    bppsa_transition_destroy(joined);
    free_part(&late);
    free_part(&early);
    free_operands(&copies);
    free_problem(&p);
  }
  bppsa_free(jt);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_element),      cmocka_unit_test(nothing_refused),
                                     cmocka_unit_test(operands_refused),   cmocka_unit_test(differing_sizes),
                                     cmocka_unit_test(cancelled_rows),     cmocka_unit_test(useless_gradients),
                                     cmocka_unit_test(infinite_gradients), cmocka_unit_test(wide_joins),
                                     cmocka_unit_test(cut_elements),       cmocka_unit_test(infinite_behind_a_cut)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
