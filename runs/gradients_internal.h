/* What gradients with and without ranks share. Internal. */
#ifndef BPPSA_RUNS_GRADIENTS_INTERNAL_H
#define BPPSA_RUNS_GRADIENTS_INTERNAL_H

#include "runs/gradients.h"

/* Lists the results: every parameter's gradient, input, h0, loss. Their views borrow from the model and from g. ERR_MEMORY. */
bppsa_status bppsa_gradients_list(bppsa_gradients *g);
/* Returns ERR_NUMERIC, with a message that names the first listed value that is not finite, if there is one. */
bppsa_status bppsa_gradients_check(const bppsa_gradients *g);

#endif
