/* Computes the library's gradients of a problem (cell_problem.h). For tests/support/cell_tests.h. */
#ifndef BPPSA_TESTS_SUPPORT_CELL_RUN_H
#define BPPSA_TESTS_SUPPORT_CELL_RUN_H

#include "tests/support/cell_problem.h"

typedef struct {
  bppsa_model *model;
  void *x, *h0, *seed;
  double loss;
} run;

static void set_weights(bppsa_model *model, const problem *p) {
  assert_int_equal(tensor_of_parameter(p, model->parameter_count), p->count);
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const int64_t tensor = tensor_of_parameter(p, i);
    assert_int_equal(bppsa_view_count(&model->parameters[i].value), p->sizes[tensor]);
    for (int64_t j = 0; j < p->sizes[tensor]; ++j) {
      bppsa_view_set(&model->parameters[i].value, j, p->w[tensor][j]);
    }
  }
}

/* Makes the forward pass, computes the seed from the library's logits in float64, and makes the backward pass. */
static run run_model(problem *p, const bppsa_recurrent_config *config, const bppsa_device *device) {
  run r = {0};
  const int64_t T = config->seq_len, B = p->c.batch, L = sweeps_of(config), S = state_of(config), C = config->classes;
  assert_int_equal(bppsa_recurrent_create(config, cell.cell, device, &r.model), BPPSA_OK);
  set_weights(r.model, p);
  r.x = rounded(config->dtype, p->x, T * B * config->input);
  r.h0 = rounded(config->dtype, p->h0, L * B * S);
  const bppsa_view x = bppsa_view_make(r.x, config->dtype, 3, (int64_t[]){T, B, config->input});
  const bppsa_view h0 = bppsa_view_make(r.h0, config->dtype, 3, (int64_t[]){L, B, S});
  bppsa_view logits;
  assert_int_equal(bppsa_model_forward(r.model, &x, &h0, &(bppsa_spans){.lengths = p->lengths}, &logits), BPPSA_OK);
  const int64_t rows = bppsa_view_count(&logits) / C, counted = counted_rows(p);
  double *seed = zeros(rows * C);
  for (int64_t i = 0; i < rows; ++i) {
    if (!row_counts(p, i)) {
      continue;
    }
    for (int64_t k = 0; k < C; ++k) {
      seed[i * C + k] = bppsa_view_get(&logits, i * C + k);
    }
    r.loss += to_seed(seed + i * C, C, p->labels[i], counted);
  }
  r.seed = rounded(config->dtype, seed, rows * C);
  bppsa_free(seed);
  const bppsa_view seed_view = bppsa_view_make(r.seed, config->dtype, logits.ndim, logits.shape);
  assert_int_equal(r.model->ops->backward(r.model, &seed_view), BPPSA_OK);
  return r;
}

static void free_run(run *r) {
  bppsa_model_destroy(r->model);
  bppsa_free(r->x);
  bppsa_free(r->h0);
  bppsa_free(r->seed);
}

#endif
