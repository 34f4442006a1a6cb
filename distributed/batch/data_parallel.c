#include "distributed/batch/data_parallel.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/cut.h"
#include "core/compute/memory.h"
#include "distributed/agree.h"
#include "distributed/batch/buckets.h"
#include "distributed/batch/reverse_first.h"
#include "distributed/batch/streams.h"
#include "distributed/evaluate_internal.h"
#include "recurrent/parallel_backward.h"
#include "train/blocks.h"
#include "train/ranks.h"

struct bppsa_data_parallel {
  bppsa_comm *comm;  /* of the ranks that share a batch */
  bppsa_comm *world; /* of all ranks; the same unless there are ranks along time */
  bppsa_model *model;
  bppsa_data_parallel_config config;
  int64_t block; /* samples */
  bppsa_buckets *buckets;
  bppsa_reverse_first search;
  bool noted; /* note() has nothing new to tell */
  char order[BPPSA_REVERSE_FIRST_TEXT + 40];
  bppsa_train_ranks ranks;
};

/* ---- what follows from the configuration ---- */

bppsa_data_parallel_config bppsa_data_parallel_config_default(void) {
  return (bppsa_data_parallel_config){.batch = BPPSA_DATA_PARALLEL_BLOCK, .bucket_bytes = 1 << 20, .tag = 1024};
}

int64_t bppsa_data_parallel_block(const bppsa_data_parallel_config *config, int32_t ranks) {
  const int64_t share = (config->batch - 1) / ranks + 1, blocks = (config->batch - 1) / BPPSA_DATA_PARALLEL_BLOCK + 1;
  return config->reduction == BPPSA_REDUCTION_ORDERED && config->time == NULL && ranks <= blocks ? BPPSA_DATA_PARALLEL_BLOCK
                                                                                                 : share;
}

bool bppsa_data_parallel_same_bits(const bppsa_data_parallel_config *config, int32_t ranks) {
  return config->reduction == BPPSA_REDUCTION_ORDERED && config->time == NULL &&
         bppsa_data_parallel_block(config, ranks) == BPPSA_DATA_PARALLEL_BLOCK;
}

const char *bppsa_data_parallel_text(const bppsa_data_parallel_config *config, bppsa_comm_transport transport, int32_t ranks,
                                     char *text, size_t size) {
  char time[64] = "", groups[32] = "";
  if (config->time != NULL && config->micro_batches > 1) {
    snprintf(groups, sizeof groups, "%" PRId64 " groups, ", config->micro_batches);
  }
  if (config->time != NULL && config->time_blocks) {
    snprintf(time, sizeof time, "blocks along time, %s", groups);
  } else if (config->time != NULL) {
    snprintf(time, sizeof time, "%d ranks along time, %s", bppsa_comm_size(config->time), groups);
  }
  if (config->reduction == BPPSA_REDUCTION_ORDERED) {
    snprintf(text, size, "%sa tree over blocks of %" PRId64 " samples", time, bppsa_data_parallel_block(config, ranks));
  } else {
    snprintf(text, size, "%sthe allreduce of %s over %d ranks", time, bppsa_comm_transport_name(transport), ranks);
  }
  return text;
}

/* ---- blocks ---- */

static int64_t blocks_of(const bppsa_data_parallel_config *config, int64_t size, int32_t ranks, int64_t count) {
  return config->reduction == BPPSA_REDUCTION_ORDERED ? (count - 1) / size + 1 : ranks;
}

void bppsa_data_parallel_share(const bppsa_data_parallel *dp, int64_t count, int64_t *first, int64_t *blocks, int64_t *all) {
  const int64_t ranks = bppsa_comm_size(dp->comm), rank = bppsa_comm_rank(dp->comm);
  *all = blocks_of(&dp->config, dp->block, (int32_t)ranks, count);
  *first = bppsa_cut(*all, ranks, rank);
  *blocks = bppsa_cut(*all, ranks, rank + 1) - *first;
}

/* Finds the first sample of a block in a batch of `count` samples; of the block behind the last one, the end of the batch. The
 * library's sum has one block for each rank, which may be empty. */
