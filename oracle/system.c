#include "oracle/system.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/text.h"
#include "oracle/members.h"

/* ParaDL's cluster (section 5.1): a node has 4 V100 joined by NVLink with 20 GB/s; a rack has 17 nodes, each on two InfiniBand
 * links of 12.5 GB/s that its four GPUs share; racks are joined with 1:3 oversubscription. The paper gives no start-up times:
 * these are assumptions, and so are the efficiencies. phi = 2 is what the paper's data + filter projection uses (section 5.2). */
#define LEVEL(name_, processors_, alpha, beta, phi)                                                                              \
  { .name = name_, .processors = (processors_), .alpha_s = (alpha), .beta_s = (beta), .contention = (phi), .slowdown = 1 }
static const struct {
  const char *summary;
  bppsa_oracle_system system;
} systems[] = {
    {"ParaDL's cluster: nodes of 4 V100 16 GB, 17 nodes a rack",
     {.name = "paradl-v100",
      .peak_flops = 15.7e12,
      .efficiency = 0.5,
      .memory_bandwidth = 900e9,
      .memory_bytes = 16e9,
      .memory_reuse = 0.5,
      .count = 3,
      .levels = {LEVEL("node", 4, 5e-6, 1 / 20e9, 1), LEVEL("rack", 68, 1e-5, 1 / 25e9, 2),
                 LEVEL("cluster", 1088, 2e-5, 3 / 25e9, 2)}}},
    {"nodes of 8 H100 80 GB, NVLink 4, eight InfiniBand NDR links a node",
     {.name = "dgx-h100",
      .peak_flops = 67e12,
      .efficiency = 0.5,
      .memory_bandwidth = 3350e9,
      .memory_bytes = 80e9,
      .memory_reuse = 0.5,
      .count = 3,
      .levels = {LEVEL("node", 8, 3e-6, 1 / 450e9, 1), LEVEL("pod", 256, 8e-6, 1 / 50e9, 1),
                 LEVEL("cluster", 1 << 20, 15e-6, 1 / 50e9, 1)}}},
    {"one node of 4 H200 141 GB, NVLink 4",
     {.name = "h200x4",
      .peak_flops = 67e12,
      .efficiency = 0.5,
      .memory_bandwidth = 4800e9,
      .memory_bytes = 141e9,
      .memory_reuse = 0.5,
      .count = 1,
      .levels = {LEVEL("node", 4, 3e-6, 1 / 450e9, 1)}}},
};

const char *bppsa_oracle_system_name(int64_t i) {
  return i < (int64_t)(sizeof systems / sizeof systems[0]) ? systems[i].system.name : NULL;
}

const char *bppsa_oracle_system_summary(int64_t i) {
  return i < (int64_t)(sizeof systems / sizeof systems[0]) ? systems[i].summary : NULL;
}

const bppsa_oracle_level *bppsa_oracle_system_level(const bppsa_oracle_system *system, int64_t processors) {
  int64_t level = 0;
  while (level + 1 < system->count && system->levels[level].processors < processors) {
    ++level;
  }
  return &system->levels[level];
}

int64_t bppsa_oracle_system_processors(const bppsa_oracle_system *system) {
  return system->levels[system->count - 1].processors;
}

bppsa_status bppsa_oracle_processors_parse(const char *text, const bppsa_oracle_system *system, int64_t *first, int64_t *last) {
  char rest = 0;
  long long a = bppsa_oracle_system_processors(system), b = a;
  if (text != NULL && sscanf(text, "%18lld..%18lld%c", &a, &b, &rest) != 2) {
    if (sscanf(text, "%18lld%c", &a, &rest) != 1) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "--processors: '%s', expected a number, or two as 4..1024", text);
    }
    b = a;
  }
  *first = a;
  *last = b;
  return BPPSA_OK;
}

double bppsa_oracle_slowdown_at(const bppsa_oracle_system *system, double processors, bppsa_oracle_end end) {
  double from = 1, slowdown = 1;
  for (int64_t i = 0; i < system->count; ++i) {
    const bppsa_oracle_level *level = &system->levels[i];
    const double to = (double)level->processors, middle = level->slowdown > 0 ? level->slowdown : 1;
    const double here = bppsa_oracle_spread_at(level->slowdown_spread, middle, end);
    if (processors <= from) {
      return slowdown;
    }
    if (processors <= to) {
      return slowdown + (here - slowdown) * (processors - from) / (to - from);
    }
    from = to;
    slowdown = here;
  }
  return slowdown;
}

