/* The phases of the parallel backward pass on a GPU, H <= 32 (recurrent/gpu/speculate_back_kernels.cuh): what a warp walks next, and
 * what it takes from a walk. */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_BACK_PHASES_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_BACK_PHASES_CUH

#include "recurrent/gpu/speculate_back_walk.cuh"
#include "recurrent/gpu/speculate_kernels.cuh"

/* A barrier of a sample's warps. */
__device__ __forceinline__ void back_meet(int cluster) {
  rest_meet(cluster);
}

/* Prepares what a warp does in a chunk that it speculates. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_guess(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                           back_walk<real, cell, HP, KIND> *w) {
  o->bottom = back_cut(*o, o->p);
  o->top = back_cut(*o, o->p + 1);
  o->at = o->top + o->warm_up < o->length ? o->top + o->warm_up : o->length;
  const bool exact = o->at == o->length, probes = o->kind == BACK_PROBE || (!exact && !c.injected);
  const int64_t width = (1 + cell<real>::PAIR) * c.hidden;
  if (probes) {
    o->kind = BACK_PROBE;
    o->at = o->top;
    back_take(s.probes + o->p * width + o->j, c.hidden, w);
  } else {
    const real *from = exact && s.lengths == NULL ? c.last + o->b * width : c.g + (o->at * c.batch + o->b) * width;
    back_take(from + o->j, c.hidden, w);
  }
  back_begin(c, s, *o, c.injected && !probes, false, w);
}

/* The warp's walk is at the later end of its chunk. False: nothing is injected there, so that another vector must walk. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ bool back_enter(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                           int from, back_walk<real, cell, HP, KIND> *w) {
  if (o.kind == BACK_CHUNK) {
    const bool zeros = from < o.length && !__any_sync(0xffffffffu, w->l.g != 0 || w->l.g_c != 0);
    if (zeros && back_is_silent<real, cell>(c, o, o.bottom, from)) {
      return false;
    }
    back_put(o, *w, c.hidden, s.starts + back_at<real, cell>(c, o, o.p));
  }
  back_count(c, o, o.kind != BACK_PROBE, w);
  return true;
}

/* Takes what a speculating walk has found. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_settle_guess(const layer_arrays<real> &c, const back_arrays<real> &s, const back_course &o,
                                                  int taken, back_walk<real, cell, HP, KIND> *w) {
  enum { K = cell<real>::MATRICES };
  const int64_t at = back_at<real, cell>(c, o, o.p);
  const bool probe = o.kind == BACK_PROBE, exact = o.top + o.warm_up >= o.length;
  const double length = probe ? back_length(o, *w) : 0, size = (double)w->size, end = back_size(*w);
  const double sizes = warp_sum(!o.unit ? 0 : probe ? size : size * size) / (probe ? 1 : K);
  const back_guessed found = {taken, probe, exact, (double)w->sum, (double)w->start, end, (double)w->head, (double)w->least,
                              sizes, length};
  if (probe) {
    w->l.g = w->l.g_c = 0;
    back_put(o, *w, c.hidden, s.starts + at);
    back_clear<real, K>(c, o, o.bottom, o.top);
  } else {
    back_flush(c, o, false, w);
  }
  back_put(o, *w, c.hidden, s.ends[0] + at);
  back_note_guessed(c, s, o, o.p, found);
}

/* Compares a chunk's boundary. True: the difference, which the lane then has, must walk. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ bool back_doubts(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                            back_walk<real, cell, HP, KIND> *w) {
  enum { PAIR = cell<real>::PAIR };
  const int64_t at = back_at<real, cell>(c, *o, o->p), behind = at + c.batch * (1 + PAIR) * c.hidden;
  const real *ends = place_of_round(s.ends, o->in);
  const back_chunk *f = back_found(c, s, *o, o->p);
  if (f->doubtful[o->in] == 0) {
    return false;
  }
  const real end = ends[behind], end_c = PAIR ? ends[behind + PAIR * c.hidden] : 0;
  w->l.g = end - s.starts[at];
  w->l.g_c = PAIR ? end_c - s.starts[at + PAIR * c.hidden] : 0;
  o->begun = back_size(*w);
  const bool accepted = back_accepts(c, s, *o, o->p, o->begun, f->silent != 0 ? back_length(*o, *w) : 0);
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
__device__ __forceinline__ void back_mend(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                          back_walk<real, cell, HP, KIND> *w) {
  o->bottom = back_cut(*o, o->p);
  o->top = o->at = back_cut(*o, o->p + 1);
  back_begin(c, s, *o, false, true, w);
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
                                                 int taken, back_walk<real, cell, HP, KIND> *w) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  const bool tail = o.kind == BACK_TAIL, reached = w->left <= 0;
  const int64_t at = back_at<real, cell>(c, o, o.p);
  const double moved = back_size(*w), size = (double)w->size, squares = warp_sum(o.unit ? size * size : 0);
  const back_mended found = {taken, reached, tail, o.begun, moved, sqrt(squares / K), (double)w->sum};
  const real *ends = place_of_round(s.ends, o.in);
  back_flush(c, o, false, w);
  w->l.g = ends[at] + (reached ? w->l.g : 0);
  w->l.g_c = PAIR ? ends[at + PAIR * c.hidden] + (reached ? w->l.g_c : 0) : 0;
  __syncwarp(); /* all lanes have read */
  back_put(o, *w, c.hidden, place_of_round(s.ends, tail ? o.in : 1 - o.in) + at);
  back_note_mended(c, s, o, o.p, found);
}

