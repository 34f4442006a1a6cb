/* The parallel backward pass (recurrent/parallel_backward.h) of a wide layer, 32 < H <= 512: the phases of
 * speculate_back_kernel.cuh. speculate_back_wide_walk.cuh has the walks of its teams.
 *
 * Where a team is one block, up to eight teams of a sample form a cluster, and take all its chunks through all phases in one
 * launch. Otherwise, and for more chunks, speculation is a launch of its own with a team for each chunk; launches of single rounds
 * may follow; the last launch does what is left. Between launches memory holds how far a sample is (back_kept). */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_BACK_WIDE_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_BACK_WIDE_CUH

#include "recurrent/gpu/speculate_back_wide_walk.cuh"

/* ---- phases ---- */

/* Prepares what a team does in a chunk that it speculates. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ void back_wide_guess(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                                back_wide_walk<real, cell, shape> *w) {
  const int64_t width = (1 + cell<real>::PAIR) * w->hidden;
  o->bottom = back_cut(*o, o->p);
  o->top = back_cut(*o, o->p + 1);
  back_seek_guess(c, o);
  const bool probes = !back_is_exact(*o) && back_wide_is_silent<real, cell>(c, *o, o->bottom, o->at);
  if (probes) {
    o->kind = BACK_PROBE;
    o->at = o->top;
    back_wide_take(s.probes + o->p * width + o->j, w);
  } else {
    back_wide_take(back_from(c, s, *o, width) + o->j, w);
  }
}

/* Takes what a speculating walk has found. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ void back_wide_settle_guess(const layer_arrays<real> &c, const back_arrays<real> &s,
                                                       const back_course &o, bool notes, int taken,
                                                       const back_wide_measure &found, back_wide_walk<real, cell, shape> *w) {
  enum { K = cell<real>::MATRICES };
  const int64_t at = back_at<real, cell>(c, o, o.p);
  const bool probe = o.kind == BACK_PROBE;
  if (probe) {
    w->g = w->g_c = 0;
    back_wide_put(o, *w, s.starts + at);
    back_clear<real, K>(c, o, o.bottom, o.top);
  }
  back_wide_put(o, *w, s.ends[0] + at);
  if (notes) {
    const back_guessed g = {taken,
                            probe,
                            back_is_exact(o),
                            back_is_cut(c, o),
                            (double)w->sum,
                            (double)w->start,
                            found.largest,
                            (double)w->head,
                            (double)w->least,
                            probe ? found.sizes : found.squares / K,
                            found.length};
    back_note_guessed(c, s, o, o.p, g);
  }
}

/* Compares a chunk's boundary. True: the difference, which the threads then have, must walk through the chunk. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ bool back_wide_doubts(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                                 const wide_lane<real, shape> &l, back_wide_walk<real, cell, shape> *w) {
  enum { PAIR = cell<real>::PAIR };
  const int64_t at = back_at<real, cell>(c, *o, o->p), behind = at + c.batch * (1 + PAIR) * w->hidden;
  const real *ends = place_of_round(s.ends, o->in);
  if (back_found(c, s, *o, o->p)->doubtful[o->in] == 0) {
    return false;
  }
  const real end = ends[behind], end_c = PAIR ? ends[behind + PAIR * w->hidden] : 0;
  w->g = end - s.starts[at];
  w->g_c = PAIR ? end_c - s.starts[at + PAIR * w->hidden] : 0;
  const back_wide_measure found = back_wide_look(l, w);
  o->begun = found.largest;
  back_seek_mend(c, o);
  const bool accepted = back_accepts(c, s, *o, o->p, found.largest, found.length);
  if (!accepted && o->unit) {
    s.starts[at] = end;
    if constexpr (PAIR) {
      s.starts[at + w->hidden] = end_c;
    }
  }
  return !accepted;
}

/* A chunk that a round leaves as it is. */
template <typename real, template <typename> class cell>
__device__ __forceinline__ void back_wide_keep(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                               bool notes) {
  const int64_t at = back_at<real, cell>(c, o, o.p);
  if (o.unit) {
    place_of_round(s.ends, 1 - o.in)[at] = place_of_round(s.ends, o.in)[at];
    if constexpr (cell<real>::PAIR) {
      place_of_round(s.ends, 1 - o.in)[at + c.hidden] = place_of_round(s.ends, o.in)[at + c.hidden];
    }
  }
  if (notes) {
    back_note_kept(c, s, o, o.p);
  }
}

