/* `bench lenet5`, `bench vgg11`: a convolutional network's forward pass, sequential BP and the scan, verified and timed in one
 * run. On a GPU each of them is also timed as a CUDA graph, and BP also with the gradients of weights on a second stream. */
#include <inttypes.h>
#include <string.h>

#include "bench/cases/case.h"
#include "cnn/work.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/decimal.h"
#include "core/base/philox.h"
#include "core/compute/device_buffer.h"
#include "core/compute/memory.h"
#include "core/measure/residual.h"
#include "networks/masks.h"
#include "scan/work.h"
#include "terminal/machine.h"

const char bppsa_bench_notes_cnn[] =
    "In f32. The row forward is the pass from the images to the logits. All other rows are backward passes: they compute the\n"
    "gradients of the weights, but not that of the images.\n"
    "First every row computes its results once. They are held against BP in float64 on the processor: the logits and the\n"
    "gradients. A row whose residual is 30 or more is wrong: it is marked and not timed, and the program exits 1. Then all\n"
    "rows take turns.\n"
    "  work  FLOP of the gradients between layers, counted as `bppsa flops` counts them\n"
    "  time  the row's time over that of BP, or over that of BP's graph for a graph\n"
    "  FLOP  the row's FLOP over those of BP over all weights, also those that are pruned: BP multiplies them like the others\n"
    "  path  the FLOP of the longest chain of dependent products, likewise\n"
    "In the document flops_of_unpruned_bp is the column FLOP; flops_of_bp compares with BP over the weights that are left,\n"
    "which gives linear 1.00. takes names the method that a row runs: auto is what --backward auto takes.\n"
    "On a GPU BP is cuDNN's, and bp_second_stream computes the gradients of weights beside the others.\n" BPPSA_BENCH_QUEUED_NOTE
    "bench/rivals/bench_cnn_pytorch.py times PyTorch in the same run.\n";

typedef struct {
  const char *name; /* NULL: the method's text */
  bppsa_gradient_method gradients;
  bppsa_weight_gradients order; /* a second stream runs on a GPU only */
  bool all_levels;              /* products span the whole network, which is too large for VGG-11 */
} method;

