#define _POSIX_C_SOURCE 200809L

#include "train/log.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "train/line.h"

struct bppsa_log {
  int file;
  off_t size;      /* of all whole lines */
  locale_t locale; /* "C": a decimal point, whatever the program's locale */
  char *path;
};

bppsa_status bppsa_log_create(const char *path, bppsa_log **log) {
  bppsa_log *made = bppsa_calloc(1, sizeof *made);
  char *copy = bppsa_strdup(path);
  const locale_t locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
  bppsa_status status = BPPSA_OK;
  int file = -1;
  if (made == NULL || copy == NULL) {
    status = BPPSA_ERR_MEMORY;
  } else if (locale == (locale_t)0) {
    status = bppsa_fail(BPPSA_ERR_MEMORY, "log %s: no memory for the C locale", path);
  } else {
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    status = file >= 0 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_IO, "log %s: cannot be opened for writing: %s", path, strerror(errno));
  }
  if (status != BPPSA_OK) {
    bppsa_free(made);
    bppsa_free(copy);
    if (locale != (locale_t)0) {
      freelocale(locale);
    }
    return status;
  }
  *made = (bppsa_log){.file = file, .locale = locale, .path = copy};
  *log = made;
  return BPPSA_OK;
}

static void add_real(bppsa_line *l, const char *name, double value) {
  if (isfinite(value)) {
    bppsa_line_add(l, ",\"%s\":%.17g", name, value);
  } else {
    bppsa_line_add(l, ",\"%s\":null", name);
  }
}

/* Writes all of it, or takes back what was written. */
static bppsa_status write_line(bppsa_log *log, const char *text, size_t length) {
  for (size_t done = 0; done < length;) {
    const ssize_t written = write(log->file, text + done, length - done);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      const int reason = errno;
      if (done > 0 && (ftruncate(log->file, log->size) != 0 || lseek(log->file, log->size, SEEK_SET) < 0)) {
        return bppsa_fail(BPPSA_ERR_IO, "log %s: a line was cut off: %s", log->path, strerror(reason));
      }
      return bppsa_fail(BPPSA_ERR_IO, "log %s: cannot be written: %s", log->path, strerror(reason));
    }
    done += (size_t)written;
  }
  log->size += (off_t)length;
  return BPPSA_OK;
}

bppsa_status bppsa_log_write(bppsa_log *log, const bppsa_train_record *record) {
  bppsa_line l = {.length = 0}; /* a record needs less than half of the room */
  const locale_t before = uselocale(log->locale);
  bppsa_line_add(&l, "{\"step\":%lld,\"epoch\":%lld", (long long)record->step, (long long)record->epoch);
  add_real(&l, "loss", record->loss);
  add_real(&l, "accuracy", record->accuracy);
  add_real(&l, "grad_norm", record->grad_norm);
  add_real(&l, "forward_s", record->forward_s);
  add_real(&l, "backward_s", record->backward_s);
  add_real(&l, "update_s", record->update_s);
  add_real(&l, "samples_per_s", record->samples_per_s);
  if (record->has_validation) {
    add_real(&l, "validation_loss", record->validation_loss);
    add_real(&l, "validation_accuracy", record->validation_accuracy);
  }
  bppsa_line_add(&l, "}\n");
  (void)uselocale(before);
  return write_line(log, l.text, l.length);
}

bppsa_status bppsa_log_close(bppsa_log *log) {
  if (log == NULL) {
    return BPPSA_OK;
  }
  bppsa_status status = BPPSA_OK;
  if (close(log->file) != 0) {
    status = bppsa_fail(BPPSA_ERR_IO, "log %s: closing failed: %s", log->path, strerror(errno));
  }
  freelocale(log->locale);
  bppsa_free(log->path);
  bppsa_free(log);
  return status;
}
