/* Ranks that are processes of an MPI job. All MPI calls go through the module of comm/mpi_module.h, which is loaded when it is
 * first needed.
 *
 * A rank that waits polls MPI, at first without pauses and then with them, until the deadline. A rank that fails sends a notice to
 * all others over a separate communicator, which the others poll while they wait. MPI itself has no failure after which the other
 * ranks could go on.
 *
 * (The file is long because it is one transport, from MPI's start to the end of the process, on one state of the job.)
 */
#define _GNU_SOURCE 1 /* dladdr */
#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm_internal.h"
#include "comm/mpi_module.h"
#include "core/base/clock.h"

/* ---- the module ---- */

static const mpi_module *module;
static bool module_exists;
static char problem[400]; /* why the module cannot be loaded */

/* Loads the module from the directory; false if the directory does not contain it. OpenMPI's symbols are made visible to the
 * whole program (RTLD_GLOBAL), because OpenMPI's own plug-ins look for them in the program. */
static bool load_from(const char *format, const char *directory) {
  char path[1024];
  const int length = snprintf(path, sizeof path, format, directory);
  if (length <= 0 || (size_t)length >= sizeof path || access(path, R_OK) != 0) {
    return false;
  }
  module_exists = true;
  void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  const mpi_module *found = library != NULL ? dlsym(library, MPI_MODULE_SYMBOL) : NULL;
  if (found == NULL) {
    snprintf(problem, sizeof problem, "%.390s", dlerror());
  } else if (found->interface != MPI_MODULE_INTERFACE) {
    snprintf(problem, sizeof problem, "%.300s: of another version of the library", path);
    found = NULL;
  }
  module = found;
  return true;
}

/* Looks for the module in the directories where builds and installations put it, relative to the program or the shared library
 * that contains this code. */
static void load(void) {
  static const char *const places[] = {"%s/" MPI_MODULE_FILE, "%s/../" MPI_MODULE_FILE, "%s/bppsa/" MPI_MODULE_FILE,
                                       "%s/" BPPSA_MODULES_FROM_PROGRAMS "/" MPI_MODULE_FILE,
                                       BPPSA_MODULES_INSTALLED "/" MPI_MODULE_FILE "%.0s"};
  char own[1024] = ".";
  Dl_info info;
  if (dladdr((void *)(uintptr_t)&load, &info) != 0 && info.dli_fname != NULL) {
    char *resolved = realpath(strchr(info.dli_fname, '/') != NULL ? info.dli_fname : "/proc/self/exe", own);
    char *slash = resolved != NULL ? strrchr(own, '/') : NULL;
    if (slash != NULL) {
      *slash = '\0';
    }
  }
  const char *named = getenv("BPPSA_MODULES");
  bool found = named != NULL && load_from("%s/" MPI_MODULE_FILE, named);
  for (size_t i = 0; !found && i < sizeof places / sizeof places[0]; ++i) {
    found = load_from(places[i], own);
  }
  if (!found) {
    snprintf(problem, sizeof problem,
             "no module " MPI_MODULE_FILE " beside the program, in its library or in BPPSA_MODULES; it is built "
             "where MPI is (packages libopenmpi-dev openmpi-bin)");
  }
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static bppsa_status load_module(void) {
  (void)pthread_once(&once, load);
  return module != NULL ? BPPSA_OK
                        : bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                                     "transport mpi: %s; --transport threads with --ranks P does without it", problem);
}

void bppsa_comm_probe_mpi(bppsa_comm_transport_report *report) {
  report->found = load_module() == BPPSA_OK;
  report->built = module_exists;
  if (report->found) {
    module->version(report->detail, (int)sizeof report->detail);
  } else {
    snprintf(report->detail, sizeof report->detail, "%.250s", problem);
  }
}

/* ---- the world ---- */

typedef struct {
  int32_t rank; /* the rank that failed */
  char reason[508];
} notice;

typedef struct {
  bppsa_comm_endpoint endpoint;
  bppsa_comm comm; /* the communicator of all ranks */
  mpi_start started;
  bool failed, told; /* failed: a rank has failed; told: it was this rank, and it has told the others */
  notice failure;
  int pauses; /* pauses made since the last event */
  int shared; /* events at which the processor still counts as shared with others */
} mpi_world;

