/* The parallel backward pass of a part of a sequence (bppsa_forward_part), on a CPU: the phases of speculate_back.c, between parts.
 *
 * All parts have the chunks of the whole sequence, and the numbers of every chunk. In a phase a part walks the lanes that begin in
 * it, and those that come from the part behind it. A lane that comes to the part's first state is a message to the part in front,
 * with the numbers that it has found in its chunk so far: so every sum is added up in the order of one network. The gradient at the
 * end of a chunk that ends there goes the same way. The message is sent before the part waits for the one from behind, unless a
 * lane may walk through the whole part. Then all parts join the chunks' numbers, and take the same decisions.
 *
 * The gradient of a state has u_t in it when it leaves a part, because sums depend on their order. So the part behind has a copy of
 * the last u_t of the part in front, in the row of its first state. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "recurrent/walk_back.h"

/* Numbers of a chunk which the part that finished it gives to the others. */
enum { FINISHED, SUM, HEAD, LEAST, START, DELTAS, REACH, PROBE, STOPPED, MOVED, DOUBTFUL, WRONG, FIELDS };
/* Behind them: steps walked, mends, and mended chunks that say how long warm-ups should be. The largest numbers are the longest of
 * these mends, and each sample's longest lane. */
enum { STEPS, MENDED, NEEDED, TOTALS };
enum { LONGEST_NEED, LARGEST };

/* A lane that crosses the border of two parts; its chunk follows from its place in the message. */
typedef struct {
  int64_t goes_on, kind, final, steps, chunks;
  double sum, head, block, least, start, deltas, reach, stopped; /* of its chunk so far */
} crossing;
enum { CROSSING = sizeof(crossing) / sizeof(int64_t) };

static crossing *leaving(const recurrent_network *n) {
  return n->back.part.out;
}

static crossing *arriving(const recurrent_network *n) {
  return n->back.part.in;
}

static int64_t count_fields(const recurrent_network *n) {
  return n->back.plan.chunks * n->batch * FIELDS;
}

static double *fields_of(const recurrent_network *n, int64_t sample, int64_t index) {
  return n->back.part.numbers + (sample * n->back.plan.chunks + index) * FIELDS;
}

static double *totals_of(const recurrent_network *n) {
  return n->back.part.numbers + count_fields(n);
}

static double *largest_of(const recurrent_network *n) {
  return totals_of(n) + TOTALS;
}

static double *longest_of(const recurrent_network *n) {
  return largest_of(n) + LARGEST;
}

static int64_t count_numbers(const recurrent_network *n, int64_t batch) {
  return n->back.plan.chunks * batch * FIELDS + TOTALS + LARGEST + batch;
}

static bool has_front(const recurrent_network *n) {
  return n->config.part.first > 0;
}

static bool has_behind(const recurrent_network *n) {
  return n->config.part.first + n->config.seq_len < n->forward.seq_len;
}

static bppsa_status join(const recurrent_network *n, int64_t sums, int64_t count, double *numbers) {
  return n->config.part.join(n->config.part.context, sums, count, numbers);
}

bppsa_status bppsa_back_part_agree(const recurrent_network *n, bool *all) {
  double numbers[] = {*all ? 0 : 1, 0};
  BPPSA_TRY(join(n, 1, 2, numbers));
  *all = numbers[0] == 0;
  return BPPSA_OK;
}

static bppsa_view rows_view(const recurrent_network *n, const void *rows, int64_t count) {
  return bppsa_view_make((void *)(uintptr_t)rows, n->config.dtype, 2, (int64_t[]){count, bppsa_recurrent_state_size(n)});
}

/* ---- messages ---- */

/* Chunks of a sample that lanes may cross a border in, from the one that has the step in front of it towards earlier ones. */
static int64_t crossing_chunks(const bppsa_back_walk *w, int64_t border) {
  const recurrent_network *n = w->n;
  const int64_t most = bppsa_cut_part(n->forward.seq_len, n->back.plan.chunks, border - 1);
  int64_t least = most;
  while (!w->adds && least > 0 && bppsa_back_begin_of(n, 0, least) + n->back.warm_up > border) {
    --least;
  }
  return most - least + 1;
}

