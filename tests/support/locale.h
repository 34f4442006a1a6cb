/* Makes a locale with a decimal comma where the test runs; only localedef and its sources must be installed. */
#ifndef BPPSA_TESTS_SUPPORT_LOCALE_H
#define BPPSA_TESTS_SUPPORT_LOCALE_H

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMA_LOCALE "de_DE.UTF-8"

/* Ends the program as skipped (77), with the reason, if such a locale cannot be made. */
static inline void make_comma_locale(void) {
  char directory[1024], text[16];
  if (getcwd(directory, sizeof directory - 32) == NULL ||
      system("mkdir -p locale && { test -d locale/" COMMA_LOCALE " || localedef -i de_DE -f UTF-8 locale/" COMMA_LOCALE "; }") !=
          0) {
    printf("skipped: localedef cannot make the locale " COMMA_LOCALE " (packages libc-bin and locales)\n");
    exit(77);
  }
  strcat(directory, "/locale");
  setenv("LOCPATH", directory, 1);
  if (setlocale(LC_ALL, COMMA_LOCALE) == NULL || snprintf(text, sizeof text, "%.1f", 0.5) != 3 || strcmp(text, "0,5") != 0) {
    printf("skipped: the C library does not take the locale " COMMA_LOCALE " from LOCPATH\n");
    exit(77);
  }
  setlocale(LC_ALL, "C");
}

#endif
