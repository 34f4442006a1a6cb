/* Data parallelism: ranks share the samples of every batch, and the network that they train has the same bits for 1, 2 and 4 of
 * them. Here the ranks are threads; with BPPSA_COMM_MPI in the configuration they are the processes that mpirun has started, and
 * nothing else changes. The program trains a GRU with each number of ranks, and exits with 1 if the weights differ by a bit. */
#include <bppsa_ranks.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 40, BATCH = 64, HIDDEN = 8, CLASSES = 2, STEPS = 20, WEIGHTS = 16384 /* bytes, more than the network has */ };

/* What all ranks read, and where the first one leaves the weights. */
typedef struct {
  double x[STEPS * BATCH][T]; /* the samples of all batches */
  int64_t labels[STEPS * BATCH];
  char weights[WEIGHTS];
  double loss;
} shared;

/* One rank's own. */
typedef struct {
  const shared *data;
  int step;
  const bppsa_device *device;
  bppsa_model *model;
} rank;

/* Computes a block of the batch: samples first .. first + count - 1. The loss and its gradient are divided by the rows of the
 * whole batch, so that the blocks of all ranks add up to it. */
static bppsa_status compute_block(void *context, int64_t first, int64_t count, bppsa_data_parallel_sums *sums) {
  const rank *r = (const rank *)context;
  double x[T * BPPSA_DATA_PARALLEL_BLOCK], seed[BPPSA_DATA_PARALLEL_BLOCK][CLASSES];
  for (int64_t b = 0; b < count; ++b) {
    for (int64_t t = 0; t < T; ++t) {
      x[t * count + b] = r->data->x[r->step * BATCH + first + b][t];
    }
  }
  const int64_t inputs[] = {T, count, 1}, outputs[] = {count, CLASSES};
  const bppsa_view input = bppsa_view_make(x, BPPSA_F64, 3, inputs), gradient = bppsa_view_make(seed, BPPSA_F64, 2, outputs);
  const bppsa_loss_rows rows = {.labels = &r->data->labels[r->step * BATCH + first], .mean_rows = BATCH};
  bppsa_view logits;
  bppsa_loss_result loss;
  BPPSA_TRY(bppsa_model_forward(r->model, &input, NULL, NULL, &logits));
  BPPSA_TRY(bppsa_loss_part(r->device, &logits, &rows, &gradient, &loss));
  BPPSA_TRY(bppsa_model_backward(r->model, &gradient));
  const bppsa_data_parallel_sums numbers = {loss.loss, (double)loss.correct, (double)loss.rows, 0, loss.weight};
  *sums = numbers;
  return BPPSA_OK;
}

static bppsa_status train(rank *r, bppsa_comm *world, shared *data) {
  bppsa_data_parallel_config config = bppsa_data_parallel_config_default();
  bppsa_optimizer_config adam = bppsa_optimizer_config_default();
  bppsa_optimizer *optimizer = NULL;
  bppsa_data_parallel *parallel = NULL;
  bppsa_data_parallel_sums sums = {0, 0, 0, 0, 0};
  double norm;
  adam.lr = 0.01;
  config.batch = BATCH;
  bppsa_status status = bppsa_data_parallel_create(world, r->model, &config, &parallel);
  status = status == BPPSA_OK ? bppsa_optimizer_create(&adam, r->model, &optimizer) : status;
  for (r->step = 0; status == BPPSA_OK && r->step < STEPS; ++r->step) {
    status = bppsa_data_parallel_compute(parallel, BATCH, compute_block, r, &sums); /* afterwards all ranks have all gradients */
    status = status == BPPSA_OK ? bppsa_optimizer_update(optimizer, r->device, 0, &norm) : status;
  }
  if (status == BPPSA_OK && bppsa_comm_rank(world) == 0) {
    data->loss = sums.loss;
    char *to = data->weights;
    for (int64_t i = 0; i < r->model->parameter_count; ++i) {
      const size_t bytes = bppsa_view_bytes(&r->model->parameters[i].value);
      memcpy(to, r->model->parameters[i].value.data, bytes);
      to += bytes;
    }
  }
  bppsa_optimizer_destroy(optimizer);
  bppsa_data_parallel_destroy(parallel);
  return status;
}

/* Every rank executes this function. */
static bppsa_status run(bppsa_comm *world, void *context) {
  rank r = {(const shared *)context, 0, NULL, NULL};
  bppsa_device *device = NULL;
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  config.seq_len = T;
  config.batch = BPPSA_DATA_PARALLEL_BLOCK;
  config.hidden = HIDDEN;
  config.classes = CLASSES;
  config.dtype = BPPSA_F64;
  config.method.backward = BPPSA_BACKWARD_BP;
  bppsa_status status = bppsa_device_create("cpu", 1, &device);
  r.device = device;
  status = status == BPPSA_OK ? bppsa_recurrent_create(&config, &bppsa_gru_cell, device, &r.model) : status;
  status = status == BPPSA_OK ? bppsa_recurrent_init(r.model, BPPSA_INIT_DEFAULT, 1) : status;
  status = status == BPPSA_OK ? train(&r, world, (shared *)context) : status;
  if (r.model != NULL) {
    bppsa_model_destroy(r.model);
  }
  bppsa_device_destroy(device);
  return status;
}

int main(void) {
  static shared results[3];
  int same = 1;
  for (int i = 0; i < 3; ++i) {
    srand(1);
    for (int sample = 0; sample < STEPS * BATCH; ++sample) {
      double sum = 0;
      for (int t = 0; t < T; ++t) {
        sum += results[i].x[sample][t] = 2.0 * rand() / RAND_MAX - 1.0;
      }
      results[i].labels[sample] = sum > 0;
    }
    bppsa_comm_config config = bppsa_comm_config_default(); /* threads */
    config.ranks = 1 << i;
    if (bppsa_comm_run(&config, run, &results[i], NULL) != BPPSA_OK) {
      fprintf(stderr, "ranks: %s\n", bppsa_last_error());
      return 1;
    }
    same = same && memcmp(results[i].weights, results[0].weights, WEIGHTS) == 0;
    printf("%d rank%s: loss %.6f\n", 1 << i, i == 0 ? "" : "s", results[i].loss);
  }
  printf("weights: %s\n", same ? "the same bits (good)" : "other bits (BAD)");
  return same ? 0 : 1;
}