/* Takes what a difference has found. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ void back_wide_settle_mend(const layer_arrays<real> &c, const back_arrays<real> &s,
                                                      const back_course &o, bool notes, int taken, const back_wide_measure &found,
                                                      back_wide_walk<real, cell, shape> *w) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  const bool tail = o.kind == BACK_TAIL, reached = w->left <= 0 && !back_ends_at_reset(c, o);
  const int64_t at = back_at<real, cell>(c, o, o.p);
  if (o.unit) {
    const real *ends = place_of_round(s.ends, o.in);
    w->g = ends[at] + (reached ? w->g : 0);
    w->g_c = PAIR ? ends[at + PAIR * w->hidden] + (reached ? w->g_c : 0) : 0;
    back_wide_put(o, *w, place_of_round(s.ends, tail ? o.in : 1 - o.in) + at);
  }
  if (notes) {
    const back_mended m = {taken, reached, tail, o.begun, found.largest, sqrt(found.squares / K), (double)w->sum};
    back_note_mended(c, s, o, o.p, m);
  }
}

/* What follows a phase that all teams have ended, here or in the last launch. before: launches of single rounds that have been. */
template <typename real>
__device__ __forceinline__ void back_wide_turn(const layer_arrays<real> &c, const back_arrays<real> &s, int before,
                                               back_course *o) {
  if (o->kind == BACK_CHUNK && before > 0) {
    const back_kept *kept = s.kept + before % 2 * c.batch + o->b;
    o->in = kept->in;
    o->rounds = kept->rounds;
    o->early = kept->early;
    o->longest = kept->longest;
    o->path = kept->path;
    o->kind = (back_kind)kept->kind;
  } else if (o->kind == BACK_CHUNK) {
    o->kind = !back_look(c, s, o->team, o->teams, o) ? BACK_WHOLE : o->chunks > 1 ? BACK_MEND : BACK_DONE;
    o->p = o->team;
    return;
  }
  if (o->kind == BACK_MEND) {
    o->in = 1 - o->in;
    o->kind = back_after_round(c, s, o);
  }
  o->p = o->kind == BACK_TAIL ? o->chunks - 2 : o->team;
}

/* Finds what the team walks next; meets the sample's other teams between phases. False: it has done all. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ bool back_wide_next(const layer_arrays<real> &c, const back_arrays<real> &s, int blocks, int parts,
                                               int before, bool notes, const wide_lane<real, shape> &l, back_course *o,
                                               back_wide_walk<real, cell, shape> *w) {
  const int64_t width = (1 + cell<real>::PAIR) * w->hidden;
  for (;;) {
    if (o->kind == BACK_CHUNK && (parts & BACK_GUESS) != 0 && o->p < o->chunks) {
      back_wide_guess(c, s, o, w);
      return true;
    }
    if (o->kind == BACK_MEND || o->kind == BACK_TAIL) {
      const bool tail = o->kind == BACK_TAIL;
      for (; tail ? o->team == 0 && o->p >= 0 : o->p < o->chunks; o->p += tail ? -1 : o->teams) {
        if (tail) {
          rest_meet(shape::CLUSTER); /* all threads of the team see what the last walk wrote */
        }
        if (back_wide_doubts(c, s, o, l, w)) {
          return true;
        }
        if (!tail) {
          back_wide_keep<real, cell>(c, s, *o, notes);
        }
      }
    }
    if (o->kind == BACK_WHOLE) {
      o->given_up = !o->idle;
      o->at = o->top = o->length;
      o->bottom = 0;
      back_wide_take(back_from(c, s, *o, width) + o->j, w);
      return o->team == 0;
    }
    const bool begins = o->kind == BACK_CHUNK && (parts & BACK_GUESS) == 0; /* speculation was another launch */
    if (o->kind == BACK_TAIL || o->kind == BACK_DONE || (!begins && (parts & BACK_REST) == 0)) {
      return false;
    }
    if (!begins) {
      rest_meet(blocks * shape::CLUSTER);
    }
    back_wide_turn(c, s, before, o);
    if ((parts & BACK_REST) == 0 && o->team == 0 && notes && o->lane == 0) {
      const back_kept kept = {o->in, o->rounds, o->early, o->longest, o->path, (int)o->kind};
      s.kept[(before + 1) % 2 * c.batch + o->b] = kept;
    }
    if ((parts & BACK_REST) == 0 && o->kind != BACK_MEND) {
      return false;
    }
  }
}

