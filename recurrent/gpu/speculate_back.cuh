/* The arrays of the parallel backward pass on a GPU, and its report. */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_BACK_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_BACK_CUH

#include "recurrent/gpu/walk_sums.cuh"
#include "recurrent/parallel_backward.h"

/* What the samples of a pass add up as they end, in any order. */
struct back_sums {
  unsigned long long steps, rows, mended, given_up, samples; /* rows: those of BP; samples: of the present layer */
  unsigned long long fallen;                                 /* samples of the present layer that are left to the scan */
  unsigned long long compared, early;        /* of bppsa_backward_need, over all layers: compared and mended boundaries */
  long long path, rounds, gap, perturbation; /* the largest of each; the last two: bits of numbers of 0 or more */
  long long longest;                         /* of bppsa_backward_need */
};

struct back_report {
  bppsa_backward_state state;
  int64_t path, rounds, mended, given_up; /* of the pass, as in bppsa_backward_stats; given_up: samples of layers */
  int64_t steps, rows;                    /* computed; those of BP */
  int64_t speculated;                     /* 0: the pass was BP */
  int64_t misses; /* the loss does not reach every step, and gradients of inputs must be exact: the pass is BP */
  double gap, perturbation;
  back_sums sums; /* all 0 between passes, unless the host gave one up between two layers */
};

/* A chunk of a sample. Numbers that a round reads while others are written have two places, as the ends. */
struct back_chunk {
  double sum;                /* Σ |g_t|_inf; NaN if it, or the chunk's end, is not finite */
  double added;              /* of a silent chunk: likewise of the differences that walked through it */
  double head, least;        /* the mean of |g_t|_inf over its latest steps, and the least of as many */
  double reach, probe;       /* of a silent chunk: Σ |δ_t(r)|_1, and |r|_2 at its end; of others sum and end over the start. Its
                              * probe is 0 where its sample begins anew within it: no difference walks through */
  double through;            /* of a silent chunk: how much a difference grows in it and in those in front of it */
  double scale;              /* s */
  double dropped;            /* |d|_inf at its boundary, where it was accepted */
  double stopped;            /* Σ of those at which mends stopped within */
  double needed;             /* rounds that the first one shows to be necessary */
  double deltas[2];          /* at most Σ |δ_t|_2 */
  int silent, mended;        /* nothing is injected into it and its warm-up; walks of differences */
  int compared;              /* it is not silent, and speculation left its boundary to be compared */
  int doubtful[2], steps[2]; /* its boundary must be compared; walked in the latest phase */
  int64_t work;              /* steps in all phases */
};

/* How far a sample of a wide layer is, between launches of rounds. */
struct back_kept {
  int in, rounds, early, longest, path, kind; /* as in back_sample; the phase (back_kind) */
};

template <typename real> struct back_arrays {
  int64_t chunks, usual; /* C; the steps of a chunk of a whole sequence, T / C */
  int64_t warm_up, rounds;
  int64_t possible; /* dependent steps of BP, over all layers */
  double accept, stop;
  bppsa_backward_cost cost;
  int64_t most_warm_up;   /* to which W may grow; 0: it does not adapt */
  int passes_on;          /* a layer below reads the gradients of this one's inputs */
  const int64_t *lengths; /* [b]; NULL: all are T */
  const real *probes;     /* [C][S]: r; */
  const real *zeros;      /* [S] */
  real *starts;           /* [C][b][S]: the gradient from which a chunk was computed; c of a pair behind its h */
  real *ends[2];          /* likewise the one in front of the chunk, before and after a round */
  back_chunk *found;      /* [C][b] */
  int64_t *paths;         /* [b]: dependent steps in the layers so far */
  back_kept *kept;        /* [2][b]: of a wide layer; the two in turn */
  back_report *report;
  int *fallen; /* [1 + b]: how many samples, and which ones, the scan behind this launch computes; NULL: BP does, here */
  bppsa_backward_scanned scan; /* what it does with a sample */
  real *partials;              /* of this launch's blocks, as in chunk_arrays; NULL: deltas are written instead */
  walk_targets<real> to;
  real *guessed; /* those of the launch that speculated, so many blocks a sample; NULL: this one did */
  int guess_blocks;
};

/* The parts of a layer's pass: speculation, all that follows, or both; of a wide layer a single round too. */
enum { BACK_GUESS = 1, BACK_REST = 2, BACK_ALL = 3, BACK_ROUND = 4 };

/* The most teams of a block, which have a warp on each of its schedulers twice; the threads of a team; and the most blocks of a
 * sample whose teams meet. */
enum { BACK_TEAMS = 4, BACK_TEAM = 64, BACK_CLUSTER = 8 };

/* Blocks of a sample, and their teams; those of a launch that only speculates, if there are more chunks than teams; otherwise 0.
 * Of a wide layer a team is a block or a cluster, `blocks` counts teams, and `rounds` launches of a single round follow
 * speculation. */
struct back_shape {
  int blocks, teams, guess_blocks, guess_teams, rounds;
};

/* The teams of few chunks are spread over as many multiprocessors as there are for each sample. most_teams: of a block. */
inline back_shape back_shape_of(int64_t chunks, int64_t batch, int multiprocessors, int most_cluster, int most_teams) {
  enum { GUESS_TEAMS = 4 };
  back_shape s = {1, most_teams, 0, 0, 0};
  while (2 * s.blocks <= most_cluster && 2 * s.blocks * batch <= multiprocessors && 2 * s.blocks <= chunks) {
    s.blocks *= 2;
  }
  const int64_t each = (chunks + s.blocks - 1) / s.blocks;
  if (each <= most_teams) {
    s.teams = (int)each;
  } else {
    const int many = GUESS_TEAMS < most_teams ? (int)GUESS_TEAMS : most_teams;
    s.guess_teams = chunks * batch <= many * (int64_t)multiprocessors ? 1 : many;
    s.guess_blocks = (int)((chunks + s.guess_teams - 1) / s.guess_teams);
  }
  return s;
}

/* The same for a wide layer, where a team has one chunk at a time. A first round of more chunks than there are teams is a launch
 * with a team for each; where a sample has a single team so are further rounds, up to eight. most_cluster: teams. */
inline back_shape back_wide_shape_of(int64_t chunks, int64_t batch, int64_t rounds, int multiprocessors, int most_cluster) {
  enum { MOST_ROUNDS = 8 };
  back_shape s = {1, 0, 0, 0, 0};
  while (2 * s.blocks <= most_cluster && 2 * s.blocks * batch <= multiprocessors && s.blocks < chunks) {
    s.blocks *= 2;
  }
  if (chunks > s.blocks) {
    const int64_t most = s.blocks > 1 ? 1 : (int64_t)MOST_ROUNDS;
    s.guess_blocks = (int)chunks;
    s.rounds = (int)(rounds < most ? rounds : most);
  }
  return s;
}

#endif
