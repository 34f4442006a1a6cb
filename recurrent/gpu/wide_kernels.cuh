/* Sequential passes of a wide recurrent layer, 32 < H <= 512, one launch each: the forward pass, and BP.
 *
 * A cluster of thread blocks takes one sample through all steps. W_hh is read once from the GPU's memory and stays in registers;
 * of the largest layers some columns are in shared memory. A block owns H / CLUSTER units. In each step every unit hands its
 * number (BP: K numbers) to all blocks of the cluster; each block waits for all of them, and multiplies its part of W_hh with the
 * vector. The vectors of two steps in turn share two buffers: a block that hands out the next step's numbers has read the last
 * step's, so that nobody waits for a buffer.
 *
 * PARTS neighbouring threads compute UNITS units: each has the numbers of W_hh that belong to its columns of these units, and so
 * reads a number of the vector once for UNITS multiply-adds of each matrix. Their sums are added by shuffles, halving the units
 * that a thread sees until it has one; PARTS / UNITS threads then have the same sum of the same unit, bit for bit, and send it to
 * one block each.
 *
 * All sums run in one fixed order.
 */
#ifndef BPPSA_RECURRENT_GPU_WIDE_KERNELS_CUH
#define BPPSA_RECURRENT_GPU_WIDE_KERNELS_CUH

#include "core/compute/cluster.cuh"
#include "recurrent/gpu/cell_cuda.cuh"
#include "recurrent/gpu/lanes.cuh"
#include "scan/scan_numbers.cuh"

enum { WIDE_AHEAD = 2 }; /* steps from a read to its use, and buffers of vectors */

/* How many blocks share a sample's step, how many units a group of threads has, how many threads it has, and how many of a
 * thread's columns are in shared memory; 0 threads: no kernel. */
struct wide_row {
  int cluster, units, parts, lent;
};

/* By the words of 4 bytes that W_hh has for each pair of units (1: RNN f32, 2: f64, 3: GRU f32, 4: LSTM f32, 6: GRU f64, 8: LSTM
 * f64; others take the row above), and by H padded. A thread has at most 132 words of it in registers. */
