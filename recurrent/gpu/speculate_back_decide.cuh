/* What the parallel backward pass on a GPU decides of a sample (recurrent/parallel_backward.h): how it is cut, the scales of its
 * chunks, which differences at boundaries are accepted, when further rounds are hopeless, and which phase follows. A warp decides,
 * whatever walks the chunks; all its lanes find the same. */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_BACK_DECIDE_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_BACK_DECIDE_CUH

#include "recurrent/gpu/cell_cuda.cuh"
#include "recurrent/gpu/lanes.cuh"
#include "recurrent/gpu/speculate_back.cuh"
#include "recurrent/silent.h"

/* The phases of a pass. */
enum back_kind { BACK_CHUNK, BACK_PROBE, BACK_MEND, BACK_TAIL, BACK_WHOLE, BACK_DONE };

/* A sample, as a warp sees it, and how far its pass is. Numbers of steps and chunks fit in 32 bits, which takes fewer registers. */
struct back_sample {
  int lane;         /* of the thread */
  bool idle;        /* the pass is BP */
  int b;            /* the sample */
  int length;       /* T, or the sample's own number of steps */
  int chunks, each; /* of the sample; steps of a chunk: the first `larger` chunks have one more */
  int larger;
  int in;             /* place of the latest ends and doubts */
  int rounds;         /* in which a chunk was mended */
  int early, longest; /* chunks that the first of these mended, silent ones aside, and the steps of the longest of these walks */
  int path;           /* in this layer */
  bool given_up;
};

/* The sample's chunks: those of a short one are about as long as a long one's. */
template <typename real> __device__ __forceinline__ void back_cut_up(const back_arrays<real> &s, back_sample *o) {
  const int fitting = o->length / (int)s.usual, most = (int)s.chunks;
  o->chunks = fitting < 1 ? 1 : fitting < most ? fitting : most;
  o->each = o->length / o->chunks;
  o->larger = o->length % o->chunks;
}

template <typename real>
__device__ __forceinline__ back_chunk *back_found(const layer_arrays<real> &c, const back_arrays<real> &s, const back_sample &o,
                                                  int p) {
  return s.found + p * c.batch + o.b;
}

/* The state at a chunk's earlier end, as bppsa_cut. */
__device__ __forceinline__ int back_cut(const back_sample &o, int p) {
  return p * o.each + (p < o.larger ? p : o.larger);
}

/* The scale of a chunk's differences: what they meet first in it; of a silent one, the mean of what is behind it. All lanes of the
 * warp ask for the same one. */
template <typename real>
__device__ __forceinline__ double back_scale(const layer_arrays<real> &c, const back_arrays<real> &s, const back_sample &o,
                                             int p) {
  const back_chunk *f = back_found(c, s, o, p);
  double behind = 0;
  if (f->silent == 0) {
    return fmin(f->sum / (double)(back_cut(o, p + 1) - back_cut(o, p)), f->head);
  }
  for (int q = p + 1 + o.lane; q < o.chunks; q += WARP_LANES) {
    behind += back_found(c, s, o, q)->sum;
  }
  return warp_sum(behind) / (double)o.length;
}

/* How much a difference grows in a silent chunk and in those in front of it: as the random vectors, or the gradients, there. */
template <typename real>
__device__ __forceinline__ double back_reach(const layer_arrays<real> &c, const back_arrays<real> &s, const back_sample &o,
                                             int p) {
  double reach = 0, through = 1;
  for (; p >= 0; p -= WARP_LANES) {
    const bool exists = p - o.lane >= 0;
    const back_chunk *f = back_found(c, s, o, exists ? p - o.lane : 0);
    const double mine = f->reach, probe = f->probe;
    const int left = p + 1 < WARP_LANES ? p + 1 : (int)WARP_LANES;
    for (int i = 0; i < left; ++i) {
      const double of_i = __shfl_sync(0xffffffffu, mine, i), probe_i = __shfl_sync(0xffffffffu, probe, i);
      reach += through == 0 ? 0 : through * of_i; /* nothing is left of it; a start of 0 would make it NaN */
      through = through == 0 ? 0 : through * probe_i;
    }
  }
  return reach;
}

