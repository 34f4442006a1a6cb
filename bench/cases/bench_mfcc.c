/* `bppsa bench mfcc`: one channel of three seconds to features, on one thread. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "audio/features.h"
#include "audio/instruments.h"
#include "bench/cases/case.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/measure/residual.h"
#include "terminal/machine.h"

const char bppsa_bench_notes_mfcc[] =
    "First the features are held against those of a plain program with the same definitions: a radix-2 transform, dense\n"
    "filters, the C library's logarithm. A set with a difference of 1e-4 or more is wrong: it is marked and not timed, and the\n"
    "program exits 1. Every pass then computes the features, and after that the Fourier transforms alone, which fft times.\n"
    "bench/rivals/mfcc_librosa.py adds librosa's rows.\n";

enum { SAMPLES = BPPSA_FEATURES_SAMPLES, BANDS = BPPSA_MEL_BANDS };
#define TOLERANCE 1e-4
#define PI 3.14159265358979323846

typedef struct {
  int16_t *sound; /* [SAMPLES][2] */
  float *samples; /* the left channel */
  /* the current set */
  const bppsa_mfcc_config *set;
  bppsa_mfcc_padding padding;
  int64_t frames, features;
  bppsa_mfcc_plan *plan;
  bppsa_mfcc_workspace *workspace;
  float *values;     /* [frames][features] */
  double *reference; /* of the plain version; the same shape */
} session;

/* ---- the plain version ---- */

/* Transforms n complex numbers in place, n a power of two: reorders them by reversed bits, then runs the butterflies. */
static void plain_fft(int64_t n, double *x) {
  for (int64_t i = 0, j = 0; i < n; ++i) {
    if (i < j) {
      for (int part = 0; part < 2; ++part) {
        const double moved = x[2 * i + part];
        x[2 * i + part] = x[2 * j + part];
        x[2 * j + part] = moved;
      }
    }
    int64_t bit = n >> 1;
    for (; j & bit; bit >>= 1) {
      j ^= bit;
    }
    j ^= bit;
  }
  for (int64_t half = 1; half < n; half *= 2) {
    for (int64_t k = 0; k < half; ++k) {
      const double re = cos(PI * (double)k / (double)half), im = -sin(PI * (double)k / (double)half);
      for (int64_t i = k; i < n; i += 2 * half) {
        double *a = x + 2 * i, *b = x + 2 * (i + half);
        const double tr = b[0] * re - b[1] * im, ti = b[0] * im + b[1] * re;
        b[0] = a[0] - tr;
        b[1] = a[1] - ti;
        a[0] += tr;
        a[1] += ti;
      }
    }
  }
}

static double plain_hz(double mel) {
  return mel < 15 ? mel * 200 / 3 : 1000 * pow(6.4, (mel - 15) / 27);
}

static double plain_weight(int64_t n_fft, int band, int64_t bin) {
  const double step = (15 + 27 * log(22.05) / log(6.4)) / (BANDS + 1), hz = 44100.0 * (double)bin / (double)n_fft;
  const double low = plain_hz(step * band), peak = plain_hz(step * (band + 1)), high = plain_hz(step * (band + 2));
  return fmax(0, fmin((hz - low) / (peak - low), (high - hz) / (high - peak))) * 2 / (high - low);
}

static double plain_sample(const session *s, const float *samples, int64_t t) {
  if (t >= 0 && t < SAMPLES) {
    return (double)samples[t];
  }
  return s->padding == BPPSA_PADDING_CONSTANT ? 0 : (double)samples[t < 0 ? -t : 2 * (SAMPLES - 1) - t];
}

/* mel [frames][BANDS] in dB, before the limit of 80; work: [n_fft][2], weights: [BANDS][n_fft / 2 + 1]. */
static void plain_mel(const session *s, const float *samples, double *work, const double *weights, double *mel) {
  const int64_t n = s->set->n_fft, bins = n / 2 + 1;
  for (int64_t f = 0; f < s->frames; ++f) {
    for (int64_t i = 0; i < n; ++i) {
      const double window = 0.5 - 0.5 * cos(2 * PI * (double)i / (double)n);
      work[2 * i] = window * plain_sample(s, samples, f * s->set->hop - n / 2 + i);
      work[2 * i + 1] = 0;
    }
    plain_fft(n, work);
    for (int m = 0; m < BANDS; ++m) {
      double sum = 0;
      for (int64_t k = 0; k < bins; ++k) {
        sum += weights[m * bins + k] * (work[2 * k] * work[2 * k] + work[2 * k + 1] * work[2 * k + 1]);
      }
      mel[f * BANDS + m] = 10 * log10(fmax(1e-10, sum));
    }
  }
}

