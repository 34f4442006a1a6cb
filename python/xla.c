/* Handlers of XLA's FFI (python/xla.h): a call's buffers become the arrays of recurrent/layer.h, and its attributes and shapes the
 * layer (python/xla_layers.h). On a GPU all work is queued on XLA's stream, and nothing is waited for. */
#include "python/xla.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "python/passes.h"
#include "python/xla_call.h"
#include "python/xla_layers.h"
#include "recurrent/cell.h"
#include "recurrent/layer.h"

/* ---- names, shapes and types of arrays ---- */

#define ROW(name, shape, type) {#name, shape, type},
static const struct {
  const char *name, *shape;
  char type;
} table[ARRAYS] = {BPPSA_PYTHON_ARRAYS(ROW)};

#define BIT(name) (INT64_C(1) << ARRAY_##name)

/* ---- a call ---- */

typedef struct {
  bppsa_xla_key key;
  int64_t arguments, results;             /* the attributes */
  const bppsa_xla_buffer *arrays[ARRAYS]; /* NULL: not of this call */
  int64_t members, gates, states;         /* E, or 1; G·H; S */
  int64_t *lengths;                       /* of all members, where the call has them as int32 */
  char *scratch;                          /* of a pass */
  void *allocated;                        /* what is to be freed behind the call, */
  int64_t bytes;                          /* and its size */
  int64_t at;                             /* the pass that is computed */
  const bppsa_xla_frame *frame;
  bppsa_device *gpu;      /* on XLA's stream; NULL: the call is on a CPU */
  bppsa_xla_error *error; /* of XLA's own */
} call;

static bppsa_status read_attributes(const bppsa_xla_attributes *attributes, call *c) {
  BPPSA_TRY(bppsa_xla_read_word(attributes, "cell", c->key.cell));
  BPPSA_TRY(bppsa_xla_read_word(attributes, "method", c->key.method));
  BPPSA_TRY(bppsa_xla_read_word(attributes, "forward", c->key.forward));
  BPPSA_TRY(bppsa_xla_read_number(attributes, "relu", &c->key.relu));
  BPPSA_TRY(bppsa_xla_read_number(attributes, "threads", &c->key.threads));
  BPPSA_TRY(bppsa_xla_read_number(attributes, "arguments", &c->arguments));
  return bppsa_xla_read_number(attributes, "results", &c->results);
}

/* Gives the buffers of a list to the arrays whose bits are set. */
static bppsa_status name_buffers(const bppsa_xla_list *buffers, int64_t bits, const char *what, call *c) {
  int64_t next = 0;
  for (int k = 0; k < ARRAYS; ++k) {
    if (bits >> k & 1) {
      if (next == buffers->count || buffers->types[next] != BPPSA_XLA_BUFFER || c->arrays[k] != NULL) {
        return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: a buffer for %s is missing", what, table[k].name);
      }
      c->arrays[k] = buffers->items[next++];
    }
  }
  return next == buffers->count ? BPPSA_OK
                                : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %lld buffers, expected %lld", what,
                                             (long long)buffers->count, (long long)next);
}

/* The extent that a letter of the table stands for; -1: any. */
static int64_t extent_of(const call *c, char letter) {
  const bppsa_xla_key *key = &c->key;
  const struct {
    char letter;
    int64_t extent;
  } letters[] = {{'T', key->steps},  {'N', key->steps + 1}, {'B', key->batch}, {'I', key->input},
                 {'H', key->hidden}, {'G', c->gates},       {'S', c->states}};
  for (size_t k = 0; k < sizeof letters / sizeof letters[0]; ++k) {
    if (letters[k].letter == letter) {
      return letters[k].extent;
    }
  }
  return -1;
}

static bool has_type(const bppsa_xla_buffer *buffer, char type, bool f64) {
  const int32_t dtype = buffer->dtype;
  return type == 'r'   ? dtype == (f64 ? BPPSA_XLA_F64 : BPPSA_XLA_F32)
         : type == 'u' ? dtype == BPPSA_XLA_U8 || dtype == BPPSA_XLA_PRED
                       : dtype == BPPSA_XLA_S32 || dtype == BPPSA_XLA_S64;
}

