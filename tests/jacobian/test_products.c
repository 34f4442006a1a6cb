/* On the device that CTest names: products against SciPy's, against a dense float64 reference over kinds, dtypes, batches and
 * structures, and a GPU's against the CPU's. test_product_memory.c measures the memory that plans hold. (The file is long because
 * the patterns of every kind of product meet the same reference.) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/philox.h"
#include "core/compute/memory.h"
#include "jacobian/jacobian.h"
#include "jacobian/product.h"
#include "tests/core/helpers.h"
#include "tests/jacobian/patterns.h"
#include "tests/simt/watch.h"
#include "tests/support/length.h"
#include "tests/support/support.h"

enum { PAIRS = 1400, FEW_PAIRS = 200 };

static uint64_t counter;

static int64_t below(int64_t bound) {
  return (int64_t)bppsa_random_below(5, 99, counter++, (uint64_t)bound);
}

/* A row's columns: each with probability density; increasing. */
static bppsa_csr random_pattern(int64_t rows, int64_t cols, double density, bool full_rows) {
  const int64_t room = rows * cols < 4000000 ? rows * cols : 4000000;
  int32_t *kept = bppsa_calloc(room + 1, sizeof *kept);
  int64_t *ptr = bppsa_calloc(rows + 1, sizeof *ptr), nnz = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const double chance = full_rows && below(5) == 0 ? 1 : below(4) == 0 ? 0 : density;
    const double skip = chance > 0 && chance < 1 ? log(1 - chance) : 0;
    for (int64_t c = 0; chance > 0 && c < cols && nnz < room; ++c) {
      const double u = bppsa_random_double(6, 99, counter++);
      c += skip < 0 ? (int64_t)fmin(log(1 - u) / skip, (double)cols) : 0; /* geometric: hyper-sparse rows are cheap */
      if (c < cols) {
        kept[nnz++] = (int32_t)c;
      }
    }
    ptr[r + 1] = nnz;
  }
  bppsa_csr csr;
  assert_int_equal(bppsa_csr_create(rows, cols, nnz, &csr), BPPSA_OK);
  memcpy(csr.row_ptr, ptr, (size_t)(rows + 1) * sizeof *ptr);
  memcpy(csr.col, kept, (size_t)nnz * sizeof *kept);
  bppsa_free(kept);
  bppsa_free(ptr);
  assert_int_equal(bppsa_csr_check(&csr), BPPSA_OK);
  return csr;
}

/* A pass over values in host memory, which allocates nothing. c: host memory too. */
static void execute(bppsa_product *p, const bppsa_device *device, int64_t batch, bppsa_csr_values a, int64_t a_count,
                    bppsa_csr_values b, int64_t b_count, void *c, int64_t c_count, bppsa_dtype dtype) {
  const int64_t size = (int64_t)bppsa_dtype_size(dtype);
  void *left = on_device(device, a.data, a_count * size), *right = on_device(device, b.data, b_count * size),
       *out = on_device(device, c, c_count * size);
  bppsa_alloc_fail_at(1);
  assert_int_equal(bppsa_product_execute(p, batch, (bppsa_csr_values){left, a.stride}, (bppsa_csr_values){right, b.stride}, out),
                   BPPSA_OK);
  bppsa_alloc_fail_at(0);
  assert_int_equal(bppsa_memory_get(device, c, out, c_count * size), BPPSA_OK);
  bppsa_memory_free(device, left);
  bppsa_memory_free(device, right);
  bppsa_memory_free(device, out);
}

/* Numbers in ±1, with zeros, and with NaN and infinities where `odd`. */
static double *random_values(int64_t count, bool odd) {
  static const double special[] = {NAN, INFINITY, -INFINITY, 1e150, 0};
  double *v = uniform(1000 + counter++, count, 1);
  for (int64_t i = 0; i < count; ++i) {
    v[i] = below(10) == 0 ? 0 : odd && below(12) == 0 ? special[below(5)] : v[i];
  }
  return v;
}

static void put_matrix(FILE *file, const bppsa_csr *csr, const double *values) {
  assert_int_equal(fwrite(csr->row_ptr, sizeof *csr->row_ptr, (size_t)csr->rows + 1, file), csr->rows + 1);
  assert_int_equal(fwrite(csr->col, sizeof *csr->col, (size_t)csr->nnz, file), csr->nnz);
  assert_int_equal(fwrite(values, sizeof *values, (size_t)csr->nnz, file), csr->nnz);
}

static void put_pair(FILE *file, bppsa_csr *a, bppsa_csr *b, bool odd, bppsa_product_kind kind, const bppsa_device *device,
                     int64_t *kinds) {
  bppsa_product_config config = bppsa_product_config_default();
  config.dtype = BPPSA_F64;
  config.kind = kind;
  bppsa_product *p = NULL;
  assert_int_equal(bppsa_product_create(a, b, &config, device, &p), BPPSA_OK);
  const bppsa_csr *c = bppsa_product_pattern(p);
  assert_int_equal(bppsa_csr_check(c), BPPSA_OK);
  kinds[bppsa_product_get_info(p)->kind] += 1;
  double *x = random_values(a->nnz, odd), *y = random_values(b->nnz, odd), *z = uniform(1, c->nnz, 1);
  execute(p, device, 1, (bppsa_csr_values){x, 0}, a->nnz, (bppsa_csr_values){y, 0}, b->nnz, z, c->nnz, BPPSA_F64);
  const int64_t head[6] = {a->rows, a->cols, b->cols, a->nnz, b->nnz, c->nnz};
  assert_int_equal(fwrite(head, sizeof *head, 6, file), 6);
  put_matrix(file, a, x);
  put_matrix(file, b, y);
  put_matrix(file, c, z);
  bppsa_free(x);
  bppsa_free(y);
  bppsa_free(z);
  bppsa_product_destroy(p);
}

/* Block diagonal: `blocks` full blocks of the same shape. */
static bppsa_csr block_pattern(int64_t blocks, int64_t rows, int64_t cols) {
  bppsa_csr csr;
  assert_int_equal(bppsa_csr_create(blocks * rows, blocks * cols, blocks * rows * cols, &csr), BPPSA_OK);
  for (int64_t r = 0; r < csr.rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      csr.col[r * cols + c] = (int32_t)(r / rows * cols + c);
    }
    csr.row_ptr[r + 1] = (r + 1) * cols;
  }
  return csr;
}

