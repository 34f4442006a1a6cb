/* A row of the table of figures, the content that is made from it, and the run in which it is made. */
#ifndef BPPSA_FIGURES_FIGURE_H
#define BPPSA_FIGURES_FIGURE_H

#include "figures/figures.h"

/* ---- a run ---- */

typedef struct bppsa_figure_page bppsa_figure_page;

typedef struct {
  const bppsa_figures_request *request;
  const bppsa_network_kind *kind; /* the kind in the request, or the kind in its results */
  const bppsa_figure_page *page;  /* the run's first page; measurements are made for this page */
  json_t *document;               /* the measurements: "rows" of a benchmark, or "parts" (keep_measurements.h) */
  json_t *files;                  /* names of the files written so far */
  bool gnuplot;                   /* becomes false when gnuplot turns out not to be installed */
  bppsa_bench_count_rows measured;
} bppsa_figures;

/* The rows of the benchmark's document. */
static inline const json_t *bppsa_figures_rows(const bppsa_figures *figures) {
  return json_object_get(figures->document, "rows");
}
/* The recurrent network's configuration: the default with the settings of the request. */
bppsa_recurrent_config bppsa_figures_config(const bppsa_figures *figures);
/* Returns ERR_MEMORY, with a message that there was no memory for the results. */
bppsa_status bppsa_figures_no_room(void);

/* ---- a figure ---- */

/* The output of a figure's data function; texts that it leaves empty are not written. */
typedef struct {
  bppsa_text csv;     /* content of NAME.csv */
  bppsa_text svg;     /* content of NAME.svg if gnuplot does not draw it */
  bppsa_text script;  /* content of NAME.gp if the data function makes the script; it draws only NAME.png */
  bppsa_text html;    /* a table that replaces the drawing on the page */
  bppsa_text caption; /* HTML that replaces the figure's caption */
  bool left_out;      /* too few data: the figure gets no file and no place on the page */
} bppsa_figure_content;

typedef struct bppsa_figure bppsa_figure;
/* Makes a figure's data. */
typedef bppsa_status bppsa_figure_data(bppsa_figures *figures, const bppsa_figure *figure, bppsa_figure_content *made);

struct bppsa_figure {
  int page;         /* position in bppsa_figure_pages */
  const char *name; /* for example "figure8": names its files and its place on the page */
  bppsa_figure_data *data;
  const void *of;     /* source of `data` (figures/figure_data.h); NULL: `data` uses only the run */
  const char *script; /* draws NAME.csv as NAME.svg and NAME.png: `gnuplot -c NAME.gp svg|png`; NULL: no plot */
  bppsa_status (*write)(bppsa_figures *figures, const bppsa_figure *figure); /* writes other files of a drawing; NULL: none */
  const char *title;                                                         /* HTML */
  const char *caption;      /* HTML, placed below a drawing or a table; NULL: none */
  bool kept;                /* its measurements are kept in a separate file NAME.json (keep_measurements.h) */
  const char *without_data; /* HTML that replaces the figure if the run names no data set; NULL: it needs none */
};

/* The table of all figures. The figures of a page are consecutive rows, in the order of the page. */
extern const bppsa_figure bppsa_figure_table[];
extern const int bppsa_figure_count;

/* Whether the run has the data set that the figure needs. */
static inline bool bppsa_figure_has_data(const bppsa_figures *figures, const bppsa_figure *figure) {
  return figure->without_data == NULL || figures->request->data.spec != NULL;
}

struct bppsa_figure_page {
  const char *run;  /* the kind of run that makes this page: "rnn", "gru", "lstm", "ranks", .. */
  const char *file; /* "index.html" */
  const char *kept; /* the document with the page's measurements, "results.json"; NULL: nothing is measured */
  const char *list; /* the list in that document: "rows" of a benchmark, or "parts" (keep_measurements.h) */
  const char *title, *heading;
  const char *intro; /* HTML below the heading; NULL: the machine, the verdict and the definition of its times */
  const char *end;   /* HTML below the last figure, or NULL */
};

/* The pages, in the order in which they are made. */
extern const bppsa_figure_page bppsa_figure_pages[];
extern const int bppsa_figure_page_count;

/* ---- writer and page maker ---- */

/* Writes DIRECTORY/namesuffix to `path`. ERR_ARGUMENT: the path is too long. */
enum { BPPSA_FIGURES_PATH = 4096 };
bppsa_status bppsa_figures_path(const bppsa_figures *figures, const char *name, const char *suffix,
                                char path[BPPSA_FIGURES_PATH]);
/* Writes the text to the file DIRECTORY/namesuffix and adds the file to the run's list. */
bppsa_status bppsa_figures_write(bppsa_figures *figures, const char *name, const char *suffix, const bppsa_text *text);
/* Adds an existing file to the run's list. ERR_MEMORY. */
bppsa_status bppsa_figures_list(bppsa_figures *figures, const char *name, const char *suffix);
/* Writes a figure's files NAME.csv, NAME.svg, NAME.gp and NAME.png, those that it has. ERR_IO: gnuplot failed. */
bppsa_status bppsa_figure_write(bppsa_figures *figures, const bppsa_figure *figure, const bppsa_figure_content *content);
/* Appends a page with its `count` figures to the text; contents has one element for each figure. The figures' files must be
 * written already. */
bppsa_status bppsa_figures_add_page(const bppsa_figures *figures, const bppsa_figure_page *page, int count,
                                    const bppsa_figure *rows, const bppsa_figure_content *contents, bppsa_text *text);

#endif
