/* What ranks that share layers tell the training loop: the samples of a group, the text on which bits depend, updates of a step. */
#include "distributed/layers/layer_train.h"

#include <math.h>
#include <time.h>

#include "cnn/cnn.h"
#include "core/base/alloc.h"
#include "tests/comm/cases.h"
#include "tests/support/support.h"
#include "train/ranks.h"

static void samples_are_shared(void **state) {
  (void)state;
  static const struct {
    int64_t batch, group, ranks, expected;
  } cases[] = {{8, 2, 4, 4}, {7, 2, 4, 4}, {9, 2, 4, 5}, {1, 1, 1, 1}, {16, 4, 4, 16}, {3, 1, 3, 1}, {4, 1, 3, 2}, {6, 1, 3, 2}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    const bppsa_layer_train_config config = {.batch = cases[i].batch, .group = cases[i].group};
    assert_int_equal(bppsa_layer_train_samples(&config, cases[i].ranks), cases[i].expected);
  }
}

static void texts_name_the_ranks(void **state) {
  (void)state;
  char text[160];
  bppsa_layer_train_config config = {.strategy = BPPSA_LAYERS_FILTER, .group = 4};
  assert_string_equal(bppsa_layer_train_text(&config, BPPSA_COMM_THREADS, 4, text, sizeof text),
                      "a tree over the 4 ranks of filter parallelism");
  config.group = 2;
  config.strategy = BPPSA_LAYERS_SPATIAL;
  config.reduction = BPPSA_REDUCTION_LIBRARY;
  assert_string_equal(bppsa_layer_train_text(&config, BPPSA_COMM_MPI, 4, text, sizeof text),
                      "the allreduce of mpi over 2 groups of 2 ranks of spatial parallelism");
}

static bppsa_status make(bppsa_comm *comm, void *context) {
  const bppsa_layer_strategy strategy = *(const bppsa_layer_strategy *)context;
  const int64_t ranks = bppsa_comm_size(comm);
  bppsa_cnn_network network;
  bppsa_device *device = cpu_device(1);
  bppsa_model *model = NULL;
  bppsa_layer_train *train = NULL;
  const bppsa_layer_train_config config = {
      .strategy = strategy, .group = ranks, .batch = 3, .optimizer = bppsa_optimizer_config_default()};
  bppsa_cnn_config cnn = bppsa_cnn_config_default();
  CHECK(bppsa_cnn_network_builtin("lenet5", &network) == BPPSA_OK);
  cnn.batch = bppsa_layer_train_samples(&config, ranks);
  bppsa_status status = bppsa_cnn_create(&network, &cnn, device, &model);
  status = status == BPPSA_OK ? bppsa_layer_train_create(comm, &network, model, &config, device, &train) : status;
  bool told = false;
  if (status == BPPSA_OK) {
    const bppsa_train_ranks *table = bppsa_layer_train_ranks(train);
    told = table->updates == 1 && table->forward_backward != NULL && bppsa_layer_train_part(train) != model;
  }
  bppsa_layer_train_destroy(train);
  bppsa_model_destroy(model);
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
  BPPSA_TRY(status);
  CHECK(told);
  return BPPSA_OK;
}

/* A step is one update, which the parts make themselves. */
static void a_step_is_one_update(void **state) {
  (void)state;
  bppsa_layer_strategy strategy = BPPSA_LAYERS_FILTER;
  for (int64_t ranks = 1; ranks <= 2; ++ranks) {
    const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
    if (bppsa_comm_run(&config, make, &strategy, NULL) != BPPSA_OK) {
      fail_msg("%d ranks: %s", (int)ranks, bppsa_last_error());
    }
  }
}

static double seconds_of(const bppsa_model *model) {
  double sum = 0;
  for (int phase = 0; phase < BPPSA_LAYER_PHASES; ++phase) {
    sum += bppsa_layer_split_seconds(model)[phase];
  }
  return sum;
}

/* What happens between two passes does not count as time of the layers. The machine may pause a pass: one of several tries is
 * enough. */
static void time_between_passes_does_not_count(void **state) {
  (void)state;
  const double pause = 0.1;
  const struct timespec nap = {.tv_nsec = 100000000};
  bppsa_cnn_network network;
  bppsa_device *device = cpu_device(1);
  bppsa_model *model = NULL;
  const bppsa_layer_split_config config = {.batch = 1, .dtype = BPPSA_F32, .alone = 2};
  assert_int_equal(bppsa_cnn_network_builtin("lenet5", &network), BPPSA_OK);
  assert_int_equal(bppsa_layer_split_create(&network, &config, device, &model), BPPSA_OK);
  float *x = bppsa_calloc(network.in[0] * network.in[1] * network.in[2], sizeof *x), seed[16] = {1};
  const bppsa_view in = bppsa_view_make(x, BPPSA_F32, 4, (int64_t[]){1, network.in[0], network.in[1], network.in[2]}),
                   out = bppsa_view_make(seed, BPPSA_F32, 2, (int64_t[]){1, model->classes});
  double least[2] = {INFINITY, INFINITY};
  for (int attempt = 0; attempt < 5 && !(least[0] < pause && least[1] < pause); ++attempt) {
    bppsa_view logits;
    (void)nanosleep(&nap, NULL);
    double before = seconds_of(model);
    assert_int_equal(model->ops->forward(model, &in, NULL, &logits), BPPSA_OK);
    least[0] = fmin(least[0], seconds_of(model) - before);
    (void)nanosleep(&nap, NULL);
    before = seconds_of(model);
    assert_int_equal(model->ops->backward(model, &out), BPPSA_OK);
    least[1] = fmin(least[1], seconds_of(model) - before);
  }
  assert_true(least[0] > 0 && least[0] < pause && least[1] > 0 && least[1] < pause);
  bppsa_model_destroy(model);
  bppsa_free(x);
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(samples_are_shared), cmocka_unit_test(texts_name_the_ranks),
                                     cmocka_unit_test(a_step_is_one_update),
                                     cmocka_unit_test(time_between_passes_does_not_count)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
