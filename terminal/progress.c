#include "terminal/progress.h"

#include <math.h>
#include <stdarg.h>
#include <unistd.h>

#include "core/base/clock.h"

#define INTERVAL 0.1 /* seconds between updates */

bppsa_progress_line bppsa_progress_start(FILE *err) {
  const int descriptor = err != NULL ? fileno(err) : -1;
  const bool terminal = descriptor >= 0 && isatty(descriptor);
  return (bppsa_progress_line){.stream = terminal ? err : NULL};
}

bool bppsa_progress_due(bppsa_progress_line *line) {
  if (line->stream == NULL) {
    return false;
  }
  const double time = bppsa_now();
  if (time - line->last < INTERVAL) {
    return false;
  }
  line->last = time;
  return true;
}

void bppsa_progress_show(bppsa_progress_line *line, const char *format, ...) {
  if (line->stream == NULL) {
    return;
  }
  va_list arguments;
  va_start(arguments, format);
  fputs("\r", line->stream);
  vfprintf(line->stream, format, arguments);
  fputs("\033[K", line->stream);
  fflush(line->stream);
  va_end(arguments);
  line->shown = true;
}

void bppsa_progress_clear(bppsa_progress_line *line) {
  if (line->shown) {
    fputs("\r\033[K", line->stream);
    fflush(line->stream);
    line->shown = false;
  }
}

const char *bppsa_progress_time(double seconds, char *text, size_t size) {
  if (!(seconds >= 0) || seconds > 1e7) {
    snprintf(text, size, "?");
    return text;
  }
  const long total = lround(seconds);
  if (total >= 3600) {
    snprintf(text, size, "%ld:%02ld:%02ld", total / 3600, total / 60 % 60, total % 60);
  } else {
    snprintf(text, size, "%ld:%02ld", total / 60, total % 60);
  }
  return text;
}
