/* Schedules as CSV. The first row holds what the schedule was made from, as name=value. Every further row is a worker: its number,
 * then its operations in order, without transfers, which follow from them. An operation is its kind, its micro-batch if it has one,
 * and marks:
 *
 *     F3@2v0   F of micro-batch 3, stage 2, weights of version 0
 *     +2       over two micro-batches
 *     .1       second half; slice of a SYNC; in scans, where the second factor begins
 *     /1       replica 1
 *     :8       first layer, if it is not the stage's first
 *     x2       two layers, if the stage has more
 *     =1.5     a cost of its own
 *     ~-1      a change of memory of its own
 *     %4       a lane other than compute
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/decimal.h"
#include "core/base/text.h"
#include "core/files/file.h"
#include "schedule/schedule_internal.h"
#include "schedule/timed.h"

/* ---- the first row ---- */

typedef enum { WHOLE, ENUM, FLAG, REAL } field_kind;

typedef struct {
  const char *name;
  field_kind kind;
  size_t offset;
  int64_t least, most;
} field;

#define AT(member) offsetof(bppsa_schedule_config, member)
static const field fields[] = {{"stages", WHOLE, AT(stages), 1, 1000000},
                               {"micro-batches", WHOLE, AT(micro_batches), 1, 1000000},
                               {"layers", WHOLE, AT(layers), 1, 1000000},
                               {"width", WHOLE, AT(width), 1, 1000000},
                               {"replicas", WHOLE, AT(replicas), 0, 1000000},
                               {"chunks", WHOLE, AT(chunks), 1, 1000000},
                               {"iterations", WHOLE, AT(iterations), 1, 1000000},
                               {"reverse-k", WHOLE, AT(reverse), -1, 1000000},
                               {"elements", WHOLE, AT(elements), 2, 1000000},
                               {"split", ENUM, AT(split), 0, BPPSA_SPLIT_IW},
                               {"sync", ENUM, AT(sync), 0, BPPSA_SYNC_EAGER_OPT},
                               {"scale", ENUM, AT(scale), 0, BPPSA_SCALE_HALVING},
                               {"window", ENUM, AT(window), 0, BPPSA_WINDOW_BACKWARD_FORWARD},
                               {"contention", ENUM, AT(contention), 0, BPPSA_CONTENTION_NETWORK},
                               {"skip-first-input-grad", FLAG, AT(skip_first_input_grad), 0, 1},
                               {"recompute", FLAG, AT(recompute), 0, 1},
                               {"precompiled", FLAG, AT(precompiled), 0, 1},
                               {"alpha", REAL, AT(alpha), 0, 0},
                               {"beta", REAL, AT(beta), 0, 0},
                               {"issue-overhead", REAL, AT(issue_overhead), 0, 0},
                               {"memory-cap", REAL, AT(memory_cap), 0, 0},
                               {"forward", REAL, AT(uniform[BPPSA_COST_FORWARD]), 0, 0},
                               {"input-grad", REAL, AT(uniform[BPPSA_COST_INPUT_GRAD]), 0, 0},
                               {"weight-grad", REAL, AT(uniform[BPPSA_COST_WEIGHT_GRAD]), 0, 0},
                               {"backward", REAL, AT(uniform[BPPSA_COST_BACKWARD]), 0, 0},
                               {"sync-cost", REAL, AT(uniform[BPPSA_COST_SYNC]), 0, 0},
                               {"step-cost", REAL, AT(uniform[BPPSA_COST_STEP]), 0, 0},
                               {"message", REAL, AT(uniform[BPPSA_COST_MESSAGE]), 0, 0},
                               {"gradient", REAL, AT(uniform[BPPSA_COST_GRADIENT]), 0, 0},
                               {"product", REAL, AT(uniform[BPPSA_COST_PRODUCT]), 0, 0},
                               {"apply", REAL, AT(uniform[BPPSA_COST_APPLY]), 0, 0}};
enum { FIELDS = sizeof fields / sizeof fields[0] };

