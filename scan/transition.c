/* Transitions: memory, messages, and the plan that makes one. */
#include "scan/transition.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/blas.h"
#include "core/flush.h"
#include "core/view.h"
#include "scan/scan_internal.h"

struct bppsa_transition {
  bppsa_transition_shape shape;
  bppsa_product *product; /* csr: of a joined one; otherwise NULL */
  int64_t batch;          /* samples that it holds now */
  char *message;          /* values, then exponents, of `batch` samples */
  void *norms;            /* [shape.batch][exponents of a sample] */
  void *scratch;          /* [rows + affine][count], then [count], count = rows + columns + 1 */
  int32_t *powers;        /* [count] */
};

struct bppsa_transition_maker {
  bppsa_scan_plan *plan;
  bppsa_scan_executor *executor;
};

/* ---- sizes ---- */

static bool is_diagonal(const bppsa_transition_shape *s) {
  return s->element == BPPSA_ELEMENT_DIAGONAL;
}

static bool is_sparse(const bppsa_transition_shape *s) {
  return s->element == BPPSA_ELEMENT_CSR;
}

/* Reals and exponents of a sample. */
static int64_t reals_of(const bppsa_transition_shape *s) {
  return is_sparse(s) ? s->pattern->nnz : ((is_diagonal(s) ? 1 : s->rows) + s->affine) * s->columns;
}

static int64_t exponents_of(const bppsa_transition_shape *s) {
  return is_sparse(s) ? 0 : is_diagonal(s) ? reals_of(s) : s->rows + s->affine;
}

int64_t bppsa_transition_bytes(const bppsa_transition_shape *s, int64_t batch) {
  return batch * (reals_of(s) * (int64_t)bppsa_dtype_size(s->dtype) + exponents_of(s) * (int64_t)sizeof(int32_t));
}

static bppsa_scan_product product_of(const bppsa_transition *t) {
  const int64_t reals = t->batch * reals_of(&t->shape) * (int64_t)bppsa_dtype_size(t->shape.dtype);
  return (bppsa_scan_product){.values = t->message, .exponents = (int32_t *)(void *)(t->message + reals), .norms = t->norms};
}

/* ---- arithmetic ---- */

#define EACH_REAL "scan/transition.inc"
#include "core/each_real.inc"

void bppsa_transition_received(bppsa_transition *t) {
  if (is_sparse(&t->shape)) {
    return;
  }
  if (t->shape.dtype == BPPSA_F32) {
    measure_f32(t);
  } else {
    measure_f64(t);
  }
}

static bppsa_csr_values sparse_values(const bppsa_transition *t) {
  return (bppsa_csr_values){t->message, t->shape.pattern->nnz};
}

bppsa_status bppsa_transition_join(const bppsa_transition *first, const bppsa_transition *second, bppsa_transition *result) {
  BPPSA_REQUIRE(first != NULL && second != NULL && result != NULL);
  result->batch = first->batch;
  if (is_sparse(&result->shape)) {
    return bppsa_product_execute(result->product, first->batch, sparse_values(second), sparse_values(first), result->message);
  }
  if (result->shape.dtype == BPPSA_F32) {
    join_f32(first, second, result);
  } else {
    join_f64(first, second, result);
  }
  return BPPSA_OK;
}

static void apply_sparse(const bppsa_transition *t, const void *in, void *out) {
  const bppsa_transition_shape *s = &t->shape;
  if (s->pattern->identity) {
    memcpy(out, in, (size_t)(t->batch * s->rows) * bppsa_dtype_size(s->dtype));
  } else {
    bppsa_csr_apply(s->pattern, s->dtype, 1, t->batch, sparse_values(t), in, out);
  }
}

int64_t bppsa_transition_apply(bppsa_transition *t, const void *in, void *out, bool *useless) {
  if (is_sparse(&t->shape)) {
    apply_sparse(t, in, out);
    memset(useless, 0, (size_t)t->batch * sizeof *useless);
    return 0;
  }
  return t->shape.dtype == BPPSA_F32 ? apply_f32(t, in, out, useless) : apply_f64(t, in, out, useless);
}

/* ---- memory ---- */

void bppsa_transition_destroy(bppsa_transition *t) {
  if (t != NULL) {
    bppsa_product_destroy(t->product);
    bppsa_free(t->message);
    bppsa_free(t->norms);
    bppsa_free(t->scratch);
    bppsa_free(t->powers);
    bppsa_free(t);
  }
}