double bppsa_oracle_system_slowdown(const bppsa_oracle_system *system, double processors) {
  return bppsa_oracle_slowdown_at(system, processors, BPPSA_END_MIDDLE);
}

static const char *const operations[] = {"point_to_point", "allreduce",      "ordered_sum",
                                         "allgather",      "reduce_scatter", "stage_message"};

const char *bppsa_oracle_operation_name(int32_t operation) {
  return operation >= 0 && operation < BPPSA_OPERATIONS ? operations[operation] : NULL;
}

/* ---- files ---- */

/* Reads the two numbers of a link from an object that may have other members too. */
static bppsa_status read_link(const char *where, const json_t *object, bppsa_link *link) {
  double alpha = -1, bandwidth = 0;
  const bppsa_oracle_member members[] = {{"alpha_s", &alpha, 0, 1e6, false}, {"bandwidth", &bandwidth, 1e-3, 1e18, false}};
  BPPSA_TRY(bppsa_oracle_numbers(where, object, 2, members));
  if (alpha < 0 || bandwidth <= 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\" missing, expected %s", where, alpha < 0 ? "alpha_s" : "bandwidth",
                      alpha < 0 ? "the seconds that a message takes to start" : "bytes a second between two processors");
  }
  *link = (bppsa_link){alpha, 1 / bandwidth};
  return BPPSA_OK;
}

static bppsa_status read_operations(const char *where, const json_t *object, bppsa_oracle_level *level) {
  static const char *const names[] = {"alpha_s", "bandwidth", NULL};
  for (int i = 0; i < BPPSA_OPERATIONS; ++i) {
    const json_t *own = json_object_get(object, operations[i]);
    char what[200];
    snprintf(what, sizeof what, "%s: \"%s\"", where, operations[i]);
    if (own != NULL) {
      BPPSA_TRY(bppsa_oracle_known(what, own, names));
      BPPSA_TRY(read_link(what, own, &level->own[i]));
    }
  }
  return BPPSA_OK;
}

enum { LEVEL_SPREADS = 2 + BPPSA_OPERATIONS, SYSTEM_SPREADS = 1 + BPPSA_PRODUCTS };
_Static_assert((int)LEVEL_SPREADS <= (int)BPPSA_ORACLE_MOST_SPREADS, "a place for each member");

/* Lists the members of a level's "spread". */
static void list_level_spreads(bppsa_oracle_level *level, bppsa_oracle_spread_member members[LEVEL_SPREADS]) {
  members[0] = (bppsa_oracle_spread_member){"slowdown", level->slowdown, &level->slowdown_spread, false};
  members[1] = (bppsa_oracle_spread_member){"messages", 1, &level->message_spread, false};
  for (int i = 0; i < BPPSA_OPERATIONS; ++i) {
    members[2 + i] = (bppsa_oracle_spread_member){operations[i], 1, &level->own_spread[i], false};
  }
}

/* Lists the members of the system's "spread". */
static void list_system_spreads(bppsa_oracle_system *system, bppsa_oracle_spread_member members[SYSTEM_SPREADS]) {
  members[0] = (bppsa_oracle_spread_member){"layers", 1, &system->layer_spread, false};
  for (int i = 0; i < BPPSA_PRODUCTS; ++i) {
    members[1 + i] = (bppsa_oracle_spread_member){bppsa_oracle_product_name(i), 1, &system->product_spread[i], false};
  }
}

