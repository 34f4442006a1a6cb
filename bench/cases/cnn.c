/* `bench lenet5`, `bench vgg11`: a convolutional network's forward pass, sequential BP and the scan, verified and timed in one
 * run. On a GPU each of them is also timed as a CUDA graph, and BP also with the gradients of weights on a second stream. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/cases/case.h"
#include "bench/harness/machine.h"
#include "bench/harness/recording.h"
#include "cnn/work.h"
#include "core/alloc.h"
#include "core/buffer.h"
#include "core/clock.h"
#include "core/memory.h"
#include "core/philox.h"
#include "jacobian/jacobian.h"
#include "models/masks.h"
#include "scan/work.h"

const char bppsa_bench_notes_cnn[] =
    "f32. forward is the pass to the logits; the other rows are backward passes, weight gradients included, the input's not.\n"
    "FLOP: of the gradients between layers alone, as `bppsa flops` counts them; path: of the longest chain of products. The\n"
    "table's ratios are to the row bp, which multiplies pruned weights like all others (flops_of_unpruned_bp in the document;\n"
    "flops_of_bp is to BP over the same patterns: linear has 1.00), of graphs' times to the graph of BP. Logits and gradients of "
    "every row are first held against BP in float64 on the processor: a\n"
    "residual of 30 or more marks the row and exits 1. All methods are held side by side and take turns. On a GPU BP is cuDNN's, "
    "and second_stream has the weights' gradients\n"
    "beside the others. auto is what --backward auto takes; takes names it in the document. " BPPSA_BENCH_QUEUED_NOTE
    "bench/rivals/bench_cnn_pytorch.py times PyTorch in the same run.\n";

enum { WRONG = 30 };

typedef struct {
  const char *name;
  bppsa_gradient_method gradients;
  bppsa_weight_gradients order; /* a second stream runs on a GPU only */
  bool all_levels;              /* products span the whole network, which is too large for VGG-11 */
} method;

