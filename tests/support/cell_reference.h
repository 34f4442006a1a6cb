/* A recurrent cell by its textbook equations, in float64, one sample and step at a time. */
#ifndef BPPSA_TESTS_SUPPORT_CELL_REFERENCE_H
#define BPPSA_TESTS_SUPPORT_CELL_REFERENCE_H

#include "recurrent/recurrent.h"

/* px = W_ih x + b_ih and ph = W_hh h + b_hh are [G·H]; before, h, g and carried are states or their gradients, [H], or for a
 * pair [2H], with h in front of c. */
typedef struct {
  int64_t gates;
  bool pair; /* the state is a pair */
  bool relu; /* the cell has this nonlinearity */
  const bppsa_cell *cell;
  void (*forward)(const bppsa_recurrent_config *c, const double *px, const double *ph, const double *before, double *h);
  /* dx, dh: gradients of px and ph; carried: the gradient of `before` that does not go through ph. */
  void (*backward)(const bppsa_recurrent_config *c, const double *px, const double *ph, const double *before, const double *h,
                   const double *g, double *dx, double *dh, double *carried);
} cell_reference;

#endif
