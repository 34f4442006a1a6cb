/* Compares what a contestant's passes computed with the point's reference: gradients, logits, last states. */
#include <float.h>
#include <math.h>

#include "bench/cases/bench_rnn.h"
#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "core/measure/residual.h"

void bppsa_bench_judge(const bppsa_bench_session *s, const bppsa_model *model, bppsa_bench_row *row) {
  bppsa_bench_count count = {0};
  const double *reference = s->gradients;
  row->residual = 0;
  for (int64_t p = 0; p < model->parameter_count - s->point.kind->family->head_parameters; ++p) {
    const bppsa_view *gradient = &model->parameters[p].gradient;
    row->residual = bppsa_residual_worse(row->residual, bppsa_residual(gradient, reference, s->point.config.seq_len));
    reference += bppsa_view_count(gradient);
    bppsa_bench_count_view(gradient, &count);
  }
  row->zeros = count.zeros / count.all;
  row->subnormals = count.subnormals / count.all;
}

/* Copies the gradient of the input that a contestant's latest pass computed to the session's array. A graph writes where its plain
 * contestant does; the model does not know of the graph's passes. */
static bppsa_status fetch_input_gradient(bppsa_bench_session *s, bppsa_bench_contestant *who) {
  if (who->rival != NULL) {
    return bppsa_cudnn_input_gradient(who->rival, s->dx);
  }
  if (who->plain == NULL) {
    BPPSA_TRY(who->model->ops->input_gradients(who->model, &who->dx, NULL));
  }
  const bppsa_view *dx = who->plain == NULL ? &who->dx : &who->plain->dx;
  return bppsa_memory_get(s->device, s->dx, dx->data, (int64_t)bppsa_view_bytes(dx));
}

/* Raises the row's residual to that of the input's gradient, if this gradient is asked for and its residual is larger. */
static bppsa_status judge_input_gradient(bppsa_bench_session *s, bppsa_bench_contestant *who, bppsa_bench_row *row) {
  const bppsa_recurrent_config *c = &s->point.config;
  if (!c->input_gradients) {
    return BPPSA_OK;
  }
  BPPSA_TRY(fetch_input_gradient(s, who));
  const bppsa_view dx = bppsa_view_make(s->dx, c->dtype, 3, (int64_t[]){c->seq_len, c->batch, c->input});
  row->residual = bppsa_residual_worse(row->residual, bppsa_residual(&dx, s->input_gradient, c->seq_len));
  row->input_gradient = true;
  return BPPSA_OK;
}

bppsa_status bppsa_bench_judge_pass(bppsa_bench_session *s, bppsa_bench_contestant *who, bppsa_bench_row *row) {
  if (who->rival != NULL) {
    BPPSA_TRY(bppsa_cudnn_pull(who->rival, s->point.kind->name, s->holder));
    bppsa_bench_judge(s, s->holder, row);
    return judge_input_gradient(s, who, row);
  }
  BPPSA_TRY(bppsa_model_pull(who->model, true));
  BPPSA_TRY(bppsa_model_update_redone(who->model));
  bppsa_bench_judge(s, who->model, row);
  if (who->plain == NULL) { /* a graph's row keeps the count of its plain contestant's first pass */
    row->redone = who->model->redone;
  }
  return judge_input_gradient(s, who, row);
}

bppsa_status bppsa_bench_judge_logits(bppsa_bench_session *s, bppsa_model *model, bppsa_bench_row *row) {
  bppsa_view logits;
  const bppsa_spans spans = bppsa_bench_spans(s, false);
  BPPSA_TRY(bppsa_model_forward(model, &s->view_x, NULL, &spans, &logits));
  void *copy = bppsa_alloc(bppsa_view_bytes(&logits));
  if (copy == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_status status = bppsa_memory_get(s->device, copy, logits.data, (int64_t)bppsa_view_bytes(&logits));
  if (status == BPPSA_OK) {
    const bppsa_view found = bppsa_view_make(copy, logits.dtype, logits.ndim, logits.shape);
    row->residual = bppsa_residual(&found, s->logits, s->point.config.seq_len);
  }
  bppsa_free(copy);
  return status;
}

bppsa_status bppsa_bench_judge_states(const bppsa_bench_session *s, const bppsa_view *states, bppsa_bench_row *row) {
  const bppsa_recurrent_config *c = &s->point.config;
  const bppsa_parameter *head = &s->holder->parameters[s->holder->parameter_count - s->point.kind->family->head_parameters];
  const int64_t logits = c->batch * c->classes;
  double *block = bppsa_calloc(logits, sizeof *block);
  if (block == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_view found = bppsa_view_make(block, c->dtype, 1, &logits);
  for (int64_t i = 0; i < logits; ++i) {
    const int64_t b = i / c->classes, k = i % c->classes;
    double sum = bppsa_view_get(&head[1].value, k);
    for (int64_t j = 0; j < c->hidden; ++j) {
      sum += bppsa_view_get(states, b * c->hidden + j) * bppsa_view_get(&head[0].value, k * c->hidden + j);
    }
    bppsa_view_set(&found, i, sum);
  }
  const double *last = s->logits + (c->loss_all ? (c->seq_len - 1) * logits : 0);
  row->residual = bppsa_residual(&found, last, c->seq_len);
  bppsa_free(block);
  return BPPSA_OK;
}

/* The relative error that a residual of 1 stands for. */
static double error_of_one(const bppsa_recurrent_config *c) {
  return (c->dtype == BPPSA_F32 ? (double)FLT_EPSILON : DBL_EPSILON) * sqrt((double)c->seq_len);
}

double bppsa_bench_rival_unit(bppsa_cudnn_algorithm algorithm, const bppsa_recurrent_config *config) {
  const double tenth = 0.1 / (BPPSA_RESIDUAL_BOUND * error_of_one(config)), unit = bppsa_cudnn_rounding(algorithm, config->dtype);
  return bppsa_cudnn_exact(algorithm) ? unit : fmin(unit, tenth);
}

double bppsa_bench_residual_of(const bppsa_bench_contestant *who) {
  bppsa_bench_row *rows = who->session->result.rows;
  const int indices[] = {who->forward, who->backward};
  double worst = 0;
  for (int i = 0; i < 2; ++i) {
    if (indices[i] >= 0) {
      rows[indices[i]].error = rows[indices[i]].residual * error_of_one(&who->session->point.config);
      rows[indices[i]].residual /= who->unit;
      worst = bppsa_residual_worse(worst, rows[indices[i]].residual);
    }
  }
  return worst;
}
