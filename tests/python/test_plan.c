/* Plans of stateless passes (python/passes.c) are bound to no stream: a pass is queued on the stream that its caller names, and a
 * CUDA graph can record it. BPPSA_TEST_DEVICE names the device; a processor computes at once. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/graph.h"
#include "core/compute/memory.h"
#include "python/passes.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

enum { T = 9, B = 3, I = 2, H = 5 };

static bppsa_device *device;

/* What a forward and a backward pass of one layer read and write. */
typedef struct {
  bppsa_python_plan *plan;
  void *forward[ARRAYS], *backward[ARRAYS], *scratch;
  int64_t bytes[ARRAYS];
  const bppsa_device *where; /* whose stream the passes are queued on */
} passes;

static const struct {
  const char *name;
  int64_t gates;
} cells[] = {{"rnn", 1}, {"gru", 3}, {"lstm", 4}};
static const int read_arrays[] = {ARRAY_x, ARRAY_w_ih, ARRAY_w_hh, ARRAY_b_ih, ARRAY_b_hh, ARRAY_of_y};
static const int tape[] = {ARRAY_h, ARRAY_c, ARRAY_saved};
static const int results[] = {ARRAY_y, ARRAY_of_x, ARRAY_of_w_ih, ARRAY_of_w_hh, ARRAY_of_b_ih, ARRAY_of_b_hh};
enum { READ = sizeof read_arrays / sizeof *read_arrays, RESULTS = sizeof results / sizeof *results };

static void *zeros(int64_t bytes) {
  void *host = bppsa_calloc(bytes, 1), *array = on_device(device, host, bytes);
  bppsa_free(host);
  return array;
}

static void place(passes *p, int number, int64_t bytes, bool in_forward, bool in_backward) {
  void *array = zeros(bytes);
  p->bytes[number] = bytes;
  p->forward[number] = in_forward ? array : NULL;
  p->backward[number] = in_backward ? array : NULL;
}

static passes make_passes(const char *cell, int64_t gates, const char *method) {
  const int64_t numbers[BPPSA_PYTHON_PLAN_NUMBERS] = {
      [BPPSA_PYTHON_STEPS] = T,           [BPPSA_PYTHON_BATCH] = B,    [BPPSA_PYTHON_INPUT] = I,
      [BPPSA_PYTHON_HIDDEN] = H,          [BPPSA_PYTHON_BIASES] = 1,   [BPPSA_PYTHON_THREADS] = 1,
      [BPPSA_PYTHON_INPUT_GRADIENTS] = 1, [BPPSA_PYTHON_WARM_UP] = -1, [BPPSA_PYTHON_F64] = 0};
  const int64_t sizes[ARRAYS] = {[ARRAY_x] = T * B * I,           [ARRAY_w_ih] = gates * H * I, [ARRAY_w_hh] = gates * H * H,
                                 [ARRAY_b_ih] = gates * H,        [ARRAY_b_hh] = gates * H,     [ARRAY_of_y] = T * B * H,
                                 [ARRAY_y] = T * B * H,           [ARRAY_of_x] = T * B * I,     [ARRAY_of_w_ih] = gates * H * I,
                                 [ARRAY_of_w_hh] = gates * H * H, [ARRAY_of_b_ih] = gates * H,  [ARRAY_of_b_hh] = gates * H};
  const int32_t gpu = bppsa_device_get_kind(device) == BPPSA_CPU ? -1 : bppsa_device_get_index(device);
  int64_t facts[BPPSA_PYTHON_PLAN_FACTS];
  passes p = {.where = device};
  assert_int_equal(bppsa_python_plan_create(cell, method, "sequential", numbers, -1, gpu, NULL, &p.plan), BPPSA_OK);
  bppsa_python_plan_facts(p.plan, facts);
  for (int k = 0; k < READ; ++k) {
    const int number = read_arrays[k];
    double *values = uniform(20 + (uint64_t)k, sizes[number], 0.5);
    void *narrow = rounded(BPPSA_F32, values, sizes[number]);
    place(&p, number, sizes[number] * (int64_t)sizeof(float), number != ARRAY_of_y, true);
    void *to = p.backward[number];
    assert_int_equal(bppsa_memory_put(device, to, narrow, p.bytes[number]), BPPSA_OK);
    bppsa_free(narrow);
    bppsa_free(values);
  }
  for (int k = 0; k < 3; ++k) {
    if (k == 0 || (k == 1 ? facts[7] == 2 : facts[1] > 0)) {
      place(&p, tape[k], facts[k / 2], true, true);
    }
  }
  for (int k = 0; k < RESULTS; ++k) {
    place(&p, results[k], sizes[results[k]] * (int64_t)sizeof(float), results[k] == ARRAY_y, results[k] != ARRAY_y);
  }
  p.scratch = zeros(facts[2] > facts[3] ? facts[2] : facts[3]);
  return p;
}

