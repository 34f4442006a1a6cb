/* The ranks of a benchmark. Rank 0 drives it; the other ranks wait for its orders (a broadcast over all ranks), and every rank
 * carries out its part of each. */
#ifndef BPPSA_BENCH_CASES_CREW_H
#define BPPSA_BENCH_CASES_CREW_H

#include "comm/comm.h"

enum { BPPSA_CREW_NUMBERS = 3 };

/* An action that rank 0 orders and every rank carries out, with the numbers of the order. */
typedef struct {
  bppsa_status (*carry_out)(void *crew, const int64_t *numbers);
  bool refusable; /* ERR_ARGUMENT and ERR_UNSUPPORTED are refusals: all ranks find the same, and the crew goes on */
} bppsa_crew_action;

/* On rank 0: every rank carries out actions[action]. After an error that is no refusal, ranks can only end. ERR_*. */
bppsa_status bppsa_crew_order(bppsa_comm *world, const bppsa_crew_action *actions, void *crew, int64_t action,
                              const int64_t numbers[BPPSA_CREW_NUMBERS]);
/* On rank 0: the other ranks return from serving. */
bppsa_status bppsa_crew_dismiss(bppsa_comm *world);
/* On the other ranks: carries out orders of the same table until rank 0 dismisses them. ERR_*. */
bppsa_status bppsa_crew_serve(bppsa_comm *world, const bppsa_crew_action *actions, void *crew);

#endif
