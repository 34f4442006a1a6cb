/* A strategy of `bench oracle` on one rank: what is measured of its parts, what the oracle makes of that, and its training. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/cases/bench_oracle.h"
#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "core/measure/residual.h"

static const bppsa_oracle_runnable runnables[] = {
    {.strategy = "serial", .split = ""},
    {.strategy = "data", .split = "batch"},
    {.strategy = "gpipe", .split = "gpipe", .least = 2},
    {.strategy = "spatial", .split = "spatial", .least = 2},
    {.strategy = "filter", .split = "filter", .least = 2},
    {.strategy = "channel", .split = "channel", .least = 2},
    {.strategy = "data+filter", .split = "data+filter", .least = 2, .halves = true},
    {.strategy = "data+spatial", .split = "data+spatial", .least = 2, .halves = true}};

const bppsa_oracle_runnable *bppsa_oracle_runnables(int64_t *count) {
  *count = sizeof runnables / sizeof runnables[0];
  return runnables;
}

static bool alone(const bppsa_oracle_runnable *what) {
  return what->split[0] == '\0';
}

static bool first(const bppsa_oracle_entry *e) {
  return bppsa_comm_rank(e->ground->world) == 0;
}

/* ---- images ---- */

enum { IMAGES = 247 }; /* a stream of core/base/philox.h */
/* So large a learning rate that the weights after a step are -VERIFYING_RATE times the gradients; those before it vanish. */
static const double VERIFYING_RATE = 1e6;

/* One batch of noise; the labels run through the classes again and again. */
typedef struct {
  bppsa_dataset base;
  float values[];
} noise_images;

static void fill(const bppsa_dataset *dataset, int32_t threads, int64_t count, const int64_t *indices, const bppsa_view *x,
                 int64_t *labels) {
  const noise_images *n = (const noise_images *)dataset;
  (void)threads;
  for (int64_t i = 0; i < count; ++i) {
    const float *from = n->values + indices[i] * dataset->input;
    if (x != NULL && x->dtype == BPPSA_F32) {
      memcpy((float *)x->data + i * dataset->input, from, (size_t)dataset->input * sizeof *from);
    }
    for (int64_t k = 0; x != NULL && x->dtype == BPPSA_F64 && k < dataset->input; ++k) {
      ((double *)x->data)[i * dataset->input + k] = (double)from[k];
    }
    if (labels != NULL) {
      labels[i] = indices[i] % dataset->classes;
    }
  }
}

static void destroy(bppsa_dataset *dataset) {
  bppsa_free(dataset);
}

