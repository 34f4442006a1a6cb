/* An algorithm that is not in the table runs nowhere: not as a plan, not as an executor, and not under another name. */
#include <string.h>

#include "scan/algorithm_internal.h"
#include "scan/plan_internal.h"
#include "scan/scan.h"
#include "scan/scan_internal.h"
#include "tests/support/support.h"

static const bppsa_scan_algorithm invented[] = {BPPSA_SCAN_ALGORITHMS, (bppsa_scan_algorithm)77, (bppsa_scan_algorithm)-1};
enum { INVENTED = sizeof invented / sizeof invented[0] };

static void test_plans(void **state) {
  (void)state;
  for (int i = 0; i < INVENTED; ++i) {
    for (int e = 0; e < BPPSA_ELEMENTS; ++e) {
      for (int kind = BPPSA_CPU; kind <= BPPSA_CUDA; ++kind) {
        bppsa_scan_config c = bppsa_scan_config_default();
        bppsa_scan_plan *plan = NULL;
        c.method.algorithm = invented[i];
        c.element = (bppsa_element)e;
        c.device = (bppsa_device_kind)kind;
        c.jacobians = 5;
        assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_ERR_UNSUPPORTED);
        assert_non_null(strstr(bppsa_last_error(), "unknown algorithm"));
        assert_null(plan);
      }
    }
  }
}

/* Every kind of elements has a name of its own and runs on a processor; a number behind them is refused. */
static void test_elements(void **state) {
  (void)state;
  bppsa_scan_config c = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  for (int e = 0; e < BPPSA_ELEMENTS; ++e) {
    const bppsa_scan_element_row *row = bppsa_scan_element_find((bppsa_element)e);
    assert_true(row != NULL && row->name != NULL && row->create[BPPSA_CPU] != NULL);
    for (int other = 0; other < e; ++other) {
      assert_string_not_equal(row->name, bppsa_scan_element_find((bppsa_element)other)->name);
    }
  }
  assert_null(bppsa_scan_element_find(BPPSA_ELEMENTS));
  c.element = BPPSA_ELEMENTS;
  assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "unknown element"));
  assert_null(plan);
}

/* A plan whose algorithm is not in the table, on the device that BPPSA_TEST_DEVICE names. */
static void test_executors(void **state) {
  (void)state;
  bppsa_device *device = test_device(2);
  bppsa_csr one;
  assert_int_equal(bppsa_csr_create(1, 1, 1, &one), BPPSA_OK);
  one.row_ptr[1] = 1;
  one.col[0] = 0;
  const bppsa_csr *const patterns[] = {&one, &one, &one, &one, &one};
  for (int e = 0; e < BPPSA_ELEMENTS; ++e) {
    bppsa_scan_config c = bppsa_scan_config_default();
    bppsa_scan_plan *plan = NULL;
    bppsa_scan_executor *executor = NULL;
    c.element = (bppsa_element)e;
    c.jacobians = 5;
    c.patterns = patterns;
    c.planner = device;
    c.dim = 2;
    c.diagonal = e == BPPSA_ELEMENT_PAIR;
    assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
    for (int i = 0; i < INVENTED; ++i) {
      plan->config.method.algorithm = invented[i];
      assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_ERR_UNSUPPORTED);
      assert_non_null(strstr(bppsa_last_error(), "unknown algorithm"));
      assert_null(executor);
    }
    plan->config.method.algorithm = BPPSA_SCAN_BLELLOCH;
    const bool runs = bppsa_scan_element_find(c.element)->create[bppsa_device_get_kind(device)] != NULL;
    assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), runs ? BPPSA_OK : BPPSA_ERR_UNSUPPORTED);
    bppsa_scan_executor_destroy(executor);
    bppsa_scan_plan_destroy(plan);
  }
  bppsa_csr_free(&one);
  bppsa_device_destroy(device);
}

/* An algorithm whose row numbers its slots by a rule that no executor knows: ERR_UNSUPPORTED, on the device that
 * BPPSA_TEST_DEVICE names. The plan's own row is not touched. */
