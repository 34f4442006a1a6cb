/* Kernels of graphs' layers, batch norms and dropouts (cnn/graph_gpu.h). A block sums a group or a channel: each thread adds up
 * every CNN_SUM_THREADS-th value, and the threads' sums are added in a tree. Other kernels have a thread for each value. */
#ifndef BPPSA_CNN_GRAPH_KERNELS_CUH
#define BPPSA_CNN_GRAPH_KERNELS_CUH

#include <math.h>
#include <stdint.h>

#include "cnn/move.h"
#include "cnn/normalise.h"
#include "core/base/philox.h"
#include "core/compute/launch.cuh"

enum { CNN_VALUE_THREADS = 256, CNN_SUM_THREADS = 128 };

/* The value of this thread. */
__device__ inline int64_t cnn_value() {
  return (int64_t)blockIdx.x * CNN_VALUE_THREADS + threadIdx.x;
}

/* ---- sums and largest values of a block; own has a double for each thread ---- */

template <bool largest> __device__ inline double cnn_join(double x, double *own) {
  own[threadIdx.x] = x;
  __syncthreads();
  for (int half = CNN_SUM_THREADS / 2; half > 0; half /= 2) {
    if ((int)threadIdx.x < half) {
      const double a = own[threadIdx.x], b = own[threadIdx.x + half];
      own[threadIdx.x] = !largest ? a + b : b > a ? b : a;
    }
    __syncthreads();
  }
  const double joined = own[0];
  __syncthreads(); /* before the next call writes */
  return joined;
}

/* ---- moves ---- */

template <typename real> struct cnn_part {
  real *data;
  int64_t stride; /* from sample to sample */
};

template <typename real> __device__ inline void cnn_put(bppsa_move_how how, real x, real *to) {
  *to = how == BPPSA_MOVE_ADD ? *to + x : how == BPPSA_MOVE_MULTIPLY ? *to * x : x;
}

/* count: values of a sample; all: of the batch */
template <typename real>
__global__ void bppsa_cnn_move_values(bppsa_move_how how, int64_t all, int64_t count, cnn_part<real> from, cnn_part<real> to) {
  const int64_t i = cnn_value();
  if (i < all) {
    const int64_t b = i / count, at = i % count;
    cnn_put(how, from.data[b * from.stride + at], to.data + b * to.stride + at);
  }
}

/* Positions along three axes: those with places of their own, those that share each of these, and how far they lie apart. */
struct cnn_strides {
  int64_t own[3], shared[3], from[3], to[3];
  bool sums;
};

/* A thread for each place; what several positions share is added up in double. */
template <typename real>
__global__ void bppsa_cnn_move_strided_values(bppsa_move_how how, int64_t all, cnn_strides s, cnn_part<real> from,
                                              cnn_part<real> to) {
  const int64_t i = cnn_value();
  if (i >= all) {
    return;
  }
  const int64_t w = i % s.own[2], h = i / s.own[2] % s.own[1], c = i / (s.own[2] * s.own[1]) % s.own[0],
                b = i / (s.own[2] * s.own[1] * s.own[0]);
  const real *x = from.data + b * from.stride + c * s.from[0] + h * s.from[1] + w * s.from[2];
  real *y = to.data + b * to.stride + c * s.to[0] + h * s.to[1] + w * s.to[2];
  if (!s.sums) {
    cnn_put(how, *x, y);
    return;
  }
  double sum = 0;
  for (int64_t e = 0; e < s.shared[0]; ++e) {
    for (int64_t f = 0; f < s.shared[1]; ++f) {
      for (int64_t g = 0; g < s.shared[2]; ++g) {
        sum += (double)x[e * s.from[0] + f * s.from[1] + g * s.from[2]];
      }
    }
  }
  *y += (real)sum;
}

template <typename real>
__global__ void bppsa_cnn_scatter(int64_t all, int64_t count, const int64_t *__restrict__ places, cnn_part<real> from,
                                  cnn_part<real> to) {
  const int64_t i = cnn_value();
  if (i < all) {
    const int64_t b = i / count, at = i % count;
    to.data[b * to.stride + places[at]] = from.data[b * from.stride + at];
  }
}

