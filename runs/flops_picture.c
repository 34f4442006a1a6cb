/* The picture of `flops`: bars of what training each convolution and linear operator takes, dense and pruned; and above them, if a
 * scan was counted, its steps and BP's, as figure 10 of the paper has them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/decimal.h"
#include "draw/canvas.h"
#include "runs/flops.h"
#include "runs/plan_draw.h"

enum { LEFT_MARGIN = 24, BAR_ROOM = 620, ROW = 17, HEAD = 74, NAME_WIDTH = 22 };

/* ---- steps ---- */

enum { STRIP = 120, STRIP_HEAD = 30, STRIPS = 2 * (STRIP + STRIP_HEAD) + 20 };
static const char text_colour[] = "#222222", grey[] = "#555555", rule[] = "#e6e6e6", product_colour[] = "#2166ac",
                  vector_colour[] = "#b35806", critical_colour[] = "#d7191c", bp_colour[] = "#4d9221";

/* FLOPs are drawn by their logarithm: `low` and `high` are the powers of 10 at the ends. */
typedef struct {
  bppsa_canvas *canvas;
  double left, top; /* of the strip */
  double low, high;
} strip;

static double height_of(const strip *s, double flops) {
  return flops > 0 ? STRIP * fmax(0.02, (log10(flops) - s->low) / (s->high - s->low)) : 0;
}

static void widen(double flops, double *low, double *high) {
  if (flops > 0) {
    *low = fmin(*low, floor(log10(flops)));
    *high = fmax(*high, ceil(log10(flops)));
  }
}

static void draw_axis(const strip *s, const char *title) {
  const double end = s->left + BAR_ROOM, apart = ceil((s->high - s->low) / 6);
  bppsa_canvas_words(s->canvas, s->left, s->top - 12, -1, 11, text_colour, title);
  for (double power = s->low; power <= s->high; power += apart) {
    const double y = s->top + STRIP * (1 - (power - s->low) / (s->high - s->low));
    char words[BPPSA_SI_TEXT];
    bppsa_canvas_line(s->canvas, s->left, y, end, y, 0, (bppsa_stroke){rule, NULL, 1, false});
    bppsa_canvas_words(s->canvas, s->left - 8, y, 1, 9, grey, bppsa_text_si(pow(10, power), "", words, sizeof words));
  }
}

/* Draws bar `at` of `count`. */
static void draw_step(const strip *s, int64_t at, int64_t count, double flops, const char *colour, const char *words) {
  const double room = (double)BAR_ROOM / (double)count, height = height_of(s, flops);
  if (height > 0) {
    bppsa_canvas_open(s->canvas, "step", words);
    bppsa_canvas_rectangle(s->canvas, s->left + room * (double)at, s->top + STRIP - height, fmax(room * 0.85, 0.5), height,
                           colour);
    bppsa_canvas_close(s->canvas);
  }
}

static void draw_scan(const bppsa_flops *net, strip *s) {
  char left[BPPSA_RANGE_TEXT], right[BPPSA_RANGE_TEXT], words[2 * BPPSA_RANGE_TEXT + 80], flops[BPPSA_SI_TEXT];
  draw_axis(s, "FLOPs of each step of the scan, in order; blue: product, orange: mat-vec, red: on the critical path");
  int64_t live = 0, at = 0;
  for (int64_t i = 0; i < net->step_count; ++i) {
    live += !net->steps[i].level->dead;
  }
  for (int64_t i = 0; i < net->step_count; ++i) {
    const bppsa_scan_step *step = &net->steps[i];
    if (step->level->dead) {
      continue;
    }
    const bool mm = step->level->op == BPPSA_OP_MM;
    bppsa_plan_operands(net->names, net->count, step, left, right);
    snprintf(words, sizeof words, "[%s]·[%s]: %s%s", left, right, bppsa_text_si((double)step->flops, "FLOP", flops, sizeof flops),
             step->flops_error > 0 ? ", estimated" : "");
    draw_step(s, at++, live, (double)step->flops, step->critical ? critical_colour : mm ? product_colour : vector_colour, words);
  }
}

