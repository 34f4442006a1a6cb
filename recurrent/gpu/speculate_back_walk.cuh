/* The walk of a team's first warp in the parallel backward pass on a GPU, H <= 32 (recurrent/gpu/speculate_back_team.cuh): the
 * chain of BP's steps, and what decisions need of it. */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_BACK_WALK_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_BACK_WALK_CUH

#include "recurrent/gpu/speculate_back_team.cuh"

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

/* ---- a walker, and its walks ---- */

/* A walker's place, and what it does. */
struct back_course : back_sample {
  bool unit;          /* the lane has a unit */
  int j, team, teams; /* unit; its team among the sample's; how many these are */
  int warm_up;
  back_kind kind;
  int p;               /* chunk */
  int at, top, bottom; /* of a walk: the states from which it goes, counts, and to which it goes */
  int wasted;          /* steps of a warm-up from which a chunk turned out to be silent */
  double begun;        /* |d|_inf */
};

/* Where the walk of a chunk that is speculated starts: W steps behind it, at the sample's end, or in front of the first reset of
 * the warm-up. */
template <typename real> __device__ __forceinline__ void back_seek_guess(const layer_arrays<real> &c, back_course *o) {
  const int start = o->top + o->warm_up < o->length ? o->top + o->warm_up : o->length;
  o->at = c.resets.mask != NULL ? (int)c.resets.next(o->b, o->top, start) : start;
}

/* Does this walk start from the true gradient? */
__device__ __forceinline__ bool back_is_exact(const back_course &o) {
  return o.kind == BACK_CHUNK && (o.at == o.length || o.at < o.top + o.warm_up);
}

/* Does the sample begin anew within the chunk that is speculated? */
template <typename real> __device__ __forceinline__ bool back_is_cut(const layer_arrays<real> &c, const back_course &o) {
  return c.resets.mask != NULL && c.resets.next(o.b, o.bottom > 1 ? o.bottom : 1, o.top) < o.top;
}

/* Where the walk of a difference starts and ends: at the chunk's ends, or in front of its last reset, where nothing of the
 * difference is left. */
template <typename real> __device__ __forceinline__ void back_seek_mend(const layer_arrays<real> &c, back_course *o) {
  const int first = back_cut(*o, o->p), least = first > 1 ? first : 1;
  o->top = o->at = back_cut(*o, o->p + 1);
  const int reset = c.resets.mask != NULL ? (int)c.resets.last(o->b, least, o->top) : least - 1;
  o->bottom = reset >= least ? reset : first;
}

/* Does the walk of a difference end at a reset? */
template <typename real> __device__ __forceinline__ bool back_ends_at_reset(const layer_arrays<real> &c, const back_course &o) {
  return o.bottom > 0 && c.resets.at(o.bottom * c.batch + o.b);
}

/* Returns the gradient of state o.at: g_T, or u_t, which is 0 if nothing is injected. width: reals of a gradient. */
template <typename real>
__device__ __forceinline__ const real *back_from(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                                 int64_t width) {
  return o.at == o.length && s.lengths == NULL ? c.last + o.b * width
         : o.at < o.length && !c.injected      ? s.zeros
                                               : c.g + (o.at * c.batch + o.b) * width;
}

/* A walk. */
template <typename real> struct back_walk {
  real g, g_c;                   /* the gradient; c: of a pair */
  real sum, size;                /* Σ |g_t|_inf, the same in all lanes; Σ |δ_t| of the lane's unit, at the end of a walk */
  real start, seen, head, least; /* |g|_inf where the count began; Σ of earlier rounds; of the first round; the least of any */
  real stop;                     /* |d|_inf at which the walk of a difference ends; negative: nowhere */
  int round, left, skip;         /* left: places that are left from this round on, with those of the first that stay empty */
  bool notes;                    /* the means of rounds count */
  bool resets;                   /* samples of the batch may begin anew */
  int own, teams, part;          /* as of back_places */
};

