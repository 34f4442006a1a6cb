/* Transitions: memory, messages, and the plan that makes one. */
#include "scan/transition.h"

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/view.h"
#include "core/compute/flush.h"
#include "core/compute/memory.h"
#include "jacobian/apply.h"
#include "scan/transition_internal.h"

struct bppsa_transition {
  bppsa_transition_shape shape;
  const bppsa_device *device;
  bppsa_product *product; /* csr: of a joined one; otherwise NULL */
  bppsa_apply *apply;     /* csr: of the pattern; otherwise NULL */
  int64_t batch;          /* samples that it holds now */
  /* In the device's memory: */
  char *message; /* values, then exponents, of `batch` samples */
  void *norms;   /* [shape.batch][exponents of a sample] */
  /* On a CPU: */
  void *scratch;   /* [rows + affine][count], then [count], count = rows + columns + 1 */
  int32_t *powers; /* [count] */
  /* On a GPU: */
  int32_t *marks, *fetched; /* [shape.batch]: whether a sample's result is useless, there and in host memory */
};

struct bppsa_transition_maker {
  bppsa_scan_plan *plan;
  bppsa_scan_executor *executor;
  /* On a GPU: the elements are multiplied in `parts` parts at once, a power of two. The first transition holds the parts as
   * samples, part by part; both transitions take turns in holding the joins of pairs. NULL if there is one part. */
  int64_t parts;
  bppsa_transition *held[2];
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

static bool on_gpu(const bppsa_device *device) {
  return bppsa_device_get_kind(device) == BPPSA_CUDA;
}

static bppsa_transition_sizes sizes_of(const bppsa_transition_shape *s) {
  return (bppsa_transition_sizes){
      .dtype = s->dtype, .diagonal = is_diagonal(s), .affine = s->affine, .rows = s->rows, .columns = s->columns};
}

/* ---- arithmetic ---- */

#define EACH_REAL "scan/transition.inc"
#include "core/base/each_real.inc"

bppsa_status bppsa_transition_received(bppsa_transition *t) {
  BPPSA_REQUIRE(t != NULL);
  const bppsa_scan_product product = product_of(t);
  const bppsa_transition_sizes sizes = sizes_of(&t->shape);
  if (is_sparse(&t->shape)) {
    return BPPSA_OK;
  }
  if (on_gpu(t->device)) {
    return bppsa_transition_cuda_measure(t->device, &sizes, t->batch, &product);
  }
  (t->shape.dtype == BPPSA_F32 ? measure_f32 : measure_f64)(t);
  return BPPSA_OK;
}

static bppsa_csr_values sparse_values(const bppsa_transition *t) {
  return (bppsa_csr_values){t->message, t->shape.pattern->nnz};
}

/* Joins `items` groups of `batch` samples: group k of the result is group k of first joined with the group behind it in second,
 * which may be the same transition. step: samples from one group of an operand to the next; skip: samples in front of second's
 * groups. */
static bppsa_status join_on_gpu(const bppsa_transition *first, const bppsa_transition *second, int64_t items, int64_t batch,
                                int64_t step, int64_t skip, bppsa_transition *result) {
  bppsa_transition_joins joins = {.first = product_of(first),
                                  .second = product_of(second),
                                  .result = product_of(result),
                                  .sizes = sizes_of(&result->shape),
                                  .middle = first->shape.columns,
                                  .batch = batch,
                                  .items = items,
                                  .step = step};
  const int64_t size = (int64_t)bppsa_dtype_size(result->shape.dtype), exponents = skip * exponents_of(&second->shape);
  joins.second.values = (char *)joins.second.values + skip * reals_of(&second->shape) * size;
  joins.second.exponents += exponents;
  joins.second.norms = (char *)joins.second.norms + exponents * size;
  return bppsa_transition_cuda_join(result->device, &joins);
}

bppsa_status bppsa_transition_join(const bppsa_transition *first, const bppsa_transition *second, bppsa_transition *result) {
  BPPSA_REQUIRE(first != NULL && second != NULL && result != NULL);
  result->batch = first->batch;
  if (is_sparse(&result->shape)) {
    return bppsa_product_execute(result->product, first->batch, sparse_values(second), sparse_values(first), result->message);
  }
  if (on_gpu(result->device)) {
    return join_on_gpu(first, second, 1, first->batch, first->batch, 0, result);
  }
  (result->shape.dtype == BPPSA_F32 ? join_f32 : join_f64)(first, second, result);
  return BPPSA_OK;
}

static bppsa_status apply_on_gpu(bppsa_transition *t, const void *in, void *out, bool *useless, int64_t *count) {
  const bppsa_scan_product product = product_of(t);
  const bppsa_transition_sizes sizes = sizes_of(&t->shape);
  int64_t sum = 0;
  BPPSA_TRY(bppsa_transition_cuda_apply(t->device, &sizes, t->batch, &product, in, out, t->marks));
  BPPSA_TRY(bppsa_memory_get(t->device, t->fetched, t->marks, t->batch * (int64_t)sizeof *t->marks));
  for (int64_t b = 0; b < t->batch; ++b) {
    useless[b] = t->fetched[b] != 0;
    sum += useless[b];
  }
  *count = sum;
  return BPPSA_OK;
}

bppsa_status bppsa_transition_apply(bppsa_transition *t, const void *in, void *out, bool *useless, int64_t *count) {
  BPPSA_REQUIRE(t != NULL && in != NULL && out != NULL && useless != NULL && count != NULL);
  if (is_sparse(&t->shape)) {
    BPPSA_TRY(bppsa_apply_execute(t->apply, t->batch, sparse_values(t), in, out));
    memset(useless, 0, (size_t)t->batch * sizeof *useless);
    *count = 0;
    return BPPSA_OK;
  }
  if (on_gpu(t->device)) {
    return apply_on_gpu(t, in, out, useless, count);
  }
  *count = (t->shape.dtype == BPPSA_F32 ? apply_f32 : apply_f64)(t, in, out, useless);
  return BPPSA_OK;
}

/* ---- memory ---- */

void bppsa_transition_destroy(bppsa_transition *t) {
  if (t != NULL) {
    bppsa_apply_destroy(t->apply);
    bppsa_product_destroy(t->product);
    bppsa_memory_free(t->device, t->message);
    bppsa_memory_free(t->device, t->norms);
    bppsa_memory_free(t->device, t->marks);
    bppsa_free(t->scratch);
    bppsa_free(t->powers);
    bppsa_free(t->fetched);
    bppsa_free(t);
  }
}

/* Memory of the device, cleared. */
static bppsa_status reserve(const bppsa_device *device, int64_t bytes, void **data) {
  BPPSA_TRY(bppsa_memory_alloc(device, bytes, data));
  return bppsa_memory_clear(device, *data, bytes);
}

static bppsa_status reserve_sparse(bppsa_transition *t) {
  const bppsa_transition_shape *s = &t->shape;
  int64_t reals, bytes;
  if (!bppsa_mul(s->pattern->nnz, s->batch, &reals) || !bppsa_mul(reals, (int64_t)bppsa_dtype_size(s->dtype), &bytes)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "transition: %lld values for %lld samples do not fit in 64 bits",
                      (long long)s->pattern->nnz, (long long)s->batch);
  }
  BPPSA_TRY(reserve(t->device, bytes, (void **)&t->message));
  return bppsa_apply_create(s->pattern, s->dtype, t->device, &t->apply);
}

