/* On the device that CTest names: products and mat-vecs that are queued together have the same bits as alone. */
#include <math.h>
#include <string.h>

#include "core/base/philox.h"
#include "core/compute/graph.h"
#include "core/compute/memory.h"
#include "jacobian/apply.h"
#include "jacobian/product.h"
#include "tests/core/helpers.h"
#include "tests/jacobian/patterns.h"
#include "tests/support/support.h"

enum { MOST = 96, BATCH = 19 /* more than a convolution packs together */, FEW = 2 };

static uint64_t counter;

static int64_t below(int64_t bound) {
  return (int64_t)bppsa_random_below(9, 99, counter++, (uint64_t)bound);
}

/* Every entry with probability one in `rarity`. */
static bppsa_csr random_pattern(int64_t rows, int64_t cols, int64_t rarity) {
  bppsa_csr csr;
  assert_int_equal(bppsa_csr_create(rows, cols, rows * cols, &csr), BPPSA_OK);
  csr.nnz = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      if (below(rarity) == 0) {
        csr.col[csr.nnz++] = (int32_t)c;
      }
    }
    csr.row_ptr[r + 1] = csr.nnz;
  }
  return csr;
}

static bppsa_csr identity_pattern(int64_t n) {
  bppsa_csr csr = diagonal_pattern(n);
  csr.identity = true;
  return csr;
}

/* K ⊗ S, S random. */
static bppsa_csr structured_pattern(int64_t groups, int64_t row_channels, int64_t col_channels, int64_t rows, int64_t cols) {
  bppsa_csr positions = random_pattern(rows, cols, 2), csr;
  assert_int_equal(bppsa_csr_from_blocks(groups, row_channels, col_channels, &positions, &csr), BPPSA_OK);
  assert_int_equal(bppsa_csr_expand(&csr, 1), BPPSA_OK);
  return csr;
}

/* Makes factors for products of every kind; for `slots` with rows of every class, and rows that are summed in C. */
static bppsa_product_kind make_factors(int64_t which, bppsa_csr *a, bppsa_csr *b) {
  const int64_t n = 4 + below(40), k = 4 + below(20), m = 4 + below(70);
  switch (which % 8) {
  case 0:
    *a = identity_pattern(n);
    *b = random_pattern(n, m, 3);
    return BPPSA_PRODUCT_IDENTITY;
  case 1:
    *a = diagonal_pattern(n);
    *b = random_pattern(n, m, 3);
    return BPPSA_PRODUCT_DIAGONAL;
  case 2:
    *a = random_pattern(m, n, 3);
    *b = diagonal_pattern(n);
    return BPPSA_PRODUCT_DIAGONAL;
  case 3:
    *a = random_pattern(m, k, 1);
    *b = random_pattern(k, n, 1);
    return BPPSA_PRODUCT_DENSE;
  case 4: {
    const int64_t groups = 1 + below(2), channels = groups * (1 + below(20));
    *a = structured_pattern(groups, channels, 2 * groups, 5, 6);
    *b = structured_pattern(groups, 2 * groups, channels, 6, 4);
    return BPPSA_PRODUCT_CONV;
  }
  case 5: {
    static const int64_t widths[] = {4000, 9000, 30000, 70000, 17000};
    *a = random_pattern(2, 3, 2);
    *b = random_pattern(3, widths[which / 8 % 5], 1 + below(2));
    return BPPSA_PRODUCT_SLOTS;
  }
  default:
    *a = random_pattern(n, k, 2);
    *b = random_pattern(k, m, 1 + below(4));
    return BPPSA_PRODUCT_SLOTS;
  }
}

/* Random values, on the device: of one sample or of all. */
static bppsa_csr_values make_values(const bppsa_csr *csr, bppsa_dtype dtype, const bppsa_device *device) {
  const bool shared = below(2) == 0;
  const int64_t count = csr->nnz * (shared ? 1 : BATCH);
  double *wide = uniform(300 + counter++, count, 1);
  void *typed = rounded(dtype, wide, count);
  const void *data = on_device(device, typed, count * (int64_t)bppsa_dtype_size(dtype));
  bppsa_free(wide);
  bppsa_free(typed);
  return (bppsa_csr_values){data, shared ? 0 : csr->nnz};
}

typedef struct {
  bppsa_csr a, b;
  bppsa_product_pass pass;
  int64_t bytes; /* of C */
  void *alone;   /* C's values, host */
} product_case;