/* Pairs of steps that a walk takes before so many places are over, or before it comes to a reset. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ int back_wide_pairs(const layer_arrays<real> &c, const back_course &o, int places,
                                               const back_wide_walk<real, cell, shape> &w) {
  const int at = o.bottom + w.left;
  if (w.skip != 0) {
    return 0;
  }
  return (c.resets.mask != NULL ? at - 1 - (int)c.resets.last(o.b, at - places, at) : places) / 2;
}

/* Walks, and takes what the walk has found. A difference may stop where it is small at two steps in turn, and measured to be small
 * behind them. */
template <typename real, template <typename> class cell, typename shape>
__device__ __forceinline__ void back_wide_go(const layer_arrays<real> &c, const back_arrays<real> &s, bool notes,
                                             const wide_lane<real, shape> &l, back_course *o,
                                             back_wide_walk<real, cell, shape> *w) {
  const int all = o->at - o->bottom;
  const bool differs = o->kind == BACK_MEND || o->kind == BACK_TAIL, relu = c.relu;
  bool counts = false; /* the walk is behind its warm-up */
  int in_mean = 0;
  back_wide_measure found;
  real stop = -1; /* never */
  if (differs) {
    const back_chunk *f = back_found(c, s, *o, o->p);
    stop = f->silent == 0 ? (real)(s.stop * fmin(f->scale, f->least)) : stop;
  }
  bool goes_on = true;
  const auto ended = [&](int steps) { /* a pair, of so many steps */
                                      ++w->round;
                                      w->left -= 2;
                                      w->start = w->start < 0 ? w->early : w->start;
                                      in_mean += steps;
                                      if (in_mean == BACK_MEAN) {
                                        back_wide_note_mean(w);
                                        in_mean = 0;
                                      }
                                      goes_on = !(w->early <= stop && w->late <= stop);
  };
  back_wide_begin(c, s, *o, l, w);
  do {
    goes_on = true;
    while (w->left > 0 && goes_on) {
      const int places = counts ? w->left : w->left - (o->top - o->bottom); /* of the chunk, or of the warm-up */
      if (places == 0) {
        if (o->kind == BACK_CHUNK) {
          back_wide_put(*o, *w, s.starts + back_at<real, cell>(c, *o, o->p));
        }
        back_wide_count(c, *o, o->kind != BACK_PROBE, w);
        counts = true;
        in_mean = 0;
        continue;
      }
      BPPSA_UNROLL_BY(1)
      for (int pairs = back_wide_pairs(c, *o, places, *w); pairs != 0 && goes_on; --pairs) {
        back_wide_step(0, 0, relu, l, w);
        back_wide_step(1, 1, relu, l, w);
        ended(2);
      }
      if (goes_on && w->left > (counts ? 0 : o->top - o->bottom)) {
        ended(back_wide_apart(c, *o, o->bottom + w->left - w->skip, l, w));
      }
    }
    found = back_wide_look(l, w);
  } while (w->left > 0 && !(found.largest <= (double)stop));
  if (w->head < 0) { /* fewer steps than a mean has */
    w->head = w->least = w->sum / (real)(in_mean > 0 ? in_mean : 1);
  }
  const int taken = all - (w->left > 0 ? w->left : 0);
  if (differs) {
    back_wide_settle_mend(c, s, *o, notes, taken, found, w);
    o->path += o->kind == BACK_TAIL ? taken : 0;
    o->p += o->kind == BACK_TAIL ? -1 : o->teams;
  } else if (o->kind == BACK_WHOLE) {
    o->path += taken;
    o->kind = BACK_DONE;
  } else {
    back_wide_settle_guess(c, s, *o, notes, taken, found, w);
    o->kind = BACK_CHUNK;
    o->p += o->teams;
  }
}

