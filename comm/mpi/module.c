/* The source of bppsa_mpi.so, and the only file that includes mpi.h. It calls no function of the library, because it cannot see
 * the symbols of the program that loads it. */
#include "comm/mpi_module.h"

#include <limits.h>
#include <mpi.h>
#include <string.h>

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

_Static_assert(sizeof(MPI_Comm) <= sizeof(mpi_handle) && sizeof(MPI_Request) <= sizeof(mpi_handle), "handles hold MPI's");

static mpi_handle keep_comm(MPI_Comm comm) {
  mpi_handle handle = 0;
  memcpy(&handle, &comm, sizeof comm);
  return handle;
}

static MPI_Comm comm_of(mpi_handle handle) {
  MPI_Comm comm;
  memcpy(&comm, &handle, sizeof comm);
  return comm;
}

static mpi_handle keep_request(MPI_Request request) {
  mpi_handle handle = 0;
  memcpy(&handle, &request, sizeof request);
  return handle;
}

static MPI_Request request_of(mpi_handle handle) {
  MPI_Request request;
  memcpy(&request, &handle, sizeof request);
  return request;
}

static int kept(int error, const MPI_Request *made, mpi_handle *request) {
  if (error == MPI_SUCCESS) {
    *request = keep_request(*made);
  }
  return error;
}

static void version(char *text, int size) {
  char words[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  (void)MPI_Get_library_version(words, &length);
  const size_t end = strcspn(words, ",\n");
  const size_t room = (size_t)size - 1;
  memcpy(text, words, end < room ? end : room);
  text[end < room ? end : room] = '\0';
}

static void error_text(int error, char *text, int size) {
  char words[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  (void)MPI_Error_string(error, words, &length);
  (void)strncpy(text, words, (size_t)size - 1);
  text[size - 1] = '\0';
}

#define TRY(call)                                                                                                                \
  do {                                                                                                                           \
    const int try_error_ = (call);                                                                                               \
    if (try_error_ != MPI_SUCCESS) {                                                                                             \
      return try_error_;                                                                                                         \
    }                                                                                                                            \
  } while (0)

static int start(mpi_start *started) {
  int given = 0;
  MPI_Comm messages, control, node;
  TRY(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given)); /* one thread at a time, but not always the same one */
  TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)); /* communicators made from this one inherit the handler */
  TRY(MPI_Comm_rank(MPI_COMM_WORLD, &started->rank));
  TRY(MPI_Comm_size(MPI_COMM_WORLD, &started->size));
  TRY(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, started->rank, MPI_INFO_NULL, &node));
  TRY(MPI_Comm_rank(node, &started->node_rank));
  TRY(MPI_Comm_size(node, &started->node_size));
  TRY(MPI_Comm_free(&node));
  TRY(MPI_Comm_dup(MPI_COMM_WORLD, &messages));
  TRY(MPI_Comm_dup(MPI_COMM_WORLD, &control));
  started->messages = keep_comm(messages);
  started->control = keep_comm(control);
#if defined(MPIX_CUDA_AWARE_SUPPORT) && MPIX_CUDA_AWARE_SUPPORT
  started->reads_gpu = MPIX_Query_cuda_support() == 1;
#else
  started->reads_gpu = false;
#endif
  return MPI_SUCCESS;
}

static int free_comm(mpi_handle comm) {
  MPI_Comm freed = comm_of(comm);
  return MPI_Comm_free(&freed);
}

static int finish(const mpi_start *started) {
  TRY(free_comm(started->messages));
  TRY(free_comm(started->control));
  return MPI_Finalize();
}

static void end_job(int exit_code) {
  (void)MPI_Abort(MPI_COMM_WORLD, exit_code);
}

static int split(mpi_handle comm, int color, int key, mpi_handle *part) {
  MPI_Comm made;
  TRY(MPI_Comm_split(comm_of(comm), color < 0 ? MPI_UNDEFINED : color, key, &made));
  if (color >= 0) {
    *part = keep_comm(made);
  }
  return MPI_SUCCESS;
}

/* Expresses a number of bytes as a type and a count, because MPI's counts are ints. The caller frees a type made here after the
 * call that uses it. */
static int type_of(int64_t bytes, MPI_Datatype *type, int *count) {
  enum { BLOCK = 1 << 20 };
  if (bytes <= INT_MAX) {
    *type = MPI_BYTE;
    *count = (int)bytes;
    return MPI_SUCCESS;
  }
  MPI_Datatype block;
  TRY(MPI_Type_contiguous(BLOCK, MPI_BYTE, &block));
  int lengths[2] = {(int)(bytes / BLOCK), (int)(bytes % BLOCK)};
  MPI_Aint places[2] = {0, (MPI_Aint)(bytes / BLOCK * BLOCK)};
  MPI_Datatype types[2] = {block, MPI_BYTE};
  TRY(MPI_Type_create_struct(2, lengths, places, types, type));
  TRY(MPI_Type_free(&block));
  *count = 1;
  return MPI_Type_commit(type);
}

static int free_type(MPI_Datatype type, int error) {
  return type != MPI_BYTE && error == MPI_SUCCESS ? MPI_Type_free(&type) : error;
}

static int send(mpi_handle comm, const void *data, int64_t bytes, int to, int tag, mpi_handle *request) {
  MPI_Datatype type;
  MPI_Request made = MPI_REQUEST_NULL;
  int count = 0;
  TRY(type_of(bytes, &type, &count));
  const int error = MPI_Isend(data, count, type, to, tag, comm_of(comm), &made);
  return kept(free_type(type, error), &made, request);
}

