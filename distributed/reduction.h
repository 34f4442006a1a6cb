/* How data parallelism adds up gradients, and the numbers that travel with them. */
#ifndef BPPSA_DISTRIBUTED_REDUCTION_H
#define BPPSA_DISTRIBUTED_REDUCTION_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"

typedef enum { BPPSA_REDUCTION_ORDERED = 0, BPPSA_REDUCTION_LIBRARY } bppsa_reduction; /* a fixed tree; the transport's own */

typedef struct {
  bppsa_reduction reduction;
  int64_t batch;        /* samples of a full batch, of all ranks together, >= 1 */
  int64_t bucket_bytes; /* gradients in a bucket: a bucket is complete when it has so many, >= 1 */
  /* k: the layers whose weight gradients come last; 0: none. -1: the fastest k, measured during the first steps */
  int64_t reverse_first;
  bool in_order; /* buckets set out as they become complete; otherwise the bucket with the first parameters goes first */
  /* Ranks along time, where each sample is the work of several ranks; NULL: none. The model is then one of bppsa_split_time_create
   * on `time`, of steps first_step + 1 .. first_step + steps, and each rank's share of the batch is one block. world: all ranks. */
  bppsa_comm *time, *world;
  int64_t first_step, steps;
  bool time_blocks;      /* the model's weight gradients have the same bits for every number of ranks along time */
  int64_t micro_batches; /* along time: groups of samples, whose gradients are added up one after the other */
  int32_t tag;           /* the first of its messages' tags, of which it uses one for each bucket and one more */
} bppsa_data_parallel_config;

/* Sums of the blocks' numbers that travel with the gradients. */
typedef struct {
  double loss;    /* Σ of the blocks' shares of the loss (bppsa_loss_part) */
  double correct; /* rows */
  double rows;    /* counted rows */
  double redone;  /* scan products */
  double weight;  /* of the counted rows */
} bppsa_data_parallel_sums;

#endif
