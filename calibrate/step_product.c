#include "calibrate/step_product.h"

#include <math.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/measure/residual.h"
#include "core/measure/rounds.h"

enum { MOST_PASSES = 101 };

/* A network whose gradients one method computes. */
typedef struct {
  bppsa_network_config config;
  bppsa_model *model;
  bppsa_spread seconds;
} contender;

static bppsa_status make_array(const bppsa_network_shape *shape, bppsa_dtype dtype, double value, bppsa_view *view) {
  *view = bppsa_view_make(NULL, dtype, shape->ndim, shape->shape);
  view->data = bppsa_calloc((int64_t)bppsa_view_bytes(view) + BPPSA_ALIGNMENT, 1);
  if (view->data == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < bppsa_view_count(view); ++i) {
    bppsa_view_set(view, i, i % 2 == 0 ? value : -value / 2);
  }
  return BPPSA_OK;
}

static bppsa_status time_passes(const bppsa_network *network, contender *c, const bppsa_view *x, const bppsa_view *seed,
                                int64_t passes) {
  double seconds[MOST_PASSES];
  BPPSA_TRY(network->kind->family->forward(c->model, x));
  for (int64_t i = -1; i < passes; ++i) { /* the first one warms up */
    const double start = bppsa_now();
    BPPSA_TRY(network->kind->family->backward(c->model, seed));
    seconds[i < 0 ? 0 : i] = bppsa_now() - start;
  }
  c->seconds = bppsa_spread_of(passes, seconds);
  return BPPSA_OK;
}

/* Makes the network, and runs it on numbers of its own. */
static bppsa_status run(const bppsa_network *network, const bppsa_device *device, uint64_t seed, int64_t passes, contender *c) {
  bppsa_network_shape shapes[2];
  bppsa_view x = {.data = NULL}, gradient = {.data = NULL};
  BPPSA_TRY(bppsa_network_create(network, &c->config, device, &c->model));
  BPPSA_TRY(bppsa_network_init(network, c->model, BPPSA_INIT_DEFAULT, seed));
  network->kind->family->batch(network, &c->config, &shapes[0], &shapes[1]);
  bppsa_status status = make_array(&shapes[0], c->config.dtype, 0.5, &x);
  status = status == BPPSA_OK ? make_array(&shapes[1], c->config.dtype, 1, &gradient) : status;
  status = status == BPPSA_OK ? time_passes(network, c, &x, &gradient, passes) : status;
  bppsa_free(x.data);
  bppsa_free(gradient.data);
  return status;
}

/* Compares a parameter's gradients. */
static bppsa_status compare(const char *scan, const bppsa_parameter *one, const bppsa_parameter *other, int64_t steps) {
  const int64_t count = bppsa_view_count(&one->gradient);
  double *reference = bppsa_calloc(count + 1, sizeof *reference);
  if (reference == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    reference[i] = bppsa_view_get(&one->gradient, i);
  }
  const double residual = bppsa_residual(&other->gradient, reference, steps);
  bppsa_free(reference);
  return residual < BPPSA_RESIDUAL_BOUND
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_NUMERIC, "%s: a %s scan is %g away from BP, expected less than %g", one->name, scan, residual,
                          (double)BPPSA_RESIDUAL_BOUND);
}

enum { BP, LINEAR, CHUNKED, CONTENDERS };

/* How much longer the passes of one method take than those of another, divided by `parts`, and how far that difference spreads. */
static double longer(const contender *than, const contender *c, double parts, bppsa_oracle_spread *spread) {
  const double low = c->seconds.low - than->seconds.high, high = c->seconds.high - than->seconds.low;
  *spread = (bppsa_oracle_spread){fmax(0, low) / parts, fmax(0, high) / parts};
  return fmax(0, c->seconds.median - than->seconds.median) / parts;
}

static bppsa_status measure(const bppsa_network *network, const bppsa_device *device, uint64_t seed, int64_t passes,
                            contender contenders[CONTENDERS], bppsa_step_cost *cost) {
  const contender *bp = &contenders[BP], *linear = &contenders[LINEAR], *chunked = &contenders[CHUNKED];
  int64_t products = 0;
  for (int i = 0; i < CONTENDERS; ++i) {
    BPPSA_TRY(run(network, device, seed, passes, &contenders[i]));
  }
  for (int64_t i = 0; i + network->kind->family->head_parameters < bp->model->parameter_count; ++i) {
    const bppsa_parameter *right = &bp->model->parameters[i];
    BPPSA_TRY(compare("linear", right, &linear->model->parameters[i], bp->config.steps.seq_len));
    BPPSA_TRY(compare("chunked", right, &chunked->model->parameters[i], bp->config.steps.seq_len));
  }
  for (int64_t l = 0; l < chunked->config.steps.layers; ++l) {
    const bppsa_scan_plan *plan = bppsa_recurrent_plan(chunked->model, l);
    products += plan != NULL ? bppsa_scan_plan_totals(plan)->mm : 0;
  }
  const double batch = (double)bp->config.batch, layers = (double)bp->config.steps.layers;
  cost->scan_s = longer(bp, linear, batch * layers, &cost->scan_spread);
  if (products > 0) {
    cost->product_s = longer(linear, chunked, (double)products * batch, &cost->product_spread);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_step_product_measure(const bppsa_network *network, const bppsa_network_config *config,
                                        const bppsa_device *device, uint64_t seed, int64_t passes, bppsa_step_cost *cost) {
  BPPSA_REQUIRE(network != NULL && config != NULL && device != NULL && passes >= 1 && passes <= MOST_PASSES && cost != NULL);
  static const bppsa_gradient_method methods[CONTENDERS] = {[BP] = {.backward = BPPSA_BACKWARD_BP},
                                                            [LINEAR] = {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_LINEAR, -1, 0}},
                                                            [CHUNKED] = {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_CHUNKED, -1, 0}}};
  if (network->kind->cell == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: no recurrent network, expected one whose steps have Jacobians", network->name);
  }
  contender contenders[CONTENDERS];
  bppsa_step_cost found = {0};
  for (int i = 0; i < CONTENDERS; ++i) {
    contenders[i] = (contender){.config = *config};
    contenders[i].config.method = methods[i];
  }
  const bppsa_status status = measure(network, device, seed, passes, contenders, &found);
  for (int i = 0; i < CONTENDERS; ++i) {
    bppsa_model_destroy(contenders[i].model);
  }
  BPPSA_TRY(status);
  *cost = found;
  return BPPSA_OK;
}
