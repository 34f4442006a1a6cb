/* Stands in for product_cusparse.c in a build without cuSPARSE's header. */
#include "bench/cases/product_case.h"

const bppsa_product_rival *const bppsa_product_cusparse_rivals[BPPSA_PRODUCT_LIBRARY_RIVALS] = {NULL};