static void test_slot_rules(void **state) {
  (void)state;
  static const bppsa_slot_rule unknown[] = {BPPSA_SLOT_NONE, BPPSA_SLOT_RULES, (bppsa_slot_rule)77};
  bppsa_device *device = test_device(2);
  for (int e = 0; e < BPPSA_ELEMENT_CSR; ++e) {
    for (int a = BPPSA_SCAN_LINEAR; a < BPPSA_SCAN_ALGORITHMS; ++a) {
      bppsa_scan_config c = bppsa_scan_config_default();
      bppsa_scan_plan *plan = NULL;
      bppsa_scan_executor *executor = NULL;
      c.method = bppsa_scan_method_of((bppsa_scan_algorithm)a);
      c.element = (bppsa_element)e;
      c.jacobians = 5;
      assert_int_equal(bppsa_scan_plan_create(&c, &plan), BPPSA_OK);
      const bppsa_scan_algorithm_row *const known = plan->row;
      for (size_t u = 0; u < sizeof unknown / sizeof unknown[0]; ++u) {
        bppsa_scan_algorithm_row row = *known;
        row.name = "invented";
        row.slot_rule = unknown[u];
        plan->row = &row;
        assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_ERR_UNSUPPORTED);
        assert_non_null(strstr(bppsa_last_error(), "for the slots of invented"));
        assert_null(executor);
      }
      plan->row = known;
      assert_int_equal(bppsa_scan_executor_create(plan, device, &executor), BPPSA_OK);
      bppsa_scan_executor_destroy(executor);
      bppsa_scan_plan_destroy(plan);
    }
  }
  bppsa_device_destroy(device);
}

/* The rule of the row decides, and not the number of chunks: of 9 Jacobians in 3 chunks, a[4:6] is chunk 1. */
static void test_slots(void **state) {
  (void)state;
  assert_int_equal(bppsa_slot(BPPSA_SLOT_CHUNKS, 9, 3, 4, 6), 0);
  assert_int_equal(bppsa_slot(BPPSA_SLOT_TREE, 9, 3, 4, 6), 3);
  assert_int_equal(bppsa_slot(BPPSA_SLOT_ONE, 9, 3, 1, 9), 0);
  assert_int_equal(bppsa_slot(BPPSA_SLOT_NONE, 9, 3, 4, 6), -1);
}

/* A layer's own kernels do not run it, and its name cannot be read as another's. */
static void test_names_and_fusion(void **state) {
  (void)state;
  char text[BPPSA_METHOD_TEXT];
  for (int i = 0; i < INVENTED; ++i) {
    bppsa_scan_config c = bppsa_scan_config_default();
    c.method = (bppsa_scan_method){.algorithm = invented[i], .up_levels = 3, .chunks = 4};
    c.element = BPPSA_ELEMENT_RECURRENT;
    c.device = BPPSA_CUDA;
    assert_int_equal(bppsa_scan_fusion_of(&c), BPPSA_FUSION_NONE);
    assert_string_equal(bppsa_scan_algorithm_name(invented[i]), "unknown");
    assert_string_equal(bppsa_scan_method_text(&c.method, text, sizeof text), "unknown");
    assert_int_equal(bppsa_scan_method_parse(text, &c.method), BPPSA_ERR_FORMAT);
  }
}

/* Which algorithms a layer's own kernels run, up to which size, and on a GPU alone. */
static void test_fusion(void **state) {
  (void)state;
  static const bppsa_scan_fusion expected[BPPSA_SCAN_ALGORITHMS] = {
      [BPPSA_SCAN_LINEAR] = BPPSA_FUSION_WALK, [BPPSA_SCAN_CHUNKED] = BPPSA_FUSION_CHUNKS};
  for (int a = 0; a < BPPSA_SCAN_ALGORITHMS; ++a) {
    bppsa_scan_config c = bppsa_scan_config_default();
    c.method.algorithm = (bppsa_scan_algorithm)a;
    c.element = BPPSA_ELEMENT_RECURRENT;
    c.device = BPPSA_CUDA;
    c.dim = BPPSA_SCAN_FUSED_DIM;
    assert_int_equal(bppsa_scan_fusion_of(&c), expected[a]);
    c.dim += 1;
    const bool walks = expected[a] == BPPSA_FUSION_WALK;
    assert_int_equal(bppsa_scan_fusion_of(&c), walks ? BPPSA_FUSION_WALK : BPPSA_FUSION_NONE);
    c.dim = BPPSA_SCAN_WALK_DIM;
    assert_int_equal(bppsa_scan_fusion_of(&c), walks ? BPPSA_FUSION_WALK : BPPSA_FUSION_NONE);
    c.matrices = 3;
    assert_int_equal(bppsa_scan_fusion_of(&c), walks ? BPPSA_FUSION_WALK : BPPSA_FUSION_NONE);
    c.dtype = BPPSA_F64; /* too many bytes, up to the next size that is padded to */
    assert_int_equal(bppsa_scan_fusion_of(&c), BPPSA_FUSION_NONE);
    c.dim = 385;
    assert_int_equal(bppsa_scan_fusion_of(&c), BPPSA_FUSION_NONE);
    c.dim = 384;
    assert_int_equal(bppsa_scan_fusion_of(&c), walks ? BPPSA_FUSION_WALK : BPPSA_FUSION_NONE);
    c.dtype = BPPSA_F32;
    c.matrices = 1;
    c.dim = BPPSA_SCAN_WALK_DIM + 1;
    assert_int_equal(bppsa_scan_fusion_of(&c), BPPSA_FUSION_NONE);
    c.dim = 1;
    c.device = BPPSA_CPU;
    assert_int_equal(bppsa_scan_fusion_of(&c), BPPSA_FUSION_NONE);
    c.device = BPPSA_CUDA;
    c.element = BPPSA_ELEMENT_DENSE;
    assert_int_equal(bppsa_scan_fusion_of(&c), BPPSA_FUSION_NONE);
  }
}

