/* Measuring one point of a benchmark: one network, every method, verified and then timed in one run.
 *
 * What is counted (documented for people in `bppsa bench rnn --help`):
 *   forward    the layers without head and loss: 2·T·B·G·H·(I + H) FLOP a layer (a layer above the first has I = H)
 *   backward   the products of the plan (BP: of the linear plan) for all samples, the weight gradients 2·T·B·G·H·(I + H), and
 *              2·T·B·G·H·H to the layer below; not the input's gradient
 *   bytes      what has to move at least: forward reads x and writes h; backward what the plan's products read and write, and x, h
 *              and g once for the weight gradients; weights and caches are left out
 *   peak       FLOP/s of independent multiply-adds on the same threads, or on the GPU, measured before every point; a row's share
 *   of it counts the
 *              FLOP above, not what vectors that are partly empty waste
 *   floor      of a GPU: the larger of FLOP / peak and bytes / the bandwidth of a copy, measured likewise
 *   memory     bytes: on a CPU what the model holds; on a GPU what its going (and a graph's) freed, all of which is taken at
 *   creation and held
 *   residual   max over the parameters of ‖g - ref‖ / (‖ref‖·ε·√T) against float64 sequential BP on the same
 *   weights, inputs and seed;
 *              below 30 is right. Of a graph's forward pass: of the gradients that the queued backward pass makes of it. A
 *              parameter whose ‖ref‖ is below (smallest normal)/ε is compared absolutely: ‖g - ref‖ / (smallest normal
 *              · √T).
 */
#ifndef BPPSA_CLI_BENCH_H
#define BPPSA_CLI_BENCH_H

#include "audio/mfcc.h"
#include "cli/bench_rounds.h"
#include "cli/network_kind.h"
#include "cli/progress.h"
#include "core/peak.h"
#include "draw/canvas.h"
#include "recurrent/recurrent_cudnn.h"
#include "scan/work.h"
#include "train/data/dataset.h"

typedef enum {
  BPPSA_BENCH_FORWARD = 0,
  BPPSA_BENCH_BP,
  BPPSA_BENCH_LINEAR,
  BPPSA_BENCH_BLELLOCH,
  BPPSA_BENCH_CHUNKED,
  BPPSA_BENCH_AUTO,
  BPPSA_BENCH_METHODS
} bppsa_bench_method;

/* A point's rows: the methods; on a GPU the same under CUDA graphs, and cuDNN's algorithms, forward and backward, queued and
 * under graphs. */
enum {
  BPPSA_BENCH_GRAPHS = BPPSA_BENCH_METHODS,     /* + method */
  BPPSA_BENCH_RIVALS = 2 * BPPSA_BENCH_METHODS, /* + 4 algorithm + 2 (graph) + 1 (backward) */
  BPPSA_BENCH_ROWS = BPPSA_BENCH_RIVALS + 4 * BPPSA_CUDNN_ALGORITHMS
};

#define BPPSA_BENCH_RESIDUAL 30.0 /* a row is right below it */

/* One network of a kind. The configuration's backward and algorithm are set per method; its up_levels and chunks serve blelloch
 * and chunked. */
typedef struct {
  const bppsa_network_kind *kind;
  bppsa_recurrent_config config;
  bppsa_init init;
  uint64_t seed;
  const char *data;                          /* as --data; NULL: uniform noise of variance 1, of any input size */
  int32_t set;                               /* of WAV files: position in bppsa_mfcc_sets */
  bppsa_mfcc_padding padding;                /* of WAV files */
  bool (*wanted)(bppsa_bench_method method); /* NULL: every method; forward and bp are always measured */
  bool rivals;                               /* on a GPU: graphs and cuDNN too */
} bppsa_bench_point;

typedef struct {
  int64_t repeats;      /* 0: as many as fit into budget_s, at least 3 */
  double budget_s;      /* of timed rounds */
  int64_t memory_limit; /* bytes */
  double deadline;      /* of the monotonic clock, after which no further point begins; 0: none */
  bppsa_progress_line *line;
  const char *label; /* in front of the progress */
} bppsa_bench_limits;

