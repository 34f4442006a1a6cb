/* The SIMT machine of tests/simt/cuda_runtime.h: fibers, barriers, shuffles, and a device in host memory. */
#include "cuda_runtime.h"

#include <stdio.h>
#include <time.h>
#include <ucontext.h>

#include <map>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif
#ifdef SIMT_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim(1), gridDim(1);

namespace {

enum { STACK = 1 << 16, LANES = 32, MOST_THREADS = 1024, MOST_SHARED = 227 * 1024, MOST_BYTES = 16 };

enum state { READY, AT_BLOCK, AT_WARP, DONE };

/* Fibers are begun by makecontext, once, and switched by the compiler's own jumps, which make no system call. */
typedef void *jump[5];

struct fiber {
  ucontext_t context;
  jump resume;
  bool begun;
  char *stack;
  state where;
  unsigned mask;  /* of the warp operation it waits in */
  int predicate;  /* of a block's or warp's vote */
  char given[MOST_BYTES];
#ifdef SIMT_ASAN
  void *fake;
#endif
};

const char *kernel_name = "";
simt_call *body;
std::vector<fiber> fibers;
jump scheduler;
fiber *current;
int current_index, any;
char *shared_memory;
cudaError_t last_error = cudaSuccess;
#ifdef SIMT_ASAN
const void *scheduler_stack;
size_t scheduler_size;
void *scheduler_fake;
#endif

[[noreturn]] void fail(const char *what) {
  fprintf(stderr, "simt: %s: block %u, thread %d: %s\n", kernel_name, blockIdx.x, current_index, what);
  abort();
}

void set_thread(int index) {
  current = &fibers[(size_t)index];
  current_index = index;
  const unsigned i = (unsigned)index;
  threadIdx.x = i % blockDim.x;
  threadIdx.y = i / blockDim.x % blockDim.y;
  threadIdx.z = i / blockDim.x / blockDim.y;
}

[[gnu::noinline, noreturn]] void go(jump to) {
  __builtin_longjmp(to, 1);
}

/* Back to the scheduler, until it resumes this fiber. */
[[gnu::noinline]] void leave() {
#ifdef SIMT_ASAN
  __sanitizer_start_switch_fiber(&current->fake, scheduler_stack, scheduler_size);
#endif
  if (__builtin_setjmp(current->resume) == 0) {
    go(scheduler);
  }
#ifdef SIMT_ASAN
  __sanitizer_finish_switch_fiber(current->fake, &scheduler_stack, &scheduler_size);
#endif
}

/* A fiber's life: thread after thread of block after block. */
void live() {
#ifdef SIMT_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_size);
#endif
  for (;;) {
    body->run();
    current->where = DONE;
    leave();
  }
}

[[gnu::noinline]] void begin(fiber *f) {
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = f->stack;
  f->context.uc_stack.ss_size = STACK;
  f->context.uc_link = nullptr;
  f->begun = true;
  makecontext(&f->context, live, 0);
  setcontext(&f->context);
}

[[gnu::noinline]] void resume(int index) {
  set_thread(index);
#ifdef SIMT_ASAN
  __sanitizer_start_switch_fiber(&scheduler_fake, current->stack, STACK);
#endif
  if (__builtin_setjmp(scheduler) == 0) {
    if (current->begun) {
      go(current->resume);
    }
    begin(current);
  }
#ifdef SIMT_ASAN
  __sanitizer_finish_switch_fiber(scheduler_fake, nullptr, nullptr);
#endif
}

/* A warp's threads that wait in one operation go on together. True when some did. */
bool release_warp(int first, int count) {
  bool released = false;
  for (int i = first; i < first + count; ++i) {
    if (fibers[(size_t)i].where != AT_WARP) {
      continue;
    }
    const unsigned mask = fibers[(size_t)i].mask;
    bool all = true;
    for (int lane = 0; lane < LANES; ++lane) {
      if ((mask >> lane & 1) != 0) {
        const bool there = lane < count && fibers[(size_t)(first + lane)].where == AT_WARP && fibers[(size_t)(first + lane)].mask == mask;
        all = all && there;
        if (lane >= count || fibers[(size_t)(first + lane)].where == DONE) {
          set_thread(i);
          fail("a warp operation whose mask names a thread that has ended or is not there");
        }
      }
    }
    for (int lane = 0; all && lane < LANES; ++lane) {
      if ((mask >> lane & 1) != 0) {
        fibers[(size_t)(first + lane)].where = READY;
      }
    }
    released = released || all;
  }
  return released;
}

void run_block(int threads) {
  for (int i = 0; i < threads; ++i) {
    fibers[(size_t)i].where = READY;
  }
  for (bool descending = false;; descending = !descending) {
    int done = 0, waiting = 0;
    for (int k = 0; k < threads; ++k) {
      const int i = descending ? threads - 1 - k : k;
      if (fibers[(size_t)i].where == READY) {
        resume(i);
      }
    }
    bool moved = false;
    for (int first = 0; first < threads; first += LANES) {
      moved = release_warp(first, threads - first < LANES ? threads - first : LANES) || moved;
    }
    for (int i = 0; i < threads; ++i) {
      done += fibers[(size_t)i].where == DONE;
      waiting += fibers[(size_t)i].where == AT_BLOCK;
    }
    if (done == threads) {
      return;
    }
    if (moved) {
      continue;
    }
    if (waiting != threads) {
      fail("threads wait for each other: a barrier that not all of the block reach, or a mask that does not fit");
    }
    any = 0;
    for (int i = 0; i < threads; ++i) {
      any |= fibers[(size_t)i].predicate;
      fibers[(size_t)i].where = READY;
    }
  }
}

/* Launches per kernel, checked at the end against SIMT_KERNELS. */
std::map<std::string, long> &launches() {
  static std::map<std::string, long> map;
  return map;
}

/* "(name<float, 4>)" -> "name" */
std::string plain_name(const char *kernel) {
  std::string name(kernel);
  name.erase(0, name.find_first_not_of("( "));
  return name.substr(0, name.find_first_of("<) "));
}

/* Every kernel of SIMT_KERNELS must have been launched. */
struct checker {
  checker() { (void)launches(); } /* which therefore outlives it */
  ~checker() {
    for (const fiber &f : fibers) {
      free(f.stack);
    }
    const char *expected = getenv("SIMT_KERNELS");
    std::string names(expected != nullptr ? expected : "");
    for (size_t at = 0; at < names.size();) {
      const size_t end = std::min(names.find(' ', at), names.size());
      const std::string name = names.substr(at, end - at);
      if (!name.empty() && launches().count(name) == 0) {
        fprintf(stderr, "simt: the kernel %s was not launched by its test\n", name.c_str());
        _Exit(1);
      }
      at = end + 1;
    }
  }
};

} // namespace