static void write_fields(const bppsa_schedule *list, bppsa_text *text) {
  bppsa_text_add(text, "scheme=%s", list->scheme->id);
  for (int64_t i = 0; i < list->config.cuts; ++i) {
    bppsa_text_add(text, "%s%" PRId64, i == 0 ? ",cut=" : ":", list->config.cut[i]);
  }
  for (int i = 0; i < FIELDS; ++i) {
    const char *at = (const char *)&list->config + fields[i].offset;
    switch (fields[i].kind) {
    case WHOLE:
      bppsa_text_add(text, ",%s=%" PRId64, fields[i].name, *(const int64_t *)at);
      break;
    case ENUM:
      bppsa_text_add(text, ",%s=%d", fields[i].name, *(const int *)at);
      break;
    case FLAG:
      bppsa_text_add(text, ",%s=%d", fields[i].name, *(const bool *)at);
      break;
    case REAL:
      bppsa_text_add(text, ",%s=", fields[i].name);
      bppsa_text_add_real(text, *(const double *)at);
      break;
    }
  }
  bppsa_text_add(text, "\n");
}

/* Reads a whole decimal number. */
static bool read_real(const char *text, char **end, double *value) {
  *value = bppsa_read_real(text, end);
  return *end != text && isfinite(*value);
}

static bool set_field(const field *f, const char *text, bppsa_schedule_config *c) {
  char *at = (char *)c + f->offset, *end = NULL;
  double value = 0;
  if (!read_real(text, &end, &value) || *end != '\0') {
    return false;
  }
  if (f->kind == REAL) {
    *(double *)at = value;
    return true;
  }
  const int64_t whole = value >= -2 && value <= 1e7 ? (int64_t)value : -2;
  if ((double)whole != value || whole < f->least || whole > f->most) {
    return false;
  }
  if (f->kind == WHOLE) {
    *(int64_t *)at = whole;
  } else if (f->kind == ENUM) {
    *(int *)at = (int)whole;
  } else {
    *(bool *)at = whole != 0;
  }
  return true;
}

/* ---- operations ---- */

static bool differs(double a, double b) {
  return fabs(a - b) > 1e-12 * fmax(1, fabs(b));
}

static void write_op(const bppsa_schedule *list, const bppsa_schedule_op *op, bppsa_text *text) {
  const int64_t first = list->scheme->scan ? 0 : bppsa_schedule_layer_of(list, op->stage),
                all = list->scheme->scan ? -1 : bppsa_schedule_layer_of(list, op->stage + 1) - first;
  bppsa_schedule_op priced = *op;
  priced.cost = priced.memory_delta = NAN;
  bppsa_schedule_price(list, &priced);
  bppsa_text_add(text, ",%s", bppsa_schedule_kind_name(op->kind));
  if (op->micro >= 0) {
    bppsa_text_add(text, "%d", (int)op->micro);
  }
  bppsa_text_add(text, "@%d", (int)op->stage);
  const struct {
    char mark;
    int64_t value;
    bool wanted;
  } marks[] = {{'+', op->micros, op->micros != (op->micro >= 0)},
               {'.', op->part, op->part >= 0},
               {'/', op->replica, op->replica > 0},
               {':', op->layer, op->layer != first || list->scheme->scan},
               {'x', op->layers, op->layers != all},
               {'v', op->weight_version, op->weight_version >= 0},
               {'%', op->lane, op->lane != BPPSA_LANE_COMPUTE}};
  for (size_t i = 0; i < sizeof marks / sizeof marks[0]; ++i) {
    if (marks[i].wanted) {
      bppsa_text_add(text, "%c%" PRId64, marks[i].mark, marks[i].value);
    }
  }
  if (differs(op->cost, priced.cost)) {
    bppsa_text_add(text, "=");
    bppsa_text_add_real(text, op->cost);
  }
  if (differs(op->memory_delta, priced.memory_delta)) {
    bppsa_text_add(text, "~");
    bppsa_text_add_real(text, op->memory_delta);
  }
}

/* Collects the operations of each worker in a chain, because the list is in the order of time. */
bppsa_status bppsa_schedule_csv_write(const bppsa_timed *timed, bppsa_text *text) {
  const bppsa_schedule *list = timed->list;
  int32_t *next = bppsa_alloc((size_t)list->count * sizeof *next), *first = bppsa_alloc((size_t)list->workers * sizeof *first);
  const bool room = next != NULL && first != NULL;
  for (int64_t w = 0; room && w < list->workers; ++w) {
    first[w] = -1;
  }
  for (int64_t id = list->count - 1; room && id >= 0; --id) {
    next[id] = first[list->ops[id].worker];
    first[list->ops[id].worker] = (int32_t)id;
  }
  if (room) {
    write_fields(list, text);
  }
  for (int64_t w = 0; room && w < list->workers; ++w) {
    bppsa_text_add(text, "%" PRId64, w);
    for (int32_t id = first[w]; id >= 0; id = next[id]) {
      if (list->ops[id].kind != BPPSA_KIND_SEND && list->ops[id].kind != BPPSA_KIND_RECV) {
        write_op(list, &list->ops[id], text);
      }
    }
    bppsa_text_add(text, "\n");
  }
  bppsa_free(next);
  bppsa_free(first);
  return room ? bppsa_text_check(text) : BPPSA_ERR_MEMORY;
}

