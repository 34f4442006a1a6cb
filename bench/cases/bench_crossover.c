/* `bppsa bench crossover`: who wins, sequential BP or the best scan, over T x B and T x H; measured here, and predicted for p
 * workers.
 *
 * The model: a method does `total` FLOP for the batch: its scans' products, and the weights' gradients, which any worker can
 * compute. The longest chain of dependent products of a sample is `critical` FLOP. A worker needs c seconds a FLOP, measured for
 * each method in each cell on one thread. Then
 *
 *     time(p) = c · max(critical, total / p)
 *
 * At p = 1 this is the measured time. BP's samples are spread over the workers as well. Synchronisation and memory are not in the
 * model.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/cases/case.h"
#include "core/base/decimal.h"
#include "core/measure/residual.h"
#include "terminal/machine.h"

static const char model_text[] = "time(p) = c max(critical, total / p): total FLOP of the batch, critical FLOP of one sample's "
                                 "longest chain of products, c seconds a "
                                 "FLOP of that method in that cell, measured on one thread";

const char bppsa_bench_notes_crossover[] =
    "A cell holds the time of BP's backward pass over that of the fastest scan. Above 1 the scan wins. linear takes no part,\n"
    "because it is the recurrence itself. Every cell is verified as in bench rnn. Without --init the maps are made for default\n"
    "weights and for an orthogonal W_hh, whose gradients do not vanish.\n"
    "--workers P also predicts every cell for P workers:\n"
    "  time(p) = c max(critical, total / p)\n"
    "total is the FLOP of the backward pass for the whole batch. critical is the FLOP of one sample's longest chain of\n"
    "dependent products. c is seconds a FLOP, measured for that method in that cell on one thread, so that the prediction for\n"
    "one worker is the measurement. BP's samples are spread over the workers as well. The model leaves out synchronisation and\n"
    "memory: its times are bounds from below, and favour the scan.\n";

enum { MOST_ROWS = 8, MOST_COLUMNS = 8, KINDS = 2, MOST_MAPS = 2 * KINDS };

typedef struct {
  bool measured, noisy; /* noisy: a row that decides is noisy, and no winner is named */
  double bp_s, scan_s;
  bppsa_bench_method scan; /* the faster one */
} duel;

typedef struct {
  const char *name;   /* "T x B" */
  const char *varied; /* "batch" */
  const char *letter; /* "B" */
  int64_t fixed;      /* the value of the size that does not vary */
  const char *fixed_letter;
  bppsa_init init;
  int64_t rows, columns;
  int64_t seq_lens[MOST_ROWS], values[MOST_COLUMNS];
  duel here[MOST_ROWS][MOST_COLUMNS], predicted[MOST_ROWS][MOST_COLUMNS];
} map;

typedef struct {
  bppsa_bench_session base;       /* the first member: it is also the session of a point */
  bppsa_device *single;           /* one thread; NULL: not needed */
  const bppsa_device *devices[2]; /* a cell is measured on each of them; c comes from the last one */
  int64_t device_count;
  map *at; /* of the point: the map, row and column of its cell */
  int64_t row, column;
  bool left_out; /* the deadline left the cell out */
  int64_t map_count;
  map maps[MOST_MAPS];
} crossover;

static double ratio_of(const duel *d) {
  return d->bp_s / d->scan_s;
}

/* The winner's name; "" where the rows that decide are noisy. */
static const char *winner_of(const duel *d) {
  return d->noisy ? "" : ratio_of(d) > 1 ? bppsa_bench_method_name(d->scan) : "bp";
}

/* ---- measuring ---- */

static double predict(const bppsa_bench_row *row, int64_t workers) {
  const double c = row->time.median_s / row->flops;
  return c * fmax(row->work.critical, row->flops / (double)workers);
}

/* The duel as measured (workers 0) or as predicted for so many workers. */
static duel fight(const bppsa_bench_result *result, int64_t workers) {
  const bppsa_bench_row *bp = &result->rows[BPPSA_BENCH_BP];
  duel d = {.scan_s = INFINITY};
  for (int m = 0; m < BPPSA_BENCH_METHODS; ++m) {
    const bppsa_bench_row *row = &result->rows[m];
    if (!bppsa_bench_is_scan((bppsa_bench_method)m) || row->time.repeats == 0 || bp->time.repeats == 0) {
      continue;
    }
    const double seconds = workers > 0 ? predict(row, workers) : row->time.median_s;
    if (seconds < d.scan_s) {
      d.scan_s = seconds;
      d.scan = (bppsa_bench_method)m;
    }
    d.measured = true;
    d.noisy = d.noisy || row->time.noisy || bp->time.noisy;
    d.bp_s = workers > 0 ? predict(bp, workers) : bp->time.median_s;
  }
  return d;
}

