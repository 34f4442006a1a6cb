#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#endif
#include "calibrate/doctor.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bppsa_version.h"
#include "core/base/clock.h"
#include "core/base/decimal.h"
#include "core/compute/blas.h"
#include "core/compute/simd.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

/* Something optional. A library is found when one of its files can be loaded, a program when it is in a directory of PATH. */
typedef struct {
  const char *name;
  const char *package; /* the package that brings it */
  const char *use;     /* what the program does with it */
  bool program;
  const char *files[6]; /* sonames, newest first, or a program; NULL-terminated */
} backend;

#define NVIDIA "NVIDIA's Debian repository: "
#define AUDIO_USE "needed to build audio: WAV files and MFCC features"

static const backend backends[] = {
    {"CUDA toolkit", NVIDIA "cuda-toolkit-13-0", "needed to build the CUDA backend", true, {"nvcc"}},
    {"cuBLAS",
     NVIDIA "libcublas-13-0",
     "the baseline of bench product on a GPU where both factors are full",
     false,
     {"libcublas.so.13", "libcublas.so.12"}},
    {"cuSPARSE", NVIDIA "libcusparse-13-0", "the baseline of bench product on a GPU", false, {"libcusparse.so.12"}},
    {"cuDNN",
     NVIDIA "cudnn9-cuda-13",
     "convolutions on a GPU, and the baseline of bench rnn and gru on it",
     false,
     {"libcudnn.so.9"}},
    {"NCCL", NVIDIA "libnccl2", "ranks with a GPU each", false, {"libnccl.so.2"}},
    {"OpenMPI", "openmpi-bin", "starts ranks as processes", true, {"mpirun"}},
    {"libsndfile", "libsndfile1-dev", AUDIO_USE, false, {"libsndfile.so.1"}},
    {"libsamplerate", "libsamplerate0-dev", AUDIO_USE, false, {"libsamplerate.so.0"}},
    {"libavutil",
     "libavutil-dev",
     AUDIO_USE,
     false,
     {"libavutil.so.60", "libavutil.so.59", "libavutil.so.58", "libavutil.so.57"}},
    {"protobuf-c",
     "libprotobuf-c-dev protobuf-c-compiler",
     "networks of ONNX files; both needed to build this",
     false,
     {"libprotobuf-c.so.1"}},
    {"gnuplot", "gnuplot-nox", "draws the figures of make demo and bppsa figures", true, {"gnuplot"}},
};
enum { BACKENDS = sizeof backends / sizeof backends[0] };
_Static_assert((int)BACKENDS == (int)BPPSA_DOCTOR_BACKENDS, "a place in bppsa_doctor for each row");

/* ---- finding libraries and programs ---- */

/* Looks for an executable file of that name in the directories of `path`, which colons separate. */
static bool find_program(const char *path, const char *name, char *found, size_t size) {
  while (path != NULL && *path != '\0') {
    const size_t length = strcspn(path, ":");
    const int written = snprintf(found, size, "%.*s/%s", (int)length, path, name);
    if (length > 0 && written > 0 && (size_t)written < size && access(found, X_OK) == 0) {
      return true;
    }
    path += length + (path[length] == ':');
  }
  return false;
}

/* Asks the loader first, then looks in CUDA's own directory, which the loader often does not know. */
static bool find_library(const char *name, char *found, size_t size) {
  snprintf(found, size, "%s", name);
  if (dlopen(found, RTLD_LAZY | RTLD_LOCAL) != NULL) {
    return true;
  }
  snprintf(found, size, "/usr/local/cuda/lib64/%s", name);
  return dlopen(found, RTLD_LAZY | RTLD_LOCAL) != NULL;
}

/* Writes the place where the backend was found, "" when it was not. */
static void find_backend(const backend *wanted, char *found, size_t size) {
  for (int i = 0; i < 6 && wanted->files[i] != NULL; ++i) {
    const bool here = wanted->program ? find_program(getenv("PATH"), wanted->files[i], found, size) ||
                                            find_program("/usr/local/cuda/bin", wanted->files[i], found, size)
                                      : find_library(wanted->files[i], found, size);
    if (here) {
      return;
    }
  }
  found[0] = '\0';
}

