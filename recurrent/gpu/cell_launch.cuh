/* Makes a cell's table of launchers (recurrent/gpu/cell_cuda.cuh) from what a unit of it computes (recurrent/gpu/unit_kernels.cuh):
 *
 *     static const bppsa_cell_cuda table = bppsa_cell_make<unit>();
 */
#ifndef BPPSA_RECURRENT_GPU_CELL_LAUNCH_CUH
#define BPPSA_RECURRENT_GPU_CELL_LAUNCH_CUH

#include <type_traits>

#include "recurrent/gpu/back_launch.cuh"
#include "recurrent/gpu/back_wide_launch.cuh"
#include "recurrent/gpu/chunk_kernels.cuh"
#include "recurrent/gpu/forward_kernels.cuh"
#include "recurrent/gpu/pair_kernels.cuh"
#include "recurrent/gpu/reset_state_kernels.cuh"
#include "recurrent/gpu/speculate_any.cuh"
#include "recurrent/gpu/speculate_kernels.cuh"
#include "recurrent/gpu/tangent_kernels.cuh"
#include "recurrent/gpu/unit_kernels.cuh"
#include "recurrent/gpu/wide_launch.cuh"

namespace {

enum { WIDE_THREADS = 256, UNIT_THREADS = 256 };

/* The number of a product's rows that one thread computes. It uses an entry of W, read once from shared memory, for as many
 * multiply-adds, whose sums are in registers. FEW: where there are so few products that schedulers would stand idle, more threads
 * work on each. */
template <typename real, int HP> struct rows_of {
  enum {
    V = sizeof(real) == 4 ? (HP == 20   ? 5
                             : HP == 32 ? 4
                                        : 8)
                          : (HP > 16 ? 2 : 4),
    FEW = sizeof(real) == 4 ? (HP == 20   ? 3
                               : HP == 16 ? 4
                                          : 2)
                            : (HP > 16 ? 1 : 2)
  };
};

/* The same for a pair, whose products have 2 HP rows; all rows of an item are in one warp. */
template <typename real, int HP> struct pair_rows_of {
  enum {
    V = sizeof(real) == 4 ? (HP == 20   ? 5
                             : HP == 32 ? 2
                                        : 4)
                          : (HP > 8 ? 2 : 1),
    FEW = sizeof(real) == 4 || HP > 16 ? 2 : 1
  };
};

/* Calls f with the padded H as a constant. */
template <typename F> auto padded(int64_t hidden, F f) {
  return hidden <= 8    ? f(std::integral_constant<int, 8>())
         : hidden <= 16 ? f(std::integral_constant<int, 16>())
         : hidden <= 20 ? f(std::integral_constant<int, 20>())
                        : f(std::integral_constant<int, 32>());
}

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/* Warps in a walk's block: one if there are few walks, so that they spread over the multiprocessors. */
int64_t walk_warps(int64_t items) {
  return items <= 128 ? 1 : CHUNK_THREADS / WARP_LANES;
}

bppsa_status launched(const char *what) {
  return bppsa_cuda_check(cudaGetLastError(), what);
}

/* Chooses the blocks for each sample in the rest of a parallel forward pass, and *warps of a block: as many as its chunks give
 * work (the first chunk has none), while all samples run at once, one block of REST_WARPS on a multiprocessor, because its
 * registers may not have room for a second one. */
template <typename real> int rest_cluster(const speculate_arrays<real> &s, int64_t batch, int *warps) {
  const int64_t room = REST_WARPS * (int64_t)s.multiprocessors / batch, fewer = s.chunks < room ? s.chunks : room;
  int cluster = 1;
  while (cluster < s.most_cluster && cluster * (int64_t)REST_WARPS < s.chunks - 1 && 2 * cluster * (int64_t)REST_WARPS <= room) {
    cluster *= 2;
  }
  *warps = fewer >= REST_WARPS ? (int)REST_WARPS : fewer > 1 ? (int)fewer : 1;
  return cluster;
}

/* Finds the largest cluster for which the GPU has room, for the first layer and for the others. */
template <typename real, template <typename> class cell, int HP> bppsa_status rest_fits(int device, int *most_cluster) {
  const size_t shared = REST_WARPS * FORWARD_BUFFERS * HP * sizeof(real);
  for (*most_cluster = REST_CLUSTER; *most_cluster > 1; *most_cluster /= 2) {
    bool one, wider;
    BPPSA_TRY(
        cluster_fits(bppsa_recurrent_rest<real, cell, HP, true>, (unsigned)*most_cluster, REST_THREADS, shared, device, &one));
    BPPSA_TRY(
        cluster_fits(bppsa_recurrent_rest<real, cell, HP, false>, (unsigned)*most_cluster, REST_THREADS, shared, device, &wider));
    if (one && wider) {
      break;
    }
  }
  return BPPSA_OK;
}

/* Launches the phases of a layer's parallel forward pass. Ends and doubts are in place 0 first, and change their place in every
 * round. */
template <typename real, template <typename> class cell, int HP, bool ONE>
bppsa_status launch_speculate(cudaStream_t stream, const layer_arrays<real> &c, const speculate_arrays<real> &s, int64_t rounds,
                              bool first, bool last) {
  const unsigned items = (unsigned)(s.chunks * c.batch);
  const size_t shared = FORWARD_BUFFERS * HP * sizeof(real);
  int warps;
  const int cluster = rest_cluster(s, c.batch, &warps);
  const bool early = s.most_cluster > 1; /* then the GPU and the code are of sm_90 or later */
  BPPSA_LAUNCH((bppsa_recurrent_speculate<real, cell, HP, ONE>), items, WARP_LANES, shared, stream, c, s);
  if (rounds > 0 && early) {
    BPPSA_LAUNCH_EARLY((bppsa_recurrent_mend<real, cell, HP, ONE>), 1u, items, WARP_LANES, shared, stream, c, s);
  } else if (rounds > 0) {
    BPPSA_LAUNCH((bppsa_recurrent_mend<real, cell, HP, ONE>), items, WARP_LANES, shared, stream, c, s);
  }
  if (early) {
    BPPSA_LAUNCH_EARLY((bppsa_recurrent_rest<real, cell, HP, ONE>), (unsigned)cluster, (unsigned)(c.batch * cluster),
                       (unsigned)(warps * WARP_LANES), (size_t)warps * shared, stream, c, s, cluster, (int)rounds, first, last);
  } else {
    BPPSA_LAUNCH((bppsa_recurrent_rest<real, cell, HP, ONE>), (unsigned)c.batch, (unsigned)(warps * WARP_LANES),
                 (size_t)warps * shared, stream, c, s, cluster, (int)rounds, first, last);
  }
  return launched("parallel forward pass: launch");
}

/* Reports what the phases did with the samples, where each phase is a launch. */
template <typename real>
bppsa_status launch_collect(cudaStream_t stream, const layer_arrays<real> &c, const speculate_arrays<real> &s, int64_t rounds,
                            bool first, bool last) {
  unsigned ran = 1u | 1u << (SPECULATE_PHASES - 1); /* speculation and the tail */
  for (int64_t round = 1; round <= rounds; ++round) {
    ran |= round == 1 ? 1u << 1 | 1u << SPECULATE_ANEW : 1u << (SPECULATE_ANEW + round - 1);
  }
  BPPSA_LAUNCH((bppsa_recurrent_collect<real>), (unsigned)divide_up(c.batch * WARP_LANES, CHUNK_THREADS), CHUNK_THREADS, 0,
               stream, c, s, ran, first, last);
  return launched("parallel forward pass: launch");
}

/* any_threads: the threads of a block whose threads share any number of units. any_shared: the bytes of its shared memory, with
 * those of W_hhᵀ where they fit. */
unsigned any_threads(int64_t hidden) {
  const int64_t threads = divide_up(hidden, WARP_LANES) * WARP_LANES;
  return (unsigned)(threads < WIDE_THREADS ? threads : (int64_t)WIDE_THREADS);
}

template <typename real, template <typename> class cell>
size_t any_shared(int64_t hidden, int64_t room, int shared_most, bool *fits) {
  const int64_t own = (2 * hidden + room) * (int64_t)sizeof(real);
  const int64_t all = own + cell<real>::MATRICES * hidden * hidden * (int64_t)sizeof(real);
  *fits = all <= shared_most;
  return (size_t)(*fits ? all : own);
}

/* Launches the phases of a layer of any width, as wide_speculate does. */
template <typename real, template <typename> class cell>
bppsa_status any_speculate(cudaStream_t stream, const layer_arrays<real> &c, const speculate_arrays<real> &s, const real *w_t,
                           int shared_most, int64_t rounds) {
  const unsigned items = (unsigned)(s.chunks * c.batch), threads = any_threads(c.hidden);
  bool fits, alone;
  const size_t held = any_shared<real, cell>(c.hidden, ANY_WARPS, shared_most, &fits),
               own = (size_t)(2 * c.hidden + ANY_WARPS) * sizeof(real),
               sequential_held = any_shared<real, cell>(c.hidden, 0, shared_most, &alone);
  layer_arrays<real> sequential = c;
  int phase = 0;
  sequential.pause = &s.report->pause.left;
  BPPSA_LAUNCH((bppsa_recurrent_any_speculate<real, cell, false>), items, threads, held, stream, c, s, w_t, fits);
  for (int64_t round = 1; round <= rounds; ++round) {
    BPPSA_LAUNCH((bppsa_recurrent_any_mend<real, cell>), items, threads, own, stream, c, s, w_t, ++phase, (int)((round - 1) % 2));
    if (round == 1) {
      BPPSA_LAUNCH((bppsa_recurrent_any_speculate<real, cell, true>), items, threads, held, stream, c, s, w_t, fits);
      ++phase;
    }
  }
  BPPSA_LAUNCH((bppsa_recurrent_any_tail<real, cell>), (unsigned)c.batch, threads, held, stream, c, s, w_t, fits,
               (int)(rounds % 2));
  BPPSA_LAUNCH((bppsa_recurrent_forward_wide<real, cell>), (unsigned)c.batch, threads, sequential_held, stream, sequential, w_t,
               alone);
  return launched("parallel forward pass: launch");
}

/* Launches a kernel of chunks; early where `s` says so. */
#define LAUNCH_CHUNKS(s, kernel, blocks, threads, shared, ...)                                                                   \
  if ((s).early) {                                                                                                               \
    BPPSA_LAUNCH_EARLY(kernel, 1u, blocks, (unsigned)(threads), shared, __VA_ARGS__);                                            \
  } else {                                                                                                                       \
    BPPSA_LAUNCH(kernel, blocks, threads, shared, __VA_ARGS__);                                                                  \
  }

template <typename real, template <typename> class cell, int HP, walk_kind KIND>
bppsa_status launch_walk(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s) {
  enum { K = cell<real>::MATRICES };
  const int64_t items = (s.from_zero ? s.links : s.chunks) * c.batch, warps = walk_warps(items), all = K * c.hidden;
  const int64_t walking = warps * 2 * K * HP, part = KIND != WALK_FREE ? warps * (all * c.hidden + 3 * all) : 0;
  const size_t shared = (size_t)(walking > part ? walking : part) * sizeof(real);
  const unsigned blocks = (unsigned)divide_up(items, warps), threads = (unsigned)(warps * WARP_LANES);
  if (c.resets.words != nullptr) {
    LAUNCH_CHUNKS(s, (bppsa_recurrent_walk<real, cell, HP, KIND, true>), blocks, threads, shared, stream, c, s);
  } else {
    LAUNCH_CHUNKS(s, (bppsa_recurrent_walk<real, cell, HP, KIND, false>), blocks, threads, shared, stream, c, s);
  }
  return launched("backward pass of chunks: launch");
}

template <typename real, template <typename> class cell, int HP>
using rows_for = std::conditional_t<cell<real>::PAIR != 0, pair_rows_of<real, HP>, rows_of<real, HP>>;

template <typename real, template <typename> class cell, int HP, int V>
using transition_of =
    std::conditional_t<cell<real>::PAIR != 0, pair_shape<real, cell, HP, V>, transition_shape<real, cell, HP, V>>;

template <typename real, template <typename> class cell, int HP, int V>
bppsa_status launch_transition(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s) {
  typedef transition_of<real, cell, HP, V> shape;
  const unsigned blocks = (unsigned)divide_up(s.links * c.batch, (int64_t)shape::ITEMS * shape::WARPS);
  if constexpr (cell<real>::PAIR) {
    LAUNCH_CHUNKS(s, (bppsa_recurrent_pair_transition<real, cell, HP, V>), blocks, CHUNK_THREADS, (size_t)shape::SHARED, stream,
                  c, s);
  } else {
    LAUNCH_CHUNKS(s, (bppsa_recurrent_transition<real, cell, HP, V>), blocks, CHUNK_THREADS, (size_t)shape::SHARED, stream, c, s);
  }
  return launched("products of chunks: launch");
}

template <typename real, template <typename> class cell, int HP>
bppsa_status launch_products(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s) {
  typedef rows_for<real, cell, HP> rows;
  typedef transition_of<real, cell, HP, rows::FEW> few;
  const bool is_few = s.links * c.batch <= (int64_t)few::ITEMS * few::WARPS * s.multiprocessors || /* a block on each */
                      (int)transition_of<real, cell, HP, rows::V>::SHARED > s.shared_most;
  if ((int)few::SHARED > s.shared_most) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                      "products of chunks: %d bytes of shared memory a block, expected at most %d on this GPU, "
                      "or BP or another scan",
                      (int)few::SHARED, s.shared_most);
  }
  return is_few ? launch_transition<real, cell, HP, rows::FEW>(stream, c, s)
                : launch_transition<real, cell, HP, rows::V>(stream, c, s);
}

