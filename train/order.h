/* Which samples an epoch visits, and in which order: shuffled, as the data stand, or as the caller says. */
#ifndef BPPSA_TRAIN_ORDER_H
#define BPPSA_TRAIN_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { BPPSA_ORDER_SHUFFLED = 0, BPPSA_ORDER_DATA, BPPSA_ORDER_GIVEN } bppsa_order_kind;

typedef struct {
  bppsa_order_kind kind;

  /* of a given order: */
  const int64_t
      *indices;      /* [M], the same in every epoch, or [E][M], a row an epoch; borrowed. Any samples, any number of times */
  int64_t epochs;    /* E; 0: indices are [M] */
  int64_t samples;   /* M >= 1, of an epoch */
  const char *where; /* names it in messages; NULL: "order" */
} bppsa_order;

/* Samples of an epoch of a set with `count` samples to train on. */
int64_t bppsa_order_samples(const bppsa_order *order, int64_t count);
/* ERR_ARGUMENT: an index outside 0 .. count-1 (the message gives its position), fewer rows than the `epochs` that are wanted. */
bppsa_status bppsa_order_check(const bppsa_order *order, int64_t count, int64_t epochs);
/* The order of epoch `epoch`, from 1: indices, size bppsa_order_samples. seed: of the shuffling (bppsa_shuffle). */
void bppsa_order_fill(const bppsa_order *order, uint64_t seed, int64_t epoch, int64_t count, int64_t *indices);
/* What a resumed run must agree with: "shuffled", "data", or the given one's shape and CRC-32. Returns text. */
const char *bppsa_order_text(const bppsa_order *order, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
