/* A walk of BP by the kernels of a recurrent layer on a GPU, as the cost model of scans knows it (scan/plan.h). Internal. */
#ifndef BPPSA_RECURRENT_BACKWARD_WALK_H
#define BPPSA_RECURRENT_BACKWARD_WALK_H

#include "recurrent/parallel_forward.h"
#include "scan/plan.h"

static inline bppsa_scan_config bppsa_backward_walk_of(const bppsa_forward_shape *shape) {
  return (bppsa_scan_config){.method = bppsa_scan_method_of(BPPSA_SCAN_LINEAR),
                             .element = BPPSA_ELEMENT_RECURRENT,
                             .dtype = shape->dtype,
                             .dim = shape->hidden,
                             .matrices = shape->gates,
                             .device = BPPSA_CUDA};
}

#endif
