/* Transitions on a GPU (transition_cuda.cu; transition_nocuda.c in a build without CUDA). All work is queued on the device's
 * stream. */
#ifndef BPPSA_SCAN_TRANSITION_INTERNAL_H
#define BPPSA_SCAN_TRANSITION_INTERNAL_H

#include "scan/scan_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The exponent of a product's first row where one of its elements is cut (bppsa_scan_operands.cuts). The rows of the product are
 * then 0, and what is in front of it has no part in what is behind it, NaN neither. */
enum { BPPSA_TRANSITION_CUT = INT32_MIN };

/* Sizes of one sample's product, which is not sparse. A diagonal has rows = columns. */
typedef struct {
  bppsa_dtype dtype;
  bool diagonal, affine;
  int64_t rows, columns;
} bppsa_transition_sizes;

/* Asks for shared memory, once for each device. ERR_UNSUPPORTED: rows too long for it. ERR_CUDA. */
bppsa_status bppsa_transition_cuda_prepare(const bppsa_device *device, const bppsa_transition_sizes *sizes);

/* Finds the largest entries of all rows of so many samples. */
bppsa_status bppsa_transition_cuda_measure(const bppsa_device *device, const bppsa_transition_sizes *sizes, int64_t samples,
                                           const bppsa_scan_product *product);

/* Marks the products of samples of which an element is cut: those of `parts` parts, one behind the other, of so many elements.
 * cuts [elements][batch], as of the operands. */
bppsa_status bppsa_transition_cuda_mark(const bppsa_device *device, const bppsa_transition_sizes *sizes, const uint8_t *cuts,
                                        int64_t elements, int64_t batch, int64_t parts, const bppsa_scan_product *products);

/* Joins of first [rows][middle] and second [middle][columns] for `items` groups of `batch` samples. Groups of the result lie one
 * behind the other; groups of the operands begin `step` samples apart. */
typedef struct {
  bppsa_scan_product first, second, result;
  bppsa_transition_sizes sizes; /* of the result */
  int64_t middle, batch, items, step;
} bppsa_transition_joins;
bppsa_status bppsa_transition_cuda_join(const bppsa_device *device, const bppsa_transition_joins *joins);

/* out [b][columns] = in [b][rows] P + v; useless [b]: 1 where the result is useless, 0 elsewhere. All are in GPU memory. */
bppsa_status bppsa_transition_cuda_apply(const bppsa_device *device, const bppsa_transition_sizes *sizes, int64_t batch,
                                         const bppsa_scan_product *product, const void *in, void *out, int32_t *useless);

#ifdef __cplusplus
}
#endif
#endif
