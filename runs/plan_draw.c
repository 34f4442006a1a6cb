#include "runs/plan_draw.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"

static const char blue[] = "#2166ac", pale_blue[] = "#d1e5f0", orange[] = "#b35806", pale_orange[] = "#fdd49e", red[] = "#d7191c",
                  grey[] = "#aaaaaa", pale_grey[] = "#f0f0f0", black[] = "#222222", rule[] = "#e6e6e6";

enum { LEFT = 128, RIGHT = 24, TOP = 104, BOTTOM = 22, LEVEL_HEIGHT = 52, MAX_LEVELS = 200, LABELLED = 26 };

typedef struct {
  const bppsa_plan_picture *picture;
  const bppsa_scan_plan *plan; /* the plan of the picture */
  bppsa_canvas canvas;
  int64_t n, levels;
  double column, half;         /* width of a column, half the size of a node */
  double link;                 /* descent from one link of a chain to the next */
  double level_y[MAX_LEVELS];  /* height of each level's first products */
  double *matrix_y, *vector_y; /* for each column: height of its latest product and its gradient; at first the top row */
} drawing;

static double x_of(const drawing *d, int64_t column) {
  return LEFT + ((double)column + 0.5) * d->column;
}

/* ---- names ---- */

/* Writes a[first:last] by the names of its operators: element i is the transposed Jacobian of operator n - i + 1. */
static void range_name(const char *const *names, int64_t n, int64_t first, int64_t last, char *text) {
  size_t used = 0;
  text[0] = '\0';
  for (int64_t i = last; i >= first && used < BPPSA_RANGE_TEXT; --i) {
    used += (size_t)snprintf(text + used, BPPSA_RANGE_TEXT - used, "%s%s", i == last ? "" : "·", names[n - i]);
  }
}

void bppsa_plan_operands(const char *const *names, int64_t n, const bppsa_scan_step *step, char *left, char *right) {
  const bool mm = step->level->op == BPPSA_OP_MM;
  range_name(names, n, mm ? step->split : step->first, step->last, left);
  if (mm) {
    range_name(names, n, step->first, step->split - 1, right);
  } else {
    snprintf(right, BPPSA_RANGE_TEXT, "g%" PRId64, n - step->first + 1);
  }
}

/* Cuts a name to the width of a column. */
static void short_name(const char *name, double room, char *text, size_t size) {
  const double letter = 6.5; /* its width */
  const int most = (int)(room / letter);
  if ((int)strlen(name) <= most) {
    snprintf(text, size, "%s", name);
  } else {
    snprintf(text, size, "%.*s\u2026", most > 1 ? most - 1 : 1, name);
  }
}

/* ---- layout ---- */

static bppsa_status place(drawing *d) {
  int64_t count = 0, longest[MAX_LEVELS] = {0};
  const bppsa_scan_level *records = bppsa_scan_plan_records(d->plan, &count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t level = records[i].level;
    if (level >= MAX_LEVELS) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "drawing: %d levels or more, expected fewer", MAX_LEVELS);
    }
    const int64_t length = records[i].length + (records[i].longer > 0);
    longest[level] = length > longest[level] ? length : longest[level];
    d->levels = level + 1 > d->levels ? level + 1 : d->levels;
  }
  const double n = (double)d->n + 1;
  d->column = n <= LABELLED ? 46 : fmax(8, 1200 / n);
  d->half = n <= LABELLED ? 11 : fmax(2, d->column / 4);
  d->link = n <= LABELLED ? 24 : fmax(3, d->half * 2.2);
  double y = TOP + LEVEL_HEIGHT;
  for (int64_t level = 0; level < d->levels; ++level) {
    d->level_y[level] = y;
    y += LEVEL_HEIGHT + (longest[level] > 1 ? (double)(longest[level] - 1) * d->link : 0);
  }
  d->canvas.width = fmax(LEFT + n * d->column + RIGHT, 900);
  d->canvas.height = y - LEVEL_HEIGHT + BOTTOM + 2 * d->half;
  d->matrix_y = bppsa_calloc(d->n + 1, sizeof *d->matrix_y);
  d->vector_y = bppsa_calloc(d->n + 1, sizeof *d->vector_y);
  if (d->matrix_y == NULL || d->vector_y == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i <= d->n; ++i) {
    d->matrix_y[i] = d->vector_y[i] = TOP;
  }
  return BPPSA_OK;
}

/* ---- elements and levels ---- */

static void draw_legend(drawing *d) {
  bppsa_canvas *c = &d->canvas;
  const double y = 48;
  double x = LEFT;
  const struct {
    const char *words;
    double room;
  } entries[] = {{"transposed Jacobian, product", 205},
                 {"gradient", 90},
                 {"critical path (levels wait for each other)", 265},
                 {"dead, never run", 120}};
  for (int i = 0; i < 4; ++i) {
    const bppsa_stroke squares[] = {
        {blue, pale_blue, 1.2, false}, {orange, pale_orange, 1.2, false}, {red, NULL, 3, false}, {grey, pale_grey, 1.2, true}};
    if (i == 1) {
      bppsa_canvas_circle(c, x + 7, y, 7, squares[i]);
    } else if (i == 2) {
      bppsa_canvas_line(c, x, y, x + 16, y, 0, squares[i]);
    } else {
      bppsa_canvas_square(c, x + 7, y, 7, squares[i]);
    }
    bppsa_canvas_words(c, x + 21, y, -1, 12, black, entries[i].words);
    x += entries[i].room + 21;
  }
}

