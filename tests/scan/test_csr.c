/* On the device that CTest names: scans of sparse chains, every algorithm against the recurrence, and the plan of VGG-11. */
#include "jacobian/apply.h"
#include "jacobian/network_ops.h"
#include "tests/scan/csr_chain.h"

/* All gradients by one algorithm, typed (owned), after two executions. */
static void *run_scan(const chain *c, bppsa_scan_algorithm algorithm, int64_t levels, const bppsa_device *device) {
  const bppsa_scan_config config = config_of(c, algorithm, levels, device);
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  const int64_t all = c->offsets[c->n + 1] * c->batch;
  const int64_t bytes = all * (int64_t)bppsa_dtype_size(c->dtype);
  void *g = bppsa_alloc((size_t)all * sizeof(double)), *gradients = on_device(device, g, bytes);
  bppsa_csr_values values[LONGEST];
  move_values(c, device, values);
  for (int pass = 0; pass < 2; ++pass) {
    assert_int_equal(bppsa_memory_put(device, gradients, c->seed, bytes), BPPSA_OK);
    const bppsa_scan_operands operands = {.batch = c->batch, .values = values, .gradients = gradients};
    bppsa_alloc_fail_at(1); /* executing must not allocate */
    assert_int_equal(executor->execute(executor, &operands), BPPSA_OK);
    bppsa_alloc_fail_at(0);
  }
  assert_int_equal(bppsa_memory_get(device, g, gradients, bytes), BPPSA_OK);
  bppsa_memory_free(device, gradients);
  free_values(c, device, values);
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  return g;
}

/* Compares with the recurrence, and the bits with those of another number of threads. */
static void check_scan(const chain *c, bppsa_scan_algorithm algorithm, int64_t levels, const bppsa_device *device,
                       const bppsa_device *other) {
  void *g = run_scan(c, algorithm, levels, device), *same = run_scan(c, algorithm, levels, other);
  assert_memory_equal(g, same, (size_t)(c->offsets[c->n + 1] * c->batch) * bppsa_dtype_size(c->dtype));
  bppsa_free(same);
  for (int64_t t = 0; t < c->n; ++t) { /* g_0 is asked for too */
    const int64_t from = c->offsets[t] * c->batch, count = (c->offsets[t + 1] - c->offsets[t]) * c->batch;
    const char *got = (const char *)g + (size_t)from * bppsa_dtype_size(c->dtype);
    assert_true(residual(c->dtype, got, c->g + from, count, sqrt((double)c->n)) < 30);
  }
  bppsa_free(g);
}

static void test_chains(void **state) {
  (void)state;
  bppsa_device *device = test_device(2), *other = test_device(3);
  for (int i = 0; i < 120; ++i) {
    const int64_t n = i < 20 ? 1 + i : 1 + below(22);
    chain c;
    make_chain(&c, n, i % 2 == 0 ? BPPSA_F32 : BPPSA_F64, device);
    check_scan(&c, BPPSA_SCAN_LINEAR, 0, device, other);
    check_scan(&c, BPPSA_SCAN_AUTO, 0, device, other);
    for (int64_t levels = -1; levels <= 4; ++levels) {
      check_scan(&c, BPPSA_SCAN_BLELLOCH, levels, device, other);
    }
    free_chain(&c);
  }
  bppsa_device_destroy(device);
  bppsa_device_destroy(other);
}

/* ---- plans ---- */

static chain network(const char *name, const bppsa_device *device) {
  chain c = {.batch = 1, .dtype = BPPSA_F32};
  bppsa_named_op ops[BPPSA_NETWORK_OPS];
  assert_int_equal(bppsa_network_table(name, ops, &c.n), BPPSA_OK);
  for (int64_t t = 0; t < c.n; ++t) {
    assert_int_equal(bppsa_jacobian_create(&ops[t].op, NULL, true, device, &c.j[t]), BPPSA_OK);
    c.patterns[t] = bppsa_jacobian_pattern(c.j[t]);
  }
  return c;
}

/* On a GPU a chain's mat-vecs are predicted to take a launch of 3 µs each, and what their bytes take at 4e12 a second: values of
 * every sample, columns once for four samples, both gradients. */
