/* A device: where work runs and with how many threads. Immutable after creation. */
#ifndef BPPSA_CORE_COMPUTE_DEVICE_H
#define BPPSA_CORE_COMPUTE_DEVICE_H

#include "core/base/status.h"
#include "core/base/threads.h"
#include "core/base/view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_device bppsa_device; /* a processor's threads, or a GPU with a stream */

/* name: "cpu", "cuda" or "cuda:K". threads: host threads, 1 .. BPPSA_MAX_THREADS, or 0 for all cores that this process may use.
 * ERR_ARGUMENT: an unknown name or a thread count out of range. ERR_UNSUPPORTED: CUDA in a build without it, or no such GPU; the
 * message says which. Starts BLAS on first use. */
bppsa_status bppsa_device_create(const char *name, int64_t threads, bppsa_device **device);
void bppsa_device_destroy(bppsa_device *device);
/* The GPU of that number with a stream of the caller's (cudaStream_t; NULL is CUDA's default stream), which must outlive the device
 * and is not destroyed with it: work is queued in order with the caller's own. ERR_ARGUMENT: an index below 0 or beyond 9999, a
 * thread count out of range. ERR_UNSUPPORTED as above. */
bppsa_status bppsa_device_on_stream(int32_t index, void *stream, int64_t threads, bppsa_device **device);
/* Makes another stream of the same GPU: work queued on it runs beside the work of `device` unless fences order the two. For a CPU
 * it makes another such device. The caller destroys it. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_device_fork(const bppsa_device *device, bppsa_device **fork);
/* Parses "cpu", "cuda" or "cuda:K" to kind and index, whether or not the device exists. ERR_ARGUMENT. */
bppsa_status bppsa_device_parse(const char *name, bppsa_device_kind *kind, int32_t *index);

bppsa_device_kind bppsa_device_get_kind(const bppsa_device *device); /* BPPSA_CPU or BPPSA_CUDA */
int32_t bppsa_device_get_index(const bppsa_device *device);
int32_t bppsa_device_get_threads(const bppsa_device *device); /* of the host, at least 1 */
/* "cpu", "cuda:0" */
const char *bppsa_device_get_name(const bppsa_device *device);
/* The hardware's own name, e.g. the processor's model; "" when unknown. */
const char *bppsa_device_get_hardware(const bppsa_device *device);

/* The stream (cudaStream_t) on which all work of a GPU is queued, in order; NULL for a CPU, which computes at once. */
void *bppsa_device_get_stream(const bppsa_device *device);
/* Waits until all work queued so far is done. ERR_CUDA: a kernel failed. */
bppsa_status bppsa_device_wait(const bppsa_device *device);

/* What this build and this machine offer. */
typedef struct {
  bool built;          /* compiled with CUDA */
  int32_t runtime;     /* CUDA runtime version, 13000 = 13.0; 0 without */
  int32_t driver;      /* newest CUDA version the driver supports; 0 without a driver */
  int32_t devices;     /* GPUs present */
  char name[128];      /* the first GPU's name */
  int64_t memory;      /* its memory in bytes */
  bool kernel_checked; /* the self-test kernel ran on it with the right result */
  char detail[256];    /* the reason, if something is missing */
} bppsa_cuda_report;

/* Never fails: what is missing is in the report. Runs the self-test kernel on the first GPU if there is one. */
void bppsa_cuda_probe(bppsa_cuda_report *report);

#ifdef __cplusplus
}
#endif
#endif
