/* Seconds of messages and collectives by the alpha-beta model (Hockney), as ParaDL uses it (section 4.3). m: bytes, p: processors.
 */
#ifndef BPPSA_ORACLE_COLLECTIVE_H
#define BPPSA_ORACLE_COLLECTIVE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  double alpha_s, beta_s; /* beta_s includes contention */
} bppsa_link;

typedef enum {
  BPPSA_COLLECTIVE_AUTO = 0,
  BPPSA_COLLECTIVE_RING,
  BPPSA_COLLECTIVE_TREE,
  BPPSA_COLLECTIVE_ORDERED /* adds up in the fixed order of comm/ordered.h */
} bppsa_collective;

/* Returns the seconds of one message, alpha + m beta. */
double bppsa_point_to_point_s(bppsa_link link, double m);
/* Returns the seconds of an allreduce; m: the whole buffer. Ring: 2 (p - 1) (alpha + m beta / p). Tree: the buffer goes up and
 * down binary trees in k chunks, 2 (ceil(log2 p) + k) (alpha + m beta / k), with the k >= 1 that is fastest. (ParaDL's footnote 4
 * prints "m m/2k beta" after Sanders et al. 2009: each of two trees carries half the buffer, so a chunk has m / 2k bytes, but
 * each processor sends two of them in a step.) Auto: the faster of the two, which is a ring for large buffers and a tree for
 * small ones. Ordered: whole buffers go up a binary tree and their sum comes down again, 2 ceil(log2 p) (alpha + m beta). */
double bppsa_allreduce_s(bppsa_collective how, bppsa_link link, int64_t p, double m);
/* Returns the seconds of an allgather, (p - 1) (alpha + m beta); m: the segment of one processor. */
double bppsa_allgather_s(bppsa_link link, int64_t p, double m);
/* Returns the seconds of the first half of a ring's allreduce, (p - 1) (alpha + m beta / p); m: the whole buffer. */
double bppsa_reduce_scatter_s(bppsa_link link, int64_t p, double m);

#ifdef __cplusplus
}
#endif
#endif