/* ---- what has to be loaded to be found ---- */

/* A probe writes its answer. If it gave none, `problem` says why and replaces whatever the probe had begun to write. `row`: the row
 * of the backends. */
typedef struct {
  void (*answer)(bppsa_doctor *d, int row);
  void (*answer_nothing)(bppsa_doctor *d, int row, const char *problem);
} probe_functions;

static void probe_cudnn(bppsa_doctor *d, int row) {
  (void)row;
  bppsa_cudnn_probe(&d->cudnn);
}

static void no_cudnn(bppsa_doctor *d, int row, const char *problem) {
  (void)row;
  d->cudnn = (bppsa_cudnn_report){.built = true};
  snprintf(d->cudnn.detail, sizeof d->cudnn.detail, "%s", problem);
}

static void probe_audio(bppsa_doctor *d, int row) {
  (void)row;
  bppsa_audio_probe(&d->audio);
}

static void no_audio(bppsa_doctor *d, int row, const char *problem) {
  (void)row;
  d->audio = (bppsa_audio_report){.built = true};
  snprintf(d->audio.detail, sizeof d->audio.detail, "%s", problem);
}

static void probe_transports(bppsa_doctor *d, int row) {
  (void)row;
  bppsa_comm_transports(d->transports);
}

/* Reports threads as found, because they need no library, and the other transports as missing. */
static void no_transports(bppsa_doctor *d, int row, const char *problem) {
  (void)row;
  for (int i = 0; i < BPPSA_COMM_TRANSPORT_COUNT; ++i) {
    bppsa_comm_transport_report *t = &d->transports[i];
    *t = (bppsa_comm_transport_report){.name = bppsa_comm_transport_name((bppsa_comm_transport)i), .package = "", .built = true};
    t->found = i == BPPSA_COMM_THREADS;
    snprintf(t->detail, sizeof t->detail, "%s", t->found ? "" : problem);
  }
}

static void probe_backend(bppsa_doctor *d, int row) {
  find_backend(&backends[row], d->found[row], BPPSA_DOCTOR_PLACE);
}

static void no_backend(bppsa_doctor *d, int row, const char *problem) {
  d->found[row][0] = '\0';
  snprintf(d->problem[row], BPPSA_DOCTOR_PROBLEM, "%s", problem);
}

/* The first probes; each later one belongs to a row of the backends. */
static const probe_functions first_probes[] = {
    {probe_cudnn, no_cudnn}, {probe_audio, no_audio}, {probe_transports, no_transports}};
static const probe_functions backend_probe = {probe_backend, no_backend};
enum { FIRST_PROBES = sizeof first_probes / sizeof first_probes[0], PROBES = FIRST_PROBES + BACKENDS };

static const probe_functions *functions_of(int probe) {
  return probe < FIRST_PROBES ? &first_probes[probe] : &backend_probe;
}

/* The answers of the process that loads libraries, read by the one that waits. Pointers lead to static texts, which both have. */
typedef struct {
  bppsa_doctor report;
  atomic_int at; /* the probe that is being made; PROBES: all are done */
} answers;

/* Waits until the process has ended, or has not come to another probe for `patience_s` seconds and is killed. Returns the signal
 * that ended the process. Returns 0 if it ended without one, if it was killed here, or if the caller ignores SIGCHLD, because then
 * the system does not say. */
static int wait_for(pid_t child, const answers *shared, double patience_s) {
  const struct timespec nap = {.tv_nsec = 2000000};
  int at = atomic_load(&shared->at), status = 0;
  double since = bppsa_now();
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
    const double now = bppsa_now();
    since = at != atomic_load(&shared->at) ? now : since;
    at = atomic_load(&shared->at);
    if (now - since >= patience_s) {
      (void)kill(child, SIGKILL);
      while (waitpid(child, NULL, 0) < 0 && errno == EINTR) { /* a signal arrived */
      }
      return 0;
    }
    (void)nanosleep(&nap, NULL);
  }
  return ended == child && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* Makes the probes from shared->at on in a separate process. text: why that process did not reach the last probe; "" if it did. */