/* What joins and gradients need besides the products. */
static bppsa_status reserve_scratch(bppsa_transition *t, int64_t scratch, int64_t count) {
  const bppsa_transition_sizes sizes = sizes_of(&t->shape);
  if (on_gpu(t->device)) {
    BPPSA_TRY(bppsa_transition_cuda_prepare(t->device, &sizes));
    BPPSA_TRY(reserve(t->device, t->shape.batch * (int64_t)sizeof *t->marks, (void **)&t->marks));
    t->fetched = bppsa_calloc(t->shape.batch, sizeof *t->fetched);
    return t->fetched != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
  }
  t->scratch = bppsa_alloc((size_t)scratch);
  t->powers = bppsa_calloc(count, sizeof *t->powers);
  return t->scratch != NULL && t->powers != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

static bppsa_status reserve_rows(bppsa_transition *t) {
  const bppsa_transition_shape *s = &t->shape;
  const int64_t size = (int64_t)bppsa_dtype_size(s->dtype), count = s->rows + s->columns + 1;
  int64_t reals, bytes, scratch;
  if (!bppsa_mul(s->rows + 1, s->columns + 1, &reals) || !bppsa_mul(2 * reals, s->batch, &bytes) ||
      !bppsa_mul(bytes, 2 * size, &bytes) || !bppsa_mul((s->rows + 2) * count, size, &scratch)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "transition: %lld x %lld numbers for %lld samples do not fit in 64 bits",
                      (long long)s->rows, (long long)s->columns, (long long)s->batch);
  }
  BPPSA_TRY(reserve(t->device, bppsa_transition_bytes(s, s->batch), (void **)&t->message));
  BPPSA_TRY(reserve(t->device, s->batch * exponents_of(s) * size, &t->norms));
  return reserve_scratch(t, scratch, count);
}