/* Powers of ten up to `most`, and `most` itself. */
static void choose_lengths(map *m, int64_t most) {
  m->rows = 0;
  for (int64_t t = 10; t < most && m->rows < MOST_ROWS - 1; t *= 10) {
    m->seq_lens[m->rows++] = t;
  }
  m->seq_lens[m->rows++] = most;
}

static void choose_cells(const bppsa_bench_settings *asked, bppsa_init init, map maps[KINDS]) {
  static const int64_t batches[] = {1, 4, 16, 64, 256}, hiddens[] = {1, 2, 4, 8, 20, 64}, few[] = {1, 4, 16};
  const bppsa_recurrent_config *c = &asked->point.config;
  const bool quick = asked->request.quick;
  const int64_t most = asked->longest;
  map *b = &maps[0], *h = &maps[1];
  *b = (map){.name = "T x B", .varied = "batch", .letter = "B", .fixed = c->hidden, .fixed_letter = "H", .init = init};
  *h = (map){.name = "T x H", .varied = "hidden", .letter = "H", .fixed = c->batch, .fixed_letter = "B", .init = init};
  for (int i = 0; i < KINDS; ++i) {
    choose_lengths(&maps[i], most > 0 ? most : quick ? 1000 : 10000);
  }
  b->columns = quick ? 3 : 5;
  h->columns = quick ? 3 : 6;
  memcpy(b->values, quick ? few : batches, (size_t)b->columns * sizeof *b->values);
  memcpy(h->values, quick ? few : hiddens, (size_t)h->columns * sizeof *h->values);
}

/* ---- JSON ---- */

static json_t *cell_json(const duel *d) {
  json_t *object = json_object();
  bool ok = object != NULL;
  if (!d->measured) {
    ok = ok && bppsa_json_put_text(object, "winner", "");
    return bppsa_json_finish(object, ok);
  }
  const char *scan = bppsa_bench_method_name(d->scan);
  ok = ok && bppsa_json_put_text(object, "winner", winner_of(d));
  ok = ok && bppsa_json_put_bool(object, "noisy", d->noisy);
  ok = ok && bppsa_json_put_text(object, "scan", scan);
  ok = ok && bppsa_json_put_real(object, "bp_s", d->bp_s);
  ok = ok && bppsa_json_put_real(object, "scan_s", d->scan_s);
  ok = ok && bppsa_json_put_real(object, "ratio", ratio_of(d));
  return bppsa_json_finish(object, ok);
}

static json_t *grid_json(const map *m, const duel cells[MOST_ROWS][MOST_COLUMNS]) {
  json_t *grid = json_array();
  bool ok = grid != NULL;
  for (int64_t r = 0; ok && r < m->rows; ++r) {
    json_t *line = json_array();
    bool filled = line != NULL;
    for (int64_t c = 0; filled && c < m->columns; ++c) {
      filled = json_array_append_new(line, cell_json(&cells[r][c])) == 0;
    }
    ok = json_array_append_new(grid, bppsa_json_finish(line, filled)) == 0;
  }
  return bppsa_json_finish(grid, ok);
}

static json_t *integers_json(int64_t count, const int64_t *values) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int64_t i = 0; ok && i < count; ++i) {
    ok = json_array_append_new(array, json_integer(values[i])) == 0;
  }
  return bppsa_json_finish(array, ok);
}

static json_t *map_json(const map *m, bool predicted) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "map", m->name);
  ok = ok && bppsa_json_put_text(object, "init", bppsa_bench_init_name(m->init));
  ok = ok && bppsa_json_put(object, "seq_len", integers_json(m->rows, m->seq_lens));
  ok = ok && bppsa_json_put(object, m->varied, integers_json(m->columns, m->values));
  ok = ok && bppsa_json_put_integer(object, strcmp(m->varied, "batch") == 0 ? "hidden" : "batch", m->fixed);
  ok = ok && bppsa_json_put(object, "measured", grid_json(m, m->here));
  if (predicted) {
    ok = ok && bppsa_json_put(object, "predicted", grid_json(m, m->predicted));
  }
  return bppsa_json_finish(object, ok);
}

