/* The libraries that bppsa-rivals was built with. */
#ifndef BPPSA_CLI_RIVALS_RIVALS_H
#define BPPSA_CLI_RIVALS_RIVALS_H

#include "cli/bench_sparse.h"

extern const bppsa_product_rival rival_graphblas, rival_graphblas_gustavson, rival_graphblas_hash, rival_petsc, rival_petsc_full,
    rival_libxsmm;

#endif
