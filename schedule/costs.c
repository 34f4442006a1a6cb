/* Reads and writes files of costs: {"samples": 8, "forward": 1, "weight_grad": [1, 2, ...], ..., "alpha": 0.1, "beta": 0.01,
 * "profile": {...}}. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/text.h"
#include "core/files/json.h"
#include "schedule/timed.h"

/* The numbers of the link, which are members of a configuration. */
static const struct {
  const char *name;
  size_t offset;
} links[] = {{"alpha", offsetof(bppsa_schedule_config, alpha)}, {"beta", offsetof(bppsa_schedule_config, beta)}};
enum { LINKS = sizeof links / sizeof links[0] };
static const char SAMPLES[] = "samples";
#define RANGE "0 or more and at most 1e15" /* BPPSA_SCHEDULE_MOST_COST */
#define NUMBER "a number, " RANGE

static bppsa_status wrong_number(const char *path, const char *key, int64_t row, const json_t *value) {
  char text[BPPSA_JSON_FOUND];
  const char *found = bppsa_json_found(value, text);
  return row < 0 ? bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s: %s, expected " NUMBER ", or an array of them", path, key, found)
                 : bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s, row %" PRId64 ": %s, expected " NUMBER, path, key, row, found);
}

static bool good_number(const json_t *value) {
  const double number = json_is_number(value) ? json_number_value(value) : -1;
  return number >= 0 && number <= BPPSA_SCHEDULE_MOST_COST;
}

/* Reads an array of any length; bppsa_schedule_check_rows checks the length. */
static bppsa_status take_array(const char *path, const char *key, const json_t *rows, double **made) {
  const int64_t count = (int64_t)json_array_size(rows);
  double *costs = bppsa_calloc(count, sizeof *costs);
  if (costs == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t row = 0; row < count; ++row) {
    const json_t *value = json_array_get(rows, (size_t)row);
    if (!good_number(value)) {
      bppsa_free(costs);
      return wrong_number(path, key, row, value);
    }
    costs[row] = json_number_value(value);
  }
  *made = costs;
  return BPPSA_OK;
}

/* Reads a table of numbers row by row: [regions] if `columns` is 0, otherwise [regions][columns]. */
static bppsa_status take_table(const char *path, const char *key, const json_t *rows, int64_t regions, int64_t columns,
                               double *table) {
  const int64_t wide = columns > 0 ? columns : 1;
  for (int64_t i = 0; i < regions * wide; ++i) {
    const json_t *row = json_array_get(rows, (size_t)(i / wide));
    const json_t *value = columns == 0 ? row : json_array_get(row, (size_t)(i % wide));
    if (!good_number(value) || (columns > 0 && (int64_t)json_array_size(row) != columns)) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: profile, %s, row %" PRId64 ": expected %s%" PRId64 " number%s, " RANGE, path, key,
                        i / wide, columns > 0 ? "an array of " : "", wide, wide > 1 ? "s" : "");
    }
    table[i] = json_number_value(value);
  }
  return BPPSA_OK;
}

/* Reads Algorithm 1's profile: {"main": [R], "sub": [R][L], "speedup": [R][L]}. */
static bppsa_status take_profile(const char *path, const json_t *profile, bppsa_schedule_config *c, double *tables[3]) {
  static const char *const keys[] = {"main", "sub", "speedup"};
  const int64_t regions = (int64_t)json_array_size(json_object_get(profile, "main")),
                layers = (int64_t)json_array_size(json_array_get(json_object_get(profile, "sub"), 0));
  if (regions < 1 || layers < 1 || json_object_size(profile) != 3) {
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s: profile: %" PRId64 " regions of %" PRId64 " layers, expected main [R], sub [R][L] and speedup [R][L]",
                      path, regions, layers);
  }
  for (int i = 0; i < 3; ++i) {
    const json_t *rows = json_object_get(profile, keys[i]);
    const int64_t columns = i == 0 ? 0 : layers;
    if ((int64_t)json_array_size(rows) != regions) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: profile, %s: %zu rows, expected %" PRId64 ", one for each region", path, keys[i],
                        json_array_size(rows), regions);
    }
    tables[i] = bppsa_calloc(regions * (columns > 0 ? columns : 1), sizeof *tables[i]);
    BPPSA_TRY(tables[i] != NULL ? take_table(path, keys[i], rows, regions, columns, tables[i]) : BPPSA_ERR_MEMORY);
  }
  c->profile =
      (bppsa_schedule_profile){.regions = regions, .layers = layers, .main = tables[0], .sub = tables[1], .speedup = tables[2]};
  return BPPSA_OK;
}

