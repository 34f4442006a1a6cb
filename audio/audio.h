/* Says whether this build reads audio, and with which libraries. */
#ifndef BPPSA_AUDIO_AUDIO_H
#define BPPSA_AUDIO_AUDIO_H

#include <stdbool.h>

#include "core/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BPPSA_AUDIO_RATE 44100 /* Hz; everything is computed at this rate */

typedef struct {
  bool built;       /* with libsndfile, libsamplerate and libavutil, which are loaded for the first sound */
  bool found;       /* all three are installed */
  char detail[256]; /* the libraries and their versions, or what to install */
} bppsa_audio_report;

void bppsa_audio_probe(bppsa_audio_report *report);

/* Returns OK; ERR_UNSUPPORTED in a build without audio; or ERR_LIBRARY, whose message names the missing packages. */
bppsa_status bppsa_audio_check(void);

#ifdef __cplusplus
}
#endif
#endif
