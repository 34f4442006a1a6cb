/* The backward pass in parallel over time (recurrent/parallel_backward.h), for H <= 32: a warp for a chunk and sample, whose steps
 * are those of BP in chunk_kernels.cuh. One launch takes a sample through all phases, if a cluster of blocks has a warp for each of
 * its chunks; barriers of the sample's own warps are between the phases. Otherwise speculation is a launch of its own, and then the
 * cluster's warps take chunks in turn.
 *
 *     guess     every chunk from W steps later in time; a chunk into which nothing is injected walks a random vector
 *     mend      a round: verifies boundaries, and walks differences through the chunks that do not fit. Rounds are repeated
 *     tail      by one warp: what is still doubtful, one chunk after the other
 *     whole     by one warp: the sample from its end, that is BP: during a pause; if a number of the sample is not finite; if the
 *               first round shows that further rounds take too long
 *
 * Samples decide for themselves. Weight gradients of a walk are summed in registers, and then added to sums in shared memory, so
 * that those of differences are summed apart from larger ones. A warp takes its chunks in a fixed order: bits do not depend on how
 * warps are scheduled.
 *
 * (The file is long because all phases are in one kernel, whose warps keep what they need of a walk in registers.) */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_BACK_KERNELS_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_BACK_KERNELS_CUH

#include "core/base/cut.h"
#include "recurrent/gpu/chunk_kernels.cuh"
#include "recurrent/gpu/speculate_back.cuh"
#include "recurrent/gpu/speculate_kernels.cuh"
#include "recurrent/pause.h"
#include "recurrent/silent.h"

/* ---- numbers of a warp ---- */

/* The largest |x| of a warp, in all its lanes; NaN where one is. In float64 the upper halves are compared, so that it may be 2^-20
 * of itself too small. Without its sign a number's bits grow with it, and those of NaN are above all others. */
__device__ __forceinline__ float back_largest(float x) {
  return __int_as_float(__reduce_max_sync(0xffffffffu, __float_as_int(x) & INT32_MAX));
}
__device__ __forceinline__ double back_largest(double x) {
  return __longlong_as_double((long long)__reduce_max_sync(0xffffffffu, (int)(__double_as_longlong(x) >> 32) & INT32_MAX) << 32);
}

/* The larger |x|; NaN where one is. */
template <typename real> __device__ __forceinline__ real back_larger(real a, real b) {
  a = a < 0 ? -a : a;
  b = b < 0 ? -b : b;
  return a > b || a != a ? a : b;
}

/* ---- a warp, and its walks ---- */

enum back_kind { BACK_CHUNK, BACK_PROBE, BACK_MEND, BACK_TAIL, BACK_WHOLE, BACK_DONE };

/* Numbers in a block's part of the weight gradients (chunk_arrays). */
template <typename real> BPPSA_HOST_DEVICE inline int64_t back_part(int matrices, const layer_arrays<real> &c) {
  return matrices * c.hidden * (c.hidden + (c.input == 1 ? 3 : 2));
}

/* A warp's place, and what it does. Numbers of steps and chunks fit in 32 bits, which takes fewer registers. */
struct back_course {
  int lane;
  bool unit, idle;  /* the lane has a unit; the pass is BP */
  int j, b, warp;   /* unit, sample, and the warp among the sample's */
  int warps;        /* of the sample */
  int length;       /* T, or the sample's own number of steps */
  int chunks, each; /* of the sample; steps of a chunk: the first `larger` chunks have one more */
  int larger;
  int warm_up;
  back_kind kind;
  int p;              /* chunk */
  int in;             /* place of the latest ends and doubts */
  int rounds;         /* in which a chunk was mended */
  int early, longest; /* chunks that the first of these mended, silent ones aside, and the steps of the longest of these walks */
  int path;           /* in this layer */
  bool given_up;
  int at, top, bottom; /* of a walk: the states from which it goes, counts, and to which it goes */
  int wasted;          /* steps of a warm-up from which a chunk turned out to be silent */
  double begun;        /* |d|_inf */
};

/* A warp's walk. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND> struct back_walk {
  walk_lane<real, cell, HP, KIND> l;
  real sum, size;                /* Σ |g_t|_inf, the same in all lanes; Σ |δ_t| of the lane's unit */
  real start, seen, head, least; /* |g|_inf where the count began; Σ of earlier rounds; of the first round; the least of any */
  real *x_to, *h_to;             /* the next delta_x and delta_h of the unit */
  bool stores_x, stores_h, adds; /* they are written, or, of a difference, added to */
  int left, skip;     /* steps left, with those of the first round that are skipped so that counting begins with a round */
  real *delta, *sums; /* shared memory of the warp */
};

template <typename real>
__device__ __forceinline__ back_chunk *back_found(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                                  int p) {
  return s.found + p * c.batch + o.b;
}

/* The state at a chunk's earlier end, as bppsa_cut. */
__device__ __forceinline__ int back_cut(const back_course &o, int p) {
  return p * o.each + (p < o.larger ? p : o.larger);
}

/* Where the lane's unit of a chunk's gradient is. */
template <typename real, template <typename> class cell>
__device__ __forceinline__ int64_t back_at(const layer_arrays<real> &c, const back_course &o, int p) {
  return (p * c.batch + o.b) * (1 + cell<real>::PAIR) * c.hidden + o.j;
}

