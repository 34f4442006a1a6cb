/* Enters one point: makes its inputs, finds the reference (rnn_reference.c), says which methods fit into memory, and enters them
 * (rnn_enter.c). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/cases/case.h"
#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "core/compute/memory.h"
#include "networks/weights.h"
#include "terminal/machine.h"

enum { SEED_STREAM = BPPSA_STREAM_TEST + 100 };

static bool is_wanted(const bppsa_bench_session *s, bppsa_bench_method method) {
  return method <= BPPSA_BENCH_BP || !s->scans_only || bppsa_bench_is_scan(method);
}

/* ---- inputs ---- */

bppsa_view bppsa_bench_x_view(const bppsa_bench_session *s) {
  const bppsa_recurrent_config *c = &s->point.config;
  return bppsa_view_make(s->x, c->dtype, 3, (int64_t[]){c->seq_len, c->batch, c->input});
}

bppsa_spans bppsa_bench_spans(const bppsa_bench_session *s, bool host) {
  return (bppsa_spans){.resets = s->mask != NULL ? &s->resets[host] : NULL};
}

bppsa_view bppsa_bench_seed_view(const bppsa_bench_session *s) {
  const bppsa_recurrent_config *c = &s->point.config;
  const int64_t all[] = {c->seq_len, c->batch, c->hidden};
  return bppsa_view_make(s->seed, c->dtype, c->loss_all ? 3 : 2, c->loss_all ? all : all + 1);
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

static bppsa_status reserve(bppsa_dtype dtype, int32_t ndim, const int64_t *shape, void **array) {
  int64_t count;
  size_t bytes;
  BPPSA_TRY(bppsa_shape_bytes(dtype, ndim, shape, &count, &bytes));
  *array = bppsa_alloc(bytes);
  return *array == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

/* Draws where the samples begin anew. */
static bppsa_status draw_resets(bppsa_bench_session *s) {
  const bppsa_recurrent_config *c = &s->point.config;
  if (!c->resets) {
    return BPPSA_OK;
  }
  s->mask = bppsa_calloc(c->seq_len, (size_t)c->batch);
  if (s->mask == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < c->seq_len * c->batch; ++i) {
    s->mask[i] = bppsa_random_double(s->point.seed, SEED_STREAM + 2, (uint64_t)i) < s->point.reset_rate;
  }
  s->resets[0] = s->resets[1] = bppsa_view_make(s->mask, BPPSA_U8, 2, (int64_t[]){c->seq_len, c->batch});
  return BPPSA_OK;
}

bppsa_status bppsa_bench_make_inputs(bppsa_bench_session *s) {
  BPPSA_TRY(draw_resets(s));
  const bppsa_recurrent_config *c = &s->point.config;
  BPPSA_TRY(open_data(s));
  const bppsa_view shape = bppsa_bench_seed_view(s), x_shape = bppsa_bench_x_view(s);
  BPPSA_TRY(reserve(c->dtype, 3, x_shape.shape, &s->x));
  BPPSA_TRY(reserve(c->dtype, shape.ndim, shape.shape, &s->seed));
  s->indices = bppsa_calloc(c->batch, sizeof *s->indices);
  if (s->indices == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < c->batch; ++i) {
    s->indices[i] = i;
  }
  const bppsa_view x = bppsa_bench_x_view(s), seed = bppsa_bench_seed_view(s);
  if (s->data != NULL) {
    BPPSA_TRY(bppsa_dataset_fill(s->data, s->bench->host, c->batch, s->indices, &x, NULL));
  }
  for (int64_t i = 0; s->data == NULL && i < bppsa_view_count(&x); ++i) {
    bppsa_view_set(&x, i, sqrt(3) * (2 * bppsa_random_double(s->point.seed, SEED_STREAM + 1, (uint64_t)i) - 1));
  }
  for (int64_t i = 0; i < bppsa_view_count(&seed); ++i) {
    const double uniform = bppsa_random_double(s->point.seed, SEED_STREAM, (uint64_t)i);
    bppsa_view_set(&seed, i, (2 * uniform - 1) / (double)c->batch);
  }
  return BPPSA_OK;
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

/* Reserves what --cold writes before every pass, and room for gradients of the input. */
static bppsa_status reserve_besides(bppsa_bench_session *s) {
  const bppsa_view x = bppsa_bench_x_view(s);
  BPPSA_TRY(bppsa_cold_create(&s->cold));
  return s->point.config.input_gradients ? reserve(x.dtype, 3, x.shape, &s->dx) : BPPSA_OK;
}

static bppsa_status place_inputs(bppsa_bench_session *s) {
  const bppsa_view x = bppsa_bench_x_view(s), seed = bppsa_bench_seed_view(s);
  s->view_x = x;
  s->view_seed = seed;
  if (!s->bench->gpu) {
    return BPPSA_OK;
  }
  BPPSA_TRY(s->mask != NULL ? move(s, &s->resets[1], &s->device_mask, &s->resets[0]) : BPPSA_OK);
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

bppsa_status bppsa_bench_hold_weights(bppsa_bench_session *s) {
  bppsa_recurrent_config config = bppsa_bench_config(&s->point.config, BPPSA_BENCH_BP);
  config.seq_len = config.batch = 1;
  if (s->holder != NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(s->point.kind->create(&config, s->point.kind->cell, s->bench->host, &s->holder));
  return bppsa_bench_set_weights(s, s->holder);
}

/* ---- which methods fit ---- */

static void refuse(bppsa_bench_row *row, double held, double limit) {
  char bytes[BPPSA_SI_TEXT], beside[BPPSA_SI_TEXT], most[BPPSA_SI_TEXT];
  snprintf(row->reason, sizeof row->reason, "needs %" PRId64 " bytes (%s) beside %s of other methods, the memory limit is %s",
           row->memory, bppsa_text_si((double)row->memory, "B", bytes, sizeof bytes),
           bppsa_text_si(held, "B", beside, sizeof beside), bppsa_text_si(limit, "B", most, sizeof most));
}

/* Counts the bytes of a method. A device without kernels for speculative BP refuses its plan, which also refuses
 * recompute: then the row says so, and *bytes is -1. */
static bppsa_status count_bytes(const bppsa_bench_session *s, const bppsa_recurrent_config *config, bppsa_bench_row *row,
                                int64_t *bytes) {
  const bppsa_status status = bppsa_recurrent_count(config, s->point.kind->cell, s->device, bytes);
  if (status != BPPSA_ERR_UNSUPPORTED || config->method.backward != BPPSA_BACKWARD_SPECULATIVE) {
    return status;
  }
  bppsa_bench_skip_row(row, bppsa_last_error());
  *bytes = -1;
  return BPPSA_OK;
}

/* Finds the costs of every method, and whether it fits. All models exist at once; forward and bp share one. The reference must fit
 * too: on a CPU by itself, because it is destroyed before the others are created; on a GPU into the host's memory. */
static bppsa_status admit(bppsa_bench_session *s) {
  const double limit = (double)s->bench->memory_limit, host = 0.75 * (double)bppsa_machine_memory();
  int64_t reference, bytes;
  double held = (double)s->cold.bytes;
  BPPSA_TRY(bppsa_bench_count_reference(s, &reference));
  const int64_t wide = s->bench->gpu && (double)reference <= host ? 0 : reference;
  for (int m = 0; m < BPPSA_BENCH_METHODS; ++m) {
    bppsa_bench_row *row = &s->result.rows[m];
    if (!is_wanted(s, (bppsa_bench_method)m)) {
      continue;
    }
    const bppsa_recurrent_config config = bppsa_bench_config(&s->point.config, (bppsa_bench_method)m);
    BPPSA_TRY(bppsa_bench_costs(s->point.kind, &config, (bppsa_bench_method)m, bppsa_device_get_kind(s->device), row));
    BPPSA_TRY(count_bytes(s, &config, row, &bytes));
    if (bytes < 0) {
      continue;
    }
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

enum { MARKS = 4 };

/* Counts the zeros among hidden gradients, unless a file tells them: by the project's model, beside a GPU by one on the host. */
static bppsa_status count_hidden(bppsa_bench_session *s) {
  const bool counted = s->result.reference_read || (!s->bench->gpu && s->bp == NULL);
  const bool own = s->bench->gpu || s->point.config.recompute > 0; /* the model does not have what is counted in host memory */
  return counted ? BPPSA_OK : bppsa_bench_count_hidden(s, own ? NULL : s->bp->model);
}

bppsa_status bppsa_bench_enter_point(bppsa_bench *bench) {
  bppsa_bench_session *s = bench->session;
  s->result = (bppsa_bench_result){0};
  const bppsa_view x = bppsa_bench_x_view(s), seed = bppsa_bench_seed_view(s);
  s->cold = bppsa_cold_plan(s->device, bench->asked->cold, (int64_t)(bppsa_view_bytes(&x) + bppsa_view_bytes(&seed)));
  BPPSA_TRY(admit(s));
  if (!s->result.rows[BPPSA_BENCH_FORWARD].measured) {
    return BPPSA_OK;
  }
  bppsa_progress_show(&bench->progress, "%s: verifying", bench->label);
  BPPSA_TRY(bppsa_bench_make_inputs(s));
  BPPSA_TRY(bppsa_bench_find_reference(s));
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
  bppsa_memory_free(s->device, s->device_mask);
  void *const blocks[] = {s->indices, s->x, s->seed, s->gradients, s->logits, s->hidden, s->input_gradient, s->dx, s->mask};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; ++i) {
    bppsa_free(blocks[i]);
  }
  *s = (bppsa_bench_session){.bench = bench,
                             .point = s->point,
                             .device = s->device,
                             .scans_only = s->scans_only,
                             .guest = s->guest,
                             .references = s->references,
                             .most_nodes = s->most_nodes};
}
