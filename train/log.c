#define _POSIX_C_SOURCE 200809L

#include "train/log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "core/base/decimal.h"
#include "core/base/io.h"
#include "core/files/file.h"
#include "train/blocks.h"
#include "train/line.h"

struct bppsa_log {
  int file;
  bppsa_log_position position; /* behind the last whole line */
  char *path;
};

void bppsa_train_certificate_add(bppsa_train_certificate *sum, const bppsa_train_certificate *other) {
  if (other->passes > 0 && (sum->passes == 0 || other->largest.error > sum->largest.error)) {
    sum->step = other->step;
    sum->largest = other->largest;
  }
  sum->passes += other->passes;
  sum->seconds += other->seconds;
}

/* Makes a log without opening a file. */
static bppsa_status log_make(const char *path, bppsa_log **log) {
  bppsa_log *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *made = (bppsa_log){.file = -1, .path = bppsa_strdup(path)};
  bppsa_status status = made->path == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  if (status != BPPSA_OK) {
    (void)bppsa_log_close(made);
    return status;
  }
  *log = made;
  return BPPSA_OK;
}

static bppsa_status log_open(bppsa_log *log, int flags) {
  log->file = bppsa_io_open(log->path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
  return log->file >= 0 ? BPPSA_OK
                        : bppsa_fail(BPPSA_ERR_IO, "log %s: cannot be opened for writing: %s", log->path, strerror(errno));
}

bppsa_status bppsa_log_create(const char *path, bppsa_log **log) {
  BPPSA_REQUIRE(path != NULL && log != NULL);
  bppsa_log *made = NULL;
  BPPSA_TRY(log_make(path, &made));
  const bppsa_status status = log_open(made, O_TRUNC);
  if (status != BPPSA_OK) {
    (void)bppsa_log_close(made);
    return status;
  }
  *log = made;
  return BPPSA_OK;
}

/* ---- continuing ---- */

/* Checks by length and checksum that the file begins with the bytes of this run. */
static bppsa_status check_bytes(bppsa_file_reader *reader, const bppsa_log_position *position) {
  unsigned char bytes[4096];
  uLong crc = crc32_z(0, NULL, 0);
  if (reader->size < position->bytes) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "log %s: %lld bytes, but the run to continue had written %lld, expected its log",
                      reader->path, (long long)reader->size, (long long)position->bytes);
  }
  while (reader->offset < position->bytes) {
    const int64_t part = bppsa_min((int64_t)sizeof bytes, position->bytes - reader->offset);
    BPPSA_TRY(bppsa_file_reader_read(reader, bytes, part));
    crc = crc32_z(crc, bytes, (size_t)part);
  }
  if ((int64_t)crc != position->crc32) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "log %s: its first %lld bytes are not what the run to continue wrote, expected its log",
                      reader->path, (long long)position->bytes);
  }
  return BPPSA_OK;
}

static bppsa_status check_prefix(const char *path, const bppsa_log_position *position) {
  if (position->bytes == 0) { /* any file will do: all its contents are later than the checkpoint */
    return BPPSA_OK;
  }
  struct stat found;
  if (position->bytes < 0) {
    const bool empty = stat(path, &found) != 0 || found.st_size == 0;
    return empty
               ? BPPSA_OK
               : bppsa_fail(BPPSA_ERR_ARGUMENT, "log %s: has %lld bytes, but the run to continue had no log, expected a new file",
                            path, (long long)found.st_size);
  }
  bppsa_file_reader reader = {0};
  if (bppsa_file_reader_open(path, &reader) != BPPSA_OK) {
    return bppsa_fail_prefix(BPPSA_ERR_ARGUMENT, "log of the run to continue");
  }
  const bppsa_status status = check_bytes(&reader, position);
  bppsa_file_reader_close(&reader);
  return status;
}

