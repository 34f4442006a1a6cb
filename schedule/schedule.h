/* Schedules as data: a pipeline, data-parallel or scan scheme is a list of typed operations with dependencies. Every scheme has a
 * generator that writes the list; one validator, one simulator and one renderer serve all schemes.
 *
 * Units: time is in the unit of the costs (in the papers one forward pass of one micro-batch on one stage); memory is in M_a, the
 * activations of one micro-batch on one stage, and M_theta, the weights of one stage (Chimera, table 1). Layers, stages, workers
 * and micro-batches count from 0.
 *
 *     bppsa_schedule_config config = bppsa_schedule_config_default();
 *     config.stages = 4;
 *     bppsa_schedule *schedule;
 *     bppsa_schedule_create("1f1b", &config, &schedule);
 *     bppsa_schedule_validate(schedule);
 *     bppsa_schedule_simulate(schedule, &times);
 */
#ifndef BPPSA_SCHEDULE_SCHEDULE_H
#define BPPSA_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- operations ---- */

typedef enum {
  BPPSA_KIND_F = 0,     /* forward pass */
  BPPSA_KIND_I,         /* input gradient (delta O of ooo-backprop) */
  BPPSA_KIND_W,         /* weight gradient (delta W of ooo-backprop) */
  BPPSA_KIND_B,         /* I and W together */
  BPPSA_KIND_RECOMPUTE, /* the forward pass again, to restore its activations */
  BPPSA_KIND_SEND,      /* sends the result of the operation in front of it; begins together with its RECV */
  BPPSA_KIND_RECV,
  BPPSA_KIND_SYNC,       /* allreduce of weight gradients; begins together with the SYNC of the other replicas */
  BPPSA_KIND_COLLECTIVE, /* collective of layer parallelism, layer by layer */
  BPPSA_KIND_HALO,       /* exchange of borders, of spatial parallelism */
  BPPSA_KIND_STEP,       /* update of the weights */
  BPPSA_KIND_PREDICT,    /* predicts future weights (SpecTrain, equation 4) */
  BPPSA_KIND_STASH,      /* keeps the weights that a micro-batch sees (PipeDream) */
  BPPSA_KIND_PRODUCT,    /* product of two transposed Jacobians */
  BPPSA_KIND_CARRY,      /* product of a transposed Jacobian and the gradient that other workers wait for */
  BPPSA_KIND_APPLY,      /* product of a transposed Jacobian and a gradient */
  BPPSA_KIND_COUNT
} bppsa_schedule_kind;

/* The lanes of a worker run side by side; each runs its operations in the list's order. */
typedef enum {
  BPPSA_LANE_COMPUTE = 0,
  BPPSA_LANE_GRADIENT, /* weight gradients, where they have a stream of their own */
  BPPSA_LANE_SEND,
  BPPSA_LANE_RECEIVE,
  BPPSA_LANE_SYNC,
  BPPSA_LANE_COUNT
} bppsa_schedule_lane;

/* One operation; its id is its index in the list. */
typedef struct {
  double cost;             /* time */
  double memory_delta;     /* M_a; an increase counts from the start of the operation, a decrease from its end */
  int64_t deps;            /* index of its first dependency in bppsa_schedule.deps */
  int32_t dep_count;       /* number of operations that must end before it starts */
  int32_t worker, replica; /* replica: number of the pipeline, one of 2fW for Chimera */
  int32_t stage;           /* number within the model */
  int32_t layer, layers;   /* the first layer, and how many; in scans: Jacobians */
  int32_t micro, micros;   /* the first micro-batch, counted over all replicas and iterations, and how many */
  int32_t part;            /* half of a micro-batch, or slice of a transfer; -1: whole */
  int32_t weight_version;  /* updates that its weights have seen, or are predicted to have seen; -1: none */
  int32_t group;           /* operations that begin together; -1: alone */
  uint8_t kind, lane;
  int8_t weight_delta; /* M_theta of its stage; counted like memory_delta */
} bppsa_schedule_op;

/* Names of values: "RECOMPUTE", "compute", "backward-forward". */
const char *bppsa_schedule_kind_name(int32_t kind);
const char *bppsa_schedule_lane_name(int32_t lane);
const char *bppsa_schedule_window_name(int32_t window);
/* Does an operation of this kind keep its worker busy? Transfers, SYNC and bookkeeping of weights do not. */
bool bppsa_schedule_kind_busy(int32_t kind);

