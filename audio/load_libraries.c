#include <stdio.h>
#include <string.h>

#include "audio/libraries.h"
#include "audio/load.h"
#include "core/compute/library.h"

static bppsa_audio_functions loaded;
static const bppsa_library_function sndfile[] = {BPPSA_SNDFILE_FUNCTIONS(BPPSA_LIBRARY_FUNCTION)},
                                    samplerate[] = {BPPSA_SAMPLERATE_FUNCTIONS(BPPSA_LIBRARY_FUNCTION)},
                                    avutil[] = {BPPSA_AVUTIL_FUNCTIONS(BPPSA_LIBRARY_FUNCTION)};
static const bppsa_library list[] = {BPPSA_LIBRARY("libsndfile.so.1", "libsndfile1", sndfile),
                                     BPPSA_LIBRARY("libsamplerate.so.0", "libsamplerate0", samplerate),
                                     BPPSA_LIBRARY("libavutil.so." BPPSA_LIBRARY_TEXT(LIBAVUTIL_VERSION_MAJOR),
                                                   "libavutil" BPPSA_LIBRARY_TEXT(LIBAVUTIL_VERSION_MAJOR), avutil),
                                     {.file = NULL}};
static bppsa_libraries libraries = BPPSA_LIBRARIES(list);

bppsa_status bppsa_audio_load(const bppsa_audio_functions **functions) {
  const char *problem = bppsa_libraries_load(&libraries);
  if (problem != NULL) {
    return bppsa_fail(BPPSA_ERR_LIBRARY, "audio: %s", problem);
  }
  *functions = &loaded;
  return BPPSA_OK;
}

void bppsa_audio_probe(bppsa_audio_report *report) {
  const bppsa_audio_functions *f = NULL;
  *report = (bppsa_audio_report){.built = true};
  if (bppsa_audio_load(&f) != BPPSA_OK) {
    snprintf(report->detail, sizeof report->detail, "%s", libraries.problem);
    return;
  }
  const unsigned version = f->avutil_version();
  const char *converter = f->src_get_version();
  report->found = true;
  snprintf(report->detail, sizeof report->detail, "%s, %.*s, libavutil-%u.%u.%u", f->sf_version_string(),
           (int)strcspn(converter, " "), converter, AV_VERSION_MAJOR(version), AV_VERSION_MINOR(version),
           AV_VERSION_MICRO(version));
}
