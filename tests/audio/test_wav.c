/* WAV files: reading gives the samples that were written; a damaged file is refused with its byte. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audio/wav.h"
#include "core/base/alloc.h"
#include "core/base/io.h"
#include "tests/audio/wav_bytes.h"
#include "tests/support/io_fault.h"
#include "tests/support/support.h"

#define PATH "audio_test.wav"
#define PI 3.14159265358979323846
enum { FRAMES = 2000 };

static wav_bytes file; /* too large for the stack */
static float samples[2 * BPPSA_AUDIO_RATE];

/* Expects a refusal with `status` and `text` in the message, without a leak or an open descriptor. */
static void assert_refused(bppsa_status status, const char *text) {
  const int64_t live = bppsa_alloc_live(), open = bppsa_io_open_count();
  assert_true(wav_save(&file, PATH));
  assert_int_equal(bppsa_wav_read(PATH, 100, FRAMES, samples, NULL), status);
  if (strstr(bppsa_last_error(), text) == NULL || strncmp(bppsa_last_error(), PATH ": ", strlen(PATH ": ")) != 0) {
    fail_msg("'%s' does not say '%s'", bppsa_last_error(), text);
  }
  assert_int_equal(bppsa_alloc_live(), live);
  assert_int_equal(bppsa_io_open_count(), open);
}