template <typename real, template <typename> class cell, int HP>
bppsa_status launch_carry(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s) {
  if constexpr (cell<real>::PAIR) {
    typedef pair_carry_shape<HP> shape;
    const size_t shared = (shape::STATE + shape::PARTS * shape::STATE + cell<real>::MATRICES * HP) * sizeof(real);
    LAUNCH_CHUNKS(s, (bppsa_recurrent_pair_carry<real, cell, HP>), (unsigned)c.batch, shape::THREADS, shared, stream, c, s);
  } else {
    LAUNCH_CHUNKS(s, (bppsa_recurrent_carry<real, cell, HP>), (unsigned)c.batch, CARRY_THREADS<real>,
                  sizeof(carry_tile<real, HP>), stream, c, s);
  }
  return launched("gradients between chunks: launch");
}

/* Lets a kernel have as much shared memory as the GPU has. */
template <typename F> bppsa_status allow_most(F kernel, int shared_most) {
  return bppsa_cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_most),
                          "forward pass: shared memory");
}

/* Rows that a block has no room for are not launched either. */
template <typename real, template <typename> class cell, int HP, int V> bppsa_status allow_shared(int shared_most) {
  enum { SHARED = transition_of<real, cell, HP, V>::SHARED };
  const auto allow = [=](auto kernel) {
    const bool fits = (int)SHARED <= shared_most;
    return bppsa_cuda_check(fits ? cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SHARED)
                                 : cudaSuccess,
                            "products of chunks: shared memory");
  };
  if constexpr (cell<real>::PAIR) { /* at compile time: no kernel is made for the other states */
    return allow(bppsa_recurrent_pair_transition<real, cell, HP, V>);
  } else {
    return allow(bppsa_recurrent_transition<real, cell, HP, V>);
  }
}

