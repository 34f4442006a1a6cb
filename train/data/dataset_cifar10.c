/* CIFAR-10's binary version, kept in memory as it is in the files: records of a label and 3 x 32 x 32 bytes. The test batch comes
 * last and is held out. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "core/compute/pool.h"
#include "core/files/file.h"
#include "train/data/cifar10.h"
#include "train/data/dataset_internal.h"

enum { TEST_FILE = BPPSA_CIFAR10_FILES - 1 };

typedef struct {
  bppsa_dataset base;
  uint8_t *records; /* [samples][BPPSA_CIFAR10_RECORD] */
} cifar10;

#define BPPSA_NORMALISE(real, suffix)                                                                                            \
  static void normalise_##suffix(const uint8_t *pixels, real *to) {                                                              \
    for (int i = 0; i < BPPSA_CIFAR10_PIXELS; ++i) {                                                                             \
      to[i] = ((real)pixels[i] / 255 - (real)0.5) / (real)0.25;                                                                  \
    }                                                                                                                            \
  }
BPPSA_NORMALISE(float, f32)
BPPSA_NORMALISE(double, f64)

typedef struct {
  const cifar10 *self;
  const int64_t *indices;
  const bppsa_view *x;
  int64_t *labels;
} batch_copy;

static void copy_records(const void *context, int32_t worker, int64_t first, int64_t end) {
  const batch_copy *c = context;
  (void)worker;
  for (int64_t s = first; s < end; ++s) {
    const uint8_t *record = c->self->records + c->indices[s] * BPPSA_CIFAR10_RECORD;
    if (c->labels != NULL) {
      c->labels[s] = record[0];
    }
    if (c->x != NULL && c->x->dtype == BPPSA_F32) {
      normalise_f32(record + 1, (float *)c->x->data + s * BPPSA_CIFAR10_PIXELS);
    } else if (c->x != NULL) {
      normalise_f64(record + 1, (double *)c->x->data + s * BPPSA_CIFAR10_PIXELS);
    }
  }
}

static void cifar10_fill(const bppsa_dataset *dataset, int32_t threads, int64_t count, const int64_t *indices,
                         const bppsa_view *x, int64_t *labels) {
  const double bytes = x != NULL ? 2 * (double)bppsa_view_bytes(x) : 0;
  bppsa_parallel_for(threads, count, bppsa_loop_work(0, bytes), copy_records,
                     &(batch_copy){(const cifar10 *)dataset, indices, x, labels});
}

static void cifar10_destroy(bppsa_dataset *dataset) {
  bppsa_free(((cifar10 *)dataset)->records);
  bppsa_free(dataset);
}

static const bppsa_dataset_ops cifar10_ops = {.name = "cifar10", .fill = cifar10_fill, .destroy = cifar10_destroy};

/* Appends the first `most` records of a file (negative: all). */
static bppsa_status read_records(cifar10 *self, const char *path, int64_t most) {
  bppsa_file_reader reader;
  BPPSA_TRY(bppsa_file_reader_open(path, &reader));
  int64_t count = reader.size / BPPSA_CIFAR10_RECORD;
  bppsa_status status = BPPSA_OK;
  if (count < 1 || reader.size % BPPSA_CIFAR10_RECORD != 0 || count > BPPSA_MAX_SAMPLES / 8) {
    status = bppsa_fail(BPPSA_ERR_FORMAT, "%s: %lld bytes, expected records of %d bytes: CIFAR-10's binary version", path,
                        (long long)reader.size, BPPSA_CIFAR10_RECORD);
  }
  count = most >= 0 && most < count ? most : count;
  uint8_t *grown = NULL;
  if (status == BPPSA_OK) {
    grown = bppsa_realloc(self->records, (size_t)(self->base.samples + count) * BPPSA_CIFAR10_RECORD);
    status = grown == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  }
  if (status == BPPSA_OK) {
    self->records = grown;
    status = bppsa_file_reader_read(&reader, grown + self->base.samples * BPPSA_CIFAR10_RECORD, count * BPPSA_CIFAR10_RECORD);
  }
  bppsa_file_reader_close(&reader);
  BPPSA_TRY(status);
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t label = grown[(self->base.samples + i) * BPPSA_CIFAR10_RECORD];
    if (label >= BPPSA_CIFAR10_CLASSES) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: label %d at byte %lld, expected 0 .. %d", path, (int)label,
                        (long long)(i * BPPSA_CIFAR10_RECORD), BPPSA_CIFAR10_CLASSES - 1);
    }
  }
  self->base.samples += count;
  return BPPSA_OK;
}

/* Reads the files that exist, in their order; `wanted`: samples to train on, 0: all. */
static bppsa_status read_files(cifar10 *self, const char *directory, int64_t wanted, char *path, size_t size) {
  struct stat info;
  for (int file = 0; file < BPPSA_CIFAR10_FILES; ++file) {
    const int64_t before = self->base.samples;
    snprintf(path, size, "%s/%s", directory, bppsa_cifar10_file(file));
    if (stat(path, &info) == 0 && (file == TEST_FILE || wanted == 0 || before < wanted)) {
      BPPSA_TRY(read_records(self, path, file == TEST_FILE || wanted == 0 ? -1 : wanted - before));
    }
    if (file == TEST_FILE && before == 0) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: no data_batch_1.bin .. data_batch_5.bin, expected CIFAR-10's binary version",
                        directory);
    }
    if (file == TEST_FILE && before < wanted) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s has %lld samples to train on, but %lld were asked for", directory,
                        (long long)before, (long long)wanted);
    }
    self->base.held_out = self->base.samples - before; /* in the end those of the test batch, which comes last */
  }
  return BPPSA_OK;
}

static bppsa_status load(cifar10 *self, const char *directory, const bppsa_dataset_options *options) {
  const size_t size = strlen(directory) + 32;
  char *path = bppsa_alloc(size);
  const bppsa_status status = path == NULL ? BPPSA_ERR_MEMORY : read_files(self, directory, options->samples, path, size);
  bppsa_free(path);
  return status;
}

bppsa_status bppsa_dataset_cifar10(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset) {
  if (argument == NULL || argument[0] == '\0') {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "data set 'cifar10': expected a directory, cifar10:DIR");
  }
  if (options->labels_per_step || options->seq_len > 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "data set 'cifar10:%.100s': images, expected neither steps nor a label for each",
                      argument);
  }
  cifar10 *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->base = (bppsa_dataset){.ops = &cifar10_ops,
                               .seq_len = 1,
                               .input = BPPSA_CIFAR10_PIXELS,
                               .image = {BPPSA_CIFAR10_CHANNELS, BPPSA_CIFAR10_SIDE, BPPSA_CIFAR10_SIDE},
                               .classes = BPPSA_CIFAR10_CLASSES};
  const bppsa_status status = load(made, argument, options);
  if (status != BPPSA_OK) {
    cifar10_destroy(&made->base);
    return status;
  }
  made->base.identity = crc32_z(crc32_z(0, NULL, 0), made->records, (size_t)made->base.samples * BPPSA_CIFAR10_RECORD);
  *dataset = &made->base;
  return BPPSA_OK;
}
