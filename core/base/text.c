#include "core/base/text.h"
#include "core/base/decimal.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"

static bool reserve(bppsa_text *text, size_t more) {
  if (text->failed) {
    return false;
  }
  if (text->size + more + 1 > text->room) {
    const size_t room = 2 * (text->size + more) + 256;
    char *grown = bppsa_realloc(text->text, room);
    if (grown == NULL) {
      text->failed = true;
      return false;
    }
    text->text = grown;
    text->room = room;
  }
  return true;
}

/* Writes behind the text; where the room does not suffice, makes room and writes once more. */
void bppsa_text_add(bppsa_text *text, const char *format, ...) {
  const size_t room = text->failed || text->text == NULL ? 0 : text->room - text->size;
  va_list arguments;
  va_start(arguments, format);
  const int length = bppsa_vprint(room > 0 ? text->text + text->size : NULL, room, format, arguments);
  va_end(arguments);
  if (length >= 0 && (size_t)length < room) {
    text->size += (size_t)length;
    return;
  }
  if (room > 0) {
    text->text[text->size] = '\0'; /* what fitted is not kept */
  }
  if (length < 0 || !reserve(text, (size_t)length)) {
    return;
  }
  va_start(arguments, format);
  bppsa_vprint(text->text + text->size, (size_t)length + 1, format, arguments);
  va_end(arguments);
  text->size += (size_t)length;
}

void bppsa_text_append(bppsa_text *text, const char *characters, size_t size) {
  if (reserve(text, size)) {
    memcpy(text->text + text->size, characters, size);
    text->size += size;
    text->text[text->size] = '\0';
  }
}

/* ---- numbers ---- */

enum { MOST_DIGITS = 17, FIXED_FROM = -5, FIXED_BELOW = 16 }; /* exponents */

/* |value| rounded to `count` digits without trailing zeros: 0.d1 d2 .. times 10^(*exponent + 1). The digits are taken from
 * printf's text, whose decimal point depends on the locale. Returns their number; *same: they read back as the value. */
static int round_digits(double value, int count, char digits[MOST_DIGITS + 1], int *exponent, bool *same) {
  char printed[BPPSA_REAL_TEXT];
  int length = 0;
  bppsa_print(printed, sizeof printed, "%.*e", count - 1, value);
  const char *end = strchr(printed, 'e');
  for (const char *at = printed; at < end && length < MOST_DIGITS; ++at) {
    if (*at >= '0' && *at <= '9') {
      digits[length++] = *at;
    }
  }
  while (length > 1 && digits[length - 1] == '0') {
    --length;
  }
  digits[length] = '\0';
  *exponent = (int)strtol(end + 1, NULL, 10);
  *same = bppsa_read_real(printed, NULL) == value;
  return length;
}

const char *bppsa_real_text(double value, char text[BPPSA_REAL_TEXT]) {
  char digits[MOST_DIGITS + 1];
  int exponent = 0, length = 0;
  const char *sign = signbit(value) ? "-" : "";
  if (!isfinite(value)) {
    snprintf(text, BPPSA_REAL_TEXT, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
    return text;
  }
  bool same = false; /* 15 digits represent every shorter number except subnormal ones */
  for (int count = fabs(value) < DBL_MIN ? 1 : 15; !same && count <= MOST_DIGITS; ++count) {
    length = round_digits(fabs(value), count, digits, &exponent, &same);
  }
  const int whole = exponent + 1; /* digits in front of the point */
  if (exponent < FIXED_FROM || exponent >= FIXED_BELOW) {
    snprintf(text, BPPSA_REAL_TEXT, "%s%c%s%se%d", sign, digits[0], length > 1 ? "." : "", digits + 1, exponent);
  } else if (whole <= 0) {
    snprintf(text, BPPSA_REAL_TEXT, "%s0.%.*s%s", sign, -whole, "00000", digits);
  } else if (length <= whole) {
    snprintf(text, BPPSA_REAL_TEXT, "%s%s%.*s", sign, digits, whole - length, "0000000000000000");
  } else {
    snprintf(text, BPPSA_REAL_TEXT, "%s%.*s.%s", sign, whole, digits, digits + whole);
  }
  return text;
}

void bppsa_text_add_real(bppsa_text *text, double value) {
  char words[BPPSA_REAL_TEXT];
  bppsa_text_add(text, "%s", bppsa_real_text(value, words));
}

void bppsa_text_add_cells(bppsa_text *text, int count, const double *values) {
  for (int i = 0; i < count; ++i) {
    char words[BPPSA_REAL_TEXT];
    bppsa_text_add(text, ",%s", isfinite(values[i]) ? bppsa_real_text(values[i], words) : "");
  }
}

void bppsa_text_add_escaped(bppsa_text *text, const char *words) {
  for (; *words != '\0'; ++words) {
    switch (*words) {
    case '&':
      bppsa_text_add(text, "&amp;");
      break;
    case '<':
      bppsa_text_add(text, "&lt;");
      break;
    case '>':
      bppsa_text_add(text, "&gt;");
      break;
    case '"':
      bppsa_text_add(text, "&quot;");
      break;
    case '\'':
      bppsa_text_add(text, "&#39;");
      break;
    default: /* XML allows no other control characters */
      bppsa_text_add(text, "%c", (unsigned char)*words >= ' ' || *words == '\n' || *words == '\t' ? *words : '?');
      break;
    }
  }
}

int64_t bppsa_text_order_mark(const char *text, int64_t size) {
  return size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

bppsa_status bppsa_text_check_encoding(const char *path, const char *text, int64_t size) {
  const bool wide = size >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0 ||
                                  (text[0] == '\0') != (text[1] == '\0'));
  return wide ? bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte 0: text in UTF-16, expected UTF-8", path) : BPPSA_OK;
}

void bppsa_text_free(bppsa_text *text) {
  bppsa_free(text->text);
  *text = (bppsa_text){0};
}

bppsa_status bppsa_text_check(const bppsa_text *text) {
  return text->failed ? BPPSA_ERR_MEMORY : BPPSA_OK; /* the allocator has set the error */
}

/* The distance of optimal string alignment: insertions, deletions, substitutions and swaps of neighbours. */
static size_t edit_distance(const char *a, const char *b) {
  const size_t m = strlen(a), n = strlen(b);
  size_t rows[3][BPPSA_SUGGESTION_LIMIT + 1];
  size_t *before = rows[0], *last = rows[1], *row = rows[2];
  for (size_t j = 0; j <= n; ++j) {
    last[j] = j;
  }
  for (size_t i = 1; i <= m; ++i) {
    row[0] = i;
    for (size_t j = 1; j <= n; ++j) {
      const size_t change = last[j - 1] + (a[i - 1] != b[j - 1]);
      size_t best = last[j] + 1 < row[j - 1] + 1 ? last[j] + 1 : row[j - 1] + 1;
      best = change < best ? change : best;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best) {
        best = before[j - 2] + 1;
      }
      row[j] = best;
    }
    size_t *oldest = before;
    before = last;
    last = row;
    row = oldest;
  }
  return last[n];
}