/* Does an array of the call have its type and its shape? Sets E by the first one with an axis for it. */
static bppsa_status check_array(call *c, int which, bool *found_members) {
  const bppsa_xla_buffer *buffer = c->arrays[which];
  const char *shape = table[which].shape;
  const int64_t rank = (int64_t)strlen(shape), extra = buffer->rank - rank;
  if (!has_type(buffer, table[which].type, c->key.f64) || extra < 0 || extra > (which != ARRAY_scratch)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: type %d with %lld axes, expected %lld axes of %s", table[which].name,
                      (int)buffer->dtype, (long long)buffer->rank, (long long)rank,
                      table[which].type == 'r'   ? "x's type"
                      : table[which].type == 'u' ? "bytes"
                                                 : "int32 or int64");
  }
  if (extra == 1 && !*found_members) {
    *found_members = true;
    c->members = buffer->dims[0];
  }
  if (extra == 1 && buffer->dims[0] != c->members) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: %lld passes, expected %lld", table[which].name, (long long)buffer->dims[0],
                      (long long)c->members);
  }
  for (int64_t k = 0; k < rank; ++k) {
    const int64_t extent = extent_of(c, shape[k]);
    if (extent >= 0 && buffer->dims[extra + k] != extent) {
      return bppsa_fail(BPPSA_ERR_SHAPE, "%s: axis %lld has %lld, expected %c = %lld", table[which].name, (long long)k,
                        (long long)buffer->dims[extra + k], shape[k], (long long)extent);
    }
  }
  return BPPSA_OK;
}

/* Finds all sizes in x and W_hh, and holds the other arrays against them. */
static bppsa_status check_arrays(call *c) {
  const bppsa_xla_buffer *x = c->arrays[ARRAY_x], *w_hh = c->arrays[ARRAY_w_hh];
  if (x == NULL || w_hh == NULL || c->arrays[ARRAY_w_ih] == NULL || x->rank < 3 || w_hh->rank < 2) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "x [T, B, I], w_ih and w_hh [G H, H]: expected all of them");
  }
  const bppsa_cell *cell;
  BPPSA_TRY(bppsa_python_find_cell(c->key.cell, &cell));
  c->key.f64 = x->dtype == BPPSA_XLA_F64;
  c->key.steps = x->dims[x->rank - 3];
  c->key.batch = x->dims[x->rank - 2];
  c->key.input = x->dims[x->rank - 1];
  c->key.hidden = w_hh->dims[w_hh->rank - 1];
  c->gates = cell->gates * c->key.hidden;
  c->states = (cell->pair ? 2 : 1) * c->key.hidden;
  c->key.biases = (c->arguments & (BIT(b_ih) | BIT(b_hh))) != 0;
  c->key.lengths = (c->arguments & BIT(lengths)) != 0;
  c->key.resets = (c->arguments & BIT(resets)) != 0;
  c->key.reset_state = (c->arguments & BIT(reset_state)) != 0;
  c->members = 1;
  bool found_members = false;
  for (int k = 0; k < ARRAYS; ++k) {
    BPPSA_TRY(c->arrays[k] != NULL ? check_array(c, k, &found_members) : BPPSA_OK);
  }
  for (int k = 0; k < ARRAYS; ++k) { /* a result that all passes would write */
    if (found_members && (c->results >> k & 1) && k != ARRAY_scratch && c->arrays[k]->rank == (int64_t)strlen(table[k].shape)) {
      return bppsa_fail(BPPSA_ERR_SHAPE, "%s: a result without an axis for the %lld passes", table[k].name,
                        (long long)c->members);
    }
  }
  return BPPSA_OK;
}

/* An array's part for the pass that is computed; NULL: the call has no such array. */
static void *part_of(const call *c, int which) {
  const bppsa_xla_buffer *buffer = c->arrays[which];
  if (buffer == NULL) {
    return NULL;
  }
  const bool shared = buffer->rank == (int64_t)strlen(table[which].shape);
  return (char *)buffer->data + (shared ? 0 : c->at * bppsa_xla_bytes(buffer, 1));
}

