/* Text that grows, numbers as text, and suggestions for mistyped words. */
#ifndef BPPSA_CORE_BASE_TEXT_H
#define BPPSA_CORE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

/* A text that grows. After a failed allocation nothing more is added and `failed` stays set. */
typedef struct {
  char *text; /* owned: bppsa_free */
  size_t size, room;
  bool failed;
} bppsa_text;

void bppsa_text_add(bppsa_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds `size` characters as they are. */
void bppsa_text_append(bppsa_text *text, const char *characters, size_t size);
/* A number with the fewest digits that read back as the same number (strtod), with a decimal point whatever the locale: "0.1",
 * "-2050", "1e-7", "5e-324"; without an exponent from 1e-5 to below 1e16. "nan", "inf", "-inf". Returns text. */
#define BPPSA_REAL_TEXT 40
const char *bppsa_real_text(double value, char text[BPPSA_REAL_TEXT]);
void bppsa_text_add_real(bppsa_text *text, double value);
/* Adds cells of a CSV file, each behind a comma; a value that is not finite gives an empty cell. */
void bppsa_text_add_cells(bppsa_text *text, int count, const double *values);
/* Adds a text for HTML and SVG: & < > " ' become entities, and control characters that XML forbids become question marks. */
void bppsa_text_add_escaped(bppsa_text *text, const char *words);
void bppsa_text_free(bppsa_text *text);
/* Returns the size of the UTF-8 byte order mark with which some editors begin a text: 3, or 0 where there is none. */
int64_t bppsa_text_order_mark(const char *text, int64_t size);
/* Refuses a file in UTF-16, which some programs write: it begins with that mark, or one of its first two bytes is 0. ERR_FORMAT. */
bppsa_status bppsa_text_check_encoding(const char *path, const char *text, int64_t size);
/* Writes up to eight of the first bytes of a file that is of an unexpected kind, for messages: "<!DOCTYP", "\x1f\x8b\x08\x00".
 * Returns text. */
#define BPPSA_BEGINNING_TEXT 33
const char *bppsa_text_beginning(const void *bytes, int64_t size, char text[BPPSA_BEGINNING_TEXT]);
/* ERR_MEMORY if some text was lost. */
bppsa_status bppsa_text_check(const bppsa_text *text);

/* "1.23 MB": a number of units with the prefixes of 1000, for people. Returns text. */
#define BPPSA_SI_TEXT 32
const char *bppsa_text_si(double value, const char *unit, char *text, size_t size);

/* Reads whole numbers of at most ten digits, separated by commas, "3,5", and counts them. Returns false for any other text, and
 * for more than `most` numbers. */
bool bppsa_text_numbers(const char *text, int most, int64_t *numbers, int *count);

/* Writes the words item(context, 0), item(context, 1), .. up to the first NULL: "a", "a or b", "a, b or c". Returns text. */
const char *bppsa_text_choices(const char *(*item)(const void *context, int32_t index), const void *context, char *text,
                               size_t size);

/* The candidate that a mistyped word most likely meant, or NULL. candidates: NULL-terminated. A word of more than
 * BPPSA_SUGGESTION_LIMIT characters gets no suggestion. */
#define BPPSA_SUGGESTION_LIMIT 40
const char *bppsa_suggest(const char *word, const char *const *candidates);
/* "; did you mean CANDIDATE?" or "". Returns text. */
const char *bppsa_suggestion(const char *word, const char *const *candidates, char *text, size_t size);

#endif
