/* Schedules as data: a pipeline, data-parallel or scan scheme is a list of typed operations with dependencies. A generator per
 * scheme writes the list; one validator, one simulator and one renderer serve them all.
 *
 * Units: time is in the unit of the costs (the papers': one forward pass of one micro-batch on one stage); memory is in M_a, the
 * activations of one micro-batch on one stage, and M_theta, the weights of one stage (Chimera, table 1). Layers, stages, workers
 * and micro-batches count from 0.
 *
 *     bppsa_schedule_config config = bppsa_schedule_config_default();
 *     config.stages = 4;
 *     bppsa_schedule *schedule;
 *     bppsa_schedule_create("1f1b", &config, &schedule);
 *     bppsa_schedule_validate(schedule, BPPSA_SCHEDULE_ALL_RULES, &finding);
 *     bppsa_schedule_simulate(schedule, &times);
 */
#ifndef BPPSA_SCHEDULE_SCHEDULE_H
#define BPPSA_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- operations ---- */

typedef enum {
  BPPSA_KIND_F = 0,     /* forward pass */
  BPPSA_KIND_I,         /* input gradient, ooo-backprop's delta O */
  BPPSA_KIND_W,         /* weight gradient, ooo-backprop's delta W */
  BPPSA_KIND_B,         /* both */
  BPPSA_KIND_RECOMPUTE, /* the forward pass again, for its activations */
  BPPSA_KIND_SEND,      /* of what the operation in front of it made; begins with its RECV */
  BPPSA_KIND_RECV,
  BPPSA_KIND_SYNC,       /* allreduce of weight gradients; begins with the SYNC of the other replicas */
  BPPSA_KIND_COLLECTIVE, /* layer-wise collective, of layer parallelism */
  BPPSA_KIND_HALO,       /* exchange of borders, of spatial parallelism */
  BPPSA_KIND_STEP,       /* update of the weights */
  BPPSA_KIND_PREDICT,    /* of future weights (SpecTrain, equation 4) */
  BPPSA_KIND_STASH,      /* keeps the weights a micro-batch sees (PipeDream) */
  BPPSA_KIND_PRODUCT,    /* of two transposed Jacobians */
  BPPSA_KIND_CARRY,      /* of a transposed Jacobian and the gradient that others wait for */
  BPPSA_KIND_APPLY,      /* of a transposed Jacobian and a gradient */
  BPPSA_KIND_COUNT
} bppsa_schedule_kind;

/* A worker's lanes run side by side, each its operations in the list's order. */
typedef enum {
  BPPSA_LANE_COMPUTE = 0,
  BPPSA_LANE_GRADIENT, /* weight gradients, where they have a stream of their own */
  BPPSA_LANE_SEND,
  BPPSA_LANE_RECEIVE,
  BPPSA_LANE_SYNC,
  BPPSA_LANE_COUNT
} bppsa_schedule_lane;

/* One operation; its id is its place in the list. */
typedef struct {
  double cost;             /* time */
  double memory_delta;     /* M_a; what is taken counts from its start, what is given back from its end */
  int64_t deps;            /* the first of its dependencies in bppsa_schedule.deps */
  int32_t dep_count;       /* operations that end before it starts */
  int32_t worker, replica; /* replica: of the pipeline, 2fW of them for Chimera */
  int32_t stage;           /* of the model */
  int32_t layer, layers;   /* the first, and how many; of scans: elements */
  int32_t micro, micros;   /* the first micro-batch of all replicas and iterations, and how many */
  int32_t part;            /* half of a micro-batch, slice of a transfer; -1: whole */
  int32_t weight_version;  /* updates its weights have seen, or are predicted to have seen; -1: none */
  int32_t group;           /* operations that begin together; -1: alone */
  uint8_t kind, lane;
  int8_t weight_delta; /* M_theta of its stage; as memory_delta */
} bppsa_schedule_op;

/* "RECOMPUTE", "compute", "backward-forward". */
const char *bppsa_schedule_kind_name(int32_t kind);
const char *bppsa_schedule_lane_name(int32_t lane);
const char *bppsa_schedule_window_name(int32_t window);
/* Does it keep a worker busy? Transfers, SYNC and the bookkeeping of weights do not. */
bool bppsa_schedule_kind_busy(int32_t kind);