static void test_predicted(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  if (bppsa_device_get_kind(device) == BPPSA_CPU) {
    bppsa_device_destroy(device);
    skip();
  }
  static const int64_t batches[] = {1, 3, 4, 5, 64};
  for (size_t i = 0; i < 2 * sizeof batches / sizeof *batches; ++i) {
    const int64_t batch = batches[i / 2], size = i % 2 == 0 ? 4 : 8, passes = (batch + 3) / 4;
    chain c = network("lenet5", device);
    c.batch = batch;
    c.dtype = i % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    bppsa_scan_config config = config_of(&c, BPPSA_SCAN_LINEAR, 0, device);
    config.symbolic = true;
    bppsa_scan_plan *plan = NULL;
    double expected = 0;
    for (int64_t t = 0; t < c.n; ++t) {
      const bppsa_csr *jt = c.patterns[t];
      const int64_t bytes = (jt->identity ? 0 : jt->nnz * (4 * passes + size * batch)) + size * batch * (jt->rows + jt->cols);
      expected += 3e-6 + (double)bytes / 4e12;
    }
    assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
    assert_true(fabs(bppsa_scan_plan_seconds(plan) / expected - 1) < 1e-9);
    bppsa_scan_plan_destroy(plan);
    free_chain(&c);
  }
  bppsa_device_destroy(device);
}

/* VGG-11 with two up-levels: 22 elements, 14 mat-mat of which conv1·relu1 is dead, 20 mat-vec, levels 11, 5, 4, 10 and a middle
 * of 4. */
static void test_vgg11(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  chain c = network("vgg11", device);
  assert_int_equal(c.n, 21);
  bppsa_scan_config config = config_of(&c, BPPSA_SCAN_BLELLOCH, 2, device);
  config.symbolic = true;
  config.input = false;
  bppsa_scan_plan *plan = NULL;
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
  const bppsa_scan_totals *totals = bppsa_scan_plan_totals(plan);
  assert_int_equal(totals->mm, 14);
  assert_int_equal(totals->dead, 1);
  assert_int_equal(totals->mv, 20);
  assert_int_equal(totals->critical_steps, 8);
  int64_t count = 0;
  const int64_t *levels = bppsa_scan_plan_levels(plan, &count), expected[] = {11, 5, 4, 4, 10};
  assert_int_equal(count, 5);
  assert_memory_equal(levels, expected, sizeof expected);
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  int64_t mm_flops = 0, dominant = 0;
  while (bppsa_scan_plan_next(plan, &it, &step)) {
    if (step.level->op != BPPSA_OP_MM) {
      continue;
    }
    if (step.level->dead) { /* conv1 · relu1: 3072 x 65536 · 65536² */
      assert_int_equal(step.first, 20);
      assert_int_equal(step.flops, 2 * 1696512);
      assert_int_equal(step.nnz, 1696512);
      continue;
    }
    mm_flops += step.flops;
    if (step.first == 14 && step.last == 15) { /* conv3 · relu3 keeps conv3's entries */
      assert_int_equal(step.nnz, 15859712);
    }
    if (step.first == 12 && step.last == 15) { /* 5 x 5 stencils on 8 x 8: (8·5 - 6)² positions */
      assert_int_equal(step.nnz, 128 * 256 * 34 * 34);
      /* Σ over rows, columns and middles: a 3 x 3 stencil squared has Σ_x Σ_{y~x} |N(y)| = (4·2 + 4·3 ...)² */
      int64_t line = 0;
      for (int64_t x = 0; x < 8; ++x) {
        for (int64_t y = x > 0 ? x - 1 : 0; y <= x + 1 && y < 8; ++y) {
          line += y == 0 || y == 7 ? 2 : 3;
        }
      }
      assert_int_equal(step.flops, 2LL * 128 * 256 * 256 * line * line);
    }
    dominant = step.flops > dominant ? step.flops : dominant;
  }
  assert_int_equal(mm_flops, totals->mm_flops);
  assert_true((double)dominant > 6e10); /* 3.2e10 multiply-adds and more */
  bppsa_scan_plan_destroy(plan);
  /* auto: as few FLOPs on the critical path as any number of up-levels has */
  int64_t best = INT64_MAX;
  for (int64_t l = 0; l <= 4; ++l) {
    config.method.up_levels = l;
    assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
    const int64_t flops = bppsa_scan_plan_totals(plan)->critical_flops;
    best = flops < best ? flops : best;
    bppsa_scan_plan_destroy(plan);
  }
  config.method.algorithm = BPPSA_SCAN_AUTO;
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_plan_totals(plan)->critical_flops, best);
  bppsa_scan_plan_destroy(plan);
  free_chain(&c);
  bppsa_device_destroy(device);
}

