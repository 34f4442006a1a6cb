/* Passes of planned products on a GPU: launches. What they are given is laid out by product_gpu.c. */
#include "core/check.cuh"
#include "jacobian/product_kernels.cuh"

namespace {

enum { THREADS = 256, MOST_SAMPLES = 65535 /* of a launch: its second extent */, SHARED_OF_SAMPLES = 56 * 1024 };

dim3 grid(int64_t blocks, int64_t samples) {
  return dim3((unsigned)blocks, (unsigned)samples);
}

int64_t pieces(int64_t count, int64_t piece) {
  return (count + piece - 1) / piece;
}

/* ---- identity, diagonal ---- */

template <typename real>
void scale_rows(const bppsa_product *p, cudaStream_t stream, int64_t samples, product_values<real> a, product_values<real> b,
                real *c) {
  int lanes = 1;
  while (lanes < 32 && lanes * p->pattern.rows < p->pattern.nnz) {
    lanes *= 2;
  }
  BPPSA_LAUNCH(bppsa_product_scale_rows<real>, grid(pieces(p->pattern.rows * lanes, THREADS), samples), THREADS, 0, stream,
               p->pattern.rows, lanes, p->gpu.c_ptr, p->gpu.scales, a, b, p->pattern.nnz, c);
}

/* ---- slots ---- */

template <typename real, typename slot_type, int SAMPLES, bool SHARED>
void launch_rows(const product_class *k, cudaStream_t stream, const product_slots<real, slot_type> &o) {
  BPPSA_LAUNCH((bppsa_product_slots_rows<real, slot_type, SAMPLES, SHARED>), grid(k->rows, pieces(o.samples, SAMPLES)),
               k->threads, (size_t)(SAMPLES * o.room) * sizeof(real), stream, o);
}

/* As many samples together as there are and as keep four blocks on a multiprocessor. */
template <typename real, typename slot_type>
void run_slots(const bppsa_product *p, cudaStream_t stream, int64_t samples, product_values<real> a, product_values<real> b,
               real *c) {
  const product_gpu *g = &p->gpu;
  product_slots<real, slot_type> o = {NULL,    g->a_ptr,       g->c_ptr, g->links, (const slot_type *)g->slots, a, b,
                                      samples, p->pattern.nnz, 0,        c};
  for (int32_t i = 0; i < g->class_count; ++i) {
    const product_class *k = &g->classes[i];
    const int64_t bytes = k->width * (int64_t)sizeof(real);
    o.order = g->order + k->first;
    o.room = bytes <= PRODUCT_WIDEST_SHARED ? k->width : 0;
    if (bytes > PRODUCT_WIDEST_SHARED) {
      launch_rows<real, slot_type, 1, false>(k, stream, o);
    } else if (samples > 2 && 4 * bytes <= SHARED_OF_SAMPLES) {
      launch_rows<real, slot_type, 4, true>(k, stream, o);
    } else if (samples > 1 && 2 * bytes <= SHARED_OF_SAMPLES) {
      launch_rows<real, slot_type, 2, true>(k, stream, o);
    } else {
      launch_rows<real, slot_type, 1, true>(k, stream, o);
    }
  }
}

/* More shared memory than 48 KiB must be asked for. */
template <typename real, typename slot_type> bppsa_status allow_shared() {
  const cudaFuncAttribute size = cudaFuncAttributeMaxDynamicSharedMemorySize;
  cudaError_t error = cudaFuncSetAttribute(bppsa_product_slots_rows<real, slot_type, 1, true>, size, PRODUCT_WIDEST_SHARED);
  error = error == cudaSuccess
              ? cudaFuncSetAttribute(bppsa_product_slots_rows<real, slot_type, 2, true>, size, PRODUCT_WIDEST_SHARED)
              : error;
  error = error == cudaSuccess
              ? cudaFuncSetAttribute(bppsa_product_slots_rows<real, slot_type, 4, true>, size, PRODUCT_WIDEST_SHARED)
              : error;
  return bppsa_cuda_check(error, "product: shared memory");
}

/* ---- dense ---- */

template <typename real, int TILE, int SIDE>
void launch_bands(const bppsa_product *p, cudaStream_t stream, int64_t samples, const product_bands<real> &o) {
  typedef product_tile<real, TILE, SIDE> tile;
  BPPSA_LAUNCH((bppsa_product_bands<real, TILE, SIDE>), grid(p->gpu.tiles, samples), tile::THREADS, 2 * tile::AREA * sizeof(real),
               stream, o);
}

template <typename real>
void run_bands(const bppsa_product *p, cudaStream_t stream, int64_t samples, product_values<real> a, product_values<real> b,
               real *c) {
  const product_bands<real> o = {p->gpu.bands, p->gpu.tile_ptr, p->band_count, p->pattern.nnz, a, b, c};
  if (p->gpu.tiles == 0) {
    return;
  }
  if (p->gpu.tile == 64) {
    launch_bands<real, 64, 4>(p, stream, samples, o);
  } else if (p->gpu.tile == 32) {
    launch_bands<real, 32, 4>(p, stream, samples, o);
  } else {
    launch_bands<real, 16, 2>(p, stream, samples, o);
  }
}

/* ---- convolution-structured ---- */

template <typename real> void pack_left(const bppsa_product *p, cudaStream_t stream, int64_t samples, product_values<real> from) {
  const bppsa_csr_blocks *k = p->a->blocks;
  const bppsa_csr *s = &k->positions;
  const int64_t rows = k->row_channels / k->groups, columns = k->col_channels / k->groups, row_tiles = pieces(rows, PACK_TILE);
  const int64_t blocks = row_tiles * s->rows * k->groups * pieces(bppsa_product_widest(p->a), PACK_TILE);
  BPPSA_LAUNCH(bppsa_product_pack_left<real>, grid(blocks, samples), PACK_THREADS, PACK_TILE * (PACK_TILE + 1) * sizeof(real),
               stream, p->gpu.a_ptr, s->nnz, s->rows, k->groups, rows, columns, (int)row_tiles, from, (real *)p->gpu.left,
               p->gpu.left_reals);
}

template <typename real>
void pack_right(const bppsa_product *p, cudaStream_t stream, int64_t samples, product_values<real> from) {
  const bppsa_csr_blocks *k = p->b->blocks;
  const bppsa_csr *s = &k->positions;
  BPPSA_LAUNCH(bppsa_product_pack_right<real>, grid(k->row_channels * s->rows, samples), THREADS / 2, 0, stream, p->gpu.b_ptr,
               s->nnz, s->rows, k->row_channels, k->col_channels / k->groups, from, (real *)p->gpu.right, p->gpu.right_reals);
}

template <typename real, int TILE, int SIDE>
void launch_meetings(const product_gpu *g, cudaStream_t stream, int64_t samples, const product_conv<real> &o) {
  typedef product_tile<real, TILE, SIDE> tile;
  BPPSA_LAUNCH((bppsa_product_meetings<real, TILE, SIDE>), grid(o.place_count * g->tiles, samples), tile::THREADS,
               2 * tile::AREA * sizeof(real), stream, o);
}

template <typename real> product_conv<real> make_conv(const bppsa_product *p, bool a_shared, bool b_shared, real *c) {
  const bppsa_csr_blocks *ka = p->a->blocks, *kb = p->b->blocks, *kc = p->pattern.blocks;
  product_conv<real> o = {};
  o.left = (const real *)p->gpu.left;
  o.right = (const real *)p->gpu.right;
  o.left_stride = a_shared ? 0 : p->gpu.left_reals;
  o.right_stride = b_shared ? 0 : p->gpu.right_reals;
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
  o.c = c;
  return o;
}

/* As many samples at once as are packed together. Shared values are packed once. */
template <typename real>
void run_conv(const bppsa_product *p, cudaStream_t stream, int64_t samples, product_values<real> a, product_values<real> b,
              real *c) {
  const product_gpu *g = &p->gpu;
  if (p->pattern.nnz == 0) {
    return;
  }
  for (int64_t from = 0; from < samples; from += g->samples) {
    const int64_t count = samples - from < g->samples ? samples - from : g->samples;
    const product_values<real> left = {a.data + from * a.stride, a.stride}, right = {b.data + from * b.stride, b.stride};
    if (from == 0 || a.stride != 0) {
      pack_left(p, stream, a.stride != 0 ? count : 1, left);
    }
    if (from == 0 || b.stride != 0) {
      pack_right(p, stream, b.stride != 0 ? count : 1, right);
    }
    const product_conv<real> o = make_conv<real>(p, a.stride == 0, b.stride == 0, c + from * p->pattern.nnz);
    if (g->tile == 64) {
      launch_meetings<real, 64, 4>(g, stream, count, o);
    } else if (g->tile == 32) {
      launch_meetings<real, 32, 4>(g, stream, count, o);
    } else {
      launch_meetings<real, 16, 2>(g, stream, count, o);
    }
  }
}

/* ---- a pass ---- */

template <typename real>
void run_some(const bppsa_product *p, cudaStream_t stream, int64_t samples, product_values<real> a, product_values<real> b,
              real *c) {
  const int64_t nnz = p->pattern.nnz, blocks = pieces(nnz, THREADS);
  if (nnz == 0) {
    return;
  }
  if (p->info.kind == BPPSA_PRODUCT_IDENTITY) {
    BPPSA_LAUNCH(bppsa_product_copy<real>, grid(blocks, samples), THREADS, 0, stream, nnz, p->a->identity ? b : a, c);
  } else if (p->info.kind == BPPSA_PRODUCT_DIAGONAL && p->right) {
    BPPSA_LAUNCH(bppsa_product_scale_columns<real>, grid(blocks, samples), THREADS, 0, stream, nnz, p->gpu.columns, a, b, c);
  } else if (p->info.kind == BPPSA_PRODUCT_DIAGONAL) {
    scale_rows(p, stream, samples, a, b, c);
  } else if (p->info.kind == BPPSA_PRODUCT_DENSE) {
    run_bands(p, stream, samples, a, b, c);
  } else if (p->info.kind == BPPSA_PRODUCT_CONV) {
    run_conv(p, stream, samples, a, b, c);
  } else if (p->widest <= UINT16_MAX + 1) {
    run_slots<real, uint16_t>(p, stream, samples, a, b, c);
  } else {
    run_slots<real, int32_t>(p, stream, samples, a, b, c);
  }
}

template <typename real>
bppsa_status run(const bppsa_product *p, cudaStream_t stream, int64_t samples, bppsa_csr_values a, bppsa_csr_values b, void *c) {
  for (int64_t from = 0; from < samples; from += MOST_SAMPLES) {
    const product_values<real> left = {(const real *)a.data + from * a.stride, a.stride},
                               right = {(const real *)b.data + from * b.stride, b.stride};
    const int64_t count = samples - from < MOST_SAMPLES ? samples - from : (int64_t)MOST_SAMPLES;
    run_some(p, stream, count, left, right, (real *)c + from * p->pattern.nnz);
  }
  return bppsa_cuda_check(cudaGetLastError(), "product: launch");
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

extern "C" bppsa_status bppsa_product_cuda_run(const bppsa_product *p, void *stream, int64_t samples, bppsa_csr_values a,
                                               bppsa_csr_values b, void *c) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(p->gpu.index), "product"));
  return p->config.dtype == BPPSA_F32 ? run<float>(p, (cudaStream_t)stream, samples, a, b, c)
                                      : run<double>(p, (cudaStream_t)stream, samples, a, b, c);
}
