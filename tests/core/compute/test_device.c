/* Devices and the buffers on them. */
#include "core/compute/device.h"
#include "core/compute/device_buffer.h"
#include "tests/core/helpers.h"

static void cpu(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  bppsa_device *device = NULL;
  assert_int_equal(bppsa_device_create("cpu", 7, &device), BPPSA_OK);
  assert_int_equal(bppsa_device_get_kind(device), BPPSA_CPU);
  assert_int_equal(bppsa_device_get_index(device), 0);
  assert_int_equal(bppsa_device_get_threads(device), 7);
  assert_string_equal(bppsa_device_get_name(device), "cpu");
  assert_non_null(bppsa_device_get_hardware(device));
  bppsa_device_destroy(device);
  assert_int_equal(bppsa_device_create("cpu", 0, &device), BPPSA_OK);
  assert_in_range(bppsa_device_get_threads(device), 1, BPPSA_MAX_THREADS);
  bppsa_device_destroy(device);
  assert_int_equal(bppsa_device_create("cpu", BPPSA_MAX_THREADS, &device), BPPSA_OK);
  bppsa_device_destroy(device);
  bppsa_device_destroy(NULL);
  assert_int_equal(bppsa_alloc_live(), before);
}

static void bad_names_and_threads(void **state) {
  (void)state;
  static const char *const names[] = {"",        "CPU",     "cpu:0",   "gpu",     "cud",        "cudax",  "cuda:", "cuda:x",
                                      "cuda:-1", "cuda:1x", "cuda: 1", "cuda:+1", "cuda:99999", "cuda 0", "cpu "};
  bppsa_device *device = NULL;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    assert_int_equal(bppsa_device_create(names[i], 1, &device), BPPSA_ERR_ARGUMENT);
    assert_message(names[i]);
    assert_null(device);
  }
  static const int64_t threads[] = {-1, BPPSA_MAX_THREADS + 1, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < sizeof threads / sizeof threads[0]; ++i) {
    assert_int_equal(bppsa_device_create("cpu", threads[i], &device), BPPSA_ERR_ARGUMENT);
    assert_message("threads");
    assert_null(device);
  }
}

/* With or without a GPU: the answer agrees with the report. */
static void cuda(void **state) {
  (void)state;
  bppsa_cuda_report report;
  bppsa_cuda_probe(&report);
  bppsa_device *device = NULL;
  const bppsa_status status = bppsa_device_create("cuda", 1, &device);
  if (!report.built || report.devices == 0) {
    assert_int_equal(status, BPPSA_ERR_UNSUPPORTED);
    assert_message("device cuda: ");
    assert_message(report.built ? "no CUDA device found" : "this build has no CUDA");
    assert_null(device);
    assert_int_equal(bppsa_device_create("cuda:7", 1, &device), BPPSA_ERR_UNSUPPORTED);
    assert_message("device cuda:7: ");
    return;
  }
  assert_int_equal(status, report.kernel_checked ? BPPSA_OK : BPPSA_ERR_CUDA);
  if (status == BPPSA_OK) {
    assert_int_equal(bppsa_device_get_kind(device), BPPSA_CUDA);
    assert_string_equal(bppsa_device_get_name(device), "cuda:0");
    assert_string_equal(bppsa_device_get_hardware(device), report.name);
    bppsa_buffer buffer = {0};
    assert_int_equal(bppsa_buffer_create(device, BPPSA_F32, 0, NULL, &buffer), BPPSA_ERR_UNSUPPORTED);
    assert_message("device cuda:0: ");
    bppsa_device_destroy(device);
  }
  device = NULL;
  char name[32];
  snprintf(name, sizeof name, "cuda:%d", (int)report.devices);
  assert_int_equal(bppsa_device_create(name, 1, &device), BPPSA_ERR_UNSUPPORTED);
  assert_message("CUDA devices here: ");
  assert_null(device);
}

/* A GPU with a stream of the caller's; what such devices compute is tested in tests/python. */
static void on_stream(void **state) {
  (void)state;
  bppsa_cuda_report report;
  bppsa_cuda_probe(&report);
  bppsa_device *device = NULL;
  assert_error(bppsa_device_on_stream(-1, NULL, 1, &device), BPPSA_ERR_ARGUMENT, "device \"cuda:-1\": K in cuda:K must be");
  assert_error(bppsa_device_on_stream(10000, NULL, 1, &device), BPPSA_ERR_ARGUMENT, "device \"cuda:10000\": K in cuda:K must be");
  assert_error(bppsa_device_on_stream(0, NULL, -1, &device), BPPSA_ERR_ARGUMENT, "threads -1: expected 1 .. ");
  assert_error(bppsa_device_on_stream(report.devices, NULL, 1, &device), BPPSA_ERR_UNSUPPORTED, "device cuda:");
  assert_null(device);
}

static void buffers(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  bppsa_device *device = NULL;
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  bppsa_buffer buffer = {0};
  assert_int_equal(bppsa_buffer_create(device, BPPSA_F64, 2, (const int64_t[]){3, 5}, &buffer), BPPSA_OK);
  assert_int_equal(buffer.view.shape[1], 5);
  assert_int_equal(buffer.view.strides[0], 5);
  assert_int_equal((uintptr_t)buffer.view.data % BPPSA_ALIGNMENT, 0);
  for (int64_t i = 0; i < 15; ++i) {
    assert_true(bppsa_view_get(&buffer.view, i) == 0.0);
  }
  bppsa_buffer_free(&buffer);
  assert_null(buffer.view.data);
  bppsa_buffer_free(&buffer);
  assert_int_equal(bppsa_buffer_create(NULL, BPPSA_F32, 3, (const int64_t[]){4, 0, 2}, &buffer), BPPSA_OK);
  assert_non_null(buffer.view.data);
  bppsa_buffer_free(&buffer);
  assert_int_equal(bppsa_buffer_create(NULL, BPPSA_F32, 1, (const int64_t[]){-4}, &buffer), BPPSA_ERR_SHAPE);
  assert_int_equal(bppsa_buffer_create(NULL, BPPSA_F32, 1, (const int64_t[]){INT64_MAX}, &buffer), BPPSA_ERR_MEMORY);
  assert_int_equal(bppsa_buffer_create(NULL, BPPSA_F32, 1, (const int64_t[]){INT64_MAX / 4 - 1}, &buffer), BPPSA_ERR_MEMORY);
  assert_null(buffer.view.data);
  bppsa_device_destroy(device);
  assert_int_equal(bppsa_alloc_live(), before);
}

static bppsa_status create_both(void *argument) {
  (void)argument;
  bppsa_device *device = NULL;
  BPPSA_TRY(bppsa_device_create("cpu", 2, &device));
  bppsa_buffer buffer = {0};
  const bppsa_status status = bppsa_buffer_create(device, BPPSA_F32, 1, (const int64_t[]){100}, &buffer);
  bppsa_buffer_free(&buffer);
  bppsa_device_destroy(device);
  return status;
}

static void allocation_failures(void **state) {
  (void)state;
  assert_int_equal(walk_allocations(create_both, NULL), 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cpu),     cmocka_unit_test(bad_names_and_threads),
                                     cmocka_unit_test(cuda),    cmocka_unit_test(on_stream),
                                     cmocka_unit_test(buffers), cmocka_unit_test(allocation_failures)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
