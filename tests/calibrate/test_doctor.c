/* The report of what a machine offers: programs in PATH, libraries, and what brings those that are missing. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calibrate/doctor.h"
#include "core/base/clock.h"
#include "tests/core/helpers.h"
#include "tests/support/folder.h"
#include "tests/support/json_memory.h"

static const double PATIENCE_S = 20; /* of machines with other work */

/* ---- libraries that hang ---- */

static const char *hangs, *crashes; /* files; NULL: none */
static atomic_bool holds, released; /* another thread holds the loader's lock; it may let it go */

/* Takes the loader's place for the report's libraries. */
void *dlopen(const char *file, int flags) {
  void *(*real)(const char *, int) = NULL;
  *(void **)(void *)&real = dlsym(RTLD_NEXT, "dlopen");
  while (file != NULL && hangs != NULL && strcmp(file, hangs) == 0) {
    (void)pause();
  }
  if (file != NULL && crashes != NULL && strcmp(file, crashes) == 0) {
    (void)raise(SIGKILL);
  }
  return real(file, flags);
}

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
  bppsa_doctor_examine(PATIENCE_S, &doctor);
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
  bppsa_doctor_examine(PATIENCE_S, &doctor);
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

/* A library whose constructor never ends, and one that ends the process: their rows say so, the others are there. */
static void test_no_answer(void **state) {
  (void)state;
  bppsa_doctor doctor;
  bppsa_text text = {0};
  const double start = bppsa_now();
  hangs = "libcusparse.so.12";
  crashes = "libnccl.so.2";
  bppsa_doctor_examine(0.4, &doctor);
  hangs = crashes = NULL;
  assert_true(bppsa_now() - start < 20);
  assert_int_equal(bppsa_doctor_text(&doctor, &text), BPPSA_OK);
  assert_non_null(strstr(text.text, "\n  cuSPARSE      no answer  loading it did not end in 0.4 s; brought by "));
  assert_non_null(strstr(text.text, "\n  NCCL          no answer  loading it ended the process by signal 9; brought by "));
  assert_non_null(strstr(text.text, "\ntransports    threads: found"));
  assert_non_null(strstr(text.text, "\n  gnuplot       "));
  bppsa_text_free(&text);
  json_t *document = bppsa_doctor_json(&doctor);
  assert_string_equal(json_string_value(json_object_get(backend_of(document, "cuSPARSE"), "problem")),
                      "loading it did not end in 0.4 s");
  assert_true(json_is_false(json_object_get(backend_of(document, "cuSPARSE"), "found")));
  assert_string_equal(json_string_value(json_object_get(backend_of(document, "gnuplot"), "problem")), "");
  json_decref(document);
}

/* Holds a lock of the loader until the report is made. */
static int hold(struct dl_phdr_info *info, size_t size, void *context) {
  (void)info, (void)size, (void)context;
  atomic_store(&holds, true);
  while (!atomic_load(&released)) {
    (void)usleep(1000);
  }
  return 1;
}

static void *hold_the_lock(void *context) {
  (void)dl_iterate_phdr(hold, context);
  return NULL;
}

/* Nobody in the new process releases a lock that another thread held: the report comes all the same, and all its rows say what is
 * known. */
static void test_lock_of_another_thread(void **state) {
  (void)state;
  bppsa_doctor doctor;
  pthread_t thread;
  const double start = bppsa_now();
  assert_int_equal(pthread_create(&thread, NULL, hold_the_lock, NULL), 0);
  while (!atomic_load(&holds)) {
    (void)usleep(1000);
  }
  bppsa_doctor_examine(0.1, &doctor);
  atomic_store(&released, true);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_true(bppsa_now() - start < 20);
  for (int i = 0; i < BPPSA_DOCTOR_BACKENDS; ++i) {
    assert_true(doctor.found[i][0] == '\0' || doctor.problem[i][0] == '\0');
  }
  assert_string_equal(doctor.transports[0].name, "threads");
  assert_true(doctor.transports[0].found);
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
  bppsa_doctor_examine(PATIENCE_S, &doctor);
  assert_true(walk_allocations(render, &doctor) > 50);
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs), cmocka_unit_test(test_machine),
                                     cmocka_unit_test(test_no_answer), cmocka_unit_test(test_lock_of_another_thread),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
