/* WAV files in IRMAS's layout, DIR/CLASS/NAME.wav, held in memory as features [N,T,I] f32.
 *
 * Files are sorted by class and name, then mixed: each class is shuffled by the seed, and file r of its n files gets the place
 * (2r + 1) / 2n. In that order every range of samples, including the held-out end, has its share of every class to within one file.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "audio/features.h"
#include "audio/instruments.h"
#include "audio/names.h"
#include "core/base/alloc.h"
#include "core/compute/pool.h"
#include "core/files/directory.h"
#include "train/blocks.h"
#include "train/data/dataset_internal.h"

#define CLASSES_TEXT "cel, cla, flu, gac, gel, org, pia, sax, tru, vio, voi"

typedef struct {
  char *path; /* owned */
  int32_t label;
  uint32_t checksum; /* of the samples from which the features were computed */
} audio_file;

typedef struct {
  bppsa_dataset base;
  audio_file *files; /* size N, in the order of the samples */
  int64_t capacity;  /* room in `files` */
  float *x;          /* [N, T, I] */
} audio_dataset;

/* ---- finding the files ---- */

/* "DIRECTORY/NAME", owned, or NULL. */
static char *join(const char *directory, const char *name) {
  const size_t size = strlen(directory) + strlen(name) + 2;
  char *path = bppsa_alloc(size);
  if (path != NULL) {
    snprintf(path, size, "%s/%s", directory, name);
  }
  return path;
}

static bppsa_status add_file(audio_dataset *self, const char *directory, const char *name, int32_t label) {
  if (self->base.samples == BPPSA_MAX_SAMPLES) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: more than %lld WAV files, expected at most that", directory,
                      (long long)BPPSA_MAX_SAMPLES);
  }
  BPPSA_TRY(bppsa_grow(&self->files, self->base.samples, &self->capacity, sizeof *self->files));
  char *path = join(directory, name);
  if (path == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  self->files[self->base.samples++] = (audio_file){.path = path, .label = label};
  return BPPSA_OK;
}

/* Adds the WAV files of one folder, whose name is their class. A folder with another name must not hold WAV files. */
static bppsa_status add_folder(audio_dataset *self, const char *path, const char *name) {
  const int32_t label = bppsa_instrument_find(name);
  struct stat info;
  if (name[0] == '.' || stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
    return BPPSA_OK;
  }
  bppsa_directory list = {0};
  BPPSA_TRY(bppsa_directory_list(path, &list));
  bppsa_status status = BPPSA_OK;
  for (int64_t i = 0; status == BPPSA_OK && i < list.count; ++i) {
    if (bppsa_is_wav_name(list.names[i])) {
      status = label >= 0 ? add_file(self, path, list.names[i], label)
                          : bppsa_fail(BPPSA_ERR_ARGUMENT,
                                       "%s: WAV files in a folder that names no class, expected " CLASSES_TEXT, path);
    }
  }
  bppsa_directory_free(&list);
  return status;
}

static bppsa_status find_files(audio_dataset *self, const char *directory) {
  bppsa_directory list = {0};
  BPPSA_TRY(bppsa_directory_list(directory, &list));
  bppsa_status status = BPPSA_OK;
  for (int64_t i = 0; status == BPPSA_OK && i < list.count; ++i) {
    char *path = join(directory, list.names[i]);
    status = path == NULL ? BPPSA_ERR_MEMORY : add_folder(self, path, list.names[i]);
    bppsa_free(path);
  }
  bppsa_directory_free(&list);
  BPPSA_TRY(status);
  if (self->base.samples == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "%s: no WAV files in folders of IRMAS's classes, expected some in one or more of " CLASSES_TEXT, directory);
  }
  return BPPSA_OK;
}

/* ---- the order of the files ---- */

typedef struct {
  int64_t numerator, denominator; /* the file's place among all: (2r + 1) / n */
  int64_t position;               /* after the shuffle */
  audio_file file;
} place;

static int compare_places(const void *a, const void *b) {
  const place *x = a, *y = b;
  const int64_t left = x->numerator * y->denominator,
                right = y->numerator * x->denominator; /* below 2^63: the factors are below 2^32 and 2^31 */
  if (left != right) {
    return left < right ? -1 : 1;
  }
  return x->position < y->position ? -1 : 1;
}

static bppsa_status spread(audio_dataset *self, uint64_t seed) {
  const int64_t n = self->base.samples;
  int64_t counts[BPPSA_INSTRUMENTS] = {0}, ranks[BPPSA_INSTRUMENTS] = {0};
  int64_t *order = bppsa_calloc(n, sizeof *order);
  place *places = bppsa_calloc(n, sizeof *places);
  if (order == NULL || places == NULL) {
    bppsa_free(order);
    bppsa_free(places);
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < n; ++i) {
    ++counts[self->files[i].label];
  }
  bppsa_shuffle(seed, 0, n, order); /* 0 is free, because training's epochs count from 1 */
  for (int64_t i = 0; i < n; ++i) {
    const audio_file file = self->files[order[i]];
    places[i] = (place){2 * ranks[file.label]++ + 1, counts[file.label], i, file};
  }
  qsort(places, (size_t)n, sizeof *places, compare_places);
  for (int64_t i = 0; i < n; ++i) {
    self->files[i] = places[i].file;
  }
  bppsa_free(order);
  bppsa_free(places);
  return BPPSA_OK;
}

