/* Counts words in a printed text. */
#ifndef BPPSA_TESTS_SUPPORT_COUNT_H
#define BPPSA_TESTS_SUPPORT_COUNT_H

#include <string.h>

/* Counts how often the word is in the text; occurrences may overlap. */
static inline int count_of(const char *text, const char *word) {
  int found = 0;
  for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
    ++found;
  }
  return found;
}

#endif
