/* The library's threads: every index once with any number of threads, simultaneous callers, nested loops, threads that are late,
 * refused or lost in a fork, and threads that sleep while there is nothing to do. The only time that is asserted is processor time,
 * which idle threads must not use. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/compute/pool.h"
#include "tests/core/helpers.h"
#include "tests/support/sanitized.h"

enum { MOST_THREADS = 17, MOST = 1000 };
#define LONG ((double)INFINITY)

/* ---- what is computed ---- */

typedef struct {
  int32_t threads;
  atomic_int *times;    /* an index was computed; size count */
  atomic_bool *at_work; /* a worker's number is in use; size threads */
  atomic_bool *wrong;
  double *values; /* size count */
} task;

static double value_at(int64_t i) {
  double x = (double)i + 0.25;
  for (int k = 0; k < 20; ++k) {
    x = x * 1.0009765625 + 1 / (x + k);
  }
  return x;
}

static void compute(const void *context, int32_t worker, int64_t first, int64_t end) {
  const task *t = context;
  if (worker < 0 || worker >= t->threads || first >= end || atomic_exchange(&t->at_work[worker], true)) {
    atomic_store(t->wrong, true);
    return;
  }
  for (int64_t i = first; i < end; ++i) {
    atomic_fetch_add(&t->times[i], 1);
    t->values[i] = value_at(i);
  }
  atomic_store(&t->at_work[worker], false);
}

/* Runs a loop and checks it; false when anything is wrong. Callable from any thread. */
static bool is_right(int32_t threads, int64_t count, double work) {
  atomic_int times[MOST];
  atomic_bool at_work[MOST_THREADS], wrong = false;
  double values[MOST];
  for (int64_t i = 0; i < count; ++i) {
    atomic_init(&times[i], 0);
  }
  for (int32_t w = 0; w < threads; ++w) {
    atomic_init(&at_work[w], false);
  }
  const task t = {threads, times, at_work, &wrong, values};
  bppsa_parallel_for(threads, count, work, compute, &t);
  bool right = !atomic_load(&wrong);
  for (int64_t i = 0; i < count; ++i) {
    const double expected = value_at(i);
    right = right && atomic_load(&times[i]) == 1 && memcmp(&values[i], &expected, sizeof expected) == 0;
  }
  return right;
}

static void every_count_and_every_number_of_threads(void **state) {
  (void)state;
  static const int64_t counts[] = {0, 1, 2, 3, 5, 10, 50, 97, MOST};
  static const double works[] = {0, 9999, 20000, 1e6, LONG};
  for (int32_t threads = 1; threads <= MOST_THREADS; ++threads) {
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; ++c) {
      for (size_t w = 0; w < sizeof works / sizeof works[0]; ++w) {
        assert_true(is_right(threads, counts[c], works[w]));
      }
    }
  }
  assert_in_range(bppsa_pool_size(), 1, MOST_THREADS - 1); /* as many as were needed at once */
}

/* ---- who takes part ---- */

typedef struct {
  pthread_t caller;
  atomic_int *calls;
  atomic_bool *elsewhere;
} place;

static void note_place(const void *context, int32_t worker, int64_t first, int64_t end) {
  const place *p = context;
  (void)first, (void)end;
  atomic_fetch_add(p->calls, 1);
  if (worker != 0 || !pthread_equal(pthread_self(), p->caller)) {
    atomic_store(p->elsewhere, true);
  }
}

static void small_loops_stay_with_the_caller(void **state) {
  (void)state;
  static const struct {
    int32_t threads;
    int64_t count;
    double work;
  } small[] = {{8, 100, 0}, {8, 100, 9000}, {8, 100, -1}, {1, 100, LONG}, {8, 1, LONG}};
  for (size_t i = 0; i < sizeof small / sizeof small[0]; ++i) {
    atomic_int calls = 0;
    atomic_bool elsewhere = false;
    const place p = {pthread_self(), &calls, &elsewhere};
    bppsa_parallel_for(small[i].threads, small[i].count, small[i].work, note_place, &p);
    assert_int_equal(atomic_load(&calls), 1);
    assert_false(atomic_load(&elsewhere));
  }
}

static void work_is_the_larger_of_arithmetic_and_traffic(void **state) {
  (void)state;
  assert_true(bppsa_loop_work(8000, 0) == 1000 && bppsa_loop_work(0, 4000) == 1000 && bppsa_loop_work(8000, 4004) == 1001);
}

typedef struct {
  atomic_int *done;
  int all;
  sigset_t *masks; /* of the threads 0 and 1 */
} meeting;

/* Index 0 waits until all other indices are done, so another thread must do them. */
static void wait_for_the_rest(const void *context, int32_t worker, int64_t first, int64_t end) {
  const meeting *m = context;
  for (int64_t i = first; i < end; ++i) {
    while (i == 0 && atomic_load(m->done) < m->all - 1) {
      sched_yield();
    }
    pthread_sigmask(SIG_BLOCK, NULL, &m->masks[worker]);
    atomic_fetch_add(m->done, 1);
  }
}