/* The i-th pair: shapes from 0 up, patterns from empty to full, hyper-sparse ones with many columns, diagonals. */
static void make_pair(int64_t i, bppsa_csr *a, bppsa_csr *b) {
  static const double densities[] = {0, 0.02, 0.1, 0.4, 1};
  const int64_t m = below(40), k = below(40), n = below(40);
  const double left = densities[below(5)], right = densities[below(5)];
  if (i % 10 == 9) { /* hyper-sparse; also more than 2^16 entries in a row, and more columns than are marked */
    const int64_t wide = i % 700 == 99 ? (int64_t)1 << 25 : 100000;
    *a = random_pattern(500, 3000, 0.001, false);
    *b = random_pattern(3000, wide, i % 100 == 49 ? 0.02 : 20 / (double)wide, false);
  } else if (i % 10 == 8) {
    *a = i % 20 == 8 ? diagonal_pattern(k) : random_pattern(m, k, left, true);
    *b = i % 20 == 8 ? random_pattern(k, n, right, true) : diagonal_pattern(k);
  } else if (i % 10 == 7) {
    const int64_t blocks = 1 + below(3), middle = 2 + below(20);
    *a = block_pattern(blocks, 1 + m, middle);
    *b = block_pattern(blocks, middle, 1 + n);
  } else {
    *a = random_pattern(m, k, left, below(2) == 0);
    *b = random_pattern(k, n, right, below(2) == 0);
  }
}

static const char *find_python(void) {
  static const char *const names[] = {"/usr/bin/python3", "python3"};
  for (size_t i = 0; i < 2; ++i) {
    char command[128];
    snprintf(command, sizeof command, "%s -c 'import scipy.sparse' >/dev/null 2>&1", names[i]);
    if (system(command) == 0) {
      return names[i];
    }
  }
  return NULL;
}

static void test_scipy(void **state) {
  (void)state;
  const char *python = find_python(), *script = BPPSA_TEST_DATA_DIR "/jacobian/products_scipy.py";
  if (python == NULL || access(script, R_OK) != 0) { /* scripts may be missing where only the program is installed */
    print_message("no SciPy (package python3-scipy), or no %s\n", script);
    skip();
  }
  bppsa_device *device = test_device(2);
  const int64_t pairs = is_emulated(device) || !at_full_length() ? FEW_PAIRS : PAIRS;
  const char *path = "products.bin"; /* in the directory where the test runs */
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  int64_t kinds[BPPSA_PRODUCT_KINDS] = {0};
  for (int64_t i = 0; i < pairs; ++i) {
    bppsa_csr a, b;
    make_pair(i, &a, &b);
    put_pair(file, &a, &b, i % 3 == 0, i % 4 < 3 ? BPPSA_PRODUCT_AUTO : BPPSA_PRODUCT_SLOTS, device, kinds);
    bppsa_csr_free(&a);
    bppsa_csr_free(&b);
  }
  assert_int_equal(fclose(file), 0);
  assert_true(kinds[BPPSA_PRODUCT_SLOTS] > pairs / 3 && kinds[BPPSA_PRODUCT_DIAGONAL] > pairs / 28 &&
              kinds[BPPSA_PRODUCT_DENSE] > pairs / 140);
  char command[512], answer[200] = "";
  snprintf(command, sizeof command, "%s %s %s", python, script, path);
  FILE *out = popen(command, "r");
  assert_non_null(out);
  assert_non_null(fgets(answer, sizeof answer, out));
  const int code = pclose(out);
  if (code != 0 || atoi(answer) != pairs) {
    fail_msg("SciPy says %d: %s", code, answer);
  }
  assert_int_equal(remove(path), 0);
  bppsa_device_destroy(device);
}

/* ---- structures, batches, dtypes ---- */

/* One factor: a pattern with its values of every sample. */
typedef struct {
  bppsa_jacobian *j;
  const bppsa_csr *csr;
  bool shared;
  double *wide;
  void *typed;
} factor;

static factor make_factor(const bppsa_op *op, int64_t batch, bppsa_dtype dtype, const bppsa_device *device) {
  factor f = {0};
  assert_int_equal(bppsa_jacobian_create(op, NULL, false, device, &f.j), BPPSA_OK);
  f.csr = bppsa_jacobian_pattern(f.j);
  f.shared = bppsa_jacobian_shared(f.j);
  f.wide = uniform(7000 + counter++, f.csr->nnz * (f.shared ? 1 : batch), 1);
  f.typed = rounded(dtype, f.wide, f.csr->nnz * (f.shared ? 1 : batch));
  return f;
}

static void free_factor(factor *f) {
  bppsa_jacobian_destroy(f->j);
  bppsa_free(f->wide);
  bppsa_free(f->typed);
}

/* |C|: also sums the magnitudes of the terms. */
static void reference(const bppsa_csr *a, const double *x, const bppsa_csr *b, const double *y, double *c, double *most) {
  memset(c, 0, (size_t)(a->rows * b->cols) * sizeof *c);
  memset(most, 0, (size_t)(a->rows * b->cols) * sizeof *most);
  for (int64_t r = 0; r < a->rows; ++r) {
    for (int64_t p = a->row_ptr[r]; p < a->row_ptr[r + 1]; ++p) {
      for (int64_t q = b->row_ptr[a->col[p]]; q < b->row_ptr[a->col[p] + 1]; ++q) {
        c[r * b->cols + b->col[q]] += x[p] * y[q];
        most[r * b->cols + b->col[q]] += fabs(x[p] * y[q]);
      }
    }
  }
}

static void check_values(const bppsa_csr *c, bppsa_dtype dtype, const char *values, int64_t sample, const double *dense,
                         const double *most) {
  const double eps = dtype == BPPSA_F32 ? 1.2e-7 : 2.3e-16;
  for (int64_t r = 0; r < c->rows; ++r) {
    for (int64_t p = c->row_ptr[r]; p < c->row_ptr[r + 1]; ++p) {
      const int64_t at = sample * c->nnz + p, d = r * c->cols + c->col[p];
      const double got =
          dtype == BPPSA_F32 ? (double)((const float *)(const void *)values)[at] : ((const double *)(const void *)values)[at];
      assert_true(fabs(got - dense[d]) <= 30 * eps * most[d] + 1e-37);
    }
  }
}

