/* Table 1 and figures 5, 6 and 10: convolutional networks and their sparse Jacobians. Numbers come from the program's own
 * commands, run in this process. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench_rounds.h"
#include "cli/figures_keep.h"
#include "cli/interrupt.h"
#include "cli/setup.h"
#include "core/alloc.h"

enum { WORDS = 32, PATH_SIZE = 4096 };

/* ---- commands ---- */

/* An option and its value as it would be typed (NULL: a flag). A list of them ends with .option = BPPSA_OPTION_COUNT. */
typedef struct {
  bppsa_option option;
  const char *value;
} setting;
#define END                                                                                                                      \
  { BPPSA_OPTION_COUNT, NULL }

/* The document a command makes with these settings. */
static bppsa_status run_command(const bppsa_figures *f, const bppsa_command *command, const setting *settings,
                                json_t **document) {
  char *argv[WORDS], *text = NULL;
  int argc = 0;
  size_t size = 0;
  for (; settings->option != BPPSA_OPTION_COUNT && argc + 2 <= WORDS; ++settings) {
    argv[argc++] = (char *)bppsa_option_get(settings->option)->name;
    if (settings->value != NULL) {
      argv[argc++] = (char *)settings->value;
    }
  }
  bppsa_cli cli = {.command = command, .object = command->object, .err = f->cli->err, .json = true};
  BPPSA_TRY(bppsa_options_parse(command->verb, command->uses, argc, argv, cli.values));
  cli.out = open_memstream(&text, &size);
  if (cli.out == NULL) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "figures: out of memory, expected room for the results");
  }
  bppsa_status status = command->run(&cli);
  const bool written = fclose(cli.out) == 0;
  if (status == BPPSA_OK) {
    status = written ? bppsa_json_parse(command->verb, text, (int64_t)size, document)
                     : bppsa_fail(BPPSA_ERR_MEMORY, "figures: out of memory, expected room for the results");
  }
  free(text);
  return status;
}

static double number_of(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text != NULL ? text : "";
}

/* NAME.csv, NAME.gp, and what gnuplot draws of them. */
static bppsa_status write_figure(bppsa_figures *f, const char *name, const bppsa_text *csv, const char *script) {
  char file[64];
  bppsa_text lines = {0};
  snprintf(file, sizeof file, "%s.csv", name);
  bppsa_status status = bppsa_figures_write(f, file, csv);
  snprintf(file, sizeof file, "%s.gp", name);
  bppsa_text_add(&lines, "%s", script);
  status = status == BPPSA_OK ? bppsa_figures_write(f, file, &lines) : status;
  status = status == BPPSA_OK ? bppsa_figures_plot(f, name, "svg") : status;
  status = status == BPPSA_OK ? bppsa_figures_plot(f, name, "png") : status;
  bppsa_text_free(&lines);
  return status;
}

/* ---- what is kept ---- */

static const char kept_name[] = "networks.json";

/* {"configuration", "parts": [{"name", "rows"}]}: of an interrupted run, or new. */
static bppsa_status open_document(bppsa_figures *f) {
  BPPSA_TRY(bppsa_figures_resume(f, kept_name, "parts", &f->document));
  if (f->document != NULL) {
    return BPPSA_OK;
  }
  f->document = json_object();
  const bool ok = f->document != NULL && bppsa_json_put(f->document, "configuration", json_incref(f->configuration)) &&
                  bppsa_json_put(f->document, "parts", json_array());
  return ok ? BPPSA_OK : bppsa_fail(BPPSA_ERR_MEMORY, "figures: out of memory, expected room for the results");
}

/* The rows of a part that is there; NULL otherwise. */
static const json_t *find_part(const bppsa_figures *f, const char *name) {
  const json_t *parts = json_object_get(f->document, "parts");
  for (size_t i = 0; i < json_array_size(parts); ++i) {
    const json_t *part = json_array_get(parts, i);
    if (strcmp(text_of(part, "name"), name) == 0) {
      return json_object_get(part, "rows");
    }
  }
  return NULL;
}

