#include "bench/cases/ranks_model.h"

#include <math.h>

#include "core/base/alloc.h"
#include "distributed/reduction.h"
#include "schedule/schedule.h"

/* The smallest k with 2^k >= p. */
static double levels_of(double p) {
  double levels = 0;
  for (; p > 1; p /= 2) {
    ++levels;
  }
  return levels;
}

static double message(const bppsa_ranks_costs *c, double bytes) {
  return bppsa_point_to_point_s(c->link, bytes);
}

/* The time of ranks that share processors. alone: seconds of each rank if every rank had its own processor; all: seconds of one
 * rank that does the work of all. */
static double shared(const bppsa_ranks_costs *c, double alone, double all) {
  return fmax(alone, all / c->at_once);
}

/* The time of a level of an ordered sum: messages go up one level of the tree over ranks, broadcasts bring sums down one. */
static double hop(const bppsa_ranks_costs *c, double messages, double bytes) {
  return messages * (c->link.alpha_s + c->collective.alpha_s) + bytes * (c->link.beta_s + c->collective.beta_s);
}

/* ---- along time ---- */

/* q ranks compute a pass of `seconds` one after the other, and m groups of the batch follow each other through them. */
static double pipeline_s(const bppsa_ranks_costs *c, double q, double seconds) {
  const double m = (double)c->micro_batches, slots = q + m - 1;
  return shared(c, slots * seconds / (q * m), seconds) + (q > 1 ? (slots - 1) * message(c, c->vector_bytes / m) : 0);
}

/* A forward pass in parallel over time: the ranks share the work of one rank, but not its chain of dependent steps. After every
 * phase lanes and states go to the next rank, and two small reductions tell all ranks what was done. */
static double parallel_s(const bppsa_ranks_costs *c, double q) {
  const double m = (double)c->micro_batches, numbers = 8 * (5 + 2 * (double)c->batch / m);
  const double between = message(c, c->vector_bytes / m) + 2 * levels_of(q) * hop(c, 1, numbers);
  if (isnan(c->parallel_s)) {
    return (double)NAN;
  }
  return shared(c, fmax(c->parallel_s / q, c->path * c->forward_s), c->parallel_s) + (q > 1 ? m * c->phases * between : 0);
}

/* The time of a layer's scan for messages that wait for each other. When ranks pass gradients on, groups follow each other; a tree
 * finishes one group before the next, and `wide` of its levels carry products. */
static double scan_messages_s(const bppsa_ranks_costs *c, bppsa_scan_algorithm algorithm, double q) {
  const double m = (double)c->micro_batches, vector = message(c, c->vector_bytes / m);
  const double levels = levels_of(q), wide = fmax(0, levels_of(q / 3)), injected = c->injected ? m * vector : 0;
  return q == 1                             ? 0
         : algorithm == BPPSA_SCAN_BLELLOCH ? m * (levels * vector + wide * message(c, c->product_bytes / m)) + injected
                                            : (q + m - 2) * vector + injected;
}

/* The time of a scan over q ranks. Ranks between the first and the last one multiply their steps before the gradient reaches them.
 * The linear scan makes no products: its ranks wait for each other. Weight gradients wait for nothing. */
static double scan_s(const bppsa_ranks_costs *c, bppsa_scan_algorithm algorithm, double q) {
  const double m = (double)c->micro_batches, layers = (double)c->layers, rest = c->backward_s * (1 - c->recurrence);
  const double sweep = c->backward_s - rest + c->scan_s, between = fmax(0, q - 2);
  const double messages = layers * scan_messages_s(c, algorithm, q);
  if (algorithm == BPPSA_SCAN_LINEAR) {
    return shared(c, sweep * (q + m - 1) / (q * m) + rest / q, sweep + rest) + messages;
  }
  const double products = between > 0 ? layers * fmax(0, (double)c->steps / q - 1) * c->product_s : 0;
  return shared(c, fmax(sweep / q, products) + (sweep + rest) / q, between * products + sweep + rest) + messages;
}

double bppsa_ranks_model_time(const bppsa_ranks_costs *c, const bppsa_gradient_method *method, bool parallel, int64_t p) {
  const double q = (double)(p < c->steps ? p : c->steps), forward = parallel ? parallel_s(c, q) : pipeline_s(c, q, c->forward_s),
               sum = levels_of((double)p) * hop(c, 1, c->weight_bytes);
  const bool one = q == 1 && method->scan.algorithm == BPPSA_SCAN_LINEAR; /* a local linear scan is BP */
  if (method->backward == BPPSA_BACKWARD_BP || one) {
    const double sweep = c->backward_s * c->recurrence, rest = c->backward_s - sweep;
    const double extra = (double)(c->layers - 1) * message(c, c->vector_bytes / (double)c->micro_batches);
    return forward + pipeline_s(c, q, sweep) + shared(c, rest / q, rest) + (q > 1 ? extra : 0) + sum;
  }
  const bool local = q == 1 && method->scan.algorithm != BPPSA_SCAN_LINEAR; /* a local scan of all its steps */
  return method->backward == BPPSA_BACKWARD_SCAN && method->scan.algorithm != BPPSA_SCAN_AUTO && !local
             ? forward + scan_s(c, method->scan.algorithm, q) + sum
             : (double)NAN;
}

