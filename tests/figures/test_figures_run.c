/* Runs of figures through the library: the writer and the page maker with figures made by the tests, kept measurements, and
 * requests that are refused. */
#include "tests/figures/fixture.h"

#include "figures/keep_measurements.h"
#include "tests/support/json_memory.h"

/* ---- a figure made by the test ---- */

static bppsa_status make_own(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  (void)f;
  bppsa_text_add(&made->csv, "x,y\n1,%d\n2,4\n", *(const int *)figure->of);
  return BPPSA_OK;
}

static const bppsa_figure own = {.name = "own",
                                 .data = make_own,
                                 .of = &(const int){7},
                                 .script = "# gnuplot -c own.gp svg|png: draws own.csv\n"
                                           "if (ARG1 eq 'svg') { set terminal svg } else { set terminal pngcairo }\n"
                                           "set output 'own.' . ARG1\n"
                                           "set datafile separator ','\n"
                                           "plot 'own.csv' using 1:2 every ::1 with linespoints\n",
                                 .title = "A figure of its own",
                                 .caption = "Two <i>points</i>."};
static const bppsa_figure_page page = {
    .file = "own.html", .title = "own", .heading = "Own", .intro = "<p>intro</p>", .end = "<p>end</p>"};

/* Writes the test's figure and a page with it; returns the page's text, which the caller frees. */
static char *write_own(fixture *f) {
  bppsa_figure_content made = {0};
  bppsa_text text = {0};
  assert_int_equal(own.data(&f->run, &own, &made), BPPSA_OK);
  assert_int_equal(bppsa_figure_write(&f->run, &own, &made), BPPSA_OK);
  assert_int_equal(bppsa_figures_add_page(&f->run, &page, 1, &own, &made, &text), BPPSA_OK);
  free_content(&made);
  char *copy = strdup(text.text);
  bppsa_text_free(&text);
  return copy;
}

static void test_own_figure(void **state) {
  (void)state;
  const bool drawn = has_gnuplot();
  fixture f;
  open_run(&f, "rnn");
  char *html = write_own(&f), *csv = read_text("own.csv"), *script = read_text("own.gp");
  assert_string_equal(csv, "x,y\n1,7\n2,4\n");
  assert_string_equal(script, own.script);
  assert_int_equal(json_array_size(f.run.files), drawn ? 4 : 2);
  assert_int_equal(f.run.gnuplot, drawn);
  assert_int_equal(file_exists("own.svg"), drawn);
  assert_int_equal(file_exists("own.png"), drawn);
  assert_non_null(strstr(html, "<title>bppsa: own</title>"));
  assert_non_null(strstr(html, "<h1>Own</h1>\n<p>intro</p><h2 id=\"own\">A figure of its own</h2>\n<figure>\n"));
  assert_int_equal(strstr(html, "<svg") != NULL, drawn);
  assert_non_null(strstr(html, "<figcaption>Two <i>points</i>.</figcaption>\n</figure>\n<p>end</p></body>\n</html>\n"));
  free(html);
  free(csv);
  free(script);
  close_run(&f);
}

static void test_without_gnuplot(void **state) {
  (void)state;
  fixture f;
  open_run(&f, "rnn");
  hide_gnuplot(true);
  char *html = write_own(&f);
  hide_gnuplot(false);
  assert_false(f.run.gnuplot);
  assert_int_equal(json_array_size(f.run.files), 2);
  assert_non_null(strstr(html, "gnuplot is not installed (package gnuplot-nox). The numbers are in own.csv"));
  assert_null(strstr(html, "<svg"));
  free(html);
  close_run(&f);
}

/* gnuplot cannot run the figure's script: the error says so. */
static void test_wrong_script(void **state) {
  (void)state;
  fixture f;
  bppsa_figure_content made = {0};
  bppsa_figure wrong = own;
  if (!has_gnuplot()) {
    skip();
  }
  wrong.script = "plot nothing\n";
  open_run(&f, "rnn");
  bppsa_text_add(&made.csv, "x\n1\n");
  assert_int_equal(bppsa_figure_write(&f.run, &wrong, &made), BPPSA_ERR_IO);
  assert_non_null(strstr(bppsa_last_error(), "gnuplot: failed on ./own.gp, expected it to draw own.svg"));
  free_content(&made);
  close_run(&f);
}

