/* Ends by signals (bench/harness/interrupt.h): the first is noted, the second kills, several runs
 * catch at once, what was ignored stays so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/harness/interrupt.h"

/* How a child ends that runs `body`. */
static int status_of(void (*body)(void)) {
  int status = 0;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    body();
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

static void check(bool right) {
  if (!right) {
    _exit(1);
  }
}

static void raise_twice(void) {
  bppsa_interrupt run = {0};
  check(!bppsa_interrupt_pending(&run) && bppsa_interrupt_name(&run)[0] == '\0');
  bppsa_interrupt_catch(&run);
  check(raise(SIGTERM) == 0 && bppsa_interrupt_pending(&run) && bppsa_interrupt_name(&run)[3] == 'T');
  (void)raise(SIGTERM);
}

/* A signal ends the runs that catch it, and no later one. */
static void several(void) {
  bppsa_interrupt runs[4] = {{0}};
  bppsa_interrupt_release(&runs[0]); /* without a catch */
  bppsa_interrupt_catch(&runs[0]);
  bppsa_interrupt_catch(&runs[1]);
  bppsa_interrupt_release(&runs[1]);
  check(raise(SIGINT) == 0);
  bppsa_interrupt_catch(&runs[2]);
  bppsa_interrupt_catch(&runs[0]); /* again: the signal stays known */
  check(bppsa_interrupt_pending(&runs[0]) && bppsa_interrupt_name(&runs[0])[3] == 'I');
  check(!bppsa_interrupt_pending(&runs[1]) && !bppsa_interrupt_pending(&runs[2]) && !bppsa_interrupt_pending(&runs[3]));
  check(raise(SIGTERM) == 0 && bppsa_interrupt_pending(&runs[2]) && bppsa_interrupt_name(&runs[2])[3] == 'T');
  for (int i = 0; i < 4; ++i) {
    bppsa_interrupt_release(&runs[i]);
  }
  check(bppsa_interrupt_pending(&runs[0]) && !bppsa_interrupt_pending(&runs[1]) && bppsa_interrupt_pending(&runs[2]));
  bppsa_interrupt_catch(&runs[0]); /* another run in the same place */
  check(!bppsa_interrupt_pending(&runs[0]));
}

static void release_both(void) {
  bppsa_interrupt run = {0};
  bppsa_interrupt_catch(&run);
  bppsa_interrupt_release(&run);
  (void)raise(SIGINT);
}

/* A thread that is late catches nothing for a run that its caller has given up. */
static void given_up(void) {
  bppsa_interrupt run = {0};
  bppsa_interrupt_catch(&run);
  bppsa_interrupt_end(&run);
  bppsa_interrupt_catch(&run);
  (void)raise(SIGINT);
}

static void ignore(void) {
  bppsa_interrupt run = {0};
  signal(SIGTERM, SIG_IGN);
  bppsa_interrupt_catch(&run);
  check(raise(SIGTERM) == 0 && !bppsa_interrupt_pending(&run));
  bppsa_interrupt_release(&run);
  check(raise(SIGTERM) == 0);
}

static void test_signals(void **state) {
  (void)state;
  int status = status_of(raise_twice);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGTERM);
  status = status_of(release_both);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGINT);
  status = status_of(given_up);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGINT);
  assert_int_equal(status_of(several), 0);
  assert_int_equal(status_of(ignore), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_signals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