static bppsa_wav_info assert_read(int64_t frames) {
  bppsa_wav_info info = {0};
  assert_true(wav_save(&file, PATH));
  const bppsa_status status = bppsa_wav_read(PATH, 1, frames, samples, &info);
  if (status != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  return info;
}

/* ---- good files ---- */

static void test_integers(void **state) {
  (void)state;
  wav_sawtooth(&file, 2, 44100, FRAMES);
  const bppsa_wav_info info = assert_read(FRAMES);
  assert_true(info.channels == 2 && info.rate == 44100 && info.frames == FRAMES);
  for (int i = 0; i < FRAMES; ++i) {
    assert_true(samples[2 * i] == (float)(i * 97 % 20001 - 10000) && samples[2 * i + 1] == samples[2 * i] + 3);
  }
}

/* Every width on the scale of 16 bits; extremes too. */
static void test_widths(void **state) {
  (void)state;
  static const int64_t values[] = {-32768, -32767, -1, 0, 1, 77, 32767};
  enum { COUNT = sizeof values / sizeof values[0] };
  for (int bits = 8; bits <= 32; bits += 8) {
    wav_open(&file, 1, 2, 44100, bits);
    for (int i = 0; i < 2 * COUNT; ++i) {
      const int64_t value = values[i / 2];
      wav_put(&file, (uint64_t)(bits == 8 ? (value >> 8) + 128 : value * (INT64_C(1) << (bits - 16))), bits / 8);
    }
    wav_close(&file);
    (void)assert_read(COUNT);
    for (int i = 0; i < 2 * COUNT; ++i) {
      assert_true(samples[i] == (bits == 8 ? (float)(values[i / 2] >> 8) * 256 : (float)values[i / 2]));
    }
  }
  wav_open(&file, 3, 2, 44100, 32);
  for (int i = 0; i < 2 * COUNT; ++i) {
    wav_float(&file, (float)values[i / 2] / 32768);
  }
  wav_close(&file);
  (void)assert_read(COUNT);
  for (int i = 0; i < 2 * COUNT; ++i) {
    assert_true(samples[i] == (float)values[i / 2]);
  }
}

static void test_mono_and_lengths(void **state) {
  (void)state;
  wav_sawtooth(&file, 1, 44100, FRAMES);
  (void)assert_read(FRAMES + 500); /* silence follows */
  for (int i = 0; i < FRAMES + 500; ++i) {
    assert_true(samples[2 * i] == samples[2 * i + 1]);
    assert_true(samples[2 * i] == (i < FRAMES ? (float)(i * 97 % 20001 - 10000) : 0));
  }
  samples[200] = 4.25f;
  (void)assert_read(100); /* the rest is left out */
  assert_true(samples[198] == (float)(99 * 97 % 20001 - 10000) && samples[200] == 4.25f);
  const int64_t live = bppsa_alloc_live();
  assert_int_equal(bppsa_wav_read(PATH, FRAMES + 1, FRAMES + 1, samples, NULL), BPPSA_ERR_FORMAT);
  assert_non_null(strstr(bppsa_last_error(), "2000 frames at 44100 Hz, 0.0454 s, expected at least 0.0454 s"));
  assert_int_equal(bppsa_alloc_live(), live);
}

/* Chunks around fmt and data, a missing pad byte at the end, bytes behind the container, RIFX and RF64. */
static void test_containers(void **state) {
  (void)state;
  wav_open(&file, 1, 1, 44100, 8);
  wav_put(&file, 0x80807F, 3);
  wav_text(&file, "LIST"); /* in the place of the padding: not read before it */
  wav_close(&file);
  wav_patch(&file, 40, 3, 4);
  wav_patch(&file, 4, 39, 4); /* the container ends with the samples: bytes behind it are ignored */
  assert_true(assert_read(10).frames == 3);

  wav_sawtooth(&file, 2, 44100, 10);
  memmove(file.bytes + 36 + 12, file.bytes + 36, file.size - 36);
  memcpy(file.bytes + 36, "note\3\0\0\0abc\0", 12); /* a chunk of odd size in front of data */
  file.size += 12;
  wav_patch(&file, 4, file.size - 8, 4);
  assert_true(assert_read(10).frames == 10 && samples[1] == -9997);

  wav_sawtooth(&file, 2, 44100, 10);
  memcpy(file.bytes, "RIFX", 4);
  static const int numbers[][2] = {{4, 4}, {16, 4}, {20, 2}, {22, 2}, {24, 4}, {28, 4}, {32, 2}, {34, 2}, {40, 4}};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i) {
    unsigned char *at = file.bytes + numbers[i][0], copy[4];
    memcpy(copy, at, 4);
    for (int b = 0; b < numbers[i][1]; ++b) {
      at[b] = copy[numbers[i][1] - 1 - b];
    }
  }
  for (size_t i = 44; i < file.size; i += 2) {
    const unsigned char low = file.bytes[i];
    file.bytes[i] = file.bytes[i + 1];
    file.bytes[i + 1] = low;
  }
  assert_true(assert_read(10).frames == 10 && samples[0] == -10000 && samples[1] == -9997);

  wav_sawtooth(&file, 2, 44100, 10);
  memmove(file.bytes + 12 + 36, file.bytes + 12, file.size - 12);
  file.size += 36;
  memcpy(file.bytes, "RF64\xff\xff\xff\xff", 8);
  memcpy(file.bytes + 12, "ds64\x1c\0\0\0", 8);
  wav_patch(&file, 20, file.size - 8, 8);
  wav_patch(&file, 28, 40, 8);
  wav_patch(&file, 36, 10, 8);
  wav_patch(&file, 44, 0, 4);
  wav_patch(&file, 76, UINT32_MAX, 4);
  assert_true(assert_read(10).frames == 10 && samples[1] == -9997);
  wav_patch(&file, 28, UINT64_C(1) << 40, 8);
  assert_refused(BPPSA_ERR_FORMAT, "byte 76: the chunk 'data' announces 1099511627776 bytes, but 40 are left");
  wav_patch(&file, 20, UINT64_C(1) << 63, 8);
  assert_refused(BPPSA_ERR_FORMAT, "byte 12: no ds64 chunk with sizes below 2^63");
}

