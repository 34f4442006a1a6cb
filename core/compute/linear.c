#include "core/compute/linear.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/flush.h"
#include "core/compute/pool.h"

enum {
  ROW_BLOCK = 256,    /* rows of y or dx in a task */
  OUT_TILE = 64,      /* rows of dw in a task */
  WIDE_TILE = 192,    /* of a wide dw, whose products copy x and dy together first */
  MOST_PARTIALS = 64, /* tasks of dw: tiles x partial sums stay near this number */
  LARGE_OUT = 512,    /* a dw so high exceeds the second-level cache: */
  LARGE_PART = 2048   /* so many rows are worth a partial sum of it, which is written and added up besides their product */
};

static int64_t row_block(const bppsa_linear *l) {
  return l->block > 0 ? l->block : ROW_BLOCK;
}

static int64_t tiles_of(const bppsa_linear *l) {
  return (l->out + OUT_TILE - 1) / OUT_TILE;
}

bppsa_linear_cut bppsa_linear_cut_rows(const bppsa_linear *l) {
  const int64_t tiles = tiles_of(l), units = (l->rows + l->unit - 1) / l->unit;
  int64_t parts = tiles >= MOST_PARTIALS ? 1 : MOST_PARTIALS / tiles;
  const int64_t least = l->out > LARGE_OUT ? LARGE_PART : ROW_BLOCK, blocks = (l->rows + least - 1) / least;
  parts = parts < blocks ? parts : blocks;
  parts = parts < 1 ? 1 : parts;
  const int64_t together = units > parts ? (units + parts - 1) / parts : 1; /* units in a part */
  return (bppsa_linear_cut){.parts = units < 1 ? 1 : (units + together - 1) / together, .length = together * l->unit};
}

/* The work of a product with so many rows, for bppsa_parallel_for. */
static double work_of(const bppsa_linear *l, int64_t rows) {
  const double in = (double)l->in, out = (double)l->out;
  return bppsa_loop_work(2 * (double)rows * in * out, (double)rows * (in + out) * (double)bppsa_dtype_size(l->dtype));
}

/* How many lanes a row of n numbers takes in whole cache lines, divided by n. */
static double waste(const bppsa_linear *l, int64_t n) {
  return (double)bppsa_dtype_padded(l->dtype, n) / (double)n;
}

/* Is dw summed transposed, with the outputs as lanes, because fewer lanes are empty then? */
static bool is_narrow(const bppsa_linear *l) {
  return waste(l, l->out < OUT_TILE ? l->out : OUT_TILE) < waste(l, l->in);
}

/* Are weight gradients summed in l->dw? Several parts are added up, and narrow ones transposed, into it. */
static bool in_place(const bppsa_linear *l) {
  return l->dw != NULL && !is_narrow(l) && bppsa_linear_cut_rows(l).parts == 1;
}

/* Is x of a run packed into panels? It then serves several tiles. */
static bool in_panels(const bppsa_linear *l, int64_t rows) {
  enum { LEAST_ROWS = 64, LEAST_IN = 96, LEAST_OUT = 2 * WIDE_TILE };
  return l->panels != NULL && !is_narrow(l) && rows >= LEAST_ROWS && l->in >= LEAST_IN && l->out >= LEAST_OUT;
}

/* Rows of dw in a task. */
static int64_t tile_rows(const bppsa_linear *l) {
  enum { WIDE = 96 };
  return l->in >= WIDE && !is_narrow(l) ? WIDE_TILE : OUT_TILE;
}

static int64_t tasks_of(const bppsa_linear *l) {
  return (l->out + tile_rows(l) - 1) / tile_rows(l);
}

/* Rows in a run: their dy and x stay in the first-level cache together. */
static int64_t run_of(const bppsa_linear *l) {
  enum { RUN_BYTES = 1 << 15, LEAST = 64 };
  const int64_t out = l->out < OUT_TILE ? l->out : OUT_TILE, row = (out + l->in) * (int64_t)bppsa_dtype_size(l->dtype);
  const int64_t run = RUN_BYTES / row;
  return l->run > 0 ? l->run : run < LEAST ? LEAST : run;
}

int64_t bppsa_linear_workspace(const bppsa_linear *l) {
  int64_t reals, bytes;
  if (!bppsa_mul(l->out, l->in + 1, &reals) || !bppsa_mul(reals, bppsa_linear_cut_rows(l).parts, &reals) ||
      !bppsa_mul(reals, (int64_t)bppsa_dtype_size(l->dtype), &bytes)) {
    return -1;
  }
  return bytes;
}

#define EACH_REAL "core/compute/linear.inc"
#include "core/base/each_real.inc"

void bppsa_linear_transpose(const bppsa_linear *l, const void *w, void *wt, int64_t row) {
  (l->dtype == BPPSA_F32 ? transpose_f32 : transpose_f64)(l, w, wt, row);
}

void bppsa_linear_forward(const bppsa_linear *l, const void *x, const void *wt, const void *bias, void *y) {
  (l->dtype == BPPSA_F32 ? forward_f32 : forward_f64)(l, x, wt, bias, y);
}

void bppsa_linear_add(const bppsa_linear *l, const void *x, const void *wt, void *y, int64_t y_row) {
  (l->dtype == BPPSA_F32 ? add_f32 : add_f64)(l, x, wt, y, y_row);
}

void bppsa_linear_input_gradient(const bppsa_linear *l, const void *dy, const void *w, void *dx) {
  (l->dtype == BPPSA_F32 ? input_gradient_f32 : input_gradient_f64)(l, dy, w, dx);
}

void bppsa_linear_sum_parts(const bppsa_linear *l, int64_t first, int64_t count, const void *dy, const void *x, int64_t bias_from,
                            void *workspace) {
  (l->dtype == BPPSA_F32 ? sum_parts_f32 : sum_parts_f64)(l, first, count, dy, x, bias_from, workspace);
}

void bppsa_linear_sum_run(const bppsa_linear *l, int64_t part, int64_t part_rows, int64_t first, int64_t rows, const void *dy,
                          const void *x, int64_t bias_from, void *workspace) {
  const bool fresh = first + rows >= part_rows;
  (l->dtype == BPPSA_F32 ? sum_run_f32 : sum_run_f64)(l, part, rows, fresh, dy, x, bias_from, workspace);
}

void bppsa_linear_finish(const bppsa_linear *l, void *dw, void *db, void *workspace) {
  (l->dtype == BPPSA_F32 ? finish_f32 : finish_f64)(l, dw, db, workspace);
}

void bppsa_linear_weight_gradient(const bppsa_linear *l, const void *dy, const void *x, void *dw, void *db, void *workspace) {
  bppsa_linear_sum_parts(l, 0, bppsa_linear_cut_rows(l).parts, dy, x, db != NULL ? 0 : l->out, workspace);
  bppsa_linear_finish(l, dw, db, workspace);
}
