/* Questions to the oracle, for its tests. */
#ifndef BPPSA_TESTS_ORACLE_ASK_H
#define BPPSA_TESTS_ORACLE_ASK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "oracle/oracle.h"

/* D = 100. FW = 1 + 4 ms, BW = 2 + 5 ms, WU = 3 + 6 ms; sum |w| = 288, sum |bi| = 10; |x| + |y| = 384 + 640 = 1024. */
static const char two_layers[] __attribute__((unused)) =
    "{\"name\": \"two\", \"samples\": 100, \"layers\": ["
    "{\"name\": \"a\", \"kind\": \"conv\", \"in\": [2, 8, 8], \"out\": [4, 8, 8], \"kernel\": [3, 3], \"w\": 72, \"bias\": 4,"
    " \"forward_s\": 1e-3, \"backward_s\": 2e-3, \"update_s\": 3e-3},"
    "{\"name\": \"b\", \"kind\": \"conv\", \"in\": [4, 8, 8], \"out\": [6, 8, 8], \"kernel\": [3, 3], \"w\": 216, \"bias\": 6,"
    " \"forward_s\": 4e-3, \"backward_s\": 5e-3, \"update_s\": 6e-3}]}";

/* alpha = 1e-4 s, beta = 1e-6 s a byte, 1 MFLOP/s, nothing is reused. */
static const char plain[] __attribute__((unused)) =
    "{\"name\": \"plain\", \"peak_flops\": 1e6, \"memory_bytes\": 1e9, \"memory_reuse\": 1, \"levels\": ["
    "{\"name\": \"all\", \"processors\": 64, \"alpha_s\": 1e-4, \"bandwidth\": 1e6}]}";

typedef struct {
  bppsa_oracle_model model;
  bppsa_oracle_system system;
  bppsa_oracle_query query;
} asked;

static inline asked parse(const char *model, const char *system, int64_t batch) {
  asked a = {.query = {.batch = 0}};
  json_t *document = NULL;
  assert_int_equal(bppsa_json_parse("model", model, (int64_t)strlen(model), &document), BPPSA_OK);
  assert_int_equal(bppsa_oracle_model_parse("model", document, &a.model), BPPSA_OK);
  json_decref(document);
  assert_int_equal(bppsa_json_parse("system", system, (int64_t)strlen(system), &document), BPPSA_OK);
  assert_int_equal(bppsa_oracle_system_parse("system", document, &a.system), BPPSA_OK);
  json_decref(document);
  a.query = bppsa_oracle_query_default(&a.model, &a.system);
  a.query.batch = batch;
  a.query.strong = true;
  a.query.collective = BPPSA_COLLECTIVE_RING;
  return a;
}

static inline asked named(const char *model, const char *system, int64_t batch) {
  asked a = {.query = {.batch = 0}};
  assert_int_equal(bppsa_oracle_model_open(model, &a.model), BPPSA_OK);
  assert_int_equal(bppsa_oracle_system_open(system, &a.system), BPPSA_OK);
  a.query = bppsa_oracle_query_default(&a.model, &a.system);
  a.query.batch = batch;
  return a;
}

/* The one row of a strategy at p. */
static inline bppsa_oracle_row row_of(asked *a, const char *strategy, int64_t p) {
  bppsa_oracle_rows rows;
  a->query.model = &a->model;
  a->query.system = &a->system;
  const bppsa_status status = bppsa_oracle_ask(&a->query, strategy, p, p, &rows);
  if (status != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  assert_int_equal(rows.count, 1);
  const bppsa_oracle_row row = rows.rows[0];
  bppsa_oracle_rows_free(&rows);
  return row;
}

static inline void near(double found, double expected) {
  if (!(fabs(found - expected) <= 1e-12 * fmax(1, fabs(expected)))) {
    fail_msg("%.17g, expected %.17g", found, expected);
  }
}

static inline double sum_of(const bppsa_oracle_row *row) {
  double sum = 0;
  for (int phase = 0; phase < BPPSA_PHASE_COUNT; ++phase) {
    sum += row->phase_s[phase];
  }
  return sum;
}

static inline void check_waiting(const bppsa_oracle_row *row, double compute, double communication, double waiting, double memory,
                                 int64_t limit) {
  assert_true(row->feasible);
  near(row->compute_s, compute);
  near(row->communication_s, communication);
  near(row->waiting_s, waiting);
  near(row->time_s, compute + communication + waiting);
  near(sum_of(row), compute + communication + waiting);
  near(row->memory_bytes, memory);
  assert_int_equal(row->limit, limit);
}

/* Compares a row in which no processor waits. */
static inline void check(const bppsa_oracle_row *row, double compute, double communication, double memory, int64_t limit) {
  check_waiting(row, compute, communication, 0, memory, limit);
}

/* One share of a model that ranks share; wants "ways" and "ranks" as texts. */
#define SHARE(strategy, ways, ranks)                                                                                             \
  "{\"strategy\": \"" strategy "\", \"ways\": " ways ", \"ranks\": " ranks                                                       \
  ", \"forward_s\": 1e-3, \"backward_s\": 2e-3, \"update_s\": 3e-3, \"exchange_s\": 7e-3, \"allgathers\": 2, \"sums\": 3, "      \
  "\"messages\": 4,"                                                                                                             \
  " \"allgather_bytes\": 100, \"sum_bytes\": 300, \"message_bytes\": 400, \"tile_gradient_bytes\": 500,"                         \
  " \"weight_gradient_bytes\": 600}"

#endif
