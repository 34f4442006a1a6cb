/* Writes a directory of instruments, file by file. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "audio/instruments.h"
#include "audio/names.h"
#include "audio/wav.h"
#include "core/base/alloc.h"
#include "core/base/io.h"
#include "core/compute/pool.h"
#include "core/files/directory.h"
#include "core/files/file.h"
#include "core/files/path.h"

enum { MOST_FILES = 1000000 };

typedef struct {
  bppsa_instrument_workspace *workspace;
  int16_t *samples; /* [BPPSA_INSTRUMENT_FRAMES][2] */
  char *path;       /* the file being written */
} worker;

typedef struct {
  const char *directory;
  int64_t files;
  uint64_t seed;
  int32_t threads;
  worker *workers; /* size threads */
  size_t path_size;
  int64_t done;
  bppsa_status status; /* the first failure */
  char reason[400];    /* its message; bppsa_last_error would only show it to the thread that failed */
} writing;

static bppsa_status worker_create(worker *w, size_t path_size) {
  w->samples = bppsa_calloc(2 * BPPSA_INSTRUMENT_FRAMES, sizeof *w->samples);
  w->path = bppsa_alloc(path_size);
  return w->samples == NULL || w->path == NULL ? BPPSA_ERR_MEMORY : bppsa_instrument_workspace_create(&w->workspace);
}

static void worker_free(worker *w) {
  bppsa_instrument_workspace_destroy(w->workspace);
  bppsa_free(w->samples);
  bppsa_free(w->path);
}

static bppsa_status make_directory(const char *path) {
  struct stat info;
  if (bppsa_io_mkdir(path) != 0 && !(errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode))) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: cannot make the directory: %s", path, strerror(errno));
  }
  return BPPSA_OK;
}

/* Checks that a folder holds no WAV file yet. Temporary files that killed programs left behind are removed. */
static bppsa_status check_folder(const char *path) {
  struct stat info;
  if (stat(path, &info) != 0 && errno == ENOENT) {
    return BPPSA_OK;
  }
  bppsa_directory list = {0};
  BPPSA_TRY(bppsa_path_check_folder(path));
  BPPSA_TRY(bppsa_directory_list(path, &list));
  bppsa_status status = BPPSA_OK;
  for (int64_t i = 0; status == BPPSA_OK && i < list.count; ++i) {
    if (bppsa_is_wav_name(list.names[i])) {
      status =
          bppsa_fail(BPPSA_ERR_ARGUMENT, "%s/%s: is there already, expected a directory without WAV files", path, list.names[i]);
    }
  }
  bppsa_directory_free(&list);
  return status == BPPSA_OK ? bppsa_file_clean(path) : status;
}

/* Checks every class folder before it creates the first one. */
static bppsa_status prepare_folders(const writing *w, char *path) {
  for (int i = 0; i < BPPSA_INSTRUMENTS; ++i) {
    snprintf(path, w->path_size, "%s/%s", w->directory, bppsa_instrument_names[i]);
    BPPSA_TRY(check_folder(path));
  }
  BPPSA_TRY(make_directory(w->directory));
  for (int i = 0; i < BPPSA_INSTRUMENTS && i < w->files; ++i) {
    snprintf(path, w->path_size, "%s/%s", w->directory, bppsa_instrument_names[i]);
    BPPSA_TRY(make_directory(path));
  }
  return BPPSA_OK;
}

static bppsa_status write_file(const writing *w, worker *by, int64_t number) {
  const char *name = bppsa_instrument_names[number % BPPSA_INSTRUMENTS];
  snprintf(by->path, w->path_size, "%s/%s/%s_%06lld.wav", w->directory, name, name, (long long)number);
  bppsa_instrument_play(by->workspace, w->seed, number, by->samples);
  return bppsa_wav_write(by->path, BPPSA_INSTRUMENT_FRAMES, by->samples);
}

/* What the writing threads share. */
typedef struct {
  writing *w;
  pthread_mutex_t *mutex; /* guards w, but not its workers, and calls of the caller's progress */
  atomic_bool *stop;
  bppsa_instruments_progress progress;
  void *context;
} shared_writing;

static void report(const shared_writing *s, bppsa_status status) {
  writing *w = s->w;
  pthread_mutex_lock(s->mutex);
  if (status != BPPSA_OK && w->status == BPPSA_OK) {
    w->status = status;
    snprintf(w->reason, sizeof w->reason, "%s", bppsa_last_error());
    atomic_store(s->stop, true);
  }
  w->done += status == BPPSA_OK;
  if (s->progress != NULL) {
    s->progress(s->context, w->done, w->files);
  }
  pthread_mutex_unlock(s->mutex);
}

/* A thread's loop. It stops after the first failure, because a full disk stays full. */
static void write_some(const void *context, int32_t number, int64_t first, int64_t end) {
  const shared_writing *s = context;
  for (int64_t i = first; i < end && !atomic_load(s->stop); ++i) {
    report(s, write_file(s->w, &s->w->workers[number], i));
  }
}

static bppsa_status write_files(writing *w, bppsa_instruments_progress progress, void *context) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  atomic_bool stop = false;
  bppsa_parallel_for(w->threads, w->files, (double)INFINITY, write_some, &(shared_writing){w, &mutex, &stop, progress, context});
  pthread_mutex_destroy(&mutex);
  return w->status == BPPSA_OK
             ? BPPSA_OK
             : bppsa_fail(w->status, "%s; %lld of %lld files are written", w->reason, (long long)w->done, (long long)w->files);
}

bppsa_status bppsa_instruments_write(const char *directory, int64_t files, uint64_t seed, int32_t threads,
                                     bppsa_instruments_progress progress, void *context) {
  if (directory == NULL || directory[0] == '\0' || files < 1 || files > MOST_FILES || threads < 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "instruments: %lld files on %d threads, expected 1 .. %d on 1 or more, and a directory",
                      (long long)files, (int)threads, MOST_FILES);
  }
  writing w = {.directory = directory, .files = files, .seed = seed, .threads = threads < files ? threads : (int32_t)files};
  w.path_size = strlen(directory) + 64;
  w.workers = bppsa_calloc(w.threads, sizeof *w.workers);
  bppsa_status status = w.workers == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int32_t i = 0; status == BPPSA_OK && i < w.threads; ++i) {
    status = worker_create(&w.workers[i], w.path_size);
  }
  if (status == BPPSA_OK) {
    status = prepare_folders(&w, w.workers[0].path);
  }
  if (status == BPPSA_OK) {
    status = write_files(&w, progress, context);
  }
  for (int32_t i = 0; w.workers != NULL && i < w.threads; ++i) {
    worker_free(&w.workers[i]);
  }
  bppsa_free(w.workers);
  return status;
}
