/* Recurrent networks cut along time on ranks with GPUs, of which they share some or have one each, over threads and, where the
 * program has it, over NCCL: loss and gradients against the textbook's. The device is BPPSA_TEST_DEVICE; on a processor the same
 * cases run there. */
#include "tests/distributed/split_problem.h"
#include "tests/support/gpus.h"
#include "tests/support/lstm_reference.h"

static int32_t gpus; /* 0: the ranks compute on processors */
static bool nccl;

static const bppsa_gradient_method methods[] = {
    {.backward = BPPSA_BACKWARD_BP},
    {.backward = BPPSA_BACKWARD_SCAN, .scan = {.algorithm = BPPSA_SCAN_LINEAR, .up_levels = -1}},
    {.backward = BPPSA_BACKWARD_SCAN, .scan = {.algorithm = BPPSA_SCAN_CHUNKED, .up_levels = -1}},
    {.backward = BPPSA_BACKWARD_SCAN, .scan = {.algorithm = BPPSA_SCAN_CHUNKED, .up_levels = -1, .chunks = 2}},
    {.backward = BPPSA_BACKWARD_SCAN, .scan = {.algorithm = BPPSA_SCAN_BLELLOCH, .up_levels = -1}},
    {.backward = BPPSA_BACKWARD_SCAN, .scan = {.algorithm = BPPSA_SCAN_AUTO, .up_levels = -1}}};
enum { BP, LINEAR, CHUNKED, TWO_CHUNKS, BLELLOCH, AUTO };

static bppsa_status run_job(split_job *j, int64_t ranks) {
  const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
  return bppsa_comm_run(&config, split_rank, j, NULL);
}

static void compare(const bppsa_recurrent_config *c, int method, int64_t ranks, int64_t groups, uint64_t seed) {
  problem p = make_problem(c, true, seed);
  split_job j = {.p = &p, .method = methods[method], .micro_batches = groups, .repeats = 2, .gpus = gpus};
  j.loss = reference(&p);
  for (int transport = 0; transport <= (nccl && ranks <= gpus ? 1 : 0); ++transport) {
    j.nccl = transport == 1;
    if (run_job(&j, ranks) != BPPSA_OK) {
      fail_msg("%s, method %d, %s, %d ranks, T %d, H %d, L %d, loss all %d, %d groups: %s", cell.cell->name, method,
               j.nccl ? "nccl" : "threads", (int)ranks, (int)c->seq_len, (int)c->hidden, (int)c->layers, (int)c->loss_all,
               (int)groups, bppsa_last_error());
    }
  }
  free_problem(&p);
}

static bppsa_recurrent_config small(int64_t steps) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.dtype = BPPSA_F64;
  c.input_gradients = true;
  c.classes = 3;
  c.hidden = 4;
  c.input = 2;
  c.batch = 3;
  c.seq_len = steps;
  return c;
}

/* Every method on 1 to 5 ranks, more of them than GPUs and than steps too; both losses, one to three layers and groups. */
static void every_method(void **state) {
  (void)state;
  static const struct {
    int64_t ranks, steps, layers, groups;
    bool all, gru;
    int method;
  } cases[] = {
      {1, 5, 1, 1, false, true, CHUNKED},      {2, 7, 2, 1, true, true, TWO_CHUNKS},  {2, 8, 1, 2, false, false, CHUNKED},
      {2, 1, 1, 1, false, true, BP},           {3, 9, 2, 1, false, true, CHUNKED},    {3, 10, 1, 2, true, false, BP},
      {4, 13, 1, 1, true, true, CHUNKED},      {4, 3, 1, 1, true, false, TWO_CHUNKS}, {4, 9, 1, 3, false, true, LINEAR},
      {5, 11, 1, 1, false, false, TWO_CHUNKS}, {1, 5, 1, 1, true, false, BLELLOCH},   {2, 7, 2, 1, false, true, BLELLOCH},
      {3, 9, 1, 2, true, false, BLELLOCH},     {4, 13, 2, 1, true, true, BLELLOCH},   {4, 9, 1, 3, false, false, BLELLOCH},
      {4, 3, 1, 1, false, true, BLELLOCH}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    bppsa_recurrent_config c = small(cases[i].steps);
    c.layers = cases[i].layers;
    c.loss_all = cases[i].all;
    cell = cases[i].gru ? (cell_reference)GRU_REFERENCE : (cell_reference)RNN_REFERENCE;
    compare(&c, cases[i].method, cases[i].ranks, cases[i].groups, 3 + i);
  }
}