/* If every element is an identity nothing is multiplied, and copies do not count as products. */
static void test_identity(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  chain c = {.n = 7, .batch = 2, .dtype = BPPSA_F64};
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_FLATTEN);
  memcpy(op.in, (int64_t[]){1, 2, 3}, sizeof op.in);
  for (int64_t t = 0; t < c.n; ++t) {
    assert_int_equal(bppsa_jacobian_create(&op, NULL, false, device, &c.j[t]), BPPSA_OK);
    c.patterns[t] = bppsa_jacobian_pattern(c.j[t]);
    set_values(&c, t, true);
  }
  make_seed(&c);
  check_scan(&c, BPPSA_SCAN_BLELLOCH, -1, device, device);
  const bppsa_scan_config config = config_of(&c, BPPSA_SCAN_BLELLOCH, -1, device);
  bppsa_scan_plan *plan = NULL;
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
  const bppsa_scan_totals *totals = bppsa_scan_plan_totals(plan);
  assert_int_equal(totals->mm + totals->mv + totals->mm_flops + totals->mv_flops + totals->workspace_bytes, 0);
  assert_int_equal(totals->critical_steps, 0);
  bppsa_scan_plan_destroy(plan);
  free_chain(&c);
  bppsa_device_destroy(device);
}

/* Of plans with equally many FLOPs on the critical path `auto` takes the one with the fewest levels: permutations cost the same in
 * any order. */
static void test_equal_plans(void **state) {
  (void)state;
  enum { SIZE = 12 };
  bppsa_device *device = test_device(1);
  for (int64_t n = 2; n <= 3; ++n) {
    chain c = {.n = n, .batch = 1, .dtype = BPPSA_F32};
    for (int64_t t = 0; t < n; ++t) {
      assert_int_equal(bppsa_csr_create(SIZE, SIZE, SIZE, &c.plain[t]), BPPSA_OK);
      for (int32_t r = 0; r < SIZE; ++r) {
        c.plain[t].row_ptr[r + 1] = r + 1;
        c.plain[t].col[r] = (r + 1 + (int32_t)t) % SIZE;
      }
      c.patterns[t] = &c.plain[t];
    }
    int64_t flops[2];
    bppsa_scan_plan *plan = NULL;
    for (int64_t levels = 0; levels < 2; ++levels) {
      const bppsa_scan_config config = config_of(&c, levels == 0 ? BPPSA_SCAN_LINEAR : BPPSA_SCAN_BLELLOCH, levels, device);
      assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
      flops[levels] = bppsa_scan_plan_totals(plan)->critical_flops;
      bppsa_scan_plan_destroy(plan);
    }
    assert_true(flops[0] > 0 && flops[0] == flops[1]);
    const bppsa_scan_config config = config_of(&c, BPPSA_SCAN_AUTO, -1, device);
    assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
    assert_int_equal(bppsa_scan_plan_config(plan)->method.algorithm, BPPSA_SCAN_LINEAR);
    bppsa_scan_plan_destroy(plan);
    for (int64_t t = 0; t < n; ++t) {
      bppsa_csr_free(&c.plain[t]);
    }
  }
  bppsa_device_destroy(device);
}

/* What a plan without products holds. */
static int64_t linear_bytes(const chain *c, const bppsa_device *device) {
  int64_t bytes = 0;
  for (int64_t t = 0; t < c->n; ++t) {
    bytes += bppsa_apply_bytes(c->patterns[t], device);
  }
  return bytes;
}

static void test_requests(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  chain c;
  make_chain(&c, 9, BPPSA_F32, device);
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  bppsa_scan_config config = config_of(&c, BPPSA_SCAN_CHUNKED, 0, device);
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_ERR_UNSUPPORTED);
  assert_message("scan plan: sparse elements with chunks");
  config = config_of(&c, BPPSA_SCAN_BLELLOCH, 0, device);
  config.affine = true;
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_ERR_UNSUPPORTED);
  config = config_of(&c, BPPSA_SCAN_BLELLOCH, -1, NULL);
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_ERR_ARGUMENT);
  const bppsa_csr *swapped[2] = {&(bppsa_csr){.rows = 3, .cols = 4}, &(bppsa_csr){.rows = 5, .cols = 2}};
  config = config_of(&c, BPPSA_SCAN_BLELLOCH, -1, device);
  config.patterns = swapped;
  config.jacobians = 2;
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_ERR_SHAPE);
  assert_message("element 2 is 5 x 2, expected 4 rows");
  config = config_of(&c, BPPSA_SCAN_BLELLOCH, -1, device);
  config.memory_limit = 100;
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_ERR_ARGUMENT);
  assert_message("the memory limit is");
  config.method.algorithm = BPPSA_SCAN_AUTO; /* without products nothing is held, but a GPU's patterns */
  config.memory_limit += linear_bytes(&c, device);
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_plan_config(plan)->method.algorithm, BPPSA_SCAN_LINEAR);
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
  assert_int_equal(executor->execute(executor, &(bppsa_scan_operands){.batch = 1, .gradients = c.seed}), BPPSA_ERR_ARGUMENT);
  assert_message("operand 'values' is missing");
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  config = config_of(&c, BPPSA_SCAN_BLELLOCH, -1, device);
  config.symbolic = true;
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
  assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_ERR_ARGUMENT);
  bppsa_scan_plan_destroy(plan);
  free_chain(&c);
  bppsa_device_destroy(device);
}

