/* Matrix Market files: a header line, comments, a line "rows cols entries", then lines "row column value" that count from 1. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/decimal.h"
#include "core/base/text.h"
#include "core/files/file.h"
#include "jacobian/file.h"

/* ---- writing ---- */

static bppsa_status write_entries(bppsa_file_writer *file, const bppsa_csr *csr, bppsa_dtype dtype, const void *values) {
  char text[8192];
  size_t used = (size_t)snprintf(text, sizeof text, "%%%%MatrixMarket matrix coordinate real general\n%lld %lld %lld\n",
                                 (long long)csr->rows, (long long)csr->cols, (long long)csr->nnz);
  for (int64_t r = 0; r < csr->rows; ++r) {
    for (int64_t p = csr->row_ptr[r]; p < csr->row_ptr[r + 1]; ++p) {
      const double value = dtype == BPPSA_F32 ? (double)((const float *)values)[p] : ((const double *)values)[p];
      used += (size_t)bppsa_print(text + used, sizeof text - used, "%lld %lld %.*g\n", (long long)r + 1,
                                  (long long)csr->col[p] + 1, dtype == BPPSA_F32 ? 9 : 17, value);
      if (used > sizeof text - 128) {
        BPPSA_TRY(bppsa_file_writer_write(file, text, used));
        used = 0;
      }
    }
  }
  return bppsa_file_writer_write(file, text, used);
}

bppsa_status bppsa_csr_save_mtx(const char *path, const bppsa_csr *csr, bppsa_dtype dtype, const void *values) {
  BPPSA_REQUIRE(path != NULL && csr != NULL);
  BPPSA_REQUIRE(values != NULL || csr->nnz == 0);
  bppsa_file_writer *file = NULL;
  BPPSA_TRY(bppsa_file_writer_create(path, &file));
  const bppsa_status status = write_entries(file, csr, dtype, values);
  if (status != BPPSA_OK) {
    bppsa_file_writer_abort(file);
    return status;
  }
  return bppsa_file_writer_commit(file);
}

/* ---- reading ---- */

typedef struct cursor cursor;

/* A word of the head that says what the entries' values are. */
typedef struct {
  const char *name;
  bool (*take)(cursor *c, double *value); /* NULL: entries have no values */
  const char *expected;                   /* in an entry's line */
} field;

struct cursor {
  const char *path, *text; /* text ends with a 0 */
  int64_t size, at, line;
  int64_t begin; /* of the line that is read */
  const field *field;
  int mirror; /* 0: the file has every entry; 1, -1: it has one of (i, j) and (j, i), and the other is equal, or the negative */
};

/* Refuses the line that is read, and quotes it. */
static bppsa_status unexpected(const cursor *c, const char *expected) {
  enum { SHOWN = 80 };
  const char *line = c->text + c->begin;
  const int length = (int)strcspn(line, "\r\n");
  if (c->begin >= c->size) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: line %lld: the file ends there, expected %s", c->path, (long long)c->line, expected);
  }
  return bppsa_fail(BPPSA_ERR_FORMAT, "%s: line %lld: '%.*s%s', expected %s", c->path, (long long)c->line,
                    length < SHOWN ? length : SHOWN, line, length < SHOWN ? "" : "..", expected);
}

/* Advances to the first character of the next line that is neither blank nor a comment; false at the end. */
static bool next_line(cursor *c) {
  while (c->at < c->size) {
    const char *line = c->text + c->at;
    const size_t blank = strspn(line, " \t\r");
    c->begin = c->at;
    if (line[blank] != '\n' && line[blank] != '%' && line[blank] != '\0') {
      return true;
    }
    const char *end = memchr(line, '\n', (size_t)(c->size - c->at));
    if (end == NULL) {
      break;
    }
    c->at = end - c->text + 1;
    ++c->line;
  }
  c->begin = c->at = c->size;
  return false;
}

/* Checks that the rest of the line is blank. */
static bool end_line(cursor *c) {
  c->at += (int64_t)strspn(c->text + c->at, " \t\r");
  if (c->at < c->size && c->text[c->at] != '\n') {
    return false;
  }
  c->at += c->at < c->size;
  ++c->line;
  return true;
}

static bool take_count(cursor *c, int64_t *value) {
  c->at += (int64_t)strspn(c->text + c->at, " \t");
  int64_t number = 0, digits = 0;
  for (; isdigit((unsigned char)c->text[c->at]) && digits < 18; ++digits, ++c->at) {
    number = 10 * number + (c->text[c->at] - '0');
  }
  *value = number;
  return digits > 0 && !isdigit((unsigned char)c->text[c->at]);
}

static bool take_value(cursor *c, double *value) {
  c->at += (int64_t)strspn(c->text + c->at, " \t");
  char *end = NULL;
  if (c->text[c->at] == '\n' || c->text[c->at] == '\r') { /* strtod would continue on the next line */
    return false;
  }
  *value = bppsa_read_real(c->text + c->at, &end);
  const bool overflow = isinf(*value) && isdigit((unsigned char)end[-1]); /* inf itself is a value like others */
  const bool good = end != c->text + c->at && !overflow && (*end == '\0' || strchr(" \t\r\n", *end) != NULL);
  c->at = end - c->text;
  return good;
}