/* Takes each sample through the phases in `parts`, with `blocks` teams of a cluster for each, or in a launch of one phase with a
 * team for each chunk. before: launches of single rounds so far. first, last: is it the first, the last layer of the pass? */
template <typename real, template <typename> class cell, typename shape>
__global__ void __launch_bounds__(shape::THREADS, 1)
    bppsa_recurrent_back_wide(layer_arrays<real> c, back_arrays<real> s, int blocks, int parts, int before, bool first,
                              bool last) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  BPPSA_SHARED(real, shared);
  const int team = (int)blockIdx.x / shape::CLUSTER;
  const bool rest = (parts & BACK_REST) != 0;
  back_course o = {};
  o.idle = s.report->state.pause.left > 0 || s.report->misses != 0;
  if (o.idle && !rest) {
    return;
  }
  const wide_lane<real, shape> l(shared);
  const bool notes = threadIdx.x < WARP_LANES && blockIdx.x % shape::CLUSTER == 0; /* one warp of a team writes what it found */
  back_wide_walk<real, cell, shape> w = {};
  w.exists = launch_number(l.unit < c.hidden) != 0;
  w.hidden = back_wide_number(c.hidden);
  w.row = back_wide_number(K * c.batch * c.hidden);
  o.lane = (int)threadIdx.x % WARP_LANES;
  o.unit = w.exists && l.same == 0; /* of the threads that have the unit, one writes */
  o.j = w.exists ? l.unit : 0;
  o.b = team / blocks;
  o.team = team % blocks;
  o.teams = blocks;
  o.p = o.team;
  o.length = (int)(s.lengths != NULL ? s.lengths[o.b] : c.steps);
  back_cut_up(s, &o);
  o.warm_up = (int)(s.report->state.warm_up > 0 ? s.report->state.warm_up : s.warm_up);
  o.warm_up = o.warm_up < o.length ? o.warm_up : o.length;
  o.kind = o.idle ? BACK_WHOLE : BACK_CHUNK;
  if ((parts & BACK_GUESS) != 0) { /* behind the sample's end */
    const int64_t behind = c.steps - o.length;
    back_clear<real, K>(c, o, o.length + (int)bppsa_cut(behind, o.teams, o.team),
                        o.length + (int)bppsa_cut(behind, o.teams, o.team + 1));
  }
  if (o.idle) {
    rest_meet(blocks * shape::CLUSTER); /* all know that the pass is BP; the last warp may change that */
  }
  while (back_wide_next(c, s, blocks, parts, before, notes, l, &o, &w)) {
    back_wide_go(c, s, notes, l, &o, &w);
  }
  if (o.team == 0 && rest) {
    if (!o.idle && !o.given_up && o.unit) {
      back_wide_take(place_of_round(s.ends, o.in) + back_at<real, cell>(c, o, 0), &w);
    }
    if (c.want_input) { /* g_0 */
      back_wide_put(o, w, c.g + o.b * (1 + PAIR) * c.hidden + o.j);
    }
    if (notes) {
      __syncwarp(); /* all lanes see what the tail wrote */
      back_tell(c, s, o, first, last);
    }
  }
  l.finish();
}

#endif