/* ---- the configuration of a scheme ---- */

/* The kinds of costs: times, sizes in memory, sizes of messages. Beyond BPPSA_SCHEDULE_MOST_COST sums could overflow. */
#define BPPSA_SCHEDULE_MOST_COST 1e15
typedef enum {
  BPPSA_COST_FORWARD = 0, /* time of one layer for one micro-batch */
  BPPSA_COST_INPUT_GRAD,
  BPPSA_COST_WEIGHT_GRAD,
  BPPSA_COST_BACKWARD,   /* both gradients at once, in one B; negative: the sum of the two */
  BPPSA_COST_SYNC,       /* allreduce of a layer's gradients; negative: calculated from the link by Rabenseifner's algorithm */
  BPPSA_COST_STEP,       /* update of a layer */
  BPPSA_COST_ACTIVATION, /* size of a layer's activations; the mean of a stage is 1 M_a */
  BPPSA_COST_MESSAGE,    /* words of the activations behind a layer, and of their gradient, for one micro-batch */
  BPPSA_COST_GRADIENT,   /* words of a layer's weight gradients */
  BPPSA_COST_PRODUCT,    /* in scans: one product of two matrices */
  BPPSA_COST_APPLY,      /* in scans: one product of a matrix and a vector */
  BPPSA_COST_COUNT
} bppsa_schedule_cost;

/* Names of costs, which are the keys in a file of costs: "forward", "input_grad", ... */
const char *bppsa_schedule_cost_name(int32_t cost);

/* What a configuration chooses: one operation B for both gradients, or W and I, or I and W; when Chimera's SYNC begins; how Chimera
 * takes more micro-batches than stages; what the makespan covers; which transfers wait for each other. */
typedef enum { BPPSA_SPLIT_NONE = 0, BPPSA_SPLIT_WI, BPPSA_SPLIT_IW } bppsa_schedule_split;
typedef enum { BPPSA_SYNC_POST = 0, BPPSA_SYNC_EAGER, BPPSA_SYNC_EAGER_OPT } bppsa_schedule_sync;
typedef enum { BPPSA_SCALE_DIRECT = 0, BPPSA_SCALE_DOUBLING, BPPSA_SCALE_HALVING } bppsa_schedule_scale;
typedef enum { BPPSA_WINDOW_ITERATION = 0, BPPSA_WINDOW_BACKWARD_FORWARD } bppsa_schedule_window;
typedef enum { BPPSA_CONTENTION_PORT = 0, BPPSA_CONTENTION_NONE, BPPSA_CONTENTION_NETWORK } bppsa_schedule_contention;

/* Algorithm 1's profile (ooo-backprop, section 4.1): regions of the main stream, and how fast the sub-stream runs beside them. */
typedef struct {
  int64_t regions, layers; /* layers: columns of both tables, L */
  double *main;            /* T_main of each region, size regions */
  double *sub;             /* T_sub of layer l's weight gradient in region r, [regions][layers] */
  double *speedup;         /* time of both one after the other, divided by the time of both at once, [regions][layers] */
} bppsa_schedule_profile;