static int64_t block_first(const bppsa_data_parallel_config *config, int64_t size, int32_t ranks, int64_t block, int64_t count) {
  if (config->reduction == BPPSA_REDUCTION_LIBRARY) {
    return bppsa_cut(count, ranks, block);
  }
  return block * size < count ? block * size : count;
}

static int64_t block_begin(const bppsa_data_parallel *dp, int64_t count, int64_t block) {
  return block_first(&dp->config, dp->block, bppsa_comm_size(dp->comm), block, count);
}

int64_t bppsa_data_parallel_first(const bppsa_data_parallel_config *config, int64_t block, int32_t ranks, int64_t rank,
                                  int64_t count) {
  return block_first(config, block, ranks, bppsa_cut(blocks_of(config, block, ranks, count), ranks, rank), count);
}

/* Joins what the speculative backward passes of all ranks' blocks did, and gives the sum to the model: every rank then has the same
 * statistics, the same pauses and the same warm-up. */
static bppsa_status join_backward(const bppsa_data_parallel *dp, bppsa_backward_groups *groups,
                                  const bppsa_backward_state *before) {
  double *numbers = (double *)groups;
  const int64_t all = sizeof *groups / sizeof(double);
  BPPSA_TRY(bppsa_ranks_reduce(dp->comm, BPPSA_COMM_SUM, BPPSA_F64, BPPSA_BACKWARD_SUMS, numbers));
  BPPSA_TRY(bppsa_ranks_reduce(dp->comm, BPPSA_COMM_MAX, BPPSA_F64, all - BPPSA_BACKWARD_SUMS, numbers + BPPSA_BACKWARD_SUMS));
  return bppsa_backward_groups_set(dp->model, groups, before);
}

/* Computes this rank's blocks. before: NULL, or where backward passes are speculative, the state in which that of every block
 * begins, whichever rank computes it. */
static bppsa_status compute_blocks(bppsa_data_parallel *dp, int64_t count, int64_t first, int64_t end,
                                   bppsa_data_parallel_block_fn block, void *context, const bppsa_backward_state *before,
                                   bppsa_backward_groups *groups) {
  for (int64_t b = first; b < end; ++b) {
    const int64_t from = block_begin(dp, count, b), to = block_begin(dp, count, b + 1);
    bppsa_data_parallel_sums sums = {0};
    bppsa_buckets_begin_block(dp->buckets);
    BPPSA_TRY(before != NULL ? bppsa_backward_state_set(dp->model, before) : BPPSA_OK);
    BPPSA_TRY(block(context, from, to - from, &sums));
    BPPSA_TRY(before != NULL ? bppsa_backward_groups_add(dp->model, to - from, groups) : BPPSA_OK);
    BPPSA_TRY(bppsa_buckets_end_block(dp->buckets, &sums));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_data_parallel_compute(bppsa_data_parallel *dp, int64_t count, bppsa_data_parallel_block_fn block,
                                         void *context, bppsa_data_parallel_sums *sums) {
  BPPSA_REQUIRE(dp != NULL && block != NULL && sums != NULL);
  if (count < 1 || count > dp->config.batch) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "data parallelism: a batch of %" PRId64 " samples, expected 1 .. %" PRId64, count,
                      dp->config.batch);
  }
  int64_t first, blocks, all;
  bppsa_data_parallel_share(dp, count, &first, &blocks, &all);
  if (block_begin(dp, count, first) == block_begin(dp, count, first + blocks)) {
    blocks = 0; /* an empty share */
  }
  BPPSA_TRY(bppsa_buckets_begin(dp->buckets, all, first, blocks));
  const bool speculates = bppsa_backward_plan_of(dp->model) != NULL;
  bppsa_backward_groups groups = {0};
  bppsa_backward_state before = {{0}, 0};
  BPPSA_TRY(speculates ? bppsa_backward_state_get(dp->model, &before) : BPPSA_OK);
  const bppsa_status status =
      compute_blocks(dp, count, first, first + blocks, block, context, speculates ? &before : NULL, &groups);
  dp->model->listener = (bppsa_gradient_listener){0};
  BPPSA_TRY(status);
  BPPSA_TRY(bppsa_buckets_finish(dp->buckets, sums));
  return speculates ? join_backward(dp, &groups, &before) : BPPSA_OK;
}

