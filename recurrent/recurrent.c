/* Recurrent networks: checks, and the order of a pass. The device's backend computes it (layers_cpu.c, layers_cuda.cu);
 * create_network.c creates networks. */
#include "recurrent/recurrent.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "recurrent/recurrent_internal.h"

const char *bppsa_nonlinearity_name(bppsa_nonlinearity nonlinearity) {
  return nonlinearity == BPPSA_NONLINEARITY_RELU ? "relu" : "tanh";
}

/* ---- forward ---- */

/* words: the shape in letters. */
static bppsa_status check_view(const recurrent_network *n, const char *what, const bppsa_view *view, const char *words,
                               int32_t ndim, const int64_t *shape) {
  const bppsa_dtype dtype = n->config.dtype;
  char found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT], guess[BPPSA_SHAPE_TEXT];
  if (view->dtype != dtype || view->ndim != ndim || memcmp(view->shape, shape, (size_t)ndim * sizeof *shape) != 0) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: %s %s, expected %s %s%s", what, bppsa_dtype_name(view->dtype),
                      bppsa_shape_text(view->ndim, view->shape, found, sizeof found), bppsa_dtype_name(dtype),
                      bppsa_shape_text(ndim, shape, expected, sizeof expected),
                      bppsa_view_guess(words, view, ndim, shape, guess));
  }
  if (!bppsa_view_contiguous(view)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: not contiguous, expected row-major without gaps", what);
  }
  if ((view->device == BPPSA_CUDA) != (n->gpu != NULL)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: in the memory of %s, expected that of the network's device, %s", what,
                      n->gpu != NULL ? "the host" : "a GPU", n->gpu != NULL ? bppsa_device_get_name(n->base.device) : "the host");
  }
  return bppsa_view_check_data(what, view);
}

static bppsa_status check_inputs(const recurrent_network *n, const bppsa_view *x, const bppsa_view *h0) {
  BPPSA_REQUIRE(x != NULL);
  const bppsa_recurrent_config *c = &n->config;
  const int64_t batch = bppsa_view_batch(x, c->seq_len, c->input);
  if (x->ndim == 3 && (batch < 1 || batch > c->batch)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "x: batch %lld, expected 1 .. %lld", (long long)batch, (long long)c->batch);
  }
  BPPSA_TRY(check_view(n, "x", x, "[T, B, I]", 3, (int64_t[]){c->seq_len, batch > 0 ? batch : c->batch, c->input}));
  return h0 == NULL ? BPPSA_OK
                    : check_view(n, "h0", h0, "[L, B, H]", 3,
                                 (int64_t[]){bppsa_recurrent_layers(c), batch, bppsa_recurrent_state_size(n)});
}

/* A view of the network's memory. */
static bppsa_view view_of(const recurrent_network *n, void *data, int32_t ndim, const int64_t *shape) {
  bppsa_view view = bppsa_view_make(data, n->config.dtype, ndim, shape);
  view.device = n->gpu != NULL ? BPPSA_CUDA : BPPSA_CPU;
  return view;
}

static bppsa_view logits_view(const recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t all[] = {c->seq_len, n->batch, n->base.classes};
  int64_t first;
  (void)bppsa_recurrent_head_rows(n, &first);
  void *states = n->ragged.active && !c->loss_all ? n->ragged.ends : bppsa_recurrent_offset(n, n->layers[c->layers - 1].h, first);
  states = c->bidirectional ? n->sides.top : c->recompute > 0 ? n->recompute.tops : states;
  void *outputs = c->no_head && !(c->loss_all && bppsa_ragged_packed(n)) ? states : n->logits;
  return view_of(n, outputs, c->loss_all ? 3 : 2, c->loss_all ? all : all + 1);
}

int64_t bppsa_recurrent_head_rows(const recurrent_network *n, int64_t *first) {
  const int64_t t = n->config.loss_all ? 1 : n->config.seq_len;
  *first = t * n->batch * n->config.hidden;
  return (n->config.seq_len - t + 1) * n->batch;
}

/* ---- tapes ---- */

