#define _POSIX_C_SOURCE 200809L

#include "train/data/cifar10.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/alloc.h"
#include "core/base/io.h"
#include "core/base/philox.h"
#include "core/compute/pool.h"
#include "core/files/file.h"

enum { LEAST = 10, MOST = 10000000, CHUNK = 256 };

const char *bppsa_cifar10_file(int index) {
  static const char *const names[BPPSA_CIFAR10_FILES] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                                         "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
  return names[index];
}

/* ---- drawing ---- */

/* The random numbers of one record, in order. */
typedef struct {
  uint64_t seed, stream, next;
} dice;

/* Uniform in [low, high). */
static double roll(dice *d, double low, double high) {
  return low + (high - low) * bppsa_random_double(d->seed, d->stream, d->next++);
}

/* About normal with deviation 1: the sum of twelve uniform numbers has variance 1. Three draws of four bytes each are precise
 * enough for pixels. */
static double noise(dice *d) {
  double sum = -6;
  for (int i = 0; i < 3; ++i) {
    uint32_t random[4];
    bppsa_random_block(d->seed, d->stream, d->next++, random);
    for (int k = 0; k < 4; ++k) {
      sum += (double)random[k] * 0x1p-32;
    }
  }
  return sum;
}

/* The parameters of a picture. */
typedef struct {
  double period, phase_x, phase_y; /* textures */
  double x, y, size;               /* shapes: centre and half extent */
  double ground[3], ink[3];
} picture;

typedef double (*cover_fn)(const picture *p, double x, double y); /* 1 on the shape, 0 on the ground */

static double wave(double t) {
  return sin(6.283185307179586 * t) > 0 ? 1 : 0;
}

static double lying(const picture *p, double x, double y) {
  (void)x;
  return wave(y / p->period + p->phase_y);
}

static double standing(const picture *p, double x, double y) {
  (void)y;
  return wave(x / p->period + p->phase_x);
}

static double sloping(const picture *p, double x, double y) {
  return wave((x + y) / (1.4 * p->period) + p->phase_x);
}

static double checkerboard(const picture *p, double x, double y) {
  return wave(x / p->period + p->phase_x) != wave(y / p->period + p->phase_y) ? 1 : 0;
}

static double dots(const picture *p, double x, double y) {
  const double u = x / p->period + p->phase_x, v = y / p->period + p->phase_y;
  return hypot(u - floor(u) - 0.5, v - floor(v) - 0.5) < 0.28 ? 1 : 0;
}

static double disk(const picture *p, double x, double y) {
  return hypot(x - p->x, y - p->y) < p->size ? 1 : 0;
}

static double square(const picture *p, double x, double y) {
  return fmax(fabs(x - p->x), fabs(y - p->y)) < 0.9 * p->size ? 1 : 0;
}

static double triangle(const picture *p, double x, double y) {
  const double down = (y - p->y + p->size) / (2 * p->size); /* 0 at the tip, 1 at the base */
  return down > 0 && down < 1 && fabs(x - p->x) < p->size * down ? 1 : 0;
}

static double ring(const picture *p, double x, double y) {
  const double r = hypot(x - p->x, y - p->y);
  return r < 1.1 * p->size && r > 0.65 * p->size ? 1 : 0;
}

static double cross(const picture *p, double x, double y) {
  const double u = fabs(x - p->x), v = fabs(y - p->y);
  return fmin(u, v) < 0.3 * p->size && fmax(u, v) < 1.1 * p->size ? 1 : 0;
}

/* A tint of the ground hints at the class, as blue sky hints at ships; a network learns this first. */
static const double tints[BPPSA_CIFAR10_CLASSES][3] = {{1, -1, 0}, {-1, 1, 0}, {0, 1, -1},  {0, -1, 1}, {1, 0, -1},
                                                       {-1, 0, 1}, {1, 1, -1}, {-1, -1, 1}, {1, -1, 1}, {-1, 1, -1}};

static picture imagine(dice *d, int label) {
  picture p = {.period = roll(d, 5, 9), .phase_x = roll(d, 0, 1), .phase_y = roll(d, 0, 1)};
  p.size = roll(d, 6, 11);
  p.x = roll(d, 11, 21);
  p.y = roll(d, 11, 21);
  for (int c = 0; c < 3; ++c) { /* ink of any colour, lighter than the ground */
    p.ground[c] = roll(d, 40, 140) + 18 * tints[label][c];
    p.ink[c] = p.ground[c] + roll(d, 20, 90);
  }
  return p;
}