/* ---- the training loop's functions ---- */

static batch_shares shares_of(const bppsa_data_parallel *dp) {
  return (batch_shares){dp->comm, dp->world, &dp->config, dp->block, bppsa_data_parallel_first};
}

static bppsa_status gather_states(void *context, bppsa_batch *batch, int64_t count) {
  const batch_shares shares = shares_of(context);
  return bppsa_streams_gather(&shares, batch, count);
}

/* A batch of the training loop. */
typedef struct {
  bppsa_batch *batch;
  int64_t count;
  const int64_t *indices;
  bppsa_train_record *record;
} step_of;

static bppsa_status stage(const step_of *s, int64_t first, int64_t count) {
  memcpy(s->batch->indices, s->indices + first, (size_t)count * sizeof *s->indices);
  bppsa_batch_follow(s->batch, s->batch->past.number, s->indices + first, s->batch->past.apart);
  BPPSA_TRY(bppsa_batch_stage(s->batch, count));
  s->batch->first = first;
  return bppsa_batch_queue_fill(s->batch);
}

static bppsa_status train_block(void *context, int64_t first, int64_t count, bppsa_data_parallel_sums *sums) {
  step_of *s = context;
  bppsa_model *model = s->batch->model;
  bppsa_loss_result loss;
  const int64_t redone = model->redone;
  BPPSA_TRY(stage(s, first, count));
  double start = bppsa_now();
  BPPSA_TRY(bppsa_batch_forward(s->batch));
  BPPSA_TRY(model->device != NULL ? bppsa_device_wait(model->device) : BPPSA_OK); /* until here the pass has only been queued */
  s->record->forward_s += bppsa_now() - start;
  BPPSA_TRY(bppsa_batch_loss_part(s->batch, s->count, &loss));
  start = bppsa_now();
  BPPSA_TRY(model->ops->backward(model, &s->batch->dlogits));
  BPPSA_TRY(bppsa_model_update_redone(model));
  s->record->backward_s += bppsa_now() - start;
  *sums = (bppsa_data_parallel_sums){loss.loss, (double)loss.correct, (double)loss.rows, (double)(model->redone - redone),
                                     loss.weight};
  return BPPSA_OK;
}

bppsa_status bppsa_data_parallel_add_along_time(const bppsa_data_parallel *dp, bppsa_data_parallel_sums *sums) {
  BPPSA_REQUIRE(dp != NULL && sums != NULL);
  return dp->config.time != NULL
             ? bppsa_ranks_reduce(dp->config.time, BPPSA_COMM_SUM, BPPSA_F64, sizeof *sums / sizeof(double), sums)
             : BPPSA_OK;
}

/* Multiplies all gradients, on whichever device they are. */
static bppsa_status scale_gradients(bppsa_model *model, double factor) {
  BPPSA_TRY(bppsa_model_pull(model, true));
  bppsa_model_scale_gradients(model, factor);
  return model->device == NULL ? BPPSA_OK
                               : bppsa_memory_put(model->device, model->device_gradients, model->parameters[0].gradient.data,
                                                  model->reals * (int64_t)bppsa_dtype_size(model->dtype));
}

/* Makes the buckets for the present k. */
static bppsa_status change_order(bppsa_data_parallel *dp) {
  int64_t first, blocks, all;
  bppsa_delayed delayed = {0};
  bppsa_buckets *buckets = NULL;
  if (dp->config.reverse_first != 0) {
    BPPSA_TRY(bppsa_model_delay(dp->model, dp->search.k, &delayed));
  }
  bppsa_data_parallel_share(dp, dp->config.batch, &first, &blocks, &all);
  BPPSA_TRY(bppsa_buckets_create(dp->comm, dp->model, &dp->config, delayed.parameters, all, &buckets));
  bppsa_buckets_destroy(dp->buckets);
  dp->buckets = buckets;
  return BPPSA_OK;
}

