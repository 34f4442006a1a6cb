/* Recordings of a GPU's work, marks, and queued copies; and the errors of a CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/compute/graph.h"
#include "core/compute/memory.h"
#include "tests/support/support.h"

enum { N = 300, BYTES = N * (int)sizeof(int32_t) };

/* Host memory for input and output, GPU memory between them, and the copies. */
typedef struct {
  bppsa_device *device;
  int32_t *in, *out;
  void *data;
  bppsa_graph *graph;
} recording;

static void open_recording(recording *r) {
  memset(r, 0, sizeof *r);
  r->device = test_device(1);
  assert_int_equal(bppsa_memory_alloc_staging(r->device, BYTES, (void **)&r->in), BPPSA_OK);
  assert_int_equal(bppsa_memory_alloc_staging(r->device, BYTES, (void **)&r->out), BPPSA_OK);
  assert_int_equal(bppsa_memory_alloc(r->device, BYTES, &r->data), BPPSA_OK);
  memset(r->in, 0, BYTES);
  memset(r->out, 0, BYTES);
}

static void close_recording(recording *r) {
  bppsa_graph_destroy(r->device, r->graph);
  bppsa_memory_free_staging(r->device, r->in);
  bppsa_memory_free_staging(r->device, r->out);
  bppsa_memory_free(r->device, r->data);
  bppsa_device_destroy(r->device);
}

static void set(recording *r, int32_t value) {
  for (int i = 0; i < N; ++i) {
    r->in[i] = value + i;
  }
}

static bool is_gpu(const recording *r) {
  return bppsa_device_get_kind(r->device) == BPPSA_CUDA;
}

static void queue_copies(recording *r) {
  assert_int_equal(bppsa_memory_queue_put(r->device, r->data, r->in, BYTES), BPPSA_OK);
  assert_int_equal(bppsa_memory_queue_get(r->device, r->out, r->data, BYTES), BPPSA_OK);
}

static void queued_copies_arrive(void **state) {
  (void)state;
  recording r;
  open_recording(&r);
  set(&r, 7);
  queue_copies(&r);
  assert_true(!is_emulated(r.device) || r.out[N - 1] == 0); /* emulated streams are lazy */
  assert_int_equal(bppsa_device_wait(r.device), BPPSA_OK);
  assert_memory_equal(r.out, r.in, BYTES);
  close_recording(&r);
}

/* While work is recorded it does not run; each replay reads memory as it is then. */
static void recordings_are_replayed(void **state) {
  (void)state;
  recording r;
  open_recording(&r);
  set(&r, 1);
  if (!is_gpu(&r)) {
    assert_int_equal(bppsa_graph_begin(r.device), BPPSA_ERR_UNSUPPORTED);
    assert_non_null(strstr(bppsa_last_error(), "device cpu has no queue of work, expected a GPU"));
    assert_int_equal(bppsa_graph_end(r.device, &r.graph), BPPSA_ERR_UNSUPPORTED);
    assert_int_equal(bppsa_graph_launch(r.device, NULL), BPPSA_ERR_UNSUPPORTED);
    assert_null(r.graph);
    close_recording(&r);
    return;
  }
  assert_int_equal(bppsa_graph_begin(r.device), BPPSA_OK);
  queue_copies(&r);
  assert_int_equal(bppsa_graph_end(r.device, &r.graph), BPPSA_OK);
  assert_int_equal(bppsa_device_wait(r.device), BPPSA_OK);
  assert_int_equal(r.out[N - 1], 0);
  for (int32_t k = 1; k <= 3; ++k) {
    set(&r, 100 * k);
    assert_int_equal(bppsa_graph_launch(r.device, r.graph), BPPSA_OK);
    assert_int_equal(bppsa_device_wait(r.device), BPPSA_OK);
    assert_memory_equal(r.out, r.in, BYTES);
  }
  close_recording(&r);
}

