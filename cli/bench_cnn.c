/* `bench lenet5`, `bench vgg11`: a convolutional network's forward pass, sequential BP and the scan, verified and timed in one run. On a GPU each of
 * them also as a CUDA graph, and BP with the gradients of weights on a second stream besides. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/bench_queued.h"
#include "cli/machine.h"
#include "cli/prune.h"
#include "core/alloc.h"
#include "core/buffer.h"
#include "core/memory.h"
#include "core/philox.h"
#include "jacobian/jacobian.h"

#define USES(batch, fraction)                                                                                                    \
  {                                                                                                                              \
    {.option = BPPSA_OPTION_PRUNE, .fallback = (fraction)}, {.option = BPPSA_OPTION_METHOD},                                     \
        {.option = BPPSA_OPTION_QUICK, .help = "a tenth of the time"}, {.option = BPPSA_OPTION_REPEATS},                         \
        {.option = BPPSA_OPTION_TIME_LIMIT, .help = "begin no further row after that time; those left out are named [none]"},    \
        {.option = BPPSA_OPTION_BATCH, .fallback = (batch), .help = "samples"},                                                  \
        {.option = BPPSA_OPTION_SEED, .help = "of weights, images and the logits' gradient"}, {.option = BPPSA_OPTION_DEVICE},   \
        {.option = BPPSA_OPTION_THREADS},                                                                                        \
        {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = "what needs more is left out [1/2 of available memory]"},                  \
        {.option = BPPSA_OPTION_OUT, .metavar = "F.json", .help = "where the JSON document goes too"},                           \
        {.option = BPPSA_OPTION_JSON}, {.option = BPPSA_OPTION_HELP}, {                                                          \
      .option = BPPSA_OPTION_COUNT                                                                                               \
    }                                                                                                                            \
  }
static const bppsa_option_use uses_lenet5[] = USES("256", "0"), uses_vgg11[] = USES("1", "0.97");

static const char notes[] =
    "f32. forward is the pass to the logits; the other rows are backward passes, weight gradients included, the input's not.\n"
    "FLOP: of the gradients of the layers' inputs alone, by the BP baseline of `bppsa flops` (pruned weights, which BP\n"
    "multiplies like others, included), or the scan's plan; path: of its longest chain of products. The ratios are to BP's, of\n"
    "graphs to the graph of BP. Logits and gradients of every row are first held against BP in float64 on the processor: a\n"
    "residual of 30 or more marks the row and exits 1. On a GPU BP is cuDNN's, and second_stream has the weights' gradients\n"
    "beside the others. " BPPSA_BENCH_QUEUED_NOTE "bench/rivals/bench_cnn_pytorch.py times PyTorch in the same run.\n";

enum { WRONG = 30 };

typedef struct {
  const char *name;
  bppsa_gradient_method gradients;
  bppsa_weight_gradients order; /* the second stream: on a GPU */
  bool all_levels;              /* products of whole networks: not of VGG-11 */
} method;