/* BP's mat-vecs in order: the last operator's comes first. */
static void draw_bp(const bppsa_flops *net, strip *s) {
  draw_axis(s, "FLOPs of each mat-vec of BP over the same patterns, in order");
  for (int64_t at = 0; at < net->count; ++at) {
    const bppsa_flops_operator *o = &net->operators[net->count - 1 - at];
    char words[160], flops[BPPSA_SI_TEXT];
    snprintf(words, sizeof words, "%s: %s", net->names[net->count - 1 - at],
             bppsa_text_si((double)o->bp_flops, "FLOP", flops, sizeof flops));
    draw_step(s, at, net->count, (double)o->bp_flops, bp_colour, words);
  }
}

static void draw_steps(const bppsa_flops *net, bppsa_canvas *canvas, double left, double top) {
  strip s = {.canvas = canvas, .left = left, .top = top + STRIP_HEAD, .low = 18, .high = 1};
  for (int64_t i = 0; i < net->step_count; ++i) {
    widen(net->steps[i].level->dead ? 0 : (double)net->steps[i].flops, &s.low, &s.high);
  }
  for (int64_t i = 0; i < net->count; ++i) {
    widen((double)net->operators[i].bp_flops, &s.low, &s.high);
  }
  s.low = fmin(s.low, s.high - 1);
  draw_scan(net, &s);
  s.top += STRIP + STRIP_HEAD;
  draw_bp(net, &s);
}

/* ---- layers ---- */

/* The colour of each pass, and the paler one of its dense count. */
static const char *const colours[BPPSA_CNN_PASSES] = {"#2166ac", "#b35806", "#4d9221"};
static const char *const pale[BPPSA_CNN_PASSES] = {"#d1e5f0", "#fdd49e", "#d9f0d3"};

/* Draws the passes of one count behind each other. Returns where they end. */
static double draw_bar(bppsa_canvas *c, const bppsa_cnn_layer_work *work, int count, const char *const fills[], double scale,
                       double x, double y, double height) {
  for (int pass = 0; pass < BPPSA_CNN_PASSES; ++pass) {
    const double width = work->flops[pass][count] * scale;
    if (width >= 0.05) {
      bppsa_canvas_rectangle(c, x, y, width, height, fills[pass]);
    }
    x += width;
  }
  return x;
}

static double all_passes(const bppsa_cnn_layer_work *work, int count) {
  double sum = 0;
  for (int pass = 0; pass < BPPSA_CNN_PASSES; ++pass) {
    sum += work->flops[pass][count];
  }
  return sum;
}

static void draw_row(bppsa_canvas *c, const bppsa_flops *net, int64_t i, double left, double scale, double y) {
  const bppsa_cnn_layer_work *work = &net->layers[i];
  const char *name = net->network.layers.layers[i].name;
  char words[200], flops[3][BPPSA_SI_TEXT];
  const double dense = all_passes(work, BPPSA_CNN_DENSE), pruned = all_passes(work, BPPSA_CNN_PRUNED);
  bppsa_print(words, sizeof words, "%s: %" PRId64 " weights, %.4g %% kept; %s dense, %s %s", name, work->weights,
              100 * (double)work->kept / (double)work->weights, bppsa_text_si(dense, "FLOP", flops[0], BPPSA_SI_TEXT),
              bppsa_text_si(pruned, "FLOP", flops[1], BPPSA_SI_TEXT), net->pruned ? "pruned" : "without padding");
  bppsa_canvas_open(c, "layer", words);
  bppsa_canvas_words(c, left - 8, y + ROW / 2.0 - 1, 1, 10, text_colour, name);
  const double end = draw_bar(c, work, BPPSA_CNN_DENSE, pale, scale, left, y, ROW - 3);
  draw_bar(c, work, BPPSA_CNN_PRUNED, colours, scale, left, y + 3, ROW - 9);
  snprintf(words, sizeof words, "%s of %s", bppsa_text_si(pruned, "", flops[1], BPPSA_SI_TEXT),
           bppsa_text_si(dense, "", flops[0], BPPSA_SI_TEXT));
  bppsa_canvas_words(c, end + 6, y + ROW / 2.0 - 1, -1, 9, grey, words);
  bppsa_canvas_close(c);
}

