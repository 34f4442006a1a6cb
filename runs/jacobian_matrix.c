#include "runs/jacobian_matrix.h"

#include <inttypes.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/compute/memory.h"
#include "draw/spy.h"
#include "jacobian/file.h"

/* ---- values ---- */

enum { OPERANDS = 7 };

/* An operand: the address of its pointer, and its number of values. */
typedef struct {
  const void **at;
  int64_t count;
} operand;

static void list_operands(const bppsa_jacobian *j, bppsa_jacobian_operands *o, operand list[OPERANDS]) {
  const bppsa_op *op = bppsa_jacobian_op(j);
  const bool cell = op->kind == BPPSA_OPERATOR_STEP;
  const int64_t units = op->in[0] * op->in[1] * op->in[2], rows = cell ? op->step->gates * bppsa_op_units(op) : 0;
  const operand all[OPERANDS] = {{&o->weights, bppsa_op_weights(op)},
                                 {&o->input, o->batch * (cell ? o->inputs : units)},
                                 {&o->output, o->batch * units},
                                 {&o->state, o->batch * units},
                                 {&o->weights_ih, rows * o->inputs},
                                 {&o->bias_ih, rows},
                                 {&o->bias_hh, rows}};
  for (int i = 0; i < OPERANDS; ++i) {
    list[i] = all[i];
  }
}

/* Times the second of two fills, because the first one on a GPU also loads the kernels. */
static bppsa_status fill_timed(const bppsa_device *device, bppsa_jacobian *j, bppsa_dtype dtype,
                               const bppsa_jacobian_operands *operands, void *values, double *seconds) {
  double start = 0;
  for (int time = 0; time < 2; ++time) {
    start = bppsa_now();
    BPPSA_TRY(bppsa_jacobian_fill(j, dtype, operands, values));
    BPPSA_TRY(bppsa_device_wait(device));
  }
  *seconds = bppsa_now() - start;
  return BPPSA_OK;
}

static bppsa_status fill_on_gpu(const bppsa_device *device, bppsa_jacobian *j, bppsa_dtype dtype,
                                const bppsa_jacobian_operands *operands, void *values, void *moved[OPERANDS + 1],
                                double *seconds) {
  const int64_t size = (int64_t)bppsa_dtype_size(dtype), nnz = bppsa_jacobian_pattern(j)->nnz;
  const int64_t bytes = nnz * (bppsa_jacobian_shared(j) ? 1 : operands->batch) * size;
  bppsa_jacobian_operands on_device = *operands;
  operand list[OPERANDS];
  list_operands(j, &on_device, list);
  for (int i = 0; i < OPERANDS; ++i) {
    if (*list[i].at != NULL) {
      BPPSA_TRY(bppsa_memory_alloc(device, list[i].count * size, &moved[i]));
      BPPSA_TRY(bppsa_memory_put(device, moved[i], *list[i].at, list[i].count * size));
      *list[i].at = moved[i];
    }
  }
  BPPSA_TRY(bppsa_memory_alloc(device, bytes, &moved[OPERANDS]));
  BPPSA_TRY(fill_timed(device, j, dtype, &on_device, moved[OPERANDS], seconds));
  return bppsa_memory_get(device, values, moved[OPERANDS], bytes);
}

/* Computes values on the device from operands in host memory, into host memory. *seconds: for the computation alone. */
static bppsa_status fill(const bppsa_device *device, bppsa_jacobian *j, bppsa_dtype dtype,
                         const bppsa_jacobian_operands *operands, void *values, double *seconds) {
  if (bppsa_device_get_kind(device) == BPPSA_CPU) {
    const double start = bppsa_now();
    BPPSA_TRY(bppsa_jacobian_fill(j, dtype, operands, values));
    *seconds = bppsa_now() - start;
    return BPPSA_OK;
  }
  void *moved[OPERANDS + 1] = {NULL};
  const bppsa_status status = fill_on_gpu(device, j, dtype, operands, values, moved, seconds);
  for (int i = 0; i <= OPERANDS; ++i) {
    bppsa_memory_free(device, moved[i]);
  }
  return status;
}

static bppsa_status make_values(const bppsa_jacobian_request *request, const bppsa_device *device, bppsa_jacobian_matrix *m) {
  bppsa_jacobian_operands operands = request->operands;
  m->values = bppsa_alloc((size_t)m->csr->nnz * bppsa_dtype_size(m->dtype));
  if (m->values == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_view view = bppsa_view_make(m->values, m->dtype, 1, &m->csr->nnz);
  for (int64_t i = 0; !m->filled && i < m->csr->nnz; ++i) {
    bppsa_view_set(&view, i, 1);
  }
  operands.batch = 1;
  return m->filled ? fill(device, m->generator, m->dtype, &operands, m->values, &m->fill_s) : BPPSA_OK;
}

/* ---- the matrix ---- */

static bppsa_status make_compact(bppsa_jacobian_matrix *m) {
  void *values = NULL;
  BPPSA_TRY(bppsa_csr_compact(m->csr, m->dtype, m->values, &m->compact, &values));
  bppsa_free(m->values);
  m->values = values;
  m->csr = &m->compact;
  return BPPSA_OK;
}

/* Counts the bytes of pattern and values before they are allocated: 4 for each column index, 8 for each offset, and the values. */
static bppsa_status check_memory(const bppsa_jacobian_request *request) {
  bppsa_op_size size;
  BPPSA_TRY(bppsa_op_count(&request->op, &size));
  const double rows = (double)request->op.in[0] * (double)request->op.in[1] * (double)request->op.in[2];
  const double bytes = (double)size.entries * (double)(4 + bppsa_dtype_size(request->dtype)) + 8.0 * rows;
  const double most = 0.75 * (double)request->memory;
  return request->mask != NULL || bytes <= most
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: the matrix needs %.0f bytes, expected at most 3/4 of the %.0f available",
                          bppsa_op_name(&request->op), bytes, most / 0.75);
}

