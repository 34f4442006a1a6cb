/* Stateless passes on a CPU: random configurations in random sequences beside a model's passes, four threads with one layer, and
 * what is refused. */
#include <pthread.h>

#include "tests/recurrent/layer_problem.h"
#include "tests/support/length.h"

static const bppsa_gradient_method all_methods[] = {
    {BPPSA_BACKWARD_BP, {BPPSA_SCAN_AUTO, -1, 0}},       {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_LINEAR, -1, 0}},
    {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, -1, 0}}, {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, 2, 0}},
    {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_CHUNKED, -1, 3}},  {BPPSA_BACKWARD_SPECULATIVE, {BPPSA_SCAN_AUTO, -1, 0}},
    {BPPSA_BACKWARD_AUTO, {BPPSA_SCAN_AUTO, -1, 0}}};
enum { ALL_METHODS = sizeof all_methods / sizeof *all_methods, MOST_BATCHES = 3 };

static const int64_t wide_sizes[] = {129, 131, 257};
enum { WIDE_SIZES = sizeof wide_sizes / sizeof *wide_sizes };

static bppsa_recurrent_config draw_config(layer_dice *d, const bppsa_cell *cell, int64_t method) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  const bool wide = layer_roll(d, 0, 15) == 0;
  c.batch = layer_roll(d, 1, 6);
  c.input = layer_roll(d, 1, 9);
  c.hidden = wide ? wide_sizes[layer_roll(d, 0, WIDE_SIZES - 1)] : layer_roll(d, 1, 40);
  c.dtype = layer_roll(d, 0, 1) ? BPPSA_F32 : BPPSA_F64;
  c.nonlinearity = cell->relu && layer_roll(d, 0, 1) ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  c.method = all_methods[method];
  c.no_bias = layer_roll(d, 0, 4) == 0;
  c.lengths = layer_roll(d, 0, 2) == 0;
  c.resets = layer_roll(d, 0, 2) == 0;
  c.reset_state = layer_roll(d, 0, 3) == 0;
  c.input_gradients = layer_roll(d, 0, 3) > 0;
  const bool speculates = c.method.backward == BPPSA_BACKWARD_SPECULATIVE || (!c.lengths && layer_roll(d, 0, 3) == 0);
  c.seq_len = speculates ? layer_roll(d, 90, 160) : layer_roll(d, 1, wide ? 12 : 40);
  c.forward.kind = speculates && !c.lengths ? BPPSA_FORWARD_SPECULATIVE : BPPSA_FORWARD_SEQUENTIAL;
  if (speculates) {
    c.forward.chunks = c.speculation.chunks = layer_roll(d, 2, 6);
    c.forward.warm_up = c.speculation.warm_up = layer_roll(d, 2, 20);
  }
  return c;
}

/* Forward passes of some batches, then their backward passes in any order, some of them twice, with another forward pass between
 * them. */
static void run_sequence(layer_problem *p, layer_dice *d) {
  layer_batch batches[MOST_BATCHES];
  const int64_t count = layer_roll(d, 1, MOST_BATCHES);
  for (int64_t i = 0; i < count; ++i) {
    batches[i] = layer_batch_open(p, d);
    layer_forward(p, &batches[i]);
  }
  for (int64_t i = 0; i < 2 * count; ++i) {
    const layer_batch *b = &batches[layer_roll(d, 0, count - 1)];
    if (layer_roll(d, 0, 3) == 0) {
      layer_forward(p, b);
    } else {
      layer_backward(p, b);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    layer_batch_close(p, &batches[i]);
  }
}

static void test_random_layers(void **state) {
  (void)state;
  const uint64_t seeds = at_full_length() ? 40 : 4;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    for (int k = 0; k < LAYER_CELLS * ALL_METHODS; ++k) {
      layer_dice d = {seed * 1000 + (uint64_t)k};
      const bppsa_cell *cell = layer_cells[k % LAYER_CELLS];
      const bppsa_recurrent_config c = draw_config(&d, cell, k / LAYER_CELLS);
      layer_problem p = layer_problem_open(&c, cell, cpu_device(layer_roll(&d, 1, 3)), &d);
      run_sequence(&p, &d);
      layer_problem_close(&p);
    }
  }
}

/* ---- threads ---- */

enum { THREADS = 4, TURNS = 6 };

