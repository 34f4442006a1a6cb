/* What test programs share: residuals, random arrays, the test's device. */
#ifndef BPPSA_TESTS_SUPPORT_H
#define BPPSA_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/view.h"
#include "core/compute/device.h"

/* Returns ‖got - ref‖ / (‖ref‖ ε k), with ε and `got` of the dtype; where ‖ref‖ is below the smallest normal number
 * over ε, ‖got - ref‖ / (k · smallest normal). A result below 30 passes. Infinite if a number is not finite. */
double residual(bppsa_dtype dtype, const void *got, const double *reference, int64_t count, double k);
/* Does the same with ‖magnitude‖ in place of ‖ref‖, for sums that may cancel: it holds the sums of their terms'
 * magnitudes. */
double residual_of_sum(bppsa_dtype dtype, const void *got, const double *reference, const double *magnitude, int64_t count,
                       double k);

/* Returns an array of the dtype with the rounded values of `from`; free with bppsa_free. Rounds `from` too, so that a float64
 * reference sees exactly the tested numbers. */
void *rounded(bppsa_dtype dtype, double *from, int64_t count);

/* Returns `count` numbers, uniform in ±scale, that depend on the seed alone; free with bppsa_free. */
double *uniform(uint64_t seed, int64_t count, double scale);
/* Returns a matrix [h][h] whose rows are orthonormal, times scale. */
double *orthogonal(uint64_t seed, int64_t h, double scale);

bppsa_device *cpu_device(int64_t threads);
/* Makes the device named by BPPSA_TEST_DEVICE, which CTest sets; the CPU if it is not set. Skips the test (77) if the machine
 * lacks the device. */
bppsa_device *test_device(int64_t threads);
/* Is it the SIMT machine of tests/simt? It is a thousand times slower than a device, so tests run only some of their cases on it.
 */
bool is_emulated(const bppsa_device *device);
/* Makes that emulated device with `threads` host threads; skips the test if the test's device is another one. */
bppsa_device *emulated_device(int64_t threads);
/* Copies a host array to the device's memory; NULL stays NULL. Free with bppsa_memory_free. */
void *on_device(const bppsa_device *device, const void *array, int64_t bytes);

#endif