enum { WIDE_SIZES = 5, WIDE_WORDS = 6 };
constexpr int wide_sizes[WIDE_SIZES] = BPPSA_SCAN_WALK_SIZES, wide_words[WIDE_WORDS] = {1, 2, 3, 4, 6, 8};
constexpr wide_row wide_forward_rows[WIDE_WORDS]
                                    [WIDE_SIZES] = {{{1, 4, 8, 0}, {1, 4, 8, 0}, {4, 4, 16, 0}, {8, 4, 32, 0}, {8, 4, 32, 0}},
                                                    {{1, 4, 8, 0}, {1, 4, 8, 0}, {4, 4, 16, 0}, {16, 4, 32, 0}, {16, 4, 32, 0}},
                                                    {{1, 2, 8, 0}, {2, 2, 8, 0}, {8, 2, 16, 0}, {16, 2, 32, 0}, {16, 4, 32, 5}},
                                                    {{1, 2, 8, 0}, {2, 2, 8, 0}, {8, 2, 16, 0}, {16, 4, 32, 5}, {16, 4, 32, 9}},
                                                    {{1, 2, 8, 0}, {4, 2, 16, 0}, {16, 2, 32, 0}, {16, 2, 32, 6}, {0, 0, 0, 0}},
                                                    {{1, 2, 8, 0}, {4, 2, 16, 0}, {16, 2, 32, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}},
       wide_back_rows[WIDE_WORDS][WIDE_SIZES] = {{{1, 4, 8, 0}, {1, 4, 8, 0}, {4, 4, 16, 0}, {8, 4, 32, 0}, {8, 4, 32, 0}},
                                                 {{1, 4, 8, 0}, {1, 4, 8, 0}, {4, 4, 16, 0}, {16, 4, 32, 0}, {16, 4, 32, 0}},
                                                 {{1, 4, 16, 0}, {2, 4, 16, 0}, {8, 4, 32, 0}, {16, 2, 32, 0}, {16, 4, 32, 5}},
                                                 {{1, 4, 16, 0}, {2, 4, 32, 0}, {8, 4, 32, 0}, {16, 4, 32, 5}, {16, 4, 32, 9}},
                                                 {{1, 4, 16, 0}, {4, 4, 32, 0}, {16, 2, 32, 0}, {16, 2, 32, 6}, {0, 0, 0, 0}},
                                                 {{1, 2, 8, 0}, {4, 2, 16, 0}, {16, 2, 32, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}};

/* BP that speculates takes the rows of BP but this one: for the LSTM in f32 with H up to 128, whose walk needs more registers than
 * 512 threads of a block can have. */
constexpr wide_row wide_speculated_row = {2, 4, 16, 4};
enum { WIDE_SPECULATED_WORDS = 4, WIDE_SPECULATED_SIZE = 1 };

/* SIZE: the place of HP in wide_sizes. */
template <typename real, int K, int SIZE, bool BACK, bool SPECULATES = false> struct wide_shape {
  static constexpr int words_of(int words) {
    int at = 0;
    while (at < WIDE_WORDS && wide_words[at] < words) {
      ++at;
    }
    return at;
  }
  static constexpr wide_row row_of(int at) {
    return at == WIDE_WORDS ? wide_row{0, 0, 0, 0} : BACK ? wide_back_rows[at][SIZE] : wide_forward_rows[at][SIZE];
  }
  static constexpr int WORDS = K * (int)sizeof(real) / 4;
  static constexpr bool OTHER = SPECULATES && WORDS == WIDE_SPECULATED_WORDS && SIZE == WIDE_SPECULATED_SIZE;
  static constexpr wide_row ROW = OTHER ? wide_speculated_row : row_of(words_of(WORDS));
  static constexpr bool EXISTS = ROW.parts > 0 && (ROW.lent == 0 || ROW.units == quad<real>::SIZE);
  static constexpr int MATRICES = K, HP = wide_sizes[SIZE], CLUSTER = EXISTS ? ROW.cluster : 1, UNITS = EXISTS ? ROW.units : 1,
                       PARTS = EXISTS ? ROW.parts : 1, SAME = PARTS / UNITS, /* threads that have one unit's sum */
      OWN = HP / CLUSTER,                                                    /* units of a block */
      THREADS = OWN / UNITS * PARTS, COLUMNS = HP / PARTS,                   /* of a matrix, for a thread */
      LENT = ROW.lent, HELD = COLUMNS - LENT,                                /* of these, in shared memory and in registers */
      SENDS = (CLUSTER + SAME - 1) / SAME,                                   /* blocks that a thread sends to */
      COUNT = (BACK ? K : 1) * HP,                                           /* numbers of a step */
      GATES = WIDE_AHEAD * COUNT * (int)sizeof(real),                        /* bytes in front of the gates */
      WEIGHTS = GATES + WIDE_AHEAD * (int)sizeof(cluster_gate),              /* bytes in front of the weights */
      SHARED = WEIGHTS + K * LENT * UNITS * THREADS * (int)sizeof(real);
  static_assert(COLUMNS % quad<real>::SIZE == 0 && (LENT == 0 || UNITS == quad<real>::SIZE), "a thread reads whole quads");
};

/* A thread's place, and what it knows of the vector. */
template <typename real, typename shape> struct wide_lane {
  int part, same, at, unit; /* at: its first unit's place in the layer; unit: the one whose sum it will have */
  int64_t b;
  real *in; /* [WIDE_AHEAD][COUNT] in shared memory */
  cluster_gate *gates;
  cluster_far far[shape::SENDS]; /* the shared memory of the blocks that it sends to */

  __device__ __forceinline__ explicit wide_lane(real *shared) {
    const int thread = (int)threadIdx.x, rank = (int)(blockIdx.x % shape::CLUSTER);
    part = thread % shape::PARTS;
    same = part % shape::SAME;
    at = rank * shape::OWN + thread / shape::PARTS * shape::UNITS;
    unit = at + part / shape::SAME;
    b = blockIdx.x / shape::CLUSTER;
    in = launch_held(shared);
    gates = (cluster_gate *)(in + WIDE_AHEAD * shape::COUNT);
    if constexpr (shape::CLUSTER > 1) {
      BPPSA_UNROLL
      for (int s = 0; s < shape::SENDS; ++s) {
        far[s] = cluster_find(in, (unsigned)((same + s * shape::SAME) % shape::CLUSTER));
      }
      if (thread == 0) {
        BPPSA_UNROLL
        for (int i = 0; i < WIDE_AHEAD; ++i) {
          cluster_gate_make(&gates[i]);
          cluster_gate_expect(&gates[i], shape::COUNT * (unsigned)sizeof(real));
        }
      }
      cluster_meet();
    }
  }
  /* Sends number `k` of the thread's unit to all blocks. */
  __device__ __forceinline__ void hand_out(int buffer, int k, real value) const {
    const int place = buffer * shape::COUNT + k * shape::HP + unit;
    if constexpr (shape::CLUSTER > 1) {
      BPPSA_UNROLL
      for (int s = 0; s < shape::SENDS; ++s) {
        if (same + s * shape::SAME < shape::CLUSTER) {
          cluster_send(far[s], (unsigned)place * (unsigned)sizeof(real), value,
                       (unsigned)(shape::GATES + buffer * (int)sizeof(cluster_gate)));
        }
      }
    } else if (same == 0) {
      in[place] = value;
    }
  }
  /* Waits for all numbers of a step. `round`: which use of the buffer it is. */
  __device__ __forceinline__ void await(int buffer, unsigned round) const {
    if constexpr (shape::CLUSTER > 1) {
      cluster_gate_wait(&gates[buffer], round % 2);
      if (threadIdx.x == 0) {
        cluster_gate_expect(&gates[buffer], shape::COUNT * (unsigned)sizeof(real)); /* of the next round */
      }
      __syncwarp(); /* as the barrier does: what a unit's threads have read before is read before one of them writes there */
    } else {
      __syncthreads();
    }
  }
  /* Waits until no other block can send to this one, so that it may end. */
  __device__ __forceinline__ void finish() const {
    if constexpr (shape::CLUSTER > 1) {
      cluster_meet();
    }
  }
};

/* A thread's numbers of W_hh, [K][COLUMNS][UNITS]: those of the first columns, and in shared memory those of the others, a column's
 * units in one quad. The quads of all threads lie side by side, so that they are in different banks. */
template <typename real, int K, typename shape> struct wide_weights {
  real held[K][shape::HELD][shape::UNITS];
  quad<real> *lent;
};

/* sums[k][u] = Σ over the thread's columns of w[k][column][u] times the vector: one for all matrices or, EACH, one for each. */
template <bool EACH, typename real, int K, typename shape>
__device__ __forceinline__ void wide_multiply(const real *in, int part, const wide_weights<real, K, shape> &w,
                                              real (&sums)[K][shape::UNITS]) {
  enum { Q = quad<real>::SIZE, QUADS = shape::COLUMNS / Q, VECTORS = EACH ? K : 1 };
  quad<real> numbers[VECTORS * QUADS];
  BPPSA_UNROLL
  for (int q = 0; q < VECTORS * QUADS; ++q) { /* all reads are in flight before the first is used */
    numbers[q] = ((const quad<real> *)in)[q * shape::PARTS + part];
  }
  BPPSA_UNROLL
  for (int at = 0; at < K * QUADS * Q; ++at) {
    const int k = EACH ? at / Q / QUADS : at / Q % K, q = EACH ? at / Q % QUADS : at / Q / K, l = at % Q;
    const int column = q * Q + l, lent = column - shape::HELD;
    const real number = numbers[EACH ? k * QUADS + q : q].v[l];
    quad<real> units = {};
    if (lent >= 0) {
      units = w.lent[(k * shape::LENT + lent) * shape::THREADS];
    }
    BPPSA_UNROLL
    for (int u = 0; u < shape::UNITS; ++u) {
      sums[k][u] += number * (lent < 0 ? w.held[k][lent < 0 ? column : 0][u] : units.v[u % Q]);
    }
  }
}

/* first ? a : b. With several matrices by their bits, because the compiler makes two branches of it otherwise, each with the
 * shuffle that follows, which lanes then reach one half after the other. */
template <typename shape, typename real> __device__ __forceinline__ real wide_choice(bool first, real a, real b) {
  typedef decltype(scan_bits(a)) bits;
  if (shape::MATRICES == 1) {
    return first ? a : b;
  }
  const bits mask = launch_number(first ? -1 : 0);
  return scan_number((bits)((scan_bits(a) & mask) | (scan_bits(b) & ~mask)));
}

/* The sum of the thread's unit over all threads of its group. */
template <typename real, typename shape> __device__ __forceinline__ real wide_sum(real (&sums)[shape::UNITS], int part) {
  int other = shape::PARTS / 2;
  BPPSA_UNROLL
  for (int half = shape::UNITS / 2; half > 0; half /= 2, other /= 2) {
    const bool upper = (part & other) != 0;
    BPPSA_UNROLL
    for (int u = 0; u < half; ++u) {
      const real theirs = wide_choice<shape>(upper, sums[u], sums[u + half]),
                 mine = wide_choice<shape>(upper, sums[u + half], sums[u]);
      sums[u] = mine + __shfl_xor_sync(0xffffffffu, theirs, other);
    }
  }
  real sum = sums[0];
  BPPSA_UNROLL
  for (int by = shape::SAME / 2; by > 0; by /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, by);
  }
  return sum;
}

/* The number of W_hh that unit `u` of a thread has in a column. */
template <typename real, bool BACK, typename shape>
__device__ __forceinline__ real wide_weight(const layer_arrays<real> &c, const wide_lane<real, shape> &l, int k, int column,
                                            int u) {
  enum { Q = quad<real>::SIZE };
  const int64_t r = (column / Q * shape::PARTS + l.part) * Q + column % Q, j = l.at + u;
  const int64_t place = BACK ? (k * c.hidden + r) * c.hidden + j : (k * c.hidden + j) * c.hidden + r;
  return r < c.hidden && j < c.hidden ? c.w_hh[place] : 0;
}

/* Reads the thread's numbers of W_hh. Forward: rows of its units; BACK: their columns. */
template <typename real, int K, bool BACK, typename shape>
__device__ __forceinline__ void wide_load(const layer_arrays<real> &c, const wide_lane<real, shape> &l,
                                          wide_weights<real, K, shape> *w) {
  enum { Q = quad<real>::SIZE };
  w->lent = (quad<real> *)((char *)l.in + shape::WEIGHTS) + threadIdx.x;
  for (int k = 0; k < K; ++k) {
    BPPSA_UNROLL_BY(1)
    for (int at = 0; at < shape::LENT; ++at) {
      BPPSA_UNROLL
      for (int u = 0; u < shape::UNITS; ++u) {
        w->lent[(k * shape::LENT + at) * shape::THREADS].v[u % Q] = wide_weight<real, BACK>(c, l, k, shape::HELD + at, u);
      }
    }
  }
  BPPSA_UNROLL
  for (int at = 0; at < K * shape::HELD * shape::UNITS; ++at) {
    const int u = at % shape::UNITS, column = at / shape::UNITS % shape::HELD, k = at / shape::UNITS / shape::HELD;
    w->held[k][column][u] = wide_weight<real, BACK>(c, l, k, column, u);
  }
}

/* What a thread keeps during a forward pass. Addresses are those of the next reads and of this step's results. */
template <typename real, int K, typename shape> struct wide_forward_lane {
  wide_weights<real, K, shape> w;
  real bias[K], h, c;          /* c: of a pair */
  real pre[WIDE_AHEAD][K];     /* of the next steps */
  bool exists, writes, is_far; /* is_far: biases of the block's units have far parts, which are not in `bias` */
  const real *pre_at;
  real *h_to, *c_to, *saved_to;
  int64_t hidden, state;
  int64_t quiet; /* steps whose results are not stored, before all others */
};

/* Stores a step's results, if `writes`, and goes on to the next step's places. */
template <typename real, template <typename> class cell, typename shape, int K, int SAVED>
__device__ __forceinline__ void wide_store(bool writes, const real (&saved)[SAVED], wide_forward_lane<real, K, shape> *s) {
  if (writes) {
    *s->h_to = s->h;
    if constexpr (cell<real>::PAIR) {
      *s->c_to = s->c;
    }
    BPPSA_UNROLL
    for (int v = 0; v < cell<real>::SAVED; ++v) {
      s->saved_to[v * s->hidden] = saved[v];
    }
  }
  s->h_to += s->state;
  s->c_to += cell<real>::PAIR ? s->state : 0;
  s->saved_to += cell<real>::SAVED * s->state;
}

/* Computes WIDE_AHEAD steps, and reads for the next ones. WHOLE: this round and the next have all steps, the sample does not begin
 * anew in this one, and no bias has a far part; otherwise `left` steps are left, and bit i of `anew` says whether the sample begins
 * anew in front of step i. QUIET: the first steps are not stored. */
template <bool WHOLE, bool QUIET, typename real, template <typename> class cell, typename shape, int K>
__device__ __forceinline__ void wide_forward_round(const layer_arrays<real> &c, int64_t left, unsigned round, uint32_t anew,
                                                   const wide_lane<real, shape> &l, wide_forward_lane<real, K, shape> *s) {
  enum { SAVED = cell<real>::SAVED > 0 ? cell<real>::SAVED : 1 };
  BPPSA_UNROLL
  for (int i = 0; i < WIDE_AHEAD; ++i) {
    if (WHOLE || i < left) {
      real sums[K][shape::UNITS] = {}, product[K], pre[K], saved[SAVED];
      if (!WHOLE && (anew >> i & 1) != 0) {
        s->h = begin_number(c, s->exists ? l.unit : 0);
        s->c = cell<real>::PAIR ? begin_number(c, s->hidden + (s->exists ? l.unit : 0)) : 0;
      }
      l.hand_out(i, 0, s->exists ? s->h : 0);
      BPPSA_UNROLL
      for (int k = 0; k < K; ++k) {
        pre[k] = s->pre[i][k];
        if (WHOLE || WIDE_AHEAD + i < left) {
          s->pre[i][k] = s->pre_at[k * s->hidden];
        }
      }
      l.await(i, round);
      wide_multiply<false, real, K, shape>(l.in + i * shape::COUNT, l.part, s->w, sums);
      BPPSA_UNROLL
      for (int k = 0; k < K; ++k) {
        product[k] = wide_sum<real, shape>(sums[k], l.part) + s->bias[k];
      }
      s->h = unit_forward<real, cell>(c, s->exists ? l.unit : 0, !WHOLE && s->is_far, pre, product, s->h, &s->c, saved);
      wide_store<real, cell>(s->writes && (!QUIET || s->quiet <= 0), saved, s);
      if (QUIET) {
        --s->quiet;
      }
      s->pre_at += K * s->state;
    }
  }
}

/* The thread's weights, and its place behind h_t of sample b, whose state is set by the caller. saved, cuts: cell::SAVED, FAR. */
template <typename real, int K, typename shape>
__device__ __forceinline__ void wide_forward_prepare(const layer_arrays<real> &c, const wide_lane<real, shape> &l, int64_t b,
                                                     int64_t t, int saved, bool cuts, wide_forward_lane<real, K, shape> *s) {
  s->exists = l.unit < c.hidden;
  s->writes = s->exists && l.same == 0;
  s->hidden = c.hidden;
  s->state = c.batch * c.hidden;
  const int64_t j = s->exists ? l.unit : 0, row = t * c.batch + b;
  s->pre_at = c.pre + row * K * s->hidden + j;
  s->h_to = c.h + s->state + row * s->hidden + j;
  s->saved_to = saved > 0 ? c.saved + row * saved * s->hidden + j : NULL;
  wide_load<real, K, false>(c, l, &s->w);
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    s->bias[k] = sum_bias(cuts, c.b_hh[k * s->hidden + j]);
  }
  s->is_far = cuts && __syncthreads_or(unit_is_far(K, c, j)) != 0;
}

