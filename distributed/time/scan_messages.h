/* The messages of a scan over ranks, one by one and in rounds, as distributed/time/scan_ranks.h sends them unless a product is
 * useless. For plans and for tests. */
#ifndef BPPSA_DISTRIBUTED_TIME_SCAN_MESSAGES_H
#define BPPSA_DISTRIBUTED_TIME_SCAN_MESSAGES_H

#include "core/base/status.h"
#include "scan/algorithm.h"

typedef struct {
  int32_t round; /* one more than the latest round in which its sender has sent or received a message before; the first is 1 */
  int32_t from, to;
  /* count > 0: the product of the steps of ranks first .. first + count - 1. 0: the gradient in front of rank `first` */
  int32_t first, count;
} bppsa_scan_message;

/* Writes the messages in the order of their rounds; messages: room for 2 * (ranks - 1). algorithm: linear, chunked or blelloch.
 * ranks >= 1: those that hold steps. ERR_UNSUPPORTED: another algorithm. ERR_MEMORY. */
bppsa_status bppsa_ranks_scan_messages(bppsa_scan_algorithm algorithm, int32_t ranks, bppsa_scan_message *messages,
                                       int64_t *count);

#endif