/* States that are pairs: BP by the layer's own kernels, scans over ranks. */
static void pairs(void **state) {
  (void)state;
  static const struct {
    int64_t ranks, steps, layers, groups;
    bool all;
    int method;
  } cases[] = {{1, 5, 1, 1, false, CHUNKED}, {2, 7, 2, 1, true, BP},       {2, 8, 1, 2, false, CHUNKED},
               {3, 9, 2, 1, true, CHUNKED},  {4, 9, 1, 3, false, LINEAR},  {4, 13, 2, 1, true, BLELLOCH},
               {3, 10, 1, 2, false, BP},     {4, 3, 1, 1, false, BLELLOCH}};
  cell = (cell_reference)LSTM_REFERENCE;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    bppsa_recurrent_config c = small(cases[i].steps);
    c.layers = cases[i].layers;
    c.loss_all = cases[i].all;
    compare(&c, cases[i].method, cases[i].ranks, cases[i].groups, 30 + i);
  }
}

/* H beyond the fused kernels: chunked is a scan over ranks there, and what AUTO chooses. */
static void wide(void **state) {
  (void)state;
  static const struct {
    int64_t ranks, steps, layers;
    bool all, gru;
    int method;
  } cases[] = {{2, 3, 1, false, true, BP},       {3, 4, 2, true, false, LINEAR},   {3, 6, 1, true, true, CHUNKED},
               {4, 5, 2, false, false, CHUNKED}, {4, 6, 1, true, false, BLELLOCH}, {3, 4, 1, false, true, BLELLOCH},
               {3, 4, 1, false, false, AUTO}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    bppsa_recurrent_config c = small(cases[i].steps);
    c.hidden = 33;
    c.batch = i < 2 ? 2 : 1;
    c.layers = cases[i].layers;
    c.loss_all = cases[i].all;
    cell = cases[i].gru ? (cell_reference)GRU_REFERENCE : (cell_reference)RNN_REFERENCE;
    compare(&c, cases[i].method, cases[i].ranks, 1, 40 + i);
  }
}

/* Ranks on a processor and on a GPU would not send each other the same messages. */
static bppsa_status refused_on_all(bppsa_comm *comm, void *context) {
  const bppsa_recurrent_config c = small(5);
  const bppsa_split_time split = {.comm = comm, .micro_batches = 1};
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  (void)context;
  BPPSA_TRY(bppsa_device_create(bppsa_comm_rank(comm) == 0 ? "cpu" : "cuda:0", 1, &device));
  bppsa_comm_set_device(comm, device);
  CHECK(bppsa_split_time_create(&split, &c, &bppsa_gru_cell, device, &model) == BPPSA_ERR_ARGUMENT && model == NULL);
  CHECK(strstr(bppsa_last_error(), "split time: device is 1 on rank 1, expected 0 as on rank 0") != NULL);
  bppsa_comm_set_device(comm, NULL);
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

/* Behind forward passes in parallel over time, which mend: every method, both losses, groups. */
static void forward_passes(void **state) {
  (void)state;
  static const struct {
    int64_t ranks, steps, layers, groups, hidden;
    bool all;
    cell_reference cell;
    int method;
  } cases[] = {{2, 40, 1, 1, 4, false, GRU_REFERENCE, CHUNKED},   {3, 50, 2, 1, 4, true, RNN_REFERENCE, BP},
               {4, 33, 1, 3, 4, true, GRU_REFERENCE, TWO_CHUNKS}, {8, 40, 2, 2, 4, false, RNN_REFERENCE, BLELLOCH},
               {1, 30, 2, 2, 4, true, GRU_REFERENCE, LINEAR},     {3, 12, 2, 1, 33, true, GRU_REFERENCE, BP},
               {3, 40, 2, 1, 4, true, LSTM_REFERENCE, BP},        {4, 33, 1, 2, 4, false, LSTM_REFERENCE, CHUNKED},
               {2, 12, 1, 1, 33, true, LSTM_REFERENCE, BP}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    bppsa_recurrent_config c = small(cases[i].steps);
    c.layers = cases[i].layers;
    c.loss_all = cases[i].all;
    c.hidden = cases[i].hidden;
    c.forward.kind = BPPSA_FORWARD_SPECULATIVE;
    c.forward.chunks = 5;
    c.forward.warm_up = 2;
    cell = cases[i].cell;
    compare(&c, cases[i].method, cases[i].ranks, cases[i].groups, 60 + i);
  }
}

static void mixed_devices(void **state) {
  (void)state;
  const bppsa_comm_config config = {.ranks = 2, .timeout = 60};
  if (gpus == 0) {
    skip();
  }
  if (bppsa_comm_run(&config, refused_on_all, NULL, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_method), cmocka_unit_test(pairs), cmocka_unit_test(wide),
                                     cmocka_unit_test(mixed_devices), cmocka_unit_test(forward_passes)};
  gpus = gpus_of_ranks(&nccl);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
