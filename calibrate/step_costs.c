#include "calibrate/step_costs.h"

#include <math.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/philox.h"
#include "core/measure/rounds.h"
#include "distributed/agree.h"
#include "distributed/batch/data_parallel.h"

enum { LEAST_STEPS = 3, MOST_STEPS = 101 };
enum { FORWARD, BACKWARD, EXCHANGE, UPDATE, PHASES };
enum { AVERAGE, LOW, HIGH, ENDS };  /* over the steps of a rank */
enum { INPUTS = 245, SEEDS = 246 }; /* streams of core/base/philox.h */

/* A model on one rank, with what its steps read. */
struct bppsa_step_probe {
  bppsa_comm *comm;
  bppsa_step_measuring how;
  bppsa_model *model, *part; /* part: owned, and the model; NULL: the model is another's */
  bppsa_optimizer *optimizer;
  bppsa_data_parallel *data; /* NULL: the gradients stay where they are */
  bppsa_layer_traffic traffic;
  bppsa_view x, seed;
  bppsa_comm *group; /* of the ranks whose parts make up the network */
  int64_t stretches; /* room of a step: of a pass that has n points where ranks meet, n + 1; of other phases 1 */
  int64_t count[PHASES];
  double *stretch; /* [MOST_STEPS][stretches] */
  double *average; /* [ENDS][stretches] */
  int64_t steps;   /* of a measurement; 0: not known yet */
};

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

/* Computes nothing: the gradients are there already. */
static bppsa_status no_passes(void *context, int64_t first, int64_t count, bppsa_data_parallel_sums *sums) {
  (void)context, (void)first, (void)count;
  *sums = (bppsa_data_parallel_sums){.loss = 0};
  return BPPSA_OK;
}

static bppsa_status make_pass(bppsa_step_probe *s, int phase) {
  bppsa_view logits;
  bppsa_data_parallel_sums sums;
  switch (phase) {
  case FORWARD:
    return s->model->ops->forward(s->model, &s->x, NULL, &logits);
  case BACKWARD:
    return s->model->ops->backward(s->model, &s->seed);
  case EXCHANGE:
    return s->data != NULL ? bppsa_data_parallel_compute(s->data, s->how.mini_batch, no_passes, NULL, &sums) : BPPSA_OK;
  default:
    bppsa_optimizer_step(s->optimizer, s->how.device);
    return BPPSA_OK;
  }
}

/* Cuts a phase with this start and end at the points where ranks would meet. */
static void cut_phase(bppsa_step_probe *s, int phase, double start, double end, double *stretch) {
  int64_t met = 0;
  const double *at = s->part != NULL && phase <= BACKWARD ? bppsa_layer_split_meetings(s->part, &met) : NULL;
  for (int64_t i = 0; i <= met; ++i) {
    stretch[i] = (i < met ? at[i] : end) - (i > 0 ? at[i - 1] : start);
  }
  s->count[phase] = met + 1;
}

/* Ranks do not wait for each other between phases: the rank that leaves a barrier first would compute for a while as if it had the
 * machine to itself, and ranks that share a core or a cache would look faster than they are. The sum of gradients is an exception:
 * ranks that come early wait in front of it, because waiting is no part of it. */
static bppsa_status make_step(bppsa_step_probe *s, double *stretch) {
  for (int phase = 0; phase < PHASES; ++phase) {
    BPPSA_TRY(phase == EXCHANGE && s->data != NULL ? bppsa_comm_barrier(s->comm) : BPPSA_OK);
    const double start = bppsa_now();
    BPPSA_TRY(make_pass(s, phase));
    cut_phase(s, phase, start, bppsa_now(), stretch);
    stretch += s->count[phase];
  }
  return BPPSA_OK;
}

/* Finds out from the second step how many fit into the budget. */
static bppsa_status count_steps(bppsa_step_probe *s) {
  BPPSA_TRY(make_step(s, s->stretch));
  double first = bppsa_now();
  BPPSA_TRY(make_step(s, s->stretch));
  first = fmax(bppsa_now() - first, 1e-9);
  BPPSA_TRY(bppsa_ranks_reduce(s->comm, BPPSA_COMM_MAX, BPPSA_F64, 1, &first));
  s->steps = (int64_t)fmin(MOST_STEPS, s->how.steps > 0 ? (double)s->how.steps : fmax(LEAST_STEPS, s->how.budget_s / first));
  return BPPSA_OK;
}