/* reference[f][k]: the DCT of the limited mel, scaled. */
static void plain_cepstrum(const session *s, double *mel, double *reference) {
  double largest = -INFINITY;
  for (int64_t i = 0; i < s->frames * BANDS; ++i) {
    largest = fmax(largest, mel[i]);
  }
  for (int64_t k = 0; k < s->features; ++k) {
    double mean = 0, square = 0;
    for (int64_t f = 0; f < s->frames; ++f) {
      double sum = 0;
      for (int64_t m = 0; m < BANDS; ++m) {
        sum += sqrt(2.0 / BANDS) * cos(PI * (double)(k + 1) * (double)(2 * m + 1) / (2 * BANDS)) *
               fmax(mel[f * BANDS + m], largest - 80);
      }
      reference[f * s->features + k] = sum;
      mean += sum / (double)s->frames;
    }
    for (int64_t f = 0; f < s->frames; ++f) {
      const double d = reference[f * s->features + k] - mean;
      square += d * d / (double)s->frames;
    }
    for (int64_t f = 0; f < s->frames; ++f) {
      double *value = &reference[f * s->features + k];
      *value = sqrt(square) < 1e-9 ? 0 : (*value - mean) / sqrt(square);
    }
  }
}

static bppsa_status plain_features(const session *s, const float *samples, double *reference) {
  const int64_t bins = s->set->n_fft / 2 + 1;
  double *work = bppsa_calloc(2 * s->set->n_fft, sizeof *work), *weights = bppsa_calloc(BANDS * bins, sizeof *weights);
  double *mel = bppsa_calloc(s->frames * BANDS, sizeof *mel);
  const bool got = work != NULL && weights != NULL && mel != NULL;
  if (got) {
    for (int m = 0; m < BANDS; ++m) {
      for (int64_t k = 0; k < bins; ++k) {
        weights[m * bins + k] = plain_weight(s->set->n_fft, m, k);
      }
    }
    plain_mel(s, samples, work, weights, mel);
    plain_cepstrum(s, mel, reference);
  }
  bppsa_free(work);
  bppsa_free(weights);
  bppsa_free(mel);
  return got ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

/* ---- one set ---- */

static void leave(bppsa_bench *bench) {
  session *s = bench->session;
  bppsa_mfcc_workspace_destroy(s->workspace);
  bppsa_mfcc_plan_destroy(s->plan);
  bppsa_free(s->values);
  bppsa_free(s->reference);
  s->workspace = NULL;
  s->plan = NULL;
  s->values = NULL;
  s->reference = NULL;
}

static bppsa_status prepare_set(session *s) {
  BPPSA_TRY(bppsa_mfcc_plan_create(s->set, SAMPLES, s->padding, &s->plan));
  BPPSA_TRY(bppsa_mfcc_workspace_create(s->plan, &s->workspace));
  s->frames = bppsa_mfcc_frames(s->plan);
  s->features = bppsa_mfcc_features(s->plan);
  s->values = bppsa_calloc(s->frames * s->features, sizeof *s->values);
  s->reference = bppsa_calloc(s->frames * s->features, sizeof *s->reference);
  if (s->values == NULL || s->reference == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  return plain_features(s, s->samples, s->reference);
}

/* The largest difference from the plain version. */
static bppsa_status verify(void *context, double *residual) {
  const session *s = context;
  double worst = 0;
  bppsa_mfcc_execute(s->plan, s->workspace, s->samples, 1, s->values, s->features);
  for (int64_t i = 0; i < s->frames * s->features; ++i) {
    worst = bppsa_residual_worse(worst, fabs((double)s->values[i] - s->reference[i]));
  }
  *residual = worst;
  return BPPSA_OK;
}

/* Times a pass: the features, then the transforms alone. */
static bppsa_status make_pass(void *context, double seconds[BPPSA_TIMING_PARTS]) {
  const session *s = context;
  const double start = bppsa_now();
  bppsa_mfcc_execute(s->plan, s->workspace, s->samples, 1, s->values, s->features);
  const double between = bppsa_now();
  bppsa_mfcc_transform(s->plan, s->workspace);
  seconds[0] = between - start;
  seconds[1] = bppsa_now() - between;
  return BPPSA_OK;
}

static bppsa_status enter_set(bppsa_bench *bench, const bppsa_mfcc_config *set) {
  session *s = bench->session;
  const bppsa_contender whole = {.verification = {verify, s, 0}, .pass = make_pass, .context = s, .parts = 2};
  s->set = set;
  s->padding = bench->asked->padding;
  BPPSA_TRY(prepare_set(s));
  return bppsa_bench_enter_contender(bench, &whole, s, "bppsa", "", NULL);
}

static bppsa_status enter(bppsa_bench *bench, int64_t point, bool *more) {
  const int32_t asked = bench->asked->set;
  *more = point < (asked < 0 ? BPPSA_MFCC_SETS : 1);
  return *more ? enter_set(bench, &bppsa_mfcc_sets[asked < 0 ? point : asked]) : BPPSA_OK;
}

/* ---- rows ---- */

static bool put(const bppsa_bench_entrant *e, json_t *row) {
  const session *s = e->context;
  const bppsa_timing *whole = &e->contender.timing[0], *fft = &e->contender.timing[1];
  const bool timed = whole->repeats > 0;
  bool ok = bppsa_json_put_text(row, "set", s->set->name);
  ok = ok && bppsa_json_put_text(row, "padding", s->padding == BPPSA_PADDING_REFLECT ? "reflect" : "constant");
  ok = ok && bppsa_json_put_integer(row, "n_mfcc", s->set->n_mfcc);
  ok = ok && bppsa_json_put_integer(row, "n_fft", s->set->n_fft);
  ok = ok && bppsa_json_put_integer(row, "hop", s->set->hop);
  ok = ok && bppsa_json_put_integer(row, "frames", s->frames);
  ok = ok && bppsa_json_put_integer(row, "features", s->features);
  ok = ok && bppsa_json_put_integer(row, "samples", SAMPLES);
  ok = ok && bppsa_json_put_integer(row, "threads", 1);
  ok = ok && bppsa_json_put_text(row, "method", e->method);
  ok = ok && bppsa_bench_put_timing(row, whole);
  ok = ok && bppsa_json_put_real(row, "fft_s", timed ? fft->median_s : NAN);
  ok = ok && bppsa_json_put_real(row, "fft_share", timed ? fft->median_s / whole->median_s : NAN);
  ok = ok && bppsa_json_put_real(row, "difference", e->contender.residual);
  return ok && bppsa_json_put_bool(row, "ok", e->contender.verdict == BPPSA_VERIFIED);
}

static const bppsa_table_column columns[] = {
    {.heading = "set", .width = -5, .key = "set"},
    {.heading = "frames", .width = 6, .kind = BPPSA_COLUMN_INTEGER, .key = "frames"},
    {.heading = "features", .width = 10, .kind = BPPSA_COLUMN_INTEGER, .key = "features"},
    BPPSA_COLUMN_TIMES(10, 10, 7, 3),
    {.heading = "fft", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "fft_s", .scale = 1e3, .digits = 3},
    {.heading = "share", .width = 8, .kind = BPPSA_COLUMN_PERCENT, .key = "fft_share"},
    {.heading = "difference", .width = 13, .kind = BPPSA_COLUMN_EXPONENT, .key = "difference"},
    {0}};

static bppsa_status print_head(const bppsa_bench *bench) {
  char vector[BPPSA_VECTOR_TEXT], date[BPPSA_DATE_TEXT];
  return bppsa_output_print(
      &bench->request->to,
      "mfcc on %s, 1 thread, %s, %s\none channel of 3 s; milliseconds; fft: the transforms alone, and their share\n\n",
      bppsa_device_get_hardware(bench->device), bppsa_machine_vector(vector, sizeof vector),
      bppsa_machine_date(date, sizeof date));
}

/* ---- the benchmark ---- */

static bppsa_status make_sound(session *s, uint64_t seed) {
  bppsa_instrument_workspace *workspace = NULL;
  s->sound = bppsa_calloc(2 * BPPSA_INSTRUMENT_FRAMES, sizeof *s->sound);
  s->samples = bppsa_calloc(SAMPLES, sizeof *s->samples);
  if (s->sound == NULL || s->samples == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(bppsa_instrument_workspace_create(&workspace));
  bppsa_instrument_play(workspace, seed, 0, s->sound);
  bppsa_instrument_workspace_destroy(workspace);
  for (int64_t i = 0; i < SAMPLES; ++i) {
    s->samples[i] = s->sound[2 * i];
  }
  return BPPSA_OK;
}

static bppsa_status prepare(bppsa_bench *bench) {
  session *s = bench->session;
  BPPSA_TRY(bppsa_audio_check());
  return make_sound(s, bench->request->seed);
}

static void release(bppsa_bench *bench) {
  session *s = bench->session;
  bppsa_free(s->sound);
  bppsa_free(s->samples);
}

const bppsa_bench_case bppsa_bench_case_mfcc = {.name = "mfcc",
                                                .session = sizeof(session),
                                                .budget_s = 2,
                                                .quick_s = 0.2,
                                                .bound = TOLERANCE,
                                                .one_thread = true,
                                                .columns = columns,
                                                .prepare = prepare,
                                                .head = print_head,
                                                .enter = enter,
                                                .put = put,
                                                .leave = leave,
                                                .release = release};
