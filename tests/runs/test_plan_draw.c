/* Drawings of scan plans: what is drawn for every product, names of operators, plans too large to draw. */
#include "runs/plan_draw.h"
#include "tests/core/helpers.h"
#include "tests/support/count.h"

static bppsa_scan_plan *make_plan(bppsa_scan_algorithm algorithm, int64_t jacobians) {
  bppsa_scan_config config = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  config.method = bppsa_scan_method_of(algorithm);
  config.jacobians = jacobians;
  config.dim = 3;
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
  return plan;
}

/* Figure 1: seven Jacobians; every product of the plan has a node with a title, the dead one is dashed. */
static void test_svg(void **state) {
  (void)state;
  bppsa_scan_plan *plan = make_plan(BPPSA_SCAN_BLELLOCH, 7);
  const bppsa_scan_totals *totals = bppsa_scan_plan_totals(plan);
  bppsa_text text = {0};
  assert_int_equal(bppsa_plan_draw(&(bppsa_plan_picture){.plan = plan}, &text), BPPSA_OK);
  assert_int_equal(bppsa_text_check(&text), BPPSA_OK);
  assert_non_null(strstr(text.text, "<svg"));
  assert_non_null(strstr(text.text, "</svg>"));
  assert_int_equal(count_of(text.text, "<title>"), 1 + totals->mm + totals->mv); /* the drawing has one too */
  assert_true(totals->dead > 0 && strstr(text.text, "dead") != NULL);
  bppsa_text_free(&text);
  bppsa_scan_plan_destroy(plan);
}

/* A PNG is drawn by a script of gnuplot's, with the operators' names. */
static void test_script(void **state) {
  (void)state;
  const char *const names[] = {"conv1", "relu1", "pool1", "fc1"};
  bppsa_scan_plan *plan = make_plan(BPPSA_SCAN_CHUNKED, 4);
  bppsa_text text = {0};
  assert_int_equal(bppsa_plan_draw(&(bppsa_plan_picture){.plan = plan, .names = names, .png = "plan.png"}, &text), BPPSA_OK);
  assert_non_null(strstr(text.text, "set output \"plan.png\""));
  assert_null(strstr(text.text, "<svg"));
  for (int i = 0; i < 4; ++i) {
    assert_non_null(strstr(text.text, names[i]));
  }
  bppsa_text_free(&text);
  bppsa_scan_plan_destroy(plan);
}

/* The factors of every step by the names of their operators: the first Jacobian is the last operator's. */
static void test_operands(void **state) {
  (void)state;
  const char *const names[] = {"conv1", "relu1", "pool1", "fc1"};
  bppsa_scan_plan *plan = make_plan(BPPSA_SCAN_BLELLOCH, 4);
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  char left[BPPSA_RANGE_TEXT], right[BPPSA_RANGE_TEXT];
  int products = 0, vectors = 0;
  while (bppsa_scan_plan_next(plan, &it, &step)) {
    bppsa_plan_operands(names, 4, &step, left, right);
    if (step.level->op == BPPSA_OP_MM && step.last == 3) {
      assert_string_equal(left, "relu1"); /* a[3] = J_2, applied after a[2] = J_3 */
      assert_string_equal(right, "pool1");
      ++products;
    } else if (step.level->op == BPPSA_OP_MV && step.first == 1 && step.last == 1) {
      assert_string_equal(left, "fc1");
      assert_string_equal(right, "g4");
      ++vectors;
    }
  }
  assert_int_equal(products, 1);
  assert_int_equal(vectors, 1);
  bppsa_scan_plan_destroy(plan);
}

static void test_too_large(void **state) {
  (void)state;
  bppsa_scan_plan *plan = make_plan(BPPSA_SCAN_LINEAR, BPPSA_DRAW_LIMIT + 2);
  bppsa_text text = {0};
  assert_error(bppsa_plan_draw(&(bppsa_plan_picture){.plan = plan}, &text), BPPSA_ERR_ARGUMENT, "10000");
  assert_null(text.text);
  bppsa_scan_plan_destroy(plan);
}

static bppsa_status draw(void *plan) {
  bppsa_text text = {0};
  bppsa_status status = bppsa_plan_draw(&(bppsa_plan_picture){.plan = plan}, &text);
  status = status == BPPSA_OK ? bppsa_text_check(&text) : status;
  bppsa_text_free(&text);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  bppsa_scan_plan *plan = make_plan(BPPSA_SCAN_BLELLOCH, 9);
  assert_true(walk_allocations(draw, plan) > 1);
  bppsa_scan_plan_destroy(plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_svg), cmocka_unit_test(test_script), cmocka_unit_test(test_operands),
                                     cmocka_unit_test(test_too_large), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
