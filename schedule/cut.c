/* Cuts the layers of a model into stages. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "schedule/schedule_internal.h"

/* ---- a cut that is given ---- */

enum { DIGITS = 9 }; /* the most digits of a layer's number */

bppsa_status bppsa_schedule_cut_parse(const char *text, int64_t **cut, int64_t *cuts) {
  BPPSA_REQUIRE(text != NULL && cut != NULL && cuts != NULL);
  int64_t *found = bppsa_alloc((strlen(text) + 1) * sizeof *found), count = 0;
  if (found == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (const char *at = text;; ++at) {
    const size_t digits = strspn(at, "0123456789");
    const char end = at[digits];
    if (digits < 1 || digits > DIGITS || (end != ',' && end != ':' && end != '\0')) {
      bppsa_free(found);
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "'%.60s', expected the first layers of all stages but the first, such as 3,5", text);
    }
    found[count] = 0;
    for (const char *last = at + digits; at < last; ++at) {
      found[count] = 10 * found[count] + (*at - '0');
    }
    ++count;
    if (end == '\0') {
      *cut = found;
      *cuts = count;
      return BPPSA_OK;
    }
  }
}

static bppsa_status check(const bppsa_schedule *list) {
  const bppsa_schedule_config *c = &list->config;
  if ((list->scheme->takes & TAKES_CUT) == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "cut: given for %s, expected a scheme whose stages are neighbouring layers",
                      list->scheme->id);
  }
  if (c->cuts != list->stages - 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "cut: %" PRId64 " layers, expected %" PRId64 ", the first of every stage but the first",
                      c->cuts, list->stages - 1);
  }
  for (int64_t i = 0; i < c->cuts; ++i) {
    const int64_t least = i == 0 ? 1 : c->cut[i - 1] + 1;
    if (c->cut[i] < least || c->cut[i] >= c->layers) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT,
                        "cut: stage %" PRId64 " begins with layer %" PRId64 ", expected %" PRId64 " to %" PRId64, i + 1,
                        c->cut[i], least, c->layers - 1);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_schedule_keep_cut(bppsa_schedule *list) {
  bppsa_schedule_config *c = &list->config;
  if (c->cuts == 0) {
    return BPPSA_OK;
  }
  BPPSA_TRY(check(list));
  list->cut = bppsa_calloc(c->cuts, sizeof *list->cut);
  if (list->cut == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memcpy(list->cut, c->cut, (size_t)c->cuts * sizeof *list->cut);
  c->cut = list->cut;
  return BPPSA_OK;
}

/* ---- a cut by cost ---- */

/* The tables of a search. Entry [p][l] belongs to the best cut of layers 0 .. l - 1 into p + 1 parts. */
typedef struct {
  int64_t layers, parts;
  double *before; /* [l]: cost of layers 0 .. l - 1 */
  double *best;   /* the quantity that the search makes small */
  int64_t *from;  /* where the last part begins */
} search;

static double largest(double a, double b) {
  return fmax(a, b);
}

static double squares(double a, double b) {
  return a + b * b;
}

/* Finds the cuts whose parts have the least combined cost and cost no more than `limit` each. `add` combines the cost of the parts
 * so far with that of one more. */
static void find(search *s, double limit, double (*add)(double so_far, double part)) {
  const int64_t row = s->layers + 1;
  for (int64_t p = 0; p < s->parts; ++p) {
    for (int64_t l = p + 1; l <= s->layers; ++l) {
      double *best = &s->best[p * row + l];
      *best = INFINITY;
      for (int64_t first = p == 0 ? 0 : l - 1; first >= p; --first) { /* larger first parts win ties */
        const double part = s->before[l] - s->before[first];
        if (part > limit || add(0, part) > *best) {
          break; /* longer last parts cost more */
        }
        const double cost = add(p == 0 ? 0 : s->best[(p - 1) * row + first], part);
        if (cost < *best) {
          *best = cost;
          s->from[p * row + l] = first;
        }
      }
    }
  }
}

bppsa_status bppsa_schedule_cut_evenly(int64_t layers, const double *costs, int64_t parts, int64_t *first) {
  BPPSA_REQUIRE(costs != NULL && first != NULL);
  if (parts < 1 || parts > layers) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "cut: %" PRId64 " layers into %" PRId64 " stages, expected at least as many layers",
                      layers, parts);
  }
  search s = {.layers = layers,
              .parts = parts,
              .before = bppsa_calloc(layers + 1, sizeof *s.before),
              .best = bppsa_calloc(parts * (layers + 1), sizeof *s.best),
              .from = bppsa_calloc(parts * (layers + 1), sizeof *s.from)};
  const bool room = s.before != NULL && s.best != NULL && s.from != NULL;
  for (int64_t l = 0; room && l < layers; ++l) {
    s.before[l + 1] = s.before[l] + costs[l];
  }
  if (room) {
    find(&s, INFINITY, largest);
    find(&s, s.best[parts * (layers + 1) - 1], squares);
  }
  for (int64_t p = parts - 1, l = layers; room && p >= 1; --p) {
    l = first[p - 1] = s.from[p * (layers + 1) + l];
  }
  bppsa_free(s.before);
  bppsa_free(s.best);
  bppsa_free(s.from);
  return room ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

