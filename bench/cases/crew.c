/* An order is one message: which action, and its numbers. */
#include "bench/cases/crew.h"

#include <string.h>

typedef struct {
  int64_t action, numbers[BPPSA_CREW_NUMBERS];
} order;

enum { DISMISS = -1 };

static bppsa_status tell(bppsa_comm *world, order *o) {
  const int64_t count = sizeof *o / sizeof(int64_t);
  const bppsa_view view = bppsa_view_make(o, BPPSA_I64, 1, &count);
  return bppsa_comm_broadcast(world, 0, &view);
}

bppsa_status bppsa_crew_order(bppsa_comm *world, const bppsa_crew_action *actions, void *crew, int64_t action,
                              const int64_t numbers[BPPSA_CREW_NUMBERS]) {
  order o = {.action = action};
  memcpy(o.numbers, numbers, sizeof o.numbers);
  BPPSA_TRY(tell(world, &o));
  return actions[action].carry_out(crew, o.numbers);
}

bppsa_status bppsa_crew_dismiss(bppsa_comm *world) {
  return tell(world, &(order){.action = DISMISS});
}

bppsa_status bppsa_crew_serve(bppsa_comm *world, const bppsa_crew_action *actions, void *crew) {
  for (;;) {
    order o = {.action = DISMISS};
    BPPSA_TRY(tell(world, &o));
    if (o.action == DISMISS) {
      return BPPSA_OK;
    }
    const bppsa_status status = actions[o.action].carry_out(crew, o.numbers);
    const bool refused = actions[o.action].refusable && (status == BPPSA_ERR_ARGUMENT || status == BPPSA_ERR_UNSUPPORTED);
    BPPSA_TRY(refused ? BPPSA_OK : status);
  }
}
