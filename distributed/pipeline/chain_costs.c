#include "distributed/pipeline/chain_costs.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/philox.h"
#include "core/measure/rounds.h"
#include "distributed/agree.h"
#include "distributed/pipeline/pipeline_executor.h"

/* ---- noise ---- */

enum { SHIFTS = 64 /* micro-batches that differ: each begins at another number of one row of noise */ };
enum { INPUTS = 242, TARGETS = 243, DELAYS = 247 /* streams of core/base/philox.h */ };

struct bppsa_chain_noise {
  bppsa_dtype dtype;
  int64_t in, out; /* numbers of a micro-batch */
  void *inputs;    /* size in + SHIFTS */
  double *targets; /* size out + SHIFTS */
  bppsa_pipeline_data data;
};

static int64_t shift_of(const bppsa_pipeline_micro *micro) {
  return (micro->update * micro->blocks + micro->block) % SHIFTS;
}

static bppsa_status check_size(const bppsa_view *view, int64_t numbers) {
  return bppsa_view_count(view) == numbers
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_SHAPE, "noise: a micro-batch of %" PRId64 " numbers, expected %" PRId64,
                          bppsa_view_count(view), numbers);
}

static bppsa_status fill_input(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *x) {
  const bppsa_chain_noise *n = context;
  const size_t real = bppsa_dtype_size(n->dtype);
  BPPSA_TRY(check_size(x, n->in));
  memcpy(x->data, (const char *)n->inputs + (size_t)shift_of(micro) * real, (size_t)n->in * real);
  return BPPSA_OK;
}

static bppsa_status find_loss(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *logits, const bppsa_view *seed,
                              double *loss) {
  const bppsa_chain_noise *n = context;
  const double *targets = n->targets + shift_of(micro), scale = 1 / (double)(n->out * micro->blocks);
  double sum = 0;
  BPPSA_TRY(check_size(logits, n->out));
  for (int64_t i = 0; i < n->out; ++i) {
    const double error = bppsa_view_get(logits, i) - targets[i];
    sum += error * error;
    bppsa_view_set(seed, i, error * scale);
  }
  *loss = sum * scale / 2;
  return BPPSA_OK;
}

static double noise_at(uint64_t seed, uint64_t stream, int64_t i) {
  return sqrt(12) * (bppsa_random_double(seed, stream, (uint64_t)i) - 0.5);
}

