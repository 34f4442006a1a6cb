/* The two warps that walk a chunk together in the parallel backward pass on a GPU, H <= 32, and what they have in shared memory. A
 * step of BP is a chain: δ_t from g_t, products of δ_t and W, g_{t-1}. The walker follows that chain and does nothing else. Its
 * helper reads what the forward pass kept, computes the factors of δ two rounds of steps ahead, and takes what the walker leaves:
 * it writes δ, and sums weight gradients. They meet once a round. Between walks the helper waits for the walker's next task. */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_BACK_TEAM_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_BACK_TEAM_CUH

#include "recurrent/gpu/chunk_kernels.cuh"
#include "recurrent/gpu/speculate_back_decide.cuh"
#include "recurrent/gpu/speculate_kernels.cuh"

enum back_work { BACK_WALKS, BACK_CLEARS, BACK_MEETS, BACK_ENDS };

/* What a helper does next. A walk has steps at .. bottom + 1. So that counting begins with a round, `skip` places of the first
 * round stay empty. */
struct alignas(16) back_task {
  back_work work;
  int at = 0, bottom = 0, skip = 0;
  int counts = 0; /* the round from which weight gradients are summed, and δ is written */
  int last = 0;   /* the last round, which the walker finds out */
  int sample = 0;
  bool reads_u = false, adds = false; /* u_t is not 0; δ is added to what is there */
  bool keeps = false;                 /* δ is written, and sums are kept */
  int batch = 0;
  void *begun = NULL; /* as of layer_arrays */
};

/* A team's shared memory: a ring of ROUNDS rounds with a record for each step; δ of two rounds; x; the helper's Σ |δ_t|; its
 * task; and for each round the steps in front of which the sample begins anew. The fields of a record are d_k, of a pair one more;
 * what unit::carry takes; u and, of a pair, that of c; d_x if it differs from the last d_k. Four of them (two in float64) are a
 * quad; a row has the same quad of all units. Behind the rows of quads is a row of h, of step t where unit::EARLIER, otherwise of
 * step t - 1. The δ of a step are a row for each matrix and, if d_x differs, one of g. Every row has room behind it for what lanes
 * without a unit write, so that they need no branch. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND> struct back_team {
  enum {
    K = cell<real>::MATRICES,
    PAIR = cell<real>::PAIR,
    SPLIT = cell<real>::SPLIT,
    SUM = KIND != WALK_FREE,
    Q = quad<real>::SIZE,
    STEPS = 32 / (int)sizeof(real), /* of a round */
    ROUNDS = 4,
    CARRY = K + PAIR,
    U = CARRY + cell<real>::DIAGONAL,
    U_C = U + 1,
    BY_X = U_C + PAIR,
    QUADS = (BY_X + SPLIT + Q - 1) / Q,
    PLACES = HP + 1, /* of a row of quads */
    BEFORE = QUADS * PLACES * Q,
    ROW = HP + Q,
    RECORD = BEFORE + SUM * ROW,
    DELTAS = (K + SPLIT) * ROW,
    RING_REALS = ROUNDS * STEPS * RECORD,
    DELTA_REALS = 2 * STEPS * DELTAS,
    X_REALS = ROUNDS * STEPS,
    TASK_REALS = (int)(sizeof(back_task) / sizeof(real)),
    RESET_REALS = ROUNDS * (int)(sizeof(unsigned)) / (int)sizeof(real),
    REALS = RING_REALS + DELTA_REALS + X_REALS + WARP_LANES + TASK_REALS + RESET_REALS
  };
};

/* Numbers in a block's part of the weight gradients (chunk_arrays). */
template <typename real> BPPSA_HOST_DEVICE inline int64_t back_part(int matrices, const layer_arrays<real> &c) {
  return matrices * c.hidden * (c.hidden + (c.input == 1 ? 3 : 2));
}

