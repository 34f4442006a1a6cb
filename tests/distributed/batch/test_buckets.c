/* The buckets in which gradients and numbers travel: how many they are, what is added up in them, memory that runs out. */
#include "tests/distributed/ranked_run.h"

/* What every rank does with its own model. */
typedef bppsa_status (*action)(bppsa_comm *comm, ranked_run *run, bppsa_model *model, const bppsa_device *device);

typedef struct {
  ranked_run *run;
  action act;
} job;

static bppsa_status act_with_model(bppsa_comm *comm, void *context) {
  const job *j = context;
  bppsa_network_config config = j->run->config;
  bppsa_model *model = NULL;
  bppsa_device *device = NULL;
  config.batch = bppsa_data_parallel_block(&j->run->parallel, bppsa_comm_size(comm));
  bppsa_status status = bppsa_device_create("cpu", 1, &device);
  status = status == BPPSA_OK ? bppsa_network_create(j->run->network, &config, device, &model) : status;
  status = status == BPPSA_OK ? bppsa_network_init(j->run->network, model, BPPSA_INIT_DEFAULT, 0) : status;
  status = status == BPPSA_OK ? j->act(comm, j->run, model, device) : status;
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  return status;
}

/* Runs the action on so many ranks, with batches of four blocks. Returns the products that rank 0 says were redone. */
static int64_t act_on_ranks(int64_t ranks, int64_t steps, action act) {
  enum { BATCH = 64 };
  bppsa_network network;
  assert_int_equal(bppsa_network_open("rnn", NULL, &network), BPPSA_OK);
  bppsa_dataset *dataset = bits(BATCH, 3, false, false);
  ranked_run run = ranked(&network, dataset, BPPSA_F32, BATCH, steps);
  bppsa_comm_config config = bppsa_comm_config_default();
  job j = {&run, act};
  config.ranks = ranks;
  run.parallel.batch = BATCH;
  const int64_t live = bppsa_alloc_live();
  if (bppsa_comm_run(&config, act_with_model, &j, NULL) != BPPSA_OK) {
    fail_msg("%d ranks: %s", (int)ranks, bppsa_last_error());
  }
  assert_int_equal(bppsa_alloc_live(), live);
  bppsa_dataset_destroy(dataset);
  bppsa_network_close(&network);
  return run.result.redone;
}

/* ---- numbers ---- */

/* A model that redoes five products in each pass. */
static bppsa_status redo_five(bppsa_model *model) {
  static _Thread_local int64_t redone; /* of this rank, which is a thread */
  model->redone = redone += 5;
  return BPPSA_OK;
}

static bppsa_status train_redoing(bppsa_comm *comm, ranked_run *run, bppsa_model *model, const bppsa_device *device) {
  bppsa_model_ops ops = *model->ops;
  const bppsa_model_ops *own = model->ops;
  ops.count = redo_five;
  model->ops = &ops;
  const bppsa_status status = train_model(comm, run, model, device);
  model->ops = own;
  return status;
}

/* Products that are redone are added up over blocks, ranks and steps. */
static void redone_products_are_added_up(void **state) {
  (void)state;
  enum { RUN_STEPS = 3, BLOCKS = 4 };
  for (int64_t ranks = 1; ranks <= BLOCKS; ranks *= 2) {
    assert_int_equal(act_on_ranks(ranks, RUN_STEPS, train_redoing), 5 * BLOCKS * RUN_STEPS);
  }
}

/* ---- sizes ---- */

static bppsa_status count_buckets(bppsa_comm *comm, ranked_run *run, bppsa_model *model, const bppsa_device *device) {
  (void)device;
  int64_t bytes = 0, found[3] = {0};
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    bytes += (int64_t)bppsa_view_bytes(&model->parameters[i].gradient);
  }
  for (int i = 0; i < 3; ++i) {
    bppsa_data_parallel_config parallel = run->parallel;
    bppsa_data_parallel *dp = NULL;
    parallel.bucket_bytes = i == 0 ? 1 : i == 1 ? bytes / 2 : bytes + 1;
    BPPSA_TRY(bppsa_data_parallel_create(comm, model, &parallel, &dp));
    found[i] = bppsa_data_parallel_buckets(dp);
    bppsa_data_parallel_destroy(dp);
  }
  CHECK(model->parameter_count > 2 && found[0] == model->parameter_count && found[1] == 2 && found[2] == 1);
  return BPPSA_OK;
}

/* A bucket ends when it has its bytes. A bucket of 1 byte holds one parameter, one larger than all gradients holds all parameters;
 * buckets of half of all bytes are two, because the last parameters are small. */
static void buckets_have_their_bytes(void **state) {
  (void)state;
  (void)act_on_ranks(1, 1, count_buckets);
}

/* ---- memory ---- */

static bppsa_status create_without_memory(bppsa_comm *comm, ranked_run *run, bppsa_model *model, const bppsa_device *device) {
  (void)device;
  int64_t failures = 0, buckets = 0;
  bool made = false;
  for (int64_t n = 1; !made; ++n) {
    bppsa_data_parallel *dp = NULL;
    bppsa_alloc_fail_at(n);
    const bppsa_status created = bppsa_data_parallel_create(comm, model, &run->parallel, &dp);
    bppsa_alloc_fail_at(0);
    failures += created == BPPSA_ERR_MEMORY ? 1 : 0;
    made = created == BPPSA_OK;
    buckets = created == BPPSA_OK ? bppsa_data_parallel_buckets(dp) : 0;
    bppsa_data_parallel_destroy(dp);
    BPPSA_TRY(created == BPPSA_ERR_MEMORY ? BPPSA_OK : created);
  }
  CHECK(buckets > 2 && failures > 5 * (buckets + 1)); /* an array for each bucket, and the four of its sum over full batches */
  return BPPSA_OK;
}

/* Every allocation of a rank's part fails once; nothing is left behind. */
static void survives_without_memory(void **state) {
  (void)state;
  (void)act_on_ranks(1, 1, create_without_memory);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(redone_products_are_added_up), cmocka_unit_test(buckets_have_their_bytes),
                                     cmocka_unit_test(survives_without_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