/* Do the layer's own kernels have chunks of this size? (bppsa_scan_fusion_of) */
template <typename real, template <typename> class cell, int HP> struct has_chunks {
  enum { VALUE = !cell<real>::PAIR || sizeof(real) == 4 || HP <= BPPSA_SCAN_FUSED_WIDE_PAIR };
};

} // namespace

template <typename real, template <typename> class cell> struct chunk_launch {
  static bppsa_status prepare(int64_t hidden, int device, int shared_most, bool *wide, int *most_cluster);
  static bppsa_status forward(cudaStream_t stream, const layer_arrays<real> &c);
  static bppsa_status forward_wide(cudaStream_t stream, const layer_arrays<real> &c, const real *w_t, int shared_most);
  static bppsa_status speculate(cudaStream_t stream, const layer_arrays<real> &c, const speculate_arrays<real> &s,
                                const real *w_t, int shared_most, int64_t rounds, bool first, bool last);
  static bppsa_status coefficients(cudaStream_t stream, const layer_arrays<real> &c);
  static bppsa_status deltas(cudaStream_t stream, const layer_arrays<real> &c);
  static bppsa_status products(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s);
  static bppsa_status carry(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s);
  static bppsa_status walk(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s);
  static bppsa_status back_prepare(int64_t hidden, int device, int *most_cluster, int *most_teams);
  static bppsa_status back(cudaStream_t stream, const layer_arrays<real> &c, const back_arrays<real> &s, const back_shape &shape,
                           bool first, bool last);
  static bppsa_status tangent(cudaStream_t stream, const layer_arrays<real> &c, const tangent_steps<real> &s, const real *w_t,
                              int shared_most);
  static bppsa_status curve(cudaStream_t stream, const layer_arrays<real> &c, const tangent_steps<real> &s);
  static bool scans(int64_t hidden, int shared_most);
  static bool sums(int64_t hidden);
  static int64_t padded_hidden(int64_t hidden);
  static int64_t blocks(int64_t chunks, int64_t batch);
  static constexpr cell_launchers<real> table() {
    return {prepare,      forward, forward_wide, speculate, coefficients, deltas, products,      carry, walk,
            back_prepare, back,    tangent,      curve,     scans,        sums,   padded_hidden, blocks};
  }
};

