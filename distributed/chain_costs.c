#include "distributed/chain_costs.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/philox.h"
#include "core/rounds.h"
#include "distributed/pipeline_internal.h"
#include "schedule/timed.h"

/* ---- noise ---- */

enum { SHIFTS = 64 /* micro-batches that differ: each begins at another number of one row of noise */ };
enum { INPUTS = 242, TARGETS = 243 /* streams of core/philox.h */ };

struct bppsa_chain_noise {
  bppsa_dtype dtype;
  int64_t in, out; /* numbers of a micro-batch */
  void *inputs;    /* size in + SHIFTS */
  double *targets; /* size out + SHIFTS */
  bppsa_pipeline_data data;
};

static int64_t shift_of(const bppsa_pipeline_micro *micro) {
  return (micro->update * micro->blocks + micro->block) % SHIFTS;
}

static bppsa_status check_size(const bppsa_view *view, int64_t numbers) {
  return bppsa_view_count(view) == numbers
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_SHAPE, "noise: a micro-batch of %" PRId64 " numbers, expected %" PRId64,
                          bppsa_view_count(view), numbers);
}

static bppsa_status fill_input(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *x) {
  const bppsa_chain_noise *n = context;
  const size_t real = bppsa_dtype_size(n->dtype);
  BPPSA_TRY(check_size(x, n->in));
  memcpy(x->data, (const char *)n->inputs + (size_t)shift_of(micro) * real, (size_t)n->in * real);
  return BPPSA_OK;
}

static bppsa_status find_loss(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *logits, const bppsa_view *seed,
                              double *loss) {
  const bppsa_chain_noise *n = context;
  const double *targets = n->targets + shift_of(micro), scale = 1 / (double)(n->out * micro->blocks);
  double sum = 0;
  BPPSA_TRY(check_size(logits, n->out));
  for (int64_t i = 0; i < n->out; ++i) {
    const double error = bppsa_view_get(logits, i) - targets[i];
    sum += error * error;
    bppsa_view_set(seed, i, error * scale);
  }
  *loss = sum * scale / 2;
  return BPPSA_OK;
}

static double noise_at(uint64_t seed, uint64_t stream, int64_t i) {
  return sqrt(12) * (bppsa_random_double(seed, stream, (uint64_t)i) - 0.5);
}

