#include "bench/harness/outlook.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/files/file.h"
#include "terminal/table.h"

/* ---- files of earlier runs ---- */

#define FILE_LIMIT ((int64_t)64 << 20)

/* Which rows are taken. */
typedef struct {
  const char *bench, *model;
} wanted_rows;

static bool is_text(const json_t *object, const char *key, const char *expected) {
  const char *found = json_string_value(json_object_get(object, key));
  return found != NULL && strcmp(found, expected) == 0;
}

static bppsa_status take_rows(const char *where, const json_t *found, const char *model, json_t *rows) {
  for (size_t i = 0; i < json_array_size(found); ++i) {
    json_t *row = json_array_get(found, i);
    if ((json_object_get(row, "model") == NULL || is_text(row, "model", model)) && json_array_append(rows, row) != 0) {
      return bppsa_fail(BPPSA_ERR_MEMORY, "%s: out of memory, expected room for its rows", where);
    }
  }
  return BPPSA_OK;
}

/* Adds the rows of a line's document. */
static bppsa_status add_line(const char *where, const char *text, int64_t size, int64_t offset, const wanted_rows *wanted,
                             json_t *rows) {
  json_t *document = NULL;
  BPPSA_TRY(bppsa_input_status(bppsa_json_parse_at(where, text, size, offset, &document)));
  bppsa_status status = BPPSA_OK;
  if (!json_is_object(document)) {
    status = bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: no JSON object, expected the document of a benchmark", where);
  } else if (is_text(document, "bench", wanted->bench)) {
    status = take_rows(where, json_object_get(document, "rows"), wanted->model, rows);
  }
  json_decref(document);
  return status;
}