/* Writes a delta, or adds to it, which no other thread does, without a wait for what it was. No branch: a step has several. */
__device__ __forceinline__ void back_put_delta(bool stores, bool adds, float value, float *to) {
#ifdef __CUDA_ARCH__
  asm volatile("{\n\t.reg .pred writes, adds;\n\tsetp.eq.s32 writes, %0, 1;\n\tsetp.eq.s32 adds, %0, 2;\n\t"
               "@writes st.global.f32 [%1], %2;\n\t@adds red.global.add.f32 [%1], %2;\n\t}" ::"r"(!stores ? 0
                                                                                                  : adds  ? 2
                                                                                                          : 1),
               "l"(__cvta_generic_to_global(to)), "f"(value)
               : "memory");
#else
  if (stores) {
    *to = adds ? *to + value : value;
  }
#endif
}
__device__ __forceinline__ void back_put_delta(bool stores, bool adds, double value, double *to) {
#ifdef __CUDA_ARCH__
  asm volatile("{\n\t.reg .pred writes, adds;\n\tsetp.eq.s32 writes, %0, 1;\n\tsetp.eq.s32 adds, %0, 2;\n\t"
               "@writes st.global.f64 [%1], %2;\n\t@adds red.global.add.f64 [%1], %2;\n\t}" ::"r"(!stores ? 0
                                                                                                  : adds  ? 2
                                                                                                          : 1),
               "l"(__cvta_generic_to_global(to)), "d"(value)
               : "memory");
#else
  if (stores) {
    *to = adds ? *to + value : value;
  }
#endif
}

/* Prepares a walk from the state o.at, whose gradient the lane has, to o.bottom; it begins to count at o.top. Where nothing is
 * injected, zeros are read as u_t: a load without a condition is not waited for. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_begin(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                           bool reads_u, bool adds, back_walk<real, cell, HP, KIND> *w) {
  enum { PAIR = cell<real>::PAIR, AHEAD = walk_lane<real, cell, HP, KIND>::AHEAD };
  walk_lane<real, cell, HP, KIND> *l = &w->l;
  const int64_t row = (o.at - 1) * c.batch + o.b;
  const int slot = o.lane % AHEAD;
  w->skip = (AHEAD - (o.at - o.top) % AHEAD) % AHEAD;
  w->left = w->skip + o.at - o.bottom;
  l->unit = unit_place<real, cell>(c, row * c.hidden + o.j, o.j);
  w->adds = adds;
  w->stores_x = w->stores_h = false;
  l->g_row = reads_u ? (1 + PAIR) * l->state : 0;
  l->u_at = reads_u ? c.g + row * (1 + PAIR) * c.hidden + o.j : s.zeros + o.j;
  if (l->reads_x) {
    l->x_at = c.x + (row + (w->skip - slot) * c.batch);
    if (slot >= w->skip && slot < w->left) {
      l->x = *l->x_at;
    }
    l->x_at -= l->x_row;
  }
  __syncwarp(); /* the deltas of the last walk have been read */
  BPPSA_UNROLL
  for (int i = 0; i < AHEAD; ++i) {
    if (i >= w->skip && i < w->left + cell<real>::EARLIER) {
      walk_read(i, i < w->left, l);
    }
  }
}

/* |d|_inf of the gradient that the lanes have. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ double back_size(const back_walk<real, cell, HP, KIND> &w) {
  return (double)back_largest(cell<real>::PAIR ? back_larger(w.l.g, w.l.g_c) : w.l.g);
}

/* A round that counts has ended, of so many steps. A last one with fewer steps says nothing, unless it is the first too. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_note_round(int steps, back_walk<real, cell, HP, KIND> *w) {
  enum { AHEAD = walk_lane<real, cell, HP, KIND>::AHEAD };
  const real mean = (w->sum - w->seen) / (real)steps;
  if (w->head < 0) {
    w->head = w->least = mean;
  } else if (steps == AHEAD && mean < w->least) {
    w->least = mean;
  }
  w->seen = w->sum;
}

/* From here on steps count: what the warm-up summed is forgotten. `stores`: deltas are written. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_count(const layer_arrays<real> &c, const back_course &o, bool stores,
                                           back_walk<real, cell, HP, KIND> *w) {
  enum { K = cell<real>::MATRICES };
  const int64_t to = ((int64_t)(o.top - 1) * c.batch + o.b) * K * c.hidden + o.j;
  w->sum = w->size = w->seen = 0;
  w->head = w->least = -1; /* no round yet */
  w->start = (real)back_size(*w);
  w->l.sums = {};
  w->stores_x = stores && o.unit && c.delta_x != NULL; /* lanes beyond H repeat lane 0 */
  w->stores_h = stores && o.unit && c.delta_h != NULL;
  w->x_to = c.delta_x + (w->stores_x ? to : 0);
  w->h_to = c.delta_h + (w->stores_h ? to : 0);
}

