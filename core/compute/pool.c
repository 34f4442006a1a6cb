#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity, RUSAGE_THREAD */
#endif
#include "core/compute/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "core/base/threads.h"

/* Nanoseconds. */
enum {
  LEAST_SHARE = 5000,   /* of work for each thread that takes part: several times the time to meet a thread that spins */
  WORTH_WAKING = 25000, /* of work in a loop: for less, no sleeping thread is woken, because waking takes the caller about 5000 */
  PIECE = 5000,         /* of work in a piece; claiming one takes about 100 */
  LONGEST_SPIN = 50000, /* longer than the time between two loops of a training step, shorter than the system's time slices */
  SHORTEST_SPIN = 2000, /* what going to sleep and being woken cost in any case */
  CROWDED_FOR = 20000000, /* after a thread has lost its processor to another program, no thread spins for so long */
  NOT_AGAIN = 1000000,    /* a thread that was woken in vain is not woken again for so long */
  RETRY = 1000000000      /* after the system has refused a thread, it is not asked again for so long */
};

enum { PIECES_PER_THREAD = 32 /* at most */ };

/* ---- one loop ---- */

typedef struct worker worker;

typedef struct {
  bppsa_loop_body body;
  const void *context;
  int64_t pieces, length, longer; /* the first `longer` pieces have length + 1 indices, the others `length` */
  double work;
  bool spins;                /* the caller may spin: the threads at work do not outnumber the processors */
  worker *workers;           /* the threads that were given the loop, linked by next */
  atomic_int_least64_t next; /* the first piece that no thread has claimed */
} loop;

static _Thread_local bool inside; /* this thread computes a piece of a shared loop */

static int64_t first_of(const loop *l, int64_t piece) {
  return piece * l->length + (piece < l->longer ? piece : l->longer);
}

static void take_part(loop *l, int32_t number) {
  int64_t piece;
  inside = true;
  while ((piece = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed)) < l->pieces) {
    l->body(l->context, number, first_of(l, piece), first_of(l, piece + 1));
  }
  inside = false;
}

/* The number of threads that the loop's work pays for. */
static int64_t worthwhile(int64_t threads, int64_t count, double work) {
  const int64_t most = threads < count ? threads : count;
  return work >= (double)most * LEAST_SHARE ? most : (int64_t)(work / LEAST_SHARE);
}

static void cut(loop *l, int64_t threads, int64_t count) {
  const double worth = l->work / PIECE, most = (double)(threads * PIECES_PER_THREAD);
  l->pieces = worth >= most ? threads * PIECES_PER_THREAD : (int64_t)worth;
  l->pieces = l->pieces < threads ? threads : l->pieces;
  l->pieces = l->pieces < count ? l->pieces : count;
  l->length = count / l->pieces;
  l->longer = count % l->pieces;
}

/* ---- waiting ---- */

/* Nanoseconds, as an integer and not as bppsa_now() (core/base/clock.h): threads share such times in atomic variables, and every
 * loop compares them. */
static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static atomic_int_least64_t crowded_until; /* until then no thread spins */

/* May this thread spin? Only if no other program has taken its processor lately. */
static bool is_calm(void) {
  static _Thread_local long switches = -1; /* involuntary context switches of this thread so far */
  const int64_t time = now();
  bool calm = atomic_load_explicit(&crowded_until, memory_order_relaxed) <= time;
#ifdef RUSAGE_THREAD
  struct rusage usage;
  if (getrusage(RUSAGE_THREAD, &usage) == 0) {
    if (switches >= 0 && usage.ru_nivcsw > switches) {
      atomic_store_explicit(&crowded_until, time + CROWDED_FOR, memory_order_relaxed);
      calm = false;
    }
    switches = usage.ru_nivcsw;
  }
#endif
  return calm;
}

static inline void pause_processor(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

/* Spins while *word is `value`, for at most `limit` nanoseconds. Returns whether it has changed. */
static bool spin_while(const atomic_int *word, int value, int64_t limit) {
  enum { POLLS = 32 };
  const int64_t begun = limit > 0 ? now() : 0;
  bool calm = false;
  for (int64_t spent = 0; spent < limit; spent = now() - begun) {
    for (int i = 0; i < POLLS; ++i) {
      if (atomic_load_explicit(word, memory_order_acquire) != value) {
        return true;
      }
      pause_processor();
    }
    if (spent > SHORTEST_SPIN && !calm) {
      calm = is_calm();
      limit = calm ? limit : 0;
    }
  }
  return atomic_load_explicit(word, memory_order_acquire) != value;
}

/* A place where threads sleep until a word changes. */
typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
} bed;

static void sleep_while(bed *b, const atomic_int *word, int value) {
  pthread_mutex_lock(&b->mutex);
  while (atomic_load(word) == value) {
    pthread_cond_wait(&b->changed, &b->mutex);
  }
  pthread_mutex_unlock(&b->mutex);
}

/* Wakes the sleepers; call it after the word has changed. */
static void wake(bed *b) {
  pthread_mutex_lock(&b->mutex);
  pthread_cond_broadcast(&b->changed);
  pthread_mutex_unlock(&b->mutex);
}

