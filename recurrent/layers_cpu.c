/* Recurrent networks on the CPU: the forward pass, the head, and what enters the backward passes of layers. */
#include <string.h>

#include "core/compute/matmul.h"
#include "recurrent/layers_cpu.h"

/* ---- forward ---- */

/* Packs a parameter [out][in] of the layer into panels: as it is, or transposed. */
static void pack_weights(const recurrent_network *n, const void *w, int64_t out, int64_t in, bool transposed, void *panels) {
  const int64_t k = transposed ? in : out, columns = transposed ? out : in, row = transposed ? 1 : in, step = transposed ? in : 1;
  if (n->config.dtype == BPPSA_F32) {
    bppsa_panels_pack_f32(n->threads, k, columns, w, row, step, panels);
  } else {
    bppsa_panels_pack_f64(n->threads, k, columns, w, row, step, panels);
  }
}

/* Packs W_hhᵀ for the forward pass, or W_hh for the backward pass. */
static void pack_recurrent(const recurrent_network *n, int64_t l, bool transposed) {
  const int64_t hidden = n->config.hidden;
  pack_weights(n, bppsa_recurrent_parameter(n, l, W_HH)->value.data, n->cell->gates * hidden, hidden, transposed, n->panels);
}

/* to [rows, columns] = from [rows, k] times the panels in n->w_t, plus a row `bias` or nothing */
static void multiply_input(const recurrent_network *n, int64_t rows, int64_t columns, int64_t k, const void *from,
                           const void *bias, void *to) {
  if (n->config.dtype == BPPSA_F32) {
    bppsa_panels_multiply_f32(n->threads, rows, columns, k, from, k, 1, n->w_t, bias, 0, to, columns);
  } else {
    bppsa_panels_multiply_f64(n->threads, rows, columns, k, from, k, 1, n->w_t, bias, 0, to, columns);
  }
}

/* Writes 0 behind the first `width` reals of rows that are padded: a stateless pass finds its arrays as the caller left them. */
static void clear_padding(const recurrent_network *n, void *rows, int64_t count, int64_t width, int64_t padded) {
  const size_t row = (size_t)(padded * layers_size_of(n)), used = (size_t)(width * layers_size_of(n));
  for (int64_t r = 0; row > used && r < count; ++r) {
    memset((char *)rows + (size_t)r * row + used, 0, row - used);
  }
}

void bppsa_layers_prepare_forward(recurrent_network *n, int64_t l, bool panels) {
  const int64_t hidden = n->config.hidden, out = n->cell->gates * hidden;
  bppsa_recurrent_cut_biases(n, l);
  if (panels) {
    pack_recurrent(n, l, true);
    return;
  }
  const bppsa_linear from_h = layers_linear(n, 0, hidden, out);
  bppsa_linear_transpose(&from_h, bppsa_recurrent_parameter(n, l, W_HH)->value.data, n->w_hh_t,
                         bppsa_dtype_padded(n->config.dtype, out));
  clear_padding(n, n->w_hh_t, hidden, out, bppsa_dtype_padded(n->config.dtype, out));
}

void bppsa_layers_prepare_input(const recurrent_network *n, int64_t l, bool panels) {
  const int64_t in = n->layers[l].input, out = n->cell->gates * n->config.hidden;
  const void *w_ih = bppsa_recurrent_parameter(n, l, W_IH)->value.data;
  if (panels) {
    pack_weights(n, w_ih, out, in, true, n->w_t);
  } else {
    const bppsa_linear from_x = layers_linear(n, 0, in, out);
    bppsa_linear_transpose(&from_x, w_ih, n->w_t, out);
  }
}

/* Copies rows of the states of a network with a tape to its output, while a cache has them. Rows of samples that have lengths wait
 * for unpack_output. */
static void copy_output(const recurrent_network *n, int64_t row, int64_t rows) {
  const int64_t hidden = n->config.hidden;
  if (n->output != NULL && !n->ragged.active) {
    memcpy(bppsa_recurrent_offset(n, n->output, row * hidden),
           bppsa_recurrent_offset(n, n->layers[0].h, (n->batch + row) * hidden), (size_t)(rows * hidden * layers_size_of(n)));
  }
}

