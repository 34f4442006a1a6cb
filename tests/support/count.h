/* How often something is in a text that was printed. */
#ifndef BPPSA_TESTS_SUPPORT_COUNT_H
#define BPPSA_TESTS_SUPPORT_COUNT_H

#include <string.h>

/* How often the word is in the text; places may overlap. */
static inline int count_of(const char *text, const char *word) {
  int found = 0;
  for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
    ++found;
  }
  return found;
}

#endif
