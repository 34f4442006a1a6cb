/* The SIMT machine's launches that begin early (cuda_runtime.h): a kernel that waits sees all that the kernel in front of it wrote;
 * one that reads before sees poison, and what else it may not do ends the program. Queued, and replayed from a graph. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime.h>

namespace {

enum { THREADS = 64, BLOCKS = 3, COUNT = THREADS * BLOCKS };

/* What the second kernel does wrong. */
enum fault { NOTHING, READS, WRITES, FORGETS, SOME_FORGET, HURRIES, FAULTS };
const char *const names[] = {
    "nothing", "reads early", "writes early", "does not wait", "some threads do not wait", "lets others begin before it waits"};

__global__ void first_kernel(int *numbers, int value) {
  const int at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  launch_next();
  numbers[at] = value + at;
}

__global__ void second_kernel(const int *numbers, const int *weights, int *to, int what) {
  const int at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  const int weight = weights[at], early = numbers[at];
  if (what == WRITES) {
    to[at] = 0;
  }
  if (what == HURRIES) {
    launch_next();
  }
  if (what != FORGETS && !(what == SOME_FORGET && threadIdx.x % 2 == 0)) {
    launch_wait();
  }
  launch_next();
  to[at] = weight + (what == READS ? early : numbers[COUNT - 1 - at]); /* another block's number */
}

struct memory {
  int *numbers, *weights, *to;
};

void queue_both(const memory &m, cudaStream_t stream, int value, int what) {
  BPPSA_LAUNCH(first_kernel, BLOCKS, THREADS, 0, stream, m.numbers, value);
  BPPSA_LAUNCH_EARLY(second_kernel, 1, BLOCKS, THREADS, 0, stream, m.numbers, m.weights, m.to, what);
}

/* Are the results those of `value`? */
bool is_right(const memory &m, int value) {
  bool right = true;
  for (int i = 0; i < COUNT; ++i) {
    right = right && m.to[i] == 1000 * i + value + COUNT - 1 - i;
  }
  return right;
}

/* Runs both kernels several times; returns whether all results were right. */
bool run(int what, bool recorded) {
  memory m;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec = nullptr;
  bool right = true;
  for (int **array : {&m.numbers, &m.weights, &m.to}) {
    (void)cudaMalloc((void **)array, COUNT * sizeof(int));
  }
  for (int i = 0; i < COUNT; ++i) {
    m.weights[i] = 1000 * i;
  }
  (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (recorded) {
    (void)cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    queue_both(m, stream, 7, what);
    (void)cudaStreamEndCapture(stream, &graph);
    (void)cudaGraphInstantiate(&exec, graph, 0);
    (void)cudaGraphDestroy(graph);
  }
  for (int pass = 0; pass < 4; ++pass) {
    const int value = recorded ? 7 : 10 * pass;
    for (int i = 0; recorded && i < COUNT; ++i) { /* what a graph writes anew must differ */
      m.numbers[i] = -1;
    }
    if (recorded) {
      (void)cudaGraphLaunch(exec, stream);
    } else {
      queue_both(m, stream, value, what);
    }
    (void)cudaStreamSynchronize(stream);
    right = right && is_right(m, value);
  }
  (void)cudaStreamDestroy(stream);
  if (exec != nullptr) {
    (void)cudaGraphExecDestroy(exec);
  }
  for (int *array : {m.numbers, m.weights, m.to}) {
    (void)cudaFree(array);
  }
  return right;
}

/* The same in a process of its own: 1 right, 0 wrong, -1 it was aborted. */
int run_apart(int what, bool recorded) {
  int status = 0;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    (void)!freopen("/dev/null", "w", stderr); /* the machine's line about the fault */
    _exit(run(what, recorded));
  }
  (void)waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : -2;
}

} // namespace

int main() {
  static const int expected[] = {1, 0, -1, -1, -1, -1};
  int failed = 0;
  for (int what = NOTHING; what < FAULTS; ++what) {
    for (int recorded = 0; recorded < 2; ++recorded) {
      const int found = run_apart(what, recorded != 0);
      if (found != expected[what]) {
        printf("test_early: a kernel that %s, %s: result %d, expected %d\n", names[what], recorded ? "recorded" : "queued", found,
               expected[what]);
        ++failed;
      }
    }
  }
  return failed > 0;
}
