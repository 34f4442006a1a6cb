/* Batches of streams whose gradients go back through K batches: BPTT(h; h') of Williams and Peng (1990), with h = K T and h' = T.
 *
 * The pass of batch n has the steps of batches n - K + 1 .. n, each sample's one behind the other, all with the present weights.
 * It begins with the states in which the pass of batch n - K has ended, which are constants, and its loss is that of batch n alone:
 * the rows of earlier batches have the weight 0. The first K - 1 batches of an epoch have fewer in front of them, and evaluation
 * has one batch in a pass; these passes are samples with lengths. */
#include "core/base/alloc.h"
#include "core/compute/pool.h"
#include "train/batch.h"
#include "train/blocks.h"

bppsa_status bppsa_windows_check(const bppsa_dataset *dataset) {
  const char *beside = !dataset->streams            ? "samples that are no pieces of streams"
                       : dataset->packing != NULL   ? "rows, which begin anew"
                       : dataset->ops->part == NULL ? "images"
                                                    : NULL;
  int64_t steps;
  if (dataset->windows <= 1 || (beside == NULL && bppsa_mul(dataset->windows, dataset->seq_len, &steps))) {
    return BPPSA_OK;
  }
  return beside == NULL ? bppsa_fail(BPPSA_ERR_MEMORY, "gradients through %lld batches of %lld steps: too many steps",
                                     (long long)dataset->windows, (long long)dataset->seq_len)
                        : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "gradients through %lld batches: of %s, expected pieces of streams",
                                     (long long)dataset->windows, beside);
}

/* Batches in the pass of the present one. */
static int64_t batches(const bppsa_batch *b) {
  return b->training ? bppsa_min(b->past.windows, b->past.number + 1) : 1;
}

/* The data set's sample that comes `back` batches before a sample of the present batch. */
static int64_t earlier(const bppsa_batch *b, int64_t sample, int64_t back) {
  return back == 0 ? b->indices[sample] : b->past.order[sample - back * b->past.apart];
}

static int64_t steps_of(const bppsa_dataset *dataset, int64_t sample) {
  return dataset->lengths != NULL ? dataset->lengths[sample] : dataset->seq_len;
}

/* Writes a sample of the data set as steps `at`, at + 1, .. of sample s of the pass. `judged`: the loss counts it. */
static void fill_part(const bppsa_batch *b, int64_t s, int64_t sample, int64_t at, bool judged) {
  const bppsa_dataset *d = b->dataset;
  const int64_t steps = steps_of(d, sample), rows = d->labels_per_step ? steps : 1, first = at * b->count + s,
                row = d->labels_per_step ? first : s;
  const size_t size = bppsa_dtype_size(b->model->dtype);
  char *x = b->gpu.device != NULL ? b->gpu.x_staging.data : b->x.view.data, *targets = judged ? b->targets.data : NULL;
  const bppsa_dataset_part part = {.sample = sample,
                                   .steps = steps,
                                   .apart = b->count,
                                   .dtype = b->model->dtype,
                                   .x = x + (size_t)(first * d->input) * size,
                                   .labels = judged && b->labels != NULL ? b->labels + row : NULL,
                                   .targets = targets != NULL ? targets + (size_t)(row * d->classes) * size : NULL};
  d->ops->part(d, &part);
  for (int64_t t = 0; b->resets != NULL && t < steps; ++t) {
    b->resets[first + t * b->count] = d->resets[sample * d->seq_len + t];
  }
  for (int64_t t = 0; b->weights != NULL && t < rows; ++t) {
    const double weight = d->loss_weights == NULL ? 1 : d->loss_weights[d->labels_per_step ? sample * d->seq_len + t : sample];
    b->weights[row + t * b->count] = judged ? weight : 0;
  }
}

/* Samples first .. end - 1 of the pass. Rows behind the steps of a sample are not read. */
static void fill_samples(const void *context, int32_t worker, int64_t first, int64_t end) {
  const bppsa_batch *b = context;
  (void)worker;
  for (int64_t s = first; s < end; ++s) {
    int64_t at = 0;
    for (int64_t back = batches(b) - 1; back >= 0; --back) {
      const int64_t sample = earlier(b, s, back);
      fill_part(b, s, sample, at, back == 0);
      at += steps_of(b->dataset, sample);
    }
    b->lengths[s] = at;
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
  for (; back > 0 && *step > steps_of(batch->dataset, found); found = earlier(batch, sample, --back)) {
    *step -= steps_of(batch->dataset, found);
  }
  return found;
}
