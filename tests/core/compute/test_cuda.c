/* The CUDA probe. Skipped, not passed, where there is no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/compute/device.h"

enum { SKIPPED = 77 };

static void probe_is_consistent(void **state) {
  (void)state;
  bppsa_cuda_report report;
  memset(&report, 0x5a, sizeof report); /* every field is written */
  bppsa_cuda_probe(&report);
  assert_non_null(memchr(report.detail, 0, sizeof report.detail));
  assert_non_null(memchr(report.name, 0, sizeof report.name));
  assert_in_range(report.devices, 0, 1024);
  assert_true(report.built || (report.runtime == 0 && report.devices == 0));
  assert_true(report.kernel_checked || report.detail[0] != '\0');
}

static void kernel_runs_on_the_gpu(void **state) {
  (void)state;
  bppsa_cuda_report report;
  bppsa_cuda_probe(&report);
  assert_string_equal(report.detail, "");
  assert_true(report.kernel_checked);
  assert_true(report.built);
  assert_true(report.runtime >= 13000);
  assert_true(report.driver >= report.runtime / 1000 * 1000);
  assert_true(report.memory > 0);
  assert_true(report.name[0] != '\0');
}

int main(void) {
  const struct CMUnitTest always[] = {cmocka_unit_test(probe_is_consistent)};
  if (cmocka_run_group_tests(always, NULL, NULL) != 0) {
    return 1;
  }
  bppsa_cuda_report report;
  bppsa_cuda_probe(&report);
  if (report.devices == 0) {
    printf("skipped: %s\n", report.detail);
    return SKIPPED;
  }
  const struct CMUnitTest on_gpu[] = {cmocka_unit_test(kernel_runs_on_the_gpu)};
  return cmocka_run_group_tests(on_gpu, NULL, NULL) != 0;
}
