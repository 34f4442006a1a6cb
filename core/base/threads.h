/* The largest number of threads, for devices and for the pool. */
#ifndef BPPSA_CORE_BASE_THREADS_H
#define BPPSA_CORE_BASE_THREADS_H

#define BPPSA_MAX_THREADS 4096 /* of a device */

#endif