const char *bppsa_suggest(const char *word, const char *const *candidates) {
  const char *best = NULL;
  const char *bare = word + strspn(word, "-"); /* "-json" means --json */
  const size_t length = strlen(bare);
  if (length == 0 || length > BPPSA_SUGGESTION_LIMIT) {
    return NULL;
  }
  size_t limit = length < 3 ? 1 : 1 + length / 4;
  for (int i = 0; candidates[i] != NULL; ++i) {
    const char *candidate = candidates[i] + strspn(candidates[i], "-");
    if (strlen(candidate) > BPPSA_SUGGESTION_LIMIT) {
      continue;
    }
    const size_t distance = edit_distance(bare, candidate);
    if (distance <= limit && distance < strlen(candidate)) {
      best = candidates[i];
      limit = distance == 0 ? 0 : distance - 1; /* only strictly better candidates from here on */
      if (distance == 0) {
        return best;
      }
    }
  }
  for (int i = 0; best == NULL && length >= 3 && candidates[i] != NULL; ++i) { /* the word is the beginning of a candidate */
    if (strncmp(bare, candidates[i] + strspn(candidates[i], "-"), length) == 0) {
      best = candidates[i];
    }
  }
  return best;
}

const char *bppsa_suggestion(const char *word, const char *const *candidates, char *text, size_t size) {
  const char *best = bppsa_suggest(word, candidates);
  text[0] = '\0';
  if (best != NULL) {
    snprintf(text, size, "; did you mean %s?", best);
  }
  return text;
}

bool bppsa_text_numbers(const char *text, int most, int64_t *numbers, int *count) {
  *count = 0;
  for (const char *at = text;; ++at) {
    const size_t length = strspn(at, "0123456789");
    const char end = at[length];
    if (*count == most || length < 1 || length > 10 || (end != ',' && end != '\0')) {
      return false;
    }
    numbers[(*count)++] = strtoll(at, NULL, 10);
    at += length;
    if (end == '\0') {
      return true;
    }
  }
}

const char *bppsa_text_choices(const char *(*item)(const void *context, int32_t index), const void *context, char *text,
                               size_t size) {
  size_t used = 0;
  text[0] = '\0';
  for (int32_t i = 0; item(context, i) != NULL && used < size; ++i) {
    const char *between = i == 0 ? "" : item(context, i + 1) == NULL ? " or " : ", ";
    used += (size_t)snprintf(text + used, size - used, "%s%s", between, item(context, i));
  }
  return text;
}

const char *bppsa_text_si(double value, const char *unit, char *text, size_t size) {
  static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  size_t power = 0;
  while (fabs(value) >= 999.5 && power + 1 < sizeof prefixes / sizeof prefixes[0]) {
    value /= 1000;
    ++power;
  }
  const char *between = power > 0 || unit[0] != '\0' ? " " : "";
  bppsa_print(text, size, "%.3g%s%s%s", value, between, prefixes[power], unit);
  return text;
}

/* ---- files of another kind ---- */

const char *bppsa_text_beginning(const void *bytes, int64_t size, char text[BPPSA_BEGINNING_TEXT]) {
  enum { SHOWN = 8 };
  const unsigned char *byte = bytes;
  size_t used = 0;
  text[0] = '\0';
  for (int64_t i = 0; i < size && i < SHOWN; ++i) {
    const bool plain = byte[i] >= ' ' && byte[i] < 0x7f && byte[i] != '\\';
    used += (size_t)snprintf(text + used, BPPSA_BEGINNING_TEXT - used, plain ? "%c" : "\\x%02x", byte[i]);
  }
  return text;
}
