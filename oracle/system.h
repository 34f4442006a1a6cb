/* Systems as the oracle sees them: processors, and the levels of the network between them.
 *
 * A system file is one JSON object:
 *
 *     {"name": "two nodes", "peak_flops": 15.7e12, "efficiency": 0.4, "memory_bandwidth": 9e11, "memory_bytes": 16e9,
 *      "levels": [{"name": "node", "processors": 4, "alpha_s": 1e-5, "bandwidth": 20e9},
 *                 {"name": "rack", "processors": 68, "alpha_s": 2e-5, "bandwidth": 25e9, "contention": 2}]}
 *
 *   peak_flops, efficiency   FLOP/s of one processor, and the share of it that layers reach, above 0, at most 1
 *   memory_bandwidth         bytes/s; default 0: layers are not limited by it; otherwise 1 or more
 *   memory_bytes             memory of one processor
 *   memory_reuse             gamma, the share of the naive sum of buffers that is held at once; default 0.5: a layer's output and
 *                            the next one's input are one buffer, which the naive sum counts twice
 *   levels                   1 to 8, the innermost first: a level joins `processors` processors, more than the level inside it, and
 *                            at most 2^24
 *   alpha_s, bandwidth       seconds to start a message, and bytes/s between two processors: beta = 1 / bandwidth
 *   contention               phi >= 1: messages that share a link when the groups of a hybrid strategy talk at once; default 1
 *   slowdown                 how many times longer a processor computes when all processors of the level compute; default 1.
 *                            Measured on machines whose processors share caches, memory or cores
 *   point_to_point, allreduce, ordered_sum, allgather, reduce_scatter, stage_message
 *                            {"alpha_s", "bandwidth"} of one operation, for its formula in oracle/collective.h; default: the
 *                            level's. If a level has its own "allreduce", it uses a ring unless another algorithm is asked for
 *   spread                   a level has {"slowdown": [1.3, 1.6], "messages": [0.9, 1.2], "allreduce": [0.8, 1.1], ..}, the
 *                            system {"layers": [0.97, 1.1], "product": [0.9, 1.3], "apply": [0.9, 1.2]}: the range of the
 *                            slowdown, and factors by which messages, one operation, layers and products were measured to be faster
 *                            and slower (bppsa_spread_of, core/measure/rounds.h); default: not known. Measured times of layers and
 *                            shares have their own "spread", in seconds
 *   products                 seconds of the products of the scan over ranks (oracle/products.h); default: by their FLOPs
 *   measured, layer_times, fits, product_fits   what bppsa calibrate adds: when and on what it measured, the times of a model's
 *                            layers (bppsa_oracle_system_times), and the measurements behind alpha, beta and products
 */
#ifndef BPPSA_ORACLE_SYSTEM_H
#define BPPSA_ORACLE_SYSTEM_H

#include "oracle/collective.h"
#include "oracle/layer_model.h"
#include "oracle/products.h"
#include "oracle/spread.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BPPSA_ORACLE_MOST_LEVELS = 8, BPPSA_ORACLE_MOST_PROCESSORS = 1 << 24 };

/* Operations that may have an alpha and a beta of their own. */
typedef enum {
  BPPSA_OPERATION_POINT_TO_POINT = 0,
  BPPSA_OPERATION_ALLREDUCE,
  BPPSA_OPERATION_ORDERED_SUM,
  BPPSA_OPERATION_ALLGATHER,
  BPPSA_OPERATION_REDUCE_SCATTER,
  BPPSA_OPERATION_STAGE_MESSAGE, /* a message for which the executor of schedules waits (distributed/pipeline/pipeline.h) */
  BPPSA_OPERATIONS
} bppsa_oracle_operation;

const char *bppsa_oracle_operation_name(int32_t operation); /* "point_to_point"; NULL beyond the last */

