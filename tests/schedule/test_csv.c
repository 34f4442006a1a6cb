/* Schedules from CSV: what a first row may say, and rows that are refused, each by its row and cell. */
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/text.h"
#include "schedule/schedule_internal.h"
#include "schedule/timed.h"
#include "tests/core/helpers.h"

#define FILE_NAME BPPSA_TEST_TMP_DIR "/schedule_rows.csv"

static bppsa_status load(const char *text, bppsa_schedule **list) {
  put_file(FILE_NAME, text, strlen(text));
  return bppsa_schedule_csv_load(FILE_NAME, list);
}

/* The fields with a range: the numbers at its ends are taken, the ones beyond are refused, and so is what is no whole number. */
static void ranges(void **state) {
  (void)state;
  static const struct {
    const char *name, *least, *below, *most, *above;
  } fields[] = {{"micro-batches", "1", "0", "1000000", "1000001"},
                {"reverse-k", "-1", "-2", "1000000", "1000001"},
                {"elements", "2", "1", "1000000", "1000001"},
                {"split", "0", "-1", "2", "3"},
                {"scale", "0", "-1", "2", "3"},
                {"recompute", "0", "-1", "1", "2"}};
  char row[100], says[160];
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; ++i) {
    const char *const bad[] = {fields[i].below, fields[i].above, "1.5", "1x", "0x1", "", " ", "nan", "inf", "1e300", "x"};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; ++k) {
      bppsa_schedule *list = NULL;
      snprintf(row, sizeof row, "scheme=1f1b,stages=1,%s=%s", fields[i].name, bad[k]);
      snprintf(says, sizeof says, FILE_NAME ": row 1, cell 3: '%s', expected a whole number of %s from %s to %s", bad[k],
               fields[i].name, fields[i].least, fields[i].most);
      assert_error(load(row, &list), BPPSA_ERR_FORMAT, says);
      assert_null(list);
    }
  }
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; ++i) {
    for (int most = 0; most < 2; ++most) {
      bppsa_schedule *list = NULL;
      snprintf(row, sizeof row, "scheme=model-parallel,%s=%s", fields[i].name, most ? fields[i].most : fields[i].least);
      if (load(row, &list) != BPPSA_OK) { /* the scheme may refuse it, the reader does not */
        assert_null(strstr(bppsa_last_error(), "expected a whole number of"));
      }
      bppsa_schedule_destroy(list);
    }
  }
}

/* A name that stands twice would hide one of its values; a scheme is judged in its own cell. */
static void names(void **state) {
  (void)state;
  static const char *const twice[] = {"stages=2,stages=3", "alpha=1,alpha=1", "stages=2,scheme=1f1b", "cut=1,cut=1"};
  char row[100], says[160];
  bppsa_schedule *list = NULL;
  for (size_t i = 0; i < sizeof twice / sizeof *twice; ++i) {
    snprintf(row, sizeof row, "scheme=gpipe,%s", twice[i]);
    snprintf(says, sizeof says, ": row 1, cell 3: '%.*s', expected each name once",
             (int)(strrchr(row, '=') - strrchr(row, ',') - 1), strrchr(row, ',') + 1);
    assert_error(load(row, &list), BPPSA_ERR_FORMAT, says);
  }
  assert_error(load("scheme=gpype,stages=2,layers=2", &list), BPPSA_ERR_FORMAT,
               "row 1, cell 1: 'gpype', expected scheme=ID of a scheme that --list names");
  assert_null(list);
}

/* Real numbers are read as they are written, also with an exponent. */
static void reals(void **state) {
  (void)state;
  bppsa_schedule *list = NULL;
  assert_int_equal(load("scheme=gpipe,stages=2,alpha=0.25,beta=1e-3,forward=3\r\n0,F0@0,,\r\n\r\n1,\n", &list), BPPSA_OK);
  assert_true(list->config.alpha == 0.25 && list->config.beta == 1e-3 && list->config.uniform[BPPSA_COST_FORWARD] == 3);
  assert_true(list->ops[0].kind == BPPSA_KIND_F && list->ops[0].micro == 0 && list->ops[0].worker == 0);
  bppsa_schedule_destroy(list);
  assert_error(load("scheme=gpipe,alpha=0.25s", &list), BPPSA_ERR_FORMAT, "row 1, cell 2: '0.25s', expected a number");
  assert_error(load("scheme=gpipe,alpha=inf", &list), BPPSA_ERR_FORMAT, "row 1, cell 2: 'inf', expected a number");
  assert_error(load("scheme=gpipe,forward=1e16\n", &list), BPPSA_ERR_ARGUMENT,
               "row 1: forward, row 0: 1e+16, expected a number, 0 or more and at most 1e+15");
  assert_error(load("scheme=gpipe\n0,F0@0=1e16", &list), BPPSA_ERR_FORMAT, "row 2, cell 2: 'F0@0=1e16', expected an operation");
  assert_error(load("scheme=gpipe,message=0x1", &list), BPPSA_ERR_FORMAT, "row 1, cell 2: '0x1', expected a number");
}

