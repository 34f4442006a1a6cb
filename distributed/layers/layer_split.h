/* A convolutional network whose layers are shared by the ranks of a group: each rank is given, as a bppsa_model
 * (core/compute/model.h), the part of the network that it computes (distributed/layers/layer_plan.h).
 *
 * All ranks of a group call forward and backward with the same samples:
 *
 *   forward          x [b,C,H,W], whole on every rank; logits [b,classes], whole on every rank
 *   backward         a seed [b,classes]; the gradients of the rank's part of the parameters, over the whole batch
 *   input_gradients  x [b,C,H,W]
 *
 * What moves, and in which direction:
 *
 *   spatial   borders of tiles between neighbours in front of every window (halo), backwards the gradients of these borders, which
 *             their owner adds to its own; an allgather in front of the first linear operator; a sum of the tiled layers' weight
 *             gradients. (ParaDL exchanges the borders of dL/dy instead, which are as many with a stride of 1.)
 *   filter    an allgather in front of every operator with weights but the first, and of the logits; backwards a sum of dL/dx
 *   channel   a sum of y behind every operator with weights but the first; backwards an allgather of dL/dy
 *
 * Groups: several groups share a batch (data + spatial, data + filter; ParaDL, section 3.5). Ranks with the same place in their
 * groups then add up the gradients of their parts.
 *
 * Sums over ranks go along a fixed binary tree (comm/ordered.h), so that the bits depend on the strategy and the numbers of ranks,
 * and not on the transport; or they are the transport's own.
 */
#ifndef BPPSA_DISTRIBUTED_LAYERS_LAYER_SPLIT_H
#define BPPSA_DISTRIBUTED_LAYERS_LAYER_SPLIT_H

#include "comm/comm.h"
#include "core/compute/device.h"
#include "core/compute/model.h"
#include "distributed/layers/layer_plan.h"
#include "distributed/reduction.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  bppsa_layer_strategy strategy;
  bppsa_comm *group; /* the ranks that share the layers, borrowed */
  bppsa_comm *among; /* the ranks with the same place in the other groups, borrowed; NULL: there is one group */
  int64_t batch;     /* the most samples of a group, 1 .. */
  bppsa_dtype dtype; /* f32, f64 */
  bppsa_reduction reduction;
  bool input_gradients; /* computes the gradient of x too */
  int32_t tag;          /* the first of its messages' tags, of which it uses 2 L + 4 for L layers */
  /* Above 0: for measuring. This rank computes what rank `place` of so many ranks computes, and copies what that rank packs and
   * unpacks, but nothing travels: what would arrive is noise, and sums are of this rank alone. group and among are NULL then. */
  int64_t alone;
  int32_t place;
} bppsa_layer_split_config;

/* Makes this rank's part of a network (copied); collective. The parameters, which start at 0, have the names of bppsa_cnn_create,
 * and the shapes of this rank's part. The device, a CPU, gives the threads and must outlive the model; destroy it with
 * bppsa_model_destroy. ERR_ARGUMENT: too many ranks, a batch or tag out of range; ERR_UNSUPPORTED: a GPU, a dtype;
 * ERR_MEMORY. */
bppsa_status bppsa_layer_split_create(const bppsa_cnn_network *network, const bppsa_layer_split_config *config,
                                      const bppsa_device *device, bppsa_model **model);

/* A group without samples of this batch calls it instead of forward and backward: its gradients are 0. Collective among the groups.
 * ERR_COMM. */
bppsa_status bppsa_layer_split_skip(bppsa_model *model);

/* The 2-norm of the gradients of all parameters, whole; collective in the group. ERR_COMM. */
bppsa_status bppsa_layer_split_norm(bppsa_model *model, double *norm);

/* Copies the rank's part of parameter i from an array of the whole parameter. */
void bppsa_layer_split_take(const bppsa_model *model, int64_t i, const void *whole, void *part);
/* The other way, from the parts of all ranks; collective in the group. ERR_COMM. */
bppsa_status bppsa_layer_split_collect(bppsa_model *model, int64_t i, const void *part, void *whole);

/* Writes the input of layer i in the latest forward pass (i = L: the logits), or (gradient) its gradient in the latest backward
 * pass, whole: [b][C][H][W]. Collective in the group. ERR_ARGUMENT: no such layer, no pass; ERR_UNSUPPORTED: the gradient of x, of
 * a model without it; ERR_COMM. */
bppsa_status bppsa_layer_split_tensor(bppsa_model *model, int64_t i, bool gradient, void *whole);

/* Seconds that this rank has spent since creation, with the time that it waited for others. */
typedef enum {
  BPPSA_LAYER_COMPUTE = 0, /* its own operators, and copies within its memory */
  BPPSA_LAYER_HALO,        /* borders of tiles, and channels between groups of convolutions */
  BPPSA_LAYER_GATHER,      /* allgathers of activations and gradients */
  BPPSA_LAYER_REDUCE,      /* sums of activations and input gradients */
  BPPSA_LAYER_EXCHANGE,    /* sums of weight gradients */
  BPPSA_LAYER_PHASES
} bppsa_layer_phase;

const char *bppsa_layer_phase_name(bppsa_layer_phase phase);       /* "compute" */
const double *bppsa_layer_split_seconds(const bppsa_model *model); /* size BPPSA_LAYER_PHASES; borrowed */

/* What this rank has sent and received in the latest forward and backward pass. */
typedef struct {
  int64_t allgathers, sums, messages; /* sums: of activations and input gradients; messages: that it receives */
  int64_t allgather_bytes;            /* of its own parts */
  int64_t sum_bytes, message_bytes;
  int64_t tile_bytes, weight_bytes; /* of weight gradients: tiled layers' over the group, all layers' over the groups */
} bppsa_layer_traffic;

const bppsa_layer_traffic *bppsa_layer_split_traffic(const bppsa_model *model); /* borrowed */

/* Of a rank that computes alone: the times of the monotonic clock at which its latest pass, forward or backward, came to the
 * points where ranks wait for each other, in order, as many on every rank of a group; borrowed. Otherwise *count is 0. A pass has
 * at most 2 L + 4 of them for L layers. */
const double *bppsa_layer_split_meetings(const bppsa_model *model, int64_t *count);

#ifdef __cplusplus
}
#endif
#endif