static void clear(const bppsa_device *device, const product_case *c) {
  char *poison = bppsa_alloc((size_t)c->bytes + 1);
  memset(poison, 0x7f, (size_t)c->bytes + 1);
  assert_int_equal(bppsa_memory_put(device, c->pass.c, poison, c->bytes), BPPSA_OK);
  bppsa_free(poison);
}

static void make_product(product_case *c, int64_t which, bppsa_dtype dtype, const bppsa_device *device) {
  const bppsa_product_config config = {.kind = make_factors(which, &c->a, &c->b), .dtype = dtype};
  bppsa_product_pass *pass = &c->pass;
  assert_int_equal(bppsa_product_create(&c->a, &c->b, &config, device, &pass->product), BPPSA_OK);
  assert_int_equal(bppsa_product_get_info(pass->product)->kind, config.kind);
  pass->a = make_values(&c->a, dtype, device);
  pass->b = make_values(&c->b, dtype, device);
  const int64_t samples = pass->a.stride == 0 && pass->b.stride == 0 ? 1 : BATCH;
  c->bytes = samples * bppsa_product_get_info(pass->product)->nnz * (int64_t)bppsa_dtype_size(dtype);
  assert_int_equal(bppsa_memory_alloc(device, c->bytes + 1, &pass->c), BPPSA_OK);
  c->alone = bppsa_alloc((size_t)c->bytes + 1);
  clear(device, c);
  assert_int_equal(bppsa_product_execute(pass->product, BATCH, pass->a, pass->b, pass->c), BPPSA_OK);
  assert_int_equal(bppsa_memory_get(device, c->alone, pass->c, c->bytes), BPPSA_OK);
  clear(device, c);
}

static void free_product(product_case *c, const bppsa_device *device) {
  bppsa_product_destroy(c->pass.product);
  bppsa_memory_free(device, (void *)c->pass.a.data);
  bppsa_memory_free(device, (void *)c->pass.b.data);
  bppsa_memory_free(device, c->pass.c);
  bppsa_csr_free(&c->a);
  bppsa_csr_free(&c->b);
  bppsa_free(c->alone);
}

/* Products of all kinds, in any order, more than are looked at together. */
static void test_products(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  static product_case cases[MOST];
  bppsa_product_pass passes[MOST];
  for (int dtype = BPPSA_F32; dtype <= BPPSA_F64; ++dtype) {
    for (int64_t i = 0; i < MOST; ++i) {
      make_product(&cases[i], i, (bppsa_dtype)dtype, device);
      const int64_t place = below(i + 1);
      passes[i] = passes[place];
      passes[place] = cases[i].pass;
    }
    bppsa_alloc_fail_at(1);
    assert_int_equal(bppsa_product_queue(passes, MOST, BATCH, bppsa_device_get_stream(device)), BPPSA_OK);
    bppsa_alloc_fail_at(0);
    for (int64_t i = 0; i < MOST; ++i) {
      char *c = bppsa_alloc((size_t)cases[i].bytes + 1);
      assert_int_equal(bppsa_memory_get(device, c, cases[i].pass.c, cases[i].bytes), BPPSA_OK);
      assert_memory_equal(c, cases[i].alone, (size_t)cases[i].bytes);
      bppsa_free(c);
      free_product(&cases[i], device);
    }
  }
  bppsa_device_destroy(device);
}

typedef struct {
  const bppsa_product_pass *passes;
  int64_t count;
  const bppsa_device *device;
} queueing;

static bppsa_status queue_few(void *context) {
  const queueing *q = context;
  return bppsa_product_queue(q->passes, q->count, FEW, bppsa_device_get_stream(q->device));
}

static int64_t launches_of(const bppsa_product_pass *passes, int64_t count, const bppsa_device *device) {
  queueing q = {passes, count, device};
  bppsa_graph *graph = NULL;
  assert_int_equal(bppsa_graph_capture(device, queue_few, &q, &graph), BPPSA_OK);
  const int64_t launches = bppsa_graph_nodes(graph);
  bppsa_graph_destroy(device, graph);
  return launches;
}

/* Plans with equal factors have blocks of the same shape, so they take as many launches as one of them, and the cost model divides
 * the launches' cost among them. They are recorded and not run. */
