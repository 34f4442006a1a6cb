/* Marks functions that are written once and run on the host and in CUDA kernels. */
#ifndef BPPSA_CORE_BASE_HOST_DEVICE_H
#define BPPSA_CORE_BASE_HOST_DEVICE_H

#ifdef __CUDACC__
#define BPPSA_HOST_DEVICE __host__ __device__
#else
#define BPPSA_HOST_DEVICE
#endif

#endif
