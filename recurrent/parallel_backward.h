/* The backward pass of a recurrent layer in parallel over time, and verified: speculate, verify, walk the difference.
 *
 * The backward recurrence g_{t-1} = Jᵀ_t g_t + u_{t-1} is linear, and its Jacobians are known from the forward pass. Time is cut
 * into C chunks. A chunk does not wait for the gradient at its end: it starts W steps later in time, from the injected gradient u_t
 * there alone. What that start lacks decays as the network forgets. All chunks run at once. Then every boundary is compared: d is
 * the gradient that the chunk behind it (later in time) arrived with, less the one that the chunk started from. A chunk that does
 * not fit is mended: d alone walks through it, without u, and what it changes is added. This needs no product of matrices, and
 * the difference has no rounding floor: it shrinks to nothing where the network forgets. Rounds of mending are repeated, and what
 * still does not fit is computed chunk by chunk.
 *
 * Every difference that was not walked on is one change of u at one step. So the gradients equal those of BP, but for rounding,
 * for a loss whose dL/dh_t is changed by these vectors: `gap` and `perturbation` below say by how much. A boundary is accepted if
 *
 *     |d|_inf <= accept · s      s = max(a, c / 1000 r)
 *
 * for each sample. a is the size of the gradients that d meets first: the mean of |g_t|_inf over the chunk that receives d or, if
 * that is less, over the chunk's latest 8 steps. c is the sum of |g_t|_inf behind it, and r says how much a difference grows on its
 * way to the first step: as much as the gradients themselves, Σ |g_t|_inf of the chunk over |g|_inf at its later end, and so on
 * through the chunks in front. So d may be dropped where it is small beside the gradients there, or where it would stay small
 * beside the later ones if it grew a thousand times more than the gradients do. A mend stops at |d|_inf <= stop · the least mean
 * of eight steps of the chunk, where a decides; otherwise it walks through. Where nothing is injected into a chunk and its warm-up,
 * its gradients are 0 until something arrives, and nothing says how much that would grow there. So such a chunk, a silent one,
 * walks a random vector in the place of zeros, which shows how much a difference may grow.
 *
 * On a GPU s is a, and a mend stops at the least mean of as many steps as a kernel reads ahead.
 *
 * All this is about one layer. The layer below might make a difference grow more. So in a layer with another one below it s is a,
 * and BP computes the layer where a difference reaches a silent chunk.
 *
 * Gradients of x and of h0 are right to this absolute precision only: where the loss reaches the last step alone, gradients far in
 * front of it that are smaller than the precision may be 0. A pass in which a number is not finite, and one that is not expected to
 * gain anything, is computed by BP; on a GPU that is decided for each sample and layer. A network whose passes gain nothing pauses
 * them, as in the forward pass. On a GPU a chunked scan computes these passes, samples and layers, where it is expected to be
 * faster than BP: then its kernels are behind every pass, and end at once where the pass did not need them. With tolerance 0 every
 * pass is BP. Bits depend on the plan, not on the number of threads.
 */
#ifndef BPPSA_RECURRENT_PARALLEL_BACKWARD_H
#define BPPSA_RECURRENT_PARALLEL_BACKWARD_H

#include "recurrent/parallel_forward.h"
#include "scan/method.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How long a pass takes, in units of the longest time that is worth it: fixed + path · (its path over BP's) + work · (its work
 * over BP's). All zero: not known. */
typedef struct {
  double fixed, path, work;
} bppsa_backward_cost;

/* The numbers of a speculative pass that a caller may set. */
typedef struct {
  int64_t chunks;  /* C; 0: open */
  int64_t warm_up; /* W; -1: open */
  /* What computes a pass that is paused or given up on a GPU, for H <= 32: a scan of so many chunks; 1: BP; 0: open, that is BP
   * for a plan, and for a network the faster one. */
  int64_t scan_chunks;
  double scan_time; /* its time over BP's; 0: as BP */
  double tolerance; /* the largest accepted difference over s; negative: open; 0: BP */
  /* Gradients of x and h0 must be as exact as BP's at every step: BP computes the passes whose loss does not reach every step. */
  bool exact_inputs;
  bool adapts;              /* an open warm-up follows what passes show, as in `train`; otherwise W is the plan's in every pass */
  bppsa_backward_cost cost; /* like the plan's; all zero: open */
} bppsa_backward_method;

bppsa_backward_method bppsa_backward_method_default(void); /* everything open */

typedef struct {
  bool speculative;                /* false: BP */
  int64_t chunks, warm_up, rounds; /* C, W, and rounds of mending all chunks at once */
  double accept, stop;             /* relative to s */
  bool adapts;                     /* W changes with what passes show */
  int64_t scan_chunks;             /* chunks of the scan in the place of a pass that is paused or given up; 1: BP */
  /* In thousandths. A pass for which it is more than 1 fails: it takes longer than BP, or than the scan in its place, and, if it
   * was asked for although `auto` would not take it, than 1.25 times a pass that mends nothing. From the cost model, which is the
   * same on every machine, or measured. */
  bppsa_backward_cost cost;
} bppsa_backward_plan;