/* ---- what a scheme is made from ---- */

/* What has a cost, a size in memory, or a size on the wire. */
typedef enum {
  BPPSA_COST_FORWARD = 0, /* one layer, one micro-batch */
  BPPSA_COST_INPUT_GRAD,
  BPPSA_COST_WEIGHT_GRAD,
  BPPSA_COST_SYNC,       /* allreduce of a layer's gradients; below 0: from the link, Rabenseifner's algorithm */
  BPPSA_COST_STEP,       /* update of a layer */
  BPPSA_COST_ACTIVATION, /* size of a layer's activations; a stage's mean is 1 M_a */
  BPPSA_COST_MESSAGE,    /* words of the activations, and of their gradient, behind a layer, one micro-batch */
  BPPSA_COST_GRADIENT,   /* words of a layer's weight gradients */
  BPPSA_COST_PRODUCT,    /* of scans: one product of two matrices */
  BPPSA_COST_APPLY,      /* of scans: one product of a matrix and a vector */
  BPPSA_COST_COUNT
} bppsa_schedule_cost;

/* "forward", "input_grad", ...: the keys of a file of costs. */
const char *bppsa_schedule_cost_name(int32_t cost);

typedef enum { BPPSA_SPLIT_NONE = 0, BPPSA_SPLIT_WI, BPPSA_SPLIT_IW } bppsa_schedule_split;
typedef enum { BPPSA_SYNC_POST = 0, BPPSA_SYNC_EAGER, BPPSA_SYNC_EAGER_OPT } bppsa_schedule_sync;
typedef enum { BPPSA_SCALE_DIRECT = 0, BPPSA_SCALE_DOUBLING, BPPSA_SCALE_HALVING } bppsa_schedule_scale;
typedef enum { BPPSA_WINDOW_ITERATION = 0, BPPSA_WINDOW_BACKWARD_FORWARD } bppsa_schedule_window;
typedef enum { BPPSA_CONTENTION_PORT = 0, BPPSA_CONTENTION_NONE, BPPSA_CONTENTION_NETWORK } bppsa_schedule_contention;

/* Algorithm 1's profile (ooo-backprop, section 4.1): regions of the main stream and the speed of the sub-stream beside them. */
typedef struct {
  int64_t regions, layers; /* layers: columns of both tables, L */
  double *main;            /* T_main of each region, size regions */
  double *sub;             /* T_sub of layer l's weight gradient in region r, [regions][layers] */
  double *speedup;         /* of running both over running one after the other, [regions][layers] */
} bppsa_schedule_profile;

typedef struct {
  int64_t stages;        /* D */
  int64_t layers;        /* L; 0: one a stage */
  int64_t micro_batches; /* N, of one iteration of one pipeline (of Chimera: of all its pipelines) */
  int64_t width;         /* W: data-parallel copies of the whole */
  int64_t replicas;      /* 2f pipelines of chimera; 0: 2 */
  int64_t chunks;        /* stages a worker holds, of interleaved */
  int64_t iterations;
  int64_t reverse;  /* k of reverse-first-k; -1: searched */
  int64_t elements; /* n + 1 of scans */
  bppsa_schedule_split split;
  bppsa_schedule_sync sync;
  bppsa_schedule_scale scale;
  bppsa_schedule_window window;
  bool skip_first_input_grad; /* the input's gradient is not wanted: no I of layer 0 */
  bool recompute;
  double uniform[BPPSA_COST_COUNT];
  const double *cost[BPPSA_COST_COUNT]; /* borrowed while the schedule is made; NULL: uniform */
  int64_t rows[BPPSA_COST_COUNT];       /* of each array: L, one a layer, or D, one a stage, which its layers share evenly */
  bppsa_schedule_profile profile;       /* borrowed while the schedule is made; no regions: one a layer, from the costs */
  double alpha, beta;                   /* latency of a message, time of a word */
  bppsa_schedule_contention contention; /* none; transfers of a worker's port wait for each other; all wait for one network */
  double issue_overhead;                /* time a kernel takes to issue; 0: none */
  bool precompiled;                     /* kernels are issued once, as one graph */
  double memory_cap; /* M_a (reverse-first-k, validation) or times the conventional peak (multi-stream); 0: none */
} bppsa_schedule_config;

