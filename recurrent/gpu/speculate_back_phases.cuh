/* The phases of the parallel backward pass on a GPU, H <= 32 (recurrent/gpu/speculate_back_kernel.cuh): what a warp walks next,
 * and what it takes from a walk. */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_BACK_PHASES_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_BACK_PHASES_CUH

#include "recurrent/gpu/speculate_back_walk.cuh"

/* Prepares what a warp does in a chunk that it speculates. Where the sample begins anew behind a state of the warm-up, that state's
 * gradient is u alone, so that the walk starts there and is exact. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_guess(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                           back_walk<real> *w) {
  o->bottom = back_cut(*o, o->p);
  o->top = back_cut(*o, o->p + 1);
  back_seek_guess(c, o);
  const bool probes = o->kind == BACK_PROBE || (!back_is_exact(*o) && !c.injected);
  const int64_t width = (1 + cell<real>::PAIR) * c.hidden;
  if (probes) {
    o->kind = BACK_PROBE;
    o->at = o->top;
    back_take<cell<real>::PAIR != 0>(s.probes + o->p * width + o->j, c.hidden, w);
  } else {
    back_take<cell<real>::PAIR != 0>(back_from(c, s, *o, width) + o->j, c.hidden, w);
  }
  back_begin<real, cell, HP, KIND>(c, *o, c.injected && !probes, false, w);
}

/* The warp's walk is at the later end of its chunk. False: nothing is injected there, so that another vector must walk. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ bool back_enter(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                           int from, back_walk<real> *w) {
  if (o.kind == BACK_CHUNK) {
    const bool zeros = !back_is_exact(o) && !__any_sync(0xffffffffu, w->g != 0 || w->g_c != 0);
    if (zeros && back_is_silent<real, cell>(c, o, o.bottom, from)) {
      return false;
    }
    back_put<cell<real>::PAIR != 0>(o, *w, c.hidden, s.starts + back_at<real, cell>(c, o, o.p));
  }
  back_count<cell<real>::PAIR != 0>(w);
  return true;
}

/* Takes what a speculating walk has found. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_settle_guess(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                                  int taken, back_walk<real> *w) {
  enum { K = cell<real>::MATRICES };
  const int64_t at = back_at<real, cell>(c, o, o.p);
  const bool probe = o.kind == BACK_PROBE;
  const double length = probe ? back_length<cell<real>::PAIR != 0>(o, *w) : 0, size = (double)w->size;
  const double sizes = warp_sum(!o.unit ? 0 : probe ? size : size * size) / (probe ? 1 : K);
  const double end = (double)back_size<cell<real>::PAIR != 0>(*w);
  const back_guessed found = {
      taken, probe, back_is_exact(o), back_is_cut(c, o), (double)w->sum, (double)w->start, end, (double)w->head, (double)w->least,
      sizes, length};
  if (probe) {
    w->g = w->g_c = 0;
    back_put<cell<real>::PAIR != 0>(o, *w, c.hidden, s.starts + at);
    back_clear<real, K>(c, o, o.bottom, o.top);
  }
  back_put<cell<real>::PAIR != 0>(o, *w, c.hidden, s.ends[0] + at);
  back_note_guessed(c, s, o, o.p, found);
}

/* Compares a chunk's boundary. True: the difference, which the lane then has, must walk. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ bool back_doubts(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                            back_walk<real> *w) {
  enum { PAIR = cell<real>::PAIR };
  const int64_t at = back_at<real, cell>(c, *o, o->p), behind = at + c.batch * (1 + PAIR) * c.hidden;
  const real *ends = place_of_round(s.ends, o->in);
  const back_chunk *f = back_found(c, s, *o, o->p);
  if (f->doubtful[o->in] == 0) {
    return false;
  }
  const real end = ends[behind], end_c = PAIR ? ends[behind + PAIR * c.hidden] : 0;
  w->g = end - s.starts[at];
  w->g_c = PAIR ? end_c - s.starts[at + PAIR * c.hidden] : 0;
  o->begun = (double)back_size<cell<real>::PAIR != 0>(*w);
  const bool accepted = back_accepts(c, s, *o, o->p, o->begun, f->silent != 0 ? back_length<cell<real>::PAIR != 0>(*o, *w) : 0);
  if (!accepted && o->unit) {
    s.starts[at] = end;
    if constexpr (PAIR) {
      s.starts[at + c.hidden] = end_c;
    }
  }
  return !accepted;
}

/* Prepares the walk of a difference through its chunk. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_mend(const layer_arrays<real> &c, back_course *o, back_walk<real> *w) {
  back_seek_mend(c, o);
  back_begin<real, cell, HP, KIND>(c, *o, false, true, w);
}

/* A chunk that a round leaves as it is. */
template <typename real, template <typename> class cell>
__device__ __forceinline__ void back_keep(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o) {
  const int64_t at = back_at<real, cell>(c, o, o.p);
  if (o.unit) {
    place_of_round(s.ends, 1 - o.in)[at] = place_of_round(s.ends, o.in)[at];
    if constexpr (cell<real>::PAIR) {
      place_of_round(s.ends, 1 - o.in)[at + c.hidden] = place_of_round(s.ends, o.in)[at + c.hidden];
    }
  }
  back_note_kept(c, s, o, o.p);
}