void bppsa_cifar10_draw(uint64_t seed, int64_t number, uint8_t record[BPPSA_CIFAR10_RECORD]) {
  static const cover_fn classes[BPPSA_CIFAR10_CLASSES] = {lying, standing, sloping,  checkerboard, dots,
                                                          disk,  square,   triangle, ring,         cross};
  enum { DEVIATION = 24 };
  dice d = {seed, BPPSA_STREAM_IMAGES + ((uint64_t)number << 8), 0};
  record[0] = (uint8_t)(number % BPPSA_CIFAR10_CLASSES);
  const picture p = imagine(&d, record[0]);
  for (int y = 0; y < BPPSA_CIFAR10_SIDE; ++y) {
    for (int x = 0; x < BPPSA_CIFAR10_SIDE; ++x) {
      const double cover = classes[record[0]](&p, x + 0.5, y + 0.5);
      for (int c = 0; c < BPPSA_CIFAR10_CHANNELS; ++c) {
        const double value = cover * p.ink[c] + (1 - cover) * p.ground[c] + DEVIATION * noise(&d);
        record[1 + (c * BPPSA_CIFAR10_SIDE + y) * BPPSA_CIFAR10_SIDE + x] = (uint8_t)(value < 0     ? 0
                                                                                      : value > 255 ? 255
                                                                                                    : lrint(value));
      }
    }
  }
}

/* ---- writing ---- */

typedef struct {
  const char *directory;
  uint64_t seed;
  int32_t threads;
  int64_t done, total;
  void (*progress)(void *context, int64_t done, int64_t total);
  void *context;
  char *path;
  size_t path_size;
  uint8_t *chunk; /* [CHUNK][RECORD] */
} writing;

static const char *path_of(const writing *w, int file) {
  snprintf(w->path, w->path_size, "%s/%s", w->directory, bppsa_cifar10_file(file));
  return w->path;
}

/* Creates the directory and checks that it holds none of the files. */
static bppsa_status prepare_directory(const writing *w) {
  struct stat info;
  if (bppsa_io_mkdir(w->directory) != 0 && errno != EEXIST) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: cannot make the directory (%s)", w->directory, strerror(errno));
  }
  for (int file = 0; file < BPPSA_CIFAR10_FILES; ++file) {
    if (lstat(path_of(w, file), &info) == 0) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: is there already, expected a directory without CIFAR-10's files", w->path);
    }
  }
  return bppsa_file_clean(w->directory);
}

typedef struct {
  const writing *w;
  int64_t first; /* first record of the chunk */
} drawing;

static void draw_records(const void *context, int32_t worker, int64_t first, int64_t end) {
  const drawing *d = context;
  (void)worker;
  for (int64_t i = first; i < end; ++i) {
    bppsa_cifar10_draw(d->w->seed, d->first + i, d->w->chunk + i * BPPSA_CIFAR10_RECORD);
  }
}

/* Writes records first .. first + count - 1. */
static bppsa_status write_file(writing *w, int file, int64_t first, int64_t count) {
  bppsa_file_writer *writer = NULL;
  bppsa_status status = bppsa_file_writer_create(path_of(w, file), &writer);
  for (int64_t from = 0; status == BPPSA_OK && from < count; from += CHUNK) {
    const int64_t size = count - from < CHUNK ? count - from : CHUNK;
    bppsa_parallel_for(w->threads, size, (double)INFINITY, draw_records, &(drawing){w, first + from});
    status = bppsa_file_writer_write(writer, w->chunk, (size_t)size * BPPSA_CIFAR10_RECORD);
    w->done += size;
    if (w->progress != NULL) {
      w->progress(w->context, w->done, w->total);
    }
  }
  if (status != BPPSA_OK) {
    bppsa_file_writer_abort(writer);
    return status;
  }
  return bppsa_file_writer_commit(writer);
}

static bppsa_status write_files(writing *w, int64_t samples) {
  enum { TRAINED = BPPSA_CIFAR10_FILES - 1 };
  BPPSA_TRY(prepare_directory(w));
  for (int file = 0; file < BPPSA_CIFAR10_FILES; ++file) {
    const int64_t first = samples * file / TRAINED, end = samples * (file + 1) / TRAINED;
    BPPSA_TRY(write_file(w, file, first, file < TRAINED ? end - first : w->total - samples));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_cifar10_write(const char *directory, int64_t samples, uint64_t seed, int32_t threads,
                                 void (*progress)(void *context, int64_t done, int64_t total), void *context) {
  if (directory == NULL || directory[0] == '\0' || samples < LEAST || samples > MOST || threads < 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "cifar10: %lld samples on %d threads, expected %d .. %d on 1 or more, and a directory",
                      (long long)samples, (int)threads, LEAST, MOST);
  }
  writing w = {.directory = directory,
               .seed = seed,
               .threads = threads,
               .total = samples + samples / 5,
               .progress = progress,
               .context = context,
               .path_size = strlen(directory) + 32};
  w.path = bppsa_alloc(w.path_size);
  w.chunk = bppsa_calloc(CHUNK, BPPSA_CIFAR10_RECORD);
  const bppsa_status status = w.path == NULL || w.chunk == NULL ? BPPSA_ERR_MEMORY : write_files(&w, samples);
  bppsa_free(w.path);
  bppsa_free(w.chunk);
  return status;
}