/* Bytes of numbers are those of a message's lanes, then Σ |δ_t|_2 of all chunks, which a lane through silent chunks looks at. */
static bppsa_status pass_on(const bppsa_back_walk *w, int64_t slots, void *numbers, void *gradients,
                            bppsa_status (*pass)(void *context, const bppsa_view *numbers, const bppsa_view *states)) {
  const recurrent_network *n = w->n;
  const int64_t deltas = w->adds && w->measures ? n->batch * n->back.plan.chunks : 0,
                count = slots * n->batch * CROSSING + deltas;
  const bppsa_view first = bppsa_view_make(numbers, BPPSA_I64, 1, &count),
                   second = rows_view(n, gradients, (slots + 1) * n->batch);
  return pass(n->config.part.context, &first, &second);
}

static void *at_row(const bppsa_back_walk *w, void *base, int64_t row) {
  return bppsa_back_at_row(w, base, row, w->state);
}

/* The chunk that begins at a border, behind it. -1: none does. */
static int64_t chunk_behind(const recurrent_network *n, int64_t border) {
  const int64_t index = bppsa_cut_part(n->forward.seq_len, n->back.plan.chunks, border - 1) + 1;
  return bppsa_back_begin_of(n, 0, index) == border ? index : -1;
}

/* Copies the Σ |δ_t|_2 of all chunks to a message, or those of the chunks behind a lane's own from it. */
static void write_deltas(const bppsa_back_walk *w, crossing *message, int64_t slots) {
  const recurrent_network *n = w->n;
  double *to = (double *)(void *)(message + slots * n->batch);
  for (int64_t i = 0; w->adds && w->measures && i < n->batch * n->back.plan.chunks; ++i) {
    to[i] = ((bppsa_back_chunk *)n->back.chunks)[i].deltas;
  }
}

static void read_deltas(const bppsa_back_walk *w, const crossing *message, int64_t slots, int64_t sample, int64_t index) {
  const recurrent_network *n = w->n;
  const double *from = (const double *)(const void *)(message + slots * n->batch) + sample * n->back.plan.chunks;
  for (int64_t i = index + 1; w->adds && w->measures && i < n->back.plan.chunks; ++i) {
    bppsa_back_chunk_of(n, sample, i)->deltas = from[i];
  }
}

static bppsa_status send(const bppsa_back_walk *w) {
  const recurrent_network *n = w->n;
  if (!has_front(n)) {
    return BPPSA_OK;
  }
  const int64_t slots = crossing_chunks(w, w->first), behind = chunk_behind(n, w->first);
  for (int64_t b = 0; behind >= 0 && b < n->batch; ++b) {
    memcpy(at_row(w, n->back.part.gradients_out, slots * n->batch + b), bppsa_back_end_of(w, b, behind),
           (size_t)w->state * w->real);
  }
  write_deltas(w, leaving(n), slots);
  return pass_on(w, slots, leaving(n), n->back.part.gradients_out, n->config.part.send_back);
}

