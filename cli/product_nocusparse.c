/* The place of product_cusparse.c in a build without cuSPARSE's header. */
#include "cli/bench_sparse.h"

const bppsa_product_rival *const bppsa_product_cusparse_rivals[] = {NULL};