bppsa_status bppsa_recurrent_tape_size(const bppsa_model *model, int64_t *size) {
  BPPSA_REQUIRE(model != NULL && size != NULL);
  int64_t bytes = BPPSA_ALIGNMENT; /* behind the last array, because kernels may read a cache line beyond the end */
  recurrent_network n = *(const recurrent_network *)model;
  if (!n.config.tape) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: the network has no tapes, expected one that was made with them", n.cell->name);
  }
  BPPSA_TRY(bppsa_recurrent_visit_tape(&n, 0, bppsa_recurrent_measure_array, &bytes));
  *size = bytes / (int64_t)bppsa_dtype_size(n.config.dtype);
  return BPPSA_OK;
}

bppsa_status bppsa_recurrent_use_tape(bppsa_model *model, const bppsa_view *x, const bppsa_view *tape, const bppsa_view *output) {
  BPPSA_REQUIRE(model != NULL && x != NULL && tape != NULL);
  recurrent_network *n = (recurrent_network *)model;
  int64_t size, address = (int64_t)(intptr_t)tape->data;
  BPPSA_TRY(bppsa_recurrent_tape_size(model, &size));
  BPPSA_TRY(check_inputs(n, x, NULL));
  BPPSA_TRY(check_view(n, "tape", tape, "[N]", 1, &size));
  BPPSA_TRY(output == NULL
                ? BPPSA_OK
                : check_view(n, "output", output, "[T, B, H]", 3, (int64_t[]){x->shape[0], x->shape[1], n->config.hidden}));
  BPPSA_TRY(bppsa_recurrent_visit_tape(n, 0, bppsa_recurrent_place_array, &address));
  n->batch = x->shape[1];
  n->x = x->data;
  n->output = output != NULL ? output->data : NULL;
  n->seed = n->of_cells = NULL;
  n->ragged.active = n->resets.active = false;
  n->backward_done = n->has_logits = false;
  return BPPSA_OK;
}

/* Takes the lengths and the resets of a batch. */
static bppsa_status take_spans(recurrent_network *n, int64_t batch, const bppsa_spans *spans) {
  BPPSA_TRY(bppsa_resets_check(n, batch, spans->resets));
  BPPSA_TRY(bppsa_ragged_take(n, batch, spans->lengths));
  bppsa_resets_take(n, batch, spans->resets);
  return BPPSA_OK;
}

bppsa_status bppsa_recurrent_use_spans(bppsa_model *model, const bppsa_spans *spans) {
  BPPSA_REQUIRE(model != NULL && spans != NULL);
  recurrent_network *n = (recurrent_network *)model;
  return n->config.tape && n->layers[0].h != NULL
             ? take_spans(n, n->batch, spans)
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "%s: lengths or resets without a tape, expected bppsa_recurrent_use_tape before them", n->cell->name);
}

/* spans NULL: those that the network has. */
static bppsa_status forward_layers(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, const bppsa_spans *spans) {
  recurrent_network *n = (recurrent_network *)model;
  BPPSA_TRY(check_inputs(n, x, h0));
  if (n->config.tape && n->layers[0].h == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: a forward pass without a tape, expected bppsa_recurrent_use_tape before it",
                      n->cell->name);
  }
  if (n->config.tape && x->shape[1] != n->batch) { /* the output has the shape of the tape's x */
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "%s: a forward pass of %lld samples, expected the %lld that bppsa_recurrent_use_tape was given",
                      n->cell->name, (long long)x->shape[1], (long long)n->batch);
  }
  BPPSA_TRY(spans != NULL ? take_spans(n, x->shape[1], spans) : BPPSA_OK);
  n->batch = x->shape[1];
  n->x = x->data;
  n->seed = n->of_cells = NULL;
  n->backward_done = n->has_logits = false;
  n->drop_step = n->next_step;
  n->drop_samples = n->next_samples;
  return n->backend->forward(n, h0 != NULL ? h0->data : NULL);
}

bppsa_status bppsa_recurrent_forward_layers(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0) {
  return bppsa_recurrent_forward_spans(model, x, h0, NULL);
}

bppsa_status bppsa_recurrent_check_resets(const bppsa_model *model, int64_t batch, const bppsa_view *resets) {
  BPPSA_REQUIRE(model != NULL && batch >= 0);
  return bppsa_resets_check((const recurrent_network *)model, batch, resets);
}

