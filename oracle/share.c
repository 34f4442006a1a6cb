#include "oracle/share.h"

#include <stddef.h>
#include <string.h>

#include "oracle/members.h"

/* The members of the object, and where their numbers are in a share. */
static const struct {
  const char *name;
  size_t at;
  double low, high;
  bool whole;
} numbers[] = {{"ways", offsetof(bppsa_oracle_share, ways), 1, 1e9, true},
               {"ranks", offsetof(bppsa_oracle_share, ranks), 1, 1e9, true},
               {"forward_s", offsetof(bppsa_oracle_share, forward_s), 0, 1e9, false},
               {"backward_s", offsetof(bppsa_oracle_share, backward_s), 0, 1e9, false},
               {"update_s", offsetof(bppsa_oracle_share, update_s), 0, 1e9, false},
               {"exchange_s", offsetof(bppsa_oracle_share, exchange_s), 0, 1e9, false},
               {"allgathers", offsetof(bppsa_oracle_share, allgathers), 0, 1e9, true},
               {"sums", offsetof(bppsa_oracle_share, sums), 0, 1e9, true},
               {"messages", offsetof(bppsa_oracle_share, messages), 0, 1e9, true},
               {"allgather_bytes", offsetof(bppsa_oracle_share, allgather_bytes), 0, 1e18, false},
               {"sum_bytes", offsetof(bppsa_oracle_share, sum_bytes), 0, 1e18, false},
               {"message_bytes", offsetof(bppsa_oracle_share, message_bytes), 0, 1e18, false},
               {"tile_gradient_bytes", offsetof(bppsa_oracle_share, tile_gradient_bytes), 0, 1e18, false},
               {"weight_gradient_bytes", offsetof(bppsa_oracle_share, weight_gradient_bytes), 0, 1e18, false}};
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

static double *number_of(bppsa_oracle_share *share, int i) {
  return (double *)(void *)((char *)share + numbers[i].at);
}

enum { SPREADS = 4 };

static void list_spreads(bppsa_oracle_share *share, bppsa_oracle_spread_member members[SPREADS]) {
  const bppsa_oracle_spread_member list[SPREADS] = {{"forward_s", share->forward_s, &share->forward_spread, true},
                                                    {"backward_s", share->backward_s, &share->backward_spread, true},
                                                    {"update_s", share->update_s, &share->update_spread, true},
                                                    {"exchange_s", share->exchange_s, &share->exchange_spread, true}};
  memcpy(members, list, sizeof list);
}

bppsa_status bppsa_oracle_share_parse(const char *where, const json_t *object, bppsa_oracle_share *share) {
  const char *names[NUMBERS + 3] = {"strategy"};
  bppsa_oracle_spread_member spreads[SPREADS];
  bppsa_oracle_member members[NUMBERS];
  bppsa_oracle_share made = {.ways = -1};
  for (int i = 0; i < NUMBERS; ++i) {
    names[1 + i] = numbers[i].name;
    *number_of(&made, i) = -1;
    members[i] = (bppsa_oracle_member){numbers[i].name, number_of(&made, i), numbers[i].low, numbers[i].high, numbers[i].whole};
  }
  names[1 + NUMBERS] = "spread";
  BPPSA_TRY(bppsa_oracle_known(where, object, names));
  BPPSA_TRY(bppsa_oracle_text(where, object, "strategy", sizeof made.strategy, made.strategy));
  BPPSA_TRY(bppsa_oracle_numbers(where, object, NUMBERS, members));
  for (int i = 0; i < NUMBERS; ++i) {
    if (*number_of(&made, i) < 0) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\" missing, expected a number from %g", where, numbers[i].name,
                        numbers[i].low);
    }
  }
  list_spreads(&made, spreads);
  BPPSA_TRY(bppsa_oracle_spread_parse(where, object, SPREADS, spreads));
  *share = made;
  return BPPSA_OK;
}

json_t *bppsa_oracle_share_json(const bppsa_oracle_share *share) {
  bppsa_oracle_share copy = *share;
  bppsa_oracle_spread_member spreads[SPREADS];
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "strategy", share->strategy);
  for (int i = 0; ok && i < NUMBERS; ++i) {
    ok = bppsa_json_put_real(object, numbers[i].name, *number_of(&copy, i));
  }
  list_spreads(&copy, spreads);
  return bppsa_json_finish(object, ok && bppsa_oracle_spread_put(object, SPREADS, spreads));
}
