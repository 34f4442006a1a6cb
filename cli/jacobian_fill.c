#include "cli/jacobian_fill.h"

#include "cli/bench_sparse.h"
#include "core/memory.h"

enum { OPERANDS = 7 };

/* An operand: where its pointer stands, its values. */
typedef struct {
  const void **at;
  int64_t count;
} operand;

static void list_operands(const bppsa_jacobian *j, bppsa_jacobian_operands *o, operand list[OPERANDS]) {
  const bppsa_op *op = bppsa_jacobian_op(j);
  const bool cell = op->kind == BPPSA_OPERATOR_STEP;
  const int64_t units = op->in[0] * op->in[1] * op->in[2], gates = cell ? op->step->gates : 0;
  const operand all[OPERANDS] = {
      {&o->weights, bppsa_op_weights(op)}, {&o->input, o->batch * (cell ? o->inputs : units)}, {&o->output, o->batch * units},
      {&o->state, o->batch * units},       {&o->weights_ih, gates * units * o->inputs},        {&o->bias_ih, gates * units},
      {&o->bias_hh, gates * units}};
  for (int i = 0; i < OPERANDS; ++i) {
    list[i] = all[i];
  }
}

/* The first fill on a GPU also loads its kernels; the one that is timed is the second. */
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
  bppsa_jacobian_operands there = *operands;
  operand list[OPERANDS];
  list_operands(j, &there, list);
  for (int i = 0; i < OPERANDS; ++i) {
    if (*list[i].at != NULL) {
      BPPSA_TRY(bppsa_memory_alloc(device, list[i].count * size, &moved[i]));
      BPPSA_TRY(bppsa_memory_put(device, moved[i], *list[i].at, list[i].count * size));
      *list[i].at = moved[i];
    }
  }
  BPPSA_TRY(bppsa_memory_alloc(device, bytes, &moved[OPERANDS]));
  BPPSA_TRY(fill_timed(device, j, dtype, &there, moved[OPERANDS], seconds));
  return bppsa_memory_get(device, values, moved[OPERANDS], bytes);
}

bppsa_status bppsa_cli_jacobian_fill(const bppsa_device *device, bppsa_jacobian *j, bppsa_dtype dtype,
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