/* Keeps the rows (taken over; NULL: there was no memory) unless a signal came while they were made, and ends after it. */
static bppsa_status keep_part(const bppsa_figures *f, const char *name, json_t *rows) {
  char done[64];
  json_t *part = json_object();
  snprintf(done, sizeof done, "%zu parts", json_array_size(json_object_get(f->document, "parts")));
  bool ok = part != NULL && bppsa_json_put_text(part, "name", name);
  ok = rows != NULL && ok && bppsa_json_put(part, "rows", json_incref(rows));
  json_decref(rows);
  part = bppsa_json_finish(part, ok);
  const bppsa_status status = bppsa_figures_check_interrupt(f, done);
  if (status != BPPSA_OK) {
    json_decref(part);
    return status;
  }
  if (json_array_append_new(json_object_get(f->document, "parts"), part) != 0) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "figures: out of memory, expected room for the results");
  }
  return bppsa_figures_keep(f, kept_name, f->document, false);
}

/* ---- table 1 ---- */

static bppsa_status measure_table1(const bppsa_figures *f) {
  json_t *rows = json_array();
  const bppsa_status status = rows != NULL ? bppsa_figures_measure_table1(rows) : BPPSA_OK;
  if (status != BPPSA_OK) {
    json_decref(rows);
    return status;
  }
  return keep_part(f, "table1", rows);
}

static bppsa_status make_table1(bppsa_figures *f, bppsa_text *html) {
  bppsa_text csv = {0};
  bppsa_status status = find_part(f, "table1") != NULL ? BPPSA_OK : measure_table1(f);
  const json_t *rows = find_part(f, "table1");
  bool noisy = false;
  bppsa_text_add(&csv, "operator,columns_s,generated_s,speedup,paper_speedup,columns_min_s,generated_min_s,noisy\n");
  bppsa_text_add(html,
                 "<h2 id=\"table1\">Table 1: making transposed Jacobians</h2>\n<table>\n<tr><th rowspan=\"2\">operator</th><th "
                 "colspan=\"2\">reverse mode, a column at a time (s)</th><th colspan=\"2\">generated, values (s)</th><th "
                 "rowspan=\"2\">speedup, by medians</th><th rowspan=\"2\">the paper's, over autograd</th></tr>\n"
                 "<tr><th>median</th><th>minimum</th><th>median</th><th>minimum</th></tr>\n");
  for (size_t i = 0; status == BPPSA_OK && i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    const bool marked = json_is_true(json_object_get(row, "noisy"));
    const double columns = number_of(row, "columns_s"), generated = number_of(row, "generated_s");
    noisy = noisy || marked;
    bppsa_text_add(&csv, "%s", text_of(row, "operator"));
    bppsa_text_add_cells(&csv, 6,
                         (double[]){columns, generated, columns / generated, number_of(row, "paper_speedup"),
                                    number_of(row, "columns_min_s"), number_of(row, "generated_min_s")});
    bppsa_text_add(&csv, ",%d\n", marked);
    bppsa_text_add(html, "<tr><td>%s</td><td>%.3g</td><td>%.3g</td><td>%.3g</td><td>%.3g</td><td>%s%.3g</td><td>%.3g</td></tr>\n",
                   text_of(row, "operator"), columns, number_of(row, "columns_min_s"), generated,
                   number_of(row, "generated_min_s"), bppsa_bench_mark(marked), columns / generated,
                   number_of(row, "paper_speedup"));
  }
  bppsa_text_add(html,
                 "</table>\n<p class=\"note\">One thread. The reverse mode is this program's own backward pass, timed on columns "
                 "all over the image, in turn with the generation, and multiplied by their number; "
                 "bench/rivals/jacobian_pytorch.py does it with PyTorch's autograd.%s%s</p>\n",
                 noisy ? " " : "", noisy ? BPPSA_BENCH_MARK_NOTE : "");
  status = status == BPPSA_OK ? bppsa_figures_write(f, "table1.csv", &csv) : status;
  bppsa_text_free(&csv);
  return status;
}

