/* The forward pass of a recurrent layer in parallel over time, and verified: speculate, verify, mend.
 *
 * Time is cut into C chunks, whose lengths differ by one at most. Every chunk begins W steps early from a guess, zero, and warms
 * up: networks that train forget, so that its state is the true one, but for rounding, where the chunk begins. All chunks run at
 * once. Then every boundary is verified by one step from the end of the chunk in front of it; a chunk that does not fit walks on
 * from there until new and stored states agree and stay so. This is repeated in rounds, and what still does not fit is computed
 * sequentially, sample by sample (the tail). So the states satisfy the recurrence whatever the network is:
 *
 *     |h_t - f(h_{t-1}, x_t)|_inf <= max(accept, stop)        for all t; for ReLU times max(1, |h_t|_inf)
 *
 * in the rounding of the cell's own step. Both parts of a pair (h_t, c_t) do so; a unit of c_t, which is not bounded, may differ
 * by max(1, |c_t|) times as much. A value that is not finite stands where the sequential pass puts it. The longest path is the
 * sequential one and a little more; a network on which passes gain nothing, or do too much work, pauses
 * them. With tolerance 0 the states have the sequential pass's bits. Bits depend on the plan, not on the number
 * of threads.
 *
 * A path is counted in dependent steps of the slowest sample, work in all steps computed, relative to T for each sample. */
#ifndef BPPSA_RECURRENT_PARALLEL_FORWARD_H
#define BPPSA_RECURRENT_PARALLEL_FORWARD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/view.h"
#include "core/compute/device.h"
#include "core/compute/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  BPPSA_FORWARD_SEQUENTIAL = 0, /* one step after the other */
  BPPSA_FORWARD_SPECULATIVE,
  BPPSA_FORWARD_AUTO /* the one of the two that the cost model expects to be faster */
} bppsa_forward_kind;

/* How states are computed. The numbers are for the speculative pass; those that are left open come from the plan. */
typedef struct {
  bppsa_forward_kind kind;
  int64_t chunks;   /* C; 0: open */
  int64_t warm_up;  /* W; -1: open */
  int64_t rounds;   /* R, rounds of mending before the tail; -1: open */
  double tolerance; /* largest difference that is accepted at a chunk's beginning; negative: open; 0: exact */
  double most_work; /* like the plan's most_work; 0: open */
  double most_path; /* like the plan's most_path; 0: open */
} bppsa_forward_method;

/* Sequential, everything else open. */
bppsa_forward_method bppsa_forward_method_default(void);

const char *bppsa_forward_name(bppsa_forward_kind kind); /* "sequential", "speculative", "auto" */
/* ERR_FORMAT: no such name; *kind is then untouched. */
bppsa_status bppsa_forward_parse(const char *name, bppsa_forward_kind *kind);

/* Neighbouring parts of a sequence, each held by a network of its own (distributed/time/split_time.h), whose speculative passes are
 * those of the whole sequence: the same chunks, and so the same bits. All parts call the functions. An error ends the pass. */
typedef struct {
  void *context;
  int64_t first, seq_len; /* the network has steps first + 1 .. first + its own, of seq_len; seq_len 0: of its own alone */
  /* Sends two arrays to the part with the next steps, and receives them from the part in front; numbers NULL: the states alone.
   * Numbers are in host memory, states in the device's. They stay as they are until the next `send` or `join`, or the end of the
   * pass. */
  bppsa_status (*send)(void *context, const bppsa_view *numbers, const bppsa_view *states);
  bppsa_status (*receive)(void *context, const bppsa_view *numbers, const bppsa_view *states);
  /* Replaces numbers, on all parts, by their sums over all parts; from index `sums` on by the largest ones. */
  bppsa_status (*join)(void *context, int64_t sums, int64_t count, double *numbers);
  /* For speculative backward passes: like `send` and `receive`, from a part to the one in front. */
  bppsa_status (*send_back)(void *context, const bppsa_view *numbers, const bppsa_view *states);
  bppsa_status (*receive_back)(void *context, const bppsa_view *numbers, const bppsa_view *states);
  /* Likewise: the weight gradients of each of so many blocks of steps are summed by themselves, so that bits do not depend on who
   * holds which steps; 1 .. seq_len. The network with a block's last step calls `take` for each of its parameters' gradients. */
  int64_t blocks;
  bppsa_status (*take)(void *context, int64_t block, int64_t parameter, const bppsa_view *gradient);
} bppsa_forward_part;