/* Ranks may have parts of different sizes; rank 0 has the largest one (core/base/cut.h). */
static bppsa_status share_traffic(const bppsa_step_probe *s, bppsa_layer_traffic *traffic) {
  const int64_t numbers = (int64_t)(sizeof *traffic / sizeof(int64_t));
  *traffic = s->part != NULL ? *bppsa_layer_split_traffic(s->part) : s->traffic;
  const bppsa_view view = bppsa_view_make(traffic, BPPSA_I64, 1, &numbers);
  return bppsa_comm_broadcast(s->comm, 0, &view);
}

/* Finds the average of a stretch and the ends of its spread. */
static void find_ends(const bppsa_step_probe *s, int64_t stretch, double ends[ENDS]) {
  double seconds[MOST_STEPS], sum = 0;
  for (int64_t i = 0; i < s->steps; ++i) {
    seconds[i] = s->stretch[i * s->stretches + stretch];
    sum += seconds[i];
  }
  const bppsa_spread spread = bppsa_spread_of(s->steps, seconds);
  ends[AVERAGE] = s->how.mean ? sum / (double)s->steps : spread.median;
  ends[LOW] = fmin(spread.low, ends[AVERAGE]);
  ends[HIGH] = fmax(spread.high, ends[AVERAGE]);
}

/* Adds up the time of each phase: ranks of a group wait for each other after every stretch, groups after every phase. Each rank
 * first averages over its own steps. Taking the slowest rank of every single step instead would be wrong: whenever another program
 * takes the processor from one rank, that time would count in full, and the more ranks and stretches there are, the more often that
 * happens. */
static bppsa_status add_stretches(bppsa_step_probe *s, double seconds[ENDS][PHASES]) {
  for (int64_t k = 0; k < s->stretches; ++k) {
    double ends[ENDS];
    find_ends(s, k, ends);
    for (int end = 0; end < ENDS; ++end) {
      s->average[end * s->stretches + k] = ends[end];
    }
  }
  BPPSA_TRY(bppsa_ranks_reduce(s->group, BPPSA_COMM_MAX, BPPSA_F64, ENDS * s->stretches, s->average));
  for (int end = 0; end < ENDS; ++end) {
    const double *at = s->average + end * s->stretches;
    for (int phase = 0; phase < PHASES; ++phase) {
      seconds[end][phase] = 0;
      for (int64_t k = 0; k < s->count[phase]; ++k) {
        seconds[end][phase] += *at++;
      }
    }
  }
  return bppsa_ranks_reduce(s->comm, BPPSA_COMM_MAX, BPPSA_F64, ENDS * PHASES, seconds);
}

static struct bppsa_step_ends ends_of(const bppsa_step_probe *s, const double seconds[PHASES]) {
  return (struct bppsa_step_ends){seconds[FORWARD], seconds[BACKWARD], seconds[UPDATE], s->data != NULL ? seconds[EXCHANGE] : 0};
}

bppsa_status bppsa_step_probe_measure(bppsa_step_probe *s, bppsa_step_costs *costs) {
  BPPSA_REQUIRE(s != NULL && costs != NULL);
  double seconds[ENDS][PHASES];
  BPPSA_TRY(s->steps == 0 ? count_steps(s) : BPPSA_OK);
  BPPSA_TRY(bppsa_comm_barrier(s->comm));
  BPPSA_TRY(make_step(s, s->stretch)); /* a warm-up */
  for (int64_t i = 0; i < s->steps; ++i) {
    BPPSA_TRY(make_step(s, s->stretch + i * s->stretches));
  }
  BPPSA_TRY(add_stretches(s, seconds));
  const struct bppsa_step_ends average = ends_of(s, seconds[AVERAGE]);
  *costs = (bppsa_step_costs){.forward_s = average.forward_s,
                              .backward_s = average.backward_s,
                              .update_s = average.update_s,
                              .exchange_s = average.exchange_s,
                              .low = ends_of(s, seconds[LOW]),
                              .high = ends_of(s, seconds[HIGH])};
  return share_traffic(s, &costs->traffic);
}

/* ---- models ---- */

