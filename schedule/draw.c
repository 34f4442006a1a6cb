/* Draws the timeline of a schedule as SVG. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/decimal.h"
#include "draw/canvas.h"
#include "schedule/timed.h"

enum { LEFT = 92, RIGHT = 24, TOP = 84, BOTTOM = 34, LANE = 22, CURVE = 18, GAP = 10, FONT = 11, WIDEST = 1500, CAPTION = 26 };

static const char black[] = "#222222", grey[] = "#8a8a8a", rule[] = "#e4e4e4", area[] = "#dfe8ef", edge[] = "#7a94a8";

/* How a kind is drawn; a kind without a fill is not drawn. */
typedef struct {
  const char *fill, *words;
} look;

static const look looks[BPPSA_KIND_COUNT] = {
    [BPPSA_KIND_F] = {"#a6cee3", "forward"},           [BPPSA_KIND_I] = {"#b2df8a", "input gradient"},
    [BPPSA_KIND_W] = {"#fdbf6f", "weight gradient"},   [BPPSA_KIND_B] = {"#b8d98c", "backward"},
    [BPPSA_KIND_RECOMPUTE] = {"#d9d9d9", "recompute"}, [BPPSA_KIND_SEND] = {"#cab2d6", "send"},
    [BPPSA_KIND_SYNC] = {"#f4a6a0", "synchronise"},    [BPPSA_KIND_STEP] = {"#8c96c6", "update"},
    [BPPSA_KIND_PRODUCT] = {"#a6cee3", "product"},     [BPPSA_KIND_CARRY] = {"#f4a6a0", "carry"},
    [BPPSA_KIND_APPLY] = {"#b8d98c", "apply"}};

typedef struct {
  const bppsa_timed_groups *groups;
  const bppsa_timed_group *group; /* the group that is drawn now */
  double top;                     /* the top of its first worker */
  bppsa_text *text;
  bppsa_canvas canvas;
  double unit;                     /* pixels per unit of time */
  double lane_y[BPPSA_LANE_COUNT]; /* top of each lane below its worker's top; below 0: the lane is not drawn */
  double worker_height, most;      /* most: the activations that the fullest worker holds */
  bool used[BPPSA_KIND_COUNT];
} drawing;

static double x_of(const drawing *d, double time) {
  return LEFT + time * d->unit;
}

static double top_of(const drawing *d, int64_t worker) {
  return d->top + (double)worker * d->worker_height;
}

static double width_of(const char *words) {
  return 0.64 * FONT * (double)strlen(words);
}

/* ---- layout ---- */

/* An operation that takes no time is not drawn. */
static bool drawn(const drawing *d, int64_t id) {
  const bppsa_schedule_op *op = &d->group->list->ops[id];
  return looks[op->kind].fill != NULL && d->group->times->end[id] > d->group->times->start[id];
}

/* Writes the label of an operation: the number of its micro-batch, or both numbers of a doubled pass. A SYNC has the number of its
 * layer, and so has every operation if each layer has one and there is only one micro-batch. A second half is marked. */
static void label_of(const drawing *d, const bppsa_schedule_op *op, char *text, size_t size) {
  const bppsa_schedule *list = d->group->list;
  text[0] = '\0';
  if (list->scheme->scan || op->kind == BPPSA_KIND_STEP || op->kind == BPPSA_KIND_SEND) {
    return;
  }
  if (op->kind == BPPSA_KIND_SYNC || (list->config.split != BPPSA_SPLIT_NONE && list->config.micro_batches == 1)) {
    snprintf(text, size, "%d", (int)op->layer + 1);
  } else if (op->micros > 1) {
    snprintf(text, size, "%d,%d", (int)op->micro, (int)op->micro + 1);
  } else {
    snprintf(text, size, "%d%s", (int)op->micro, op->part == 1 ? "'" : "");
  }
}

/* What the layout needs to know of all groups. */
typedef struct {
  bool lanes[BPPSA_LANE_COUNT]; /* the lanes that have operations */
  double end;                   /* the end of the latest operation */
  double wanted;                /* pixels per unit of time that the shortest labelled operation needs */
  int64_t workers;
} extent;

static void survey(drawing *d, extent *e) {
  const bppsa_schedule *list = d->group->list;
  const bppsa_schedule_times *times = d->group->times;
  for (int64_t id = 0; id < list->count; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    char label[32];
    e->end = fmax(e->end, times->end[id]);
    if (drawn(d, id)) {
      label_of(d, op, label, sizeof label);
      e->lanes[op->lane] = true;
      d->used[op->kind] = true;
      e->wanted = fmax(e->wanted, (width_of(label) + 5) / (times->end[id] - times->start[id]));
    }
  }
  for (int64_t w = 0; w < list->workers; ++w) {
    d->most = fmax(d->most, times->worker[w].peak_activations);
  }
  e->workers += list->workers;
}

/* Returns the height of the caption above a group's workers. A single group has none. */
static double caption_of(const drawing *d) {
  return d->groups->count > 1 ? CAPTION : 0;
}