/* Takes the thread from step `end` - `left` of sample b, the first one in a launch, to step `end`. */
template <bool QUIET, typename real, template <typename> class cell, typename shape, int K>
__device__ __forceinline__ void wide_forward_run(const layer_arrays<real> &c, int64_t b, int64_t end, int64_t left,
                                                 const wide_lane<real, shape> &l, wide_forward_lane<real, K, shape> *s) {
  BPPSA_UNROLL
  for (int i = 0; i < WIDE_AHEAD * K; ++i) {
    s->pre[i / K][i % K] = i / K < left ? s->pre_at[i / K * K * s->state + i % K * s->hidden] : 0;
  }
  s->pre_at += WIDE_AHEAD * K * s->state;
  unsigned round = 0;
  while (left > 0) {
    uint32_t anew = 0;
    int64_t stop = 2 * WIDE_AHEAD - 1;
    if (c.resets.words != nullptr) {
      stop = rounds_stop(left, c.resets.next(b, end - left, end) - (end - left), WIDE_AHEAD);
    }
    stop = s->is_far ? left : stop;
    for (; left > stop; left -= WIDE_AHEAD, ++round) {
      wide_forward_round<true, QUIET, real, cell>(c, left, round, 0, l, s);
    }
    if (c.resets.words != nullptr) {
      anew = c.resets.from(b, end - left);
    }
    wide_forward_round<false, QUIET, real, cell>(c, left, round, anew, l, s);
    left -= WIDE_AHEAD;
    ++round;
  }
}

