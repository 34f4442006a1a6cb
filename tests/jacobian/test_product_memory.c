/* On the device that CTest names: the memory that plans of products hold, limits on it, and what happens where it runs out. */
#include <string.h>

#include "core/compute/memory.h"
#include "jacobian/jacobian.h"
#include "jacobian/product.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

typedef struct {
  const bppsa_csr *a, *b;
  bppsa_product_kind kind;
  const bppsa_device *device;
} creation;

static bppsa_status create_once(void *argument) {
  const creation *c = argument;
  const bppsa_product_config config = {.kind = c->kind, .dtype = BPPSA_F32};
  bppsa_product *p = NULL;
  const bppsa_status status = bppsa_product_create(c->a, c->b, &config, c->device, &p);
  bppsa_product_destroy(p);
  return status;
}

/* Factors for every kind: slots and convolution-structured, bands of a linear operator, a ReLU's scaling, an identity, and one
 * whose structure is of no use, because the other has none. */
enum { KIND_CASES = 8 };

typedef struct {
  bppsa_jacobian *j[4];
  bppsa_csr plain, full, nothing; /* patterns without structure, borrowed */
  creation cases[KIND_CASES];
} kind_cases;

static void make_kind_cases(kind_cases *k, const bppsa_device *device) {
  const bppsa_op conv = {.kind = BPPSA_OPERATOR_CONV2D,
                         .in = {2, 12, 12},
                         .out_channels = 2,
                         .kernel = {2, 2},
                         .stride = {1, 1},
                         .dilation = {1, 1},
                         .padding = {1, 0, 1, 0},
                         .groups = 1};
  bppsa_op linear = bppsa_op_default(BPPSA_OPERATOR_LINEAR), relu = bppsa_op_default(BPPSA_OPERATOR_RELU), flat = relu;
  memcpy(relu.in, conv.in, sizeof relu.in);
  flat.kind = BPPSA_OPERATOR_FLATTEN;
  linear.in[0] = linear.out_channels = flat.in[0] = 70;
  const bppsa_op ops[4] = {conv, linear, relu, flat};
  const bppsa_csr *csr[4];
  for (int i = 0; i < 4; ++i) {
    assert_int_equal(bppsa_jacobian_create(&ops[i], NULL, false, device, &k->j[i]), BPPSA_OK);
    csr[i] = bppsa_jacobian_pattern(k->j[i]);
  }
  k->plain = *csr[0];
  k->full = *csr[1];
  k->plain.blocks = k->full.blocks = NULL;
  static int64_t no_rows[4];
  static int32_t no_columns[1];
  k->nothing = (bppsa_csr){.rows = 3, .cols = 3, .row_ptr = no_rows, .col = no_columns};
  const creation cases[KIND_CASES] = {
      {csr[0], csr[0], BPPSA_PRODUCT_SLOTS, device},     {csr[0], csr[0], BPPSA_PRODUCT_CONV, device},
      {&k->full, &k->full, BPPSA_PRODUCT_DENSE, device}, {csr[0], csr[2], BPPSA_PRODUCT_DIAGONAL, device},
      {csr[2], csr[0], BPPSA_PRODUCT_DIAGONAL, device},  {csr[3], csr[1], BPPSA_PRODUCT_IDENTITY, device},
      {&k->plain, csr[0], BPPSA_PRODUCT_AUTO, device},   {&k->nothing, &k->nothing, BPPSA_PRODUCT_AUTO, device}};
  memcpy(k->cases, cases, sizeof cases);
}

static void free_kind_cases(kind_cases *k) {
  for (int i = 0; i < 4; ++i) {
    bppsa_jacobian_destroy(k->j[i]);
  }
}

/* Bytes of an emulated GPU's memory that are held; 0 of other devices, where nobody can tell exactly. */
static int64_t gpu_bytes(const bppsa_device *device) {
  int64_t available = 0;
  if (is_emulated(device)) {
    assert_int_equal(bppsa_memory_available(device, &available), BPPSA_OK);
  }
  return -available;
}