static bool fill_document(const bppsa_bench *bench) {
  const crossover *x = bench->session;
  const int64_t workers = bench->asked->workers;
  json_t *maps = json_array(), *document = bench->report.document;
  bool ok = maps != NULL && bppsa_json_put_text(document, "network", x->base.point.kind->name);
  for (int64_t i = 0; ok && i < x->map_count; ++i) {
    ok = json_array_append_new(maps, map_json(&x->maps[i], workers > 0)) == 0;
  }
  ok = bppsa_json_put(document, "maps", bppsa_json_finish(maps, ok));
  if (workers > 0) {
    ok = ok && bppsa_json_put_integer(document, "workers", workers);
    ok = ok && bppsa_json_put_text(document, "model", model_text);
  }
  return ok;
}

/* ---- for people ---- */

static bppsa_status show_grid(const bppsa_output *to, const map *m, const duel cells[MOST_ROWS][MOST_COLUMNS]) {
  BPPSA_TRY(bppsa_output_print(to, "  %9s", "T"));
  for (int64_t c = 0; c < m->columns; ++c) {
    BPPSA_TRY(bppsa_output_print(to, "%9s %-7" PRId64, m->letter, m->values[c]));
  }
  for (int64_t r = 0; r < m->rows; ++r) {
    BPPSA_TRY(bppsa_output_print(to, "\n  %9" PRId64, m->seq_lens[r]));
    for (int64_t c = 0; c < m->columns; ++c) {
      const duel *d = &cells[r][c];
      const char *winner = !d->measured ? "skipped" : d->noisy ? "noisy" : winner_of(d);
      char ratio[24] = "";
      if (d->measured) {
        bppsa_print(ratio, sizeof ratio, "%s%.*f", bppsa_timing_mark(d->noisy), ratio_of(d) < 9.995 ? 2 : 0, ratio_of(d));
      }
      BPPSA_TRY(bppsa_output_print(to, "  %6s %-8s", ratio, winner));
    }
  }
  return bppsa_output_print(to, "\n");
}

static bppsa_status show_maps(const bppsa_bench *bench) {
  const crossover *x = bench->session;
  const bppsa_output *to = &bench->request->to;
  const int64_t workers = bench->asked->workers;
  const int32_t threads = bppsa_device_get_threads(bench->device);
  char vector[BPPSA_VECTOR_TEXT];
  BPPSA_TRY(
      bppsa_output_print(to,
                         "%s, backward pass, on %s, %d thread%s, %s\ncells: time of bp / time of the faster of blelloch and "
                         "chunked, and the winner\n",
                         x->base.point.kind->name, bppsa_device_get_hardware(bench->device), threads, threads == 1 ? "" : "s",
                         bppsa_machine_vector(vector, sizeof vector)));
  for (int64_t i = 0; i < x->map_count; ++i) {
    const map *m = &x->maps[i];
    const char *init = bppsa_bench_init_name(m->init);
    BPPSA_TRY(bppsa_output_print(to, "\n%s at %s %" PRId64 ", init %s, measured\n", m->name, m->fixed_letter, m->fixed, init));
    BPPSA_TRY(show_grid(to, m, m->here));
    if (workers > 0) {
      BPPSA_TRY(bppsa_output_print(to, "\n%s at %s %" PRId64 ", init %s, predicted for %" PRId64 " workers\n", m->name,
                                   m->fixed_letter, m->fixed, init, workers));
      BPPSA_TRY(show_grid(to, m, m->predicted));
    }
  }
  BPPSA_TRY(bppsa_bench_show_noisy(to, bench->rows.noisy));
  return workers == 0 ? BPPSA_OK : bppsa_output_print(to, "\nThe model: %s.\n", model_text);
}

/* ---- the benchmark ---- */