static bppsa_status add_lines(const char *path, const char *text, int64_t size, const wanted_rows *wanted, json_t *rows) {
  int64_t number = 0;
  for (int64_t from = 0, next; from < size; from = next) {
    const char *end = memchr(text + from, '\n', (size_t)(size - from));
    const int64_t to = end != NULL ? (int64_t)(end - text) : size;
    char where[320];
    next = to + 1;
    snprintf(where, sizeof where, "--earlier: %.240s: document %" PRId64, path, ++number);
    if (strspn(text + from, " \t\r") < (size_t)(to - from)) {
      BPPSA_TRY(add_line(where, text + from, to - from, from, wanted, rows));
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_outlook_read(const char *path, const char *bench, const char *model, json_t **rows) {
  char *text = NULL;
  int64_t size = 0;
  BPPSA_TRY(bppsa_fail_prefix(bppsa_input_status(bppsa_file_read(path, FILE_LIMIT, &text, &size)), "--earlier"));
  json_t *found = json_array();
  bppsa_status status = found != NULL ? add_lines(path, text, size, &(wanted_rows){bench, model}, found)
                                      : bppsa_fail(BPPSA_ERR_MEMORY, "--earlier: out of memory");
  bppsa_free(text);
  if (status != BPPSA_OK) {
    json_decref(found);
    return status;
  }
  *rows = found;
  return BPPSA_OK;
}

/* ---- times of rivals ---- */

/* A rival at a point. */
typedef struct {
  int64_t seq_len, batch, hidden;
  const char *init, *method;
  bool same; /* the point has the shape of the one to be measured, and a shorter T */
  int64_t point;
  double seconds; /* of all phases */
} rival_time;

struct bppsa_outlook {
  int64_t seq_len;
  int64_t count;
  rival_time *times;
};

static int64_t integer_of(const json_t *row, const char *key) {
  return (int64_t)json_integer_value(json_object_get(row, key));
}

static const char *text_of(const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  return text != NULL ? text : "";
}

/* The median of a row, or its single pass; 0: it has no time. */
static double seconds_of(const json_t *row) {
  const json_t *median = json_object_get(row, "median_s");
  return json_number_value(json_is_number(median) ? median : json_object_get(row, "qualifying"));
}

static bool is_of_shape(const json_t *row, const bppsa_recurrent_config *c) {
  const char *loss = text_of(row, "loss_on"), *function = text_of(row, "nonlinearity");
  return integer_of(row, "batch") == c->batch && integer_of(row, "hidden") == c->hidden && integer_of(row, "input") == c->input &&
         integer_of(row, "layers") == c->layers && strcmp(text_of(row, "dtype"), bppsa_dtype_name(c->dtype)) == 0 &&
         (loss[0] == '\0' || (strcmp(loss, "all") == 0) == c->loss_all) &&
         (function[0] == '\0' || strcmp(function, bppsa_nonlinearity_name(c->nonlinearity)) == 0);
}

/* Adds a row's time to that of its rival at its point. Rows of one point stand together. */
static void add_row(bppsa_outlook *o, const json_t *row, const bppsa_recurrent_config *c) {
  const rival_time *last = o->count > 0 ? &o->times[o->count - 1] : NULL;
  rival_time made = {.seq_len = integer_of(row, "seq_len"),
                     .batch = integer_of(row, "batch"),
                     .hidden = integer_of(row, "hidden"),
                     .init = text_of(row, "init"),
                     .method = text_of(row, "method"),
                     .seconds = seconds_of(row)};
  made.same = made.seq_len > 0 && made.seq_len < c->seq_len && is_of_shape(row, c);
  const bool same_point = last != NULL && last->seq_len == made.seq_len && last->batch == made.batch &&
                          last->hidden == made.hidden && strcmp(last->init, made.init) == 0 && last->same == made.same;
  made.point = last == NULL ? 0 : last->point + !same_point;
  for (int64_t i = o->count - 1; i >= 0 && o->times[i].point == made.point; --i) {
    if (strcmp(o->times[i].method, made.method) == 0) {
      o->times[i].seconds += made.seconds;
      return;
    }
  }
  o->times[o->count++] = made;
}

static void add_rows(bppsa_outlook *o, const json_t *rows, const bppsa_recurrent_config *c) {
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    if (json_is_true(json_object_get(row, "rival")) && seconds_of(row) > 0) {
      add_row(o, row, c);
    }
  }
}

bppsa_status bppsa_outlook_create(const json_t *earlier, const json_t *rows, const bppsa_recurrent_config *config,
                                  bppsa_outlook **outlook) {
  const int64_t most = (int64_t)(json_array_size(earlier) + json_array_size(rows));
  bppsa_outlook *made = bppsa_calloc(1, sizeof *made);
  rival_time *times = bppsa_calloc(most + 1, sizeof *times);
  if (made == NULL || times == NULL) {
    bppsa_free(made);
    bppsa_free(times);
    return BPPSA_ERR_MEMORY;
  }
  *made = (bppsa_outlook){.seq_len = config->seq_len, .times = times};
  add_rows(made, earlier, config);
  add_rows(made, rows, config);
  *outlook = made;
  return BPPSA_OK;
}

void bppsa_outlook_destroy(bppsa_outlook *outlook) {
  if (outlook != NULL) {
    bppsa_free(outlook->times);
    bppsa_free(outlook);
  }
}

/* ---- what they say ---- */

/* Does a rival compute in the type of the request? Those in TF32 and bf16 do less work, so no other time is judged by theirs. */
static bool is_exact(const rival_time *t) {
  return strstr(t->method, "tf32") == NULL && strstr(t->method, "bf16") == NULL;
}

/* The end of the point that begins at `from`. */
static int64_t end_of_point(const bppsa_outlook *o, int64_t from) {
  int64_t to = from;
  while (to < o->count && o->times[to].point == o->times[from].point) {
    ++to;
  }
  return to;
}

/* The fastest exact rival of a point; NULL: there is none. */
static const rival_time *fastest_of(const bppsa_outlook *o, int64_t from, int64_t to) {
  const rival_time *best = NULL;
  for (int64_t i = from; i < to; ++i) {
    const rival_time *t = &o->times[i];
    best = is_exact(t) && (best == NULL || t->seconds < best->seconds) ? t : best;
  }
  return best;
}

/* The rival's faster or slower form at a point; NAN: it has no time there. */
static double form_at(const bppsa_outlook *o, int64_t from, int64_t to, const char *method, const char *form, bool slower) {
  double found = NAN;
  for (int64_t i = from; i < to; ++i) {
    const rival_time *t = &o->times[i];
    if (strcmp(t->method, method) == 0 || (form != NULL && strcmp(t->method, form) == 0)) {
      found = slower ? fmax(found, t->seconds) : fmin(found, t->seconds);
    }
  }
  return found;
}

bppsa_rival_outlook bppsa_outlook_of(const bppsa_outlook *o, const char *method, const char *form) {
  bppsa_rival_outlook found = {0};
  int64_t longest = 0;
  for (int64_t from = 0, to; from < o->count; from = to) {
    to = end_of_point(o, from);
    const int64_t length = o->times[from].seq_len;
    const rival_time *best = fastest_of(o, from, to);
    const double faster = form_at(o, from, to, method, form, false);
    if (!o->times[from].same || !(faster > 0)) {
      continue;
    }
    if (best != NULL && faster / best->seconds > found.times) {
      found.times = faster / best->seconds;
      found.seq_len = length;
    }
    if (length >= longest) {
      longest = length;
      found.seconds = form_at(o, from, to, method, form, true) * (double)o->seq_len / (double)length;
    }
  }
  return found;
}

const char *bppsa_outlook_winner(const bppsa_outlook *o) {
  int64_t from = o->count;
  while (from > 0 && o->times[from - 1].point == o->times[o->count - 1].point) {
    --from;
  }
  const rival_time *best = fastest_of(o, from, o->count);
  return best != NULL ? best->method : "";
}

bppsa_status bppsa_outlook_check(const bppsa_rival_outlook *rival) {
  char predicted[24];
  bppsa_table_time_words(rival->seconds, predicted, sizeof predicted);
  if (rival->times > BPPSA_OUTLOOK_TIMES) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "not run: %.1f times as long as the fastest rival at T %" PRId64 ", predicted %s",
                      rival->times, rival->seq_len, predicted);
  }
  return rival->seconds > BPPSA_OUTLOOK_SECONDS
             ? bppsa_fail(BPPSA_ERR_UNSUPPORTED, "not run: a pass is predicted to take %s, expected at most %g s", predicted,
                          BPPSA_OUTLOOK_SECONDS)
             : BPPSA_OK;
}

int bppsa_outlook_order(int first, int i) {
  return i == 0 ? first : i <= first ? i - 1 : i;
}