/* Content from the data function replaces the row's; a figure that is left out gets no file and no place on the page. */
static void test_content(void **state) {
  (void)state;
  const bppsa_figure rows[] = {{.name = "table", .title = "Table", .caption = "the row's"},
                               {.name = "gone", .title = "Gone", .caption = "nobody sees it"},
                               {.name = "drawing", .title = "Drawing"}};
  bppsa_figure_content made[3] = {{.left_out = false}, {.left_out = true}, {.left_out = false}};
  bppsa_text text = {0};
  fixture f;
  open_run(&f, "rnn");
  bppsa_text_add(&made[0].html, "<table></table>\n");
  bppsa_text_add(&made[0].caption, "the data's");
  bppsa_text_add(&made[2].svg, "<svg></svg>\n");
  assert_int_equal(bppsa_figures_add_page(&f.run, &page, 3, rows, made, &text), BPPSA_OK);
  assert_non_null(strstr(text.text, "<h2 id=\"table\">Table</h2>\n<table></table>\n<p class=\"note\">the data's</p>\n"
                                    "<h2 id=\"drawing\">Drawing</h2>\n<figure>\n<svg></svg>\n</figure>\n<p>end</p>"));
  bppsa_text_free(&text);
  for (int i = 0; i < 3; ++i) {
    free_content(&made[i]);
  }
  close_run(&f);
}

/* ---- whole runs ---- */

static void save(const char *path, const json_t *document) {
  char *text = NULL;
  assert_int_equal(bppsa_json_text(document, 0, 0, &text), BPPSA_OK);
  write_bytes(path, text, strlen(text));
  bppsa_free(text);
}

/* Makes the GRU's pages from given rows, without training, and checks the list of files and its order. */
static void test_files(void **state) {
  (void)state;
  static const char *const files[] = {"table3.csv", "table6.csv", "figure9.csv", "figure9.gp", "index.html", "results.json"};
  fixture f;
  bppsa_figures_result result;
  open_run(&f, "gru");
  save("G.json", f.run.document);
  f.request.results = "G.json";
  f.request.directory = "gru";
  hide_gnuplot(true);
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_OK);
  hide_gnuplot(false);
  assert_false(result.gnuplot);
  assert_string_equal(result.page, "index.html");
  assert_non_null(strstr(result.verdict.text, "The scan wins most clearly at T = "));
  assert_int_equal(result.measured.measured, 0);
  assert_int_equal(json_array_size(result.files), sizeof files / sizeof files[0]);
  for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
    assert_string_equal(json_string_value(json_array_get(result.files, i)), files[i]);
  }
  char *html = read_text("gru/index.html");
  assert_non_null(strstr(html,
                         "<h2 id=\"figure13\">Figure 13: training loss over wall-clock time</h2>\n<p>Not made: it needs a data "
                         "set, <code>--data instruments:DIR</code>"));
  free(html);
  bppsa_figures_result_free(&result);
  close_run(&f);
}

/* Results of bench ranks have a page of their own; what lacks a share is left out, and the request may name no network. */
static void test_ranks(void **state) {
  (void)state;
  static const char *const files[] = {"ranks_time.csv", "ranks_time.gp", "index.html", "results.json"};
  fixture f;
  bppsa_figures_result result;
  open_run(&f, "ranks");
  json_t *rows = json_object_get(f.run.document, "rows");
  for (size_t i = json_array_size(rows); i-- > 0;) {
    if (strcmp(json_string_value(json_object_get(json_array_get(rows, i), "share")), "batch") == 0) {
      json_array_remove(rows, i);
    }
  }
  save("R.json", f.run.document);
  f.request.results = "R.json";
  f.request.directory = "ranks";
  hide_gnuplot(true);
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_OK);
  hide_gnuplot(false);
  assert_string_equal(result.page, "index.html");
  assert_null(result.verdict.text);
  assert_int_equal(json_array_size(result.files), sizeof files / sizeof files[0]);
  for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
    assert_string_equal(json_string_value(json_array_get(result.files, i)), files[i]);
  }
  bppsa_figures_result_free(&result);
  f.request.kind_given = true;
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "--model: given beside --results of bench ranks, which hold all that is drawn");
  f.request.kind_given = false;
  json_object_del(json_array_get(rows, 1), "held_bytes");
  save("R.json", f.run.document);
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_FORMAT);
  assert_string_equal(bppsa_last_error(), "--results: R.json: row 1 lacks held_bytes, expected a row of bench ranks");
  close_run(&f);
}

