#include "runs/backward_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/base/alloc.h"
#include "core/base/cut.h"
#include "draw/canvas.h"

/* ---- what is shown ---- */

/* Counts what speculative BP holds beside BP. A GPU need not be there, and is not asked. */
static bppsa_status count_bytes(const bppsa_recurrent_config *config, bppsa_backward_report *report) {
  bppsa_recurrent_config pass = *config;
  bppsa_device *device = NULL;
  int64_t all = 0, bp = 0;
  report->bytes = -1;
  if (report->device != BPPSA_CPU) {
    return BPPSA_OK;
  }
  pass.memory_limit = 0;
  pass.method.backward = BPPSA_BACKWARD_SPECULATIVE;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  bppsa_status status = bppsa_recurrent_count(&pass, report->kind->cell, device, &all);
  pass.method.backward = BPPSA_BACKWARD_BP;
  status = status == BPPSA_OK ? bppsa_recurrent_count(&pass, report->kind->cell, device, &bp) : status;
  bppsa_device_destroy(device);
  report->bytes = all - bp;
  return status;
}

/* Lists what AUTO chooses among. */
static bppsa_status list_candidates(const bppsa_recurrent_config *config, bppsa_backward_report *report) {
  bppsa_recurrent_config open = *config;
  bool more = true;
  open.method.backward = BPPSA_BACKWARD_AUTO;
  open.method.scan = bppsa_scan_method_of(BPPSA_SCAN_AUTO);
  open.input_gradients = open.input_gradients && report->method.backward != BPPSA_BACKWARD_SPECULATIVE; /* AUTO would not */
  while (more) {
    bppsa_recurrent_candidate found,
        *grown = bppsa_realloc(report->candidates, (size_t)(report->candidate_count + 1) * sizeof *grown);
    if (grown == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    report->candidates = grown;
    BPPSA_TRY(bppsa_recurrent_find_candidate(&open, report->kind->cell, report->device, report->candidate_count, &found, &more));
    if (more) {
      grown[report->candidate_count++] = found;
    }
  }
  return BPPSA_OK;
}

/* The plan of speculative BP, if it is the method. */
static bppsa_status make_speculation(const bppsa_recurrent_config *config, bppsa_backward_report *report) {
  const bppsa_forward_shape shape = bppsa_recurrent_forward_shape(
      config, report->kind->cell, report->device, report->device == BPPSA_CPU ? 0 : BPPSA_FORWARD_MULTIPROCESSORS);
  bppsa_backward_method method = config->speculation;
  BPPSA_TRY(bppsa_recurrent_find_fallback(config, report->kind->cell, report->device, &method));
  BPPSA_TRY(bppsa_backward_plan_make(&method, &shape, &report->plan));
  return count_bytes(config, report);
}

bppsa_status bppsa_backward_report_make(const bppsa_network_kind *kind, const bppsa_recurrent_config *config,
                                        const bppsa_recurrent_config *chosen, bppsa_device_kind device,
                                        bppsa_backward_report *report) {
  BPPSA_REQUIRE(kind != NULL && config != NULL && chosen != NULL && report != NULL);
  bppsa_backward_report made = {.kind = kind, .config = *config, .device = device, .method = chosen->method, .bytes = -1};
  const bool speculates = chosen->method.backward == BPPSA_BACKWARD_SPECULATIVE;
  bppsa_status status = speculates ? make_speculation(chosen, &made) : BPPSA_OK;
  if (status == BPPSA_OK && (speculates || config->method.backward == BPPSA_BACKWARD_AUTO)) {
    status = list_candidates(config, &made);
  }
  if (status != BPPSA_OK) {
    bppsa_backward_report_free(&made);
    return status;
  }
  *report = made;
  return BPPSA_OK;
}

void bppsa_backward_report_free(bppsa_backward_report *report) {
  bppsa_free(report->candidates);
  *report = (bppsa_backward_report){0};
}

/* ---- FLOPs ---- */

/* The work of BP in all layers, in one direction of each, for one sample. extra: what a step summed once more adds to its weight
 * gradients, all steps together. */
static bppsa_status find_bp(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, bppsa_work *bp, double *extra) {
  bppsa_recurrent_config linear = *config, bare = *config;
  linear.method = (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, bppsa_scan_method_of(BPPSA_SCAN_LINEAR)};
  bare.input_gradients = false;
  for (int64_t layer = 0; layer < config->layers; ++layer) {
    const bppsa_scan_config scan = bppsa_network_scan(kind, &linear, layer);
    bppsa_scan_plan *plan = NULL;
    BPPSA_TRY(bppsa_scan_plan_create(&scan, &plan));
    const bppsa_work work = bppsa_work_of_bp(bppsa_scan_plan_totals(plan), bppsa_network_flops_besides(kind, config, layer));
    bppsa_scan_plan_destroy(plan);
    bppsa_work_add(&work, bp);
    const double outputs = (double)config->hidden * (config->bidirectional ? 2 : 1);
    const double below = layer > 0 ? 2 * (double)config->seq_len * (double)(kind->cell->gates * config->hidden) * outputs : 0;
    *extra += bppsa_network_flops_besides(kind, &bare, layer) - below;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_backward_ratios(const bppsa_network_kind *kind, const bppsa_recurrent_config *config,
                                   const bppsa_backward_plan *plan, const bppsa_backward_stats *stats,
                                   bppsa_work_ratios *ratios) {
  BPPSA_REQUIRE(kind != NULL && config != NULL && plan != NULL && ratios != NULL);
  const bppsa_forward_shape shape = bppsa_recurrent_forward_shape(config, kind->cell, BPPSA_CPU, 0);
  const bppsa_backward_expected planned = bppsa_backward_expect(&shape, plan);
  const double work = stats != NULL ? stats->work : planned.work, early = planned.work - 1;
  const double path = stats != NULL ? (double)stats->path / (double)stats->possible : planned.path;
  const double sides = config->bidirectional ? 2 : 1, state = (double)(kind->cell->pair ? 2 * config->hidden : config->hidden);
  const double again = stats != NULL ? (double)stats->mended / ((double)config->batch * sides) : 0;
  bppsa_work bp = {0};
  double extra = 0;
  BPPSA_TRY(find_bp(kind, config, &bp, &extra));
  const double compared = 2 * state * ((double)(config->layers * (plan->chunks - 1)) + again);
  const bool speculated = plan->speculative && (stats == NULL || stats->speculated);
  const bppsa_work walked = {.gradients = bp.gradients * work + compared,
                             .critical = bp.critical * path + 2 * state * (double)config->layers,
                             .besides = bp.besides + extra * fmax(0, work - early - 1)};
  *ratios = speculated ? bppsa_work_over(&walked, &bp) : bppsa_work_over(&bp, &bp);
  return BPPSA_OK;
}

/* ---- candidates ---- */

static bool is_chosen(const bppsa_backward_report *report, const bppsa_recurrent_candidate *c) {
  const bppsa_gradient_method *a = &report->method, *b = &c->method;
  return a->backward == b->backward &&
         (a->backward != BPPSA_BACKWARD_SCAN ||
          (a->scan.algorithm == b->scan.algorithm && a->scan.up_levels == b->scan.up_levels && a->scan.chunks == b->scan.chunks));
}

json_t *bppsa_candidates_json(const bppsa_backward_report *report) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (int64_t i = 0; ok && i < report->candidate_count; ++i) {
    const bppsa_recurrent_candidate *c = &report->candidates[i];
    json_t *object = json_object();
    bool filled = object != NULL && bppsa_gradient_method_put(object, &c->method);
    filled = filled && bppsa_json_put_real(object, "predicted_s", c->seconds);
    filled = filled && bppsa_json_put_bool(object, "chosen", is_chosen(report, c));
    ok = json_array_append_new(list, bppsa_json_finish(object, filled)) == 0;
  }
  return bppsa_json_finish(list, ok);
}

void bppsa_candidates_text(const bppsa_backward_report *report, bppsa_text *text) {
  bppsa_text_add(text, "Predicted seconds of all layers, of which ratios count:\n\n");
  for (int64_t i = 0; i < report->candidate_count; ++i) {
    const bppsa_recurrent_candidate *c = &report->candidates[i];
    char words[BPPSA_METHOD_TEXT];
    bppsa_text_add(text, "  %-32s  %11.4g%s\n", bppsa_gradient_method_words(&c->method, words, sizeof words), c->seconds,
                   is_chosen(report, c) ? "  shown below" : "");
  }
  bppsa_text_add(text, "\n");
}

/* ---- the pass ---- */

/* What the document and the words have in common. */
typedef struct {
  const bppsa_backward_plan *plan;
  bppsa_backward_expected expected;
  bppsa_work_ratios ratios;
  int64_t longest, path, lanes, possible; /* steps of the longest chunk; of a layer's path; lanes at once; T of all layers */
} numbers;

static bppsa_status find_numbers(const bppsa_backward_report *report, numbers *n) {
  const bppsa_recurrent_config *c = &report->config;
  const bppsa_backward_plan *p = &report->plan;
  const bppsa_forward_shape shape = bppsa_recurrent_forward_shape(c, report->kind->cell, report->device, 0);
  *n = (numbers){.plan = p,
                 .expected = bppsa_backward_expect(&shape, p),
                 .longest = (c->seq_len + p->chunks - 1) / p->chunks,
                 .lanes = p->chunks * c->batch,
                 .possible = c->seq_len * c->layers * (c->bidirectional ? 2 : 1)};
  n->path = (int64_t)round(n->expected.path * (double)n->possible);
  return bppsa_backward_ratios(report->kind, c, p, NULL, &n->ratios);
}

static double seconds_of(const bppsa_backward_report *report, bppsa_backward backward) {
  for (int64_t i = 0; i < report->candidate_count; ++i) {
    if (report->candidates[i].method.backward == backward) {
      return report->candidates[i].seconds;
    }
  }
  return NAN;
}

static json_t *pass_json(const bppsa_backward_report *report, const numbers *n) {
  json_t *object = bppsa_backward_plan_json(n->plan);
  bool ok = object != NULL;
  if (n->plan->speculative) {
    ok = ok && bppsa_json_put_integer(object, "longest", n->longest);
    ok = ok && bppsa_json_put_integer(object, "lanes", n->lanes);
  }
  ok = ok && bppsa_json_put_integer(object, "path", n->path);
  ok = ok && bppsa_json_put_integer(object, "possible", n->possible);
  ok = ok && bppsa_json_put_real(object, "work", n->expected.work);
  ok = ok && (report->bytes < 0 || bppsa_json_put_integer(object, "bytes", report->bytes));
  return bppsa_json_finish(object, ok);
}

json_t *bppsa_backward_report_json(const bppsa_backward_report *report) {
  const bppsa_recurrent_config *c = &report->config;
  numbers n;
  json_t *object = find_numbers(report, &n) == BPPSA_OK ? json_object() : NULL;
  bool ok = object != NULL && bppsa_json_put_text(object, "model", report->kind->name);
  ok = ok && bppsa_chosen_method_json(object, &report->method, bppsa_chosen_of(&c->method));
  ok = ok && bppsa_json_put_real(object, "predicted_s",
                                 seconds_of(report, n.plan->speculative ? BPPSA_BACKWARD_SPECULATIVE : BPPSA_BACKWARD_BP));
  ok = ok && bppsa_json_put_integer(object, "seq_len", c->seq_len);
  ok = ok && bppsa_json_put_integer(object, "batch", c->batch);
  ok = ok && bppsa_json_put_integer(object, "hidden", c->hidden);
  ok = ok && bppsa_json_put_integer(object, "layers", c->layers);
  ok = ok && (!c->bidirectional || bppsa_json_put(object, "bidirectional", json_true()));
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(c->dtype));
  ok = ok && bppsa_json_put(object, "speculation", pass_json(report, &n));
  ok = ok && bppsa_work_json(object, "bp", &n.ratios);
  ok = ok && bppsa_json_put(object, "candidates", bppsa_candidates_json(report));
  return bppsa_json_finish(object, ok);
}

void bppsa_backward_report_text(const bppsa_backward_report *report, bppsa_text *text) {
  const bppsa_recurrent_config *c = &report->config;
  numbers n;
  char words[BPPSA_BACKWARD_TEXT], ratios[BPPSA_WORK_TEXT], bytes[BPPSA_SI_TEXT], of_path[BPPSA_RATIO_TEXT];
  if (find_numbers(report, &n) != BPPSA_OK) {
    text->failed = true; /* there was no memory for a plan */
    return;
  }
  bppsa_text_add(text, "Backward: %s\n\n", bppsa_backward_plan_text(n.plan, words, sizeof words));
  if (!n.plan->speculative) {
    bppsa_text_add(text, "  One chunk of %" PRId64 " steps is all there is: every pass is BP.\n", c->seq_len);
    return;
  }
  bppsa_text_add(text,
                 "  chunks             %" PRId64 " of up to %" PRId64 " steps; %" PRId64 " lanes of %" PRId64 " samples at once\n"
                 "  warm-up            %" PRId64 " steps later in time\n"
                 "  path               %" PRId64 " steps where nothing is mended, of %" PRId64 "\n"
                 "  work               %.2f times BP's steps where nothing is mended\n"
                 "  rounds             up to %" PRId64 " of mending all chunks at once, then chunk by chunk\n"
                 "  accepted           differences of up to %.3g of the gradients' size; a walk stops at %.3g\n",
                 n.plan->chunks, n.longest, n.lanes, c->batch, n.plan->warm_up, n.path, n.possible, n.expected.work,
                 n.plan->rounds, n.plan->accept, n.plan->stop);
  if (n.plan->scan_chunks > 1) {
    bppsa_text_add(text, "  in its place       a scan of %" PRId64 " chunks, where a pass is paused or given up\n",
                   n.plan->scan_chunks);
  }
  if (report->bytes >= 0) {
    bppsa_text_add(text, "  memory             %s beside BP's, with one thread\n",
                   bppsa_text_si((double)report->bytes, "B", bytes, sizeof bytes));
  }
  bppsa_text_add(text, "\nWhere nothing is mended a pass is %s of BP's path deep,\nfor %s.\n",
                 bppsa_work_ratio(n.expected.path, of_path), bppsa_work_text(&n.ratios, "steps", ratios, sizeof ratios));
}

/* ---- the drawing ---- */

static const char blue[] = "#2166ac", orange[] = "#b35806", red[] = "#d7191c", black[] = "#222222", rule[] = "#e6e6e6";

enum { LEFT = 110, WIDTH = 1100, TOP = 84, ROW = 16, BAR = 8, MOST_DRAWN = 500 };

bppsa_status bppsa_backward_report_draw(const bppsa_backward_report *report, bppsa_text *drawing) {
  const bppsa_backward_plan *p = &report->plan;
  const int64_t steps = report->config.seq_len;
  const double scale = (double)WIDTH / (double)steps, bottom = TOP + (double)p->chunks * ROW;
  bppsa_canvas c = {.text = drawing, .width = LEFT + WIDTH + 40, .height = bottom + 44};
  char words[160];
  if (!p->speculative || p->chunks > MOST_DRAWN) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "drawing: %" PRId64 " chunks of time, expected 2 .. %d", p->chunks, MOST_DRAWN);
  }
  snprintf(words, sizeof words,
           "Speculative BP: %" PRId64 " chunks of %" PRId64 " steps, each started %" PRId64 " steps later in time", p->chunks,
           steps, p->warm_up);
  bppsa_canvas_begin(&c, words);
  bppsa_canvas_words(&c, 16, 22, -1, 15, black, words);
  bppsa_canvas_line(&c, LEFT, 48, LEFT + 24, 48, 0, (bppsa_stroke){blue, NULL, BAR, false});
  bppsa_canvas_words(&c, LEFT + 32, 48, -1, 12, black, "chunk, from later steps to earlier ones");
  bppsa_canvas_line(&c, LEFT + 300, 48, LEFT + 324, 48, 0, (bppsa_stroke){orange, NULL, BAR, false});
  bppsa_canvas_words(&c, LEFT + 332, 48, -1, 12, black, "warm-up");
  bppsa_canvas_line(&c, LEFT + 440, 42, LEFT + 440, 54, 0, (bppsa_stroke){red, NULL, 2, false});
  bppsa_canvas_words(&c, LEFT + 448, 48, -1, 12, black, "boundary, verified");
  for (int64_t i = p->chunks - 1; i >= 0; --i) {
    const double y = TOP + (double)(p->chunks - 1 - i) * ROW;
    const int64_t begin = bppsa_cut(steps, p->chunks, i), end = bppsa_cut(steps, p->chunks, i + 1),
                  from = end + p->warm_up < steps ? end + p->warm_up : steps;
    const double x0 = LEFT + scale * (double)begin, x1 = LEFT + scale * (double)end, x2 = LEFT + scale * (double)from;
    snprintf(words, sizeof words, "steps %" PRId64 " .. %" PRId64 ", started at %" PRId64, end, begin + 1, from);
    bppsa_canvas_open(&c, "chunk", words);
    bppsa_canvas_line(&c, LEFT, y, LEFT + WIDTH, y, 0, (bppsa_stroke){rule, NULL, 1, false});
    bppsa_canvas_line(&c, x2, y, x1, y, 0, (bppsa_stroke){orange, NULL, BAR, false});
    bppsa_canvas_line(&c, x1, y, x0, y, 0, (bppsa_stroke){blue, NULL, BAR, false});
    if (i + 1 < p->chunks) {
      bppsa_canvas_line(&c, x1, y - ROW, x1, y + BAR, 0, (bppsa_stroke){red, NULL, 2, false});
    }
    snprintf(words, sizeof words, "chunk %" PRId64, i);
    bppsa_canvas_words(&c, 16, y, -1, 12, black, words);
    bppsa_canvas_close(&c);
  }
  bppsa_canvas_words(&c, LEFT, bottom + 14, -1, 12, black, "step 1");
  snprintf(words, sizeof words, "step %" PRId64, steps);
  bppsa_canvas_words(&c, LEFT + WIDTH, bottom + 14, 1, 12, black, words);
  bppsa_canvas_end(&c);
  return bppsa_text_check(drawing);
}