static bppsa_status forward_backward(void *context, bppsa_batch *batch, int64_t count, const int64_t *indices,
                                     bppsa_train_record *record, bppsa_loss_result *loss) {
  bppsa_data_parallel *dp = context;
  bppsa_data_parallel_sums sums;
  step_of step = {batch, count, indices, record};
  bppsa_comm_at(dp->world, "training step", record->step);
  record->forward_s = record->backward_s = 0;
  if (batch->dataset->streams && count < batch->whole) { /* the ranks' shares of a smaller batch have other samples */
    BPPSA_TRY(gather_states(dp, batch, batch->whole));
  }
  const double start = bppsa_now();
  BPPSA_TRY(bppsa_data_parallel_compute(dp, count, train_block, &step, &sums));
  BPPSA_TRY(bppsa_data_parallel_add_along_time(dp, &sums));
  const double seconds = bppsa_now() - start;
  record->backward_s = seconds - record->forward_s; /* with the time that gradients travelled */
  *loss =
      (bppsa_loss_result){.loss = sums.loss, .correct = (int64_t)sums.correct, .rows = (int64_t)sums.rows, .weight = sums.weight};
  const double all = (double)count * (batch->dataset->labels_per_step ? (double)batch->length : 1);
  if (sums.weight > 0 && sums.weight != all) { /* the blocks have divided by all rows, whatever they weigh */
    loss->loss *= all / sums.weight;
    BPPSA_TRY(scale_gradients(dp->model, all / sums.weight));
  }
  record->loss = loss->loss;
  record->accuracy = bppsa_accuracy(loss->correct, loss->rows);
  record->redone = (int64_t)sums.redone;
  bool changed = false;
  if (count < dp->config.batch) { /* the last batch of an epoch: its time says nothing about full ones */
    return BPPSA_OK;
  }
  const bool measured = dp->search.running;
  BPPSA_TRY(bppsa_reverse_first_measured(&dp->search, dp->world, seconds, &changed));
  dp->noted = dp->noted && !(measured && !dp->search.running);
  return changed ? change_order(dp) : BPPSA_OK;
}

/* Computes this rank's blocks again, and describes the first that is not finite. Nothing is sent. */
static bppsa_status describe_own(bppsa_data_parallel *dp, const step_of *s, bool backward, const char *otherwise,
                                 bppsa_line *line) {
  int64_t first, blocks, all;
  s->batch->again = true;
  bppsa_data_parallel_share(dp, s->count, &first, &blocks, &all);
  for (int64_t b = first; b < first + blocks; ++b) {
    const int64_t from = block_begin(dp, s->count, b), to = block_begin(dp, s->count, b + 1);
    bppsa_loss_result loss;
    bppsa_nonfinite found;
    if (to == from) {
      continue;
    }
    BPPSA_TRY(stage(s, from, to - from));
    BPPSA_TRY(bppsa_batch_forward(s->batch));
    BPPSA_TRY(bppsa_batch_loss_part(s->batch, s->count, &loss));
    if (backward) {
      BPPSA_TRY(dp->model->ops->backward(dp->model, &s->batch->dlogits));
      BPPSA_TRY(bppsa_model_pull(dp->model, true));
    }
    if (line->length > 0) { /* the ranks along time compute all blocks together */
      continue;
    }
    if (!isfinite(loss.loss) || (backward && (dp->model->ops->find_nonfinite(dp->model, &found) ||
                                              bppsa_model_parameter_nonfinite(dp->model, true, &found)))) {
      bppsa_batch_describe_nonfinite(s->batch, otherwise, line);
    }
  }
  return BPPSA_OK;
}

