/* The program `bppsa`, callable from a test. */
#ifndef BPPSA_CLI_CLI_H
#define BPPSA_CLI_CLI_H

#include <stdio.h>

/* Runs one command line; results go to `out`, errors (one line) and progress to `err`. Returns the exit code: 0 good, 2 the request
 * was wrong, 1 it failed while running. Holds no state between calls and frees everything before it returns. */
int bppsa_cli_main(int argc, char **argv, FILE *out, FILE *err);

#endif