/* Cells count from 1 in every row, empty cells and rows too. */
static void places(void **state) {
  (void)state;
  static const struct {
    const char *text, *says;
  } files[] = {
      {"scheme=gpipe,stages=2\n0,F0@0,F1@0,F2@0,X@0", "row 2, cell 5: 'X@0', expected an operation such as F3@2v0"},
      {"scheme=gpipe,stages=2\n0,F0@0\n1,,,F0@7", "row 3, cell 4: 'F0@7', expected micro-batch, stage, replica and layers"},
      {"scheme=gpipe,stages=2\n\n\n0,F0@0\n0,F1@0", "row 5, cell 1: '0', expected the number of a worker, each once"},
      {"scheme=gpipe,stages=2\n0,F0@0\n2,F1@0", "row 3, cell 1: '2', expected the number of a worker, each once"},
      {"scheme=gpipe,stages=2\n-1,F0@0", "row 2, cell 1: '-1', expected the number of a worker, each once"},
      {"scheme=gpipe,stages=2\n0x,F0@0", "row 2, cell 1: '0x', expected the number of a worker, each once"},
      {"scheme=gpipe,stages=2\n0,F0@0=1e", "row 2, cell 2: 'F0@0=1e', expected an operation"},
      {"scheme=gpipe,stages=2\n0,F0@0=0xA", "row 2, cell 2: 'F0@0=0xA', expected an operation"},
      {"scheme=gpipe,stages=2\n0,F0@0~-0x9", "row 2, cell 2: 'F0@0~-0x9', expected micro-batch, stage, replica and layers"},
      {"scheme=gpipe,stages=2\n0,F0@0%9", "row 2, cell 2: 'F0@0%9', expected an operation"},
      {"scheme=gpipe,stages=2\n0,F0@0+9", "row 2, cell 2: 'F0@0+9', expected micro-batch, stage, replica and layers"},
      {"scheme=gpipe,stages=2\n0,F0@0/1", "row 2, cell 2: 'F0@0/1', expected micro-batch, stage, replica and layers"},
      {"scheme=gpipe,stages=2\n0,F0@0:99", "row 2, cell 2: 'F0@0:99', expected micro-batch, stage, replica and layers"},
      {"scheme=gpipe,stages=2\n0,F0@0x0", "row 2, cell 2: 'F0@0x0', expected micro-batch, stage, replica and layers"},
      {"scheme=gpipe,stages=2\n0,SEND0@0", "row 2, cell 2: 'SEND0@0', expected an operation"},
      {"scheme=gpipe,stages=2\n0,F0000000001@0", "row 2, cell 2: 'F0000000001@0', expected an operation"},
  };
  for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
    bppsa_schedule *list = NULL;
    assert_error(load(files[i].text, &list), BPPSA_ERR_FORMAT, files[i].says);
    assert_null(list);
  }
}

/* 0x2 is no hexadecimal number: a cost of 0, and two layers. */
static void zero_and_layers(void **state) {
  (void)state;
  bppsa_schedule *list = NULL;
  assert_int_equal(load("scheme=gpipe,stages=2,layers=4,micro-batches=1\n0,F0@0=0x2,B0@0\n1,F0@1,B0@1", &list), BPPSA_OK);
  assert_true(list->ops[0].kind == BPPSA_KIND_F && list->ops[0].cost == 0 && list->ops[0].layers == 2);
  bppsa_schedule_destroy(list);
}

/* What is written is read again, with every mark: the same text. */
static void round_trip(void **state) {
  (void)state;
  static const char *const schemes[] = {"gpipe", "interleaved", "chimera", "zb-h1", "pipedream", "multi-stream", "scan-chunked"};
  for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; ++i) {
    bppsa_schedule_config config = bppsa_schedule_config_default();
    bppsa_text text = {0}, second = {0};
    bppsa_timed timed = {0}, read = {0};
    bppsa_schedule *made = NULL, *again = NULL;
    assert_int_equal(bppsa_schedule_create(schemes[i], &config, &made), BPPSA_OK);
    timed.list = made;
    made->ops[0].cost = 2.5;
    made->ops[0].memory_delta = -1.25;
    assert_int_equal(bppsa_schedule_csv_write(&timed, &text), BPPSA_OK);
    assert_int_equal(load(text.text, &again), BPPSA_OK);
    read.list = again;
    assert_int_equal(bppsa_schedule_csv_write(&read, &second), BPPSA_OK);
    assert_string_equal(second.text, text.text);
    assert_non_null(strstr(text.text, "=2.5~-1.25"));
    bppsa_text_free(&text);
    bppsa_text_free(&second);
    bppsa_schedule_destroy(made);
    bppsa_schedule_destroy(again);
  }
}