static void unpack_output(const recurrent_network *n) {
  const int64_t hidden = n->config.hidden;
  if (n->output != NULL && n->ragged.active) {
    bppsa_ragged_unpack(n, bppsa_recurrent_offset(n, n->layers[0].h, n->batch * hidden), hidden, n->output);
  }
}

/* pre = x W_ihᵀ + b_ih (+ b_hh), then the cell, window by window. */
static void forward_layer(recurrent_network *n, int64_t l, const void *x) {
  const int64_t steps = bppsa_layers_window_steps(n), input = n->layers[l].input, gates = n->cell->gates * n->config.hidden;
  const bool panels = layers_in_panels(n);
  bppsa_layers_prepare_forward(n, l, panels);
  bppsa_layers_prepare_input(n, l, panels);
  layers_window w = bppsa_layers_whole(n);
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    w.samples = s.samples;
    for (int64_t first = 0; first < s.steps; first += steps) {
      w.first = s.first + first;
      w.row = s.row + first * s.samples;
      w.steps = s.steps - first < steps ? s.steps - first : steps;
      const void *rows = bppsa_recurrent_offset(n, x, w.row * input);
      if (panels) {
        multiply_input(n, w.steps * s.samples, gates, input, rows, n->bias, w.pre);
      } else {
        const bppsa_linear from_x = layers_linear(n, w.steps * s.samples, input, gates);
        bppsa_linear_forward(&from_x, rows, n->w_t, n->bias, w.pre);
      }
      bppsa_layers_sweep(n, n->cell->forward, l, &w, false);
      copy_output(n, w.row, w.steps * s.samples);
    }
  }
}

/* Sets the state of layer l in front of the first step: from h0 [L][b][S], from the reset state, or zeros. */
static void begin_layer(const recurrent_network *n, int64_t l, const void *h0) {
  const recurrent_layer *layer = &n->layers[l];
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n);
  const size_t half = (size_t)(hidden * layers_size_of(n));
  for (int64_t b = 0; b < n->batch; ++b) {
    const bool anew = bppsa_resets_at(n, l, n->config.part.first, b);
    const void *from =
        anew ? bppsa_reset_state_of(n, l) : bppsa_recurrent_offset(n, h0, (l * n->batch + bppsa_ragged_sample(n, b)) * size);
    void *const to[] = {bppsa_recurrent_offset(n, layer->h, b * hidden), bppsa_recurrent_offset(n, layer->c, b * hidden)};
    for (int64_t part = 0; part * hidden < size; ++part) {
      if (from != NULL) {
        memcpy(to[part], bppsa_recurrent_offset(n, from, part * hidden), half);
      } else {
        memset(to[part], 0, half);
      }
    }
  }
}

const void *bppsa_layers_input_of(const recurrent_network *n, int64_t l) {
  if (bppsa_recurrent_drops(n, l) || (layers_have_sides(n) && l > 0)) {
    return n->layers[l].below;
  }
  return l > 0              ? bppsa_recurrent_offset(n, n->layers[l - 1].h, n->batch * n->config.hidden)
         : n->ragged.active ? n->ragged.x
                            : n->x;
}

bppsa_status bppsa_layers_forward(recurrent_network *n, const void *h0) {
  const bppsa_recurrent_config *c = &n->config;
  const bool speculates = bppsa_forward_begin(n);
  if (n->ragged.active) {
    bppsa_ragged_pack(n, n->x, c->input, n->ragged.x);
  }
  for (int64_t l = 0; l < bppsa_recurrent_layers(c); ++l) {
    begin_layer(n, l, h0);
    if (layers_have_sides(n)) {
      BPPSA_TRY(bppsa_sides_enter(n, l));
    } else if (bppsa_recurrent_drops(n, l)) {
      BPPSA_TRY(
          bppsa_recurrent_drop(n, l, bppsa_recurrent_offset(n, n->layers[l - 1].h, n->batch * c->hidden), n->layers[l].below));
    }
    if (speculates) {
      bppsa_layers_prepare_forward(n, l, false);
      bppsa_layers_prepare_input(n, l, false);
      BPPSA_TRY(bppsa_forward_layer(n, l, bppsa_layers_input_of(n, l)));
      copy_output(n, 0, c->seq_len * n->batch);
    } else {
      forward_layer(n, l, bppsa_layers_input_of(n, l));
    }
  }
  if (layers_have_sides(n)) {
    BPPSA_TRY(bppsa_sides_leave(n));
  } else if (n->ragged.active) {
    BPPSA_TRY(bppsa_ragged_gather_ends(n, bppsa_layers_input_of(n, c->layers), c->hidden, c->hidden, n->ragged.ends, c->hidden));
  }
  unpack_output(n);
  bppsa_forward_end(n);
  return BPPSA_OK;
}

