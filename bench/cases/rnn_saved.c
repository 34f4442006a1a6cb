/* References in a file: what --references reads, and what `bench rnn`, `gru` and `lstm` do beside --save-references.
 *
 * A safetensors file. Its metadata have "bppsa_references", the version of the format, and an entry for each point: the key says
 * what the point is ("rnn, T 1000, B 16, .., init default"), the value the CRC-32 of its weights, of x, of the seed gradient, and
 * of the numbers of the reference. These are tensors in f64 with names "KEY: PART". A point takes a reference only if it has the
 * same key and the same checksums: then the reference was computed from the same weights and inputs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "bench/cases/case.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/files/rescue.h"
#include "terminal/machine.h"

#define MARK "bppsa_references" /* the key of the format's version */
#define FORMAT "1"

/* The parts of a reference: the gradients of the layers' parameters, the logits of the last or of all steps, the shares of zeros
 * and of subnormals among the hidden gradients, and, with --input-gradient, the gradient of x. */
enum { GRADIENTS = 0, LOGITS, HIDDEN, INPUT_GRADIENT, PARTS };
static const char *const part_names[PARTS] = {"gradients", "logits", "hidden", "input_gradient"};

enum { KEY = 240, CHECKSUMS = 64, VALUE = CHECKSUMS + 20, NAME = KEY + 20 }; /* bytes of texts */

/* ---- what a point is ---- */

static void write_key(const bppsa_bench_session *s, char key[KEY]) {
  const bppsa_recurrent_config *c = &s->point.config;
  snprintf(key, KEY,
           "%s, T %" PRId64 ", B %" PRId64 ", I %" PRId64 ", H %" PRId64 ", layers %" PRId64 ", classes %" PRId64
           ", %s, loss %s, %s, init %s",
           s->point.kind->name, c->seq_len, c->batch, c->input, c->hidden, c->layers, c->classes,
           bppsa_nonlinearity_name(c->nonlinearity), c->loss_all ? "all" : "last", bppsa_dtype_name(c->dtype),
           s->point.weights != NULL ? "file" : bppsa_bench_init_name(s->point.init));
}

static const char *part_name(const char *key, int part, char name[NAME]) {
  snprintf(name, NAME, "%s: %s", key, part_names[part]);
  return name;
}

static uLong add_view(uLong crc, const bppsa_view *view) {
  return crc32_z(crc, view->data, bppsa_view_bytes(view));
}

/* Writes the checksums of the weights, rounded to the dtype, and of the inputs. */
static void write_checksums(const bppsa_bench_session *s, char text[CHECKSUMS]) {
  const bppsa_view x = bppsa_bench_x_view(s), seed = bppsa_bench_seed_view(s);
  const uLong start = crc32_z(0, NULL, 0);
  uLong weights = start;
  for (int64_t p = 0; p < s->holder->parameter_count; ++p) {
    weights = add_view(weights, &s->holder->parameters[p].value);
  }
  snprintf(text, CHECKSUMS, "weights %08lx, x %08lx, seed %08lx", weights, add_view(start, &x), add_view(start, &seed));
}

/* How many numbers each part has; returns the number of parts. */
static int count_parts(const bppsa_bench_session *s, int64_t counts[PARTS]) {
  const bppsa_recurrent_config *c = &s->point.config;
  counts[GRADIENTS] = 0;
  for (int64_t p = 0; p < s->holder->parameter_count - s->point.kind->family->head_parameters; ++p) {
    counts[GRADIENTS] += bppsa_view_count(&s->holder->parameters[p].value);
  }
  counts[LOGITS] = (c->loss_all ? c->seq_len : 1) * c->batch * c->classes;
  counts[HIDDEN] = 2;
  counts[INPUT_GRADIENT] = c->seq_len * c->batch * c->input;
  return c->input_gradients ? PARTS : INPUT_GRADIENT;
}

/* ---- reading ---- */

/* The checksum of a reference's tensors, with which the file's value for its key must end. */
static uLong parts_checksum(const bppsa_safetensors *file, const char *key) {
  char name[NAME];
  uLong crc = crc32_z(0, NULL, 0);
  for (int i = 0; i < PARTS; ++i) {
    const bppsa_view *part = bppsa_safetensors_find(file, part_name(key, i, name));
    crc = part != NULL && part->dtype == BPPSA_F64 ? add_view(crc, part) : crc;
  }
  return crc;
}

static bppsa_status check_entry(const char *path, const bppsa_safetensors *file, const bppsa_metadata *entry) {
  const char *stored = strstr(entry->value, ", numbers ");
  char found[VALUE];
  snprintf(found, sizeof found, ", numbers %08lx", parts_checksum(file, entry->key));
  return stored != NULL && strcmp(stored, found) == 0
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%.240s\": its tensors have%s, its entry '%.120s', expected the same", path,
                          entry->key, strchr(found, ' '), entry->value);
}

