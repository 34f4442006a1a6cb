/* A network trained by a schedule on ranks, and by one device with the same micro-batches; the synchronous schemes that must
 * agree. */
#ifndef BPPSA_TESTS_DISTRIBUTED_PIPELINE_CASE_H
#define BPPSA_TESTS_DISTRIBUTED_PIPELINE_CASE_H

#include <math.h>
#include <string.h>

#include "cnn/chain.h"
#include "cnn/cnn.h"
#include "comm/ordered.h"
#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "core/compute/device_buffer.h"
#include "distributed/pipeline/pipeline.h"
#include "tests/comm/cases.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"
#include "train/loss.h"

enum { SAMPLES = 2, MOST_PARAMETERS = 16, MOST_UPDATES = 800, MOST_BYTES = 1 << 19 };

static const char small_network[] =
    "{\"input\": [2, 6, 6], \"layers\": [{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 3, \"kernel\": 3},"
    "{\"name\": \"r\", \"op\": \"relu\"}, {\"name\": \"p\", \"op\": \"maxpool2d\", \"kernel\": 2},"
    "{\"name\": \"f\", \"op\": \"linear\", \"out\": 9}, {\"name\": \"t\", \"op\": \"tanh\"},"
    "{\"name\": \"g\", \"op\": \"linear\", \"out\": 7}, {\"name\": \"s\", \"op\": \"relu\"},"
    "{\"name\": \"h\", \"op\": \"linear\", \"out\": 5}]}";

/* ---- data: the same for all ---- */

typedef struct {
  int64_t values, classes, samples; /* samples: of a micro-batch, with halving of a half */
} problem;

static inline problem problem_of(const bppsa_cnn_network *network, int64_t samples) {
  return (problem){bppsa_cnn_size(network, 0), network->layers[network->count - 1].op.out_channels, samples};
}

static inline void fill_input(const problem *about, const bppsa_pipeline_micro *micro, const bppsa_view *x) {
  const int64_t count = about->samples * about->values, first = (micro->update * micro->blocks + micro->block) * count;
  for (int64_t i = 0; i < count; ++i) {
    bppsa_view_set(x, i, bppsa_random_double(11, 3, (uint64_t)(first + i)) - 0.5);
  }
}

static inline bppsa_status fill_seed(const problem *about, const bppsa_pipeline_micro *micro, const bppsa_view *logits,
                                     const bppsa_view *seed, double *loss) {
  int64_t labels[SAMPLES];
  bppsa_loss_result result;
  for (int64_t i = 0; i < about->samples; ++i) {
    const int64_t sample = (micro->update * micro->blocks + micro->block) * about->samples + i;
    labels[i] = (int64_t)bppsa_random_below(11, 4, (uint64_t)sample, (uint64_t)about->classes);
  }
  const bppsa_loss_rows rows = {.labels = labels, .mean_rows = about->samples * micro->blocks};
  BPPSA_TRY(bppsa_loss_part(NULL, logits, &rows, seed, &result));
  *loss = result.loss;
  return BPPSA_OK;
}

static inline bppsa_status input_of(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *x) {
  fill_input(context, micro, x);
  return BPPSA_OK;
}

static inline bppsa_status loss_of(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *logits,
                                   const bppsa_view *seed, double *loss) {
  return fill_seed(context, micro, logits, seed, loss);
}

/* ---- a run ---- */

typedef struct {
  const bppsa_cnn_network *network;
  const char *scheme;
  bppsa_schedule_config config;
  int64_t ranks, runs;
  bppsa_dtype dtype;
  bppsa_optimizer_config optimizer;

  /* written by rank 0, except the peaks, written by each worker's rank */
  int64_t updates, blocks;
  double losses[MOST_UPDATES];
  char values[MOST_BYTES];
  double peaks[64], predicted[64];
  int64_t versions[64];         /* likewise */
  bppsa_pipeline_event *events; /* of all ranks; NULL: not wanted */
} pipeline_case;

