/* What this build and this machine offer, and the package that brings what is missing: the report of `bppsa doctor`. */
#ifndef BPPSA_BENCH_HARNESS_DOCTOR_H
#define BPPSA_BENCH_HARNESS_DOCTOR_H

#include "audio/audio.h"
#include "bench/harness/machine.h"
#include "comm/comm.h"
#include "core/cudnn.h"
#include "core/text.h"

enum { BPPSA_DOCTOR_BACKENDS = 10, BPPSA_DOCTOR_PLACE = 512 };

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
  char found[BPPSA_DOCTOR_BACKENDS][BPPSA_DOCTOR_PLACE]; /* where each optional library or program is, or "" */
} bppsa_doctor;

/* Looks for everything; what cannot be found or used is part of the report. Optional libraries are loaded by a process of its own,
 * so that none stays in the caller's. */
void bppsa_doctor_examine(bppsa_doctor *doctor);

json_t *bppsa_doctor_json(const bppsa_doctor *doctor);                        /* NULL when out of memory */
bppsa_status bppsa_doctor_text(const bppsa_doctor *doctor, bppsa_text *text); /* ERR_MEMORY */

#endif