#define METHOD(type, name) template <typename real, template <typename> class cell> type chunk_launch<real, cell>::name

METHOD(bool, sums)(int64_t hidden) {
  return hidden <= CHUNK_HIDDEN && padded(hidden, [](auto hp) { return (bool)fits<real, cell, hp.value>::SUM; });
}

METHOD(bool, scans)(int64_t hidden, int shared_most) {
  return padded(hidden, [=](auto hp) {
    if constexpr (has_chunks<real, cell, hp.value>::VALUE) {
      typedef transition_of<real, cell, hp.value, rows_for<real, cell, hp.value>::FEW> few;
      return (int)few::SHARED <= shared_most;
    }
    return false;
  });
}

METHOD(int64_t, padded_hidden)(int64_t hidden) {
  return padded(hidden, [](auto hp) { return (int64_t)hp.value; });
}

METHOD(int64_t, blocks)(int64_t chunks, int64_t batch) {
  return divide_up(chunks * batch, walk_warps(chunks * batch));
}

METHOD(bppsa_status, prepare)(int64_t hidden, int device, int shared_most, bool *wide, int *most_cluster) {
  *wide = false;
  *most_cluster = 1;
  if (hidden > CHUNK_HIDDEN) {
    BPPSA_TRY((wide_runs<real, cell>(hidden, device, wide)));
    BPPSA_TRY(allow_most(bppsa_recurrent_forward_wide<real, cell>, shared_most));
    BPPSA_TRY(allow_most(bppsa_recurrent_tangent<real, cell>, shared_most));
    BPPSA_TRY(allow_most(bppsa_recurrent_any_speculate<real, cell, false>, shared_most));
    BPPSA_TRY(allow_most(bppsa_recurrent_any_speculate<real, cell, true>, shared_most));
    BPPSA_TRY(allow_most(bppsa_recurrent_any_mend<real, cell>, shared_most));
    return allow_most(bppsa_recurrent_any_tail<real, cell>, shared_most);
  }
  return padded(hidden, [=](auto hp) {
    BPPSA_TRY((rest_fits<real, cell, hp.value>(device, most_cluster)));
    if constexpr (has_chunks<real, cell, hp.value>::VALUE) {
      typedef rows_for<real, cell, hp.value> rows;
      BPPSA_TRY((allow_shared<real, cell, hp.value, rows::FEW>(shared_most)));
      return allow_shared<real, cell, hp.value, rows::V>(shared_most);
    }
    return BPPSA_OK;
  });
}

