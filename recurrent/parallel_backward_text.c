/* Plans of backward passes in words and as JSON (recurrent/parallel_backward.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/decimal.h"
#include "core/files/json.h"
#include "recurrent/parallel_backward.h"

#define PATH " path + "      /* behind the cost of a path, in front of that of the work */
#define WORK " work up to 1" /* behind it */

static bool is_known(const bppsa_backward_cost *c) {
  return c->fixed > 0 || c->path > 0 || c->work > 0;
}

const char *bppsa_backward_plan_text(const bppsa_backward_plan *plan, char *text, size_t size) {
  if (!plan->speculative) {
    (void)bppsa_print(text, size, "%s", bppsa_backward_name(BPPSA_BACKWARD_BP));
    return text;
  }
  (void)bppsa_print(text, size, "%s, %" PRId64 " chunks, warm-up %" PRId64 ", %" PRId64 " rounds, tolerance %g",
                    bppsa_backward_name(BPPSA_BACKWARD_SPECULATIVE), plan->chunks, plan->warm_up, plan->rounds, plan->accept);
  const size_t used = strlen(text);
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

/* Reads a speculative plan's text. */
static bool read_speculative(const char *text, bppsa_backward_method *method) {
  bppsa_backward_plan p;
  int used = 0;
  const char *name = bppsa_backward_name(BPPSA_BACKWARD_SPECULATIVE);
  if (strncmp(text, name, strlen(name)) != 0 ||
      sscanf(text + strlen(name), ", %" SCNd64 " chunks, warm-up %" SCNd64 ", %" SCNd64 " rounds, tolerance %n", &p.chunks,
             &p.warm_up, &p.rounds, &used) != 3 ||
      used == 0 || p.chunks < 2 || p.warm_up < 0) {
    return false;
  }
  const char *tolerance = text + strlen(name) + used, *cost = strstr(tolerance, ", ");
  char *end = NULL;
  p.accept = bppsa_read_real(tolerance, &end);
  if (end == tolerance || !(p.accept > 0) || (cost != NULL ? end != cost || !read_cost(cost + 2, &method->cost) : *end != '\0')) {
    return false;
  }
  method->chunks = method->chunks > 0 ? method->chunks : p.chunks;
  method->warm_up = method->warm_up >= 0 ? method->warm_up : p.warm_up;
  return true;
}

bppsa_status bppsa_backward_plan_read(const char *text, bppsa_backward_method *method) {
  BPPSA_REQUIRE(text != NULL && method != NULL);
  bppsa_backward_method read = *method;
  read.cost = (bppsa_backward_cost){0};
  if (text[0] == '\0' || strcmp(text, bppsa_backward_name(BPPSA_BACKWARD_BP)) == 0) {
    read.chunks = 1;
  } else if (!read_speculative(text, &read)) {
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "backward pass '%s', expected bp, or speculative with numbers of chunks, warm-up, rounds and tolerance",
                      text);
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
  ok = ok && bppsa_json_put_integer(object, "rounds", plan->rounds);
  ok = ok && bppsa_json_put_real(object, "accept", plan->accept);
  ok = ok && bppsa_json_put_real(object, "stop", plan->stop);
  bool filled = cost != NULL && bppsa_json_put_real(cost, "fixed", plan->cost.fixed);
  filled = filled && bppsa_json_put_real(cost, "path", plan->cost.path);
  filled = filled && bppsa_json_put_real(cost, "work", plan->cost.work);
  cost = bppsa_json_finish(cost, filled);
  return bppsa_json_finish(object, bppsa_json_put(object, "cost", cost) && ok);
}
