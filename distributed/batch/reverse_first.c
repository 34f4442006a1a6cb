#include "distributed/batch/reverse_first.h"

#include <inttypes.h>
#include <math.h>

#include "core/base/decimal.h"
#include "distributed/agree.h"

/* Sets the largest k: ranks may have different amounts of memory. */
static bppsa_status find_most(bppsa_comm *comm, bppsa_model *model, bppsa_reverse_first *s) {
  bppsa_delayed delayed;
  BPPSA_TRY(bppsa_model_delay(model, INT64_MAX, &delayed));
  s->most = delayed.layers;
  s->possible = delayed.possible;
  return bppsa_ranks_reduce(comm, BPPSA_COMM_MIN, BPPSA_I64, 1, &s->most);
}

bppsa_status bppsa_reverse_first_begin(bppsa_comm *comm, bppsa_model *model, int64_t wanted, bppsa_reverse_first *search) {
  bppsa_reverse_first made = {.wanted = wanted, .running = wanted < 0};
  BPPSA_TRY(wanted != 0 ? find_most(comm, model, &made) : BPPSA_OK);
  if (made.running) {
    made.count = made.most + 1 < BPPSA_REVERSE_FIRST_MOST ? made.most + 1 : BPPSA_REVERSE_FIRST_MOST;
    for (int64_t i = 0; i < made.count; ++i) {
      made.candidates[i] = made.count > 1 ? i * made.most / (made.count - 1) : 0;
      made.seconds[i] = (double)INFINITY;
    }
  } else {
    made.k = wanted < made.most ? wanted : made.most;
  }
  *search = made;
  return BPPSA_OK;
}

bppsa_status bppsa_reverse_first_measured(bppsa_reverse_first *s, bppsa_comm *comm, double seconds, bool *changed) {
  *changed = false;
  if (!s->running) {
    return BPPSA_OK;
  }
  s->seconds[s->tried] = seconds < s->seconds[s->tried] ? seconds : s->seconds[s->tried];
  s->tried = (s->tried + 1) % s->count;
  s->round += s->tried == 0 ? 1 : 0;
  const int64_t before = s->k;
  if (s->round < BPPSA_REVERSE_FIRST_ROUNDS) {
    s->k = s->candidates[s->tried];
  } else {
    BPPSA_TRY(bppsa_ranks_reduce(comm, BPPSA_COMM_MAX, BPPSA_F64, s->count, s->seconds));
    int64_t best = 0;
    for (int64_t i = 1; i < s->count; ++i) {
      best = s->seconds[i] < s->seconds[best] ? i : best;
    }
    s->k = s->candidates[best];
    s->running = false;
  }
  *changed = s->k != before;
  return BPPSA_OK;
}

const char *bppsa_reverse_first_text(const bppsa_reverse_first *s, char text[BPPSA_REVERSE_FIRST_TEXT]) {
  const bool limited = s->most < s->possible && (s->wanted < 0 || s->wanted > s->most);
  char limit[80] = "", asked[40] = "";
  if (limited) {
    bppsa_print(limit, sizeof limit, ": there is memory for %" PRId64 " of %" PRId64, s->most, s->possible);
  }
  if (s->wanted > s->k) {
    bppsa_print(asked, sizeof asked, ", %" PRId64 " asked for", s->wanted);
  }
  if (s->running) {
    bppsa_print(text, BPPSA_REVERSE_FIRST_TEXT, "0 to %" PRId64 " layers are measured%s", s->most, limit);
    return text;
  }
  int64_t best = 0;
  while (best < s->count && s->candidates[best] != s->k) {
    ++best;
  }
  if (best == s->count) { /* nothing was measured */
    bppsa_print(text, BPPSA_REVERSE_FIRST_TEXT, "%" PRId64 " of %" PRId64 " layers%s%s", s->k, s->possible, asked, limit);
  } else {
    bppsa_print(text, BPPSA_REVERSE_FIRST_TEXT,
                "%" PRId64 " of %" PRId64 " layers, the fastest of 0 to %" PRId64 ": %.4g s a step, %.4g s with 0%s", s->k,
                s->possible, s->most, s->seconds[best], s->seconds[0], limit);
  }
  return text;
}