static inline bppsa_status make_model(const pipeline_case *c, int64_t batch, const bppsa_device *device, bppsa_model **model) {
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = batch;
  config.dtype = c->dtype;
  config.method.backward = BPPSA_BACKWARD_BP;
  BPPSA_TRY(bppsa_cnn_create(c->network, &config, device, model));
  return bppsa_cnn_init(*model, 5);
}

static inline int64_t pack(const bppsa_model *model, char *values) {
  int64_t at = 0;
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const size_t bytes = bppsa_view_bytes(&model->parameters[i].value);
    assert_true(at + (int64_t)bytes <= MOST_BYTES);
    memcpy(values + at, model->parameters[i].value.data, bytes);
    at += (int64_t)bytes;
  }
  return at;
}

static inline bppsa_status run_rank(bppsa_comm *comm, void *context) {
  pipeline_case *c = context;
  bppsa_device *device;
  bppsa_chain *chain;
  bppsa_model *model; /* holds the weights */
  bppsa_schedule *list;
  bppsa_pipeline *p;
  problem about;
  const bppsa_pipeline_data data = {.context = &about, .input = input_of, .loss = loss_of};
  bppsa_view views[MOST_PARAMETERS];
  bppsa_schedule_times times;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  BPPSA_TRY(bppsa_cnn_chain_create(c->network, SAMPLES, c->dtype, device, &chain));
  BPPSA_TRY(make_model(c, 1, device, &model));
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    views[i] = model->parameters[i].value;
  }
  bppsa_schedule_config config = c->config;
  double activations[64];
  for (int64_t layer = 0; layer < chain->layers; ++layer) {
    const bppsa_chain_layer *l = &chain->layer[layer];
    activations[layer] = (double)(SAMPLES * (l->out * (int64_t)bppsa_dtype_size(c->dtype) + l->kept));
  }
  config.layers = chain->layers;
  config.cost[BPPSA_COST_ACTIVATION] = activations;
  config.rows[BPPSA_COST_ACTIVATION] = chain->layers;
  BPPSA_TRY(bppsa_schedule_create(c->scheme, &config, &list));
  about = problem_of(c->network, SAMPLES / bppsa_pipeline_parts(list));
  const bppsa_pipeline_config settings = {.schedule = list, .samples = SAMPLES, .optimizer = c->optimizer};
  BPPSA_TRY(bppsa_pipeline_create(comm, chain, &settings, views, &p));
  const int64_t updates = bppsa_pipeline_updates(p);
  CHECK(updates * c->runs <= MOST_UPDATES);
  double losses[MOST_UPDATES];
  for (int64_t run = 0; run < c->runs; ++run) {
    BPPSA_TRY(bppsa_pipeline_run(p, &data, losses + run * updates));
  }
  BPPSA_TRY(bppsa_pipeline_collect(p, views, NULL));
  if (bppsa_comm_rank(comm) == 0) {
    c->updates = updates * c->runs;
    memcpy(c->losses, losses, (size_t)c->updates * sizeof *losses);
    (void)pack(model, c->values);
  }
  BPPSA_TRY(bppsa_schedule_simulate(list, &times));
  for (int64_t w = bppsa_comm_rank(comm); w < list->workers; w += bppsa_comm_size(comm)) {
    c->peaks[w] = (double)bppsa_pipeline_peak_activations(p, w);
    c->versions[w] = bppsa_pipeline_peak_versions(p, w);
    c->predicted[w] =
        times.worker[w].peak_activations * list->activations / (list->scheme->data_parallel ? 1.0 : (double)list->config.stages);
  }
  for (int64_t id = 0; c->events != NULL && id < list->count; ++id) {
    if (list->ops[id].worker % bppsa_comm_size(comm) == bppsa_comm_rank(comm)) {
      c->events[id] = bppsa_pipeline_events(p)[id];
    }
  }
  bppsa_schedule_times_free(&times);
  bppsa_pipeline_destroy(p);
  bppsa_schedule_destroy(list);
  bppsa_model_destroy(model);
  bppsa_chain_destroy(chain);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

/* One device: a model takes the micro-batches, of so many samples, one after the other, and their gradients are added up along the
 * tree. */