/* Waiting, allocating and freeing during a recording are errors and spoil it; the next recording is good. */
static void what_waits_spoils_a_recording(void **state) {
  (void)state;
  recording r;
  void *more = NULL;
  open_recording(&r);
  for (int what = 0; what < 3 && is_gpu(&r); ++what) {
    assert_int_equal(bppsa_graph_begin(r.device), BPPSA_OK);
    assert_int_equal(bppsa_graph_begin(r.device), BPPSA_ERR_CUDA); /* one at a time */
    assert_int_equal(bppsa_graph_end(r.device, NULL), BPPSA_OK);   /* thrown away */
    assert_non_null(strstr(bppsa_last_error(), "recording: "));    /* and the error stays */
    assert_int_equal(bppsa_graph_begin(r.device), BPPSA_OK);
    queue_copies(&r);
    const bppsa_status status = what == 0   ? bppsa_device_wait(r.device)
                                : what == 1 ? bppsa_memory_alloc(r.device, BYTES, &more)
                                            : bppsa_memory_put(r.device, r.data, r.in, BYTES);
    assert_int_equal(status, BPPSA_ERR_CUDA);
    assert_null(more);
    assert_int_equal(bppsa_graph_end(r.device, &r.graph), BPPSA_ERR_CUDA);
    assert_null(r.graph);
    assert_int_equal(bppsa_device_wait(r.device), BPPSA_OK);
  }
  close_recording(&r);
}

static void marks_tell_the_time(void **state) {
  (void)state;
  recording r;
  bppsa_mark *marks[3] = {NULL, NULL, NULL};
  double seconds = -1;
  open_recording(&r);
  if (!is_gpu(&r)) {
    assert_int_equal(bppsa_mark_create(r.device, &marks[0]), BPPSA_ERR_UNSUPPORTED);
    assert_int_equal(bppsa_mark_set(r.device, NULL), BPPSA_ERR_UNSUPPORTED);
    assert_int_equal(bppsa_mark_seconds(r.device, NULL, NULL, &seconds), BPPSA_ERR_UNSUPPORTED);
    close_recording(&r);
    return;
  }
  for (int i = 0; i < 3; ++i) {
    assert_int_equal(bppsa_mark_create(r.device, &marks[i]), BPPSA_OK);
  }
  assert_int_equal(bppsa_mark_seconds(r.device, marks[0], marks[1], &seconds), BPPSA_ERR_CUDA); /* never reached */
  assert_int_equal(bppsa_graph_begin(r.device), BPPSA_OK);
  assert_int_equal(bppsa_mark_set(r.device, marks[0]), BPPSA_OK);
  queue_copies(&r);
  assert_int_equal(bppsa_mark_set(r.device, marks[1]), BPPSA_OK);
  assert_int_equal(bppsa_graph_end(r.device, &r.graph), BPPSA_OK);
  double sum = 0;
  for (int k = 0; k < 3; ++k) {
    assert_int_equal(bppsa_graph_launch(r.device, r.graph), BPPSA_OK);
    assert_int_equal(bppsa_device_wait(r.device), BPPSA_OK);
    assert_int_equal(bppsa_mark_seconds(r.device, marks[0], marks[1], &seconds), BPPSA_OK);
    assert_true(seconds >= 0 && seconds < 10);
    sum += seconds;
  }
  assert_true(sum > 0);
  assert_int_equal(bppsa_mark_set(r.device, marks[2]), BPPSA_OK); /* outside a recording too */
  assert_int_equal(bppsa_device_wait(r.device), BPPSA_OK);
  assert_int_equal(bppsa_mark_seconds(r.device, marks[1], marks[2], &seconds), BPPSA_OK);
  assert_true(seconds > 0);
  for (int i = 0; i < 3; ++i) {
    bppsa_mark_destroy(r.device, marks[i]);
  }
  bppsa_mark_destroy(r.device, NULL);
  close_recording(&r);
}

