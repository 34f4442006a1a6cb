/* Ends by signals (terminal/interrupt.h): the first is noted, the second kills, several runs
 * catch at once, what was ignored stays so, and a process that is somebody else's keeps its own handlers. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* siginfo_t */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "terminal/interrupt.h"

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

static volatile sig_atomic_t of_process; /* signals that the process's own handler got */

static void count_signal(int number) {
  (void)number;
  ++of_process;
}

static void count_with_information(int number, siginfo_t *information, void *context) {
  (void)number;
  (void)context;
  of_process += information != NULL ? 1 : 100;
}

/* In a process that is somebody else's each signal reaches its own handler too. Without one the first is noted, the second
 * kills. */
static void guest(void) {
  const struct sigaction plain = {.sa_handler = count_signal},
                         informed = {.sa_sigaction = count_with_information, .sa_flags = SA_SIGINFO};
  const int told = 0;
  for (int i = 0; i < 2; ++i) {
    bppsa_interrupt run = {.told = &told};
    check(sigaction(SIGINT, i == 0 ? &plain : &informed, NULL) == 0);
    of_process = 0;
    bppsa_interrupt_catch(&run);
    check(!bppsa_interrupt_pending(&run) && raise(SIGINT) == 0);
    check(bppsa_interrupt_pending(&run) && of_process == 1);
    check(raise(SIGINT) == 0 && of_process == 2);
    bppsa_interrupt_release(&run);
    check(raise(SIGINT) == 0 && of_process == 3);
  }
  bppsa_interrupt alone = {0}; /* in the program's own process its handler waits for the second signal */
  bppsa_interrupt_catch(&alone);
  check(raise(SIGINT) == 0 && bppsa_interrupt_pending(&alone) && of_process == 3);
  check(raise(SIGINT) == 0 && of_process == 4);
  bppsa_interrupt_release(&alone);
  bppsa_interrupt run = {.told = &told};
  bppsa_interrupt_catch(&run);
  check(raise(SIGTERM) == 0 && bppsa_interrupt_pending(&run));
  (void)raise(SIGTERM);
}

/* A run that is told to stop stops, catches no signal from then on, and another run goes on. */
static void told_to_stop(void) {
  int told = 0;
  bppsa_interrupt run = {.told = &told}, other = {0};
  bppsa_interrupt_catch(&run);
  bppsa_interrupt_catch(&other);
  check(!bppsa_interrupt_pending(&run));
  told = SIGINT;
  check(bppsa_interrupt_pending(&run) && bppsa_interrupt_name(&run)[3] == 'I' && !bppsa_interrupt_pending(&other));
  bppsa_interrupt_end(&run);
  bppsa_interrupt_end(&other);
  told = 0; /* nobody reads it any more */
  check(bppsa_interrupt_pending(&run) && !bppsa_interrupt_pending(&other));
  told = SIGTERM;
  bppsa_interrupt late = {.told = &told};
  bppsa_interrupt_catch(&late);
  check(bppsa_interrupt_pending(&late) && bppsa_interrupt_name(&late)[3] == 'T');
  (void)raise(SIGTERM);
}

/* What somebody installs while a run catches stays installed behind it, and the next run passes signals on to it. */
static void installed_meanwhile(void) {
  const int told = 0;
  bppsa_interrupt run = {.told = &told};
  bppsa_interrupt_catch(&run);
  signal(SIGTERM, count_signal);
  bppsa_interrupt_release(&run);
  check(raise(SIGTERM) == 0 && of_process == 1);
  bppsa_interrupt_catch(&run);
  check(raise(SIGTERM) == 0 && of_process == 2 && bppsa_interrupt_pending(&run));
  bppsa_interrupt_release(&run);
}

/* A run that begins while another one ends behind its signal catches signals. */
static void begun_behind_a_signal(void) {
  bppsa_interrupt first = {0}, second = {0};
  bppsa_interrupt_catch(&first);
  check(raise(SIGINT) == 0 && bppsa_interrupt_pending(&first));
  bppsa_interrupt_catch(&second);
  check(raise(SIGINT) == 0 && bppsa_interrupt_pending(&second));
  bppsa_interrupt_release(&first);
  bppsa_interrupt_release(&second);
  (void)raise(SIGINT);
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

/* Several runs in one process, and processes that are somebody else's. */
static void test_processes(void **state) {
  (void)state;
  static const struct {
    void (*body)(void);
    int signal; /* that the child dies of; 0: none */
  } children[] = {{guest, SIGTERM}, {told_to_stop, SIGTERM}, {installed_meanwhile, 0}, {begun_behind_a_signal, SIGINT}};
  for (size_t i = 0; i < sizeof children / sizeof children[0]; ++i) {
    const int status = status_of(children[i].body);
    assert_true(children[i].signal == 0 ? status == 0 : WIFSIGNALED(status) && WTERMSIG(status) == children[i].signal);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_signals), cmocka_unit_test(test_processes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