static void test_launches(void **state) {
  (void)state;
  enum { PLANS = 3 };
  bppsa_device *device = test_device(1);
  if (bppsa_device_get_kind(device) == BPPSA_CPU) {
    bppsa_device_destroy(device);
    skip();
  }
  for (int64_t which = 0; which < 24; ++which) {
    product_case c;
    make_product(&c, which, BPPSA_F32, device);
    const bppsa_product_config config = {
        .kind = bppsa_product_get_info(c.pass.product)->kind, .dtype = BPPSA_F32, .together = PLANS};
    const double seconds = bppsa_product_get_info(c.pass.product)->seconds;
    bppsa_product_pass passes[PLANS] = {c.pass, c.pass, c.pass};
    for (int i = 1; i < PLANS; ++i) {
      assert_int_equal(bppsa_product_create(&c.a, &c.b, &config, device, &passes[i].product), BPPSA_OK);
      const double shared = bppsa_product_get_info(passes[i].product)->seconds;
      assert_true(config.kind == BPPSA_PRODUCT_IDENTITY || (shared < seconds && PLANS * shared > 0.99 * seconds));
    }
    const int64_t alone = launches_of(passes, 1, device);
    assert_true(config.kind == BPPSA_PRODUCT_SLOTS ? alone >= 1 : alone == (config.kind == BPPSA_PRODUCT_CONV ? 3 : 1));
    assert_int_equal(launches_of(passes, PLANS, device), alone);
    for (int i = 1; i < PLANS; ++i) {
      bppsa_product_destroy(passes[i].product);
    }
    free_product(&c, device);
  }
  bppsa_device_destroy(device);
}

/* The cost model counts a launch as often as 40 products need it: a group holds 24 items of the convolution, 34 of slots, 39 of
 * packing, and more than 40 of the others. What is not launches does not depend on the products beside it. */
static void test_shared_cost(void **state) {
  (void)state;
  enum { MANY = 40 };
  bppsa_device *device = test_device(1);
  if (bppsa_device_get_kind(device) == BPPSA_CPU) {
    bppsa_device_destroy(device);
    skip();
  }
  for (int64_t which = 0; which < 24; ++which) {
    product_case c;
    make_product(&c, which, BPPSA_F32, device);
    const bppsa_product_kind kind = bppsa_product_get_info(c.pass.product)->kind;
    double seconds[3] = {0};
    const int64_t together[] = {1, 2, MANY};
    for (int i = 0; i < 3; ++i) {
      const bppsa_product_config config = {.kind = kind, .dtype = BPPSA_F32, .together = together[i]};
      bppsa_product *product;
      assert_int_equal(bppsa_product_create(&c.a, &c.b, &config, device, &product), BPPSA_OK);
      seconds[i] = bppsa_product_get_info(product)->seconds;
      bppsa_product_destroy(product);
    }
    if (kind == BPPSA_PRODUCT_IDENTITY) { /* copied only where it stands alone */
      free_product(&c, device);
      continue;
    }
    const double launches = 2 * (seconds[0] - seconds[1]), work = seconds[0] - launches;
    const bool twice = kind == BPPSA_PRODUCT_CONV || kind == BPPSA_PRODUCT_SLOTS;
    assert_true(launches > 1e-6 && work >= 0);
    assert_true(fabs(MANY * (seconds[2] - work) / launches - (twice ? 2 : 1)) < 1e-6);
    free_product(&c, device);
  }
  bppsa_device_destroy(device);
}

/* No passes are a legal request; passes that cannot be queued together are refused before any is queued. */
static void test_requests(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  product_case cases[2];
  make_product(&cases[0], 3, BPPSA_F32, device);
  make_product(&cases[1], 3, BPPSA_F64, device);
  void *stream = bppsa_device_get_stream(device);
  const bppsa_product_pass passes[2] = {cases[0].pass, cases[1].pass};
  char *c = bppsa_alloc((size_t)cases[0].bytes + 1);
  assert_int_equal(bppsa_product_queue(passes, 0, BATCH, stream), BPPSA_OK);
  assert_int_equal(bppsa_product_queue(passes, 1, 0, stream), BPPSA_OK);
  assert_int_equal(bppsa_product_queue(passes, 1, -1, stream), BPPSA_ERR_ARGUMENT);
  assert_message("a negative batch");
  assert_int_equal(bppsa_product_queue(passes, 2, BATCH, stream), BPPSA_ERR_ARGUMENT);
  assert_message("plans of differing dtypes or devices");
  assert_int_equal(bppsa_memory_get(device, c, cases[0].pass.c, cases[0].bytes), BPPSA_OK);
  for (int64_t i = 0; i < cases[0].bytes; ++i) {
    assert_int_equal(c[i], 0x7f);
  }
  bppsa_apply *apply[2];
  assert_int_equal(bppsa_apply_create(&cases[0].a, BPPSA_F32, device, &apply[0]), BPPSA_OK);
  assert_int_equal(bppsa_apply_create(&cases[0].a, BPPSA_F64, device, &apply[1]), BPPSA_OK);
  const bppsa_apply_pass mixed[2] = {{.apply = apply[0]}, {.apply = apply[1]}};
  assert_int_equal(bppsa_apply_queue(mixed, 0, BATCH, stream), BPPSA_OK);
  assert_int_equal(bppsa_apply_queue(mixed, 1, 0, stream), BPPSA_OK);
  assert_int_equal(bppsa_apply_queue(mixed, 1, -1, stream), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_apply_queue(mixed, 2, BATCH, stream), BPPSA_ERR_ARGUMENT);
  assert_message("plans of differing dtypes or devices");
  for (int i = 0; i < 2; ++i) {
    bppsa_apply_destroy(apply[i]);
    free_product(&cases[i], device);
  }
  bppsa_free(c);
  bppsa_device_destroy(device);
}

