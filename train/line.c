#include "train/line.h"

#include <stdarg.h>

#include "core/base/decimal.h"

void bppsa_line_add(bppsa_line *line, const char *format, ...) {
  const size_t room = sizeof line->text - line->length;
  va_list arguments;
  va_start(arguments, format);
  const int added = bppsa_vprint(line->text + line->length, room, format, arguments);
  va_end(arguments);
  if (added > 0) {
    line->length += (size_t)added < room ? (size_t)added : room - 1;
  }
}
