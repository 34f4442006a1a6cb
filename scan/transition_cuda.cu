/* Transitions on a GPU: sizes of launches, and the launches. */
#include "core/compute/check.cuh"
#include "scan/transition_internal.h"
#include "scan/transition_kernels.cuh"

namespace {

enum { MOST_THREADS = 256, WARP = 32, SHARED_BYTES = 96 * 1024, MOST_BLOCKS = INT32_MAX };

int threads_for(int64_t numbers) {
  const int64_t warps = (numbers + WARP - 1) / WARP * WARP;
  return (int)(warps < MOST_THREADS ? warps : (int64_t)MOST_THREADS);
}

cudaStream_t stream_of(const bppsa_device *device) {
  return (cudaStream_t)bppsa_device_get_stream(device);
}

bppsa_status choose_device(const bppsa_device *device) {
  return bppsa_cuda_check(cudaSetDevice(bppsa_device_get_index(device)), "transition");
}

bppsa_status check_launch() {
  return bppsa_cuda_check(cudaGetLastError(), "transition: launch");
}

/* Can one launch have so many blocks? */
bppsa_status check_blocks(int64_t blocks) {
  return blocks <= MOST_BLOCKS
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "transition on a GPU: %lld blocks in a launch, expected at most %d",
                          (long long)blocks, (int)MOST_BLOCKS);
}

/* Rows in a block of a join whose operands meet in `middle` numbers, and the bytes of its shared memory. */
template <typename real> int join_tile(int64_t middle, int64_t *room, size_t *bytes) {
  *room = (middle + 2) / 2 * 2;
  const int64_t fitting = (SHARED_BYTES - *room * (int64_t)sizeof(int32_t)) / (*room * (int64_t)sizeof(real) + 16);
  const int tile = fitting < TRANSITION_ROWS ? (int)fitting : (int)TRANSITION_ROWS;
  *bytes = (size_t)tile * ((size_t)*room * sizeof(real) + sizeof(real) + sizeof(int32_t)) + (size_t)*room * sizeof(int32_t);
  return tile;
}

template <typename real> transition_samples<real> samples_of(const bppsa_scan_product &p) {
  return {(real *)p.values, p.exponents, (real *)p.norms};
}

template <typename real> bppsa_status allow_shared(const bppsa_transition_sizes &sizes) {
  int64_t room;
  size_t bytes;
  const int64_t longest = sizes.rows > sizes.columns ? sizes.rows : sizes.columns;
  if (!sizes.diagonal && (join_tile<real>(longest, &room, &bytes) < 1 || 2 * room * (int64_t)sizeof(real) > SHARED_BYTES)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                      "transition on a GPU: rows of %lld numbers do not fit into %d bytes of shared memory", (long long)longest,
                      (int)SHARED_BYTES);
  }
  BPPSA_TRY(bppsa_cuda_check(
      cudaFuncSetAttribute(bppsa_transition_join<real>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES),
      "transition: shared memory"));
  return bppsa_cuda_check(
      cudaFuncSetAttribute(bppsa_transition_apply<real>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES),
      "transition: shared memory");
}

template <typename real>
bppsa_status measure(cudaStream_t stream, const bppsa_transition_sizes &s, int64_t samples, const bppsa_scan_product &p) {
  const int64_t rows = samples * (s.rows + s.affine), warps = MOST_THREADS / WARP, blocks = (rows + warps - 1) / warps;
  BPPSA_TRY(check_blocks(blocks));
  BPPSA_LAUNCH(bppsa_transition_measure<real>, (unsigned)blocks, MOST_THREADS, 0, stream, rows, s.columns, (const real *)p.values,
               (real *)p.norms);
  return check_launch();
}

