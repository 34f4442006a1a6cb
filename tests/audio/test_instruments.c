/* Synthetic instruments: the same for the same seed, different for another, in complete files. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audio/instruments.h"
#include "audio/wav.h"
#include "core/base/alloc.h"
#include "core/files/directory.h"
#include "tests/support/io_fault.h"
#include "tests/support/support.h"

enum { FRAMES = BPPSA_INSTRUMENT_FRAMES };
#define PLACE "instruments_test"

static int16_t sound[2 * FRAMES], again[2 * FRAMES];

static void play(uint64_t seed, int64_t number, int16_t *samples) {
  bppsa_instrument_workspace *workspace = NULL;
  assert_int_equal(bppsa_instrument_workspace_create(&workspace), BPPSA_OK);
  bppsa_instrument_play(workspace, seed, number, samples);
  bppsa_instrument_workspace_destroy(workspace);
}

static void remove_place(void) {
  assert_int_equal(system("rm -rf " PLACE), 0);
}

static void test_names(void **state) {
  (void)state;
  static const char expected[] = "cel cla flu gac gel org pia sax tru vio voi";
  for (int i = 0; i < BPPSA_INSTRUMENTS; ++i) {
    assert_memory_equal(bppsa_instrument_names[i], expected + 4 * i, 3);
    assert_int_equal(bppsa_instrument_find(bppsa_instrument_names[i]), i);
  }
  assert_int_equal(bppsa_instrument_find("Cel"), -1);
  assert_int_equal(bppsa_instrument_find(""), -1);
}

/* The sound is loud enough, not clipped, differs between the channels, has no constant part, and changes over the three seconds. */
static void test_sounds(void **state) {
  (void)state;
  bppsa_instrument_workspace *workspace = NULL;
  assert_int_equal(bppsa_instrument_workspace_create(&workspace), BPPSA_OK);
  for (int64_t number = 0; number < 3 * BPPSA_INSTRUMENTS; ++number) {
    const int64_t calls = bppsa_alloc_calls();
    bppsa_instrument_play(workspace, 7, number, sound);
    assert_int_equal(bppsa_alloc_calls(), calls);
    double square = 0, difference = 0, sum = 0, part[6] = {0};
    int largest = 0;
    for (int64_t i = 0; i < FRAMES; ++i) {
      const double left = sound[2 * i], right = sound[2 * i + 1];
      square += left * left + right * right;
      difference += (left - right) * (left - right);
      sum += left + right;
      part[i * 6 / FRAMES] += left * left;
      largest = abs(sound[2 * i]) > largest ? abs(sound[2 * i]) : largest;
      largest = abs(sound[2 * i + 1]) > largest ? abs(sound[2 * i + 1]) : largest;
    }
    const double level = sqrt(square / (2 * FRAMES));
    assert_in_range(largest, 3000, 32700);
    assert_true(level > 100 && difference > 1e-6 * square && fabs(sum) / (2 * FRAMES) < 0.1 * level);
    double least = part[0], most = part[0];
    for (int i = 1; i < 6; ++i) {
      least = fmin(least, part[i]);
      most = fmax(most, part[i]);
    }
    assert_true(most > 1.02 * least);
  }
  bppsa_instrument_workspace_destroy(workspace);
}

/* A workspace that has played other sounds before gives the same result. */
static void test_seeds(void **state) {
  (void)state;
  play(3, 5, sound);
  bppsa_instrument_workspace *workspace = NULL;
  assert_int_equal(bppsa_instrument_workspace_create(&workspace), BPPSA_OK);
  bppsa_instrument_play(workspace, 9, 4, again);
  bppsa_instrument_play(workspace, 3, 5, again);
  bppsa_instrument_workspace_destroy(workspace);
  assert_memory_equal(sound, again, sizeof sound);
  play(4, 5, again);
  assert_memory_not_equal(sound, again, sizeof sound);
  play(3, 5 + BPPSA_INSTRUMENTS, again); /* the same instrument */
  assert_memory_not_equal(sound, again, sizeof sound);
}

static void count_progress(void *context, int64_t done, int64_t total) {
  assert_in_range((uintmax_t)done, 1, (uintmax_t)total);
  ++*(int64_t *)context;
}

