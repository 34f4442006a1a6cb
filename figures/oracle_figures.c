/* The page of the oracle: projections of ParaDL's models on its cluster, as bars and lines, beside the numbers that the paper's
 * text gives; it prints no others. */
#include <inttypes.h>
#include <math.h>

#include "figures/oracle_figures.h"
#include "oracle/oracle.h"

/* A question to the oracle with its answer. */
typedef struct {
  bppsa_oracle_model model;
  bppsa_oracle_system system;
  bppsa_oracle_query query;
  bppsa_oracle_rows rows;
} answer;

static void free_answer(answer *a) {
  bppsa_oracle_rows_free(&a->rows);
  bppsa_oracle_model_free(&a->model);
}

/* Free it on failure too. group 0: the processors of a node. */
static bppsa_status ask(const char *model, const char *strategy, int64_t batch, bool strong, int64_t group, int64_t first,
                        int64_t last, answer *a) {
  *a = (answer){.rows = {.best = -1}};
  BPPSA_TRY(bppsa_oracle_system_open(BPPSA_ORACLE_FIGURES_SYSTEM, &a->system));
  BPPSA_TRY(bppsa_oracle_model_open(model, &a->model));
  a->query = bppsa_oracle_query_default(&a->model, &a->system);
  a->query.batch = batch;
  a->query.strong = strong;
  a->query.group = group;
  return bppsa_oracle_ask(&a->query, strategy, first, last, &a->rows);
}

/* ---- bars and lines ---- */

static void add_rows(const bppsa_oracle_rows *rows, bppsa_text *csv) {
  bppsa_text_add(csv, "strategy,processors");
  for (int32_t phase = 0; phase < BPPSA_PHASE_COUNT; ++phase) {
    bppsa_text_add(csv, ",%s_s", bppsa_oracle_phase_name(phase));
  }
  bppsa_text_add(csv, ",time_s,memory_bytes,feasible\n");
  for (int64_t i = 0; i < rows->count; ++i) {
    const bppsa_oracle_row *row = &rows->rows[i];
    bppsa_text_add(csv, "%s,%" PRId64, row->strategy, row->processors);
    for (int phase = 0; phase < BPPSA_PHASE_COUNT; ++phase) {
      bppsa_text_add_cells(csv, 1, (double[]){isnan(row->time_s) ? (double)NAN : row->phase_s[phase]});
    }
    bppsa_text_add_cells(csv, 3, (double[]){row->time_s, row->memory_bytes, row->feasible ? 1 : 0});
    bppsa_text_add(csv, "\n");
  }
}

bppsa_status bppsa_make_oracle(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  const bppsa_oracle_figure *of = figure->of;
  answer a;
  (void)f;
  bppsa_status status = ask(of->model, "serial,data,spatial,filter,channel,data+filter,data+spatial,pipeline", of->batch, true, 0,
                            of->first, of->last, &a);
  if (status == BPPSA_OK) {
    add_rows(&a.rows, &made->csv);
    status = bppsa_oracle_draw(&a.query, &a.rows, &made->svg);
  }
  free_answer(&a);
  return status;
}

/* ---- curves beside published numbers ---- */

/* The time of the halo exchange divided by that of the gradient exchange. */
static double halo_share(const bppsa_oracle_row *row) {
  return row->phase_s[BPPSA_PHASE_HALO] / row->phase_s[BPPSA_PHASE_GRADIENT_EXCHANGE];
}

/* The time of the update divided by that of all computing. */
static double update_share(const bppsa_oracle_row *row) {
  return row->phase_s[BPPSA_PHASE_UPDATE] / row->compute_s;
}

static double epoch_s(const bppsa_oracle_row *row) {
  return row->feasible ? row->time_s : (double)NAN;
}

static void add_point(bppsa_text *csv, const char *curve, int64_t x, double projected, double published) {
  bppsa_text_add(csv, "%s,%" PRId64, curve, x);
  bppsa_text_add_cells(csv, 2, (double[]){projected, published});
  bppsa_text_add(csv, "\n");
}

/* Adds what the paper's text says: a point, or a horizontal line over all x. */
static void add_published(const bppsa_oracle_curve *c, const bppsa_oracle_curves *of, bppsa_text *csv) {
  if (c->published > 0) {
    add_point(csv, c->says, c->published_at > 0 ? c->published_at : of->first, NAN, c->published);
  }
  if (c->published > 0 && c->published_at == 0) {
    add_point(csv, c->says, of->last, NAN, c->published);
  }
}

/* Adds perfect scaling: a line of slope -1 through the curve's first point. */
static void add_perfect(const bppsa_oracle_curve *c, const bppsa_oracle_curves *of, double first, bppsa_text *csv) {
  if (c->perfect) {
    add_point(csv, c->says, of->first, NAN, first);
    add_point(csv, c->says, of->last, NAN, first * (double)of->first / (double)of->last);
  }
}

static bppsa_status add_curve(const bppsa_oracle_curve *c, const bppsa_oracle_curves *of, bppsa_text *csv) {
  static double (*const values[])(const bppsa_oracle_row *row) = {halo_share, update_share, epoch_s};
  double first = NAN;
  for (int64_t x = of->first; x <= of->last; x *= 2) {
    const int64_t p = of->over_batch ? 1 : x;
    /* strong scaling: the samples of a node times the number of nodes */
    const int64_t batch = of->over_batch ? x : c->samples_of_node > 0 ? c->samples_of_node * (p / of->first) : c->batch;
    answer a;
    const bppsa_status status = ask(c->model, c->strategy, batch, of->over_batch || c->samples_of_node > 0, 0, p, p, &a);
    if (status == BPPSA_OK) {
      const double value = values[of->value](&a.rows.rows[0]);
      first = x == of->first ? value : first;
      add_point(csv, c->name, x, value, NAN);
    }
    free_answer(&a);
    BPPSA_TRY(status);
  }
  add_published(c, of, csv);
  add_perfect(c, of, first, csv);
  return BPPSA_OK;
}

bppsa_status bppsa_make_oracle_curves(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  const bppsa_oracle_curves *of = figure->of;
  (void)f;
  bppsa_text_add(&made->csv, "curve,x,projected,published\n");
  for (int i = 0; i < BPPSA_ORACLE_CURVES && of->curves[i].name != NULL; ++i) {
    BPPSA_TRY(add_curve(&of->curves[i], of, &made->csv));
  }
  return BPPSA_OK;
}
