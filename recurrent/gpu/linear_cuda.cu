/* Products of matrices of a recurrent network on a GPU (core/compute/linear_kernels.cuh). This file alone launches these kernels,
 * so that they are compiled once. */
#include "recurrent/gpu/layers.cuh"

enum { PART_ROWS = 128, MOST_PARTS = 512 };

namespace {

template <typename real> bppsa_status product(const recurrent_network *n, product_operands<real> p, int64_t parts) {
  const int64_t rows = divide_up(p.m, PRODUCT_TILE), columns = divide_up(p.n + p.ones, PRODUCT_TILE);
  if (columns * parts > 65535) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "product on a GPU: %lld columns, expected at most %d", (long long)p.n,
                      65535 / (int)parts * PRODUCT_TILE);
  }
  p.k_part = divide_up(p.k, parts);
  BPPSA_LAUNCH(bppsa_linear_product<real>, dim3((unsigned)rows, (unsigned)(columns * parts)), PRODUCT_THREADS,
               2 * PRODUCT_DEPTH * (PRODUCT_TILE + 1) * sizeof(real), n->gpu->stream, p, (int)columns);
  return bppsa_cuda_check(cudaGetLastError(), "product: launch");
}

/* As bppsa_gpu_apply_linear and, with `added`, bppsa_gpu_add_linear. */
template <typename real>
bppsa_status apply_linear(const recurrent_network *n, int64_t rows, int64_t in, int64_t out, const void *x, const void *w,
                          const void *bias, bool near, bool added, void *y) {
  product_operands<real> p = {};
  p.m = rows;
  p.n = out;
  p.k = p.b_column = p.a_row = in;
  p.a = (const real *)x;
  p.b = (const real *)w;
  p.a_column = p.b_row = 1;
  p.bias = (const real *)bias;
  p.near = near;
  p.added = added;
  p.c = (real *)y;
  return product(n, p, 1);
}

template <typename real>
bppsa_status input_gradient(const recurrent_network *n, int64_t rows, int64_t in, int64_t out, const void *dy, const void *w,
                            bool added, void *dx, int64_t dx_row) {
  product_operands<real> p = {};
  p.m = rows;
  p.n = p.b_row = in;
  p.k = p.a_row = out;
  p.a = (const real *)dy;
  p.b = (const real *)w;
  p.a_column = p.b_column = 1;
  p.added = added;
  p.c = (real *)dx;
  p.c_row = dx_row;
  return product(n, p, 1);
}

template <typename real>
bppsa_status sum_up(const recurrent_network *n, int64_t parts, int64_t count, const sum_targets<real> &targets,
                    const real *partials, bool early) {
  const unsigned blocks = (unsigned)divide_up(count, sum_lanes(parts));
  const size_t shared = SUM_THREADS * sizeof(real);
  if (early) {
    BPPSA_LAUNCH_EARLY(bppsa_linear_sum<real>, 1u, blocks, (unsigned)SUM_THREADS, shared, n->gpu->stream, partials, parts, count,
                       targets);
  } else {
    BPPSA_LAUNCH(bppsa_linear_sum<real>, blocks, SUM_THREADS, shared, n->gpu->stream, partials, parts, count, targets);
  }
  return bppsa_cuda_check(cudaGetLastError(), "sums: launch");
}

template <typename real>
bppsa_status weight_gradient(const recurrent_network *n, int64_t rows, int64_t in, int64_t out, const void *dy, const void *x,
                             void *dw, void *db) {
  const int64_t parts = bppsa_gpu_parts(rows, out, in), row = in + 1;
  product_operands<real> p = {};
  p.m = p.a_column = out;
  p.n = p.b_row = in;
  p.k = rows;
  p.a = (const real *)dy;
  p.b = (const real *)x;
  p.a_row = p.b_column = 1;
  p.ones = true;
  p.c = (real *)n->gpu->partials;
  BPPSA_TRY(product(n, p, parts));
  sum_targets<real> to = {};
  to.targets = 2;
  to.target[0] = {0, out * row, row, 0, in, (real *)dw};
  to.target[1] = {0, out * row, row, in, 1, (real *)db};
  return sum_up(n, parts, out * row, to, (const real *)n->gpu->partials, false);
}

} // namespace

/* As many blocks as fill a GPU. */
int64_t bppsa_gpu_parts(int64_t rows, int64_t out, int64_t in) {
  const int64_t tiles = divide_up(out, PRODUCT_TILE) * divide_up(in + 1, PRODUCT_TILE);
  const int64_t parts = divide_up(rows, PART_ROWS), most = tiles < MOST_PARTS ? MOST_PARTS / tiles : 1;
  return parts < most ? parts : most;
}

bppsa_status bppsa_gpu_apply_linear(const recurrent_network *n, int64_t rows, int64_t in, int64_t out, const void *x,
                                    const void *w, const void *bias, bool near, void *y) {
  return OF_TYPE(n, apply_linear, n, rows, in, out, x, w, bias, near, false, y);
}

bppsa_status bppsa_gpu_add_linear(const recurrent_network *n, int64_t rows, int64_t in, int64_t out, const void *x, const void *w,
                                  const void *bias, bool added, void *y) {
  const bool there = x != NULL && w != NULL;
  return there || bias != NULL || !added ? OF_TYPE(n, apply_linear, n, rows, there ? in : 0, out, x, w, bias, false, added, y)
                                         : BPPSA_OK;
}

bppsa_status bppsa_gpu_input_gradient(const recurrent_network *n, int64_t rows, int64_t in, int64_t out, const void *dy,
                                      const void *w, void *dx, int64_t dx_row) {
  return OF_TYPE(n, input_gradient, n, rows, in, out, dy, w, false, dx, dx_row);
}

bppsa_status bppsa_gpu_add_input_gradient(const recurrent_network *n, int64_t rows, int64_t in, int64_t out, const void *dy,
                                          const void *w, void *dx, int64_t dx_row) {
  return OF_TYPE(n, input_gradient, n, rows, in, out, dy, w, true, dx, dx_row);
}

bppsa_status bppsa_gpu_weight_gradient(const recurrent_network *n, int64_t rows, int64_t in, int64_t out, const void *dy,
                                       const void *x, void *dw, void *db) {
  return OF_TYPE(n, weight_gradient, n, rows, in, out, dy, x, dw, db);
}

bppsa_status bppsa_gpu_sum_up(const recurrent_network *n, int64_t parts, int64_t count, const sum_targets<float> &targets,
                              const float *partials, bool early) {
  return sum_up(n, parts, count, targets, partials, early);
}

bppsa_status bppsa_gpu_sum_up(const recurrent_network *n, int64_t parts, int64_t count, const sum_targets<double> &targets,
                              const double *partials, bool early) {
  return sum_up(n, parts, count, targets, partials, early);
}
