/* The interface to other libraries: decoding (libsndfile), rate conversion (libsamplerate) and a Fourier transform (libavutil). A
 * file uses one of them; load.h loads them. A build without them uses libraries_none.c, which answers ERR_UNSUPPORTED. Internal. */
#ifndef BPPSA_AUDIO_LIBRARIES_H
#define BPPSA_AUDIO_LIBRARIES_H

#include <stdint.h>

#include "audio/audio.h"
#include "core/files/file.h"

/* ---- decoding ---- */

typedef struct bppsa_decoder bppsa_decoder;

/* A piece of a WAV file. libsndfile gets the pieces in their order, as one file: the container's head and the chunks ds64, fmt,
 * fact and data, each with its head and its padding. Other chunks are left out, because libsndfile can take hours for lists of
 * texts inside them. */
typedef struct {
  int64_t at, bytes;
  bool sized;            /* use `size` as the piece's size, not the one in the file */
  unsigned char size[4]; /* in the file's order */
} bppsa_decoder_piece;

enum { BPPSA_DECODER_PIECES = 5 };

/* Opens the WAV file that `file` reads; `file` is borrowed until the decoder is destroyed, the pieces lie inside it. Outputs:
 * frames (samples of each channel), channels, rate in Hz. ERR_FORMAT: libsndfile cannot read it (the message quotes libsndfile);
 * ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_decoder_create(bppsa_file_reader *file, int64_t count, const bppsa_decoder_piece *pieces,
                                  bppsa_decoder **decoder, int64_t *frames, int64_t *channels, int64_t *rate);
/* Reads the first `frames` frames as [frames][channels], full scale ±1. May be called once. ERR_FORMAT: the file has fewer;
 * ERR_IO. */
bppsa_status bppsa_decoder_read(bppsa_decoder *decoder, int64_t frames, float *samples);
void bppsa_decoder_destroy(bppsa_decoder *decoder); /* NULL is legal */

/* ---- rate conversion ---- */

/* Converts `from` [frames][channels] at `rate` Hz to `to` [most][channels] at BPPSA_AUDIO_RATE and sets *made to the frames
 * written. ERR_FORMAT: libsamplerate refuses (the message quotes it). */
bppsa_status bppsa_resample(const char *path, int64_t channels, int64_t rate, int64_t frames, const float *from, int64_t most,
                            float *to, int64_t *made);

/* ---- the Fourier transform of real data, float64 ---- */

typedef struct bppsa_fft bppsa_fft;

/* Makes a transform of n real numbers, n a power of two. It owns scratch memory, so every thread needs its own. ERR_MEMORY,
 * ERR_UNSUPPORTED. */
bppsa_status bppsa_fft_create(int64_t n, bppsa_fft **fft);
/* out[k] = Σ_t in[t] exp(-2πi k t / n), k = 0 .. n/2, as pairs of real and imaginary part. Both arrays are aligned to
 * BPPSA_ALIGNMENT; `in` may be overwritten. Allocates nothing. */
void bppsa_fft_execute(bppsa_fft *fft, double *in, double *out);
void bppsa_fft_destroy(bppsa_fft *fft); /* NULL is legal */

#endif
