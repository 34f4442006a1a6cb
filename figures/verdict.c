#include "figures/verdict.h"

#include <inttypes.h>
#include <math.h>

#include "figures/measured_rows.h"

const char bppsa_figures_definition[] =
    "<p class=\"note\">Every ratio of BP to a scan on this page is the time of one <b>forward and one backward pass</b> by BP "
    "over the "
    "same by the scan, <b>both medians</b>; minima stand beside them. The best scan is the fastest one that breaks the chain of "
    "steps: not linear, which is BP. "
    "A ~ (in figures a ring) marks what is noisy: its median is more than 1.25 times its minimum, also when measured again. "
    "Nothing is concluded from it.</p>\n";

typedef struct {
  int64_t points, bp_wins, noisy; /* noisy: number of points left out */
  double best;                    /* the largest speedup: time of BP / time of the scan */
  int64_t seq_len, batch;
  const char *init;
  double work[2]; /* FLOPs of the scan / FLOPs of BP at that point: without and with the weights' gradients */
} score;

static double number(const json_t *row, const char *key) {
  const json_t *value = json_object_get(row, key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Do both rows belong to the same point, with the same shape and weights? */
static bool is_same_point(const json_t *a, const json_t *b) {
  static const char *const keys[] = {"seq_len", "batch", "hidden", "input", "layers", "init"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; ++i) {
    const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
    if (x != y && !json_equal(x, y)) {
      return false;
    }
  }
  return true;
}

/* Compares BP with the faster parallel scan at one point, forward passes included. */
static void judge(const json_t *rows, const json_t *bp, score *s) {
  double forward = NAN, scan = INFINITY, work[2] = {0, 0};
  bool noisy = json_is_true(json_object_get(bp, "noisy"));
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    const bool is_forward = bppsa_measured_is(row, "phase", "forward") && bppsa_measured_is(row, "method", "forward");
    const bool is_scan = bppsa_measured_is(row, "phase", "backward") &&
                         bppsa_measured_is_parallel(json_string_value(json_object_get(row, "method")));
    if ((!is_forward && !is_scan) || !is_same_point(row, bp)) {
      continue;
    }
    noisy = noisy || json_is_true(json_object_get(row, "noisy"));
    forward = is_forward ? number(row, "median_s") : forward;
    if (is_scan && number(row, "median_s") < scan) {
      scan = number(row, "median_s");
      work[0] = number(row, "flops_of_bp"); /* NaN: the document is older than this field */
      work[1] = number(row, "flops") / number(bp, "flops");
    }
  }
  const double ratio = (forward + number(bp, "median_s")) / (forward + scan);
  if (!isfinite(scan) || !isfinite(ratio)) {
    return;
  }
  if (noisy) {
    ++s->noisy;
    return;
  }
  ++s->points;
  s->bp_wins += ratio < 1;
  if (ratio > s->best) {
    *s = (score){.points = s->points,
                 .bp_wins = s->bp_wins,
                 .noisy = s->noisy,
                 .best = ratio,
                 .seq_len = bppsa_measured_integer(bp, "seq_len"),
                 .batch = bppsa_measured_integer(bp, "batch"),
                 .init = json_string_value(json_object_get(bp, "init")),
                 .work = {work[0], work[1]}};
  }
}

static void add_noisy_points(const score *s, bppsa_text *text) {
  if (s->noisy > 0) {
    bppsa_text_add(text,
                   "%" PRId64
                   " point%s noisy, measured twice, and left out of this: half of the passes took more than 1.25 times the "
                   "fastest one. ",
                   s->noisy, s->noisy == 1 ? " is" : "s are");
  }
}

void bppsa_figures_verdict(const json_t *document, bppsa_text *text) {
  const json_t *rows = json_object_get(document, "rows");
  const int64_t threads = bppsa_measured_integer(json_object_get(document, "device"), "threads");
  char scans[BPPSA_MEASURED_TEXT];
  score s = {0};
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    if (bppsa_measured_is(row, "method", "bp") && bppsa_measured_is(row, "phase", "backward")) {
      judge(rows, row, &s);
    }
  }
  if (s.points == 0) {
    bppsa_text_add(text, s.noisy > 0 ? "No conclusion: every point that was measured by BP and by a parallel scan is noisy. "
                                     : "No point was measured by BP and by a parallel scan.");
    add_noisy_points(&s, text);
    return;
  }
  bppsa_text_add(text,
                 "On this machine, with %" PRId64
                 " thread%s, one forward and one backward pass of sequential BP, by medians, are "
                 "faster than by every parallel scan (%s) at %" PRId64 " of %" PRId64 " measured points. ",
                 threads, threads == 1 ? "" : "s", bppsa_measured_parallel_text(scans, sizeof scans), s.bp_wins, s.points);
  bppsa_text_add(text,
                 "The scan %s at T = %" PRId64 ", B = %" PRId64 " (init %s), where BP takes %.2f times the best scan's "
                 "time; the scan's backward pass does %.1f times the FLOPs of BP's, gradients of weights included",
                 s.best > 1 ? "wins most clearly" : "comes closest", s.seq_len, s.batch, s.init != NULL ? s.init : "default",
                 s.best, s.work[1]);
  if (isfinite(s.work[0])) {
    bppsa_text_add(text, " (%.1f times for the gradients between steps alone)", s.work[0]);
  }
  bppsa_text_add(text, ". ");
  add_noisy_points(&s, text);
  bppsa_text_add(
      text, "The scan's matrix products cost about H times the arithmetic of BP's matrix-vector products; it pays where far more "
            "workers stand ready than there are samples in the batch, as on the paper's GPUs, whose baseline was cuDNN 7. "
            "The linear scan is the recurrence of BP itself.");
}
