/* The SIMT machine of tests/simt/cuda_runtime.h: fibers, barriers, shuffles. Memory, streams and graphs are in runtime.cc.
 * (The file is long because all that makes threads wait for each other is one schedule.) */
#include "tests/simt/simt.h"

#include <stdio.h>
#include <ucontext.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/sanitized.h"

#if ADDRESS_SANITIZED
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim(1), gridDim(1);

namespace {

/* Stacks begin at different offsets within a page: otherwise their tops would all fall into one set of the processor's cache. */
enum { STACK = 1 << 16, COLOURS = 1 << 12, COLOUR = 5 * 64, LANES = 32, MOST_THREADS = 1024, MOST_CLUSTER = 16, MOST_BYTES = 16 };

enum state : unsigned char { READY, AT_BLOCK, AT_MEETING, AT_WARP, AT_CLUSTER, AT_GATE, AT_LAUNCH, DONE };

/* Each fiber is started once by makecontext and then switched by the compiler's own jumps, which make no system call. */
typedef void *jump[5];

struct fiber {
  jump resume;
  bool begun;
  char *block, *stack; /* what was allocated, and the stack in it */
  int predicate;       /* of a block's or warp's vote */
  int any;             /* the result of a block's vote */
  int meeting, of;     /* the number of the barrier at which it waits, and how many threads meet there */
  const cluster_gate *gate;
  unsigned parity; /* of the gate's phase that it waits for */
  char given[MOST_BYTES];
#if ADDRESS_SANITIZED
  void *fake;
#endif
};

const char *kernel_name = "";
const std::function<void()> *body;
std::vector<fiber> fibers;
/* Of each fiber, apart from the rest because the scheduler reads those of all fibers again and again. */
state where[MOST_THREADS * MOST_CLUSTER];
unsigned masks[MOST_THREADS * MOST_CLUSTER]; /* of the warp operation in which it waits */
uint3 indices[MOST_THREADS];                 /* threadIdx of each thread of a block of the shape `indexed` */
dim3 indexed(0);
jump scheduler;
fiber *current;
int current_index, current_block; /* in the cluster */
int current_thread;               /* in the block */
int block_threads;
unsigned first_block;              /* of the cluster */
std::vector<char *> shared_memory; /* of the cluster's blocks */
/* What threads have sent and has not arrived. */
struct message {
  char *to;
  cluster_gate *gate;
  size_t size;
  char value[MOST_BYTES];
};
std::vector<message> messages;
bool behind; /* the cluster may not yet see what the kernel in front of it writes */
#if ADDRESS_SANITIZED
const void *scheduler_stack;
size_t scheduler_size;
void *scheduler_fake;
bool from_scheduler; /* the latest switch began in it */
#endif

[[noreturn]] void fail(const char *what) {
  fprintf(stderr, "simt: %s: block %u, thread %d: %s\n", kernel_name, blockIdx.x, current_thread, what);
  abort();
}

void set_thread(int index) {
  current = &fibers[(size_t)index];
  current_index = index;
  current_block = index < block_threads ? 0 : index / block_threads;
  current_thread = index - current_block * block_threads;
  blockIdx.x = first_block + (unsigned)current_block;
  threadIdx = indices[current_thread];
}

/* Sets `indices` for blocks of this shape. */
void index_threads(dim3 block) {
  if (indexed.x == block.x && indexed.y == block.y && indexed.z == block.z) {
    return;
  }
  indexed = block;
  for (unsigned i = 0; i < block.x * block.y * block.z; ++i) {
    indices[i].x = i % block.x;
    indices[i].y = i / block.x % block.y;
    indices[i].z = i / block.x / block.y;
  }
}

/* A call that does not return makes the address sanitizer clear the shadow of the whole stack, once a switch: ten times the time of
 * the emulation itself. A switch leaves every frame as it is, so the functions that switch are compiled without it. gcc's noipa: a
 * caller must not count on registers that the function itself leaves alone, because other threads run meanwhile. */
#ifdef __clang__
#define SWITCHES [[gnu::noinline, gnu::no_sanitize_address]]
#else
#define SWITCHES [[gnu::noipa, gnu::no_sanitize_address]]
#endif

SWITCHES [[noreturn]] void go(jump to) {
  __builtin_longjmp(to, 1);
}

/* Where the present round over all threads is: those from `round_at` on, in steps, until `round_end`. */
int round_at, round_step, round_end;

/* The next thread of the round that can run; -1: the round is over. */
int next_ready() {
  while (round_at != round_end) {
    const int i = round_at;
    round_at += round_step;
    if (where[i] == READY) {
      return i;
    }
  }
  return -1;
}

[[noreturn]] void begin(fiber *f);

/* Lets the round's next thread run, or the scheduler when the round is over, until a later round resumes this fiber. */
SWITCHES void leave() {
  fiber *const own = current;
  const int next = next_ready();
#if ADDRESS_SANITIZED
  from_scheduler = false;
  __sanitizer_start_switch_fiber(&own->fake, next < 0 ? scheduler_stack : fibers[(size_t)next].stack,
                                 next < 0 ? scheduler_size : (size_t)STACK);
#endif
  if (__builtin_setjmp(own->resume) == 0) {
    if (next < 0) {
      go(scheduler);
    }
    set_thread(next);
    if (current->begun) {
      go(current->resume);
    }
    begin(current);
  }
#if ADDRESS_SANITIZED
  __sanitizer_finish_switch_fiber(current->fake, from_scheduler ? &scheduler_stack : nullptr,
                                  from_scheduler ? &scheduler_size : nullptr);
#endif
}

/* The loop of a fiber: it runs one thread after the other, block after block. */
[[gnu::no_sanitize_address]] void live() {
#if ADDRESS_SANITIZED
  __sanitizer_finish_switch_fiber(nullptr, from_scheduler ? &scheduler_stack : nullptr,
                                  from_scheduler ? &scheduler_size : nullptr);
#endif
  for (;;) {
    (*body)();
    if (behind) {
      fail("a thread of a launch that begins early ends, but has not waited for the kernel in front");
    }
    where[current_index] = DONE;
    leave();
  }
}

SWITCHES [[noreturn]] void begin(fiber *f) {
  static ucontext_t context; /* left for good at once: all later switches are jumps */
  getcontext(&context);
  context.uc_stack.ss_sp = f->stack;
  context.uc_stack.ss_size = STACK;
  context.uc_link = nullptr;
  f->begun = true;
  makecontext(&context, live, 0);
  setcontext(&context);
  abort(); /* it returns only when it fails */
}

SWITCHES void resume(int index) {
  set_thread(index);
#if ADDRESS_SANITIZED
  from_scheduler = true;
  __sanitizer_start_switch_fiber(&scheduler_fake, current->stack, STACK);
#endif
  if (__builtin_setjmp(scheduler) == 0) {
    if (current->begun) {
      go(current->resume);
    }
    begin(current);
  }
#if ADDRESS_SANITIZED
  __sanitizer_finish_switch_fiber(scheduler_fake, nullptr, nullptr);
#endif
}

/* Lets those of a warp's `count` threads from `first` on continue that wait in the same operation. True if some did. */
bool release_warp(int first, int count) {
  unsigned waiting = 0, absent = count < LANES ? ~0u << count : 0; /* a bit a lane */
  for (int lane = 0; lane < count; ++lane) {
    waiting |= (unsigned)(where[first + lane] == AT_WARP) << lane;
    absent |= (unsigned)(where[first + lane] == DONE) << lane;
  }
  bool released = false;
  for (unsigned left = waiting; left != 0;) {
    const int one = first + __builtin_ctz(left);
    const unsigned mask = masks[one];
    if ((mask & absent) != 0) {
      set_thread(one);
      fail("a warp operation whose mask names a thread that has ended or is not there");
    }
    unsigned same = 0; /* the lanes that wait with this mask */
    for (int lane = 0; lane < count; ++lane) {
      same |= (unsigned)(masks[first + lane] == mask) << lane;
    }
    same &= waiting;
    left &= ~same;
    if ((mask & ~same) == 0) {
      for (int lane = 0; lane < count; ++lane) {
        if ((mask >> lane & 1) != 0) {
          where[first + lane] = READY;
        }
      }
      released = released || mask != 0;
    }
  }
  return released;
}

/* Lets a block's threads continue if all of them wait at its barrier. */
bool release_block(int first) {
  int some = 0;
  for (int i = first; i < first + block_threads; ++i) {
    if (where[i] != AT_BLOCK) {
      return false;
    }
    some |= fibers[(size_t)i].predicate;
  }
  for (int i = first; i < first + block_threads; ++i) {
    fibers[(size_t)i].any = some;
    where[i] = READY;
  }
  return true;
}

/* Lets those of a block's threads continue that wait at a barrier with a number, if as many are there as have to come. True if some
 * did. */
bool release_meetings(int first) {
  bool released = false;
  for (int i = first; i < first + block_threads; ++i) {
    const fiber &one = fibers[(size_t)i];
    const auto same = [&](int at) { return where[at] == AT_MEETING && fibers[(size_t)at].meeting == one.meeting; };
    int there = 0;
    if (where[i] != AT_MEETING) {
      continue;
    }
    for (int at = first; at < first + block_threads; ++at) {
      there += same(at);
      if (same(at) && fibers[(size_t)at].of != one.of) {
        set_thread(at);
        fail("threads that do not agree how many meet");
      }
    }
    for (int at = first; there == one.of && at < first + block_threads; ++at) {
      if (same(at)) {
        where[at] = READY;
        released = true;
      }
    }
  }
  return released;
}

/* The gate's phase is over when all bytes have come that were expected. True if it is. */
bool open_gate(cluster_gate *gate) {
  if (gate->told == 0 || gate->missing != 0) {
    return false;
  }
  gate->told = 0;
  ++gate->phases;
  return true;
}

/* Delivers the latest message. True if it opens a gate. */
bool deliver() {
  const message m = messages.back();
  messages.pop_back();
  memcpy(m.to, m.value, m.size);
  m.gate->missing -= (int)m.size;
  return open_gate(m.gate);
}

/* Threads whose gate is open continue, and all at the cluster's barrier if no thread has yet to come there. */
bool release_cluster(int threads) {
  int meeting = 0;
  bool moved = false;
  for (int i = 0; i < threads; ++i) {
    const fiber *f = &fibers[(size_t)i];
    meeting += where[i] == AT_CLUSTER;
    if (where[i] == AT_GATE && f->gate->phases % 2u != f->parity) {
      where[i] = READY;
      moved = true;
    }
  }
  for (int i = 0; meeting == threads && i < threads; ++i) {
    where[i] = READY;
  }
  return moved || meeting == threads;
}

/* Lets the threads of an early launch see the memory, if all of them wait for that. */
bool release_launch(int threads, bool first) {
  for (int i = 0; i < threads; ++i) {
    if (where[i] != AT_LAUNCH) {
      return false;
    }
  }
  if (!simt_reveal(first)) {
    fail("a launch that begins early writes before it has waited for the kernel in front");
  }
  behind = false;
  for (int i = 0; i < threads; ++i) {
    where[i] = READY;
  }
  return true;
}

/* Runs the blocks of a cluster. first: of an early launch. */
void run_cluster(int blocks, bool first_early) {
  const int threads = blocks * block_threads;
  for (int i = 0; i < threads; ++i) {
    where[i] = READY;
  }
  for (bool descending = false;; descending = !descending) {
    round_at = descending ? threads - 1 : 0;
    round_step = descending ? -1 : 1;
    round_end = descending ? -1 : threads;
    const int first = next_ready();
    if (first >= 0) {
      resume(first); /* returns when the round is over */
    }
    bool moved = false;
    for (int block = 0; block < threads; block += block_threads) {
      for (int first = 0; first < block_threads; first += LANES) {
        moved = release_warp(block + first, block_threads - first < LANES ? block_threads - first : LANES) || moved;
      }
    }
    if (moved) {
      continue;
    }
    int done = 0;
    for (int i = 0; i < threads; ++i) {
      done += where[i] == DONE;
    }
    if (done == threads) {
      if (!messages.empty()) {
        fail("a number was sent to a block that did not wait for it");
      }
      return;
    }
    for (int block = 0; block < threads; block += block_threads) {
      moved = release_block(block) || moved;
      moved = release_meetings(block) || moved;
    }
    moved = moved || release_cluster(threads) || (behind && release_launch(threads, first_early));
    while (!moved && !messages.empty()) {
      moved = deliver() && release_cluster(threads);
    }
    if (!moved) {
      fail("threads wait for each other: a barrier that not all of the block reach, or a mask that does not fit");
    }
  }
}

/* Launches per kernel, checked at the end against SIMT_KERNELS. */
std::map<std::string, long> &launches() {
  static std::map<std::string, long> map;
  return map;
}

/* Every kernel of SIMT_KERNELS must have been launched. */
struct checker {
  checker() {
    (void)launches(); /* so that the launches are destroyed after it */
  }
  ~checker() {
    for (const fiber &f : fibers) {
      free(f.block);
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

const char *simt_real = "any";

std::string simt_plain_name(const char *kernel) {
  std::string name(kernel);
  name.erase(0, name.find_first_not_of("( "));
  return name.substr(0, name.find_first_of("<) "));
}

bool simt_launch_is_valid(const char *kernel, unsigned cluster, dim3 grid, dim3 block, size_t shared) {
  static checker at_end;
  const size_t threads = (size_t)block.x * block.y * block.z;
  ++launches()[simt_plain_name(kernel)];
  return threads >= 1 && threads <= MOST_THREADS && shared <= simt_most_shared() && grid.x >= 1 && grid.y >= 1 &&
         grid.y <= 65535 && cluster >= 1 && grid.x % cluster == 0;
}

void simt_run(const char *kernel, unsigned cluster, bool early, dim3 grid, dim3 block, size_t shared,
              const std::function<void()> &thread) {
  block_threads = (int)(block.x * block.y * block.z);
  kernel_name = kernel;
  body = &thread;
  blockDim = block;
  gridDim = grid;
  index_threads(block);
  fibers.reserve((size_t)MOST_THREADS * MOST_CLUSTER); /* fibers do not move */
  while (fibers.size() < (size_t)block_threads * cluster) {
    fiber f = {};
    f.block = (char *)malloc(STACK + COLOURS);
    f.stack = f.block + fibers.size() * COLOUR % COLOURS;
    fibers.push_back(f);
  }
  shared_memory.resize(cluster);
  for (unsigned y = 0; y < grid.y; ++y) {
    blockIdx.y = y;
    for (first_block = 0; first_block < grid.x; first_block += cluster) {
      for (char *&memory : shared_memory) {
        memory = (char *)malloc(shared > 0 ? shared : 1);
        memset(memory, 0xff, shared > 0 ? shared : 1);
      }
      const bool first = blockIdx.y == 0 && first_block == 0;
      behind = early;
      if (early) {
        simt_hide(first);
      }
      run_cluster((int)cluster, first);
      for (char *memory : shared_memory) {
        free(memory);
      }
    }
  }
}

void *simt_shared() {
  return shared_memory[(size_t)current_block];
}

int simt_lane() {
  return current_thread % LANES;
}

namespace {

int wait_for_block(int predicate) {
  where[current_index] = AT_BLOCK;
  current->predicate = predicate != 0;
  leave();
  return current->any;
}

/* The first lane of a mask. */
int first_of(unsigned mask) {
  int lane = 0;
  while (lane < LANES - 1 && (mask >> lane & 1) == 0) {
    ++lane;
  }
  return lane;
}

unsigned mask_at(unsigned mask, simt_mutant mutant) {
  return mutant == MUTANT_MASK ? mask & (mask - 1) : mask;
}

} // namespace

void __syncthreads() {
  (void)wait_for_block(0);
}

void launch_meet(int number, int threads) {
  if (number < 1 || number > 15 || threads % LANES != 0) {
    fail("a barrier without a number from 1 to 15, or of parts of warps");
  }
  current->meeting = number;
  current->of = threads;
  where[current_index] = AT_MEETING;
  leave();
}

int __syncthreads_or(int predicate, simt_place place) {
  const simt_mutant mutant = simt_mutant_at(place, kernel_name, simt_real);
  const int some = wait_for_block(predicate);
  return mutant == MUTANT_OWN ? predicate != 0 : mutant == MUTANT_EVERY ? 1 : mutant == MUTANT_NONE ? 0 : some;
}

void __syncwarp(unsigned mask) {
  where[current_index] = AT_WARP;
  masks[current_index] = mask;
  leave();
}

int simt_width(int width, const simt_place &place) {
  return simt_mutant_at(place, kernel_name, simt_real) == MUTANT_WIDTH ? width / 2 : width;
}

void simt_exchange(unsigned mask, const void *mine, void *theirs, size_t size, int lane, const simt_place &place) {
  const simt_mutant mutant = simt_mutant_at(place, kernel_name, simt_real);
  mask = mask_at(mask, mutant);
  lane = mutant == MUTANT_OWN ? simt_lane() : mutant == MUTANT_EVERY ? first_of(mask) : mutant == MUTANT_BESIDE ? lane ^ 1 : lane;
  if (size > MOST_BYTES || lane < 0 || lane >= LANES || (mask >> simt_lane() & 1) == 0 || (mask >> lane & 1) == 0) {
    fail("a shuffle from or by a thread that is not of the mask");
  }
  const int first = current_index - simt_lane();
  memcpy(current->given, mine, size);
  __syncwarp(mask);
  memcpy(theirs, fibers[(size_t)(first + lane)].given, size);
  if (mutant == MUTANT_NONE) {
    memset(theirs, 0, size);
  }
  __syncwarp(mask); /* before any thread gives again */
}

unsigned simt_ballot(unsigned mask, int predicate, const simt_place &place) {
  const simt_mutant mutant = simt_mutant_at(place, kernel_name, simt_real);
  mask = mask_at(mask, mutant);
  if ((mask >> simt_lane() & 1) == 0) {
    fail("a vote by a thread that is not of the mask");
  }
  const int first = current_index - simt_lane();
  const unsigned own = 1u << simt_lane();
  unsigned votes = 0;
  current->predicate = predicate != 0;
  __syncwarp(mask);
  for (int lane = 0; lane < LANES; ++lane) {
    votes |= (mask >> lane & 1) != 0 && fibers[(size_t)(first + lane)].predicate ? 1u << lane : 0;
  }
  __syncwarp(mask);
  switch (mutant) {
  case MUTANT_OWN:
    return votes & own;
  case MUTANT_NONE:
    return 0;
  case MUTANT_EVERY:
    return mask;
  case MUTANT_BESIDE:
    return votes & ~own;
  default:
    return votes;
  }
}

void cluster_meet() {
  where[current_index] = AT_CLUSTER;
  leave();
}

void launch_wait() {
  if (behind) {
    where[current_index] = AT_LAUNCH;
    leave();
  }
}

void launch_next() {
  if (behind) {
    fail("a launch that begins early lets the next one begin before it has waited");
  }
}

void cluster_gate_make(cluster_gate *gate) {
  *gate = cluster_gate();
}

void cluster_gate_expect(cluster_gate *gate, unsigned bytes) {
  if (gate->told != 0) {
    fail("a gate that is told twice in a phase what to expect");
  }
  gate->told = 1;
  gate->missing += (int)bytes;
  (void)open_gate(gate);
}

cluster_far cluster_find(const void *mine, unsigned rank) {
  if (rank >= shared_memory.size()) {
    fail("a block that is not of the cluster");
  }
  return {shared_memory[rank] + ((const char *)mine - (const char *)simt_shared())};
}

void simt_send(char *to, const void *value, size_t size, cluster_gate *gate) {
  messages.push_back({to, gate, size, {}});
  memcpy(messages.back().value, value, size);
}

void cluster_gate_wait(cluster_gate *gate, unsigned parity) {
  where[current_index] = AT_GATE;
  current->gate = gate;
  current->parity = parity;
  leave();
}