/* Lists the lanes that come from the part behind. */
static bppsa_status receive(bppsa_back_walk *w) {
  const recurrent_network *n = w->n;
  const size_t bytes = (size_t)w->state * w->real;
  w->count = 0;
  if (!has_behind(n)) {
    return BPPSA_OK;
  }
  const int64_t slots = crossing_chunks(w, w->border), behind = chunk_behind(n, w->border),
                most = bppsa_cut_part(n->forward.seq_len, n->back.plan.chunks, w->border - 1);
  BPPSA_TRY(pass_on(w, slots, arriving(n), n->back.part.gradients_in, n->config.part.receive_back));
  for (int64_t b = 0; behind >= 0 && b < n->batch; ++b) {
    memcpy(bppsa_back_end_of(w, b, behind), at_row(w, n->back.part.gradients_in, slots * n->batch + b), bytes);
  }
  for (int64_t slot = 0; slot < slots; ++slot) {
    for (int64_t b = 0; b < n->batch; ++b) {
      const crossing *from = &arriving(n)[slot * n->batch + b];
      const void *gradient = at_row(w, n->back.part.gradients_in, slot * n->batch + b);
      const int64_t index = most - slot, top = bppsa_back_begin_of(n, b, index + 1);
      bppsa_back_chunk *c = bppsa_back_chunk_of(n, b, index);
      if (!from->goes_on) {
        continue;
      }
      c->sum = from->sum;
      c->head = from->head;
      c->block = from->block;
      c->least = from->least;
      c->start = from->start;
      c->deltas = from->deltas;
      c->reach = from->reach;
      c->stopped = from->stopped;
      read_deltas(w, arriving(n), slots, b, index);
      memcpy(bppsa_back_lane_gradient(w, w->count), gradient, bytes);
      if (!w->adds) { /* where its warm-up may have ended, or the guess goes on */
        memcpy(bppsa_back_start_of(w, b, index), gradient, bytes);
      }
      w->lanes[w->count++] = (bppsa_back_lane){.sample = b,
                                               .chunk = index,
                                               .at = w->border,
                                               .top = top,
                                               .bottom = bppsa_back_begin_of(n, b, index),
                                               .kind = (bppsa_back_kind)from->kind,
                                               .final = from->final,
                                               .steps = from->steps,
                                               .chunks = from->chunks};
    }
  }
  return BPPSA_OK;
}

/* ---- a phase ---- */

/* Notes what a lane leaves at w->first. */
static void note_crossing(const bppsa_back_walk *w, int64_t lane) {
  const recurrent_network *n = w->n;
  const bppsa_back_lane *l = &w->lanes[lane];
  const int64_t slot = bppsa_cut_part(n->forward.seq_len, n->back.plan.chunks, w->first - 1) - l->chunk,
                place = slot * n->batch + l->sample;
  const bppsa_back_chunk *c = bppsa_back_chunk_of(n, l->sample, l->chunk);
  leaving(n)[place] = (crossing){.goes_on = 1,
                                 .kind = (int64_t)l->kind,
                                 .final = l->final,
                                 .steps = l->steps,
                                 .chunks = l->chunks,
                                 .sum = c->sum,
                                 .head = c->head,
                                 .block = c->block,
                                 .least = c->least,
                                 .start = c->start,
                                 .deltas = c->deltas,
                                 .reach = c->reach,
                                 .stopped = c->stopped};
  memcpy(at_row(w, n->back.part.gradients_out, place), bppsa_back_lane_gradient(w, lane), (size_t)w->state * w->real);
}

/* Notes the numbers of a chunk that a lane has gone through, or in which it has stopped. */
static void note_chunk(const bppsa_back_walk *w, int64_t sample, int64_t index) {
  const bppsa_back_chunk *c = bppsa_back_chunk_of(w->n, sample, index);
  double *f = fields_of(w->n, sample, index);
  const double numbers[FIELDS] = {[FINISHED] = 1,
                                  [SUM] = c->sum,
                                  [HEAD] = c->head,
                                  [LEAST] = c->least,
                                  [START] = c->start,
                                  [DELTAS] = c->deltas,
                                  [REACH] = c->reach,
                                  [PROBE] = c->probe,
                                  [STOPPED] = c->stopped,
                                  [MOVED] = c->moved,
                                  [WRONG] = !w->adds && !bppsa_back_is_finite(w, sample, index)};
  const double doubtful = f[DOUBTFUL];
  memcpy(f, numbers, sizeof numbers);
  f[DOUBTFUL] = doubtful;
}

