/* Communicators: ranks that exchange arrays, over one contract and several transports.
 *
 *   threads   ranks are threads of this process; each array is copied once, from the sender to the receiver
 *   mpi       ranks are processes that mpirun (or srun) started
 *   nccl      each rank owns a GPU; made from a communicator over threads or mpi (bppsa_comm_create_nccl)
 *
 * A program hands bppsa_comm_run a function; every rank executes it, with a communicator of all ranks. The contract:
 *
 *   - Every rank of a communicator calls the same collective operations in the same order: broadcast, allreduce,
 *     reduce-scatter, allgather, gather, barrier, split.
 *   - Messages are matched by sender, receiver and tag. Messages with the same sender, receiver and tag arrive in the order in
 *     which they were sent; messages with different tags may be received in any order.
 *   - A send may wait until its message is received. If two ranks first send to each other and then receive, both wait until the
 *     deadline: call bppsa_comm_irecv first.
 *   - Views are contiguous, in host memory or in memory of the GPU that bppsa_comm_set_device names. An operation whose name
 *     begins with "i" borrows its views until a wait, a test or a cancel has freed its request; the other operations borrow
 *     them until they return.
 *   - Every wait has a deadline: after the communicator's timeout it returns ERR_COMM, and the last error names the rank, the
 *     peer that it waited for, the operation, its tag, and the place in the program (bppsa_comm_at).
 *   - When a rank's function fails, or a rank calls bppsa_comm_abort, all waits of the other ranks end at once with ERR_COMM, and
 *     their last error names the failed rank and its reason. A communicator that has failed stays failed: return from the rank's
 *     function.
 *   - Only one thread at a time uses a communicator and the communicators split from it.
 *
 * The program's pages of documentation include a guide to ranks for users.
 */
#ifndef BPPSA_COMM_COMM_H
#define BPPSA_COMM_COMM_H

#include "core/base/status.h"
#include "core/base/view.h"
#include "core/compute/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_comm bppsa_comm;                 /* ranks that exchange arrays */
typedef struct bppsa_comm_request bppsa_comm_request; /* an operation that has begun */

/* ---- transports ---- */

/* Over what ranks exchange arrays. */
typedef enum { BPPSA_COMM_THREADS = 0, BPPSA_COMM_MPI, BPPSA_COMM_NCCL, BPPSA_COMM_TRANSPORT_COUNT } bppsa_comm_transport;

const char *bppsa_comm_transport_name(bppsa_comm_transport transport); /* "threads" */
/* ERR_ARGUMENT: an unknown name. */
bppsa_status bppsa_comm_transport_parse(const char *text, bppsa_comm_transport *transport);

typedef struct {
  const char *name;
  const char *package; /* the Debian package that contains it; "" if none is needed */
  bool built;          /* this build supports it */
  bool found;          /* its library is installed on this machine */
  char detail[256];    /* its version; if it is not found, what is missing, in words */
} bppsa_comm_transport_report;

/* Reports which transports this build supports and this machine has; never fails. Loads the libraries but initialises none. */
void bppsa_comm_transports(bppsa_comm_transport_report reports[BPPSA_COMM_TRANSPORT_COUNT]);

/* Says whether a launcher of MPI programs started this process. Environment variables show it whose names begin with
 * OMPI_COMM_WORLD_, PMIX_RANK, PMIX_NAMESPACE or PMI_; other variables of OpenMPI are a user's settings. Their values are not
 * used: rank and size come from MPI. */
bool bppsa_comm_launched(void);
/* Says whether this is the process that the launcher has numbered 0; true too if no variable shows its number. For work that one
 * process does without MPI. */
bool bppsa_comm_launched_first(void);

/* ---- running ranks ---- */

#define BPPSA_COMM_MAX_RANKS 4096 /* of a run */
#define BPPSA_COMM_MAX_TAG 32767  /* tags are 0 to this number, which every MPI supports */

typedef struct {
  bppsa_comm_transport transport; /* threads or mpi */
  int64_t ranks;  /* threads: 1 to BPPSA_COMM_MAX_RANKS. mpi: 0, or the number of processes that the launcher started */
  double timeout; /* the longest time that anything waits, in seconds, above 0 */
  /* NULL, or called once with the context of bppsa_comm_run, when no rank uses it any more: before bppsa_comm_run returns, or, if
   * ranks were left behind, by the thread of the last of them as it ends. It is called in every case, failures included. */
  void (*ended)(void *context);
} bppsa_comm_config;

