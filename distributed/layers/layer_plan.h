/* How the ranks of a group share the layers of a convolutional network: spatial, filter and channel parallelism (ParaDL, sections
 * 3.2, 3.3, 4.5.1). All ranks of the group work on the same samples.
 *
 *   spatial   every image is cut into a grid of tiles, one for each rank, up to the first linear or flatten operator; from there on
 *             every rank computes whole samples. A tile's window reaches into the tiles of other ranks (halo).
 *   filter    a rank has some of the output channels of every operator with weights, and the operators without weights behind it
 *             work on these channels. An operator with weights reads all channels; its input gradient is a sum over the ranks.
 *   channel   a rank has some of the input channels of every operator with weights behind the first one, which every rank computes
 *             as a whole; its output is a sum over the ranks.
 *
 * A convolution with groups is shared by whole groups of channels, with filter and with channel.
 *
 * A plan says, for every tensor of a sample and every rank, which box of [C][H][W] the rank holds, which box of its input each
 * layer reads, and by which move it gets there. It depends on the network and the number of ranks alone; all ranks make the same.
 */
#ifndef BPPSA_DISTRIBUTED_LAYERS_LAYER_PLAN_H
#define BPPSA_DISTRIBUTED_LAYERS_LAYER_PLAN_H

#include "cnn/network.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Along what layers are shared. */
typedef enum { BPPSA_LAYERS_SPATIAL = 0, BPPSA_LAYERS_FILTER, BPPSA_LAYERS_CHANNEL, BPPSA_LAYERS_COUNT } bppsa_layer_strategy;

const char *bppsa_layer_strategy_name(bppsa_layer_strategy strategy); /* "spatial" */

/* Positions from[a] .. to[a] - 1 of channels, rows and columns. Empty where to <= from. */
typedef struct {
  int64_t from[3], to[3];
} bppsa_layer_box;

int64_t bppsa_layer_box_count(const bppsa_layer_box *box); /* positions; 0 if it is empty */
bppsa_layer_box bppsa_layer_box_meet(const bppsa_layer_box *a, const bppsa_layer_box *b);

/* How a tensor gets from the boxes that ranks hold to those that a layer reads; its gradient goes the other way. */
typedef enum {
  BPPSA_MOVE_NONE = 0, /* they are the same */
  BPPSA_MOVE_SLICE,    /* every rank holds all; backwards an allgather */
  BPPSA_MOVE_EXCHANGE, /* messages between pairs of ranks; backwards the parts of a value are added up by the rank that holds it */
  BPPSA_MOVE_GATHER    /* an allgather; backwards a slice, after the sum over the ranks if they have parts of each value */
} bppsa_layer_move;

typedef struct {
  bppsa_layer_move move; /* of its input */
  bool sums_gradient;    /* its input gradient is a sum over the ranks */
  bool sums_output;      /* its output is a sum over the ranks */
  bool tiled;            /* its weight gradients are sums over the ranks, which have tiles of its output */
} bppsa_planned_layer;

typedef struct {
  bppsa_cnn_network network; /* a copy */
  bppsa_layer_strategy strategy;
  int64_t ranks;
  int64_t grid[2];             /* spatial: tiles along height and width; rank r has tile (r / grid[1], r % grid[1]) */
  bppsa_planned_layer *layers; /* size count + 1: the last one is the loss, which reads all logits */
  bppsa_layer_box *held;       /* [count + 1][ranks]: of each layer's input, and of the logits */
  bppsa_layer_box *read;       /* [count + 1][ranks] */
} bppsa_layer_plan;

/* Makes a plan. ERR_ARGUMENT: more ranks than tiles, filters or channels; the message names the limit and the layer.
 * ERR_UNSUPPORTED: a graph. ERR_MEMORY. */
bppsa_status bppsa_layer_plan_create(const bppsa_cnn_network *network, bppsa_layer_strategy strategy, int64_t ranks,
                                     bppsa_layer_plan **plan);
void bppsa_layer_plan_destroy(bppsa_layer_plan *plan); /* NULL is legal */

static inline const bppsa_layer_box *bppsa_layer_plan_held(const bppsa_layer_plan *plan, int64_t tensor, int64_t rank) {
  return &plan->held[tensor * plan->ranks + rank];
}
static inline const bppsa_layer_box *bppsa_layer_plan_read(const bppsa_layer_plan *plan, int64_t layer, int64_t rank) {
  return &plan->read[layer * plan->ranks + rank];
}

/* The layer as this rank computes it, from the box that it reads to the box that it holds of the output; false: it has no output.
 * The parameters are the rank's part. ERR_SHAPE: never for a plan that was made. */
bppsa_status bppsa_layer_plan_local(const bppsa_layer_plan *plan, int64_t layer, int64_t rank, bppsa_cnn_layer *local, bool *any);

/* A rank's part of a layer's weight or bias, seen as a matrix [rows][columns] with a row for each output channel. */
typedef struct {
  int64_t rows, columns;      /* of the whole parameter */
  int64_t first_row, end_row; /* of the part */
  int64_t first_column, end_column;
} bppsa_layer_part;

bppsa_layer_part bppsa_layer_plan_part(const bppsa_layer_plan *plan, int64_t layer, int64_t rank, bool bias);

#ifdef __cplusplus
}
#endif
#endif
