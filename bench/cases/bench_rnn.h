/* What `bench rnn`, `gru` and `crossover` share. At each point one network runs every method: the project's, on a GPU each of
 * them as a CUDA graph, cuDNN's algorithms, and the methods of the program that --rivals names. All make the same two passes,
 * forward and backward. The time of a pass lies between two marks in the device's queue (core/measure/timeline.h); a graph contains
 * its marks (bench/harness/recording.h); the program of --rivals times its own. The driver (bench/harness/driver.h) verifies every
 * contestant when it is entered, and times all of them in rounds.
 *
 * What a row's numbers mean (`bppsa bench rnn --help` says it to people):
 *   forward    The layers without head and loss: 2·T·B·G·H·(I + H) FLOP a layer. A layer above the first has I = H.
 *   backward   The products of the plan for all samples (for BP, of the linear plan), 2·T·B·G·H·(I + H) for the gradients
 *              of the weights, and 2·T·B·G·H·H for the gradient of a layer below. The input's gradient, 2·T·B·G·H·I, is
 *              computed beside --input-gradient alone, and h0's with it, a product more.
 *   bytes      The least that has to move. Forward reads x and writes h. Backward reads and writes what the plan's products read
 *              and write, and reads x, h and g once for the gradients of the weights. Weights and caches do not count.
 *   peak       FLOP/s of independent multiply-adds on the same threads, the median of runs of a millisecond, one behind every pass
 *              of every contestant; on the GPU the best of several runs before every point. A row's share of the peak counts
 *              the FLOP above, and not the padding of vectors that are partly empty.
 *   floor      On a GPU: the larger of FLOP / peak and bytes / the bandwidth of a copy, measured likewise.
 *   predicted  On a GPU: what the cost model expects of the plan of every layer (scan/cost.c), by which auto chooses. The weight
 *              gradients that a layer's own kernels sum on their way are in it, matrix products between layers are not.
 *   memory     Bytes. On a CPU: what the model holds. On a GPU: the bytes of its memory that the model, or cuDNN's network,
 *              holds (bppsa_memory_held). What libraries and graphs take for themselves is not in it.
 *   underflow  Set where 1 % or more of the gradients of the hidden states are zero or subnormal: default weights forget, and the
 *              time of a backward pass is then partly one of computing with zeros, or slowly with subnormal numbers. Marked *.
 *   path       Of speculative passes: the dependent steps of the first pass, of a batch's slowest sample, and
 *   work       the steps that it computed, over the steps of a sequential pass (recurrent/parallel_forward.h for forward rows,
 *              which have both beside --forward speculative or auto; recurrent/parallel_backward.h for rows named speculative).
 *              The row's FLOP still count a sequential pass. Pauses end in front of every pass, so that each one speculates.
 *   gap        The largest difference that was dropped, in a forward pass absolute, in a backward pass relative. Then comes
 *              perturbation, of a backward pass all of them together: it equals BP for a dL/dh_t that is changed by this part of
 *              its size (bppsa_backward_stats.perturbation).
 *   cold       Beside --cold, before every pass memory is written that takes twice as much as the largest cache
 *              (bench/harness/cold.h), so that a backward pass does not find the states of its forward pass there either.
 *   error      Of rows in TF32 and bf16: the largest ‖g - ref‖ / ‖ref‖. Their residual is in units of what they round, or,
 *              where that is less, such that the bound is a tenth of the gradient: zeros in its place are never right.
 *   reference  "file": from --references, which belongs to the very weights and inputs (rnn_saved.c); otherwise "computed".
 *   reset_rate Beside --reset-rate P every point comes twice, without resets and with a mask that begins a sample anew in front of
 *              each step with the probability P. Methods and reference compute the same mask; rivals take none.
 *   residual   The largest ‖g - ref‖ / (‖ref‖·ε·√T) over the parameters (core/measure/residual.h), against sequential
 *              BP in float64 on the same weights, inputs and seed; the row is right below 30, and is not timed otherwise. For a
 *              graph's forward pass: of the gradients that a backward pass makes from its states.
 */
#ifndef BPPSA_BENCH_CASES_BENCH_RNN_H
#define BPPSA_BENCH_CASES_BENCH_RNN_H

#include "audio/mfcc.h"
#include "bench/harness/cold.h"
#include "bench/harness/driver.h"
#include "bench/rivals/guest.h"
#include "bench/rivals/rnn_cudnn.h"
#include "core/base/text.h"
#include "core/measure/peak.h"
#include "networks/named_network.h"
#include "scan/work.h"
#include "train/data/dataset.h"

