/* Batches of streams whose gradients go back through K batches: BPTT(h; h') of Williams and Peng (1990), with h = K T and h' = T.
 *
 * The pass of batch n has the steps of batches n - K + 1 .. n, each sample's one behind the other, all with the present weights.
 * It begins with the states in which the pass of batch n - K has ended, which are constants, and its loss is that of batch n alone:
 * the rows of earlier batches have the weight 0. The first K - 1 batches of an epoch have fewer in front of them, and evaluation
 * has one batch in a pass; these passes are samples with lengths.
 *
 * Speculative passes and ranks that share steps need rows of one length. The data set's whole_rows gives them: passes of evaluation
 * have the batches in front of theirs too, and where there are fewer than K, the row begins with steps of zeros. Every sample
 * begins anew in front of each of these steps and of the first one behind them, so they count for nothing, and no state grows in
 * them. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/pool.h"
#include "train/batch.h"
#include "train/blocks.h"

/* Is a learned state of a recurrent network among the parameters? Samples that begin anew take it. */
static bool learns_state(const bppsa_model *model) {
  static const char ending[] = "reset_state";
  bool found = false;
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const size_t length = strlen(model->parameters[i].name),
                 at = length < sizeof ending - 1 ? length : length - (sizeof ending - 1);
    found = found || strcmp(model->parameters[i].name + at, ending) == 0;
  }
  return found;
}

bppsa_status bppsa_windows_check(const bppsa_model *model, const bppsa_dataset *dataset) {
  const bool whole = dataset->whole_rows;
  const char *beside = !dataset->streams                   ? "samples that are no pieces of streams"
                       : dataset->packing != NULL          ? "rows, which begin anew"
                       : dataset->ops->part == NULL        ? "images"
                       : whole && dataset->lengths != NULL ? "samples with lengths in whole rows"
                       : whole && learns_state(model)      ? "a network with a reset state in whole rows"
                                                           : NULL;
  const bool pieces = dataset->streams && dataset->packing == NULL && dataset->ops->part != NULL;
  int64_t steps;
  if (dataset->windows <= 1 || (beside == NULL && bppsa_mul(dataset->windows, dataset->seq_len, &steps))) {
    return BPPSA_OK;
  }
  return beside == NULL
             ? bppsa_fail(BPPSA_ERR_MEMORY, "gradients through %lld batches of %lld steps: too many steps",
                          (long long)dataset->windows, (long long)dataset->seq_len)
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "gradients through %lld batches: of %s, expected %s",
                          (long long)dataset->windows, beside, pieces ? "rows of several lengths" : "pieces of streams");
}

/* Batches in the pass of the present one. */
static int64_t batches(const bppsa_batch *b) {
  return bppsa_batch_has_past(b) ? bppsa_min(b->past.windows, b->past.number + 1) : 1;
}

/* Steps of zeros in front of them. */
static int64_t steps_before(const bppsa_batch *b) {
  return b->dataset->whole_rows ? (b->past.windows - batches(b)) * b->dataset->seq_len : 0;
}

/* The data set's sample that comes `back` batches before a sample of the present batch. */
static int64_t earlier(const bppsa_batch *b, int64_t sample, int64_t back) {
  return back == 0               ? b->indices[sample]
         : b->past.order == NULL ? b->indices[sample] - back * b->past.apart
                                 : b->past.order[sample - back * b->past.apart];
}

static int64_t steps_of(const bppsa_dataset *dataset, int64_t sample) {
  return dataset->lengths != NULL ? dataset->lengths[sample] : dataset->seq_len;
}

/* x of sample s of the pass at a step. */
static char *x_at(const bppsa_batch *b, int64_t step, int64_t s) {
  char *x = b->gpu.device != NULL ? b->gpu.x_staging.data : b->x.view.data;
  return x + (size_t)((step * b->count + s) * b->dataset->input) * bppsa_dtype_size(b->model->dtype);
}

