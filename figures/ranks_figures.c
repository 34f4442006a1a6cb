/* The figures of `bench ranks`: time and memory of a rank against the number of ranks, measured, by the model, and as BPPSA's
 * section 3.6 says that they grow. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "figures/drawn_rows.h"
#include "figures/figure_data.h"
#include "figures/measured_rows.h"

/* ---- rows ---- */

bppsa_status bppsa_ranks_rows_check(const char *path, const json_t *rows) {
  static const bppsa_row_field fields[] = {
      {"batch", BPPSA_ROW_INTEGER}, {"method", BPPSA_ROW_TEXT},  {"held_bytes", BPPSA_ROW_INTEGER}, {"share", BPPSA_ROW_TEXT},
      {"ranks", BPPSA_ROW_INTEGER}, {"network", BPPSA_ROW_TEXT}, {"ranks", BPPSA_ROW_COUNT},        {NULL, BPPSA_ROW_TEXT}};
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    BPPSA_TRY(bppsa_row_check(path, i, bppsa_row_find_lack(json_array_get(rows, i), fields), "bench ranks"));
  }
  return BPPSA_OK;
}

/* The row of a network's method along time on the fewest ranks above 1, where the paper's curves begin: one rank scans by a local
 * algorithm, which holds more. NULL: there is none. */
static const json_t *first_cut(const json_t *rows, const json_t *of) {
  const json_t *first = NULL, *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    const int64_t ranks = bppsa_measured_integer(row, "ranks");
    if (bppsa_measured_is(row, "share", "time") &&
        strcmp(bppsa_measured_text(row, "network"), bppsa_measured_text(of, "network")) == 0 &&
        strcmp(bppsa_measured_text(row, "method"), bppsa_measured_text(of, "method")) == 0 && ranks > 1 &&
        (first == NULL || ranks < bppsa_measured_integer(first, "ranks"))) {
      first = row;
    }
  }
  return first;
}

/* Section 3.6: a worker of the scan holds max(n / p, 1) Jacobians, one of a pipeline n / p + p activations. Both are scaled so that
 * they begin with what a rank holds where its method is first cut. */
static double curve_of(const json_t *rows, const json_t *row) {
  const json_t *first = first_cut(rows, row);
  const double n = bppsa_measured_real(row, "seq_len"), p = bppsa_measured_real(row, "ranks");
  if (first == NULL || p < bppsa_measured_real(first, "ranks")) {
    return (double)NAN;
  }
  const double q = bppsa_measured_real(first, "ranks"), held = bppsa_measured_real(first, "held_bytes");
  return bppsa_measured_is(row, "method", "bp") ? held * (n / p + p) / (n / q + q) : held * fmax(n / p, 1) / fmax(n / q, 1);
}

/* ---- data ---- */

bppsa_status bppsa_make_ranks(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  const json_t *rows = bppsa_figures_rows(f), *row;
  const char *share = figure->of;
  size_t i;
  int64_t count = 0;
  json_array_foreach(rows, i, row) {
    if (!bppsa_measured_is(row, "share", share)) {
      continue;
    }
    bppsa_text_add(&made->csv, "%s", count++ == 0 ? "network,method,ranks,median_ms,model_ms,noisy,held_mb,curve_mb\n" : "");
    bppsa_text_add(&made->csv, "%s,%s,%" PRId64, bppsa_measured_text(row, "network"), bppsa_measured_text(row, "method"),
                   bppsa_measured_integer(row, "ranks"));
    bppsa_text_add_cells(&made->csv, 5,
                         (double[]){1e3 * bppsa_measured_real(row, "median_s"), 1e3 * bppsa_measured_real(row, "model_s"),
                                    json_is_true(json_object_get(row, "noisy")) ? 1 : 0,
                                    1e-6 * bppsa_measured_real(row, "held_bytes"), 1e-6 * curve_of(rows, row)});
    bppsa_text_add(&made->csv, "\n");
  }
  made->left_out = count == 0;
  return BPPSA_OK;
}