typedef struct {
  bppsa_comm_request base;
  mpi_handle handle;
  bool begun, done;
} mpi_request;

/* The state of MPI in this process, for bppsa_comm_end_job and for a second run. */
static enum { MPI_NEVER, MPI_RUNNING, MPI_BROKEN_HERE, MPI_BROKEN_ELSEWHERE, MPI_OVER } stage;
static bool finalising;
static double last_timeout; /* of the latest run */

static mpi_world *world_of(const bppsa_comm *comm) {
  return (mpi_world *)(void *)comm->endpoint;
}

static mpi_handle handle_of(const bppsa_comm *comm) {
  return *(const mpi_handle *)comm->own;
}

static bppsa_status check_mpi(int error, const char *what) {
  if (error == 0) {
    return BPPSA_OK;
  }
  char words[300];
  module->error_text(error, words, sizeof words);
  return bppsa_fail(BPPSA_ERR_COMM, "MPI: %s: %s", what, words);
}

static void sleep_ns(long nanoseconds) {
  const struct timespec time = {0, nanoseconds};
  (void)nanosleep(&time, NULL);
}

static void sleep_s(time_t seconds) {
  const struct timespec time = {seconds, 0};
  (void)nanosleep(&time, NULL);
}

/* Receives the notices of failures that have arrived. If several ranks failed at the same moment, the lowest rank is the one that
 * is reported. */
static void hear(mpi_world *world) {
  notice heard;
  for (int from = 0; module->look(world->started.control, &heard, sizeof heard, &from) == 0 && from >= 0;) {
    if (!world->failed || heard.rank < world->failure.rank) {
      heard.reason[sizeof heard.reason - 1] = '\0';
      world->failure = heard;
      world->failed = true;
    }
  }
}

/* Listens for this many seconds; until_failed: stops once a rank is known to have failed. */
static void listen_for(mpi_world *world, double seconds, bool until_failed) {
  const double deadline = bppsa_now() + seconds;
  hear(world);
  while (world->started.size > 1 && bppsa_now() < deadline && !(until_failed && world->failed)) {
    sleep_ns(1000000);
    hear(world);
  }
}

/* Tells all other ranks that this one failed, and waits a moment for a notice of another rank that failed at the same time.
 *
 * First it waits for notices on their way. A rank that was stopped, and goes on because the job is being ended, finds its own
 * deadline over; it must not report that beside the rank that has waited for it. MPI may need several looks to show what has
 * arrived. */
static void tell(mpi_world *world, const char *reason) {
  const double before = 0.1, patience = 0.2;
  const int size = world->started.size;
  listen_for(world, world->told ? 0 : before, true);
  if (world->failed || world->told) {
    return;
  }
  static notice own; /* static because MPI may read it until the process ends */
  own.rank = world->endpoint.world_rank;
  snprintf(own.reason, sizeof own.reason, "%s", reason);
  world->failed = world->told = true;
  world->failure = own;
  for (int r = 0; r < size; ++r) {
    mpi_handle request = 0;
    if (r != own.rank) {
      (void)module->send(world->started.control, &own, sizeof own, r, 0, &request);
    }
  }
  listen_for(world, patience, false);
}

/* ---- calls that block ---- */

/* An MPI call without a deadline, made on a separate thread because a stopped rank would block it for ever. */
typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t over;
  int (*call)(void *argument);
  void *argument;
  int error;
  bool done;
} blocking_call;

static void *make_call(void *argument) {
  blocking_call *b = argument;
  const int error = b->call(b->argument);
  (void)pthread_mutex_lock(&b->mutex);
  b->error = error;
  b->done = true;
  (void)pthread_cond_signal(&b->over);
  (void)pthread_mutex_unlock(&b->mutex);
  return NULL;
}

/* Makes the call and waits for it until the deadline. After the deadline the thread and its memory are left behind, because the
 * job has to end. */