typedef struct {
  int64_t stages;        /* D */
  int64_t layers;        /* L; 0: one on each stage */
  int64_t micro_batches; /* N, in one iteration of one pipeline (Chimera: of all its pipelines) */
  int64_t width;         /* W: data-parallel copies of the whole */
  int64_t replicas;      /* 2f pipelines of chimera; 0: 2 */
  int64_t chunks;        /* interleaved: stages on each worker */
  int64_t iterations;
  int64_t reverse;  /* k of reverse-first-k; -1: find the best */
  int64_t elements; /* scans: n + 1 */
  /* the first layer of every stage but the first; size cuts, which is one less than the number of stages; borrowed while the
   * schedule is made. cuts 0: stages are as even as possible */
  const int64_t *cut;
  int64_t cuts;
  bppsa_schedule_split split;
  bppsa_schedule_sync sync;
  bppsa_schedule_scale scale;
  bppsa_schedule_window window;
  bool skip_first_input_grad; /* the gradient of the input is not wanted: layer 0 has no I */
  bool recompute;
  double uniform[BPPSA_COST_COUNT];
  const double *cost[BPPSA_COST_COUNT]; /* borrowed while the schedule is made; NULL: `uniform` holds */
  int64_t samples;                      /* the size of the micro-batches for which the costs hold; 0: any size */
  /* size of each array of costs: L, a cost for each layer, or D, a cost for each stage, which its layers share evenly */
  int64_t rows[BPPSA_COST_COUNT];
  /* borrowed while the schedule is made; without regions, each layer is a region, with its costs */
  bppsa_schedule_profile profile;
  double alpha, beta; /* latency of a message, time of a word; these and all costs: at most BPPSA_SCHEDULE_MOST_COST */
  /* PORT: transfers at a worker's port wait for each other; NONE: they do not; NETWORK: all transfers share one network */
  bppsa_schedule_contention contention;
  double issue_overhead; /* time a kernel takes to issue; 0: none */
  bool precompiled;      /* kernels are issued once, as one graph */
  double memory_cap;     /* M_a (reverse-first-k, validation), or a multiple of the conventional peak (multi-stream); 0: none */
} bppsa_schedule_config;

/* Returns the defaults: D = 4, N = 4, one layer on each stage, F = I = W = 1, free transfers, one B instead of I and W. */
bppsa_schedule_config bppsa_schedule_config_default(void);

/* ---- schemes ---- */

/* What a scheme promises about the weights that an operation sees. */
typedef enum {
  BPPSA_WEIGHTS_SYNCHRONOUS = 0, /* all operations of an iteration see the same */
  BPPSA_WEIGHTS_STASHED,         /* a micro-batch's backward pass sees what its forward pass saw on that stage (PipeDream) */
  BPPSA_WEIGHTS_BUFFERED,        /* all passes of an iteration see the weights before the last update (2BW) */
  BPPSA_WEIGHTS_LATEST,          /* the present weights, whatever their version */
  BPPSA_WEIGHTS_PREDICTED        /* the weights expected when the micro-batch's round trip is over (SpecTrain) */
} bppsa_schedule_weights;

typedef struct bppsa_schedule bppsa_schedule; /* a list of operations */

typedef struct {
  const char *id;      /* "1f1b" */
  const char *summary; /* one line */
  const char *paper;
  bppsa_schedule_weights weights;
  bool scan;          /* it has elements instead of layers and micro-batches */
  bool data_parallel; /* workers are copies: D copies W times */
  int64_t pipelines;  /* pipelines over the same workers, unless the configuration asks for more; 0: 1 */
  unsigned takes;     /* a bit for each option that not every scheme has */
  bppsa_status (*generate)(bppsa_schedule *list); /* appends the operations, without dependencies */
} bppsa_schedule_scheme;

/* Returns all schemes; *count becomes their number. */
const bppsa_schedule_scheme *bppsa_schedule_schemes(int64_t *count);
/* The scheme with this id, or NULL. */
const bppsa_schedule_scheme *bppsa_schedule_find(const char *id);
/* Does the scheme take an option that not every scheme takes, as "chunks"? Returns false for other names. */
bool bppsa_schedule_takes(const bppsa_schedule_scheme *scheme, const char *option);
/* The number of layers: the configuration's, or the scheme's own default, one on each stage. */
int64_t bppsa_schedule_layers(const bppsa_schedule_scheme *scheme, const bppsa_schedule_config *config);
/* Checks that the arrays of costs, and the profile if the scheme reads one, fit its layers and stages, as bppsa_schedule_create
 * does. ERR_ARGUMENT names the array, its rows and what was expected. */
bppsa_status bppsa_schedule_check_rows(const char *scheme, const bppsa_schedule_config *config);

/* Cuts a chain of layers into `parts` such that the most expensive part is as cheap as can be: first[p] becomes the first layer of
 * part p + 1, size parts - 1. Of several such cuts it takes the one with the least sum of squares, then with larger first parts.
 * Every part has a layer, so 1 <= parts <= layers. costs: 0 or more. ERR_ARGUMENT, ERR_MEMORY. */
