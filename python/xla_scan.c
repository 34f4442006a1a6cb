/* The handler of bppsa.jax.scan (python/xla_scan.h). */
#include "python/xla_scan.h"

#include <string.h>

#include "python/xla_call.h"
#include "scan/scan.h"

enum { MATRICES, ADDED, BEGIN, STATES, ARRAYS };

/* The axes of each array, without E. Of diagonals the last one is missing. */
static const struct { const char *name, *axes; } table[ARRAYS] = {{"a", "TBHH"}, {"b", "TBH"}, {"h0", "BH"}, {"result", "NBH"}};

typedef struct {
  char method[BPPSA_XLA_WORD];
  int64_t diagonal, affine, reverse, transposed, threads;
  const bppsa_xla_buffer *arrays[ARRAYS]; /* of ADDED: NULL unless affine */
  int64_t members, steps, batch, hidden;  /* E or 1, T, B, H */
  bppsa_dtype dtype;
} call;

static bppsa_status read_attributes(const bppsa_xla_attributes *attributes, call *c) {
  BPPSA_TRY(bppsa_xla_read_word(attributes, "method", c->method));
  BPPSA_TRY(bppsa_xla_read_number(attributes, "diagonal", &c->diagonal));
  BPPSA_TRY(bppsa_xla_read_number(attributes, "affine", &c->affine));
  BPPSA_TRY(bppsa_xla_read_number(attributes, "reverse", &c->reverse));
  BPPSA_TRY(bppsa_xla_read_number(attributes, "transposed", &c->transposed));
  return bppsa_xla_read_number(attributes, "threads", &c->threads);
}

static int64_t rank_of(const call *c, int which) {
  return (int64_t)strlen(table[which].axes) - (which == MATRICES && c->diagonal ? 1 : 0);
}

static bppsa_status name_buffers(const bppsa_xla_frame *frame, call *c) {
  const int64_t expected = 2 + (c->affine != 0);
  if (frame->arguments.count != expected || frame->results.count != 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%lld arguments and %lld results, expected %lld and 1",
                      (long long)frame->arguments.count, (long long)frame->results.count, (long long)expected);
  }
  c->arrays[MATRICES] = frame->arguments.items[0];
  c->arrays[ADDED] = c->affine ? frame->arguments.items[1] : NULL;
  c->arrays[BEGIN] = frame->arguments.items[expected - 1];
  c->arrays[STATES] = frame->results.items[0];
  return BPPSA_OK;
}

static int64_t extent_of(const call *c, char letter) {
  return letter == 'T' ? c->steps : letter == 'N' ? c->steps + 1 : letter == 'B' ? c->batch : c->hidden;
}

static bppsa_status check_array(call *c, int which, int32_t dtype) {
  const bppsa_xla_buffer *buffer = c->arrays[which];
  const int64_t rank = rank_of(c, which), extra = buffer->rank - rank;
  if (buffer->dtype != dtype || extra < 0 || extra > 1) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: type %d with %lld axes, expected type %d with %lld axes", table[which].name,
                      (int)buffer->dtype, (long long)buffer->rank, (int)dtype, (long long)rank);
  }
  if (extra == 1 && which != STATES && c->members < 0) {
    c->members = buffer->dims[0];
  }
  const int64_t members = c->members < 0 ? 1 : c->members;
  if ((extra == 1 && buffer->dims[0] != members) || (which == STATES && (extra == 1) != (c->members >= 0))) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: %lld scans, expected %lld", table[which].name,
                      (long long)(extra == 1 ? buffer->dims[0] : 1), (long long)members);
  }
  for (int64_t k = 0; k < rank; ++k) {
    const int64_t extent = extent_of(c, table[which].axes[k]);
    if (buffer->dims[extra + k] != extent) {
      return bppsa_fail(BPPSA_ERR_SHAPE, "%s: axis %lld has %lld, expected %c = %lld", table[which].name, (long long)k,
                        (long long)buffer->dims[extra + k], table[which].axes[k], (long long)extent);
    }
  }
  return BPPSA_OK;
}

