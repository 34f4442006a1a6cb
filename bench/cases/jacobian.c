/* `bppsa bench jacobian`: generating sparse transposed Jacobians (BPPSA table 1). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/cases/case.h"
#include "bench/cases/product_case.h"
#include "bench/harness/limits.h"
#include "bench/harness/machine.h"
#include "bench/harness/recording.h"
#include "core/alloc.h"
#include "core/memory.h"
#include "core/philox.h"
#include "jacobian/network.h"

const char bppsa_bench_notes_jacobian[] =
    "Operators of VGG-11 on 3 x 32 x 32 in f32, one sample. values: on a planned pattern; csr: pattern and values.\n"
    "Every Jacobian is first applied to the input, in float64, and held against the forward operator: f(x) = J x for all of "
    "them. A largest\n"
    "difference of 1e-5 or more, relative to the largest output, marks the row and exits 1. The two phases then take turns.\n"
    "On a GPU all values must be those of the processor, bit for bit; a fill is then recorded and replayed, timed by marks "
    "inside "
    "the\n"
    "recording. csr is the pattern on the host, what the kernels need of it sent to the GPU, and the values there, timed by the "
    "host. The\n"
    "share is that of the memory's write bandwidth, and values that fit into the GPU's cache may exceed it. --memory-limit "
    "counts\n"
    "the GPU's memory.\n"
    "bench/rivals/jacobian_pytorch.py adds PyTorch's autograd, one column at a time, on the processor.\n";

#define TOLERANCE 1e-5

static const char *const cases[] = {"conv1", "relu1", "pool1", "conv2", "conv3", "conv4", "conv5", "conv6", "conv7"};

typedef struct {
  const bppsa_device *device, *host; /* host: verifies the values; the same as device unless that is a GPU */
  bppsa_op op;
  bppsa_jacobian *j, *reference; /* reference: the same on the host; it is j unless the device is a GPU */
  float *x, *weights, *values;   /* in host memory */
  bppsa_jacobian_operands operands;
  void *moved[3]; /* x, weights and values of a GPU */
  bppsa_jacobian_operands moved_operands;
  int64_t differing; /* the most values of a fill on the GPU that differ from the host's */
} pass;

static bool on_gpu(const pass *p) {
  return bppsa_device_get_kind(p->device) == BPPSA_CUDA;
}

/* ---- verification ---- */

static double window_value(const pass *p, int64_t c, int64_t Y, int64_t X) {
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

/* max |J x - f(x)| / max |f(x)| */
static bppsa_status verify(const pass *p, double *difference) {
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
    worst = d <= worst ? worst : d; /* NaN stays */
    largest = fmax(largest, fabs(f));
  }
  *difference = worst / largest;
  bppsa_free(sum);
  return BPPSA_OK;
}

/* ---- a case ---- */

static bppsa_status fill(pass *p, bppsa_jacobian *j) {
  return on_gpu(p) ? bppsa_jacobian_fill(j, BPPSA_F32, &p->moved_operands, p->moved[2])
                   : bppsa_jacobian_fill(j, BPPSA_F32, &p->operands, p->values);
}

static bppsa_status run_values(void *context) {
  pass *p = context;
  return fill(p, p->j);
}

static int64_t value_bytes(const pass *p) {
  return bppsa_jacobian_pattern(p->j)->nnz * (int64_t)sizeof *p->values;
}

static bppsa_status clear_values(void *context) {
  const pass *p = context;
  return bppsa_memory_clear(p->device, p->moved[2], value_bytes(p));
}