template <typename real> bppsa_status join(cudaStream_t stream, const bppsa_transition_joins &j) {
  const bppsa_transition_sizes &s = j.sizes;
  const transition_joins<real> c = {samples_of<real>(j.first),
                                    samples_of<real>(j.second),
                                    samples_of<real>(j.result),
                                    s.rows,
                                    j.middle,
                                    s.columns,
                                    j.batch,
                                    j.step,
                                    s.affine};
  const int64_t samples = j.items * j.batch;
  if (s.diagonal) {
    const int64_t count = samples * s.columns, blocks = (count + MOST_THREADS - 1) / MOST_THREADS;
    BPPSA_TRY(check_blocks(blocks));
    BPPSA_LAUNCH(bppsa_transition_diagonal_join<real>, (unsigned)blocks, MOST_THREADS, 0, stream, c, count);
    return check_launch();
  }
  int64_t room;
  size_t bytes;
  const int tile = join_tile<real>(j.middle, &room, &bytes);
  const int64_t tiles = (s.rows + s.affine + tile - 1) / tile;
  BPPSA_TRY(check_blocks(samples * tiles));
  BPPSA_LAUNCH(bppsa_transition_join<real>, (unsigned)(samples * tiles), threads_for(s.columns), bytes, stream, c, tiles, tile,
               room);
  return check_launch();
}

template <typename real>
bppsa_status apply(cudaStream_t stream, const bppsa_transition_sizes &s, int64_t batch, const bppsa_scan_product &product,
                   const void *in, void *out, int32_t *useless) {
  const transition_samples<real> p = samples_of<real>(product);
  const int threads = threads_for(s.columns);
  const int64_t room = (s.rows > s.columns ? s.rows : s.columns) + 1;
  BPPSA_TRY(check_blocks(batch));
  if (s.diagonal) {
    BPPSA_LAUNCH(bppsa_transition_diagonal_apply<real>, (unsigned)batch, threads, 0, stream, p, s.columns, s.affine,
                 (const real *)in, (real *)out, useless);
  } else {
    BPPSA_LAUNCH(bppsa_transition_apply<real>, (unsigned)batch, threads, 2 * (size_t)room * sizeof(real), stream, p, s.rows,
                 s.columns, s.affine, (const real *)in, (real *)out, useless, room);
  }
  return check_launch();
}

} // namespace

extern "C" bppsa_status bppsa_transition_cuda_prepare(const bppsa_device *device, const bppsa_transition_sizes *sizes) {
  BPPSA_TRY(choose_device(device));
  return sizes->dtype == BPPSA_F32 ? allow_shared<float>(*sizes) : allow_shared<double>(*sizes);
}

extern "C" bppsa_status bppsa_transition_cuda_measure(const bppsa_device *device, const bppsa_transition_sizes *sizes,
                                                      int64_t samples, const bppsa_scan_product *product) {
  BPPSA_TRY(choose_device(device));
  if (sizes->diagonal) { /* applying a diagonal needs no largest entries */
    return BPPSA_OK;
  }
  return sizes->dtype == BPPSA_F32 ? measure<float>(stream_of(device), *sizes, samples, *product)
                                   : measure<double>(stream_of(device), *sizes, samples, *product);
}

extern "C" bppsa_status bppsa_transition_cuda_mark(const bppsa_device *device, const bppsa_transition_sizes *sizes,
                                                   const uint8_t *cuts, int64_t elements, int64_t batch, int64_t parts,
                                                   const bppsa_scan_product *products) {
  BPPSA_TRY(choose_device(device));
  BPPSA_TRY(check_blocks(parts * batch));
  BPPSA_LAUNCH(bppsa_transition_mark, (unsigned)(parts * batch), threads_for((elements - 1) / parts + 1), 0, stream_of(device),
               cuts, elements, batch, parts, products->exponents, sizes->rows + sizes->affine);
  return check_launch();
}

extern "C" bppsa_status bppsa_transition_cuda_join(const bppsa_device *device, const bppsa_transition_joins *joins) {
  BPPSA_TRY(choose_device(device));
  return joins->sizes.dtype == BPPSA_F32 ? join<float>(stream_of(device), *joins) : join<double>(stream_of(device), *joins);
}

extern "C" bppsa_status bppsa_transition_cuda_apply(const bppsa_device *device, const bppsa_transition_sizes *sizes,
                                                    int64_t batch, const bppsa_scan_product *product, const void *in, void *out,
                                                    int32_t *useless) {
  BPPSA_TRY(choose_device(device));
  return sizes->dtype == BPPSA_F32 ? apply<float>(stream_of(device), *sizes, batch, *product, in, out, useless)
                                   : apply<double>(stream_of(device), *sizes, batch, *product, in, out, useless);
}
