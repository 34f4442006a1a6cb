/* In a program whose locale has a decimal comma every file is written, byte for byte, as in any other, and read. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/base/decimal.h"
#include "core/base/text.h"
#include "core/files/file.h"
#include "core/files/json.h"
#include "jacobian/file.h"
#include "schedule/timed.h"
#include "tests/support/locale.h"
#include "train/log.h"

/* glibc keeps the directory of LOCPATH in memory that it never frees. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
  return "leak:argz_add_sep";
}

static const double reals[] = {0.5, -1.25e-7, 1.0 / 3, 3e300, 12345.678, 0x1p-1074};
enum { REALS = sizeof reals / sizeof reals[0] };

/* Something that is written, into `text`. */
typedef void (*writer)(bppsa_text *text);

static void add_file(bppsa_text *text, const char *path) {
  char *data = NULL;
  int64_t size = 0;
  assert_int_equal(bppsa_file_read(path, 1 << 20, &data, &size), BPPSA_OK);
  bppsa_text_append(text, data, (size_t)size);
  bppsa_free(data);
  assert_int_equal(remove(path), 0);
}

static void write_numbers(bppsa_text *text) {
  for (int i = 0; i < REALS; ++i) {
    char line[64];
    bppsa_text_add_real(text, reals[i]);
    bppsa_text_add_cells(text, 1, &reals[i]);
    bppsa_print(line, sizeof line, " %.3e %.17g ", reals[i], reals[i]);
    bppsa_text_add(text, "%s %.2f\n", line, reals[i]);
    bppsa_fail(BPPSA_ERR_ARGUMENT, "%g is too large", reals[i]);
    bppsa_text_add(text, "%s\n", bppsa_last_error());
  }
}

static void write_json(bppsa_text *text) {
  json_t *list = json_array();
  char *written = NULL;
  for (int i = 0; i < REALS; ++i) {
    assert_int_equal(json_array_append_new(list, bppsa_json_real(reals[i])), 0);
  }
  assert_int_equal(bppsa_json_text(list, 1, 0, &written), BPPSA_OK);
  bppsa_text_add(text, "%s", written);
  bppsa_free(written);
  json_decref(list);
}

static void write_matrix(bppsa_text *text) {
  static const float singles[] = {0.5F, -0.1F, 1e-30F, 7.0F, 1e30F, 0.3F};
  bppsa_csr csr;
  assert_int_equal(bppsa_csr_create(2, 3, REALS, &csr), BPPSA_OK);
  for (int i = 0; i < REALS; ++i) {
    csr.col[i] = i % 3;
  }
  csr.row_ptr[1] = 3;
  csr.row_ptr[2] = 6;
  assert_int_equal(bppsa_csr_save("locale.mtx", &csr, BPPSA_F32, singles), BPPSA_OK);
  add_file(text, "locale.mtx");
  assert_int_equal(bppsa_csr_save("locale.mtx", &csr, BPPSA_F64, reals), BPPSA_OK);
  bppsa_csr_matrix again;
  assert_int_equal(bppsa_csr_load("locale.mtx", &again), BPPSA_OK);
  assert_memory_equal(again.values, reals, sizeof reals);
  bppsa_csr_matrix_free(&again);
  add_file(text, "locale.mtx");
  bppsa_csr_free(&csr);
}

static void write_schedule(bppsa_text *text) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_schedule *list = NULL, *again = NULL;
  bppsa_timed timed = {0};
  config.stages = 3;
  config.micro_batches = 4;
  config.uniform[BPPSA_COST_FORWARD] = 1.25;
  assert_int_equal(bppsa_schedule_create("gpipe", &config, &list), BPPSA_OK);
  assert_int_equal(bppsa_timed_create(list, &timed), BPPSA_OK);
  const size_t before = text->size;
  assert_int_equal(bppsa_schedule_csv_write(&timed, text), BPPSA_OK);
  assert_int_equal(bppsa_file_write("locale.csv", text->text + before, text->size - before), BPPSA_OK);
  assert_int_equal(bppsa_schedule_csv_load("locale.csv", &again), BPPSA_OK);
  bppsa_schedule_destroy(again);
  assert_int_equal(remove("locale.csv"), 0);
  assert_int_equal(bppsa_schedule_draw(&timed, text), BPPSA_OK);
  assert_int_equal(bppsa_schedule_trace(&timed, text), BPPSA_OK);
  json_t *document = bppsa_timed_json(&timed, true);
  char *written = NULL;
  assert_int_equal(bppsa_json_text(document, 1, 0, &written), BPPSA_OK);
  bppsa_text_add(text, "%s", written);
  bppsa_free(written);
  json_decref(document);
  bppsa_timed_free(&timed);
}

static void write_log(bppsa_text *text) {
  const bppsa_train_record record = {.step = 1, .epoch = 1, .loss = 0.1, .accuracy = 0.5, .grad_norm = 1e-300, .lr = 0.003};
  bppsa_log *log = NULL;
  assert_int_equal(bppsa_log_create("locale.jsonl", &log), BPPSA_OK);
  assert_int_equal(bppsa_log_write(log, &record, NULL), BPPSA_OK);
  assert_int_equal(bppsa_log_close(log), BPPSA_OK);
  add_file(text, "locale.jsonl");
}

static void same_bytes(void **state) {
  (void)state;
  static const writer writers[] = {write_numbers, write_json, write_matrix, write_schedule, write_log};
  for (size_t i = 0; i < sizeof writers / sizeof writers[0]; ++i) {
    bppsa_text plain = {0}, comma = {0};
    writers[i](&plain);
    assert_string_equal(setlocale(LC_ALL, COMMA_LOCALE), COMMA_LOCALE);
    writers[i](&comma);
    assert_string_equal(setlocale(LC_ALL, NULL), COMMA_LOCALE); /* and the program's locale stays */
    setlocale(LC_ALL, "C");
    assert_non_null(strchr(plain.text, '.'));
    assert_string_equal(comma.text, plain.text);
    bppsa_text_free(&plain);
    bppsa_text_free(&comma);
  }
}

/* A thread's own locale counts as well. */
static void own_locale(void **state) {
  (void)state;
  locale_t comma = newlocale(LC_ALL_MASK, COMMA_LOCALE, (locale_t)0);
  assert_true(comma != (locale_t)0);
  const locale_t before = uselocale(comma);
  char *end = NULL, text[16];
  assert_true(bppsa_read_real("0.5,", &end) == 0.5 && *end == ',');
  bppsa_print(text, sizeof text, "%g", 0.25);
  assert_string_equal(text, "0.25");
  assert_true(uselocale((locale_t)0) == comma);
  (void)uselocale(before);
  freelocale(comma);
}

int main(void) {
  make_comma_locale();
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_bytes), cmocka_unit_test(own_locale)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