static bppsa_status make(const bppsa_jacobian_request *request, const bppsa_device *device, bppsa_jacobian_matrix *m) {
  BPPSA_TRY(check_memory(request));
  const double start = bppsa_now();
  BPPSA_TRY(bppsa_jacobian_create(&m->op, request->mask, false, device, &m->generator));
  m->plan_s = bppsa_now() - start;
  m->csr = bppsa_jacobian_pattern(m->generator);
  BPPSA_TRY(make_values(request, device, m));
  return request->compact ? make_compact(m) : BPPSA_OK;
}

bppsa_status bppsa_jacobian_matrix_create(const bppsa_jacobian_request *request, const bppsa_device *device,
                                          bppsa_jacobian_matrix *matrix) {
  bppsa_jacobian_matrix made = {.op = request->op, .dtype = request->dtype, .filled = request->filled};
  const bppsa_status status = make(request, device, &made);
  if (status != BPPSA_OK) {
    bppsa_jacobian_matrix_free(&made);
    return status;
  }
  *matrix = made;
  matrix->csr = request->compact ? &matrix->compact : made.csr;
  return BPPSA_OK;
}

void bppsa_jacobian_matrix_free(bppsa_jacobian_matrix *matrix) {
  bppsa_free(matrix->values);
  bppsa_csr_free(&matrix->compact);
  bppsa_jacobian_destroy(matrix->generator);
  *matrix = (bppsa_jacobian_matrix){0};
}

bppsa_status bppsa_jacobian_picture(const bppsa_jacobian_matrix *m, const char *path, const char *spy) {
  BPPSA_TRY(path != NULL ? bppsa_csr_save(path, m->csr, m->dtype, m->values) : BPPSA_OK);
  return spy != NULL ? bppsa_spy_save(spy, m->csr->rows, m->csr->cols, m->csr->row_ptr, m->csr->col, m->dtype, m->values)
                     : BPPSA_OK;
}

/* ---- numbers ---- */

json_t *bppsa_jacobian_matrix_json(const bppsa_jacobian_matrix *m) {
  int64_t out[3] = {0};
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_op_shape(&m->op, out) == BPPSA_OK;
  ok = ok && bppsa_json_put_text(object, "operator", bppsa_op_name(&m->op));
  ok = ok && bppsa_json_put_shape(object, "in_shape", 3, m->op.in);
  ok = ok && bppsa_json_put_shape(object, "out_shape", 3, out);
  ok = ok && bppsa_json_put_integer(object, "rows", m->csr->rows);
  ok = ok && bppsa_json_put_integer(object, "cols", m->csr->cols);
  ok = ok && bppsa_json_put_integer(object, "nnz", m->csr->nnz);
  ok = ok && bppsa_json_put_real(object, "sparsity", bppsa_csr_sparsity(m->csr));
  ok = ok && bppsa_json_put_integer(object, "csr_bytes", bppsa_csr_bytes(m->csr, m->dtype));
  ok = ok && bppsa_json_put_integer(object, "own_bytes", bppsa_csr_bytes(m->csr, m->dtype) + 4 * (m->csr->rows + 1));
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(m->dtype));
  ok = ok && bppsa_json_put_bool(object, "values", m->filled);
  ok = ok && bppsa_json_put_real(object, "plan_s", m->plan_s);
  ok = ok && bppsa_json_put_real(object, "fill_s", m->fill_s);
  return bppsa_json_finish(object, ok);
}

void bppsa_jacobian_matrix_text(const bppsa_jacobian_matrix *m, bppsa_text *text) {
  char bytes[BPPSA_SI_TEXT], in_text[BPPSA_SHAPE_TEXT], out_text[BPPSA_SHAPE_TEXT];
  int64_t out[3] = {0};
  (void)bppsa_op_shape(&m->op, out); /* cannot fail: the matrix was made with this shape */
  bppsa_text_add(text, "%s %s to %s, transposed, %s%s\n", bppsa_op_name(&m->op),
                 bppsa_shape_text(3, m->op.in, in_text, sizeof in_text), bppsa_shape_text(3, out, out_text, sizeof out_text),
                 bppsa_dtype_name(m->dtype), m->filled ? "" : ", all values 1");
  bppsa_text_add(text, "  shape      %" PRId64 " x %" PRId64 "\n  nnz        %" PRId64 "\n  sparsity   %.6f\n", m->csr->rows,
                 m->csr->cols, m->csr->nnz, bppsa_csr_sparsity(m->csr));
  bppsa_text_add(text, "  bytes      %" PRId64 " as CSR with int32 offsets (%s)\n", bppsa_csr_bytes(m->csr, m->dtype),
                 bppsa_text_si((double)bppsa_csr_bytes(m->csr, m->dtype), "B", bytes, sizeof bytes));
  bppsa_text_add(text, "  time       %.3g ms pattern, %.3g ms values\n", 1e3 * m->plan_s, 1e3 * m->fill_s);
}
