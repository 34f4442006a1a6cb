/* The table of figures: checks every row, its script and its data, and lets allocations fail. */
#include "tests/figures/fixture.h"

#include <math.h>

#include "figures/measured_rows.h"
#include "tests/support/json_memory.h"

/* Rows whose data take seconds: `figures --cnn` as a whole is tested by tests/cli/test_figures_cnn.c. */
static bool takes_seconds(const bppsa_figure *figure) {
  static const char *const names[] = {"table1", "figure6", "figure10"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    if (strcmp(figure->name, names[i]) == 0) {
      return true;
    }
  }
  return false;
}

/* Writes a data set for figures that need one: samples of nine steps. */
static void write_data(void) {
  static const char x[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (20, 9, 2), }",
                    y[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (20,), }";
  char head[128], values[20 * 9 * 2 * 4] = {0};
  const char *const words[] = {x, y}, *const paths[] = {"X.npy", "Y.npy"};
  const size_t sizes[] = {20 * 9 * 2 * 4, 20 * 8};
  for (int i = 0; i < 2; ++i) {
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    memcpy(head + 10, words[i], strlen(words[i]));
    head[127] = '\n';
    FILE *file = fopen(paths[i], "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head, 1, sizeof head, file) + fwrite(values, 1, sizes[i], file), sizeof head + sizes[i]);
    assert_int_equal(fclose(file), 0);
  }
}

static void open_figure(fixture *f, const bppsa_figure *figure) {
  open_run(f, bppsa_figure_pages[figure->page].run);
  if (figure->without_data != NULL) {
    f->request.data = (bppsa_figures_data){.spec = "npy:X.npy,Y.npy", .validation = 0.25};
    f->request.seq_len = 0; /* 0: taken from the files */
  }
}

/* ---- rows ---- */

static bool is_file_name(const char *name) {
  return name[0] != '\0' && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name);
}

static void test_rows(void **state) {
  (void)state;
  for (int i = 0; i < bppsa_figure_count; ++i) {
    const bppsa_figure *figure = &bppsa_figure_table[i];
    assert_true(is_file_name(figure->name));
    assert_ptr_equal(find_figure(figure->name), figure); /* names are unique */
    assert_in_range(figure->page, 0, bppsa_figure_page_count - 1);
    assert_non_null(figure->data);
    assert_non_null(figure->title);
    for (int k = i + 1; k < bppsa_figure_count && figure->page != bppsa_figure_table[i + 1].page; ++k) {
      assert_int_not_equal(bppsa_figure_table[k].page, figure->page); /* a page's rows are consecutive */
    }
  }
  for (int i = 0; i < bppsa_figure_page_count; ++i) {
    const bppsa_figure_page *page = &bppsa_figure_pages[i];
    int rows = 0;
    for (int k = 0; k < bppsa_figure_count; ++k) {
      rows += bppsa_figure_table[k].page == i;
    }
    assert_true(rows > 0);
    assert_true((page->kept != NULL) == (page->list != NULL));
    for (int k = 0; k < i; ++k) { /* in a run names are unique, and only its first page has measurements */
      const bool same = strcmp(bppsa_figure_pages[k].run, page->run) == 0;
      assert_false(same && strcmp(bppsa_figure_pages[k].file, page->file) == 0);
      assert_false(same && page->kept != NULL);
    }
  }
}

/* A script reads and writes the files of its row. */
static void test_scripts(void **state) {
  (void)state;
  int scripts = 0;
  for (int i = 0; i < bppsa_figure_count; ++i) {
    const bppsa_figure *figure = &bppsa_figure_table[i];
    char text[128];
    if (figure->script == NULL) {
      continue;
    }
    ++scripts;
    snprintf(text, sizeof text, "# gnuplot -c %s.gp svg|png: draws %s.csv\n", figure->name, figure->name);
    assert_int_equal(strncmp(figure->script, text, strlen(text)), 0);
    snprintf(text, sizeof text, "'%s.csv'", figure->name);
    assert_non_null(strstr(figure->script, text));
    snprintf(text, sizeof text, "set output '%s.' . ARG1\n", figure->name);
    assert_non_null(strstr(figure->script, text));
    /* Curves lie anywhere, so a key of curves stands outside: below the panels, or in the strip that the last plot leaves. */
    const bool outside = strstr(figure->script, "set key below") != NULL || strstr(figure->script, "set key outside") != NULL;
    const bool strip = strstr(figure->script, "set key center center horizontal") != NULL;
    assert_true(outside || strip || strstr(figure->script, "with boxes") != NULL);
  }
  assert_int_equal(scripts, 23);
}

