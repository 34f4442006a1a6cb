/* Computes the features of the first three seconds of a WAV file, [frames][2 (n_mfcc - 1)]: in each frame the left channel's
 * MFCC, then the right channel's.
 *
 * A longer file is cut at 3 s (132300 samples at 44.1 kHz). A shorter one is padded with silence, which gives the same features as
 * constant padding; a file shorter than one window of the transform is refused. A mono file has the same features on both sides.
 */
#ifndef BPPSA_AUDIO_FEATURES_H
#define BPPSA_AUDIO_FEATURES_H

#include "audio/mfcc.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BPPSA_FEATURES_SAMPLES = 3 * BPPSA_AUDIO_RATE };

typedef struct bppsa_features bppsa_features; /* use one in each thread */

/* Makes the memory for one thread. plan: for channels of BPPSA_FEATURES_SAMPLES samples; borrowed. n_fft: as in the plan's
 * configuration. ERR_MEMORY; ERR_UNSUPPORTED in a build without audio. */
bppsa_status bppsa_features_create(const bppsa_mfcc_plan *plan, int64_t n_fft, bppsa_features **features);
void bppsa_features_destroy(bppsa_features *features); /* NULL is legal */

/* Writes x [frames][2 (n_mfcc - 1)], and to *checksum the CRC-32 of the samples from which the features were computed. Errors:
 * those of bppsa_wav_read. */
bppsa_status bppsa_features_read(bppsa_features *features, const char *path, float *x, uint32_t *checksum);

#ifdef __cplusplus
}
#endif
#endif
