#include "audio/mfcc.h"

#include <math.h>
#include <string.h>

#include "audio/libraries.h"
#include "core/base/alloc.h"
#include "core/compute/simd.h"

enum { BANDS = BPPSA_MEL_BANDS, GROUP = 4 }; /* GROUP: frames whose bands are summed together */
#define LEAST_POWER 1e-10
#define RANGE_DB 80.0
#define NO_VARIANCE 1e-9 /* dB; a smaller deviation is rounding */
#define PI 3.14159265358979323846

const bppsa_mfcc_config bppsa_mfcc_sets[BPPSA_MFCC_SETS] = {{"S", 20, 4096, 512}, {"M", 13, 2048, 256}, {"L", 7, 1024, 128}};

/* One row of the filter bank: the weights of bins first .. first + count - 1. */
typedef struct {
  int32_t first, count, offset; /* offset: where they begin in the plan's weights */
} band;

struct bppsa_mfcc_plan {
  bppsa_mfcc_config config;
  bppsa_mfcc_padding padding;
  int64_t samples, frames, features;
  int64_t bins;    /* n_fft / 2 + 1 */
  double *window;  /* size n_fft */
  double *weights; /* weights of all bands, one band after the other */
  double *dct;     /* [BANDS][features] */
  band bands[BANDS];
};

struct bppsa_mfcc_workspace {
  bppsa_fft *fft;
  double *signal;   /* the samples with half a window of padding at both ends */
  double *frame;    /* size n_fft */
  double *spectrum; /* [bins][2] */
  double *power;    /* [GROUP][bins] */
  double *mel;      /* [frames][BANDS]: powers, then dB */
  double *cepstrum; /* [frames][features] */
  double *moments;  /* [2][features] */
};

/* ---- plan ---- */

/* Slaney's mel scale: linear up to 1000 Hz (mel 15), logarithmic above. */
static double mel_of(double hz) {
  return hz < 1000 ? 3 * hz / 200 : 15 + 27 * log(hz / 1000) / log(6.4);
}

static double hz_of(double mel) {
  return mel < 15 ? 200 * mel / 3 : 1000 * exp(log(6.4) / 27 * (mel - 15));
}

/* Returns the value at `hz` of the triangle over edge[0], edge[1], edge[2] (Hz), whose height is 2 / (edge[2] - edge[0]). */
static double triangle(const double *edge, double hz) {
  const double up = (hz - edge[0]) / (edge[1] - edge[0]), down = (edge[2] - hz) / (edge[2] - edge[1]);
  const double height = fmax(0, fmin(up, down));
  return (float)((double)(float)height * (2 / (edge[2] - edge[0])));
}