/* Makes a unit of time as wide as the shortest labelled operation needs, while the picture still fits on a page. */
static void lay_out(drawing *d) {
  extent e = {.lanes = {[BPPSA_LANE_COMPUTE] = true}};
  double y = 0;
  for (int64_t i = 0; i < d->groups->count; ++i) {
    d->group = &d->groups->groups[i];
    survey(d, &e);
  }
  const double widest = fmax(WIDEST, fmin(6000, 18 * e.end));
  const bool wide = isfinite(widest / e.end); /* false if all costs are 0 or nearly 0 */
  d->unit = wide ? fmax(fmin(e.wanted, widest / e.end), 560 / e.end) : 1;
  for (int lane = 0; lane < BPPSA_LANE_COUNT; ++lane) {
    d->lane_y[lane] = e.lanes[lane] ? y : -1;
    y += e.lanes[lane] ? (lane == BPPSA_LANE_COMPUTE ? LANE : LANE - 5) : 0;
  }
  d->worker_height = y + CURVE + GAP;
  d->canvas =
      (bppsa_canvas){.text = d->text,
                     .width = fmax(x_of(d, e.end) + RIGHT, 760),
                     .height = TOP + (double)d->groups->count * caption_of(d) + (double)e.workers * d->worker_height + BOTTOM};
}

/* ---- shapes ---- */

static void add_box(drawing *d, double x, double y, double width, double height, const char *fill, const char *line) {
  bppsa_text_add(d->text,
                 "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\" stroke=\"%s\" stroke-width=\"0.8\"/>\n",
                 x, y, width, height, fill, line);
}

enum { TITLE = 240 };

/* Writes a title such as "1f1b, D = 4, N = 4, measured: makespan 21 ms, bubble ratio 0.3". Returns text. */
static const char *title_of(const bppsa_timed_group *g, double milliseconds, char text[TITLE]) {
  const bppsa_schedule *list = g->list;
  const bool copies = list->scheme->data_parallel || list->scheme->scan;
  bppsa_print(text, TITLE, "%s, D = %" PRId64 "%s%.0" PRId64 "%s%s: makespan %.6g%s, bubble ratio %.3g", list->scheme->id,
              list->config.stages, copies ? "" : ", N = ", copies ? 0 : list->config.micro_batches, g->name != NULL ? ", " : "",
              g->name != NULL ? g->name : "", g->times->makespan * milliseconds, g->name != NULL ? " ms" : "",
              g->times->bubble_ratio);
  return text;
}

static void draw_title(drawing *d) {
  char title[TITLE] = "Timelines with one scale, in milliseconds";
  if (d->groups->count == 1) {
    (void)title_of(&d->groups->groups[0], d->groups->milliseconds, title);
  }
  bppsa_canvas_begin(&d->canvas, title);
  bppsa_canvas_words(&d->canvas, 16, 20, -1, 15, black, title);
  double x = 16;
  for (int kind = 0; kind < BPPSA_KIND_COUNT; ++kind) {
    if (d->used[kind]) {
      add_box(d, x, 38, 13, 13, looks[kind].fill, grey);
      bppsa_canvas_words(&d->canvas, x + 19, 45, -1, 12, black, looks[kind].words);
      x += 19 + 0.62 * 12 * (double)strlen(looks[kind].words) + 18;
    }
  }
  add_box(d, x, 38, 13, 13, area, edge);
  char words[64];
  bppsa_print(words, sizeof words, "activations, up to %.4g %s", d->most,
              d->groups->groups[0].list->scheme->scan ? "Jacobians" : "M_a");
  bppsa_canvas_words(&d->canvas, x + 19, 45, -1, 12, black, words);
}

/* Draws a tick every 1, 2, 5, 10, ... units, far enough apart for the numbers. */
static void draw_axis(drawing *d) {
  const double unit = d->unit / d->groups->milliseconds; /* pixels per unit of the numbers at the ticks */
  const double end = (d->canvas.width - LEFT - RIGHT) / unit, bottom = d->canvas.height - BOTTOM + 6;
  double step = pow(10, floor(log10(60 / unit)));
  step *= step * unit >= 60 ? 1 : 2 * step * unit >= 60 ? 2 : 5 * step * unit >= 60 ? 5 : 10;
  for (int64_t i = 0; (double)i * step <= end * (1 + 1e-9); ++i) {
    char words[32];
    const double x = LEFT + (double)i * step * unit;
    bppsa_print(words, sizeof words, "%.6g", (double)i * step);
    bppsa_canvas_line(&d->canvas, x, TOP - 8, x, bottom, 0, (bppsa_stroke){rule, NULL, 1, false});
    bppsa_canvas_words(&d->canvas, x, bottom + 10, 0, FONT, grey, words);
  }
}