static bppsa_status describe_nonfinite(void *context, bppsa_batch *batch, int64_t count, const int64_t *indices, bool backward,
                                       const char *otherwise, bppsa_line *line) {
  bppsa_data_parallel *dp = context;
  const step_of step = {batch, count, indices, NULL};
  bppsa_line own = {.length = 0};
  BPPSA_TRY(describe_own(dp, &step, backward, otherwise, &own));
  /* The lowest rank that found something tells the others; if none did, only the sum overflowed. */
  const int64_t size = (int64_t)sizeof own.text, none = bppsa_comm_size(dp->world);
  int64_t teller = own.length > 0 ? bppsa_comm_rank(dp->world) : none;
  const bppsa_view text = bppsa_view_make(own.text, BPPSA_U8, 1, &size);
  BPPSA_TRY(bppsa_ranks_reduce(dp->world, BPPSA_COMM_MIN, BPPSA_I64, 1, &teller));
  if (teller == none) {
    bppsa_line_add(line, "non-finite %s of the batch, all its parts being finite", otherwise);
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_comm_broadcast(dp->world, (int32_t)teller, &text));
  bppsa_line_add(line, "%s", own.text);
  return BPPSA_OK;
}

static bppsa_status evaluate(void *context, bppsa_batch *batch, int64_t first, int64_t count, bppsa_evaluation *result) {
  const bppsa_data_parallel *dp = context;
  const batch_shares shares = shares_of(dp);
  bppsa_comm_at(dp->world, "the evaluation", -1);
  return batch->dataset->streams ? bppsa_streams_evaluate(&shares, batch, first, count, result)
                                 : bppsa_ranks_evaluate_batch(dp->world, dp->comm, batch, first, count, result);
}

bppsa_status bppsa_data_parallel_evaluate_streams(bppsa_comm *comm, const bppsa_data_parallel_config *along, bppsa_model *model,
                                                  const bppsa_dataset *dataset, const bppsa_device *device, int64_t first,
                                                  int64_t count, int64_t batch, bppsa_evaluation *result) {
  BPPSA_REQUIRE(comm != NULL && model != NULL && dataset != NULL && result != NULL);
  bppsa_batch buffers;
  const bool cut = along != NULL && along->time != NULL;
  bppsa_data_parallel_config config = cut ? *along : bppsa_data_parallel_config_default();
  BPPSA_TRY(bppsa_evaluate_check(dataset, first, count, batch));
  config.batch = bppsa_min(batch, count);
  if (!dataset->streams || bppsa_comm_size(comm) > config.batch) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "evaluation of streams: %s, %lld samples in a batch, %d ranks, expected %s",
                      dataset->streams ? "streams" : "samples that are no streams", (long long)config.batch,
                      bppsa_comm_size(comm), dataset->streams ? "at most as many ranks as samples" : "streams");
  }
  const batch_shares shares = {comm, cut ? along->world : comm, &config,
                               bppsa_data_parallel_block(&config, bppsa_comm_size(comm)), bppsa_data_parallel_first};
  BPPSA_TRY(bppsa_batch_create(model, dataset, device, bppsa_min(shares.block, config.batch), config.batch, false, &buffers));
  if (cut) {
    bppsa_batch_set_steps(&buffers, along->first_step, along->steps);
  }
  const bppsa_status status = bppsa_streams_evaluate(&shares, &buffers, first, count, result);
  bppsa_batch_free(&buffers);
  return status;
}

static bppsa_status agree(void *context, int64_t step, bool *stop) {
  const bppsa_data_parallel *dp = context;
  return bppsa_ranks_agree_stop(dp->world, step, stop);
}

const char *bppsa_data_parallel_order(bppsa_data_parallel *dp) {
  char text[BPPSA_REVERSE_FIRST_TEXT];
  snprintf(dp->order, sizeof dp->order, "weight gradients that come last: %s", bppsa_reverse_first_text(&dp->search, text));
  return dp->order;
}

/* Tells what the search has found, or at the start that k is smaller than was asked for. */
static const char *note(void *context) {
  bppsa_data_parallel *dp = context;
  const bool known = dp->noted;
  dp->noted = true;
  return known ? NULL : bppsa_data_parallel_order(dp);
}