bppsa_comm_config bppsa_comm_config_default(void); /* threads, 1 rank, 60 s */

/* The function that every rank executes. `world` is the communicator of all ranks and exists until the function returns. The
 * function must wait for all of its requests before it returns. */
typedef bppsa_status (*bppsa_comm_body)(bppsa_comm *world, void *context);

typedef struct {
  int32_t rank;        /* the rank that failed first; -1: none */
  bool here;           /* this process reports the error; with mpi, the processes of the other ranks get only ERR_COMM */
  int32_t left_behind; /* number of threads that did not end after the failure, and still use the context */
} bppsa_comm_outcome;

/* Calls body(world, context) on every rank. With threads, each rank is a new thread with its own last error and its own count of
 * memory; with mpi, each process of the job is a rank and calls body once. Returns when all ranks are done. After a failure the
 * other ranks have the timeout to end; then the function returns the status of the rank that failed first, and the last error is
 * "rank R: " followed by that rank's message. outcome: NULL, or receives which rank failed; it is set also on failure.
 * ERR_ARGUMENT: a number of ranks or a timeout out of range; mpi without a launcher or with another number of ranks.
 * ERR_UNSUPPORTED: mpi is not installed or not built (bppsa_comm_transports says which). ERR_MEMORY. ERR_COMM.
 * With mpi a program may call it only once: afterwards MPI is finalised or, after a failure, waits for bppsa_comm_end_job.
 * A process that is stopped while MPI ends is killed 5 s after the timeout. */
bppsa_status bppsa_comm_run(const bppsa_comm_config *config, bppsa_comm_body body, void *context, bppsa_comm_outcome *outcome);

/* Returns how many ranks of this process, of all runs, were left behind and have not ended yet. A thread cannot be ended from
 * outside: such a rank ends at its next operation, which fails, and frees its memory then. A program that ends earlier should end
 * by _exit, because destructors would free what the rank works with. */
int32_t bppsa_comm_left_behind(void);

/* A program that has run ranks calls this last, after it has reported an error. After a failure with mpi it ends every process of
 * the job, this one included: by MPI_Abort with this exit code, or, if MPI was ending already, by SIGKILL. After a run with mpi
 * that succeeded it returns, and the process has the timeout and 5 s to end; later the system ends it, even if it is stopped. With
 * threads it does nothing. */
void bppsa_comm_end_job(int exit_code);

/* ---- a communicator ---- */

int32_t bppsa_comm_rank(const bppsa_comm *comm); /* 0 .. size - 1 */
int32_t bppsa_comm_size(const bppsa_comm *comm); /* how many ranks it has */
/* Returns this rank's number among the job's ranks on the same machine; the next function returns how many they are. */
int32_t bppsa_comm_node_rank(const bppsa_comm *comm);
int32_t bppsa_comm_node_size(const bppsa_comm *comm);
bppsa_comm_transport bppsa_comm_get_transport(const bppsa_comm *comm);
/* Returns the communicator over threads or MPI from which a communicator over NCCL was made; for any other, itself. Borrowed. */
bppsa_comm *bppsa_comm_get_host(bppsa_comm *comm);
double bppsa_comm_get_timeout(const bppsa_comm *comm);

/* Sets the place in the program that error messages name: "up-sweep", 12 gives "at up-sweep 12"; a step below 0 is left out.
 * `where` is borrowed until the next call. The place holds for this rank in all communicators of its world. */
void bppsa_comm_at(bppsa_comm *comm, const char *where, int64_t step);

/* Sets the GPU whose memory the views of this rank may use, in all communicators of its world; a CPU or NULL: none. The device must
 * exist until the next call or until the communicator is destroyed; no request may be pending. If the transport cannot read GPU
 * memory, arrays travel through pinned host memory. The next function returns the device; NULL: none was set. */
void bppsa_comm_set_device(bppsa_comm *comm, const bppsa_device *device);
const bppsa_device *bppsa_comm_get_device(const bppsa_comm *comm);

/* The ranks that give the same color >= 0 form a new communicator, ordered by key, then by rank. A rank that gives color -1 gets
 * NULL. Collective. The caller destroys the part before the communicator it was split from. ERR_ARGUMENT, ERR_MEMORY,
 * ERR_COMM. */
