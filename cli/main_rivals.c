/* The program bppsa-rivals: bppsa with other libraries in `bench product`. */
#include <stdio.h>

#include "bench/rivals/rivals.h"
#include "cli/cli.h"
#include "cli/main.h"

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
  return bppsa_end_program(bppsa_cli_main(argc, argv, stdout, stderr));
}
