/* Plans and statistics of forward passes in words and as JSON (recurrent/parallel_forward.h). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/decimal.h"
#include "core/files/json.h"
#include "recurrent/parallel_forward.h"

#define CHUNKS ", %" SCNd64 " chunks"
#define ROUNDS ", %" SCNd64 " rounds"
#define PATH ", path up to " /* in front of the longest path, where it is not that of all plans */
#define WORK ", work up to " /* in front of the largest work of a plan that has one */

const char *bppsa_forward_plan_text(const bppsa_forward_plan *plan, char *text, size_t size) {
  if (!plan->speculative) {
    (void)bppsa_print(text, size, "%s", bppsa_forward_name(BPPSA_FORWARD_SEQUENTIAL));
    return text;
  }
  (void)bppsa_print(text, size, "%s, %" PRId64 " chunks, warm-up %" PRId64 ", %" PRId64 " rounds, tolerance %g",
                    bppsa_forward_name(BPPSA_FORWARD_SPECULATIVE), plan->chunks, plan->warm_up, plan->rounds, plan->accept);
  size_t used = strlen(text);
  if (plan->most_path != BPPSA_FORWARD_MOST_PATH) {
    (void)bppsa_print(text + used, size - used, PATH "%.2f", plan->most_path);
    used = strlen(text);
  }
  if (isfinite(plan->most_work)) {
    (void)bppsa_print(text + used, size - used, WORK "%.2f", plan->most_work);
  }
  return text;
}

/* Reads the number behind a mark, which ends the text or is followed by `next`; *value stays where there is no mark. */
static bppsa_status read_most(const char *text, const char *mark, const char *next, double *value) {
  const char *at = strstr(text, mark);
  char *end = NULL;
  if (at == NULL) {
    return BPPSA_OK;
  }
  at += strlen(mark);
  const double read = bppsa_read_real(at, &end);
  if (end == at || !(*end == '\0' || (next != NULL && strncmp(end, next, strlen(next)) == 0)) || !(read > 0) || isinf(read)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "forward pass '%s', expected a number above 0 behind '%s'", text, mark);
  }
  *value = read;
  return BPPSA_OK;
}

/* Reads a count that is open from the part of the text between its commas that `format` describes. */
static void read_open(const char *part, const char *format, int64_t least, int64_t open, int64_t *value) {
  int64_t count;
  if (*value == open && part != NULL && sscanf(part, format, &count) == 1 && count >= least) {
    *value = count;
  }
}

bppsa_status bppsa_forward_plan_read(const char *text, bppsa_forward_method *method) {
  BPPSA_REQUIRE(text != NULL && method != NULL);
  char name[16];
  bppsa_forward_method read = *method;
  read.kind = BPPSA_FORWARD_SEQUENTIAL;
  (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(text, ","), text);
  BPPSA_TRY(name[0] != '\0' ? bppsa_forward_parse(name, &read.kind) : BPPSA_OK);
  const bool speculative = read.kind == BPPSA_FORWARD_SPECULATIVE;
  read.most_work = speculative ? INFINITY : 0;
  read.most_path = speculative ? BPPSA_FORWARD_MOST_PATH : 0;
  const char *chunks = strchr(text, ','), *warm_up = chunks != NULL ? strchr(chunks + 1, ',') : NULL,
             *rounds = warm_up != NULL ? strchr(warm_up + 1, ',') : NULL;
  read_open(chunks, CHUNKS, 1, 0, &read.chunks);
  read_open(rounds, ROUNDS, 0, -1, &read.rounds);
  BPPSA_TRY(read_most(text, PATH, WORK, &read.most_path));
  BPPSA_TRY(read_most(text, WORK, NULL, &read.most_work));
  *method = read;
  return BPPSA_OK;
}

const char *bppsa_forward_stats_text(const bppsa_forward_stats *stats, char *text, size_t size) {
  const double passes = stats->passes > 0 ? (double)stats->passes : 1;
  (void)bppsa_print(
      text, size,
      "%.0f dependent steps of %.0f a pass, %.2f times the work, %" PRId64 " chunks mended, %" PRId64 " tails, largest gap %.2g",
      (double)stats->path / passes, (double)stats->possible / passes, stats->work, stats->mended, stats->tails, stats->gap);
  return text;
}

const char *bppsa_forward_numbers_text(const double *numbers, char *text, size_t size) {
  const bppsa_forward_stats f = bppsa_forward_stats_from(numbers);
  char work[BPPSA_NUMBER_TEXT], gap[BPPSA_NUMBER_TEXT];
  snprintf(text, size,
           "{\"speculated\":%s,\"passes\":%" PRId64 ",\"path\":%" PRId64 ",\"possible\":%" PRId64
           ",\"work\":%s,\"rounds\":%" PRId64 ",\"mended\":%" PRId64 ",\"reseeded\":%" PRId64 ",\"tails\":%" PRId64
           ",\"gap\":%s}",
           f.speculated ? "true" : "false", f.passes, f.path, f.possible, bppsa_print_number(f.work, work), f.rounds, f.mended,
           f.reseeded, f.tails, bppsa_print_number(f.gap, gap));
  return f.passes > 0 ? text : NULL;
}

json_t *bppsa_forward_plan_json(const bppsa_forward_plan *plan) {
  json_t *object = json_object();
  const char *kind = bppsa_forward_name(plan->speculative ? BPPSA_FORWARD_SPECULATIVE : BPPSA_FORWARD_SEQUENTIAL);
  bool ok = object != NULL && bppsa_json_put_text(object, "kind", kind);
  ok = ok && bppsa_json_put_integer(object, "chunks", plan->chunks);
  ok = ok && bppsa_json_put_integer(object, "warm_up", plan->warm_up);
  ok = ok && bppsa_json_put_integer(object, "rounds", plan->rounds);
  ok = ok && bppsa_json_put_real(object, "accept", plan->accept);
  ok = ok && bppsa_json_put_real(object, "stop", plan->stop);
  ok = ok && (isinf(plan->most_work) || bppsa_json_put_real(object, "most_work", plan->most_work));
  ok = ok && (plan->most_path == BPPSA_FORWARD_MOST_PATH || bppsa_json_put_real(object, "most_path", plan->most_path));
  return bppsa_json_finish(object, ok);
}

bool bppsa_forward_stats_put(json_t *object, const bppsa_forward_stats *stats) {
  bool ok = bppsa_json_put_integer(object, "path", stats->path);
  ok = ok && bppsa_json_put_integer(object, "possible", stats->possible);
  ok = ok && bppsa_json_put_real(object, "work", stats->work);
  ok = ok && bppsa_json_put_integer(object, "rounds", stats->rounds);
  ok = ok && bppsa_json_put_integer(object, "mended", stats->mended);
  ok = ok && bppsa_json_put_integer(object, "reseeded", stats->reseeded);
  ok = ok && bppsa_json_put_integer(object, "tails", stats->tails);
  return ok && bppsa_json_put_real(object, "gap", stats->gap);
}

json_t *bppsa_forward_stats_json(const bppsa_forward_stats *stats) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_bool(object, "speculated", stats->speculated);
  ok = ok && bppsa_json_put_integer(object, "passes", stats->passes);
  return bppsa_json_finish(object, ok && bppsa_forward_stats_put(object, stats));
}
