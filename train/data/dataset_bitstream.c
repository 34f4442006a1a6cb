/* The bitstream task, BPPSA eq. 8. bitstream.h defines its random numbers. */
#include "core/base/alloc.h"
#include "core/compute/pool.h"
#include "train/blocks.h"
#include "train/data/bitstream.h"
#include "train/data/dataset_internal.h"

enum { DEFAULT_SAMPLES = 32000, DEFAULT_SEQ_LEN = 1000, STEPS_PER_TASK = 256 };

typedef struct {
  bppsa_dataset base;
  uint64_t seed;
} bitstream;

/* Writes bits first .. end-1 of one sample's feature to x[t * stride]; first is a multiple of 4. */
static void sample_bits(uint64_t seed, int64_t class, int64_t sample, int64_t feature, int64_t first, int64_t end,
                        bppsa_dtype dtype, void *x, int64_t stride) {
  const uint32_t threshold = bppsa_bitstream_threshold(class);
  for (int64_t t = first; t < end; t += 4) {
    uint32_t random[4];
    bppsa_bitstream_random(seed, sample, feature, t, random);
    for (int64_t lane = 0; lane < 4 && t + lane < end; ++lane) {
      const bool bit = random[lane] < threshold;
      if (dtype == BPPSA_F32) {
        ((float *)x)[(t + lane) * stride] = bit ? 1.0f : 0.0f;
      } else {
        ((double *)x)[(t + lane) * stride] = bit ? 1.0 : 0.0;
      }
    }
  }
}

typedef struct {
  uint64_t seed;
  int64_t classes, steps, count, features;
  const int64_t *indices; /* size count */
  const bppsa_view *x;
} batch_bits;

static void fill_steps(const void *context, int32_t worker, int64_t first, int64_t end) {
  const batch_bits *b = context;
  const int64_t last = bppsa_min(end * STEPS_PER_TASK, b->steps);
  (void)worker;
  for (int64_t s = 0; s < b->count; ++s) {
    const int64_t class = bppsa_bitstream_class(b->seed, b->classes, b->indices[s]);
    for (int64_t i = 0; i < b->features; ++i) {
      char *column = (char *)b->x->data + (size_t)(s * b->features + i) * bppsa_dtype_size(b->x->dtype);
      sample_bits(b->seed, class, b->indices[s], i, first * STEPS_PER_TASK, last, b->x->dtype, column, b->count * b->features);
    }
  }
}

/* Threads divide the time steps, so that each writes its own rows. */
static void bitstream_fill(const bppsa_dataset *dataset, int32_t threads, int64_t count, const int64_t *indices,
                           const bppsa_view *x, int64_t *labels) {
  const uint64_t seed = ((const bitstream *)dataset)->seed;
  const int64_t steps = dataset->seq_len;
  if (labels != NULL) {
    const int64_t rows = dataset->labels_per_step ? steps : 1;
    for (int64_t s = 0; s < count; ++s) {
      labels[s] = bppsa_bitstream_class(seed, dataset->classes, indices[s]);
    }
    for (int64_t i = count; i < rows * count; ++i) {
      labels[i] = labels[i - count];
    }
  }
  if (x == NULL) {
    return;
  }
  enum { BIT_FLOPS = 24 }; /* a random bit takes as long as this many FLOP of a kernel */
  bppsa_parallel_for(threads, (steps + STEPS_PER_TASK - 1) / STEPS_PER_TASK,
                     bppsa_loop_work(BIT_FLOPS * (double)bppsa_view_count(x), 0), fill_steps,
                     &(batch_bits){seed, dataset->classes, steps, count, dataset->input, indices, x});
}

static void bitstream_part(const bppsa_dataset *dataset, const bppsa_dataset_part *p) {
  const uint64_t seed = ((const bitstream *)dataset)->seed;
  const int64_t class = bppsa_bitstream_class(seed, dataset->classes, p->sample);
  for (int64_t t = 0; p->labels != NULL && t < (dataset->labels_per_step ? p->steps : 1); ++t) {
    p->labels[t * p->apart] = class;
  }
  for (int64_t i = 0; p->x != NULL && i < dataset->input; ++i) {
    char *column = (char *)p->x + (size_t)i * bppsa_dtype_size(p->dtype);
    sample_bits(seed, class, p->sample, i, 0, p->steps, p->dtype, column, p->apart * dataset->input);
  }
}

static void bitstream_destroy(bppsa_dataset *dataset) {
  bppsa_free(dataset);
}

static bppsa_status bitstream_queue(const bppsa_dataset *dataset, const bppsa_device *device, int64_t count,
                                    const int64_t *indices, const bppsa_view *x, int64_t *labels) {
  return bppsa_bitstream_queue(dataset, device, ((const bitstream *)dataset)->seed, count, indices, x, labels);
}

static const bppsa_dataset_ops bitstream_ops = {
    .name = "bitstream", .fill = bitstream_fill, .destroy = bitstream_destroy, .queue = bitstream_queue, .part = bitstream_part};

/* Batches whose steps have several features are made on the host. */
static const bppsa_dataset_ops wide_ops = {
    .name = "bitstream", .fill = bitstream_fill, .destroy = bitstream_destroy, .part = bitstream_part};

bppsa_status bppsa_dataset_bitstream(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset) {
  if (argument != NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "data set 'bitstream:%.100s': bitstream takes nothing after a colon, expected bitstream alone", argument);
  }
  bitstream *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const int64_t input = options->input == 0 ? 1 : options->input;
  made->base = (bppsa_dataset){.ops = input == 1 ? &bitstream_ops : &wide_ops,
                               .samples = options->samples == 0 ? DEFAULT_SAMPLES : options->samples,
                               .seq_len = options->seq_len == 0 ? DEFAULT_SEQ_LEN : options->seq_len,
                               .input = input,
                               .classes = options->classes == 0 ? BPPSA_BITSTREAM_CLASSES : options->classes,
                               .labels_per_step = options->labels_per_step,
                               .identity = options->seed};
  made->seed = options->seed;
  *dataset = &made->base;
  return BPPSA_OK;
}
