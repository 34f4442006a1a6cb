/* Additive synthesis of short phrases.
 *
 * A note is a sum of sines, its partials, at the multiples of its pitch (stretched where strings are stiff), and a little filtered
 * noise. Pitch and amplitudes are computed once for every block of 64 samples (1.5 ms); between blocks amplitudes are
 * interpolated. The amplitude of partial k is the product of
 *
 *     base       k^-rolloff, times `even` where k is even, times the gain of the body's resonances at the partial's frequency
 *     envelope   attack, then decay (plucked and struck strings: higher partials decay faster) or sustain, then release
 *     swell      higher partials begin later and end earlier than the note (brass)
 *
 * The notes of a phrase are added up in two channels; then come distortion (electric guitar), a room, and background noise. (The
 * file is long because it holds one table of eleven instruments and the one synthesis that reads all columns of the table.)
 */
#include "audio/instruments.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/philox.h"

enum {
  FRAMES = BPPSA_INSTRUMENT_FRAMES,
  BLOCK = 64,
  TABLE_BITS = 12,
  TABLE = 1 << TABLE_BITS,
  PARTIALS = 40,
  RESONANCES = 3,
  CHANNELS = 2
};
enum { ROOM = 4096 }; /* length of the longest echo, in samples */
#define PI 3.14159265358979323846
#define RATE ((double)BPPSA_AUDIO_RATE)
#define HIGHEST 17000.0 /* Hz; partials above it are left out */

const char *const bppsa_instrument_names[BPPSA_INSTRUMENTS] = {"cel", "cla", "flu", "gac", "gel", "org",
                                                               "pia", "sax", "tru", "vio", "voi"};

int32_t bppsa_instrument_find(const char *name) {
  for (int32_t i = 0; i < BPPSA_INSTRUMENTS; ++i) {
    if (strcmp(name, bppsa_instrument_names[i]) == 0) {
      return i;
    }
  }
  return -1;
}

/* ---- the instruments ---- */

typedef struct {
  double low, high;
} range;

typedef struct {
  range share; /* of the note's amplitude */
  double hz;   /* centre of the noise */
} noise_band;

typedef struct {
  range pitch;                     /* MIDI numbers */
  range unit;                      /* s, from the beginning of a note to that of the next */
  range sounding;                  /* fraction of `unit` for which the note is held */
  range attack, release;           /* s */
  range decay;                     /* s in which the first partial of MIDI 60 falls by 60 dB; 0: the note sustains */
  double decay_partial;            /* how much faster each further partial decays */
  range rolloff;                   /* exponent by which amplitudes fall with the number of the partial */
  double even;                     /* factor on the amplitudes of even partials */
  double stiffness;                /* partial k lies at k √(1 + stiffness k²) */
  double swell;                    /* exponent by which higher partials follow the envelope */
  range vibrato, vibrato_rate;     /* cents, Hz */
  double tremolo;                  /* fraction of the amplitude that varies with the vibrato */
  double glide;                    /* cents below the pitch at which a note may begin */
  noise_band breath;               /* noise during the whole note */
  noise_band burst;                /* noise when a note begins; it fades in 30 ms */
  int32_t notes[2];                /* notes that sound at once: at least, at most */
  double strum;                    /* s between notes that begin together, at most */
  double drive;                    /* strength of the distortion; 0: none */
  double resonance[RESONANCES][3]; /* of the body: Hz, width in Hz, gain */
  double vowels;                   /* factor by which the resonances may move, from note to note and within one */
} timbre;

/* The numbers were chosen by ear, guided by textbooks on acoustics: bowed and blown notes sustain and vibrate; reed instruments
 * with a cylindrical bore lack even partials; plucked and struck strings lose their high partials first; brass becomes brighter
 * as it swells; voices move their resonances. */