/* Computes h_1 .. h_T and what is saved, from h_0 and pre. */
template <typename real, template <typename> class cell, typename shape>
__global__ void __launch_bounds__(shape::THREADS) bppsa_recurrent_wide_forward(layer_arrays<real> c) {
  enum { K = cell<real>::MATRICES };
  BPPSA_SHARED(real, shared);
  if (c.pause != NULL && *c.pause == 0) { /* the states have been computed in parallel */
    return;
  }
  const wide_lane<real, shape> l(shared);
  wide_forward_lane<real, K, shape> s;
  wide_forward_prepare(c, l, l.b, 0, cell<real>::SAVED, cell<real>::FAR, &s);
  s.h = c.h[l.b * s.hidden + (s.exists ? l.unit : 0)];
  if constexpr (cell<real>::PAIR) {
    s.c = c.cells[l.b * s.hidden + (s.exists ? l.unit : 0)];
    s.c_to = c.cells + s.state + l.b * s.hidden + (s.exists ? l.unit : 0);
  }
  wide_forward_run<false, real, cell>(c, l.b, c.steps, c.steps, l, &s);
  l.finish();
}

/* What a thread keeps during BP. */
template <typename real, template <typename> class cell, typename shape> struct wide_walk_lane {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  wide_weights<real, K, shape> w;
  real g, u[WIDE_AHEAD], g_c, u_c[WIDE_AHEAD]; /* c: of a pair */
  cell<real> units[WIDE_AHEAD];                /* of the next steps, as u */
  unit_place<real, cell> place;
  bool exists, writes, reads_u, stores_x, stores_h, stores_g, wants_first;
  real *g_to, *x_to, *h_to;     /* g: of step t - 1 */
  int64_t hidden, state, g_row; /* g_row: reals from one step of g to the next */
};

