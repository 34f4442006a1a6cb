/* The JSON-lines log. */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "core/base/alloc.h"
#include "recurrent/parallel_backward.h"
#include "train/log.h"

#define PATH "train_log.jsonl"
#define PIPE "log_test.pipe"

static const bppsa_train_record record = {.step = 3,
                                          .epoch = 2,
                                          .loss = 0.1,
                                          .accuracy = 0.5,
                                          .grad_norm = 1e-300,
                                          .lr = 0.003,
                                          .forward_s = 0.25,
                                          .backward_s = 1.0 / 3.0,
                                          .update_s = 1e-6,
                                          .redone = 7,
                                          .samples_per_s = 12345.678};

static void lines_have_the_keys(void **state) {
  (void)state;
  static const char *const keys[] = {
      "loss",          "accuracy",        "grad_norm",          "lr", "forward_s", "backward_s", "update_s",
      "samples_per_s", "validation_loss", "validation_accuracy"};
  const double values[] = {0.1, 0.5, 1e-300, 0.003, 0.25, 1.0 / 3.0, 1e-6, 12345.678, 0.75, 0.625};
  bppsa_log *log = NULL;
  (void)setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is installed, a decimal comma */
  assert_int_equal(bppsa_log_create(PATH, &log), BPPSA_OK);
  bppsa_train_record with = record;
  with.has_validation = true;
  with.gradients = "chunked 44";
  with.validation_loss = 0.75;
  with.validation_accuracy = 0.625;
  with.weight_errors = (bppsa_weight_errors){2, {0.25, (double)NAN}, {0.125, 1e-7}};
  assert_int_equal(bppsa_log_write(log, &record, NULL), BPPSA_OK);
  assert_int_equal(bppsa_log_write(log, &with, NULL), BPPSA_OK);
  (void)setlocale(LC_ALL, "C");
  FILE *file = fopen(PATH, "r"); /* before closing: a line is in the file as soon as it is written */
  assert_non_null(file);
  char text[1024];
  for (size_t i = 0; i < 2; ++i) {
    assert_non_null(fgets(text, sizeof text, file));
    json_t *line = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(line);
    assert_int_equal(json_integer_value(json_object_get(line, "step")), 3);
    assert_int_equal(json_integer_value(json_object_get(line, "epoch")), 2);
    const size_t reals = i == 0 ? 8 : 10;
    assert_int_equal(json_integer_value(json_object_get(line, "redone")), 7);
    const char *gradients = json_string_value(json_object_get(line, "gradients"));
    assert_true(i == 0 ? gradients == NULL : strcmp(gradients, "chunked 44") == 0);
    assert_int_equal(json_object_size(line), 3 + reals + 3 * i);
    const json_t *stale = json_object_get(line, "stale_rmse"), *predicted = json_object_get(line, "predicted_rmse");
    assert_true(json_array_size(stale) == 2 * i && json_array_size(predicted) == 2 * i);
    if (i == 1) {
      assert_true(json_number_value(json_array_get(stale, 0)) == 0.25 && json_is_null(json_array_get(stale, 1)));
      assert_true(json_number_value(json_array_get(predicted, 1)) == 1e-7);
    }
    for (size_t k = 0; k < reals; ++k) {
      assert_true(json_is_number(json_object_get(line, keys[k])));
      assert_true(json_number_value(json_object_get(line, keys[k])) == values[k]);
    }
    json_decref(line);
  }
  assert_null(fgets(text, sizeof text, file));
  (void)fclose(file);
  assert_int_equal(bppsa_log_close(log), BPPSA_OK);
  assert_int_equal(bppsa_log_close(NULL), BPPSA_OK);
}

static void nonfinite_numbers_are_null_and_the_file_starts_empty(void **state) {
  (void)state;
  bppsa_log *log = NULL;
  bppsa_train_record bad = record;
  bad.loss = (double)NAN;
  bad.grad_norm = (double)INFINITY;
  bad.samples_per_s = -(double)INFINITY;
  assert_int_equal(bppsa_log_create(PATH, &log), BPPSA_OK);
  assert_int_equal(bppsa_log_write(log, &bad, NULL), BPPSA_OK);
  assert_int_equal(bppsa_log_close(log), BPPSA_OK);
  json_t *line = json_load_file(PATH, JSON_REJECT_DUPLICATES, NULL); /* one document: the earlier lines are gone */
  assert_non_null(line);
  assert_true(json_is_null(json_object_get(line, "loss")));
  assert_true(json_is_null(json_object_get(line, "grad_norm")));
  assert_true(json_is_null(json_object_get(line, "samples_per_s")));
  assert_true(json_is_number(json_object_get(line, "accuracy")));
  json_decref(line);
}

