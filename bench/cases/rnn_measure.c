/* Enters one point: computes the reference, says which methods fit into memory, and enters them (rnn_enter.c). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/cases/case.h"
#include "bench/harness/machine.h"
#include "core/alloc.h"
#include "core/memory.h"
#include "core/philox.h"
#include "models/weights.h"

enum { SEED_STREAM = BPPSA_STREAM_TEST + 100 };

static bool is_wanted(const bppsa_bench_session *s, bppsa_bench_method method) {
  return method <= BPPSA_BENCH_BP || !s->scans_only || bppsa_bench_is_scan(method);
}

/* ---- inputs ---- */

static bppsa_view x_view(const bppsa_bench_session *s, bool wide) {
  const bppsa_recurrent_config *c = &s->point.config;
  return bppsa_view_make(wide ? s->x64 : s->x, wide ? BPPSA_F64 : c->dtype, 3, (int64_t[]){c->seq_len, c->batch, c->input});
}

/* The gradient of the last hidden states [B,H], or of all of them [T,B,H]. */
static bppsa_view seed_view(const bppsa_bench_session *s, bool wide) {
  const bppsa_recurrent_config *c = &s->point.config;
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
static bppsa_status make_inputs(bppsa_bench_session *s) {
  const bppsa_recurrent_config *c = &s->point.config;
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
    BPPSA_TRY(bppsa_dataset_fill(s->data, s->bench->host, c->batch, s->indices, &x, NULL));
  }
  for (int64_t i = 0; s->data == NULL && i < bppsa_view_count(&x); ++i) {
    bppsa_view_set(&x, i, sqrt(3) * (2 * bppsa_random_double(s->point.seed, SEED_STREAM + 1, (uint64_t)i) - 1));
  }
  BPPSA_TRY(bppsa_view_convert(&x, &wide));
  for (int64_t i = 0; i < bppsa_view_count(&seed); ++i) {
    const double uniform = bppsa_random_double(s->point.seed, SEED_STREAM, (uint64_t)i);
    bppsa_view_set(&seed, i, (2 * uniform - 1) / (double)c->batch);
  }
  return bppsa_view_convert(&seed, &seed64);
}

/* Copies an array to the GPU and makes the view of the copy. */
static bppsa_status move(const bppsa_bench_session *s, const bppsa_view *view, void **data, bppsa_view *moved) {
  const int64_t bytes = (int64_t)bppsa_view_bytes(view);
  BPPSA_TRY(bppsa_memory_alloc(s->device, bytes, data));
  *moved = *view;
  moved->data = *data;
  moved->device = BPPSA_CUDA;
  return bppsa_memory_put(s->device, *data, view->data, bytes);
}

/* What --cold writes before every pass; and room for gradients of the input. */
static bppsa_status reserve_besides(bppsa_bench_session *s) {
  const bppsa_view x = x_view(s, false);
  BPPSA_TRY(bppsa_cold_create(&s->cold));
  return s->point.config.input_gradients ? reserve(x.dtype, 3, x.shape, &s->dx) : BPPSA_OK;
}

static bppsa_status place_inputs(bppsa_bench_session *s) {
  const bppsa_view x = x_view(s, false), seed = seed_view(s, false);
  s->view_x = x;
  s->view_seed = seed;
  if (!s->bench->gpu) {
    return BPPSA_OK;
  }
  BPPSA_TRY(move(s, &x, &s->device_x, &s->view_x));
  return move(s, &seed, &s->device_seed, &s->view_seed);
}

/* ---- weights ---- */

bppsa_status bppsa_bench_set_weights(const bppsa_bench_session *s, bppsa_model *model) {
  const bppsa_bench_settings *asked = s->bench->asked;
  if (s->point.weights == NULL) {
    return bppsa_recurrent_init(model, s->point.init, s->point.seed);
  }
  const bppsa_weights_request request = {.path = asked->weights_name};
  const bppsa_network network = {.kind = s->point.kind, .name = s->point.kind->name};
  return bppsa_weights_set(&request, &network, asked->weights, model, NULL);
}

/* ---- the reference ---- */

