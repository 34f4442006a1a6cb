/* Reader: train/data/dataset_audio.c, core/files/directory.c, audio/features.c: a directory of classes. The first part has the
 * names of files, one a line, CLASS/NAME; the second is the sound that all of them hold, 16-bit samples. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audio/audio.h"
#include "audio/wav.h"
#include "core/base/alloc.h"
#include "tests/fuzz/fuzz.h"
#include "train/data/dataset.h"

enum { MOST_FILES = 4, LEAST_FRAMES = 2100 };

/* Writes the WAV file at CLASS/NAME below the directory; a name that would lead out of it is not taken. */
static void write_sound(char *name, const fuzz_part *sound, int number) {
  static int16_t samples[4 * LEAST_FRAMES];
  char path[256], *slash = strchr(name, '/');
  if (strlen(name) > 60 || name[0] == '.' || name[0] == '\0' ||
      (slash != NULL && (strchr(slash + 1, '/') != NULL || slash[1] == '.'))) {
    return;
  }
  if (slash != NULL) {
    *slash = '\0';
    snprintf(path, sizeof path, "sounds/%s", name);
    (void)mkdir(fuzz_path(path), 0777);
    *slash = '/';
  }
  snprintf(path, sizeof path, "sounds/%s", name);
  for (int i = 0; i < 4 * LEAST_FRAMES; ++i) {
    samples[i] = (int16_t)(i * 97 % 20011 + (sound->size > 0 ? sound->data[(size_t)i % sound->size] : 0) + number);
  }
  (void)bppsa_wav_write(fuzz_path(path), 2 * LEAST_FRAMES - (int64_t)(sound->size % 3), samples);
}

bppsa_status fuzz_run(const fuzz_input *input) {
  char spec[300], command[300], *text = fuzz_text(&input->part[0]), *rest = text;
  bppsa_dataset *dataset = NULL;
  bppsa_dataset_options options = bppsa_dataset_options_default();
  snprintf(command, sizeof command, "rm -rf '%s' && mkdir '%s'", fuzz_path("sounds"), fuzz_path("sounds"));
  FUZZ_CHECK(system(command) == 0);
  int files = 0;
  for (char *name = strtok_r(text, "\n", &rest); name != NULL && files < MOST_FILES; name = strtok_r(NULL, "\n", &rest)) {
    write_sound(name, &input->part[1], files++);
  }
  free(text);
  options.seed = input->options;
  snprintf(spec, sizeof spec, "irmas:%s", fuzz_path("sounds"));
  const bppsa_status status = bppsa_dataset_create(spec, &options, &dataset);
  if (status == BPPSA_OK) {
    FUZZ_CHECK(dataset->samples >= 1 && dataset->samples <= MOST_FILES && dataset->classes == 11);
  }
  bppsa_dataset_destroy(dataset);
  return status;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const char *const names[] = {"cel/a.wav\nvoi/b.wav\nvoi/c.WAV\n", "cel/a.wav\nother/b.wav\nx\n", "cel/a.txt\n", "cel\n"};
  if (index >= (int)(sizeof names / sizeof names[0])) {
    return false;
  }
  fuzz_add_number(seed, 3, 1);
  fuzz_add_part_text(seed, names[index]);
  fuzz_add_part(seed, "\1\2\3", 3);
  return true;
}