/* The limit is what a plan holds, to a few blocks of bookkeeping: so much is enough, a byte less is refused, and nothing is left
 * of it. */
static void check_limit(int32_t threads) {
  bppsa_device *device = test_device(threads);
  kind_cases k;
  make_kind_cases(&k, device);
  for (int i = 0; i < KIND_CASES; ++i) {
    const creation *c = &k.cases[i];
    bppsa_product_config config = {.kind = c->kind, .dtype = BPPSA_F64};
    bppsa_product *p = NULL;
    const int64_t before = bppsa_alloc_live_bytes(), on_gpu = gpu_bytes(device);
    assert_int_equal(bppsa_product_create(c->a, c->b, &config, device, &p), BPPSA_OK);
    const bppsa_product_info *info = bppsa_product_get_info(p);
    const int64_t held = bppsa_alloc_live_bytes() - before + gpu_bytes(device) - on_gpu,
                  bytes = info->plan_bytes + info->workspace_bytes;
    assert_in_range(held, 1, bytes + 16384);
    if (bppsa_device_get_kind(device) == BPPSA_CPU || is_emulated(device)) {        /* nobody counts a real GPU's bytes */
      assert_true(info->kind != BPPSA_PRODUCT_SLOTS || held > 10 * (bytes - held)); /* and no more than it says */
    }
    if (bppsa_device_get_kind(device) == BPPSA_CPU) {
      assert_int_equal(info->executed_flops, info->pair_flops);
    } else {
      assert_true(info->executed_flops >= info->pair_flops); /* tiles have edges */
    }
    config.kind = info->kind;
    bppsa_product_destroy(p);
    p = NULL;
    config.memory_limit = bytes;
    assert_int_equal(bppsa_product_create(c->a, c->b, &config, device, &p), BPPSA_OK);
    bppsa_product_destroy(p);
    p = NULL;
    config.memory_limit = bytes - 1;
    assert_int_equal(bppsa_product_create(c->a, c->b, &config, device, &p), BPPSA_ERR_ARGUMENT);
    assert_null(p);
    assert_message("the memory limit is");
    assert_int_equal(bppsa_alloc_live_bytes(), before);
    assert_int_equal(gpu_bytes(device), on_gpu);
    config.memory_limit = 1; /* before anything but the plan's own struct */
    bppsa_alloc_fail_at(c->a->blocks != NULL && c->b->blocks != NULL ? 100 : 2);
    assert_int_equal(bppsa_product_create(c->a, c->b, &config, device, &p), BPPSA_ERR_ARGUMENT);
    bppsa_alloc_fail_at(0);
  }
  free_kind_cases(&k);
  bppsa_device_destroy(device);
}

static void test_limit(void **state) {
  (void)state;
  check_limit(2);
  check_limit(256); /* on a CPU the scratch memory of 256 threads exceeds the rest of the plan */
}

/* A GPU without room: the bytes are said, and nothing is left behind. */
static void test_gpu_memory(void **state) {
  (void)state;
  bppsa_device *device = emulated_device(2); /* others may hold memory of a real one */
  kind_cases k;
  make_kind_cases(&k, device);
  void *most = NULL;
  int64_t available = 0;
  assert_int_equal(bppsa_memory_available(device, &available), BPPSA_OK);
  assert_int_equal(bppsa_memory_alloc(device, available - 4096, &most), BPPSA_OK);
  for (int i = 0; i < KIND_CASES; ++i) {
    const creation *c = &k.cases[i];
    const int64_t before = bppsa_alloc_live_bytes(), on_gpu = gpu_bytes(device);
    const bppsa_status status = create_once((void *)c);
    if (c->kind == BPPSA_PRODUCT_IDENTITY || c->kind == BPPSA_PRODUCT_DENSE || c->a->nnz == 0) {
      assert_int_equal(status, BPPSA_OK); /* nothing to hold, or one band */
    } else {
      assert_int_equal(status, BPPSA_ERR_MEMORY);
      assert_message("bytes of GPU memory are not free");
      assert_message(", kind ");
    }
    assert_int_equal(bppsa_alloc_live_bytes(), before);
    assert_int_equal(gpu_bytes(device), on_gpu);
  }
  bppsa_memory_free(device, most);
  free_kind_cases(&k);
  bppsa_device_destroy(device);
}

