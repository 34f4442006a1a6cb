/* Launches of planned products on a GPU. product_gpu.c lays out what they are given.
 *
 * Passes that are queued together do not depend on each other. Those of one kernel whose blocks have the same shape are items of
 * one launch, as many as a launch holds (core/compute/launch_group.cuh). So a level of a scan takes one launch for each kind of
 * product, or a few: `slots` has classes of rows, and `conv` packs first.
 */
#include "core/compute/check.cuh"
#include "jacobian/product_kernels.cuh"

namespace {

/* TOGETHER: the most passes that may share launches. SHARED_OF_SAMPLES: bytes of shared memory that a block of several samples may
 * take. */
enum { THREADS = 256, TOGETHER = 64, SHARED_OF_SAMPLES = 56 * 1024 };

/* What the cost model counts with (product_gpu_cost.c). */
static_assert(launch_most<product_columns<float>>() == PRODUCT_COLUMNS_TOGETHER, "scaled columns that share a launch");
static_assert(launch_most<product_rows<float>>() == PRODUCT_ROWS_TOGETHER, "scaled rows that share a launch");
static_assert(launch_most<product_slots<float, uint16_t>>() == PRODUCT_SLOTS_TOGETHER, "slots that share a launch");
static_assert(launch_most<product_bands<float>>() == PRODUCT_BANDS_TOGETHER, "bands that share a launch");
static_assert(launch_most<product_packing<float>>() == PRODUCT_PACKING_TOGETHER, "packings that share a launch");
static_assert(launch_most<product_conv<float>>() == PRODUCT_CONV_TOGETHER, "convolutions that share a launch");

struct passes {
  const bppsa_product_pass *first;
  int64_t count, batch;
  cudaStream_t stream;
};

/* Blocks of an item: `across` for each of its units; none: the pass has no such item. */
struct extent {
  int64_t across, units;
};
const extent NONE = {0, 0};

int64_t pieces(int64_t count, int64_t piece) {
  return (count + piece - 1) / piece;
}

/* Samples of a pass; one where the samples share the values of both operands. */
int64_t samples_of(const passes &w, const bppsa_product_pass &pass) {
  return pass.a.stride == 0 && pass.b.stride == 0 ? w.batch > 0 : w.batch;
}

template <typename real> product_values<real> values_of(bppsa_csr_values values, int64_t from = 0) {
  return {(const real *)values.data + from * values.stride, values.stride};
}

/* Launches the items that `fill(pass, &item)` makes, in as few launches as hold them. */
template <typename item, typename filler, typename launcher>
void launch_all(const passes &w, const filler &fill, const launcher &launch) {
  launch_group<item> group;
  group.count = 0;
  for (int64_t i = 0; i < w.count; ++i) {
    item o = {};
    const extent e = fill(w.first[i], &o);
    launch_add(&group, o, e.across, e.units, launch);
  }
  launch_flush(&group, launch);
}

/* ---- identity, diagonal ---- */

template <typename real> void copy_values(const passes &w) {
  typedef product_copies<real> item;
  const auto fill = [&](const bppsa_product_pass &pass, item *o) {
    const bppsa_product *p = pass.product;
    *o = {p->pattern.nnz, values_of<real>(p->a->identity ? pass.b : pass.a), (real *)pass.c};
    return p->info.kind == BPPSA_PRODUCT_IDENTITY ? extent{pieces(p->pattern.nnz, THREADS), samples_of(w, pass)} : NONE;
  };
  launch_all<item>(w, fill, [&](const auto &g, auto most) {
    BPPSA_LAUNCH((bppsa_product_copy<real, most()>), launch_blocks(g), THREADS, 0, w.stream, g);
  });
}

template <typename real> void scale_columns(const passes &w) {
  typedef product_columns<real> item;
  const auto fill = [&](const bppsa_product_pass &pass, item *o) {
    const bppsa_product *p = pass.product;
    *o = {p->pattern.nnz, p->gpu.columns, values_of<real>(pass.a), values_of<real>(pass.b), (real *)pass.c};
    return p->info.kind == BPPSA_PRODUCT_DIAGONAL && p->right ? extent{pieces(p->pattern.nnz, THREADS), samples_of(w, pass)}
                                                              : NONE;
  };
  launch_all<item>(w, fill, [&](const auto &g, auto most) {
    BPPSA_LAUNCH((bppsa_product_scale_columns<real, most()>), launch_blocks(g), THREADS, 0, w.stream, g);
  });
}

template <typename real> void scale_rows(const passes &w) {
  typedef product_rows<real> item;
  const auto fill = [&](const bppsa_product_pass &pass, item *o) {
    const bppsa_product *p = pass.product;
    const int64_t rows = p->pattern.rows, nnz = p->pattern.nnz;
    int32_t lanes = 1;
    while (lanes < 32 && lanes * rows < nnz) {
      lanes *= 2;
    }
    *o = {rows, nnz, p->gpu.c_ptr, p->gpu.scales, values_of<real>(pass.a), values_of<real>(pass.b), (real *)pass.c, lanes};
    return p->info.kind == BPPSA_PRODUCT_DIAGONAL && !p->right && nnz > 0
               ? extent{pieces(rows * lanes, THREADS), samples_of(w, pass)}
               : NONE;
  };
  launch_all<item>(w, fill, [&](const auto &g, auto most) {
    BPPSA_LAUNCH((bppsa_product_scale_rows<real, most()>), launch_blocks(g), THREADS, 0, w.stream, g);
  });
}

/* ---- slots ---- */

/* The properties that all rows of a launch share. Blocks of up to FEW threads share a launch, which has as many threads as the
 * largest of them. Rows that need little enough shared memory for a multiprocessor to hold all the blocks it can also share one. */
enum { FEW = 128, NARROW = (7 << 10) / 4 /* bytes */ };
struct slots_shape {
  int32_t number, samples; /* number: of the class; samples: that a block computes together */
  bool many, narrow, wide; /* more than FEW threads; rows of at most NARROW bytes; slots of 4 bytes */
};

/* The shape of a class of rows. A block computes up to four samples together, as long as four blocks fit on a multiprocessor. */
template <typename real> slots_shape shape_of(const bppsa_product *p, const product_class *k, int64_t samples) {
  const int64_t bytes = k->width * (int64_t)sizeof(real);
  slots_shape s = {k->number, 1, k->threads > FEW, bytes <= NARROW, p->widest > UINT16_MAX + 1};
  if (samples > 2 && 4 * bytes <= SHARED_OF_SAMPLES) {
    s.samples = 4;
  } else if (samples > 1 && 2 * bytes <= SHARED_OF_SAMPLES) {
    s.samples = 2;
  }
  return s;
}

bool same(const slots_shape &a, const slots_shape &b) {
  return a.number == b.number && a.samples == b.samples && a.many == b.many && a.narrow == b.narrow && a.wide == b.wide;
}

/* The pass's rows of this shape, or NULL. */
template <typename real> const product_class *find_class(const bppsa_product *p, const slots_shape &s, int64_t samples) {
  for (int32_t i = 0; p->info.kind == BPPSA_PRODUCT_SLOTS && i < p->gpu.class_count; ++i) {
    if (same(shape_of<real>(p, &p->gpu.classes[i], samples), s)) {
      return &p->gpu.classes[i];
    }
  }
  return NULL;
}

template <typename real, typename slot_type, int SAMPLES, bool SHARED>
void launch_rows(const passes &w, const slots_shape &shape) {
  typedef product_slots<real, slot_type> item;
  int32_t threads = 32;
  const auto fill = [&](const bppsa_product_pass &pass, item *o) {
    const bppsa_product *p = pass.product;
    const product_gpu *gpu = &p->gpu;
    const int64_t samples = samples_of(w, pass);
    const product_class *k = find_class<real>(p, shape, samples);
    if (k == NULL) {
      return NONE;
    }
    threads = k->threads > threads ? k->threads : threads;
    *o = {gpu->order + k->first,
          gpu->a_ptr,
          gpu->c_ptr,
          gpu->links,
          (const slot_type *)gpu->slots,
          values_of<real>(pass.a),
          values_of<real>(pass.b),
          samples,
          p->pattern.nnz,
          SHARED ? k->width : 0,
          (real *)pass.c};
    return extent{k->rows, pieces(samples, SAMPLES)};
  };
  launch_all<item>(w, fill, [&](const auto &g, auto most) {
    int64_t room = 0;
    for (int32_t i = 0; i < g.count; ++i) {
      room = g.items[i].room > room ? g.items[i].room : room;
    }
    BPPSA_LAUNCH((bppsa_product_slots_rows<real, slot_type, SAMPLES, SHARED, most()>), launch_blocks(g), (unsigned)threads,
                 (size_t)(SAMPLES * room) * sizeof(real), w.stream, g);
  });
}

template <typename real, typename slot_type> void launch_shape(const passes &w, const slots_shape &shape) {
  if (shape.number == PRODUCT_CLASSES - 1) { /* too wide for shared memory */
    launch_rows<real, slot_type, 1, false>(w, shape);
  } else if (shape.samples == 4) {
    launch_rows<real, slot_type, 4, true>(w, shape);
  } else if (shape.samples == 2) {
    launch_rows<real, slot_type, 2, true>(w, shape);
  } else {
    launch_rows<real, slot_type, 1, true>(w, shape);
  }
}

/* Launches every shape once, when its first pass is met. */
template <typename real> void run_slots(const passes &w) {
  for (int64_t i = 0; i < w.count; ++i) {
    const bppsa_product *p = w.first[i].product;
    for (int32_t k = 0; p->info.kind == BPPSA_PRODUCT_SLOTS && k < p->gpu.class_count; ++k) {
      const slots_shape shape = shape_of<real>(p, &p->gpu.classes[k], samples_of(w, w.first[i]));
      int64_t earlier = 0;
      while (find_class<real>(w.first[earlier].product, shape, samples_of(w, w.first[earlier])) == NULL) {
        ++earlier;
      }
      if (earlier == i) {
        (shape.wide ? launch_shape<real, int32_t> : launch_shape<real, uint16_t>)(w, shape);
      }
    }
  }
}

/* Asks for more shared memory than 48 KiB, also where a launch has one item. */
template <typename real, typename slot_type, int SAMPLES> cudaError_t allow_rows() {
  const cudaFuncAttribute size = cudaFuncAttributeMaxDynamicSharedMemorySize;
  constexpr int most = launch_most<product_slots<real, slot_type>>();
  const cudaError_t error =
      cudaFuncSetAttribute(bppsa_product_slots_rows<real, slot_type, SAMPLES, true, 1>, size, PRODUCT_WIDEST_SHARED);
  return error != cudaSuccess
             ? error
             : cudaFuncSetAttribute(bppsa_product_slots_rows<real, slot_type, SAMPLES, true, most>, size, PRODUCT_WIDEST_SHARED);
}

template <typename real, typename slot_type> bppsa_status allow_shared() {
  cudaError_t error = allow_rows<real, slot_type, 1>();
  error = error == cudaSuccess ? allow_rows<real, slot_type, 2>() : error;
  error = error == cudaSuccess ? allow_rows<real, slot_type, 4>() : error;
  return bppsa_cuda_check(error, "product: shared memory");
}

/* ---- dense ---- */

template <typename real, int TILE, int SIDE> void run_bands(const passes &w) {
  typedef product_tile<real, TILE, SIDE> tile;
  typedef product_bands<real> item;
  const auto fill = [&](const bppsa_product_pass &pass, item *o) {
    const bppsa_product *p = pass.product;
    *o = {p->gpu.bands,  p->gpu.tile_ptr, p->band_count, p->pattern.nnz, values_of<real>(pass.a), values_of<real>(pass.b),
          (real *)pass.c};
    return p->info.kind == BPPSA_PRODUCT_DENSE && p->gpu.tile == TILE ? extent{p->gpu.tiles, samples_of(w, pass)} : NONE;
  };
  launch_all<item>(w, fill, [&](const auto &g, auto most) {
    BPPSA_LAUNCH((bppsa_product_bands<real, TILE, SIDE, most()>), launch_blocks(g), tile::THREADS, 2 * tile::AREA * sizeof(real),
                 w.stream, g);
  });
}

/* ---- channel structure ---- */

/* Finds the samples of a pass in a round: each round packs the next samples of every pass, as many as fit. Returns how many, the
 * first in *from; 0: the pass is of another kind, or done. */
int64_t round_of(const passes &w, int64_t round, const bppsa_product_pass &pass, int64_t *from) {
  const bppsa_product *p = pass.product;
  if (p->info.kind != BPPSA_PRODUCT_CONV || p->pattern.nnz == 0) {
    return 0;
  }
  *from = round * p->gpu.samples;
  const int64_t left = samples_of(w, pass) - *from;
  return left < 0 ? 0 : left < p->gpu.samples ? left : p->gpu.samples;
}

/* The number of units to pack: values that the samples share are packed once. */
int64_t packed_units(bppsa_csr_values values, int64_t from, int64_t count) {
  return values.stride != 0 ? count : from == 0;
}

template <typename real>
product_packing<real> make_packing(const bppsa_csr_blocks *k, const int64_t *s_ptr, product_values<real> from, void *to,
                                   int64_t to_stride) {
  product_packing<real> o = {};
  o.s_ptr = s_ptr;
  o.s_nnz = k->positions.nnz;
  o.s_rows = k->positions.rows;
  o.groups = k->groups;
  o.rows = k->row_channels / k->groups;
  o.columns = k->col_channels / k->groups;
  o.row_tiles = pieces(o.rows, PACK_TILE);
  o.from = from;
  o.to = (real *)to;
  o.to_stride = to_stride;
  return o;
}

template <typename real> void pack_left(const passes &w, int64_t round) {
  typedef product_packing<real> item;
  const auto fill = [&](const bppsa_product_pass &pass, item *o) {
    const bppsa_product *p = pass.product;
    int64_t from;
    const int64_t count = round_of(w, round, pass, &from);
    if (count == 0) {
      return NONE;
    }
    *o = make_packing(p->a->blocks, p->gpu.a_ptr, values_of<real>(pass.a, from), p->gpu.left, p->gpu.left_reals);
    return extent{o->row_tiles * o->s_rows * o->groups * pieces(bppsa_product_widest(p->a), PACK_TILE),
                  packed_units(pass.a, from, count)};
  };
  launch_all<item>(w, fill, [&](const auto &g, auto most) {
    BPPSA_LAUNCH((bppsa_product_pack_left<real, most()>), launch_blocks(g), PACK_THREADS,
                 PACK_TILE * (PACK_TILE + 1) * sizeof(real), w.stream, g);
  });
}

template <typename real> void pack_right(const passes &w, int64_t round) {
  typedef product_packing<real> item;
  const auto fill = [&](const bppsa_product_pass &pass, item *o) {
    const bppsa_product *p = pass.product;
    int64_t from;
    const int64_t count = round_of(w, round, pass, &from);
    if (count == 0) {
      return NONE;
    }
    *o = make_packing(p->b->blocks, p->gpu.b_ptr, values_of<real>(pass.b, from), p->gpu.right, p->gpu.right_reals);
    return extent{o->groups * o->rows * o->s_rows, packed_units(pass.b, from, count)};
  };
  launch_all<item>(w, fill, [&](const auto &g, auto most) {
    BPPSA_LAUNCH((bppsa_product_pack_right<real, most()>), launch_blocks(g), THREADS / 2, 0, w.stream, g);
  });
}

template <typename real> product_conv<real> make_conv(const bppsa_product_pass &pass, int64_t from) {
  const bppsa_product *p = pass.product;
  const bppsa_csr_blocks *ka = p->a->blocks, *kb = p->b->blocks, *kc = p->pattern.blocks;
  product_conv<real> o = {};
  o.left = (const real *)p->gpu.left;
  o.right = (const real *)p->gpu.right;
  o.left_stride = pass.a.stride == 0 ? 0 : p->gpu.left_reals;
  o.right_stride = pass.b.stride == 0 ? 0 : p->gpu.right_reals;
  o.places = p->gpu.places;
  o.meetings = p->gpu.meetings;
  o.place_count = kc->positions.nnz;
  o.parts = ka->groups > kb->groups ? ka->groups : kb->groups;
  o.rows = ka->row_channels / ka->groups;
  o.columns = kb->col_channels / kb->groups;
  o.depth = ka->col_channels / o.parts;
  o.a_groups = ka->groups;
  o.b_groups = kb->groups;
  o.c_groups = kc->groups;
  o.mid = ka->col_channels;
  o.c_columns = kc->col_channels / kc->groups;
  o.s_nnz = kc->positions.nnz;
  o.nnz = p->pattern.nnz;
  o.c = (real *)pass.c + from * p->pattern.nnz;
  return o;
}

template <typename real, int TILE, int SIDE> void run_meetings(const passes &w, int64_t round) {
  typedef product_tile<real, TILE, SIDE> tile;
  typedef product_conv<real> item;
  const auto fill = [&](const bppsa_product_pass &pass, item *o) {
    int64_t from;
    const int64_t count = round_of(w, round, pass, &from);
    if (count == 0 || pass.product->gpu.tile != TILE) {
      return NONE;
    }
    *o = make_conv<real>(pass, from);
    return extent{o->place_count * pass.product->gpu.tiles, count};
  };
  launch_all<item>(w, fill, [&](const auto &g, auto most) {
    BPPSA_LAUNCH((bppsa_product_meetings<real, TILE, SIDE, most()>), launch_blocks(g), tile::THREADS,
                 2 * tile::AREA * sizeof(real), w.stream, g);
  });
}

template <typename real> void run_conv(const passes &w) {
  int64_t rounds = 0, from;
  for (int64_t i = 0; i < w.count; ++i) {
    while (round_of(w, rounds, w.first[i], &from) > 0) {
      ++rounds;
    }
  }
  for (int64_t round = 0; round < rounds; ++round) {
    pack_left<real>(w, round);
    pack_right<real>(w, round);
    run_meetings<real, 64, 4>(w, round);
    run_meetings<real, 32, 4>(w, round);
    run_meetings<real, 16, 2>(w, round);
  }
}

/* ---- passes ---- */

template <typename real> void run(const passes &all) {
  passes w = all;
  for (int64_t from = 0; from < all.count; from += TOGETHER) {
    w.first = all.first + from;
    w.count = all.count - from < TOGETHER ? all.count - from : (int64_t)TOGETHER;
    copy_values<real>(w);
    scale_columns<real>(w);
    scale_rows<real>(w);
    run_slots<real>(w);
    run_bands<real, 64, 4>(w);
    run_bands<real, 32, 4>(w);
    run_bands<real, 16, 2>(w);
    run_conv<real>(w);
  }
}

} // namespace

extern "C" bppsa_status bppsa_product_cuda_prepare(const bppsa_product *p) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(p->gpu.index), "product"));
  if (p->info.kind != BPPSA_PRODUCT_SLOTS) {
    return BPPSA_OK;
  }
  const bool narrow = p->widest <= UINT16_MAX + 1;
  if (p->config.dtype == BPPSA_F32) {
    return narrow ? allow_shared<float, uint16_t>() : allow_shared<float, int32_t>();
  }
  return narrow ? allow_shared<double, uint16_t>() : allow_shared<double, int32_t>();
}

extern "C" bppsa_status bppsa_product_cuda_run(const bppsa_product_pass *first, int64_t count, int64_t batch, void *stream) {
  const passes w = {first, count, batch, (cudaStream_t)stream};
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(first->product->gpu.index), "product"));
  if (first->product->config.dtype == BPPSA_F32) {
    run<float>(w);
  } else {
    run<double>(w);
  }
  return bppsa_cuda_check(cudaGetLastError(), "product: launch");
}
