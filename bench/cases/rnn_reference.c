/* The reference of a point: gradients and logits by sequential BP in float64, and how many hidden gradients are zeros. */
#include <string.h>

#include "bench/cases/case.h"
#include "core/base/alloc.h"
#include "core/compute/device_buffer.h"

static bppsa_recurrent_config config_of(const bppsa_bench_session *s) {
  bppsa_recurrent_config config = bppsa_bench_config(&s->point.config, BPPSA_BENCH_BP);
  config.dtype = BPPSA_F64;
  config.forward = bppsa_forward_method_default();
  config.recompute = 0;
  return config;
}

bppsa_status bppsa_bench_count_reference(const bppsa_bench_session *s, int64_t *bytes) {
  bppsa_recurrent_config config = config_of(s);
  config.optimizer_slots = 1; /* the copy of the gradients takes as much as an optimiser's slot */
  return bppsa_recurrent_count(&config, s->point.kind->cell, s->bench->host, bytes);
}

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

/* Runs sequential BP in float64 on the weights as the dtype rounds them. */
static bppsa_status run_reference(bppsa_bench_session *s, bppsa_model *model, const bppsa_view *x, const bppsa_view *seed) {
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
  const bppsa_spans spans = bppsa_bench_spans(s, true);
  BPPSA_TRY(bppsa_model_forward(model, x, NULL, &spans, &logits));
  s->gradients = bppsa_calloc(total, sizeof *s->gradients);
  s->logits = bppsa_calloc(bppsa_view_count(&logits), sizeof *s->logits);
  if (s->gradients == NULL || s->logits == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memcpy(s->logits, logits.data, bppsa_view_bytes(&logits));
  BPPSA_TRY(bppsa_recurrent_forward_spans(model, x, NULL, &spans));
  BPPSA_TRY(bppsa_recurrent_backward_layers(model, seed));
  double *next = s->gradients;
  for (int64_t p = 0; p < model->parameter_count - s->point.kind->family->head_parameters; ++p) {
    const bppsa_view *gradient = &model->parameters[p].gradient;
    memcpy(next, gradient->data, bppsa_view_bytes(gradient));
    next += bppsa_view_count(gradient);
  }
  return s->point.config.input_gradients ? keep_input_gradient(s, model) : BPPSA_OK;
}

/* Converts the values to float64; the caller frees the buffer. */
static bppsa_status widen(const bppsa_view *view, bppsa_buffer *wide) {
  BPPSA_TRY(bppsa_buffer_create(NULL, BPPSA_F64, view->ndim, view->shape, wide));
  return bppsa_view_convert(view, &wide->view);
}

bppsa_status bppsa_bench_compute_reference(bppsa_bench_session *s) {
  const bppsa_view x = bppsa_bench_x_view(s), seed = bppsa_bench_seed_view(s);
  const bppsa_recurrent_config config = config_of(s);
  bppsa_buffer wide_x = {0}, wide_seed = {0};
  bppsa_model *model = NULL;
  bppsa_status status = widen(&x, &wide_x);
  status = status == BPPSA_OK ? widen(&seed, &wide_seed) : status;
  status = status == BPPSA_OK ? s->point.kind->create(&config, s->point.kind->cell, s->bench->host, &model) : status;
  status = status == BPPSA_OK ? run_reference(s, model, &wide_x.view, &wide_seed.view) : status;
  bppsa_model_destroy(model);
  bppsa_buffer_free(&wide_x);
  bppsa_buffer_free(&wide_seed);
  return status;
}

bppsa_status bppsa_bench_find_reference(bppsa_bench_session *s) {
  bppsa_bench_result *result = &s->result;
  BPPSA_TRY(s->references != NULL ? bppsa_bench_read_reference(s) : BPPSA_OK);
  if (result->reference_read) {
    return BPPSA_OK;
  }
  if (s->references != NULL) {
    bppsa_progress_clear(&s->bench->progress);
    bppsa_output_note(&s->bench->request->to, "--references: %s; the reference is computed", result->reference_reason);
  }
  return bppsa_bench_compute_reference(s);
}

/* ---- the gradients of the hidden states ---- */

static bppsa_status count_hidden_of(bppsa_bench_session *s, bppsa_model *model) {
  const bppsa_view x = bppsa_bench_x_view(s), seed = bppsa_bench_seed_view(s);
  bppsa_bench_count count = {0};
  bppsa_view gradients;
  const bppsa_spans spans = bppsa_bench_spans(s, true);
  BPPSA_TRY(bppsa_recurrent_forward_spans(model, &x, NULL, &spans));
  BPPSA_TRY(bppsa_recurrent_hidden_gradients(model, &seed, &gradients));
  const int64_t states = gradients.shape[0] * gradients.shape[1], hidden = s->point.config.hidden;
  for (int64_t i = 0; i < states; ++i) { /* of a pair (h, c) only h counts, because the last gradient of c is 0 */
    char *h = (char *)gradients.data + (size_t)(i * gradients.shape[2]) * bppsa_dtype_size(gradients.dtype);
    const bppsa_view row = bppsa_view_make(h, gradients.dtype, 1, &hidden);
    bppsa_bench_count_view(&row, &count);
  }
  s->result.hidden_zeros = count.zeros / count.all;
  s->result.hidden_subnormals = count.subnormals / count.all;
  return BPPSA_OK;
}

bppsa_status bppsa_bench_count_hidden(bppsa_bench_session *s, bppsa_model *model) {
  if (model != NULL) {
    return count_hidden_of(s, model);
  }
  bppsa_recurrent_config config = bppsa_bench_config(&s->point.config, BPPSA_BENCH_BP);
  config.forward = bppsa_forward_method_default();
  config.recompute = 0;
  BPPSA_TRY(s->point.kind->create(&config, s->point.kind->cell, s->bench->host, &model));
  bppsa_status status = bppsa_bench_set_weights(s, model);
  status = status == BPPSA_OK ? count_hidden_of(s, model) : status;
  bppsa_model_destroy(model);
  return status;
}