static void a_slow_piece_holds_up_nothing_else(void **state) {
  (void)state;
  sigset_t masks[2], own;
  pthread_sigmask(SIG_BLOCK, NULL, &own);
  for (int i = 0; i < 20; ++i) {
    const struct timespec moment = {.tv_nsec = 5000000}; /* a thread that was woken in vain may be woken again then */
    atomic_int done = 0;
    nanosleep(&moment, NULL);
    const meeting m = {&done, 64, masks};
    bppsa_parallel_for(2, 64, LONG, wait_for_the_rest, &m);
    assert_int_equal(atomic_load(&done), 64);
  }
  assert_true(sigismember(&masks[1], SIGINT) == 1 &&
              sigismember(&masks[1], SIGTERM) == 1); /* signals go to the program's threads */
  assert_true(sigismember(&masks[1], SIGSEGV) == 0);
  for (int s = 1; s < 32; ++s) {
    assert_int_equal(sigismember(&masks[0], s), sigismember(&own, s)); /* whose masks stay as they were */
  }
}

typedef struct {
  int32_t threads;
  atomic_int *wrong;
} nested;

static void nest(const void *context, int32_t worker, int64_t first, int64_t end) {
  (void)worker;
  const nested *n = context;
  for (int64_t i = first; i < end; ++i) {
    atomic_int calls = 0;
    atomic_bool elsewhere = false;
    const place p = {pthread_self(), &calls, &elsewhere};
    bppsa_parallel_for(n->threads, 100, LONG, note_place, &p);
    atomic_fetch_add(n->wrong, atomic_load(&calls) != 1 || atomic_load(&elsewhere));
  }
}

static void loops_within_loops_stay_on_their_thread(void **state) {
  (void)state;
  for (int32_t threads = 2; threads <= 5; ++threads) {
    atomic_int wrong = 0;
    bppsa_parallel_for(threads, 300, LONG, nest, &(nested){threads, &wrong});
    assert_int_equal(atomic_load(&wrong), 0);
  }
}

/* ---- many ---- */

typedef struct {
  int64_t loops, failed;
  unsigned seed;
} caller;

static void *call(void *context) {
  caller *c = context;
  for (int64_t i = 0; i < c->loops; ++i) {
    c->seed = c->seed * 1103515245u + 12345u;
    const int32_t threads = (int32_t)(c->seed >> 16) % 5 + 1;
    const int64_t count = (c->seed >> 8) % 60;
    c->failed += !is_right(threads, count, (c->seed >> 4) % 3 == 0 ? LONG : 2e4);
  }
  return NULL;
}

