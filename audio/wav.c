#include "audio/wav.h"

#include <math.h>
#include <string.h>

#include "audio/libraries.h"
#include "core/base/alloc.h"
#include "core/base/io.h"
#include "core/base/text.h"

enum { LEAST_RATE = 4000, MOST_RATE = 384000, FORMAT_BYTES = 16, FULL_SCALE = 32768, CHANNELS = 2 };
enum { MOST_CHUNKS = 4096 };
enum { FORMAT_PCM = 1, FORMAT_FLOAT = 3, FORMAT_EXTENSIBLE = 0xFFFE }; /* formats whose frames have a fixed size */
enum { FORMAT_MPEG = 0x50, FORMAT_MP3 = 0x55 };
#define UNKNOWN_SIZE 0xFFFFFFFFu /* the size is in the ds64 chunk of an RF64 file */

/* Is it a size that programs write if they write to a pipe and do not know how long the container or its samples are? It is 0, or
 * close to 2 or 4 GiB: ffmpeg writes 0xFFFFFFFF, sox 0x7FFFF000, arecord 0x80000000, some add or subtract the size of the head. */
static bool is_open_size(int64_t size) {
  return size == 0 || (size >= 0x7FFE0000 && size <= 0x8001FFFF) || (size >= 0xFFFE0000 && size <= UNKNOWN_SIZE);
}

/* The facts found so far while walking over the chunks. */
typedef struct {
  bppsa_file_reader file;
  bool big;                             /* RIFX: the high byte of a number comes first */
  bool wide;                            /* RF64 */
  bool open;                            /* the container's size is not known: it extends to the end of the file */
  bool counted;                         /* the size of the data chunk was not known either */
  int64_t end;                          /* one past the last byte of the container */
  int64_t wide_data;                    /* size of the data chunk according to the ds64 chunk; -1: none */
  int64_t format_at;                    /* first byte of the fmt chunk's content; 0: not found yet */
  uint32_t kind, channels, rate, block; /* from the fmt chunk; block: bytes of a frame */
  int64_t data_at, data_bytes;          /* content of the data chunk; data_at 0: not found yet */
  bool fact;                            /* there was a fact chunk, with the number of frames of a compressed format */
  int64_t pieces;                       /* how many pieces libsndfile gets */
  bppsa_decoder_piece piece[BPPSA_DECODER_PIECES];
} walk;

/* ---- bytes ---- */

/* An unsigned number of `bytes` bytes. */
static uint64_t number(const walk *w, const unsigned char *at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    value = value << 8 | at[w->big ? i : bytes - 1 - i];
  }
  return value;
}

/* Reads bytes at .. at + bytes - 1, which must exist. */
static bppsa_status read_at(walk *w, int64_t at, const char *what, void *data, int64_t bytes) {
  if (at + bytes > w->file.size) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: the file ends in %s, expected %lld more bytes", w->file.path,
                      (long long)w->file.size, what, (long long)(at + bytes - w->file.size));
  }
  if (bppsa_io_seek(w->file.descriptor, at) < 0) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: cannot move to byte %lld", w->file.path, (long long)at);
  }
  w->file.offset = at;
  return bppsa_file_reader_read(&w->file, data, bytes);
}

/* Gives libsndfile bytes at .. at + bytes - 1. */
static void keep(walk *w, int64_t at, int64_t bytes) {
  w->piece[w->pieces++] = (bppsa_decoder_piece){.at = at, .bytes = bytes};
}

/* Sets the size of the latest piece, which its writer did not know, for libsndfile. */
static void tell_size(walk *w, int64_t bytes) {
  bppsa_decoder_piece *piece = &w->piece[w->pieces - 1];
  const uint32_t size = bytes < UNKNOWN_SIZE ? (uint32_t)bytes : UNKNOWN_SIZE;
  piece->sized = true;
  for (int i = 0; i < 4; ++i) {
    piece->size[w->big ? 3 - i : i] = (unsigned char)(size >> 8 * i);
  }
}

/* ---- the container ---- */