static void probe_apart(answers *shared, double patience_s, char text[BPPSA_DOCTOR_PROBLEM]) {
  const pid_t child = fork();
  if (child == 0) {
    for (int i = atomic_load(&shared->at); i < PROBES; ++i) {
      functions_of(i)->answer(&shared->report, i - FIRST_PROBES);
      atomic_store(&shared->at, i + 1);
    }
    _exit(0);
  }
  text[0] = '\0';
  if (child < 0) {
    snprintf(text, BPPSA_DOCTOR_PROBLEM, "no process to load it: %s", strerror(errno));
    return;
  }
  const int number = wait_for(child, shared, patience_s);
  if (atomic_load(&shared->at) < PROBES && number != 0) {
    snprintf(text, BPPSA_DOCTOR_PROBLEM, "loading it ended the process by signal %d", number);
  } else if (atomic_load(&shared->at) < PROBES) {
    bppsa_print(text, BPPSA_DOCTOR_PROBLEM, "loading it did not end in %.3g s", patience_s);
  }
}

/* Makes all probes in other processes, because not every library can be unloaded cleanly, and one that stays loaded takes the place
 * of the version that another library of the caller's process needs. */
static void load_apart(double patience_s, bppsa_doctor *d) {
  const double end = bppsa_now() + 4 * patience_s;
  char problem[BPPSA_DOCTOR_PROBLEM] = "";
  answers *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    snprintf(problem, sizeof problem, "no memory to share with a process that loads it: %s", strerror(errno));
    for (int i = 0; i < PROBES; ++i) {
      functions_of(i)->answer_nothing(d, i - FIRST_PROBES, problem);
    }
    return;
  }
  shared->report = *d;
  atomic_init(&shared->at, 0);
  while (atomic_load(&shared->at) < PROBES) {
    if (bppsa_now() >= end) {
      bppsa_print(problem, sizeof problem, "it was not loaded, because others had not ended in %.3g s", 4 * patience_s);
    } else {
      probe_apart(shared, patience_s, problem);
    }
    if (problem[0] != '\0') {
      const int probe = atomic_load(&shared->at);
      functions_of(probe)->answer_nothing(&shared->report, probe - FIRST_PROBES, problem);
      atomic_fetch_add(&shared->at, 1);
    }
  }
  *d = shared->report;
  (void)munmap(shared, sizeof *shared);
}

void bppsa_doctor_examine(double patience_s, bppsa_doctor *d) {
  *d = (bppsa_doctor){
      .version = BPPSA_VERSION, .commit = BPPSA_COMMIT, .compiler = COMPILER, .cores = sysconf(_SC_NPROCESSORS_ONLN)};
  load_apart(patience_s, d);
  bppsa_device *device = NULL;
  if (bppsa_device_create("cpu", 0, &device) == BPPSA_OK) {
    snprintf(d->processor, sizeof d->processor, "%s", bppsa_device_get_hardware(device));
    d->threads = bppsa_device_get_threads(device);
  } else {
    snprintf(d->blas_problem, sizeof d->blas_problem, "%s", bppsa_last_error());
  }
  bppsa_device_destroy(device);
  d->blas = bppsa_blas_description();
  bppsa_machine_vector(d->vector, sizeof d->vector);
  bppsa_cuda_probe(&d->cuda);
}

/* ---- JSON ---- */