/* Refuses an unknown key. The message suggests a known one. */
static bppsa_status unknown_key(const char *path, const char *key) {
  const char *names[BPPSA_COST_COUNT + LINKS + 2] = {NULL};
  char hint[96];
  for (int i = 0; i < BPPSA_COST_COUNT; ++i) {
    names[i] = bppsa_schedule_cost_name(i);
  }
  for (int i = 0; i < LINKS; ++i) {
    names[BPPSA_COST_COUNT + i] = links[i].name;
  }
  names[BPPSA_COST_COUNT + LINKS] = SAMPLES;
  return bppsa_fail(BPPSA_ERR_FORMAT, "%s: unknown key '%.40s', expected forward, input_grad, weight_grad, ...%s", path, key,
                    bppsa_suggestion(key, names, hint, sizeof hint));
}

/* Takes a number of the link. *taken becomes whether the key names one. */
static bppsa_status take_link(const char *path, const char *key, const json_t *value, bppsa_schedule_config *c, bool *taken) {
  *taken = false;
  for (int i = 0; i < LINKS; ++i) {
    if (strcmp(key, links[i].name) == 0) {
      *taken = true;
      if (!good_number(value)) {
        char found[BPPSA_JSON_FOUND];
        return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s: %s, expected " NUMBER, path, key, bppsa_json_found(value, found));
      }
      *(double *)((char *)c + links[i].offset) = json_number_value(value);
    }
  }
  return BPPSA_OK;
}

/* Takes the size of the micro-batches. */
static bppsa_status take_samples(const char *path, const json_t *value, bppsa_schedule_config *c) {
  c->samples = json_integer_value(value); /* 0 if it is not an integer */
  char found[BPPSA_JSON_FOUND];
  return c->samples > 0 ? BPPSA_OK
                        : bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s: %s, expected a whole number, 1 or more: of a micro-batch", path,
                                     SAMPLES, bppsa_json_found(value, found));
}

static bppsa_status take_costs(const char *path, const json_t *document, bppsa_schedule_config *c, double *costs[]) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)document, key, value) {
    int cost = 0;
    bool taken;
    BPPSA_TRY(take_link(path, key, value, c, &taken));
    if (taken) {
      continue;
    }
    if (strcmp(key, SAMPLES) == 0) {
      BPPSA_TRY(take_samples(path, value, c));
      continue;
    }
    if (strcmp(key, "profile") == 0) {
      BPPSA_TRY(take_profile(path, value, c, &costs[BPPSA_COST_COUNT]));
      continue;
    }
    while (cost < BPPSA_COST_COUNT && strcmp(key, bppsa_schedule_cost_name(cost)) != 0) {
      ++cost;
    }
    if (cost == BPPSA_COST_COUNT) {
      return unknown_key(path, key);
    }
    if (json_is_array(value) && cost < BPPSA_COST_PRODUCT) {
      BPPSA_TRY(take_array(path, key, value, &costs[cost]));
      c->cost[cost] = costs[cost];
      c->rows[cost] = (int64_t)json_array_size(value);
    } else if (good_number(value)) {
      c->uniform[cost] = json_number_value(value);
    } else {
      return wrong_number(path, key, -1, value);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_schedule_costs_load(const char *path, bppsa_schedule_config *config, double *costs[]) {
  json_t *document = NULL;
  BPPSA_TRY(bppsa_json_load(path, &document));
  const bppsa_status status = json_is_object(document)
                                  ? take_costs(path, document, config, costs)
                                  : bppsa_fail(BPPSA_ERR_FORMAT, "%s: no object, expected {\"forward\": ..., ...}", path);
  json_decref(document);
  return status;
}

bppsa_status bppsa_schedule_costs_write(const bppsa_schedule_config *config, bppsa_text *text) {
  const char *before = "{";
  if (config->samples > 0) {
    bppsa_text_add(text, "{\n  \"%s\": %" PRId64, SAMPLES, config->samples);
    before = ",";
  }
  for (int cost = 0; cost < BPPSA_COST_COUNT; ++cost) {
    if (config->cost[cost] == NULL) {
      continue;
    }
    bppsa_text_add(text, "%s\n  \"%s\": [", before, bppsa_schedule_cost_name(cost));
    before = ",";
    for (int64_t row = 0; row < config->rows[cost]; ++row) {
      bppsa_text_add(text, "%s", row > 0 ? ", " : "");
      bppsa_text_add_real(text, config->cost[cost][row]);
    }
    bppsa_text_add(text, "]");
  }
  for (int i = 0; i < LINKS; ++i) {
    bppsa_text_add(text, "%s\n  \"%s\": ", before, links[i].name);
    bppsa_text_add_real(text, *(const double *)((const char *)config + links[i].offset));
    before = ",";
  }
  bppsa_text_add(text, "\n}\n");
  return bppsa_text_check(text);
}
