/* Communicators: ranks that exchange arrays, over one contract and several transports.
 *
 *   threads   ranks are threads of this process; an array is copied once, from the sender's to the receiver's
 *   mpi       ranks are processes that mpirun (or srun) started
 *   nccl      ranks own a GPU each; made from a communicator of the other two (bppsa_comm_create_nccl)
 *
 * A program hands bppsa_comm_run a function; every rank executes it, with a communicator of all ranks. The contract:
 *
 *   - Every rank of a communicator calls the same collective operations (broadcast, allreduce, allgather, gather, barrier, split)
 * in the same order. Messages are matched by sender, receiver and tag; of one (sender, receiver, tag) they arrive in the order
 *     in which they were sent. Messages of different tags may be received in any order.
 * - A send may wait until its message is received. Two ranks that first send to each other and then receive wait for ever
 * (until
 *     the deadline): use bppsa_comm_irecv first.
 *   - Views are contiguous, of host memory or of the GPU that bppsa_comm_set_device names. An operation that "i..." starts
 *     borrows its views until a wait, a test or a cancel has taken the request back; the other operations until they return.
 *   - Everything that waits has a deadline: after the communicator's timeout it returns ERR_COMM, and the last error names the
 *     rank, the peer it waited for, the operation, its tag, and where the program was (bppsa_comm_at).
 *   - When a rank's function fails, or a rank calls bppsa_comm_abort, what the others wait for ends at once with ERR_COMM, and
 *     their last error names that rank and its reason. A communicator that failed stays failed: return from the rank's function.
 *   - A communicator, with those split from it, is used by one thread at a time.
 *
 * docs/ranks.md describes all of it for users.
 */
#ifndef BPPSA_COMM_COMM_H
#define BPPSA_COMM_COMM_H

#include "core/device.h"
#include "core/status.h"
#include "core/view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_comm bppsa_comm;
typedef struct bppsa_comm_request bppsa_comm_request;

/* ---- transports ---- */

typedef enum { BPPSA_COMM_THREADS = 0, BPPSA_COMM_MPI, BPPSA_COMM_NCCL, BPPSA_COMM_TRANSPORT_COUNT } bppsa_comm_transport;

const char *bppsa_comm_transport_name(bppsa_comm_transport transport); /* "threads" */
/* ERR_ARGUMENT: an unknown name. */
bppsa_status bppsa_comm_transport_parse(const char *text, bppsa_comm_transport *transport);

typedef struct {
  const char *name;
  const char *package; /* the Debian package that brings it; "" where nothing is needed */
  bool built;          /* this build can use it */
  bool found;          /* and it is here */
  char detail[256];    /* its version; otherwise what is missing, in words */
} bppsa_comm_transport_report;

/* What this build and this machine offer; never fails. Loads the libraries, initialises none. */
void bppsa_comm_transports(bppsa_comm_transport_report reports[BPPSA_COMM_TRANSPORT_COUNT]);

/* Whether a launcher of MPI programs started this process: a variable of its environment (OMPI_, PMIX_, PMI_) says so. Their
 * values mean nothing here: rank and size come from MPI. */
bool bppsa_comm_launched(void);

/* ---- running ranks ---- */

#define BPPSA_COMM_MAX_RANKS 4096
#define BPPSA_COMM_MAX_TAG 32767 /* tags are 0 .. this, as MPI guarantees */

typedef struct {
  bppsa_comm_transport transport; /* threads or mpi */
  int64_t ranks;                  /* threads: 1 .. BPPSA_COMM_MAX_RANKS. mpi: 0, or the number that the launcher started */
  double timeout;                 /* the deadline of everything that waits, in seconds, above 0 */
} bppsa_comm_config;

bppsa_comm_config bppsa_comm_config_default(void); /* threads, 1 rank, 60 s */

/* What a rank does; `world` has all ranks and ends with the call. Returns when its part is done, every request waited for. */
typedef bppsa_status (*bppsa_comm_body)(bppsa_comm *world, void *context);

typedef struct {
  int32_t rank;        /* the rank that failed first; -1: none */
  bool here;           /* its error is this process's to report: with mpi, the processes of other ranks get ERR_COMM alone */
  int32_t left_behind; /* threads that did not come back after the failure: the program should end */
} bppsa_comm_outcome;

/* Calls body(world, context) on every rank: threads of their own, each with its last error and its count of memory, or, with mpi,
 * once in each of the job's processes. Returns when all ranks are done, or when one failed and the others had the timeout to
 * end. Then the status is that of the rank that failed first, and the last error is "rank R: " with its words. outcome: NULL, or
 * says who failed; it is set in any case.
 * ERR_ARGUMENT: a number of ranks or a timeout out of range; mpi without a launcher or with another number of ranks.
 * ERR_UNSUPPORTED: mpi is not there (bppsa_comm_transports says why). ERR_MEMORY. ERR_COMM.
 * With mpi a program calls it once: afterwards MPI is finalised, or, after a failure, left to bppsa_comm_end_job. */