METHOD(bppsa_status, forward)(cudaStream_t stream, const layer_arrays<real> &c) {
  if (c.hidden > CHUNK_HIDDEN) {
    return wide_launch<real, cell, false>(stream, c);
  }
  return padded(c.hidden, [&](auto hp) {
    const size_t shared = FORWARD_BUFFERS * hp.value * sizeof(real);
    if (c.pre == NULL) {
      BPPSA_LAUNCH((bppsa_recurrent_forward<real, cell, hp.value, true>), (unsigned)c.batch, WARP_LANES, shared, stream, c);
    } else {
      BPPSA_LAUNCH((bppsa_recurrent_forward<real, cell, hp.value, false>), (unsigned)c.batch, WARP_LANES, shared, stream, c);
    }
    return launched("forward pass: launch");
  });
}

METHOD(bppsa_status, speculate)
(cudaStream_t stream, const layer_arrays<real> &c, const speculate_arrays<real> &s, const real *w_t, int shared_most,
 int64_t rounds, bool first, bool last) {
  if (w_t == NULL && c.hidden <= CHUNK_HIDDEN) {
    return padded(c.hidden, [&](auto hp) {
      return c.pre == NULL ? launch_speculate<real, cell, hp.value, true>(stream, c, s, rounds, first, last)
                           : launch_speculate<real, cell, hp.value, false>(stream, c, s, rounds, first, last);
    });
  }
  BPPSA_TRY(w_t != NULL ? (any_speculate<real, cell>(stream, c, s, w_t, shared_most, rounds))
                        : (wide_speculate<real, cell>(stream, c, s, rounds)));
  return launch_collect<real>(stream, c, s, rounds, first, last);
}

