/* Cases that every transport must pass. All ranks of a communicator execute a case, which leaves no request pending. A case returns
 * an error if a check fails. */
#ifndef BPPSA_TESTS_COMM_CASES_H
#define BPPSA_TESTS_COMM_CASES_H

#include "comm/comm.h"

#define CHECK(condition)                                                                                                         \
  do {                                                                                                                           \
    if (!(condition)) {                                                                                                          \
      return bppsa_fail(BPPSA_ERR_NUMERIC, "%s:%d: not so: %s (last error: %s)", __FILE__, __LINE__, #condition,                 \
                        bppsa_last_error());                                                                                     \
    }                                                                                                                            \
  } while (0)

typedef struct {
  const char *name;
  bppsa_comm_body run;
} comm_case;

extern const comm_case comm_cases[]; /* the last element is empty */

#endif
