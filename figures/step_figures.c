/* The figures of `bench step`: the paths of both passes on the way through training, and what the parts of a step take.
 * bench/scripts/steps.py writes documents with all rows that they take. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "figures/drawn_rows.h"
#include "figures/figure_data.h"
#include "figures/measured_rows.h"

/* ---- rows ---- */

enum { MOST_PANELS = 6, PANEL = BPPSA_MEASURED_ROW_NAME, NUMBERS = 4 };

/* Was it measured on the weights of a training run, with both passes speculated? */
static bool is_of_path(const json_t *row) {
  return bppsa_measured_is(row, "method", "both") && json_is_integer(json_object_get(row, "iterations"));
}

/* Does it say what the parts of a step take, of one sample and default weights? */
static bool is_of_parts(const json_t *row) {
  return bppsa_measured_integer(row, "batch") == 1 && bppsa_measured_is(row, "init", "default") &&
         json_is_number(json_object_get(row, "forward_s"));
}

/* The panel of a row: "bitstream_T1000" or "rnn_T1000". */
static const char *panel_of(const json_t *row, char *name) {
  snprintf(name, PANEL, "%s_T%" PRId64, bppsa_measured_text(row, is_of_path(row) ? "task" : "model"),
           bppsa_measured_integer(row, "seq_len"));
  return name;
}

/* The first number that is missing or that gnuplot cannot draw; NULL: there is none. */
static const char *wrong_number(const json_t *row, const char *const keys[NUMBERS], const double least[NUMBERS]) {
  for (int k = 0; k < NUMBERS && keys[k] != NULL; ++k) {
    const double found = bppsa_measured_real(row, keys[k]);
    if (!(found >= least[k] && found <= 1e15)) {
      return keys[k];
    }
  }
  return NULL;
}

/* The first member that a row of a figure lacks; NULL: there is none, or the row is of no figure. */
static const char *find_lack(const json_t *row) {
  static const char *const paths[NUMBERS] = {"path", "backward_path", "possible", "backward_possible"}, *const parts[NUMBERS] = {
                                                                                                            "forward_s",
                                                                                                            "backward_s",
                                                                                                            "other_s", NULL};
  static const bppsa_row_field fields[] = {{"task", BPPSA_ROW_TEXT}, {NULL, BPPSA_ROW_TEXT}};
  if (is_of_path(row)) {
    const char *lacks = bppsa_row_find_lack(row, fields);
    return lacks != NULL ? lacks : wrong_number(row, paths, (double[]){0, 0, 1, 1});
  }
  return is_of_parts(row) ? wrong_number(row, parts, (double[]){0, 0, 0, 0}) : NULL;
}

/* Refuses more than MOST_PANELS panels of a figure. */
static bppsa_status check_panels(const char *path, const json_t *rows, bool (*is_of)(const json_t *row)) {
  const int64_t count = bppsa_measured_count_names(rows, is_of, panel_of);
  return count < 0 ? bppsa_figures_no_room()
         : count <= MOST_PANELS
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_FORMAT,
                          "--results: %s: %" PRId64 " tasks or networks, each at a length of its own, expected at most %d", path,
                          count, MOST_PANELS);
}

bppsa_status bppsa_step_rows_check(const char *path, const json_t *rows) {
  static const bppsa_row_field fields[] = {{"model", BPPSA_ROW_TEXT},    {"init", BPPSA_ROW_TEXT},   {"method", BPPSA_ROW_TEXT},
                                           {"seq_len", BPPSA_ROW_COUNT}, {"batch", BPPSA_ROW_COUNT}, {"hidden", BPPSA_ROW_COUNT},
                                           {NULL, BPPSA_ROW_TEXT}};
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    const char *lacks = bppsa_row_find_lack(row, fields);
    BPPSA_TRY(bppsa_row_check(path, i, lacks != NULL ? lacks : find_lack(row), "bench step"));
  }
  BPPSA_TRY(check_panels(path, rows, is_of_path));
  return check_panels(path, rows, is_of_parts);
}

/* ---- paths ---- */

