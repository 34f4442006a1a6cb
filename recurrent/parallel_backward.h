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
 *     |d|_inf <= accept · s      s = max(mean of |g_t|_inf over the chunk that receives d, sum of |g_t|_inf behind it / T)
 *
 * for each sample, and a mend stops at |d|_inf <= stop · s. Where nothing is injected into a chunk and its warm-up, its gradients
 * are 0 until something arrives, and nothing says how much that would grow there. So such a chunk, a silent one, walks a random
 * vector in the place of zeros, which shows how much a difference may grow (bppsa_backward_silent below).
 *
 * Gradients of x and of h0 are right to this absolute precision only: where the loss reaches the last step alone, gradients far in
 * front of it that are smaller than the precision may be 0. A pass in which a number is not finite, and one that is not expected to
 * gain anything, is computed by BP; on a GPU that is decided for each sample and layer. A network whose passes gain nothing pauses
 * them, as in the forward pass. With tolerance 0 every pass is BP. Bits depend on the plan, not on the number of threads.
 */
#ifndef BPPSA_RECURRENT_PARALLEL_BACKWARD_H
#define BPPSA_RECURRENT_PARALLEL_BACKWARD_H

#include "recurrent/parallel_forward.h"
#include "scan/method.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers of a speculative pass that a caller may set. */
typedef struct {
  int64_t chunks;   /* C; 0: open */
  int64_t warm_up;  /* W; -1: open */
  double tolerance; /* the largest accepted difference over s; negative: open; 0: BP */
  /* Gradients of x and h0 must be as exact as BP's at every step: BP computes the passes whose loss does not reach every step. */
  bool exact_inputs;
} bppsa_backward_method;

bppsa_backward_method bppsa_backward_method_default(void); /* everything open */

typedef struct {
  bool speculative;                /* false: BP */
  int64_t chunks, warm_up, rounds; /* C, W, and rounds of mending all chunks at once */
  double accept, stop;             /* relative to s */
} bppsa_backward_plan;

/* ERR_ARGUMENT: a number of the method is out of range. ERR_UNSUPPORTED: more than 32 units on a GPU. */
bppsa_status bppsa_backward_plan_make(const bppsa_backward_method *method, const bppsa_forward_shape *shape,
                                      bppsa_backward_plan *plan);

/* What a pass did, over all layers. */
typedef struct {
  bool speculated;     /* false: the pass was BP, as planned or during a pause */
  bool given_up;       /* a layer was computed by BP in the end */
  int64_t passes;      /* 1 for a single pass; 0 before the first */
  int64_t path;        /* dependent steps of the slowest sample */
  int64_t possible;    /* those of BP: T for each layer */
  double work;         /* steps computed over those of BP */
  int64_t rounds;      /* in which a chunk was mended; of several layers the most */
  int64_t mended;      /* walks of differences through a chunk */
  double gap;          /* the largest |d|_inf / s of a difference that was not walked on */
  double perturbation; /* the sum of |d|_inf of all of them over the sum of |g_t|_inf; the largest of any sample and layer */
} bppsa_backward_stats;

/* Is the difference that enters a silent chunk small enough to drop? size: |d|_2. reach: Σ |δ_t(r)|_2 over this chunk and the
 * silent ones in front of it, where a random vector r walks and δ_t is the gradient of the pre-activations; deltas: Σ |δ_t|_2 of
 * all chunks behind. For one chunk, no vector grows more than 1000 times as much as r, but for a chance of 0.0008: of a Gaussian r
 * and a seminorm N, P(N(r) < θ sup N(v)) <= 0.8 θ over |v|_2 = 1. Over several chunks it is an estimate. */
bool bppsa_backward_silent(const bppsa_backward_plan *plan, double size, double reach, double deltas);

#define BPPSA_BACKWARD_TEXT 192 /* enough bytes for any of these texts */

/* "speculative, 16 chunks, warm-up 40, 8 rounds, tolerance 2.4e-07", or "bp": what two runs with the same bits have in common.
 * Returns text. */
const char *bppsa_backward_plan_text(const bppsa_backward_plan *plan, char *text, size_t size);
/* "117 dependent steps of 1000 a pass, 1.48 times the work, 0 chunks mended; equals BP for dL/dh_t changed by 1.2e-09 of its
 * size". Returns text. */
const char *bppsa_backward_stats_text(const bppsa_backward_stats *stats, char *text, size_t size);

/* {"speculated", "given_up", "path", "possible", "work", "rounds", "mended", "gap", "perturbation"}. NULL when out of memory. */
struct json_t; /* jansson's */
struct json_t *bppsa_backward_stats_json(const bppsa_backward_stats *stats);

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

#ifdef __cplusplus
}
#endif
#endif