/* What a team's warp must know of its chunks, every `teams`-th from chunk `team` on, before it verifies them. False: a number of
 * the sample is not finite. */
template <typename real>
__device__ __forceinline__ bool back_look(const layer_arrays<real> &c, const back_arrays<real> &s, int team, int teams,
                                          back_sample *o) {
  int longest = 0;
  bool finite = true;
  for (int p = o->lane; p < o->chunks; p += WARP_LANES) {
    const back_chunk *f = back_found(c, s, *o, p);
    longest = f->steps[0] > longest ? f->steps[0] : longest;
    finite = finite && isfinite(f->sum);
  }
  o->path += warp_largest(longest);
  for (int p = team; p < o->chunks; p += teams) {
    back_chunk *f = back_found(c, s, *o, p);
    const double scale = back_scale(c, s, *o, p), reach = f->silent != 0 ? back_reach(c, s, *o, p) : 0;
    if (o->lane == 0) {
      f->scale = scale;
      f->through = reach;
    }
  }
  __syncwarp();
  return !__any_sync(0xffffffffu, !finite);
}

/* Is the difference d at the later end of chunk p accepted? begun: |d|_inf; length: |d|_2, which only a silent chunk needs. That
 * the boundary was doubtful stays in its place, which other warps may still read; the other place says what is doubtful next. */
template <typename real>
__device__ __forceinline__ bool back_accepts(const layer_arrays<real> &c, const back_arrays<real> &s, const back_sample &o, int p,
                                             double begun, double length) {
  back_chunk *f = back_found(c, s, o, p);
  bool accepted = begun <= s.accept * f->scale;
  if (f->silent != 0) {
    double deltas = 0;
    for (int q = p + 1 + o.lane; q < o.chunks; q += WARP_LANES) {
      deltas += back_found(c, s, o, q)->deltas[o.in];
    }
    deltas = warp_sum(deltas);
    accepted = s.passes_on ? begun == 0 : bppsa_silent_accepts(s.accept, length, f->through, deltas);
  }
  __syncwarp(); /* all lanes have read */
  if (o.lane == 0) {
    f->dropped = accepted ? begun : 0;
  }
  return accepted;
}

/* What the walk that speculates a chunk has found. Sums are over its steps. */
struct back_guessed {
  int taken;              /* steps, with those of its warm-up */
  bool probe, exact;      /* it walked a random vector; it started from the true gradient */
  bool cut;               /* the sample begins anew within the chunk */
  double sum, start, end; /* Σ |g_t|_inf; |g|_inf at its later and at its earlier end */
  double head, least;     /* as in back_chunk */
  double sizes, length;   /* of a probe: Σ |δ_t|_1 and |r|_2 at the earlier end; otherwise sizes is the square of f->deltas */
};

/* Notes what the walk that speculates chunk p has found. */
template <typename real>
__device__ __forceinline__ void back_note_guessed(const layer_arrays<real> &c, const back_arrays<real> &s, const back_sample &o,
                                                  int p, const back_guessed &g) {
  if (o.lane == 0) {
    back_chunk f = {};
    f.sum = g.probe ? 0 : isfinite(g.sum) && isfinite(g.end) ? g.sum : (double)NAN;
    f.head = g.head;
    f.least = g.least;
    f.reach = g.probe ? g.sizes : g.sum / g.start;
    f.probe = g.cut ? 0 : g.probe ? g.length : g.end / g.start;
    f.deltas[0] = g.probe ? 0 : sqrt(g.sizes);
    f.silent = g.probe;
    f.doubtful[0] = !g.exact && p + 1 < o.chunks;
    f.compared = f.doubtful[0] && !g.probe;
    f.steps[0] = g.taken;
    f.work = g.taken;
    *back_found(c, s, o, p) = f;
  }
}