typedef struct {
  bppsa_csr csr;
  bppsa_apply *plan;
  bppsa_apply_pass pass;
  int64_t bytes; /* of y */
  void *alone;   /* y, host */
} apply_case;

static void make_apply(apply_case *c, int64_t which, bppsa_dtype dtype, int64_t batch, const bppsa_device *device) {
  const int64_t rows = 1 + below(60), cols = 1 + below(300), size = (int64_t)bppsa_dtype_size(dtype);
  c->csr = which % 5 == 0 ? identity_pattern(rows) : random_pattern(rows, cols, 1 + below(20));
  double *x = uniform(700 + counter++, c->csr.cols * batch, 1);
  void *typed = rounded(dtype, x, c->csr.cols * batch);
  assert_int_equal(bppsa_apply_create(&c->csr, dtype, device, &c->plan), BPPSA_OK);
  c->bytes = rows * batch * size;
  c->pass = (bppsa_apply_pass){c->plan, make_values(&c->csr, dtype, device), on_device(device, typed, c->csr.cols * batch * size),
                               NULL};
  assert_int_equal(bppsa_memory_alloc(device, c->bytes, &c->pass.y), BPPSA_OK);
  c->alone = bppsa_alloc((size_t)c->bytes);
  assert_int_equal(bppsa_apply_execute(c->plan, batch, c->pass.values, c->pass.x, c->pass.y), BPPSA_OK);
  assert_int_equal(bppsa_memory_get(device, c->alone, c->pass.y, c->bytes), BPPSA_OK);
  if (c->csr.identity) {
    assert_memory_equal(c->alone, typed, (size_t)c->bytes);
  }
  assert_int_equal(bppsa_memory_clear(device, c->pass.y, c->bytes), BPPSA_OK);
  bppsa_free(x);
  bppsa_free(typed);
}

static void test_applies(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  static apply_case cases[MOST];
  bppsa_apply_pass passes[MOST];
  for (int which = 0; which < 4; ++which) {
    const bppsa_dtype dtype = which % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    const int64_t batch = which < 2 ? 1 : BATCH;
    for (int64_t i = 0; i < MOST; ++i) {
      make_apply(&cases[i], i, dtype, batch, device);
      passes[i] = cases[i].pass;
    }
    bppsa_alloc_fail_at(1);
    assert_int_equal(bppsa_apply_queue(passes, MOST, batch, bppsa_device_get_stream(device)), BPPSA_OK);
    bppsa_alloc_fail_at(0);
    for (int64_t i = 0; i < MOST; ++i) {
      apply_case *c = &cases[i];
      char *y = bppsa_alloc((size_t)c->bytes);
      assert_int_equal(bppsa_memory_get(device, y, c->pass.y, c->bytes), BPPSA_OK);
      assert_memory_equal(y, c->alone, (size_t)c->bytes);
      bppsa_free(y);
      bppsa_free(c->alone);
      bppsa_memory_free(device, (void *)c->pass.values.data);
      bppsa_memory_free(device, (void *)c->pass.x);
      bppsa_memory_free(device, c->pass.y);
      bppsa_apply_destroy(c->plan);
      bppsa_csr_free(&c->csr);
    }
  }
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_launches),
                                     cmocka_unit_test(test_shared_cost), cmocka_unit_test(test_requests),
                                     cmocka_unit_test(test_applies)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
