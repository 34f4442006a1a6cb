/* Decoding by libsndfile, which reads through core/files/file. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "audio/libraries.h"
#include "audio/load.h"
#include "core/base/alloc.h"
#include "core/base/io.h"

struct bppsa_decoder {
  bppsa_file_reader *file;
  int64_t count;
  bppsa_decoder_piece pieces[BPPSA_DECODER_PIECES];
  int64_t offset;      /* position in the file that the pieces make up */
  bppsa_status status; /* the first read that failed; libsndfile reports such a read as the end of the file */
  int64_t channels;
  const bppsa_audio_functions *library;
  SNDFILE *handle;
};

/* ---- the file as libsndfile sees it ---- */

static sf_count_t file_length(void *user) {
  const bppsa_decoder *d = user;
  int64_t length = 0;
  for (int64_t i = 0; i < d->count; ++i) {
    length += d->pieces[i].bytes;
  }
  return length;
}

static sf_count_t file_tell(void *user) {
  return ((const bppsa_decoder *)user)->offset;
}

static sf_count_t file_seek(sf_count_t offset, int whence, void *user) {
  bppsa_decoder *d = user;
  const int64_t length = file_length(d), base = whence == SEEK_CUR ? d->offset : whence == SEEK_END ? length : 0;
  if (offset < -base || offset > length - base || d->status != BPPSA_OK) {
    return -1;
  }
  d->offset = base + offset;
  return d->offset;
}

/* Reads bytes at .. at + bytes - 1 of the file. */
static bppsa_status read_file(bppsa_decoder *d, int64_t at, char *data, int64_t bytes) {
  if (d->file->offset != at && bppsa_io_seek(d->file->descriptor, at) < 0) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: cannot move to byte %lld", d->file->path, (long long)at);
  }
  d->file->offset = at;
  return bppsa_file_reader_read(d->file, data, bytes);
}

/* Replaces the file's size by the right one in `data`, which has `count` bytes of a piece from its byte `first` on. */
static void correct(const bppsa_decoder_piece *piece, int64_t first, char *data, int64_t count) {
  for (int64_t i = 0; piece->sized && i < 4; ++i) {
    const int64_t at = 4 + i - first;
    if (at >= 0 && at < count) {
      data[at] = (char)piece->size[i];
    }
  }
}

static sf_count_t file_read(void *data, sf_count_t bytes, void *user) {
  bppsa_decoder *d = user;
  int64_t done = 0, before = 0; /* before: bytes of the pieces in front of piece i */
  for (int64_t i = 0; i < d->count && d->status == BPPSA_OK; before += d->pieces[i++].bytes) {
    const int64_t left = before + d->pieces[i].bytes - d->offset, count = bytes - done < left ? bytes - done : left;
    if (count > 0) {
      d->status = read_file(d, d->pieces[i].at + d->offset - before, (char *)data + done, count);
      correct(&d->pieces[i], d->offset - before, (char *)data + done, count);
      d->offset += count;
      done += count;
    }
  }
  return d->status == BPPSA_OK ? done : 0;
}

/* libsndfile's interface requires it, but nothing is ever written. */
static sf_count_t file_write(const void *data, sf_count_t bytes, void *user) {
  (void)data, (void)bytes, (void)user;
  return 0;
}

/* ---- decoding ---- */

static bppsa_status open_handle(bppsa_decoder *d, SF_INFO *info) {
  /* libsndfile keeps the reason of a failed open in a global variable */
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  SF_VIRTUAL_IO calls = {file_length, file_seek, file_read, file_write, file_tell};
  bppsa_status status = BPPSA_OK;
  pthread_mutex_lock(&mutex);
  d->handle = d->library->sf_open_virtual(&calls, SFM_READ, info, d);
  if (d->status != BPPSA_OK) {
    status = d->status;
  } else if (d->handle == NULL) {
    char reason[160];
    snprintf(reason, sizeof reason, "%s", d->library->sf_strerror(NULL));
    reason[strcspn(reason, "\r\n")] = '\0';
    status = bppsa_fail(BPPSA_ERR_FORMAT, "%s: libsndfile cannot read it (%s), expected a WAV file that it reads", d->file->path,
                        reason);
  }
  pthread_mutex_unlock(&mutex);
  return status;
}

bppsa_status bppsa_decoder_create(bppsa_file_reader *file, int64_t count, const bppsa_decoder_piece *pieces,
                                  bppsa_decoder **decoder, int64_t *frames, int64_t *channels, int64_t *rate) {
  SF_INFO info = {0};
  const bppsa_audio_functions *library = NULL;
  BPPSA_TRY(bppsa_audio_load(&library));
  bppsa_decoder *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->library = library;
  made->file = file;
  made->count = count;
  memcpy(made->pieces, pieces, (size_t)count * sizeof *pieces);
  bppsa_status status = open_handle(made, &info);
  if (status == BPPSA_OK && (info.channels < 1 || info.frames < 0)) {
    status = bppsa_fail(BPPSA_ERR_FORMAT, "%s: %d channels, %lld frames, expected both to be positive", file->path, info.channels,
                        (long long)info.frames);
  }
  if (status != BPPSA_OK) {
    bppsa_decoder_destroy(made);
    return status;
  }
  made->channels = info.channels;
  *frames = info.frames;
  *channels = info.channels;
  *rate = info.samplerate;
  *decoder = made;
  return BPPSA_OK;
}

bppsa_status bppsa_decoder_read(bppsa_decoder *d, int64_t frames, float *samples) {
  int64_t done = 0;
  while (done < frames) {
    const sf_count_t got = d->library->sf_readf_float(d->handle, samples + done * d->channels, frames - done);
    if (d->status != BPPSA_OK) {
      return d->status;
    }
    if (got <= 0) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: the samples end after %lld frames, expected %lld", d->file->path, (long long)done,
                        (long long)frames);
    }
    done += got;
  }
  return BPPSA_OK;
}

void bppsa_decoder_destroy(bppsa_decoder *decoder) {
  if (decoder != NULL) {
    if (decoder->handle != NULL) {
      (void)decoder->library->sf_close(decoder->handle);
    }
    bppsa_free(decoder);
  }
}
