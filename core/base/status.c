#include "core/base/status.h"
#include "core/base/decimal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MESSAGE_SIZE 512 /* with the terminating 0 */

static _Thread_local char last_error[MESSAGE_SIZE];

static const char *const status_names[] = {
    [BPPSA_OK] = "OK",
    [BPPSA_ERR_ARGUMENT] = "ERR_ARGUMENT",
    [BPPSA_ERR_SHAPE] = "ERR_SHAPE",
    [BPPSA_ERR_MEMORY] = "ERR_MEMORY",
    [BPPSA_ERR_UNSUPPORTED] = "ERR_UNSUPPORTED",
    [BPPSA_ERR_NUMERIC] = "ERR_NUMERIC",
    [BPPSA_ERR_IO] = "ERR_IO",
    [BPPSA_ERR_FORMAT] = "ERR_FORMAT",
    [BPPSA_ERR_CUDA] = "ERR_CUDA",
    [BPPSA_ERR_COMM] = "ERR_COMM",
    [BPPSA_ERR_LIBRARY] = "ERR_LIBRARY",
};

const char *bppsa_status_name(bppsa_status status) {
  const size_t count = sizeof status_names / sizeof status_names[0];
  return (size_t)status < count ? status_names[status] : "ERR_UNKNOWN";
}

const char *bppsa_last_error(void) {
  return last_error;
}

/* Removes an incomplete UTF-8 character from the end of a truncated text. */
static void drop_cut_character(char *text) {
  size_t end = strlen(text);
  size_t start = end;
  while (start > 0 && end - start < 4) {
    const unsigned char byte = (unsigned char)text[--start];
    if ((byte & 0xC0u) != 0x80u) {
      const size_t need = byte >= 0xF0u ? 4 : byte >= 0xE0u ? 3 : byte >= 0xC0u ? 2 : 1;
      if (end - start < need) {
        text[start] = '\0';
      }
      return;
    }
  }
}

/* The number of bytes of the UTF-8 character that begins at `text`; 0: none does. */
static int character_size(const unsigned char *text) {
  static const struct {
    unsigned char first, last; /* values of the first byte */
    unsigned char low, high;   /* values of the second one; those of the others are 0x80 .. 0xBF */
    int size;
  } forms[] = {{0x01, 0x7F, 0, 0, 1},       {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
               {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
               {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; ++f) {
    if (text[0] < forms[f].first || text[0] > forms[f].last) {
      continue;
    }
    bool whole = forms[f].size == 1 || (text[1] >= forms[f].low && text[1] <= forms[f].high);
    for (int i = 2; whole && i < forms[f].size; ++i) {
      whole = (text[i] & 0xC0u) == 0x80u;
    }
    return whole ? forms[f].size : 0;
  }
  return 0;
}

/* The number of bytes of the control character that begins at `text`; 0: no control character begins there. */
static int control_size(const char *text) {
  const unsigned char *c = (const unsigned char *)text;
  if (*c < 0x20 || *c == 0x7F) {
    return *c != '\0' ? 1 : 0;
  }
  return *c == 0xC2 && c[1] >= 0x80 && c[1] <= 0x9F ? 2 : 0;
}

bool bppsa_has_control_characters(const char *text) {
  while (*text != '\0' && control_size(text) == 0) {
    ++text;
  }
  return *text != '\0';
}

void bppsa_make_printable(char *text) {
  while (*text != '\0') {
    const int control = control_size(text), size = character_size((const unsigned char *)text), wrong = size == 0 ? 1 : control;
    memset(text, '?', (size_t)wrong);
    text += wrong > 0 ? wrong : size;
  }
}

/* Formats into `text`, which must not be last_error, because an argument may be the last error itself. */
static void format_message(char *text, const char *format, va_list arguments) {
  const int length = bppsa_vprint(text, MESSAGE_SIZE, format, arguments);
  if (length < 0) {
    snprintf(text, MESSAGE_SIZE, "%s", format);
  }
  if (length >= MESSAGE_SIZE) {
    drop_cut_character(text);
  }
  bppsa_make_printable(text); /* a message is one line of UTF-8, whatever a file has, and cannot control a terminal */
}

bppsa_status bppsa_fail(bppsa_status status, const char *format, ...) {
  char text[MESSAGE_SIZE];
  va_list arguments;
  va_start(arguments, format);
  format_message(text, format, arguments);
  va_end(arguments);
  memcpy(last_error, text, sizeof text);
  return status;
}

bppsa_status bppsa_fail_prefix(bppsa_status status, const char *format, ...) {
  char prefix[MESSAGE_SIZE];
  va_list arguments;
  va_start(arguments, format);
  format_message(prefix, format, arguments);
  va_end(arguments);
  return bppsa_fail(status, "%s: %s", prefix, last_error);
}

bppsa_status bppsa_input_status(bppsa_status status) {
  return status == BPPSA_ERR_IO ? BPPSA_ERR_ARGUMENT : status;
}
