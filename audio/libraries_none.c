/* Stands in for the libraries in a build without audio. */
#include <stdio.h>
#include <string.h>

#include "audio/libraries.h"

void bppsa_audio_probe(bppsa_audio_report *report) {
  memset(report, 0, sizeof *report);
  snprintf(report->detail, sizeof report->detail,
           "built without libsndfile, libsamplerate and libavutil: install libsndfile1-dev, libsamplerate0-dev and libavutil-dev "
           "and configure with -DBPPSA_WITH_AUDIO=ON");
}

bppsa_status bppsa_decoder_create(bppsa_file_reader *file, int64_t count, const bppsa_decoder_piece *pieces,
                                  bppsa_decoder **decoder, int64_t *frames, int64_t *channels, int64_t *rate) {
  (void)file, (void)count, (void)pieces, (void)decoder, (void)frames, (void)channels, (void)rate;
  return bppsa_audio_check();
}

bppsa_status bppsa_decoder_read(bppsa_decoder *decoder, int64_t frames, float *samples) {
  (void)decoder, (void)frames, (void)samples;
  return bppsa_audio_check();
}

void bppsa_decoder_destroy(bppsa_decoder *decoder) {
  (void)decoder;
}

bppsa_status bppsa_resample(const char *path, int64_t channels, int64_t rate, int64_t frames, const float *from, int64_t most,
                            float *to, int64_t *made) {
  (void)path, (void)channels, (void)rate, (void)frames, (void)from, (void)most, (void)to, (void)made;
  return bppsa_audio_check();
}

bppsa_status bppsa_fft_create(int64_t n, bppsa_fft **fft) {
  (void)n, (void)fft;
  return bppsa_audio_check();
}

void bppsa_fft_execute(bppsa_fft *fft, double *in, double *out) {
  (void)fft, (void)in, (void)out;
}

void bppsa_fft_destroy(bppsa_fft *fft) {
  (void)fft;
}
