/* A line of text under construction, on the stack; cut when it is full. Internal. */
#ifndef BPPSA_TRAIN_LINE_H
#define BPPSA_TRAIN_LINE_H

#include <stddef.h>

typedef struct {
  char text[2048]; /* 0-terminated */
  size_t length;
} bppsa_line;

void bppsa_line_add(bppsa_line *line, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

#endif