/* Are there lengths that are int32? */
static bool has_small_lengths(const call *c) {
  return c->arrays[ARRAY_lengths] != NULL && c->arrays[ARRAY_lengths]->dtype == BPPSA_XLA_S32;
}

static const int64_t *lengths_of(const call *c) {
  const bppsa_xla_buffer *buffer = c->arrays[ARRAY_lengths];
  if (c->gpu != NULL || !has_small_lengths(c)) {
    return part_of(c, ARRAY_lengths);
  }
  return c->lengths + (buffer->rank == 2 ? c->at * c->key.batch : 0);
}

/* Takes XLA's scratch where it is large enough, otherwise other memory for the length of the call. */
static bppsa_status find_scratch(call *c, int64_t bytes) {
  const bppsa_xla_buffer *given = c->arrays[ARRAY_scratch], *lengths = c->arrays[ARRAY_lengths];
  const int64_t count = c->gpu == NULL && has_small_lengths(c) ? bppsa_xla_bytes(lengths, 0) / 4 : 0;
  const int64_t front = (count * 8 + BPPSA_ALIGNMENT - 1) / BPPSA_ALIGNMENT * BPPSA_ALIGNMENT;
  char *memory = NULL;
  c->bytes = front + bytes;
  if (given != NULL && given->dims[0] >= c->bytes && (uintptr_t)given->data % BPPSA_ALIGNMENT == 0) {
    memory = given->data;
  } else if (c->gpu != NULL) {
    c->error = bppsa_xla_allocate(c->frame, c->bytes, BPPSA_ALIGNMENT, &c->allocated);
    memory = c->allocated;
  } else {
    /* aligned_alloc takes whole multiples of the alignment */
    const int64_t whole = (c->bytes + BPPSA_ALIGNMENT - 1) / BPPSA_ALIGNMENT * BPPSA_ALIGNMENT;
    memory = c->allocated = aligned_alloc(BPPSA_ALIGNMENT, (size_t)whole);
  }
  if (memory == NULL) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "no memory for %lld bytes of scratch", (long long)c->bytes);
  }
  c->lengths = (int64_t *)(void *)memory;
  c->scratch = memory + front;
  for (int64_t k = 0; k < count; ++k) {
    c->lengths[k] = ((const int32_t *)lengths->data)[k];
  }
  return BPPSA_OK;
}

static void free_scratch(call *c) {
  if (c->gpu == NULL) {
    free(c->allocated);
  } else if (c->allocated != NULL) {
    bppsa_xla_error *error = bppsa_xla_release_memory(c->frame, c->bytes, c->allocated);
    c->error = c->error == NULL ? error : c->error;
  }
}

/* ---- passes ---- */

/* Adds row 0 of the gradient `from` to the gradient `to` [B][H]. */
static void add_first(const call *c, int to, int from) {
  void *sum = part_of(c, to);
  const void *row = part_of(c, from);
  const int64_t count = c->key.batch * c->key.hidden;
  for (int64_t k = 0; sum != NULL && row != NULL && k < count; ++k) {
    if (c->key.f64) {
      ((double *)sum)[k] += ((const double *)row)[k];
    } else {
      ((float *)sum)[k] += ((const float *)row)[k];
    }
  }
}

/* Row 0 of an array that is added to another one: h and c begin with h0 and c0. NONE: none; the state in front of the first
 * step has no second derivative. */
enum { NONE = ARRAYS };
static const struct {
  int to, from;
} firsts[BPPSA_PYTHON_KINDS][2] = {{{ARRAY_h, ARRAY_h0}, {ARRAY_c, ARRAY_c0}},
                                   {{ARRAY_of_h0, ARRAY_of_h}, {ARRAY_of_c0, ARRAY_of_c}},
                                   {{ARRAY_d_h, ARRAY_d_h0}, {ARRAY_d_c, ARRAY_d_c0}},
                                   {{ARRAY_of_h0, ARRAY_d_of_h}, {ARRAY_of_c0, ARRAY_d_of_c}},
                                   {{NONE, NONE}, {NONE, NONE}}};

/* Computes member c->at with the layer, or, where e is NULL, one without steps or without samples, whose results are zeros by
 * now. */
