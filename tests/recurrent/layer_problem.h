/* Stateless passes of random layers beside the same passes of a model (bppsa_recurrent_create), whose bits they must have. Every
 * array that is given to a pass ends where its memory ends, or begins where it begins, and scratch is full of NaN. */
#ifndef BPPSA_TESTS_RECURRENT_LAYER_PROBLEM_H
#define BPPSA_TESTS_RECURRENT_LAYER_PROBLEM_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/layer.h"
#include "recurrent/parallel_backward.h"
#include "recurrent/parallel_forward.h"
#include "rnn/rnn.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

static const bppsa_cell *const layer_cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
enum { LAYER_CELLS = sizeof layer_cells / sizeof *layer_cells, LAYER_WEIGHTS = 5, LAYER_SEEDS = 4, LAYER_GRADIENTS = 8 };

/* ---- random numbers ---- */

typedef struct {
  uint64_t state;
} layer_dice;

static inline uint64_t layer_toss(layer_dice *d) { /* splitmix64 */
  uint64_t z = d->state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static inline int64_t layer_roll(layer_dice *d, int64_t least, int64_t most) {
  return least + (int64_t)(layer_toss(d) % (uint64_t)(most - least + 1));
}

/* ---- arrays in the device's memory ---- */

typedef struct {
  void *data;   /* NULL: the array is not there */
  int64_t size; /* bytes */
  void *pages;  /* on a CPU and on an emulated GPU: mapped, between two pages that nobody may touch */
  size_t mapped;
} layer_array;

static inline bool layer_hosted(const bppsa_device *device) {
  return bppsa_device_get_kind(device) == BPPSA_CPU;
}

/* Does the next array begin where its memory begins, so that nothing lies in front of it? Otherwise it ends where its memory
 * ends. Half of the arrays do, whatever the order of calls is. */
static inline bool layer_at_front(void) {
  static layer_dice turns;
  return layer_toss(&turns) % 2 == 0;
}

/* Makes an array of NaN. */
static inline layer_array layer_open(const bppsa_device *device, int64_t size, bool aligned) {
  layer_array a = {.size = size};
  if (!layer_hosted(device) && !is_emulated(device)) {
    void *noise = malloc((size_t)size);
    assert_non_null(noise);
    memset(noise, 0xff, (size_t)size);
    a.data = on_device(device, noise, size);
    free(noise);
    return a;
  }
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = ((size_t)size + page - 1) / page * page;
  a.mapped = pages + 2 * page;
  a.pages = mmap(NULL, a.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(a.pages != MAP_FAILED);
  char *first = (char *)a.pages + page;
  assert_int_equal(mprotect(a.pages, page, PROT_NONE), 0);
  assert_int_equal(mprotect(first + pages, page, PROT_NONE), 0);
  memset(first, 0xff, pages);
  const size_t room = layer_at_front() ? 0 : pages - (size_t)size;
  a.data = first + (aligned ? room / BPPSA_ALIGNMENT * BPPSA_ALIGNMENT : room);
  return a;
}

static inline void layer_close(const bppsa_device *device, layer_array *a) {
  if (a->pages != NULL) {
    assert_int_equal(bppsa_device_wait(device), BPPSA_OK); /* an emulated GPU may have work left */
    assert_int_equal(munmap(a->pages, a->mapped), 0);
  } else if (a->data != NULL) {
    bppsa_memory_free(device, a->data);
  }
  *a = (layer_array){0};
}

static inline layer_array layer_random(const bppsa_device *device, layer_dice *d, bppsa_dtype dtype, int64_t count,
                                       double scale) {
  double *values = uniform(layer_toss(d), count, scale);
  void *reals = rounded(dtype, values, count);
  layer_array a = layer_open(device, count * (int64_t)bppsa_dtype_size(dtype), false);
  assert_int_equal(bppsa_memory_put(device, a.data, reals, a.size), BPPSA_OK);
  bppsa_free(reals);
  bppsa_free(values);
  return a;
}

/* The array in host memory; free it with free. */
static inline void *layer_host(const bppsa_device *device, const void *data, int64_t size) {
  void *host = malloc((size_t)(size > 0 ? size : 1));
  assert_non_null(host);
  assert_int_equal(bppsa_memory_get(device, host, data, size), BPPSA_OK);
  return host;
}

static inline void layer_same(const bppsa_device *device, const char *what, const void *found, const void *expected,
                              int64_t size) {
  void *a = layer_host(device, found, size), *b = layer_host(device, expected, size);
  for (int64_t i = 0; i < size; ++i) {
    if (((char *)a)[i] != ((char *)b)[i]) {
      fail_msg("%s: byte %lld of %lld differs", what, (long long)i, (long long)size);
    }
  }
  free(a);
  free(b);
}

/* ---- a layer and its model ---- */

typedef struct {
  bppsa_recurrent_config config;
  const bppsa_cell *cell;
  bppsa_device *device;
  bppsa_layer *layer;
  bppsa_layer_sizes sizes;
  bppsa_model *model;
  layer_array weights[LAYER_WEIGHTS]; /* the reset state, w_ih, w_hh, b_ih, b_hh */
} layer_problem;

static inline int64_t layer_gates(const layer_problem *p) {
  return p->cell->gates * p->config.hidden;
}

static inline int64_t layer_state(const layer_problem *p) {
  return (p->cell->pair ? 2 : 1) * p->config.hidden;
}

static inline int64_t layer_real(const layer_problem *p) {
  return (int64_t)bppsa_dtype_size(p->config.dtype);
}

/* Gives the model the layer's weights; biases that the layer lacks are 0. */
static inline void layer_set_model(layer_problem *p) {
  const int64_t shift = p->config.reset_state ? 0 : 1;
  for (int64_t i = 0; i < p->model->parameter_count; ++i) {
    const layer_array *from = &p->weights[i + shift];
    void *to = p->model->parameters[i].value.data;
    memset(to, 0, bppsa_view_bytes(&p->model->parameters[i].value));
    if (from->data != NULL) {
      assert_int_equal(bppsa_memory_get(p->device, to, from->data, from->size), BPPSA_OK);
    }
  }
  assert_int_equal(bppsa_model_push(p->model), BPPSA_OK);
}

static inline layer_problem layer_problem_open(const bppsa_recurrent_config *config, const bppsa_cell *cell, bppsa_device *device,
                                               layer_dice *d) {
  layer_problem p = {.config = *config, .cell = cell, .device = device};
  assert_int_equal(bppsa_layer_create(config, cell, device, &p.layer), BPPSA_OK);
  bppsa_layer_bytes(p.layer, &p.sizes);
  bppsa_recurrent_config whole = *config;
  whole.no_head = whole.loss_all = true;
  assert_int_equal(bppsa_recurrent_create(&whole, cell, device, &p.model), BPPSA_OK);
  const int64_t hidden = config->hidden, gates = layer_gates(&p),
                sizes[] = {layer_state(&p), gates * config->input, gates * hidden, gates, gates};
  for (int i = 0; i < LAYER_WEIGHTS; ++i) {
    const bool bias = i > 2, there = i == 0 ? config->reset_state : !bias || (!config->no_bias && layer_roll(d, 0, 9) > 0);
    if (there) {
      p.weights[i] = layer_random(device, d, config->dtype, sizes[i], i == 2 ? 1.2 / sqrt((double)hidden) : .7);
    }
  }
  layer_set_model(&p);
  return p;
}

static inline void layer_problem_close(layer_problem *p) {
  for (int i = 0; i < LAYER_WEIGHTS; ++i) {
    layer_close(p->device, &p->weights[i]);
  }
  bppsa_model_destroy(p->model);
  bppsa_layer_destroy(p->layer);
  bppsa_device_destroy(p->device);
}

/* ---- a batch, and what its passes must find ---- */

typedef struct {
  layer_array x, first[2], tape[3];
  layer_array seeds[LAYER_SEEDS];         /* h, c, h_last, c_last */
  layer_array gradients[LAYER_GRADIENTS]; /* x, h0, c0, w_ih, w_hh, b_ih, b_hh, reset state */
  int64_t *lengths;
  uint8_t *resets;
  void *expected_states[2], *expected[LAYER_GRADIENTS]; /* in host memory; NULL: not compared */
} layer_batch;

static inline bppsa_layer_inputs layer_inputs_of(const layer_problem *p, const layer_batch *b) {
  return (bppsa_layer_inputs){.x = b->x.data,
                              .h0 = b->first[0].data,
                              .c0 = b->first[1].data,
                              .w_ih = p->weights[1].data,
                              .w_hh = p->weights[2].data,
                              .b_ih = p->weights[3].data,
                              .b_hh = p->weights[4].data,
                              .reset_state = p->weights[0].data,
                              .lengths = b->lengths,
                              .resets = b->resets};
}

static inline bppsa_layer_tape layer_tape_of(const layer_batch *b) {
  return (bppsa_layer_tape){.h = b->tape[0].data, .c = b->tape[1].data, .saved = b->tape[2].data};
}

static inline bppsa_view layer_view(const layer_problem *p, const void *data, int32_t ndim, const int64_t *shape) {
  bppsa_view view = bppsa_view_make((void *)(uintptr_t)data, p->config.dtype, ndim, shape);
  view.device = bppsa_device_get_kind(p->device);
  return view;
}

static inline void layer_draw_spans(const layer_problem *p, layer_dice *d, layer_batch *b) {
  const bppsa_recurrent_config *c = &p->config;
  if (c->lengths && layer_roll(d, 0, 3) > 0) {
    b->lengths = calloc((size_t)c->batch, sizeof *b->lengths);
    assert_non_null(b->lengths);
    for (int64_t i = 0; i < c->batch; ++i) {
      b->lengths[i] = layer_roll(d, 1, c->seq_len);
    }
  }
  if ((c->resets || c->reset_state) && layer_roll(d, 0, 3) > 0) {
    const int64_t rate = layer_roll(d, 1, 20);
    b->resets = calloc((size_t)(c->seq_len * c->batch), 1);
    assert_non_null(b->resets);
    for (int64_t i = 0; i < c->seq_len * c->batch; ++i) {
      b->resets[i] = layer_roll(d, 0, rate) == 0;
    }
  }
}

/* The seed [T][B][H] of a half of the states in host memory: what the seeds of all steps and of the last ones make together. */
static inline void *layer_whole_seed(const layer_problem *p, const layer_batch *b, int half) {
  const bppsa_recurrent_config *c = &p->config;
  const layer_array *all = &b->seeds[half], *last = &b->seeds[2 + half];
  const int64_t shape[] = {c->seq_len, c->batch, c->hidden}, row = c->batch * c->hidden;
  if (half == 1 && all->data == NULL && last->data == NULL) {
    return NULL;
  }
  void *whole = calloc((size_t)(c->seq_len * row), (size_t)layer_real(p));
  assert_non_null(whole);
  if (all->data != NULL) {
    assert_int_equal(bppsa_memory_get(p->device, whole, all->data, all->size), BPPSA_OK);
  }
  if (last->data != NULL) {
    void *rows = layer_host(p->device, last->data, last->size);
    const bppsa_view to = bppsa_view_make(whole, c->dtype, 3, shape), from = bppsa_view_make(rows, c->dtype, 2, shape + 1);
    for (int64_t i = 0; i < row; ++i) {
      const int64_t step = (b->lengths != NULL ? b->lengths[i / c->hidden] : c->seq_len) - 1;
      const double sum = bppsa_view_get(&to, step * row + i) + bppsa_view_get(&from, i);
      bppsa_view_set(&to, step * row + i, sum);
    }
    free(rows);
  }
  return whole;
}

/* Copies rows of a half of states in host memory, [count][2H] or [count][H], to rows [H]. */
static inline void *layer_half(const layer_problem *p, const void *states, int64_t count, int half) {
  const int64_t row = p->config.hidden * layer_real(p), apart = layer_state(p) * layer_real(p);
  char *rows = malloc((size_t)(count * row));
  assert_non_null(rows);
  for (int64_t i = 0; i < count; ++i) {
    memcpy(rows + i * row, (const char *)states + i * apart + half * row, (size_t)row);
  }
  return rows;
}

/* The model's passes of the batch. */
static inline void layer_expect(layer_problem *p, layer_batch *b) {
  const bppsa_recurrent_config *c = &p->config;
  const int64_t states[] = {c->seq_len, c->batch, c->hidden}, in[] = {c->seq_len, c->batch, c->input},
                first[] = {1, c->batch, layer_state(p)}, half = c->batch * c->hidden * layer_real(p);
  const bppsa_view x = layer_view(p, b->x.data, 3, in),
                   resets = bppsa_view_make(b->resets, BPPSA_U8, 2, (int64_t[]){c->seq_len, c->batch});
  const bppsa_spans spans = {.lengths = b->lengths, .resets = b->resets != NULL ? &resets : NULL};
  char *joined = calloc((size_t)c->batch, (size_t)(layer_state(p) * layer_real(p)));
  assert_non_null(joined);
  for (int i = 0; i < 2; ++i) {
    const int64_t row = c->hidden * layer_real(p);
    void *rows = b->first[i].data != NULL ? layer_host(p->device, b->first[i].data, b->first[i].size) : NULL;
    for (int64_t s = 0; rows != NULL && s < c->batch; ++s) {
      memcpy(joined + s * layer_state(p) * layer_real(p) + i * row, (char *)rows + s * row, (size_t)row);
    }
    free(rows);
  }
  void *h0 = on_device(p->device, joined, c->batch * layer_state(p) * layer_real(p));
  const bppsa_view start = layer_view(p, h0, 3, first);
  const bool starts = b->first[0].data != NULL || b->first[1].data != NULL;
  assert_int_equal(bppsa_forward_pause_set(p->model, &(bppsa_forward_pause){0}), BPPSA_OK);
  assert_int_equal(bppsa_backward_state_set(p->model, &(bppsa_backward_state){0}), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_forward_spans(p->model, &x, starts ? &start : NULL, &spans), BPPSA_OK);
  for (int i = 0; i < (p->cell->pair ? 2 : 1); ++i) {
    bppsa_view found;
    assert_int_equal((i == 0 ? bppsa_recurrent_states : bppsa_recurrent_cell_states)(p->model, 0, &found), BPPSA_OK);
    b->expected_states[i] = layer_host(p->device, found.data, c->seq_len * half);
  }
  void *seeds[2] = {layer_whole_seed(p, b, 0), layer_whole_seed(p, b, 1)}, *given[2] = {NULL, NULL};
  for (int i = 0; i < 2; ++i) {
    given[i] = seeds[i] != NULL ? on_device(p->device, seeds[i], c->seq_len * half) : NULL;
  }
  const bppsa_view seed = layer_view(p, given[0], 3, states), cells = layer_view(p, given[1], 3, states);
  if (given[1] != NULL) {
    assert_int_equal(bppsa_recurrent_seed_cells(p->model, &cells), BPPSA_OK);
  }
  assert_int_equal(bppsa_recurrent_backward_layers(p->model, &seed), BPPSA_OK);
  if (c->input_gradients) {
    bppsa_view dx, dh0;
    assert_int_equal(p->model->ops->input_gradients(p->model, &dx, &dh0), BPPSA_OK);
    b->expected[0] = layer_host(p->device, dx.data, (int64_t)bppsa_view_bytes(&dx));
    void *both = layer_host(p->device, dh0.data, (int64_t)bppsa_view_bytes(&dh0));
    for (int i = 0; i < (p->cell->pair ? 2 : 1); ++i) {
      b->expected[1 + i] = layer_half(p, both, c->batch, i);
    }
    free(both);
  }
  assert_int_equal(bppsa_model_pull(p->model, true), BPPSA_OK);
  for (int64_t i = 0; i < p->model->parameter_count; ++i) {
    const bppsa_view *gradient = &p->model->parameters[i].gradient;
    const int64_t place = i - (c->reset_state ? 1 : 0);
    void **to = &b->expected[place < 0 ? LAYER_GRADIENTS - 1 : 3 + place];
    *to = malloc(bppsa_view_bytes(gradient));
    assert_non_null(*to);
    memcpy(*to, gradient->data, bppsa_view_bytes(gradient));
  }
  for (int i = 0; i < 2; ++i) {
    bppsa_memory_free(p->device, given[i]);
    free(seeds[i]);
  }
  bppsa_memory_free(p->device, h0);
  free(joined);
}

static inline layer_batch layer_batch_open(layer_problem *p, layer_dice *d) {
  const bppsa_recurrent_config *c = &p->config;
  const int64_t rows = c->seq_len * c->batch, gates = layer_gates(p);
  const bool pair = p->cell->pair;
  layer_batch b = {.x = layer_random(p->device, d, c->dtype, rows * c->input, 1)};
  layer_draw_spans(p, d, &b);
  for (int i = 0; i < (pair ? 2 : 1); ++i) {
    if (layer_roll(d, 0, 3) > 0) {
      b.first[i] = layer_random(p->device, d, c->dtype, c->batch * c->hidden, 1);
    }
    b.tape[i] = layer_open(p->device, p->sizes.states, false);
    for (int last = 0; last < 2; ++last) {
      if (layer_roll(d, 0, 2) > 0) {
        b.seeds[2 * last + i] = layer_random(p->device, d, c->dtype, (last ? c->batch : rows) * c->hidden, 1);
      }
    }
  }
  b.tape[2] = p->sizes.saved > 0 ? layer_open(p->device, p->sizes.saved, false) : b.tape[2];
  const int64_t sizes[LAYER_GRADIENTS] = {
      rows * c->input, c->batch * c->hidden, c->batch * c->hidden, gates * c->input, gates * c->hidden, gates,
      gates,           layer_state(p)};
  layer_expect(p, &b);
  for (int i = 0; i < LAYER_GRADIENTS; ++i) {
    if (b.expected[i] != NULL && layer_roll(d, 0, 9) > 0) {
      b.gradients[i] = layer_open(p->device, sizes[i] * layer_real(p), false);
    }
  }
  return b;
}

static inline void layer_batch_close(const layer_problem *p, layer_batch *b) {
  layer_close(p->device, &b->x);
  for (int i = 0; i < 2; ++i) {
    layer_close(p->device, &b->first[i]);
    free(b->expected_states[i]);
  }
  for (int i = 0; i < 3; ++i) {
    layer_close(p->device, &b->tape[i]);
  }
  for (int i = 0; i < LAYER_SEEDS; ++i) {
    layer_close(p->device, &b->seeds[i]);
  }
  for (int i = 0; i < LAYER_GRADIENTS; ++i) {
    layer_close(p->device, &b->gradients[i]);
    free(b->expected[i]);
  }
  free(b->lengths);
  free(b->resets);
}

static inline bppsa_status layer_queue_forward(const layer_problem *p, const layer_batch *b, void *scratch) {
  const bppsa_layer_inputs inputs = layer_inputs_of(p, b);
  const bppsa_layer_tape tape = layer_tape_of(b);
  return bppsa_layer_forward(p->layer, p->device, &inputs, &tape, scratch);
}

static inline bppsa_status layer_queue_backward(const layer_problem *p, const layer_batch *b, void *scratch) {
  const bppsa_layer_inputs inputs = layer_inputs_of(p, b);
  const bppsa_layer_tape tape = layer_tape_of(b);
  const bppsa_layer_seed seed = {b->seeds[0].data, b->seeds[1].data, b->seeds[2].data, b->seeds[3].data};
  const layer_array *g = b->gradients;
  const bppsa_layer_gradients to = {.x = g[0].data,
                                    .h0 = g[1].data,
                                    .c0 = g[2].data,
                                    .w_ih = g[3].data,
                                    .w_hh = g[4].data,
                                    .b_ih = g[5].data,
                                    .b_hh = g[6].data,
                                    .reset_state = g[7].data};
  return bppsa_layer_backward(p->layer, p->device, &inputs, &tape, &seed, &to, scratch);
}

/* What the forward pass has left has the bits of the model's. */
static inline void layer_check_states(const layer_problem *p, const layer_batch *b) {
  const int64_t half = p->config.batch * p->config.hidden * layer_real(p);
  for (int i = 0; i < (p->cell->pair ? 2 : 1); ++i) {
    void *states = layer_host(p->device, (char *)b->tape[i].data + half, p->config.seq_len * half);
    layer_same(NULL, i == 0 ? "h" : "c", states, b->expected_states[i], p->config.seq_len * half);
    free(states);
  }
}

/* Likewise the backward pass. */
static inline void layer_check_gradients(const layer_problem *p, const layer_batch *b) {
  static const char *const names[LAYER_GRADIENTS] = {"dx", "dh0", "dc0", "dw_ih", "dw_hh", "db_ih", "db_hh", "dreset_state"};
  const layer_array *g = b->gradients;
  for (int i = 0; i < LAYER_GRADIENTS; ++i) {
    if (g[i].data != NULL) {
      void *found = layer_host(p->device, g[i].data, g[i].size);
      layer_same(NULL, names[i], found, b->expected[i], g[i].size);
      free(found);
    }
  }
}

static inline void layer_forward(const layer_problem *p, const layer_batch *b) {
  layer_array scratch = layer_open(p->device, p->sizes.forward, true);
  assert_int_equal(layer_queue_forward(p, b, scratch.data), BPPSA_OK);
  layer_check_states(p, b);
  layer_close(p->device, &scratch);
}

static inline void layer_backward(const layer_problem *p, const layer_batch *b) {
  layer_array scratch = layer_open(p->device, p->sizes.backward, true);
  assert_int_equal(layer_queue_backward(p, b, scratch.data), BPPSA_OK);
  layer_check_gradients(p, b);
  layer_close(p->device, &scratch);
}

#endif
