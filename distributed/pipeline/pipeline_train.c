#include "distributed/pipeline/pipeline_train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "distributed/agree.h"
#include "distributed/part_ranks.h"

enum { COUNTS = 2 /* of a step: correct rows, and all rows */ };

struct bppsa_pipeline_train {
  part_ranks base;
  bppsa_chain *chain;
  bppsa_model *model;
  bppsa_view *values; /* of the model's parameters */
  const bppsa_schedule *list;
  bppsa_pipeline *pipeline;
  int64_t samples; /* of a micro-batch; with halving, of its half */
  int64_t micros;  /* of a step; with halving, halves of micro-batches */
  int64_t steps;   /* of a run of the list */
  int64_t updates; /* of a step */

  int64_t next;           /* the step of the present run that the loop asks for next; 0: the run has not begun */
  int64_t runs;           /* before the present one */
  bppsa_batch *batch;     /* the loop's buffers, for labels and targets */
  const int64_t *indices; /* of the run's samples */
  double *losses;         /* of each update in the run */
  double *counts;         /* [steps][COUNTS] */
  double forward_s, all_s;
};

int64_t bppsa_pipeline_train_micros(const bppsa_schedule *list) {
  return list->micros / list->rounds;
}

/* ---- data ---- */

/* Finds the samples of a micro-batch: the samples of the run's updates follow each other. */
static const int64_t *samples_of(const bppsa_pipeline_train *t, const bppsa_pipeline_micro *micro) {
  const int64_t update = micro->update - t->runs * t->steps * t->updates;
  return t->indices + (update * micro->blocks + micro->block) * t->samples;
}

static bppsa_status fill_input(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *x) {
  const bppsa_pipeline_train *t = context;
  int64_t shape[4];
  const int32_t ndim = bppsa_dataset_shape(t->batch->dataset, t->samples, shape);
  bppsa_view batch = bppsa_view_make(x->data, x->dtype, ndim, shape);
  batch.device = x->device;
  return bppsa_batch_put_inputs(t->batch, t->samples, samples_of(t, micro), &batch);
}

static void count_rows(void *context, const bppsa_pipeline_micro *micro, const bppsa_loss_result *result) {
  const bppsa_pipeline_train *t = context;
  double *counts = &t->counts[(micro->update / t->updates - t->runs * t->steps) * COUNTS];
  counts[0] += (double)result->correct;
  counts[1] += (double)result->rows;
}

static bppsa_status fill_labels(void *context, const bppsa_pipeline_micro *micro, int64_t *labels) {
  const bppsa_pipeline_train *t = context;
  return bppsa_dataset_fill(t->batch->dataset, t->batch->device, t->samples, samples_of(t, micro), NULL, labels);
}

static bppsa_status find_loss(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *logits, const bppsa_view *seed,
                              double *loss) {
  bppsa_pipeline_train *t = context;
  bppsa_batch *b = t->batch;
  const bppsa_dataset *data = b->dataset;
  const int64_t shape[3] = {data->seq_len, t->samples, t->model->classes}, skip = data->labels_per_step ? 0 : 1;
  bppsa_loss_result result;
  BPPSA_TRY(bppsa_batch_put_targets(b, t->samples, samples_of(t, micro)));
  b->logits = bppsa_view_make(logits->data, logits->dtype, (int32_t)(3 - skip), shape + skip);
  b->dlogits = bppsa_view_make(seed->data, seed->dtype, (int32_t)(3 - skip), shape + skip);
  b->logits.device = logits->device;
  b->dlogits.device = seed->device;
  BPPSA_TRY(bppsa_batch_loss_part(b, t->samples * micro->blocks, &result));
  count_rows(t, micro, &result);
  *loss = result.loss;
  return BPPSA_OK;
}

static double rate_of(void *context, int64_t update) {
  const bppsa_pipeline_train *t = context;
  return t->base.lead->rate(t->base.lead->context, update / t->updates - t->runs * t->steps);
}

/* ---- steps ---- */

/* Seconds that this rank spent in forward passes. */
static double forward_seconds(const bppsa_pipeline_train *t) {
  const bppsa_pipeline_event *events = bppsa_pipeline_events(t->pipeline);
  double seconds = 0;
  for (int64_t id = 0; id < t->list->count; ++id) {
    const bool forward = t->list->ops[id].kind == BPPSA_KIND_F || t->list->ops[id].kind == BPPSA_KIND_RECOMPUTE;
    seconds += forward && !isnan(events[id].end) ? events[id].end - events[id].start : 0;
  }
  return seconds;
}

/* Executes the list once, for the steps whose samples `indices` names. */
static bppsa_status run_list(bppsa_pipeline_train *t, bppsa_batch *batch, const int64_t *indices) {
  const int64_t left = t->base.lead->left(t->base.lead->context), numbers = t->steps * COUNTS;
  const bool labelled = !bppsa_objective_real(&batch->dataset->objective) && !batch->dataset->objective.ignores;
  const bppsa_pipeline_data data = {.context = t,
                                    .input = fill_input,
                                    .loss = find_loss,
                                    .classes = t->model->classes,
                                    .labels = labelled ? fill_labels : NULL,
                                    .judged = count_rows,
                                    .rate = rate_of};
  if (left < t->steps) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "schedule %s: %" PRId64 " steps to the end of the epoch or of the run, expected a multiple of the %" PRId64
                      " steps between two flushes",
                      t->list->scheme->id, left, t->steps);
  }
  t->batch = batch;
  t->indices = indices;
  t->base.whole = false;
  memset(t->counts, 0, (size_t)numbers * sizeof *t->counts);
  const double start = bppsa_now();
  BPPSA_TRY(bppsa_pipeline_run(t->pipeline, &data, t->losses));
  BPPSA_TRY(bppsa_ranks_reduce(t->base.comm, BPPSA_COMM_SUM, BPPSA_F64, numbers, t->counts));
  t->all_s = bppsa_now() - start;
  t->forward_s = forward_seconds(t);
  return BPPSA_OK;
}

