/* The parallel forward pass on a CPU (recurrent/forward.h).
 *
 * A lane is a sample in a chunk that walks from some step on. A group of lanes is a batch for the cell's own forward function:
 * their inputs are gathered, a window of steps is computed at once, and the results are written to their places in the
 * layer's arrays, lane by lane. Lanes that have arrived leave the group, the others move together. Groups are shared among
 * threads; a group of lanes, and with it every bit, depends on the plan and on values alone.
 *
 * A lane of a round starts from a copy of the end of the chunk in front of it, which another lane may overwrite meanwhile;
 * within its own chunk it alone reads and writes.
 */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cut.h"
#include "core/flush.h"
#include "core/pool.h"
#include "recurrent/pause.h"
#include "recurrent/recurrent_internal.h"

#define EACH_REAL "recurrent/recurrent_forward.inc"
#include "core/each_real.inc"

enum { PATIENCE = 3 }; /* rounds that a long memory may need before most chunks stop moving */
enum { GROUP = 16 };   /* lanes of a group: rows that fill the vectors of a product */

typedef enum { SPECULATE, MEND, TAIL } phase;

typedef struct {
  int64_t sample, chunk;
  int64_t at, end; /* the next step, from 0, and the step after the chunk's last */
  int64_t steps;   /* walked so far */
  int64_t mended;  /* chunks whose states it changed */
  double gap;      /* the largest difference that it accepted */
  bool reached;    /* it changed the chunk's last state */
  bool far;        /* and by much */
} lane;

/* The properties that all lanes of one phase in one layer share. */
typedef struct {
  recurrent_network *n;
  int64_t layer, input, count;            /* count: lanes */
  const char *x;                          /* [T][b][input] */
  char *h, *saved;                        /* [T+1][b][H], [T][b][saved·H] */
  size_t input_row, state_row, saved_row; /* bytes of a sample in a step of each */
  lane *lanes;
  phase phase;
} walk;

/* The arrays of one group: for `count` lanes rows of a step lie one behind the other. */
typedef struct {
  char *x, *pre, *h, *saved;
  int64_t members[GROUP]; /* numbers of the lanes */
  int64_t count;
} group;

static int64_t size_of(const recurrent_network *n) {
  return (int64_t)bppsa_dtype_size(n->config.dtype);
}

static void *at(const recurrent_network *n, const void *base, int64_t reals) {
  return bppsa_recurrent_offset(n, base, reals);
}

static int64_t chunk_begin(const recurrent_network *n, int64_t chunk) {
  return bppsa_cut(n->config.seq_len, n->forward.plan.chunks, chunk);
}

/* The state after `steps` steps. */
static void *state_of(const walk *w, int64_t steps, int64_t sample) {
  return w->h + (size_t)(steps * w->n->batch + sample) * w->state_row;
}

static unsigned char *doubtful(const recurrent_network *n, int64_t sample) {
  return (unsigned char *)n->forward.doubtful + sample * n->forward.plan.chunks;
}

/* ---- a lane after a window ---- */

static void copy_saved(const walk *w, const lane *l, int64_t step, const void *saved) {
  if (w->saved_row > 0) {
    memcpy(w->saved + (size_t)(step * w->n->batch + l->sample) * w->saved_row, saved, w->saved_row);
  }
}

static void keep(const walk *w, const lane *l, int64_t step, const void *state, const void *saved) {
  memcpy(state_of(w, step + 1, l->sample), state, w->state_row);
  copy_saved(w, l, step, saved);
}

/* Does the stored state agree with the one that the lane has reached? With tolerance 0 they must agree in every bit, and so must a
 * state that has overflowed. *distance: the largest difference. */
static bool agrees(const recurrent_network *n, const void *state, const void *stored, double tolerance, double *distance) {
  const int64_t hidden = n->config.hidden;
  double largest;
  if (n->config.dtype == BPPSA_F32) {
    float of;
    *distance = (double)distance_f32(hidden, state, stored, &of);
    largest = (double)of;
  } else {
    *distance = distance_f64(hidden, state, stored, &largest);
  }
  const double most = tolerance * (n->config.nonlinearity == BPPSA_NONLINEARITY_RELU ? fmax(largest, 1) : 1);
  return tolerance > 0 && isfinite(most) ? *distance <= most : memcmp(state, stored, (size_t)(hidden * size_of(n))) == 0;
}

