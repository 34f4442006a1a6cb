/* Views without data, and no view at all, for every kind of model and for the weights of a pipeline: ERR_ARGUMENT, no crash. */
#include "distributed/layers/layer_split.h"
#include "distributed/time/split_time.h"
#include "rnn/rnn.h"
#include "tests/distributed/pipeline_case.h"

static const char images[] =
    "{\"input\": [1, 4, 4], \"layers\": [{\"name\": \"conv\", \"op\": \"conv2d\", \"out\": 2, \"kernel\": 3, \"padding\": 1}, "
    "{\"name\": \"fc\", \"op\": \"linear\", \"out\": 3}]}";

static bool refused(bppsa_status status, const char *text) {
  return status == BPPSA_ERR_ARGUMENT && strstr(bppsa_last_error(), text) != NULL;
}

/* Calls the passes of a model with NULL in every place, before and after good passes. x and seed: views of its shapes. Destroys the
 * model. */
static bppsa_status refuses_null(bppsa_model *model, bppsa_view x, bppsa_view seed) {
  bppsa_view no_x = x, no_seed = seed, logits;
  no_x.data = no_seed.data = NULL;
  for (int pass = 0; pass < 2; ++pass) {
    CHECK(refused(model->ops->forward(model, NULL, NULL, &logits), "x != NULL"));
    CHECK(refused(bppsa_model_forward(model, NULL, NULL, NULL, &logits), "x != NULL"));
    CHECK(refused(bppsa_model_forward(model, &no_x, NULL, NULL, &logits), "its data are NULL"));
    BPPSA_TRY(bppsa_model_forward(model, &x, NULL, NULL, &logits));
    CHECK(refused(model->ops->backward(model, NULL), "seed != NULL"));
    CHECK(refused(model->ops->backward(model, &no_seed), "seed: its data are NULL"));
    BPPSA_TRY(model->ops->backward(model, &seed));
  }
  bppsa_named_view values[MOST_PARAMETERS];
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    values[i] = (bppsa_named_view){model->parameters[i].name, model->parameters[i].value};
  }
  values[0].view.data = NULL;
  CHECK(refused(bppsa_model_set(model, "W", model->parameter_count, values), "its data are NULL"));
  bppsa_model_destroy(model);
  return BPPSA_OK;
}

enum { STEPS = 3, BATCH = 2, INPUTS = 2, OUTPUTS = 3 };