static bppsa_status make_bands(bppsa_mfcc_plan *plan) {
  double edges[BANDS + 2];
  const double step = mel_of(BPPSA_AUDIO_RATE / 2.0) / (BANDS + 1), bin = (double)BPPSA_AUDIO_RATE / (double)plan->config.n_fft;
  for (int i = 0; i < BANDS + 2; ++i) {
    edges[i] = hz_of(step * i);
  }
  plan->weights = bppsa_calloc(2 * plan->bins + 2 * BANDS, sizeof *plan->weights); /* every bin lies in two triangles at most */
  if (plan->weights == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  int32_t offset = 0;
  for (int m = 0; m < BANDS; ++m) {
    band *b = &plan->bands[m];
    *b = (band){.first = 0, .count = 0, .offset = offset};
    for (int32_t k = (int32_t)(edges[m] / bin); k < plan->bins && k * bin <= edges[m + 2]; ++k) {
      const double weight = triangle(edges + m, k * bin);
      if (weight > 0) {
        b->first = b->count == 0 ? k : b->first;
        plan->weights[offset++] = weight;
        ++b->count;
      }
    }
  }
  return BPPSA_OK;
}

static bppsa_status make_tables(bppsa_mfcc_plan *plan) {
  const int64_t n = plan->config.n_fft;
  plan->window = bppsa_calloc(n, sizeof *plan->window);
  plan->dct = bppsa_calloc(BANDS * plan->features, sizeof *plan->dct);
  if (plan->window == NULL || plan->dct == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t t = 0; t < n; ++t) {
    plan->window[t] = 0.5 - 0.5 * cos(2 * PI * (double)t / (double)n);
  }
  for (int64_t m = 0; m < BANDS; ++m) {
    for (int64_t k = 1; k <= plan->features; ++k) {
      const int64_t turn = k * (2 * m + 1) % (4 * BANDS); /* modulo 4·BANDS, so that the cosine's argument stays small */
      plan->dct[m * plan->features + k - 1] = sqrt(2.0 / BANDS) * cos(PI * (double)turn / (2 * BANDS));
    }
  }
  return make_bands(plan);
}

static bppsa_status check_config(const bppsa_mfcc_config *c, int64_t samples, bppsa_mfcc_padding padding) {
  const bool power_of_two = c->n_fft >= 16 && c->n_fft <= 65536 && (c->n_fft & (c->n_fft - 1)) == 0;
  if (!power_of_two || c->hop < 1 || c->hop > c->n_fft || c->n_mfcc < 2 || c->n_mfcc > BANDS) {
    return bppsa_fail(
        BPPSA_ERR_ARGUMENT,
        "MFCC: %lld coefficients, windows of %lld, hop %lld, expected 2 .. %d, a power of two in 16 .. 65536, 1 .. the window",
        (long long)c->n_mfcc, (long long)c->n_fft, (long long)c->hop, BANDS);
  }
  if (samples <= c->n_fft / 2 || samples > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "MFCC: %lld samples, expected %lld .. %d", (long long)samples,
                      (long long)c->n_fft / 2 + 1, INT32_MAX);
  }
  if (padding != BPPSA_PADDING_CONSTANT && padding != BPPSA_PADDING_REFLECT) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "MFCC: padding %d, expected constant or reflect", (int)padding);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_mfcc_plan_create(const bppsa_mfcc_config *config, int64_t samples, bppsa_mfcc_padding padding,
                                    bppsa_mfcc_plan **plan) {
  BPPSA_REQUIRE(config != NULL && plan != NULL);
  BPPSA_TRY(check_config(config, samples, padding));
  bppsa_mfcc_plan *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->config = *config;
  made->padding = padding;
  made->samples = samples;
  made->frames = 1 + samples / config->hop;
  made->features = config->n_mfcc - 1;
  made->bins = config->n_fft / 2 + 1;
  const bppsa_status status = make_tables(made);
  if (status != BPPSA_OK) {
    bppsa_mfcc_plan_destroy(made);
    return status;
  }
  *plan = made;
  return BPPSA_OK;
}

void bppsa_mfcc_plan_destroy(bppsa_mfcc_plan *plan) {
  if (plan != NULL) {
    bppsa_free(plan->window);
    bppsa_free(plan->weights);
    bppsa_free(plan->dct);
    bppsa_free(plan);
  }
}

int64_t bppsa_mfcc_frames(const bppsa_mfcc_plan *plan) {
  return plan->frames;
}

int64_t bppsa_mfcc_features(const bppsa_mfcc_plan *plan) {
  return plan->features;
}

/* ---- workspace ---- */

bppsa_status bppsa_mfcc_workspace_create(const bppsa_mfcc_plan *plan, bppsa_mfcc_workspace **workspace) {
  BPPSA_REQUIRE(plan != NULL && workspace != NULL);
  bppsa_mfcc_workspace *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->signal = bppsa_calloc(plan->samples + plan->config.n_fft, sizeof(double));
  made->frame = bppsa_calloc(plan->config.n_fft, sizeof(double));
  made->spectrum = bppsa_calloc(2 * plan->bins, sizeof(double));
  made->power = bppsa_calloc(plan->bins * GROUP, sizeof(double));
  made->mel = bppsa_calloc(plan->frames * BANDS, sizeof(double));
  made->cepstrum = bppsa_calloc(plan->frames * plan->features, sizeof(double));
  made->moments = bppsa_calloc(2 * plan->features, sizeof(double));
  const bool got = made->signal != NULL && made->frame != NULL && made->spectrum != NULL && made->power != NULL &&
                   made->mel != NULL && made->cepstrum != NULL && made->moments != NULL;
  const bppsa_status status = got ? bppsa_fft_create(plan->config.n_fft, &made->fft) : BPPSA_ERR_MEMORY;
  if (status != BPPSA_OK) {
    bppsa_mfcc_workspace_destroy(made);
    return status;
  }
  *workspace = made;
  return BPPSA_OK;
}