/* Computes c on the CPU by the same kind; a GPU must have the same bits if its sums have the same order. */
static void check_processor(const factor *a, const factor *b, int64_t batch, const bppsa_product_config *config, const void *c,
                            int64_t bytes) {
  bppsa_device *device = cpu_device(2);
  bppsa_product *p = NULL;
  char *z = bppsa_alloc((size_t)bytes + 8);
  assert_int_equal(bppsa_product_create(a->csr, b->csr, config, device, &p), BPPSA_OK);
  assert_int_equal(bppsa_product_execute(p, batch, (bppsa_csr_values){a->typed, a->shared ? 0 : a->csr->nnz},
                                         (bppsa_csr_values){b->typed, b->shared ? 0 : b->csr->nnz}, z),
                   BPPSA_OK);
  assert_memory_equal(c, z, (size_t)bytes);
  bppsa_free(z);
  bppsa_product_destroy(p);
  bppsa_device_destroy(device);
}

static int64_t computed[BPPSA_PRODUCT_KINDS]; /* products of each kind whose values were compared */

static void check_product(const factor *a, const factor *b, int64_t batch, bppsa_dtype dtype, bppsa_product_kind kind) {
  bppsa_product_config config = {.kind = kind, .dtype = dtype};
  const bool shared = a->shared && b->shared;
  const int64_t samples = shared ? 1 : batch;
  char *first = NULL;
  for (int threads = 1; threads <= 3; threads += 2) { /* the bits are the same */
    bppsa_device *device = test_device(threads);
    bppsa_product *p = NULL;
    assert_int_equal(bppsa_product_create(a->csr, b->csr, &config, device, &p), BPPSA_OK);
    const bppsa_csr *c = bppsa_product_pattern(p);
    assert_int_equal(bppsa_csr_check(c), BPPSA_OK);
    const size_t bytes = (size_t)(c->nnz * samples) * bppsa_dtype_size(dtype);
    char *z = bppsa_alloc(bytes + 8);
    for (int pass = 0; pass < (is_emulated(device) ? 1 : 2); ++pass) {
      memset(z, 0x7F, bytes);
      execute(p, device, batch, (bppsa_csr_values){a->typed, a->shared ? 0 : a->csr->nnz}, a->csr->nnz * (a->shared ? 1 : batch),
              (bppsa_csr_values){b->typed, b->shared ? 0 : b->csr->nnz}, b->csr->nnz * (b->shared ? 1 : batch), z,
              c->nnz * samples, dtype);
    }
    const bppsa_product_kind used = bppsa_product_get_info(p)->kind;
    computed[used] += 1;
    if (bppsa_device_get_kind(device) == BPPSA_CUDA && threads == 1 &&
        (used == BPPSA_PRODUCT_IDENTITY || used == BPPSA_PRODUCT_DIAGONAL || used == BPPSA_PRODUCT_SLOTS)) {
      const bppsa_product_config same = {.kind = used, .dtype = dtype};
      check_processor(a, b, batch, &same, z, (int64_t)bytes);
    }
    double *dense = bppsa_calloc(c->rows * c->cols, sizeof *dense), *most = bppsa_calloc(c->rows * c->cols, sizeof *most);
    assert_true(dense != NULL && most != NULL);
    for (int64_t s = 0; s < samples; ++s) {
      reference(a->csr, a->wide + (a->shared ? 0 : s * a->csr->nnz), b->csr, b->wide + (b->shared ? 0 : s * b->csr->nnz), dense,
                most);
      check_values(c, dtype, z, s, dense, most);
    }
    bppsa_free(dense);
    bppsa_free(most);
    if (threads == 1) {
      first = z;
    } else {
      assert_memory_equal(first, z, bytes);
      bppsa_free(z);
    }
    bppsa_product_destroy(p);
    bppsa_device_destroy(device);
  }
  bppsa_free(first);
}

static bppsa_op window_op(bppsa_operator kind, int64_t channels, int64_t out_channels, int64_t h, int64_t w) {
  bppsa_op op = bppsa_op_default(kind);
  memcpy(op.in, (int64_t[]){channels, h, w}, sizeof op.in);
  op.out_channels = out_channels;
  const bool conv = kind == BPPSA_OPERATOR_CONV2D;
  for (int i = 0; i < 2; ++i) {
    op.kernel[i] = conv ? 1 + below(3) : 2;
    op.stride[i] = conv ? 1 + (below(4) == 0) : 1 + below(2);
    op.dilation[i] = conv ? 1 + (below(4) == 0) : 1;
    for (int end = 0; end < 2; ++end) {
      op.padding[2 * i + end] = conv ? below(3) : 0;
    }
  }
  return op;
}

/* A random operator that takes the shape `in`. */
static bppsa_op next_op(const int64_t in[3]) {
  static const bppsa_operator kinds[] = {BPPSA_OPERATOR_CONV2D,    BPPSA_OPERATOR_CONV2D, BPPSA_OPERATOR_RELU,
                                         BPPSA_OPERATOR_MAXPOOL2D, BPPSA_OPERATOR_LINEAR, BPPSA_OPERATOR_AVGPOOL2D};
  int64_t out[3];
  for (;;) {
    bppsa_op op = window_op(kinds[below(6)], in[0], in[0] * (1 + below(3)), in[1], in[2]);
    if (op.kind == BPPSA_OPERATOR_CONV2D && below(2) == 0) { /* groups that divide the channels */
      op.groups = 1 + below(in[0]);
    }
    op.out_channels = op.groups > 1 ? op.groups * (1 + below(2)) : op.out_channels;
    if (bppsa_op_shape(&op, out) == BPPSA_OK) {
      return op;
    }
  }
}

