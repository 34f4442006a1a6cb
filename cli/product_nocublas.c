/* The place of product_cublas.c in a build without cuBLAS's header. */
#include "cli/bench_sparse.h"

const bppsa_product_rival *const bppsa_product_cublas_rivals[] = {NULL};
