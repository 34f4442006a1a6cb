/* The walks of the parallel backward pass of a wide layer (speculate_back_wide.cuh): what walks a chunk of a sample is a team, the
 * block or the cluster that wide_kernels.cuh has for a sample, and its steps are computed as there. Deltas are written to memory,
 * or added to what is there, and products of matrices sum the weight gradients later.
 *
 * Decisions need |g_t|_inf of every step. So each unit sends its own |g_t| to all blocks, together with what W_hh is multiplied by,
 * and every warp finds the largest of all units. A number of the state behind a walk's last step is measured by two exchanges
 * without products. Exchanges come in pairs, because two buffers take turns. */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_BACK_WIDE_WALK_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_BACK_WIDE_WALK_CUH

#include "recurrent/gpu/speculate_back_kernel.cuh"
#include "recurrent/gpu/wide_kernels.cuh"

enum { BACK_MEAN = 8 /* steps of a mean, as on a CPU */ };

/* The shape of a walk: each unit sends one number more than BP does. */
template <typename real, int K, int SIZE> struct wide_back_shape : wide_shape<real, K, SIZE, true, true> {
  typedef wide_shape<real, K, SIZE, true, true> base;
  static constexpr int COUNT = (K + 1) * base::HP, GATES = WIDE_AHEAD * COUNT * (int)sizeof(real),
                       WEIGHTS = GATES + WIDE_AHEAD * (int)sizeof(cluster_gate),
                       SHARED = WEIGHTS + K * base::LENT * base::UNITS * base::THREADS * (int)sizeof(real);
};

/* What a thread keeps of its team's walk. */
template <typename real, template <typename> class cell, typename shape> struct back_wide_walk {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  wide_weights<real, K, shape> weights;
  bool loaded, exists; /* the weights have been read; the thread has a unit */
  real g, g_c, u[WIDE_AHEAD], u_c[WIDE_AHEAD];
  cell<real> units[WIDE_AHEAD];  /* of the next steps, as u */
  unit_place<real, cell> place;  /* of the unit that is read next, */
  const real *u_at;              /* and of u */
  int64_t hidden, row, g_row;    /* reals from one step to the next: of the deltas, of u */
  int ahead;                     /* steps in front of the unit that is read next */
  real *x_to, *h_to;             /* the next delta_x and delta_h of the unit */
  bool stores_x, stores_h, adds; /* they are written, or, of a difference, added to */
  real early, late;              /* |g_t|_inf of the latest two steps, the same in all threads */
  real sum, size;                /* Σ |g_t|_inf; Σ |δ_t| of the unit */
  real start, seen, head, least; /* |g|_inf where the count began; Σ of earlier means; the first of these; the least of any */
  int left, skip;                /* steps left, with one that the first pair lacks so that counting begins with a pair */
  unsigned round;                /* pairs of exchanges in this launch */
};

/* What a team measures of the gradients that its threads have: |g|_inf, |g|_2, and of the units' sizes Σ and Σ of squares. */
struct back_wide_measure {
  double largest, length, sizes, squares;
};

__device__ __forceinline__ int back_rank(float x) {
  return __float_as_int(x) & INT32_MAX;
}
__device__ __forceinline__ int back_rank(double x) {
  return (int)(__double_as_longlong(x) >> 32) & INT32_MAX;
}

/* The largest of COUNT numbers in shared memory, as back_largest. */
template <int COUNT, typename real> __device__ __forceinline__ real back_wide_largest(const real *numbers) {
  real most = numbers[(int)threadIdx.x % WARP_LANES];
  BPPSA_UNROLL
  for (int at = 1; at < COUNT / WARP_LANES; ++at) {
    const real number = numbers[at * WARP_LANES + (int)threadIdx.x % WARP_LANES];
    most = back_rank(number) > back_rank(most) ? number : most;
  }
  return back_largest(most);
}

/* As launch_number, of 64 bits. */
__device__ __forceinline__ int64_t back_wide_number(int64_t x) {
  return (int64_t)launch_number((int)(x >> 32)) << 32 | (unsigned)launch_number((int)x);
}

/* ---- a walk ---- */

