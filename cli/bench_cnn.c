/* `bench lenet5`: a convolutional network's forward pass, sequential BP and the scan with every number of up-levels, verified and timed in one run. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/bench_sparse.h"
#include "cli/machine.h"
#include "cli/setup.h"
#include "core/alloc.h"
#include "core/philox.h"
#include "jacobian/jacobian.h"

static const bppsa_option_use uses[] = {
    {.option = BPPSA_OPTION_QUICK, .help = "a tenth of the time"},
    {.option = BPPSA_OPTION_REPEATS},
    {.option = BPPSA_OPTION_BATCH, .fallback = "256", .help = "samples"},
    {.option = BPPSA_OPTION_SEED, .help = "of weights, images and the logits' gradient"},
    {.option = BPPSA_OPTION_THREADS},
    {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = "what needs more is left out [1/2 of available memory]"},
    {.option = BPPSA_OPTION_OUT, .metavar = "F.json", .help = "where the JSON document goes too"},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

static const char notes[] = "f32. forward is the pass to the logits; the other rows are backward passes, weight gradients "
                            "included, the input's not. FLOP: of the "
                            "gradients\n"
                            "of the layers' inputs alone, by the BP baseline of `bppsa flops`, or the scan's plan; 'of BP' are "
                            "both ratios. Every gradient is first "
                            "held against\n"
                            "BP in float64: a residual of 30 or more marks the row and exits 1. "
                            "bench/rivals/bench_cnn_pytorch.py times PyTorch in the same run.\n";

enum { METHODS = 6, WRONG = 30 };

static const struct {
  const char *name;
  bppsa_backward backward;
  bppsa_scan_algorithm algorithm;
  int64_t levels;
} methods[METHODS] = {{"bp", BPPSA_BACKWARD_BP, BPPSA_SCAN_LINEAR, 0},
                      {"linear", BPPSA_BACKWARD_SCAN, BPPSA_SCAN_LINEAR, 0},
                      {"up_levels 1", BPPSA_BACKWARD_SCAN, BPPSA_SCAN_BLELLOCH, 1},
                      {"up_levels 2", BPPSA_BACKWARD_SCAN, BPPSA_SCAN_BLELLOCH, 2},
                      {"blelloch", BPPSA_BACKWARD_SCAN, BPPSA_SCAN_BLELLOCH, -1},
                      {"auto", BPPSA_BACKWARD_SCAN, BPPSA_SCAN_AUTO, 0}};

typedef struct {
  bppsa_cli *cli;
  const bppsa_device *device;
  bppsa_network network;
  json_t *rows;
  int64_t failed;
  bppsa_buffer x[2], seed[2]; /* f32, f64: the same numbers */
  bppsa_model *reference;     /* f64, BP */
  bppsa_model *model;         /* the one that is timed */
  double baseline;            /* FLOPs of BP's input gradients of one sample, the first operator's left out */
  double bp_s;
} session;

/* ---- operands ---- */

static bppsa_status fill_pair(bppsa_buffer pair[2], int32_t ndim, const int64_t *shape, uint64_t seed, uint64_t stream,
                              double scale) {
  BPPSA_TRY(bppsa_buffer_create(NULL, BPPSA_F32, ndim, shape, &pair[0]));
  BPPSA_TRY(bppsa_buffer_create(NULL, BPPSA_F64, ndim, shape, &pair[1]));
  for (int64_t i = 0; i < bppsa_view_count(&pair[0].view); ++i) {
    bppsa_view_set(&pair[0].view, i, scale * (2 * bppsa_random_double(seed, BPPSA_STREAM_TEST + stream, (uint64_t)i) - 1));
  }
  return bppsa_view_convert(&pair[0].view, &pair[1].view);
}

static bppsa_status count_baseline(session *s) {
  for (int64_t i = 1; i + 1 < s->network.layers.count; ++i) {
    const bppsa_op *op = &s->network.layers.layers[i].op;
    bppsa_jacobian *whole = NULL;
    BPPSA_TRY(bppsa_jacobian_create(op, NULL, true, s->device, &whole));
    const bppsa_csr *c = bppsa_jacobian_pattern(whole);
    s->baseline += (double)bppsa_op_baseline_flops(op, c->rows, c->cols, c->nnz);
    bppsa_jacobian_destroy(whole);
  }
  return BPPSA_OK;
}

static bppsa_status make_model(session *s, int method, bppsa_dtype dtype, bppsa_model **model) {
  const bppsa_option_value *limit = bppsa_cli_value(s->cli, BPPSA_OPTION_MEMORY_LIMIT);
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = s->x[0].view.shape[0];
  config.dtype = dtype;
  config.backward = methods[method].backward;
  config.algorithm = methods[method].algorithm;
  config.up_levels = methods[method].levels;
  config.memory_limit = limit->present ? limit->integer : bppsa_machine_memory() / 2;
  BPPSA_TRY(bppsa_cnn_create(&s->network.layers, &config, s->device, model));
  return bppsa_cnn_init(*model, (uint64_t)bppsa_cli_value(s->cli, BPPSA_OPTION_SEED)->integer);
}