/* What the plan depends on. */
typedef struct {
  int64_t seq_len, batch, input, hidden, gates; /* T, B, the layer's input size, H, G */
  bppsa_dtype dtype;
  bppsa_device_kind device;
  int multiprocessors; /* of a GPU; 0 on a CPU */
  int64_t most_hidden; /* the largest H whose W_hh the GPU holds in registers; 0 on a CPU */
} bppsa_forward_shape;

typedef struct {
  bool speculative;                /* false: every step follows the one before it, in one chunk without warm-up and rounds */
  int64_t chunks, warm_up, rounds; /* C, W, R */
  double accept;                   /* the first state of a chunk is accepted if it differs by at most this much */
  double stop;                     /* a mend ends at a state that differs by at most this much, and stays so */
  double settled;                  /* at once, if it differs by at most this much: one rounding of a number below 1 */
  double far;                      /* a chunk whose last state moves by more makes the later chunks of its sample begin anew */
  /* A pass that computes more steps than this, over those of the sequential pass, costs more than it gains; INFINITY: not known.
   * On a CPU it comes from the cost model; for SPECULATIVE it is at least a quarter more than chunks and warm-ups take. */
  double most_work;
  /* A pass whose path is this share of the sequential one's, or more, gains nothing: nine tenths. On a GPU, where a step of a mend
   * takes more time than a sequential one and a pass has more launches, less: the share at which both passes are predicted to take
   * as long, in hundredths, for SPECULATIVE at least a quarter more than the path of a pass that mends nothing. */
  double most_path;
  bool bounded; /* on a CPU where chunks pay: rounds end when a layer's work is above most_work */
} bppsa_forward_plan;

/* ERR_ARGUMENT: a number of the method is out of range. ERR_UNSUPPORTED: a speculative pass that there is no code for. */
bppsa_status bppsa_forward_plan_make(const bppsa_forward_method *method, const bppsa_forward_shape *shape,
                                     bppsa_forward_plan *plan);

/* Seconds of a speculative pass with so many dependent steps on a GPU, or of the sequential one where plan is NULL, by the cost
 * model: predicted for an H200, from cycles of the machine code. shape: of a GPU. */
double bppsa_forward_gpu_seconds(const bppsa_forward_shape *shape, const bppsa_forward_plan *plan, double path);

/* Statistics of a pass, over all layers. */
typedef struct {
  bool speculated;  /* false: the pass ran sequentially, as planned or during a pause */
  int64_t passes;   /* 1 for a single pass; 0 before the first */
  int64_t path;     /* dependent steps of the slowest sample */
  int64_t possible; /* those of the sequential pass: T for each layer */
  double work;      /* steps computed over those of the sequential pass */
  int64_t rounds;   /* rounds in which a chunk was mended; of several layers the most */
  int64_t mended;   /* walks that changed states of a chunk */
  int64_t reseeded; /* samples whose later chunks began anew */
  int64_t tails;    /* samples whose last chunks were computed sequentially */
  double gap;       /* the largest difference that was accepted */
} bppsa_forward_stats;

enum { BPPSA_FORWARD_GPU_HIDDEN = 512 };      /* most_hidden of GPUs with room for clusters (sm_90) */
enum { BPPSA_FORWARD_MULTIPROCESSORS = 132 }; /* of a GPU that is planned for and not asked: an H100's or H200's */
enum {
  BPPSA_FORWARD_ROUNDS = 8,        /* rounds of a plan, at least */
  BPPSA_FORWARD_FUSED_ROUNDS = 24, /* the most on a GPU; a plan has half as many rounds as chunks there */
  BPPSA_FORWARD_WIDE_ROUNDS = 3    /* the most on a GPU where H > BPPSA_SCAN_FUSED_DIM, and each round is a launch */
};
#define BPPSA_FORWARD_MOST_PATH 0.9 /* most_path where nothing else is known */

/* A pass fails if its path is as long as the plan's most_path says, or its work more than its most_work: it is predicted to take
 * more time than the sequential pass. After three failing passes in a row, or one whose work is so much larger that it takes twice
 * the time, the next 100 passes are sequential. If the pass after them fails, 200 sequential ones follow, and 400 after each
 * further failing pass, until one does not fail. So AUTO decides by the path and the work last seen, and no pause is much longer
 * than the time for which the network has failed. Checkpoints keep this state, because the bits of later passes depend on it. */
enum { BPPSA_FORWARD_FAILURES = 3, BPPSA_FORWARD_PAUSE = 100, BPPSA_FORWARD_DOUBLINGS = 2 };
typedef struct {
  int64_t failures; /* failing passes in a row, at most FAILURES + DOUBLINGS */
  int64_t left;     /* sequential passes still to come */
} bppsa_forward_pause;

