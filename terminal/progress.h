/* One updating line on standard error, only where that is a terminal. */
#ifndef BPPSA_TERMINAL_PROGRESS_H
#define BPPSA_TERMINAL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
  FILE *stream; /* NULL: standard error is no terminal, nothing is shown */
  double last;  /* seconds of the last update */
  bool shown;   /* a line is on the screen */
} bppsa_progress_line;

bppsa_progress_line bppsa_progress_start(FILE *err);
/* True about ten times a second: time to show another line. */
bool bppsa_progress_due(bppsa_progress_line *line);
void bppsa_progress_show(bppsa_progress_line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Removes the line, so that something else can be printed. */
void bppsa_progress_clear(bppsa_progress_line *line);
/* "1:02:03" or "2:03". Returns text. */
const char *bppsa_progress_time(double seconds, char *text, size_t size);

#endif
