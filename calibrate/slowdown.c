#include "calibrate/slowdown.h"

#include <inttypes.h>
#include <math.h>

enum { LEAST = 6, MOST = 31 };

typedef struct {
  const bppsa_slowdown_measuring *how;
  double alone_s[MOST];
  int64_t rounds;
  double spent_s;
} session;

static bppsa_status make_round(void *context, double *slowdown) {
  session *s = context;
  double alone = 0, together = 0;
  BPPSA_TRY(s->how->time(s->how->context, 1, &alone));
  BPPSA_TRY(s->how->time(s->how->context, s->how->ranks, &together));
  s->alone_s[s->rounds++] = alone;
  s->spent_s += alone + together;
  *slowdown = alone > 0 ? fmax(1, together / alone) : 1;
  return BPPSA_OK;
}

/* Decides whether another round is needed. All ranks have the same times, so they agree. */
static bool go_on(void *context, const bppsa_spread *so_far) {
  const session *s = context;
  if (s->how->progress != NULL) {
    bppsa_progress_show(s->how->progress, "layers on %" PRId64 " ranks: round %" PRId64 ", %.2f times as long (%.2f to %.2f)",
                        s->how->ranks, so_far->samples, so_far->median, so_far->low, so_far->high);
  }
  return s->spent_s < s->how->budget_s;
}

bppsa_status bppsa_slowdown_measure(const bppsa_slowdown_measuring *how, bppsa_slowdown *found) {
  session s = {.how = how};
  bppsa_slowdown made;
  const bppsa_sampling sampling = {
      .within = 0.1, .least = LEAST, .most = how->quick ? LEAST : MOST, .take = make_round, .go_on = go_on, .context = &s};
  BPPSA_TRY(bppsa_spread_measure(&sampling, &made.slowdown));
  made.alone_s = bppsa_spread_of(s.rounds, s.alone_s);
  *found = made;
  return BPPSA_OK;
}