static bppsa_status sequences(bppsa_comm *comm, void *context) {
  float numbers[32] = {0};
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  (void)context;
  c.seq_len = STEPS;
  c.batch = BATCH;
  c.input = INPUTS;
  c.hidden = 4;
  c.classes = OUTPUTS;
  const bppsa_view x = bppsa_view_make(numbers, BPPSA_F32, 3, (int64_t[]){STEPS, BATCH, INPUTS});
  const bppsa_view seed = bppsa_view_make(numbers, BPPSA_F32, 2, (int64_t[]){BATCH, OUTPUTS});
  bppsa_view none = bppsa_view_make(NULL, BPPSA_F32, 3, (int64_t[]){STEPS, BATCH, INPUTS}), logits;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  BPPSA_TRY(bppsa_recurrent_create(&c, &bppsa_rnn_cell, device, &model));
  CHECK(refused(bppsa_recurrent_forward_layers(model, &none, NULL), "x: its data are NULL"));
  none = bppsa_view_make(NULL, BPPSA_F32, 3, (int64_t[]){1, BATCH, 4});
  CHECK(refused(bppsa_recurrent_forward_layers(model, &x, &none), "h0: its data are NULL"));
  CHECK(refused(bppsa_model_forward(model, &x, &none, NULL, &logits), "h0: its data are NULL"));
  BPPSA_TRY(bppsa_recurrent_forward_layers(model, &x, NULL));
  none = bppsa_view_make(NULL, BPPSA_F32, 2, (int64_t[]){BATCH, 4});
  CHECK(refused(bppsa_recurrent_backward_layers(model, &none), "seed: its data are NULL"));
  CHECK(refused(bppsa_recurrent_init(model, (bppsa_init)77, 1), "init"));
  CHECK(refused(bppsa_recurrent_init(model, (bppsa_init)-1, 1), "init"));
  BPPSA_TRY(refuses_null(model, x, seed));
  const bppsa_split_time split = {.comm = comm, .micro_batches = 1};
  BPPSA_TRY(bppsa_split_time_create(&split, &c, &bppsa_rnn_cell, device, &model));
  BPPSA_TRY(refuses_null(model, x, seed));
  /* a part whose sequence has no length, or less than none */
  const int64_t lengths[] = {INT64_MIN, -1, 1, STEPS - 1};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
    c.part.seq_len = lengths[i];
    CHECK(refused(bppsa_recurrent_create(&c, &bppsa_rnn_cell, device, &model), "expected a part of it"));
  }
  c.part = (bppsa_forward_part){.seq_len = INT64_MAX, .first = INT64_MAX};
  CHECK(refused(bppsa_recurrent_create(&c, &bppsa_rnn_cell, device, &model), "expected a part of it"));
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static bppsa_status pictures(bppsa_comm *comm, void *context) {
  const bppsa_cnn_network *network = context;
  float numbers[BATCH * 16] = {0};
  const bppsa_view x = bppsa_view_make(numbers, BPPSA_F32, 4, (int64_t[]){BATCH, 1, 4, 4});
  const bppsa_view seed = bppsa_view_make(numbers, BPPSA_F32, 2, (int64_t[]){BATCH, OUTPUTS});
  bppsa_cnn_config config = bppsa_cnn_config_default();
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  config.batch = BATCH;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  BPPSA_TRY(bppsa_cnn_create(network, &config, device, &model));
  BPPSA_TRY(refuses_null(model, x, seed));
  const bppsa_layer_split_config split = {.strategy = BPPSA_LAYERS_SPATIAL, .group = comm, .batch = BATCH, .dtype = BPPSA_F32};
  BPPSA_TRY(bppsa_layer_split_create(network, &split, device, &model));
  BPPSA_TRY(refuses_null(model, x, seed));
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static bppsa_status weights(bppsa_comm *comm, void *context) {
  const bppsa_cnn_network *network = context;
  const pipeline_case like = {.network = network, .dtype = BPPSA_F32};
  bppsa_schedule_config c = bppsa_schedule_config_default();
  bppsa_device *device = NULL;
  bppsa_chain *chain = NULL;
  bppsa_model *model = NULL;
  bppsa_optimizer *optimizer = NULL;
  bppsa_schedule *list = NULL;
  bppsa_pipeline *p = NULL;
  bppsa_view views[MOST_PARAMETERS];
  c.stages = 1;
  c.layers = network->count;
  c.window = BPPSA_WINDOW_ITERATION;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  BPPSA_TRY(bppsa_cnn_chain_create(network, SAMPLES, BPPSA_F32, device, &chain));
  BPPSA_TRY(make_model(&like, 1, device, &model));
  BPPSA_TRY(bppsa_schedule_create("gpipe", &c, &list));
  const bppsa_pipeline_config settings = {.schedule = list, .samples = SAMPLES, .optimizer = bppsa_optimizer_config_default()};
  BPPSA_TRY(bppsa_optimizer_create(&settings.optimizer, model, &optimizer));
  bppsa_optimizer_state *state = bppsa_optimizer_get_state(optimizer);
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    views[i] = model->parameters[i].value;
  }
  void *const data = views[1].data;
  views[1].data = NULL;
  CHECK(refused(bppsa_pipeline_create(comm, chain, &settings, views, &p), "conv.bias: its data are NULL"));
  views[1].data = data;
  BPPSA_TRY(bppsa_pipeline_create(comm, chain, &settings, views, &p));
  views[1].data = NULL;
  CHECK(refused(bppsa_pipeline_collect(p, views, NULL), "conv.bias: its data are NULL"));
  CHECK(refused(bppsa_pipeline_place(p, views, NULL), "conv.bias: its data are NULL"));
  views[1].data = data;
  void *const moment = state->tensors[2].view.data;
  state->tensors[2].view.data = NULL;
  CHECK(refused(bppsa_pipeline_collect(p, views, state), "conv.bias.exp_avg: its data are NULL"));
  CHECK(refused(bppsa_pipeline_place(p, views, state), "conv.bias.exp_avg: its data are NULL"));
  state->tensors[2].view.data = moment;
  BPPSA_TRY(bppsa_pipeline_collect(p, views, state));
  bppsa_pipeline_destroy(p);
  bppsa_optimizer_destroy(optimizer);
  bppsa_schedule_destroy(list);
  bppsa_model_destroy(model);
  bppsa_chain_destroy(chain);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static void run_all(bppsa_status (*work)(bppsa_comm *, void *)) {
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_parse("images", images, (int64_t)strlen(images), &network), BPPSA_OK);
  bppsa_comm_config comm = bppsa_comm_config_default();
  comm.ranks = 1;
  const bppsa_status status = bppsa_comm_run(&comm, work, &network, NULL);
  if (status != BPPSA_OK) {
    fail_msg("%d: %s", (int)status, bppsa_last_error());
  }
  bppsa_cnn_network_free(&network);
}

static void test_sequences(void **state) {
  (void)state;
  run_all(sequences);
}

static void test_pictures(void **state) {
  (void)state;
  run_all(pictures);
}

static void test_weights(void **state) {
  (void)state;
  run_all(weights);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sequences), cmocka_unit_test(test_pictures),
                                     cmocka_unit_test(test_weights)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
