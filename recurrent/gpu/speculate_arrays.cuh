/* The arrays of the parallel forward pass on a GPU, and its report. */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_ARRAYS_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_ARRAYS_CUH

#include "recurrent/parallel_forward.h"

/* Phases (speculate_kernels.cuh for H <= CHUNK_HIDDEN, speculate_wide.cuh) are speculation, a round, speculation anew, and further
 * rounds; the last one is the tail. */
enum { SPECULATE_ANEW = 2, SPECULATE_PHASES = BPPSA_FORWARD_FUSED_ROUNDS + 3 };

/* What the samples of a pass add up as they end, in any order. */
struct speculate_sums {
  unsigned long long steps, mended, reseeded, tails, samples; /* samples: of the present layer */
  long long path, rounds, gap;                                /* the largest of each; gap: the bits of a number of 0 or more */
};

struct speculate_report {
  bppsa_forward_pause pause;
  int64_t path, rounds, mended, reseeded, tails; /* of the pass, as in bppsa_forward_stats */
  int64_t steps;                                 /* computed */
  int64_t speculated;                            /* 0: the pass ran during a pause */
  double gap;
  int64_t idle;        /* H <= CHUNK_HIDDEN: the pass is one of a pause; the first kernel of each layer writes it */
  speculate_sums sums; /* all 0 between passes, unless the host gave one up between two layers */
};

template <typename real> struct speculate_arrays {
  int64_t chunks, warm_up;
  int multiprocessors, most_cluster;       /* of the GPU; H <= CHUNK_HIDDEN: the most blocks of one cluster, a power of 2 */
  int64_t possible;                        /* dependent steps of the sequential pass, over all layers */
  double most_path;                        /* of the plan */
  double accept, stop, settled, far, near; /* near: GROWTH times stop (recurrent/settle.h) */
  real *ends[2];    /* [C][b][S]: last states of the chunks, before and after a round; c of a pair behind its h */
  int *doubtful[2]; /* [C][b]: the chunk must be verified */
  real *aside;      /* [C][b][1 + SAVED, of a pair 2 + SAVED][H]: where warm-ups write */
  int *steps;       /* [SPECULATE_PHASES][C][b]: walked in each phase */
  int *found;       /* likewise: bits of SPECULATE_* below */
  double *gaps;     /* [C][b]: the largest difference that was accepted */
  int64_t *paths;   /* [b]: dependent steps in the layers so far */
  speculate_report *report;
};
enum { SPECULATE_CHANGED = 1, SPECULATE_REACHED = 2, SPECULATE_FAR = 4 };

#endif
