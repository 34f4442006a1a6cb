/* Looks up a benchmark's measurements and the paper's numbers. */
#ifndef BPPSA_FIGURES_MEASURED_ROWS_H
#define BPPSA_FIGURES_MEASURED_ROWS_H

#include "core/files/json.h"
#include "scan/algorithm.h"

/* The methods in the tables: "bp", the algorithms of a scan (scan/algorithm.h) with auto as the last one, and "pytorch", which has
 * rows only if bench/rivals added them. */
enum { BPPSA_MEASURED_METHODS = BPPSA_SCAN_ALGORITHMS + 2 };
const char *bppsa_measured_method(int index);

/* A parallel scan breaks the chain of steps: every algorithm but auto and the one that is BP itself. There are so many: */
enum { BPPSA_MEASURED_PARALLEL = BPPSA_SCAN_ALGORITHMS - 2 };
bppsa_scan_algorithm bppsa_measured_parallel(int index);
bool bppsa_measured_is_parallel(const char *method);
/* "blelloch and chunked": the names of all parallel scans. Returns text. */
const char *bppsa_measured_parallel_text(char *text, size_t size);
#define BPPSA_MEASURED_TEXT 120

/* A row's members; 0, NaN and "" where there is none of this type. */
int64_t bppsa_measured_integer(const json_t *row, const char *key);
double bppsa_measured_real(const json_t *row, const char *key);
const char *bppsa_measured_text(const json_t *row, const char *key);
bool bppsa_measured_is(const json_t *row, const char *key, const char *expected);

/* median_s, in seconds, of the row with default initialisation; NaN if there is no such row. method NULL: the forward pass. */
double bppsa_measured_median(const json_t *rows, int64_t seq_len, int64_t batch, const char *method);
/* The definition of a method's time in every table, figure and sentence: seconds of one forward pass plus, unless method is NULL,
 * one backward pass by the method, with default initialisation. key: "median_s" or "min_s". NaN if a row is missing. */
double bppsa_measured_iteration(const json_t *rows, int64_t seq_len, int64_t batch, const char *method, const char *key);
/* Whether the row of the forward pass or the row of the backward pass is noisy. */
bool bppsa_measured_noisy(const json_t *rows, int64_t seq_len, int64_t batch, const char *method);
/* The smallest of the medians of the parallel scans, in seconds. *noisy: whether one of their rows is noisy. */
double bppsa_measured_best_scan(const json_t *rows, int64_t seq_len, int64_t batch, bool *noisy);

/* Checks that every row has the fields that the tables need. option, path: where the rows come from, for messages. ERR_FORMAT. */
bppsa_status bppsa_measured_check(const char *option, const char *path, const json_t *rows);

/* Checks the rows of a document that a stranger may have sent. A document has at most BPPSA_MEASURED_ROWS rows. The names in it (of
 * methods, networks, tasks, ..) have 1 to BPPSA_MEASURED_NAME characters: letters, digits, blanks and ._+=:/-, the first a letter
 * or digit. Names go into CSV files and through gnuplot's scripts to awk, where other characters could be commands. The number of
 * different names is limited too, so that gnuplot draws them in seconds. Times are in 1e-15 .. 1e15 s, or null where a run failed.
 * option, path: where the rows come from, for messages. ERR_FORMAT, ERR_MEMORY. */
enum { BPPSA_MEASURED_ROWS = 1024, BPPSA_MEASURED_NAME = 64 };
bppsa_status bppsa_measured_check_rows(const char *option, const char *path, const json_t *rows);

/* Counts the different names of those rows that are of a figure. name_of writes at most BPPSA_MEASURED_ROW_NAME bytes, and returns
 * them. -1: out of memory. */
enum { BPPSA_MEASURED_ROW_NAME = BPPSA_MEASURED_NAME + 48 };
int64_t bppsa_measured_count_names(const json_t *rows, bool (*is_of)(const json_t *row),
                                   const char *(*name_of)(const json_t *row, char *name));

/* A row of the paper's table 4 or 5: seconds per epoch of 32 000 samples on a V100; BP is PyTorch with cuDNN 7. */
typedef struct {
  int64_t seq_len, batch;
  double forward_s, bp_s, bppsa_s;
} bppsa_paper_row;

/* Returns table 4 (by T, at B = 16) or 5 (by B, at T = 1000), with its number of rows in *count. */
const bppsa_paper_row *bppsa_paper_table(int table, int64_t *count);
#define BPPSA_PAPER_SAMPLES 32000

#endif