typedef struct {
  char name[BPPSA_ORACLE_NAME];
  int64_t processors;
  double alpha_s, beta_s;                              /* beta_s: seconds a byte */
  double contention;                                   /* phi */
  double slowdown;                                     /* 0 means 1 */
  bppsa_link own[BPPSA_OPERATIONS];                    /* beta_s 0: the level's link is used */
  bppsa_oracle_spread slowdown_spread, message_spread; /* message_spread: factors of the times of all operations */
  bppsa_oracle_spread own_spread[BPPSA_OPERATIONS];    /* factors of one operation's times; not known: message_spread is used */
} bppsa_oracle_level;

typedef struct {
  char name[BPPSA_ORACLE_NAME];
  double peak_flops, efficiency, memory_bandwidth, memory_bytes, memory_reuse;
  int64_t count;
  bppsa_oracle_level levels[BPPSA_ORACLE_MOST_LEVELS];
  bppsa_oracle_product_cost products[BPPSA_PRODUCTS]; /* on one processor by itself; all 0: not measured */
  bppsa_oracle_spread layer_spread;                   /* factors of the times of layers */
  bppsa_oracle_spread product_spread[BPPSA_PRODUCTS]; /* factors of the times of products */
} bppsa_oracle_system;

/* What bppsa oracle calls the machine that it runs on and measures (cli/this_machine.h). The library has no such system. */
#define BPPSA_ORACLE_THIS_MACHINE "this-machine"

/* Opens a built-in system, or a file whose name ends in .json. ERR_ARGUMENT: an unknown name, a file that cannot be read;
 * ERR_FORMAT names the member and what was expected. */
bppsa_status bppsa_oracle_system_open(const char *name, bppsa_oracle_system *system);
const char *bppsa_oracle_system_name(int64_t i);
const char *bppsa_oracle_system_summary(int64_t i);
bppsa_status bppsa_oracle_system_parse(const char *where, const json_t *document, bppsa_oracle_system *system);
json_t *bppsa_oracle_system_json(const bppsa_oracle_system *system);

/* Gives the model's layers the times that the system file `name` has measured, if it has any for a model of that name:
 *
 *     "measured": {"date": "2026-01-31T12:00:00Z", "hardware": "..", ..},
 *     "layer_times": {"model": "lenet5", "batch": 16,
 *                     "layers": [{"name": "conv1", "forward_s": 1e-5, "backward_s": 2e-5, "input_grad_s": 0,
 *                                 "weight_grad_s": 2e-5, "update_s": 1e-6}, ..]}
 *
 * model->measured then says when and where. Nothing happens for a built-in system or another model. ERR_FORMAT: the layers are
 * not the model's, a member is missing or no number. */
bppsa_status bppsa_oracle_system_times(const char *name, bppsa_oracle_model *model);
/* Does the same with a system file's document; `where` names it in messages. */
bppsa_status bppsa_oracle_system_times_of(const char *where, const json_t *document, bppsa_oracle_model *model);

/* Returns the innermost level that joins `processors` processors, or the outermost if none does. */
const bppsa_oracle_level *bppsa_oracle_system_level(const bppsa_oracle_system *system, int64_t processors);
/* Counts the processors of the outermost level. */
int64_t bppsa_oracle_system_processors(const bppsa_oracle_system *system);
/* Reads the text of --processors, "64" or "4..1024"; NULL: all processors of the system. ERR_ARGUMENT: another text. */
bppsa_status bppsa_oracle_processors_parse(const char *text, const bppsa_oracle_system *system, int64_t *first, int64_t *last);
/* Returns how many times longer a processor computes if `processors` compute on average: 1 for one, a level's slowdown for all of
 * its processors, and values on straight lines in between. */
double bppsa_oracle_system_slowdown(const bppsa_oracle_system *system, double processors);
/* Returns the same at an end of the levels' spreads. */
double bppsa_oracle_slowdown_at(const bppsa_oracle_system *system, double processors, bppsa_oracle_end end);

#ifdef __cplusplus
}
#endif
#endif