static bppsa_status create_sparse(const bppsa_transition_shape *shape, bppsa_transition **transition) {
  int64_t reals;
  if (!bppsa_mul(shape->pattern->nnz, shape->batch, &reals)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "transition: %lld values for %lld samples do not fit in 64 bits",
                      (long long)shape->pattern->nnz, (long long)shape->batch);
  }
  bppsa_transition *t = bppsa_calloc(1, sizeof *t);
  if (t == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  t->shape = *shape;
  t->message = bppsa_calloc(reals, bppsa_dtype_size(shape->dtype));
  if (t->message == NULL) {
    bppsa_transition_destroy(t);
    return BPPSA_ERR_MEMORY;
  }
  *transition = t;
  return BPPSA_OK;
}

bppsa_status bppsa_transition_create(const bppsa_transition_shape *shape, bppsa_transition **transition) {
  BPPSA_REQUIRE(shape != NULL && transition != NULL);
  if (is_sparse(shape)) {
    return create_sparse(shape, transition);
  }
  const int64_t size = (int64_t)bppsa_dtype_size(shape->dtype), count = shape->rows + shape->columns + 1;
  int64_t reals, bytes, scratch;
  if (!bppsa_mul(shape->rows + 1, shape->columns + 1, &reals) || !bppsa_mul(2 * reals, shape->batch, &bytes) ||
      !bppsa_mul(bytes, 2 * size, &bytes) || !bppsa_mul((shape->rows + 2) * count, size, &scratch)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "transition: %lld x %lld numbers for %lld samples do not fit in 64 bits",
                      (long long)shape->rows, (long long)shape->columns, (long long)shape->batch);
  }
  bppsa_transition *t = bppsa_calloc(1, sizeof *t);
  if (t == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  t->shape = *shape;
  t->message = bppsa_calloc(bppsa_transition_bytes(shape, shape->batch), 1);
  t->norms = bppsa_calloc(shape->batch * exponents_of(shape), (size_t)size);
  t->scratch = bppsa_alloc((size_t)scratch);
  t->powers = bppsa_calloc(count, sizeof *t->powers);
  if (t->message == NULL || t->norms == NULL || t->scratch == NULL || t->powers == NULL) {
    bppsa_transition_destroy(t);
    return BPPSA_ERR_MEMORY;
  }
  *transition = t;
  return BPPSA_OK;
}

bppsa_status bppsa_transition_create_joined(const bppsa_transition *first, const bppsa_transition *second,
                                            const bppsa_device *device, bppsa_transition **transition) {
  BPPSA_REQUIRE(first != NULL && second != NULL && device != NULL && transition != NULL);
  bppsa_transition_shape shape = first->shape;
  bppsa_product *product = NULL;
  shape.columns = second->shape.columns;
  if (is_sparse(&shape)) {
    bppsa_product_config config = bppsa_product_config_default();
    config.dtype = shape.dtype;
    BPPSA_TRY(bppsa_product_create(second->shape.pattern, first->shape.pattern, &config, device, &product));
    shape.pattern = bppsa_product_pattern(product);
  }
  const bppsa_status status = bppsa_transition_create(&shape, transition);
  if (status != BPPSA_OK) {
    bppsa_product_destroy(product);
    return status;
  }
  (*transition)->product = product;
  return BPPSA_OK;
}

const bppsa_transition_shape *bppsa_transition_get_shape(const bppsa_transition *transition) {
  return &transition->shape;
}

bppsa_view bppsa_transition_view(bppsa_transition *t, int64_t batch) {
  const int64_t bytes = bppsa_transition_bytes(&t->shape, batch);
  t->batch = batch;
  return bppsa_view_make(t->message, BPPSA_U8, 1, &bytes);
}

/* ---- making one ---- */

/* One chain over all elements, in one slot. A single element is copied, not multiplied. */
static void write_transition(int64_t n, const bppsa_scan_method *method, bppsa_scan_records *to) {
  (void)method;
  bppsa_scan_add_record(to, (bppsa_scan_level){.phase = BPPSA_PHASE_UP,
                                               .op = BPPSA_OP_MM,
                                               .chain = true,
                                               .first = 1,
                                               .stride = 1,
                                               .count = 1,
                                               .span = 1,
                                               .length = n - 1});
  to->level_count = 1;
  to->slot_count = n > 1;
}

