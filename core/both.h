/* Functions that run on the host and in CUDA kernels, written once: marked with this. */
#ifndef BPPSA_CORE_BOTH_H
#define BPPSA_CORE_BOTH_H

#ifdef __CUDACC__
#define BPPSA_BOTH __host__ __device__
#else
#define BPPSA_BOTH
#endif

#endif