/* The same of pairs, by the size of h: f64's chunks end earlier, and its walks where four matrices are too large. */
static void test_fusion_of_pairs(void **state) {
  (void)state;
  static const struct {
    bppsa_dtype dtype;
    int64_t hidden;
    bppsa_scan_fusion linear, chunked;
  } cases[] = {{BPPSA_F32, 32, BPPSA_FUSION_WALK, BPPSA_FUSION_CHUNKS}, {BPPSA_F32, 33, BPPSA_FUSION_WALK, BPPSA_FUSION_NONE},
               {BPPSA_F64, 20, BPPSA_FUSION_WALK, BPPSA_FUSION_CHUNKS}, {BPPSA_F64, 21, BPPSA_FUSION_WALK, BPPSA_FUSION_NONE},
               {BPPSA_F32, 512, BPPSA_FUSION_WALK, BPPSA_FUSION_NONE},  {BPPSA_F32, 513, BPPSA_FUSION_NONE, BPPSA_FUSION_NONE},
               {BPPSA_F64, 256, BPPSA_FUSION_WALK, BPPSA_FUSION_NONE},  {BPPSA_F64, 257, BPPSA_FUSION_NONE, BPPSA_FUSION_NONE}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bppsa_scan_config c = bppsa_scan_config_default();
    c.element = BPPSA_ELEMENT_PAIR;
    c.device = BPPSA_CUDA;
    c.dim = 2 * cases[i].hidden;
    c.matrices = 4;
    c.diagonal = true;
    c.dtype = cases[i].dtype;
    c.method.algorithm = BPPSA_SCAN_LINEAR;
    assert_int_equal(bppsa_scan_fusion_of(&c), cases[i].linear);
    c.method.algorithm = BPPSA_SCAN_CHUNKED;
    assert_int_equal(bppsa_scan_fusion_of(&c), cases[i].chunked);
    c.method.algorithm = BPPSA_SCAN_BLELLOCH;
    assert_int_equal(bppsa_scan_fusion_of(&c), BPPSA_FUSION_NONE);
  }
}

/* The messages that list the algorithms list every one of the table. */
static void test_messages(void **state) {
  (void)state;
  for (int m = 0; m < 2; ++m) {
    bppsa_scan_method method;
    assert_int_not_equal(
        m == 0 ? bppsa_scan_algorithm_check(BPPSA_SCAN_ALGORITHMS, BPPSA_CPU) : bppsa_scan_method_parse("", &method), BPPSA_OK);
    for (int a = 0; a < BPPSA_SCAN_ALGORITHMS; ++a) {
      const char *name = bppsa_scan_algorithm_name((bppsa_scan_algorithm)a);
      if (strcmp(name, "unknown") != 0 && strstr(bppsa_last_error(), name) == NULL) {
        fail_msg("%s is missing in: %s", name, bppsa_last_error());
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plans),      cmocka_unit_test(test_elements),        cmocka_unit_test(test_executors),
      cmocka_unit_test(test_slot_rules), cmocka_unit_test(test_slots),           cmocka_unit_test(test_names_and_fusion),
      cmocka_unit_test(test_fusion),     cmocka_unit_test(test_fusion_of_pairs), cmocka_unit_test(test_messages)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