/* As walk_round, without the skipped steps. WHOLE: none is skipped, and this round and the next have all their steps. */
template <bool WHOLE, typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_round(const layer_arrays<real> &c, const back_course &o,
                                           back_walk<real, cell, HP, KIND> *w) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR, AHEAD = walk_lane<real, cell, HP, KIND>::AHEAD };
  walk_lane<real, cell, HP, KIND> *l = &w->l;
  const real x = l->x;
  if (l->SUM && l->reads_x && (WHOLE || AHEAD + o.lane % AHEAD < w->left)) {
    l->x = *l->x_at;
    l->x_at -= l->x_row;
  }
  BPPSA_UNROLL
  for (int i = 0; i < AHEAD; ++i) {
    if (WHOLE || i < w->left) {
      const walk_step<real, cell> now = l->ring[i];
      if (WHOLE || AHEAD + i < w->left + cell<real>::EARLIER) {
        walk_read(i, WHOLE || AHEAD + i < w->left, l);
      }
      const real own_x = l->SUM ? __shfl_sync(0xffffffffu, x, i) : (real)0;
      if (WHOLE || i >= w->skip) {
        const unit_back<real, cell> made(now.unit, c.relu, l->g, l->g_c);
        w->sum += back_largest(PAIR ? back_larger(l->g, l->g_c) : l->g);
        BPPSA_UNROLL
        for (int k = 0; k < K; ++k) {
          w->size += made.to_h[k] < 0 ? -made.to_h[k] : made.to_h[k];
          if (l->MORE) {
            back_put_delta(w->stores_x, w->adds, k + 1 == K ? made.to_x : made.to_h[k], w->x_to + k * c.hidden);
          }
          if (KIND == WALK_FREE && cell<real>::SPLIT) {
            back_put_delta(w->stores_h, w->adds, made.to_h[k], w->h_to + k * c.hidden);
          }
        }
        w->x_to -= l->MORE ? K * l->state : 0;
        w->h_to -= KIND == WALK_FREE && cell<real>::SPLIT ? K * l->state : 0;
        walk_back(c, now, now.unit.before(l->ring[(i + 1) % AHEAD].unit), own_x, o.unit, o.lane, false, w->delta + i % 2 * K * HP,
                  l);
      }
    }
  }
}

/* |d|_2 likewise. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ double back_length(const back_course &o, const back_walk<real, cell, HP, KIND> &w) {
  const double g = (double)w.l.g, g_c = cell<real>::PAIR ? (double)w.l.g_c : 0;
  return sqrt(warp_sum(o.unit ? g * g + g_c * g_c : 0));
}

/* Reads, and writes, the lane's unit of a gradient. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_take(const real *from, int64_t hidden, back_walk<real, cell, HP, KIND> *w) {
  w->l.g = from[0];
  w->l.g_c = cell<real>::PAIR ? from[cell<real>::PAIR * hidden] : 0;
}
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_put(const back_course &o, const back_walk<real, cell, HP, KIND> &w, int64_t hidden,
                                         real *to) {
  if (o.unit) {
    to[0] = w.l.g;
    if constexpr (cell<real>::PAIR) {
      to[hidden] = w.l.g_c;
    }
  }
}

/* Adds what a walk has counted to the warp's sums, or clears these. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_flush(const layer_arrays<real> &c, const back_course &o, bool clears,
                                           back_walk<real, cell, HP, KIND> *w) {
  enum { K = cell<real>::MATRICES };
  if constexpr (KIND != WALK_FREE) {
    const int64_t hidden = c.hidden, all = K * hidden;
    if (!o.unit) {
      return;
    }
    BPPSA_UNROLL
    for (int k = 0; k < K; ++k) {
      BPPSA_UNROLL
      for (int r = 0; r < HP; ++r) {
        if (r < hidden) {
          real *to = w->sums + (k * hidden + r) * hidden + o.lane;
          *to = clears ? 0 : *to + w->l.sums.w_hh[k][r];
        }
      }
      real *units = w->sums + all * hidden + k * hidden + o.lane;
      units[0] = clears ? 0 : units[0] + (k + 1 == K ? w->l.sums.b_hh : w->l.sums.b_ih[k]);
      units[all] = clears ? 0 : units[all] + w->l.sums.b_ih[k];
      if (c.input == 1) {
        units[2 * all] = clears ? 0 : units[2 * all] + w->l.sums.w_ih[k];
      }
    }
  }
}

/* Writes 0 to the deltas of steps first + 1 .. end, if deltas are written at all. */
template <typename real, int K>
__device__ __forceinline__ void back_clear(const layer_arrays<real> &c, const back_course &o, int first, int end) {
  for (int t = first; o.unit && t < end; ++t) {
    const int64_t to = (t * c.batch + o.b) * K * c.hidden + o.j;
    BPPSA_UNROLL
    for (int k = 0; k < K; ++k) {
      if (c.delta_x != NULL) {
        c.delta_x[to + k * c.hidden] = 0;
      }
      if (c.delta_h != NULL) {
        c.delta_h[to + k * c.hidden] = 0;
      }
    }
  }
}

/* Is nothing injected into the states first .. last? NaN is something. */
template <typename real, template <typename> class cell>
__device__ __forceinline__ bool back_is_silent(const layer_arrays<real> &c, const back_course &o, int first, int last) {
  enum { S = 1 + cell<real>::PAIR, ROWS = 16 };
  for (int t = first; c.injected && t <= last; t += ROWS) {
    bool some = false;
    BPPSA_UNROLL
    for (int i = 0; i < ROWS; ++i) {
      const int64_t row = (t + i <= last ? t + i : last) * c.batch + o.b;
      BPPSA_UNROLL
      for (int half = 0; half < S; ++half) {
        some |= c.g[(row * S + half) * c.hidden + o.j] != 0;
      }
    }
    if (__any_sync(0xffffffffu, some)) {
      return false;
    }
  }
  return true;
}

/* ---- phases ---- */

/* A barrier of a sample's warps. */
__device__ __forceinline__ void back_meet(int cluster) {
  rest_meet(cluster);
}