/* Reads "RIFF" size "WAVE" and checks that the container lies within the file. RF64 has the size in its first chunk. */
static bppsa_status read_head(walk *w) {
  unsigned char head[12];
  BPPSA_TRY(read_at(w, 0, "the RIFF header", head, sizeof head));
  w->big = memcmp(head, "RIFX", 4) == 0;
  w->wide = memcmp(head, "RF64", 4) == 0;
  if (!w->big && !w->wide && memcmp(head, "RIFF", 4) != 0) {
    char found[BPPSA_BEGINNING_TEXT];
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte 0: '%s', expected RIFF, RIFX or RF64, with which a WAV file begins",
                      w->file.path, bppsa_text_beginning(head, sizeof head, found));
  }
  if (memcmp(head + 8, "WAVE", 4) != 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte 8: a RIFF file of another kind, expected WAVE", w->file.path);
  }
  w->end = 8 + (int64_t)number(w, head + 4, 4);
  if (w->wide) {
    unsigned char sizes[24]; /* "ds64", the chunk's size, the container's size, the data's size */
    BPPSA_TRY(read_at(w, 12, "the ds64 chunk", sizes, sizeof sizes));
    const uint64_t riff = number(w, sizes + 8, 8), data = number(w, sizes + 16, 8);
    if (memcmp(sizes, "ds64", 4) != 0 || riff > INT64_MAX - 8 || data > INT64_MAX) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte 12: no ds64 chunk with sizes below 2^63, expected one in RF64", w->file.path);
    }
    w->end = 8 + (int64_t)riff;
    w->wide_data = (int64_t)data;
  }
  keep(w, 0, sizeof head);
  w->open = !w->wide && (w->end == 8 || w->end > w->file.size) && is_open_size(w->end - 8);
  w->end = w->open ? w->file.size : w->end;
  if (w->end > w->file.size) {
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s: byte 4: the RIFF header announces %lld bytes after it, but the file has %lld, expected at most that",
                      w->file.path, (long long)w->end - 8, (long long)w->file.size - 8);
  }
  return BPPSA_OK;
}

/* Reads wFormatTag, nChannels, nSamplesPerSec, nAvgBytesPerSec, nBlockAlign, wBitsPerSample. */
static bppsa_status read_format(walk *w, int64_t at, int64_t bytes) {
  unsigned char fields[FORMAT_BYTES];
  if (bytes < FORMAT_BYTES || w->format_at != 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: %s fmt chunk of %lld bytes, expected one of 16 or more", w->file.path,
                      (long long)at - 8, w->format_at != 0 ? "a second" : "a", (long long)bytes);
  }
  BPPSA_TRY(read_at(w, at, "the fmt chunk", fields, sizeof fields));
  w->format_at = at;
  w->kind = (uint32_t)number(w, fields, 2);
  w->channels = (uint32_t)number(w, fields + 2, 2);
  w->rate = (uint32_t)number(w, fields + 4, 4);
  w->block = (uint32_t)number(w, fields + 12, 2);
  if (w->channels == 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: 0 channels, expected 1 or 2", w->file.path, (long long)at + 2);
  }
  if (w->channels > CHANNELS) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                      "%s: byte %lld: %u channels, expected 1 or 2: with more, left and right are not defined", w->file.path,
                      (long long)at + 2, (unsigned)w->channels);
  }
  if (w->rate < LEAST_RATE || w->rate > MOST_RATE) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: byte %lld: %u Hz, expected %d to %d", w->file.path, (long long)at + 4,
                      (unsigned)w->rate, LEAST_RATE, MOST_RATE);
  }
  if (w->kind == FORMAT_MPEG || w->kind == FORMAT_MP3) { /* its decoder, libmpg123, writes to standard error */
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: byte %lld: format 0x%x, MPEG audio, expected another, such as integers",
                      w->file.path, (long long)at, (unsigned)w->kind);
  }
  const uint32_t bits = (uint32_t)number(w, fields + 14, 2);
  const bool fixed = w->kind == FORMAT_PCM || w->kind == FORMAT_FLOAT || w->kind == FORMAT_EXTENSIBLE;
  if (w->block == 0 || (fixed && w->block != w->channels * ((bits + 7) / 8))) {
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s: byte %lld: frames of %u bytes for %u channels of %u bits, expected as many bytes as they need",
                      w->file.path, (long long)at + 12, (unsigned)w->block, (unsigned)w->channels, (unsigned)bits);
  }
  return BPPSA_OK;
}