static bppsa_status call_in_time(int (*call)(void *argument), void *argument, double timeout, const char *what) {
  static blocking_call b; /* static because the thread may outlive the wait; only one call runs at a time */
  b = (blocking_call){.call = call, .argument = argument};
  pthread_condattr_t attributes;
  (void)pthread_condattr_init(&attributes);
  (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  (void)pthread_cond_init(&b.over, &attributes);
  (void)pthread_condattr_destroy(&attributes);
  (void)pthread_mutex_init(&b.mutex, NULL);
  pthread_t thread;
  if (pthread_create(&thread, NULL, make_call, &b) != 0) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "MPI: %s: the system refuses another thread", what);
  }
  const double deadline = bppsa_now() + timeout;
  const time_t seconds = (time_t)deadline;
  const struct timespec time = {seconds, (long)((deadline - (double)seconds) * 1e9)};
  (void)pthread_mutex_lock(&b.mutex);
  for (int waited = 0; !b.done && waited == 0;) {
    waited = pthread_cond_timedwait(&b.over, &b.mutex, &time);
  }
  const bool done = b.done;
  const int error = b.error;
  (void)pthread_mutex_unlock(&b.mutex);
  if (!done) {
    (void)pthread_detach(thread);
    return bppsa_fail(BPPSA_ERR_COMM, "waited %g s for the other ranks: MPI: %s", timeout, what);
  }
  (void)pthread_join(thread, NULL);
  (void)pthread_cond_destroy(&b.over);
  (void)pthread_mutex_destroy(&b.mutex);
  return check_mpi(error, what);
}

/* ---- the end of this process ---- */

enum { END_GRACE = 5, REPORT_AFTER = 3 }; /* seconds */

/* Lets the system kill this process after the timeout and END_GRACE; a negative timeout takes that back. A process that is stopped
 * when MPI ends would otherwise stay for ever: the other ranks have ended or end MPI, and only the launcher waits for it, without
 * a deadline. The system's timer also runs, and its SIGKILL also arrives, while a process is stopped. */
static void end_within(double timeout) {
  static timer_t timer;
  static bool exists;
  if (!exists) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL};
    event.sigev_signo = SIGKILL;
    exists = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0; /* if the system has no timer left, such a process stays */
  }
  const double seconds = timeout < 0 ? 0 : timeout + END_GRACE; /* 0 stops the timer */
  const struct itimerspec time = {.it_value = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}};
  if (exists) {
    (void)timer_settime(timer, 0, &time, NULL);
  }
}

/* ---- the table ---- */

static bppsa_status check(const bppsa_comm *comm) {
  mpi_world *world = world_of(comm);
  if (!world->failed) {
    hear(world);
  }
  return world->failed ? bppsa_fail(BPPSA_ERR_COMM, "%s", world->failure.reason) : BPPSA_OK;
}

static void fail(bppsa_comm *comm, const char *why) {
  char reason[508];
  snprintf(reason, sizeof reason, "rank %d gave up: %s", comm->endpoint->world_rank, why);
  tell(world_of(comm), reason);
}

enum { YIELDS = 200 /* pauses that are no sleeps */, LONGEST = 200000 /* ns */, SHARED = 100 /* events */ };

/* A request has begun or ended: the next one may end soon. */
static void note_event(mpi_world *world) {
  world->pauses = world->shared > 0 ? YIELDS : 0;
  world->shared -= world->shared > 0;
}

/* Begins a gather. Its counts and places, which MPI wants as ints, are stored after the offsets. */
static bppsa_status gather(mpi_request *m, int *error) {
  bppsa_comm_request *r = &m->base;
  const bppsa_comm *comm = r->comm;
  const int32_t size = comm->size;
  int *counts = (int *)(void *)(r->offsets + size + 1), *places = counts + size;
  if (r->offsets[size] > INT_MAX) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s of %" PRId64 " elements: MPI counts to %d, expected several calls",
                      bppsa_comm_kind_name(r->kind), r->offsets[size], INT_MAX);
  }
  for (int32_t i = 0; i < size; ++i) {
    places[i] = (int)r->offsets[i];
    counts[i] = (int)(r->offsets[i + 1] - r->offsets[i]);
  }
  const int width = (int)bppsa_dtype_size(r->dtype);
  const bool in_place = r->all != NULL && (char *)r->all + r->offsets[comm->rank] * width == r->data;
  static char nothing; /* the address for an empty part: NULL would mean MPI_IN_PLACE */
  const void *data = in_place ? NULL : r->data != NULL ? r->data : &nothing;
  *error = module->gather(handle_of(comm), data, (int)r->count, r->all, counts, places, width, r->peer, &m->handle);
  return BPPSA_OK;
}

