/* A run of figures for tests: on one thread, in the working directory, with rows that a benchmark could have measured. */
#ifndef BPPSA_TESTS_FIGURES_FIXTURE_H
#define BPPSA_TESTS_FIGURES_FIXTURE_H

#include "tests/cli/run_cli.h"

#include "core/files/json.h"
#include "figures/figure.h"

typedef struct {
  bppsa_device *device;
  bppsa_figures_request request;
  bppsa_figures run; /* the run that data functions get */
} fixture;

static inline void add_measured(json_t *rows, int64_t seq_len, const char *phase, const char *method, double seconds) {
  json_t *row =
      json_pack("{s:I,s:i,s:s,s:s,s:s,s:f,s:f,s:i,s:i}", "seq_len", (json_int_t)seq_len, "batch", 16, "init", "default", "phase",
                phase, "method", method, "median_s", seconds, "min_s", seconds, "flops", 7, "critical_steps", 3);
  assert_int_equal(json_array_append_new(rows, row), 0);
}

/* Rows for points of table 4 (BP takes twice as long as Blelloch's scan) and of table 6. */
static inline json_t *measured_rows(void) {
  static const int64_t lengths[] = {10, 100, 300, 1000, 259};
  json_t *rows = json_array();
  for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; ++i) {
    const double seconds = 1e-3 * (double)lengths[i];
    add_measured(rows, lengths[i], "forward", "forward", seconds);
    add_measured(rows, lengths[i], "backward", "bp", 2 * seconds);
    add_measured(rows, lengths[i], "backward", "blelloch", seconds);
    add_measured(rows, lengths[i], "backward", "chunked", 3 * seconds);
  }
  return rows;
}

static inline void add_ranks(json_t *rows, const char *share, const char *method, int64_t ranks, double seconds, int64_t held) {
  json_t *row = json_pack("{s:s,s:s,s:s,s:I,s:i,s:i,s:f,s:f,s:b,s:I}", "network", "gru", "share", share, "method", method,
                          "ranks", (json_int_t)ranks, "batch", 16, "seq_len", 100, "median_s", seconds, "model_s", seconds / 2,
                          "noisy", ranks == 2, "held_bytes", (json_int_t)held);
  assert_int_equal(json_array_append_new(rows, row), 0);
}

/* Rows of bench ranks: every rank holds less than n / p of what one holds. */
static inline json_t *ranked_rows(void) {
  json_t *rows = json_array();
  add_ranks(rows, "alone", "bp", 1, 0.008, 8000000);
  for (int64_t p = 1; p <= 4; p *= 2) {
    add_ranks(rows, "time", "bp", p, 0.008 / (double)p, 8000000 / p);
    add_ranks(rows, "time", "blelloch", p, 0.016, 9000000 / p);
    add_ranks(rows, "batch", "wait-free", p, 0.008 / (double)p, 7000000);
  }
  return rows;
}

static inline void add_forward(json_t *rows, const char *model, int64_t seq_len, const char *phase, const char *method,
                               double seconds) {
  json_t *row =
      json_pack("{s:s,s:s,s:I,s:i,s:i,s:s,s:s,s:f,s:b}", "model", model, "init", "default", "seq_len", (json_int_t)seq_len,
                "batch", 1, "hidden", 20, "phase", phase, "method", method, "median_s", seconds, "noisy", seq_len == 3000);
  assert_int_equal(json_array_append_new(rows, row), 0);
}

/* Rows of bench forward: half of the time, and half of the path after 50 iterations of training. */
static inline json_t *forward_rows(void) {
  json_t *rows = json_array();
  for (int64_t t = 1000; t <= 3000; t += 2000) {
    add_forward(rows, "rnn", t, "forward", "sequential", 0.5);
    add_forward(rows, "rnn", t, "forward", "speculative", 0.25);
    add_forward(rows, "rnn", t, "backward", "linear", 2);
    add_forward(rows, "rnn", t, "backward", "bp", 1.5);
  }
  for (int64_t iterations = 50; iterations <= 100; iterations += 50) {
    json_t *row =
        json_pack("{s:s,s:s,s:i,s:i,s:i,s:s,s:s,s:I,s:i,s:I,s:i,s:f,s:i}", "model", "gru", "init", "trained", "seq_len", 1000,
                  "batch", 16, "hidden", 20, "phase", "forward", "method", "speculative", "iterations", (json_int_t)iterations,
                  "train_seed", 2, "path", (json_int_t)(10 * iterations), "possible", 1000, "work", 2.0, "tails", 0);
    assert_int_equal(json_array_append_new(rows, row), 0);
  }
  return rows;
}