/* Prepares what a warp does in a chunk that it speculates. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_guess(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                           back_walk<real, cell, HP, KIND> *w) {
  o->bottom = back_cut(*o, o->p);
  o->top = back_cut(*o, o->p + 1);
  o->at = o->top + o->warm_up < o->length ? o->top + o->warm_up : o->length;
  const bool exact = o->at == o->length, probes = o->kind == BACK_PROBE || (!exact && !c.injected);
  const int64_t width = (1 + cell<real>::PAIR) * c.hidden;
  if (probes) {
    o->kind = BACK_PROBE;
    o->at = o->top;
    back_take(s.probes + o->p * width + o->j, c.hidden, w);
  } else {
    const real *from = exact && s.lengths == NULL ? c.last + o->b * width : c.g + (o->at * c.batch + o->b) * width;
    back_take(from + o->j, c.hidden, w);
  }
  back_begin(c, s, *o, c.injected && !probes, false, w);
}

/* The warp's walk is at the later end of its chunk. False: nothing is injected there, so that another vector must walk. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ bool back_enter(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                           int from, back_walk<real, cell, HP, KIND> *w) {
  if (o.kind == BACK_CHUNK) {
    const bool zeros = from < o.length && !__any_sync(0xffffffffu, w->l.g != 0 || w->l.g_c != 0);
    if (zeros && back_is_silent<real, cell>(c, o, o.bottom, from)) {
      return false;
    }
    back_put(o, *w, c.hidden, s.starts + back_at<real, cell>(c, o, o.p));
  }
  back_count(c, o, o.kind != BACK_PROBE, w);
  return true;
}

/* Takes what a speculating walk has found. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_settle_guess(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                                  int taken, back_walk<real, cell, HP, KIND> *w) {
  enum { K = cell<real>::MATRICES };
  const int64_t at = back_at<real, cell>(c, o, o.p);
  const bool probe = o.kind == BACK_PROBE, exact = o.top + o.warm_up >= o.length;
  const double length = probe ? back_length(o, *w) : 0, size = (double)w->size, sum = (double)w->sum;
  const double sizes = warp_sum(!o.unit ? 0 : probe ? size : size * size);
  const double end = back_size(*w), start = (double)w->start;
  const bool finite = isfinite(sum) && isfinite(end);
  if (probe) {
    w->l.g = w->l.g_c = 0;
    back_put(o, *w, c.hidden, s.starts + at);
    back_clear<real, K>(c, o, o.bottom, o.top);
  } else {
    back_flush(c, o, false, w);
  }
  back_put(o, *w, c.hidden, s.ends[0] + at);
  if (o.lane == 0) {
    back_chunk f = {};
    f.sum = probe ? 0 : finite ? sum : (double)NAN;
    f.head = (double)w->head;
    f.least = (double)w->least;
    f.reach = probe ? sizes : sum / start;
    f.probe = probe ? length : end / start;
    f.deltas[0] = probe ? 0 : sqrt(sizes / K);
    f.silent = probe;
    f.doubtful[0] = !exact && o.p + 1 < o.chunks;
    f.steps[0] = taken;
    f.work = taken;
    *back_found(c, s, o, o.p) = f;
  }
}

/* The scale of a chunk's differences: what they meet first in it; of a silent one, the mean of what is behind it. All lanes of the
 * warp ask for the same one. */
template <typename real>
__device__ __forceinline__ double back_scale(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                             int p) {
  const back_chunk *f = back_found(c, s, o, p);
  double behind = 0;
  if (f->silent == 0) {
    return fmin(f->sum / (double)(back_cut(o, p + 1) - back_cut(o, p)), f->head);
  }
  for (int q = p + 1 + o.lane; q < o.chunks; q += WARP_LANES) {
    behind += back_found(c, s, o, q)->sum;
  }
  return warp_sum(behind) / (double)o.length;
}

/* How much a difference grows in a silent chunk and in those in front of it: as the random vectors, or the gradients, there. */
template <typename real>
__device__ __forceinline__ double back_reach(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                             int p) {
  double reach = 0, through = 1;
  for (; p >= 0; p -= WARP_LANES) {
    const bool exists = p - o.lane >= 0;
    const back_chunk *f = back_found(c, s, o, exists ? p - o.lane : 0);
    const double mine = f->reach, probe = f->probe;
    const int left = p + 1 < WARP_LANES ? p + 1 : (int)WARP_LANES;
    for (int i = 0; i < left; ++i) {
      const double of_i = __shfl_sync(0xffffffffu, mine, i), probe_i = __shfl_sync(0xffffffffu, probe, i);
      reach += through == 0 ? 0 : through * of_i; /* nothing is left of it; a start of 0 would make it NaN */
      through = through == 0 ? 0 : through * probe_i;
    }
  }
  return reach;
}

/* What the warp must know of its chunks before it verifies them. False: a number of the sample is not finite. */
template <typename real>
__device__ __forceinline__ bool back_look(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o) {
  int longest = 0;
  bool finite = true;
  for (int p = o->lane; p < o->chunks; p += WARP_LANES) {
    const back_chunk *f = back_found(c, s, *o, p);
    longest = f->steps[0] > longest ? f->steps[0] : longest;
    finite = finite && isfinite(f->sum);
  }
  o->path += warp_largest(longest);
  for (int p = o->warp; p < o->chunks; p += o->warps) {
    back_chunk *f = back_found(c, s, *o, p);
    const double scale = back_scale(c, s, *o, p), reach = f->silent != 0 ? back_reach(c, s, *o, p) : 0;
    if (o->lane == 0) {
      f->scale = scale;
      f->through = reach;
    }
  }
  __syncwarp();
  return !__any_sync(0xffffffffu, !finite);
}

