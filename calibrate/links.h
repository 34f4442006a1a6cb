/* What messages and collective operations of ranks cost on this machine: an alpha and a beta each, fitted over sizes by the
 * formulas of oracle/collective.h. */
#ifndef BPPSA_CALIBRATE_LINKS_H
#define BPPSA_CALIBRATE_LINKS_H

#include "comm/comm.h"
#include "oracle/system.h"

enum { BPPSA_LINK_SIZES = 7, BPPSA_LINK_SIZES_QUICK = 4 };

typedef struct {
  double bytes; /* of the buffer; of an allgather, of one rank's segment */
  double
      median_s; /* from the last rank's coming to the last one's leaving; between machines, on rank 0. Of a probe its average */
  double low_s, high_s; /* between which times the median lies (bppsa_spread_of) */
  double fitted_s;      /* by the fit's alpha and beta */
} bppsa_link_point;

typedef struct {
  bppsa_oracle_operation operation;
  int64_t ranks;
  bppsa_link link;
  double residual;            /* root of the mean square of fitted / measured - 1 */
  bppsa_oracle_spread spread; /* means over the sizes of low_s and of high_s over the median */
  int64_t count;
  bppsa_link_point points[BPPSA_LINK_SIZES];
} bppsa_link_fit;

/* Seconds of an operation of so many bytes among so many ranks over a link: a message, an allreduce by a ring, an ordered sum, an
 * allgather, a reduce-scatter. */
double bppsa_link_seconds(bppsa_oracle_operation operation, bppsa_link link, int64_t ranks, double bytes);
/* Finds alpha and beta, none below 0, from the points' bytes and medians: least squares of relative errors. Sets link, residual,
 * spread and the points' fitted_s. count >= 2. */
void bppsa_link_solve(bppsa_link_fit *fit);

/* An operation among all ranks of a communicator, at least 2, with its buffers, ready to be measured again and again. */
typedef struct bppsa_link_probe bppsa_link_probe;

/* Sizes: 1 .. BPPSA_LINK_SIZES, in bytes; rounds: of a measurement, 1 .. 51, for sizes above 256 KiB a fifth of them, at least 3;
 * mean: the times are means over the rounds, not medians.
 * The results of every size are verified: ERR_NUMERIC where they are wrong. Collective; the communicator is borrowed. ERR_ARGUMENT:
 * one rank; ERR_MEMORY, ERR_COMM. */
bppsa_status bppsa_link_probe_create(bppsa_comm *comm, bppsa_oracle_operation operation, int64_t sizes, const double *bytes,
                                     int64_t rounds, bool mean, bppsa_link_probe **probe);
void bppsa_link_probe_destroy(bppsa_link_probe *probe); /* NULL is legal */
/* Measures all sizes and fits; a message goes from rank 0 to rank 1 and back. Where each rank has a processor, they compute in
 * between and come at different times. Collective; `fit` counts on rank 0. ERR_COMM. */
bppsa_status bppsa_link_probe_measure(bppsa_link_probe *probe, bppsa_link_fit *fit);

/* Measures an operation once, with sizes from 64 bytes to 32 MiB, one after the other; quick: fewer, and fewer rounds. ERR_* of the
 * functions above. */
bppsa_status bppsa_link_measure(bppsa_comm *comm, bppsa_oracle_operation operation, bool quick, bppsa_link_fit *fit);

#endif