/* ---- reading the files ---- */

typedef struct {
  bppsa_features **workers; /* size threads */
  int32_t threads;
  int64_t done, bad;   /* files */
  const char *first;   /* path of a bad file: the first by name, or one for which memory was lacking */
  bppsa_status status; /* status of that file */
  char reason[400];    /* its message; bppsa_last_error would only show it to the thread that failed */
} reading;

/* Keeps the failure of the first file by name, whichever thread meets it first. A lack of memory takes the place of a file's
 * failure. */
static void keep_failure(reading *r, const char *path, bppsa_status status) {
  ++r->bad;
  if (status == BPPSA_ERR_MEMORY || r->first == NULL || (r->status != BPPSA_ERR_MEMORY && strcmp(path, r->first) < 0)) {
    r->first = path;
    r->status = status;
    snprintf(r->reason, sizeof r->reason, "%s", bppsa_last_error());
  }
}

/* What the reading threads share. */
typedef struct {
  audio_dataset *self;
  const bppsa_dataset_audio *audio;
  reading *r;
  pthread_mutex_t *mutex; /* guards r, but not its workers, and calls of the caller's progress */
  atomic_bool *stop;      /* memory is lacking: the other files would fail too */
} shared_reading;

static void report(const shared_reading *s, const audio_file *file, bppsa_status status) {
  pthread_mutex_lock(s->mutex);
  if (status != BPPSA_OK) {
    keep_failure(s->r, file->path, status);
  }
  ++s->r->done;
  if (s->audio->progress != NULL) {
    s->audio->progress(s->audio->context, s->r->done, s->self->base.samples);
  }
  pthread_mutex_unlock(s->mutex);
}

static void read_some(const void *context, int32_t worker, int64_t first, int64_t end) {
  const shared_reading *s = context;
  const int64_t size = s->self->base.seq_len * s->self->base.input;
  for (int64_t i = first; i < end && !atomic_load(s->stop); ++i) {
    audio_file *file = &s->self->files[i];
    const bppsa_status status = bppsa_features_read(s->r->workers[worker], file->path, s->self->x + i * size, &file->checksum);
    if (status == BPPSA_ERR_MEMORY) {
      atomic_store(s->stop, true);
    }
    report(s, file, status);
  }
}

static void read_all(audio_dataset *self, const bppsa_dataset_audio *audio, reading *r) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  atomic_bool stop = false;
  bppsa_parallel_for(r->threads, self->base.samples, (double)INFINITY, read_some,
                     &(shared_reading){self, audio, r, &mutex, &stop});
  pthread_mutex_destroy(&mutex);
}

static bppsa_status read_with_workers(audio_dataset *self, const bppsa_dataset_audio *audio, const bppsa_mfcc_config *set,
                                      const bppsa_mfcc_plan *plan, reading *r) {
  for (int32_t t = 0; t < r->threads; ++t) {
    BPPSA_TRY(bppsa_features_create(plan, set->n_fft, &r->workers[t]));
  }
  read_all(self, audio, r);
  if (r->bad == 0) {
    return BPPSA_OK;
  }
  if (r->status == BPPSA_ERR_MEMORY) {
    return bppsa_fail(r->status, "%s", r->reason);
  }
  return bppsa_fail(r->status, "%s; %lld of %lld files are good", r->reason, (long long)(self->base.samples - r->bad),
                    (long long)self->base.samples);
}

static bppsa_status read_files(audio_dataset *self, const bppsa_dataset_audio *audio, const bppsa_mfcc_config *set,
                               const bppsa_mfcc_plan *plan) {
  bppsa_dataset *base = &self->base;
  base->seq_len = bppsa_mfcc_frames(plan);
  base->input = 2 * bppsa_mfcc_features(plan);
  int64_t size;
  if (!bppsa_mul(base->samples, base->seq_len * base->input, &size)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "%s: features of %lld files do not fit", base->ops->name, (long long)base->samples);
  }
  self->x = bppsa_calloc(size, sizeof *self->x);
  reading r = {.threads = (int32_t)bppsa_min(bppsa_threads(audio->device), base->samples)};
  r.workers = bppsa_calloc(r.threads, sizeof(bppsa_features *));
  const bppsa_status status =
      self->x != NULL && r.workers != NULL ? read_with_workers(self, audio, set, plan, &r) : BPPSA_ERR_MEMORY;
  for (int32_t t = 0; r.workers != NULL && t < r.threads; ++t) {
    bppsa_features_destroy(r.workers[t]);
  }
  bppsa_free(r.workers);
  return status;
}