static void test_structures(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  const bool emulated = is_emulated(device);
  const int cases = emulated ? 40 : at_full_length() ? 300 : 100;
  int64_t conv = 0;
  for (int i = 0; i < cases; ++i) {
    const int64_t in[3] = {1 + below(12), 1 + below(emulated ? 4 : 6), 1 + below(emulated ? 4 : 6)},
                  batch = 1 + below(i % 4 == 0 ? 6 : 3);
    const bppsa_dtype dtype = i % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    const bppsa_op first = next_op(in);
    int64_t mid[3];
    assert_int_equal(bppsa_op_shape(&first, mid), BPPSA_OK);
    const bppsa_op second = next_op(mid);
    factor a = make_factor(&first, batch, dtype, device), b = make_factor(&second, batch, dtype, device);
    check_product(&a, &b, batch, dtype, BPPSA_PRODUCT_AUTO);
    check_product(&a, &b, batch, dtype, BPPSA_PRODUCT_SLOTS);
    bppsa_product *p = NULL, *symbolic = NULL, *slots = NULL;
    bppsa_product_config config = {.kind = BPPSA_PRODUCT_CONV, .dtype = dtype};
    if (bppsa_product_create(a.csr, b.csr, &config, device, &p) == BPPSA_OK) { /* the structures fit */
      ++conv;
      check_product(&a, &b, batch, dtype, BPPSA_PRODUCT_CONV);
      config = (bppsa_product_config){.kind = BPPSA_PRODUCT_AUTO, .dtype = dtype, .symbolic = true};
      assert_int_equal(bppsa_product_create(a.csr, b.csr, &config, device, &symbolic), BPPSA_OK);
      bppsa_csr plain_a = *a.csr, plain_b = *b.csr;
      plain_a.blocks = plain_b.blocks = NULL; /* the same without knowing the structure */
      config = (bppsa_product_config){.kind = BPPSA_PRODUCT_SLOTS, .dtype = dtype};
      assert_int_equal(bppsa_product_create(&plain_a, &plain_b, &config, device, &slots), BPPSA_OK);
      assert_true(bppsa_csr_same(bppsa_product_pattern(slots), bppsa_product_pattern(p)));
      assert_int_equal(bppsa_product_get_info(slots)->pair_flops, bppsa_product_get_info(p)->pair_flops);
      assert_int_equal(bppsa_product_get_info(slots)->pair_flops, bppsa_product_get_info(symbolic)->pair_flops);
      assert_int_equal(bppsa_product_get_info(slots)->nnz, bppsa_product_get_info(symbolic)->nnz);
      assert_null(bppsa_product_pattern(symbolic)->row_ptr);
    }
    bppsa_product_destroy(p);
    bppsa_product_destroy(symbolic);
    bppsa_product_destroy(slots);
    free_factor(&a);
    free_factor(&b);
  }
  assert_true(conv > cases * 2 / 3);
  bppsa_device_destroy(device);
}

/* Channels exceed a task's rows and a kernel's tile. */
static void test_wide(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  const bool emulated = is_emulated(device);
  bppsa_op first = window_op(BPPSA_OPERATOR_CONV2D, 40, 60, emulated ? 2 : 5, emulated ? 3 : 4);
  for (int i = 0; i < 2; ++i) {
    first.kernel[i] = 3;
    first.stride[i] = first.dilation[i] = 1;
    first.padding[2 * i] = first.padding[2 * i + 1] = 1;
  }
  bppsa_op second = first;
  second.in[0] = 60;
  second.out_channels = 70;
  factor a = make_factor(&first, 2, BPPSA_F32, device), b = make_factor(&second, 2, BPPSA_F32, device);
  check_product(&a, &b, 2, BPPSA_F32, BPPSA_PRODUCT_CONV);
  a.shared = false; /* other values for every sample */
  bppsa_free(a.wide);
  bppsa_free(a.typed);
  a.wide = uniform(1, 2 * a.csr->nnz, 1);
  a.typed = rounded(BPPSA_F32, a.wide, 2 * a.csr->nnz);
  check_product(&a, &b, 2, BPPSA_F32, BPPSA_PRODUCT_CONV);
  free_factor(&a);
  free_factor(&b);
  bppsa_device_destroy(device);
}

/* Groups of two convolutions: the product keeps its structure where one number divides the other. */
static void test_groups(void **state) {
  (void)state;
  static const struct {
    int64_t groups[2];
    bool fits;
  } cases[] = {{{2, 4}, true}, {{4, 2}, true}, {{3, 3}, true}, {{1, 6}, true}, {{6, 4}, false}, {{4, 6}, false}, {{2, 3}, false}};
  bppsa_device *device = cpu_device(1);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    factor f[2];
    for (int k = 0; k < 2; ++k) {
      bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_CONV2D);
      memcpy(op.in, (int64_t[]){12, 3, 2}, sizeof op.in);
      op.out_channels = 12;
      op.groups = cases[i].groups[k];
      op.kernel[0] = 3;
      op.padding[0] = op.padding[1] = 1;
      f[k] = make_factor(&op, 2, BPPSA_F64, device);
    }
    if (cases[i].fits) {
      check_product(&f[0], &f[1], 2, BPPSA_F64, BPPSA_PRODUCT_CONV);
    } else {
      const bppsa_product_config config = {.kind = BPPSA_PRODUCT_CONV, .dtype = BPPSA_F64};
      bppsa_product *product = NULL;
      assert_int_equal(bppsa_product_create(f[0].csr, f[1].csr, &config, device, &product), BPPSA_ERR_UNSUPPORTED);
      check_product(&f[0], &f[1], 2, BPPSA_F64, BPPSA_PRODUCT_SLOTS);
    }
    free_factor(&f[0]);
    free_factor(&f[1]);
  }
  bppsa_device_destroy(device);
}

/* A factor may be known by its blocks alone, without row offsets and columns. Its product has the same bits as the product of the
 * factor with columns. */
