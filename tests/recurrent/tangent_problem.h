/* A random layer with a point (inputs and weights), directions and seeds, for tests of derivatives along a direction. Every array
 * ends where its memory ends, and scratch is full of NaN. */
#ifndef BPPSA_TESTS_RECURRENT_TANGENT_PROBLEM_H
#define BPPSA_TESTS_RECURRENT_TANGENT_PROBLEM_H

#include "tests/recurrent/layer_problem.h"

enum { TANGENT_INPUTS = 8 /* x, h0, c0, w_ih, w_hh, b_ih, b_hh, reset_state */, TANGENT_SEEDS = 4 /* h, c, h_last, c_last */ };

static const char *const tangent_names[TANGENT_INPUTS] = {"x", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh", "reset_state"};

/* Arrays of the inputs, of a direction, of gradients or of their derivatives; or of a seed. */
typedef struct {
  layer_array a[TANGENT_INPUTS];
} tangent_set;

typedef struct {
  layer_array a[TANGENT_SEEDS];
} tangent_seed;

/* h and c [T+1][B][H], then what the cell keeps. */
typedef struct {
  layer_array a[3];
} tangent_states;

typedef struct {
  bppsa_recurrent_config config;
  const bppsa_cell *cell;
  bppsa_device *device;
  bppsa_layer *layer;
  bppsa_layer_sizes sizes;
  int64_t tangent, backward, twice;                           /* bytes of scratch */
  int64_t counts[TANGENT_INPUTS], seed_counts[TANGENT_SEEDS]; /* numbers in an array; 0: the layer has none */
  int64_t *lengths;
  uint8_t *resets;
  bool far, small; /* they are in the device's memory; the lengths are int32_t */
} tangent_problem;

/* The problem destroys the device. */
static inline tangent_problem tangent_open_on(const bppsa_recurrent_config *config, const bppsa_cell *cell,
                                              bppsa_device *device) {
  tangent_problem p = {.config = *config, .cell = cell, .device = device};
  if (bppsa_layer_create(config, cell, p.device, &p.layer) != BPPSA_OK) {
    fail_msg("%s layer on %s: %s", cell->name, bppsa_device_get_name(device), bppsa_last_error());
  }
  bppsa_layer_bytes(p.layer, &p.sizes);
  assert_int_equal(bppsa_layer_tangent_bytes(p.layer, &p.tangent, &p.backward), BPPSA_OK);
  assert_int_equal(bppsa_layer_second_tangent_bytes(p.layer, &p.twice), BPPSA_OK);
  const bppsa_recurrent_config *c = config;
  const int64_t rows = c->seq_len * c->batch, gates = cell->gates * c->hidden, state = c->batch * c->hidden;
  const int64_t bias = c->no_bias ? 0 : gates, pair = cell->pair ? 1 : 0;
  const int64_t counts[] = {rows * c->input,   state, pair * state, gates * c->input,
                            gates * c->hidden, bias,  bias,         c->reset_state ? (1 + pair) * c->hidden : 0};
  const int64_t seeds[] = {rows * c->hidden, pair * rows * c->hidden, state, pair * state};
  memcpy(p.counts, counts, sizeof counts);
  memcpy(p.seed_counts, seeds, sizeof seeds);
  return p;
}

static inline tangent_problem tangent_open(const bppsa_recurrent_config *config, const bppsa_cell *cell, int64_t threads) {
  return tangent_open_on(config, cell, cpu_device(threads));
}

static inline void tangent_close(tangent_problem *p) {
  bppsa_layer_destroy(p->layer);
  bppsa_device_destroy(p->device);
  free(p->lengths);
  free(p->resets);
}

static inline void tangent_draw_spans(tangent_problem *p, layer_dice *d) {
  const bppsa_recurrent_config *c = &p->config;
  const int64_t rate = layer_roll(d, 1, 12);
  if (c->lengths) {
    p->lengths = calloc((size_t)c->batch, sizeof *p->lengths);
    assert_non_null(p->lengths);
    for (int64_t i = 0; i < c->batch; ++i) {
      p->lengths[i] = layer_roll(d, 1, c->seq_len);
    }
  }
  if (c->resets) {
    p->resets = calloc((size_t)(c->seq_len * c->batch), 1);
    assert_non_null(p->resets);
    for (int64_t i = 0; i < c->seq_len * c->batch; ++i) {
      p->resets[i] = layer_roll(d, 0, rate) == 0;
    }
  }
}

/* A direction or a point. missing: one array in so many is NULL, but for those that a layer needs; 0: none. */
static inline tangent_set tangent_draw(const tangent_problem *p, layer_dice *d, int64_t missing, bool point) {
  tangent_set s = {0};
  for (int i = 0; i < TANGENT_INPUTS; ++i) {
    const bool needed = point && (i == 0 || i == 3 || i == 4 || i == 7), left_out = missing > 0 && layer_roll(d, 1, missing) == 1;
    const double scale = i == 4 && point ? 1.2 / sqrt((double)p->config.hidden) : .8;
    if (p->counts[i] > 0 && (needed || !left_out)) {
      s.a[i] = layer_random(p->device, d, p->config.dtype, p->counts[i], scale);
    }
  }
  return s;
}

static inline tangent_seed tangent_draw_seed(const tangent_problem *p, layer_dice *d, int64_t missing) {
  tangent_seed s = {0};
  for (int i = 0; i < TANGENT_SEEDS; ++i) {
    if (p->seed_counts[i] > 0 && !(missing > 0 && layer_roll(d, 1, missing) == 1)) {
      s.a[i] = layer_random(p->device, d, p->config.dtype, p->seed_counts[i], 1);
    }
  }
  return s;
}

/* Arrays of NaN for gradients; those of inputs only where the layer computes them. */
static inline tangent_set tangent_room(const tangent_problem *p) {
  tangent_set s = {0};
  for (int i = 0; i < TANGENT_INPUTS; ++i) {
    if (p->counts[i] > 0 && (i > 2 || p->config.input_gradients)) {
      s.a[i] = layer_open(p->device, p->counts[i] * (int64_t)bppsa_dtype_size(p->config.dtype), false);
    }
  }
  return s;
}

static inline tangent_states tangent_states_open(const tangent_problem *p, bool saved) {
  tangent_states s = {{layer_open(p->device, p->sizes.states, false)}};
  s.a[1] = p->cell->pair ? layer_open(p->device, p->sizes.states, false) : s.a[1];
  s.a[2] = saved && p->sizes.saved > 0 ? layer_open(p->device, p->sizes.saved, false) : s.a[2];
  return s;
}

static inline void tangent_free(const tangent_problem *p, layer_array *a, int count) {
  for (int i = 0; i < count; ++i) {
    layer_close(p->device, &a[i]);
  }
}

/* ---- passes ---- */

static inline void tangent_good(bppsa_status status) {
  if (status != BPPSA_OK) {
    fail_msg("status %d: %s", (int)status, bppsa_last_error());
  }
}

static inline bppsa_layer_inputs tangent_inputs_of(const tangent_problem *p, const tangent_set *s) {
  return (bppsa_layer_inputs){.x = s->a[0].data,
                              .h0 = s->a[1].data,
                              .c0 = s->a[2].data,
                              .w_ih = s->a[3].data,
                              .w_hh = s->a[4].data,
                              .b_ih = s->a[5].data,
                              .b_hh = s->a[6].data,
                              .reset_state = s->a[7].data,
                              .lengths = p->lengths,
                              .resets = p->resets,
                              .far_lengths = p->far,
                              .short_lengths = p->small,
                              .far_resets = p->far};
}

static inline bppsa_layer_gradients tangent_gradients_of(const tangent_set *s) {
  return (bppsa_layer_gradients){.x = s->a[0].data,
                                 .h0 = s->a[1].data,
                                 .c0 = s->a[2].data,
                                 .w_ih = s->a[3].data,
                                 .w_hh = s->a[4].data,
                                 .b_ih = s->a[5].data,
                                 .b_hh = s->a[6].data,
                                 .reset_state = s->a[7].data};
}

static inline bppsa_layer_tangents tangent_direction_of(const tangent_set *s) {
  return (bppsa_layer_tangents){s->a[0].data, s->a[1].data, s->a[2].data, s->a[3].data,
                                s->a[4].data, s->a[5].data, s->a[6].data, s->a[7].data};
}

static inline bppsa_layer_seed tangent_seed_of(const tangent_seed *s) {
  return (bppsa_layer_seed){s->a[0].data, s->a[1].data, s->a[2].data, s->a[3].data};
}

static inline bppsa_layer_tape tangent_tape_of(const tangent_states *s) {
  return (bppsa_layer_tape){.h = s->a[0].data, .c = s->a[1].data, .saved = s->a[2].data};
}

static inline tangent_states tangent_forward(const tangent_problem *p, const tangent_set *point) {
  const bppsa_layer_inputs in = tangent_inputs_of(p, point);
  tangent_states s = tangent_states_open(p, true);
  const bppsa_layer_tape tape = tangent_tape_of(&s);
  layer_array scratch = layer_open(p->device, p->sizes.forward, true);
  tangent_good(bppsa_layer_forward(p->layer, p->device, &in, &tape, scratch.data));
  layer_close(p->device, &scratch);
  return s;
}

static inline tangent_set tangent_gradients(const tangent_problem *p, const tangent_set *point, const tangent_states *states,
                                            const tangent_seed *seed) {
  const bppsa_layer_inputs in = tangent_inputs_of(p, point);
  const bppsa_layer_tape tape = tangent_tape_of(states);
  const bppsa_layer_seed from = tangent_seed_of(seed);
  tangent_set gradients = tangent_room(p);
  const bppsa_layer_gradients to = tangent_gradients_of(&gradients);
  layer_array scratch = layer_open(p->device, p->sizes.backward, true);
  tangent_good(bppsa_layer_backward(p->layer, p->device, &in, &tape, &from, &to, scratch.data));
  layer_close(p->device, &scratch);
  return gradients;
}

static inline tangent_states tangent_run(const tangent_problem *p, const tangent_set *point, const tangent_states *states,
                                         const tangent_set *direction) {
  const bppsa_layer_inputs in = tangent_inputs_of(p, point);
  const bppsa_layer_tape tape = tangent_tape_of(states);
  const bppsa_layer_tangents along = tangent_direction_of(direction);
  tangent_states s = tangent_states_open(p, false);
  layer_array scratch = layer_open(p->device, p->tangent, true);
  tangent_good(bppsa_layer_tangent(p->layer, p->device, &in, &tape, &along, s.a[0].data, s.a[1].data, scratch.data));
  layer_close(p->device, &scratch);
  return s;
}

/* A direction with its tangents. */
static inline bppsa_layer_direction tangent_with(const tangent_set *direction, const tangent_states *tangents) {
  return (bppsa_layer_direction){tangent_direction_of(direction), tangents->a[0].data, tangents->a[1].data};
}

static inline tangent_states tangent_run_twice(const tangent_problem *p, const tangent_set *point, const tangent_states *states,
                                               const bppsa_layer_direction *one, const bppsa_layer_direction *other) {
  const bppsa_layer_inputs in = tangent_inputs_of(p, point);
  const bppsa_layer_tape tape = tangent_tape_of(states);
  tangent_states s = tangent_states_open(p, false);
  layer_array scratch = layer_open(p->device, p->twice, true);
  assert_int_equal(
      bppsa_layer_second_tangent(p->layer, p->device, &in, &tape, one, other, s.a[0].data, s.a[1].data, scratch.data), BPPSA_OK);
  layer_close(p->device, &scratch);
  return s;
}

/* seed_tangents NULL: zeros. */
static inline tangent_set tangent_run_back(const tangent_problem *p, const tangent_set *point, const tangent_states *states,
                                           const tangent_set *direction, const tangent_states *tangents, const tangent_seed *seed,
                                           const tangent_seed *seed_tangents) {
  const bppsa_layer_inputs in = tangent_inputs_of(p, point);
  const bppsa_layer_tape tape = tangent_tape_of(states);
  const bppsa_layer_tangents along = tangent_direction_of(direction);
  const bppsa_layer_seed from = tangent_seed_of(seed),
                         dots = seed_tangents != NULL ? tangent_seed_of(seed_tangents) : (bppsa_layer_seed){0};
  tangent_set derivatives = tangent_room(p);
  const bppsa_layer_gradients to = tangent_gradients_of(&derivatives);
  layer_array scratch = layer_open(p->device, p->backward, true);
  tangent_good(bppsa_layer_tangent_backward(p->layer, p->device, &in, &tape, &along, tangents->a[0].data, tangents->a[1].data,
                                            &from, &dots, &to, scratch.data));
  layer_close(p->device, &scratch);
  return derivatives;
}

/* ---- numbers ---- */

static inline double tangent_get(const tangent_problem *p, const layer_array *a, int64_t i) {
  return p->config.dtype == BPPSA_F32 ? (double)((const float *)a->data)[i] : ((const double *)a->data)[i];
}

static inline int64_t tangent_count(const tangent_problem *p, const layer_array *a) {
  return a->data != NULL ? a->size / (int64_t)bppsa_dtype_size(p->config.dtype) : 0;
}

/* Σ a b, and Σ |a b| added to *size, of arrays that both exist; b may begin `skip` numbers later. */
static inline double tangent_product(const tangent_problem *p, const layer_array *a, const layer_array *b, int64_t skip,
                                     double *size) {
  double sum = 0;
  for (int64_t i = 0; b->data != NULL && i < tangent_count(p, a); ++i) {
    const double term = tangent_get(p, a, i) * tangent_get(p, b, i + skip);
    sum += term;
    *size += fabs(term);
  }
  return sum;
}

/* The largest |a - b| divided by the largest |b|, or by `least` if that is larger. */
static inline double tangent_error(const tangent_problem *p, const layer_array *a, const double *b, double least) {
  double most = least, error = 0;
  for (int64_t i = 0; i < tangent_count(p, a); ++i) {
    const double difference = fabs(tangent_get(p, a, i) - b[i]);
    most = fabs(b[i]) > most ? fabs(b[i]) : most;
    error = difference <= error ? error : difference; /* NaN stays */
  }
  return error / most;
}

/* ---- random layers ---- */

static const bppsa_gradient_method tangent_methods[] = {
    {BPPSA_BACKWARD_BP, {BPPSA_SCAN_AUTO, -1, 0}},       {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_LINEAR, -1, 0}},
    {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, -1, 0}}, {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, 2, 0}},
    {BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_CHUNKED, -1, 3}},  {BPPSA_BACKWARD_SPECULATIVE, {BPPSA_SCAN_AUTO, -1, 0}}};
