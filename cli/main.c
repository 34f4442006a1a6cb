#include <signal.h>

#include "cli/cli.h"
#include "core/file.h"

/* Raises the signal again. SA_RESETHAND has removed this handler, so the signal ends the program as it would without one, once
 * this function returns. */
static void end_clean(int number) {
  bppsa_file_remove_temporaries();
  (void)raise(number);
}

static void catch_ends(void) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction action = {.sa_handler = end_clean, .sa_flags = (int)SA_RESETHAND};
  sigfillset(&action.sa_mask);
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i) {
    struct sigaction before;
    if (sigaction(numbers[i], NULL, &before) == 0 &&
        before.sa_handler != SIG_IGN) { /* a signal that nohup ignores stays ignored */
      (void)sigaction(numbers[i], &action, NULL);
    }
  }
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write, reported like any other */
  signal(SIGXFSZ, SIG_IGN); /* so is a write beyond the limit on the size of files */
  catch_ends();
  return bppsa_cli_main(argc, argv, stdout, stderr);
}