static bppsa_status make_images(const bppsa_network *network, int64_t samples, uint64_t seed, bppsa_dataset **images) {
  static const bppsa_dataset_ops ops = {.name = "noise", .fill = fill, .destroy = destroy};
  const int64_t *in = network->layers.in, input = in[0] * in[1] * in[2];
  const bppsa_network_config config = bppsa_network_config_default(network);
  noise_images *n = bppsa_alloc(sizeof *n + (size_t)(samples * input) * sizeof(float));
  if (n == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  n->base = (bppsa_dataset){
      .ops = &ops, .samples = samples, .seq_len = 1, .input = input, .image = {in[0], in[1], in[2]}, .classes = config.classes};
  for (int64_t i = 0; i < samples * input; ++i) {
    n->values[i] = (float)(sqrt(12) * (bppsa_random_double(seed, IMAGES, (uint64_t)i) - 0.5));
  }
  *images = &n->base;
  return BPPSA_OK;
}

/* ---- training ---- */

/* Adds up the times of all iterations but the first. */
static bppsa_status take_step(void *context, const bppsa_train_record *record) {
  bppsa_oracle_entry *e = context;
  const double *split = e->run.layer_train != NULL ? bppsa_layer_split_seconds(bppsa_layer_train_part(e->run.layer_train)) : NULL;
  const double passes[BPPSA_ORACLE_PASSES] = {record->forward_s, record->backward_s, record->update_s};
  for (int i = 0; i < BPPSA_ORACLE_PASSES; ++i) {
    e->part_s[i] += record->step > 1 ? passes[i] : 0;
  }
  for (int i = 0; split != NULL && i < BPPSA_LAYER_PHASES; ++i) {
    e->began_s[i] = record->step > 1 ? e->began_s[i] : split[i];
    e->part_s[BPPSA_ORACLE_PASSES + i] = split[i] - e->began_s[i];
  }
  e->iterations += record->step > 1 ? 1 : 0;
  return BPPSA_OK;
}

static bppsa_status train(bppsa_oracle_entry *e, int64_t iterations, double rate) {
  const bppsa_train_callbacks callbacks = {.context = e, .on_step = take_step};
  bppsa_train_run *run = &e->run;
  memset(e->part_s, 0, sizeof e->part_s);
  e->iterations = 0;
  run->train.iterations = iterations;
  run->train.optimizer.lr = rate;
  return bppsa_train(&run->train, run->model, run->dataset, run->device, &callbacks, &run->result);
}

/* Computes the weights after one step with the verifying rate, on one device in float64. */
static bppsa_status make_reference(bppsa_oracle_ground *g) {
  const struct bppsa_bench_settings *asked = g->asked;
  bppsa_network_config config = bppsa_network_config_default(asked->network);
  bppsa_train_config train = bppsa_train_config_default();
  bppsa_train_result result;
  config.batch = train.batch = asked->batch;
  config.dtype = BPPSA_F64;
  config.method.backward = BPPSA_BACKWARD_BP;
  train.optimizer = bppsa_network_train_config(asked->network->kind).optimizer;
  train.optimizer.lr = VERIFYING_RATE;
  train.iterations = 1;
  BPPSA_TRY(bppsa_network_create(asked->network, &config, g->device, &g->reference));
  BPPSA_TRY(bppsa_network_init(asked->network, g->reference, BPPSA_INIT_DEFAULT, asked->request.seed));
  return bppsa_train(&train, g->reference, g->images, g->device, NULL, &result);
}

bppsa_status bppsa_oracle_ground_open(const struct bppsa_bench_settings *asked, const bppsa_device *device,
                                      bppsa_oracle_ground *ground) {
  *ground = (bppsa_oracle_ground){.asked = asked, .device = device, .world = asked->comm};
  ground->at_once = bppsa_ranks_at_once(asked->comm, device);
  ground->crowded = ground->at_once < bppsa_comm_size(asked->comm);
  BPPSA_TRY(make_images(asked->network, asked->batch, asked->request.seed, &ground->images));
  return bppsa_comm_rank(asked->comm) == 0 ? make_reference(ground) : BPPSA_OK;
}

void bppsa_oracle_ground_close(bppsa_oracle_ground *g) {
  bppsa_model_destroy(g->reference);
  bppsa_dataset_destroy(g->images);
  *g = (bppsa_oracle_ground){0};
}

static bppsa_status init_weights(bppsa_oracle_entry *e) {
  bppsa_train_run *run = &e->run;
  return bppsa_rank_network_init(&run->network, &run->config, run->device, &run->on, BPPSA_INIT_DEFAULT, run->train.seed,
                                 run->model);
}

bppsa_status bppsa_oracle_entry_verify(bppsa_oracle_entry *e, double *residual) {
  const bppsa_model *model = e->run.model, *right = e->ground->reference;
  double worst = 0;
  BPPSA_TRY(init_weights(e));
  BPPSA_TRY(train(e, 1, VERIFYING_RATE));
  for (int64_t i = 0; first(e) && i < model->parameter_count; ++i) {
    const bppsa_view *found = &model->parameters[i].value;
    worst = bppsa_residual_worse(worst, bppsa_residual(found, right->parameters[i].value.data, e->run.network.layers.count));
  }
  *residual = worst;
  return init_weights(e);
}

/* Sets the options of train for this split. */
static bppsa_status split_run(bppsa_oracle_entry *e) {
  const struct bppsa_bench_settings *asked = e->ground->asked;
  bppsa_train_run *run = &e->run;
  bppsa_rank_network *on = &run->on;
  if (alone(e->what)) {
    return BPPSA_OK;
  }
  on->comm = e->ground->world;
  bppsa_rank_layers_find(e->what->split, &run->layers);
  if (run->layers.split != NULL) {
    run->layers.config.group = e->what->halves ? e->ways : 0;
    return bppsa_train_run_make_layers(run);
  }
  if (e->cuts > 0) {
    run->schedule = (bppsa_rank_schedule){.split = e->what->split, .cut = e->cut_text, .config = bppsa_schedule_config_default()};
    run->schedule.config.stages = 0;
    run->schedule.config.micro_batches = asked->schedule.micro_batches;
    return bppsa_train_run_make_schedule(run);
  }
  on->split = (bppsa_rank_split){.time = 1, .batch = bppsa_comm_size(on->comm)};
  on->micro_batches = 1;
  on->parallel = bppsa_data_parallel_config_default();
  on->parallel.batch = asked->batch;
  run->config.batch = bppsa_rank_network_samples(on);
  return bppsa_rank_network_forward(on, asked->batch, &run->config);
}

/* Opens the network and prepares what all of its training shares. */
static bppsa_status begin_run(bppsa_oracle_entry *e) {
  const struct bppsa_bench_settings *asked = e->ground->asked;
  bppsa_train_run *run = &e->run;
  run->dataset = e->ground->images;
  run->device = (bppsa_device *)(uintptr_t)e->ground->device; /* borrowed, until close_run */
  BPPSA_TRY(bppsa_network_open(asked->model, NULL, &run->network));
  run->config = bppsa_network_config_default(&run->network);
  run->config.batch = asked->batch;
  run->config.method.backward = BPPSA_BACKWARD_BP;
  run->train = bppsa_train_config_default();
  run->train.optimizer = bppsa_network_train_config(run->network.kind).optimizer;
  run->train.batch = run->epoch_samples = asked->batch;
  run->train.iterations = 1;
  run->train.seed = asked->request.seed;
  run->train.order.kind = BPPSA_ORDER_DATA;
  return BPPSA_OK;
}

static void close_run(bppsa_train_run *run) {
  run->dataset = NULL;
  run->device = NULL;
  bppsa_train_run_free(run);
}

/* ---- what is measured ---- */

static const double SHARE_S = 0.1; /* seconds of a turn that measure computing; its iterations of a small network take as long */

static bool pipeline(const bppsa_oracle_entry *e) {
  return strcmp(e->what->split, "gpipe") == 0;
}

/* Describes the system: a level of all ranks and, inside it, one of the ranks that share layers, or of the stages that have a
 * processor each. Only pipelines get a slowdown: other ranks measure side by side, so their times contain it. */
static void set_system(bppsa_oracle_entry *e) {
  const int64_t ranks = bppsa_comm_size(e->ground->world), fit = e->ground->at_once, inner = pipeline(e) ? fit : e->ways;
  const bppsa_oracle_level level = {.processors = inner, .beta_s = 1e-15, .contention = 1, .slowdown = 1};
  bppsa_oracle_system *s = &e->system;
  *s = (bppsa_oracle_system){.name = "here", .peak_flops = 1, .efficiency = 1, .memory_bytes = 1e18, .memory_reuse = 0.5};
  s->levels[s->count] = level;
  s->count += inner > 1 && inner < ranks;
  s->levels[s->count] = level;
  s->levels[s->count].processors = ranks;
  s->levels[s->count++].slowdown = pipeline(e) ? (double)ranks / (double)fit : 1;
}

/* Adds a probe of an operation. A fit needs two sizes: the one that travels, and a quarter of it. */
static bppsa_status add_link(bppsa_oracle_entry *e, bppsa_comm *comm, int64_t level, bppsa_oracle_operation operation,
                             double bytes, double more) {
  enum { ROUNDS = 25 };
  const double asked[] = {bytes, more};
  double sizes[4];
  int64_t count = 0;
  for (int i = 0; i < 2; ++i) {
    if (asked[i] > 0) {
      sizes[count++] = asked[i] / 4;
      sizes[count++] = asked[i];
    }
  }
  if (count == 0 || bppsa_comm_size(comm) < 2) {
    return BPPSA_OK;
  }
  bppsa_oracle_probe *link = &e->links[e->link_count++];
  link->level = level;
  return bppsa_link_probe_create(comm, operation, count, sizes, ROUNDS, e->ground->crowded, &link->probe);
}

/* Opens probes of the operations of a step, in all groups at once as in a step: β then contains the formulas' contention φ. */
static bppsa_status open_links(bppsa_oracle_entry *e, const bppsa_layer_traffic *t) {
  const double gathers = (double)(t->allgathers > 0 ? t->allgathers : 1), sums = (double)(t->sums > 0 ? t->sums : 1),
               messages = (double)(t->messages > 0 ? t->messages : 1);
  BPPSA_TRY(add_link(e, e->group, 0, BPPSA_OPERATION_ALLGATHER, (double)t->allgather_bytes / gathers, 0));
  BPPSA_TRY(add_link(e, e->group, 0, BPPSA_OPERATION_POINT_TO_POINT, (double)t->message_bytes / messages, 0));
  BPPSA_TRY(add_link(e, e->group, 0, BPPSA_OPERATION_ORDERED_SUM, (double)t->sum_bytes / sums, (double)t->tile_bytes));
  return add_link(e, e->among, e->system.count - 1, BPPSA_OPERATION_ORDERED_SUM, (double)t->weight_bytes, 0);
}

/* Opens the probe of a step, for ranks that share layers or only the batch. */
static bppsa_status open_step(bppsa_oracle_entry *e) {
  const bppsa_oracle_ground *g = e->ground;
  const int32_t rank = bppsa_comm_rank(g->world), ways = (int32_t)e->ways;
  const bool layers = e->run.layers.split != NULL;
  const bppsa_layer_strategy strategy = e->run.layers.config.strategy;
  const bppsa_step_measuring how = {.batch = e->samples,
                                    .mini_batch = g->asked->batch,
                                    .optimizer = e->run.train.optimizer,
                                    .seed = g->asked->request.seed,
                                    .budget_s = SHARE_S,
                                    .mean = g->crowded,
                                    .device = g->device};
  bppsa_network_config config = e->run.config;
  bppsa_step_costs costs;
  config.batch = e->samples;
  BPPSA_TRY(bppsa_network_create(&e->run.network, &config, g->device, &e->whole));
  BPPSA_TRY(bppsa_network_init(&e->run.network, e->whole, BPPSA_INIT_DEFAULT, g->asked->request.seed));
  BPPSA_TRY(bppsa_comm_split(g->world, rank / ways, rank % ways, &e->group));
  BPPSA_TRY(bppsa_comm_split(g->world, rank % ways, rank / ways, &e->among));
  BPPSA_TRY(bppsa_step_probe_create(g->world, &e->run.network.layers, e->whole, layers ? &strategy : NULL, ways, &how, &e->step));
  BPPSA_TRY(bppsa_step_probe_measure(e->step, &costs));
  return layers ? open_links(e, &costs.traffic) : BPPSA_OK;
}

/* Opens the whole chain on every rank, for micro-batches of `samples` samples. */
static bppsa_status open_chain(bppsa_oracle_entry *e) {
  const bppsa_oracle_ground *g = e->ground;
  bppsa_network_config config = e->run.config;
  double most = 0;
  config.batch = e->samples;
  BPPSA_TRY(bppsa_network_create(&e->run.network, &config, g->device, &e->whole));
  BPPSA_TRY(bppsa_network_init(&e->run.network, e->whole, BPPSA_INIT_DEFAULT, g->asked->request.seed));
  BPPSA_TRY(e->run.network.kind->family->chain(&e->run.network, &config, g->device, &e->chain));
  BPPSA_TRY(bppsa_chain_noise_create(e->chain, e->samples, g->asked->request.seed, &e->noise));
  e->values = bppsa_calloc(e->chain->parameter_count + 1, sizeof *e->values);
  if (e->values == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < e->chain->parameter_count; ++i) {
    e->values[i] = e->whole->parameters[i].value;
  }
  for (int64_t l = 0; l + 1 < e->model.count; ++l) {
    most = fmax(most, (double)e->samples * e->model.layers[l].y * (double)bppsa_dtype_size(config.dtype));
  }
  return add_link(e, g->world, e->system.count - 1, BPPSA_OPERATION_STAGE_MESSAGE, most, 0);
}

static bppsa_status measure_step(bppsa_oracle_entry *e) {
  const bppsa_rank_layers *layers = &e->run.layers;
  bppsa_step_costs costs;
  BPPSA_TRY(bppsa_step_probe_measure(e->step, &costs));
  const char *name = e->ways > 1 ? bppsa_layer_strategy_name(layers->config.strategy) : "data";
  e->model.shares[0] = bppsa_step_share(&costs, name, e->ways, bppsa_comm_size(e->ground->world), (double)e->samples);
  return BPPSA_OK;
}

static bppsa_status measure_chain(bppsa_oracle_entry *e) {
  const bppsa_chain_measuring how = {.samples = e->samples,
                                     .optimizer = e->run.train.optimizer,
                                     .values = e->values,
                                     .data = bppsa_chain_noise_data(e->noise),
                                     .at_once = e->ground->at_once,
                                     .budget_s = SHARE_S / 2};
  bppsa_chain_costs costs;
  BPPSA_TRY(bppsa_chain_measure(e->ground->world, e->chain, &how, &costs));
  bppsa_chain_layers(&costs, (double)e->samples, &e->model);
  bppsa_chain_costs_free(&costs);
  return BPPSA_OK;
}

static bppsa_status calibrate(bppsa_oracle_entry *e) {
  BPPSA_TRY(e->step != NULL ? measure_step(e) : measure_chain(e));
  for (int64_t i = 0; i < e->link_count; ++i) {
    bppsa_link_fit fit;
    BPPSA_TRY(bppsa_link_probe_measure(e->links[i].probe, &fit));
    e->system.levels[e->links[i].level].own[fit.operation] = fit.link;
  }
  return BPPSA_OK;
}

/* Predicts one iteration from the latest measurements. */
static bppsa_status predict(const bppsa_oracle_entry *e, bppsa_oracle_row *row) {
  const struct bppsa_bench_settings *asked = e->ground->asked;
  const int64_t ranks = bppsa_comm_size(e->ground->world);
  bppsa_oracle_query query = bppsa_oracle_query_default(&e->model, &e->system);
  bppsa_oracle_rows rows;
  query.batch = query.samples = asked->batch;
  query.strong = true;
  query.micro_batches = asked->schedule.micro_batches;
  query.group = e->ways;
  query.collective = BPPSA_COLLECTIVE_ORDERED;
  query.cuts = e->cuts;
  query.cut = e->cut;
  BPPSA_TRY(bppsa_oracle_ask(&query, e->what->strategy, ranks, ranks, &rows));
  *row = rows.rows[0];
  bppsa_oracle_rows_free(&rows);
  return row->feasible ? BPPSA_OK : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s", row->reason);
}

/* ---- a strategy ---- */

/* Lets the oracle choose the stages that are trained; rank 0 tells the others. */
static bppsa_status choose_cut(bppsa_oracle_entry *e) {
  const int64_t count = BPPSA_ORACLE_MOST_CUTS + 1;
  int64_t told[BPPSA_ORACLE_MOST_CUTS + 1] = {0};
  const bppsa_view view = bppsa_view_make(told, BPPSA_I64, 1, &count);
  bppsa_oracle_row row;
  size_t used = 0;
  BPPSA_TRY(calibrate(e));
  BPPSA_TRY(predict(e, &row)); /* fails on all ranks or on none: measured times do not decide what is feasible */
  told[0] = row.cuts;
  memcpy(told + 1, row.cut, sizeof row.cut);
  BPPSA_TRY(bppsa_comm_broadcast(e->ground->world, 0, &view));
  e->cuts = told[0];
  memcpy(e->cut, told + 1, sizeof e->cut);
  for (int64_t i = 0; i < e->cuts; ++i) {
    used += (size_t)snprintf(e->cut_text + used, sizeof e->cut_text - used, "%s%" PRId64, i > 0 ? "," : "", e->cut[i]);
  }
  return BPPSA_OK;
}

static bppsa_status check_ranks(const bppsa_oracle_runnable *what, int64_t ranks) {
  if (alone(what) && ranks > 1) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: %" PRId64 " ranks, expected 1", what->strategy, ranks);
  }
  return ranks >= what->least ? BPPSA_OK
                              : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: %" PRId64 " rank, expected %" PRId64 " or more",
                                           what->strategy, ranks, what->least);
}