static const timbre timbres[BPPSA_INSTRUMENTS] = {
    /* cel */ {.pitch = {36, 58},
               .unit = {0.7, 1.4},
               .sounding = {0.85, 1},
               .attack = {0.08, 0.16},
               .release = {0.1, 0.2},
               .rolloff = {0.9, 1.2},
               .even = 1,
               .swell = 0.3,
               .vibrato = {15, 30},
               .vibrato_rate = {4.8, 5.8},
               .tremolo = 0.15,
               .glide = 30,
               .breath = {{0.02, 0.04}, 1800},
               .burst = {{0.02, 0.08}, 900},
               .notes = {1, 1},
               .resonance = {{220, 80, 3}, {550, 150, 2.5}, {1500, 500, 1.5}}},
    /* cla */
    {.pitch = {55, 79},
     .unit = {0.2, 0.45},
     .sounding = {0.6, 0.85},
     .attack = {0.015, 0.04},
     .release = {0.03, 0.06},
     .rolloff = {1.1, 1.4},
     .even = 0.05,
     .swell = 0.5,
     .breath = {{0.003, 0.008}, 3000},
     .burst = {{0, 0.02}, 2500},
     .notes = {1, 1},
     .resonance = {{1500, 400, 1}, {3200, 800, 0.6}, {500, 300, 0.3}}},
    /* flu */
    {.pitch = {67, 91},
     .unit = {0.35, 0.8},
     .sounding = {0.8, 0.95},
     .attack = {0.03, 0.08},
     .release = {0.06, 0.1},
     .rolloff = {2, 2.5},
     .even = 0.8,
     .swell = 0.2,
     .vibrato = {6, 14},
     .vibrato_rate = {4.8, 5.8},
     .tremolo = 0.5,
     .breath = {{0.08, 0.14}, 2600},
     .burst = {{0.15, 0.35}, 3500},
     .notes = {1, 1},
     .resonance = {{900, 500, 0.6}, {2600, 900, 0.5}, {0, 1, 0}}},
    /* gac */
    {.pitch = {40, 64},
     .unit = {0.25, 0.5},
     .sounding = {1, 1.6},
     .attack = {0.001, 0.003},
     .release = {0.08, 0.2},
     .decay = {1, 2},
     .decay_partial = 0.6,
     .rolloff = {0.6, 0.9},
     .even = 0.85,
     .stiffness = 0.00005,
     .burst = {{0.3, 0.6}, 2800},
     .notes = {1, 4},
     .strum = 0.03,
     .resonance = {{105, 30, 2.5}, {210, 50, 1.8}, {420, 150, 0.8}}},
    /* gel */
    {.pitch = {45, 69},
     .unit = {0.3, 0.7},
     .sounding = {0.85, 1.05},
     .attack = {0.002, 0.006},
     .release = {0.03, 0.1},
     .decay = {4, 8},
     .decay_partial = 0.15,
     .rolloff = {0.8, 1.1},
     .even = 1,
     .stiffness = 0.00003,
     .vibrato = {10, 30},
     .vibrato_rate = {4, 5},
     .glide = 200,
     .burst = {{0.1, 0.25}, 2000},
     .notes = {1, 2},
     .strum = 0.01,
     .drive = 4,
     .resonance = {{2800, 900, 1.5}, {900, 400, 0.5}, {0, 1, 0}}},
    /* org */
    {.pitch = {43, 67},
     .unit = {0.7, 1.4},
     .sounding = {0.92, 0.99},
     .attack = {0.003, 0.01},
     .release = {0.01, 0.03},
     .rolloff = {0.3, 0.5},
     .even = 1,
     .vibrato = {6, 12},
     .vibrato_rate = {6.4, 7},
     .tremolo = 0.35,
     .burst = {{0.05, 0.12}, 4500},
     .notes = {3, 4},
     .resonance = {{700, 700, 0.5}, {1800, 900, 0.4}, {0, 1, 0}}},
    /* pia */
    {.pitch = {40, 84},
     .unit = {0.15, 0.35},
     .sounding = {0.9, 1.5},
     .attack = {0.002, 0.006},
     .release = {0.1, 0.2},
     .decay = {3, 6},
     .decay_partial = 0.2,
     .rolloff = {1.4, 1.8},
     .even = 1,
     .stiffness = 0.0006,
     .burst = {{0.1, 0.25}, 350},
     .notes = {1, 3},
     .strum = 0.004,
     .resonance = {{180, 120, 0.6}, {450, 300, 0.5}, {0, 1, 0}}},
    /* sax */
    {.pitch = {49, 73},
     .unit = {0.3, 0.7},
     .sounding = {0.8, 0.95},
     .attack = {0.03, 0.07},
     .release = {0.05, 0.1},
     .rolloff = {0.6, 0.9},
     .even = 1,
     .swell = 0.8,
     .vibrato = {10, 25},
     .vibrato_rate = {4.4, 5.2},
     .tremolo = 0.3,
     .glide = 150,
     .breath = {{0.06, 0.12}, 4000},
     .burst = {{0.1, 0.25}, 1500},
     .notes = {1, 1},
     .resonance = {{550, 200, 2}, {1150, 300, 1.8}, {2500, 700, 1.2}}},
    /* tru */
    {.pitch = {58, 82},
     .unit = {0.15, 0.4},
     .sounding = {0.5, 0.8},
     .attack = {0.03, 0.06},
     .release = {0.04, 0.08},
     .rolloff = {0.2, 0.5},
     .even = 1,
     .swell = 3,
     .vibrato = {0, 8},
     .vibrato_rate = {5, 6.5},
     .tremolo = 0.05,
     .glide = 20,
     .breath = {{0.002, 0.006}, 5000},
     .burst = {{0.02, 0.08}, 1000},
     .notes = {1, 1},
     .resonance = {{1200, 500, 1.8}, {2400, 800, 1.2}, {0, 1, 0}}},
    /* vio */
    {.pitch = {62, 86},
     .unit = {0.4, 0.9},
     .sounding = {0.9, 1},
     .attack = {0.05, 0.11},
     .release = {0.08, 0.16},
     .rolloff = {0.7, 1},
     .even = 1,
     .swell = 0.3,
     .vibrato = {25, 45},
     .vibrato_rate = {5.8, 6.8},
     .tremolo = 0.3,
     .glide = 60,
     .breath = {{0.03, 0.06}, 6500},
     .burst = {{0.03, 0.1}, 3000},
     .notes = {1, 1},
     .resonance = {{480, 100, 2.5}, {1050, 250, 2}, {2900, 700, 2.2}}},
    /* voi */
    {.pitch = {48, 72},
     .unit = {0.5, 1.1},
     .sounding = {0.7, 0.9},
     .attack = {0.06, 0.14},
     .release = {0.06, 0.15},
     .rolloff = {1, 1.3},
     .even = 1,
     .swell = 0.2,
     .vibrato = {30, 70},
     .vibrato_rate = {4.6, 5.6},
     .tremolo = 0.15,
     .glide = 150,
     .breath = {{0.01, 0.03}, 5500},
     .burst = {{0.2, 0.7}, 6500},
     .notes = {1, 1},
     .resonance = {{600, 90, 8}, {1200, 130, 6}, {2700, 250, 4}},
     .vowels = 1.6}};