/* Draws the names of the levels. A level without records does nothing but copy. */
static void draw_levels(drawing *d) {
  static const char *const titles[] = {"up-sweep", "middle", "down-sweep", "input"};
  const bool chain = bppsa_scan_plan_is_chain(d->plan);
  int64_t count = 0;
  const bppsa_scan_level *records = bppsa_scan_plan_records(d->plan, &count);
  for (int64_t level = 0; level < d->levels; ++level) {
    const char *title = "copies only";
    char label[48];
    for (int64_t i = 0; i < count; ++i) {
      const bool linked = chain && records[i].phase != BPPSA_PHASE_INPUT;
      title = records[i].level == level ? (linked ? "chain" : titles[records[i].phase]) : title;
    }
    snprintf(label, sizeof label, "L%" PRId64 "  %s", level, title);
    const bppsa_stroke line = {rule, NULL, 1, false};
    bppsa_canvas_line(&d->canvas, 12, d->level_y[level] - 26, d->canvas.width - 12, d->level_y[level] - 26, 0, line);
    bppsa_canvas_words(&d->canvas, 16, d->level_y[level], -1, 12, black, label);
  }
}

/* Draws an element's square, or the circle of the seed. If operators have names, a tooltip shows the element's. */
static void draw_leaf(drawing *d, int64_t i) {
  bppsa_canvas *c = &d->canvas;
  const char *const *names = d->picture->names;
  char tooltip[96];
  if (names != NULL && i > 0) {
    snprintf(tooltip, sizeof tooltip, "a[%" PRId64 "] = J\u1d40 of %s", i, names[d->n - i]);
    bppsa_canvas_open(c, "element", tooltip);
  }
  if (i == 0) {
    bppsa_canvas_circle(c, x_of(d, i), TOP, d->half, (bppsa_stroke){orange, pale_orange, 1.2, false});
  } else {
    bppsa_canvas_square(c, x_of(d, i), TOP, d->half, (bppsa_stroke){blue, pale_blue, 1.2, false});
  }
  if (names != NULL && i > 0) {
    bppsa_canvas_close(c);
  }
}

static void draw_leaves(drawing *d) {
  bppsa_canvas *c = &d->canvas;
  const char *const *names = d->picture->names;
  const bool few = d->n < LABELLED;
  const int64_t every = few ? 1 : d->n / 20 + 1;
  bppsa_canvas_words(c, 16, TOP, -1, 12, black, "elements");
  for (int64_t i = 0; i <= d->n; ++i) {
    char label[64];
    draw_leaf(d, i);
    if (names != NULL && i > 0) {
      short_name(names[d->n - i], d->column * (double)every, label, sizeof label);
    } else if (few) {
      snprintf(label, sizeof label, i == 0 ? "g%" PRId64 : "J\u1d40%" PRId64, i == 0 ? d->n : d->n - i + 1);
    } else {
      snprintf(label, sizeof label, "a[%" PRId64 "]", i);
    }
    if (i % every == 0) {
      bppsa_canvas_words(c, x_of(d, i), TOP - d->half - 9, 0, 11, black, label);
    }
  }
}

/* ---- products ---- */

/* Draws a line from an operand to the result. A line within one column bends around a product that stands in between. */
static void draw_operand(drawing *d, int64_t column, double y, bool passes, double x1, double y1, bppsa_stroke stroke) {
  const double x0 = x_of(d, column), bend = passes ? d->half * 1.6 : 0;
  bppsa_canvas_line(&d->canvas, x0, y, x1, y1, bend, stroke);
}

static const char *colour_of(const bppsa_scan_step *step) {
  return step->level->dead ? grey : step->critical ? red : step->level->op == BPPSA_OP_MM ? blue : orange;
}

static void draw_operands(drawing *d, const bppsa_scan_step *step, double y) {
  const bool mm = step->level->op == BPPSA_OP_MM, dead = step->level->dead;
  const int64_t column = step->last, left = mm ? step->split - 1 : step->first - 1;
  const bool left_leaf = mm && step->first == left, right_leaf = (mm ? step->split : step->first) == column;
  const bppsa_stroke line = {colour_of(step), NULL, step->critical && !dead ? 2.6 : 1.2, dead};
  const double x = x_of(d, column);
  draw_operand(d, left, mm ? (left_leaf ? TOP : d->matrix_y[left]) : d->vector_y[left], false, x, y, line);
  draw_operand(d, column, right_leaf ? TOP : d->matrix_y[column], right_leaf && d->matrix_y[column] > TOP, x, y, line);
  *(mm ? &d->matrix_y[column] : &d->vector_y[column]) = y;
}

