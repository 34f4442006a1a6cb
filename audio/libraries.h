/* What the audio folder takes from other libraries: decoding (libsndfile), rate conversion (libsamplerate) and a Fourier transform
 * (libavutil). One file each; libraries_none.c answers ERR_UNSUPPORTED in their place. Internal. */
#ifndef BPPSA_AUDIO_LIBRARIES_H
#define BPPSA_AUDIO_LIBRARIES_H

#include <stdint.h>

#include "audio/audio.h"
#include "core/file.h"

/* ---- decoding ---- */

typedef struct bppsa_decoder bppsa_decoder;

/* Opens the WAV file that `file` reads, from its first byte; `file` is borrowed until the decoder is destroyed. Outputs: frames
 * (samples of each channel), channels, Hz. ERR_FORMAT: libsndfile cannot read it (the message has its words); ERR_IO, ERR_MEMORY.
 * */
bppsa_status bppsa_decoder_create(bppsa_file_reader *file, bppsa_decoder **decoder, int64_t *frames, int64_t *channels,
                                  int64_t *rate);
/* The first `frames` frames as [frames][channels], full scale ±1. Once. ERR_FORMAT: there are fewer; ERR_IO. */
bppsa_status bppsa_decoder_read(bppsa_decoder *decoder, int64_t frames, float *samples);
void bppsa_decoder_destroy(bppsa_decoder *decoder); /* NULL is legal */

/* ---- rate conversion ---- */

/* from [frames][channels] at `rate` Hz into to [most][channels] at BPPSA_AUDIO_RATE; *made frames of it are written.
 * ERR_FORMAT: libsamplerate refuses (the message has its words). */
bppsa_status bppsa_resample(const char *path, int64_t channels, int64_t rate, int64_t frames, const float *from, int64_t most,
                            float *to, int64_t *made);

/* ---- the Fourier transform of real data, float64 ---- */

typedef struct bppsa_fft bppsa_fft;

/* For n real numbers, n a power of two. It has a scratch of its own: one a thread. ERR_MEMORY, ERR_UNSUPPORTED. */
bppsa_status bppsa_fft_create(int64_t n, bppsa_fft **fft);
/* out[k] = Σ_t in[t] exp(-2πi k t / n), k = 0 .. n/2, as pairs of real and imaginary part. Both aligned to BPPSA_ALIGNMENT;
 * `in` may be overwritten. Allocates nothing. */
void bppsa_fft_execute(bppsa_fft *fft, double *in, double *out);
void bppsa_fft_destroy(bppsa_fft *fft); /* NULL is legal */

#endif