/* All lanes listed walk; then what they did is noted. */
static void walk(bppsa_back_walk *w) {
  const recurrent_network *n = w->n;
  int64_t *first_chunks = n->back.part.chunks;
  bppsa_backward_need *need = &w->n->back.need;
  if (w->count == 0) {
    return;
  }
  for (int64_t i = 0; i < w->count; ++i) {
    first_chunks[i] = w->lanes[i].chunk;
  }
  bppsa_back_walk_lanes(w);
  for (int64_t i = 0; i < w->count; ++i) {
    const bppsa_back_lane *l = &w->lanes[i];
    const bool leaves = bppsa_back_leaves(w, l);
    for (int64_t index = first_chunks[i]; index > l->chunk; --index) {
      note_chunk(w, l->sample, index);
    }
    if (leaves) {
      note_crossing(w, i);
      continue;
    }
    note_chunk(w, l->sample, l->chunk);
    if (w->adds && l->at == l->bottom && l->chunk > 0) {
      fields_of(n, l->sample, l->chunk - 1)[DOUBTFUL] = 1;
    }
    totals_of(n)[STEPS] += (double)l->steps;
    totals_of(n)[MENDED] += (double)l->chunks;
    longest_of(n)[l->sample] = fmax(longest_of(n)[l->sample], (double)l->steps);
  }
  if (w->adds) {
    const bppsa_backward_need before = *need;
    *need = (bppsa_backward_need){0};
    bppsa_back_note_need(w);
    totals_of(n)[NEEDED] += (double)need->mended;
    largest_of(n)[LONGEST_NEED] = fmax(largest_of(n)[LONGEST_NEED], (double)need->longest);
    *need = before;
  }
}

/* Takes the numbers of all chunks that lanes finished, in whichever part. */
static bppsa_status join_numbers(const bppsa_back_walk *w, bool *wrong) {
  recurrent_network *n = w->n;
  recurrent_backward *back = &n->back;
  *wrong = false;
  BPPSA_TRY(join(n, count_fields(n) + TOTALS, count_numbers(n, n->batch), back->part.numbers));
  for (int64_t b = 0; b < n->batch; ++b) {
    for (int64_t index = 0; index < back->plan.chunks; ++index) {
      const double *f = fields_of(n, b, index);
      bppsa_back_chunk *c = bppsa_back_chunk_of(n, b, index);
      c->doubtful = w->adds ? f[DOUBTFUL] > 0 || (c->doubtful && f[FINISHED] == 0) : c->doubtful;
      if (f[FINISHED] == 0) {
        continue;
      }
      c->sum = f[SUM];
      c->head = f[HEAD];
      c->least = f[LEAST];
      c->start = f[START];
      c->deltas = f[DELTAS];
      c->reach = f[REACH];
      c->probe = f[PROBE];
      c->stopped = f[STOPPED];
      c->moved = f[MOVED];
      *wrong = *wrong || f[WRONG] > 0;
    }
    back->paths[b] += (int64_t)longest_of(n)[b];
  }
  back->stats.work += totals_of(n)[STEPS];
  back->stats.mended += (int64_t)totals_of(n)[MENDED];
  return BPPSA_OK;
}

/* Walks the lanes listed, which begin in this part, and those that come from the part behind it. */
static bppsa_status finish_phase(bppsa_back_walk *w, bool *wrong) {
  const recurrent_network *n = w->n;
  const int64_t slots = has_front(n) ? crossing_chunks(w, w->first) : 0;
  /* May a lane that comes from another part reach the end of this one, or the end of a chunk there? */
  bool waits = w->adds && w->measures;
  if (has_behind(n)) {
    const int64_t least =
        bppsa_cut_part(n->forward.seq_len, n->back.plan.chunks, w->border - 1) - crossing_chunks(w, w->border) + 1;
    waits = waits || bppsa_back_begin_of(n, 0, least) <= w->first;
  }
  memset(n->back.part.numbers, 0, (size_t)count_numbers(n, n->batch) * sizeof(double));
  memset(leaving(n), 0, (size_t)(slots * n->batch) * sizeof(crossing));
  walk(w);
  BPPSA_TRY(waits ? BPPSA_OK : send(w));
  BPPSA_TRY(receive(w));
  walk(w);
  BPPSA_TRY(waits ? send(w) : BPPSA_OK);
  return join_numbers(w, wrong);
}

/* ---- the phases ---- */