/* The upper half is the CRC-32 of the files' samples and labels, the lower half that of the settings of the features. */
static uint64_t checksum(const audio_dataset *self, const bppsa_mfcc_config *set, bppsa_mfcc_padding padding) {
  const uLong none = crc32_z(0, NULL, 0);
  uLong files = none;
  for (int64_t i = 0; i < self->base.samples; ++i) {
    const uint32_t words[2] = {self->files[i].checksum, (uint32_t)self->files[i].label};
    files = crc32_z(files, (const Bytef *)words, sizeof words);
  }
  const int64_t settings[4] = {set->n_mfcc, set->n_fft, set->hop, (int64_t)padding};
  return (uint64_t)files << 32 | (uint64_t)crc32_z(none, (const Bytef *)settings, sizeof settings);
}

/* ---- the data set ---- */

/* x[t, s, :] = features[indices[s], t, :] */
static void audio_fill(const bppsa_dataset *dataset, int32_t threads, int64_t count, const int64_t *indices, const bppsa_view *x,
                       int64_t *labels) {
  const audio_dataset *self = (const audio_dataset *)dataset;
  const int64_t label_steps = dataset->labels_per_step ? dataset->seq_len : 1;
  for (int64_t t = 0; labels != NULL && t < label_steps; ++t) {
    for (int64_t s = 0; s < count; ++s) {
      labels[t * count + s] = self->files[indices[s]].label;
    }
  }
  if (x == NULL) {
    return;
  }
  bppsa_dataset_copy_steps(BPPSA_F32, self->x, threads, count, indices, dataset, x);
}

static void audio_part(const bppsa_dataset *dataset, const bppsa_dataset_part *p) {
  const audio_dataset *self = (const audio_dataset *)dataset;
  for (int64_t t = 0; p->labels != NULL && t < (dataset->labels_per_step ? p->steps : 1); ++t) {
    p->labels[t * p->apart] = self->files[p->sample].label;
  }
  bppsa_dataset_copy_part(BPPSA_F32, self->x, p->sample * dataset->seq_len, dataset->input, p->steps, p, p->x);
}

static void audio_destroy(bppsa_dataset *dataset) {
  audio_dataset *self = (audio_dataset *)dataset;
  for (int64_t i = 0; i < dataset->samples; ++i) {
    bppsa_free(self->files[i].path);
  }
  bppsa_free(self->files);
  bppsa_free(self->x);
  bppsa_free(self);
}

static bppsa_status check_option(const char *directory, const char *name, int64_t asked, int64_t found) {
  if (asked != 0 && asked != found) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s gives %lld %s, but %lld were asked for, expected that number or none", directory,
                      (long long)found, name, (long long)asked);
  }
  return BPPSA_OK;
}

static bppsa_status load(audio_dataset *self, const char *directory, const bppsa_dataset_options *options) {
  static const bppsa_dataset_audio none = {.set = NULL};
  const bppsa_dataset_audio *audio = options->audio != NULL ? options->audio : &none;
  const bppsa_mfcc_config *set = audio->set != NULL ? audio->set : &bppsa_mfcc_sets[0];
  bppsa_mfcc_plan *plan = NULL;
  BPPSA_TRY(bppsa_audio_check());
  BPPSA_TRY(bppsa_mfcc_plan_create(set, BPPSA_FEATURES_SAMPLES, audio->padding, &plan));
  bppsa_status status = check_option(directory, "time steps", options->seq_len, bppsa_mfcc_frames(plan));
  if (status == BPPSA_OK) {
    status = find_files(self, directory);
  }
  if (status == BPPSA_OK) {
    status = check_option(directory, "samples", options->samples, self->base.samples);
  }
  if (status == BPPSA_OK) {
    status = spread(self, options->seed);
  }
  if (status == BPPSA_OK) {
    status = read_files(self, audio, set, plan);
  }
  if (status == BPPSA_OK) {
    self->base.identity = checksum(self, set, audio->padding);
  }
  bppsa_mfcc_plan_destroy(plan);
  return status;
}

static bppsa_status create(const bppsa_dataset_ops *ops, const char *directory, const bppsa_dataset_options *options,
                           bppsa_dataset **dataset) {
  if (directory == NULL || directory[0] == '\0') {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "data set '%s': directory missing, expected %s:DIR", ops->name, ops->name);
  }
  audio_dataset *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->base = (bppsa_dataset){.ops = ops, .classes = BPPSA_INSTRUMENTS, .labels_per_step = options->labels_per_step};
  const bppsa_status status = load(made, directory, options);
  if (status != BPPSA_OK) {
    audio_destroy(&made->base);
    return status;
  }
  *dataset = &made->base;
  return BPPSA_OK;
}

static const bppsa_dataset_ops irmas_ops = {.name = "irmas", .fill = audio_fill, .destroy = audio_destroy, .part = audio_part};
static const bppsa_dataset_ops instruments_ops = {
    .name = "instruments", .fill = audio_fill, .destroy = audio_destroy, .part = audio_part};

bppsa_status bppsa_dataset_irmas(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset) {
  return create(&irmas_ops, argument, options, dataset);
}

bppsa_status bppsa_dataset_instruments(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset) {
  return create(&instruments_ops, argument, options, dataset);
}