/* What a spreadsheet makes of a file: an order mark, cells in quotes, padding, empty rows, carriage returns, other separators. */
static void spreadsheets(void **state) {
  (void)state;
  static const char *const same[] = {
      "scheme=gpipe,stages=2,micro-batches=2,alpha=0.25\n0,F0@0,F1@0,B1@0,B0@0\n1,F0@1,B0@1,F1@1,B1@1\n",
      "\xef\xbb\xbf\"scheme=gpipe\",\"stages=2\",\"micro-batches=2\",alpha=0.25,,\r\n\"0\",\"F0@0\",F1@0,\"B1@0\","
      "B0@0\r\n1,\"F0@1\",\"\",B0@1,F1@1,\"B1@1\"\r\n,,,,\r\n,\r\n",
      "sep=,\r\nscheme=gpipe,stages=2,micro-batches=2,alpha=0.25\r\n0,F0@0,F1@0,B1@0,B0@0\r\n1,F0@1,B0@1,F1@1,B1@1\r\n",
      "\xef\xbb\xbfsep=;\r\nscheme=gpipe;stages=2;micro-batches=2;alpha=0,25\r\n0;F0@0;F1@0;B1@0;B0@0\r\n;;;;\r\n"
      "1;F0@1;B0@1;F1@1;B1@1\r\n;;\r\n",
      "scheme=gpipe;stages=2;\"micro-batches=2\";\"alpha=0,25\";;\n0;F0@0;F1@0;B1@0;B0@0\n1;F0@1;\"B0@1\";F1@1;B1@1\n",
      "\"sep=;\"\nscheme=gpipe;stages=2;micro-batches=2;alpha=0.25\n0;F0@0;F1@0;B1@0;B0@0\n1;F0@1;B0@1;F1@1;B1@1",
      "scheme=gpipe\tstages=2\tmicro-batches=2\talpha=0.25\n0\tF0@0\tF1@0\tB1@0\tB0@0\n\t\t\n1\tF0@1\tB0@1\tF1@1\tB1@1\n"};
  enum { SAME = sizeof same / sizeof same[0] };
  bppsa_schedule *lists[SAME] = {NULL};
  for (int i = 0; i < SAME; ++i) {
    assert_int_equal(load(same[i], &lists[i]), BPPSA_OK);
    assert_int_equal(lists[0]->count, lists[i]->count);
    assert_true(lists[i]->config.alpha == 0.25);
    for (int64_t id = 0; id < lists[0]->count; ++id) {
      const bppsa_schedule_op *a = &lists[0]->ops[id], *b = &lists[i]->ops[id];
      assert_true(a->kind == b->kind && a->worker == b->worker && a->micro == b->micro && a->layer == b->layer);
    }
  }
  for (int i = 0; i < SAME; ++i) {
    bppsa_schedule_destroy(lists[i]);
  }
  bppsa_schedule *list = NULL;
  assert_error(load("scheme=gpipe,\"stages=2\n", &list), BPPSA_ERR_FORMAT, "row 1, cell 2: '\"stages', expected a name");
  assert_error(load("scheme=gpipe,\"stages=2\"x\n", &list), BPPSA_ERR_FORMAT, "row 1, cell 2: '\"stages', expected a name");
  assert_error(load("scheme=gpipe,\"sta\"\"ges=2\"\n", &list), BPPSA_ERR_FORMAT, "row 1, cell 2: 'sta\"ges', expected");
  assert_error(load("scheme=gpipe,stages=1\n0,\"F0@0,B0@0\"\n", &list), BPPSA_ERR_FORMAT, "row 2, cell 2: 'F0@0,B0@0'");
  assert_error(load("sep=;\nscheme=gpipe;stages=1\n0;F0@0,5\n", &list), BPPSA_ERR_FORMAT, "row 3, cell 2: 'F0@0.5', expected");
  assert_error(load("sep=;\n", &list), BPPSA_ERR_FORMAT, "row 2, cell 0: '', expected scheme=");
  assert_error(load("sep=:\nscheme=gpipe\n", &list), BPPSA_ERR_FORMAT, "row 1, cell 1: 'sep', expected a name");
  assert_error(load("scheme=gpipe,stages=1\n0;F0@0;B0@0\n", &list), BPPSA_ERR_FORMAT,
               "row 2, cell 1: '0;F0@0;B0@0', expected the");
  assert_null(list);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranges),          cmocka_unit_test(names),      cmocka_unit_test(reals),       cmocka_unit_test(places),
      cmocka_unit_test(zero_and_layers), cmocka_unit_test(round_trip), cmocka_unit_test(spreadsheets)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