static void test_structure_alone(void **state) {
  (void)state;
  enum { BATCH = 2 };
  static const bppsa_product_kind kinds[] = {BPPSA_PRODUCT_AUTO, BPPSA_PRODUCT_SLOTS, BPPSA_PRODUCT_CONV};
  bppsa_device *device = cpu_device(2);
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_CONV2D);
  memcpy(op.in, (int64_t[]){6, 5, 4}, sizeof op.in);
  op.out_channels = 6;
  op.kernel[0] = 3;
  op.padding[0] = op.padding[1] = 1;
  bppsa_jacobian *j[2];
  for (int symbolic = 0; symbolic < 2; ++symbolic) {
    assert_int_equal(bppsa_jacobian_create(&op, NULL, symbolic == 1, device, &j[symbolic]), BPPSA_OK);
  }
  assert_null(bppsa_jacobian_pattern(j[1])->row_ptr);
  const int64_t nnz = bppsa_jacobian_pattern(j[0])->nnz;
  double *a = uniform(1, BATCH * nnz, 1), *b = uniform(2, BATCH * nnz, 1);
  const bppsa_csr_values left = {a, nnz}, right = {b, nnz};
  for (int k = 0; k < 3; ++k) {
    const bppsa_product_config config = {.kind = kinds[k], .dtype = BPPSA_F64};
    double *results[2] = {NULL};
    int64_t count = 0;
    for (int which = 0; which < 4; ++which) { /* neither, the left, the right, both */
      bppsa_product *p = NULL;
      assert_int_equal(
          bppsa_product_create(bppsa_jacobian_pattern(j[which % 2]), bppsa_jacobian_pattern(j[which / 2]), &config, device, &p),
          BPPSA_OK);
      const int64_t bytes = BATCH * bppsa_product_pattern(p)->nnz * (int64_t)sizeof(double);
      results[which > 0] = bppsa_alloc((size_t)bytes);
      assert_int_equal(bppsa_product_execute(p, BATCH, left, right, results[which > 0]), BPPSA_OK);
      assert_true(which == 0 || bytes == count);
      assert_true(which == 0 || memcmp(results[0], results[1], (size_t)bytes) == 0);
      count = bytes;
      bppsa_free(which > 0 ? results[1] : NULL);
      bppsa_product_destroy(p);
    }
    bppsa_free(results[0]);
  }
  bppsa_free(a);
  bppsa_free(b);
  bppsa_jacobian_destroy(j[0]);
  bppsa_jacobian_destroy(j[1]);
  bppsa_device_destroy(device);
}

/* ---- ones beside entries ---- */

/* A random pattern with entries at `share` of its places, and with ones at `ones` of them; both may meet. */
static bppsa_csr pattern_with_ones(int64_t rows, int64_t cols, int64_t share, int64_t ones) {
  bppsa_csr made[2];
  for (int k = 0; k < 2; ++k) {
    const int64_t of = k == 0 ? share : ones;
    assert_int_equal(bppsa_csr_create(rows, cols, rows * cols, &made[k]), BPPSA_OK);
    made[k].nnz = 0;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        if (below(100) < of) {
          made[k].col[made[k].nnz++] = (int32_t)c;
        }
      }
      made[k].row_ptr[r + 1] = made[k].nnz;
    }
  }
  if (ones > 0) {
    assert_int_equal(bppsa_csr_add_ones(&made[0], made[1].nnz), BPPSA_OK);
    memcpy(made[0].ones->row_ptr, made[1].row_ptr, (size_t)(rows + 1) * sizeof *made[1].row_ptr);
    memcpy(made[0].ones->col, made[1].col, (size_t)made[1].nnz * sizeof *made[1].col);
  }
  bppsa_csr_free(&made[1]);
  return made[0];
}

/* The matrix of one sample; in `ways` how often each place is reached by ones alone (NULL: not wanted). */
static double *spread(const bppsa_csr *csr, const double *values) {
  double *dense = bppsa_calloc(csr->rows * csr->cols, sizeof *dense);
  assert_non_null(dense);
  for (int64_t r = 0; r < csr->rows; ++r) {
    for (int64_t p = csr->row_ptr[r]; values != NULL && p < csr->row_ptr[r + 1]; ++p) {
      dense[r * csr->cols + csr->col[p]] += values[p];
    }
    for (int64_t p = csr->ones != NULL ? csr->ones->row_ptr[r] : 0; csr->ones != NULL && p < csr->ones->row_ptr[r + 1]; ++p) {
      dense[r * csr->cols + csr->ones->col[p]] += 1;
    }
  }
  return dense;
}

/* C = A B at every place: its entries and ones together; ones where ones alone meet once. */
static void check_ones(const bppsa_csr *a, const double *x, const bppsa_csr *b, const double *y, const bppsa_csr *c,
                       const double *z) {
  double *left = spread(a, x), *right = spread(b, y), *got = spread(c, z);
  double *left_ones = spread(a, NULL), *right_ones = spread(b, NULL), *ones = spread(c, NULL);
  for (int64_t r = 0; r < c->rows; ++r) {
    for (int64_t col = 0; col < c->cols; ++col) {
      double sum = 0, most = 0, ways = 0;
      for (int64_t k = 0; k < a->cols; ++k) {
        const double l = left[r * a->cols + k], l_one = left_ones[r * a->cols + k];
        const double w = right[k * b->cols + col], w_one = right_ones[k * b->cols + col];
        sum += l * w;
        most += (fabs(l - l_one) + l_one) * (fabs(w - w_one) + w_one); /* an entry and a one at its place may cancel */
        ways += l_one * w_one;
      }
      assert_true(fabs(got[r * c->cols + col] - sum) <= 1e-13 * most);
      assert_true((ones[r * c->cols + col] == 1) == (ways == 1));
    }
  }
  double *const all[] = {left, right, got, left_ones, right_ones, ones};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) {
    bppsa_free(all[i]);
  }
}

static void test_ones(void **state) {
  (void)state;
  enum { SAMPLES = 2 };
  for (int i = 0; i < 60; ++i) {
    const int64_t m = 1 + below(20), k = 1 + below(90), n = 1 + below(150), few = below(30);
    bppsa_csr a = pattern_with_ones(m, k, below(30), i % 3 == 0 ? 0 : 1 + few);
    bppsa_csr b = pattern_with_ones(k, n, below(30), i % 3 == 1 ? 0 : 1 + below(20));
    double *x = uniform(300 + (uint64_t)i, SAMPLES * a.nnz + 1, 1), *y = uniform(400 + (uint64_t)i, SAMPLES * b.nnz + 1, 1),
           *first = NULL;
    int64_t pairs = 0;
    for (int64_t p = 0; p < a.nnz; ++p) {
      pairs += b.row_ptr[a.col[p] + 1] - b.row_ptr[a.col[p]];
    }
    for (int threads = 1; threads <= 3; threads += 2) { /* the bits are the same */
      bppsa_device *device = cpu_device(threads);
      const bppsa_product_config config = {.dtype = BPPSA_F64};
      bppsa_product *p = NULL, *counted = NULL;
      assert_int_equal(bppsa_product_create(&a, &b, &config, device, &p), BPPSA_OK);
      assert_int_equal(
          bppsa_product_create(&a, &b, &(bppsa_product_config){.dtype = BPPSA_F64, .symbolic = true}, device, &counted),
          BPPSA_OK);
      const bppsa_product_info *info = bppsa_product_get_info(p);
      const bppsa_csr *c = bppsa_product_pattern(p);
      computed[info->kind] += 1;
      assert_int_equal(info->kind, BPPSA_PRODUCT_ONES);
      assert_int_equal(info->pair_flops, 2 * pairs);
      assert_int_equal(bppsa_csr_check(c), BPPSA_OK);
      assert_true(c->ones == NULL || bppsa_csr_check(c->ones) == BPPSA_OK);
      assert_true(bppsa_csr_same(c, bppsa_product_pattern(counted)));
      double *z = bppsa_calloc(SAMPLES * c->nnz, sizeof *z);
      assert_non_null(z);
      assert_int_equal(bppsa_product_execute(p, SAMPLES, (bppsa_csr_values){x, a.nnz}, (bppsa_csr_values){y, b.nnz}, z),
                       BPPSA_OK);
      for (int sample = 0; sample < SAMPLES; ++sample) {
        check_ones(&a, x + sample * a.nnz, &b, y + sample * b.nnz, c, z + sample * c->nnz);
      }
      if (threads == 1) {
        first = z;
      } else {
        assert_memory_equal(first, z, (size_t)(SAMPLES * c->nnz) * sizeof *z);
        bppsa_free(z);
      }
      bppsa_product_destroy(p);
      bppsa_product_destroy(counted);
      bppsa_device_destroy(device);
    }
    bppsa_free(first);
    bppsa_free(x);
    bppsa_free(y);
    bppsa_csr_free(&a);
    bppsa_csr_free(&b);
  }
}