static const method methods[] = {
    {"bp", {BPPSA_BACKWARD_BP, {BPPSA_SCAN_LINEAR, 0, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, false},
    {"bp_second_stream", {BPPSA_BACKWARD_BP, {BPPSA_SCAN_LINEAR, 0, 0}}, BPPSA_WEIGHT_GRADIENTS_SECOND_STREAM, false},
    {"linear", {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_LINEAR, 0, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, false},
    {"up_levels 1", {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, 1, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, false},
    {"up_levels 2", {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, 2, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, false},
    {"blelloch", {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, -1, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, true},
    {"auto", {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_AUTO, 0, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, false}};
enum { METHODS = sizeof methods / sizeof methods[0] };

typedef struct {
  bppsa_cli *cli;
  const bppsa_device *device;
  bppsa_device *host; /* of the reference */
  bppsa_network network;
  bppsa_masks masks; /* of pruned weights, by the holder's names */
  json_t *rows, *left_out;
  int64_t failed, memory_limit;
  double deadline;            /* s; 0: none */
  bppsa_buffer x[2], seed[2]; /* f32 where the device has it, f64 on the host: the same numbers */
  bppsa_model *holder;        /* of the weights, f32 */
  bppsa_model *reference;     /* f64, BP, on the host */
  bppsa_view reference_logits;
  bppsa_model *model; /* the one that is timed */
  bppsa_view logits;  /* of its latest forward pass */
  double baseline;    /* FLOPs of BP's input gradients of one sample, the first operator's left out */
  double bp_s[2];     /* of BP, queued and as a graph; 0: not measured */
} session;

static bool on_gpu(const session *s) {
  return bppsa_device_get_kind(s->device) == BPPSA_CUDA;
}

/* ---- operands ---- */

static bppsa_status fill_pair(const session *s, bppsa_buffer pair[2], int32_t ndim, const int64_t *shape, uint64_t stream,
                              double scale) {
  const uint64_t seed = (uint64_t)bppsa_cli_value(s->cli, BPPSA_OPTION_SEED)->integer;
  BPPSA_TRY(bppsa_buffer_create(NULL, BPPSA_F32, ndim, shape, &pair[0]));
  BPPSA_TRY(bppsa_buffer_create(NULL, BPPSA_F64, ndim, shape, &pair[1]));
  for (int64_t i = 0; i < bppsa_view_count(&pair[0].view); ++i) {
    bppsa_view_set(&pair[0].view, i, scale * (2 * bppsa_random_double(seed, BPPSA_STREAM_TEST + stream, (uint64_t)i) - 1));
  }
  BPPSA_TRY(bppsa_view_convert(&pair[0].view, &pair[1].view));
  return bppsa_buffer_move(s->device, &pair[0]);
}

static bppsa_status count_baseline(session *s) {
  for (int64_t i = 1; i + 1 < s->network.layers.count; ++i) {
    const bppsa_op *op = &s->network.layers.layers[i].op;
    bppsa_jacobian *whole = NULL;
    BPPSA_TRY(bppsa_jacobian_create(op, NULL, true, s->host, &whole));
    const bppsa_csr *c = bppsa_jacobian_pattern(whole);
    s->baseline += (double)bppsa_op_baseline_flops(op, c->rows, c->cols, c->nnz);
    bppsa_jacobian_destroy(whole);
  }
  return BPPSA_OK;
}

/* ---- models ---- */

/* The holder's parameters, named. Owned. */
static bppsa_named_view *holder_tensors(const session *s) {
  bppsa_named_view *tensors = bppsa_calloc(s->holder->parameter_count, sizeof *tensors);
  for (int64_t p = 0; tensors != NULL && p < s->holder->parameter_count; ++p) {
    tensors[p] = (bppsa_named_view){s->holder->parameters[p].name, s->holder->parameters[p].value};
  }
  return tensors;
}

/* A model with the holder's weights, pruned like all others. */
static bppsa_status make_model(const session *s, const bppsa_cnn_config *config, const bppsa_device *device,
                               bppsa_model **model) {
  bppsa_cnn_config masked = *config;
  bppsa_model *made = NULL;
  masked.masks = s->masks.masks;
  masked.mask_count = s->masks.count;
  BPPSA_TRY(bppsa_cnn_create(&s->network.layers, &masked, device, &made));
  bppsa_named_view *tensors = holder_tensors(s);
  const bppsa_status status =
      tensors == NULL ? BPPSA_ERR_MEMORY : bppsa_model_set(made, "bench", s->holder->parameter_count, tensors);
  bppsa_free(tensors);
  if (status != BPPSA_OK) {
    bppsa_model_destroy(made);
    return status;
  }
  *model = made;
  return BPPSA_OK;
}

static bppsa_cnn_config config_of(const session *s, const method *m, bppsa_dtype dtype) {
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = s->x[0].view.shape[0];
  config.dtype = dtype;
  config.method = m->gradients;
  config.weight_gradients = m->order;
  config.memory_limit = s->memory_limit;
  return config;
}

/* Weights by --seed, and which of them stay. */
static bppsa_status make_holder(session *s) {
  const double fraction = bppsa_cli_value(s->cli, BPPSA_OPTION_PRUNE)->real;
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = 1;
  config.method.backward = BPPSA_BACKWARD_BP;
  BPPSA_TRY(bppsa_cnn_create(&s->network.layers, &config, s->host, &s->holder));
  BPPSA_TRY(bppsa_cnn_init(s->holder, (uint64_t)bppsa_cli_value(s->cli, BPPSA_OPTION_SEED)->integer));
  if (fraction == 0) {
    return BPPSA_OK;
  }
  bppsa_named_view *tensors = holder_tensors(s);
  const bppsa_status status = tensors == NULL
                                  ? BPPSA_ERR_MEMORY
                                  : bppsa_masks_make((bppsa_prune_method)bppsa_cli_value(s->cli, BPPSA_OPTION_METHOD)->choice,
                                                     fraction, s->holder->parameter_count, tensors, &s->masks);
  bppsa_free(tensors);
  return status;
}

static bppsa_status make_reference(session *s) {
  bppsa_cnn_config config = config_of(s, &methods[0], BPPSA_F64);
  config.memory_limit = 0;
  BPPSA_TRY(make_model(s, &config, s->host, &s->reference));
  BPPSA_TRY(s->reference->ops->forward(s->reference, &s->x[1].view, NULL, &s->reference_logits));
  return s->reference->ops->backward(s->reference, &s->seed[1].view);
}

/* ---- passes ---- */

static bppsa_status queue_forward(void *context) {
  session *s = context;
  return s->model->ops->forward(s->model, &s->x[0].view, NULL, &s->logits);
}

static bppsa_status queue_backward(void *context) {
  const session *s = context;
  return s->model->ops->backward(s->model, &s->seed[0].view);
}

/* On a GPU: the results of such a pass are 0 again. */
static bppsa_status clear_forward(void *context) {
  const session *s = context;
  return bppsa_memory_clear(s->device, s->logits.data, (int64_t)bppsa_view_bytes(&s->logits));
}

static bppsa_status clear_backward(void *context) {
  const bppsa_model *model = ((const session *)context)->model;
  return bppsa_memory_clear(model->device, model->device_gradients, model->reals * (int64_t)bppsa_dtype_size(model->dtype));
}

/* The larger one; NaN stays. */
static double worse(double a, double b) {
  return b <= a ? a : b;
}

/* The residual of the latest forward pass's logits. */
static bppsa_status judge_forward(const session *s, double *residual) {
  bppsa_buffer copy;
  BPPSA_TRY(bppsa_buffer_fetch(s->device, &s->logits, &copy));
  *residual = bppsa_bench_residual(&copy.view, s->reference_logits.data, s->network.layers.count);
  bppsa_buffer_free(&copy);
  return BPPSA_OK;
}

/* The worst residual of the latest backward pass's gradients. */
static bppsa_status judge_backward(const session *s, double *residual) {
  double worst = 0;
  BPPSA_TRY(bppsa_model_pull(s->model, true));
  for (int64_t p = 0; p < s->model->parameter_count; ++p) {
    worst = worse(worst, bppsa_bench_residual(&s->model->parameters[p].gradient, s->reference->parameters[p].gradient.data,
                                              s->network.layers.count));
  }
  *residual = worst;
  return BPPSA_OK;
}

/* ---- timing ---- */

static int64_t repeats(const session *s) {
  return bppsa_cli_value(s->cli, BPPSA_OPTION_REPEATS)->integer;
}

static double budget(const session *s) {
  return bppsa_cli_value(s->cli, BPPSA_OPTION_QUICK)->given ? 0.2 : 2;
}

static bppsa_status time_pass(session *s, bppsa_queued_work work, bppsa_timing *timing) {
  return bppsa_bench_time_on(s->device, work, s, repeats(s), budget(s), timing);
}

/* ---- rows ---- */

typedef struct {
  const char *method;
  bool backward, graph;
  bppsa_timing time;
  double residual, flops, path, plan_s; /* flops of one sample, path: of its longest chain of products */
  int64_t held, steps, nodes;           /* steps: products on that chain; nodes: of a graph */
} row;

static bool put_row(const session *s, const row *r, const char *name, double time_ratio, json_t *object) {
  const int64_t batch = s->x[0].view.shape[0];
  bool ok = object != NULL && bppsa_json_put_text(object, "network", s->network.kind->name);
  ok = ok && bppsa_json_put_text(object, "method", name) &&
       bppsa_json_put_text(object, "phase", r->backward ? "backward" : "forward");
  ok = ok && bppsa_json_put_integer(object, "batch", batch) && bppsa_json_put_text(object, "dtype", "f32");
  ok = ok && bppsa_json_put_real(object, "prune", bppsa_cli_value(s->cli, BPPSA_OPTION_PRUNE)->real);
  ok = ok && bppsa_json_put_integer(object, "threads", bppsa_device_get_threads(s->device));
  ok = ok && bppsa_json_put_bool(object, "graph", r->graph) && bppsa_json_put_integer(object, "graph_nodes", r->nodes);
  ok = ok && bppsa_json_put_real(object, "median_s", r->time.median_s) && bppsa_json_put_real(object, "min_s", r->time.min_s);
  ok = ok && bppsa_json_put_real(object, "max_s", r->time.max_s) && bppsa_json_put_integer(object, "repeats", r->time.repeats);
  ok = ok && bppsa_json_put_real(object, "residual", r->residual) &&
       bppsa_json_put_real(object, "flops", (double)batch * r->flops);
  ok = ok && bppsa_json_put_integer(object, "bytes", r->held) && bppsa_json_put_real(object, "plan_s", r->plan_s);
  if (r->backward) {
    ok = ok && bppsa_json_put_real(object, "time_of_bp", time_ratio) &&
         bppsa_json_put_real(object, "flops_of_bp", r->flops / s->baseline);
    ok = ok && bppsa_json_put_real(object, "critical_flops_of_bp", r->path / s->baseline) &&
         bppsa_json_put_integer(object, "critical_steps", r->steps);
  }
  return ok;
}

static bppsa_status print_row(const session *s, const row *r, const char *name, double time_ratio) {
  char text[2][BPPSA_SI_TEXT];
  const double batch = (double)s->x[0].view.shape[0];
  return bppsa_cli_print(s->cli, "  %-23s%11.3f%11.3f%11.3f%6" PRId64 "  %-10s%9.2f%9.2f%9.2f  %-9s%9.1f%10.2f%s\n", name,
                         1e3 * r->time.median_s, 1e3 * r->time.min_s, 1e3 * r->time.max_s, r->time.repeats,
                         bppsa_cli_si(batch * r->flops, "FLOP", text[0], sizeof text[0]), time_ratio,
                         r->backward ? r->flops / s->baseline : 0, r->backward ? r->path / s->baseline : 0,
                         bppsa_cli_si((double)r->held, "B", text[1], sizeof text[1]), 1e3 * r->plan_s, r->residual,
                         r->residual < WRONG ? "" : "  WRONG");
}

static bppsa_status add_row(session *s, const row *r) {
  char name[40];
  const double bp_s = s->bp_s[r->graph], ratio = r->backward && bp_s > 0 ? r->time.median_s / bp_s : 0;
  snprintf(name, sizeof name, "%s%s", r->method, r->graph ? "_graph" : "");
  s->failed += !(r->residual < WRONG);
  json_t *object = json_object();
  if (json_array_append_new(s->rows, bppsa_json_finish(object, put_row(s, r, name, ratio, object))) != 0) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "bench: out of memory, expected room for the results");
  }
  return s->cli->json ? BPPSA_OK : print_row(s, r, name, ratio);
}

/* A method that cannot run here, or comes too late: named with the reason. */
static bppsa_status leave_out(session *s, const char *name, const char *why) {
  BPPSA_TRY(bppsa_bench_leave_out(s->left_out, (const char *const[]){"method", name, NULL}, why));
  return s->cli->json ? BPPSA_OK : bppsa_cli_print(s->cli, "  %-23s left out: %s\n", name, why);
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

/* The pass as a graph, timed and judged again: its results are the replays' alone. */
static bppsa_status add_graph_row(session *s, row r) {
  bppsa_bench_recording recording;
  if (!on_gpu(s)) {
    return BPPSA_OK;
  }
  const bppsa_status recorded = r.backward ? bppsa_bench_record(s->device, queue_backward, clear_backward, s, &recording)
                                           : bppsa_bench_record(s->device, queue_forward, clear_forward, s, &recording);
  if (recorded == BPPSA_ERR_UNSUPPORTED) {
    char name[40];
    snprintf(name, sizeof name, "%s_graph", r.method);
    return leave_out(s, name, bppsa_last_error());
  }
  BPPSA_TRY(recorded);
  r.graph = true;
  r.nodes = recording.nodes;
  bppsa_status status = bppsa_bench_replay(&recording, repeats(s), budget(s), &r.time);
  bppsa_bench_recording_free(&recording);
  if (status == BPPSA_OK) {
    status = r.backward ? judge_backward(s, &r.residual) : judge_forward(s, &r.residual);
  }
  s->bp_s[1] = status == BPPSA_OK && r.method == methods[0].name ? r.time.median_s : s->bp_s[1];
  return status == BPPSA_OK ? add_row(s, &r) : status;
}

static bppsa_status time_rows(session *s, const method *m, double plan_s) {
  const bppsa_scan_plan *plan = bppsa_cnn_plan(s->model);
  row forward = {.method = "forward", .flops = forward_flops(s)};
  row backward = {.method = m->name,
                  .backward = true,
                  .flops = s->baseline,
                  .path = s->baseline,
                  .plan_s = plan_s,
                  .steps = s->network.layers.count - 2};
  BPPSA_TRY(queue_forward(s));
  BPPSA_TRY(judge_forward(s, &forward.residual));
  if (m == methods) {
    BPPSA_TRY(time_pass(s, queue_forward, &forward.time));
    BPPSA_TRY(add_row(s, &forward));
    BPPSA_TRY(add_graph_row(s, forward));
  }
  BPPSA_TRY(queue_backward(s));
  BPPSA_TRY(judge_backward(s, &backward.residual));
  BPPSA_TRY(time_pass(s, queue_backward, &backward.time));
  s->bp_s[0] = m == methods ? backward.time.median_s : s->bp_s[0];
  if (plan != NULL) {
    const bppsa_scan_totals *t = bppsa_scan_plan_totals(plan);
    backward.flops = (double)(t->mm_flops + t->mv_flops);
    backward.path = (double)t->critical_flops;
    backward.steps = t->critical_steps;
    backward.held = t->workspace_bytes;
  }
  backward.residual = worse(backward.residual, forward.residual);
  BPPSA_TRY(add_row(s, &backward));
  return add_graph_row(s, backward);
}

/* What is beyond the limit, and of a GPU what has no kernels there, is left out; without BP there is nothing to measure. */
static bppsa_status measure_method(session *s, const method *m) {
  const double start = bppsa_bench_now();
  if (s->deadline > 0 && start > s->deadline) {
    return leave_out(s, m->name, "--time-limit was over");
  }
  const bppsa_cnn_config config = config_of(s, m, BPPSA_F32);
  bppsa_status status = make_model(s, &config, s->device, &s->model);
  if (status == BPPSA_ERR_ARGUMENT || (status == BPPSA_ERR_UNSUPPORTED && m != methods)) {
    return leave_out(s, m->name, bppsa_last_error());
  }
  BPPSA_TRY(status);
  status = time_rows(s, m, bppsa_bench_now() - start);
  bppsa_model_destroy(s->model);
  s->model = NULL;
  return status;
}

/* ---- all of it ---- */

static bppsa_status print_head(const session *s) {
  char date[BPPSA_DATE_TEXT], pruned[40] = "";
  const double fraction = bppsa_cli_value(s->cli, BPPSA_OPTION_PRUNE)->real;
  if (fraction > 0) {
    snprintf(pruned, sizeof pruned, ", %.4g %% pruned", 100 * fraction);
  }
  return bppsa_cli_print(s->cli,
                         "%s%s on %s, %d threads, B = %" PRId64 ", f32, %s\n"
                         "milliseconds; backward passes beside BP's, in time and in FLOPs of the gradients between layers\n\n"
                         "  method                      median        min        max     n  work           time     FLOP     "
                         "path  held       plan ms  "
                         "residual\n",
                         s->network.kind->name, pruned, bppsa_device_get_hardware(s->device), bppsa_device_get_threads(s->device),
                         s->x[0].view.shape[0], bppsa_machine_date(date, sizeof date));
}

/* Half of what is available where the network runs. */
static bppsa_status set_limits(session *s) {
  const bppsa_option_value *limit = bppsa_cli_value(s->cli, BPPSA_OPTION_MEMORY_LIMIT),
                           *seconds = bppsa_cli_value(s->cli, BPPSA_OPTION_TIME_LIMIT);
  int64_t available = bppsa_machine_memory();
  if (on_gpu(s)) {
    BPPSA_TRY(bppsa_memory_available(s->device, &available));
  }
  s->memory_limit = limit->present ? limit->integer : available / 2;
  s->deadline = seconds->given ? bppsa_bench_now() + (double)seconds->integer : 0;
  return BPPSA_OK;
}

static bppsa_status prepare(session *s) {
  const int64_t batch = bppsa_cli_value(s->cli, BPPSA_OPTION_BATCH)->integer;
  BPPSA_TRY(set_limits(s));
  BPPSA_TRY(bppsa_network_open(s->cli, &s->network));
  BPPSA_TRY(bppsa_device_create("cpu", bppsa_device_get_threads(s->device), &s->host));
  const int64_t *in = s->network.layers.in, x_shape[] = {batch, in[0], in[1], in[2]};
  const int64_t seed_shape[] = {batch, bppsa_cnn_size(&s->network.layers, s->network.layers.count)};
  BPPSA_TRY(fill_pair(s, s->x, 4, x_shape, 230, 2));
  BPPSA_TRY(fill_pair(s, s->seed, 2, seed_shape, 231, 1 / (double)batch));
  BPPSA_TRY(count_baseline(s));
  BPPSA_TRY(make_holder(s));
  return make_reference(s);
}

static bppsa_status measure(session *s) {
  BPPSA_TRY(prepare(s));
  if (!s->cli->json) {
    BPPSA_TRY(print_head(s));
  }
  for (const method *m = methods; m < methods + METHODS; ++m) {
    const bool small = strcmp(s->network.kind->name, "vgg11") != 0;
    if ((m->order == BPPSA_WEIGHT_GRADIENTS_IN_ORDER || on_gpu(s)) && (!m->all_levels || small)) {
      BPPSA_TRY(measure_method(s, m));
    }
  }
  return BPPSA_OK;
}

static bppsa_status run(bppsa_cli *cli) {
  bppsa_bench_output output;
  BPPSA_TRY(bppsa_bench_open(cli, "cnn", &output));
  session s = {.cli = cli, .device = output.device, .rows = output.rows};
  bppsa_status status = bppsa_bench_list_left_out(&output, &s.left_out);
  status = status == BPPSA_OK ? measure(&s) : status;
  bppsa_model_destroy(s.model);
  bppsa_model_destroy(s.reference);
  bppsa_masks_free(&s.masks);
  bppsa_model_destroy(s.holder);
  for (int i = 0; i < 2; ++i) {
    bppsa_buffer_free(&s.x[i]);
    bppsa_buffer_free(&s.seed[i]);
  }
  bppsa_network_close(&s.network);
  bppsa_device_destroy(s.host);
  return bppsa_bench_close(&output, status, s.failed, WRONG);
}

const bppsa_command bppsa_command_bench_lenet5 = {.verb = "bench",
                                                  .object = "lenet5",
                                                  .summary = "Verifies and times LeNet-5: forward, BP and every sparse scan",
                                                  .example = "bench lenet5 --quick",
                                                  .notes = notes,
                                                  .uses = uses_lenet5,
                                                  .run = run};

const bppsa_command bppsa_command_bench_vgg11 = {.verb = "bench",
                                                 .object = "vgg11",
                                                 .summary = "Verifies and times the pruned VGG-11: forward, BP and sparse scans",
                                                 .example = "bench vgg11 --quick",
                                                 .notes = notes,
                                                 .uses = uses_vgg11,
                                                 .run = run};