#define BPPSA_BENCH_NAME 48    /* bytes of a row's name */
#define BPPSA_BENCH_REASON 640 /* bytes of the text that says why a reference was computed */

/* The methods: the forward pass, BP, speculative BP, every scan of the table of algorithms (scan/algorithm.c) in its order, and
 * auto. */
typedef enum {
  BPPSA_BENCH_FORWARD = 0,
  BPPSA_BENCH_BP,
  BPPSA_BENCH_SPECULATIVE,
  BPPSA_BENCH_SCANS, /* the first scan */
  BPPSA_BENCH_AUTO = BPPSA_BENCH_SCANS + BPPSA_SCAN_ALGORITHMS - 1,
  BPPSA_BENCH_METHODS
} bppsa_bench_method;

/* The method that runs a scan's algorithm. */
#define BPPSA_BENCH_SCAN(algorithm)                                                                                              \
  ((algorithm) == BPPSA_SCAN_AUTO ? BPPSA_BENCH_AUTO : (bppsa_bench_method)(BPPSA_BENCH_SCANS + (algorithm)-1))

/* A point's rows: the methods; on a GPU the same under CUDA graphs, and cuDNN's algorithms, forward and backward, queued and
 * under graphs; the methods of --rivals, forward and backward. */
enum {
  BPPSA_BENCH_GRAPHS = BPPSA_BENCH_METHODS,                             /* + a method */
  BPPSA_BENCH_RIVALS = 2 * BPPSA_BENCH_METHODS,                         /* + 4 algorithm + 2 (graph) + 1 (backward) */
  BPPSA_BENCH_GUESTS = BPPSA_BENCH_RIVALS + 4 * BPPSA_CUDNN_ALGORITHMS, /* + 2 method + 1 (backward) */
  BPPSA_BENCH_ROWS = BPPSA_BENCH_GUESTS + 2 * BPPSA_GUEST_METHODS
};

/* One network. A method sets the configuration's backward and algorithm; blelloch takes up_levels, chunked takes chunks. */
typedef struct {
  const bppsa_network_kind *kind;
  bppsa_recurrent_config config;
  bppsa_init init;
  const char *weights; /* the name of the file that the weights come from (bppsa_bench_settings); NULL: `init` */
  uint64_t seed;
  double reset_rate;          /* of the steps of a sample, in front of so many it begins anew, at random; 0: never */
  const char *data;           /* as --data; NULL: uniform noise of variance 1, of any input size */
  int32_t set;                /* of WAV files: position in bppsa_mfcc_sets */
  bppsa_mfcc_padding padding; /* of WAV files */
} bppsa_bench_point;

/* One row: a phase by a method. */
typedef struct {
  bool measured;                       /* the row was verified; one whose residual is too large has no time */
  char reason[BPPSA_CONTENDER_REASON]; /* why it was skipped */
  int64_t memory;                      /* bytes: held by the model when measured, otherwise what it would need at least */
  bppsa_timing time;
  bppsa_timing forward; /* of the forward passes that precede this method's backward passes */
  double qualifying;    /* s: the single pass of a rival that did not qualify; 0: it qualified, or did not have to */
  double residual;
  double error;        /* the residual as a relative error */
  bool input_gradient; /* the input's gradient was computed and verified */
  double flops, bytes;
  double predicted; /* seconds: by the cost model (scan/cost.c) for own backward rows; a lost rival's both passes; 0: none */
  double zeros, subnormals; /* fractions of the parameters' gradients */
  int64_t nodes;            /* a graph's kernels, copies and fills */
  int64_t redone;           /* held products that one pass found useless and redid step by step */
  bool plan;                /* the following are set */
  bppsa_scan_method method;
  bppsa_work work, bp;    /* FLOPs and bytes of all layers for one sample: the method's, and BP's */
  int64_t critical_steps; /* products on the critical path */
  double workspace;       /* bytes of products held */
  bool planned;           /* the following are set: forward rows of the project where --forward is not sequential */
  bppsa_forward_plan forward_plan;
  bppsa_forward_stats forward_stats; /* of the first pass */
  bool speculated;                   /* the following are set: backward rows of speculative BP */
  bppsa_backward_plan backward_plan;
  bppsa_backward_stats backward_stats; /* of the first pass */
} bppsa_bench_row;

