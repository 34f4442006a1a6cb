/* The recurrence g_{t-1} = J_tᵀ g_t + u_{t-1} in one call: plan, executor and pass. Who computes the same shapes again and again
 * keeps a plan and an executor (scan/scan.h), which allocate nothing in a pass. */
#ifndef BPPSA_SCAN_ONE_CALL_H
#define BPPSA_SCAN_ONE_CALL_H

#include "core/base/view.h"
#include "core/compute/device.h"
#include "scan/algorithm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Computes g_0 .. g_{T-1} from g_T (BPPSA, eq. 5), on the device, in whose memory all arrays lie; it returns when they are there.
 *
 * jt: J_1ᵀ .. J_Tᵀ [T, B, H, H], or their diagonals [T, B, H]; T may be 0.
 * u: u_0 .. u_{T-1} [T, B, H], or NULL for zeros. Its memory may be that of the first T steps of g.
 * g: g_0 .. g_T [T + 1, B, H]; on entry g_T holds the seed.
 * method: NULL, or BPPSA_SCAN_AUTO in it: what the cost model expects to be the fastest.
 *
 * All are f32 or all are f64, contiguous. ERR_SHAPE, ERR_ARGUMENT: the message names the array, and what was expected;
 * ERR_UNSUPPORTED: an algorithm that the device does not run; ERR_MEMORY, ERR_CUDA. g is then untouched, unless the GPU failed
 * while it computed. */
bppsa_status bppsa_scan(const bppsa_device *device, const bppsa_view *jt, const bppsa_view *u, const bppsa_view *g,
                        const bppsa_scan_method *method);

#ifdef __cplusplus
}
#endif
#endif