/* ---- numbers ---- */

/* The random numbers of one file, in order. */
typedef struct {
  uint64_t seed, stream, index;
} chance;

static double uniform(chance *c) {
  return bppsa_random_double(c->seed, c->stream, c->index++);
}

static double within(chance *c, range r) {
  return r.low + (r.high - r.low) * uniform(c);
}

static int32_t whole(chance *c, int32_t least, int32_t most) {
  return least + (int32_t)(uniform(c) * (double)(most - least + 1));
}

/* White noise between -1 and 1. */
typedef struct {
  uint64_t seed, stream, index;
  uint32_t numbers[4];
} noise;

static double next_noise(noise *n) {
  if ((n->index & 3) == 0) {
    bppsa_random_block(n->seed, n->stream, n->index >> 2, n->numbers);
  }
  return (double)n->numbers[n->index++ & 3] * 0x1p-31 - 1;
}

/* Noise in a band around a frequency, made by a state-variable filter. */
typedef struct {
  double f, low, band;
} filter;

static filter filter_at(double hz) {
  return (filter){.f = 2 * sin(PI * fmin(hz, 7000) / RATE)};
}

static double filtered(filter *s, double x) {
  s->low += s->f * s->band;
  const double high = x - s->low - s->band;
  s->band += s->f * high;
  return s->band;
}

/* ---- a note ---- */

struct bppsa_instrument_workspace {
  float table[TABLE + 1];      /* one period of a sine */
  float mix[CHANNELS][FRAMES]; /* the sum of the notes so far */
  float echo[CHANNELS][ROOM];
};

typedef struct {
  const timbre *t;
  int64_t begin;                    /* the sample at which it begins */
  double held, attack, release;     /* s */
  double hz, level, decay, rolloff; /* decay: per second, of the first partial */
  double vibrato, vibrato_rate, vibrato_phase, glide;
  double breath, burst;
  double left, right;          /* gains */
  double vowel_from, vowel_to; /* factors on the resonances' frequencies when the note begins and when it ends */
} note;

typedef struct {
  uint32_t phase[PARTIALS];
  double amplitude[PARTIALS]; /* at the end of the previous block */
  double base[PARTIALS];      /* follows from rolloff, parity and the place where the string is plucked */
  int32_t count;
} partials;

