/* The program `bppsa`, callable from a test. */
#ifndef BPPSA_CLI_CLI_H
#define BPPSA_CLI_CLI_H

#include <stdatomic.h>
#include <stdio.h>

/* Runs one command line; results go to `out`, errors (one line) and progress to `err`. Returns the exit code: 0 good, 2 the request
 * was wrong, 1 it failed while running. Never ends the process, holds no state between calls, and may run on several threads at
 * once. Afterwards nothing uses the words or the streams. Ranks that hang are left behind (bppsa_comm_left_behind, comm/comm.h),
 * with memory of their own; everything else is free again. A program calls bppsa_comm_end_job at its end. */
int bppsa_cli_main(int argc, char **argv, FILE *out, FILE *err);
/* Does the same inside another program's process. Once *told is the number of SIGINT or SIGTERM, training and figures end as this
 * signal would end them; 0: they go on. Another thread may set *told at any moment. The signals that they catch reach the process's
 * own handlers too (terminal/interrupt.h). */
int bppsa_cli_run(int argc, char **argv, FILE *out, FILE *err, const atomic_int *told);

#endif
