#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* siginfo_t */
#endif
#include "terminal/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

enum { SIGNALS = 2 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards what follows, and every run */
static const int signals[SIGNALS] = {SIGINT, SIGTERM};
static struct sigaction before[SIGNALS]; /* what the signals do without a run; not changed while catch_signal may read it */
static int runs;                         /* that catch */

/* What the handler reads and sets; it may run at any moment, on any thread. */
static atomic_int arrived; /* signals so far */
static atomic_int latest;  /* the last one's number */
static atomic_int guests;  /* runs that catch in a process that is somebody else's */

static void catch_signal(int number, siginfo_t *information, void *context) {
  const struct sigaction *of_process = &before[number == signals[0] ? 0 : 1];
  atomic_store(&latest, number);
  atomic_fetch_add(&arrived, 1);
  (void)sigaction(number, of_process, NULL);
  if (atomic_load(&guests) == 0) {
    return;
  }
  if ((of_process->sa_flags & SA_SIGINFO) != 0) {
    of_process->sa_sigaction(number, information, context);
  } else if (of_process->sa_handler != SIG_DFL && of_process->sa_handler != SIG_IGN) {
    of_process->sa_handler(number);
  }
}

static bool is_ours(const struct sigaction *action) {
  return (action->sa_flags & SA_SIGINFO) != 0 && action->sa_sigaction == catch_signal;
}

/* Installs the handler for each signal that does not have it: no signal has it before the first run, and a signal that comes takes
 * its own away. The flags of a handler of the process itself are kept: one without SA_RESTART is meant to interrupt what a thread
 * waits for. */
static void install(void) {
  for (int i = 0; i < SIGNALS; ++i) {
    struct sigaction now;
    if (sigaction(signals[i], NULL, &now) != 0 || is_ours(&now)) {
      continue;
    }
    before[i] = now; /* known before catch_signal can run */
    const bool handled = (now.sa_flags & SA_SIGINFO) != 0 || (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN);
    struct sigaction action = {.sa_sigaction = catch_signal, .sa_flags = SA_RESTART | SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    if (handled && atomic_load(&guests) > 0) {
      action.sa_mask = now.sa_mask;
      action.sa_flags = (now.sa_flags & (SA_RESTART | SA_ONSTACK)) | SA_SIGINFO;
    }
    if (handled || now.sa_handler != SIG_IGN) {
      (void)sigaction(signals[i], &action, NULL);
    }
  }
}

static int read_told(const int *told) {
  return told == NULL ? 0 : __atomic_load_n(told, __ATOMIC_SEQ_CST);
}

/* The number of the signal that ends the run, because it came while the run caught signals or because the run was told it; 0: none.
 * The caller holds the mutex. */
static int number_of(const bppsa_interrupt *run) {
  if (run->held && atomic_load(&arrived) != run->seen) {
    return atomic_load(&latest);
  }
  return run->number == 0 ? read_told(run->told) : run->number;
}

void bppsa_interrupt_catch(bppsa_interrupt *run) {
  (void)pthread_mutex_lock(&mutex);
  if (!run->held && !run->ended && read_told(run->told) == 0) {
    run->held = true;
    run->seen = atomic_load(&arrived);
    run->number = 0;
    runs += 1;
    atomic_fetch_add(&guests, run->told != NULL ? 1 : 0);
    install();
  }
  (void)pthread_mutex_unlock(&mutex);
}

static int find(const bppsa_interrupt *run) {
  (void)pthread_mutex_lock(&mutex);
  const int number = number_of(run);
  (void)pthread_mutex_unlock(&mutex);
  return number;
}

bool bppsa_interrupt_pending(const bppsa_interrupt *run) {
  return find(run) != 0;
}

const char *bppsa_interrupt_name(const bppsa_interrupt *run) {
  const int number = find(run);
  return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "";
}

static void restore(void) {
  for (int i = 0; i < SIGNALS; ++i) {
    struct sigaction now;
    if (sigaction(signals[i], NULL, &now) == 0 && is_ours(&now)) {
      (void)sigaction(signals[i], &before[i], NULL);
    }
  }
}

static void release(bppsa_interrupt *run, bool ended) {
  (void)pthread_mutex_lock(&mutex);
  run->number = number_of(run);
  if (run->held) {
    runs -= 1;
    if (runs == 0) {
      restore();
    }
    atomic_fetch_sub(&guests, run->told != NULL ? 1 : 0);
  }
  run->held = false;
  run->ended = run->ended || ended;
  run->told = ended ? NULL : run->told;
  (void)pthread_mutex_unlock(&mutex);
}

void bppsa_interrupt_release(bppsa_interrupt *run) {
  release(run, false);
}

void bppsa_interrupt_end(bppsa_interrupt *run) {
  release(run, true);
}