/* Does libsndfile need the chunk? It needs the first of a kind; a second fmt or data chunk is refused. */
static bool is_needed(walk *w, const unsigned char *name, int64_t at) {
  const bool fact = memcmp(name, "fact", 4) == 0, first = fact && !w->fact;
  w->fact = w->fact || fact;
  return first || memcmp(name, "fmt ", 4) == 0 || memcmp(name, "data", 4) == 0 || (w->wide && at == 12);
}

/* Notes one chunk: its name, where its content begins, how many bytes it has. */
static bppsa_status read_chunk(walk *w, const unsigned char *name, int64_t at, int64_t bytes) {
  if (memcmp(name, "fmt ", 4) == 0) {
    return read_format(w, at, bytes);
  }
  if (memcmp(name, "data", 4) != 0) {
    return BPPSA_OK;
  }
  if (w->format_at == 0 || w->data_at != 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: %s, expected one data chunk after the fmt chunk", w->file.path,
                      (long long)at - 8, w->data_at != 0 ? "a second data chunk" : "a data chunk before any fmt chunk");
  }
  w->data_at = at;
  w->data_bytes = bytes;
  return BPPSA_OK;
}

/* Returns the size of the data chunk whose content begins at `at`; its head says `announced`. If the writer did not know the
 * size, it is that of the whole frames up to the end. A head without sizes may say that the container ends before its data. */
static int64_t data_size(walk *w, int64_t at, int64_t announced) {
  if (w->wide || w->format_at == 0) {
    return announced == UNKNOWN_SIZE && w->wide ? w->wide_data : announced;
  }
  const bool none = announced == 0 && (w->open || at == w->end);
  if (!is_open_size(announced) || (announced == 0 ? !none : announced <= w->end - at)) {
    return announced;
  }
  const int64_t bytes = ((none ? w->file.size : w->end) - at) / w->block * w->block;
  w->counted = true;
  w->end = at + bytes;
  return bytes;
}

/* Walks over all chunks of the container. A file has a handful of them; an endless row of empty ones is refused. A chunk of odd
 * size is followed by a byte of padding, which may be missing at the very end. */
static bppsa_status read_chunks(walk *w) {
  int64_t at = 12;
  for (int count = 0; at + 8 <= w->end; ++count) {
    unsigned char head[8];
    if (count == MOST_CHUNKS) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: more than %d chunks, expected at most so many", w->file.path,
                        (long long)at, MOST_CHUNKS);
    }
    BPPSA_TRY(read_at(w, at, "the head of a chunk", head, sizeof head));
    int64_t bytes = (int64_t)number(w, head + 4, 4);
    const bool data = memcmp(head, "data", 4) == 0;
    bytes = data ? data_size(w, at + 8, bytes) : bytes;
    if (bytes > w->end - at - 8) {
      char name[5] = {0};
      memcpy(name, head, 4);
      return bppsa_fail(BPPSA_ERR_FORMAT,
                        "%s: byte %lld: the chunk '%s' announces %lld bytes, but %lld are left, expected at most that",
                        w->file.path, (long long)at + 4, name, (long long)bytes, (long long)(w->end - at - 8));
    }
    BPPSA_TRY(read_chunk(w, head, at + 8, bytes));
    const int64_t next = at + 8 + bytes + (bytes & 1);
    if (is_needed(w, head, at)) {
      keep(w, at, (next < w->end ? next : w->end) - at);
      if (data && w->counted) {
        tell_size(w, bytes);
      }
    }
    at = next;
  }
  if (w->format_at == 0 || w->data_at == 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: the chunks end without a %s chunk, expected fmt and data", w->file.path,
                      (long long)w->end, w->format_at == 0 ? "fmt" : "data");
  }
  return BPPSA_OK;
}

static bppsa_status check_data(const walk *w) {
  if (w->data_bytes == 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: the data chunk is empty, expected samples", w->file.path,
                      (long long)w->data_at - 4);
  }
  if (w->data_bytes % w->block != 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: %lld bytes of data, expected whole frames of %u bytes", w->file.path,
                      (long long)w->data_at - 4, (long long)w->data_bytes, (unsigned)w->block);
  }
  return BPPSA_OK;
}

