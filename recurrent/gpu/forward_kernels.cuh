/* Forward passes of a recurrent layer: for H <= 32 a warp for each sample, with W_hh in registers; for any H a block for each
 * sample. */
#ifndef BPPSA_RECURRENT_GPU_FORWARD_KERNELS_CUH
#define BPPSA_RECURRENT_GPU_FORWARD_KERNELS_CUH

#include "core/compute/launch.cuh"
#include "recurrent/gpu/cell_cuda.cuh"
#include "recurrent/gpu/lanes.cuh"

/* Vectors of HP reals that a warp has in shared memory: h of two steps in turn, and the state from which samples begin anew. */
enum { FORWARD_BUFFERS = 3 };

/* What a lane keeps in registers: rows of weights, the state, inputs that are being read, and the addresses of the next ones. */
template <typename real, int K, int HP, int AHEAD, bool ONE> struct forward_lane {
  enum { GIVEN = ONE ? 1 : K, ROOM = ONE ? 1 : AHEAD };
  real w[K][HP], w_x[K], b_x[K], b_h[K], h, c;
  bool is_far;              /* biases of the warp's units have far parts, which are not in b_x and b_h */
  real coming[ROOM][GIVEN]; /* pre of the next AHEAD steps; ONE: x of step lane % AHEAD in the next round */
  const real *input;
  real *h_to, *c_to, *saved_to;        /* c: of a pair */
  int64_t input_row, state, saved_row; /* reals from one step to the next in each array */
};

/* Reads the next step's inputs; if ONE, the inputs of all steps of the next round, each in the lanes of its number. */
template <typename real, int K, int HP, int AHEAD, bool ONE>
__device__ __forceinline__ void forward_read(int64_t hidden, real *to, forward_lane<real, K, HP, AHEAD, ONE> *l) {
  BPPSA_UNROLL
  for (int k = 0; k < l->GIVEN; ++k) {
    to[k] = l->input[k * hidden];
  }
  l->input += l->input_row;
}

/* Computes h_t from h_{t-1} W_hhᵀ and pre_t, or x. in: HP reals of shared memory, for h_{t-1}; from: what is multiplied, `in` or
 * the state from which the sample begins anew. is_far: that of l, or false where it is known to be false. */
template <typename real, template <typename> class cell, int HP, int AHEAD, bool ONE, int K>
__device__ __forceinline__ void forward_step(const layer_arrays<real> &c, int lane, bool is_far, const real x[], real *in,
                                             const real *from, forward_lane<real, K, HP, AHEAD, ONE> *l) {
  enum { Q = quad<real>::SIZE, SAVED = cell<real>::SAVED > 0 ? cell<real>::SAVED : 1 };
  real product[K], pre[K], saved[SAVED] = {};
  quad<real> rows[HP / Q];
  if (lane < c.hidden) {
    in[lane] = l->h;
  }
  __syncwarp();
  BPPSA_UNROLL
  for (int q = 0; q < HP / Q; ++q) { /* all reads are in flight before the first is used */
    rows[q] = ((const quad<real> *)from)[q];
  }
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    real part[4] = {l->b_h[k], 0, 0, 0};
    BPPSA_UNROLL
    for (int r = 0; r < HP; ++r) {
      part[r % 4] += rows[r / Q].v[r % Q] * l->w[k][r];
    }
    product[k] = (part[0] + part[1]) + (part[2] + part[3]);
    pre[k] = ONE ? l->b_x[k] + l->w_x[k] * x[0] : x[k];
  }
  l->h = unit_forward<real, cell>(c, lane < c.hidden ? lane : 0, is_far, pre, product, l->h, &l->c, saved);
  *l->h_to = l->h;
  if constexpr (cell<real>::PAIR) {
    *l->c_to = l->c;
    l->c_to += l->state;
  }
  BPPSA_UNROLL
  for (int v = 0; v < cell<real>::SAVED; ++v) {
    l->saved_to[v * c.hidden] = saved[v];
  }
  l->h_to += l->state;
  l->saved_to += l->saved_row;
}

/* A round reads nothing else. */
struct forward_reads_no_more {
  __device__ __forceinline__ void operator()(bool) const {}
};