/* ---- data ---- */

static int cells_of(const char *line) {
  int cells = 1;
  for (; *line != '\0' && *line != '\n'; ++line) {
    cells += *line == ',';
  }
  return cells;
}

/* Checks that all lines have as many cells as the first. */
static void assert_rectangular(const char *name, const char *csv) {
  const int cells = cells_of(csv);
  int lines = 0;
  for (const char *line = csv; *line != '\0'; ++lines) {
    if (cells_of(line) != cells) {
      fail_msg("%s.csv: line %d has %d cells, expected %d", name, lines + 1, cells_of(line), cells);
    }
    line = strchr(line, '\n');
    assert_non_null(line);
    ++line;
  }
  assert_true(cells >= 2 && lines >= 2);
}

static void check_data(const bppsa_figure *figure, const bppsa_figure_content *made) {
  if (made->csv.size > 0) {
    assert_rectangular(figure->name, made->csv.text);
  }
  if (made->svg.size > 0) {
    assert_int_equal(strncmp(made->svg.text, "<svg ", 5), 0);
  }
  assert_true(made->csv.size > 0 || made->svg.size > 0 || figure->write != NULL);
  assert_true(figure->script == NULL || (made->csv.size > 0 && made->svg.size == 0));
  assert_true(figure->script != NULL || made->svg.size > 0 || made->html.size > 0); /* the page shows something */
}

static void test_data(void **state) {
  (void)state;
  write_data();
  for (int i = 0; i < bppsa_figure_count; ++i) {
    const bppsa_figure *figure = &bppsa_figure_table[i];
    fixture f;
    bppsa_figure_content made = {0};
    if (takes_seconds(figure)) {
      continue;
    }
    open_figure(&f, figure);
    assert_true(bppsa_figure_has_data(&f.run, figure));
    assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
    check_data(figure, &made);
    free_content(&made);
    close_run(&f);
  }
}

/* Checks the content of two figures against the measured rows. */
static void test_values(void **state) {
  (void)state;
  fixture f;
  bppsa_figure_content made = {0};
  open_run(&f, "rnn");
  const bppsa_figure *figure = find_figure("figure8");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_non_null(strstr(made.csv.text, "\nT,1000,blelloch,1000,2,1.5,2000,0\n")); /* (1000 + 2000) / (1000 + 1000) ms */
  free_content(&made);
  figure = find_figure("growth");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_false(made.left_out);
  free_content(&made);
  while (json_array_size(bppsa_figures_rows(&f.run)) > 8) { /* two lengths: no line is fitted */
    json_array_remove(json_object_get(f.run.document, "rows"), 8);
  }
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_true(made.left_out);
  assert_int_equal(made.csv.size, 0);
  free_content(&made);
  close_run(&f);
}

/* The LSTM's page has the same rows without the paper's numbers. */
static void test_lstm(void **state) {
  (void)state;
  fixture f;
  bppsa_figure_content made = {0};
  open_run(&f, "lstm");
  const bppsa_figure *figure = find_figure("lstm_sensitivity");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_non_null(strstr(made.csv.text, "\nT,1000,blelloch,1000,2,1.5,2000,0\n"));
  assert_null(strstr(made.csv.text, "paper"));
  free_content(&made);
  for (size_t i = json_array_size(bppsa_figures_rows(&f.run)); i > 0; --i) { /* none of T = 1000: a panel has no points */
    if (json_integer_value(json_object_get(json_array_get(bppsa_figures_rows(&f.run), i - 1), "seq_len")) == 1000) {
      json_array_remove(json_object_get(f.run.document, "rows"), i - 1);
    }
  }
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_true(made.left_out && made.csv.size == 0);
  free_content(&made);
  figure = find_figure("lstm_lengths");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_int_equal(strncmp(made.csv.text, "seq_len,batch,forward_s,", 24), 0);
  assert_null(strstr(made.html.text, "paper"));
  free_content(&made);
  close_run(&f);
}

