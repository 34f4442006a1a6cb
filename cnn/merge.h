/* Ones as entries: the form in which a graph's elements are multiplied on a GPU, whose products and mat-vecs know entries alone.
 * Internal. */
#ifndef BPPSA_CNN_MERGE_H
#define BPPSA_CNN_MERGE_H

#include "jacobian/csr.h"

typedef struct {
  bppsa_csr pattern;       /* of entries and ones, without ones beside it */
  int64_t *places;         /* of each of the own entries among all, size nnz of the pattern that it was made of */
  unsigned char *constant; /* the sum of the ones at each entry, size pattern.nnz */
} bppsa_csr_merged;

/* Merges a pattern, which has columns, with the ones beside it. ERR_MEMORY. */
bppsa_status bppsa_csr_merge_ones(const bppsa_csr *csr, bppsa_csr_merged *merged);
void bppsa_csr_merged_free(bppsa_csr_merged *merged); /* a zeroed one is legal */

#endif
