/* Transitions: the product of neighbouring elements of a scan as an object of its own, which can be sent, joined with the
 * transition of the elements behind it, and applied to gradients. A scan over ranks exchanges transitions.
 *
 * A transition takes the gradients in front of its elements to those behind them, for each of b samples:
 *
 *     y_out = x P + v        x [rows], P [rows][columns], v [columns] if the scan is affine
 *
 * Every row of P, and v, has an exponent of its own, as in every scan: products of many elements neither over- nor underflow. A
 * diagonal has one row, and an exponent for each number.
 *
 * Elements of a sample may be cut (bppsa_scan_operands). Then P is 0 and marked as such, here and in every join, so that x
 * is not read: what is not finite in it does not go through.
 */
#ifndef BPPSA_SCAN_TRANSITION_H
#define BPPSA_SCAN_TRANSITION_H

#include "scan/scan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  bppsa_element element;
  bppsa_dtype dtype; /* f32, f64 */
  bool affine;
  int64_t batch;            /* the most samples */
  int64_t rows, columns;    /* sizes of x and y_out; equal for a diagonal */
  const bppsa_csr *pattern; /* csr: of Pᵀ [columns][rows], borrowed */
} bppsa_transition_shape;

typedef struct bppsa_transition bppsa_transition;

/* Memory for a transition on a device. ERR_MEMORY. Of sparse elements also errors of bppsa_apply_create. On a GPU also ERR_CUDA,
 * and ERR_UNSUPPORTED: rows that are too long. */
bppsa_status bppsa_transition_create(const bppsa_transition_shape *shape, const bppsa_device *device,
                                     bppsa_transition **transition);
/* Memory for the join of first and second, in this order, both on `device`. For sparse elements it plans their product on `device`
 * and borrows their patterns, so that first and second must live as long as it. Errors of bppsa_transition_create, and of
 * bppsa_product_create. */
bppsa_status bppsa_transition_create_joined(const bppsa_transition *first, const bppsa_transition *second,
                                            const bppsa_device *device, bppsa_transition **transition);
const bppsa_transition_shape *bppsa_transition_get_shape(const bppsa_transition *transition);
void bppsa_transition_destroy(bppsa_transition *transition); /* NULL is legal */

/* Bytes of `batch` samples as a message: the numbers of P and v, and 4 for each exponent; of sparse elements the pattern's
 * values. */
int64_t bppsa_transition_bytes(const bppsa_transition_shape *shape, int64_t batch);
/* Shows the transition of `batch` samples as such a message, in the device's memory, to send it or to receive one. Call
 * bppsa_transition_received when one has arrived. ERR_CUDA. */
bppsa_view bppsa_transition_view(bppsa_transition *transition, int64_t batch);
bppsa_status bppsa_transition_received(bppsa_transition *transition);

/* result = first, then second: x ↦ (x P_1 + v_1) P_2 + v_2, for first's number of samples, which must be second's. The
 * result was created for both. Dense, recurrent and pair elements: a row in which everything cancels becomes NaN, so that the
 * result, and what is made of it, is useless for every gradient. Diagonal and sparse elements are not checked here. On a GPU
 * it is queued. ERR_CUDA. */
bppsa_status bppsa_transition_join(const bppsa_transition *first, const bppsa_transition *second, bppsa_transition *result);

/* out [b][columns] = in [b][rows] P + v, in the device's memory. useless [b], in host memory: set where the result is rounding
 * error or not finite (cancellation), so that the steps have to be done one by one; *count: how many. On a GPU it waits.
 * ERR_CUDA. */
bppsa_status bppsa_transition_apply(bppsa_transition *transition, const void *in, void *out, bool *useless, int64_t *count);

/* ---- making one ---- */

typedef struct bppsa_transition_maker bppsa_transition_maker;

/* Makes transitions of all elements of a chain, of which there is at least one; config's method and `input` have no meaning.
 * ERR_ARGUMENT: no elements, or those of bppsa_scan_plan_create. ERR_UNSUPPORTED: elements without product. ERR_SHAPE, ERR_MEMORY,
 * ERR_CUDA. */
bppsa_status bppsa_transition_maker_create(const bppsa_scan_config *config, const bppsa_device *device,
                                           bppsa_transition_maker **maker);
void bppsa_transition_maker_destroy(bppsa_transition_maker *maker); /* NULL is legal */
/* The shape of its transitions; a pattern is the maker's. */
bppsa_transition_shape bppsa_transition_maker_shape(const bppsa_transition_maker *maker);
/* The transition of the operands' elements; gradients are neither read nor written. Bits do not depend on the device's number of
 * threads. On a GPU it is queued: products of parts of the elements, all at once, which are then joined in pairs. ERR_ARGUMENT: as
 * of an executor. ERR_CUDA. */
bppsa_status bppsa_transition_make(bppsa_transition_maker *maker, const bppsa_scan_operands *operands,
                                   bppsa_transition *transition);

#ifdef __cplusplus
}
#endif
#endif
