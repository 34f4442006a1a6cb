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
/* Call for a command line that cannot be parsed. Under mpirun, only one process reports its error, so that one line is printed. */
bppsa_status bppsa_ranks_refuse(const bppsa_cli *cli, bppsa_status status);

/* Do arrays on GPUs travel over NCCL? Threads, or under mpirun MPI, carry everything else. */
bool bppsa_ranks_over_nccl(const bppsa_cli *cli);
/* Is this the rank that prints and writes files? */
static inline bool bppsa_ranks_first(const bppsa_comm *comm) {
  return comm == NULL || bppsa_comm_rank(comm) == 0;
}

/* Writes a schedule's options, as far as they are present, to *config, whose other members stay. schemes: names with commas between
 * them; NULL: all. ERR_ARGUMENT: an option that none of the schemes takes, or two options that contradict each other. */
bppsa_status bppsa_scheme_options(const bppsa_cli *cli, const char *schemes, bppsa_schedule_config *config);
/* Reads --split and the options beside it. If they ask for a schedule, schedule->split becomes the scheme or file. ERR_ARGUMENT: an
 * unknown split, or options of another split. */
bppsa_status bppsa_ranks_schedule(const bppsa_cli *cli, const bppsa_comm *comm, bppsa_rank_schedule *schedule);
/* Reads --split, --group and --reduction. If they ask for ranks that share layers, layers->split is set. ERR_ARGUMENT: options of
 * another split. */
bppsa_status bppsa_ranks_layers(const bppsa_cli *cli, const bppsa_comm *comm, bppsa_rank_layers *layers);
/* Reads --ranks and --split of a command that only shows what ranks would do. Without --ranks *split is zero. ERR_ARGUMENT. */
bppsa_status bppsa_ranks_split(const bppsa_cli *cli, const bppsa_network *network, int64_t batch, bppsa_rank_split *split);
/* Reads --split, --reduction, --reverse-first and --micro-batches for `batch` samples, which the ranks share and which messages
 * call `what`. config->batch becomes the number of samples that a rank's model takes at once: `at_once`, or with 0 the rank's part.
 * bppsa_rank_network_forward describes the forward pass. Does nothing without ranks. ERR_ARGUMENT: another split, more ranks than
 * samples, more micro-batches than samples of a rank, images along time, speculative forward passes where ranks share samples. */
bppsa_status bppsa_ranks_setup(const bppsa_cli *cli, const bppsa_network *network, int64_t batch, const char *what,
                               int64_t at_once, bppsa_rank_network *ranks, bppsa_network_config *config);

#endif