/* Where the lane's unit of a chunk's gradient is. */
template <typename real, template <typename> class cell>
__device__ __forceinline__ int64_t back_at(const layer_arrays<real> &c, const back_course &o, int p) {
  return (p * c.batch + o.b) * (1 + cell<real>::PAIR) * c.hidden + o.j;
}

/* Gives the helper a task. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_ask(const back_course &o, const back_task &task, const back_walk<real> &w) {
  const back_places<real, cell, HP, KIND> at(w.own, w.teams, w.part);
  if (o.lane == 0) {
    *at.task = task;
  }
  at.meet();
}

/* Meets the sample's other teams. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_meet_all(const back_course &o, int cluster, const back_walk<real> &w) {
  back_ask<real, cell, HP, KIND>(o, {BACK_MEETS}, w);
  rest_meet(cluster);
}

/* Begins a walk from the state o.at, whose gradient the lane has, to o.bottom; it begins to count at o.top. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_begin(const layer_arrays<real> &c, const back_course &o, bool reads_u, bool adds,
                                           back_walk<real> *w) {
  enum { STEPS = back_team<real, cell, HP, KIND>::STEPS };
  const back_places<real, cell, HP, KIND> at(w->own, w->teams, w->part);
  const int warm = o.at - o.top;
  w->skip = (STEPS - warm % STEPS) % STEPS;
  w->left = w->skip + o.at - o.bottom;
  w->round = 0;
  w->stop = -1;
  w->notes = false;
  back_ask<real, cell, HP, KIND>(o,
                                 {BACK_WALKS, o.at, o.bottom, w->skip, (warm + STEPS - 1) / STEPS, INT32_MAX, o.b, reads_u, adds,
                                  o.kind != BACK_PROBE, (int)c.batch, c.begun},
                                 *w);
  at.meet(); /* two rounds are ready */
}

/* |d|_inf of the gradient that the lanes have. */
template <bool PAIR, typename real> __device__ __forceinline__ real back_size(const back_walk<real> &w) {
  return back_largest(PAIR ? back_larger(w.g, w.g_c) : w.g);
}

/* A round that counts has ended, of so many steps. A last one with fewer steps than WHOLE says nothing, unless it is the first
 * too. */
template <int WHOLE, typename real> __device__ __forceinline__ void back_note_round(int steps, back_walk<real> *w) {
  const real all = w->sum - w->seen, mean = steps == WHOLE ? all * ((real)1 / WHOLE) : all / (real)steps;
  w->least = w->head < 0 || (steps == WHOLE && mean < w->least) ? mean : w->least;
  w->head = w->head < 0 ? mean : w->head;
  w->seen = w->sum;
}

/* From here on steps count: what the warm-up summed is forgotten. */
template <bool PAIR, typename real> __device__ __forceinline__ void back_count(back_walk<real> *w) {
  w->sum = w->seen = 0;
  w->head = w->least = -1; /* no round yet */
  w->start = back_size<PAIR>(*w);
}