void simt_launch(const char *kernel, dim3 grid, dim3 block, size_t shared, simt_call &call) {
  static checker at_end;
  const size_t threads = (size_t)block.x * block.y * block.z;
  ++launches()[plain_name(kernel)];
  if (threads < 1 || threads > MOST_THREADS || shared > MOST_SHARED || grid.x < 1 || grid.y < 1 || grid.y > 65535) {
    last_error = cudaErrorInvalidConfiguration;
    return;
  }
  kernel_name = kernel;
  body = &call;
  blockDim = block;
  gridDim = grid;
  fibers.reserve(MOST_THREADS); /* fibers do not move */
  while (fibers.size() < threads) {
    fibers.push_back(fiber());
    fibers.back().stack = (char *)malloc(STACK);
  }
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      blockIdx.x = x;
      blockIdx.y = y;
      shared_memory = (char *)malloc(shared > 0 ? shared : 1);
      memset(shared_memory, 0xff, shared > 0 ? shared : 1);
      run_block((int)threads);
      free(shared_memory);
    }
  }
}

void *simt_shared() {
  return shared_memory;
}

int simt_lane() {
  return current_index % LANES;
}

int __syncthreads_or(int predicate) {
  current->where = AT_BLOCK;
  current->predicate = predicate != 0;
  leave();
  return any;
}

void __syncthreads() {
  (void)__syncthreads_or(0);
}

void __syncwarp(unsigned mask) {
  current->where = AT_WARP;
  current->mask = mask;
  leave();
}

void simt_exchange(unsigned mask, const void *mine, void *theirs, size_t size, int lane) {
  if (size > MOST_BYTES || lane < 0 || lane >= LANES || (mask >> simt_lane() & 1) == 0 || (mask >> lane & 1) == 0) {
    fail("a shuffle from or by a thread that is not of the mask");
  }
  const int first = current_index - simt_lane();
  memcpy(current->given, mine, size);
  __syncwarp(mask);
  memcpy(theirs, fibers[(size_t)(first + lane)].given, size);
  __syncwarp(mask); /* before anybody gives again */
}