static bppsa_status post(bppsa_comm_request *r) {
  mpi_request *m = (mpi_request *)(void *)r;
  const mpi_handle comm = handle_of(r->comm);
  const bppsa_device *device = r->comm->endpoint->device;
  int error = 0;
  if ((r->comm->table->reads_gpu >> r->kind & 1U) != 0 && device != NULL) {
    BPPSA_TRY(bppsa_device_wait(device)); /* MPI does not wait for the device's stream */
  }
  if ((r->kind == BPPSA_COMM_ALLREDUCE || r->kind == BPPSA_COMM_REDUCE_SCATTER) && r->count > INT_MAX) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s of %" PRId64 " elements: MPI counts to %d, expected several calls",
                      bppsa_comm_kind_name(r->kind), r->count, INT_MAX);
  }
  switch (r->kind) {
  case BPPSA_COMM_SEND:
    error = module->send(comm, r->data, r->bytes, r->peer, r->tag, &m->handle);
    break;
  case BPPSA_COMM_RECV:
    error = module->receive(comm, r->data, r->bytes, r->peer, r->tag, &m->handle);
    break;
  case BPPSA_COMM_BROADCAST:
    error = module->broadcast(comm, r->data, r->bytes, r->peer, &m->handle);
    break;
  case BPPSA_COMM_ALLREDUCE:
    error = module->reduce(comm, r->data, (int)r->count, (int)r->dtype, (int)r->op, &m->handle);
    break;
  case BPPSA_COMM_REDUCE_SCATTER:
    error = module->reduce_scatter(comm, r->data, r->all, (int)(r->count / r->comm->size), (int)r->dtype, (int)r->op, &m->handle);
    break;
  case BPPSA_COMM_BARRIER:
    error = module->barrier(comm, &m->handle);
    break;
  default:
    BPPSA_TRY(gather(m, &error));
    break;
  }
  BPPSA_TRY(check_mpi(error, bppsa_comm_kind_name(r->kind)));
  m->begun = true;
  note_event(world_of(r->comm));
  return BPPSA_OK;
}

static bppsa_status poll(bppsa_comm_request *r, bool *done) {
  mpi_request *m = (mpi_request *)(void *)r;
  int64_t bytes = -1;
  bool truncated = false, finished = m->done;
  if (!m->done) {
    const int error = module->test(&m->handle, &finished, &bytes, &truncated);
    if (r->kind == BPPSA_COMM_RECV && (truncated || finished) && bytes != r->bytes && bytes >= 0) {
      m->done = true;
      return bppsa_fail(BPPSA_ERR_COMM, "rank %d sent %" PRId64 " bytes, this rank expects %" PRId64, r->comm->members[r->peer],
                        bytes, r->bytes);
    }
    BPPSA_TRY(check_mpi(error, bppsa_comm_kind_name(r->kind)));
  }
  if (finished && !m->done) {
    m->done = true;
    note_event(world_of(r->comm));
  }
  *done = finished;
  return BPPSA_OK;
}

/* Cancels a message. MPI cannot cancel a collective operation: it stays begun, and the job has to end. */
static void cancel(bppsa_comm_request *r) {
  mpi_request *m = (mpi_request *)(void *)r;
  if (m->begun && !m->done && bppsa_comm_is_message(r->kind)) {
    module->cancel(&m->handle, r->kind == BPPSA_COMM_RECV);
  }
}

static uint64_t look(const bppsa_comm *comm) {
  (void)comm;
  return 0;
}

/* Yields the processor at first, then sleeps for growing times, because there may be more ranks than processors. A yield that comes
 * back late has let others compute: then the rank sleeps at once, because a process that wakes runs before them, not behind. */
static void idle(const bppsa_comm *comm, uint64_t seen, double deadline) {
  mpi_world *world = world_of(comm);
  const long nanoseconds = 1000L * (world->pauses++ - YIELDS + 1);
  const double before = bppsa_now();
  (void)seen, (void)deadline;
  if (nanoseconds > 0) {
    sleep_ns(nanoseconds < LONGEST ? nanoseconds : LONGEST);
    world->pauses -= nanoseconds < LONGEST ? 0 : 1;
  } else if (sched_yield() == 0 && bppsa_now() - before > 100e-6) {
    world->pauses = YIELDS;
    world->shared = SHARED;
  }
}