bppsa_status bppsa_comm_run(const bppsa_comm_config *config, bppsa_comm_body body, void *context, bppsa_comm_outcome *outcome);

/* The last act of a program whose bppsa_comm_run failed, after it has said why: with mpi MPI_Abort, which ends every process of
 * the job with this exit code, this one included; otherwise nothing, and it returns. */
void bppsa_comm_end_job(int exit_code);

/* ---- a communicator ---- */

int32_t bppsa_comm_rank(const bppsa_comm *comm); /* 0 .. size - 1 */
int32_t bppsa_comm_size(const bppsa_comm *comm);
/* Among all ranks of the job that run on this rank's machine: its number, and how many they are. */
int32_t bppsa_comm_node_rank(const bppsa_comm *comm);
int32_t bppsa_comm_node_size(const bppsa_comm *comm);
bppsa_comm_transport bppsa_comm_get_transport(const bppsa_comm *comm);
double bppsa_comm_get_timeout(const bppsa_comm *comm);

/* Where the program is, for messages: "up-sweep", 12 gives "at up-sweep 12"; a step below 0 is left out. `where` is borrowed
 * until the next call. It holds for this rank, communicators split from it included. */
void bppsa_comm_at(bppsa_comm *comm, const char *where, int64_t step);

/* The GPU whose memory this rank's views may name; a CPU or NULL: none. It must outlive the communicator or the next call. Arrays
 * travel through pinned host memory where the transport does not read the GPU's. */
void bppsa_comm_set_device(bppsa_comm *comm, const bppsa_device *device);

/* The ranks that give the same color >= 0 form a communicator, ordered by key, then by rank; color -1: none, NULL. Collective.
 * The caller destroys it, before what it was split from. ERR_ARGUMENT, ERR_MEMORY, ERR_COMM. */
bppsa_status bppsa_comm_split(bppsa_comm *comm, int32_t color, int32_t key, bppsa_comm **part);
/* Cancels the requests that are left of it. NULL is legal. Not for a world, which bppsa_comm_run ends. */
void bppsa_comm_destroy(bppsa_comm *comm);

/* A communicator of the same ranks whose arrays of GPUs travel over NCCL; host's transport is threads or mpi, and arrays of host
 * memory, barriers and splits go on over it. device: this rank's GPU, one rank a GPU. Both are borrowed. Collective. NCCL has no
 * tags, and its operations take place in the order in which they are begun: messages that are begun one after the other are one
 * group, and a wait for one of them ends when the group is done; so every two ranks begin the messages between them in one order
 * (bppsa_comm_check_order), and a rank that waits has begun what its peers wait for. Operations over NCCL count on this
 * communicator, the others on the host's.
 * ERR_ARGUMENT: no GPU; two ranks on one GPU. ERR_UNSUPPORTED: no NCCL. ERR_MEMORY, ERR_CUDA, ERR_COMM. */
bppsa_status bppsa_comm_create_nccl(bppsa_comm *host, const bppsa_device *device, bppsa_comm **comm);

/* Compares what every rank has sent to every other one since the last call, tag by tag and size by size, with what that one has
 * received. ERR_COMM: the first message that differs. Where the transport matches tags itself nothing is compared. Collective. */
bppsa_status bppsa_comm_check_order(bppsa_comm *comm);

/* This rank gives up, for the reason `why`: what any rank of the job waits for, or will, ends with ERR_COMM. For a rank whose
 * function cannot return soon; returning an error does the same. */
void bppsa_comm_abort(bppsa_comm *comm, const char *why);

/* ---- messages ---- */

/* size(view) bytes to rank `to`, from rank `from`. A receiver whose view has another number of bytes than the message gets
 * ERR_COMM that names both; with threads the sender gets it as well. ERR_ARGUMENT: a rank or a tag out of range. ERR_SHAPE: a
 * view that is not contiguous. ERR_COMM. */
bppsa_status bppsa_comm_send(bppsa_comm *comm, int32_t to, int32_t tag, const bppsa_view *view);
bppsa_status bppsa_comm_recv(bppsa_comm *comm, int32_t from, int32_t tag, const bppsa_view *view);
bppsa_status bppsa_comm_isend(bppsa_comm *comm, int32_t to, int32_t tag, const bppsa_view *view, bppsa_comm_request **request);
bppsa_status bppsa_comm_irecv(bppsa_comm *comm, int32_t from, int32_t tag, const bppsa_view *view, bppsa_comm_request **request);