bppsa_status bppsa_recurrent_forward_spans(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0,
                                           const bppsa_spans *spans) {
  BPPSA_REQUIRE(model != NULL && x != NULL);
  const bppsa_spans none = {0};
  return forward_layers(model, x, h0, spans != NULL || ((const recurrent_network *)model)->config.tape ? spans : &none);
}

/* Finds the rows of a level's states h (or c), without gaps; with two directions it writes them to a buffer. */
static bppsa_status state_rows(const recurrent_network *n, int64_t level, bool cells, void **rows) {
  const recurrent_layer *layer = &n->layers[level];
  *rows = n->config.bidirectional ? n->sides.above
                                  : bppsa_recurrent_offset(n, cells ? layer->c : layer->h, n->batch * n->config.hidden);
  return n->config.bidirectional ? bppsa_sides_join(n, level, cells, *rows) : BPPSA_OK;
}

static bppsa_status forward_spans(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, const bppsa_spans *spans,
                                  bppsa_view *logits) {
  recurrent_network *n = (recurrent_network *)model;
  BPPSA_TRY(forward_layers(model, x, h0, spans));
  *logits = logits_view(n);
  if (n->config.no_head && n->config.loss_all && bppsa_ragged_packed(n)) {
    void *rows = n->sides.top;
    BPPSA_TRY(n->config.bidirectional ? BPPSA_OK : state_rows(n, n->config.layers - 1, false, &rows));
    bppsa_ragged_unpack(n, rows, bppsa_recurrent_outputs(&n->config), n->logits);
  }
  if (n->config.no_head) {
    return BPPSA_OK;
  }
  BPPSA_TRY(n->backend->logits(n));
  n->has_logits = true;
  return BPPSA_OK;
}

static bppsa_status forward(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, bppsa_view *logits) {
  return forward_spans(model, x, h0, &(bppsa_spans){0}, logits);
}

/* ---- backward ---- */

bool bppsa_recurrent_injected(const recurrent_network *n, int64_t l) {
  const bppsa_recurrent_config *c = &n->config;
  return c->loss_all || bppsa_recurrent_level(n, l) + 1 < c->layers || n->ragged.active ||
         (c->lengths && n->layers[l].scan != NULL);
}

static bppsa_status count(bppsa_model *model) {
  recurrent_network *n = (recurrent_network *)model;
  int64_t redone = 0;
  BPPSA_TRY(n->backend->count(n, &redone));
  for (int64_t l = 0; l < bppsa_recurrent_layers(&n->config); ++l) {
    if (n->layers[l].scan != NULL) {
      BPPSA_TRY(bppsa_scan_executor_count(n->layers[l].scan));
      redone += n->layers[l].scan->redone;
    }
  }
  model->redone = redone;
  return BPPSA_OK;
}

static void gradients_ready(const recurrent_network *n, int64_t first, int64_t count) {
  if (n->gpu == NULL) { /* a GPU has only been given the work */
    bppsa_model_ready(&n->base, first, count);
  }
}

/* Computes a layer, and what happens at the ends of its time: g_T comes as late, and g_0 leaves as early, as the device allows. */
static bppsa_status layer_backward(recurrent_network *n, int64_t l) {
  const bppsa_recurrent_ends *ends = &n->config.ends;
  bool early = false;
  if (ends->before != NULL) {
    BPPSA_TRY(n->backend->prepare != NULL ? n->backend->prepare(n, l) : BPPSA_OK);
    BPPSA_TRY(ends->before(ends->context, l, n->g));
  }
  if (ends->after != NULL && n->backend->carry != NULL) {
    BPPSA_TRY(n->backend->carry(n, l, &early));
  }
  BPPSA_TRY(early ? ends->after(ends->context, l, n->g) : BPPSA_OK);
  BPPSA_TRY(n->backend->backward(n, l));
  return ends->after != NULL && !early ? ends->after(ends->context, l, n->g) : BPPSA_OK;
}

/* Computes all layers, from g_T and u of the top layer in n->g. Redone products are not counted here, because counting on a GPU
 * waits. */
