#include "distributed/layers/layer_train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/cut.h"
#include "distributed/layers/layer_split_internal.h"
#include "distributed/part_ranks.h"

enum { FIRST_TAG = 2048, SUMS_TAG = 1 };

/* What is summed over the groups besides gradients. */
enum { LOSS, CORRECT, ROWS, NUMBERS };

struct bppsa_layer_train {
  part_ranks base;
  bppsa_comm *group, *among; /* among: the ranks with this rank's place in the other groups */
  bppsa_model *whole, *part;
  bppsa_layer_train_config config;
  const bppsa_device *device;
  bppsa_optimizer *optimizer; /* of the part */
  layer_sum numbers;
};

int64_t bppsa_layer_train_samples(const bppsa_layer_train_config *config, int64_t ranks) {
  return (config->batch - 1) / (ranks / config->group) + 1;
}

const char *bppsa_layer_train_text(const bppsa_layer_train_config *config, bppsa_comm_transport transport, int64_t ranks,
                                   char *text, size_t size) {
  char sum[32] = "a tree", groups[48] = "the ";
  if (config->reduction == BPPSA_REDUCTION_LIBRARY) {
    snprintf(sum, sizeof sum, "the allreduce of %s", bppsa_comm_transport_name(transport));
  }
  if (config->group < ranks) {
    snprintf(groups, sizeof groups, "%" PRId64 " groups of ", ranks / config->group);
  }
  snprintf(text, size, "%s over %s%" PRId64 " rank%s of %s parallelism", sum, groups, config->group, config->group > 1 ? "s" : "",
           bppsa_layer_strategy_name(config->strategy));
  return text;
}

/* ---- a step ---- */

/* Computes the loss of this group's samples, from `first` on, and their gradients; these are then added up over all groups. */
static bppsa_status compute(bppsa_layer_train *t, bppsa_batch *batch, int64_t all, int64_t first, int64_t count,
                            const int64_t *indices, bppsa_train_record *record, bppsa_loss_result *loss) {
  const int64_t shape[] = {count, t->part->classes};
  *loss = (bppsa_loss_result){.loss = 0};
  if (count == 0) {
    return bppsa_layer_split_skip(t->part);
  }
  memcpy(batch->indices, indices + first, (size_t)count * sizeof *indices);
  BPPSA_TRY(bppsa_batch_stage(batch, count));
  batch->first = first;
  double start = bppsa_now();
  BPPSA_TRY(t->part->ops->forward(t->part, &batch->x_view, NULL, &batch->logits));
  record->forward_s = bppsa_now() - start;
  batch->dlogits = bppsa_view_make(batch->seed.view.data, t->part->dtype, 2, shape);
  BPPSA_TRY(bppsa_batch_loss_part(batch, all, loss));
  start = bppsa_now();
  BPPSA_TRY(t->part->ops->backward(t->part, &batch->dlogits));
  record->backward_s = bppsa_now() - start;
  return BPPSA_OK;
}

/* Adds up the groups' numbers. Where the mean leaves rows out, scales gradients and loss to the rows that count. */
static bppsa_status add_up(bppsa_layer_train *t, int64_t all, bppsa_loss_result *loss) {
  double numbers[NUMBERS] = {loss->loss, (double)loss->correct, (double)loss->rows};
  BPPSA_TRY(bppsa_layer_sum_run(&t->numbers, numbers));
  *loss = (bppsa_loss_result){
      .loss = numbers[LOSS], .correct = (int64_t)numbers[CORRECT], .rows = (int64_t)numbers[ROWS], .weight = numbers[ROWS]};
  if (loss->rows > 0 && loss->rows < all) {
    const double factor = (double)all / (double)loss->rows;
    loss->loss *= factor;
    bppsa_model_scale_gradients(t->part, factor);
  }
  return BPPSA_OK;
}

static void update(bppsa_layer_train *t, bppsa_train_record *record) {
  const double start = bppsa_now();
  if (t->config.clip_norm > 0) {
    bppsa_gradient_clip(t->part, t->device, record->grad_norm, t->config.clip_norm);
  }
  bppsa_optimizer_set_lr(t->optimizer, t->base.lead->rate(t->base.lead->context, 0));
  bppsa_optimizer_step(t->optimizer, t->device);
  t->base.whole = false;
  record->update_s = bppsa_now() - start;
}

static bppsa_status forward_backward(void *context, bppsa_batch *batch, int64_t count, const int64_t *indices,
                                     bppsa_train_record *record, bppsa_loss_result *loss) {
  bppsa_layer_train *t = context;
  const int64_t groups = bppsa_comm_size(t->among), mine = bppsa_comm_rank(t->among);
  const int64_t first = bppsa_cut(count, groups, mine), end = bppsa_cut(count, groups, mine + 1);
  bppsa_loss_result found;
  bppsa_comm_at(t->base.comm, "training step", record->step);
  record->forward_s = record->backward_s = 0;
  BPPSA_TRY(compute(t, batch, count, first, end - first, indices, record, &found));
  BPPSA_TRY(add_up(t, count, &found));
  BPPSA_TRY(bppsa_layer_split_norm(t->part, &record->grad_norm));
  record->loss = found.loss;
  record->accuracy = bppsa_accuracy(found.correct, found.rows);
  if (isfinite(found.loss) && isfinite(record->grad_norm)) {
    update(t, record);
  }
  *loss = found;
  return BPPSA_OK;
}

/* ---- what the loop needs besides ---- */

/* Calls `move` with every tensor of the part (weights, and the optimiser's state), its parameter, and the tensor of the whole. */
typedef bppsa_status (*mover)(bppsa_model *part, int64_t parameter, void *own, void *whole);

