#include <errno.h>
#include <fcntl.h>
#include <signal.h>

#include "cli/cli.h"
#include "cli/main.h"

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

/* Opens /dev/null for each standard stream that is closed, because a file that the program opens would take its place, and what is
 * printed would go into that file. Standard output and error are opened for reading, so that a write to them still fails. */
static void fill_closed_streams(void) {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) == -1 && errno == EBADF) {
      (void)open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY); /* the lowest number that is free: this one */
    }
  }
}

int main(int argc, char **argv) {
  fill_closed_streams();
  signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write, reported like any other */
  signal(SIGXFSZ, SIG_IGN); /* so is a write beyond the limit on the size of files */
  catch_ends();
  return bppsa_end_program(bppsa_cli_main(argc, argv, stdout, stderr));
}
