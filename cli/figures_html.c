/* One self-contained page with every table and figure. */
#include <inttypes.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/figures.h"

const char bppsa_figures_style[] =
    "body{font-family:'DejaVu Sans',Helvetica,Arial,sans-serif;color:#222;max-width:1240px;margin:2em auto;padding:0 "
    "1em;line-height:1.45}"
    "h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2.2em}table{border-collapse:collapse;font-size:.85em}"
    "th,td{border:1px solid #ccc;padding:.25em .6em;text-align:right;font-variant-numeric:tabular-nums}th{background:#f4f4f4}"
    ".none{color:#999}.note{color:#555;font-size:.88em;max-width:60em}.verdict{background:#f7f3e8;border-left:4px solid "
    "#b35806;padding:.7em 1em}"
    "figure{margin:1em 0;overflow-x:auto}svg{max-width:100%;height:auto}figcaption{font-size:.88em;color:#555;max-width:60em}";

const char bppsa_figures_definition[] =
    "<p class=\"note\">Every ratio of BP to a scan on this page is the time of one <b>forward and one backward pass</b> by BP "
    "over the "
    "same by the scan, <b>both medians</b>; minima stand beside them. The best scan is the faster of Blelloch and chunked. "
    "A ~ (in figures a ring) marks what is noisy: its median is more than 1.25 times its minimum, also when measured again. "
    "Nothing is concluded from it.</p>\n";

static void add_meta(bppsa_text *text, const char *name, const json_t *value) {
  if (json_is_string(value) && json_string_value(value)[0] != '\0') {
    bppsa_text_add(text, "%s ", name);
    bppsa_text_add_escaped(text, json_string_value(value));
    bppsa_text_add(text, " &middot; ");
  }
}

void bppsa_figures_page_head(const bppsa_figures *f, const char *title, bppsa_text *text) {
  const json_t *device = json_object_get(f->document, "device");
  bppsa_text_add(
      text,
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>bppsa: tables and figures</title>\n"
      "<style>%s</style>\n</head>\n<body>\n<h1>%s</h1>\n"
      "<p class=\"note\">",
      bppsa_figures_style, title);
  add_meta(text, "measured on", json_object_get(device, "hardware"));
  bppsa_text_add(text, "threads %" PRId64 " &middot; ", (int64_t)json_integer_value(json_object_get(device, "threads")));
  add_meta(text, "vector units", json_object_get(device, "vector"));
  add_meta(text, "BLAS", json_object_get(device, "blas"));
  add_meta(text, "PyTorch", json_object_get(device, "pytorch"));
  add_meta(text, "version", json_object_get(f->document, "version"));
  add_meta(text, "commit", json_object_get(f->document, "commit"));
  add_meta(text, "", json_object_get(f->document, "date"));
  bppsa_text_add(text, "f32</p>\n<h2>What wins here</h2>\n<p class=\"verdict\">");
  bppsa_text verdict = {0};
  bppsa_figures_verdict(f->document, &verdict);
  text->failed |= verdict.failed;
  if (verdict.text != NULL) {
    bppsa_text_add_escaped(text, verdict.text);
  }
  bppsa_text_free(&verdict);
  bppsa_text_add(text, "</p>\n%s", bppsa_figures_definition);
}

static void add_tables(const bppsa_figures *f, bppsa_text *text) {
  const json_t *rows = json_object_get(f->document, "rows");
  for (int table = 4; table <= 5; ++table) {
    bppsa_text_add(text, "<h2 id=\"table%d\">Table %d: seconds per epoch of 32 000 samples, by %s</h2>\n", table, table,
                   table == 4 ? "sequence length" : "batch size");
    bppsa_figures_table_html(rows, table, text);
  }
  bppsa_text_add(
      text, "<p class=\"note\">H = 20, default initialisation, unless the results say otherwise. The paper's columns are whole "
            "epochs of "
            "training on a V100 (BP is PyTorch with cuDNN 7). The columns measured here are one forward pass, and one forward "
            "and one backward pass, times the iterations of an epoch; head, loss, update and data are left out. "
            "<i>linear</i> is BP under another name, <i>auto</i> the planner's choice. A dash was not measured.</p>\n");
}