/* Reads what is injected `ahead` steps behind g_to, for step i of a round. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ void wide_walk_read(int i, int ahead, wide_walk_lane<real, cell, shape> *s) {
  s->u[i] = s->reads_u ? *(s->g_to - ahead * s->g_row) : 0;
  s->u_c[i] = cell<real>::PAIR && s->reads_u ? *(s->g_to - ahead * s->g_row + s->hidden) : 0;
}

/* Computes WIDE_AHEAD steps, and reads for the next ones. WHOLE: this round and the next have all steps, and the sample does not
 * begin anew in this one; otherwise `left` steps are left, of which the last is the sequence's first, and bit i of `resets` says
 * whether the sample begins anew in front of step i of the round. */
template <bool WHOLE, typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ void wide_walk_round(const layer_arrays<real> &c, int left, unsigned round, uint32_t resets,
                                                const wide_lane<real, shape> &l, wide_walk_lane<real, cell, shape> *s) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  BPPSA_UNROLL
  for (int i = 0; i < WIDE_AHEAD; ++i) {
    if (WHOLE || i < left) {
      real sums[K][shape::UNITS] = {};
      const bool anew = !WHOLE && (resets >> i & 1) != 0;
      if (anew) {
        begin_unit<real, cell>(c, s->exists ? l.unit : 0, &s->units[i]);
      }
      const unit_back<real, cell> made(s->units[i], c.relu, s->g, s->g_c);
      BPPSA_UNROLL
      for (int k = 0; k < K; ++k) {
        l.hand_out(i, k, s->exists ? made.to_h[k] : 0);
      }
      const real u = s->u[i], own = made.own + (anew ? (real)0 : u);
      if constexpr (PAIR) {
        s->g_c = anew ? s->u_c[i] : made.own_c + s->u_c[i];
      }
      if (WHOLE || WIDE_AHEAD + i < left) {
        s->units[i] = cell<real>::load(s->place);
        wide_walk_read(i, WIDE_AHEAD, s);
        s->place.back();
      }
      BPPSA_UNROLL
      for (int k = 0; k < K; ++k) {
        if (s->stores_x) {
          s->x_to[k * s->hidden] = k + 1 == K ? made.to_x : made.to_h[k];
        }
        if (cell<real>::SPLIT && s->stores_h) {
          s->h_to[k * s->hidden] = made.to_h[k];
        }
      }
      s->x_to -= s->stores_x ? K * s->state : 0;
      s->h_to -= s->stores_h ? K * s->state : 0;
      l.await(i, round);
      wide_multiply<true, real, K, shape>(l.in + i * shape::COUNT, l.part, s->w, sums);
      BPPSA_UNROLL
      for (int at = shape::UNITS; at < K * shape::UNITS; ++at) {
        sums[0][at % shape::UNITS] += sums[at / shape::UNITS][at % shape::UNITS];
      }
      const real through = wide_sum<real, shape>(sums[0], l.part);
      s->g = own + through;
      if (anew) {
        if (s->writes) {
          put_begun<real, cell>(c, (left - 1 - i) * c.batch + l.b, l.unit, s->g, made.own_c);
        }
        s->g = u;
      }
      if (s->writes && (WHOLE || i + 1 < left ? s->stores_g : s->wants_first)) {
        *s->g_to = s->g;
        if constexpr (PAIR) {
          s->g_to[s->hidden] = s->g_c;
        }
      }
      s->g_to -= s->g_row;
    }
  }
}