/* Bytes of a symbolic plan of `n` convolutions that take turns in two forms, with all up-levels; every step must have the counts of
 * an executable plan. */
static int64_t bytes_of_repeats(int64_t n, bool expanded, const bppsa_device *device) {
  enum { MOST = 64 };
  const bppsa_csr *patterns[MOST];
  bppsa_jacobian *j[MOST];
  for (int64_t t = 0; t < n; ++t) { /* elements of their own, as a network's layers have them */
    bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_CONV2D);
    op.in[1] = op.in[2] = 6;
    op.kernel[0] = op.kernel[1] = t % 2 == 0 ? 3 : 1;
    for (int side = 0; side < 4; ++side) {
      op.padding[side] = t % 2 == 0;
    }
    assert_int_equal(bppsa_jacobian_create(&op, NULL, !expanded, device, &j[t]), BPPSA_OK);
    patterns[t] = bppsa_jacobian_pattern(j[t]);
  }
  const chain c = {.n = n, .batch = 1, .dtype = BPPSA_F32};
  bppsa_scan_config config = config_of(&c, BPPSA_SCAN_BLELLOCH, -1, device);
  bppsa_scan_plan *counted = NULL, *whole = NULL;
  bppsa_scan_iterator at = {0}, other = {0};
  bppsa_scan_step step, expected;
  config.patterns = patterns;
  config.symbolic = true;
  const int64_t before = bppsa_alloc_live_bytes();
  assert_int_equal(bppsa_scan_plan_create(&config, &counted), BPPSA_OK);
  const int64_t bytes = bppsa_alloc_live_bytes() - before;
  config.symbolic = false;
  assert_int_equal(expanded ? bppsa_scan_plan_create(&config, &whole) : BPPSA_OK, BPPSA_OK);
  while (expanded && bppsa_scan_plan_next(counted, &at, &step)) {
    assert_true(bppsa_scan_plan_next(whole, &other, &expected));
    assert_true(step.nnz == expected.nnz && step.flops == expected.flops && step.critical == expected.critical);
  }
  bppsa_scan_plan_destroy(counted);
  bppsa_scan_plan_destroy(whole);
  for (int64_t t = 0; t < n; ++t) {
    bppsa_jacobian_destroy(j[t]);
  }
  return bytes;
}

/* A plan that counts has each product of the same patterns once: with more layers of the same kinds it hardly grows. */
static void test_repeats(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  for (int expanded = 0; expanded < 2; ++expanded) {
    const int64_t few = bytes_of_repeats(33, expanded, device), many = bytes_of_repeats(64, expanded, device);
    assert_true(few > 0 && many < few + few / 4 + 32 * 256); /* a node of a plan takes some hundred bytes */
  }
  bppsa_device_destroy(device);
}

typedef struct {
  const chain *c;
  const bppsa_device *device;
} creation;

static bppsa_status create_once(void *argument) {
  const creation *made = argument;
  const bppsa_scan_config config = config_of(made->c, BPPSA_SCAN_AUTO, 0, made->device);
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  BPPSA_TRY(bppsa_scan_plan_create(&config, &plan));
  const bppsa_status status = bppsa_scan_executor_create(plan, made->device, &executor);
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  chain c;
  make_chain(&c, 7, BPPSA_F32, device);
  creation made = {&c, device};
  assert_true(walk_allocations(create_once, &made) > 20);
  free_chain(&c);
  bppsa_device_destroy(device);
}

/* The limit is the number of bytes that the plan reports, exactly, and that it holds; a GPU without memory reports how much was
 * wanted. */