static const method methods[] = {
    {NULL, {BPPSA_BACKWARD_BP, {BPPSA_SCAN_LINEAR, 0, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, false},
    {"bp_second_stream", {BPPSA_BACKWARD_BP, {BPPSA_SCAN_LINEAR, 0, 0}}, BPPSA_WEIGHT_GRADIENTS_SECOND_STREAM, false},
    {NULL, {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_LINEAR, 0, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, false},
    {NULL, {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, 1, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, false},
    {NULL, {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, 2, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, false},
    {NULL, {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, -1, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, true},
    {NULL, {BPPSA_BACKWARD_AUTO, {BPPSA_SCAN_AUTO, 0, 0}}, BPPSA_WEIGHT_GRADIENTS_IN_ORDER, false}};
enum { METHODS = sizeof methods / sizeof methods[0] };

typedef struct session session;

/* The model of one method. All models exist at once, so that the methods can take turns. */
typedef struct {
  session *s;
  bppsa_model *model;
  bppsa_view logits;      /* of its latest forward pass */
  double logits_residual; /* of the forward pass in front of its backward passes */
} method_model;

/* A pass has a row, and on a GPU a second one as a graph. */
typedef struct {
  method_model *m;
  bool backward;
  char takes[BPPSA_METHOD_TEXT]; /* backward: the method that runs, as text */
  double plan_s;
  bppsa_work flops;    /* of one sample; a forward pass keeps its FLOPs in `gradients` */
  int64_t held, steps; /* steps: products on the critical path */
} pass;

struct session {
  const bppsa_bench *bench;
  const bppsa_network *network;
  bppsa_masks masks;          /* which weights pruning leaves, under the holder's names */
  bppsa_buffer x[2], seed[2]; /* index 0: f32 on the device; 1: the same numbers in f64 on the host */
  bppsa_model *holder;        /* has the weights in f32 */
  bppsa_model *reference;     /* f64, BP, on the host */
  bppsa_view reference_logits;
  bppsa_work bp, unpruned; /* FLOPs of BP: bp over the weights that pruning leaves, unpruned (the rows of BP) over all */
  int64_t held;            /* bytes that the models' products hold */
  method_model list[METHODS];
  pass passes[METHODS + 1]; /* the first: forward */
};

/* ---- operands ---- */

static bppsa_status fill_pair(const session *s, bppsa_buffer pair[2], int32_t ndim, const int64_t *shape, uint64_t stream,
                              double scale) {
  const uint64_t seed = s->bench->request->seed;
  BPPSA_TRY(bppsa_buffer_create(NULL, BPPSA_F32, ndim, shape, &pair[0]));
  BPPSA_TRY(bppsa_buffer_create(NULL, BPPSA_F64, ndim, shape, &pair[1]));
  for (int64_t i = 0; i < bppsa_view_count(&pair[0].view); ++i) {
    bppsa_view_set(&pair[0].view, i, scale * (2 * bppsa_random_double(seed, BPPSA_STREAM_TEST + stream, (uint64_t)i) - 1));
  }
  BPPSA_TRY(bppsa_view_convert(&pair[0].view, &pair[1].view));
  return bppsa_buffer_move(s->bench->device, &pair[0]);
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
  config.memory_limit = s->bench->memory_limit > s->held ? s->bench->memory_limit - s->held : 1;
  return config;
}

/* Makes the weights from the seed and decides which of them stay. */
static bppsa_status make_holder(session *s) {
  const double fraction = s->bench->asked->prune;
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = 1;
  config.method.backward = BPPSA_BACKWARD_BP;
  BPPSA_TRY(bppsa_cnn_create(&s->network->layers, &config, s->bench->host, &s->holder));
  BPPSA_TRY(bppsa_cnn_init(s->holder, s->bench->request->seed));
  if (fraction == 0) {
    return BPPSA_OK;
  }
  bppsa_named_view *tensors = holder_tensors(s);
  const bppsa_status status =
      tensors == NULL ? BPPSA_ERR_MEMORY
                      : bppsa_masks_make(s->bench->asked->prune_method, (bppsa_prune_structure){.kind = BPPSA_STRUCTURE_ELEMENT},
                                         fraction, s->holder->parameter_count, tensors, &s->masks);
  bppsa_free(tensors);
  return status;
}

static bppsa_status make_reference(session *s) {
  bppsa_cnn_config config = config_of(s, &methods[0], BPPSA_F64);
  config.memory_limit = 0;
  BPPSA_TRY(make_model(s, &config, s->bench->host, &s->reference));
  BPPSA_TRY(s->reference->ops->forward(s->reference, &s->x[1].view, NULL, &s->reference_logits));
  return s->reference->ops->backward(s->reference, &s->seed[1].view);
}

/* ---- passes ---- */

static bppsa_status queue_forward(void *context) {
  method_model *m = ((const pass *)context)->m;
  return m->model->ops->forward(m->model, &m->s->x[0].view, NULL, &m->logits);
}

static bppsa_status queue_backward(void *context) {
  const method_model *m = ((const pass *)context)->m;
  return m->model->ops->backward(m->model, &m->s->seed[0].view);
}

/* On a GPU: sets the results of a pass to 0. */
static bppsa_status clear_forward(void *context) {
  const method_model *m = ((const pass *)context)->m;
  return m->logits.data == NULL || !m->s->bench->gpu
             ? BPPSA_OK
             : bppsa_memory_clear(m->s->bench->device, m->logits.data, (int64_t)bppsa_view_bytes(&m->logits));
}

static bppsa_status clear_backward(void *context) {
  const bppsa_model *model = ((const pass *)context)->m->model;
  return model->device_gradients == NULL
             ? BPPSA_OK
             : bppsa_memory_clear(model->device, model->device_gradients, model->reals * (int64_t)bppsa_dtype_size(model->dtype));
}

/* The residual of the latest forward pass's logits. */
static bppsa_status judge_forward(void *context, double *residual) {
  const method_model *m = ((const pass *)context)->m;
  bppsa_buffer copy;
  BPPSA_TRY(bppsa_buffer_fetch(m->s->bench->device, &m->logits, &copy));
  *residual = bppsa_residual(&copy.view, m->s->reference_logits.data, m->s->network->layers.count);
  bppsa_buffer_free(&copy);
  return BPPSA_OK;
}

/* The worst residual of the latest backward pass's gradients, and of the logits before it. */
static bppsa_status judge_backward(void *context, double *residual) {
  const method_model *m = ((const pass *)context)->m;
  const bppsa_model *reference = m->s->reference;
  double worst = m->logits_residual;
  BPPSA_TRY(bppsa_model_pull(m->model, true));
  for (int64_t p = 0; p < m->model->parameter_count; ++p) {
    worst = bppsa_residual_worse(worst, bppsa_residual(&m->model->parameters[p].gradient, reference->parameters[p].gradient.data,
                                                       m->s->network->layers.count));
  }
  *residual = worst;
  return BPPSA_OK;
}

static const bppsa_bench_work forward_work = {.action = queue_forward, .clear = clear_forward, .judge = judge_forward},
                              backward_work = {.action = queue_backward, .clear = clear_backward, .judge = judge_backward};

/* ---- rows ---- */

/* BP's backward pass of the same kind, queued or as a graph; NULL where it was not timed. */
static const bppsa_bench_entrant *bp_beside(const bppsa_bench_entrant *e) {
  const bppsa_bench *bench = e->bench;
  const session *s = bench->session;
  for (int64_t i = 0; i < bench->count; ++i) {
    const bppsa_bench_entrant *other = bench->entrants[i];
    if (other->context == &s->passes[1] && other->recorded == e->recorded && other->contender.timing[0].repeats > 0) {
      return other;
    }
  }
  return NULL;
}

/* The time over that of BP; 0: nothing to compare. */
static double time_ratio(const bppsa_bench_entrant *e) {
  const bppsa_bench_entrant *bp = ((const pass *)e->context)->backward ? bp_beside(e) : NULL;
  return bp != NULL ? e->contender.timing[0].median_s / bp->contender.timing[0].median_s : 0;
}

static const char *write_ratio(const void *context, const json_t *row, char *text, size_t size) {
  const bppsa_bench_entrant *e = context, *bp = bp_beside(e);
  const double ratio = time_ratio(e);
  (void)row;
  if (!(ratio > 0)) {
    return "-";
  }
  bppsa_print(text, size, "%s%.2f", bppsa_timing_mark(e->contender.timing[0].noisy || bp->contender.timing[0].noisy), ratio);
  return text;
}

static bool put_work(const session *s, const pass *p, double ratio, json_t *row) {
  const bppsa_work_ratios same = bppsa_work_over(&p->flops, &s->bp), whole = bppsa_work_over(&p->flops, &s->unpruned);
  return bppsa_json_put_text(row, "takes", p->takes) && bppsa_json_put_real(row, "time_of_bp", ratio) &&
         bppsa_work_json(row, "bp", &same) && bppsa_work_json(row, "unpruned_bp", &whole) &&
         bppsa_json_put_integer(row, "critical_steps", p->steps);
}

static bool put(const bppsa_bench_entrant *e, json_t *row) {
  const pass *p = e->context;
  const session *s = p->m->s;
  const int64_t batch = s->x[0].view.shape[0];
  bool ok = bppsa_json_put_text(row, "network", s->network->kind->name) && bppsa_json_put_text(row, "method", e->method);
  ok = ok && bppsa_json_put_text(row, "phase", e->phase);
  ok = ok && bppsa_json_put_integer(row, "batch", batch) && bppsa_json_put_text(row, "dtype", "f32");
  ok = ok && bppsa_json_put_real(row, "prune", s->bench->asked->prune);
  ok = ok && bppsa_json_put_integer(row, "threads", bppsa_device_get_threads(s->bench->device));
  ok = ok && bppsa_json_put_bool(row, "graph", e->recorded) && bppsa_json_put_integer(row, "graph_nodes", e->recording.nodes);
  ok = ok && bppsa_bench_put_timing(row, &e->contender.timing[0]);
  ok = ok && bppsa_json_put_real(row, "residual", e->contender.residual);
  ok = ok && bppsa_json_put_real(row, "flops", (double)batch * p->flops.gradients);
  ok = ok && bppsa_json_put_integer(row, "bytes", p->held) && bppsa_json_put_real(row, "plan_s", p->plan_s);
  return ok && (!p->backward || put_work(s, p, time_ratio(e), row));
}

static const bppsa_table_column columns[] = {
    {.heading = "method", .width = -23, .key = "method"},
    BPPSA_COLUMN_TIMES(11, 11, 6, 3),
    {.heading = "work", .width = -10, .kind = BPPSA_COLUMN_SI, .key = "flops", .unit = "FLOP"},
    {.heading = "time", .width = 9, .kind = BPPSA_COLUMN_REAL, .key = "time_of_bp", .write = write_ratio},
    {.heading = "FLOP", .width = 9, .kind = BPPSA_COLUMN_REAL, .key = "flops_of_unpruned_bp", .digits = 2},
    {.heading = "path", .width = 9, .kind = BPPSA_COLUMN_REAL, .key = "critical_flops_of_unpruned_bp", .digits = 2},
    {.heading = "held", .width = -9, .kind = BPPSA_COLUMN_SI, .key = "bytes", .unit = "B"},
    {.heading = "plan ms", .width = 9, .kind = BPPSA_COLUMN_REAL, .key = "plan_s", .scale = 1e3, .digits = 1},
    {.heading = "residual", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "residual", .digits = 2},
    {0}};

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

/* Enters a pass and its graph. */
static bppsa_status enter_pass(bppsa_bench *bench, pass *p, const char *name) {
  const bppsa_bench_work *work = p->backward ? &backward_work : &forward_work;
  const char *phase = p->backward ? "backward" : "forward";
  char graph[BPPSA_METHOD_TEXT + 8];
  bool entered;
  snprintf(graph, sizeof graph, "%.*s_graph", BPPSA_METHOD_TEXT - 1, name);
  BPPSA_TRY(bppsa_bench_enter(bench, work, bench->device, p, name, phase, &entered));
  return bench->gpu && entered ? bppsa_bench_enter_recording(bench, work, p, graph, phase) : BPPSA_OK;
}

static bppsa_status enter_forward(bppsa_bench *bench, method_model *m) {
  session *s = m->s;
  s->passes[0] = (pass){.m = m, .flops.gradients = forward_flops(s)};
  return enter_pass(bench, &s->passes[0], "forward");
}

/* Compares the forward pass that precedes a method's backward passes with the reference. */
static bppsa_status verify_forward(method_model *m) {
  pass forward = {.m = m};
  BPPSA_TRY(queue_forward(&forward));
  return judge_forward(&forward, &m->logits_residual);
}

static bppsa_status enter_passes(bppsa_bench *bench, int index, const char *name, double plan_s) {
  session *s = bench->session;
  method_model *m = &s->list[index];
  pass *p = &s->passes[index + 1];
  const bppsa_scan_plan *plan = bppsa_cnn_plan(m->model);
  const bppsa_gradient_method taken = bppsa_scan_plan_method(plan);
  *p = (pass){.m = m, .backward = true, .flops = s->unpruned, .plan_s = plan_s, .steps = s->network->layers.count - 2};
  bppsa_gradient_method_text(&taken, p->takes, sizeof p->takes);
  if (plan != NULL) {
    const bppsa_scan_totals *t = bppsa_scan_plan_totals(plan);
    p->flops = bppsa_work_of_scan(t, s->bp.besides);
    p->steps = t->critical_steps;
    p->held = t->workspace_bytes;
    s->held += t->workspace_bytes;
  }
  BPPSA_TRY(index == 0 ? enter_forward(bench, m) : verify_forward(m));
  return enter_pass(bench, p, name);
}

/* Leaves out a method that exceeds the memory limit, and on a GPU one that has no kernels. Without BP the benchmark fails. The
 * time limit also covers the rounds that follow. */
static bppsa_status enter_method(bppsa_bench *bench, int index) {
  session *s = bench->session;
  const double start = bppsa_now();
  const bppsa_rounds rounds = bppsa_bench_rounds_of(bench->request, bench->kind->budget_s, bench->kind->quick_s);
  char name[BPPSA_METHOD_TEXT];
  bppsa_gradient_method_text(&methods[index].gradients, name, sizeof name);
  if (methods[index].name != NULL) {
    snprintf(name, sizeof name, "%s", methods[index].name);
  }
  if (bench->deadline > 0 && start + rounds.budget_s * (double)bench->count > bench->deadline) {
    (void)bppsa_fail(BPPSA_ERR_UNSUPPORTED, "--time-limit was over");
    return bppsa_bench_leave_out(bench, name, "");
  }
  const bppsa_cnn_config config = config_of(s, &methods[index], BPPSA_F32);
  s->list[index].s = s;
  const bppsa_status status = make_model(s, &config, bench->device, &s->list[index].model);
  if (status == BPPSA_ERR_ARGUMENT || (status == BPPSA_ERR_UNSUPPORTED && index > 0)) {
    return bppsa_bench_leave_out(bench, name, "");
  }
  BPPSA_TRY(status);
  return enter_passes(bench, index, name, bppsa_now() - start);
}

static bppsa_status enter(bppsa_bench *bench, int64_t point, bool *more) {
  const session *s = bench->session;
  const bool small = strcmp(s->network->kind->name, "vgg11") != 0;
  *more = point == 0;
  for (int i = 0; *more && i < METHODS; ++i) {
    const method *m = &methods[i];
    if ((m->order == BPPSA_WEIGHT_GRADIENTS_IN_ORDER || bench->gpu) && (!m->all_levels || small)) {
      BPPSA_TRY(enter_method(bench, i));
    }
  }
  return BPPSA_OK;
}

static void leave(bppsa_bench *bench) {
  session *s = bench->session;
  for (int i = METHODS - 1; i >= 0; --i) {
    bppsa_model_destroy(s->list[i].model);
    s->list[i] = (method_model){0};
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
  bppsa_status status = bppsa_cnn_count_bp(layers, masks, false, s->bench->host, &kept);
  status = status == BPPSA_OK ? bppsa_cnn_count_bp(layers, NULL, false, s->bench->host, &all) : status;
  bppsa_free((void *)masks);
  BPPSA_TRY(status);
  s->bp = kept.work;
  s->unpruned = all.work;
  return BPPSA_OK;
}

static bppsa_status print_head(const bppsa_bench *bench) {
  const session *s = bench->session;
  char date[BPPSA_DATE_TEXT], pruned[40] = "";
  const double fraction = bench->asked->prune;
  if (fraction > 0) {
    bppsa_print(pruned, sizeof pruned, ", %.4g %% pruned", 100 * fraction);
  }
  return bppsa_output_print(
      &bench->request->to,
      "%s%s on %s, %d threads, B = %" PRId64 ", f32, %s\n"
      "milliseconds; backward passes beside row bp, in time and in FLOPs of the gradients between layers\n\n",
      s->network->kind->name, pruned, bppsa_device_get_hardware(bench->device), bppsa_device_get_threads(bench->device),
      s->x[0].view.shape[0], bppsa_machine_date(date, sizeof date));
}

static bppsa_status prepare(bppsa_bench *bench) {
  session *s = bench->session;
  const int64_t batch = bench->asked->batch;
  s->bench = bench;
  s->network = bench->asked->network;
  const int64_t *in = s->network->layers.in, x_shape[] = {batch, in[0], in[1], in[2]};
  const int64_t seed_shape[] = {batch, bppsa_cnn_size(&s->network->layers, s->network->layers.count)};
  BPPSA_TRY(fill_pair(s, s->x, 4, x_shape, 230, 2));
  BPPSA_TRY(fill_pair(s, s->seed, 2, seed_shape, 231, 1 / (double)batch));
  BPPSA_TRY(make_holder(s));
  BPPSA_TRY(count_bp(s));
  return make_reference(s);
}

static void release(bppsa_bench *bench) {
  session *s = bench->session;
  bppsa_model_destroy(s->reference);
  bppsa_masks_free(&s->masks);
  bppsa_model_destroy(s->holder);
  for (int i = 0; i < 2; ++i) {
    bppsa_buffer_free(&s->x[i]);
    bppsa_buffer_free(&s->seed[i]);
  }
}

#define CASE(network)                                                                                                            \
  {                                                                                                                              \
    .name = network, .document = "cnn", .session = sizeof(session), .budget_s = 2, .quick_s = 0.2,                               \
    .bound = BPPSA_RESIDUAL_BOUND, .memory_quarters = 2, .names = (const char *const[]){"method", NULL}, .columns = columns,     \
    .prepare = prepare, .head = print_head, .enter = enter, .put = put, .leave = leave, .release = release                       \
  }

const bppsa_bench_case bppsa_bench_case_lenet5 = CASE("lenet5"), bppsa_bench_case_vgg11 = CASE("vgg11");
