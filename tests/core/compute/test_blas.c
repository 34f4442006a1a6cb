/* gemm against three loops, empty extents, and many threads at once. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/philox.h"
#include "core/compute/blas.h"
#include "core/compute/device.h"
#include "tests/core/helpers.h"
#include "tests/support/sanitized.h"

enum { LARGEST = 70, PADDING = 3, AREA = LARGEST * (LARGEST + PADDING) };

static double numbers[3][AREA];

static void fill(void) {
  for (int which = 0; which < 3; ++which) {
    for (uint64_t i = 0; i < AREA; ++i) {
      numbers[which][i] = 2 * bppsa_random_double(1, BPPSA_STREAM_TEST + (uint64_t)which, i) - 1;
    }
  }
}

/* C = alpha op(A) op(B) + beta C */
static void reference(const bool trans[2], const int64_t n[3], double alpha, const int64_t ld[3], double beta, double *c) {
  for (int64_t i = 0; i < n[0]; ++i) {
    for (int64_t j = 0; j < n[1]; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < n[2]; ++k) {
        sum += (trans[0] ? numbers[0][k * ld[0] + i] : numbers[0][i * ld[0] + k]) *
               (trans[1] ? numbers[1][j * ld[1] + k] : numbers[1][k * ld[1] + j]);
      }
      c[i * ld[2] + j] = alpha * sum + (beta == 0 ? 0 : beta * c[i * ld[2] + j]);
    }
  }
}

static void compare(const bool trans[2], const int64_t n[3], double alpha, double beta) {
  const int64_t ld[3] = {(trans[0] ? n[0] : n[2]) + PADDING, (trans[1] ? n[2] : n[1]) + PADDING, n[1] + PADDING};
  static double expected[AREA], d[AREA];
  static float a[AREA], b[AREA], f[AREA];
  for (int i = 0; i < AREA; ++i) {
    a[i] = (float)numbers[0][i];
    b[i] = (float)numbers[1][i];
    d[i] = beta == 0 ? (double)NAN : numbers[2][i]; /* beta = 0 must not read C */
    f[i] = (float)d[i];
    expected[i] = d[i];
  }
  reference(trans, n, alpha, ld, beta, expected);
  bppsa_gemm_f64(trans[0], trans[1], n[0], n[1], n[2], alpha, numbers[0], ld[0], numbers[1], ld[1], beta, d, ld[2]);
  bppsa_gemm_f32(trans[0], trans[1], n[0], n[1], n[2], (float)alpha, a, ld[0], b, ld[1], (float)beta, f, ld[2]);
  for (int64_t i = 0; i < AREA; ++i) {
    const bool touched = i / ld[2] < n[0] && i % ld[2] < n[1];
    if (touched) {
      assert_true(fabs(d[i] - expected[i]) < 1e-13);
      assert_true(fabs((double)f[i] - expected[i]) < 5e-5);
    } else { /* between the rows and behind them nothing is written */
      assert_true(beta == 0 ? isnan(d[i]) && isnan(f[i]) : d[i] == numbers[2][i] && f[i] == (float)numbers[2][i]);
    }
  }
}

static void against_loops(void **state) {
  (void)state;
  static const int64_t sizes[] = {0, 1, 2, 3, 16, 20, 33, LARGEST - PADDING};
  const int count = sizeof sizes / sizeof sizes[0];
  for (int m = 0; m < count; ++m) {
    for (int n = 0; n < count; ++n) {
      for (int k = 0; k < count; ++k) {
        for (int trans = 0; trans < 4; ++trans) {
          const bool both[2] = {(trans & 1) != 0, (trans & 2) != 0};
          const int64_t extents[3] = {sizes[m], sizes[n], sizes[k]};
          compare(both, extents, 1.0, (m + n + k) % 2 == 0 ? 0.0 : 1.0);
          compare(both, extents, -0.5, (m + n + k) % 2 == 0 ? 2.0 : 0.0);
        }
      }
    }
  }
}

static void row_length_zero(void **state) {
  (void)state;
  double c[4] = {1, 2, 3, (double)NAN};
  bppsa_gemm_f64(false, false, 2, 2, 0, 1.0, NULL, 0, NULL, 2, 0.5, c, 2);
  assert_true(c[0] == 0.5 && c[1] == 1.0 && c[2] == 1.5 && isnan(c[3]));
  bppsa_gemm_f64(false, false, 2, 2, 0, 1.0, NULL, 0, NULL, 2, 0.0, c, 2);
  assert_true(c[0] == 0.0 && c[3] == 0.0);
  bppsa_gemm_f64(false, false, 0, 2, 2, 1.0, NULL, 2, numbers[1], 2, 0.0, NULL, 2);
}

static void nonfinite_values_pass_through(void **state) {
  (void)state;
  const double a[4] = {1, (double)NAN, 2, 3};
  const double b[4] = {1, 0, 0, 0};
  double c[4];
  bppsa_gemm_f64(false, false, 2, 2, 2, 1.0, a, 2, b, 2, 0.0, c, 2);
  assert_true(isnan(c[0]) && isnan(c[1]) && c[2] == 2.0 && c[3] == 0.0);
}

static void one_thread_inside(void **state) {
  (void)state;
  assert_int_equal(bppsa_blas_start(), BPPSA_OK);
  assert_int_equal(bppsa_blas_start(), BPPSA_OK);
  assert_non_null(strstr(bppsa_blas_description(), "OpenBLAS"));
}

