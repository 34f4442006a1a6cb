/* Names of files: what both the writer and the reader of instrument directories ask. Internal to the library. */
#ifndef BPPSA_AUDIO_NAMES_H
#define BPPSA_AUDIO_NAMES_H

#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* NAME.wav in any case, not hidden. */
static inline bool bppsa_is_wav_name(const char *name) {
  const size_t length = strlen(name);
  return length > 4 && name[0] != '.' && strcasecmp(name + length - 4, ".wav") == 0;
}

#endif
