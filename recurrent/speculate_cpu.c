/* The parallel forward pass on a CPU, and of a part of a sequence on a GPU (recurrent/parallel_forward.h): its phases, in each of
 * which lanes walk (recurrent/walk.h).
 *
 * Where the network holds a part of a sequence, every phase ends with a message from each part to the next one: the lanes that
 * cross the border, and the last state, which is the next part's first one. Parts send it before they walk on with what they
 * receive, unless a lane may walk through all of the part. Then they add up what all lanes did, so that every part goes on with
 * the same phase.
 */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "recurrent/pause.h"
#include "recurrent/walk.h"

typedef bppsa_walk walk;
typedef bppsa_walk_lane lane;
typedef bppsa_walk_crossing crossing;

/* What the lanes of a phase did, joined over all parts. First come sums, of which the last is one for each sample; then largest
 * numbers: the largest gap, and three for each sample: the steps of its longest lane; how many chunks begin with the first one
 * that moved far; and how many with the first one that has a lane. */
enum { STEPS, MENDED, TAILS, DOUBTS, LASTING };
enum { OF_SAMPLES = 4 }; /* numbers for each sample, LASTING too */

static int64_t size_of(const recurrent_network *n) {
  return (int64_t)bppsa_dtype_size(n->config.dtype);
}

static double *totals_of(const recurrent_network *n) {
  return n->forward.totals;
}

static int64_t sums_of(const recurrent_network *n) {
  return LASTING + n->batch;
}

/* How many lanes went to the end of their chunk with a change that is expected to outlast the rounds (bppsa_walk_lane.lasts). */
static double *lasting_of(const recurrent_network *n) {
  return totals_of(n) + LASTING;
}

static double *gap_of(const recurrent_network *n) {
  return totals_of(n) + sums_of(n);
}

static double *longest_of(const recurrent_network *n) {
  return gap_of(n) + 1;
}

/* Chunks from the first one that moved far to the last, so that it is the chunk C - left; 0: no chunk moved far. */
static double *left_of(const recurrent_network *n) {
  return longest_of(n) + n->batch;
}

/* Chunks from the first one that has a lane to the last; 0: the sample has no lane. */
static double *walking_of(const recurrent_network *n) {
  return left_of(n) + n->batch;
}

/* The number of totals for so many samples. */
static int64_t count_totals(int64_t batch) {
  return LASTING + 1 + OF_SAMPLES * batch;
}

static crossing *leaving(const recurrent_network *n) {
  return n->forward.out;
}

static crossing *arriving(const recurrent_network *n) {
  return n->forward.in;
}

/* A view of states in the network's memory. */
static bppsa_view states_view(const recurrent_network *n, void *states, int64_t rows) {
  bppsa_view view = bppsa_view_make(states, n->config.dtype, 2, (int64_t[]){rows, bppsa_recurrent_state_size(n)});
  view.device = n->gpu != NULL ? BPPSA_CUDA : BPPSA_CPU;
  return view;
}

static bool begins_here(const walk *w, int64_t step) {
  return step >= w->first && step < w->border;
}

/* ---- parts of a sequence ---- */

/* The first step of a chunk's lanes that begin `early` steps in front of it, but not in front of step `least`. */
static int64_t start_of(const recurrent_network *n, int64_t chunk, int64_t early, int64_t least) {
  const int64_t start = bppsa_walk_chunk_begin(n, chunk) - early;
  return start > least ? start : least;
}

/* The number of chunks that may have lanes on both sides of a border: the chunk that begins there or contains it, and those behind
 * it whose warm-up begins in front of the border. At the ends of the sequence it is 1, for the tail's count of steps. */
static int64_t crossing_chunks(const recurrent_network *n, int64_t border) {
  const int64_t all = n->forward.seq_len, ahead = border + n->forward.plan.warm_up;
  if (border == 0 || border == all) {
    return 1;
  }
  const int64_t count = bppsa_walk_chunk_of(n, (ahead < all ? ahead : all) - 1) - bppsa_walk_chunk_of(n, border) + 1;
  return count > 1 ? count : 1;
}

