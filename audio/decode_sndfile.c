/* Decoding by libsndfile, which reads through core/file. */
#include <pthread.h>
#include <sndfile.h>
#include <stdio.h>
#include <string.h>

#include "audio/libraries.h"
#include "core/alloc.h"
#include "core/io.h"

struct bppsa_decoder {
  bppsa_file_reader *file;
  bppsa_status status; /* of the first read that failed; libsndfile itself reports such a read as the end of the file */
  int64_t channels;
  SNDFILE *handle;
};

/* ---- the file as libsndfile sees it ---- */

static sf_count_t file_length(void *user) {
  return ((const bppsa_decoder *)user)->file->size;
}

static sf_count_t file_tell(void *user) {
  return ((const bppsa_decoder *)user)->file->offset;
}

static sf_count_t file_seek(sf_count_t offset, int whence, void *user) {
  bppsa_decoder *d = user;
  const int64_t base = whence == SEEK_CUR ? d->file->offset : whence == SEEK_END ? d->file->size : 0;
  const int64_t target = base + offset;
  if (target < 0 || target > d->file->size || d->status != BPPSA_OK) {
    return -1;
  }
  if (bppsa_io_seek(d->file->descriptor, target) < 0) {
    d->status = bppsa_fail(BPPSA_ERR_IO, "%s: cannot move to byte %lld", d->file->path, (long long)target);
    return -1;
  }
  d->file->offset = target;
  return target;
}

static sf_count_t file_read(void *data, sf_count_t bytes, void *user) {
  bppsa_decoder *d = user;
  const int64_t left = d->file->size - d->file->offset, count = bytes < left ? bytes : left;
  if (d->status != BPPSA_OK || count <= 0) {
    return 0;
  }
  d->status = bppsa_file_reader_read(d->file, data, count);
  return d->status == BPPSA_OK ? count : 0;
}

/* Required by the interface; nothing is ever written. */
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
  d->handle = sf_open_virtual(&calls, SFM_READ, info, d);
  if (d->status != BPPSA_OK) {
    status = d->status;
  } else if (d->handle == NULL) {
    char reason[160];
    snprintf(reason, sizeof reason, "%s", sf_strerror(NULL));
    reason[strcspn(reason, "\r\n")] = '\0';
    status = bppsa_fail(BPPSA_ERR_FORMAT, "%s: libsndfile cannot read it (%s), expected a WAV file that it reads", d->file->path,
                        reason);
  }
  pthread_mutex_unlock(&mutex);
  return status;
}

bppsa_status bppsa_decoder_create(bppsa_file_reader *file, bppsa_decoder **decoder, int64_t *frames, int64_t *channels,
                                  int64_t *rate) {
  SF_INFO info = {0};
  bppsa_decoder *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->file = file;
  bppsa_status status = file_seek(0, SEEK_SET, made) == 0 ? open_handle(made, &info) : made->status;
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
    const sf_count_t got = sf_readf_float(d->handle, samples + done * d->channels, frames - done);
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
      (void)sf_close(decoder->handle);
    }
    bppsa_free(decoder);
  }
}