static inline void train_on_one_device(pipeline_case *c, int64_t updates, int64_t blocks, int64_t samples) {
  bppsa_device *device;
  bppsa_model *model;
  bppsa_optimizer *optimizer;
  bppsa_ordered_sum *sums[MOST_PARAMETERS];
  bppsa_buffer x = {0}, seed = {0};
  const problem about = problem_of(c->network, samples);
  const int64_t *in = c->network->in;
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  assert_int_equal(make_model(c, samples, device, &model), BPPSA_OK);
  assert_int_equal(bppsa_optimizer_create(&c->optimizer, model, &optimizer), BPPSA_OK);
  assert_int_equal(bppsa_buffer_create(NULL, c->dtype, 4, (int64_t[]){samples, in[0], in[1], in[2]}, &x), BPPSA_OK);
  assert_int_equal(bppsa_buffer_create(NULL, c->dtype, 2, (int64_t[]){samples, about.classes}, &seed), BPPSA_OK);
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const int64_t count = bppsa_view_count(&model->parameters[i].value);
    assert_int_equal(bppsa_ordered_sum_create(NULL, blocks, NULL, c->dtype, count, 0, &sums[i]), BPPSA_OK);
  }
  for (int64_t update = 0; update < updates; ++update) {
    c->losses[update] = 0;
    for (int64_t block = 0; block < blocks; ++block) {
      const bppsa_pipeline_micro micro = {update, block, blocks};
      bppsa_view logits;
      double loss = 0;
      fill_input(&about, &micro, &x.view);
      assert_int_equal(model->ops->forward(model, &x.view, NULL, &logits), BPPSA_OK);
      assert_int_equal(fill_seed(&about, &micro, &logits, &seed.view, &loss), BPPSA_OK);
      assert_int_equal(model->ops->backward(model, &seed.view), BPPSA_OK);
      c->losses[update] += loss;
      for (int64_t i = 0; i < model->parameter_count; ++i) {
        const int64_t count = bppsa_view_count(&model->parameters[i].gradient);
        const bppsa_view flat = bppsa_view_make(model->parameters[i].gradient.data, c->dtype, 1, &count);
        assert_int_equal(bppsa_ordered_sum_add(sums[i], block, &flat), BPPSA_OK);
      }
    }
    for (int64_t i = 0; i < model->parameter_count; ++i) {
      const int64_t count = bppsa_view_count(&model->parameters[i].gradient);
      const bppsa_view flat = bppsa_view_make(model->parameters[i].gradient.data, c->dtype, 1, &count);
      assert_int_equal(bppsa_ordered_sum_finish(sums[i], &flat), BPPSA_OK);
    }
    bppsa_optimizer_step(optimizer, NULL);
  }
  (void)pack(model, c->values);
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    bppsa_ordered_sum_destroy(sums[i]);
  }
  bppsa_buffer_free(&x);
  bppsa_buffer_free(&seed);
  bppsa_optimizer_destroy(optimizer);
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
}

static inline pipeline_case new_case(const bppsa_cnn_network *network, const char *scheme, int64_t stages,
                                     int64_t micro_batches) {
  pipeline_case c = {.network = network, .scheme = scheme, .config = bppsa_schedule_config_default(), .ranks = stages, .runs = 1};
  c.config.stages = stages;
  c.config.micro_batches = micro_batches;
  c.config.window = BPPSA_WINDOW_ITERATION;
  c.dtype = BPPSA_F32;
  c.optimizer = bppsa_optimizer_config_default();
  return c;
}

/* ---- synchronous schemes ---- */

typedef struct {
  const char *scheme;
  int64_t stages, micro_batches, width, chunks, replicas;
  bppsa_schedule_split split;
  bppsa_schedule_scale scale;
  bppsa_schedule_sync sync;
  bool recompute, skip;
} synchronous;