/* And so have those of bench forward. */
static void test_forward(void **state) {
  (void)state;
  static const char *const files[] = {"forward_path.csv", "forward_path.gp", "forward_steps.csv",
                                      "forward_steps.gp", "index.html",      "results.json"};
  fixture f;
  bppsa_figures_result result;
  open_run(&f, "forward");
  save("R.json", f.run.document);
  f.request.results = "R.json";
  f.request.directory = "forward";
  hide_gnuplot(true);
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_OK);
  hide_gnuplot(false);
  assert_int_equal(json_array_size(result.files), sizeof files / sizeof files[0]);
  for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
    assert_string_equal(json_string_value(json_array_get(result.files, i)), files[i]);
  }
  bppsa_figures_result_free(&result);
  f.request.data.spec = "bitstream";
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "--data: given beside --results of bench forward, which hold all that is drawn");
  f.request.data.spec = NULL;
  json_t *rows = json_object_get(f.run.document, "rows");
  const size_t first = json_array_size(rows);
  for (int i = 0; i < 65; ++i) {
    json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "model", "rnn",
                                          "init", "trained", "method", "speculative", "phase", "forward", "seq_len", 9, "batch",
                                          2, "hidden", 20, "iterations", 1, "train_seed", 1000 + i, "path", 5, "possible", 9,
                                          "work", 1, "tails", 0));
  }
  save("R.json", f.run.document);
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_FORMAT);
  assert_non_null(strstr(bppsa_last_error(), " trained networks, expected at most 64"));
  while (json_array_size(rows) > first + 1) {
    json_array_remove(rows, first);
  }
  static const char *const undrawn[] = {"path", "possible", "work", "tails"}; /* numbers that gnuplot cannot draw */
  for (size_t i = 0; i < 4; ++i) {
    char expected[120];
    json_t *row = json_array_get(rows, first), *good = json_incref(json_object_get(row, undrawn[i]));
    snprintf(expected, sizeof expected, "R.json: row %zu lacks %s, expected a row of bench forward", first, undrawn[i]);
    json_object_set_new(row, undrawn[i], i % 2 == 0 ? json_real(1e300) : json_string(""));
    save("R.json", f.run.document);
    assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_FORMAT);
    assert_non_null(strstr(bppsa_last_error(), expected));
    json_object_set_new(row, undrawn[i], good);
  }
  json_array_remove(rows, first);
  static const char *const lost[] = {"seq_len", "model"};
  for (size_t i = 0; i < 2; ++i) {
    char expected[120];
    json_object_del(json_array_get(json_object_get(f.run.document, "rows"), 3), lost[i]);
    save("R.json", f.run.document);
    assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_FORMAT);
    snprintf(expected, sizeof expected, "--results: R.json: row 3 lacks %s, expected a row of bench forward", lost[i]);
    assert_string_equal(bppsa_last_error(), expected);
  }
  close_run(&f);
}

/* And so have those of bench step; numbers that cannot be drawn, and more panels than there is room for, are refused. */
static void test_step(void **state) {
  (void)state;
  static const char *const files[] = {"step_path.csv", "step_path.gp", "step_parts.csv",
                                      "step_parts.gp", "index.html",   "results.json"};
  static const struct {
    size_t row;
    const char *lacks;
  } lost[] = {{0, "hidden"}, {1, "other_s"}, {6, "task"}, {7, "backward_possible"}};
  fixture f;
  bppsa_figures_result result;
  open_run(&f, "step");
  json_t *rows = json_object_get(f.run.document, "rows");
  save("R.json", f.run.document);
  f.request.results = "R.json";
  f.request.directory = "step";
  hide_gnuplot(true);
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_OK);
  assert_int_equal(json_array_size(result.files), sizeof files / sizeof files[0]);
  for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
    assert_string_equal(json_string_value(json_array_get(result.files, i)), files[i]);
  }
  bppsa_figures_result_free(&result);
  for (size_t i = 0; i < sizeof lost / sizeof lost[0]; ++i) {
    char expected[120];
    json_t *row = json_array_get(rows, lost[i].row), *good = json_incref(json_object_get(row, lost[i].lacks));
    json_object_set_new(row, lost[i].lacks, json_real(-1));
    save("R.json", f.run.document);
    assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_FORMAT);
    snprintf(expected, sizeof expected, "--results: R.json: row %zu lacks %s, expected a row of bench step", lost[i].row,
             lost[i].lacks);
    assert_string_equal(bppsa_last_error(), expected);
    json_object_set_new(row, lost[i].lacks, good);
  }
  for (int i = 0; i < 6; ++i) {
    json_t *row = json_deep_copy(json_array_get(rows, 6));
    json_object_set_new(row, "seq_len", json_integer(2000 + i));
    json_array_append_new(rows, row);
  }
  save("R.json", f.run.document);
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_FORMAT);
  assert_non_null(strstr(bppsa_last_error(), "7 tasks or networks, each at a length of its own, expected at most 6"));
  hide_gnuplot(false);
  close_run(&f);
}

