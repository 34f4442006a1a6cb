/* The walk of a warp in the parallel backward pass on a GPU, H <= 32: its steps are those of BP (chunk_kernels.cuh), and it
 * also counts what decisions need. */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_BACK_WALK_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_BACK_WALK_CUH

#include "recurrent/gpu/chunk_kernels.cuh"
#include "recurrent/gpu/speculate_back_decide.cuh"

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

/* Numbers in a block's part of the weight gradients (chunk_arrays). */
template <typename real> BPPSA_HOST_DEVICE inline int64_t back_part(int matrices, const layer_arrays<real> &c) {
  return matrices * c.hidden * (c.hidden + (c.input == 1 ? 3 : 2));
}

/* A warp's place, and what it does. */
struct back_course : back_sample {
  bool unit;          /* the lane has a unit */
  int j, warp, warps; /* unit; the warp among the sample's; these */
  int warm_up;
  back_kind kind;
  int p;               /* chunk */
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

#endif
