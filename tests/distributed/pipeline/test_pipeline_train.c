/* A schedule that trains on ranks that are threads, and evaluation on ranks, against the training loop and evaluation alone. */
#include "distributed/pipeline/pipeline_train.h"

#include <math.h>

#include "distributed/evaluate.h"
#include "schedule/schedule.h"
#include "tests/distributed/ranked_run.h"
#include "train/evaluate.h"

enum { STEPS = 5, BATCH = 8, MICROS = 4, SAMPLES = 48 };

/* What ranks share. schedule NULL: the loop alone. */
typedef struct {
  const bppsa_network *network;
  const bppsa_dataset *dataset;
  const bppsa_schedule *schedule;
  double losses[STEPS], accuracies[STEPS], norms[STEPS]; /* of rank 0 */
  double last_weight;
} trained;

static bppsa_status keep_step(void *context, const bppsa_train_record *record) {
  trained *t = context;
  t->losses[record->step - 1] = record->loss;
  t->accuracies[record->step - 1] = record->accuracy;
  t->norms[record->step - 1] = record->grad_norm;
  return BPPSA_OK;
}

/* The parts of the samples on all ranks, and all of them on this one. */
static bppsa_status evaluate(bppsa_comm *comm, trained *t, bppsa_model *model, const bppsa_device *device) {
  bppsa_evaluation all, alone;
  BPPSA_TRY(bppsa_ranks_evaluate(comm, NULL, model, t->dataset, device, 3, SAMPLES - 4, 2, &all));
  BPPSA_TRY(bppsa_evaluate(model, t->dataset, device, 3, SAMPLES - 4, 2, &alone));
  CHECK(all.loss == alone.loss && all.accuracy == alone.accuracy && all.samples == alone.samples);
  CHECK(all.samples == SAMPLES - 4 && all.accuracy > 0 && all.accuracy < 1);
  return BPPSA_OK;
}

static bppsa_status train(bppsa_comm *comm, trained *t, bppsa_model *model, bppsa_chain *chain, const bppsa_device *device) {
  bppsa_train_config config = bppsa_train_config_default();
  bppsa_pipeline_train *pipeline = NULL;
  bppsa_train_result result;
  config.iterations = STEPS;
  config.batch = BATCH;
  /* without a schedule every rank trains by itself */
  const bppsa_train_callbacks callbacks = {.context = t, .on_step = bppsa_comm_rank(comm) == 0 ? keep_step : NULL};
  const bppsa_pipeline_config parts = {.schedule = t->schedule, .samples = BATCH / MICROS, .optimizer = config.optimizer};
  if (t->schedule != NULL) {
    BPPSA_TRY(bppsa_pipeline_train_create(comm, chain, model, &parts, &pipeline));
    config.ranks = bppsa_pipeline_train_ranks(pipeline);
    config.reduction = "in the schedule's order";
  }
  bppsa_status status = bppsa_train(&config, model, t->dataset, device, &callbacks, &result);
  bppsa_pipeline_train_destroy(pipeline);
  if (status == BPPSA_OK && bppsa_comm_rank(comm) == 0) {
    const bppsa_view *last = &model->parameters[model->parameter_count - 1].value;
    t->last_weight = bppsa_view_get(last, 0);
  }
  return status == BPPSA_OK ? evaluate(comm, t, model, device) : status;
}

static bppsa_status body(bppsa_comm *comm, void *context) {
  trained *t = context;
  bppsa_network_config config = bppsa_network_config_default(t->network);
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  bppsa_chain *chain = NULL;
  config.dtype = BPPSA_F64;
  config.input = t->dataset->input;
  config.steps = (bppsa_network_steps){.seq_len = t->dataset->seq_len, .hidden = 6, .layers = 2};
  config.batch = t->schedule != NULL ? BATCH / MICROS : BATCH;
  bppsa_status status = bppsa_device_create("cpu", 1, &device);
  status = status == BPPSA_OK ? bppsa_network_create(t->network, &config, device, &model) : status;
  status = status == BPPSA_OK ? bppsa_network_init(t->network, model, BPPSA_INIT_DEFAULT, 0) : status;
  status =
      status == BPPSA_OK && t->schedule != NULL ? t->network->kind->family->chain(t->network, &config, device, &chain) : status;
  status = status == BPPSA_OK ? train(comm, t, model, chain, device) : status;
  bppsa_chain_destroy(chain);
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  return status;
}

static void run(int64_t ranks, trained *t) {
  bppsa_comm_config config = bppsa_comm_config_default();
  config.ranks = ranks;
  config.timeout = 60;
  if (bppsa_comm_run(&config, body, t, NULL) != BPPSA_OK) {
    fail_msg("%d ranks: %s", (int)ranks, bppsa_last_error());
  }
}

static bool near(double a, double b) {
  return fabs(a - b) <= 1e-9 * fmax(1, fabs(b));
}

/* Schemes that flush after each batch make the steps of the loop alone: the same losses but for rounding, and the same counts of
 * right answers at every step. */
static void schedules_train(void **state) {
  (void)state;
  static const char *const schemes[] = {"gpipe", "1f1b", "zb-h1"};
  bppsa_network network;
  assert_int_equal(bppsa_network_open("gru", NULL, &network), BPPSA_OK);
  bppsa_dataset *dataset = bits(SAMPLES, 9, false, false);
  trained alone = {.network = &network, .dataset = dataset};
  run(1, &alone);
  for (size_t s = 0; s < sizeof schemes / sizeof schemes[0]; ++s) {
    for (int64_t ranks = 1; ranks <= 2; ++ranks) {
      bppsa_schedule_config config = bppsa_schedule_config_default();
      bppsa_schedule *list = NULL;
      config.stages = 2;
      config.micro_batches = MICROS;
      config.layers = 3; /* two of the GRU, and the head */
      assert_int_equal(bppsa_schedule_create(schemes[s], &config, &list), BPPSA_OK);
      trained t = {.network = &network, .dataset = dataset, .schedule = list};
      run(ranks, &t);
      for (int i = 0; i < STEPS; ++i) {
        if (!near(t.losses[i], alone.losses[i]) || t.accuracies[i] != alone.accuracies[i] || !near(t.norms[i], alone.norms[i])) {
          fail_msg("%s on %d ranks, step %d: loss %.12g, accuracy %g, norm %.12g, alone %.12g, %g, %.12g", schemes[s], (int)ranks,
                   i + 1, t.losses[i], t.accuracies[i], t.norms[i], alone.losses[i], alone.accuracies[i], alone.norms[i]);
        }
      }
      assert_true(near(t.last_weight, alone.last_weight));
      bppsa_schedule_destroy(list);
    }
  }
  bppsa_dataset_destroy(dataset);
  bppsa_network_close(&network);
}

/* Evaluation alone is that of every number of ranks, also of more ranks than batches. */
static void ranks_evaluate(void **state) {
  (void)state;
  bppsa_network network;
  assert_int_equal(bppsa_network_open("gru", NULL, &network), BPPSA_OK);
  bppsa_dataset *dataset = bits(SAMPLES, 9, false, false);
  for (int64_t ranks = 1; ranks <= 4; ++ranks) {
    trained t = {.network = &network, .dataset = dataset};
    run(ranks, &t);
  }
  bppsa_dataset_destroy(dataset);
  bppsa_network_close(&network);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(schedules_train), cmocka_unit_test(ranks_evaluate)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
