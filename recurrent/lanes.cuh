/* The number of threads of a recurrent layer's kernels, and the unit in which they read. */
#ifndef BPPSA_RECURRENT_LANES_CUH
#define BPPSA_RECURRENT_LANES_CUH

enum { WARP_LANES = 32, CHUNK_THREADS = 128 };

/* 16 bytes, read at once. */
template <typename real> struct alignas(16) quad {
  enum { SIZE = 16 / (int)sizeof(real) };
  real v[SIZE];
};

#endif
