/* Windows of lanes of a parallel forward pass (recurrent/walk.h) on a GPU: a block for each lane.
 *
 *     gather   copies the lanes' inputs, the states in front of them, and where they begin anew, to a batch whose samples are lanes
 *              (the kernels of the sequential pass compute the batch)
 *     settle   copies the steps of the lanes' chunks to the layer's arrays: all of them, or those up to the first one that agrees
 *              with the stored state, as walk_chunk in speculate_kernels.cuh does */
#ifndef BPPSA_RECURRENT_GPU_WALK_KERNELS_CUH
#define BPPSA_RECURRENT_GPU_WALK_KERNELS_CUH

#include "core/compute/launch.cuh"
#include "recurrent/gpu/speculate_kernels.cuh"
#include "recurrent/recurrent_internal.h"

enum { WALK_WARPS = 4, WALK_THREADS = WALK_WARPS * WARP_LANES, WALK_AT_ONCE = 4 };

/* Inputs [steps][rows][width], h [steps + 1][rows][H], of a pair c likewise, saved [steps][rows][saved_width] or NULL. */
template <typename real> struct walk_sequence { real *inputs, *h, *cells, *saved; };

template <typename real> struct walk_arrays {
  const bppsa_walk_item *items; /* [count] */
  bppsa_walk_found *found;      /* [count] */
  int64_t count, steps;         /* of the window: lanes, which are its rows, and steps */
  int64_t all, batch;           /* of the layer: steps, and samples, which are its rows */
  int64_t hidden, width, saved_width;
  bool guesses, relu; /* guesses: all steps of the chunk are kept */
  double accept, stop, settled;
  walk_sequence<real> layer, window;
  /* Where samples of the layer begin anew, and lanes in the window (layer_resets: [steps][count] and [count][row]); NULL: none */
  const uint8_t *resets;
  uint8_t *mask;
  uint32_t *words;
  int64_t row;
};

/* What a warp sees at a step: how far its state is away from the stored one, and whether this is within the tolerances. */
struct walk_look {
  double distance;
  bool rounding, within, near;
};

/* What the lane's steps show: the first one that agrees, or -1; how far the state of that step is away, or of the chunk's last
 * one. */
struct walk_verdict {
  int64_t agrees, since;
  double distance;
};

/* Copies rows first .. end - 1 of a lane, `width` numbers each: those of a window, whose rows are `count` apart, to those of a
 * layer, `batch` apart. A warp takes a row, and reads several numbers of it before it writes one, because it waits for each. */
template <typename real>
__device__ __forceinline__ void walk_copy(int64_t first, int64_t end, int64_t width, const real *from, int64_t count, real *to,
                                          int64_t batch) {
  for (int64_t s = first + (int)threadIdx.x / WARP_LANES; s < end; s += WALK_WARPS) {
    for (int64_t j = (int)threadIdx.x % WARP_LANES; j < width; j += WALK_AT_ONCE * WARP_LANES) {
      real numbers[WALK_AT_ONCE];
      for (int k = 0; k < WALK_AT_ONCE; ++k) {
        numbers[k] = j + k * WARP_LANES < width ? from[s * count * width + j + k * WARP_LANES] : 0;
      }
      for (int k = 0; k < WALK_AT_ONCE; ++k) {
        if (j + k * WARP_LANES < width) {
          to[s * batch * width + j + k * WARP_LANES] = numbers[k];
        }
      }
    }
  }
}

/* Does the lane of an item begin anew in front of step s of the window? */
template <typename real>
__device__ __forceinline__ bool walk_anew(const walk_arrays<real> &w, const bppsa_walk_item &i, int64_t s) {
  return w.resets != NULL && s < w.steps && i.at + s < w.all && w.resets[(i.at + s) * w.batch + i.sample] != 0;
}

/* Steps behind the layer's last one have its input: their results are not used. */
template <typename real> __global__ void __launch_bounds__(WALK_THREADS) bppsa_recurrent_walk_gather(walk_arrays<real> w) {
  const int64_t lane = blockIdx.x;
  const bppsa_walk_item i = w.items[lane];
  const unsigned width = (unsigned)w.width, numbers = (unsigned)w.steps * width;
  for (unsigned e = threadIdx.x; e < numbers; e += WALK_THREADS) {
    const int64_t s = e / width, k = e % width, step = i.at + s < w.all ? i.at + s : w.all - 1;
    w.window.inputs[(s * w.count + lane) * w.width + k] = w.layer.inputs[(step * w.batch + i.sample) * w.width + k];
  }
  const bool anew = walk_anew(w, i, 0);
  for (int64_t j = threadIdx.x; j < w.hidden; j += WALK_THREADS) {
    w.window.h[lane * w.hidden + j] = i.h != NULL && !anew ? ((const real *)i.h)[j] : 0;
    if (w.window.cells != NULL) {
      w.window.cells[lane * w.hidden + j] = i.c != NULL && !anew ? ((const real *)i.c)[j] : 0;
    }
  }
  for (int64_t word = threadIdx.x; w.resets != NULL && word < w.row; word += WALK_THREADS) {
    uint32_t bits = 0;
    for (int64_t s = 0; s < 32; ++s) {
      bits |= (uint32_t)walk_anew(w, i, word * 32 + s) << s;
    }
    w.words[lane * w.row + word] = bits;
  }
  for (int64_t s = threadIdx.x; w.resets != NULL && s < w.steps; s += WALK_THREADS) {
    w.mask[s * w.count + lane] = walk_anew(w, i, s);
  }
}