unsigned simt_ballot(unsigned mask, int predicate) {
  const int first = current_index - simt_lane();
  unsigned votes = 0;
  current->predicate = predicate != 0;
  __syncwarp(mask);
  for (int lane = 0; lane < LANES; ++lane) {
    votes |= (mask >> lane & 1) != 0 && fibers[(size_t)(first + lane)].predicate ? 1u << lane : 0;
  }
  __syncwarp(mask);
  return votes;
}

/* ---- streams and graphs ---- */

struct simt_graph {
  std::vector<std::function<void()>> work;
};

namespace {

simt_graph *capture; /* of the one stream, or NULL */
bool spoilt;         /* that capture */

/* What a captured stream does not allow. */
cudaError_t forbidden() {
  if (capture == nullptr) {
    return cudaSuccess;
  }
  spoilt = true;
  last_error = cudaErrorStreamCaptureUnsupported;
  return last_error;
}

} // namespace

void simt_queue(const std::function<void()> &work) {
  if (capture != nullptr) {
    capture->work.push_back(work);
  } else {
    work();
  }
}

cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return forbidden();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  const cudaError_t error = forbidden();
  if (error == cudaSuccess) {
    capture = new simt_graph();
    spoilt = false;
  }
  return error;
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *graph) {
  if (capture == nullptr || spoilt) {
    delete capture;
    capture = nullptr;
    *graph = nullptr;
    last_error = cudaErrorStreamCaptureInvalidated;
    return last_error;
  }
  *graph = capture;
  capture = nullptr;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *, size_t *count) {
  *count = graph->work.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long) {
  *made = new simt_graph(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  for (const std::function<void()> &work : graph->work) {
    work();
  }
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return cudaGraphDestroy(graph);
}

struct simt_event {
  double seconds;
  bool recorded;
};

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  *event = new simt_event();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  event->seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
  event->recorded = true;
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return forbidden();
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (!from->recorded || !to->recorded) {
    last_error = cudaErrorInvalidValue;
    return last_error;
  }
  *milliseconds = (float)(1e3 * (to->seconds - from->seconds));
  return cudaSuccess;
}

/* ---- the runtime ---- */

namespace {

const size_t memory_bytes = (size_t)1 << 30;

std::map<void *, size_t> &held() {
  static std::map<void *, size_t> map;
  return map;
}

} // namespace

cudaError_t cudaMalloc(void **data, size_t bytes) {
  if (forbidden() != cudaSuccess) {
    return last_error;
  }
  *data = malloc(bytes > 0 ? bytes : 1);
  if (*data == nullptr) {
    last_error = cudaErrorMemoryAllocation;
    return last_error;
  }
  memset(*data, 0xff, bytes > 0 ? bytes : 1);
  held()[*data] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void *data) {
  held().erase(data);
  free(data);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *all) {
  size_t used = 0;
  for (const auto &block : held()) {
    used += block.second;
  }
  *all = memory_bytes;
  *available = used < memory_bytes ? memory_bytes - used : 0;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  simt_queue([=]() {
    if (bytes > 0) {
      memmove(to, from, bytes);
    }
  });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *data, int value, size_t bytes, cudaStream_t) {
  simt_queue([=]() {
    if (bytes > 0) {
      memset(data, value, bytes);
    }
  });
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

namespace {

const struct {
  cudaError_t error;
  const char *name, *text;
} errors[] = {{cudaSuccess, "cudaSuccess", "no error"},
              {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
              {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
              {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
              {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
              {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid launch"}};

} // namespace

const char *cudaGetErrorString(cudaError_t error) {
  for (const auto &known : errors) {
    if (known.error == error) {
      return known.text;
    }
  }
  return "unknown error";
}

const char *cudaGetErrorName(cudaError_t error) {
  for (const auto &known : errors) {
    if (known.error == error) {
      return known.name;
    }
  }
  return "cudaErrorUnknown";
}

cudaError_t cudaGetDeviceCount(int *count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
  *properties = cudaDeviceProp();
  snprintf(properties->name, sizeof properties->name, "SIMT emulation");
  properties->totalGlobalMem = memory_bytes;
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = 13000;
  return cudaSuccess;
}