/* Out of memory and over the limit at every allocation; an identity beside ones is the other factor; a GPU refuses ones. */
static void test_ones_requests(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2), *tested = test_device(1);
  bppsa_csr a = pattern_with_ones(9, 9, 20, 10), b = pattern_with_ones(9, 7, 20, 10), identity = pattern_with_ones(9, 9, 0, 0);
  bppsa_product_config config = {.dtype = BPPSA_F32};
  bppsa_product *p = NULL;
  const int64_t blocks = bppsa_alloc_live();
  bppsa_alloc_fail_at(0);
  assert_int_equal(bppsa_product_create(&a, &b, &config, device, &p), BPPSA_OK);
  const int64_t calls = bppsa_alloc_calls();
  bppsa_product_destroy(p);
  for (int64_t call = 1; call <= calls; ++call) {
    bppsa_alloc_fail_at(call);
    assert_int_equal(bppsa_product_create(&a, &b, &config, device, &p), BPPSA_ERR_MEMORY);
    bppsa_alloc_fail_at(0);
    assert_int_equal(bppsa_alloc_live(), blocks);
  }
  config.memory_limit = 100;
  assert_int_equal(bppsa_product_create(&a, &b, &config, device, &p), BPPSA_ERR_ARGUMENT);
  assert_message("the memory limit is 100");
  config = (bppsa_product_config){.dtype = BPPSA_F32, .kind = BPPSA_PRODUCT_SLOTS};
  assert_int_equal(bppsa_product_create(&a, &b, &config, device, &p), BPPSA_ERR_UNSUPPORTED);
  assert_message("kind slots does not apply to these patterns, expected ones or auto");
  config.kind = BPPSA_PRODUCT_AUTO;
  bppsa_csr_free(&identity);
  assert_int_equal(bppsa_csr_create(9, 9, 9, &identity), BPPSA_OK);
  for (int64_t r = 0; r < 9; ++r) {
    identity.row_ptr[r + 1] = r + 1;
    identity.col[r] = (int32_t)r;
  }
  identity.identity = true;
  assert_int_equal(bppsa_product_create(&identity, &b, &config, device, &p), BPPSA_OK);
  assert_int_equal(bppsa_product_get_info(p)->kind, BPPSA_PRODUCT_IDENTITY);
  assert_int_equal(bppsa_product_get_info(p)->pair_flops, 0);
  assert_true(bppsa_csr_same(bppsa_product_pattern(p), &b));
  bppsa_product_destroy(p);
  if (bppsa_device_get_kind(tested) == BPPSA_CUDA) {
    assert_int_equal(bppsa_product_create(&a, &b, &config, tested, &p), BPPSA_ERR_UNSUPPORTED);
    assert_message("ones beside entries on a GPU, expected a processor");
  }
  bppsa_csr_free(&a);
  bppsa_csr_free(&b);
  bppsa_csr_free(&identity);
  bppsa_device_destroy(device);
  bppsa_device_destroy(tested);
}

/* ---- requests ---- */

static factor random_factor(const bppsa_csr *csr, int64_t batch, bool shared, bppsa_dtype dtype) {
  factor f = {.csr = csr, .shared = shared};
  const int64_t count = csr->nnz * (shared ? 1 : batch);
  f.wide = uniform(9000 + counter++, count, 1);
  f.typed = rounded(dtype, f.wide, count);
  return f;
}

/* Bands and channels of all sizes that a GPU's tiles have, whole and partial; depths that a stage divides, and others; more
 * samples than are packed together. */
static void test_tiles(void **state) {
  (void)state;
  static const int64_t bands[][3] = {{9, 5, 14}, {12, 16, 70}, {28, 33, 20}, {50, 20, 65}, {70, 64, 64}};
  static const int64_t channels[][3] = {{10, 16, 9}, {20, 32, 28}, {17, 24, 30}, {33, 48, 40}, {64, 16, 64}};
  bppsa_device *device = cpu_device(1);
  for (int i = 0; i < 10; ++i) {
    const bppsa_dtype dtype = i % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    const int64_t *n = i < 5 ? bands[i] : channels[i - 5], batch = i == 5 ? 19 : 2;
    bppsa_csr a, b;
    bppsa_jacobian *j[2] = {NULL, NULL};
    if (i < 5) {
      a = block_pattern(2, n[0], n[1]);
      b = block_pattern(2, n[1], n[2]);
    } else {
      for (int k = 0; k < 2; ++k) {
        bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_CONV2D);
        memcpy(op.in, (int64_t[]){n[k], 2, 2}, sizeof op.in);
        op.out_channels = n[k + 1];
        op.kernel[0] = 3;
        op.padding[0] = op.padding[1] = 1;
        assert_int_equal(bppsa_jacobian_create(&op, NULL, false, device, &j[k]), BPPSA_OK);
      }
    }
    for (int which = 0; which < 4; ++which) {
      factor left = random_factor(i < 5 ? &a : bppsa_jacobian_pattern(j[0]), batch, (which + i) % 2 == 0, dtype);
      factor right = random_factor(i < 5 ? &b : bppsa_jacobian_pattern(j[1]), batch, which / 2 == 1, dtype);
      check_product(&left, &right, batch, dtype, i < 5 ? BPPSA_PRODUCT_DENSE : BPPSA_PRODUCT_CONV);
      free_factor(&left);
      free_factor(&right);
    }
    if (i < 5) {
      bppsa_csr_free(&a);
      bppsa_csr_free(&b);
    }
    bppsa_jacobian_destroy(j[0]);
    bppsa_jacobian_destroy(j[1]);
  }
  bppsa_device_destroy(device);
}