/* What programs write to a pipe: sizes that they do not know yet, chunks of texts in front of the samples. */
static void test_pipes(void **state) {
  (void)state;
  static const uint32_t sizes[][2] = {{UINT32_MAX, UINT32_MAX},
                                      {0, 0},
                                      {36, 0},
                                      {UINT32_MAX, UINT32_MAX - 36},
                                      {0x7FFFF024u, 0x7FFFF000u},
                                      {0x80000024u, 0x80000000u},
                                      {8036, UINT32_MAX},
                                      {0x7FFFFFFFu, 0x7FFFFFFFu - 36u},
                                      {UINT32_MAX, 8000},
                                      {0, 8000}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    wav_sawtooth(&file, 2, 44100, FRAMES);
    wav_patch(&file, 4, sizes[i][0], 4);
    wav_patch(&file, 40, sizes[i][1], 4);
    assert_true(assert_read(FRAMES).frames == FRAMES && samples[1] == -9997 && samples[2 * FRAMES - 2] != 0);
  }
  for (int odd = 0; odd < 2; ++odd) { /* as ffmpeg writes it, and a pipe that ended within a frame */
    wav_sawtooth(&file, 2, 44100, 10);
    memmove(file.bytes + 36 + 12, file.bytes + 36, file.size - 36);
    memcpy(file.bytes + 36, "LIST\3\0\0\0abc\0", 12);
    file.size += 12;
    wav_patch(&file, 4, UINT32_MAX, 4);
    wav_patch(&file, 52, UINT32_MAX, 4);
    file.size += (size_t)odd;
    assert_true(assert_read(10).frames == 10 && samples[1] == -9997);
  }
  wav_open(&file, 3, 2, 44100, 64);
  wav_put(&file, 0, 8);
  wav_put(&file, UINT64_C(0x3fe0000000000000), 8); /* 0.5 */
  wav_put(&file, 0, 8);
  wav_put(&file, 0, 2);
  wav_patch(&file, 4, UINT32_MAX, 4);
  wav_patch(&file, 40, UINT32_MAX, 4);
  assert_true(assert_read(1).frames == 1 && samples[1] == 16384);
  wav_sawtooth(&file, 2, 44100, 10); /* WAVE_FORMAT_EXTENSIBLE */
  memmove(file.bytes + 36 + 24, file.bytes + 36, file.size - 36);
  memcpy(file.bytes + 36, "\x16\0\x10\0\3\0\0\0\1\0\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71", 24);
  file.size += 24;
  wav_patch(&file, 16, 40, 4);
  wav_patch(&file, 20, 0xFFFE, 2);
  wav_patch(&file, 4, UINT32_MAX, 4);
  wav_patch(&file, 64, UINT32_MAX, 4);
  assert_true(assert_read(10).frames == 10 && samples[1] == -9997);
}

/* A 1 kHz tone at other rates becomes the tone at 44.1 kHz, except near the ends; the length follows the rate. */
static void test_rates(void **state) {
  (void)state;
  static const uint32_t rates[] = {4000, 22050, 48000, 96000, 384000};
  for (size_t r = 0; r < sizeof rates / sizeof rates[0]; ++r) {
    const int frames = (int)(rates[r] / 2);
    wav_open(&file, 1, 2, rates[r], 16);
    for (int i = 0; i < frames; ++i) {
      const double value = 8000 * sin(2 * PI * 1000 * i / rates[r]);
      wav_put(&file, (uint64_t)lrint(value), 2);
      wav_put(&file, (uint64_t)lrint(-value / 2), 2);
    }
    wav_close(&file);
    const int64_t half = BPPSA_AUDIO_RATE / 2;
    assert_true(assert_read(BPPSA_AUDIO_RATE).frames == frames);
    double worst = 0;
    for (int64_t i = 3000; i < half - 3000; ++i) {
      const double expected = 8000 * sin(2 * PI * 1000 * (double)i / BPPSA_AUDIO_RATE);
      worst = fmax(worst, fabs((double)samples[2 * i] - expected));
      worst = fmax(worst, fabs((double)samples[2 * i + 1] + expected / 2));
    }
    if (worst > 2) { /* rounding of the samples, and errors of the converter */
      fail_msg("%u Hz: off by %g of 8000", (unsigned)rates[r], worst);
    }
    assert_true(samples[2 * (half + 3)] == 0);
    static float part[2 * 8000]; /* the beginning alone gives the beginning of the whole */
    assert_int_equal(bppsa_wav_read(PATH, 1, 8000, part, NULL), BPPSA_OK);
    for (int i = 0; i < 2 * 8000; ++i) {
      assert_true(fabsf(part[i] - samples[i]) < 1e-2f);
    }
  }
}

