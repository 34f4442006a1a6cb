/* One point: the reference, the models of all methods side by side, verification, then rounds of timing in which the methods take turns. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/bench.h"
#include "core/alloc.h"
#include "core/peak.h"
#include "core/philox.h"

enum { LEAST_REPEATS = 3, MOST_REPEATS = 1001, HEAD_PARAMETERS = 2, SEED_STREAM = BPPSA_STREAM_TEST + 100 };

typedef struct {
  const bppsa_bench_point *point;
  const bppsa_bench_limits *limits;
  const bppsa_device *device;
  bppsa_bench_result *result;
  bppsa_dataset *data;
  int64_t *indices;
  void *x, *x64, *seed, *seed64;
  double *gradients; /* of the layers' parameters, one behind the other */
  double *logits;
  int64_t repeats[BPPSA_BENCH_METHODS], most; /* timed passes of each method, and of the fastest */
  double *times; /* [2][METHODS][most]: of the phase a row is of, and of the forward pass before it */
  bppsa_model *models[BPPSA_BENCH_METHODS];
} session;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool is_wanted(const session *s, bppsa_bench_method method) {
  return method <= BPPSA_BENCH_BP || s->point->wanted == NULL || s->point->wanted(method);
}

/* ---- inputs ---- */

static bppsa_view x_view(const session *s, bool wide) {
  const bppsa_recurrent_config *c = &s->point->config;
  return bppsa_view_make(wide ? s->x64 : s->x, wide ? BPPSA_F64 : c->dtype, 3, (int64_t[]){c->seq_len, c->batch, c->input});
}

/* The gradient of the last hidden states [B,H], or of all of them [T,B,H]. */
static bppsa_view seed_view(const session *s, bool wide) {
  const bppsa_recurrent_config *c = &s->point->config;
  const int64_t all[] = {c->seq_len, c->batch, c->hidden};
  return bppsa_view_make(wide ? s->seed64 : s->seed, wide ? BPPSA_F64 : c->dtype, c->loss_all ? 3 : 2,
                         c->loss_all ? all : all + 1);
}

