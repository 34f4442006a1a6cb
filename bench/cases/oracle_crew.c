/* The ranks of `bench oracle`: the orders that rank 0 gives, one strategy at a time. */
#include "bench/cases/bench_oracle.h"
#include "core/base/alloc.h"

static bppsa_status make(void *context, const int64_t *runnable) {
  bppsa_oracle_crew *crew = context;
  bppsa_oracle_entry_close(&crew->entry);
  return bppsa_oracle_entry_open(&crew->ground, bppsa_oracle_runnables(&(int64_t){0}) + *runnable, &crew->entry);
}

static bppsa_status verify(void *context, const int64_t *none) {
  bppsa_oracle_crew *crew = context;
  (void)none;
  return bppsa_oracle_entry_verify(&crew->entry, &crew->residual);
}

static bppsa_status turn(void *context, const int64_t *none) {
  (void)none;
  return bppsa_oracle_entry_turn(&((bppsa_oracle_crew *)context)->entry);
}

enum { MAKE = 0, VERIFY, TURN };
static const bppsa_crew_action actions[] = {[MAKE] = {make, true}, [VERIFY] = {verify, false}, [TURN] = {turn, false}};

static bppsa_status order(bppsa_oracle_crew *crew, int64_t action, int64_t runnable) {
  return bppsa_crew_order(crew->ground.world, actions, crew, action, (const int64_t[BPPSA_CREW_NUMBERS]){runnable});
}

bppsa_status bppsa_oracle_crew_make(bppsa_oracle_crew *crew, int64_t runnable) {
  return order(crew, MAKE, runnable);
}

bppsa_status bppsa_oracle_crew_verify(bppsa_oracle_crew *crew, double *residual) {
  BPPSA_TRY(order(crew, VERIFY, 0));
  *residual = crew->residual;
  return BPPSA_OK;
}

bppsa_status bppsa_oracle_crew_turn(bppsa_oracle_crew *crew) {
  return order(crew, TURN, 0);
}

bppsa_status bppsa_oracle_crew_serve(const bppsa_bench_request *request, const struct bppsa_bench_settings *asked) {
  bppsa_oracle_crew *crew = bppsa_calloc(1, sizeof *crew);
  if (crew == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_status status = bppsa_oracle_ground_open(asked, request->device, &crew->ground);
  status = status == BPPSA_OK ? bppsa_crew_serve(crew->ground.world, actions, crew) : status;
  bppsa_oracle_entry_close(&crew->entry);
  bppsa_oracle_ground_close(&crew->ground);
  bppsa_free(crew);
  return status;
}