/* ---- samples ---- */

/* Expands [frames][1] at the beginning of the array to [frames][2], from the end backwards. */
static void double_channel(int64_t frames, float *samples) {
  for (int64_t i = frames - 1; i >= 0; --i) {
    samples[2 * i] = samples[2 * i + 1] = samples[i];
  }
}

/* Scales to the range of 16-bit integers; a value that is not finite is an error that names it. */
static bppsa_status scale(const walk *w, int64_t frames, float *samples) {
  for (int64_t i = 0; i < frames * w->channels; ++i) {
    const float value = samples[i] * (float)FULL_SCALE;
    if (!isfinite(value)) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: frame %lld, channel %lld: the sample is %g, expected a finite value", w->file.path,
                        (long long)(i / w->channels), (long long)(i % w->channels), (double)samples[i]);
    }
    samples[i] = value;
  }
  return BPPSA_OK;
}

/* Decodes the frames that the wanted ones depend on, converts their rate, and writes *made frames to samples [wanted][channels].
 * The converter looks a few hundred frames ahead, so it gets a little more than the wanted length. */
static bppsa_status convert(const walk *w, bppsa_decoder *decoder, int64_t frames, int64_t wanted, float *samples,
                            int64_t *made) {
  const double ratio = (double)w->rate / BPPSA_AUDIO_RATE;
  const int64_t ahead = (int64_t)ceil((double)wanted * ratio + 512 * (1 + ratio)), count = frames < ahead ? frames : ahead;
  float *from = bppsa_calloc(count * w->channels, sizeof *from);
  if (from == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_status status = bppsa_decoder_read(decoder, count, from);
  if (status == BPPSA_OK) {
    status = scale(w, count, from);
  }
  if (status == BPPSA_OK) {
    status = bppsa_resample(w->file.path, w->channels, w->rate, count, from, wanted, samples, made);
  }
  bppsa_free(from);
  return status;
}

static bppsa_status decode(const walk *w, bppsa_decoder *decoder, int64_t frames, int64_t wanted, float *samples, int64_t *made) {
  if (w->rate != BPPSA_AUDIO_RATE) {
    return convert(w, decoder, frames, wanted, samples, made);
  }
  *made = frames < wanted ? frames : wanted;
  BPPSA_TRY(bppsa_decoder_read(decoder, *made, samples));
  return scale(w, *made, samples);
}

static bppsa_status check_length(const walk *w, int64_t frames, int64_t least) {
  const double seconds = (double)frames / w->rate, needed = (double)least / BPPSA_AUDIO_RATE;
  if (frames == 0 || seconds < needed) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %lld frames at %u Hz, %.4f s, expected at least %.4f s", w->file.path,
                      (long long)frames, (unsigned)w->rate, seconds, needed);
  }
  return BPPSA_OK;
}

/* Checks that libsndfile's frames and channels are those of the header. */
static bppsa_status check_agreement(const walk *w, int64_t frames, int64_t channels, int64_t rate) {
  const bool fixed = w->kind == FORMAT_PCM || w->kind == FORMAT_FLOAT;
  if (channels != w->channels || rate != w->rate || (fixed && frames != w->data_bytes / w->block)) {
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s: libsndfile finds %lld frames, %lld channels, %lld Hz, expected %lld, %u and %u by its header",
                      w->file.path, (long long)frames, (long long)channels, (long long)rate,
                      (long long)(w->data_bytes / w->block), (unsigned)w->channels, (unsigned)w->rate);
  }
  return BPPSA_OK;
}

