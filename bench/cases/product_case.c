#include "bench/cases/product_case.h"

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/philox.h"

/* ---- cases ---- */

/* Convolutions have 3 x 3 kernels and keep the size of their images. Of two linear operators only the first sees images. */
static const struct {
  const char *name, *text;
  bppsa_operator kind;
  int64_t channels[3], size;
  double kept; /* fraction of the weights that pruning leaves */
  bool relu;
} cases[] = {
    {"A", "conv3·conv4 of VGG-11, 3 % of the weights", BPPSA_OPERATOR_CONV2D, {128, 256, 256}, 8, 0.03, false},
    {"B", "conv·relu·conv, 16 channels at 16 x 16", BPPSA_OPERATOR_CONV2D, {16, 16, 16}, 16, 1, true},
    {"B64", "conv·relu·conv, 64 channels at 8 x 8", BPPSA_OPERATOR_CONV2D, {64, 64, 64}, 8, 1, true},
    {"D", "fc1·relu·fc2 of LeNet-5", BPPSA_OPERATOR_LINEAR, {16, 120, 84}, 5, 1, true},
    {"D1024", "fc·relu·fc, 1024 x 1024 each", BPPSA_OPERATOR_LINEAR, {1024, 1024, 1024}, 1, 1, true},
};

/* Operator 0 or 1 of a case. */
static bppsa_op make_op(int64_t index, int which) {
  bppsa_op op = bppsa_op_default(cases[index].kind);
  const int64_t size = which == 1 && op.kind == BPPSA_OPERATOR_LINEAR ? 1 : cases[index].size;
  memcpy(op.in, (int64_t[]){cases[index].channels[which], size, size}, sizeof op.in);
  op.out_channels = cases[index].channels[which + 1];
  op.kernel[0] = op.kernel[1] = 3;
  for (int i = 0; i < 4; ++i) {
    op.padding[i] = 1;
  }
  return op;
}

/* Makes a factor from an operator without weights. */
static bppsa_status make_plain_factor(const bppsa_op *op, uint64_t seed, const bppsa_device *device, bppsa_jacobian **j,
                                      float **values) {
  const double ones = op->kind == BPPSA_OPERATOR_MAXPOOL2D || op->kind == BPPSA_OPERATOR_AVGPOOL2D ? 0.25 : 0.5;
  BPPSA_TRY(bppsa_jacobian_create(op, NULL, false, device, j));
  const int64_t count = bppsa_jacobian_pattern(*j)->nnz;
  *values = bppsa_alloc((size_t)count * sizeof **values);
  if (*values == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    (*values)[i] = bppsa_random_double(seed, BPPSA_STREAM_TEST + 202, (uint64_t)i) < ones ? 1 : 0;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_bench_factor(const bppsa_op *op, double kept, uint64_t seed, const bppsa_device *device, bppsa_jacobian **j,
                                float **values) {
  const int64_t count = bppsa_op_weights(op);
  if (count == 0) {
    return make_plain_factor(op, seed, device, j, values);
  }
  float *weights = bppsa_calloc(count, sizeof *weights);
  uint8_t *mask = bppsa_calloc(count, 1);
  bppsa_status status = weights == NULL || mask == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int64_t i = 0; status == BPPSA_OK && i < count; ++i) {
    weights[i] = (float)(2 * bppsa_random_double(seed, BPPSA_STREAM_TEST + 200, (uint64_t)i) - 1);
    mask[i] = bppsa_random_double(seed, BPPSA_STREAM_TEST + 201, (uint64_t)i) < kept;
  }
  if (status == BPPSA_OK) {
    status = bppsa_jacobian_create(op, kept < 1 ? mask : NULL, false, device, j);
  }
  if (status == BPPSA_OK) {
    *values = bppsa_alloc((size_t)bppsa_jacobian_pattern(*j)->nnz * sizeof **values);
    const bppsa_jacobian_operands operands = {.batch = 1, .weights = weights};
    status = *values == NULL ? BPPSA_ERR_MEMORY : bppsa_jacobian_fill(*j, BPPSA_F32, &operands, *values);
  }
  bppsa_free(weights);
  bppsa_free(mask);
  return status;
}

/* Makes the left factor: the operator's Jacobian times that of a ReLU, half of whose slopes are 0. */
static bppsa_status add_relu(const bppsa_op *op, uint64_t seed, const bppsa_device *device, bppsa_product_case *c) {
  bppsa_op relu = bppsa_op_default(BPPSA_OPERATOR_RELU);
  BPPSA_TRY(bppsa_op_shape(op, relu.in));
  BPPSA_TRY(bppsa_jacobian_create(&relu, NULL, false, device, &c->jacobians[1]));
  const bppsa_csr *diagonal = bppsa_jacobian_pattern(c->jacobians[1]);
  const bppsa_product_config config = bppsa_product_config_default();
  BPPSA_TRY(bppsa_product_create(c->a, diagonal, &config, device, &c->left));
  float *slopes = bppsa_calloc(diagonal->nnz, sizeof *slopes);
  float *scaled = bppsa_alloc((size_t)c->a->nnz * sizeof *scaled);
  bppsa_status status = slopes == NULL || scaled == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int64_t i = 0; status == BPPSA_OK && i < diagonal->nnz; ++i) {
    slopes[i] = bppsa_random_double(seed, BPPSA_STREAM_TEST + 202, (uint64_t)i) < 0.5 ? 0 : 1;
  }
  if (status == BPPSA_OK) {
    status = bppsa_product_execute(c->left, 1, (bppsa_csr_values){c->a_values, 0}, (bppsa_csr_values){slopes, 0}, scaled);
  }
  bppsa_free(slopes);
  bppsa_free(c->a_values);
  c->a_values = scaled;
  c->a = bppsa_product_pattern(c->left);
  return status;
}