/* A number of the lane's unit in the state from which samples begin anew. half: 1 for c of a pair. */
template <typename real> __device__ __forceinline__ real forward_begin(const layer_arrays<real> &c, int lane, int half) {
  return begin_number(c, half * c.hidden + (lane < c.hidden ? lane : 0));
}

/* Computes AHEAD steps, and reads the numbers of the next ones: this round and the next have all their steps, and no bias has a far
 * part. CUT: bit i of `bits` says whether the sample begins anew, from begin_h and begin_c, in front of step i; otherwise it does
 * not. EARLY: the inputs of all steps are shuffled at once in front of them. In a block of several warps the compiler asks before
 * each shuffle whether the lanes agree, and the step waits for that. also(whole): reads what the caller needs behind the round,
 * when the round no longer waits for its own numbers; whole: this round and the next have all their steps.
 *
 * A cell of one matrix reads h_{t-1} from shared memory alone. Where its sample begins anew it reads the state that lies beside it,
 * so that no step waits for a choice between two numbers; `resets` goes along, of `left` steps. */
template <bool CUT, bool EARLY, typename real, template <typename> class cell, int HP, int AHEAD, bool ONE, int K,
          typename reads = forward_reads_no_more>
__device__ __forceinline__ void forward_round(const layer_arrays<real> &c, int lane, real *shared,
                                              forward_lane<real, K, HP, AHEAD, ONE> *l, const reads &also = reads(),
                                              uint32_t bits = 0, real begin_h = 0, real begin_c = 0,
                                              resets_of_rounds<AHEAD> *resets = nullptr, int64_t left = 0) {
  const real given = l->coming[0][0];
  real x_of[AHEAD] = {};
  BPPSA_UNROLL
  for (int i = 0; i < (EARLY && ONE ? AHEAD : 0); ++i) {
    x_of[i] = __shfl_sync(0xffffffffu, given, i);
  }
  if (ONE) {
    forward_read(c.hidden, l->coming[0], l);
    also(true);
  }
  BPPSA_UNROLL
  for (int i = 0; i < AHEAD; ++i) {
    real x[K];
    BPPSA_UNROLL
    for (int k = 0; k < l->GIVEN; ++k) {
      x[k] = !ONE ? l->coming[ONE ? 0 : i][k] : EARLY ? x_of[i] : __shfl_sync(0xffffffffu, given, i);
    }
    if (!ONE) {
      forward_read(c.hidden, l->coming[ONE ? 0 : i], l);
    }
    if (!ONE && i == 0) {
      also(true);
    }
    if (CUT && K == 1 && i == 0) {
      resets->fetch(true, left, lane);
    }
    if (CUT && K == 1 && i + 1 == AHEAD) {
      resets->vote(); /* early enough for the next round */
    }
    real *in = shared + i % 2 * HP;
    const bool anew = CUT && (bits >> i & 1) != 0;
    if (CUT && K > 1) {
      l->h = anew ? begin_h : l->h;
      l->c = anew ? begin_c : l->c;
    }
    forward_step<real, cell, HP, AHEAD, ONE, K>(c, lane, false, x, in, anew && K == 1 ? shared + 2 * HP : in, l);
  }
}

/* The same one step after the other, so that its code is short: for rounds that may have fewer steps, of the `left` that are left,
 * and biases with far parts. */
template <typename real, template <typename> class cell, int HP, int AHEAD, bool ONE, int K,
          typename reads = forward_reads_no_more>