static bppsa_status read_samples(walk *w, int64_t least, int64_t wanted, float *samples, bppsa_wav_info *info) {
  bppsa_decoder *decoder = NULL;
  int64_t frames = 0, channels = 0, rate = 0, made = 0;
  BPPSA_TRY(bppsa_decoder_create(&w->file, w->pieces, w->piece, &decoder, &frames, &channels, &rate));
  bppsa_status status = check_agreement(w, frames, channels, rate);
  if (status == BPPSA_OK) {
    status = check_length(w, frames, least);
  }
  if (status == BPPSA_OK) {
    status = decode(w, decoder, frames, wanted, samples, &made);
  }
  bppsa_decoder_destroy(decoder);
  BPPSA_TRY(status);
  if (w->channels == 1) {
    double_channel(made, samples);
  }
  memset(samples + CHANNELS * made, 0, (size_t)(CHANNELS * (wanted - made)) * sizeof *samples);
  *info = (bppsa_wav_info){.channels = w->channels, .rate = w->rate, .frames = frames};
  return BPPSA_OK;
}

bppsa_status bppsa_wav_read(const char *path, int64_t least, int64_t frames, float *samples, bppsa_wav_info *info) {
  BPPSA_REQUIRE(path != NULL);
  if (path == NULL || samples == NULL || frames < 1 || frames > INT32_MAX || least > frames) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "WAV file: %lld frames, at least %lld, expected 1 .. %d, and a path and an array",
                      (long long)frames, (long long)least, INT32_MAX);
  }
  BPPSA_TRY(bppsa_audio_check());
  walk w = {.wide_data = -1};
  bppsa_wav_info found = {0};
  BPPSA_TRY(bppsa_file_reader_open(path, &w.file));
  bppsa_status status = read_head(&w);
  if (status == BPPSA_OK) {
    status = read_chunks(&w);
  }
  if (status == BPPSA_OK) {
    status = check_data(&w);
  }
  if (status == BPPSA_OK) {
    status = read_samples(&w, least, frames, samples, &found);
  }
  bppsa_file_reader_close(&w.file);
  if (status == BPPSA_OK && info != NULL) {
    *info = found;
  }
  return status;
}

/* ---- writing ---- */

static void put(unsigned char *at, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    at[i] = (unsigned char)(value >> 8 * i);
  }
}

/* Writes the 44 bytes that precede `bytes` bytes of samples. */
static void make_head(uint32_t bytes, unsigned char head[44]) {
  memcpy(head, "RIFF", 4);
  put(head + 4, 36 + bytes, 4);
  memcpy(head + 8, "WAVEfmt ", 8);
  put(head + 16, FORMAT_BYTES, 4);
  put(head + 20, FORMAT_PCM, 2);
  put(head + 22, CHANNELS, 2);
  put(head + 24, BPPSA_AUDIO_RATE, 4);
  put(head + 28, BPPSA_AUDIO_RATE * CHANNELS * 2, 4);
  put(head + 32, CHANNELS * 2, 2);
  put(head + 34, 16, 2);
  memcpy(head + 36, "data", 4);
  put(head + 40, bytes, 4);
}

static bppsa_status write_all(bppsa_file_writer *writer, int64_t frames, const int16_t *samples) {
  enum { BLOCK = 4096 }; /* numbers */
  unsigned char head[44], bytes[2 * BLOCK];
  make_head((uint32_t)(frames * CHANNELS * 2), head);
  BPPSA_TRY(bppsa_file_writer_write(writer, head, sizeof head));
  for (int64_t first = 0; first < frames * CHANNELS; first += BLOCK) {
    const int64_t left = frames * CHANNELS - first, count = left < BLOCK ? left : BLOCK;
    for (int64_t i = 0; i < count; ++i) {
      put(bytes + 2 * i, (uint16_t)samples[first + i], 2);
    }
    BPPSA_TRY(bppsa_file_writer_write(writer, bytes, (size_t)(2 * count)));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_wav_write(const char *path, int64_t frames, const int16_t *samples) {
  BPPSA_REQUIRE(path != NULL);
  const int64_t most = (UINT32_MAX - 44) / (2 * CHANNELS);
  if (path == NULL || samples == NULL || frames < 1 || frames > most) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "WAV file: %lld frames, expected 1 .. %lld, and a path and an array", (long long)frames,
                      (long long)most);
  }
  bppsa_file_writer *writer = NULL;
  BPPSA_TRY(bppsa_file_writer_create(path, &writer));
  const bppsa_status status = write_all(writer, frames, samples);
  if (status != BPPSA_OK) {
    bppsa_file_writer_abort(writer);
    return status;
  }
  return bppsa_file_writer_commit(writer);
}
