/* The library's gradients of a problem (cell_problem.h), beside the textbook's. For tests/support/cell_tests.h. */
#ifndef BPPSA_TESTS_SUPPORT_CELL_RUN_H
#define BPPSA_TESTS_SUPPORT_CELL_RUN_H

#include "tests/support/cell_problem.h"

typedef struct {
  bppsa_model *model;
  void *x, *h0, *seed;
  double loss;
} run;

static void set_weights(bppsa_model *model, const problem *p) {
  assert_int_equal(model->parameter_count, p->count);
  for (int64_t i = 0; i < p->count; ++i) {
    assert_int_equal(bppsa_view_count(&model->parameters[i].value), p->sizes[i]);
    for (int64_t j = 0; j < p->sizes[i]; ++j) {
      bppsa_view_set(&model->parameters[i].value, j, p->w[i][j]);
    }
  }
}

/* Forward, seed from the library's own logits in float64, backward. */
static run run_model(problem *p, const bppsa_recurrent_config *config, const bppsa_device *device) {
  run r = {0};
  const int64_t T = config->seq_len, B = p->c.batch, L = config->layers, H = config->hidden, C = config->classes;
  assert_int_equal(bppsa_recurrent_create(config, cell.cell, device, &r.model), BPPSA_OK);
  set_weights(r.model, p);
  r.x = rounded(config->dtype, p->x, T * B * config->input);
  r.h0 = rounded(config->dtype, p->h0, L * B * H);
  const bppsa_view x = bppsa_view_make(r.x, config->dtype, 3, (int64_t[]){T, B, config->input});
  const bppsa_view h0 = bppsa_view_make(r.h0, config->dtype, 3, (int64_t[]){L, B, H});
  bppsa_view logits;
  assert_int_equal(r.model->ops->forward(r.model, &x, &h0, &logits), BPPSA_OK);
  const int64_t rows = bppsa_view_count(&logits) / C;
  double *seed = zeros(rows * C);
  for (int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < C; ++k) {
      sum += exp(bppsa_view_get(&logits, i * C + k));
    }
    r.loss += (log(sum) - bppsa_view_get(&logits, i * C + p->labels[i])) / (double)rows;
    for (int64_t k = 0; k < C; ++k) {
      seed[i * C + k] = (exp(bppsa_view_get(&logits, i * C + k)) / sum - (k == p->labels[i])) / (double)rows;
    }
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

/* With a single hidden unit a weight gradient is one sum, which may cancel to nothing: there it is held against its terms. */
static void check_tensor(const char *name, const bppsa_recurrent_config *c, const void *got, const double *expected,
                         const double *magnitude, int64_t count) {
  const double r =
      residual_of_sum(c->dtype, got, expected, c->hidden == 1 ? magnitude : expected, count, sqrt((double)c->seq_len));
  if (!(r < 30)) {
    fail_msg("%s: residual %g (backward %d, algorithm %d, T=%lld B=%lld H=%lld L=%lld I=%lld, dtype %d, all %d)", name, r,
             (int)c->method.backward, (int)c->method.scan.algorithm, (long long)c->seq_len, (long long)c->batch,
             (long long)c->hidden, (long long)c->layers, (long long)c->input, (int)c->dtype, (int)c->loss_all);
  }
}

static void check_run(problem *p, const bppsa_recurrent_config *config, const bppsa_device *device) {
  run r = run_model(p, config, device);
  for (int64_t i = 0; i < p->count; ++i) {
    check_tensor(r.model->parameters[i].name, config, r.model->parameters[i].gradient.data, p->dw[i], p->magnitude[i],
                 p->sizes[i]);
  }
  bppsa_view dx, dh0;
  assert_int_equal(r.model->ops->input_gradients(r.model, &dx, &dh0), BPPSA_OK);
  check_tensor("input", config, dx.data, p->dx, p->dx, bppsa_view_count(&dx));
  check_tensor("h0", config, dh0.data, p->dh0, p->dh0, bppsa_view_count(&dh0));
  bppsa_nonfinite where;
  assert_false(r.model->ops->find_nonfinite(r.model, &where));
  free_run(&r);
}

#endif