METHOD(bppsa_status, forward_wide)(cudaStream_t stream, const layer_arrays<real> &c, const real *w_t, int shared_most) {
  bool fits;
  const size_t shared = any_shared<real, cell>(c.hidden, 0, shared_most, &fits);
  BPPSA_LAUNCH((bppsa_recurrent_forward_wide<real, cell>), (unsigned)c.batch, any_threads(c.hidden), shared, stream, c, w_t,
               fits);
  return launched("forward pass: launch");
}

METHOD(bppsa_status, walk)(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s) {
  if (c.hidden > CHUNK_HIDDEN) {
    return wide_launch<real, cell, true>(stream, c);
  }
  return padded(c.hidden, [&](auto hp) {
    if constexpr (fits<real, cell, hp.value>::SUM) {
      if (s.partials != NULL) {
        return c.injected || c.delta_x != NULL ? launch_walk<real, cell, hp.value, WALK_SUMS>(stream, c, s)
                                               : launch_walk<real, cell, hp.value, WALK_PLAIN>(stream, c, s);
      }
    }
    return launch_walk<real, cell, hp.value, WALK_FREE>(stream, c, s);
  });
}

METHOD(bppsa_status, products)(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s) {
  if (c.injected) {
    chunk_arrays<real> zero = s;
    zero.from_zero = true;
    zero.partials = NULL;
    layer_arrays<real> alone = c;
    alone.begun = NULL;
    BPPSA_TRY(walk(stream, alone, zero));
  }
  return padded(c.hidden, [&](auto hp) {
    if constexpr (has_chunks<real, cell, hp.value>::VALUE) {
      return launch_products<real, cell, hp.value>(stream, c, s);
    }
    return BPPSA_ERR_UNSUPPORTED; /* never: an executor scans them */
  });
}