bppsa_status bppsa_product_case_make(int64_t index, uint64_t seed, const bppsa_device *device, bppsa_product_case *made,
                                     bool *more) {
  *made = (bppsa_product_case){0};
  *more = index < (int64_t)(sizeof cases / sizeof cases[0]);
  if (!*more) {
    return BPPSA_OK;
  }
  made->name = cases[index].name;
  made->text = cases[index].text;
  const bppsa_op first = make_op(index, 0), second = make_op(index, 1);
  BPPSA_TRY(bppsa_bench_factor(&first, cases[index].kept, seed, device, &made->jacobians[0], &made->a_values));
  BPPSA_TRY(bppsa_bench_factor(&second, cases[index].kept, seed + 1, device, &made->jacobians[2], &made->b_values));
  made->a = bppsa_jacobian_pattern(made->jacobians[0]);
  made->b = bppsa_jacobian_pattern(made->jacobians[2]);
  return cases[index].relu ? add_relu(&first, seed, device, made) : BPPSA_OK;
}

/* Loads one factor and rounds its values to f32. */
static bppsa_status load_factor(const char *path, bppsa_csr_matrix *file, const bppsa_csr **csr, float **values) {
  BPPSA_TRY(bppsa_input_status(bppsa_csr_load(path, file)));
  const bppsa_view from = bppsa_view_make(file->values, file->dtype, 1, &file->csr.nnz);
  *csr = &file->csr;
  *values = bppsa_alloc((size_t)file->csr.nnz * sizeof **values);
  if (*values == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_view to = bppsa_view_make(*values, BPPSA_F32, 1, &file->csr.nnz);
  BPPSA_TRY(bppsa_view_convert(&from, &to));
  for (int64_t i = 0; i < file->csr.nnz; ++i) {
    if (!isfinite((*values)[i])) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: value %lld is %g, expected finite numbers of f32", path, (long long)i,
                        bppsa_view_get(&from, i));
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_product_case_load(const char *left, const char *right, bppsa_product_case *made) {
  *made = (bppsa_product_case){.name = "files", .text = "factors from files"};
  BPPSA_TRY(load_factor(left, &made->files[0], &made->a, &made->a_values));
  return load_factor(right, &made->files[1], &made->b, &made->b_values);
}

void bppsa_product_case_free(bppsa_product_case *c) {
  bppsa_product_destroy(c->left);
  for (int i = 0; i < 3; ++i) {
    bppsa_jacobian_destroy(c->jacobians[i]);
  }
  bppsa_free(c->a_values);
  bppsa_free(c->b_values);
  bppsa_csr_matrix_free(&c->files[0]);
  bppsa_csr_matrix_free(&c->files[1]);
  *c = (bppsa_product_case){0};
}

bppsa_status bppsa_product_case_reference(const bppsa_product_case *c, const bppsa_csr *pattern, double **sums,
                                          double **magnitudes) {
  double *row = bppsa_calloc(pattern->cols, sizeof *row), *most = bppsa_calloc(pattern->cols, sizeof *most);
  *sums = bppsa_alloc((size_t)pattern->nnz * sizeof **sums);
  *magnitudes = bppsa_alloc((size_t)pattern->nnz * sizeof **magnitudes);
  const bool got = row != NULL && most != NULL && *sums != NULL && *magnitudes != NULL;
  for (int64_t r = 0; got && r < pattern->rows; ++r) {
    for (int64_t p = c->a->row_ptr[r]; p < c->a->row_ptr[r + 1]; ++p) {
      for (int64_t q = c->b->row_ptr[c->a->col[p]]; q < c->b->row_ptr[c->a->col[p] + 1]; ++q) {
        const double term = (double)c->a_values[p] * (double)c->b_values[q];
        row[c->b->col[q]] += term;
        most[c->b->col[q]] += fabs(term);
      }
    }
    for (int64_t p = pattern->row_ptr[r]; p < pattern->row_ptr[r + 1]; ++p) {
      (*sums)[p] = row[pattern->col[p]];
      (*magnitudes)[p] = most[pattern->col[p]];
      row[pattern->col[p]] = most[pattern->col[p]] = 0;
    }
  }
  bppsa_free(row);
  bppsa_free(most);
  return got ? BPPSA_OK : BPPSA_ERR_MEMORY;
}
