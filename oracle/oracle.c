#include "oracle/oracle.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "oracle/strategies.h"
#include "schedule/schedule.h"
#include "train/line.h"

#define WEAK(name) bppsa_oracle_##name##_limit, bppsa_oracle_##name, false, NULL
#define STRONG(name) bppsa_oracle_##name##_limit, bppsa_oracle_##name, true, NULL
#define TAKING(name, option) bppsa_oracle_##name##_limit, bppsa_oracle_##name, false, option

static const bppsa_oracle_strategy strategies[] = {
    {"serial", "one processor", STRONG(serial)},
    {"data", "samples cut over p, gradients added by an allreduce", WEAK(data)},
    {"spatial", "images cut over p, borders exchanged", WEAK(spatial)},
    {"filter", "output channels cut over p, an allgather a layer", STRONG(filter)},
    {"channel", "input channels cut over p, an allreduce a layer", STRONG(channel)},
    {"data+filter", "filter in groups of p2, data between groups", TAKING(data_filter, "--group")},
    {"data+spatial", "spatial in groups of p2, data between groups", TAKING(data_spatial, "--group")},
    {"pipeline", "layers cut into p stages, ParaDL's formula", TAKING(pipeline, "--micro-batches")},
    /* schemes of schedule/, under their ids */
    {"model-parallel", "layers cut into p stages, one at a time, simulated", WEAK(scheme)},
    {"gpipe", "the same, micro-batches one behind the other", WEAK(scheme)},
    {"1f1b", "the same, forward and backward passes in turn", WEAK(scheme)},
    {"interleaved", "1f1b with several stages on each processor", WEAK(scheme)},
    {"zb-h1", "1f1b with weight gradients in the bubbles", WEAK(scheme)},
    {"fast-forward", "gpipe with input gradients in front of weight gradients", WEAK(scheme)},
    {"modulo", "fast-forward with layer l on processor l mod p", WEAK(scheme)},
    {"gems", "two replicas in opposite directions", WEAK(scheme)},
    {"chimera", "two pipelines in opposite directions", WEAK(scheme)},
    {"pipedream", "no flush, stashed weights", WEAK(scheme)},
    {"vanilla", "no flush, the latest weights", WEAK(scheme)},
    {"2bw", "no flush, two versions of the weights", WEAK(scheme)},
    {"spectrain", "no flush, predicted weights", WEAK(scheme)},
    {"time-bp", "a recurrent layer's steps cut over p, backward pass by BP", STRONG(time_bp)},
    {"time-chunked", "the same, by a chunked scan", STRONG(time_chunked)},
    {"time-blelloch", "the same, by a Blelloch scan", STRONG(time_blelloch)},
};
enum { STRATEGIES = sizeof strategies / sizeof strategies[0], SERIAL = 0 };

const bppsa_oracle_strategy *bppsa_oracle_strategy_at(int64_t i) {
  return i < STRATEGIES ? &strategies[i] : NULL;
}

const char *bppsa_oracle_phase_name(int32_t phase) {
  static const char *const names[BPPSA_PHASE_COUNT] = {"forward",     "backward", "update",         "gradient_exchange",
                                                       "collectives", "halo",     "point_to_point", "wait"};
  return phase >= 0 && phase < BPPSA_PHASE_COUNT ? names[phase] : NULL;
}

bppsa_oracle_query bppsa_oracle_query_default(const bppsa_oracle_model *model, const bppsa_oracle_system *system) {
  return (bppsa_oracle_query){.model = model,
                              .system = system,
                              .batch = 32,
                              .samples = model->samples,
                              .item_bytes = 4,
                              .chunks = 2,
                              .memory_reuse = system->memory_reuse};
}

/* ---- rows ---- */

bool bppsa_oracle_spreads(const bppsa_oracle_query *q) {
  bool found = bppsa_oracle_has_spread(q->system);
  for (int phase = BPPSA_PHASE_FORWARD; phase <= BPPSA_PHASE_UPDATE && !found; ++phase) {
    found = bppsa_oracle_spread_known(bppsa_oracle_model_spread(q, (bppsa_oracle_phase)phase));
  }
  for (int64_t i = 0; i < q->model->share_count && !found; ++i) {
    const bppsa_oracle_share *share = &q->model->shares[i];
    found = bppsa_oracle_spread_known(share->forward_spread) || bppsa_oracle_spread_known(share->backward_spread) ||
            bppsa_oracle_spread_known(share->update_spread) || bppsa_oracle_spread_known(share->exchange_spread);
  }
  return found;
}

