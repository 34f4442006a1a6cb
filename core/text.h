/* Text: a string that grows, and the word that a mistyped one was meant to be. */
#ifndef BPPSA_CORE_TEXT_H
#define BPPSA_CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

/* Growing text; once an allocation has failed nothing is added and `failed` stays set. */
typedef struct {
  char *text; /* owned: bppsa_free */
  size_t size, room;
  bool failed;
} bppsa_text;

void bppsa_text_add(bppsa_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds `size` characters as they are. */
void bppsa_text_append(bppsa_text *text, const char *characters, size_t size);
/* A number by the fewest digits that read back as the same number (strtod), with a point whatever the locale: "0.1", "-2050",
 * "1e-7", "5e-324"; without an exponent from 1e-5 to below 1e16. "nan", "inf", "-inf". Returns text. */
#define BPPSA_REAL_TEXT 40
const char *bppsa_real_text(double value, char text[BPPSA_REAL_TEXT]);
void bppsa_text_add_real(bppsa_text *text, double value);
/* Cells of a CSV file: each behind a comma, empty where the value is not finite. */
void bppsa_text_add_cells(bppsa_text *text, int count, const double *values);
/* Adds it with & < > " replaced by entities. */
void bppsa_text_add_escaped(bppsa_text *text, const char *words);
void bppsa_text_free(bppsa_text *text);
/* ERR_MEMORY when something was lost. */
bppsa_status bppsa_text_check(const bppsa_text *text);

/* The candidate that a mistyped word most likely meant, or NULL. candidates: NULL-terminated. A word of more than
 * BPPSA_SUGGESTION_LIMIT characters gets none. */
#define BPPSA_SUGGESTION_LIMIT 40
const char *bppsa_suggest(const char *word, const char *const *candidates);
/* "; did you mean CANDIDATE?" or "". Returns text. */
const char *bppsa_suggestion(const char *word, const char *const *candidates, char *text, size_t size);

#endif