bppsa_status bppsa_recurrent_go_back(recurrent_network *n) {
  const int64_t of_layer = bppsa_recurrent_layer_parameters(&n->config), own = bppsa_recurrent_first_parameter(&n->config);
  n->backward_done = true;
  if (n->config.tape && bppsa_ragged_packed(n)) { /* the forward pass may have been another network's */
    bppsa_ragged_pack(n, n->x, n->config.input, n->ragged.x);
  }
  BPPSA_TRY(bppsa_back_begin(n));
  const bool again = n->config.recompute > 0;
  BPPSA_TRY(again ? bppsa_recompute_backward(n) : BPPSA_OK);
  for (int64_t l = bppsa_recurrent_layers(&n->config) - 1; l >= 0; --l) {
    BPPSA_TRY(again ? BPPSA_OK : layer_backward(n, l));
    gradients_ready(n, own + l * of_layer, of_layer);
    BPPSA_TRY(l > 0 && !again ? n->backend->pass_down(n, l) : BPPSA_OK);
  }
  if (own > 0) {
    gradients_ready(n, 0, own);
  }
  bppsa_back_end(n);
  return n->gpu != NULL ? BPPSA_OK : count(&n->base);
}

static bppsa_status check_forward_was_run(const recurrent_network *n, const bppsa_view *seed) {
  BPPSA_REQUIRE(seed != NULL);
  return n->batch > 0 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_ARGUMENT, "backward: no forward pass precedes it");
}

bppsa_status bppsa_recurrent_seed(recurrent_network *n) {
  return n->config.no_head || n->seeds_states ? n->backend->seed_layers(n, n->seed) : n->backend->seed(n);
}

static bppsa_status backward(bppsa_model *model, const bppsa_view *seed) {
  recurrent_network *n = (recurrent_network *)model;
  BPPSA_TRY(check_forward_was_run(n, seed));
  const bppsa_view logits = logits_view(n);
  BPPSA_TRY(check_view(n, "seed", seed, logits.ndim == 3 ? "[T, B, C]" : "[B, C]", logits.ndim, logits.shape));
  n->seed = seed->data;
  n->seeds_states = n->seeds_cells = false;
  BPPSA_TRY(bppsa_recurrent_seed(n));
  if (!n->config.no_head) {
    BPPSA_TRY(n->backend->head_gradients(n));
    gradients_ready(n, bppsa_recurrent_parameters(&n->config, false), HEAD_PARAMETERS);
  }
  return bppsa_recurrent_go_back(n);
}

/* Writes the gradient of the top layer's last states, or of all its states, to g of the top layer. */
static bppsa_status seed_layers(recurrent_network *n, const bppsa_view *seed) {
  const bppsa_recurrent_config *c = &n->config;
  BPPSA_TRY(check_forward_was_run(n, seed));
  const int64_t all[] = {c->seq_len, n->batch, bppsa_recurrent_outputs(c)};
  BPPSA_TRY(check_view(n, "seed", seed, c->loss_all ? "[T, B, H]" : "[B, H]", c->loss_all ? 3 : 2, c->loss_all ? all : all + 1));
  return n->backend->seed_layers(n, seed->data);
}

/* ERR_UNSUPPORTED: the network does not keep the states of all steps. */
static bppsa_status check_all_states(const recurrent_network *n, const char *what) {
  return n->config.recompute == 0
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: %s of a network that computes states again, expected one without recompute",
                          n->cell->name, what);
}

bppsa_status bppsa_recurrent_seed_cells(bppsa_model *model, const bppsa_view *cells) {
  BPPSA_REQUIRE(model != NULL);
  recurrent_network *n = (recurrent_network *)model;
  const bppsa_recurrent_config *c = &n->config;
  const bool all = cells != NULL && c->loss_all && cells->ndim == 3;
  const int64_t shape[] = {c->seq_len, n->batch, c->hidden};
  if (n->batch == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "gradients of c: no forward pass precedes them");
  }
  BPPSA_TRY(check_all_states(n, "gradients of c"));
  if (!n->cell->pair || c->bidirectional) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                      "gradients of c of %s%s, expected a cell whose state is a pair (h, c), in one direction", n->cell->name,
                      c->bidirectional ? " in two directions" : "");
  }
  BPPSA_TRY(cells == NULL
                ? BPPSA_OK
                : check_view(n, "gradients of c", cells, all ? "[T, B, H]" : "[B, H]", all ? 3 : 2, all ? shape : shape + 1));
  n->of_cells = cells != NULL ? cells->data : NULL;
  n->of_all_cells = all;
  return BPPSA_OK;
}

