#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "core/blas.h"

#include <cblas.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/simd.h"

/* What openblas_get_parallel() answers. */
enum { FLAVOUR_SERIAL = 0, FLAVOUR_PTHREAD = 1, FLAVOUR_OPENMP = 2 };

/* OpenBLAS has a fixed table of work buffers, twice the MAX_THREADS it was built with. When more threads than the table
 * has entries are inside it at once it prints, and beyond 512 more it crashes. So while the live devices have more
 * threads than MAX_THREADS together, a semaphore lets only that many in. */
static struct {
  int flavour;
  int limit; /* MAX_THREADS of the library */
  char description[256];
  sem_t entries;
} blas;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int registered; /* threads of all live devices */

static void start(void) {
  openblas_set_num_threads(1);
  blas.flavour = openblas_get_parallel();
  snprintf(blas.description, sizeof blas.description, "%s", openblas_get_config()); /* its buffer is shared: copy once */
  const char *found = strstr(blas.description, "MAX_THREADS=");
  const int limit = found != NULL ? atoi(found + strlen("MAX_THREADS=")) : 0;
  blas.limit = limit > 0 ? limit : 1;
  sem_init(&blas.entries, 0, (unsigned)blas.limit);
}

bppsa_status bppsa_blas_start(void) {
  pthread_once(&once, start);
  if (blas.flavour == FLAVOUR_SERIAL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "OpenBLAS: the serial flavour does not say whether several threads may call it "
                                             "at once; install libopenblas0-pthread");
  }
  if (blas.flavour != FLAVOUR_PTHREAD) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "OpenBLAS: the OpenMP flavour cannot be held to one thread; install "
                                             "libopenblas0-pthread");
  }
  const int threads = openblas_get_num_threads();
  if (threads != 1) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "OpenBLAS: %d threads after openblas_set_num_threads(1), expected 1", threads);
  }
  return BPPSA_OK;
}

const char *bppsa_blas_description(void) {
  pthread_once(&once, start);
  return blas.description;
}

void bppsa_blas_register(int32_t threads) {
  atomic_fetch_add(&registered, threads);
}

/* True when the caller took an entry and must give it back. */
static bool enter(void) {
  if (atomic_load_explicit(&registered, memory_order_relaxed) <= blas.limit || blas.limit == 0) {
    return false;
  }
  while (sem_wait(&blas.entries) != 0 && errno == EINTR) {
  }
  return true;
}

static void leave(bool entered) {
  if (entered) {
    sem_post(&blas.entries);
  }
}

static CBLAS_TRANSPOSE op(bool transposed) {
  return transposed ? CblasTrans : CblasNoTrans;
}

/* CBLAS wants row lengths of at least 1, empty matrices included. */
static blasint row(int64_t length) {
  return length > 0 ? (blasint)length : 1;
}

/* B beyond the second-level cache, and wide enough to be worth packing. */
static bool is_large(int64_t n, int64_t k) {
  return n >= 64 && n * k > (int64_t)1 << 18;
}

int64_t bppsa_sample_block(int64_t batch, int32_t threads, int64_t n, int64_t k) {
  enum { LEAST = 16, MOST = 64, LARGE = 8 };
  const int64_t share = (batch + threads - 1) / threads, block = (share + LEAST - 1) / LEAST * LEAST;
  return is_large(n, k) ? LARGE : block < LEAST ? LEAST : block > MOST ? MOST : block;
}

#define BPPSA_REAL 32
#define CBLAS_GEMM cblas_sgemm
#include "core/blas.inc"
#undef BPPSA_REAL
#undef CBLAS_GEMM
#define BPPSA_REAL 64
#define CBLAS_GEMM cblas_dgemm
#include "core/blas.inc"