/* The sample is given up: what has been summed is forgotten. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_forget(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                            back_walk<real, cell, HP, KIND> *w) {
  enum { K = cell<real>::MATRICES };
  o->given_up = true;
  back_flush(c, *o, true, w);
  const int64_t count = back_part(K, c), first = o->b * s.guess_blocks * count;
  for (int64_t at = (int64_t)o->warp * WARP_LANES + o->lane; s.guessed != NULL && at < s.guess_blocks * count;
       at += o->warps * WARP_LANES) {
    s.guessed[first + at] = 0;
  }
}

/* Finds what the warp walks next, and prepares it; meets the sample's other warps between phases. False: it has done all. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ bool back_next(const layer_arrays<real> &c, const back_arrays<real> &s, int cluster, int parts,
                                          back_course *o, back_walk<real, cell, HP, KIND> *w) {
  for (;;) {
    if (o->kind == BACK_CHUNK || o->kind == BACK_PROBE) { /* the latter: the same chunk again */
      if ((parts & BACK_GUESS) != 0 && o->p < o->chunks) {
        back_guess(c, s, o, w);
        return true;
      }
      if ((parts & BACK_REST) == 0) {
        return false;
      }
      if ((parts & BACK_GUESS) != 0) {
        back_meet(cluster);
      }
      o->kind = !back_look(c, s, o->warp, o->warps, o) ? BACK_WHOLE : o->chunks > 1 ? BACK_MEND : BACK_DONE;
      o->p = o->warp;
    } else if (o->kind == BACK_MEND) {
      for (; o->p < o->chunks; o->p += o->warps) {
        if (back_doubts(c, s, o, w)) {
          back_mend(c, s, o, w);
          return true;
        }
        back_keep<real, cell>(c, s, *o);
      }
      back_meet(cluster);
      o->in = 1 - o->in;
      o->kind = back_after_round(c, s, o);
      o->p = o->kind == BACK_TAIL ? o->chunks - 2 : o->warp;
    } else if (o->kind == BACK_TAIL) {
      for (; o->warp == 0 && o->p >= 0; --o->p) {
        __syncwarp(); /* all lanes see what the last walk wrote */
        if (back_doubts(c, s, o, w)) {
          back_mend(c, s, o, w);
          return true;
        }
      }
      return false;
    } else if (o->kind == BACK_WHOLE) {
      if (!o->idle) {
        back_forget(c, s, o, w);
      }
      if (o->warp != 0) {
        return false;
      }
      o->at = o->top = o->length;
      o->bottom = 0;
      const int64_t width = (1 + cell<real>::PAIR) * c.hidden;
      back_take((s.lengths == NULL ? c.last + o->b * width : c.g + (o->length * c.batch + o->b) * width) + o->j, c.hidden, w);
      back_begin(c, s, *o, c.injected, false, w);
      return true;
    } else {
      return false;
    }
  }
}

/* Walks, and takes what the walk has found. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_go(const layer_arrays<real> &c, const back_arrays<real> &s, back_course *o,
                                        back_walk<real, cell, HP, KIND> *w) {
  enum { PAIR = cell<real>::PAIR, AHEAD = walk_lane<real, cell, HP, KIND>::AHEAD };
  const int all = o->at - o->bottom, warm = o->at - o->top;
  const bool differs = o->kind == BACK_MEND || o->kind == BACK_TAIL;
  int until = (warm + AHEAD - 1) / AHEAD; /* rounds until steps count; negative: they do */
  bool goes_on = true;
  real stop = 0;
  bool stops = false;
  if (differs) {
    const back_chunk *f = back_found(c, s, *o, o->p);
    stop = (real)(s.stop * fmin(f->scale, f->least));
    stops = f->silent == 0;
  }
  const auto ended = [&]() { /* a round */
                             if (until < 0 && !differs) {
                               back_note_round(w->left < AHEAD ? w->left : (int)AHEAD, w);
                             }
                             w->left -= AHEAD;
                             --until;
                             goes_on = !(stops && back_largest(PAIR ? back_larger(w->l.g, w->l.g_c) : w->l.g) <= stop);
  };
  while (w->left > 0 && goes_on) {
    if (until == 0) {
      if (!back_enter(c, s, *o, o->at, w)) {
        break;
      }
      until = -1;
    }
    BPPSA_UNROLL_BY(1)
    while (w->skip == 0 && w->left >= 2 * AHEAD && until != 0 && goes_on) { /* a loop of its own is fast */
      back_round<true>(c, *o, w);
      ended();
    }
    if (w->left > 0 && until != 0 && goes_on) {
      back_round<false>(c, *o, w);
      w->skip = 0;
      ended();
    }
  }
  const int taken = all - (w->left > 0 ? w->left : 0);
  if (o->kind == BACK_CHUNK && w->left > 0) { /* nothing is injected */
    o->kind = BACK_PROBE;
    o->wasted = taken;
    return;
  }
  if (differs) {
    back_settle_mend(c, s, *o, taken, w);
    if (o->kind == BACK_TAIL) {
      o->path += taken;
      o->p -= 1;
    } else {
      o->p += o->warps;
    }
  } else if (o->kind == BACK_WHOLE) {
    back_flush(c, *o, false, w);
    o->path += taken;
    o->kind = BACK_DONE;
  } else {
    back_settle_guess(c, s, *o, taken + o->wasted, w);
    o->wasted = 0;
    o->kind = BACK_CHUNK;
    o->p += o->warps;
  }
}

#endif
