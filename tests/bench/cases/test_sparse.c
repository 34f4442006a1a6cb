/* `bench product`, `bench jacobian`, `bench scan`: documents, wrong requests. */
#include "tests/cli/memory_walk.h"

#include "bench/cases/product_case.h"

static json_t *rows_of(json_t *document, const char *name) {
  assert_string_equal(get_text(document, "bench"), name);
  json_t *rows = json_object_get(document, "rows");
  assert_true(json_array_size(rows) > 0);
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    assert_true(get_real(row, "min_s") > 0 && get_real(row, "min_s") <= get_real(row, "median_s"));
    assert_true(get_real(row, "median_s") <= get_real(row, "max_s"));
    assert_int_equal(get_integer(row, "repeats"), 1);
    assert_true(get_real(row, "residual") < 30);
    assert_true(get_real(row, "bytes") >= 0 && get_real(row, "flops") >= 0);
  }
  return rows;
}

/* Every entry of left_out has its names (NULL-terminated) and a reason. */
static int64_t check_left_out(const json_t *document, const char *const *names, const char *reason) {
  const json_t *list = json_object_get(document, "left_out");
  assert_true(json_is_array(list));
  for (size_t i = 0; i < json_array_size(list); ++i) {
    const json_t *entry = json_array_get(list, i);
    for (const char *const *name = names; *name != NULL; ++name) {
      assert_string_not_equal(get_text(entry, *name), "");
    }
    assert_non_null(strstr(get_text(entry, "reason"), reason));
  }
  return (int64_t)json_array_size(list);
}

static const char *const product_names[] = {"case", "method", "phase", NULL}, *const method_names[] = {"method", NULL},
                         *const operator_names[] = {"operator", NULL};

static void test_product(void **state) {
  (void)state;
  only_at_full_length();
  json_t *document = run_json("bench product --repeats 1 --memory-limit 300M --out F.json --json");
  const json_t *rows = rows_of(document, "product");
  int64_t b = 0, d = 0, d1024 = 0;
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    if (strcmp(get_text(row, "case"), "B") == 0) {
      ++b;
      assert_true(2.0 * 16 * 16 * 16 * 134 * 134 == get_real(row, "flops"));
    } else if (strcmp(get_text(row, "case"), "D") == 0) {
      ++d;
      assert_true(2.0 * 400 * 120 * 84 == get_real(row, "flops"));
      assert_int_equal(get_integer(row, "nnz"), 400 * 84);
    } else if (strcmp(get_text(row, "case"), "D1024") == 0) {
      ++d1024;
      assert_true(2.0 * 1024 * 1024 * 1024 == get_real(row, "flops"));
    }
  }
  assert_true(b == 3 && d == 4 && d1024 == 3); /* auto, conv; dense of full factors; slots, where they fit */
  assert_int_equal(check_left_out(document, product_names, "product: ") + (int64_t)json_array_size(rows),
                   5 * BPPSA_PRODUCT_KINDS); /* A, B, B64, D, D1024 */
  assert_written("F.json", document);
  json_decref(document);
}

/* The products of VGG-11's scan with one up-level: ten pairs of operators, of which nine go on and conv1·relu1 is dead. */
static void test_chain(void **state) {
  (void)state;
  only_at_full_length();
  json_t *document = run_json("bench product --up-levels 1 --repeats 1 --json");
  const json_t *rows = rows_of(document, "product");
  const char *before = "";
  int64_t cases = 0;
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    cases += strcmp(get_text(row, "case"), before) != 0;
    before = get_text(row, "case");
    assert_string_not_equal(before, "a[20:21]");
  }
  assert_int_equal(cases, 9);
  json_decref(document);
}

#define HEAD "%%MatrixMarket matrix coordinate real general\n"

static void put_text(const char *path, const char *text) {
  write_bytes(path, text, strlen(text));
}

/* ---- a rival that is slow to open ---- */

enum { SLOW_US = 300000, PLAN_US = 2000 };

typedef struct {
  const bppsa_product_case *c;
  bppsa_device *host;
  bppsa_product *product;
  float *values;
} slow_rival;

static void destroy_slow(void *state) {
  slow_rival *r = state;
  bppsa_product_destroy(r->product);
  bppsa_device_destroy(r->host);
  bppsa_free(r->values);
  bppsa_free(r);
}

