/* How the programs end: what only a main function may do. */
#ifndef BPPSA_CLI_MAIN_H
#define BPPSA_CLI_MAIN_H

#include <unistd.h>

#include "comm/comm.h"
#include "core/files/file.h"

/* Ends the processes of a job of MPI that has failed. Where ranks are threads that hang, it ends this process at once, because they
 * would go on while exit destroys what they use; their files would stay, so it removes them. Otherwise it returns the code. */
static inline int bppsa_end_program(int code) {
  bppsa_comm_end_job(code);
  if (bppsa_comm_left_behind() > 0) {
    bppsa_file_remove_temporaries();
    _exit(code);
  }
  return code;
}

#endif