/* Compares a chunk's boundary. True: the difference, which the lane then has, must walk. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ bool back_doubts(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                            back_walk<real, cell, HP, KIND> *w) {
  enum { PAIR = cell<real>::PAIR };
  const int64_t at = back_at<real, cell>(c, *o, o->p), behind = at + c.batch * (1 + PAIR) * c.hidden;
  const real *ends = place_of_round(s.ends, o->in);
  back_chunk *f = back_found(c, s, *o, o->p);
  if (f->doubtful[o->in] == 0) {
    return false;
  }
  const real end = ends[behind], end_c = PAIR ? ends[behind + PAIR * c.hidden] : 0;
  w->l.g = end - s.starts[at];
  w->l.g_c = PAIR ? end_c - s.starts[at + PAIR * c.hidden] : 0;
  o->begun = back_size(*w);
  bool accepted = o->begun <= s.accept * f->scale;
  if (f->silent != 0) {
    double deltas = 0;
    for (int q = o->p + 1 + o->lane; q < o->chunks; q += WARP_LANES) {
      deltas += back_found(c, s, *o, q)->deltas[o->in];
    }
    deltas = warp_sum(deltas);
    accepted = s.passes_on ? o->begun == 0 : bppsa_silent_accepts(s.accept, back_length(*o, *w), f->through, deltas);
  }
  __syncwarp(); /* all lanes have read */
  if (o->lane == 0) {
    f->dropped = accepted ? o->begun : 0;
    f->doubtful[o->in] = 0;
  }
  if (!accepted && o->unit) {
    s.starts[at] = end;
    if constexpr (PAIR) {
      s.starts[at + c.hidden] = end_c;
    }
  }
  return !accepted;
}

/* Prepares the walk of a difference through its chunk. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_mend(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                          back_walk<real, cell, HP, KIND> *w) {
  o->bottom = back_cut(*o, o->p);
  o->top = o->at = back_cut(*o, o->p + 1);
  back_begin(c, s, *o, false, true, w);
}

/* A chunk that a round leaves as it is. */
template <typename real, template <typename> class cell>
__device__ __forceinline__ void back_keep(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o) {
  const int64_t at = back_at<real, cell>(c, o, o.p);
  back_chunk *f = back_found(c, s, o, o.p);
  if (o.unit) {
    place_of_round(s.ends, 1 - o.in)[at] = place_of_round(s.ends, o.in)[at];
    if constexpr (cell<real>::PAIR) {
      place_of_round(s.ends, 1 - o.in)[at + c.hidden] = place_of_round(s.ends, o.in)[at + c.hidden];
    }
  }
  if (o.lane == 0) {
    f->deltas[1 - o.in] = f->deltas[o.in];
    f->steps[1 - o.in] = 0;
    if (o.p > 0) {
      (f - c.batch)->doubtful[1 - o.in] = 0;
    }
  }
}

/* How many rounds are needed until a difference that has shrunk in its chunk is small enough, if it shrinks likewise in those in
 * front? */
__device__ __forceinline__ double back_needed(double begun, double moved, double accepted, int p) {
  const double shrinks = log(begun / moved), left = log(moved / accepted);
  const double needed = left <= 0 ? 0 : shrinks > 0 ? left / shrinks : (double)p;
  return needed < (double)p ? needed : (double)p; /* p for NaN */
}

/* Takes what a difference has found. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_settle_mend(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                                 int taken, back_walk<real, cell, HP, KIND> *w) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  const int to = o.kind == BACK_TAIL ? o.in : 1 - o.in; /* the tail goes from chunk to chunk in one place */
  const int64_t at = back_at<real, cell>(c, o, o.p);
  const bool reached = w->left <= 0;
  const double moved = back_size(*w), size = (double)w->size, squares = warp_sum(o.unit ? size * size : 0), sum = (double)w->sum;
  back_chunk *f = back_found(c, s, o, o.p);
  const int silent = f->silent;
  double needed = 0;
  if (o.rounds == 0 && reached && silent == 0 && o.p > 0) {
    needed = back_needed(o.begun, moved, s.accept * back_scale(c, s, o, o.p - 1), o.p);
  }
  back_flush(c, o, false, w);
  const real *ends = place_of_round(s.ends, o.in);
  w->l.g = ends[at] + (reached ? w->l.g : 0);
  w->l.g_c = PAIR ? ends[at + PAIR * c.hidden] + (reached ? w->l.g_c : 0) : 0;
  __syncwarp(); /* all lanes have read */
  back_put(o, *w, c.hidden, place_of_round(s.ends, to) + at);
  if (o.lane == 0) {
    f->deltas[to] = f->deltas[o.in] + sqrt(squares / K);
    f->added += silent != 0 ? sum : 0;
    f->steps[to] = taken;
    f->work += taken;
    f->mended += 1;
    f->stopped += reached ? 0 : moved;
    f->needed = needed;
    if (o.p > 0 && (reached || o.kind == BACK_MEND)) { /* otherwise the tail has still to look at what rounds left */
      (f - c.batch)->doubtful[to] = reached;
    }
  }
}

