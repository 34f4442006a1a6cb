/* slow_ranks SECONDS ARGUMENT ..: the program, but every message of its ranks sets out so many seconds late.
 * bench/scripts/rank_network.py runs it. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "comm/comm.h"

int main(int argc, char **argv) {
  char *end = NULL;
  const bppsa_comm_fault fault = {.delay = argc > 1 ? strtod(argv[1], &end) : -1};
  if (end == NULL || end == argv[1] || *end != '\0' || !(fault.delay >= 0 && fault.delay <= 60)) {
    fprintf(stderr, "slow_ranks: expected SECONDS from 0 to 60 ARGUMENT ..\n");
    return 2;
  }
  bppsa_comm_set_run_fault(-1, &fault);
  argv[1] = argv[0];
  return bppsa_cli_main(argc - 1, argv + 1, stdout, stderr);
}
