/* Sums of what passes in chunks of time did (python/account.h). */
#include "python/account.h"

#include <string.h>

struct bppsa_python_account {
  bppsa_forward_stats forward;
  bppsa_backward_stats backward;
  char plans[2][BPPSA_BACKWARD_TEXT]; /* "" while there is no pass */
};

_Static_assert(BPPSA_FORWARD_TEXT <= BPPSA_BACKWARD_TEXT, "an account's texts hold both plans");

int64_t bppsa_python_account_bytes(void) {
  return (int64_t)sizeof(bppsa_python_account);
}

void bppsa_python_account_add_forward(bppsa_python_account *account, const bppsa_forward_plan *plan,
                                      const bppsa_forward_stats *pass) {
  if (plan != NULL) {
    bppsa_forward_stats_add(&account->forward, pass);
    (void)bppsa_forward_plan_text(plan, account->plans[0], sizeof account->plans[0]);
  }
}

void bppsa_python_account_add_backward(bppsa_python_account *account, const bppsa_backward_plan *plan,
                                       const bppsa_backward_stats *pass) {
  if (plan != NULL) {
    bppsa_backward_stats_add(&account->backward, pass);
    (void)bppsa_backward_plan_text(plan, account->plans[1], sizeof account->plans[1]);
  }
}

const char *bppsa_python_account_read(const bppsa_python_account *account, int backward, double numbers[BPPSA_PYTHON_NUMBERS]) {
  const bppsa_forward_stats *f = &account->forward;
  const bppsa_backward_stats *b = &account->backward;
  const double of_forward[BPPSA_PYTHON_NUMBERS] = {
      f->speculated,     (double)f->passes, (double)f->path, (double)f->possible, f->work,
      (double)f->rounds, (double)f->mended, f->gap,          (double)f->reseeded, (double)f->tails};
  const double of_backward[BPPSA_PYTHON_NUMBERS] = {b->speculated, (double)b->passes, (double)b->path,   (double)b->possible,
                                                    b->work,       (double)b->rounds, (double)b->mended, b->gap,
                                                    b->given_up,   b->perturbation};
  if (account->plans[backward][0] == '\0') {
    return NULL;
  }
  memcpy(numbers, backward ? of_backward : of_forward, sizeof of_forward);
  return account->plans[backward];
}