/* Removes everything behind the log's position. */
static bppsa_status cut(bppsa_log *log) {
  if (bppsa_io_truncate(log->file, log->position.bytes) != 0 || bppsa_io_seek(log->file, log->position.bytes) < 0) {
    return bppsa_fail(BPPSA_ERR_IO, "log %s: cannot be cut back to %lld bytes: %s", log->path, (long long)log->position.bytes,
                      strerror(errno));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_log_continue(const char *path, const bppsa_log_position *position, bppsa_log **log) {
  BPPSA_REQUIRE(path != NULL && position != NULL && log != NULL);
  bppsa_log *made = NULL;
  BPPSA_TRY(check_prefix(path, position));
  BPPSA_TRY(log_make(path, &made));
  if (position->bytes > 0) {
    made->position = *position;
  }
  bppsa_status status = log_open(made, 0);
  if (status == BPPSA_OK) {
    status = cut(made);
  }
  if (status != BPPSA_OK) {
    (void)bppsa_log_close(made);
    return status;
  }
  *log = made;
  return BPPSA_OK;
}

bppsa_log_position bppsa_log_get_position(const bppsa_log *log) {
  return log->position;
}

bppsa_status bppsa_log_sync(bppsa_log *log) {
  BPPSA_REQUIRE(log != NULL);
  if (bppsa_io_sync(log->file) != 0 && errno != EINVAL) { /* a pipe or a device cannot be synchronised */
    return bppsa_fail(BPPSA_ERR_IO, "log %s: cannot be brought to disk: %s", log->path, strerror(errno));
  }
  return BPPSA_OK;
}

/* ---- writing ---- */

static void add_real(bppsa_line *l, const char *name, double value) {
  char text[BPPSA_NUMBER_TEXT];
  bppsa_line_add(l, ",\"%s\":%s", name, bppsa_print_number(value, text));
}

/* Writes the whole text, or removes what was written of it. */
static bppsa_status write_line(bppsa_log *log, const char *text, size_t length) {
  for (size_t done = 0; done < length;) {
    const ssize_t written = bppsa_io_write(log->file, text + done, length - done);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      const int reason = errno;
      const bool whole = done == 0 || cut(log) == BPPSA_OK;
      return bppsa_fail(BPPSA_ERR_IO, "log %s: %s: %s", log->path, whole ? "cannot be written" : "a line was cut off",
                        strerror(reason));
    }
    done += (size_t)written;
  }
  log->position.bytes += (int64_t)length;
  log->position.crc32 = (int64_t)crc32_z((uLong)log->position.crc32, (const unsigned char *)text, length);
  return BPPSA_OK;
}

bppsa_status bppsa_log_write_text(bppsa_log *log, const char *text) {
  BPPSA_REQUIRE(log != NULL && text != NULL);
  const size_t length = strlen(text);
  char *line = bppsa_alloc(length + 2);
  if (line == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memcpy(line, text, length);
  memcpy(line + length, "\n", 2);
  const bppsa_status status = write_line(log, line, length + 1);
  bppsa_free(line);
  return status;
}

/* Nine digits are enough to draw a curve, and a line has room for 16 such numbers. */
static void add_errors(bppsa_line *line, const char *name, int64_t count, const double *errors) {
  bppsa_line_add(line, ",\"%s\":[", name);
  for (int64_t i = 0; i < count; ++i) {
    bppsa_line_add(line, isfinite(errors[i]) ? "%s%.9g" : "%snull", i > 0 ? "," : "", errors[i]);
  }
  bppsa_line_add(line, "]");
}

static void add_certificate(bppsa_line *line, const bppsa_train_certificate *c) {
  char text[BPPSA_CERTIFICATE_TEXT];
  bppsa_line_add(line, ",\"certificate\":{%s,\"passes\":%lld,\"step\":%lld}",
                 bppsa_certificate_members(&c->largest, text, sizeof text), (long long)c->passes, (long long)c->step);
}

bppsa_status bppsa_log_write(bppsa_log *log, const bppsa_train_record *record, const char *const passes[BPPSA_PASS_KINDS]) {
  BPPSA_REQUIRE(log != NULL && record != NULL);
  bppsa_line l = {.length = 0}; /* the longest record fits */
  bppsa_line_add(&l, "{\"step\":%lld,\"epoch\":%lld", (long long)record->step, (long long)record->epoch);
  add_real(&l, "loss", record->loss);
  add_real(&l, "accuracy", record->accuracy);
  add_real(&l, "grad_norm", record->grad_norm);
  add_real(&l, "lr", record->lr);
  add_real(&l, "forward_s", record->forward_s);
  add_real(&l, "backward_s", record->backward_s);
  add_real(&l, "update_s", record->update_s);
  add_real(&l, "samples_per_s", record->samples_per_s);
  bppsa_line_add(&l, ",\"redone\":%lld", (long long)record->redone);
  for (int k = 0; passes != NULL && k < BPPSA_PASS_KINDS; ++k) {
    if (passes[k] != NULL) {
      bppsa_line_add(&l, ",\"%s\":%s", bppsa_pass_name((bppsa_pass)k), passes[k]);
    }
  }
  if (record->gradients != NULL) {
    bppsa_line_add(&l, ",\"gradients\":\"%.60s\"", record->gradients); /* the name of a method needs no escapes */
  }
  if (record->has_validation) {
    add_real(&l, "validation_loss", record->validation_loss);
    add_real(&l, "validation_accuracy", record->validation_accuracy);
  }
  if (record->weight_errors.ahead > 0) {
    add_errors(&l, "stale_rmse", record->weight_errors.ahead, record->weight_errors.stale);
    add_errors(&l, "predicted_rmse", record->weight_errors.ahead, record->weight_errors.predicted);
  }
  if (record->certificate.passes > 0) {
    add_certificate(&l, &record->certificate);
  }
  if (record->interrupted) {
    bppsa_line_add(&l, ",\"interrupted\":true");
  }
  bppsa_line_add(&l, "}\n");
  return write_line(log, l.text, l.length);
}

bppsa_status bppsa_log_close(bppsa_log *log) {
  if (log == NULL) {
    return BPPSA_OK;
  }
  bppsa_status status = BPPSA_OK;
  if (log->file >= 0 && bppsa_io_close(log->file) != 0) {
    status = bppsa_fail(BPPSA_ERR_IO, "log %s: closing failed: %s", log->path, strerror(errno));
  }
  bppsa_free(log->path);
  bppsa_free(log);
  return status;
}