static bppsa_status create_slowly(const bppsa_product_case *c, int32_t threads, void **state) {
  usleep(SLOW_US);
  slow_rival *r = bppsa_calloc(1, sizeof *r);
  assert_non_null(r);
  r->c = c;
  assert_int_equal(bppsa_device_create("cpu", threads, &r->host), BPPSA_OK);
  *state = r;
  return BPPSA_OK;
}

static bppsa_status plan_slow(void *state) {
  slow_rival *r = state;
  const bppsa_product_config config = bppsa_product_config_default();
  usleep(PLAN_US);
  BPPSA_TRY(bppsa_product_create(r->c->a, r->c->b, &config, r->host, &r->product));
  r->values = bppsa_calloc(bppsa_product_pattern(r->product)->nnz, sizeof *r->values);
  return r->values == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

static bppsa_status run_slow(void *state) {
  const slow_rival *r = state;
  return bppsa_product_execute(r->product, 1, (bppsa_csr_values){r->c->a_values, 0}, (bppsa_csr_values){r->c->b_values, 0},
                               r->values);
}

static bppsa_status run_all_of_slow(void *state) {
  slow_rival *r = state;
  bppsa_product_destroy(r->product);
  r->product = NULL;
  bppsa_free(r->values);
  r->values = NULL;
  BPPSA_TRY(plan_slow(r));
  return run_slow(r);
}

static bppsa_status read_slow(void *state, const bppsa_csr *pattern, float *values) {
  const slow_rival *r = state;
  memcpy(values, r->values, (size_t)pattern->nnz * sizeof *values);
  return BPPSA_OK;
}

static bppsa_status refuse_plan(void *state) {
  (void)state;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "no plan for this");
}

/* A rival's plan_s is the time of its plan. It does not include opening the rival, and without a plan it is 0. A plan that is
 * refused is left out. */
static void test_plans(void **state) {
  (void)state;
  static const bppsa_product_rival slow = {"slow", "numeric", create_slowly, plan_slow, run_slow, read_slow, destroy_slow},
                                   all = {"slow", "full", create_slowly, NULL, run_all_of_slow, read_slow, destroy_slow},
                                   none = {"none", "numeric", create_slowly, refuse_plan, run_slow, read_slow, destroy_slow};
  static const bppsa_product_rival *const list[] = {&slow, &all, &none, NULL};
  const bppsa_product_rival *const *real = bppsa_product_rivals;
  put_text("A.mtx", HEAD "2 3 3\n1 1 2\n1 3 1\n2 2 5\n");
  put_text("B.mtx", HEAD "3 2 3\n1 2 7\n2 1 1\n3 2 -1\n");
  bppsa_product_rivals = list;
  json_t *document = run_json("bench product --left A.mtx --right B.mtx --repeats 1 --threads 1 --json");
  bppsa_product_rivals = real;
  const json_t *rows = rows_of(document, "product"), *left_out = json_object_get(document, "left_out");
  const json_t *planned = json_array_get(rows, json_array_size(rows) - 2),
               *whole = json_array_get(rows, json_array_size(rows) - 1);
  const json_t *refused = json_array_get(left_out, json_array_size(left_out) - 1);
  assert_string_equal(get_text(planned, "method"), "slow");
  assert_true(get_real(planned, "plan_s") >= 1e-6 * PLAN_US && get_real(planned, "plan_s") < 1e-6 * SLOW_US);
  assert_string_equal(get_text(whole, "phase"), "full");
  assert_true(get_real(whole, "plan_s") == 0 && get_real(whole, "median_s") >= 1e-6 * PLAN_US);
  assert_string_equal(get_text(refused, "method"), "none");
  assert_string_equal(get_text(refused, "reason"), "no plan for this");
  json_decref(document);
}

