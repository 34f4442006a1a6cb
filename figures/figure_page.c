/* Makes a self-contained HTML page: its head, and every figure as a drawing or a table with its caption. */
#include <inttypes.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/files/file.h"
#include "figures/figure.h"
#include "figures/verdict.h"

static const char style[] =
    "body{font-family:'DejaVu Sans',Helvetica,Arial,sans-serif;color:#222;max-width:1240px;margin:2em auto;padding:0 "
    "1em;line-height:1.45}"
    "h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2.2em}table{border-collapse:collapse;font-size:.85em}"
    "th,td{border:1px solid #ccc;padding:.25em .6em;text-align:right;font-variant-numeric:tabular-nums}th{background:#f4f4f4}"
    ".none{color:#999}.note{color:#555;font-size:.88em;max-width:60em}.verdict{background:#f7f3e8;border-left:4px solid "
    "#b35806;padding:.7em 1em}"
    "figure{margin:1em 0;overflow-x:auto}svg{max-width:100%;height:auto}figcaption{font-size:.88em;color:#555;max-width:60em}";

/* ---- the head ---- */

static void add_meta(bppsa_text *text, const char *name, const json_t *value) {
  if (json_is_string(value) && json_string_value(value)[0] != '\0') {
    bppsa_text_add(text, "%s ", name);
    bppsa_text_add_escaped(text, json_string_value(value));
    bppsa_text_add(text, " &middot; ");
  }
}

/* Adds the machine that measured, the method that wins on it, and the definition of every ratio. */
static void add_measured(const bppsa_figures *f, bppsa_text *text) {
  const json_t *device = json_object_get(f->document, "device");
  bppsa_text verdict = {0};
  bppsa_text_add(text, "<p class=\"note\">");
  add_meta(text, "measured on", json_object_get(device, "hardware"));
  bppsa_text_add(text, "threads %" PRId64 " &middot; ", (int64_t)json_integer_value(json_object_get(device, "threads")));
  add_meta(text, "vector units", json_object_get(device, "vector"));
  add_meta(text, "BLAS", json_object_get(device, "blas"));
  add_meta(text, "PyTorch", json_object_get(device, "pytorch"));
  add_meta(text, "JAX", json_object_get(device, "jax"));
  add_meta(text, "version", json_object_get(f->document, "version"));
  add_meta(text, "commit", json_object_get(f->document, "commit"));
  add_meta(text, "", json_object_get(f->document, "date"));
  bppsa_text_add(text, "f32</p>\n<h2>What wins here</h2>\n<p class=\"verdict\">");
  bppsa_figures_verdict(f->document, &verdict);
  text->failed |= verdict.failed;
  if (verdict.text != NULL) {
    bppsa_text_add_escaped(text, verdict.text);
  }
  bppsa_text_free(&verdict);
  bppsa_text_add(text, "</p>\n%s", bppsa_figures_definition);
}

static void add_head(const bppsa_figures *f, const bppsa_figure_page *page, bppsa_text *text) {
  bppsa_text_add(text,
                 "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>bppsa: %s</title>\n"
                 "<style>%s</style>\n</head>\n<body>\n<h1>%s</h1>\n",
                 page->title, style, page->heading);
  if (page->intro != NULL) {
    bppsa_text_add(text, "%s", page->intro);
  } else {
    add_measured(f, text);
  }
}

/* ---- a drawing ---- */

/* Gnuplot uses the same names for symbols (gpPt0, gpDot, ..) in every drawing, so this adds a prefix to each. */
static void add_prefixed(bppsa_text *text, const char *svg, const char *prefix) {
  static const char *const marks[] = {"id=\"", "id='", "href='#", "href=\"#", "url(#"};
  while (*svg != '\0') {
    const char *mark = NULL;
    for (size_t i = 0; mark == NULL && i < sizeof marks / sizeof marks[0]; ++i) {
      mark = strncmp(svg, marks[i], strlen(marks[i])) == 0 ? marks[i] : NULL;
    }
    if (mark != NULL) {
      bppsa_text_add(text, "%s%s-", mark, prefix);
      svg += strlen(mark);
    } else {
      const size_t length = 1 + strcspn(svg + 1, "ihu"); /* the text up to the next possible id or reference */
      bppsa_text_add(text, "%.*s", (int)length, svg);
      svg += length;
    }
  }
}

/* Adds the <svg> element that gnuplot drew; the figure's name makes its ids unique. */
static bppsa_status add_plot(const bppsa_figures *f, const char *name, bppsa_text *text) {
  enum { LIMIT = 64 << 20 };
  char path[BPPSA_FIGURES_PATH], *data = NULL;
  int64_t size;
  if (!f->gnuplot) {
    bppsa_text_add(text, "<p>Not drawn: gnuplot is not installed (package gnuplot-nox). The numbers are in %s.csv.</p>\n", name);
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_figures_path(f, name, ".svg", path));
  BPPSA_TRY(bppsa_file_read(path, LIMIT, &data, &size));
  const char *svg = strstr(data, "<svg"); /* after the XML declaration and the document type */
  if (svg != NULL) {
    add_prefixed(text, svg, name);
  }
  bppsa_free(data);
  return svg != NULL ? bppsa_text_check(text)
                     : bppsa_fail(BPPSA_ERR_IO, "%s: no <svg> element, expected gnuplot's drawing", path);
}

/* ---- a figure ---- */

static const char *text_of(const bppsa_text *text) {
  return text->size > 0 ? text->text : NULL;
}

static bppsa_status add_figure(const bppsa_figures *f, const bppsa_figure *figure, const bppsa_figure_content *content,
                               bppsa_text *text) {
  const bool plotted = figure->script != NULL && content->csv.size > 0;
  const bool drawing = plotted || content->svg.size > 0 || figure->write != NULL;
  const char *caption = content->caption.size > 0 ? content->caption.text : figure->caption;
  const char *inner = text_of(content->html.size > 0 ? &content->html : &content->svg);
  if (content->left_out) {
    return BPPSA_OK;
  }
  bppsa_text_add(text, "<h2 id=\"%s\">%s</h2>\n%s", figure->name, figure->title, drawing ? "<figure>\n" : "");
  if (inner != NULL) {
    bppsa_text_add(text, "%s", inner);
  } else if (plotted) {
    BPPSA_TRY(add_plot(f, figure->name, text));
  }
  if (caption != NULL) {
    bppsa_text_add(text, drawing ? "<figcaption>%s</figcaption>\n" : "<p class=\"note\">%s</p>\n", caption);
  }
  bppsa_text_add(text, "%s", drawing ? "</figure>\n" : "");
  return BPPSA_OK;
}

bppsa_status bppsa_figures_add_page(const bppsa_figures *figures, const bppsa_figure_page *page, int count,
                                    const bppsa_figure *rows, const bppsa_figure_content *contents, bppsa_text *text) {
  add_head(figures, page, text);
  for (int i = 0; i < count; ++i) {
    BPPSA_TRY(add_figure(figures, &rows[i], &contents[i], text));
  }
  bppsa_text_add(text, "%s</body>\n</html>\n", page->end != NULL ? page->end : "");
  return bppsa_text_check(text);
}