/* Whole numbers up to this one have a float64 each. */
static const int64_t most_whole = (int64_t)1 << 53;

static bool take_unsigned(cursor *c, double *value) {
  int64_t number;
  const bool good = take_count(c, &number) && number <= most_whole && strchr(" \t\r\n", c->text[c->at]) != NULL;
  *value = (double)number;
  return good;
}

static bool take_integer(cursor *c, double *value) {
  c->at += (int64_t)strspn(c->text + c->at, " \t");
  const bool negative = c->text[c->at] == '-', sign = negative || c->text[c->at] == '+';
  c->at += sign;
  const bool good = isdigit((unsigned char)c->text[c->at]) && take_unsigned(c, value);
  *value = negative && *value != 0 ? -*value : *value;
  return good;
}

static const field fields[] = {
    {"real", take_value, "a row, a column and a value that float64 has room for"},
    {"integer", take_integer, "a row, a column and a whole number from -2^53 to 2^53, as the head says integer"},
    {"unsigned-integer", take_unsigned, "a row, a column and a whole number from 0 to 2^53, as the head says unsigned-integer"},
    {"pattern", NULL, "a row and a column alone, as the head says pattern"}};
enum { FIELDS = sizeof fields / sizeof *fields, WORD = 64 };

/* Reads a word of the first line in small letters, as much of it as there is room for; returns what stands behind it. */
static const char *take_word(const char *at, char word[WORD]) {
  size_t length = 0;
  at += strspn(at, " \t");
  for (; *at != '\0' && strchr(" \t\r\n", *at) == NULL; ++at) {
    if (length < WORD - 1) {
      word[length++] = (char)tolower((unsigned char)*at);
    }
  }
  word[length] = '\0';
  return at;
}

/* The format's words may be in capitals. */
static bppsa_status take_words(cursor *c) {
  static const char *const begin[] = {"%%matrixmarket", "matrix", "coordinate"};
  static const struct {
    const char *name;
    int mirror;
  } symmetries[] = {{"general", 0}, {"symmetric", 1}, {"skew-symmetric", -1}};
  char word[WORD], symmetry[WORD];
  const char *at = c->text + c->at;
  bool right = true;
  for (int i = 0; i < 3; ++i) {
    at = take_word(at, word);
    right = right && strcmp(word, begin[i]) == 0;
  }
  at = take_word(at, word);
  (void)take_word(at, symmetry);
  if (!right || symmetry[0] == '\0') {
    return unexpected(c, "%%MatrixMarket matrix coordinate real|integer|pattern general|symmetric|skew-symmetric");
  }
  for (int i = 0; i < FIELDS; ++i) {
    c->field = strcmp(word, fields[i].name) == 0 ? &fields[i] : c->field;
  }
  for (int i = 0; c->field != NULL && i < 3; ++i) {
    if (strcmp(symmetry, symmetries[i].name) == 0) {
      c->mirror = symmetries[i].mirror;
      return BPPSA_OK;
    }
  }
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                    "%s: line 1: '%s %s', expected real, integer or pattern, and general, symmetric or skew-symmetric", c->path,
                    word, symmetry);
}

static bppsa_status take_head(cursor *c, int64_t *rows, int64_t *cols, int64_t *nnz) {
  BPPSA_TRY(take_words(c));
  if (!next_line(c) || !take_count(c, rows) || !take_count(c, cols) || !take_count(c, nnz) || !end_line(c)) {
    return unexpected(c, "numbers of rows, columns and entries");
  }
  const int64_t left = (c->size - c->at) / 4 + 1; /* "1 1\n" is the shortest entry */
  if (*rows > BPPSA_MTX_ROWS) {
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s: line %lld: %lld rows, expected at most %lld in a Matrix Market file, more in an NPZ file", c->path,
                      (long long)c->line - 1, (long long)*rows, (long long)BPPSA_MTX_ROWS);
  }
  if (*nnz > left || *rows > 64 * c->size + (1 << 20)) {
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s: line %lld: %lld rows and %lld entries, more than the file of %lld bytes has room for", c->path,
                      (long long)c->line - 1, (long long)*rows, (long long)*nnz, (long long)c->size);
  }
  if (c->mirror != 0 && (*rows != *cols || *nnz > BPPSA_MTX_LIMIT / 8)) {
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s: line %lld: %lld rows, %lld columns and %lld entries of a symmetric matrix, expected as many rows as "
                      "columns and at most %lld entries",
                      c->path, (long long)c->line - 1, (long long)*rows, (long long)*cols, (long long)*nnz,
                      (long long)(BPPSA_MTX_LIMIT / 8));
  }
  return BPPSA_OK;
}

/* Entries in the order of the file: row, column, value. */
typedef struct {
  int64_t row;
  int32_t col, line; /* a file has at most BPPSA_MTX_LIMIT lines */
  double value;
} entry;