__device__ __forceinline__ void forward_singly(const layer_arrays<real> &c, int lane, int64_t left, real *shared,
                                               forward_lane<real, K, HP, AHEAD, ONE> *l, const reads &also = reads(),
                                               uint32_t anew = 0) {
  const real given = l->coming[0][0];
  using lane_state = forward_lane<real, K, HP, AHEAD, ONE>;
  real behind[lane_state::ROOM][lane_state::GIVEN] = {}; /* of the next round */
  BPPSA_UNROLL
  for (int i = 0; i < l->ROOM; ++i) {
    if (AHEAD + (ONE ? lane % AHEAD : i) < left) {
      forward_read(c.hidden, behind[i], l);
    }
  }
  also(false);
  BPPSA_UNROLL_BY(1)
  for (int i = 0; i < AHEAD && i < left; ++i) {
    real x[K];
    BPPSA_UNROLL
    for (int k = 0; k < l->GIVEN; ++k) {
      x[k] = ONE ? __shfl_sync(0xffffffffu, given, i) : l->coming[0][k];
      BPPSA_UNROLL
      for (int r = 1; r < l->ROOM; ++r) {
        l->coming[r - 1][k] = l->coming[r][k];
      }
    }
    if ((anew >> i & 1) != 0) {
      l->h = forward_begin(c, lane, 0);
      l->c = cell<real>::PAIR ? forward_begin(c, lane, cell<real>::PAIR) : 0;
    }
    real *in = shared + i % 2 * HP;
    forward_step<real, cell, HP, AHEAD, ONE, K>(c, lane, l->is_far, x, in, in, l);
  }
  BPPSA_UNROLL
  for (int i = 0; i < l->ROOM * l->GIVEN; ++i) {
    l->coming[i / l->GIVEN][i % l->GIVEN] = behind[i / l->GIVEN][i % l->GIVEN];
  }
}

/* A lane's weights, and the distances between its steps. */
template <typename real, template <typename> class cell, int HP, int AHEAD, bool ONE, int K>
__device__ __forceinline__ void forward_prepare(const layer_arrays<real> &c, int lane, real *shared,
                                                forward_lane<real, K, HP, AHEAD, ONE> *l) {
  const int64_t hidden = c.hidden, j = lane < hidden ? lane : 0;
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    BPPSA_UNROLL
    for (int r = 0; r < HP; ++r) {
      l->w[k][r] = r < hidden ? c.w_hh[(k * hidden + j) * hidden + r] : 0;
    }
    l->b_h[k] = sum_bias(cell<real>::FAR, c.b_hh[k * hidden + j]);
    l->w_x[k] = ONE ? c.w_ih[k * hidden + j] : 0;
    l->b_x[k] = ONE ? sum_bias(cell<real>::FAR, c.b_ih[k * hidden + j]) : 0;
  }
  l->is_far = cell<real>::FAR && __any_sync(0xffffffffu, unit_is_far(K, c, j)) != 0;
  l->state = c.batch * hidden;
  l->saved_row = l->state * cell<real>::SAVED;
  l->input_row = ONE ? AHEAD * c.batch : l->state * K;
  if (lane >= hidden && lane < HP) {
    shared[lane] = shared[HP + lane] = 0;
  }
  if (K == 1 && lane < HP && c.resets.words != nullptr) {
    shared[2 * HP + lane] = lane < hidden ? begin_number(c, lane) : 0;
  }
}

/* Goes to the step behind h_t of sample b. */
template <typename real, template <typename> class cell, int HP, int AHEAD, bool ONE, int K>
__device__ __forceinline__ void forward_seek(const layer_arrays<real> &c, int lane, int64_t b, int64_t t,
                                             forward_lane<real, K, HP, AHEAD, ONE> *l) {
  const int64_t hidden = c.hidden, j = lane < hidden ? lane : 0, row = t * c.batch + b;
  l->input = ONE ? c.x + row + lane % AHEAD * c.batch : c.pre + row * K * hidden + j;
  l->h_to = c.h + (row + c.batch) * hidden + j;
  l->c_to = cell<real>::PAIR ? c.cells + (row + c.batch) * hidden + j : NULL;
  l->saved_to = cell<real>::SAVED > 0 ? c.saved + row * cell<real>::SAVED * hidden + j : NULL;
}

/* Reads the inputs of the first round, of `left` steps. */
template <typename real, int K, int HP, int AHEAD, bool ONE>
__device__ __forceinline__ void forward_fill(int lane, int64_t left, int64_t hidden, forward_lane<real, K, HP, AHEAD, ONE> *l) {
  BPPSA_UNROLL
  for (int i = 0; i < l->ROOM; ++i) {
    if ((ONE ? lane % AHEAD : i) < left) {
      forward_read(hidden, l->coming[i], l);
    }
  }
}