/* D = 4, N = 4, one layer a stage, F = I = W = 1, no transfers' costs, one B for I and W. */
bppsa_schedule_config bppsa_schedule_config_default(void);

/* ---- schemes ---- */

/* What a scheme promises of the weights an operation sees. */
typedef enum {
  BPPSA_WEIGHTS_SYNCHRONOUS = 0, /* all of an iteration see the same */
  BPPSA_WEIGHTS_STASHED,         /* a micro-batch's backward pass sees what its forward pass saw on that stage (PipeDream) */
  BPPSA_WEIGHTS_BUFFERED,        /* the same, and all of an iteration see those from before the last update (2BW) */
  BPPSA_WEIGHTS_LATEST,          /* whatever is there */
  BPPSA_WEIGHTS_PREDICTED        /* what will be there when the micro-batch's round trip is over (SpecTrain) */
} bppsa_schedule_weights;

typedef struct bppsa_schedule bppsa_schedule;

typedef struct {
  const char *id;      /* "1f1b" */
  const char *summary; /* a line */
  const char *paper;
  bppsa_schedule_weights weights;
  bool scan;                                      /* elements instead of layers and micro-batches */
  bool data_parallel;                             /* workers are copies: D copies W times */
  bppsa_status (*generate)(bppsa_schedule *list); /* appends the operations, without dependencies */
} bppsa_schedule_scheme;

/* All schemes; *count of them. */
const bppsa_schedule_scheme *bppsa_schedule_schemes(int64_t *count);
/* The scheme of this id, or NULL. */
const bppsa_schedule_scheme *bppsa_schedule_find(const char *id);
/* The layers of the model: those of the configuration, or else what the scheme takes by itself, one a stage. */
int64_t bppsa_schedule_layers(const bppsa_schedule_scheme *scheme, const bppsa_schedule_config *config);
/* Do the arrays of costs, and the profile where the scheme reads one, fit its layers and stages? bppsa_schedule_create asks the
 * same. ERR_ARGUMENT names the array, its rows and what was expected. */
bppsa_status bppsa_schedule_check_rows(const char *scheme, const bppsa_schedule_config *config);

/* ---- the list ---- */

struct bppsa_schedule {
  const bppsa_schedule_scheme *scheme;
  bppsa_schedule_config config; /* defaults filled in; its arrays of costs have a row a layer */
  double *layer_costs;          /* owned: those arrays, [arrays][L], or NULL */
  int64_t workers;              /* W x D */
  int64_t stages;               /* of the model: D, of interleaved D x chunks, of modulo L */
  int64_t replicas;             /* of the model: W, of gems 2W, of chimera 2fW */
  int64_t rounds;               /* iterations, and a forward pass more where the window ends with one */
  int64_t micros;               /* micro-batches of all replicas and rounds */
  double activations;           /* of all layers, in the unit of their costs */
  bppsa_schedule_op *ops;       /* size count; a dependency has a smaller id, unless operations wait for each other */
  int64_t count, room;
  int32_t *deps; /* ids, size dep_count */
  int64_t dep_count, dep_room;
  int64_t groups;
  char advice_text[256]; /* what a user who chose this should know; or "" */
};

/* Makes a scheme's list, complete with dependencies and transfers. The caller destroys it. ERR_ARGUMENT: an unknown scheme, or a
 * value it has no schedule for; ERR_MEMORY. */
bppsa_status bppsa_schedule_create(const char *scheme, const bppsa_schedule_config *config, bppsa_schedule **schedule);
void bppsa_schedule_destroy(bppsa_schedule *schedule);

