/* What the oracle is asked, and the rows of its answer. */
#ifndef BPPSA_ORACLE_QUERY_H
#define BPPSA_ORACLE_QUERY_H

#include "oracle/collective.h"
#include "oracle/layer_model.h"
#include "oracle/system.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BPPSA_ORACLE_MOST_CUTS = 127 };

/* The phases on which an epoch's time is spent. */
typedef enum {
  BPPSA_PHASE_FORWARD = 0,
  BPPSA_PHASE_BACKWARD,
  BPPSA_PHASE_UPDATE,
  BPPSA_PHASE_GRADIENT_EXCHANGE, /* allreduce of the weight gradients */
  BPPSA_PHASE_COLLECTIVES,       /* layer by layer: filter, channel, and gathered layers */
  BPPSA_PHASE_HALO,
  BPPSA_PHASE_POINT_TO_POINT, /* between stages or ranks; in a simulated pipeline only what no computing hides */
  BPPSA_PHASE_WAIT,           /* bubbles: a processor waits for what others compute */
  BPPSA_PHASE_COUNT
} bppsa_oracle_phase;

const char *bppsa_oracle_phase_name(int32_t phase); /* "gradient_exchange" */

typedef struct {
  const bppsa_oracle_model *model;
  const bppsa_oracle_system *system;
  int64_t batch;         /* b: samples of a mini-batch, with weak scaling per processor */
  int64_t samples;       /* D: samples of an epoch */
  int64_t item_bytes;    /* delta */
  double memory_reuse;   /* gamma */
  bool strong;           /* the mini-batch stays b whatever p; weak: it is b p. filter and channel scale strongly always (ParaDL
                          * 4.2), and so do recurrent scans */
  int64_t micro_batches; /* S, for pipelines; 0: 4 p, at most the mini-batch */
  int64_t chunks;        /* stages that a processor holds, for interleaved; 1 or more */
  /* The cut of a pipeline, borrowed: the first layer of each stage but the first. The oracle uses it if it has the right number
   * of stages (p - 1 layers, or p chunks - 1 for interleaved), and otherwise cuts evenly. */
  int64_t cuts;
  const int64_t *cut;
  int64_t group; /* p2 of hybrid strategies; 0: the processors of a node, if model and batch allow */
  bppsa_collective collective;
  double slowdown; /* how much longer computing takes; the system's level sets it for each row */
} bppsa_oracle_query;

/* Are spreads known, for the system's numbers or for the model's measurements? */
bool bppsa_oracle_spreads(const bppsa_oracle_query *query);
/* Returns the defaults: D of the model, 4 bytes, gamma of the system, weak scaling, b = 32, two chunks. */
bppsa_oracle_query bppsa_oracle_query_default(const bppsa_oracle_model *model, const bppsa_oracle_system *system);

typedef struct {
  const char *strategy;
  int64_t processors, groups; /* p; p1 of hybrid strategies, otherwise 1 */
  int64_t mini_batch, micro_batches;
  double phase_s[BPPSA_PHASE_COUNT];                     /* seconds of an epoch */
  bppsa_oracle_spread phase_spread_s[BPPSA_PHASE_COUNT]; /* range of each in seconds; the slowdown's spread is not in it */
  bool side_by_side; /* computing was measured while all ranks computed, so it includes the slowdown's spread */
  double compute_s, communication_s, waiting_s, time_s; /* time_s: their sum; NaN where p is beyond the limit */
  double busy;                                          /* how many processors compute at once, on average */
  double speedup;                            /* time_s of serial (one processor, mini-batches of b) over this time_s; NaN: none */
  bppsa_oracle_spread spread_s;              /* range of time_s, by the system's spread; high 0: not known */
  double model_s;                            /* Chimera's equation 1; NaN for others */
  double memory_bytes;                       /* on the fullest processor; NaN where p is beyond the limit */
  int64_t limit;                             /* the most processors that the strategy can use */
  int64_t chunks;                            /* stages that a processor holds, for interleaved; otherwise 0 */
  int64_t cuts, cut[BPPSA_ORACLE_MOST_CUTS]; /* of pipelines of up to 128 stages: the first layers of all but the first */
  bool feasible;
  char reason[160]; /* why it is not feasible; otherwise "" */
} bppsa_oracle_row;

#ifdef __cplusplus
}
#endif
#endif
