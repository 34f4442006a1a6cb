/* The program `bppsa` as a function. */
#ifndef BPPSA_CLI_CLI_H
#define BPPSA_CLI_CLI_H

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs one command line of the program, argv[1] .. argv[argc - 1] behind the program's name, in the caller's process: every command
 * with its options, as `bppsa --help` lists them. Results go to `out`, errors (one line) and progress to `err`. Returns the exit
 * code: 0 good, 2 the request was wrong, 1 it failed while running. Never ends the process, holds no state between calls, and may
 * run on several threads at once. Afterwards nothing uses the words or the streams. Ranks that hang are left behind
 * (bppsa_comm_left_behind), with memory of their own; everything else is free again. A process that mpirun has started calls
 * bppsa_comm_end_job at its end.
 *
 * told: a number that another thread may store at any moment, as one piece (an atomic store): once it is that of SIGINT or SIGTERM,
 * training and figures end as this signal would end them; 0: they go on. The signals that they catch reach the process's own
 * handlers too. NULL: the process is the program's own, and the commands catch its signals. */
int bppsa_run(int argc, char **argv, FILE *out, FILE *err, const int *told);

/* The same without `told`. */
int bppsa_cli_main(int argc, char **argv, FILE *out, FILE *err);

#ifdef __cplusplus
}
#endif
#endif
