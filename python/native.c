/* Scans and commands for python/bppsa/_native.py. */
#include "python/native.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "bppsa_version.h"
#include "cli/cli.h"
#include "comm/comm.h"
#include "core/base/alloc.h"
#include "core/compute/blas.h"
#include "python/passes.h"
#include "scan/scan.h"

const char *bppsa_python_version(void) {
  return BPPSA_COMMIT[0] != '\0' ? BPPSA_VERSION " " BPPSA_COMMIT : BPPSA_VERSION;
}

const char *bppsa_python_error(void) {
  return bppsa_last_error();
}

bppsa_status bppsa_python_openblas(const char *path) {
  return bppsa_blas_set_fallback(path);
}

/* ---- commands ---- */

/* In a process of mpirun: after a failure the others wait until the job ends. */
static void end_job(void) {
  bppsa_comm_end_job(1);
}

static void end_job_at_exit(void) {
  (void)atexit(end_job);
}

int32_t bppsa_python_left_behind(void) {
  return bppsa_comm_left_behind();
}

int bppsa_python_command(int argc, char **argv, const int *told, char **out, char **err) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  char *texts[2] = {NULL, NULL};
  size_t sizes[2];
  FILE *streams[2] = {open_memstream(&texts[0], &sizes[0]), open_memstream(&texts[1], &sizes[1])};
  int code = 1;
  if (bppsa_comm_launched()) {
    (void)pthread_once(&once, end_job_at_exit);
  }
  if (streams[0] != NULL && streams[1] != NULL) {
    code = bppsa_run(argc, argv, streams[0], streams[1], told);
  }
  for (int i = 0; i < 2; ++i) {
    if (streams[i] == NULL || fclose(streams[i]) != 0) {
      free(texts[i]);
      texts[i] = NULL;
    }
  }
  *out = texts[0];
  *err = texts[1];
  return code;
}

void bppsa_python_free(void *text) {
  free(text);
}

int64_t bppsa_python_allocated(void) {
  return bppsa_alloc_live();
}

/* ---- scans ---- */

struct bppsa_python_scan {
  bppsa_device *device;
  bppsa_scan_plan *plan;
  bppsa_scan_executor *executor;
  int64_t batch;
};

static bppsa_status make_scan(bppsa_scan_config *config, int64_t threads, int32_t gpu, void *stream, bppsa_python_scan *scan) {
  BPPSA_TRY(bppsa_python_open_device(threads, gpu, stream, &scan->device));
  config->device = bppsa_device_get_kind(scan->device);
  BPPSA_TRY(bppsa_scan_plan_create(config, &scan->plan));
  return bppsa_scan_executor_create(scan->plan, scan->device, &scan->executor);
}

bppsa_status bppsa_python_scan_create(const char *method, int diagonal, int f64, const int64_t sizes[3], int affine,
                                      int64_t threads, int32_t gpu, void *stream, bppsa_python_scan **scan) {
  bppsa_scan_config config = bppsa_scan_config_default();
  config.element = diagonal ? BPPSA_ELEMENT_DIAGONAL : BPPSA_ELEMENT_DENSE;
  config.dtype = f64 ? BPPSA_F64 : BPPSA_F32;
  config.jacobians = sizes[0];
  config.batch = sizes[1];
  config.dim = sizes[2];
  config.affine = affine;
  config.input = true;
  BPPSA_TRY(bppsa_scan_method_parse(method, &config.method));
  bppsa_python_scan *made = calloc(1, sizeof *made);
  if (made == NULL) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "scan: no memory for %zu bytes", sizeof *made);
  }
  made->batch = sizes[1];
  const bppsa_status status = make_scan(&config, threads, gpu, stream, made);
  if (status != BPPSA_OK) {
    bppsa_python_scan_destroy(made);
    return status;
  }
  *scan = made;
  return BPPSA_OK;
}

bppsa_status bppsa_python_scan_run(bppsa_python_scan *scan, const void *jt, const void *injected, void *gradients) {
  const bppsa_scan_operands operands = {.batch = scan->batch, .jt = jt, .injected = injected, .gradients = gradients};
  return scan->executor->execute(scan->executor, &operands);
}

void bppsa_python_scan_destroy(bppsa_python_scan *scan) {
  if (scan != NULL) {
    bppsa_scan_executor_destroy(scan->executor);
    bppsa_scan_plan_destroy(scan->plan);
    bppsa_device_destroy(scan->device);
    free(scan);
  }
}

/* ---- rows ---- */

static bool is_zero(const void *row, int f64, int64_t width) {
  bool zero = true;
  for (int64_t i = 0; zero && i < width; ++i) {
    zero = f64 ? ((const double *)row)[i] == 0 : ((const float *)row)[i] == 0;
  }
  return zero;
}

int bppsa_python_reaches(const void *seed, int f64, int64_t rows, int64_t width) {
  const int64_t bytes = width * (int64_t)(f64 ? sizeof(double) : sizeof(float));
  int64_t row = 0;
  while (row < rows && !is_zero((const char *)seed + row * bytes, f64, width)) {
    ++row;
  }
  return row == rows;
}