/* A chunk is silent if it is so in all parts, and some chunk is if one is. */
static bppsa_status join_looks(bppsa_back_walk *w) {
  recurrent_network *n = w->n;
  const int64_t count = n->batch * n->back.plan.chunks;
  bppsa_back_chunk *chunks = n->back.chunks;
  double *loud = n->back.part.numbers;
  for (int64_t i = 0; i < count; ++i) {
    loud[i] = !chunks[i].silent;
  }
  loud[count] = 0; /* the largest of nothing */
  BPPSA_TRY(join(n, count, count + 1, loud));
  w->measures = false;
  for (int64_t i = 0; i < count; ++i) {
    chunks[i].silent = loud[i] == 0;
    w->measures = w->measures || chunks[i].silent;
  }
  return BPPSA_OK;
}

static bppsa_status join_comparison(const bppsa_back_walk *w) {
  recurrent_network *n = w->n;
  const int64_t chunks = n->back.plan.chunks, count = n->batch * chunks;
  double *sizes = n->back.part.numbers, *misfits = sizes + count;
  for (int64_t b = 0; b < n->batch; ++b) {
    for (int64_t index = 0; index < chunks; ++index) {
      const bppsa_back_chunk *c = bppsa_back_chunk_of(n, b, index);
      const bool here = c->doubtful && bppsa_back_is_here(w, bppsa_back_begin_of(n, b, index + 1));
      sizes[b * chunks + index] = here ? c->size : 0;
      misfits[b * chunks + index] = here && !c->fits;
    }
  }
  misfits[count] = 0; /* the largest of nothing */
  BPPSA_TRY(join(n, 2 * count, 2 * count + 1, sizes));
  for (int64_t i = 0; i < count; ++i) {
    bppsa_back_chunk *c = (bppsa_back_chunk *)n->back.chunks + i;
    if (c->doubtful) {
      c->size = sizes[i];
      c->fits = misfits[i] == 0;
    }
  }
  return BPPSA_OK;
}

/* Lists the lanes of the next round. */
static bppsa_status begin_round(bppsa_back_walk *w, bool tail) {
  bppsa_back_compare(w);
  BPPSA_TRY(join_comparison(w));
  bppsa_back_list_differences(w, tail);
  return BPPSA_OK;
}

/* *done: false if the layer is better left to BP; then u_t and g_T are as they were. */
static bppsa_status speculate(recurrent_network *n, int64_t l, const void *x, bool *done) {
  recurrent_backward *back = &n->back;
  bppsa_back_walk w = bppsa_back_walk_of(n, l, x);
  bool wrong;
  w.delta_x = n->pre;
  w.delta_h = n->cell->split ? n->delta_h : NULL;
  *done = false;
  bppsa_back_look(&w);
  BPPSA_TRY(join_looks(&w));
  bppsa_back_list_guesses(&w);
  BPPSA_TRY(finish_phase(&w, &wrong));
  if (wrong) {
    return BPPSA_OK;
  }
  bppsa_back_weigh(&w);
  w.adds = true;
  BPPSA_TRY(begin_round(&w, false));
  int64_t rounds = 0;
  while (w.mends > 0) {
    if (bppsa_back_leaks(&w)) {
      return BPPSA_OK;
    }
    BPPSA_TRY(finish_phase(&w, &wrong));
    if (++rounds == 1) {
      if (bppsa_back_hopeless(&w)) {
        return BPPSA_OK;
      }
      back->need.mended += (int64_t)totals_of(n)[NEEDED];
      back->need.longest = (int64_t)fmax((double)back->need.longest, largest_of(n)[LONGEST_NEED]);
    }
    BPPSA_TRY(begin_round(&w, rounds >= back->plan.rounds));
  }
  back->stats.rounds = rounds > back->stats.rounds ? rounds : back->stats.rounds;
  bppsa_back_count_dropped(&w);
  for (int64_t b = 0; !has_front(n) && b < n->batch; ++b) {
    memcpy(at_row(&w, n->g, b), bppsa_back_end_of(&w, b, 0), (size_t)w.state * w.real);
  }
  *done = true;
  return BPPSA_OK;
}