/* And so have those of bench/scripts/spectrain.py, whatever studies they hold; a row that lacks a field is named. */
static void test_staleness(void **state) {
  (void)state;
  static const char *const files[] = {"prediction.csv", "prediction.gp", "prediction_table.csv", "staleness_table.csv",
                                      "staleness.csv",  "staleness.gp",  "adam_table.csv",       "adam.csv",
                                      "adam.gp",        "index.html",    "results.json"};
  fixture f;
  bppsa_figures_result result;
  open_run(&f, "staleness");
  json_t *rows = json_object_get(f.run.document, "rows");
  save("R.json", f.run.document);
  f.request.results = "R.json";
  f.request.directory = "staleness";
  hide_gnuplot(true);
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_OK);
  assert_int_equal(json_array_size(result.files), sizeof files / sizeof files[0]);
  for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
    assert_string_equal(json_string_value(json_array_get(result.files, i)), files[i]);
  }
  bppsa_figures_result_free(&result);
  static const struct {
    size_t row;
    const char *lacks;
  } lost[] = {{4, "scheme"}, {3, "max_validation_accuracy"}, {2, "ahead"}, {1, "nearer"}, {0, "task"}};
  for (size_t i = 0; i < sizeof lost / sizeof lost[0]; ++i) {
    char expected[120];
    json_object_del(json_array_get(rows, lost[i].row), lost[i].lacks);
    save("R.json", f.run.document);
    assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_FORMAT);
    snprintf(expected, sizeof expected, "--results: R.json: row %zu lacks %s, expected a row of bench/scripts/spectrain.py",
             lost[i].row, lost[i].lacks);
    assert_string_equal(bppsa_last_error(), expected);
  }
  while (json_array_size(rows) > 6) {
    json_array_remove(rows, 6);
  }
  for (size_t i = 0; i < 5; ++i) { /* one good row is left, whose epochs are no triples */
    json_array_remove(rows, 0);
  }
  json_array_append_new(json_array_get(json_object_get(json_array_get(rows, 0), "epochs"), 1), json_integer(4));
  save("R.json", f.run.document);
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_FORMAT);
  assert_string_equal(bppsa_last_error(), "--results: R.json: row 0 lacks epochs, expected a row of bench/scripts/spectrain.py");
  hide_gnuplot(false);
  close_run(&f);
}

static bool stopped;
static bool is_stopped(void *context) {
  (void)context;
  return stopped;
}
static const char *stop_name(void *context) {
  (void)context;
  return "a test";
}

/* Results that a stranger has sent, of each kind: nothing in them is run, and they are not written over. */
static void test_strangers(void **state) {
  (void)state;
  static const struct {
    const char *kind, *key;
  } cases[] = {{"ranks", "method"}, {"forward", "model"}, {"step", "model"}, {"staleness", "task"}, {"out_of_order", "group"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    fixture f;
    bppsa_figures_result result;
    open_run(&f, cases[i].kind);
    json_t *row = json_array_get(json_object_get(f.run.document, "rows"), 1);
    f.request.results = "R.json";
    f.request.directory = "strangers";
    json_t *name = json_incref(json_object_get(row, cases[i].key));
    json_object_set_new(row, cases[i].key, json_string("a;touch$IFS../stranger;'|touch$IFS../stranger"));
    save("R.json", f.run.document);
    assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_FORMAT);
    assert_non_null(strstr(bppsa_last_error(), "R.json: row 1: "));
    assert_true(access("strangers", F_OK) != 0 && access("stranger", F_OK) != 0);
    json_object_set_new(row, cases[i].key, name);
    save("R.json", f.run.document);
    f.request.directory = ".";
    f.request.results = i % 2 == 0 ? "staleness.csv" : "./index.html";
    save(f.request.results, f.run.document);
    assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_ARGUMENT);
    assert_non_null(strstr(bppsa_last_error(), ": a file that --out . may replace, expected another directory"));
    remove(f.request.results);
    save("R.json", f.run.document);
    f.request.results = "R.json"; /* and a signal ends the run before the next figure */
    f.request.directory = "stopped";
    f.request.stop = is_stopped;
    f.request.stop_name = stop_name;
    stopped = true;
    assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_IO);
    assert_string_equal(bppsa_last_error(), "stopped by a test before all figures in stopped were drawn");
    close_run(&f);
  }
}