/* Takes the next AHEAD of `left` steps, or all of them. also: as of forward_round. */
template <typename real, template <typename> class cell, int HP, int AHEAD, bool ONE, int K, typename reads>
__device__ __forceinline__ void forward_next(const layer_arrays<real> &c, int lane, int64_t left, real *shared,
                                             forward_lane<real, K, HP, AHEAD, ONE> *l, const reads &also) {
  if (left >= 2 * AHEAD && !l->is_far) {
    forward_round<false, true, real, cell, HP, AHEAD, ONE, K>(c, lane, shared, l, also);
  } else {
    forward_singly<real, cell, HP, AHEAD, ONE, K>(c, lane, left, shared, l, also);
  }
}

/* Takes the lane from where it is, in front of step `end` - `left` of sample b, to step `end`. */
template <typename real, template <typename> class cell, int HP, int AHEAD, bool ONE, int K>
__device__ __forceinline__ void forward_run(const layer_arrays<real> &c, int lane, int64_t b, int64_t end, int64_t left,
                                            real *shared, forward_lane<real, K, HP, AHEAD, ONE> *l) {
  const int64_t rounds = l->is_far || left < 2 * AHEAD ? 0 : left / AHEAD - 1;
  const bool cuts = c.resets.words != nullptr;
  forward_fill<real>(lane, left, c.hidden, l);
  if (cuts && K > 1) { /* with a vote in each round the compiler finds a slower order for these cells */
    const real begin_h = forward_begin(c, lane, 0), begin_c = cell<real>::PAIR ? forward_begin(c, lane, cell<real>::PAIR) : 0;
    rounds_with_resets<AHEAD>(resets_ahead(c.resets, b, end - left), rounds, [&](uint32_t anew) {
      forward_round<true, false, real, cell, HP, AHEAD, ONE, K>(c, lane, shared, l, forward_reads_no_more(), anew, begin_h,
                                                                begin_c);
    });
  } else if (cuts) {
    resets_of_rounds<AHEAD> resets;
    resets.begin(c.resets, c.batch, lane, (end - left) * c.batch + b, false, left);
    BPPSA_UNROLL_BY(1)
    for (int64_t round = 0; round < rounds; ++round) {
      forward_round<true, false, real, cell, HP, AHEAD, ONE, K>(c, lane, shared, l, forward_reads_no_more(), resets.bits, 0, 0,
                                                                &resets, left - round * AHEAD);
    }
  } else {
    BPPSA_UNROLL_BY(1)
    for (int64_t round = 0; round < rounds; ++round) {
      forward_round<false, false, real, cell, HP, AHEAD, ONE, K>(c, lane, shared, l);
    }
  }
  for (left -= rounds * AHEAD; left > 0; left -= AHEAD) {
    forward_singly<real, cell, HP, AHEAD, ONE, K>(c, lane, left, shared, l, forward_reads_no_more(),
                                                  cuts ? c.resets.from(b, end - left) : 0);
  }
}

/* Takes sample b through all steps. */
template <typename real, template <typename> class cell, int HP, int AHEAD, bool ONE, int K>
__device__ __forceinline__ void forward_sample(const layer_arrays<real> &c, int lane, int64_t b, real *shared,
                                               forward_lane<real, K, HP, AHEAD, ONE> *l) {
  const int64_t first = b * c.hidden + (lane < c.hidden ? lane : 0);
  forward_prepare<real, cell>(c, lane, shared, l);
  forward_seek<real, cell>(c, lane, b, 0, l);
  l->h = c.h[first];
  l->c = cell<real>::PAIR ? c.cells[first] : 0;
  forward_run<real, cell>(c, lane, b, c.steps, c.steps, shared, l);
}

/* h_1 .. h_T with a warp for each sample and a lane for each unit, whose rows of W_hh are in registers; lanes beyond H do the
 * same as lane 0. ONE: an input of size 1, whose products are computed here. shared: FORWARD_BUFFERS · HP reals. */
template <typename real, template <typename> class cell, int HP, bool ONE>
__global__ void __launch_bounds__(WARP_LANES) bppsa_recurrent_forward(layer_arrays<real> c) {
  enum { K = cell<real>::MATRICES, AHEAD = cell<real>::AHEAD };
  BPPSA_SHARED(real, memory);
  forward_lane<real, K, HP, AHEAD, ONE> l = {};
  forward_sample<real, cell>(c, (int)threadIdx.x, blockIdx.x, launch_held(memory), &l);
}

