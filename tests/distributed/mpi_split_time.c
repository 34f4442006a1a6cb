/* A program for mpirun: recurrent networks cut along time, against the textbook's gradients, with messages and bytes as in
 * docs/time-ranks.md. split_rank (split_problem.h) checks; the program fails where a check does. tests/comm/test_mpi.sh runs it. */
#include <stdio.h>

#include "tests/distributed/split_problem.h"

static const bppsa_gradient_method methods[] = {
    {.backward = BPPSA_BACKWARD_BP},
    {.backward = BPPSA_BACKWARD_SCAN, .scan = {.algorithm = BPPSA_SCAN_LINEAR, .up_levels = -1}},
    {.backward = BPPSA_BACKWARD_SCAN, .scan = {.algorithm = BPPSA_SCAN_CHUNKED, .up_levels = -1}},
    {.backward = BPPSA_BACKWARD_SCAN, .scan = {.algorithm = BPPSA_SCAN_BLELLOCH, .up_levels = -1}}};

static bppsa_status every_method(bppsa_comm *comm, void *context) {
  static const int64_t lengths[] = {1, 2, 5, 17, 40, 1000};
  (void)context;
  for (unsigned i = 0; i < 4 * sizeof lengths / sizeof *lengths; ++i) {
    bppsa_recurrent_config c = bppsa_recurrent_config_default();
    c.dtype = BPPSA_F64;
    c.input_gradients = true;
    c.classes = 3;
    c.hidden = 4;
    c.input = 2;
    c.batch = 3;
    c.seq_len = lengths[i / 4];
    c.layers = 1 + i % 2;
    c.loss_all = i / 2 % 2 == 1;
    cell = i % 2 == 0 ? (cell_reference)RNN_REFERENCE : (cell_reference)GRU_REFERENCE;
    problem p = make_problem(&c, true, i);
    split_job j = {.p = &p, .micro_batches = 1 + i % 3, .loss = reference(&p), .count = true, .repeats = 2};
    bppsa_status status = BPPSA_OK;
    for (size_t m = 0; status == BPPSA_OK && m < sizeof methods / sizeof *methods; ++m) {
      j.method = methods[m];
      status = split_rank(comm, &j);
    }
    free_problem(&p);
    if (status != BPPSA_OK) {
      return bppsa_fail_prefix(status, "%s, %d steps, loss all %d", cell.cell->name, (int)c.seq_len, (int)c.loss_all);
    }
  }
  return BPPSA_OK;
}

int main(void) {
  const bppsa_comm_config config = {.transport = BPPSA_COMM_MPI, .timeout = 60};
  bppsa_comm_outcome outcome;
  const bppsa_status status = bppsa_comm_run(&config, every_method, NULL, &outcome);
  if (status != BPPSA_OK) {
    printf("%s\n", outcome.here ? bppsa_last_error() : "another rank failed");
    bppsa_comm_end_job(1);
  }
  return status != BPPSA_OK;
}