bppsa_status bppsa_chain_noise_create(const bppsa_chain *chain, int64_t samples, uint64_t seed, bppsa_chain_noise **noise) {
  BPPSA_REQUIRE(chain != NULL && samples >= 1 && noise != NULL);
  bppsa_chain_noise *n = bppsa_calloc(1, sizeof *n);
  if (n == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *n = (bppsa_chain_noise){.dtype = chain->dtype,
                           .in = samples * chain->layer[0].in,
                           .out = samples * chain->layer[chain->layers - 1].out,
                           .data = {.context = n, .input = fill_input, .loss = find_loss}};
  n->inputs = bppsa_calloc(n->in + SHIFTS, bppsa_dtype_size(n->dtype));
  n->targets = bppsa_calloc(n->out + SHIFTS, sizeof *n->targets);
  if (n->inputs == NULL || n->targets == NULL) {
    bppsa_chain_noise_destroy(n);
    return BPPSA_ERR_MEMORY;
  }
  const int64_t inputs = n->in + SHIFTS;
  const bppsa_view view = bppsa_view_make(n->inputs, n->dtype, 1, &inputs);
  for (int64_t i = 0; i < inputs; ++i) {
    bppsa_view_set(&view, i, noise_at(seed, INPUTS, i));
  }
  for (int64_t i = 0; i < n->out + SHIFTS; ++i) {
    n->targets[i] = noise_at(seed, TARGETS, i);
  }
  *noise = n;
  return BPPSA_OK;
}

void bppsa_chain_noise_destroy(bppsa_chain_noise *n) {
  if (n != NULL) {
    bppsa_free(n->inputs);
    bppsa_free(n->targets);
    bppsa_free(n);
  }
}

const bppsa_pipeline_data *bppsa_chain_noise_data(const bppsa_chain_noise *noise) {
  return &noise->data;
}

/* ---- bytes ---- */

double bppsa_chain_message(const bppsa_chain *chain, int64_t samples, int64_t layer) {
  return (double)(samples * chain->layer[layer].out * (int64_t)bppsa_dtype_size(chain->dtype) + PIPELINE_HEADER);
}

double bppsa_chain_gradient(const bppsa_chain *chain, int64_t layer) {
  const bppsa_chain_layer *of = &chain->layer[layer];
  double bytes = 0;
  for (int64_t i = of->first_parameter; i < of->first_parameter + of->parameters; ++i) {
    bytes += (double)bppsa_view_bytes(&chain->parameters[i].value);
  }
  return bytes;
}

/* ---- the link ---- */

enum { SHORT_BYTES = PIPELINE_HEADER, LONG_BYTES = 1 << 20, SHORT_ROUNDS = 401, LONG_ROUNDS = 101 };
#define LONGEST_DELAY 2e-4 /* seconds: more than twice as long as a rank sleeps between two looks */

/* Waits as the executor does. */
static bppsa_status wait_for(const bppsa_comm *comm, bppsa_comm_request **request) {
  const double start = bppsa_now();
  bool done = false;
  for (;;) {
    BPPSA_TRY(bppsa_comm_test(request, &done));
    if (done) {
      return BPPSA_OK;
    }
    if (bppsa_now() - start > bppsa_comm_get_timeout(comm)) {
      const bppsa_status status = bppsa_comm_expired(*request);
      bppsa_comm_cancel(1, request);
      return status;
    }
    pipeline_nap();
  }
}

bppsa_status bppsa_chain_pass_on(bppsa_comm *comm, bool sends, const bppsa_view *view) {
  BPPSA_REQUIRE(comm != NULL && view != NULL);
  const int32_t other = 1 - bppsa_comm_rank(comm);
  bppsa_comm_request *request = NULL;
  BPPSA_TRY(sends ? bppsa_comm_isend(comm, other, 0, view, &request) : bppsa_comm_irecv(comm, other, 0, view, &request));
  return wait_for(comm, &request);
}

/* The seconds for which a rank computes before it sends its message of a round. Both ranks know both delays. */
static double delay_of(int32_t rank, int64_t round) {
  return LONGEST_DELAY * bppsa_random_double(0, DELAYS, (uint64_t)(2 * round + rank));
}

static void spin(double seconds) {
  for (const double start = bppsa_now(); bppsa_now() - start < seconds;) {
  }
}

/* There and back: rank 0 begins. Without the delays both ranks would be in step, and every message would come at the same point of
 * its receiver's sleep. */
static bppsa_status ping(bppsa_comm *comm, const bppsa_view *view, int64_t round) {
  const int32_t rank = bppsa_comm_rank(comm);
  BPPSA_TRY(rank == 1 ? bppsa_chain_pass_on(comm, false, view) : BPPSA_OK);
  spin(delay_of(rank, round));
  BPPSA_TRY(bppsa_chain_pass_on(comm, true, view));
  return rank == 0 ? bppsa_chain_pass_on(comm, false, view) : BPPSA_OK;
}

/* The median seconds of one way. */
static bppsa_status time_messages(bppsa_comm *comm, int64_t bytes, int64_t rounds, char *buffer, double *median) {
  double seconds[SHORT_ROUNDS];
  const bppsa_view view = bppsa_view_make(buffer, BPPSA_U8, 1, &bytes);
  for (int64_t i = -1; i < rounds; ++i) { /* the first one warms up */
    const int64_t round = i < 0 ? rounds : i;
    const double start = bppsa_now();
    BPPSA_TRY(bppsa_comm_rank(comm) < 2 ? ping(comm, &view, round) : BPPSA_OK);
    seconds[i < 0 ? 0 : i] = fmax(0, bppsa_now() - start - delay_of(0, round) - delay_of(1, round)) / 2;
  }
  *median = bppsa_timing_of(rounds, seconds).median_s;
  return BPPSA_OK;
}

bppsa_status bppsa_chain_measure_link(bppsa_comm *comm, double *alpha, double *beta) {
  BPPSA_REQUIRE(comm != NULL && alpha != NULL && beta != NULL);
  double found[2] = {0, 0};
  const int64_t two = 2;
  const bppsa_view view = bppsa_view_make(found, BPPSA_F64, 1, &two);
  if (bppsa_comm_size(comm) > 1) {
    char *buffer = bppsa_calloc(LONG_BYTES, 1);
    bppsa_status status = buffer == NULL ? BPPSA_ERR_MEMORY : bppsa_comm_barrier(comm);
    status = status == BPPSA_OK ? time_messages(comm, SHORT_BYTES, SHORT_ROUNDS, buffer, &found[0]) : status;
    status = status == BPPSA_OK ? time_messages(comm, LONG_BYTES, LONG_ROUNDS, buffer, &found[1]) : status;
    bppsa_free(buffer);
    BPPSA_TRY(status);
    BPPSA_TRY(bppsa_comm_broadcast(comm, 0, &view));
  }
  *alpha = found[0];
  *beta = fmax(0, found[1] - found[0]) / (LONG_BYTES - SHORT_BYTES);
  return BPPSA_OK;
}

/* ---- sums over replicas ---- */

enum { SYNC_ROUNDS = 31 };

/* The sum of one layer's gradients, and what it reads and writes. */
typedef struct {
  bppsa_comm *comm; /* of the ranks that add up */
  bppsa_ordered_sum *sum;
  bppsa_view part, result;
} layer_sum;

/* Goes on with the sum as the executor does. */
static bppsa_status add_up(const layer_sum *s) {
  const double start = bppsa_now();
  bppsa_comm_request *request = NULL;
  for (bool done = false; !done;) {
    BPPSA_TRY(bppsa_ordered_sum_reduce(s->sum, false, &done));
    if (!done && bppsa_now() - start > bppsa_comm_get_timeout(s->comm)) {
      return bppsa_comm_expired(bppsa_ordered_sum_pending(s->sum));
    }
    if (!done) {
      pipeline_nap();
    }
  }
  BPPSA_TRY(bppsa_ordered_sum_ibroadcast(s->sum, &s->result, &request));
  return wait_for(s->comm, &request);
}

/* The median seconds of this rank's part. */
static bppsa_status time_sums(const layer_sum *s, double *median) {
  double seconds[SYNC_ROUNDS];
  for (int64_t i = -1; i < SYNC_ROUNDS; ++i) { /* the first one warms up */
    BPPSA_TRY(bppsa_ordered_sum_add(s->sum, bppsa_comm_rank(s->comm), &s->part));
    BPPSA_TRY(bppsa_comm_barrier(s->comm));
    const double start = bppsa_now();
    BPPSA_TRY(add_up(s));
    seconds[i < 0 ? 0 : i] = bppsa_now() - start;
  }
  *median = bppsa_timing_of(SYNC_ROUNDS, seconds).median_s;
  return BPPSA_OK;
}

static bppsa_status time_layer(bppsa_comm *comm, const bppsa_chain *chain, int64_t layer, double *median) {
  const size_t real = bppsa_dtype_size(chain->dtype);
  const int64_t count = (int64_t)bppsa_chain_gradient(chain, layer) / (int64_t)real;
  if (count == 0) {
    return BPPSA_OK;
  }
  layer_sum s = {.comm = comm};
  char *memory = bppsa_calloc(2 * count, real);
  bppsa_status status = memory == NULL
                            ? BPPSA_ERR_MEMORY
                            : bppsa_ordered_sum_create(comm, bppsa_comm_size(comm), NULL, chain->dtype, count, 0, &s.sum);
  s.part = bppsa_view_make(memory, chain->dtype, 1, &count);
  s.result = bppsa_view_make(status == BPPSA_OK ? memory + (size_t)count * real : NULL, chain->dtype, 1, &count);
  status = status == BPPSA_OK ? time_sums(&s, median) : status;
  bppsa_ordered_sum_destroy(s.sum);
  bppsa_free(memory);
  return status;
}

bppsa_status bppsa_chain_measure_sync(bppsa_comm *comm, const bppsa_chain *chain, int64_t ranks, double *seconds) {
  BPPSA_REQUIRE(comm != NULL && chain != NULL && ranks >= 1 && ranks <= bppsa_comm_size(comm) && seconds != NULL);
  const bool member = bppsa_comm_rank(comm) < ranks;
  bppsa_comm *group = NULL;
  bppsa_status status = bppsa_comm_split(comm, member ? 0 : -1, 0, &group);
  memset(seconds, 0, (size_t)chain->layers * sizeof *seconds);
  for (int64_t l = 0; status == BPPSA_OK && member && ranks > 1 && l < chain->layers; ++l) {
    status = time_layer(group, chain, l, &seconds[l]);
  }
  bppsa_comm_destroy(group);
  return status == BPPSA_OK ? bppsa_ranks_reduce(comm, BPPSA_COMM_MAX, BPPSA_F64, chain->layers, seconds) : status;
}