/* The longest line that a record can make is a whole line. */
static void the_longest_line_is_whole(void **state) {
  (void)state;
  const double long_number = -1.2345678901234567e-300;
  char gradients[61];
  memset(gradients, 'm', 60);
  gradients[60] = '\0';
  bppsa_train_record longest = {.step = INT64_MIN,
                                .epoch = INT64_MIN,
                                .loss = long_number,
                                .accuracy = long_number,
                                .grad_norm = long_number,
                                .lr = long_number,
                                .forward_s = long_number,
                                .backward_s = long_number,
                                .update_s = long_number,
                                .redone = INT64_MIN,
                                .samples_per_s = long_number,
                                .gradients = gradients,
                                .has_validation = true,
                                .validation_loss = long_number,
                                .validation_accuracy = long_number,
                                .interrupted = true};
  const double numbers[BPPSA_ACCOUNT_NUMBERS] = {0,           0,       0,       0x1p62,  -0x1p63, -0x1p63,
                                                 long_number, -0x1p63, -0x1p63, -0x1p63, -0x1p63, long_number};
  const double backwards[BPPSA_ACCOUNT_NUMBERS] = {0,           0,       0,       0, 0x1p62,      -0x1p63,    -0x1p63,
                                                   long_number, -0x1p63, -0x1p63, 1, long_number, long_number};
  char forward[BPPSA_ACCOUNT_TEXT], backward[BPPSA_ACCOUNT_TEXT];
  const char *const passes[BPPSA_PASS_KINDS] = {bppsa_forward_numbers_text(numbers, forward, sizeof forward),
                                                bppsa_backward_numbers_text(backwards, backward, sizeof backward)};
  longest.weight_errors.ahead = BPPSA_MOST_AHEAD;
  for (int i = 0; i < BPPSA_MOST_AHEAD; ++i) {
    longest.weight_errors.stale[i] = longest.weight_errors.predicted[i] = long_number;
  }
  bppsa_log *log = NULL;
  assert_int_equal(bppsa_log_create(PATH, &log), BPPSA_OK);
  assert_int_equal(bppsa_log_write(log, &longest, passes), BPPSA_OK);
  assert_int_equal(bppsa_log_close(log), BPPSA_OK);
  json_t *line = json_load_file(PATH, JSON_REJECT_DUPLICATES, NULL);
  assert_non_null(line);
  assert_int_equal(json_array_size(json_object_get(line, "predicted_rmse")), BPPSA_MOST_AHEAD);
  assert_true(json_is_true(json_object_get(line, "interrupted")));
  for (int k = 0; k < BPPSA_PASS_KINDS; ++k) {
    assert_true(json_number_value(json_object_get(json_object_get(line, bppsa_pass_name((bppsa_pass)k)), "gap")) == long_number);
  }
  json_decref(line);
}

static void failures_name_the_path(void **state) {
  (void)state;
  const int64_t live = bppsa_alloc_live();
  bppsa_log *log = NULL;
  assert_int_equal(bppsa_log_create("no/such/folder/log.jsonl", &log), BPPSA_ERR_IO);
  assert_null(log);
  assert_non_null(strstr(bppsa_last_error(), "log no/such/folder/log.jsonl: cannot be opened for writing"));
  if (access("/dev/full", W_OK) == 0) {
    assert_int_equal(bppsa_log_create("/dev/full", &log), BPPSA_OK);
    assert_int_equal(bppsa_log_write(log, &record, NULL), BPPSA_ERR_IO);
    assert_non_null(strstr(bppsa_last_error(), "log /dev/full: cannot be written: No space left on device"));
    assert_int_equal(bppsa_log_close(log), BPPSA_OK);
  }
  assert_int_equal(mkfifo(PIPE, 0666), 0);
  log = NULL;
  assert_int_equal(bppsa_log_create(PIPE, &log), BPPSA_ERR_IO); /* does not wait for a reader */
  assert_non_null(strstr(bppsa_last_error(), "cannot be opened for writing"));
  assert_int_equal(remove(PIPE), 0);
  for (int64_t call = 1; call <= 2; ++call) {
    log = NULL;
    bppsa_alloc_fail_at(call);
    assert_int_equal(bppsa_log_create(PATH, &log), BPPSA_ERR_MEMORY);
    bppsa_alloc_fail_at(0);
    assert_null(log);
  }
  assert_int_equal(bppsa_alloc_live(), live);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_have_the_keys),
      cmocka_unit_test(nonfinite_numbers_are_null_and_the_file_starts_empty),
      cmocka_unit_test(the_longest_line_is_whole),
      cmocka_unit_test(failures_name_the_path),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