static void blame(const bppsa_comm_request *r, char *text, size_t size) {
  if (bppsa_comm_is_message(r->kind)) {
    snprintf(text, size, "rank %d", r->comm->members[r->peer]);
  } else {
    snprintf(text, size, "the other ranks");
  }
}

static struct {
  mpi_handle comm, part;
  int color, key;
} splitting; /* static because a call that does not return may still use it */

static int call_split(void *unused) {
  (void)unused;
  return module->split(splitting.comm, splitting.color, splitting.key, &splitting.part);
}

static bppsa_status split(bppsa_comm *comm, int32_t color, int32_t key, bppsa_comm *part) {
  mpi_handle *handle = NULL;
  if (part != NULL && (handle = bppsa_alloc(sizeof *handle)) == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  splitting.comm = handle_of(comm);
  splitting.color = color;
  splitting.key = key;
  const bppsa_status status = call_in_time(call_split, NULL, comm->endpoint->timeout, "split");
  if (status != BPPSA_OK) {
    char place[BPPSA_COMM_PLACE], reason[400];
    snprintf(reason, sizeof reason, "%.390s", bppsa_last_error());
    bppsa_free(handle);
    return bppsa_fail(status, "rank %d %s%s", comm->endpoint->world_rank, reason, bppsa_comm_place(comm->endpoint, place));
  }
  if (part != NULL) {
    *handle = splitting.part;
    part->own = handle;
  }
  return BPPSA_OK;
}

static void close_comm(bppsa_comm *comm) {
  if (!world_of(comm)->failed) {
    (void)module->free_comm(handle_of(comm));
  }
  bppsa_free(comm->own);
}

#define TABLE(reads)                                                                                                             \
  {                                                                                                                              \
    .transport = BPPSA_COMM_MPI, .reads_gpu = (reads), .request_bytes = sizeof(mpi_request), .post = post, .poll = poll,         \
    .cancel = cancel, .look = look, .idle = idle, .check = check, .fail = fail, .blame = blame, .split = split,                  \
    .close = close_comm                                                                                                          \
  }
/* The second table is for an MPI library that accepts GPU memory: only for messages, because such libraries do not accept it in
 * all collective operations. */
static const bppsa_comm_table tables[2] = {TABLE(0), TABLE(1U << BPPSA_COMM_SEND | 1U << BPPSA_COMM_RECV)};

/* ---- running ---- */

static int call_start(void *started) {
  return module->start(started);
}

static int call_finish(void *started) {
  return module->finish(started);
}

static bppsa_status start(const bppsa_comm_config *config, mpi_world *world, bppsa_comm_outcome *outcome) {
  if (stage != MPI_NEVER) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "transport mpi: MPI cannot be started twice in a process, expected one run");
  }
  if (!bppsa_comm_launched()) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "transport mpi: no launcher has started this process, expected mpirun -n P or srun in front "
                      "of the program");
  }
  BPPSA_TRY(load_module());
  stage = MPI_BROKEN_HERE;
  const double least = 10; /* the processes of a job do not begin at the same moment */
  BPPSA_TRY(call_in_time(call_start, &world->started, config->timeout > least ? config->timeout : least, "start"));
  stage = MPI_RUNNING;
  const mpi_start *started = &world->started;
  outcome->here = started->rank == 0;
  if (config->ranks != 0 && config->ranks != started->size) {
    stage = outcome->here ? MPI_BROKEN_HERE : MPI_BROKEN_ELSEWHERE;
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "ranks %" PRId64
                      ": the launcher started %d, expected the same number or none; --transport threads does without "
                      "a launcher",
                      config->ranks, started->size);
  }
  return BPPSA_OK;
}

/* Runs the body and the end of the job: MPI is finalised after all ranks are done. */
static bppsa_status run_body(mpi_world *world, bppsa_comm_body body, void *context) {
  bppsa_comm_begin_fault(&world->endpoint);
  bppsa_status status = body(&world->comm, context);
  if (status == BPPSA_OK && world->endpoint.pending != NULL) {
    status = bppsa_comm_unwaited(&world->endpoint);
  }
  world->endpoint.fault = (bppsa_comm_fault){0};
  status = status == BPPSA_OK ? check(&world->comm) : status; /* an abort by any rank is a failure */
  bppsa_comm_at(&world->comm, "the end", -1);
  return status == BPPSA_OK ? bppsa_comm_barrier(&world->comm) : status;
}