bppsa_status bppsa_comm_split(bppsa_comm *comm, int32_t color, int32_t key, bppsa_comm **part);
/* Cancels the communicator's pending requests and frees it. NULL is legal. Do not call it for a world: bppsa_comm_run frees it. */
void bppsa_comm_destroy(bppsa_comm *comm);

/* Makes a communicator of the same ranks that sends arrays on GPUs over NCCL. host: a communicator over threads or mpi, which
 * still carries arrays in host memory, barriers and splits. device: this rank's GPU; no two ranks may have the same GPU. Both are
 * borrowed. Collective. NCCL has no tags, and it executes operations in the order in which they are begun. Messages that are
 * begun one after the other form a group, and a wait for one of them ends when the whole group is done. So two ranks must begin
 * the messages between them in the same order (bppsa_comm_check_order checks this), and before a rank waits it must have begun
 * the messages that its peers wait for. The new communicator counts operations over NCCL, host counts the others.
 * ERR_ARGUMENT: no GPU; two ranks on one GPU. ERR_UNSUPPORTED: no NCCL. ERR_MEMORY, ERR_CUDA, ERR_COMM. */
bppsa_status bppsa_comm_create_nccl(bppsa_comm *host, const bppsa_device *device, bppsa_comm **comm);

/* Compares the messages that every rank has sent to every other rank since the last call with the messages that the other rank
 * has received: their order, tags and sizes. ERR_COMM: names the first message that differs. If the transport matches tags
 * itself, nothing is compared. Collective. */
bppsa_status bppsa_comm_check_order(bppsa_comm *comm);

/* This rank gives up for the reason `why`: every wait of any rank of the job ends with ERR_COMM, now and later. Meant for a rank
 * whose function cannot return soon; returning an error has the same effect. */
void bppsa_comm_abort(bppsa_comm *comm, const char *why);

/* ---- messages ---- */

/* Sends the view's bytes to rank `to`, or receives them from rank `from`. If the receiver's view and the message differ in their
 * number of bytes, the receiver gets ERR_COMM with both numbers; with threads the sender gets it as well. ERR_ARGUMENT: a rank or
 * a tag out of range. ERR_SHAPE: a view that is not contiguous. ERR_COMM. */
bppsa_status bppsa_comm_send(bppsa_comm *comm, int32_t to, int32_t tag, const bppsa_view *view);
bppsa_status bppsa_comm_recv(bppsa_comm *comm, int32_t from, int32_t tag, const bppsa_view *view);
bppsa_status bppsa_comm_isend(bppsa_comm *comm, int32_t to, int32_t tag, const bppsa_view *view, bppsa_comm_request **request);
bppsa_status bppsa_comm_irecv(bppsa_comm *comm, int32_t from, int32_t tag, const bppsa_view *view, bppsa_comm_request **request);

/* ---- collective operations ---- */

typedef enum { BPPSA_COMM_SUM = 0, BPPSA_COMM_MAX, BPPSA_COMM_MIN, BPPSA_COMM_OP_COUNT } bppsa_comm_op; /* of a reduction */

/* Copies the root's view to the views of all other ranks; all have the same number of bytes. */
bppsa_status bppsa_comm_broadcast(bppsa_comm *comm, int32_t root, const bppsa_view *view);
bppsa_status bppsa_comm_ibroadcast(bppsa_comm *comm, int32_t root, const bppsa_view *view, bppsa_comm_request **request);

/* Reduces all ranks' views element by element, in place; f32, f64 or i64. The transport chooses the order of additions; with
 * threads it is the order of ranks. For sums whose bits do not depend on the number of ranks see comm/ordered.h. ERR_UNSUPPORTED:
 * another dtype. */
bppsa_status bppsa_comm_allreduce(bppsa_comm *comm, bppsa_comm_op op, const bppsa_view *view);
bppsa_status bppsa_comm_iallreduce(bppsa_comm *comm, bppsa_comm_op op, const bppsa_view *view, bppsa_comm_request **request);

/* Reduces all ranks' `all` element by element, and gives each rank its part of the result, in the order of ranks: `all` has as many
 * elements as `mine` for every rank, and stays as it is. Order and dtypes as above. ERR_SHAPE: another number of elements, another
 * dtype. */
bppsa_status bppsa_comm_reduce_scatter(bppsa_comm *comm, bppsa_comm_op op, const bppsa_view *all, const bppsa_view *mine);
bppsa_status bppsa_comm_ireduce_scatter(bppsa_comm *comm, bppsa_comm_op op, const bppsa_view *all, const bppsa_view *mine,
                                        bppsa_comm_request **request);