static void add_growth(const bppsa_figures *f, bppsa_text *text) {
  json_t *growth = bppsa_figures_growth(f);
  text->failed |= growth == NULL;
  if (json_array_size(growth) == 0) { /* fewer than three lengths */
    json_decref(growth);
    return;
  }
  bppsa_text_add(text, "<h2 id=\"growth\">Growth with T at B = 16</h2>\n");
  bppsa_bench_growth_html(growth, text);
  bppsa_text_add(text, "<p class=\"note\">Least squares over the logarithms of T from 100 on, medians, noisy points left out: an "
                       "exponent of 1 is linear growth. The "
                       "critical path is counted in the plans: for linear it doubles with T, for Blelloch a doubling adds two "
                       "products.</p>\n");
  json_decref(growth);
}

static void add_plan(bppsa_text *text, const char *id, const char *title, const char *caption, const bppsa_text *svg) {
  bppsa_text_add(text, "<h2 id=\"%s\">%s</h2>\n<figure>\n", id, title);
  bppsa_text_add(text, "%s", svg->text != NULL ? svg->text : "");
  bppsa_text_add(text, "<figcaption>%s</figcaption>\n</figure>\n", caption);
}

bppsa_status bppsa_figures_add_plot(const bppsa_figures *f, bppsa_text *text, const char *id, const char *title,
                                    const char *caption) {
  bppsa_text_add(text, "<h2 id=\"%s\">%s</h2>\n<figure>\n", id, title);
  if (f->gnuplot) {
    BPPSA_TRY(bppsa_figures_inline(f, id, text));
  } else {
    bppsa_text_add(text, "<p>Not drawn: gnuplot is not installed (package gnuplot-nox). The numbers are in %s.csv.</p>\n", id);
  }
  bppsa_text_add(text, "<figcaption>");
  bppsa_text_add_escaped(text, caption);
  bppsa_text_add(text, "</figcaption>\n</figure>\n");
  return BPPSA_OK;
}

bppsa_status bppsa_figures_page(const bppsa_figures *f, const bppsa_text plans[2], const char *trained, bppsa_text *text) {
  bppsa_figures_page_head(f, "Back-propagation as a parallel scan: tables 4 and 5, figures 1, 3, 7 and 8", text);
  add_tables(f, text);
  add_growth(f, text);
  add_plan(
      text, "figure1", "Figure 1: back-propagation through 7 layers as a Blelloch scan",
      "Seven transposed Jacobians and the last layer's gradient, as in the paper's figure 1. A product stands in the column of "
      "its "
      "last element, its gradient is the one of that prefix. Products whose result would be overwritten are dead and never run.",
      &plans[0]);
  add_plan(text, "figure3", "Figure 3: the scan of VGG-11's 21 operators",
           "The plan of VGG-11 on 3 x 32 x 32, 22 elements, as many as in the paper's figure 3; FLOPs are those of its sparse "
           "patterns, for one sample. Red is the product each level waits for: 7 in a row "
           "where BP "
           "has 20. Levels of the paper's algorithm that only move data are kept as empty rows.",
           &plans[1]);
  BPPSA_TRY(bppsa_figures_add_plot(f, text, "figure7", "Figure 7: training loss over wall-clock time", trained));
  BPPSA_TRY(bppsa_figures_add_plot(
      f, text, "figure8", "Figure 8: sensitivity to T and B",
      "One forward and one backward pass, medians, default initialisation, H = 20. The grey curve is the paper's V100 from "
      "tables "
      "4 and 5. Its BP is cuDNN 7; the BP here is this program's own sequential sweep on this machine. Rings are noisy points."));
  bppsa_text_add(text, "<h2>Schedules</h2>\n<p><a href=\"schedules.html\">Timelines of pipelines, data parallelism and "
                       "scans</a></p>\n</body>\n</html>\n");
  return bppsa_text_check(text);
}
