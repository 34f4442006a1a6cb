/* `bppsa bench mfcc`: one channel of three seconds to features, on one thread. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "audio/features.h"
#include "audio/instruments.h"
#include "bench/cases/case.h"
#include "bench/harness/machine.h"
#include "core/alloc.h"
#include "core/clock.h"

const char bppsa_bench_notes_mfcc[] =
    "Features are checked first, against a plain version of the same definitions (a radix-2 transform, "
    "dense filters, the C library's\n"
    "logarithm): a largest difference of 1e-4 or more marks the row and exits 1. Then rounds of the "
    "whole and of its Fourier transforms alone.\n"
    "bench/rivals/mfcc_librosa.py adds librosa's rows.\n";

enum { SAMPLES = BPPSA_FEATURES_SAMPLES, BANDS = BPPSA_MEL_BANDS };
#define TOLERANCE 1e-4
#define PI 3.14159265358979323846

typedef struct {
  const bppsa_mfcc_config *set;
  bppsa_mfcc_padding padding;
  int64_t frames, features;
  bppsa_timing time;
  bppsa_timing fft;  /* the Fourier transforms of all frames, without the rest */
  double difference; /* largest, from the plain version */
} mfcc_row;

/* Everything a run holds. */
typedef struct {
  int16_t *sound; /* [SAMPLES][2] */
  float *samples; /* the left channel */
  bppsa_mfcc_plan *plan;
  bppsa_mfcc_workspace *workspace;
  float *features;   /* [frames][features] */
  double *reference; /* likewise */
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

static double plain_sample(const mfcc_row *row, const float *samples, int64_t t) {
  if (t >= 0 && t < SAMPLES) {
    return (double)samples[t];
  }
  return row->padding == BPPSA_PADDING_CONSTANT ? 0 : (double)samples[t < 0 ? -t : 2 * (SAMPLES - 1) - t];
}

/* mel [frames][BANDS] in dB, before the limit of 80; work: [n_fft][2], weights: [BANDS][n_fft / 2 + 1]. */
static void plain_mel(const mfcc_row *row, const float *samples, double *work, const double *weights, double *mel) {
  const int64_t n = row->set->n_fft, bins = n / 2 + 1;
  for (int64_t f = 0; f < row->frames; ++f) {
    for (int64_t i = 0; i < n; ++i) {
      const double window = 0.5 - 0.5 * cos(2 * PI * (double)i / (double)n);
      work[2 * i] = window * plain_sample(row, samples, f * row->set->hop - n / 2 + i);
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
static void plain_cepstrum(const mfcc_row *row, double *mel, double *reference) {
  double largest = -INFINITY;
  for (int64_t i = 0; i < row->frames * BANDS; ++i) {
    largest = fmax(largest, mel[i]);
  }
  for (int64_t k = 0; k < row->features; ++k) {
    double mean = 0, square = 0;
    for (int64_t f = 0; f < row->frames; ++f) {
      double sum = 0;
      for (int64_t m = 0; m < BANDS; ++m) {
        sum += sqrt(2.0 / BANDS) * cos(PI * (double)(k + 1) * (double)(2 * m + 1) / (2 * BANDS)) *
               fmax(mel[f * BANDS + m], largest - 80);
      }
      reference[f * row->features + k] = sum;
      mean += sum / (double)row->frames;
    }
    for (int64_t f = 0; f < row->frames; ++f) {
      const double d = reference[f * row->features + k] - mean;
      square += d * d / (double)row->frames;
    }
    for (int64_t f = 0; f < row->frames; ++f) {
      double *value = &reference[f * row->features + k];
      *value = sqrt(square) < 1e-9 ? 0 : (*value - mean) / sqrt(square);
    }
  }
}

static bppsa_status plain_features(const mfcc_row *row, const float *samples, double *reference) {
  const int64_t bins = row->set->n_fft / 2 + 1;
  double *work = bppsa_calloc(2 * row->set->n_fft, sizeof *work), *weights = bppsa_calloc(BANDS * bins, sizeof *weights);
  double *mel = bppsa_calloc(row->frames * BANDS, sizeof *mel);
  const bool got = work != NULL && weights != NULL && mel != NULL;
  if (got) {
    for (int m = 0; m < BANDS; ++m) {
      for (int64_t k = 0; k < bins; ++k) {
        weights[m * bins + k] = plain_weight(row->set->n_fft, m, k);
      }
    }
    plain_mel(row, samples, work, weights, mel);
    plain_cepstrum(row, mel, reference);
  }
  bppsa_free(work);
  bppsa_free(weights);
  bppsa_free(mel);
  return got ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

/* ---- one set ---- */

static void release_set(session *s) {
  bppsa_mfcc_workspace_destroy(s->workspace);
  bppsa_mfcc_plan_destroy(s->plan);
  bppsa_free(s->features);
  bppsa_free(s->reference);
  s->workspace = NULL;
  s->plan = NULL;
  s->features = NULL;
  s->reference = NULL;
}

static bppsa_status verify(session *s, mfcc_row *row) {
  BPPSA_TRY(bppsa_mfcc_plan_create(row->set, SAMPLES, row->padding, &s->plan));
  BPPSA_TRY(bppsa_mfcc_workspace_create(s->plan, &s->workspace));
  row->frames = bppsa_mfcc_frames(s->plan);
  row->features = bppsa_mfcc_features(s->plan);
  s->features = bppsa_calloc(row->frames * row->features, sizeof *s->features);
  s->reference = bppsa_calloc(row->frames * row->features, sizeof *s->reference);
  if (s->features == NULL || s->reference == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(plain_features(row, s->samples, s->reference));
  bppsa_mfcc_execute(s->plan, s->workspace, s->samples, 1, s->features, row->features);
  for (int64_t i = 0; i < row->frames * row->features; ++i) {
    const double d = fabs((double)s->features[i] - s->reference[i]);
    row->difference = d < row->difference ? row->difference : d; /* NaN stays */
  }
  return BPPSA_OK;
}

/* A pass: the features, and the transforms alone. */
static bppsa_status make_pass(void *context, double seconds[BPPSA_TIMING_PARTS]) {
  const session *s = context;
  const double start = bppsa_now();
  bppsa_mfcc_execute(s->plan, s->workspace, s->samples, 1, s->features, bppsa_mfcc_features(s->plan));
  const double between = bppsa_now();
  bppsa_mfcc_transform(s->plan, s->workspace);
  seconds[0] = between - start;
  seconds[1] = bppsa_now() - between;
  return BPPSA_OK;
}

static bppsa_status measure(session *s, const bppsa_rounds *rounds, mfcc_row *row) {
  bppsa_contender whole = {.pass = make_pass, .context = s, .parts = 2};
  BPPSA_TRY(bppsa_rounds_run(rounds, 1, &whole));
  row->time = whole.timing[0];
  row->fft = whole.timing[1];
  return BPPSA_OK;
}

/* ---- the report ---- */

static bool is_right(const mfcc_row *row) {
  return row->difference < TOLERANCE;
}

static json_t *row_json(const mfcc_row *row) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "set", row->set->name);
  ok = ok && bppsa_json_put_text(object, "padding", row->padding == BPPSA_PADDING_REFLECT ? "reflect" : "constant");
  ok = ok && bppsa_json_put_integer(object, "n_mfcc", row->set->n_mfcc);
  ok = ok && bppsa_json_put_integer(object, "n_fft", row->set->n_fft);
  ok = ok && bppsa_json_put_integer(object, "hop", row->set->hop);
  ok = ok && bppsa_json_put_integer(object, "frames", row->frames);
  ok = ok && bppsa_json_put_integer(object, "features", row->features);
  ok = ok && bppsa_json_put_integer(object, "samples", SAMPLES);
  ok = ok && bppsa_json_put_integer(object, "threads", 1);
  ok = ok && bppsa_json_put_text(object, "method", "bppsa");
  ok = ok && bppsa_bench_put_timing(object, &row->time);
  ok = ok && bppsa_json_put_real(object, "fft_s", row->fft.median_s);
  ok = ok && bppsa_json_put_real(object, "fft_share", row->fft.median_s / row->time.median_s);
  ok = ok && bppsa_json_put_real(object, "difference", row->difference);
  ok = ok && bppsa_json_put_bool(object, "ok", is_right(row));
  return bppsa_json_finish(object, ok);
}

static bppsa_status print_head(const bppsa_bench_settings *asked) {
  char vector[BPPSA_VECTOR_TEXT], date[BPPSA_DATE_TEXT];
  return bppsa_output_print(
      &asked->request.to,
      "mfcc on %s, 1 thread, %s, %s\none channel of 3 s; milliseconds; fft: the transforms alone, and their share\n\n"
      "  set  frames  features    median       min       max      n       fft   share   difference\n",
      bppsa_device_get_hardware(asked->request.device), bppsa_machine_vector(vector, sizeof vector),
      bppsa_machine_date(date, sizeof date));
}

static bppsa_status print_row(const bppsa_bench_settings *asked, const mfcc_row *row) {
  const bppsa_timing *t = &row->time;
  char median[BPPSA_TIMING_TEXT];
  return bppsa_output_print(
      &asked->request.to, "  %-5s%6" PRId64 "%10" PRId64 "%10s%10.3f%10.3f%7" PRId64 "%10.3f%7.0f%%%13.1e%s\n", row->set->name,
      row->frames, row->features, bppsa_timing_median_ms(t, 3, median), 1e3 * t->min_s, 1e3 * t->max_s, t->repeats,
      1e3 * row->fft.median_s, 100 * row->fft.median_s / t->median_s, row->difference, is_right(row) ? "" : "  FAIL");
}

/* ---- the benchmark ---- */

static bppsa_status run_set(const bppsa_bench_settings *asked, session *s, const bppsa_mfcc_config *set, json_t *rows,
                            int64_t *failed, int64_t *noisy) {
  mfcc_row row = {.set = set, .padding = asked->padding};
  BPPSA_TRY(verify(s, &row));
  const bppsa_rounds rounds = bppsa_bench_rounds_of(&asked->request, 2, 0.2);
  BPPSA_TRY(measure(s, &rounds, &row));
  *failed += !is_right(&row);
  *noisy += row.time.noisy;
  if (json_array_append_new(rows, row_json(&row)) != 0) {
    return bppsa_bench_no_room();
  }
  return asked->request.to.json ? BPPSA_OK : print_row(asked, &row);
}

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

static bppsa_status run_sets(session *s, const bppsa_bench_settings *asked, json_t *rows, int64_t *failed) {
  int64_t noisy = 0;
  BPPSA_TRY(make_sound(s, asked->request.seed));
  BPPSA_TRY(asked->request.to.json ? BPPSA_OK : print_head(asked));
  for (int i = 0; i < BPPSA_MFCC_SETS; ++i) {
    if (asked->set < 0 || asked->set == i) {
      const bppsa_status status = run_set(asked, s, &bppsa_mfcc_sets[i], rows, failed, &noisy);
      release_set(s);
      BPPSA_TRY(status);
    }
  }
  return asked->request.to.json ? BPPSA_OK : bppsa_bench_show_noisy(&asked->request.to, noisy);
}

static bppsa_status run(const bppsa_bench_settings *asked) {
  session s = {0};
  int64_t failed = 0;
  bppsa_bench_report report;
  BPPSA_TRY(bppsa_audio_check());
  BPPSA_TRY(bppsa_bench_open(&asked->request, "mfcc", &report));
  const bppsa_status status = run_sets(&s, asked, report.rows, &failed);
  bppsa_free(s.sound);
  bppsa_free(s.samples);
  return bppsa_bench_close(&report, status, failed, TOLERANCE);
}

const bppsa_bench_case bppsa_bench_case_mfcc = {"mfcc", run};
