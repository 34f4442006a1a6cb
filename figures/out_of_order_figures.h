/* Documents of bench/scripts/out_of_order.py, which have figures of their own. */
#ifndef BPPSA_FIGURES_OUT_OF_ORDER_FIGURES_H
#define BPPSA_FIGURES_OUT_OF_ORDER_FIGURES_H

#include "core/base/status.h"
#include "core/files/json.h"

/* The name of the run that makes these figures, and what the documents say under "bench". */
#define BPPSA_FIGURES_OUT_OF_ORDER "out_of_order"

/* Checks that every row of --results has the fields that the figures need. ERR_FORMAT. */
bppsa_status bppsa_out_of_order_rows_check(const char *path, const json_t *rows);

#endif