enum { TANGENT_METHODS = sizeof tangent_methods / sizeof *tangent_methods };

static inline bppsa_recurrent_config tangent_draw_config(layer_dice *d, const bppsa_cell *cell, bppsa_dtype dtype) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  const bool wide = layer_roll(d, 0, 24) == 0;
  c.seq_len = layer_roll(d, 1, wide ? 3 : 14);
  c.batch = layer_roll(d, 1, 5);
  c.input = layer_roll(d, 1, 7);
  c.hidden = wide ? (int64_t[]){129, 131, 257}[layer_roll(d, 0, 2)] : layer_roll(d, 1, 11);
  c.dtype = dtype;
  c.nonlinearity = cell->relu && layer_roll(d, 0, 1) ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  c.method = tangent_methods[layer_roll(d, 0, TANGENT_METHODS - 1)];
  c.no_bias = layer_roll(d, 0, 4) == 0;
  c.lengths = layer_roll(d, 0, 2) == 0;
  c.resets = layer_roll(d, 0, 1) == 0;
  c.reset_state = c.resets && layer_roll(d, 0, 1) == 0;
  c.input_gradients = layer_roll(d, 0, 3) > 0;
  c.speculation.chunks = c.method.backward == BPPSA_BACKWARD_SPECULATIVE ? 2 : 0;
  return c;
}

static inline void tangent_tell(const bppsa_recurrent_config *c, const bppsa_cell *cell, const char *what, double found) {
  print_message(
      "%s %s T %d B %d I %d H %d, backward %d, scan %d, lengths %d, resets %d, reset state %d, inputs %d, relu %d: %s %g\n",
      cell->name, bppsa_dtype_name(c->dtype), (int)c->seq_len, (int)c->batch, (int)c->input, (int)c->hidden,
      (int)c->method.backward, (int)c->method.scan.algorithm, c->lengths, c->resets, c->reset_state, c->input_gradients,
      (int)c->nonlinearity, what, found);
}

static inline void tangent_expect(const tangent_problem *p, const char *what, double found, double most) {
  if (!(found <= most)) {
    tangent_tell(&p->config, p->cell, what, found);
    fail_msg("%s: %g, expected at most %g", what, found, most);
  }
}

#endif
