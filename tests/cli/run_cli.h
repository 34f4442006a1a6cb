/* Runs command lines in the test's own process and keeps what they printed. */
#ifndef BPPSA_TESTS_CLI_RUN_CLI_H
#define BPPSA_TESTS_CLI_RUN_CLI_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/base/alloc.h"
#include "tests/support/count.h"

enum { MAX_ARGUMENTS = 64, LINE_BYTES = 2048 };

typedef struct {
  int code;
  char *out, *err; /* owned; what went to stdout and stderr */
} run_result;

/* Splits `line` at blanks, in place. */
static inline int split_line(char *line, char **argv) {
  int argc = 0;
  char *rest = line;
  for (char *word = strtok_r(line, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
    assert_true(argc < MAX_ARGUMENTS);
    argv[argc++] = word;
  }
  return argc;
}

/* Runs the command line `format`, without the program's name; blanks separate words. The program must free all its memory. */
__attribute__((format(printf, 1, 2))) static inline run_result run(const char *format, ...) {
  char line[LINE_BYTES] = "bppsa ", *argv[MAX_ARGUMENTS];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line + 6, sizeof line - 6, format, arguments);
  va_end(arguments);
  assert_true(length >= 0 && (size_t)length < sizeof line - 6);
  run_result result = {0};
  size_t out_size = 0, err_size = 0;
  FILE *out = open_memstream(&result.out, &out_size), *err = open_memstream(&result.err, &err_size);
  assert_non_null(out);
  assert_non_null(err);
  const int64_t live = bppsa_alloc_live();
  result.code = bppsa_cli_main(split_line(line, argv), argv, out, err);
  assert_int_equal(bppsa_alloc_live(), live);
  fclose(out);
  fclose(err);
  return result;
}

static inline void release(run_result *result) {
  free(result->out);
  free(result->err);
  *result = (run_result){0};
}

/* The run must have printed one line, "bppsa: error: ...", that contains `text`. */
static inline void assert_one_error(const run_result *result, const char *text) {
  const char *newline = strchr(result->err, '\n');
  if (strncmp(result->err, "bppsa: error: ", 14) != 0 || newline == NULL || newline[1] != '\0' ||
      strstr(result->err, text) == NULL) {
    fail_msg("expected one line of error with '%s', found '%s'", text, result->err);
  }
}

/* The line must exit with `code`, print one line of error that contains `text`, and print no result. */
#define assert_fails(code_, text, ...)                                                                                           \
  do {                                                                                                                           \
    run_result failed_ = run(__VA_ARGS__);                                                                                       \
    assert_one_error(&failed_, text);                                                                                            \
    assert_int_equal(failed_.code, code_);                                                                                       \
    assert_string_equal(failed_.out, "");                                                                                        \
    release(&failed_);                                                                                                           \
  } while (0)

/* The line must succeed and print nothing on stderr; its output is dropped. */
#define assert_runs(...)                                                                                                         \
  do {                                                                                                                           \
    run_result good_ = run(__VA_ARGS__);                                                                                         \
    assert_string_equal(good_.err, "");                                                                                          \
    assert_int_equal(good_.code, 0);                                                                                             \
    release(&good_);                                                                                                             \
  } while (0)

/* The file must hold the same document, to the last bit of its numbers. */
static inline void assert_written(const char *path, const json_t *document) {
  json_t *written = json_load_file(path, 0, NULL);
  assert_true(json_equal(written, document));
  json_decref(written);
}

/* The line must succeed, with one note on stderr that contains `text`. */
#define assert_noted(text, ...)                                                                                                  \
  do {                                                                                                                           \
    run_result noted_ = run(__VA_ARGS__);                                                                                        \
    assert_int_equal(noted_.code, 0);                                                                                            \
    assert_int_equal(strncmp(noted_.err, "bppsa: note: ", 13), 0);                                                               \
    assert_non_null(strstr(noted_.err, text));                                                                                   \
    assert_ptr_equal(strchr(noted_.err, '\n') + 1, noted_.err + strlen(noted_.err));                                             \
    release(&noted_);                                                                                                            \
  } while (0)