/* ---- figure 5 ---- */

static bppsa_status make_figure5(bppsa_figures *f, bppsa_text *html) {
  enum { OPERATOR_SETTINGS = 4 };
  static const struct {
    const bppsa_command *command;
    const char *name;
    setting settings[OPERATOR_SETTINGS + 1];
  } pictures[] = {{&bppsa_command_jacobian_conv2d,
                   "figure5_conv1",
                   {{BPPSA_OPTION_IN_SHAPE, "3,32,32"},
                    {BPPSA_OPTION_OUT_CHANNELS, "64"},
                    {BPPSA_OPTION_KERNEL, "3"},
                    {BPPSA_OPTION_PAD, "1"},
                    END}},
                  {&bppsa_command_jacobian_relu, "figure5_relu1", {{BPPSA_OPTION_IN_SHAPE, "64,32,32"}, END}},
                  {&bppsa_command_jacobian_maxpool2d,
                   "figure5_pool1",
                   {{BPPSA_OPTION_IN_SHAPE, "64,32,32"}, {BPPSA_OPTION_KERNEL, "2"}, END}}};
  bppsa_text_add(html, "<h2 id=\"figure5\">Figure 5: patterns of VGG-11's first operators</h2>\n<figure>\n");
  for (size_t i = 0; i < sizeof pictures / sizeof pictures[0]; ++i) {
    char line[64], matrix[PATH_SIZE], picture[PATH_SIZE];
    json_t *document = NULL;
    setting settings[OPERATOR_SETTINGS + 3] = {{BPPSA_OPTION_OUT, matrix}, {BPPSA_OPTION_SPY, picture}};
    memcpy(settings + 2, pictures[i].settings, sizeof pictures[i].settings);
    snprintf(matrix, sizeof matrix, "%.4000s/%s.npz", f->directory, pictures[i].name);
    snprintf(picture, sizeof picture, "%.4000s/%s.png", f->directory, pictures[i].name);
    BPPSA_TRY(run_command(f, pictures[i].command, settings, &document));
    json_decref(document);
    for (int k = 0; k < 2; ++k) {
      snprintf(line, sizeof line, "%s.%s", pictures[i].name, k == 0 ? "png" : "npz");
      if (json_array_append_new(f->files, json_string(line)) != 0) {
        return bppsa_fail(BPPSA_ERR_MEMORY, "figures: out of memory, expected room for the results");
      }
    }
    bppsa_text_add(html, "<img src=\"%s.png\" alt=\"%s\" width=\"300\">\n", pictures[i].name, pictures[i].name);
  }
  bppsa_text_add(html, "<figcaption>Yellow: not 0; cyan: possibly 0; purple: guaranteed zeros.</figcaption>\n</figure>\n");
  return BPPSA_OK;
}

/* ---- figure 6 ---- */

static const char figure6_script[] =
    "# gnuplot -c figure6.gp svg|png: draws figure6.csv\n"
    "set output 'figure6.' . ARG1\n"
    "if (ARG1 eq 'svg') {\n"
    "  set terminal svg size 1000,420 font 'DejaVu Sans,13' background rgb 'white' noenhanced\n"
    "} else {\n"
    "  set terminal pngcairo size 1000,420 font 'DejaVu Sans,10' background rgb 'white' noenhanced\n"
    "}\n"
    "set datafile separator ','\n"
    "set grid back lt 1 lw 1 lc rgb '#dddddd'\n"
    "set border 3\n"
    "set tics nomirror out\n"
    "set xlabel 'epoch'\n"
    "set ylabel 'loss'\n"
    "at(rate, who, column_) = (strcol(1) eq rate && strcol(2) eq who ? column(column_) : NaN)\n"
    "set multiplot layout 1,2\n"
    "do for [rate in '0.001 0.01'] {\n"
    "  set title 'learning rate '.rate\n"
    "  plot 'figure6.csv' using 3:(at(rate, 'bp', 4)) every ::1 with lines lw 3 lc rgb '#999999' title 'BP, training', \\\n"
    "       '' using 3:(at(rate, 'scan', 4)) every ::1 with points pt 7 ps 0.6 lc rgb '#c0392b' title 'scan, training', \\\n"
    "       '' using 3:(at(rate, 'bp', 5)) every ::1 with lines lw 3 dt 2 lc rgb '#555555' title 'BP, test', \\\n"
    "       '' using 3:(at(rate, 'scan', 5)) every ::1 with points pt 6 ps 0.9 lc rgb '#2c6fbb' title 'scan, test'\n"
    "}\n"
    "unset multiplot\n";

