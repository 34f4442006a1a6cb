/* Derivatives along a direction of a layer's passes: what recurrent/layer_tangent.c asks of a kind of device. Internal. */
#ifndef BPPSA_RECURRENT_TANGENT_INTERNAL_H
#define BPPSA_RECURRENT_TANGENT_INTERNAL_H

#include "recurrent/layer.h"
#include "recurrent/recurrent_internal.h"
#include "scan/scan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a pass computes: the tangents of the states; the derivative of the backward pass; the tangents of these tangents. */
typedef enum { TANGENT_STATES, TANGENT_GRADIENTS, TANGENT_TWICE } tangent_kind;

/* A direction, and the tangents of the states in it, [T+1][B][H]. Where samples have lengths, x and the states are packed. */
typedef struct {
  bppsa_layer_tangents along;
  void *h, *c;
  void *w_ih, *w_hh;           /* the tangents of W_ih and W_hh, transposed */
  void *bias;                  /* [2][G·H]: what is added to product_x and product_h */
  void *product_x, *product_h; /* of a window, or of all steps (tangent_windows) */
  void *before;                /* the tangents of the states h in front of all steps, [T][B][H], with resets or lengths */
  void *packed_x, *packed_h, *packed_c; /* with lengths: room for x, h and c */
} tangent_direction;

/* The arrays of a pass, in the caller's scratch. On a CPU the rows of steps are packed where samples have lengths (ragged.c). */
typedef struct tangent_arrays {
  tangent_direction d, e; /* e: of TANGENT_TWICE alone */
  void *own_hh;           /* W_hh transposed */
  void *copies[2];        /* layers_tangent */
  void *before;           /* with resets: the states h in front of a window's steps */
  /* what follows is of some kinds alone */
  const void *fronts;       /* [T][B][H]: the states h in front of all steps */
  void *g;                  /* [T+1][B][S]: what enters the second walk, or is added to the tangents of every step */
  void *of_w_ih, *of_w_hh;  /* parts of the weight gradients' derivatives; scratch where the caller gave NULL */
  void *of_bias;            /* likewise [G·H] */
  double *of_reset;         /* [S] */
  void *spare;              /* of a pair: the products of direction d once more */
  void *carried;            /* [T+1][B][S], or of a run */
  void *sums, *hidden_sums; /* of a pass by runs: parts of weight gradients, from the first deltas */
  void *before_cells;       /* [T][B][H]: of a pair, the tangents of c in front of all steps, in direction e */
  void *h, *c;              /* of TANGENT_TWICE: the results */
  void *packed_h, *packed_c;
  bppsa_scan_executor *scan; /* of the walk with time; NULL: it goes step by step */
  void *delta_x, *delta_h;   /* on a GPU: [T][B][G·H], the deltas of a walk */
  void *of_begin;            /* on a GPU: [S], a part of the derivative of the reset state's gradient */
} tangent_arrays;

/* What a kind of device computes. On a GPU all work is queued on the device's stream. `scans`: the walk with time is a scan. */
struct recurrent_tangents {
  /* Visits the arrays. */
  bppsa_status (*visit)(const recurrent_network *n, tangent_kind kind, bool scans, tangent_arrays *a, bppsa_recurrent_visit visit,
                        int64_t *bytes);
  /* Takes the inputs of the pass and of its directions, in the order in which the device computes them. */
  bppsa_status (*begin)(recurrent_network *n, tangent_arrays *a);
  /* Computes all rows of a->d.h and c. */
  bppsa_status (*forward)(recurrent_network *n, tangent_arrays *a);
  /* Prepares the second walk, from the tangents of all states and the gradients of the states in n->g (g_T and u_t), which the
   * first walk completes: a->g, without what comes from the seed's tangents, and the parts of the results that need the first
   * deltas. */
  bppsa_status (*first_walk)(recurrent_network *n, tangent_arrays *a, const bppsa_layer_gradients *to);
  /* Adds a->g to n->g, which holds the seed's tangents; walks, and writes the results. */
  bppsa_status (*second_walk)(recurrent_network *n, tangent_arrays *a, const bppsa_layer_gradients *to);
  /* Computes a->h and c, the derivative in direction e of the tangents in direction d. NULL: not supported. */
  bppsa_status (*twice)(recurrent_network *n, tangent_arrays *a);
};

#ifdef __cplusplus
}
#endif
#endif