template <typename real> __global__ void bppsa_cnn_ones(int64_t count, real *__restrict__ to) {
  const int64_t i = cnn_value();
  if (i < count) {
    to[i] = 1;
  }
}

/* ---- normalisations ---- */

template <typename real> struct cnn_groups_job {
  bppsa_normalise_geometry at;
  int64_t batch;
  const real *x, *sums, *weight, *bias, *dy;
  real *y, *dx, *dsums, *dw, *db;
  int64_t k, stride; /* of a block */
};

/* A group of a sample: its first value in the batch, and where m is; r is g.count behind it. */
struct cnn_group {
  int64_t first, within, sums;
};

template <typename real> __device__ inline cnn_group cnn_group_at(const cnn_groups_job<real> &j, int64_t task) {
  const int64_t b = task / j.at.g.count, group = task % j.at.g.count, within = bppsa_cnn_group_first(&j.at.g, group);
  return {b * j.at.values + within, within, b * BPPSA_CNN_GROUP_SUMS * j.at.g.count + group};
}

/* The factor of the value at place `within` of its sample. */
template <typename real> __device__ inline int64_t cnn_weight_of(const cnn_groups_job<real> &j, int64_t within) {
  return j.at.by_channel ? within / j.at.plane : within / j.at.g.inner % j.at.g.size;
}

template <typename real> __device__ inline double cnn_factor(const cnn_groups_job<real> &j, int64_t within) {
  return j.weight == nullptr ? 1 : (double)j.weight[cnn_weight_of(j, within)];
}

/* m and r of every group, a block for each. */
template <typename real> __global__ void bppsa_cnn_group_sums(cnn_groups_job<real> j) {
  BPPSA_SHARED(double, own);
  for (int64_t task = blockIdx.x; task < j.batch * j.at.g.count; task += gridDim.x) {
    const cnn_group g = cnn_group_at(j, task);
    const real *x = j.x + g.first;
    const double first = (double)x[0], size = (double)j.at.g.size;
    double most = first, sum = 0;
    for (int64_t k = threadIdx.x; k < j.at.g.size; k += CNN_SUM_THREADS) {
      const double value = (double)x[k * j.at.g.inner];
      most = value > most ? value : most;
      sum += value - first;
    }
    const double middle = j.at.softmax ? cnn_join<true>(most, own) : first + cnn_join<false>(sum, own) / size;
    const double m = (double)(real)middle; /* as the second half will read it */
    sum = 0;
    for (int64_t k = threadIdx.x; k < j.at.g.size; k += CNN_SUM_THREADS) {
      const double value = (double)x[k * j.at.g.inner];
      sum += j.at.softmax ? bppsa_normalise_power(value, m) : (value - m) * (value - m);
    }
    sum = cnn_join<false>(sum, own);
    if (threadIdx.x == 0) {
      j.y[g.sums] = (real)m;
      j.y[g.sums + j.at.g.count] = (real)(j.at.softmax ? 1 / sum : 1 / sqrt(sum / size + j.at.epsilon));
    }
  }
}

/* The place of m of a value's group. */
template <typename real> __device__ inline int64_t cnn_sums_of(const cnn_groups_job<real> &j, int64_t i) {
  return i / j.at.values * BPPSA_CNN_GROUP_SUMS * j.at.g.count + bppsa_cnn_group_of(&j.at.g, i % j.at.values);
}

/* y of the second half. */
template <typename real> __global__ void bppsa_cnn_group_apply(cnn_groups_job<real> j) {
  const int64_t i = cnn_value();
  if (i >= j.batch * j.at.values) {
    return;
  }
  const int64_t sums = cnn_sums_of(j, i), within = i % j.at.values;
  const double x = (double)j.x[i], m = (double)j.sums[sums], r = (double)j.sums[sums + j.at.g.count];
  if (j.at.softmax) {
    j.y[i] = (real)(bppsa_normalise_power(x, m) * r);
  } else {
    const double bias = j.bias == nullptr ? 0 : (double)j.bias[cnn_weight_of(j, within)];
    j.y[i] = (real)((x - m) * r * cnn_factor(j, within) + bias);
  }
}

