/* The tables and figures of the papers that this project regenerates: CSV data, SVG and PNG drawings, and pages that compare
 * everything with the papers' numbers.
 *
 * Every table and figure is a row {name, data, script, caption} of one table (figures/figure_table.c). For each page a run makes
 * the data of the page's rows from measurements, training runs, plans or schedules, then writes every row's files and the page. It
 * saves each measurement in the directory as soon as it has it (figures/keep_measurements.h).
 */
#ifndef BPPSA_FIGURES_FIGURES_H
#define BPPSA_FIGURES_FIGURES_H

#include "audio/mfcc.h"
#include "bench/cases/bench_rnn.h"

/* The data set to train on. */
typedef struct {
  const char *spec; /* as for bppsa_dataset_create; NULL: bitstream, or synthetic images for convolutional networks */
  int32_t set;      /* for WAV files: position in bppsa_mfcc_sets */
  bppsa_mfcc_padding padding;
  double validation; /* fraction of the samples that is held out; ignored by convolutional networks */
} bppsa_figures_data;

/* `results` are of bench rnn, gru, lstm, ranks, forward or step. */
typedef struct {
  bppsa_output to;       /* progress goes to its `err`; nothing else is printed */
  const char *directory; /* directory for the files; made if it does not exist */
  const char *results;   /* a document of a benchmark below, or of spectrain.py, to draw without measuring; NULL: measure */
  const bppsa_network_kind *kind; /* which figures: the RNN's, the GRU's or the LSTM's */
  bool kind_given;                /* true: results of another kind are refused; false: the results decide the kind */
  bool cnn;                       /* make the convolutional networks' figures instead */
  bool quick;                     /* a small sweep, two epochs instead of 20 */
  bool resume;                    /* continue the interrupted run in the directory; false: refuse a directory with such a run */
  bppsa_figures_data data;
  int64_t seq_len, batch, hidden; /* one point instead of the sweep, also for the training of the RNN or GRU; 0: not given */
  int64_t iterations;             /* iterations of that training */
  int64_t repeats;                /* timed passes of every contender; 0: as many as fit into the time budget */
  int64_t memory_limit;           /* bytes; points that need more are left out; 0: three quarters of the free memory */
  uint64_t seed;                  /* for weights, data and seed gradients */
  const bppsa_device *device;
  json_t *configuration; /* a JSON object with all settings that affect the measurements; a resumed run must have the same */
  bool (*stop)(void *context);             /* called between pieces of work; true ends the run; NULL: the run never stops early */
  const char *(*stop_name)(void *context); /* the reason for stopping, "SIGINT"; NULL if stop is NULL */
  void *stop_context;                      /* what both are called with */
} bppsa_figures_request;

/* The results of a run. */
typedef struct {
  json_t *files;                   /* the names of the files, in the order in which they were written */
  const char *page;                /* the first page to read: "index.html" */
  bool gnuplot;                    /* gnuplot is installed; if not, the drawings that it makes are missing */
  bppsa_text verdict;              /* the method that wins on the machine that measured; empty if no methods were compared */
  bppsa_bench_count_rows measured; /* counts of the part of the sweep that this run measured */
} bppsa_figures_result;

/* Measures what the figures need and writes all files. It checks the whole request before it measures anything. If the status is
 * OK, the caller frees the result. ERR_ARGUMENT: the directory cannot be written or holds an interrupted run's measurements; or
 * the settings do not fit the results, the data or the earlier run. ERR_FORMAT: the results or the kept measurements are not
 * valid. ERR_IO: a file could not be written, or `stop` returned true; the message then says how to continue. ERR_NUMERIC,
 * ERR_MEMORY, and the errors of the benchmarks and of the training. */
bppsa_status bppsa_figures_run(const bppsa_figures_request *request, bppsa_figures_result *result);
void bppsa_figures_result_free(bppsa_figures_result *result); /* a zeroed one is legal */

#endif
