/* The module bppsa_mpi.so: MPI's calls behind plain C types, so that the library needs neither MPI's headers nor its libraries.
 * The module is built if the build finds MPI, and comm/comm_mpi.c loads it when ranks are to run on MPI. Functions return MPI's
 * error codes, 0 for success. Only start, finish and split wait. */
#ifndef BPPSA_COMM_MPI_MODULE_H
#define BPPSA_COMM_MPI_MODULE_H

#include <stdbool.h>
#include <stdint.h>

typedef int64_t mpi_handle; /* the bytes of an MPI_Comm or an MPI_Request */

typedef struct {
  int rank, size, node_rank, node_size;
  mpi_handle messages, control; /* two communicators of all ranks: for the program's messages, and for notices of failures */
  bool reads_gpu;               /* the MPI library accepts pointers to GPU memory */
} mpi_start;

typedef struct {
  int64_t interface; /* MPI_MODULE_INTERFACE */
  void (*version)(char *text, int size);
  void (*error_text)(int error, char *text, int size);
  int (*start)(mpi_start *started);
  int (*finish)(const mpi_start *started);
  void (*end_job)(int exit_code);
  int (*split)(mpi_handle comm, int color, int key, mpi_handle *part); /* with color -1 part is not written */
  int (*free_comm)(mpi_handle comm);
  int (*send)(mpi_handle comm, const void *data, int64_t bytes, int to, int tag, mpi_handle *request);
  int (*receive)(mpi_handle comm, void *data, int64_t bytes, int from, int tag, mpi_handle *request);
  int (*broadcast)(mpi_handle comm, void *data, int64_t bytes, int root, mpi_handle *request);
  /* kind: 0 float, 1 double, 2 int64_t; op: 0 sum, 1 max, 2 min */
  int (*reduce)(mpi_handle comm, void *data, int count, int kind, int op, mpi_handle *request);
  /* all: count elements for each rank; mine: receives this rank's elements, reduced */
  int (*reduce_scatter)(mpi_handle comm, const void *all, void *mine, int count, int kind, int op, mpi_handle *request);
  /* width: bytes of an element: 1, 2, 4 or 8. data: NULL if this rank's part is in `all` already. root: -1 if all ranks receive
   * the result. counts and places: must live until the request is done. */
  int (*gather)(mpi_handle comm, const void *data, int count, void *all, const int *counts, const int *places, int width,
                int root, mpi_handle *request);
  int (*barrier)(mpi_handle comm, mpi_handle *request);
  /* bytes: the size of the message that was received. truncated: MPI's error says that the message was longer than its array. */
  int (*test)(mpi_handle *request, bool *done, int64_t *bytes, bool *truncated);
  void (*cancel)(mpi_handle *request, bool receives);
  /* Receives a message of at most `bytes` bytes that has already arrived, from any sender; from is -1 if there is none. */
  int (*look)(mpi_handle comm, void *data, int64_t bytes, int *from);
} mpi_module;

#define MPI_MODULE_INTERFACE 2
#define MPI_MODULE_FILE "bppsa_mpi.so"
#define MPI_MODULE_SYMBOL "bppsa_mpi_module"

#endif