static bppsa_status run_pass(int kind, const bppsa_xla_layer *e, const call *c) {
  const bool far = c->gpu != NULL;
  if (e != NULL) {
    const bppsa_python_extras extras = {.row = c->key.batch * c->key.hidden * (c->key.f64 ? 8 : 4),
                                        .far_resets = far,
                                        .far_lengths = far,
                                        .short_lengths = far && has_small_lengths(c)};
    void *arrays[ARRAYS];
    for (int k = 0; k < ARRAYS; ++k) {
      arrays[k] = part_of(c, k);
    }
    arrays[ARRAY_lengths] = (void *)(uintptr_t)lengths_of(c);
    BPPSA_TRY(bppsa_python_compute(kind, e->layer, far ? c->gpu : e->device, arrays, &extras, c->scratch));
  }
  const bool writes_first = kind == BPPSA_PYTHON_FORWARD || kind == BPPSA_PYTHON_TANGENT; /* a layer does that itself */
  for (int i = 0; i < 2 && firsts[kind][i].to != NONE && (e == NULL || !writes_first) && !far; ++i) {
    add_first(c, firsts[kind][i].to, firsts[kind][i].from);
  }
  return BPPSA_OK;
}

/* ---- handlers ---- */

typedef struct {
  const char *name;
  int kind;
  int64_t (*scratch)(const bppsa_xla_layer *e); /* bytes */
} handler;

static int64_t forward_bytes(const bppsa_xla_layer *e) {
  return e->sizes.forward;
}

static int64_t backward_bytes(const bppsa_xla_layer *e) {
  return e->sizes.backward;
}

static int64_t tangent_bytes(const bppsa_xla_layer *e) {
  return e->tangent;
}

static int64_t second_bytes(const bppsa_xla_layer *e) {
  return e->second;
}

static int64_t third_bytes(const bppsa_xla_layer *e) {
  return bppsa_python_third_bytes(&e->sizes, e->tangent, e->third);
}

/* A call without steps or without samples: all results are zeros. */
static bppsa_status clear_results(const call *c) {
  if (c->gpu != NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%lld steps of %lld samples on a GPU, expected at least one of each",
                      (long long)c->key.steps, (long long)c->key.batch);
  }
  for (int k = 0; k < ARRAYS; ++k) {
    if ((c->results >> k & 1) && k != ARRAY_scratch) {
      memset(c->arrays[k]->data, 0, (size_t)bppsa_xla_bytes(c->arrays[k], 0));
    }
  }
  return BPPSA_OK;
}

static bppsa_status run_passes(const handler *h, call *c) {
  bppsa_xla_layer *e = NULL;
  bppsa_status status = BPPSA_OK;
  if (c->key.steps == 0 || c->key.batch == 0) {
    BPPSA_TRY(clear_results(c));
  } else {
    BPPSA_TRY(bppsa_xla_take_layer(&c->key, &e));
    status = find_scratch(c, h->scratch(e));
  }
  for (c->at = 0; status == BPPSA_OK && c->at < c->members; ++c->at) {
    status = run_pass(h->kind, e, c);
  }
  free_scratch(c);
  if (e != NULL) {
    bppsa_xla_give_back(e);
  }
  return status;
}

static bppsa_status find_gpu(call *c) {
  void *stream = NULL;
  int32_t number = 0;
  c->error = bppsa_xla_find_stream(c->frame, &stream, &number);
  BPPSA_TRY(c->error == NULL ? bppsa_device_on_stream(number, stream, 1, &c->gpu) : BPPSA_ERR_CUDA);
  c->key.gpu = 1 + number;
  c->key.threads = 1;
  return BPPSA_OK;
}

static bppsa_xla_error *handle(const handler *h, bool gpu, bppsa_xla_frame *frame) {
  if (bppsa_xla_answer_metadata(frame) || frame->stage != BPPSA_XLA_EXECUTE) {
    return NULL;
  }
  call c = {.frame = frame};
  bppsa_status status = read_attributes(&frame->attributes, &c);
  status = status == BPPSA_OK ? name_buffers(&frame->arguments, c.arguments, "arguments", &c) : status;
  status = status == BPPSA_OK ? name_buffers(&frame->results, c.results, "results", &c) : status;
  status = status == BPPSA_OK ? check_arrays(&c) : status;
  status = status == BPPSA_OK && gpu ? find_gpu(&c) : status;
  status = status == BPPSA_OK ? run_passes(h, &c) : status;
  bppsa_device_destroy(c.gpu);
  return c.error != NULL ? c.error : bppsa_xla_answer(frame, status, c.key.cell, h->name);
}

