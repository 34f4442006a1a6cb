/* The oracle's picture: a stacked bar of phases for each strategy at the largest number of processors, and below it a line of time
 * over processors for each strategy where there are several numbers. Both axes of the lines are logarithmic. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "draw/canvas.h"
#include "oracle/oracle.h"

#define LEFT 130.0
#define BAR 22.0
#define WIDE 560.0
#define KEY 170.0
#define LINES 320.0

static const char *const colours[] = {"#3b6fb6", "#7fb3e6", "#c9d7e8", "#d95f3b", "#e69f5c", "#8c5fb0", "#4f9d69", "#b0b0b0",
                                      "#aa3377", "#228833", "#ccbb44", "#663311", "#009988", "#cc3311", "#332288", "#999933",
                                      "#117733", "#882255", "#44aa99", "#ee7733", "#0077bb", "#555555", "#aa4499", "#661100"};

static const char *colour(int64_t i) {
  return colours[i % (int64_t)(sizeof colours / sizeof colours[0])];
}

static void label(bppsa_canvas *c, double x, double y, int anchor, const char *words) {
  bppsa_canvas_words(c, x, y, anchor, 12, "#222222", words);
}

static void draw_bar(bppsa_canvas *c, const bppsa_oracle_row *row, double longest, double y) {
  char time[BPPSA_SI_TEXT], words[96];
  double x = LEFT;
  label(c, LEFT - 8, y + BAR / 2 - 2, 1, row->strategy);
  if (isnan(row->time_s)) {
    label(c, LEFT + 4, y + BAR / 2 - 2, -1, row->reason);
    return;
  }
  for (int phase = 0; phase < BPPSA_PHASE_COUNT; ++phase) {
    const double width = WIDE * fmin(row->phase_s[phase] / longest, 1);
    if (width > 0.2) {
      bppsa_canvas_rectangle(c, x, y, width, BAR - 6, colour(phase));
    }
    x += width;
  }
  snprintf(words, sizeof words, "%s%s", bppsa_text_si(row->time_s, "s", time, sizeof time), row->feasible ? "" : " (memory)");
  label(c, x + 6, y + BAR / 2 - 2, -1, words);
}

/* Can a logarithmic axis show the row? A model without FLOPs takes no time, which has no logarithm. */
static bool has_place(const bppsa_oracle_row *row) {
  return row->time_s > 0 && isfinite(row->time_s);
}

static double longest_of(const bppsa_oracle_rows *rows, int64_t p) {
  double longest = 0;
  for (int64_t i = 0; i < rows->count; ++i) {
    if ((p == 0 || rows->rows[i].processors == p) && has_place(&rows->rows[i])) {
      longest = fmax(longest, rows->rows[i].time_s);
    }
  }
  return longest > 0 ? longest : 1;
}

static void draw_key(bppsa_canvas *c, double x, double y) {
  for (int phase = 0; phase < BPPSA_PHASE_COUNT; ++phase) {
    bppsa_canvas_rectangle(c, x, y + 18 * phase, 14, 12, colour(phase));
    label(c, x + 20, y + 18 * phase + 6, -1, bppsa_oracle_phase_name(phase));
  }
}

/* The axes of the lines: processors run from first to last, seconds from shortest to longest. */
typedef struct {
  double first, last, shortest, longest, top;
} axes;

static double across(const axes *a, double p) {
  return LEFT + WIDE * (log(p / a->first) / log(a->last / a->first));
}

static double down(const axes *a, double seconds) {
  return a->top + LINES - LINES * log(seconds / a->shortest) / log(a->longest / a->shortest);
}

/* Returns the width of a number below its tick. */
static double wide(int64_t number) {
  return 8 * (2 + floor(log10((double)number)));
}

static void draw_axes(bppsa_canvas *c, const axes *a, const bppsa_oracle_rows *rows) {
  const bppsa_stroke thin = {.colour = "#cccccc", .width = 1};
  char words[BPPSA_SI_TEXT + 16];
  for (double power = pow(10, ceil(log10(a->shortest))); power <= a->longest; power *= 10) {
    bppsa_canvas_line(c, LEFT, down(a, power), LEFT + WIDE, down(a, power), 0, thin);
    label(c, LEFT - 8, down(a, power), 1, bppsa_text_si(power, "s", words, sizeof words));
  }
  double free_from = 0; /* where the label before ends */
  const double last = LEFT + WIDE - wide((int64_t)a->last) / 2;
  for (int64_t i = 0; i < rows->count && strcmp(rows->rows[i].strategy, rows->rows[0].strategy) == 0; ++i) {
    const int64_t p = rows->rows[i].processors;
    const double x = across(a, (double)p), half = wide(p) / 2;
    bppsa_canvas_line(c, x, a->top, x, a->top + LINES, 0, thin);
    if (x - half >= free_from && (x + half <= last || (double)p == a->last)) {
      snprintf(words, sizeof words, "%" PRId64, p);
      label(c, x, a->top + LINES + 14, 0, words);
      free_from = x + half;
    }
  }
  label(c, LEFT + WIDE / 2, a->top + LINES + 34, 0, "processors; seconds an epoch; dashed: does not fit into memory");
}