bppsa_status bppsa_transition_create(const bppsa_transition_shape *shape, const bppsa_device *device,
                                     bppsa_transition **transition) {
  BPPSA_REQUIRE(shape != NULL && device != NULL && transition != NULL);
  bppsa_transition *t = bppsa_calloc(1, sizeof *t);
  if (t == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  t->shape = *shape;
  t->device = device;
  const bppsa_status status = is_sparse(shape) ? reserve_sparse(t) : reserve_rows(t);
  if (status != BPPSA_OK) {
    bppsa_transition_destroy(t);
    return status;
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
  const bppsa_status status = bppsa_transition_create(&shape, device, transition);
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
  bppsa_view view = bppsa_view_make(t->message, BPPSA_U8, 1, &bytes);
  view.device = bppsa_device_get_kind(t->device);
  t->batch = batch;
  return view;
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

/* Parts of a chain on a GPU: as many as keep it busy, of at least four elements each. */
static int64_t parts_of(const bppsa_scan_config *c) {
  enum { BUSY_ROWS = 1 << 14, LEAST_LENGTH = 4 };
  const int64_t rows =
      c->batch * (c->dim + c->affine); /* vectors or, of diagonals, numbers that a part takes through its steps */
  int64_t parts = 1;
  while (c->dims == NULL && 2 * parts <= c->jacobians / LEAST_LENGTH && parts <= BUSY_ROWS / 2 / rows) {
    parts *= 2;
  }
  return parts;
}

static bppsa_status hold_parts(bppsa_transition_maker *m, const bppsa_device *device) {
  bppsa_transition_shape shape = bppsa_transition_maker_shape(m);
  m->parts = parts_of(&m->plan->config);
  for (int i = 0; i < 2 && m->parts >> i > 1; ++i) { /* two parts are joined to the result */
    shape.batch = m->plan->config.batch * (m->parts >> i);
    BPPSA_TRY(bppsa_transition_create(&shape, device, &m->held[i]));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_transition_maker_create(const bppsa_scan_config *config, const bppsa_device *device,
                                           bppsa_transition_maker **maker) {
  BPPSA_REQUIRE(config != NULL && device != NULL && maker != NULL);
  const bppsa_device_kind kind = bppsa_device_get_kind(device);
  if (config->jacobians < 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "transition of %lld elements, expected at least 1", (long long)config->jacobians);
  }
  const bppsa_scan_element_row *element = bppsa_scan_element_find(config->element);
  /* parts are held by the transitions, and their plan holds nothing */
  const bool sparse = config->element == BPPSA_ELEMENT_CSR, parts = kind == BPPSA_CUDA && !sparse;
  bppsa_scan_config own = *config;
  own.method = bppsa_scan_method_of(sparse || parts ? BPPSA_SCAN_LINEAR : BPPSA_SCAN_CHUNKED);
  own.planner = device;
  own.input = false;
  bppsa_transition_maker *m = bppsa_calloc(1, sizeof *m);
  if (m == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_status status = parts ? bppsa_scan_plan_create(&own, &m->plan) : bppsa_scan_create_row(&own, &transition_row, &m->plan);
  status = status == BPPSA_OK ? element->product[kind](m->plan, device, &m->executor) : status;
  status = status == BPPSA_OK && parts ? hold_parts(m, device) : status;
  if (status != BPPSA_OK) {
    bppsa_transition_maker_destroy(m);
    return status;
  }
  *maker = m;
  return BPPSA_OK;
}

void bppsa_transition_maker_destroy(bppsa_transition_maker *maker) {
  if (maker != NULL) {
    bppsa_transition_destroy(maker->held[0]);
    bppsa_transition_destroy(maker->held[1]);
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

/* Writes the values of the product of all sparse elements, one sample behind the other. */
static bppsa_status make_sparse(bppsa_transition_maker *maker, const bppsa_scan_operands *operands, bppsa_transition *t) {
  const int64_t size = (int64_t)bppsa_dtype_size(t->shape.dtype), bytes = t->shape.pattern->nnz * size;
  BPPSA_TRY(maker->executor->execute(maker->executor, operands));
  const bppsa_csr_values product = on_gpu(t->device) ? bppsa_scan_csr_cuda_product(maker->executor, operands)
                                                     : bppsa_scan_csr_product(maker->executor, operands);
  for (int64_t b = 0; b < operands->batch && !t->shape.pattern->identity; ++b) {
    const char *from = (const char *)product.data + b * product.stride * size;
    BPPSA_TRY(bppsa_memory_queue_copy(t->device, t->message + b * bytes, bytes, from, bytes, bytes, 1));
  }
  return BPPSA_OK;
}

/* Marks the products of samples of which an element is cut. */
static void mark_cuts(const bppsa_transition_maker *maker, const bppsa_scan_operands *o, const bppsa_transition *t) {
  const int64_t count = o->cuts != NULL ? maker->plan->config.jacobians * o->batch : 0;
  for (int64_t i = 0; i < count; ++i) {
    if (o->cuts[i]) {
      product_of(t).exponents[i % o->batch * exponents_of(&t->shape)] = BPPSA_TRANSITION_CUT;
    }
  }
}

/* Makes the products of all parts, then joins them in pairs, level by level; the last one is *t. */
static bppsa_status make_on_gpu(bppsa_transition_maker *m, const bppsa_scan_operands *operands, bppsa_transition *t) {
  const int64_t batch = operands->batch;
  bppsa_transition *from = m->parts > 1 ? m->held[0] : t;
  from->batch = m->parts * batch;
  const bppsa_scan_product products = product_of(from);
  BPPSA_TRY(bppsa_scan_cuda_products(m->executor, operands, m->parts, &products));
  if (operands->cuts != NULL) {
    const bppsa_transition_sizes sizes = sizes_of(&t->shape);
    BPPSA_TRY(
        bppsa_transition_cuda_mark(t->device, &sizes, operands->cuts, m->plan->config.jacobians, batch, m->parts, &products));
  }
  for (int64_t joins = m->parts / 2; joins >= 1; joins /= 2) {
    bppsa_transition *to = joins == 1 ? t : from == m->held[0] ? m->held[1] : m->held[0];
    to->batch = joins * batch;
    BPPSA_TRY(join_on_gpu(from, from, joins, batch, 2 * batch, batch, to));
    from = to;
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
  if (on_gpu(transition->device)) {
    return make_on_gpu(maker, operands, transition);
  }
  const bppsa_scan_cpu *cpu = (const bppsa_scan_cpu *)maker->executor;
  const bppsa_scan_product to = product_of(transition);
  if (transition->shape.dtype == BPPSA_F32) {
    bppsa_scan_cpu_transition_f32(cpu, operands, &to);
  } else {
    bppsa_scan_cpu_transition_f64(cpu, operands, &to);
  }
  mark_cuts(maker, operands, transition);
  return BPPSA_OK;
}
