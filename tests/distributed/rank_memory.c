/* rank_memory TRANSPORT RANKS T B H METHOD: the memory of every rank for a forward and a backward pass of an RNN layer cut along
 * time, f32, as a JSON document. `bytes` and `peak` are the allocator's, `formula` that of docs/time-ranks.md with the rank's
 * input; `resident` is what the process grew by (with threads: all ranks together). bench/scripts/rank_memory.py runs it and
 * checks what it prints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "distributed/time/split_time.h"
#include "rnn/rnn.h"

typedef struct {
  bppsa_recurrent_config config;
  int64_t resident; /* of the process before the run */
} request;

/* Bytes of this process in memory; 0 if the system does not say. */
static int64_t resident_bytes(void) {
  char line[256];
  long long kib = 0;
  FILE *status = fopen("/proc/self/status", "r");
  while (status != NULL && fgets(line, sizeof line, status) != NULL && sscanf(line, "VmRSS: %lld kB", &kib) != 1) {
  }
  if (status != NULL) {
    fclose(status);
  }
  return 1024 * (int64_t)kib;
}

static int64_t formula_of(const bppsa_recurrent_config *c, int64_t steps) {
  const bool scan = c->method.backward == BPPSA_BACKWARD_SCAN;
  return steps * c->batch * (int64_t)sizeof(float) * (c->hidden * (c->layers + 1 + 1 + scan) + c->input);
}

enum { STEPS, FORMULA, BYTES, PEAK, RESIDENT, NUMBERS };

static bppsa_status report(bppsa_comm *comm, const bppsa_recurrent_config *c, int64_t steps, int64_t before) {
  const int32_t ranks = bppsa_comm_size(comm);
  int64_t mine[NUMBERS] = {[STEPS] = steps, [FORMULA] = formula_of(c, steps), [RESIDENT] = resident_bytes() - before};
  const int64_t count = NUMBERS, shape[2] = {ranks, NUMBERS};
  bppsa_comm_get_memory(comm, &mine[BYTES], &mine[PEAK]);
  int64_t(*all)[NUMBERS] = bppsa_calloc(ranks, sizeof *all);
  if (all == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_view view = bppsa_view_make(mine, BPPSA_I64, 1, &count), to = bppsa_view_make(all, BPPSA_I64, 2, shape);
  const bppsa_status status = bppsa_comm_gather(comm, 0, &view, NULL, &to);
  for (int32_t r = 0; status == BPPSA_OK && bppsa_comm_rank(comm) == 0 && r < ranks; ++r) {
    printf("%s{\"rank\": %d, \"steps\": %lld, \"formula\": %lld, \"bytes\": %lld, \"peak\": %lld, \"resident\": %lld}%s\n",
           r == 0 ? "[" : " ", (int)r, (long long)all[r][STEPS], (long long)all[r][FORMULA], (long long)all[r][BYTES],
           (long long)all[r][PEAK], (long long)all[r][RESIDENT], r + 1 == ranks ? "]" : ",");
  }
  bppsa_free(all);
  return status;
}

static bppsa_status pass(bppsa_comm *comm, const bppsa_recurrent_config *c, bppsa_model *m, int64_t before) {
  int64_t first, steps;
  bppsa_ranks_share(c->seq_len, bppsa_comm_size(comm), bppsa_comm_rank(comm), &first, &steps);
  float *x = bppsa_calloc(steps * c->batch * c->input, sizeof *x);
  float *numbers = bppsa_calloc(c->batch * c->classes, sizeof *numbers);
  bppsa_status status = x != NULL && numbers != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
  bppsa_view logits;
  if (status == BPPSA_OK) {
    for (int64_t i = 0; i < steps * c->batch * c->input; ++i) {
      x[i] = (float)((first + i) % 2);
    }
    const bppsa_view view = bppsa_view_make(x, BPPSA_F32, 3, (int64_t[]){steps, c->batch, c->input});
    status = m->ops->forward(m, &view, NULL, &logits);
  }
  if (status == BPPSA_OK) {
    const bppsa_view seed = bppsa_view_make(numbers, BPPSA_F32, 2, logits.shape);
    for (int64_t i = 0; i < bppsa_view_count(&seed); ++i) {
      numbers[i] = 1;
    }
    status = m->ops->backward(m, &seed);
  }
  status = status == BPPSA_OK ? report(comm, c, steps, before) : status;
  bppsa_free(x);
  bppsa_free(numbers);
  return status;
}

static bppsa_status run_rank(bppsa_comm *comm, void *context) {
  const request *r = context;
  bppsa_device *device = NULL;
  bppsa_model *m = NULL;
  const bppsa_split_time split = {.comm = comm, .micro_batches = 1};
  bppsa_status status = bppsa_device_create("cpu", 1, &device);
  status = status == BPPSA_OK ? bppsa_split_time_create(&split, &r->config, &bppsa_rnn_cell, device, &m) : status;
  status = status == BPPSA_OK ? bppsa_split_time_init(m, BPPSA_INIT_ORTHOGONAL, 1) : status;
  status = status == BPPSA_OK ? pass(comm, &r->config, m, r->resident) : status;
  bppsa_model_destroy(m);
  bppsa_device_destroy(device);
  return status;
}

int main(int argc, char **argv) {
  bppsa_comm_config config = {.timeout = 300};
  request r = {.config = bppsa_recurrent_config_default(), .resident = resident_bytes()};
  if (argc != 7 || bppsa_comm_transport_parse(argv[1], &config.transport) != BPPSA_OK ||
      bppsa_gradient_method_parse(argv[6], &r.config.method) != BPPSA_OK) {
    fprintf(stderr, "rank_memory: %s, expected TRANSPORT RANKS T B H METHOD\n",
            argc == 7 ? bppsa_last_error() : "wrong arguments");
    return 2;
  }
  config.ranks = atoll(argv[2]);
  r.config.seq_len = atoll(argv[3]);
  r.config.batch = atoll(argv[4]);
  r.config.hidden = atoll(argv[5]);
  bppsa_comm_outcome outcome;
  const bppsa_status status = bppsa_comm_run(&config, run_rank, &r, &outcome);
  if (status != BPPSA_OK) {
    fprintf(stderr, "rank_memory: %s\n", outcome.here ? bppsa_last_error() : "another rank failed");
    bppsa_comm_end_job(1);
  }
  return status != BPPSA_OK;
}
