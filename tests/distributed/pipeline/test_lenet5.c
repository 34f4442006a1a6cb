/* LeNet-5's chain of transposed Jacobians over 3 ranks, as the scan of a model: its gradients against those of BP. */
#include "tests/cnn/problems.h"
#include "tests/distributed/sparse_ranks.h"

static int64_t rank_count, executions;

/* An executor for the whole chain that gives every rank its elements. */
static bppsa_status on_ranks(bppsa_scan_executor *executor, const bppsa_scan_operands *operands) {
  sparse_job j = {.config = *bppsa_scan_plan_config(executor->plan),
                  .batch = operands->batch,
                  .values = operands->values,
                  .gradients = operands->gradients};
  const bppsa_comm_config config = {.ranks = rank_count, .timeout = 60};
  ++executions;
  return bppsa_comm_run(&config, sparse_rank, &j, NULL);
}

static void drop(bppsa_scan_executor *executor) {
  bppsa_free(executor);
}

static bppsa_status make(void *context, const bppsa_scan_plan *plan, const bppsa_device *device, bppsa_scan_executor **executor) {
  (void)context, (void)device;
  *executor = bppsa_calloc(1, sizeof **executor);
  if (*executor == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  **executor = (bppsa_scan_executor){.execute = on_ranks, .destroy = drop, .plan = plan};
  return BPPSA_OK;
}

static result pass(const problem *p, const bppsa_cnn_config *config, const bppsa_device *device) {
  bppsa_model *model = make_model(p, config, device);
  inputs in = put_inputs(p, config->dtype, device);
  bppsa_view logits;
  if (model->ops->forward(model, &in.x, NULL, &logits) != BPPSA_OK || model->ops->backward(model, &in.seed) != BPPSA_OK) {
    fail_msg("%d ranks: %s", (int)rank_count, bppsa_last_error());
  }
  const result r = take_result(p, model, device, &logits, true);
  bppsa_model_destroy(model);
  drop_inputs(&in);
  return r;
}

static void lenet5(void **state) {
  (void)state;
  static const int64_t levels[] = {0, -1}; /* linear, blelloch with all levels */
  bppsa_device *device = cpu_device(1);
  bppsa_cnn_network network;
  problem p;
  assert_int_equal(bppsa_cnn_network_builtin("lenet5", &network), BPPSA_OK);
  make_problem(network, 2, BPPSA_F64, 3, &p);
  bppsa_cnn_config bp = config_of(&p, BPPSA_F64, BPPSA_BACKWARD_BP, 0);
  result reference = pass(&p, &bp, device);
  for (int m = 0; m < 2; ++m) {
    for (rank_count = 3; rank_count <= 4; ++rank_count) {
      bppsa_cnn_config scan = config_of(&p, BPPSA_F64, BPPSA_BACKWARD_SCAN, levels[m]);
      scan.factory.create = make;
      const int64_t before = executions;
      result r = pass(&p, &scan, device);
      assert_int_equal(executions, before + 1);
      compare(&p, BPPSA_F64, &r, &reference, (int)rank_count);
      free_result(&r);
    }
  }
  free_result(&reference);
  free_problem(&p);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(lenet5)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