static bppsa_status set_up(bppsa_step_probe *s, const bppsa_cnn_network *network) {
  const bppsa_step_measuring *how = &s->how;
  const int64_t x[] = {how->batch, network->in[0], network->in[1], network->in[2]}, seed[] = {how->batch, s->model->classes};
  BPPSA_TRY(make_noise(s->model->dtype, 4, x, how->seed, INPUTS, 1, &s->x));
  BPPSA_TRY(make_noise(s->model->dtype, 2, seed, how->seed, SEEDS, 1 / (double)how->batch, &s->seed));
  BPPSA_TRY(bppsa_optimizer_create(&how->optimizer, s->model, &s->optimizer));
  bppsa_optimizer_set_lr(s->optimizer, 0);
  s->stretches = 4 * network->count + PHASES + 8;
  s->average = bppsa_calloc(ENDS * s->stretches, sizeof *s->average);
  s->stretch = bppsa_calloc(s->stretches * MOST_STEPS, sizeof *s->stretch);
  return s->average == NULL || s->stretch == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

static int64_t gradient_bytes(const bppsa_model *model) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    bytes += (int64_t)bppsa_view_bytes(&model->parameters[i].gradient);
  }
  return bytes;
}

/* Prepares the sum of the whole model's gradients. */
static bppsa_status make_data_parallel(bppsa_step_probe *s) {
  bppsa_data_parallel_config config = bppsa_data_parallel_config_default();
  config.batch = s->how.mini_batch;
  return bppsa_data_parallel_create(s->comm, s->model, &config, &s->data);
}

static bppsa_status make_part(bppsa_step_probe *s, const bppsa_cnn_network *network, const bppsa_model *whole,
                              bppsa_layer_strategy strategy, int64_t ways) {
  const bppsa_layer_split_config config = {.strategy = strategy,
                                           .batch = s->how.batch,
                                           .dtype = whole->dtype,
                                           .alone = ways,
                                           .place = (int32_t)(bppsa_comm_rank(s->comm) % ways)};
  BPPSA_TRY(bppsa_layer_split_create(network, &config, s->how.device, &s->part));
  for (int64_t i = 0; i < s->part->parameter_count; ++i) {
    bppsa_layer_split_take(s->part, i, whole->parameters[i].value.data, s->part->parameters[i].value.data);
  }
  s->model = s->part;
  return BPPSA_OK;
}

bppsa_status bppsa_step_probe_create(bppsa_comm *comm, const bppsa_cnn_network *network, bppsa_model *whole,
                                     const bppsa_layer_strategy *strategy, int64_t ways, const bppsa_step_measuring *how,
                                     bppsa_step_probe **probe) {
  BPPSA_REQUIRE(comm != NULL && network != NULL && whole != NULL && ways >= 1 && how != NULL && how->batch >= 1 && probe != NULL);
  bppsa_step_probe *s = bppsa_calloc(1, sizeof *s);
  if (s == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *s = (bppsa_step_probe){.comm = comm, .how = *how, .model = whole, .traffic = {.weight_bytes = gradient_bytes(whole)}};
  s->how.mini_batch = how->mini_batch > 0 ? how->mini_batch : how->batch * bppsa_comm_size(comm);
  const int32_t rank = bppsa_comm_rank(comm);
  bppsa_status status = bppsa_comm_split(comm, rank / (int32_t)ways, rank % (int32_t)ways, &s->group);
  status = status == BPPSA_OK && strategy != NULL ? make_part(s, network, whole, *strategy, ways) : status;
  status = status == BPPSA_OK ? set_up(s, network) : status;
  status = status == BPPSA_OK && strategy == NULL ? make_data_parallel(s) : status;
  if (status != BPPSA_OK) {
    bppsa_step_probe_destroy(s);
    return status;
  }
  *probe = s;
  return BPPSA_OK;
}

void bppsa_step_probe_destroy(bppsa_step_probe *s) {
  if (s == NULL) {
    return;
  }
  bppsa_data_parallel_destroy(s->data);
  bppsa_optimizer_destroy(s->optimizer);
  bppsa_model_destroy(s->part);
  bppsa_free(s->x.data);
  bppsa_free(s->seed.data);
  bppsa_free(s->stretch);
  bppsa_free(s->average);
  bppsa_comm_destroy(s->group);
  bppsa_free(s);
}

bppsa_status bppsa_step_measure(bppsa_comm *comm, const bppsa_cnn_network *network, bppsa_model *whole,
                                const bppsa_layer_strategy *strategy, int64_t ways, const bppsa_step_measuring *how,
                                bppsa_step_costs *costs) {
  bppsa_step_probe *probe = NULL;
  BPPSA_TRY(bppsa_step_probe_create(comm, network, whole, strategy, ways, how, &probe));
  const bppsa_status status = bppsa_step_probe_measure(probe, costs);
  bppsa_step_probe_destroy(probe);
  return status;
}