/* ---- reading ---- */

/* Limits on what a file may ask for. Tables have a cell for each layer of each micro-batch, and of each replica; rules walk over
 * the layers of every operation. Without these limits a short file would take as much memory and time as it likes. */
#define MOST_CELLS ((int64_t)1 << 22)
#define MOST_PASSES ((int64_t)1 << 25) /* eight kinds of operations on every cell */
#define MOST_WORKERS ((int64_t)1 << 17)
#define MOST_OPS ((int64_t)3 << 20) /* with SEND and RECV */
#define MOST_DEPS ((int64_t)1 << 23)
enum { MOST_MICROS = 2 }; /* in one operation: Chimera's doubled forward pass has two */

typedef struct {
  const char *path;
  int64_t row, cell; /* from 1 */
  int64_t passes;    /* passes of one micro-batch through one layer, in the operations so far */
  char separator;    /* the character between cells */
} place;

static bppsa_status bad_cell(const place *at, const char *cell, const char *expected) {
  return bppsa_fail(BPPSA_ERR_FORMAT, "%s: row %" PRId64 ", cell %" PRId64 ": '%.40s', expected %s", at->path, at->row, at->cell,
                    cell, expected);
}

/* Returns the quote that ends a quoted cell, or NULL. A separator or the row's end follows it; inside the cell, two quotes stand
 * for one. */
static char *closing_quote(const place *at, char *cell) {
  char *end = cell + 1;
  while (*end != '\0' && (*end != '"' || end[1] == '"')) {
    end += *end == '"' ? 2 : 1;
  }
  return *end == '"' && (end[1] == at->separator || end[1] == '\0') ? end : NULL;
}

/* Moves what is between the quotes to the beginning of the cell. */
static void unquote(char *cell, const char *close) {
  char *to = cell;
  for (const char *from = cell + 1; from < close; ++from) {
    from += *from == '"';
    *to++ = *from;
  }
  *to = '\0';
}

/* Returns the next cell of a row, or NULL after the last one. Puts a 0 behind the cell, and removes the quotes that spreadsheets
 * put around cells. Where commas do not separate cells, they are decimal points. */
static char *next_cell(const place *at, char **rest) {
  char *cell = *rest;
  if (cell == NULL) {
    return NULL;
  }
  char *close = cell[0] == '"' ? closing_quote(at, cell) : NULL;
  char *end = strchr(close != NULL ? close : cell, at->separator);
  if (close != NULL) {
    unquote(cell, close);
  }
  *rest = end != NULL ? end + 1 : NULL;
  if (end != NULL) {
    *end = '\0';
  }
  for (char *comma = at->separator != ',' ? strchr(cell, ',') : NULL; comma != NULL; comma = strchr(comma, ',')) {
    *comma = '.';
  }
  return cell;
}

static const char of_scheme[] = "scheme=ID of a scheme that --list names";

/* Takes NAME=TEXT of the first row, each name once. */
static bppsa_status take_field(const place *at, char *name, char *text, bool given[FIELDS], bppsa_schedule_config *c) {
  int which = 0;
  char expected[100];
  while (which < FIELDS && strcmp(fields[which].name, name) != 0) {
    ++which;
  }
  if (which == FIELDS) {
    return bad_cell(at, name, "a name that --csv writes, such as stages");
  }
  if (given[which]) {
    return bad_cell(at, name, "each name once");
  }
  given[which] = true;
  if (set_field(&fields[which], text, c)) {
    return BPPSA_OK;
  }
  if (fields[which].kind == REAL) {
    snprintf(expected, sizeof expected, "a number of %s", name);
  } else {
    snprintf(expected, sizeof expected, "a whole number of %s from %" PRId64 " to %" PRId64, name, fields[which].least,
             fields[which].most);
  }
  return bad_cell(at, text, expected);
}