static void test_limit(void **state) {
  (void)state;
  bppsa_device *device = test_device(1), *host = cpu_device(1);
  chain c;
  make_chain(&c, 11, BPPSA_F64, device);
  bppsa_scan_config config = config_of(&c, BPPSA_SCAN_BLELLOCH, -1, device);
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
  const bppsa_scan_totals totals = *bppsa_scan_plan_totals(plan);
  bppsa_scan_plan_destroy(plan);
  config.memory_limit = totals.workspace_bytes + totals.plan_bytes - 1;
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_ERR_ARGUMENT);
  assert_message("the memory limit is");
  config.memory_limit += 1;
  int64_t before = 0, after = 0;
  if (is_emulated(device)) {
    assert_int_equal(bppsa_memory_available(device, &before), BPPSA_OK);
  }
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
  if (is_emulated(device)) { /* others may hold memory of a real one */
    void *most = NULL;
    assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
    assert_int_equal(bppsa_memory_available(device, &after), BPPSA_OK);
    assert_in_range(before - after, 1, totals.workspace_bytes + totals.plan_bytes + 256 * c.n);
    bppsa_scan_executor_destroy(executor);
    assert_int_equal(bppsa_memory_available(device, &after), BPPSA_OK);
    assert_int_equal(bppsa_memory_alloc(device, after - 1000, &most), BPPSA_OK);
    assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_ERR_MEMORY);
    assert_message("bytes of GPU memory for held products and patterns, expected at most the 1000 available");
    bppsa_memory_free(device, most);
  }
  if (bppsa_device_get_kind(device) == BPPSA_CUDA) {
    assert_int_equal(bppsa_scan_executor_create(plan, host, &executor), BPPSA_ERR_ARGUMENT);
    assert_message("the plan has products for a GPU, expected products for device cpu");
    bppsa_scan_plan_destroy(plan);
    config.planner = host;
    assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
    assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_ERR_ARGUMENT);
    assert_message("the plan has products for a processor, expected products for device cuda:0");
  }
  bppsa_scan_plan_destroy(plan);
  free_chain(&c);
  bppsa_device_destroy(device);
  bppsa_device_destroy(host);
}

/* A chain for which AUTO chooses products, with its bytes and those of the recurrence. */
static void make_worthwhile(chain *c, const bppsa_device *device, int64_t *most, int64_t *least) {
  bppsa_scan_plan *plan = NULL;
  for (bool found = false; !found;) {
    make_chain(c, 9, BPPSA_F32, device);
    const bppsa_scan_config config = config_of(c, BPPSA_SCAN_AUTO, 0, device);
    assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
    const bppsa_scan_totals *t = bppsa_scan_plan_totals(plan);
    *most = t->workspace_bytes + t->plan_bytes;
    *least = linear_bytes(c, device);
    found = bppsa_scan_plan_config(plan)->method.algorithm != BPPSA_SCAN_LINEAR && *most > *least;
    bppsa_scan_plan_destroy(plan);
    if (!found) {
      free_chain(c);
    }
  }
}

/* AUTO skips plans for which a GPU has no memory, with and without a limit, and ends with the recurrence; lack of host memory is
 * still an error. If the recurrence does not fit either, the executor reports it. */
static void test_room(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  if (!is_emulated(device)) { /* others may use a real one */
    bppsa_device_destroy(device);
    skip();
  }
  for (int i = 0; i < 8; ++i) {
    chain c;
    int64_t most, least, available;
    void *taken = NULL;
    bppsa_scan_plan *plan = NULL;
    bppsa_scan_executor *executor = NULL;
    make_worthwhile(&c, device, &most, &least);
    bppsa_scan_config config = config_of(&c, BPPSA_SCAN_AUTO, 0, device);
    config.memory_limit = i % 2 == 0 ? 0 : most;
    assert_int_equal(bppsa_memory_available(device, &available), BPPSA_OK);
    assert_int_equal(bppsa_memory_alloc(device, available - (i < 4 ? most - 1 : least), &taken), BPPSA_OK);
    assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
    const bppsa_scan_totals *t = bppsa_scan_plan_totals(plan);
    assert_true(t->workspace_bytes + t->plan_bytes <= (i < 4 ? most - 1 : least));
    assert_true(i < 4 || bppsa_scan_plan_config(plan)->method.algorithm == BPPSA_SCAN_LINEAR);
    assert_int_equal(bppsa_scan_plan_config(plan)->memory_limit, config.memory_limit);
    if (i >= 4) {
      assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
      bppsa_scan_executor_destroy(executor);
      assert_true(walk_allocations(create_once, &(creation){&c, device}) > 20);
    }
    bppsa_scan_plan_destroy(plan);
    bppsa_memory_free(device, taken);
    if (i == 7) {
      assert_int_equal(bppsa_memory_alloc(device, available - least + 1, &taken), BPPSA_OK);
      assert_int_equal(create_once(&(creation){&c, device}), BPPSA_ERR_MEMORY);
      assert_message("bytes of GPU memory for held products and patterns");
      bppsa_memory_free(device, taken);
    }
    free_chain(&c);
  }
  bppsa_device_destroy(device);
}