static void draw_result(drawing *d, const bppsa_scan_step *step, double y) {
  const bool mm = step->level->op == BPPSA_OP_MM, dead = step->level->dead;
  const double x = x_of(d, step->last);
  char operands[3][BPPSA_OPERAND_TEXT], tooltip[3 * BPPSA_OPERAND_TEXT + 2 * BPPSA_RANGE_TEXT + 64], name[40];
  char left[BPPSA_RANGE_TEXT], right[BPPSA_RANGE_TEXT], of[2 * BPPSA_RANGE_TEXT + 16] = "";
  bppsa_scan_step_text(d->plan, step, operands[0], operands[1], operands[2]);
  if (d->picture->names != NULL) {
    bppsa_plan_operands(d->picture->names, d->n, step, left, right);
    snprintf(of, sizeof of, ": [%s]·[%s]", left, right);
  }
  snprintf(tooltip, sizeof tooltip, "%s \u22c4 %s = %s%s, %" PRId64 " FLOP%s", operands[0], operands[1], operands[2], of,
           step->flops,
           dead             ? ", dead"
           : step->critical ? ", critical"
                            : "");
  snprintf(name, sizeof name, "product %s%s%s", bppsa_scan_op_name(step->level->op), step->critical ? " critical" : "",
           dead ? " dead" : "");
  const bppsa_stroke node = {colour_of(step),
                             dead ? pale_grey
                             : mm ? pale_blue
                                  : pale_orange,
                             step->critical && !dead ? 2.2 : 1.2, dead};
  bppsa_canvas_open(&d->canvas, name, tooltip);
  if (mm) {
    bppsa_canvas_square(&d->canvas, x, y, d->half, node);
  } else {
    bppsa_canvas_circle(&d->canvas, x, y, d->half, node);
  }
  if (!mm && d->n < LABELLED) {
    char label[24];
    snprintf(label, sizeof label, "g%" PRId64, d->n - step->split + 1);
    bppsa_canvas_words(&d->canvas, x, y, 0, 10, black, label);
  }
  bppsa_canvas_close(&d->canvas);
}

/* Draws all products in execution order: the first call draws their lines, the second the nodes on top of them. */
static void draw_steps(drawing *d, void (*draw_one)(drawing *d, const bppsa_scan_step *step, double y)) {
  bppsa_scan_iterator iterator = {0};
  bppsa_scan_step step;
  const bppsa_scan_level *record = NULL;
  int64_t position = 0; /* position within the record; the links of a chain are neighbours */
  for (int64_t i = 0; bppsa_scan_plan_next(d->plan, &iterator, &step); ++i) {
    step = d->picture->steps != NULL ? d->picture->steps[i] : step;
    position = step.level == record ? position + 1 : 0;
    record = step.level;
    draw_one(d, &step, d->level_y[record->level] + (double)(position % record->length) * d->link);
  }
}

static void draw(drawing *d) {
  const bppsa_scan_totals *t = bppsa_scan_plan_totals(d->plan);
  const bppsa_scan_config *config = bppsa_scan_plan_config(d->plan);
  char title[200];
  const bool chain = bppsa_scan_plan_is_chain(d->plan);
  snprintf(title, sizeof title, "a chain of %" PRId64 ", no scan: %" PRId64 " elements, %" PRId64 " mat-vec", t->critical_steps,
           d->n + 1, t->mv);
  if (!chain) {
    snprintf(title, sizeof title,
             "%s scan of %" PRId64 " elements: %" PRId64 " mat-mat, %" PRId64 " mat-vec, critical path %" PRId64
             " products (BP: %" PRId64 ")",
             bppsa_scan_algorithm_name(config->method.algorithm), d->n + 1, t->mm - t->dead, t->mv, t->critical_steps,
             d->n > 0 ? d->n - 1 : 0);
  }
  title[0] = (char)(title[0] - 'a' + 'A');
  bppsa_canvas_begin(&d->canvas, title);
  bppsa_canvas_words(&d->canvas, 16, 22, -1, 15, black, title);
  draw_legend(d);
  draw_levels(d);
  draw_steps(d, draw_operands);
  draw_leaves(d);
  draw_steps(d, draw_result);
  bppsa_canvas_end(&d->canvas);
}

bppsa_status bppsa_plan_draw(const bppsa_plan_picture *picture, bppsa_text *text) {
  const bppsa_scan_plan *plan = picture->plan;
  const bppsa_scan_totals *totals = bppsa_scan_plan_totals(plan);
  if (totals->mm + totals->mv > BPPSA_DRAW_LIMIT) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "drawing: %" PRId64 " products, expected at most %d", totals->mm + totals->mv,
                      BPPSA_DRAW_LIMIT);
  }
  drawing d = {.picture = picture,
               .plan = plan,
               .canvas = {.text = text, .png = picture->png},
               .n = bppsa_scan_plan_config(plan)->jacobians};
  bppsa_status status = place(&d);
  if (status == BPPSA_OK) {
    draw(&d);
    status = bppsa_text_check(text);
  }
  bppsa_free(d.matrix_y);
  bppsa_free(d.vector_y);
  return status;
}