/* Reads the first row. The memory of its cut is *cut, which the caller frees. */
static bppsa_status read_fields(place *at, char *row, const char **scheme, bppsa_schedule_config *c, int64_t **cut) {
  bool given[FIELDS] = {false};
  char *rest = row;
  for (char *cell = next_cell(at, &rest); cell != NULL; cell = next_cell(at, &rest)) {
    char *equals = strchr(cell, '=');
    at->cell += 1;
    if (cell[0] == '\0' && at->cell > 1) { /* spreadsheets pad rows with empty cells */
      continue;
    }
    if (equals == NULL) {
      return bad_cell(at, cell, "name=value");
    }
    *equals = '\0';
    if (strcmp(cell, "scheme") == 0 && *scheme == NULL) {
      *scheme = equals + 1;
      BPPSA_TRY(bppsa_schedule_find(*scheme) != NULL ? BPPSA_OK : bad_cell(at, *scheme, of_scheme));
      continue;
    }
    if (strcmp(cell, "cut") == 0 && *cut == NULL) {
      const bppsa_status status = bppsa_schedule_cut_parse(equals + 1, cut, &c->cuts);
      if (status != BPPSA_OK) {
        return status == BPPSA_ERR_MEMORY ? status : bad_cell(at, equals + 1, "first layers of stages such as 3:5");
      }
      c->cut = *cut;
      continue;
    }
    BPPSA_TRY(strcmp(cell, "scheme") != 0 && strcmp(cell, "cut") != 0 ? take_field(at, cell, equals + 1, given, c)
                                                                      : bad_cell(at, cell, "each name once"));
  }
  return *scheme != NULL ? BPPSA_OK : bad_cell(at, "", of_scheme);
}

/* Reads an integer of at most nine digits, with an optional sign. */
static bool read_whole(const char **at, int32_t *value) {
  const bool negative = **at == '-';
  const char *digits = *at + negative;
  const size_t count = strspn(digits, "0123456789");
  if (count == 0 || count > 9) {
    return false;
  }
  *value = (int32_t)strtol(digits, NULL, 10) * (negative ? -1 : 1);
  *at = digits + count;
  return true;
}

static bool read_kind(const char **at, bppsa_schedule_op *op) {
  size_t length = 0;
  for (int kind = 0; kind < BPPSA_KIND_COUNT; ++kind) { /* the longest name that fits, so that STEP is not read as S */
    const char *name = bppsa_schedule_kind_name(kind);
    if (strlen(name) > length && strncmp(*at, name, strlen(name)) == 0) {
      length = strlen(name);
      op->kind = (uint8_t)kind;
    }
  }
  *at += length;
  return length > 0 && op->kind != BPPSA_KIND_SEND && op->kind != BPPSA_KIND_RECV;
}

static bool read_mark(const char **at, bppsa_schedule_op *op, bool *layers_given) {
  const char mark = *(*at)++;
  double *const real = mark == '=' ? &op->cost : mark == '~' ? &op->memory_delta : NULL;
  int32_t lane = 0;
  if (real != NULL) {
    char *end = NULL;
    const bool good = read_real(*at, &end, real) && fabs(*real) <= BPPSA_SCHEDULE_MOST_COST;
    *at = end;
    return good;
  }
  *layers_given = *layers_given || mark == 'x';
  switch (mark) {
  case '@':
    return read_whole(at, &op->stage);
  case '+':
    return read_whole(at, &op->micros);
  case '.':
    return read_whole(at, &op->part);
  case '/':
    return read_whole(at, &op->replica);
  case ':':
    return read_whole(at, &op->layer);
  case 'x':
    return read_whole(at, &op->layers);
  case 'v':
    return read_whole(at, &op->weight_version);
  case '%':
    if (!read_whole(at, &lane) || lane < 0 || lane >= BPPSA_LANE_COUNT) {
      return false;
    }
    op->lane = (uint8_t)lane;
    return true;
  default:
    return false;
  }
}

