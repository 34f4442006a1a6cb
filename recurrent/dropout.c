/* Dropout between layers: y = x ∘ m / (1 - p), m = 0 with probability p and otherwise 1. Every number has a random number of its
 * own, by a counter of the training step, the layer, the sample, the time and the unit: the backward pass finds the same ones, and
 * the order of the samples, threads and ranks change nothing. */
#include "core/base/philox.h"
#include "core/compute/pool.h"
#include "recurrent/recurrent_internal.h"

typedef struct {
  const recurrent_network *n;
  uint64_t stream;
  const void *from;
  void *to;
  recurrent_stretch stretch;
} drop_pass;

/* Units unit .. unit + count - 1 of a row, at most four, by one block of random numbers. */
static void drop_units(const drop_pass *p, uint64_t block, int64_t at, int64_t count) {
  const double dropout = p->n->config.dropout, scale = 1 / (1 - dropout), most = dropout * 0x1p32;
  uint32_t random[4];
  bppsa_random_block(p->n->config.dropout_seed, p->stream, block, random);
  for (int64_t i = 0; i < count; ++i) {
    const bool kept = (double)random[i] >= most;
    if (p->n->config.dtype == BPPSA_F32) {
      ((float *)p->to)[at + i] = kept ? ((const float *)p->from)[at + i] * (float)scale : 0;
    } else {
      ((double *)p->to)[at + i] = kept ? ((const double *)p->from)[at + i] * scale : 0;
    }
  }
}

static void drop_rows(const void *context, int32_t worker, int64_t first, int64_t end) {
  enum { NUMBERS = 4 /* in a block */ };
  const drop_pass *p = context;
  const recurrent_network *n = p->n;
  const recurrent_stretch *s = &p->stretch;
  const int64_t width = bppsa_recurrent_outputs(&n->config), blocks = (width + NUMBERS - 1) / NUMBERS;
  (void)worker;
  for (int64_t i = first; i < end; ++i) {
    const int64_t place = n->batch - s->samples + i % s->samples, step = n->config.part.first + s->first + i / s->samples;
    const uint64_t sample = (uint64_t)n->drop_samples[bppsa_ragged_sample(n, place)];
    const uint64_t row = (sample * (uint64_t)bppsa_resets_steps(n) + (uint64_t)step) * (uint64_t)blocks;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t unit = b * NUMBERS, left = width - unit;
      drop_units(p, row + (uint64_t)b, (s->row + i) * width + unit, left < NUMBERS ? left : NUMBERS);
    }
  }
}

uint64_t bppsa_recurrent_drop_stream(const recurrent_network *n, int64_t l) {
  return (uint64_t)BPPSA_STREAM_DROPOUT + ((uint64_t)bppsa_recurrent_level(n, l) << 8);
}

bppsa_status bppsa_recurrent_drop(const recurrent_network *n, int64_t l, const void *rows, void *left) {
  enum { FLOPS = 40 /* a number takes as long as so many FLOP of a kernel */ };
  const uint64_t stream = bppsa_recurrent_drop_stream(n, l) + ((uint64_t)n->drop_step << 32);
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const drop_pass pass = {n, stream, rows, left, bppsa_ragged_stretch(n, k)};
    const int64_t count = pass.stretch.steps * pass.stretch.samples;
    bppsa_parallel_for(n->threads, count, bppsa_loop_work(FLOPS * (double)count * (double)bppsa_recurrent_outputs(&n->config), 0),
                       drop_rows, &pass);
  }
  return BPPSA_OK;
}
