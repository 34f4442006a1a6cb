/* What a run of training says: header, rows and summary for people, rows and document as JSON, and where it comes from. */
#include <math.h>

#include "runs/train_report.h"
#include "runs/train_show.h"
#include "tests/runs/train_setting.h"
#include "tests/support/json_memory.h"

/* A screen: everything that was printed. */
typedef struct {
  char printed[4096], notes[256];
  int texts;
  int64_t refuse; /* the text at which printing fails; 0: none */
} screen;

static bppsa_status print(void *context, const char *text) {
  screen *s = context;
  if (++s->texts == s->refuse) {
    return bppsa_fail(BPPSA_ERR_IO, "standard output: closed");
  }
  strncat(s->printed, text, sizeof s->printed - strlen(s->printed) - 1);
  return BPPSA_OK;
}

static void note(void *context, const char *text) {
  screen *s = context;
  strncat(s->notes, text, sizeof s->notes - strlen(s->notes) - 1);
}

static char *words[] = {(char[]){"bppsa"}, (char[]){"train"}, (char[]){"\xff"}};
static const bppsa_provenance_input inputs[] = {{"--weights", "report_weights"}};

static bppsa_train_show show_of(bppsa_train_run *run, bool json, screen *s) {
  return (bppsa_train_show){
      .run = run,
      .json = json,
      .provenance = {.argc = 3, .argv = words, .data = "npy:report_x,report_y", .count = 1, .inputs = inputs},
      .saved = "W.safetensors",
      .print = print,
      .note = note,
      .context = s};
}

static bppsa_status train(bppsa_train_show *show) {
  const bppsa_train_callbacks callbacks = bppsa_train_show_callbacks(show);
  bppsa_train_run *run = show->run;
  return bppsa_train(&run->train, run->model, run->dataset, run->device, &callbacks, &run->result);
}

static void test_people(void **state) {
  (void)state;
  bppsa_train_run run;
  screen s = {.texts = 0};
  bppsa_text text = {0};
  assert_int_equal(open_run(BPPSA_BACKWARD_SCAN, &run), BPPSA_OK);
  bppsa_train_show show = show_of(&run, false, &s);
  assert_int_equal(train(&show), BPPSA_OK);
  assert_int_equal(s.texts, 2); /* the header, an epoch */
  assert_non_null(strstr(s.printed, "model      rnn: T 6, B 5, I 1, H 3, layers 1, tanh, loss last\n"));
  assert_non_null(strstr(s.printed, "data       bitstream: 10 samples to train on, 2 held out, order shuffled\n"));
  assert_non_null(strstr(s.printed, "gradients  scan, blelloch"));
  assert_non_null(strstr(s.printed, "validation accuracy"));
  assert_null(strstr(s.printed, "plan       made in")); /* only where planning takes its time */
  assert_int_equal(run.samples, 10);
  assert_true(run.seconds > 0);
  assert_int_equal(run.epoch.step, 2);
  assert_int_equal(bppsa_train_show_render(&show, &text), BPPSA_OK);
  assert_non_null(strstr(text.text, "2 iterations in "));
  assert_non_null(strstr(text.text, "final loss "));
  assert_non_null(strstr(text.text, "weights written to W.safetensors\n"));
  bppsa_text_free(&text);
  bppsa_train_show_free(&show);
  bppsa_train_run_free(&run);
}

static double real(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  assert_true(json_is_number(value));
  return json_number_value(value);
}

/* One document: what the run is, where it comes from, its rows, its results. */
static void test_document(void **state) {
  (void)state;
  bppsa_train_run run;
  screen s = {.texts = 0};
  bppsa_text text = {0};
  put_file("report_x", "abc", 3);
  put_file("report_weights", "wxyz", 4);
  remove("report_y");
  assert_int_equal(open_run(BPPSA_BACKWARD_BP, &run), BPPSA_OK);
  bppsa_train_show show = show_of(&run, true, &s);
  assert_int_equal(train(&show), BPPSA_OK);
  assert_int_equal(s.texts, 0); /* nothing else is printed */
  assert_int_equal(bppsa_train_show_render(&show, &text), BPPSA_OK);
  json_t *document = NULL;
  assert_int_equal(bppsa_json_parse("document", text.text, (int64_t)strlen(text.text), &document), BPPSA_OK);
  bppsa_text_free(&text);
  const json_t *rows = json_object_get(document, "rows"), *files = json_object_get(document, "inputs"),
               *command = json_object_get(document, "command"), *config = json_object_get(document, "config");
  assert_int_equal(json_array_size(rows), 1);
  assert_true(real(json_array_get(rows, 0), "loss") == run.epoch.loss);
  assert_true(real(json_object_get(document, "final"), "validation_loss") == run.result.last.validation_loss);
  assert_true(real(document, "steps_done") == 2);
  assert_string_equal(json_string_value(json_object_get(config, "chosen")), "option");
  assert_string_equal(json_string_value(json_object_get(config, "data")), "bitstream");
  assert_int_equal(json_array_size(command), 3);
  assert_string_equal(json_string_value(json_array_get(command, 2)), "?");
  assert_int_equal(json_array_size(files), 3); /* both files of the data, and the weights */
  assert_string_equal(json_string_value(json_object_get(json_array_get(files, 0), "path")), "report_x");
  assert_true(real(json_array_get(files, 0), "size_bytes") == 3);
  assert_true(json_is_null(json_object_get(json_array_get(files, 1), "size_bytes"))); /* not there */
  assert_string_equal(json_string_value(json_object_get(json_array_get(files, 2), "option")), "--weights");
  assert_true(real(json_array_get(files, 2), "size_bytes") == 4);
  json_decref(document);
  char *header = NULL;
  assert_int_equal(bppsa_train_show_header(&show, &header),
                   BPPSA_OK); /* the log's first line describes the run, without results */
  assert_true(strstr(header, "\"inputs\"") != NULL && strstr(header, "\"rows\"") == NULL && strchr(header, '\n') == NULL);
  bppsa_free(header);
  bppsa_train_show_free(&show);
  bppsa_train_run_free(&run);
}