/* Returns the factors by which a phase that sends spreads: those of all operations that it may consist of, joined. */
static bppsa_oracle_spread traffic_spread(const bppsa_oracle_query *q, const bppsa_oracle_row *row, bppsa_oracle_phase phase) {
  const bppsa_oracle_operation sum =
      q->collective == BPPSA_COLLECTIVE_ORDERED ? BPPSA_OPERATION_ORDERED_SUM : BPPSA_OPERATION_ALLREDUCE;
  const bppsa_oracle_operation operations[BPPSA_PHASE_COUNT][2] = {
      [BPPSA_PHASE_GRADIENT_EXCHANGE] = {sum, sum},
      [BPPSA_PHASE_COLLECTIVES] = {sum, BPPSA_OPERATION_ALLGATHER},
      [BPPSA_PHASE_HALO] = {BPPSA_OPERATION_POINT_TO_POINT, BPPSA_OPERATION_POINT_TO_POINT},
      [BPPSA_PHASE_POINT_TO_POINT] = {BPPSA_OPERATION_POINT_TO_POINT, BPPSA_OPERATION_STAGE_MESSAGE}};
  return bppsa_oracle_spread_join(bppsa_oracle_operation_spread(q->system, row->processors, operations[phase][0]),
                                  bppsa_oracle_operation_spread(q->system, row->processors, operations[phase][1]));
}

/* Returns the factors by which a phase's time spreads: those of its own measurement, else of the model's layers, else of the
 * system. Waiting spreads like the passes that are waited for. */
static bppsa_oracle_spread phase_spread(const bppsa_oracle_query *q, const bppsa_oracle_row *row, bppsa_oracle_phase phase) {
  if (phase == BPPSA_PHASE_WAIT) {
    return bppsa_oracle_spread_join(phase_spread(q, row, BPPSA_PHASE_FORWARD), phase_spread(q, row, BPPSA_PHASE_BACKWARD));
  }
  const bppsa_oracle_spread own = bppsa_oracle_spread_factors(row->phase_spread_s[phase], row->phase_s[phase]);
  if (bppsa_oracle_spread_known(own)) {
    return own;
  }
  if (phase > BPPSA_PHASE_UPDATE) {
    return traffic_spread(q, row, phase);
  }
  const bppsa_oracle_spread layers = bppsa_oracle_model_spread(q, phase);
  return bppsa_oracle_spread_known(layers) ? layers : q->system->layer_spread;
}

/* Sets the range of every phase. */
static void set_ends(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  bppsa_oracle_spread ends[BPPSA_PHASE_COUNT];
  row->side_by_side = row->side_by_side && bppsa_oracle_spread_known(row->phase_spread_s[BPPSA_PHASE_FORWARD]);
  for (int phase = 0; phase < BPPSA_PHASE_COUNT; ++phase) {
    const bppsa_oracle_spread factors = phase_spread(q, row, (bppsa_oracle_phase)phase);
    ends[phase] = (bppsa_oracle_spread){bppsa_oracle_spread_at(factors, 1, BPPSA_END_LOW) * row->phase_s[phase],
                                        bppsa_oracle_spread_at(factors, 1, BPPSA_END_HIGH) * row->phase_s[phase]};
  }
  memcpy(row->phase_spread_s, ends, sizeof ends);
}

double bppsa_oracle_time_at(const bppsa_oracle_query *q, const bppsa_oracle_row *row, bppsa_oracle_end computing,
                            bppsa_oracle_end messages) {
  const double slower = row->side_by_side ? 1 : bppsa_oracle_slowdown_factor(q->system, row->busy, computing);
  double seconds = 0;
  for (int phase = 0; phase < BPPSA_PHASE_COUNT; ++phase) {
    const bool travels = phase > BPPSA_PHASE_UPDATE && phase < BPPSA_PHASE_WAIT;
    const double at = bppsa_oracle_spread_at(row->phase_spread_s[phase], row->phase_s[phase], travels ? messages : computing);
    seconds += travels ? at : at * slower;
  }
  return seconds;
}

static void add_up(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  row->compute_s = row->communication_s = 0;
  for (int phase = 0; phase < BPPSA_PHASE_WAIT; ++phase) {
    *(phase <= BPPSA_PHASE_UPDATE ? &row->compute_s : &row->communication_s) += row->phase_s[phase];
  }
  row->waiting_s = row->phase_s[BPPSA_PHASE_WAIT];
  row->time_s = row->compute_s + row->communication_s + row->waiting_s;
  set_ends(q, row);
  if (bppsa_oracle_spreads(q)) {
    row->spread_s = (bppsa_oracle_spread){bppsa_oracle_time_at(q, row, BPPSA_END_LOW, BPPSA_END_LOW),
                                          bppsa_oracle_time_at(q, row, BPPSA_END_HIGH, BPPSA_END_HIGH)};
  }
  if (row->memory_bytes > q->system->memory_bytes) {
    char needed[BPPSA_SI_TEXT], has[BPPSA_SI_TEXT];
    row->feasible = false;
    snprintf(row->reason, sizeof row->reason, "it needs %s of memory, a processor has %s",
             bppsa_text_si(row->memory_bytes, "B", needed, sizeof needed),
             bppsa_text_si(q->system->memory_bytes, "B", has, sizeof has));
  }
}

