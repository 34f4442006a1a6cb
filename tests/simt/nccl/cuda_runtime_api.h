/* What comm/comm_nccl.c uses of the CUDA runtime, as the stand-in has it: streams and events of NCCL's operations alone. */
#ifndef BPPSA_TESTS_SIMT_NCCL_CUDA_RUNTIME_API_H
#define BPPSA_TESTS_SIMT_NCCL_CUDA_RUNTIME_API_H

typedef struct stand_in_stream *cudaStream_t;
typedef struct stand_in_event *cudaEvent_t;
typedef int cudaError_t;
enum { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorNotReady = 600 };
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };

cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, void *stream);
cudaError_t cudaEventQuery(cudaEvent_t event);

#endif