static bppsa_status run_forward(void *context) {
  const session *s = context;
  bppsa_view logits;
  return s->model->ops->forward(s->model, &s->x[0].view, NULL, &logits);
}

static bppsa_status run_backward(void *context) {
  const session *s = context;
  return s->model->ops->backward(s->model, &s->seed[0].view);
}

/* The reference's weights are the f32 model's, rounded to f32. */
static bppsa_status make_reference(session *s) {
  bppsa_model *narrow = NULL;
  bppsa_view logits;
  BPPSA_TRY(make_model(s, 0, BPPSA_F64, &s->reference));
  BPPSA_TRY(make_model(s, 0, BPPSA_F32, &narrow));
  bppsa_status status = BPPSA_OK;
  for (int64_t p = 0; status == BPPSA_OK && p < narrow->parameter_count; ++p) {
    status = bppsa_view_convert(&narrow->parameters[p].value, &s->reference->parameters[p].value);
  }
  bppsa_model_destroy(narrow);
  BPPSA_TRY(status);
  BPPSA_TRY(s->reference->ops->forward(s->reference, &s->x[1].view, NULL, &logits));
  return s->reference->ops->backward(s->reference, &s->seed[1].view);
}

static double worst_residual(const session *s) {
  double worst = 0;
  for (int64_t p = 0; p < s->model->parameter_count; ++p) {
    const double r = bppsa_bench_residual(&s->model->parameters[p].gradient, s->reference->parameters[p].gradient.data,
                                          s->network.layers.count);
    worst = r <= worst ? worst : r; /* NaN stays */
  }
  return worst;
}

/* ---- rows ---- */

typedef struct {
  const char *method, *phase;
  bppsa_timing time;
  double residual, flops, plan_s; /* flops of one sample */
  int64_t held;
} row;

static bppsa_status add_row(session *s, const row *r) {
  const int64_t batch = s->x[0].view.shape[0];
  const bool wrong = !(r->residual < WRONG), backward = strcmp(r->phase, "backward") == 0;
  const double time_ratio = backward && s->bp_s > 0 ? r->time.median_s / s->bp_s : 0,
               flop_ratio = backward ? r->flops / s->baseline : 0;
  s->failed += wrong;
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "network", s->network.kind->name);
  ok = ok && bppsa_json_put_text(object, "method", r->method) && bppsa_json_put_text(object, "phase", r->phase);
  ok = ok && bppsa_json_put_integer(object, "batch", batch) && bppsa_json_put_text(object, "dtype", "f32");
  ok = ok && bppsa_json_put_integer(object, "threads", bppsa_device_get_threads(s->device));
  ok = ok && bppsa_json_put_real(object, "median_s", r->time.median_s) && bppsa_json_put_real(object, "min_s", r->time.min_s);
  ok = ok && bppsa_json_put_real(object, "max_s", r->time.max_s) && bppsa_json_put_integer(object, "repeats", r->time.repeats);
  ok = ok && bppsa_json_put_real(object, "residual", r->residual) &&
       bppsa_json_put_real(object, "flops", (double)batch * r->flops);
  ok = ok && bppsa_json_put_integer(object, "bytes", r->held) && bppsa_json_put_real(object, "plan_s", r->plan_s);
  if (backward) {
    ok = ok && bppsa_json_put_real(object, "time_of_bp", time_ratio) && bppsa_json_put_real(object, "flops_of_bp", flop_ratio);
  }
  if (json_array_append_new(s->rows, bppsa_json_finish(object, ok)) != 0) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "bench: out of memory, expected room for the results");
  }
  char text[2][BPPSA_SI_TEXT];
  return s->cli->json ? BPPSA_OK
                      : bppsa_cli_print(s->cli, "  %-12s%11.3f%11.3f%11.3f%6" PRId64 "  %-10s%9.2f%9.2f  %-9s%9.1f%10.2f%s\n",
                                        r->method, 1e3 * r->time.median_s, 1e3 * r->time.min_s, 1e3 * r->time.max_s,
                                        r->time.repeats, bppsa_cli_si((double)batch * r->flops, "FLOP", text[0], sizeof text[0]),
                                        time_ratio, flop_ratio, bppsa_cli_si((double)r->held, "B", text[1], sizeof text[1]),
                                        1e3 * r->plan_s, r->residual, wrong ? "  WRONG" : "");
}

/* FLOPs of the forward pass of one sample: of the products with weights. */
static double forward_flops(const session *s) {
  double flops = 0;
  for (int64_t i = 0; i < s->network.layers.count; ++i) {
    const bppsa_cnn_layer *layer = &s->network.layers.layers[i];
    const bool conv = layer->op.kind == BPPSA_OPERATOR_CONV2D;
    flops += 2.0 * (double)bppsa_op_weights(&layer->op) * (conv ? (double)(layer->out[1] * layer->out[2]) : 1);
  }
  return flops;
}