void bppsa_mfcc_workspace_destroy(bppsa_mfcc_workspace *w) {
  if (w != NULL) {
    bppsa_fft_destroy(w->fft);
    bppsa_free(w->signal);
    bppsa_free(w->frame);
    bppsa_free(w->spectrum);
    bppsa_free(w->power);
    bppsa_free(w->mel);
    bppsa_free(w->cepstrum);
    bppsa_free(w->moments);
    bppsa_free(w);
  }
}

/* ---- execution ---- */

/* Copies the samples as float64 and pads half a window at both ends. There are more samples than half a window, so one reflection
 * is enough. */
static void pad_signal(const bppsa_mfcc_plan *plan, const float *samples, int64_t stride, double *signal) {
  const int64_t n = plan->samples, half = plan->config.n_fft / 2;
  for (int64_t t = 0; t < n; ++t) {
    signal[half + t] = (double)samples[t * stride];
  }
  const bool reflect = plan->padding == BPPSA_PADDING_REFLECT;
  for (int64_t i = 1; i <= half; ++i) {
    signal[half - i] = reflect ? signal[half + i] : 0;
    signal[half + n - 1 + i] = reflect ? signal[half + n - 1 - i] : 0;
  }
}

/* power[lane][k] = |FFT of window × the frame that begins at `from`|² */
static void transform_frame(const bppsa_mfcc_plan *plan, bppsa_mfcc_workspace *w, const double *from, int lane) {
  const int64_t n = plan->config.n_fft;
  for (int64_t i = 0; i < n; ++i) {
    w->frame[i] = plan->window[i] * from[i];
  }
  bppsa_fft_execute(w->fft, w->frame, w->spectrum);
  double *power = w->power + lane * plan->bins;
  for (int64_t k = 0; k < plan->bins; ++k) {
    const double re = w->spectrum[2 * k], im = w->spectrum[2 * k + 1];
    power[k] = re * re + im * im;
  }
}

/* mel[lane][m] = Σ_k weight[m][k] power[lane][k], summed over ascending bins. */
static void sum_bands(const bppsa_mfcc_plan *plan, const double *power, int64_t lanes, double *mel) {
  for (int m = 0; m < BANDS; ++m) {
    const band *b = &plan->bands[m];
    const double *weights = plan->weights + b->offset, *at = power + b->first;
    double sum[GROUP] = {0};
    for (int32_t k = 0; k < b->count; ++k) {
      for (int lane = 0; lane < GROUP; ++lane) { /* four sums that do not depend on each other */
        sum[lane] += weights[k] * at[lane * plan->bins + k];
      }
    }
    for (int64_t lane = 0; lane < lanes; ++lane) {
      mel[lane * BANDS + m] = sum[lane];
    }
  }
}

/* log10 of a normal positive number, accurate to about 1e-16 of max(1, |log10|), in operations that a compiler vectorises:
 * x = 2^e m with m in [√½, √2), ln m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.1716; the first term that the series leaves
 * out is below 1e-17. */
static double log10_of(double x) {
  const uint64_t root_half = 0x3FE6A09E667F3BCDu, fraction = 0x000FFFFFFFFFFFFFu, magic = 0x4330000000000000u; /* magic: 2^52 */
  uint64_t bits;
  double m, e;
  memcpy(&bits, &x, sizeof bits);
  const uint64_t shifted = bits - root_half + ((uint64_t)1024 << 52);
  const uint64_t e_bits = shifted >> 52 | magic, m_bits = (shifted & fraction) + root_half;
  memcpy(&e, &e_bits, sizeof e);
  memcpy(&m, &m_bits, sizeof m);
  e -= 0x1p52 + 1024;
  const double s = (m - 1) / (m + 1), q = s * s;
  double series = 1.0 / 21;
  series = series * q + 1.0 / 19;
  series = series * q + 1.0 / 17;
  series = series * q + 1.0 / 15;
  series = series * q + 1.0 / 13;
  series = series * q + 1.0 / 11;
  series = series * q + 1.0 / 9;
  series = series * q + 1.0 / 7;
  series = series * q + 1.0 / 5;
  series = series * q + 1.0 / 3;
  const double ln = 2 * s + 2 * s * q * series;
  return e * 0.30102999566398119521 + ln * 0.43429448190325182765;
}

