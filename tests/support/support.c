#include "tests/support/support.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "core/compute/memory.h"

static double value_at(bppsa_dtype dtype, const void *array, int64_t i) {
  return dtype == BPPSA_F32 ? (double)((const float *)array)[i] : ((const double *)array)[i];
}

double residual(bppsa_dtype dtype, const void *got, const double *reference, int64_t count, double k) {
  return residual_of_sum(dtype, got, reference, reference, count, k);
}

double residual_of_sum(bppsa_dtype dtype, const void *got, const double *reference, const double *magnitude, int64_t count,
                       double k) {
  const double epsilon = dtype == BPPSA_F32 ? (double)FLT_EPSILON : DBL_EPSILON,
               tiny = dtype == BPPSA_F32 ? (double)FLT_MIN : DBL_MIN;
  double difference = 0, norm = 0; /* scaled maxima would be safer; the sets tested stay far from overflow */
  for (int64_t i = 0; i < count; ++i) {
    const double d = value_at(dtype, got, i) - reference[i];
    if (!isfinite(d)) {
      return INFINITY;
    }
    difference = hypot(difference, d);
    norm = hypot(norm, magnitude[i]);
  }
  return norm < tiny / epsilon ? difference / (k * tiny) : difference / (norm * epsilon * k);
}

void *rounded(bppsa_dtype dtype, double *from, int64_t count) {
  void *to = bppsa_calloc(count, bppsa_dtype_size(dtype));
  assert_non_null(to);
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == BPPSA_F32) {
      ((float *)to)[i] = (float)from[i];
      from[i] = (double)((float *)to)[i];
    } else {
      ((double *)to)[i] = from[i];
    }
  }
  return to;
}

double *uniform(uint64_t seed, int64_t count, double scale) {
  double *to = bppsa_calloc(count, sizeof *to);
  assert_non_null(to);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = scale * (2 * bppsa_random_double(seed, BPPSA_STREAM_TEST, (uint64_t)i) - 1);
  }
  return to;
}

double *orthogonal(uint64_t seed, int64_t h, double scale) { /* a product of h Householder reflections */
  double *q = bppsa_calloc(h * h, sizeof *q);
  assert_non_null(q);
  for (int64_t i = 0; i < h; ++i) {
    q[i * h + i] = scale;
  }
  for (int64_t r = 0; r < h; ++r) {
    double *v = uniform(seed + 1000 + (uint64_t)r, h, 1), norm = 0;
    for (int64_t j = 0; j < h; ++j) {
      norm += v[j] * v[j];
    }
    for (int64_t i = 0; i < h; ++i) {
      double dot = 0;
      for (int64_t j = 0; j < h; ++j) {
        dot += q[i * h + j] * v[j];
      }
      for (int64_t j = 0; j < h; ++j) {
        q[i * h + j] -= 2 * dot / norm * v[j];
      }
    }
    bppsa_free(v);
  }
  return q;
}

bppsa_device *cpu_device(int64_t threads) {
  bppsa_device *device = NULL;
  assert_int_equal(bppsa_device_create("cpu", threads, &device), BPPSA_OK);
  return device;
}

bppsa_device *test_device(int64_t threads) {
  const char *name = getenv("BPPSA_TEST_DEVICE");
  bppsa_device *device = NULL;
  const bppsa_status status = bppsa_device_create(name != NULL ? name : "cpu", threads, &device);
  if (name != NULL && status == BPPSA_ERR_UNSUPPORTED) {
    printf("skipped: %s\n", bppsa_last_error());
    exit(77);
  }
  assert_int_equal(status, BPPSA_OK);
  return device;
}

bool is_emulated(const bppsa_device *device) {
  return strcmp(bppsa_device_get_hardware(device), "SIMT emulation") == 0;
}

bppsa_device *emulated_device(int64_t threads) {
  bppsa_device *device = test_device(threads);
  if (!is_emulated(device)) {
    bppsa_device_destroy(device);
    skip();
  }
  return device;
}

void *on_device(const bppsa_device *device, const void *array, int64_t bytes) {
  void *copy = NULL;
  if (array != NULL) {
    assert_int_equal(bppsa_memory_alloc(device, bytes, &copy), BPPSA_OK);
    assert_int_equal(bppsa_memory_put(device, copy, array, bytes), BPPSA_OK);
  }
  return copy;
}