static bool in_range(const bppsa_schedule *list, const bppsa_schedule_op *op) {
  const bool scan = list->scheme->scan, global = op->kind == BPPSA_KIND_SYNC || op->kind == BPPSA_KIND_STEP;
  const int64_t layers = scan ? list->config.elements - 1 : list->config.layers, micros = scan ? INT32_MAX : list->micros;
  const bool micro = global ? op->micro == -1 && op->micros == 0
                            : op->micro >= 0 && op->micros >= 0 && (int64_t)op->micro + op->micros <= micros;
  const bool kind = (op->kind >= BPPSA_KIND_PRODUCT) == scan;
  return kind && micro && op->stage >= 0 && op->stage < (scan ? list->workers : list->stages) && op->replica >= 0 &&
         op->replica < list->replicas && op->layer >= 0 && op->layers >= 1 && (int64_t)op->layer + op->layers <= layers &&
         op->part >= -1 && op->part <= layers;
}

/* Checks that this operation and the ones before it are small enough together. In scans `micros` counts products, and rules walk
 * layer by layer over APPLY only. */
static bppsa_status check_size(place *at, const char *cell, const bppsa_schedule *list, const bppsa_schedule_op *op) {
  const bool scan = list->scheme->scan;
  if (!scan && op->micros > MOST_MICROS) {
    return bad_cell(at, cell, "an operation over at most two micro-batches");
  }
  const int64_t micros = !scan && op->micros > 1 ? op->micros : 1,
                layers = !scan || op->kind == BPPSA_KIND_APPLY ? op->layers : 1;
  if (at->passes + micros * layers > MOST_PASSES) {
    char expected[128];
    snprintf(expected, sizeof expected,
             "fewer operations or layers: those before it cover %" PRId64 " layers in all, at most %" PRId64 " may", at->passes,
             MOST_PASSES);
    return bad_cell(at, cell, expected);
  }
  at->passes += micros * layers;
  return BPPSA_OK;
}

static bppsa_status read_op(place *at, const char *cell, bppsa_schedule *list, int64_t worker) {
  bppsa_schedule_op op = {.cost = NAN,
                          .memory_delta = NAN,
                          .worker = (int32_t)worker,
                          .micro = -1,
                          .layer = -1,
                          .layers = -1,
                          .part = -1,
                          .stage = -1,
                          .weight_version = -1,
                          .group = -1};
  const char *rest = cell;
  bool layers = false, good = read_kind(&rest, &op);
  if (good && *rest >= '0' && *rest <= '9') {
    good = read_whole(&rest, &op.micro);
    op.micros = 1;
  }
  while (good && *rest != '\0') {
    good = read_mark(&rest, &op, &layers);
  }
  if (good && !list->scheme->scan && op.stage >= 0 && op.stage < list->stages) {
    op.layer = op.layer < 0 ? (int32_t)bppsa_schedule_layer_of(list, op.stage) : op.layer;
    op.layers = op.layers < 0 ? (int32_t)(bppsa_schedule_layer_of(list, op.stage + 1) - bppsa_schedule_layer_of(list, op.stage))
                              : op.layers;
  }
  if (!good || !in_range(list, &op)) {
    return bad_cell(at, cell,
                    good ? "micro-batch, stage, replica and layers that the first row has" : "an operation such as F3@2v0");
  }
  BPPSA_TRY(check_size(at, cell, list, &op));
  return bppsa_schedule_append(list, &op);
}

static bppsa_status read_worker(place *at, char *row, bppsa_schedule *list, bool *seen) {
  char *rest = row, *cell = next_cell(at, &rest);
  const char *digits = cell;
  int32_t worker = -1;
  at->cell = 1;
  if (!read_whole(&digits, &worker) || *digits != '\0' || worker < 0 || worker >= list->workers || seen[worker]) {
    return bad_cell(at, cell, "the number of a worker, each once");
  }
  seen[worker] = true;
  for (cell = next_cell(at, &rest); cell != NULL; cell = next_cell(at, &rest)) {
    at->cell += 1;
    if (cell[0] != '\0') { /* spreadsheets pad rows with empty cells */
      BPPSA_TRY(read_op(at, cell, list, worker));
    }
  }
  return BPPSA_OK;
}

/* Returns the next line without its carriage return, or NULL after the last one. Puts a 0 behind it. */
static char *next_row(char **rest) {
  char *row = *rest;
  if (row == NULL || *row == '\0') {
    return NULL;
  }
  char *end = row + strcspn(row, "\n");
  *rest = *end == '\n' ? end + 1 : NULL;
  *end = '\0';
  if (end > row && end[-1] == '\r') {
    end[-1] = '\0';
  }
  return row;
}