/* Gives attack, sustain and release as a factor from 0 to 1. */
static double envelope(const note *n, double t) {
  const double rise = t < n->attack ? t / n->attack : 1;
  const double up = rise * rise * (3 - 2 * rise);
  return t < n->held ? up : up * exp(-6.9 * (t - n->held) / n->release);
}

/* The note's frequency at time t. Vibrato begins after a quarter of a second; a glide takes a tenth of a second. */
static double pitch_at(const note *n, double t, double *swing) {
  const double depth = t < 0.1 ? 0 : t < 0.35 ? (t - 0.1) / 0.25 : 1;
  *swing = depth * sin(2 * PI * n->vibrato_rate * t + n->vibrato_phase);
  const double cents = n->vibrato * *swing - n->glide * exp(-t / 0.035);
  return n->hz * exp2(cents / 1200);
}

static double body(const timbre *t, double hz, double vowel) {
  double gain = 0.35;
  for (int r = 0; r < RESONANCES; ++r) {
    const double off = (hz - t->resonance[r][0] * (r < 2 ? vowel : 1)) / t->resonance[r][1];
    gain += t->resonance[r][2] / (1 + off * off);
  }
  return gain;
}

static void start_partials(const note *n, chance *c, partials *p) {
  p->count = 0;
  for (int32_t k = 1; k <= PARTIALS && n->hz * k * sqrt(1 + n->t->stiffness * k * k) < HIGHEST / 1.1; ++k) {
    const double parity = k % 2 == 0 ? n->t->even : 1;
    p->base[k - 1] = parity * pow(k, -n->rolloff) * (0.7 + 0.6 * uniform(c));
    p->phase[k - 1] = (uint32_t)(uniform(c) * 0x1p32);
    p->amplitude[k - 1] = 0;
    p->count = k;
  }
}

/* Adds BLOCK samples of partial k while its amplitude goes from the last value to the given one. */
static void add_partial(const float *table, partials *p, int32_t k, double hz, double amplitude, float *block) {
  const uint32_t step = (uint32_t)(int64_t)(hz / RATE * 0x1p32);
  const float slope = (float)((amplitude - p->amplitude[k]) / BLOCK);
  float a = (float)p->amplitude[k];
  uint32_t phase = p->phase[k];
  for (int i = 0; i < BLOCK; ++i) {
    const uint32_t at = phase >> (32 - TABLE_BITS);
    const float part = (float)(phase & ((1u << (32 - TABLE_BITS)) - 1)) * (1.0f / (float)(1u << (32 - TABLE_BITS)));
    block[i] += a * (table[at] + part * (table[at + 1] - table[at]));
    a += slope;
    phase += step;
  }
  p->phase[k] = phase;
  p->amplitude[k] = amplitude;
}

/* Adds the partials of the block that ends at time t. */
static void add_tones(const float *table, const note *n, double t, double strength, partials *p, float *block) {
  double swing;
  const double hz = pitch_at(n, t, &swing), loud = n->level * strength * (1 + n->t->tremolo * swing);
  const double way = n->held > 0 ? fmin(1, t / n->held) : 1, vowel = n->vowel_from + (n->vowel_to - n->vowel_from) * way;
  const double swell = n->t->swell * log(fmax(strength, 1e-4)) / 6;
  for (int32_t k = 0; k < p->count; ++k) {
    const double order = k + 1, partial_hz = hz * order * sqrt(1 + n->t->stiffness * order * order);
    const double fall = n->decay * (1 + n->t->decay_partial * k);
    const double amplitude = loud * p->base[k] * exp(swell * k - fall * t) * body(n->t, partial_hz, vowel);
    if (amplitude > 1e-6 * n->level || p->amplitude[k] > 1e-6 * n->level) {
      add_partial(table, p, k, partial_hz, amplitude, block);
    }
  }
}

static void play_note(bppsa_instrument_workspace *w, const note *n, chance *c, noise *source) {
  partials p;
  start_partials(n, c, &p);
  filter breath = filter_at(n->t->breath.hz), burst = filter_at(n->t->burst.hz);
  for (int64_t first = n->begin; first < FRAMES; first += BLOCK) {
    const double t = (double)(first + BLOCK - n->begin) / RATE, strength = envelope(n, t);
    if (t > n->held && strength < 1e-4) {
      break;
    }
    float block[BLOCK] = {0};
    add_tones(w->table, n, t, strength, &p, block);
    const double breathing = n->level * n->breath * strength, bursting = n->level * n->burst * exp(-t / 0.012);
    for (int i = 0; i < BLOCK; ++i) {
      const double white = next_noise(source);
      block[i] += (float)(breathing * filtered(&breath, white) + bursting * filtered(&burst, white));
    }
    const int64_t end = first + BLOCK < FRAMES ? first + BLOCK : FRAMES;
    for (int64_t i = first; i < end; ++i) {
      w->mix[0][i] += (float)n->left * block[i - first];
      w->mix[1][i] += (float)n->right * block[i - first];
    }
  }
}