/* A step: g_{t-1} from g_t, as walk_back. weights: a column of each W_k; deltas: receives δ_t; place: of the lane's in a row.
 * anew: the sample begins anew in front of the step, so that g_{t-1} is u_{t-1} alone; to: receives what it is without u_{t-1}. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_step(const real (&weights)[cell<real>::MATRICES][HP], const quad<real> *record, bool anew,
                                          int place, real *deltas, real (&to)[2], back_walk<real> *w) {
  typedef back_team<real, cell, HP, KIND> team;
  enum { K = team::K, PAIR = team::PAIR, Q = team::Q };
  const auto field = [&](int i) { return record[i / Q].v[i % Q]; };
  const real through = PAIR ? w->g_c + field(PAIR * K) * w->g : w->g;
  const real carried = cell<real>::DIAGONAL ? cell<real>::carry(field(cell<real>::DIAGONAL * team::CARRY), through) : 0;
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    deltas[k * team::ROW + place] = field(k) * (PAIR && k + 1 == K ? w->g : through);
  }
  if (team::SPLIT) {
    deltas[K * team::ROW + place] = w->g;
  }
  real part[4] = {(PAIR ? (real)0 : carried) + (anew ? (real)0 : field(team::U)), 0, 0, 0};
  __syncwarp();
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    quad<real> rows[HP / Q];
    BPPSA_UNROLL
    for (int q = 0; q < HP / Q; ++q) {
      rows[q] = ((const quad<real> *)(deltas + k * team::ROW))[q];
    }
    BPPSA_UNROLL
    for (int r = 0; r < HP; ++r) {
      part[r % 4] += rows[r / Q].v[r % Q] * weights[k][r];
    }
  }
  w->sum += back_size<PAIR != 0>(*w);
  w->g_c = PAIR ? carried + field(PAIR * team::U_C) : 0;
  w->g = (part[0] + part[1]) + (part[2] + part[3]);
  if (anew) {
    to[0] = w->g;
    to[1] = carried;
    w->g = field(team::U);
    w->g_c = PAIR ? field(PAIR * team::U_C) : 0;
  }
}

/* Writes the gradient of the state from which the sample begins anew in front of step i of the present round, or adds that of a
 * difference. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_put_begun(int i, int unit, int hidden, const real (&begun)[2], const back_walk<real> &w) {
  typedef back_team<real, cell, HP, KIND> team;
  const back_places<real, cell, HP, KIND> at(w.own, w.teams, w.part);
  const back_task &task = *at.task;
  const int64_t step = task.at + task.skip - w.round * team::STEPS - 1 - i;
  if (!task.keeps || task.begun == NULL) {
    return;
  }
  real *to = (real *)task.begun + (step * task.batch + task.sample) * (1 + team::PAIR) * hidden + unit;
  BPPSA_UNROLL
  for (int half = 0; half < 1 + team::PAIR; ++half) {
    back_put_delta(true, task.adds, begun[half], to + half * hidden);
  }
}

/* Walks a round, whose records are there; `next` is that of its first step, and afterwards of the next round's. WHOLE: it has all
 * its steps, and no reset; otherwise `resets` is the round's bits of back_places::resets. */
template <bool WHOLE, typename real, template <typename> class cell, int HP, walk_kind KIND, int USED>
__device__ __forceinline__ void back_round(const real (&weights)[cell<real>::MATRICES][HP], const real *ring, real *deltas,
                                           unsigned resets, int hidden, int unit, int place, quad<real> (&next)[USED],
                                           back_walk<real> *w) {
  typedef back_team<real, cell, HP, KIND> team;
  enum { STEPS = team::STEPS, ROUND = STEPS * team::RECORD };
  const quad<real> *records = (const quad<real> *)(ring + (unsigned)w->round % team::ROUNDS * ROUND) + unit,
                   *behind = (const quad<real> *)(ring + (unsigned)(w->round + 1) % team::ROUNDS * ROUND) + unit;
  deltas += (unsigned)w->round % 2 * STEPS * team::DELTAS;
  BPPSA_UNROLL
  for (int i = 0; i < STEPS; ++i) {
    quad<real> now[USED];
    const quad<real> *from = i + 1 < STEPS ? records + (i + 1) * (team::RECORD / team::Q) : behind;
    BPPSA_UNROLL
    for (int q = 0; q < USED; ++q) {
      now[q] = next[q];
      next[q] = from[q * team::PLACES];
    }
    if (WHOLE || (i >= w->skip && i < w->left)) {
      const bool anew = !WHOLE && (resets >> i & 1) != 0;
      real begun[2] = {};
      back_step<real, cell, HP, KIND>(weights, now, anew, place, deltas + i * team::DELTAS, begun, w);
      if (anew && place == unit) {
        back_put_begun<real, cell, HP, KIND>(i, unit, hidden, begun, *w);
      }
    }
  }
}

