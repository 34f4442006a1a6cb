/* How many threads there can be: what a device may be asked for, and what the pool has room for. */
#ifndef BPPSA_CORE_THREADS_H
#define BPPSA_CORE_THREADS_H

#define BPPSA_MAX_THREADS 4096

#endif