bppsa_status bppsa_chain_noise_create(const bppsa_chain *chain, int64_t samples, uint64_t seed, bppsa_chain_noise **noise) {
  BPPSA_REQUIRE(chain != NULL && samples >= 1 && noise != NULL);
  bppsa_chain_noise *n = bppsa_calloc(1, sizeof *n);
  if (n == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *n = (bppsa_chain_noise){.dtype = chain->dtype,
                           .in = samples * chain->layer[0].in,
                           .out = samples * chain->layer[chain->layers - 1].out,
                           .data = {.context = n, .input = fill_input, .loss = find_loss}};
  n->inputs = bppsa_calloc(n->in + SHIFTS, bppsa_dtype_size(n->dtype));
  n->targets = bppsa_calloc(n->out + SHIFTS, sizeof *n->targets);
  if (n->inputs == NULL || n->targets == NULL) {
    bppsa_chain_noise_destroy(n);
    return BPPSA_ERR_MEMORY;
  }
  const int64_t inputs = n->in + SHIFTS;
  const bppsa_view view = bppsa_view_make(n->inputs, n->dtype, 1, &inputs);
  for (int64_t i = 0; i < inputs; ++i) {
    bppsa_view_set(&view, i, noise_at(seed, INPUTS, i));
  }
  for (int64_t i = 0; i < n->out + SHIFTS; ++i) {
    n->targets[i] = noise_at(seed, TARGETS, i);
  }
  *noise = n;
  return BPPSA_OK;
}

void bppsa_chain_noise_destroy(bppsa_chain_noise *n) {
  if (n != NULL) {
    bppsa_free(n->inputs);
    bppsa_free(n->targets);
    bppsa_free(n);
  }
}

const bppsa_pipeline_data *bppsa_chain_noise_data(const bppsa_chain_noise *noise) {
  return &noise->data;
}

/* ---- costs ---- */

enum { LEAST_RUNS = 3, MOST_RUNS = 101 };

/* The costs that are measured, and the operations that give them: in a list with B, or in one with I and W. */
static const struct {
  bppsa_schedule_cost cost;
  bppsa_schedule_kind kind;
  bool split;
} timed[] = {{BPPSA_COST_FORWARD, BPPSA_KIND_F, false},
             {BPPSA_COST_BACKWARD, BPPSA_KIND_B, false},
             {BPPSA_COST_STEP, BPPSA_KIND_STEP, false},
             {BPPSA_COST_INPUT_GRAD, BPPSA_KIND_I, true},
             {BPPSA_COST_WEIGHT_GRAD, BPPSA_KIND_W, true}};
static const bppsa_schedule_cost counted[] = {BPPSA_COST_ACTIVATION, BPPSA_COST_MESSAGE, BPPSA_COST_GRADIENT};
enum { TIMED = sizeof timed / sizeof timed[0], COUNTED = sizeof counted / sizeof counted[0] };

void bppsa_chain_costs_free(bppsa_chain_costs *costs) {
  if (costs != NULL) {
    bppsa_free(costs->memory);
    *costs = (bppsa_chain_costs){.layers = 0};
  }
}

void bppsa_chain_costs_set(const bppsa_chain_costs *costs, bppsa_schedule_config *config) {
  config->layers = costs->layers;
  config->alpha = costs->alpha;
  config->beta = costs->beta;
  for (int cost = 0; cost < BPPSA_COST_COUNT; ++cost) {
    config->cost[cost] = costs->cost[cost];
    config->rows[cost] = costs->cost[cost] != NULL ? costs->layers : 0;
  }
}

static double *array_of(bppsa_chain_costs *costs, bppsa_schedule_cost cost) {
  return costs->memory + (costs->cost[cost] - costs->memory);
}

static bppsa_status make_costs(const bppsa_chain *chain, int64_t samples, bppsa_chain_costs *costs) {
  const int64_t layers = chain->layers;
  *costs = (bppsa_chain_costs){.layers = layers, .memory = bppsa_calloc((TIMED + COUNTED) * layers, sizeof *costs->memory)};
  if (costs->memory == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int i = 0; i < TIMED + COUNTED; ++i) {
    costs->cost[i < TIMED ? timed[i].cost : counted[i - TIMED]] = costs->memory + i * layers;
  }
  for (int64_t l = 0; l < layers; ++l) {
    const bppsa_chain_layer *layer = &chain->layer[l];
    const double values = (double)(samples * layer->out * (int64_t)bppsa_dtype_size(chain->dtype));
    array_of(costs, BPPSA_COST_ACTIVATION)[l] = values + (double)(samples * layer->kept);
    array_of(costs, BPPSA_COST_MESSAGE)[l] = values + PIPELINE_HEADER;
    for (int64_t i = 0; i < layer->parameters; ++i) {
      array_of(costs, BPPSA_COST_GRADIENT)[l] += (double)bppsa_view_bytes(&chain->parameters[layer->first_parameter + i].value);
    }
  }
  return BPPSA_OK;
}

/* A list for one worker, with a stage for each layer. */
static bppsa_status make_list(int64_t layers, bool split, bppsa_schedule **list) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  config.stages = config.micro_batches = 1;
  config.layers = config.chunks = layers;
  config.split = split ? BPPSA_SPLIT_WI : BPPSA_SPLIT_NONE;
  config.skip_first_input_grad = true;
  return bppsa_schedule_create("interleaved", &config, list);
}

/* The seconds of one list's operations, [TIMED][layers][MOST_RUNS]. */
typedef struct {
  bppsa_pipeline *pipeline;
  const bppsa_schedule *list;
  const bppsa_chain_measuring *how;
  int64_t layers, runs;
  bool split;
  double *seconds;
} watch;

static double *seconds_of(const watch *w, int64_t i, int64_t layer) {
  return &w->seconds[(i * w->layers + layer) * MOST_RUNS];
}

/* Takes down the latest run. */
static void take_down(watch *w) {
  const bppsa_pipeline_event *events = bppsa_pipeline_events(w->pipeline);
  for (int64_t id = 0; id < w->list->count; ++id) {
    for (int i = 0; i < TIMED; ++i) {
      if (timed[i].split == w->split && (int)timed[i].kind == w->list->ops[id].kind) {
        seconds_of(w, i, w->list->ops[id].layer)[w->runs] = events[id].end - events[id].start;
      }
    }
  }
  w->runs++;
}

static bppsa_status watch_runs(watch *w) {
  const int64_t asked = w->how->repeats, most = asked > 0 && asked < MOST_RUNS ? asked : MOST_RUNS;
  double *losses = bppsa_calloc(bppsa_pipeline_updates(w->pipeline) + 1, sizeof *losses), start = 0;
  bppsa_status status = losses == NULL ? BPPSA_ERR_MEMORY : bppsa_pipeline_run(w->pipeline, w->how->data, losses);
  start = bppsa_now();
  while (status == BPPSA_OK && w->runs < most && (asked > 0 || w->runs < LEAST_RUNS || bppsa_now() - start < w->how->budget_s)) {
    status = bppsa_pipeline_run(w->pipeline, w->how->data, losses);
    take_down(w);
  }
  bppsa_free(losses);
  return status;
}