static inline void add_step(json_t *rows, int64_t hidden, const char *method, double seconds) {
  json_t *row = json_pack("{s:s,s:s,s:I,s:i,s:I,s:s,s:f,s:f,s:f,s:f,s:b}", "model", "lstm", "init", "default", "seq_len",
                          (json_int_t)1000, "batch", 1, "hidden", (json_int_t)hidden, "method", method, "median_s", seconds,
                          "forward_s", seconds / 4, "backward_s", seconds / 2, "other_s", seconds / 4, "noisy", hidden == 64);
  assert_int_equal(json_array_append_new(rows, row), 0);
}

/* Rows of bench step: half of the time with both passes speculated, which a rival without parts beats; and paths after 50 and 100
 * iterations of training. */
static inline json_t *step_rows(void) {
  json_t *rows = json_array(), *rival = json_pack("{s:s,s:s,s:i,s:i,s:i,s:s,s:f}", "model", "lstm", "init", "default", "seq_len",
                                                  1000, "batch", 1, "hidden", 20, "method", "pytorch", "median_s", 0.125);
  add_step(rows, 20, "sequential", 1);
  add_step(rows, 20, "scan", 4);
  add_step(rows, 20, "both", 0.5);
  add_step(rows, 64, "sequential", 2);
  add_step(rows, 64, "both", 1);
  assert_int_equal(json_array_append_new(rows, rival), 0);
  for (int64_t iterations = 50; iterations <= 100; iterations += 50) {
    json_t *row = json_pack("{s:s,s:s,s:s,s:i,s:i,s:i,s:s,s:I,s:I,s:I,s:i,s:i}", "model", "gru", "init", "trained", "task",
                            "delay", "seq_len", 1000, "batch", 16, "hidden", 20, "method", "both", "iterations",
                            (json_int_t)iterations, "path", (json_int_t)(10 * iterations), "backward_path",
                            (json_int_t)(5 * iterations), "possible", 1000, "backward_possible", 1000);
    assert_int_equal(json_array_append_new(rows, row), 0);
  }
  return rows;
}

static inline void add_staleness(json_t *rows, const char *study, const char *scheme, int64_t seed, double accuracy) {
  json_t *row = json_pack("{s:s,s:s,s:s,s:I,s:f,s:f,s:f,s:[[f,f,f],[f,f,f]]}", "study", study, "task", "lenet5", "scheme", scheme,
                          "seed", (json_int_t)seed, "min_train_loss", 1 - accuracy, "min_validation_loss", 2 - accuracy,
                          "max_validation_accuracy", accuracy, "epochs", 2.0, 2.0, 0.125, 1 - accuracy, 2 - accuracy, accuracy);
  assert_int_equal(json_array_append_new(rows, row), 0);
}

/* Rows of bench/scripts/spectrain.py: predictions half as far off as old weights; accuracies of 0.5 and 0.75, and of 0.25. */
static inline json_t *staleness_rows(void) {
  json_t *rows = json_array();
  for (int64_t ahead = 1; ahead <= 3; ++ahead) {
    const double stale = 0.25 * (double)ahead;
    json_t *row = json_pack("{s:s,s:s,s:s,s:I,s:f,s:f,s:f,s:[[i,f,f],[i,f,f]]}", "study", "rmse", "task", "gru", "optimizer",
                            "sgd", "ahead", (json_int_t)ahead, "stale", stale, "predicted", stale / 2, "nearer", 0.875, "curve",
                            5, stale, stale / 2, 15, stale, stale / 4);
    assert_int_equal(json_array_append_new(rows, row), 0);
  }
  for (int64_t seed = 1; seed <= 2; ++seed) {
    add_staleness(rows, "accuracy", "vanilla", seed, 0.25 + 0.25 * (double)seed);
    add_staleness(rows, "accuracy", "SpecTrain", seed, 0.25);
    add_staleness(rows, "adam", "PipeDream", seed, 0.5);
  }
  return rows;
}

static inline void add_way(json_t *rows, const char *group, const char *way, double least, double median, double most) {
  json_t *row = json_pack("{s:s,s:s,s:b,s:f,s:f,s:f,s:b}", "group", group, "way", way, "same_bits", strcmp(way, "k = 2") != 0,
                          "median_s", median, "min_s", least, "max_s", most, "noisy", median > 1.25 * least);
  assert_int_equal(json_array_append_new(rows, row), 0);
}