/* Returns the one JSON document that a line prints; json_decref it. run_noted_json allows notes on stderr. */
#define run_noted_json(...) parse_noted_document(run(__VA_ARGS__))
#define run_json(...) parse_document(run(__VA_ARGS__))

static inline json_t *parse_document(run_result result);

static inline json_t *parse_noted_document(run_result result) {
  assert_true(result.err[0] == '\0' || strncmp(result.err, "bppsa: note: ", 13) == 0);
  result.err[0] = '\0';
  return parse_document(result);
}

static inline json_t *parse_document(run_result result) {
  assert_string_equal(result.err, "");
  assert_int_equal(result.code, 0);
  json_error_t error;
  json_t *document = json_loads(result.out, JSON_REJECT_DUPLICATES, &error); /* refuses anything after the document */
  if (document == NULL) {
    fail_msg("standard output is not one JSON document: %s", error.text);
  }
  release(&result);
  return document;
}

/* Does the same for a line that exits with 1 because rows of the document failed. */
#define run_json_wrong(...) parse_wrong(run(__VA_ARGS__))

static inline json_t *parse_wrong(run_result result) {
  assert_int_equal(result.code, 1);
  json_t *document = json_loads(result.out, 0, NULL);
  assert_non_null(document);
  release(&result);
  return document;
}

static inline int64_t get_integer(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_integer(value)) {
    fail_msg("no integer '%s'", key);
  }
  return json_integer_value(value);
}

static inline double get_real(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) {
    fail_msg("no number '%s'", key);
  }
  return json_number_value(value);
}

static inline const char *get_text(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  if (text == NULL) {
    fail_msg("no text '%s'", key);
  }
  return text;
}

/* ---- files ---- */

/* Makes a fresh directory below the working directory, and makes it the working directory. */
/* Results that a failing run rescues go to $TMPDIR, which becomes the directory around it. */
static inline int enter_directory(void **state) {
  static char name[64], around[4096];
  assert_non_null(getcwd(around, sizeof around));
  assert_int_equal(setenv("TMPDIR", around, 1), 0);
  snprintf(name, sizeof name, "cli-XXXXXX");
  assert_non_null(mkdtemp(name));
  assert_int_equal(chdir(name), 0);
  *state = name;
  return 0;
}

static inline int leave_directory(void **state) {
  char command[128];
  assert_int_equal(chdir(".."), 0);
  snprintf(command, sizeof command, "rm -rf %s", (const char *)*state);
  return system(command);
}

static inline void write_bytes(const char *path, const void *bytes, size_t size) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

/* Reads the bytes of a file and adds a 0 (free them). */
static inline char *read_bytes(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  assert_int_equal(fseek(file, 0, SEEK_END), 0);
  *size = (size_t)ftell(file);
  rewind(file);
  char *bytes = malloc(*size + 1);
  assert_non_null(bytes);
  assert_int_equal(fread(bytes, 1, *size, file), *size);
  bytes[*size] = '\0';
  fclose(file);
  return bytes;
}

/* Reads a file as a text (free it). */
static inline char *read_file(const char *path) {
  size_t size;
  char *text = read_bytes(path, &size);
  text[size] = '\0';
  return text;
}

/* The two files must hold the same bytes. */
static inline void assert_equal_files(const char *a, const char *b) {
  size_t a_size = 0, b_size = 0;
  char *x = read_bytes(a, &a_size), *y = read_bytes(b, &b_size);
  assert_int_equal(a_size, b_size);
  assert_memory_equal(x, y, a_size);
  free(x);
  free(y);
}

static inline int file_exists(const char *path) {
  struct stat found;
  return lstat(path, &found) == 0;
}

/* Counts the files in the working directory, hidden ones included. */
static inline int count_files(void) {
  int count = -2; /* . and .. */
  DIR *directory = opendir(".");
  assert_non_null(directory);
  while (readdir(directory) != NULL) {
    ++count;
  }
  closedir(directory);
  return count;
}

#endif