/* Runs one of the two lists on this rank alone. */
static bppsa_status measure_list(bppsa_comm *self, bppsa_chain *chain, const bppsa_chain_measuring *how, bool split,
                                 bppsa_chain_costs *costs) {
  bppsa_schedule *list = NULL;
  BPPSA_TRY(make_list(chain->layers, split, &list));
  const bppsa_pipeline_config config = {.schedule = list, .samples = how->samples, .optimizer = how->optimizer};
  watch w = {.list = list, .how = how, .layers = chain->layers, .split = split};
  w.seconds = bppsa_calloc(TIMED * chain->layers * MOST_RUNS, sizeof *w.seconds);
  bppsa_status status = w.seconds == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  status = status == BPPSA_OK ? bppsa_pipeline_create(self, chain, &config, how->values, &w.pipeline) : status;
  status = status == BPPSA_OK ? watch_runs(&w) : status;
  for (int i = 0; status == BPPSA_OK && i < TIMED; ++i) {
    for (int64_t l = 0; timed[i].split == split && l < chain->layers; ++l) {
      array_of(costs, timed[i].cost)[l] = bppsa_timing_of(w.runs, seconds_of(&w, i, l)).median_s;
    }
  }
  bppsa_pipeline_destroy(w.pipeline);
  bppsa_schedule_destroy(list);
  bppsa_free(w.seconds);
  return status;
}

static bppsa_status measure_lists(bppsa_comm *self, bppsa_chain *chain, const bppsa_chain_measuring *how,
                                  bppsa_chain_costs *costs) {
  BPPSA_TRY(measure_list(self, chain, how, false, costs));
  return measure_list(self, chain, how, true, costs);
}

/* Measures on this rank, on data of its own where it got none. */
static bppsa_status measure_here(bppsa_comm *self, bppsa_chain *chain, const bppsa_chain_measuring *how,
                                 bppsa_chain_costs *costs) {
  bppsa_chain_measuring with_data = *how;
  bppsa_chain_noise *noise = NULL;
  bppsa_status status = how->data == NULL ? bppsa_chain_noise_create(chain, how->samples, 1, &noise) : BPPSA_OK;
  with_data.data = noise != NULL ? &noise->data : how->data;
  status = status == BPPSA_OK ? measure_lists(self, chain, &with_data, costs) : status;
  bppsa_chain_noise_destroy(noise);
  return status;
}

static bppsa_status measure(bppsa_comm *comm, bppsa_chain *chain, const bppsa_chain_measuring *how, bppsa_chain_costs *costs) {
  const int64_t count = TIMED * chain->layers;
  const bppsa_view view = bppsa_view_make(costs->memory, BPPSA_F64, 1, &count);
  bppsa_comm *self = NULL;
  bppsa_status status = bppsa_comm_split(comm, bppsa_comm_rank(comm), 0, &self);
  status = status == BPPSA_OK ? bppsa_comm_barrier(comm) : status;
  if (status == BPPSA_OK && bppsa_comm_rank(comm) < how->at_once) {
    status = measure_here(self, chain, how, costs);
  }
  bppsa_comm_destroy(self);
  return status == BPPSA_OK ? bppsa_comm_broadcast(comm, 0, &view) : status;
}

bppsa_status bppsa_chain_measure(bppsa_comm *comm, bppsa_chain *chain, const bppsa_chain_measuring *how,
                                 bppsa_chain_costs *costs) {
  BPPSA_REQUIRE(comm != NULL && chain != NULL && how != NULL && how->values != NULL && how->at_once >= 1 && how->repeats >= 0 &&
                costs != NULL);
  bppsa_chain_costs made;
  BPPSA_TRY(make_costs(chain, how->samples, &made));
  const bppsa_status status = measure(comm, chain, how, &made);
  if (status != BPPSA_OK) {
    bppsa_chain_costs_free(&made);
    return status;
  }
  *costs = made;
  return BPPSA_OK;
}

/* ---- the link ---- */

enum { SHORT_BYTES = PIPELINE_HEADER, LONG_BYTES = 1 << 20, SHORT_ROUNDS = 101, LONG_ROUNDS = 9 };

