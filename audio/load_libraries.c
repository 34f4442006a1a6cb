#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "audio/libraries.h"
#include "audio/load.h"
#include "core/compute/library.h"

#define TEXT_OF(value) #value
#define TEXT(value) TEXT_OF(value)

static bppsa_audio_functions loaded;
static char problem[256]; /* "": the libraries are loaded */

static void load(void) {
#define LOOK_UP(function) {#function, (void **)(void *)&loaded.function},
  static const bppsa_library_function sndfile[] = {BPPSA_SNDFILE_FUNCTIONS(LOOK_UP)},
                                      samplerate[] = {BPPSA_SAMPLERATE_FUNCTIONS(LOOK_UP)},
                                      avutil[] = {BPPSA_AVUTIL_FUNCTIONS(LOOK_UP)};
  static const struct {
    const char *file, *package; /* Debian's */
    const bppsa_library_function *functions;
    size_t count;
  } libraries[] = {
      {"libsndfile.so.1", "libsndfile1", sndfile, sizeof sndfile / sizeof sndfile[0]},
      {"libsamplerate.so.0", "libsamplerate0", samplerate, sizeof samplerate / sizeof samplerate[0]},
      {"libavutil.so." TEXT(LIBAVUTIL_VERSION_MAJOR), "libavutil" TEXT(LIBAVUTIL_VERSION_MAJOR), avutil,
       sizeof avutil / sizeof avutil[0]},
  };
  for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; ++i) {
    char why[200];
    if (!bppsa_library_load(libraries[i].file, libraries[i].count, libraries[i].functions, why, sizeof why)) {
      snprintf(problem, sizeof problem, "%s; install %s", why, libraries[i].package);
      return;
    }
  }
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

bppsa_status bppsa_audio_load(const bppsa_audio_functions **functions) {
  (void)pthread_once(&once, load);
  if (problem[0] != '\0') {
    return bppsa_fail(BPPSA_ERR_LIBRARY, "audio: %s", problem);
  }
  *functions = &loaded;
  return BPPSA_OK;
}

void bppsa_audio_probe(bppsa_audio_report *report) {
  const bppsa_audio_functions *f = NULL;
  *report = (bppsa_audio_report){.built = true};
  if (bppsa_audio_load(&f) != BPPSA_OK) {
    snprintf(report->detail, sizeof report->detail, "%s", problem);
    return;
  }
  const unsigned version = f->avutil_version();
  const char *converter = f->src_get_version();
  report->found = true;
  snprintf(report->detail, sizeof report->detail, "%s, %.*s, libavutil-%u.%u.%u", f->sf_version_string(),
           (int)strcspn(converter, " "), converter, AV_VERSION_MAJOR(version), AV_VERSION_MINOR(version),
           AV_VERSION_MICRO(version));
}