/* Are further rounds of mending expected to take longer than half of BP? `needed`: the largest number of them. */
__device__ __forceinline__ bool back_hopeless(const back_course &o, double needed) {
  return 2 * (2 + needed) > (double)o.chunks + 2;
}

/* What a round did, and which phase follows. */
template <typename real>
__device__ __forceinline__ back_kind back_after_round(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o) {
  int longest = 0, doubtful = 0, early = 0, of_early = 0;
  double needed = 0;
  for (int p = o->lane; p < o->chunks; p += WARP_LANES) {
    const back_chunk *f = back_found(c, s, *o, p);
    const int taken = f->silent == 0 ? f->steps[o->in] : 0;
    early += taken > 0;
    of_early = taken > of_early ? taken : of_early;
    longest = f->steps[o->in] > longest ? f->steps[o->in] : longest;
    doubtful |= p + 1 < o->chunks && f->doubtful[o->in] != 0;
    needed = f->needed > needed ? f->needed : needed;
  }
  longest = warp_largest(longest);
  needed = warp_largest(needed);
  o->path += longest;
  if (longest > 0 && o->rounds == 0) {
    o->early = warp_sum(early);
    o->longest = warp_largest(of_early);
  }
  o->rounds += longest > 0;
  if (longest > 0 && o->rounds == 1 && back_hopeless(*o, needed)) {
    return BACK_WHOLE;
  }
  return !__any_sync(0xffffffffu, doubtful) ? BACK_DONE : o->rounds >= s.rounds ? BACK_TAIL : BACK_MEND;
}

/* The sample is given up: what has been summed is forgotten. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_forget(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                            back_walk<real, cell, HP, KIND> *w) {
  enum { K = cell<real>::MATRICES };
  o->given_up = true;
  back_flush(c, *o, true, w);
  const int64_t count = back_part(K, c), first = o->b * s.guess_blocks * count;
  for (int64_t at = (int64_t)o->warp * WARP_LANES + o->lane; s.guessed != NULL && at < s.guess_blocks * count;
       at += o->warps * WARP_LANES) {
    s.guessed[first + at] = 0;
  }
}

/* Finds what the warp walks next, and prepares it; meets the sample's other warps between phases. False: it has done all. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ bool back_next(const layer_arrays<real> &c, const back_arrays<real> &s, int cluster, int parts,
                                          back_course *o, back_walk<real, cell, HP, KIND> *w) {
  for (;;) {
    if (o->kind == BACK_CHUNK || o->kind == BACK_PROBE) { /* the latter: the same chunk again */
      if ((parts & BACK_GUESS) != 0 && o->p < o->chunks) {
        back_guess(c, s, o, w);
        return true;
      }
      if ((parts & BACK_REST) == 0) {
        return false;
      }
      if ((parts & BACK_GUESS) != 0) {
        back_meet(cluster);
      }
      o->kind = !back_look(c, s, o) ? BACK_WHOLE : o->chunks > 1 ? BACK_MEND : BACK_DONE;
      o->p = o->warp;
    } else if (o->kind == BACK_MEND) {
      for (; o->p < o->chunks; o->p += o->warps) {
        if (back_doubts(c, s, o, w)) {
          back_mend(c, s, o, w);
          return true;
        }
        back_keep<real, cell>(c, s, *o);
      }
      back_meet(cluster);
      o->in = 1 - o->in;
      o->kind = back_after_round(c, s, o);
      o->p = o->kind == BACK_TAIL ? o->chunks - 2 : o->warp;
    } else if (o->kind == BACK_TAIL) {
      for (; o->warp == 0 && o->p >= 0; --o->p) {
        __syncwarp(); /* all lanes see what the last walk wrote */
        if (back_doubts(c, s, o, w)) {
          back_mend(c, s, o, w);
          return true;
        }
      }
      return false;
    } else if (o->kind == BACK_WHOLE) {
      if (!o->idle) {
        back_forget(c, s, o, w);
      }
      if (o->warp != 0) {
        return false;
      }
      o->at = o->top = o->length;
      o->bottom = 0;
      const int64_t width = (1 + cell<real>::PAIR) * c.hidden;
      back_take((s.lengths == NULL ? c.last + o->b * width : c.g + (o->length * c.batch + o->b) * width) + o->j, c.hidden, w);
      back_begin(c, s, *o, c.injected, false, w);
      return true;
    } else {
      return false;
    }
  }
}