static bppsa_status reserve(bppsa_dtype dtype, int32_t ndim, const int64_t *shape, void **array) {
  int64_t count;
  size_t bytes;
  BPPSA_TRY(bppsa_shape_bytes(dtype, ndim, shape, &count, &bytes));
  *array = bppsa_alloc(bytes);
  return *array == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

/* The first B samples of the data, and a seed uniform in (-1, 1)/B; both also as float64, the same values. */
static bppsa_status make_inputs(session *s) {
  const bppsa_recurrent_config *c = &s->point->config;
  const bppsa_view shape = seed_view(s, false), x_shape = x_view(s, false);
  BPPSA_TRY(reserve(c->dtype, 3, x_shape.shape, &s->x));
  BPPSA_TRY(reserve(BPPSA_F64, 3, x_shape.shape, &s->x64));
  BPPSA_TRY(reserve(c->dtype, shape.ndim, shape.shape, &s->seed));
  BPPSA_TRY(reserve(BPPSA_F64, shape.ndim, shape.shape, &s->seed64));
  s->indices = bppsa_calloc(c->batch, sizeof *s->indices);
  if (s->indices == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < c->batch; ++i) {
    s->indices[i] = i;
  }
  const bppsa_view x = x_view(s, false), wide = x_view(s, true), seed = seed_view(s, false), seed64 = seed_view(s, true);
  if (s->data != NULL) {
    BPPSA_TRY(bppsa_dataset_fill(s->data, s->device, c->batch, s->indices, &x, NULL));
  }
  for (int64_t i = 0; s->data == NULL && i < bppsa_view_count(&x); ++i) {
    bppsa_view_set(&x, i, sqrt(3) * (2 * bppsa_random_double(s->point->seed, SEED_STREAM + 1, (uint64_t)i) - 1));
  }
  BPPSA_TRY(bppsa_view_convert(&x, &wide));
  for (int64_t i = 0; i < bppsa_view_count(&seed); ++i) {
    const double uniform = bppsa_random_double(s->point->seed, SEED_STREAM, (uint64_t)i);
    bppsa_view_set(&seed, i, (2 * uniform - 1) / (double)c->batch);
  }
  return bppsa_view_convert(&seed, &seed64);
}

/* ---- the reference ---- */

/* Sequential BP in float64 on the weights as the dtype rounds them. */
static bppsa_status run_reference(session *s, bppsa_model *model) {
  const bppsa_view x = x_view(s, true), seed = seed_view(s, true);
  BPPSA_TRY(bppsa_recurrent_init(model, s->point->init, s->point->seed));
  int64_t total = 0;
  for (int64_t p = 0; p < model->parameter_count; ++p) {
    const bppsa_view *value = &model->parameters[p].value;
    total += bppsa_view_count(value);
    for (int64_t i = 0; s->point->config.dtype == BPPSA_F32 && i < bppsa_view_count(value); ++i) {
      bppsa_view_set(value, i, (float)bppsa_view_get(value, i));
    }
  }
  bppsa_view logits;
  BPPSA_TRY(model->ops->forward(model, &x, NULL, &logits));
  s->gradients = bppsa_calloc(total, sizeof *s->gradients);
  s->logits = bppsa_calloc(bppsa_view_count(&logits), sizeof *s->logits);
  if (s->gradients == NULL || s->logits == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memcpy(s->logits, logits.data, bppsa_view_bytes(&logits));
  BPPSA_TRY(bppsa_recurrent_forward_layers(model, &x, NULL));
  BPPSA_TRY(bppsa_recurrent_backward_layers(model, &seed));
  double *next = s->gradients;
  for (int64_t p = 0; p < model->parameter_count - HEAD_PARAMETERS; ++p) {
    const bppsa_view *gradient = &model->parameters[p].gradient;
    memcpy(next, gradient->data, bppsa_view_bytes(gradient));
    next += bppsa_view_count(gradient);
  }
  return BPPSA_OK;
}

static bppsa_status make_reference(session *s) {
  bppsa_recurrent_config config = bppsa_bench_config(&s->point->config, BPPSA_BENCH_BP);
  config.dtype = BPPSA_F64;
  bppsa_model *model = NULL;
  BPPSA_TRY(s->point->kind->create(&config, s->device, &model));
  const bppsa_status status = run_reference(s, model);
  bppsa_model_destroy(model);
  return status;
}

/* ---- which methods fit ---- */

/* Bytes a model needs at least: h of every layer, pre, g and the Jacobians' columns, and the products its plans hold. */
static double least_memory(const bppsa_network_kind *kind, const bppsa_recurrent_config *c, double workspace) {
  const bool scan = c->backward == BPPSA_BACKWARD_SCAN;
  const int64_t vectors = c->layers + 1 + kind->gates + (scan ? kind->matrices + kind->diagonal : 0);
  const double steps = (double)vectors * (double)c->hidden + (double)(c->loss_all ? c->classes : 0);
  return (double)bppsa_dtype_size(c->dtype) * ((double)c->seq_len + 1) * (double)c->batch * steps + workspace;
}

static int64_t whole(double value) {
  return value < 9e18 ? (int64_t)value : INT64_MAX;
}

static void refuse(bppsa_bench_row *row, double held, double limit) {
  char bytes[BPPSA_SI_TEXT], beside[BPPSA_SI_TEXT], most[BPPSA_SI_TEXT];
  snprintf(row->reason, sizeof row->reason, "needs %" PRId64 " bytes (%s) beside %s of other methods, the memory limit is %s",
           row->memory, bppsa_cli_si((double)row->memory, "B", bytes, sizeof bytes),
           bppsa_cli_si(held, "B", beside, sizeof beside), bppsa_cli_si(limit, "B", most, sizeof most));
}

/* Costs of every method, and whether it fits. The models are held side by side; forward and bp share one, and the reference, which
 * is gone before the others come, must fit as well. */
static bppsa_status admit(session *s) {
  bppsa_recurrent_config reference = bppsa_bench_config(&s->point->config, BPPSA_BENCH_BP);
  reference.dtype = BPPSA_F64;
  const double limit = (double)s->limits->memory_limit, wide = least_memory(s->point->kind, &reference, 0);
  double held = 0;
  for (int m = 0; m < BPPSA_BENCH_METHODS; ++m) {
    bppsa_bench_row *row = &s->result->rows[m];
    if (!is_wanted(s, (bppsa_bench_method)m)) {
      continue;
    }
    const bppsa_recurrent_config config = bppsa_bench_config(&s->point->config, (bppsa_bench_method)m);
    BPPSA_TRY(bppsa_bench_costs(s->point->kind, &config, (bppsa_bench_method)m, row));
    const double need = fmax(least_memory(s->point->kind, &config, row->workspace), wide);
    row->memory = whole(need);
    row->measured = held + need <= limit;
    if (!row->measured) {
      refuse(row, held, limit);
    } else if (m != BPPSA_BENCH_FORWARD) {
      held += least_memory(s->point->kind, &config, row->workspace);
    }
  }
  return BPPSA_OK;
}

/* ---- verification ---- */

static bppsa_status pass(session *s, bppsa_model *model, double *forward_s, double *backward_s) {
  const bppsa_view x = x_view(s, false), seed = seed_view(s, false);
  const double start = now();
  BPPSA_TRY(bppsa_recurrent_forward_layers(model, &x, NULL));
  const double middle = now();
  BPPSA_TRY(bppsa_recurrent_backward_layers(model, &seed));
  *forward_s = middle - start;
  *backward_s = now() - middle;
  return BPPSA_OK;
}

static bppsa_status verify_backward(session *s, bppsa_bench_method method) {
  bppsa_bench_row *row = &s->result->rows[method];
  const bppsa_model *model = s->models[method];
  double forward_s, backward_s;
  BPPSA_TRY(pass(s, s->models[method], &forward_s, &backward_s));
  bppsa_bench_count count = {0};
  const double *reference = s->gradients;
  for (int64_t p = 0; p < model->parameter_count - HEAD_PARAMETERS; ++p) {
    const bppsa_view *gradient = &model->parameters[p].gradient;
    row->residual = fmax(row->residual, bppsa_bench_residual(gradient, reference, s->point->config.seq_len));
    reference += bppsa_view_count(gradient);
    bppsa_bench_count_view(gradient, &count);
  }
  row->zeros = count.zeros / count.all;
  row->subnormals = count.subnormals / count.all;
  row->redone = model->redone;
  return BPPSA_OK;
}

static bppsa_status verify_forward(session *s) {
  bppsa_model *model = s->models[BPPSA_BENCH_BP];
  const bppsa_view x = x_view(s, false);
  bppsa_view logits;
  BPPSA_TRY(model->ops->forward(model, &x, NULL, &logits));
  s->result->rows[BPPSA_BENCH_FORWARD].residual = bppsa_bench_residual(&logits, s->logits, s->point->config.seq_len);
  return BPPSA_OK;
}

static bppsa_status make_models(session *s) {
  for (int m = BPPSA_BENCH_BP; m < BPPSA_BENCH_METHODS; ++m) {
    bppsa_bench_row *row = &s->result->rows[m];
    if (!row->measured) {
      continue;
    }
    const int64_t before = bppsa_alloc_live_bytes();
    const bppsa_recurrent_config config = bppsa_bench_config(&s->point->config, (bppsa_bench_method)m);
    BPPSA_TRY(s->point->kind->create(&config, s->device, &s->models[m]));
    row->memory = bppsa_alloc_live_bytes() - before;
    BPPSA_TRY(bppsa_recurrent_init(s->models[m], s->point->init, s->point->seed));
    BPPSA_TRY(verify_backward(s, (bppsa_bench_method)m));
  }
  s->result->rows[BPPSA_BENCH_FORWARD].memory = s->result->rows[BPPSA_BENCH_BP].memory;
  return verify_forward(s);
}

/* ---- timing ---- */

/* Round `round` of `most`: a pass by every method whose turn it is, so that all of them spread evenly over the rounds. */
static bppsa_status run_round(session *s, int64_t round) {
  for (int m = BPPSA_BENCH_BP; m < BPPSA_BENCH_METHODS; ++m) {
    const int64_t before = round * s->repeats[m] / s->most, after = (round + 1) * s->repeats[m] / s->most;
    double forward_s, backward_s;
    if (s->models[m] == NULL || before == after) {
      continue;
    }
    BPPSA_TRY(pass(s, s->models[m], &forward_s, &backward_s));
    s->times[m * s->most + before] = backward_s;
    s->times[(BPPSA_BENCH_METHODS + m) * s->most + before] = forward_s;
    if (m == BPPSA_BENCH_BP) {
      s->times[before] = forward_s; /* row BPPSA_BENCH_FORWARD */
    }
  }
  return BPPSA_OK;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorts the times. */
static double median(double *times, int64_t count) {
  qsort(times, (size_t)count, sizeof *times, compare);
  return 0.5 * (times[(count - 1) / 2] + times[count / 2]);
}

/* Every method gets an equal share of the time, judged by a pass that also warms it up. */
static bppsa_status share_time(session *s) {
  int64_t methods = 0;
  for (int m = BPPSA_BENCH_BP; m < BPPSA_BENCH_METHODS; ++m) {
    methods += s->models[m] != NULL;
  }
  for (int m = BPPSA_BENCH_BP; m < BPPSA_BENCH_METHODS; ++m) {
    double forward_s, backward_s;
    if (s->models[m] == NULL) {
      continue;
    }
    BPPSA_TRY(pass(s, s->models[m], &forward_s, &backward_s));
    const double fits = s->limits->budget_s / (double)methods / fmax(forward_s + backward_s, 1e-6);
    s->repeats[m] = s->limits->repeats > 0 ? s->limits->repeats
                    : fits < LEAST_REPEATS ? LEAST_REPEATS
                    : fits > MOST_REPEATS  ? MOST_REPEATS
                                           : (int64_t)fits;
    s->most = s->repeats[m] > s->most ? s->repeats[m] : s->most;
  }
  s->repeats[BPPSA_BENCH_FORWARD] = s->repeats[BPPSA_BENCH_BP];
  return BPPSA_OK;
}

static bppsa_status time_methods(session *s) {
  const bppsa_bench_limits *limits = s->limits;
  BPPSA_TRY(share_time(s));
  s->times = bppsa_calloc(2 * BPPSA_BENCH_METHODS * s->most, sizeof *s->times);
  if (s->times == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < s->most; ++i) {
    if (limits->line != NULL && bppsa_progress_due(limits->line)) {
      bppsa_progress_show(limits->line, "%s: round %" PRId64 " of %" PRId64, limits->label, i + 1, s->most);
    }
    BPPSA_TRY(run_round(s, i));
  }
  for (int m = 0; m < BPPSA_BENCH_METHODS; ++m) {
    bppsa_bench_row *row = &s->result->rows[m];
    const int64_t repeats = s->repeats[m];
    double *times = s->times + m * s->most;
    if (row->measured) {
      row->median_s = median(times, repeats);
      row->min_s = times[0];
      row->max_s = times[repeats - 1];
      row->forward_s = m == BPPSA_BENCH_FORWARD ? row->median_s : median(s->times + (BPPSA_BENCH_METHODS + m) * s->most, repeats);
      row->repeats = repeats;
    }
  }
  return BPPSA_OK;
}

/* ---- all of it ---- */

static bppsa_status count_hidden(session *s) {
  const bppsa_view x = x_view(s, false), seed = seed_view(s, false);
  bppsa_model *model = s->models[BPPSA_BENCH_BP];
  bppsa_bench_count count = {0};
  bppsa_view gradients;
  BPPSA_TRY(bppsa_recurrent_forward_layers(model, &x, NULL));
  BPPSA_TRY(bppsa_recurrent_hidden_gradients(model, &seed, &gradients));
  bppsa_bench_count_view(&gradients, &count);
  s->result->hidden_zeros = count.zeros / count.all;
  s->result->hidden_subnormals = count.subnormals / count.all;
  return BPPSA_OK;
}

/* The data set, unless the input is noise. */
static bppsa_status open_data(session *s) {
  const bppsa_recurrent_config *c = &s->point->config;
  if (s->point->data == NULL) {
    return BPPSA_OK;
  }
  const bppsa_dataset_audio audio = {.set = &bppsa_mfcc_sets[s->point->set], .padding = s->point->padding, .device = s->device};
  bppsa_dataset_options options = bppsa_dataset_options_default();
  options.samples = strcmp(s->point->data, "bitstream") == 0 ? c->batch : 0;
  options.seq_len = c->seq_len;
  options.seed = s->point->seed;
  options.audio = &audio;
  BPPSA_TRY(bppsa_cli_input(bppsa_dataset_create(s->point->data, &options, &s->data)));
  if (s->data->samples < c->batch) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--batch: %" PRId64 ", more than the %" PRId64 " samples of --data, expected at most that many", c->batch,
                      s->data->samples);
  }
  return BPPSA_OK;
}

static bppsa_status measure(session *s) {
  const bppsa_recurrent_config *c = &s->point->config;
  BPPSA_TRY(admit(s));
  if (!s->result->rows[BPPSA_BENCH_FORWARD].measured) {
    return BPPSA_OK;
  }
  if (s->limits->line != NULL) {
    bppsa_progress_show(s->limits->line, "%s: verifying", s->limits->label);
  }
  BPPSA_TRY(open_data(s));
  BPPSA_TRY(make_inputs(s));
  BPPSA_TRY(make_reference(s));
  BPPSA_TRY(make_models(s));
  BPPSA_TRY(count_hidden(s));
  BPPSA_TRY(bppsa_peak_measure(s->device, c->dtype, &s->result->peak));
  return time_methods(s);
}

bppsa_status bppsa_bench_measure(const bppsa_bench_point *point, const bppsa_bench_limits *limits, const bppsa_device *device,
                                 bppsa_bench_result *result) {
  bppsa_bench_result found = {.threads = bppsa_device_get_threads(device)};
  session s = {.point = point, .limits = limits, .device = device, .result = &found};
  const bppsa_status status = measure(&s);
  for (int m = 0; m < BPPSA_BENCH_METHODS; ++m) {
    bppsa_model_destroy(s.models[m]);
  }
  bppsa_dataset_destroy(s.data);
  void *const blocks[] = {s.indices, s.x, s.x64, s.seed, s.seed64, s.gradients, s.logits, s.times};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; ++i) {
    bppsa_free(blocks[i]);
  }
  if (status == BPPSA_OK) {
    *result = found;
  }
  return status;
}
