#include "train/evaluate.h"

#include <math.h>
#include <string.h>

#include "train/blocks.h"
#include "train/evaluate_internal.h"

bppsa_evaluation bppsa_batch_evaluation(const bppsa_batch_sums *sums, int64_t samples) {
  bppsa_evaluation made = {.loss = sums->rows > 0 ? sums->loss / sums->weight : 0.0,
                           .accuracy = bppsa_accuracy(sums->correct, sums->rows),
                           .samples = samples};
  memcpy(made.account, sums->account, sizeof made.account);
  return made;
}

/* The mean loss of this rank's rows, where ranks cut sequences along time; 0 where it has no rows. */
static bppsa_status own_loss(bppsa_batch *batch, bppsa_loss_result *result) {
  const double all = (double)bppsa_batch_rows(batch);
  BPPSA_TRY(bppsa_batch_loss_part(batch, batch->count, result));
  result->loss *= result->rows > 0 ? all / result->weight : 0;
  return BPPSA_OK;
}

bppsa_status bppsa_batch_evaluate_part(bppsa_batch *batch, int64_t first, int64_t count, int64_t before,
                                       const bppsa_evaluation_sink *sink, bppsa_batch_sums *sums) {
  bppsa_loss_result part;
  for (int64_t i = 0; i < count; ++i) {
    batch->indices[i] = first + i;
  }
  BPPSA_TRY(bppsa_batch_stage(batch, count));
  batch->first = before;
  BPPSA_TRY(bppsa_batch_queue_fill(batch));
  BPPSA_TRY(bppsa_batch_forward(batch));
  BPPSA_TRY(batch->steps == batch->length ? bppsa_batch_loss(batch, &part) : own_loss(batch, &part));
  BPPSA_TRY(bppsa_model_add_pass(batch->model, BPPSA_PASS_FORWARD, sums->account));
  if (!isfinite(part.loss)) {
    bppsa_line line = {.length = 0};
    bppsa_batch_describe_nonfinite(batch, "loss", &line);
    return bppsa_fail(BPPSA_ERR_NUMERIC, "evaluation of samples %lld .. %lld: %s", (long long)first,
                      (long long)(first + count - 1), line.text);
  }
  BPPSA_TRY(sink == NULL ? BPPSA_OK : sink->each(sink->context, &batch->logits));
  sums->loss += part.loss * part.weight;
  sums->weight += part.weight;
  sums->correct += part.correct;
  sums->rows += part.rows;
  return BPPSA_OK;
}

static bppsa_status evaluate_sums(bppsa_batch *batch, int64_t first, int64_t count, const bppsa_evaluation_sink *sink,
                                  bppsa_batch_sums *sums) {
  bppsa_batch_sums all = {0};
  for (int64_t done = 0; done < count; done += batch->count) {
    bppsa_batch_follow(batch, done / batch->capacity, NULL, batch->capacity);
    BPPSA_TRY(bppsa_batch_evaluate_part(batch, first + done, bppsa_min(batch->capacity, count - done), 0, sink, &all));
  }
  *sums = all;
  return BPPSA_OK;
}

bppsa_status bppsa_batch_evaluate_sums(bppsa_batch *batch, int64_t first, int64_t count, const bppsa_evaluation_sink *sink,
                                       bppsa_batch_sums *sums) {
  const bool training = batch->training;
  batch->training = false;
  bppsa_batch_restart(batch);
  const bppsa_status status = evaluate_sums(batch, first, count, sink, sums);
  bppsa_batch_restart(batch);
  batch->training = training;
  return status;
}

bppsa_status bppsa_batch_evaluate(bppsa_batch *batch, int64_t first, int64_t count, const bppsa_evaluation_sink *sink,
                                  bppsa_evaluation *result) {
  bppsa_batch_sums sums;
  BPPSA_TRY(bppsa_batch_evaluate_sums(batch, first, count, sink, &sums));
  *result = bppsa_batch_evaluation(&sums, count);
  return BPPSA_OK;
}

bppsa_status bppsa_evaluate_check(const bppsa_dataset *dataset, int64_t first, int64_t count, int64_t batch) {
  if (first < 0 || count < 1 || first >= dataset->samples || count > dataset->samples - first) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "evaluation: %lld samples from %lld on, the data set has %lld", (long long)count,
                      (long long)first, (long long)dataset->samples);
  }
  if (batch < 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "evaluation: batch %lld, expected at least 1", (long long)batch);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_evaluate(bppsa_model *model, const bppsa_dataset *dataset, const bppsa_device *device, int64_t first,
                            int64_t count, int64_t batch, bppsa_evaluation *result) {
  BPPSA_REQUIRE(model != NULL && dataset != NULL && result != NULL);
  return bppsa_evaluate_each(model, dataset, device, first, count, batch, NULL, result);
}

bppsa_status bppsa_evaluate_each(bppsa_model *model, const bppsa_dataset *dataset, const bppsa_device *device, int64_t first,
                                 int64_t count, int64_t batch, const bppsa_evaluation_sink *sink, bppsa_evaluation *result) {
  BPPSA_REQUIRE(model != NULL && dataset != NULL && result != NULL);
  BPPSA_TRY(bppsa_evaluate_check(dataset, first, count, batch));
  bppsa_batch buffers;
  BPPSA_TRY(bppsa_batch_create(model, dataset, device, bppsa_min(batch, count), bppsa_min(batch, count), false, &buffers));
  const bppsa_status status = bppsa_batch_evaluate(&buffers, first, count, sink, result);
  bppsa_batch_free(&buffers);
  return status;
}
