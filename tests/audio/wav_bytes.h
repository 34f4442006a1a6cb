/* WAV files made byte by byte, right and wrong ones. */
#ifndef BPPSA_TESTS_AUDIO_WAV_BYTES_H
#define BPPSA_TESTS_AUDIO_WAV_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  size_t size;
  unsigned char bytes[1 << 20];
} wav_bytes;

static inline void wav_put(wav_bytes *w, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    w->bytes[w->size++] = (unsigned char)(value >> 8 * i);
  }
}

static inline void wav_text(wav_bytes *w, const char *text) {
  memcpy(w->bytes + w->size, text, 4);
  w->size += 4;
}

/* Overwrites `bytes` bytes from `at` on. */
static inline void wav_patch(wav_bytes *w, size_t at, uint64_t value, int bytes) {
  const size_t size = w->size;
  w->size = at;
  wav_put(w, value, bytes);
  w->size = size;
}

/* A 44-byte header of kind 1 (integers) or 3 (floats); samples follow with wav_put, then wav_close. */
static inline void wav_open(wav_bytes *w, int kind, int channels, uint32_t rate, int bits) {
  w->size = 0;
  wav_text(w, "RIFF");
  wav_put(w, 0, 4);
  wav_text(w, "WAVE");
  wav_text(w, "fmt ");
  wav_put(w, 16, 4);
  wav_put(w, (uint64_t)kind, 2);
  wav_put(w, (uint64_t)channels, 2);
  wav_put(w, rate, 4);
  wav_put(w, (uint64_t)rate * (uint64_t)(channels * bits / 8), 4);
  wav_put(w, (uint64_t)(channels * bits / 8), 2);
  wav_put(w, (uint64_t)bits, 2);
  wav_text(w, "data");
  wav_put(w, 0, 4);
}

static inline void wav_float(wav_bytes *w, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  wav_put(w, bits, 4);
}

/* Sets both sizes. */
static inline void wav_close(wav_bytes *w) {
  wav_patch(w, 4, w->size - 8, 4);
  wav_patch(w, 40, w->size - 44, 4);
}

static inline bool wav_save(const wav_bytes *w, const char *path) {
  FILE *file = fopen(path, "wb");
  const bool good = file != NULL && fwrite(w->bytes, 1, w->size, file) == w->size;
  return (file == NULL || fclose(file) == 0) && good;
}

/* `frames` frames of 16-bit sawtooth in both channels. */
static inline void wav_sawtooth(wav_bytes *w, int channels, uint32_t rate, int frames) {
  wav_open(w, 1, channels, rate, 16);
  for (int i = 0; i < frames * channels; ++i) {
    wav_put(w, (uint64_t)(int64_t)(i / channels * 97 % 20001 - 10000 + 3 * (i % channels)), 2);
  }
  wav_close(w);
}

#endif
