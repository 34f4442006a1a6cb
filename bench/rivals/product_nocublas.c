/* Stands in for product_cublas.c in a build without cuBLAS's header. */
#include "bench/cases/product_case.h"

const bppsa_product_rival *const bppsa_product_cublas_rivals[BPPSA_PRODUCT_LIBRARY_RIVALS] = {NULL};