/* dx of the sums, from the gradients of m and r. */
template <typename real> __global__ void bppsa_cnn_group_spread(cnn_groups_job<real> j) {
  const int64_t i = cnn_value();
  if (i >= j.batch * j.at.values) {
    return;
  }
  const int64_t sums = cnn_sums_of(j, i);
  const double x = (double)j.x[i], m = (double)j.sums[sums], r = (double)j.sums[sums + j.at.g.count], size = (double)j.at.g.size;
  const double dm = (double)j.dy[sums] / size, dr = (double)j.dy[sums + j.at.g.count];
  const double cube = dr * r * r * r / size, square = dr * r * r;
  j.dx[i] = (real)(j.at.softmax ? -square * bppsa_normalise_power(x, m) : dm - cube * (x - m));
}

/* dx and dsums of the second half, a block for each group. */
template <typename real> __global__ void bppsa_cnn_group_return(cnn_groups_job<real> j) {
  BPPSA_SHARED(double, own);
  for (int64_t task = blockIdx.x; task < j.batch * j.at.g.count; task += gridDim.x) {
    const cnn_group g = cnn_group_at(j, task);
    const double m = (double)j.sums[g.sums], r = (double)j.sums[g.sums + j.at.g.count];
    double dm = 0, dr = 0;
    for (int64_t k = threadIdx.x; k < j.at.g.size; k += CNN_SUM_THREADS) {
      const int64_t i = g.first + k * j.at.g.inner;
      const double x = (double)j.x[i], dy = (double)j.dy[i];
      const double e = j.at.softmax ? bppsa_normalise_power(x, m) : cnn_factor(j, g.within + k * j.at.g.inner);
      dr += j.at.softmax ? dy * e : dy * e * (x - m);
      dm -= j.at.softmax ? 0 : dy * e * r;
      if (j.dx != nullptr) {
        j.dx[i] = (real)(dy * e * r);
      }
    }
    dm = cnn_join<false>(dm, own);
    dr = cnn_join<false>(dr, own);
    if (threadIdx.x == 0 && j.dsums != nullptr) {
      j.dsums[g.sums] = (real)dm;
      j.dsums[g.sums + j.at.g.count] = (real)dr;
    }
  }
}

/* dw and db, a block for each weight; its values in a sample are the `count` ones from `from` on, `step` apart. */
template <typename real> __global__ void bppsa_cnn_group_weights(cnn_groups_job<real> j, int64_t weights) {
  BPPSA_SHARED(double, own);
  for (int64_t task = blockIdx.x; task < weights; task += gridDim.x) {
    const int64_t from = j.at.by_channel ? task * j.at.plane : task, step = j.at.by_channel ? 1 : j.at.g.size,
                  count = j.at.by_channel ? j.at.plane : j.at.g.count;
    double dw = 0, db = 0;
    for (int64_t k = threadIdx.x; k < j.batch * count; k += CNN_SUM_THREADS) {
      const int64_t i = k / count * j.at.values + from + k % count * step, sums = cnn_sums_of(j, i);
      const double dy = (double)j.dy[i];
      dw += dy * (((double)j.x[i] - (double)j.sums[sums]) * (double)j.sums[sums + j.at.g.count]);
      db += dy;
    }
    dw = cnn_join<false>(dw, own);
    db = cnn_join<false>(db, own);
    if (threadIdx.x == 0) {
      j.dw[task] = (real)dw;
      j.db[task] = (real)db;
    }
  }
}