/* A chunk that a round leaves as it is, but for the gradient at its end. */
template <typename real>
__device__ __forceinline__ void back_note_kept(const layer_arrays<real> &c, const back_arrays<real> &s, const back_sample &o,
                                               int p) {
  back_chunk *f = back_found(c, s, o, p);
  if (o.lane == 0) {
    f->deltas[1 - o.in] = f->deltas[o.in];
    f->steps[1 - o.in] = 0;
    if (p > 0) {
      (f - c.batch)->doubtful[1 - o.in] = 0;
    }
  }
}

/* How many rounds are needed until a difference that has shrunk in its chunk is small enough, if it shrinks likewise in those in
 * front? */
__device__ __forceinline__ double back_needed(double begun, double moved, double accepted, int p) {
  const double shrinks = log(begun / moved), left = log(moved / accepted);
  const double needed = left <= 0 ? 0 : shrinks > 0 ? left / shrinks : (double)p;
  return needed < (double)p ? needed : (double)p; /* p for NaN */
}

/* What the walk of a difference d through its chunk has found. Sums are over its steps. */
struct back_mended {
  int taken;           /* steps */
  bool reached, tail;  /* it came to the chunk's earlier end with a difference; it was a walk of the tail */
  double begun, moved; /* |d|_inf at its beginning and at its end */
  double deltas, sum;  /* a bound of Σ |δ_t|_2; Σ |d|_inf */
};

/* Notes what the walk of a difference through chunk p has found. */
template <typename real>
__device__ __forceinline__ void back_note_mended(const layer_arrays<real> &c, const back_arrays<real> &s, const back_sample &o,
                                                 int p, const back_mended &m) {
  const int to = m.tail ? o.in : 1 - o.in; /* the tail goes from chunk to chunk in one place */
  back_chunk *f = back_found(c, s, o, p);
  const int silent = f->silent;
  double needed = 0;
  if (o.rounds == 0 && m.reached && silent == 0 && p > 0) {
    needed = back_needed(m.begun, m.moved, s.accept * back_scale(c, s, o, p - 1), p);
  }
  __syncwarp(); /* all lanes have read */
  if (o.lane == 0) {
    f->deltas[to] = f->deltas[o.in] + m.deltas;
    f->added += silent != 0 ? m.sum : 0;
    f->steps[to] = m.taken;
    f->work += m.taken;
    f->mended += 1;
    f->stopped += m.reached ? 0 : m.moved;
    if (o.rounds == 0) { /* later other warps may still read what the first round has shown */
      f->needed = needed;
    }
    if (p > 0 && (m.reached || !m.tail)) { /* otherwise the tail has still to look at what rounds left */
      (f - c.batch)->doubtful[to] = m.reached;
    }
  }
}

/* Are further rounds of mending expected to take longer than half of BP? `needed`: the largest number of them. */
__device__ __forceinline__ bool back_hopeless(const back_sample &o, double needed) {
  return 2 * (2 + needed) > (double)o.chunks + 2;
}

/* What a round did, and which phase follows. */
template <typename real>
__device__ __forceinline__ back_kind back_after_round(const layer_arrays<real> &c, const back_arrays<real> &s, back_sample *o) {
  int longest = 0, doubtful = 0, early = 0, of_early = 0;
  double needed = 0;
  for (int p = o->lane; p < o->chunks; p += WARP_LANES) {
    const back_chunk *f = back_found(c, s, *o, p);
    const int taken = f->silent == 0 ? f->steps[o->in] : 0;
    early += taken > 0;
    of_early = taken > of_early ? taken : of_early;
    longest = f->steps[o->in] > longest ? f->steps[o->in] : longest;
    doubtful |= p + 1 < o->chunks && f->doubtful[o->in] != 0;
    needed = f->needed > needed ? f->needed : needed;
  }
  longest = warp_largest(longest);
  needed = warp_largest(needed);
  o->path += longest;
  if (longest > 0 && o->rounds == 0) {
    o->early = warp_sum(early);
    o->longest = warp_largest(of_early);
  }
  o->rounds += longest > 0;
  if (longest > 0 && o->rounds == 1 && back_hopeless(*o, needed)) {
    return BACK_WHOLE;
  }
  return !__any_sync(0xffffffffu, doubtful) ? BACK_DONE : o->rounds >= s.rounds ? BACK_TAIL : BACK_MEND;
}

#endif
