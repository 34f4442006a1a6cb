/* A program that runs on ranks: how the ranks share the work, and how they report a request that cannot be carried out. */
#ifndef BPPSA_DISTRIBUTED_JOB_H
#define BPPSA_DISTRIBUTED_JOB_H

#include "comm/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers of ranks along time and among the samples; their product is the number of all ranks. */
typedef struct {
  int64_t time, batch;
} bppsa_rank_split;

/* "batch", "time", or both with their numbers in either order: "time:2,batch:2". ranks: 0: not known yet; then a word
 * alone gives 0. ERR_ARGUMENT: another text, or numbers whose product is not `ranks`. */
bppsa_status bppsa_rank_split_parse(const char *text, int64_t ranks, bppsa_rank_split *split);

/* "batch", "time", or "time:2,batch:2". Returns text. */
const char *bppsa_rank_split_text(const bppsa_rank_split *split, char *text, size_t size);
#define BPPSA_RANK_SPLIT_TEXT 32

/* Makes two groups of ranks: `time` shares the steps of the same samples, `batch` shares the samples of the same steps. Rank r
 * of all ranks has place r % split->time along time, and place r / split->time among the samples. Collective. The caller destroys
 * both, with bppsa_comm_destroy. ERR_MEMORY, ERR_COMM. */
bppsa_status bppsa_rank_split_groups(bppsa_comm *comm, const bppsa_rank_split *split, bppsa_comm **time, bppsa_comm **batch);

/* Every rank gives the status of what it has prepared. If all are OK, so is the result everywhere. Otherwise the lowest rank
 * that failed gets its own status and message back, and every other one ERR_COMM, after that rank has failed: so one rank has an
 * error to report, always the same. Collective. */
bppsa_status bppsa_job_agree(bppsa_comm *comm, bppsa_status status);

/* Checks that all ranks have the same words, argv[1] .. argv[argc - 1]. ERR_ARGUMENT on all of them otherwise. Collective. */
bppsa_status bppsa_job_compare(bppsa_comm *comm, int argc, char *const *argv);

/* Finds this rank's share of the `cpus` processors of its set `cpu_set` (bppsa_pool_cpus, bppsa_pool_cpu_set): their number
 * divided by that of the ranks on this machine with the same set, at least 1. A launcher that binds its processes gives ranks sets
 * of their own; other ranks have all processors of the machine in common. Collective. ERR_COMM, ERR_MEMORY. */
bppsa_status bppsa_job_threads(bppsa_comm *comm, int64_t cpus, int64_t cpu_set, int64_t *threads);

/* The same as bppsa_comm_run; but in the message of an error of a rank's request (ERR_ARGUMENT, ERR_SHAPE, ERR_FORMAT,
 * ERR_UNSUPPORTED) no rank is named, because all have the same request. outcome: not NULL. */
bppsa_status bppsa_job_run(const bppsa_comm_config *config, bppsa_comm_body body, void *context, bppsa_comm_outcome *outcome);

#ifdef __cplusplus
}
#endif
#endif
