/* Documents of bench/scripts/spectrain.py, which have figures of their own. */
#ifndef BPPSA_FIGURES_STALENESS_FIGURES_H
#define BPPSA_FIGURES_STALENESS_FIGURES_H

#include "core/base/status.h"
#include "core/files/json.h"

/* The name of the run that makes these figures, and what the documents say under "bench". */
#define BPPSA_FIGURES_STALENESS "staleness"

/* Checks that every row of --results has the fields that the figures need. ERR_FORMAT. */
bppsa_status bppsa_staleness_rows_check(const char *path, const json_t *rows);

#endif