/* Finds all sizes in A, and holds the other arrays against them. */
static bppsa_status check_arrays(call *c) {
  const bppsa_xla_buffer *a = c->arrays[MATRICES];
  const int64_t rank = rank_of(c, MATRICES);
  if ((a->dtype != BPPSA_XLA_F32 && a->dtype != BPPSA_XLA_F64) || a->rank < rank) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "a: type %d with %lld axes, expected float32 or float64 with %lld", (int)a->dtype,
                      (long long)a->rank, (long long)rank);
  }
  const int64_t *dims = a->dims + (a->rank - rank);
  c->dtype = a->dtype == BPPSA_XLA_F64 ? BPPSA_F64 : BPPSA_F32;
  c->steps = dims[0];
  c->batch = dims[1];
  c->hidden = dims[2];
  c->members = -1;
  for (int k = 0; k < ARRAYS; ++k) {
    BPPSA_TRY(c->arrays[k] != NULL ? check_array(c, k, a->dtype) : BPPSA_OK);
  }
  c->members = c->members < 0 ? 1 : c->members;
  return BPPSA_OK;
}

/* An array's part for one scan; NULL: the call has no such array. */
static char *part_of(const call *c, int which, int64_t member) {
  const bppsa_xla_buffer *buffer = c->arrays[which];
  if (buffer == NULL) {
    return NULL;
  }
  const bool shared = buffer->rank == rank_of(c, which);
  return (char *)buffer->data + (shared ? 0 : member * bppsa_xla_bytes(buffer, 1));
}

/* Writes the state at the beginning, and, if there are steps, runs the scan. */
static bppsa_status run_member(const call *c, int64_t member, bppsa_scan_executor *executor) {
  const int64_t row = c->batch * c->hidden * (int64_t)bppsa_dtype_size(c->dtype);
  char *states = part_of(c, STATES, member);
  memcpy(states + (c->reverse ? c->steps * row : 0), part_of(c, BEGIN, member), (size_t)row);
  const bppsa_scan_operands operands = {.batch = c->batch,
                                        .jt = part_of(c, MATRICES, member),
                                        .injected = part_of(c, ADDED, member),
                                        .gradients = states,
                                        .forward = !c->reverse,
                                        .transposed = c->transposed && !c->diagonal};
  return executor != NULL ? executor->execute(executor, &operands) : BPPSA_OK;
}

static bppsa_status make_executor(const call *c, bppsa_device **device, bppsa_scan_plan **plan, bppsa_scan_executor **executor) {
  bppsa_scan_config config = bppsa_scan_config_default();
  BPPSA_TRY(bppsa_scan_method_parse(c->method, &config.method));
  config.element = c->diagonal ? BPPSA_ELEMENT_DIAGONAL : BPPSA_ELEMENT_DENSE;
  config.dtype = c->dtype;
  config.jacobians = c->steps;
  config.batch = c->batch;
  config.dim = c->hidden;
  config.affine = c->affine != 0;
  config.input = true;
  BPPSA_TRY(bppsa_device_create("cpu", c->threads, device));
  BPPSA_TRY(bppsa_scan_plan_create(&config, plan));
  return bppsa_scan_executor_create(*plan, *device, executor);
}

static bppsa_status run_members(const call *c) {
  bppsa_device *device = NULL;
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  const bool steps = c->steps > 0 && c->batch > 0 && c->hidden > 0;
  bppsa_status status = steps ? make_executor(c, &device, &plan, &executor) : BPPSA_OK;
  for (int64_t k = 0; status == BPPSA_OK && k < c->members; ++k) {
    status = run_member(c, k, executor);
  }
  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  bppsa_device_destroy(device);
  return status;
}

bppsa_xla_error *bppsa_python_xla_scan(bppsa_xla_frame *frame) {
  if (bppsa_xla_answer_metadata(frame) || frame->stage != BPPSA_XLA_EXECUTE) {
    return NULL;
  }
  call c = {.affine = 0};
  bppsa_status status = read_attributes(&frame->attributes, &c);
  status = status == BPPSA_OK ? name_buffers(frame, &c) : status;
  status = status == BPPSA_OK ? check_arrays(&c) : status;
  status = status == BPPSA_OK ? run_members(&c) : status;
  return bppsa_xla_answer(frame, status, "scan", c.method);
}
