/* Looking up what a benchmark measured, and the paper's numbers beside it. */
#ifndef BPPSA_FIGURES_MEASURED_H
#define BPPSA_FIGURES_MEASURED_H

#include "core/json.h"

/* Methods of the tables; "pytorch" has rows where bench/rivals added them. */
enum { BPPSA_MEASURED_METHODS = 6 };
extern const char *const bppsa_measured_methods[BPPSA_MEASURED_METHODS];

int64_t bppsa_measured_integer(const json_t *row, const char *key);
bool bppsa_measured_is(const json_t *row, const char *key, const char *expected);

/* Seconds: median_s of a row with default initialisation; NaN where there is none. method NULL: the forward pass. */
double bppsa_measured_median(const json_t *rows, int64_t seq_len, int64_t batch, const char *method);
/* One definition of a method's time for every table, figure and sentence: seconds (key "median_s" or "min_s") of one forward pass
 * and, unless method is NULL, one backward pass by the method, default initialisation; NaN where one is missing. */
double bppsa_measured_iteration(const json_t *rows, int64_t seq_len, int64_t batch, const char *method, const char *key);
/* Whether either of those rows is noisy. */
bool bppsa_measured_noisy(const json_t *rows, int64_t seq_len, int64_t batch, const char *method);
/* The median of the faster of blelloch and chunked; *noisy: a row of theirs is. */
double bppsa_measured_best_scan(const json_t *rows, int64_t seq_len, int64_t batch, bool *noisy);

/* Every row has what the tables need of it. `option` and `path` say where the rows are from. ERR_FORMAT. */
bppsa_status bppsa_measured_check(const char *option, const char *path, const json_t *rows);

/* A row of the paper's table 4 or 5: seconds an epoch of 32 000 samples on a V100; BP is PyTorch with cuDNN 7. */
typedef struct {
  int64_t seq_len, batch;
  double forward_s, bp_s, bppsa_s;
} bppsa_paper_row;

/* Table 4 (T at B = 16) or 5 (B at T = 1000); *count rows. */
const bppsa_paper_row *bppsa_paper_table(int table, int64_t *count);
#define BPPSA_PAPER_SAMPLES 32000

#endif