static bppsa_status prepare(bppsa_bench *bench) {
  const bppsa_bench_settings *asked = bench->asked;
  crossover *x = bench->session;
  x->base.bench = bench;
  x->base.scans_only = true;
  x->devices[x->device_count++] = bench->device;
  x->map_count = asked->both_inits ? MOST_MAPS : KINDS;
  for (int64_t i = 0; i < x->map_count; i += KINDS) {
    choose_cells(asked,
                 !asked->both_inits ? asked->point.init
                 : i == 0           ? BPPSA_INIT_DEFAULT
                                    : BPPSA_INIT_ORTHOGONAL,
                 &x->maps[i]);
  }
  if (asked->workers > 0 && bppsa_device_get_threads(bench->device) > 1) {
    BPPSA_TRY(bppsa_device_create(bppsa_device_get_name(bench->device), 1, &x->single));
    x->devices[x->device_count++] = x->single;
  }
  return BPPSA_OK;
}

/* Finds a cell; they are numbered map by map. False: there is no such cell. */
static bool find_cell(crossover *x, int64_t cell) {
  for (int64_t i = 0; i < x->map_count; ++i) {
    map *m = &x->maps[i];
    if (cell < m->rows * m->columns) {
      x->at = m;
      x->row = cell / m->columns;
      x->column = cell % m->columns;
      return true;
    }
    cell -= m->rows * m->columns;
  }
  return false;
}

/* A point is a cell on one of the devices. A cell that was begun is finished even after the deadline. */
static bppsa_status enter(bppsa_bench *bench, int64_t point, bool *more) {
  crossover *x = bench->session;
  const int64_t cell = point / x->device_count, device = point % x->device_count;
  *more = find_cell(x, cell);
  if (!*more) {
    return BPPSA_OK;
  }
  x->left_out = device == 0 ? bppsa_bench_out_of_time(bench) : x->left_out;
  bench->idle = x->left_out;
  if (bench->idle) {
    return BPPSA_OK;
  }
  const map *m = x->at;
  x->base.device = x->devices[device];
  x->base.point = bench->asked->point;
  x->base.point.init = m->init;
  bppsa_recurrent_config *config = &x->base.point.config;
  config->seq_len = m->seq_lens[x->row];
  *(strcmp(m->varied, "batch") == 0 ? &config->batch : &config->hidden) = m->values[x->column];
  int64_t cells = 0;
  for (int64_t i = 0; i < x->map_count; ++i) {
    cells += x->maps[i].rows * x->maps[i].columns;
  }
  snprintf(bench->label, sizeof bench->label, "map %s, cell %" PRId64 " of %" PRId64, m->name, cell + 1, cells);
  return bppsa_bench_enter_point(bench);
}

/* Decides who wins the cell, as measured on the benchmark's device and as predicted from the last device. */
static bppsa_status settle(bppsa_bench *bench) {
  crossover *x = bench->session;
  const int64_t workers = bench->asked->workers;
  BPPSA_TRY(bppsa_bench_settle_point(bench));
  if (x->base.device == bench->device) {
    x->at->here[x->row][x->column] = fight(&x->base.result, 0);
  }
  if (workers > 0 && x->base.device == x->devices[x->device_count - 1]) {
    x->at->predicted[x->row][x->column] = fight(&x->base.result, workers);
  }
  return BPPSA_OK;
}

static bppsa_status finish(bppsa_bench *bench) {
  if (!fill_document(bench)) {
    return bppsa_bench_no_room();
  }
  BPPSA_TRY(bench->request->to.json ? BPPSA_OK : show_maps(bench));
  return bppsa_bench_report_points(bench);
}

static void release(bppsa_bench *bench) {
  bppsa_device_destroy(((crossover *)bench->session)->single);
}

/* A cell is a ratio of two rows, so a quarter of the seconds of bench rnn suffices. */
const bppsa_bench_case bppsa_bench_case_crossover = {.name = "crossover",
                                                     .session = sizeof(crossover),
                                                     .budget_s = 0.5,
                                                     .quick_s = 0.1,
                                                     .shared = true,
                                                     .bound = BPPSA_RESIDUAL_BOUND,
                                                     .memory_quarters = 3,
                                                     .prepare = prepare,
                                                     .enter = enter,
                                                     .put = bppsa_bench_put_line,
                                                     .leave = bppsa_bench_leave_point,
                                                     .release = release,
                                                     .lines = BPPSA_BENCH_ROWS,
                                                     .line = bppsa_bench_line_of_point,
                                                     .settle = settle,
                                                     .finish = finish};
