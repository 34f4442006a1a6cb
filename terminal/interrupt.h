/* A run that SIGINT or SIGTERM ends in an orderly way: it asks bppsa_interrupt_pending between two steps, and finishes what it
 * has. The second signal of the same kind does what it did before the run: it kills the program.
 *
 * Several runs may catch signals at once, on threads of one process: a signal ends all that have begun before it came, and signals
 * do again what they did before once the last run has released them. A handler that somebody installs meanwhile stays.
 *
 * A run in a process that is somebody else's, such as Python, has a word by which that process tells it to stop. A signal then ends
 * the run and calls the process's own handler too. */
#ifndef BPPSA_TERMINAL_INTERRUPT_H
#define BPPSA_TERMINAL_INTERRUPT_H

#include <stdbool.h>

/* One run's; zeroed before its first use. */
typedef struct {
  /* The word of the process: once it holds a signal's number, the run ends as by that signal; 0: go on. NULL: the process is the
   * program's own. It is read as one piece. It must exist until the run is over, or until bppsa_interrupt_end. */
  const int *told;
  bool held, ended;
  int seen;   /* signals that had come when it began to catch */
  int number; /* of the signal that came before it released them; 0: none did */
} bppsa_interrupt;

/* Begins to catch: the first signal is noted, and nothing else happens unless the run has a word of a process. A signal that was
 * ignored (as under nohup) stays ignored. A run that catches already, has ended, or has been told to stop, is left as it is. */
void bppsa_interrupt_catch(bppsa_interrupt *run);
/* Whether a signal came while the run caught them, or the run has been told to stop. */
bool bppsa_interrupt_pending(const bppsa_interrupt *run);
/* "SIGINT" or "SIGTERM": the one that came. "" before. */
const char *bppsa_interrupt_name(const bppsa_interrupt *run);
/* Ends the catching; the run remembers whether a signal came, and which. Does nothing if the run catches none. */
void bppsa_interrupt_release(bppsa_interrupt *run);
/* The same, for good: later catches do nothing, and the word is not read again. For a run whose caller has given it up while its
 * thread goes on. */
void bppsa_interrupt_end(bppsa_interrupt *run);

#endif
