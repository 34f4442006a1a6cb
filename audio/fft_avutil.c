/* libavutil's transform of real data in float64. */
#include "audio/libraries.h"
#include "audio/load.h"
#include "core/base/alloc.h"

struct bppsa_fft {
  const bppsa_audio_functions *library;
  AVTXContext *context;
  av_tx_fn transform;
};

bppsa_status bppsa_fft_create(int64_t n, bppsa_fft **fft) {
  const double scale = 1;
  const bppsa_audio_functions *library = NULL;
  BPPSA_TRY(bppsa_audio_load(&library));
  bppsa_fft *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->library = library;
  const int status = library->av_tx_init(&made->context, &made->transform, AV_TX_DOUBLE_RDFT, 0, (int)n, &scale, 0);
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
    fft->library->av_tx_uninit(&fft->context);
    bppsa_free(fft);
  }
}
