/* What earlier points say about rivals (bench/harness/outlook.h): times in TF32 and bf16 are nobody's measure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "bench/harness/outlook.h"

static const bppsa_recurrent_config shape = {.seq_len = 4000, .batch = 16, .input = 1, .hidden = 20, .layers = 1};

/* A row of a rival at T = 1000 of that shape, with this median. */
static void add(json_t *rows, const char *method, double median_s) {
  json_t *row =
      json_pack("{s:s, s:b, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:f}", "method", method, "rival", 1, "init", "default", "dtype",
                "f32", "seq_len", 1000, "batch", 16, "hidden", 20, "input", 1, "layers", 1, "median_s", median_s);
  assert_int_equal(json_array_append_new(rows, row), 0);
}

/* A rival is held against the fastest one that computes in the type of the request; those in bf16 and TF32 are held against it
 * themselves, and never begin a point. */
static void test_other_types(void **state) {
  (void)state;
  static const char *const others[] = {"cudnn_standard_bf16", "cudnn_persist_static_small_h_bf16_packed_graph",
                                       "cudnn_standard_tf32", "cudnn_persist_static_small_h_tf32_graph"};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; ++i) {
    json_t *rows = json_array();
    bppsa_outlook *outlook = NULL;
    add(rows, others[i], 1e-3);
    add(rows, "cudnn_standard", 5e-3);
    add(rows, "pytorch", 9e-3);
    add(rows, "cudnn_persist_dynamic", 11e-3);
    assert_int_equal(bppsa_outlook_create(NULL, rows, &shape, &outlook), BPPSA_OK);
    assert_string_equal(bppsa_outlook_winner(outlook), "cudnn_standard");
    const bppsa_rival_outlook near = bppsa_outlook_of(outlook, "pytorch", NULL);
    assert_true(fabs(near.times - 1.8) < 1e-12 && fabs(near.seconds - 36e-3) < 1e-12 && near.seq_len == 1000);
    assert_int_equal(bppsa_outlook_check(&near), BPPSA_OK);
    const bppsa_rival_outlook lost = bppsa_outlook_of(outlook, "cudnn_persist_dynamic", NULL);
    assert_int_equal(bppsa_outlook_check(&lost), BPPSA_ERR_UNSUPPORTED);
    assert_string_equal(bppsa_last_error(), "not run: 2.2 times as long as the fastest rival at T 1000, predicted 44.0 ms");
    const bppsa_rival_outlook other = bppsa_outlook_of(outlook, others[i], NULL);
    assert_true(fabs(other.times - 0.2) < 1e-12);
    bppsa_outlook_destroy(outlook);
    json_decref(rows);
  }
}

/* Where no rival is exact, nobody has lost: what is predicted alone says whether a pass is made. */
static void test_alone(void **state) {
  (void)state;
  json_t *rows = json_array();
  bppsa_outlook *outlook = NULL;
  add(rows, "cudnn_standard_bf16", 1e-3);
  add(rows, "cudnn_persist_static_bf16", 0.3);
  assert_int_equal(bppsa_outlook_create(rows, NULL, &shape, &outlook), BPPSA_OK);
  assert_string_equal(bppsa_outlook_winner(outlook), "");
  const bppsa_rival_outlook fast = bppsa_outlook_of(outlook, "cudnn_standard_bf16", NULL);
  assert_int_equal(bppsa_outlook_check(&fast), BPPSA_OK);
  const bppsa_rival_outlook slow = bppsa_outlook_of(outlook, "cudnn_persist_static_bf16", NULL);
  assert_true(slow.times == 0);
  assert_int_equal(bppsa_outlook_check(&slow), BPPSA_ERR_UNSUPPORTED);
  assert_string_equal(bppsa_last_error(), "not run: a pass is predicted to take 1.20 s, expected at most 1 s");
  bppsa_outlook_destroy(outlook);
  json_decref(rows);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_other_types), cmocka_unit_test(test_alone)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
