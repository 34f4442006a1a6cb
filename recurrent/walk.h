/* Lanes of a parallel forward pass, and how they walk (recurrent/parallel_forward.h). Internal.
 *
 * A lane is a sample in a chunk that walks from some step on. A group of lanes is a batch for the cell's own forward function:
 * their inputs are gathered, a window of steps is computed at once, and the results are written to their places in the
 * layer's arrays, lane by lane. Lanes that have arrived leave the group, the others move together. On a CPU groups are shared
 * among threads; a group of lanes, and with it every bit, depends on the plan and on values alone. On a GPU all lanes of a phase
 * are one group, and the kernels of its sequential pass compute the window (recurrent/gpu/walk_gpu.c).
 *
 * A lane of a round starts from a copy of the end of the chunk in front of it, which another lane may overwrite meanwhile;
 * within its own chunk it alone reads and writes.
 *
 * A network may hold a part of a longer sequence (bppsa_forward_part). Steps are counted in the whole sequence. A lane that comes
 * to the end of the part, but not of its chunk, crosses the border: it leaves its state in `states_out`, and the network with the
 * next steps walks on.
 */
#ifndef BPPSA_RECURRENT_WALK_H
#define BPPSA_RECURRENT_WALK_H

#include <string.h>

#include "core/base/cut.h"
#include "recurrent/recurrent_internal.h"
#include "recurrent/settle.h"

enum { BPPSA_WALK_GROUP = 16 }; /* lanes of a group: rows that fill the vectors of a product */

typedef enum { BPPSA_WALK_SPECULATE, BPPSA_WALK_MEND, BPPSA_WALK_TAIL } bppsa_walk_phase;

/* Where a state is: h, and c of a pair or NULL, H numbers each. */
typedef struct {
  char *h, *c;
} bppsa_walk_place;

typedef struct {
  int64_t sample, chunk;
  int64_t at, end;       /* the next step, from 0, and the step after the chunk's last */
  bppsa_walk_place from; /* on a GPU: the state in front of the next step; h NULL: 0 */
  int64_t steps;         /* walked so far */
  int64_t earlier;       /* walked in front of this part of the sequence */
  int64_t mended;        /* chunks whose states it changed */
  double gap;            /* the largest difference that it accepted */
  double begun;          /* how far the chunk's first state moved; on a GPU 0 */
  int64_t since;         /* as of bppsa_walk_settles */
  bool reached;          /* it changed the chunk's last state */
  bool far;              /* the change is large */
  bool lasts;            /* the rounds to come are not expected to end the change; on a GPU never */
} bppsa_walk_lane;

/* What crosses a border, of one sample in one chunk. */
typedef struct {
  int64_t steps;   /* that its lane has walked so far; 0: there is no lane */
  int64_t goes_on; /* 1: the lane crosses the border, or, where a chunk begins there, that chunk must be verified */
  double begun;    /* of the lane, and the next one too */
  int64_t since;
} bppsa_walk_crossing;

/* The properties that all lanes of one phase in one layer share. */
typedef struct {
  recurrent_network *n;
  int64_t layer, input, count; /* count: lanes */
  int64_t first, border;       /* the network holds steps first + 1 .. border */
  const char *x;               /* [t][b][input], t = border - first */
  bppsa_walk_place states;     /* [t+1][b][H] each */
  char *saved;                 /* [t][b][saved·H] */
  size_t input_row, row;       /* bytes of a sample in a step of x, and of h or c */
  size_t state_row, saved_row; /* likewise of a state, [S], and of what is saved */
  bppsa_walk_lane *lanes;
  bppsa_walk_phase phase;
  int64_t rounds; /* still to come behind the present one */
  bool given_up;  /* the tail does not look for states that agree */
} bppsa_walk;

static inline int64_t bppsa_walk_chunk_begin(const recurrent_network *n, int64_t chunk) {
  return bppsa_cut(n->forward.seq_len, n->forward.plan.chunks, chunk);
}

/* The chunk that contains a step, from 0. */
static inline int64_t bppsa_walk_chunk_of(const recurrent_network *n, int64_t step) {
  return bppsa_cut_part(n->forward.seq_len, n->forward.plan.chunks, step);
}