/* The entries of the block of input k. */
template <typename real> __global__ void bppsa_cnn_group_block(cnn_groups_job<real> j) {
  const int64_t i = cnn_value();
  if (i >= j.batch * j.at.values) {
    return;
  }
  const int64_t sums = cnn_sums_of(j, i), within = i % j.at.values, size = j.at.g.size;
  const double x = (double)j.x[i], m = (double)j.sums[sums], r = (double)j.sums[sums + j.at.g.count];
  real *to = j.y + i / j.at.values * j.stride;
  if (j.at.halves && j.at.softmax) {
    to[within] = (real)(-(r * r) * bppsa_normalise_power(x, m));
  } else if (j.at.halves) {
    to[BPPSA_CNN_GROUP_SUMS * within] = (real)(1 / (double)size);
    to[BPPSA_CNN_GROUP_SUMS * within + 1] = (real)(-(r * r * r / (double)size) * (x - m));
  } else {
    const double e = j.at.softmax ? bppsa_normalise_power(x, m) : cnn_factor(j, within);
    if (j.k == 0) {
      to[within] = (real)(e * r);
      return;
    }
    const int64_t place = bppsa_cnn_group_of(&j.at.g, within) * size + within / j.at.g.inner % size;
    if (!j.at.softmax) {
      to[place] = (real)(-e * r);
    }
    to[place + (j.at.softmax ? 0 : j.at.values)] = (real)(j.at.softmax ? e : e * (x - m));
  }
}

/* ---- batch norm ---- */

template <typename real> struct cnn_norm_job {
  int64_t batch, channels, plane;
  double epsilon, momentum;
  bool by_batch; /* the statistics are the batch's, which are kept */
  const real *weight, *bias, *x, *dy;
  real *mean, *variance, *kept; /* kept: mean and 1/σ of each channel */
  real *to, *dw, *db;
};

struct cnn_channel {
  double weight, bias, mean, inverse; /* inverse: 1 / σ */
};

template <typename real> __device__ inline cnn_channel cnn_channel_of(const cnn_norm_job<real> &j, int64_t c) {
  cnn_channel k = {j.weight == nullptr ? 1 : (double)j.weight[c], j.bias == nullptr ? 0 : (double)j.bias[c], 0, 0};
  k.mean = j.by_batch ? (double)j.kept[c] : (double)j.mean[c];
  k.inverse = j.by_batch ? (double)j.kept[j.channels + c] : 1 / sqrt((double)j.variance[c] + j.epsilon);
  return k;
}

/* The place in the batch of value k of channel c. */
template <typename real> __device__ inline int64_t cnn_of_channel(const cnn_norm_job<real> &j, int64_t c, int64_t k) {
  return (k / j.plane * j.channels + c) * j.plane + k % j.plane;
}

/* The batch's statistics of every channel, a block for each; the running ones follow them. */
template <typename real> __global__ void bppsa_cnn_norm_statistics(cnn_norm_job<real> j) {
  BPPSA_SHARED(double, own);
  const int64_t count = j.batch * j.plane;
  for (int64_t c = blockIdx.x; c < j.channels; c += gridDim.x) {
    double sum = 0, squares = 0;
    for (int64_t k = threadIdx.x; k < count; k += CNN_SUM_THREADS) {
      sum += (double)j.x[cnn_of_channel(j, c, k)];
    }
    const double mean = cnn_join<false>(sum, own) / (double)count;
    for (int64_t k = threadIdx.x; k < count; k += CNN_SUM_THREADS) {
      const double d = (double)j.x[cnn_of_channel(j, c, k)] - mean;
      squares += d * d;
    }
    squares = cnn_join<false>(squares, own);
    if (threadIdx.x == 0) {
      j.kept[c] = (real)mean;
      j.kept[j.channels + c] = (real)(1 / sqrt(squares / (double)count + j.epsilon));
      j.mean[c] = (real)((1 - j.momentum) * (double)j.mean[c] + j.momentum * mean);
      j.variance[c] = (real)((1 - j.momentum) * (double)j.variance[c] + j.momentum * (squares / (double)(count - 1)));
    }
  }
}

template <typename real> __global__ void bppsa_cnn_norm_apply(cnn_norm_job<real> j) {
  const int64_t i = cnn_value();
  if (i < j.batch * j.channels * j.plane) {
    const cnn_channel k = cnn_channel_of(j, i / j.plane % j.channels);
    j.to[i] = (j.x[i] - (real)k.mean) * (real)(k.weight * k.inverse) + (real)k.bias;
  }
}