/* One row: a phase by a method. */
typedef struct {
  bool measured;
  char reason[320]; /* why it was skipped */
  int64_t memory;   /* bytes: held by the model when measured, otherwise what it would need at least */
  bppsa_timing time;
  bppsa_timing forward; /* of the forward passes in front of this method's backward passes */
  double residual;
  double flops, bytes;
  double zeros, subnormals; /* fractions of the parameters' gradients */
  int64_t nodes;            /* of a graph: kernels, copies and fills of the pass */
  int64_t redone;           /* products of the scans found useless in one pass and redone step by step */
  bool plan;                /* the following are set */
  bppsa_scan_method method;
  bppsa_work work, bp;    /* of all layers, of one sample: the method's, and that of BP */
  int64_t critical_steps; /* products on that chain */
  double workspace;       /* bytes of products held */
} bppsa_bench_row;

typedef struct {
  int64_t threads;
  bppsa_peak peak; /* of the device */
  bool gpu;
  double hidden_zeros,
      hidden_subnormals; /* of a CPU: fractions of the gradients of the top layer's hidden states, by the recurrence */
  bppsa_bench_row rows[BPPSA_BENCH_ROWS];
} bppsa_bench_result;

const char *bppsa_bench_method_name(bppsa_bench_method method); /* "bp" */
/* "bp", "chunked_graph", "cudnn_persist_static_graph". Returns text. */
const char *bppsa_bench_row_name(int row, char *text, size_t size);
#define BPPSA_BENCH_NAME 48
bool bppsa_bench_row_backward(int row); /* or forward */
bool bppsa_bench_row_graph(int row);
/* s: what the row takes at least on the result's GPU. */
double bppsa_bench_floor(const bppsa_bench_result *result, const bppsa_bench_row *row);

/* Verifies and times one point. A row that does not fit into memory is not measured and says why. ERR_* of the model. */
bppsa_status bppsa_bench_measure(const bppsa_bench_point *point, const bppsa_bench_limits *limits, const bppsa_device *device,
                                 bppsa_bench_result *result);

/* ---- parts of it ---- */

typedef struct {
  double zeros, subnormals; /* counts */
  double all;
} bppsa_bench_count;

void bppsa_bench_count_view(const bppsa_view *view, bppsa_bench_count *count);
/* The residual of one tensor against `reference` (float64, as many values); infinite when a value is not finite. */
double bppsa_bench_residual(const bppsa_view *found, const double *reference, int64_t steps);
/* Adds FLOP and bytes, and for methods with a plan what is known of it. */
bppsa_status bppsa_bench_costs(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, bppsa_bench_method method,
                               bppsa_device_kind device, bppsa_bench_row *row);
/* The configuration a method runs with. */
bppsa_recurrent_config bppsa_bench_config(const bppsa_recurrent_config *config, bppsa_bench_method method);

/* ---- sweeps, and what is printed (bench_report.c) ---- */

/* A sweep's points: T at one B, and B at one T. */
typedef struct {
  const int64_t *seq_lens, *batches; /* sizes below */
  int64_t seq_len_count, batch_count;
  int64_t seq_len, batch; /* the T of the batches, the B of the lengths */
} bppsa_bench_sweep;

/* The points of tables 4 and 5 (RNN), or a small sweep. */
const bppsa_bench_sweep *bppsa_bench_get_sweep(bool quick);

/* Runs what the options of `bench rnn` or `bench gru` ask for and appends a JSON object a row to `rows`; *failed counts the rows
 * whose residual is not below 30, *measured those that were measured, *needed is the least memory any point needs. */
typedef struct {
  int64_t failed, measured, needed;
  int64_t noisy;    /* of the measured rows */
  int64_t left_out; /* points, by the deadline */
  double worst;     /* residual */
  char reason[320]; /* of the first row that was skipped for another reason than memory */
} bppsa_bench_tally;
typedef bppsa_status (*bppsa_bench_show)(bppsa_cli *cli, const bppsa_bench_point *point, const bppsa_bench_result *result);
/* After every point, whose rows are in the array: `done` of `all` points. A status that is not OK ends the sweep. */
typedef bppsa_status (*bppsa_bench_after)(void *context, int64_t done, int64_t all);
typedef struct {
  bppsa_bench_show show;   /* or NULL */
  bppsa_bench_after after; /* or NULL */
  void *context;           /* of after */
} bppsa_bench_hooks;
/* Points that have rows already are counted, and not measured. */
bppsa_status bppsa_bench_run(bppsa_cli *cli, const bppsa_device *device, const bppsa_bench_hooks *hooks, json_t *rows,
                             bppsa_bench_tally *tally);

