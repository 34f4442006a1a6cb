/* Creates and frees schedules with their times. */
#include "schedule/timed.h"

bppsa_status bppsa_timed_create(bppsa_schedule *list, bppsa_timed *timed) {
  *timed = (bppsa_timed){.list = list};
  bppsa_status status = bppsa_schedule_validate(list);
  status = status == BPPSA_OK ? bppsa_schedule_simulate(list, &timed->times) : status;
  if (status != BPPSA_OK) {
    bppsa_timed_free(timed);
  }
  return status;
}

void bppsa_timed_free(bppsa_timed *timed) {
  if (timed->list != NULL) {
    bppsa_schedule_times_free(&timed->times);
    bppsa_schedule_destroy(timed->list);
  }
  *timed = (bppsa_timed){0};
}
