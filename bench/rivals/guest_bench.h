/* The program of --rivals in a benchmark's run. */
#ifndef BPPSA_BENCH_RIVALS_GUEST_BENCH_H
#define BPPSA_BENCH_RIVALS_GUEST_BENCH_H

#include "bench/harness/driver.h"
#include "bench/rivals/guest.h"

/* Starts the program, unless it is NULL. A method may take 15 minutes to be entered, because it may compile first; beside
 * --time-limit an eighth longer than the limit. ERR_* of bppsa_guest_start. */
bppsa_status bppsa_bench_start_guest(const bppsa_bench *bench, const char *program, bppsa_guest **guest);

#endif
