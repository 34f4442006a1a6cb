/* Loops that the library's own threads share. docs/conventions.md explains the rule, which is:
 *
 *   - A loop is cut into pieces of neighbouring indices. Every thread that takes part claims one piece after the other.
 *     What is computed for an index must not depend on the piece or on the thread, so results have the same bits with
 *     any number of threads.
 *   - The calling thread always takes part. If the system suspends a thread, only the piece it works on waits: the others
 *     take the remaining pieces, and a thread that has not begun by then is not waited for.
 *   - A loop gets no more threads than its work pays for. A small loop runs on the calling thread alone.
 *   - Waiting threads spin for some microseconds at most, not at all where threads outnumber processors, and then
 *     sleep.
 *
 * Threads are created when a loop first needs them, serve all callers, and end with the program. Several threads may call
 * at once: a caller that finds no idle processor computes alone. A loop within a loop runs on the thread that calls it. A
 * child made by fork() begins without threads. Where the system refuses a thread, the existing ones do its work. Nothing
 * here fails or allocates, and nothing process-wide is changed. Internal.
 */
#ifndef BPPSA_CORE_COMPUTE_POOL_H
#define BPPSA_CORE_COMPUTE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Computes indices first .. end - 1. worker: the number of the computing thread, 0 .. threads - 1, for scratch memory;
 * threads that compute at the same time have different numbers. */
typedef void (*bppsa_loop_body)(const void *context, int32_t worker, int64_t first, int64_t end);

/* Calls body for pieces that cover 0 .. count - 1, every index once, in any order, on at most `threads` threads, and returns
 * when all are done. work: nanoseconds that the loop takes on one thread, roughly, as bppsa_loop_work estimates them; INFINITY
 * where it is long in any case, as reading files is. */
void bppsa_parallel_for(int32_t threads, int64_t count, double work, bppsa_loop_body body, const void *context);

/* Nanoseconds that one thread takes for so many FLOP of a kernel, or for moving so many bytes, whichever is longer. The estimate
 * may be wrong by a factor of a few: threads need microseconds to meet, while loops take nanoseconds to seconds. */
static inline double bppsa_loop_work(double flops, double bytes) {
  const double flops_per_ns = 8, bytes_per_ns = 4;
  return flops / flops_per_ns > bytes / bytes_per_ns ? flops / flops_per_ns : bytes / bytes_per_ns;
}

/* Processors this process may run on, 1 .. BPPSA_MAX_THREADS (core/base/threads.h). */
int32_t bppsa_pool_cpus(void);
/* A number, 0 or more, that stands for them: on one machine it is the same for the same processors. */
int64_t bppsa_pool_cpu_set(void);

/* Threads that were created and have not ended. */
int32_t bppsa_pool_size(void);

/* For tests: makes the system seem to refuse every further thread. */
void bppsa_pool_refuse_threads(bool refuse);

#ifdef __cplusplus
}
#endif
#endif