/* The data set: --data, or a synthetic one in the directory. */
static bppsa_status find_images(bppsa_figures *f, char *spec, size_t size) {
  if (f->data != NULL) {
    snprintf(spec, size, "%s", f->data);
    return BPPSA_OK;
  }
  char line[2 * PATH_SIZE];
  json_t *document = NULL;
  snprintf(spec, size, "cifar10:%.3000s/cifar", f->directory);
  snprintf(line, sizeof line, "%s/test_batch.bin", spec + strlen("cifar10:"));
  FILE *made = fopen(line, "rb");
  if (made != NULL) {
    fclose(made);
    return BPPSA_OK;
  }
  const bool quick = bppsa_cli_value(f->cli, BPPSA_OPTION_QUICK)->given;
  const setting settings[] = {{BPPSA_OPTION_SYNTHETIC, NULL},
                              {BPPSA_OPTION_SEED, "1"},
                              {BPPSA_OPTION_OUT, spec + strlen("cifar10:")},
                              {quick ? BPPSA_OPTION_SAMPLES : BPPSA_OPTION_COUNT, "512"},
                              END};
  BPPSA_TRY(run_command(f, &bppsa_command_data_cifar10, settings, &document));
  json_decref(document);
  return BPPSA_OK;
}

/* Trains by one method at one learning rate: a row an epoch. */
static bppsa_status train_curve(const bppsa_figures *f, const char *spec, const char *rate, const char *who, const char *name) {
  char seed[24];
  json_t *document = NULL;
  const bool bp = strcmp(who, "bp") == 0;
  const setting settings[] = {{BPPSA_OPTION_DATA, spec},
                              {BPPSA_OPTION_LR, rate},
                              {BPPSA_OPTION_EPOCHS, bppsa_cli_value(f->cli, BPPSA_OPTION_QUICK)->given ? "2" : "20"},
                              {BPPSA_OPTION_SEED, seed},
                              {bp ? BPPSA_OPTION_BACKWARD : BPPSA_OPTION_UP_LEVELS, bp ? "bp" : "1"},
                              END};
  snprintf(seed, sizeof seed, "%" PRIu64, f->seed);
  const bppsa_status status = run_command(f, &bppsa_command_train_lenet5, settings, &document);
  json_t *rows = json_incref(json_object_get(document, "rows"));
  json_decref(document);
  if (status != BPPSA_OK && !bppsa_interrupt_pending()) { /* a signal ends the training too, and keep_part says how to go on */
    json_decref(rows);
    return status;
  }
  return keep_part(f, name, rows);
}

/* One curve: a line an epoch. *last: its final loss. */
static bppsa_status add_curve(const bppsa_figures *f, const char *spec, const char *rate, const char *who, bppsa_text *csv,
                              double *last) {
  char name[64];
  snprintf(name, sizeof name, "figure6 lr %s %s", rate, who);
  BPPSA_TRY(find_part(f, name) != NULL ? BPPSA_OK : train_curve(f, spec, rate, who, name));
  const json_t *rows = find_part(f, name);
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    bppsa_text_add(csv, "%s,%s", rate, who);
    bppsa_text_add_cells(csv, 4,
                         (double[]){number_of(row, "epoch"), number_of(row, "loss"), number_of(row, "validation_loss"),
                                    number_of(row, "validation_accuracy")});
    bppsa_text_add(csv, "\n");
    *last = number_of(row, "loss");
  }
  return BPPSA_OK;
}