/* Goes on in the next chunk of the sample that must be verified. False: it was the last. */
static bool next_doubt(const walk *w, lane *l) {
  const int64_t chunks = w->n->forward.plan.chunks;
  unsigned char *doubts = doubtful(w->n, l->sample);
  int64_t chunk = l->chunk + 1;
  while (chunk < chunks && !doubts[chunk]) {
    ++chunk;
  }
  if (chunk == chunks) {
    return false;
  }
  doubts[chunk] = 0;
  l->chunk = chunk;
  l->at = chunk_begin(w->n, chunk);
  l->end = chunk_begin(w->n, chunk + 1);
  return true;
}

/* Where a lane's rows of step s of the window stand in its group. */
static const void *walked(const walk *w, const group *g, int64_t s, int64_t row) {
  return g->h + (size_t)((s + 1) * g->count + row) * w->state_row;
}

static const void *walked_saved(const walk *w, const group *g, int64_t s, int64_t row) {
  return g->saved + (size_t)(s * g->count + row) * w->saved_row;
}

/* Stores the steps of the chunk itself, not those of the warm-up. True: the lane goes on. */
static bool settle_guess(const walk *w, const group *g, int64_t row, int64_t steps, lane *l) {
  const int64_t begin = chunk_begin(w->n, l->chunk), end = l->at + steps < l->end ? l->at + steps : l->end;
  for (int64_t step = begin > l->at ? begin : l->at; step < end; ++step) {
    keep(w, l, step, walked(w, g, step - l->at, row), walked_saved(w, g, step - l->at, row));
  }
  l->steps += end - l->at;
  l->at = end;
  return end < l->end;
}

/* Settles a lane that has reached the end of its chunk and changed its last state. True: the lane goes on. */
static bool settle_end(const walk *w, lane *l) {
  l->reached = true;
  if (w->phase == MEND || l->chunk + 1 == w->n->forward.plan.chunks) {
    return false;
  }
  ++l->chunk; /* the tail verifies the next chunk by walking on */
  doubtful(w->n, l->sample)[l->chunk] = 0;
  l->end = chunk_begin(w->n, l->chunk + 1);
  return true;
}

/* Stores steps until one agrees with the stored state, which then stays. The values that were saved with that step do not: they
 * belong to the state in front of it. *jumped: the lane goes on elsewhere, so that it needs the state there. True: the lane goes
 * on. */
static bool settle_mend(const walk *w, const group *g, int64_t row, int64_t steps, lane *l, bool *jumped) {
  const recurrent_network *n = w->n;
  const bppsa_forward_plan *plan = &n->forward.plan;
  for (int64_t s = 0; s < steps; ++s) {
    const void *state = walked(w, g, s, row), *saved = walked_saved(w, g, s, row);
    const bool first = l->at == chunk_begin(n, l->chunk);
    double distance;
    ++l->steps;
    if (agrees(n, state, state_of(w, l->at + 1, l->sample), first ? plan->accept : plan->stop, &distance)) {
      l->gap = fmax(l->gap, distance);
      copy_saved(w, l, l->at, saved);
      *jumped = w->phase == TAIL && next_doubt(w, l);
      return *jumped;
    }
    l->mended += first;
    keep(w, l, l->at, state, saved);
    if (++l->at == l->end) {
      l->far = distance > plan->far;
      if (!settle_end(w, l)) {
        return false;
      }
    }
  }
  return true;
}

/* ---- a group ---- */

