/* The report of what a machine offers: programs in PATH, libraries, and what brings those that are missing. */
#include <stdlib.h>
#include <sys/stat.h>

#include "bench/harness/doctor.h"
#include "tests/core/helpers.h"
#include "tests/support/folder.h"
#include "tests/support/json_memory.h"

static const json_t *backend_of(const json_t *document, const char *name) {
  const json_t *list = json_object_get(document, "backends");
  for (size_t i = 0; i < json_array_size(list); ++i) {
    if (strcmp(json_string_value(json_object_get(json_array_get(list, i), "name")), name) == 0) {
      return json_array_get(list, i);
    }
  }
  fail_msg("no backend %s", name);
  return NULL;
}

/* A program is found where PATH has it, if it may be run; where it is missing, the report names its package. */
static void test_programs(void **state) {
  (void)state;
  bppsa_doctor doctor;
  bppsa_text text = {0};
  char *path = getenv("PATH") != NULL ? bppsa_strdup(getenv("PATH")) : NULL;
  fresh_folder("doctor_bin");
  put_file("doctor_bin/gnuplot", "#!/bin/sh\n", 10);
  put_file("doctor_bin/mpirun", "#!/bin/sh\n", 10);
  assert_int_equal(chmod("doctor_bin/gnuplot", 0755) + chmod("doctor_bin/mpirun", 0644), 0);
  assert_int_equal(setenv("PATH", "::no/such/place:doctor_bin", 1), 0);
  bppsa_doctor_examine(&doctor);
  assert_int_equal(bppsa_doctor_text(&doctor, &text), BPPSA_OK);
  assert_non_null(strstr(text.text, "  gnuplot       found      doctor_bin/gnuplot; draws the figures"));
  assert_non_null(strstr(text.text, "  OpenMPI       not found  brought by openmpi-bin; starts ranks as processes"));
  bppsa_text_free(&text);
  json_t *document = bppsa_doctor_json(&doctor);
  assert_true(json_is_true(json_object_get(backend_of(document, "gnuplot"), "found")));
  assert_string_equal(json_string_value(json_object_get(backend_of(document, "gnuplot"), "where")), "doctor_bin/gnuplot");
  assert_true(json_is_false(json_object_get(backend_of(document, "OpenMPI"), "found")));
  assert_string_equal(json_string_value(json_object_get(backend_of(document, "OpenMPI"), "package")), "openmpi-bin");
  assert_int_equal(json_array_size(json_object_get(document, "backends")), BPPSA_DOCTOR_BACKENDS);
  json_decref(document);
  assert_int_equal(path != NULL ? setenv("PATH", path, 1) : unsetenv("PATH"), 0);
  bppsa_free(path);
}

/* The processor's lines are always there, and the reasons for what is not built. */
static void test_machine(void **state) {
  (void)state;
  bppsa_doctor doctor;
  bppsa_text text = {0};
  bppsa_doctor_examine(&doctor);
  assert_true(doctor.cores >= 1 && doctor.threads >= 1);
  assert_non_null(strstr(doctor.compiler, "."));
  assert_int_equal(bppsa_doctor_text(&doctor, &text), BPPSA_OK);
  static const char *const lines[] = {
      "bppsa ",      "\ncompiler ", "\nprocessor ", "\nvector units ", "\ncores ",
      "\nBLAS ",     "\nCUDA ",     "\ncuDNN ",     "\naudio ",        "\ntransports    threads: found",
      "\nOptional\n"};
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; ++i) {
    assert_non_null(strstr(text.text, lines[i]));
  }
  bppsa_text_free(&text);
}

static bppsa_status render(void *doctor) {
  char *document = NULL;
  bppsa_text text = {0};
  BPPSA_TRY(bppsa_json_render(bppsa_doctor_json(doctor), &document));
  bppsa_free(document);
  const bppsa_status status = bppsa_doctor_text(doctor, &text);
  bppsa_text_free(&text);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  bppsa_doctor doctor;
  bppsa_doctor_examine(&doctor);
  assert_true(walk_allocations(render, &doctor) > 50);
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs), cmocka_unit_test(test_machine),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
