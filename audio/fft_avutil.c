/* libavutil's transform of real data in float64. */
#include <libavutil/avutil.h>
#include <libavutil/tx.h>
#include <samplerate.h>
#include <sndfile.h>
#include <stdio.h>
#include <string.h>

#include "audio/libraries.h"
#include "core/alloc.h"

struct bppsa_fft {
  AVTXContext *context;
  av_tx_fn transform;
};

void bppsa_audio_probe(bppsa_audio_report *report) {
  const unsigned version = avutil_version();
  memset(report, 0, sizeof *report);
  report->built = true;
  snprintf(report->detail, sizeof report->detail, "%s, %.*s, libavutil-%u.%u.%u", sf_version_string(),
           (int)strcspn(src_get_version(), " "), src_get_version(), AV_VERSION_MAJOR(version), AV_VERSION_MINOR(version),
           AV_VERSION_MICRO(version));
}

bppsa_status bppsa_fft_create(int64_t n, bppsa_fft **fft) {
  const double scale = 1;
  bppsa_fft *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const int status = av_tx_init(&made->context, &made->transform, AV_TX_DOUBLE_RDFT, 0, (int)n, &scale, 0);
  if (status < 0) {
    bppsa_free(made);
    return bppsa_fail(status == AVERROR(ENOMEM) ? BPPSA_ERR_MEMORY : BPPSA_ERR_UNSUPPORTED,
                      "Fourier transform of %lld real numbers: libavutil fails with %d, expected a transform of this length",
                      (long long)n, status);
  }
  *fft = made;
  return BPPSA_OK;
}

void bppsa_fft_execute(bppsa_fft *fft, double *in, double *out) {
  fft->transform(fft->context, out, in, sizeof(double));
}

void bppsa_fft_destroy(bppsa_fft *fft) {
  if (fft != NULL) {
    av_tx_uninit(&fft->context);
    bppsa_free(fft);
  }
}