static bppsa_status make_figure6(bppsa_figures *f, bppsa_text *html) {
  static const char *const rates[] = {"0.001", "0.01"}, *const methods[] = {"bp", "scan"};
  char spec[PATH_SIZE], caption[400];
  double last[2][2] = {{0}};
  bppsa_text csv = {0};
  bppsa_text_add(&csv, "lr,method,epoch,training_loss,test_loss,test_accuracy\n");
  bppsa_status status = find_images(f, spec, sizeof spec);
  for (int i = 0; status == BPPSA_OK && i < 4; ++i) {
    status = add_curve(f, spec, rates[i / 2], methods[i % 2], &csv, &last[i / 2][i % 2]);
  }
  status = status == BPPSA_OK ? write_figure(f, "figure6", &csv, figure6_script) : status;
  bppsa_text_free(&csv);
  BPPSA_TRY(status);
  snprintf(caption, sizeof caption,
           "LeNet-5, B = 256, SGD with momentum 0.9, one seed, by BP and by the scan with one up-level, float32, %s. Training "
           "losses of the last "
           "epoch: %.4f and %.4f at the paper's 0.001, %.4f and %.4f at 0.01.",
           f->data != NULL ? f->data : "synthetic images", last[0][0], last[0][1], last[1][0], last[1][1]);
  return bppsa_figures_add_plot(f, html, "figure6", "Figure 6: convergence of LeNet-5", caption);
}

/* ---- figure 10 ---- */

static const char figure10_script[] =
    "# gnuplot -c figure10.gp svg|png: draws figure10.csv\n"
    "set output 'figure10.' . ARG1\n"
    "if (ARG1 eq 'svg') {\n"
    "  set terminal svg size 1000,460 font 'DejaVu Sans,13' background rgb 'white' noenhanced\n"
    "} else {\n"
    "  set terminal pngcairo size 1000,460 font 'DejaVu Sans,10' background rgb 'white' noenhanced\n"
    "}\n"
    "set datafile separator ','\n"
    "set grid back lt 1 lw 1 lc rgb '#dddddd'\n"
    "set border 3\n"
    "set tics nomirror out\n"
    "set logscale xy\n"
    "set xlabel 'm k n'\n"
    "set ylabel 'FLOP'\n"
    "set key below\n"
    "of(pattern, op, critical) = (strcol(1) eq pattern && strcol(3) eq op && column(6) == critical && column(5) > 0 ? column(5) "
    ": NaN)\n"
    "set multiplot layout 1,2\n"
    "do for [pattern in 'value guaranteed'] {\n"
    "  set title pattern.' patterns'\n"
    "  plot 'figure10.csv' using 4:(of(pattern, 'mm', 0)) every ::1 with points pt 7 lc rgb '#8fb8de' title 'mat-mat', \\\n"
    "       '' using 4:(of(pattern, 'mm', 1)) every ::1 with points pt 7 ps 1.4 lc rgb '#c0392b' title 'mat-mat, critical', \\\n"
    "       '' using 4:(of(pattern, 'mv', 0)) every ::1 with points pt 5 lc rgb '#b7d7a8' title 'mat-vec', \\\n"
    "       '' using 4:(of(pattern, 'mv', 1)) every ::1 with points pt 5 ps 1.4 lc rgb '#e67e22' title 'mat-vec, critical', \\\n"
    "       '' using 4:(of(pattern, 'bp', 0)) every ::1 with points pt 2 lc rgb '#333333' title 'BP, unpruned'\n"
    "}\n"
    "unset multiplot\n";

