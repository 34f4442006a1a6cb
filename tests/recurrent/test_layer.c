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

static bppsa_recurrent_config draw_config(layer_dice *d, const bppsa_cell *cell, int64_t method) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  const bool wide = layer_roll(d, 0, 15) == 0;
  c.batch = layer_roll(d, 1, 6);
  c.input = layer_roll(d, 1, 9);
  c.hidden = wide ? 131 : layer_roll(d, 1, 40);
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_layers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
