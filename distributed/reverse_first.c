#include "distributed/reverse_first.h"

#include <math.h>

/* The number of layers whose weight gradients can be put off. */
static bppsa_status count_layers(bppsa_model *model, int64_t *layers) {
  int64_t all = 0, parameters = -1;
  BPPSA_TRY(bppsa_model_delay(model, INT64_MAX, &all));
  for (int64_t k = 0; parameters < all; ++k) {
    BPPSA_TRY(bppsa_model_delay(model, k, &parameters));
    *layers = k;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_reverse_first_begin(bppsa_model *model, int64_t wanted, bppsa_reverse_first *search) {
  bppsa_reverse_first made = {.k = wanted > 0 ? wanted : 0, .running = wanted < 0};
  if (made.running) {
    int64_t layers = 0;
    BPPSA_TRY(count_layers(model, &layers));
    made.count = layers + 1 < BPPSA_REVERSE_FIRST_MOST ? layers + 1 : BPPSA_REVERSE_FIRST_MOST;
    for (int64_t i = 0; i < made.count; ++i) {
      made.candidates[i] = made.count > 1 ? i * layers / (made.count - 1) : 0;
      made.seconds[i] = (double)INFINITY;
    }
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
    const bppsa_view view = bppsa_view_make(s->seconds, BPPSA_F64, 1, &s->count);
    BPPSA_TRY(bppsa_comm_allreduce(comm, BPPSA_COMM_MAX, &view));
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
