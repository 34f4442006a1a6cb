/* Learning rates that change while a model is trained, by PyTorch's equations.
 *
 *     constant   lr
 *     step       lr γ^⌊t / s⌋                                  torch.optim.lr_scheduler.StepLR
 *     cosine     min + (lr - min) (1 + cos(π t / period)) / 2     CosineAnnealingLR in its closed form
 *     warm-up    times min(1, k / warmup)                         k = 1, 2, … the optimiser's step
 *
 * t = 0, 1, … counts epochs completed in a run by epochs, and steps before this one in a run by iterations. The warm-up counts
 * steps in both; t counts during the warm-up too.
 */
#ifndef BPPSA_TRAIN_RATE_H
#define BPPSA_TRAIN_RATE_H

#include <stdint.h>

#include "core/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { BPPSA_RATE_CONSTANT = 0, BPPSA_RATE_STEP, BPPSA_RATE_COSINE, BPPSA_RATE_COUNT } bppsa_rate_kind; /* as above */

/* "constant", "step" or "cosine" to the kind; ERR_ARGUMENT for anything else. */
bppsa_status bppsa_rate_parse(const char *text, bppsa_rate_kind *kind);
const char *bppsa_rate_name(bppsa_rate_kind kind);

typedef struct {
  bppsa_rate_kind kind;
  int64_t step_size; /* step: s >= 1, epochs or iterations between two decreases */
  double gamma;      /* step: γ > 0, the factor of a decrease */
  int64_t period;    /* cosine: >= 1, epochs or iterations from lr to min (T_max); 0: as many as the whole run has */
  double min;        /* cosine: 0 <= min <= lr */
  int64_t warmup;    /* number of steps; 0: no warm-up */
} bppsa_rate_config;

/* Constant, without warm-up; step_size 1, γ 0.1, the run's length as period, min 0. */
bppsa_rate_config bppsa_rate_config_default(void);

/* ERR_ARGUMENT names the setting that is out of range. */
bppsa_status bppsa_rate_check(const bppsa_rate_config *config, double lr);

/* The rate of optimiser step `step` (from 1) after `done` epochs or iterations. The period must be set. */
double bppsa_rate_at(const bppsa_rate_config *config, double lr, int64_t step, int64_t done);

#ifdef __cplusplus
}
#endif
#endif