/* A thread's own arrays; what it reads beside them is shared. */
typedef struct {
  const layer_problem *p;
  const layer_batch *batch;
  int different; /* passes whose bits differ from the model's, or that fail */
} caller;

static int count_different(const void *found, const void *expected, int64_t size) {
  return expected != NULL && memcmp(found, expected, (size_t)size) != 0;
}

/* Forward and backward passes with memory of the thread's own. Asserts belong to the first thread. */
static void *call_layer(void *argument) {
  caller *c = argument;
  const layer_problem *p = c->p;
  const layer_batch *b = c->batch;
  const bppsa_layer_inputs inputs = layer_inputs_of(p, b);
  const bppsa_layer_seed seed = {b->seeds[0].data, b->seeds[1].data, b->seeds[2].data, b->seeds[3].data};
  const int64_t half = p->config.batch * p->config.hidden * layer_real(p),
                most = p->sizes.forward > p->sizes.backward ? p->sizes.forward : p->sizes.backward;
  void *states[3] = {NULL}, *gradients[LAYER_GRADIENTS] = {NULL}, *scratch = bppsa_alloc((size_t)most);
  for (int i = 0; i < 3; ++i) {
    states[i] = b->tape[i].data != NULL ? malloc((size_t)b->tape[i].size) : NULL;
  }
  for (int i = 0; i < LAYER_GRADIENTS; ++i) {
    gradients[i] = b->gradients[i].data != NULL ? malloc((size_t)b->gradients[i].size) : NULL;
  }
  const bppsa_layer_tape tape = {states[0], states[1], states[2]};
  const bppsa_layer_gradients to = {gradients[0], gradients[1], gradients[2], gradients[3],
                                    gradients[4], gradients[5], gradients[6], gradients[7]};
  for (int turn = 0; turn < TURNS; ++turn) {
    c->different += bppsa_layer_forward(p->layer, p->device, &inputs, &tape, scratch) != BPPSA_OK;
    c->different += bppsa_layer_backward(p->layer, p->device, &inputs, &tape, &seed, &to, scratch) != BPPSA_OK;
    for (int i = 0; i < (p->cell->pair ? 2 : 1); ++i) {
      c->different += count_different((char *)states[i] + half, b->expected_states[i], p->sizes.states - half);
    }
    for (int i = 0; i < LAYER_GRADIENTS; ++i) {
      c->different += gradients[i] != NULL && count_different(gradients[i], b->expected[i], b->gradients[i].size);
    }
  }
  for (int i = 0; i < LAYER_GRADIENTS; ++i) {
    free(gradients[i]);
  }
  for (int i = 0; i < 3; ++i) {
    free(states[i]);
  }
  bppsa_free(scratch);
  return NULL;
}

/* One layer and one device, of one thread or of three, in four threads at the same time. */
static void test_threads(void **state) {
  (void)state;
  for (int k = 0; k < LAYER_CELLS * ALL_METHODS; ++k) {
    layer_dice d = {77 + (uint64_t)k};
    const bppsa_cell *cell = layer_cells[k % LAYER_CELLS];
    const bppsa_recurrent_config config = draw_config(&d, cell, k / LAYER_CELLS);
    layer_problem p = layer_problem_open(&config, cell, cpu_device(k % 2 == 0 ? 1 : 3), &d);
    layer_batch batches[THREADS];
    caller callers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; ++i) {
      batches[i] = layer_batch_open(&p, &d);
      callers[i] = (caller){.p = &p, .batch = &batches[i]};
    }
    for (int i = 0; i < THREADS; ++i) {
      assert_int_equal(pthread_create(&threads[i], NULL, call_layer, &callers[i]), 0);
    }
    for (int i = 0; i < THREADS; ++i) {
      assert_int_equal(pthread_join(threads[i], NULL), 0);
      assert_int_equal(callers[i].different, 0);
      layer_batch_close(&p, &batches[i]);
    }
    layer_problem_close(&p);
  }
}

/* ---- refusals ---- */

static bppsa_recurrent_config small_config(void) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = 7;
  c.batch = 2;
  c.input = 3;
  c.hidden = 5;
  c.method.backward = BPPSA_BACKWARD_BP;
  c.lengths = c.resets = true;
  return c;
}

static void refuse_config(bppsa_recurrent_config c, bppsa_status status, const char *part) {
  bppsa_device *device = cpu_device(1);
  bppsa_layer *layer = NULL;
  assert_error(bppsa_layer_create(&c, &bppsa_gru_cell, device, &layer), status, part);
  assert_null(layer);
  bppsa_device_destroy(device);
}

