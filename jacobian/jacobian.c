/* Generators: argument checks and dispatch. */
#include "jacobian/jacobian.h"

#include <string.h>

#include "core/base/alloc.h"
#include "jacobian/jacobian_internal.h"

typedef void (*fill_fn)(const bppsa_jacobian *j, const bppsa_jacobian_operands *o, void *values);

typedef enum { FAMILY_CONV = 0, FAMILY_POOL, FAMILY_DIAGONAL, FAMILY_STEP, FAMILIES } family;

static const family families[BPPSA_OPERATOR_COUNT] = {
    [BPPSA_OPERATOR_CONV2D] = FAMILY_CONV,
    [BPPSA_OPERATOR_LINEAR] = FAMILY_CONV,
    [BPPSA_OPERATOR_RELU] = FAMILY_DIAGONAL,
    [BPPSA_OPERATOR_LEAKY_RELU] = FAMILY_DIAGONAL,
    [BPPSA_OPERATOR_TANH] = FAMILY_DIAGONAL,
    [BPPSA_OPERATOR_SIGMOID] = FAMILY_DIAGONAL,
    [BPPSA_OPERATOR_MAXPOOL2D] = FAMILY_POOL,
    [BPPSA_OPERATOR_AVGPOOL2D] = FAMILY_POOL,
    [BPPSA_OPERATOR_FLATTEN] = FAMILY_DIAGONAL,
    [BPPSA_OPERATOR_RELU6] = FAMILY_DIAGONAL,
    [BPPSA_OPERATOR_HARDSIGMOID] = FAMILY_DIAGONAL,
    [BPPSA_OPERATOR_HARDSWISH] = FAMILY_DIAGONAL,
    [BPPSA_OPERATOR_SILU] = FAMILY_DIAGONAL,
    [BPPSA_OPERATOR_GELU] = FAMILY_DIAGONAL,
    [BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D] = FAMILY_POOL,
    [BPPSA_OPERATOR_GLOBAL_AVGPOOL] = FAMILY_POOL,
    [BPPSA_OPERATOR_BATCHNORM2D] = FAMILY_DIAGONAL,
    [BPPSA_OPERATOR_DROPOUT] = FAMILY_DIAGONAL,
    [BPPSA_OPERATOR_STEP] = FAMILY_STEP,
};

/* [family][f64] */
static const fill_fn fills[FAMILIES][2] = {
    [FAMILY_CONV] = {bppsa_jacobian_conv_f32, bppsa_jacobian_conv_f64},
    [FAMILY_POOL] = {bppsa_jacobian_pool_f32, bppsa_jacobian_pool_f64},
    [FAMILY_DIAGONAL] = {bppsa_jacobian_diagonal_f32, bppsa_jacobian_diagonal_f64},
    [FAMILY_STEP] = {bppsa_jacobian_step_f32, bppsa_jacobian_step_f64},
};

bppsa_status bppsa_jacobian_reserve(bppsa_jacobian *j, int64_t reals) {
  const int64_t line = BPPSA_ALIGNMENT / (int64_t)sizeof(float);
  int64_t bytes;
  if (reals > INT64_MAX / 64 || !bppsa_mul((reals + line - 1) / line * line, (int64_t)sizeof(double) * j->threads, &bytes)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "Jacobian: scratch of %lld values does not fit in 64 bits", (long long)reals);
  }
  if (j->on_gpu) {
    return BPPSA_OK;
  }
  j->scratch_reals = (reals + line - 1) / line * line;
  j->scratch = bppsa_alloc((size_t)bytes);
  return j->scratch == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

/* A diagonal pattern in channel structure: as many groups as channels; the positions are the identity. */
bppsa_status bppsa_jacobian_diagonal_create(bppsa_jacobian *j) {
  const int64_t *in = j->op.in, plane = in[1] * in[2];
  bppsa_csr identity;
  BPPSA_TRY(bppsa_csr_create(plane, plane, plane, &identity));
  for (int64_t x = 0; x < plane; ++x) {
    identity.row_ptr[x + 1] = x + 1;
    identity.col[x] = (int32_t)x;
  }
  BPPSA_TRY(bppsa_csr_from_blocks(in[0], in[0], in[0], &identity, &j->pattern));
  j->pattern.identity = bppsa_op_is_identity(&j->op);
  j->shared = bppsa_op_shares_values(&j->op);
  return j->symbolic ? BPPSA_OK : bppsa_csr_expand(&j->pattern, j->threads);
}

static bppsa_status create_family(bppsa_jacobian *j, const uint8_t *mask) {
  switch (families[j->op.kind]) {
  case FAMILY_CONV:
    return bppsa_jacobian_conv_create(j, mask);
  case FAMILY_POOL:
    return bppsa_jacobian_pool_create(j);
  case FAMILY_STEP:
    return bppsa_jacobian_step_create(j, mask);
  default:
    return bppsa_jacobian_diagonal_create(j);
  }
}

