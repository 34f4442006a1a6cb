/* What the passes in chunks of time of one PyTorch module did, summed up. */
#ifndef BPPSA_PYTHON_ACCOUNT_H
#define BPPSA_PYTHON_ACCOUNT_H

#include <stdint.h>

#include "recurrent/parallel_backward.h"

/* Sums of what passes of any layers did: memory of the caller's, for doubles, so many bytes, which begin as zeros. */
typedef struct bppsa_python_account bppsa_python_account;
int64_t bppsa_python_account_bytes(void);
/* Adds a pass of that plan; NULL: one that was not planned in chunks, and adds nothing. */
void bppsa_python_account_add_forward(bppsa_python_account *account, const bppsa_forward_plan *plan,
                                      const bppsa_forward_stats *pass);
void bppsa_python_account_add_backward(bppsa_python_account *account, const bppsa_backward_plan *plan,
                                       const bppsa_backward_stats *pass);
/* The sums of bppsa_forward_stats: speculated, passes, path, possible, work, rounds, mended, gap, reseeded, tails; or the sums of
 * bppsa_backward_stats: the same up to gap, then given_up, perturbation. Returns the plan of the latest pass in words, which
 * lives as long as the account; NULL if there was none: numbers are then untouched. */
enum { BPPSA_PYTHON_NUMBERS = 10 };
const char *bppsa_python_account_read(const bppsa_python_account *account, int backward, double numbers[BPPSA_PYTHON_NUMBERS]);

#endif
