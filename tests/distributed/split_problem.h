/* A recurrent network cut along time on the ranks of a communicator, against the textbook's gradients of the whole sequence, in
 * float64. For threads (test_split_time.c) and for MPI (mpi_split_time.c): a check that fails is an error of the rank. */
#ifndef BPPSA_TESTS_DISTRIBUTED_SPLIT_PROBLEM_H
#define BPPSA_TESTS_DISTRIBUTED_SPLIT_PROBLEM_H

#include <pthread.h>

#include "core/compute/device_buffer.h"
#include "core/compute/memory.h"
#include "distributed/time/split_time.h"
#include "tests/comm/cases.h"
#include "tests/support/gru_reference.h"
#include "tests/support/rnn_reference.h"

static cell_reference cell; /* of the present problem */
#include "tests/support/cell_problem.h"

/* The largest residual of a tensor on all ranks, which are threads. */
typedef struct {
  pthread_mutex_t lock;
  double residual;
  char name[64]; /* of the tensor */
} split_worst;

typedef struct {
  problem *p;
  bppsa_gradient_method method;
  int64_t micro_batches;
  double loss;     /* of the reference; NAN: it is not compared */
  bool count;      /* compare messages and bytes with the formulas of docs/time-ranks.md */
  int64_t repeats; /* passes, all with the same bits */
  int32_t gpus;    /* rank r computes on GPU r % gpus; 0: on processors */
  bool nccl;
  split_worst *worst; /* of the parameters, of x and of h0: is told every residual; NULL: a residual of 30 is an error */
} split_job;

/* The loss and the seed of this rank's rows, as the library computes them. */
static bppsa_status loss_of(bppsa_comm *comm, const split_job *j, int64_t first, const bppsa_view *logits, const bppsa_view *seed,
                            bppsa_loss_result *result) {
  const int64_t *labels = j->p->labels + (j->p->c.loss_all ? first * j->p->c.batch : 0);
  *result = (bppsa_loss_result){0};
  if (bppsa_view_count(logits) > 0) {
    BPPSA_TRY(bppsa_cross_entropy(NULL, logits, labels, seed, result));
  }
  return bppsa_ranks_loss(comm, seed, result);
}

/* A contiguous view's array where the model reads it, which is either the view's own or a copy in GPU memory. */
static bppsa_status hand_over(const bppsa_device *device, const bppsa_view *view, bppsa_view *there) {
  const int64_t bytes = (int64_t)bppsa_view_bytes(view);
  *there = *view;
  if (bppsa_device_get_kind(device) == BPPSA_CPU) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_memory_alloc(device, bytes, &there->data));
  there->device = BPPSA_CUDA;
  return bppsa_memory_put(device, there->data, view->data, bytes);
}

static void take_back(const bppsa_device *device, const bppsa_view *there) {
  if (there->device == BPPSA_CUDA) {
    bppsa_memory_free(device, there->data);
  }
}

static bppsa_status check_part(const char *what, const bppsa_view *got, const double *expected, const double *magnitude,
                               int64_t seq_len, split_worst *worst) {
  const int64_t count = bppsa_view_count(got);
  const double r = count == 0 ? 0 : residual_of_sum(got->dtype, got->data, expected, magnitude, count, sqrt((double)seq_len));
  if (worst != NULL) {
    pthread_mutex_lock(&worst->lock);
    if (!(r <= worst->residual)) {
      worst->residual = r;
      snprintf(worst->name, sizeof worst->name, "%s", what);
    }
    pthread_mutex_unlock(&worst->lock);
    return BPPSA_OK;
  }
  return r < 30 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_NUMERIC, "%s: residual %g", what, r);
}

static inline split_worst *worst_of(const split_job *j, int64_t tensor) {
  return j->worst != NULL ? &j->worst[tensor] : NULL;
}

static inline void clear_worst(split_worst worst[TENSORS + 2]) {
  for (int64_t i = 0; i < TENSORS + 2; ++i) {
    worst[i] = (split_worst){.lock = PTHREAD_MUTEX_INITIALIZER, .residual = -1};
  }
}