/* ---- a phrase ---- */

/* The properties that all notes of a file share. */
typedef struct {
  const timbre *t;
  double unit, attack, release, decay, rolloff, vibrato, vibrato_rate, breath, burst, place, tuning;
  int32_t degree; /* position in the scale, counted from the lowest pitch */
} phrase;

static const int32_t scale_steps[7] = {0, 2, 4, 5, 7, 9, 11};

static double pitch_of(const phrase *p, int32_t degree) {
  const double midi = p->t->pitch.low + p->tuning + 12 * (degree / 7) + scale_steps[degree % 7];
  return 440 * exp2((fmin(midi, p->t->pitch.high) - 69) / 12);
}

static phrase make_phrase(const timbre *t, chance *c) {
  phrase p = {.t = t,
              .unit = within(c, t->unit),
              .attack = within(c, t->attack),
              .release = within(c, t->release),
              .decay = within(c, t->decay),
              .rolloff = within(c, t->rolloff),
              .vibrato = within(c, t->vibrato),
              .vibrato_rate = within(c, t->vibrato_rate),
              .breath = within(c, t->breath.share),
              .burst = within(c, t->burst.share),
              .place = 0.5 + 0.35 * (2 * uniform(c) - 1),
              .tuning = uniform(c)};
  p.degree = (int32_t)(uniform(c) * (t->pitch.high - t->pitch.low) * 7 / 12);
  return p;
}

/* Chooses the next note of the scale: mostly one or two degrees away, rarely farther, always within the range. */
static void walk(phrase *p, chance *c) {
  const int32_t highest = (int32_t)((p->t->pitch.high - p->t->pitch.low) * 7 / 12);
  const int32_t step = uniform(c) < 0.15 ? whole(c, -5, 5) : whole(c, -2, 2);
  const int32_t next = p->degree + step;
  p->degree = next < 0 ? 0 : next > highest ? highest : next;
}

static note make_note(const phrase *p, chance *c, double begin, double length, int32_t degree) {
  const timbre *t = p->t;
  const double hz = pitch_of(p, degree), place = fmin(1, fmax(0, p->place + 0.1 * (2 * uniform(c) - 1)));
  note n = {.t = t,
            .begin = (int64_t)(begin * RATE),
            .held = length * within(c, t->sounding),
            .attack = p->attack * (0.8 + 0.4 * uniform(c)),
            .release = p->release * (0.8 + 0.4 * uniform(c)),
            .hz = hz,
            .level = 0.4 + 0.6 * uniform(c),
            .decay = p->decay > 0 ? 6.9 / p->decay * sqrt(hz / 261.6) : 0,
            .rolloff = p->rolloff,
            .vibrato = p->vibrato * (0.6 + 0.8 * uniform(c)),
            .vibrato_rate = p->vibrato_rate * (0.95 + 0.1 * uniform(c)),
            .vibrato_phase = 2 * PI * uniform(c),
            .glide = uniform(c) < 0.5 ? t->glide * uniform(c) : 0,
            .breath = p->breath,
            .burst = p->burst * (0.5 + uniform(c)),
            .left = cos(PI / 2 * place),
            .right = sin(PI / 2 * place)};
  n.vowel_from = t->vowels > 0 ? pow(t->vowels, 2 * uniform(c) - 1) : 1;
  n.vowel_to = t->vowels > 0 ? pow(t->vowels, 2 * uniform(c) - 1) : 1;
  n.rolloff += 0.3 * (1 - n.level); /* soft notes are duller */
  return n;
}

static void play_phrase(bppsa_instrument_workspace *w, phrase *p, chance *c, noise *source) {
  double t = 0.15 * uniform(c);
  while (t < 3) {
    const double length = p->unit * (uniform(c) < 0.3 ? 2 : 1) * (0.95 + 0.1 * uniform(c));
    const int32_t notes = whole(c, p->t->notes[0], p->t->notes[1]);
    const bool rest = uniform(c) < 0.12;
    for (int32_t i = 0; i < notes && !rest; ++i) {
      const note n = make_note(p, c, t + i * p->t->strum * uniform(c), length, p->degree + 2 * i);
      play_note(w, &n, c, source);
    }
    walk(p, c);
    t += length;
  }
}