/* ---- threads ---- */

/* A thread's states. Its caller changes IDLE and SLEEPING to GIVEN, and GIVEN back to IDLE if all pieces are done before the
 * thread has begun. The thread changes IDLE to SLEEPING, GIVEN to RUNNING, and RUNNING to IDLE. AWAITED: it is running, and its
 * caller sleeps. */
enum { IDLE = 0, SLEEPING, GIVEN, RUNNING, AWAITED, ENDED };

struct worker {
  _Alignas(128) atomic_int state;
  atomic_int cpu;  /* the caller's processor when it gave the loop */
  int64_t wake_at; /* the earliest time to wake it */
  int32_t number;  /* in the loop given to it */
  loop *given;     /* read when RUNNING */
  worker *next;    /* in the list of idle threads, or of a loop's threads */
  bool may_spin;   /* a processor is free for it besides those of the caller and of the threads in front of it */
  bed bed;
  pthread_t thread;
};

/* Static memory, because callers watch the number of allocated blocks. */
static worker workers[BPPSA_MAX_THREADS];

static struct {
  pthread_mutex_t mutex;
  worker *idle;    /* threads that were created first, or worked last, are in front */
  int32_t created; /* workers[0 .. created - 1] */
  int32_t cpus;
  int32_t busy;     /* callers and threads inside loops */
  int64_t retry_at; /* when the system may be asked for a thread again */
  bool ended;       /* the program ends: all loops run on their callers alone */
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t started = PTHREAD_ONCE_INIT;
static atomic_bool refused; /* a test refuses new threads */

enum { CPU_SETS = 2 * BPPSA_MAX_THREADS / CPU_SETSIZE }; /* more than the 1024 CPUs of one cpu_set_t */

int64_t bppsa_pool_cpu_set(void) {
  cpu_set_t sets[CPU_SETS];
  unsigned char bytes[sizeof sets];
  uint64_t hash = UINT64_C(0xCBF29CE484222325); /* FNV-1a */
  if (sched_getaffinity(0, sizeof sets, sets) == 0) {
    memcpy(bytes, sets, sizeof sets);
    for (size_t i = 0; i < sizeof bytes; ++i) {
      hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3);
    }
  }
  return (int64_t)(hash >> 1);
}

int32_t bppsa_pool_cpus(void) {
  cpu_set_t sets[CPU_SETS];
  long cpus = 0;
  if (sched_getaffinity(0, sizeof sets, sets) == 0) {
    cpus = CPU_COUNT_S(sizeof sets, sets);
  } else {
    cpus = sysconf(_SC_NPROCESSORS_ONLN);
  }
  return cpus < 1 ? 1 : cpus > BPPSA_MAX_THREADS ? BPPSA_MAX_THREADS : (int32_t)cpus;
}

static void *live(void *self) {
  worker *w = self;
  int64_t spin = LONGEST_SPIN;
  for (;;) {
    int state = GIVEN;
    if (atomic_load(&w->state) == GIVEN && atomic_load_explicit(&w->cpu, memory_order_relaxed) == sched_getcpu()) {
      sched_yield(); /* it would only displace its caller, which may be done before this thread runs again */
    }
    if (atomic_compare_exchange_strong(&w->state, &state, RUNNING)) {
      take_part(w->given, w->number);
      if (atomic_exchange(&w->state, IDLE) == AWAITED) {
        wake(&w->bed);
      }
      spin = LONGEST_SPIN;
    } else if (state == ENDED) {
      return NULL;
    }
    if (spin_while(&w->state, IDLE, w->may_spin ? spin : 0)) {
      continue;
    }
    spin /= 2; /* until a loop comes, because waiting was in vain */
    state = IDLE;
    if (atomic_compare_exchange_strong(&w->state, &state, SLEEPING)) {
      sleep_while(&w->bed, &w->state, SLEEPING);
    }
  }
}

/* Blocks signals, which are for the program's own threads, except those that a fault of this thread raises and a profiler's. */
static void block_signals(sigset_t *before) {
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPROF};
  sigset_t set;
  sigfillset(&set);
  for (size_t i = 0; i < sizeof own / sizeof own[0]; ++i) {
    sigdelset(&set, own[i]);
  }
  pthread_sigmask(SIG_SETMASK, &set, before);
}

/* Creates one more thread; NULL if the system refuses. The pool must be locked. */
static worker *create(void) {
  if (pool.created == BPPSA_MAX_THREADS || (pool.retry_at != 0 && now() < pool.retry_at)) {
    return NULL;
  }
  worker *w = &workers[pool.created];
  sigset_t before;
  atomic_store(&w->state, IDLE);
  w->wake_at = 0;
  w->next = NULL;
  w->may_spin = pool.created + 1 < pool.cpus;
  pthread_mutex_init(&w->bed.mutex, NULL);
  pthread_cond_init(&w->bed.changed, NULL);
  block_signals(&before);
  const bool made = !atomic_load(&refused) && pthread_create(&w->thread, NULL, live, w) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!made) {
    pool.retry_at = now() + RETRY;
    return NULL;
  }
  ++pool.created;
  return w;
}

