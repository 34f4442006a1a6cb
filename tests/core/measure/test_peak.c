/* Peak rates, and the marks that time them. */
#include <time.h>

#include "core/compute/graph.h"
#include "core/compute/memory.h"
#include "core/measure/peak.h"
#include "core/measure/timeline.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

/* Every run checks its own results (core/measure/peak_cuda.cu); this checks that the rates are numbers and nothing is leaked. */
static void ceilings(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  const bppsa_dtype dtypes[] = {BPPSA_F32, BPPSA_F64};
  const bool gpu = bppsa_device_get_kind(device) == BPPSA_CUDA;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t blocks = bppsa_alloc_live();
    int64_t before = 0, after = 0;
    bppsa_peak peak = {-1, -1, -1};
    if (gpu) {
      assert_int_equal(bppsa_memory_available(device, &before), BPPSA_OK);
    }
    assert_int_equal(bppsa_peak_measure(device, dtypes[d], &peak), BPPSA_OK);
    assert_true(peak.flops > 1e6 && peak.flops < 1e16);
    assert_true(gpu ? peak.bytes > 1e6 && peak.bytes < 1e14 : peak.bytes == 0);
    assert_true(gpu ? peak.written > 1e6 && peak.written < 1e14 : peak.written == 0);
    assert_int_equal(bppsa_alloc_live(), blocks);
    if (gpu && is_emulated(device)) { /* on a real GPU kernels are loaded on first use, and other programs may use it */
      assert_int_equal(bppsa_memory_available(device, &after), BPPSA_OK);
      assert_int_equal(after, before);
    }
  }
  bppsa_device_destroy(device);
}

static void no_memory(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  if (bppsa_device_get_kind(device) == BPPSA_CUDA) {
    int64_t call = 0;
    bppsa_peak peak = {-1, -1, -1};
    bppsa_status status;
    do {
      bppsa_alloc_fail_at(++call);
      status = bppsa_peak_measure(device, BPPSA_F32, &peak);
      assert_true(status == BPPSA_OK || (status == BPPSA_ERR_MEMORY && peak.flops == -1));
    } while (status != BPPSA_OK);
    bppsa_alloc_fail_at(0);
    assert_true(call > 3); /* two of the marks, one of the check */
  } else {
    int64_t bytes = 0;
    assert_int_equal(bppsa_memory_available(device, &bytes), BPPSA_ERR_UNSUPPORTED);
    assert_message("expected a GPU");
    assert_int_equal(bppsa_memory_cache(device, &bytes), BPPSA_ERR_UNSUPPORTED);
    assert_message("cache: expected a GPU, not device cpu");
    assert_int_equal(bytes, 0);
  }
  bppsa_device_destroy(device);
}

static void marks(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  bppsa_timeline *timeline = NULL;
  double forward = -1, backward = -1, nothing = -1;
  assert_int_equal(bppsa_timeline_create(device, 3, &timeline), BPPSA_OK);
  assert_int_equal(bppsa_timeline_mark(timeline, 0), BPPSA_OK);
  assert_int_not_equal(bppsa_timeline_seconds(timeline, 0, 2, &nothing), BPPSA_OK);
  assert_true(nothing == -1);
  const struct timespec pause = {.tv_nsec = 20000000};
  nanosleep(&pause, NULL);
  assert_int_equal(bppsa_timeline_mark(timeline, 1), BPPSA_OK);
  assert_int_equal(bppsa_timeline_seconds(timeline, 0, 1, &forward), BPPSA_OK);
  /* emulated work does not run until it is waited for */
  assert_true(forward >= (is_emulated(device) ? 0 : 0.015) && forward < 20);
  assert_int_equal(bppsa_timeline_mark(timeline, 0), BPPSA_OK); /* moved behind the other */
  assert_int_equal(bppsa_timeline_seconds(timeline, 1, 0, &backward), BPPSA_OK);
  assert_true(backward >= 0 && (backward < forward || is_emulated(device)));
  bppsa_timeline_destroy(timeline);
  bppsa_timeline_destroy(NULL);
  bppsa_device_destroy(device);
}

/* ---- graphs ---- */

typedef struct {
  const bppsa_device *device;
  void *memory;
  int calls;
} waiting;

static bppsa_status wait_within(void *context) {
  waiting *w = context;
  ++w->calls;
  return bppsa_memory_clear(w->device, w->memory, 64);
}

static bppsa_status fail_within(void *context) {
  (void)context;
  return bppsa_fail(BPPSA_ERR_SHAPE, "x: too long");
}

/* Work that waits cannot be captured, and the stream works afterwards; graphs that are replayed are in tests/scan/test_graph.c. */
static void refused_captures(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  bppsa_graph *graph = NULL;
  waiting w = {.device = device};
  if (bppsa_device_get_kind(device) == BPPSA_CPU) {
    assert_int_equal(bppsa_graph_capture(device, fail_within, NULL, &graph), BPPSA_ERR_UNSUPPORTED);
    assert_message("device cpu");
  } else {
    assert_int_equal(bppsa_memory_alloc(device, 64, &w.memory), BPPSA_OK);
    assert_int_equal(bppsa_graph_capture(device, wait_within, &w, &graph), BPPSA_ERR_CUDA);
    assert_int_equal(w.calls, 1);
    assert_message("recording");
    assert_int_equal(bppsa_graph_capture(device, fail_within, NULL, &graph), BPPSA_ERR_SHAPE);
    assert_message("recording: x: too long");
    assert_int_equal(wait_within(&w), BPPSA_OK);
    bppsa_memory_free(device, w.memory);
  }
  assert_null(graph);
  bppsa_graph_destroy(device, NULL);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ceilings), cmocka_unit_test(no_memory), cmocka_unit_test(marks),
                                     cmocka_unit_test(refused_captures)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
