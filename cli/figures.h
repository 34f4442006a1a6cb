/* What the files of `bppsa figures` share. */
#ifndef BPPSA_CLI_FIGURES_H
#define BPPSA_CLI_FIGURES_H

#include "cli/command.h"
#include "cli/network_kind.h"
#include "cli/progress.h"
#include "draw/canvas.h"
#include "recurrent/recurrent.h"

typedef struct {
  bppsa_cli *cli;
  const char *directory;
  json_t *document;      /* of bench rnn: "device", "commit", "date", "rows" */
  json_t *files;         /* names written so far */
  json_t *configuration; /* what decides the measurements (figures_keep.h) */
  bool gnuplot;          /* is installed; false as soon as it turned out not to be */
  const bppsa_network_kind *kind;
  /* figure 7, or 13 */
  const char *curves; /* "figure7" */
  const char *data;   /* NULL: bitstream */
  double validation;  /* the fraction of it that is held out */
  bppsa_recurrent_config config;
  int64_t iterations;
  uint64_t seed;
} bppsa_figures;

/* ---- the paper's numbers (figures_paper.c) ---- */

/* A row of table 4 or 5: seconds an epoch of 32 000 samples on a V100; BP is PyTorch with cuDNN 7. */
typedef struct {
  int64_t seq_len, batch;
  double forward_s, bp_s, bppsa_s;
} bppsa_paper_row;

/* Table 4 (T at B = 16) or 5 (B at T = 1000); *count rows. */
const bppsa_paper_row *bppsa_paper_table(int table, int64_t *count);
#define BPPSA_PAPER_SAMPLES 32000

/* ---- tables and figure 8 from measured rows (figures_table.c) ---- */

/* median_s of a row with default initialisation; NaN where there is none. method NULL: of phase forward. */
double bppsa_figures_median(const json_t *rows, int64_t seq_len, int64_t batch, const char *method);
/* One definition of a method's time for every table, figure and sentence: seconds (key "median_s" or "min_s") of one forward pass
 * and, unless method is NULL, one backward pass by the method, default initialisation; NaN where one is missing. */
double bppsa_figures_iteration(const json_t *rows, int64_t seq_len, int64_t batch, const char *method, const char *key);
/* Whether either of those rows is noisy. */
bool bppsa_figures_noisy(const json_t *rows, int64_t seq_len, int64_t batch, const char *method);
/* The median of the faster of blelloch and chunked; *noisy: a row of theirs is. */
double bppsa_figures_best_scan(const json_t *rows, int64_t seq_len, int64_t batch, bool *noisy);
/* Those definitions in a sentence, as HTML. */
extern const char bppsa_figures_definition[];
void bppsa_figures_table_csv(const json_t *rows, int table, bppsa_text *text);
void bppsa_figures_table_html(const json_t *rows, int table, bppsa_text *text);
void bppsa_figures_figure8_csv(const json_t *rows, bppsa_text *text);
/* The growth fitted to the rows of B = 16 (cli/bench.h). NULL when out of memory. */
json_t *bppsa_figures_growth(const bppsa_figures *figures);
/* What wins on the machine that measured, in sentences. */
void bppsa_figures_verdict(const json_t *document, bppsa_text *text);

/* ---- figures 7 and 13 (figures_train.c) ---- */

/* Trains by BP and by the scan in lock step and appends the curves as CSV; `verdict` gets a sentence. */
bppsa_status bppsa_figures_train(const bppsa_figures *figures, const bppsa_device *device, bppsa_progress_line *line,
                                 bppsa_text *csv, bppsa_text *verdict);

/* ---- files and drawings (figures_plot.c) ---- */

/* Writes DIRECTORY/name and lists it. */
bppsa_status bppsa_figures_write(bppsa_figures *figures, const char *name, const bppsa_text *text);
/* Runs DIRECTORY/name.gp for one format, "svg" or "png", which writes DIRECTORY/name.format. Nothing without gnuplot. ERR_IO: it
 * failed. */
bppsa_status bppsa_figures_plot(bppsa_figures *figures, const char *name, const char *format);
/* The scripts of figures 7, 8 and 13, of CSV files of the same name. */
extern const char bppsa_figure7_script[], bppsa_figure8_script[], bppsa_figure13_script[];
/* Appends the <svg> element of DIRECTORY/name.svg, its ids made unique by `name`. */
bppsa_status bppsa_figures_inline(const bppsa_figures *figures, const char *name, bppsa_text *text);

/* ---- table 3, and table 6 and figure 9 from rows of bench gru (figures_gru.c) ---- */

bppsa_status bppsa_figures_table3_csv(bppsa_text *text);
void bppsa_figures_table6_csv(const json_t *rows, bppsa_text *text);
void bppsa_figures_figure9_csv(const json_t *rows, bppsa_text *text);
/* trained: the verdict on figure 13; NULL: it was not made. */
bppsa_status bppsa_figures_gru_page(const bppsa_figures *figures, const char *trained, bppsa_text *text);
extern const char bppsa_figure9_script[];

/* ---- schedules (figures_schedule.c) ---- */

/* Writes schedules.html and its files: the papers' timelines, Chimera's table 2, bubble ratios, memory against devices. */
bppsa_status bppsa_figures_schedules(bppsa_figures *figures);

/* ---- convolutional networks (figures_cnn.c, figures_table1.c) ---- */

/* Appends a row an operator of table 1: its name, medians and minima of both ways in seconds, "noisy" and the paper's speedup.
 * ERR_NUMERIC: they differ. */
bppsa_status bppsa_figures_measure_table1(json_t *rows);

/* Writes networks.html and its files: table 1, figures 5, 6 and 10. */
bppsa_status bppsa_figures_cnn(bppsa_figures *figures);

/* ---- the page (figures_html.c) ---- */

/* The style sheet of pages. */
extern const char bppsa_figures_style[];

/* Appends a page's head: title, machine, who wins. */
void bppsa_figures_page_head(const bppsa_figures *figures, const char *title, bppsa_text *text);
/* Appends a figure that gnuplot drew, or says that it is not there. */
bppsa_status bppsa_figures_add_plot(const bppsa_figures *figures, bppsa_text *text, const char *id, const char *title,
                                    const char *caption);

/* Appends the page. plans: the SVG of figures 1 and 3; trained: the verdict on figure 7. */
bppsa_status bppsa_figures_page(const bppsa_figures *figures, const bppsa_text plans[2], const char *trained, bppsa_text *text);

#endif