/* Walks, and takes what the walk has found. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_go(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                        back_walk<real, cell, HP, KIND> *w) {
  enum { PAIR = cell<real>::PAIR, AHEAD = walk_lane<real, cell, HP, KIND>::AHEAD };
  const int all = o->at - o->bottom, warm = o->at - o->top;
  const bool differs = o->kind == BACK_MEND || o->kind == BACK_TAIL;
  int until = (warm + AHEAD - 1) / AHEAD; /* rounds until steps count; negative: they do */
  bool goes_on = true;
  real stop = 0;
  bool stops = false;
  if (differs) {
    const back_chunk *f = back_found(c, s, *o, o->p);
    stop = (real)(s.stop * fmin(f->scale, f->least));
    stops = f->silent == 0;
  }
  const auto ended = [&]() { /* a round */
                             if (until < 0 && !differs) {
                               back_note_round(w->left < AHEAD ? w->left : (int)AHEAD, w);
                             }
                             w->left -= AHEAD;
                             --until;
                             goes_on = !(stops && back_largest(PAIR ? back_larger(w->l.g, w->l.g_c) : w->l.g) <= stop);
  };
  while (w->left > 0 && goes_on) {
    if (until == 0) {
      if (!back_enter(c, s, *o, o->at, w)) {
        break;
      }
      until = -1;
    }
    BPPSA_UNROLL_BY(1)
    while (w->skip == 0 && w->left >= 2 * AHEAD && until != 0 && goes_on) { /* a loop of its own is fast */
      back_round<true>(c, *o, w);
      ended();
    }
    if (w->left > 0 && until != 0 && goes_on) {
      back_round<false>(c, *o, w);
      w->skip = 0;
      ended();
    }
  }
  const int taken = all - (w->left > 0 ? w->left : 0);
  if (o->kind == BACK_CHUNK && w->left > 0) { /* nothing is injected */
    o->kind = BACK_PROBE;
    o->wasted = taken;
    return;
  }
  if (differs) {
    back_settle_mend(c, s, *o, taken, w);
    if (o->kind == BACK_TAIL) {
      o->path += taken;
      o->p -= 1;
    } else {
      o->p += o->warps;
    }
  } else if (o->kind == BACK_WHOLE) {
    back_flush(c, *o, false, w);
    o->path += taken;
    o->kind = BACK_DONE;
  } else {
    back_settle_guess(c, s, *o, taken + o->wasted, w);
    o->wasted = 0;
    o->kind = BACK_CHUNK;
    o->p += o->warps;
  }
}

/* ---- the report ---- */

/* Adds what was done with sample b to the sums of the pass, a warp together: a lane has every 32nd chunk. */
template <typename real>
__device__ __forceinline__ void back_sum_sample(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                                bool first) {
  back_sums *sums = &s.report->sums;
  double gap = 0, dropped = 0, all = 0;
  int64_t steps = 0;
  int mended = 0, compared = 0;
  for (int p = o.lane; p < o.chunks; p += WARP_LANES) {
    const back_chunk *f = back_found(c, s, o, p);
    steps += f->work;
    mended += f->mended;
    compared += f->silent == 0 && back_cut(o, p + 1) + o.warm_up < o.length;
    gap = f->dropped > 0 && f->dropped / f->scale > gap ? f->dropped / f->scale : gap;
    dropped += f->dropped + f->stopped;
    all += f->sum + f->added;
  }
  steps = warp_sum(steps);
  mended = warp_sum(mended);
  compared = warp_sum(compared);
  gap = warp_largest(gap);
  dropped = warp_sum(dropped);
  all = warp_sum(all);
  const int64_t path = (first ? 0 : s.paths[o.b]) + o.path;
  const double changed = dropped > 0 ? dropped / all : 0;
  __syncwarp(); /* all lanes have read */
  if (o.lane == 0) {
    s.paths[o.b] = path;
    (void)atomicAdd(&sums->steps, (unsigned long long)(steps + (o.given_up ? o.length : 0)));
    (void)atomicAdd(&sums->rows, (unsigned long long)o.length);
    (void)atomicAdd(&sums->mended, (unsigned long long)mended);
    (void)atomicAdd(&sums->given_up, o.given_up ? 1ull : 0ull);
    (void)atomicAdd(&sums->compared, (unsigned long long)compared);
    (void)atomicAdd(&sums->early, (unsigned long long)o.early);
    (void)atomicMax(&sums->longest, (long long)o.longest);
    (void)atomicMax(&sums->path, (long long)path);
    (void)atomicMax(&sums->rounds, (long long)o.rounds);
    if (!o.given_up) {
      (void)atomicMax(&sums->gap, (long long)__double_as_longlong(gap));
      (void)atomicMax(&sums->perturbation, (long long)__double_as_longlong(changed));
    }
  }
}

/* A warp adds what it knows of sample b to the report. The last warp of the last layer completes it, and decides about pauses. */
template <typename real>
__device__ __forceinline__ void back_tell(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                          bool first, bool last) {
  back_report *r = s.report;
  if (!o.idle) {
    back_sum_sample(c, s, o, first);
  }
  if (o.lane != 0) {
    return;
  }
  __threadfence(); /* others see this sample's numbers in the sums before they see that it is counted */
  if (atomicAdd(&r->sums.samples, 1ull) + 1 < (unsigned long long)c.batch) {
    return;
  }
  __threadfence(); /* this warp sees the numbers of all samples that are counted */
  r->sums.samples = 0;
  if (!last) {
    return;
  }
  const volatile back_sums *sums = &r->sums;
  back_report report = {};
  report.state = r->state;
  report.misses = r->misses;
  if (o.idle) {
    report.state.pause.left -= report.misses == 0;
  } else {
    report.path = sums->path;
    report.rounds = sums->rounds;
    report.mended = (int64_t)sums->mended;
    report.given_up = (int64_t)sums->given_up;
    report.steps = (int64_t)sums->steps;
    report.rows = (int64_t)sums->rows;
    report.speculated = 1;
    report.gap = __longlong_as_double(sums->gap);
    report.perturbation = __longlong_as_double(sums->perturbation);
    const double work = (double)report.steps / (double)report.rows;
    report.state.pause = bppsa_forward_pause_end(
        report.given_up > 0 || bppsa_backward_pause_fails(s.cost, report.path, s.possible, work), report.state.pause);
    if (s.most_warm_up > 0 && report.given_up == 0) {
      report.state.warm_up =
          bppsa_backward_gpu_warm_up(report.state.warm_up > 0 ? report.state.warm_up : s.warm_up, s.most_warm_up,
                                     {(int64_t)sums->compared, (int64_t)sums->early, (int64_t)sums->longest});
    }
  }
  *r = report; /* with sums of 0 */
}