/* ERR_ARGUMENT: a number of the method is out of range. ERR_UNSUPPORTED: a GPU has no kernels for so many units
 * (shape->most_hidden, BPPSA_SCAN_WALK_BYTES). */
bppsa_status bppsa_backward_plan_make(const bppsa_backward_method *method, const bppsa_forward_shape *shape,
                                      bppsa_backward_plan *plan);

/* What a pass did, over all layers. */
typedef struct {
  bool speculated;     /* false: the pass was BP, as planned or during a pause */
  bool given_up;       /* a layer was computed by BP, or by the plan's scan, in the end */
  bool scanned;        /* it was the scan */
  int64_t passes;      /* 1 for a single pass; 0 before the first */
  int64_t path;        /* dependent steps of the slowest sample; of a scan its products and steps in a row */
  int64_t possible;    /* those of BP: T for each layer */
  double work;         /* steps computed, over the steps of BP; a scan's product of H rows is H of them */
  int64_t rounds;      /* in which a chunk was mended; of several layers the most */
  int64_t mended;      /* walks of differences through a chunk */
  double gap;          /* the largest |d|_inf / s of a difference that was not walked on */
  double perturbation; /* the sum of |d|_inf of all of them over the sum of |g_t|_inf; the largest of any sample and layer */
} bppsa_backward_stats;

/* ---- what a pass costs ---- */

/* Dependent steps of a pass that mends nothing, over T, and its work. */
typedef struct {
  double path, work;
} bppsa_backward_expected;
bppsa_backward_expected bppsa_backward_expect(const bppsa_forward_shape *shape, const bppsa_backward_plan *plan);
/* The time of a pass over BP's time, by the cost model: its `cost` is in units of BP's time. On a CPU for one thread, so that no
 * choice depends on the number of threads. */
bppsa_backward_cost bppsa_backward_model(const bppsa_forward_shape *shape, const bppsa_backward_plan *plan);
double bppsa_backward_time(const bppsa_backward_cost *cost, double path, double work);
/* `auto` takes speculative BP where its predicted time, so many times as long, is still the shortest: the model is off by a tenth
 * in the median. */
#define BPPSA_BACKWARD_WORTH 1.15
/* The plan's cost from one in units of BP's time. other: the time of what computes passes in their place, in the same units. */
bppsa_backward_cost bppsa_backward_limit(const bppsa_backward_cost *cost, const bppsa_backward_expected *expected, double other);
/* What a scan of P chunks does with a sample of T steps, S numbers of a state: dependent steps, and steps of BP that are as much
 * work. Numbers of path and work of a pass that is given up to it have these. */
typedef struct {
  int64_t path, steps;
} bppsa_backward_scanned;
bppsa_backward_scanned bppsa_backward_scan_of(int64_t seq_len, int64_t scan_chunks, int64_t state);

/* Did the pass fail? It was given up, its path is nine tenths of BP's or more, or it took too long by the plan's cost. One that did
 * not speculate did not fail. */
bool bppsa_backward_fails(const bppsa_backward_plan *plan, const bppsa_backward_stats *pass);

/* Is the difference that enters a silent chunk small enough to drop? size: |d|_2. reach: Σ |δ_t(r)|_2 over this chunk and the
 * silent ones in front of it, where a random vector r walks and δ_t is the gradient of the pre-activations; deltas: Σ |δ_t|_2 of
 * all chunks behind. For one chunk, no vector grows more than 1000 times as much as r, but for a chance of 0.0008: of a Gaussian r
 * and a seminorm N, P(N(r) < θ sup N(v)) <= 0.8 θ over |v|_2 = 1. Over several chunks it is an estimate. */
bool bppsa_backward_silent(const bppsa_backward_plan *plan, double size, double reach, double deltas);

/* How a pass's warm-ups were: over all layers, how many boundaries the first verification compared, silent chunks aside, how many
 * of these chunks were mended, and the longest of these mends in steps. */
typedef struct {
  int64_t compared, mended, longest;
} bppsa_backward_need;

/* The warm-up of a CPU's next pass, from the present one. It grows by the longest mend where half of the chunks or more needed one,
 * but to no more than a chunk, because rounds of mending are as cheap from there on. It shrinks by an eighth where none did,
 * because a few mends cost less than warm-ups of all chunks. On a GPU the last kernel of a pass decides, by a rule of its own: W
 * grows if any chunk was mended, and otherwise shrinks by one step. The host does not wait for it. */
int64_t bppsa_backward_next_warm_up(const bppsa_backward_plan *plan, int64_t seq_len, int64_t warm_up,
                                    const bppsa_backward_need *need);