static bppsa_status read_level(const char *where, const json_t *object, int64_t inside, bppsa_oracle_level *level) {
  static const char *const names[] = {"name",           "processors",     "alpha_s",   "bandwidth",   "contention",
                                      "slowdown",       "point_to_point", "allreduce", "ordered_sum", "allgather",
                                      "reduce_scatter", "stage_message",  "spread",    NULL};
  double processors = 0;
  bppsa_link link = {0};
  *level = (bppsa_oracle_level){.contention = 1, .slowdown = 1};
  const bppsa_oracle_member members[] = {{"processors", &processors, 1, BPPSA_ORACLE_MOST_PROCESSORS, true},
                                         {"contention", &level->contention, 1, 1e6, false},
                                         {"slowdown", &level->slowdown, 1, 1e6, false}};
  BPPSA_TRY(bppsa_oracle_known(where, object, names));
  BPPSA_TRY(bppsa_oracle_text(where, object, "name", BPPSA_ORACLE_NAME, level->name));
  BPPSA_TRY(bppsa_oracle_numbers(where, object, sizeof members / sizeof members[0], members));
  BPPSA_TRY(read_link(where, object, &link));
  BPPSA_TRY(read_operations(where, object, level));
  bppsa_oracle_spread_member spreads[LEVEL_SPREADS];
  list_level_spreads(level, spreads);
  BPPSA_TRY(bppsa_oracle_spread_parse(where, object, LEVEL_SPREADS, spreads));
  level->processors = (int64_t)processors;
  level->alpha_s = link.alpha_s;
  level->beta_s = link.beta_s;
  if (level->processors <= inside) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"processors\": %" PRId64 ", expected more than the %" PRId64 " inside it", where,
                      level->processors, inside);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_oracle_system_parse(const char *where, const json_t *document, bppsa_oracle_system *system) {
  static const char *const names[] = {"name",   "peak_flops", "efficiency", "memory_bandwidth", "memory_bytes", "memory_reuse",
                                      "levels", "products",   "measured",   "layer_times",      "fits",         "product_fits",
                                      "spread", NULL};
  bppsa_oracle_system made = {.efficiency = 1, .memory_reuse = 0.5};
  const bppsa_oracle_member members[] = {{"peak_flops", &made.peak_flops, 1, 1e24, false},
                                         {"efficiency", &made.efficiency, 1e-6, 1, false},
                                         {"memory_bandwidth", &made.memory_bandwidth, 0, 1e18, false},
                                         {"memory_bytes", &made.memory_bytes, 1, 1e18, false},
                                         {"memory_reuse", &made.memory_reuse, 1e-3, 1, false}};
  BPPSA_TRY(bppsa_oracle_known(where, document, names));
  BPPSA_TRY(bppsa_oracle_text(where, document, "name", BPPSA_ORACLE_NAME, made.name));
  BPPSA_TRY(bppsa_oracle_numbers(where, document, sizeof members / sizeof members[0], members));
  if (made.peak_flops <= 0 || made.memory_bytes <= 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\" missing, expected a number above 0", where,
                      made.peak_flops <= 0 ? "peak_flops" : "memory_bytes");
  }
  if (made.memory_bandwidth > 0 && made.memory_bandwidth < 1) { /* with less, times would not be numbers */
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"memory_bandwidth\": %g, expected 0 (no limit) or 1 to 1e+18 bytes a second", where,
                      made.memory_bandwidth);
  }
  BPPSA_TRY(bppsa_oracle_products_parse(where, json_object_get(document, "products"), made.products));
  bppsa_oracle_spread_member spreads[SYSTEM_SPREADS];
  list_system_spreads(&made, spreads);
  BPPSA_TRY(bppsa_oracle_spread_parse(where, document, SYSTEM_SPREADS, spreads));
  const json_t *levels = json_object_get(document, "levels");
  made.count = (int64_t)json_array_size(levels);
  if (made.count < 1 || made.count > BPPSA_ORACLE_MOST_LEVELS) {
    char found[BPPSA_JSON_FOUND];
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"levels\": %s, expected a list of 1 to %d levels", where,
                      bppsa_json_found(levels, found), BPPSA_ORACLE_MOST_LEVELS);
  }
  for (int64_t i = 0; i < made.count; ++i) {
    char what[160];
    snprintf(what, sizeof what, "%.100s: level %" PRId64, where, i);
    BPPSA_TRY(read_level(what, json_array_get(levels, (size_t)i), i > 0 ? made.levels[i - 1].processors : 0, &made.levels[i]));
  }
  *system = made;
  return BPPSA_OK;
}

