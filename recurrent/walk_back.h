/* Lanes of a parallel backward pass on a CPU, and how they walk (recurrent/parallel_backward.h). Internal.
 *
 * A lane is a sample in a chunk, and walks towards earlier steps. Groups of lanes are batches for the cell's own backward function:
 * what it reads is gathered, a window of steps is computed at once, and deltas are written to their places, or added there. A
 * lane leaves its group where it ends. Which lanes are a group depends on the plan and on values alone.
 *
 * u_t and g_T stay in n->g as they are, because lanes of two chunks read them.
 */
#ifndef BPPSA_RECURRENT_WALK_BACK_H
#define BPPSA_RECURRENT_WALK_BACK_H

#include "core/base/cut.h"
#include "recurrent/recurrent_internal.h"

enum {
  BPPSA_BACK_HEAD = 8 /* steps of a chunk, the latest ones */,
  BPPSA_BACK_GROUP = 16 /* lanes */,
  BPPSA_BACK_MOST_WINDOW = 16 /* steps */
};

/* What a lane starts from; BPPSA_BACK_ZEROS: from u_t. */
typedef enum { BPPSA_BACK_ZEROS, BPPSA_BACK_SEED, BPPSA_BACK_PROBE, BPPSA_BACK_DIFFERENCE } bppsa_back_kind;

typedef struct {
  int64_t sample, chunk;
  int64_t at;          /* it has the gradient of state `at` */
  int64_t top, bottom; /* of the chunk: the states at its later and at its earlier end */
  bppsa_back_kind kind;
  bool final;            /* of a BPPSA_BACK_DIFFERENCE: nothing will change what it started from */
  bool stopped;          /* likewise: what is left of it is dropped */
  int64_t steps, chunks; /* walked; chunks that it went through or entered */
} bppsa_back_lane;

/* A chunk of a sample. */
typedef struct {
  double sum;     /* Σ |g_t|_inf */
  double head;    /* likewise over its latest BPPSA_BACK_HEAD steps, */
  double block;   /* and over the present ones as many; */
  double least;   /* the least of these sums, at last the mean of so many steps */
  double start;   /* |g|_inf at its later end */
  double deltas;  /* Σ |δ_t|_2 */
  double reach;   /* of a silent chunk: Σ |δ_t(r)|_2; at last with the chunks in front of it, of other chunks too */
  double probe;   /* likewise the length of r at its end; of other chunks |g|_inf there */
  double scale;   /* s */
  double dropped; /* |d|_inf at its boundary, where it was accepted */
  double stopped; /* Σ of those at which mends stopped within */
  double size;    /* |d|_inf at its boundary in the latest comparison */
  double begun;   /* |d|_inf that the latest mend began with */
  double moved;   /* |d|_inf that it arrived with at the chunk's earlier end; -1: it did not, or entered the next chunk */
  bool exact;     /* it started from the true gradient */
  bool silent;    /* nothing is injected into it and its warm-up */
  bool cut;       /* its sample begins anew within it: no difference walks through */
  bool quiet;     /* what may be dropped follows from the gradients behind it */
  bool doubtful;  /* its boundary must be compared */
  bool fits;      /* the latest comparison accepted it */
  bool walks;     /* a lane mends it in the present round */
} bppsa_back_chunk;

typedef struct {
  recurrent_network *n;
  int64_t layer, count;    /* count: lanes */
  int64_t mends;           /* chunks that are mended in the present round, here or elsewhere */
  bool injected, adds;     /* adds: the present lanes walk differences */
  bool measures;           /* some chunk is silent, so that lengths of deltas count */
  bool passes_on;          /* a layer below reads the gradients of this one's inputs */
  int64_t state, width;    /* S; G·H */
  size_t real;             /* bytes */
  const void *x;           /* the layer's input, [rows][input] */
  void *delta_x, *delta_h; /* where they go beside the sums of weight gradients; NULL: nowhere */
  bool sums;               /* lanes add to the weight gradients */
  int64_t input, parts;    /* parts: of the weight gradients */
  int64_t turns;           /* groups that add to parts of their own */
  int64_t first, border;   /* steps first + 1 .. border are the network's (config.part); lanes stop at state `first` */
  bppsa_back_lane *lanes;
} bppsa_back_walk;

static inline int64_t bppsa_back_length_of(const recurrent_network *n, int64_t sample) {
  return n->ragged.active ? n->ragged.place[sample].length : n->forward.seq_len;
}

/* Has the network the step? */
static inline bool bppsa_back_is_here(const bppsa_back_walk *w, int64_t step) {
  return step > w->first && step <= w->border;
}

/* The row of a state, among those of all samples: 0 is the row of the state in front of the network's first step. */
static inline int64_t bppsa_back_row_of(const recurrent_network *n, int64_t step, int64_t sample) {
  return n->back.rows[step - n->config.part.first] + sample;
}