typedef struct {
  bppsa_peak peak;                        /* of the device */
  double hidden_zeros, hidden_subnormals; /* fractions of the top layer's hidden gradients, counted by the recurrence on a CPU */
  const bppsa_guest *guest;               /* names the methods of --rivals; NULL: none */
  bool reference_read;                    /* from the file of --references; otherwise it was computed */
  char reference_reason[BPPSA_BENCH_REASON]; /* why it was computed in spite of --references; "" without that option */
  bppsa_bench_row rows[BPPSA_BENCH_ROWS];
} bppsa_bench_result;

/* ---- one point while it is measured ---- */

enum { BPPSA_BENCH_POINT_COLUMNS = 20, BPPSA_BENCH_BURSTS = 1024 };
typedef struct bppsa_bench_session bppsa_bench_session;

typedef struct bppsa_bench_contestant {
  bppsa_bench_session *session;
  int forward, backward;                /* its rows in the result; forward -1: the forward pass has no row */
  struct bppsa_bench_contestant *plain; /* a graph: who runs the same passes without it; otherwise NULL */
  bppsa_model *model;                   /* the project's model, or */
  bppsa_view dx;                        /* of a plain contestant: the input's gradient in its model, set when it is judged */
  bppsa_cudnn_network *rival;           /* cuDNN's network; a graph shares model or rival with its plain contestant */
  const char *guest;                    /* or the name of a method of the guest */
  bppsa_bench_recording recordings[2];  /* a graph's forward and backward pass */
  double unit;                          /* the unit of its residuals, in rounding errors of the dtype */
} bppsa_bench_contestant;

/* The session of these benchmarks, which the driver holds. The first members are set before a point is entered. */
struct bppsa_bench_session {
  bppsa_bench *bench;
  bppsa_bench_point point;
  const bppsa_device *device;    /* where the point is measured; of the kind of the benchmark's device */
  bool scans_only;               /* the contestants are forward, bp and the scans; no graphs, no rivals */
  bppsa_guest *guest;            /* the program of --rivals; NULL: none */
  int64_t most_nodes;            /* the most launches of a pass of cuDNN that is recorded; 0: any number */
  bppsa_safetensors *references; /* of --references; NULL: none */
  bppsa_bench_result result;
  bppsa_table_column columns[BPPSA_BENCH_POINT_COLUMNS]; /* of the point's table */
  /* The following members are freed after the point. */
  bppsa_dataset *data;
  int64_t *indices;
  void *x, *seed;
  uint8_t *mask;          /* [T,B] where samples begin anew; NULL: nowhere */
  void *device_mask;      /* GPU */
  bppsa_view resets[2];   /* the mask on the device, and in host memory */
  double *gradients;      /* the reference's, of the layers' parameters one after the other */
  double *input_gradient; /* the reference's, where it is asked for; and room for one of the dtype, in host memory */
  void *dx;
  double *logits;
  double *hidden;               /* hidden_zeros and hidden_subnormals, where the reference is read or saved */
  bppsa_model *holder;          /* a network of one step, for its parameters in host memory; NULL: none was needed */
  void *device_x, *device_seed; /* GPU */
  bppsa_view view_x, view_seed; /* on the device */
  bppsa_timeline *timeline;
  bppsa_cold cold;
  bppsa_outlook *outlook;              /* what earlier points say of rivals */
  int64_t bursts;                      /* runs of multiply-adds for the peak, */
  double per_flop[BPPSA_BENCH_BURSTS]; /* and how many seconds the last ones took for a FLOP */
  bppsa_bench_contestant *bp;          /* the project's BP; NULL: the device has no kernels for it */
  int count;
  bppsa_bench_contestant list[BPPSA_BENCH_ROWS];
};

/* Sets the weights of a model in host memory: to those of --weights where it is given, otherwise by --init. ERR_*. */
bppsa_status bppsa_bench_set_weights(const bppsa_bench_session *s, bppsa_model *model);
/* Makes the session's holder, unless there is one. ERR_*. */
bppsa_status bppsa_bench_hold_weights(bppsa_bench_session *s);
/* Makes x, the first B samples of the data, and the seed gradient, uniform in (-1, 1)/B, in host memory. ERR_*. */
bppsa_status bppsa_bench_make_inputs(bppsa_bench_session *s);
/* Where the point's samples begin anew: for models on the device, or for one on the host. */
bppsa_spans bppsa_bench_spans(const bppsa_bench_session *s, bool host);
/* Views of x [T,B,I], and of the gradient of the last hidden states [B,H] or of all of them [T,B,H], in host memory. */
bppsa_view bppsa_bench_x_view(const bppsa_bench_session *s);
bppsa_view bppsa_bench_seed_view(const bppsa_bench_session *s);

