/* Derivatives along a direction of a layer's passes on a CPU (tangent_cpu.c): what recurrent/layer_tangent.c calls. Internal. */
#ifndef BPPSA_RECURRENT_TANGENT_CPU_H
#define BPPSA_RECURRENT_TANGENT_CPU_H

#include "recurrent/layer.h"
#include "recurrent/layers_cpu.h"

/* The arrays of a pass, in the caller's scratch. The rows of steps are packed where samples have lengths (ragged.c). */
typedef struct {
  bppsa_layer_tangents along;  /* the direction; where samples have lengths its x is packed */
  void *h, *c;                 /* the tangents of the states, [T+1][B][H] */
  void *product_x, *product_h; /* of a window, or of all steps in a second-order backward pass */
  void *w_ih, *w_hh, *own_hh;  /* transposed: the tangents of W_ih and W_hh, and W_hh itself */
  void *bias;                  /* [2][G·H]: what is added to product_x and product_h */
  void *copies[2];             /* layers_tangent */
  void *before;                /* with resets: the states h in front of a window's steps */
  /* of a second-order backward pass */
  const void *fronts;      /* [T][B][H]: the states h in front of all steps */
  void *before_tangent;    /* likewise their tangents, with resets or lengths */
  void *g;                 /* [T+1][B][S]: what enters the second walk */
  void *of_w_ih, *of_w_hh; /* parts of the derivatives of the weight gradients, or room for those that nobody wants */
  void *of_bias;           /* likewise [G·H] */
  double *of_reset;        /* [S] */
  void *packed_x, *packed_h, *packed_c; /* with lengths: the packed x, h and c of the direction */
} tangent_arrays;

/* Visits them; second: of a second-order backward pass. */
bppsa_status bppsa_tangent_visit(const recurrent_network *n, bool second, tangent_arrays *a, bppsa_recurrent_visit visit,
                                 int64_t *bytes);
/* Computes rows 1 .. T of a->h and c, from row 0. */
void bppsa_tangent_forward(recurrent_network *n, tangent_arrays *a);
/* Prepares the second walk, from the tangents of all states and the gradients of the states in n->g (g_T and u_t), which the first
 * walk completes: a->g, without what comes from the seed's tangents, and the parts of the results that need the first deltas. */
bppsa_status bppsa_tangent_first_walk(recurrent_network *n, tangent_arrays *a, const bppsa_layer_gradients *to);
/* Adds a->g to n->g, which holds the seed's tangents; walks, and writes the results. */
bppsa_status bppsa_tangent_second_walk(recurrent_network *n, tangent_arrays *a, const bppsa_layer_gradients *to);

#endif
