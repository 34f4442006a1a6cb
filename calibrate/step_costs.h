/* What a rank computes in a step of training, measured on this machine while the ranks beside it compute too: the forward pass, the
 * backward pass and the update of a model, or of a rank's part of a network whose layers are shared
 * (distributed/layers/layer_split.h).
 *
 * A part of a layer seldom takes a part of its time: a kernel that computes eight filters at once gains nothing from three, the
 * layers behind a cut are whole on every rank, and arrays are packed and unpacked. So the parts are measured as such. Nothing
 * travels meanwhile: the bytes that a rank would send and receive are counted, and the projections (oracle/) add their time. Ranks
 * do not wait for each other either: how long they would wait follows from the times at which they reach their meeting points.
 */
#ifndef BPPSA_CALIBRATE_STEP_COSTS_H
#define BPPSA_CALIBRATE_STEP_COSTS_H

#include "distributed/layers/layer_split.h"
#include "train/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int64_t batch;      /* samples of a step */
  int64_t mini_batch; /* of all ranks, whose gradients a whole model's exchange adds up, block by block; 0: ranks times batch */
  bppsa_optimizer_config optimizer;
  uint64_t seed;   /* of inputs and of gradients of logits, whose variance is 1 and 1 / batch² */
  double budget_s; /* as many steps as fit, 3 .. 101, behind some that are not counted */
  int64_t steps;   /* 0: as many as fit; otherwise this many, at most 101 */
  bool mean;       /* means over the steps, for ranks that share processors and wait for them; false: medians */
  const bppsa_device *device;
} bppsa_step_measuring;

typedef struct {
  /* Medians or means over the steps of a rank; of all ranks' numbers the largest. The parts of a split layer exchange data
   * several times in a pass, and each time the first ones wait for the last one. So a pass of such parts is a sum over the
   * stretches between exchanges, and each stretch counts with the longest time that a part of the group takes for it. */
  double forward_s, backward_s, update_s;
  double exchange_s; /* likewise: the sum of a whole model's gradients, as data parallelism makes it; of a part 0 */
  /* The same from the low ends and from the high ends of each rank's spread (bppsa_spread, core/measure/rounds.h): as if all
   * stretches were fast, or slow, at once. */
  struct bppsa_step_ends {
    double forward_s, backward_s, update_s, exchange_s;
  } low, high;
  bppsa_layer_traffic traffic; /* of rank 0 */
} bppsa_step_costs;

/* A model, or a part of one, that stays ready to be measured again and again. */
typedef struct bppsa_step_probe bppsa_step_probe;

/* Makes the part that rank r of comm, r % ways among the parts, has of a network with the weights of `whole`. NULL strategy: the
 * model itself, which is the same on every rank of comm and is borrowed. Collective; the other arguments are borrowed too. The
 * weights stay as they are: the learning rate is 0. ERR_ARGUMENT: more ways than the network has tiles, filters or channels;
 * ERR_MEMORY, ERR_COMM; ERR_* of the model. */
bppsa_status bppsa_step_probe_create(bppsa_comm *comm, const bppsa_cnn_network *network, bppsa_model *whole,
                                     const bppsa_layer_strategy *strategy, int64_t ways, const bppsa_step_measuring *how,
                                     bppsa_step_probe **probe);
void bppsa_step_probe_destroy(bppsa_step_probe *probe); /* NULL is legal */
/* Measures: all ranks make the same steps side by side, and do not wait for each other. A whole model's traffic is the bytes of its
 * gradients. Collective; all ranks get the same numbers. ERR_COMM; ERR_* of the model. */
bppsa_status bppsa_step_probe_measure(bppsa_step_probe *probe, bppsa_step_costs *costs);

/* Creates a probe, measures once and destroys it. */
bppsa_status bppsa_step_measure(bppsa_comm *comm, const bppsa_cnn_network *network, bppsa_model *whole,
                                const bppsa_layer_strategy *strategy, int64_t ways, const bppsa_step_measuring *how,
                                bppsa_step_costs *costs);

#ifdef __cplusplus
}
#endif
#endif
