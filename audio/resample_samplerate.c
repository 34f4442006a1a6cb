/* Rate conversion by libsamplerate.
 *
 * The features reach up to 22 050 Hz, so it uses libsamplerate's best converter, which passes 97 % of the band at 144 dB (the
 * medium one passes 90 %); a file is converted only once, in tens of milliseconds.
 */
#include "audio/libraries.h"
#include "audio/load.h"

bppsa_status bppsa_resample(const char *path, int64_t channels, int64_t rate, int64_t frames, const float *from, int64_t most,
                            float *to, int64_t *made) {
  SRC_DATA data = {.data_in = from,
                   .data_out = to,
                   .input_frames = (long)frames,
                   .output_frames = (long)most,
                   .src_ratio = (double)BPPSA_AUDIO_RATE / (double)rate};
  const bppsa_audio_functions *library = NULL;
  BPPSA_TRY(bppsa_audio_load(&library));
  const int status = library->src_simple(&data, SRC_SINC_BEST_QUALITY, (int)channels);
  if (status != 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: cannot convert %lld Hz to %d Hz: %s", path, (long long)rate, BPPSA_AUDIO_RATE,
                      library->src_strerror(status));
  }
  *made = data.output_frames_gen;
  return BPPSA_OK;
}