/* ---- collective operations ---- */

typedef enum { BPPSA_COMM_SUM = 0, BPPSA_COMM_MAX, BPPSA_COMM_MIN, BPPSA_COMM_OP_COUNT } bppsa_comm_op;

/* Root's view to everyone's; all have the same number of bytes. */
bppsa_status bppsa_comm_broadcast(bppsa_comm *comm, int32_t root, const bppsa_view *view);
bppsa_status bppsa_comm_ibroadcast(bppsa_comm *comm, int32_t root, const bppsa_view *view, bppsa_comm_request **request);

/* Element by element over all ranks' views, in place: f32, f64, i64. The transport's own order of additions: with threads that of
 * the ranks. Sums whose bits do not depend on the number of ranks: comm/ordered.h. ERR_UNSUPPORTED: another dtype. */
bppsa_status bppsa_comm_allreduce(bppsa_comm *comm, bppsa_comm_op op, const bppsa_view *view);
bppsa_status bppsa_comm_iallreduce(bppsa_comm *comm, bppsa_comm_op op, const bppsa_view *view, bppsa_comm_request **request);

/* Everyone's `mine`, one behind the other by rank, into `all`: on every rank, or on root alone (elsewhere `all` may be NULL).
 * counts: elements of each rank's part, size of the communicator, equal on all ranks, read before the call returns; NULL: parts
 * of one size. All of one dtype. ERR_SHAPE: `mine` or `all` has another number of elements than counts say. */
bppsa_status bppsa_comm_allgather(bppsa_comm *comm, const bppsa_view *mine, const int64_t *counts, const bppsa_view *all);
bppsa_status bppsa_comm_iallgather(bppsa_comm *comm, const bppsa_view *mine, const int64_t *counts, const bppsa_view *all,
                                   bppsa_comm_request **request);
bppsa_status bppsa_comm_gather(bppsa_comm *comm, int32_t root, const bppsa_view *mine, const int64_t *counts,
                               const bppsa_view *all);
bppsa_status bppsa_comm_igather(bppsa_comm *comm, int32_t root, const bppsa_view *mine, const int64_t *counts,
                                const bppsa_view *all, bppsa_comm_request **request);

/* Returns when every rank has called it. */
bppsa_status bppsa_comm_barrier(bppsa_comm *comm);
bppsa_status bppsa_comm_ibarrier(bppsa_comm *comm, bppsa_comm_request **request);

/* ---- requests ---- */

/* A request is taken back by the call that finds it done: it is freed and becomes NULL. NULL requests are legal and passed over.
 * All requests of one call belong to one rank and one transport.
 * When one of these calls fails, all of the requests it was given are cancelled and NULL: the views are the caller's again. */
bppsa_status bppsa_comm_wait(bppsa_comm_request **request);
bppsa_status bppsa_comm_wait_all(int64_t count, bppsa_comm_request **requests);
/* Waits until one of them is done. index: which; -1 where all are NULL. */
bppsa_status bppsa_comm_wait_any(int64_t count, bppsa_comm_request **requests, int64_t *index);
/* Does not wait. */
bppsa_status bppsa_comm_test(bppsa_comm_request **request, bool *done);
/* Takes requests back undone: what a function does with those it holds before it returns an error of something else. */
void bppsa_comm_cancel(int64_t count, bppsa_comm_request **requests);

/* ---- what a rank has done ---- */

/* Of one rank, over all communicators split from one world. */
typedef struct {
  int64_t messages_sent, bytes_sent;         /* begun */
  int64_t messages_received, bytes_received; /* done */
  int64_t collectives, collective_bytes;     /* begun; bytes of the rank's own view (of `mine`). A split is one, of 0 bytes */
} bppsa_comm_counters;

void bppsa_comm_get_counters(const bppsa_comm *comm, bppsa_comm_counters *counters);
void bppsa_comm_reset_counters(bppsa_comm *comm);

/* Bytes of host memory that this rank's thread has allocated and holds, and the most it ever held. */
void bppsa_comm_get_memory(const bppsa_comm *comm, int64_t *bytes, int64_t *peak);

/* ---- for tests ---- */

/* What goes wrong on this rank. Operations are counted from 1: sends, receives and collectives begun since this call. */
typedef struct {
  double delay;     /* seconds for which every send is held back, as on a slow link */
  int64_t die_at;   /* that operation fails, and every later one, as if the rank had died; 0: none */
  int64_t stall_at; /* that operation does not return before another rank has given up (or ten timeouts); 0: none */
} bppsa_comm_fault;

void bppsa_comm_set_fault(bppsa_comm *comm, const bppsa_comm_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
