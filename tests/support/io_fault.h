/* Makes calls to the operating system fail, or ends the program before one. */
#ifndef BPPSA_TESTS_SUPPORT_IO_FAULT_H
#define BPPSA_TESTS_SUPPORT_IO_FAULT_H

#include <signal.h>
#include <stdbool.h>

#include "core/base/io.h"

typedef struct {
  int64_t first, last; /* the calls that fail, from 1; 0: none */
  int error;           /* errno; 0: the program is killed */
  int64_t calls;       /* how many calls there were so far */
  int64_t failed;      /* how many of these calls failed */
  bppsa_io_call kind;  /* the kind of the first call that failed */
  bool unlink_failed;  /* a temporary file could not be removed */
  bool read_failed;    /* a necessary read failed: an open, a status or a read */
  int64_t kinds[BPPSA_IO_COUNT];
} io_fault;

static inline int io_fault_hook(void *context, bppsa_io_call call) {
  io_fault *fault = context;
  fault->calls += 1;
  fault->kinds[call] += 1;
  if (fault->first == 0 || fault->calls < fault->first || fault->calls > fault->last) {
    return 0;
  }
  if (fault->error == 0) {
    (void)raise(SIGKILL);
  }
  fault->kind = fault->failed == 0 ? call : fault->kind;
  fault->failed += 1;
  fault->unlink_failed = fault->unlink_failed || call == BPPSA_IO_UNLINK;
  fault->read_failed = fault->read_failed || call == BPPSA_IO_OPEN || call == BPPSA_IO_STATUS || call == BPPSA_IO_READ;
  return fault->error;
}

/* Counts calls from now on; the call-th fails, and with `onwards` all later ones too. */
static inline void io_fault_set(io_fault *fault, int64_t call, bool onwards, int error) {
  *fault = (io_fault){.first = call, .last = onwards ? INT64_MAX : call, .error = error};
  bppsa_io_set_hook(io_fault_hook, fault);
}

static inline void io_fault_clear(void) {
  bppsa_io_set_hook(NULL, NULL);
}

#endif
