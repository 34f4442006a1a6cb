/* The runtime of the SIMT machine: devices in host memory, lazy streams, events, captured graphs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/simt/simt.h"
#include "tests/simt/watch.h"
#include "tests/support/sanitized.h"

typedef std::vector<std::function<void()>> simt_work;

/* Recorded work, with the predecessors of each piece. Pieces are in the order in which they were queued. */
struct simt_captured {
  std::function<void()> work;
  std::vector<size_t> after;
};
struct simt_capture {
  std::vector<simt_captured> pieces;
  bool spoilt;
  std::thread::id owner; /* the thread that began it: other threads' calls do not spoil it (the mode "thread local") */
};
struct simt_stream {
  int device;
  std::deque<std::function<void()>> queue;
  std::shared_ptr<simt_capture> capture; /* NULL: no capture is going on */
  bool origin;                           /* it began the capture; other streams joined it */
  std::vector<size_t> last;              /* in a capture: the predecessors of the stream's next piece */
};
struct simt_moment {
  bool recorded, inside_capture;
  std::chrono::steady_clock::time_point time;
  simt_stream *stream;                   /* of the latest record outside of captures, */
  int64_t set, reached;                  /* how many there were, and the latest that was reached */
  std::shared_ptr<simt_capture> capture; /* of the latest record inside one, */
  std::vector<size_t> last;              /* and what it comes after */
};
struct simt_event {
  std::shared_ptr<simt_moment> moment; /* records that are queued keep it */
};
struct simt_graph {
  std::vector<simt_captured> pieces;
};
struct simt_graph_exec {
  std::shared_ptr<const simt_work>
      orders[2]; /* that of queueing, and one as far from it as the pieces allow. Launches that are queued keep it */
  int launches;
};