/* Where the parts of a team's shared memory are. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND> struct back_places {
  typedef back_team<real, cell, HP, KIND> team;
  int number; /* of the team's barrier */
  real *ring, *deltas, *x, *sizes, *sums;
  back_task *task;
  unsigned *resets; /* of each round, bit i: the sample begins anew in front of its step i; nothing where there are no resets */

  /* own: the team among the `teams` of the block; part: a team's sums, behind which are their rests. */
  __device__ __forceinline__ back_places(int own, int teams, int part) {
    BPPSA_SHARED(real, shared);
    number = 1 + own;
    ring = launch_held(shared + own * team::REALS);
    deltas = launch_held(ring + team::RING_REALS);
    x = launch_held(deltas + team::DELTA_REALS);
    sizes = launch_held(x + team::X_REALS);
    task = (back_task *)launch_held(sizes + WARP_LANES);
    resets = (unsigned *)(task + 1);
    sums = launch_held(shared + teams * team::REALS + own * 2 * part);
  }
  __device__ __forceinline__ void meet() const {
    launch_meet(number, BACK_TEAM);
  }
  __device__ __forceinline__ real *record(int round, int i) const {
    return ring + ((unsigned)round % team::ROUNDS * team::STEPS + (unsigned)i) * team::RECORD;
  }
  __device__ __forceinline__ real *delta(int round, int i) const {
    return deltas + ((unsigned)round % 2 * team::STEPS + (unsigned)i) * team::DELTAS;
  }
  /* A field of a record. unit: a lane below HP. */
  __device__ static __forceinline__ real field(const real *record, int field, int unit) {
    return record[(field / team::Q * team::PLACES + unit) * team::Q + field % team::Q];
  }
};

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

/* What a helper keeps. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND> struct back_helper {
  typedef back_team<real, cell, HP, KIND> team;
  cell<real> read[team::STEPS];             /* of the steps of a round */
  real u[team::STEPS], u_c[team::STEPS], x; /* x: of step lane % STEPS */
  const real *x_at;                         /* the next x; NULL: none is read */
  unsigned forgets;                         /* bit i: the h of step i of a round is not what the sample begins with */
  unit_place<real, cell> unit;              /* of the next step to read */
  const real *u_at;
  int64_t g_row; /* reals from one step of u to the next; 0 where zeros are read */
  walk_sums<real, team::K, team::SUM ? HP : 1> sums;
  real size;         /* Σ |δ_t| of the lane's unit */
  real *x_to, *h_to; /* the next delta_x and delta_h of the unit */
  int64_t row;       /* of these, reals from one step to the next */
  int hidden;
  bool stores_x, stores_h, adds;
  int left, skip; /* places in rounds, of which the first `skip` stay empty */
  int batch;
};

/* Begins a walk. Where nothing is injected, zeros are read as u_t: a load without a condition is not waited for. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_help_begin(const layer_arrays<real> &c, const back_arrays<real> &s, const back_task &task,
                                                int64_t b, int j, bool unit, back_helper<real, cell, HP, KIND> *h) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR, STEPS = back_team<real, cell, HP, KIND>::STEPS };
  const int64_t row = (task.at - 1) * c.batch + b, state = c.batch * c.hidden;
  const int top = task.at - (task.counts * STEPS - task.skip);
  const int64_t to = ((int64_t)(top - 1) * c.batch + b) * K * c.hidden + j;
  h->batch = (int)c.batch;
  h->skip = task.skip;
  h->left = task.skip + task.at - task.bottom;
  h->unit = unit_place<real, cell>(c, row * c.hidden + j, j);
  h->unit.h = launch_kept(h->unit.h);
  h->unit.cells = launch_kept(h->unit.cells);
  h->unit.saved = launch_kept(h->unit.saved);
  h->g_row = task.reads_u ? (1 + PAIR) * state : 0;
  h->x_at = KIND != WALK_FREE && c.input == 1 ? launch_kept(c.x + row) : NULL; /* of the first step */
  h->forgets = 0;
  h->u_at = launch_kept(task.reads_u ? (const real *)c.g + row * (1 + PAIR) * c.hidden + j : s.zeros + j);
  h->adds = task.adds;
  h->hidden = (int)c.hidden;
  h->row = K * state;
  h->stores_x = task.keeps && unit && c.delta_x != NULL; /* lanes beyond H repeat lane 0 */
  h->stores_h = task.keeps && unit && c.delta_h != NULL;
  h->x_to = launch_kept(c.delta_x + (h->stores_x ? to : 0));
  h->h_to = launch_kept(c.delta_h + (h->stores_h ? to : 0));
  h->size = 0;
  h->sums = {};
}

/* Begins to read what a round needs. WHOLE: all its places and the next one have steps; otherwise places without one read what
 * exists, in vain. */
