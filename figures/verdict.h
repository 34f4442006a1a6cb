/* The conclusions from measured rows. */
#ifndef BPPSA_FIGURES_VERDICT_H
#define BPPSA_FIGURES_VERDICT_H

#include "core/base/text.h"
#include "core/files/json.h"

/* Writes in sentences which method wins on the machine that measured; ignores noisy points. */
void bppsa_figures_verdict(const json_t *document, bppsa_text *text);
/* The definition of the times in the verdict and in the tables, as HTML. */
extern const char bppsa_figures_definition[];

#endif