/* Walks up to `rounds` rounds, to the end of the walk, or until the difference is small. True: the walk goes on. A function of its
 * own, so that registers hold what its loop needs and nothing else. Its inner loop asks for no resets: where there may be some, it
 * ends behind every round. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __noinline__ bool back_follow(const real *w_hh, int hidden, int lane, int rounds, back_walk<real> *walk) {
  typedef back_team<real, cell, HP, KIND> team;
  enum { K = team::K, STEPS = team::STEPS, USED = (team::BY_X + team::Q - 1) / team::Q };
  back_walk<real> w = *walk;
  const back_places<real, cell, HP, KIND> at(w.own, w.teams, w.part);
  const int j = lane < hidden ? lane : 0, unit = lane < HP ? lane : 0, place = lane < hidden ? lane : HP;
  real weights[K][HP];
  quad<real> next[USED];
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    BPPSA_UNROLL
    for (int r = 0; r < HP; ++r) {
      weights[k][r] = r < hidden ? w_hh[(k * hidden + r) * hidden + j] : 0;
    }
  }
  BPPSA_UNROLL
  for (int q = 0; q < USED; ++q) {
    next[q] = ((const quad<real> *)at.record(w.round, 0))[q * team::PLACES + unit];
  }
  const int least = w.resets ? INT32_MAX : (int)STEPS; /* places that are left when the inner loop goes on */
  unsigned coming = w.resets ? at.resets[w.round % team::ROUNDS] : 0;
  bool goes_on = true;
  const auto ended = [&](int steps) { /* a round, of so many steps or fewer */
                                      if (w.notes) {
                                        back_note_round<STEPS>(steps, &w);
                                      }
                                      w.left -= STEPS;
                                      w.skip = 0;
                                      --rounds;
                                      goes_on = w.left > 0 && !(w.stop >= 0 && back_size<team::PAIR != 0>(w) <= w.stop);
                                      if (goes_on) {
                                        at.meet();
                                        ++w.round;
                                      }
  };
  while (goes_on && rounds > 0) {
    const unsigned resets = coming;
    coming = w.resets ? at.resets[(w.round + 1) % team::ROUNDS] : 0; /* comes while the round is walked */
    if (w.skip > 0 || w.left < STEPS || resets != 0) {
      back_round<false, real, cell, HP, KIND>(weights, at.ring, at.deltas, resets, hidden, unit, place, next, &w);
      ended(w.left < STEPS ? w.left : (int)STEPS);
      continue;
    }
    BPPSA_UNROLL_BY(1)
    do { /* a loop of its own is fast */
      back_round<true, real, cell, HP, KIND>(weights, at.ring, at.deltas, 0, hidden, unit, place, next, &w);
      ended(STEPS);
    } while (goes_on && rounds > 0 && w.left >= least);
  }
  *walk = w;
  return goes_on;
}

/* Ends a walk, whose last round is `last`, in or in front of the present one. Waits until the helper has done its part. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_end(const back_course &o, int last, back_walk<real> *w) {
  const back_places<real, cell, HP, KIND> at(w->own, w->teams, w->part);
  if (o.lane == 0) {
    at.task->last = last;
  }
  at.meet();
  at.meet();
  w->size = at.sizes[o.lane];
}

/* |d|_2 likewise. */
template <bool PAIR, typename real>
__device__ __forceinline__ double back_length(const back_course &o, const back_walk<real> &w) {
  const double g = (double)w.g, g_c = PAIR ? (double)w.g_c : 0;
  return sqrt(warp_sum(o.unit ? g * g + g_c * g_c : 0));
}

/* Reads, and writes, the lane's unit of a gradient. */
template <bool PAIR, typename real>
__device__ __forceinline__ void back_take(const real *from, int64_t hidden, back_walk<real> *w) {
  w->g = from[0];
  w->g_c = PAIR ? from[PAIR * hidden] : 0;
}
template <bool PAIR, typename real>
__device__ __forceinline__ void back_put(const back_course &o, const back_walk<real> &w, int64_t hidden, real *to) {
  if (o.unit) {
    to[0] = w.g;
    if constexpr (PAIR) {
      to[hidden] = w.g_c;
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