/* Mat-vecs alone: rows from none to many entries, shared and separate values, more samples than a block computes. */
static void test_apply(void **state) {
  (void)state;
  enum { ROWS = 37, COLS = 300, BATCH = 6 };
  bppsa_device *device = test_device(2);
  for (int which = 0; which < 12; ++which) {
    const bppsa_dtype dtype = which % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    const int64_t batch = which < 4 ? 1 : BATCH, most = which % 3 == 0 ? 4 : which % 3 == 1 ? 40 : COLS;
    const bool shared = which % 4 < 2;
    bppsa_csr csr;
    assert_int_equal(bppsa_csr_create(ROWS, COLS, ROWS * most, &csr), BPPSA_OK);
    csr.nnz = 0;
    for (int64_t r = 0; r < ROWS; ++r) {
      const int64_t count = below(4) == 0 ? 0 : below(most + 1), first = below(COLS - count + 1);
      for (int64_t i = 0; i < count; ++i) {
        csr.col[csr.nnz++] = (int32_t)(first + i);
      }
      csr.row_ptr[r + 1] = csr.nnz;
    }
    double *v = uniform(40, csr.nnz * batch + 1, 1), *x = uniform(41, COLS * batch, 1), *y = uniform(42, ROWS * batch, 1),
           *sizes = uniform(43, ROWS * batch, 1);
    void *values = rounded(dtype, v, csr.nnz * batch), *in = rounded(dtype, x, COLS * batch),
         *out = rounded(dtype, y, ROWS * batch);
    for (int64_t i = 0; i < ROWS * batch; ++i) {
      const int64_t r = i % ROWS, b = i / ROWS;
      y[i] = sizes[i] = 0;
      for (int64_t p = csr.row_ptr[r]; p < csr.row_ptr[r + 1]; ++p) {
        y[i] += v[(shared ? 0 : b * csr.nnz) + p] * x[b * COLS + csr.col[p]];
        sizes[i] += fabs(v[(shared ? 0 : b * csr.nnz) + p] * x[b * COLS + csr.col[p]]);
      }
    }
    bppsa_apply *apply = NULL;
    const int64_t size = (int64_t)bppsa_dtype_size(dtype);
    void *moved[3] = {on_device(device, values, csr.nnz * batch * size), on_device(device, in, COLS * batch * size),
                      on_device(device, out, ROWS * batch * size)};
    assert_int_equal(bppsa_apply_create(&csr, dtype, device, &apply), BPPSA_OK);
    assert_int_equal(bppsa_apply_execute(apply, batch, (bppsa_csr_values){moved[0], shared ? 0 : csr.nnz}, moved[1], moved[2]),
                     BPPSA_OK);
    assert_int_equal(bppsa_memory_get(device, out, moved[2], ROWS * batch * size), BPPSA_OK);
    assert_true(residual_of_sum(dtype, out, y, sizes, ROWS * batch, 1) < 30);
    for (int i = 0; i < 3; ++i) {
      bppsa_memory_free(device, moved[i]);
    }
    bppsa_apply_destroy(apply);
    void *const blocks[] = {v, x, y, sizes, values, in, out};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; ++i) {
      bppsa_free(blocks[i]);
    }
    bppsa_csr_free(&csr);
  }
  bppsa_apply *apply = NULL;
  assert_int_equal(bppsa_apply_create(&(bppsa_csr){.rows = 1, .cols = 1}, BPPSA_I64, device, &apply), BPPSA_ERR_UNSUPPORTED);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_chains),      cmocka_unit_test(test_vgg11),    cmocka_unit_test(test_identity),
      cmocka_unit_test(test_equal_plans), cmocka_unit_test(test_requests), cmocka_unit_test(test_memory),
      cmocka_unit_test(test_limit),       cmocka_unit_test(test_room),     cmocka_unit_test(test_apply),
      cmocka_unit_test(test_repeats),     cmocka_unit_test(test_predicted)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