static void free_passes(passes *p) {
  bppsa_python_plan_destroy(p->plan);
  for (int k = 0; k < ARRAYS; ++k) {
    bppsa_memory_free(device, p->forward[k] != NULL ? p->forward[k] : p->backward[k]);
  }
  bppsa_memory_free(device, p->scratch);
}

static bppsa_status queue(void *context) {
  const passes *p = context;
  void *stream = bppsa_device_get_stream(p->where);
  BPPSA_TRY(bppsa_python_plan_run(p->plan, BPPSA_PYTHON_FORWARD, p->forward, p->scratch, NULL, stream));
  return bppsa_python_plan_run(p->plan, BPPSA_PYTHON_BACKWARD, p->backward, p->scratch, NULL, stream);
}

/* The bytes of a result; free with bppsa_free. */
static char *bytes_of(const passes *p, int number) {
  char *host = bppsa_alloc((size_t)p->bytes[number]);
  const void *from = number == ARRAY_y ? p->forward[number] : p->backward[number];
  assert_int_equal(bppsa_memory_get(p->where, host, from, p->bytes[number]), BPPSA_OK);
  return host;
}

static void spoil(const passes *p) {
  for (int k = 0; k < RESULTS; ++k) {
    void *array = results[k] == ARRAY_y ? p->forward[ARRAY_y] : p->backward[results[k]];
    assert_int_equal(bppsa_memory_clear(device, array, p->bytes[results[k]]), BPPSA_OK);
  }
}

static void expect(const passes *p, char *const expected[RESULTS]) {
  for (int k = 0; k < RESULTS; ++k) {
    char *found = bytes_of(p, results[k]);
    assert_memory_equal(found, expected[k], (size_t)p->bytes[results[k]]);
    bppsa_free(found);
  }
}

/* A recording of both passes, which would fail if they took memory or waited, is played twice; what it writes is spoiled before. */
static void play_recorded(passes *p, char *const expected[RESULTS]) {
  bppsa_graph *graph = NULL;
  p->where = device;
  assert_int_equal(bppsa_graph_capture(device, queue, p, &graph), BPPSA_OK);
  for (int turn = 0; turn < 2; ++turn) {
    spoil(p);
    assert_int_equal(bppsa_graph_launch(device, graph), BPPSA_OK);
    expect(p, expected);
  }
  bppsa_graph_destroy(device, graph);
}

/* Passes on one stream, on another one, recorded, and again on the first have the same bits. */
static void test_streams(void **state) {
  (void)state;
  static const char *const methods[] = {"bp", "blelloch", "auto"};
  for (int k = 0; k < 9; ++k) {
    const int64_t before = bppsa_alloc_live();
    passes p = make_passes(cells[k % 3].name, cells[k % 3].gates, methods[k / 3]);
    bppsa_device *other;
    char *expected[RESULTS];
    assert_int_equal(bppsa_device_fork(device, &other), BPPSA_OK);
    assert_int_equal(queue(&p), BPPSA_OK);
    for (int r = 0; r < RESULTS; ++r) {
      expected[r] = bytes_of(&p, results[r]);
      assert_false(expected[r][0] == 0 && memcmp(expected[r], expected[r] + 1, (size_t)p.bytes[results[r]] - 1) == 0);
    }
    spoil(&p);
    p.where = other;
    assert_int_equal(queue(&p), BPPSA_OK);
    expect(&p, expected);
    if (bppsa_device_get_kind(device) != BPPSA_CPU) {
      play_recorded(&p, expected);
    }
    spoil(&p);
    p.where = device;
    assert_int_equal(queue(&p), BPPSA_OK);
    expect(&p, expected);
    for (int r = 0; r < RESULTS; ++r) {
      bppsa_free(expected[r]);
    }
    bppsa_device_destroy(other);
    free_passes(&p);
    assert_int_equal(bppsa_alloc_live(), before);
  }
}

/* A pass that gets no memory for what it makes on the host says so. */
static void test_memory(void **state) {
  (void)state;
  passes p = make_passes("gru", 3, "bp");
  const int64_t before = bppsa_alloc_live();
  assert_int_equal(queue(&p), BPPSA_OK);
  const int64_t taken = walk_allocations(queue, &p);
  assert_true(bppsa_device_get_kind(device) == BPPSA_CPU ? taken == 0 : taken >= 2);
  assert_int_equal(bppsa_alloc_live(), before);
  assert_int_equal(bppsa_device_wait(device), BPPSA_OK);
  free_passes(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_streams), cmocka_unit_test(test_memory)};
  device = test_device(1);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  return failed;
}
