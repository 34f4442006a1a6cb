/* Mel-frequency cepstral coefficients of one channel, the input of the GRU in BPPSA §4.2: librosa's MFCC without the first
 * coefficient, each of the others scaled to zero mean and unit variance over the frames.
 *
 *     frames     1 + ⌊samples / hop⌋ of them, centred on the multiples of hop; outside the signal there is zero (`constant`) or
 *                the mirror image of the signal without the edge sample (`reflect`)
 *     spectrum   |FFT of frame × periodic Hann window|²
 *     mel        128 triangles, equally spaced on Slaney's mel scale from 0 Hz to half the rate, each of height 2 / its width in
 *                Hz (rounded to float32, as librosa does)
 *     dB         10 log10(max(mel, 1e-10)), no value more than 80 dB below the channel's largest
 *     MFCC       rows 1 .. n_mfcc - 1 of the orthonormal DCT-II
 *     scaling    (c - mean) / deviation over the frames, in float64; the deviation divides by n. A coefficient whose deviation is
 *                below 1e-9 dB, which is rounding, becomes 0.
 *
 * A plan holds what depends on sizes; all threads share it. A workspace belongs to one thread.
 */
#ifndef BPPSA_AUDIO_MFCC_H
#define BPPSA_AUDIO_MFCC_H

#include <stdint.h>

#include "audio/audio.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BPPSA_MEL_BANDS = 128, BPPSA_MFCC_SETS = 3 };

/* The paper's settings. */
typedef struct {
  const char *name; /* "S" */
  int64_t n_mfcc, n_fft, hop;
} bppsa_mfcc_config;

extern const bppsa_mfcc_config bppsa_mfcc_sets[BPPSA_MFCC_SETS]; /* S, M, L */

typedef enum { BPPSA_PADDING_CONSTANT = 0, BPPSA_PADDING_REFLECT } bppsa_mfcc_padding; /* at the ends of a sound */

typedef struct bppsa_mfcc_plan bppsa_mfcc_plan;
typedef struct bppsa_mfcc_workspace bppsa_mfcc_workspace;

/* Makes a plan for channels of `samples` samples at 44.1 kHz, more than n_fft / 2. ERR_ARGUMENT: n_fft is no power of two in 16
 * .. 65536, hop is not in 1 .. n_fft, n_mfcc is not in 2 .. 128, samples out of range; ERR_MEMORY. */
bppsa_status bppsa_mfcc_plan_create(const bppsa_mfcc_config *config, int64_t samples, bppsa_mfcc_padding padding,
                                    bppsa_mfcc_plan **plan);
void bppsa_mfcc_plan_destroy(bppsa_mfcc_plan *plan); /* NULL is legal */
int64_t bppsa_mfcc_frames(const bppsa_mfcc_plan *plan);
int64_t bppsa_mfcc_features(const bppsa_mfcc_plan *plan); /* n_mfcc - 1 */

/* Makes the memory for one thread. ERR_MEMORY; ERR_UNSUPPORTED in a build without audio. */
bppsa_status bppsa_mfcc_workspace_create(const bppsa_mfcc_plan *plan, bppsa_mfcc_workspace **workspace);
void bppsa_mfcc_workspace_destroy(bppsa_mfcc_workspace *workspace); /* NULL is legal */

/* Input: samples[t * stride], finite, t = 0 .. samples - 1. Output: features[frame * row + k], k = 0 .. n_mfcc - 2. Allocates
 * nothing. */
void bppsa_mfcc_execute(const bppsa_mfcc_plan *plan, bppsa_mfcc_workspace *workspace, const float *samples, int64_t stride,
                        float *features, int64_t row);

/* Computes the transforms of all frames and nothing else, to measure their share of the time. */
void bppsa_mfcc_transform(const bppsa_mfcc_plan *plan, bppsa_mfcc_workspace *workspace);

#ifdef __cplusplus
}
#endif
#endif