static void test_refused_configs(void **state) {
  (void)state;
  bppsa_recurrent_config c = small_config();
  bppsa_device *device = cpu_device(1);
  bppsa_layer *layer;
  assert_error(bppsa_layer_create(NULL, &bppsa_gru_cell, device, &layer), BPPSA_ERR_ARGUMENT, "bppsa_layer_create");
  assert_error(bppsa_layer_create(&c, NULL, device, &layer), BPPSA_ERR_ARGUMENT, "bppsa_layer_create");
  assert_error(bppsa_layer_create(&c, &bppsa_gru_cell, NULL, &layer), BPPSA_ERR_ARGUMENT, "bppsa_layer_create");
  assert_error(bppsa_layer_create(&c, &bppsa_gru_cell, device, NULL), BPPSA_ERR_ARGUMENT, "bppsa_layer_create");
  bppsa_device_destroy(device);
  bppsa_layer_destroy(NULL);
  c.hidden = 0;
  refuse_config(c, BPPSA_ERR_ARGUMENT, "hidden is 0");
  c = small_config();
  c.bidirectional = true;
  refuse_config(c, BPPSA_ERR_ARGUMENT, "layer: bidirectional is set, expected 0");
  c = small_config();
  c.dropout = .5;
  refuse_config(c, BPPSA_ERR_ARGUMENT, "layer: dropout is set, expected 0");
  c = small_config();
  c.memory_limit = 1 << 20;
  refuse_config(c, BPPSA_ERR_ARGUMENT, "layer: memory_limit is set, expected 0");
  c = small_config();
  c.nonlinearity = BPPSA_NONLINEARITY_RELU;
  refuse_config(c, BPPSA_ERR_ARGUMENT, "gru: nonlinearity 1, expected tanh");
  c = small_config();
  c.forward.kind = BPPSA_FORWARD_SPECULATIVE;
  refuse_config(c, BPPSA_ERR_UNSUPPORTED, "lengths of samples in a speculative forward pass");
}

/* The arrays of both passes, of which a test spoils one. */
typedef struct {
  bppsa_layer_inputs inputs;
  bppsa_layer_tape tape;
  bppsa_layer_seed seed;
  bppsa_layer_gradients gradients;
  void *scratch;
} arguments;

static arguments arguments_of(const layer_problem *p, const layer_batch *b, void *scratch) {
  return (arguments){.inputs = layer_inputs_of(p, b), .tape = layer_tape_of(b), .scratch = scratch};
}

static void refuse_pass(const layer_problem *p, const arguments *a, const char *part) {
  assert_error(bppsa_layer_forward(p->layer, p->device, &a->inputs, &a->tape, a->scratch), BPPSA_ERR_ARGUMENT, part);
  assert_error(bppsa_layer_backward(p->layer, p->device, &a->inputs, &a->tape, &a->seed, &a->gradients, a->scratch),
               BPPSA_ERR_ARGUMENT, part);
}

static void refuse_backward(const layer_problem *p, const arguments *a, const char *part) {
  assert_error(bppsa_layer_backward(p->layer, p->device, &a->inputs, &a->tape, &a->seed, &a->gradients, a->scratch),
               BPPSA_ERR_ARGUMENT, part);
}

