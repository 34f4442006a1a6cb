/* What this build and this machine offer, and the package that brings what is missing: the report of `bppsa doctor`. */
#ifndef BPPSA_CALIBRATE_DOCTOR_H
#define BPPSA_CALIBRATE_DOCTOR_H

#include "audio/audio.h"
#include "comm/comm.h"
#include "core/base/text.h"
#include "core/compute/cudnn.h"
#include "terminal/machine.h"

enum { BPPSA_DOCTOR_BACKENDS = 11, BPPSA_DOCTOR_PLACE = 512, BPPSA_DOCTOR_PROBLEM = 96 };

/* Seconds that one library has to answer when it is loaded; all of them together have four times as many. */
#define BPPSA_DOCTOR_PATIENCE_S 10.0

typedef struct {
  const char *version, *commit, *compiler;
  char processor[128], vector[BPPSA_VECTOR_TEXT];
  int64_t cores;   /* of the machine */
  int64_t threads; /* used by default */
  const char *blas;
  char blas_problem[512]; /* why BLAS cannot be used, or "" */
  bppsa_cuda_report cuda;
  bppsa_cudnn_report cudnn;
  bppsa_audio_report audio;
  bppsa_comm_transport_report transports[BPPSA_COMM_TRANSPORT_COUNT];
  char found[BPPSA_DOCTOR_BACKENDS][BPPSA_DOCTOR_PLACE];     /* where each optional library or program is, or "" */
  char problem[BPPSA_DOCTOR_BACKENDS][BPPSA_DOCTOR_PROBLEM]; /* why nobody knows whether it is there, or "" */
} bppsa_doctor;

/* Looks for everything; what cannot be found or used is part of the report. Optional libraries are loaded by separate processes, so
 * that none stays in the caller's. If loading a library takes longer than `patience_s` seconds or ends the process, its row says
 * so, and another process loads the next one. Both can happen: a library's constructors may do anything, and if another thread of
 * the caller was just loading a library, the new process waits for a lock that nobody will release. */
void bppsa_doctor_examine(double patience_s, bppsa_doctor *doctor);

json_t *bppsa_doctor_json(const bppsa_doctor *doctor);                        /* NULL when out of memory */
bppsa_status bppsa_doctor_text(const bppsa_doctor *doctor, bppsa_text *text); /* ERR_MEMORY */

#endif