static json_t *cuda_json(const bppsa_cuda_report *cuda) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_bool(object, "built", cuda->built);
  ok = ok && bppsa_json_put_integer(object, "runtime", cuda->runtime);
  ok = ok && bppsa_json_put_integer(object, "driver", cuda->driver);
  ok = ok && bppsa_json_put_integer(object, "devices", cuda->devices);
  ok = ok && bppsa_json_put_text(object, "name", cuda->name);
  ok = ok && bppsa_json_put_integer(object, "memory_bytes", cuda->memory);
  ok = ok && bppsa_json_put_bool(object, "self_test", cuda->kernel_checked);
  ok = ok && bppsa_json_put_text(object, "detail", cuda->detail);
  return bppsa_json_finish(object, ok);
}

static json_t *cudnn_json(const bppsa_cudnn_report *cudnn) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_bool(object, "built", cudnn->built);
  ok = ok && bppsa_json_put_integer(object, "library_version", cudnn->version);
  ok = ok && bppsa_json_put_text(object, "detail", cudnn->detail);
  return bppsa_json_finish(object, ok);
}

static json_t *audio_json(const bppsa_audio_report *audio) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_bool(object, "built", audio->built);
  ok = ok && bppsa_json_put_bool(object, "found", audio->found);
  ok = ok && bppsa_json_put_text(object, "detail", audio->detail);
  return bppsa_json_finish(object, ok);
}

static json_t *transports_json(const bppsa_doctor *d) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int i = 0; ok && i < BPPSA_COMM_TRANSPORT_COUNT; ++i) {
    const bppsa_comm_transport_report *t = &d->transports[i];
    json_t *object = json_object();
    bool filled = object != NULL && bppsa_json_put_text(object, "name", t->name);
    filled = filled && bppsa_json_put_bool(object, "built", t->built);
    filled = filled && bppsa_json_put_bool(object, "found", t->found);
    filled = filled && bppsa_json_put_text(object, "package", t->package);
    filled = filled && bppsa_json_put_text(object, "detail", t->detail);
    ok = json_array_append_new(array, bppsa_json_finish(object, filled)) == 0;
  }
  return bppsa_json_finish(array, ok);
}

static json_t *backends_json(const bppsa_doctor *d) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int i = 0; ok && i < BACKENDS; ++i) {
    json_t *object = json_object();
    bool filled = object != NULL && bppsa_json_put_text(object, "name", backends[i].name);
    filled = filled && bppsa_json_put_bool(object, "found", d->found[i][0] != '\0');
    filled = filled && bppsa_json_put_text(object, "where", d->found[i]);
    filled = filled && bppsa_json_put_text(object, "problem", d->problem[i]);
    filled = filled && bppsa_json_put_text(object, "package", backends[i].package);
    filled = filled && bppsa_json_put_text(object, "use", backends[i].use);
    ok = json_array_append_new(array, bppsa_json_finish(object, filled)) == 0;
  }
  return bppsa_json_finish(array, ok);
}

json_t *bppsa_doctor_json(const bppsa_doctor *d) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "version", d->version);
  ok = ok && bppsa_json_put_text(object, "commit", d->commit);
  ok = ok && bppsa_json_put_text(object, "compiler", d->compiler);
  ok = ok && bppsa_json_put_text(object, "processor", d->processor);
  ok = ok && bppsa_json_put_text(object, "vector", d->vector);
  ok = ok && bppsa_json_put_text(object, "kernels", bppsa_simd_get()->name);
  ok = ok && bppsa_json_put_integer(object, "cores", d->cores);
  ok = ok && bppsa_json_put_integer(object, "threads", d->threads);
  ok = ok && bppsa_json_put_text(object, "blas", d->blas);
  ok = ok && bppsa_json_put_text(object, "blas_problem", d->blas_problem);
  ok = ok && bppsa_json_put(object, "cuda", cuda_json(&d->cuda));
  ok = ok && bppsa_json_put(object, "cudnn", cudnn_json(&d->cudnn));
  ok = ok && bppsa_json_put(object, "audio", audio_json(&d->audio));
  ok = ok && bppsa_json_put(object, "transports", transports_json(d));
  ok = ok && bppsa_json_put(object, "backends", backends_json(d));
  return bppsa_json_finish(object, ok);
}

/* ---- for people ---- */

