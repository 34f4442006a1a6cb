/* The program bppsa with rivals. */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/rivals/rivals.h"

static const bppsa_product_rival *const rivals[] = {
#ifdef RIVAL_GRAPHBLAS
    &rival_graphblas,
    &rival_graphblas_gustavson,
    &rival_graphblas_hash,
#endif
#ifdef RIVAL_PETSC
    &rival_petsc,
    &rival_petsc_full,
#endif
#ifdef RIVAL_LIBXSMM
    &rival_libxsmm,
#endif
    NULL};

int main(int argc, char **argv) {
  bppsa_product_rivals = rivals;
  return bppsa_cli_main(argc, argv, stdout, stderr);
}
