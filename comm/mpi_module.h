/* The module bppsa_mpi.so: MPI's calls under types that know nothing of MPI, so that the library needs neither its headers nor
 * its libraries. It is built where MPI is, and loaded when ranks are to run on it (comm/comm_mpi.c). Functions return MPI's
 * error codes, 0 for success. Nothing here waits, except start, finish, and split. */
#ifndef BPPSA_COMM_MPI_MODULE_H
#define BPPSA_COMM_MPI_MODULE_H

#include <stdbool.h>
#include <stdint.h>

typedef int64_t mpi_handle; /* the bytes of an MPI_Comm or an MPI_Request */

typedef struct {
  int rank, size, node_rank, node_size;
  mpi_handle messages, control; /* communicators of all ranks: for the program, and for news of failures */
  bool reads_gpu;               /* the library takes pointers to GPU memory */
} mpi_start;

typedef struct {
  int64_t interface; /* MPI_MODULE_INTERFACE */
  void (*version)(char *text, int size);
  void (*error_text)(int error, char *text, int size);
  int (*start)(mpi_start *started);
  int (*finish)(const mpi_start *started);
  void (*end_job)(int exit_code);
  int (*split)(mpi_handle comm, int color, int key, mpi_handle *part); /* color -1: part is not written */
  int (*free_comm)(mpi_handle comm);
  int (*send)(mpi_handle comm, const void *data, int64_t bytes, int to, int tag, mpi_handle *request);
  int (*receive)(mpi_handle comm, void *data, int64_t bytes, int from, int tag, mpi_handle *request);
  int (*broadcast)(mpi_handle comm, void *data, int64_t bytes, int root, mpi_handle *request);
  /* kind: 0 float, 1 double, 2 int64_t; op: 0 sum, 1 max, 2 min */
  int (*reduce)(mpi_handle comm, void *data, int count, int kind, int op, mpi_handle *request);
  /* Elements of `width` bytes, 1, 2, 4 or 8; data NULL: this rank's part is in place. root -1: to all. counts and places live
   * until the end. */
  int (*gather)(mpi_handle comm, const void *data, int count, void *all, const int *counts, const int *places, int width,
                int root, mpi_handle *request);
  int (*barrier)(mpi_handle comm, mpi_handle *request);
  /* bytes: of a message that was received, also where it was longer than its array and error says so (truncated). */
  int (*test)(mpi_handle *request, bool *done, int64_t *bytes, bool *truncated);
  void (*cancel)(mpi_handle *request, bool receives);
  /* A message of any sender that is here already, of at most so many bytes; from -1: none. */
  int (*look)(mpi_handle comm, void *data, int64_t bytes, int *from);
} mpi_module;

#define MPI_MODULE_INTERFACE 1
#define MPI_MODULE_FILE "bppsa_mpi.so"
#define MPI_MODULE_SYMBOL "bppsa_mpi_module"

#endif
