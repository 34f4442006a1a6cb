/* What the ranks of a run work with: the command, its words and streams.
 *
 * A rank that hangs cannot be ended, so it may outlive the run that has failed without it, and even bppsa_cli_main. Ranks work on
 * a copy, which its last user frees. Once the run has ended, nothing reaches the caller's streams any more.
 */
#ifndef BPPSA_CLI_RANK_JOB_H
#define BPPSA_CLI_RANK_JOB_H

#include "cli/command.h"
#include "comm/comm.h"

/* The work of one rank; comm NULL: the command runs without ranks. */
typedef bppsa_status (*bppsa_rank_work)(bppsa_cli *cli, bppsa_comm *comm);

typedef struct bppsa_rank_job bppsa_rank_job;

/* Copies the command line. The job has two holders: the caller, and all ranks together. ERR_MEMORY. */
bppsa_status bppsa_rank_job_create(const bppsa_cli *cli, bppsa_rank_work work, bppsa_rank_job **job);
const bppsa_cli *bppsa_rank_job_cli(const bppsa_rank_job *job);
bppsa_rank_work bppsa_rank_job_work(const bppsa_rank_job *job);
/* Call when the run has ended for its caller. From now on, what ranks print is dropped, and they catch no signals. */
void bppsa_rank_job_close(bppsa_rank_job *job);
/* Says that one of the two holders no longer uses the job. The second call frees it. */
void bppsa_rank_job_release(void *job);

#endif
