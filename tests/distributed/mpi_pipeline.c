/* A program for mpirun: the schedules of pipeline_case.h on processes, against one device, bit for bit, on every rank that holds
 * the weights. tests/comm/test_mpi.sh runs it. */
#include <stdio.h>

#include "tests/distributed/pipeline_case.h"

static bppsa_status every_scheme(bppsa_comm *comm, void *context) {
  static pipeline_case one, many; /* large */
  const bppsa_cnn_network *network = context;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    many = new_case(network, cases[i].scheme, cases[i].stages, cases[i].micro_batches);
    apply(&cases[i], &many.config);
    many.runs = 3;
    BPPSA_TRY(run_rank(comm, &many));
    if (bppsa_comm_rank(comm) > 0) {
      continue;
    }
    one = new_case(network, cases[i].scheme, 1, 1);
    train_on_one_device(&one, many.updates, blocks_of(&cases[i]), SAMPLES / parts_of(&cases[i]));
    if (memcmp(one.losses, many.losses, (size_t)many.updates * sizeof *one.losses) != 0 ||
        memcmp(one.values, many.values, MOST_BYTES) != 0) {
      return bppsa_fail(BPPSA_ERR_NUMERIC, "%s, case %d: not the bits of one device", cases[i].scheme, (int)i);
    }
  }
  return BPPSA_OK;
}

int main(void) {
  const bppsa_comm_config config = {.transport = BPPSA_COMM_MPI, .timeout = 60};
  bppsa_cnn_network network;
  bppsa_comm_outcome outcome;
  bppsa_status status = bppsa_cnn_network_parse("small", small_network, (int64_t)strlen(small_network), &network);
  if (status != BPPSA_OK) {
    printf("%s\n", bppsa_last_error());
    return 1;
  }
  status = bppsa_comm_run(&config, every_scheme, &network, &outcome);
  if (status != BPPSA_OK) {
    printf("%s\n", outcome.here ? bppsa_last_error() : "another rank failed");
    bppsa_comm_end_job(1);
  }
  bppsa_cnn_network_free(&network);
  return status != BPPSA_OK;
}