/* ---- data parallelism ---- */

/* A layer's fraction of the passes' time (by its multiply-adds), its parameters and their bytes. */
typedef struct {
  double work, parameters, bytes;
} layer_part;

static int64_t parts_of(const bppsa_ranks_costs *c, layer_part *parts) {
  int64_t count = 0;
  double all = 0;
  for (int64_t i = 0; c->network != NULL && i < c->network->count; ++i) {
    const bppsa_cnn_layer *layer = &c->network->layers[i];
    if (bppsa_cnn_has_weights(layer)) {
      const double weights = (double)bppsa_op_weights(&layer->op), out = (double)layer->out[0];
      const double pixels = layer->op.kind == BPPSA_OPERATOR_CONV2D ? (double)(layer->out[1] * layer->out[2]) : 1;
      const double biases = layer->bias ? out : 0;
      parts[count++] = (layer_part){weights * pixels, layer->bias ? 2 : 1, weights + biases};
    }
  }
  double numbers = 0;
  for (int64_t i = 0; i < count; ++i) {
    all += parts[i].work;
    numbers += parts[i].bytes;
  }
  for (int64_t i = 0; i < count; ++i) {
    parts[i] = (layer_part){parts[i].work / all, parts[i].parameters, parts[i].bytes / numbers * c->weight_bytes};
  }
  if (count == 0) {
    parts[count++] = (layer_part){1, (double)c->parameters, c->weight_bytes};
  }
  return count;
}

enum { FORWARD, INPUT, WEIGHT, SYNC, COSTS };

/* Fills in the costs of a rank's last block, during whose backward pass gradients travel, for p ranks that share the processors. */
static void fill_costs(const bppsa_ranks_costs *c, int64_t p, int64_t blocks, int64_t count, const layer_part *parts,
                       double *const costs[COSTS]) {
  const double block = fmax(1, (double)p / c->at_once) / (double)blocks;
  for (int64_t l = 0; l < count; ++l) {
    costs[FORWARD][l] = parts[l].work * c->forward_s * block;
    costs[INPUT][l] = costs[WEIGHT][l] = parts[l].work * c->backward_s * block / 2;
    costs[SYNC][l] = p > 1 ? hop(c, parts[l].parameters, parts[l].bytes) : 0;
  }
}

/* The time from the end of the last layer's SYNC to the end of the batch. A parameter goes through the levels of the tree one
 * after the other, and the next parameter follows it. So the last parameter still has to pass all levels but the first, and after
 * it five numbers pass all levels. */
static double drain_s(const bppsa_ranks_costs *c, int64_t p) {
  const double levels = levels_of((double)p), numbers = sizeof(bppsa_data_parallel_sums);
  return p > 1 ? (levels - 1) * hop(c, 1, c->weight_bytes / (double)c->parameters) + levels * hop(c, 1, numbers) : 0;
}

static bppsa_status simulate(const char *scheme, const bppsa_schedule_config *config, double *makespan) {
  bppsa_schedule *schedule = NULL;
  bppsa_schedule_times times;
  BPPSA_TRY(bppsa_schedule_create(scheme, config, &schedule));
  const bppsa_status status = bppsa_schedule_simulate(schedule, &times);
  if (status == BPPSA_OK) {
    *makespan = times.makespan;
    bppsa_schedule_times_free(&times);
  }
  bppsa_schedule_destroy(schedule);
  return status;
}

bppsa_status bppsa_ranks_model_batch(const bppsa_ranks_costs *c, const char *scheme, int64_t reverse, int64_t p, int64_t blocks,
                                     double *seconds) {
  static const bppsa_schedule_cost kinds[COSTS] = {BPPSA_COST_FORWARD, BPPSA_COST_INPUT_GRAD, BPPSA_COST_WEIGHT_GRAD,
                                                   BPPSA_COST_SYNC};
  const int64_t most = c->network != NULL ? c->network->count : 1, own = (blocks - 1) / p; /* blocks before a rank's last one */
  layer_part *parts = bppsa_calloc(most, sizeof *parts);
  double *numbers = bppsa_calloc(COSTS * most, sizeof *numbers), makespan = 0;
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_status status = parts != NULL && numbers != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
  if (status == BPPSA_OK) {
    double *const costs[COSTS] = {numbers, numbers + most, numbers + 2 * most, numbers + 3 * most};
    config.layers = parts_of(c, parts);
    config.stages = p;
    config.micro_batches = 1;
    config.reverse = reverse;
    config.split = BPPSA_SPLIT_IW;
    fill_costs(c, p, blocks, config.layers, parts, costs);
    for (int i = 0; i < COSTS; ++i) {
      config.cost[kinds[i]] = costs[i];
      config.rows[kinds[i]] = config.layers;
    }
    status = simulate(scheme, &config, &makespan);
  }
  bppsa_free(parts);
  bppsa_free(numbers);
  BPPSA_TRY(status);
  *seconds =
      makespan + drain_s(c, p) + (double)own * fmax(1, (double)p / c->at_once) * (c->forward_s + c->backward_s) / (double)blocks;
  return BPPSA_OK;
}