/* Slots have 16 bits where the widest row of the product has at most 65536 entries, and 32 bits from 65537 on. */
static void test_slot_size(void **state) {
  (void)state;
  bppsa_device *device = emulated_device(2);
  int64_t bytes[4];
  for (int64_t width = 65535; width <= 65538; ++width) {
    const int64_t before = gpu_bytes(device);
    const bppsa_product_config config = {.kind = BPPSA_PRODUCT_SLOTS, .dtype = BPPSA_F32};
    bppsa_csr a, b;
    bppsa_product *p = NULL;
    assert_int_equal(bppsa_csr_create(1, 2, 2, &a), BPPSA_OK);
    assert_int_equal(bppsa_csr_create(2, width, 2 * width, &b), BPPSA_OK);
    a.row_ptr[1] = 2;
    a.col[0] = 0;
    a.col[1] = 1;
    for (int64_t i = 0; i < b.nnz; ++i) { /* two full rows: two pairs for each entry of the product */
      b.col[i] = (int32_t)(i % width);
      b.row_ptr[i / width + 1] = i + 1;
    }
    assert_int_equal(bppsa_product_create(&a, &b, &config, device, &p), BPPSA_OK);
    bytes[width - 65535] = gpu_bytes(device) - before;
    bppsa_product_destroy(p);
    bppsa_csr_free(&a);
    bppsa_csr_free(&b);
  }
  const int64_t pairs = 2 * 65536, little = pairs / 4;
  assert_true(bytes[0] >= 2 * pairs - 4 && bytes[1] >= 2 * pairs && bytes[2] >= 4 * pairs && bytes[3] >= 4 * pairs);
  assert_true(bytes[1] - bytes[0] < little && bytes[2] - bytes[1] > 2 * pairs - little && bytes[3] - bytes[2] < little);
  bppsa_device_destroy(device);
}

/* The values of factors that are too large for the room where a GPU packs them are packed sample by sample: there is room for
 * one. */
static void test_large_factors(void **state) {
  (void)state;
  enum { CHANNELS = 64, SIDE = 16 };
  bppsa_device *device = emulated_device(2);
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_CONV2D);
  bppsa_jacobian *j = NULL;
  bppsa_product *p = NULL;
  memcpy(op.in, (int64_t[]){CHANNELS, SIDE, SIDE}, sizeof op.in);
  op.out_channels = CHANNELS;
  for (int axis = 0; axis < 2; ++axis) {
    op.kernel[axis] = 3;
    op.padding[2 * axis] = op.padding[2 * axis + 1] = 1;
  }
  assert_int_equal(bppsa_jacobian_create(&op, NULL, true, device, &j), BPPSA_OK);
  const bppsa_csr *csr = bppsa_jacobian_pattern(j);
  const bppsa_product_config config = {.kind = BPPSA_PRODUCT_CONV, .dtype = BPPSA_F32};
  const int64_t packed = 2 * csr->nnz * (int64_t)sizeof(float);
  assert_true(packed > (int64_t)32 << 20);
  assert_int_equal(bppsa_product_create(csr, csr, &config, device, &p), BPPSA_OK);
  assert_in_range(bppsa_product_get_info(p)->workspace_bytes, packed, packed + packed / 4);
  bppsa_product_destroy(p);
  bppsa_jacobian_destroy(j);
  bppsa_device_destroy(device);
}

static void test_memory(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  kind_cases k;
  make_kind_cases(&k, device);
  for (int i = 0; i < KIND_CASES; ++i) {
    assert_true(walk_allocations(create_once, &k.cases[i]) > 3);
  }
  free_kind_cases(&k);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_limit), cmocka_unit_test(test_gpu_memory),
                                     cmocka_unit_test(test_slot_size), cmocka_unit_test(test_large_factors),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
