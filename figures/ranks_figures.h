/* Documents of `bench ranks`, which have figures of their own. */
#ifndef BPPSA_FIGURES_RANKS_FIGURES_H
#define BPPSA_FIGURES_RANKS_FIGURES_H

#include "core/base/status.h"
#include "core/files/json.h"

/* The name of the run that makes these figures, and of the benchmark. */
#define BPPSA_FIGURES_RANKS "ranks"

/* Checks that every row of --results has the fields that the figures need. ERR_FORMAT. */
bppsa_status bppsa_ranks_rows_check(const char *path, const json_t *rows);

#endif
