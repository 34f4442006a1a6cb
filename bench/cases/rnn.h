/* Measures recurrent networks: at each point of `bench rnn`, `gru` and `crossover`, one network runs every method. All methods are
 * verified first and then timed in one run.
 *
 * What a row's numbers mean (`bppsa bench rnn --help` says it to people):
 *   forward    The layers without head and loss: 2·T·B·G·H·(I + H) FLOP a layer. A layer above the first has I = H.
 *   backward   The products of the plan for all samples (for BP, of the linear plan), 2·T·B·G·H·(I + H) for the gradients
 *              of the weights, and 2·T·B·G·H·H for the gradient of a layer below. The input's gradient is not computed.
 *   bytes      The least that has to move. Forward reads x and writes h. Backward reads and writes what the plan's products read
 *              and write, and reads x, h and g once for the gradients of the weights. Weights and caches do not count.
 *   peak       FLOP/s of independent multiply-adds on the same threads, or on the GPU, measured before every point. A row's share
 *              of the peak counts the FLOP above, and not the padding of vectors that are partly empty.
 *   floor      On a GPU: the larger of FLOP / peak and bytes / the bandwidth of a copy, measured likewise.
 *   predicted  On a GPU: what the cost model expects of the plan of every layer (scan/cost.c), by which auto chooses. The weight
 *              gradients that a layer's own kernels sum on their way are in it, matrix products between layers are not.
 *   memory     Bytes. On a CPU: what the model holds. On a GPU: the bytes of its memory that the model, or cuDNN's network,
 *              holds (bppsa_memory_held). What libraries and graphs take for themselves is not in it.
 *   residual   The largest ‖g - ref‖ / (‖ref‖·ε·√T) over the parameters (core/residual.h), against sequential BP in
 *              float64 on the same weights, inputs and seed; the row is right below 30, and is not timed otherwise. For a
 *              graph's forward pass: of the gradients that a backward pass makes from its states.
 */
#ifndef BPPSA_BENCH_CASES_RNN_H
#define BPPSA_BENCH_CASES_RNN_H

#include "audio/mfcc.h"
#include "bench/harness/progress.h"
#include "bench/harness/report.h"
#include "bench/rivals/rnn_cudnn.h"
#include "core/peak.h"
#include "core/text.h"
#include "models/network.h"
#include "scan/work.h"
#include "train/data/dataset.h"

#define BPPSA_BENCH_NAME 48 /* bytes of a row's name */

/* The methods: the forward pass, BP, every scan of the table of algorithms (scan/algorithm.c) in its order, and auto. */
typedef enum {
  BPPSA_BENCH_FORWARD = 0,
  BPPSA_BENCH_BP,
  BPPSA_BENCH_SCANS, /* the first scan */
  BPPSA_BENCH_AUTO = BPPSA_BENCH_SCANS + BPPSA_SCAN_ALGORITHMS - 1,
  BPPSA_BENCH_METHODS
} bppsa_bench_method;

/* The method that runs a scan's algorithm. */
#define BPPSA_BENCH_SCAN(algorithm)                                                                                              \
  ((algorithm) == BPPSA_SCAN_AUTO ? BPPSA_BENCH_AUTO : (bppsa_bench_method)(BPPSA_BENCH_SCANS + (algorithm)-1))

/* A point's rows: the methods; on a GPU the same under CUDA graphs, and cuDNN's algorithms, forward and backward, queued and
 * under graphs. */
enum {
  BPPSA_BENCH_GRAPHS = BPPSA_BENCH_METHODS,     /* + a method */
  BPPSA_BENCH_RIVALS = 2 * BPPSA_BENCH_METHODS, /* + 4 algorithm + 2 (graph) + 1 (backward) */
  BPPSA_BENCH_ROWS = BPPSA_BENCH_RIVALS + 4 * BPPSA_CUDNN_ALGORITHMS
};

/* One network. A method sets the configuration's backward and algorithm; up_levels and chunks are for blelloch and chunked. */
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
  double deadline;      /* of the monotonic clock, after which neither a point nor a row of cuDNN's begins; 0: none */
  int64_t most_nodes;   /* launches of a pass of cuDNN's that is recorded; 0: any number */
  bppsa_progress_line *line;
  const char *label; /* in front of the progress */
} bppsa_bench_limits;

/* One row: a phase by a method. */
typedef struct {
  bool measured;                       /* verified; a row whose residual is too large has no time */
  char reason[BPPSA_CONTENDER_REASON]; /* why it was skipped */
  int64_t memory;                      /* bytes: held by the model when measured, otherwise what it would need at least */
  bppsa_timing time;
  bppsa_timing forward; /* of the forward passes in front of this method's backward passes */
  double residual;
  double flops, bytes;
  double predicted;         /* seconds by the cost model (scan/cost.c), of the project's backward rows; 0: none */
  double zeros, subnormals; /* fractions of the parameters' gradients */
  int64_t nodes;            /* of a graph: kernels, copies and fills of the pass */
  int64_t redone;           /* held products that one pass found useless and redid step by step */
  bool plan;                /* the following are set */
  bppsa_scan_method method;
  bppsa_work work, bp;    /* of all layers, of one sample: the method's, and that of BP */
  int64_t critical_steps; /* products on the critical path */
  double workspace;       /* bytes of products held */
} bppsa_bench_row;

