/* How far old weights, and weights that were predicted, are from the weights that come (SpecTrain, section 3.2 and figure 8).
 *
 * Training goes through the weights W_1, W_2, … A stage of a pipeline that works s updates too early has W_{t-s} in the place of
 * W_t; one that predicts has Ŵ_t, which the executor makes of W_{t-s} (distributed/pipeline/pipeline.h). A bppsa_staleness follows
 * a run on one device and compares both with W_t, for s = 1, 2, …
 */
#ifndef BPPSA_DISTRIBUTED_PIPELINE_STALENESS_H
#define BPPSA_DISTRIBUTED_PIPELINE_STALENESS_H

#include "core/compute/model.h"
#include "train/log.h"
#include "train/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_staleness bppsa_staleness;

/* Makes room for s = 1 .. ahead: ahead (ahead + 3) / 2 copies of all parameters. The model is borrowed. ERR_ARGUMENT: ahead is not
 * 1 .. BPPSA_MOST_AHEAD. ERR_UNSUPPORTED: a model on a GPU. ERR_MEMORY. */
bppsa_status bppsa_staleness_create(const bppsa_model *model, int64_t ahead, bppsa_staleness **staleness);
void bppsa_staleness_destroy(bppsa_staleness *staleness); /* NULL is legal */

/* Called after every update. Compares the present weights W_t with W_{t-s} and with the predictions that were made then, as the
 * root mean square of the differences of all parameters: errors->stale[s - 1] and errors->predicted[s - 1]; NaN in the first s
 * calls. Then makes the predictions of W_{t+1}, W_{t+2}, … for later calls. optimizer: of the model; config: its configuration,
 * with the learning rate of the next update. ERR_ARGUMENT: NULL. */
bppsa_status bppsa_staleness_update(bppsa_staleness *staleness, bppsa_optimizer *optimizer, const bppsa_optimizer_config *config,
                                    bppsa_weight_errors *errors);

#ifdef __cplusplus
}
#endif
#endif
