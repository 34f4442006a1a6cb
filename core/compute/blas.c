#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include "core/compute/blas.h"

#include <cblas.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/alloc.h"
#include "core/compute/library.h"

#define FILE_NAME "libopenblas.so.0"
/* The functions of a fallback (bppsa_blas_set_fallback) have names that begin so, as in the package scipy-openblas32 of PyPI. */
#define FALLBACK_PREFIX "scipy_"

/* The values of openblas_get_parallel(). */
enum { FLAVOUR_SERIAL = 0, FLAVOUR_PTHREAD = 1, FLAVOUR_OPENMP = 2 };

/* OpenBLAS maps a work buffer, at most 128 MiB of address space on x86, for every call that runs at the same time as others, and
 * keeps it. If it cannot map one, it tries again without end. */
#define BUFFER_BYTES ((size_t)129 << 20)

enum { WARM = 128 }; /* a product of this size takes a buffer; smaller ones need none on some processors */

static struct {
  __typeof__(&cblas_sgemm) sgemm;
  __typeof__(&cblas_dgemm) dgemm;
  __typeof__(&openblas_set_num_threads) set_threads;
  __typeof__(&openblas_get_num_threads) get_threads;
  __typeof__(&openblas_get_parallel) get_parallel;
  __typeof__(&openblas_get_config) get_config;
} openblas;

static struct {
  pthread_mutex_t lock; /* guards the following fields */
  char fallback[4096];  /* the path of another OpenBLAS, or "" */
  char description[256];
  int holders;      /* see bppsa_blas_hold */
  int host_threads; /* the number of threads that the program had chosen before the first holder */
} blas = {.lock = PTHREAD_MUTEX_INITIALIZER, .description = "no OpenBLAS"};

static atomic_bool started; /* the functions are loaded, and the first buffer is mapped */

/* Limits the calls that are inside OpenBLAS at the same time, because its table of buffers is fixed and each buffer needs
 * memory. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t left;
  int inside;
  int room;  /* calls for which a buffer is mapped */
  int limit; /* MAX_THREADS of the library */
} entries = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = PTHREAD_COND_INITIALIZER, .room = 1, .limit = 1};

typedef struct {
  const char *file, *prefix; /* what is to be loaded; what stands in front of its functions' names */
  bool loaded;
  char problem[256];
} load_result;

/* Finds the functions of a library. */
static void load_functions(load_result *result) {
  const bppsa_library_function wanted[] = {
      {"cblas_sgemm", (void **)&openblas.sgemm},
      {"cblas_dgemm", (void **)&openblas.dgemm},
      {"openblas_set_num_threads", (void **)&openblas.set_threads},
      {"openblas_get_num_threads", (void **)&openblas.get_threads},
      {"openblas_get_parallel", (void **)&openblas.get_parallel},
      {"openblas_get_config", (void **)&openblas.get_config},
  };
  enum { FUNCTIONS = sizeof wanted / sizeof wanted[0], NAME_SIZE = 48 };
  char names[FUNCTIONS][NAME_SIZE];
  bppsa_library_function functions[FUNCTIONS];
  for (int i = 0; i < FUNCTIONS; ++i) {
    snprintf(names[i], NAME_SIZE, "%s%s", result->prefix, wanted[i].name);
    functions[i] = (bppsa_library_function){names[i], wanted[i].at};
  }
  result->loaded = bppsa_library_load(result->file, FUNCTIONS, functions, result->problem, sizeof result->problem);
}

/* Loads OpenBLAS on a separate thread that may use only one processor, because OpenBLAS starts a thread for every further processor
 * when it is loaded. If the program has loaded it already, nothing is loaded again. */
static void *load(void *argument) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    size_t first = 0;
    while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &set)) {
      ++first;
    }
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
  }
  load_functions(argument);
  return NULL;
}

/* Is enough address space free for one more of OpenBLAS's buffers? */
static bool has_space(void) {
  void *space = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (space != MAP_FAILED) {
    munmap(space, BUFFER_BYTES);
  }
  return space != MAP_FAILED;
}

static bppsa_status load_alone(const char *file, const char *prefix) {
  load_result result = {.file = file, .prefix = prefix};
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all); /* the program's own threads handle signals */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int refused = pthread_create(&thread, NULL, load, &result);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (refused != 0) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "OpenBLAS: out of memory or threads: the system refused a thread to load it (%s)",
                      strerror(refused));
  }
  pthread_join(thread, NULL);
  if (!result.loaded && !has_space()) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "OpenBLAS: out of memory: less than %zu MiB of address space are free (%s)",
                      BUFFER_BYTES >> 20, result.problem);
  }
  if (!result.loaded) {
    return bppsa_fail(BPPSA_ERR_LIBRARY, "OpenBLAS: %s; install libopenblas0-pthread", result.problem);
  }
  return BPPSA_OK;
}