bppsa_status bppsa_recurrent_put_cells(const recurrent_network *n) {
  const int64_t hidden = n->config.hidden, state = bppsa_recurrent_state_size(n), row = n->batch * state;
  void *first = bppsa_recurrent_offset(n, n->g, row + hidden);
  if (n->gpu != NULL) {
    const int64_t size = (int64_t)bppsa_dtype_size(n->config.dtype), steps = n->of_all_cells ? n->config.seq_len : 1;
    return bppsa_memory_queue_copy(n->base.device, bppsa_recurrent_offset(n, first, (n->config.seq_len - steps) * row),
                                   state * size, n->of_cells, hidden * size, hidden * size, steps * n->batch);
  }
  if (n->of_all_cells) {
    bppsa_ragged_pack_rows(n, n->of_cells, hidden, first, state);
  } else {
    bppsa_ragged_scatter_ends(n, n->of_cells, hidden, state, hidden, first);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_recurrent_backward_layers(bppsa_model *model, const bppsa_view *seed) {
  BPPSA_REQUIRE(model != NULL && seed != NULL);
  recurrent_network *n = (recurrent_network *)model;
  BPPSA_TRY(seed_layers(n, seed));
  n->seeds_cells = n->of_cells != NULL;
  BPPSA_TRY(n->seeds_cells ? bppsa_recurrent_put_cells(n) : BPPSA_OK);
  n->of_cells = NULL;
  n->seed = seed->data;
  n->seeds_states = true;
  return bppsa_recurrent_go_back(n);
}

bppsa_status bppsa_recurrent_hidden_gradients(bppsa_model *model, const bppsa_view *seed, bppsa_view *gradients) {
  BPPSA_REQUIRE(model != NULL && seed != NULL && gradients != NULL);
  recurrent_network *n = (recurrent_network *)model;
  const bppsa_recurrent_config *c = &n->config;
  BPPSA_TRY(check_all_states(n, "gradients of the states"));
  if (n->ragged.active || c->bidirectional) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: gradients of the states %s", n->cell->name,
                      c->bidirectional ? "in two directions, expected one direction"
                                       : "of samples that have lengths, expected whole samples");
  }
  BPPSA_TRY(seed_layers(n, seed));
  BPPSA_TRY(n->backend->layer_backward(n, c->layers - 1));
  const int64_t shape[] = {c->seq_len, n->batch, bppsa_recurrent_state_size(n)};
  *gradients = view_of(n, bppsa_recurrent_offset(n, n->g, n->batch * shape[2]), 3, shape);
  return BPPSA_OK;
}

static bppsa_status states_of(const recurrent_network *n, bool cells, int64_t layer, bppsa_view *states) {
  const bppsa_recurrent_config *c = &n->config;
  if (layer < 0 || layer >= c->layers || n->batch == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "states of layer %lld, expected 0 .. %lld after a forward pass", (long long)layer,
                      (long long)c->layers - 1);
  }
  BPPSA_TRY(check_all_states(n, "the states"));
  const int64_t width = bppsa_recurrent_outputs(c);
  void *rows, *data = n->ragged.states;
  BPPSA_TRY(state_rows(n, layer, cells, &rows));
  if (!bppsa_ragged_packed(n)) {
    data = rows;
  } else {
    bppsa_ragged_unpack(n, rows, width, data);
  }
  *states = view_of(n, data, 3, (int64_t[]){c->seq_len, n->batch, width});
  return BPPSA_OK;
}

/* Copies the last rows of states h (or c) of layer l's samples, to rows that are `size` reals apart. */
static bppsa_status copy_last(const recurrent_network *n, int64_t l, bool cells, int64_t size, void *to) {
  const void *states = cells ? n->layers[l].c : n->layers[l].h;
  const int64_t hidden = n->config.hidden, row = n->batch * hidden;
  const bool again = n->config.recompute > 0;
  const void *from = again ? bppsa_recompute_last(n, l, cells) : bppsa_recurrent_offset(n, states, n->config.seq_len * row);
  const recurrent_rows last = {from, to, n->batch, again ? size : hidden, size, hidden, false, false, false};
  return n->ragged.active ? n->backend->gather_ends(n, bppsa_recurrent_offset(n, states, row), hidden, hidden, to, size)
                          : n->backend->move(n, &last);
}