/* Reads the unit that step i of a pair needs, and goes to the step in front, if there is one. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ void back_wide_read(int i, back_wide_walk<real, cell, shape> *w) {
  w->units[i] = cell<real>::load(w->place);
  if (w->ahead > 0) {
    w->place.back();
  }
  --w->ahead;
}

/* Likewise the u that it adds. It is read one step later than the unit: a step adds the last u when the next one would be read
 * already, and the compiler would copy that, and wait for it. rows: as w->ahead, of u. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ void back_wide_read_u(int i, int rows, back_wide_walk<real, cell, shape> *w) {
  w->u[i] = w->u_at[0];
  w->u_c[i] = w->u_at[cell<real>::PAIR * w->hidden];
  if (rows > 0) {
    w->u_at -= w->g_row;
  }
}

/* Prepares a walk from the state o.at, whose gradient the thread has, to o.bottom; it begins to count at o.top. Where nothing is
 * injected, zeros are read as u_t: a load without a condition is not waited for. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ void back_wide_begin(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                                const wide_lane<real, shape> &l, back_wide_walk<real, cell, shape> *w) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  const int64_t row = (o.at - 1) * c.batch + o.b;
  const bool reads_u = c.injected && (o.kind == BACK_CHUNK || o.kind == BACK_WHOLE);
  if (!w->loaded) {
    wide_load<real, K, true>(c, l, &w->weights);
    w->loaded = true;
  }
  w->skip = (o.at - o.top) % 2;
  w->left = w->skip + o.at - o.bottom;
  w->adds = o.kind == BACK_MEND || o.kind == BACK_TAIL;
  w->stores_x = w->stores_h = false;
  w->size = 0;
  w->place = unit_place<real, cell>(c, row * c.hidden + o.j, o.j);
  w->g_row = reads_u ? (1 + PAIR) * c.batch * c.hidden : 0;
  w->u_at = reads_u ? c.g + row * (1 + PAIR) * c.hidden + o.j : s.zeros + o.j;
  w->ahead = o.at - 1;
  if (w->left > 0) {
    back_wide_read_u(0, w->ahead, w);
    back_wide_read(0, w);
    back_wide_read(1, w);
  }
}

/* From here on steps count: what the warm-up summed is forgotten. `stores`: deltas are written. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ void back_wide_count(const layer_arrays<real> &c, const back_course &o, bool stores,
                                                back_wide_walk<real, cell, shape> *w) {
  const int64_t to = ((int64_t)(o.top - 1) * c.batch + o.b) * cell<real>::MATRICES * c.hidden + o.j;
  w->sum = w->size = w->seen = 0;
  w->head = w->least = w->start = -1; /* none yet */
  w->stores_x = stores && o.unit && c.delta_x != NULL;
  w->stores_h = stores && o.unit && cell<real>::SPLIT && c.delta_h != NULL;
  w->x_to = c.delta_x + (w->stores_x ? to : 0);
  w->h_to = c.delta_h + (w->stores_h ? to : 0);
}

/* An exchange between steps, or instead of one that a pair lacks: sends so many numbers of the unit, and zeros behind them. */
template <typename real, typename shape>
__device__ __forceinline__ const real *back_wide_exchange(int i, unsigned round, real first, real second, real last,
                                                          const wide_lane<real, shape> &l) {
  BPPSA_UNROLL
  for (int k = 0; k < shape::MATRICES; ++k) {
    l.hand_out(i, k, k == 0 ? first : k == 1 ? second : (real)0);
  }
  l.hand_out(i, shape::MATRICES, last);
  l.await(i, round);
  return l.in + i * shape::COUNT;
}

/* Computes step i of a pair, and reads for the step two further on. buffer: of the exchange, i where both steps of a pair are
 * computed together. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ void back_wide_step(int i, int buffer, bool relu, const wide_lane<real, shape> &l,
                                               back_wide_walk<real, cell, shape> *w) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  real sums[K][shape::UNITS] = {};
  const unit_back<real, cell> made(w->units[i], relu, w->g, w->g_c);
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    l.hand_out(buffer, k, w->exists ? made.to_h[k] : 0);
  }
  l.hand_out(buffer, K, w->exists ? back_larger(w->g, PAIR ? w->g_c : 0) : 0);
  back_wide_read_u(1 - i, w->ahead + 1, w);
  back_wide_read(i, w);
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    w->size += made.to_h[k] < 0 ? -made.to_h[k] : made.to_h[k];
    back_put_delta(w->stores_x, w->adds, k + 1 == K ? made.to_x : made.to_h[k], w->x_to + k * w->hidden);
    if (cell<real>::SPLIT) {
      back_put_delta(w->stores_h, w->adds, made.to_h[k], w->h_to + k * w->hidden);
    }
  }
  w->x_to -= w->row;
  w->h_to -= w->row;
  l.await(buffer, w->round);
  const real *in = l.in + buffer * shape::COUNT;
  w->late = back_wide_largest<shape::HP>(in + K * shape::HP);
  w->early = i == 0 ? w->late : w->early;
  w->sum += w->late;
  wide_multiply<true, real, K, shape>(in, l.part, w->weights, sums);
  BPPSA_UNROLL
  for (int at = shape::UNITS; at < K * shape::UNITS; ++at) {
    sums[0][at % shape::UNITS] += sums[at / shape::UNITS][at % shape::UNITS];
  }
  const real product = wide_sum<real, shape>(sums[0], l.part);
  if (PAIR || !cell<real>::DIAGONAL) { /* made.own is 0, and u would be added to it as soon as it is read, which takes a wait */
    w->g = w->u[i] + product;
  } else {
    w->g = made.own + w->u[i] + product;
  }
  w->g_c = PAIR ? made.own_c + w->u_c[i] : 0;
}