/* Every array that is missing, or is there although the layer does not know it; after each refusal a pass still has its bits. */
static void test_refused_passes(void **state) {
  (void)state;
  const bppsa_recurrent_config c = small_config();
  layer_dice d = {5};
  layer_problem p = layer_problem_open(&c, &bppsa_gru_cell, cpu_device(1), &d);
  layer_batch b = layer_batch_open(&p, &d);
  char *scratch = bppsa_alloc((size_t)(p.sizes.forward + p.sizes.backward));
  assert_non_null(scratch);
  const arguments good = arguments_of(&p, &b, scratch);
  arguments a = good;
  a.inputs.x = NULL;
  refuse_pass(&p, &a, "gru layer: x is NULL, expected an array");
  a = good;
  a.inputs.w_hh = NULL;
  refuse_pass(&p, &a, "gru layer: w_hh is NULL, expected an array");
  a = good;
  a.inputs.c0 = scratch;
  refuse_pass(&p, &a, "gru layer: c0 is an array, expected NULL");
  a = good;
  a.inputs.reset_state = scratch;
  refuse_pass(&p, &a, "gru layer: reset_state is an array, expected NULL");
  a = good;
  a.tape.h = NULL;
  refuse_pass(&p, &a, "gru layer: tape h is NULL");
  a = good;
  a.tape.saved = NULL;
  refuse_pass(&p, &a, "gru layer: tape saved is NULL");
  a = good;
  a.scratch = scratch + 8;
  refuse_pass(&p, &a, "expected a multiple of 64");
  a = good;
  const int64_t lengths[] = {3, 8};
  a.inputs.lengths = lengths;
  refuse_pass(&p, &a, "length 8 of sample 1 of the batch, expected 1 .. 7");
  a = good;
  uint8_t resets[7 * 2] = {0};
  resets[5] = 2;
  a.inputs.resets = resets;
  refuse_pass(&p, &a, "resets: 2 at step 2 of sample 1 of the batch, expected 0 or 1");
  a = good;
  a.seed.c = scratch;
  refuse_backward(&p, &a, "gru layer: seed c is an array, expected NULL: the state is no pair");
  a = good;
  a.gradients.x = scratch;
  refuse_backward(&p, &a, "gradient of x is an array, expected NULL: the layer has no input_gradients");
  a = good;
  a.gradients.reset_state = scratch;
  refuse_backward(&p, &a, "gradient of reset_state is an array, expected NULL: the layer has none");
  assert_error(bppsa_layer_forward(NULL, p.device, &good.inputs, &good.tape, scratch), BPPSA_ERR_ARGUMENT, "bppsa_layer_forward");
  assert_error(bppsa_layer_forward(p.layer, NULL, &good.inputs, &good.tape, scratch), BPPSA_ERR_ARGUMENT, "bppsa_layer_forward");
  assert_error(bppsa_layer_backward(p.layer, p.device, &good.inputs, &good.tape, NULL, &good.gradients, scratch),
               BPPSA_ERR_ARGUMENT, "bppsa_layer_backward");
  layer_forward(&p, &b);
  layer_backward(&p, &b);
  bppsa_free(scratch);
  layer_batch_close(&p, &b);
  layer_problem_close(&p);
}

/* ---- memory ---- */

static bppsa_status create_layer(void *argument) {
  bppsa_layer *layer;
  const layer_problem *p = argument;
  BPPSA_TRY(bppsa_layer_create(&p->config, p->cell, p->device, &layer));
  bppsa_layer_destroy(layer);
  return BPPSA_OK;
}

typedef struct {
  const layer_problem *p;
  arguments a;
} backward_call;

static bppsa_status call_backward(void *argument) {
  const backward_call *c = argument;
  return bppsa_layer_backward(c->p->layer, c->p->device, &c->a.inputs, &c->a.tape, &c->a.seed, &c->a.gradients, c->a.scratch);
}

/* Allocations that fail leave nothing behind. Passes allocate nothing, but for the executor of a scan. */
static void test_memory(void **state) {
  (void)state;
  for (int method = 0; method < ALL_METHODS; ++method) {
    bppsa_recurrent_config c = small_config();
    c.method = all_methods[method];
    layer_dice d = {(uint64_t)method};
    layer_problem p = layer_problem_open(&c, &bppsa_lstm_cell, cpu_device(1), &d);
    layer_batch b = layer_batch_open(&p, &d);
    void *scratch = bppsa_alloc((size_t)(p.sizes.forward + p.sizes.backward));
    backward_call call = {&p, arguments_of(&p, &b, scratch)};
    const bool scans = method >= 2 && method <= 4;
    assert_true(walk_allocations(create_layer, &p) > 0);
    bppsa_alloc_fail_at(1);
    assert_int_equal(bppsa_layer_forward(p.layer, p.device, &call.a.inputs, &call.a.tape, scratch), BPPSA_OK);
    bppsa_alloc_fail_at(0);
    const int64_t allocations = walk_allocations(call_backward, &call);
    assert_int_equal(allocations > 0, scans);
    layer_backward(&p, &b);
    bppsa_free(scratch);
    layer_batch_close(&p, &b);
    layer_problem_close(&p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_layers), cmocka_unit_test(test_threads),
                                     cmocka_unit_test(test_refused_configs), cmocka_unit_test(test_refused_passes),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
