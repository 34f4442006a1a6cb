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
/* Adds it with & < > " replaced by entities. */
void bppsa_text_add_escaped(bppsa_text *text, const char *words);
void bppsa_text_free(bppsa_text *text);
/* ERR_MEMORY when something was lost. */
bppsa_status bppsa_text_check(const bppsa_text *text);

/* The candidate that a mistyped word most likely meant, or NULL. candidates: NULL-terminated. A word of more than BPPSA_SUGGESTION_LIMIT characters gets none. */
#define BPPSA_SUGGESTION_LIMIT 40
const char *bppsa_suggest(const char *word, const char *const *candidates);
/* "; did you mean CANDIDATE?" or "". Returns text. */
const char *bppsa_suggestion(const char *word, const char *const *candidates, char *text, size_t size);

#endif