/* Do all ranks hold the same bits? */
static bppsa_status check_bits(bppsa_comm *comm, const bppsa_view *mine) {
  const int64_t count = bppsa_view_count(mine);
  double *least = bppsa_calloc(2 * count, sizeof *least);
  CHECK(least != NULL);
  double *most = least + count;
  for (int64_t i = 0; i < count; ++i) {
    least[i] = most[i] = bppsa_view_get(mine, i);
  }
  const bppsa_view low = bppsa_view_make(least, BPPSA_F64, 1, &count), high = bppsa_view_make(most, BPPSA_F64, 1, &count);
  bppsa_status status = bppsa_comm_allreduce(comm, BPPSA_COMM_MIN, &low);
  status = status == BPPSA_OK ? bppsa_comm_allreduce(comm, BPPSA_COMM_MAX, &high) : status;
  const bool same = memcmp(least, most, (size_t)count * sizeof *least) == 0;
  bppsa_free(least);
  BPPSA_TRY(status);
  CHECK(same);
  return BPPSA_OK;
}

static bppsa_status check_gradients(bppsa_comm *comm, const split_job *j, bppsa_model *m, int64_t first, int64_t steps) {
  const problem *p = j->p;
  const bppsa_recurrent_config *c = &p->c;
  for (int64_t i = 0; i < p->count; ++i) {
    const bppsa_parameter *parameter = &m->parameters[i];
    BPPSA_TRY(check_part(parameter->name, &parameter->gradient, p->dw[i], c->hidden == 1 ? p->magnitude[i] : p->dw[i], c->seq_len,
                         worst_of(j, i)));
    BPPSA_TRY(check_bits(comm, &parameter->gradient));
  }
  bppsa_view dx, dh0;
  bppsa_buffer fetched[2];
  memset(fetched, 0, sizeof fetched);
  BPPSA_TRY(m->ops->input_gradients(m, &dx, &dh0));
  if (m->device != NULL) {
    BPPSA_TRY(bppsa_buffer_fetch(m->device, &dx, &fetched[0]));
    BPPSA_TRY(bppsa_buffer_fetch(m->device, &dh0, &fetched[1]));
    dx = fetched[0].view;
    dh0 = fetched[1].view;
  }
  const double *from = p->dx + first * c->batch * c->input;
  CHECK(dx.shape[0] == steps && dx.shape[1] == c->batch && dh0.shape[1] == (steps > 0 && first == 0 ? c->batch : 0));
  BPPSA_TRY(check_part("input", &dx, from, from, c->seq_len, worst_of(j, p->count)));
  BPPSA_TRY(check_part("h0", &dh0, p->dh0, p->dh0, c->seq_len, worst_of(j, p->count + 1)));
  bppsa_buffer_free(&fetched[0]);
  bppsa_buffer_free(&fetched[1]);
  bppsa_nonfinite where;
  CHECK(!m->ops->find_nonfinite(m, &where));
  return BPPSA_OK;
}

/* ---- the formulas of docs/time-ranks.md ---- */

static int64_t levels_of(int64_t ranks) {
  int64_t levels = 0;
  while (((int64_t)1 << levels) < ranks) {
    ++levels;
  }
  return levels;
}

/* Of a forward and a backward pass on all ranks, apart from the sum of weight gradients. */
static void expected_traffic(const split_job *j, int64_t ranks, int64_t *messages, int64_t *bytes) {
  const bppsa_recurrent_config *c = &j->p->c;
  const int64_t q = ranks < c->seq_len ? ranks : c->seq_len, r = (int64_t)bppsa_dtype_size(c->dtype), d = state_of(c);
  const int64_t levels = levels_of(q), inner = q - 1 - levels;
  *messages = (q - 1) * j->micro_batches;
  *bytes = (q - 1) * c->layers * c->batch * d * r;
  for (int64_t l = 0; l < c->layers; ++l) {
    const int64_t a = c->loss_all || l + 1 < c->layers, vector = c->batch * d * r, product = c->batch * (d + a) * (d * r + 4);
    const bool scan = j->method.backward == BPPSA_BACKWARD_SCAN;
    const bool tree = scan && j->method.scan.algorithm == BPPSA_SCAN_BLELLOCH;
    *messages += j->micro_batches * ((tree ? 2 * (q - 1) - levels : q - 1) + (scan ? a * (q - 1) : 0));
    *bytes += (tree ? levels * vector + inner * (product + vector + j->micro_batches * r) : (q - 1) * vector) +
              (scan ? a * (q - 1) * vector : 0);
  }
}

