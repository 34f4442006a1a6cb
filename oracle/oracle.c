#include "oracle/oracle.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "oracle/strategies.h"

#define WEAK(name) bppsa_oracle_##name##_limit, bppsa_oracle_##name, false
#define STRONG(name) bppsa_oracle_##name##_limit, bppsa_oracle_##name, true
#define SIMULATED WEAK(simulated)
#define MIRRORED bppsa_oracle_simulated_limit, bppsa_oracle_mirrored, false

static const bppsa_oracle_strategy strategies[] = {
    {"serial", "one processor", STRONG(serial)},
    {"data", "samples cut over p, gradients added by an allreduce", WEAK(data)},
    {"spatial", "images cut over p, borders exchanged", WEAK(spatial)},
    {"filter", "output channels cut over p, an allgather a layer", STRONG(filter)},
    {"channel", "input channels cut over p, an allreduce a layer", STRONG(channel)},
    {"data+filter", "filter in groups of p2, data between groups", WEAK(data_filter)},
    {"data+spatial", "spatial in groups of p2, data between groups", WEAK(data_spatial)},
    {"pipeline", "layers cut into p stages, ParaDL's formula", WEAK(pipeline)},
    /* Schemes of schedule/, under their ids. */
    {"model-parallel", "layers cut into p stages, one at a time, simulated", SIMULATED},
    {"gpipe", "the same, micro-batches one behind the other", SIMULATED},
    {"1f1b", "the same, forward and backward passes in turn", SIMULATED},
    {"interleaved", "1f1b with several stages on each processor", WEAK(interleaved)},
    {"zb-h1", "1f1b with weight gradients in the bubbles", SIMULATED},
    {"fast-forward", "gpipe with input gradients in front of weight gradients", SIMULATED},
    {"modulo", "fast-forward with layer l on processor l mod p", WEAK(modulo)},
    {"gems", "two replicas in opposite directions", MIRRORED},
    {"chimera", "two pipelines in opposite directions", MIRRORED},
    {"pipedream", "no flush, stashed weights", SIMULATED},
    {"vanilla", "no flush, the latest weights", SIMULATED},
    {"2bw", "no flush, two versions of the weights", SIMULATED},
    {"spectrain", "no flush, predicted weights", SIMULATED},
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

double bppsa_oracle_time_at(const bppsa_oracle_query *q, const bppsa_oracle_row *row, bppsa_oracle_end computing,
                            bppsa_oracle_end messages) {
  return bppsa_oracle_compute_factor(q->system, row->busy, computing) * (row->compute_s + row->waiting_s) +
         bppsa_oracle_message_factor(q->system, row->processors, messages) * row->communication_s;
}

static void add_up(const bppsa_oracle_query *q, bppsa_oracle_row *row) {
  row->compute_s = row->communication_s = 0;
  for (int phase = 0; phase < BPPSA_PHASE_WAIT; ++phase) {
    *(phase <= BPPSA_PHASE_UPDATE ? &row->compute_s : &row->communication_s) += row->phase_s[phase];
  }
  row->waiting_s = row->phase_s[BPPSA_PHASE_WAIT];
  row->time_s = row->compute_s + row->communication_s + row->waiting_s;
  if (bppsa_oracle_has_spread(q->system)) {
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

/* No mini-batch is larger than the data set: the one rule of all strategies. Lowers the limit to what it leaves. */
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
  row->limit = strategy->limit(q, p, row->reason);
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

/* Marks the strategy `name`. */
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

/* Marks the strategies of a list with commas; NULL: all. */
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

/* p, then twice that, ...; `last` ends the row. */
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

bool bppsa_oracle_may_be_fastest(const bppsa_oracle_query *q, const bppsa_oracle_rows *rows, int64_t i) {
  static const bppsa_oracle_end ends[] = {BPPSA_END_LOW, BPPSA_END_HIGH};
  const bppsa_oracle_row *row = &rows->rows[i];
  bool leads = false;
  for (int corner = 0; corner < 4 && row->feasible && !leads; ++corner) {
    const bppsa_oracle_end computing = ends[corner % 2], messages = ends[corner / 2];
    const double time = bppsa_oracle_time_at(q, row, computing, messages);
    leads = true;
    for (int64_t k = 0; k < rows->count && leads; ++k) {
      const bppsa_oracle_row *other = &rows->rows[k];
      leads =
          other->processors != row->processors || !other->feasible || time <= bppsa_oracle_time_at(q, other, computing, messages);
    }
  }
  return leads;
}

/* Speed-ups of all rows over serial: one processor that has mini-batches of b. */
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
