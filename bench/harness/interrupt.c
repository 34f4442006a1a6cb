#include "bench/harness/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of what follows, and of every run */
static const int signals[2] = {SIGINT, SIGTERM};
static struct sigaction before[2]; /* what the signals do without a run; not changed while one catches */
static int runs;                   /* that catch */

/* What the handler sets; it may run at any moment, on any thread. */
static atomic_int arrived; /* signals so far */
static atomic_int latest;  /* the last one's number */

static void catch_signal(int number) {
  atomic_store(&latest, number);
  atomic_fetch_add(&arrived, 1);
  (void)sigaction(number, &before[number == signals[0] ? 0 : 1], NULL);
}

static void install(void) {
  struct sigaction action = {.sa_handler = catch_signal, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < 2; ++i) {
    sigaction(signals[i], NULL, &before[i]); /* known before catch_signal can run */
    if (before[i].sa_handler != SIG_IGN) {
      sigaction(signals[i], &action, NULL);
    }
  }
}

void bppsa_interrupt_catch(bppsa_interrupt *run) {
  (void)pthread_mutex_lock(&mutex);
  if (!run->held && !run->ended) {
    run->held = true;
    run->seen = atomic_load(&arrived);
    run->number = 0;
    if (runs++ == 0) {
      install();
    }
  }
  (void)pthread_mutex_unlock(&mutex);
}

/* The number of the signal that came while the run caught; 0: none did. The caller holds the mutex. */
static int number_of(const bppsa_interrupt *run) {
  return run->held && atomic_load(&arrived) != run->seen ? atomic_load(&latest) : run->number;
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

static void release(bppsa_interrupt *run, bool ended) {
  (void)pthread_mutex_lock(&mutex);
  run->number = number_of(run);
  if (run->held && --runs == 0) {
    for (int i = 0; i < 2; ++i) {
      sigaction(signals[i], &before[i], NULL);
    }
  }
  run->held = false;
  run->ended = run->ended || ended;
  (void)pthread_mutex_unlock(&mutex);
}

void bppsa_interrupt_release(bppsa_interrupt *run) {
  release(run, false);
}

void bppsa_interrupt_end(bppsa_interrupt *run) {
  release(run, true);
}