template <bool WHOLE, typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_help_read(int lane, int round, back_helper<real, cell, HP, KIND> *h) {
  enum { STEPS = back_team<real, cell, HP, KIND>::STEPS };
  const int first = round * STEPS, slot = first + lane % STEPS;
  BPPSA_UNROLL
  for (int i = 0; i < STEPS; ++i) {
    h->read[i] = cell<real>::load(h->unit);
    h->u[i] = *h->u_at;
    if constexpr (cell<real>::PAIR) {
      h->u_c[i] = h->u_at[h->hidden];
    }
    if (WHOLE || (first + i >= h->skip && first + i + 1 < h->left + cell<real>::EARLIER)) {
      h->unit.back();
    }
    if (WHOLE || (first + i >= h->skip && first + i + 1 < h->left)) {
      h->u_at -= h->g_row;
    }
  }
  if (KIND != WALK_FREE && h->x_at != NULL) {
    const int place = WHOLE ? slot : slot < h->skip ? h->skip : slot < h->left ? slot : h->left - 1;
    h->x = h->x_at[(int64_t)(h->skip - place) * h->batch];
  }
}

/* Notes in front of which steps of a round, of which everything has been read, the sample begins anew, and puts the state from
 * which it does there. No register holds anything for this between rounds, since helpers have none to spare. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_help_reset(const layer_arrays<real> &c, const back_places<real, cell, HP, KIND> &at,
                                                int lane, int round, back_helper<real, cell, HP, KIND> *h) {
  enum { STEPS = back_team<real, cell, HP, KIND>::STEPS, EARLIER = cell<real>::EARLIER };
  const int end = at.task->at + at.task->skip - round * STEPS; /* the state behind the round's first place */
  const unsigned resets = end > 0 ? c.resets.back(at.task->sample, end) & ((1u << STEPS) - 1) : 0;
  if (lane == 0) {
    at.resets[(unsigned)round % back_team<real, cell, HP, KIND>::ROUNDS] = resets;
  }
  h->forgets =
      EARLIER ? resets << 1 | h->forgets >> STEPS : resets; /* the h in front of a step is read with it, or with the next */
  BPPSA_UNROLL
  for (int i = 0; i < STEPS; ++i) {
    if ((resets >> i & 1) != 0) {
      begin_unit<real, cell>(c, lane < c.hidden ? lane : 0, &h->read[i]);
    }
  }
}

/* Writes the records of a round of which everything has been read. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_help_make(const layer_arrays<real> &c, const back_places<real, cell, HP, KIND> &at,
                                               bool relu, int lane, int round, const back_helper<real, cell, HP, KIND> &h) {
  typedef back_team<real, cell, HP, KIND> team;
  const int place = lane < HP ? lane : HP;
  BPPSA_UNROLL
  for (int i = 0; i < team::STEPS; ++i) {
    quad<real> made[team::QUADS] = {};
    real d[team::K + team::PAIR], e, d_x;
    const auto set = [&](int field, real value) { made[field / team::Q].v[field % team::Q] = value; };
    h.read[i].factors(relu, d, &e, &d_x);
    BPPSA_UNROLL
    for (int k = 0; k < team::K + team::PAIR; ++k) {
      set(k, d[k]);
    }
    if constexpr (cell<real>::DIAGONAL) {
      set(team::CARRY, h.read[i].carries());
    }
    set(team::U, h.u[i]);
    if constexpr (team::PAIR) {
      set(team::U_C, h.u_c[i]);
    }
    if constexpr (team::SPLIT) {
      set(team::BY_X, d_x);
    }
    BPPSA_UNROLL
    for (int q = 0; q < team::QUADS; ++q) {
      ((quad<real> *)at.record(round, i))[q * team::PLACES + place] = made[q];
    }
    if (team::SUM) {
      at.record(round, i)[team::BEFORE + place] = h.read[i].h;
    }
  }
  if (team::SUM && cell<real>::EARLIER && h.forgets != 0) {
    BPPSA_UNROLL_BY(1)
    for (int i = 0; i < team::STEPS; ++i) {
      if ((h.forgets >> i & 1) != 0) {
        at.record(round, i)[team::BEFORE + place] = begin_number(c, lane < c.hidden ? lane : 0);
      }
    }
  }
  if (team::SUM && lane < team::STEPS) {
    at.x[round % team::ROUNDS * team::STEPS + lane] = h.x;
  }
}

/* What a helper takes of a step from shared memory: δ of the lane's unit, and what its sums need besides. */
template <typename real, int K> struct back_taken { real to_h[K], to_x, x; };

/* Writes δ of a round's first `steps` steps, or adds it to what is there. FOR_X: those of x. row: reals from one step to the
 * next. */