/* ---- bad files ---- */

static void test_truncated(void **state) {
  (void)state;
  wav_sawtooth(&file, 2, 44100, FRAMES);
  const size_t size = file.size;
  for (size_t length = 0; length < size; length += length < 64 ? 1 : 997) {
    file.size = length;
    assert_refused(BPPSA_ERR_FORMAT,
                   length < 12 ? "the file ends in the RIFF header" : "byte 4: the RIFF header announces 8036 bytes");
  }
}

static void test_lies(void **state) {
  (void)state;
  static const struct {
    size_t at;
    uint64_t value;
    int bytes;
    bppsa_status status;
    const char *text;
  } lies[] = {
      {0, 0x67676F, 4, BPPSA_ERR_FORMAT, "byte 0: 'ogg\\x00"},
      {8, 0x20495641, 4, BPPSA_ERR_FORMAT, "byte 8: a RIFF file of another kind"},
      {4, 4294770687, 4, BPPSA_ERR_FORMAT, "byte 4: the RIFF header announces 4294770687 bytes after it, but the file has 8036"},
      {4, 8037, 4, BPPSA_ERR_FORMAT, "byte 4: the RIFF header announces 8037"},
      {4, 4, 4, BPPSA_ERR_FORMAT, "the chunks end without a fmt chunk"},
      {4, 30, 4, BPPSA_ERR_FORMAT, "the chunks end without a data chunk"},
      {4, 8000, 4, BPPSA_ERR_FORMAT, "byte 40: the chunk 'data' announces 8000 bytes, but 7964 are left"},
      {40, 4294770687, 4, BPPSA_ERR_FORMAT, "byte 40: the chunk 'data' announces 4294770687 bytes, but 8000 are left"},
      {40, 8001, 4, BPPSA_ERR_FORMAT, "byte 40: the chunk 'data' announces 8001"},
      {40, 0, 4, BPPSA_ERR_FORMAT, ""},
      {40, 7998, 4, BPPSA_ERR_FORMAT, "byte 40: 7998 bytes of data, expected whole frames of 4 bytes"},
      {16, UINT32_MAX, 4, BPPSA_ERR_FORMAT, "byte 16: the chunk 'fmt ' announces 4294967295 bytes"},
      {16, 15, 4, BPPSA_ERR_FORMAT, "a fmt chunk of 15 bytes, expected one of 16 or more"},
      {22, 0, 2, BPPSA_ERR_FORMAT, "byte 22: 0 channels, expected 1 or 2"},
      {22, 3, 2, BPPSA_ERR_UNSUPPORTED, "byte 22: 3 channels, expected 1 or 2"},
      {22, 65535, 2, BPPSA_ERR_UNSUPPORTED, "byte 22: 65535 channels"},
      {22, 1, 2, BPPSA_ERR_FORMAT, "byte 32: frames of 4 bytes for 1 channels of 16 bits"},
      {24, 0, 4, BPPSA_ERR_UNSUPPORTED, "byte 24: 0 Hz, expected 4000 to 384000"},
      {24, UINT32_MAX, 4, BPPSA_ERR_UNSUPPORTED, "byte 24: 4294967295 Hz"},
      {32, 0, 2, BPPSA_ERR_FORMAT, "byte 32: frames of 0 bytes"},
      {34, 0, 2, BPPSA_ERR_FORMAT, "byte 32: frames of 4 bytes for 2 channels of 0 bits"},
      {20, 0x7777, 2, BPPSA_ERR_FORMAT, "libsndfile cannot read it"},
      {20, 0x50, 2, BPPSA_ERR_UNSUPPORTED, "byte 20: format 0x50, MPEG audio, expected another"},
      {20, 0x55, 2, BPPSA_ERR_UNSUPPORTED, "byte 20: format 0x55, MPEG audio, expected another"},
      {12, 0x61746164, 4, BPPSA_ERR_FORMAT, "a data chunk before any fmt chunk"}};
  for (size_t i = 0; i < sizeof lies / sizeof lies[0]; ++i) {
    wav_sawtooth(&file, 2, 44100, FRAMES);
    wav_patch(&file, lies[i].at, lies[i].value, lies[i].bytes);
    assert_refused(lies[i].status, lies[i].text);
  }
  wav_sawtooth(&file, 2, 44100, FRAMES); /* 4 GB in an empty file: what a pipe wrote that ended at once */
  wav_patch(&file, 4, UINT32_MAX, 4);
  wav_patch(&file, 40, UINT32_MAX - 36, 4);
  file.size = 44;
  assert_refused(BPPSA_ERR_FORMAT, "byte 40: the data chunk is empty, expected samples");
  wav_open(&file, 1, 2, 44100, 16);
  wav_close(&file);
  assert_refused(BPPSA_ERR_FORMAT, "byte 40: the data chunk is empty");
  wav_sawtooth(&file, 2, 44100, 99);
  assert_refused(BPPSA_ERR_FORMAT, "99 frames at 44100 Hz, 0.0022 s, expected at least 0.0023 s");
}