/* Inputs of `steps` steps of all lanes; those of steps behind the last one are the last one's. */
static void gather(const walk *w, group *g, int64_t steps) {
  const int64_t last = w->n->config.seq_len - 1;
  for (int64_t i = 0; i < g->count; ++i) {
    const lane *l = &w->lanes[g->members[i]];
    for (int64_t s = 0; s < steps; ++s) {
      const int64_t step = l->at + s < last ? l->at + s : last;
      const char *from = w->x + (size_t)(step * w->n->batch + l->sample) * w->input_row;
      char *to = g->x + (size_t)(s * g->count + i) * w->input_row;
      if (w->input_row == sizeof(float)) { /* the size of a copy that the compiler knows */
        memcpy(to, from, sizeof(float));
      } else {
        memcpy(to, from, w->input_row);
      }
    }
  }
}

/* Computes `steps` steps of all lanes from the states in row 0 of h. */
static void compute_window(const walk *w, group *g, int64_t steps) {
  const recurrent_network *n = w->n;
  const int64_t hidden = n->config.hidden, out = n->cell->gates * hidden;
  gather(w, g, steps);
  const bppsa_linear from_x = {n->config.dtype, 1, steps * g->count, w->input, out, .unit = g->count};
  bppsa_linear_forward(&from_x, g->x, n->w_t, n->bias, g->pre);
  const bppsa_cell_block block = {.steps = steps,
                                  .batch = g->count,
                                  .hidden = hidden,
                                  .samples = g->count,
                                  .nonlinearity = n->config.nonlinearity,
                                  .w_hh = n->w_hh,
                                  .w_hh_t = n->w_hh_t,
                                  .w_row = bppsa_dtype_padded(n->config.dtype, hidden),
                                  .w_row_t = bppsa_dtype_padded(n->config.dtype, out),
                                  .b_hh = n->base.parameters[w->layer * PARAMETERS_PER_LAYER + B_HH].value.data,
                                  .pre = g->pre,
                                  .h = g->h,
                                  .saved = g->saved};
  const unsigned mode = bppsa_flush_begin();
  n->cell->forward[n->config.dtype == BPPSA_F64](&block);
  bppsa_flush_end(mode);
}

/* Settles every lane and moves those that go on together, their states to row 0. */
static void settle(const walk *w, group *g, int64_t steps) {
  int64_t left = 0;
  for (int64_t i = 0; i < g->count; ++i) {
    lane *l = &w->lanes[g->members[i]];
    bool jumped = false;
    if (w->phase == SPECULATE ? settle_guess(w, g, i, steps, l) : settle_mend(w, g, i, steps, l, &jumped)) {
      memcpy(g->h + (size_t)left * w->state_row, jumped ? state_of(w, l->at, l->sample) : walked(w, g, steps - 1, i),
             w->state_row);
      g->members[left++] = g->members[i];
    }
  }
  g->count = left;
}

/* Steps of the next window: most mends end after a few. */
static int64_t window_steps(const walk *w, const group *g, int64_t before) {
  const int64_t most = w->n->forward.window, grown = w->phase == SPECULATE || 2 * before > most ? most : 2 * before;
  int64_t longest = 1;
  for (int64_t i = 0; w->phase != TAIL && i < g->count; ++i) {
    const lane *l = &w->lanes[g->members[i]];
    longest = l->end - l->at > longest ? l->end - l->at : longest;
  }
  return before == 0 && w->phase != SPECULATE ? 1 : w->phase != TAIL && longest < grown ? longest : grown;
}

/* Numbers in a step's input: at most so many in any layer. */
static int64_t widest_input(const recurrent_network *n) {
  return n->config.hidden > n->config.input ? n->config.hidden : n->config.input;
}

/* A worker's part of the scratch memory: reals for one lane and one step of a window, in the order of struct group. */
static int64_t lane_reals(const recurrent_network *n, int64_t input) {
  return input + (n->cell->gates + 1 + n->cell->saved) * n->config.hidden;
}

/* All of a worker's part, in reals: a window of a group, and the states in front of it. */
static int64_t group_reals(const recurrent_network *n) {
  return n->forward.window * GROUP * lane_reals(n, widest_input(n)) + GROUP * n->config.hidden;
}