static bppsa_status last_states(bppsa_model *model, int64_t shape[2], int64_t apart, void *states) {
  const recurrent_network *n = (const recurrent_network *)model;
  const int64_t size = bppsa_recurrent_state_size(n), hidden = n->config.hidden;
  if (n->config.bidirectional) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                      "%s: last states of two directions, of which one ends at the first step, expected one direction",
                      n->cell->name);
  }
  if (states != NULL && n->batch == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: last states, expected a forward pass before", n->cell->name);
  }
  shape[0] = n->config.layers;
  shape[1] = size;
  for (int64_t l = 0; states != NULL && l < n->config.layers; ++l) {
    char *layer = bppsa_recurrent_offset(n, states, l * apart * size);
    BPPSA_TRY(copy_last(n, l, false, size, layer));
    BPPSA_TRY(n->cell->pair ? copy_last(n, l, true, size, bppsa_recurrent_offset(n, layer, hidden)) : BPPSA_OK);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_recurrent_states(const bppsa_model *model, int64_t layer, bppsa_view *states) {
  BPPSA_REQUIRE(model != NULL && states != NULL);
  return states_of((const recurrent_network *)model, false, layer, states);
}

bppsa_status bppsa_recurrent_cell_states(const bppsa_model *model, int64_t layer, bppsa_view *states) {
  BPPSA_REQUIRE(model != NULL && states != NULL);
  const recurrent_network *n = (const recurrent_network *)model;
  return n->cell->pair
             ? states_of(n, true, layer, states)
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "states c of %s, expected a cell whose state is a pair (h, c)", n->cell->name);
}

static bppsa_status input_gradients(bppsa_model *model, bppsa_view *x, bppsa_view *h0) {
  const recurrent_network *n = (const recurrent_network *)model;
  const bppsa_recurrent_config *c = &n->config;
  if (!c->input_gradients) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "input gradients: the model was created without them");
  }
  if (!n->backward_done) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "input gradients: no backward pass precedes them");
  }
  if (x != NULL) {
    *x = view_of(n, n->dx, 3, (int64_t[]){c->seq_len, n->batch, c->input});
  }
  if (h0 != NULL) {
    *h0 = view_of(n, n->dh0, 3, (int64_t[]){bppsa_recurrent_layers(c), n->batch, bppsa_recurrent_state_size(n)});
  }
  return BPPSA_OK;
}

static void drop(bppsa_model *model, int64_t step, const int64_t *samples) {
  recurrent_network *n = (recurrent_network *)model;
  n->next_step = step;
  n->next_samples = samples;
  if (samples != NULL && n->backend->tell_step != NULL) { /* without samples a pass that is queued goes on by its own step */
    n->backend->tell_step(n, step);
  }
}

static bppsa_status lose_array(void **array, int64_t size, int64_t *bytes) {
  (void)size;
  (void)bytes;
  *array = NULL;
  return BPPSA_OK;
}

static void forget(bppsa_model *model) {
  recurrent_network *n = (recurrent_network *)model;
  n->batch = 0;
  n->x = n->seed = n->of_cells = NULL;
  n->output = NULL;
  n->backward_done = n->has_logits = false;
  n->next_samples = n->drop_samples = NULL;
  n->ragged.active = n->resets.active = false;
  n->ragged.lengths = NULL;
  n->resets.given = NULL;
  if (n->config.tape) {
    (void)bppsa_recurrent_visit_tape(n, 0, lose_array, NULL);
  }
}

static const bppsa_model_account *account(const bppsa_model *model, bppsa_pass pass) {
  return pass == BPPSA_PASS_FORWARD ? bppsa_forward_account(model) : bppsa_back_account(model);
}

const bppsa_model_ops bppsa_recurrent_ops = {.name = "recurrent",
                                             .forward = forward,
                                             .forward_spans = forward_spans,
                                             .backward = backward,
                                             .input_gradients = input_gradients,
                                             .last_states = last_states,
                                             .find_nonfinite = bppsa_recurrent_find_nonfinite,
                                             .destroy = bppsa_recurrent_destroy,
                                             .drop = drop,
                                             .forget = forget,
                                             .count = count,
                                             .account = account};