/* Copies every rank's `mine`, in the order of ranks, to `all`: allgather on every rank, gather on root alone (on other ranks `all`
 * may be NULL). counts: the number of elements of each rank's part, one count for each rank of the communicator, equal on all
 * ranks, read before the call returns; NULL: all parts have the same size. All views have the same dtype. ERR_SHAPE: `mine` or
 * `all` has another number of elements than counts says. */
bppsa_status bppsa_comm_allgather(bppsa_comm *comm, const bppsa_view *mine, const int64_t *counts, const bppsa_view *all);
bppsa_status bppsa_comm_iallgather(bppsa_comm *comm, const bppsa_view *mine, const int64_t *counts, const bppsa_view *all,
                                   bppsa_comm_request **request);
bppsa_status bppsa_comm_gather(bppsa_comm *comm, int32_t root, const bppsa_view *mine, const int64_t *counts,
                               const bppsa_view *all);
bppsa_status bppsa_comm_igather(bppsa_comm *comm, int32_t root, const bppsa_view *mine, const int64_t *counts,
                                const bppsa_view *all, bppsa_comm_request **request);

/* Waits until every rank has called it. */
bppsa_status bppsa_comm_barrier(bppsa_comm *comm);
bppsa_status bppsa_comm_ibarrier(bppsa_comm *comm, bppsa_comm_request **request);

/* ---- requests ---- */

/* The call that finds a request done frees it and sets it to NULL. NULL requests are legal and ignored. All requests of one call
 * belong to the same rank and the same transport: ERR_ARGUMENT if not, and the requests stay as they are. When one of these calls
 * fails otherwise, it cancels all of its requests and sets them to NULL, and no longer borrows their views. */
bppsa_status bppsa_comm_wait(bppsa_comm_request **request);
bppsa_status bppsa_comm_wait_all(int64_t count, bppsa_comm_request **requests);
/* Waits until one of the requests is done. index: its position; -1 if all are NULL. */
bppsa_status bppsa_comm_wait_any(int64_t count, bppsa_comm_request **requests, int64_t *index);
/* Says whether the request is done, without waiting. */
bppsa_status bppsa_comm_test(bppsa_comm_request **request, bool *done);
/* Fails with ERR_COMM and the message of bppsa_comm_wait, for a caller that has waited for a request by bppsa_comm_test for
 * longer than the communicator's timeout. The request remains the caller's. */
bppsa_status bppsa_comm_expired(const bppsa_comm_request *request);
/* Cancels requests and sets them to NULL. A function that fails for another reason calls this for its requests before it
 * returns. */
void bppsa_comm_cancel(int64_t count, bppsa_comm_request **requests);

/* ---- what a rank has done ---- */

/* Counts of one rank, over all communicators that were split from one world. */
typedef struct {
  int64_t messages_sent, bytes_sent;         /* counted when begun */
  int64_t messages_received, bytes_received; /* counted when done */
  int64_t collectives, collective_bytes;     /* counted when begun; bytes of this rank's view (`mine`), 0 for a split */
} bppsa_comm_counters;

void bppsa_comm_get_counters(const bppsa_comm *comm, bppsa_comm_counters *counters); /* since the latest reset */
void bppsa_comm_reset_counters(bppsa_comm *comm);                                    /* to 0 */

/* bytes: host memory that this rank's thread has allocated and still holds; peak: the most that it has held. */
void bppsa_comm_get_memory(const bppsa_comm *comm, int64_t *bytes, int64_t *peak);

/* ---- for tests ---- */

/* The faults to inject on this rank. Operations are sends, receives and collectives; they are counted from 1, beginning with this
 * call. */
typedef struct {
  double delay;     /* seconds by which every send is delayed, as on a slow link */
  int64_t die_at;   /* this operation and all later ones fail, as if the rank had died; 0: none */
  int64_t stall_at; /* this operation does not return until another rank has given up, or for ten timeouts; 0: none */
} bppsa_comm_fault;

void bppsa_comm_set_fault(bppsa_comm *comm, const bppsa_comm_fault *fault);
/* Sets a fault for runs that have not begun: from now on, this rank of every run of this process begins with it; rank -1: every
 * rank does. For programs that begin their runs themselves. NULL: no fault. Do not call it while a run begins. */
void bppsa_comm_set_run_fault(int32_t rank, const bppsa_comm_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