bppsa_status bppsa_jacobian_create(const bppsa_op *op, const uint8_t *mask, bool symbolic, const bppsa_device *device,
                                   bppsa_jacobian **jacobian) {
  BPPSA_REQUIRE(op != NULL && jacobian != NULL);
  if ((unsigned)op->kind >= BPPSA_OPERATOR_COUNT) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "Jacobian: unknown operator %d", (int)op->kind);
  }
  int64_t out[3];
  BPPSA_TRY(bppsa_op_shape(op, out));
  if (mask != NULL && (bppsa_op_weights(op) == 0 || symbolic)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: a mask, expected none for %s", bppsa_op_name(op),
                      symbolic ? "a pattern known by its structure" : "an operator without weights");
  }
  bppsa_jacobian *j = bppsa_calloc(1, sizeof *j);
  if (j == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  j->op = *op;
  j->symbolic = symbolic;
  j->threads = bppsa_device_get_threads(device);
  j->on_gpu = bppsa_device_get_kind(device) == BPPSA_CUDA;
  memcpy(j->out, out, sizeof out);
  bppsa_status status = create_family(j, mask);
  if (status == BPPSA_OK && j->on_gpu && !symbolic) {
    status = bppsa_jacobian_cuda_create(j, device);
  }
  if (status != BPPSA_OK) {
    bppsa_jacobian_destroy(j);
    return status;
  }
  *jacobian = j;
  return BPPSA_OK;
}

void bppsa_jacobian_destroy(bppsa_jacobian *j) {
  if (j == NULL) {
    return;
  }
  bppsa_jacobian_cuda_destroy(j->gpu);
  bppsa_csr_free(&j->pattern);
  bppsa_csr_free(&j->positions);
  bppsa_axis_free(&j->axes[0]);
  bppsa_axis_free(&j->axes[1]);
  bppsa_free(j->class_ptr);
  bppsa_free(j->class_from);
  bppsa_free(j->kept_ptr);
  bppsa_free(j->kept);
  bppsa_free(j->mask);
  bppsa_free(j->scratch);
  bppsa_free(j);
}

const bppsa_op *bppsa_jacobian_op(const bppsa_jacobian *j) {
  return &j->op;
}

const bppsa_csr *bppsa_jacobian_pattern(const bppsa_jacobian *j) {
  return &j->pattern;
}

int64_t bppsa_jacobian_device_bytes(const bppsa_jacobian *j) {
  return j->gpu == NULL ? 0 : bppsa_jacobian_cuda_bytes(j->gpu);
}

bool bppsa_jacobian_shared(const bppsa_jacobian *j) {
  return j->shared;
}

/* The name of the first operand that is needed and missing, or NULL. */
static const char *missing_operand(const bppsa_jacobian *j, const bppsa_jacobian_operands *o) {
  const bppsa_operator kind = j->op.kind;
  if (bppsa_op_weights(&j->op) > 0 && o->weights == NULL) {
    return "weights";
  }
  if (families[kind] == FAMILY_STEP) {
    return o->state == NULL                                               ? "state"
           : o->bias_ih == NULL || o->bias_hh == NULL                     ? "bias"
           : o->inputs > 0 && (o->weights_ih == NULL || o->input == NULL) ? "input and its weights"
                                                                          : NULL;
  }
  if (bppsa_op_is_scaled(&j->op)) {
    return o->scale == NULL ? "scale" : NULL;
  }
  const bool slope = kind == BPPSA_OPERATOR_TANH || kind == BPPSA_OPERATOR_SIGMOID;
  return !j->shared && o->input == NULL && !(slope && o->output != NULL) ? "input" : NULL;
}

bppsa_status bppsa_jacobian_fill(bppsa_jacobian *j, bppsa_dtype dtype, const bppsa_jacobian_operands *operands, void *values) {
  BPPSA_REQUIRE(j != NULL && operands != NULL);
  const char *name = bppsa_op_name(&j->op);
  if (dtype != BPPSA_F32 && dtype != BPPSA_F64) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: dtype %s, expected f32 or f64", name, bppsa_dtype_name(dtype));
  }
  if (j->symbolic || operands->batch < 0 || operands->inputs < 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s, expected %s", name, j->symbolic ? "a symbolic generator" : "a negative batch",
                      j->symbolic ? "one with columns" : "0 or more samples");
  }
  const char *missing = operands->batch > 0 || j->shared ? missing_operand(j, operands) : NULL;
  if (missing != NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: operand '%s' is missing", name, missing);
  }
  if (families[j->op.kind] == FAMILY_STEP && !j->on_gpu && !bppsa_jacobian_step_has(&j->op, dtype)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: the cell's step has no factors in %s", name, bppsa_dtype_name(dtype));
  }
  if (j->on_gpu) {
    return bppsa_jacobian_cuda_fill(j, dtype, operands, values);
  }
  fills[families[j->op.kind]][dtype == BPPSA_F64](j, operands, values);
  return BPPSA_OK;
}
