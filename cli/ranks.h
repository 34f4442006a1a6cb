/* Commands that run on ranks: train, eval and grad with --ranks, or under mpirun. */
#ifndef BPPSA_CLI_RANKS_H
#define BPPSA_CLI_RANKS_H

#include "cli/rank_job.h"
#include "distributed/job.h"
#include "runs/rank_layers.h"
#include "runs/rank_network.h"
#include "runs/rank_schedule.h"

/* The options of a command that runs on ranks. */
#define BPPSA_RANKS_USES                                                                                                         \
  BPPSA_USE(RANKS), BPPSA_USE(SPLIT), BPPSA_USE(TRANSPORT), BPPSA_USE(TIMEOUT), BPPSA_USE_AS(MICRO_BATCHES, rank_micro_batches), \
      BPPSA_USE(REDUCTION)
/* The options of a schedule that ranks execute; bppsa schedule has them too. */
#define BPPSA_SCHEDULE_USES                                                                                                      \
  BPPSA_USE(WIDTH), BPPSA_USE(REPLICAS), BPPSA_USE(CUT), BPPSA_USE(RECOMPUTE), BPPSA_USE(SYNC), BPPSA_USE(DOUBLING),             \
      BPPSA_USE(HALVING), BPPSA_USE(SPLIT_BACKWARD), BPPSA_USE(REVERSE_K)

/* Does the work on this process alone, or on ranks if --ranks asks for them or mpirun has started the process. Every rank gets a
 * copy of the command line, with its share of the threads; only what rank 0 prints appears. ERR_ARGUMENT: options without --ranks;
 * ranks whose command lines differ. Other errors of bppsa_comm_run and of the work. */
bppsa_status bppsa_ranks_run(bppsa_cli *cli, bppsa_rank_work work);
/* A command line that cannot be parsed: under mpirun one rank gets its error back, so that one line is printed. */
bppsa_status bppsa_ranks_refuse(const bppsa_cli *cli, bppsa_status status);

/* Do arrays on GPUs travel over NCCL? Threads, or under mpirun MPI, carry everything else. */
bool bppsa_ranks_over_nccl(const bppsa_cli *cli);
/* Is this the rank that prints and writes files? */
static inline bool bppsa_ranks_first(const bppsa_comm *comm) {
  return comm == NULL || bppsa_comm_rank(comm) == 0;
}

/* Writes a schedule's options, as far as they are present, to *config, whose other members stay. schemes: names with commas
 * between them; NULL: all. An option that none of them takes, and two that contradict each other: ERR_ARGUMENT. */
bppsa_status bppsa_scheme_options(const bppsa_cli *cli, const char *schemes, bppsa_schedule_config *config);
/* --split and the options beside it, where they ask for a schedule: schedule->split is then set. ERR_ARGUMENT: an unknown split,
 * options of another one. */
bppsa_status bppsa_ranks_schedule(const bppsa_cli *cli, const bppsa_comm *comm, bppsa_rank_schedule *schedule);
/* --split, --group and --reduction of ranks that share layers: layers->split is then set. ERR_ARGUMENT: options of another
 * split. */
bppsa_status bppsa_ranks_layers(const bppsa_cli *cli, const bppsa_comm *comm, bppsa_rank_layers *layers);
/* --ranks and --split of a command that only shows what ranks would do; zero without --ranks. ERR_ARGUMENT. */
bppsa_status bppsa_ranks_split(const bppsa_cli *cli, const bppsa_network *network, int64_t batch, bppsa_rank_split *split);
/* --split, --reduction, --reverse-first and --micro-batches for so many samples, which the ranks share and `what` names.
 * config->batch becomes what a rank's model takes at once, `at_once` samples, or, with 0, its part of them; for its forward pass
 * see bppsa_rank_network_forward. Without ranks it does nothing. ERR_ARGUMENT: another split, more ranks than samples, more
 * micro-batches than samples of a rank, images along time, speculative forward passes where ranks share samples. */
bppsa_status bppsa_ranks_setup(const bppsa_cli *cli, const bppsa_network *network, int64_t batch, const char *what,
                               int64_t at_once, bppsa_rank_network *ranks, bppsa_network_config *config);

#endif
