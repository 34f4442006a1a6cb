/* The rule for names of WAV files, which the writer and the reader of instrument directories share. Internal to the library. */
#ifndef BPPSA_AUDIO_NAMES_H
#define BPPSA_AUDIO_NAMES_H

#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* Is it NAME.wav, in upper or lower case, and not hidden? */
static inline bool bppsa_is_wav_name(const char *name) {
  const size_t length = strlen(name);
  return length > 4 && name[0] != '.' && strcasecmp(name + length - 4, ".wav") == 0;
}

#endif
