#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#endif
#include "terminal/output.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/alloc.h"
#include "core/base/decimal.h"

static bppsa_status write_failed(int reason) {
  return bppsa_fail(BPPSA_ERR_IO, "standard output: write failed (%s), expected it to take the results", strerror(reason));
}

void bppsa_output_make_lines_printable(char *text) {
  for (char *line = text, *end; line != NULL; line = end != NULL ? end + 1 : NULL) {
    end = strchr(line, '\n');
    if (end != NULL) {
      *end = '\0';
    }
    bppsa_make_printable(line);
    if (end != NULL) {
      *end = '\n';
    }
  }
}

/* Prints a text of `size` characters that has been measured by printf; `text` has room for them. */
static bool print_clean(FILE *out, char *text, size_t size, const char *format, va_list arguments) {
  if (vsnprintf(text, size + 1, format, arguments) < 0) {
    return false;
  }
  bppsa_output_make_lines_printable(text);
  return fputs(text, out) >= 0;
}

bppsa_status bppsa_output_print(const bppsa_output *to, const char *format, ...) {
  char text[4096]; /* no allocation, because results are printed even when memory is short */
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int size = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  const size_t room = size >= 0 ? (size_t)size + 1 : 0;
  /* A long text gets pages of its own. Where there are none it is printed as it is, because results matter more. */
  char *pages = room > sizeof text ? mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : text;
  errno = 0;
  const bool good = size < 0              ? false
                    : pages == MAP_FAILED ? vfprintf(to->out, format, again) >= 0
                                          : print_clean(to->out, pages, (size_t)size, format, again);
  const int reason = errno;
  va_end(again);
  if (pages != text && pages != MAP_FAILED) {
    (void)munmap(pages, room);
  }
  return good ? BPPSA_OK : write_failed(reason);
}

void bppsa_output_note(const bppsa_output *to, const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  bppsa_vprint(text, sizeof text, format, arguments);
  va_end(arguments);
  bppsa_make_printable(text);
  fprintf(to->err, "bppsa: note: %s\n", text);
}

bppsa_status bppsa_output_flush(FILE *out) {
  const int before = ferror(out) ? errno : 0; /* an earlier part of a long text may have been lost */
  errno = 0;
  return fflush(out) != 0 || ferror(out) ? write_failed(errno != 0 ? errno : before != 0 ? before : EIO) : BPPSA_OK;
}

bppsa_status bppsa_output_document(const bppsa_output *to, const char *text) {
  errno = 0;
  const bool good = fputs(text, to->out) >= 0 && fputc('\n', to->out) != EOF;
  return good ? bppsa_output_flush(to->out) : write_failed(errno);
}

bppsa_status bppsa_output_json(const bppsa_output *to, json_t *document) {
  char *text = NULL;
  BPPSA_TRY(bppsa_json_render(document, &text));
  const bppsa_status status = bppsa_output_document(to, text);
  bppsa_free(text);
  return status;
}
