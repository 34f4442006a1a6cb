/* The figures of `bench forward`: paths on the way through training, and the time of a step with and without parallel forward
 * passes. bench/scripts/forward.py writes documents with all rows that they take. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "figures/drawn_rows.h"
#include "figures/figure_data.h"
#include "figures/measured_rows.h"

/* ---- rows ---- */

/* The name of a trained network. */
enum { NAME = BPPSA_MEASURED_ROW_NAME, MOST_NETWORKS = 64 };
static const char *name_of(const json_t *row, char *name) {
  snprintf(name, NAME, "%s_%" PRId64 "_T%" PRId64, bppsa_measured_text(row, "model"), bppsa_measured_integer(row, "train_seed"),
           bppsa_measured_integer(row, "seq_len"));
  return name;
}

/* Does the row hold the path of a trained network? Rows with a batch of one sample hold times instead. */
static bool is_of_path(const json_t *row) {
  return bppsa_measured_is(row, "method", "speculative") && json_is_integer(json_object_get(row, "iterations")) &&
         bppsa_measured_integer(row, "batch") >= 2;
}

/* The first number of a path that is missing or that gnuplot cannot draw; NULL: there is none. */
static const char *wrong_in_path(const json_t *row) {
  static const struct {
    const char *key;
    double least;
  } numbers[] = {{"path", 0}, {"possible", 1}, {"work", 0}, {"tails", 0}};
  for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; ++k) {
    const double found = bppsa_measured_real(row, numbers[k].key);
    if (!(found >= numbers[k].least && found <= 1e15)) {
      return numbers[k].key;
    }
  }
  return NULL;
}

/* Refuses paths of more than MOST_NETWORKS networks, because gnuplot starts awk once for each network. */
static bppsa_status check_networks(const char *path, const json_t *rows) {
  const int64_t count = bppsa_measured_count_names(rows, is_of_path, name_of);
  return count < 0 ? bppsa_figures_no_room()
         : count <= MOST_NETWORKS
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_FORMAT, "--results: %s: paths of %" PRId64 " trained networks, expected at most %d", path,
                          count, MOST_NETWORKS);
}

bppsa_status bppsa_forward_rows_check(const char *path, const json_t *rows) {
  static const bppsa_row_field fields[] = {{"model", BPPSA_ROW_TEXT},   {"init", BPPSA_ROW_TEXT},     {"method", BPPSA_ROW_TEXT},
                                           {"phase", BPPSA_ROW_TEXT},   {"seq_len", BPPSA_ROW_COUNT}, {"batch", BPPSA_ROW_COUNT},
                                           {"hidden", BPPSA_ROW_COUNT}, {NULL, BPPSA_ROW_TEXT}};
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    const char *lacks = bppsa_row_find_lack(row, fields);
    lacks = lacks == NULL && is_of_path(row) ? wrong_in_path(row) : lacks;
    BPPSA_TRY(bppsa_row_check(path, i, lacks, "bench forward"));
  }
  return check_networks(path, rows);
}

/* ---- paths ---- */

bppsa_status bppsa_make_forward_path(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  const json_t *rows = bppsa_figures_rows(f), *row;
  size_t i;
  int64_t count = 0;
  (void)figure;
  json_array_foreach(rows, i, row) {
    if (!is_of_path(row)) {
      continue;
    }
    bppsa_text_add(&made->csv, "%s", count++ == 0 ? "network,iterations,path,share,work,tails\n" : "");
    bppsa_text_add(&made->csv, "%s,%" PRId64, name_of(row, (char[NAME]){0}), bppsa_measured_integer(row, "iterations"));
    bppsa_text_add_cells(&made->csv, 4,
                         (double[]){bppsa_measured_real(row, "path"),
                                    bppsa_measured_real(row, "path") / bppsa_measured_real(row, "possible"),
                                    bppsa_measured_real(row, "work"), bppsa_measured_real(row, "tails")});
    bppsa_text_add(&made->csv, "\n");
  }
  made->left_out = count == 0;
  return BPPSA_OK;
}

/* ---- the time of a step ---- */

/* Is it a row of the same network, sizes and weights? */
static bool is_beside(const json_t *row, const json_t *other) {
  static const char *const sizes[] = {"seq_len", "batch", "hidden"};
  bool same = strcmp(bppsa_measured_text(row, "model"), bppsa_measured_text(other, "model")) == 0 &&
              strcmp(bppsa_measured_text(row, "init"), bppsa_measured_text(other, "init")) == 0;
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    same = same && bppsa_measured_integer(row, sizes[i]) == bppsa_measured_integer(other, sizes[i]);
  }
  return same;
}

/* The fastest backward pass beside a row of a forward pass, or the forward pass of a method; NULL: there is none. */
static const json_t *find_beside(const json_t *rows, const json_t *of, const char *phase, const char *method) {
  const json_t *best = NULL, *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    if (is_beside(row, of) && bppsa_measured_is(row, "phase", phase) &&
        (method == NULL || bppsa_measured_is(row, "method", method)) && isfinite(bppsa_measured_real(row, "median_s")) &&
        (best == NULL || bppsa_measured_real(row, "median_s") < bppsa_measured_real(best, "median_s"))) {
      best = row;
    }
  }
  return best;
}

static void add_step(bppsa_text *csv, const json_t *forward, const json_t *backward, double whole_s) {
  const double forward_s = bppsa_measured_real(forward, "median_s"),
               backward_s = backward != NULL ? bppsa_measured_real(backward, "median_s") : 0;
  const bool noisy = json_is_true(json_object_get(forward, "noisy")) || json_is_true(json_object_get(backward, "noisy"));
  bppsa_text_add(csv, "%s,%" PRId64 ",%s", bppsa_measured_text(forward, "model"), bppsa_measured_integer(forward, "seq_len"),
                 bppsa_measured_text(forward, "method"));
  bppsa_text_add_cells(csv, 5,
                       (double[]){1e3 * forward_s, 1e3 * backward_s, forward_s / whole_s, backward_s / whole_s, noisy ? 1 : 0});
  bppsa_text_add(csv, "\n");
}

/* One sample, 20 hidden units and default weights: for each T the step with a sequential forward pass, then with a speculative one.
 * Without rows of backward passes a step is its forward pass. */
bppsa_status bppsa_make_forward_steps(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  const json_t *rows = bppsa_figures_rows(f), *row;
  size_t i;
  int64_t count = 0;
  (void)figure;
  json_array_foreach(rows, i, row) {
    const json_t *other = NULL;
    if (bppsa_measured_is(row, "phase", "forward") && bppsa_measured_is(row, "method", "sequential") &&
        bppsa_measured_is(row, "init", "default") && bppsa_measured_integer(row, "batch") == 1 &&
        bppsa_measured_integer(row, "hidden") == 20 && isfinite(bppsa_measured_real(row, "median_s"))) {
      other = find_beside(rows, row, "forward", "speculative");
    }
    if (other == NULL) {
      continue;
    }
    const json_t *backward = find_beside(rows, row, "backward", NULL);
    const double whole_s =
        bppsa_measured_real(row, "median_s") + (backward != NULL ? bppsa_measured_real(backward, "median_s") : 0);
    bppsa_text_add(&made->csv, "%s",
                   count++ == 0 ? "network,seq_len,forward_pass,forward_ms,backward_ms,forward_share,backward_share,noisy\n"
                                : "");
    add_step(&made->csv, row, backward, whole_s);
    add_step(&made->csv, other, backward, whole_s);
  }
  made->left_out = count == 0;
  return BPPSA_OK;
}