/* Compares step s of the window with what the layer has stored, by one warp. A distance passes over NaN. */
template <typename real>
__device__ __forceinline__ walk_look walk_compare(const walk_arrays<real> &w, const bppsa_walk_item &i, int64_t s) {
  const int64_t fresh = ((s + 1) * w.count + blockIdx.x) * w.hidden, old = ((i.at + s + 1) * w.batch + i.sample) * w.hidden;
  real size = 0, most = 0;
  bool differs = false, unordered = false;
  for (int64_t first = 0; first < w.hidden; first += WARP_LANES) { /* lanes beyond H look at the last unit again */
    const int64_t unit = first + (int)threadIdx.x % WARP_LANES, j = unit < w.hidden ? unit : w.hidden - 1;
    const real a = w.window.h[fresh + j], b = w.layer.h[old + j], of = a < 0 ? -a : a;
    bool same;
    const real d = w.window.cells != NULL ? unit_distance<true>(a, b, w.window.cells[fresh + j], w.layer.cells[old + j], &same)
                                          : unit_distance<false, real>(a, b, 0, 0, &same);
    size = of > size ? of : size;
    most = d > most ? d : most;
    differs |= !same;
    unordered |= d != d;
  }
  const double largest = w.relu ? (double)warp_largest(size) : 1, distance = (double)warp_largest(most);
  const bool same = __any_sync(0xffffffffu, differs) == 0, comparable = __any_sync(0xffffffffu, unordered) == 0;
  const auto is_within = [=](double tolerance) {
    const double near = tolerance * (largest > 1 ? largest : 1); /* infinite where a state has overflowed: then only bits count */
    return same || (tolerance > 0 && isfinite(near) && comparable && distance <= near);
  };
  return {distance, is_within(w.settled), is_within(i.at + s == i.begin ? w.accept : w.stop),
          is_within(BPPSA_SETTLE_GROWTH * w.stop)};
}

/* Does a walk look at step s of the window (recurrent/settle.h)? */
__device__ __forceinline__ bool walk_looks(const bppsa_walk_item &i, int64_t s) {
  return bppsa_walk_looks_on_gpu(i.at + s - i.begin, i.at + s + 1 == i.end);
}

/* Looks at some of the first `taken` steps, the warps in turn, and then goes through what they saw; looks [taken]. The same in all
 * threads. */
template <typename real>
__device__ __forceinline__ walk_verdict walk_judge(const walk_arrays<real> &w, const bppsa_walk_item &i, int64_t taken,
                                                   walk_look *looks) {
  int64_t turn = 0;
  for (int64_t s = 0; s < taken; ++s) {
    if (walk_looks(i, s) && turn++ % WALK_WARPS == (int)threadIdx.x / WARP_LANES) {
      const walk_look seen = walk_compare(w, i, s);
      if ((int)threadIdx.x % WARP_LANES == 0) {
        looks[s] = seen;
      }
    }
  }
  __syncthreads();
  int64_t since = i.since;
  for (int64_t s = 0; s < taken; ++s) {
    const bool first = i.at + s == i.begin;
    if (!walk_looks(i, s)) {
      continue;
    }
    since = first ? BPPSA_SETTLE_NEVER : since;
    if (first ? looks[s].within : bppsa_walk_settles(looks[s].rounding, looks[s].within, looks[s].near, i.at + s, &since)) {
      return {s, since, looks[s].distance};
    }
  }
  return {-1, since, walk_looks(i, taken - 1) ? looks[taken - 1].distance : 0};
}

template <typename real> __global__ void __launch_bounds__(WALK_THREADS) bppsa_recurrent_walk_settle(walk_arrays<real> w) {
  BPPSA_SHARED(walk_look, looks);
  const int64_t lane = blockIdx.x;
  const bppsa_walk_item i = w.items[lane];
  const int64_t taken = w.steps < i.stop - i.at ? w.steps : i.stop - i.at, row = i.at * w.batch + i.sample;
  int64_t first = w.guesses && i.begin > i.at ? i.begin - i.at : 0, changed = taken, saved = taken;
  bool agreed = false;
  if (!w.guesses) {
    const walk_verdict v = walk_judge(w, i, taken, looks);
    agreed = v.agrees >= 0;
    changed = agreed ? v.agrees : taken; /* the state that agrees stays; what was saved with its step belongs to the one before */
    saved = changed + agreed;
    if (threadIdx.x == 0) {
      w.found[lane] = {saved, agreed, v.since, v.distance};
    }
  }
  walk_copy(first, changed, w.hidden, w.window.h + (w.count + lane) * w.hidden, w.count, w.layer.h + (row + w.batch) * w.hidden,
            w.batch);
  if (w.window.cells != NULL) {
    walk_copy(first, changed, w.hidden, w.window.cells + (w.count + lane) * w.hidden, w.count,
              w.layer.cells + (row + w.batch) * w.hidden, w.batch);
  }
  if (w.window.saved != NULL) {
    walk_copy(first, saved, w.saved_width, w.window.saved + lane * w.saved_width, w.count, w.layer.saved + row * w.saved_width,
              w.batch);
  }
  for (int64_t j = threadIdx.x; i.out != NULL && !agreed && i.at + taken == i.stop && j < w.hidden; j += WALK_THREADS) {
    ((real *)i.out)[j] = w.window.h[(taken * w.count + lane) * w.hidden + j];
    if (w.window.cells != NULL) {
      ((real *)i.out)[w.hidden + j] = w.window.cells[(taken * w.count + lane) * w.hidden + j];
    }
  }
}

#endif