/* The same in two steps, for lists that come from elsewhere (a file, a test): an empty list; operations appended worker by worker,
 * each lane in its order;
 * then the dependencies, the transfers between workers and the groups that the data flow asks for. Appended costs and deltas are
 * kept. Operations that wait for each other stay in the list: the validator names them. */
bppsa_status bppsa_schedule_create_empty(const char *scheme, const bppsa_schedule_config *config, bppsa_schedule **schedule);
bppsa_status bppsa_schedule_append(bppsa_schedule *schedule, const bppsa_schedule_op *op);
bppsa_status bppsa_schedule_connect(bppsa_schedule *schedule);
/* Cost, memory and weights of an operation as the configuration has them. */
void bppsa_schedule_price(const bppsa_schedule *schedule, bppsa_schedule_op *op);

/* ---- the validator ---- */

typedef struct {
  const char *name; /* "order-forward" */
  const char *what; /* what it asks for, a line */
} bppsa_schedule_rule;

const bppsa_schedule_rule *bppsa_schedule_rules(int64_t *count);
#define BPPSA_SCHEDULE_ALL_RULES UINT64_MAX

/* The first rule broken, or rule NULL. */
typedef struct {
  const char *rule;
  int64_t op; /* id, or -1 */
  char text[240];
} bppsa_schedule_finding;

/* Checks the rules whose bit is set in `mask` (bit i: rule i), in time linear in operations and dependencies. A broken rule is no
 * failure: see *finding.
 * ERR_MEMORY. */
bppsa_status bppsa_schedule_check(const bppsa_schedule *schedule, uint64_t mask, bppsa_schedule_finding *finding);
/* The same with all rules, as a status: ERR_ARGUMENT names the rule, the operation, and what was expected. */
bppsa_status bppsa_schedule_validate(const bppsa_schedule *schedule);

/* ---- the simulator ---- */

typedef struct {
  double busy;             /* time within the window spent on F, I, W, B, RECOMPUTE, STEP, PREDICT and the products of scans */
  double peak_activations; /* M_a */
  double weight_versions;  /* resident M_theta */
} bppsa_schedule_worker;

typedef struct {
  double makespan;     /* of the window */
  double begin;        /* of the window: 0, or where the backward pass begins */
  double bubble_ratio; /* 1 - sum of busy / (workers x makespan) */
  double *start, *end; /* of each operation */
  bppsa_schedule_worker *worker;
} bppsa_schedule_times;

/* Runs every lane's operations in order, each as soon as it can. O(n log n). ERR_ARGUMENT: operations wait for each other;
 * ERR_MEMORY. Free with bppsa_schedule_times_free. */
bppsa_status bppsa_schedule_simulate(const bppsa_schedule *schedule, bppsa_schedule_times *times);
void bppsa_schedule_times_free(bppsa_schedule_times *times);

/* Activations over time: from `time` on `level` M_a. Worker w's points are curves[first[w]] .. curves[first[w + 1] - 1]; both
 * arrays are owned (bppsa_free). */
typedef struct {
  double time, level;
} bppsa_schedule_memory;
bppsa_status bppsa_schedule_memory_curves(const bppsa_schedule *schedule, const bppsa_schedule_times *times,
                                          bppsa_schedule_memory **curves, int64_t **first);

/* ---- SpecTrain and Chimera's model ---- */

/* s_F or s_B of a micro-batch on a stage, counted in the simulated schedule: updates of the stage that end between the start of
 * its forward or backward pass there and the end of its round trip, its own left out. -1 where the schedule lacks one of them.
 * (SpecTrain, section 3.2) */
int64_t bppsa_schedule_ahead(const bppsa_schedule *schedule, const bppsa_schedule_times *times, int64_t micro, int64_t stage,
                             bool forward);

/* Chimera's performance model (section 3.4): T = (F_t + p2p) C_f + (B_t + p2p) C_b + the longest unoverlapped SYNC; C_f and C_b
 * are counted on the critical path of the schedule without links. NaN where it is not a chimera schedule. */
bppsa_status bppsa_schedule_model(const bppsa_schedule *schedule, double *time, int64_t *forward, int64_t *backward);

#ifdef __cplusplus
}
#endif
#endif