/* Reads nnz entries; *count: with those that the matrix has by symmetry. */
static bppsa_status take_entries(cursor *c, int64_t rows, int64_t cols, int64_t nnz, entry *entries, int64_t *count) {
  for (int64_t i = 0; i < nnz; ++i) {
    int64_t row, col;
    double value = 1;
    if (!next_line(c)) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: line %lld: the file ends after %lld entries, expected %lld", c->path,
                        (long long)c->line, (long long)i, (long long)nnz);
    }
    if (!take_count(c, &row) || !take_count(c, &col) || (c->field->take != NULL && !c->field->take(c, &value)) || !end_line(c)) {
      return unexpected(c, c->field->expected);
    }
    if (row < 1 || row > rows || col < 1 || col > cols) {
      --c->line;
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: line %lld: entry (%lld, %lld), expected 1 .. %lld and 1 .. %lld", c->path,
                        (long long)c->line, (long long)row, (long long)col, (long long)rows, (long long)cols);
    }
    entries[(*count)++] = (entry){row - 1, (int32_t)(col - 1), (int32_t)(c->line - 1), value};
    if (c->mirror < 0 && row == col) {
      return bppsa_fail(BPPSA_ERR_FORMAT,
                        "%s: line %lld: entry (%lld, %lld) of a skew-symmetric matrix, expected none on its diagonal", c->path,
                        (long long)c->line - 1, (long long)row, (long long)col);
    }
    if (c->mirror != 0 && row != col) {
      entries[(*count)++] = (entry){col - 1, (int32_t)(row - 1), (int32_t)(c->line - 1), c->mirror * value};
    }
  }
  return next_line(c) ? unexpected(c, "the end of the file after as many entries as the head says") : BPPSA_OK;
}

/* By rows, columns and lines: qsort itself leaves the order of equal ones open. */
static int compare_entries(const void *x, const void *y) {
  const entry *a = x, *b = y;
  return a->row != b->row   ? (a->row > b->row) - (a->row < b->row)
         : a->col != b->col ? (a->col > b->col) - (a->col < b->col)
                            : (a->line > b->line) - (a->line < b->line);
}

static bppsa_status build(const cursor *c, const entry *entries, bppsa_csr_matrix *made) {
  bppsa_csr *csr = &made->csr;
  double *values = made->values;
  for (int64_t i = 0; i < csr->nnz; ++i) {
    if (i > 0 && entries[i].row == entries[i - 1].row && entries[i].col == entries[i - 1].col) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: line %d: entry (%lld, %d) occurs twice%s, expected once, as on line %d", c->path,
                        (int)entries[i].line, (long long)entries[i].row + 1, (int)entries[i].col + 1,
                        c->mirror != 0 ? ", itself or by symmetry" : "", (int)entries[i - 1].line);
    }
    csr->row_ptr[entries[i].row + 1] = i + 1;
    csr->col[i] = entries[i].col;
    values[i] = entries[i].value;
  }
  for (int64_t r = 0; r < csr->rows; ++r) {
    csr->row_ptr[r + 1] = csr->row_ptr[r + 1] > csr->row_ptr[r] ? csr->row_ptr[r + 1] : csr->row_ptr[r];
  }
  return BPPSA_OK;
}

static bppsa_status parse(cursor *c, bppsa_csr_matrix *made) {
  int64_t rows, cols, nnz, count = 0;
  BPPSA_TRY(take_head(c, &rows, &cols, &nnz));
  const int64_t most = c->mirror == 0 ? nnz : 2 * nnz;
  const bppsa_status room = bppsa_csr_create(rows, cols, most, &made->csr);
  if (room != BPPSA_OK) {
    return bppsa_fail_prefix(room == BPPSA_ERR_SHAPE ? BPPSA_ERR_FORMAT : room, "%s: line %lld", c->path, (long long)c->line - 1);
  }
  made->dtype = BPPSA_F64;
  made->values = bppsa_calloc(most, sizeof(double));
  entry *entries = bppsa_calloc(most, sizeof *entries);
  bppsa_status status =
      made->values == NULL || entries == NULL ? BPPSA_ERR_MEMORY : take_entries(c, rows, cols, nnz, entries, &count);
  if (status == BPPSA_OK) {
    made->csr.nnz = count;
    qsort(entries, (size_t)count, sizeof *entries, compare_entries);
    status = build(c, entries, made);
  }
  bppsa_free(entries);
  return status;
}

bppsa_status bppsa_csr_load_mtx(const char *path, bppsa_csr_matrix *matrix) {
  BPPSA_REQUIRE(path != NULL && matrix != NULL);
  char *text = NULL;
  cursor c = {.path = path, .line = 1};
  BPPSA_TRY(bppsa_file_read(path, BPPSA_MTX_LIMIT, &text, &c.size));
  c.text = text;
  c.begin = c.at = bppsa_text_order_mark(text, c.size);
  bppsa_csr_matrix made = {0};
  bppsa_status status = bppsa_text_check_encoding(path, text, c.size);
  status = status == BPPSA_OK ? parse(&c, &made) : status;
  bppsa_free(text);
  if (status != BPPSA_OK) {
    bppsa_csr_matrix_free(&made);
    return status;
  }
  *matrix = made;
  return BPPSA_OK;
}