/* Takes what a difference has found. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_settle_mend(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                                 int taken, back_walk<real> *w) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  const bool tail = o.kind == BACK_TAIL, reached = w->left <= 0 && !back_ends_at_reset(c, o);
  const int64_t at = back_at<real, cell>(c, o, o.p);
  const double moved = (double)back_size<cell<real>::PAIR != 0>(*w), size = (double)w->size,
               squares = warp_sum(o.unit ? size * size : 0);
  const back_mended found = {taken, reached, tail, o.begun, moved, sqrt(squares / K), (double)w->sum};
  const real *ends = place_of_round(s.ends, o.in);
  w->g = ends[at] + (reached ? w->g : 0);
  w->g_c = PAIR ? ends[at + PAIR * c.hidden] + (reached ? w->g_c : 0) : 0;
  __syncwarp(); /* all lanes have read */
  back_put<cell<real>::PAIR != 0>(o, *w, c.hidden, place_of_round(s.ends, tail ? o.in : 1 - o.in) + at);
  back_note_mended(c, s, o, o.p, found);
}

/* The sample is given up: what has been summed is forgotten. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_forget(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                            back_walk<real> *w) {
  enum { K = cell<real>::MATRICES };
  o->given_up = true;
  back_ask<real, cell, HP, KIND>(*o, {BACK_CLEARS}, *w);
  back_places<real, cell, HP, KIND>(w->own, w->teams, w->part).meet();
  const int64_t count = back_part(K, c), first = o->b * s.guess_blocks * count;
  for (int64_t at = (int64_t)o->team * WARP_LANES + o->lane; s.guessed != NULL && at < s.guess_blocks * count;
       at += o->teams * WARP_LANES) {
    s.guessed[first + at] = 0;
  }
}

/* Finds what the team walks next, and prepares it; meets the sample's other teams between phases. False: it has done all. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ bool back_next(const layer_arrays<real> &c, const back_arrays<real> &s, int cluster, int parts,
                                          back_course *o, back_walk<real> *w) {
  for (;;) {
    if (o->kind == BACK_CHUNK || o->kind == BACK_PROBE) { /* the latter: the same chunk again */
      if ((parts & BACK_GUESS) != 0 && o->p < o->chunks) {
        back_guess<real, cell, HP, KIND>(c, s, o, w);
        return true;
      }
      if ((parts & BACK_REST) == 0) {
        return false;
      }
      if ((parts & BACK_GUESS) != 0) {
        back_meet_all<real, cell, HP, KIND>(*o, cluster, *w);
      }
      o->kind = !back_look(c, s, o->team, o->teams, o) ? BACK_WHOLE : o->chunks > 1 ? BACK_MEND : BACK_DONE;
      o->p = o->team;
    } else if (o->kind == BACK_MEND) {
      for (; o->p < o->chunks; o->p += o->teams) {
        if (back_doubts<real, cell, HP, KIND>(c, s, o, w)) {
          back_mend<real, cell, HP, KIND>(c, o, w);
          return true;
        }
        back_keep<real, cell>(c, s, *o);
      }
      back_meet_all<real, cell, HP, KIND>(*o, cluster, *w);
      o->in = 1 - o->in;
      o->kind = back_after_round(c, s, o);
      o->p = o->kind == BACK_TAIL ? o->chunks - 2 : o->team;
    } else if (o->kind == BACK_TAIL) {
      for (; o->team == 0 && o->p >= 0; --o->p) {
        __syncwarp(); /* all lanes see what the last walk wrote */
        if (back_doubts<real, cell, HP, KIND>(c, s, o, w)) {
          back_mend<real, cell, HP, KIND>(c, o, w);
          return true;
        }
      }
      return false;
    } else if (o->kind == BACK_WHOLE) {
      if (!o->idle) {
        back_forget<real, cell, HP, KIND>(c, s, o, w);
      }
      if (o->team != 0 || s.fallen != NULL) { /* not this team, or the scan */
        return false;
      }
      o->at = o->top = o->length;
      o->bottom = 0;
      back_take<cell<real>::PAIR != 0>(back_from(c, s, *o, (1 + cell<real>::PAIR) * c.hidden) + o->j, c.hidden, w);
      back_begin<real, cell, HP, KIND>(c, *o, c.injected, false, w);
      return true;
    } else {
      return false;
    }
  }
}