/* Factors from files; files that lie, and shapes that disagree, exit 2 with one line. */
static void test_files(void **state) {
  (void)state;
  put_text("A.mtx", HEAD "2 3 3\n1 1 2\n1 3 1\n2 2 5\n");
  put_text("B.mtx", HEAD "3 2 3\n1 2 7\n2 1 1\n3 2 -1\n");
  json_t *document = run_json("bench product --left A.mtx --right B.mtx --repeats 1 --json");
  const json_t *rows = rows_of(document, "product");
  assert_string_equal(get_text(json_array_get(rows, 0), "case"), "files");
  assert_int_equal(get_integer(json_array_get(rows, 0), "nnz"), 2);
  assert_true(get_real(json_array_get(rows, 0), "flops") == 6);
  assert_true(check_left_out(document, product_names, "does not apply to these patterns") >= 2); /* identity, conv */
  json_decref(document);
  run_result result = run("bench product --left A.mtx --right B.mtx --repeats 1");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "left out: product: kind identity does not apply"));
  release(&result);
  assert_fails(2, "--up-levels: given with --left and --right", "bench product --left A.mtx --right B.mtx --up-levels 2");
  assert_fails(2, "--left: given without --right", "bench product --left A.mtx");
  assert_fails(2, "--right: A.mtx: 2 rows, expected the 3 columns of A.mtx", "bench product --left A.mtx --right A.mtx");
  put_text("C.mtx", HEAD "2 3 1\n1 4 2\n");
  assert_fails(2, "C.mtx: line 3: entry (1, 4), expected 1 .. 2 and 1 .. 3", "bench product --left C.mtx --right B.mtx");
  put_text("C.npz", "PK\x03\x04 and nothing");
  assert_fails(2, "C.npz: byte", "bench product --left C.npz --right B.mtx");
  put_text("C.mtx", HEAD "2 3000000000 1\n1 4 2\n");
  assert_fails(2, "3000000000 columns, expected at most 2147483647", "bench product --left C.mtx --right B.mtx");
  static const char *const beyond[] = {"nan", "-inf", "1e300"}; /* of f32 */
  for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; ++i) {
    char text[100], says[100];
    snprintf(text, sizeof text, "%s2 3 2\n1 1 2\n1 3 %s\n", HEAD, beyond[i]);
    snprintf(says, sizeof says, "D.mtx: value 1 is %s, expected finite numbers of f32", i == 2 ? "1e+300" : beyond[i]);
    put_text("D.mtx", text);
    assert_fails(2, says, "bench product --left D.mtx --right B.mtx");
  }
  assert_fails(2, "none.npz: cannot open", "bench product --left none.npz --right B.mtx");
  assert_fails(2, "A.csv: cannot open", "bench product --left A.csv --right B.mtx"); /* the content says what a file is */
}

static void test_jacobian(void **state) {
  (void)state;
  json_t *document = run_json("bench jacobian --repeats 1 --json");
  const json_t *rows = rows_of(document, "jacobian");
  assert_int_equal(json_array_size(rows), 18);
  assert_int_equal(get_integer(json_array_get(rows, 0), "nnz"), 1696512);
  assert_int_equal(check_left_out(document, operator_names, ""), 0);
  json_decref(document);
  document = run_json("bench jacobian --repeats 1 --memory-limit 4M --json"); /* what does not fit is left out, and said */
  const int64_t left_out = check_left_out(document, operator_names, "bytes, the memory limit is 4");
  assert_int_equal(2 * left_out + (int64_t)json_array_size(json_object_get(document, "rows")), 18);
  assert_in_range(left_out, 1, 8);
  json_decref(document);
  assert_runs("bench jacobian --repeats 1 --memory-limit 1M");
}

static void test_scan(void **state) {
  (void)state;
  json_t *document = run_json("bench scan --repeats 1 --batch 2 --json");
  const json_t *rows = rows_of(document, "scan");
  assert_int_equal(json_array_size(rows), 6);
  assert_string_equal(get_text(json_array_get(rows, 0), "method"), "linear");
  assert_true(get_real(json_array_get(rows, 2), "flops") > get_real(json_array_get(rows, 0), "flops"));
  assert_int_equal(check_left_out(document, method_names, ""), 0);
  json_decref(document);
  document = run_json("bench scan --repeats 1 --memory-limit 4M --json");
  const int64_t left_out = check_left_out(document, method_names, "the memory limit is ");
  assert_true(left_out > 0 && left_out + (int64_t)json_array_size(json_object_get(document, "rows")) == 6);
  json_decref(document);
  assert_runs("bench scan --repeats 1 --memory-limit 1M"); /* what does not fit is left out, and said */
}

static void test_requests(void **state) {
  (void)state;
  assert_fails(2, "--repeats: '0'", "bench product --repeats 0");
  assert_fails(2, "--out: missing/F.json: cannot write", "bench jacobian --out missing/F.json");
  assert_fails(2, "--batch: '0'", "bench scan --batch 0");
}

static void test_memory(void **state) {
  (void)state;
  walk_benchmark("bench scan --repeats 1 --threads 1 --json", 7, 100, 37, 5000);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_product),  cmocka_unit_test(test_files),
                                     cmocka_unit_test(test_plans),    cmocka_unit_test(test_chain),
                                     cmocka_unit_test(test_jacobian), cmocka_unit_test(test_scan),
                                     cmocka_unit_test(test_requests), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