/* Writes a sample of the data set as steps `at`, at + 1, .. of sample s of the pass. `judged`: the loss counts it. */
static void fill_part(const bppsa_batch *b, int64_t s, int64_t sample, int64_t at, bool judged) {
  const bppsa_dataset *d = b->dataset;
  const int64_t steps = steps_of(d, sample), rows = d->labels_per_step ? steps : 1, first = at * b->count + s,
                row = d->labels_per_step ? first : s;
  const size_t size = bppsa_dtype_size(b->model->dtype);
  char *targets = judged ? b->targets.data : NULL;
  const bppsa_dataset_part part = {.sample = sample,
                                   .steps = steps,
                                   .apart = b->count,
                                   .dtype = b->model->dtype,
                                   .x = x_at(b, at, s),
                                   .labels = judged && b->labels != NULL ? b->labels + row : NULL,
                                   .targets = targets != NULL ? targets + (size_t)(row * d->classes) * size : NULL};
  d->ops->part(d, &part);
  for (int64_t t = 0; b->resets != NULL && t < steps; ++t) {
    b->resets[first + t * b->count] = d->resets != NULL ? d->resets[sample * d->seq_len + t] : 0;
  }
  for (int64_t t = 0; b->weights != NULL && t < rows; ++t) {
    const double weight = d->loss_weights == NULL ? 1 : d->loss_weights[d->labels_per_step ? sample * d->seq_len + t : sample];
    b->weights[row + t * b->count] = judged ? weight : 0;
  }
}

/* Writes the steps of zeros in front of sample s of the pass, whose loss does not count. */
static void fill_before(const bppsa_batch *b, int64_t s) {
  const bppsa_dataset *d = b->dataset;
  for (int64_t t = 0; t < steps_before(b); ++t) {
    memset(x_at(b, t, s), 0, (size_t)d->input * bppsa_dtype_size(b->model->dtype));
    b->resets[t * b->count + s] = 1;
    if (b->weights != NULL) {
      b->weights[t * b->count + s] = 0;
    }
  }
}

/* Samples first .. end - 1 of the pass. Rows behind the steps of a sample are not read. */
static void fill_samples(const void *context, int32_t worker, int64_t first, int64_t end) {
  const bppsa_batch *b = context;
  (void)worker;
  for (int64_t s = first; s < end; ++s) {
    int64_t at = steps_before(b);
    fill_before(b, s);
    for (int64_t back = batches(b) - 1; back >= 0; --back) {
      const int64_t sample = earlier(b, s, back);
      fill_part(b, s, sample, at, back == 0);
      at += steps_of(b->dataset, sample);
    }
    if (b->lengths != NULL) {
      b->lengths[s] = at;
    }
    if (steps_before(b) > 0) {
      b->resets[steps_before(b) * b->count + s] = 1;
    }
    for (int64_t t = at; b->resets != NULL && t < b->length; ++t) { /* a mask is checked as a whole */
      b->resets[t * b->count + s] = 0;
    }
  }
}

void bppsa_windows_fill(bppsa_batch *batch) {
  enum { STEP_FLOPS = 8 }; /* a step's value takes as long as this many FLOP of a kernel */
  const double values = (double)batch->length * (double)batch->count * (double)batch->dataset->input;
  bppsa_parallel_for(bppsa_threads(batch->device), batch->count, bppsa_loop_work(STEP_FLOPS * values, 0), fill_samples, batch);
}

int64_t bppsa_windows_place(const bppsa_batch *batch, int64_t sample, int64_t *step) {
  int64_t back = batches(batch) - 1, found = earlier(batch, sample, back);
  *step -= bppsa_min(*step - 1, steps_before(batch));
  for (; back > 0 && *step > steps_of(batch->dataset, found); found = earlier(batch, sample, --back)) {
    *step -= steps_of(batch->dataset, found);
  }
  return found;
}