/* How many values of the latest fill on the GPU differ from the host's. */
static bppsa_status compare_values(pass *p) {
  const int64_t count = bppsa_jacobian_pattern(p->j)->nnz;
  int64_t differing = 0;
  float *found = bppsa_calloc(count, sizeof *found);
  if (found == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_status status = bppsa_memory_get(p->device, found, p->moved[2], value_bytes(p));
  for (int64_t i = 0; status == BPPSA_OK && i < count; ++i) {
    differing += memcmp(&found[i], &p->values[i], sizeof *found) != 0;
  }
  bppsa_free(found);
  p->differing = differing > p->differing ? differing : p->differing;
  return status;
}

static bppsa_status run_csr(void *context) {
  pass *p = context;
  bppsa_jacobian *j = NULL;
  BPPSA_TRY(bppsa_jacobian_create(&p->op, NULL, false, p->device, &j));
  bppsa_status status = fill(p, j);
  status = status == BPPSA_OK ? bppsa_device_wait(p->device) : status;
  bppsa_jacobian_destroy(j);
  return status;
}

static bppsa_status make_operands(pass *p, uint64_t seed) {
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
static bppsa_status move(pass *p) {
  const float *const from[2] = {p->x, p->weights};
  int64_t counts[3];
  count_arrays(&p->op, bppsa_jacobian_pattern(p->j)->nnz, counts);
  for (int i = 0; i < 3; ++i) {
    BPPSA_TRY(bppsa_memory_alloc(p->device, counts[i] * (int64_t)sizeof(float), &p->moved[i]));
    if (i < 2) {
      BPPSA_TRY(bppsa_memory_put(p->device, p->moved[i], from[i], counts[i] * (int64_t)sizeof(float)));
    }
  }
  p->moved_operands = (bppsa_jacobian_operands){.batch = 1, .weights = p->moved[1], .input = p->moved[0]};
  BPPSA_TRY(run_values(p));
  return compare_values(p);
}

/* Called after `fits`, which makes the generator. */
static bppsa_status prepare(pass *p, uint64_t seed) {
  if (!on_gpu(p)) {
    p->reference = p->j;
    return make_operands(p, seed);
  }
  BPPSA_TRY(bppsa_jacobian_create(&p->op, NULL, false, p->host, &p->reference));
  BPPSA_TRY(make_operands(p, seed));
  return move(p);
}

static void release(pass *p) {
  for (int i = 0; i < 3; ++i) {
    bppsa_memory_free(p->device, p->moved[i]);
  }
  if (p->reference != p->j) {
    bppsa_jacobian_destroy(p->reference);
  }
  bppsa_jacobian_destroy(p->j);
  bppsa_free(p->x);
  bppsa_free(p->weights);
  bppsa_free(p->values);
}

typedef struct {
  const bppsa_bench_settings *asked;
  const bppsa_device *device, *host;
  bppsa_machine_limits limits;
  json_t *rows, *left_out;
  int64_t failed, noisy, memory_limit;
} session;

/* One row. bytes: what is written; share: of the measured write bandwidth. */
static bppsa_status add_row(session *s, const char *name, const char *phase, const pass *p, const bppsa_timing *t,
                            double difference) {
  const bppsa_csr *csr = bppsa_jacobian_pattern(p->j);
  const bool values = strcmp(phase, "values") == 0;
  const double bytes = values ? 4.0 * (double)csr->nnz : 8.0 * (double)csr->nnz + 8.0 * (double)(csr->rows + 1);
  const double share = bytes / t->median_s / s->limits.write_bytes;
  const bool wrong = !(difference < TOLERANCE) || p->differing > 0;
  s->failed += wrong;
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "operator", name);
  ok = ok && bppsa_json_put_text(object, "method", "bppsa") && bppsa_json_put_text(object, "phase", phase);
  ok = ok && bppsa_json_put_integer(object, "threads", bppsa_device_get_threads(s->device));
  ok = ok && bppsa_json_put_text(object, "dtype", "f32");
  ok = ok && bppsa_json_put_integer(object, "rows", csr->rows) && bppsa_json_put_integer(object, "cols", csr->cols);
  ok = ok && bppsa_json_put_integer(object, "nnz", csr->nnz);
  ok = ok && bppsa_bench_put_timing(object, t);
  ok = ok && bppsa_json_put_real(object, "residual", difference) && bppsa_json_put_real(object, "flops", 0);
  ok = ok && bppsa_json_put_real(object, "bytes", bytes) && bppsa_json_put_real(object, "bytes_per_s", bytes / t->median_s);
  ok = ok && bppsa_json_put_real(object, "write_share", share);
  ok = ok && (!on_gpu(p) || bppsa_json_put_integer(object, "differing", p->differing));
  if (json_array_append_new(s->rows, bppsa_json_finish(object, ok)) != 0) {
    return bppsa_bench_no_room();
  }
  s->noisy += t->noisy;
  char median[BPPSA_TIMING_TEXT];
  return s->asked->request.to.json
             ? BPPSA_OK
             : bppsa_output_print(&s->asked->request.to,
                                  "  %-8s%-8s%12" PRId64 "%12s%12.4f%12.4f%8" PRId64 "%10.2f%8.0f%%%12.1e%s\n", name, phase,
                                  csr->nnz, bppsa_timing_median_ms(t, 4, median), 1e3 * t->min_s, 1e3 * t->max_s, t->repeats,
                                  1e-9 * bytes / t->median_s, 100 * share, difference, wrong ? "  WRONG" : "");
}

/* Leaves out a phase, or with NULL both of them. */
static bppsa_status leave_out(const session *s, const char *name, const char *phase, const char *why) {
  const char *const names[] = {"operator", name, phase != NULL ? "phase" : NULL, phase, NULL};
  BPPSA_TRY(bppsa_bench_leave_out(s->left_out, names, why));
  return s->asked->request.to.json
             ? BPPSA_OK
             : bppsa_output_print(&s->asked->request.to, "  %-8s%-8sleft out: %s\n", name, phase != NULL ? phase : "", why);
}

/* Records a GPU's fill and compares what it writes with the host's values. A fill that cannot be recorded is left out: *recorded
 * stays false. */
static bppsa_status record_values(session *s, const char *name, pass *p, bppsa_bench_recording *recording, bool *recorded) {
  const bppsa_status status = bppsa_bench_record(p->device, run_values, clear_values, p, recording);
  if (status == BPPSA_ERR_UNSUPPORTED) {
    return leave_out(s, name, "values", bppsa_last_error());
  }
  BPPSA_TRY(status);
  *recorded = true;
  BPPSA_TRY(bppsa_bench_replay_cleared(recording));
  return compare_values(p);
}

/* Times both phases in turn: values, unless a GPU refused to record them, and csr, which the host's clock measures. */
static bppsa_status time_phases(session *s, const char *name, pass *p, bppsa_bench_recording *recording, bool values,
                                double difference) {
  const bppsa_rounds rounds = bppsa_bench_rounds_of(&s->asked->request, 1, 0.1);
  bppsa_timed_work fill_work = {.device = p->host, .action = run_values, .context = p},
                   csr_work = {.device = p->host, .action = run_csr, .context = p};
  bppsa_contender list[2] = {{.pass = bppsa_timed_work_pass, .context = &csr_work, .parts = 1}};
  list[1] = on_gpu(p) ? (bppsa_contender){.pass = bppsa_bench_replay_pass, .context = recording, .parts = 1}
                      : (bppsa_contender){.pass = bppsa_timed_work_pass, .context = &fill_work, .parts = 1};
  bppsa_status status = bppsa_timed_work_open(&fill_work);
  status = status == BPPSA_OK ? bppsa_timed_work_open(&csr_work) : status;
  status = status == BPPSA_OK ? bppsa_rounds_run(&rounds, values ? 2 : 1, list) : status;
  bppsa_timed_work_close(&fill_work);
  bppsa_timed_work_close(&csr_work);
  BPPSA_TRY(status);
  BPPSA_TRY(values ? add_row(s, name, "values", p, &list[1].timing[0], difference) : BPPSA_OK);
  return add_row(s, name, "csr", p, &list[0].timing[0], difference);
}

static bppsa_status measure_case(session *s, const char *name, pass *p) {
  double difference;
  bppsa_bench_recording recording = {0};
  bool recorded = false;
  BPPSA_TRY(prepare(p, s->asked->request.seed));
  BPPSA_TRY(verify(p, &difference));
  bppsa_status status = on_gpu(p) ? record_values(s, name, p, &recording, &recorded) : BPPSA_OK;
  status = status == BPPSA_OK ? time_phases(s, name, p, &recording, recorded || !on_gpu(p), difference) : status;
  bppsa_bench_recording_free(&recording);
  return status;
}

static bppsa_status print_head(session *s) {
  char date[BPPSA_DATE_TEXT], write[BPPSA_SI_TEXT];
  return bppsa_output_print(
      &s->asked->request.to,
      "Jacobians on %s, %d threads, %s; measured write bandwidth %s\n"
      "milliseconds; share: of that bandwidth, counting what is written\n\n"
      "  operator phase           nnz      median         min         max       n      GB/s   share  difference\n",
      bppsa_device_get_hardware(s->device), bppsa_device_get_threads(s->device), bppsa_machine_date(date, sizeof date),
      bppsa_text_si(s->limits.write_bytes, "B/s", write, sizeof write));
}

/* Bytes of a case's arrays on the device that fills them, counted before they are allocated. On a processor two patterns count as
 * well, because csr makes a second one. */
static bppsa_status count_bytes(const pass *p, int64_t *bytes) {
  bppsa_jacobian *counted = NULL;
  int64_t counts[3];
  BPPSA_TRY(bppsa_jacobian_create(&p->op, NULL, true, p->host, &counted));
  const bppsa_csr *csr = bppsa_jacobian_pattern(counted);
  const int64_t pattern = csr->nnz * (int64_t)sizeof *csr->col + (csr->rows + 1) * (int64_t)sizeof *csr->row_ptr;
  count_arrays(&p->op, csr->nnz, counts);
  bppsa_jacobian_destroy(counted);
  *bytes = (counts[0] + counts[1] + counts[2]) * (int64_t)sizeof(float) + (on_gpu(p) ? 0 : 2 * pattern);
  return BPPSA_OK;
}

/* Makes the generator. A case that exceeds --memory-limit is left out with the reason. On a GPU the lists of two generators count
 * as well; their sizes are known once the generator exists. */
static bppsa_status fits(const session *s, const char *name, pass *p, bool *fit) {
  int64_t bytes;
  BPPSA_TRY(count_bytes(p, &bytes));
  if (bytes <= s->memory_limit) {
    BPPSA_TRY(bppsa_jacobian_create(&p->op, NULL, false, p->device, &p->j));
    bytes += 2 * bppsa_jacobian_device_bytes(p->j);
  }
  *fit = bytes <= s->memory_limit;
  if (*fit) {
    return BPPSA_OK;
  }
  char why[96];
  snprintf(why, sizeof why, "needs %s%" PRId64 " bytes, the memory limit is %" PRId64, p->j == NULL ? "at least " : "", bytes,
           s->memory_limit);
  return leave_out(s, name, NULL, why);
}

/* The default memory limit: 3/4 of what is available on the device. */
static bppsa_status set_limits(session *s) {
  BPPSA_TRY(bppsa_bench_memory_limit(&s->asked->request, 3, &s->memory_limit));
  return bppsa_machine_limits_measure(s->device, &s->limits);
}

static bppsa_status measure(session *s, json_t *document) {
  bppsa_named_op ops[BPPSA_NETWORK_OPS];
  int64_t count;
  BPPSA_TRY(bppsa_network_table("vgg11", ops, &count));
  BPPSA_TRY(set_limits(s));
  if (!bppsa_json_put_real(document, "write_bytes_per_s", s->limits.write_bytes)) {
    return bppsa_bench_no_room();
  }
  if (!s->asked->request.to.json) {
    BPPSA_TRY(print_head(s));
  }
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    int64_t k = 0;
    while (strcmp(ops[k].name, cases[i]) != 0) {
      ++k;
    }
    pass p = {.device = s->device, .host = s->host, .op = ops[k].op};
    bool fit = false;
    bppsa_status status = fits(s, cases[i], &p, &fit);
    status = fit ? measure_case(s, cases[i], &p) : status;
    release(&p);
    BPPSA_TRY(status);
  }
  return s->asked->request.to.json ? BPPSA_OK : bppsa_bench_show_noisy(&s->asked->request.to, s->noisy);
}

static bppsa_status run(const bppsa_bench_settings *asked) {
  bppsa_bench_report report;
  BPPSA_TRY(bppsa_bench_open(&asked->request, "jacobian", &report));
  session s = {.asked = asked, .device = asked->request.device, .host = asked->request.device, .rows = report.rows};
  bppsa_device *host = NULL;
  bppsa_status status = bppsa_bench_list_left_out(&report, &s.left_out);
  if (status == BPPSA_OK && bppsa_device_get_kind(asked->request.device) == BPPSA_CUDA) {
    status = bppsa_device_create("cpu", bppsa_device_get_threads(asked->request.device), &host);
    s.host = host;
  }
  status = status == BPPSA_OK ? measure(&s, report.document) : status;
  bppsa_device_destroy(host);
  return bppsa_bench_close(&report, status, s.failed, TOLERANCE);
}

const bppsa_bench_case bppsa_bench_case_jacobian = {"jacobian", run};