static group group_of(const walk *w, int32_t worker) {
  const recurrent_network *n = w->n;
  const int64_t hidden = n->config.hidden, rows = n->forward.window * GROUP;
  group g = {.x = at(n, n->forward.scratch, worker * group_reals(n))};
  g.pre = at(n, g.x, rows * widest_input(n));
  g.saved = at(n, g.pre, rows * n->cell->gates * hidden);
  g.h = at(n, g.saved, rows * n->cell->saved * hidden);
  return g;
}

static void walk_groups(const void *context, int32_t worker, int64_t first, int64_t end) {
  const walk *w = context;
  const recurrent_network *n = w->n;
  const int64_t hidden = n->config.hidden;
  group g = group_of(w, worker);
  for (int64_t index = first; index < end; ++index) {
    const int64_t from = index * GROUP;
    g.count = w->count - from < GROUP ? w->count - from : GROUP;
    for (int64_t i = 0; i < g.count; ++i) {
      g.members[i] = from + i;
    }
    memcpy(g.h, at(n, n->forward.starts, from * hidden), (size_t)(g.count * hidden * size_of(n)));
    for (int64_t steps = 0; g.count > 0;) {
      steps = window_steps(w, &g, steps);
      compute_window(w, &g, steps);
      settle(w, &g, steps);
    }
  }
}

/* Adds what the lanes did: a sample's lanes run side by side, so its path grows by the longest. */
static void account(const walk *w) {
  recurrent_forward *f = &w->n->forward;
  int64_t *paths = f->paths, steps = 0;
  for (int64_t i = 0; i < w->count; ++i) {
    const lane *l = &w->lanes[i];
    steps += l->steps;
    f->stats.mended += l->mended;
    f->stats.gap = fmax(f->stats.gap, l->gap);
    paths[2 * l->sample + 1] = l->steps > paths[2 * l->sample + 1] ? l->steps : paths[2 * l->sample + 1];
  }
  for (int64_t b = 0; b < w->n->batch; ++b) {
    paths[2 * b] += paths[2 * b + 1];
    paths[2 * b + 1] = 0;
  }
  f->stats.work += (double)steps; /* in steps until the pass ends */
}

static void run(walk *w) {
  const recurrent_network *n = w->n;
  const double flops = 2 * (double)n->cell->gates * (double)n->config.hidden * (double)n->config.hidden;
  double steps = 0;
  for (int64_t i = 0; i < w->count; ++i) {
    steps += (double)(w->lanes[i].end - w->lanes[i].at);
  }
  bppsa_parallel_for((int32_t)n->forward.workers, (w->count + GROUP - 1) / GROUP, bppsa_loop_work(flops * steps, 0), walk_groups,
                     w);
  account(w);
}

/* ---- the phases ---- */

/* Adds a lane that starts `early` steps in front of a chunk, but not in front of step `least`, from a state, or from 0. */
static lane *add_lane(walk *w, int64_t sample, int64_t chunk, int64_t early, int64_t least, const void *state) {
  const recurrent_network *n = w->n;
  const int64_t begin = chunk_begin(n, chunk), hidden = n->config.hidden;
  lane *l = &w->lanes[w->count];
  *l = (lane){
      .sample = sample, .chunk = chunk, .at = begin - early > least ? begin - early : least, .end = chunk_begin(n, chunk + 1)};
  void *to = at(n, n->forward.starts, w->count++ * hidden);
  if (state != NULL) {
    memcpy(to, state, (size_t)(hidden * size_of(n)));
  } else {
    memset(to, 0, (size_t)(hidden * size_of(n)));
  }
  return l;
}

static void speculate(walk *w) {
  const recurrent_network *n = w->n;
  const bppsa_forward_plan *plan = &n->forward.plan;
  w->phase = SPECULATE;
  w->count = 0;
  for (int64_t chunk = 0; chunk < plan->chunks; ++chunk) {
    for (int64_t b = 0; b < n->batch; ++b) {
      const bool known = chunk_begin(n, chunk) <= plan->warm_up; /* it begins with the sequence */
      add_lane(w, b, chunk, plan->warm_up, 0, known ? state_of(w, 0, b) : NULL);
      doubtful(n, b)[chunk] = !known;
    }
  }
  run(w);
}