static inline void *bppsa_back_at_row(const bppsa_back_walk *w, const void *base, int64_t row, int64_t width) {
  return (char *)base + (size_t)(row * width) * w->real;
}

/* Chunks of a sample: those of a short one are about as long as a long one's. */
static inline int64_t bppsa_back_chunks_of(const recurrent_network *n, int64_t sample) {
  const int64_t chunks = n->back.plan.chunks, usual = n->forward.seq_len / chunks,
                fitting = bppsa_back_length_of(n, sample) / usual;
  return fitting < 1 ? 1 : fitting < chunks ? fitting : chunks;
}

static inline int64_t bppsa_back_begin_of(const recurrent_network *n, int64_t sample, int64_t index) {
  return bppsa_cut(bppsa_back_length_of(n, sample), bppsa_back_chunks_of(n, sample), index);
}

static inline bppsa_back_chunk *bppsa_back_chunk_of(const recurrent_network *n, int64_t sample, int64_t index) {
  return (bppsa_back_chunk *)n->back.chunks + sample * n->back.plan.chunks + index;
}

/* The gradient from which a chunk was computed, at its later end, and the one at its earlier end. */
static inline void *bppsa_back_start_of(const bppsa_back_walk *w, int64_t sample, int64_t index) {
  return bppsa_back_at_row(w, w->n->back.starts, sample * w->n->back.plan.chunks + index, w->state);
}

static inline void *bppsa_back_end_of(const bppsa_back_walk *w, int64_t sample, int64_t index) {
  return bppsa_back_at_row(w, w->n->back.ends, sample * w->n->back.plan.chunks + index, w->state);
}

static inline void *bppsa_back_lane_gradient(const bppsa_back_walk *w, int64_t index) {
  return bppsa_back_at_row(w, w->n->back.lane_gradients, index, w->state);
}

/* ---- rows of reals ---- */

double bppsa_back_largest(const recurrent_network *n, int64_t count, const void *row); /* max |a|, NaN where a number is */
double bppsa_back_length(const recurrent_network *n, int64_t count, const void *row);  /* |a|_2 */
void bppsa_back_subtract(const recurrent_network *n, int64_t count, const void *row, const void *other, void *to);

/* ---- walking ---- */

/* Reals of a lane and one step of a window, and all of a worker's scratch memory. */
int64_t bppsa_back_lane_reals(const recurrent_network *n);
int64_t bppsa_back_scratch_reals(const recurrent_network *n);
/* Walks the lanes to their ends. A lane that comes to w->first within its chunk, or enters one there, stays with its gradient among
 * the lanes' (bppsa_back_leaves). */
void bppsa_back_walk_lanes(bppsa_back_walk *w);
/* Adds the steps that they have walked to paths and work: those of a sample walk side by side. */
void bppsa_back_count_lanes(const bppsa_back_walk *w);
/* Has the lane come to w->first with steps left? */
static inline bool bppsa_back_leaves(const bppsa_back_walk *w, const bppsa_back_lane *l) {
  return l->at == w->first && l->at > l->bottom && !l->stopped;
}

/* ---- the phases of a layer (speculate_back.c), which back_part.c goes through as well ---- */

/* Begins a layer: everything but where sums and deltas go. */
bppsa_back_walk bppsa_back_walk_of(recurrent_network *n, int64_t l, const void *x);
/* Looks at the u of every chunk that are here, and begins its numbers. */
void bppsa_back_look(bppsa_back_walk *w);
/* Lists the lanes of all chunks that begin here. */
void bppsa_back_list_guesses(bppsa_back_walk *w);
/* Are the numbers finite that a chunk's lane has arrived with? */
bool bppsa_back_is_finite(const bppsa_back_walk *w, int64_t sample, int64_t index);
/* Computes scales and reaches when all chunks have their sums, and counts the boundaries to be compared. */
void bppsa_back_weigh(const bppsa_back_walk *w);
/* Compares the boundaries of doubtful chunks whose first step is here. */
void bppsa_back_compare(const bppsa_back_walk *w);
/* Lists the lanes of a round that begin here: one for each doubtful chunk that does not fit; in the tail for the last one of every
 * sample alone. */
void bppsa_back_list_differences(bppsa_back_walk *w, bool tail);
/* Notes what the first round's lanes that have ended here show about warm-ups. */
void bppsa_back_note_need(const bppsa_back_walk *w);
/* Must a difference walk through a silent chunk of a layer that has another one below it? That is left to BP. */
bool bppsa_back_leaks(const bppsa_back_walk *w);
/* Will rounds of mending take longer than half of BP? As far as the first of them tells: differences shrink by the same factor in
 * every chunk. */
bool bppsa_back_hopeless(const bppsa_back_walk *w);
/* Adds what was dropped to the statistics. */
void bppsa_back_count_dropped(const bppsa_back_walk *w);

#endif
