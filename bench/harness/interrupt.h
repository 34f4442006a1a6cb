/* A run that SIGINT or SIGTERM ends in an orderly way: it asks bppsa_interrupt_pending between two steps, and finishes what it
 * has. The second signal of the same kind does what it did before the run: it kills the program.
 *
 * Several runs may catch signals at once, on threads of one process: a signal ends all that have begun before it came, and signals
 * do again what they did before once the last run has released them. */
#ifndef BPPSA_BENCH_HARNESS_INTERRUPT_H
#define BPPSA_BENCH_HARNESS_INTERRUPT_H

#include <stdbool.h>

/* One run's; zeroed before its first use. */
typedef struct {
  bool held, ended;
  int seen;   /* signals that had come when it began to catch */
  int number; /* of the signal that came before it released them; 0: none did */
} bppsa_interrupt;

/* From here on the first signal is noted and does nothing else. A signal that was ignored (as under nohup) stays ignored. A run
 * that catches already, or has ended, is left as it is. */
void bppsa_interrupt_catch(bppsa_interrupt *run);
/* Whether a signal came while the run caught them. */
bool bppsa_interrupt_pending(const bppsa_interrupt *run);
/* "SIGINT" or "SIGTERM": the one that came. "" before. */
const char *bppsa_interrupt_name(const bppsa_interrupt *run);
/* The run catches no longer; whether a signal came, and which, stays known to it. Without a catch nothing happens. */
void bppsa_interrupt_release(bppsa_interrupt *run);
/* The same, and a later catch does nothing: for a run whose thread goes on after its caller has given it up. */
void bppsa_interrupt_end(bppsa_interrupt *run);

#endif
