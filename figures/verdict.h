/* What is concluded from measured rows. */
#ifndef BPPSA_FIGURES_VERDICT_H
#define BPPSA_FIGURES_VERDICT_H

#include "core/json.h"
#include "core/text.h"

/* What wins on the machine that measured, in sentences; noisy points count for nothing. */
void bppsa_figures_verdict(const json_t *document, bppsa_text *text);
/* How its times and the tables' are defined, as HTML. */
extern const char bppsa_figures_definition[];

#endif