/* Paths are of batches, times of one sample; a step has its fastest backward pass, or none. */
static void test_forward(void **state) {
  (void)state;
  fixture f;
  bppsa_figure_content made = {0};
  open_run(&f, "forward");
  const bppsa_figure *figure = find_figure("forward_path");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_string_equal(made.csv.text, "network,iterations,path,share,work,tails\n"
                                     "gru_2_T1000,50,500,0.5,2,0\ngru_2_T1000,100,1000,1,2,0\n");
  assert_non_null(strstr(figure->script, "rows_of(i) using 2:4 with linespoints")); /* others' rows would break its line */
  free_content(&made);
  figure = find_figure("forward_steps");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_non_null(strstr(made.csv.text, "\nrnn,1000,sequential,500,1500,0.25,0.75,0\n"));
  assert_non_null(strstr(made.csv.text, "\nrnn,1000,speculative,250,1500,0.125,0.75,0\n"));
  assert_non_null(strstr(made.csv.text, "\nrnn,3000,speculative,250,1500,0.125,0.75,1\n"));
  free_content(&made);
  json_t *rows = json_object_get(f.run.document, "rows");
  for (size_t left = 0; left < json_array_size(rows);) {
    const json_t *row = json_array_get(rows, left);
    const bool gone = bppsa_measured_is(row, "phase", "backward") || bppsa_measured_is(row, "init", "trained");
    left += gone ? 0 : 1;
    (void)(gone && json_array_remove(rows, left));
  }
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_non_null(strstr(made.csv.text, "\nrnn,1000,speculative,250,0,0.5,0,0\n"));
  free_content(&made);
  figure = find_figure("forward_path");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_true(made.left_out && made.csv.size == 0);
  free_content(&made);
  close_run(&f);
}

/* Paths of both passes are over T; the parts of every step over the sequential step of the same sizes. */
static void test_step(void **state) {
  (void)state;
  fixture f;
  bppsa_figure_content made = {0};
  open_run(&f, "step");
  const bppsa_figure *figure = find_figure("step_path");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_string_equal(made.csv.text, "task,network,iterations,forward_share,backward_share,forward_path,backward_path\n"
                                     "delay_T1000,gru,50,0.5,0.25,500,250\ndelay_T1000,gru,100,1,0.5,1000,500\n");
  free_content(&made);
  figure = find_figure("step_parts");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_string_equal(made.csv.text, "network,hidden,step,place,forward,backward,other,whole,sequential_ms,noisy\n"
                                     "lstm_T1000,20,sequential,1,0.25,0.5,0.25,1,1000,0\n"
                                     "lstm_T1000,20,scan,2,1,2,1,4,1000,0\n"
                                     "lstm_T1000,20,speculated,3,0.125,0.25,0.125,0.5,1000,0\n"
                                     "lstm_T1000,64,sequential,4.6,0.25,0.5,0.25,1,2000,1\n"
                                     "lstm_T1000,64,speculated,5.6,0.125,0.25,0.125,0.5,2000,1\n");
  free_content(&made);
  json_array_clear(json_object_get(f.run.document, "rows"));
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_true(made.left_out && made.csv.size == 0);
  free_content(&made);
  close_run(&f);
}

/* Curves of section 3.6 begin with the fewest ranks above 1; one share has the rows of its own. */
static void test_ranks(void **state) {
  (void)state;
  fixture f;
  bppsa_figure_content made = {0};
  open_run(&f, "ranks");
  const bppsa_figure *figure = find_figure("ranks_time");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_non_null(strstr(made.csv.text, "\ngru,bp,1,8,4,0,8,\n"));
  assert_non_null(strstr(made.csv.text, "\ngru,bp,2,4,2,1,4,4\n"));
  assert_non_null(strstr(made.csv.text, "\ngru,blelloch,4,16,8,0,2.25,2.25\n")); /* 4.5 MB, half of the steps */
  assert_non_null(strstr(made.csv.text, "\ngru,bp,4,2,1,0,2,2.2307"));           /* 4 MB (100 / 4 + 4) / (100 / 2 + 2) */
  assert_null(strstr(made.csv.text, "wait-free"));
  free_content(&made);
  figure = find_figure("ranks_batch");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_non_null(strstr(made.csv.text, "\ngru,wait-free,4,2,1,0,7,\n"));
  free_content(&made);
  json_array_clear(json_object_get(f.run.document, "rows"));
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_true(made.left_out);
  free_content(&made);
  close_run(&f);
}

