/* The libraries that bppsa-rivals was built with. */
#ifndef BPPSA_BENCH_RIVALS_RIVALS_H
#define BPPSA_BENCH_RIVALS_RIVALS_H

#include "bench/cases/product_case.h"

extern const bppsa_product_rival rival_graphblas, rival_graphblas_gustavson, rival_graphblas_hash, rival_petsc, rival_petsc_full,
    rival_libxsmm;

#endif