/* The steps of one kind of pattern, and the baseline of the unpruned network's operators. */
static void add_steps(const json_t *document, const json_t *unpruned, const char *pattern, bppsa_text *csv) {
  const json_t *steps = json_object_get(document, "steps"), *ops = json_object_get(unpruned, "operators");
  for (size_t i = 0; i < json_array_size(steps); ++i) {
    const json_t *s = json_array_get(steps, i);
    if (!json_is_true(json_object_get(s, "dead"))) {
      bppsa_text_add(csv, "%s,%s,%s", pattern, text_of(s, "phase"), text_of(s, "op"));
      bppsa_text_add_cells(csv, 2, (double[]){number_of(s, "m") * number_of(s, "k") * number_of(s, "n"), number_of(s, "flops")});
      bppsa_text_add(csv, ",%d,%s\n", json_is_true(json_object_get(s, "critical")), text_of(s, "out"));
    }
  }
  for (size_t i = 0; i < json_array_size(ops); ++i) {
    const json_t *o = json_array_get(ops, i);
    bppsa_text_add(csv, "%s,bp,bp", pattern);
    bppsa_text_add_cells(csv, 2, (double[]){number_of(o, "rows") * number_of(o, "cols"), number_of(o, "baseline_flops")});
    bppsa_text_add(csv, ",0,%s\n", text_of(o, "name"));
  }
}

static bppsa_status make_figure10(bppsa_figures *f, bppsa_text *html) {
  static const char *const patterns[] = {"value", "guaranteed"};
  json_t *unpruned = NULL, *counted[2] = {NULL, NULL};
  char seed[24], caption[3000];
  bppsa_text csv = {0};
  bppsa_text_add(&csv, "pattern,phase,op,mkn,flops,critical,result\n");
  bppsa_status status = run_command(f, &bppsa_command_flops_vgg11, (const setting[]){{BPPSA_OPTION_LEVELS, "2"}, END}, &unpruned);
  snprintf(seed, sizeof seed, "%" PRIu64, f->seed);
  for (int i = 0; status == BPPSA_OK && i < 2; ++i) {
    const setting settings[] = {
        {BPPSA_OPTION_PRUNE, "0.97"}, {BPPSA_OPTION_METHOD, "class-uniform"},    {BPPSA_OPTION_SEED, seed},
        {BPPSA_OPTION_LEVELS, "2"},   {BPPSA_OPTION_FLOPS_PATTERN, patterns[i]}, END};
    status = run_command(f, &bppsa_command_flops_vgg11, settings, &counted[i]);
    if (status == BPPSA_OK) {
      add_steps(counted[i], unpruned, patterns[i], &csv);
    }
  }
  status = status == BPPSA_OK ? write_figure(f, "figure10", &csv, figure10_script) : status;
  if (status == BPPSA_OK) {
    snprintf(caption, sizeof caption,
             "VGG-11 with 3 %% of its weights (class-uniform, PyTorch's initialisation, seed %" PRIu64
             "), two up-levels. By values: %s. Guaranteed: %s. The dominating steps: %s; %s.",
             f->seed, text_of(counted[0], "conclusion"), text_of(counted[1], "conclusion"), text_of(counted[0], "dominant"),
             text_of(counted[1], "dominant"));
    status = bppsa_figures_add_plot(f, html, "figure10", "Figure 10: FLOPs of every step of a pruned VGG-11", caption);
  }
  bppsa_text_free(&csv);
  json_decref(unpruned);
  json_decref(counted[0]);
  json_decref(counted[1]);
  return status;
}

/* ---- all of it ---- */

bppsa_status bppsa_figures_cnn(bppsa_figures *f) {
  bppsa_text html = {0};
  bppsa_text_add(
      &html,
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>bppsa: convolutional networks</title>\n"
      "<style>%s</style>\n</head>\n<body>\n<h1>Convolutional networks: table 1, figures 5, 6 and 10</h1>\n",
      bppsa_figures_style);
  bppsa_status status = open_document(f);
  status = status == BPPSA_OK ? make_table1(f, &html) : status;
  status = status == BPPSA_OK ? make_figure5(f, &html) : status;
  status = status == BPPSA_OK ? make_figure6(f, &html) : status;
  status = status == BPPSA_OK ? make_figure10(f, &html) : status;
  bppsa_text_add(&html, "</body>\n</html>\n");
  status = status == BPPSA_OK ? bppsa_figures_write(f, "networks.html", &html) : status;
  bppsa_text_free(&html);
  return status == BPPSA_OK ? bppsa_figures_keep(f, kept_name, f->document, true) : status;
}
