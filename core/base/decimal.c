#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "core/base/decimal.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t plain; /* the C locale, which needs no memory */

static void make(void) {
  plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Sets this thread's locale to the C locale. Returns the previous locale; uselocale restores it. */
static locale_t enter(void) {
  pthread_once(&once, make);
  return uselocale(plain);
}

int bppsa_vprint(char *text, size_t size, const char *format, va_list arguments) {
  const locale_t before = enter();
  const int length = vsnprintf(text, size, format, arguments);
  (void)uselocale(before);
  return length;
}

int bppsa_print(char *text, size_t size, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = bppsa_vprint(text, size, format, arguments);
  va_end(arguments);
  return length;
}

const char *bppsa_print_number(double value, char text[BPPSA_NUMBER_TEXT]) {
  (void)bppsa_print(text, BPPSA_NUMBER_TEXT, isfinite(value) ? "%.17g" : "null", value);
  return text;
}

/* Returns the 0 of a hexadecimal number's 0x, behind which strtod would read on; NULL where no such number begins. */
static const char *zero_before_x(const char *text) {
  text += strspn(text, " \t\n\v\f\r");
  text += *text == '+' || *text == '-';
  return text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? text : NULL;
}

double bppsa_read_real(const char *text, char **end) {
  const char *zero = zero_before_x(text);
  if (zero != NULL) {
    if (end != NULL) {
      *end = (char *)(uintptr_t)(zero + 1);
    }
    return zero > text && zero[-1] == '-' ? -0.0 : 0;
  }
  const locale_t before = enter();
  const double value = strtod(text, end);
  (void)uselocale(before);
  return value;
}