/* A second stream of the GPU reads what the first one wrote: behind a fence always, queued or recorded. */
static void fences_order_two_streams(void **state) {
  (void)state;
  recording r;
  bppsa_device *fork = NULL;
  bppsa_fence *written = NULL, *read = NULL;
  bool reached = true;
  open_recording(&r);
  assert_int_equal(bppsa_device_fork(r.device, &fork), BPPSA_OK);
  assert_string_equal(bppsa_device_get_name(fork), bppsa_device_get_name(r.device));
  if (!is_gpu(&r)) {
    assert_int_equal(bppsa_fence_create(r.device, &written), BPPSA_ERR_UNSUPPORTED);
    assert_int_equal(bppsa_fence_set(r.device, NULL), BPPSA_ERR_UNSUPPORTED);
    assert_int_equal(bppsa_fence_follow(r.device, NULL), BPPSA_ERR_UNSUPPORTED);
    assert_int_equal(bppsa_fence_reached(r.device, NULL, &reached), BPPSA_ERR_UNSUPPORTED);
    bppsa_device_destroy(fork);
    close_recording(&r);
    return;
  }
  assert_ptr_not_equal(bppsa_device_get_stream(fork), bppsa_device_get_stream(r.device));
  assert_int_equal(bppsa_fence_create(r.device, &written), BPPSA_OK);
  assert_int_equal(bppsa_fence_create(r.device, &read), BPPSA_OK);
  for (int32_t k = 0; k < 6; ++k) {
    const bool records = k % 2 == 1;
    set(&r, 10 * k + 1);
    assert_int_equal(records ? bppsa_graph_begin(r.device) : BPPSA_OK, BPPSA_OK);
    assert_int_equal(bppsa_memory_queue_put(r.device, r.data, r.in, BYTES), BPPSA_OK);
    assert_int_equal(bppsa_fence_set(r.device, written), BPPSA_OK);
    assert_int_equal(bppsa_fence_follow(fork, written), BPPSA_OK);
    assert_int_equal(bppsa_memory_queue_get(fork, r.out, r.data, BYTES), BPPSA_OK);
    assert_int_equal(bppsa_fence_set(fork, read), BPPSA_OK);
    if (records) {
      assert_int_equal(bppsa_fence_follow(r.device, read), BPPSA_OK);
      assert_int_equal(bppsa_graph_end(r.device, &r.graph), BPPSA_OK);
      assert_int_equal(bppsa_graph_nodes(r.graph), 2);
      assert_int_equal(bppsa_graph_launch(r.device, r.graph), BPPSA_OK);
      assert_int_equal(bppsa_device_wait(r.device), BPPSA_OK);
      bppsa_graph_destroy(r.device, r.graph);
      r.graph = NULL;
    } else {
      assert_int_equal(bppsa_fence_reached(fork, read, &reached), BPPSA_OK);
      assert_true(!reached || !is_emulated(r.device)); /* nothing runs by itself there */
      while (!reached) {
        assert_int_equal(bppsa_fence_reached(fork, read, &reached), BPPSA_OK);
      }
    }
    assert_memory_equal(r.out, r.in, BYTES);
  }
  assert_int_equal(bppsa_graph_begin(r.device), BPPSA_OK); /* a stream that the recording's own does not follow at the end */
  assert_int_equal(bppsa_fence_set(r.device, written), BPPSA_OK);
  assert_int_equal(bppsa_fence_follow(fork, written), BPPSA_OK);
  assert_int_equal(bppsa_memory_queue_get(fork, r.out, r.data, BYTES), BPPSA_OK);
  assert_int_equal(bppsa_graph_end(r.device, &r.graph), BPPSA_ERR_CUDA);
  assert_null(r.graph);
  bppsa_fence_destroy(r.device, written);
  bppsa_fence_destroy(r.device, read);
  bppsa_fence_destroy(r.device, NULL);
  bppsa_device_destroy(fork);
  close_recording(&r);
}

static void out_of_memory_leaks_nothing(void **state) {
  (void)state;
  recording r;
  open_recording(&r);
  const int64_t live = bppsa_alloc_live();
  bppsa_mark *mark = NULL;
  bppsa_alloc_fail_at(1);
  const bppsa_status status = bppsa_mark_create(r.device, &mark);
  bppsa_alloc_fail_at(0);
  assert_int_equal(status, is_gpu(&r) ? BPPSA_ERR_MEMORY : BPPSA_ERR_UNSUPPORTED);
  if (is_gpu(&r)) {
    assert_int_equal(bppsa_graph_begin(r.device), BPPSA_OK);
    queue_copies(&r);
    bppsa_alloc_fail_at(1);
    assert_int_equal(bppsa_graph_end(r.device, &r.graph), BPPSA_ERR_MEMORY);
    bppsa_alloc_fail_at(0);
  }
  assert_null(mark);
  assert_null(r.graph);
  assert_int_equal(bppsa_alloc_live(), live);
  close_recording(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(queued_copies_arrive),          cmocka_unit_test(recordings_are_replayed),
      cmocka_unit_test(what_waits_spoils_a_recording), cmocka_unit_test(marks_tell_the_time),
      cmocka_unit_test(fences_order_two_streams),      cmocka_unit_test(out_of_memory_leaks_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
