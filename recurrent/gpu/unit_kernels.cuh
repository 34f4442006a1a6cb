/* Kernels in which every unit of a step is computed by itself, by one thread: for a scan of a recurrent element.
 *
 * A unit is what a cell's folder provides for a GPU: a class template over the real type with
 *
 *     enum MATRICES   K, which is also the number of gates G
 *     enum SAVED      H-vectors kept for each step and sample, in c.saved
 *     enum DIAGONAL   1: e is present
 *     enum SPLIT      1: delta_h differs from delta_x
 *     enum PAIR       1: the state is a pair (h, c)
 *     enum FAR        1: sums begin with near parts of biases, and forward_far adds the far ones (far_biases in recurrent/cell.h)
 *     enum AHEAD      steps that a walk loads ahead of their use
 *     enum EARLIER    1: h_{t-1} of a unit is what the unit of step t - 1 holds, so that a walk loads one step more
 *     load(at, i)               what the backward step t of the unit i behind that of a unit_place reads
 *     before(earlier)           h_{t-1}; `earlier` is the unit of step t - 1
 *     begin(h, c)               the state in front of the step is h and, of a pair, c, whatever `load` has read of it
 *     factors(relu, d, e, d_x)  d [K], of a pair [K + 1], and e of Jᵀ_t; d_x: the last gate's factor in delta_x; the others' is d
 *     carried(g)                e ∘ g_t, of a pair e ∘ δ_t
 *     curve(relu, of_x, of_h, before, g, g_c, delta_x, delta_h, own)   along a direction, with tangents of_x [K] of x W_ihᵀ,
 *                               of_h [K] of h_{t-1} W_hhᵀ (unless SPLIT of_x is the sum of both) and `before` of h_{t-1}, of a
 *                               pair of c_{t-1}: the derivatives of the deltas [K] (one of them unless SPLIT) and of
 *                               carried(g_t), for gradients g of h_t and g_c of c_t that do not change
 *     forward(relu, pre, product, before, saved)   h_t from pre_t [K], h_{t-1} W_hhᵀ + b_hh [K] and h_{t-1}; saved [SAVED];
 *                                                  of a pair `before` is a pointer to c_{t-1}, which becomes c_t
 *     forward_far(pre, product, far, far_h, before, saved)   where FAR, of units that have far parts: far [K]; far_h is of a cell
 *                                                  that splits alone, and belongs to the last gate's product
 */
#ifndef BPPSA_RECURRENT_GPU_UNIT_KERNELS_CUH
#define BPPSA_RECURRENT_GPU_UNIT_KERNELS_CUH

#include "core/compute/launch.cuh"
#include "recurrent/gpu/cell_cuda.cuh"

/* d_k and e of all steps, for a scan of a recurrent element. */
template <typename real, template <typename> class cell>
__global__ void bppsa_recurrent_coefficients(layer_arrays<real> c, int64_t count) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) {
    enum { COLUMNS = cell<real>::MATRICES + cell<real>::PAIR };
    real d[COLUMNS], e, d_x;
    cell<real> unit = cell<real>::load(unit_place<real, cell>(c, at, at % c.hidden));
    if (c.resets.mask != nullptr && c.resets.at(at / c.hidden)) {
      begin_unit<real, cell>(c, at % c.hidden, &unit);
    }
    unit.factors(c.relu, d, &e, &d_x);
    BPPSA_UNROLL
    for (int k = 0; k < COLUMNS; ++k) {
      c.columns[k][at] = d[k];
    }
    if (cell<real>::DIAGONAL) {
      c.diagonal[at] = e;
    }
  }
}

/* delta_x and, where the cell splits them, delta_h from g_1 .. g_T. */
template <typename real, template <typename> class cell>
__global__ void bppsa_recurrent_deltas(layer_arrays<real> c, int64_t count) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = at / c.hidden, j = at % c.hidden;
  if (at < count) {
    enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
    const real *g = c.g + (row + c.batch) * (1 + PAIR) * c.hidden + j;
    cell<real> unit = cell<real>::load(unit_place<real, cell>(c, at, j));
    if (c.resets.at(row)) {
      begin_unit<real, cell>(c, j, &unit);
    }
    const unit_back<real, cell> made(unit, c.relu, g[0], g[PAIR * c.hidden]);
    BPPSA_UNROLL
    for (int k = 0; k < K; ++k) {
      c.delta_x[(row * K + k) * c.hidden + j] = k + 1 == K ? made.to_x : made.to_h[k];
      if (cell<real>::SPLIT) {
        c.delta_h[(row * K + k) * c.hidden + j] = made.to_h[k];
      }
    }
  }
}

#endif