/* The most chunks that have lanes in this part. */
static int64_t chunks_here(const recurrent_network *n) {
  const int64_t first = n->config.part.first, border = first + n->config.seq_len;
  const int64_t own = bppsa_walk_chunk_of(n, border - 1) - bppsa_walk_chunk_of(n, first) + 1;
  return own + (border < n->forward.seq_len ? crossing_chunks(n, border) : 0);
}

static int64_t slots_at(const walk *w, int64_t border) {
  return w->phase == BPPSA_WALK_SPECULATE ? crossing_chunks(w->n, border) : 1;
}

static bool has_before(const walk *w) {
  return w->first > 0;
}

static bool has_after(const walk *w) {
  return w->border < w->n->forward.seq_len;
}

/* Copies `rows` states that lie `to_row` and `from_row` bytes apart. */
static bppsa_status copy_states(const walk *w, bppsa_walk_place to, size_t to_row, bppsa_walk_place from, size_t from_row,
                                int64_t rows) {
  const bppsa_device *device = w->n->gpu != NULL ? w->n->base.device : NULL;
  const int64_t to_stride = (int64_t)to_row, from_stride = (int64_t)from_row, width = (int64_t)w->row;
  BPPSA_TRY(bppsa_memory_queue_copy(device, to.h, to_stride, from.h, from_stride, width, rows));
  return to.c == NULL ? BPPSA_OK : bppsa_memory_queue_copy(device, to.c, to_stride, from.c, from_stride, width, rows);
}

/* The message at a border: `slots` chunks of every sample, and then a state of every sample. */
static bppsa_status pass_on(const walk *w, int64_t slots, void *numbers, void *states,
                            bppsa_status (*pass)(void *context, const bppsa_view *numbers, const bppsa_view *states)) {
  const recurrent_network *n = w->n;
  const int64_t rows = slots * n->batch;
  const bppsa_view first = bppsa_view_make(numbers, BPPSA_I64, 2, (int64_t[]){rows, sizeof(crossing) / sizeof(int64_t)});
  const bppsa_view second = states_view(n, states, rows + n->batch);
  return pass(n->config.part.context, &first, &second);
}