/* Computes g_{t-1} from g_t, and the deltas, g and g_0 where they are wanted. */
template <typename real, template <typename> class cell, typename shape>
__global__ void __launch_bounds__(shape::THREADS) bppsa_recurrent_wide_walk(layer_arrays<real> c) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  BPPSA_SHARED(real, shared);
  const wide_lane<real, shape> l(shared);
  wide_walk_lane<real, cell, shape> s;
  s.exists = l.unit < c.hidden;
  s.writes = s.exists && l.same == 0;
  s.reads_u = c.injected;
  s.stores_x = c.delta_x != NULL && s.writes;
  s.stores_h = cell<real>::SPLIT && c.delta_h != NULL && s.writes;
  s.stores_g = c.store_g;
  s.wants_first = c.want_input;
  s.hidden = c.hidden;
  s.state = c.batch * c.hidden;
  s.g_row = (1 + PAIR) * s.state;
  const int64_t j = s.exists ? l.unit : 0, row = (c.steps - 1) * c.batch + l.b;
  s.place = unit_place<real, cell>(c, row * s.hidden + j, j);
  s.g_to = c.g + row * (1 + PAIR) * s.hidden + j;
  s.x_to = s.stores_x ? c.delta_x + row * K * s.hidden + j : NULL;
  s.h_to = s.stores_h ? c.delta_h + row * K * s.hidden + j : NULL;
  s.g = c.last[l.b * (1 + PAIR) * s.hidden + j];
  s.g_c = PAIR ? c.last[(2 * l.b + 1) * s.hidden + j] : 0;
  wide_load<real, K, true>(c, l, &s.w);
  BPPSA_UNROLL
  for (int i = 0; i < WIDE_AHEAD; ++i) {
    s.u[i] = s.u_c[i] = 0;
    s.units[i] = {};
    if (i < c.steps) {
      s.units[i] = cell<real>::load(s.place);
      wide_walk_read(i, i, &s);
      s.place.back();
    }
  }
  unsigned round = 0;
  int left = (int)c.steps; /* fewer than 2^31 in a layer of this width (check_sizes in layers_cuda.cu) */
  while (left > 0) {
    uint32_t resets = 0;
    int stop = 2 * WIDE_AHEAD - 1;
    if (c.resets.words != nullptr) {
      stop = (int)rounds_stop(left, left - 1 - c.resets.last(blockIdx.x / shape::CLUSTER, 0, left), WIDE_AHEAD);
    }
    for (; left > stop; left -= WIDE_AHEAD, ++round) {
      wide_walk_round<true>(c, left, round, 0, l, &s);
    }
    if (c.resets.words != nullptr) {
      resets = c.resets.back(blockIdx.x / shape::CLUSTER, left);
    }
    wide_walk_round<false>(c, left, round, resets, l, &s);
    left -= WIDE_AHEAD;
    ++round;
  }
  l.finish();
}

#endif
