/* Eleven synthetic instruments, in the layout of IRMAS's training set: DIR/CLASS/CLASS_NUMBER.wav, 3 s, 44.1 kHz, stereo, 16 bits.
 *
 * File k depends on the seed and k alone. It holds a short phrase of notes by the instrument of class k mod 11. Pitch, tempo,
 * level, attack, decay, brightness, vibrato, breath or bow noise, position between the channels, room and background noise vary
 * from file to file, within the ranges that the table in instruments.c gives the instrument.
 */
#ifndef BPPSA_AUDIO_INSTRUMENTS_H
#define BPPSA_AUDIO_INSTRUMENTS_H

#include <stdint.h>

#include "audio/audio.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BPPSA_INSTRUMENTS = 11, BPPSA_INSTRUMENT_FRAMES = 3 * BPPSA_AUDIO_RATE };

/* IRMAS's classes in the order of their labels: cel cla flu gac gel org pia sax tru vio voi. */
extern const char *const bppsa_instrument_names[BPPSA_INSTRUMENTS];
/* Returns the label of a class, or -1. */
int32_t bppsa_instrument_find(const char *name);

typedef struct bppsa_instrument_workspace bppsa_instrument_workspace; /* use one in each thread */

bppsa_status bppsa_instrument_workspace_create(bppsa_instrument_workspace **workspace); /* ERR_MEMORY */
void bppsa_instrument_workspace_destroy(bppsa_instrument_workspace *workspace);         /* NULL is legal */

/* Computes the sound of file `number` into samples [BPPSA_INSTRUMENT_FRAMES][2]. Allocates nothing. */
void bppsa_instrument_play(bppsa_instrument_workspace *workspace, uint64_t seed, int64_t number, int16_t *samples);

/* Called from time to time with the number of files written so far. */
typedef void (*bppsa_instruments_progress)(void *context, int64_t done, int64_t total);

/* Writes files 0 .. files - 1 into a directory, which is created if it does not exist, on `threads` threads. Each file is
 * complete or absent (core/files/file.h). ERR_ARGUMENT: files is not in 1 .. 1000000, or a class folder of the directory already
 * holds WAV files (nothing is written then, because two sets would mix); ERR_IO, ERR_MEMORY: files written before the failure
 * stay. */
bppsa_status bppsa_instruments_write(const char *directory, int64_t files, uint64_t seed, int32_t threads,
                                     bppsa_instruments_progress progress, void *context);

#ifdef __cplusplus
}
#endif
#endif
