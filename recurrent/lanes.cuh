/* How the threads of a recurrent layer's kernels are counted, and what one of them reads at once. */
#ifndef BPPSA_RECURRENT_LANES_CUH
#define BPPSA_RECURRENT_LANES_CUH

enum { WARP_LANES = 32, CHUNK_THREADS = 128 };

/* 16 bytes at once. */
template <typename real> struct alignas(16) quad {
  enum { SIZE = 16 / (int)sizeof(real) };
  real v[SIZE];
};

#endif
