/* A run that SIGINT or SIGTERM ends in an orderly way: it asks bppsa_interrupt_pending between two steps, and finishes what it
 * has. The second signal of the same kind does what it did before the run: it kills the program. */
#ifndef BPPSA_BENCH_HARNESS_INTERRUPT_H
#define BPPSA_BENCH_HARNESS_INTERRUPT_H

#include <stdbool.h>

/* From here on the first signal is noted and does nothing else. A signal that was ignored (as under nohup) stays ignored. Each
 * catch needs its release; between an outer catch and its release, an inner pair changes nothing. */
void bppsa_interrupt_catch(void);
/* Whether a signal came since the outermost catch. */
bool bppsa_interrupt_pending(void);
/* "SIGINT" or "SIGTERM": the one that came. "" before. */
const char *bppsa_interrupt_name(void);
/* Signals do again what they did before the catch; whether one came, and which, stays known. Without a catch nothing happens. */
void bppsa_interrupt_release(void);

#endif
