/* A row of the table of figures, what is made of it, and the run it is made in. */
#ifndef BPPSA_FIGURES_FIGURE_H
#define BPPSA_FIGURES_FIGURE_H

#include "figures/figures.h"

/* ---- a run ---- */

typedef struct bppsa_figure_page bppsa_figure_page;

typedef struct {
  const bppsa_figures_request *request;
  const bppsa_network_kind *kind; /* the request's, or that of its results */
  const bppsa_figure_page *page;  /* the run's first: what is measured is measured for it */
  json_t *document;               /* what is measured: "rows" of a benchmark, or "parts" (keep.h) */
  json_t *files;                  /* names written so far */
  bool gnuplot;                   /* false as soon as it turned out not to be installed */
  bppsa_bench_tally tally;
} bppsa_figures;

/* The rows of the benchmark's document. */
static inline const json_t *bppsa_figures_rows(const bppsa_figures *figures) {
  return json_object_get(figures->document, "rows");
}
/* The recurrent network's configuration: the default one, with what the request gives. */
bppsa_recurrent_config bppsa_figures_config(const bppsa_figures *figures);
/* ERR_MEMORY with the sentence for results that found no memory. */
bppsa_status bppsa_figures_no_room(void);

/* ---- a figure ---- */

/* What a figure's data function makes; texts that it leaves empty are not written. */
typedef struct {
  bppsa_text csv;     /* of NAME.csv */
  bppsa_text svg;     /* of NAME.svg where gnuplot does not draw it */
  bppsa_text script;  /* of NAME.gp where the data make it: a script that draws NAME.png alone */
  bppsa_text html;    /* what stands on the page instead of a drawing: a table */
  bppsa_text caption; /* HTML, instead of the figure's */
  bool left_out;      /* there are not enough data: no file, nothing on the page */
} bppsa_figure_content;

typedef struct bppsa_figure bppsa_figure;
/* Makes a figure's data. */
typedef bppsa_status bppsa_figure_data(bppsa_figures *figures, const bppsa_figure *figure, bppsa_figure_content *made);

struct bppsa_figure {
  int page;         /* position in bppsa_figure_pages */
  const char *name; /* "figure8": of its files, and of its place on the page */
  bppsa_figure_data *data;
  const void *of;     /* what `data` makes it of (figures/data.h); NULL: nothing but the run */
  const char *script; /* draws NAME.csv as NAME.svg and NAME.png: `gnuplot -c NAME.gp svg|png`; NULL: nothing is plotted */
  bppsa_status (*write)(bppsa_figures *figures, const bppsa_figure *figure); /* other files of a drawing; NULL: none */
  const char *title;                                                         /* HTML */
  const char *caption;      /* HTML: below a drawing, or a note below a table; NULL: none */
  bool kept;                /* its measurements are kept as NAME.json of their own (keep.h) */
  const char *without_data; /* HTML that stands on the page instead where the run names no data set; NULL: it needs none */
};

/* The table: all figures, those of one page together and in its order. */
extern const bppsa_figure bppsa_figure_table[];
extern const int bppsa_figure_count;

/* Whether the run has what the figure needs. */
static inline bool bppsa_figure_has_data(const bppsa_figures *figures, const bppsa_figure *figure) {
  return figure->without_data == NULL || figures->request->data.spec != NULL;
}

struct bppsa_figure_page {
  const char *run;  /* whose figures: "rnn", "gru" or "cnn" */
  const char *file; /* "index.html" */
  const char *kept; /* the document of what is measured for the page: "results.json"; NULL: nothing is measured */
  const char *list; /* of that document: "rows" of a benchmark, or "parts" (keep.h) */
  const char *title, *heading;
  const char *intro; /* HTML below the heading; NULL: machine, verdict and definition of the benchmark's document */
  const char *end;   /* HTML below the last figure */
};

/* The pages, in the order in which they are made. */
extern const bppsa_figure_page bppsa_figure_pages[];
extern const int bppsa_figure_page_count;

/* ---- writer and page maker ---- */

/* DIRECTORY/namesuffix into `path`. ERR_ARGUMENT: it is too long. */
enum { BPPSA_FIGURES_PATH = 4096 };
bppsa_status bppsa_figures_path(const bppsa_figures *figures, const char *name, const char *suffix,
                                char path[BPPSA_FIGURES_PATH]);
/* Writes DIRECTORY/namesuffix and lists it. */
bppsa_status bppsa_figures_write(bppsa_figures *figures, const char *name, const char *suffix, const bppsa_text *text);
/* Lists a file that is there. ERR_MEMORY. */
bppsa_status bppsa_figures_list(bppsa_figures *figures, const char *name, const char *suffix);
/* Writes NAME.csv, NAME.svg, NAME.gp and NAME.png of a figure, as far as it has them. ERR_IO: gnuplot failed. */
bppsa_status bppsa_figure_write(bppsa_figures *figures, const bppsa_figure *figure, const bppsa_figure_content *content);
/* Appends a page with its figures, `contents` as many as the page has, whose files are written. */
bppsa_status bppsa_figures_add_page(const bppsa_figures *figures, const bppsa_figure_page *page, int count,
                                    const bppsa_figure *rows, const bppsa_figure_content *contents, bppsa_text *text);

#endif