/* Walks, and takes what the walk has found. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_go(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                        back_walk<real> *w) {
  enum { STEPS = back_team<real, cell, HP, KIND>::STEPS };
  const int all = o->at - o->bottom, rounds = (o->at - o->top + STEPS - 1) / STEPS; /* of the warm-up, which is not all */
  const bool differs = o->kind == BACK_MEND || o->kind == BACK_TAIL;
  if (rounds > 0) {
    (void)back_follow<real, cell, HP, KIND>(c.w_hh, (int)c.hidden, o->lane, rounds, w);
  }
  const bool enters = back_enter<real, cell, HP, KIND>(c, s, *o, o->at, w);
  if (enters) {
    w->notes = !differs;
    if (differs) {
      const back_chunk *f = back_found(c, s, *o, o->p);
      w->stop = f->silent == 0 ? (real)(s.stop * fmin(f->scale, f->least)) : -1;
    }
    (void)back_follow<real, cell, HP, KIND>(c.w_hh, (int)c.hidden, o->lane, INT32_MAX, w);
  }
  back_end<real, cell, HP, KIND>(*o, enters ? w->round : w->round - 1, w);
  const int taken = all - (w->left > 0 ? w->left : 0);
  if (o->kind == BACK_CHUNK && w->left > 0) { /* nothing is injected */
    o->kind = BACK_PROBE;
    o->wasted = taken;
    return;
  }
  if (differs) {
    back_settle_mend<real, cell, HP, KIND>(c, s, *o, taken, w);
    if (o->kind == BACK_TAIL) {
      o->path += taken;
      o->p -= 1;
    } else {
      o->p += o->teams;
    }
  } else if (o->kind == BACK_WHOLE) {
    o->path += taken;
    o->kind = BACK_DONE;
  } else {
    back_settle_guess<real, cell, HP, KIND>(c, s, *o, taken + o->wasted, w);
    o->wasted = 0;
    o->kind = BACK_CHUNK;
    o->p += o->teams;
  }
}

#endif
