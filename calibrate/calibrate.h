/* `bppsa calibrate`: measures this machine for the oracle. Measures the cost of messages and collective operations, how much ranks
 * slow each other down, the time of a model's layers, and the peak of the processor and its memory, and writes the system file
 * (oracle/system.h) that `bppsa oracle` reads. */
#ifndef BPPSA_CALIBRATE_CALIBRATE_H
#define BPPSA_CALIBRATE_CALIBRATE_H

#include "calibrate/links.h"
#include "core/base/text.h"
#include "terminal/output.h"

typedef struct {
  const char *model;                      /* a network's name, or a network's file */
  int64_t batch;                          /* samples that a rank computes at once */
  int64_t seq_len, hidden, layers, input; /* T, H, L, I of a recurrent network; the others do not read them */
  bool quick;                             /* fewer sizes and passes */
  uint64_t seed;                          /* of weights */
  FILE *err;                              /* progress goes there if it is a terminal; NULL: nowhere */
  const bppsa_device *device;
  char **costs; /* text of a file of costs for bppsa schedule and train, owned; on other ranks NULL. costs NULL: not wanted */
  bool nccl;    /* measure only what GPUs exchange over NCCL, nothing of the model */
} bppsa_calibrate_request;

/* Once a calibration has taken so many seconds, no further rounds measure the spread of the slowdown. */
#define BPPSA_CALIBRATE_MOST_S 120.0

/* Measures on all ranks of `world`, 2 or more; collective. Rank 0 gets the system file's document, the others NULL. In it a
 * recurrent network whose sizes differ from those of the oracle's model has a name of its own. ERR_ARGUMENT: one rank, an unknown
 * model, a GPU without NCCL, two ranks on one GPU; ERR_UNSUPPORTED: no NCCL; ERR_SHAPE: train and oracle disagree about the model's
 * layers; ERR_MEMORY, ERR_COMM, ERR_NUMERIC. */
bppsa_status bppsa_calibrate(bppsa_comm *world, const bppsa_calibrate_request *request, json_t **document);
/* The system's name, which is that of the device's processor. */
void bppsa_calibrate_name(const bppsa_device *device, char name[BPPSA_ORACLE_NAME]);
/* Tables of such a document for people: layers, fits with their residuals. ERR_MEMORY. */
bppsa_status bppsa_calibrate_text(const json_t *document, bppsa_text *text);

#endif