static void draw_legend(bppsa_canvas *c, const bppsa_flops *net, double left, double top) {
  static const char *const words[BPPSA_CNN_PASSES] = {"forward", "gradient of the input", "gradients of the weights"};
  static const double rooms[BPPSA_CNN_PASSES] = {90, 160, 180};
  double x = left;
  for (int pass = 0; pass < BPPSA_CNN_PASSES; ++pass) {
    bppsa_canvas_rectangle(c, x, top, 12, 12, colours[pass]);
    bppsa_canvas_words(c, x + 18, top + 6, -1, 11, text_colour, words[pass]);
    x += rooms[pass];
  }
  bppsa_canvas_words(c, x, top + 6, -1, 11, text_colour,
                     net->pruned ? "pale: dense; full: pruned" : "pale: dense; full: without padding");
}

/* The width of the column of names: that of the longest. */
static double name_width(const bppsa_flops *net) {
  size_t width = NAME_WIDTH;
  for (int64_t i = 0; i <= net->count; ++i) {
    const size_t length = strlen(net->network.layers.layers[i].name);
    width = length > width ? length : width;
  }
  return 6.3 * (double)width;
}

/* The title: what training takes; below it, with a scan, the FLOPs between layers. */
static void draw_title(const bppsa_flops *net, double dense, double pruned, bppsa_canvas *canvas) {
  char title[300], scan[200], flops[3][BPPSA_SI_TEXT];
  bppsa_print(title, sizeof title, "%.120s: FLOPs of training a sample, convolutions and linear operators: %s dense, %s %s",
              net->request.network, bppsa_text_si(dense, "FLOP", flops[0], BPPSA_SI_TEXT),
              bppsa_text_si(pruned, "FLOP", flops[1], BPPSA_SI_TEXT), net->pruned ? "pruned" : "without padding");
  bppsa_canvas_begin(canvas, title);
  bppsa_canvas_words(canvas, 16, 22, -1, 14, text_colour, title);
  if (net->plan != NULL) {
    snprintf(scan, sizeof scan, "gradients between layers: BP %s, the scan %s%s, its critical path %s",
             bppsa_text_si(net->bp.gradients, "FLOP", flops[0], BPPSA_SI_TEXT), net->totals.flops_error > 0 ? "about " : "",
             bppsa_text_si(net->work.gradients, "FLOP", flops[1], BPPSA_SI_TEXT),
             bppsa_text_si(net->work.critical, "FLOP", flops[2], BPPSA_SI_TEXT));
    bppsa_canvas_words(canvas, 16, 42, -1, 12, grey, scan);
  }
}

void bppsa_flops_picture(const bppsa_flops *net, bppsa_text *drawing) {
  double most = 0, dense = 0, pruned = 0;
  int64_t rows = 0;
  for (int64_t i = 0; i <= net->count; ++i) {
    const bppsa_cnn_layer_work *work = &net->layers[i];
    const bool drawn = work->weights > 0;
    rows += drawn;
    dense += drawn ? all_passes(work, BPPSA_CNN_DENSE) : 0;
    pruned += drawn ? all_passes(work, BPPSA_CNN_PRUNED) : 0;
    most = fmax(most, drawn ? all_passes(work, BPPSA_CNN_DENSE) : 0);
  }
  const double left = LEFT_MARGIN + name_width(net), scale = most > 0 ? BAR_ROOM / most : 0;
  const double strips = net->plan != NULL ? STRIPS : 0;
  bppsa_canvas canvas = {.text = drawing, .width = left + BAR_ROOM + 130, .height = HEAD + strips + ROW * (double)rows + 14};
  draw_title(net, dense, pruned, &canvas);
  if (net->plan != NULL) {
    draw_steps(net, &canvas, left, 50);
  }
  draw_legend(&canvas, net, left, 46 + strips);
  double y = HEAD + strips;
  for (int64_t i = 0; i <= net->count; ++i) {
    if (net->layers[i].weights > 0) {
      draw_row(&canvas, net, i, left, scale, y);
      y += ROW;
    }
  }
  bppsa_canvas_end(&canvas);
}