typedef struct {
  int64_t threads;
  bppsa_peak peak; /* of the device */
  bool gpu;
  double hidden_zeros,
      hidden_subnormals; /* on a CPU: fractions of the hidden states' gradients in the top layer, by the recurrence */
  bppsa_bench_row rows[BPPSA_BENCH_ROWS];
} bppsa_bench_result;

const char *bppsa_bench_method_name(bppsa_bench_method method); /* "bp" */
/* Is the method a scan that is not the recurrence itself? auto is none: it runs one of the others. */
bool bppsa_bench_is_scan(bppsa_bench_method method);
/* "bp", "chunked_graph", "cudnn_persist_static_graph". Returns text. */
const char *bppsa_bench_row_name(int row, char *text, size_t size);
bool bppsa_bench_row_backward(int row); /* or forward */
bool bppsa_bench_row_graph(int row);
/* The least time of the row on the result's GPU, in s. */
double bppsa_bench_floor(const bppsa_bench_result *result, const bppsa_bench_row *row);

/* Verifies and times one point. A row that does not fit into memory is not measured and says why. ERR_* of the model. */
bppsa_status bppsa_bench_measure(const bppsa_bench_point *point, const bppsa_bench_limits *limits, const bppsa_device *device,
                                 bppsa_bench_result *result);

/* ---- parts of a measurement ---- */

typedef struct {
  double zeros, subnormals; /* counts */
  double all;
} bppsa_bench_count;

void bppsa_bench_count_view(const bppsa_view *view, bppsa_bench_count *count);
/* Adds FLOP and bytes, and the numbers of a method's plan where it has one. */
bppsa_status bppsa_bench_costs(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, bppsa_bench_method method,
                               bppsa_device_kind device, bppsa_bench_row *row);
/* The configuration a method runs with. */
bppsa_recurrent_config bppsa_bench_config(const bppsa_recurrent_config *config, bppsa_bench_method method);

/* ---- sweeps (rnn_run.c) and what they print (rnn_report.c, rnn_growth.c) ---- */

/* A sweep's points: T at one B, and B at one T. */
typedef struct {
  const int64_t *seq_lens, *batches; /* sizes below */
  int64_t seq_len_count, batch_count;
  int64_t seq_len, batch; /* the T of the batches, the B of the lengths */
} bppsa_bench_sweep;

/* The points of tables 4 and 5 (RNN), or a small sweep. */
const bppsa_bench_sweep *bppsa_bench_get_sweep(bool quick);

/* What a sweep amounts to. */
typedef struct {
  bppsa_bench_count_rows rows;
  int64_t needed;                      /* bytes: the least memory any point needs */
  int64_t left_out;                    /* points, by the deadline */
  char reason[BPPSA_CONTENDER_REASON]; /* of the first row that was skipped for another reason than memory */
} bppsa_bench_tally;
typedef bppsa_status (*bppsa_bench_show)(const bppsa_output *to, const bppsa_bench_point *point,
                                         const bppsa_bench_result *result);
/* After every point, whose rows are in the array: `done` of `all` points. A status that is not OK ends the sweep. */
typedef bppsa_status (*bppsa_bench_after)(void *context, int64_t done, int64_t all);
typedef struct {
  bppsa_bench_show show;   /* or NULL */
  bppsa_bench_after after; /* or NULL */
  void *context;           /* of after */
} bppsa_bench_hooks;
/* Appends a point's rows; false when out of memory. */
bool bppsa_bench_append(json_t *rows, const bppsa_bench_point *point, const bppsa_bench_result *result);
/* A point's table for people. */
bppsa_status bppsa_bench_show_table(const bppsa_output *to, const bppsa_bench_point *point, const bppsa_bench_result *result);
/* OK, or ERR_NUMERIC when rows failed, or ERR_ARGUMENT when the memory limit left nothing to measure. */
bppsa_status bppsa_bench_verdict(const bppsa_bench_tally *tally, int64_t memory_limit);
/* Whether the deadline is over, once a first point is done. Counts a point that is left out. */
bool bppsa_bench_out_of_time(const bppsa_bench_limits *limits, bppsa_bench_tally *tally);
/* "points_left_out" of the document where there is a deadline, and a line for people. ERR_MEMORY, ERR_IO. */
bppsa_status bppsa_bench_report_left_out(const bppsa_bench_request *request, const bppsa_bench_tally *tally, json_t *document);
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
bppsa_status bppsa_bench_show_growth(const bppsa_output *to, const json_t *growth);
void bppsa_bench_growth_csv(const json_t *growth, bppsa_text *text);
void bppsa_bench_growth_html(const json_t *growth, bppsa_text *text);
/* Limits as they were asked for; line and label are the caller's. ERR_CUDA. */
bppsa_status bppsa_bench_limits_of(const bppsa_bench_request *request, bppsa_bench_limits *limits);

#endif
