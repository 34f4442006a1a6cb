#include "distributed/step_costs.h"

#include <math.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/philox.h"
#include "core/rounds.h"
#include "distributed/data_parallel.h"

enum { LEAST_STEPS = 3, MOST_STEPS = 101 };
enum { FORWARD, BACKWARD, EXCHANGE, UPDATE, PHASES };
enum { INPUTS = 245, SEEDS = 246 }; /* streams of core/philox.h */

/* A model on one rank, with what its steps read. */
typedef struct {
  bppsa_comm *comm;
  bppsa_model *model;
  bppsa_optimizer *optimizer;
  bppsa_data_parallel *data; /* NULL: the gradients stay where they are */
  int64_t batch;             /* of all ranks */
  const bppsa_device *device;
  bppsa_view x, seed;
  double *seconds; /* [PHASES][MOST_STEPS] */
  int64_t steps;
} stand;

static bppsa_status make_noise(bppsa_dtype dtype, int32_t ndim, const int64_t *shape, uint64_t seed, uint64_t stream,
                               double scale, bppsa_view *view) {
  int64_t count = 0;
  size_t bytes = 0;
  BPPSA_TRY(bppsa_shape_bytes(dtype, ndim, shape, &count, &bytes));
  void *data = bppsa_alloc(bytes + BPPSA_ALIGNMENT); /* kernels may read a cache line behind an array */
  if (data == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *view = bppsa_view_make(data, dtype, ndim, shape);
  for (int64_t i = 0; i < count; ++i) {
    bppsa_view_set(view, i, scale * sqrt(12) * (bppsa_random_double(seed, stream, (uint64_t)i) - 0.5));
  }
  return BPPSA_OK;
}

/* ---- steps ---- */

/* A block whose gradients are there already. */
static bppsa_status no_passes(void *context, int64_t first, int64_t count, bppsa_data_parallel_sums *sums) {
  (void)context, (void)first, (void)count;
  *sums = (bppsa_data_parallel_sums){.loss = 0};
  return BPPSA_OK;
}

static bppsa_status make_pass(stand *s, int phase) {
  bppsa_view logits;
  bppsa_data_parallel_sums sums;
  switch (phase) {
  case FORWARD:
    return s->model->ops->forward(s->model, &s->x, NULL, &logits);
  case BACKWARD:
    return s->model->ops->backward(s->model, &s->seed);
  case EXCHANGE:
    return s->data != NULL ? bppsa_data_parallel_compute(s->data, s->batch, no_passes, NULL, &sums) : BPPSA_OK;
  default:
    bppsa_optimizer_step(s->optimizer, s->device);
    return BPPSA_OK;
  }
}

/* All ranks begin each pass together, as collectives make them do. */
static bppsa_status make_step(stand *s, double seconds[PHASES]) {
  for (int phase = 0; phase < PHASES; ++phase) {
    BPPSA_TRY(bppsa_comm_barrier(s->comm));
    const double start = bppsa_now();
    BPPSA_TRY(make_pass(s, phase));
    seconds[phase] = bppsa_now() - start;
  }
  return BPPSA_OK;
}

/* The first step tells how many fit. Of each step and pass the slowest rank counts. */
static bppsa_status make_steps(stand *s, double budget_s, bppsa_step_costs *costs) {
  const int64_t one = 1, all = PHASES * MOST_STEPS;
  double first = bppsa_now(), step[PHASES];
  const bppsa_view longest = bppsa_view_make(&first, BPPSA_F64, 1, &one), view = bppsa_view_make(s->seconds, BPPSA_F64, 1, &all);
  BPPSA_TRY(make_step(s, step));
  BPPSA_TRY(make_step(s, step));
  first = fmax((bppsa_now() - first) / 2, 1e-9);
  BPPSA_TRY(bppsa_comm_allreduce(s->comm, BPPSA_COMM_MAX, &longest));
  s->steps = (int64_t)fmin(MOST_STEPS, fmax(LEAST_STEPS, budget_s / first));
  for (int64_t i = 0; i < s->steps; ++i) {
    BPPSA_TRY(make_step(s, step));
    for (int phase = 0; phase < PHASES; ++phase) {
      s->seconds[phase * MOST_STEPS + i] = step[phase];
    }
  }
  BPPSA_TRY(bppsa_comm_allreduce(s->comm, BPPSA_COMM_MAX, &view));
  double *const medians[PHASES] = {&costs->forward_s, &costs->backward_s, &costs->exchange_s, &costs->update_s};
  for (int phase = 0; phase < PHASES; ++phase) {
    *medians[phase] =
        s->data != NULL || phase != EXCHANGE ? bppsa_timing_of(s->steps, s->seconds + phase * MOST_STEPS).median_s : 0;
  }
  return BPPSA_OK;
}

/* ---- models ---- */

static bppsa_status set_up(stand *s, const bppsa_cnn_network *network, const bppsa_step_measuring *how) {
  const int64_t x[] = {how->batch, network->in[0], network->in[1], network->in[2]}, seed[] = {how->batch, s->model->classes};
  BPPSA_TRY(make_noise(s->model->dtype, 4, x, how->seed, INPUTS, 1, &s->x));
  BPPSA_TRY(make_noise(s->model->dtype, 2, seed, how->seed, SEEDS, 1 / (double)how->batch, &s->seed));
  BPPSA_TRY(bppsa_optimizer_create(&how->optimizer, s->model, &s->optimizer));
  bppsa_optimizer_set_lr(s->optimizer, 0);
  s->seconds = bppsa_calloc(PHASES * MOST_STEPS, sizeof *s->seconds);
  return s->seconds == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

static int64_t gradient_bytes(const bppsa_model *model) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    bytes += (int64_t)bppsa_view_bytes(&model->parameters[i].gradient);
  }
  return bytes;
}

