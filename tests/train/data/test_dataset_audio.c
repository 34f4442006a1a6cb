/* Directories of WAV files as data sets. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "audio/features.h"
#include "audio/instruments.h"
#include "core/base/alloc.h"
#include "core/base/io.h"
#include "tests/audio/wav_bytes.h"
#include "tests/support/io_fault.h"
#include "tests/support/support.h"
#include "train/data/dataset.h"

#define PLACE "dataset_audio_test"
enum { FILES = 44, STEPS = 259, INPUT = 38 };

static wav_bytes file;

static void shell(const char *command) {
  assert_int_equal(system(command), 0);
}

/* Files of sawtooth long enough for a window of set L. */
static void save_small(const char *path, int channels, uint32_t rate, int frames) {
  wav_sawtooth(&file, channels, rate, frames);
  assert_true(wav_save(&file, path));
}

static bppsa_status create(const char *spec, const bppsa_dataset_options *options, bppsa_dataset **dataset) {
  return bppsa_dataset_create(spec, options, dataset);
}

static bppsa_dataset *made(const char *spec, const bppsa_dataset_options *options) {
  bppsa_dataset *dataset = NULL;
  const bppsa_status status = create(spec, options, &dataset);
  if (status != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  return dataset;
}

static void assert_refused(const char *spec, const bppsa_dataset_options *options, bppsa_status status, const char *says) {
  const int64_t live = bppsa_alloc_live(), open = bppsa_io_open_count();
  bppsa_dataset *dataset = NULL;
  assert_int_equal(create(spec, options, &dataset), status);
  assert_null(dataset);
  if (strstr(bppsa_last_error(), says) == NULL) {
    fail_msg("'%s' does not say '%s'", bppsa_last_error(), says);
  }
  assert_int_equal(bppsa_alloc_live(), live);
  assert_int_equal(bppsa_io_open_count(), open);
}

/* ---- a set of 44 instruments ---- */

static int make_set(void **state) {
  (void)state;
  shell("rm -rf " PLACE);
  assert_int_equal(bppsa_instruments_write(PLACE, FILES, 3, 2, NULL, NULL), BPPSA_OK);
  return 0;
}

static int remove_set(void **state) {
  (void)state;
  return system("rm -rf " PLACE);
}

static void count_progress(void *context, int64_t done, int64_t total) {
  assert_int_equal(total, FILES);
  assert_int_equal(done, ++*(int64_t *)context);
}

/* Shapes, labels and values do not depend on the number of threads; the values are the features of a file with that label. */
static void test_samples(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(3);
  int64_t calls = 0;
  const bppsa_dataset_audio audio = {.device = device, .progress = count_progress, .context = &calls};
  const bppsa_dataset_options plain = {.seed = 1}, threaded = {.seed = 1, .samples = FILES, .seq_len = STEPS, .audio = &audio};
  bppsa_dataset *one = made("instruments:" PLACE, &plain), *many = made("irmas:" PLACE, &threaded);
  assert_int_equal(calls, FILES);
  assert_string_equal(one->ops->name, "instruments");
  assert_string_equal(many->ops->name, "irmas");
  assert_true(one->samples == FILES && one->seq_len == STEPS && one->input == INPUT && one->classes == 11);
  assert_true(one->identity == many->identity);
  const int64_t shape[3] = {STEPS, 1, INPUT};
  float *a = bppsa_calloc(STEPS * INPUT, sizeof *a), *b = bppsa_calloc(STEPS * INPUT, sizeof *b);
  double *wide = bppsa_calloc(STEPS * INPUT, sizeof *wide);
  const bppsa_view a_view = bppsa_view_make(a, BPPSA_F32, 3, shape), b_view = bppsa_view_make(b, BPPSA_F32, 3, shape),
                   wide_view = bppsa_view_make(wide, BPPSA_F64, 3, shape);
  int64_t counts[11] = {0};
  for (int64_t i = 0; i < FILES; ++i) {
    int64_t label = -1, other = -1;
    assert_int_equal(bppsa_dataset_fill(one, NULL, 1, &i, &a_view, &label), BPPSA_OK);
    assert_int_equal(bppsa_dataset_fill(many, device, 1, &i, &b_view, &other), BPPSA_OK);
    assert_int_equal(bppsa_dataset_fill(one, NULL, 1, &i, &wide_view, NULL), BPPSA_OK);
    assert_int_equal(label, other);
    assert_memory_equal(a, b, STEPS * INPUT * sizeof *a);
    for (int64_t k = 0; k < STEPS * INPUT; ++k) {
      assert_true(isfinite(a[k]) && wide[k] == (double)a[k]);
    }
    ++counts[label];
    if (i % 11 == 10) { /* every stretch of 11 has one of each class */
      for (int c = 0; c < 11; ++c) {
        assert_int_equal(counts[c], (i + 1) / 11);
      }
    }
  }
  bppsa_free(a);
  bppsa_free(b);
  bppsa_free(wide);
  bppsa_dataset_destroy(one);
  bppsa_dataset_destroy(many);
  bppsa_device_destroy(device);
}

/* The seed changes the order and with it the identity; so do set and padding. Labels for every step repeat. */
static void test_settings(void **state) {
  (void)state;
  uint64_t identities[8];
  int count = 0;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    const bppsa_dataset_options options = {.seed = seed};
    bppsa_dataset *dataset = made("instruments:" PLACE, &options);
    identities[count++] = dataset->identity;
    bppsa_dataset_destroy(dataset);
  }
  for (int set = 1; set < BPPSA_MFCC_SETS; ++set) {
    const bppsa_dataset_audio audio = {.set = &bppsa_mfcc_sets[set], .padding = BPPSA_PADDING_REFLECT};
    const bppsa_dataset_options options = {.audio = &audio, .labels_per_step = true};
    bppsa_dataset *dataset = made("instruments:" PLACE, &options);
    assert_int_equal(dataset->seq_len, set == 1 ? 517 : 1034);
    assert_int_equal(dataset->input, set == 1 ? 24 : 12);
    int64_t *labels = bppsa_calloc(2 * dataset->seq_len, sizeof *labels);
    const int64_t indices[2] = {7, 8};
    assert_int_equal(bppsa_dataset_fill(dataset, NULL, 2, indices, NULL, labels), BPPSA_OK);
    for (int64_t i = 2; i < 2 * dataset->seq_len; ++i) {
      assert_int_equal(labels[i], labels[i - 2]);
    }
    bppsa_free(labels);
    identities[count++] = dataset->identity;
    bppsa_dataset_destroy(dataset);
  }
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < i; ++k) {
      assert_true(identities[i] != identities[k]);
    }
  }
}