static bppsa_status make_entry(bppsa_oracle_entry *e) {
  const bppsa_oracle_ground *g = e->ground;
  const int64_t ranks = bppsa_comm_size(g->world);
  bppsa_rank_layers layers;
  BPPSA_TRY(check_ranks(e->what, ranks));
  bppsa_rank_layers_find(e->what->split, &layers);
  e->ways = layers.split == NULL ? 1 : e->what->halves ? ranks / 2 : ranks;
  BPPSA_TRY(bppsa_oracle_model_open(g->asked->model, &e->model));
  bppsa_free(e->model.shares);
  e->model.shares = bppsa_calloc(1, sizeof *e->model.shares);
  e->model.share_count = e->model.shares != NULL && !pipeline(e);
  if (e->model.shares == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  set_system(e);
  BPPSA_TRY(begin_run(e));
  if (pipeline(e)) {
    e->samples = g->asked->batch / g->asked->schedule.micro_batches;
    BPPSA_TRY(open_chain(e));
    BPPSA_TRY(choose_cut(e));
  }
  BPPSA_TRY(split_run(e));
  e->samples = e->run.config.batch < g->asked->batch ? e->run.config.batch : g->asked->batch; /* a block may have room for more */
  BPPSA_TRY(bppsa_train_run_create_model(&e->run));
  return pipeline(e) ? BPPSA_OK : open_step(e);
}

bppsa_status bppsa_oracle_entry_open(const bppsa_oracle_ground *ground, const bppsa_oracle_runnable *what,
                                     bppsa_oracle_entry *entry) {
  *entry = (bppsa_oracle_entry){.ground = ground, .what = what};
  const bppsa_status status = make_entry(entry);
  if (status != BPPSA_OK) {
    bppsa_oracle_entry_close(entry);
  }
  return status;
}

void bppsa_oracle_entry_close(bppsa_oracle_entry *e) {
  for (int64_t i = 0; i < e->link_count; ++i) {
    bppsa_link_probe_destroy(e->links[i].probe);
  }
  bppsa_step_probe_destroy(e->step);
  bppsa_comm_destroy(e->among);
  bppsa_comm_destroy(e->group);
  bppsa_free(e->values);
  bppsa_chain_noise_destroy(e->noise);
  bppsa_chain_destroy(e->chain);
  bppsa_model_destroy(e->whole);
  bppsa_oracle_model_free(&e->model);
  close_run(&e->run);
  *e = (bppsa_oracle_entry){0};
}

bppsa_status bppsa_oracle_entry_turn(bppsa_oracle_entry *e) {
  bppsa_oracle_row row;
  BPPSA_TRY(calibrate(e));
  BPPSA_TRY(train(e, 1 + BPPSA_ORACLE_ITERATIONS, bppsa_network_train_config(e->run.network.kind).optimizer.lr));
  if (!first(e)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(predict(e, &row));
  bppsa_oracle_turn *turn = &e->latest;
  *turn = (bppsa_oracle_turn){.predicted_s = row.time_s};
  memcpy(turn->phase_s, row.phase_s, sizeof turn->phase_s);
  for (int i = 0; i < BPPSA_ORACLE_PARTS; ++i) {
    turn->part_s[i] = e->part_s[i] / (double)e->iterations;
    turn->measured_s += i < BPPSA_ORACLE_PASSES ? turn->part_s[i] : 0;
  }
  return BPPSA_OK;
}

const char *bppsa_oracle_part_name(int part) {
  static const char *const passes[BPPSA_ORACLE_PASSES] = {"forward", "backward", "update"};
  return part < BPPSA_ORACLE_PASSES ? passes[part] : bppsa_layer_phase_name((bppsa_layer_phase)(part - BPPSA_ORACLE_PASSES));
}
