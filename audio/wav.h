/* WAV files as stereo sound at 44.1 kHz.
 *
 * The file may have what libsndfile reads inside a RIFF, RIFX or RF64 container: integers of 8 to 32 bits, floats, and compressed
 * formats except MPEG, whose decoder writes to standard error. The container is checked first: every chunk must lie within its
 * container, and the container within the file. So a truncated file, or one with wrong sizes, is refused before memory is
 * allocated; the message names the byte. Bytes after the end of the container are ignored. A program that writes to a pipe does
 * not know the sizes: if they are 0, or close to 2 or 4 GiB and larger than the file, the samples go on to the end of the file.
 *
 *     values     on the scale of 16-bit integers: those are unchanged, full scale (1.0 of a float file) is 32768
 *     channels   two are unchanged; one is copied to both sides; more are refused, because programs differ on which of them are
 *                left and right
 *     rate       4000 to 384000 Hz, converted to 44100 Hz by libsamplerate
 *     length     a longer file is cut at the wanted length, a shorter one is padded with silence; one that is too short is refused
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
  int64_t frames;   /* in the file, at its own rate */
} bppsa_wav_info;

/* Reads the file's first `frames` frames at 44.1 kHz into samples [frames][2], padded with silence. info may be NULL. ERR_FORMAT:
 * a damaged file, an unknown format, a value that is not finite, or fewer than `least` frames (the message names file and byte or
 * frame); ERR_UNSUPPORTED: more than two channels, a rate out of range, a build without audio; ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_wav_read(const char *path, int64_t least, int64_t frames, float *samples, bppsa_wav_info *info);

/* Writes stereo 16-bit samples [frames][2] at 44.1 kHz, atomically (core/files/file.h). Works in builds without audio too. */
bppsa_status bppsa_wav_write(const char *path, int64_t frames, const int16_t *samples);

#ifdef __cplusplus
}
#endif
#endif