static bppsa_status move_all(bppsa_layer_train *t, mover move) {
  const bppsa_optimizer_state *own = bppsa_optimizer_get_state(t->optimizer),
                              *whole = bppsa_optimizer_get_state(t->base.lead->optimizer);
  const int64_t slots = t->part->parameter_count > 0 ? own->count / t->part->parameter_count : 0;
  for (int64_t i = 0; i < t->part->parameter_count; ++i) {
    BPPSA_TRY(move(t->part, i, t->part->parameters[i].value.data, t->whole->parameters[i].value.data));
    for (int64_t slot = i * slots; slot < (i + 1) * slots; ++slot) {
      BPPSA_TRY(move(t->part, i, own->tensors[slot].view.data, whole->tensors[slot].view.data));
    }
  }
  return BPPSA_OK;
}

static bppsa_status take_tensor(bppsa_model *part, int64_t parameter, void *own, void *whole) {
  bppsa_layer_split_take(part, parameter, whole, own);
  return BPPSA_OK;
}

static bppsa_status collect_tensor(bppsa_model *part, int64_t parameter, void *own, void *whole) {
  return bppsa_layer_split_collect(part, parameter, own, whole);
}

static bppsa_status place(void *context) {
  bppsa_layer_train *t = context;
  bppsa_optimizer_get_state(t->optimizer)->step = bppsa_optimizer_get_state(t->base.lead->optimizer)->step;
  return move_all(t, take_tensor);
}

static bppsa_status collect(void *context) {
  bppsa_layer_train *t = context;
  BPPSA_TRY(move_all(t, collect_tensor));
  bppsa_optimizer_get_state(t->base.lead->optimizer)->step = bppsa_optimizer_get_state(t->optimizer)->step;
  return BPPSA_OK;
}

/* ---- creation ---- */

static bppsa_status check(const bppsa_layer_train_config *config, int64_t ranks) {
  if (config->group < 1 || ranks % config->group != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: groups of %" PRId64 " ranks, expected a divisor of the %" PRId64 " ranks",
                      bppsa_layer_strategy_name(config->strategy), config->group, ranks);
  }
  return ranks / config->group <= config->batch
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "%s: %" PRId64 " groups of ranks, more than the %" PRId64
                          " samples of a batch, expected at most that many",
                          bppsa_layer_strategy_name(config->strategy), ranks / config->group, config->batch);
}

static bppsa_status make(bppsa_layer_train *t, const bppsa_cnn_network *network) {
  const bppsa_layer_train_config *c = &t->config;
  const int32_t rank = bppsa_comm_rank(t->base.comm), size = (int32_t)c->group;
  BPPSA_TRY(bppsa_comm_split(t->base.comm, rank / size, rank % size, &t->group));
  BPPSA_TRY(bppsa_comm_split(t->base.comm, rank % size, rank / size, &t->among));
  const bppsa_layer_split_config split = {.strategy = c->strategy,
                                          .group = t->group,
                                          .among = t->among,
                                          .batch = bppsa_layer_train_samples(c, bppsa_comm_size(t->base.comm)),
                                          .dtype = t->whole->dtype,
                                          .reduction = c->reduction,
                                          .tag = FIRST_TAG};
  BPPSA_TRY(bppsa_layer_split_create(network, &split, t->device, &t->part));
  BPPSA_TRY(bppsa_layer_sum_create(t->among, BPPSA_REDUCTION_ORDERED, BPPSA_F64, NUMBERS, SUMS_TAG, &t->numbers));
  return bppsa_optimizer_create(&c->optimizer, t->part, &t->optimizer);
}

bppsa_status bppsa_layer_train_create(bppsa_comm *comm, const bppsa_cnn_network *network, bppsa_model *model,
                                      const bppsa_layer_train_config *config, const bppsa_device *device,
                                      bppsa_layer_train **made) {
  BPPSA_REQUIRE(comm != NULL && network != NULL && model != NULL && config != NULL && device != NULL && made != NULL);
  BPPSA_REQUIRE((unsigned)config->strategy < BPPSA_LAYERS_COUNT);
  BPPSA_TRY(check(config, bppsa_comm_size(comm)));
  bppsa_layer_train *t = bppsa_calloc(1, sizeof *t);
  if (t == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *t = (bppsa_layer_train){.whole = model, .config = *config, .device = device};
  bppsa_part_ranks_init(&t->base, comm, bppsa_layer_train_samples(config, bppsa_comm_size(comm)));
  t->base.table.updates = 1;
  t->base.table.forward_backward = forward_backward;
  t->base.place = place;
  t->base.collect = collect;
  (void)snprintf(t->base.words, sizeof t->base.words, "with %s parallelism", bppsa_layer_strategy_name(config->strategy));
  const bppsa_status status = make(t, network);
  if (status != BPPSA_OK) {
    bppsa_layer_train_destroy(t);
    return status;
  }
  *made = t;
  return BPPSA_OK;
}

void bppsa_layer_train_destroy(bppsa_layer_train *t) {
  if (t == NULL) {
    return;
  }
  bppsa_optimizer_destroy(t->optimizer);
  bppsa_layer_sum_free(&t->numbers);
  bppsa_model_destroy(t->part);
  bppsa_comm_destroy(t->among);
  bppsa_comm_destroy(t->group);
  bppsa_free(t);
}

const bppsa_train_ranks *bppsa_layer_train_ranks(const bppsa_layer_train *t) {
  return &t->base.table;
}

const bppsa_model *bppsa_layer_train_part(const bppsa_layer_train *t) {
  return t->part;
}