static const bppsa_scan_algorithm_row transition_row = {
    .name = "transition", .write = write_transition, .slot_rule = BPPSA_SLOT_ONE, .sparse = true};

bppsa_status bppsa_transition_maker_create(const bppsa_scan_config *config, const bppsa_device *device,
                                           bppsa_transition_maker **maker) {
  BPPSA_REQUIRE(config != NULL && device != NULL && maker != NULL);
  if (bppsa_device_get_kind(device) != BPPSA_CPU) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "transition on device %s, expected cpu", bppsa_device_get_name(device));
  }
  if (config->jacobians < 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "transition of %lld elements, expected at least 1", (long long)config->jacobians);
  }
  const bppsa_scan_element_row *element = bppsa_scan_element_find(config->element);
  if (element != NULL && element->product == NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "transition of %s elements, which have no product, expected other elements",
                      element->name);
  }
  bppsa_scan_config own = *config;
  const bool sparse = config->element == BPPSA_ELEMENT_CSR;
  own.method = bppsa_scan_method_of(sparse ? BPPSA_SCAN_LINEAR : BPPSA_SCAN_CHUNKED);
  own.planner = device;
  own.input = false;
  bppsa_transition_maker *m = bppsa_calloc(1, sizeof *m);
  if (m == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_status status = bppsa_scan_create_row(&own, &transition_row, &m->plan);
  if (status == BPPSA_OK) {
    status = element->product(m->plan, device, &m->executor);
  }
  if (status != BPPSA_OK) {
    bppsa_transition_maker_destroy(m);
    return status;
  }
  *maker = m;
  return BPPSA_OK;
}

void bppsa_transition_maker_destroy(bppsa_transition_maker *maker) {
  if (maker != NULL) {
    bppsa_scan_executor_destroy(maker->executor);
    bppsa_scan_plan_destroy(maker->plan);
    bppsa_free(maker);
  }
}

bppsa_transition_shape bppsa_transition_maker_shape(const bppsa_transition_maker *maker) {
  const bppsa_scan_config *c = &maker->plan->config;
  return (bppsa_transition_shape){
      .element = c->element,
      .dtype = c->dtype,
      .affine = c->affine,
      .batch = c->batch,
      .rows = bppsa_scan_plan_dim(maker->plan, 1),
      .columns = bppsa_scan_plan_dim(maker->plan, c->jacobians + 1),
      .pattern = c->element == BPPSA_ELEMENT_CSR ? bppsa_scan_csr_pattern(maker->plan, 1, c->jacobians) : NULL};
}

/* The values of the product of all sparse elements, one sample behind the other. */
static bppsa_status make_sparse(bppsa_transition_maker *maker, const bppsa_scan_operands *operands, bppsa_transition *t) {
  const int64_t size = (int64_t)bppsa_dtype_size(t->shape.dtype), nnz = t->shape.pattern->nnz;
  BPPSA_TRY(maker->executor->execute(maker->executor, operands));
  const bppsa_csr_values product = bppsa_scan_csr_product(maker->executor, operands);
  for (int64_t b = 0; b < operands->batch && !t->shape.pattern->identity; ++b) {
    memcpy(t->message + b * nnz * size, (const char *)product.data + b * product.stride * size, (size_t)(nnz * size));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_transition_make(bppsa_transition_maker *maker, const bppsa_scan_operands *operands,
                                   bppsa_transition *transition) {
  BPPSA_REQUIRE(maker != NULL && operands != NULL && transition != NULL);
  BPPSA_TRY(bppsa_scan_check_operands(maker->plan, operands));
  transition->batch = operands->batch;
  if (is_sparse(&transition->shape)) {
    return make_sparse(maker, operands, transition);
  }
  const bppsa_scan_cpu *cpu = (const bppsa_scan_cpu *)maker->executor;
  const bppsa_scan_product to = product_of(transition);
  if (transition->shape.dtype == BPPSA_F32) {
    bppsa_scan_cpu_transition_f32(cpu, operands, &to);
  } else {
    bppsa_scan_cpu_transition_f64(cpu, operands, &to);
  }
  return BPPSA_OK;
}
