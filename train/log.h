/* The training log: JSON lines, one object for each step or epoch, after an optional first line that describes the run. */
#ifndef BPPSA_TRAIN_LOG_H
#define BPPSA_TRAIN_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/compute/model.h"
#include "recurrent/certify.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BPPSA_MOST_AHEAD = 8 };

/* How far weights that are 1 .. ahead updates old, and predictions that were made so many updates ahead, are from the weights of a
 * step: of pipelines whose updates come late. */
typedef struct {
  int64_t ahead;                      /* 0: not compared */
  double stale[BPPSA_MOST_AHEAD];     /* root mean square; NaN: no weights are that old */
  double predicted[BPPSA_MOST_AHEAD]; /* likewise */
} bppsa_weight_errors;

/* The certificates of backward passes (recurrent/certify.h): of a step's, or the largest of several. */
typedef struct {
  int64_t passes; /* that were certified; 0: none, and what follows is not set */
  int64_t step;   /* the one with the largest error, of several the first */
  bppsa_certificate largest;
  double seconds; /* that all certificates took */
} bppsa_train_certificate;

/* Adds the certificates of other passes, which came later. */
void bppsa_train_certificate_add(bppsa_train_certificate *sum, const bppsa_train_certificate *other);

/* The results of a step, or of an epoch. */
typedef struct {
  int64_t step;      /* from 1; of an epoch: its last step */
  int64_t epoch;     /* from 1 */
  double loss;       /* before the update; of an epoch: the mean over its rows */
  double accuracy;   /* before the update, 0..1; of an epoch: the mean over its rows; NaN for real targets */
  double grad_norm;  /* before clipping; of an epoch: the mean over its steps; NaN without a backward pass */
  double lr;         /* learning rate of the step's update; of an epoch: of its last step */
  double forward_s;  /* the model's forward pass, without making the batch; of an epoch: the sum over its steps */
  double backward_s; /* the model's backward pass, without the loss; sum likewise */
  double update_s;   /* clipping and optimiser; sum likewise */
  int64_t redone;    /* scan products found useless and redone step by step (scan/scan.h); of an epoch: the sum over its steps */
  double account[BPPSA_PASS_KINDS][BPPSA_ACCOUNT_NUMBERS]; /* the model's accounts of its passes; of an epoch: their sums */
  const char *gradients; /* the method of the gradients, "chunked 44", borrowed; NULL: unknown, and left out */
  /* Samples over the time of the whole step, or of all steps of the epoch, without validation and certificates. */
  double samples_per_s;
  bool has_validation; /* whether the following two are set */
  double validation_loss;
  double validation_accuracy;
  bppsa_weight_errors weight_errors; /* after the update; of an epoch: left out */
  /* Of an epoch: of its steps since it began, or since the run was resumed. */
  bppsa_train_certificate certificate;
  bool interrupted; /* the run was stopped in this epoch; the record covers the part before that */
} bppsa_train_record;

typedef struct bppsa_log bppsa_log;

/* The end of a log, as a checkpoint stores it. */
typedef struct {
  int64_t bytes; /* bytes of its lines so far; negative: there is no log */
  int64_t crc32; /* zlib's CRC-32 of these bytes */
} bppsa_log_position;

/* Creates or empties the file. ERR_IO names the path and the system's reason. */
bppsa_status bppsa_log_create(const char *path, bppsa_log **log);

/* Opens the file of an earlier run at a position: checks that it begins with the bytes that the run had written by then, cuts off
 * what follows, and continues from there. If the run had no log, the file must be new or empty. ERR_ARGUMENT: the file is not
 * that run's, and is left unchanged. ERR_IO. */
bppsa_status bppsa_log_continue(const char *path, const bppsa_log_position *position, bppsa_log **log);

bppsa_log_position bppsa_log_get_position(const bppsa_log *log);

/* Brings all lines to disk, so that the file system cannot lose them. ERR_IO. */
bppsa_status bppsa_log_sync(bppsa_log *log);

/* Appends the caller's line, for example a description of the run; `text` is one line of JSON without a newline. ERR_IO,
 * ERR_MEMORY. */
bppsa_status bppsa_log_write_text(bppsa_log *log, const char *text);

/* Appends one line in a single write: `{"step":1,"epoch":1,"loss":…}`. Numbers that are not finite are null; validation_loss
 * and validation_accuracy appear if the record has them, stale_rmse and predicted_rmse if it has errors of weights,
 * "certificate" if it has one, as bppsa_certificate_json and with "passes" and "step", and "interrupted":true if it is interrupted.
 * passes: JSON that becomes the line's "forward" and "backward" (bppsa_pass_name); an
 * entry that is NULL is left out, and so are both where `passes` is NULL. A line that was written only in part is removed.
 * Allocates nothing. ERR_IO. */
bppsa_status bppsa_log_write(bppsa_log *log, const bppsa_train_record *record, const char *const passes[BPPSA_PASS_KINDS]);

/* Closes the file and destroys the log in every case; NULL is legal. ERR_IO when closing failed. */
bppsa_status bppsa_log_close(bppsa_log *log);

#ifdef __cplusplus
}
#endif
#endif