static const synchronous cases[] = {
    {.scheme = "model-parallel", .stages = 4, .micro_batches = 3},
    {.scheme = "gpipe", .stages = 1, .micro_batches = 4},
    {.scheme = "gpipe", .stages = 2, .micro_batches = 4},
    {.scheme = "gpipe", .stages = 4, .micro_batches = 5, .recompute = true},
    {.scheme = "gpipe", .stages = 2, .micro_batches = 3, .width = 3},
    {.scheme = "gpipe", .stages = 4, .micro_batches = 4, .split = BPPSA_SPLIT_WI, .skip = true},
    {.scheme = "1f1b", .stages = 4, .micro_batches = 6},
    {.scheme = "1f1b", .stages = 8, .micro_batches = 3},
    {.scheme = "1f1b", .stages = 4, .micro_batches = 6, .recompute = true, .skip = true},
    {.scheme = "1f1b", .stages = 2, .micro_batches = 4, .width = 2, .sync = BPPSA_SYNC_EAGER},
    {.scheme = "interleaved", .stages = 2, .micro_batches = 4, .chunks = 2},
    {.scheme = "interleaved", .stages = 4, .micro_batches = 8, .chunks = 2},
    {.scheme = "gems", .stages = 4, .micro_batches = 5},
    {.scheme = "chimera", .stages = 4, .micro_batches = 4},
    {.scheme = "chimera", .stages = 4, .micro_batches = 3, .sync = BPPSA_SYNC_EAGER},
    {.scheme = "chimera", .stages = 4, .micro_batches = 8, .scale = BPPSA_SCALE_DOUBLING, .sync = BPPSA_SYNC_EAGER_OPT},
    {.scheme = "chimera", .stages = 4, .micro_batches = 6, .width = 2},
    {.scheme = "chimera", .stages = 4, .micro_batches = 8, .scale = BPPSA_SCALE_HALVING},
    {.scheme = "chimera", .stages = 4, .micro_batches = 3, .scale = BPPSA_SCALE_HALVING, .recompute = true, .skip = true},
    {.scheme = "chimera", .stages = 2, .micro_batches = 2, .scale = BPPSA_SCALE_HALVING, .width = 2, .sync = BPPSA_SYNC_EAGER},
    {.scheme = "chimera", .stages = 4, .micro_batches = 4, .replicas = 4, .recompute = true},
    {.scheme = "zb-h1", .stages = 4, .micro_batches = 8},
    {.scheme = "model-parallel", .stages = 2, .micro_batches = 1},
    {.scheme = "1f1b", .stages = 4, .micro_batches = 1},
    {.scheme = "gems", .stages = 2, .micro_batches = 1},    /* one of the two pipelines has no micro-batch */
    {.scheme = "chimera", .stages = 4, .micro_batches = 1}, /* likewise */
    {.scheme = "chimera", .stages = 2, .micro_batches = 1, .scale = BPPSA_SCALE_HALVING},
    {.scheme = "zb-h1", .stages = 4, .micro_batches = 1},
    {.scheme = "modulo", .stages = 3, .micro_batches = 1},
    {.scheme = "fast-forward", .stages = 2, .micro_batches = 2, .split = BPPSA_SPLIT_IW},
    {.scheme = "modulo", .stages = 3, .micro_batches = 2, .split = BPPSA_SPLIT_IW},
    {.scheme = "wait-free", .stages = 3, .micro_batches = 1},
    {.scheme = "priority", .stages = 3, .micro_batches = 1},
    {.scheme = "reverse-first-k", .stages = 2, .micro_batches = 1},
    {.scheme = "multi-stream", .stages = 1, .micro_batches = 1},
};

static inline void apply(const synchronous *from, bppsa_schedule_config *config) {
  config->width = from->width > 0 ? from->width : 1;
  config->chunks = from->chunks > 0 ? from->chunks : config->chunks;
  config->replicas = from->replicas;
  config->split = from->split;
  config->scale = from->scale;
  config->sync = from->sync;
  config->recompute = from->recompute;
  config->skip_first_input_grad = from->skip;
}

static inline int64_t parts_of(const synchronous *about) {
  return about->scale == BPPSA_SCALE_HALVING ? 2 : 1;
}

/* Micro-batches of an update: data-parallel schemes have one on each copy, and with halving every half is one. */
static inline int64_t blocks_of(const synchronous *about) {
  const bool copies = bppsa_schedule_find(about->scheme)->data_parallel;
  return about->micro_batches * (about->width > 0 ? about->width : 1) * (copies ? about->stages : 1) * parts_of(about);
}

#endif