/* Finalises MPI. If a rank does not take part, the others cannot agree any more which of them reports it. Rank 0 reports it and
 * ends the job, unless it is late itself: then it was stopped, and goes on because the job is being ended. Rank 1, if it still
 * exists REPORT_AFTER seconds later, does it instead, because then rank 0 is the missing one. */
static bppsa_status finalise(mpi_world *world, bppsa_comm_outcome *outcome) {
  const double timeout = world->endpoint.timeout, late = bppsa_now() + timeout + 0.5;
  const int32_t rank = world->endpoint.world_rank;
  finalising = true;
  end_within(timeout);
  bppsa_status status = call_in_time(call_finish, &world->started, timeout, "finish");
  if (status == BPPSA_OK) {
    end_within(-1);
    stage = MPI_OVER;
    return BPPSA_OK;
  }
  status = bppsa_fail_prefix(status, "rank %d", rank);
  outcome->rank = rank;
  outcome->here = rank <= 1 && bppsa_now() < late;
  stage = outcome->here ? MPI_BROKEN_HERE : MPI_BROKEN_ELSEWHERE;
  if (rank == 1) {
    sleep_s(REPORT_AFTER);
  }
  return status;
}

static bppsa_status finish(mpi_world *world, bppsa_status status, bppsa_comm_outcome *outcome) {
  if (status == BPPSA_OK) {
    return finalise(world, outcome);
  }
  char reason[508];
  bppsa_comm_reason(world->endpoint.world_rank, status, reason, sizeof reason);
  tell(world, reason);
  outcome->rank = world->failure.rank;
  outcome->here = world->failure.rank == world->endpoint.world_rank;
  stage = outcome->here ? MPI_BROKEN_HERE : MPI_BROKEN_ELSEWHERE;
  return bppsa_fail(outcome->here ? status : BPPSA_ERR_COMM, "%s", world->failure.reason);
}

bppsa_status bppsa_comm_run_mpi(const bppsa_comm_config *config, bppsa_comm_body body, void *context,
                                bppsa_comm_outcome *outcome) {
  static mpi_world world; /* static because MPI may use it after a failure */
  BPPSA_TRY(start(config, &world, outcome));
  const mpi_start *started = &world.started;
  last_timeout = config->timeout;
  world.endpoint = (bppsa_comm_endpoint){.world_rank = started->rank,
                                         .node_rank = started->node_rank,
                                         .node_size = started->node_size,
                                         .timeout = config->timeout,
                                         .account = bppsa_alloc_account_create()};
  world.comm = (bppsa_comm){.table = &tables[started->reads_gpu ? 1 : 0],
                            .endpoint = &world.endpoint,
                            .rank = started->rank,
                            .size = started->size,
                            .members = bppsa_calloc(started->size, sizeof(int32_t)),
                            .own = &world.started.messages};
  bppsa_status status = BPPSA_ERR_MEMORY;
  if (world.endpoint.account != NULL && world.comm.members != NULL) {
    for (int32_t r = 0; r < world.comm.size; ++r) {
      world.comm.members[r] = r;
    }
    bppsa_alloc_account_use(world.endpoint.account);
    status = run_body(&world, body, context);
    bppsa_alloc_account_use(NULL);
  }
  status = finish(&world, status, outcome);
  (void)bppsa_comm_cancel_pending(&world.endpoint, NULL);
  bppsa_comm_endpoint_clear(&world.endpoint);
  bppsa_alloc_account_destroy(world.endpoint.account);
  bppsa_free(world.comm.members);
  return status;
}

void bppsa_comm_end_mpi_job(int exit_code) {
  const bool broken = stage == MPI_BROKEN_HERE || stage == MPI_BROKEN_ELSEWHERE;
  if (stage == MPI_OVER) {
    end_within(last_timeout);
  }
  if (stage == MPI_BROKEN_ELSEWHERE) { /* give the rank that failed first time to report its error and to end the job */
    sleep_s(finalising ? END_GRACE : 2);
  }
  if (broken && finalising) { /* beside an MPI_Finalize in another thread, MPI_Abort sometimes makes mpirun 4.1 hang */
    (void)raise(SIGKILL);
  }
  if (broken) {
    module->end_job(exit_code);
  }
}
