/* Which samples an epoch visits, and in which order: shuffled, in the order of the data, or in the caller's order. */
#ifndef BPPSA_TRAIN_ORDER_H
#define BPPSA_TRAIN_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "core/compute/device_buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { BPPSA_ORDER_SHUFFLED = 0, BPPSA_ORDER_DATA, BPPSA_ORDER_GIVEN } bppsa_order_kind; /* where an order comes from */

typedef struct {
  bppsa_order_kind kind;

  /* For an order given by the caller: */
  const int64_t
      *indices;      /* [M], the same in every epoch, or [E][M], a row an epoch; borrowed. Any samples, any number of times */
  int64_t epochs;    /* E; 0: indices are [M] */
  int64_t samples;   /* M >= 1, in an epoch */
  const char *where; /* names the order in messages; NULL: "order" */
} bppsa_order;

/* Loads an order that a caller gives: an NPY file of int64 [M] or [E][M]. *indices holds the numbers, which the order borrows
 * together with the path (bppsa_buffer_free). ERR_SHAPE: another dtype or shape, or empty; errors of bppsa_npy_load. */
bppsa_status bppsa_order_load(const char *path, bppsa_buffer *indices, bppsa_order *order);
/* The number of samples in an epoch of a set with `count` samples to train on. */
int64_t bppsa_order_samples(const bppsa_order *order, int64_t count);
/* ERR_ARGUMENT: an index outside 0 .. count-1 (the message gives its position), or fewer rows than `epochs`. */
bppsa_status bppsa_order_check(const bppsa_order *order, int64_t count, int64_t epochs);
/* Writes the order of epoch `epoch`, from 1, to `indices`, size bppsa_order_samples. seed: of the shuffling (bppsa_shuffle). */
void bppsa_order_fill(const bppsa_order *order, uint64_t seed, int64_t epoch, int64_t count, int64_t *indices);
/* The text on which a resumed run must agree: "shuffled", "data", or the shape and CRC-32 of the given order. Returns text. */
const char *bppsa_order_text(const bppsa_order *order, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