static void several_callers_at_once(void **state) {
  (void)state;
  enum { CALLERS = 8 };
  pthread_t threads[CALLERS];
  caller callers[CALLERS];
  for (unsigned i = 0; i < CALLERS; ++i) {
    callers[i] = (caller){.loops = 500, .seed = i + 1};
    assert_int_equal(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
  }
  for (int i = 0; i < CALLERS; ++i) {
    pthread_join(threads[i], NULL);
    assert_int_equal(callers[i].failed, 0);
  }
}

static void add(const void *context, int32_t worker, int64_t first, int64_t end) {
  int64_t *const *sums = context;
  for (int64_t i = first; i < end; ++i) {
    sums[0][8 * worker] += i + 1;
  }
}

static void many_tiny_loops(void **state) {
  (void)state;
  int64_t sums[8 * 3] = {0};
  const int64_t *const context[] = {sums};
  for (int i = 0; i < 100000; ++i) {
    bppsa_parallel_for(3, 3, 15000, add, context);
  }
  assert_int_equal(sums[0] + sums[8] + sums[16], 600000);
}

/* ---- what fails ---- */

/* Must be the first test: no thread exists yet. */
static void refused_threads_leave_the_caller_alone(void **state) {
  (void)state;
  assert_int_equal(bppsa_pool_size(), 0);
  bppsa_pool_refuse_threads(true);
  for (int32_t threads = 1; threads <= MOST_THREADS; ++threads) {
    atomic_int calls = 0;
    atomic_bool elsewhere = false;
    const place p = {pthread_self(), &calls, &elsewhere};
    assert_true(is_right(threads, 50, LONG));
    bppsa_parallel_for(threads, 50, LONG, note_place, &p);
    assert_int_equal(atomic_load(&calls), 1);
    assert_false(atomic_load(&elsewhere));
  }
  assert_int_equal(bppsa_pool_size(), 0);
  bppsa_pool_refuse_threads(false);
}

/* One thread exists; further ones are refused. */
static void some_threads_are_refused(void **state) {
  (void)state;
  assert_true(is_right(2, 50, LONG));
  const int32_t before = bppsa_pool_size();
  assert_int_equal(before, 1);
  bppsa_pool_refuse_threads(true);
  assert_true(is_right(MOST_THREADS, 50, LONG));
  assert_int_equal(bppsa_pool_size(), before);
  bppsa_pool_refuse_threads(false);
}

static void no_memory_is_needed(void **state) {
  (void)state;
  const int64_t live = bppsa_alloc_live();
  bppsa_alloc_fail_at(1);
  const bool right = is_right(MOST_THREADS, 200, LONG);
  const int64_t calls = bppsa_alloc_calls();
  bppsa_alloc_fail_at(0);
  assert_true(right);
  assert_int_equal(calls, 0);
  assert_int_equal(bppsa_alloc_live(), live);
}

/* In a child the thread sanitizer starts no threads: its loops run on the caller. */
static int child(void) {
  bppsa_pool_refuse_threads(THREAD_SANITIZED);
  const bool begins_alone = bppsa_pool_size() == 0;
  bool right = true;
  for (int i = 0; i < 20; ++i) {
    right = right && is_right(3, 50, LONG);
  }
  return begins_alone && right && bppsa_pool_size() == (THREAD_SANITIZED ? 0 : 2) ? 0 : 1;
}

static void fork_and_check(void) {
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    _exit(child());
  }
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_child_makes_threads_of_its_own(void **state) {
  (void)state;
  assert_true(is_right(3, 50, LONG));
  fork_and_check();
  assert_true(is_right(3, 50, LONG)); /* the parent's threads still work */
  pthread_t thread;
  caller busy = {.loops = 2000, .seed = 7};
  assert_int_equal(pthread_create(&thread, NULL, call, &busy), 0);
  for (int i = 0; i < 10; ++i) {
    fork_and_check(); /* while another thread is inside loops */
  }
  pthread_join(thread, NULL);
  assert_int_equal(busy.failed, 0);
}

/* Leaves bytes of this value where the next function has its variables. */
__attribute__((noinline)) static void fill_stack(unsigned char value) {
  volatile unsigned char bytes[1 << 14];
  for (size_t i = 0; i < sizeof bytes; ++i) {
    bytes[i] = value;
  }
}

static void a_set_of_processors_has_one_number(void **state) {
  (void)state;
  fill_stack(0xff);
  const int64_t first = bppsa_pool_cpu_set();
  fill_stack(0x55);
  assert_int_equal(bppsa_pool_cpu_set(), first);
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2) { /* more processors than a set has room for, or one */
    return;
  }
  size_t cpu = 0;
  while (!CPU_ISSET(cpu, &all)) {
    ++cpu;
  }
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  const int64_t second = bppsa_pool_cpu_set();
  assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
  assert_true(second != first);
  assert_int_equal(bppsa_pool_cpu_set(), first);
}

/* The threads that this process has. */
static int count_threads(void) {
  DIR *tasks = opendir("/proc/self/task");
  int threads = 0;
  for (const struct dirent *entry; tasks != NULL && (entry = readdir(tasks)) != NULL;) {
    threads += entry->d_name[0] != '.';
  }
  if (tasks != NULL) {
    closedir(tasks);
  }
  return threads;
}

static bool must_be_alone_at_the_end;

/* Runs behind everything that atexit() was given. The kernel may list a thread a moment longer than pthread_join() waits for it. */
__attribute__((destructor)) static void look_for_threads(void) {
  if (!must_be_alone_at_the_end) {
    return;
  }
  const struct timespec moment = {.tv_nsec = 1000000};
  for (int i = 0; i < 2000 && count_threads() > 1; ++i) {
    nanosleep(&moment, NULL);
  }
  _exit(count_threads() == 1 ? 0 : 1);
}

static void no_thread_outlives_the_program(void **state) {
  (void)state;
  if (THREAD_SANITIZED) {
    skip(); /* a child has no threads there */
  }
  fflush(NULL);
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    must_be_alone_at_the_end = is_right(3, 50, LONG) && count_threads() == 3;
    exit(9); /* the destructor has the last word, unless the loop went wrong */
  }
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static double processor_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void idle_threads_sleep(void **state) {
  (void)state;
  assert_true(is_right(MOST_THREADS, MOST, LONG));
  const struct timespec while_idle = {.tv_nsec = 300000000};
  const double before = processor_seconds();
  nanosleep(&while_idle, NULL);
  assert_true(processor_seconds() - before < 0.1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(refused_threads_leave_the_caller_alone),
      cmocka_unit_test(some_threads_are_refused),
      cmocka_unit_test(every_count_and_every_number_of_threads),
      cmocka_unit_test(small_loops_stay_with_the_caller),
      cmocka_unit_test(work_is_the_larger_of_arithmetic_and_traffic),
      cmocka_unit_test(a_slow_piece_holds_up_nothing_else),
      cmocka_unit_test(loops_within_loops_stay_on_their_thread),
      cmocka_unit_test(several_callers_at_once),
      cmocka_unit_test(many_tiny_loops),
      cmocka_unit_test(no_memory_is_needed),
      cmocka_unit_test(a_child_makes_threads_of_its_own),
      cmocka_unit_test(a_set_of_processors_has_one_number),
      cmocka_unit_test(no_thread_outlives_the_program),
      cmocka_unit_test(idle_threads_sleep),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