static int receive(mpi_handle comm, void *data, int64_t bytes, int from, int tag, mpi_handle *request) {
  MPI_Datatype type;
  MPI_Request made = MPI_REQUEST_NULL;
  int count = 0;
  TRY(type_of(bytes, &type, &count));
  const int error = MPI_Irecv(data, count, type, from, tag, comm_of(comm), &made);
  return kept(free_type(type, error), &made, request);
}

static int broadcast(mpi_handle comm, void *data, int64_t bytes, int root, mpi_handle *request) {
  MPI_Datatype type;
  MPI_Request made = MPI_REQUEST_NULL;
  int count = 0;
  TRY(type_of(bytes, &type, &count));
  const int error = MPI_Ibcast(data, count, type, root, comm_of(comm), &made);
  return kept(free_type(type, error), &made, request);
}

static MPI_Datatype number(int kind) {
  return kind == 0 ? MPI_FLOAT : kind == 1 ? MPI_DOUBLE : MPI_INT64_T;
}

static MPI_Op operation(int op) {
  return op == 0 ? MPI_SUM : op == 1 ? MPI_MAX : MPI_MIN;
}

static int reduce(mpi_handle comm, void *data, int count, int kind, int op, mpi_handle *request) {
  MPI_Request made = MPI_REQUEST_NULL;
  return kept(MPI_Iallreduce(MPI_IN_PLACE, data, count, number(kind), operation(op), comm_of(comm), &made), &made, request);
}

static int reduce_scatter(mpi_handle comm, const void *all, void *mine, int count, int kind, int op, mpi_handle *request) {
  MPI_Request made = MPI_REQUEST_NULL;
  return kept(MPI_Ireduce_scatter_block(all, mine, count, number(kind), operation(op), comm_of(comm), &made), &made, request);
}

static int gather(mpi_handle comm, const void *data, int count, void *all, const int *counts, const int *places, int width,
                  int root, mpi_handle *request) {
  const MPI_Datatype type = width == 1 ? MPI_UINT8_T : width == 2 ? MPI_UINT16_T : width == 4 ? MPI_UINT32_T : MPI_UINT64_T;
  const void *mine = data != NULL ? data : MPI_IN_PLACE;
  MPI_Request made = MPI_REQUEST_NULL;
  if (root < 0) {
    return kept(MPI_Iallgatherv(mine, count, type, all, counts, places, type, comm_of(comm), &made), &made, request);
  }
  return kept(MPI_Igatherv(mine, count, type, all, counts, places, type, root, comm_of(comm), &made), &made, request);
}

static int barrier(mpi_handle comm, mpi_handle *request) {
  MPI_Request made = MPI_REQUEST_NULL;
  return kept(MPI_Ibarrier(comm_of(comm), &made), &made, request);
}

static int test(mpi_handle *request, bool *done, int64_t *bytes, bool *truncated) {
  MPI_Request tested = request_of(*request);
  MPI_Status status;
  MPI_Count received = 0;
  int flag = 0, class = MPI_SUCCESS;
  const int error = MPI_Test(&tested, &flag, &status);
  *request = keep_request(tested);
  if (error != MPI_SUCCESS) {
    (void)MPI_Error_class(error, &class);
  }
  *truncated = class == MPI_ERR_TRUNCATE;
  *done = flag != 0;
  if ((flag != 0 || *truncated) && MPI_Get_elements_x(&status, MPI_BYTE, &received) == MPI_SUCCESS) {
    *bytes = received == MPI_UNDEFINED ? -1 : (int64_t)received;
  }
  return error;
}

static void cancel(mpi_handle *request, bool receives) {
  MPI_Request cancelled = request_of(*request);
  int flag = 0;
  if (cancelled == MPI_REQUEST_NULL) {
    return;
  }
  if (receives) { /* a receive whose message has been matched completes by itself */
    (void)MPI_Cancel(&cancelled);
    for (int tries = 0; tries < 1000 && flag == 0; ++tries) {
      if (MPI_Test(&cancelled, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        break;
      }
    }
  }
  if (cancelled != MPI_REQUEST_NULL) {
    (void)MPI_Request_free(&cancelled);
  }
  *request = keep_request(MPI_REQUEST_NULL);
}

static int look(mpi_handle comm, void *data, int64_t bytes, int *from) {
  MPI_Status status;
  int flag = 0;
  *from = -1;
  TRY(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_of(comm), &flag, &status));
  if (flag != 0) {
    TRY(MPI_Recv(data, (int)bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm_of(comm), MPI_STATUS_IGNORE));
    *from = status.MPI_SOURCE;
  }
  return MPI_SUCCESS;
}

const mpi_module bppsa_mpi_module = {.interface = MPI_MODULE_INTERFACE,
                                     .version = version,
                                     .error_text = error_text,
                                     .start = start,
                                     .finish = finish,
                                     .end_job = end_job,
                                     .split = split,
                                     .free_comm = free_comm,
                                     .send = send,
                                     .receive = receive,
                                     .broadcast = broadcast,
                                     .reduce = reduce,
                                     .reduce_scatter = reduce_scatter,
                                     .gather = gather,
                                     .barrier = barrier,
                                     .test = test,
                                     .cancel = cancel,
                                     .look = look};