static bppsa_status send(const walk *w) {
  const recurrent_network *n = w->n;
  const int64_t slots = slots_at(w, w->border);
  if (!has_after(w)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(copy_states(w, bppsa_walk_packed(w, n->forward.states_out, slots * n->batch), w->state_row,
                        bppsa_walk_state(w, w->border, 0), w->row, n->batch));
  return pass_on(w, slots, n->forward.out, n->forward.states_out, n->config.part.send);
}

static bppsa_status receive(const walk *w) {
  const recurrent_network *n = w->n;
  const int64_t slots = slots_at(w, w->first);
  if (!has_before(w)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(pass_on(w, slots, n->forward.in, n->forward.states_in, n->config.part.receive));
  return copy_states(w, bppsa_walk_state(w, w->first, 0), w->row, bppsa_walk_packed(w, n->forward.states_in, slots * n->batch),
                     w->state_row, n->batch);
}

/* ---- a phase ---- */

/* Adds a lane that starts at step `at` from a state, or from 0 where its h is NULL. */
static lane *add_lane(walk *w, int64_t sample, int64_t chunk, int64_t at, bppsa_walk_place state) {
  const recurrent_network *n = w->n;
  lane *l = &w->lanes[w->count];
  *l = (lane){.sample = sample, .chunk = chunk, .at = at, .from = state, .end = bppsa_walk_chunk_begin(n, chunk + 1)};
  const bppsa_walk_place to = bppsa_walk_packed(w, n->forward.starts, w->count++);
  if (n->gpu != NULL) { /* a GPU reads all states before it writes one */
    return l;
  }
  if (state.h != NULL) {
    bppsa_walk_copy(w, to, state);
  } else {
    memset(to.h, 0, w->state_row);
  }
  return l;
}

/* Notes that the chunk behind one whose last state has changed must be verified, by the part in which it begins. */
static void doubt_next(const walk *w, const lane *l) {
  if (l->end < w->border) {
    bppsa_walk_doubts(w->n, l->sample)[l->chunk + 1] = 1;
  } else if (has_after(w)) {
    leaving(w->n)[l->sample] = (crossing){.steps = l->steps, .goes_on = 1};
  }
}

/* All lanes walk; then what they did is added up. */
static bppsa_status walk_and_count(const walk *w) {
  recurrent_network *n = w->n;
  double *sums = totals_of(n), *longest = longest_of(n), *left = left_of(n), *walking = walking_of(n);
  BPPSA_TRY(w->count > 0 ? bppsa_walk_run(w) : BPPSA_OK);
  for (int64_t i = 0; i < w->count; ++i) {
    const lane *l = &w->lanes[i];
    const double behind = (double)(n->forward.plan.chunks - l->chunk);
    sums[STEPS] += (double)(l->steps - l->earlier);
    sums[MENDED] += (double)l->mended;
    lasting_of(n)[l->sample] += l->lasts;
    *gap_of(n) = fmax(*gap_of(n), l->gap);
    longest[l->sample] = fmax(longest[l->sample], (double)l->steps);
    walking[l->sample] = fmax(walking[l->sample], behind);
    if (l->far) {
      left[l->sample] = fmax(left[l->sample], behind);
    }
    if (w->phase == BPPSA_WALK_MEND && l->reached) {
      doubt_next(w, l);
    }
    if (w->phase == BPPSA_WALK_TAIL && !leaving(n)[l->sample].goes_on) {
      leaving(n)[l->sample].steps = l->steps;
    }
  }
  return BPPSA_OK;
}

/* Lists the lanes that come from the part in front of this one. */
static void list_arrivals(walk *w) {
  const recurrent_network *n = w->n;
  const int64_t first_chunk = bppsa_walk_chunk_of(n, w->first), slots = has_before(w) ? slots_at(w, w->first) : 0;
  for (int64_t slot = 0; slot < slots; ++slot) {
    for (int64_t b = 0; b < n->batch; ++b) {
      const crossing *c = &arriving(n)[slot * n->batch + b];
      if (c->goes_on && w->phase == BPPSA_WALK_MEND && bppsa_walk_chunk_begin(n, first_chunk) == w->first) {
        bppsa_walk_doubts(n, b)[first_chunk] = 1;
      } else if (c->goes_on) {
        lane *l = add_lane(w, b, first_chunk + slot, w->first, bppsa_walk_packed(w, n->forward.states_in, slot * n->batch + b));
        l->steps = l->earlier = c->steps;
        l->begun = c->begun;
        l->since = c->since;
      }
    }
  }
}

/* Lists the lanes of the tail, one for each sample: it goes on where it crossed the border, or at the next chunk that must be
 * verified. */
static void list_tail(walk *w) {
  recurrent_network *n = w->n;
  for (int64_t b = 0; b < n->batch; ++b) {
    const crossing c = has_before(w) ? arriving(n)[b] : (crossing){0};
    const int64_t chunk = bppsa_walk_chunk_of(n, w->first);
    lane next = {.sample = b};
    leaving(n)[b].steps = c.steps;
    if (c.goes_on) {
      bppsa_walk_doubts(n, b)[chunk] = 0;
      add_lane(w, b, chunk, w->first, bppsa_walk_packed(w, n->forward.states_in, b));
    } else if (bppsa_walk_next_doubt(w, &next)) {
      totals_of(n)[TAILS] += c.steps == 0;
      add_lane(w, b, next.chunk, next.at, bppsa_walk_state(w, next.at, b));
    } else {
      continue;
    }
    w->lanes[w->count - 1].steps = w->lanes[w->count - 1].earlier = c.steps;
    w->lanes[w->count - 1].since = c.since;
  }
}

/* Adds up what the lanes of all parts did. Those of a sample walk side by side, so its path grows by the longest. */
static bppsa_status join_totals(const walk *w) {
  recurrent_network *n = w->n;
  recurrent_forward *f = &n->forward;
  const bppsa_forward_part *part = &n->config.part;
  double *sums = totals_of(n);
  int64_t *paths = f->paths;
  sums[DOUBTS] = memchr(f->doubtful, 1, (size_t)(n->batch * f->plan.chunks)) != NULL;
  BPPSA_TRY(part->join == NULL ? BPPSA_OK : part->join(part->context, sums_of(n), count_totals(n->batch), sums));
  for (int64_t b = 0; b < n->batch; ++b) {
    paths[b] += (int64_t)longest_of(n)[b];
  }
  f->stats.work += sums[STEPS]; /* counted in steps until the pass ends */
  f->stats.mended += (int64_t)sums[MENDED];
  f->stats.tails += (int64_t)sums[TAILS];
  f->stats.gap = fmax(f->stats.gap, *gap_of(n));
  return BPPSA_OK;
}

static void begin_phase(walk *w, bppsa_walk_phase phase) {
  w->phase = phase;
  w->count = 0;
}

/* Walks the lanes listed, which begin in this part, and those that come from the part in front of it. */
static bppsa_status finish_phase(walk *w) {
  const recurrent_network *n = w->n;
  const int64_t early = w->phase == BPPSA_WALK_SPECULATE ? n->forward.plan.warm_up : 0;
  /* May a lane that comes from another part reach the end of this one? */
  const bool waits = w->phase == BPPSA_WALK_TAIL || start_of(n, bppsa_walk_chunk_of(n, w->border - 1), early, 0) < w->first;
  memset(totals_of(n), 0, (size_t)count_totals(n->batch) * sizeof(double));
  memset(leaving(n), 0, (size_t)(slots_at(w, w->border) * n->batch) * sizeof(crossing));
  BPPSA_TRY(walk_and_count(w));
  BPPSA_TRY(waits ? BPPSA_OK : send(w));
  BPPSA_TRY(receive(w));
  w->count = 0;
  if (w->phase == BPPSA_WALK_TAIL) {
    list_tail(w);
  } else {
    list_arrivals(w);
  }
  BPPSA_TRY(walk_and_count(w));
  BPPSA_TRY(waits ? send(w) : BPPSA_OK);
  return join_totals(w);
}

/* ---- the phases ---- */

static bppsa_status speculate(walk *w) {
  const recurrent_network *n = w->n;
  const bppsa_forward_plan *plan = &n->forward.plan;
  begin_phase(w, BPPSA_WALK_SPECULATE);
  memset(n->forward.doubtful, 0, (size_t)(n->batch * plan->chunks));
  for (int64_t chunk = 0; chunk < plan->chunks; ++chunk) {
    const int64_t begin = bppsa_walk_chunk_begin(n, chunk), start = start_of(n, chunk, plan->warm_up, 0);
    const bool known = begin <= plan->warm_up; /* the chunk's lane begins where the sequence begins */
    for (int64_t b = 0; b < n->batch; ++b) {
      const int64_t anew = bppsa_walk_anew(w, b, start, begin);
      if (begins_here(w, anew > 0 ? anew : start)) {
        add_lane(w, b, chunk, anew > 0 ? anew : start,
                 known && anew <= 0 ? bppsa_walk_state(w, 0, b) : (bppsa_walk_place){NULL, NULL});
      }
      bppsa_walk_doubts(n, b)[chunk] = !known && anew <= 0 && begins_here(w, begin);
    }
  }
  return finish_phase(w);
}

/* Brings the states after firsts [b] steps to all later parts; 0: the sample needs none. */
static bppsa_status share_seeds(const walk *w, const int64_t *firsts) {
  const recurrent_network *n = w->n;
  const bppsa_forward_part *part = &n->config.part;
  const bppsa_view view = states_view(n, n->forward.seeds, n->batch);
  BPPSA_TRY(has_before(w) ? part->receive(part->context, NULL, &view) : BPPSA_OK);
  for (int64_t b = 0; b < n->batch; ++b) {
    if (firsts[b] > w->first && firsts[b] <= w->border) {
      BPPSA_TRY(
          copy_states(w, bppsa_walk_packed(w, n->forward.seeds, b), w->state_row, bppsa_walk_state(w, firsts[b], b), w->row, 1));
    }
  }
  return has_after(w) ? part->send(part->context, NULL, &view) : BPPSA_OK;
}

/* A chunk whose mend moved its last state far shows that its sample's guesses were in the wrong basin: later chunks begin anew,
 * from that state. At most once a sample. */
static bppsa_status reseed(walk *w) {
  recurrent_network *n = w->n;
  const bppsa_forward_plan *plan = &n->forward.plan;
  unsigned char *reseeded = n->forward.reseeded;
  int64_t *firsts = (int64_t *)n->forward.paths + n->batch, samples = 0; /* firsts [b]: the steps in front of the later chunks */
  for (int64_t b = 0; b < n->batch; ++b) {
    const int64_t from = plan->chunks - (int64_t)left_of(n)[b] + 1;
    firsts[b] = reseeded[b] || from >= plan->chunks ? 0 : bppsa_walk_chunk_begin(n, from);
    reseeded[b] = reseeded[b] || firsts[b] > 0;
    samples += firsts[b] > 0;
  }
  if (samples == 0) {
    return BPPSA_OK;
  }
  n->forward.stats.reseeded += samples;
  BPPSA_TRY(share_seeds(w, firsts));
  begin_phase(w, BPPSA_WALK_SPECULATE);
  for (int64_t b = 0; b < n->batch; ++b) {
    int64_t chunk = firsts[b] > 0 ? bppsa_walk_chunk_of(n, firsts[b]) : plan->chunks;
    for (; chunk < plan->chunks; ++chunk) {
      const int64_t start = start_of(n, chunk, plan->warm_up, firsts[b]), begin = bppsa_walk_chunk_begin(n, chunk);
      if (bppsa_walk_anew(w, b, start_of(n, chunk, plan->warm_up, 0), begin) > 0) {
        continue; /* its first guess was exact */
      }
      if (begins_here(w, start)) {
        add_lane(w, b, chunk, start, bppsa_walk_packed(w, n->forward.seeds, b));
      }
      bppsa_walk_doubts(n, b)[chunk] = start > firsts[b] && begins_here(w, begin);
    }
  }
  return finish_phase(w);
}

/* Mends all doubtful chunks at once. rounds: still to come behind this one. */
static bppsa_status mend(walk *w, int64_t rounds) {
  recurrent_network *n = w->n;
  const int64_t chunks = n->forward.plan.chunks;
  begin_phase(w, BPPSA_WALK_MEND);
  w->rounds = rounds;
  for (int64_t chunk = 1; chunk < chunks; ++chunk) {
    for (int64_t b = 0; b < n->batch; ++b) {
      if (bppsa_walk_doubts(n, b)[chunk]) {
        const int64_t begin = bppsa_walk_chunk_begin(n, chunk);
        bppsa_walk_doubts(n, b)[chunk] = 0;
        add_lane(w, b, chunk, begin, bppsa_walk_state(w, begin, b));
      }
    }
  }
  BPPSA_TRY(finish_phase(w));
  n->forward.stats.rounds += totals_of(n)[MENDED] > 0;
  return BPPSA_OK;
}

/* Will the rounds fail? Where nothing is forgotten, a round fixes only one chunk of a sample, and the tail does so with less work.
 * That is the case if, in some sample, all chunks from the first doubtful one to the last walk to their ends, if these are at
 * least half of all chunks, and if what the walks changed outlasts the rounds to come. Then the path is the sequential pass's,
 * whatever the other samples do. */
static bool hopeless(const recurrent_network *n) {
  for (int64_t b = 0; b < n->batch; ++b) {
    if (lasting_of(n)[b] == walking_of(n)[b] && 2 * walking_of(n)[b] >= (double)n->forward.plan.chunks) {
      return true;
    }
  }
  return false;
}

/* Has the layer done more work than chunks pay for? Then the pass fails, and the tail ends it with the least work that is left.
 * before: steps of the layers below. */
static bool overdone(const recurrent_network *n, double before) {
  const bppsa_forward_plan *plan = &n->forward.plan;
  const double steps = (double)n->forward.seq_len * (double)n->batch;
  return plan->bounded && n->forward.stats.work - before > plan->most_work * steps;
}

/* Every sample with doubtful chunks walks on from the first of them, one chunk after the other. */
static bppsa_status finish(walk *w) {
  begin_phase(w, BPPSA_WALK_TAIL);
  return finish_phase(w);
}

bppsa_status bppsa_forward_layer(recurrent_network *n, int64_t l, const void *x) {
  const bppsa_forward_plan *plan = &n->forward.plan;
  const size_t size = (size_t)size_of(n);
  walk w = {.n = n,
            .layer = l,
            .input = n->layers[l].input,
            .first = n->config.part.first,
            .border = n->config.part.first + n->config.seq_len,
            .x = x,
            .states = {n->layers[l].h, n->layers[l].c},
            .saved = n->layers[l].saved,
            .input_row = (size_t)n->layers[l].input * size,
            .row = (size_t)n->config.hidden * size,
            .state_row = (size_t)bppsa_recurrent_state_size(n) * size,
            .saved_row = (size_t)(n->cell->saved * n->config.hidden) * size,
            .lanes = n->forward.lanes};
  const int64_t before = n->forward.stats.rounds; /* of the layers below */
  const double steps = n->forward.stats.work;
  n->forward.stats.rounds = 0;
  memset(n->forward.reseeded, 0, (size_t)n->batch);
  BPPSA_TRY(speculate(&w));
  bool over = false;
  for (int64_t rounds = plan->rounds; !over && rounds > 0 && totals_of(n)[DOUBTS] > 0; --rounds) {
    BPPSA_TRY(mend(&w, rounds - 1));
    w.given_up = rounds > 1 && hopeless(n);
    over = w.given_up || overdone(n, steps);
    const bool anew = n->gpu == NULL || rounds == plan->rounds; /* as a GPU does that goes through the phases by itself */
    BPPSA_TRY(anew && !w.given_up ? reseed(&w) : BPPSA_OK);
  }
  BPPSA_TRY(totals_of(n)[DOUBTS] > 0 ? finish(&w) : BPPSA_OK);
  n->forward.stats.rounds = n->forward.stats.rounds > before ? n->forward.stats.rounds : before;
  return BPPSA_OK;
}

/* ---- a pass, and its memory ---- */

bool bppsa_forward_begin(recurrent_network *n) {
  recurrent_forward *f = &n->forward;
  const int64_t steps = f->seq_len * bppsa_recurrent_layers(&n->config);
  const bool speculates = bppsa_forward_pause_begin(&f->plan, &f->pause);
  f->stats = (bppsa_forward_stats){.speculated = speculates, .passes = 1, .path = steps, .possible = steps, .work = 1};
  if (speculates) {
    memset(f->paths, 0, (size_t)n->batch * sizeof(int64_t));
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
    f->stats.path = paths[b] > f->stats.path ? paths[b] : f->stats.path;
  }
  f->stats.work /= (double)f->stats.possible * (double)n->batch;
  f->pause = bppsa_forward_pause_after(&f->plan, &f->stats, f->pause);
}

void bppsa_forward_choose(recurrent_network *n) {
  enum { BYTES = 1 << 16, MOST = 16, GPU_MOST = 256, GROUP = BPPSA_WALK_GROUP };
  recurrent_forward *f = &n->forward;
  f->most_lanes = chunks_here(n) * n->config.batch;
  if (n->gpu != NULL) {
    const int64_t longest = (f->seq_len + f->plan.chunks - 1) / f->plan.chunks + f->plan.warm_up;
    f->window = longest < GPU_MOST ? longest : GPU_MOST;
    return;
  }
  const int64_t groups = (f->most_lanes + GROUP - 1) / GROUP;
  const int64_t fitting = BYTES / (GROUP * bppsa_walk_lane_reals(n, n->config.input) * size_of(n));
  f->workers = groups < n->threads ? groups : n->threads;
  f->window = fitting > MOST ? MOST : fitting < 1 ? 1 : fitting;
}

/* Visits the states that cross the ends of a part; behind them is room for one state of every sample. */
bppsa_status bppsa_forward_visit_states(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  recurrent_forward *f = &n->forward;
  const bppsa_recurrent_config *c = &n->config;
  const int64_t first = c->part.first, border = first + c->seq_len, state = bppsa_recurrent_state_size(n);
  if (!bppsa_forward_hosted(n)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, crossing_chunks(n, first) + 1, c->batch, state, &f->states_in, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, crossing_chunks(n, border) + 1, c->batch, state, &f->states_out, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, 1, c->batch, state, &f->seeds, bytes));
  if (n->gpu != NULL) {
    return bppsa_recurrent_visit_array(n, visit, f->window + 1, f->most_lanes, state, &f->scratch, bytes);
  }
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, 1, f->most_lanes, state, &f->starts, bytes));
  return bppsa_recurrent_visit_array(n, visit, f->workers, 1, bppsa_walk_scratch(n), &f->scratch, bytes);
}