static bppsa_status forward_backward(void *context, bppsa_batch *batch, int64_t count, const int64_t *indices,
                                     bppsa_train_record *record, bppsa_loss_result *loss) {
  bppsa_pipeline_train *t = context;
  bppsa_comm_at(t->base.comm, "training step", record->step);
  if (count != t->samples * t->micros) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "schedule %s: a batch of %" PRId64 " samples, expected %" PRId64 " micro-batches of %" PRId64,
                      t->list->scheme->id, count, t->micros, t->samples);
  }
  if (t->next == 0) {
    BPPSA_TRY(run_list(t, batch, indices));
  }
  const double *counts = &t->counts[t->next * COUNTS];
  *loss = (bppsa_loss_result){.correct = (int64_t)counts[0], .rows = (int64_t)counts[1], .weight = counts[1]};
  for (int64_t u = t->next * t->updates; u < (t->next + 1) * t->updates; ++u) {
    loss->loss += t->losses[u] / (double)t->updates;
    record->grad_norm = bppsa_pipeline_norms(t->pipeline)[u];
  }
  record->loss = loss->loss;
  record->accuracy = bppsa_accuracy(loss->correct, loss->rows);
  record->forward_s = t->forward_s / (double)t->steps;
  record->samples_per_s = t->steps > 1 ? (double)(t->steps * count) / t->all_s : 0;
  record->backward_s = (t->all_s - t->forward_s) / (double)t->steps; /* with updates, and with the time that stages waited */
  t->next = (t->next + 1) % t->steps;
  t->runs += t->next == 0;
  return BPPSA_OK;
}

/* ---- what the loop needs besides ---- */

/* The run can only stop where the pipeline is empty; the loop asks again. */
static bppsa_status agree(void *context, int64_t step, bool *stop) {
  const bppsa_pipeline_train *t = context;
  BPPSA_TRY(bppsa_ranks_agree_stop(t->base.comm, step, stop));
  *stop = *stop && t->next == 0;
  return BPPSA_OK;
}

static bppsa_status place(void *context) {
  bppsa_pipeline_train *t = context;
  return bppsa_pipeline_place(t->pipeline, t->values, bppsa_optimizer_get_state(t->base.lead->optimizer));
}

static bppsa_status collect(void *context) {
  bppsa_pipeline_train *t = context;
  return bppsa_pipeline_collect(t->pipeline, t->values, bppsa_optimizer_get_state(t->base.lead->optimizer));
}

/* ---- creation ---- */

static bppsa_status make(bppsa_pipeline_train *t, const bppsa_pipeline_config *config) {
  t->values = bppsa_calloc(t->model->parameter_count + 1, sizeof *t->values);
  if (t->values == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < t->model->parameter_count; ++i) {
    t->values[i] = t->model->parameters[i].value;
  }
  BPPSA_TRY(bppsa_pipeline_create(t->base.comm, t->chain, config, t->values, &t->pipeline));
  const int64_t updates = bppsa_pipeline_updates(t->pipeline);
  t->updates = updates / t->steps;
  if (t->updates < 1 || t->updates * t->steps != updates) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                      "schedule %s: %" PRId64 " updates in %" PRId64 " iterations, expected as many in each", t->list->scheme->id,
                      updates, t->steps);
  }
  t->base.table.updates = t->updates;
  t->losses = bppsa_calloc(updates, sizeof *t->losses);
  t->counts = bppsa_calloc(t->steps * COUNTS, sizeof *t->counts);
  return t->losses == NULL || t->counts == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

bppsa_status bppsa_pipeline_train_create(bppsa_comm *comm, bppsa_chain *chain, bppsa_model *model,
                                         const bppsa_pipeline_config *config, bppsa_pipeline_train **made) {
  BPPSA_REQUIRE(comm != NULL && chain != NULL && model != NULL && config != NULL && config->schedule != NULL && made != NULL);
  bppsa_pipeline_train *t = bppsa_calloc(1, sizeof *t);
  if (t == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *t = (bppsa_pipeline_train){.chain = chain,
                              .model = model,
                              .list = config->schedule,
                              .samples = config->samples / bppsa_pipeline_parts(config->schedule),
                              .micros = bppsa_pipeline_train_micros(config->schedule) * bppsa_pipeline_parts(config->schedule),
                              .steps = config->schedule->rounds};
  bppsa_part_ranks_init(&t->base, comm, t->samples);
  t->base.table.forward_backward = forward_backward;
  t->base.table.agree = agree;
  t->base.place = place;
  t->base.collect = collect;
  (void)snprintf(t->base.words, sizeof t->base.words, "in schedule %s", t->list->scheme->id);
  const bppsa_status status = make(t, config);
  if (status != BPPSA_OK) {
    bppsa_pipeline_train_destroy(t);
    return status;
  }
  *made = t;
  return BPPSA_OK;
}

void bppsa_pipeline_train_destroy(bppsa_pipeline_train *t) {
  if (t == NULL) {
    return;
  }
  bppsa_pipeline_destroy(t->pipeline);
  void *const blocks[] = {t->values, t->losses, t->counts, t};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

const bppsa_train_ranks *bppsa_pipeline_train_ranks(const bppsa_pipeline_train *t) {
  return &t->base.table;
}

const bppsa_pipeline *bppsa_pipeline_train_executor(const bppsa_pipeline_train *t) {
  return t->pipeline;
}
