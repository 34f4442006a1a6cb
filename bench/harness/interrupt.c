#include "bench/harness/interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t caught; /* the signal's number */
static const int signals[2] = {SIGINT, SIGTERM};
static struct sigaction before[2];
static int depth; /* catches without their release */

static void catch_signal(int number) {
  caught = number;
  (void)sigaction(number, &before[number == signals[0] ? 0 : 1], NULL);
}

void bppsa_interrupt_catch(void) {
  struct sigaction action = {.sa_handler = catch_signal, .sa_flags = SA_RESTART};
  if (depth++ > 0) {
    return;
  }
  sigemptyset(&action.sa_mask);
  caught = 0;
  for (int i = 0; i < 2; ++i) {
    sigaction(signals[i], NULL, &before[i]); /* known before catch_signal can run */
    if (before[i].sa_handler != SIG_IGN) {
      sigaction(signals[i], &action, NULL);
    }
  }
}

bool bppsa_interrupt_pending(void) {
  return caught != 0;
}

const char *bppsa_interrupt_name(void) {
  return caught == SIGINT ? "SIGINT" : caught == SIGTERM ? "SIGTERM" : "";
}

void bppsa_interrupt_release(void) {
  if (depth == 0 || --depth > 0) {
    return;
  }
  for (int i = 0; i < 2; ++i) {
    sigaction(signals[i], &before[i], NULL);
  }
}