/* Lowers the row's limit by the one rule for all strategies: no mini-batch is larger than the data set. */
static void limit_by_samples(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  const int64_t most = !q->strong ? q->samples / q->batch : q->batch <= q->samples ? INT64_MAX : 0;
  if (most < row->limit) {
    row->limit = most;
    snprintf(row->reason, sizeof row->reason,
             "the mini-batch of %" PRId64 " is larger than the %" PRId64 " sample%s of the data set", row->mini_batch, q->samples,
             q->samples == 1 ? "" : "s");
  }
}

static bppsa_status make_row(const bppsa_oracle_query *query, const bppsa_oracle_strategy *strategy, int64_t p,
                             bppsa_oracle_row *row) {
  bppsa_oracle_query at_p = *query;
  const bppsa_oracle_query *q = &at_p;
  at_p.slowdown = bppsa_oracle_system_slowdown(query->system, (double)p);
  at_p.strong = query->strong || strategy->strong;
  *row = (bppsa_oracle_row){.strategy = strategy->name,
                            .processors = p,
                            .groups = 1,
                            .mini_batch = bppsa_mini_batch(q, p),
                            .micro_batches = 1,
                            .compute_s = NAN,
                            .communication_s = NAN,
                            .waiting_s = NAN,
                            .time_s = NAN,
                            .busy = (double)p,
                            .speedup = NAN,
                            .model_s = NAN};
  row->limit = strategy->limit(q, row);
  limit_by_samples(q, row);
  row->feasible = p <= row->limit;
  if (!row->feasible) {
    row->memory_bytes = NAN;
    return BPPSA_OK;
  }
  row->reason[0] = '\0';
  BPPSA_TRY(strategy->project(q, row));
  if (row->feasible) {
    add_up(q, row);
  } else {
    row->memory_bytes = NAN;
  }
  return BPPSA_OK;
}

/* Marks the strategy `name` as asked for. */
static bppsa_status mark(const char *name, bool asked[STRATEGIES]) {
  const char *names[STRATEGIES + 1] = {NULL};
  char hint[96];
  for (int64_t i = 0; i < STRATEGIES; ++i) {
    names[i] = strategies[i].name;
    if (strcmp(name, names[i]) == 0) {
      asked[i] = true;
      return BPPSA_OK;
    }
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "'%s': unknown strategy, expected one that bppsa oracle --list names, or all%s", name,
                    bppsa_suggestion(name, names, hint, sizeof hint));
}

/* Marks the strategies of a list, "data,filter"; NULL: all. */
static bppsa_status mark_list(const char *list, bool asked[STRATEGIES]) {
  for (int64_t i = 0; i < STRATEGIES; ++i) {
    asked[i] = list == NULL;
  }
  while (list != NULL) {
    const char *comma = strchr(list, ',');
    const size_t length = comma != NULL ? (size_t)(comma - list) : strlen(list);
    char name[BPPSA_ORACLE_NAME];
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), list);
    BPPSA_TRY(mark(name, asked));
    list = comma != NULL ? comma + 1 : NULL;
  }
  return BPPSA_OK;
}

static bool takes(const bppsa_oracle_strategy *strategy, const char *option) {
  const bppsa_schedule_scheme *scheme = bppsa_schedule_find(strategy->name);
  return scheme != NULL ? bppsa_schedule_takes(scheme, option + strlen("--"))
                        : strategy->takes != NULL && strcmp(strategy->takes, option) == 0;
}

bppsa_status bppsa_oracle_check_option(const char *list, const char *option) {
  bool asked[STRATEGIES];
  bppsa_line takers = {.length = 0};
  BPPSA_REQUIRE(option != NULL);
  if (mark_list(list, asked) != BPPSA_OK) {
    return BPPSA_OK;
  }
  for (int64_t i = 0; i < STRATEGIES; ++i) {
    if (takes(&strategies[i], option)) {
      if (asked[i]) {
        return BPPSA_OK;
      }
      bppsa_line_add(&takers, "%s%s", takers.length > 0 ? ", " : "", strategies[i].name);
    }
  }
  if (takers.length == 0) { /* no strategy refuses it */
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given for %s, expected a strategy that takes it: %s", option, list, takers.text);
}

static bppsa_status check(const bppsa_oracle_query *q, int64_t first, int64_t last) {
  const int64_t most = bppsa_oracle_system_processors(q->system);
  if (first < 1 || first > last || last > most) {
    char range[48];
    snprintf(range, sizeof range, first == last ? "%" PRId64 : "%" PRId64 "..%" PRId64, first, last);
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--processors: %s, expected 1 to the %" PRId64 " of %s%s", range, most, q->system->name,
                      first > last ? ", the smaller number first" : "");
  }
  if (q->batch < 1 || q->batch > INT64_MAX / 4 / last || q->samples < 1 || q->item_bytes < 1 || q->group < 0 ||
      q->micro_batches < 0 || q->chunks < 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "batch %" PRId64 ", samples %" PRId64 ", expected 1 or more, and products below 2^61",
                      q->batch, q->samples);
  }
  return BPPSA_OK;
}