static bppsa_status share(void *context, int64_t count, const bppsa_named_view *tensors) {
  const bppsa_data_parallel *dp = context;
  return bppsa_ranks_copy(dp->world, count, tensors);
}

/* ---- creation ---- */

static bppsa_status check(const bppsa_comm *comm, const bppsa_model *model, const bppsa_data_parallel_config *config) {
  const int32_t ranks = bppsa_comm_size(comm);
  if (model->device != NULL && bppsa_comm_get_device(comm) != model->device) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "data parallelism: the model is on %s, expected a communicator for its arrays",
                      bppsa_device_get_name(model->device));
  }
  if (config->batch < 1 || config->bucket_bytes < 1 || config->reverse_first < -1 || config->tag < 0 ||
      (unsigned)config->reduction > BPPSA_REDUCTION_LIBRARY) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "data parallelism: batch %" PRId64 ", buckets of %" PRId64 " bytes, reverse first %" PRId64
                      ", tag %d, expected 1 or more, 1 or more, -1 or more, 0 or more",
                      config->batch, config->bucket_bytes, config->reverse_first, config->tag);
  }
  if (ranks > config->batch) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "ranks: %d, more than the %" PRId64 " samples of a batch, expected at most that many",
                      ranks, config->batch);
  }
  const bppsa_forward_plan *forward = bppsa_forward_plan_of(model);
  return forward == NULL || !forward->speculative || bppsa_data_parallel_block(config, ranks) >= config->batch
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                          "data parallelism: speculative forward passes of parts of a batch, whose samples would decide about "
                          "pauses, expected whole batches, or sequential passes");
}

bppsa_status bppsa_data_parallel_create(bppsa_comm *comm, bppsa_model *model, const bppsa_data_parallel_config *config,
                                        bppsa_data_parallel **made) {
  BPPSA_REQUIRE(comm != NULL && model != NULL && config != NULL && made != NULL);
  BPPSA_TRY(check(comm, model, config));
  bppsa_data_parallel *dp = bppsa_calloc(1, sizeof *dp);
  if (dp == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *dp = (bppsa_data_parallel){
      .comm = comm, .world = config->time != NULL ? config->world : comm, .model = model, .config = *config};
  dp->block = bppsa_data_parallel_block(config, bppsa_comm_size(comm));
  dp->ranks = (bppsa_train_ranks){.context = dp,
                                  .first = bppsa_comm_rank(dp->world) == 0,
                                  .cut = config->time != NULL,
                                  .first_step = config->first_step,
                                  .steps = config->steps,
                                  .capacity = dp->block,
                                  .forward_backward = forward_backward,
                                  .describe_nonfinite = describe_nonfinite,
                                  .evaluate = evaluate,
                                  .agree = agree,
                                  .note = note,
                                  .share = share,
                                  .gather_states = gather_states};
  bppsa_status status = bppsa_reverse_first_begin(comm, model, config->reverse_first, &dp->search);
  status = status == BPPSA_OK ? change_order(dp) : status;
  dp->noted = config->reverse_first < 0 ? dp->search.most == dp->search.possible : dp->search.k == config->reverse_first;
  if (status != BPPSA_OK) {
    bppsa_data_parallel_destroy(dp);
    return status;
  }
  *made = dp;
  return BPPSA_OK;
}

void bppsa_data_parallel_destroy(bppsa_data_parallel *dp) {
  if (dp == NULL) {
    return;
  }
  bppsa_buckets_destroy(dp->buckets);
  bppsa_free(dp);
}

const bppsa_train_ranks *bppsa_data_parallel_ranks(const bppsa_data_parallel *dp) {
  return &dp->ranks;
}

int64_t bppsa_data_parallel_reverse_first(const bppsa_data_parallel *dp) {
  return dp->search.running ? -1 : dp->search.k;
}

int64_t bppsa_data_parallel_reverse_first_most(const bppsa_data_parallel *dp) {
  return dp->search.most;
}

int64_t bppsa_data_parallel_buckets(const bppsa_data_parallel *dp) {
  return bppsa_buckets_count(dp->buckets);
}
