/* The tables and figures of the papers that this project regenerates: CSV data, SVG and PNG drawings, and pages with everything
 * beside the papers' numbers.
 *
 * Every table and figure is a row {name, data, script, caption} of one table (figures/table.c). A run makes the data of a page's
 * rows, from measurements, training runs, plans or schedules, then writes every row's files and the page. What it measures is
 * kept in the directory as it goes (figures/keep.h).
 */
#ifndef BPPSA_FIGURES_FIGURES_H
#define BPPSA_FIGURES_FIGURES_H

#include "audio/mfcc.h"
#include "bench/cases/rnn.h"

/* What is trained on. */
typedef struct {
  const char *spec; /* as of bppsa_dataset_create; NULL: bitstream, for the convolutional networks synthetic images */
  int32_t set;      /* of WAV files: position in bppsa_mfcc_sets */
  bppsa_mfcc_padding padding;
  double validation; /* fraction of the samples that is held out; a convolutional network's data set has samples for it */
} bppsa_figures_data;

typedef struct {
  bppsa_output to;                /* progress goes to its `err`; nothing is printed */
  const char *directory;          /* of the files, made when missing */
  const char *results;            /* a document of bench rnn or bench gru, drawn instead of measuring; NULL: measure */
  const bppsa_network_kind *kind; /* whose figures: the RNN's or the GRU's */
  bool kind_given;                /* results of another kind are refused; otherwise theirs counts */
  bool cnn;                       /* the convolutional networks' figures instead */
  bool quick;                     /* a small sweep, two epochs instead of 20 */
  bool resume;                    /* go on where an interrupted run into the directory stopped; otherwise that is refused */
  bppsa_figures_data data;
  int64_t seq_len, batch, hidden; /* one point instead of the sweep, of the RNN's or GRU's training too; 0: not given */
  int64_t iterations;             /* of that training */
  int64_t repeats;                /* timed passes of every contender; 0: as many as fit into the budget */
  int64_t memory_limit;           /* bytes; points that need more are left out; 0: three quarters of what is available */
  uint64_t seed;                  /* of weights, data and seed gradients */
  const bppsa_device *device;
  json_t *configuration;          /* an object: everything that decides what is measured; a resumed run's must be the same */
  bool (*stop)(void);             /* asked between pieces of work: true ends the run; NULL: never */
  const char *(*stop_name)(void); /* what asked for it, "SIGINT"; NULL where stop is */
} bppsa_figures_request;

/* What a run has made. */
typedef struct {
  json_t *files;           /* the names of the files, in the order in which they were written */
  const char *page;        /* the one to begin with: "index.html" */
  bool gnuplot;            /* it is installed: otherwise what it draws is missing */
  bppsa_text verdict;      /* what wins on the machine that measured; empty where nothing of the kind was measured */
  bppsa_bench_tally tally; /* of the sweep, as far as this run measured it */
} bppsa_figures_result;

/* Measures what is needed and writes all files. All that can be wrong is found before anything is measured. The caller frees the
 * result where the status is OK. ERR_ARGUMENT: a directory that cannot be written, or that holds what an interrupted run
 * measured; settings that do not fit the results, the data or the earlier run. ERR_FORMAT: results or kept measurements. ERR_IO: a
 * file could not be written, or `stop` said so: the message says how to go on. ERR_NUMERIC, ERR_MEMORY, and what the benchmarks
 * and the training return. */
bppsa_status bppsa_figures_run(const bppsa_figures_request *request, bppsa_figures_result *result);
void bppsa_figures_result_free(bppsa_figures_result *result); /* a zeroed one is legal */

#endif