/* ---- small directories ---- */

static void test_directories(void **state) {
  (void)state;
  const bppsa_dataset_audio audio = {.set = &bppsa_mfcc_sets[2]};
  const bppsa_dataset_options small = {.audio = &audio}, five = {.samples = 5, .audio = &audio},
                              long_ = {.seq_len = 3, .audio = &audio};
  shell("rm -rf small && mkdir -p small/org small/pia small/docs small/.hidden");
  assert_refused("irmas:small", &small, BPPSA_ERR_ARGUMENT,
                 "small: no WAV files in folders of IRMAS's classes, expected some in one or more of cel, cla, flu, gac, gel, "
                 "org, pia, sax, "
                 "tru, vio, voi");
  save_small("small/pia/b.WAV", 1, 44100, 5000);
  save_small("small/pia/a.wav", 2, 22050, 5000);
  save_small("small/pia/.c.wav", 2, 44100, 5); /* hidden: not read */
  save_small("small/.hidden/c.wav", 2, 44100, 5);
  shell("echo text > small/org/readme.txt; echo text > small/docs/notes.txt; echo text > small/readme");
  bppsa_dataset *dataset = made("irmas:small", &small);
  assert_true(dataset->samples == 2 && dataset->classes == 11);
  int64_t labels[2];
  const int64_t indices[2] = {0, 1};
  assert_int_equal(bppsa_dataset_fill(dataset, NULL, 2, indices, NULL, labels), BPPSA_OK);
  assert_true(labels[0] == 6 && labels[1] == 6);
  bppsa_dataset_destroy(dataset);
  assert_refused("irmas:small", &five, BPPSA_ERR_ARGUMENT, "small gives 2 samples, but 5 were asked for");
  assert_refused("irmas:small", &long_, BPPSA_ERR_ARGUMENT, "small gives 1034 time steps, but 3 were asked for");
  save_small("small/docs/d.wav", 1, 44100, 5000);
  assert_refused("irmas:small", &small, BPPSA_ERR_ARGUMENT,
                 "small/docs: WAV files in a folder that names no class, expected cel, cla");
  assert_refused("irmas:none", &small, BPPSA_ERR_IO, "none: cannot list the directory");
  assert_refused("irmas:", &small, BPPSA_ERR_ARGUMENT, "directory missing, expected irmas:DIR");
  assert_refused("instruments", &small, BPPSA_ERR_ARGUMENT, "directory missing, expected instruments:DIR");
  shell("rm -rf small");
}

