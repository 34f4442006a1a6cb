/* Turns what ranks measured on this machine into the oracle's models and shares. */
#ifndef BPPSA_CALIBRATE_MEASURED_MODEL_H
#define BPPSA_CALIBRATE_MEASURED_MODEL_H

#include "calibrate/step_costs.h"
#include "distributed/pipeline/chain_costs.h"
#include "oracle/layer_model.h"

/* How many of the ranks have processors of their own, for the threads of this device; 1 to all of them. */
int64_t bppsa_ranks_at_once(const bppsa_comm *comm, const bppsa_device *device);
/* The share of a rank that was measured with `batch` samples at once, `ways` parts and `ranks` ranks side by side. strategy: of
 * oracle/share.h. */
bppsa_oracle_share bppsa_step_share(const bppsa_step_costs *costs, const char *strategy, int64_t ways, int64_t ranks,
                                    double batch);
/* Makes a model of a recurrent chain, its head behind its layers, without times; the caller frees it with bppsa_oracle_model_free.
 * ERR_MEMORY. */
bppsa_status bppsa_chain_model(const bppsa_chain *chain, const char *name, bppsa_oracle_model *model);
/* The range of a layer's cost in seconds for one sample; the cost was measured with `samples` of them. */
bppsa_oracle_spread bppsa_chain_spread(const bppsa_chain_costs *costs, bppsa_schedule_cost cost, int64_t layer, double samples);
/* Gives the model's layers, as many as the costs have, the times of micro-batches of `samples` samples, with their spreads. */
void bppsa_chain_layers(const bppsa_chain_costs *costs, double samples, bppsa_oracle_model *model);

#endif