/* The functions of a case (driver.h). `enter_point` finds the reference of the session's point, verifies all contestants and enters
 * them. A row that does not fit into memory is refused and says why. `settle` fills in the times of the rows and destroys the
 * contestants; on a GPU the memory of a row is what its contestant held. */
bppsa_status bppsa_bench_enter_point(bppsa_bench *bench);
bppsa_status bppsa_bench_settle_point(bppsa_bench *bench);
bool bppsa_bench_line_of_point(const bppsa_bench *bench, int64_t index, bppsa_bench_entrant *line);
bool bppsa_bench_put_line(const bppsa_bench_entrant *line, json_t *row);
void bppsa_bench_leave_point(bppsa_bench *bench);
/* The table of a point: its columns, the note of a row that has no time, the lines above and below. */
extern const bppsa_table_column bppsa_bench_point_columns[];
const char *bppsa_bench_init_name(bppsa_init init);                       /* "orthogonal" */
const char *bppsa_bench_weights_name(const bppsa_bench_point *point);     /* the same, or the name of the file */
bool bppsa_bench_put_point(json_t *object, const bppsa_bench_session *s); /* the members that name it */
const char *bppsa_bench_note_line(const bppsa_bench_entrant *line, char *text, size_t size);
bppsa_status bppsa_bench_print_above(bppsa_bench *bench);
bppsa_status bppsa_bench_print_below(bppsa_bench *bench);
/* Counts the rows of the session's point that an earlier run has measured; false if there are none. */
bool bppsa_bench_count_kept(bppsa_bench *bench, const json_t *rows);

/* ---- contestants (rnn_contest.c, rnn_enter.c) ---- */

/* Ends the pauses that follow passes whose speculation failed, so that the next pass of a model speculates as its first one did. A
 * warm-up that the passes have adapted stays. On a GPU it waits for the latest pass. ERR_CUDA. */
bppsa_status bppsa_bench_end_pauses(bppsa_model *model);
/* Makes a forward and a backward pass, both by the same contestant, or one by a graph and the other by its plain contestant.
 * seconds: forward, backward. ERR_* of the contestants. */
bppsa_status bppsa_bench_pass(bppsa_bench_contestant *forward, bppsa_bench_contestant *backward, double seconds[2]);
/* Records the passes of a graph's plain contestant. On failure nothing is held. ERR_*: of bppsa_bench_record. */
bppsa_status bppsa_bench_record_passes(bppsa_bench_contestant *graph);
/* Enters a contestant of the session's list with its verification. *entered is false if it is refused. ERR_*. */
bppsa_status bppsa_bench_enter_contestant(bppsa_bench_contestant *who, bppsa_status (*verify)(void *who, double *residual),
                                          bool *entered);
/* Destroys all contestants. On a GPU the memory of a row becomes the number of bytes that its contestant held. */
void bppsa_bench_end_contestants(bppsa_bench_session *s);
/* Adds the project's methods whose rows are measured, and on a GPU their graphs. If the device has no kernels for a method, or
 * refuses to record it, its row says so. ERR_*. */
bppsa_status bppsa_bench_add_methods(bppsa_bench_session *s);
/* Does the same for cuDNN's algorithms and their graphs on a GPU, and for the methods of --rivals. A refused one, such as an
 * algorithm that does not take the shape, has a row with the rival's reason. ERR_*. */
bppsa_status bppsa_bench_add_rivals(bppsa_bench_session *s);
/* Makes a row say why it was not measured. */
void bppsa_bench_skip_row(bppsa_bench_row *row, const char *reason);

/* ---- references (rnn_reference.c, rnn_saved.c) ---- */

/* Bytes that computing the reference takes on the host, with the copy of its gradients. ERR_*. */
bppsa_status bppsa_bench_count_reference(const bppsa_bench_session *s, int64_t *bytes);
/* Computes the point's reference from the inputs that the session holds. ERR_*. */
bppsa_status bppsa_bench_compute_reference(bppsa_bench_session *s);
/* Takes the reference from the file of --references, or computes it; the result says which, and a note why. ERR_*. */
bppsa_status bppsa_bench_find_reference(bppsa_bench_session *s);
/* Counts the zeros among the gradients of the hidden states with a model in host memory; NULL: with one of its own. ERR_*. */
bppsa_status bppsa_bench_count_hidden(bppsa_bench_session *s, bppsa_model *model);
/* Opens the file of --references, and checks every number in it. ERR_ARGUMENT, ERR_FORMAT, ERR_MEMORY. */
bppsa_status bppsa_bench_open_references(const char *path, bppsa_safetensors **file);
/* Looks for the point's reference in the session's file; if the file lacks it, the result says why. ERR_MEMORY. */
bppsa_status bppsa_bench_read_reference(bppsa_bench_session *s);

