/* Where a program's results go: a table for people, or one JSON document. */
#ifndef BPPSA_TERMINAL_OUTPUT_H
#define BPPSA_TERMINAL_OUTPUT_H

#include <stdio.h>

#include "core/files/json.h"

typedef struct {
  FILE *out; /* results */
  FILE *err; /* progress and notes */
  bool json; /* one JSON document on `out`, and nothing else */
} bppsa_output;

/* Makes every line of a text printable (bppsa_make_printable); its line feeds stay. */
void bppsa_output_make_lines_printable(char *text);
/* printf to `out`; the text is made printable, line by line. Allocates nothing. ERR_IO: the text could not be written. */
bppsa_status bppsa_output_print(const bppsa_output *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints "bppsa: note: " and a line to `err`, made printable: what the user should know of a run that goes on. */
void bppsa_output_note(const bppsa_output *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Flushes a stream. ERR_IO: anything that was written to it is lost. */
bppsa_status bppsa_output_flush(FILE *out);
/* Prints the text of a document (bppsa_json_render) and a line end. ERR_IO. */
bppsa_status bppsa_output_document(const bppsa_output *to, const char *text);
/* Renders and prints a document, which it releases; NULL stands for one that found no memory. ERR_MEMORY, ERR_IO. */
bppsa_status bppsa_output_json(const bppsa_output *to, json_t *document);

#endif