/* Waits as the executor does. */
static bppsa_status wait_for(const bppsa_comm *comm, bppsa_comm_request **request) {
  const double start = bppsa_now();
  bool done = false;
  for (;;) {
    BPPSA_TRY(bppsa_comm_test(request, &done));
    if (done) {
      return BPPSA_OK;
    }
    if (bppsa_now() - start > bppsa_comm_get_timeout(comm)) {
      const bppsa_status status = bppsa_comm_expired(*request);
      bppsa_comm_cancel(1, request);
      return status;
    }
    pipeline_nap();
  }
}

bppsa_status bppsa_chain_pass_on(bppsa_comm *comm, bool sends, const bppsa_view *view) {
  BPPSA_REQUIRE(comm != NULL && view != NULL);
  const int32_t other = 1 - bppsa_comm_rank(comm);
  bppsa_comm_request *request = NULL;
  BPPSA_TRY(sends ? bppsa_comm_isend(comm, other, 0, view, &request) : bppsa_comm_irecv(comm, other, 0, view, &request));
  return wait_for(comm, &request);
}

/* There and back: rank 0 begins. */
static bppsa_status ping(bppsa_comm *comm, const bppsa_view *view) {
  const bool first = bppsa_comm_rank(comm) == 0;
  BPPSA_TRY(bppsa_chain_pass_on(comm, first, view));
  return bppsa_chain_pass_on(comm, !first, view);
}

/* The median seconds of one way. */
static bppsa_status time_messages(bppsa_comm *comm, int64_t bytes, int64_t rounds, char *buffer, double *median) {
  double seconds[SHORT_ROUNDS];
  const bppsa_view view = bppsa_view_make(buffer, BPPSA_U8, 1, &bytes);
  for (int64_t i = -1; i < rounds; ++i) { /* the first one warms up */
    const double start = bppsa_now();
    BPPSA_TRY(bppsa_comm_rank(comm) < 2 ? ping(comm, &view) : BPPSA_OK);
    seconds[i < 0 ? 0 : i] = (bppsa_now() - start) / 2;
  }
  *median = bppsa_timing_of(rounds, seconds).median_s;
  return BPPSA_OK;
}

bppsa_status bppsa_chain_measure_link(bppsa_comm *comm, double *alpha, double *beta) {
  BPPSA_REQUIRE(comm != NULL && alpha != NULL && beta != NULL);
  double found[2] = {0, 0};
  const int64_t two = 2;
  const bppsa_view view = bppsa_view_make(found, BPPSA_F64, 1, &two);
  if (bppsa_comm_size(comm) > 1) {
    char *buffer = bppsa_calloc(LONG_BYTES, 1);
    bppsa_status status = buffer == NULL ? BPPSA_ERR_MEMORY : bppsa_comm_barrier(comm);
    status = status == BPPSA_OK ? time_messages(comm, SHORT_BYTES, SHORT_ROUNDS, buffer, &found[0]) : status;
    status = status == BPPSA_OK ? time_messages(comm, LONG_BYTES, LONG_ROUNDS, buffer, &found[1]) : status;
    bppsa_free(buffer);
    BPPSA_TRY(status);
    BPPSA_TRY(bppsa_comm_broadcast(comm, 0, &view));
  }
  *alpha = found[0];
  *beta = fmax(0, found[1] - found[0]) / (LONG_BYTES - SHORT_BYTES);
  return BPPSA_OK;
}

/* ---- sums over replicas ---- */

enum { SYNC_ROUNDS = 31 };

/* The sum of one layer's gradients, and what it reads and writes. */
typedef struct {
  bppsa_comm *comm; /* of the ranks that add up */
  bppsa_ordered_sum *sum;
  bppsa_view part, result;
} layer_sum;

/* Goes on with the sum as the executor does. */
static bppsa_status add_up(const layer_sum *s) {
  const double start = bppsa_now();
  bppsa_comm_request *request = NULL;
  for (bool done = false; !done;) {
    BPPSA_TRY(bppsa_ordered_sum_reduce(s->sum, false, &done));
    if (!done && bppsa_now() - start > bppsa_comm_get_timeout(s->comm)) {
      return bppsa_comm_expired(bppsa_ordered_sum_pending(s->sum));
    }
    if (!done) {
      pipeline_nap();
    }
  }
  BPPSA_TRY(bppsa_ordered_sum_ibroadcast(s->sum, &s->result, &request));
  return wait_for(s->comm, &request);
}

/* The median seconds of this rank's part. */
static bppsa_status time_sums(const layer_sum *s, double *median) {
  double seconds[SYNC_ROUNDS];
  for (int64_t i = -1; i < SYNC_ROUNDS; ++i) { /* the first one warms up */
    BPPSA_TRY(bppsa_ordered_sum_add(s->sum, bppsa_comm_rank(s->comm), &s->part));
    BPPSA_TRY(bppsa_comm_barrier(s->comm));
    const double start = bppsa_now();
    BPPSA_TRY(add_up(s));
    seconds[i < 0 ? 0 : i] = bppsa_now() - start;
  }
  *median = bppsa_timing_of(SYNC_ROUNDS, seconds).median_s;
  return BPPSA_OK;
}