/* A chunk that was mended to its end by much shows that its sample's guesses were in the wrong basin: later chunks begin anew, from
 * that end. At most once a sample. */
static void reseed(walk *w, const int64_t *ends) {
  recurrent_network *n = w->n;
  const bppsa_forward_plan *plan = &n->forward.plan;
  unsigned char *reseeded = n->forward.reseeded;
  w->phase = SPECULATE;
  w->count = 0;
  for (int64_t b = 0; b < n->batch; ++b) {
    const int64_t from = ends[b] + 1;
    if (reseeded[b] || from >= plan->chunks) {
      continue;
    }
    reseeded[b] = 1;
    ++n->forward.stats.reseeded;
    for (int64_t chunk = from; chunk < plan->chunks; ++chunk) {
      const int64_t start = chunk_begin(n, from);
      const lane *l = add_lane(w, b, chunk, plan->warm_up, start, state_of(w, start, b));
      doubtful(n, b)[chunk] = l->at > start;
    }
  }
  if (w->count > 0) {
    run(w);
  }
}

/* Mends all doubtful chunks at once. firsts [b]: of each sample the first chunk that moved far, or C. Returns how many chunks moved
 * far. */
static int64_t mend(walk *w, int64_t *firsts) {
  recurrent_network *n = w->n;
  const int64_t chunks = n->forward.plan.chunks;
  int64_t moved = 0, changed = 0;
  w->phase = MEND;
  w->count = 0;
  for (int64_t chunk = 1; chunk < chunks; ++chunk) {
    for (int64_t b = 0; b < n->batch; ++b) {
      if (doubtful(n, b)[chunk]) {
        doubtful(n, b)[chunk] = 0;
        add_lane(w, b, chunk, 0, 0, state_of(w, chunk_begin(n, chunk), b));
      }
    }
  }
  run(w);
  for (int64_t b = 0; b < n->batch; ++b) {
    firsts[b] = chunks;
  }
  for (int64_t i = w->count - 1; i >= 0; --i) {
    const lane *l = &w->lanes[i];
    moved += l->far;
    changed += l->mended;
    if (l->reached && l->chunk + 1 < chunks) {
      doubtful(n, l->sample)[l->chunk + 1] = 1;
    }
    firsts[l->sample] = l->far ? l->chunk : firsts[l->sample];
  }
  n->forward.stats.rounds += changed > 0;
  return moved;
}

/* Every sample with doubtful chunks walks on from the first of them, one chunk after the other. */
static void finish(walk *w) {
  recurrent_network *n = w->n;
  w->phase = TAIL;
  w->count = 0;
  for (int64_t b = 0; b < n->batch; ++b) {
    lane first = {.sample = b};
    if (next_doubt(w, &first)) {
      add_lane(w, b, first.chunk, 0, 0, state_of(w, first.at, b));
    }
  }
  if (w->count > 0) {
    n->forward.stats.tails += w->count;
    run(w);
  }
}

static bool any_doubt(const recurrent_network *n) {
  return memchr(n->forward.doubtful, 1, (size_t)(n->batch * n->forward.plan.chunks)) != NULL;
}

