/* A learned state from which samples begin anew, on a device: its gradient beside the processor's BP in float64, in every way in
 * which a device computes passes, and sequences of passes. BPPSA_TEST_DEVICE names the device. */
#include "tests/recurrent/resets_device.h"

static void test_learned(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * SHAPES * WAYS; ++k) {
    const int cell = k % CELLS, s = k / CELLS % SHAPES, w = k / CELLS / SHAPES;
    if (is_drawn(s == WIDEST ? 20 : 8)) {
      check_learned(cell, s, k % 2 == 0 ? BPPSA_F64 : BPPSA_F32, &ways[w], rates[(cell + s + w) % RATES], (uint64_t)k);
    }
  }
}

/* One network for batches with and without resets and lengths, of several sizes, beside a fresh one for each: nothing of the
 * gradients of an earlier batch is left in that of the state. */
static void test_learned_sequences(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * 2; ++k) {
    problem p = problem_of(k % CELLS, 7, k % 2 == 0 ? BPPSA_F32 : BPPSA_F64);
    use_way(&p, &ways[k % WAYS]);
    p.config.reset_state = true;
    bppsa_model *model = open_model(&p);
    for (int step = 0; step < 5; ++step) {
      int64_t lengths[MOST];
      p.batch = 1 + (step * 5 + k) % p.config.batch;
      make_lengths(p.config.seq_len, lengths);
      make_numbers(&p, (uint64_t)(10 * k + step));
      uint8_t *mask = draw_mask(&p, rates[step % RATES], (uint64_t)step);
      p.resets = step % 3 == 1 ? NULL : mask;
      p.lengths = step % 4 == 2 ? lengths : NULL;
      bppsa_model *fresh = open_model(&p);
      outcome found = compute(&p, model), expected = compute(&p, fresh);
      assert_same(&found, &expected);
      for (int64_t i = found.where[3], end = i + bppsa_view_count(&model->parameters[0].value); step % 3 == 1 && i < end; ++i) {
        assert_true(found.numbers[i] == 0);
      }
      bppsa_free(found.numbers);
      bppsa_free(expected.numbers);
      bppsa_model_destroy(fresh);
      bppsa_free(mask);
      free_numbers(&p);
    }
    bppsa_model_destroy(model);
  }
}

/* With a state of zeros a network has the bits of one that learns none. */
static void test_learned_zeros(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * WAYS; ++k) {
    problem p = problem_of(k % CELLS, k % 2 == 0 ? 2 : 3, BPPSA_F32);
    use_way(&p, &ways[k / CELLS]);
    make_numbers(&p, (uint64_t)k);
    uint8_t *mask = draw_mask(&p, .1, (uint64_t)k);
    p.resets = mask;
    bppsa_model *plain = open_model(&p);
    p.config.reset_state = true;
    bppsa_model *learned = open_model(&p);
    const bppsa_view *value = &learned->parameters[0].value;
    const int64_t count = bppsa_view_count(value);
    for (int64_t i = 0; i < count; ++i) {
      bppsa_view_set(value, i, 0);
    }
    assert_int_equal(bppsa_model_push(learned), BPPSA_OK);
    outcome of = compute(&p, learned), without = compute(&p, plain);
    assert_int_equal(of.where[4], without.where[4] + count);
    assert_memory_equal(of.numbers, without.numbers, (size_t)of.where[3] * sizeof(double));
    assert_memory_equal(of.numbers + of.where[3] + count, without.numbers + of.where[3],
                        (size_t)(without.where[4] - of.where[3]) * sizeof(double));
    bppsa_free(of.numbers);
    bppsa_free(without.numbers);
    bppsa_model_destroy(plain);
    bppsa_model_destroy(learned);
    bppsa_free(mask);
    free_numbers(&p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_learned), cmocka_unit_test(test_learned_sequences),
                                     cmocka_unit_test(test_learned_zeros)};
  return cmocka_run_group_tests(tests, open_devices, close_devices);
}
