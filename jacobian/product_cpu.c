/* Numeric products on the CPU. */
#include <omp.h>
#include <string.h>

#include "core/flush.h"
#include "jacobian/kernels.h"
#include "jacobian/product_internal.h"

enum { BAND_ROWS = 64, BAND_COLS = 512 }; /* of a task: fixed, so that the bits are */

#define JACOBIAN_KERNELS (&bppsa_jacobian_kernels_get()->f32)
#define BPPSA_REAL 32
#include "jacobian/product.inc"
#undef BPPSA_REAL
#undef JACOBIAN_KERNELS
#define JACOBIAN_KERNELS (&bppsa_jacobian_kernels_get()->f64)
#define BPPSA_REAL 64
#include "jacobian/product.inc"
