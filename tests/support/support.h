/* Shared by the test programs: residuals, random arrays, the test's device. */
#ifndef BPPSA_TESTS_SUPPORT_H
#define BPPSA_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/view.h"
#include "core/compute/device.h"

/* ‖got - ref‖ / (‖ref‖ ε k), ε and `got` of the dtype; where ‖ref‖ is below the smallest normal number over ε,
 * ‖got - ref‖ / (k · smallest normal) instead. Below 30 is a pass. Infinite when anything is not finite. */
double residual(bppsa_dtype dtype, const void *got, const double *reference, int64_t count, double k);
/* The same against ‖magnitude‖ in the place of ‖ref‖: for sums that may cancel, the sums of their terms' magnitudes. */
double residual_of_sum(bppsa_dtype dtype, const void *got, const double *reference, const double *magnitude, int64_t count,
                       double k);

/* An array of the dtype with the values of `from` rounded to it; free with bppsa_free. `from` is rounded too, so that a float64
 * reference sees exactly the tested numbers. */
void *rounded(bppsa_dtype dtype, double *from, int64_t count);

/* count numbers uniform in ±scale, a function of the seed; free with bppsa_free. */
double *uniform(uint64_t seed, int64_t count, double scale);
/* [h][h], rows orthonormal times scale. */
double *orthogonal(uint64_t seed, int64_t h, double scale);

bppsa_device *cpu_device(int64_t threads);
/* The device named by BPPSA_TEST_DEVICE, which CTest sets; the CPU if it is not set. Skips the test (77) if the machine lacks the
 * device. */
bppsa_device *test_device(int64_t threads);
/* Is it the SIMT machine of tests/simt? It is a thousand times slower than a device, so tests run only some of their cases on it.
 */
bool is_emulated(const bppsa_device *device);
/* That machine, of so many host threads; the test is skipped where the device is another. */
bppsa_device *emulated_device(int64_t threads);
/* A copy of a host array in the device's memory; NULL stays NULL. Free with bppsa_memory_free. */
void *on_device(const bppsa_device *device, const void *array, int64_t bytes);

#endif
