/* The measured step of a rank if ranks share a model (bppsa calibrate, calibrate/step_costs.h). Part of a layer seldom takes the
 * same part of its time, so projections for that machine use these times. */
#ifndef BPPSA_ORACLE_SHARE_H
#define BPPSA_ORACLE_SHARE_H

#include "oracle/spread.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BPPSA_ORACLE_NAME = 48, BPPSA_ORACLE_MOST_SHARES = 256 };

/* Measurements of the model cut into `ways` parts, while `ranks` ranks computed side by side; strategy "data" with one part is
 * the whole model. Times are those of computing; the other numbers count operations and their bytes. */
typedef struct {
  char strategy[BPPSA_ORACLE_NAME]; /* "data", "spatial", "filter", "channel" */
  double ways, ranks;
  double forward_s, backward_s, update_s; /* seconds of one sample; update_s: of one update */
  double exchange_s; /* "data": adding up all gradients of an iteration, with the copies to buckets and back; otherwise 0 */
  double allgathers, sums, messages;                 /* per iteration; sums: of activations and input gradients */
  double allgather_bytes, sum_bytes, message_bytes;  /* of one sample; of a rank's own segments; of messages that it receives */
  double tile_gradient_bytes, weight_gradient_bytes; /* per iteration: added up within a group, and between groups */
  bppsa_oracle_spread forward_spread, backward_spread, update_spread, exchange_spread; /* range of the times, in seconds */
} bppsa_oracle_share;

/* Reads an object with a member for each of these numbers, and "spread" with two numbers for any of the times. ERR_FORMAT names
 * what is missing or wrong. */
bppsa_status bppsa_oracle_share_parse(const char *where, const json_t *object, bppsa_oracle_share *share);
/* Makes such an object from the share; NULL when out of memory. */
json_t *bppsa_oracle_share_json(const bppsa_oracle_share *share);

#ifdef __cplusplus
}
#endif
#endif