static bppsa_status check_file(const char *path, const bppsa_safetensors *file) {
  const char *version = bppsa_safetensors_metadata(file, MARK);
  if (version == NULL || strcmp(version, FORMAT) != 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: metadata: " MARK " is %.40s, expected " FORMAT ", as --save-references writes it",
                      path, version != NULL ? version : "missing");
  }
  bppsa_metadata entry = {0};
  while (bppsa_safetensors_metadata_next(file, &entry)) {
    BPPSA_TRY(strcmp(entry.key, MARK) == 0 ? BPPSA_OK : check_entry(path, file, &entry));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_bench_open_references(const char *path, bppsa_safetensors **file) {
  bppsa_safetensors *opened = NULL;
  BPPSA_TRY(bppsa_fail_prefix(bppsa_input_status(bppsa_safetensors_load(path, &opened)), "--references"));
  const bppsa_status status = bppsa_fail_prefix(check_file(path, opened), "--references");
  if (status != BPPSA_OK) {
    bppsa_safetensors_destroy(opened);
    return status;
  }
  *file = opened;
  return BPPSA_OK;
}

/* Sets the views of the point's parts; false: the file's parts do not fit, and the result says why. */
static bool find_parts(bppsa_bench_session *s, const int64_t *counts, int count, const bppsa_view *views[PARTS]) {
  const char *path = s->bench->asked->references;
  char key[KEY], checksums[CHECKSUMS], name[NAME], *reason = s->result.reference_reason;
  write_key(s, key);
  write_checksums(s, checksums);
  const char *value = bppsa_safetensors_metadata(s->references, key);
  if (value == NULL) {
    snprintf(reason, BPPSA_BENCH_REASON, "%.160s has no reference of \"%s\"", path, key);
    return false;
  }
  if (strncmp(value, checksums, strlen(checksums)) != 0) {
    snprintf(reason, BPPSA_BENCH_REASON, "%.160s has a reference of \"%s\" that was made of %.*s, here are %s", path, key,
             (int)strlen(checksums), value, checksums);
    return false;
  }
  for (int i = 0; i < count; ++i) {
    views[i] = bppsa_safetensors_find(s->references, part_name(key, i, name));
    if (views[i] == NULL || views[i]->dtype != BPPSA_F64 || bppsa_view_count(views[i]) != counts[i]) {
      snprintf(reason, BPPSA_BENCH_REASON, "%.160s has no tensor \"%s\" of %" PRId64 " numbers in f64", path, name, counts[i]);
      return false;
    }
  }
  return true;
}

bppsa_status bppsa_bench_read_reference(bppsa_bench_session *s) {
  double **const parts[PARTS] = {&s->gradients, &s->logits, &s->hidden, &s->input_gradient};
  const bppsa_view *views[PARTS];
  int64_t counts[PARTS];
  BPPSA_TRY(bppsa_bench_hold_weights(s));
  const int count = count_parts(s, counts);
  if (!find_parts(s, counts, count, views)) {
    return BPPSA_OK;
  }
  for (int i = 0; i < count; ++i) {
    *parts[i] = bppsa_calloc(counts[i], sizeof(double));
    if (*parts[i] == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    memcpy(*parts[i], views[i]->data, bppsa_view_bytes(views[i]));
  }
  s->result.hidden_zeros = s->hidden[0];
  s->result.hidden_subnormals = s->hidden[1];
  s->result.reference_read = true;
  return BPPSA_OK;
}

/* ---- writing ---- */

/* A point's reference, ready to be written. */
typedef struct {
  char key[KEY], value[VALUE], names[PARTS][NAME];
  int count; /* of parts */
  int64_t counts[PARTS];
  double *parts[PARTS];
} saved_point;

/* The session that the driver holds. */
typedef struct {
  bppsa_bench_session session; /* the first member, so that functions of all cases find it where the driver keeps a session */
  int64_t count;
  saved_point *points; /* has room for all points of the run */
} saving;

static bppsa_status prepare(bppsa_bench *bench) {
  saving *made = bench->session;
  bppsa_bench_session *s = &made->session;
  s->bench = bench;
  s->device = bench->device;
  while (bppsa_bench_choose_point(bench->asked, bench->points, &s->point)) {
    ++bench->points;
  }
  made->points = bppsa_calloc(bench->points, sizeof *made->points);
  return made->points != NULL ? BPPSA_OK : bppsa_bench_no_room();
}

static void release(bppsa_bench *bench) {
  saving *made = bench->session;
  for (int64_t i = 0; i < made->count; ++i) {
    for (int part = 0; part < PARTS; ++part) {
      bppsa_free(made->points[i].parts[part]);
    }
  }
  bppsa_free(made->points);
}

/* Checks that the reference, which is computed on the host, fits into its memory. */
static bppsa_status check_memory(const bppsa_bench_session *s) {
  const bppsa_bench *bench = s->bench;
  const int64_t limit = bench->gpu ? bppsa_machine_memory() / 4 * 3 : bench->memory_limit;
  int64_t bytes;
  BPPSA_TRY(bppsa_bench_count_reference(s, &bytes));
  return bytes <= limit
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--memory-limit: %" PRId64 " bytes, expected at least %" PRId64, limit, bytes);
}

static bppsa_status make_reference(bppsa_bench_session *s) {
  BPPSA_TRY(check_memory(s));
  BPPSA_TRY(bppsa_bench_make_inputs(s));
  BPPSA_TRY(bppsa_bench_compute_reference(s));
  BPPSA_TRY(bppsa_bench_count_hidden(s, NULL));
  s->hidden = bppsa_calloc(2, sizeof *s->hidden);
  if (s->hidden == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  s->hidden[0] = s->result.hidden_zeros;
  s->hidden[1] = s->result.hidden_subnormals;
  return bppsa_bench_hold_weights(s);
}

/* Moves the session's reference to the list. */
static const saved_point *keep(bppsa_bench_session *s) {
  saving *made = s->bench->session;
  double **const parts[PARTS] = {&s->gradients, &s->logits, &s->hidden, &s->input_gradient};
  saved_point *p = &made->points[made->count++];
  char checksums[CHECKSUMS];
  uLong crc = crc32_z(0, NULL, 0);
  write_key(s, p->key);
  write_checksums(s, checksums);
  p->count = count_parts(s, p->counts);
  for (int i = 0; i < p->count; ++i) {
    part_name(p->key, i, p->names[i]);
    crc = crc32_z(crc, (const unsigned char *)*parts[i], (size_t)p->counts[i] * sizeof(double));
    p->parts[i] = *parts[i];
    *parts[i] = NULL;
  }
  snprintf(p->value, VALUE, "%s, numbers %08lx", checksums, crc);
  return p;
}

static bppsa_status enter(bppsa_bench *bench, int64_t index, bool *more) {
  bppsa_bench_session *s = bench->session;
  *more = bppsa_bench_choose_point(bench->asked, index, &s->point);
  if (!*more) {
    return BPPSA_OK;
  }
  const double began = bppsa_now();
  bench->idle = true; /* nothing is timed */
  bppsa_progress_show(&bench->progress, "point %" PRId64 " of %" PRId64 ", T %" PRId64 ": its reference", index + 1,
                      bench->points, s->point.config.seq_len);
  s->result = (bppsa_bench_result){0};
  BPPSA_TRY(make_reference(s));
  const saved_point *p = keep(s);
  json_t *row = json_object();
  bool ok = row != NULL && bppsa_json_put_text(row, "model", s->point.kind->name) && bppsa_bench_put_point(row, s);
  ok = ok && bppsa_json_put_text(row, "checksums", p->value) && bppsa_json_put_real(row, "took_s", bppsa_now() - began);
  row = bppsa_json_finish(row, ok);
  return json_array_append_new(bench->report.rows, row) == 0 ? BPPSA_OK : bppsa_bench_no_room();
}

/* Saves the references of the list. */
static bppsa_status save(const char *path, const void *context) {
  const saving *made = context;
  int64_t count = 0;
  bppsa_named_view *tensors = bppsa_calloc(made->count * PARTS, sizeof *tensors);
  bppsa_metadata *metadata = bppsa_calloc(made->count + 1, sizeof *metadata);
  bppsa_status status = tensors != NULL && metadata != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
  for (int64_t i = 0; status == BPPSA_OK && i < made->count; ++i) {
    const saved_point *p = &made->points[i];
    metadata[i + 1] = (bppsa_metadata){p->key, p->value};
    for (int part = 0; part < p->count; ++part) {
      tensors[count++] = (bppsa_named_view){p->names[part], bppsa_view_make(p->parts[part], BPPSA_F64, 1, &p->counts[part])};
    }
  }
  if (status == BPPSA_OK) {
    metadata[0] = (bppsa_metadata){MARK, FORMAT};
    status = bppsa_safetensors_save(path, count, tensors, made->count + 1, metadata);
  }
  bppsa_free(tensors);
  bppsa_free(metadata);
  return status;
}

static bppsa_status finish(bppsa_bench *bench) {
  const saving *made = bench->session;
  const bppsa_output *to = &bench->request->to;
  const char *path = bench->asked->save_references;
  BPPSA_TRY(bppsa_save_results(1, &(bppsa_result_file){path, save, made}));
  for (int64_t i = 0; !to->json && i < made->count; ++i) {
    const double seconds = json_number_value(json_object_get(json_array_get(bench->report.rows, (size_t)i), "took_s"));
    char time[24];
    BPPSA_TRY(bppsa_output_print(to, "%s: %s\n", made->points[i].key, bppsa_table_time_text(seconds, time, sizeof time)));
  }
  return to->json ? BPPSA_OK
                  : bppsa_output_print(to, "%" PRId64 " reference%s in %s\n", made->count, made->count == 1 ? "" : "s", path);
}

const bppsa_bench_case bppsa_bench_case_references = {.name = "references",
                                                      .session = sizeof(saving),
                                                      .memory_quarters = 3,
                                                      .prepare = prepare,
                                                      .release = release,
                                                      .enter = enter,
                                                      .leave = bppsa_bench_leave_point,
                                                      .finish = finish};
