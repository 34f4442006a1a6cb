/* The inside of a network whose layers are shared by ranks. Internal. */
#ifndef BPPSA_DISTRIBUTED_LAYERS_LAYER_SPLIT_INTERNAL_H
#define BPPSA_DISTRIBUTED_LAYERS_LAYER_SPLIT_INTERNAL_H

#include "cnn/pass.h"
#include "comm/ordered.h"
#include "distributed/layers/layer_split.h"

/* A sum over ranks of vectors of one size. */
typedef struct {
  bppsa_comm *comm;           /* NULL, or one rank: nothing to do */
  bppsa_ordered_sum *ordered; /* NULL: the transport's own sum */
  bppsa_dtype dtype;
  int64_t count;
} layer_sum;

/* A zeroed sum is legal: it does nothing. ERR_MEMORY. */
bppsa_status bppsa_layer_sum_create(bppsa_comm *comm, bppsa_reduction reduction, bppsa_dtype dtype, int64_t count, int32_t tag,
                                    layer_sum *sum);
void bppsa_layer_sum_free(layer_sum *sum);
/* Adds up the ranks' vectors, in place. Collective. ERR_COMM. */
bppsa_status bppsa_layer_sum_run(const layer_sum *sum, void *vector);

/* One layer; the last one is the loss, which reads the logits. */
typedef struct {
  bppsa_cnn_layer local; /* this rank's part */
  bool any;              /* it has an output */
  bppsa_conv conv;
  int64_t in, out;           /* values of a sample that this rank reads, and holds of the output */
  int64_t weight;            /* index of its weight among the parameters; -1: none. A bias follows its weight */
  void *read, *gradient;     /* [batch][in]: what it reads, and its gradient; where nothing moves, the arrays of `held` and `g` */
  bool own;                  /* they are arrays of their own */
  int32_t *places;           /* maxpool2d: [batch][out] */
  layer_sum outputs, inputs; /* of the output; of the input gradient */
} split_layer;

/* A parameter: of which layer, and whether it is a bias. */
typedef struct {
  int64_t layer;
  bool bias;
} split_parameter;

typedef struct {
  bppsa_model base;
  bppsa_layer_split_config config;
  bppsa_layer_plan *plan;
  const bppsa_device *device;
  int32_t rank, threads;
  int64_t b; /* samples of the latest forward pass; 0: none */
  bool backward_done;
  split_layer *layers; /* size L + 1 */
  void **held, **g;    /* size L + 1: what this rank holds of each layer's input, and of its gradient, [batch][..] */
  int64_t held_x;      /* values of a sample in held[0]; 0: held[0] is the caller's x */
  void *dx;            /* the gradient of x, whole; NULL without input gradients */
  void *scratch, *sums, *transposed;
  double *norms; /* size ranks */
  /* buffers of moves: of what is sent, of what is received; and two requests for every rank */
  void *out, *in;
  bppsa_comm_request **requests;
  int64_t *counts;          /* size ranks */
  void *values, *gradients; /* of all parameters, those of tiled layers first */
  int64_t reals, tiled_reals;
  char (*names)[BPPSA_CNN_PARAMETER];
  split_parameter *which;  /* size parameter_count */
  layer_sum tiles, groups; /* of weight gradients: of tiled layers over the group, of all layers over the groups */
  bppsa_layer_traffic traffic;
  double seconds[BPPSA_LAYER_PHASES];
  double mark; /* when the present phase began */
  double *met; /* of a rank that computes alone: when its latest pass came to the points where ranks wait for each other */
  int64_t met_count;
} layer_split;

extern const bppsa_model_ops bppsa_layer_split_ops;
void bppsa_layer_split_destroy(bppsa_model *model);

/* Books the time since the last call to a phase. */
void bppsa_layer_lap(layer_split *s, bppsa_layer_phase phase);

/* Raises both numbers to the values of a sample for which the plan's moves need room in `out` and `in`. */
void bppsa_layer_move_room(const layer_split *s, int64_t *out, int64_t *in);
/* Adds up activations or input gradients over the group, and counts the sum. ERR_COMM. */
bppsa_status bppsa_layer_add_up(layer_split *s, const layer_sum *sum, void *vector);
/* Moves a layer's input in the forward pass, from held to read, and its gradient in the backward pass. ERR_COMM. */
bppsa_status bppsa_layer_move_forward(layer_split *s, int64_t layer);
bppsa_status bppsa_layer_move_backward(layer_split *s, int64_t layer);
/* Copies the values that both boxes have. */
void bppsa_layer_copy(const layer_split *s, const bppsa_layer_box *from_box, const void *from, const bppsa_layer_box *to_box,
                      void *to);
/* An allgather of the boxes that the ranks have (size ranks) to all positions of `shape`. ERR_COMM. */
bppsa_status bppsa_layer_gather(layer_split *s, const bppsa_layer_box *boxes, const void *mine, const int64_t shape[3],
                                void *whole);

#endif