/* The files have the samples of `play`, whatever the number of threads and files. */
static void test_files(void **state) {
  (void)state;
  static float read[2 * FRAMES];
  int64_t calls = 0;
  for (int32_t threads = 1; threads <= 3; threads += 2) {
    const int64_t files = threads == 1 ? 13 : 14;
    remove_place();
    assert_int_equal(bppsa_instruments_write(PLACE, files, 5, threads, count_progress, &calls), BPPSA_OK);
    for (int64_t number = 0; number < files; number += 6) {
      char path[64];
      const char *name = bppsa_instrument_names[number % BPPSA_INSTRUMENTS];
      snprintf(path, sizeof path, PLACE "/%s/%s_%06d.wav", name, name, (int)number);
      play(5, number, sound);
      if (bppsa_audio_check() == BPPSA_OK) {
        bppsa_wav_info info;
        assert_int_equal(bppsa_wav_read(path, FRAMES, FRAMES, read, &info), BPPSA_OK);
        assert_true(info.channels == 2 && info.rate == 44100 && info.frames == FRAMES);
        for (int64_t i = 0; i < 2 * FRAMES; ++i) {
          assert_true(read[i] == (float)sound[i]);
        }
      }
      assert_int_equal(access(path, R_OK), 0);
    }
    assert_int_equal(access(PLACE "/voi/voi_000010.wav", R_OK), 0);
  }
  assert_int_equal(calls, 13 + 14);
  /* A directory that holds such files is refused. */
  assert_int_equal(bppsa_instruments_write(PLACE, 1, 6, 1, NULL, NULL), BPPSA_ERR_ARGUMENT);
  assert_non_null(
      strstr(bppsa_last_error(), PLACE "/cel/cel_000000.wav: is there already, expected a directory without WAV files"));
  remove_place();
  assert_int_equal(bppsa_instruments_write(PLACE, 3, 5, 1, NULL, NULL), BPPSA_OK); /* no more folders than classes with files */
  bppsa_directory list = {0};
  assert_int_equal(bppsa_directory_list(PLACE, &list), BPPSA_OK);
  assert_int_equal(list.count, 3);
  bppsa_directory_free(&list);
  remove_place();
}

static void test_arguments(void **state) {
  (void)state;
  assert_int_equal(bppsa_instruments_write(PLACE, 0, 0, 1, NULL, NULL), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_instruments_write(PLACE, 1000001, 0, 1, NULL, NULL), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_instruments_write(PLACE, 1, 0, 0, NULL, NULL), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_instruments_write("", 1, 0, 1, NULL, NULL), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_instruments_write("no/such/parent", 1, 0, 1, NULL, NULL), BPPSA_ERR_IO);
  assert_int_equal(access(PLACE, F_OK), -1);
}

/* The number of WAV files in the class folders, all of which must be complete. */
static int64_t count_whole(void) {
  int64_t count = 0;
  for (int i = 0; i < BPPSA_INSTRUMENTS; ++i) {
    char path[128];
    bppsa_directory list = {0};
    snprintf(path, sizeof path, PLACE "/%s", bppsa_instrument_names[i]);
    if (access(path, F_OK) != 0) {
      continue;
    }
    assert_int_equal(bppsa_directory_list(path, &list), BPPSA_OK);
    for (int64_t f = 0; f < list.count; ++f, ++count) {
      snprintf(path, sizeof path, PLACE "/%s/%s", bppsa_instrument_names[i], list.names[f]);
      FILE *file = fopen(path, "rb");
      assert_non_null(file);
      assert_int_equal(fseek(file, 0, SEEK_END), 0);
      assert_int_equal(ftell(file), 44 + 4 * FRAMES);
      fclose(file);
    }
    bppsa_directory_free(&list);
  }
  return count;
}

static void test_failures(void **state) {
  (void)state;
  const int64_t live = bppsa_alloc_live(), open = bppsa_io_open_count();
  bppsa_status status = BPPSA_ERR_MEMORY;
  for (int64_t call = 1; status != BPPSA_OK; ++call) {
    remove_place();
    bppsa_alloc_fail_at(call);
    status = bppsa_instruments_write(PLACE, 2, 5, 2, NULL, NULL);
    bppsa_alloc_fail_at(0);
    assert_true(status == BPPSA_OK || status == BPPSA_ERR_MEMORY);
    assert_int_equal(bppsa_alloc_live(), live);
    (void)count_whole();
    assert_true(call < 100);
  }
  io_fault fault;
  for (int64_t call = 1;; call += call < 20 ? 1 : 23) { /* every call of the beginning, and some writes */
    remove_place();
    io_fault_set(&fault, call, false, ENOSPC);
    status = bppsa_instruments_write(PLACE, 2, 5, 1, NULL, NULL);
    io_fault_clear();
    assert_int_equal(bppsa_alloc_live(), live);
    assert_int_equal(bppsa_io_open_count(), open);
    const int64_t whole = count_whole();
    if (fault.failed == 0) {
      assert_int_equal(status, BPPSA_OK);
      assert_int_equal(whole, 2);
      break;
    }
    if (fault.kind != BPPSA_IO_CLOSE && fault.kind != BPPSA_IO_SYNC && status != BPPSA_ERR_IO) {
      fail_msg("call %d, %s: %s", (int)call, bppsa_io_name(fault.kind), bppsa_status_name(status));
    }
    assert_true(status == BPPSA_OK || strlen(bppsa_last_error()) > 10);
  }
  remove_place();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),     cmocka_unit_test(test_sounds),
                                     cmocka_unit_test(test_seeds),     cmocka_unit_test(test_files),
                                     cmocka_unit_test(test_arguments), cmocka_unit_test(test_failures)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