static bool put_link(json_t *object, bppsa_link link) {
  return object != NULL && bppsa_json_put_real(object, "alpha_s", link.alpha_s) &&
         bppsa_json_put_real(object, "bandwidth", 1 / link.beta_s);
}

static json_t *level_json(const bppsa_oracle_level *level) {
  bppsa_oracle_level copy = *level;
  bppsa_oracle_spread_member spreads[LEVEL_SPREADS];
  list_level_spreads(&copy, spreads);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "name", level->name);
  ok = ok && bppsa_json_put_integer(object, "processors", level->processors);
  ok = ok && put_link(object, (bppsa_link){level->alpha_s, level->beta_s});
  ok = ok && bppsa_json_put_real(object, "contention", level->contention);
  ok = ok && bppsa_json_put_real(object, "slowdown", level->slowdown > 0 ? level->slowdown : 1);
  for (int i = 0; ok && i < BPPSA_OPERATIONS; ++i) {
    json_t *own = level->own[i].beta_s > 0 ? json_object() : NULL;
    ok = level->own[i].beta_s <= 0 || bppsa_json_put(object, operations[i], bppsa_json_finish(own, put_link(own, level->own[i])));
  }
  return bppsa_json_finish(object, ok && bppsa_oracle_spread_put(object, LEVEL_SPREADS, spreads));
}

json_t *bppsa_oracle_system_json(const bppsa_oracle_system *system) {
  json_t *object = json_object(), *levels = json_array();
  bool ok = object != NULL && levels != NULL;
  for (int64_t i = 0; ok && i < system->count; ++i) {
    ok = json_array_append_new(levels, level_json(&system->levels[i])) == 0;
  }
  ok = ok && bppsa_json_put_text(object, "name", system->name) && bppsa_json_put_real(object, "peak_flops", system->peak_flops);
  ok = ok && bppsa_json_put_real(object, "efficiency", system->efficiency);
  ok = ok && bppsa_json_put_real(object, "memory_bandwidth", system->memory_bandwidth);
  ok = ok && bppsa_json_put_real(object, "memory_bytes", system->memory_bytes);
  ok = ok && bppsa_json_put_real(object, "memory_reuse", system->memory_reuse);
  ok = ok && (!bppsa_oracle_product_measured(&system->products[0]) ||
              bppsa_json_put(object, "products", bppsa_oracle_products_json(system->products)));
  bppsa_oracle_system copy = *system;
  bppsa_oracle_spread_member spreads[SYSTEM_SPREADS];
  list_system_spreads(&copy, spreads);
  ok = ok && bppsa_oracle_spread_put(object, SYSTEM_SPREADS, spreads);
  if (!ok) {
    json_decref(levels);
    return bppsa_json_finish(object, false);
  }
  return bppsa_json_finish(object, bppsa_json_put(object, "levels", levels));
}

bppsa_status bppsa_oracle_system_open(const char *name, bppsa_oracle_system *system) {
  const char *names[sizeof systems / sizeof systems[0] + 2] = {NULL};
  char hint[96];
  if (bppsa_oracle_is_file(name)) {
    json_t *document = NULL;
    BPPSA_TRY(bppsa_input_status(bppsa_json_load(name, &document)));
    const bppsa_status status = bppsa_oracle_system_parse(name, document, system);
    json_decref(document);
    return status;
  }
  for (size_t i = 0; i < sizeof systems / sizeof systems[0]; ++i) {
    names[i] = systems[i].system.name;
    if (strcmp(name, names[i]) == 0) {
      *system = systems[i].system;
      return BPPSA_OK;
    }
  }
  if (strcmp(name, BPPSA_ORACLE_THIS_MACHINE) == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "%s: nothing was measured, expected a file .json, which bppsa calibrate --out writes of this machine",
                      name);
  }
  names[sizeof systems / sizeof systems[0]] = BPPSA_ORACLE_THIS_MACHINE;
  return bppsa_fail(
      BPPSA_ERR_ARGUMENT,
      "'%s': unknown system, expected one that bppsa oracle --list names, or a file .json, which bppsa calibrate --out writes of "
      "this machine%s",
      name, bppsa_suggestion(name, names, hint, sizeof hint));
}