/* Rows of bench/scripts/out_of_order.py: in one group a way that is slower and one that is faster, in the other ranges that
 * overlap, noise, and other bits. */
static inline json_t *out_of_order_rows(void) {
  json_t *rows = json_array();
  add_way(rows, "one device", "in order", 0.5, 0.5, 0.625);
  add_way(rows, "one device", "multi-stream", 0.75, 0.75, 1);
  add_way(rows, "one device", "faster", 0.25, 0.25, 0.375);
  add_way(rows, "batch", "k = 0", 1, 1, 2);
  add_way(rows, "batch", "k = 1", 1.5, 1.5, 3);
  add_way(rows, "batch", "k = 2", 0.5, 0.75, 0.875);
  return rows;
}

/* The runs whose rows a document gives, and their rows. */
static const struct {
  const char *run;
  json_t *(*rows)(void);
} drawn_runs[] = {{"ranks", ranked_rows},
                  {"forward", forward_rows},
                  {"step", step_rows},
                  {"staleness", staleness_rows},
                  {"out_of_order", out_of_order_rows}};

/* run: "rnn", "gru", "cnn" or one of these. */
static inline void open_run(fixture *f, const char *run) {
  const bool cnn = strcmp(run, "cnn") == 0;
  bool drawn = false;
  json_t *(*rows)(void) = measured_rows;
  for (size_t i = 0; i < sizeof drawn_runs / sizeof drawn_runs[0]; ++i) {
    drawn = drawn || strcmp(run, drawn_runs[i].run) == 0;
    rows = strcmp(run, drawn_runs[i].run) == 0 ? drawn_runs[i].rows : rows;
  }
  const bppsa_figure_page *page = bppsa_figure_pages;
  while (strcmp(page->run, run) != 0) {
    ++page;
  }
  *f = (fixture){0};
  assert_int_equal(bppsa_device_create("cpu", 1, &f->device), BPPSA_OK);
  f->request = (bppsa_figures_request){.to = {.out = stdout, .err = stderr},
                                       .directory = ".",
                                       .kind = bppsa_network_kind_find(cnn || drawn ? "rnn" : run),
                                       .cnn = cnn,
                                       .quick = true,
                                       .seq_len = 3,
                                       .batch = 2,
                                       .hidden = 2,
                                       .iterations = 1,
                                       .repeats = 1,
                                       .device = f->device,
                                       .configuration = json_pack("{s:i}", "--seed", 0)};
  f->run = (bppsa_figures){.request = &f->request,
                           .kind = f->request.kind,
                           .page = page,
                           .document = json_pack("{s:s,s:o,s:[]}", "bench", run, "rows", rows(), "parts"),
                           .files = json_array(),
                           .gnuplot = true};
  assert_non_null(f->run.document);
}

static inline void close_run(fixture *f) {
  json_decref(f->run.document);
  json_decref(f->run.files);
  json_decref(f->request.configuration);
  bppsa_device_destroy(f->device);
}

static inline void free_content(bppsa_figure_content *content) {
  bppsa_text *const texts[] = {&content->csv, &content->svg, &content->script, &content->html, &content->caption};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
    bppsa_text_free(texts[i]);
  }
  *content = (bppsa_figure_content){0};
}

/* The figure of that name in the table of figures. */
static inline const bppsa_figure *find_figure(const char *name) {
  for (int i = 0; i < bppsa_figure_count; ++i) {
    if (strcmp(bppsa_figure_table[i].name, name) == 0) {
      return &bppsa_figure_table[i];
    }
  }
  fail_msg("no row '%s'", name);
  return NULL;
}

static inline char *read_text(const char *path) {
  size_t size;
  char *text = read_bytes(path, &size);
  text[size] = '\0'; /* read_bytes allocates room for it */
  return text;
}

/* Hides gnuplot from the program, or makes it visible again. */
static inline void hide_gnuplot(bool hidden) {
  static char path[4096];
  if (hidden) {
    snprintf(path, sizeof path, "%s", getenv("PATH"));
  }
  assert_int_equal(setenv("PATH", hidden ? "/nonexistent" : path, 1), 0);
}

static inline bool has_gnuplot(void) {
  return system("gnuplot --version >/dev/null 2>&1") == 0;
}

#endif
