/* How the lanes of a parallel forward pass walk on a GPU (recurrent/walk.h): all lanes of a phase together, window by window. The
 * GPU computes a window and compares its states with those stored; the host waits for what it found, and says which lanes go on. */
#include <math.h>

#include "recurrent/walk.h"

enum { SHORTEST = 8 }; /* steps of a mend's first window: most mends end after a few */

typedef bppsa_walk walk;
typedef bppsa_walk_lane lane;

/* Does the lane cross the border where it stops in this part? In the tail a lane that changed the last state of its chunk goes on
 * through the next one. */
static bool may_cross(const walk *w, const lane *l) {
  return l->end >= w->border && w->border < w->n->forward.seq_len && (w->phase == BPPSA_WALK_TAIL || l->end > w->border);
}

/* The step in front of which the lane's next walk stops in this part: a lane that compares does so in front of a reset, since the
 * stored states behind it began anew. */
static int64_t stop_of(const walk *w, const lane *l) {
  const int64_t stop = bppsa_walk_stop(w, l);
  const recurrent_network *n = w->n;
  if (w->phase == BPPSA_WALK_SPECULATE || !n->resets.active) {
    return stop;
  }
  const int64_t reset = bppsa_resets_find(n, w->layer, l->at + 1, stop, l->sample, 1, false);
  return reset >= 0 ? reset : stop;
}

static bppsa_walk_item item_of(const walk *w, const lane *l) {
  bppsa_walk_item item = {.h = l->from.h,
                          .c = l->from.c,
                          .sample = l->sample,
                          .at = l->at - w->first,
                          .begin = bppsa_walk_chunk_begin(w->n, l->chunk) - w->first,
                          .stop = stop_of(w, l) - w->first,
                          .end = l->end - w->first,
                          .since = l->since == BPPSA_SETTLE_NEVER ? l->since : l->since - w->first};
  if (may_cross(w, l)) {
    item.out = bppsa_walk_packed(w, w->n->forward.states_out, bppsa_walk_slot(w, l)).h;
  }
  return item;
}

/* Takes a lane that guesses through a window. Returns true if it goes on. */
static bool settle_guess(const walk *w, int64_t steps, lane *l) {
  const int64_t stop = bppsa_walk_stop(w, l), taken = stop - l->at < steps ? stop - l->at : steps;
  l->steps += taken;
  l->at += taken;
  if (l->at == stop && may_cross(w, l)) {
    bppsa_walk_cross(w, l);
  }
  return l->at < stop;
}

/* The same for a lane that compares, as far as the GPU has found. */
static bool settle_mend(const walk *w, const bppsa_walk_found *found, lane *l) {
  const bool first = l->at == bppsa_walk_chunk_begin(w->n, l->chunk);
  const int64_t changed = found->steps - found->agreed;
  l->steps += found->steps;
  l->at += changed;
  l->mended += first && changed > 0;
  l->since = found->since == BPPSA_SETTLE_NEVER ? found->since : found->since + w->first;
  if (found->agreed) {
    l->gap = fmax(l->gap, found->distance);
    return w->phase == BPPSA_WALK_TAIL && bppsa_walk_next_doubt(w, l);
  }
  if (bppsa_walk_at_reset(w, l)) {
    return w->phase == BPPSA_WALK_TAIL && bppsa_walk_next_doubt(w, l);
  }
  if (l->at == l->end) {
    l->far = found->distance > w->n->forward.plan.far;
    if (!bppsa_walk_end(w, l)) {
      return false;
    }
  }
  if (l->at == w->border) {
    bppsa_walk_cross(w, l);
    return false;
  }
  return true;
}

/* Returns the number of steps of the next window; before: that of the latest one, 0 at first. */
static int64_t window_steps(const walk *w, int64_t count, int64_t before) {
  const recurrent_forward *f = &w->n->forward;
  const int64_t *members = f->members;
  const int64_t grown = before == 0 ? SHORTEST : 2 * before;
  const int64_t most = w->phase == BPPSA_WALK_SPECULATE || grown > f->window ? f->window : grown;
  int64_t longest = 1;
  for (int64_t i = 0; i < count; ++i) {
    const lane *l = &w->lanes[members[i]];
    longest = bppsa_walk_stop(w, l) - l->at > longest ? bppsa_walk_stop(w, l) - l->at : longest;
  }
  return longest < most ? longest : most;
}

/* The states after a window's last step, of the lane in its place i. Those of a chunk are in the layer's own arrays. */
static bppsa_walk_place state_after(const walk *w, int64_t count, int64_t steps, int64_t i, const lane *l) {
  const recurrent_network *n = w->n;
  const bool guess = w->phase == BPPSA_WALK_SPECULATE && l->at <= bppsa_walk_chunk_begin(n, l->chunk);
  const bppsa_walk_place window = {.h = n->forward.scratch, .c = bppsa_walk_window_cells(n)};
  return guess ? bppsa_walk_behind(w, window, steps * count + i) : bppsa_walk_state(w, l->at, l->sample);
}

bppsa_status bppsa_walk_run_gpu(const walk *w) {
  recurrent_network *n = w->n;
  int64_t *members = n->forward.members, count = w->count, steps = 0;
  bppsa_walk_item *items = n->forward.items;
  const bppsa_walk_found *found = n->forward.found;
  const bool guesses = w->phase == BPPSA_WALK_SPECULATE;
  for (int64_t i = 0; i < count; ++i) {
    members[i] = i;
  }
  while (count > 0) {
    int64_t left = 0;
    steps = window_steps(w, count, steps);
    for (int64_t i = 0; i < count; ++i) {
      items[i] = item_of(w, &w->lanes[members[i]]);
    }
    BPPSA_TRY(n->backend->window(n, w->layer, guesses, count, steps));
    for (int64_t i = 0; i < count; ++i) {
      lane *l = &w->lanes[members[i]];
      if (guesses ? settle_guess(w, steps, l) : settle_mend(w, &found[i], l)) {
        l->from = state_after(w, count, steps, i, l);
        members[left++] = members[i];
      }
    }
    count = left;
  }
  return BPPSA_OK;
}
