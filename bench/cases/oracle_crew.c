/* The ranks of `bench oracle`: the orders that rank 0 gives, one strategy at a time. */
#include "bench/cases/oracle.h"
#include "core/base/alloc.h"

typedef enum { MAKE = 0, VERIFY, TURN, DISMISS } what;
typedef struct {
  int64_t what, runnable;
} order;
enum { ORDER = sizeof(order) / sizeof(int64_t) };

static bool is_refusal(bppsa_status status) {
  return status == BPPSA_ERR_ARGUMENT || status == BPPSA_ERR_UNSUPPORTED;
}

/* This rank's share of an order. A strategy that cannot be made is one on no rank: *refusal says why. */
static bppsa_status carry_out(bppsa_oracle_crew *crew, const order *o, double *residual, bppsa_status *refusal) {
  int64_t count;
  bppsa_status status = BPPSA_OK;
  *refusal = BPPSA_OK;
  switch (o->what) {
  case MAKE:
    bppsa_oracle_entry_close(&crew->entry);
    status = bppsa_oracle_entry_open(&crew->ground, bppsa_oracle_runnables(&count) + o->runnable, &crew->entry);
    *refusal = is_refusal(status) ? status : BPPSA_OK;
    return is_refusal(status) ? BPPSA_OK : status;
  case VERIFY:
    return bppsa_oracle_entry_verify(&crew->entry, residual);
  case TURN:
    return bppsa_oracle_entry_turn(&crew->entry);
  default:
    return BPPSA_OK;
  }
}

static bppsa_status hear(bppsa_comm *world, order *o) {
  const int64_t count = ORDER;
  const bppsa_view view = bppsa_view_make(o, BPPSA_I64, 1, &count);
  return bppsa_comm_broadcast(world, 0, &view);
}

static bppsa_status give(bppsa_oracle_crew *crew, order o, double *residual) {
  bppsa_status refusal;
  BPPSA_TRY(hear(crew->ground.world, &o));
  BPPSA_TRY(carry_out(crew, &o, residual, &refusal));
  return refusal;
}

bppsa_status bppsa_oracle_crew_make(bppsa_oracle_crew *crew, int64_t runnable) {
  return give(crew, (order){.what = MAKE, .runnable = runnable}, NULL);
}

bppsa_status bppsa_oracle_crew_verify(bppsa_oracle_crew *crew, double *residual) {
  return give(crew, (order){.what = VERIFY}, residual);
}

bppsa_status bppsa_oracle_crew_turn(bppsa_oracle_crew *crew) {
  return give(crew, (order){.what = TURN}, NULL);
}

bppsa_status bppsa_oracle_crew_dismiss(bppsa_oracle_crew *crew) {
  return give(crew, (order){.what = DISMISS}, NULL);
}

bppsa_status bppsa_oracle_crew_serve(const bppsa_bench_request *request, const struct bppsa_bench_settings *asked) {
  bppsa_oracle_crew *crew = bppsa_calloc(1, sizeof *crew);
  order o = {.what = MAKE};
  double residual;
  bppsa_status refusal,
      status = crew == NULL ? BPPSA_ERR_MEMORY : bppsa_oracle_ground_open(asked, request->device, &crew->ground);
  while (status == BPPSA_OK && o.what != DISMISS) {
    status = hear(crew->ground.world, &o);
    status = status == BPPSA_OK ? carry_out(crew, &o, &residual, &refusal) : status;
  }
  if (crew != NULL) {
    bppsa_oracle_entry_close(&crew->entry);
    bppsa_oracle_ground_close(&crew->ground);
  }
  bppsa_free(crew);
  return status;
}