static void draw_curve(drawing *d, int64_t worker, const bppsa_schedule_memory *points, int64_t count, double end) {
  const double base = top_of(d, worker) + d->worker_height - GAP, scale = d->most > 0 ? (CURVE - 3) / d->most : 0;
  bppsa_text_add(d->text, "<path class=\"memory\" d=\"M%.2f %.2f", x_of(d, 0), base);
  for (int64_t i = 0; i < count; ++i) {
    bppsa_text_add(d->text, "H%.2fV%.2f", x_of(d, points[i].time), base - scale * points[i].level);
  }
  bppsa_text_add(d->text, "H%.2fV%.2fZ\" fill=\"%s\" stroke=\"%s\" stroke-width=\"0.8\"/>\n", x_of(d, end), base, area, edge);
}

static bppsa_status draw_workers(drawing *d) {
  const bppsa_schedule *list = d->group->list;
  bppsa_schedule_memory *curves = NULL;
  int64_t *first = NULL;
  const double end = d->group->times->begin + d->group->times->makespan;
  BPPSA_TRY(bppsa_schedule_memory_curves(list, d->group->times, &curves, &first));
  for (int64_t w = 0; w < list->workers; ++w) {
    char words[32];
    snprintf(words, sizeof words, "worker %" PRId64, w);
    bppsa_canvas_words(&d->canvas, LEFT - 10, top_of(d, w) + LANE / 2.0, 1, 12, black, words);
    bppsa_canvas_line(&d->canvas, LEFT, top_of(d, w) + d->worker_height - GAP, x_of(d, end),
                      top_of(d, w) + d->worker_height - GAP, 0, (bppsa_stroke){rule, NULL, 1, false});
    draw_curve(d, w, curves + first[w], first[w + 1] - first[w], end);
  }
  bppsa_free(curves);
  bppsa_free(first);
  return BPPSA_OK;
}

static void draw_op(drawing *d, int64_t id) {
  const bppsa_schedule_op *op = &d->group->list->ops[id];
  const double start = d->group->times->start[id], end = d->group->times->end[id], width = (end - start) * d->unit;
  const double height = (op->lane == BPPSA_LANE_COMPUTE ? LANE : LANE - 5) - 2, y = top_of(d, op->worker) + d->lane_y[op->lane];
  char label[32], tooltip[160], name[32];
  label_of(d, op, label, sizeof label);
  snprintf(name, sizeof name, "op %s", bppsa_schedule_kind_name(op->kind));
  bppsa_print(tooltip, sizeof tooltip, "%s, micro-batch %d, stage %d, replica %d, layers %d to %d, version %d: %.6g to %.6g",
              bppsa_schedule_kind_name(op->kind), (int)op->micro, (int)op->stage, (int)op->replica, (int)op->layer,
              (int)(op->layer + op->layers - 1), (int)op->weight_version, start, end);
  bppsa_canvas_open(&d->canvas, name, tooltip);
  add_box(d, x_of(d, start), y, width, height, looks[op->kind].fill, op->replica % 2 == 0 ? grey : black);
  if (label[0] != '\0' && width_of(label) + 2 <= width) {
    bppsa_canvas_words(&d->canvas, x_of(d, (start + end) / 2), y + height / 2, 0, FONT, black, label);
  }
  bppsa_canvas_close(&d->canvas);
}

static bppsa_status draw_group(drawing *d) {
  char title[TITLE];
  if (d->groups->count > 1) {
    bppsa_canvas_words(&d->canvas, 16, d->top - CAPTION / 2.0 - 2, -1, 13, black,
                       title_of(d->group, d->groups->milliseconds, title));
  }
  BPPSA_TRY(draw_workers(d));
  for (int64_t id = 0; id < d->group->list->count; ++id) {
    if (drawn(d, id)) {
      draw_op(d, id);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_schedule_draw_groups(const bppsa_timed_groups *groups, bppsa_text *text) {
  drawing d = {.groups = groups, .text = text};
  int64_t operations = 0;
  for (int64_t i = 0; i < groups->count; ++i) {
    operations += groups->groups[i].list->count;
  }
  if (operations > BPPSA_SCHEDULE_DRAW_LIMIT) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "timeline: %" PRId64 " operations, expected at most %d", operations,
                      BPPSA_SCHEDULE_DRAW_LIMIT);
  }
  lay_out(&d);
  draw_title(&d);
  draw_axis(&d);
  d.top = TOP;
  for (int64_t i = 0; i < groups->count; ++i) {
    d.group = &groups->groups[i];
    d.top += caption_of(&d);
    BPPSA_TRY(draw_group(&d));
    d.top += (double)d.group->list->workers * d.worker_height;
  }
  bppsa_canvas_end(&d.canvas);
  return bppsa_text_check(text);
}

bppsa_status bppsa_schedule_draw(const bppsa_timed *timed, bppsa_text *text) {
  const bppsa_timed_group one = {.list = timed->list, .times = &timed->times};
  return bppsa_schedule_draw_groups(&(bppsa_timed_groups){.count = 1, .groups = &one, .milliseconds = 1}, text);
}
