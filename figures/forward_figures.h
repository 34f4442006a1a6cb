/* Documents of `bench forward`, which have figures of their own. */
#ifndef BPPSA_FIGURES_FORWARD_FIGURES_H
#define BPPSA_FIGURES_FORWARD_FIGURES_H

#include "core/base/status.h"
#include "core/files/json.h"

/* The name of the run that makes these figures, and of the benchmark. */
#define BPPSA_FIGURES_FORWARD "forward"

/* Checks that every row of --results has the fields that the figures need. ERR_FORMAT. */
bppsa_status bppsa_forward_rows_check(const char *path, const json_t *rows);

#endif