bppsa_status bppsa_schedule_cut_evenly(int64_t layers, const double *costs, int64_t parts, int64_t *first);
/* Has every cost of a pass (F, I, W, B) a number for each layer, or one for all layers? */
bool bppsa_schedule_costs_by_layer(const bppsa_schedule_config *config);
/* Cuts a scheme's layers into stages with bppsa_schedule_cut_evenly, by the cost of a layer's F and B. *cut becomes a value for
 * config.cut, which the caller frees with bppsa_free, and *cuts its size. They become NULL and 0 if the scheme has only one stage,
 * or stages that are not neighbouring layers. ERR_ARGUMENT: costs that are not by layer; ERR_* of bppsa_schedule_create_empty. */
bppsa_status bppsa_schedule_cut_scheme(const char *scheme, const bppsa_schedule_config *config, int64_t **cut, int64_t *cuts);
/* Reads a configuration's cut, "3,5" or "3:5"; the caller frees it with bppsa_free. ERR_ARGUMENT, ERR_MEMORY. */
bppsa_status bppsa_schedule_cut_parse(const char *text, int64_t **cut, int64_t *cuts);

/* ---- the list ---- */

struct bppsa_schedule {
  const bppsa_schedule_scheme *scheme;
  bppsa_schedule_config config; /* with defaults filled in; its arrays of costs have a row for each layer */
  double *layer_costs;          /* owned: the memory of the configuration's arrays of costs, [arrays][L], or NULL */
  int64_t *cut;                 /* owned: the memory of config.cut, or NULL */
  int64_t workers;              /* W x D */
  int64_t stages;               /* of the model: D; interleaved D x chunks; modulo L */
  int64_t replicas;             /* of the model: W; gems 2W; chimera 2fW */
  int64_t rounds;               /* iterations, and one more if the window ends with a forward pass */
  int64_t micros;               /* micro-batches of all replicas and rounds */
  double activations;           /* sum over all layers, in the unit of the costs */
  bppsa_schedule_op *ops;       /* size count; dependencies have smaller ids unless operations wait for each other */
  int64_t count, room;
  int32_t *deps; /* ids, size dep_count */
  int64_t dep_count, dep_room;
  int64_t groups;
  char advice_text[256]; /* what a user of this schedule should know; or "" */
};

/* Makes a scheme's list, complete with dependencies and transfers. The caller destroys it. ERR_ARGUMENT: an unknown scheme, or a
 * value for which the scheme has no schedule; ERR_MEMORY. */
bppsa_status bppsa_schedule_create(const char *scheme, const bppsa_schedule_config *config, bppsa_schedule **schedule);
void bppsa_schedule_destroy(bppsa_schedule *schedule);
/* Is there an update for each micro-batch (asynchronous schemes but 2BW)? Otherwise there is one for each iteration. */
bool bppsa_schedule_updates_each(const bppsa_schedule *schedule);
/* Gives passes and updates new costs: from each array of `config` for which the list has an array too, with a row for each layer of
 * the list. The order of operations and the costs of transfers stay as they are. */
void bppsa_schedule_reprice(bppsa_schedule *schedule, const bppsa_schedule_config *config);

/* Makes a list from operations that come from elsewhere (a file, a test), in three steps. create_empty makes an empty list.
 * append adds operations, worker by worker and in each lane in its order. connect adds the dependencies, the transfers between
 * workers and the groups that follow from the data flow; it keeps costs and deltas that were given. Operations that wait for each
 * other stay in the list, and the validator names them. */
bppsa_status bppsa_schedule_create_empty(const char *scheme, const bppsa_schedule_config *config, bppsa_schedule **schedule);
bppsa_status bppsa_schedule_append(bppsa_schedule *schedule, const bppsa_schedule_op *op);
bppsa_status bppsa_schedule_connect(bppsa_schedule *schedule);
/* Sets the cost, memory and weights of an operation as the configuration gives them. */
void bppsa_schedule_price(const bppsa_schedule *schedule, bppsa_schedule_op *op);

/* Returns the first layer of a stage, or L for stage = `stages`. Without a given cut stages are as even as possible, the first ones
 * larger. */