static bppsa_status time_rows(session *s, int method, double plan_s) {
  const int64_t repeats = bppsa_cli_value(s->cli, BPPSA_OPTION_REPEATS)->integer;
  const double budget = bppsa_cli_value(s->cli, BPPSA_OPTION_QUICK)->given ? 0.2 : 2;
  const bppsa_scan_plan *plan = bppsa_cnn_plan(s->model);
  row forward = {.method = "forward", .phase = "forward", .flops = forward_flops(s)};
  row backward = {.method = methods[method].name, .phase = "backward", .flops = s->baseline, .plan_s = plan_s};
  if (method == 0) {
    BPPSA_TRY(bppsa_bench_time(run_forward, s, repeats, budget, &forward.time));
    BPPSA_TRY(add_row(s, &forward));
  }
  BPPSA_TRY(run_forward(s));
  BPPSA_TRY(bppsa_bench_time(run_backward, s, repeats, budget, &backward.time));
  backward.residual = worst_residual(s);
  s->bp_s = method == 0 ? backward.time.median_s : s->bp_s;
  if (plan != NULL) {
    const bppsa_scan_totals *t = bppsa_scan_plan_totals(plan);
    backward.flops = (double)(t->mm_flops + t->mv_flops);
    backward.held = t->workspace_bytes;
  }
  return add_row(s, &backward);
}

static bppsa_status measure_method(session *s, int method) {
  const double start = bppsa_bench_now();
  bppsa_status status = make_model(s, method, BPPSA_F32, &s->model);
  if (status == BPPSA_ERR_ARGUMENT) { /* beyond the limit: left out, and said */
    return s->cli->json ? BPPSA_OK : bppsa_cli_print(s->cli, "  %-12s left out: %s\n", methods[method].name, bppsa_last_error());
  }
  BPPSA_TRY(status);
  status = time_rows(s, method, bppsa_bench_now() - start);
  bppsa_model_destroy(s->model);
  s->model = NULL;
  return status;
}

static bppsa_status measure(session *s) {
  const uint64_t seed = (uint64_t)bppsa_cli_value(s->cli, BPPSA_OPTION_SEED)->integer;
  const int64_t batch = bppsa_cli_value(s->cli, BPPSA_OPTION_BATCH)->integer;
  BPPSA_TRY(bppsa_network_open(s->cli, &s->network));
  const int64_t *in = s->network.layers.in, x_shape[] = {batch, in[0], in[1], in[2]};
  const int64_t seed_shape[] = {batch, bppsa_cnn_size(&s->network.layers, s->network.layers.count)};
  BPPSA_TRY(fill_pair(s->x, 4, x_shape, seed, 230, 2));
  BPPSA_TRY(fill_pair(s->seed, 2, seed_shape, seed, 231, 1 / (double)batch));
  BPPSA_TRY(count_baseline(s));
  BPPSA_TRY(make_reference(s));
  if (!s->cli->json) {
    char date[BPPSA_DATE_TEXT];
    BPPSA_TRY(bppsa_cli_print(
        s->cli,
        "%s on %s, %d threads, B = %" PRId64 ", f32, %s\n"
        "milliseconds; backward passes beside BP's, in time and in FLOPs of the gradients between layers\n\n"
        "  method           median        min        max     n  work           time     FLOP  held       plan ms  residual\n",
        s->network.kind->name, bppsa_device_get_hardware(s->device), bppsa_device_get_threads(s->device), batch,
        bppsa_machine_date(date, sizeof date)));
  }
  for (int method = 0; method < METHODS; ++method) {
    BPPSA_TRY(measure_method(s, method));
  }
  return BPPSA_OK;
}

static bppsa_status run(bppsa_cli *cli) {
  bppsa_bench_output output;
  BPPSA_TRY(bppsa_bench_open(cli, "cnn", &output));
  session s = {.cli = cli, .device = output.device, .rows = output.rows};
  const bppsa_status status = measure(&s);
  bppsa_model_destroy(s.model);
  bppsa_model_destroy(s.reference);
  for (int i = 0; i < 2; ++i) {
    bppsa_buffer_free(&s.x[i]);
    bppsa_buffer_free(&s.seed[i]);
  }
  bppsa_network_close(&s.network);
  return bppsa_bench_close(&output, status, s.failed, WRONG);
}

const bppsa_command bppsa_command_bench_lenet5 = {.verb = "bench",
                                                  .object = "lenet5",
                                                  .summary = "Verifies and times LeNet-5: forward, BP and every sparse scan",
                                                  .example = "bench lenet5 --quick",
                                                  .notes = notes,
                                                  .uses = uses,
                                                  .run = run};
