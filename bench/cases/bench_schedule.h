/* What the files of `bench schedule` share. schedule_crew.c has the orders that rank 0 gives (crew.h), bench_schedule.c the
 * descriptor. */
#ifndef BPPSA_BENCH_CASES_BENCH_SCHEDULE_H
#define BPPSA_BENCH_CASES_BENCH_SCHEDULE_H

#include "bench/cases/case.h"
#include "bench/cases/crew.h"
#include "distributed/pipeline/chain_costs.h"
#include "schedule/timed.h"

enum { BPPSA_SCHEDULE_SCHEMES = 64, BPPSA_SCHEDULE_SIZES = 16, BPPSA_SCHEDULE_VERIFIED = 2 /* passes */ };

/* What micro-batches of one size, and with as many updates, have in common. */
typedef struct {
  int64_t samples; /* of a micro-batch, with halving of a half */
  bppsa_chain *chain;
  bppsa_chain_noise *noise;
  int64_t micro_batches;    /* that a worker takes between two updates */
  int64_t step_count;       /* updates of an iteration: 1, or as many as micro-batches */
  bppsa_chain_probe *probe; /* measures the costs: once for the lists, then in front of every timed pass */
  bppsa_chain_costs costs;
  double *losses, *norms; /* rank 0: of one device's updates, size `updates` */
  int64_t updates;
} bppsa_schedule_size;

/* What the sums over replicas of a layer that so many ranks hold cost. */
typedef struct {
  int64_t ranks;   /* 2 or more */
  double *seconds; /* of each layer, owned */
} bppsa_schedule_sums;

/* A scheme: its list, what is predicted of it, its executor. */
typedef struct {
  const bppsa_schedule_scheme *scheme;
  bppsa_schedule_size *size;
  bppsa_timed predicted; /* the list, and its times by the simulator */
  double predicted_s; /* of an iteration: the simulator's makespan, and no less than the work of a rank and of the processors */
  const char *note;   /* what the ranks share that the simulator does not know; "": nothing */
  bool judged;        /* the prediction is one */
  bppsa_pipeline *pipeline;
  int64_t runs, updates; /* updates of a run */
  double *losses;        /* of the latest run, size updates */
  double *shared;        /* what the ranks tell rank 0: start and end of each operation, peaks of each worker, wrong tags */
  int64_t shared_count;
  bppsa_schedule_times latest, fastest; /* rank 0: of passes; seconds since the first worker's first operation began */
} bppsa_schedule_entry;

typedef struct {
  const struct bppsa_bench_settings *asked;
  const bppsa_device *device;
  bppsa_comm *world, *self;    /* self: of this rank alone */
  bppsa_network_config config; /* of one sample */
  bppsa_model *model;          /* the initial weights */
  bppsa_view *values;
  bppsa_optimizer_config optimizer;
  int64_t at_once;    /* ranks that compute at the same time */
  double alpha, beta; /* of a message, of a byte */
  int64_t *cut, cuts; /* as asked; NULL: evenly by cost */
  int64_t count;
  bppsa_schedule_entry entries[BPPSA_SCHEDULE_SCHEMES];
  int64_t size_count;
  bppsa_schedule_size sizes[BPPSA_SCHEDULE_SIZES];
  int64_t sum_count;
  bppsa_schedule_sums sums[BPPSA_SCHEDULE_SIZES];
} bppsa_schedule_crew;

/* Makes the weights, reads the schemes, measures the link and the costs of a micro-batch of batch / N samples; collective. Close it
 * on failure too. ERR_*. */
bppsa_status bppsa_schedule_crew_open(const struct bppsa_bench_settings *asked, const bppsa_device *device,
                                      bppsa_schedule_crew *crew);
void bppsa_schedule_crew_close(bppsa_schedule_crew *crew);

/* The orders of rank 0; all ranks carry them out. After another error than ERR_ARGUMENT and ERR_UNSUPPORTED of the first one the
 * crew can only be closed. */
/* ERR_ARGUMENT, ERR_UNSUPPORTED: the scheme has no such list, or the executor does not run it. */
bppsa_status bppsa_schedule_crew_make(bppsa_schedule_crew *crew, int64_t entry);
/* Executes the list once; `timed`: behind a run of its costs. */
bppsa_status bppsa_schedule_crew_pass(bppsa_schedule_crew *crew, int64_t entry, bool timed);
/* Of rank 0 alone: makes the predictions from the costs that were measured between the passes. ERR_* of the simulator. */
bppsa_status bppsa_schedule_crew_settle(bppsa_schedule_crew *crew);

/* What the other ranks do. */
bppsa_status bppsa_schedule_crew_serve(const bppsa_bench_request *request, const struct bppsa_bench_settings *asked);

/* Of the latest pass, on rank 0: bytes that the worker with the most activations held. */
double bppsa_schedule_peak(const bppsa_schedule_entry *entry);
/* Likewise, of pass number `run`, from 0: 0 if every operation saw the version of the weights that the list names, and the losses
 * and norms are finite and, for a synchronous scheme, equal to one device's, bit for bit; otherwise above 1e-16. */
double bppsa_schedule_residual(const bppsa_schedule_entry *entry, int64_t run);

#endif