/* Means, deviations and ranges are of the runs of one study, task and scheme; studies without rows are left out. */
static void test_staleness(void **state) {
  (void)state;
  fixture f;
  bppsa_figure_content made = {0};
  open_run(&f, "staleness");
  const bppsa_figure *figure = find_figure("prediction");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_non_null(strstr(made.csv.text, "task,optimizer,ahead,update,stale,predicted\ngru,sgd,1,5,0.25,0.125\n"
                                        "gru,sgd,1,15,0.25,0.0625\ngru,sgd,2,5,0.5,0.25\n"));
  free_content(&made);
  figure = find_figure("prediction_table");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_non_null(strstr(made.csv.text, "\ngru,sgd,2,0.5,0.25,0.5,0.875\n"));
  assert_non_null(strstr(made.html.text, "<td>2</td><td>0.5</td><td>0.25</td><td>0.50</td><td>87.5 %</td></tr>\n"));
  free_content(&made);
  figure = find_figure("staleness_table");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_non_null(strstr(made.csv.text, "\nlenet5,vanilla,2,0.375,0.17677669529663"));              /* 0.25 / √2 */
  assert_non_null(strstr(made.csv.text, ",0.5,0.75\nlenet5,SpecTrain,2,0.75,0,0.75,0.75,1.75,0,")); /* and the range */
  assert_non_null(strstr(made.html.text, "<td>lenet5</td><td>vanilla</td><td>2</td><td>0.3750 &plusmn; 0.1768</td>"));
  assert_non_null(strstr(made.html.text, "<td>62.50 &plusmn; 17.68 %</td>"));
  assert_null(strstr(made.html.text, "PipeDream"));
  free_content(&made);
  figure = find_figure("staleness");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_non_null(strstr(made.csv.text, "\nlenet5,vanilla,1,2,0.125,0.125,0.125,2,2,2\n"
                                        "lenet5,vanilla,2,2,0.625,0.5,0.75,1.375,1.25,1.5\nlenet5,SpecTrain,1,2,"));
  free_content(&made);
  figure = find_figure("adam");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_non_null(strstr(made.csv.text, "\nlenet5,PipeDream,2,2,0.5,0.5,0.5,1.5,1.5,1.5\n"));
  free_content(&made);
  static const char *const names[] = {"prediction", "prediction_table", "staleness_table", "staleness", "adam_table", "adam"};
  json_array_clear(json_object_get(f.run.document, "rows"));
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    figure = find_figure(names[i]);
    assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
    assert_true(made.left_out && made.csv.size == 0 && made.html.size == 0);
    free_content(&made);
  }
  close_run(&f);
}

/* Ways are compared with the first one of their group: by their ranges, not at all where one is noisy. */
static void test_out_of_order(void **state) {
  (void)state;
  fixture f;
  bppsa_figure_content made = {0};
  open_run(&f, "out_of_order");
  const bppsa_figure *figure = find_figure("out_of_order");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_string_equal(made.csv.text, "group,way,median_ms,min_ms,max_ms,over_in_order,same_bits,noisy,verdict\n"
                                     "one device,in order,500,500,625,1,yes,0,\n"
                                     "one device,multi-stream,750,750,1000,1.5,yes,0,slower\n"
                                     "one device,faster,250,250,375,0.5,yes,0,faster\n"
                                     "batch,k = 0,1000,1000,2000,1,yes,0,\n"
                                     "batch,k = 1,1500,1500,3000,1.5,yes,0,within the range\n"
                                     "batch,k = 2,750,500,875,0.75,no,1,noisy\n");
  assert_true(made.html.size == 0);
  free_content(&made);
  figure = find_figure("out_of_order_table");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_non_null(strstr(made.html.text, "<td>multi-stream</td><td>750.000</td><td>750.000 .. 1000.000</td><td>1.500</td>"
                                         "<td>the same</td><td>slower</td></tr>\n"));
  assert_non_null(strstr(made.html.text, "<td>0.750</td><td>OTHER</td><td>noisy</td></tr>\n</table>\n"));
  free_content(&made);
  json_array_clear(json_object_get(f.run.document, "rows"));
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  assert_true(made.left_out);
  free_content(&made);
  close_run(&f);
}