static bppsa_status keep_input_gradient(bppsa_bench_session *s, bppsa_model *model) {
  bppsa_view dx;
  BPPSA_TRY(model->ops->input_gradients(model, &dx, NULL));
  s->input_gradient = bppsa_calloc(bppsa_view_count(&dx), sizeof *s->input_gradient);
  if (s->input_gradient == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memcpy(s->input_gradient, dx.data, bppsa_view_bytes(&dx));
  return BPPSA_OK;
}

/* Sequential BP in float64 on the weights as the dtype rounds them. */
static bppsa_status run_reference(bppsa_bench_session *s, bppsa_model *model) {
  const bppsa_view x = x_view(s, true), seed = seed_view(s, true);
  BPPSA_TRY(bppsa_bench_set_weights(s, model));
  int64_t total = 0;
  for (int64_t p = 0; p < model->parameter_count; ++p) {
    const bppsa_view *value = &model->parameters[p].value;
    total += bppsa_view_count(value);
    for (int64_t i = 0; s->point.config.dtype == BPPSA_F32 && i < bppsa_view_count(value); ++i) {
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
  for (int64_t p = 0; p < model->parameter_count - s->point.kind->family->head_parameters; ++p) {
    const bppsa_view *gradient = &model->parameters[p].gradient;
    memcpy(next, gradient->data, bppsa_view_bytes(gradient));
    next += bppsa_view_count(gradient);
  }
  return s->point.config.input_gradients ? keep_input_gradient(s, model) : BPPSA_OK;
}

static bppsa_status make_reference(bppsa_bench_session *s) {
  bppsa_recurrent_config config = bppsa_bench_config(&s->point.config, BPPSA_BENCH_BP);
  config.dtype = BPPSA_F64;
  config.forward = bppsa_forward_method_default();
  bppsa_model *model = NULL;
  BPPSA_TRY(s->point.kind->create(&config, s->point.kind->cell, s->bench->host, &model));
  const bppsa_status status = run_reference(s, model);
  bppsa_model_destroy(model);
  return status;
}

/* ---- which methods fit ---- */

/* Bytes that the reference takes on the host, with the copy of its gradients. */
static bppsa_status count_reference(const bppsa_bench_session *s, int64_t *bytes) {
  bppsa_recurrent_config config = bppsa_bench_config(&s->point.config, BPPSA_BENCH_BP);
  config.dtype = BPPSA_F64;
  config.forward = bppsa_forward_method_default();
  config.optimizer_slots = 1; /* the copy is as large as an optimiser's */
  return bppsa_recurrent_count(&config, s->point.kind->cell, s->bench->host, bytes);
}

static void refuse(bppsa_bench_row *row, double held, double limit) {
  char bytes[BPPSA_SI_TEXT], beside[BPPSA_SI_TEXT], most[BPPSA_SI_TEXT];
  snprintf(row->reason, sizeof row->reason, "needs %" PRId64 " bytes (%s) beside %s of other methods, the memory limit is %s",
           row->memory, bppsa_text_si((double)row->memory, "B", bytes, sizeof bytes),
           bppsa_text_si(held, "B", beside, sizeof beside), bppsa_text_si(limit, "B", most, sizeof most));
}

/* Costs of every method, and whether it fits. All models exist at once; forward and bp share one. The reference, which is
 * destroyed before the others are created, must fit as well: on a CPU alone, on a GPU into the host's memory. */
static bppsa_status admit(bppsa_bench_session *s) {
  const double limit = (double)s->bench->memory_limit, host = 0.75 * (double)bppsa_machine_memory();
  int64_t reference, bytes;
  double held = (double)s->cold.bytes;
  BPPSA_TRY(count_reference(s, &reference));
  const int64_t wide = s->bench->gpu && (double)reference <= host ? 0 : reference;
  for (int m = 0; m < BPPSA_BENCH_METHODS; ++m) {
    bppsa_bench_row *row = &s->result.rows[m];
    if (!is_wanted(s, (bppsa_bench_method)m)) {
      continue;
    }
    const bppsa_recurrent_config config = bppsa_bench_config(&s->point.config, (bppsa_bench_method)m);
    BPPSA_TRY(bppsa_bench_costs(s->point.kind, &config, (bppsa_bench_method)m, bppsa_device_get_kind(s->device), row));
    BPPSA_TRY(bppsa_recurrent_count(&config, s->point.kind->cell, s->device, &bytes));
    row->memory = bytes > wide ? bytes : wide;
    row->measured = held + (double)row->memory <= limit;
    if (!row->measured) {
      refuse(row, held, limit);
    } else if (m != BPPSA_BENCH_FORWARD) {
      held += (double)bytes;
    }
  }
  return BPPSA_OK;
}

/* ---- the point ---- */

/* Counts the zeros among the gradients of the hidden states, by a model in host memory. */
static bppsa_status count_hidden_of(bppsa_bench_session *s, bppsa_model *model) {
  const bppsa_view x = x_view(s, false), seed = seed_view(s, false);
  bppsa_bench_count count = {0};
  bppsa_view gradients;
  BPPSA_TRY(bppsa_recurrent_forward_layers(model, &x, NULL));
  BPPSA_TRY(bppsa_recurrent_hidden_gradients(model, &seed, &gradients));
  const int64_t states = gradients.shape[0] * gradients.shape[1], hidden = s->point.config.hidden;
  for (int64_t i = 0; i < states; ++i) { /* of a pair (h, c) without c, whose last gradient is 0 */
    char *h = (char *)gradients.data + (size_t)(i * gradients.shape[2]) * bppsa_dtype_size(gradients.dtype);
    const bppsa_view row = bppsa_view_make(h, gradients.dtype, 1, &hidden);
    bppsa_bench_count_view(&row, &count);
  }
  s->result.hidden_zeros = count.zeros / count.all;
  s->result.hidden_subnormals = count.subnormals / count.all;
  return BPPSA_OK;
}

/* On a GPU a model of its own computes them on the host. */
static bppsa_status count_hidden(bppsa_bench_session *s) {
  if (!s->bench->gpu) {
    return s->bp != NULL ? count_hidden_of(s, s->bp->model) : BPPSA_OK;
  }
  bppsa_recurrent_config config = bppsa_bench_config(&s->point.config, BPPSA_BENCH_BP);
  config.forward = bppsa_forward_method_default();
  bppsa_model *model = NULL;
  BPPSA_TRY(s->point.kind->create(&config, s->point.kind->cell, s->bench->host, &model));
  bppsa_status status = bppsa_bench_set_weights(s, model);
  status = status == BPPSA_OK ? count_hidden_of(s, model) : status;
  bppsa_model_destroy(model);
  return status;
}

/* The data set, unless the input is noise. */
static bppsa_status open_data(bppsa_bench_session *s) {
  const bppsa_recurrent_config *c = &s->point.config;
  if (s->point.data == NULL) {
    return BPPSA_OK;
  }
  const bppsa_dataset_audio audio = {.set = &bppsa_mfcc_sets[s->point.set], .padding = s->point.padding, .device = s->device};
  bppsa_dataset_options options = bppsa_dataset_options_default();
  options.samples = strcmp(s->point.data, "bitstream") == 0 ? c->batch : 0;
  options.seq_len = c->seq_len;
  options.seed = s->point.seed;
  options.audio = &audio;
  BPPSA_TRY(bppsa_input_status(bppsa_dataset_create(s->point.data, &options, &s->data)));
  if (s->data->samples < c->batch) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--batch: %" PRId64 ", more than the %" PRId64 " samples of --data, expected at most that many", c->batch,
                      s->data->samples);
  }
  return BPPSA_OK;
}

enum { MARKS = 4 };

bppsa_status bppsa_bench_enter_point(bppsa_bench *bench) {
  bppsa_bench_session *s = bench->session;
  s->result = (bppsa_bench_result){0};
  const bppsa_view x = x_view(s, false), seed = seed_view(s, false);
  s->cold = bppsa_cold_plan(s->device, bench->asked->cold, (int64_t)(bppsa_view_bytes(&x) + bppsa_view_bytes(&seed)));
  BPPSA_TRY(admit(s));
  if (!s->result.rows[BPPSA_BENCH_FORWARD].measured) {
    return BPPSA_OK;
  }
  bppsa_progress_show(&bench->progress, "%s: verifying", bench->label);
  BPPSA_TRY(open_data(s));
  BPPSA_TRY(make_inputs(s));
  BPPSA_TRY(make_reference(s));
  BPPSA_TRY(bppsa_timeline_create(s->device, MARKS, &s->timeline));
  BPPSA_TRY(place_inputs(s));
  BPPSA_TRY(reserve_besides(s));
  BPPSA_TRY(bppsa_bench_add_methods(s));
  BPPSA_TRY(count_hidden(s));
  BPPSA_TRY(bppsa_bench_add_rivals(s));
  return bench->gpu ? bppsa_peak_measure(s->device, s->point.config.dtype, &s->result.peak) : BPPSA_OK;
}

void bppsa_bench_leave_point(bppsa_bench *bench) {
  bppsa_bench_session *s = bench->session;
  bppsa_bench_end_contestants(s);
  bppsa_model_destroy(s->holder);
  bppsa_timeline_destroy(s->timeline);
  bppsa_outlook_destroy(s->outlook);
  bppsa_dataset_destroy(s->data);
  bppsa_cold_destroy(&s->cold);
  bppsa_memory_free(s->device, s->device_x);
  bppsa_memory_free(s->device, s->device_seed);
  void *const blocks[] = {s->indices, s->x, s->x64, s->seed, s->seed64, s->gradients, s->logits, s->input_gradient, s->dx};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; ++i) {
    bppsa_free(blocks[i]);
  }
  *s = (bppsa_bench_session){.bench = bench,
                             .point = s->point,
                             .device = s->device,
                             .scans_only = s->scans_only,
                             .guest = s->guest,
                             .most_nodes = s->most_nodes};
}