static bppsa_status forward(recurrent_network *n, const void *h0) {
  return (n->config.recompute > 0 ? bppsa_recompute_forward : bppsa_layers_forward)(n, h0);
}

/* The linear head, and the states that it reads. */
static bppsa_linear head_of(const recurrent_network *n, const void **h) {
  const bppsa_recurrent_config *c = &n->config;
  int64_t first;
  int64_t rows = bppsa_recurrent_head_rows(n, &first);
  *h = bppsa_recurrent_offset(n, n->layers[c->layers - 1].h, first);
  if (n->ragged.active) {
    rows = c->loss_all ? n->ragged.rows : n->batch;
    *h = c->loss_all ? bppsa_layers_input_of(n, c->layers) : n->ragged.ends;
  }
  *h = layers_have_sides(n) ? n->sides.top : n->config.recompute > 0 ? n->recompute.tops : *h;
  return layers_linear(n, rows, bppsa_recurrent_outputs(c), c->classes);
}

/* The head's parameters. */
static const bppsa_parameter *head_parameter(const recurrent_network *n, int64_t which) {
  return bppsa_recurrent_parameter(n, bppsa_recurrent_layers(&n->config), which);
}

static bppsa_status logits(recurrent_network *n) {
  const void *h;
  const bppsa_linear head = head_of(n, &h);
  bppsa_linear_transpose(&head, head_parameter(n, 0)->value.data, n->w_t, head.out);
  const bool packed = n->ragged.active && n->config.loss_all;
  void *logits = packed ? n->ragged.packed : n->logits;
  bppsa_linear_forward(&head, h, n->w_t, head_parameter(n, 1)->value.data, logits);
  if (packed) {
    bppsa_ragged_unpack(n, logits, n->config.classes, n->logits);
  }
  return BPPSA_OK;
}

/* ---- backward ---- */

void *bppsa_layers_end_of_g(const recurrent_network *n, int64_t rows, int64_t width) {
  return bppsa_recurrent_offset(n, n->g, (n->batch + bppsa_ragged_rows(n)) * bppsa_recurrent_state_size(n) - rows * width);
}

/* Turns the gradients of h in the last `rows` rows, which stand without gaps at the end of g, into gradients of states, with u_0 =
 * 0. For a pair each row moves to its place further in front, and 0 for c follows it; it never overwrites a row that has not
 * moved. */
static void spread_gradients(const recurrent_network *n, int64_t rows) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n);
  memset(n->g, 0, (size_t)(n->batch * size * layers_size_of(n)));
  for (int64_t r = rows; size > hidden && r > 0; --r) {
    char *to = bppsa_layers_end_of_g(n, r, size);
    memmove(to, bppsa_layers_end_of_g(n, r, hidden), (size_t)(hidden * layers_size_of(n)));
    memset(to + hidden * layers_size_of(n), 0, (size_t)((size - hidden) * layers_size_of(n)));
  }
}

/* Makes g the gradient of the last states alone, [b][H]; where gradients are injected, that of all other states is 0. */
static void seed_ends(recurrent_network *n, const void *ends) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n);
  if (bppsa_recurrent_injected(n, bppsa_recurrent_layers(&n->config) - 1)) {
    memset(n->g, 0, (size_t)((n->batch + bppsa_ragged_rows(n)) * size * layers_size_of(n)));
  }
  if (n->ragged.active) {
    bppsa_ragged_scatter_ends(n, ends, hidden, size, hidden, bppsa_recurrent_offset(n, n->g, n->batch * size));
  } else {
    memmove(bppsa_layers_end_of_g(n, n->batch, hidden), ends, (size_t)(n->batch * hidden * layers_size_of(n)));
    spread_gradients(n, n->batch);
  }
}

