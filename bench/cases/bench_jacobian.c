/* `bppsa bench jacobian`: generating sparse transposed Jacobians (BPPSA table 1). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/cases/case.h"
#include "bench/cases/product_case.h"
#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "core/compute/memory.h"
#include "core/measure/residual.h"
#include "jacobian/network_ops.h"
#include "terminal/machine.h"

const char bppsa_bench_notes_jacobian[] =
    "Operators of VGG-11 on 3 x 32 x 32 in f32, one sample. The phase values fills a pattern that was planned before; csr\n"
    "makes the pattern too.\n"
    "First every Jacobian J is multiplied by the input x in float64. All these operators f have f(x) = J x. A Jacobian whose\n"
    "largest difference is 1e-5 of the largest output or more is wrong: it is marked and not timed, and the program exits 1.\n"
    "Then the two phases take turns.\n"
    "On a GPU the values must have the same bits as the processor's. A fill is recorded, and the replays of the recording are\n"
    "timed by the GPU's clock. csr makes the pattern on the host, sends the GPU what its kernels need of it, and fills the\n"
    "values there; the host's clock times it. share is that of the measured bandwidth of writing, which values that fit into\n"
    "the GPU's cache may exceed. --memory-limit counts the GPU's memory.\n"
    "bench/rivals/jacobian_pytorch.py adds PyTorch's autograd, one column at a time, on the processor.\n";

#define TOLERANCE 1e-5

static const char *const cases[] = {"conv1", "relu1", "pool1", "conv2", "conv3", "conv4", "conv5", "conv6", "conv7"};

typedef struct {
  const bppsa_bench *bench;
  bppsa_op op;
  bppsa_jacobian *j, *reference; /* reference: the same on the host; it is j unless the device is a GPU */
  float *x, *weights, *values;   /* in host memory */
  bppsa_jacobian_operands operands;
  void *moved[3]; /* x, weights and values in a GPU's memory */
  bppsa_jacobian_operands moved_operands;
  double difference; /* how far the host's values are from the forward operator: max |J x - f(x)| / max |f(x)| */
  int64_t differing; /* the largest number of values in a fill on the GPU that differ from the host's */
} session;

/* ---- verification ---- */

static double window_value(const session *p, int64_t c, int64_t Y, int64_t X) {
  const bppsa_op *o = &p->op;
  const bool conv = o->kind == BPPSA_OPERATOR_CONV2D;
  double sum = 0, most = -INFINITY;
  for (int64_t i = conv ? 0 : c; i < (conv ? o->in[0] : c + 1); ++i) {
    for (int64_t t = 0; t < o->kernel[0] * o->kernel[1]; ++t) {
      const int64_t a = t / o->kernel[1], b = t % o->kernel[1];
      const int64_t y = Y * o->stride[0] + a - o->padding[0], x = X * o->stride[1] + b - o->padding[2];
      if (y < 0 || y >= o->in[1] || x < 0 || x >= o->in[2]) {
        continue;
      }
      const double v = (double)p->x[(i * o->in[1] + y) * o->in[2] + x];
      most = v > most ? v : most;
      sum += conv ? v * (double)p->weights[(c * o->in[0] + i) * o->kernel[0] * o->kernel[1] + t] : 0;
    }
  }
  return conv ? sum : most;
}

static bppsa_status compare_outputs(session *p) {
  const bppsa_csr *csr = bppsa_jacobian_pattern(p->reference);
  int64_t out[3];
  BPPSA_TRY(bppsa_op_shape(&p->op, out));
  double *sum = bppsa_calloc(csr->cols, sizeof *sum), worst = 0, largest = 0;
  if (sum == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t r = 0; r < csr->rows; ++r) {
    for (int64_t i = csr->row_ptr[r]; i < csr->row_ptr[r + 1]; ++i) {
      sum[csr->col[i]] += (double)p->values[i] * (double)p->x[r];
    }
  }
  for (int64_t k = 0; k < csr->cols; ++k) {
    const double f = p->op.kind == BPPSA_OPERATOR_RELU ? fmax(0, (double)p->x[k])
                                                       : window_value(p, k / (out[1] * out[2]), k / out[2] % out[1], k % out[2]);
    const double d = fabs(sum[k] - f);
    worst = bppsa_residual_worse(worst, d);
    largest = fmax(largest, fabs(f));
  }
  p->difference = worst / largest;
  bppsa_free(sum);
  return BPPSA_OK;
}