static const handler kinds[BPPSA_PYTHON_KINDS] = {{"forward", BPPSA_PYTHON_FORWARD, forward_bytes},
                                                  {"backward", BPPSA_PYTHON_BACKWARD, backward_bytes},
                                                  {"tangent", BPPSA_PYTHON_TANGENT, tangent_bytes},
                                                  {"second derivative", BPPSA_PYTHON_SECOND, second_bytes},
                                                  {"second tangent", BPPSA_PYTHON_THIRD, third_bytes}};

#define HANDLERS(name, kind)                                                                                                     \
  bppsa_xla_error *bppsa_python_xla_##name(bppsa_xla_frame *frame) {                                                             \
    return handle(&kinds[kind], false, frame);                                                                                   \
  }                                                                                                                              \
  bppsa_xla_error *bppsa_python_xla_gpu_##name(bppsa_xla_frame *frame) {                                                         \
    return handle(&kinds[kind], true, frame);                                                                                    \
  }
HANDLERS(forward, BPPSA_PYTHON_FORWARD)
HANDLERS(backward, BPPSA_PYTHON_BACKWARD)
HANDLERS(tangent, BPPSA_PYTHON_TANGENT)
HANDLERS(second, BPPSA_PYTHON_SECOND)
HANDLERS(third, BPPSA_PYTHON_THIRD)

/* ---- sizes ---- */

bppsa_status bppsa_python_xla_find_gpu(void) {
  bppsa_device *device = NULL;
  BPPSA_TRY(bppsa_device_on_stream(0, NULL, 1, &device));
  bppsa_device_destroy(device);
  return BPPSA_OK;
}

static bppsa_status copy_word(const char *what, const char *from, char word[BPPSA_XLA_WORD]) {
  if (strlen(from) >= BPPSA_XLA_WORD) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s '%s': expected at most %d characters", what, from, BPPSA_XLA_WORD - 1);
  }
  memcpy(word, from, strlen(from));
  return BPPSA_OK;
}

bppsa_status bppsa_python_xla_facts(const char *cell, const char *method, const char *forward_kind, int relu, int f64,
                                    int64_t threads, int gpu, const int64_t sizes[4], int64_t arguments,
                                    int64_t facts[BPPSA_PYTHON_XLA_FACTS]) {
  bppsa_xla_key key = {.gpu = 1 + gpu,
                       .relu = relu != 0,
                       .f64 = f64 != 0,
                       .threads = threads,
                       .steps = sizes[0],
                       .batch = sizes[1],
                       .input = sizes[2],
                       .hidden = sizes[3],
                       .biases = (arguments & (BIT(b_ih) | BIT(b_hh))) != 0,
                       .lengths = (arguments & BIT(lengths)) != 0,
                       .resets = (arguments & BIT(resets)) != 0,
                       .reset_state = (arguments & BIT(reset_state)) != 0};
  bppsa_xla_layer *e = NULL;
  BPPSA_TRY(copy_word("cell", cell, key.cell));
  BPPSA_TRY(copy_word("method", method, key.method));
  BPPSA_TRY(copy_word("forward", forward_kind, key.forward));
  BPPSA_TRY(bppsa_xla_take_layer(&key, &e));
  const int64_t front = key.lengths ? key.batch * 8 + BPPSA_ALIGNMENT : 0; /* lengths that are int32 (find_scratch) */
  facts[0] = e->sizes.saved;
  facts[1] = e->sizes.forward + front;
  facts[2] = e->sizes.backward + front;
  facts[3] = e->tangent + front;
  facts[4] = e->second + front;
  facts[5] = third_bytes(e) + front;
  facts[6] = e->pair ? 2 : 1;
  bppsa_xla_give_back(e);
  return BPPSA_OK;
}