static bppsa_status enter_side(recurrent_network *n, int64_t l) {
  const int64_t rows = bppsa_ragged_rows(n), hidden = n->config.hidden;
  const bool ends = bppsa_sides_ends(n, l);
  BPPSA_TRY(bppsa_sides_split(n, l, ends ? n->sides.part : bppsa_layers_end_of_g(n, rows, hidden), hidden));
  if (ends) {
    seed_ends(n, n->sides.part);
  } else {
    spread_gradients(n, rows);
  }
  return BPPSA_OK;
}

/* The gradient of the outputs of every step, or of the last states, where the head's products read it. */
static const void *head_seed(const recurrent_network *n) {
  return n->ragged.active && n->config.loss_all ? n->ragged.packed : n->seed;
}

static bppsa_status seed(recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  const void *h;
  if (c->recompute > 0) { /* every segment has its own */
    return BPPSA_OK;
  }
  const bppsa_linear head = head_of(n, &h);
  const void *weight = head_parameter(n, 0)->value.data;
  if (n->ragged.active && c->loss_all) {
    bppsa_ragged_pack(n, n->seed, c->classes, n->ragged.packed);
  }
  /* where seed_ends clears g, the products wait elsewhere: in a network that takes lengths */
  const bool apart = !c->loss_all && bppsa_recurrent_injected(n, c->layers - 1);
  void *ends = layers_have_sides(n) ? n->sides.above : apart ? n->ragged.packed : bppsa_layers_end_of_g(n, head.rows, c->hidden);
  bppsa_linear_input_gradient(&head, head_seed(n), weight, ends);
  if (layers_have_sides(n)) {
    return enter_side(n, bppsa_recurrent_layers(c) - 1);
  }
  if (c->loss_all) {
    spread_gradients(n, head.rows);
  } else {
    seed_ends(n, ends);
  }
  return BPPSA_OK;
}

static bppsa_status seed_layers(recurrent_network *n, const void *seed) {
  const int64_t hidden = n->config.hidden, rows = bppsa_ragged_rows(n), outputs = bppsa_recurrent_outputs(&n->config);
  if (n->config.recompute > 0) {
    return BPPSA_OK;
  }
  if (layers_have_sides(n)) {
    if (n->config.loss_all) {
      bppsa_ragged_pack(n, seed, outputs, n->sides.above);
    } else {
      memcpy(n->sides.above, seed, (size_t)(n->batch * outputs * layers_size_of(n)));
    }
    return enter_side(n, bppsa_recurrent_layers(&n->config) - 1);
  }
  if (!n->config.loss_all) {
    seed_ends(n, seed);
    return BPPSA_OK;
  }
  bppsa_ragged_pack(n, seed, hidden, bppsa_layers_end_of_g(n, rows, hidden));
  spread_gradients(n, rows);
  return BPPSA_OK;
}

void bppsa_layers_seed_last(recurrent_network *n, const void *rows) {
  const int64_t hidden = n->config.hidden;
  layers_put_row(n, rows, n->batch * hidden, bppsa_layers_end_of_g(n, n->batch, hidden));
  spread_gradients(n, n->batch);
}

void bppsa_layers_prepare_input_gradient(const recurrent_network *n, int64_t l) {
  if (layers_in_panels(n)) {
    pack_weights(n, bppsa_recurrent_parameter(n, l, W_IH)->value.data, n->cell->gates * n->config.hidden, n->layers[l].input,
                 false, n->w_t);
  }
}

void bppsa_layers_multiply_deltas(const recurrent_network *n, int64_t l, int64_t rows, const void *deltas, void *to) {
  const bppsa_linear project = layers_linear(n, rows, n->layers[l].input, n->cell->gates * n->config.hidden);
  if (layers_in_panels(n)) {
    multiply_input(n, rows, project.in, project.out, deltas, NULL, to);
  } else {
    bppsa_linear_input_gradient(&project, deltas, bppsa_recurrent_parameter(n, l, W_IH)->value.data, to);
  }
}

bppsa_status bppsa_layers_input_gradient(recurrent_network *n, int64_t l, void *rows) {
  bppsa_layers_prepare_input_gradient(n, l);
  bppsa_layers_multiply_deltas(n, l, bppsa_ragged_rows(n), n->pre, rows);
  return BPPSA_OK;
}

