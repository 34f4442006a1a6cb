/* The training log: JSON lines, one object a step or an epoch; in front of them, where the caller has one, a line that says what
 * the run is. */
#ifndef BPPSA_TRAIN_LOG_H
#define BPPSA_TRAIN_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is known after a step, or after an epoch. */
typedef struct {
  int64_t step;      /* from 1; of an epoch: its last */
  int64_t epoch;     /* from 1 */
  double loss;       /* before the update; of an epoch: the mean over its terms */
  double accuracy;   /* before the update, 0..1; of an epoch likewise; NaN where targets are real */
  double grad_norm;  /* before clipping; of an epoch: the mean over its steps; NaN where there was no backward pass */
  double lr;         /* of the step's update; of an epoch: of its last step's */
  double forward_s;  /* the model's forward pass, without making the batch; of an epoch: the sum over its steps */
  double backward_s; /* the model's backward pass, without the loss; sum likewise */
  double update_s;   /* clipping and optimiser; sum likewise */
  int64_t redone;    /* scan products found useless and redone step by step (scan/scan.h); of an epoch: the sum over its steps */
  const char *gradients; /* how they were computed, "chunked 44", borrowed; NULL: not known, and left out */
  double samples_per_s;  /* samples over the time of the whole step or of all steps of the epoch, without validation */
  bool has_validation;   /* the following two are set */
  double validation_loss;
  double validation_accuracy;
  bool interrupted; /* the run was stopped in this epoch: it holds what came before that */
} bppsa_train_record;

typedef struct bppsa_log bppsa_log;

/* Where a log stands: what a checkpoint keeps of it. */
typedef struct {
  int64_t bytes; /* of its lines so far; negative: there is no log */
  int64_t crc32; /* zlib's, of those bytes */
} bppsa_log_position;

/* Creates or empties the file. ERR_IO names the path and the system's reason. */
bppsa_status bppsa_log_create(const char *path, bppsa_log **log);

/* Opens the file of an earlier run at a position: checks that it begins with the very bytes the run had written by then, cuts
 * off what follows and goes on from there. Where the run had no log, the file must be new or empty. ERR_ARGUMENT: the
 * file is not that run's, and stays as it is. ERR_IO. */
bppsa_status bppsa_log_continue(const char *path, const bppsa_log_position *position, bppsa_log **log);

bppsa_log_position bppsa_log_get_position(const bppsa_log *log);

/* Brings all lines to disk: the file system may lose a line no more. ERR_IO. */
bppsa_status bppsa_log_sync(bppsa_log *log);

/* Appends a line of the caller's, such as what the run is; `text` is one line of JSON without its end. ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_log_write_text(bppsa_log *log, const char *text);

/* Appends one line in a single write: `{"step":1,"epoch":1,"loss":…}`. Numbers that are not finite are null; validation_loss and
 * validation_accuracy appear where the record has them, "interrupted":true where it is. A line that could not be written whole is
 * taken back. Allocates nothing. ERR_IO. */
bppsa_status bppsa_log_write(bppsa_log *log, const bppsa_train_record *record);

/* Closes the file and destroys the log in every case; NULL is legal. ERR_IO when closing failed. */
bppsa_status bppsa_log_close(bppsa_log *log);

#ifdef __cplusplus
}
#endif
#endif
