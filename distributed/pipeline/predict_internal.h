/* Predicted weights in GPU memory. Internal. */
#ifndef BPPSA_DISTRIBUTED_PIPELINE_PREDICT_INTERNAL_H
#define BPPSA_DISTRIBUTED_PIPELINE_PREDICT_INTERNAL_H

#include "core/compute/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers that all weights have in common. (pipeline.h) */
typedef struct {
  bool moments;           /* the optimiser's state is Adam's m and v */
  double rate;            /* s lr; with moments s lr / (1 - β1^k) */
  double second, epsilon; /* with moments: √(1 - β2^k), ε */
} predict_rule;

/* Queues the prediction of all weights of a GPU model. first, second: the optimiser's state, laid out as the weights; second NULL:
 * there is none. predicted: likewise. ERR_CUDA. */
bppsa_status bppsa_predict_queue(const bppsa_model *model, const predict_rule *rule, const void *first, const void *second,
                                 void *predicted);

#ifdef __cplusplus
}
#endif
#endif