/* Zeros are empty chunks without a name: a sparse file has any number of them. */
static void test_many_chunks(void **state) {
  (void)state;
  const size_t most = 4096 - 2; /* besides fmt and data */
  for (size_t more = 0; more < 2; ++more) {
    wav_sawtooth(&file, 2, 44100, 100);
    memset(file.bytes + file.size, 0, 8 * (most + 1));
    file.size += 8 * (most + more);
    wav_patch(&file, 4, file.size - 8, 4);
    if (more == 0) {
      assert_true(assert_read(100).frames == 100);
    } else {
      assert_refused(BPPSA_ERR_FORMAT, "byte 33196: more than 4096 chunks, expected at most so many");
    }
  }
}

static void test_not_finite(void **state) {
  (void)state;
  static const float values[] = {NAN, INFINITY, -INFINITY, 3e38f};
  static const char *const texts[] = {"nan", "inf", "-inf", "3e+38"};
  for (int v = 0; v < 4; ++v) {
    for (uint32_t rate = 44100; rate < 60000; rate += 3900) {
      wav_open(&file, 3, 2, rate, 32);
      for (int i = 0; i < 2 * FRAMES; ++i) {
        wav_float(&file, i == 101 ? values[v] : 0.25f);
      }
      wav_close(&file);
      char text[80];
      snprintf(text, sizeof text, "frame 50, channel 1: the sample is %s, expected a finite value", texts[v]);
      assert_refused(BPPSA_ERR_FORMAT, text);
    }
  }
}

/* Changes random bytes of a good file: there may be any answer but no crash, hang or leak; values that are read are finite. */
static void test_noise(void **state) {
  (void)state;
  uint64_t x = 12345;
  for (int round = 0; round < 3000; ++round) {
    wav_sawtooth(&file, 1 + round % 2, round % 3 == 0 ? 22050 : 44100, 200);
    for (int i = 0; i < 1 + round % 4; ++i) {
      x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      file.bytes[(x >> 33) % (round % 5 == 0 ? file.size : 48)] = (unsigned char)(x >> 24);
    }
    const int64_t live = bppsa_alloc_live(), open = bppsa_io_open_count();
    assert_true(wav_save(&file, PATH));
    if (bppsa_wav_read(PATH, 10, 300, samples, NULL) == BPPSA_OK) {
      for (int i = 0; i < 600; ++i) {
        assert_true(isfinite(samples[i]));
      }
    }
    assert_int_equal(bppsa_alloc_live(), live);
    assert_int_equal(bppsa_io_open_count(), open);
  }
}

/* ---- failing calls ---- */

static void test_memory(void **state) {
  (void)state;
  wav_sawtooth(&file, 1, 48000, FRAMES);
  assert_true(wav_save(&file, PATH));
  bppsa_status status = BPPSA_ERR_MEMORY;
  const int64_t live = bppsa_alloc_live();
  for (int64_t call = 1; status != BPPSA_OK; ++call) {
    bppsa_alloc_fail_at(call);
    status = bppsa_wav_read(PATH, 1, FRAMES, samples, NULL);
    bppsa_alloc_fail_at(0);
    assert_true(status == BPPSA_OK || status == BPPSA_ERR_MEMORY);
    assert_int_equal(bppsa_alloc_live(), live);
    assert_true(call < 20);
  }
}

