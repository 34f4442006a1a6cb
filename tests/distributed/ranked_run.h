/* A training run on ranks that are threads, and what is left of it. */
#ifndef BPPSA_TESTS_DISTRIBUTED_RANKED_RUN_H
#define BPPSA_TESTS_DISTRIBUTED_RANKED_RUN_H

#include <string.h>

#include "core/base/alloc.h"
#include "core/files/npy.h"
#include "distributed/batch/data_parallel.h"
#include "networks/named_network.h"
#include "tests/comm/cases.h"
#include "tests/support/support.h"

enum { MOST_STEPS = 64, RUN_WEIGHTS = 1 << 19 }; /* LeNet-5 has 62 006 parameters */

/* What all ranks of a run share. The caller sets the members before `losses`. */
typedef struct {
  const bppsa_network *network;
  bppsa_network_config config;
  bppsa_data_parallel_config parallel; /* its batch is train.batch */
  bppsa_train_config train;
  const bppsa_dataset *dataset;
  bool alone;                                              /* plain training without ranks */
  int64_t rank1_limit;                                     /* bytes that the model of rank 1 may hold; 0: no limit */
  bppsa_status (*before)(bppsa_comm *comm, void *context); /* called by every rank; NULL: nothing */
  void (*done)(bppsa_comm *comm, bppsa_data_parallel *dp,
               void *context); /* called by every rank that has trained; NULL: nothing */
  void *context;

  double losses[MOST_STEPS]; /* of rank 0 */
  bppsa_train_result result; /* of rank 0 */
  int64_t bytes;             /* of all parameters of rank 0, one behind the other */
  char values[RUN_WEIGHTS];
  char notice[512];
} ranked_run;

static inline bppsa_status keep_loss(void *context, const bppsa_train_record *record) {
  ranked_run *run = context;
  run->losses[record->step - 1] = record->loss;
  return BPPSA_OK;
}

static inline bppsa_status keep_notice(void *context, const bppsa_train_start *start) {
  ranked_run *run = context;
  snprintf(run->notice, sizeof run->notice, "%s", start->notice);
  return BPPSA_OK;
}

/* Copies the parameters, or compares them with those of rank 0, which has trained. */
static inline bppsa_status keep_weights(const bppsa_model *model, ranked_run *run, bool first) {
  int64_t at = 0;
  for (int64_t p = 0; p < model->parameter_count; ++p) {
    const bppsa_view *value = &model->parameters[p].value;
    const int64_t bytes = (int64_t)bppsa_view_bytes(value);
    CHECK(at + bytes <= RUN_WEIGHTS);
    if (first) {
      memcpy(run->values + at, value->data, (size_t)bytes);
    } else {
      CHECK(memcmp(run->values + at, value->data, (size_t)bytes) == 0);
    }
    at += bytes;
  }
  if (first) {
    run->bytes = at;
  }
  return BPPSA_OK;
}

static inline bppsa_status train_model(bppsa_comm *comm, ranked_run *run, bppsa_model *model, const bppsa_device *device) {
  char text[BPPSA_DATA_PARALLEL_TEXT];
  bppsa_data_parallel *dp = NULL;
  bppsa_train_config train = run->train;
  bppsa_train_result result;
  const bool first = bppsa_comm_rank(comm) == 0;
  const bppsa_train_callbacks callbacks = {.context = run, .on_step = keep_loss, .started = keep_notice};
  if (!run->alone) {
    BPPSA_TRY(bppsa_data_parallel_create(comm, model, &run->parallel, &dp));
    train.ranks = bppsa_data_parallel_ranks(dp);
    train.reduction = bppsa_data_parallel_text(&run->parallel, BPPSA_COMM_THREADS, bppsa_comm_size(comm), text, sizeof text);
  }
  bppsa_status status = bppsa_train(&train, model, run->dataset, device, &callbacks, &result);
  status = status == BPPSA_OK && first ? keep_weights(model, run, true) : status;
  status = status == BPPSA_OK ? bppsa_comm_barrier(comm) : status;
  status = status == BPPSA_OK ? keep_weights(model, run, false) : status;
  if (status == BPPSA_OK && first) {
    run->result = result;
  }
  if (status == BPPSA_OK && run->done != NULL) {
    run->done(comm, dp, run->context);
  }
  bppsa_data_parallel_destroy(dp);
  return status;
}

static inline bppsa_status ranked_body(bppsa_comm *comm, void *context) {
  ranked_run *run = context;
  bppsa_network_config config = run->config;
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  config.batch = run->alone ? run->train.batch : bppsa_data_parallel_block(&run->parallel, bppsa_comm_size(comm));
  config.delayed = run->parallel.reverse_first < 0 ? INT64_MAX : run->parallel.reverse_first;
  config.memory_limit = bppsa_comm_rank(comm) == 1 ? run->rank1_limit : 0;
  bppsa_status status = run->before != NULL ? run->before(comm, run->context) : BPPSA_OK;
  status = status == BPPSA_OK ? bppsa_device_create("cpu", 1, &device) : status;
  status = status == BPPSA_OK ? bppsa_network_create(run->network, &config, device, &model) : status;
  status = status == BPPSA_OK ? bppsa_network_init(run->network, model, BPPSA_INIT_DEFAULT, 0) : status;
  status = status == BPPSA_OK ? train_model(comm, run, model, device) : status;
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  return status;
}