/* Σ dy and Σ dy z of a channel. */
template <typename real>
__device__ inline void cnn_sum_channel(const cnn_norm_job<real> &j, int64_t c, const cnn_channel &k, double *own, double *plain,
                                       double *scaled) {
  double sum = 0, of_z = 0;
  for (int64_t v = threadIdx.x; v < j.batch * j.plane; v += CNN_SUM_THREADS) {
    const int64_t at = cnn_of_channel(j, c, v);
    sum += (double)j.dy[at];
    of_z += (double)j.dy[at] * (((double)j.x[at] - k.mean) * k.inverse);
  }
  *plain = cnn_join<false>(sum, own);
  *scaled = cnn_join<false>(of_z, own);
}

/* dx, a block for each channel. */
template <typename real> __global__ void bppsa_cnn_norm_input(cnn_norm_job<real> j) {
  BPPSA_SHARED(double, own);
  const double count = (double)(j.batch * j.plane);
  for (int64_t c = blockIdx.x; c < j.channels; c += gridDim.x) {
    const cnn_channel k = cnn_channel_of(j, c);
    const real scale = (real)(k.weight * k.inverse);
    double plain = 0, scaled = 0;
    if (j.by_batch) {
      cnn_sum_channel(j, c, k, own, &plain, &scaled);
    }
    for (int64_t v = threadIdx.x; v < j.batch * j.plane; v += CNN_SUM_THREADS) {
      const int64_t at = cnn_of_channel(j, c, v);
      const double dy = (double)j.dy[at];
      j.to[at] = !j.by_batch
                     ? scale * j.dy[at]
                     : (real)(k.weight * k.inverse * (dy - (plain + ((double)j.x[at] - k.mean) * k.inverse * scaled) / count));
    }
  }
}

/* dw and db, unless the norm has no weights, and zeros for the statistics. */
template <typename real> __global__ void bppsa_cnn_norm_weights(cnn_norm_job<real> j, real *dmean, real *dvariance) {
  BPPSA_SHARED(double, own);
  for (int64_t c = blockIdx.x; c < j.channels; c += gridDim.x) {
    double plain = 0, scaled = 0;
    if (j.dw != nullptr) {
      cnn_sum_channel(j, c, cnn_channel_of(j, c), own, &plain, &scaled);
    }
    if (threadIdx.x == 0 && j.dw != nullptr) {
      j.db[c] = (real)plain;
      j.dw[c] = (real)scaled;
    }
    if (threadIdx.x == 0) {
      dmean[c] = dvariance[c] = 0;
    }
  }
}

/* w / σ of every channel. */
template <typename real> __global__ void bppsa_cnn_norm_scale(cnn_norm_job<real> j) {
  const int64_t c = cnn_value();
  if (c < j.channels) {
    const cnn_channel k = cnn_channel_of(j, c);
    j.to[c] = (real)(k.weight * k.inverse);
  }
}

/* ---- dropout ---- */

struct cnn_drop {
  int64_t size, blocks; /* numbers of a sample; blocks of four random numbers of a sample */
  uint64_t seed, stream;
  double most, scale; /* a number stays where its random one is at least `most` */
  const int64_t *drawn;
};

/* A thread for each block of four numbers. */
template <typename real>
__global__ void bppsa_cnn_dropout(int64_t all, cnn_drop d, const real *__restrict__ from, real *__restrict__ to) {
  enum { NUMBERS = 4 };
  const int64_t i = cnn_value();
  if (i >= all) {
    return;
  }
  const int64_t b = i / d.blocks, block = i % d.blocks;
  uint32_t random[NUMBERS];
  bppsa_random_block(d.seed, d.stream + ((uint64_t)d.drawn[0] << 32),
                     (uint64_t)d.drawn[1 + b] * (uint64_t)d.blocks + (uint64_t)block, random);
  for (int k = 0; k < NUMBERS && NUMBERS * block + k < d.size; ++k) {
    const int64_t at = b * d.size + NUMBERS * block + k;
    const real factor = (double)random[k] >= d.most ? (real)d.scale : (real)0;
    to[at] = from == nullptr ? factor : factor == 0 ? (real)0 : from[at] * factor;
  }
}

#endif