static bppsa_status make_data_parallel(stand *s) {
  bppsa_data_parallel_config config = bppsa_data_parallel_config_default();
  config.batch = s->batch;
  return bppsa_data_parallel_create(s->comm, s->model, &config, &s->data);
}

/* `exchange`: adds up the gradients too. */
static bppsa_status measure(bppsa_comm *comm, const bppsa_cnn_network *network, bppsa_model *model,
                            const bppsa_step_measuring *how, bool exchange, bppsa_step_costs *costs) {
  stand s = {.comm = comm, .model = model, .batch = how->batch * bppsa_comm_size(comm), .device = how->device};
  bppsa_step_costs made = {.traffic = {.weight_bytes = gradient_bytes(model)}};
  bppsa_status status = set_up(&s, network, how);
  status = status == BPPSA_OK && exchange ? make_data_parallel(&s) : status;
  status = status == BPPSA_OK ? make_steps(&s, how->budget_s, &made) : status;
  bppsa_data_parallel_destroy(s.data);
  bppsa_optimizer_destroy(s.optimizer);
  bppsa_free(s.x.data);
  bppsa_free(s.seed.data);
  bppsa_free(s.seconds);
  BPPSA_TRY(status);
  *costs = made;
  return BPPSA_OK;
}

bppsa_status bppsa_step_measure(bppsa_comm *comm, const bppsa_cnn_network *network, bppsa_model *model,
                                const bppsa_step_measuring *how, bppsa_step_costs *costs) {
  BPPSA_REQUIRE(comm != NULL && network != NULL && model != NULL && how != NULL && how->batch >= 1 && costs != NULL);
  return measure(comm, network, model, how, true, costs);
}

/* Ranks may have parts of different sizes; rank 0 has the largest one (core/cut.h). */
static bppsa_status share_traffic(bppsa_comm *comm, const bppsa_model *part, bppsa_layer_traffic *traffic) {
  const int64_t numbers = (int64_t)(sizeof *traffic / sizeof(int64_t));
  *traffic = *bppsa_layer_split_traffic(part);
  const bppsa_view view = bppsa_view_make(traffic, BPPSA_I64, 1, &numbers);
  return bppsa_comm_broadcast(comm, 0, &view);
}

bppsa_status bppsa_step_measure_part(bppsa_comm *comm, const bppsa_cnn_network *network, const bppsa_model *whole,
                                     bppsa_layer_strategy strategy, int64_t ways, const bppsa_step_measuring *how,
                                     bppsa_step_costs *costs) {
  BPPSA_REQUIRE(comm != NULL && network != NULL && whole != NULL && ways >= 1 && how != NULL && how->batch >= 1 && costs != NULL);
  const bppsa_layer_split_config config = {.strategy = strategy,
                                           .batch = how->batch,
                                           .dtype = whole->dtype,
                                           .alone = ways,
                                           .place = (int32_t)(bppsa_comm_rank(comm) % ways)};
  bppsa_model *part = NULL;
  bppsa_step_costs made;
  BPPSA_TRY(bppsa_layer_split_create(network, &config, how->device, &part));
  for (int64_t i = 0; i < part->parameter_count; ++i) {
    bppsa_layer_split_take(part, i, whole->parameters[i].value.data, part->parameters[i].value.data);
  }
  bppsa_status status = measure(comm, network, part, how, false, &made);
  status = status == BPPSA_OK ? share_traffic(comm, part, &made.traffic) : status;
  bppsa_model_destroy(part);
  BPPSA_TRY(status);
  *costs = made;
  return BPPSA_OK;
}
