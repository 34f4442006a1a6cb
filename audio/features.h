/* From a WAV file to the features of its first three seconds: [frames][2 (n_mfcc - 1)], the left channel's MFCC beside the right
 * one's.
 *
 * Longer files are cut at 3 s (132300 samples at 44.1 kHz), shorter ones are followed by silence as constant padding would have
 * it; a file shorter than one window of the transform is refused. A mono file has the same features on both sides.
 */
#ifndef BPPSA_AUDIO_FEATURES_H
#define BPPSA_AUDIO_FEATURES_H

#include "audio/mfcc.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BPPSA_FEATURES_SAMPLES = 3 * BPPSA_AUDIO_RATE };

typedef struct bppsa_features bppsa_features; /* one a thread */

/* plan: for BPPSA_FEATURES_SAMPLES samples; borrowed. n_fft: of its configuration. ERR_MEMORY; ERR_UNSUPPORTED in a build without
 * audio. */
bppsa_status bppsa_features_create(const bppsa_mfcc_plan *plan, int64_t n_fft, bppsa_features **features);
void bppsa_features_destroy(bppsa_features *features); /* NULL is legal */

/* Writes x [frames][2 (n_mfcc - 1)] and *checksum, the CRC-32 of the samples the features were computed from. Errors: as
 * bppsa_wav_read. */
bppsa_status bppsa_features_read(bppsa_features *features, const char *path, float *x, uint32_t *checksum);

#ifdef __cplusplus
}
#endif
#endif
