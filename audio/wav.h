/* WAV files as stereo sound at 44.1 kHz.
 *
 * Read is what libsndfile reads inside a RIFF, RIFX or RF64 container: integers of 8 to 32 bits, floats, the compressed kinds.
 * Before that the container itself is checked: every chunk must lie within its container and the container within the file, so
 * that a truncated file and sizes that lie are refused, with the byte, before memory is taken. Bytes after the container's end
 * are not part of it and are ignored.
 *
 *     values     on the scale of 16-bit integers: those arrive as they are, full scale (1.0 of a float file) is 32768
 *     channels   two as they are; one stands on both sides; more are refused: which of them are left and right differs between
 *     programs
 *     rate       4000 to 384000 Hz, converted to 44100 Hz by libsamplerate (resample_samplerate.c)
 *     length     what is longer is cut at the wanted length, what is shorter is followed by silence; too short is refused
 */
#ifndef BPPSA_AUDIO_WAV_H
#define BPPSA_AUDIO_WAV_H

#include <stdint.h>

#include "audio/audio.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int64_t channels; /* 1 or 2 */
  int64_t rate;     /* Hz */
  int64_t frames;   /* of the file, at its own rate */
} bppsa_wav_info;

/* The file's first `frames` frames at 44.1 kHz into samples [frames][2]; silence after its end. info may be NULL.
 * ERR_FORMAT: damaged, of an unknown kind, a value that is not finite, or fewer than `least` frames (the message names file and
 * byte or frame); ERR_UNSUPPORTED: more than two channels, a rate out of range, a build without audio; ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_wav_read(const char *path, int64_t least, int64_t frames, float *samples, bppsa_wav_info *info);

/* Writes stereo 16-bit samples [frames][2] at 44.1 kHz, atomically (core/file.h). Needs none of the libraries. */
bppsa_status bppsa_wav_write(const char *path, int64_t frames, const int16_t *samples);

#ifdef __cplusplus
}
#endif
#endif