/* Reals of a layer's parameters. */
static int64_t parameters_of(const bppsa_chain *chain, int64_t layer) {
  const bppsa_chain_layer *about = &chain->layer[layer];
  int64_t count = 0;
  for (int64_t i = 0; i < about->parameters; ++i) {
    count += bppsa_view_count(&chain->parameters[about->first_parameter + i].value);
  }
  return count;
}

static bppsa_status time_layer(bppsa_comm *comm, const bppsa_chain *chain, int64_t layer, double *median) {
  const int64_t count = parameters_of(chain, layer);
  const size_t real = bppsa_dtype_size(chain->dtype);
  if (count == 0) {
    return BPPSA_OK;
  }
  layer_sum s = {.comm = comm};
  char *memory = bppsa_calloc(2 * count, real);
  bppsa_status status = memory == NULL
                            ? BPPSA_ERR_MEMORY
                            : bppsa_ordered_sum_create(comm, bppsa_comm_size(comm), NULL, chain->dtype, count, 0, &s.sum);
  s.part = bppsa_view_make(memory, chain->dtype, 1, &count);
  s.result = bppsa_view_make(status == BPPSA_OK ? memory + (size_t)count * real : NULL, chain->dtype, 1, &count);
  status = status == BPPSA_OK ? time_sums(&s, median) : status;
  bppsa_ordered_sum_destroy(s.sum);
  bppsa_free(memory);
  return status;
}

bppsa_status bppsa_chain_measure_sync(bppsa_comm *comm, const bppsa_chain *chain, int64_t ranks, double *seconds) {
  BPPSA_REQUIRE(comm != NULL && chain != NULL && ranks >= 1 && ranks <= bppsa_comm_size(comm) && seconds != NULL);
  const bool member = bppsa_comm_rank(comm) < ranks;
  const bppsa_view view = bppsa_view_make(seconds, BPPSA_F64, 1, &chain->layers);
  bppsa_comm *group = NULL;
  bppsa_status status = bppsa_comm_split(comm, member ? 0 : -1, 0, &group);
  memset(seconds, 0, (size_t)chain->layers * sizeof *seconds);
  for (int64_t l = 0; status == BPPSA_OK && member && ranks > 1 && l < chain->layers; ++l) {
    status = time_layer(group, chain, l, &seconds[l]);
  }
  bppsa_comm_destroy(group);
  return status == BPPSA_OK ? bppsa_comm_allreduce(comm, BPPSA_COMM_MAX, &view) : status;
}

/* ---- all of it ---- */

/* sums: size L, or NULL. */
static bppsa_status write_file(const bppsa_chain_costs *costs, const double *sums, char **text) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_chain_costs_set(costs, &config);
  config.cost[BPPSA_COST_SYNC] = sums;
  config.rows[BPPSA_COST_SYNC] = sums != NULL ? costs->layers : 0;
  bppsa_text written = {0};
  const bppsa_status status = bppsa_schedule_costs_write(&config, &written);
  if (status != BPPSA_OK) {
    bppsa_text_free(&written);
    return status;
  }
  *text = written.text;
  return BPPSA_OK;
}

bppsa_status bppsa_chain_measure_file(bppsa_comm *comm, bppsa_chain *chain, const bppsa_chain_measuring *how, char **text) {
  BPPSA_REQUIRE(comm != NULL && chain != NULL && text != NULL);
  const int64_t ranks = bppsa_comm_size(comm);
  char *made = NULL;
  double *sums = bppsa_calloc(chain->layers, sizeof *sums);
  bppsa_chain_costs costs = {.layers = 0};
  bppsa_status status = sums != NULL ? bppsa_chain_measure(comm, chain, how, &costs) : BPPSA_ERR_MEMORY;
  status = status == BPPSA_OK ? bppsa_chain_measure_link(comm, &costs.alpha, &costs.beta) : status;
  status = status == BPPSA_OK ? bppsa_chain_measure_sync(comm, chain, ranks, sums) : status;
  status = status == BPPSA_OK && bppsa_comm_rank(comm) == 0 ? write_file(&costs, ranks == 2 ? sums : NULL, &made) : status;
  bppsa_chain_costs_free(&costs);
  bppsa_free(sums);
  if (status == BPPSA_OK) {
    *text = made;
  }
  return status;
}