/* Computes a step, whose row is `row`, by itself. anew: the sample begins anew in front of it, so that its gradient there is u
 * alone. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ void back_wide_single(const layer_arrays<real> &c, const back_course &o, bool anew, int64_t row,
                                                 int buffer, const wide_lane<real, shape> &l,
                                                 back_wide_walk<real, cell, shape> *w) {
  const real u = w->u[0], u_c = w->u_c[0];
  if (anew) {
    begin_unit<real, cell>(c, o.j, &w->units[0]);
    w->u[0] = w->u_c[0] = 0;
  }
  back_wide_step(0, buffer, c.relu, l, w);
  if (anew) {
    if (c.begun != NULL && o.unit && o.kind != BACK_PROBE) {
      real *to = begun_at<real, cell>(c, row, o.j);
      back_put_delta(true, w->adds, w->g, to);
      if constexpr (cell<real>::PAIR) {
        back_put_delta(true, w->adds, w->g_c, to + w->hidden);
      }
    }
    w->g = u;
    w->g_c = cell<real>::PAIR ? u_c : 0;
  }
  const cell<real> unit = w->units[0]; /* the next step has been read for the pair's second one */
  w->units[0] = w->units[1];
  w->units[1] = unit;
  w->u[0] = w->u[1];
  w->u_c[0] = w->u_c[1];
}

/* Computes the steps of a pair one by one: of one in which the sample begins anew, of a warm-up's first one, and of a walk's last
 * one, which lack a step. at: the state behind the first. Returns how many these are. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ int back_wide_apart(const layer_arrays<real> &c, const back_course &o, int at,
                                               const wide_lane<real, shape> &l, back_wide_walk<real, cell, shape> *w) {
  const int steps = w->skip == 0 && w->left >= 2 ? 2 : 1;
  real early = 0;
  BPPSA_UNROLL_BY(1)
  for (int i = 0; i < steps; ++i) {
    const int step = at - 1 - i;
    back_wide_single(c, o, c.resets.mask != NULL && c.resets.next(o.b, step, step + 1) == step, step * c.batch + o.b, i, l, w);
    early = i == 0 ? w->late : early;
  }
  w->early = early;
  if (steps == 1) {
    (void)back_wide_exchange<real, shape>(1, w->round, 0, 0, 0, l);
    w->skip = 0;
  }
  return steps;
}

template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ back_wide_measure back_wide_look(const wide_lane<real, shape> &l,
                                                            back_wide_walk<real, cell, shape> *w) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  back_wide_measure found = {};
  const real *in = back_wide_exchange<real, shape>(0, w->round, w->exists ? w->size : 0, 0,
                                                   w->exists ? back_larger(w->g, PAIR ? w->g_c : 0) : 0, l);
  found.largest = (double)back_wide_largest<shape::HP>(in + K * shape::HP);
  for (int at = (int)threadIdx.x % WARP_LANES; at < shape::HP; at += WARP_LANES) {
    const double size = (double)in[at];
    found.sizes += size;
    found.squares += size * size;
  }
  in = back_wide_exchange<real, shape>(1, w->round, w->exists ? w->g : 0, PAIR && w->exists ? w->g_c : 0, 0, l);
  for (int at = (int)threadIdx.x % WARP_LANES; at < (1 + PAIR) * shape::HP; at += WARP_LANES) {
    found.length += (double)in[at] * (double)in[at];
  }
  ++w->round;
  found.sizes = warp_sum(found.sizes);
  found.squares = warp_sum(found.squares);
  found.length = sqrt(warp_sum(found.length));
  return found;
}

/* BACK_MEAN steps behind those of earlier means have been counted. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ void back_wide_note_mean(back_wide_walk<real, cell, shape> *w) {
  const real mean = (w->sum - w->seen) / (real)BACK_MEAN;
  w->least = w->head < 0 || mean < w->least ? mean : w->least;
  w->head = w->head < 0 ? mean : w->head;
  w->seen = w->sum;
}

/* ---- gradients of a team, in memory ---- */

template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ void back_wide_take(const real *from, back_wide_walk<real, cell, shape> *w) {
  w->g = from[0];
  w->g_c = cell<real>::PAIR ? from[cell<real>::PAIR * w->hidden] : 0;
}

template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ void back_wide_put(const back_course &o, const back_wide_walk<real, cell, shape> &w, real *to) {
  if (o.unit) {
    to[0] = w.g;
    if constexpr (cell<real>::PAIR) {
      to[w.hidden] = w.g_c;
    }
  }
}

/* Is nothing injected into the states first .. last? NaN is something. All blocks of a team read the same, and find the same. */
template <typename real, template <typename> class cell>
__device__ __forceinline__ bool back_wide_is_silent(const layer_arrays<real> &c, const back_course &o, int first, int last) {
  enum { ROWS = 8 };
  const int width = (1 + cell<real>::PAIR) * (int)c.hidden;
  for (int t = first; c.injected && t <= last; t += ROWS) {
    const int rows = last + 1 - t < ROWS ? last + 1 - t : (int)ROWS;
    bool some = false;
    for (int at = (int)threadIdx.x; at < rows * width; at += (int)blockDim.x) {
      some |= c.g[((t + at / width) * c.batch + o.b) * width + at % width] != 0;
    }
    if (__syncthreads_or(some) != 0) {
      return false;
    }
  }
  return true;
}

#endif