/* {"bench":name,"device","commit","date"}; NULL when out of memory. */
json_t *bppsa_bench_document(const char *name, const bppsa_device *device);
/* Appends a point's rows; false when out of memory. */
bool bppsa_bench_append(json_t *rows, const bppsa_bench_point *point, const bppsa_bench_result *result);
/* "median_s", "min_s", "max_s", "repeats" and "noisy" (cli/bench_rounds.h); null for times of what was not measured. False when
 * out of memory. */
bool bppsa_bench_put_timing(json_t *object, const bppsa_timing *timing);
/* The line below a table with marks, in plain text; nothing where `noisy` is 0. ERR_IO. */
bppsa_status bppsa_bench_show_noisy(bppsa_cli *cli, int64_t noisy);
/* A point's table for people. */
bppsa_status bppsa_bench_show_table(bppsa_cli *cli, const bppsa_bench_point *point, const bppsa_bench_result *result);
/* OK, or ERR_NUMERIC when rows failed, or ERR_ARGUMENT when the memory limit left nothing to measure. */
bppsa_status bppsa_bench_verdict(const bppsa_bench_tally *tally, int64_t memory_limit);
/* Whether the deadline is over, once a first point is done. Counts a point that is left out. */
bool bppsa_bench_out_of_time(const bppsa_bench_limits *limits, bppsa_bench_tally *tally);
/* "points_left_out" of the document where there is a deadline, and a line for people. ERR_MEMORY, ERR_IO. */
bppsa_status bppsa_bench_report_left_out(bppsa_cli *cli, const bppsa_bench_tally *tally, json_t *document);
/* Counts a point's rows. */
void bppsa_bench_tally_add(bppsa_bench_tally *tally, const bppsa_bench_result *result);
/* Counts the rows of a point that an earlier run measured; false where there are none. */
bool bppsa_bench_tally_rows(bppsa_bench_tally *tally, const bppsa_bench_point *point, const json_t *rows);
/* How time, memory and the critical path grow along the rows of one B, by initialisation and method:
 * [{"init","phase","method","points", "from","to","time_exponent","time_r2","memory_exponent","critical_steps_per_doubling"}].
 * time_exponent: the slope of the least-squares line through (log T, log median_s) over T >= 100, 1 is linear; time_r2 its
 * coefficient of determination; memory_exponent likewise of memory_bytes, where rows have them; critical_steps_per_doubling: the
 * slope of critical_steps over log2 T. Methods with fewer than three such points are left out. NULL when out of memory. */
json_t *bppsa_bench_growth(const json_t *rows, int64_t batch);
bppsa_status bppsa_bench_show_growth(bppsa_cli *cli, const json_t *growth);
void bppsa_bench_growth_csv(const json_t *growth, bppsa_text *text);
void bppsa_bench_growth_html(const json_t *growth, bppsa_text *text);
/* Limits and point from the options. */
bppsa_status bppsa_bench_setup(const bppsa_cli *cli, const bppsa_device *device, bppsa_bench_point *point,
                               bppsa_bench_limits *limits);
/* Writes the document to --out (atomically) and prints it with --json. Releases it; NULL: there was no memory. */
bppsa_status bppsa_bench_finish(bppsa_cli *cli, json_t *document);

/* What a benchmark with rows of its own works on. */
typedef struct {
  bppsa_cli *cli;
  bppsa_device *device;    /* of --device and --threads */
  json_t *document, *rows; /* rows: the document's, empty */
} bppsa_bench_output;
/* Checks --out first. On failure nothing is held. ERR_*: of the device, ERR_MEMORY. */
bppsa_status bppsa_bench_open(bppsa_cli *cli, const char *name, bppsa_bench_output *output);
/* Releases it. Where the status is OK the document is finished first, and rows that `failed`, by `bound` or more, are
 * ERR_NUMERIC. */
bppsa_status bppsa_bench_close(bppsa_bench_output *output, bppsa_status status, int64_t failed, double bound);

#endif
