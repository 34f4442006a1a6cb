#include "oracle/ends.h"

#include <inttypes.h>

#include "core/base/decimal.h"

bool bppsa_oracle_has_spread(const bppsa_oracle_system *system) {
  bool found = bppsa_oracle_spread_known(system->layer_spread);
  for (int i = 0; i < BPPSA_PRODUCTS; ++i) {
    found = found || bppsa_oracle_spread_known(system->product_spread[i]);
  }
  for (int64_t i = 0; i < system->count; ++i) {
    const bppsa_oracle_level *level = &system->levels[i];
    found = found || bppsa_oracle_spread_known(level->slowdown_spread) || bppsa_oracle_spread_known(level->message_spread);
    for (int k = 0; k < BPPSA_OPERATIONS; ++k) {
      found = found || bppsa_oracle_spread_known(level->own_spread[k]);
    }
  }
  return found;
}

double bppsa_oracle_slowdown_factor(const bppsa_oracle_system *system, double processors, bppsa_oracle_end end) {
  return bppsa_oracle_slowdown_at(system, processors, end) / bppsa_oracle_slowdown_at(system, processors, BPPSA_END_MIDDLE);
}

bppsa_oracle_spread bppsa_oracle_operation_spread(const bppsa_oracle_system *system, int64_t p,
                                                  bppsa_oracle_operation operation) {
  const bppsa_oracle_level *level = bppsa_oracle_system_level(system, p);
  const bppsa_oracle_spread own = level->own_spread[operation];
  return bppsa_oracle_spread_known(own) ? own : level->message_spread;
}

const char *bppsa_oracle_level_warning(const bppsa_oracle_level *level, char text[BPPSA_ORACLE_WARNING]) {
  static const double close = 0.95; /* this share of the processors */
  const double slowest = bppsa_oracle_spread_at(level->slowdown_spread, level->slowdown, BPPSA_END_HIGH);
  text[0] = '\0';
  if (level->processors > 1 && slowest >= close * (double)level->processors) {
    const bool gains = level->slowdown < close * (double)level->processors; /* judged by the median slowdown */
    char end[40] = "";
    if (bppsa_oracle_spread_known(level->slowdown_spread)) {
      bppsa_print(end, sizeof end, ", up to %.2f", slowest);
    }
    bppsa_print(text, BPPSA_ORACLE_WARNING,
                "%" PRId64 " processors at once compute %.2f times as long as one%s: %s; they share one core, or other programs "
                "keep the machine busy",
                level->processors, level->slowdown, end,
                gains ? "they may take as long as one after the other, and gain nothing"
                      : "as long as one after the other, so they gain nothing");
  }
  return text;
}

json_t *bppsa_oracle_warnings_json(const bppsa_oracle_system *system) {
  json_t *list = json_array();
  bool ok = list != NULL;
  char warning[BPPSA_ORACLE_WARNING];
  for (int64_t i = 0; ok && i < system->count; ++i) {
    const char *text = bppsa_oracle_level_warning(&system->levels[i], warning);
    ok = text[0] == '\0' || json_array_append_new(list, json_string(text)) == 0;
  }
  return bppsa_json_finish(list, ok);
}