/* ---- effects ---- */

static double largest_of(const bppsa_instrument_workspace *w) {
  double largest = 1e-9;
  for (int ch = 0; ch < CHANNELS; ++ch) {
    for (int64_t i = 0; i < FRAMES; ++i) {
      const double magnitude = fabs((double)w->mix[ch][i]);
      largest = magnitude > largest ? magnitude : largest; /* gcc 12 for AArch64 breaks at fmax() in this loop */
    }
  }
  return largest;
}

/* Distorts by x/√(1 + x²), then passes the sound through a loudspeaker that ends at 4.5 kHz. */
static void distort(bppsa_instrument_workspace *w, double drive) {
  const double gain = drive / largest_of(w), pole = exp(-2 * PI * 4500 / RATE);
  for (int ch = 0; ch < CHANNELS; ++ch) {
    double once = 0, twice = 0;
    for (int64_t i = 0; i < FRAMES; ++i) {
      const double x = gain * (double)w->mix[ch][i];
      once += (1 - pole) * (x / sqrt(1 + x * x) - once);
      twice += (1 - pole) * (once - twice);
      w->mix[ch][i] = (float)twice;
    }
  }
}

/* Adds an echo that is fed back through a low-pass filter; its length differs between the channels. */
static void add_room(bppsa_instrument_workspace *w, chance *c) {
  const double size = uniform(c), wet = 0.25 * uniform(c), back = 0.2 + 0.3 * uniform(c);
  for (int ch = 0; ch < CHANNELS; ++ch) {
    const int64_t delay = 900 + (int64_t)(size * 2400) + (int64_t)(uniform(c) * 700);
    float *echo = w->echo[ch];
    double wall = 0;
    memset(echo, 0, sizeof w->echo[ch]);
    for (int64_t i = 0; i < FRAMES; ++i) {
      float *slot = echo + i % delay;
      const double returned = (double)*slot, x = (double)w->mix[ch][i];
      wall += 0.5 * (returned - wall);
      *slot = (float)(x + back * wall);
      w->mix[ch][i] = (float)(x + wet * returned);
    }
  }
}

/* Scales the sound to a level between -20 and -1 dB of full scale and adds background noise 45 to 75 dB below it, a little of
 * which both channels share. */
static void finish(bppsa_instrument_workspace *w, chance *c, noise *source, int16_t *samples) {
  const double level = 32767 * pow(10, -(1 + 19 * uniform(c)) / 20), gain = level / largest_of(w);
  const double hiss = level * pow(10, -(45 + 30 * uniform(c)) / 20), colour = 0.05 + 0.9 * uniform(c);
  double state[CHANNELS] = {0};
  for (int64_t i = 0; i < FRAMES; ++i) {
    const double common = next_noise(source);
    for (int ch = 0; ch < CHANNELS; ++ch) {
      state[ch] += colour * (0.4 * common + 0.6 * next_noise(source) - state[ch]);
      const double value = rint(gain * (double)w->mix[ch][i] + hiss * state[ch]);
      samples[CHANNELS * i + ch] = (int16_t)fmax(-32768, fmin(32767, value));
    }
  }
}

void bppsa_instrument_play(bppsa_instrument_workspace *w, uint64_t seed, int64_t number, int16_t *samples) {
  const timbre *t = &timbres[number % BPPSA_INSTRUMENTS];
  chance c = {seed, BPPSA_STREAM_INSTRUMENTS + ((uint64_t)number << 8), 0};
  noise source = {.seed = seed, .stream = BPPSA_STREAM_SOUND + ((uint64_t)number << 8)};
  phrase p = make_phrase(t, &c);
  memset(w->mix, 0, sizeof w->mix);
  play_phrase(w, &p, &c, &source);
  if (t->drive > 0) {
    distort(w, t->drive * (0.3 + 0.7 * uniform(&c)));
  }
  add_room(w, &c);
  finish(w, &c, &source, samples);
}

bppsa_status bppsa_instrument_workspace_create(bppsa_instrument_workspace **workspace) {
  bppsa_instrument_workspace *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int i = 0; i <= TABLE; ++i) {
    made->table[i] = (float)sin(2 * PI * i / TABLE);
  }
  *workspace = made;
  return BPPSA_OK;
}

void bppsa_instrument_workspace_destroy(bppsa_instrument_workspace *workspace) {
  bppsa_free(workspace);
}