METHOD(bppsa_status, carry)(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s) {
  return padded(c.hidden, [&](auto hp) {
    if constexpr (has_chunks<real, cell, hp.value>::VALUE) {
      return launch_carry<real, cell, hp.value>(stream, c, s);
    }
    return BPPSA_ERR_UNSUPPORTED; /* never, as the products */
  });
}

METHOD(bppsa_status, back_prepare)(int64_t hidden, int device, int *most_cluster, int *most_teams) {
  if (hidden > CHUNK_HIDDEN) {
    *most_teams = 0;
    return back_wide_fits<real, cell>(hidden, device, most_cluster);
  }
  return padded(hidden, [=](auto hp) { return back_fits<real, cell, hp.value>(hidden, device, most_cluster, most_teams); });
}

METHOD(bppsa_status, back)
(cudaStream_t stream, const layer_arrays<real> &c, const back_arrays<real> &s, const back_shape &shape, bool first, bool last) {
  if (c.hidden > CHUNK_HIDDEN) {
    return launch_back_wide<real, cell>(stream, c, s, shape, first, last);
  }
  return padded(c.hidden, [&](auto hp) { return launch_back<real, cell, hp.value>(stream, c, s, shape, first, last); });
}

METHOD(bppsa_status, coefficients)(cudaStream_t stream, const layer_arrays<real> &c) {
  const int64_t count = c.steps * c.batch * c.hidden;
  BPPSA_LAUNCH((bppsa_recurrent_coefficients<real, cell>), (unsigned)divide_up(count, UNIT_THREADS), UNIT_THREADS, 0, stream, c,
               count);
  return launched("factors of Jacobians: launch");
}

METHOD(bppsa_status, deltas)(cudaStream_t stream, const layer_arrays<real> &c) {
  const int64_t count = c.steps * c.batch * c.hidden;
  BPPSA_LAUNCH((bppsa_recurrent_deltas<real, cell>), (unsigned)divide_up(count, UNIT_THREADS), UNIT_THREADS, 0, stream, c, count);
  if (c.begun != NULL) {
    BPPSA_LAUNCH((bppsa_recurrent_begun<real, cell>), (unsigned)(divide_up(c.steps, 32) * c.batch), any_threads(c.hidden), 0,
                 stream, c);
  }
  return launched("deltas: launch");
}

METHOD(bppsa_status, tangent)
(cudaStream_t stream, const layer_arrays<real> &c, const tangent_steps<real> &s, const real *w_t, int shared_most) {
  bool fits;
  const size_t shared = any_shared<real, cell>(c.hidden, 0, shared_most, &fits);
  BPPSA_LAUNCH((bppsa_recurrent_tangent<real, cell>), (unsigned)c.batch, any_threads(c.hidden), shared, stream, c, s, w_t, fits);
  return launched("tangents: launch");
}

METHOD(bppsa_status, curve)(cudaStream_t stream, const layer_arrays<real> &c, const tangent_steps<real> &s) {
  const int64_t count = c.steps * c.batch * c.hidden;
  BPPSA_LAUNCH((bppsa_recurrent_curve<real, cell>), (unsigned)divide_up(count, UNIT_THREADS), UNIT_THREADS, 0, stream, c, s,
               count);
  return launched("derivatives of deltas: launch");
}

#undef METHOD

template <template <typename> class cell> constexpr bppsa_cell_cuda bppsa_cell_make() {
  typedef cell<float> unit;
  return {{unit::MATRICES, unit::SAVED, unit::DIAGONAL != 0, unit::SPLIT != 0, unit::PAIR != 0, unit::FAR != 0},
          chunk_launch<float, cell>::table(),
          chunk_launch<double, cell>::table()};
}

#endif
