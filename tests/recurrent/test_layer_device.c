/* Stateless passes on a device: every way in which it computes them, beside a model's passes, whose bits they must have; recorded
 * passes, played twice; nothing is allocated. BPPSA_TEST_DEVICE names the device. */
#include "core/compute/graph.h"
#include "tests/recurrent/layer_problem.h"
#include "tests/support/length.h"

/* seq_len, batch, input, hidden; method; chunks of the forward pass, or 0. */
static const struct {
  int64_t sizes[4];
  bppsa_gradient_method method;
  int64_t chunks;
  bool resets, no_bias, inputs, reset_state, lengths;
} ways[] = {
    {{9, 3, 1, 20}, {BPPSA_BACKWARD_BP, {BPPSA_SCAN_AUTO, -1, 0}}, 0, false, false, true, false, false},
    {{9, 2, 4, 20}, {BPPSA_BACKWARD_BP, {BPPSA_SCAN_AUTO, -1, 0}}, 0, true, true, false, false, false},
    {{17, 2, 3, 7}, {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_CHUNKED, -1, 4}}, 0, true, false, true, true, false},
    {{7, 2, 2, 5}, {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, -1, 0}}, 0, true, false, true, false, false},
    {{6, 2, 2, 9}, {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_LINEAR, -1, 0}}, 0, false, true, true, false, false},
    {{5, 2, 3, 40}, {BPPSA_BACKWARD_BP, {BPPSA_SCAN_AUTO, -1, 0}}, 0, true, false, true, true, false},
    {{64, 2, 1, 6}, {BPPSA_BACKWARD_SPECULATIVE, {BPPSA_SCAN_AUTO, -1, 0}}, 4, false, false, true, false, false},
    {{64, 1, 3, 6}, {BPPSA_BACKWARD_SPECULATIVE, {BPPSA_SCAN_AUTO, -1, 0}}, 4, true, false, true, true, false},
    {{9, 4, 3, 6}, {BPPSA_BACKWARD_BP, {BPPSA_SCAN_AUTO, -1, 0}}, 0, true, false, true, true, true},
    /* Products of chunks, of H that is no multiple of what their kernels take at once: chunks of one step, and of one or two steps
     * of which some are cut, the longest chunks, and one step alone. */
    {{12, 1, 2, 1}, {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_CHUNKED, -1, 12}}, 0, false, true, true, false, false},
    {{12, 1, 2, 21}, {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_CHUNKED, -1, 7}}, 0, true, false, false, false, false},
    {{40, 1, 2, 9}, {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_CHUNKED, -1, 2}}, 0, false, false, true, false, false},
    {{1, 1, 2, 3}, {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_CHUNKED, -1, 4}}, 0, false, false, true, false, false}};
enum { WAYS = sizeof ways / sizeof *ways };

/* Products of chunks of pairs of 21 units need more shared memory than a GPU has. */
static bppsa_recurrent_config config_of(int w, bppsa_dtype dtype, const bppsa_cell *cell) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = ways[w].sizes[0];
  c.batch = ways[w].sizes[1];
  c.input = ways[w].sizes[2];
  c.hidden = cell->pair && ways[w].sizes[3] == 21 ? 7 : ways[w].sizes[3];
  c.dtype = dtype;
  c.method = ways[w].method;
  c.resets = ways[w].resets;
  c.reset_state = ways[w].reset_state;
  c.lengths = ways[w].lengths;
  c.no_bias = ways[w].no_bias;
  c.input_gradients = ways[w].inputs;
  c.forward.kind = ways[w].chunks > 0 ? BPPSA_FORWARD_SPECULATIVE : BPPSA_FORWARD_SEQUENTIAL;
  if (ways[w].chunks > 0) {
    c.forward.chunks = c.speculation.chunks = ways[w].chunks;
    c.forward.warm_up = c.speculation.warm_up = 6;
    c.speculation.exact_inputs = true;
  }
  return c;
}

/* Two batches, whose passes alternate. */
static void test_ways(void **state) {
  (void)state;
  for (int k = 0; k < WAYS * LAYER_CELLS * 2; ++k) {
    bppsa_device *device = test_device(1);
    if (is_emulated(device) && !is_drawn(2)) {
      bppsa_device_destroy(device);
      continue;
    }
    layer_dice d = {(uint64_t)k};
    const bppsa_recurrent_config c = config_of(k % WAYS, k / WAYS % 2 == 0 ? BPPSA_F32 : BPPSA_F64, layer_cells[k / WAYS / 2]);
    layer_problem p = layer_problem_open(&c, layer_cells[k / WAYS / 2], device, &d);
    layer_batch a = layer_batch_open(&p, &d), b = layer_batch_open(&p, &d);
    const int64_t held = bppsa_memory_held(device);
    layer_forward(&p, &a);
    layer_forward(&p, &b);
    layer_backward(&p, &a);
    layer_backward(&p, &b);
    layer_backward(&p, &a);
    assert_int_equal(bppsa_memory_held(device), held);
    layer_batch_close(&p, &a);
    layer_batch_close(&p, &b);
    layer_problem_close(&p);
  }
}

/* ---- recorded passes ---- */

typedef struct {
  const layer_problem *p;
  const layer_batch *batch;
  void *scratch;
} recorded;

static bppsa_status queue(void *context) {
  const recorded *r = context;
  BPPSA_TRY(layer_queue_forward(r->p, r->batch, r->scratch));
  return layer_queue_backward(r->p, r->batch, r->scratch);
}

/* A recording of both passes, which would fail if they allocated or waited, is played twice; what it writes is spoiled between. */
static void test_recorded(void **state) {
  (void)state;
  for (int k = 0; k < WAYS * LAYER_CELLS; ++k) {
    bppsa_device *device = test_device(1);
    if (layer_hosted(device) || (is_emulated(device) && !is_drawn(2))) {
      bppsa_device_destroy(device);
      continue;
    }
    layer_dice d = {100 + (uint64_t)k};
    const bppsa_recurrent_config c = config_of(k % WAYS, BPPSA_F32, layer_cells[k / WAYS]);
    layer_problem p = layer_problem_open(&c, layer_cells[k / WAYS], device, &d);
    layer_batch b = layer_batch_open(&p, &d);
    const int64_t most = p.sizes.forward > p.sizes.backward ? p.sizes.forward : p.sizes.backward;
    layer_array scratch = layer_open(device, most, true);
    recorded r = {&p, &b, scratch.data};
    bppsa_graph *graph = NULL;
    assert_int_equal(bppsa_graph_capture(device, queue, &r, &graph), BPPSA_OK);
    for (int turn = 0; turn < 2; ++turn) {
      assert_int_equal(bppsa_memory_clear(device, scratch.data, most), BPPSA_OK);
      assert_int_equal(bppsa_memory_clear(device, b.tape[0].data, b.tape[0].size), BPPSA_OK);
      assert_int_equal(bppsa_graph_launch(device, graph), BPPSA_OK);
      layer_check_states(&p, &b);
      layer_check_gradients(&p, &b);
    }
    bppsa_graph_destroy(device, graph);
    layer_close(device, &scratch);
    layer_batch_close(&p, &b);
    layer_problem_close(&p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ways), cmocka_unit_test(test_recorded)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
