/* What the files of `bench schedule` share. schedule_crew.c has the orders that rank 0 gives (crew.h), bench_schedule.c the
 * descriptor. */
#ifndef BPPSA_BENCH_CASES_BENCH_SCHEDULE_H
#define BPPSA_BENCH_CASES_BENCH_SCHEDULE_H

#include "bench/cases/case.h"
#include "bench/cases/crew.h"
#include "distributed/pipeline/chain_costs.h"
#include "schedule/timed.h"

enum { BPPSA_SCHEDULE_SCHEMES = 64, BPPSA_SCHEDULE_SIZES = 16, BPPSA_SCHEDULE_VERIFIED = 2 /* passes */ };

/* What all micro-batches of one size share; they also have the same number of updates. */
typedef struct {
  int64_t samples; /* samples of a micro-batch or, with halving, of a half */
  bppsa_chain *chain;
  bppsa_chain_noise *noise;
  int64_t micro_batches;    /* how many a worker takes between two updates */
  int64_t step_count;       /* updates of an iteration: 1, or one for each micro-batch */
  bppsa_chain_probe *probe; /* measures the costs once for the lists, then again before every timed pass */
  bppsa_chain_costs costs;
  double *losses, *norms; /* rank 0: results of one device's updates, size `updates` */
  int64_t updates;
} bppsa_schedule_size;

/* The cost of summing gradients over the ranks that hold replicas of a layer. */
typedef struct {
  int64_t ranks;   /* 2 or more */
  double *seconds; /* of each layer, owned */
} bppsa_schedule_sums;

/* A scheme: its list, its prediction, its executor. */
typedef struct {
  const bppsa_schedule_scheme *scheme;
  bppsa_schedule_size *size;
  bppsa_timed predicted; /* the list, and its times by the simulator */
  double predicted_s;    /* of an iteration: the simulator's, but no less than a rank's or the processors' work */
  const char *note;      /* what the ranks share although the simulator assumes that they do not; "": nothing */
  bool judged;           /* the prediction may be judged: the ranks share nothing that the simulator does not know */
  bppsa_pipeline *pipeline;
  int64_t runs, updates; /* updates of a run */
  double *losses;        /* losses of the latest run, size updates */
  double *shared;        /* what the ranks tell rank 0: start and end of each operation, peaks of each worker, wrong tags */
  int64_t shared_count;
  bppsa_schedule_times latest, fastest; /* rank 0: times of passes, in seconds since the first operation of any worker */
} bppsa_schedule_entry;

typedef struct {
  const struct bppsa_bench_settings *asked;
  const bppsa_device *device;
  bppsa_comm *world, *self;    /* self: of this rank alone */
  bppsa_network_config config; /* the configuration for one sample */
  bppsa_model *model;          /* the initial weights */
  bppsa_view *values;
  bppsa_optimizer_config optimizer;
  int64_t at_once;    /* ranks that compute at the same time */
  double alpha, beta; /* seconds of a message, and of each of its bytes */
  int64_t *cut, cuts; /* the cut that was asked for; NULL: evenly by cost */
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

/* These are orders of rank 0, carried out by all ranks. If `make` refuses a scheme the crew goes on; after any other error it can
 * only be closed. */
/* ERR_ARGUMENT, ERR_UNSUPPORTED: the scheme has no such list, or the executor does not run it. */
bppsa_status bppsa_schedule_crew_make(bppsa_schedule_crew *crew, int64_t entry);
/* Executes the list once. timed: measures the costs before it. */
bppsa_status bppsa_schedule_crew_pass(bppsa_schedule_crew *crew, int64_t entry, bool timed);
/* Only on rank 0: predicts again, from the costs that were measured between the passes. ERR_* of the simulator. */
bppsa_status bppsa_schedule_crew_settle(bppsa_schedule_crew *crew);

/* The other ranks serve rank 0 until it dismisses them. */
bppsa_status bppsa_schedule_crew_serve(const bppsa_bench_request *request, const struct bppsa_bench_settings *asked);

/* On rank 0: how many bytes of activations the worker with the most held in the latest pass. */
double bppsa_schedule_peak(const bppsa_schedule_entry *entry);
/* Judges the latest pass on rank 0; `run` is its number, from 0. 0 if every operation saw the version of the weights that the list
 * names, and the losses and norms are finite and, for a synchronous scheme, equal to one device's, bit for bit; otherwise above
 * 1e-16. */
double bppsa_schedule_residual(const bppsa_schedule_entry *entry, int64_t run);

#endif