/* What a sum of weight gradients sends: p - 1 vectors where p is a power of two, in any case one for each node of the tree over the
 * ranks. */
static bppsa_status compare_traffic(bppsa_comm *comm, const split_job *j, int64_t reals) {
  bppsa_comm_counters counters;
  bppsa_comm_get_counters(comm, &counters);
  int64_t sums[4] = {counters.messages_sent, counters.bytes_sent, counters.messages_received, counters.bytes_received}, messages,
          bytes;
  const int64_t four = 4, ranks = bppsa_comm_size(comm);
  const bppsa_view view = bppsa_view_make(sums, BPPSA_I64, 1, &four);
  BPPSA_TRY(bppsa_comm_allreduce(comm, BPPSA_COMM_SUM, &view));
  expected_traffic(j, ranks, &messages, &bytes);
  CHECK(sums[0] == messages + ranks - 1 && sums[2] == sums[0]);
  CHECK(sums[1] == bytes + (ranks - 1) * reals * (int64_t)bppsa_dtype_size(j->p->c.dtype) && sums[3] == sums[1]);
  return BPPSA_OK;
}

/* ---- a run ---- */

static void *part_of(bppsa_dtype dtype, const double *from, int64_t count) {
  void *to = bppsa_calloc(count + 1, bppsa_dtype_size(dtype));
  const bppsa_view view = bppsa_view_make(to, dtype, 1, &count);
  for (int64_t i = 0; to != NULL && i < count; ++i) {
    bppsa_view_set(&view, i, from[i]);
  }
  return to;
}

typedef struct {
  void *x, *h0, *seed;
  bppsa_device *device;
  bppsa_comm *comm; /* of the arrays */
  bppsa_model *model;
} split_run;

static void count_ready(void *context, int64_t first, int64_t count) {
  *(int64_t *)context += first == 0 ? count : -1;
}

/* The loss of the logits, and a backward pass from its seed. */
static bppsa_status pass_back(bppsa_comm *comm, const split_job *j, int64_t first, const bppsa_view *logits, split_run *r) {
  const bppsa_recurrent_config *c = &j->p->c;
  bppsa_buffer copy = {0};
  bppsa_view there;
  bppsa_loss_result result;
  bppsa_free(r->seed);
  r->seed = bppsa_calloc(bppsa_view_count(logits) + 1, bppsa_dtype_size(c->dtype));
  CHECK(r->seed != NULL);
  BPPSA_TRY(r->model->device != NULL ? bppsa_buffer_fetch(r->device, logits, &copy) : BPPSA_OK);
  const bppsa_view seed = bppsa_view_make(r->seed, c->dtype, logits->ndim, logits->shape);
  BPPSA_TRY(loss_of(comm, j, first, r->model->device != NULL ? &copy.view : logits, &seed, &result));
  bppsa_buffer_free(&copy);
  CHECK(result.rows == (c->loss_all ? c->seq_len : 1) * c->batch);
  CHECK(isnan(j->loss) || fabs(result.loss - j->loss) < 1e-12 * (double)c->seq_len + (c->dtype == BPPSA_F32 ? 1e-4 : 0));
  BPPSA_TRY(hand_over(r->device, &seed, &there));
  BPPSA_TRY(r->model->ops->backward(r->model, &there));
  BPPSA_TRY(bppsa_model_pull(r->model, true));
  take_back(r->device, &there);
  return BPPSA_OK;
}