/* ---- the kernel ---- */

/* The sample's chunks: those of a short one are about as long as a long one's. */
template <typename real> __device__ __forceinline__ void back_cut_up(const back_arrays<real> &s, back_course *o) {
  const int fitting = o->length / (int)s.usual, most = (int)s.chunks;
  o->chunks = fitting < 1 ? 1 : fitting < most ? fitting : most;
  o->each = o->length / o->chunks;
  o->larger = o->length % o->chunks;
}

/* Adds the sums of a block's warps, in order, and writes them to the block's part. If no other launch adds these, the `blocks`
 * blocks of a sample do, and then the block that ends last. */
template <typename real>
__device__ __forceinline__ void back_finish(const back_arrays<real> &s, int64_t count, int blocks, const real *sums) {
  const int warps = (int)blockDim.x / WARP_LANES;
  __syncthreads();
  for (int at = (int)threadIdx.x; at < (int)count; at += (int)blockDim.x) {
    real sum = 0;
    for (int warp = 0; warp < warps; ++warp) {
      sum += sums[warp * count + at];
    }
    s.partials[(int64_t)blockIdx.x * count + at] = sum;
  }
  if (s.to.counted != NULL) {
    const int rank = (int)blockIdx.x % blocks;
    if (blocks > 1) {
      back_meet(blocks);
      walk_sums_join(s.partials + ((int64_t)blockIdx.x - rank) * count, count, blocks, rank);
    }
    walk_sums_end(s.to, s.partials, (int)gridDim.x / blocks, blocks * count, count, gridDim.x);
  }
}

/* `blocks` blocks for each sample, which are a cluster if parts has BACK_REST. shared: for each warp 2 · K · HP reals, and then
 * with sums a part for each. first, last: is it the first, the last layer of the pass? */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__global__ void __launch_bounds__(BACK_THREADS, 1)
    bppsa_recurrent_back(layer_arrays<real> c, back_arrays<real> s, int blocks, int parts, bool first, bool last) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR, AHEAD = walk_lane<real, cell, HP, KIND>::AHEAD };
  BPPSA_SHARED(real, shared);
  const int warps = (int)blockDim.x / WARP_LANES, lane = (int)threadIdx.x % WARP_LANES;
  const int of_block = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP_LANES, 0); /* the compiler sees that all lanes agree */
  const int64_t count = back_part(K, c);
  back_course o = {};
  back_walk<real, cell, HP, KIND> w = {};
  o.lane = lane;
  o.unit = lane < c.hidden;
  o.j = o.unit ? lane : 0;
  o.b = (int)blockIdx.x / blocks;
  o.warp = (int)blockIdx.x % blocks * warps + of_block;
  o.warps = blocks * warps;
  o.p = o.warp;
  w.delta = launch_held(shared + of_block * 2 * K * HP);
  w.sums = launch_held(shared + warps * 2 * K * HP + of_block * count);
  walk_weights(c.w_hh, c.hidden, o.unit, lane, o.j, w.delta, &w.l);
  launch_wait(); /* for the launch that has speculated, if that is another one */
  launch_next();
  o.length = (int)(s.lengths != NULL ? s.lengths[o.b] : c.steps);
  back_cut_up(s, &o);
  o.idle = s.report->state.pause.left > 0 || s.report->misses != 0;
  o.warm_up = (int)(s.report->state.warm_up > 0 ? s.report->state.warm_up : s.warm_up);
  o.warm_up = o.warm_up < o.length ? o.warm_up : o.length;
  back_flush(c, o, true, &w);
  if ((parts & BACK_GUESS) != 0) { /* behind the sample's end */
    const int64_t behind = c.steps - o.length;
    back_clear<real, K>(c, o, o.length + (int)bppsa_cut(behind, o.warps, o.warp),
                        o.length + (int)bppsa_cut(behind, o.warps, o.warp + 1));
  }
  if (o.idle && (parts & BACK_REST) != 0) {
    back_meet(blocks); /* all know that the pass is BP; the last warp may change that */
  }
  o.kind = !o.idle ? BACK_CHUNK : (parts & BACK_REST) != 0 ? BACK_WHOLE : BACK_DONE;
  w.l.state = c.batch * c.hidden;
  w.l.reads_u = true;
  w.l.c_place = c.hidden;
  w.l.reads_x = KIND != WALK_FREE && c.input == 1;
  w.l.x_row = AHEAD * c.batch;
  while (back_next(c, s, blocks, parts, &o, &w)) {
    back_go(c, s, &o, &w);
  }
  if (o.warp == 0 && (parts & BACK_REST) != 0) {
    if (!o.idle && !o.given_up) {
      __syncwarp(); /* all lanes see what the tail wrote */
      back_take(place_of_round(s.ends, o.in) + back_at<real, cell>(c, o, 0), c.hidden, &w);
    }
    if (c.want_input) { /* g_0 */
      back_put(o, w, c.hidden, c.g + o.b * (1 + PAIR) * c.hidden + o.j);
    }
    back_tell(c, s, o, first, last);
  }
  if constexpr (KIND != WALK_FREE) {
    back_finish(s, count, blocks, w.sums - of_block * count);
  }
}

#endif