#define BPPSA_BACKWARD_TEXT 256 /* enough bytes for any of these texts */

/* "speculative, 16 chunks, warm-up 40, 8 rounds, tolerance 2.4e-07", or "bp": what two runs with the same bits have in common.
 * Where a scan computes what is given up, ", or scan, 45 chunks" follows; and where the cost is known, ", 0.021 + 0.113 path +
 * 0.552 work up to 1". Returns text. */
const char *bppsa_backward_plan_text(const bppsa_backward_plan *plan, char *text, size_t size);
/* Takes chunks, warm-up, tolerance, scan and cost that the method leaves open from such a text; from one of BP, and "", nothing.
 * ERR_FORMAT: *method is unchanged. */
bppsa_status bppsa_backward_plan_read(const char *text, bppsa_backward_method *method);
/* "117 dependent steps of 1000 a pass, 1.48 times the work, 2 chunks mended in up to 1 round, largest gap 2.3e-07; equals BP for
 * dL/dh_t changed by 1.2e-09 of its size"; where a pass was given up, ", given up to BP" or "the scan" stands behind the gap.
 * Returns text. */
const char *bppsa_backward_stats_text(const bppsa_backward_stats *stats, char *text, size_t size);

/* {"kind"}, and of a speculative plan "chunks", "warm_up", "adapts", "rounds", "scan_chunks", "accept", "stop", "cost": {"fixed",
 * "path", "work"}. NULL when out of memory. */
struct json_t; /* jansson's */
struct json_t *bppsa_backward_plan_json(const bppsa_backward_plan *plan);
/* {"speculated", "given_up", "scanned", "passes", "path", "possible", "work", "rounds", "mended", "gap", "perturbation"}. NULL when
 * out of memory. */
struct json_t *bppsa_backward_stats_json(const bppsa_backward_stats *stats);
/* The second of the numbers of an account, in one line with all digits (BPPSA_ACCOUNT_TEXT). Returns text; NULL: they are of no
 * pass. */
const char *bppsa_backward_numbers_text(const double *numbers, char *text, size_t size);

/* The statistics in the numbers of a model's account (core/compute/model.h), which begin with the state below. */
bppsa_backward_stats bppsa_backward_stats_from(const double *numbers);
/* Adds what another pass did, as bppsa_forward_stats_add. */
void bppsa_backward_stats_add(bppsa_backward_stats *sum, const bppsa_backward_stats *pass);

/* The plan of a recurrent model's backward pass; NULL if it is no speculative one. */
const bppsa_backward_plan *bppsa_backward_plan_of(const bppsa_model *model);
/* What the latest pass did; all zero before the first. On a GPU it waits for the pass. ERR_ARGUMENT: not a recurrent model;
 * ERR_CUDA. */
bppsa_status bppsa_backward_stats_of(bppsa_model *model, bppsa_backward_stats *stats);

/* The state that the bits of later passes depend on; checkpoints keep it. */
typedef struct {
  bppsa_forward_pause pause;
  int64_t warm_up; /* W of the next pass; 0: the plan's */
} bppsa_backward_state;

/* ERR_ARGUMENT: not a recurrent model; set: a negative number. On a GPU `get` waits for the pass; ERR_CUDA. */
bppsa_status bppsa_backward_state_get(bppsa_model *model, bppsa_backward_state *state);
bppsa_status bppsa_backward_state_set(bppsa_model *model, const bppsa_backward_state *state);

/* ---- groups of samples ---- */

/* Passes over groups of samples of one batch, each of which began in the same state: doubles alone, so that ranks can join theirs.
 * All zero before the first group. The first BPPSA_BACKWARD_SUMS are to be added up, of all others the largest counts. */
typedef struct {
  double samples, steps, mended;
  double speculated, given_up, scanned, path, possible, rounds, gap, perturbation, warm_up, left; /* left: of the pause */
} bppsa_backward_groups;
enum { BPPSA_BACKWARD_SUMS = 3 };

/* Adds the latest pass of a model, over so many samples; 0: it had none. ERR_ARGUMENT: not a recurrent model; ERR_CUDA. */
bppsa_status bppsa_backward_groups_add(bppsa_model *model, int64_t samples, bppsa_backward_groups *groups);
/* Sets a model's statistics and state to those of all groups together: the path is the slowest sample's, the work the mean over all
 * samples. From `before`, the state in which they began, the next pauses follow. ERR_ARGUMENT: not a recurrent model. */
bppsa_status bppsa_backward_groups_set(bppsa_model *model, const bppsa_backward_groups *groups,
                                       const bppsa_backward_state *before);
/* Joins the latest passes of `count` models into one, as bppsa_forward_groups_end. */
bppsa_status bppsa_backward_groups_end(int64_t count, bppsa_model *const *models, const int64_t *samples,
                                       const bppsa_backward_state *before);

#ifdef __cplusplus
}
#endif
#endif