static void test_out_of_order(void **state) {
  (void)state;
  static const char *const files[] = {"out_of_order.csv", "out_of_order.gp", "out_of_order_table.csv", "index.html",
                                      "results.json"};
  static const char *const lost[] = {"noisy", "same_bits", "max_s", "min_s", "median_s", "way", "group"}; /* each goes before */
  fixture f;
  bppsa_figures_result result;
  open_run(&f, "out_of_order");
  save("R.json", f.run.document);
  f.request.results = "R.json";
  f.request.directory = "out_of_order";
  hide_gnuplot(true);
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_OK);
  hide_gnuplot(false);
  assert_int_equal(json_array_size(result.files), sizeof files / sizeof files[0]);
  for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
    assert_string_equal(json_string_value(json_array_get(result.files, i)), files[i]);
  }
  bppsa_figures_result_free(&result);
  for (size_t i = 0; i < sizeof lost / sizeof lost[0]; ++i) {
    char expected[120];
    json_object_del(json_array_get(json_object_get(f.run.document, "rows"), 4), lost[i]);
    save("R.json", f.run.document);
    assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_FORMAT);
    snprintf(expected, sizeof expected, "--results: R.json: row 4 lacks %s, expected a row of bench/scripts/out_of_order.py",
             lost[i]);
    assert_string_equal(bppsa_last_error(), expected);
  }
  close_run(&f);
}

static void test_memory(void **state) {
  (void)state;
  int64_t call = 1;
  hide_gnuplot(true);
  for (bool reached = true; reached; ++call) {
    fixture f;
    bppsa_figures_result result = {0};
    open_run(&f, "gru");
    f.request.results = "G.json";
    f.request.directory = "memory";
    const int64_t live = bppsa_alloc_live();
    bppsa_alloc_fail_once(call);
    const bppsa_status status = bppsa_figures_run(&f.request, &result);
    reached = bppsa_alloc_calls() >= call;
    bppsa_alloc_fail_at(0);
    assert_int_equal(status, reached ? BPPSA_ERR_MEMORY : BPPSA_OK);
    if (reached) {
      assert_non_null(strstr(bppsa_last_error(), "out of memory"));
    }
    bppsa_figures_result_free(&result);
    assert_int_equal(bppsa_alloc_live(), live);
    close_run(&f);
  }
  hide_gnuplot(false);
  assert_true(call > 100);
}

/* A run that is told to stop keeps the point that it measured; only a run with the same settings can resume it. */
static void test_stop(void **state) {
  (void)state;
  fixture f;
  bppsa_figures_result result;
  open_run(&f, "rnn");
  f.request.directory = "stop";
  f.request.stop = is_stopped;
  f.request.stop_name = stop_name;
  stopped = true;
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_IO);
  assert_string_equal(bppsa_last_error(),
                      "stopped by a test after point 1 of 1, what it measured is kept in stop, expected --resume to continue");
  stopped = false;
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "results.json holds the measurements of an interrupted run"));
  f.request.resume = true;
  json_object_set_new(f.request.configuration, "--seed", json_integer(3));
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "--resume: --seed: 3, but the measurements in stop/results.json were made with 0"));
  json_object_set_new(f.request.configuration, "--seed", json_integer(0));
  hide_gnuplot(true);
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_OK);
  hide_gnuplot(false);
  assert_true(file_exists("stop/schedules.html"));
  bppsa_figures_result_free(&result);
  close_run(&f);
}

static void test_refused(void **state) {
  (void)state;
  fixture f;
  bppsa_figures_result result;
  open_run(&f, "rnn");
  f.request.kind = bppsa_network_kind_find("lenet5");
  f.request.directory = "refused";
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_UNSUPPORTED);
  assert_string_equal(bppsa_last_error(), "figures: model lenet5 has none, expected rnn or gru or lstm");
  assert_false(file_exists("refused"));
  f.request.kind = bppsa_network_kind_find("rnn");
  f.request.kind_given = true;
  f.request.results = "G.json";
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "--model: rnn, but --results are of bench gru, expected one network");
  f.request.results = NULL;
  f.request.directory = "no/such/place";
  assert_int_equal(bppsa_figures_run(&f.request, &result), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "--out: no/such/place: cannot be made"));
  close_run(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_own_figure),   cmocka_unit_test(test_without_gnuplot),
                                     cmocka_unit_test(test_wrong_script), cmocka_unit_test(test_content),
                                     cmocka_unit_test(test_files),        cmocka_unit_test(test_memory),
                                     cmocka_unit_test(test_stop),         cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_ranks),        cmocka_unit_test(test_forward),
                                     cmocka_unit_test(test_step),         cmocka_unit_test(test_staleness),
                                     cmocka_unit_test(test_out_of_order), cmocka_unit_test(test_strangers)};
  count_json_memory();
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