static void draw_lines(bppsa_canvas *c, const axes *a, const bppsa_oracle_rows *rows) {
  int64_t line = -1;
  draw_axes(c, a, rows);
  for (int64_t i = 0; i < rows->count; ++i) {
    const bppsa_oracle_row *row = &rows->rows[i], *before = i > 0 ? &rows->rows[i - 1] : NULL;
    const bool begins = before == NULL || strcmp(before->strategy, row->strategy) != 0;
    line += begins;
    if (!has_place(row)) {
      continue;
    }
    const double x = across(a, (double)row->processors), y = down(a, row->time_s);
    const bppsa_stroke stroke = {.colour = colour(line), .width = 2, .dashed = !row->feasible};
    bppsa_canvas_circle(c, x, y, 3, (bppsa_stroke){.colour = colour(line), .fill = colour(line), .width = 1});
    if (!begins && has_place(before)) {
      bppsa_canvas_line(c, across(a, (double)before->processors), down(a, before->time_s), x, y, 0, stroke);
    }
  }
}

/* Draws a key for the lines, with the name of each strategy. */
static void draw_names(bppsa_canvas *c, const bppsa_oracle_rows *rows, double x, double y) {
  int64_t line = 0;
  for (int64_t i = 0; i < rows->count; ++i) {
    if (i == 0 || strcmp(rows->rows[i - 1].strategy, rows->rows[i].strategy) != 0) {
      bppsa_canvas_rectangle(c, x, y + 18 * (double)line, 14, 4, colour(line));
      label(c, x + 20, y + 18 * (double)line + 2, -1, rows->rows[i].strategy);
      ++line;
    }
  }
}

static axes axes_of(const bppsa_oracle_rows *rows, double top) {
  axes a = {.first = INFINITY, .shortest = INFINITY, .top = top, .longest = longest_of(rows, 0)};
  for (int64_t i = 0; i < rows->count; ++i) {
    a.first = fmin(a.first, (double)rows->rows[i].processors);
    a.last = fmax(a.last, (double)rows->rows[i].processors);
    a.shortest = has_place(&rows->rows[i]) ? fmin(a.shortest, rows->rows[i].time_s) : a.shortest;
  }
  a.shortest = fmin(a.shortest, a.longest) / 1.1;
  a.longest *= 1.1;
  return a;
}

bppsa_status bppsa_oracle_draw(const bppsa_oracle_query *query, const bppsa_oracle_rows *rows, bppsa_text *text) {
  const axes found = axes_of(rows, 0);
  const int64_t last = (int64_t)found.last;
  int64_t bars = 0;
  for (int64_t i = 0; i < rows->count; ++i) {
    bars += rows->rows[i].processors == last;
  }
  const double below = 50 + BAR * fmax((double)bars, 7) + 20;
  const bool lines = found.last > found.first && isfinite(found.shortest);
  bppsa_canvas canvas = {.text = text, .width = LEFT + WIDE + 110 + KEY, .height = below + (lines ? LINES + 60 : 0)};
  char title[2 * BPPSA_ORACLE_NAME + 64];
  double y = 40;
  snprintf(title, sizeof title, "%s on %s: an epoch on %" PRId64 " processor%s", query->model->name, query->system->name, last,
           last == 1 ? "" : "s");
  bppsa_canvas_begin(&canvas, title);
  label(&canvas, LEFT, 20, -1, title);
  for (int64_t i = 0; i < rows->count; ++i) {
    if (rows->rows[i].processors == last) {
      draw_bar(&canvas, &rows->rows[i], longest_of(rows, last), y);
      y += BAR;
    }
  }
  draw_key(&canvas, LEFT + WIDE + 110, 40);
  if (lines) {
    const axes a = axes_of(rows, below);
    draw_lines(&canvas, &a, rows);
    draw_names(&canvas, rows, LEFT + WIDE + 110, below);
  }
  bppsa_canvas_end(&canvas);
  return bppsa_text_check(text);
}