int64_t bppsa_schedule_layer_of(const bppsa_schedule *schedule, int64_t stage);
/* Finds the SEND and the RECV of every group, size groups; -1 where the list has none. `send` also has the first SYNC of a group.
 * counts[id]: whether operation id counts; NULL: all count. The caller frees both arrays with bppsa_free. ERR_MEMORY. */
bppsa_status bppsa_schedule_pair(const bppsa_schedule *schedule, const bool *counts, int32_t **send, int32_t **recv);

/* ---- the validator ---- */

typedef struct {
  const char *name; /* "order-forward" */
  const char *what; /* what it asks for, in one line */
} bppsa_schedule_rule;

/* Rule `index`, from 0 on, in the order in which rules are checked; NULL behind the last. */
const bppsa_schedule_rule *bppsa_schedule_rule_at(int64_t index);
#define BPPSA_SCHEDULE_ALL_RULES UINT64_MAX

/* The first rule that is broken; rule is NULL if none is. */
typedef struct {
  const char *rule;
  int64_t op; /* id, or -1 */
  char text[240];
} bppsa_schedule_finding;

/* Checks the rules whose bit is set in `mask` (bit i: rule i), in time linear in operations and dependencies. A broken rule is
 * not an error: *finding tells it. ERR_MEMORY. */
bppsa_status bppsa_schedule_check(const bppsa_schedule *schedule, uint64_t mask, bppsa_schedule_finding *finding);
/* Checks all rules. ERR_ARGUMENT names the rule, the operation, and what was expected. */
bppsa_status bppsa_schedule_validate(const bppsa_schedule *schedule);

/* ---- the simulator ---- */

typedef struct {
  double busy;             /* time in the window spent on F, I, W, B, RECOMPUTE, STEP, PREDICT and the products of scans */
  double peak_activations; /* M_a */
  double weight_versions;  /* M_theta held */
} bppsa_schedule_worker;

typedef struct {
  double makespan;     /* of the window */
  double begin;        /* of the window: 0, or the start of the backward pass */
  double bubble_ratio; /* 1 - sum of busy / (workers x makespan) */
  double *start, *end; /* of each operation */
  bppsa_schedule_worker *worker;
} bppsa_schedule_times;

/* Runs every lane's operations in order, each as soon as possible. O(n log n). ERR_ARGUMENT: operations wait for each other;
 * ERR_MEMORY. Free with bppsa_schedule_times_free. */
bppsa_status bppsa_schedule_simulate(const bppsa_schedule *schedule, bppsa_schedule_times *times);
/* Computes the results of a list that was executed from the times of its operations, which begin at 0. Copies them. ERR_MEMORY. */
bppsa_status bppsa_schedule_times_of(const bppsa_schedule *schedule, const double *start, const double *end,
                                     bppsa_schedule_times *times);
void bppsa_schedule_times_free(bppsa_schedule_times *times);

/* Activations over time: from `time` on the worker holds `level` M_a. The points of worker w are curves[first[w]] ..
 * curves[first[w + 1] - 1]; the caller frees both arrays with bppsa_free. */
typedef struct {
  double time, level;
} bppsa_schedule_memory;
bppsa_status bppsa_schedule_memory_curves(const bppsa_schedule *schedule, const bppsa_schedule_times *times,
                                          bppsa_schedule_memory **curves, int64_t **first);

/* ---- SpecTrain and Chimera's model ---- */

/* Returns s_F or s_B of a micro-batch on a stage, counted in the simulated schedule: how many updates of the stage end between the
 * start of the micro-batch's forward or backward pass on the stage and the end of its round trip, without its own update. -1 if the
 * schedule lacks one of these operations. (SpecTrain, section 3.2) */
int64_t bppsa_schedule_ahead(const bppsa_schedule *schedule, const bppsa_schedule_times *times, int64_t micro, int64_t stage,
                             bool forward);

/* Chimera's performance model (section 3.4): T = (F_t + p2p) C_f + (B_t + p2p) C_b + the longest unoverlapped SYNC. C_f and C_b are
 * counted on the critical path of the schedule without links. Where layers have costs of their own, the model takes the longest
 * stage and the longest message. NaN for other schemes. */
bppsa_status bppsa_schedule_model(const bppsa_schedule *schedule, double *time, int64_t *forward, int64_t *backward);

#ifdef __cplusplus
}
#endif
#endif