/* ---- verification (rnn_judge.c) ---- */

/* Finds the residual of a model's gradients and their fractions of zeros and subnormals. All views are in host memory. */
void bppsa_bench_judge(const bppsa_bench_session *s, const bppsa_model *model, bppsa_bench_row *row);
/* Verifies the gradients of a contestant's latest pass, for a row. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_bench_judge_pass(bppsa_bench_session *s, bppsa_bench_contestant *who, bppsa_bench_row *row);
/* Compares the logits of a forward pass with the reference's. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_bench_judge_logits(bppsa_bench_session *s, bppsa_model *model, bppsa_bench_row *row);
/* Finds the residual of the last step's logits, which the holder's head computes in float64 from a rival's last states [B,H].
 * ERR_MEMORY. */
bppsa_status bppsa_bench_judge_states(const bppsa_bench_session *s, const bppsa_view *states, bppsa_bench_row *row);
/* The unit of an algorithm's residuals, in rounding errors of the dtype. */
double bppsa_bench_rival_unit(bppsa_cudnn_algorithm algorithm, const bppsa_recurrent_config *config);
/* Converts the residuals of the contestant's rows to its unit, and returns the larger one. */
double bppsa_bench_residual_of(const bppsa_bench_contestant *who);

/* ---- rows (rnn_cost.c) ---- */

const char *bppsa_bench_method_name(bppsa_bench_method method); /* "bp" */
/* Is the method a scan other than the recurrence itself? auto is not one: it runs another method. */
bool bppsa_bench_is_scan(bppsa_bench_method method);
/* "bp", "chunked_graph", "cudnn_persist_static_graph", "jax_scan_8"; guest: names the methods of --rivals, "" where it is NULL.
 * Returns text. */
const char *bppsa_bench_row_name(const bppsa_guest *guest, int row, char *text, size_t size);
bool bppsa_bench_row_rival(int row);    /* of another library */
bool bppsa_bench_row_exact(int row);    /* false: it computes in TF32 or bf16 */
bool bppsa_bench_row_backward(int row); /* false: forward */
bool bppsa_bench_row_graph(int row);
/* The least time of the row on the result's GPU, in s. */
double bppsa_bench_floor(const bppsa_bench_result *result, const bppsa_bench_row *row);

/* Writes the members of a backward pass's statistics (bppsa_backward_stats_json) into a row, each name behind `prefix`. False: out
 * of memory. */
bool bppsa_bench_put_backward(json_t *row, const char *prefix, const bppsa_backward_stats *stats);

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

/* ---- sweeps (rnn_run.c) and growth (rnn_growth.c) ---- */

/* The point of that index; false: there is none. */
bool bppsa_bench_choose_point(const struct bppsa_bench_settings *asked, int64_t index, bppsa_bench_point *point);

/* A sweep's points: T at one B, and B at one T. */
typedef struct {
  const int64_t *seq_lens, *batches; /* the sizes of both sweeps */
  int64_t seq_len_count, batch_count;
  int64_t seq_len, batch; /* the fixed T of the sweep over B, and the fixed B of the sweep over T */
} bppsa_bench_sweep;

/* The points of tables 4 and 5 (RNN), or a small sweep. */
const bppsa_bench_sweep *bppsa_bench_get_sweep(bool quick);

/* How time, memory and the critical path grow along the rows of one B, by initialisation and method:
 * [{"init","phase","method","points", "from","to","time_exponent","time_r2","memory_exponent","critical_steps_per_doubling"}].
 * time_exponent: the slope of the least-squares line through (log T, log median_s) over T >= 100, 1 is linear; time_r2 its
 * coefficient of determination; memory_exponent likewise of memory_bytes, where rows have them; critical_steps_per_doubling: the
 * slope of critical_steps over log2 T. Methods with fewer than three such points are left out. NULL when out of memory. */
json_t *bppsa_bench_growth(const json_t *rows, int64_t batch);
bppsa_status bppsa_bench_show_growth(const bppsa_output *to, const json_t *growth);
void bppsa_bench_growth_csv(const json_t *growth, bppsa_text *text);
void bppsa_bench_growth_html(const json_t *growth, bppsa_text *text);

#endif