static void add_cuda(const bppsa_cuda_report *cuda, bppsa_text *text) {
  const char *colon = cuda->detail[0] != '\0' ? ": " : "";
  char memory[BPPSA_SI_TEXT];
  if (!cuda->built) {
    bppsa_text_add(text, "CUDA          not built%s%s\n", colon, cuda->detail);
    return;
  }
  bppsa_text_add(text, "CUDA          built, runtime %d.%d, driver ", cuda->runtime / 1000, cuda->runtime % 1000 / 10);
  if (cuda->driver > 0) {
    bppsa_text_add(text, "%d.%d", cuda->driver / 1000, cuda->driver % 1000 / 10);
  } else {
    bppsa_text_add(text, "missing");
  }
  if (cuda->devices < 1) {
    bppsa_text_add(text, ", no GPU%s%s\n", colon, cuda->detail);
    return;
  }
  bppsa_text_add(text, ", GPUs %d: %s, %s; self-test kernel %s%s%s\n", cuda->devices, cuda->name,
                 bppsa_text_si((double)cuda->memory, "B", memory, sizeof memory), cuda->kernel_checked ? "right" : "failed",
                 colon, cuda->detail);
}

static void add_cudnn(const bppsa_cudnn_report *cudnn, bppsa_text *text) {
  if (cudnn->version > 0) {
    bppsa_text_add(text, "cuDNN         built, library %" PRId64 ".%" PRId64 ".%" PRId64 "\n", cudnn->version / 10000,
                   cudnn->version / 100 % 100, cudnn->version % 100);
    return;
  }
  bppsa_text_add(text, "cuDNN         %s: %s\n", cudnn->built ? "built, but not found" : "not built", cudnn->detail);
}

/* How ranks can talk to each other in this build, on this machine. */
static void add_transports(const bppsa_doctor *d, bppsa_text *text) {
  for (int i = 0; i < BPPSA_COMM_TRANSPORT_COUNT; ++i) {
    const bppsa_comm_transport_report *t = &d->transports[i];
    bppsa_text_add(text, "%-14s%s: %s%s%s\n", i == 0 ? "transports" : "", t->name,
                   t->found   ? "found"
                   : t->built ? "not found"
                              : "not built",
                   t->detail[0] != '\0' ? ", " : "", t->detail);
  }
}

bppsa_status bppsa_doctor_text(const bppsa_doctor *d, bppsa_text *text) {
  bppsa_text_add(text, "bppsa         %s%s%s\ncompiler      %s\nprocessor     %s\nvector units  %s; kernels: %s\n", d->version,
                 d->commit[0] != '\0' ? ", commit " : "", d->commit, d->compiler,
                 d->processor[0] != '\0' ? d->processor : "unknown", d->vector[0] != '\0' ? d->vector : "unknown",
                 bppsa_simd_get()->name);
  bppsa_text_add(text, "cores         %" PRId64 ", threads by default %" PRId64 "\nBLAS          %s%s%s\n", d->cores, d->threads,
                 d->blas, d->blas_problem[0] != '\0' ? "; unusable: " : "", d->blas_problem);
  add_cuda(&d->cuda, text);
  add_cudnn(&d->cudnn, text);
  bppsa_text_add(text, "audio         %s: %s\n",
                 d->audio.found   ? "built"
                 : d->audio.built ? "libraries missing"
                                  : "not built",
                 d->audio.detail);
  add_transports(d, text);
  bppsa_text_add(text, "\nOptional\n");
  for (int i = 0; i < BACKENDS; ++i) {
    const backend *b = &backends[i];
    const bool found = d->found[i][0] != '\0';
    const bool known = d->problem[i][0] == '\0';
    bppsa_text_add(text, "  %-14s%-10s %s%s%s%s; %s\n", b->name,
                   found   ? "found"
                   : known ? "not found"
                           : "no answer",
                   d->problem[i], known ? "" : "; ", found ? d->found[i] : "brought by ", found ? "" : b->package, b->use);
  }
  return bppsa_text_check(text);
}