/* Converts powers to dB; values more than 80 dB below the largest are raised to that level. */
static void to_decibel(int64_t count, double *mel) {
  for (int64_t i = 0; i < count; ++i) { /* a separate loop, so that the next one has no branches */
    mel[i] = mel[i] > LEAST_POWER ? mel[i] : LEAST_POWER;
  }
  for (int64_t i = 0; i < count; ++i) {
    mel[i] = 10 * log10_of(mel[i]);
  }
  double largest = mel[0];
  for (int64_t i = 1; i < count; ++i) {
    largest = mel[i] > largest ? mel[i] : largest;
  }
  for (int64_t i = 0; i < count; ++i) {
    mel[i] = mel[i] > largest - RANGE_DB ? mel[i] : largest - RANGE_DB;
  }
}

/* cepstrum[f][k] = Σ_m mel[f][m] dct[m][k] */
static void to_cepstrum(const bppsa_mfcc_plan *plan, const double *mel, double *cepstrum) {
  const int64_t n = plan->features;
  bppsa_simd_get()->f64.gemm(plan->frames, n, BANDS, mel, BANDS, 1, plan->dct, n, NULL, 0, cepstrum, n);
}

/* moments: the means, then 1 / deviation, or 0 where there is no variance. */
static void find_moments(const bppsa_mfcc_plan *plan, const double *cepstrum, double *moments) {
  const int64_t n = plan->features;
  double *mean = moments, *scale = moments + n;
  memset(moments, 0, (size_t)(2 * n) * sizeof *moments);
  for (int64_t f = 0; f < plan->frames; ++f) {
    for (int64_t k = 0; k < n; ++k) {
      mean[k] += cepstrum[f * n + k];
    }
  }
  for (int64_t k = 0; k < n; ++k) {
    mean[k] /= (double)plan->frames;
  }
  for (int64_t f = 0; f < plan->frames; ++f) {
    for (int64_t k = 0; k < n; ++k) {
      const double d = cepstrum[f * n + k] - mean[k];
      scale[k] += d * d;
    }
  }
  for (int64_t k = 0; k < n; ++k) {
    const double deviation = sqrt(scale[k] / (double)plan->frames);
    scale[k] = deviation < NO_VARIANCE ? 0 : 1 / deviation;
  }
}

void bppsa_mfcc_execute(const bppsa_mfcc_plan *plan, bppsa_mfcc_workspace *w, const float *samples, int64_t stride,
                        float *features, int64_t row) {
  const int64_t n = plan->features;
  pad_signal(plan, samples, stride, w->signal);
  for (int64_t first = 0; first < plan->frames; first += GROUP) {
    const int64_t left = plan->frames - first, lanes = left < GROUP ? left : GROUP;
    for (int lane = 0; lane < lanes; ++lane) {
      transform_frame(plan, w, w->signal + (first + lane) * plan->config.hop, lane);
    }
    sum_bands(plan, w->power, lanes, w->mel + first * BANDS);
  }
  to_decibel(plan->frames * BANDS, w->mel);
  to_cepstrum(plan, w->mel, w->cepstrum);
  find_moments(plan, w->cepstrum, w->moments);
  for (int64_t f = 0; f < plan->frames; ++f) {
    for (int64_t k = 0; k < n; ++k) {
      features[f * row + k] = (float)((w->cepstrum[f * n + k] - w->moments[k]) * w->moments[n + k]);
    }
  }
}

void bppsa_mfcc_transform(const bppsa_mfcc_plan *plan, bppsa_mfcc_workspace *w) {
  for (int64_t f = 0; f < plan->frames; ++f) {
    bppsa_fft_execute(w->fft, w->frame, w->spectrum);
  }
}