/* Ends the idle threads, at the end of the program or when the library is unloaded. */
static void end(void) {
  pthread_mutex_lock(&pool.mutex);
  worker *w = pool.idle;
  pool.idle = NULL;
  pool.ended = true;
  pthread_mutex_unlock(&pool.mutex);
  for (; w != NULL; w = w->next) {
    if (atomic_exchange(&w->state, ENDED) == SLEEPING) {
      wake(&w->bed);
    }
    pthread_join(w->thread, NULL);
  }
}

static void before_fork(void) {
  pthread_mutex_lock(&pool.mutex);
}

static void after_fork(void) {
  pthread_mutex_unlock(&pool.mutex);
}

/* In a child of fork(): only the calling thread exists. */
static void begin_again(void) {
  pthread_mutex_init(&pool.mutex, NULL);
  pool.idle = NULL;
  pool.created = pool.busy = 0;
  pool.retry_at = 0;
}

static void start(void) {
  pool.cpus = bppsa_pool_cpus();
  pthread_atfork(before_fork, after_fork, begin_again);
  atexit(end);
}

/* ---- a loop's threads ---- */

/* The number of threads that a caller may get: a single caller gets what it asks for, several share the processors. The pool must
 * be locked. */
static int64_t allowance(int64_t wanted) {
  const int64_t free = pool.cpus - pool.busy - 1;
  if (pool.ended) {
    return 0;
  }
  return pool.busy == 0 || wanted < free ? wanted : free < 0 ? 0 : free;
}

/* Takes an idle thread, or creates one, for a loop; NULL if there is none, or none worth waking. The pool must be locked. */
static worker *take(const loop *l) {
  worker *w = pool.idle;
  if (w == NULL) {
    return create();
  }
  if (atomic_load_explicit(&w->state, memory_order_relaxed) == SLEEPING && (l->work < WORTH_WAKING || now() < w->wake_at)) {
    return NULL;
  }
  pool.idle = w->next;
  w->next = NULL;
  return w;
}

/* Gives up to `wanted` threads to a loop. */
static void gather(loop *l, int64_t wanted) {
  worker **last = &l->workers;
  pthread_mutex_lock(&pool.mutex);
  wanted = allowance(wanted);
  ++pool.busy;
  for (int32_t number = 1; number <= wanted && (*last = take(l)) != NULL; ++number) {
    (*last)->number = number;
    last = &(*last)->next;
    ++pool.busy;
  }
  l->spins = pool.busy <= pool.cpus;
  pthread_mutex_unlock(&pool.mutex);
}

static void give(loop *l) {
  const int cpu = sched_getcpu();
  for (worker *w = l->workers; w != NULL; w = w->next) {
    w->given = l;
    atomic_store_explicit(&w->cpu, cpu, memory_order_relaxed);
    if (atomic_exchange(&w->state, GIVEN) == SLEEPING) {
      wake(&w->bed);
    }
  }
}

/* Waits until the thread has left the loop; does not wait for a thread that has not begun. */
static void recall(worker *w, bool spins) {
  int state = GIVEN;
  if (atomic_compare_exchange_strong(&w->state, &state, IDLE)) {
    w->wake_at = now() + NOT_AGAIN;
    return;
  }
  if (spin_while(&w->state, RUNNING, spins ? LONGEST_SPIN : 0)) {
    return;
  }
  state = RUNNING;
  if (atomic_compare_exchange_strong(&w->state, &state, AWAITED)) {
    sleep_while(&w->bed, &w->state, AWAITED);
  }
}

/* Returns the threads, in the order in which they were taken. */
static void dismiss(const loop *l) {
  int32_t count = 1;
  worker *last = NULL;
  for (worker *w = l->workers; w != NULL; w = w->next) {
    recall(w, l->spins);
    last = w;
    ++count;
  }
  pthread_mutex_lock(&pool.mutex);
  pool.busy -= count;
  if (last != NULL) {
    last->next = pool.idle;
    pool.idle = l->workers;
  }
  pthread_mutex_unlock(&pool.mutex);
}

void bppsa_parallel_for(int32_t threads, int64_t count, double work, bppsa_loop_body body, const void *context) {
  const int64_t sharing = inside ? 1 : worthwhile(threads, count, work);
  if (count <= 0) {
    return;
  }
  if (sharing <= 1) {
    body(context, 0, 0, count);
    return;
  }
  loop l = {.body = body, .context = context, .work = work};
  pthread_once(&started, start);
  cut(&l, sharing, count);
  gather(&l, sharing - 1);
  if (l.workers == NULL) {
    body(context, 0, 0, count);
  } else {
    give(&l);
    take_part(&l, 0);
  }
  dismiss(&l);
}

int32_t bppsa_pool_size(void) {
  pthread_mutex_lock(&pool.mutex);
  const int32_t size = pool.created;
  pthread_mutex_unlock(&pool.mutex);
  return size;
}

void bppsa_pool_refuse_threads(bool refuse) {
  pthread_mutex_lock(&pool.mutex);
  atomic_store(&refused, refuse);
  pool.retry_at = 0;
  pthread_mutex_unlock(&pool.mutex);
}
