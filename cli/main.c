#include <signal.h>

#include "cli/cli.h"

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write, reported like any other */
  signal(SIGXFSZ, SIG_IGN); /* so is a file that may not grow */
  return bppsa_cli_main(argc, argv, stdout, stderr);
}