/* Returns the number of processors after p: twice as many, and at the end `last`. */
static int64_t next(int64_t p, int64_t last) {
  return p < last && p > last / 2 ? last : 2 * p;
}

int64_t bppsa_oracle_fastest(const bppsa_oracle_rows *rows, int64_t p) {
  int64_t best = -1;
  for (int64_t i = 0; i < rows->count; ++i) {
    const bppsa_oracle_row *row = &rows->rows[i];
    if (row->processors == p && row->feasible && (best < 0 || row->time_s < rows->rows[best].time_s)) {
      best = i;
    }
  }
  return best;
}

/* Returns the row's time at the given ends. If the time was measured for this strategy alone, it has an end of its own: it may be
 * fast while all others are slow. */
static double time_if(const bppsa_oracle_query *q, const bppsa_oracle_row *row, bppsa_oracle_end own, bppsa_oracle_end computing,
                      bppsa_oracle_end messages) {
  return bppsa_oracle_time_at(q, row, row->side_by_side ? own : computing, messages);
}

bool bppsa_oracle_may_be_fastest(const bppsa_oracle_query *q, const bppsa_oracle_rows *rows, int64_t i) {
  static const bppsa_oracle_end ends[] = {BPPSA_END_LOW, BPPSA_END_MIDDLE, BPPSA_END_HIGH};
  enum { ENDS = sizeof ends / sizeof ends[0] };
  const bppsa_oracle_row *row = &rows->rows[i];
  bool leads = false;
  for (int pair = 0; pair < ENDS * ENDS && row->feasible && !leads; ++pair) {
    const bppsa_oracle_end computing = ends[pair % ENDS], messages = ends[pair / ENDS];
    const double time = time_if(q, row, BPPSA_END_LOW, computing, messages);
    leads = true;
    for (int64_t k = 0; k < rows->count && leads; ++k) {
      const bppsa_oracle_row *other = &rows->rows[k];
      leads = k == i || other->processors != row->processors || !other->feasible ||
              time <= time_if(q, other, BPPSA_END_HIGH, computing, messages);
    }
  }
  return leads;
}

/* Sets the speed-ups of all rows over serial, which is one processor that takes mini-batches of b. */
static bppsa_status add_speedups(const bppsa_oracle_query *query, bppsa_oracle_rows *rows) {
  bppsa_oracle_row serial;
  BPPSA_TRY(make_row(query, &strategies[SERIAL], 1, &serial));
  for (int64_t i = 0; i < rows->count; ++i) {
    bppsa_oracle_row *row = &rows->rows[i];
    row->speedup = row->time_s > 0 ? serial.time_s / row->time_s : (double)NAN;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_oracle_ask(const bppsa_oracle_query *query, const char *list, int64_t first, int64_t last,
                              bppsa_oracle_rows *rows) {
  int64_t sizes = 0;
  bool asked[STRATEGIES];
  BPPSA_TRY(check(query, first, last));
  BPPSA_TRY(mark_list(list, asked));
  for (int64_t p = first; p <= last; p = next(p, last)) {
    ++sizes;
  }
  bppsa_oracle_rows made = {.rows = bppsa_calloc(STRATEGIES * sizes, sizeof *made.rows), .best = -1};
  bppsa_status status = made.rows == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int64_t i = 0; i < STRATEGIES; ++i) {
    for (int64_t p = first; asked[i] && p <= last && status == BPPSA_OK; p = next(p, last)) {
      status = make_row(query, &strategies[i], p, &made.rows[made.count++]);
    }
  }
  status = status == BPPSA_OK ? add_speedups(query, &made) : status;
  if (status != BPPSA_OK) {
    bppsa_oracle_rows_free(&made);
    return status;
  }
  made.best = bppsa_oracle_fastest(&made, last);
  *rows = made;
  return BPPSA_OK;
}

void bppsa_oracle_rows_free(bppsa_oracle_rows *rows) {
  bppsa_free(rows->rows);
  *rows = (bppsa_oracle_rows){.best = -1};
}