bppsa_status bppsa_make_step_path(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  const json_t *rows = bppsa_figures_rows(f), *row;
  size_t i;
  int64_t count = 0;
  (void)figure;
  json_array_foreach(rows, i, row) {
    if (!is_of_path(row)) {
      continue;
    }
    bppsa_text_add(&made->csv, "%s",
                   count++ == 0 ? "task,network,iterations,forward_share,backward_share,forward_path,backward_path\n" : "");
    bppsa_text_add(&made->csv, "%s,%s,%" PRId64, panel_of(row, (char[PANEL]){0}), bppsa_measured_text(row, "model"),
                   bppsa_measured_integer(row, "iterations"));
    const double forward = bppsa_measured_real(row, "path"), backward = bppsa_measured_real(row, "backward_path");
    bppsa_text_add_cells(&made->csv, 4,
                         (double[]){forward / bppsa_measured_real(row, "possible"),
                                    backward / bppsa_measured_real(row, "backward_possible"), forward, backward});
    bppsa_text_add(&made->csv, "\n");
  }
  made->left_out = count == 0;
  return BPPSA_OK;
}

/* ---- the parts of a step ---- */

/* The row of another method of the same network, sizes and weights; NULL: there is none. */
static const json_t *find_beside(const json_t *rows, const json_t *of, const char *method) {
  const json_t *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    if (is_of_parts(row) && bppsa_measured_is(row, "method", method) &&
        bppsa_measured_is(row, "model", bppsa_measured_text(of, "model")) &&
        bppsa_measured_integer(row, "hidden") == bppsa_measured_integer(of, "hidden") &&
        bppsa_measured_integer(row, "seq_len") == bppsa_measured_integer(of, "seq_len")) {
      return row;
    }
  }
  return NULL;
}

static double seconds_of(const json_t *row) {
  return bppsa_measured_real(row, "forward_s") + bppsa_measured_real(row, "backward_s") + bppsa_measured_real(row, "other_s");
}

/* A bar: its place, and its parts over the sequential step. */
static void add_bar(bppsa_text *csv, const json_t *row, double place, double whole_s) {
  static const char *const names[][2] = {{"sequential", "sequential"}, {"scan", "scan"}, {"both", "speculated"}};
  const char *name = "";
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    name = bppsa_measured_is(row, "method", names[i][0]) ? names[i][1] : name;
  }
  bppsa_text_add(csv, "%s,%" PRId64 ",%s", panel_of(row, (char[PANEL]){0}), bppsa_measured_integer(row, "hidden"), name);
  bppsa_text_add_cells(csv, 7,
                       (double[]){place, bppsa_measured_real(row, "forward_s") / whole_s,
                                  bppsa_measured_real(row, "backward_s") / whole_s, bppsa_measured_real(row, "other_s") / whole_s,
                                  seconds_of(row) / whole_s, 1e3 * whole_s, json_is_true(json_object_get(row, "noisy")) ? 1 : 0});
  bppsa_text_add(csv, "\n");
}

bppsa_status bppsa_make_step_parts(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  static const char *const methods[] = {"sequential", "scan", "both"};
  const json_t *rows = bppsa_figures_rows(f), *row;
  char last[PANEL] = "", panel[PANEL];
  double place = 0;
  size_t i;
  int64_t count = 0;
  (void)figure;
  json_array_foreach(rows, i, row) {
    if (!is_of_parts(row) || !bppsa_measured_is(row, "method", "sequential") || !(seconds_of(row) > 0) ||
        find_beside(rows, row, "both") == NULL) {
      continue;
    }
    place = strcmp(panel_of(row, panel), last) == 0 ? place + 0.6 : 0;
    snprintf(last, sizeof last, "%s", panel);
    bppsa_text_add(&made->csv, "%s",
                   count++ == 0 ? "network,hidden,step,place,forward,backward,other,whole,sequential_ms,noisy\n" : "");
    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; ++m) {
      const json_t *bar = find_beside(rows, row, methods[m]);
      if (bar != NULL) {
        add_bar(&made->csv, bar, place += 1, seconds_of(row));
      }
    }
  }
  made->left_out = count == 0;
  return BPPSA_OK;
}
