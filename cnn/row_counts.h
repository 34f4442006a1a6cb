/* Counts of products of a network's transposed Jacobians, for symbolic scan plans (scan/plan.h), without patterns in memory.
 *
 * In C = A B an entry of A's row r selects a row of B, and takes 2 FLOPs for each entry of this row. C has an entry (r, c) where a
 * walk from r through A and B ends at c (cnn/rows.h). Rows at positions of one class, and of one channel, have equal counts, so
 * that one of them is counted for all: that is exact, and takes as much work as there are classes times channels. Where this is
 * more than a given amount of work, rows are drawn at random instead, independently, as many from each tensor of the live set
 * as it has of all rows, and some of their entries. The estimates are unbiased; each has its standard error.
 */
#ifndef BPPSA_CNN_ROW_COUNTS_H
#define BPPSA_CNN_ROW_COUNTS_H

#include "cnn/network.h"
#include "scan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Words that are read or written to count the rows of one product: about a second's work. */
#define BPPSA_CNN_COUNT_WORK 1.5e9

typedef struct {
  const bppsa_cnn_network *network; /* borrowed until the last plan is made */
  const uint8_t *const *masks; /* masks[i]: a byte for each weight of layer i, or NULL; masks may be NULL. Read by create alone */
  bool input;                  /* the gradient of the network's input is wanted */
  uint64_t seed;               /* of the rows that are drawn */
  double work;                 /* the most words for one product; beyond that rows are drawn */
  int64_t memory_limit;        /* bytes; 0: any number */
} bppsa_cnn_counter_config;

typedef struct bppsa_cnn_counter bppsa_cnn_counter;

/* ERR_ARGUMENT: more bytes than the limit, which the message says; ERR_MEMORY; errors of bppsa_cnn_live_create and
 * bppsa_cnn_count_layer. */
bppsa_status bppsa_cnn_counter_create(const bppsa_cnn_counter_config *config, bppsa_cnn_counter **counter);
void bppsa_cnn_counter_destroy(bppsa_cnn_counter *counter); /* NULL is legal */
/* The patterns of J_1ᵀ .. J_nᵀ by their numbers alone, without arrays: sizes, entries and ones. Borrowed. */
const bppsa_csr *const *bppsa_cnn_counter_patterns(const bppsa_cnn_counter *counter);
/* Counts for a plan over these patterns; it keeps what it has counted. Its errors: ERR_ARGUMENT beyond the memory limit;
 * ERR_MEMORY. */
bppsa_scan_counter bppsa_cnn_counter_of(bppsa_cnn_counter *counter);

#ifdef __cplusplus
}
#endif
#endif
