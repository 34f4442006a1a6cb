/* What a rank computes in a step of training, measured on this machine while the ranks beside it compute too: the forward pass, the
 * backward pass and the update of a model, or of a rank's part of a network whose layers are shared (distributed/layer_split.h).
 *
 * A part of a layer seldom takes a part of its time: a kernel that computes eight filters at once gains nothing from three, the
 * layers behind a cut are whole on every rank, and arrays are packed and unpacked. So the parts are measured as such. Nothing
 * travels meanwhile: what a rank would send and receive is counted, and the projections (oracle/) add what that takes.
 */
#ifndef BPPSA_DISTRIBUTED_STEP_COSTS_H
#define BPPSA_DISTRIBUTED_STEP_COSTS_H

#include "distributed/layer_split.h"
#include "train/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int64_t batch; /* samples of a step */
  bppsa_optimizer_config optimizer;
  uint64_t seed;   /* of inputs and of gradients of logits, whose variance is 1 and 1 / batch² */
  double budget_s; /* as many steps as fit, 3 .. 101, behind one that is not counted */
  const bppsa_device *device;
} bppsa_step_measuring;

typedef struct {
  double forward_s, backward_s, update_s; /* medians over the steps, of the rank that takes longest */
  double exchange_s;           /* likewise: the sum of a whole model's gradients, as data parallelism makes it; of a part 0 */
  bppsa_layer_traffic traffic; /* of rank 0 */
} bppsa_step_costs;

/* Measures a model of `network`, the same on every rank of comm, all of which make the same steps at the same time. Its weights
 * stay as they are: the learning rate is 0. A whole model's traffic is the bytes of its gradients. Collective; all ranks get the
 * same numbers. ERR_MEMORY, ERR_COMM; ERR_* of the model. */
bppsa_status bppsa_step_measure(bppsa_comm *comm, const bppsa_cnn_network *network, bppsa_model *model,
                                const bppsa_step_measuring *how, bppsa_step_costs *costs);
/* The same for the parts of `ways` ranks, with the weights of `whole`: rank r of comm computes part r % ways. ERR_ARGUMENT: more
 * ways than the network has tiles, filters or channels. */
bppsa_status bppsa_step_measure_part(bppsa_comm *comm, const bppsa_cnn_network *network, const bppsa_model *whole,
                                     bppsa_layer_strategy strategy, int64_t ways, const bppsa_step_measuring *how,
                                     bppsa_step_costs *costs);

#ifdef __cplusplus
}
#endif
#endif
