/* Samples of their own lengths, samples that begin anew, and dropout, on a GPU. Arrays have all steps of all samples; behind a
 * sample's end there are zeros. */
#ifndef BPPSA_RECURRENT_GPU_SEQUENCE_KERNELS_CUH
#define BPPSA_RECURRENT_GPU_SEQUENCE_KERNELS_CUH

#include <stdint.h>

#include "core/base/philox.h"
#include "core/compute/launch.cuh"

/* Rows of `width` numbers of an array [T][b], which begin from_row and to_row numbers apart. */
template <typename real> struct sequence_rows {
  const int64_t *lengths; /* [b]; NULL: all rows are of a sample's steps */
  const uint8_t *resets;  /* [T][b], not 0: the row becomes `begin`; NULL: none does */
  const real *begin;      /* [width]; NULL: 0 */
  const real *from;       /* NULL: the rows of a sample's steps stay as they are */
  real *to;
  int64_t count, width, from_row, to_row, batch; /* count: of numbers */
};

/* Copies the rows of a sample's steps, and writes 0 behind its end, or `begin` where it begins anew. */
template <typename real> __global__ void bppsa_sequence_cut(sequence_rows<real> r) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < r.count) {
    const int64_t row = at / r.width, i = at % r.width;
    const bool runs =
        (r.lengths == nullptr || row / r.batch < r.lengths[row % r.batch]) && (r.resets == nullptr || r.resets[row] == 0);
    real *to = r.to + row * r.to_row + i;
    if (!runs) {
      *to = r.begin != nullptr ? r.begin[i] : 0;
    } else if (r.from != nullptr) {
      *to = r.from[row * r.from_row + i];
    }
  }
}

/* Copies lengths [batch] that the caller has in the GPU's memory, as int32_t if `small`; each is brought into 1 .. steps. */
__global__ void bppsa_sequence_lengths(const void *from, bool small, int64_t batch, int64_t steps, int64_t *to) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < batch) {
    const int64_t length = small ? ((const int32_t *)from)[at] : ((const int64_t *)from)[at];
    to[at] = length < 1 ? 1 : length > steps ? steps : length;
  }
}

/* Where samples begin anew, for layer_resets. */
struct sequence_resets {
  const int64_t *lengths; /* [b]; NULL: all are `steps` */
  uint8_t *mask;          /* [sides][steps][b]; the first side's are given */
  uint32_t *words;        /* [sides][b][row] */
  int64_t steps, batch, row, sides;
};

/* Makes the bytes of a reverse direction, whose step k is cut where time is cut in front of step length - k, and the words; clears
 * bytes behind a sample's end. A warp makes a word. */
__global__ void bppsa_sequence_resets(sequence_resets r) {
  const int64_t word = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32, line = word / r.row;
  const int64_t step = word % r.row * 32 + threadIdx.x % 32, b = line % r.batch, side = line / r.batch;
  const bool exists = side < r.sides && step < r.steps;
  const int64_t length = r.lengths != nullptr ? r.lengths[b] : r.steps, given = side == 0 ? step : length - step;
  const bool anew = exists && step < length && given < length && r.mask[given * r.batch + b] != 0;
  const uint32_t bits = __ballot_sync(0xffffffffu, anew);
  if (side < r.sides && threadIdx.x % 32 == 0) {
    r.words[word] = bits;
  }
  if (exists && (side > 0 || step >= length)) {
    r.mask[(side * r.steps + step) * r.batch + b] = anew;
  }
}

/* The rows of the samples' last steps, and an array [b] of them. */
template <typename real> struct sequence_ends {
  const int64_t *lengths;
  real *rows, *ends;
  int64_t count, width, row, end_row, batch; /* count: of numbers */
  bool back;                                 /* from ends to rows */
};

template <typename real> __global__ void bppsa_sequence_ends(sequence_ends<real> e) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < e.count) {
    const int64_t b = at / e.width, i = at % e.width;
    real *inside = e.rows + ((e.lengths[b] - 1) * e.batch + b) * e.row + i, *outside = e.ends + b * e.end_row + i;
    if (e.back) {
      *inside = *outside;
    } else {
      *outside = *inside;
    }
  }
}

/* Rows of an array [T][b], as above. */
template <typename real> struct drop_rows {
  const int64_t *drawn; /* the step of training, then the samples' numbers in the data set [b] */
  const real *from;
  real *to;
  int64_t count, blocks, width, from_row, to_row, batch, steps; /* count: of blocks of four numbers; blocks: of a row */
  uint64_t seed, stream;                                        /* stream: of step 0 */
  double dropout;
};

/* Does what dropout.c does, a thread for each block of four random numbers. */
template <typename real> __global__ void bppsa_recurrent_drop(drop_rows<real> r) {
  enum { NUMBERS = 4 };
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= r.count) {
    return;
  }
  const int64_t row = at / r.blocks, block = at % r.blocks, step = row / r.batch;
  const uint64_t sample = (uint64_t)r.drawn[1 + row % r.batch];
  const double most = r.dropout * 0x1p32;
  const real scale = (real)(1 / (1 - r.dropout));
  uint32_t random[NUMBERS];
  bppsa_random_block(r.seed, r.stream + ((uint64_t)r.drawn[0] << 32),
                     (sample * (uint64_t)r.steps + (uint64_t)step) * (uint64_t)r.blocks + (uint64_t)block, random);
  for (int i = 0; i < NUMBERS && block * NUMBERS + i < r.width; ++i) {
    const int64_t unit = block * NUMBERS + i;
    r.to[row * r.to_row + unit] = (double)random[i] >= most ? r.from[row * r.from_row + unit] * scale : 0;
  }
}

#endif
