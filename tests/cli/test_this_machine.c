/* `bppsa oracle MODEL this-machine`: measured once, kept in a file, and measured anew where the file is none of this machine. */
#include "tests/cli/run_cli.h"

#include "core/compute/pool.h"
#include "core/files/json.h"
#include "tests/support/folder.h"

#define CACHE "this_machine_cache"
#define FILE_OF(model) CACHE "/bppsa/this-machine-" model ".json"

static void fresh_cache(void) {
  char directory[4096];
  remove_folder(CACHE);
  assert_non_null(getcwd(directory, sizeof directory - 64));
  strcat(directory, "/" CACHE);
  assert_int_equal(setenv("XDG_CACHE_HOME", directory, 1), 0);
}

/* Runs it, and returns the document. The one line on standard error has both parts. */
static json_t *ask(const char *model, const char *part, const char *other) {
  run_result result = run("oracle %s this-machine --strategy all --batch 4 --processors 2 --json", model);
  if (result.code != 0 || strncmp(result.err, "bppsa: note: this-machine: ", 27) != 0 || strstr(result.err, part) == NULL ||
      strstr(result.err, other) == NULL || strchr(result.err, '\n') != result.err + strlen(result.err) - 1) {
    fail_msg("%s: exit %d, '%s' lacks '%s' or '%s'", model, result.code, result.err, part, other);
  }
  json_t *document = json_loads(result.out, 0, NULL);
  assert_non_null(document);
  release(&result);
  return document;
}

static json_t *load(const char *path) {
  json_t *document = NULL;
  assert_int_equal(bppsa_json_load(path, &document), BPPSA_OK);
  return document;
}

static void save(const char *path, json_t *document) {
  assert_int_equal(json_dump_file(document, path, 0), 0);
  json_decref(document);
}

/* The first question measures, the second one reads; a model that is not trained goes by FLOPs. */
static void test_kept(void **state) {
  (void)state;
  fresh_cache();
  json_t *first = ask("lenet5", "layers of lenet5, products, and what ", "; kept in ");
  json_t *second = ask("lenet5", "measured 20", "which may be deleted to measure again");
  assert_true(json_equal(first, second));
  assert_non_null(strstr(get_text(first, "measured"), ", 16 samples at once"));
  json_t *file = load(FILE_OF("lenet5"));
  assert_string_equal(get_text(file, "name"), get_text(first, "system"));
  const int64_t ranks = get_integer(json_object_get(file, "measured"), "ranks");
  assert_true(ranks == (bppsa_pool_cpus() < 2 ? 2 : bppsa_pool_cpus() > 16 ? 16 : bppsa_pool_cpus()));
  assert_int_equal(get_integer(json_object_get(file, "measured"), "threads_of_rank"), 1);
  assert_non_null(json_object_get(file, "products"));
  json_decref(file);
  json_decref(first);
  json_decref(second);
  json_t *other = ask("resnet50", "measured 20", "this-machine-lenet5.json, which may be deleted");
  assert_null(json_object_get(other, "measured"));
  json_decref(other);
  /* The file is a system file like others. */
  run_result result = run("oracle lenet5 " FILE_OF("lenet5") " --strategy data");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "layers measured: "));
  release(&result);
}

/* Changes one member of the file's "measured". */
static void tamper(const char *key, json_t *value) {
  json_t *file = load(FILE_OF("rnn"));
  assert_int_equal(json_object_set_new(json_object_get(file, "measured"), key, value), 0);
  save(FILE_OF("rnn"), file);
}

/* A file of another processor, of another number of ranks, of another build, with no date or one that would control a terminal,
 * without a cost, and one that is no JSON. */
static void test_measured_anew(void **state) {
  (void)state;
  fresh_cache();
  json_decref(ask("rnn", "layers of rnn", "; kept in "));
  json_t *document = ask("rnn", "measured 20", "this-machine-rnn.json");
  assert_non_null(json_object_get(document, "measured"));
  json_decref(document);
  tamper("hardware", json_string("an abacus"));
  json_decref(ask("rnn", "layers of rnn", "; kept in "));
  tamper("ranks", json_integer(1000));
  json_decref(ask("rnn", "layers of rnn", "; kept in "));
  tamper("commit", json_string("0"));
  json_decref(ask("rnn", "layers of rnn", "; kept in "));
  tamper("date", json_integer(1));
  json_decref(ask("rnn", "layers of rnn", "; kept in "));
  tamper("date", json_string("2024\x1b[2J"));
  json_decref(ask("rnn", "layers of rnn", "; kept in "));
  json_t *file = load(FILE_OF("rnn"));
  assert_int_equal(json_object_set_new(file, "products", json_array()), 0);
  save(FILE_OF("rnn"), file);
  json_decref(ask("rnn", "layers of rnn", "; kept in "));
  FILE *broken = fopen(FILE_OF("rnn"), "w");
  assert_non_null(broken);
  fputs("{", broken);
  assert_int_equal(fclose(broken), 0);
  json_decref(ask("rnn", "layers of rnn", "; kept in "));
  json_decref(ask("rnn", "measured 20", "this-machine-rnn.json"));
}

/* Without a place for files the answer is the same, and the note says so. */
static void test_no_place(void **state) {
  (void)state;
  assert_int_equal(setenv("XDG_CACHE_HOME", "/dev/null/nowhere", 1), 0);
  json_t *document = ask("rnn", "layers of rnn", "; not kept: no cache directory, expected XDG_CACHE_HOME or HOME");
  assert_non_null(json_object_get(document, "measured"));
  json_decref(document);
}

/* What is wrong with a request is said without a measurement, in a line. */
static void test_errors(void **state) {
  (void)state;
  fresh_cache();
  assert_fails(2, "did you mean lenet5?", "oracle lenet6 this-machine");
  assert_int_equal(access(CACHE, F_OK), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_kept), cmocka_unit_test(test_measured_anew),
                                     cmocka_unit_test(test_no_place), cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