/* Block diagonal: full blocks of these shapes. */
static bppsa_csr uneven_pattern(int64_t blocks, const int64_t *rows, const int64_t *cols) {
  bppsa_csr csr;
  int64_t all[3] = {0};
  for (int64_t i = 0; i < blocks; ++i) {
    all[0] += rows[i];
    all[1] += cols[i];
    all[2] += rows[i] * cols[i];
  }
  assert_int_equal(bppsa_csr_create(all[0], all[1], all[2], &csr), BPPSA_OK);
  for (int64_t i = 0, r = 0, first = 0; i < blocks; first += cols[i++]) {
    for (const int64_t end = r + rows[i]; r < end; ++r) {
      csr.row_ptr[r + 1] = csr.row_ptr[r] + cols[i];
      for (int64_t c = 0; c < cols[i]; ++c) {
        csr.col[csr.row_ptr[r] + c] = (int32_t)(first + c);
      }
    }
  }
  return csr;
}

/* Bands of one column, of one row, and of one entry of the product, beside others. */
static void test_thin_bands(void **state) {
  (void)state;
  enum { BATCH = 3, BANDS = 5 };
  static const int64_t rows[BANDS] = {3, 1, 2, 1, 4}, depths[BANDS] = {1, 2, 3, 1, 2}, columns[BANDS] = {4, 1, 2, 1, 1};
  bppsa_csr a = uneven_pattern(BANDS, rows, depths), b = uneven_pattern(BANDS, depths, columns);
  for (int which = 0; which < 4; ++which) {
    const bppsa_dtype dtype = which % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    factor left = random_factor(&a, BATCH, which / 2 == 1, dtype), right = random_factor(&b, BATCH, which / 2 == 0, dtype);
    check_product(&left, &right, BATCH, dtype, BPPSA_PRODUCT_DENSE);
    free_factor(&left);
    free_factor(&right);
  }
  bppsa_csr_free(&a);
  bppsa_csr_free(&b);
}

/* Rows with 3000 to 90000 entries: on a GPU one of every class of shared memory and one that does not fit in it; slots of 16 and
 * 32 bits. */
static void test_wide_rows(void **state) {
  (void)state;
  enum { ROWS = 7, MIDDLE = 40, WIDE = 200000, BATCH = 5 };
  static const int64_t entries[ROWS] = {1, 0, 2, 4, 6, 9, 30};
  bppsa_csr a, b;
  assert_int_equal(bppsa_csr_create(ROWS, MIDDLE, 52, &a), BPPSA_OK);
  assert_int_equal(bppsa_csr_create(MIDDLE, WIDE, 3000 * MIDDLE, &b), BPPSA_OK);
  for (int64_t r = 0; r < ROWS; ++r) {
    a.row_ptr[r + 1] = a.row_ptr[r] + entries[r];
    for (int64_t i = 0; i < entries[r]; ++i) {
      a.col[a.row_ptr[r] + i] = (int32_t)(i + r);
    }
  }
  for (int64_t i = 0; i < b.nnz; ++i) {
    b.col[i] = (int32_t)(i % 3000 * 66 + below(66));
    b.row_ptr[i / 3000 + 1] = i + 1;
  }
  for (int shorter = 0; shorter < 2; ++shorter) { /* without the last row 16 bits do */
    for (int which = 0; which < 4; ++which) {
      factor left = {.csr = &a, .shared = which % 2 == 0}, right = {.csr = &b, .shared = which / 2 == 0};
      const bppsa_dtype dtype = which % 3 == 0 ? BPPSA_F32 : BPPSA_F64;
      left.wide = uniform(1, a.nnz * BATCH, 1);
      right.wide = uniform(2, b.nnz * BATCH, 1);
      left.typed = rounded(dtype, left.wide, a.nnz * BATCH);
      right.typed = rounded(dtype, right.wide, b.nnz * BATCH);
      check_product(&left, &right, BATCH, dtype, BPPSA_PRODUCT_SLOTS);
      free_factor(&left);
      free_factor(&right);
    }
    a.rows = ROWS - 1;
    a.nnz = a.row_ptr[a.rows];
  }
  bppsa_csr_free(&a);
  bppsa_csr_free(&b);
}

static void note_threads(void *threads, const simt_call *call) {
  if (strstr(call->kernel, "product_slots_rows") != NULL) {
    *(unsigned *)threads = call->threads;
  }
}

/* A block has the fewest threads, 32 to 512, with which an average row of B takes at most two rounds; longer rows take more. */
static void test_threads_of_a_row(void **state) {
  (void)state;
  enum { ROWS = 3, MIDDLE = 5, WIDE = 2048 };
  static const struct {
    int64_t row; /* entries of a row of B */
    unsigned threads;
  } cases[] = {{10, 32}, {64, 32}, {65, 64}, {128, 64}, {129, 128}, {257, 256}, {513, 512}, {2048, 512}};
  bppsa_device *device = emulated_device(1);
  bppsa_csr a = block_pattern(1, ROWS, MIDDLE);
  double *room = bppsa_calloc(MIDDLE * WIDE, sizeof *room);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bppsa_csr b = block_pattern(1, MIDDLE, cases[i].row);
    b.cols = WIDE;
    bppsa_product_config config = bppsa_product_config_default();
    bppsa_product *p = NULL;
    unsigned threads = 0;
    config.kind = BPPSA_PRODUCT_SLOTS;
    assert_int_equal(bppsa_product_create(&a, &b, &config, device, &p), BPPSA_OK);
    simt_watch(note_threads, &threads);
    assert_int_equal(bppsa_product_execute(p, 1, (bppsa_csr_values){room, 0}, (bppsa_csr_values){room, 0}, room), BPPSA_OK);
    simt_watch(NULL, NULL);
    assert_int_equal(threads, cases[i].threads);
    bppsa_product_destroy(p);
    bppsa_csr_free(&b);
  }
  bppsa_free(room);
  bppsa_csr_free(&a);
  bppsa_device_destroy(device);
}

