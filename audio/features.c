#include "audio/features.h"

#include <string.h>
#include <zlib.h>

#include "audio/wav.h"
#include "core/base/alloc.h"

struct bppsa_features {
  const bppsa_mfcc_plan *plan;
  bppsa_mfcc_workspace *workspace;
  int64_t least;  /* the fewest samples a file may have */
  float *samples; /* [BPPSA_FEATURES_SAMPLES][2] */
};

bppsa_status bppsa_features_create(const bppsa_mfcc_plan *plan, int64_t n_fft, bppsa_features **features) {
  BPPSA_REQUIRE(plan != NULL && features != NULL);
  bppsa_features *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->plan = plan;
  made->least = n_fft;
  made->samples = bppsa_calloc(2 * BPPSA_FEATURES_SAMPLES, sizeof *made->samples);
  const bppsa_status status = made->samples == NULL ? BPPSA_ERR_MEMORY : bppsa_mfcc_workspace_create(plan, &made->workspace);
  if (status != BPPSA_OK) {
    bppsa_features_destroy(made);
    return status;
  }
  *features = made;
  return BPPSA_OK;
}

void bppsa_features_destroy(bppsa_features *features) {
  if (features != NULL) {
    bppsa_mfcc_workspace_destroy(features->workspace);
    bppsa_free(features->samples);
    bppsa_free(features);
  }
}

bppsa_status bppsa_features_read(bppsa_features *f, const char *path, float *x, uint32_t *checksum) {
  BPPSA_REQUIRE(f != NULL && path != NULL && x != NULL && checksum != NULL);
  const int64_t n = bppsa_mfcc_features(f->plan), frames = bppsa_mfcc_frames(f->plan);
  bppsa_wav_info info;
  BPPSA_TRY(bppsa_wav_read(path, f->least, BPPSA_FEATURES_SAMPLES, f->samples, &info));
  bppsa_mfcc_execute(f->plan, f->workspace, f->samples, 2, x, 2 * n);
  if (info.channels == 2) {
    bppsa_mfcc_execute(f->plan, f->workspace, f->samples + 1, 2, x + n, 2 * n);
  }
  for (int64_t i = 0; info.channels == 1 && i < frames; ++i) {
    memcpy(x + (2 * i + 1) * n, x + 2 * i * n, (size_t)n * sizeof *x);
  }
  *checksum =
      (uint32_t)crc32_z(crc32_z(0, NULL, 0), (const unsigned char *)f->samples, 2 * BPPSA_FEATURES_SAMPLES * sizeof *f->samples);
  return BPPSA_OK;
}