template <bool ADDS, bool FOR_X, int STEPS, typename real, int K>
__device__ __forceinline__ void back_put_deltas(int steps, const back_taken<real, K> (&taken)[STEPS], int hidden, int64_t row,
                                                real *to) {
  BPPSA_UNROLL
  for (int i = 0; i < STEPS; ++i) {
    BPPSA_UNROLL
    for (int k = 0; i < steps && k < K; ++k) {
      const real value = FOR_X && k + 1 == K ? taken[i].to_x : taken[i].to_h[k];
      if (ADDS) {
        back_put_delta(true, true, value, to + k * hidden);
      } else {
        to[k * hidden] = value;
      }
    }
    to -= row;
  }
}
template <bool FOR_X, int STEPS, typename real, int K>
__device__ __forceinline__ void back_put_deltas(bool adds, int steps, const back_taken<real, K> (&taken)[STEPS], int hidden,
                                                int64_t row, real *to) {
  if (adds) {
    back_put_deltas<true, FOR_X>(steps, taken, hidden, row, to);
  } else {
    back_put_deltas<false, FOR_X>(steps, taken, hidden, row, to);
  }
}

/* Takes the δ of a round: writes it, and adds to the sums. WHOLE: it has all its steps, otherwise some of the first ones. */
template <bool WHOLE, typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_help_sum(const back_places<real, cell, HP, KIND> &at, int lane, int round,
                                              back_helper<real, cell, HP, KIND> *h) {
  typedef back_team<real, cell, HP, KIND> team;
  enum { K = team::K, STEPS = team::STEPS, SUMS_HP = team::SUM ? HP : 1 };
  const int unit = lane < HP ? lane : 0, left = h->left - round * STEPS, steps = WHOLE || left > STEPS ? (int)STEPS : left;
  const real *deltas = at.delta(round, 0), *records = at.record(round, 0), *behind = at.record(round + 1, 0);
  back_taken<real, K> taken[STEPS];
  BPPSA_UNROLL
  for (int i = 0; i < STEPS; ++i) { /* all reads are in flight before the first is used */
    const real *delta = deltas + i * team::DELTAS, *record = records + i * team::RECORD;
    BPPSA_UNROLL
    for (int k = 0; k < K; ++k) {
      taken[i].to_h[k] = delta[k * team::ROW + unit];
    }
    taken[i].x = team::SUM ? at.x[(unsigned)round % team::ROUNDS * STEPS + (unsigned)i] : 0;
    taken[i].to_x = team::SPLIT ? at.field(record, team::SPLIT ? team::BY_X : 0, unit) * delta[team::SPLIT * K * team::ROW + unit]
                                : taken[i].to_h[K - 1];
  }
  if (h->stores_x) {
    back_put_deltas<true>(h->adds, steps, taken, h->hidden, h->row, h->x_to);
  }
  if (!team::SUM && team::SPLIT && h->stores_h) {
    back_put_deltas<false>(h->adds, steps, taken, h->hidden, h->row, h->h_to);
  }
  h->x_to -= STEPS * h->row;
  h->h_to -= !team::SUM && team::SPLIT ? STEPS * h->row : 0;
  BPPSA_UNROLL
  for (int i = 0; i < STEPS; ++i) {
    BPPSA_UNROLL
    for (int k = 0; k < K; ++k) {
      if (WHOLE || i < steps) {
        const real to_h = taken[i].to_h[k], of_x = k + 1 == K ? taken[i].to_x : to_h;
        h->size += to_h < 0 ? -to_h : to_h;
        h->sums.b_ih[k] += of_x;
        h->sums.w_ih[k] += of_x * taken[i].x;
        h->sums.b_hh += k + 1 == K ? to_h : 0;
      }
    }
    BPPSA_UNROLL
    for (int q = 0; team::SUM && q < HP / team::Q; ++q) {
      const real *earlier = !cell<real>::EARLIER ? records + i * team::RECORD
                            : i + 1 < STEPS      ? records + (i + 1) * team::RECORD
                                                 : behind;
      const quad<real> before = ((const quad<real> *)(earlier + team::BEFORE))[q];
      BPPSA_UNROLL
      for (int at = 0; at < K * team::Q && (WHOLE || i < steps); ++at) {
        const int k = at / team::Q, l = at % team::Q;
        h->sums.w_hh[k][(q * team::Q + l) % SUMS_HP] += taken[i].to_h[k] * before.v[l];
      }
    }
  }
}

/* Adds to one of a team's `part` sums, and its rounding error to the sum's rest (Neumaier): a team may add the small parts of
 * hundreds of walks of differences. */