bppsa_status bppsa_forward_visit_host(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  recurrent_forward *f = &n->forward;
  const bppsa_recurrent_config *c = &n->config;
  const int64_t first = c->part.first, border = first + c->seq_len, number = c->batch * (int64_t)sizeof(crossing);
  int64_t flags, lanes, lane_bytes;
  if (!bppsa_forward_hosted(n)) {
    return BPPSA_OK;
  }
  if (!bppsa_mul(f->plan.chunks, c->batch, &flags) || !bppsa_mul(chunks_here(n), c->batch, &lanes) ||
      !bppsa_mul(lanes, (int64_t)sizeof(lane), &lane_bytes)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "forward pass: %lld chunks of %lld samples do not fit in 64 bits",
                      (long long)f->plan.chunks, (long long)c->batch);
  }
  BPPSA_TRY(visit(&f->lanes, lane_bytes, bytes));
  if (n->gpu != NULL) {
    BPPSA_TRY(visit(&f->members, lanes * (int64_t)sizeof(int64_t), bytes));
    BPPSA_TRY(visit(&f->items, lanes * (int64_t)sizeof(bppsa_walk_item), bytes));
    BPPSA_TRY(visit(&f->found, lanes * (int64_t)sizeof(bppsa_walk_found), bytes));
  }
  BPPSA_TRY(visit(&f->doubtful, flags, bytes));
  BPPSA_TRY(visit(&f->paths, 2 * c->batch * (int64_t)sizeof(int64_t), bytes));
  BPPSA_TRY(visit(&f->totals, count_totals(c->batch) * (int64_t)sizeof(double), bytes));
  BPPSA_TRY(visit(&f->reseeded, c->batch, bytes));
  BPPSA_TRY(visit(&f->in, crossing_chunks(n, first) * number, bytes));
  return visit(&f->out, crossing_chunks(n, border) * number, bytes);
}

void bppsa_forward_free(recurrent_network *n) {
  recurrent_forward *f = &n->forward;
  enum { STATES = 5 };
  void *const arrays[] = {f->starts, f->scratch,  f->states_in, f->states_out, f->seeds,    f->lanes, f->members, f->items,
                          f->found,  f->doubtful, f->paths,     f->totals,     f->reseeded, f->in,    f->out};
  for (size_t i = n->gpu == NULL ? 0 : STATES; i < sizeof arrays / sizeof *arrays; ++i) {
    bppsa_free(arrays[i]);
  }
}