static const method methods[] = {
    {"bp", {BPPSA_BACKWARD_BP, {BPPSA_SCAN_LINEAR, 0, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, false},
    {"bp_second_stream", {BPPSA_BACKWARD_BP, {BPPSA_SCAN_LINEAR, 0, 0}}, BPPSA_WEIGHT_GRADIENTS_SECOND_STREAM, false},
    {"linear", {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_LINEAR, 0, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, false},
    {"up_levels 1", {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, 1, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, false},
    {"up_levels 2", {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, 2, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, false},
    {"blelloch", {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, -1, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, true},
    {"auto", {BPPSA_BACKWARD_AUTO, {BPPSA_SCAN_AUTO, 0, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, false}};
enum { METHODS = sizeof methods / sizeof methods[0] };

typedef struct session session;

/* The model of one method. All models exist at once, so that the methods can take turns. */
typedef struct {
  session *s;
  bppsa_model *model;
  bppsa_view logits; /* of its latest forward pass */
} entrant;

typedef struct {
  const char *method;
  bool backward, graph;
  char takes[BPPSA_METHOD_TEXT]; /* backward: the method that runs, as text */
  double residual, plan_s;
  bppsa_work flops;                /* of one sample; a forward pass keeps its FLOPs in `gradients` */
  int64_t held, steps, nodes;      /* steps: products on the critical path; nodes: of a graph */
  bppsa_timed_work work;           /* the pass, queued anew; or */
  bppsa_bench_recording recording; /* of a graph */
} row;

struct session {
  const bppsa_bench_settings *asked;
  const bppsa_device *device;
  bppsa_device *host; /* computes the reference */
  const bppsa_network *network;
  bppsa_masks masks; /* which weights pruning leaves, under the holder's names */
  json_t *rows, *left_out;
  int64_t failed, noisy, memory_limit;
  double deadline;            /* s; 0: none */
  bppsa_buffer x[2], seed[2]; /* [0]: f32 on the device; [1]: the same numbers in f64 on the host */
  bppsa_model *holder;        /* has the weights in f32 */
  bppsa_model *reference;     /* f64, BP, on the host */
  bppsa_view reference_logits;
  bppsa_work bp, unpruned; /* FLOPs of BP over the weights that pruning leaves; over all weights, which the rows of BP compute */
  int64_t held;            /* bytes of the entrants' products */
  int entrants, row_count;
  entrant list[METHODS];
  row timed[2 * METHODS + 2]; /* for each method a backward pass and its graph; and the forward pass with its graph */
};

static bool on_gpu(const session *s) {
  return bppsa_device_get_kind(s->device) == BPPSA_CUDA;
}

/* ---- operands ---- */

static bppsa_status fill_pair(const session *s, bppsa_buffer pair[2], int32_t ndim, const int64_t *shape, uint64_t stream,
                              double scale) {
  const uint64_t seed = s->asked->request.seed;
  BPPSA_TRY(bppsa_buffer_create(NULL, BPPSA_F32, ndim, shape, &pair[0]));
  BPPSA_TRY(bppsa_buffer_create(NULL, BPPSA_F64, ndim, shape, &pair[1]));
  for (int64_t i = 0; i < bppsa_view_count(&pair[0].view); ++i) {
    bppsa_view_set(&pair[0].view, i, scale * (2 * bppsa_random_double(seed, BPPSA_STREAM_TEST + stream, (uint64_t)i) - 1));
  }
  BPPSA_TRY(bppsa_view_convert(&pair[0].view, &pair[1].view));
  return bppsa_buffer_move(s->device, &pair[0]);
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

/* A model with the holder's weights and masks. */
static bppsa_status make_model(const session *s, const bppsa_cnn_config *config, const bppsa_device *device,
                               bppsa_model **model) {
  bppsa_cnn_config masked = *config;
  bppsa_model *made = NULL;
  masked.masks = s->masks.masks;
  masked.mask_count = s->masks.count;
  BPPSA_TRY(bppsa_cnn_create(&s->network->layers, &masked, device, &made));
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
  config.memory_limit = s->memory_limit > s->held ? s->memory_limit - s->held : 1;
  return config;
}

/* Makes the weights from the seed and decides which of them stay. */
static bppsa_status make_holder(session *s) {
  const double fraction = s->asked->prune;
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = 1;
  config.method.backward = BPPSA_BACKWARD_BP;
  BPPSA_TRY(bppsa_cnn_create(&s->network->layers, &config, s->host, &s->holder));
  BPPSA_TRY(bppsa_cnn_init(s->holder, s->asked->request.seed));
  if (fraction == 0) {
    return BPPSA_OK;
  }
  bppsa_named_view *tensors = holder_tensors(s);
  const bppsa_status status =
      tensors == NULL ? BPPSA_ERR_MEMORY
                      : bppsa_masks_make(s->asked->prune_method, fraction, s->holder->parameter_count, tensors, &s->masks);
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
  entrant *e = context;
  return e->model->ops->forward(e->model, &e->s->x[0].view, NULL, &e->logits);
}

static bppsa_status queue_backward(void *context) {
  const entrant *e = context;
  return e->model->ops->backward(e->model, &e->s->seed[0].view);
}

/* On a GPU: sets the results of a pass to 0. */
static bppsa_status clear_forward(void *context) {
  const entrant *e = context;
  return bppsa_memory_clear(e->s->device, e->logits.data, (int64_t)bppsa_view_bytes(&e->logits));
}

static bppsa_status clear_backward(void *context) {
  const bppsa_model *model = ((const entrant *)context)->model;
  return bppsa_memory_clear(model->device, model->device_gradients, model->reals * (int64_t)bppsa_dtype_size(model->dtype));
}

/* Returns the larger of two numbers; NaN where one of them is NaN. */
static double worse(double a, double b) {
  return b <= a ? a : b;
}

/* The residual of the latest forward pass's logits. */
static bppsa_status judge_forward(const entrant *e, double *residual) {
  bppsa_buffer copy;
  BPPSA_TRY(bppsa_buffer_fetch(e->s->device, &e->logits, &copy));
  *residual = bppsa_bench_residual(&copy.view, e->s->reference_logits.data, e->s->network->layers.count);
  bppsa_buffer_free(&copy);
  return BPPSA_OK;
}

/* The worst residual of the latest backward pass's gradients. */
static bppsa_status judge_backward(const entrant *e, double *residual) {
  const bppsa_model *reference = e->s->reference;
  double worst = 0;
  BPPSA_TRY(bppsa_model_pull(e->model, true));
  for (int64_t p = 0; p < e->model->parameter_count; ++p) {
    worst = worse(worst, bppsa_bench_residual(&e->model->parameters[p].gradient, reference->parameters[p].gradient.data,
                                              e->s->network->layers.count));
  }
  *residual = worst;
  return BPPSA_OK;
}

static bppsa_status judge(const entrant *e, bool backward, double *residual) {
  return backward ? judge_backward(e, residual) : judge_forward(e, residual);
}

/* ---- rows ---- */

static bool put_row(const session *s, const row *r, const bppsa_timing *t, const char *name, double time_ratio, json_t *object) {
  const int64_t batch = s->x[0].view.shape[0];
  bool ok = object != NULL && bppsa_json_put_text(object, "network", s->network->kind->name);
  ok = ok && bppsa_json_put_text(object, "method", name) &&
       bppsa_json_put_text(object, "phase", r->backward ? "backward" : "forward");
  ok = ok && bppsa_json_put_integer(object, "batch", batch) && bppsa_json_put_text(object, "dtype", "f32");
  ok = ok && bppsa_json_put_real(object, "prune", s->asked->prune);
  ok = ok && bppsa_json_put_integer(object, "threads", bppsa_device_get_threads(s->device));
  ok = ok && bppsa_json_put_bool(object, "graph", r->graph) && bppsa_json_put_integer(object, "graph_nodes", r->nodes);
  ok = ok && bppsa_bench_put_timing(object, t);
  ok = ok && bppsa_json_put_real(object, "residual", r->residual) &&
       bppsa_json_put_real(object, "flops", (double)batch * r->flops.gradients);
  ok = ok && bppsa_json_put_integer(object, "bytes", r->held) && bppsa_json_put_real(object, "plan_s", r->plan_s);
  if (r->backward) {
    ok = ok && bppsa_json_put_text(object, "takes", r->takes);
    const bppsa_work_ratios same = bppsa_work_over(&r->flops, &s->bp), whole = bppsa_work_over(&r->flops, &s->unpruned);
    ok = ok && bppsa_json_put_real(object, "time_of_bp", time_ratio) && bppsa_work_json(object, "bp", &same);
    ok = ok && bppsa_work_json(object, "unpruned_bp", &whole) && bppsa_json_put_integer(object, "critical_steps", r->steps);
  }
  return ok;
}

static bppsa_status print_row(const session *s, const row *r, const bppsa_timing *t, const char *name, double time_ratio,
                              bool noisy_ratio) {
  char text[2][BPPSA_SI_TEXT], median[BPPSA_TIMING_TEXT], ratio[BPPSA_TIMING_TEXT];
  const double batch = (double)s->x[0].view.shape[0];
  const bppsa_work_ratios flops = bppsa_work_over(&r->flops, &s->unpruned);
  snprintf(ratio, sizeof ratio, "%s%.2f", bppsa_timing_mark(noisy_ratio), time_ratio);
  return bppsa_output_print(&s->asked->request.to, "  %-23s%11s%11.3f%11.3f%6" PRId64 "  %-10s%9s%9.2f%9.2f  %-9s%9.1f%10.2f%s\n",
                            name, bppsa_timing_median_ms(t, 3, median), 1e3 * t->min_s, 1e3 * t->max_s, t->repeats,
                            bppsa_text_si(batch * r->flops.gradients, "FLOP", text[0], sizeof text[0]), ratio,
                            r->backward ? flops.gradients : 0, r->backward ? flops.critical : 0,
                            bppsa_text_si((double)r->held, "B", text[1], sizeof text[1]), 1e3 * r->plan_s, r->residual,
                            r->residual < WRONG ? "" : "  WRONG");
}

/* bp: the timing of BP's backward pass, of the same kind (queued or graph), or NULL. */
static bppsa_status add_row(session *s, const row *r, const bppsa_timing *t, const bppsa_timing *bp) {
  char name[40];
  const bool compared = r->backward && bp != NULL;
  const double ratio = compared ? t->median_s / bp->median_s : 0;
  snprintf(name, sizeof name, "%s%s", r->method, r->graph ? "_graph" : "");
  s->failed += !(r->residual < WRONG);
  s->noisy += t->noisy;
  json_t *object = json_object();
  if (json_array_append_new(s->rows, bppsa_json_finish(object, put_row(s, r, t, name, ratio, object))) != 0) {
    return bppsa_bench_no_room();
  }
  return s->asked->request.to.json ? BPPSA_OK : print_row(s, r, t, name, ratio, compared && (t->noisy || bp->noisy));
}

/* Names a method that cannot run here or comes too late, with the reason. */
static bppsa_status leave_out(session *s, const char *name, const char *why) {
  BPPSA_TRY(bppsa_bench_leave_out(s->left_out, (const char *const[]){"method", name, NULL}, why));
  return s->asked->request.to.json ? BPPSA_OK : bppsa_output_print(&s->asked->request.to, "  %-23s left out: %s\n", name, why);
}

/* FLOPs of one sample's products with weights, in the forward pass. */
static double forward_flops(const session *s) {
  double flops = 0;
  for (int64_t i = 0; i < s->network->layers.count; ++i) {
    const bppsa_cnn_layer *layer = &s->network->layers.layers[i];
    const bool conv = layer->op.kind == BPPSA_OPERATOR_CONV2D;
    flops += 2.0 * (double)bppsa_op_weights(&layer->op) * (conv ? (double)(layer->out[1] * layer->out[2]) : 1);
  }
  return flops;
}

/* ---- entering ---- */

/* Records a pass as a graph and verifies what a replay computes. */
static bppsa_status enter_graph(session *s, entrant *e, const row *queued) {
  if (!on_gpu(s)) {
    return BPPSA_OK;
  }
  row *r = &s->timed[s->row_count];
  *r = *queued;
  r->work = (bppsa_timed_work){0};
  const bppsa_status recorded = r->backward ? bppsa_bench_record(s->device, queue_backward, clear_backward, e, &r->recording)
                                            : bppsa_bench_record(s->device, queue_forward, clear_forward, e, &r->recording);
  if (recorded == BPPSA_ERR_UNSUPPORTED) {
    char name[40];
    snprintf(name, sizeof name, "%s_graph", r->method);
    return leave_out(s, name, bppsa_last_error());
  }
  BPPSA_TRY(recorded);
  ++s->row_count;
  r->graph = true;
  r->nodes = r->recording.nodes;
  BPPSA_TRY(bppsa_bench_replay_cleared(&r->recording));
  return judge(e, r->backward, &r->residual);
}

/* Verifies a pass and adds it and its graph. */
static bppsa_status enter_pass(session *s, entrant *e, const row *described) {
  row *r = &s->timed[s->row_count];
  *r = *described;
  r->work = (bppsa_timed_work){.device = s->device, .action = r->backward ? queue_backward : queue_forward, .context = e};
  BPPSA_TRY(r->work.action(e));
  BPPSA_TRY(bppsa_device_wait(s->device));
  double residual;
  BPPSA_TRY(judge(e, r->backward, &residual));
  r->residual = worse(residual, described->residual);
  BPPSA_TRY(bppsa_timed_work_open(&r->work));
  ++s->row_count;
  return enter_graph(s, e, r);
}

static bppsa_status enter_passes(session *s, entrant *e, const method *m, double plan_s) {
  const bppsa_scan_plan *plan = bppsa_cnn_plan(e->model);
  row forward = {.method = "forward", .flops.gradients = forward_flops(s)};
  row backward = {
      .method = m->name, .backward = true, .flops = s->unpruned, .plan_s = plan_s, .steps = s->network->layers.count - 2};
  const bppsa_gradient_method taken = bppsa_scan_plan_method(plan);
  bppsa_gradient_method_text(&taken, backward.takes, sizeof backward.takes);
  if (plan != NULL) {
    const bppsa_scan_totals *t = bppsa_scan_plan_totals(plan);
    backward.flops = bppsa_work_of_scan(t, s->bp.besides);
    backward.steps = t->critical_steps;
    backward.held = t->workspace_bytes;
    s->held += t->workspace_bytes;
  }
  if (m == methods) {
    BPPSA_TRY(enter_pass(s, e, &forward));
  } else {
    BPPSA_TRY(queue_forward(e));
    BPPSA_TRY(judge_forward(e, &backward.residual));
  }
  return enter_pass(s, e, &backward);
}

static bppsa_rounds rounds_of(const session *s) {
  return bppsa_bench_rounds_of(&s->asked->request, 2, 0.2);
}

/* Leaves out a method that exceeds the memory limit, and on a GPU one that has no kernels. Without BP the benchmark fails. The
 * time limit also covers the rounds that follow. */
static bppsa_status enter_method(session *s, const method *m) {
  const double start = bppsa_now();
  if (s->deadline > 0 && start + rounds_of(s).budget_s * (double)s->row_count > s->deadline) {
    return leave_out(s, m->name, "--time-limit was over");
  }
  const bppsa_cnn_config config = config_of(s, m, BPPSA_F32);
  entrant *e = &s->list[s->entrants];
  *e = (entrant){.s = s};
  const bppsa_status status = make_model(s, &config, s->device, &e->model);
  if (status == BPPSA_ERR_ARGUMENT || (status == BPPSA_ERR_UNSUPPORTED && m != methods)) {
    return leave_out(s, m->name, bppsa_last_error());
  }
  BPPSA_TRY(status);
  ++s->entrants;
  return enter_passes(s, e, m, bppsa_now() - start);
}

/* ---- timing ---- */

/* Times all passes in turn and adds their rows. */
static bppsa_status time_all(session *s) {
  bppsa_contender list[sizeof s->timed / sizeof s->timed[0]];
  const bppsa_timing *bp[2] = {NULL, NULL}; /* [0]: queued, [1]: as a graph */
  const bppsa_rounds rounds = rounds_of(s);
  for (int i = 0; i < s->row_count; ++i) {
    row *r = &s->timed[i];
    list[i] = r->graph ? (bppsa_contender){.pass = bppsa_bench_replay_pass, .context = &r->recording, .parts = 1}
                       : (bppsa_contender){.pass = bppsa_timed_work_pass, .context = &r->work, .parts = 1};
  }
  BPPSA_TRY(s->row_count > 0 ? bppsa_rounds_run(&rounds, s->row_count, list) : BPPSA_OK);
  for (int i = 0; i < s->row_count; ++i) {
    const row *r = &s->timed[i];
    if (r->backward && r->method == methods[0].name) {
      bp[r->graph] = &list[i].timing[0];
    }
    BPPSA_TRY(add_row(s, r, &list[i].timing[0], bp[r->graph]));
  }
  return s->asked->request.to.json ? BPPSA_OK : bppsa_bench_show_noisy(&s->asked->request.to, s->noisy);
}

static void leave(session *s) {
  for (int i = s->row_count - 1; i >= 0; --i) {
    bppsa_timed_work_close(&s->timed[i].work);
    if (s->timed[i].graph) {
      bppsa_bench_recording_free(&s->timed[i].recording);
    }
  }
  for (int i = s->entrants - 1; i >= 0; --i) {
    bppsa_model_destroy(s->list[i].model);
  }
}

/* ---- the benchmark ---- */

static bppsa_status count_bp(session *s) {
  const bppsa_cnn_network *layers = &s->network->layers;
  const uint8_t **masks = bppsa_calloc(layers->count, sizeof *masks);
  bppsa_cnn_bp_work kept, all;
  int64_t weight = 0;
  if (masks == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < layers->count && weight < s->masks.count; ++i) {
    masks[i] = bppsa_cnn_has_weights(&layers->layers[i]) ? s->masks.bytes[weight++] : NULL;
  }
  bppsa_status status = bppsa_cnn_count_bp(layers, masks, false, s->host, &kept);
  status = status == BPPSA_OK ? bppsa_cnn_count_bp(layers, NULL, false, s->host, &all) : status;
  bppsa_free((void *)masks);
  BPPSA_TRY(status);
  s->bp = kept.work;
  s->unpruned = all.work;
  return BPPSA_OK;
}

static bppsa_status print_head(const session *s) {
  char date[BPPSA_DATE_TEXT], pruned[40] = "";
  const double fraction = s->asked->prune;
  if (fraction > 0) {
    snprintf(pruned, sizeof pruned, ", %.4g %% pruned", 100 * fraction);
  }
  return bppsa_output_print(
      &s->asked->request.to,
      "%s%s on %s, %d threads, B = %" PRId64 ", f32, %s\n"
      "milliseconds; backward passes beside row bp, in time and in FLOPs of the gradients between layers\n\n"
      "  method                      median        min        max     n  work           time     FLOP     "
      "path  held       plan ms  "
      "residual\n",
      s->network->kind->name, pruned, bppsa_device_get_hardware(s->device), bppsa_device_get_threads(s->device),
      s->x[0].view.shape[0], bppsa_machine_date(date, sizeof date));
}

/* The default memory limit: half of what is available on the device. */
static bppsa_status set_limits(session *s) {
  s->deadline = bppsa_bench_deadline(&s->asked->request);
  return bppsa_bench_memory_limit(&s->asked->request, 2, &s->memory_limit);
}

static bppsa_status prepare(session *s) {
  const int64_t batch = s->asked->batch;
  BPPSA_TRY(set_limits(s));
  BPPSA_TRY(bppsa_device_create("cpu", bppsa_device_get_threads(s->device), &s->host));
  const int64_t *in = s->network->layers.in, x_shape[] = {batch, in[0], in[1], in[2]};
  const int64_t seed_shape[] = {batch, bppsa_cnn_size(&s->network->layers, s->network->layers.count)};
  BPPSA_TRY(fill_pair(s, s->x, 4, x_shape, 230, 2));
  BPPSA_TRY(fill_pair(s, s->seed, 2, seed_shape, 231, 1 / (double)batch));
  BPPSA_TRY(make_holder(s));
  BPPSA_TRY(count_bp(s));
  return make_reference(s);
}

static bppsa_status measure(session *s) {
  BPPSA_TRY(prepare(s));
  if (!s->asked->request.to.json) {
    BPPSA_TRY(print_head(s));
  }
  for (const method *m = methods; m < methods + METHODS; ++m) {
    const bool small = strcmp(s->network->kind->name, "vgg11") != 0;
    if ((m->order == BPPSA_WEIGHT_GRADIENTS_IN_ORDER || on_gpu(s)) && (!m->all_levels || small)) {
      BPPSA_TRY(enter_method(s, m));
    }
  }
  return time_all(s);
}

static bppsa_status run(const bppsa_bench_settings *asked) {
  bppsa_bench_report report;
  BPPSA_TRY(bppsa_bench_open(&asked->request, "cnn", &report));
  session s = {.asked = asked, .device = asked->request.device, .network = asked->network, .rows = report.rows};
  bppsa_status status = bppsa_bench_list_left_out(&report, &s.left_out);
  status = status == BPPSA_OK ? measure(&s) : status;
  leave(&s);
  bppsa_model_destroy(s.reference);
  bppsa_masks_free(&s.masks);
  bppsa_model_destroy(s.holder);
  for (int i = 0; i < 2; ++i) {
    bppsa_buffer_free(&s.x[i]);
    bppsa_buffer_free(&s.seed[i]);
  }
  bppsa_device_destroy(s.host);
  return bppsa_bench_close(&report, status, s.failed, WRONG);
}

const bppsa_bench_case bppsa_bench_case_lenet5 = {"lenet5", run};

const bppsa_bench_case bppsa_bench_case_vgg11 = {"vgg11", run};