/* Computes h_t of a sample from h_{t-1} for any H, by a block whose threads share the units: from in [H] to out [H]; what is saved
 * goes to saved [SAVED][H]. c of a pair stays in the GPU's memory: a thread reads its numbers from cells_in [H] (NULL: they are 0)
 * and writes them to cells_out [H], which may be the same array. row = t b + sample, t from 0. w [H][G·H]: W_hhᵀ. */
template <typename real, template <typename> class cell>
__device__ __forceinline__ void forward_units(const layer_arrays<real> &c, const real *w, int64_t row, const real *in, real *out,
                                              const real *cells_in, real *cells_out, real *saved_to) {
  enum { K = cell<real>::MATRICES, SAVED = cell<real>::SAVED > 0 ? cell<real>::SAVED : 1 };
  const int64_t hidden = c.hidden;
  for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
    real product[K], pre[K], saved[SAVED];
    BPPSA_UNROLL
    for (int k = 0; k < K; ++k) {
      product[k] = sum_bias(cell<real>::FAR, c.b_hh[k * hidden + j]);
      pre[k] = c.pre[(row * K + k) * hidden + j];
    }
    for (int64_t r = 0; r < hidden; ++r) {
      BPPSA_UNROLL
      for (int k = 0; k < K; ++k) {
        product[k] += in[r] * w[(r * K + k) * hidden + j];
      }
    }
    real of_c = cell<real>::PAIR && cells_in != nullptr ? cells_in[j] : 0;
    const bool is_far = cell<real>::FAR && unit_is_far(K, c, j);
    out[j] = unit_forward<real, cell>(c, j, is_far, pre, product, in[j], &of_c, saved);
    if constexpr (cell<real>::PAIR) {
      cells_out[j] = of_c;
    }
    BPPSA_UNROLL
    for (int v = 0; v < cell<real>::SAVED; ++v) {
      saved_to[v * hidden + j] = saved[v];
    }
  }
}

/* Returns where W_hhᵀ is read from: `copy`, in shared memory, if it fits. A barrier follows. */
template <typename real>
__device__ __forceinline__ const real *held_weights(int64_t count, const real *w_t, bool fits, real *copy) {
  for (int64_t at = threadIdx.x; fits && at < count; at += blockDim.x) {
    copy[at] = w_t[at];
  }
  return fits ? copy : w_t;
}

/* c of the state from which samples begin anew, for forward_units. */
template <typename real> __device__ __forceinline__ const real *begin_cells(const layer_arrays<real> &c) {
  return c.begin != NULL ? c.begin + c.hidden : NULL;
}

/* For any H: a block for each sample, whose threads share the units. w_t [H][G·H]: W_hhᵀ, in shared memory if it fits. shared:
 * 2 · H reals, and those of w_t if it fits. */
template <typename real, template <typename> class cell>
__global__ void bppsa_recurrent_forward_wide(layer_arrays<real> c, const real *w_t, bool fits) {
  enum { K = cell<real>::MATRICES };
  BPPSA_SHARED(real, shared);
  const int64_t b = blockIdx.x, hidden = c.hidden;
  real *in = shared, *out = shared + hidden;
  if (c.pause != NULL && *c.pause == 0) { /* the states have been computed in parallel */
    return;
  }
  const real *w = held_weights(hidden * K * hidden, w_t, fits, shared + 2 * hidden);
  for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
    in[j] = c.h[b * hidden + j];
  }
  __syncthreads();
  for (int64_t t = 0; t < c.steps; ++t) {
    const int64_t row = t * c.batch + b;
    const bool anew = c.resets.at(row);
    for (int64_t j = threadIdx.x; anew && j < hidden; j += blockDim.x) {
      in[j] = begin_number(c, j);
    }
    if (anew) {
      __syncthreads();
    }
    forward_units<real, cell>(c, w, row, in, out, anew ? begin_cells(c) : c.cells + row * hidden,
                              c.cells + (row + c.batch) * hidden, c.saved + row * cell<real>::SAVED * hidden);
    for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
      c.h[(row + c.batch) * hidden + j] = out[j];
    }
    __syncthreads();
    real *swap = in;
    in = out;
    out = swap;
  }
}

#endif
