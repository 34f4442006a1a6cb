/* Plans of backward passes in words and as JSON (recurrent/parallel_backward.h). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/decimal.h"
#include "core/files/json.h"
#include "recurrent/parallel_backward.h"

#define SPECULATIVE "speculative" /* bppsa_backward_name(BPPSA_BACKWARD_SPECULATIVE) */
#define AT_FIRST " at first"      /* of a warm-up that adapts */
#define PATH " path + "           /* behind the cost of a path, in front of that of the work */
#define WORK " work up to 1"      /* behind it */
#define SCAN ", or scan, "        /* in front of a scan's chunks */
#define CHUNKS " chunks"          /* behind them */

static bool is_known(const bppsa_backward_cost *c) {
  return c->fixed > 0 || c->path > 0 || c->work > 0;
}

const char *bppsa_backward_plan_text(const bppsa_backward_plan *plan, char *text, size_t size) {
  char tolerance[BPPSA_NUMBER_TEXT];
  if (!plan->speculative) {
    (void)bppsa_print(text, size, "%s", bppsa_backward_name(BPPSA_BACKWARD_BP));
    return text;
  }
  int digits = 6;
  do { /* plans that differ have texts that differ */
    (void)bppsa_print(tolerance, sizeof tolerance, "%.*g", digits, plan->accept);
  } while (bppsa_read_real(tolerance, NULL) != plan->accept && ++digits <= 17);
  (void)bppsa_print(text, size, SPECULATIVE ", %" PRId64 " chunks, warm-up %" PRId64 "%s, %" PRId64 " rounds, tolerance %s",
                    plan->chunks, plan->warm_up, plan->adapts ? AT_FIRST : "", plan->rounds, tolerance);
  size_t used = strlen(text);
  if (plan->scan_chunks > 1) {
    (void)bppsa_print(text + used, size - used, SCAN "%" PRId64 CHUNKS, plan->scan_chunks);
    used = strlen(text);
  }
  if (is_known(&plan->cost)) {
    (void)bppsa_print(text + used, size - used, ", %.3f + %.3f" PATH "%.3f" WORK, plan->cost.fixed, plan->cost.path,
                      plan->cost.work);
  }
  return text;
}

/* Reads a number of 0 or more and the words behind it, and goes on behind them. */
static bool read_part(const char **text, const char *words, double *number) {
  char *end = NULL;
  *number = bppsa_read_real(*text, &end);
  if (end == *text || !(*number >= 0) || strncmp(end, words, strlen(words)) != 0) {
    return false;
  }
  *text = end + strlen(words);
  return true;
}

static bool read_cost(const char *text, bppsa_backward_cost *cost) {
  return read_part(&text, " + ", &cost->fixed) && read_part(&text, PATH, &cost->path) && read_part(&text, WORK, &cost->work) &&
         *text == '\0' && cost->fixed + cost->path + cost->work <= 1e12;
}

/* Reads the chunks of a scan, where the text goes on with them, and goes on behind them. *chunks: 1 where it does not. */
static bool read_scan(const char **text, int64_t *chunks) {
  int length = -1;
  *chunks = 1;
  if (strncmp(*text, SCAN, strlen(SCAN)) != 0) {
    return true;
  }
  (void)sscanf(*text + strlen(SCAN), "%" SCNd64 CHUNKS "%n", chunks, &length);
  *text += length > 0 ? (int)strlen(SCAN) + length : 0;
  return length > 0 && *chunks > 1;
}

/* Reads a speculative plan's text. */
static bool read_speculative(const char *text, bppsa_backward_method *method) {
  int64_t chunks = 0, warm_up = -1;
  int length = 0, more = -1;
  bppsa_backward_cost cost = {0};
  (void)sscanf(text, SPECULATIVE ", %" SCNd64 " chunks, warm-up %" SCNd64 "%n", &chunks, &warm_up, &length);
  const bool adapts = strncmp(text + length, AT_FIRST, strlen(AT_FIRST)) == 0;
  const char *rest = text + length + (adapts ? strlen(AT_FIRST) : 0);
  (void)sscanf(rest, ", %*d rounds, tolerance %n", &more);
  if (chunks < 2 || warm_up < 0 || more < 0) {
    return false;
  }
  char *behind = NULL;
  const double tolerance = bppsa_read_real(rest + more, &behind);
  const char *end = behind;
  int64_t scan_chunks;
  if (end == rest + more || !(tolerance >= 0) || isinf(tolerance) || !read_scan(&end, &scan_chunks) ||
      (*end != '\0' && (strncmp(end, ", ", 2) != 0 || !read_cost(end + 2, &cost)))) {
    return false;
  }
  method->chunks = method->chunks == 0 ? chunks : method->chunks;
  method->warm_up = method->warm_up < 0 && !adapts ? warm_up : method->warm_up;
  method->adapts = method->adapts || adapts;
  method->tolerance = method->tolerance < 0 ? tolerance : method->tolerance;
  method->scan_chunks = method->scan_chunks == 0 ? scan_chunks : method->scan_chunks;
  method->cost = is_known(&method->cost) ? method->cost : cost;
  return true;
}

bppsa_status bppsa_backward_plan_read(const char *text, bppsa_backward_method *method) {
  BPPSA_REQUIRE(text != NULL && method != NULL);
  bppsa_backward_method read = *method;
  if (text[0] == '\0' || strcmp(text, bppsa_backward_name(BPPSA_BACKWARD_BP)) == 0) {
    return BPPSA_OK;
  }
  if (!read_speculative(text, &read)) {
    return bppsa_fail(
        BPPSA_ERR_FORMAT,
        "backward pass '%s', expected bp, or as in '" SPECULATIVE ", 16 chunks, warm-up 40, 8 rounds, tolerance 2.4e-07'", text);
  }
  *method = read;
  return BPPSA_OK;
}

json_t *bppsa_backward_plan_json(const bppsa_backward_plan *plan) {
  json_t *object = json_object(), *cost = plan->speculative ? json_object() : NULL;
  const char *kind = bppsa_backward_name(plan->speculative ? BPPSA_BACKWARD_SPECULATIVE : BPPSA_BACKWARD_BP);
  bool ok = object != NULL && bppsa_json_put_text(object, "kind", kind);
  if (!plan->speculative) {
    return bppsa_json_finish(object, ok);
  }
  ok = ok && bppsa_json_put_integer(object, "chunks", plan->chunks);
  ok = ok && bppsa_json_put_integer(object, "warm_up", plan->warm_up);
  ok = ok && bppsa_json_put_bool(object, "adapts", plan->adapts);
  ok = ok && bppsa_json_put_integer(object, "rounds", plan->rounds);
  ok = ok && bppsa_json_put_integer(object, "scan_chunks", plan->scan_chunks);
  ok = ok && bppsa_json_put_real(object, "accept", plan->accept);
  ok = ok && bppsa_json_put_real(object, "stop", plan->stop);
  bool filled = cost != NULL && bppsa_json_put_real(cost, "fixed", plan->cost.fixed);
  filled = filled && bppsa_json_put_real(cost, "path", plan->cost.path);
  filled = filled && bppsa_json_put_real(cost, "work", plan->cost.work);
  cost = bppsa_json_finish(cost, filled);
  return bppsa_json_finish(object, bppsa_json_put(object, "cost", cost) && ok);
}