/* A run by iterations prints ten of its steps; its document has them all. */
static void test_iterations(void **state) {
  (void)state;
  for (int json = 0; json < 2; ++json) {
    bppsa_train_run run;
    screen s = {.texts = 0};
    assert_int_equal(open_run(BPPSA_BACKWARD_BP, &run), BPPSA_OK);
    run.train.epochs = 0;
    run.train.iterations = 40;
    bppsa_train_show show = show_of(&run, json == 1, &s);
    assert_int_equal(train(&show), BPPSA_OK);
    assert_int_equal(s.texts, json == 1 ? 0 : 1 + 11); /* step 1, then 4, 8, .. 40 */
    assert_int_equal(json_array_size(show.rows), json == 1 ? 40 : 0);
    assert_int_equal(run.samples, 200);
    bppsa_train_show_free(&show);
    bppsa_train_run_free(&run);
  }
}

/* What cannot be printed ends the run; what should be said is said in whatever form the results have. */
static void test_failures(void **state) {
  (void)state;
  bppsa_train_run run;
  screen s = {.refuse = 2};
  assert_int_equal(open_run(BPPSA_BACKWARD_BP, &run), BPPSA_OK);
  bppsa_train_show show = show_of(&run, false, &s);
  assert_error(train(&show), BPPSA_ERR_IO, "standard output: closed");
  const bppsa_train_callbacks callbacks = bppsa_train_show_callbacks(&show);
  show.json = true;
  assert_int_equal(callbacks.started(&show, &(bppsa_train_start){.notice = "an older checkpoint"}), BPPSA_OK);
  assert_string_equal(s.notes, "an older checkpoint");
  bppsa_train_show_free(&show);
  bppsa_train_run_free(&run);
}

/* A run without steps says so. */
static void test_no_steps(void **state) {
  (void)state;
  bppsa_train_run run;
  bppsa_text text = {0};
  assert_int_equal(open_run(BPPSA_BACKWARD_BP, &run), BPPSA_OK);
  bppsa_train_summary_text(&run, &text);
  assert_string_equal(text.text, "no step taken, the weights are as they were initialised or read\n");
  bppsa_text_free(&text);
  const bppsa_train_record record = {.step = 1, .accuracy = (double)NAN};
  bppsa_train_row_text(&run, &record, 1, &text);
  assert_non_null(strstr(text.text, " - ")); /* real targets have no accuracy */
  bppsa_text_free(&text);
  json_t *row = bppsa_train_row_json(&record);
  assert_true(json_is_null(json_object_get(row, "accuracy")));
  assert_null(json_object_get(row, "validation_loss"));
  json_decref(row);
  bppsa_train_run_free(&run);
}

static bppsa_status show_run(void *run) {
  screen s = {.texts = 0};
  bppsa_text text = {0};
  bppsa_train_show show = show_of(run, true, &s);
  const bppsa_train_callbacks callbacks = bppsa_train_show_callbacks(&show);
  const bppsa_train_record record = {.step = 1, .samples_per_s = 1};
  bppsa_status status = callbacks.started(&show, &(bppsa_train_start){.notice = ""});
  status = status == BPPSA_OK ? callbacks.on_step(&show, &record) : status;
  status = status == BPPSA_OK ? callbacks.on_epoch(&show, &record) : status;
  status = status == BPPSA_OK ? bppsa_train_show_render(&show, &text) : status;
  bppsa_text_free(&text);
  if (status == BPPSA_OK) {
    show.json = false;
    status = bppsa_train_show_render(&show, &text);
    bppsa_text_free(&text);
  }
  bppsa_train_show_free(&show);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  bppsa_train_run run;
  assert_int_equal(open_run(BPPSA_BACKWARD_BP, &run), BPPSA_OK);
  run.result.steps = 1;
  assert_true(walk_allocations(show_run, &run) > 60);
  bppsa_train_run_free(&run);
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_people),     cmocka_unit_test(test_document),
                                     cmocka_unit_test(test_iterations), cmocka_unit_test(test_failures),
                                     cmocka_unit_test(test_no_steps),   cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
