/* What a point costs on paper, and how its gradients are judged. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "cli/bench.h"
#include "core/alloc.h"
#include "rnn/rnn.h"
#include "scan/scan.h"

const char *bppsa_bench_method_name(bppsa_bench_method method) {
  static const char *const names[BPPSA_BENCH_METHODS] = {"forward", "bp", "linear", "blelloch", "chunked", "auto"};
  return names[method];
}

bppsa_recurrent_config bppsa_bench_config(const bppsa_recurrent_config *config, bppsa_bench_method method) {
  static const bppsa_scan_algorithm algorithms[BPPSA_BENCH_METHODS] = {
      [BPPSA_BENCH_FORWARD] = BPPSA_SCAN_LINEAR,  [BPPSA_BENCH_BP] = BPPSA_SCAN_LINEAR,
      [BPPSA_BENCH_LINEAR] = BPPSA_SCAN_LINEAR,   [BPPSA_BENCH_BLELLOCH] = BPPSA_SCAN_BLELLOCH,
      [BPPSA_BENCH_CHUNKED] = BPPSA_SCAN_CHUNKED, [BPPSA_BENCH_AUTO] = BPPSA_SCAN_AUTO};
  bppsa_recurrent_config c = *config;
  c.backward = method <= BPPSA_BENCH_BP ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN;
  c.algorithm = algorithms[method];
  c.up_levels = method == BPPSA_BENCH_BLELLOCH ? config->up_levels : -1;
  c.chunks = method == BPPSA_BENCH_CHUNKED ? config->chunks : 0;
  return c;
}

/* ---- FLOP and bytes ---- */

/* Bytes a plan's products read and write, per sample; the dead ones never run. */
static double plan_bytes(const bppsa_scan_plan *plan) {
  bppsa_scan_iterator iterator = {0};
  bppsa_scan_step step;
  double bytes = 0;
  while (bppsa_scan_plan_next(plan, &iterator, &step)) {
    bytes += step.level->dead ? 0 : (double)step.bytes;
  }
  return bytes;
}

static bppsa_status add_plan(const bppsa_recurrent_config *config, int64_t layer, bool costs, bppsa_bench_row *row) {
  const bppsa_scan_config scan = bppsa_recurrent_scan_config(config, 1, false, layer);
  bppsa_scan_plan *plan = NULL;
  BPPSA_TRY(bppsa_scan_plan_create(&scan, &plan));
  const bppsa_scan_totals *totals = bppsa_scan_plan_totals(plan);
  const bppsa_scan_config *chosen = bppsa_scan_plan_config(plan);
  const double batch = (double)config->batch, flops = batch * (double)(totals->mm_flops + totals->mv_flops);
  row->total_flops += flops;
  row->critical_flops += (double)totals->critical_flops;
  row->critical_steps += totals->critical_steps;
  row->workspace += config->backward == BPPSA_BACKWARD_SCAN ? (double)totals->workspace_bytes : 0;
  row->plan = config->backward == BPPSA_BACKWARD_SCAN;
  row->algorithm = chosen->algorithm; /* of the top layer, which comes last */
  row->up_levels = chosen->up_levels;
  row->chunks = chosen->chunks;
  if (costs) {
    row->flops += flops;
    row->bytes += batch * plan_bytes(plan);
  }
  bppsa_scan_plan_destroy(plan);
  return BPPSA_OK;
}

bppsa_status bppsa_bench_costs(const bppsa_recurrent_config *asked, bppsa_bench_method method, bppsa_bench_row *row) {
  bppsa_recurrent_config chosen, *config = &chosen;
  BPPSA_TRY(bppsa_recurrent_choose(asked, 1, false, BPPSA_CPU, &chosen));
  const double rows = (double)config->seq_len * (double)config->batch, hidden = (double)config->hidden;
  const double size = (double)bppsa_dtype_size(config->dtype);
  for (int64_t l = 0; l < config->layers; ++l) {
    const double input = l == 0 ? (double)config->input : hidden;
    const double gemm = 2 * rows * hidden * (input + hidden); /* forward, or the weights' gradients */
    row->flops += gemm;
    row->bytes += size * rows * (input + (method == BPPSA_BENCH_FORWARD ? 1 : 2) * hidden);
    if (method != BPPSA_BENCH_FORWARD && l > 0) {
      row->flops += 2 * rows * hidden * hidden;
      row->bytes += size * rows * 2 * hidden;
    }
    BPPSA_TRY(add_plan(config, l, method != BPPSA_BENCH_FORWARD, row));
  }
  return BPPSA_OK;
}

/* ---- gradients ---- */

static double smallest_normal(bppsa_dtype dtype) {
  return dtype == BPPSA_F32 ? (double)FLT_MIN : DBL_MIN;
}

void bppsa_bench_count_view(const bppsa_view *view, bppsa_bench_count *count) {
  const double tiny = smallest_normal(view->dtype);
  for (int64_t i = 0; i < bppsa_view_count(view); ++i) {
    const double size = fabs(bppsa_view_get(view, i));
    count->zeros += size == 0;
    count->subnormals += size != 0 && size < tiny;
    count->all += 1;
  }
}

