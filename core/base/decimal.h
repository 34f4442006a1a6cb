/* Numbers as text: written and read with a decimal point, whatever the program's locale. The library formats and reads real
 * numbers only with these functions. */
#ifndef BPPSA_CORE_BASE_DECIMAL_H
#define BPPSA_CORE_BASE_DECIMAL_H

#include <stdarg.h>
#include <stddef.h>

/* snprintf and vsnprintf in the C locale. */
int bppsa_print(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
int bppsa_vprint(char *text, size_t size, const char *format, va_list arguments) __attribute__((format(printf, 3, 0)));

enum { BPPSA_NUMBER_TEXT = 32 };
/* Writes a number of JSON with all its digits, "0.10000000000000001", or "null" for what is not finite. Returns text. */
const char *bppsa_print_number(double value, char text[BPPSA_NUMBER_TEXT]);

/* strtod in the C locale, without hexadecimal numbers: *end is the first character after the number, or `text` if it does not
 * begin with a decimal number, inf or nan. "0x2" is the number 0 in front of "x2". */
double bppsa_read_real(const char *text, char **end);

#endif