/* Makes OpenBLAS map its first buffer now, while a failure can still be reported. */
static bppsa_status take_buffer(void) {
  if (!has_space()) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "OpenBLAS: out of memory: it needs %zu MiB of address space", BUFFER_BYTES >> 20);
  }
  float *square = bppsa_calloc(2 * WARM * WARM, sizeof *square);
  if (square == NULL) {
    return bppsa_fail_prefix(BPPSA_ERR_MEMORY, "OpenBLAS");
  }
  openblas.sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, WARM, WARM, WARM, 1, square, WARM, square, WARM, 0,
                 square + WARM * WARM, WARM);
  bppsa_free(square);
  return BPPSA_OK;
}

/* Loads a library, and checks that the project's threads may call it at once, each with one thread of its own. */
static bppsa_status load_flavour(const char *file, const char *prefix) {
  BPPSA_TRY(load_alone(file, prefix));
  const int flavour = openblas.get_parallel();
  if (flavour == FLAVOUR_SERIAL) {
    return bppsa_fail(BPPSA_ERR_LIBRARY, "OpenBLAS: the serial flavour does not say whether several threads may call it "
                                         "at once; install libopenblas0-pthread");
  }
  if (flavour != FLAVOUR_PTHREAD) {
    return bppsa_fail(BPPSA_ERR_LIBRARY, "OpenBLAS: the OpenMP flavour cannot be held to one thread; install "
                                         "libopenblas0-pthread");
  }
  return BPPSA_OK;
}

static bppsa_status start(void) {
  const bppsa_status status = load_flavour(FILE_NAME, "");
  const bool other = status == BPPSA_ERR_LIBRARY && blas.fallback[0] != '\0';
  BPPSA_TRY(other ? load_flavour(blas.fallback, FALLBACK_PREFIX) : status);
  snprintf(blas.description, sizeof blas.description, "%s",
           openblas.get_config()); /* its buffer is shared, so it is copied once */
  const char *found = strstr(blas.description, "MAX_THREADS=");
  const int limit = found != NULL ? atoi(found + strlen("MAX_THREADS=")) : 0;
  entries.limit = limit > 0 ? limit : 1;
  BPPSA_TRY(take_buffer());
  atomic_store_explicit(&started, true, memory_order_release);
  return BPPSA_OK;
}

bppsa_status bppsa_blas_set_fallback(const char *path) {
  BPPSA_REQUIRE(path != NULL && strlen(path) < sizeof blas.fallback);
  pthread_mutex_lock(&blas.lock);
  snprintf(blas.fallback, sizeof blas.fallback, "%s", path);
  pthread_mutex_unlock(&blas.lock);
  return BPPSA_OK;
}

bppsa_status bppsa_blas_start(void) {
  if (atomic_load_explicit(&started, memory_order_acquire)) {
    return BPPSA_OK;
  }
  pthread_mutex_lock(&blas.lock);
  const bppsa_status status = atomic_load(&started) ? BPPSA_OK : start();
  pthread_mutex_unlock(&blas.lock);
  return status;
}

bppsa_status bppsa_blas_hold(void) {
  BPPSA_TRY(bppsa_blas_start());
  pthread_mutex_lock(&blas.lock);
  if (blas.holders == 0) {
    blas.host_threads = openblas.get_threads();
  }
  if (openblas.get_threads() != 1) {
    openblas.set_threads(1);
  }
  const int threads = openblas.get_threads();
  blas.holders += threads == 1;
  pthread_mutex_unlock(&blas.lock);
  if (threads != 1) {
    return bppsa_fail(BPPSA_ERR_LIBRARY, "OpenBLAS: %d threads after openblas_set_num_threads(1), expected 1", threads);
  }
  return BPPSA_OK;
}

void bppsa_blas_release(void) {
  pthread_mutex_lock(&blas.lock);
  if (blas.holders > 0 && --blas.holders == 0 && blas.host_threads != 1) {
    openblas.set_threads(blas.host_threads);
  }
  pthread_mutex_unlock(&blas.lock);
}

const char *bppsa_blas_description(void) {
  (void)bppsa_blas_start();
  return blas.description;
}

/* Waits until OpenBLAS has room for one more call. If memory is short, fewer calls run at the same time. */
static void enter(void) {
  pthread_mutex_lock(&entries.lock);
  while (entries.inside >= entries.room) {
    if (entries.room < entries.limit && has_space()) {
      ++entries.room;
    } else {
      pthread_cond_wait(&entries.left, &entries.lock);
    }
  }
  ++entries.inside;
  pthread_mutex_unlock(&entries.lock);
}

static void leave(void) {
  pthread_mutex_lock(&entries.lock);
  --entries.inside;
  pthread_cond_signal(&entries.left);
  pthread_mutex_unlock(&entries.lock);
}

static CBLAS_TRANSPOSE op(bool transposed) {
  return transposed ? CblasTrans : CblasNoTrans;
}

/* CBLAS requires row lengths of at least 1, also for empty matrices. */
static blasint row(int64_t length) {
  return length > 0 ? (blasint)length : 1;
}

#define EACH_REAL "core/compute/blas.inc"
#include "core/base/each_real.inc"