static bppsa_status check_product(const place *at, const char *what, int64_t count, int64_t layers) {
  return count <= MOST_CELLS / layers
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_FORMAT,
                          "%s: row %" PRId64 ": %" PRId64 " %s times %" PRId64 " layers, expected at most %" PRId64, at->path,
                          at->row, count, what, layers, MOST_CELLS);
}

/* Checks the sizes that follow from the first row. */
static bppsa_status check_row(const place *at, const bppsa_schedule *list) {
  BPPSA_TRY(check_product(at, "micro-batches of all iterations and copies", list->micros, list->config.layers));
  BPPSA_TRY(check_product(at, "replicas", list->replicas, list->config.layers));
  return list->workers <= MOST_WORKERS
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_FORMAT, "%s: row %" PRId64 ": %" PRId64 " workers, expected at most %" PRId64, at->path,
                          at->row, list->workers, MOST_WORKERS);
}

/* Reads the first row, and makes an empty list from it. */
static bppsa_status read_first_row(place *at, char *row, bppsa_schedule **made) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  const char *scheme = NULL;
  int64_t *cut = NULL;
  bppsa_status status = row != NULL ? read_fields(at, row, &scheme, &config, &cut)
                                    : bad_cell(at, "", "scheme=... and what the schedule was made from");
  if (status == BPPSA_OK) {
    status = bppsa_schedule_create_empty(scheme, &config, made);
    status = status == BPPSA_OK ? check_row(at, *made) : bppsa_fail_prefix(status, "%s: row %" PRId64, at->path, at->row);
  }
  bppsa_free(cut);
  return status;
}

/* Is there nothing in a row but separators? Spreadsheets append such rows. */
static bool is_empty(const place *at, const char *row) {
  const char separator[] = {at->separator, '\0'};
  return row[strspn(row, separator)] == '\0';
}

/* Finds what separates cells: the mark that a line such as sep=; in front of the first row names, otherwise the first mark in the
 * first row. Returns the first row, or NULL. */
static char *find_separator(place *at, char *row, char **rest) {
  char *sep = row != NULL && row[0] == '"' ? row + 1 : row; /* a spreadsheet puts a line with a separator in quotes */
  at->row = 1;
  at->separator = ',';
  if (sep != NULL && strncmp(sep, "sep=", 4) == 0 && sep[4] != '\0' && strchr(",;\t", sep[4]) != NULL) {
    at->separator = sep[4];
    at->row += 1;
    return next_row(rest);
  }
  const char *mark = row != NULL ? strpbrk(row, ",;\t") : NULL;
  at->separator = mark != NULL ? *mark : ',';
  return row;
}

static bppsa_status read_rows(place *at, char *text, bppsa_schedule **made) {
  char *rest = text, *row = next_row(&rest);
  row = find_separator(at, row, &rest);
  BPPSA_TRY(read_first_row(at, row, made));
  bool *seen = bppsa_calloc((*made)->workers, sizeof *seen);
  bppsa_status read = seen != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
  for (row = next_row(&rest); row != NULL && read == BPPSA_OK; row = next_row(&rest)) {
    at->row += 1;
    read = is_empty(at, row) ? BPPSA_OK : read_worker(at, row, *made, seen);
  }
  bppsa_free(seen);
  return read;
}

bppsa_status bppsa_schedule_csv_load(const char *path, bppsa_schedule **list) {
  char *text = NULL;
  int64_t size = 0;
  bppsa_schedule *made = NULL;
  place at = {.path = path};
  BPPSA_TRY(bppsa_file_read(path, BPPSA_SCHEDULE_CSV_LIMIT, &text, &size));
  bppsa_status status = bppsa_text_check_encoding(path, text, size);
  status = status != BPPSA_OK              ? status
           : (int64_t)strlen(text) == size ? read_rows(&at, text + bppsa_text_order_mark(text, size), &made)
                                           : bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %zu: 0, expected text", path, strlen(text));
  bppsa_free(text);
  if (status == BPPSA_OK) {
    status = bppsa_schedule_connect_within(made, MOST_OPS, MOST_DEPS);
    status = status == BPPSA_ERR_ARGUMENT ? bppsa_fail_prefix(BPPSA_ERR_FORMAT, "%s", path) : status;
  }
  if (status != BPPSA_OK) {
    bppsa_schedule_destroy(made);
    return status;
  }
  *list = made;
  return BPPSA_OK;
}
