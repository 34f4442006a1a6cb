/* Ends by signals (bench/harness/interrupt.h): the first is noted, the second kills, pairs nest, what was ignored stays so. */
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
  check(!bppsa_interrupt_pending() && bppsa_interrupt_name()[0] == '\0');
  bppsa_interrupt_catch();
  check(raise(SIGTERM) == 0 && bppsa_interrupt_pending() && bppsa_interrupt_name()[3] == 'T');
  (void)raise(SIGTERM);
}

static void nest(void) {
  bppsa_interrupt_release(); /* without a catch */
  bppsa_interrupt_catch();
  bppsa_interrupt_catch();
  bppsa_interrupt_release();
  check(raise(SIGINT) == 0);
  bppsa_interrupt_catch(); /* an inner catch keeps the signal */
  check(bppsa_interrupt_pending() && bppsa_interrupt_name()[3] == 'I');
  bppsa_interrupt_release();
  bppsa_interrupt_release();
  check(bppsa_interrupt_pending());
  bppsa_interrupt_catch(); /* another run */
  check(!bppsa_interrupt_pending());
}

static void release_both(void) {
  bppsa_interrupt_catch();
  bppsa_interrupt_release();
  (void)raise(SIGINT);
}

static void ignore(void) {
  signal(SIGTERM, SIG_IGN);
  bppsa_interrupt_catch();
  check(raise(SIGTERM) == 0 && !bppsa_interrupt_pending());
  bppsa_interrupt_release();
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
  assert_int_equal(status_of(nest), 0);
  assert_int_equal(status_of(ignore), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_signals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