/* Bad files among good ones: the message names the first by name, and the number of good ones. */
static void test_bad_files(void **state) {
  (void)state;
  const bppsa_dataset_audio audio = {.set = &bppsa_mfcc_sets[2]};
  const bppsa_dataset_options small = {.audio = &audio};
  shell("rm -rf small && mkdir -p small/vio small/cel");
  for (int i = 0; i < 5; ++i) {
    char path[64];
    snprintf(path, sizeof path, "small/%s/%d.wav", i % 2 == 0 ? "cel" : "vio", i);
    save_small(path, 2, 44100, 2000);
  }
  wav_sawtooth(&file, 2, 44100, 2000);
  file.size = 5000;
  assert_true(wav_save(&file, "small/vio/1.wav"));
  assert_refused("irmas:small", &small, BPPSA_ERR_FORMAT,
                 "small/vio/1.wav: byte 4: the RIFF header announces 8036 bytes after it, but the file has 4992, expected at "
                 "most that; 4 of 5 "
                 "files are good");
  save_small("small/cel/2.wav", 2, 44100, 1023);
  assert_refused("irmas:small", &small, BPPSA_ERR_FORMAT,
                 "small/cel/2.wav: 1023 frames at 44100 Hz, 0.0232 s, expected at least 0.0232 s; 3 of 5 files are good");
  save_small("small/cel/0.wav", 3, 44100, 2000);
  assert_refused("irmas:small", &small, BPPSA_ERR_UNSUPPORTED, "small/cel/0.wav: byte 22: 3 channels");
  save_small("small/cel/0.wav", 2, 44100, 2000);
  shell("mkdir small/cel/00.wav");
  assert_refused("irmas:small", &small, BPPSA_ERR_IO,
                 "small/cel/00.wav: a directory, expected a regular file; 3 of 6 files are good");
  shell("rm -rf small");
}

/* ---- failing calls ---- */

static void test_failures(void **state) {
  (void)state;
  const bppsa_dataset_audio audio = {.set = &bppsa_mfcc_sets[2]};
  const bppsa_dataset_options small = {.audio = &audio};
  shell("rm -rf small && mkdir -p small/vio small/cel");
  save_small("small/vio/1.wav", 1, 48000, 2000);
  save_small("small/cel/2.wav", 2, 44100, 2000);
  const int64_t live = bppsa_alloc_live(), open = bppsa_io_open_count();
  for (int once = 0; once < 2; ++once) {
    bppsa_status status = BPPSA_ERR_MEMORY;
    for (int64_t call = 1; status != BPPSA_OK; ++call) {
      bppsa_dataset *dataset = NULL;
      (once ? bppsa_alloc_fail_once : bppsa_alloc_fail_at)(call);
      status = create("irmas:small", &small, &dataset);
      bppsa_alloc_fail_at(0);
      assert_true(status == BPPSA_OK || (status == BPPSA_ERR_MEMORY && dataset == NULL));
      bppsa_dataset_destroy(dataset);
      assert_int_equal(bppsa_alloc_live(), live);
      assert_int_equal(bppsa_io_open_count(), open);
      assert_true(call < 300);
    }
  }
  io_fault fault;
  for (int onwards = 0; onwards < 2; ++onwards) {
    for (int64_t call = 1;; ++call) {
      bppsa_dataset *dataset = NULL;
      io_fault_set(&fault, call, onwards == 1, EIO);
      const bppsa_status status = create("irmas:small", &small, &dataset);
      io_fault_clear();
      bppsa_dataset_destroy(dataset);
      assert_int_equal(bppsa_alloc_live(), live);
      assert_int_equal(bppsa_io_open_count(), open);
      if (fault.failed == 0) {
        assert_int_equal(status, BPPSA_OK);
        break;
      }
      assert_true(status == BPPSA_ERR_IO || (status == BPPSA_OK && fault.kind == BPPSA_IO_CLOSE));
    }
  }
  shell("rm -rf small");
}

int main(void) {
  if (bppsa_audio_check() != BPPSA_OK) {
    print_message("skipped: %s\n", bppsa_last_error());
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_samples), cmocka_unit_test(test_settings),
                                     cmocka_unit_test(test_directories), cmocka_unit_test(test_bad_files),
                                     cmocka_unit_test(test_failures)};
  return cmocka_run_group_tests(tests, make_set, remove_set);
}
