#include "oracle/spread.h"

#include <stdio.h>

#include "oracle/members.h"

bool bppsa_oracle_spread_known(bppsa_oracle_spread spread) {
  return spread.high > 0;
}

double bppsa_oracle_spread_at(bppsa_oracle_spread spread, double middle, bppsa_oracle_end end) {
  const bool moved = end != BPPSA_END_MIDDLE && bppsa_oracle_spread_known(spread);
  return !moved ? middle : end == BPPSA_END_LOW ? spread.low : spread.high;
}

bppsa_oracle_spread bppsa_oracle_spread_factors(bppsa_oracle_spread spread, double middle) {
  return middle > 0 && bppsa_oracle_spread_known(spread) ? (bppsa_oracle_spread){spread.low / middle, spread.high / middle}
                                                         : (bppsa_oracle_spread){0, 0};
}

bppsa_oracle_spread bppsa_oracle_spread_join(bppsa_oracle_spread a, bppsa_oracle_spread b) {
  if (!bppsa_oracle_spread_known(a) || !bppsa_oracle_spread_known(b)) {
    return bppsa_oracle_spread_known(a) ? a : b;
  }
  return (bppsa_oracle_spread){a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high};
}

bppsa_status bppsa_oracle_spread_parse(const char *where, const json_t *object, size_t count,
                                       const bppsa_oracle_spread_member *members) {
  const json_t *spread = json_object_get(object, "spread");
  const char *names[BPPSA_ORACLE_MOST_SPREADS + 1] = {NULL};
  char what[200];
  if (spread == NULL) {
    return BPPSA_OK;
  }
  for (size_t i = 0; i < count; ++i) {
    names[i] = members[i].name;
  }
  snprintf(what, sizeof what, "%.150s: \"spread\"", where);
  BPPSA_TRY(bppsa_oracle_known(what, spread, names));
  for (size_t i = 0; i < count; ++i) {
    const json_t *pair = json_object_get(spread, members[i].name), *low = json_array_get(pair, 0),
                 *high = json_array_get(pair, 1);
    const bppsa_oracle_spread read = {json_number_value(low), json_number_value(high)};
    const bool numbers = json_is_number(low) && json_is_number(high) && json_array_size(pair) == 2;
    if (pair != NULL && members[i].middle < 0) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\": the spread of a time that is missing, expected the time too", what,
                        members[i].name);
    }
    const bool positive = members[i].seconds ? read.low >= 0 : read.low > 0;
    if (pair != NULL &&
        (!numbers || !positive || read.high > 1e6 || read.low > members[i].middle || read.high < members[i].middle)) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\": expected two numbers %s 0 and up to 1e6, with %g between them", what,
                        members[i].name, members[i].seconds ? "from" : "above", members[i].middle);
    }
    *members[i].spread = pair != NULL ? read : *members[i].spread;
  }
  return BPPSA_OK;
}

json_t *bppsa_oracle_spread_json(bppsa_oracle_spread spread) {
  json_t *pair = json_array();
  bool ok = pair != NULL && json_array_append_new(pair, bppsa_json_real(spread.low)) == 0;
  ok = ok && json_array_append_new(pair, bppsa_json_real(spread.high)) == 0;
  return bppsa_json_finish(pair, ok);
}

bool bppsa_oracle_spread_put(json_t *object, size_t count, const bppsa_oracle_spread_member *members) {
  json_t *spread = json_object();
  bool ok = spread != NULL, any = false;
  for (size_t i = 0; ok && i < count; ++i) {
    if (bppsa_oracle_spread_known(*members[i].spread)) {
      ok = bppsa_json_put(spread, members[i].name, bppsa_oracle_spread_json(*members[i].spread));
      any = true;
    }
  }
  if (!ok || !any) {
    json_decref(spread);
    return ok;
  }
  return bppsa_json_put(object, "spread", spread);
}