/* A row that does not say whether it is noisy is judged by its median and minimum; one that does is believed. */
static void test_noise(void **state) {
  (void)state;
  fixture f;
  open_run(&f, "rnn");
  const json_t *rows = bppsa_figures_rows(&f.run);
  json_t *forward = json_array_get(rows, 0), *bp = json_array_get(rows, 1); /* T = 10, B = 16 */
  assert_false(bppsa_measured_noisy(rows, 10, 16, "bp"));
  const double least = json_number_value(json_object_get(bp, "min_s"));
  assert_int_equal(json_object_set_new(bp, "median_s", json_real(1.26 * least)), 0);
  assert_true(bppsa_measured_noisy(rows, 10, 16, "bp"));
  assert_false(bppsa_measured_noisy(rows, 10, 16, "chunked"));
  assert_int_equal(json_object_set_new(bp, "noisy", json_false()), 0);
  assert_false(bppsa_measured_noisy(rows, 10, 16, "bp"));
  assert_int_equal(json_object_set_new(bp, "noisy", json_true()), 0);
  assert_true(bppsa_measured_noisy(rows, 10, 16, "bp"));
  assert_int_equal(json_object_set_new(bp, "median_s", json_real(1.24 * least)), 0);
  assert_int_equal(json_object_del(bp, "noisy"), 0);
  assert_false(bppsa_measured_noisy(rows, 10, 16, "bp"));
  assert_int_equal(json_object_set_new(forward, "median_s", json_real(1.0)), 0);
  assert_true(bppsa_measured_noisy(rows, 10, 16, "chunked"));
  assert_int_equal(json_object_set_new(forward, "median_s", json_null()), 0); /* a row that was skipped */
  assert_false(bppsa_measured_noisy(rows, 10, 16, "chunked"));
  assert_false(bppsa_measured_noisy(rows, 11, 16, "bp")); /* no such row */
  close_run(&f);
}

/* ---- out of memory ---- */

/* Each of the first ALL allocations fails once; of the thousands of similar later ones every STRIDE-th. */
enum { ALL = 400, STRIDE = 101 };

static void walk(const bppsa_figure *figure) {
  for (int64_t call = 1;; call += call < ALL ? 1 : STRIDE) {
    fixture f;
    bppsa_figure_content made = {0};
    char kept[64];
    snprintf(kept, sizeof kept, "%s.json", figure->name);
    (void)unlink(kept); /* the document that the previous pass kept */
    open_figure(&f, figure);
    const int64_t live = bppsa_alloc_live();
    bppsa_alloc_fail_once(call);
    const bppsa_status status = figure->data(&f.run, figure, &made);
    const bool reached = bppsa_alloc_calls() >= call;
    bppsa_alloc_fail_at(0);
    const bool noticed = status == BPPSA_ERR_MEMORY && strstr(bppsa_last_error(), "out of memory") != NULL,
               failed = made.csv.failed || made.svg.failed || made.script.failed || made.html.failed || made.caption.failed;
    if (reached && !noticed && !failed) {
      fail_msg("%s: allocation %lld failed, and the data are there: status %d, '%s'", figure->name, (long long)call, (int)status,
               bppsa_last_error());
    }
    free_content(&made);
    assert_int_equal(bppsa_alloc_live(), live);
    close_run(&f);
    if (!reached) {
      assert_int_equal(status, BPPSA_OK);
      return;
    }
  }
}

static void test_memory(void **state) {
  (void)state;
  write_data();
  for (int i = 0; i < bppsa_figure_count; ++i) {
    if (!takes_seconds(&bppsa_figure_table[i])) {
      walk(&bppsa_figure_table[i]);
    }
  }
}

/* The number of a row that begins with these words, in the column behind them. */
static double number_behind(const char *csv, const char *words) {
  const char *at = strstr(csv, words);
  if (at == NULL) {
    fail_msg("%s lacks '%s'", csv, words);
    return 0;
  }
  return strtod(at + strlen(words), NULL);
}