/* ---- a case ---- */

static bppsa_status fill(session *p, bppsa_jacobian *j) {
  return p->bench->gpu ? bppsa_jacobian_fill(j, BPPSA_F32, &p->moved_operands, p->moved[2])
                       : bppsa_jacobian_fill(j, BPPSA_F32, &p->operands, p->values);
}

static bppsa_status run_values(void *context) {
  session *p = context;
  return fill(p, p->j);
}

static int64_t value_bytes(const session *p) {
  return bppsa_jacobian_pattern(p->j)->nnz * (int64_t)sizeof *p->values;
}

static bppsa_status clear_values(void *context) {
  const session *p = context;
  return bppsa_memory_clear(p->bench->device, p->bench->gpu ? p->moved[2] : p->values, value_bytes(p));
}

/* Counts how many values of the latest fill on the GPU differ from the host's. */
static bppsa_status compare_values(session *p) {
  const int64_t count = bppsa_jacobian_pattern(p->j)->nnz;
  int64_t differing = 0;
  float *found = bppsa_calloc(count, sizeof *found);
  if (found == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_status status = bppsa_memory_get(p->bench->device, found, p->moved[2], value_bytes(p));
  for (int64_t i = 0; status == BPPSA_OK && i < count; ++i) {
    differing += memcmp(&found[i], &p->values[i], sizeof *found) != 0;
  }
  bppsa_free(found);
  p->differing = differing > p->differing ? differing : p->differing;
  return status;
}

static bppsa_status run_csr(void *context) {
  session *p = context;
  bppsa_jacobian *j = NULL;
  BPPSA_TRY(bppsa_jacobian_create(&p->op, NULL, false, p->bench->device, &j));
  bppsa_status status = fill(p, j);
  status = status == BPPSA_OK ? bppsa_device_wait(p->bench->device) : status;
  bppsa_jacobian_destroy(j);
  return status;
}

static bppsa_status make_operands(session *p, uint64_t seed) {
  const int64_t count = p->op.in[0] * p->op.in[1] * p->op.in[2], weights = bppsa_op_weights(&p->op);
  p->x = bppsa_calloc(count, sizeof *p->x);
  p->weights = bppsa_calloc(weights, sizeof *p->weights);
  p->values = bppsa_calloc(bppsa_jacobian_pattern(p->reference)->nnz, sizeof *p->values);
  if (p->x == NULL || p->weights == NULL || p->values == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    p->x[i] = (float)(2 * bppsa_random_double(seed, BPPSA_STREAM_TEST + 210, (uint64_t)i) - 1);
  }
  for (int64_t i = 0; i < weights; ++i) {
    p->weights[i] = (float)(2 * bppsa_random_double(seed, BPPSA_STREAM_TEST + 211, (uint64_t)i) - 1);
  }
  p->operands = (bppsa_jacobian_operands){.batch = 1, .weights = p->weights, .input = p->x};
  return bppsa_jacobian_fill(p->reference, BPPSA_F32, &p->operands, p->values);
}

/* Bytes of x, weights and values. */
static void count_arrays(const bppsa_op *op, int64_t nnz, int64_t counts[3]) {
  counts[0] = op->in[0] * op->in[1] * op->in[2];
  counts[1] = bppsa_op_weights(op);
  counts[2] = nnz;
}

/* Copies the operands to the GPU and fills the values on it. */
static bppsa_status move(session *p) {
  const float *const from[2] = {p->x, p->weights};
  int64_t counts[3];
  count_arrays(&p->op, bppsa_jacobian_pattern(p->j)->nnz, counts);
  for (int i = 0; i < 3; ++i) {
    BPPSA_TRY(bppsa_memory_alloc(p->bench->device, counts[i] * (int64_t)sizeof(float), &p->moved[i]));
    if (i < 2) {
      BPPSA_TRY(bppsa_memory_put(p->bench->device, p->moved[i], from[i], counts[i] * (int64_t)sizeof(float)));
    }
  }
  p->moved_operands = (bppsa_jacobian_operands){.batch = 1, .weights = p->moved[1], .input = p->moved[0]};
  BPPSA_TRY(run_values(p));
  return compare_values(p);
}

/* Called after `fits`, which makes the generator. */
static bppsa_status prepare_operands(session *p, uint64_t seed) {
  if (!p->bench->gpu) {
    p->reference = p->j;
    return make_operands(p, seed);
  }
  BPPSA_TRY(bppsa_jacobian_create(&p->op, NULL, false, p->bench->host, &p->reference));
  BPPSA_TRY(make_operands(p, seed));
  return move(p);
}

/* Compares the latest fill with the forward operator; on a GPU with the host's values, which have passed that test. */
static bppsa_status judge(void *context, double *residual) {
  session *p = context;
  BPPSA_TRY(p->bench->gpu ? compare_values(p) : compare_outputs(p));
  *residual = p->differing > 0 ? (double)p->differing : p->difference;
  return BPPSA_OK;
}

static const bppsa_bench_work values_work = {.action = run_values, .clear = clear_values, .judge = judge},
                              csr_work = {.action = run_csr, .clear = clear_values, .judge = judge};

/* ---- rows ---- */

/* bytes: those that a fill writes. */
static bool put(const bppsa_bench_entrant *e, json_t *row) {
  const session *p = e->context;
  const bppsa_csr *csr = bppsa_jacobian_pattern(p->j);
  const bppsa_timing *t = &e->contender.timing[0];
  const bool values = e->work == &values_work;
  const double bytes = values ? 4.0 * (double)csr->nnz : 8.0 * (double)csr->nnz + 8.0 * (double)(csr->rows + 1);
  const double rate = t->repeats > 0 ? bytes / t->median_s : NAN;
  bool ok = bppsa_json_put_text(row, "operator", p->bench->point);
  ok = ok && bppsa_json_put_text(row, "method", "bppsa") && bppsa_json_put_text(row, "phase", e->phase);
  ok = ok && bppsa_json_put_integer(row, "threads", bppsa_device_get_threads(p->bench->device));
  ok = ok && bppsa_json_put_text(row, "dtype", "f32");
  ok = ok && bppsa_json_put_integer(row, "rows", csr->rows) && bppsa_json_put_integer(row, "cols", csr->cols);
  ok = ok && bppsa_json_put_integer(row, "nnz", csr->nnz);
  ok = ok && bppsa_bench_put_timing(row, t);
  ok = ok && bppsa_json_put_real(row, "residual", e->contender.residual) && bppsa_json_put_real(row, "flops", 0);
  ok = ok && bppsa_json_put_real(row, "bytes", bytes) && bppsa_json_put_real(row, "bytes_per_s", rate);
  ok = ok && bppsa_json_put_real(row, "write_share", rate / p->bench->limits.write_bytes);
  return ok && (!p->bench->gpu || bppsa_json_put_integer(row, "differing", p->differing));
}

static const bppsa_table_column columns[] = {
    {.heading = "operator", .width = -8, .key = "operator"},
    {.heading = "phase", .width = -6, .key = "phase"},
    {.heading = "nnz", .width = 12, .kind = BPPSA_COLUMN_INTEGER, .key = "nnz"},
    BPPSA_COLUMN_TIMES(12, 12, 8, 4),
    {.heading = "GB/s", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "bytes_per_s", .scale = 1e-9, .digits = 2},
    {.heading = "share", .width = 9, .kind = BPPSA_COLUMN_PERCENT, .key = "write_share"},
    {.heading = "difference", .width = 12, .kind = BPPSA_COLUMN_EXPONENT, .key = "residual"},
    {0}};

static bppsa_status print_head(const bppsa_bench *bench) {
  char date[BPPSA_DATE_TEXT], write[BPPSA_SI_TEXT];
  return bppsa_output_print(&bench->request->to,
                            "Jacobians on %s, %d threads, %s; measured write bandwidth %s\n"
                            "milliseconds; share: of that bandwidth, counting what is written\n\n",
                            bppsa_device_get_hardware(bench->device), bppsa_device_get_threads(bench->device),
                            bppsa_machine_date(date, sizeof date),
                            bppsa_text_si(bench->limits.write_bytes, "B/s", write, sizeof write));
}

static bool put_members(const bppsa_bench *bench, json_t *document) {
  return bppsa_json_put_real(document, "write_bytes_per_s", bench->limits.write_bytes);
}

/* ---- an operator ---- */

/* Bytes of a case's arrays on the device that fills them, counted before they are allocated. On a processor two patterns count as
 * well, because csr makes a second one. */
static bppsa_status count_bytes(const session *p, int64_t *bytes) {
  bppsa_jacobian *counted = NULL;
  int64_t counts[3];
  BPPSA_TRY(bppsa_jacobian_create(&p->op, NULL, true, p->bench->host, &counted));
  const bppsa_csr *csr = bppsa_jacobian_pattern(counted);
  const int64_t pattern = csr->nnz * (int64_t)sizeof *csr->col + (csr->rows + 1) * (int64_t)sizeof *csr->row_ptr;
  count_arrays(&p->op, csr->nnz, counts);
  bppsa_jacobian_destroy(counted);
  *bytes = (counts[0] + counts[1] + counts[2]) * (int64_t)sizeof(float) + (p->bench->gpu ? 0 : 2 * pattern);
  return BPPSA_OK;
}

/* Makes the generator. A case that exceeds --memory-limit is left out with the reason. On a GPU the lists of two generators count
 * as well; their sizes are known once the generator exists. */
static bppsa_status fits(bppsa_bench *bench, session *p, bool *fit) {
  int64_t bytes;
  BPPSA_TRY(count_bytes(p, &bytes));
  if (bytes <= bench->memory_limit) {
    BPPSA_TRY(bppsa_jacobian_create(&p->op, NULL, false, p->bench->device, &p->j));
    bytes += 2 * bppsa_jacobian_device_bytes(p->j);
  }
  *fit = bytes <= bench->memory_limit;
  if (*fit) {
    return BPPSA_OK;
  }
  (void)bppsa_fail(BPPSA_ERR_ARGUMENT, "needs %s%" PRId64 " bytes, the memory limit is %" PRId64, p->j == NULL ? "at least " : "",
                   bytes, bench->memory_limit);
  return bppsa_bench_leave_out(bench, "", "");
}

/* On a GPU the values are replayed from a recording, and csr, of which the host does a part, is timed by the host's clock. */
static bppsa_status enter_operator(bppsa_bench *bench, session *p) {
  bool fit = false;
  BPPSA_TRY(fits(bench, p, &fit));
  if (!fit) {
    return BPPSA_OK;
  }
  BPPSA_TRY(prepare_operands(p, bench->request->seed));
  BPPSA_TRY(compare_outputs(p));
  BPPSA_TRY(bench->gpu ? bppsa_bench_enter_recording(bench, &values_work, p, "bppsa", "values")
                       : bppsa_bench_enter(bench, &values_work, bench->device, p, "bppsa", "values", NULL));
  return bppsa_bench_enter(bench, &csr_work, bench->host, p, "bppsa", "csr", NULL);
}

static bppsa_status enter(bppsa_bench *bench, int64_t point, bool *more) {
  bppsa_named_op ops[BPPSA_NETWORK_OPS];
  session *p = bench->session;
  int64_t count, k = 0;
  *more = point < (int64_t)(sizeof cases / sizeof cases[0]);
  if (!*more) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_network_table("vgg11", ops, &count));
  while (strcmp(ops[k].name, cases[point]) != 0) {
    ++k;
  }
  *p = (session){.bench = bench, .op = ops[k].op};
  snprintf(bench->point, sizeof bench->point, "%s", cases[point]);
  return enter_operator(bench, p);
}

static void leave(bppsa_bench *bench) {
  session *p = bench->session;
  for (int i = 0; bench->gpu && i < 3; ++i) {
    bppsa_memory_free(bench->device, p->moved[i]);
  }
  if (p->reference != p->j) {
    bppsa_jacobian_destroy(p->reference);
  }
  bppsa_jacobian_destroy(p->j);
  bppsa_free(p->x);
  bppsa_free(p->weights);
  bppsa_free(p->values);
  *p = (session){0};
}

const bppsa_bench_case bppsa_bench_case_jacobian = {.name = "jacobian",
                                                    .session = sizeof(session),
                                                    .budget_s = 1,
                                                    .quick_s = 0.1,
                                                    .bound = TOLERANCE,
                                                    .memory_quarters = 3,
                                                    .limits = true,
                                                    .names = (const char *const[]){"operator", "phase", NULL},
                                                    .columns = columns,
                                                    .put_members = put_members,
                                                    .head = print_head,
                                                    .enter = enter,
                                                    .put = put,
                                                    .leave = leave};