void bppsa_forward_layer(recurrent_network *n, int64_t l, const void *x) {
  const bppsa_forward_plan *plan = &n->forward.plan;
  const size_t size = (size_t)size_of(n);
  walk w = {.n = n,
            .layer = l,
            .input = n->layers[l].input,
            .x = x,
            .h = n->layers[l].h,
            .saved = n->layers[l].saved,
            .input_row = (size_t)n->layers[l].input * size,
            .state_row = (size_t)n->config.hidden * size,
            .saved_row = (size_t)(n->cell->saved * n->config.hidden) * size,
            .lanes = n->forward.lanes};
  int64_t *firsts = (int64_t *)n->forward.paths + 2 * n->batch;
  const int64_t rounds = n->forward.stats.rounds;
  n->forward.stats.rounds = 0;
  memset(n->forward.reseeded, 0, (size_t)n->batch);
  speculate(&w);
  for (int64_t round = 0; round < plan->rounds && any_doubt(n); ++round) {
    const int64_t moved = mend(&w, firsts);
    reseed(&w, firsts);
    /* Where the last states of most chunks still move far, nothing is forgotten: each round fixes one chunk alone, and the tail
     * does so with less work. */
    if (round >= PATIENCE && 2 * moved > plan->chunks * n->batch) {
      break;
    }
  }
  finish(&w);
  n->forward.stats.rounds = n->forward.stats.rounds > rounds ? n->forward.stats.rounds : rounds;
}

/* ---- a pass, and its memory ---- */

bool bppsa_forward_begin(recurrent_network *n) {
  recurrent_forward *f = &n->forward;
  const int64_t steps = n->config.seq_len * n->config.layers;
  const bool speculates = bppsa_forward_pause_begin(&f->plan, &f->pause);
  f->stats = (bppsa_forward_stats){.speculated = speculates, .passes = 1, .path = steps, .possible = steps, .work = 1};
  if (speculates) {
    memset(f->paths, 0, (size_t)(2 * n->batch) * sizeof(int64_t));
    f->stats.work = 0;
  }
  return speculates;
}

void bppsa_forward_end(recurrent_network *n) {
  recurrent_forward *f = &n->forward;
  const int64_t *paths = f->paths;
  if (!f->stats.speculated) {
    return;
  }
  f->stats.path = 0;
  for (int64_t b = 0; b < n->batch; ++b) {
    f->stats.path = paths[2 * b] > f->stats.path ? paths[2 * b] : f->stats.path;
  }
  f->stats.work /= (double)f->stats.possible * (double)n->batch;
  f->pause = bppsa_forward_pause_end(
      bppsa_forward_pause_fails(f->stats.path, f->stats.possible) || f->stats.work > f->plan.most_work, f->pause);
}

void bppsa_forward_choose(recurrent_network *n) {
  enum { BYTES = 1 << 16, MOST = 16 };
  recurrent_forward *f = &n->forward;
  const int64_t groups = (f->plan.chunks * n->config.batch + GROUP - 1) / GROUP;
  const int64_t fitting = BYTES / (GROUP * lane_reals(n, n->config.input) * size_of(n));
  f->workers = groups < n->threads ? groups : n->threads;
  f->window = fitting > MOST ? MOST : fitting < 1 ? 1 : fitting;
}

bppsa_status bppsa_forward_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  recurrent_forward *f = &n->forward;
  const bppsa_recurrent_config *c = &n->config;
  int64_t lanes, lane_bytes;
  if (!f->plan.speculative) {
    return BPPSA_OK;
  }
  if (!bppsa_mul(f->plan.chunks, c->batch, &lanes) || !bppsa_mul(lanes, (int64_t)sizeof(lane), &lane_bytes)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "forward pass: %lld chunks of %lld samples do not fit in 64 bits",
                      (long long)f->plan.chunks, (long long)c->batch);
  }
  BPPSA_TRY(visit(&f->lanes, lane_bytes, bytes));
  BPPSA_TRY(visit(&f->doubtful, lanes, bytes));
  BPPSA_TRY(visit(&f->paths, 3 * c->batch * (int64_t)sizeof(int64_t), bytes));
  BPPSA_TRY(visit(&f->reseeded, c->batch, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, f->plan.chunks, c->batch, c->hidden, &f->starts, bytes));
  return bppsa_recurrent_visit_array(n, visit, f->workers, 1, group_reals(n), &f->scratch, bytes);
}

void bppsa_forward_free(recurrent_network *n) {
  recurrent_forward *f = &n->forward;
  void *const arrays[] = {f->lanes, f->starts, f->scratch, f->doubtful, f->paths, f->reseeded};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
    bppsa_free(arrays[i]);
  }
}