static void test_identity(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_FLATTEN), linear = bppsa_op_default(BPPSA_OPERATOR_LINEAR);
  memcpy(op.in, (int64_t[]){2, 3, 1}, sizeof op.in);
  linear.in[0] = 6;
  linear.out_channels = 4;
  factor a = make_factor(&op, 1, BPPSA_F64, device), b = make_factor(&linear, 1, BPPSA_F64, device);
  assert_true(a.csr->identity && a.shared);
  const bppsa_product_config config = {.dtype = BPPSA_F64};
  bppsa_product *p = NULL;
  assert_int_equal(bppsa_product_create(a.csr, b.csr, &config, device, &p), BPPSA_OK);
  assert_int_equal(bppsa_product_get_info(p)->kind, BPPSA_PRODUCT_IDENTITY);
  assert_int_equal(bppsa_product_get_info(p)->pair_flops, 0);
  double c[24] = {0};
  execute(p, device, 1, (bppsa_csr_values){a.typed, 0}, 6, (bppsa_csr_values){b.typed, 0}, 24, c, 24, BPPSA_F64);
  assert_memory_equal(c, b.typed, sizeof c);
  computed[BPPSA_PRODUCT_IDENTITY] += 1;
  bppsa_product_destroy(p);
  free_factor(&a);
  free_factor(&b);
  bppsa_device_destroy(device);
}

static void test_requests(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  bppsa_csr a = random_pattern(30, 40, 0.3, false), b = random_pattern(40, 50, 0.3, false), huge;
  bppsa_product_config config = bppsa_product_config_default();
  bppsa_product *p = NULL;
  assert_int_equal(bppsa_product_create(&a, &a, &config, device, &p), BPPSA_ERR_SHAPE);
  assert_message("30 x 40 times 30 x 40, expected as many rows on the right as columns on the left");
  config.kind = BPPSA_PRODUCT_CONV;
  assert_int_equal(bppsa_product_create(&a, &b, &config, device, &p), BPPSA_ERR_UNSUPPORTED);
  assert_message("kind conv does not apply");
  config = (bppsa_product_config){.dtype = BPPSA_I64};
  assert_int_equal(bppsa_product_create(&a, &b, &config, device, &p), BPPSA_ERR_UNSUPPORTED);
  config = (bppsa_product_config){.dtype = BPPSA_F32, .memory_limit = 1000};
  assert_int_equal(bppsa_product_create(&a, &b, &config, device, &p), BPPSA_ERR_ARGUMENT);
  assert_message("bytes, the memory limit is 1000");
  config = (bppsa_product_config){.dtype = BPPSA_F32, .symbolic = true};
  assert_int_equal(bppsa_product_create(&a, &b, &config, device, &p), BPPSA_OK);
  assert_int_equal(bppsa_product_execute(p, 1, (bppsa_csr_values){0}, (bppsa_csr_values){0}, NULL), BPPSA_ERR_ARGUMENT);
  bppsa_product_destroy(p);
  assert_int_equal(bppsa_csr_create(1, (int64_t)1 << 31, 0, &huge), BPPSA_ERR_SHAPE);
  assert_message("2147483648 columns, expected at most 2147483647");
  /* The limit is checked before the allocation: the unpruned conv3·conv4 in slots needs 64 GB. */
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_CONV2D);
  memcpy(op.in, (int64_t[]){64, 8, 8}, sizeof op.in);
  op.out_channels = 64;
  op.kernel[0] = op.kernel[1] = 3;
  op.padding[0] = op.padding[1] = op.padding[2] = op.padding[3] = 1;
  bppsa_jacobian *j = NULL;
  assert_int_equal(bppsa_jacobian_create(&op, NULL, false, device, &j), BPPSA_OK);
  config = (bppsa_product_config){.kind = BPPSA_PRODUCT_SLOTS, .dtype = BPPSA_F32, .memory_limit = (int64_t)64 << 20};
  const int64_t before = bppsa_alloc_live_bytes();
  assert_int_equal(bppsa_product_create(bppsa_jacobian_pattern(j), bppsa_jacobian_pattern(j), &config, device, &p),
                   BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_alloc_live_bytes(), before);
  config.kind = BPPSA_PRODUCT_AUTO; /* where a structured plan fits */
  assert_int_equal(bppsa_product_create(bppsa_jacobian_pattern(j), bppsa_jacobian_pattern(j), &config, device, &p), BPPSA_OK);
  assert_int_equal(bppsa_product_get_info(p)->kind, BPPSA_PRODUCT_CONV);
  bppsa_product_destroy(p);
  bppsa_jacobian_destroy(j);
  bppsa_csr_free(&a);
  bppsa_csr_free(&b);
  bppsa_device_destroy(device);
}

/* Every kind has a name of its own, and the tests above compute it. */
static void test_every_kind(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  for (int k = BPPSA_PRODUCT_AUTO; k < BPPSA_PRODUCT_KINDS; ++k) {
    const char *name = bppsa_product_kind_name((bppsa_product_kind)k);
    assert_non_null(name);
    for (int other = 0; other < k; ++other) {
      assert_string_not_equal(name, bppsa_product_kind_name((bppsa_product_kind)other));
    }
    if (k != BPPSA_PRODUCT_AUTO && computed[k] == 0 && bppsa_device_get_kind(device) == BPPSA_CPU) {
      fail_msg("no test computes a product of kind %s", name);
    }
  }
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_scipy),      cmocka_unit_test(test_structures),
                                     cmocka_unit_test(test_wide),       cmocka_unit_test(test_structure_alone),
                                     cmocka_unit_test(test_groups),     cmocka_unit_test(test_tiles),
                                     cmocka_unit_test(test_thin_bands), cmocka_unit_test(test_wide_rows),
                                     cmocka_unit_test(test_identity),   cmocka_unit_test(test_requests),
                                     cmocka_unit_test(test_ones),       cmocka_unit_test(test_ones_requests),
                                     cmocka_unit_test(test_every_kind), cmocka_unit_test(test_threads_of_a_row)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