/* Did the pass fail? One that ran sequentially did not. */
bool bppsa_forward_fails(const bppsa_forward_plan *plan, const bppsa_forward_stats *pass);
/* Returns the state of the pauses after a pass that speculated; before: in front of it. */
bppsa_forward_pause bppsa_forward_pause_after(const bppsa_forward_plan *plan, const bppsa_forward_stats *pass,
                                              bppsa_forward_pause before);
/* Returns the most work of a plan, in hundredths: a pass that does it is predicted to take as long as the sequential one. gain:
 * the work of a pass that mends nothing, over its time in sequential passes. */
double bppsa_forward_most_work(int64_t gates, const bppsa_forward_plan *plan, int64_t seq_len, double gain);

/* Returns whether the pass speculates. If it does not because of a pause, the pause is one pass shorter afterwards. */
bool bppsa_forward_pause_begin(const bppsa_forward_plan *plan, bppsa_forward_pause *pause);

/* The statistics in the numbers of a model's account (core/compute/model.h), which begin with the state of pauses. */
bppsa_forward_stats bppsa_forward_stats_from(const double *numbers);

/* Adds what another pass did: sums of passes, path, possible steps, mends, reseeds and tails; the mean of work; the most rounds
 * and the largest gap. `speculated` says whether any did. */
void bppsa_forward_stats_add(bppsa_forward_stats *sum, const bppsa_forward_stats *pass);

/* ---- in words and as JSON ---- */

#define BPPSA_FORWARD_TEXT 192 /* enough bytes for any of these texts */

/* "speculative, 16 chunks, warm-up 40, 8 rounds, tolerance 2.4e-07", or "sequential": what two runs with the same bits have in
 * common. ", path up to 0.70" follows where most_path is not nine tenths, ", work up to 2.20" where there is a
 * most_work. Returns text. */
const char *bppsa_forward_plan_text(const bppsa_forward_plan *plan, char *text, size_t size);
/* Takes from such a text the kind, most_work and most_path, and chunks and rounds that are open; "" is one of a sequential plan. So
 * a resumed run does not depend on what today's cost model says. ERR_FORMAT: *method is unchanged. */
bppsa_status bppsa_forward_plan_read(const char *text, bppsa_forward_method *method);
/* "102 dependent steps of 1000 a pass, 1.48 times the work, 0 chunks mended, 0 tails, largest gap 1.2e-07". Returns text. */
const char *bppsa_forward_stats_text(const bppsa_forward_stats *stats, char *text, size_t size);

/* Objects: {"kind", "chunks", "warm_up", "rounds", "accept", "stop"} and {"passes", "path", ..}. NULL when out of memory. */
struct json_t; /* jansson's */
struct json_t *bppsa_forward_plan_json(const bppsa_forward_plan *plan);
struct json_t *bppsa_forward_stats_json(const bppsa_forward_stats *stats);
/* The same of the numbers of an account, in one line with all digits (BPPSA_ACCOUNT_TEXT). Returns text; NULL: they are of no pass.
 * */
const char *bppsa_forward_numbers_text(const double *numbers, char *text, size_t size);
/* Members of an object: "path", "possible", "work", "rounds", "mended", "reseeded", "tails", "gap". False: out of memory. */
bool bppsa_forward_stats_put(struct json_t *object, const bppsa_forward_stats *stats);

/* ---- of a model ---- */

/* The plan of a recurrent model; NULL for other models. */
const bppsa_forward_plan *bppsa_forward_plan_of(const bppsa_model *model);
/* What the latest pass did; all zero before the first. On a GPU it waits for the pass. ERR_ARGUMENT: not a recurrent model;
 * ERR_CUDA. */
bppsa_status bppsa_forward_stats_of(bppsa_model *model, bppsa_forward_stats *stats);
/* Reads and sets the state of pauses. ERR_ARGUMENT: not a recurrent model; set: a negative number; ERR_CUDA. */
bppsa_status bppsa_forward_pause_get(bppsa_model *model, bppsa_forward_pause *pause);
bppsa_status bppsa_forward_pause_set(bppsa_model *model, const bppsa_forward_pause *pause);

/* Joins the latest passes of `count` models into one. Each model computed samples[i] samples of one batch (0: none) by the same
 * plan: the path is that of the slowest sample, the work the mean over all samples. From `before`, the pauses before the pass, the
 * pauses after it follow. Sets statistics and pauses of all models. ERR_ARGUMENT: not recurrent models on a CPU, or parts of a
 * sequence on a GPU. */
bppsa_status bppsa_forward_groups_end(int64_t count, bppsa_model *const *models, const int64_t *samples,
                                      const bppsa_forward_pause *before);

#ifdef __cplusplus
}
#endif
#endif