/* Memory of a layer for the last u_t, or for g_0, on their ways to other parts: they stay as they are until the pass ends. */
static void *carried_of(const recurrent_network *n, int64_t l, bool injected) {
  return bppsa_recurrent_offset(n, n->back.part.carried, (2 * l + injected) * n->batch * bppsa_recurrent_state_size(n));
}

/* BP, from the gradient of the part behind to that of the part in front. */
static bppsa_status propagate(recurrent_network *n, int64_t l) {
  const bppsa_forward_part *part = &n->config.part;
  const int64_t state = n->batch * bppsa_recurrent_state_size(n);
  if (has_behind(n)) {
    const bppsa_view view = rows_view(n, bppsa_recurrent_offset(n, n->g, n->config.seq_len * state), n->batch);
    BPPSA_TRY(part->receive_back(part->context, NULL, &view));
  }
  BPPSA_TRY(n->backend->layer_backward(n, l));
  if (!has_front(n)) {
    return BPPSA_OK;
  }
  const bppsa_view view = rows_view(n, carried_of(n, l, false), n->batch);
  memcpy(view.data, n->g, bppsa_view_bytes(&view));
  return part->send_back(part->context, NULL, &view);
}

/* Brings u_t of the part in front's last state to row 0 of g. */
static bppsa_status share_injected(const recurrent_network *n, int64_t l) {
  const bppsa_forward_part *part = &n->config.part;
  const int64_t state = n->batch * bppsa_recurrent_state_size(n);
  if (has_behind(n)) {
    const bppsa_view view = rows_view(n, carried_of(n, l, true), n->batch);
    memcpy(view.data, bppsa_recurrent_offset(n, n->g, n->config.seq_len * state), bppsa_view_bytes(&view));
    BPPSA_TRY(part->send(part->context, NULL, &view));
  }
  const bppsa_view view = rows_view(n, n->g, n->batch);
  return has_front(n) ? part->receive(part->context, NULL, &view) : BPPSA_OK;
}

bppsa_status bppsa_back_part_layer(recurrent_network *n, int64_t l, const void *x) {
  bool done = false;
  BPPSA_TRY(bppsa_recurrent_injected(n, l) ? share_injected(n, l) : BPPSA_OK);
  if (n->back.stats.speculated) {
    BPPSA_TRY(speculate(n, l, x, &done));
    if (!done) {
      bppsa_back_given_up(n);
      bppsa_reset_state_begin(n);
    }
  }
  return done ? BPPSA_OK : propagate(n, l);
}

/* ---- memory ---- */

bppsa_status bppsa_back_part_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  recurrent_back_part *p = &n->back.part;
  const int64_t chunks = n->back.plan.chunks, batch = n->config.batch, state = bppsa_recurrent_state_size(n);
  int64_t lanes, all;
  if (!bppsa_back_is_part(n)) {
    return BPPSA_OK;
  }
  /* A message has a lane in every chunk at most. A chunk's Σ |δ_t|_2 follows them. */
  if (!bppsa_mul(chunks, batch, &lanes) || !bppsa_mul(lanes, (int64_t)(sizeof(crossing) + sizeof(double) * (FIELDS + 1)), &all)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "backward pass: the messages of %lld chunks of %lld samples do not fit in 64 bits",
                      (long long)chunks, (long long)batch);
  }
  const int64_t message = lanes * (int64_t)(sizeof(crossing) + sizeof(double));
  BPPSA_TRY(visit((void **)&p->numbers, (count_numbers(n, batch) + 1) * (int64_t)sizeof(double), bytes));
  BPPSA_TRY(visit((void **)&p->chunks, lanes * (int64_t)sizeof *p->chunks, bytes));
  BPPSA_TRY(visit(&p->in, message, bytes));
  BPPSA_TRY(visit(&p->out, message, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, chunks + 1, batch, state, &p->gradients_in, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, chunks + 1, batch, state, &p->gradients_out, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, 2 * n->config.layers, batch, state, &p->carried, bytes));
  return bppsa_back_sums_visit(n, visit, bytes);
}