double bppsa_bench_residual(const bppsa_view *found, const double *reference, int64_t steps) {
  const double tiny = smallest_normal(found->dtype), epsilon = found->dtype == BPPSA_F32 ? (double)FLT_EPSILON : DBL_EPSILON;
  double difference = 0, norm = 0; /* hypot keeps squares of small numbers from vanishing */
  for (int64_t i = 0; i < bppsa_view_count(found); ++i) {
    difference = hypot(difference, bppsa_view_get(found, i) - reference[i]);
    norm = hypot(norm, reference[i]);
  }
  const double unit = norm < tiny / epsilon ? tiny : norm * epsilon;
  const double residual = difference / (unit * sqrt((double)steps));
  return isnan(residual) ? INFINITY : residual;
}

/* ---- gradients of hidden states ---- */

typedef struct {
  bppsa_model *model;
  bppsa_scan_plan *plan;
  bppsa_scan_executor *executor;
  void *columns, *gradients;
} hidden_states;

/* A head that copies: logits = h I + 0. */
static void copy_head(bppsa_model *model) {
  const bppsa_view *weight = &model->parameters[model->parameter_count - 2].value;
  const bppsa_view *bias = &model->parameters[model->parameter_count - 1].value;
  memset(weight->data, 0, bppsa_view_bytes(weight));
  memset(bias->data, 0, bppsa_view_bytes(bias));
  for (int64_t i = 0; i < weight->shape[0]; ++i) {
    bppsa_view_set(weight, i * weight->shape[1] + i, 1);
  }
}

/* d_t from h_t, and g_T or all u_t from the seed. */
static bppsa_status fill_operands(const bppsa_recurrent_config *c, const bppsa_view *h, const bppsa_view *seed,
                                  hidden_states *s) {
  const size_t size = bppsa_dtype_size(c->dtype), state = (size_t)(c->batch * c->hidden) * size;
  const int64_t count = bppsa_view_count(h);
  const bppsa_view columns = bppsa_view_make(NULL, c->dtype, 1, &count);
  s->columns = bppsa_alloc((size_t)count * size);
  s->gradients = bppsa_calloc(c->seq_len + 1, state);
  if (s->columns == NULL || s->gradients == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_view d = columns;
  d.data = s->columns;
  for (int64_t i = 0; i < count; ++i) {
    const double value = bppsa_view_get(h, i);
    bppsa_view_set(&d, i, c->nonlinearity == BPPSA_NONLINEARITY_TANH ? 1 - value * value : value > 0);
  }
  const int64_t first = c->loss_all ? 1 : c->seq_len;
  memcpy((char *)s->gradients + (size_t)first * state, seed->data, bppsa_view_bytes(seed));
  return BPPSA_OK;
}

static bppsa_status run_hidden(const bppsa_recurrent_config *c, const bppsa_bench_point *point, const bppsa_device *device,
                               const bppsa_view *x, const bppsa_view *seed, hidden_states *s) {
  bppsa_view h;
  BPPSA_TRY(bppsa_rnn_create(c, device, &s->model));
  BPPSA_TRY(bppsa_recurrent_init(s->model, point->init, point->seed));
  copy_head(s->model);
  BPPSA_TRY(s->model->ops->forward(s->model, x, NULL, &h));
  bppsa_recurrent_config top = point->config;
  top.backward = BPPSA_BACKWARD_SCAN;
  top.algorithm = BPPSA_SCAN_LINEAR;
  const bppsa_scan_config scan = bppsa_recurrent_scan_config(&top, 1, false, top.layers - 1);
  BPPSA_TRY(bppsa_scan_plan_create(&scan, &s->plan));
  BPPSA_TRY(bppsa_scan_executor_create(s->plan, device, &s->executor));
  BPPSA_TRY(fill_operands(&top, &h, seed, s));
  const void *weights[] = {s->model->parameters[s->model->parameter_count - 5].value.data}; /* W_hh of the top layer */
  const void *columns[] = {s->columns};
  const bppsa_scan_operands operands = {.batch = top.batch,
                                        .weights = weights,
                                        .columns = columns,
                                        .injected = top.loss_all ? s->gradients : NULL,
                                        .gradients = s->gradients};
  return s->executor->execute(s->executor, &operands);
}

bppsa_status bppsa_bench_hidden(const bppsa_bench_point *point, const bppsa_device *device, const bppsa_view *x,
                                const bppsa_view *seed, bppsa_bench_count *count) {
  hidden_states s = {0};
  bppsa_recurrent_config config = bppsa_bench_config(&point->config, BPPSA_BENCH_BP);
  config.classes = config.hidden;
  config.loss_all = true;
  const bppsa_status status = run_hidden(&config, point, device, x, seed, &s);
  if (status == BPPSA_OK) { /* g_1 .. g_T */
    const int64_t state = config.batch * config.hidden, all[] = {config.seq_len, state};
    char *first = (char *)s.gradients + (size_t)state * bppsa_dtype_size(config.dtype);
    const bppsa_view gradients = bppsa_view_make(first, config.dtype, 2, all);
    bppsa_bench_count_view(&gradients, count);
  }
  bppsa_scan_executor_destroy(s.executor);
  bppsa_scan_plan_destroy(s.plan);
  bppsa_model_destroy(s.model);
  bppsa_free(s.columns);
  bppsa_free(s.gradients);
  return status;
}
