/* A program that uses jansson, OpenBLAS with threads and OpenMP itself, beside the library: whatever belongs to the whole
 * process is as it was, before, while and after the library works. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <cblas.h>
#include <dirent.h>
#include <fenv.h>
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/compute/blas.h"
#include "core/compute/device.h"
#include "core/files/json.h"
#include "core/files/safetensors.h"

enum { N = 160, HOST_THREADS = 2 };

static double a[N * N], b[N * N];

static void fill(void) {
  for (int i = 0; i < N * N; ++i) {
    a[i] = (double)(i * 37 % 101) / 101 - 0.5;
    b[i] = (double)(i * 53 % 97) / 97 - 0.5;
  }
}

static void host_product(double *c) {
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, a, N, b, N, 0, c, N);
}

static void use_library(void) {
  bppsa_device *device = NULL;
  assert_int_equal(bppsa_device_create("cpu", 3, &device), BPPSA_OK);
  double *c = calloc(N * N, sizeof *c);
  assert_non_null(c);
  bppsa_gemm_f64(false, false, N, N, N, 1, a, N, b, N, 0, c, N);
  assert_true(isfinite(c[N + 1]));
  json_t *value = NULL;
  char *text = NULL;
  assert_int_equal(bppsa_json_parse("text", "{\"list\": [1, 2.5]}", 18, &value), BPPSA_OK);
  assert_int_equal(bppsa_json_text(value, 0, 0, &text), BPPSA_OK);
  assert_string_equal(text, "{\"list\": [1, 2.5]}");
  json_decref(value);
  bppsa_free(text);
  const int64_t shape[] = {N, N};
  const bppsa_named_view tensor = {"a", bppsa_view_make(a, BPPSA_F64, 2, shape)};
  bppsa_safetensors *file = NULL;
  assert_int_equal(bppsa_safetensors_save("host.safetensors", 1, &tensor, 0, NULL), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_load("host.safetensors", &file), BPPSA_OK);
  bppsa_safetensors_destroy(file);
  assert_int_equal(remove("host.safetensors"), 0);
  free(c);
  bppsa_device_destroy(device);
}

/* ---- jansson ---- */

static void jansson(void **state) {
  (void)state;
  json_malloc_t allocate = NULL, allocate_after = NULL;
  json_free_t release = NULL, release_after = NULL;
  json_get_alloc_funcs(&allocate, &release);
  json_t *own = json_pack("{s:i, s:[f, s]}", "count", 3, "list", 0.5, "x");
  assert_non_null(own);
  use_library();
  char *text = json_dumps(own, 0);
  assert_string_equal(text, "{\"count\": 3, \"list\": [0.5, \"x\"]}");
  free(text); /* jansson's memory is the system's */
  json_decref(own);
  json_get_alloc_funcs(&allocate_after, &release_after);
  assert_true(allocate == allocate_after && release == release_after);
}

/* ---- OpenBLAS and OpenMP ---- */

static void openblas(void **state) {
  (void)state;
  double *before = calloc(N * N, sizeof *before), *after = calloc(N * N, sizeof *after);
  openblas_set_num_threads(HOST_THREADS);
  host_product(before);
  use_library();
  assert_int_equal(openblas_get_num_threads(), HOST_THREADS);
  host_product(after);
  assert_memory_equal(before, after, N * N * sizeof *before);
  bppsa_device *one = NULL, *two = NULL; /* held as long as a device lives */
  assert_int_equal(bppsa_device_create("cpu", 1, &one), BPPSA_OK);
  assert_int_equal(bppsa_device_create("cpu", 2, &two), BPPSA_OK);
  bppsa_device_destroy(one);
  assert_int_equal(openblas_get_num_threads(), 1);
  bppsa_device_destroy(two);
  assert_int_equal(openblas_get_num_threads(), HOST_THREADS);
  free(before);
  free(after);
}

/* The host's threads call OpenBLAS and the library at once. */
static void openmp(void **state) {
  (void)state;
  enum { CALLS = 64 };
  double *expected = calloc(N * N, sizeof *expected);
  host_product(expected);
  int wrong = 0;
#pragma omp parallel for num_threads(4) reduction(+ : wrong)
  for (int i = 0; i < CALLS; ++i) {
    double *c = calloc(N * N, sizeof *c);
    if (i % 4 == 0) {
      bppsa_device *device = NULL;
      wrong += bppsa_device_create("cpu", 2, &device) != BPPSA_OK;
      bppsa_gemm_f64(false, false, N, N, N, 1, a, N, b, N, 0, c, N);
      bppsa_device_destroy(device);
    } else {
      host_product(c);
    }
    for (int j = 0; j < N * N; ++j) {
      wrong += !(fabs(c[j] - expected[j]) < 1e-12);
    }
    free(c);
  }
  assert_int_equal(wrong, 0);
  assert_int_equal(openblas_get_num_threads(), HOST_THREADS);
  free(expected);
}

/* ---- the process ---- */

static int open_files(void) {
  int count = 0;
  DIR *directory = opendir("/proc/self/fd");
  while (directory != NULL && readdir(directory) != NULL) {
    ++count;
  }
  if (directory != NULL) {
    closedir(directory);
  }
  return count;
}

typedef struct {
  void (*handlers[NSIG])(int);
  int flags[NSIG];
  sigset_t mask;
  char locale[256], directory[4096];
  char **environment;
  size_t variables;
  mode_t creation;
  int files;
} process;

static void observe(process *p) {
  memset(p, 0, sizeof *p);
  for (int i = 1; i < NSIG; ++i) {
    struct sigaction action = {0};
    sigaction(i, NULL, &action);
    p->handlers[i] = action.sa_handler;
    p->flags[i] = action.sa_flags;
  }
  pthread_sigmask(SIG_SETMASK, NULL, &p->mask);
  snprintf(p->locale, sizeof p->locale, "%s", setlocale(LC_ALL, NULL));
  assert_non_null(getcwd(p->directory, sizeof p->directory));
  p->environment = environ;
  while (environ[p->variables] != NULL) {
    ++p->variables;
  }
  p->creation = umask(022);
  umask(p->creation);
  p->files = open_files();
}

static void process_state(void **state) {
  (void)state;
  static process before, after;
  feclearexcept(FE_ALL_EXCEPT);
  const int rounding = fegetround();
  observe(&before);
  use_library();
  observe(&after);
  assert_memory_equal(&before, &after, sizeof before);
  assert_int_equal(fegetround(), rounding);
  volatile double tiny = 0x1p-1074;
  assert_true(tiny * 1.0 != 0.0); /* subnormal numbers are what they were */
}

int main(void) {
  fill();
  const struct CMUnitTest tests[] = {cmocka_unit_test(jansson), cmocka_unit_test(openblas), cmocka_unit_test(openmp),
                                     cmocka_unit_test(process_state)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