bool bppsa_schedule_costs_by_layer(const bppsa_schedule_config *config) {
  static const bppsa_schedule_cost of_passes[] = {BPPSA_COST_FORWARD, BPPSA_COST_INPUT_GRAD, BPPSA_COST_WEIGHT_GRAD,
                                                  BPPSA_COST_BACKWARD};
  bool all = true;
  for (size_t i = 0; i < sizeof of_passes / sizeof *of_passes; ++i) {
    all = all && (config->cost[of_passes[i]] == NULL || config->rows[of_passes[i]] == config->layers);
  }
  return all;
}

/* Cuts the layers by the costs of their forward and backward passes. first: see bppsa_schedule_cut_evenly. */
static bppsa_status cut_passes(const bppsa_schedule_config *c, int64_t stages, int64_t *first) {
  double *costs = bppsa_calloc(c->layers, sizeof *costs);
  if (costs == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t l = 0; l < c->layers; ++l) {
    const double both = bppsa_schedule_cost_of(c, BPPSA_COST_BACKWARD, l);
    const double apart =
        bppsa_schedule_cost_of(c, BPPSA_COST_INPUT_GRAD, l) + bppsa_schedule_cost_of(c, BPPSA_COST_WEIGHT_GRAD, l);
    costs[l] = bppsa_schedule_cost_of(c, BPPSA_COST_FORWARD, l) + (both >= 0 ? both : apart);
  }
  const bppsa_status status = bppsa_schedule_cut_evenly(c->layers, costs, stages, first);
  bppsa_free(costs);
  return status;
}

bppsa_status bppsa_schedule_cut_scheme(const char *scheme, const bppsa_schedule_config *config, int64_t **cut, int64_t *cuts) {
  BPPSA_REQUIRE(scheme != NULL && config != NULL && cut != NULL && cuts != NULL && bppsa_schedule_costs_by_layer(config));
  bppsa_schedule_config one = *config; /* an empty list of this configuration tells the number of stages */
  bppsa_schedule *empty = NULL;
  one.iterations = 1;
  BPPSA_TRY(bppsa_schedule_create_empty(scheme, &one, &empty));
  const int64_t stages = empty->stages;
  const bool neighbours = (empty->scheme->takes & TAKES_CUT) != 0 && stages < empty->config.layers;
  bppsa_schedule_destroy(empty);
  if (!neighbours || stages < 2) {
    *cut = NULL;
    *cuts = 0;
    return BPPSA_OK;
  }
  int64_t *made = bppsa_calloc(stages, sizeof *made);
  const bppsa_status status = made == NULL ? BPPSA_ERR_MEMORY : cut_passes(config, stages, made);
  if (status != BPPSA_OK) {
    bppsa_free(made);
    return status;
  }
  *cut = made;
  *cuts = stages - 1;
  return BPPSA_OK;
}