namespace {

const size_t memory_bytes = (size_t)1 << 30, most_poisoned = (size_t)1 << 28;

thread_local cudaError_t last_error = cudaSuccess;
thread_local int device_now = 0;
simt_stream default_stream;
std::vector<simt_stream *> streams = {&default_stream};

/* Ranks may be threads: one of them at a time is in the machine, and runs whatever is queued on the streams that it waits for. */
std::recursive_mutex &machine() {
  static std::recursive_mutex mutex;
  return mutex;
}
#define SIMT_LOCK const std::lock_guard<std::recursive_mutex> locked(machine())

cudaError_t fail(cudaError_t error) {
  last_error = error;
  return error;
}

/* Has the calling thread chosen the stream's device? The default stream is every device's. */
bool is_here(const simt_stream *s) {
  return s == &default_stream || s->device == device_now;
}

simt_stream *stream_of(cudaStream_t stream) {
  return stream == nullptr ? &default_stream : stream;
}

/* Runs one piece after the other. A piece that waits for an event first runs what precedes the event on its stream. */
void run(simt_stream *s) {
  while (!s->queue.empty()) {
    const std::function<void()> one = std::move(s->queue.front());
    s->queue.pop_front();
    one();
  }
}

void run_all() {
  for (simt_stream *s : streams) {
    run(s);
  }
}

/* Runs a stream because the program waits for it. Every other time the other streams run first, as far as events allow, so that
 * both extreme orders of two streams occur. */
void run_for(simt_stream *s) {
  static bool others_first = false;
  if (others_first) {
    run_all();
  }
  others_first = !others_first;
  run(s);
}

/* Runs until record `set` of the event is reached. */
void run_until(const std::shared_ptr<simt_moment> &moment, simt_stream *s, int64_t set) {
  while (moment->reached < set && !s->queue.empty()) {
    const std::function<void()> one = std::move(s->queue.front());
    s->queue.pop_front();
    one();
  }
  if (moment->reached < set) {
    fprintf(stderr, "simt: two streams wait for each other\n");
    abort();
  }
}

/* Called by everything that may wait for a device: it spoils every capture that the thread has begun. */
bool may_wait() {
  bool may = true;
  for (simt_stream *s : streams) {
    if (s->capture != nullptr && s->capture->owner == std::this_thread::get_id()) {
      s->capture->spoilt = true;
      may = false;
    }
  }
  return may;
}

cudaError_t queue(cudaStream_t stream, std::function<void()> one) {
  simt_stream *s = stream_of(stream);
  if (s->capture == nullptr) {
    s->queue.push_back(std::move(one));
    return cudaSuccess;
  }
  s->capture->pieces.push_back({std::move(one), s->last});
  s->last = {s->capture->pieces.size() - 1};
  return cudaSuccess;
}

/* The allocations, and their sizes. */
std::map<void *, size_t> &held() {
  static std::map<void *, size_t> map;
  return map;
}

size_t used_bytes() {
  size_t used = 0;
  for (const auto &block : held()) {
    used += block.second;
  }
  return used;
}

/* The address sanitizer sees to the bounds of blocks from malloc(). Otherwise a block ends where a page does, in front of one that
 * may not be touched, so that a kernel that reads or writes behind its block ends the program. A GPU aligns blocks to 256 bytes,
 * kernels rely on 16; up to 15 bytes between the block and the page are filled like the block, and must not change while it
 * lives. */
#if ADDRESS_SANITIZED
void *make_block(size_t bytes) {
  void *data = nullptr;
  return posix_memalign(&data, 256, bytes > 0 ? bytes : 1) == 0 ? data : nullptr;
}

void free_block(void *data, size_t) {
  free(data);
}
#else
const size_t block_alignment = 16, page_bytes = (size_t)sysconf(_SC_PAGESIZE);
const unsigned char poison = 0xff; /* all bits set: NaN, -1 */

size_t aligned_bytes(size_t bytes) {
  return (bytes + block_alignment - 1) / block_alignment * block_alignment;
}

/* The bytes of a block's pages, without the page behind them. */
size_t bytes_of_pages(size_t bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

void *make_block(size_t bytes) {
  const size_t pages = bytes_of_pages(bytes), aligned = aligned_bytes(bytes);
  void *mapped = mmap(nullptr, pages + page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return nullptr;
  }
  char *end = (char *)mapped + pages;
  if (mprotect(end, page_bytes, PROT_NONE) != 0) {
    munmap(mapped, pages + page_bytes);
    return nullptr;
  }
  memset(end - (aligned - bytes), poison, aligned - bytes);
  return end - aligned;
}

void free_block(void *data, size_t bytes) {
  const size_t pages = bytes_of_pages(bytes), aligned = aligned_bytes(bytes);
  for (const unsigned char *at = (const unsigned char *)data + bytes; at < (const unsigned char *)data + aligned; ++at) {
    if (*at != poison) {
      fprintf(stderr, "simt: something was written behind a block of %zu bytes\n", bytes);
      abort();
    }
  }
  munmap((char *)data + aligned - pages, pages + page_bytes);
}
#endif

cudaError_t allocate(void **data, size_t bytes) {
  if (!may_wait()) {
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  *data = bytes > memory_bytes - std::min(memory_bytes, used_bytes()) ? nullptr : make_block(bytes);
  if (*data == nullptr) {
    return fail(cudaErrorMemoryAllocation);
  }
  memset(*data, 0xff, std::min(bytes, most_poisoned));
  held()[*data] = bytes;
  return cudaSuccess;
}

cudaError_t release(void *data) {
  if (!may_wait()) {
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  run_all();
  if (data == nullptr) {
    return cudaSuccess;
  }
  const auto block = held().find(data);
  if (block == held().end()) {
    fprintf(stderr, "simt: memory is freed that is not allocated\n");
    abort();
  }
  free_block(data, block->second);
  held().erase(block);
  return cudaSuccess;
}

const struct {
  cudaError_t error;
  const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid launch"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "not permitted in this state"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "not permitted while a stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "the capture failed earlier"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "a stream that joined the capture has work behind it"}};

/* The shared memory that instances of kernels are allowed. */
std::map<const void *, size_t> &allowed() {
  static std::map<const void *, size_t> bytes;
  return bytes;
}

/* Likewise the instances that may be launched in clusters of more than 8 blocks. */
std::map<const void *, size_t> &allowed_clusters() {
  static std::map<const void *, size_t> any;
  return any;
}

bool may_share(const void *function, size_t bytes) {
  enum { UNASKED = 48 * 1024 };
  const auto found = allowed().find(function);
  return bytes <= UNASKED || (found != allowed().end() && bytes <= found->second);
}

} // namespace

cudaError_t simt_allow(const void *function, cudaFuncAttribute attribute, int value) {
  SIMT_LOCK;
  (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed ? allowed_clusters() : allowed())[function] = (size_t)value;
  return cudaSuccess;
}

size_t simt_most_shared() {
  const char *text = getenv("SIMT_MOST_SHARED");
  return text != nullptr ? (size_t)atoi(text) : (size_t)99 * 1024;
}

/* Blocks in the device's largest cluster. */
static unsigned most_cluster() {
  const char *text = getenv("SIMT_MOST_CLUSTER");
  return text != nullptr ? (unsigned)atoi(text) : 16;
}

/* Would the device run a cluster of this size? */
static bool may_cluster(const void *function, unsigned cluster) {
  return cluster <= most_cluster() && (cluster <= 8 || allowed_clusters()[function] != 0);
}

cudaError_t simt_most_clusters(int *clusters, const void *function, const cluster_config *config) {
  SIMT_LOCK;
  *clusters = may_cluster(function, config->cluster) && config->shared <= simt_most_shared();
  return cudaSuccess;
}

static struct {
  void (*see)(void *context, const simt_call *call);
  void *context;
} watcher;

void simt_watch(void (*see)(void *context, const simt_call *call), void *context) {
  watcher.see = see;
  watcher.context = context;
}

bool simt_show(const char *kernel, dim3 grid, dim3 block, int count, const void *const *arguments, const size_t *sizes) {
  if (watcher.see == nullptr) {
    return false;
  }
  const simt_call call = {kernel, grid.x * grid.y, block.x * block.y, count, arguments, sizes};
  watcher.see(watcher.context, &call);
  return true;
}

/* The stream's latest piece of work that has not run; NULL: none. */
static std::function<void()> *latest_piece(simt_stream *s) {
  if (s->capture != nullptr) {
    return s->last.size() == 1 ? &s->capture->pieces[s->last[0]].work : nullptr;
  }
  return s->queue.empty() ? nullptr : &s->queue.back();
}

void simt_launch(const char *kernel, const void *function, unsigned cluster, bool early, dim3 grid, dim3 block, size_t shared,
                 cudaStream_t stream, std::function<void()> thread) {
  SIMT_LOCK;
  if (!is_here(stream_of(stream))) {
    (void)fail(cudaErrorInvalidResourceHandle);
    return;
  }
  if (!simt_launch_is_valid(kernel, cluster, grid, block, shared) || !may_share(function, shared) ||
      !may_cluster(function, cluster) || ((cluster > 1 || early) && getenv("SIMT_OLD_CODE") != nullptr)) {
    (void)fail(cudaErrorInvalidConfiguration);
    return;
  }
  std::function<void()> *const front = early ? latest_piece(stream_of(stream)) : nullptr;
  if (front != nullptr) {
    *front = [one = std::move(*front)]() {
      simt_before(held());
      one();
    };
  }
  const bool begins = front != nullptr; /* otherwise what it comes after has ended */
  (void)queue(stream, [=]() { simt_run(kernel, cluster, begins, grid, block, shared, thread); });
}

/* ---- memory ---- */

cudaError_t cudaMalloc(void **data, size_t bytes) {
  SIMT_LOCK;
  return allocate(data, bytes);
}

/* A real device takes memory in pieces of megabytes and cuts blocks from them. Tests set SIMT_PIECE to the size of a piece. */
cudaError_t cudaMemGetInfo(size_t *available, size_t *all) {
  SIMT_LOCK;
  const char *text = getenv("SIMT_PIECE");
  const size_t piece = text != nullptr ? (size_t)atoll(text) : 1, used = (used_bytes() + piece - 1) / piece * piece;
  *all = memory_bytes;
  *available = used < memory_bytes ? memory_bytes - used : 0;
  return cudaSuccess;
}

cudaError_t cudaFree(void *data) {
  SIMT_LOCK;
  return release(data);
}

cudaError_t cudaMallocHost(void **data, size_t bytes) {
  SIMT_LOCK;
  return allocate(data, bytes);
}

cudaError_t cudaFreeHost(void *data) {
  SIMT_LOCK;
  return release(data);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  SIMT_LOCK;
  return queue(stream, [=]() {
    if (bytes > 0) {
      memmove(to, from, bytes);
    }
  });
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind, cudaStream_t stream) {
  SIMT_LOCK;
  if (width > to_pitch || width > from_pitch) {
    return fail(cudaErrorInvalidValue);
  }
  return queue(stream, [=]() {
    for (size_t r = 0; r < rows; ++r) {
      memmove((char *)to + r * to_pitch, (const char *)from + r * from_pitch, width);
    }
  });
}

cudaError_t cudaMemsetAsync(void *data, int value, size_t bytes, cudaStream_t stream) {
  SIMT_LOCK;
  return queue(stream, [=]() {
    if (bytes > 0) {
      memset(data, value, bytes);
    }
  });
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  SIMT_LOCK;
  (void)cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemset(void *data, int value, size_t bytes) {
  SIMT_LOCK;
  return cudaMemsetAsync(data, value, bytes, nullptr);
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
  SIMT_LOCK;
  *stream = new simt_stream();
  (*stream)->device = device_now;
  streams.push_back(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  SIMT_LOCK;
  run_for(stream);
  streams.erase(std::find(streams.begin(), streams.end(), stream));
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  SIMT_LOCK;
  if (!may_wait()) {
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  run_for(stream_of(stream));
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  SIMT_LOCK;
  if (!may_wait()) {
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  run_all();
  return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  *event = new simt_event{std::make_shared<simt_moment>()};
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  return cudaEventCreate(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  SIMT_LOCK;
  simt_stream *s = stream_of(stream);
  const bool capturing = s->capture != nullptr, external = flags == cudaEventRecordExternal;
  if (external && !capturing) {
    return fail(cudaErrorInvalidValue);
  }
  const std::shared_ptr<simt_moment> moment = event->moment;
  moment->inside_capture = capturing && !external; /* then it only orders the graph's work */
  moment->capture = moment->inside_capture ? s->capture : nullptr;
  if (moment->inside_capture) {
    moment->last = s->last;
    return cudaSuccess;
  }
  const int64_t set = capturing ? 0 : ++moment->set;
  moment->stream = capturing ? moment->stream : s;
  return queue(stream, [moment, set]() {
    moment->recorded = true;
    moment->reached = std::max(moment->reached, set);
    moment->time = std::chrono::steady_clock::now();
  });
}

/* Inside a capture the waiting stream joins it; an event that was never recorded is not waited for. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  SIMT_LOCK;
  simt_stream *s = stream_of(stream);
  const std::shared_ptr<simt_moment> moment = event->moment;
  if (moment->inside_capture) {
    const bool over = std::none_of(streams.begin(), streams.end(), [&](simt_stream *o) { return o->capture == moment->capture; });
    if (over || (s->capture != nullptr && s->capture != moment->capture)) {
      return fail(cudaErrorInvalidValue);
    }
    s->capture = moment->capture;
    s->last.insert(s->last.end(), moment->last.begin(), moment->last.end());
    return cudaSuccess;
  }
  if (s->capture != nullptr && moment->set > 0) {
    s->capture->spoilt = true;
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  simt_stream *from = moment->stream;
  const int64_t set = moment->set;
  return set == 0 ? cudaSuccess : queue(stream, [moment, from, set]() { run_until(moment, from, set); });
}

/* A query takes time, in which the GPU does a piece of the work in front of the event. */
cudaError_t cudaEventQuery(cudaEvent_t event) {
  SIMT_LOCK;
  const std::shared_ptr<simt_moment> moment = event->moment;
  if (moment->inside_capture) {
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  if (moment->reached < moment->set && !moment->stream->queue.empty()) {
    const std::function<void()> one = std::move(moment->stream->queue.front());
    moment->stream->queue.pop_front();
    one();
  }
  return moment->reached < moment->set ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t first, cudaEvent_t second) {
  SIMT_LOCK;
  const simt_moment &from = *first->moment, &to = *second->moment;
  if (!from.recorded || !to.recorded || from.inside_capture || to.inside_capture) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(to.time - from.time).count();
  return cudaSuccess;
}

/* ---- graphs ---- */

namespace {

/* Ends a capture on all streams. Returns whether the pieces of all streams come before the origin's next piece. */
bool leave(const std::shared_ptr<simt_capture> &capture) {
  const std::vector<simt_captured> &pieces = capture->pieces;
  std::vector<bool> joined(pieces.size(), false);
  for (simt_stream *s : streams) {
    if (s->capture == capture) {
      for (const size_t piece : s->last) {
        joined[piece] = joined[piece] || s->origin;
      }
      s->capture = nullptr;
      s->origin = false;
      s->last.clear();
    }
  }
  bool all = true;
  for (size_t i = pieces.size(); i-- > 0;) {
    all = all && joined[i];
    for (const size_t before : pieces[i].after) {
      joined[before] = joined[before] || joined[i];
    }
  }
  return all;
}

/* An order that always takes the latest piece whose predecessors are done. */
simt_work far_order(const std::vector<simt_captured> &pieces) {
  std::vector<bool> done(pieces.size(), false);
  simt_work work;
  while (work.size() < pieces.size()) {
    size_t next = pieces.size();
    for (size_t i = pieces.size(); next == pieces.size() && i-- > 0;) {
      const bool ready = std::all_of(pieces[i].after.begin(), pieces[i].after.end(), [&](size_t k) { return done[k]; });
      next = !done[i] && ready ? i : next;
    }
    done[next] = true;
    work.push_back(pieces[next].work);
  }
  return work;
}

} // namespace

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  SIMT_LOCK;
  if (stream == nullptr || getenv("SIMT_NO_CAPTURE") != nullptr) { /* a test sets it that must bear a refusal */
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  if (stream->capture != nullptr) {
    return fail(cudaErrorIllegalState);
  }
  stream->capture = std::make_shared<simt_capture>();
  stream->capture->owner = std::this_thread::get_id();
  stream->origin = true;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  SIMT_LOCK;
  const std::shared_ptr<simt_capture> capture = stream->capture;
  if (capture == nullptr || !stream->origin) {
    return fail(cudaErrorInvalidValue);
  }
  *graph = nullptr;
  const bool joined = leave(capture);
  if (capture->spoilt || !joined) {
    return fail(capture->spoilt ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined);
  }
  *graph = new simt_graph{std::move(capture->pieces)};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  SIMT_LOCK;
  const simt_stream *s = stream_of(stream);
  *status = s->capture == nullptr ? cudaStreamCaptureStatusNone
            : s->capture->spoilt  ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *, size_t *count) {
  *count = graph->pieces.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
  SIMT_LOCK;
  simt_work near;
  for (const simt_captured &piece : graph->pieces) {
    near.push_back(piece.work);
  }
  *exec = new simt_graph_exec{
      {std::make_shared<const simt_work>(near), std::make_shared<const simt_work>(far_order(graph->pieces))}, 0};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  SIMT_LOCK;
  const std::shared_ptr<const simt_work> work = exec->orders[exec->launches++ % 2];
  return queue(stream, [work]() {
    for (const auto &one : *work) {
      one();
    }
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

/* ---- errors and properties ---- */

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

const char *cudaGetErrorString(cudaError_t error) {
  for (const auto &known : errors) {
    if (known.error == error) {
      return known.text;
    }
  }
  return "unknown";
}

const char *cudaGetErrorName(cudaError_t error) {
  for (const auto &known : errors) {
    if (known.error == error) {
      return known.name;
    }
  }
  return "unknown";
}

/* Tests of ranks set SIMT_DEVICES. All devices have the same memory. */
static int device_count() {
  const char *text = getenv("SIMT_DEVICES");
  return text != nullptr ? atoi(text) : 1;
}

cudaError_t cudaGetDeviceCount(int *count) {
  *count = device_count();
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  *device = device_now;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) {
    return fail(cudaErrorInvalidDevice);
  }
  device_now = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
  *properties = cudaDeviceProp();
  snprintf(properties->name, sizeof properties->name, "SIMT emulation");
  properties->totalGlobalMem = memory_bytes;
  const char *count = getenv("SIMT_MULTIPROCESSORS");
  properties->multiProcessorCount = count != nullptr ? atoi(count) : 4;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  *value = attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? (int)simt_most_shared()
           : attribute == cudaDevAttrClusterLaunch              ? most_cluster() > 1
           : attribute == cudaDevAttrL2CacheSize                ? 1 << 20
                                                                : properties.multiProcessorCount;
  return error;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = 13000;
  return cudaSuccess;
}

/* ---- for C files (cudnn/cuda_runtime_api.h) ---- */

extern "C" int simt_set_device(int device) {
  return cudaSetDevice(device);
}

extern "C" int simt_memset(void *data, int value, size_t bytes, cudaStream_t stream) {
  return cudaMemsetAsync(data, value, bytes, stream);
}

extern "C" int simt_memcpy(void *to, const void *from, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

extern "C" const char *simt_error_text(int error) {
  return cudaGetErrorString((cudaError_t)error);
}

extern "C" void simt_host_function(cudaStream_t stream, void (*function)(const void *context), const void *context,
                                   size_t bytes) {
  const std::vector<char> copy((const char *)context, (const char *)context + bytes);
  (void)queue(stream, [=]() { function(copy.data()); });
}

/* For nccl/stand_in.c: everything queued on the stream so far is done. */
extern "C" int simt_finish(void *stream) {
  return cudaStreamSynchronize((cudaStream_t)stream);
}