/* Row r behind a place where many states are, in rows of H numbers. */
static inline bppsa_walk_place bppsa_walk_behind(const bppsa_walk *w, bppsa_walk_place p, int64_t r) {
  const size_t bytes = (size_t)r * w->row;
  return (bppsa_walk_place){p.h + bytes, p.c != NULL ? p.c + bytes : NULL};
}

/* The state after `steps` steps of the sequence. */
static inline bppsa_walk_place bppsa_walk_state(const bppsa_walk *w, int64_t steps, int64_t sample) {
  return bppsa_walk_behind(w, w->states, (steps - w->first) * w->n->batch + sample);
}

/* State r of an array [..][S], in which c of a pair stands behind its h. A part without such states has NULL for the array. */
static inline bppsa_walk_place bppsa_walk_packed(const bppsa_walk *w, void *array, int64_t r) {
  if (array == NULL) {
    return (bppsa_walk_place){NULL, NULL};
  }
  char *h = (char *)array + (size_t)r * w->state_row;
  return (bppsa_walk_place){h, w->states.c != NULL ? h + w->row : NULL};
}

/* The step in front of which a lane stops in this part. */
static inline int64_t bppsa_walk_stop(const bppsa_walk *w, const bppsa_walk_lane *l) {
  return l->end < w->border ? l->end : w->border;
}

/* The place of a lane that comes to the end of this part, among the states that cross the border. */
static inline int64_t bppsa_walk_slot(const bppsa_walk *w, const bppsa_walk_lane *l) {
  const int64_t chunk = w->phase == BPPSA_WALK_SPECULATE ? l->chunk - bppsa_walk_chunk_of(w->n, w->border) : 0;
  return chunk * w->n->batch + l->sample;
}

/* Tells the next part about this lane. */
static inline void bppsa_walk_cross(const bppsa_walk *w, const bppsa_walk_lane *l) {
  bppsa_walk_crossing *out = (bppsa_walk_crossing *)w->n->forward.out;
  out[bppsa_walk_slot(w, l)] = (bppsa_walk_crossing){.steps = l->steps, .goes_on = 1, .begun = l->begun, .since = l->since};
}

static inline void bppsa_walk_copy(const bppsa_walk *w, bppsa_walk_place to, bppsa_walk_place from) {
  memcpy(to.h, from.h, w->row);
  if (to.c != NULL) {
    memcpy(to.c, from.c, w->row);
  }
}

/* [C] bytes: which chunks of a sample that begin in this part must be verified. */
static inline unsigned char *bppsa_walk_doubts(const recurrent_network *n, int64_t sample) {
  return (unsigned char *)n->forward.doubtful + sample * n->forward.plan.chunks;
}

/* The last of the steps first .. last in front of which a sample begins anew, so that its state there is known; -1: none.
 * Step 0 does not count: the state in front of it is known anyway. */
static inline int64_t bppsa_walk_anew(const bppsa_walk *w, int64_t sample, int64_t first, int64_t last) {
  return w->n->resets.active ? bppsa_resets_find(w->n, w->layer, first, last + 1, sample, 1, true) : -1;
}

/* Has a lane come to a step in front of which its sample begins anew? The stored states from there on are right. The step may be
 * the first one of the next part. */
static inline bool bppsa_walk_at_reset(const bppsa_walk *w, const bppsa_walk_lane *l) {
  return l->at < w->n->forward.seq_len && bppsa_resets_at(w->n, w->layer, l->at, l->sample);
}

/* Moves the lane to the next chunk of its sample that begins in this part and must be verified. Returns false if there is none. */
bool bppsa_walk_next_doubt(const bppsa_walk *w, bppsa_walk_lane *l);

/* Handles a lane that has reached the end of its chunk and changed its last state. Returns true if it goes on. */
bool bppsa_walk_end(const bppsa_walk *w, bppsa_walk_lane *l);

/* Walks all lanes, on a CPU or a GPU. ERR_CUDA. */
bppsa_status bppsa_walk_run(const bppsa_walk *w);
bppsa_status bppsa_walk_run_gpu(const bppsa_walk *w);

/* Reals of the scratch memory of one thread, and of one lane and one step of a window. */
int64_t bppsa_walk_scratch(const recurrent_network *n);
int64_t bppsa_walk_lane_reals(const recurrent_network *n, int64_t input);

#endif