template <typename real> __device__ __forceinline__ void back_add_sum(int part, real value, real *sum) {
  const real old = *sum, now = old + value, added = now - old;
  *sum = now;
  sum[part] += (old - (now - added)) + (value - added);
}

/* Adds what a walk has counted to the team's sums. A lane has row j of each dW_hh. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_help_flush(const layer_arrays<real> &c, int lane, int part, real *team_sums,
                                                const back_helper<real, cell, HP, KIND> &h) {
  enum { K = cell<real>::MATRICES };
  if constexpr (KIND != WALK_FREE) {
    const int hidden = (int)c.hidden, all = K * hidden;
    if (lane >= hidden) {
      return;
    }
    BPPSA_UNROLL
    for (int k = 0; k < K; ++k) {
      BPPSA_UNROLL
      for (int r = 0; r < HP; ++r) {
        if (r < hidden) {
          back_add_sum(part, h.sums.w_hh[k][r], team_sums + (k * hidden + lane) * hidden + r);
        }
      }
      real *units = team_sums + all * hidden + k * hidden + lane;
      back_add_sum(part, k + 1 == K ? h.sums.b_hh : h.sums.b_ih[k], units);
      back_add_sum(part, h.sums.b_ih[k], units + all);
      if (c.input == 1) {
        back_add_sum(part, h.sums.w_ih[k], units + 2 * all);
      }
    }
  }
}

/* Forgets all sums. */
template <typename real> __device__ __forceinline__ void back_clear_sums(int lane, int part, real *team_sums) {
  for (int at = lane; at < 2 * part; at += WARP_LANES) {
    team_sums[at] = 0;
  }
}

/* Goes with the walker through a walk. A function of its own, so that registers hold what its loop needs and nothing else. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __noinline__ void back_help_walk(const layer_arrays<real> &c, const back_arrays<real> &s, int own, int teams, int part,
                                            int64_t b, int lane) {
  enum { STEPS = back_team<real, cell, HP, KIND>::STEPS };
  const back_places<real, cell, HP, KIND> at(own, teams, part);
  const back_task task = *at.task;
  const volatile int *last = &at.task->last;
  const bool unit = lane < c.hidden, relu = c.relu, resets = c.resets.mask != NULL;
  back_helper<real, cell, HP, KIND> h;
  back_help_begin(c, s, task, b, unit ? lane : 0, unit, &h);
  const auto whole = [&](int round) { return round * STEPS >= h.skip && (round + 1) * STEPS < h.left; };
  BPPSA_UNROLL_BY(1)
  for (int round = 0; round < 2; ++round) {
    back_help_read<false>(lane, round, &h);
    if (resets) {
      back_help_reset(c, at, lane, round, &h);
    }
    back_help_make(c, at, relu, lane, round, h);
  }
  back_help_read<false>(lane, 2, &h);
  at.meet();     /* two rounds are ready */
  int round = 0; /* that the walker walks */
  BPPSA_UNROLL_BY(1)
  for (;; ++round) {
    if (resets) {
      back_help_reset(c, at, lane, round + 2, &h);
    }
    back_help_make(c, at, relu, lane, round + 2, h);
    if (whole(round + 3)) {
      back_help_read<true>(lane, round + 3, &h);
    } else {
      back_help_read<false>(lane, round + 3, &h);
    }
    if (round > task.counts) {
      back_help_sum<true>(at, lane, round - 1, &h);
    }
    at.meet();
    if (*last <= round) {
      break;
    }
  }
  if (*last == round && round >= task.counts) {
    back_help_sum<false>(at, lane, round, &h);
  }
  if (task.keeps) {
    back_help_flush(c, lane, part, at.sums, h);
  }
  at.sizes[lane] = h.size;
  at.meet(); /* all is done */
}

/* Does what the walker asks for, until it ends. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_help(const layer_arrays<real> &c, const back_arrays<real> &s, int own, int teams, int part,
                                          int cluster, int64_t b, int lane) {
  const back_places<real, cell, HP, KIND> at(own, teams, part);
  for (bool ends = false; !ends;) {
    at.meet(); /* there is a task */
    switch (at.task->work) {
    case BACK_WALKS:
      back_help_walk<real, cell, HP, KIND>(c, s, own, teams, part, b, lane);
      break;
    case BACK_MEETS:
      rest_meet(cluster);
      break;
    case BACK_CLEARS:
      back_clear_sums(lane, part, at.sums);
      at.meet();
      break;
    default:
      ends = true;
    }
  }
}

#endif
