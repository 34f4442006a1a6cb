#include <signal.h>

#include "cli/cli.h"
#include "core/file.h"

/* Raised again, and delivered when this returns, the signal ends the program as it would have without a handler: SA_RESETHAND. */
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
    if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) { /* as under nohup */
      (void)sigaction(numbers[i], &action, NULL);
    }
  }
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write, reported like any other */
  signal(SIGXFSZ, SIG_IGN); /* so is a file that may not grow */
  catch_ends();
  return bppsa_cli_main(argc, argv, stdout, stderr);
}