static bppsa_status pass_down(recurrent_network *n, int64_t l) {
  if (layers_have_sides(n)) {
    return bppsa_sides_pass_down(n, l);
  }
  const int64_t rows = bppsa_ragged_rows(n);
  void *gradients = bppsa_layers_end_of_g(n, rows, n->config.hidden);
  BPPSA_TRY(bppsa_layers_input_gradient(n, l, gradients));
  if (bppsa_recurrent_drops(n, l)) {
    BPPSA_TRY(bppsa_recurrent_drop(n, l, gradients, gradients));
  }
  spread_gradients(n, rows);
  return BPPSA_OK;
}

void bppsa_layers_pad_weights(const recurrent_network *n, int64_t l) {
  const int64_t hidden = n->config.hidden, padded = bppsa_dtype_padded(n->config.dtype, hidden);
  const size_t width = (size_t)(hidden * layers_size_of(n)), row = (size_t)(padded * layers_size_of(n));
  const char *from = bppsa_recurrent_parameter(n, l, W_HH)->value.data;
  char *to = n->w_hh;
  for (int64_t r = 0; r < n->cell->gates * hidden; ++r, from += width, to += row) {
    memcpy(to, from, width);
    memset(to + width, 0, row - width);
  }
}

void bppsa_layers_prepare_back(const recurrent_network *n, int64_t l) {
  if (layers_in_panels(n)) {
    pack_recurrent(n, l, false);
  } else {
    bppsa_layers_pad_weights(n, l);
  }
}

static bppsa_status head_gradients(recurrent_network *n) {
  const void *h;
  const bppsa_linear head = head_of(n, &h);
  if (bppsa_back_is_part(n)) {
    const recurrent_products p = {.from_x = head, .x = h, .delta_x = n->seed};
    return bppsa_back_sum_layer(n, n->config.layers, &p);
  }
  bppsa_linear_weight_gradient(&head, head_seed(n), h, head_parameter(n, 0)->gradient.data, head_parameter(n, 1)->gradient.data,
                               n->sums);
  return BPPSA_OK;
}

static bppsa_status count(recurrent_network *n, int64_t *redone) {
  (void)n;
  *redone = 0; /* scan executors count by themselves */
  return BPPSA_OK;
}

/* ---- creation ---- */

static bppsa_status create(recurrent_network *n, const bppsa_device *device) {
  (void)n, (void)device;
  return BPPSA_OK;
}

/* Does a scan executor run the layer? The cell's sweep runs a linear scan, which is sequential BP, unless the caller provides the
 * executor. */
static bool runs_scan(const recurrent_network *n, const bppsa_scan_plan *plan) {
  return plan != NULL &&
         (!bppsa_scan_algorithm_is_bp(bppsa_scan_plan_config(plan)->method.algorithm) || n->config.factory.create != NULL);
}

static bppsa_status look(recurrent_network *n) {
  (void)n; /* passes are over when they return, and n->forward is what they read and write */
  return BPPSA_OK;
}

const recurrent_backend bppsa_recurrent_cpu = {.create = create,
                                               .runs_scan = runs_scan,
                                               .choose = bppsa_forward_choose,
                                               .visit = bppsa_layers_visit,
                                               .allocate = bppsa_layers_allocate,
                                               .check_cell = bppsa_recurrent_check_entries,
                                               .destroy = bppsa_layers_destroy,
                                               .forward = forward,
                                               .logits = logits,
                                               .seed = seed,
                                               .seed_layers = seed_layers,
                                               .head_gradients = head_gradients,
                                               .layer_backward = bppsa_layers_sweep_back,
                                               .backward = bppsa_layers_backward,
                                               .pass_down = pass_down,
                                               .input_gradient = bppsa_layers_input_gradient,
                                               .enter_side = enter_side,
                                               .move = bppsa_sides_move,
                                               .gather_ends = bppsa_ragged_gather_ends,
                                               .drop = bppsa_recurrent_drop,
                                               .count = count,
                                               .look = look,
                                               .tell = look,
                                               .tangents = &bppsa_tangents_cpu};