static void test_io(void **state) {
  (void)state;
  for (int onwards = 0; onwards < 2; ++onwards) {
    wav_sawtooth(&file, 2, 44100, FRAMES);
    assert_true(wav_save(&file, PATH));
    const int64_t live = bppsa_alloc_live(), open = bppsa_io_open_count();
    io_fault fault;
    for (int64_t call = 1;; ++call) {
      memset(samples, 0, 8);
      io_fault_set(&fault, call, onwards == 1, EIO);
      const bppsa_status status = bppsa_wav_read(PATH, 1, FRAMES, samples, NULL);
      io_fault_clear();
      assert_int_equal(bppsa_alloc_live(), live);
      assert_int_equal(bppsa_io_open_count(), open);
      if (fault.failed == 0) {
        assert_int_equal(status, BPPSA_OK);
        assert_true(call > 8);
        break;
      }
      if (status != BPPSA_ERR_IO &&
          !(status == BPPSA_OK && fault.kind == BPPSA_IO_CLOSE)) { /* closing after reading loses nothing */
        fail_msg("call %d, %s: %s, %s", (int)call, bppsa_io_name(fault.kind), bppsa_status_name(status), bppsa_last_error());
      }
    }
  }
  (void)remove(PATH);
  assert_int_equal(bppsa_wav_read(PATH, 1, FRAMES, samples, NULL), BPPSA_ERR_IO);
  assert_int_equal(bppsa_wav_read(".", 1, FRAMES, samples, NULL), BPPSA_ERR_IO);
  assert_int_equal(bppsa_wav_read(PATH, 1, 0, samples, NULL), BPPSA_ERR_ARGUMENT);
}

/* A file is written and read back; a failing write leaves nothing. */
static void test_write(void **state) {
  (void)state;
  static int16_t written[2 * 5000];
  for (int i = 0; i < 2 * 5000; ++i) {
    written[i] = (int16_t)(i * 7919 % 65536 - 32768);
  }
  io_fault fault;
  bppsa_status status = BPPSA_ERR_IO;
  for (int64_t call = 1; status != BPPSA_OK; ++call) {
    (void)remove(PATH);
    io_fault_set(&fault, call, false, ENOSPC);
    status = bppsa_wav_write(PATH, 5000, written);
    io_fault_clear();
    if (status != BPPSA_OK && strstr(bppsa_last_error(), "written, but") == NULL) {
      assert_int_equal(access(PATH, F_OK), -1);
    }
    assert_true(call < 30);
    if (fault.failed > 0 && fault.kind == BPPSA_IO_CLOSE && status == BPPSA_OK) {
      status = BPPSA_ERR_IO; /* closing the directory failed: continue */
    }
  }
  assert_int_equal(bppsa_wav_read(PATH, 5000, 5000, samples, NULL), BPPSA_OK);
  for (int i = 0; i < 2 * 5000; ++i) {
    assert_true(samples[i] == (float)written[i]);
  }
  assert_int_equal(bppsa_wav_write(PATH, 0, written), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_wav_write(PATH, INT64_C(1) << 40, written), BPPSA_ERR_ARGUMENT);
  (void)remove(PATH);
}

int main(void) {
  if (bppsa_audio_check() != BPPSA_OK) {
    print_message("skipped: %s\n", bppsa_last_error());
    return 77;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_integers),   cmocka_unit_test(test_widths), cmocka_unit_test(test_mono_and_lengths),
      cmocka_unit_test(test_containers), cmocka_unit_test(test_pipes),  cmocka_unit_test(test_rates),
      cmocka_unit_test(test_truncated),  cmocka_unit_test(test_lies),   cmocka_unit_test(test_many_chunks),
      cmocka_unit_test(test_not_finite), cmocka_unit_test(test_noise),  cmocka_unit_test(test_memory),
      cmocka_unit_test(test_io),         cmocka_unit_test(test_write)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