enum { CROWD = 300, N = 96 };
static pthread_barrier_t barrier;
static double crowd_result[CROWD][8];

static void *crowd_member(void *argument) {
  double *mine = argument;
  double *c = malloc(N * N * sizeof *c);
  pthread_barrier_wait(&barrier);
  for (int repeat = 0; repeat < 5; ++repeat) {
    bppsa_gemm_f64(false, true, LARGEST, LARGEST, LARGEST, 1.0, numbers[0], LARGEST, numbers[1], LARGEST, 0.0, c, N);
  }
  for (int i = 0; i < 8; ++i) {
    mine[i] = c[i * N + i];
  }
  free(c);
  return NULL;
}

/* More threads than OpenBLAS has room for: every one gets the same bits. */
static void crowd(void **state) {
  (void)state;
  bppsa_device *device = NULL;
  assert_int_equal(bppsa_device_create("cpu", CROWD, &device), BPPSA_OK);
  assert_int_equal(pthread_barrier_init(&barrier, NULL, CROWD), 0);
  static pthread_t threads[CROWD];
  for (int i = 0; i < CROWD; ++i) {
    assert_int_equal(pthread_create(&threads[i], NULL, crowd_member, crowd_result[i]), 0);
  }
  for (int i = 0; i < CROWD; ++i) {
    pthread_join(threads[i], NULL);
    assert_memory_equal(crowd_result[i], crowd_result[0], sizeof crowd_result[0]);
  }
  assert_true(crowd_result[0][0] != 0.0);
  bppsa_device_destroy(device);
  pthread_barrier_destroy(&barrier);
}

/* ---- little memory ---- */

/* The process's address space in bytes. */
static size_t address_space(void) {
  unsigned long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  const int found = file != NULL ? fscanf(file, "%lu", &pages) : 0;
  if (file != NULL) {
    fclose(file);
  }
  return found == 1 ? (size_t)pages * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

/* Runs `action` in a process of its own that may use `megabytes` of address space more and is killed after a minute. Returns
 * its exit status, or -1 where a signal ended it. */
static int with_little_memory(size_t megabytes, int (*action)(void)) {
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    const size_t bytes = address_space() + (megabytes << 20);
    const struct rlimit limit = {bytes, bytes};
    alarm(60);
    _exit(setrlimit(RLIMIT_AS, &limit) != 0 ? 99 : action());
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The library's program says its version: it needs no product. */
static int say_version(void) {
#ifdef BPPSA_TEST_PROGRAM
  execl(BPPSA_TEST_PROGRAM, BPPSA_TEST_PROGRAM, "--version", (char *)NULL);
#endif
  return 98;
}

static int refuse_device(void) {
  bppsa_device *device = NULL;
  const bppsa_status status = bppsa_device_create("cpu", 2, &device);
  return status == BPPSA_ERR_MEMORY && device == NULL && strstr(bppsa_last_error(), "OpenBLAS: out of memory") != NULL ? 0 : 1;
}

enum { FEW = 4 };

static void *multiply(void *argument) {
  double *c = argument;
  bppsa_gemm_f64(false, true, LARGEST, LARGEST, LARGEST, 1.0, numbers[0], LARGEST, numbers[1], LARGEST, 0.0, c, LARGEST);
  return NULL;
}

/* Several threads where OpenBLAS finds room for one work buffer: they take turns. */
static int take_turns(void) {
  bppsa_device *device = NULL;
  static double results[FEW][LARGEST * LARGEST];
  pthread_t threads[FEW];
  if (bppsa_device_create("cpu", FEW, &device) != BPPSA_OK) {
    return 1;
  }
  for (int repeat = 0; repeat < 50; ++repeat) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 18);
    for (int i = 0; i < FEW; ++i) {
      if (pthread_create(&threads[i], &small, multiply, results[i]) != 0) {
        return 2;
      }
    }
    for (int i = 0; i < FEW; ++i) {
      pthread_join(threads[i], NULL);
    }
  }
  for (int i = 1; i < FEW; ++i) {
    if (memcmp(results[i], results[0], sizeof results[0]) != 0 || results[0][0] == 0) {
      return 3;
    }
  }
  bppsa_device_destroy(device);
  return 0;
}

/* Before OpenBLAS is loaded into this process. */
static void little_memory(void **state) {
  (void)state;
  if (ADDRESS_SANITIZED || THREAD_SANITIZED) { /* their shadow is larger than any limit */
    skip();
  }
  const int64_t version = with_little_memory(120, say_version);
  assert_true(version == 0 || version == 98);
  assert_int_equal(with_little_memory(20, refuse_device), 0);  /* too little to load OpenBLAS */
  assert_int_equal(with_little_memory(100, refuse_device), 0); /* or for its first buffer */
  assert_int_equal(with_little_memory(320, take_turns), 0);
}

int main(void) {
  fill();
  const struct CMUnitTest tests[] = {cmocka_unit_test(little_memory),
                                     cmocka_unit_test(one_thread_inside),
                                     cmocka_unit_test(against_loops),
                                     cmocka_unit_test(row_length_zero),
                                     cmocka_unit_test(nonfinite_values_pass_through),
                                     cmocka_unit_test(crowd)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