/* Trains on so many ranks. */
static inline bppsa_status train_on(int64_t ranks, double timeout, ranked_run *run, bppsa_comm_outcome *outcome) {
  bppsa_comm_config config = bppsa_comm_config_default();
  config.ranks = ranks;
  config.timeout = timeout;
  run->parallel.batch = run->train.batch;
  return bppsa_comm_run(&config, ranked_body, run, outcome);
}

#define assert_trains(ranks, run)                                                                                                \
  do {                                                                                                                           \
    if (train_on(ranks, 60, run, NULL) != BPPSA_OK) {                                                                            \
      fail_msg("%d ranks: %s", (int)(ranks), bppsa_last_error());                                                                \
    }                                                                                                                            \
  } while (0)

static inline void assert_same_run(const ranked_run *a, const ranked_run *b) {
  assert_memory_equal(a->losses, b->losses, sizeof a->losses);
  assert_int_equal(a->bytes, b->bytes);
  assert_memory_equal(a->values, b->values, (size_t)a->bytes);
}

/* ---- networks and data ---- */

/* A small network with three layers of weights, one of which has no bias. */
static const char *const small_network =
    "{\"input\": [2, 6, 6], \"layers\": ["
    "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out\": 3, \"kernel\": [3, 3], \"stride\": [1, 1], \"padding\": [1, 1, 1, 1], "
    "\"dilation\": [1, 1], \"groups\": 1, \"bias\": true}, {\"name\": \"relu1\", \"op\": \"relu\"}, "
    "{\"name\": \"conv2\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": [3, 3], \"stride\": [2, 2], \"padding\": [0, 0, 0, 0], "
    "\"dilation\": [1, 1], \"groups\": 1, \"bias\": false}, {\"name\": \"tanh2\", \"op\": \"tanh\"}, "
    "{\"name\": \"flatten\", \"op\": \"flatten\"}, {\"name\": \"fc\", \"op\": \"linear\", \"out\": 5, \"bias\": true}]}";

/* Random images [samples, C, H, W] with labels below `classes`, and a data set of them. */
static inline bppsa_dataset *images(int64_t samples, const int64_t shape[3], int64_t classes) {
  const int64_t x_shape[] = {samples, shape[0], shape[1], shape[2]};
  const int64_t count = samples * shape[0] * shape[1] * shape[2];
  double *x = uniform(3, count, 1.0), *random = uniform(4, samples, 1.0);
  int64_t *labels = bppsa_calloc(samples, sizeof *labels);
  for (int64_t i = 0; i < samples; ++i) {
    labels[i] = (int64_t)((random[i] + 1) / 2 * (double)classes) % classes;
  }
  const bppsa_view x_view = bppsa_view_make(x, BPPSA_F64, 4, x_shape), y_view = bppsa_view_make(labels, BPPSA_I64, 1, &samples);
  assert_int_equal(bppsa_npy_save("ranked_x.npy", &x_view), BPPSA_OK);
  assert_int_equal(bppsa_npy_save("ranked_y.npy", &y_view), BPPSA_OK);
  bppsa_free(x);
  bppsa_free(random);
  bppsa_free(labels);
  const bppsa_dataset_options options = bppsa_dataset_options_default();
  bppsa_dataset *dataset = NULL;
  assert_int_equal(bppsa_dataset_create("npy:ranked_x.npy,ranked_y.npy", &options, &dataset), BPPSA_OK);
  return dataset;
}

static inline bppsa_dataset *bits(int64_t samples, int64_t steps, bool every_step, bool ignores) {
  bppsa_dataset_options options = bppsa_dataset_options_default();
  options.samples = samples;
  options.seq_len = steps;
  options.labels_per_step = every_step;
  options.objective.ignores = ignores;
  options.objective.ignored = 3;
  bppsa_dataset *dataset = NULL;
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &dataset), BPPSA_OK);
  return dataset;
}

/* A run of so many steps on the data set; free nothing. */
static inline ranked_run ranked(const bppsa_network *network, const bppsa_dataset *dataset, bppsa_dtype dtype, int64_t batch,
                                int64_t steps) {
  ranked_run run = {.network = network,
                    .config = bppsa_network_config_default(network),
                    .parallel = bppsa_data_parallel_config_default(),
                    .train = bppsa_train_config_default(),
                    .dataset = dataset};
  run.config.dtype = dtype;
  run.config.loss_all = dataset->labels_per_step;
  if (network->kind->family->steps) {
    run.config.input = dataset->input;
    run.config.steps = (bppsa_network_steps){.seq_len = dataset->seq_len, .hidden = 6, .layers = 2};
  }
  run.parallel.bucket_bytes = 200; /* several buckets */
  run.train.iterations = steps;
  run.train.batch = batch;
  run.train.clip_norm = 0.5;
  return run;
}

#endif