/* Forward and backward, `repeats` times. The last pass is compared with the first one bit for bit. */
static bppsa_status run_passes(bppsa_comm *comm, const split_job *j, int64_t first, int64_t steps, split_run *r) {
  const bppsa_recurrent_config *c = &j->p->c;
  const bppsa_view x = bppsa_view_make(r->x, c->dtype, 3, (int64_t[]){steps, c->batch, c->input});
  const bppsa_view h0 = bppsa_view_make(r->h0, c->dtype, 3, (int64_t[]){c->layers, c->batch, state_of(c)});
  bppsa_view own_x, own_h0;
  bppsa_model *m = r->model;
  double before = 0;
  int64_t ready = 0;
  m->listener = (bppsa_gradient_listener){count_ready, &ready};
  BPPSA_TRY(hand_over(r->device, &x, &own_x));
  BPPSA_TRY(hand_over(r->device, &h0, &own_h0));
  for (int64_t repeat = 0; repeat < j->repeats; ++repeat) {
    bppsa_view logits;
    bppsa_comm_reset_counters(comm);
    BPPSA_TRY(m->ops->forward(m, &own_x, &own_h0, &logits));
    BPPSA_TRY(pass_back(comm, j, first, &logits, r));
    double sum = 0;
    int64_t reals = 0;
    for (int64_t i = 0; i < m->parameter_count; ++i) {
      const int64_t count = bppsa_view_count(&m->parameters[i].gradient);
      reals += count;
      for (int64_t k = 0; k < count; ++k) {
        sum += (double)(k % 7 + 1) * bppsa_view_get(&m->parameters[i].gradient, k);
      }
    }
    CHECK(repeat == 0 || memcmp(&sum, &before, sizeof sum) == 0);
    before = sum;
    if (j->count) {
      BPPSA_TRY(compare_traffic(comm, j, reals));
    }
  }
  CHECK(ready == (m->device == NULL ? j->repeats * m->parameter_count : 0));
  BPPSA_TRY(check_gradients(comm, j, m, first, steps));
  take_back(r->device, &own_x);
  take_back(r->device, &own_h0);
  return bppsa_comm_check_order(r->comm);
}

/* This rank's device, and the communicator that carries its arrays. */
static bppsa_status connect(bppsa_comm *comm, const split_job *j, split_run *r) {
  char name[24] = "cpu";
  if (j->gpus > 0) {
    snprintf(name, sizeof name, "cuda:%d", (int)bppsa_comm_rank(comm) % (int)j->gpus);
  }
  r->comm = comm;
  BPPSA_TRY(bppsa_device_create(name, 1, &r->device));
  bppsa_comm_set_device(comm, r->device);
  return j->nccl ? bppsa_comm_create_nccl(comm, r->device, &r->comm) : BPPSA_OK;
}

/* This rank's part of a problem. */
static bppsa_status split_rank(bppsa_comm *comm, void *context) {
  const split_job *j = context;
  const problem *p = j->p;
  bppsa_recurrent_config c = p->c;
  int64_t first, steps;
  bppsa_ranks_share(c.seq_len, bppsa_comm_size(comm), bppsa_comm_rank(comm), &first, &steps);
  c.method = j->method;
  split_run r = {.x = part_of(c.dtype, p->x + first * c.batch * c.input, steps * c.batch * c.input),
                 .h0 = part_of(c.dtype, p->h0, c.layers * c.batch * state_of(&c))};
  bppsa_status status = r.x == NULL || r.h0 == NULL ? BPPSA_ERR_MEMORY : connect(comm, j, &r);
  const bppsa_split_time split = {.comm = r.comm, .tag = 3, .micro_batches = j->micro_batches};
  status = status == BPPSA_OK ? bppsa_split_time_create(&split, &c, cell.cell, r.device, &r.model) : status;
  for (int64_t i = 0; status == BPPSA_OK && i < p->count; ++i) {
    for (int64_t k = 0; k < p->sizes[i]; ++k) {
      bppsa_view_set(&r.model->parameters[i].value, k, p->w[i][k]);
    }
  }
  status = status == BPPSA_OK ? bppsa_model_push(r.model) : status;
  status = status == BPPSA_OK ? run_passes(comm, j, first, steps, &r) : status;
  bppsa_model_destroy(r.model);
  if (r.comm != comm) {
    bppsa_comm_destroy(r.comm);
  }
  bppsa_comm_set_device(comm, NULL);
  bppsa_device_destroy(r.device);
  bppsa_free(r.x);
  bppsa_free(r.h0);
  bppsa_free(r.seed);
  return status;
}

#endif
