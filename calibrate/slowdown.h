/* Measures how much longer ranks compute when all of them do, and how far that ratio spreads beside whatever else runs. */
#ifndef BPPSA_CALIBRATE_SLOWDOWN_H
#define BPPSA_CALIBRATE_SLOWDOWN_H

#include "core/measure/rounds.h"
#include "terminal/progress.h"

typedef struct {
  /* Sets the seconds in which `at_once` ranks make their passes side by side; all ranks get the same number. */
  bppsa_status (*time)(void *context, int64_t at_once, double *seconds);
  void *context;
  int64_t ranks;
  bool quick;                    /* no more rounds than the confidence takes */
  double budget_s;               /* of all rounds; the fewest rounds are made whatever they take */
  bppsa_progress_line *progress; /* NULL: nothing is shown */
} bppsa_slowdown_measuring;

typedef struct {
  bppsa_spread slowdown; /* 1 or more */
  bppsa_spread alone_s;  /* seconds of one rank by itself */
} bppsa_slowdown;

/* Makes rounds, in each of which first one rank and then all of them make their passes. The slowdown of a round is the ratio of
 * both. Rounds go on until the slowdown is known within a tenth (bppsa_spread, core/measure/rounds.h): 6 to 31 of them, or as many
 * as fit into the budget. ERR_* of `time`. */
bppsa_status bppsa_slowdown_measure(const bppsa_slowdown_measuring *how, bppsa_slowdown *found);

#endif