static void near(double found, double expected) {
  if (!(fabs(found - expected) <= 1e-6 * expected)) {
    fail_msg("%.9g, expected %.9g", found, expected);
  }
}

/* The curves of the oracle's page, by hand.
 *
 * Figure 3, ResNet-50 on 128 V100: 32 groups of 4, 128 samples a group. A grid of 2 x 2 has borders of C n elements, with n x n
 * positions of C channels, for each position that a window reaches beyond: 3 of conv1, 1 of the pool and of 3 x 3 convolutions.
 * x and dL/dy: conv1 3 (3 * 226 + 64 * 113) = 23730; pool 64 (113 + 57) = 10880; layer1 3 * 2 * 64 * 57 = 21888; layer2
 * 128 (57 + 29) + 3 * 2 * 128 * 29 = 33280; layer3 256 (29 + 15) + 5 * 2 * 256 * 15 = 49664; layer4 512 (15 + 8) + 2 * 2 * 512 * 8
 * = 28160; together 167602 of 18 layers. Within a node 5 us and 20 GB/s: 2 (2 * 18 * 5 us + 128 * 4 * 167602 / 20 GB/s).
 * The gradients of 25529472 weights go round two rings: of 4 in the node, 6 (5 us + m / 4 / 20 GB/s), and of 32 in the cluster with
 * 20 us and 25/3 GB/s, 62 (20 us + m / 32 / (25/3 GB/s)).
 *
 * Figure 5, CosmoFlow at 512^3 on one node, 1584 iterations of a sample in four parts (layers from conv3 on whole): convolutions by
 * 7.85 TFLOP/s, the rest by 900 GB/s: forwards 155.4627 / 4 + 50.8680 ms, backwards 273.6427 / 4 + 99.3405 ms,
 * update 49.4774 us; gradients of 2225856 weights 6 (5 us + m / 4 / 20 GB/s) = 697.7568 us; 512^3 / 2 elements gathered by
 * 3 (5 us + 512^3 / 2 / 20 GB/s) = 10.0813 ms; borders 2 (4 * 5 us + 4 * 8388608 / 20 GB/s) = 3.3954 ms. The perfect line is that
 * over p / 4. */
static void test_projections(void **state) {
  (void)state;
  const double m = 4 * 25529472.0, halo = 2 * (2 * 18 * 5e-6 + 128 * 4 * 167602 / 20e9),
               gradients = 6 * (5e-6 + m / 4 / 20e9) + 62 * (20e-6 + m / 32 / (25e9 / 3));
  const double epoch = 1584 * (89.733654e-3 + 167.751182e-3 + 49.4774e-6 + 697.7568e-6 + 10.0813296e-3 + 3.3954432e-3);
  fixture f;
  bppsa_figure_content made = {0};
  open_run(&f, "rnn");
  const bppsa_figure *figure = find_figure("paradl_figure3");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  near(number_behind(made.csv.text, "\nResNet-50,128,"), halo / gradients);
  near(number_behind(made.csv.text, "\nthe text: ResNet-50 on 128 GPUs,128,,"), 0.6);
  free_content(&made);
  figure = find_figure("paradl_figure5");
  assert_int_equal(figure->data(&f.run, figure, &made), BPPSA_OK);
  near(number_behind(made.csv.text, "\nCosmoFlow at 512^3,4,"), epoch);
  near(number_behind(made.csv.text, "\nthe text: perfect scaling,4,,"), epoch);
  near(number_behind(made.csv.text, "\nthe text: perfect scaling,1024,,"), epoch / 256);
  free_content(&made);
  close_run(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows),       cmocka_unit_test(test_scripts),   cmocka_unit_test(test_data),
      cmocka_unit_test(test_values),     cmocka_unit_test(test_lstm),      cmocka_unit_test(test_noise),
      cmocka_unit_test(test_memory),     cmocka_unit_test(test_ranks),     cmocka_unit_test(test_forward),
      cmocka_unit_test(test_step),       cmocka_unit_test(test_staleness), cmocka_unit_test(test_out_of_order),
      cmocka_unit_test(test_projections)};
  count_json_memory();
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
